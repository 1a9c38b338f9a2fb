"""Time models that call SciPy under its own names, beside JAX's `jax.scipy` and what replaces it.

    python benchmarks/models.py
    python benchmarks/models.py --only 'weibull*' --compile auto

tapegrad gets the model as a statistician writes it. JAX has no splines and no differential
equations in `jax.scipy`: its spline is a tridiagonal solve by hand, its solver of equations
`jax.experimental.ode`, which goes backwards by the adjoint equation.
"""

import numpy as np
import scipy.integrate
import scipy.interpolate
import scipy.linalg
import scipy.stats
from beside import command
from workloads import Workload

# ---- a Gaussian process's likelihood, by Cholesky factors


def make_process(rng):
    x = np.sort(rng.uniform(-3, 3, 200))
    return np.log([0.8, 0.5, 0.2]), x, np.sin(2 * x) + 0.2 * rng.standard_normal(200)


def process(xp, logs, x, y):
    height, width, noise = np.exp(logs)
    distance = (x[:, None] - x[None, :]) / width
    covariance = height**2 * np.exp(-0.5 * distance**2) + noise**2 * np.eye(len(x))
    factor = scipy.linalg.cho_factor(covariance, lower=True)
    quadratic = y @ scipy.linalg.cho_solve(factor, y)
    return 0.5 * quadratic + np.sum(np.log(np.diag(factor[0])))


def process_jax(logs, x, y):
    import jax.numpy as jnp
    import jax.scipy.linalg as linalg

    height, width, noise = jnp.exp(logs)
    distance = (x[:, None] - x[None, :]) / width
    covariance = height**2 * jnp.exp(-0.5 * distance**2) + noise**2 * jnp.eye(len(x))
    factor = linalg.cho_factor(covariance, lower=True)
    quadratic = y @ linalg.cho_solve(factor, y)
    return 0.5 * quadratic + jnp.sum(jnp.log(jnp.diag(factor[0])))


# ---- counts with more spread than Poisson's: a negative binomial regression


def make_counts(rng):
    X = np.column_stack([np.ones(20_000), rng.standard_normal((20_000, 4))])
    rate = np.exp(X @ np.array([0.5, 0.3, -0.2, 0.1, 0.4]))
    return np.array([0.4, 0.2, -0.1, 0.1, 0.3, 0.5]), X, rng.negative_binomial(2.0, 2 / (2 + rate))


def negative_binomial(xp, params, X, y):
    mean, size = np.exp(X @ params[:-1]), np.exp(params[-1])
    return -np.mean(scipy.stats.nbinom.logpmf(y, size, size / (size + mean)))


def negative_binomial_jax(params, X, y):
    import jax.numpy as jnp
    from jax.scipy import stats

    mean, size = jnp.exp(X @ params[:-1]), jnp.exp(params[-1])
    return -jnp.mean(stats.nbinom.logpmf(y, size, size / (size + mean)))


# ---- lifetimes, of which some aren't over: accelerated failure by Weibull's distribution


def make_lifetimes(rng):
    X = np.column_stack([np.ones(20_000), rng.standard_normal((20_000, 3))])
    lives = np.exp(X @ np.array([1.0, -0.5, 0.3, 0.1])) * rng.weibull(1.6, 20_000)
    watched = rng.uniform(0.5, 5.0, 20_000)
    params = np.array([0.8, -0.4, 0.2, 0.1, np.log(1.4)])
    return params, X, np.minimum(lives, watched), lives <= watched


def weibull(xp, params, X, time, failed):
    scale, shape = np.exp(X @ params[:-1]), np.exp(params[-1])
    density = scipy.stats.weibull_min.logpdf(time, shape, scale=scale)
    survival = scipy.stats.weibull_min.logsf(time, shape, scale=scale)
    return -np.mean(np.where(failed, density, survival))


def weibull_jax(params, X, time, failed):
    import jax.numpy as jnp

    scale, shape = jnp.exp(X @ params[:-1]), jnp.exp(params[-1])
    z = time / scale
    survival = -(z**shape)
    density = jnp.log(shape / scale) + (shape - 1) * jnp.log(z) + survival
    return -jnp.mean(jnp.where(failed, density, survival))


