"""scipy.signal beyond what the table of names holds: objects that change between calls, unobserved
runs, plain arguments, dtypes, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import signal
from tests.answers.mechanism_test import unobserved

from tapegrad import grad, jit, value_and_grad
from tapegrad.errors import UnsupportedError

X = np.sin(1.3 * np.arange(9.0)) + 0.2
GRID = np.array([-3.0, 0.4, 7.7, 9.5])


def is_right(df: Any, f: Any, x: Any = X) -> bool:
    value, found = df(x)
    e = 1e-6 * np.cos(np.arange(x.size))
    slope = np.sum(found * e) * 2
    return bool(np.isclose(value, f(x)) and np.isclose(slope, f(x + e) - f(x - e), rtol=1e-4))


def power(z: Any) -> Any:
    return np.sum(np.abs(z) ** 2)


def _scaled(transform: Any) -> None:
    transform._wk2[1] *= 3


def _other_rate(system: Any) -> None:
    system.num = [2.0, 1.0]


OBJECTS = {
    "CZT": (lambda: signal.CZT(9, 4), lambda t, x: t(x), _scaled),
    "ZoomFFT": (lambda: signal.ZoomFFT(9, 0.3, 4), lambda t, x: t(x), _scaled),
    "stft": (
        lambda: signal.ShortTimeFFT(np.hanning(4) + 0.1, 2, 1.0),
        lambda t, x: t.stft(x),
        lambda t: t.scale_to("psd"),
    ),
    "istft": (
        lambda: signal.ShortTimeFFT(np.hanning(4) + 0.1, 2, 1.0),
        lambda t, x: t.istft(x.reshape(3, 3)),
        lambda t: t.scale_to("magnitude"),
    ),
    "dlsim": (
        lambda: signal.dlti([1.0, 2.0], [2.0, 0.5, 0.3], dt=0.5),
        lambda t, x: signal.dlsim(t, x)[1],
        _other_rate,
    ),
}


@pytest.mark.filterwarnings("ignore:.*traced for three calls")
@pytest.mark.parametrize("name", OBJECTS)
def test_an_object_that_changes_is_followed(name):
    make, use, change = OBJECTS[name]
    t = make()

    def f(x):
        return power(use(t, x))

    df = value_and_grad(f, compile="never")
    kept = dict(vars(t))
    df(X)
    assert all(vars(t)[key] is kept[key] for key in kept)  # nothing traced is left in it
    assert is_right(df, f)
    change(t)
    assert is_right(df, f)
    anew = value_and_grad(f, compile="never")
    assert is_right(unobserved(anew), f)
    t.__dict__.update(vars(make()))
    assert is_right(unobserved(anew), f)


@pytest.mark.filterwarnings("ignore:.*traced for three calls")
def test_windows_and_detrending_that_change_are_followed():
    held = {"window": np.hanning(4) + 0.1, "detrend": "constant"}

    def f(x):
        return np.sum(signal.welch(x, **held)[1] ** 2)

    df = value_and_grad(f, compile="never")
    assert is_right(df, f)
    held["window"] = held["window"] + np.arange(4)
    assert is_right(df, f)
    held["detrend"] = lambda y: y * 2
    assert is_right(df, f)


def test_plain_calls_beside_traced_ones_stay_plain():
    bumps = np.array([0.0, 1, 0, 2, 0])

    def f(x):
        b, a = signal.butter(2, np.abs(x[0]) / 2)
        peaks, _ = signal.find_peaks(bumps)
        plain = signal.sosfilt(signal.butter(3, 0.2, output="sos"), x)
        return (
            np.sum(signal.lfilter(b, a, x) ** 2 * signal.get_window("hann", 9))
            + plain[peaks] @ x[:2]
        )

    assert is_right(value_and_grad(f, compile="never"), f)
    assert is_right(value_and_grad(f, compile="always"), f)


FUNCTIONS = {
    "welch": lambda x: signal.welch(x, nperseg=4)[1],
    "csd": lambda x: signal.csd(x, x**2, nperseg=4)[1],
    "savgol_filter": lambda x: signal.savgol_filter(x, 5, 2),
    "czt": lambda x: signal.czt(x),
    "cspline1d": lambda x: signal.cspline1d(x),
    "cspline1d_eval": lambda x: signal.cspline1d_eval(x, GRID),
    "qspline1d_eval": lambda x: signal.qspline1d_eval(x, GRID.astype(np.float32)),
    "chirp": lambda x: signal.chirp(x, 1.0, 2.0, 3.0),
    "bilinear": lambda x: signal.bilinear(x[:3], x[3:6])[0],
    "tf2ss": lambda x: signal.tf2ss(x[:3], x[3:6])[2],
    "butter": lambda x: signal.butter(2, x[0])[0],
    "sepfir2d": lambda x: signal.sepfir2d(x.reshape(3, 3), x[:3], x[3:6]),
    "symiirorder1": lambda x: signal.symiirorder1(np.repeat(x, 9), 0.2, 0.3),
    "symiirorder2": lambda x: signal.symiirorder2(np.repeat(x, 9), 0.2, 0.3),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_in_single_precision(name):
    x = X.astype(np.float32)
    expected, found = FUNCTIONS[name](x), jit(FUNCTIONS[name], compile="never")(x)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_a_long_signal():
    """The loop over segments is SciPy's."""
    x = np.sin(np.arange(4096.0) ** 1.3)
    df = value_and_grad(lambda x: np.sum(signal.welch(x)[1] ** 2), compile="never")
    assert is_right(df, lambda x: np.sum(signal.welch(x)[1] ** 2), x)


