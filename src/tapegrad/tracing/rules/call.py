"""A call of a user's primitive on tracers.

The body is traced into a sub-tape of its own, so it fuses with the surrounding code; a body that
can't be traced stays a call of NumPy between the compiled parts. The rules are in
`tracing.rules.rule`.

Names: `operands` are the tracers and arrays among the arguments' leaves, every other leaf is
static; `saved` are the values that a forward pass saves for its rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tapegrad.core.handlers import let_through
from tapegrad.core.request import Request, check_leaf
from tapegrad.core.trees import flatten, is_array, is_traced
from tapegrad.errors import ArgumentError, ConversionError, GradientError, TraceError
from tapegrad.ir.inputs import renumbered, unused, with_inputs
from tapegrad.ir.plain_numbers import lost_by
from tapegrad.ir.tape import Aval, Literal, Operand, Var
from tapegrad.observe.observer import following, observed, unobserved
from tapegrad.observe.program.source import at_line, at_source, user_source
from tapegrad.primitives.control import CallTape, Custom, ForeignCall, has_effects
from tapegrad.tracing.memory.aliasing import share_memory
from tapegrad.tracing.recording.layout import note_may_alias
from tapegrad.tracing.recording.trace import current_trace, innermost, tracing_depth, untraced
from tapegrad.tracing.rules.operation import Applied, Operation
from tapegrad.tracing.rules.rule import FINAL, Backward, Forward, first_sentence
from tapegrad.tracing.runs.mixed_trees import (
    MixedTree,
    PlainTree,
    Where,
    aval_of_leaf,
    chosen,
    mixed_tree,
    sources_of,
    value_of,
)
from tapegrad.tracing.runs.run import trace_function
from tapegrad.tracing.runs.traced import Traced, input_aval
from tapegrad.tracing.tracers.subclass_tracers import check_stays
from tapegrad.tracing.tracers.tracer import Tracer, stand_in, to_operand

# ---- calling


@unobserved
def call(operation: Operation, args: Any, kwargs: Any) -> Any:
    """Call a user's function: run it on plain arrays, or record it if a tracer is among them."""
    leaves, structure = flatten((args, kwargs))
    for x in leaves:
        check_stays(x, f"an argument of {operation.label}")
    if not any(isinstance(x, Tracer) for x in leaves):
        if not (operation.has_rule() and tracing_depth()):
            with observed():
                return operation.run(args, kwargs)[0]
        with untraced(), observed():
            result, _ = operation.run(args, kwargs)
        _refuse_tracers(operation, flatten(result)[0])
        return result
    on_tape = [_is_operand(x) for x in leaves]
    operands = chosen(leaves, on_tape)
    arguments = mixed_tree(structure, leaves, on_tape, [input_aval(x) for x in operands])
    names, words = operation.names(args, kwargs)
    named = iter(names)
    names = chosen([next(named) if is_traced(x) else "" for x in leaves], on_tape)
    call = CustomCall(operation, arguments, chosen(words, on_tape), user_source())
    here = following.observer
    before = None if here is None else here.reads.losing
    try:
        if operation.whole:
            raise TraceError("it was said to be a primitive, which isn't looked into")
        body = call.trace(operands, names)
    except FINAL:
        raise
    except Exception as error:
        let_through(error)
        # For any reason that the body can't be traced. If it is the user's own error, the body
        # raises it again on plain arrays, with NumPy's message.
        draws = 0 if here is None else len(here.states)
        result = call.record_opaque(operands, error)
        if here is not None and len(here.states) == draws:
            here.reads.losing = before  # each call runs the body anew
        return result
    return call.record(operands, body)


def _is_operand(x: Any) -> bool:
    """Whether an argument's leaf goes onto the tape; arrays of texts and such are static."""
    if not is_array(x):
        return isinstance(x, Tracer)
    try:
        check_leaf(x, "")
    except ArgumentError:
        return False
    return True


def _refuse_tracers(operation: Operation, values: Sequence[Any]) -> None:
    """Refuse tracers that a function uses or returns without being passed them: its rule has no
    cotangent for them."""
    for x in values:
        if isinstance(x, Tracer) and x.dtype.kind in "fc" and not _is_from_outside(x):
            raise GradientError(
                f"{operation.label} uses a traced value ({x._aval}) that it wasn't passed"
                f"{at_line()}, and its rule can't give that value's cotangent. Pass it as an "
                "argument"
            )


def _is_from_outside(x: Any) -> bool:
    """Whether a tracer represents an array that no trace has computed, such as a draw."""
    while isinstance(x, Tracer):
        operand = x._read()[0]
        x = next((of for var, of in x._trace.captured.values() if var == operand), None)
    return x is not None


