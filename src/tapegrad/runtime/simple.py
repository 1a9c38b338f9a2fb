"""Gradient functions that stand alone: `simplegrad`."""

from __future__ import annotations

import linecache
import os
import weakref
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import numpy as np

from tapegrad.backends.source.program import Program
from tapegrad.backends.source.standalone import (
    Text,
    check_parts,
    is_float_leaf,
    mirrored,
    refuse_foreign_calls,
    standalone,
)
from tapegrad.core.request import Request, argument_names, describe
from tapegrad.core.trees import flatten, is_traced
from tapegrad.errors import ArgumentError, RandomnessError, UnsupportedError
from tapegrad.ir.tape import Tape
from tapegrad.pipeline import gradient, schedule
from tapegrad.runtime.checks import check_scalar_result
from tapegrad.runtime.traced import traced as made
from tapegrad.runtime.transformations import with_captured, with_loss
from tapegrad.tracing.run import Traced
from tapegrad.tracing.source import at_source

_numbers = count()


class SimpleGradient:
    """A compiled gradient function for arguments of fixed shapes; see `tapegrad.simplegrad`.

    `source` is its readable Python source; `save(path)` writes a file that runs without tapegrad.
    """

    def __init__(self, text: Text) -> None:
        self._text = text
        self.__name__ = text.name
        self.__doc__ = text.doc
        self._function = self._compiled()

    def _compiled(self) -> Callable[..., Any]:
        from tapegrad.backends.cpu import support

        names = support.namespace()
        names["__name__"] = f"tapegrad.generated.{self._text.name}"
        for text in (self._text.source, self._text.compiling):
            file = f"<tapegrad {self._text.name} {next(_numbers)}>"
            # Tracebacks and the compiler of the kernels find the lines there.
            linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
            weakref.finalize(self, linecache.cache.pop, file, None)
            exec(compile(text, file, "exec"), names)
        return names[self._text.name]

    def __call__(self, *args: Any) -> Any:
        return self._function(*args)

    @property
    def source(self) -> str:
        """The kernels and the function that calls them."""
        return self._text.source

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a Python file with this function in it, which needs NumPy, numba and SciPy only."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self._text.whole())

    def __reduce__(self) -> Any:
        return SimpleGradient, (self._text,)

    def __repr__(self) -> str:
        return f"<tapegrad {self.__name__}>"


def simplegrad(
    f: Callable[..., Any], args: Sequence[Any], checkpoint: str | int = "auto"
) -> SimpleGradient:
    """Trace, differentiate, schedule and compile; no cache."""
    request = Request(f, args).check("simplegrad")
    for name, arg in zip(argument_names(f, len(args)), args, strict=True):
        check_parts(arg, f"simplegrad: argument {name!r}")
        if any(getattr(x, "dtype", np.dtype(float)).kind == "c" for x in flatten(arg)[0]):
            raise ArgumentError(
                f"simplegrad: argument {name!r} is complex, and only real arguments are supported "
                "there. Pass real and imaginary parts, or use grad"
            )
    inputs = request.inputs
    wrt = [k for k, x in enumerate(inputs) if is_float_leaf(x)]

    def make(traced: Traced) -> tuple[Tape, Traced]:
        if traced.draws is not None:
            raise RandomnessError(
                f"{describe(f)} draws random numbers, which a function that stands alone can't "
                "draw as it does. Draw them outside and pass them in as an argument"
            )
        for word, src in traced.lines:
            raise UnsupportedError(
                f"{describe(f)} leaves a value in {word!r}{at_source(src)}, which a function that "
                "stands alone can't: it doesn't have the object. Return the value, or use grad"
            )
        check_scalar_result(traced)
        whole, before = with_loss(traced)
        value = 0 if traced.outputs[0] is None else before
        return with_captured(gradient(whole, wrt, keep=[value], checkpoint=checkpoint), traced)

    tape, traced = made(request, make)
    program = schedule(tape)
    refuse_foreign_calls(program)
    parameters = _parameters(f, args, program)
    name = program.scope.fresh(f"grad_{program.plan.name.removeprefix('grad_')}")

    def result(outputs: Sequence[str]) -> str:
        gradients = iter(outputs[1:])
        each = iter([next(gradients) if k in wrt else "None" for k in range(len(inputs))])
        parts = [mirrored(p, a, each) for p, a in zip(parameters, args, strict=True)]
        return f"{outputs[0]}, {', '.join(parts)}"

    doc = f"The value of {describe(f)} and its gradients with respect to each argument."
    written = [k for k, _ in traced.written if k < len(inputs)]
    text = standalone(program, name, parameters, args, traced.captured, result, doc, written)
    return SimpleGradient(text)


def _parameters(f: Callable[..., Any], args: Sequence[Any], program: Program) -> list[str]:
    """The user's names, numbered where generated code says them of something else. An array that is
    an argument by itself is called alike as a parameter and as the program's input."""
    cells = iter(program.plan.inputs)
    parameters = []
    for p, arg in zip(argument_names(f, len(args)), args, strict=True):
        own = [program.names[next(cells)] for x in flatten(arg)[0] if is_traced(x)]
        parameters.append(own[0] if is_traced(arg) else program.scope.fresh(p))
    return parameters
