"""Users' rules in forward mode: `defjvp`, `Function.jvp`, and transposes of rules in one mode."""

from __future__ import annotations

import numpy as np
import pytest

import tapegrad as tg
from tapegrad import Function, defjvp, defvjp, grad, primitive, trace, vjp, vmap
from tapegrad.backends.numpy.play import run
from tapegrad.checking.tape_verify import verify
from tapegrad.errors import ArgumentError, GradientError, RuleError
from tapegrad.pipeline import derive_forward, settled

X, T = np.array([0.5, -2.0, 3.0]), np.array([1.0, -3.0, 0.25])


def jvp(f, primals, ts):
    """J t, of a traced function."""
    _, tape = trace(f, *primals)
    return played(derive_forward(tape, range(len(primals))), *primals, *ts)


@pytest.fixture(params=["never", "always"])
def mode(request):
    return request.param


def played(tape, *values):
    results, _ = run(settled(verify(tape)), [*values, *tape.captured])
    return results[0] if len(results) == 1 else results


@pytest.fixture
def cube():
    """A primitive without rules, whose derivative is told apart from its rules'."""

    @primitive
    def cube(x, k=1.0):
        return k * x**3

    return cube


def test_a_forward_rule_is_followed(cube):
    assert defjvp(cube, lambda t, out, x, k=1.0: 10 * k * t, None) is cube
    np.testing.assert_array_equal(jvp(lambda x: cube(x, 2.0), [X], [T]), 20 * T)


def test_rules_of_several_arguments_add_up(cube):
    defjvp(cube, k=lambda t, out, x, k: t * x, x=lambda t, out, x, k: 3 * t)
    found = jvp(cube, [X, np.float64(2)], [T, np.float64(0.5)])
    np.testing.assert_array_equal(found, 3 * T + 0.5 * X)
    np.testing.assert_array_equal(jvp(lambda x: cube(x, 2.0), [X], [T]), 3 * T)


def test_one_rule_for_all_arguments(cube):
    @defjvp(cube)
    def _(ts, out, x, k):
        assert ts[1] is None
        return 7 * ts[0]

    np.testing.assert_array_equal(jvp(lambda x: cube(x, 2.0), [X], [T]), 7 * T)


def test_a_forward_rule_serves_reverse_mode(cube, mode):
    """It is linear in the tangent, so its transpose is the reverse rule; and it differentiates."""
    defjvp(cube, lambda t, out, x, k=1.0: t * x * out, None)
    df = grad(lambda x: np.sum(cube(x, 2.0)), compile=mode)
    np.testing.assert_allclose(df(X), 2 * X**4)
    ddf = grad(lambda x: np.sum(df(x)), compile=mode)
    np.testing.assert_allclose(ddf(X), 2 * X**3 + X * (2 * X**4))


def test_a_reverse_rule_serves_forward_mode(cube):
    defvjp(cube, lambda ct, out, x, k: ct * x * out, lambda ct, out, x, k: np.sum(ct * x))
    np.testing.assert_allclose(
        jvp(cube, [X, np.float64(2)], [T, np.float64(0.5)]), T * 2 * X**4 + 0.5 * X
    )
    twice = jvp(grad(lambda x: np.sum(cube(x, 2.0))), [X], [T])
    np.testing.assert_allclose(twice, T * (2 * X**3 + X * (2 * X**4)))


def test_with_both_rules_each_mode_has_its_own(cube):
    defvjp(cube, lambda ct, out, x: 5 * ct)
    defjvp(cube, lambda t, out, x: 6 * t)
    np.testing.assert_array_equal(jvp(cube, [X], [T]), 6 * T)
    np.testing.assert_array_equal(grad(lambda x: np.sum(cube(x)))(X), 5 * np.ones(3))


def test_rules_that_mix_axes_are_transposed():
    """Sums, broadcasts, products of matrices; nested arguments and results."""

    @primitive
    def affine(p, x):
        return {"y": x @ p["w"] + p["b"], "size": np.sum(x)}

    @defvjp(affine)
    def _(ct, out, p, x):
        whole = {"w": x.T @ ct["y"], "b": np.sum(ct["y"], 0)}
        return whole, ct["y"] @ p["w"].T + ct["size"]

    rng = np.random.default_rng(0)
    w, b, x, tw, tb, tx = (rng.normal(size=s) for s in [(3, 2), 2, (4, 3)] * 2)

    def f(w, b, x):
        found = affine({"w": w, "b": b}, x)
        return found["y"], found["size"]

    y, size = jvp(f, [w, b, x], [tw, tb, tx])
    np.testing.assert_allclose(y, tx @ w + x @ tw + tb)
    assert size == pytest.approx(np.sum(tx))

    @primitive
    def same(p, x):
        return affine.function(p, x)

    @defjvp(same)
    def _(ts, out, p, x):
        t_p, t_x = ts
        return {"y": t_x @ p["w"] + x @ t_p["w"] + t_p["b"], "size": np.sum(t_x)}

    def g(w, b, x):
        found = same({"w": w, "b": b}, x)
        return found["y"], found["size"]

    cts = rng.normal(size=(4, 2)), 0.7
    for found, wanted in zip(vjp(g, w, b, x)[1](cts), vjp(f, w, b, x)[1](cts), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-13)


