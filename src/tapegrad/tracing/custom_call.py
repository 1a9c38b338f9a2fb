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
from dataclasses import dataclass
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
from tapegrad.ir.tape import Aval, Literal, Source
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

    def plain(self, values: Sequence[Any]) -> Any:
        """The tree with arrays that must not be written to; scalars as NumPy or Python has them."""
        found = []
        for value, aval in zip(values, self.avals, strict=False):
            array = np.asarray(value).view()
            array.flags.writeable = False
            found.append(array.item() if aval.weak else array if aval.shape else array[()])
        return self.fill(found)

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
        on_tape = [at is not None for at in body.outputs]
        values = _chosen(body.leaves, on_tape)
        avals = [
            Aval(x.shape, x.dtype, weak)
            for x, weak in zip(body.tape.outputs, _chosen(body.weak, on_tape), strict=True)
        ]
        results = _tree(body.structure, body.leaves, on_tape, avals)
        inputs = [*operands, *body.hidden]
        visible = sum(on_tape[: body.structure.child(0).num_leaves])
        if not visible:
            return results.fill(values)[0]
        if not self.operation.has_rule():
            return _recorded(CallTape(body.tape), inputs, results, values)
        _refuse_tracers(self.operation, body.hidden)
        rule = _Backward(self, results, visible, again=False)
        primitive = Custom(self.operation.label, body.tape, visible, rule)
        return _recorded(primitive, inputs, results, values)

    def record_opaque(self, operands: Sequence[Any], error: Exception) -> Any:
        """Record a call of NumPy, since the body couldn't be traced."""
        label = self.operation.label
        result, saved = self._returned([_value(x) for x in operands])
        # What can't be kept in arrays is made again, by running the function before its rule.
        again = not all(map(self._is_kept, flatten(saved)[0]))
        leaves, structure = flatten((result, () if again else saved))
        _refuse_tracers(self.operation, leaves)
        for leaf in leaves:
            check_leaf(leaf, f"the result of {label}")
        on_tape = [isinstance(x, (np.ndarray, np.generic, int, float)) for x in leaves]
        arrays = [np.asarray(x) for x in _chosen(leaves, on_tape)]
        avals = tuple(
            Aval(array.shape, array.dtype, weak=is_number(x))
            for array, x in zip(arrays, _chosen(leaves, on_tape), strict=True)
        )
        results = _tree(structure, leaves, on_tape, avals)
        visible = sum(on_tape[: structure.child(0).num_leaves])
        if not visible:
            return result

        def function(*values: Any) -> Any:
            result, saved = self.run_plainly(values)
            found, now = flatten((result, () if again else saved))
            if now != structure or not all(
                yes or _same(x, y) for x, y, yes in zip(found, results.static, on_tape, strict=True)
            ):
                raise TraceError(
                    f"{label} returned something of another structure than when it was traced"
                    f"{at_source(self.src)}. NumPy runs it between compiled code, so what isn't an "
                    "array must be the same at each call"
                )
            return _chosen(found, on_tape)

        function.__name__ = label
        rule = _Backward(self, results, visible, again) if self.operation.has_rule() else None
        primitive = Opaque(label, function, avals, visible, rule, _reason(error))
        return _recorded(primitive, operands, results, [array[()] for array in arrays])

    def run_plainly(self, values: Sequence[Any]) -> tuple[Any, Any]:
        """The result and what is saved, on the operands' values."""
        args, kwargs = self.arguments.plain(values)
        try:
            return self.operation.run(args, kwargs)
        except ValueError as error:
            if "read-only" in str(error):
                raise self._writes("arguments") from error
            raise

    def _returned(self, values: list[Any]) -> tuple[Any, Any]:
        """The result and what is saved, when the call is recorded.

        Inside a derivative rule no values are known, and the result's type is found with ones.
        """
        if all(value is not None for value in values):
            return self.run_plainly(values)
        stand_ins = [
            np.ones(aval.shape, aval.dtype) if value is None else value
            for value, aval in zip(values, self.arguments.avals, strict=True)
        ]
        try:
            return self.run_plainly(stand_ins)
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


def _recorded(primitive: Any, inputs: Sequence[Any], results: _Tree, values: Sequence[Any]) -> Any:
    """Record the call; its visible results, put together as the user's function returns them."""
    trace = innermost(inputs)
    outs = trace.record(primitive, [to_operand(trace, x)[0] for x in inputs])
    tracers = [
        Tracer(trace, out, value, aval.weak)
        for out, value, aval in zip(outs, values, results.avals, strict=True)
    ]
    return results.fill(tracers)[0]


