"""Traceable versions of scipy.fft."""

from __future__ import annotations

import importlib
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from tapegrad.extending import answers_of, at_line, refusal
from tapegrad.extending.arrays import Tracer, fourier
from tapegrad.extending.primitives import OTHER, TURNED, Cosines, cartesian
from tapegrad.scipy.borrowing import borrow

HOME = "scipy.fft"
answers = answers_of(HOME)

REFUSED = {"fhtoffset": "a plain order and step"}


def _sizes(x: Any, s: Any, axes: Any) -> tuple[list[int], list[int]]:
    """The lengths and the numbers of the axes, as SciPy reads its arguments."""

    def integers(given: Any) -> list[int]:
        return [operator.index(k) for k in (given if np.iterable(given) else [given])]

    if axes is not None:
        axes = [normalize_axis_index(k, x.ndim) for k in integers(axes)]
        if len({*axes}) != len(axes):
            raise ValueError("all axes must be unique")
    if s is None:
        axes = [*range(x.ndim)] if axes is None else axes
        s = [x.shape[k] for k in axes]
    else:
        s = integers(s)
        if axes is None:
            axes = [*range(x.ndim - len(s), x.ndim)]
        if len(axes) != len(s) or len(s) > x.ndim:
            raise ValueError("when given, axes and shape arguments have to be of the same length")
        s = [x.shape[k] if n == -1 else n for n, k in zip(s, axes, strict=True)]
    if any(n < 1 for n in s):
        raise ValueError(f"invalid number of data points ({s}) specified")
    return s, axes


def _real(x: Any) -> Any:
    if x.dtype.kind == "c":
        raise TypeError("x must be a real sequence")
    return x


# ---- Fourier transforms


def _declare_one(name: str, transform: Callable[..., Any], real: bool = False) -> None:
    def along_one(x: Any, n: Any = None, axis: int = -1, norm: Any = None) -> Any:
        x = fourier.floating(x)
        return transform(_real(x) if real else x, n, axis, norm)

    answers(name)(along_one)


def _several(name: str, x: Any, s: Any, axes: Any, norm: Any) -> Any:
    """NumPy's transform along several axes, with the lengths as SciPy reads them."""
    given, (sizes, places) = s, _sizes(x, s, axes)
    if not places:
        if "r" in name:
            raise ValueError("at least 1 axis must be transformed")
        return x
    if given is None and name == "irfftn":
        sizes = [*sizes[:-1], 2 * (sizes[-1] - 1)]
    return getattr(fourier, name)(x, sizes, places, norm)


def _hfftn(x: Any, s: Any, axes: Any, norm: Any) -> Any:
    """The transform of a Hermitian symmetric signal."""
    return _several("irfftn", np.conjugate(x), s, axes, TURNED[fourier.norm_of(norm)])


def _ihfftn(x: Any, s: Any, axes: Any, norm: Any) -> Any:
    return np.conjugate(_several("rfftn", _real(x), s, axes, TURNED[fourier.norm_of(norm)]))


def _declare_several(name: str, transform: Callable[..., Any], default: Any) -> None:
    def along_several(x: Any, s: Any = None, axes: Any = default, norm: Any = None) -> Any:
        nothing = s is None and isinstance(axes, (list, tuple)) and not axes
        return transform(x if nothing else fourier.floating(x), s, axes, norm)

    answers(name)(along_several)


_TRANSFORMS: dict[str, Callable[..., Any]] = {
    "fft": lambda *given: _several("fftn", *given),
    "ifft": lambda *given: _several("ifftn", *given),
    "rfft": lambda x, *given: _several("rfftn", _real(x), *given),
    "irfft": lambda *given: _several("irfftn", *given),
    "hfft": _hfftn,
    "ihfft": _ihfftn,
}
for _name, _transform in _TRANSFORMS.items():
    _declare_one(_name, getattr(fourier, _name), real=_name in ("rfft", "ihfft"))
    _declare_several(f"{_name}2", _transform, (-2, -1))
    _declare_several(f"{_name}n", _transform, None)


# ---- cosine and sine transforms


