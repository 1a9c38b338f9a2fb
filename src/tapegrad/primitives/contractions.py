"""Contractions: products that sum over a shared axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegrad.ir.tape import Aval, Call
from tapegrad.primitives.base import broadcast_shapes, parametric
from tapegrad.primitives.complexes import conjugated
from tapegrad.primitives.kinds import Bilinear, Contraction
from tapegrad.primitives.views import Transpose


@parametric
class MatMul(Bilinear, Contraction):
    """The matrix product of the last two axes; the axes before them broadcast."""

    name = "matmul"

    def aval(self, *xs: Aval) -> Aval:
        x, y = xs
        if x.shape[-1] != y.shape[-2]:
            raise ValueError(f"matmul: inner dimensions differ: {x} @ {y}")
        batch = broadcast_shapes(x.shape[:-2], y.shape[:-2])
        return x.with_shape((*batch, x.shape[-2], y.shape[-1]))

    def evaluate(self, *xs: Any) -> Any:
        return np.matmul(xs[0], xs[1])

    def numpy_text(self, outs: Any, xs: Any, call: Call) -> list[str]:
        return [f"{outs[0]} = {xs[0]} @ {xs[1]}"]

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        x, y = xs
        return self(ct, swapped(y)), self(swapped(x), ct)


matmul = MatMul()


def adjoint(x: Any) -> Any:
    """The conjugate transpose of the last two axes; of real matrices the transpose."""
    return conjugated(swapped(x))


def swapped(x: Any) -> Any:
    """The transpose of the last two axes."""
    *batch, rows, columns = range(x.ndim)
    return Transpose((*batch, columns, rows))(x)
