"""Lowering: each call of the tape becomes a loop nest of its own; views become indices.

Nothing is merged here. A nest iterates over its result's axes (a reduction over its operand's), in
row-major order, and reads its operands through whatever views stand between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tapegrad.ir.plan import (
    Affine,
    ArgUpdate,
    At,
    Cell,
    CheckGuard,
    CheckRange,
    Compute,
    Failure,
    Gemm,
    Index,
    Indirect,
    Loop,
    Plan,
    PythonCall,
    Read,
    Step,
)
from tapegrad.ir.tape import Call, Literal, Operand, Tape, Var
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.base import Elementwise, Reduction, Slice
from tapegrad.primitives.contractions import MatMul
from tapegrad.primitives.reductions import ArgMax, ArgMin, CumProd, CumSum
from tapegrad.primitives.scatter import (
    Concatenate,
    Gather,
    Place,
    PlaceDiagonal,
    ScatterAdd,
    ScatterSet,
    SetItem,
)
from tapegrad.primitives.views import (
    BroadcastTo,
    Diagonal,
    ExpandDims,
    GetItem,
    Reshape,
    Squeeze,
    Transpose,
)

# Products of at most this many multiplications are loops: a BLAS call costs more.
SMALL_PRODUCT = 512

IDENTITY = {"sum": 0, "add": 0, "prod": 1, "any": False, "all": True}


def lower(tape: Tape, hints: Mapping[Var, str] | None = None) -> Plan:
    """The plan of one nest a call. `hints` are names for variables, for the emitted source."""
    return _Lowering(tape, hints or {}).plan()


def nest(indices: Sequence[Index], body: list[Step]) -> list[Step]:
    """The body under one loop for each index, outermost first; extents of 1 need no loop."""
    for index in reversed(indices):
        if index.extent != 1:
            body = [Loop(index, body)]
    return body


def indices_for(shape: Sequence[int]) -> list[Index]:
    return [Index(n) for n in shape]


def at_indices(indices: Sequence[Index]) -> At:
    return tuple(Affine.of(i) for i in indices)


class _Lowering:
    def __init__(self, tape: Tape, hints: Mapping[Var, str]) -> None:
        self.tape = tape
        self.hints = hints
        self.made: dict[Var, Call] = {out: c for c in tape.calls for out in c.outs}
        self.uses: dict[Var, int] = {}
        for call in tape.calls:
            for x in call.operands:
                if isinstance(x, Var):
                    self.uses[x] = self.uses.get(x, 0) + 1
        for x in (*tape.outputs, *(g.operand for g in tape.guards)):
            if isinstance(x, Var):
                self.uses[x] = self.uses.get(x, 0) + 1
        self.cells: dict[Var, Cell] = {}
        self.copies: dict[Var, Cell] = {}
        self.steps: list[Step] = []
        self.failures: list[Failure] = []
        self.checked: set[tuple[Var, int]] = set()
        self.absorbed: set[Var] = set()  # scatters that a sum adds to its result in place

    # ---- the whole

    def plan(self) -> Plan:
        tape = self.tape
        names = tape.names or ("",) * len(tape.inputs)
        inputs = []
        for var, name in zip(tape.inputs, names, strict=True):
            cell = Cell(var.shape, var.dtype, "input", name, scalar=var.shape == ())
            self.cells[var] = cell
            inputs.append(cell)
        self._find_scattered_sums()
        for call in tape.calls:
            self._call(call)
        for guard in tape.guards:
            self._guard(guard)
        outputs = self._outputs()
        return Plan(tape.name, inputs, outputs, self.steps, self.failures)

    def _outputs(self) -> list[Cell]:
        """A cell of its own for each output: computed into where possible, else copied into."""
        outputs, taken = [], set()
        names = self.tape.output_names or ("",) * len(self.tape.outputs)
        for x, name in zip(self.tape.outputs, names, strict=True):
            cell = self.cells.get(x) if isinstance(x, Var) else None
            own = cell is not None and cell.role == "temporary" and cell.alias is None
            if cell is not None and own and x.shape and x not in taken:
                cell.role = "output"
                cell.hint = name or cell.hint
                taken.add(x)
            else:
                cell = Cell(x.shape, x.dtype, "output", name or "out")
                self._copy_into(cell, lambda at, x=x: self.read(x, at))
            outputs.append(cell)
        return outputs

    def _copy_into(self, cell: Cell, read: Callable[[At], Read], src: Any = None) -> None:
        indices = indices_for(cell.shape)
        at = at_indices(indices)
        self.steps += nest(indices, [Compute(cell, at, ew.copy, (read(at),), src=src)])

    def _guard(self, guard: Any) -> None:
        self.failures.append(Failure("guard", guard.what, guard.src))
        read = self.read(guard.operand, ())
        self.steps.append(CheckGuard(read, guard.expected, len(self.failures), guard.src))

    # ---- reading

    def read(self, x: Operand, at: At) -> Read:
        """`x` at an index, through the views that define it."""
        while isinstance(x, Var) and x not in self.cells:
            call = self.made[x]
            through = _THROUGH.get(type(call.primitive))
            moved = through and through(call.primitive, at, call.operands[0].shape)
            if moved is None:
                break
            at, x = moved, call.operands[0]
        if isinstance(x, Literal):
            return Read(None, (), x)
        return Read(self.cell(x), at)

    def read_broadcast(self, x: Operand, at: At) -> Read:
        """`x` at an index of what it is broadcast to."""
        mine = at[len(at) - len(x.shape) :]
        return self.read(
            x, tuple(Affine() if n == 1 else k for k, n in zip(mine, x.shape, strict=True))
        )

    def cell(self, x: Var) -> Cell:
        """The cell of a variable; a reshape shares its operand's memory."""
        if x in self.cells:
            return self.cells[x]
        call = self.made[x]
        assert isinstance(call.primitive, Reshape), call
        (operand,) = call.operands
        base = self.materialized(operand)
        self.cells[x] = Cell(x.shape, x.dtype, "temporary", base.hint, call.src, alias=base)
        return self.cells[x]

    def materialized(self, x: Operand) -> Cell:
        """A cell that holds `x` whole, in row-major order: its own, or a copy."""
        if isinstance(x, Var) and x in self.cells:
            return self.cells[x]
        if isinstance(x, Var) and isinstance(self.made[x].primitive, Reshape):
            return self.cell(x)
        if isinstance(x, Var) and x in self.copies:
            return self.copies[x]
        cell = Cell(x.shape, x.dtype, src=self.made[x].src if isinstance(x, Var) else None)
        self._copy_into(cell, lambda at: self.read(x, at), cell.src)
        if isinstance(x, Var):
            self.copies[x] = cell
        return cell

    def result(self, call: Call) -> Cell:
        hint = self.hints.get(call.out, "ct" if call.reason.startswith("cotangent") else "")
        cell = Cell(call.out.shape, call.out.dtype, hint=hint, src=call.src)
        self.cells[call.out] = cell
        return cell

    # ---- calls

    def _call(self, call: Call) -> None:
        primitive = call.primitive
        if type(primitive) in _THROUGH:
            return  # read through where it is used
        if call.outs[0] in self.absorbed:
            return
        if isinstance(primitive, Elementwise) and primitive.scalar:
            self._elementwise(call)
        elif isinstance(primitive, ew.AsType):
            self._elementwise(call)
        elif isinstance(primitive, Reduction):
            self._reduction(call)
        else:
            rule = _RULES.get(type(primitive))
            if rule is None:
                self._python(call)
            else:
                rule(self, call)

    def _elementwise(self, call: Call) -> None:
        terms = self.scattered.get(call.out)
        if terms is not None:
            self._scattered_sum(call, terms)
            return
        cell = self.result(call)
        indices = indices_for(cell.shape)
        at = at_indices(indices)
        reads = tuple(self.read_broadcast(x, at) for x in call.operands)
        self.steps += nest(indices, [Compute(cell, at, call.primitive, reads, src=call.src)])

    def _reduction(self, call: Call) -> None:
        """Kept axes before the reduced ones accumulate in a register, others in the result."""
        (x,) = call.operands
        primitive: Any = call.primitive
        self._fold(call, x.shape, primitive.axes, primitive.name, ew.copy, lambda at: (self.read(x, at),))

    def _fold(
        self,
        call: Call,
        shape: tuple[int, ...],
        axes: tuple[int, ...],
        combine: str,
        primitive: Any,
        reads: Callable[[At], tuple[Read, ...]],
        order: Sequence[int] | None = None,
    ) -> None:
        """Fold `primitive(reads)` over `axes` of an iteration space, looping in this order."""
        cell = self.result(call)
        indices = indices_for(shape)
        at = at_indices(indices)
        order = list(range(len(shape)) if order is None else order)
        kept = [a for a in range(len(shape)) if a not in axes]
        target = tuple(at[a] for a in kept)
        # Reduced loops inside all kept ones, then the rest.
        inner: list[int] = []
        while order and order[-1] in axes:
            inner.insert(0, order.pop())
        outer = order
        wide = cell.dtype == np.float32 and combine == "sum"
        split = any(a in axes for a in outer)
        identity = _identity(combine, cell.dtype)
        if not split:
            acc = cell
            if wide or (inner and outer):  # a register, whatever becomes of the result
                acc = Cell(cell.shape, np.dtype(np.float64) if wide else cell.dtype, src=call.src)
            body: list[Step] = [_store(acc, target, _identity(combine, acc.dtype), call.src)]
            body += nest(
                [indices[a] for a in inner],
                [Compute(acc, target, primitive, reads(at), combine, call.src)],
            )
            if acc is not cell:
                done = ew.AsType(cell.dtype) if wide else ew.copy
                body.append(Compute(cell, target, done, (Read(acc, target),), src=call.src))
            self.steps += nest([indices[a] for a in outer], body)
            return
        fill = indices_for(cell.shape)
        self.steps += nest(fill, [_store(cell, at_indices(fill), identity, call.src)])
        if not inner:
            body = [Compute(cell, target, primitive, reads(at), combine, call.src)]
        else:
            part = Cell(shape, cell.dtype, src=call.src)
            part_at = tuple(at[a] if a in outer else Affine() for a in range(len(shape)))
            part = replace_shape(part, tuple(n if a in outer else 1 for a, n in enumerate(shape)))
            body = [_store(part, part_at, identity, call.src)]
            body += nest(
                [indices[a] for a in inner],
                [Compute(part, part_at, primitive, reads(at), combine, call.src)],
            )
            body.append(Compute(cell, target, ew.copy, (Read(part, part_at),), combine, call.src))
        self.steps += nest([indices[a] for a in outer], body)

    def _matmul(self, call: Call) -> None:
        x, y = call.operands
        *batch, rows, columns = call.out.shape
        depth = x.shape[-1]
        small = rows * columns * depth <= SMALL_PRODUCT or 1 in (rows, columns, depth)
        if small or depth == 0 or call.out.dtype.kind != "f":
            self._product_loops(call, tuple(batch), rows, columns, depth)
        else:
            self._gemm(call, tuple(batch))

    def _product_loops(
        self, call: Call, batch: tuple[int, ...], rows: int, columns: int, depth: int
    ) -> None:
        """The product as a sum over (batch, i, j, k), in the order that reads memory along rows."""
        x, y = call.operands
        nb = len(batch)
        i, j, k = nb, nb + 1, nb + 2

        def reads(at: At) -> tuple[Read, ...]:
            left = self.read_broadcast(x, (*at[:nb], at[i], at[k]))
            right = self.read_broadcast(y, (*at[:nb], at[k], at[j]))
            return left, right

        if depth == 1:  # an outer product sums nothing
            cell = self.result(call)
            indices = indices_for(cell.shape)
            at = at_indices(indices)
            step = Compute(cell, at, ew.mul, reads((*at, Affine())), src=call.src)
            self.steps += nest(indices, [step])
            return
        probe = indices_for((*batch, rows, columns, depth))
        left, right = (_fastest(r) for r in reads(at_indices(probe)))
        # The result's rows, and those of x and y, are read and written along memory if possible.
        if columns > 1 and right is probe[j]:
            order = [*range(nb), k, i, j] if left is probe[i] else [*range(nb), i, k, j]
        elif left is probe[i] and rows > 1:
            order = [*range(nb), k, j, i]
        else:
            order = [*range(nb), i, j, k]
        shape = (*batch, rows, columns, depth)
        self._fold(call, shape, (k,), "sum", ew.mul, reads, order)

    def _gemm(self, call: Call, batch: tuple[int, ...]) -> None:
        x, y = call.operands
        cell_x, x_swapped = self._matrix(x)
        cell_y, y_swapped = self._matrix(y)
        cell = self.result(call)
        indices = indices_for(batch)
        at = at_indices(indices)

        def batch_at(shape: tuple[int, ...]) -> At:
            own = shape[:-2]
            mine = at[len(at) - len(own) :]
            return tuple(Affine() if n == 1 else k for k, n in zip(mine, own, strict=True))

        step = Gemm(
            cell, cell_x, cell_y, at, batch_at(x.shape), batch_at(y.shape), x_swapped, y_swapped,
            call.src,
        )  # fmt: skip
        self.steps += nest(indices, [step])

    def _matrix(self, x: Operand) -> tuple[Cell, bool]:
        """A cell for a BLAS operand, and whether its last two axes stand swapped in it."""
        if isinstance(x, Var) and x not in self.cells:
            call = self.made[x]
            if isinstance(call.primitive, Transpose):
                n = len(x.shape)
                if call.primitive.axes == (*range(n - 2), n - 1, n - 2):
                    cell, swapped = self._matrix(call.operands[0])
                    return cell, not swapped
        return self.materialized(x), False

    # ---- scatters and gathers

    def _place(self, call: Call) -> None:
        cell = self.result(call)
        self._fill_around(cell, call.primitive.index, call.src)
        self._into(cell, call.primitive.index, call.operands[0], "", call.src)

    def _into(self, cell: Cell, index: Any, x: Operand, combine: str, src: Any) -> None:
        """`cell[index] = x`, or `+=`."""
        indices = indices_for([k.count for k in index if isinstance(k, Slice)])
        at = at_indices(indices)
        body: list[Step] = [Compute(cell, _index_map(index, at), ew.copy, (self.read(x, at),), combine, src)]
        self.steps += nest(indices, body)

    def _fill_around(self, cell: Cell, index: Any, src: Any) -> None:
        """Zeros outside a box; everywhere, if the index has gaps."""
        boxes = [k if isinstance(k, Slice) else Slice(k, 1) for k in index]
        zero = cell.dtype.type(0)
        if any(k.step != 1 for k in boxes):
            indices = indices_for(cell.shape)
            self.steps += nest(indices, [_store(cell, at_indices(indices), zero, src)])
            return
        for axis, (k, n) in enumerate(zip(boxes, cell.shape, strict=True)):
            before = Slice(0, k.start)
            after = Slice(k.start + k.count, n - k.start - k.count)
            for edge in (before, after):
                if edge.count == 0:
                    continue
                region = [*boxes[:axis], edge, *[Slice(0, m) for m in cell.shape[axis + 1 :]]]
                indices = indices_for([r.count for r in region])
                at = _index_map(region, at_indices(indices))
                self.steps += nest(indices, [_store(cell, at, zero, src)])

    def _place_diagonal(self, call: Call) -> None:
        cell = self.result(call)
        indices = indices_for(cell.shape)
        zero = cell.dtype.type(0)
        self.steps += nest(indices, [_store(cell, at_indices(indices), zero, call.src)])
        self._onto_diagonal(cell, call, "")

    def _onto_diagonal(self, cell: Cell, call: Call, combine: str) -> None:
        (x,) = call.operands
        offset = call.primitive.offset  # type: ignore[attr-defined]
        indices = indices_for(x.shape)
        at = at_indices(indices)
        row = at[-1].scaled(1, max(0, -offset))  # type: ignore[union-attr]
        column = at[-1].scaled(1, max(0, offset))  # type: ignore[union-attr]
        target = (*at[:-1], row, column)
        self.steps += nest(
            indices, [Compute(cell, target, ew.copy, (self.read(x, at),), combine, call.src)]
        )

    def _setitem(self, call: Call) -> None:
        x, y = call.operands
        cell = self._writable(call, x)
        self._into(cell, call.primitive.index, y, "", call.src)  # type: ignore[attr-defined]

    def _writable(self, call: Call, x: Operand) -> Cell:
        """A cell that starts with the values of `x`: its own if nobody reads it again."""
        old = self.cells.get(x) if isinstance(x, Var) else None
        dead = isinstance(x, Var) and self.uses[x] == 1
        if old is not None and dead and old.role == "temporary" and old.alias is None:
            self.cells[call.out] = old
            return old
        cell = self.result(call)
        self._copy_into(cell, lambda at: self.read(x, at), call.src)
        return cell

    def _concatenate(self, call: Call) -> None:
        cell = self.result(call)
        for index, x in zip(call.primitive.pieces(*call.operands), call.operands, strict=True):  # type: ignore[attr-defined]
            self._into(cell, index, x, "", call.src)

    def _gather(self, call: Call) -> None:
        x, *arrays = call.operands
        source = self.materialized(x)
        self._check_ranges(arrays, x.shape, call)
        cell = self.result(call)
        indices = indices_for(cell.shape)
        at = at_indices(indices)
        read = Read(source, self._indirect(arrays, x.shape, at))
        self.steps += nest(indices, [Compute(cell, at, ew.copy, (read,), src=call.src)])

    def _indirect(self, arrays: Sequence[Operand], shape: tuple[int, ...], at: At) -> At:
        """The index into an array of `shape` that index arrays give, at an index of the result."""
        n = len(arrays[0].shape)
        entries = [Indirect(self.read(a, at[:n]), shape[k]) for k, a in enumerate(arrays)]
        return (*entries, *at[n:])

    def _check_ranges(self, arrays: Sequence[Operand], shape: tuple[int, ...], call: Call) -> None:
        for axis, array in enumerate(arrays):
            if not isinstance(array, Var) or (array, shape[axis]) in self.checked:
                continue
            self.checked.add((array, shape[axis]))
            n = shape[axis]
            message = f"an index is out of bounds for axis {axis} with size {n}"
            self.failures.append(Failure("index", message, call.src))
            flag = Cell((), np.dtype(bool), hint="bad", src=call.src)
            indices = indices_for(array.shape)
            at = at_indices(indices)
            self.steps.append(_store(flag, (), False, call.src))
            low, high = (Read(None, (), Literal(np.int64(v))) for v in (-n, n))
            entry = self.read(array, at)
            self.steps += nest(
                indices,
                [
                    Compute(flag, (), ew.less, (entry, low), "any", call.src),
                    Compute(flag, (), ew.greater_equal, (entry, high), "any", call.src),
                ],
            )
            self.steps.append(CheckRange(flag, len(self.failures), call.src))

    def _scatter_add(self, call: Call) -> None:
        cell = self.result(call)
        indices = indices_for(cell.shape)
        zero = cell.dtype.type(0)
        self.steps += nest(indices, [_store(cell, at_indices(indices), zero, call.src)])
        self._add_scattered(cell, call)

    def _add_scattered(self, cell: Cell, call: Call) -> None:
        y, *arrays = call.operands
        self._check_ranges(arrays, cell.shape, call)
        self._scatter(cell, y, arrays, "add", call)

    def _scatter(self, cell: Cell, y: Operand, arrays: Sequence[Operand], combine: str, call: Call) -> None:
        indices = indices_for(y.shape)
        at = at_indices(indices)
        target = self._indirect(arrays, cell.shape, at)
        self.steps += nest(indices, [Compute(cell, target, ew.copy, (self.read(y, at),), combine, call.src)])

    def _scatter_set(self, call: Call) -> None:
        x, y, *arrays = call.operands
        self._check_ranges(arrays, x.shape, call)
        self._scatter(self._writable(call, x), y, arrays, "", call)

    # ---- sums of scatters: added in place instead of filled, filled and added

    def _find_scattered_sums(self) -> None:
        """Sums of which some term is a scatter that nobody else reads."""
        self.scattered: dict[Var, list[Operand]] = {}
        inner: set[Var] = set()
        for call in reversed(self.tape.calls):
            if call.primitive is not ew.add or call.out in inner:
                continue
            terms, sums = self._terms(call.out)
            found = [t for t in terms if self._is_scatter(t)]
            if found:
                self.scattered[call.out] = terms
                inner |= sums
                first = terms[0] if len(found) == len(terms) else None
                self.absorbed |= {t for t in found if isinstance(t, Var) and t is not first}
                if first is not None:
                    self.absorbed.add(first)  # type: ignore[arg-type]
        self.absorbed |= inner

    def _terms(self, out: Var) -> tuple[list[Operand], set[Var]]:
        """The terms of a sum, taken apart through sums that nobody else reads."""
        terms: list[Operand] = []
        inside: set[Var] = set()
        stack: list[Operand] = list(reversed(self.made[out].operands))
        while stack:
            x = stack.pop()
            call = self.made.get(x) if isinstance(x, Var) else None
            same = x.shape == out.shape
            if call and same and call.primitive is ew.add and self.uses[call.out] == 1:
                inside.add(call.out)
                stack += reversed(call.operands)
            else:
                terms.append(x)
        return terms, inside

    def _is_scatter(self, x: Operand) -> bool:
        call = self.made.get(x) if isinstance(x, Var) else None
        kinds = (Place, PlaceDiagonal, ScatterAdd)
        return call is not None and isinstance(call.primitive, kinds) and self.uses[call.out] == 1

    def _scattered_sum(self, call: Call, terms: list[Operand]) -> None:
        scatters = [t for t in terms if self._is_scatter(t)]
        dense = [t for t in terms if not self._is_scatter(t)]
        cell = self.result(call)
        if dense:
            indices = indices_for(cell.shape)
            at = at_indices(indices)
            body: list[Step] = []
            combine = ""
            for x in dense:
                read = self.read_broadcast(x, at)
                body.append(Compute(cell, at, ew.copy, (read,), combine, call.src))
                combine = "add"
            self.steps += nest(indices, body)
        else:
            scatters.sort(key=lambda t: not isinstance(self.made[t].primitive, Place))  # type: ignore[index]
            first = self.made[scatters.pop(0)]  # type: ignore[index]
            if isinstance(first.primitive, Place):
                self._fill_around(cell, first.primitive.index, first.src)
                self._into(cell, first.primitive.index, first.operands[0], "", first.src)
            else:
                indices = indices_for(cell.shape)
                zero = cell.dtype.type(0)
                self.steps += nest(indices, [_store(cell, at_indices(indices), zero, first.src)])
                scatters.insert(0, first.out)
        for x in scatters:
            made = self.made[x]  # type: ignore[index]
            if isinstance(made.primitive, Place):
                self._into(cell, made.primitive.index, made.operands[0], "add", made.src)
            elif isinstance(made.primitive, PlaceDiagonal):
                self._onto_diagonal(cell, made, "add")
            else:
                self._add_scattered(cell, made)

    # ---- along one axis

    def _running(self, call: Call) -> None:
        """Running sums and products: one register carried along the axis."""
        (x,) = call.operands
        primitive: Any = call.primitive
        combine = "add" if isinstance(primitive, CumSum) else "prod"
        axis, reverse = primitive.axis, getattr(primitive, "reverse", False)
        cell = self.result(call)
        indices = indices_for(cell.shape)
        at = list(at_indices(indices))
        if reverse:
            at[axis] = at[axis].scaled(-1, cell.shape[axis] - 1)  # type: ignore[union-attr]
        order = [a for a in range(len(at)) if a != axis]
        acc = Cell(tuple(cell.shape[a] for a in order), cell.dtype, src=call.src)
        acc_at = tuple(at[a] for a in order)
        step: list[Step] = [
            Compute(acc, acc_at, ew.copy, (self.read(x, tuple(at)),), combine, call.src),
            Compute(cell, tuple(at), ew.copy, (Read(acc, acc_at),), src=call.src),
        ]
        body = [_store(acc, acc_at, _identity(combine, cell.dtype), call.src)]
        body += nest([indices[axis]], step)
        self.steps += nest([indices[a] for a in order], body)

    def _arg(self, call: Call) -> None:
        (x,) = call.operands
        primitive: Any = call.primitive
        cell = self.result(call)
        indices = indices_for(x.shape)
        at = at_indices(indices)
        order = [a for a in range(len(at)) if a != primitive.axis]
        target = tuple(at[a] for a in order)
        start = tuple(Affine() if a == primitive.axis else k for a, k in enumerate(at))
        best = Cell(cell.shape, x.dtype, src=call.src)
        body: list[Step] = [
            Compute(best, target, ew.copy, (self.read(x, start),), src=call.src),
            _store(cell, target, 0, call.src),
        ]
        position = at[primitive.axis]
        assert isinstance(position, Affine)
        update = ArgUpdate(cell, best, target, self.read(x, at), position, primitive.better, call.src)
        body += nest([indices[primitive.axis]], [update])
        self.steps += nest([indices[a] for a in order], body)

    def _python(self, call: Call) -> None:
        reads = tuple(x if isinstance(x, Literal) else self.materialized(x) for x in call.operands)
        outs = []
        for out in call.outs:
            self.cells[out] = Cell(out.shape, out.dtype, src=call.src)
            outs.append(self.cells[out])
        self.steps.append(PythonCall(call.primitive, tuple(outs), reads, call.src))


