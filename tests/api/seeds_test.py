"""The examples of the systems that tapegrad descends from, as their users know them."""

from dataclasses import dataclass

import numpy as np
import pytest

from tapegrad import (
    Function,
    defvjp,
    grad,
    gradcheck,
    primitive,
    simplegrad,
    trace,
    value_and_grad,
)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture(params=["never", "always"])
def mode(request):
    """Played with NumPy, and compiled."""
    return request.param


# ---- Yota


@dataclass
class Linear:
    W: np.ndarray
    b: np.ndarray

    def __call__(self, X):
        return self.W @ X + self.b


def linear_loss(m, X):
    return np.sum(m(X))


def test_linear_loss_with_respect_to_the_parameters_and_to_x(rng, mode):
    m = Linear(W=rng.random((3, 4)), b=rng.random((3, 1)))
    X = rng.random((4, 5))
    value, (dm, dX) = value_and_grad(linear_loss, argnums=(0, 1), compile=mode)(m, X)
    assert value == pytest.approx(np.sum(m.W @ X + m.b))
    assert isinstance(dm, Linear)
    np.testing.assert_allclose(dm.W, np.tile(X.sum(axis=1), (3, 1)))
    np.testing.assert_allclose(dm.b, np.full((3, 1), 5.0))
    np.testing.assert_allclose(dX, np.tile(m.W.sum(axis=0)[:, None], (1, 5)))


def test_updating_the_parameters_lowers_the_loss(rng, mode):
    m = Linear(W=rng.random((3, 4)), b=rng.random((3, 1)))
    X = rng.random((4, 5))
    before, dm = value_and_grad(linear_loss, compile=mode)(m, X)
    m.W -= 0.01 * dm.W
    m.b -= 0.01 * dm.b
    assert linear_loss(m, X) < before


@primitive
def logistic(x):
    return 1 / (1 + np.exp(-x))


defvjp(logistic, lambda ct, out, x: ct * out * (1 - out))


def test_logistic_with_a_custom_rule(rng, mode):
    x = rng.random(5)
    value, dx = value_and_grad(lambda x: np.sum(logistic(x)), compile=mode)(x)
    assert value == pytest.approx(np.sum(1 / (1 + np.exp(-x))))
    np.testing.assert_allclose(dx, logistic(x) * (1 - logistic(x)))


def test_trace_print_play_and_compile():
    def foo(x):
        return 2.0 * x + 1.0

    value, tape = trace(foo, 4.0)
    assert value == 9.0
    lines = [line.split("#")[0].strip() for line in str(tape).splitlines()]
    assert lines == [
        "tape foo(x)",
        "inp   %1 : f8*[]",
        "%2 = mul(2.0, %1) : f8[]",
        "%3 = add(%2, 1.0) : f8[]",
        "out   %3",
    ]
    assert tape.play(5.0) == 11.0
    assert tape.compile()(5.0) == 11.0


def test_simplegrad_of_an_affine_map(rng):
    def loss(W, b, x):
        return np.sum(W @ x + b)

    W, b, x = rng.random((3, 4)), rng.random(3), rng.random(4)
    dloss = simplegrad(loss, W, b, x)
    value, dW, db, dx = dloss(W, b, x)
    assert value == pytest.approx(np.sum(W @ x + b))
    np.testing.assert_allclose(dW, np.tile(x, (3, 1)))
    np.testing.assert_allclose(db, np.ones(3))
    np.testing.assert_allclose(dx, W.sum(axis=0))


def test_a_loop_is_traced_anew_when_its_length_changes(rng, mode):
    def iterative(x, n):
        for _ in range(n):
            x = 2.0 * x
        return np.sum(x)

    x = rng.random(4)
    g = grad(iterative, compile=mode)
    for n, expected in [(1, 2.0), (2, 4.0), (3, 8.0), (1, 2.0)]:
        np.testing.assert_array_equal(g(x, n), np.full(4, expected))


# ---- torch-autograd


def neural_net(params, x, y):
    h1 = np.tanh(x @ params["W"][0] + params["b"][0])
    h2 = np.tanh(h1 @ params["W"][1] + params["b"][1])
    yhat = h2 - np.log(np.sum(np.exp(h2)))
    return -np.sum(yhat * y)


@pytest.fixture
def network(rng):
    params = {
        "W": [rng.normal(size=(100, 50)), rng.normal(size=(50, 10))],
        "b": [rng.normal(size=50), rng.normal(size=10)],
    }
    y = np.zeros((1, 10))
    y[0, 2] = 1
    return params, rng.normal(size=(1, 100)), y


