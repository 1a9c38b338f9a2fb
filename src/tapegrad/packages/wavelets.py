"""PyWavelets' transforms: convolutions of signals that are extended beyond their ends."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pywt

from tapegrad.extending import any_traced, declare, held, stands_for

_PERIODS, _MODES = pywt.Modes.periodization, {getattr(pywt.Modes, x): x for x in pywt.Modes.modes}

_NUMPYS = {
    **{"zero": "constant", "constant": "edge", "smooth": "edge"},
    "periodic": "wrap",
}


def _filtered(x: Any, places: Any, weights: Any) -> Any:
    """The weighted sums of the entries at `places`, which has a row for each result."""
    return x[..., places] @ np.asarray(weights, x.dtype)


def _going_on(x: Any, more: int, mode: Any) -> Any:
    """A signal extended by `more` entries beyond both ends."""
    size, name = x.shape[-1], _MODES[mode]
    at = np.arange(-more, size + more)
    if name == "antisymmetric":
        times, places = np.divmod(at, size)
        odd = times % 2
        signs = (1 - 2 * odd).astype(x.dtype)
        return x[..., np.where(odd, size - 1 - places, places)] * signs
    if name == "smooth" and size > 1:
        before, after = np.minimum(at, 0), np.maximum(at - size + 1, 0)
        before, after = before.astype(x.dtype), after.astype(x.dtype)
        ends = before * (x[..., 1:2] - x[..., :1]) + after * (x[..., -1:] - x[..., -2:-1])
        return x[..., np.clip(at, 0, size - 1)] + ends
    around = [(0, 0)] * (x.ndim - 1) + [(more, more)]
    if name == "antireflect":
        return np.pad(x, around, "reflect", reflect_type="odd")
    return np.pad(x, around, _NUMPYS.get(name, name))


def _parts(x: Any, wavelet: Any, mode: Any) -> Any:
    size, width = x.shape[-1], wavelet.dec_len
    back = np.arange(width)
    if mode == _PERIODS:
        x = np.concatenate([x, x[..., -1:]], -1) if size % 2 else x
        size = x.shape[-1]
        places = (2 * np.arange(size // 2)[:, None] + width // 2 - back) % size
    else:
        x = _going_on(x, width - 1, mode)
        places = 2 * np.arange((size + width - 1) // 2)[:, None] + width - back
    return _filtered(x, places, wavelet.dec_lo), _filtered(x, places, wavelet.dec_hi)


def _whole(low: Any, high: Any, wavelet: Any, mode: Any) -> Any:
    size, width = low.shape[-1], wavelet.rec_len
    back = np.arange(width)
    if mode == _PERIODS:
        at = np.arange(2 * size)[:, None] + width // 2 - 1 - back
        places = at % (2 * size)
    else:
        places = at = np.arange(2 * size - width + 2)[:, None] + width - 2 - back

    parts = (low, wavelet.rec_lo), (high, wavelet.rec_hi)
    a, b = (_filtered(_spread(x), places, weights) for x, weights in parts)
    return a + b


def _spread(x: Any) -> Any:
    """The entries with zeros in between."""
    return np.stack([x, np.zeros_like(x)], -1).reshape(*x.shape[:-1], 2 * x.shape[-1])


def _along(axis: int, f: Any, *xs: Any) -> Any:
    found = f(*[np.moveaxis(x, axis, -1) for x in xs])
    if isinstance(found, tuple):
        return tuple(np.moveaxis(x, -1, axis) for x in found)
    return np.moveaxis(found, -1, axis)


def _dwt(data: Any, wavelet: Any, mode: Any, axis: int = 0) -> Any:
    held(wavelet, "dec_lo", "dec_hi")
    return _along(axis, lambda x: _parts(x, wavelet, mode), data)


def _idwt(cA: Any, cD: Any, wavelet: Any, mode: Any) -> Any:
    return _idwt_along(cA, cD, wavelet, mode, 0)


def _idwt_along(coefs_a: Any, coefs_d: Any, wavelet: Any, mode: Any, axis: int = 0) -> Any:
    held(wavelet, "rec_lo", "rec_hi")
    return _along(axis, lambda a, d: _whole(a, d, wavelet, mode), coefs_a, coefs_d)


def _swt(
    data: Any, wavelet: Any, level: int, start_level: int, axis: int = 0, trim_approx: bool = False
) -> Any:
    """The stationary transform of periodic signals: at each level the step between entries
    doubles."""
    held(wavelet, "dec_lo", "dec_hi")
    size, width = data.shape[axis], wavelet.dec_len
    low, found = np.moveaxis(data, axis, -1), []
    for step in range(start_level, start_level + level):
        back = (width // 2 - np.arange(width)) << step
        places = (np.arange(size)[:, None] + back) % size
        low, high = (_filtered(low, places, w) for w in (wavelet.dec_lo, wavelet.dec_hi))
        found.append(tuple(np.moveaxis(y, -1, axis) for y in (low, high)))
    parts = found[::-1]
    return [parts[0][0], *(high for _, high in parts)] if trim_approx else parts


def _downcoef(do_dec_a: bool, data: Any, wavelet: Any, mode: Any, level: int) -> Any:
    """One part of the last level, computed from the approximations of the levels before."""
    held(wavelet, "dec_lo", "dec_hi")
    _check_level(level)
    for _ in range(level - 1):
        data, _high = _parts(data, wavelet, mode)
    return _parts(data, wavelet, mode)[0 if do_dec_a else 1]


def _upcoef(do_rec_a: bool, coeffs: Any, wavelet: Any, level: int, take: int) -> Any:
    """The reconstruction from one part alone: all of it, or `take` entries in the middle."""
    held(wavelet, "rec_lo", "rec_hi")
    if take < 0:
        raise OverflowError("can't convert negative value to size_t")
    _check_level(level)
    if not len(coeffs):
        raise RuntimeError("Invalid output length.")
    width = wavelet.rec_len
    for step in range(level):
        weights = wavelet.rec_lo if do_rec_a or step else wavelet.rec_hi
        places = np.arange(2 * len(coeffs) + width - 2)[:, None] + width - 1 - np.arange(width)
        coeffs = _filtered(np.pad(_spread(coeffs), width - 1), places, weights)
    cut = max(len(coeffs) - take, 0) if take > 0 else 0
    return coeffs[cut // 2 : len(coeffs) - cut // 2 - cut % 2]


def _check_level(level: int) -> None:
    if level < 1:
        raise ValueError("Value of level must be greater than 0.")


for _answer, _home, _names in (
    (_downcoef, "_dwt", "downcoef"),
    (_upcoef, "_dwt", "upcoef"),
    (_dwt, "_dwt", "dwt_single dwt_axis"),
    (_idwt, "_dwt", "idwt_single"),
    (_idwt_along, "_dwt", "idwt_axis"),
    (_swt, "_swt", "swt swt_axis"),
):
    vars(_answer)["notes"] = (pywt.Wavelet,)  # `held` notes what is read of them
    for _name in _names.split():
        stands_for(f"pywt._extensions.{_home}", _name)(_answer)


def _dtype(data: Any) -> Any:
    return data.dtype if data.dtype.char in "fFD" else np.dtype(float)


declare(importlib.import_module("pywt._extensions._pywt"), "_check_dtype", _dtype, when=any_traced)