def replace_shape(cell: Cell, shape: tuple[int, ...]) -> Cell:
    return replace(cell, shape=shape)


def _store(cell: Cell, at: At, value: Any, src: Any) -> Compute:
    literal = Literal(cell.dtype.type(value))
    return Compute(cell, at, ew.copy, (Read(None, (), literal),), src=src)


def _identity(combine: str, dtype: np.dtype) -> Any:
    if combine in IDENTITY:
        return IDENTITY[combine]
    if dtype.kind == "f":
        return -np.inf if combine == "max" else np.inf
    if dtype.kind == "b":
        return combine == "min"
    info = np.iinfo(dtype)
    return info.min if combine == "max" else info.max


def _fastest(read: Read) -> Index | None:
    """The loop index along which a read's elements lie next to each other."""
    last = read.at[-1] if read.at else None
    if isinstance(last, Affine) and len(last.terms) == 1:
        return last.terms[0][0]
    return None


# ---- views: the index of the operand, for an index of the result


def _index_map(index: Sequence[Any], at: At) -> At:
    """The index into an array, for an index into `array[index]`."""
    rest = iter(at)
    entries: list[Any] = []
    for k in index:
        if isinstance(k, int):
            entries.append(Affine((), k))
        else:
            entry = next(rest)
            assert isinstance(entry, Affine)
            entries.append(entry.scaled(k.step, k.start))
    return tuple(entries)