def _transformed(
    name: str, x: Any, type: Any, sizes: list[int], axes: list[int], norm: Any, orthogonal: Any
) -> Any:
    norm, inverse = fourier.norm_of(norm), name[0] == "i"
    if type not in OTHER:
        raise ValueError("invalid type specified")
    orthogonal = norm == "ortho" if orthogonal is None or x.dtype.kind == "c" else bool(orthogonal)
    if inverse:
        type, norm = OTHER[type], TURNED[norm]
    for axis, n in zip(axes, sizes, strict=True):
        x = fourier.fitted(x, axis, n)
    if not axes:
        return x
    transform = Cosines("dst" in name, int(type), tuple(axes), norm, orthogonal)
    if x.dtype.kind == "c":
        return cartesian(transform(np.real(x)), transform(np.imag(x)))
    return transform(x)


def cosines(
    name: str, x: Any, type: Any, n: Any, axis: int, norm: Any, orthogonal: Any = None
) -> Any:
    """The transform along one axis, of length `n`."""
    x = fourier.floating(x)
    axis = normalize_axis_index(axis, x.ndim)
    n = x.shape[axis] if n is None else int(n)
    if n < 1:
        raise ValueError(f"invalid number of data points ({n}) specified")
    return _transformed(name, x, type, [n], [axis], norm, orthogonal)


def cosines_of_axes(
    name: str, x: Any, type: Any, shape: Any, axes: Any, norm: Any, orthogonal: Any = None
) -> Any:
    """The transform along several axes."""
    x = fourier.floating(x)
    return _transformed(name, x, type, *_sizes(x, shape, axes), norm, orthogonal)


def _declare_cosines(name: str) -> None:
    def along_one(
        x: Any,
        type: int = 2,
        n: Any = None,
        axis: int = -1,
        norm: Any = None,
        orthogonalize: Any = None,
    ) -> Any:
        return cosines(name, x, type, n, axis, norm, orthogonalize)

    def along_several(
        x: Any,
        type: int = 2,
        s: Any = None,
        axes: Any = None,
        norm: Any = None,
        orthogonalize: Any = None,
    ) -> Any:
        return cosines_of_axes(name, x, type, s, axes, norm, orthogonalize)

    answers(name, parameters="orthogonalize")(along_one)
    answers(f"{name}n", parameters="orthogonalize")(along_several)


for _name in ("dct", "idct", "dst", "idst"):
    _declare_cosines(_name)


# ---- frequencies


borrow(HOME, "fftfreq rfftfreq fftshift ifftshift")


# ---- Hankel transform


def _hankel(a: Any, dln: Any, mu: Any, offset: Any, bias: Any, inverse: bool) -> Any:
    """The transform as a convolution on the logarithmic scale, with SciPy's own coefficients u.
    The inverse divides the spectrum by them (A. Hamilton, "Uncorrelated modes of the non-linear
    power spectrum", 2000, appendix B)."""
    if any(isinstance(x, Tracer) for x in (dln, mu, offset, bias)):
        raise refusal(
            f"scipy.fft.{'i' * inverse}fht is traced in the array alone{at_line()}: pass plain "
            "numbers for the others"
        )
    coefficients = importlib.import_module("scipy.fft._fftlog_backend").fhtcoeff
    a = fourier.floating(a)
    n = a.shape[-1]
    centred = np.arange(n, dtype=np.float64) - (n - 1) / 2
    u = coefficients(n, dln, mu, offset=offset, bias=bias, inverse=inverse)
    way = -1 if inverse else 1
    before = offset if inverse else 0.0
    after = 0.0 if inverse else offset
    if bias != 0:
        a = a * np.exp(-way * bias * (centred * dln + before))
    if not inverse and np.isinf(u[0]):
        u = np.concatenate([[0.0], u[1:]])
    spectrum = np.fft.rfft(a, axis=-1)
    spectrum = spectrum / np.conj(u) if inverse else spectrum * u
    A = np.flip(np.fft.irfft(spectrum, n, axis=-1), -1)
    return A * np.exp(-way * bias * (centred * dln + after)) if bias != 0 else A


@answers()
def fht(a: Any, dln: Any, mu: Any, offset: Any = 0.0, bias: Any = 0.0) -> Any:
    """The Hankel transform of a sequence on a logarithmic scale."""
    return _hankel(a, dln, mu, offset, bias, False)


@answers()
def ifht(A: Any, dln: Any, mu: Any, offset: Any = 0.0, bias: Any = 0.0) -> Any:
    """The inverse Hankel transform."""
    return _hankel(A, dln, mu, offset, bias, True)
