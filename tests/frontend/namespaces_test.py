"""Programs that are written for the array API, by NumPy's namespace or array-api-compat's."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.errors import TapegradError, UnsupportedError

V, M, I = np.array([0.3, 0.5]), np.array([[2.0, 1.0], [1.0, 3.0]]), np.array([1, 0])

ALONE = """abs acos asin atan asinh tanh atanh cos cosh sin sinh tan ceil floor round trunc exp
    expm1 log log2 log10 log1p sqrt square sign negative positive reciprocal isfinite isinf isnan
    signbit logical_not sum mean max min prod std var all any argmax argmin count_nonzero
    cumulative_sum cumulative_prod diff sort argsort flip nonzero unique_all unique_counts
    unique_inverse zeros_like ones_like"""
TWO = """add subtract multiply divide floor_divide pow remainder atan2 copysign hypot logaddexp
    maximum minimum nextafter equal not_equal less less_equal greater greater_equal"""
SQUARES = """matrix_transpose linalg.inv linalg.det linalg.cholesky linalg.svdvals linalg.eigvalsh
    linalg.pinv linalg.trace linalg.diagonal linalg.matrix_norm linalg.slogdet tril triu"""


def named(xp: Any, name: str) -> Any:
    for part in name.split("."):
        xp = getattr(xp, part)
    return xp


def filled(xp: Any, x: Any) -> Any:
    y = xp.zeros(3, dtype=x.dtype, device=x.device)
    y[1:] = x
    return y


PROGRAMS: dict[str, Any] = {
    **{n: lambda xp, x, n=n: named(xp, n)(x) for n in ALONE.split()},
    **{n: lambda xp, x, n=n: named(xp, n)(x, x + 0.1) for n in TWO.split()},
    **{n: lambda xp, x, n=n: named(xp, n)(x[:, None] * x + M) for n in SQUARES.split()},
    "sums": lambda xp, x: (xp.sum(x, dtype=xp.float64), xp.std(x, correction=1), xp.acosh(x + 1)),
    "an axis": lambda xp, x: xp.mean(x[:, None] * x, axis=(0, 1), keepdims=True),
    "include_initial": lambda xp, x: xp.cumulative_sum(x, include_initial=True),
    "concat": lambda xp, x: (xp.concat([x, x * 2]), xp.concat((x, V)), xp.stack([x, x], axis=-1)),
    "unstack": lambda xp, x: xp.unstack(x[:, None] * x),
    "shapes": lambda xp, x: (xp.expand_dims(x, axis=0), xp.permute_dims(x[:, None] * V, (1, 0))),
    "places": lambda xp, x: (xp.roll(x, 1), xp.repeat(x, 2), xp.tile(x, (2,)), xp.take(x, I)),
    "reshape": lambda xp, x: xp.reshape(x, (2, 1), copy=True),
    "broadcast": lambda xp, x: (xp.broadcast_to(x, (3, 2)), xp.broadcast_arrays(x, M)[0]),
    "where": lambda xp, x: xp.where(x > 0.4, x, xp.zeros_like(x)),
    "products": lambda xp, x: (xp.matmul(M, x), xp.tensordot(M, x, axes=1), xp.vecdot(x, V)),
    "linalg": lambda xp, x: (
        xp.linalg.solve(M, x),
        xp.linalg.vector_norm(x),
        xp.linalg.outer(x, x),
    ),
    "astype": lambda xp, x: (xp.astype(x, xp.float32), xp.astype(x > 0.4, x.dtype) * x),
    "dtypes": lambda xp, x: x * xp.isdtype(x.dtype, "real floating") * xp.finfo(x.dtype).eps,
    "result_type": lambda xp, x: x * (xp.result_type(x, xp.float32) == xp.float64),
    "devices": lambda xp, x: x.to_device("cpu") * xp.asarray(2.0, dtype=x.dtype, device=x.device),
    "attributes": lambda xp, x: ((x[:, None] * V).mT, x[xp.newaxis, :] * xp.pi),
    "constants": lambda xp, x: x * xp.asarray([1.0, 2.0]) + xp.ones(2) + xp.linspace(0, 1, 2),
    "searchsorted": lambda xp, x: xp.searchsorted(V, x),
}
# What NumPy's own names that make arrays don't take while they aren't answered by others
MAKING: dict[str, Any] = {
    "asarray": lambda xp, x: (xp.asarray(x) * 2, xp.asarray(x, dtype=xp.float32)),
    "copies": lambda xp, x: xp.asarray(x, copy=True) * 2,
    "a list": lambda xp, x: xp.asarray([x[0], x[1]]),
    "full": lambda xp, x: xp.full((2,), x[0]),
    "filled": filled,
    "clip": lambda xp, x: (xp.clip(x, 0.4, 1.0), xp.clip(x, max=0.4), xp.clip(x, x * 0.9, x * 1.1)),
}


def leaves(x: Any) -> list[Any]:
    return [leaf for part in x for leaf in leaves(part)] if isinstance(x, (list, tuple)) else [x]


def held_against_plain(f: Any) -> None:
    found, expected = tg.jit(f, compile="never")(V), f(V)
    for one, other in zip(leaves(found), leaves(expected), strict=True):
        assert (np.shape(one), np.asarray(one).dtype) == (np.shape(other), np.asarray(other).dtype)
        np.testing.assert_allclose(one, other)


@pytest.mark.every(4)
@pytest.mark.parametrize("name", PROGRAMS)
def test_numpys_namespace(name):
    held_against_plain(lambda x: PROGRAMS[name](x.__array_namespace__(), x))


@pytest.mark.every(8)
@pytest.mark.parametrize("name", [*PROGRAMS, *MAKING])
def test_the_namespace_of_array_api_compat(name):
    compat = pytest.importorskip("array_api_compat")
    program = {**PROGRAMS, **MAKING}[name]
    held_against_plain(lambda x: program(compat.array_namespace(x), x))


def softmax_loss(x: Any, namespace: Any) -> Any:
    xp = namespace(x)
    e = xp.exp(x - xp.max(x))
    return -xp.sum(xp.log(xp.divide(e, xp.sum(e))) ** 2)


@pytest.mark.parametrize("compile", ["never", "always"])
def test_programs_differentiate(compile):
    compat = pytest.importorskip("array_api_compat")
    own = tg.grad(lambda x: softmax_loss(x, lambda x: x.__array_namespace__()), compile=compile)
    by_compat = tg.grad(lambda x: softmax_loss(x, compat.array_namespace), compile=compile)
    expected = tg.grad(lambda x: softmax_loss(x, lambda x: np), compile="never")
    for x in (V, 2 * V, np.array([1.0, 2.0, 3.0]), V.astype(np.float32)):
        np.testing.assert_allclose(own(x), expected(x), rtol=1e-6)
        np.testing.assert_allclose(by_compat(x), expected(x), rtol=1e-6)
    assert own.cache_info().traces == by_compat.cache_info().traces == 3
    mixed = tg.grad(lambda x: compat.array_namespace(x, V).sum(x * V) + x[0], compile=compile)
    np.testing.assert_array_equal(mixed(V), V + [1.0, 0.0])


def test_the_namespace_itself():
    seen = []

    def f(x):
        seen.append(x.__array_namespace__() is np)
        seen.append(x.sum().__array_namespace__(api_version="2022.12") is np)
        return x.sum()

    tg.vjp(f, V)
    assert seen == [True, True]
    with pytest.raises(ValueError, match=r"1999.1.* is not supported"):
        tg.jit(lambda x: x.__array_namespace__(api_version="1999.1"), compile="never")(V)


def test_what_array_api_compat_would_do_otherwise_is_refused():
    compat = pytest.importorskip("array_api_compat")

    def clipped(x):
        return compat.array_namespace(x).clip(x, x * 0, 1)

    with pytest.raises(UnsupportedError, match=r"clip of array-api-compat with .* int64"):
        tg.jit(clipped, compile="never")(I)
    with pytest.raises((ValueError, TapegradError)):
        tg.jit(lambda x: compat.array_namespace(x).asarray([x[0]], copy=False), compile="never")(V)


def test_another_module_of_that_name_gets_numpys_namespace(monkeypatch):
    """xarray has a file `array_api_compat.py` of its own."""
    asking = ModuleType("someone.array_api_compat")
    exec("def namespace(x): return x.__array_namespace__()", vars(asking))
    monkeypatch.setitem(sys.modules, asking.__name__, asking)
    f = lambda x: x[0] * asking.namespace(x).sum(x)  # noqa: E731
    np.testing.assert_allclose(tg.grad(f, compile="never")(V), [1.1, 0.3])
