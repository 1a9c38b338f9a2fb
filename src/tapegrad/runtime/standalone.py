"""Stand-alone functions: derivatives as Python source that runs without tapegrad."""

from __future__ import annotations

import linecache
import os
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np

from tapegrad.backends.host import HOST, language
from tapegrad.backends.source.program import Program
from tapegrad.backends.source.standalone import (
    Text,
    check_parts,
    is_float_leaf,
    refuse_foreign_calls,
)
from tapegrad.backends.source.standalone import standalone as text_of
from tapegrad.backends.target import Language
from tapegrad.core.frames import short_traceback
from tapegrad.core.request import Request, argument_names, describe
from tapegrad.core.trees import flatten, is_traced, unflatten
from tapegrad.errors import ArgumentError, RandomnessError, UnsupportedError
from tapegrad.ir.tape import Tape
from tapegrad.observe.program.source import at_line, at_source
from tapegrad.pipeline import gradient, optimized, schedule
from tapegrad.runtime.checks import check_scalar_result
from tapegrad.runtime.derived import Derived
from tapegrad.runtime.directional import leaves_of
from tapegrad.runtime.half_precision import kept_so, with_halves
from tapegrad.runtime.traced import traced as made
from tapegrad.runtime.transformations import Derivation, Jit, with_captured, with_loss
from tapegrad.tracing.frontend.numpy.undispatched import has_traced
from tapegrad.tracing.recording.trace import refusing
from tapegrad.tracing.runs.traced import Traced, kept_as

_numbers = count()


