"""Where the two ways from a test meet again, and what runs one of them by itself.

    if x[t] > h:          the test
        h = 0.9 * h       one side
    else:
        h = 0.5 * h       the other one
    total += h            the join

The join is what every way from the test to the end of the function comes by first: the immediate
post-dominator of the test. A side is run by itself by a code that is the function's, but for a jump
at its beginning that leads to the side, and one at the join that leads out. All other instructions
stay where they are, so lines, names and places are the same. All variables are parameters.
"""

from __future__ import annotations

import dis
import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from types import CodeType, FrameType
from typing import Any

from tapegrad.core.locks import cached_property
from tapegrad.observe.program.exits import Exit
from tapegrad.observe.program.liveness import Flow, flow_of, reads_and_writes
from tapegrad.observe.program.watching import PREFIX_TOLD

_RESUMED = 0x20 | 0x80 | 0x100 | 0x200  # generators, coroutines: they go on in other frames
_PACKED = 0x04 | 0x08  # *args, **kwargs
_RETURNS = ("RETURN_VALUE", "RETURN_CONST")
_NO_PLACE = 0x80 | 15 << 3  # in a code's table of lines


RETURNED = -1
MOST_EXITS = 8  # of one loop, over time: then its rounds are each made


@dataclass(frozen=True, eq=False)
class Join:
    """Where the sides of a test meet, and what is on the stack there that neither has found. If
    both end with the function, they meet where it was called, `RETURNED`."""

    jump: int
    offset: int
    base: int  # how many variables, and entries of the stack, neither side looks below
    top: int  # how many there are at the join
    region: frozenset[int]  # the instructions of both sides
    codes: dict[bool, CodeType]  # what runs a side by itself, by the outcome that leads to it
    # Where it appends to the list of a comprehension, and to which entry of the stack: that isn't
    # there where the side runs by itself, so the value is just dropped
    fills: dict[int, int]


