"""Affine numbers, and array indices whose positions are affine numbers.

An affine number is `const + sum of factor * part`. In a plan the parts are loop indices; in the
text of a program they are names. A `MovingIndex` selects a part of an array that moves from round
to round of a loop. One formula computes its position (`MovingIndex.places`): integer steps give
integers, affine steps give an index of the plan, and names give program text.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from tapegrad.core.values import Slice, Span

EMPTY = slice(0, 0, 1)

_ids = itertools.count()


@dataclass(frozen=True, eq=False)
class Index:
    """A loop index. It runs from 0 to `extent` - 1, and stays below `limit` if there is one: a trip
    count that depends on the loops around."""

    extent: int
    limit: Affine | None = None
    id: int = field(default_factory=lambda: next(_ids))


@dataclass(frozen=True)
class Affine:
    """`const + sum of factor * part`. The parts are loop indices, or names in program text."""

    terms: tuple[tuple[Any, int], ...] = ()
    const: int = 0

    @staticmethod
    def of(index: Index) -> Affine:
        return Affine(((index, 1),)) if index.extent != 1 else Affine()

    @staticmethod
    def part(part: Any) -> Affine:
        return Affine(((part, 1),))

    def __mul__(self, factor: int) -> Affine:
        terms = tuple((i, c * factor) for i, c in self.terms) if factor else ()
        return Affine(terms, self.const * factor)

    def __add__(self, other: Affine | int) -> Affine:
        if not isinstance(other, Affine):
            return Affine(self.terms, self.const + other)
        total = dict(self.terms)
        for i, c in other.terms:
            total[i] = total.get(i, 0) + c
        return Affine(tuple((i, c) for i, c in total.items() if c), self.const + other.const)

    __rmul__, __radd__ = __mul__, __add__

    def __neg__(self) -> Affine:
        return self * -1

    def __sub__(self, other: Affine | int) -> Affine:
        return self + -other

    def substitute(self, mapping: Mapping[Index, Affine]) -> Affine:
        if not any(i in mapping for i, _ in self.terms):
            return self
        result = Affine((), self.const)
        for i, c in self.terms:
            result += mapping[i] * c if i in mapping else Affine(((i, c),))
        return result

    def text(self, name: Callable[[Any], str] = str, const_first: bool = False) -> str:
        """`2 * i + 3`, or `3 + 2 * i` if `const_first`. Begins with a positive term, or with the
        constant, 0 included: `9 - i`, `0 - i`."""
        parts = [
            (c < 0, name(i) if abs(c) == 1 else f"{abs(c)} * {name(i)}") for i, c in self.terms
        ]
        if self.const or all(less for less, _ in parts):
            parts.insert(0 if const_first else len(parts), (self.const < 0, str(abs(self.const))))
        if parts[0][0]:
            parts.sort(key=lambda part: part[0])
        (negative, text), *rest = parts
        return "-" * negative + text + "".join(f" {'+-'[less]} {part}" for less, part in rest)

    @property
    def range(self) -> tuple[int, int]:
        """The least and the greatest value if every index runs over its whole extent."""
        least = most = self.const
        for i, c in self.terms:
            step = c * (i.extent - 1)
            if step < 0:
                least += step
            else:
                most += step
        return least, most

    @property
    def limited(self) -> tuple[int, int]:
        """The least and the greatest value within the limits of the indices."""
        for i, _ in self.terms:
            if i.limit is not None or not i.extent:
                return -(-self)._most, self._most
        return self.range

    @property
    def _most(self) -> int:
        least = Affine((), self.const)
        rest = self.terms
        while rest:  # innermost first: its limit depends on the outer indices
            (index, c), *others = sorted(rest, key=lambda term: -term[0].id)
            end = Affine((), index.extent) if index.limit is None else index.limit
            total = Affine(tuple(others), least.const)
            if c > 0:
                total += end * c - c
            least, rest = Affine((), total.const), total.terms
        return min(least.const, self.range[1])

    @property
    def alone(self) -> Affine | None:
        """This number, if it has another value for each value of one part; otherwise None."""
        return self if len(self.terms) == 1 else None

    @property
    def index(self) -> Any:
        """The loop index or other part, if this number is just that part; otherwise None."""
        if self.const == 0 and len(self.terms) == 1 and self.terms[0][1] == 1:
            return self.terms[0][0]
        return None


@dataclass(frozen=True)
class MovingIndex:
    """An index with an integer, a `Slice` or a `Span` for each axis, which moves with loop steps.

    Its *places* are its starts along all axes, followed by the element counts of its spans. Each
    unit of step k moves them by `moves[k]`.
    """

    index: tuple[Any, ...]
    moves: tuple[tuple[int, ...], ...] = ()

    @cached_property
    def start(self) -> tuple[int, ...]:
        """The places before any move."""
        starts = [k if isinstance(k, int) else k.start for k in self.index]
        return (*starts, *[k.count for k in self.index if isinstance(k, Span)])

    @property
    def form(self) -> tuple[Any, ...]:
        """The index without its places: class, extent and step of each axis' entry."""
        return tuple(
            [None if isinstance(k, int) else (type(k), k.extent, k.step) for k in self.index]
        )

    @property
    def extents(self) -> tuple[int, ...]:
        """The shape of the selection. An integer drops its axis."""
        return tuple([k.extent for k in self.index if not isinstance(k, int)])

    def places(self, steps: Iterable[Any]) -> list[Any]:
        """The places after `steps` steps: integers, arrays of integers, or affine numbers."""
        places: list[Any] = [*self.start]
        for step, move in zip(steps, self.moves, strict=True):
            for p, far in enumerate(move):
                if far:
                    places[p] = places[p] + step * far
        return places

    def at(self, places: Sequence[Any]) -> tuple[Any, ...]:
        """The same index at other places."""
        counts = iter(places[len(self.index) :])
        found: list[Any] = []
        for k, start in zip(self.index, places, strict=False):
            if isinstance(k, int):
                found.append(start)
            elif isinstance(k, Slice):
                found.append(Slice(start, k.count, k.step))
            else:
                found.append(Span(start, next(counts), k.step, k.extent))
        return tuple(found)

    def inside(self, starts: Iterable[Any], at: Iterable[Any]) -> list[Any]:
        """The position in the array of the selection's element `at`, if the index starts at
        `starts`."""
        rest = iter(at)
        return [
            start if isinstance(k, int) else next(rest) * k.step + start
            for k, start in zip(self.index, starts, strict=False)
        ]

    def numpy(self) -> Callable[..., Any]:
        """A function from the steps to two NumPy indices: the selection in the array, and the part
        of the result's buffer that the selection fills, from its front on. The function is
        generated source, because rounds of loops call it."""
        return _function(self)

    def text(self, steps: Sequence[str]) -> tuple[str, str]:
        """The two indices of `numpy` as source text; `steps` are the names of the steps."""
        places = self.places(list(map(Affine.part, steps)))
        outer: list[str] = []
        inner: list[str] = []
        turned: list[str] = []
        for k in self.at([p if isinstance(p, Affine) else Affine((), p) for p in places]):
            if isinstance(k, Affine):
                outer.append(_text(k))
                continue
            start, stride = _text(k.start), f":{abs(k.step)}" * (abs(k.step) != 1)
            if isinstance(k, Slice):
                stop = _text(k.start + k.count * k.step)
                if k.step > 0:
                    outer.append(f"{start}:{stop}{stride}")
                else:  # a stop before the first element is written as None
                    outer.append(f"slice({start}, {stop} if {stop} >= 0 else None, {k.step})")
            else:
                count = _text(k.count)
                inner.append(f":{count}")
                if k.step == 1:
                    outer.append(f":{count}" if start == "0" else f"{start}:{start} + {count}")
                elif k.step > 0:
                    outer.append(f"{start}:{start} + ({count}) * {k.step}{stride}")
                else:  # taken forwards, then reversed
                    times = f" * {-k.step}" * (k.step != -1)
                    outer.append(f"{start} - ({count} - 1){times}:{start} + 1{stride}")
            inner += [":"] * isinstance(k, Slice)
            turned.append("::-1" if isinstance(k, Span) and k.step < 0 else ":")
        back = f"[{', '.join(turned)}]" * ("::-1" in turned)
        return f"[{', '.join(outer)}]{back}", f"[{', '.join(inner)}]"


