"""Compiling: the emitted source, through numba, to machine code."""

from __future__ import annotations

import linecache
from typing import Any

import numpy as np

from tapegrad.emit.program import Program

_count = 0


def namespace(program: Program) -> dict[str, Any]:
    """What the emitted functions see: the support module, and constants."""
    from tapegrad.emit import support

    names = support.namespace()
    names.update({"nan": np.nan, "inf": np.inf, "empty": np.empty})
    names.update(program.constants)
    return names


def compile_program(program: Program) -> dict[str, Any]:
    """The kernels of a program by name, as callables that raise BufferError on other arrays."""
    from tapegrad.emit import support

    names = namespace(program)
    names["__name__"] = f"tapegrad.generated.{program.plan.name}"
    done = {}
    for kernel in program.kernels:
        exec(_code(kernel.text, kernel.name), names)
        types = [kernel.type_of(k) for k in range(len(kernel.parameters))]
        done[kernel.name] = support.compiled(names[kernel.name], types)
    return done


def _code(text: str, name: str) -> Any:
    """The compiled text, its lines known to tracebacks."""
    global _count
    _count += 1
    file = f"<tapegrad {name} {_count}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    return compile(text, file, "exec")
