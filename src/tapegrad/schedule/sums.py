"""Lowering of sums whose terms are added in place: products of matrices, and scatters.

    %3 = matmul(%1, %2)                        matmul(x, y, t)
    %6 = matmul(%4, %5)                        add_matmul(z, w, t)
    %7 = add(%3, %6)                  -->      for i, j: h[i, j] = tanh(t[i, j] + b[j])
    %9 = add(%7, %8)
    %10 = tanh(%9)

Each product is added to one cell, the *total*, at its position on the tape, so its operands needn't
stay in memory. Scatters are added at the end of the sum.

The other terms are added by the loop that ends the sum: to the total if the sum is an output, else
in a register, since that loop can fuse with the readers of the sum. If the total started with these
terms, it would have to be stored for them and read again. With a single product nothing is lost,
since the loop is the one on the tape.

A total may be the transpose of the sum on the tape: products can be computed either way.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from tapegrad.ir.cells import Cell, Read
from tapegrad.ir.fold import ADD
from tapegrad.ir.steps import Compute
from tapegrad.ir.tape import Call, Var
from tapegrad.ir.updates import updated
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.base import Slice
from tapegrad.primitives.kinds import Moving, Scatter
from tapegrad.schedule.access import at_indices, nest
from tapegrad.schedule.boxes import add_boxes
from tapegrad.schedule.lowering import Lowering, OpenSum, Product, Reader, Total
from tapegrad.schedule.pieces import add_gathered, gathered
from tapegrad.schedule.products import is_gemm, swaps
from tapegrad.schedule.scatters import start_scattered, write


def find_sums(low: Lowering) -> None:
    """Find the sums to add up in place, each as large as possible."""
    found: dict[Var, OpenSum] = {}
    for call in low.tape.calls:
        terms = _terms(low, call, found)
        if terms is not None:
            found[call.outs[0]] = terms
    for call in low.tape.calls:
        if call.outs[0] in low.updates and isinstance(call.primitive, Moving):
            _add_to_state(low, call, found)
    order = {x: k for k, x in enumerate(low.made)}
    for out, terms in found.items():
        call = low.made[out]
        boxed = isinstance(call.primitive, Scatter) and terms.products
        if call.primitive is ew.add or swaps(call) or boxed:
            _plan_sum(low, call, terms, order)


def _terms(low: Lowering, call: Call, found: dict[Var, OpenSum]) -> OpenSum | None:
    """The terms of a call's result. It takes over the sums in `found` that only this call reads.
    None if the call isn't a term or a sum."""
    if is_gemm(call, low.open):
        return OpenSum(products=[Product(call.out)])
    if isinstance(call.primitive, Scatter) and call.primitive.onto == "zeros":
        return _boxed(low, call, found) or OpenSum(scatters=[call.out])
    if call.primitive is not ew.add and not swaps(call):
        return None
    mine = [x for x in call.operands if isinstance(x, Var) and x in found and low.uses[x] == 1]
    if swaps(call):
        if not mine or not _is_of_products(found[mine[0]]):
            return None
        terms = found.pop(mine[0])
        terms.products = [replace(p, swapped=not p.swapped) for p in terms.products]
        terms.inside += mine
        return terms
    mine = [x for x in mine if (x.shape, x.dtype) == (call.out.shape, call.out.dtype)]
    if not mine:
        return None
    terms, *others = (found.pop(x) for x in mine)
    terms.dense |= len(mine) < len(call.operands)
    terms.inside += mine
    for other in others:
        terms.products += other.products
        terms.scatters += other.scatters
        terms.inside += other.inside
        terms.dense |= other.dense
    return terms


def _is_of_products(terms: OpenSum) -> bool:
    """Whether all terms of a sum are products of its own shape."""
    return not terms.scatters and not terms.dense and all(p.box is None for p in terms.products)


def _boxed(low: Lowering, call: Call, found: dict[Var, OpenSum]) -> OpenSum | None:
    """The terms of a product that is placed in a box among zeros: it is added in the box. None for
    other calls."""
    x, *others = call.operands
    boxes = call.primitive.boxes(*call.operands)  # type: ignore[attr-defined]
    if others or len(boxes) != 1 or not isinstance(x, Var) or x not in found or low.uses[x] != 1:
        return None
    (box,) = boxes
    if not _is_of_products(found[x]) or any(isinstance(k, Slice) and k.step != 1 for k in box):
        return None
    terms = found.pop(x)
    terms.products = [replace(p, box=tuple(box)) for p in terms.products]
    terms.inside.append(x)
    return terms


