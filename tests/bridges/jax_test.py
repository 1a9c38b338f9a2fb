"""Functions that are written with NumPy, in JAX's programs."""

from __future__ import annotations

import numpy as np
import pytest

from tapegrad import defvjp, primitive
from tapegrad.errors import ArgumentError

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

from tapegrad.jax import as_jax  # noqa: E402

MODES = pytest.mark.parametrize("mode", ["never", "always"])


def affine(np):
    return lambda p, x: np.tanh(x @ p["W"] + p["b"])


def total(np):
    return lambda p, x: np.sum(np.sin(affine(np)(p, x)) ** 2)


def arguments():
    rng = np.random.default_rng(0)
    drawn = [jnp.asarray(rng.normal(size=s)) for s in ((3, 2), 2, (5, 3))]
    return {"W": drawn[0], "b": drawn[1]}, drawn[2]


@pytest.fixture(autouse=True, params=[True, False], ids=["x64", "x32"])
def x64(request):
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", request.param)
    yield request.param
    jax.config.update("jax_enable_x64", before)


def check(found, wanted):
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_allclose(x, y, rtol=1e-10 if x.dtype == np.float64 else 2e-5, atol=2e-6)


@MODES
@pytest.mark.parametrize("within", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_values_and_pullbacks_are_those_of_the_same_program_in_jax(mode, within):
    args = arguments()
    rng = np.random.default_rng(1)
    for make in (affine, total):
        f, g = within(as_jax(make(np), compile=mode)), make(jnp)
        check(f(*args), g(*args))
        for _ in range(3):
            wanted, pull = jax.vjp(g, *args)
            ct = jnp.asarray(rng.normal(size=wanted.shape), wanted.dtype)
            check(jax.vjp(f, *args)[1](ct), pull(ct))


@pytest.mark.parametrize("make", [affine, total])
def test_second_derivatives(make):
    def norm(f):
        return lambda p, x: jnp.sum(f(p, x) ** 2)

    p, x = arguments()
    found = jax.jit(jax.jacrev(jax.grad(norm(as_jax(make(np))))))(p, x)
    check(found, jax.jacrev(jax.grad(norm(make(jnp))))(p, x))


def test_rows_are_one_call():
    p, x = arguments()
    found = as_jax(total(np))
    two = jax.tree.map(lambda a: jnp.stack([a, 2 * a]), p)

    def all_rows(f):
        return jax.vmap(jax.vmap(f, in_axes=(None, 0)), in_axes=(0, None))

    check(all_rows(found)(two, x), all_rows(total(jnp))(two, x))
    check(all_rows(jax.grad(found))(two, x), all_rows(jax.grad(total(jnp)))(two, x))
    program = str(jax.make_jaxpr(all_rows(found))(two, x))
    assert program.count("pure_callback") == 1 and "scan" not in program
    one = jax.grad(lambda p: jnp.sum(jax.vmap(found, in_axes=(None, 0))(p, x[:1])))
    check(one(p), jax.grad(lambda p: total(jnp)(p, x[0]))(p))


def test_within_scan_and_checkpoint():
    p, x = arguments()

    def summed(f):
        return lambda p: jax.lax.scan(
            lambda c, row: (c + jax.checkpoint(f)(p, row), None), 0 * f(p, x[0]), x
        )[0]

    check(jax.jit(jax.grad(summed(as_jax(total(np)))))(p), jax.grad(summed(total(jnp)))(p))


def test_only_gradients_that_are_asked_for_are_computed():
    """A derivative without a rule is an error where it is wanted."""

    @primitive
    def scaled(w, x):
        return w * x

    defvjp(scaled, w=lambda ct, out, w, x: ct * x)
    for f in (as_jax(lambda w, x: np.sum(scaled(w, x))), as_jax(scaled)):
        df = jax.jit(jax.grad(lambda w, x, f=f: jnp.sum(f(w, x))))
        check(df(jnp.ones(3), jnp.ones(3)), jnp.ones(3))


def test_complex_numbers_have_the_derivatives_of_jax():
    z = jnp.array([1.0 + 2.0j, 0.5 - 1.0j])
    check(
        jax.grad(as_jax(lambda z: np.sum(np.abs(z) ** 3)))(z),
        jax.grad(lambda z: jnp.sum(jnp.abs(z) ** 3))(z),
    )
    for ct in (z, 1j * z):
        found = jax.vjp(as_jax(lambda z: np.exp(z) * np.conj(z)), z)[1](ct)
        check(found, jax.vjp(lambda z: jnp.exp(z) * jnp.conj(z), z)[1](ct))


def test_other_leaves_stay_what_they_are():
    @as_jax
    def f(x, n, how, scale=1.0):
        assert type(how) is str and type(scale) is float
        return {"squares": scale * x**2, "how": how, "n": n * 2, "none": None}

    x, n = jnp.array([1.0, 2.0]), jnp.array([3, 4])
    found = f(x, n, "fast", scale=-0.0)
    assert found["how"] == "fast" and found["none"] is None
    assert (
        np.signbit(found["squares"]).all()
        and not np.signbit(f(x, n, "fast", scale=0.0)["squares"]).any()
    )
    check(found["n"], 2 * n)
    check(jax.grad(lambda x: jnp.sum(f(x, n, "slow")["squares"]))(x), 2 * x)


def test_branches_go_by_the_values_of_the_call():
    @as_jax
    def f(x):
        if x[0] > 3:
            raise ValueError("too large")
        return x if x[0] < 2 else x**2

    df = jax.jit(jax.grad(lambda x: jnp.sum(f(x))))
    check(df(jnp.array([1.0, 5.0])), jnp.array([1.0, 1.0]))
    check(df(jnp.array([2.5, 5.0])), jnp.array([5.0, 10.0]))
    with pytest.raises(Exception, match=r"(?s)jax_test.*too large"):
        jax.block_until_ready(df(jnp.array([4.0, 5.0])))


def test_errors_come_when_jax_traces():
    with pytest.raises(ValueError, match="matmul"):
        jax.eval_shape(as_jax(lambda x: x @ np.ones(7)), jnp.ones(3))
    with pytest.raises(ArgumentError, match=r"float8_e4m3fn.*astype"):
        as_jax(lambda x: x)(jnp.ones(2, jnp.float8_e4m3fn))
    with pytest.raises(ArgumentError, match=r"key.*jax\.random\.key_data\(x\)"):
        as_jax(lambda x: x)(jax.random.key(0))
    with pytest.raises(ArgumentError, match="needs a function"):
        as_jax(3)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_half_precision_is_computed_in_float32_and_gradients_are_rounded(dtype):
    def f(x):
        return np.sum(np.sin(x) * x)

    x = jnp.array([0.5, 1.0, 2.0], dtype)
    wide = np.asarray(x, np.float32)
    slope = np.sin(wide) + wide * np.cos(wide)
    np.testing.assert_allclose(as_jax(f)(x), f(wide), rtol=1e-6)
    _, pull = jax.vjp(as_jax(lambda x: np.sin(x) * x), x)
    for found in (jax.grad(as_jax(f))(x), pull(jnp.ones(3, jnp.float32))[0]):
        assert found.dtype == dtype
        np.testing.assert_array_equal(np.asarray(found), np.asarray(jnp.asarray(slope, dtype)))
    kept = as_jax(lambda x: x)(x)
    np.testing.assert_array_equal(np.asarray(kept, np.float32), wide)


def test_another_shape_than_jax_was_told_is_an_error():
    f = jax.jit(as_jax(lambda x: x[: 2 if x[0] > 2 else 3]))
    assert f(jnp.ones(3)).shape == (3,)
    with pytest.raises(Exception, match=r"shape \(2,\), and one of \(3,\) when JAX asked"):
        jax.block_until_ready(f(3 * jnp.ones(3)))


def test_a_model_of_numpyros_has_the_posterior_of_its_own_program():
    numpyro = pytest.importorskip("numpyro")
    from numpyro.infer import MCMC, NUTS

    y, sd = eight_schools()

    def log_likelihood(np):
        return lambda theta: np.sum(-0.5 * ((y - theta) / sd) ** 2)

    def model(f):
        def run():
            mu = numpyro.sample("mu", numpyro.distributions.Normal(0.0, 5.0))
            tau = numpyro.sample("tau", numpyro.distributions.HalfNormal(5.0))
            z = numpyro.sample("z", numpyro.distributions.Normal(jnp.zeros(8), 1.0))
            numpyro.factor("y", f(mu + tau * z))

        return run

    found = []
    for f in (as_jax(log_likelihood(np)), log_likelihood(jnp)):
        mcmc = MCMC(NUTS(model(f)), num_warmup=200, num_samples=400, progress_bar=False)
        mcmc.run(jax.random.PRNGKey(0))
        found.append(mcmc.get_samples()["mu"])
    a, b = found
    assert abs(a.mean() - b.mean()) < 4 * float(b.std()) / 10  # some 100 independent draws


def eight_schools():
    """Effects of coaching in eight schools, and their standard errors (Rubin, 1981)."""
    return (
        np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0]),
        np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0]),
    )
