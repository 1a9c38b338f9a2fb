"""Loops of the tape become recurrences: the body gets a plan of its own, and the loop-carried
values get their memory.

Numbers are carried in registers. An array that rounds only update stays in its memory. Any other
array is written over an array that the round has read for the last time, preferably its own
predecessor. If there is none, it is written in spare memory, and the memory of its predecessor is
spare in the next round:

    for t: for i: new[i] = old[i - 1] + old[i + 1]
           old, new = new, old

If two of three arrays are only passed on, the third is written over the first. All of this is
renaming. The permutation of memory in each round is known, so each array starts where it must for
it to end in its own memory after the last round.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tapegrad.ir.affine import Affine, Index
from tapegrad.ir.cells import Cell, Read
from tapegrad.ir.inputs import unused
from tapegrad.ir.plan import Plan, Recurrence, cycle_of, walk
from tapegrad.ir.steps import PythonCall
from tapegrad.ir.tape import Call, Literal, Operand, Tape, Var
from tapegrad.ir.updates import kept_in_place
from tapegrad.primitives.base import Elementwise
from tapegrad.primitives.kinds import Library, Moving, Repeated, Routine, View
from tapegrad.schedule import dense
from tapegrad.schedule.buffers import assign, hands_over
from tapegrad.schedule.independent import as_nest, is_independent
from tapegrad.schedule.lowering import Lowering, is_placed, is_sum_of_indices

# Plans a body among indices. The arguments are the body, its inputs that are affine numbers of
# indices, the number of carried values, the inputs that stay in place, and the indices.
PlanRound = Callable[[Tape, Mapping[Var, Affine], int, Collection[int], tuple[Index, ...]], Plan]


@dataclass(frozen=True)
class Rotation:
    """The places of a round's arrays: where the round finds them (`homes`), where it leaves them
    (`leaves`), and the renaming of places after it (`turns`). A place is a number."""

    homes: tuple[int | None, ...]
    leaves: tuple[int | None, ...]
    turns: tuple[int, ...]
    handed: Mapping[Cell, Cell]  # results that are written over inputs

    def after(self, place: int, rounds: int) -> int:
        """The initial number of the memory that is at `place` after this many rounds."""
        cycle = cycle_of(self.turns, place)
        return cycle[rounds % len(cycle)]


def can_be_planned(body: Tape, affine: Collection[Var]) -> bool:
    """Whether kernels can run a body: no call in it needs NumPy."""
    known = {*affine}
    for call in body.calls:
        primitive = call.primitive
        if isinstance(primitive, Repeated):
            first = primitive.carried  # carried values change
            given = primitive.given(call.operands)[first:]
            pairs = zip(primitive.body.inputs[1 + first :], given, strict=True)
            inside = {v for v, x in pairs if x in known or isinstance(x, Literal)}
            if not can_be_planned(primitive.body, {primitive.body.inputs[0], *inside}):
                return False
        elif (isinstance(primitive, Library) and not isinstance(primitive, Routine)) or (
            isinstance(primitive, Moving) and not is_placed(call, known)
        ):
            return False
        elif is_sum_of_indices(call, known):
            known.add(call.out)
    return True


def loop(low: Lowering, call: Call) -> None:
    """A loop of the tape, as a recurrence, as a nest of independent rounds, or played by NumPy."""
    primitive: Any = call.primitive
    rounds: Any = call.operands[0]
    going, begin = primitive.going(call.operands), primitive.first(call.operands)
    body, given = _with_views(low, primitive, primitive.given(call.operands))
    count = primitive.carried
    index = Index(primitive.most, None if isinstance(rounds, Literal) else low.affine(rounds))
    affine = {body.inputs[0]: Affine.of(index)}
    for var, x in zip(body.inputs[1 + count :], given[count:], strict=True):
        if (number := low.affine(x)) is not None:
            affine[var] = number
    if not can_be_planned(body, affine):
        _played(low, call)
        return
    state = [k for k in kept_in_place(body, 1, count) if given[k].shape]
    plan = low.plan_round(body, affine, count, [1 + k for k in state], (*low.among, index))
    if any(isinstance(step, PythonCall) for step in walk(plan.steps)):
        _played(low, call)
        return
    ways = _rotation(plan, count)
    allocation = assign(plan, ways.handed)
    fixed = isinstance(rounds, Literal) and going is None and begin is None
    outs, begun = _outs(low, call, given, ways)
    places = _places(ways, outs, min(int(rounds.value), primitive.most) if fixed else None)
    reads = []
    for k, x in enumerate(given):
        if k < count and x.shape:
            home = ways.homes[k]
            assert home is not None
            if low.is_unset(x):
                reads.append(Read(None))
                continue
            if k not in begun:
                low.copy_into(places[home], partial(low.read, x), call.src)
            reads.append(Read(places[home]))
        elif body.inputs[1 + k] not in affine:
            reads.append(Read(*low.part(x)) if x.shape else _value(low, x))
    all_made = fixed and int(rounds.value) == int(index.extent)
    if all_made and index.extent not in (0, 1) and is_independent(plan, count):
        low.steps.append(as_nest(plan, index, outs, reads, low.materialized))
        return
    first = len(low.failures)
    low.failures += plan.failures
    low.steps.append(
        Recurrence(
            index,
            plan,
            _count(low, rounds),
            tuple(reads),
            tuple(outs),
            places,
            ways.homes,
            ways.leaves,
            ways.turns,
            allocation,
            tuple(Cell((slot.size,), slot.dtype) for slot in allocation.slots),
            primitive.backwards,
            first,
            call.src,
            None if going is None else _value(low, going),
            None if begin is None else _value(low, begin),
        )
    )


def _with_views(low: Lowering, loop: Any, given: Sequence[Operand]) -> tuple[Tape, list[Operand]]:
    """The body with the views that define its invariants, and the operands for it. If elements or
    windows of a view are read, the view is only an index inside the body, but would be a copy
    outside."""
    body, given = loop.body, list(given)
    while True:
        at = next(
            (k for k in range(loop.carried, len(given)) if _moves_in(low, body, given, k)), None
        )
        if at is None:
            return body, given
        x = given[at]
        assert isinstance(x, Var)
        view = low.made[x]
        var = body.inputs[1 + at]
        further = unused(body, [y.aval for y in view.operands])
        # An operand is a carried value's start only, so it isn't the same value.
        kept = slice(1 + loop.carried, None)
        known = dict(zip(body.inputs[kept], given[loop.carried :], strict=True))
        operands, inputs, values = [], [], []
        for new, y in zip(further, view.operands, strict=True):
            same = next((v for v, z in known.items() if z is y and isinstance(y, Var)), None)
            if isinstance(y, Literal) or (same is not None and same is not var):
                operands.append(y if same is None else same)
            else:
                operands.append(new)
                inputs.append(new)
                values.append(y)
        rest = [v for v in body.inputs if v is not var]
        call = Call(view.primitive, tuple(operands), (var,), view.src, view.reason)
        body = replace(
            body, inputs=(*rest, *inputs), names=(), calls=(call, *body.calls), form=None
        )
        given = [*given[:at], *given[at + 1 :], *values]


def _moves_in(low: Lowering, body: Tape, given: Sequence[Operand], k: int) -> bool:
    """Whether an invariant is a view that is better made in each round."""
    x = given[k]
    if not isinstance(x, Var) or not x.shape or x in low.cells or x not in low.made:
        return False
    view = low.made[x].primitive
    if not isinstance(view, View) or view.relabels or low.known_part(x) is not None:
        return False
    var = body.inputs[1 + k]
    readers = [c.primitive for c in body.calls if var in c.operands]
    kinds = (Moving, Elementwise)
    return all(isinstance(p, kinds) for p in readers) and var not in body.outputs


def _count(low: Lowering, rounds: Operand) -> Read:
    """The number of rounds. If it follows from the indices around, it isn't computed."""
    number = low.affine(rounds)
    if number is None or isinstance(rounds, Literal):
        return _value(low, rounds)
    return Read(None, (number,))


