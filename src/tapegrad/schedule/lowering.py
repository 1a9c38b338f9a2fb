"""What lowering knows while it goes through a tape: cells, steps, and how operands are read."""

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
from tapegrad.primitives.kinds import Moving, StaticIndex, Taking, Unset, View
from tapegrad.schedule.access import at_indices, entries, indices_for, nest
from tapegrad.schedule.fronts import Fronts
from tapegrad.schedule.lengths import lengths, open_lengths

Reader = Callable[[At], Read]  # of a value, at an index of it


@dataclass(frozen=True)
class Product:
    """A product that is a term of a sum: itself or its transpose, which stands in a box of it."""

    x: Var
    swapped: bool = False
    box: StaticIndex | None = None


@dataclass
class OpenSum:
    """A sum with terms that are added in place, as far as nobody else reads what is inside it."""

    products: list[Product] = field(default_factory=list)
    scatters: list[Var] = field(default_factory=list)
    inside: list[Var] = field(default_factory=list)  # smaller sums, and transposes of them
    dense: bool = False  # whether there are other terms


@dataclass(frozen=True)
class Total:
    """Where a product goes that is a term of a sum: stored or added, itself or its transpose, to
    all of it or in a box. The first one of those that are in boxes is added to zeros."""

    cell: Cell
    adds: bool
    swapped: bool
    box: StaticIndex | None = None
    is_first: bool = False