def test_complex_rules_are_transposed_with_nothing_conjugated():
    """w = exp(z): dw = w dz, and ct dz = ct w; of |z|^2, which is real, dw = 2 Re(conj(z) dz)."""
    z, dz = X + 1j * T, T - 2j * X

    @primitive
    def exp(z):
        return np.exp(z)

    defjvp(exp, lambda t, out, z: t * out)
    np.testing.assert_allclose(vjp(exp, z)[1](dz)[0], dz * np.exp(z))

    @primitive
    def power(z):
        return z.real**2 + z.imag**2

    defvjp(power, lambda ct, out, z: 2 * ct * np.conj(z))
    np.testing.assert_allclose(jvp(power, [z], [dz]), 2 * (np.conj(z) * dz).real)


class Cube(Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.save_for_backward(x * x)
        ctx.k = k
        return k * x**3

    @staticmethod
    def jvp(ctx, t, t_k):
        (square,) = ctx.saved_tensors
        assert t_k is None
        return 3 * ctx.k * square * t


def test_a_function_with_a_jvp(mode):
    """It is the rule of both modes if there is no `backward`."""
    np.testing.assert_allclose(jvp(lambda x: Cube.apply(x, 2), [X], [T]), 6 * X**2 * T)
    df = grad(lambda x: np.sum(Cube.apply(x, 2)), compile=mode)
    np.testing.assert_allclose(df(X), 6 * X**2)
    np.testing.assert_allclose(grad(lambda x: np.sum(df(x)), compile=mode)(X), 12 * X)


def test_a_function_with_both_passes():
    class Both(Cube):
        @staticmethod
        def backward(ctx, ct):
            return 5 * ct, None

    np.testing.assert_allclose(jvp(lambda x: Both.apply(x, 2), [X], [T]), 6 * X**2 * T)
    np.testing.assert_array_equal(grad(lambda x: np.sum(Both.apply(x, 2)))(X), 5 * np.ones(3))


# ---- functions and rules that can't be traced


def test_a_function_that_numpy_runs_has_forward_rules():
    @primitive
    def opaque(x, k):
        return np.array([k * float(v) ** 3 for v in x])

    defjvp(opaque, lambda t, out, x, k: 3 * k * x**2 * t, None)
    np.testing.assert_allclose(jvp(lambda x: opaque(x, 2.0), [X], [T]), 6 * X**2 * T)
    np.testing.assert_allclose(grad(lambda x: np.sum(opaque(x, 2.0)))(X), 6 * X**2)


def slope(t, out, x):
    """A rule that needs values."""
    return 3 * x**2 * t if np.all(np.isfinite(out)) else 0 * x


def test_rules_that_numpy_runs(cube):
    """In their own mode they are calls of NumPy; the other one can't be made of them."""
    defvjp(cube, slope)
    np.testing.assert_allclose(grad(lambda x: np.sum(cube(x)))(X), 3 * X**2)
    with pytest.raises(GradientError, match=r"cube has a reverse rule alone.*tapegrad\.defjvp"):
        jvp(cube, [X], [T])
    defjvp(cube, slope)
    np.testing.assert_allclose(jvp(cube, [X], [T]), 3 * X**2 * T)


def test_a_forward_rule_alone_that_numpy_runs(cube):
    defjvp(cube, slope)
    with pytest.raises(GradientError, match="cube has a forward rule alone"):
        grad(lambda x: np.sum(cube(x)))(X)


def test_rules_capture_arrays():
    weights = np.array([1.0, 2.0, 4.0])

    @primitive
    def f(x):
        return x * 1.0

    defjvp(f, lambda t, out, x: weights * t)
    np.testing.assert_array_equal(jvp(f, [X], [T]), weights * T)
    np.testing.assert_array_equal(grad(lambda x: np.sum(f(x)))(X), weights)


# ---- loops, stops, functions of libraries


def test_rules_inside_of_a_loop(cube):
    defvjp(cube, lambda ct, out, x, k=1.0: 2 * ct, None)

    def f(x):
        for _ in range(20):
            x = cube(x, 0.1)
        return x

    np.testing.assert_allclose(jvp(f, [X], [T]), 2.0**20 * T)


def test_a_function_of_a_library(own_answers):
    from scipy.special import mathieu_a

    defjvp(mathieu_a, None, lambda t, out, m, q: t * (q + out))
    q = np.array([0.5, 1.0])
    found = jvp(lambda q: mathieu_a(2, q), [q], [np.ones(2)])
    np.testing.assert_allclose(found, q + mathieu_a(2, q))
    np.testing.assert_allclose(grad(lambda q: np.sum(mathieu_a(2, q)))(q), q + mathieu_a(2, q))


# ---- errors


def test_an_argument_without_a_rule_is_an_error_where_it_moves(cube):
    defjvp(cube, lambda t, out, x, k: 3 * t)
    np.testing.assert_array_equal(jvp(lambda x: cube(x, 2.0), [X], [T]), 3 * T)
    np.testing.assert_array_equal(grad(lambda x: np.sum(cube(x, 2.0)))(X), 3 * np.ones(3))
    with pytest.raises(GradientError, match=r"no derivative rule for its argument 'k'.*defjvp"):
        jvp(cube, [X, 2.0], [T, 1.0])
    with pytest.raises(GradientError, match=r"no derivative rule for its argument 'k'.*defjvp"):
        grad(lambda k: np.sum(cube(X, k)))(2.0)


def test_what_defjvp_refuses(cube):
    with pytest.raises(ArgumentError, match="defjvp: 3 rules were given"):
        defjvp(cube, None, None, None)
    with pytest.raises(ArgumentError, match="defjvp: cube has no argument 'z'"):
        defjvp(cube, z=None)
    with pytest.raises(
        ArgumentError, match=r"defjvp: the rule .* is 3\. A rule is a function of \(t,"
    ):
        defjvp(cube, 3)
    with pytest.raises(ArgumentError, match=r"takes \(t, x\).*the tangent of its argument first"):
        defjvp(cube, lambda t, x: t)
    with pytest.raises(ArgumentError, match=r"defjvp needs a function that is declared"):
        defjvp(lambda x: x, None)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (lambda t, out, x: np.sum(t), r"a tangent of shape \(\), and the result has shape \(3,\)"),
        (lambda t, out, x: "t", "a tangent 't'"),
        (lambda t, out, x: 1j * t, "complex"),
        (lambda t, out, x: (t, t), "A tangent is a real array"),
    ],
)
def test_what_isnt_a_tangent_of_the_result(cube, rule, message):
    defjvp(cube, rule)
    with pytest.raises(RuleError, match=message):
        jvp(cube, [X], [T])