def _value(low: Lowering, x: Operand) -> Read:
    return Read(None, (), x) if isinstance(x, Literal) else Read(low.materialized(x))


def _played(low: Lowering, call: Call) -> None:
    """A loop that NumPy runs. Arrays that stay in place start in the memory of the results."""
    primitive: Any = call.primitive
    kept = kept_in_place(primitive.body, 1, primitive.carried)
    own = tuple([k for k in kept if call.outs[k].shape])
    first = len(call.operands) - len(primitive.given(call.operands))
    written = replace(call, primitive=replace(primitive, own=own))
    dense.python_call(low, written, {first + k: k for k in own})


def _rotation(plan: Plan, count: int) -> Rotation:
    """The places of the loop-carried arrays, from the reads and writes of a round's plan."""
    entering, leaving = plan.inputs[:count], plan.outputs[:count]
    homes: list[int | None] = []
    for cell in entering:
        homes.append(sum(h is not None for h in homes) if cell.shape else None)
    home_of = {cell: h for cell, h in zip(entering, homes, strict=True) if h is not None}
    free = [cell for cell in home_of if cell not in leaving]
    size = len(home_of)
    leaves: list[int | None] = []
    handed: dict[Cell, Cell] = {}
    for k, cell in enumerate(leaving):
        if not cell.shape:
            leaves.append(None)
        elif cell in home_of:
            leaves.append(home_of[cell])
        else:
            alike = [x for x in free if (x.shape, x.dtype) == (cell.shape, cell.dtype)]
            alike.sort(key=lambda x: x is not entering[k])
            taken = next((x for x in alike if hands_over(plan, x, cell)), None)
            if taken is None:
                leaves.append(size)
                size += 1
            else:
                free.remove(taken)
                handed[cell] = taken
                leaves.append(home_of[taken])
    turns: list[int | None] = [None] * size
    for home, leave in zip(homes, leaves, strict=True):
        if home is not None:
            turns[home] = leave
    left = iter([p for p in range(size) if p not in turns])
    return Rotation(
        tuple(homes),
        tuple(leaves),
        tuple([next(left) if p is None else p for p in turns]),
        handed,
    )


