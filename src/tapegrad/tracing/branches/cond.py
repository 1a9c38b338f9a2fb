"""`cond`: one of two functions is called, and both are traced.

    y = f(x) if p else g(x)   -->   %y = loop(int(p), %empty, %x, f)
                                    %z = loop(int(not p), %y, %x, g)

A conditional is a loop of one round or none, and another of none or one, which starts from the
result of the first. So its derivative, its plan and its code are those of loops: the function that
isn't called takes no time, and contributes no derivative, not even an infinite one or NaN.

Computations of the functions on captured values are in the loops too (see `Trace`): they don't run
unless the function is called. The function that isn't called is traced on values that it may not be
meant for. They decide nothing: if it branches on one, or fails, the conditional is a Python `if`,
whose condition is guarded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tapegrad.core.handlers import let_through, quiet
from tapegrad.core.request import Request, describe, leaf_names
from tapegrad.core.statics import static_key
from tapegrad.core.trees import flatten, is_array, is_traced, unflatten
from tapegrad.errors import ArgumentError, TraceError, UnsupportedError
from tapegrad.ir.inputs import renumbered
from tapegrad.ir.tape import Aval, Builder, Literal, Operand, Tape, Var
from tapegrad.observe.observer import observed, unobserved
from tapegrad.observe.program.source import at_source, user_source
from tapegrad.primitives.control import CallTape, has_effects
from tapegrad.primitives.elementwise import AsType
from tapegrad.tracing.branches.conditional import record_conditional
from tapegrad.tracing.loops.rounds import (
    check_leaves,
    name_of,
    own_copies,
    text_of,
    truth_of,
    type_text,
)
from tapegrad.tracing.outside.reached_state import Reached
from tapegrad.tracing.recording.trace import innermost, traces_under_way
from tapegrad.tracing.runs.floating_errors import watched
from tapegrad.tracing.runs.run import trace_function
from tapegrad.tracing.runs.traced import Traced, input_aval, plain_value
from tapegrad.tracing.tracers.tracer import Tracer, stand_in, to_operand


@unobserved
def cond(pred: Any, functions: Sequence[Callable[..., Any]], operands: Sequence[Any]) -> Any:
    """The result of the first function if `pred` holds, else of the second."""
    label = f"cond of {describe(functions[0])} and {describe(functions[1])}"
    given = Operands(label, tuple(operands), user_source())
    pred = _truth(label, pred, given.at())
    if not isinstance(pred, Tracer):
        return given.plainly(functions[0 if pred else 1])
    return _traced(given, pred, functions)


def _truth(label: str, pred: Any, at: str) -> Any:
    """The condition as True or False, or as a traced boolean."""
    return truth_of(
        pred,
        lambda words: ArgumentError(
            f"{label}: the condition is {words}{at}, and one truth value says which of the two is "
            "called. Use np.all or np.any; np.where chooses for each element"
        ),
    )


@dataclass(frozen=True, eq=False)
class Leaf:
    """A leaf of a traced function's result: its operand and type, which constants other than
    numbers lack, and its value as in plain Python."""

    operand: Any
    aval: Any
    value: Any

    @property
    def text(self) -> str:
        if self.aval is None:
            return repr(self.value)
        return type_text((self.aval.shape, self.aval.dtype, self.aval.weak))


# The leaf of a function that has effects only, and returns nothing
NOTHING = Leaf(Literal(np.int64(0)), Aval((), np.dtype(np.int64)), 0)


@dataclass(frozen=True, eq=False)
class Side:
    """A function traced on the traced operands."""

    traced: Traced
    structure: Any
    leaves: list[Leaf]
    left: Sequence[Leaf] = ()  # captured values to be passed on
    changed: str | None = None  # a change of captured state, if that isn't passed on


@dataclass(frozen=True, eq=False)
class Operands:
    """The arguments of a conditional's functions."""

    label: str
    values: tuple[Any, ...]
    src: Any

    def at(self) -> str:
        return at_source(self.src)

    def called(self, f: Callable[..., Any], values: Sequence[Any]) -> tuple[list[Any], Any]:
        """The leaves and structure of a function's result. The function gets its own copies of the
        operands, which it must not write to."""
        leaves, structure = flatten(values)
        own = [_unwritable(x) for x in leaves]
        with observed():
            returned = f(*unflatten(structure, own))
        for x in own:
            if isinstance(x, Tracer) and x._owner._version:
                raise UnsupportedError(
                    f"{self.label}: {describe(f)} writes to an operand that it is passed"
                    f"{self.at()}. Start with a copy, x = x.copy(), and return that"
                )
        found, structure = flatten(returned)
        check_leaves(self.label, found, returned, "the result")
        return found, structure

    def plainly(self, f: Callable[..., Any]) -> Any:
        """The result of a function, without a conditional on the tape."""
        leaves, structure = self.called(f, self.values)
        mine = [x._detached() if isinstance(x, Tracer) else x for x in own_copies(leaves)]
        return unflatten(structure, mine)

    def side(self, f: Callable[..., Any], idle: bool, passes_on: bool = False) -> Side:
        """A traced function. If it isn't called (`idle`), the trace issues no warnings."""
        structures: list[Any] = []
        leaves, structure = flatten(self.values)

        @unobserved
        def body(*traced: Any) -> Any:
            given = iter(traced)
            values = [next(given) if is_traced(x) else x for x in leaves]
            found, result = self.called(f, unflatten(structure, values))
            structures[:] = [result]
            return found

        body.__name__ = describe(f)
        names, _ = leaf_names(f, self.values, {})
        request = Request(body, self.traced, names=names)
        request.passes_on = passes_on
        run = quiet(trace_function) if idle else trace_function
        for _ in range(2):  # state that it caches for good is present in the second trace
            reached = Reached(f)
            traced = run(request, repeats=True, apart=True, idle=idle)
            changed = None if passes_on else reached.changed()
            if changed is None:
                break
        found = [_leaf(traced, k) for k in range(len(traced.outputs))]
        return Side(traced, structures[0], found, _left(traced), changed)

    @property
    def traced(self) -> list[Any]:
        """The traced operands, which are inputs of the tape."""
        return [x for x in flatten(self.values)[0] if is_traced(x)]

    def inputs(self, side: Side) -> list[Any]:
        """The values of the inputs of a side's tape."""
        given = [x if isinstance(x, Tracer) else plain_value(x) for x in self.traced]
        return [*given, *side.traced.captured]


