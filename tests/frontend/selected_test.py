"""Elements that a mask selects, of which there are others at each call."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from tapegrad import hessian, jvp, value_and_grad, vmap

N = 12
DATA = np.random.default_rng(7).normal(size=(N, 2))
NUMBERS = np.arange(float(N))


@pytest.fixture(autouse=True)
def quietly():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


def assigned(x):
    m = x > 0
    y = np.zeros(N)
    y[m] = np.log(x[m])
    y[~m] = x[~m] ** 2
    return y @ NUMBERS


def updated(x):
    m, y = x > 0, x * 1.0
    y[m] += np.log(x[m])
    y[m] *= 2.0
    return y @ NUMBERS


def in_place(x):
    v = x[x > 0]
    w = v
    v += 1
    v **= 2
    return np.sum(v * w)


def neighbours(x):
    total = 0.0
    for i in range(N):
        near = x[np.abs(x - x[i]) < 0.5]
        total += np.arctan2(np.sum(np.sin(near)), np.sum(np.cos(near)))
    return total


def standardized(x):
    v = x[x > -0.5]
    return np.sum(((v - v.mean()) / v.std()) ** 3) + np.var(v, ddof=1)


def of_matrix(x):
    a = x.reshape(4, 3)
    return np.sum(np.exp(a[a > 0])) + np.sum(a[a[:, 0] > 0, 1:].mean(axis=0) ** 2)


def changed_mask(x):
    """What was selected stays, whatever becomes of the mask and the array."""
    y = x * 1.0
    m = y > 0
    v = y[m]
    m[0], y[:] = False, 2.0
    return np.sum(v**2) + np.sum(x[m])


ANY_NUMBER = {
    "changed mask": changed_mask,
    "sum": lambda x: np.sum(np.log(x[x > 0])),
    "mean": lambda x: (x[x > 0.3] * np.sin(x[x > 0.3])).mean(),
    "extremes": lambda x: np.max(x[x < 0.5]) - x[x > -0.5].min(),
    "standardized": standardized,
    "norm": lambda x: np.linalg.norm(x[x > 0]) + x[x > 0] @ x[x > 0],
    "prod": lambda x: np.prod(np.abs(x[x > -1]) + 0.5),
    "size": lambda x: np.sum(x[x > 0] ** 2) / x[x > 0].size / x[x > 0].shape[0],
    "conditions": lambda x: np.sum(np.where(x[x > 0] > 0.5, x[x > 0], 0.0)) * np.any(x[x > 1] > 2),
    "count": lambda x: x[0] * np.count_nonzero(x[x > 0] > 0.5),
    "clip": lambda x: np.sum(np.clip(x[x > 0], 0.1, 0.9) - x[x > 0].astype(np.float64) ** 3),
    "parameter": lambda x: np.sum(np.log(x[x > 0] * x[0] ** 2)),
    "nested": lambda x: np.sum(x[x > 0][x[x > 0] > 0.5] ** 2),
    "data": lambda x: np.sum((DATA[DATA @ x[:2] > 0] @ x[:2]) ** 2),
    "integers": lambda x: x[0] * np.sum(np.arange(N)[x > 0]) + x[1] * np.max(np.arange(N)[x > 0]),
    "accumulated": lambda x: np.cumsum(x[x > 0])[-2] + np.sum(np.cumprod(x[x > 0.2]) ** 2),
    "differences": lambda x: np.sum(np.diff(x[x > 0]) ** 2) + np.sort(x[x > 0])[1],
    "quantiles": lambda x: np.median(x[x > 0]) + np.percentile(x[x < 1], 30) * x[x < 0.5][1],
    "matrix": of_matrix,
    "assigned": assigned,
    "updated": updated,
    "in place": in_place,
    "neighbours": neighbours,
}
SO_MANY = {
    "sorted": lambda x: np.sum(np.sort(x[x > 0]) * np.arange(len(x[x > 0]))),
    "iterated": lambda x: sum(v * v for v in x[x > 0]),
    "reversed": lambda x: x[x > 0][::-1] @ x[x > 0],
    "joined": lambda x: np.sum(np.concatenate([x[x > 0], x[x <= 0]]) ** 2 * NUMBERS),
}
by_name = pytest.mark.parametrize("name", [*ANY_NUMBER, *SO_MANY])


def program(name):
    """One with places of its own: what a test has met isn't known to the next one."""
    f = {**ANY_NUMBER, **SO_MANY}[name]
    return type(f)(f.__code__.replace(), f.__globals__, f.__name__)


