"""What a trace has recorded: calls in order, of which many may be held as rounds.

A program that loops records the same calls again and again. So where calls have been like earlier
ones for a while, no more of them are kept: of each it is known what differs (`ir.held`). The first
one that doesn't fit ends the rounds. Nothing is lost: the calls are there when they are asked for.
This is Lempel and Ziv's coding of a text by repeated parts of itself, for calls: the last few ones
tell which earlier ones they are like.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, overload

from tapegrad.core.values import Literal, Operand, Source, Var
from tapegrad.ir.held import Column, Rounds, Slot, is_same, key_of
from tapegrad.ir.tape import Call, Primitive

MATCHED = 64  # calls that are like earlier ones, before more of them are held
CONTEXT = 4  # calls that tell where earlier ones are
MOST_MADE = 10_000  # held calls, as they are asked for again
MOST = 100_000  # places at which calls are looked for


class Recorded(Sequence[Call]):
    """The calls of a trace. `expects` is whether more of what was recorded is held."""

    def __init__(self) -> None:
        self.parts: list[list[Call] | Rounds] = [[]]
        self.starts: list[int] = [0]
        self.expects = False
        self._rounds: Any = None  # that more calls may be of
        self._slot = 0  # the next one's number,
        self._shift = 0  # and by how much its variables' numbers are larger than at first
        self._plain: list[Call] = []  # the last part, if it isn't rounds
        self.parts[0] = self._plain
        self._length = 0
        self._like = -1  # where the call is that the next one may be like
        self._matched = 0  # calls that were like those before it
        self._keys: list[list[int]] = [[]]  # of the calls in each part
        self._context = (0,) * CONTEXT
        self._last: dict[int, int] = {}  # where calls are, by those before them
        self._made: dict[int, Call] = {}  # held calls that were asked for

    # ---- reading

    def __len__(self) -> int:
        return self._length + (self._rounds.count if self._rounds is not None else 0)

    def part_at(self, position: int) -> int:
        return bisect_right(self.starts, position) - 1

    @overload
    def __getitem__(self, at: int) -> Call: ...
    @overload
    def __getitem__(self, at: slice) -> list[Call]: ...
    def __getitem__(self, at: int | slice) -> Call | list[Call]:
        if isinstance(at, slice):
            first, last, step = at.indices(len(self))
            if step == 1 and last - first > 1:
                return list(islice(self._from(first), last - first))
            return [self[k] for k in range(first, last, step)]
        position = at + len(self) if at < 0 else at
        if not 0 <= position < len(self):
            raise IndexError(at)
        number = self.part_at(position)
        part = self.parts[number]
        if type(part) is list:
            return part[position - self.starts[number]]
        known = self._made.get(position)
        if known is None:
            if len(self._made) >= MOST_MADE:
                self._made.clear()
            known = self._made[position] = part.call(position)  # type: ignore[union-attr]
        return known

    def operand(self, position: int, m: int) -> Operand:
        """An operand of the call that is there."""
        number = self.part_at(position)
        part = self.parts[number]
        if isinstance(part, Rounds):
            return part.operand(position, m)
        return part[position - self.starts[number]].operands[m]

    def number(self, position: int) -> int:
        """The number of the first variable that the call makes which is there."""
        number = self.part_at(position)
        part = self.parts[number]
        if isinstance(part, Rounds):
            return part.number(position)
        return part[position - self.starts[number]].outs[0].id

    def __iter__(self) -> Iterator[Call]:
        return self._from(0)

    def _from(self, position: int) -> Iterator[Call]:
        number = self.part_at(position)
        for part, start in zip(self.parts[number:], self.starts[number:], strict=True):
            if isinstance(part, Rounds):
                for at in range(max(position, start), part.stop):
                    yield part.call(at)
            else:
                yield from part[max(position - start, 0) :]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (tuple, Recorded)) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def settled(self) -> Any:
        """What was recorded, once it is all: a tuple, if no rounds are held."""
        self._end()
        if any(isinstance(part, Rounds) for part in self.parts):
            return self
        return tuple(self)

    # ---- recording

    def expected(self, primitive: Primitive, operands: Sequence[Operand]) -> Any:
        """The type of the result, or those of several, where this is the call that is expected."""
        rounds = self._rounds
        if rounds is None or self._slot >= len(rounds.slots):
            return None
        slot: Slot = rounds.slots[self._slot]
        if len(slot.avals) != len(operands) or not slot.is_of(primitive):
            return None
        for x, aval in zip(operands, slot.avals, strict=True):
            if x.aval is not aval and x.aval != aval:
                return None
        return slot.out

    def takes(
        self,
        primitive: Primitive,
        operands: Sequence[Operand],
        first: int,
        out: Any,
        src: Source | None,
        reason: str,
    ) -> bool:
        """Whether this is the call that was expected, and is held. `first` is the number of its
        first variable, `out` the type of its result, or those of several."""
        rounds, k = self._rounds, self._slot
        slots = rounds.slots
        if k == len(slots) < rounds.period:
            return self._learns(primitive, operands, first, out, src, reason)
        slot = slots[k]
        if (
            src is slot.src
            and first - slot.first == self._shift
            and (out is slot.out or out == slot.out)
            and reason == slot.reason
            and slot.is_of(primitive)
            and self._takes_all(slot, operands, first)
        ):
            slot.go_on()
            rounds.count += 1
            k += 1
            if k == rounds.period:
                k = 0
                self._shift += rounds.stride
            self._slot = k
            return True
        self._end()
        return False

    def _takes_all(self, slot: Slot, operands: Sequence[Operand], first: int) -> bool:
        """Whether these are the operands that were expected."""
        specs, avals = slot.specs, slot.avals
        if len(specs) != len(operands):
            return False
        for m, x in enumerate(operands):
            spec = specs[m]
            if type(spec) is int:
                if type(x) is not Var or first - x.id != spec or x.aval is not avals[m]:
                    return False
            elif x is not spec and not (type(spec) is not Column and is_same(spec, x)):
                column = self._column(slot, m)
                if column is None:
                    return False
                if column.goes_on(x, self._rounds.stride):
                    specs[m] = first - x.id  # type: ignore[union-attr]
                elif not column.put(x):
                    return False
        return True

    def _column(self, slot: Slot, m: int) -> Column | None:
        """The values of an operand that is another one each time, or was the same number so far."""
        spec = slot.specs[m]
        if type(spec) is Literal:
            column = Column(slot.avals[m])
            column.values = [spec.value] * (
                (self._rounds.count - self._slot) // self._rounds.period
            )
            slot.specs[m] = spec = column
        return spec if isinstance(spec, Column) else None

    def _learns(
        self,
        primitive: Primitive,
        operands: Sequence[Operand],
        first: int,
        out: Any,
        src: Source | None,
        reason: str,
    ) -> bool:
        rounds = self._rounds
        avals = out if type(out) is tuple else (out,)
        outs = tuple([Var(first + k, aval) for k, aval in enumerate(avals)])
        call = Call(primitive, tuple(operands), outs, src, reason)
        if not rounds.learn(call, self[rounds.stop - rounds.period]):
            self._end()
            return False
        self._slot += 1
        if self._slot == rounds.period:
            self._slot, self._shift = 0, rounds.stride
        return True

    def _end(self) -> None:
        """No more calls are held."""
        rounds = self._rounds
        if rounds is None:
            return
        self._rounds, self.expects = None, False
        self._length += rounds.count
        self._like, self._matched = -1, 0
        if not rounds.count:
            for ended in (self.parts, self.starts, self._keys):
                ended.pop()
            return  # more calls go to the part before
        keys = self._keys[-1] = [slot.key for slot in rounds.slots]
        for position in range(max(rounds.start, rounds.stop - rounds.period), rounds.stop):
            key = keys[(position - rounds.start) % rounds.period]
            self._context = (*self._context[1:], key)
            self._last[hash(self._context)] = position
        self._plain = []
        self.parts.append(self._plain)
        self.starts.append(self._length)
        self._keys.append([])

    def append(self, call: Call) -> None:
        """One more call, which isn't held."""
        if self._rounds is not None:
            self._end()
        self._plain.append(call)
        position = self._length
        self._length = position + 1
        key = key_of(call.primitive, call.src)
        self._keys[-1].append(key)
        self._context = (*self._context[1:], key)
        context = hash(self._context)
        if self._like >= 0 and self._key(self._like) == key:
            self._matched += 1
            self._like += 1
        else:
            self._matched = 0
            self._like = self._last.get(context, -2) + 1
        if len(self._last) >= MOST:
            self._last.clear()
        self._last[context] = position
        if self._matched >= MATCHED:
            self._rounds = Rounds(self._length, self._length - self._like)
            self._slot = self._shift = 0
            self.parts.append(self._rounds)
            self.starts.append(self._length)
            self._keys.append([])
            self.expects = True

    def _key(self, position: int) -> int:
        number = self.part_at(position)
        keys = self._keys[number]
        at = position - self.starts[number]
        part = self.parts[number]
        return keys[at % part.period if isinstance(part, Rounds) else at]
