"""A user's derivative rules, as the differentiator calls them.

Rules are users' NumPy code. They run when the tape is differentiated, on tracers with types and
without values, and record their calls on the tape of the gradient, where they can be differentiated
in turn. A rule that can't be traced becomes a call of NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from tapegrad.core.handlers import let_through
from tapegrad.core.trees import flatten, flatten_up_to, is_number
from tapegrad.errors import GradientError, InternalError, LeakedTracerError, RuleError
from tapegrad.ir.tape import Aval
from tapegrad.observe.observer import observed
from tapegrad.observe.program.source import at_source
from tapegrad.primitives.base import Missing, Writer
from tapegrad.primitives.complexes import real
from tapegrad.primitives.control import ForeignCall
from tapegrad.primitives.views import BroadcastTo, zeros
from tapegrad.tracing.recording.trace import Trace, untraced
from tapegrad.tracing.rules.operation import Applied, WritesArgument
from tapegrad.tracing.runs.mixed_trees import MixedTree, Where
from tapegrad.tracing.tracers.tracer import Tracer, to_operand

# Errors that would also occur on plain arrays.
FINAL = (InternalError, LeakedTracerError, RuleError, WritesArgument)


@dataclass(eq=False)
class _UserRule:
    """A user's rule as the differentiator calls it, for one call of the function.

    `sources` are the sources of the leaves of `saved`. With `again`, nothing was saved: the rule
    runs on plain arrays, after the function.
    """

    call: Applied
    results: MixedTree
    saved: MixedTree
    sources: list[Where]
    again: bool = False

    mode: ClassVar[str]
    returns: ClassVar[str]  # the kind of values that a rule returns: cotangents, tangents

    @property
    def __name__(self) -> str:
        return f"{self.call.operation.label}.{self.mode}"

    @property
    def target(self) -> MixedTree:
        """The tree for whose values the rule returns derivatives: the arguments or the results."""
        raise NotImplementedError

    def apply(self, given: Any, out: Any, args: Any, kwargs: Any, saved: Any) -> list[Any]:
        """The rule's result for each value of the target on the tape."""
        raise NotImplementedError

    def found(
        self,
        writer: Writer,
        tree: MixedTree,
        given: Sequence[Any],
        outs: Sequence[Any],
        xs: Sequence[Any],
    ) -> list[Any]:
        """A node or None for each value of the target. The nodes `given` are the leaves of
        `tree`."""
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
            found, why = self._traced(writer, tree, given, results, args, saved)
        if found is None:
            found = self._opaque(writer, tree, given, results, args, saved, why)
        return found

    def _traced(
        self,
        writer: Writer,
        tree: MixedTree,
        given: Sequence[Any],
        outs: Sequence[Any],
        xs: Sequence[Any],
        kept: Sequence[Any],
    ) -> tuple[list[Any] | None, str]:
        """The rule's results as nodes, or None and the reason why it can't be traced."""
        builder = writer.builder
        calls, guards, captured = len(builder.calls), len(builder.guards), dict(writer.captured)
        trace = Trace(builder, label=f"the rule of {self.call.operation.label}")
        trace.src, trace.reason, trace.captured = writer.src, writer.reason, writer.captured
        with trace:
            try:
                args, kwargs = self.call.arguments.tracers(trace, xs)
                result, saved = self.results.tracers(trace, outs), self.saved.tracers(trace, kept)
                found = [
                    None if x is None else writer.node(to_operand(trace, x)[0])
                    for x in self._returned(tree.tracers(trace, given), result, args, kwargs, saved)
                ]
            except FINAL:
                raise
            except Exception as error:
                let_through(error)
                del builder.calls[calls:], builder.guards[guards:]
                writer.captured.clear()
                writer.captured.update(captured)
                return None, first_sentence(error)
        for _, outside in writer.captured.values():
            if isinstance(outside, Tracer):
                raise RuleError(
                    f"the rule of {self.call.operation.label} uses a traced value "
                    f"({outside._aval}) that its function wasn't passed{at_source(self.call.src)}. "
                    "Pass it as an argument"
                )
        return found, ""

    def _opaque(
        self,
        writer: Writer,
        tree: MixedTree,
        given: Sequence[Any],
        outs: Sequence[Any],
        xs: Sequence[Any],
        kept: Sequence[Any],
        why: str,
    ) -> list[Any]:
        """The rule's results as results of one call of NumPy."""
        call, avals = self.call, self.target.avals
        wanted = [k for k, aval in enumerate(avals) if aval.dtype.kind in "fc"]
        first, second = len(given), len(given) + len(outs)
        third = second + len(xs)

        def function(*values: Any) -> Any:
            plain = call.arguments.plain(values[second:third])
            args, kwargs = call.arguments.fill(plain)
            result = self.results.fill(self.results.plain(values[first:second]))
            saved = self.saved.fill(self.saved.plain(values[third:]))
            if self.again:
                _, saved = call.run_plainly(plain)
            moved = tree.fill([np.array(v)[()] for v in values[:first]])
            with untraced():
                found = self._returned(moved, result, args, kwargs, saved)
            return [
                np.broadcast_to(0.0 if found[k] is None else found[k], avals[k].shape)
                for k in wanted
            ]

        function.__name__ = self.__name__
        types = tuple(Aval(avals[k].shape, avals[k].dtype) for k in wanted)
        primitive = ForeignCall(
            *(self.__name__, function, types, len(wanted), None),
            f"its body can't be traced, since {why}",
            of_complex=True,
        )
        nodes = writer.apply(primitive, [*given, *outs, *xs, *kept])
        found: list[Any] = [None] * len(avals)
        for k, node in zip(wanted, nodes if isinstance(nodes, tuple) else (nodes,), strict=True):
            found[k] = node
        return found

    def _returned(self, given: Any, out: Any, args: Any, kwargs: Any, saved: Any) -> list[Any]:
        """The rule's result for each value of the target: None, a number, an array or a tracer."""
        try:
            with observed():
                return self.apply(given, out, args, kwargs, saved)
        except RuleError as error:
            raise RuleError(f"{error}{at_source(self.call.src)}") from None

    def _spread(self, spec: Any, at: Sequence[int | None], entry: Any, of: str) -> list[Any]:
        """The values of an entry for each leaf on the tape. The entry has the structure of an
        argument, or of the result."""
        leaves = [entry] * len(at)
        if not (entry is None or isinstance(entry, Missing) or all(k is None for k in at)):
            try:
                leaves = flatten_up_to(spec, entry)
            except ValueError as error:
                raise RuleError(
                    f"the rule of {self.call.operation.label} returned a {self.returns} that isn't "
                    f"put together as {of} is: {error}"
                ) from None
        return [leaf for leaf, k in zip(leaves, at, strict=True) if k is not None]

    def fitting(self, found: Any, aval: Aval, rule: str, whose: str, shapes: str) -> Any:
        """The returned derivative of a value, checked; a plain number stays one, and applies to all
        elements."""
        if type(found) is complex:
            found = np.complex128(found)
        if is_number(found):
            return aval.dtype.type(found)
        if callable(found):
            raise RuleError(
                f"{rule} returned a function, as rules of HIPS autograd do. One of tapegrad's is "
                "passed the cotangent first, and returns that of its argument: not `lambda out, x: "
                "lambda ct: ...` but `lambda ct, out, x: ...`"
            )
        there = (aval, *self.results.avals, *self.call.arguments.avals)
        kinds = "fiubc" if any(x.dtype.kind == "c" for x in there) else "fiub"
        if not isinstance(found, (Tracer, np.ndarray, np.generic)) or found.dtype.kind not in kinds:
            sort = "real or complex" if "c" in kinds else "real"
            kind = f"of dtype {found.dtype}" if hasattr(found, "dtype") else f"{found!r}"
            raise RuleError(
                f"{rule} returned a {self.returns} {kind}. A {self.returns} is a "
                f"{sort} array of shape {aval.shape}, or None where there is no derivative"
            )
        if found.dtype.kind == "c" and aval.dtype.kind != "c":  # a real value's derivative is real
            found = real(found) if isinstance(found, Tracer) else found.real
        if found.shape != aval.shape:
            raise RuleError(
                f"{rule} returned a {self.returns} of shape {found.shape}, and {whose} has shape "
                f"{aval.shape}. {shapes}"
            )
        return found


