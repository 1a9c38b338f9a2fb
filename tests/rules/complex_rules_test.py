"""Complex numbers in users' own rules, and under np.errstate."""

from __future__ import annotations

import numpy as np
import pytest
from tests.frontend.complex_test import X, Z, differences

from tapegrad import Function, defvjp, grad, primitive


def doubled(z):
    return 2 * np.exp(z)


class SquareAndConjugate(Function):
    """Two results, the second of which isn't a holomorphic function."""

    @staticmethod
    def forward(ctx, z):
        ctx.save_for_backward(z)
        assert ctx.needs_input_grad == (True,)
        return z**2, np.conj(z)

    @staticmethod
    def backward(ctx, ct, ct_conj):
        return 2 * ctx.saved_tensors[0] * ct + np.conj(ct_conj)


@pytest.mark.parametrize("compile", ["never", "always"])
def test_users_rules_of_complex_numbers(compile):
    """a rule's cotangents are dL/dx - i dL/dy, of traced functions and of such as NumPy runs; of a
    real argument the real part counts"""
    bytewise = lambda z: np.frombuffer(np.sin(z).tobytes(), complex)  # noqa: E731
    exp, sine, opaque_rule = primitive(doubled), primitive(bytewise), primitive(bytewise)
    times, size = primitive(lambda z, x: z * x), primitive(lambda z: np.abs(z) ** 2)
    turned = primitive(lambda z: complex(z.imag, z.real))
    defvjp(exp, lambda ct, out, z: ct * out)
    defvjp(sine, lambda ct, out, z: ct * np.cos(z))
    defvjp(opaque_rule, lambda ct, out, z: np.frombuffer((ct * np.cos(z)).tobytes(), complex))
    defvjp(times, lambda ct, out, z, x: ct * x, lambda ct, out, z, x: ct * z)
    defvjp(size, lambda ct, out, z: 2 * ct * np.conj(z))
    defvjp(turned, lambda ct, out, z: -ct.imag - 1j * ct.real)
    for f in (
        lambda z: np.sum(np.abs(exp(z) + 1)),
        lambda z: np.sum(np.abs(sine(z) + 1)),
        lambda z: np.sum(np.abs(opaque_rule(z) + 1)),
        lambda z: np.sum(np.abs(times(z, z.real) * X + times(Z, z.imag))),
        lambda z: np.sum(size(z) * X),
        lambda z: abs(turned(z[0]) ** 2 + 1j),
        lambda z: np.sum(np.abs(sum(SquareAndConjugate.apply(z)) + 1)),
    ):
        slope = grad(f, compile=compile)
        for z in (Z, Z[::-1].copy()):
            np.testing.assert_allclose(slope(z), differences(f, (z,), 0), rtol=1e-6, atol=1e-8)
    found = grad(lambda x: np.sum(np.abs(times(Z, x) + 1)), compile=compile)(X)
    assert found.dtype == float
    expected = differences(lambda x: np.sum(np.abs(Z * x + 1)), (X,), 0)
    np.testing.assert_allclose(found, expected, 1e-6)
    angle = grad(lambda x: abs(exp(1j * x) + 1), compile=compile)
    assert angle(0.4) == pytest.approx(grad(lambda x: abs(doubled(1j * x) + 1))(0.4))


WATCHED = {
    "ufuncs": lambda z: np.sum(np.abs(np.exp(z) / z + z**2 - z**0.5)),
    "views": lambda z: np.sum(
        np.abs(z.T * z.reshape(1, -1) + np.stack([z, z]).swapaxes(0, 1)[:, 0])
    ),
    "sums": lambda z: np.sum(np.abs(np.cumsum(z) * z.mean())) + np.sum(z.real**2 + np.angle(z)),
    "products": lambda z: np.abs(z @ z) + np.sum(np.abs(np.fft.fft(z))),
    "systems": lambda z: np.sum(np.abs(np.linalg.solve(np.diag(z) + 1, z))),
    "choices": lambda z: np.sum(np.abs(np.where(z.real > 0, z, 0) * z[[0, 1, 1, 0, 2]])),
    "Python's": lambda z: np.abs(np.exp(1j * z[0].real.item())),
}


@pytest.mark.every(7)
@pytest.mark.parametrize("name", WATCHED)
def test_errors_of_floating_point_are_watched_for(name):
    """under np.errstate(all="raise") the same derivative, and NumPy's error where it has one"""
    f = WATCHED[name]
    expected = grad(f)(Z)
    with np.errstate(all="raise"):
        slope = grad(lambda z: f(z))
        np.testing.assert_allclose(slope(Z), expected, 1e-12)
        np.testing.assert_allclose(slope(2 * Z), grad(f)(2 * Z), 1e-12)
        if name == "ufuncs":
            for values in (Z * [1, 0, 1, 1, 1], Z + 800):
                with pytest.raises(FloatingPointError):
                    f(values)
                with pytest.raises(FloatingPointError):
                    slope(values)
