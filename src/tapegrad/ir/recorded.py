"""What a trace has recorded: calls in order, and rounds that are held.

A program that loops records the same calls again and again. So where a call is like the one that is
`period` calls before it, and this has been so for a while, calls are no longer kept: of each it is
known what differs. An operand is

- the same variable or number, each time;
- a variable whose number is so much smaller than the call's own: one of this round, or an earlier;
- another one each time: then it is kept.

A static index that starts so much further on in each round says so. Nothing is lost: the calls are
there again when they are asked for, as they were recorded. The first one that doesn't fit ends the
rounds. This is Lempel and Ziv's coding of a text by repeated parts of itself, for calls.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice
from operator import add, sub
from typing import Any, overload

from tapegrad.core.values import Aval, Literal, Operand, Slice, Source, Var
from tapegrad.ir.tape import Call, Primitive, one_type

MATCHED = 64  # calls that are like earlier ones, before more of them are held
CONTEXT = 4  # calls that tell where earlier ones are
MOST = 100_000  # places at which calls are looked for


class Column:
    """The operand of a call in rounds, where it is another one each time."""

    __slots__ = ("aval", "values")

    def __init__(self, aval: Aval) -> None:
        self.aval = aval
        self.values: list[Any] = []  # of variables the number, of literals the value

    def put(self, x: Operand) -> bool:
        """One more; False if it is of another type."""
        if type(x) is Var:
            if x.aval is not self.aval:
                return False
            self.values.append(x.id)
        else:
            aval = self.aval
            if aval.shape or aval.weak or x.dtype != aval.dtype:
                return False
            self.values.append(x.value)  # type: ignore[union-attr]
        return True

    def __getitem__(self, round_: int) -> Operand:
        value = self.values[round_]
        return Var(value, self.aval) if type(value) is int else Literal(value)


# How an operand is come by: the same one, one that has so much smaller a number, or one of these.
Spec = Operand | int | Column


class Slot:
    """A call of a round: how it was the first time, and what differs.

    `first` is the number of its first variable, `out` the type of its result, or their types.
    """

    __slots__ = ("avals", "context", "first", "index", "key", "move", "out")
    __slots__ += ("primitive", "reason", "specs", "src")

    def __init__(
        self,
        primitive: Primitive,
        operands: Sequence[Operand],
        first: int,
        out: Any,
        src: Source | None,
        reason: str,
    ) -> None:
        self.primitive, self.first, self.out = primitive, first, out
        self.src, self.reason = src, reason
        self.avals = [one_type(x.aval) for x in operands]
        self.move: tuple[int, ...] | None = None  # by how much the index moves in each round,
        self.index: Any = None  # and what it is expected to be next
        self.specs: list[Spec] = []
        self.key = key_of(primitive, src)
        self.context = 0


def key_of(primitive: Primitive, src: Source | None) -> int:
    """What calls have in common that may be alike."""
    return hash((type(primitive) if primitive.indexed else primitive.name, id(src)))


def starts(index: Any) -> tuple[int, ...]:
    """Where an index starts, along each axis."""
    return tuple([k if type(k) is int else k.start for k in index])


def _moved(index: Any, by: Sequence[int]) -> tuple[int | Slice, ...]:
    return tuple(
        [
            k + far if type(k) is int else Slice(k.start + far, k.count, k.step)
            for k, far in zip(index, by, strict=True)
        ]
    )


class Rounds:
    """Calls from `start` on, each of which is like the one `period` calls before. Variables have
    numbers that are larger by `stride`."""

    def __init__(self, start: int, period: int) -> None:
        self.start, self.period = start, period
        self.slots: list[Slot] = []
        self.count = 0
        self.stride = 0
        self.made: dict[int, tuple[int, int]] | None = None  # see `where`

    @property
    def stop(self) -> int:
        return self.start + self.count

    def learn(self, call: Call, earlier: Call) -> bool:
        """The next call, of the first round; False if it isn't like the earlier one."""
        first, before = call.outs[0].id, earlier.outs[0].id
        stride = self.stride or first - before
        old, new = earlier.primitive, call.primitive
        if (
            first - before != stride
            or call.src is not earlier.src
            or call.reason != earlier.reason
            or len(call.operands) != len(earlier.operands)
            or [x.aval for x in call.outs] != [x.aval for x in earlier.outs]
            or new.foreign
        ):
            return False
        single = len(call.outs) == 1
        out = call.outs[0].aval if single else tuple([x.aval for x in call.outs])
        slot = Slot(new, call.operands, first, out, call.src, call.reason)
        if new is old or (type(new) is type(old) and not new.tapes and new == old):
            if new.indexed:
                slot.move, slot.index = (0,) * len(new.index), new.index  # type: ignore[attr-defined]
        elif new.indexed and type(new) is type(old):
            far = tuple(map(sub, starts(new.index), starts(old.index)))  # type: ignore[attr-defined]
            if len(new.index) != len(old.index) or _moved(old.index, far) != new.index:  # type: ignore[attr-defined]
                return False
            slot.move, slot.index = far, _moved(new.index, far)  # type: ignore[attr-defined]
        else:
            return False
        for x, y, aval in zip(call.operands, earlier.operands, slot.avals, strict=True):
            if x is y or x == y:
                slot.specs.append(x)
            elif type(x) is Var and type(y) is Var and x.id - y.id == stride:
                if one_type(y.aval) is not aval:
                    return False
                slot.specs.append(first - x.id)
            else:
                column = Column(aval)
                alike = y.shape == aval.shape and y.dtype == aval.dtype
                if not alike or not column.put(x):
                    return False
                slot.specs.append(column)
        self.stride = stride
        self.slots.append(slot)
        self.count += 1
        return True

    def call(self, position: int) -> Call:
        """The call that is there, as it was recorded."""
        round_, k = divmod(position - self.start, self.period)
        slot = self.slots[k]
        first = slot.first + round_ * self.stride
        primitive: Any = slot.primitive
        if round_ and slot.move is not None and any(slot.move):
            index = _moved(primitive.index, [round_ * far for far in slot.move])
            primitive = type(primitive)(index)
        operands = tuple(
            [
                Var(first - spec, aval)
                if type(spec) is int
                else spec[round_]
                if type(spec) is Column
                else spec
                for spec, aval in zip(slot.specs, slot.avals, strict=True)
            ]
        )
        avals = slot.out if type(slot.out) is tuple else (slot.out,)
        outs = tuple([Var(first + k, aval) for k, aval in enumerate(avals)])
        return Call(primitive, operands, outs, slot.src, slot.reason)  # type: ignore[arg-type]

    def operand(self, position: int, m: int) -> Operand:
        """An operand of the call that is there."""
        round_, k = divmod(position - self.start, self.period)
        slot = self.slots[k]
        spec = slot.specs[m]
        if type(spec) is int:
            return Var(slot.first + round_ * self.stride - spec, slot.avals[m])
        return spec[round_] if type(spec) is Column else spec  # type: ignore[return-value]

    def number(self, position: int) -> int:
        """The number of the first variable that the call makes which is there."""
        round_, k = divmod(position - self.start, self.period)
        return self.slots[k].first + round_ * self.stride

    def where(self, number: int) -> tuple[int, int] | None:
        """The call that makes the variable of this number, and the result's place."""
        if self.made is None:
            self.made = {}
            origin = self.slots[0].first
            for k, slot in enumerate(self.slots):
                for place in range(len(slot.out) if type(slot.out) is tuple else 1):
                    self.made[slot.first + place - origin] = k, place
        round_, rest = divmod(number - self.slots[0].first, self.stride)
        known = self.made.get(rest)
        if known is None or round_ < 0:
            return None
        position = self.start + round_ * self.period + known[0]
        return (position, known[1]) if position < self.stop else None


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
        return part.call(position)  # type: ignore[union-attr]

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
        return tuple(self.parts[0])

    # ---- recording

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
            src is not slot.src
            or first - slot.first != self._shift
            or out is not slot.out
            and out != slot.out
            or reason != slot.reason
        ):
            return self._ends()
        if primitive is not slot.primitive or slot.move is not None:
            if type(primitive) is not type(slot.primitive):
                return self._ends()
            if slot.move is not None:
                if primitive.index != slot.index:  # type: ignore[attr-defined]
                    return self._ends()
            elif primitive.tapes or primitive != slot.primitive:
                return self._ends()
        specs = slot.specs
        if len(specs) != len(operands):
            return self._ends()
        for m, x in enumerate(operands):
            spec = specs[m]
            if type(spec) is int:
                if type(x) is not Var or first - x.id != spec:
                    return self._ends()
            elif x is not spec:
                if type(spec) is Column:
                    values = spec.values
                    if len(values) == 1 and type(x) is Var and x.id - rounds.stride == values[0]:
                        specs[m] = first - x.id  # the round before began with something else
                    elif not spec.put(x):
                        return self._ends()
                elif type(spec) is not type(x) or not _is_same(spec, x):
                    if type(spec) is not Literal or not self._varies(slot, m, x):
                        return self._ends()
        if slot.move is not None and any(slot.move):
            slot.index = tuple(map(add, slot.index, slot.move)) if type(slot.index[0]) is int and len(slot.index) == 1 else _moved(slot.index, slot.move)
        rounds.count += 1
        k += 1
        if k == rounds.period:
            k = 0
            self._shift += rounds.stride
        self._slot = k
        return True

    def _varies(self, slot: Slot, m: int, x: Operand) -> bool:
        """A number that was the same in all rounds is another one in this."""
        column = Column(slot.avals[m])
        count = (self._rounds.count - self._slot) // self._rounds.period
        column.values = [slot.specs[m].value] * count  # type: ignore[union-attr]
        slot.specs[m] = column
        return column.put(x)

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
            return self._ends()
        self._slot += 1
        if self._slot == rounds.period:
            self._slot, self._shift = 0, rounds.stride
        return True

    def _ends(self) -> bool:
        self._end()
        return False

    def _end(self) -> None:
        """No more calls are held."""
        rounds = self._rounds
        if rounds is None:
            return
        self._rounds, self.expects = None, False
        self._length += rounds.count
        self._like, self._matched = -1, 0
        if not rounds.count:
            self.parts.pop(), self.starts.pop(), self._keys.pop()
            if type(self.parts[-1]) is list:
                self._plain = self.parts[-1]
                return
        else:
            self._keys[-1] = [slot.key for slot in rounds.slots]
            keys = self._keys[-1]
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


def _is_same(x: Any, y: Any) -> bool:
    """Whether two variables, or two numbers, are the same; of numbers the bits are compared."""
    if type(x) is Var:
        return x.id == y.id
    x, y = x.value, y.value
    return type(x) is type(y) and x.tobytes() == y.tobytes()