def test_what_a_forward_rule_reads_may_change():
    """So may the rule itself: later calls have the new one."""
    factor = {"of": 2.0}

    @primitive
    def f(x):
        return x * 1.0

    defjvp(f, lambda t, out, x: factor["of"] * t)
    df = grad(lambda x: np.sum(f(x)))
    np.testing.assert_array_equal(df(X), 2 * np.ones(3))
    factor["of"] = 3.0
    np.testing.assert_array_equal(df(X), 3 * np.ones(3))
    np.testing.assert_array_equal(tg.jvp(f, (X,), (T,))[1], 3 * T)
    defjvp(f, lambda t, out, x: 4 * t)
    np.testing.assert_array_equal(df(X), 4 * np.ones(3))
    np.testing.assert_array_equal(tg.jvp(f, (X,), (T,))[1], 4 * T)


def test_rules_that_derive_are_transposed():
    """A rule is transposed where only types are known: neither the direction of a `jvp` nor the
    rows of a `vmap` have values."""
    sine = primitive(np.sin)
    defjvp(sine, lambda t, out, x: tg.jvp(np.sin, (x,), (t,))[1])
    np.testing.assert_allclose(grad(sine)(0.5), np.cos(0.5))
    cubes = primitive(lambda x: np.sum(x**3, axis=1))
    defvjp(cubes, lambda ct, out, x: ct[:, None] * vmap(grad(lambda r: np.sum(r**3)))(x))
    x = np.arange(6.0).reshape(3, 2)
    np.testing.assert_allclose(tg.jvp(cubes, (x,), (x,))[1], np.sum(3 * x**3, axis=1))