def points():
    rng = np.random.default_rng(3)
    found = [rng.normal(size=N) for _ in range(6)]
    return [*found, np.abs(found[0]), -np.abs(found[1]) - 0.01, found[2]]


def held(f, derivative, x):
    """As plain NumPy and differences have it, errors too."""
    try:
        expected = f(x)
    except (ValueError, IndexError) as error:
        with pytest.raises(type(error)):
            derivative(x)
        return
    value, gradient = derivative(x)
    assert value == pytest.approx(expected, rel=1e-11, nan_ok=True)
    along = np.cos(np.arange(N))
    slope = (f(x + 1e-6 * along) - f(x - 1e-6 * along)) / 2e-6
    if np.isfinite(slope):
        assert gradient @ along == pytest.approx(slope, rel=1e-5, abs=1e-7)


@pytest.mark.every(6)
@by_name
@pytest.mark.parametrize("compile", ["never", "always"])
def test_as_plain_numpy(name, compile):
    f = program(name)
    derivative = value_and_grad(f, compile=compile)
    for x in points()[:: 1 if compile == "never" else 3]:
        held(f, derivative, x)


@pytest.mark.every(2)
@pytest.mark.parametrize("name", ANY_NUMBER)
def test_no_number_is_a_trace(name):
    """Once it has been met which of a program's values differ from call to call."""
    met = value_and_grad(program(name), compile="never")
    for x in points()[:6]:
        met(x)
    derivative = value_and_grad(program(name), compile="never")
    first, *others = points()[:6]
    derivative(first)
    derivative(-first)
    found = derivative.cache_info().traces
    for x in others:
        assert np.sum(x > 0) > 0
        derivative(x)
    assert derivative.cache_info().traces <= max(found, 2)


@pytest.mark.every(3)
@pytest.mark.parametrize("name", ["sum", "standardized", "parameter", "updated", "matrix", "data"])
def test_second_derivatives_and_rows(name):
    f = program(name)
    derivative = value_and_grad(f, compile="never")
    second = hessian(f, compile="never")
    for x in [x for x in points() if np.isfinite(f(x))][:4]:
        along = np.sin(np.arange(N))
        _, slope = jvp(f, (x,), (along,))
        assert slope == pytest.approx(derivative(x)[1] @ along, rel=1e-9)
        ends = [derivative(x + h * along)[1] for h in (1e-6, -1e-6)]
        expected = (ends[0] - ends[1]) / 2e-6
        np.testing.assert_allclose(second(x) @ along, expected, rtol=1e-5, atol=1e-5)
    rows = vmap(value_and_grad(f, compile="never"), compile="never")
    values, gradients = rows(np.stack(points()[:5]))
    for x, value, gradient in zip(points(), values, gradients, strict=False):
        assert value == pytest.approx(f(x), rel=1e-11, nan_ok=True)
        np.testing.assert_allclose(gradient, derivative(x)[1], rtol=1e-9, atol=1e-12)


def test_others_have_no_part_in_slopes():
    """Elements outside of the domain are none of the mask's: no NaN comes of them."""
    derivative = value_and_grad(lambda x, p: np.sum(np.log(x[x > 0] * p)), (0, 1), compile="never")
    for x in ([0.0, 2.0, -1.0], [1.0, 0.0, 3.0], [-1.0, -2.0, 0.5], [0.0, 0.0, 0.0]):
        x = np.array(x)
        value, (gradient, slope) = derivative(x, 2.0)
        assert value == pytest.approx(np.sum(np.log(x[x > 0] * 2.0)))
        np.testing.assert_allclose(gradient, [1 / v if v > 0 else 0.0 for v in x])
        assert slope == np.sum(x > 0) / 2.0