def test_refusals():
    with pytest.raises(UnsupportedError, match=r"find_peaks_cwt .*scipy.signal.find_peaks"):
        grad(lambda x: x[signal.find_peaks_cwt(x, np.arange(1, 3))[0]])(X)
    with pytest.raises(UnsupportedError, match=r"unique_roots .*numpy.roots"):
        grad(lambda x: power(signal.unique_roots(x)[0]))(X)
    with pytest.raises(UnsupportedError, match="measure"):
        jit(lambda x: signal.choose_conv_method(x, x, measure=True)[0])(X)
    with pytest.raises(TypeError, match="Cannot cast ufunc"):  # SciPy's own error
        jit(lambda x: signal.cspline1d_eval([1, 2, 3], x))(X)
    with pytest.raises(UnsupportedError, match="of 1 coefficients"):
        jit(lambda x: signal.cspline1d_eval(x[:1], 0.0))(X)
    with pytest.raises(UnsupportedError, match="lfilter"):
        jit(lambda x: signal.symiirorder1(np.repeat(x, 9), 0.2, x[0] / 4))(X)


MATRICES = np.array([[0.0], [1.0]]), np.array([[1.0, 0.0]]), np.array([[0.0]])
SYSTEMS = {
    "lsim": lambda a: signal.lsim(signal.StateSpace(a, *MATRICES), X, np.arange(9.0))[1],
    "step": lambda a: signal.step(signal.lti([1.0], a[1]), T=np.arange(4.0))[1],
    "impulse": lambda a: signal.TransferFunction([1.0], a[1]).impulse(T=np.arange(4.0))[1],
    "bode": lambda a: signal.lti([1.0], a[1]).bode(w=[1.0, 2.0])[1],
    "output": lambda a: signal.dlti(a / 3, *MATRICES, dt=0.1).output(X, t=None)[1],
    "dstep": lambda a: signal.dstep((a / 3, *MATRICES, 0.1), n=6)[1][0],
    "dimpulse": lambda a: signal.dimpulse(([1.0], a[1], 0.1), n=6)[1][0],
    "product": lambda a: (signal.StateSpace(a, *MATRICES) * signal.StateSpace(a, *MATRICES)).A,
    "cont2discrete": lambda a: signal.StateSpace(a, *MATRICES).to_discrete(0.1).B,
    "lfilter_zi": lambda a: signal.lfilter_zi([0.5, 0.2], a[1] / a[1, 0] + [0.0, 0.7]),
}


@pytest.mark.parametrize("name", SYSTEMS)
def test_systems_that_are_objects(name):
    """made of traced values, they do what they do of plain ones; called again, of others"""
    a, along = np.array([[0.0, 1.0], [-2.0, -0.5]]), np.array([[0.3, -0.2], [0.1, 0.4]])

    def f(t):
        return np.sum(np.cos(SYSTEMS[name](a + t * along)))

    df = value_and_grad(f, compile="never")
    for t in (0.0, 0.2):
        value, slope = df(t)
        assert value == pytest.approx(f(t), rel=1e-10)
        assert slope == pytest.approx((f(t + 1e-6) - f(t - 1e-6)) / 2e-6, rel=1e-6, abs=1e-8)


def test_a_filters_state_alone():
    """zi may be traced where nothing else is; a[0] counts, though it is 1"""
    b, a = np.array([0.2, 0.3, 0.1]), np.array([1.0, -0.4, 0.1])

    def of_state(z):
        y, last = signal.lfilter(b, a, X, zi=z)
        return np.sum(y) + np.sum(last**2)

    assert is_right(value_and_grad(of_state, compile="never"), of_state, np.array([0.1, 0.2]))
    for state in (signal.lfilter_zi(b, a), signal.lfiltic(b, a, [0.3, 0.1], [0.2, 0.5])):
        assert state.shape == (2,)
    slope = grad(lambda a: np.sum(signal.lfilter_zi(b, a)), compile="never")(a)
    exact = np.sum(signal.lfilter_zi(b, a + [1e-6, 0, 0]) - signal.lfilter_zi(b, a - [1e-6, 0, 0]))
    assert slope[0] == pytest.approx(exact / 2e-6, rel=1e-7)


