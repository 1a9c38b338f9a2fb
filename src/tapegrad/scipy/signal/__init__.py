"""Traceable versions of the functions of scipy.signal. Most are SciPy's own Python code, run with
traceable Fourier transforms, linear filters, and the kernels below."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
from scipy import signal

from tapegrad.extending import stands_for
from tapegrad.extending.arrays import Tracer, floating
from tapegrad.extending.primitives import LinearFilter
from tapegrad.extending.runs import library_code, row_of
from tapegrad.scipy.borrowing import borrow, borrow_classes, borrow_objects, converting, kernels
from tapegrad.scipy.signal import peaks, splines  # noqa: F401 # they declare what they have
from tapegrad.scipy.stencils import correlated, filters, padded, parts, picked

HOME = "scipy.signal"

REFUSED = {
    "find_peaks_cwt": "scipy.signal.find_peaks",
    "unique_roots": "numpy.roots, and group what it finds",
    "remez": "scipy.signal.firls or firwin2",
    "place_poles": "scipy.linalg.solve_continuous_are or solve_discrete_are for a gain",
    "gammatone": "scipy.signal.lfilter, with the coefficients written out",
    "buttap besselap": "a plain order",
    "ellipap": "plain ripples; the frequencies of scipy.signal.ellip are followed",
    "correlation_lags max_len_seq": "plain integers",
}


@stands_for(HOME)
def lfilter(b: Any, a: Any, x: Any, axis: int = -1, zi: Any = None) -> Any:
    """The y with a_0 y_t + a_1 y_(t-1) + ... = b_0 x_t + b_1 x_(t-1) + ... along `axis`. With the
    filter's state `zi` before the first element, also its state after the last element.

    The state is that of the transposed direct form II: the contributions to the next outputs. For
    an input of zeros the output is 1 / A(z) zi.
    """
    b, a, x = floating(np.atleast_1d(b), np.atleast_1d(a), x)
    if b.ndim != 1 or a.ndim != 1 or not (b.size and a.size):
        raise ValueError("object of too small depth for desired array")
    rows = np.moveaxis(x, axis, -1)
    y = LinearFilter()(b, a, rows)
    if zi is None:
        return np.moveaxis(y, -1, axis)
    order, n = max(b.size, a.size) - 1, rows.shape[-1]
    state = np.moveaxis(floating(zi, x)[0], axis, -1)
    state = np.broadcast_to(state, (*rows.shape[:-1], order))
    rest = np.zeros((*rows.shape[:-1], max(0, n - order)), state.dtype)
    waiting = np.concatenate([state, rest], axis=-1)
    y = y + LinearFilter()(np.ones_like(a[:1]), a / a[0], waiting[..., :n])
    if a.size > 1:  # else SciPy convolves, without terms of y
        b, a = (np.pad(c, (0, order + 1 - c.size)) for c in (b, a))
    last = [_state(b / a[0], a / a[0], rows, y, waiting, k) for k in range(order)]
    final = np.stack(last, axis=-1) if last else state
    return np.moveaxis(y, -1, axis), np.moveaxis(final, -1, axis)


def _state(b: Any, a: Any, x: Any, y: Any, waiting: Any, k: int) -> Any:
    """Element k of the state after the last element: the contribution of the known inputs and
    outputs to the output k steps later."""
    n = x.shape[-1]
    out: Any = waiting[..., n + k] if n + k < waiting.shape[-1] else 0.0 * waiting[..., 0]
    for lag in range(k + 1, max(b.size, a.size)):
        t = n + k - lag
        if t < 0:
            continue
        if lag < b.size:
            out = out + b[lag] * x[..., t]
        if lag < a.size:
            out = out - a[lag] * y[..., t]
    return out


def _whose_first_is_1(b: Any, a: Any) -> list[Any]:
    """The filter's coefficients divided by a[0], even if that is 1. SciPy doesn't divide by 1, and
    then the derivative along a[0] would be lost."""
    b, a = np.atleast_1d(b), np.atleast_1d(a)
    if b.ndim != 1 or a.ndim != 1:
        return [b, a]
    a = np.trim_zeros(a, "f") if a.size > 1 and a[0] == 0 else a
    return [b / a[0], a / a[0]]


@stands_for(HOME)
def lfilter_zi(b: Any, a: Any) -> Any:
    """The state that a constant input of 1 leaves unchanged."""
    return _at_rest(*_whose_first_is_1(b, a))


@stands_for(HOME)
def lfiltic(b: Any, a: Any, y: Any, x: Any = None) -> Any:
    """The filter's state after these inputs and outputs."""
    return _after(*_whose_first_is_1(b, a), y, x)


_at_rest, _after = (
    library_code.borrowed(f, inspect.unwrap(f)) for f in (signal.lfilter_zi, signal.lfiltic)
)