def _outs(
    low: Lowering, call: Call, given: Sequence[Operand], ways: Rotation
) -> tuple[list[Cell], set[int]]:
    """The cells of the loop's results, and the positions of those that hold the initial values
    already."""
    outs, begun = [], set()
    primitive: Any = call.primitive
    for k, out in enumerate(call.outs):
        home = ways.homes[k] if k < primitive.carried else None
        stays = home is not None and ways.turns[home] == home
        old = low.place_of(given[k], out) if stays else None
        if old is not None:
            low.cells[out] = old
            begun.add(k)
        else:
            low.cells[out] = low.new_cell(out, call, out.shape)
        outs.append(low.cells[out])
    return outs, begun


def _places(ways: Rotation, outs: Sequence[Cell], rounds: int | None) -> tuple[Cell, ...]:
    """The cells that are the places at first, chosen so that each array ends in its own cell. If
    the number of rounds isn't known, arrays that change places get separate cells."""
    cells: list[Cell | None] = [None] * len(ways.turns)
    kinds: list[Cell | None] = [None] * len(ways.turns)
    for home, leave, out in zip(ways.homes, ways.leaves, outs, strict=False):
        if home is not None and leave is not None:
            if rounds is not None:
                cells[ways.after(home, rounds)] = out
            elif ways.turns[home] == home:
                cells[home] = out
            kinds[home] = kinds[leave] = out
    found = []
    for cell, kind in zip(cells, kinds, strict=True):
        assert kind is not None
        found.append(cell or Cell(kind.shape, kind.dtype, hint=kind.hint, src=kind.src))
    return tuple(found)