def _unwritable(x: Any) -> Any:
    """An operand as it is passed to a function: it can't be written to."""
    if isinstance(x, Tracer):
        operand, value = x._read()
        own = stand_in(x._trace, operand, value, x._weak)
        own._ordered = x._owner._ordered
        return own
    if is_array(x):
        x = x.view()
        x.flags.writeable = False
    return x


def _leaf(traced: Traced, k: int) -> Leaf:
    at, value = traced.outputs[k], traced.leaves[k]
    if at is not None:
        operand = traced.tape.outputs[at]
        return Leaf(operand, Aval(operand.shape, operand.dtype, traced.weak[k]), value)
    if isinstance(value, bool):
        return Leaf(Literal(np.bool_(value)), Aval((), np.dtype(bool), True), value)
    if not is_traced(value):
        return Leaf(None, None, value)
    return Leaf(Literal(plain_value(value)), input_aval(value), value)


def _left(traced: Traced) -> list[Leaf]:
    """The captured values to be passed on, as further leaves of the result."""
    if traced.keeping is None:
        return []
    outputs = traced.tape.outputs[len(traced.tape.outputs) - traced.left :]
    pairs = zip(outputs, traced.keeping.values, strict=True)
    return [Leaf(x, Aval(x.shape, x.dtype), value) for x, value in pairs]


# ---- recording


