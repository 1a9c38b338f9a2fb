"""A call of a user's primitive on tracers, and the user's rule for it.

The body is traced into a sub-tape of its own, so it fuses with what is around it; a body that
can't be traced stays a call of NumPy between the compiled parts. Rules are users' NumPy code too.
They run when the tape is differentiated, on tracers that know types and no values, and leave their
calls on the tape of the gradient, where they can be differentiated in turn. A rule that can't be
traced becomes a call of NumPy as well.

Names: `operands` are the tracers and arrays among the arguments' leaves, every other leaf is
static; `saved` is what a forward pass keeps for its rule.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tapegrad.errors import (
    ArgumentError,
    GradientError,
    InternalError,
    LeakedTracerError,
    RuleError,
    TraceError,
    UnsupportedError,
)
from tapegrad.ir.tape import Aval, Literal, Source, Tape, Var
from tapegrad.optimize.dce import remove_dead
from tapegrad.primitives.base import Node, Writer
from tapegrad.primitives.control import CallTape, Custom, Missing, Opaque
from tapegrad.signature import check_leaf
from tapegrad.tracing.run import Traced, input_aval, trace_function
from tapegrad.tracing.source import at_line, at_source, user_source
from tapegrad.tracing.trace import Trace, innermost, to_operand, tracing_depth
from tapegrad.tracing.tracer import Tracer
from tapegrad.trees import flatten, is_number, is_traced, unflatten


class WritesArgument(UnsupportedError):
    """A user's primitive wrote to one of its arguments in place."""


# Faults that running the function on plain arrays wouldn't mend.
_FINAL = (InternalError, LeakedTracerError, RuleError, WritesArgument)


# ---- what a trace needs to know of a user's function


