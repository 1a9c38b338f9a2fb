"""The state of lowering a tape: cells, steps, and reads of operands."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from tapegrad.ir.affine import Affine, Index
from tapegrad.ir.cells import UNBOUNDED, At, Cell, Indirect, Read
from tapegrad.ir.plan import Failure, Plan, with_cells
from tapegrad.ir.ranges import is_of_range
from tapegrad.ir.steps import CheckGuard, Compute, Step
from tapegrad.ir.tape import Aval, Call, Guard, Literal, Operand, Tape, Var
from tapegrad.ir.updates import in_place
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.kinds import Moving, ReadPart, StaticIndex, Unset, View
from tapegrad.schedule.access import at_indices, entries, indices_for, nest
from tapegrad.schedule.fronts import Fronts
from tapegrad.schedule.lengths import lengths, open_lengths

Reader = Callable[[At], Read]  # of a value, at an index of it


@dataclass(frozen=True)
class Product:
    """A product that is a term of a sum: itself or its transpose, added to a box of the sum or to
    all."""

    x: Var
    swapped: bool = False
    box: StaticIndex | None = None


@dataclass
class OpenSum:
    """A sum with terms that are added in place. Its inner sums have no other reader."""

    products: list[Product] = field(default_factory=list)
    scatters: list[Var] = field(default_factory=list)
    inside: list[Var] = field(default_factory=list)  # inner sums, and transposes of them
    dense: bool = False  # whether there are other terms


@dataclass(frozen=True)
class Total:
    """The destination of a product that is a term of a sum. It is stored or added, as it is or
    transposed, to the whole cell or to a box. With boxes, zeros are filled before the first
    product."""

    cell: Cell
    adds: bool
    swapped: bool
    box: StaticIndex | None = None
    is_first: bool = False


class Lowering:
    """The state of lowering one tape. The rules for calls are functions of it."""

    def __init__(
        self,
        tape: Tape,
        hints: Mapping[Var, str],
        plan_round: Callable[..., Plan],
        affine: Mapping[Var, Affine],
        carried: int,
        state: Collection[int],
        among: tuple[Index, ...],
    ) -> None:
        self.tape = tape
        self.hints = hints
        # For the body of a loop: the function that plans such bodies, the inputs that are affine
        # numbers of the indices around, the carried inputs, those that are updated in place, the
        # calls that may write over their operand, and the indices around.
        self.plan_round = plan_round
        self.indices = dict(affine)
        self.carried = set(tape.inputs[1 : 1 + carried])
        self.state = {tape.inputs[k] for k in state}
        writes = in_place(tape, state)
        self.updates = writes.results
        self.copied = {tape.calls[position].outs[0] for position in writes.copies}
        self.among = among
        self.open = open_lengths(tape)
        self.lengths = lengths(tape) | self.open
        self.made: dict[Var, Call] = {out: c for c in tape.calls for out in c.outs}
        for call in tape.calls:
            if (number := self.total(call)) is not None:
                self.indices[call.out] = number
        self.fronts = Fronts(tape, self.affine)
        self.uses: dict[Var, int] = {}
        for call in tape.calls:
            for x in call.operands:
                if isinstance(x, Var):
                    self.uses[x] = self.uses.get(x, 0) + 1
        for x in (*tape.outputs, *(g.operand for g in tape.guards)):
            if isinstance(x, Var):
                self.uses[x] = self.uses.get(x, 0) + 1
        self.defined: set[Var] = set(tape.inputs)
        self.unchecked = list(tape.guards)
        self.cells: dict[Var, Cell] = {}
        self.copies: dict[Var, Cell] = {}
        self.windows: dict[Var, Any] = {}  # stacks read from their parts' memory (`windows`)
        self.pieces: dict[Var, Any] = {}  # arrays that are read from their parts (`pieces`)
        self.steps: list[Step] = []
        self.failures: list[Failure] = []
        self.checked: set[tuple[Var, int]] = set()
        # Sums that are added up in place (see `sums`), by their last call; their inner sums, and
        # readers of the remaining terms of those; the destinations of products; and calls that are
        # only added in place.
        self.sums: dict[Var, OpenSum] = {}
        self.inside: set[Var] = set()
        self.rests: dict[Var, Reader | None] = {}
        self.totals: dict[Var, Total] = {}
        self.absorbed: set[Var] = set()
        self.added: dict[Var, Cell] = {}  # sums that are complete before their call: cells
        names = tape.names or ("",) * len(tape.inputs)
        for var, name in zip(tape.inputs, names, strict=True):
            if var not in self.indices:
                role = "state" if var in self.state else "input"
                self.cells[var] = Cell(var.shape, var.dtype, role, name, scalar=var.shape == ())

    def plan(self) -> Plan:
        """The plan, once every call is lowered. Guards are checked and outputs completed."""
        self.check_guards()
        outputs, own = self._outputs()
        inputs = tuple(self.cells[var] for var in self.tape.inputs if var not in self.indices)
        steps, failures = tuple(self.steps), tuple(self.failures)
        return with_cells(Plan(self.tape.name, inputs, outputs, steps, failures, self.among), own)

    def _outputs(self) -> tuple[tuple[Cell, ...], dict[Cell, Cell]]:
        """A cell for each output, and the temporaries that become outputs. An output that can't be
        computed in its own memory is copied."""
        outputs: list[Cell] = []
        becomes: dict[Cell, Cell] = {}
        numbers: list[Step] = []
        names = self.tape.output_names or ("",) * len(self.tape.outputs)
        for x, name in zip(self.tape.outputs, names, strict=True):
            cell = self.cells.get(x) if isinstance(x, Var) else None
            mine = self._memory_of(x)
            if mine is not None and mine not in becomes:
                leaving = None if mine.shape == x.shape else x.shape
                hint = name or mine.hint
                cell = replace(mine, role="output", hint=hint, leaving=leaving)
                becomes[mine] = cell
            elif cell is not None and x in self.carried and x.shape and cell not in outputs:
                pass  # unchanged carried values aren't copied
            elif cell is not None and cell.role == "state" and cell not in outputs:
                pass
            else:
                cell = Cell(x.shape, x.dtype, "output", name or "out")
                self.copy_into(cell, partial(self.read, x))
                if not x.shape and not self.among:
                    numbers.append(self.steps.pop())
            outputs.append(cell)
        if numbers:
            self._copy_early(numbers)
        return tuple(outputs), becomes

    def _memory_of(self, x: Operand) -> Cell | None:
        """The temporary whose memory an output is, in any shape. None if it has no memory of its
        own."""
        while isinstance(x, Var) and x not in self.cells and x in self.made:
            call = self.made[x]
            if self.among or not _relabels(call):
                break
            (x,) = call.operands
        cell = self.cells.get(x) if isinstance(x, Var) else None
        if cell is not None and not self.among:
            cell = cell.root
        own = cell is not None and cell.role == "temporary" and cell.alias is None and cell.shape
        return cell if own else None

    def _copy_early(self, copies: Sequence[Step]) -> None:
        """Move the copies of numbers to outputs to the steps that compute them, so that they aren't
        kernels after the last one."""
        written = {cell.root: 0 for step in copies for cell, _, _ in step.accesses()}
        for k, step in enumerate(self.steps, start=1):
            written.update((cell.root, k) for cell, _, writes in step.accesses() if writes)
        behind: dict[int, list[Step]] = {}
        for step in reversed(copies):
            place = max(written[cell.root] for cell, _, _ in step.accesses())
            behind.setdefault(place, []).append(step)
        steps = [
            step for k, own in enumerate(self.steps, start=1) for step in (own, *behind.get(k, ()))
        ]
        self.steps = [*behind.get(0, ()), *steps]

    def indices_of(self, x: Operand) -> list[Index]:
        """Indices over the elements of a value that are read."""
        return indices_for(x.shape, self.fronts.of(x))

    def copy_into(
        self,
        cell: Cell,
        read: Callable[[At], Read],
        src: Any = None,
        indices: list[Index] | None = None,
    ) -> None:
        indices = indices_for(cell.shape) if indices is None else indices
        at = at_indices(indices)
        self.steps += nest(indices, [Compute(cell, at, ew.copy, (read(at),), src=src)])

    def check_guards(self) -> None:
        """Check the guards whose variables are defined by now, unless they have been checked."""
        known = self.defined
        ready = [g for g in self.unchecked if isinstance(g.operand, Literal) or g.operand in known]
        self.unchecked = [g for g in self.unchecked if g not in ready]
        for guard in ready:
            self._guard(guard)

    def _guard(self, guard: Guard) -> None:
        kind = "range" if is_of_range(guard) else "guard"
        self.failures.append(Failure(kind, guard.what, guard.src, guard.error))
        read = self.read(guard.operand, ())
        self.steps.append(CheckGuard(read, guard.expected, len(self.failures), guard.src))

    def read(self, x: Operand, at: At) -> Read:
        """`x` at an index, read through the views that define it."""
        while isinstance(x, Var) and x not in self.cells and x not in self.indices:
            if x in self.windows:
                at, x = self.windows[x].read(at), self.windows[x].x
                continue
            if x in self.pieces:
                read = self.pieces[x].read(self, at)
                return Read(self.materialized(x), at) if read is None else read
            call = self.made[x]
            view: Any = call.primitive
            if x not in self.fronts.views and not isinstance(view, View):
                break
            if isinstance(view, Moving):
                at, x = self.in_larger(call, at), call.operands[0]
            elif (read := view.read(at, call.operands[0].shape)) is not None:
                at, x = entries(read), call.operands[0]
            else:
                break
            if any(isinstance(k, Indirect) for k in at):
                return Read(self.materialized(x), at)
        if isinstance(x, Literal):
            return Read(None, (), x)
        if x in self.indices:
            return Read(None, (self.indices[x],))
        if x not in self.cells and self.is_unset(x):  # read as a whole, as by NumPy
            return Read(None, (), Literal(x.dtype.type(0)))
        return Read(self.cell(x), at)

    def affine(self, x: Operand) -> Affine | None:
        """The affine number of the indices around that a scalar is; None if it isn't one."""
        if isinstance(x, Literal):
            whole = x.dtype.kind == "i" and abs(int(x.value)) < UNBOUNDED
            return Affine((), int(x.value)) if whole else None
        return self.indices.get(x)

    def place(self, primitive: Any, k: int, step: Operand, shape: tuple[int, ...]) -> Affine | None:
        """The affine number of step `k` of a moving index. None if the entry has to be read from a
        value. That is so if the entry may be outside of an array of this shape: NumPy takes -1 as
        the last one."""
        number, axis = self.affine(step), primitive.chosen(k)
        if number is None or axis is None:
            return number
        first, last = number.limited
        return number if first >= 0 and last < shape[axis] else None

    def total(self, call: Call) -> Affine | None:
        """The affine number that a sum or a product of affine numbers is; None for other calls."""
        if not is_sum_of_indices(call, self.indices):
            return None
        numbers = [self.affine(x) for x in call.operands]
        if None in numbers or not any(x.terms for x in numbers if x is not None):
            return None
        found = _TOTALS[call.primitive](*numbers)
        if found is None:
            return None
        return found if max(map(abs, found.range)) < 1 << 62 else None  # integers wrap around

    def in_larger(self, call: Call, at: At) -> At:
        """The index in the larger array of a call at an index, for the element `at` of the smaller
        array."""
        primitive: Any = call.primitive
        shape, steps, chosen = self.larger(call), [], {}
        for k, step in enumerate(primitive.steps(call.operands)):
            number = self.place(primitive, k, step, shape)
            if number is None:  # the entry is a value in memory
                axis = primitive.chosen(k)
                assert axis is not None, call
                chosen[axis] = Indirect(self.read(step, ()), shape[axis])
            steps.append(number or Affine())
        found = primitive.where.inside(primitive.where.places(steps), at)
        return tuple([chosen.get(axis, k) for axis, k in enumerate(entries(found))])

    def chosen(self, call: Call) -> dict[int, Operand] | None:
        """The axes along which a call's place is a value in memory, and these values. Other places
        are affine numbers of indices. None if a value determines the place in another way."""
        primitive, known = call.primitive, self.indices.keys()
        if not isinstance(primitive, Moving):
            return {}
        if not is_placed(call, known):
            return None
        shape, found = self.larger(call), {}
        for k, x in enumerate(primitive.steps(call.operands)):
            axis = primitive.chosen(k)
            if axis is not None and self.place(primitive, k, x, shape) is None:
                found[axis] = x
        return found

    @staticmethod
    def larger(call: Call) -> tuple[int, ...]:
        """The shape of the larger array of a call at an index."""
        reads = isinstance(call.primitive, (View, ReadPart))
        return call.operands[0].shape if reads else call.out.shape

    def stays(self, x: Operand) -> bool:
        """Whether `x` shows memory that rounds of a loop update in place."""
        cell = self.read(x, at_indices(indices_for(x.shape))).cell
        return cell is not None and cell.root.role == "state"

    def read_broadcast(self, x: Operand, at: At) -> Read:
        """`x` at an index of the shape to which it broadcasts."""
        mine = at[len(at) - len(x.shape) :]
        return self.read(
            x, tuple(Affine() if n == 1 else k for k, n in zip(mine, x.shape, strict=True))
        )

    def cell(self, x: Var) -> Cell:
        """The cell of a variable. A reshape shares its operand's memory."""
        if x in self.cells:
            return self.cells[x]
        call = self.made[x]
        assert _relabels(call), call
        (operand,) = call.operands
        base = self.materialized(operand)
        self.cells[x] = Cell(x.shape, x.dtype, "temporary", base.hint, call.src, alias=base)
        return self.cells[x]

    def part(self, x: Operand) -> tuple[Cell, At]:
        """A cell of which `x` is a part, in row-major order, and the first entries of its index."""
        return self.known_part(x) or (self.materialized(x), ())

    def known_part(self, x: Operand) -> tuple[Cell, At] | None:
        """The same, if nothing has to be copied for it; else None."""
        if isinstance(x, Var) and x not in self.cells and x not in self.indices and x.shape:
            at = at_indices(indices_for(x.shape))
            read = self.read(x, at)
            first = read.at[: len(read.at) - len(at)]
            whole = read.cell is not None and read.cell.shape[len(first) :] == x.shape
            whole = whole and read.at[len(first) :] == at and all(n != 1 for n in x.shape)
            plain = all(isinstance(k, Affine) for k in first) and not self._mentions(first, at)
            if whole and plain:
                assert read.cell is not None
                return read.cell, first
        return None

    @staticmethod
    def _mentions(first: At, at: At) -> bool:
        """Whether the first entries of an index depend on the indices of the others."""
        inner = {i for k in at if isinstance(k, Affine) for i, _ in k.terms}
        return any(i in inner for k in first if isinstance(k, Affine) for i, _ in k.terms)

    def materialized(self, x: Operand) -> Cell:
        """A cell with all of `x`, in row-major order: its own, or a copy."""
        if isinstance(x, Var) and x in self.cells:
            return self.cells[x]
        if isinstance(x, Var) and x in self.indices:
            large = False
        else:
            large = x.aval.size != 1  # a single element may have been passed by value
        if large and isinstance(x, Var) and _relabels(self.made[x]):
            return self.cell(x)
        if isinstance(x, Var) and x in self.copies:
            return self.copies[x]
        cell = Cell(x.shape, x.dtype, src=self._src(x))
        self.copy_into(cell, lambda at: self.read(x, at), cell.src, self.indices_of(x))
        if isinstance(x, Var):
            self.copies[x] = cell
        return cell

    def _src(self, x: Operand) -> Any:
        return self.made[x].src if x in self.made else None  # type: ignore[index]

    def result(self, call: Call) -> Cell:
        """A cell for a call's result."""
        (cell,) = self.results(call)
        return cell

    def results(self, call: Call) -> list[Cell]:
        """Cells for all results of a call."""
        for out in call.outs:
            self.cells[out] = self.new_cell(out, call, out.shape)
        return [self.cells[out] for out in call.outs]

    def new_cell(self, out: Var, call: Call, shape: tuple[int, ...]) -> Cell:
        """A cell of this shape, named after the variable `out`."""
        other = "ct" if call.reason.startswith("cotangent") else ""
        return Cell(shape, out.dtype, hint=self.hints.get(out, other), src=call.src)

    def writable(self, call: Call, x: Operand) -> Cell:
        """A cell that starts with the values of `x`: its own if nothing reads it later, else a
        copy."""
        old = self.place_of(x, call.out)
        if old is not None:
            self.cells[call.out] = old
            return old
        cell = self.result(call)
        if self.is_unset(x):
            return cell
        self.copy_into(cell, lambda at: self.read(x, at), call.src, self.indices_of(call.out))
        return cell

    def is_unset(self, x: Operand) -> bool:
        """Whether nothing has been written to an array yet."""
        return x in self.made and isinstance(self.made[x].primitive, Unset)  # type: ignore[index]

    def place_of(self, x: Operand, out: Var) -> Cell | None:
        """The cell of `x` if `out` may replace it in that memory; else None."""
        old = self.cells.get(x) if isinstance(x, Var) else None
        if old is not None and old.role == "state" and out in self.updates:
            return old
        return self.own_cell(x)

    def own_cell(self, x: Operand) -> Cell | None:
        """The cell of a temporary whose only reader may write over it; else None."""
        old = self.cells.get(x) if isinstance(x, Var) and self.uses[x] == 1 else None
        mine = old is not None and old.role == "temporary" and old.alias is None
        return old if mine else None


_COUNT = Aval((), np.dtype(np.int64))


def _product(x: Affine, y: Affine) -> Affine | None:
    if x.terms and y.terms:
        return None
    return x * y.const if x.terms else y * x.const


_TOTALS: dict[Any, Any] = {
    ew.add: operator.add,
    ew.sub: operator.sub,
    ew.mul: _product,
    ew.neg: operator.neg,
}


def is_placed(call: Call, indices: Collection[Operand]) -> bool:
    """Whether each step of a moving call is an index, a literal, or an entry by itself."""
    primitive: Any = call.primitive
    return all(
        isinstance(x, Literal) or x in indices or primitive.chosen(k) is not None
        for k, x in enumerate(primitive.steps(call.operands))
    )


def is_sum_of_indices(call: Call, indices: Collection[Operand]) -> bool:
    """Whether a call may be an affine number: a sum or a product of indices and literals."""
    return (
        call.primitive in (ew.add, ew.sub, ew.mul, ew.neg)
        and call.out.aval == _COUNT
        and all(isinstance(x, Literal) or x in indices for x in call.operands)
    )


def _relabels(call: Call) -> bool:
    """Whether a call's result is its operand's memory in another shape."""
    return isinstance(call.primitive, View) and call.primitive.relabels