@dataclass(frozen=True, eq=False)
class CustomCall(Applied):
    """One call of a user's function on tracers, to be recorded."""

    def trace(self, operands: Sequence[Any], names: Sequence[str]) -> Traced:
        """The body, traced as a function of the operands that returns (result, saved)."""

        def body(*values: Any) -> Any:
            trace = current_trace()
            if trace is not None:
                trace.opaque = True
            args, kwargs = self.arguments.fill(values)
            returned = self.operation.run(args, kwargs)
            for value, word in zip(values, self.words, strict=True):
                if value._version:
                    raise self.writes(word)
            return returned

        body.__name__ = self.operation.label
        traced = trace_function(Request(body, operands, names=names))
        lost = [lost_by(g) for g in traced.tape.guards if g.operand.dtype.kind in "fc"]
        if any(lost) and self.operation.has_rule():  # it has the derivative that the body loses
            raise ConversionError(next(filter(None, lost)))
        return traced

    def record(self, operands: Sequence[Any], body: Traced) -> Any:
        """Record the traced body as one call."""
        inputs = [*operands, *body.captured]
        body = _granted(body, inputs)
        results, saved = _trees_of(body)
        count = len(results.avals)
        outputs, kept = body.tape.outputs[:count], body.tape.outputs[count:]
        values = chosen(body.leaves, [at is not None for at in body.outputs])
        if not outputs:
            if has_effects(body.tape):
                whole = CallTape(replace(body.tape, outputs=(Literal(np.int64(0)),)))
                _record(whole, inputs, [], [])
            return results.fill([])
        if not self.operation.has_rule():
            whole = CallTape(replace(body.tape, outputs=outputs))
            return results.fill(_record(whole, inputs, results.avals, values))
        _refuse_tracers(self.operation, body.captured)
        sources = sources_of(kept, body.tape.inputs, outputs)
        own = [source[0] == "residual" for source in sources]
        residuals: Sequence[Any] = ()
        if any(own):
            # The residuals are computed beside the call and not by it. So they are differentiated
            # as the body is, when the rule is.
            part = replace(body.tape, outputs=tuple(chosen(kept, own)))
            avals, found = chosen(saved.avals, own), chosen(values[count:], own)
            residuals = _record(CallTape(part), inputs, avals, found)
        tape = replace(body.tape, outputs=outputs)
        passed = unused(tape, [x._aval for x in residuals])
        tape = renumbered(with_inputs(tape, passed, [f"saved{k}" for k in range(len(passed))]))
        rules = self.rules(results, saved, sources)
        primitive = Custom(self.operation.label, tape, *rules)
        return results.fill(_record(primitive, [*inputs, *residuals], results.avals, values))

    def record_opaque(self, operands: Sequence[Any], error: Exception) -> Any:
        """Record a call of NumPy, since the body couldn't be traced."""
        label, values = self.operation.label, [value_of(x) for x in operands]
        known = all(value is not None for value in values)
        try:
            first = self._returned(values) if known else self._returned_on_ones(values)
        except Exception:
            innermost([x for x in operands if isinstance(x, Tracer)]).note_raised(label)
            raise
        # Saved values that can't be stored in arrays are recomputed: the function runs again before
        # its rule.
        again = not all(map(self._is_kept, first.saved.leaves))
        if again:
            first = first.without_saved()
        _refuse_tracers(self.operation, [*first.result.leaves, *first.saved.leaves])
        for leaf in first.result.leaves:
            if type(leaf) is not complex:
                check_leaf(leaf, f"the result of {label}")
        results, saved, arrays = first.result.tree(), first.saved.tree(), first.arrays
        if not results.avals:
            return results.fill([])
        expected = first.without_values()

        def function(*values: Any) -> Any:
            found = self._returned(values)
            found = found.without_saved() if again else found
            if not found.is_like(expected):
                raise TraceError(
                    f"{label} returned something of another structure than when it was traced"
                    f"{at_source(self.src)}. NumPy runs it between compiled code, so what isn't an "
                    "array must be the same at each call"
                )
            return found.arrays

        function.__name__ = label
        backward, forward = self.rules(results, saved, expected.sources, again)
        avals = [aval_of_leaf(x) for x in arrays]
        count = len(results.avals)
        why = f"its body can't be traced, since {first_sentence(error)}"
        primitive = ForeignCall(
            label, function, tuple(avals), count, backward, why, forward, of_complex=True
        )
        arrays = [np.asarray(x)[()] for x in arrays]
        return results.fill(_record(primitive, operands, avals, arrays)[:count])

    def rules(self, *known: Any) -> tuple[Backward | None, Forward | None]:
        """The user's rules, for this call."""
        operation = self.operation
        return (
            Backward(self, *known) if operation.has_reverse() else None,
            Forward(self, *known) if operation.has_forward() else None,
        )

    def _returned(self, values: Sequence[Any]) -> _Returned:
        given = self.arguments.plain(values)
        result, saved = map(PlainTree.of, self.run_plainly(given))
        return _Returned(result, saved, sources_of(saved.on_tape, given, result.on_tape))

    def _returned_on_ones(self, values: Sequence[Any]) -> _Returned:
        """The result with ones in place of unknown values, as in a derivative rule: it shows the
        type."""
        stand_ins = [
            np.ones(aval.shape, aval.dtype) if value is None else value
            for value, aval in zip(values, self.arguments.avals, strict=True)
        ]
        try:
            return self._returned(stand_ins)
        except Exception as error:
            raise TraceError(
                f"{self.operation.label} is called in a derivative rule, where no values are known"
                f"{at_source(self.src)}. It can't be traced, and running it on ones to learn the "
                f"type of its result failed: {error}"
            ) from error

    def _is_kept(self, x: Any) -> bool:
        """Whether a value that an opaque function saved can be stored: arrays, and constants."""
        if isinstance(x, Tracer):
            return False
        if isinstance(x, (np.ndarray, np.generic)):
            return _is_operand(np.asarray(x))
        constants = (int, float, complex, str, bytes, type, np.dtype, np.ufunc)
        return isinstance(x, constants) or any(x is y for y in self.arguments.constants)