class Operation:
    """A user's function with an optional reverse rule: a `primitive`, or a `Function`."""

    label: str

    def run(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """The result, and what to save for the rule."""
        raise NotImplementedError

    def has_rule(self) -> bool:
        """Whether the user gave a reverse rule."""
        raise NotImplementedError

    def pull_back(self, ct: Any, out: Any, args: Any, kwargs: Any, saved: Any) -> list[Any]:
        """A cotangent for each argument: the positional ones, then the others by name.

        Cotangents mirror their arguments; None is one for all of an argument.
        """
        raise NotImplementedError

    def missing(self, args: Any, kwargs: Any) -> list[Missing | None]:
        """For each argument, in the same order, what to say if it has no rule."""
        return [None] * (len(args) + len(kwargs))

    def names(self, args: Any, kwargs: Any) -> tuple[list[str], list[str]]:
        """A name for each leaf that could be traced, and words for each leaf of any kind."""
        raise NotImplementedError


# ---- trees whose leaves are partly on a tape


@dataclass(frozen=True, eq=False)
class _Tree:
    """A tree of values: leaf k is number `at[k]` of those on a tape, or `static[k]`.

    `avals` are the types of those on the tape. `known` holds the values of integers and booleans
    that a trace saw: a rule may use them, at the price of a guard.
    """

    structure: Any
    at: tuple[int | None, ...]
    static: tuple[Any, ...]
    avals: tuple[Aval, ...]
    known: dict[int, Any]

    def fill(self, values: Sequence[Any]) -> Any:
        """The tree with these values of what is on the tape."""
        leaves = [
            static if at is None else values[at]
            for at, static in zip(self.at, self.static, strict=True)
        ]
        return unflatten(self.structure, leaves)

    def tracers(self, trace: Trace, nodes: Sequence[Node]) -> Any:
        """The tree with tracers for nodes of a tape that is being differentiated."""
        found = []
        for k, node in enumerate(nodes):
            operand = node.operand
            value = operand.value if isinstance(operand, Literal) else self.known.get(k)
            found.append(Tracer(trace, operand, value, weak=self.avals[k].weak))
        return self.fill(found)

    def plain(self, values: Sequence[Any]) -> list[Any]:
        """Values for `fill`: arrays that can't be written to, and scalars as NumPy has them."""
        found = []
        for value, aval in zip(values, self.avals, strict=True):
            array = np.asarray(value).view()
            array.flags.writeable = False
            found.append(array.item() if aval.weak else array if aval.shape else array[()])
        return found

    @property
    def constants(self) -> list[Any]:
        """The leaves that aren't on the tape."""
        return [x for x, at in zip(self.static, self.at, strict=True) if at is None]


def _tree(
    structure: Any, leaves: Sequence[Any], on_tape: Sequence[bool], avals: Sequence[Aval]
) -> _Tree:
    """The tree with these leaves, of which some are on a tape and have the types `avals`."""
    at: list[int | None] = [None] * len(leaves)
    known: dict[int, Any] = {}
    for number, place in enumerate(k for k, yes in enumerate(on_tape) if yes):
        at[place] = number
        aval, value = avals[number], _value(leaves[place])
        if aval.shape == () and aval.dtype.kind in "iub" and value is not None:
            known[number] = aval.dtype.type(value)
    static = tuple(None if yes else leaf for leaf, yes in zip(leaves, on_tape, strict=True))
    return _Tree(structure, tuple(at), static, tuple(avals), known)


def _value(x: Any) -> Any:
    """The value of a tracer, None where it isn't known; anything else itself."""
    return x.read()[1] if isinstance(x, Tracer) else x


def _chosen(entries: Sequence[Any], yes: Sequence[bool]) -> list[Any]:
    return [entry for entry, chosen in zip(entries, yes, strict=True) if chosen]


# ---- calling


def apply(operation: Operation, args: Any, kwargs: Any) -> Any:
    """Call a user's function: run it on plain arrays, record it where tracers are among them."""
    leaves, structure = flatten((args, kwargs))
    if not any(isinstance(x, Tracer) for x in leaves):
        result, _ = operation.run(args, kwargs)
        if operation.has_rule() and tracing_depth():
            _refuse_tracers(operation, flatten(result)[0])
        return result
    on_tape = [_is_operand(x) for x in leaves]
    operands = _chosen(leaves, on_tape)
    arguments = _tree(structure, leaves, on_tape, [input_aval(x) for x in operands])
    names, words = operation.names(args, kwargs)
    named = iter(names)
    names = _chosen([next(named) if is_traced(x) else "" for x in leaves], on_tape)
    call = _Call(operation, arguments, _chosen(words, on_tape), user_source())
    try:
        body = call.trace(operands, names)
    except _FINAL:
        raise
    except Exception as error:
        # Whatever kept the body from being traced: where it is the user's own mistake, the body
        # makes it again on plain arrays, in NumPy's words.
        return call.record_opaque(operands, error)
    return call.record(operands, body)


def _is_operand(x: Any) -> bool:
    """Whether an argument's leaf goes onto the tape; complex arrays and such are static."""
    if not isinstance(x, np.ndarray):
        return isinstance(x, Tracer)
    try:
        check_leaf(x, "")
    except ArgumentError:
        return False
    return True


def _refuse_tracers(operation: Operation, values: Sequence[Any]) -> None:
    """A rule has no cotangent for a value that its function reached without being passed it."""
    for x in values:
        if isinstance(x, Tracer) and x.dtype.kind == "f":
            raise GradientError(
                f"{operation.label} uses a traced value ({x.aval}) that it wasn't passed"
                f"{at_line()}, and its rule can't give that value's cotangent. Pass it as an "
                "argument"
            )


@dataclass(frozen=True, eq=False)
class _Call:
    """One call of a user's function on tracers, without their values.

    `words` are what messages call the operands; `src` is the line of the call.
    """

    operation: Operation
    arguments: _Tree
    words: list[str]
    src: Source | None

    def trace(self, operands: Sequence[Any], names: Sequence[str]) -> Traced:
        """The body, traced as a function of the operands that returns (result, saved)."""

        def body(*values: Any) -> Any:
            args, kwargs = self.arguments.fill(values)
            returned = self.operation.run(args, kwargs)
            for value, word in zip(values, self.words, strict=True):
                if value._version:
                    raise self._writes(word)
            return returned

        body.__name__ = self.operation.label
        return trace_function(body, operands, names=names)

    def record(self, operands: Sequence[Any], body: Traced) -> Any:
        """Record the traced body as one call."""
        inputs = [*operands, *body.hidden]
        results, saved = _trees_of(body)
        count = len(results.avals)
        outputs, kept = body.tape.outputs[:count], body.tape.outputs[count:]
        values = _chosen(body.leaves, [at is not None for at in body.outputs])
        if not outputs:
            return results.fill([])
        if not self.operation.has_rule():
            whole = CallTape(replace(body.tape, outputs=outputs))
            return results.fill(_record(whole, inputs, results.avals, values))
        _refuse_tracers(self.operation, body.hidden)
        sources = _sources(kept, body.tape.inputs, outputs)
        own = [source[0] == "residual" for source in sources]
        residuals: Sequence[Any] = ()
        if any(own):
            # What the rule reads of the body is computed beside the call and not by it. So it is
            # differentiated as the body is, when the rule is.
            part = remove_dead(replace(body.tape, outputs=tuple(_chosen(kept, own)), guards=()))
            avals, found = _chosen(saved.avals, own), _chosen(values[count:], own)
            residuals = _record(CallTape(part), inputs, avals, found)
        tape = _with_inputs(replace(body.tape, outputs=outputs), [x.aval for x in residuals])
        rule = _Backward(self, results, saved, sources)
        primitive = Custom(self.operation.label, tape, rule)
        return results.fill(_record(primitive, [*inputs, *residuals], results.avals, values))

    def record_opaque(self, operands: Sequence[Any], error: Exception) -> Any:
        """Record a call of NumPy, since the body couldn't be traced."""
        label, values = self.operation.label, [_value(x) for x in operands]
        known = all(value is not None for value in values)
        first = self._returned(values) if known else self._returned_on_ones(values)
        # What can't be kept in arrays is made again, by running the function before its rule.
        again = not all(map(self._is_kept, first.saved.leaves))
        if again:
            first = first.without_saved()
        _refuse_tracers(self.operation, [*first.result.leaves, *first.saved.leaves])
        for leaf in first.result.leaves:
            check_leaf(leaf, f"the result of {label}")
        results, saved, arrays = first.result.tree(), first.saved.tree(), first.arrays
        if not results.avals:
            return results.fill([])

        def function(*values: Any) -> Any:
            found = self._returned(values)
            found = found.without_saved() if again else found
            if not found.is_like(first):
                raise TraceError(
                    f"{label} returned something of another structure than when it was traced"
                    f"{at_source(self.src)}. NumPy runs it between compiled code, so what isn't an "
                    "array must be the same at each call"
                )
            return found.arrays

        function.__name__ = label
        rule = None
        if self.operation.has_rule():
            rule = _Backward(self, results, saved, first.sources, again)
        avals = [aval_of_leaf(x) for x in arrays]
        count = len(results.avals)
        primitive = Opaque(label, function, tuple(avals), count, rule, _reason(error))
        arrays = [np.asarray(x)[()] for x in arrays]
        return results.fill(_record(primitive, operands, avals, arrays)[:count])

    def run_plainly(self, values: Sequence[Any]) -> tuple[Any, Any]:
        """The result and what is saved, for plain values of the operands."""
        args, kwargs = self.arguments.fill(values)
        try:
            return self.operation.run(args, kwargs)
        except ValueError as error:
            if "read-only" in str(error):
                raise self._writes("arguments") from error
            raise

    def _returned(self, values: Sequence[Any]) -> _Returned:
        given = self.arguments.plain(values)
        result, saved = self.run_plainly(given)
        kept = _Leaves.of(saved)
        found = _Leaves.of(result)
        return _Returned(found, kept, _sources(kept.on_tape, given, found.on_tape))

    def _returned_on_ones(self, values: Sequence[Any]) -> _Returned:
        """In a derivative rule no values are known: ones show the type of the result."""
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
        """Whether something that an opaque function saved can be kept: arrays, and constants."""
        if isinstance(x, (np.ndarray, np.generic)):
            return _is_operand(np.asarray(x))
        constants = (int, float, str, bytes, type, types.FunctionType, np.dtype, np.ufunc)
        return isinstance(x, constants) or any(x is y for y in self.arguments.constants)

    def _writes(self, what: str) -> WritesArgument:
        return WritesArgument(
            f"{self.operation.label} writes to its {what} in place{at_source(self.src)}, which a "
            "primitive must not do. Start with a copy: x = x.copy()"
        )


@dataclass(frozen=True, eq=False)
class _Leaves:
    """A tree of plain values, taken apart."""

    structure: Any
    leaves: list[Any]

    @staticmethod
    def of(tree: Any) -> _Leaves:
        leaves, structure = flatten(tree)
        return _Leaves(structure, leaves)

    @property
    def is_array(self) -> list[bool]:
        return [isinstance(x, (np.ndarray, np.generic, int, float)) for x in self.leaves]

    @property
    def on_tape(self) -> list[Any]:
        """The leaves that can be on a tape."""
        return _chosen(self.leaves, self.is_array)

    def tree(self) -> _Tree:
        avals = [aval_of_leaf(x) for x in self.on_tape]
        return _tree(self.structure, self.leaves, self.is_array, avals)

    def is_like(self, other: _Leaves) -> bool:
        """Whether the structure is the same, and what isn't an array too."""
        return (
            self.structure == other.structure
            and self.is_array == other.is_array
            and all(
                array or _same(x, y)
                for x, y, array in zip(self.leaves, other.leaves, self.is_array, strict=True)
            )
        )


@dataclass(frozen=True, eq=False)
class _Returned:
    """What a user's function returned on plain arrays, and where what it saved comes from."""

    result: _Leaves
    saved: _Leaves
    sources: list[Where]

    @property
    def arrays(self) -> list[Any]:
        """The results, then the residuals."""
        own = [kind == "residual" for kind, _ in self.sources]
        return [*self.result.on_tape, *_chosen(self.saved.on_tape, own)]

    def without_saved(self) -> _Returned:
        return _Returned(self.result, _Leaves.of(()), [])

    def is_like(self, other: _Returned) -> bool:
        return (
            self.result.is_like(other.result)
            and self.saved.is_like(other.saved)
            and self.sources == other.sources
        )


def aval_of_leaf(x: Any) -> Aval:
    """The type of a result on the tape; a Python number is weak."""
    array = np.asarray(x)
    return Aval(array.shape, array.dtype, weak=is_number(x))


# Where something saved is found when the rule runs: "input" or "result" k of the call, or
# "residual" k, which is kept for the rule alone.
Where = tuple[str, int]


def _sources(saved: Sequence[Any], inputs: Sequence[Any], results: Sequence[Any]) -> list[Where]:
    """Where each of the saved values is found.

    Derivatives of a rule go on through inputs and results of its function, so a saved value that
    is one of them, the very object or variable, is read from there.
    """
    found: list[Where] = []
    residuals = 0
    for x in saved:
        known = [("input", k) for k, y in enumerate(inputs) if x is y]
        known += [("result", k) for k, y in enumerate(results) if x is y]
        if known and not isinstance(x, (int, bool, Literal)):  # small integers are one object
            found.append(known[0])
        else:
            found.append(("residual", residuals))
            residuals += 1
    return found


def _trees_of(body: Traced) -> tuple[_Tree, _Tree]:
    """The trees of the result and of what is saved, of a traced body."""
    on_tape = [at is not None for at in body.outputs]
    avals = [
        Aval(x.shape, x.dtype, weak)
        for x, weak in zip(body.tape.outputs, _chosen(body.weak, on_tape), strict=True)
    ]
    result, saved = body.structure.children()
    end = result.num_leaves
    count = sum(on_tape[:end])
    return (
        _tree(result, body.leaves[:end], on_tape[:end], avals[:count]),
        _tree(saved, body.leaves[end:], on_tape[end:], avals[count:]),
    )


def _with_inputs(tape: Tape, avals: Sequence[Aval]) -> Tape:
    """The tape with further inputs, which it doesn't read."""
    ids = [v.id for v in tape.inputs] + [v.id for c in tape.calls for v in c.outs]
    extra = tuple(Var(max(ids, default=0) + 1 + k, aval) for k, aval in enumerate(avals))
    names = (*tape.names, *[f"saved{k}" for k in range(len(extra))])
    return remove_dead(replace(tape, inputs=(*tape.inputs, *extra), names=names))


def _record(
    primitive: Any, inputs: Sequence[Any], avals: Sequence[Aval], values: Sequence[Any]
) -> list[Tracer]:
    """Record a call whose results' values are known already."""
    trace = innermost(inputs)
    outs = trace.record(primitive, [to_operand(trace, x)[0] for x in inputs])
    return [
        Tracer(trace, out, value, aval.weak)
        for out, value, aval in zip(outs, values, avals, strict=False)
    ]


def _same(x: Any, y: Any) -> bool:
    return x is y or (type(x) is type(y) and bool(x == y))


def _reason(error: Exception) -> str:
    """The first sentence of a message."""
    return str(error).split(". ")[0]


# ---- rules


@dataclass(eq=False)
class _Backward:
    """A user's rule as the differentiator calls it, for one call of the function.

    `sources` tells where the leaves of `saved` are found. With `again`, nothing was saved: the
    rule runs on plain arrays, after the function.
    """

    call: _Call
    results: _Tree
    saved: _Tree
    sources: list[Where]
    again: bool = False

    @property
    def __name__(self) -> str:
        return f"{self.call.operation.label}.backward"

    def __call__(self, cts: Sequence[Any], outs: Sequence[Any], xs: Sequence[Any]) -> Sequence[Any]:
        """Cotangents of all operands `xs`, as nodes; hidden ones and residuals have none."""
        writer: Writer = cts[0].writer
        args = xs[: len(self.call.arguments.avals)]
        results = outs[: len(self.results.avals)]
        # Residuals are the last operands of a traced function, and the last results of another.
        residuals = [*xs, *outs[len(results) :]]
        residuals = residuals[
            len(residuals) - sum(kind == "residual" for kind, _ in self.sources) :
        ]
        places = {"input": xs, "result": results, "residual": residuals}
        saved = [places[kind][k] for kind, k in self.sources]
        found: list[Any] | None = None
        why = "what its forward pass keeps isn't made of arrays"
        if not self.again:
            found, why = self._traced(writer, cts, results, args, saved)
        if found is None:
            found = self._opaque(writer, cts, results, args, saved, why)
        missing = self._missing()
        found = [ct if gap is None else gap for ct, gap in zip(found, missing, strict=True)]
        return found + [None] * (len(xs) - len(found))

    def _missing(self) -> list[Any]:
        """`Missing` for each operand of an argument without a rule."""
        arguments = self.call.arguments
        args, kwargs = arguments.fill([None] * len(arguments.avals))
        return self._spread(self.call.operation.missing(args, kwargs))

    def _traced(
        self,
        writer: Writer,
        cts: Sequence[Any],
        outs: Sequence[Any],
        xs: Sequence[Any],
        kept: Sequence[Any],
    ) -> tuple[list[Any] | None, str]:
        """The cotangents, or None and why the rule can't be traced."""
        builder = writer.builder
        calls, guards, hidden = len(builder.calls), len(builder.guards), dict(writer.hidden)
        trace = Trace(builder, label=f"the rule of {self.call.operation.label}")
        trace.src, trace.reason, trace.hidden = writer.src, writer.reason, writer.hidden
        with trace:
            try:
                args, kwargs = self.call.arguments.tracers(trace, xs)
                result, saved = self.results.tracers(trace, outs), self.saved.tracers(trace, kept)
                ct = self._cotangent_tree().tracers(trace, cts)
                found = [
                    None if x is None else writer.node(to_operand(trace, x)[0])
                    for x in self._cotangents(ct, result, args, kwargs, saved)
                ]
            except _FINAL:
                raise
            except Exception as error:
                del builder.calls[calls:], builder.guards[guards:]
                writer.hidden.clear()
                writer.hidden.update(hidden)
                return None, _reason(error)
        for _, outside in writer.hidden.values():
            if isinstance(outside, Tracer):
                raise RuleError(
                    f"the rule of {self.call.operation.label} uses a traced value "
                    f"({outside.aval}) that its function wasn't passed{at_source(self.call.src)}. "
                    "Pass it as an argument"
                )
        return found, ""

    def _opaque(
        self,
        writer: Writer,
        cts: Sequence[Any],
        outs: Sequence[Any],
        xs: Sequence[Any],
        kept: Sequence[Any],
        why: str,
    ) -> list[Any]:
        """The cotangents as results of one call of NumPy."""
        call, avals = self.call, self.call.arguments.avals
        wanted = [k for k, aval in enumerate(avals) if aval.dtype.kind == "f"]
        first, second, third = len(cts), len(cts) + len(outs), len(cts) + len(outs) + len(xs)

        def function(*values: Any) -> Any:
            given = call.arguments.plain(values[second:third])
            args, kwargs = call.arguments.fill(given)
            result = self.results.fill(self.results.plain(values[first:second]))
            saved = self.saved.fill(self.saved.plain(values[third:]))
            if self.again:
                _, saved = call.run_plainly(given)
            ct = self._cotangent_tree().fill([np.array(v)[()] for v in values[:first]])
            found = self._cotangents(ct, result, args, kwargs, saved)
            return [
                np.broadcast_to(0.0 if found[k] is None else found[k], avals[k].shape)
                for k in wanted
            ]

        function.__name__ = self.__name__
        types = tuple(Aval(avals[k].shape, avals[k].dtype) for k in wanted)
        primitive = Opaque(self.__name__, function, types, len(wanted), None, why)
        nodes = writer.apply(primitive, [*cts, *outs, *xs, *kept])
        found: list[Any] = [None] * len(avals)
        for k, node in zip(wanted, nodes if isinstance(nodes, tuple) else (nodes,), strict=True):
            found[k] = node
        return found

    def _cotangent_tree(self) -> _Tree:
        """The tree of the results' cotangents: None for results that have none."""
        tree = self.results
        at = tuple(
            k if k is not None and tree.avals[k].dtype.kind == "f" else None for k in tree.at
        )
        return replace(tree, at=at, static=(None,) * len(at), known={})

    def _cotangents(self, ct: Any, out: Any, args: Any, kwargs: Any, saved: Any) -> list[Any]:
        """What the rule returns for each operand: None, a number, an array or a tracer."""
        try:
            returned = self._spread(self.call.operation.pull_back(ct, out, args, kwargs, saved))
            return [
                None if x is None or aval.dtype.kind != "f" else self._fitting(x, aval, word)
                for x, aval, word in zip(
                    returned, self.call.arguments.avals, self.call.words, strict=True
                )
            ]
        except RuleError as error:
            raise RuleError(f"{error}{at_source(self.call.src)}") from None

    def _spread(self, entries: Sequence[Any]) -> list[Any]:
        """One entry an argument, each put together as that is --> one entry an operand."""
        arguments = self.call.arguments
        positional, named = arguments.structure.children()
        found: list[Any] = []
        start = 0
        for spec, entry in zip([*positional.children(), *named.children()], entries, strict=True):
            at = arguments.at[start : start + spec.num_leaves]
            start += spec.num_leaves
            leaves = [entry] * len(at)
            if not (entry is None or isinstance(entry, Missing) or all(k is None for k in at)):
                try:
                    leaves = spec.flatten_up_to(entry)
                except ValueError as error:
                    raise RuleError(
                        f"the rule of {self.call.operation.label} returned a cotangent that isn't "
                        f"put together as its argument is: {error}"
                    ) from None
            found += [leaf for leaf, k in zip(leaves, at, strict=True) if k is not None]
        return found

    def _fitting(self, ct: Any, aval: Aval, word: str) -> Any:
        """A cotangent of an operand; a plain number stands for all its elements."""
        rule = f"the rule of {self.call.operation.label} for {word}"
        if is_number(ct):
            return aval.dtype.type(ct)
        if not isinstance(ct, (Tracer, np.ndarray, np.generic)) or ct.dtype.kind not in "fiub":
            kind = f"of dtype {ct.dtype}" if hasattr(ct, "dtype") else f"{ct!r}"
            raise RuleError(
                f"{rule} returned a cotangent {kind}. A cotangent is a real array of shape "
                f"{aval.shape}, or None where there is no derivative"
            )
        if ct.shape != aval.shape:
            raise RuleError(
                f"{rule} returned a cotangent of shape {ct.shape}, and the argument has shape "
                f"{aval.shape}. They must be the same: sum over axes along which the argument was "
                "broadcast, and use np.broadcast_to where it was summed"
            )
        return ct
