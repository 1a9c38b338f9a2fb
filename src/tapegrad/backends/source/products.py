"""Matrix products as source: the operands are parts of arrays, or their transposes."""

from __future__ import annotations

import itertools
from typing import Any

from tapegrad.ir.affine import Affine
from tapegrad.ir.cells import Share
from tapegrad.ir.panels import Panel
from tapegrad.ir.steps import Gemm


def emit_product(emitter: Any, step: Gemm) -> None:
    """Write `matmul(x, y, out)` or `add_matmul(x, y, out)`."""
    sizes = [*map(emitter.entry, step.sizes or ())]
    own = step.share
    first = "" if own is None else _first_of(emitter, own)
    if own is not None and (emitter.program.axes or step.extents[own.axis] % own.size):
        # The last chunk is shorter, or may be.
        sizes = [*map(str, step.extents)]
        sizes[own.axis] = f"min({own.size}, {sizes[own.axis]} - {first})"

    def shown(panel: Panel, axes: tuple[int, int]) -> str:
        text = panel_text(emitter, panel)
        if own is None or own.axis not in axes:
            return text
        which = "row_part" if own.axis == axes[0] else "column_part"
        return f"{which}({text}, {first}, {own.size})"

    result, x, y = step.matrices
    given = [shown(*x), shown(*y), shown(*result), *sizes]
    name = "front_matmul" if sizes else "matmul"
    emitter.line(f"{'add_' * step.adds}{name}({', '.join(given)})")


def panel_text(emitter: Any, panel: Panel) -> str:
    """The expression of a matrix in an array: `x[i, :, j]`, a part or the transpose of that, or
    `panel(...)` for rows and columns along any axes."""
    at, rows, columns = panel.left
    if len(rows) > 1 or len(columns) > 1 or panel.ways:
        start = ", ".join(map(emitter.entry, at))
        along: tuple[int, ...] = rows[-1], columns[-1]
        if panel.ways:  # the number of row axes; each axis, extent and stride
            pairs = zip((*rows, *columns), itertools.chain(*panel.ways), strict=True)
            along = len(rows), *itertools.chain(*[(a, *way) for a, way in pairs])
        return f"panel({emitter.array(panel.cell)}, ({start}), {along}, {panel.shape})"
    extents = dict(zip((*rows, *columns), panel.shape, strict=True))
    index = [":" if a in extents else emitter.entry(k) for a, k in enumerate(at)]
    while index and index[-1] == ":":
        index.pop()
    text = (
        f"{emitter.array(panel.cell)}[{', '.join(index)}]" if index else emitter.array(panel.cell)
    )
    shape = panel.cell.shape if panel.cell.alias is not None else panel.cell.left
    for name, a in zip(("row_part", "column_part"), sorted(extents), strict=True):
        if (at[a], extents[a]) != (Affine(), shape[a]):
            text = f"{name}({text}, {emitter.entry(at[a])}, {extents[a]})"
    return text if rows < columns else f"{text}.T"


def _first_of(emitter: Any, share: Share) -> str:
    """The variable that holds the first row of a chunk."""
    if share.size not in emitter.firsts:
        name = emitter.firsts[share.size] = emitter.names.fresh("first")
        emitter.line(f"{name} = {emitter.loops[share.chunk]} * {share.size}")
    return str(emitter.firsts[share.size])