@stands_for(HOME)
def sosfilt(sos: Any, x: Any, axis: int = -1, zi: Any = None) -> Any:
    """A cascade of second-order filters, one for each row of `sos`: b_0, b_1, b_2, a_0 = 1, a_1,
    a_2."""
    sos = np.atleast_2d(sos)
    if sos.ndim != 2:
        raise ValueError("sos array must be 2D")
    if sos.shape[1] != 6:
        raise ValueError("sos array must be shape (n_sections, 6)")
    states = []
    for k, section in enumerate(sos):
        if zi is None:
            x = lfilter(section[:3], section[3:], x, axis)
        else:
            x, state = lfilter(section[:3], section[3:], x, axis, zi[k])
            states.append(state)
    return x if zi is None else (x, np.stack(states))


@stands_for(HOME)
def upfirdn(
    h: Any,
    x: Any,
    up: int = 1,
    down: int = 1,
    axis: int = -1,
    mode: Any = "constant",
    cval: Any = 0,
) -> Any:
    """Upsample, filter and downsample: `x` with `up` - 1 zeros between its elements, filtered by
    `h`; of the result every `down`-th element. `mode` says how `x` continues beyond its ends."""
    h, x = floating(h, x)
    rows = np.moveaxis(x, axis, -1)
    if not (mode in (None, "constant", "zero") and _is_zero(cval)):
        beyond = -(-(h.size - 1) // up)  # the filter's reach on each side, in elements
        length = (rows.shape[-1] - 1) * up + h.size
        whole = upfirdn(h, _extended(rows, beyond, mode, cval), up)
        return np.moveaxis(whole[..., beyond * up :][..., :length:down], -1, axis)
    taps = -(-h.size // up)  # filter weights that meet elements, not inserted zeros
    phases = np.reshape(np.pad(h, (0, taps * up - h.size)), (taps, up))
    wide = np.pad(rows, [(0, 0)] * (rows.ndim - 1) + [(taps - 1, taps - 1)])
    windows = np.lib.stride_tricks.sliding_window_view(wide, taps, axis=-1)
    y = np.reshape(windows @ phases[::-1], (*rows.shape[:-1], -1))
    return np.moveaxis(y[..., : (rows.shape[-1] - 1) * up + h.size : down], -1, axis)


def _is_zero(x: Any) -> bool:
    return not isinstance(x, Tracer) and x == 0


def _extended(rows: Any, count: int, mode: str, cval: Any) -> Any:
    """Rows with `count` more elements at both ends, by the modes of `upfirdn`."""
    around = [(0, 0)] * (rows.ndim - 1) + [(count, count)]
    pad: Any = np.pad
    if mode in ("edge", "wrap", "symmetric", "reflect"):
        return pad(rows, around, mode)
    if mode == "antireflect":
        return pad(rows, around, "reflect", reflect_type="odd")
    n = rows.shape[-1]
    if mode == "antisymmetric":
        turns = np.arange(-count, n + count) // n
        return pad(rows, around, "symmetric") * np.where(turns % 2, -1, 1)
    first, last = rows[..., :1], rows[..., -1:]
    steps = np.arange(1, count + 1).astype(rows.dtype)
    if mode == "line":
        rise = fall = (last - first) / (n - 1)
    elif mode == "smooth":
        rise, fall = last - rows[..., -2:-1], rows[..., 1:2] - first
    else:
        first, last, rise, fall = first * 0 + cval, last * 0 + cval, steps[:1] * 0, steps[:1] * 0
    return np.concatenate([first - fall * steps[::-1], rows, last + rise * steps], -1)


@stands_for(HOME)
def bilinear(b: Any, a: Any, fs: Any = 1.0) -> Any:
    """The bilinear transform B(s) / A(s) at s = 2 fs (z - 1) / (z + 1). Numerator and denominator
    are multiplied by (z + 1)^n, and by a number that balances the largest and smallest powers of
    fs."""
    b, a = np.atleast_1d(b), np.atleast_1d(a)
    for name, x in (("a", a), ("b", b)):
        if x.ndim != 1:
            raise ValueError(f"Parameter {name} is not a 1d array since {name}.shape={x.shape}")
    if fs is None:
        raise ValueError("Sampling frequency can not be none.")
    b, a = np.trim_zeros(b, "f"), np.trim_zeros(a, "f")
    degree = max(a.size, b.size) - 1
    powers = np.stack([_roots_at_ones(degree - k, k) for k in range(degree + 1)])
    powers = powers * ((2.0 * fs) ** (np.arange(degree + 1) - degree / 2))[:, None]
    both = [x[::-1] @ powers[: x.size] for x in (b, a)]
    normalize = row_of(signal.normalize)
    assert normalize is not None
    return normalize.by(*[np.trim_zeros(x, "f") for x in both])


@stands_for(HOME)
def choose_conv_method(in1: Any, in2: Any, mode: str = "full") -> Any:
    """The method by the sizes of the arrays: timing a trace would tell nothing about run time."""
    return _choose(in1, in2, mode)


_choose = library_code.borrowed(
    signal.choose_conv_method, inspect.unwrap(signal.choose_conv_method)
)


def _roots_at_ones(minus: int, plus: int) -> Any:
    """The coefficients of (z + 1)^minus (z - 1)^plus."""
    return np.poly(np.array([-1.0] * minus + [1.0] * plus))


# ---- replacements of SciPy's kernels in C


def _correlate_nd(x: Any, weights: Any, out: Any, mode: int) -> Any:
    """The correlation, the sums of x[i + j] weights[j]: full, same or valid, by `mode`."""
    if mode != 0:
        x = padded(x, [(m - 1, 0) for m in weights.shape], "constant")
    full = correlated(x, np.conj(weights))
    if mode == 1:
        starts = [(m - 1) // 2 for m in weights.shape]
        places = zip(starts, out.shape, strict=True)
        full = full[tuple(slice(start, start + n) for start, n in places)]
    return full


_BOUNDARIES = {0: "constant", 4: "symmetric", 8: "wrap"}


def _convolve2d(x: Any, weights: Any, flip: int, mode: int, boundary: int, fill: Any) -> Any:
    """The correlation along two axes, with a boundary mode; with `flip` the convolution."""
    if mode != 0:
        around = [(m - 1, m - 1) for m in weights.shape]
        x = padded(x, around, _BOUNDARIES[boundary], fill)
    full = correlated(x, weights[::-1, ::-1] if flip else np.conj(weights))
    if mode == 1:
        sizes = [x.shape[k] - 2 * (weights.shape[k] - 1) for k in (0, 1)]
        starts = [(m - bool(flip)) // 2 for m in weights.shape]
        full = full[tuple(slice(s, s + n) for s, n in zip(starts, sizes, strict=True))]
    return full


def _medfilt2d(x: Any, sizes: Any) -> Any:
    """The candidates for each median: the element's neighbours, with zeros outside."""
    return parts(padded(x, [(m // 2, m // 2) for m in sizes], "constant"), sizes)


kernels("cmath", {"exp": np.exp})
kernels(
    "scipy.signal._sigtools",
    {"_correlateND": _correlate_nd, "_convolve2d": _convolve2d},
)
filters("scipy.signal._sigtools", {"_medfilt2d": _medfilt2d}, completed=picked)
# SciPy converts these functions' arguments by `float`, which would need plain numbers.
converting("scipy.signal._waveforms", "_chirp_phase")
converting("scipy.signal._arraytools", "_validate_fs")
converting("scipy.signal._spectral_py", "istft")
converting("scipy.signal.windows._windows", "get_window")
converting("scipy.signal._fir_filter_design", "firwin firls")
converting(
    "scipy.signal._filter_design",
    """lp2lp lp2hp lp2lp_zpk lp2hp_zpk lp2bp_zpk lp2bs_zpk _find_nat_freq buttord cheb2ord
    _design_notch_peak_filter iircomb""",
)
borrow_classes(
    "scipy.signal._ltisys",
    """LinearTimeInvariant lti dlti TransferFunction TransferFunctionContinuous
    TransferFunctionDiscrete ZerosPolesGain ZerosPolesGainContinuous ZerosPolesGainDiscrete
    StateSpace StateSpaceContinuous StateSpaceDiscrete""",
)
borrow_objects(HOME, "lti dlti StateSpace TransferFunction ZerosPolesGain", "")
borrow_objects(HOME, "CZT ZoomFFT")
borrow_objects(HOME, "ShortTimeFFT", "stft stft_detrend spectrogram istft")
borrow(
    HOME,
    """convolve correlate convolve2d correlate2d fftconvolve oaconvolve deconvolve detrend
    savgol_filter savgol_coeffs medfilt medfilt2d order_filter wiener filtfilt sosfiltfilt
    sosfilt_zi hilbert hilbert2 envelope resample resample_poly decimate periodogram
    welch csd coherence stft istft spectrogram czt zoom_fft czt_points freqz
    freqz_sos freqz_zpk freqs freqs_zpk sosfreqz group_delay findfreqs chirp gausspulse
    sawtooth square sweep_poly gauss_spline vectorstrength lombscargle normalize zpk2tf
    zpk2sos tf2sos sos2tf tf2zpk sos2zpk tf2ss ss2tf zpk2ss ss2zpk bilinear_zpk lp2lp lp2hp
    lp2bp lp2bs lp2lp_zpk lp2hp_zpk lp2bp_zpk lp2bs_zpk minimum_phase abcd_normalize
    kaiser_beta kaiser_atten kaiserord firwin firwin_2d firwin2 firls cheb1ap cheb2ap butter
    cheby1 cheby2 ellip bessel iirfilter iirdesign iirnotch iirpeak iircomb buttord cheb1ord
    cheb2ord ellipord get_window residue residuez invres invresz check_COLA check_NOLA
    closest_STFT_dual_window band_stop_obj""",
    lists="window",
)
borrow(
    HOME,
    """bode dbode freqresp dfreqresp step impulse lsim dlsim dstep dimpulse cont2discrete""",
    lists="system",
)
