"""Loops: a tape that runs repeatedly, each round on the results of the one before.

    carried = start
    for step in range(rounds):
        carried = body(step, *carried, *invariants)

A round reads its entry of an array as a window of an invariant or of a loop-carried array, and
writes its entry as a window too (see `primitives.windows`). Windows move with the step. So a loop
needs no sequences or stacked results of its own, and its derivative is a loop again. That runs
backwards and carries two kinds of cotangents: those of the carried values, and those of the
invariants, which add up (`differentiate.loops`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from tapegrad.ir.tape import METHODS, Aval, Operand, Tape, Var
from tapegrad.ir.updates import kept_in_place, sharing
from tapegrad.primitives.base import parametric
from tapegrad.primitives.kinds import Repeated

# For loops that are found in a tape, not written by the user:
MIN_ROUNDS = 4  # the least number of rounds
MIN_CALLS = 64  # the least number of calls in all rounds: LLVM is better at fewer
# The same, if NumPy makes some of them: a loop makes all of its calls with NumPy then.
MIN_NUMPY_CALLS = 256


@parametric
class Loop(Repeated):
    """A loop. Its operands are the number of rounds, which is at most `most`, the initial values of
    the `carried` variables, and invariants. Its results are the carried values after the last
    round. If `backwards`, the step counts down to 0.

    The body's inputs are the step, the carried values and the invariants. Its outputs are the next
    carried values, of the same types. Its guards hold in each round.

    With `until` the loop has a condition. The second operand says whether there is a first round,
    the body's last output whether there is another one. Two more results are the number of rounds
    made, and whether the condition still holds after at most `most` rounds.

    With `later` the steps go from the second operand up to the number of rounds. If `recomputed`,
    the loop keeps nothing for its derivative but the values named in `keep`; the derivative runs it
    again.

    With `instead` it is a side of a conditional: it makes one round or none. If it makes one, it
    doesn't read its initial values, which haven't been computed then. So it passes the cotangents
    of its results on to them unchanged.

    It may write over the carried operands numbered in `own`. Only plans set this.
    """

    body: Tape
    carried: int
    most: int
    backwards: bool = False
    until: bool = False
    recomputed: bool = False
    later: bool = False
    instead: bool = False
    keep: tuple[str, ...] = ()
    own: tuple[int, ...] = ()

    name = "loop"

    @property
    def results(self) -> int:  # type: ignore[override]
        return self.carried + 2 * self.until

    def aval(self, *xs: Aval) -> tuple[Aval, ...]:
        step, *inputs = self.body.inputs
        rounds, going, first = xs[0], self.going(xs), self.first(xs)
        given = self.given(xs)
        for number in (rounds, step.aval, *([first] if self.later else [])):
            if number.shape != () or number.dtype.kind != "i":
                raise ValueError(f"loop: {number} isn't a number of rounds")
        if step.dtype != np.int64 or (self.until and self.later):
            raise ValueError("loop: it has no such steps")
        if [_type(x) for x in given] != [_type(v.aval) for v in inputs]:
            raise ValueError(f"loop: the operands {given} don't fit the body's inputs {inputs}")
        start = [_type(x) for x in (*given[: self.carried], *([going] if self.until else []))]
        if [_type(x.aval) for x in self.body.outputs] != start:
            raise ValueError("loop: a round doesn't leave what it takes")
        found = tuple([x.aval for x in self.body.outputs[: self.carried]])
        return (*found, _COUNT, _FLAG) if self.until else found

    def evaluate(self, *xs: Any) -> Any:
        return METHODS["repeat"](self, xs)

    def played(self, run: Callable[..., list[Any]], *xs: Any, own: Collection[int] = ()) -> Any:
        """The results. Carried operands numbered in `own` may be written over."""
        given = self.given(xs)
        rounds = min(int(xs[0]), self.most)
        first = int(self.first(xs)) if self.later else 0
        carried, invariants = list(given[: self.carried]), given[self.carried :]
        kept = kept_in_place(self.body, 1, self.carried)
        for k in kept:
            if k not in own:
                carried[k] = np.array(carried[k])
        written = tuple([1 + k for k in kept])
        if self.until:
            made, more = 0, self.going(xs)
            while more and made < rounds:
                *carried, more = run(self.body, (np.int64(made), *carried, *invariants), written)
                made += 1
            return (*carried, np.int64(made), np.bool_(more))
        steps = range(rounds - 1, first - 1, -1) if self.backwards else range(first, rounds)
        for step in steps:
            carried = run(self.body, (np.int64(step), *carried, *invariants), written)
        return carried[0] if self.carried == 1 else tuple(carried)

    def showing(self, m: int) -> Sequence[int]:
        if self.instead:
            return range(self.results)
        m -= len(self.heads(range(m + self.carried + 3)))
        # Without a round the results are the initial values.
        return sharing(self.body, self.carried)[m >= self.carried] if m >= 0 else ()

    def keeps_zeros(self, xs: Sequence[Operand], kept: Sequence[bool]) -> bool:
        if isinstance(xs[0], Var):  # it may make no round, as a side that isn't taken
            return True
        known = zip(self.body.inputs[1:], self.given(kept), strict=True)
        masked: set[Operand] = {x for x, flag in known if flag}
        while True:
            for call in self.body.calls:
                flags = [x in masked for x in call.operands]
                if call.primitive.keeps_zeros(call.operands, flags):
                    masked.update(call.outs)
            pairs = zip(self.body.inputs[1:], self.body.outputs[: self.carried], strict=False)
            reached = {x for x, after in pairs if after in masked}
            if reached <= masked:
                return bool(reached)
            masked |= reached

    def parameters(self) -> tuple[tuple[str, Any], ...]:
        shown = [("body", self.body), ("carried", self.carried), ("most", self.most)]
        flags = ("backwards", "until", "recomputed", "later", "instead")
        shown += [(name, found) for name in ("keep", "own") if (found := getattr(self, name))]
        shown += [(name, True) for name in flags if getattr(self, name)]
        return tuple(shown)


_COUNT, _FLAG = Aval((), np.dtype(np.int64)), Aval((), np.dtype(bool))


def _type(aval: Aval) -> tuple[Any, ...]:
    return aval.shape, aval.dtype
