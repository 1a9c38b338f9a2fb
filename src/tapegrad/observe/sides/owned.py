"""What rounds and sides of branches may change: what is theirs alone, or is known when they end.

    for x in xs:                            a round: what `state`, which a variable holds, is like
        state.n += 1                        before and after it tells what it carries on
        if x > 0:                           a side: what it replaces is put back behind it,
            state.m = x                     and becomes the result of a conditional

A part of a container or object that the run has made is a variable like any other, if what leads to
it is looked at before and after the round.
"""

from __future__ import annotations

import dis
import inspect
import sys
from functools import lru_cache
from types import CodeType
from typing import Any, NamedTuple

from tapegrad.core.listing import instructions_of
from tapegrad.observe.activations.activation import Activation
from tapegrad.observe.objects.containers import KEYED, NUMBERED, is_open, part, put
from tapegrad.observe.program.frames import MISSING, local
from tapegrad.observe.program.liveness import flow_of, reads_and_writes


class Replaced(NamedTuple):
    """What stood in the place of a part of a container before it was another value."""

    holder: Any
    key: Any
    value: Any

    @property
    def place(self) -> tuple[int, Any]:
        return id(self.holder), self.key


class Owned:
    """What the rounds that are being made, and the sides that are under way, may change."""

    def __init__(self) -> None:
        # Of each round, by id: what holds what it carries, and the objects that it has made
        self.carried: dict[Any, set[int]] = {}
        self.sides: dict[Any, set[int]] = {}  # of each side the objects that it has made, and
        self.replaced: list[Replaced] = []  # what they have put another value in the place of

    def replaces(self, o: Any, x: Any, key: Any) -> bool:
        """Another value is about to be put in the place of a part of a container or object.
        Whether that is known where the sides of a branch meet."""
        if not self.sides or not has_made(o, x):
            return False
        if id(x) in [*self.sides.values()][-1]:
            return True
        if type(x) in NUMBERED and key < 0:
            key += len(x)
        value = part(x, key)
        if value is not MISSING:
            self.replaced.append(Replaced(x, key, value))
        return value is not MISSING

    def is_carried(self, o: Any, x: Any) -> bool:
        """Whether the run has made this container or object, and all rounds that are being made
        carry what it holds, or have made it."""
        known = self.carried.values()
        return bool(known) and has_made(o, x) and all(id(x) in each for each in known)

    def begins(self, side: Any) -> int:
        """A side of a branch begins: how much was replaced until then."""
        self.sides[side] = set()
        return len(self.replaced)

    def ended(self, side: Any) -> None:
        self.sides.pop(side, None)
        if not self.sides:
            self.replaced.clear()

    def put_back(self, count: int) -> dict[tuple[int, Any], Replaced]:
        """Let those parts be what they were that were replaced since there were so many: what was
        in their places, by these."""
        left: dict[tuple[int, Any], Replaced] = {}
        for each in reversed(self.replaced[count:]):
            left.setdefault(each.place, each._replace(value=part(each.holder, each.key)))
            put(each.holder, each.key, each.value)
        del self.replaced[count:]
        return left

    def note_new(self, a: Activation, x: Any) -> None:
        """An object is about to have an attribute set: whether it is one that is being made."""
        if _is_being_made(a, x):
            for known in (*self.carried.values(), *self.sides.values()):
                known.add(id(x))


def has_made(o: Any, x: Any) -> bool:
    """Whether a run has made an object, so that nobody else has it."""
    reads = o.reads
    return reads.place(x) is None and id(x) not in reads.joined and id(x) not in reads.open


def _is_being_made(a: Activation, x: Any) -> bool:
    """Whether this frame, or one that has called it, is the `__init__` that Python calls for an
    object which a call of its class is making."""
    kind: Any = type(x)
    new: Any = object.__new__
    if type(kind) is not type or kind.__new__ is not new or not is_open(kind):
        return False
    here: Any = a
    while isinstance(here, Activation) and here.frame.f_code.co_name == "__init__":
        if not _keeps_first(here.frame.f_code) or local(here.address, 0) is not x:
            return False
        here = getattr(here.frame.f_back, "f_trace", None)
        here = getattr(here, "__self__", None)
        if isinstance(here, Activation) and _called(here) is kind:
            return True
    return False


@lru_cache(maxsize=1024)
def _keeps_first(code: CodeType) -> bool:
    """Whether a function's first variable is its first argument all along."""
    written = set[int]().union(*[reads_and_writes(i)[1] for i in instructions_of(code)])
    return code.co_argcount > 0 and 0 not in written


def _called(a: Activation) -> Any:
    """What the running instruction of a frame calls; `MISSING` if it is no call."""
    code, at = a.frame.f_code.co_code, a.frame.f_lasti
    name, count = dis.opname[code[at]], code[at + 1]
    if name == "CALL_FUNCTION_EX":
        return a.top(1 + (count & 1))
    if name not in ("CALL", "CALL_KW"):
        return MISSING
    count += name == "CALL_KW"
    first, second = a.top(count + 1), a.top(count)
    return second if first is MISSING else first


def is_own(a: Activation, rounds: list[tuple[Any, int]], depth: int, names: int) -> bool:
    """Whether a round has made the container for itself that is so deep on the stack: one variable
    of the frame holds it, and nothing else but so many names. A round sets that before it reads it,
    or calls what the variable is in."""
    code, x = a.frame.f_code, a.top(depth)
    holders = [k for k in range(code.co_nlocals) if local(a.address, k) is x]
    if len(holders) != 1 or code.co_flags & inspect.CO_GENERATOR:
        return False
    if sys.getrefcount(x) > _HELD + names or not (type(x) in NUMBERED or type(x) in KEYED):
        return False
    live = flow_of(code).live
    return bool(rounds) and not any(f is a.frame and holders[0] in live(at) for f, at in rounds)


_HELD = 4  # references: the variable, the stack, the name that it has here, the one that counts
