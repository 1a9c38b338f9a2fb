"""numpy.fft on traced arrays. For another length, the array is truncated, or padded with zeros."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from tapegrad.primitives.base import Slice
from tapegrad.primitives.complexes import WHOLES
from tapegrad.primitives.fourier import FFT, IRFFT, RFFT, TURNED
from tapegrad.primitives.views import GetItem, Place
from tapegrad.tracing.frontend.operands.declaring import stands_for
from tapegrad.tracing.frontend.operands.operands import as_tracer, cast, store


def norm_of(norm: Any) -> str:
    norm = "backward" if norm is None else norm
    if norm not in TURNED:
        np.fft.fft(np.zeros(1), norm=norm)  # NumPy's own error
    return str(norm)


def floating(a: Any) -> Any:
    """The operand in a dtype that NumPy transforms: integers and booleans become float64."""
    a = as_tracer(a)
    return cast(a, np.float64) if a.dtype.kind in "iub" else a


def _check_length(n: Any) -> int:
    n = int(n)
    if n < 1:
        raise ValueError(f"Invalid number of FFT data points ({n}) specified.")
    return n


def fitted(x: Any, axis: int, n: int) -> Any:
    """`x` truncated to n elements along an axis, or padded with zeros."""
    count = x.shape[axis]
    index = [Slice(0, k) for k in x.shape]
    index[axis] = Slice(0, min(n, count))
    if n < count:
        return GetItem(tuple(index))(x)
    shape = (*x.shape[:axis], n, *x.shape[axis + 1 :])
    return Place(shape, tuple(index))(x) if n > count else x


def _stored(result: Any, out: Any) -> Any:
    return result if out is None else store(out, result)


def _along(a: Any, sizes: Sequence[int], axes: Sequence[int], norm: Any, inverse: bool) -> Any:
    """The transform along several axes, resized to these lengths."""
    norm = norm_of(norm)
    pairs = [
        (normalize_axis_index(axis, a.ndim), _check_length(n))
        for axis, n in zip(axes, sizes, strict=True)
    ]
    distinct = len({axis for axis, _ in pairs}) == len(pairs)
    for group in [pairs] if distinct else [[pair] for pair in reversed(pairs)]:
        for axis, n in group:
            a = fitted(a, axis, n)
        if group:
            a = FFT(tuple(axis for axis, _ in group), inverse, norm)(a)
    return a if a.dtype.kind == "c" else cast(a, WHOLES[a.dtype])


def _real_along(a: Any, n: Any, axis: int, norm: Any) -> Any:
    if a.dtype.kind == "c":
        np.fft.rfft(np.zeros(1, a.dtype))  # NumPy's own error
    axis = normalize_axis_index(axis, a.ndim)
    return RFFT(axis, norm_of(norm))(fitted(a, axis, _check_length(n)))


def _back_along(a: Any, n: Any, axis: int, norm: Any) -> Any:
    axis, n = normalize_axis_index(axis, a.ndim), _check_length(n)
    a = a if a.dtype.kind == "c" else cast(a, WHOLES[a.dtype])
    return IRFFT(axis, n, norm_of(norm))(fitted(a, axis, n // 2 + 1))


# ---- along one axis


def _one(name: str, inverse: bool) -> Callable[..., Any]:
    @stands_for(np.fft, name=name, of_complex=True)
    def transform(a: Any, n: Any = None, axis: int = -1, norm: Any = None, out: Any = None) -> Any:
        a = floating(a)
        n = a.shape[axis] if n is None else n
        return _stored(_along(a, [n], [axis], norm, inverse), out)

    return transform


fft, ifft = _one("fft", False), _one("ifft", True)


@stands_for(np.fft, of_complex=True)
def rfft(a: Any, n: Any = None, axis: int = -1, norm: Any = None, out: Any = None) -> Any:
    """np.fft.rfft."""
    a = floating(a)
    n = a.shape[axis] if n is None else n
    return _stored(_real_along(a, n, axis, norm), out)


@stands_for(np.fft, of_complex=True)
def irfft(a: Any, n: Any = None, axis: int = -1, norm: Any = None, out: Any = None) -> Any:
    """np.fft.irfft."""
    a = floating(a)
    n = (a.shape[axis] - 1) * 2 if n is None else n
    return _stored(_back_along(a, n, axis, norm), out)


@stands_for(np.fft, of_complex=True)
def hfft(a: Any, n: Any = None, axis: int = -1, norm: Any = None, out: Any = None) -> Any:
    """np.fft.hfft: the real spectrum of a Hermitian signal, given by its first half."""
    return irfft(np.conjugate(floating(a)), n, axis, TURNED[norm_of(norm)], out)


@stands_for(np.fft, of_complex=True)
def ihfft(a: Any, n: Any = None, axis: int = -1, norm: Any = None, out: Any = None) -> Any:
    """np.fft.ihfft."""
    return _stored(np.conjugate(rfft(a, n, axis, TURNED[norm_of(norm)])), out)


# ---- along several axes


def _sizes(a: Any, s: Any, axes: Any, halved: bool = False) -> tuple[list[Any], list[int]]:
    """The lengths and the axes of a transform, as NumPy reads its arguments."""
    if s is None:
        given = list(a.shape) if axes is None else [a.shape[k] for k in axes]
        sizes = given[:-1] + [(n - 1) * 2 for n in given[-1:]] if halved else given
    else:
        sizes = list(s)
        if axes is None:
            warnings.warn(
                "`axes` should not be `None` if `s` is not `None`", DeprecationWarning, stacklevel=5
            )
    axes = list(range(-len(sizes), 0)) if axes is None else list(axes)
    if len(sizes) != len(axes):
        raise ValueError("Shape and axes have different lengths.")
    known = [a.shape[k] for k in axes]
    own = [*known[:-1], (known[-1] - 1) * 2] if halved and known else known
    full = [k if n == -1 else n for n, k in zip(sizes, known, strict=True)]
    return [k if n is None else n for n, k in zip(full, own, strict=True)], axes


def _several(name: str, inverse: bool, default: Any) -> Callable[..., Any]:
    @stands_for(np.fft, name=name, of_complex=True)
    def transform(
        a: Any, s: Any = None, axes: Any = default, norm: Any = None, out: Any = None
    ) -> Any:
        a = floating(a)
        return _stored(_along(a, *_sizes(a, s, axes), norm, inverse), out)

    return transform


fft2, ifft2 = _several("fft2", False, (-2, -1)), _several("ifft2", True, (-2, -1))
fftn, ifftn = _several("fftn", False, None), _several("ifftn", True, None)


@stands_for(np.fft, of_complex=True)
def rfftn(a: Any, s: Any = None, axes: Any = None, norm: Any = None, out: Any = None) -> Any:
    """np.fft.rfftn: a real transform along the last axis, then complex ones along the others."""
    a = floating(a)
    sizes, axes = _sizes(a, s, axes)
    half = _real_along(a, sizes[-1], axes[-1], norm)
    return _stored(_along(half, sizes[:-1], axes[:-1], norm, False), out)


@stands_for(np.fft, of_complex=True)
def irfftn(a: Any, s: Any = None, axes: Any = None, norm: Any = None, out: Any = None) -> Any:
    """np.fft.irfftn."""
    a = floating(a)
    sizes, axes = _sizes(a, s, axes, halved=True)
    rest = _along(a, sizes[:-1], axes[:-1], norm, True)
    return _stored(_back_along(rest, sizes[-1], axes[-1], norm), out)


@stands_for(np.fft, of_complex=True)
def rfft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: Any = None, out: Any = None) -> Any:
    """np.fft.rfft2."""
    return rfftn(a, s, axes, norm, out)


@stands_for(np.fft, of_complex=True)
def irfft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: Any = None, out: Any = None) -> Any:
    """np.fft.irfft2."""
    return irfftn(a, s, axes, norm, out)