class Lowering:
    """The state of lowering one tape; the rules for calls are functions of it."""

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
        # Of the body of a loop: how such bodies are planned; the inputs that are indices of loops
        # around; those that are carried, and those that stay in place; what may write over its
        # operand; those loops.
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
        self.windows: dict[Var, Any] = {}  # stacks that are read where their parts lie (`windows`)
        self.steps: list[Step] = []
        self.failures: list[Failure] = []
        self.checked: set[tuple[Var, int]] = set()
        # Sums that are added up in place (see `sums`), by the call that ends them; the smaller sums
        # inside these, and what is left of those for a loop; where products go; and what is only
        # added in place.
        self.sums: dict[Var, OpenSum] = {}
        self.inside: set[Var] = set()
        self.rests: dict[Var, Reader | None] = {}
        self.totals: dict[Var, Total] = {}
        self.absorbed: set[Var] = set()
        self.added: dict[Var, Cell] = {}  # sums that are complete by then, and where
        names = tape.names or ("",) * len(tape.inputs)
        for var, name in zip(tape.inputs, names, strict=True):
            if var not in self.indices:
                role = "state" if var in self.state else "input"
                self.cells[var] = Cell(var.shape, var.dtype, role, name, scalar=var.shape == ())

    def plan(self) -> Plan:
        """The plan, once every call is lowered: the guards are checked and outputs made whole."""
        self.check_guards()
        outputs, own = self._outputs()
        inputs = tuple(self.cells[var] for var in self.tape.inputs if var not in self.indices)
        steps, failures = tuple(self.steps), tuple(self.failures)
        return with_cells(Plan(self.tape.name, inputs, outputs, steps, failures, self.among), own)

    def _outputs(self) -> tuple[tuple[Cell, ...], dict[Cell, Cell]]:
        """A cell of its own for each output; and the temporaries that are outputs, as such. What
        can't be computed where it leaves is copied."""
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
                pass  # what a round leaves as it has found it isn't copied
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
        """The temporary whose memory an output is, under whichever shape; None if it has none, or
        that of something else."""
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
        """Have numbers leave where they are computed, not in kernels after the last."""
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
        """Indices over what is read of a value."""
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
        """Check the guards whose variables are defined by now, and that weren't checked yet."""
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
        """`x` at an index, through the views that define it."""
        while isinstance(x, Var) and x not in self.cells and x not in self.indices:
            if x in self.windows:
                at, x = self.windows[x].read(at), self.windows[x].x
                continue
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
        if x not in self.cells and self.is_unset(x):  # for who takes it whole, as NumPy does
            return Read(None, (), Literal(x.dtype.type(0)))
        return Read(self.cell(x), at)

    def affine(self, x: Operand) -> Affine | None:
        """The affine number that a scalar is, of the indices of loops around; None if it isn't."""
        if isinstance(x, Literal):
            whole = x.dtype.kind == "i" and abs(int(x.value)) < UNBOUNDED
            return Affine((), int(x.value)) if whole else None
        return self.indices.get(x)

    def place(self, primitive: Any, k: int, step: Operand, shape: tuple[int, ...]) -> Affine | None:
        """The affine number that step `k` of what moves is; None where a value says the entry. That
        is so where it may not be one of an array of this shape: -1 is the last one to NumPy."""
        number, axis = self.affine(step), primitive.chosen(k)
        if number is None or axis is None:
            return number
        first, last = number.limited
        return number if first >= 0 and last < shape[axis] else None

    def total(self, call: Call) -> Affine | None:
        """The affine number that a sum or a product of such numbers is; None of other calls."""
        if not is_sum_of_indices(call, self.indices):
            return None
        numbers = [self.affine(x) for x in call.operands]
        if None in numbers or not any(x.terms for x in numbers if x is not None):
            return None
        found = _TOTALS[call.primitive](*numbers)
        if found is None:
            return None
        return found if max(map(abs, found.range)) < 1 << 62 else None  # an integer wraps around

    def in_larger(self, call: Call, at: At) -> At:
        """An index of the larger array of a call with a place there, for one of what is taken from
        there or put there."""
        primitive: Any = call.primitive
        shape, steps, chosen = self.larger(call), [], {}
        for k, step in enumerate(primitive.steps(call.operands)):
            number = self.place(primitive, k, step, shape)
            if number is None:  # a value says which entry it is
                axis = primitive.chosen(k)
                assert axis is not None, call
                chosen[axis] = Indirect(self.read(step, ()), shape[axis])
            steps.append(number or Affine())
        found = primitive.where.inside(primitive.where.places(steps), at)
        return tuple([chosen.get(axis, k) for axis, k in enumerate(entries(found))])

    def chosen(self, call: Call) -> dict[int, Operand] | None:
        """The axes along which values say where a call's place is, and these; of others it is
        known, as a number of indices. None if a value says it in another way."""
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
        """The shape of the array in which a call has its place."""
        reads = isinstance(call.primitive, (View, Taking))
        return call.operands[0].shape if reads else call.out.shape

    def stays(self, x: Operand) -> bool:
        """Whether this shows memory in which a round of a loop updates what it carries."""
        cell = self.read(x, at_indices(indices_for(x.shape))).cell
        return cell is not None and cell.root.role == "state"

    def read_broadcast(self, x: Operand, at: At) -> Read:
        """`x` at an index of what it is broadcast to."""
        mine = at[len(at) - len(x.shape) :]
        return self.read(
            x, tuple(Affine() if n == 1 else k for k, n in zip(mine, x.shape, strict=True))
        )

    def cell(self, x: Var) -> Cell:
        """The cell of a variable; what relabels shares its operand's memory."""
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
        """The same, where nothing has to be copied for it."""
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
        """Whether the first entries of an index move with the others."""
        inner = {i for k in at if isinstance(k, Affine) for i, _ in k.terms}
        return any(i in inner for k in first if isinstance(k, Affine) for i, _ in k.terms)

    def materialized(self, x: Operand) -> Cell:
        """A cell that holds `x` whole, in row-major order: its own, or a copy."""
        if isinstance(x, Var) and x in self.cells:
            return self.cells[x]
        if isinstance(x, Var) and x in self.indices:
            large = False
        else:
            large = x.aval.size != 1  # a single element may have come by value
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
        """A cell for what a call defines."""
        (cell,) = self.results(call)
        return cell

    def results(self, call: Call) -> list[Cell]:
        """Cells for all that a call defines."""
        for out in call.outs:
            self.cells[out] = self.new_cell(out, call, out.shape)
        return [self.cells[out] for out in call.outs]

    def new_cell(self, out: Var, call: Call, shape: tuple[int, ...]) -> Cell:
        """A cell of this shape, named after what a call defines."""
        other = "ct" if call.reason.startswith("cotangent") else ""
        return Cell(shape, out.dtype, hint=self.hints.get(out, other), src=call.src)

    def writable(self, call: Call, x: Operand) -> Cell:
        """A cell that starts with the values of `x`: its own if nobody reads it again."""
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
        """Whether nothing stands in an array yet."""
        return x in self.made and isinstance(self.made[x].primitive, Unset)  # type: ignore[index]

    def place_of(self, x: Operand, out: Var) -> Cell | None:
        """The cell of `x` if `out` may be what stands there next; None if that is another's."""
        old = self.cells.get(x) if isinstance(x, Var) else None
        if old is not None and old.role == "state" and out in self.updates:
            return old
        return self.own_cell(x)

    def own_cell(self, x: Operand) -> Cell | None:
        """The cell of a variable that is read once, if what reads it may go on in it."""
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
    """Whether each step of a call that moves is an index, a number, or says which entry it is."""
    primitive: Any = call.primitive
    return all(
        isinstance(x, Literal) or x in indices or primitive.chosen(k) is not None
        for k, x in enumerate(primitive.steps(call.operands))
    )


def is_sum_of_indices(call: Call, indices: Collection[Operand]) -> bool:
    """Whether a call may be an affine number: a sum or a product of indices and numbers."""
    return (
        call.primitive in (ew.add, ew.sub, ew.mul, ew.neg)
        and call.out.aval == _COUNT
        and all(isinstance(x, Literal) or x in indices for x in call.operands)
    )


def _relabels(call: Call) -> bool:
    """Whether a call gives its operand's memory another shape."""
    return isinstance(call.primitive, View) and call.primitive.relabels