def test_gradients_have_the_structure_of_the_parameters(network, mode):
    params, x, y = network
    loss, dparams = value_and_grad(neural_net, compile=mode)(params, x, y)
    assert loss == pytest.approx(neural_net(params, x, y))
    h1 = np.tanh(x @ params["W"][0] + params["b"][0])
    h2 = np.tanh(h1 @ params["W"][1] + params["b"][1])
    d2 = (np.exp(h2) / np.exp(h2).sum() - y) * (1 - h2**2)
    d1 = d2 @ params["W"][1].T * (1 - h1**2)
    np.testing.assert_allclose(dparams["W"][0], x.T @ d1, atol=1e-12)
    np.testing.assert_allclose(dparams["W"][1], h1.T @ d2, atol=1e-12)
    np.testing.assert_allclose(dparams["b"][0], d1[0], atol=1e-12)
    np.testing.assert_allclose(dparams["b"][1], d2[0], atol=1e-12)


def test_sgd_loop_learns_on_one_trace(network, mode):
    params, x, y = network
    dneural_net = value_and_grad(neural_net, compile=mode)
    traces = dneural_net.cache_info().traces
    losses = []
    for _ in range(100):
        loss, grads = dneural_net(params, x, y)
        losses.append(loss)
        for name in params:
            for k in range(2):
                params[name][k] = params[name][k] - 0.1 * grads[name][k]
    assert losses[-1] < 0.5 * losses[0]
    assert dneural_net.cache_info().traces - traces <= 1


def test_gradients_of_gradients(rng, mode):
    def inner(params, x, y):
        return np.sum((x @ params["W"] + params["b"] - y) ** 2)

    def penalty(params, x, y):
        grads = grad(inner)(params, x, y)
        return np.sum(grads["W"] ** 2) + np.sum(grads["b"] ** 2)

    params = {"W": rng.normal(size=(3, 2)), "b": rng.normal(size=2)}
    x, y = rng.normal(size=(4, 3)), rng.normal(size=(4, 2))
    found = grad(penalty, compile=mode)(params, x, y)
    r = x @ params["W"] + params["b"] - y
    dW, db = 2 * x.T @ r, 2 * r.sum(axis=0)
    np.testing.assert_allclose(found["W"], 4 * x.T @ (x @ dW + db))
    np.testing.assert_allclose(found["b"], 4 * (x @ dW + db).sum(axis=0))


# ---- Fleuret's course on deep learning


class KillHead(Function):
    @staticmethod
    def forward(ctx, x, n):
        ctx.n = n
        result = x.copy()
        result[:, 0 : ctx.n] = 0
        return result

    @staticmethod
    def backward(ctx, ct):
        result = ct.copy()
        result[:, 0 : ctx.n] = 0
        return result, None


class Something(Function):
    """|u v|, element by element"""

    @staticmethod
    def forward(ctx, u, v):
        ctx.save_for_backward(u, v)
        return np.abs(u * v)

    @staticmethod
    def backward(ctx, ct):
        u, v = ctx.saved_tensors
        slope = ct * np.sign(u * v)
        return slope * v, slope * u


def test_kill_head_training_leaves_the_head_alone(rng, mode):
    y, x = rng.normal(size=(3, 8)), rng.normal(size=(3, 8))
    head = x[:, :2].copy()
    gap = np.mean((x[:, 2:] - y[:, 2:]) ** 2) * 6 / 8  # what the descent can take away
    rest = np.mean(y[:, :2] ** 2) * 2 / 8  # what it can't

    def loss(x):
        return np.mean((KillHead.apply(x, 2) - y) ** 2)

    step = value_and_grad(loss, compile=mode)
    for k in range(5):
        value, dx = step(x)
        assert value == pytest.approx(rest + gap * (1 - 2 / y.size) ** (2 * k))
        x -= 1.0 * dx
    np.testing.assert_array_equal(x[:, :2], head)


def test_kill_head_gradcheck(rng):
    x = rng.uniform(-10, 10, size=(10, 20))
    assert gradcheck(KillHead.apply, (x, 4), eps=1e-6, atol=1e-4)


def test_kill_head_is_traced_with_its_name(rng):
    x = rng.normal(size=(3, 8))
    _, tape = trace(lambda x: KillHead.apply(x, 2), x)
    assert "KillHead" in str(tape)
    np.testing.assert_array_equal(tape.play(x), KillHead.apply(x, 2))


def test_something_has_two_gradients(rng, mode):
    u, v, ct = rng.normal(size=(3, 5))
    something = grad(lambda u, v: Something.apply(u, v) @ ct, argnums=(0, 1), compile=mode)
    du, dv = something(u, v)
    np.testing.assert_allclose(du, ct * np.sign(u * v) * v)
    np.testing.assert_allclose(dv, ct * np.sign(u * v) * u)
    assert gradcheck(Something.apply, (u, v), eps=1e-6, atol=1e-4)
