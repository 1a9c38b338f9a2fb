"""Functions of the user's that are called with traced values at each call: `tapegrad.debug`.

    debug.callback(f, x)          %4 = debug.callback(%3) : i8[]
    y = debug.cotangent(f, x)     %4 = debug.cotangent(%3) : f8[]     its reverse rule calls f

Each is a call of NumPy between the kernels, with an effect, so it stays though nothing reads its
result. A trace records the call without making it: the trace may be repeated, and its rounds and
sides of branches are run with other values. The recorded call is made when the tape or its compiled
code runs. If the program has raised an error, the trace makes the calls recorded until then.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from tapegrad.core import told
from tapegrad.core.request import describe
from tapegrad.core.statics import static_key
from tapegrad.core.trees import flatten, unflatten
from tapegrad.errors import UnsupportedError
from tapegrad.ir.tape import Aval, Builder
from tapegrad.observe.observer import note_told, observed, unobserved
from tapegrad.observe.program.source import at_line
from tapegrad.primitives.control import Custom, ForeignCall
from tapegrad.tracing.recording.trace import (
    Trace,
    current_trace,
    innermost,
    is_untraced,
    traces_under_way,
    tracing_depth,
)
from tapegrad.tracing.runs.floating import RepeatedCall, is_operand
from tapegrad.tracing.runs.mixed import mixed_tree, value_of
from tapegrad.tracing.runs.traced import input_aval
from tapegrad.tracing.tracers.tracer import Tracer, stand_in, to_operand

TOKEN = Aval((), np.dtype(np.int64))


@dataclass(frozen=True, eq=False)
class Callback(RepeatedCall):
    """Calls a function of the user's with copies of the values. An error says `where`, too."""

    where: str

    @property
    def __name__(self) -> str:
        return describe(self.func)

    def __call__(self, *values: Any) -> list[Any]:
        if not tracing_depth():
            told.current().tell(partial(self.run, [np.array(x) for x in values]))
        return [np.int64(0)]

    def run(self, values: Sequence[Any]) -> None:
        try:
            self.repeat(values)
        except Exception as error:
            error.add_note(f"in {self.where}")
            raise


@unobserved
def callback(f: Callable[..., Any], args: Any, kwargs: dict[str, Any], label: str) -> None:
    """Call `f` with these arguments: now, or if a function is traced, at each call of it."""
    trace = _trace(args, kwargs)
    if trace is None:
        if is_untraced((args, kwargs)):
            leaves, structure = flatten((args, kwargs))
            args, kwargs = unflatten(structure, [_copied(x) for x in leaves])
            with observed():
                f(*args, **kwargs)
        return
    telling, operands = _told(f, args, kwargs, label)
    trace.record(_call(telling, label), [to_operand(trace, x)[0] for x in operands])
    values = [value_of(x) for x in operands]
    if [trace] == traces_under_way() and all(x is not None for x in values):
        values = [np.array(x) for x in values]
        told.current().recorded.append(partial(telling.run, values))


@unobserved
def cotangent(f: Callable[..., Any], x: Any, label: str) -> Any:
    """The same tree; in reverse mode `f` is called with the cotangents of its traced leaves."""
    leaves, structure = flatten(x)
    moving = [isinstance(leaf, Tracer) and leaf.dtype.kind in "fc" for leaf in leaves]
    tracers = [leaf for leaf, yes in zip(leaves, moving, strict=True) if yes]
    if tracers:
        trace = _trace(tracers, {}) or innermost(tracers)
        avals = [leaf._aval for leaf in tracers]
        arguments = mixed_tree(flatten(((x,), {}))[1], leaves, moving, avals)
        arguments = replace(arguments, static=tuple([None] * len(leaves)))
        telling = Callback(f, arguments, f"{label}{at_line()}")
        builder = Builder(label)
        tape = builder.finish([builder.input(aval) for aval in avals])
        primitive = Custom(label, tape, _Pulled(_call(telling, label)), _pushed)
        read = [to_operand(trace, leaf) for leaf in tracers]
        outs = iter(trace.record(primitive, [operand for operand, _ in read]))
        values = iter([value for _, value in read])
        leaves = [
            stand_in(trace, next(outs), _copied(next(values)), leaf._aval.weak) if yes else leaf
            for leaf, yes in zip(leaves, moving, strict=True)
        ]
    return unflatten(structure, [x if isinstance(x, Tracer) else _copied(x) for x in leaves])


@dataclass(frozen=True)
class _Pulled:
    """The reverse rule: return the cotangents unchanged, and call the function with them."""

    call: ForeignCall

    def __call__(self, cts: Sequence[Any], outs: Sequence[Any], xs: Sequence[Any]) -> Any:
        self.call(*cts)
        return cts


def _pushed(ts: Sequence[Any], outs: Sequence[Any], xs: Sequence[Any]) -> Sequence[Any]:
    return ts


def _copied(x: Any) -> Any:
    return x.copy() if isinstance(x, np.ndarray) else x


def _trace(args: Any, kwargs: dict[str, Any]) -> Trace | None:
    """The trace that records a call with these arguments now; None if there is none."""
    trace = current_trace()
    if trace is None:
        tracers = [x for x in flatten((args, kwargs))[0] if isinstance(x, Tracer)]
        return innermost(tracers) if tracers else None
    return trace if trace.inside is None else trace.inside


def _told(
    f: Callable[..., Any], args: Any, kwargs: dict[str, Any], label: str
) -> tuple[Callback, list[Any]]:
    leaves, structure = flatten((tuple(args), kwargs))
    on_tape = [is_operand(x) for x in leaves]
    operands = [x for x, yes in zip(leaves, on_tape, strict=True) if yes]
    arguments = mixed_tree(structure, leaves, on_tape, [input_aval(x) for x in operands])
    return Callback(f, arguments, f"{label}{at_line()}"), operands


def _call(telling: Callback, label: str) -> ForeignCall:
    arguments = telling.arguments
    static = tuple(map(static_key, arguments.static))
    key = _key(telling.func, label), str(arguments.structure), static
    return ForeignCall(label, telling, (TOKEN,), 0, of_complex=True, effect=key)


def _key(f: Any, label: str) -> Any:
    """A key of a function. Functions created anew in each round, with equal contents, have equal
    keys."""
    for x in flatten(f)[0]:
        if isinstance(x, Tracer):
            raise UnsupportedError(
                f"the function of {label} reaches a traced value ({x._aval}){at_line()}, and later "
                f"calls have other values. Pass it as an argument: {label}(f, x)"
            )
    note_told(f)
    if type(f) is partial:
        parts = (f.func, *f.args, *f.keywords.values())
        return partial, tuple(f.keywords), *[_key(x, label) for x in parts]
    if type(f) is types.MethodType:
        return types.MethodType, _key(f.__func__, label), static_key(f.__self__)
    if type(f) is types.FunctionType:
        cells = [x.cell_contents for x in f.__closure__ or () if x != types.CellType()]
        held = (*cells, *(f.__defaults__ or ()))
        return f.__code__, *[_key(x, label) for x in held if x is not f]
    return static_key(f)
