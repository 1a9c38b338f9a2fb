"""What programs are compiled for, as one object: a processor, or a language.

Tapes and the loops of plans are the same for all targets, and so is the text of a program: its
kernels are functions in a small part of Python (`source.emit`), which a target translates. All that
differs is a field or a method here, so a target is a subclass in a folder of its own:

    schedule    `threads`, `cuts`           which passes a plan goes through
    emit        `reserved`                  names that no variable has
    compile     `build`, `numbers_of`       what a program becomes
                `objects`, `key`            where that is known, and what it depends on
                `prepare`                   libraries that it calls
    run         `fault`, `functions`        what a driver calls, and where its arrays live
                `most_threads`, `threads_at_work`, `work_in`
    save        `words`, `support`          what kernels call, and its text
                `files`                     of a `Language`: a program in it

`backends.host` says which one programs are compiled for in this process, and what they are saved
in.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

if TYPE_CHECKING:
    from tapegrad.backends.memo import Memo
    from tapegrad.backends.source.driver import Executable
    from tapegrad.backends.source.program import Program

# What compiles kernels: the function that gives one's code, and for each kernel its text's length.
# The result holds the code of each.
Build = Callable[[Callable[[Any], bytes], Mapping[Any, int]], dict[Any, bytes]]
Numbers = Sequence[Sequence[np.generic]]  # of each kernel of a program, in the order of the text


def one_by_one(work: Callable[[Any], bytes], sizes: Mapping[Any, int]) -> dict[Any, bytes]:
    """The results of work that is done here, one piece after the other."""
    return {key: work(key) for key in sizes}


class Target:
    """What plans are scheduled for."""

    name: ClassVar[str]
    threads: ClassVar[bool] = False  # whether long loops are shared out, in chunks
    cuts: ClassVar[bool] = False  # whether long kernels take longer to compile than several

    def reserved(self) -> frozenset[str]:
        """The names that mean something in its code, so that no variable has one."""
        return frozenset()


class Language(Target, ABC):
    """One whose programs are files, which others compile."""

    @abstractmethod
    def files(self, program: Program, captured: Sequence[np.ndarray], doc: str) -> dict[str, str]:
        """A program as a function of that language, with arrays that it captured, and what is said
        of it: the texts of files, by the ends of their names."""


class Machine(Target, ABC):
    """One that runs programs in this process."""

    @property
    @abstractmethod
    def objects(self) -> Memo:
        """The code of kernels that is known in this process."""

    @abstractmethod
    def build(self, program: Program, build: Build, others: Numbers) -> Executable:
        """A program compiled; `build` compiles what isn't known of it. Its kernels serve other
        lengths where a program for these has `others` in the place of its numbers."""

    @abstractmethod
    def numbers_of(self, one: Program, other: Program) -> Numbers | None:
        """The numbers that another program has in the place of those of one; None if the two differ
        in more than that."""

    @abstractmethod
    def key(self) -> str:
        """What code depends on besides programs, tapegrad, NumPy and Python."""

    @abstractmethod
    def prepare(self) -> None:
        """Load the libraries that code may call."""

    @abstractmethod
    def fault(self) -> str:
        """Why code can't be run in this process; empty if it can."""

    @abstractmethod
    def described(self) -> str:
        """The processor and its threads, in words."""

    @abstractmethod
    def functions(self, executable: Executable) -> dict[str, Any]:
        """What a driver's lines call: its kernels, `empty` and `parallel`."""

    @property
    @abstractmethod
    def most_threads(self) -> int:
        """How many threads code can work in."""

    @property
    @abstractmethod
    def threads_at_work(self) -> int:
        """How many threads code works in."""

    @abstractmethod
    def work_in(self, threads: int | None) -> None:
        """Have code work in so many threads, or in one for each core."""

    @abstractmethod
    def words(self) -> dict[str, Any]:
        """What the kernels of a readable program find where they run."""

    @abstractmethod
    def support(self) -> str:
        """The text of that, for a saved file."""
