"""Traceable versions of scipy.fftpack: the functions of scipy.fft, with real spectra for real
signals, and operators that multiply the spectrum."""

from __future__ import annotations

import importlib
import inspect
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from tapegrad.extending import answers_of, at_line, refusal
from tapegrad.extending.arrays import Tracer, fourier
from tapegrad.extending.primitives import OTHER
from tapegrad.extending.runs import original_of
from tapegrad.scipy import fft as ffts

HOME = "scipy.fftpack"
answers = answers_of(HOME)

BY_SCIPYS_CODE = "fftfreq"  # NumPy's own function


def _declare_one(name: str) -> None:
    def along_one(x: Any, n: Any = None, axis: int = -1) -> Any:
        return getattr(fourier, name)(fourier.floating(x), n, axis, None)

    answers(name)(along_one)


def _declare_several(name: str, default: Any) -> None:
    def along_several(x: Any, shape: Any = None, axes: Any = default) -> Any:
        return ffts._several(name.replace("2", "n"), fourier.floating(x), shape, axes, None)

    answers(name)(along_several)


for _name in ("fft", "ifft"):
    _declare_one(_name)
    _declare_several(f"{_name}n", None)
    _declare_several(f"{_name}2", (-2, -1))


# ---- real spectra: y0, Re y1, Im y1, Re y2, ...


@answers()
def rfft(x: Any, n: Any = None, axis: int = -1) -> Any:
    """The spectrum of a real signal, packed into real numbers."""
    x = np.moveaxis(ffts._real(fourier.floating(x)), axis, -1)
    n = x.shape[-1] if n is None else n
    y = fourier.rfft(x, n, -1, None)
    pairs = np.stack([y.real[..., 1:], y.imag[..., 1:]], -1)
    packed = np.concatenate([y.real[..., :1], pairs.reshape(*y.shape[:-1], -1)], -1)[..., :n]
    return np.moveaxis(packed, -1, axis)


@answers()
def irfft(x: Any, n: Any = None, axis: int = -1) -> Any:
    """The signal of a packed spectrum."""
    x = np.moveaxis(ffts._real(fourier.floating(x)), axis, -1)
    n = x.shape[-1] if n is None else operator.index(n)
    x = fourier.fitted(x, x.ndim - 1, n)
    zero = np.zeros_like(x[..., :1])
    real = np.concatenate([x[..., :1], x[..., 1::2]], -1)
    imag = np.concatenate([zero, x[..., 2::2], *[zero] * (n % 2 == 0)], -1)
    return np.moveaxis(fourier.irfft(real + 1j * imag, n, -1, None), -1, axis)


@answers()
def rfftfreq(n: Any, d: Any = 1.0) -> Any:
    """The frequencies of a packed spectrum."""
    n = operator.index(n)
    if n < 0:
        raise ValueError(f"{n} is no length")
    return np.arange(1, n + 1) // 2 / (n * d)


# ---- cosine and sine transforms; the inverse isn't scaled


def _declare_cosines(name: str) -> None:
    plain = name.removeprefix("i")

    def kind(type: Any) -> Any:
        return OTHER[type] if plain != name and type in OTHER else type

    def along_one(x: Any, type: int = 2, n: Any = None, axis: int = -1, norm: Any = None) -> Any:
        return ffts.cosines(plain, x, kind(type), n, axis, norm)

    def along_several(
        x: Any, type: int = 2, shape: Any = None, axes: Any = None, norm: Any = None
    ) -> Any:
        return ffts.cosines_of_axes(plain, x, kind(type), shape, axes, norm)

    answers(name)(along_one)
    answers(f"{name}n")(along_several)


for _name in ("dct", "idct", "dst", "idst"):
    _declare_cosines(_name)


# ---- operators on periodic sequences: convolutions with their response to 1, 0, 0, ...


def _declare_operator(name: str, original: Callable[..., Any]) -> None:
    def applied(x: Any, *parameters: Any, **named: Any) -> Any:
        if any(isinstance(p, Tracer) for p in (*parameters, *named.values())):
            raise refusal(
                f"scipy.fftpack.{name} is traced in the sequence alone{at_line()}: pass plain "
                "numbers for the others"
            )
        x = x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)
        impulse = np.zeros(len(x))
        impulse[:1] = 1.0
        if x.ndim != 1 or not len(x):
            raise ValueError(f"{name} is of a sequence")
        response = np.fft.rfft(original(impulse, *parameters, **named))
        parts = [x] if x.dtype.kind != "c" else [x.real, x.imag]
        parts = [np.fft.irfft(np.fft.rfft(part) * response, len(x)) for part in parts]
        return parts[0] if len(parts) == 1 else parts[0] + 1j * parts[1]

    known = inspect.signature(original).parameters.values()
    own = [p for p in known if not p.name.startswith("_")]
    applied.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
    answers(name)(applied)


_OPERATORS = "diff tilbert itilbert hilbert ihilbert cs_diff sc_diff ss_diff cc_diff shift"
for _name in _OPERATORS.split():
    _declare_operator(_name, original_of(getattr(importlib.import_module(HOME), _name)))