SAMPLE = np.array([1.0, np.inf, 2.0, 5.0, 3.0, 1.0, 1.0])
BESIDE = {
    "medfilt": lambda x: signal.medfilt(x, 3),
    "medfilt2d": lambda x: signal.medfilt2d(np.outer(np.ones(3), x), 3),
    "upfirdn": lambda x: signal.upfirdn([1.0, 2.0, 1.0, 0.5], x, 3, 2),
    "beyond the ends": lambda x: signal.upfirdn([1.0, 2.0, 1.0], x, 2, mode="line"),
    "resample_poly": lambda x: signal.resample_poly(x, 3, 2, window=[1.0, 2.0, 1.0]),
    "convolve2d": lambda x: signal.convolve2d(np.outer([1.0, 2.0], x), [[0.0, 1.0, 2.0]]),
    "sepfir2d": lambda x: signal.sepfir2d(np.outer(np.ones(3), x), [0.0, 1.0, 1.0], [1.0]),
    "state": lambda x: signal.lfilter([1.0, 2.0, 0.5], [1.0, 0.5], x, zi=[0.1, 0.2])[1],
}


@pytest.mark.every(3)
@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("special", [np.inf, np.nan, -np.inf, 0.25])
@pytest.mark.parametrize("name", BESIDE)
def test_filters_of_nan_and_infinity_are_scipys(name: str, special: float) -> None:
    x, f = np.where(np.isinf(SAMPLE), special, SAMPLE), BESIDE[name]
    np.testing.assert_allclose(jit(lambda x: f(x), compile="never")(x), f(x), rtol=1e-12)


def test_resampled_single_precision_stays_single() -> None:
    x = X.astype(np.float32)
    for f in (
        lambda x: signal.resample_poly(x, 2, 3),
        lambda x: signal.decimate(x, 2, ftype="fir"),
    ):
        found, wanted = jit(f)(x), f(x)
        assert found.dtype == wanted.dtype == np.float32
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (3, 2), (2, 4), (4, 4)])
@pytest.mark.parametrize("mode", ["full", "same"])
def test_windows_with_no_middle_lie_as_scipys(mode: str, shape: tuple[int, int]) -> None:
    w = 1.0 + np.arange(float(np.prod(shape))).reshape(shape)
    image = np.outer(X, X)[:6, :7]
    for name in ("correlate2d", "convolve2d", "correlate", "convolve"):
        f = getattr(signal, name)
        found = jit(lambda x, f=f: f(x, w, mode))(image)
        np.testing.assert_allclose(found, f(image, w, mode), rtol=1e-10)


def test_an_image_beyond_which_scipy_would_read_is_refused() -> None:
    h = [1.0, 2.0, 3.0, 2.0, 1.0]
    df = grad(lambda x: np.sum(signal.sepfir2d(x, h, [1.0])))
    with pytest.raises(UnsupportedError, match="convolve1d"):
        df(np.ones((4, 3)))
    assert df(np.ones((4, 4))).shape == (4, 4)
    integers = np.arange(20).reshape(4, 5)
    found = jit(lambda x: signal.sepfir2d(x, h, [1.0]))(integers)
    np.testing.assert_allclose(found, signal.sepfir2d(integers, h, [1.0]))


@pytest.mark.filterwarnings("ignore:.* calls in a row")
@pytest.mark.parametrize("mode", ["never", "always"])
def test_peaks_are_found_anew_at_each_call(mode):
    def prominent(x):
        found, told = signal.find_peaks(x, height=-1, prominence=0.1, width=0.5, distance=2)
        return np.sum(x[found] ** 2) + told["prominences"] @ np.arange(len(found)) + sum(
            np.sum(told[key]) for key in ("widths", "left_ips", "peak_heights"))  # fmt: skip

    fast, rng = value_and_grad(prominent, compile=mode), np.random.default_rng(0)
    rows = [rng.normal(size=30) for _ in range(6)]
    for x in [*rows, rows[0], np.ones(30), np.where(rows[1] > 1, np.nan, rows[1])]:
        value, slope = fast(x)
        np.testing.assert_allclose(value, prominent(x), rtol=1e-12)
        along, h = rng.normal(size=30), 1e-6
        expected = (prominent(x + h * along) - prominent(x - h * along)) / (2 * h)
        np.testing.assert_allclose(np.nansum(slope * along), expected, rtol=1e-5, atol=1e-8)