def _traced(given: Operands, pred: Tracer, functions: Sequence[Callable[..., Any]]) -> Any:
    """Record the conditional; guard the condition if the other function can't be traced."""
    known = pred._read()[1]
    if known is None:  # in a derivative rule
        sides = [given.side(f, idle=False) for f in functions]
        return _merged(given, pred, sides, None)
    taken = 0 if known else 1
    side = given.side(functions[taken], idle=False)
    _check_unchanged(given, functions[taken], side)
    around = traces_under_way()
    before = [(trace.refusal, trace.raised) for trace in around]
    try:
        if around and watched(around[-1]):
            raise UnsupportedError("np.errstate or a filter of warnings makes errors of it")
        other = given.side(functions[1 - taken], idle=True)
    except Exception as error:
        let_through(error)
        if innermost([pred]).idle:
            raise
        for trace, (refusal, raised) in zip(around, before, strict=True):
            trace.refusal, trace.raised = refusal, raised
        why = str(error).partition(". ")[0]
        pred._trace.guard(
            pred,
            bool(known),
            f"the condition of cond, whose other function can't be traced before it is called "
            f"({type(error).__name__}: {why}),",
            given.src,
        )
        return _in_front(given, side)
    _check_unchanged(given, functions[1 - taken], other)
    return _merged(given, pred, [other, side] if taken else [side, other], taken)


def _check_unchanged(given: Operands, f: Callable[..., Any], side: Side) -> None:
    if side.changed is not None:
        raise TraceError(
            f"{given.label}: {describe(f)} changes what was there before, {side.changed}. Both "
            "functions are traced, whichever is called. Return the value, or write a plain if"
        )


def _in_front(given: Operands, side: Side) -> Any:
    """The result of one function, recorded without a conditional."""
    inputs = given.inputs(side)
    tracers = [x for x in inputs if isinstance(x, Tracer)]
    if not tracers:
        return unflatten(side.structure, [leaf.value for leaf in side.leaves])
    trace = innermost(tracers)
    on_tape = [leaf for leaf in side.leaves if isinstance(leaf.operand, Var)]
    outputs = [leaf.operand for leaf in on_tape] or [NOTHING.operand]
    tape = replace(side.traced.tape, outputs=tuple(outputs))
    outs = iter(trace.record(CallTape(tape), [to_operand(trace, x)[0] for x in inputs]))
    found = [
        leaf.value
        if leaf not in on_tape
        else stand_in(trace, next(outs), as_result(leaf.value, leaf.aval), leaf.aval.weak)
        for leaf in side.leaves
    ]
    return unflatten(side.structure, found)


def _merged(given: Operands, pred: Tracer, sides: Sequence[Side], taken: int | None) -> Any:
    """The result of both functions as a conditional on the tape."""
    first, second = sides
    if first.structure != second.structure:
        raise ArgumentError(
            f"{given.label}: what the two return is put together as {text_of(first.structure)} "
            f"and as {text_of(second.structure)}{given.at()}. Return the same keys, and as many "
            "entries"
        )
    avals = []
    for k, pair in enumerate(zip(first.leaves, second.leaves, strict=True)):
        aval = _common(*pair)
        if aval is _Unlike:
            name = name_of(first.structure, k, "the result")
            raise ArgumentError(
                f"{given.label}: {name} is {pair[0].text} of the one and {pair[1].text} of the "
                f"other{given.at()}. Both return the same shapes and dtypes; of numbers those of "
                "Python take the dtype of NumPy's"
            )
        avals.append(aval)
    ends: Any = iter(())
    if any(aval is not None for aval in avals):
        ends = _recorded(given, pred, sides, avals)
    elif any(has_effects(side.traced.tape) for side in sides):
        nothing = [replace(side, leaves=[*side.leaves, NOTHING]) for side in sides]
        _recorded(given, pred, nothing, [*avals, NOTHING.aval])
    found = []
    for k, aval in enumerate(avals):
        if aval is None:
            found.append(first.leaves[k].value)
            continue
        trace, out = next(ends)
        value = None if taken is None else as_result(sides[taken].leaves[k].value, aval)
        found.append(stand_in(trace, out, value, aval.weak))
    return unflatten(first.structure, found)


