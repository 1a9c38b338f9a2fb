"""Short arrays as their elements, each a Python number, in functions that play loops.

    v = a + h * b       -->   v0 = (a0 + (h * b0))
    w = v[1]                  v1 = (a1 + (h * b1))
    x[t, 0:2] = v             w = v1; x[0 + t, 0] = v0; x[0 + t, 1] = v1

NumPy takes as long for an operation on two numbers as Python does for twenty, with the same bits.
An array is built where a call needs one. The results of operations and views of elements are in
elements again, and so are loop-carried values if the rounds leave elements.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product, repeat
from typing import Any

import numpy as np

from tapegrad.backends.numpy.lines import ZERO, Lines, Names
from tapegrad.backends.numpy.lives import box_of
from tapegrad.backends.numpy.numbers import FLOAT, FLOATS, NO, TRUE, form_of
from tapegrad.ir.tape import Call, Operand, Tape, Var
from tapegrad.primitives.base import Elementwise
from tapegrad.primitives.kinds import Moving, Scatter, Spanning, View
from tapegrad.primitives.views import as_numpy

# Elements: each has operations of its own, and NumPy adds up more of them in another order.
MAX_ELEMENTS = 6
MIN_ROUNDS = 16  # least trip count of a loop: writing so many operations takes time, too
WRITES = ("setitem", "set_window", "add_window")


def is_short(x: Operand) -> bool:
    """Whether `x` may be in elements."""
    return (
        isinstance(x, Var)
        and x.shape != ()
        and x.dtype in FLOATS
        and 0 < x.aval.size <= MAX_ELEMENTS
    )


def left_in_elements(body: Tape, carried: int, stays: Sequence[int]) -> list[int]:
    """The numbers of the loop-carried values that a round leaves in elements."""
    made: dict[Operand, Call] = {x: call for call in body.calls for x in call.outs}
    found = []
    for k, x in enumerate(body.outputs[:carried]):
        call = made.get(x) if is_short(x) else None
        if call is None:
            continue
        if _at_fixed_places(body, k) if k in stays else _form(call)[0] or _joins(call):
            found.append(k)
    return found


def _at_fixed_places(body: Tape, k: int) -> bool:
    """Whether rounds do nothing to the loop-carried value k but write to the same places each
    time."""
    x = body.outputs[k]
    for call in reversed(body.calls):
        if x not in call.outs:
            continue
        loop: Any = call.primitive
        if loop.repeats and _at_fixed_places(loop.body, call.outs.index(x)):
            x = loop.given(call.operands)[call.outs.index(x)]
        elif writes_fixed(call):
            x = call.operands[0]
        else:
            return False
    return x is body.inputs[1 + k]


def writes_fixed(call: Call) -> bool:
    """Whether `call` writes to a short array, at places that don't depend on the round."""
    is_write = call.primitive.name in WRITES and is_short(call.operands[0])
    return is_write and len(call.operands) == 2


def read_in_elements(body: Tape) -> set[Operand]:
    """The short arrays that a call reads element by element."""
    return {x for c in body.calls if _form(c)[0] or is_view(c) for x in c.operands if is_short(x)}


def is_view(call: Call) -> bool:
    return isinstance(call.primitive, View) and not isinstance(call.primitive, Moving)


def _form(call: Call) -> tuple[str, frozenset[int]]:
    """The operators for each element of an elementwise call's result, and the operands that occur
    in them more than once."""
    p, kinds = call.primitive, {x.dtype for x in call.operands}
    if not isinstance(p, Elementwise) or not kinds <= FLOATS:
        return "", NO
    return form_of(p, len(call.operands), kinds == TRUE)


def _joins(call: Call) -> bool:
    """Whether `call` puts operands of one dtype, or zeros, next to each other."""
    p: Any = call.primitive
    if not isinstance(p, Scatter) or isinstance(p, Moving) or p.onto == "first" or p.indexed:
        return False
    same = all(x.dtype == call.outs[0].dtype for x in call.operands)
    return same and bool(p.boxes(*call.operands))


def _each_place(primitive: Any, shape: tuple[int, ...]) -> Iterator[Any]:
    """The primitives that read or write the single elements of a part of an array."""
    axes = [k for k, entry in enumerate(primitive.index) if not isinstance(entry, int)]
    for at in np.ndindex(*shape):
        index = list(primitive.index)
        for axis, n in zip(axes, at, strict=True):
            index[axis] = index[axis].start + n * index[axis].step
        yield primitive.changed(index=tuple(index))


_plus: Any = np.frompyfunc(lambda x, y: f"({x} + {y})", 2, 1)


