"""Numbers of half precision: float16 of NumPy, and bfloat16 of ml_dtypes.

They are stored in this dtype, and computed with in float32. On a tape that is differentiated all
values are float32. `x.astype(np.float16)` is `Rounded` there: float32 numbers that are exact in
float16. `Loaded` and `Stored` are at the ends of a compiled tape, between it and the caller's
arrays. Kernels see such an array as uint16, the bits of its numbers.
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
    """A conversion from or to a dtype of half precision, `dtype`."""

    dtype: np.dtype
    pointwise = True
    cost = 8
    algebra = PLAIN

    def keeps_zeros(self, xs: Any, kept: Any) -> bool:
        return any(kept)

    def check(self, fits: bool, x: Aval) -> None:
        """Raise a ValueError unless the operand fits."""
        if not (fits and is_half(self.dtype)):
            raise ValueError(f"{self} doesn't take {x}")


@parametric
class Rounded(_Half):
    """The nearest numbers of a dtype of half precision, as float32. Ties are rounded to an even
    last digit. The derivative is 1: the cotangent isn't rounded."""

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
    """Numbers of half precision as float32, which is exact."""

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
    """The nearest numbers of half precision, rounded as by `Rounded`."""

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
