"""Compiling: the emitted source, through numba, to machine code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tapegrad.emit.driver import Driver
from tapegrad.ir.tape import Tape
from tapegrad.runtime import alike

if TYPE_CHECKING:
    from tapegrad.emit.program import Program


@dataclass(frozen=True)
class Executable:
    """A tape compiled: the driver, and the machine code of the kernels by name."""

    driver: Driver
    kernels: dict[str, bytes]


def compiled(tape: Tape) -> Executable:
    """Schedule, emit and compile an optimised tape."""
    from tapegrad.pipeline import schedule

    program = schedule(tape)
    return Executable(program.driver(tape), _machine_code(program))


def _machine_code(program: Program) -> dict[str, bytes]:
    from tapegrad.emit import support

    names = support.namespace()
    names.update({"nan": np.nan, "inf": np.inf, "empty": np.empty})
    names.update(program.constants)
    names["__name__"] = f"tapegrad.generated.{program.plan.name}"
    done = {}
    for kernel in program.kernels:
        types = [kernel.type_of(k) for k in range(len(kernel.parameters))]
        function = kernel_function(kernel.text, kernel.name, names)
        done[kernel.name] = alike.kernels.object_code(
            function, types, program.constants, support.object_code
        )
    return done


def kernel_function(text: str, name: str, names: dict[str, Any]) -> Any:
    """The function of this name that a text defines, among the names that it uses. It carries its
    text, for its compiler."""
    exec(compile(text, f"<tapegrad {name}>", "exec"), names)
    function = names[name]
    function.text = text
    return function
