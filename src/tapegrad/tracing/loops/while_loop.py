"""`while_loop`: a loop that runs while a condition holds.

    while cond(h):             loop(most, %going, %h, body, until=True)
        h = f(h)        -->        ...
                                   out %h, %going

The tape has a maximal number of rounds, so that the derivative knows how much memory to reserve. If
the user doesn't give it, it is estimated from the first call, and guarded: a call that needs more
rounds is retraced with a larger one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tapegrad.core.request import describe, leaf_names
from tapegrad.core.trees import flatten, unflatten
from tapegrad.errors import ArgumentError, TraceError, UnsupportedError
from tapegrad.observe.observer import observed, unobserved
from tapegrad.observe.program.source import user_source
from tapegrad.tracing.loops.rounds import (
    FIRST,
    Round,
    Rounds,
    as_weak,
    check_leaves,
    on_tape,
    own_copies,
    truth_of,
    type_of,
    typed,
)
from tapegrad.tracing.loops.trip_count import UNBOUNDED, NoValues, recorded_until
from tapegrad.tracing.recording.trace import current_trace, innermost
from tapegrad.tracing.tracers.tracer import Tracer, stand_in


@unobserved
def while_loop(
    cond: Callable[[Any], Any], body: Callable[[Any], Any], init: Any, max_rounds: Any
) -> Any:
    """The carried values when the condition no longer holds."""
    leaves, structure = flatten(init)
    label = f"while_loop of {describe(body)}"
    check_leaves(label, leaves, init, "init")
    whole = isinstance(max_rounds, (int, np.integer)) and not isinstance(max_rounds, bool)
    if max_rounds is not None and not (whole and max_rounds > 0):
        raise ArgumentError(
            f"{label}: max_rounds is a number of rounds, from 1 up, or None, not {max_rounds!r}"
        )
    most = UNBOUNDED if max_rounds is None else int(max_rounds)
    rounds = While(body, label, structure, user_source(), cond, most)
    if current_trace() is None and not on_tape(leaves):
        return rounds.plainly(leaves)
    return rounds.traced(leaves)


@dataclass(frozen=True)
class While(Rounds):
    """Rounds that run while a condition holds, at most `most` of them."""

    cond: Callable[[Any], Any]
    most: int

    @unobserved
    def run(
        self, leaves: Sequence[Any], entries: Sequence[Any]
    ) -> tuple[list[Any], list[Any], Any]:
        with observed():
            returned = self.f(unflatten(self.structure, leaves))
        new = self.carried(returned)
        return new, [self.goes_on(new)], None

    @unobserved
    def goes_on(self, leaves: Sequence[Any]) -> Any:
        """Whether there is another round: True or False, or a traced boolean."""
        given = [x._detached() if isinstance(x, Tracer) else x for x in own_copies(leaves)]
        with observed():
            found = self.cond(unflatten(self.structure, given))
        return truth_of(
            found,
            lambda words: ArgumentError(
                f"{self.label}: the condition is {words}{self.at()}, and one truth "
                "value says whether there is another round. Use np.all or np.any"
            ),
        )

    def words(self, leaves: Sequence[Any]) -> list[str]:
        names, _ = leaf_names(self.f, [unflatten(self.structure, leaves)], {})
        return ["step" if "step" not in names else "step_", *names]

    def plainly(self, leaves: Sequence[Any]) -> Any:
        """Python's loop."""
        made, going = 0, self.goes_on(leaves)
        while going:
            if made == self.most:
                raise self._too_long()
            new, (going,), _ = self.run(own_copies(leaves), ())
            if made >= FIRST:
                self.check_types([type_of(x) for x in leaves], [type_of(x) for x in new], made)
            leaves, made = new, made + 1
        return unflatten(self.structure, own_copies(leaves))

    def traced(self, leaves: Sequence[Any]) -> Any:
        """Record the rounds as a loop, behind those in which types change."""
        leaves = list(leaves)
        going = self.goes_on(leaves)
        done = 0
        while _known(going) is not False:
            if done == self.most:
                raise self._too_long()
            round_ = self.driven(self.round(leaves, done))
            if not on_tape([going, *leaves, *round_.traced.captured]):
                return self.plainly(leaves)
            settled = self.driven(self.settled(leaves, round_, done))
            if settled is not None:
                return unflatten(self.structure, self._loop(*settled, going, done))
            if done >= FIRST:
                types = [type_of(x) for x in leaves], [leaf.type for leaf in round_.leaves]
                self.check_types(*types, done)
            bool(going)  # guarded: there is this round
            leaves, (going,) = self.in_front(leaves, round_, done)
            done += 1
        bool(going)
        new = [x._detached() if isinstance(x, Tracer) else x for x in own_copies(leaves)]
        return unflatten(self.structure, new)

    def _loop(self, leaves: list[Any], round_: Round, going: Any, done: int) -> list[Any]:
        """Record the remaining rounds as a loop."""
        _, *operands = self.operands(leaves, round_, done)
        going = going if isinstance(going, Tracer) else np.bool_(going)
        trace = self.trace([going, *operands])
        carried = [leaf for leaf in round_.leaves if leaf.operand is not None]
        outputs = (*carried, typed(round_.ys[0]))
        body = replace(round_.tape, outputs=tuple([leaf.operand for leaf in outputs]))
        most = None if self.most == UNBOUNDED else self.most - done
        try:
            *found, left = self.explained(
                lambda: recorded_until(trace, body, [going, *operands], most)
            )
        except NoValues:
            raise UnsupportedError(
                f"{self.label}: no values are known here, nor how many rounds there are"
                f"{self.at()}. Pass max_rounds"
            ) from None
        if left._value:
            raise self._too_long()
        what = "whether there are more rounds than there is room for"
        trace.guard(left, False, what, self.src, fixed=True)
        avals = [leaf.aval for leaf in carried]
        ends = iter(
            [
                stand_in(trace, x._operand, x._value, aval.weak)
                for x, aval in zip(found, avals, strict=False)
            ]
        )
        return [
            leaf.value if leaf.aval is None else as_weak(next(ends), leaf) for leaf in round_.leaves
        ]

    def _too_long(self) -> TraceError:
        return TraceError(
            f"{self.label}: the condition still holds after {self.most} rounds{self.at()}, which "
            "is max_rounds. Pass a larger one, or count the rounds in what is carried and let the "
            "condition look at that"
        )


def _known(going: Any) -> Any:
    """Whether there is another round. None if that is unknown, or irrelevant since the function
    isn't called with these values."""
    if not isinstance(going, Tracer):
        return bool(going)
    if innermost([going]).idle:
        return None
    value = going._read()[1]
    return None if value is None else bool(value)
