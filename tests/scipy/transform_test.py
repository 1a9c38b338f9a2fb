"""scipy.spatial.transform: rotations of traced values, and plain ones beside them. Values are
SciPy's, and derivatives are those of differences, at the rotation by 0 too."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pytest
from scipy.spatial import transform
from scipy.spatial.transform import Rotation, Slerp

from tapegrad import grad, jit, value_and_grad
from tapegrad.errors import UnsupportedError

V = np.cos(1.3 * np.arange(12.0)).reshape(4, 3)
Q = np.sin(0.7 + 1.9 * np.arange(16.0)).reshape(4, 4)
P = np.sin(1.7 * np.arange(12.0)).reshape(4, 3)
ONE = Rotation.from_rotvec([0.2, 0.5, -0.1])
MANY = Rotation.from_rotvec(V + 0.3)
AXES = np.array([[1.0, 0, 0], [0, 1, 0], [1, 0, 1]])
TIMES = np.array([0.0, 1.0, 2.5, 3.0])
R = Rotation

CALLS: dict[str, tuple[Any, Any]] = {
    "a vector": (lambda x: R.from_rotvec(x).as_matrix(), V[0]),
    "a vector of 0": (lambda x: R.from_rotvec(x).as_matrix(), np.zeros(3)),
    "a vector near 0": (lambda x: R.from_rotvec(x).as_quat(), np.array([1e-4, 3e-4, 0])),
    "products at 0": (lambda x: (R.from_rotvec(x) * R.from_rotvec(2 * x)).as_rotvec(), np.zeros(3)),
    "degrees": (lambda x: R.from_rotvec(x, degrees=True).as_rotvec(degrees=True), V * 100),
    "quaternions": (lambda x: R.from_quat(x).as_quat(), Q),
    "canonical": (lambda x: R.from_quat(x).as_quat(canonical=True, scalar_first=True), Q),
    "scalar first": (lambda x: R.from_quat(x, scalar_first=True).as_rotvec(), Q),
    "identity": (lambda x: R.from_quat(x).as_rotvec(), np.array([0, 0, 0, 1.0])),
    "minus identity": (lambda x: R.from_quat(x).as_rotvec(), np.array([0, 0, 0, -1.0])),
    "parameters": (lambda x: R.from_mrp(x).as_mrp(), V),
    "parameters of 0": (lambda x: R.from_mrp(x).as_mrp(), np.zeros(3)),
    "matrices": (lambda x: R.from_matrix(x).as_quat(), MANY.as_matrix()),
    "unit matrix": (lambda x: R.from_matrix(x).as_rotvec(), np.eye(3)),
    "no rotations": (lambda x: R.from_matrix(x).as_quat(), ONE.as_matrix() + 0.1 * V[:3]),
    "one angle": (lambda x: R.from_euler("z", x).as_quat(), np.array(0.3)),
    "angles of an axis": (lambda x: R.from_euler("y", x).as_quat(), np.array([[0.1], [0.4]])),
    "a list of angles": (lambda x: R.from_euler("XYZ", [x[0], 0, x[1]]).as_matrix(), V[0]),
    "davenport": (lambda x: R.from_davenport(AXES, "e", x).as_davenport(AXES, "e"), V),
    "axes": (lambda x: R.from_davenport(x, "i", 0.7).as_davenport(AXES, "i", True), V[0]),
    "apply": (lambda x: R.from_rotvec(x).apply(P), V),
    "one, of many": (lambda x: R.from_rotvec(x).apply(P, inverse=True), V[0]),
    "plain": (lambda x: ONE.apply(x), P),
    "many plain": (lambda x: MANY.apply([x[0], 2.0, x[1]], inverse=True), V[0]),
    "beside plain": (lambda x: (MANY * R.from_rotvec(x) * ONE).inv().as_quat(), V[0]),
    "power": (lambda x: (R.from_quat(x) ** -1.5).as_quat(), Q),
    "inverse by a power": (lambda x: (R.from_quat(x) ** -1).as_quat(), Q),
    "traced power": (lambda n: (MANY**n).as_quat(), np.array(2.5)),
    "traced power of 1": (lambda n: (MANY**n).as_quat(), np.array(1.0)),
    "both": (lambda x: (R.from_rotvec(x) ** x[0]).as_quat(), V[0]),
    "magnitude": (lambda x: R.from_rotvec(x).magnitude(), V),
    "rows": (lambda x: R.from_rotvec(x)[[2, 0]].as_quat() * len(R.from_rotvec(x)), V),
    "each": (lambda x: sum(r.as_matrix() * (k + 1) for k, r in enumerate(R.from_rotvec(x))), V),
    "concatenate": (lambda x: R.concatenate([ONE, R.from_rotvec(x), MANY]).as_quat(), V[0]),
    "mean": (lambda x: R.from_rotvec(x).mean(weights=[1, 2, 3, 1]).as_quat(), V),
    "mean of the same": (lambda x: R.from_rotvec(np.stack([x, x])).mean().as_rotvec(), V[0]),
    "weights": (lambda w: MANY.mean(weights=w).as_quat(), np.array([1.0, 2.0, 0.5, 1.0])),
    "slerp": (lambda x: Slerp(TIMES, R.from_rotvec(x))([0.3, 2.7, 3.0, 0]).as_quat(), V),
    "times of a slerp": (lambda t: Slerp(t, MANY)(0.7).as_rotvec(), TIMES),
    "plain slerp": (lambda t: Slerp(TIMES, MANY)(t).as_quat(), np.array([0.3, 2.7])),
}


def weighted(f: Any) -> Any:
    def total(x: Any) -> Any:
        r = f(x)
        return np.sum(np.cos(1.0 + np.arange(np.size(r)).reshape(np.shape(r))) * r)

    return total


def slope(f: Any, x: Any, d: Any, h: float = 2e-4) -> Any:
    coarse, fine = [(f(x + h * d) - f(x - h * d)) / (2 * h) for h in (h, h / 2)]
    return (4 * fine - coarse) / 3


@pytest.mark.every(12)
@pytest.mark.parametrize("name", CALLS)
def test_first_and_second_derivatives(name: str) -> None:
    f, x = CALLS[name]
    f, d = weighted(f), np.cos(2.0 + np.arange(np.size(x)).reshape(np.shape(x)))
    value, found = value_and_grad(f, compile="never")(x)
    assert value == pytest.approx(f(x), rel=1e-12, abs=1e-14)
    assert np.sum(found * d) == pytest.approx(slope(f, x, d), rel=1e-6, abs=1e-7)
    along = grad(lambda y: np.sum(grad(f)(y) * d), compile="never")
    second = (f(x + 1e-3 * d) - 2 * f(x) + f(x - 1e-3 * d)) / 1e-6
    assert np.sum(along(x) * d) == pytest.approx(second, rel=1e-3, abs=1e-4)


@pytest.mark.every(4)
@pytest.mark.parametrize("name", ["products at 0", "no rotations", "each", "slerp", "power"])
def test_compiled_as_it_is_played(name: str) -> None:
    f, x = CALLS[name]
    f = weighted(f)
    played = value_and_grad(f, compile="never")(x)
    compiled = value_and_grad(f, compile="always")
    for one, other in zip(compiled(x), played, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-13)
    moved = x + 0.01
    np.testing.assert_allclose(compiled(moved)[0], f(moved), rtol=1e-12)


SEQUENCES = [s for s in map("".join, itertools.product("xyz", repeat=3)) if s[1] not in s[::2]]


@pytest.mark.every(8)
@pytest.mark.parametrize("seq", [*SEQUENCES, *map(str.upper, SEQUENCES)])
def test_angles_of_each_sequence(seq: str) -> None:
    f = weighted(lambda x: R.from_euler(seq, x).as_euler(seq, degrees=True))
    value, found = value_and_grad(f, compile="never")(V[0])
    assert value == pytest.approx(f(V[0]), rel=1e-12)
    assert np.sum(found * P[1]) == pytest.approx(slope(f, V[0], P[1]), rel=1e-6)

    def locked(q: Any) -> Any:
        return np.sum(R.from_quat(q).as_euler(seq) * [1, 2, 3])

    for second in (np.pi / 2, -np.pi / 2, 0.0, np.pi):
        q = R.from_euler(seq, [0.3, second, 0.2]).as_quat()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            value, found = value_and_grad(locked, compile="never")(q)
            assert value == pytest.approx(locked(q), abs=1e-7)
        assert np.all(np.isfinite(found))


def test_scipys_warning_where_angles_are_not_determined() -> None:
    df = jit(lambda x: R.from_rotvec(x).as_euler("zxz"), compile="never")
    df(V[0])
    with pytest.warns(UserWarning, match="Gimbal lock"):
        np.testing.assert_array_equal(df(np.zeros(3)), 0)
    quiet = jit(lambda x: R.from_rotvec(x).as_euler("zxz", suppress_warnings=True))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(quiet(np.zeros(3)), 0)


def test_a_magnitude_of_0_has_no_slope() -> None:
    found = grad(lambda x: R.from_rotvec(x).magnitude(), compile="never")(np.zeros(3))
    np.testing.assert_array_equal(found, 0)


def test_it_is_a_rotation() -> None:
    def f(x: Any) -> Any:
        r = R.from_rotvec(x)
        assert isinstance(r, Rotation) and not r.single and r[0].single and len(r) == 4
        assert np.all(r.approx_equal(r * R.identity()))
        with pytest.raises(TypeError):
            len(r[0])
        return np.sum(r.as_matrix())

    assert grad(f, compile="never")(V).shape == V.shape


def test_a_plain_rotation_that_changes_is_followed() -> None:
    held = {"r": ONE}
    df = grad(lambda x: np.sum(held["r"].apply(x)), compile="never")
    for r in (ONE, MANY[1]):
        held["r"] = r
        np.testing.assert_allclose(df(V[0]), r.as_matrix().sum(0))


def test_operators_are_not_traced_anew() -> None:
    df = grad(lambda x: np.sum((ONE * R.from_rotvec(x))[1].as_matrix()), compile="never")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for k in range(5):
            df(V + k)


def test_scipys_errors() -> None:
    cases: list[Any] = [
        lambda x: R.from_quat(0 * np.append(x, 0.0)),
        lambda x: R.from_rotvec(x[:2]),
        lambda x: R.from_matrix(-np.eye(3) * x[0] ** 2),
        lambda x: R.from_euler("xx", x[:2]),
        lambda x: R.from_rotvec(x).as_euler("xyy"),
        lambda x: MANY.apply(np.stack([x, x])),
        lambda x: Slerp(x[0] - TIMES, MANY),
        lambda x: Slerp(TIMES, MANY)(x[0] + 10),
    ]
    for case in cases:
        with pytest.raises(ValueError) as plain:
            case(V[1])
        with pytest.raises(ValueError) as traced:
            jit(case)(V[1])
        assert str(traced.value)[:20] == str(plain.value)[:20]


def test_others_are_refused_by_name() -> None:
    cases: dict[str, Any] = {
        "Rotation.reduce": lambda x: R.from_rotvec(x).reduce(MANY),
        "RotationSpline": lambda x: transform.RotationSpline(TIMES, R.from_rotvec(x)),
        "__call__": lambda x: transform.RotationSpline(TIMES, MANY)(x[0]),
    }
    for name, case in cases.items():
        with pytest.raises(UnsupportedError, match=name):
            jit(case)(V + 1)


VECTORS = np.random.default_rng(5).normal(size=(5, 3))
ALIGNED = [
    lambda x: Rotation.align_vectors(VECTORS + x, VECTORS * 1.1)[0].as_matrix(),
    lambda x: Rotation.align_vectors(VECTORS, VECTORS[::-1] + x)[0].as_quat(),
    lambda x: Rotation.align_vectors(VECTORS + x, -VECTORS)[0].as_matrix(),  # B is improper
    lambda x: Rotation.align_vectors(VECTORS, VECTORS[::-1], np.arange(5.0) + x[0])[1],
    lambda x: Rotation.align_vectors(x, VECTORS[0])[0].as_matrix(),
    lambda x: Rotation.align_vectors(VECTORS[1:2], x[None], weights=[2.0])[1],
    lambda x: Rotation.align_vectors(VECTORS + x, VECTORS[::-1], [1, np.inf, 2, 0, 1])[0].as_quat(),
    lambda x: Rotation.align_vectors(VECTORS, VECTORS[::-1] * x, [1, np.inf, 2, 0, 1])[1],
]


@pytest.mark.every(8)
@pytest.mark.parametrize("f", ALIGNED)
def test_vectors_are_aligned(f):
    weighted = lambda x: np.sum(np.cos(np.arange(np.size(f(x)))) * np.ravel(f(x)))  # noqa: E731
    both = value_and_grad(weighted, compile="never")
    for x in (np.array([0.3, 0.2, 0.5]), np.array([0.1, -0.2, 0.4])):
        value, slope = both(x)
        assert np.isclose(value, weighted(x), rtol=1e-12)
        steps = 1e-6 * np.eye(3)
        expected = [(weighted(x + d) - weighted(x - d)) / 2e-6 for d in steps]
        np.testing.assert_allclose(slope, expected, rtol=1e-6, atol=1e-8)


def test_vectors_that_scipy_does_not_align():
    x = np.ones(3)
    with pytest.raises(ValueError, match="same shapes"):
        grad(lambda x: Rotation.align_vectors(VECTORS + x, VECTORS[:3])[1])(x)
    with pytest.raises(ValueError, match="negative values"):
        grad(lambda x: Rotation.align_vectors(VECTORS + x, VECTORS, -np.ones(5))[1])(x)
    with pytest.raises(ValueError, match="zero length"):
        grad(lambda x: Rotation.align_vectors(x - 1, VECTORS[0])[1])(x)
    with pytest.raises(ValueError, match="one infinite weight"):
        grad(lambda x: Rotation.align_vectors(VECTORS + x, VECTORS, np.full(5, np.inf))[1])(x)
    with pytest.raises(UnsupportedError, match="return_sensitivity"):
        grad(lambda x: Rotation.align_vectors(VECTORS + x, VECTORS, None, True)[1])(x)


@pytest.mark.parametrize("to", [*np.eye(3), np.ones(3)])
def test_a_vector_is_turned_around(to):
    """any axis across would do: it is SciPy's"""
    f = lambda v: Rotation.align_vectors(v, to)[0].as_matrix()  # noqa: E731
    np.testing.assert_allclose(jit(f, compile="never")(-2 * to), f(-2 * to), atol=1e-15)
