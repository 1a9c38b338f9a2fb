"""Calls that are held as rounds: what they have in common is kept once.

A call of a round is like the one a period earlier. An operand is

- the same variable or number, each time;
- a variable whose number is so much smaller than the call's own: one of this round, or an earlier;
- another one each time: then it is kept.

A static index starts so much further on in each round. From this each call can be made again, as it
was recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import sub
from typing import Any

from tapegrad.core.values import Aval, Literal, Operand, Slice, Source, Var
from tapegrad.ir.tape import Call, Primitive, one_type


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

    def goes_on(self, x: Operand, stride: int) -> bool:
        """Whether this, of the second round, is a variable whose number has grown as those of the
        round's own have: the one before was of the first round, that began with something else."""
        values = self.values
        return (
            len(values) == 1
            and type(values[0]) is int
            and type(x) is Var
            and x.id - stride == values[0]
            and x.aval is self.aval
        )

    def __getitem__(self, round_: int) -> Operand:
        value = self.values[round_]
        return Var(value, self.aval) if type(value) is int else Literal(value)


# How an operand is come by: the same one, one that has so much smaller a number, or one of these.
Spec = Operand | int | Column


class Slot:
    """A call of a round: how it was the first time, and what differs.

    `first` is the number of its first variable, `out` the type of its result, or their types.
    """

    __slots__ = (
        *("avals", "first", "index", "key", "move", "out"),
        *("primitive", "reason", "specs", "src"),
    )

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

    def is_of(self, primitive: Any) -> bool:
        """Whether a call of this primitive is the one that is expected."""
        own: Any = self.primitive
        if primitive is own and self.move is None:
            return True
        if type(primitive) is not type(own):
            return False
        if self.move is not None:
            return bool(primitive.index == self.index)
        return not primitive.tapes and primitive == own

    def go_on(self) -> None:
        """Expect the call of the next round."""
        if self.move is not None and any(self.move):
            self.index = _moved(self.index, self.move)


def key_of(primitive: Primitive, src: Source | None) -> int:
    """What calls have in common that may be alike."""
    return hash((type(primitive) if primitive.movable else primitive.name, id(src)))


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
            if new.movable:
                index: Any = new.index  # type: ignore[attr-defined]
                slot.move, slot.index = (0,) * len(index), index
        elif new.movable and type(new) is type(old):
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


def is_same(x: Any, y: Any) -> bool:
    """Whether two operands are the same; of numbers the bits are compared."""
    if type(x) is not type(y):
        return False
    if type(x) is Var:
        return x.id == y.id
    x, y = x.value, y.value
    return type(x) is type(y) and bool(x.tobytes() == y.tobytes())
