"""Products of matrices as text: what is multiplied is a part of an array, or its transpose."""

from __future__ import annotations

from typing import Any

from tapegrad.ir.plan import Gemm, Panel, Share


def emit_product(emitter: Any, step: Gemm) -> None:
    """`matmul(x, y, out)` or `add_matmul(x, y, out)`, for those who emit kernels."""
    sizes = [*map(emitter.entry, step.sizes or ())]
    own = step.share
    first = "" if own is None else _first_of(emitter, own)
    if own is not None and step.extents[own.axis] % own.size:  # the last chunk is shorter
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
    """A matrix in an array: the last two axes of it at an index, or its transpose, or along any
    axes."""
    for matrix, turned in ((panel, False), (panel.T, True)):
        if (first := matrix.first) is not None:
            return str(emitter.matrix(matrix.cell, first, turned))
    at, rows, columns = panel.left
    start = ", ".join(map(emitter.entry, at))
    along = rows[-1], columns[-1]
    return f"panel({emitter.array(panel.cell)}, ({start}), {along}, {panel.shape})"


def _first_of(emitter: Any, share: Share) -> str:
    """Where the part of a chunk begins: a variable of its kernel."""
    if share.size not in emitter.firsts:
        name = emitter.firsts[share.size] = emitter.names.fresh("first")
        emitter.line(f"{name} = {emitter.loops[share.chunk]} * {share.size}")
    return str(emitter.firsts[share.size])
