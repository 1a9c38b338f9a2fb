"""Discrete Fourier transforms, computed by NumPy between kernels.

The matrix W of a transform, W_jk = exp(-2 pi i jk / n), is symmetric, so a transform is its own
transpose. For real numbers only half of the spectrum is kept, k = 0, ..., n // 2: the others are
conjugates. An element in the middle counts twice; the first one, and for an even n the last one,
count once. So the transposes double the middle, or halve it:

    Y = rfft(x)     ct_x = irfft(conj(G) / v), times n
    x = irfft(Y)    G = v conj(rfft(ct_x)), divided by n        v = 1, 2, 2, ..., 2, 1

`norm` is NumPy's: it decides the divisor of a transform. The transpose has the same divisor.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegrad.core.values import OWN
from tapegrad.ir.tape import Aval, Call
from tapegrad.primitives.base import Slice, parametric
from tapegrad.primitives.complexes import PARTS, WHOLES, conj
from tapegrad.primitives.kinds import AlongAxes, AlongAxis, Library, Linear
from tapegrad.primitives.scatter import Concatenate
from tapegrad.primitives.views import GetItem

# The norm with which the inverse has the same divisor
TURNED = {"backward": "forward", "ortho": "ortho", "forward": "backward"}


@parametric
class FFT(AlongAxes, Linear, Library):
    """The transform along `axes`, for real or complex numbers; with `inverse` the inverse
    transform."""

    axes: tuple[int, ...]
    inverse: bool
    norm: str

    name = "fft"
    memory = OWN
    of_complex = True

    def aval(self, *xs: Aval) -> Aval:
        (x,) = xs
        if any(x.shape[a] == 0 for a in self.axes):
            raise ValueError("Invalid number of FFT data points (0) specified.")
        return x.with_dtype(WHOLES.get(x.dtype, x.dtype))

    def evaluate(self, *xs: Any) -> Any:
        transform = np.fft.ifftn if self.inverse else np.fft.fftn
        return transform(xs[0], axes=self.axes, norm=self.norm)  # type: ignore[arg-type]

    def numpy_text(self, outs: Any, xs: Any, call: Call) -> list[str]:
        name = "ifftn" if self.inverse else "fftn"
        return [f"{outs[0]} = np.fft.{name}({xs[0]}, axes={self.axes}, norm={self.norm!r})"]

    def transpose(self, ct: Any, x: Aval) -> Any:
        return self(ct)


@parametric
class RFFT(AlongAxis, Linear, Library):
    """The first half of the transform of real numbers, along `axis`."""

    axis: int
    norm: str

    name = "rfft"
    memory = OWN
    of_complex = True

    def aval(self, *xs: Aval) -> Aval:
        (x,) = xs
        if x.dtype not in WHOLES:
            raise ValueError(f"rfft of {x}, which isn't real")
        shape = list(x.shape)
        shape[self.axis] = shape[self.axis] // 2 + 1
        return Aval(tuple(shape), WHOLES[x.dtype])

    def evaluate(self, *xs: Any) -> Any:
        return np.fft.rfft(xs[0], axis=self.axis, norm=self.norm)  # type: ignore[arg-type]

    def numpy_text(self, outs: Any, xs: Any, call: Call) -> list[str]:
        return [f"{outs[0]} = np.fft.rfft({xs[0]}, axis={self.axis}, norm={self.norm!r})"]

    def transpose(self, ct: Any, x: Aval) -> Any:
        n = x.shape[self.axis]
        return IRFFT(self.axis, n, TURNED[self.norm])(_weighted(conj(ct), self.axis, n, 0.5))


@parametric
class IRFFT(AlongAxis, Linear, Library):
    """The `n` real numbers of half of a spectrum, along `axis`: the inverse of `RFFT`."""

    axis: int
    n: int
    norm: str

    name = "irfft"
    memory = OWN
    of_complex = True

    def aval(self, *xs: Aval) -> Aval:
        (x,) = xs
        if x.dtype not in PARTS or x.shape[self.axis] != self.n // 2 + 1:
            raise ValueError(f"irfft of {x} to {self.n} real numbers")
        shape = list(x.shape)
        shape[self.axis] = self.n
        return Aval(tuple(shape), PARTS[x.dtype])

    def evaluate(self, *xs: Any) -> Any:
        return np.fft.irfft(xs[0], self.n, self.axis, self.norm)  # type: ignore[arg-type]

    def numpy_text(self, outs: Any, xs: Any, call: Call) -> list[str]:
        given = f"{self.n}, axis={self.axis}, norm={self.norm!r}"
        return [f"{outs[0]} = np.fft.irfft({xs[0]}, {given})"]

    def transpose(self, ct: Any, x: Aval) -> Any:
        spectrum = RFFT(self.axis, TURNED[self.norm])(ct)
        return _weighted(conj(spectrum), self.axis, self.n, 2.0)


def _weighted(spectrum: Any, axis: int, n: int, weight: float) -> Any:
    """Half of the spectrum of n real numbers, with the elements that count twice multiplied by
    `weight`."""
    count = spectrum.shape[axis]
    last = count - (n % 2 == 0)
    if last <= 1:
        return spectrum

    def part(start: int, stop: int) -> Any:
        index = [Slice(0, k) for k in spectrum.shape]
        index[axis] = Slice(start, stop - start)
        return GetItem(tuple(index))(spectrum)

    parts = [part(0, 1), part(1, last) * weight]
    return Concatenate(axis)(*parts, *([part(last, count)] if last < count else []))
