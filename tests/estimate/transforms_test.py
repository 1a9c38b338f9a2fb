"""Transforms: round trips, and log-Jacobians held against the determinants of both kinds of
derivatives."""

import pickle
from dataclasses import dataclass

import numpy as np
import pytest

from tapegrad import grad, hessian, jacobian, transforms, vmap
from tapegrad.errors import ArgumentError
from tapegrad.transforms import Above, Below, Between, Transform, Unconstrained


def lower(x):
    return x[np.tril_indices(len(x))]


def below(x):
    return x[np.tril_indices(len(x), -1)]


def all_of(x):
    return x


# What has a coordinate in the determinant, and of how many numbers a sample is
CASES = {
    "log": (transforms.log, all_of, 3),
    "logit": (transforms.logit, all_of, 3),
    "above": (Above(-2.0), all_of, 2),
    "below": (Below(3.0), all_of, 2),
    "between": (Between(-1.0, 4.0), all_of, 2),
    "simplex": (transforms.simplex, lambda x: x[:-1], 4),
    "ordered": (transforms.ordered, all_of, 4),
    "cholesky_factor": (transforms.cholesky_factor, lower, 6),
    "positive_definite": (transforms.positive_definite, lower, 6),
    "correlation_cholesky": (transforms.correlation_cholesky, below, 6),
    "correlation": (transforms.correlation, below, 6),
}


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


def points(count, scale, trials=5):
    return scale * np.random.default_rng(0).normal(size=(trials, count))


@pytest.mark.parametrize("scale", [0.1, 1.0, 3.0])
def test_inverse(case, scale):
    transform, _, count = case
    for u in points(count, scale):
        np.testing.assert_allclose(transform.inverse(transform.forward(u)), u, atol=1e-9)


@pytest.mark.every(2)
@pytest.mark.parametrize("scale", [0.1, 1.0, 3.0])
def test_log_jacobian(case, scale):
    transform, taken, count = case
    for u in points(count, scale):
        exact = jacobian(lambda u: taken(transform.forward(u)))(u)
        step = 1e-6
        differences = [
            (taken(transform.forward(u + step * e)) - taken(transform.forward(u - step * e)))
            / (2 * step)
            for e in np.eye(count)
        ]
        assert np.linalg.slogdet(exact)[1] == pytest.approx(transform.log_jacobian(u), abs=1e-10)
        log_det = np.linalg.slogdet(np.transpose(differences))[1]
        assert log_det == pytest.approx(transform.log_jacobian(u), abs=1e-3)


def test_log_jacobians_of_large_numbers_are_finite_with_their_derivatives(case):
    transform, _, count = case
    for u in (np.full(count, 700.0), np.full(count, -700.0), 700.0 * (-1.0) ** np.arange(count)):
        assert np.isfinite(transform.log_jacobian(u))
        assert np.isfinite(grad(transform.log_jacobian)(u)).all()
        assert np.isfinite(hessian(transform.log_jacobian)(u)).all()
        if transform is not transforms.positive_definite:  # whose squares overflow
            assert np.isfinite(transform.forward(u)).all()


@pytest.mark.parametrize("u", [-700.0, 700.0])
def test_tails_of_numbers(u):
    assert transforms.log.inverse(transforms.log.forward(u)) == pytest.approx(u, rel=1e-15)
    assert transforms.log.log_jacobian(u) == u
    assert transforms.logit.log_jacobian(u) == -700.0
    assert transforms.logit.forward(-700.0) == pytest.approx(np.exp(-700.0))


def test_constraints_hold(case):
    transform, _, count = case
    for u in points(count, 5.0):
        x = transform.forward(u)
        if transform is transforms.simplex:
            assert (x > 0).all() and x.sum() == pytest.approx(1.0, abs=1e-15)
        elif transform is transforms.ordered:
            assert (np.diff(x) > 0).all()
        elif transform is transforms.correlation:
            np.testing.assert_allclose(np.diagonal(x), 1.0, rtol=1e-14)
            assert (np.linalg.eigvalsh(x) > -1e-14).all() and (x == x.T).all()
        elif x.ndim == 2 and transform is not transforms.positive_definite:
            assert (np.diagonal(x) > 0).all() and (np.triu(x, 1) == 0).all()


def test_axes_before_the_last_ones_count(case):
    transform, _, count = case
    u = points(count, 1.0)
    x = transform.forward(u)
    np.testing.assert_allclose(x, [transform.forward(row) for row in u])
    np.testing.assert_allclose(transform.inverse(x), u, atol=1e-9)
    each = sum(transform.log_jacobian(row) for row in u)
    assert transform.log_jacobian(u) == pytest.approx(each)


def test_the_smallest_ones():
    assert transforms.simplex.forward(np.zeros(0)) == [1.0]
    assert transforms.correlation.forward(np.zeros(0)) == [[1.0]]
    np.testing.assert_allclose(transforms.correlation.forward(np.ones(1))[0, 1], np.tanh(1.0))
    with pytest.raises(ArgumentError, match="4 numbers don't fill a triangle"):
        transforms.cholesky_factor.forward(np.zeros(4))