def _recorded(
    given: Operands, pred: Tracer, sides: Sequence[Side], avals: Sequence[Aval | None]
) -> Any:
    """Record the two loops, and yield the trace and variable of each result."""
    inputs = [given.inputs(side) for side in sides]
    tracers = [x for values in inputs for x in values if isinstance(x, Tracer)]
    trace = innermost([pred, *tracers])
    read = [[to_operand(trace, x)[0] for x in values] for values in inputs]
    bodies = [body_of(side, avals) for side in sides]
    condition = to_operand(trace, pred)[0]
    ends = record_conditional(trace.record, condition, list(zip(bodies, read, strict=True)))
    return iter([(trace, out) for out in ends])


def body_of(side: Side, avals: Sequence[Aval | None]) -> Tape:
    """A side's tape as the body of a loop, which ignores the carried values."""
    tape = side.traced.tape
    builder = Builder.after(tape, tape.name)
    step = builder.fresh(Aval((), np.dtype(np.int64)))
    outputs: list[Operand] = []
    before = []
    for leaf, aval in zip(side.leaves, avals, strict=True):
        if aval is None:
            continue
        before.append(builder.fresh(Aval(aval.shape, aval.dtype)))
        x = leaf.operand
        if isinstance(x, Literal):
            x = Literal(aval.dtype.type(x.value))
        elif x.dtype != aval.dtype:
            (x,) = builder.call(AsType(aval.dtype), [x])
        outputs.append(x)
    names = tape.names or ("",) * len(tape.inputs)
    return renumbered(
        replace(
            tape,
            inputs=(step, *before, *tape.inputs),
            names=("step", *[""] * len(before), *names),
            calls=tuple(builder.calls),
            outputs=tuple(outputs),
        )
    )


# ---- types


_Unlike: Any = object()


def _common(a: Leaf, b: Leaf) -> Aval | None:
    """The common type of a result. None for a constant that is the same in both functions,
    `_Unlike` if there is no common type."""
    if a.aval is None or b.aval is None:
        same = a.aval is b.aval and static_key(a.value) == static_key(b.value)
        return None if same else _Unlike
    if a.aval.shape != b.aval.shape:
        return _Unlike
    constant = isinstance(a.operand, Literal) and isinstance(b.operand, Literal)
    if a.aval == b.aval:
        if constant and static_key(a.value) == static_key(b.value):
            return None
        return Aval(a.aval.shape, a.aval.dtype, a.aval.weak)
    if a.aval.weak and b.aval.weak:
        kinds = {a.aval.dtype.kind, b.aval.dtype.kind}
        return Aval((), np.dtype(np.float64), True) if kinds == {"i", "f"} else _Unlike
    weak, strong = (a, b) if a.aval.weak else (b, a)
    if strong.aval.weak or not _fits(weak, strong.aval.dtype):
        return _Unlike
    return Aval(strong.aval.shape, strong.aval.dtype)


def _fits(number: Leaf, dtype: np.dtype) -> bool:
    """Whether any value of a Python number fits into a NumPy dtype."""
    kind = number.aval.dtype.kind
    if not number.aval.weak or (kind == "b") != (dtype.kind == "b"):
        return False
    if kind == "i" and dtype.kind in "iu" and dtype != np.int64:
        bounds = np.iinfo(dtype)
        known = isinstance(number.operand, Literal)
        return known and bounds.min <= int(number.operand.value) <= bounds.max
    return kind == dtype.kind or (kind == "i" and dtype.kind == "f")


def as_result(value: Any, aval: Aval) -> Any:
    """A known value of a result: a scalar, or a new row-major array."""
    if value is None:
        return None
    if is_array(value):
        return np.array(value, aval.dtype, order="C")
    return aval.dtype.type(value)
