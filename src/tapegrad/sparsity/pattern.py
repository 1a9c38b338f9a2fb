"""Sparsity patterns: which element of a tape's outputs may depend on which element of its inputs.

The tape is walked call by call. Each element of a value has a set of columns: the numbers of the
input elements that it depends on. `relations` says which elements of the operands an element of a
result depends on; its columns are the union of theirs. Sub-tapes are walked too, loops in `rounds`.
Known integers are computed on the way, since indices determine what is read.

No dependence is missing: where there is no entry, tapegrad's derivative is zero. A derivative may
be zero where there is an entry, for these values, or since more isn't known of a call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from tapegrad.core.locks import remembered
from tapegrad.ir.tape import Aval, Call, Literal, Operand, Tape, Var
from tapegrad.primitives.base import tape_of_rule
from tapegrad.primitives.kinds import Composite, Repeated, expanded_tape
from tapegrad.sparsity import rounds as loops
from tapegrad.sparsity.relations import (
    Among,
    Fold,
    Map,
    Relations,
    Rounds,
    is_active,
    lumped,
    relations,
)
from tapegrad.sparsity.rows import MAX_ENTRIES, apart, numbered, union


class Value(NamedTuple):
    """The columns of a value's elements. If `each`, there is a set for each element and round of a
    loop, round by round."""

    rows: Any
    each: bool


def pattern(
    tape: Tape,
    wrt: Sequence[int],
    outputs: Sequence[int] | None = None,
    values: Mapping[int, Any] | None = None,
) -> Any:
    """The structure of the Jacobian of a tape: a Boolean `scipy.sparse.csr_array`.

    Its rows are the elements of the outputs numbered `outputs` (all, if None), flattened and one
    after the other. Its columns are those of the inputs numbered `wrt`. A missing entry is zero for
    all values of floating-point inputs, and for the `values` of inputs of integers or Booleans, by
    their numbers, which determine indices. Integer inputs without values may be anything.
    """
    sizes = [tape.inputs[k].aval.size for k in wrt]
    walk = Walk(sum(sizes))
    starts = dict(zip(wrt, np.cumsum([0, *sizes])[:-1].tolist(), strict=True))
    given: list[Value | None] = []
    known: list[Any] = []
    for k, x in enumerate(tape.inputs):
        active = k in starts and is_active(x.aval)
        rows = numbered(starts[k], x.aval.size, walk.columns) if active else None
        given.append(None if rows is None else Value(rows, False))
        value = None if values is None else values.get(k)
        known.append(None if value is None or is_active(x.aval) else np.asarray(value, x.dtype))
    if outputs is not None:
        tape = replace(tape, outputs=tuple([tape.outputs[k] for k in outputs]), output_names=())
    found, _ = walk.tape(tape, given, known)
    parts = []
    for value, out in zip(found, tape.outputs, strict=True):
        size = out.aval.size
        none = sparse.csr_array((size, walk.columns), dtype=bool)
        parts.append(none if value is None else value.rows.matrix())
    if len(parts) == 1:
        return parts[0]
    empty = sparse.csr_array((0, walk.columns), dtype=bool)
    return sparse.csr_array(sparse.vstack(parts, format="csr", dtype=bool)) if parts else empty


class Walk:
    """A walk through tapes, in `rounds` rounds of loops at once."""

    def __init__(self, columns: int, rounds: int = 1) -> None:
        self.columns = columns
        self.rounds = rounds

    def tape(
        self, tape: Tape, given: Sequence[Value | None], known: Sequence[Any]
    ) -> tuple[list[Value | None], list[Any]]:
        """The columns of a tape's outputs and their known values, given those of its inputs."""
        env: dict[Var, Any] = {}
        sure: dict[Var, Any] = {}
        for x, value, number in zip(tape.inputs, given, known, strict=True):
            if value is not None:
                env[x] = value
            if number is not None:
                sure[x] = number
        for call in needed(tape):
            self.call(call, env, sure)
        values = [env.get(x) if isinstance(x, Var) else None for x in tape.outputs]
        return values, [_known(x, sure) for x in tape.outputs]

    def call(self, call: Call, env: dict[Var, Any], sure: dict[Var, Any]) -> None:
        """Note the columns of a call's results, and the values of known integers."""
        known = [_known(x, sure) for x in call.operands]
        given: list[Any] = [env.get(x) if isinstance(x, Var) else None for x in call.operands]
        p = call.primitive
        values: Sequence[Any]
        if not p.repeats and any(isinstance(x, loops.Log) for x in given):
            env[call.out] = loops.logged(self, call, given, known)
            return
        if p.repeats or (p.tapes and p.inlined):
            values, numbers = self.inside(call, given, known)
            sure.update((x, n) for x, n in zip(call.outs, numbers, strict=True) if n is not None)
        else:
            self.compute(call, known, sure)
            active = any(value is not None for value in given) and not p.flat
            values = self.results(call, given, known) if active else [None] * len(call.outs)
        for x, value in zip(call.outs, values, strict=True):
            if isinstance(value, loops.Log) or (
                value is not None and is_active(x.aval) and not value.rows.empty
            ):
                env[x] = value

    def compute(self, call: Call, known: Sequence[Any], sure: dict[Var, Any]) -> None:
        """Note the values of integer results, if all operands are known."""
        if call.primitive.foreign or any(x is None for x in known):
            return
        moving = [x for x in known if isinstance(x, (Rounds, Among))]
        if not moving:
            found = call.primitive.evaluate(*known)
        elif call.primitive.pointwise and all(x.shape == () for x in call.operands):
            kind = type(moving[0])
            if any(type(x) is not kind for x in moving) or (kind is Among and len(moving) > 1):
                return
            plain = [x.values if isinstance(x, kind) else x for x in known]
            found = kind(call.primitive.evaluate(*plain))
        else:
            return
        results = found if isinstance(found, tuple) else (found,)
        sure.update(zip(call.outs, results, strict=True))

    def inside(
        self, call: Call, given: Sequence[Value | None], known: Sequence[Any]
    ) -> tuple[Sequence[Value | None], Sequence[Any]]:
        """The results of a call with a sub-tape."""
        p: Any = call.primitive
        if isinstance(p, Repeated):
            return loops.loop(self, call, given, known)
        found, numbers = self.tape(p.tape, given, known)
        if p.ruled and any(value is not None for value in given):
            return self.lump(call, given), numbers  # its own rule may depend on anything
        return found, numbers

    def results(
        self, call: Call, given: Sequence[Value | None], known: Sequence[Any]
    ) -> Sequence[Value | None]:
        p = call.primitive
        if isinstance(p, Composite) and not p.ties.leans:
            return self.composite(call, given, known)
        how = relations(call, known, self.rounds) if len(call.outs) == 1 else None
        return self.lump(call, given) if how is None else [self.apply(how, call, given)]

    def lump(self, call: Call, given: Sequence[Value | None]) -> list[Value | None]:
        """Columns by which each element of each result depends on all elements of the operands."""
        return [self.apply(lumped(call, k), call, given) for k in range(len(call.outs))]

    def composite(
        self, call: Call, given: Sequence[Value | None], known: Sequence[Any]
    ) -> Sequence[Value | None]:
        """The results of a composite, from the calls that replace it. For operands that only its
        derivative reads, also from its forward rule."""
        p: Any = call.primitive
        avals = tuple([x.aval for x in call.operands])
        whole = expanded_tape(p, avals)
        read = {x for inner in whole.calls for x in inner.operands} | set(whole.outputs)
        found, _ = self.tape(whole, given, known)
        unread = [k for k, x in enumerate(whole.inputs) if given[k] is not None and x not in read]
        if not unread:
            return found
        rule = _forward_rule(p, avals, tuple(unread))
        if rule is None:
            return self.lump(call, given)
        results = [None] * (len(rule.inputs) - len(unread))
        others, _ = self.tape(
            rule, [*[given[k] for k in unread], *results], [None] * len(rule.inputs)
        )
        return [self.union(pair) for pair in zip(found, others, strict=True)]

    # ---- putting together

    def wider(self, rounds: int) -> Walk:
        """A walk through this many rounds."""
        return Walk(self.columns, rounds)

    @staticmethod
    def value(rows: Any, each: bool) -> Value:
        return Value(rows, each)

    def apply(self, how: Relations, call: Call, given: Sequence[Value | None]) -> Value | None:
        """The columns of a result, given those of the operands."""
        parts = []
        for term in how.terms:
            value = given[term.operand]
            if value is not None:
                size = call.operands[term.operand].aval.size
                parts.append(self.term(term, value, size))
        return self.union(parts, how.disjoint)

    def term(self, term: Map | Fold, value: Value, size: int) -> Value:
        """The columns that a result gets from one operand, which has `size` elements."""
        if isinstance(term, Map):
            if term.source is None:
                return value
            each = value.each or term.source.ndim == 2
            return Value(value.rows.take(self.numbered(term.source, value, size, each)), each)
        if (
            term.otherwise is not None
            and value.rows.cost(term.sources) * self.rounds > MAX_ENTRIES / 10
        ):
            return self.term(term.otherwise, value, size)
        each = value.each or term.targets.ndim == 2 or term.sources.ndim == 2
        sources = self.numbered(term.sources, value, size, each)
        targets, count = term.targets, term.count
        if each:
            targets = self.shifted(targets, count).ravel()
            count *= self.rounds
        rows = value.rows.gathered(targets, sources, count)
        if term.spread is None:
            return Value(rows, each)
        spread = self.shifted(term.spread, term.count).ravel() if each else term.spread
        return Value(rows.take(spread), each)

    def numbered(self, source: Any, value: Value, size: int, each: bool) -> Any:
        """The numbers of elements in a value's rows."""
        if value.each:
            return self.shifted(source, size).ravel()
        return np.broadcast_to(source, (self.rounds, source.shape[-1])).ravel() if each else source

    def shifted(self, source: Any, size: int) -> Any:
        """The numbers of elements for all rounds, where each round has its own elements."""
        first = size * np.arange(self.rounds)[:, None]
        return np.where(source < 0, -1, source + first)

    def union(self, parts: Sequence[Value | None], disjoint: bool = False) -> Value | None:
        """The union of the values' columns."""
        found = [part for part in parts if part is not None]
        if not found:
            return None
        each = any(part.each for part in found)
        rows = [self.everywhere(part) if each else part.rows for part in found]
        return Value(apart(rows) if disjoint else union(rows), each)

    def everywhere(self, value: Value) -> Any:
        """A value's rows for each round, even if they are equal."""
        if value.each:
            return value.rows
        return value.rows.repeated(self.rounds)


@remembered
def needed(tape: Tape) -> Sequence[Call]:
    """The calls on which the outputs depend."""
    wanted: set[Operand] = set(tape.outputs)
    found = []
    for call in reversed(tape.calls):
        if not wanted.isdisjoint(call.outs):
            wanted.update(call.operands)
            found.append(call)
    found.reverse()
    return found


def _known(x: Operand, sure: Mapping[Var, Any]) -> Any:
    return x.value if isinstance(x, Literal) else sure.get(x)


def _forward_rule(primitive: Any, avals: tuple[Aval, ...], moved: tuple[int, ...]) -> Tape | None:
    """The tape of the forward rule, for tangents of the operands `moved`. None if there is no rule,
    or it doesn't read all of these tangents."""
    tape = tape_of_rule(primitive, avals, moved)
    if tape is None:
        return None
    results = tape.inputs[len(moved) + len(avals) :]
    if any(x.aval.shape != out.aval.shape for x, out in zip(tape.outputs, results, strict=True)):
        return None
    read = {x for call in tape.calls for x in call.operands} | set(tape.outputs)
    return tape if read.issuperset(tape.inputs[: len(moved)]) else None
