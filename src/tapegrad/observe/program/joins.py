"""The join of a test, where its two branches meet again, and codes that run one branch alone.

    if x[t] > h:          the test
        h = 0.9 * h       one side
    else:
        h = 0.5 * h       the other one
    total += h            the join

The join is the first instruction that is on all paths from the test to the end of the function: the
immediate post-dominator of the test. One side is run alone by a copy of the function's code with
two jumps: one at the beginning to the side, and one at the join to the end. All other instructions
stay at their offsets, so lines, names and offsets are the same. All variables are parameters.
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

_RESUMED = 0x20 | 0x80 | 0x100 | 0x200  # generators, coroutines: resumed in other frames
_PACKED = 0x04 | 0x08  # flags of *args and **kwargs
_RETURNS = ("RETURN_VALUE", "RETURN_CONST")
_NO_PLACE = 0x80 | 15 << 3  # an entry without a line in a code's line table


RETURNED = -1
# Why a loop is unrolled
MORE = "a round does more than to set variables and to write to arrays"
LEFT = "an error that is handled behind it may end it"
MOST_EXITS = 8  # tests tried as the exit of one loop; after that the loop is unrolled


@dataclass(frozen=True, eq=False)
class Join:
    """The join of a test's sides, and its height of the stack. If both sides return from the
    function, the join is `RETURNED`."""

    jump: int
    offset: int
    base: int  # the number of variables and stack entries that neither side reads below
    top: int  # their number at the join
    region: frozenset[int]  # the instructions of both sides
    codes: dict[bool, CodeType]  # the code that runs a side alone, by the outcome that leads to it
    # Offsets of appends to a comprehension's list, with the list's stack entry. The list doesn't
    # exist where the side runs alone, so there the value is just dropped.
    fills: dict[int, int]


class Exits:
    """For each loop that several tests leave, the test chosen as its exit. Rounds assume that the
    other tests don't leave. If that fails another test is chosen, at most `MOST_EXITS` times."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._chosen: dict[frozenset[int], list[int]] = {}  # all choices so far, by loop

    def __contains__(self, jump: int) -> bool:
        exit_ = self._flow.exit_of(jump)
        chosen = [] if exit_ is None else self._chosen.get(exit_.body, [])
        return exit_ is not None and chosen[-1:] == [jump]

    def add(self, jump: int) -> None:
        exit_ = self._flow.exit_of(jump)
        if exit_ is not None:
            self._chosen.setdefault(exit_.body, []).append(jump)

    def discard(self, jump: int) -> None:
        """Do nothing: the next choice takes the place of this one."""

    def may_be(self, jump: int, body: frozenset[int]) -> bool:
        """Whether this test may be chosen as the exit of the loop of these instructions."""
        exit_ = self._flow.exit_of(jump)
        is_another = exit_ is not None and exit_.body == body and jump not in self
        return is_another and len(self._chosen.get(body, [])) < MOST_EXITS

    def is_other(self, exit_: Exit) -> bool:
        """Whether the loop that `exit_` leaves has another test as its chosen exit."""
        chosen = self._chosen.get(exit_.body)
        return chosen is not None and chosen[-1] not in exit_.places