@dataclass(eq=False)
class Backward(_UserRule):
    """A user's reverse rule."""

    mode = "backward"
    returns = "cotangent"

    @property
    def target(self) -> MixedTree:
        return self.call.arguments

    def __call__(self, cts: Sequence[Any], outs: Sequence[Any], xs: Sequence[Any]) -> Sequence[Any]:
        """Cotangents of all operands `xs`, as nodes; captured ones and residuals have none."""
        found = self.found(cts[0].writer, _of_floats(self.results), cts, outs, xs)
        arguments = self.call.arguments
        args, kwargs = arguments.fill([None] * len(arguments.avals))
        missing = self._each_operand(self.call.operation.missing(args, kwargs))
        found = [ct if gap is None else gap for ct, gap in zip(found, missing, strict=True)]
        return found + [None] * (len(xs) - len(found))

    def apply(self, given: Any, out: Any, args: Any, kwargs: Any, saved: Any) -> list[Any]:
        returned = self._each_operand(
            self.call.operation.pull_back(given, out, args, kwargs, saved)
        )
        label = self.call.operation.label
        return [
            None
            if x is None or aval.dtype.kind not in "fc"
            else self.fitting(
                x,
                aval,
                f"the rule of {label} for {word}",
                "the argument",
                "They must be the same: sum over axes along which the argument was broadcast, and "
                "use np.broadcast_to where it was summed",
            )
            for x, aval, word in zip(
                returned, self.call.arguments.avals, self.call.words, strict=True
            )
        ]

    def _each_operand(self, entries: Sequence[Any]) -> list[Any]:
        """The entries of all operands, from one entry for each argument, with the argument's
        structure."""
        return [
            x
            for (spec, at), entry in zip(_arguments(self.call.arguments), entries, strict=True)
            for x in self._spread(spec, at, entry, "its argument")
        ]