class Exits:
    """Of loops that several tests leave, the one by which they end; rounds take for granted that
    the others don't leave. It is another one once that has failed, but not for ever."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._chosen: dict[frozenset[int], list[int]] = {}  # all that it was, by the loop

    def __contains__(self, jump: int) -> bool:
        exit_ = self._flow.exit_of(jump)
        chosen = [] if exit_ is None else self._chosen.get(exit_.body, [])
        return exit_ is not None and chosen[-1:] == [jump]

    def add(self, jump: int) -> None:
        exit_ = self._flow.exit_of(jump)
        if exit_ is not None:
            self._chosen.setdefault(exit_.body, []).append(jump)

    def discard(self, jump: int) -> None:
        """It stays: another choice takes its place."""

    def may_be(self, jump: int, body: frozenset[int]) -> bool:
        """Whether the loop of these instructions may end by this test from now on."""
        exit_ = self._flow.exit_of(jump)
        is_another = exit_ is not None and exit_.body == body and jump not in self
        return is_another and len(self._chosen.get(body, [])) < MOST_EXITS

    def is_other(self, exit_: Exit) -> bool:
        """Whether the loop that this leaves ends by another test."""
        chosen = self._chosen.get(exit_.body)
        return chosen is not None and chosen[-1] not in exit_.places


@dataclass(eq=False)
class Sides:
    """What is known of the tests of a code: what they have come to, and where their sides meet."""

    flow: Flow
    both: set[int] = field(default_factory=set)  # those that have gone both ways in one run
    apart: set[int] = field(default_factory=set)  # those whose sides aren't made one
    unmixed: set[int] = field(default_factory=set)  # those that leave no `tracing.tracers.either`
    unrolled: set[int] = field(default_factory=set)  # `for` statements whose rounds are each made
    # The same in a loop that makes so many rounds or fewer, and how many it made the last time
    short: set[tuple[int, int, int]] = field(default_factory=set)
    lengths: dict[int, int] = field(default_factory=dict)
    # In which trace of a function of this name they were met, how long first, with its inputs'
    # shapes; and those that go along an axis that varies
    met: dict[tuple[int, str], tuple[int, int, Sequence[tuple[int, ...]]]] = field(
        default_factory=dict
    )
    varying: set[tuple[int, str]] = field(default_factory=set)
    counted: set[int] = field(
        default_factory=set
    )  # and those whose lists are as long as a guard says
    listed: set[int] = field(default_factory=set)  # and whose lists are Python's while they grow
    turning: set[int] = field(default_factory=set)  # plain tests by which long loops are left
    streams: set[Any] = field(default_factory=set)  # how loops draw: `tracing.statements.drawing`
    exits: Exits = field(init=False)
    # What is known of the numbers in sides, by their tests and outcomes: `tracing.branches.merging`
    numbers: dict[tuple[int, bool], Any] = field(default_factory=dict)
    _joins: dict[Any, Join | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.exits = Exits(self.flow)

    def is_short(self, place: int) -> bool:
        """Whether each round of a `for` statement is made where it, or one around it, is as short
        as it is now."""
        return any(
            each == place and self.lengths[around] <= most for each, around, most in self.short
        )

    def varies(
        self, place: int, name: str, number: int, length: int, shapes: Sequence[tuple[int, ...]]
    ) -> bool:
        """Whether a `for` statement makes more rounds where an axis is by as much longer: so many
        in the trace of this number, of a function of this name and inputs of these shapes."""
        key = place, name
        before, first, others = self.met.get(key, (0, length, shapes))
        if before != number:
            self.met[key] = number, length, shapes
            pairs = zip(chain(*shapes), chain(*others), strict=False)
            if first != length and any(n - m == length - first for n, m in pairs):
                self.varying.add(key)
        return key in self.varying

    @cached_property
    def _meetings(self) -> _Meetings:
        return _Meetings(self.flow)

    def join(self, jump: int) -> Join | None:
        """Where the sides of a test meet; None where they can't be told apart."""
        if jump not in self._joins:
            self._joins[jump] = _join_of(self.flow, jump, self._meetings)
        return self._joins[jump]

    def last_join(self, place: int, jump: int) -> Join | None:
        """The same of a test that may leave a `for` statement, where there is no other entry."""
        if (key := (place, jump)) not in self._joins:
            flow = _AtEnd(self.flow, place)
            self._joins[key] = _join_of(self.flow, jump, _Meetings(flow), flow)
        return self._joins[key]


@lru_cache(maxsize=8192)  # one run that is made again has to find what it has noted here
def sides_of(code: CodeType) -> Sides:
    return Sides(flow_of(code))


def begins_loop(frame: FrameType) -> bool:
    """Whether a `for` is about to begin in a frame. From Python 3.13 on, a comprehension asks what
    it goes through for its iterator, and then that for its own."""
    return sides_of(frame.f_code).flow.loop_at(frame.f_lasti) is not None


class _AtEnd:
    """How control flows where a `for` statement has come to its end."""

    def __init__(self, flow: Flow, place: int) -> None:
        self.at, self._flow, self.place = flow.at, flow, place

    def after(self, offset: int) -> Sequence[int]:
        return [self.at[offset].argval] if offset == self.place else self._flow.after(offset)


EXHAUSTED = iter(())  # what such a statement goes through, for a side that is run by itself


def _join_of(flow: Flow, jump: int, meetings: _Meetings, last: _AtEnd | None = None) -> Join | None:
    code, ways = flow.code, last or flow
    if flow.heights is None or flow.sees_all or code.co_flags & _RESUMED:
        return None
    targets = {truth: flow.branch(jump, truth) for truth in (True, False)}
    starts = list(targets.values())
    offset = meetings.of(*starts)
    base = top = flow.height(jump) - 1 - (last is not None)
    if offset == RETURNED or not flow.after(offset):
        offset, region = RETURNED, _reached(ways, starts, RETURNED)
        if not all(flow.after(o) or flow.at[o].opname in _RETURNS for o in region):
            return None
    else:
        region, top = _reached(ways, starts, offset), flow.height(offset)
    if offset in flow.at and flow.at[offset].opname == "EXTENDED_ARG" and not PREFIX_TOLD:
        return None
    fills = flow.fills(region, base)
    if jump in region or top < base or not _stands_apart(flow, jump, region - fills.keys(), base):
        return None
    codes = {t: _code_of_side(flow, targets[t], offset, region, fills, last) for t in targets}
    if None in codes.values():
        return None
    return Join(jump, offset, base, top, region, codes, fills)  # type: ignore[arg-type]


