"""The processor that runs Python, through numba's code generator.

Imports are inside the methods: a process whose code is on disk loads no compiler, and one that
plays tapes loads no linker.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import numpy as np

from tapegrad.backends.target import Build, Machine, Numbers

if TYPE_CHECKING:
    from tapegrad.backends.memo import Memo
    from tapegrad.backends.source.driver import Executable
    from tapegrad.backends.source.program import Program


class Cpu(Machine):
    """The processor of this process."""

    name = "cpu"
    threads = True
    cuts = True

    @property
    def objects(self) -> Memo:
        from tapegrad.backends.cpu import kernel_cache

        return kernel_cache.kernels

    def build(self, program: Program, build: Build, others: Numbers) -> Executable:
        from tapegrad.backends.cpu.machine_code import machine_code

        return machine_code(program, build, others)

    def with_lines(self, program: Program, names: Collection[str]) -> dict[str, bytes]:
        from tapegrad.backends.cpu.machine_code import with_lines

        return with_lines(program, names)

    def numbers_of(self, one: Program, other: Program) -> Numbers | None:
        from tapegrad.backends.cpu.templates import numbers_of

        return numbers_of(one, other)

    def key(self) -> str:
        from tapegrad.backends.cpu.processor import processor_key

        return processor_key()

    def prepare(self) -> None:
        from tapegrad.backends.cpu.linking import fortran

        fortran("blas")

    def fault(self) -> str:
        from tapegrad.backends.cpu.layout import layout_fault

        return layout_fault()

    def described(self) -> str:
        from llvmlite import binding

        from tapegrad.backends.cpu.threads import available_cores, pool

        has = binding.get_host_cpu_features()
        vectors = next((x for x in ("avx512f", "avx2", "neon") if has.get(x)), "no known")
        return (
            f"{binding.get_host_cpu_name()} with {vectors} vectors; {available_cores()} of "
            f"{os.cpu_count()} cores may be used, and {pool.crew.size} are"
        )

    def functions(self, executable: Executable) -> dict[str, Any]:
        from tapegrad.backends.cpu.linking import linked
        from tapegrad.backends.source.driver import POOLED

        found: dict[str, Any] = {"empty": np.empty}
        if pooled := executable.driver.words().intersection(POOLED):
            from tapegrad.backends.cpu import threads  # starts threads; few need it

            found.update({name: getattr(threads, name) for name in pooled})
        functions: dict[bytes, Any] = {}  # equal kernels are linked once
        for name, code in executable.kernels.items():
            if code not in functions:
                functions[code] = linked(name, code, executable.shared)
            found[name] = functions[code]
        return found

    @property
    def most_threads(self) -> int:
        from tapegrad.backends.cpu.threads import MAX_THREADS

        return MAX_THREADS

    @property
    def threads_at_work(self) -> int:
        from tapegrad.backends.cpu.threads import pool

        return pool.crew.size

    def work_in(self, threads: int | None) -> None:
        from tapegrad.backends.cpu.threads import available_cores, pool

        pool.resize(available_cores() if threads is None else threads)

    def reserved(self) -> frozenset[str]:
        from tapegrad.backends.cpu.reserved import support_words

        return support_words()

    def words(self) -> dict[str, Any]:
        from tapegrad.backends.cpu import support

        return support.namespace()

    def support(self) -> str:
        from tapegrad.backends.cpu import support

        return support.text()