def _through_transpose(p: Any, at: At, shape: Any) -> At:
    entries: list[Any] = [None] * len(at)
    for k, axis in enumerate(p.axes):
        entries[axis] = at[k]
    return tuple(entries)


def _through_broadcast(p: Any, at: At, shape: tuple[int, ...]) -> At:
    mine = at[len(at) - len(shape) :]
    return tuple(Affine() if n == 1 else k for k, n in zip(mine, shape, strict=True))


def _through_expand(p: Any, at: At, shape: Any) -> At:
    return tuple(k for a, k in enumerate(at) if a not in p.axes)


def _through_squeeze(p: Any, at: At, shape: Any) -> At:
    rest = iter(at)
    return tuple(Affine() if a in p.axes else next(rest) for a in range(len(shape)))


def _through_diagonal(p: Any, at: At, shape: Any) -> At:
    last = at[-1]
    assert isinstance(last, Affine)
    row, column = last.scaled(1, max(0, -p.offset)), last.scaled(1, max(0, p.offset))
    return (*at[:-1], row, column)


def _through_reshape(p: Any, at: At, shape: tuple[int, ...]) -> At | None:
    """A reshape that only adds and removes axes of extent 1 moves indices; others don't."""
    long = [k for k, n in zip(at, p.shape, strict=True) if n != 1]
    if [n for n in p.shape if n != 1] != [n for n in shape if n != 1]:
        return None
    rest = iter(long)
    return tuple(Affine() if n == 1 else next(rest) for n in shape)


_THROUGH: dict[type, Callable[[Any, At, Any], At | None]] = {
    Reshape: _through_reshape,
    Transpose: _through_transpose,
    BroadcastTo: _through_broadcast,
    ExpandDims: _through_expand,
    Squeeze: _through_squeeze,
    GetItem: lambda p, at, shape: _index_map(p.index, at),
    Diagonal: _through_diagonal,
}

_RULES: dict[type, Callable[[_Lowering, Call], None]] = {
    MatMul: _Lowering._matmul,
    Place: _Lowering._place,
    PlaceDiagonal: _Lowering._place_diagonal,
    SetItem: _Lowering._setitem,
    Concatenate: _Lowering._concatenate,
    Gather: _Lowering._gather,
    ScatterAdd: _Lowering._scatter_add,
    ScatterSet: _Lowering._scatter_set,
    CumSum: _Lowering._running,
    CumProd: _Lowering._running,
    ArgMax: _Lowering._arg,
    ArgMin: _Lowering._arg,
}

