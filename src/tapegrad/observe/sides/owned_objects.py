"""Objects that rounds and sides of branches may change: their own, or those whose changes are found
when they end.

    for x in xs:                            a round: the state of an object in a variable, before
        state.n += 1                        and after the round, tells what is loop-carried
        if x > 0:                           a side: a value that it replaces is restored behind it,
            state.m = x                     and becomes the result of a conditional

A part of a container or object that the run has created is treated as a variable, if the path to it
is compared before and after the round.
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
from tapegrad.observe.program.frames import COUNTED, MISSING, has_mapping, local, operand_at, own
from tapegrad.observe.program.liveness import flow_of, reads_and_writes


class Replaced(NamedTuple):
    """A part of a container, with its value before it was replaced."""

    holder: Any
    key: Any
    value: Any

    @property
    def place(self) -> tuple[int, Any]:
        return id(self.holder), self.key


class Owned:
    """The objects that the rounds and sides under way may change."""

    def __init__(self) -> None:
        # For each round, ids of the holders of its loop-carried values, and of objects that it
        # created.
        self.carried: dict[Any, set[int]] = {}
        self.sides: dict[Any, set[int]] = {}  # for each side, ids of the objects that it created
        self.replaced: list[Replaced] = []  # and the parts that the sides have replaced

    def replaces(self, o: Any, x: Any, key: Any) -> bool:
        """Record that a part of a container or object is about to be replaced. Returns whether the
        join of the branch will know the change."""
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
        """Whether the run has created this container or object, and all rounds under way carry its
        parts, or have created it."""
        known = self.carried.values()
        return bool(known) and has_made(o, x) and all(id(x) in each for each in known)

    def begins(self, side: Any) -> int:
        """Record that a side of a branch begins. Returns the number of replacements so far."""
        self.sides[side] = set()
        return len(self.replaced)

    def ended(self, side: Any) -> None:
        self.sides.pop(side, None)
        if not self.sides:
            self.replaced.clear()

    def put_back(self, count: int) -> dict[tuple[int, Any], Replaced]:
        """Undo the replacements after the first `count`. Returns the parts with the values that
        they had until now."""
        left: dict[tuple[int, Any], Replaced] = {}
        for each in reversed(self.replaced[count:]):
            left.setdefault(each.place, each._replace(value=part(each.holder, each.key)))
            put(each.holder, each.key, each.value)
        del self.replaced[count:]
        return left

    def note_new(self, a: Activation, x: Any) -> None:
        """Record that an attribute is about to be set, in case that the object is under
        construction."""
        if _is_being_made(a, x):
            for known in (*self.carried.values(), *self.sides.values()):
                known.add(id(x))


def has_made(o: Any, x: Any) -> bool:
    """Whether a run has created an object, and no other code holds it."""
    reads = o.reads
    return reads.place(x) is None and id(x) not in reads.joined and id(x) not in reads.open


def _is_being_made(a: Activation, x: Any) -> bool:
    """Whether this frame, or a caller of it, is the `__init__` of this object, called by Python
    when its class was called."""
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
    """Whether a function's first variable is never reassigned."""
    written = set[int]().union(*[reads_and_writes(i)[1] for i in instructions_of(code)])
    return code.co_argcount > 0 and 0 not in written


def _called(a: Activation) -> Any:
    """The callable of a frame's running call; `MISSING` if the instruction is no call."""
    code, at = a.frame.f_code.co_code, a.frame.f_lasti
    name, count = dis.opname[code[at]], code[at + 1]
    if name == "CALL_FUNCTION_EX":
        return a.top(1 + has_mapping(count))
    if name not in ("CALL", "CALL_KW"):
        return MISSING
    count += name == "CALL_KW"
    first, second = a.top(count + 1), a.top(count)
    return second if first is MISSING else first


def is_own(a: Activation, rounds: list[tuple[Any, int]], depth: int, names: int) -> bool:
    """Whether a round has created the container at this depth on the stack for itself: one variable
    of the frame holds it, and otherwise only the stack and `names` names. Each round sets the
    variable before it reads it, or calls the function that has the variable."""
    code, x = a.frame.f_code, a.top(depth)
    holders = [k for k in range(code.co_nlocals) if local(a.address, k) is x]
    own(operand_at(a.stack, depth))
    if len(holders) != 1 or code.co_flags & inspect.CO_GENERATOR:
        return False
    if sys.getrefcount(x) > _OWN_REFERENCES + names or not (
        type(x) in NUMBERED or type(x) in KEYED
    ):
        return False
    live = flow_of(code).live
    return bool(rounds) and not any(f is a.frame and holders[0] in live(at) for f, at in rounds)


# References by the variable, the stack, the local name, and `getrefcount`'s argument.
_OWN_REFERENCES = 3 + COUNTED
