"""Numbers of half precision: float16 of NumPy, and bfloat16 of ml_dtypes.

They are kept so, and computed with in float32. On a tape that is differentiated all values are
float32, and `Rounded` is what `x.astype(np.float16)` makes of them: numbers that float16 has.
`Loaded` and `Stored` stand at the ends of a tape that answers calls, between it and the caller's
arrays. Kernels have such an array as one of uint16, the bits of its numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegrad.core.arrays import is_half
from tapegrad.ir.tape import Aval, Call
from tapegrad.ir.traits import PLAIN
from tapegrad.primitives.base import Parametric, parametric
from tapegrad.primitives.elementwise import AsType
from tapegrad.primitives.texts import dtype_called

SINGLE = np.dtype(np.float32)


class _Half(Parametric):
    """What has a dtype of half precision, `dtype`, on one side."""

    dtype: np.dtype
    pointwise = True
    cost = 8
    algebra = PLAIN

    def keeps_zeros(self, xs: Any, kept: Any) -> bool:
        return any(kept)

    def check(self, fits: bool, x: Aval) -> None:
        """A ValueError unless an operand fits."""
        if not (fits and is_half(self.dtype)):
            raise ValueError(f"{self} doesn't take {x}")


@parametric
class Rounded(_Half):
    """The nearest numbers that a dtype of half precision has, as float32; of two as near that with
    an even last digit. It moves as its operand does: the cotangent goes back unrounded."""

    dtype: np.dtype
    name = "rounded"

    @property
    def scalar(self) -> str:
        return f"from_{self.dtype.name}(to_{self.dtype.name}({{0}}))"

    def numpy_text(self, outs: Any, xs: Any, call: Call) -> list[str]:
        return [f"{outs[0]} = {xs[0]}.astype({dtype_called(self.dtype)}).astype(np.float32)"]

    def aval(self, *xs: Aval) -> Aval:
        self.check(xs[0].dtype.kind == "f", xs[0])
        return xs[0].with_dtype(SINGLE)

    def evaluate(self, *xs: Any) -> Any:
        return xs[0].astype(self.dtype).astype(SINGLE)

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        return (_as(xs[0].dtype, ct),)

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        return None if ts[0] is None else _as(SINGLE, ts[0])


def _as(dtype: np.dtype, x: Any) -> Any:
    return x if x.dtype == dtype else AsType(dtype)(x)


@parametric
class Loaded(_Half):
    """Numbers of this dtype as float32, which has all of them."""

    dtype: np.dtype
    name = "loaded"

    @property
    def scalar(self) -> str:
        return f"from_{self.dtype.name}({{0}})"

    def numpy_text(self, outs: Any, xs: Any, call: Call) -> list[str]:
        return [f"{outs[0]} = {xs[0]}.astype(np.float32)"]

    def aval(self, *xs: Aval) -> Aval:
        self.check(xs[0].dtype == self.dtype, xs[0])
        return xs[0].with_dtype(SINGLE)

    def evaluate(self, *xs: Any) -> Any:
        return xs[0].astype(SINGLE)

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        return (Stored(self.dtype)(ct),)

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        return None if ts[0] is None else self(ts[0])


@parametric
class Stored(_Half):
    """The numbers of this dtype that are nearest, as `Rounded` says."""

    dtype: np.dtype
    name = "stored"

    @property
    def scalar(self) -> str:
        return f"to_{self.dtype.name}({{0}})"

    def numpy_text(self, outs: Any, xs: Any, call: Call) -> list[str]:
        return [f"{outs[0]} = {xs[0]}.astype({dtype_called(self.dtype)})"]

    def aval(self, *xs: Aval) -> Aval:
        self.check(xs[0].dtype.kind == "f", xs[0])
        return xs[0].with_dtype(self.dtype)

    def evaluate(self, *xs: Any) -> Any:
        return xs[0].astype(self.dtype)

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        return (_as(xs[0].dtype, Loaded(self.dtype)(ct)),)

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        return None if ts[0] is None else self(ts[0])