class _Meetings:
    """What all ways from an instruction to the end come by next: the tree of immediate
    post-dominators (Cooper, Harvey and Kennedy, "A simple, fast dominance algorithm", 2001)."""

    def __init__(self, flow: Flow | _AtEnd) -> None:
        after = {o: flow.after(o) or [RETURNED] for o in flow.at}
        before: dict[int, list[int]] = {}
        for offset, others in after.items():
            for other in others:
                before.setdefault(other, []).append(offset)
        order = _from_the_end(before)
        self._number = {offset: k for k, offset in enumerate(order)}
        self._next = {RETURNED: RETURNED}
        changes = True
        while changes:
            changes = False
            for offset in order[1:]:
                found = functools.reduce(self.of, [x for x in after[offset] if x in self._next])
                if self._next.get(offset) != found:
                    self._next[offset] = found
                    changes = True

    def of(self, one: int, other: int) -> int:
        """Where the ways from two instructions meet; at one of them, if the other leads there. It
        is `RETURNED` where that is the end, or where one of them never comes to it."""
        number = self._number
        if one not in number or other not in number:
            return RETURNED
        while one != other:
            if number[one] < number[other]:
                one, other = other, one
            one = self._next[one]
        return one


def _from_the_end(before: dict[int, list[int]]) -> list[int]:
    """The instructions that lead to the end, each behind one that it leads to: the reverse of the
    order in which a search is done with them."""
    done: list[int] = []
    seen = {RETURNED}
    todo = [(RETURNED, iter(before.get(RETURNED, ())))]
    while todo:
        offset, others = todo[-1]
        other = next((x for x in others if x not in seen), None)
        if other is None:
            done.append(offset)
            todo.pop()
        else:
            seen.add(other)
            todo.append((other, iter(before.get(other, ()))))
    return done[::-1]


def _reached(flow: Flow | _AtEnd, starts: list[int], but: int) -> frozenset[int]:
    """The instructions that are reached from some, without one of them."""
    seen: set[int] = set()
    todo = [o for o in starts if o != but]
    while todo:
        offset = todo.pop()
        if offset not in seen:
            seen.add(offset)
            todo += [o for o in flow.after(offset) if o != but]
    return frozenset(seen)


def _stands_apart(flow: Flow, jump: int, region: frozenset[int], base: int) -> bool:
    """Whether sides have nothing to do with handlers of errors, and with what is on the stack
    around them, and leave the cells of variables that inner functions read."""
    code = flow.code
    own = own_names(code)
    for offset in region:
        i = flow.at[offset]
        if flow.handlers.get(offset) != flow.handlers.get(jump):
            return False
        if i.opname in ("DELETE_DEREF", "MAKE_CELL"):
            return False
        _, writes = reads_and_writes(i)
        if any(own[k] in code.co_cellvars for k in writes):
            return False
        if flow.height(offset) - operands_of(i) < base:
            return False
    return True


def own_names(code: CodeType) -> tuple[str, ...]:
    """The variables of a code, those that inner functions read last, unless they are arguments."""
    return *code.co_varnames, *[x for x in code.co_cellvars if x not in code.co_varnames]


_LEAVES_NONE = ("STORE_", "POP_", "DELETE_", "JUMP_", "RETURN_", "RAISE_", "LIST_APPEND")
_TAKES = dict.fromkeys(["LOAD_METHOD", "LOAD_ATTR", "FOR_ITER", "GET_LEN", "END_FOR"], 1)
_TAKES |= dict.fromkeys(["UNPACK_SEQUENCE", "UNPACK_EX", "STORE_FAST_LOAD_FAST"], 1)
_PASSING = ("PRECALL", "EXTENDED_ARG", "CACHE", "NOP", "RESUME", "KW_NAMES")


