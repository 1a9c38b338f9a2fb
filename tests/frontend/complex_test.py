"""Complex numbers in programs: what plain NumPy returns, played and compiled, and its derivatives
against differences of real and imaginary parts.

The gradient of a real loss with respect to z = x + iy is dL/dx - i dL/dy.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import tapegrad.numpy as tnp
from tapegrad import (
    grad,
    gradcheck,
    jit,
    simplegrad,
    trace,
    value_and_grad,
    vjp,
)
from tapegrad import range as traced_range
from tapegrad.errors import (
    ArgumentError,
    ConversionError,
    GradientError,
    UnsupportedError,
)

RNG = np.random.default_rng(3)


def drawn(*shape: int) -> Any:
    return RNG.standard_normal(shape) + 1j * RNG.standard_normal(shape)


Z, M, X = drawn(5), drawn(3, 3), RNG.standard_normal(5)
HERMITIAN = M @ M.conj().T + np.eye(3)


def differences(f: Any, args: Any, k: int, h: float = 1e-6) -> Any:
    """dL/dx - i dL/dy, or dL/dx, element by element."""
    x = np.asarray(args[k])
    found = np.zeros(x.shape, np.result_type(x, float))
    units = [(1, 1), (1j, -1j)] if np.iscomplexobj(x) else [(1, 1)]
    for at in np.ndindex(*x.shape):
        for unit, weight in units:
            ends = []
            for sign in (1, -1):
                moved = x.copy()
                moved[at] += sign * h * unit
                ends.append(f(*args[:k], moved[()], *args[k + 1 :]))
            found[at] += weight * (ends[0] - ends[1]) / (2 * h)
    return found


# ---- programs


def parts(z):
    return np.sum(z.real * np.imag(z) ** 2 + np.abs(z) * np.angle(z) + (z * np.conj(z)).real)


def functions(z):
    y = np.exp(z) + np.log(z + 3) * np.sqrt(z) - np.tanh(z) / (2 + z) + z**3 + (1 + 1j) ** z
    return np.sum(np.abs(y + np.arctan(z) + np.arccosh(z) + np.expm1(z) * np.log1p(z)) ** 2)


def of_real_numbers(x):
    return np.sum(np.abs(np.exp(1j * x) * np.array([1j, 2, 3 - 1j, 0, 1]) + x) ** 2)


def mixed(z, x):
    return np.sum(np.where(x > 0, z * x, np.conj(z)).imag ** 2) + abs(np.dot(x, z)) ** 2


def written(z):
    y = np.zeros_like(z)
    y[1:] = z[:-1] * 2j
    y[0] = z[2]
    y *= z
    y.real = y.imag**2
    y[np.abs(y) > 5] = 0
    return np.sum(np.abs(y) ** 2 * np.arange(5))


def filled(z):
    y = tnp.zeros(5, complex)
    for k in range(5):
        y[k] = z[k] * 1j**k
    return np.sum(np.abs(y + z) ** 2)


def filled_numpys(z):
    y, m = np.zeros(5, dtype=complex), np.eye(5, dtype=complex)
    for k in range(5):
        y[k] = z[k] * 1j**k
    m[0] = z
    y[2:4] += np.array([z[0] * 2j, 1.0])
    return np.sum(np.abs(m @ y) ** 2)


def unrolled_loop(z):
    a = z
    for k in range(60):
        a = a * np.exp(0.01j * k) / (1 + 0.001 * abs(a) ** 2)
    return np.sum(np.abs(a) ** 2) + a[0].real


def traced_loop(z):
    a = z
    for k in traced_range(7):
        a = a * z * 0.2 + 1j * k * 0.1
    return np.sum(np.abs(a) ** 2)


def until(z):
    a, n = z[0], 0
    while abs(a) < 50 and n < 30:
        a = a * (1.2 + 0.1j) + z[1]
        n += 1
    return abs(a) ** 2


def branching(z):
    y = z * 2j if abs(z[0]) > 0.1 else z
    return np.sum(y.real * y.imag)


def split_step(z, x):
    k = np.fft.fftfreq(5)
    for _ in range(12):
        z = z * np.exp(-0.01j * (x + np.abs(z) ** 2))
        z = np.fft.ifft(np.exp(-0.01j * k**2) * np.fft.fft(z))
    return np.sum(np.abs(z) ** 2 * x)


def folded(m):
    total = np.sum(np.abs(m.sum(0)) ** 2) + np.sum(np.abs(m.prod(1)) ** 2) + abs(m.mean()) ** 2
    return total + m.std() + np.sum(m.var(axis=1)) + np.sum(np.abs(np.cumsum(m) * 2) ** 2)


def products(m):
    inner = np.vdot(m, m @ m).imag + np.vecdot(m, m).real.sum() + np.trace(np.kron(m, m)).real
    return inner + np.einsum("ij,kj,ik", m, m.conj(), m).real + np.linalg.norm(m @ m.T) ** 2


def convolved(z):
    return np.sum(np.abs(np.convolve(z, z[:2]) + np.correlate(z, z[1:3], "full")) ** 2)


def in_order(z):
    """by the real parts, and by the imaginary ones of equal ones"""
    w = np.round(z.real) + 1j * z.imag
    w.sort()
    return np.sum(np.sort(z).real * np.arange(1, z.size + 1)) + np.sum(w.imag * np.arange(z.size))


def gaps(z):
    """without what is NaN in one of its parts"""
    w = np.where(np.arange(z.size) % 3 == 1, complex(1.0, np.nan), z)
    sums = np.nansum(w) * np.nanprod(w) + np.nanmean(w) ** 2 + np.nancumsum(w)[-1]
    close = 1.0 if np.allclose(w, w) or not np.array_equal(z, z) else 2.0
    return np.abs(sums) ** 2 * close + np.nanvar(w) + np.nanstd(w)


def by_parts_and_sizes(z):
    signs = np.sum(np.abs(np.sign(z) * np.arange(z.size) + np.round(z, 1) * z) ** 2)
    return signs + np.sum(np.abs(np.sinc(z / 4)) ** 2)


def fitted(m):
    b = m[:, 0] ** 2
    x, residuals, rank, s = np.linalg.lstsq(m[:, :2], b)
    line = np.polyfit(m[0].real, m[1], 1)
    sizes = np.sum(np.abs(x) ** 2) + np.sum(np.abs(line) ** 2) + np.sum(s)
    return sizes + np.sum(residuals) * rank + np.sum(np.abs(np.corrcoef(m)) ** 2)


def systems(m):
    y = np.linalg.solve(m, m[:, 0] ** 2) + np.linalg.inv(m)[0] + np.linalg.pinv(m)[1]
    sign, logarithm = np.linalg.slogdet(m)
    return np.sum(np.abs(y) ** 2) + abs(np.linalg.det(m)) + sign.imag + logarithm


def factors(m):
    a = m @ m.conj().T + np.eye(3)
    q, r = np.linalg.qr(m)
    size = np.abs(np.linalg.cholesky(a)) ** 2 + np.abs(np.linalg.cholesky(a, upper=True))
    return np.sum(size * np.arange(3)) + np.sum((q * r).real)


def hermitian_eigenvalues(m):
    w, v = np.linalg.eigh(m + m.conj().T)
    return np.sum(w**3) + np.sum(np.abs(v) ** 4 * np.arange(3))


def eigenvalues(m):
    w, v = np.linalg.eig(m)
    return np.sum(np.abs(w - 1j) ** 2) + np.sum(np.abs(v) ** 4)


def singular_values(m):
    u, s, vh = np.linalg.svd(m)
    turned = (u[:, :2] @ vh[:2]).real
    return np.sum(s**3) + np.sum(np.abs(u) ** 4 * np.arange(3)) + np.sum(turned * np.arange(3))


def of_roots(x):
    return np.sum(np.abs(np.roots(np.stack([1 + x[0] ** 2, x[1], 2 + x[2] ** 2]))) ** 3)


PROGRAMS = [
    *[
        (f, (Z,))
        for f in (parts, functions, written, filled, unrolled_loop, filled_numpys, traced_loop)
    ],
    *[(f, (Z,)) for f in (until, branching, convolved, in_order, gaps, by_parts_and_sizes)],
    *[(f, (M,)) for f in (folded, products, fitted, systems, factors, hermitian_eigenvalues)],
    *[(f, (M,)) for f in (eigenvalues, singular_values)],
    *[(f, (Z, X)) for f in (mixed, split_step)],
    *[(f, (X,)) for f in (of_real_numbers, of_roots)],
    (eigenvalues, (M.real.copy(),)),
    (lambda z: (z * np.conj(z)).real + np.exp(z).imag, (np.complex128(1 + 0.5j),)),
    (lambda z: abs(z**3) + z.real, (np.array(1 + 0.5j),)),
]


@pytest.mark.every(12)
@pytest.mark.parametrize(("f", "args"), PROGRAMS, ids=lambda x: getattr(x, "__name__", ""))
def test_values_and_gradients(f, args):
    wrt = tuple(range(len(args)))
    for mode in ("never", "always"):
        both = value_and_grad(f, wrt, compile=mode)
        for given in (args, args, tuple(a + 0.1 for a in args)):
            value, found = both(*given)
            np.testing.assert_allclose(value, f(*given), rtol=1e-10)
            for k in wrt:
                assert found[k].dtype == np.asarray(given[k]).dtype
                np.testing.assert_allclose(found[k], differences(f, given, k), 1e-5, 1e-6)


@pytest.mark.every(8)
@pytest.mark.parametrize(("f", "args"), PROGRAMS, ids=lambda x: getattr(x, "__name__", ""))
def test_second_derivatives(f, args):
    w = np.exp(1j * np.arange(args[0].size)).reshape(args[0].shape)[()]

    gradient = grad(f, compile="never")

    def along(*xs):
        return np.sum((gradient(*xs) * w).real)

    found = grad(along, compile="never")(*args)
    np.testing.assert_allclose(found, differences(along, args, 0, 1e-5), 1e-4, 1e-4)


# ---- the convention


def test_the_gradient_of_a_square_is_twice_the_conjugate():
    np.testing.assert_allclose(grad(lambda z: np.sum(np.abs(z) ** 2))(Z), 2 * np.conj(Z))


def test_a_step_against_the_conjugate_goes_down():
    def loss(z):
        return np.sum(np.abs(np.exp(z) - 1j) ** 2)

    assert loss(Z - 1e-3 * np.conj(grad(loss)(Z))) < loss(Z)


def test_the_pullback_of_1_is_the_derivative_of_a_holomorphic_function():
    z = Z[0]
    _, pullback = vjp(lambda z: np.exp(z) * z**2, z)
    np.testing.assert_allclose(pullback(1.0)[0], np.exp(z) * (z**2 + 2 * z))
    np.testing.assert_allclose(pullback(1j)[0], 1j * np.exp(z) * (z**2 + 2 * z))


def test_a_real_argument_has_a_real_gradient():
    (ct,) = vjp(lambda x: x * 1j, X)[1](np.ones(5) * (2 + 3j))
    assert ct.dtype == np.float64
    np.testing.assert_array_equal(ct, -3)


def test_the_kink_of_a_modulus_is_0_and_its_square_is_smooth():
    z = np.zeros(2, complex)
    np.testing.assert_array_equal(grad(lambda z: np.sum(np.abs(z)))(z), 0)

    def along(z):
        return np.sum((grad(lambda z: np.sum(np.abs(z) ** 2))(z) * (1 + 2j)).real)

    np.testing.assert_allclose(grad(along)(z), 2 * (1 - 2j))


@pytest.mark.parametrize(
    ("square", "z"),
    [(lambda z: np.sum(np.linalg.eigvalsh(z) ** 2), np.eye(2) + 0j)],
)
def test_equal_eigenvalues_have_no_second_derivative(square, z):
    found = grad(lambda z: np.sum(np.abs(grad(square)(z)) ** 2))(z)
    assert np.isnan(found).any()


def test_the_gradient_at_equal_eigenvalues():
    np.testing.assert_allclose(
        grad(lambda z: np.sum(np.linalg.eigvalsh(z) ** 2))(np.eye(2) + 0j), 2 * np.eye(2)
    )


# ---- dtypes


def test_dtypes_are_numpys():
    z, x = Z.astype(np.complex64), X.astype(np.float32)
    for f in (
        lambda z, x: z * x,
        lambda z, x: 1j * x,
        lambda z, x: z * 2.0 + 1j,
        lambda z, x: np.exp(z) / 3,
        lambda z, x: z.real + np.abs(z),
        lambda z, x: z + X,
        lambda z, x: x.astype(complex),
        lambda z, x: np.fft.rfft(x),
        lambda z, x: np.fft.irfft(z),
        lambda z, x: np.linalg.inv(np.outer(z, z) + np.eye(5, dtype=np.float32)),
        lambda z, x: np.mean(z) * x.sum(),
    ):
        wanted = f(z, x)
        for mode in ("never", "always"):
            found = jit(f, compile=mode)(z, x)
            assert found.dtype == wanted.dtype
            np.testing.assert_allclose(found, wanted, 1e-4)


SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 3.3, np.inf, -np.inf, np.nan, 1e300, -745.0])


FUNCTIONS = "exp log sqrt sin tanh arccosh reciprocal square expm1 sign rint"


@pytest.mark.parametrize("name", FUNCTIONS.split(" "))
def test_compiled_functions_of_special_numbers_are_numpys(name):
    z = np.empty((len(SPECIAL),) * 2, complex)
    z.real, z.imag = SPECIAL[:, None], SPECIAL
    z = z if name != "square" else z[np.abs(z) < 1e100]
    with np.errstate(all="ignore"):
        wanted, found = getattr(np, name)(z), jit(getattr(np, name), compile="always")(z)
    for part in ("real", "imag"):
        a, b = getattr(found, part), getattr(wanted, part)
        scale = 1e-14 if name != "square" else 1e-14 * np.abs(wanted)
        with np.errstate(all="ignore"):
            near = np.abs(a - b) <= scale * (1 + np.abs(b))
        same = (a == b) | (np.isnan(a) & np.isnan(b)) | near
        assert np.all(same), z[~same]


@pytest.mark.parametrize("decimals", [0, 1, -1])
def test_parts_are_rounded_apart(decimals):
    z = np.array([complex(x, y) for x in (np.nan, np.inf, 1.26) for y in (2.16, -np.inf, -0.0)])
    found, wanted = jit(lambda z: np.round(z, decimals), compile="never")(z), np.round(z, decimals)
    np.testing.assert_array_equal([found.real, found.imag], [wanted.real, wanted.imag])


def test_compiled_quotients_of_special_numbers_are_numpys():
    z = np.empty((len(SPECIAL),) * 2, complex)
    z.real, z.imag = SPECIAL[:, None], SPECIAL
    a, b = z.reshape(-1, 1), z.reshape(1, -1)
    with np.errstate(all="ignore"):
        wanted = a / b
        found = jit(lambda a, b: a / b, compile="always")(a, b)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    np.testing.assert_allclose(found.real, wanted.real, 1e-14)
    np.testing.assert_allclose(found.imag, wanted.imag, 1e-14)


# ---- what is refused


@pytest.mark.parametrize("compile", ["always", "never"])
@pytest.mark.parametrize(
    "f",
    [
        *(np.maximum, np.minimum, np.fmax, np.fmin),
        *(lambda x, y: np.clip(x, 0.0, 1 + 1j), lambda x, y: y.clip(None, -1j)),
    ],
)
def test_the_larger_of_complex_numbers_is_numpys_to_the_last_sign(f, compile):
    ends = [0.0, -0.0, 1.0, np.inf, -np.inf, np.nan]
    x, y = map(np.ravel, np.meshgrid(*2 * [[complex(a, b) for a in ends for b in ends]]))
    found, expected = jit(lambda x, y: f(x, y), compile=compile)(x, y), f(x, y)
    for part in (np.real, np.imag):
        np.testing.assert_array_equal(part(found), part(expected))
        known = ~np.isnan(part(expected))
        signs = np.signbit(part(found)), np.signbit(part(expected))
        np.testing.assert_array_equal(signs[0][known], signs[1][known])


@pytest.mark.parametrize("compile", ["always", "never"])
def test_slopes_of_the_larger_of_complex_numbers(compile):
    def f(z):
        return np.sum(np.abs(np.clip(z**2, -0.3, 0.4 + 1j) * np.maximum(z, 1j * z)) ** 2)

    np.testing.assert_allclose(
        grad(f, compile=compile)(Z), differences(f, [Z], 0), rtol=1e-5, atol=1e-7
    )
    tied = grad(lambda x: np.sum(np.abs(np.clip(x + 0j, 1, 5)) ** 2), compile=compile)
    np.testing.assert_array_equal(tied(np.array([0.5, 1.0, 2.0])), [0.0, 1.0, 4.0])


def test_a_complex_loss_is_refused():
    with pytest.raises(GradientError, match=r"returned a complex scalar.*np\.abs\(z\)\*\*2"):
        grad(lambda z: np.sum(z))(Z)


@pytest.mark.parametrize(
    "f",
    [
        lambda z: np.partition(z, 1)[0].real,
        lambda z: np.max(z).real,
        lambda z: np.interp(0.5, [0.0, 1.0], z[:2]).real,
        lambda z: z.partition(1),
        lambda z: np.median(z).real,
    ],
)
def test_what_is_not_known_to_be_right_is_refused_by_name(f):
    with pytest.raises(UnsupportedError, match=r"complex numbers isn't supported"):
        jit(f)(Z)


def test_conversions_that_would_lose_the_derivative_are_refused():
    for f in (
        lambda z: float(z[0]),
        lambda z: int(z[0]),
        lambda z: np.add.at(np.zeros_like(z.real), [0], z[:1]),
    ):
        with pytest.raises(ConversionError, match="complex"):
            jit(f)(Z)

    def into_real(z, x):
        x = x.copy()
        x[0] = z[0]
        return np.sum(x)

    with pytest.raises(ConversionError, match=r"imaginary part.*z\.real"):
        jit(into_real)(Z, X)


def test_a_cast_to_real_numbers_warns_as_numpys_does():
    with pytest.warns(np.exceptions.ComplexWarning):
        found = jit(lambda z: z.astype(float), compile="never")(Z)
    np.testing.assert_array_equal(found, Z.real)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(
            jit(lambda z: z.astype(bool))(Z * [0, 1, 1, 0, 1]), Z * [0, 1, 1, 0, 1] != 0
        )


def through_parts(z, x):
    y = z.copy()
    y.real[0] = x[0]
    y[1:].imag[::2] *= x[1]
    head = y.imag
    y *= 2j
    head[3] += x[2]
    return np.sum(np.abs(y) ** 2) + np.sum(head * y.real)


def through_parts_of_made_arrays(z, x):
    y, c, one = np.zeros((2, 3), complex), np.asfortranarray(M[:2]), np.zeros((), complex)
    y.real[0], y.T.imag[1:] = x[:3], x[3:]
    np.real(c).reshape(-1)[2] = 7.0  # of columns one after the other it is a copy
    c.real.T[1] = np.abs(z[:2])
    one.real[...] = x[0]
    one.imag += x[1]
    return np.sum(np.abs(y * c) ** 3) + np.abs(one)


def through_parts_of_plain_arrays(z, x):
    row, column = np.fft.fft2(M).real[1], np.fft.fft(X).imag.reshape(5, 1)[1:]
    row[:2], column[2] = x[:2], np.abs(z[0])
    return np.sum(row**2) + np.sum(column**3)


@pytest.mark.parametrize(
    "f", [through_parts, through_parts_of_made_arrays, through_parts_of_plain_arrays]
)
@pytest.mark.parametrize("compile", ["never", "always"])
def test_real_and_imaginary_parts_are_views(f, compile):
    """What is written to one reaches the array, and the other way."""
    value, slopes = value_and_grad(f, (0, 1), compile=compile)(Z, X)
    np.testing.assert_allclose(value, f(Z, X), rtol=1e-12)
    for k, slope in enumerate(slopes):
        np.testing.assert_allclose(slope, differences(f, (Z, X), k), rtol=1e-6, atol=1e-8)


def test_parts_lie_in_memory_as_numpys_do():
    def f(z):
        part = z.reshape(5, 1)[::2].real
        part.reshape(-1)[0] = 0.0
        return np.sum(part) * part.strides[0] + (z.real.base is z)

    np.testing.assert_array_equal(jit(f)(Z), f(Z.copy()))


def test_pythons_complex_numbers_as_arguments():
    """They remain Python's numbers; gradients are NumPy's, as of floats."""
    for compile in ("never", "always"):
        slope = grad(lambda z, w: np.abs(np.exp(z) * z) * w["a"].real, (0, 1), compile=compile)
        found, expected = slope(1 + 2j, {"a": 1j + 1}), slope(np.complex128(1 + 2j), {"a": 1j + 1})
        assert found == expected
        assert type(found[0]) is np.complex128 is type(found[1]["a"])
        quotient = jit(lambda x, z: x / z, compile=compile)
        assert quotient(np.float32([2]), 2j).dtype == np.complex64
        assert quotient(1.0, 2j) == -0.5j
        with pytest.raises(ZeroDivisionError):
            quotient(1.0, 0j)
        with pytest.raises(TypeError, match="'<' not supported"):
            jit(lambda x, z: x if z < 3 else 2 * x, compile=compile)(1.0, 1j)
    assert jit(lambda z: type(z) is complex and +z is z and z * 2)(1j) == 2j


def test_simplegrad_and_gradcheck_take_real_arguments():
    with pytest.raises(ArgumentError, match="complex"):
        simplegrad(lambda z: np.sum(np.abs(z)), Z)
    with pytest.raises(ArgumentError, match="complex"):
        gradcheck(lambda z: np.sum(np.abs(z)), Z)
    found = simplegrad(of_real_numbers, X)(X)
    np.testing.assert_allclose(found[1], grad(of_real_numbers)(X))


def test_a_tape_with_complex_constants_prints_and_plays():
    _, tape = trace(lambda z: z * (2 - 1j) + np.nan * 1j, Z)
    assert "c16(2.0, -1.0)" in str(tape)
    np.testing.assert_array_equal(tape.play(Z), Z * (2 - 1j) + np.nan * 1j)
    np.testing.assert_array_equal(np.isnan(tape.compile()(Z)), True)