def _text(x: Any) -> str:
    return x.text(const_first=True) if isinstance(x, Affine) else str(x)


@lru_cache(maxsize=1024)
def _function(where: MovingIndex) -> Callable[..., Any]:
    """Generate the function that `MovingIndex.numpy` returns."""
    steps = [f"t{k}" for k in range(len(where.moves))]
    lines = [f"def at({', '.join(steps)}):", *[f"    {t} = int({t})" for t in steps]]
    outer, inner = "", ""
    places = [
        Affine((), p) if isinstance(p, int) else p for p in where.places(map(Affine.part, steps))
    ]
    for axis, k in enumerate(where.at(places)):
        if isinstance(k, Affine):
            outer += f"{_text(k)}, "
            continue
        start, count, end = _text(k.start), f"n{axis}", f"e{axis}"
        lines.append(f"    {count} = max(0, {_text(k.count) if isinstance(k, Span) else k.count})")
        lines.append(f"    {end} = {start} + {count} * {k.step}")
        whole = f"slice({start}, {end} if {end} >= 0 else None, {k.step})"
        outer += f"{whole} if {count} else EMPTY, "
        inner += f"slice(0, {count}), "
    known: dict[str, Any] = {"EMPTY": EMPTY}
    exec("\n".join([*lines, f"    return ({outer}), ({inner})"]), known)
    return known["at"]