@dataclass(eq=False)
class Forward(_UserRule):
    """A user's forward rule."""

    mode = "forward"
    returns = "tangent"

    @property
    def target(self) -> MixedTree:
        return self.results

    def __call__(self, ts: Sequence[Any], outs: Sequence[Any], xs: Sequence[Any]) -> Sequence[Any]:
        """Tangents of all results `outs`, as nodes; residuals have none."""
        writer: Writer = outs[0].writer
        arguments, missing = self.call.arguments, self.missing()
        moved: set[int] = set()
        for _, at in _arguments(arguments):
            places = [k for k in at if k is not None and arguments.avals[k].dtype.kind in "fc"]
            if any(ts[k] is not None for k in places):
                moved.update(places)
        for k in sorted(moved):
            if missing[k] is not None:
                raise GradientError(missing[k].message)
        places = sorted(moved)
        given = [
            zeros(xs[k], xs[k].shape)
            if ts[k] is None
            else ts[k]
            if ts[k].shape == xs[k].shape
            else BroadcastTo(xs[k].shape)(ts[k])
            for k in places
        ]
        found = self.found(writer, _only(arguments, places), given, outs, xs)
        return found + [None] * (len(outs) - len(found))

    def missing(self) -> list[Any]:
        """`Missing` for each operand of an argument without a rule."""
        arguments = self.call.arguments
        args, kwargs = arguments.fill([None] * len(arguments.avals))
        entries = self.call.operation.missing_forward(args, kwargs)
        return [
            entry
            for (_, at), entry in zip(_arguments(arguments), entries, strict=True)
            for k in at
            if k is not None
        ]

    def apply(self, given: Any, out: Any, args: Any, kwargs: Any, saved: Any) -> list[Any]:
        ts_args, ts_kwargs = given
        ts = [*ts_args, *[ts_kwargs[name] for name in sorted(ts_kwargs)]]
        ts = [None if _is_empty(t) else t for t in ts]
        operation, results = self.call.operation, self.results
        found: list[Any] = [None] * len(results.avals)
        for returned in operation.push_forward(ts, out, args, kwargs, saved):
            parts = self._spread(results.structure, results.at, returned, "the result")
            for k, (part, aval) in enumerate(zip(parts, results.avals, strict=True)):
                if part is None or aval.dtype.kind not in "fc":
                    continue
                part = self.fitting(
                    part,
                    aval,
                    f"the forward rule of {operation.label}",
                    "the result",
                    "They must be the same: use np.broadcast_to where the argument was broadcast, "
                    "and sum where it was summed",
                )
                found[k] = part if found[k] is None else found[k] + part
        return found


def _is_empty(tree: Any) -> bool:
    """Whether an argument has no tangents."""
    return all(x is None for x in flatten(tree)[0])


def _arguments(arguments: MixedTree) -> list[tuple[Any, tuple[int | None, ...]]]:
    """The structure of each argument, and the positions of its leaves on the tape."""
    positional, named = arguments.structure.children()
    found, start = [], 0
    for spec in (*positional.children(), *named.children()):
        found.append((spec, arguments.at[start : start + spec.num_leaves]))
        start += spec.num_leaves
    return found


def _of_floats(tree: MixedTree) -> MixedTree:
    """The tree of the values' cotangents: None for values that have none."""
    at = tuple(k if k is not None and tree.avals[k].dtype.kind in "fc" else None for k in tree.at)
    return replace(tree, at=at, static=(None,) * len(at), known={})


def _only(tree: MixedTree, places: Sequence[int]) -> MixedTree:
    """The tree of tangents of the values with these numbers; None for the others."""
    numbers = {k: n for n, k in enumerate(places)}
    at = tuple(None if k is None else numbers.get(k) for k in tree.at)
    avals = tuple(tree.avals[k] for k in places)
    return MixedTree(tree.structure, at, (None,) * len(at), avals, {})


def first_sentence(error: Exception) -> str:
    """The first sentence of an error's message."""
    return str(error).split(". ")[0]
