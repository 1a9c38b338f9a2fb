"""Complex numbers: their parts, and the primitives that need special rules for them.

The cotangent of z = x + iy is g = dL/dx - i dL/dy, so that a real loss changes by Re(g dz). A
function with a complex derivative f' has the pullback g f'(z), without a conjugate. So functions
that are linear over the complex numbers, or have partials that are formulas in z, have the same
rules as for real numbers. All others are made of these four:

    u = real(z)       du = Re(dz)             g = ct_u
    v = imag(z)       dv = Im(dz)             g = -i ct_v
    w = conj(z)       dw = conj(dz)           g = conj(ct_w)
    z = x + iy        dz = dx + i dy          ct_x = Re(g), ct_y = -Im(g)

|z| is hypot(real(z), imag(z)) on a tape, so at 0 its slope is 0, by the convention of norms.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegrad.ir.tape import Aval
from tapegrad.ir.traits import Algebra
from tapegrad.primitives.base import Elementwise, broadcast_shapes

PARTS: dict[Any, np.dtype] = {
    np.dtype(np.complex64): np.dtype(np.float32),
    np.dtype(np.complex128): np.dtype(float),
}
WHOLES: dict[Any, np.dtype] = {part: whole for whole, part in PARTS.items()}


class _Part(Elementwise):
    """The real or the imaginary part of complex numbers."""

    def aval(self, *xs: Aval) -> Aval:
        return Aval(xs[0].shape, self.part_of(xs[0].dtype))

    @staticmethod
    def part_of(dtype: np.dtype) -> np.dtype:
        if dtype not in PARTS:
            raise ValueError(f"a part of {dtype}, which isn't complex")
        return PARTS[dtype]


class _Whole(Elementwise):
    """Complex numbers from their real and imaginary parts."""

    def aval(self, *xs: Aval) -> Aval:
        if xs[0].dtype != xs[1].dtype or xs[0].dtype not in WHOLES:
            raise ValueError(f"complex numbers of parts {xs[0]} and {xs[1]}")
        return Aval(broadcast_shapes(*[x.shape for x in xs]), WHOLES[xs[0].dtype])


def _real(z: Any) -> Any:
    return z.real.copy("K") if isinstance(z, np.ndarray) else z.real


def _imag(z: Any) -> Any:
    return z.imag.copy("K") if isinstance(z, np.ndarray) else z.imag


def _cartesian(x: Any, y: Any) -> Any:
    x, y = np.asarray(x), np.asarray(y)
    z: Any = np.empty(np.broadcast_shapes(x.shape, y.shape), WHOLES[x.dtype])
    z.real, z.imag = x, y
    return z[()]


def _all(xs: Any, kept: Any) -> bool:
    return all(kept)


def _nothing(x: Any) -> Any:
    return x.constant(0)


real: Elementwise = _Part(
    _real,
    name="real",
    scalar="real({0})",
    vjp=lambda ct, out, z: (cartesian(ct, _nothing(ct)),),
    jvp=lambda ts, out, z: real(ts[0]),
    numpy="np.real({0})",
    algebra=Algebra(additive=(0,)),
    of_complex=True,
)
imag: Elementwise = _Part(
    _imag,
    name="imag",
    scalar="imag({0})",
    vjp=lambda ct, out, z: (cartesian(_nothing(ct), -ct),),
    jvp=lambda ts, out, z: imag(ts[0]),
    numpy="np.imag({0})",
    algebra=Algebra(additive=(0,)),
    of_complex=True,
)
conj: Elementwise = Elementwise(
    np.conjugate,
    name="conj",
    times=lambda t, out, z: (conj(t),),
    numpy="np.conj({0})",
    algebra=Algebra(additive=(0,)),
    of_complex=True,
)
cartesian: Elementwise = _Whole(
    _cartesian,
    name="cartesian",
    scalar="cartesian({0}, {1})",
    vjp=lambda ct, out, x, y: (real(ct), -imag(ct)),
    jvp=lambda ts, out, x, y: cartesian(*[_nothing(x) if t is None else t for t in ts]),
    numpy="np.asarray({0}) + 1j * np.asarray({1})",
    algebra=Algebra(additive=(0, 1)),
    of_complex=True,
)


def conjugated(x: Any) -> Any:
    """The conjugate; a real number is unchanged."""
    return conj(x) if x.dtype.kind == "c" else x


def cast_back(ct: Any, dtype: np.dtype, astype: Any) -> Any:
    """A cotangent in the dtype of its primal. For a real primal that is the real part, since L
    changes by Re(ct dx)."""
    if ct.dtype.kind == "c" and dtype.kind != "c":
        ct = real(ct)
    return ct if ct.dtype == dtype else astype(dtype)(ct)