# ---- hares and lynxes, by SciPy's integrator


def make_orbits(rng):
    times = np.linspace(0, 8, 41)
    seen = 1 + 0.5 * np.column_stack([np.sin(times), np.cos(times)])
    return np.array([1.1, 0.4, 0.9, 0.3]), np.array([2.0, 1.0]), times, seen


def orbits(xp, rates, start, times, seen):
    a, b, c, d = rates

    def slope(t, state):
        x, y = state
        return np.array([a * x - b * x * y, d * x * y - c * y])

    span = (times[0], times[-1])
    found = scipy.integrate.solve_ivp(slope, span, start, t_eval=times, rtol=1e-6, atol=1e-8)
    return np.mean((found.y.T - seen) ** 2)


def orbits_jax(rates, start, times, seen):
    import jax.numpy as jnp
    from jax.experimental.ode import odeint

    def slope(state, t, a, b, c, d):
        x, y = state
        return jnp.array([a * x - b * x * y, d * x * y - c * y])

    found = odeint(slope, start, times, *rates, rtol=1e-6, atol=1e-8)
    return jnp.mean((found - seen) ** 2)


# ---- a natural cubic spline through values that are sought


def make_spline(rng):
    knots = np.linspace(0, 10, 50)
    x = np.sort(rng.uniform(0, 10, 5000))
    return np.sin(knots), knots, x, np.sin(1.1 * x) + 0.1 * rng.standard_normal(5000)


def spline(xp, values, knots, x, y):
    curve = scipy.interpolate.CubicSpline(knots, values, bc_type="natural")
    return np.mean((curve(x) - y) ** 2)


def spline_jax(values, knots, x, y):
    import jax.numpy as jnp
    from jax.lax.linalg import tridiagonal_solve

    h = jnp.diff(knots)
    slopes = jnp.diff(values) / h
    inner = 6 * jnp.diff(slopes)
    below = jnp.concatenate([jnp.zeros(1), h[1:-1]])
    above = jnp.concatenate([h[1:-1], jnp.zeros(1)])
    bends = tridiagonal_solve(below, 2 * (h[:-1] + h[1:]), above, inner[:, None])[:, 0]
    bends = jnp.concatenate([jnp.zeros(1), bends, jnp.zeros(1)])
    k = jnp.clip(jnp.searchsorted(knots, x, side="right") - 1, 0, len(h) - 1)
    left, right, width = x - knots[k], knots[k + 1] - x, h[k]
    found = (bends[k] * right**3 + bends[k + 1] * left**3) / (6 * width)
    found += (values[k] / width - bends[k] * width / 6) * right
    found += (values[k + 1] / width - bends[k + 1] * width / 6) * left
    return jnp.mean((found - y) ** 2)


# ---- one sum of logarithms


def make_normals(rng):
    return np.array([0.1, 0.2]), rng.standard_normal(100_000)


def normals(xp, params, y):
    return np.sum(scipy.stats.norm.logpdf(y, params[0], np.exp(params[1])))


def normals_jax(params, y):
    import jax.numpy as jnp
    from jax.scipy import stats

    return jnp.sum(stats.norm.logpdf(y, params[0], jnp.exp(params[1])))


MODELS = (
    Workload("gp_cho_solve_200", "Gaussian process", "scipy", process, make_process, process_jax),
    Workload(
        "negative_binomial_20000",
        "negative binomial regression",
        "scipy",
        negative_binomial,
        make_counts,
        negative_binomial_jax,
    ),
    Workload(
        "weibull_aft_20000", "survival, Weibull", "scipy", weibull, make_lifetimes, weibull_jax
    ),
    Workload("ode_solve_ivp_41", "ODE fit, solve_ivp", "scipy", orbits, make_orbits, orbits_jax),
    Workload("cubic_spline_5000", "spline fit", "scipy", spline, make_spline, spline_jax),
    Workload("normal_logpdf_1e5", "normal likelihood", "scipy", normals, make_normals, normals_jax),
)


main = command(MODELS, "Time SciPy's functions in models.")

if __name__ == "__main__":
    main()