@dataclass(frozen=True, eq=False)
class _Returned:
    """A user's function's result on plain arrays, the saved values, and their sources."""

    result: PlainTree
    saved: PlainTree
    sources: list[Where]

    @property
    def arrays(self) -> list[Any]:
        """The results, then the residuals."""
        own = [kind == "residual" for kind, _ in self.sources]
        return [*self.result.on_tape, *chosen(self.saved.on_tape, own)]

    def without_saved(self) -> _Returned:
        return _Returned(self.result, PlainTree.of(()), [])

    def without_values(self) -> _Returned:
        """The same without arrays, for `is_like`, so that they aren't kept alive."""
        return _Returned(self.result.without_values(), self.saved.without_values(), self.sources)

    def is_like(self, other: _Returned) -> bool:
        return (
            self.result.is_like(other.result)
            and self.saved.is_like(other.saved)
            and self.sources == other.sources
        )


def _granted(body: Traced, inputs: Sequence[Any]) -> Traced:
    """The body with its guards moved to the surrounding trace. The call may be dropped, or be
    merged for many rows, but its rule, and untraced parts of its result, still depend on this
    path."""
    guards = [guard for guard in body.tape.guards if isinstance(guard.operand, Var)]
    if guards:
        known: dict[Operand, Any] = {guard.operand: guard.expected.value for guard in guards}
        asked = replace(body.tape, outputs=tuple(known), output_names=(), guards=())
        avals = [x.aval for x in asked.outputs]
        found = _record(CallTape(asked), inputs, avals, list(known.values()))
        tracers = dict(zip(known, found, strict=True))
        for guard in guards:
            x = tracers[guard.operand]
            x._trace.guard(x, guard.expected.value, guard.what, guard.src, True)
    return replace(body, tape=replace(body.tape, guards=()))


def _trees_of(body: Traced) -> tuple[MixedTree, MixedTree]:
    """The trees of the result and of the saved values of a traced body."""
    on_tape = [at is not None for at in body.outputs]
    avals = [
        Aval(x.shape, x.dtype, weak)
        for x, weak in zip(body.tape.outputs, chosen(body.weak, on_tape), strict=True)
    ]
    result, saved = body.structure.children()
    end = result.num_leaves
    count = sum(on_tape[:end])
    return (
        mixed_tree(result, body.leaves[:end], on_tape[:end], avals[:count]),
        mixed_tree(saved, body.leaves[end:], on_tape[end:], avals[count:]),
    )


def _record(
    primitive: Any, inputs: Sequence[Any], avals: Sequence[Aval], values: Sequence[Any]
) -> list[Tracer]:
    """Record a call whose results' values are known already."""
    trace = innermost(inputs)
    outs = trace.record(primitive, [to_operand(trace, x)[0] for x in inputs])
    results = [
        stand_in(trace, out, value, aval.weak)
        for out, value, aval in zip(outs, values, avals, strict=False)
    ]
    # On plain arrays the function may return its argument, or one array twice.
    others = [x._owner for x in inputs if isinstance(x, Tracer)]
    for k, x in enumerate(results):
        for other in (*others, *results[:k]):
            if share_memory(x, other):
                note_may_alias(x, other)
    return results