class Elements(Lines):
    """Lines in which short arrays are in elements, where a loop has many rounds."""

    apart = False  # whether short arrays are in elements here

    # ---- to elements, and back

    def _unpacked(self, x: str, shape: Sequence[int], depth: int) -> list[str]:
        """The names of an array's elements."""
        names = [self._fresh("v") for _ in range(int(np.prod(shape)))]
        rows = x if len(shape) == 1 else f"{x}.ravel()"
        self._line(depth, f"{', '.join(names)}, = {rows}.tolist()")
        return names

    def _packed(self, elements: Sequence[str], aval: Any, depth: int) -> str:
        """The name of an array built of elements."""
        name = self._assigned(f"{self._global(partial(np.empty, aval.shape, aval.dtype))}()", depth)
        for at, x in zip(np.ndindex(*aval.shape), elements, strict=True):
            self._line(depth, f"{name}[{', '.join(map(str, at))}] = {x}")
        return name

    def _whole(self, xs: Sequence[Operand], names: Names, depth: int) -> None:
        """Build an array for each operand that is in elements only."""
        for x in xs:
            if x in names.elements and x not in names:
                names[x] = self._packed(names.elements[x], x.aval, depth)

    def _atoms(self, x: Operand, names: Names, depth: int) -> list[str]:
        """The elements of an operand, each with a name."""
        found = [self._kept(e, False, depth) for e in names.elements[x]]
        names.elements[x] = found
        return found

    def _grid(self, x: Operand, names: Names, depth: int, often: bool) -> Any:
        """The expressions of an operand's elements, or of a scalar, as an object array."""
        grid: Any = np.empty(x.aval.shape, object)
        if not x.aval.shape:
            grid[()] = self._atom(x, names, depth) if often else self._name(x, names)
            return grid
        grid[...] = np.reshape(self._cells(x, names, depth, often), x.aval.shape)
        return grid

    def _cells(self, x: Operand, names: Names, depth: int, often: bool) -> list[str]:
        """The expressions of an array's elements; names, if they are read `often`."""
        if x not in names.elements:
            names.elements[x] = self._unpacked(names[x], x.aval.shape, depth)
        return self._atoms(x, names, depth) if often else names.elements[x]

    def _said(self, x: Operand, names: Names, depth: int) -> tuple[str, list[str] | None]:
        """The name of an operand ("" if it has none), and the names of its elements, if it is in
        elements."""
        elements = self._atoms(x, names, depth) if x in names.elements else None
        is_whole = elements is None or x in names
        return self._atom(x, names, depth) if is_whole else "", elements

    def _hoisted(self, inputs: Sequence[Var], names: Names, depth: int) -> None:
        """Write the elements of loop-invariant arrays before the loop."""
        for x in inputs:
            if x in names.wanted and x not in names.elements:
                names.elements[x] = self._unpacked(names[x], x.aval.shape, depth)

    # ---- calls

    def _counts(self, call: Call, names: Names) -> bool:
        """Whether no slice has a negative length in any round: the texts of slices assume it."""
        p: Any = call.primitive
        if not isinstance(p, Spanning):
            return True
        ends, first = [], len(p.index)  # the places come before the counts
        for x, moves in zip(p.steps(call.operands), p.moves, strict=True):
            most = self.most.get(names.get(x, ""), 0)
            if any(moves[first:]) and not most:
                return False
            ends.append((0, most - 1) if most else (0,))
        counts = [k for at in product(*ends) for k in p.where.places(at)[first:]]
        return min(counts, default=0) >= 0

    def _filled(self, call: Call, name: str, names: Names, depth: int) -> bool:
        """Write a call's result to a new array (of zeros, say, or a copy), if it can be. Returns
        whether."""
        p: Any = call.primitive
        named = ["x"] * len(call.operands)
        updates = p.memory.updates and p.quick_text(named)
        if not call.outs[0].shape or not (updates or p.filling_text(name, named)):
            return False
        if not self._counts(call, names):
            return False
        self._whole(call.operands, names, depth)
        xs = [self._name(x, names) for x in call.operands]
        if updates:
            self._line(depth, f"{name} = array({xs[0]})")
        else:
            self._full(name, call, getattr(p, "fill", 0), depth)
        self._line(depth, p.quick_text([name, *xs[1:]]) if updates else p.filling_text(name, xs))
        return True

    def _spread(
        self, call: Call, names: Names, uses: Counter[Operand], depth: int, of_sum: int | None
    ) -> list[str] | None:
        """The elements of a call's result; None if it can't be computed in elements. A call of a
        sum of parts (`of_sum` is the position of its first part) returns the sum so far."""
        p: Any = call.primitive
        out = call.outs[0]
        if len(call.outs) != 1 or out.dtype not in FLOATS or not 0 < out.aval.size <= MAX_ELEMENTS:
            return None
        once = uses[out] == 1
        if of_sum is not None:
            return [self._kept(x, once, depth) for x in self._summed(call, of_sum, names, depth)]
        held = [x for x in call.operands if x in names.elements]
        joins = _joins(call)
        repeats = is_view(call) and call.operands[0].aval.shape == ()  # a number
        if not (held or joins or repeats or out in names.wanted):
            return None
        found: Any = None
        if joins:
            if len(held) == sum(bool(x.aval.shape) for x in call.operands):
                found = np.full(out.shape, ZERO, object)
                for x, box in zip(call.operands, p.boxes(*call.operands), strict=True):
                    found[as_numpy(box)] = self._grid(x, names, depth, False)[()]
        elif is_view(call) and (held or repeats):
            (x,) = call.operands
            found = p.evaluate(self._grid(x, names, depth, out.aval.size > x.aval.size))
        elif p.name == "window" and not held:
            return self._read(call, names, depth)
        elif writes_fixed(call) and call.operands[0] in held:
            found, part = [self._grid(x, names, depth, False) for x in call.operands]
            at = as_numpy(p.index)
            found[at] = _plus(found[at], part) if p.adds else part[()]
        elif p.name == "sum" and held and held[0].dtype == FLOAT and len(held[0].aval.shape) == 1:
            found = f"({' + '.join([ZERO, *names.elements[held[0]]])})"
        elif out.aval.shape and all(x.aval.shape == () or is_short(x) for x in call.operands):
            found = self._each(call, names, depth)
        if found is None:
            return None
        return [self._kept(x, once, depth) for x in np.asarray(found, object).flat]

    def _each(self, call: Call, names: Names, depth: int) -> Any:
        """An elementwise call, element by element."""
        form, often = _form(call)
        if not form:
            return None
        shape = call.outs[0].aval.shape
        columns: list[Any] = []
        for k, x in enumerate(call.operands):
            if x.aval.shape == ():
                columns.append(repeat(self._atom(x, names, depth)))
                continue
            cells = self._cells(x, names, depth, k in often or x.aval.shape != shape)
            if x.aval.shape != shape:
                cells = np.broadcast_to(np.reshape(cells, x.aval.shape), shape).ravel().tolist()
            columns.append(cells)
        return [f"({form.format(*xs)})" for xs in zip(*columns, strict=False)]

    def _summed(self, call: Call, first: int, names: Names, depth: int) -> list[str]:
        """The elements of a sum of parts. If `call` makes a part, it is added."""
        shape = call.outs[0].aval.shape
        total: Any = np.full(shape, ZERO, object)
        total[...] = np.reshape(names.sums.get(first, total), shape)
        box = box_of(call)
        if box is not None:
            at = as_numpy(box)
            total[at] = _plus(total[at], self._grid(call.operands[0], names, depth, False)[()])
        found = names.sums[first] = [self._kept(x, True, depth) for x in total.flat]
        return found

    def _masked(self, pair: tuple[Operand, Operand], names: Names, depth: int) -> list[str] | None:
        """The elements of `lives.kept`; None if the contribution isn't in elements."""
        ct, x = pair
        if x not in names.elements or not is_short(ct) or ct.aval.shape != x.aval.shape:
            return None
        cts, xs = [self._cells(y, names, depth, True) for y in pair]
        return [
            self._assigned(f"{ZERO} if {c} == {ZERO} and {e} != {e} else {e}", depth)
            for c, e in zip(cts, xs, strict=True)
        ]

    def _read(self, call: Call, names: Names, depth: int) -> list[str]:
        """The elements of a part of an array, read one by one."""
        x, *steps = call.operands
        found = []
        for one in _each_place(call.primitive, call.outs[0].aval.shape):
            text = one.quick_text([names[x], *[self._name(step, names) for step in steps]])
            found.append(self._assigned(f"{names[x]}.item({text[len(names[x]) + 1 : -1]})", depth))
        return found

    def _written(self, call: Call, names: Names, depth: int) -> bool:
        """Write elements to a part of an array one by one, if they are in elements. Returns
        whether."""
        p: Any = call.primitive
        x, y, *steps = call.operands
        if y not in names.elements or y in names or p.name not in WRITES:
            return False
        further = [self._name(step, names) for step in steps]
        for one, element in zip(_each_place(p, y.aval.shape), names.elements[y], strict=True):
            self._line(depth, one.quick_text([names[x], element, *further]))
        return True