def _same(x: Any, y: Any) -> bool:
    return x is y or (type(x) is type(y) and bool(x == y))


def _reason(error: Exception) -> str:
    """The first sentence of a message."""
    return str(error).split(". ")[0]


# ---- rules


@dataclass(eq=False)
class _Backward:
    """A user's rule as the differentiator calls it, for one call of the function.

    `results` is the tree of (result, saved); its first `visible` values have cotangents. With
    `again`, nothing was saved: the rule runs on plain arrays, after the function.
    """

    call: _Call
    results: _Tree
    visible: int
    again: bool

    @property
    def __name__(self) -> str:
        return f"{self.call.operation.label}.backward"

    def __call__(self, cts: Sequence[Any], outs: Sequence[Any], xs: Sequence[Any]) -> Sequence[Any]:
        """Cotangents of all operands `xs`, as nodes; the hidden ones at the end have none."""
        writer: Writer = cts[0].writer
        visible_xs = xs[: len(self.call.arguments.avals)]
        found: list[Any] | None = None
        why = "what its forward pass keeps isn't made of arrays"
        if not self.again:
            found, why = self._traced(writer, cts, outs, visible_xs)
        if found is None:
            found = self._opaque(writer, cts, outs, visible_xs, why)
        missing = self._missing()
        found = [ct if gap is None else gap for ct, gap in zip(found, missing, strict=True)]
        return found + [None] * (len(xs) - len(found))

    def _missing(self) -> list[Any]:
        """`Missing` for each operand of an argument without a rule."""
        arguments = self.call.arguments
        args, kwargs = arguments.fill([None] * len(arguments.avals))
        return self._spread(self.call.operation.missing(args, kwargs))

    def _traced(
        self, writer: Writer, cts: Sequence[Any], outs: Sequence[Any], xs: Sequence[Any]
    ) -> tuple[list[Any] | None, str]:
        """The cotangents, or None and why the rule can't be traced."""
        builder = writer.builder
        calls, guards, hidden = len(builder.calls), len(builder.guards), dict(writer.hidden)
        trace = Trace(builder, label=f"the rule of {self.call.operation.label}")
        trace.src, trace.reason, trace.hidden = writer.src, writer.reason, writer.hidden
        with trace:
            try:
                args, kwargs = self.call.arguments.tracers(trace, xs)
                result, saved = self.results.tracers(trace, outs)
                ct, _ = self._cotangent_tree().tracers(trace, cts)
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
        why: str,
    ) -> list[Any]:
        """The cotangents as results of one call of NumPy."""
        call, results, visible = self.call, self.results, self.visible
        avals = call.arguments.avals
        wanted = [k for k, aval in enumerate(avals) if aval.dtype.kind == "f"]

        def function(*values: Any) -> Any:
            cts, rest = values[:visible], values[visible:]
            outs, xs = rest[: len(results.avals)], rest[len(results.avals) :]
            args, kwargs = call.arguments.plain(xs)
            result, saved = results.plain(outs)
            if self.again:
                _, saved = call.run_plainly(xs)
            ct, _ = self._cotangent_tree().fill([np.array(v)[()] for v in cts])
            found = self._cotangents(ct, result, args, kwargs, saved)
            return [
                np.broadcast_to(0.0 if found[k] is None else found[k], avals[k].shape)
                for k in wanted
            ]

        function.__name__ = self.__name__
        types = tuple(Aval(avals[k].shape, avals[k].dtype) for k in wanted)
        primitive = Opaque(self.__name__, function, types, len(wanted), None, why)
        nodes = writer.apply(primitive, [*cts, *outs, *xs])
        found: list[Any] = [None] * len(avals)
        for k, node in zip(wanted, nodes if isinstance(nodes, tuple) else (nodes,), strict=True):
            found[k] = node
        return found

    def _cotangent_tree(self) -> _Tree:
        """The tree of the results' cotangents: None for results that have none, and for `saved`."""
        tree = self.results
        at = tuple(
            k if k is not None and k < self.visible and tree.avals[k].dtype.kind == "f" else None
            for k in tree.at
        )
        return _Tree(tree.structure, at, (None,) * len(at), tree.avals, {})

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