class StandAlone:
    """A compiled function for arguments of fixed shapes; see `tapegrad.standalone`.

    `source` is its readable Python source; `save(path)` writes a file that runs without tapegrad.
    `tape` is the tape of its leaves, with the captured arrays; None if it writes to its arguments.
    """

    def __init__(self, text: Text, tape: tuple[Tape, Sequence[np.ndarray]] | None) -> None:
        self._text, self._tape = text, tape
        self.__name__ = text.name
        self.__doc__ = text.doc
        self._function = self._compiled()

    def _compiled(self) -> Callable[..., Any]:
        names = HOST.words()
        names["__name__"] = f"tapegrad.generated.{self._text.name}"
        for text in (self._text.source, self._text.compiling):
            file = f"<tapegrad {self._text.name} {next(_numbers)}>"
            # Tracebacks and the kernels' compiler look up source lines there.
            linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
            weakref.finalize(self, linecache.cache.pop, file, None)
            exec(compile(text, file, "exec"), names)
        return names[self._text.name]

    @short_traceback
    def __call__(self, *args: Any) -> Any:
        if has_traced(args):
            raise refusing(
                UnsupportedError(
                    f"{self.__name__}, a function that stands alone, is called with traced values"
                    f"{at_line()}: it is machine code for plain arrays. Call what it was made of "
                    "instead, such as grad(f) or f, which may be part of a trace"
                )
            )
        return self._function(*args)

    @property
    def source(self) -> str:
        """The source of the kernels and of the function that calls them."""
        return self._text.source

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a Python file with this function, which needs NumPy, numba and SciPy only. If the
        path ends in .c, write a C file and its header, which need the C library."""
        stem, ending = os.path.splitext(os.fspath(path))
        target = language(ending)
        texts = {ending: self._text.whole()} if target is None else self._in(target)
        for end, text in texts.items():
            with open(stem + end, "w", encoding="utf-8") as file:
                file.write(text)

    def _in(self, target: Language) -> dict[str, str]:
        """The files in another language, as file ending -> text."""
        if self._tape is None:
            raise UnsupportedError(
                f"{self.__name__} writes to its arguments, which is followed in Python alone. "
                "Save it as a Python file"
            )
        tape, captured = self._tape
        return target.files(schedule(tape, target), captured, self._text.doc)

    def __reduce__(self) -> Any:
        return StandAlone, (self._text, self._tape)

    def __repr__(self) -> str:
        return f"<tapegrad {self.__name__}>"


def standalone(f: Callable[..., Any], args: Sequence[Any]) -> StandAlone:
    """Trace, differentiate, schedule and compile, without a cache."""
    if not callable(f):
        raise ArgumentError(f"standalone needs a function, not {f!r}")
    derived = f if isinstance(f, Derived) else Derived(f, Jit(), "always")
    of, transformation = derived.f, derived.transformation
    given, named = transformation.completed(of, tuple(args), {})
    if named:
        word = next(iter(named))
        raise ArgumentError(
            f"standalone: {describe(of)} takes {word!r} by name alone, and a function that stands "
            f"alone has positional arguments. Pass lambda {word}: {describe(of)}(..., "
            f"{word}={word}) in its place"
        )
    parameters = argument_names(of, len(given) - len(transformation.further))
    parameters += transformation.further
    request = Request(of, given, names=None).check("standalone")
    _check_arguments("standalone", parameters, given)
    selection = transformation.select(request)

    def make(traced: Traced) -> tuple[Tape, Derivation]:
        _check_outside(traced)
        derivation = transformation.derive(traced, selection, final=True)
        derivation = with_halves(derivation, request)
        return optimized(derivation.tape), derivation

    tape, derivation = made(transformation.within(request), make)
    what = describe(of)
    doc = what if transformation.name == "jit" else f"{transformation.name} of {what}"
    wanted = derived.__name__.replace("<lambda>", "lambda")
    return _built(
        tape,
        wanted,
        parameters,
        given,
        derivation.traced,
        lambda marks: transformation.written(derivation, marks),
        f"{doc}, for arguments of these shapes and dtypes.",
    )


def simplegrad(
    f: Callable[..., Any], args: Sequence[Any], checkpoint: str | int = "auto"
) -> StandAlone:
    """The value of a function and its gradients with respect to all arguments."""
    request = Request(f, args).check("simplegrad")
    parameters = argument_names(f, len(args))
    _check_arguments("simplegrad", parameters, args)
    wrt = [k for k, x in enumerate(request.inputs) if is_float_leaf(x)]

    def make(traced: Traced) -> tuple[Tape, Traced]:
        _check_outside(traced)
        check_scalar_result(traced)
        whole, before = with_loss(traced)
        value = 0 if traced.outputs[0] is None else before
        tape = gradient(whole, wrt, keep=[value], checkpoint=checkpoint)
        tape, traced = with_captured(tape, traced)
        given = [kept_as(x) for x in (*request.inputs, *traced.captured)]
        at = traced.outputs[0]
        own = None if at is None else traced.halves[at]
        return kept_so(tape, given, [own, *[given[k] for k in wrt]]), traced

    def result(outputs: Sequence[Any]) -> tuple[Any, ...]:
        gradients = iter(outputs[1:])
        trees = []
        for arg in args:
            leaves, structure = flatten(arg)
            real = [is_traced(x) and is_float_leaf(x) for x in leaves]
            trees.append(unflatten(structure, [next(gradients) if yes else None for yes in real]))
        return outputs[0], *trees

    tape, traced = made(request, make)
    doc = f"The value of {describe(f)} and its gradients with respect to each argument."
    return _built(tape, f"grad_{traced.name}", parameters, args, traced, result, doc)


def _check_arguments(label: str, parameters: Sequence[str], args: Sequence[Any]) -> None:
    for name, arg in zip(parameters, args, strict=True):
        check_parts(arg, f"{label}: argument {name!r}")
        if label == "simplegrad" and any(
            getattr(x, "dtype", np.dtype(float)).kind == "c" for x in flatten(arg)[0]
        ):
            raise ArgumentError(
                f"{label}: argument {name!r} is complex, and only real arguments are supported "
                "there. Pass real and imaginary parts, or use grad"
            )


def _check_outside(traced: Traced) -> None:
    """Raise an error if the function has effects that a stand-alone one can't have."""
    if traced.draws is not None:
        raise RandomnessError(
            f"{traced.name} draws random numbers, which a function that stands alone can't "
            "draw as it does. Draw them outside and pass them in as an argument"
        )
    for word, src in traced.lines:
        raise UnsupportedError(
            f"{traced.name} leaves a value in {word!r}{at_source(src)}, which a function that "
            "stands alone can't: it doesn't have the object. Return the value, or use grad"
        )


def _built(
    tape: Tape,
    wanted: str,
    parameters: Sequence[str],
    args: Sequence[Any],
    traced: Traced,
    result: Callable[[Sequence[Any]], Any],
    doc: str,
) -> StandAlone:
    """The function of an optimised tape, named `wanted` if that name is free."""
    tape = replace(tape, name=wanted)
    program = schedule(tape)
    refuse_foreign_calls(program)
    places = _places(parameters, args, program)
    written = [k for k, _ in traced.written if k < len(leaves_of(args))]
    name = program.scope.fresh(wanted)
    text = text_of(program, name, places, args, traced.captured, result, doc, written)
    return StandAlone(text, None if written else (tape, traced.captured))


def _places(wanted: Sequence[str], args: Sequence[Any], program: Program) -> list[str]:
    """The names of the parameters: the user's, numbered where generated code uses them otherwise.
    An argument that is an array has the same name as a parameter and as the program's input."""
    cells = iter(program.plan.inputs)
    parameters = []
    for p, arg in zip(wanted, args, strict=True):
        own = [program.names[next(cells)] for x in flatten(arg)[0] if is_traced(x)]
        parameters.append(own[0] if is_traced(arg) else program.scope.fresh(p))
    return parameters
