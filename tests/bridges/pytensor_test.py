"""Functions that are written with NumPy, in graphs of PyTensor."""

from __future__ import annotations

import numpy as np
import pytest

from tapegrad.errors import ArgumentError

pytestmark = [
    pytest.mark.filterwarnings("ignore:Numba will use object mode"),
    pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:pytensor"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
pytensor = pytest.importorskip("pytensor")

import pytensor.tensor as pt  # noqa: E402
from pytensor.gradient import DisconnectedInputError, Rop  # noqa: E402

from tapegrad.pytensor import as_op  # noqa: E402

MODES = pytest.mark.parametrize("mode", ["never", "always"])
W, X = pt.matrix("W", shape=(3, 2)), pt.matrix("X", shape=(5, 3))
FLAT = np.random.default_rng(0).normal(size=21)
VALUES = FLAT[:6].reshape(3, 2), FLAT[6:].reshape(5, 3)


def affine(w, x):
    return np.tanh(x @ w)


def total(w, x):
    return np.sum(np.sin(affine(w, x)) ** 2)


def both(f):
    """The same variable by tapegrad and by PyTensor."""
    wanted = pt.tanh(X @ W)
    return f(W, X), wanted if "affine" in f.__name__ else pt.sum(pt.sin(wanted) ** 2)


def check(found, wanted, variables=(W, X), values=VALUES):
    f, g = [pytensor.function(variables, x, on_unused_input="ignore") for x in (found, wanted)]
    for a, b in zip(f(*values), g(*values), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


@MODES
def test_values_and_pullbacks_are_those_of_the_same_graph_in_pytensor(mode):
    ct = np.random.default_rng(1).normal(size=(5, 2))
    for f in (affine, total):
        found, wanted = both(as_op(f, compile=mode))
        assert found.type == wanted.type
        seeds = [pt.sum(y * ct) if y.ndim else y * ct[0, 0] for y in (found, wanted)]
        check(*[[y, *pt.grad(s, [W, X])] for y, s in zip((found, wanted), seeds, strict=True)])


@pytest.mark.parametrize("f", [affine, total])
def test_second_derivatives(f):
    found = [pt.grad(pt.sum(pt.grad(pt.sum(y**2), W) ** 2), [W, X]) for y in both(as_op(f))]
    check(*found)


def test_derivatives_along_a_direction():
    t = pt.matrix("t", shape=(3, 2))
    check(*[[Rop(y, W, t)] for y in both(as_op(affine))], (W, X, t), (*VALUES, VALUES[0][::-1]))


def test_one_call_finds_a_number_and_its_gradient():
    y = as_op(total)(W, X)
    f = pytensor.function([W, X], [y, *pt.grad(y, [W, X])])
    assert len([n for n in f.maker.fgraph.apply_nodes if "total" in str(n.op)]) == 1
    g = pytensor.function([W, X], y)
    assert ["gradients" in str(n.op) for n in g.maker.fgraph.apply_nodes] == [False]


def test_trees_constants_and_other_leaves():
    @as_op
    def f(params, x, how, n=2):
        assert how == "squares" and type(n) is int
        return {"y": params["w"] * x**n, "k": np.arange(3), "how": how}

    w = pt.vector("w", shape=(3,))
    found = f({"w": w}, np.arange(3.0), "squares", n=2)
    assert found["how"] == "squares" and found["k"].dtype == "int64"
    check(
        [pt.grad(pt.sum(found["y"] * found["k"]), w)],
        [pt.arange(3.0) ** 3 + 0 * w],
        (w,),
        (np.ones(3),),
    )


def test_integers_have_no_derivative():
    w, n = pt.dvector("w"), pt.lvector("n")
    y = as_op(lambda w, n: np.sum(w * n))(w, n)
    check([pt.grad(y, w)], [n + 0 * w], (w, n), (np.ones(2), np.arange(2)))
    with pytest.raises(DisconnectedInputError):
        pt.grad(y, n)


def test_lengths_that_are_not_known():
    v = pt.dvector("v")
    y = as_op(np.cumsum)(v)
    assert y.type.shape == (None,)
    check([y, pt.grad(y[-1], v)], [pt.cumsum(v), pt.ones_like(v)], (v,), (np.arange(4.0),))
    weighed = as_op(lambda v: v @ np.ones(3))
    with pytest.raises(
        ArgumentError, match=r"aren't known, and it raises ValueError .*specify_shape"
    ):
        weighed(v)
    check([weighed(pt.specify_shape(v, 3))], [pt.sum(v)], (v,), (np.ones(3),))


def test_errors():
    with pytest.raises(ValueError, match="matmul"):
        as_op(lambda w: w @ np.ones(7))(W)
    with pytest.raises(ArgumentError, match="needs a function"):
        as_op(3)

    @as_op
    def f(x):
        if x[0, 0] > 3:
            raise ValueError("too large")
        return x if x[0, 0] < 2 else x[:2]

    g = pytensor.function([X], f(X))
    np.testing.assert_array_equal(g(np.ones((5, 3))), np.ones((5, 3)))
    with pytest.raises(ValueError, match="too large"):
        g(np.full((5, 3), 4.0))
    with pytest.raises(ArgumentError, match=r"shape \(2, 3\), and one of \(5, 3\) when the graph"):
        g(np.full((5, 3), 2.5))


def test_what_was_pickled_is_itself_in_the_process_that_made_it():
    cloudpickle = pytest.importorskip("cloudpickle")
    op = as_op(total)(W, X).owner.op
    assert cloudpickle.loads(cloudpickle.dumps(op)) == op


def test_a_model_of_pymcs_has_the_posterior_of_its_own_graph():
    pm = pytest.importorskip("pymc")
    y = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    sd = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])

    def log_likelihood(theta):
        return np.sum(-0.5 * ((y - theta) / sd) ** 2)

    found = []
    for own in (False, True):
        with pm.Model() as model:
            mu, tau = pm.Normal("mu", 0, 5), pm.HalfNormal("tau", 5)
            theta = mu + tau * pm.Normal("z", 0, 1, shape=8)
            if own:
                pm.Normal("y", theta, sd, observed=y)
            else:
                pm.Potential("y", as_op(log_likelihood)(theta))
            drawn = pm.sample(200, tune=200, chains=2, cores=1, random_seed=0, progressbar=False)
        point = model.initial_point()
        gradient = model.compile_dlogp()(point)
        found.append((np.asarray(drawn.posterior["mu"]), gradient))
    (a, da), (b, db) = found
    np.testing.assert_allclose(da, db, rtol=1e-10)
    assert abs(a.mean() - b.mean()) < 4 * b.std() / 10  # some 100 independent draws