def test_a_density_keeps_its_mass():
    """Of a gamma variable's logarithm, with the log-Jacobian."""
    u = np.linspace(-30, 10, 20001)
    density = [2 * np.log(x) - x - np.log(2.0) for x in transforms.log.forward(u)]
    total = np.exp(np.array(density) + [transforms.log.log_jacobian(v) for v in u])
    assert np.trapezoid(total, u) == pytest.approx(1.0)


@pytest.mark.every(2)
@pytest.mark.parametrize(
    ("transform", "dimensions", "volume"),
    [
        (transforms.simplex, 2, 1 / 2),  # 1 / (n - 1)!
        (transforms.correlation, 1, 2.0),
        (transforms.correlation, 3, np.pi**2 / 2),  # Joe (2006)
        (Between(-1.0, 2.0), 2, 9.0),
    ],
)
def test_log_jacobians_measure_volumes(transform, dimensions, volume):
    """Of the constrained values: the integral of the Jacobian over all unconstrained ones."""
    axis = np.arange(-18.0, 18.0, 0.5)
    grid = np.stack(np.meshgrid(*[axis] * dimensions), axis=-1).reshape(-1, dimensions)
    logs = vmap(transform.log_jacobian)(grid)
    assert np.exp(logs).sum() * 0.5**dimensions == pytest.approx(volume, rel=1e-4)


def test_own_transforms():
    class Softplus(Transform):
        def forward(self, u):
            return np.logaddexp(0.0, u)

        def inverse(self, x):
            return np.log(np.expm1(x))

        def log_jacobian(self, u):
            return -np.sum(np.logaddexp(0.0, -u))

    space = Unconstrained({"a": 2.0}, {"a": Softplus()})
    assert space.forward(space.start)["a"] == pytest.approx(2.0)
    assert grad(lambda u: space.forward(u)["a"])(space.start) == pytest.approx(1 - np.exp(-2.0))


# ---- trees


@dataclass
class Params:
    mean: float
    shares: list


def test_trees_as_vectors():
    params = {"b": np.array([1.0, -2.0]), "scale": 3.0, "z": [0.5, np.array([[0.2, 0.8]])]}
    space = Unconstrained(
        params, {"scale": transforms.log, "z": {0: transforms.logit, 1: transforms.simplex}}
    )
    assert space.names == ["b[0]", "b[1]", "scale", "z.0", "z.1[0, 0]", "z.1[0, 1]"]
    expected = [1.0, -2.0, np.log(3.0), 0.0, np.log(0.25)]
    np.testing.assert_allclose(space.start, expected, atol=1e-15)
    again = space.forward(space.start)
    np.testing.assert_allclose(again["z"][1], params["z"][1])
    assert again["scale"] == pytest.approx(3.0) and again["b"].tolist() == [1.0, -2.0]
    parts = transforms.log, transforms.logit, transforms.simplex
    each = [parts[0].log_jacobian(np.log(3.0)), parts[1].log_jacobian(0.0), np.log(0.2 * 0.8)]
    assert space.log_jacobian(space.start) == pytest.approx(sum(each))
    slope = grad(space.log_jacobian)(space.start)
    np.testing.assert_allclose(slope, [0, 0, 1, 0, 0.6], atol=1e-15)


def test_dataclasses_and_one_transform_for_all():
    space = Unconstrained(Params(2.0, [3.0]), transforms.log)
    np.testing.assert_allclose(space.start, np.log([2.0, 3.0]))
    assert space.names == ["mean", "shares.0"]
    again = pickle.loads(pickle.dumps(space))
    assert again.forward(again.start) == space.forward(space.start)
    assert Unconstrained(np.array([2.0]), transforms.log).names == ["x[0]"]


@pytest.mark.parametrize(
    ("params", "given", "message"),
    [
        ({"a": -1.0}, {"a": transforms.log}, r"a is -1\.0, which isn't in the range of Above"),
        ({"a": 1.0}, {"a": transforms.logit}, "a is 1.0, which isn't in the range of Between"),
        ({"a": np.array([0.5, 0.6])}, {"a": transforms.simplex}, "isn't in the range of Simplex"),
        ({"a": -np.eye(2)}, {"a": transforms.correlation}, "isn't in the range of Correlation"),
        ({"a": 2 * np.eye(2)}, {"a": transforms.correlation}, "isn't in the range of Correlation"),
        ({"a": "b"}, None, "a is 'b', and not a real number"),
        ({"a": 1j}, None, "a is 1j, and not a real number"),
        ({"a": 1.0}, {"b": transforms.log}, "transforms has b, and the parameters are a"),
    ],
)
def test_what_is_out_of_range_is_refused(params, given, message):
    with pytest.raises(ArgumentError, match=message):
        Unconstrained(params, given)


def test_a_list_is_no_transform():
    with pytest.raises(ArgumentError, match="which has no inverse"):
        transforms.Unconstrained({"a": [1.0, 2.0]}, {"a": [transforms.log, None]})
    space = transforms.Unconstrained({"a": [1.0, 2.0]}, {"a": {0: transforms.log}})
    np.testing.assert_array_equal(space.start, [0.0, 2.0])