@dataclass(eq=False)
class Sides:
    """Facts about the tests of a code: notes of earlier traces, and the joins of their sides."""

    flow: Flow
    both: set[int] = field(default_factory=set)  # tests with both outcomes in one run
    apart: set[int] = field(default_factory=set)  # tests whose sides aren't merged
    unmixed: set[int] = field(default_factory=set)  # tests that make no union of number types
    unrolled: set[int] = field(default_factory=set)  # `for` statements whose rounds are unrolled,
    # and why: in words, or what a guard is of that fails in some round, and its line
    reasons: dict[int, str | tuple[str, Any]] = field(default_factory=dict)
    # `(statement, around, most)`: the `for` statement is unrolled if the loop around it makes at
    # most `most` rounds; and each loop's last trip count.
    short: set[tuple[int, int, int]] = field(default_factory=set)
    lengths: dict[int, int] = field(default_factory=dict)
    # By statement and function's name: the number of the trace that met it, the first trip count,
    # and the inputs' shapes then; and the statements whose trip count grows with an axis.
    met: dict[tuple[int, str], tuple[int, int, Sequence[tuple[int, ...]]]] = field(
        default_factory=dict
    )
    varying: set[tuple[int, str]] = field(default_factory=set)
    counted: set[int] = field(
        default_factory=set
    )  # `for` statements over lists whose length is guarded
    listed: set[int] = field(default_factory=set)  # `for` statements that grow Python lists
    turning: set[int] = field(default_factory=set)  # plain tests by which long loops are left
    streams: set[Any] = field(default_factory=set)  # how loops draw: `round_draws.py`
    exits: Exits = field(init=False)
    # Facts about the numbers in sides, by test and outcome: `tracing.branches.merging`.
    numbers: dict[tuple[int, bool], Any] = field(default_factory=dict)
    _joins: dict[Any, Join | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.exits = Exits(self.flow)

    def note_reason(self, places: Sequence[int], why: str | BaseException) -> None:
        """Note why statements are unrolled."""
        guard = getattr(why, "guard", None)
        reason = str(why) if guard is None else (guard.what, guard.src)
        self.reasons.update(dict.fromkeys(places, reason))

    def is_short(self, place: int) -> bool:
        """Whether a `for` statement is unrolled because it, or a loop around it, is as short as
        now."""
        return any(
            each == place and self.lengths[around] <= most for each, around, most in self.short
        )

    def varies(
        self, place: int, name: str, number: int, length: int, shapes: Sequence[tuple[int, ...]]
    ) -> bool:
        """Whether a `for` statement's trip count grows with an axis of the inputs: it made `length`
        rounds in trace `number` of the function `name`, with inputs of these shapes."""
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
        """The join of a test's sides; None if the sides can't be told apart."""
        if jump not in self._joins:
            self._joins[jump] = _join_of(self.flow, jump, self._meetings)
        return self._joins[jump]

    def last_join(self, place: int, jump: int) -> Join | None:
        """The join of a test that may leave a `for` statement, where the statement has no further
        item."""
        if (key := (place, jump)) not in self._joins:
            flow = _AtEnd(self.flow, place)
            self._joins[key] = _join_of(self.flow, jump, _Meetings(flow), flow)
        return self._joins[key]


@lru_cache(maxsize=8192)  # a repeated run has to find the notes made here
def sides_of(code: CodeType) -> Sides:
    return Sides(flow_of(code))


def begins_loop(frame: FrameType) -> bool:
    """Whether a `for` is about to begin in a frame. From Python 3.13 on, a comprehension calls
    `iter` on its iterable, and then again on the iterator."""
    return sides_of(frame.f_code).flow.loop_at(frame.f_lasti) is not None


class _AtEnd:
    """The control flow of a code where a `for` statement has come to its end."""

    def __init__(self, flow: Flow, place: int) -> None:
        self.at, self._flow, self.place = flow.at, flow, place

    def after(self, offset: int) -> Sequence[int]:
        return [self.at[offset].argval] if offset == self.place else self._flow.after(offset)


EXHAUSTED = iter(())  # the iterator of such a statement, for a side that is run alone


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
    """The tree of immediate post-dominators: for each instruction, the next one that is on all
    paths to the end (Cooper, Harvey and Kennedy, "A simple, fast dominance algorithm", 2001)."""

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
        """The instruction where the paths from two instructions meet. It is one of the two if the
        other leads there, and `RETURNED` if they meet at the end, or if one never comes to the
        end."""
        number = self._number
        if one not in number or other not in number:
            return RETURNED
        while one != other:
            if number[one] < number[other]:
                one, other = other, one
            one = self._next[one]
        return one


def _from_the_end(before: dict[int, list[int]]) -> list[int]:
    """The instructions that lead to the end, each behind one that it leads to: the reverse
    postorder of a depth-first search on the reversed edges."""
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
    """The instructions that are reached from `starts` without passing `but`."""
    seen: set[int] = set()
    todo = [o for o in starts if o != but]
    while todo:
        offset = todo.pop()
        if offset not in seen:
            seen.add(offset)
            todo += [o for o in flow.after(offset) if o != but]
    return frozenset(seen)


def _stands_apart(flow: Flow, jump: int, region: frozenset[int], base: int) -> bool:
    """Whether the sides are independent of their surroundings: they have the same error handlers as
    the test, read no stack entries below `base`, and don't change variables in cells."""
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
    """The variables of a code. Variables in cells come last, unless they are parameters."""
    return *code.co_varnames, *[x for x in code.co_cellvars if x not in code.co_varnames]


_LEAVES_NONE = ("STORE_", "POP_", "DELETE_", "JUMP_", "RETURN_", "RAISE_", "LIST_APPEND")
_TAKES = dict.fromkeys(["LOAD_METHOD", "LOAD_ATTR", "FOR_ITER", "GET_LEN", "END_FOR"], 1)
_TAKES |= {"LOAD_SPECIAL": 1}
_TAKES |= dict.fromkeys(["UNPACK_SEQUENCE", "UNPACK_EX", "STORE_FAST_LOAD_FAST"], 1)
_PASSING = ("PRECALL", "EXTENDED_ARG", "CACHE", "NOP", "RESUME", "KW_NAMES")


def operands_of(i: dis.Instruction) -> int:
    """The number of stack entries that an instruction reads, at most."""
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
    """A code that runs from `target` to `join`. With `last`, an exhausted iterator is pushed for
    the statement. None if there is no room for the jumps."""
    code, given = flow.code, [EXHAUSTED] if last is not None else []
    end, constants = len(code.co_code), code.co_consts or (None,)
    entry = next((o for o, i in flow.at.items() if i.opname == "RESUME"), None)
    if entry is None or len(constants) > 255:
        return None
    first = entry + 2 + 2 * len(given)
    if target == join:  # the side is empty
        jumps = {first: end}
    elif join == RETURNED:
        jumps = {first: target}
    else:
        jumps = {first: target, join: end}
    # Python reads all of a monitored code, including instructions that aren't run, and writes to
    # the targets of its jumps. A prefix without its instruction would be taken for the next one's,
    # and change its target.
    text = bytearray(_op("NOP", 0) * (end // 2))
    text[: entry + 2] = code.co_code[: entry + 2]
    for at in range(0, entry, 2):
        if text[at] == dis.opmap["MAKE_CELL"]:  # the cells are passed as arguments
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
    """The bytes of a forward jump at offset `at` to offset `to`."""
    for prefixes in range(3):
        by = (to - at) // 2 - 1 - prefixes
        if by < 0:
            return None
        if by < 1 << 8 * (prefixes + 1):
            digits = by.to_bytes(prefixes + 1, "big")
            ahead = b"".join(_op("EXTENDED_ARG", digit) for digit in digits[:-1])
            return ahead + _op("JUMP_FORWARD", digits[-1])
    return None
