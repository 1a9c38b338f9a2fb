"""scipy.fft beyond what the table of names holds: dtypes, errors, later calls, unobserved runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import fft

from tapegrad import grad, jit, value_and_grad, vjp

X = np.cos(np.arange(24.0) ** 1.3).reshape(2, 3, 4)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.complex64, bool])
def test_dtypes_and_shapes_are_scipys(dtype: Any) -> None:
    x = (4 * X).astype(dtype)
    for f in (
        lambda x: fft.fft(x, 5),
        lambda x: fft.ifftn(x, s=(2, 2)),
        lambda x: fft.irfftn(x, axes=(0, 2)),
        lambda x: fft.hfft2(x),
        lambda x: fft.dct(x, norm="ortho", orthogonalize=False),
        lambda x: fft.dstn(x, 3, axes=(-1, 0), orthogonalize=True),
        lambda x: fft.idctn(x, 1, s=3),
        lambda x: fft.fftshift(x),
        lambda x: fft.fftn(x, axes=()),
    ):
        expected, found = f(x), jit(f, compile="never")(x)
        assert np.asarray(found).dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_errors_are_scipys() -> None:
    for f in (
        lambda x: fft.fft(x, 0),
        lambda x: fft.fft(x, axis=5),
        lambda x: fft.fftn(x, axes=(0, 0)),
        lambda x: fft.rfft(x + 1j),
        lambda x: fft.fft(x, norm="half"),
        lambda x: fft.dct(x, 5),
        lambda x: fft.dct(x[..., :1], 1),
        lambda x: fft.dctn(x, s=(1, 2), axes=(0,)),
    ):
        with pytest.raises(Exception) as scipys:
            f(X)
        with pytest.raises(scipys.type) as found:
            grad(lambda x, f=f: np.sum(np.abs(f(x))), compile="never")(X)
        assert str(found.value) == str(scipys.value)


def loss(x: Any, d: Any) -> Any:
    spectrum = fft.rfft(fft.idct(x, axis=0), n=6)
    return np.sum(np.abs(spectrum) ** 2 * fft.rfftfreq(6, d)) + np.sum(fft.dstn(x, 1) ** 3)


def test_compiled_and_played_with_other_shapes() -> None:
    played = value_and_grad(loss, (0, 1), compile="never")
    for x in (X[0], X[:, 0], X):
        value, (dx, dd) = played(x, 0.5)
        assert value == pytest.approx(loss(x, 0.5), rel=1e-12)
        e = 1e-6
        assert dd == pytest.approx((loss(x, 0.5 + e) - loss(x, 0.5 - e)) / (2 * e), rel=1e-6)
        slope = (loss(x * (1 + e), 0.5) - loss(x * (1 - e), 0.5)) / (2 * e)
        assert np.sum(dx * x) == pytest.approx(slope, rel=1e-6)
    compiled = value_and_grad(loss, (0, 1), compile="always")(X, 0.5)
    np.testing.assert_allclose(compiled[1][0], played(X, 0.5)[1][0], rtol=1e-10)


def test_where_a_run_isnt_observed() -> None:
    value, pullback = vjp(lambda x: fft.dct(x, 3, norm="ortho"), X)
    np.testing.assert_allclose(value, fft.dct(X, 3, norm="ortho"))
    np.testing.assert_allclose(pullback(X)[0], fft.idct(X, 3, norm="ortho"))
