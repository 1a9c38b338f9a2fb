"""The interface of a compilation target: a processor or a language.

Tapes and the loops of plans are the same for all targets, and so is a program's source: its
kernels are functions in a small subset of Python (`source.emit`), which a target translates. All
differences between targets are fields and methods here. A target is a subclass in its own folder:

    schedule    `threads`, `cuts`           which passes a plan goes through
    emit        `reserved`                  names that no variable may have
    compile     `build`, `numbers_of`       how a program is compiled
                `objects`, `key`            the cache of object code, and what code depends on
                `prepare`                   libraries that the code calls
    run         `fault`, `functions`        the functions that a driver calls
                `most_threads`, `threads_at_work`, `work_in`
    save        `words`, `support`          the functions that kernels call, and their source
                `files`                     of a `Language`: a program written in it

`backends.host` names the target of this process, and the languages that programs can be saved in.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

if TYPE_CHECKING:
    from tapegrad.backends.memo import Memo
    from tapegrad.backends.source.driver import Executable
    from tapegrad.backends.source.program import Program

# Compiles kernels: takes a function that returns the object code of a kernel, and the source length
# of each kernel. Returns the object code of each kernel.
Build = Callable[[Callable[[Any], bytes], Mapping[Any, int]], dict[Any, bytes]]
Numbers = Sequence[Sequence[np.generic]]  # of each kernel of a program, in the order of its source


def one_by_one(work: Callable[[Any], bytes], sizes: Mapping[Any, int]) -> dict[Any, bytes]:
    """The results of `work` for each key, computed in this process, one after the other."""
    return {key: work(key) for key in sizes}


class Target:
    """The target that a plan is scheduled for."""

    name: ClassVar[str]
    threads: ClassVar[bool] = False  # whether long loops are cut into chunks for several threads
    cuts: ClassVar[bool] = False  # whether one long kernel compiles slower than short ones

    def reserved(self) -> frozenset[str]:
        """The names that have a meaning in the target's code: no variable may have one."""
        return frozenset()


class Language(Target, ABC):
    """A target whose programs are source files, which another compiler compiles."""

    @abstractmethod
    def files(self, program: Program, captured: Sequence[np.ndarray], doc: str) -> dict[str, str]:
        """The source files of a program, by the endings of their names. `captured` are the
        program's captured arrays, `doc` is the function's documentation."""


class Machine(Target, ABC):
    """A target that runs programs in this process."""

    @property
    @abstractmethod
    def objects(self) -> Memo:
        """The object code of the kernels compiled so far in this process."""

    @abstractmethod
    def build(self, program: Program, build: Build, others: Numbers) -> Executable:
        """Compile a program; `build` compiles the kernels that aren't in `objects`. With `others`,
        the numbers of a program for other lengths, its kernels serve other lengths too."""

    @abstractmethod
    def with_lines(self, program: Program, names: Collection[str]) -> dict[str, bytes]:
        """The object code of the kernels called so, compiled once more, with the numbers of their
        sources' lines."""

    @abstractmethod
    def numbers_of(self, one: Program, other: Program) -> Numbers | None:
        """The numbers of `other` at the places of the numbers of `one`, by kernel; None if the two
        programs differ in anything else."""

    @abstractmethod
    def key(self) -> str:
        """What object code depends on besides the program and the versions of tapegrad, NumPy and
        Python."""

    @abstractmethod
    def prepare(self) -> None:
        """Load the libraries that object code may call."""

    @abstractmethod
    def fault(self) -> str:
        """Why object code can't run in this process; empty if it can."""

    @abstractmethod
    def described(self) -> str:
        """The processor and its threads, in words."""

    @abstractmethod
    def functions(self, executable: Executable) -> dict[str, Any]:
        """The functions that a driver's lines call: its kernels, `empty`, and those of threads."""

    @property
    @abstractmethod
    def most_threads(self) -> int:
        """The largest number of threads that kernels can use."""

    @property
    @abstractmethod
    def threads_at_work(self) -> int:
        """The number of threads that kernels use now."""

    @abstractmethod
    def work_in(self, threads: int | None) -> None:
        """Set the number of threads that kernels use; None is one for each core."""

    @abstractmethod
    def words(self) -> dict[str, Any]:
        """The globals of the kernels of a readable program."""

    @abstractmethod
    def support(self) -> str:
        """The source of these globals, for a saved file."""