def operands_of(i: dis.Instruction) -> int:
    """How many entries of the stack an instruction looks at, at the most."""
    name, arg = i.opname, i.arg or 0
    if name in _PASSING:
        return 0
    if name in ("SWAP", "COPY"):
        return arg
    if name in ("LIST_APPEND", "LIST_EXTEND", "DICT_UPDATE", "DICT_MERGE"):
        return arg + 1
    if name in ("CALL", "CALL_KW"):
        return arg + 2 + (name == "CALL_KW")
    effect = dis.stack_effect(i.opcode, i.arg if i.opcode >= dis.HAVE_ARGUMENT else None)
    left = 0 if name.startswith(_LEAVES_NONE) else 1
    return max(left - effect, _TAKES.get(name, 0), 0)


# ---- codes


def _code_of_side(
    flow: Flow,
    target: int,
    join: int,
    region: frozenset[int],
    fills: Iterable[int],
    last: _AtEnd | None,
) -> CodeType | None:
    """A code that runs from one place to another, with what a statement goes through on its stack
    if that is at its end; None where there is no room for the jumps."""
    code, given = flow.code, [EXHAUSTED] if last is not None else []
    end, constants = len(code.co_code), code.co_consts or (None,)
    entry = next((o for o, i in flow.at.items() if i.opname == "RESUME"), None)
    if entry is None or len(constants) > 255:
        return None
    first = entry + 2 + 2 * len(given)
    if target == join:  # there is nothing in between
        jumps = {first: end}
    elif join == RETURNED:
        jumps = {first: target}
    else:
        jumps = {first: target, join: end}
    # Python reads all of a code that it watches, what isn't run too, and writes to where its jumps
    # lead: a prefix that had lost its instruction would be the next one's, which led out of it.
    text = bytearray(_op("NOP", 0) * (end // 2))
    text[: entry + 2] = code.co_code[: entry + 2]
    for at in range(0, entry, 2):
        if text[at] == dis.opmap["MAKE_CELL"]:  # it is passed the cells
            text[at : at + 2] = _op("NOP", 0)
    used = set[int]()
    for at in region:
        after = flow.next.get(at, at + 2)
        used.update(range(at, after, 2))
        if after in region or flow.at[at].opname != "EXTENDED_ARG":
            text[at:after] = code.co_code[at:after]

    if last is not None:
        text[entry + 2 : first] = _op("LOAD_CONST", len(constants))
        begin = flow.next[last.place]
        text[begin : begin + 2] = _op("RETURN_VALUE", 0)  # nothing leads on from here
    for at in fills:
        text[at : at + 2] = _op("POP_TOP", 0)
    for at, to in jumps.items():
        put = _jump(at, to)
        if put is None or not used.isdisjoint(range(at, at + len(put), 2)):
            return None
        text[at : at + len(put)] = put
    rest = _op("LOAD_CONST", 0) + _op("RETURN_VALUE", 0)
    names = own_names(code)
    return code.replace(
        co_code=bytes(text) + rest,
        co_varnames=names,
        co_nlocals=len(names),
        co_consts=(*constants, *given),
        co_argcount=len(names),
        co_posonlyargcount=0,
        co_kwonlyargcount=0,
        co_flags=code.co_flags & ~_PACKED,
        co_stacksize=code.co_stacksize + 1,
        co_exceptiontable=b"",
        co_linetable=code.co_linetable + bytes([_NO_PLACE | len(rest) // 2 - 1]),
    )


def _op(name: str, arg: int) -> bytes:
    return bytes([dis.opmap[name], arg])


def _jump(at: int, to: int) -> bytes | None:
    """A jump ahead, put at one place."""
    for prefixes in range(3):
        by = (to - at) // 2 - 1 - prefixes
        if by < 0:
            return None
        if by < 1 << 8 * (prefixes + 1):
            digits = by.to_bytes(prefixes + 1, "big")
            ahead = b"".join(_op("EXTENDED_ARG", digit) for digit in digits[:-1])
            return ahead + _op("JUMP_FORWARD", digits[-1])
    return None
