"""numpy.fft on traced arrays: NumPy's results, for all parameters, and derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.primitives.samples.drawn import normal

from tapegrad import grad, gradcheck, jit

X = normal(4, 5)
Z = X + 1j * normal(4, 5, seed=1)
ONE: list[dict[str, Any]] = [
    *({}, {"n": 3}, {"n": 8}, {"n": 1}, {"axis": 0}, {"norm": "ortho"}, {"norm": "forward"}),
    {"n": 6, "axis": 0, "norm": "ortho"},
]
SEVERAL: list[dict[str, Any]] = [
    *({}, {"s": (3, 6), "axes": (0, 1)}, {"s": (6, 3), "axes": (1, 0)}, {"norm": "ortho"}),
    *({"norm": "forward"}, {"axes": (0,)}, {"s": (-1, 4), "axes": (0, 1)}),
]
OF_COMPLEX = {
    "fft": lambda z, **how: np.fft.fft(z, **how),
    "ifft": lambda z, **how: np.fft.ifft(z, **how),
    "irfft": lambda z, **how: np.fft.irfft(z, **how),
    "hfft": lambda z, **how: np.fft.hfft(z, **how),
    "fft2": lambda z, **how: np.fft.fft2(z, **how),
    "ifft2": lambda z, **how: np.fft.ifft2(z, **how),
    "fftn": lambda z, **how: np.fft.fftn(z, **how),
    "ifftn": lambda z, **how: np.fft.ifftn(z, **how),
    "irfft2": lambda z, **how: np.fft.irfft2(z, **how),
    "irfftn": lambda z, **how: np.fft.irfftn(z, **how),
}
OF_REAL = {
    "rfft": lambda x, **how: np.fft.rfft(x, **how),
    "ihfft": lambda x, **how: np.fft.ihfft(x, **how),
    "rfft2": lambda x, **how: np.fft.rfft2(x, **how),
    "rfftn": lambda x, **how: np.fft.rfftn(x, **how),
}
CASES = [
    (f, how)
    for name, f in (OF_COMPLEX | OF_REAL).items()
    for how in (SEVERAL if name.endswith(("2", "n")) else ONE)
]


@pytest.mark.every(16)
@pytest.mark.parametrize(("f", "how"), CASES)
def test_results_are_numpys_and_so_are_derivatives(f, how):
    given = [X] if f in OF_REAL.values() else [X, Z, Z.astype(np.complex64), X > 0]
    for a in given:
        wanted = f(a, **how)
        found = jit(lambda a: f(a, **how), compile="never")(a)
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_allclose(found, wanted, 1e-6, 1e-6)

    def loss(x, y):
        r = f(x if f in OF_REAL.values() else x + 1j * y, **how)
        w = np.exp(1j * np.arange(r.size)).reshape(r.shape)
        return np.sum((r * w).real * np.abs(r + 2))

    assert gradcheck(loss, (X, Z.imag), rtol=1e-5, atol=1e-5)


def test_the_second_derivative_of_an_energy_is_that_of_its_spectrum():
    """Parseval: the energy of half of a spectrum, counted twice but for its ends."""

    def energy(x):
        spectrum = np.abs(np.fft.rfft(x, norm="ortho")) ** 2
        return 2 * np.sum(spectrum) - spectrum[0] - spectrum[-1]

    x = normal(6)
    np.testing.assert_allclose(energy(x), np.sum(x**2))
    np.testing.assert_allclose(grad(energy, compile="always")(x), 2 * x)
    twice = grad(lambda x: np.sum(np.cos(np.arange(6)) * grad(energy)(x)))
    np.testing.assert_allclose(twice(x), 2 * np.cos(np.arange(6)))


def test_a_filter_between_kernels():
    def filtered(x):
        smooth = np.fft.irfft(np.fft.rfft(np.tanh(x)) * np.exp(-np.arange(3)), 5, axis=-1)
        return np.sum(np.fft.fftshift(smooth, axes=1) ** 2 * np.fft.fftfreq(5))

    for mode in ("never", "always"):
        found = grad(filtered, compile=mode)(X)
        h = 1e-6 * np.sin(np.arange(20.0)).reshape(4, 5)
        slope = (filtered(X + h) - filtered(X - h)) / 2e-6
        np.testing.assert_allclose(np.sum(found * h) / 1e-6, slope, 1e-6)


@pytest.mark.parametrize(
    "f",
    [
        lambda a: np.fft.fft(a, n=0),
        lambda a: np.fft.fft(a, norm="none"),
        lambda a: np.fft.fft(a, axis=2),
        lambda a: np.fft.rfft(a + 0j),
        lambda a: np.fft.fftn(a, s=(2,), axes=(0, 1)),
        lambda a: np.fft.irfft(a[:, :1]),
    ],
)
def test_errors_are_numpys(f):
    with pytest.raises(Exception) as numpys:
        f(X)
    with pytest.raises(type(numpys.value)) as ours:
        jit(f)(X)
    assert str(ours.value) == str(numpys.value)
