"""A user's derivative rule, as the differentiator calls it.

Rules are users' NumPy code. They run when the tape is differentiated, on tracers that know types
and no values, and leave their calls on the tape of the gradient, where they can be differentiated
in turn. A rule that can't be traced becomes a call of NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tapegrad.core.handlers import let_through
from tapegrad.core.trees import flatten_up_to, is_number
from tapegrad.errors import InternalError, LeakedTracerError, RuleError
from tapegrad.ir.tape import Aval
from tapegrad.primitives.base import Missing, Writer
from tapegrad.primitives.complexes import real
from tapegrad.primitives.control import ForeignCall
from tapegrad.tracing.custom_operation import Applied, WritesArgument
from tapegrad.tracing.mixed import MixedTree, Where
from tapegrad.tracing.observe.observer import observed
from tapegrad.tracing.source import at_source
from tapegrad.tracing.trace import Trace, untraced
from tapegrad.tracing.tracer import Tracer, to_operand

# Faults that running a function on plain arrays wouldn't mend.
FINAL = (InternalError, LeakedTracerError, RuleError, WritesArgument)


@dataclass(eq=False)
class Backward:
    """A user's rule as the differentiator calls it, for one call of the function.

    `sources` tells where the leaves of `saved` are found. With `again`, nothing was saved: the
    rule runs on plain arrays, after the function.
    """

    call: Applied
    results: MixedTree
    saved: MixedTree
    sources: list[Where]
    again: bool = False

    @property
    def __name__(self) -> str:
        return f"{self.call.operation.label}.backward"

    def __call__(self, cts: Sequence[Any], outs: Sequence[Any], xs: Sequence[Any]) -> Sequence[Any]:
        """Cotangents of all operands `xs`, as nodes; captured ones and residuals have none."""
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
        calls, guards, captured = len(builder.calls), len(builder.guards), dict(writer.captured)
        trace = Trace(builder, label=f"the rule of {self.call.operation.label}")
        trace.src, trace.reason, trace.captured = writer.src, writer.reason, writer.captured
        with trace:
            try:
                args, kwargs = self.call.arguments.tracers(trace, xs)
                result, saved = self.results.tracers(trace, outs), self.saved.tracers(trace, kept)
                ct = self._cotangent_tree().tracers(trace, cts)
                found = [
                    None if x is None else writer.node(to_operand(trace, x)[0])
                    for x in self._cotangents(ct, result, args, kwargs, saved)
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
        cts: Sequence[Any],
        outs: Sequence[Any],
        xs: Sequence[Any],
        kept: Sequence[Any],
        why: str,
    ) -> list[Any]:
        """The cotangents as results of one call of NumPy."""
        call, avals = self.call, self.call.arguments.avals
        wanted = [k for k, aval in enumerate(avals) if aval.dtype.kind in "fc"]
        first, second, third = len(cts), len(cts) + len(outs), len(cts) + len(outs) + len(xs)

        def function(*values: Any) -> Any:
            given = call.arguments.plain(values[second:third])
            args, kwargs = call.arguments.fill(given)
            result = self.results.fill(self.results.plain(values[first:second]))
            saved = self.saved.fill(self.saved.plain(values[third:]))
            if self.again:
                _, saved = call.run_plainly(given)
            ct = self._cotangent_tree().fill([np.array(v)[()] for v in values[:first]])
            with untraced():
                found = self._cotangents(ct, result, args, kwargs, saved)
            return [
                np.broadcast_to(0.0 if found[k] is None else found[k], avals[k].shape)
                for k in wanted
            ]

        function.__name__ = self.__name__
        types = tuple(Aval(avals[k].shape, avals[k].dtype) for k in wanted)
        primitive = ForeignCall(
            self.__name__, function, types, len(wanted), None, why, of_complex=True
        )
        nodes = writer.apply(primitive, [*cts, *outs, *xs, *kept])
        found: list[Any] = [None] * len(avals)
        for k, node in zip(wanted, nodes if isinstance(nodes, tuple) else (nodes,), strict=True):
            found[k] = node
        return found

    def _cotangent_tree(self) -> MixedTree:
        """The tree of the results' cotangents: None for results that have none."""
        tree = self.results
        at = tuple(
            k if k is not None and tree.avals[k].dtype.kind in "fc" else None for k in tree.at
        )
        return replace(tree, at=at, static=(None,) * len(at), known={})

    def _cotangents(self, ct: Any, out: Any, args: Any, kwargs: Any, saved: Any) -> list[Any]:
        """What the rule returns for each operand: None, a number, an array or a tracer."""
        try:
            with observed():
                entries = self.call.operation.pull_back(ct, out, args, kwargs, saved)
            returned = self._spread(entries)
            return [
                None if x is None or aval.dtype.kind not in "fc" else self._fitting(x, aval, word)
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
                    leaves = flatten_up_to(spec, entry)
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
        if callable(ct):
            raise RuleError(
                f"{rule} returned a function, as rules of HIPS autograd do. One of tapegrad's is "
                "passed the cotangent first, and returns that of its argument: not `lambda out, x: "
                "lambda ct: ...` but `lambda ct, out, x: ...`"
            )
        ct = np.complex128(ct) if type(ct) is complex else ct
        kinds = "fiubc" if any(x.dtype.kind == "c" for x in (aval, *self.results.avals)) else "fiub"
        if not isinstance(ct, (Tracer, np.ndarray, np.generic)) or ct.dtype.kind not in kinds:
            sort = "real or complex" if "c" in kinds else "real"
            kind = f"of dtype {ct.dtype}" if hasattr(ct, "dtype") else f"{ct!r}"
            raise RuleError(
                f"{rule} returned a cotangent {kind}. A cotangent is a "
                f"{sort} array of shape {aval.shape}, or None where there is no derivative"
            )
        if ct.dtype.kind == "c" and aval.dtype.kind != "c":
            ct = real(ct) if isinstance(ct, Tracer) else ct.real  # the argument's change is real
        if ct.shape != aval.shape:
            raise RuleError(
                f"{rule} returned a cotangent of shape {ct.shape}, and the argument has shape "
                f"{aval.shape}. They must be the same: sum over axes along which the argument was "
                "broadcast, and use np.broadcast_to where it was summed"
            )
        return ct


def first_sentence(error: Exception) -> str:
    """The first sentence of a message."""
    return str(error).split(". ")[0]