def _add_to_state(low: Lowering, call: Call, found: dict[Var, OpenSum]) -> None:
    """Add products that are added to a loop-carried array to it directly."""
    primitive: Any = call.primitive
    x, y = call.operands[:2]
    while isinstance(x, Var) and x in low.updates:
        x = next(before for _, before, out in updated(low.made[x]) if out is x)
    cell = low.cells.get(x) if isinstance(x, Var) else None
    terms = found.get(y) if isinstance(y, Var) and low.uses[y] == 1 else None
    if cell is None or terms is None or not _is_of_products(terms):
        return
    if not primitive.adds or primitive.moves:
        return
    del found[y]  # type: ignore[arg-type]
    products = {p.x for p in terms.products}
    for inner in terms.inside:
        if low.made[inner].primitive is ew.add:
            low.inside.add(inner)
        elif inner not in products:
            low.absorbed.add(inner)
    if y not in products:
        low.inside.add(y)  # type: ignore[arg-type]
    low.totals.update({p.x: Total(cell, True, p.swapped) for p in terms.products})
    low.added[call.outs[0]] = cell


def _plan_sum(low: Lowering, call: Call, terms: OpenSum, order: dict[Var, int]) -> None:
    """Note the destinations of a sum's products, and the calls inside the sum that have no steps of
    their own."""
    low.sums[call.out] = terms
    products = {p.x: p for p in terms.products}
    for x in (*terms.scatters, *terms.inside):
        if low.made[x].primitive is ew.add:
            low.inside.add(x)
        elif x not in products:
            low.absorbed.add(x)
    if not products:
        return
    first, *later = sorted(products, key=lambda x: order[x])
    if terms.scatters or not terms.dense or call.out in low.tape.outputs:
        cell = low.result(call)
    else:
        cell = low.new_cell(first, low.made[first], call.out.shape)
    boxed = any(p.box is not None for p in terms.products)
    for x in (first, *later):
        p, is_first = products[x], x is first
        low.totals[x] = Total(cell, boxed or not is_first, p.swapped, p.box, boxed and is_first)


def inner_sum(low: Lowering, call: Call) -> None:
    """A sum inside another one: add the terms that aren't added in place, if there are any."""
    low.rests[call.out] = _rest(low, call)


def sum_in_place(low: Lowering, call: Call) -> None:
    """The end of a sum. Its products have been added to the total, if there are any."""
    terms = low.sums[call.out]
    rest = _rest(low, call)
    total = low.totals[terms.products[0].x].cell if terms.products else None
    cell = low.cells.get(call.out) or low.result(call)
    scattered = [low.made[x] for x in terms.scatters]
    scattered.sort(key=lambda c: not c.primitive.boxes(*c.operands))  # type: ignore[attr-defined]
    if total is None:
        gather = not any(low.fronts.of(call.out)) and gathered(low, cell.shape, scattered)
        if rest is None and add_boxes(low, cell, scattered):
            return
        if gather and add_gathered(low, cell, gather, rest, call.src):
            return
    if rest is not None:
        indices = low.indices_of(call.out)
        at = at_indices(indices)
        if total is None or total is cell:
            combine = None if total is None else ADD
            step = Compute(cell, at, ew.copy, (rest(at),), combine, call.src)
        else:
            step = Compute(cell, at, ew.add, (Read(total, at), rest(at)), src=call.src)
        low.steps += nest(indices, [step])
    elif total is None and start_scattered(low, cell, scattered[0]):
        del scattered[0]
    for scatter in scattered:
        write(low, cell, scatter, ADD)


def _rest(low: Lowering, call: Call) -> Reader | None:
    """The sum of the operands that aren't added in place; None if there are none."""
    parts = []
    for x in call.operands:
        reader: Reader | None = partial(low.read_broadcast, x)
        if isinstance(x, Var) and (x in low.totals or x in low.absorbed):
            reader = None
        elif isinstance(x, Var) and x in low.rests:
            reader = low.rests[x]
        if reader is not None:
            parts.append(reader)
    if len(parts) < 2:
        return parts[0] if parts else None
    cell = Cell(call.out.shape, call.out.dtype, src=call.src)
    indices = low.indices_of(call.out)
    at = at_indices(indices)
    reads = tuple(read(at) for read in parts)
    low.steps += nest(indices, [Compute(cell, at, ew.add, reads, src=call.src)])
    return lambda at: Read(cell, at)
