"""Time derivatives besides gradients beside JAX: directions, Jacobians, Hessians, rows, Taylor.

python benchmarks/derivatives.py
python benchmarks/derivatives.py --only 'hessian*,jvp*'

Both are called in turns in one process, and what both give is compared. JAX's arguments are its own
arrays already. Of JAX's programs loops are scans, where it has them. Sparse derivatives stand
beside CasADi's functions of scalars, called through its buffers, where it is installed.
"""

import functools
import importlib.util
import itertools
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import click
import numpy as np
from workloads import WORKLOADS

# A name, tapegrad's call for a compile mode, and the other's call.
Case = tuple[str, Callable[[str], Any], Callable[[], Any]]
TOGETHER = 10  # calls of each before the other's turn


def rosenbrock(xp: Any, x: Any) -> Any:
    return xp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def logistic(xp: Any, w: Any, x: Any, y: Any) -> Any:
    z = x @ w
    return xp.mean(xp.logaddexp(0.0, z) - y * z)


def network(xp: Any, layers: Any, x: Any, y: Any) -> Any:
    for weights, bias in layers[:-1]:
        x = xp.tanh(x @ weights + bias)
    weights, bias = layers[-1]
    scores = x @ weights + bias
    return xp.mean(xp.log(xp.sum(xp.exp(scores), axis=-1)) - xp.sum(scores * y, axis=-1))


def mixture(xp: Any, means: Any, x: Any) -> Any:
    square = xp.sum((x[:, None] - means) ** 2, axis=2)
    return -xp.sum(xp.log(xp.sum(xp.exp(-0.5 * square), axis=1)))


def lotka_volterra(xp: Any, p: Any, u: Any) -> Any:
    prey, hunters = u[0], u[1]
    return xp.stack(
        [
            p[0] * prey - p[1] * prey * hunters - p[4] * prey**2,
            -p[2] * hunters + p[3] * prey * hunters - p[5] * hunters**2,
        ]
    )


def step(xp: Any, p: Any, u: Any) -> Any:
    return u + 0.05 * lotka_volterra(xp, p, u + 0.025 * lotka_volterra(xp, p, u))


def path(p: Any) -> Any:
    u, found = np.array([2.0, 1.0]), np.zeros((200, 2))
    for k in range(200):
        u = step(np, p, u)
        found[k] = u
    return found


def projected(xp: Any, camera: Any, point: Any) -> Any:
    """A camera of rotation vector, shift, focal length and two distortions sees a point."""
    angle = xp.sqrt(xp.sum(camera[:3] ** 2) + 1e-12)
    axis = camera[:3] / angle
    across = xp.cross(axis, point)
    seen = xp.cos(angle) * point + xp.sin(angle) * across
    seen = seen + (1 - xp.cos(angle)) * xp.sum(axis * point) * axis + camera[3:6]
    flat = -seen[:2] / seen[2]
    square = xp.sum(flat**2)
    return camera[6] * (1 + camera[7] * square + camera[8] * square**2) * flat


def bratu(u: Any) -> Any:
    """Five points of the Laplacian, and e^u, on a square whose border is 0."""
    wide = np.zeros((u.shape[0] + 2, u.shape[1] + 2))
    wide[1:-1, 1:-1] = u
    around = wide[:-2, 1:-1] + wide[2:, 1:-1] + wide[1:-1, :-2] + wide[1:-1, 2:]
    return around - 4 * u + 1e-4 * np.exp(u)


def layers_of(rng: Any, *sizes: int) -> Any:
    pairs = itertools.pairwise(sizes)
    return tuple((rng.normal(size=(m, n)) / np.sqrt(m), np.zeros(n)) for m, n in pairs)


def cases() -> Iterator[Case]:
    import jax
    import jax.numpy as jnp

    import tapegrad as tg

    jax.config.update("jax_enable_x64", True)
    rng = np.random.default_rng(0)

    def both(name: str, ours: Any, theirs: Any, *args: Any) -> Case:
        compiled = jax.jit(theirs)
        given = jax.tree.map(jnp.asarray, args)
        known = functools.cache(ours)
        return name, lambda how: known(how)(*args), lambda: jax.block_until_ready(compiled(*given))

    def tangent(x: Any) -> Any:
        if isinstance(x, tuple):
            return tuple(map(tangent, x))
        return rng.standard_normal(np.shape(x)).astype(np.asarray(x).dtype)

    for w in WORKLOADS:
        params, *data = w.make(np.random.default_rng(1))
        loss = w.idiomatic_jax or (lambda *a, w=w: w.loss(jnp, *a))
        t = tangent(params)

        def plain(p: Any, w: Any = w, data: Any = data) -> Any:
            return w.loss(np, p, *data)

        def pushed(how: str, f: Any = plain) -> Any:
            return tg.jit(lambda p, v: tg.jvp(f, (p,), (v,)), compile=how)

        given = jax.tree.map(jnp.asarray, data)
        theirs = lambda p, t, f=loss, d=given: jax.jvp(lambda p: f(p, *d), (p,), (t,))  # noqa: E731
        yield both(f"jvp {w.name}", pushed, theirs, params, t)

    x, y = rng.normal(size=(1000, 40)), (rng.random(1000) < 0.5).astype(float)
    layers = layers_of(rng, 64, 128, 128, 10)
    batch, labels = rng.normal(size=(512, 64)), np.eye(10)[rng.integers(0, 10, 512)]
    points, means = rng.normal(size=(2000, 3)), rng.normal(size=(8, 3))
    for name, f, args in (
        ("logistic", logistic, (rng.normal(size=40), x, y)),
        ("network", network, (layers, batch, labels)),
        ("mixture", mixture, (means, points)),
    ):
        v = tangent(args[0])
        ours = lambda how, f=f: tg.hvp(lambda *a: f(np, *a), compile=how)  # noqa: E731

        def theirs(p: Any, *rest: Any, f: Any = f) -> Any:
            *data, v = rest
            return jax.jvp(jax.grad(lambda p: f(jnp, p, *data)), (p,), (v,))[1]

        yield both(f"hvp {name}", ours, theirs, *args, v)

    wide, hits = rng.normal(size=(100_000, 30)), (rng.random(100_000) < 0.5).astype(float)
    for name, f, args in (
        ("rosenbrock 200", rosenbrock, (rng.normal(size=200),)),
        ("mixture", mixture, (means, points)),
        ("logistic 30 x 10^5", logistic, (rng.normal(size=30) / 10, wide, hits)),
    ):
        ours = lambda how, f=f: tg.hessian(lambda *a: f(np, *a), compile=how)  # noqa: E731
        yield both(f"hessian {name}", ours, jax.hessian(lambda *a, f=f: f(jnp, *a)), *args)

    p = np.array([1.0, 0.1, 1.5, 0.075, 0.001, 0.001])

    def scanned(p: Any) -> Any:
        def one(u: Any, _: Any) -> Any:
            u = step(jnp, p, u)
            return u, u

        return jax.lax.scan(one, jnp.array([2.0, 1.0]), None, 200)[1]

    ours = lambda how: tg.jacobian(path, compile=how)  # noqa: E731
    yield both("jacobian of an ODE", ours, jax.jacfwd(scanned), p)

    count = 20_000
    cameras = np.concatenate(
        [0.1 * rng.normal(size=(count, 6)), np.tile([500, 0, 0], (count, 1))], 1
    )
    places = rng.normal(size=(count, 3)) + [0, 0, -5]
    seen = lambda c, x: projected(np, c, x)  # noqa: E731
    ours = lambda how: tg.vmap(tg.jacobian(seen, (0, 1)), compile=how)  # noqa: E731
    theirs = jax.vmap(jax.jacfwd(lambda c, x: projected(jnp, c, x), (0, 1)))
    yield both("jacobians of bundle adjustment", ours, theirs, cameras, places)

    example = lambda xp: lambda p, x, y: network(xp, p, x, y)  # noqa: E731
    ours = lambda how: tg.vmap(tg.grad(example(np)), (None, 0, 0), compile=how)  # noqa: E731
    theirs = jax.vmap(jax.grad(example(jnp)), (None, 0, 0))
    yield both("gradients per example", ours, theirs, layers, batch, labels)

    f = lambda x: np.exp(np.sin(x))  # noqa: E731
    with_jet = lambda x: taylor(lambda t: jnp.exp(jnp.sin(t)), x)  # noqa: E731

    def taylor(f: Any, x: Any) -> Any:
        from jax.experimental.jet import jet

        along = [jnp.ones_like(x), *[jnp.zeros_like(x)] * 9]
        value, found = jet(f, (x,), (along,))
        return jnp.stack([value, *found]) / factorials.reshape(-1, *[1] * x.ndim)

    factorials = np.array([math.factorial(k) for k in range(11)], float)
    for name, x in (("of a number", np.array(0.7)), ("of 10^4 numbers", rng.normal(size=10_000))):
        ours = lambda how: lambda at: tg.jet(f, at, 10, compile=how)  # noqa: E731
        yield both(f"jet {name}", ours, with_jet, x)

    if importlib.util.find_spec("casadi"):
        yield from sparse_cases(tg, rng)


def sparse_cases(tg: Any, rng: Any) -> Iterator[Case]:
    import casadi

    def buffered(name: str, x: Any, value: Any) -> Callable[[], Any]:
        """A call of a CasADi function that writes the entries of its value into a new array."""
        function = casadi.Function(name, [x], [value])
        buffer, run = function.buffer()
        count = function.nnz_out(0)

        def call(at: Any) -> Any:
            found = np.empty(count)
            buffer.set_arg(0, memoryview(at))
            buffer.set_res(0, memoryview(found))
            run()
            return found

        return call

    def at_first_call(make: Callable[[], Any], at: Any) -> Callable[[], Any]:
        made: list[Any] = []

        def call() -> Any:
            if not made:
                made.append(make())
            return made[0](at)

        return call

    def hessian() -> Any:
        x = casadi.SX.sym("x", 100_000)
        f = casadi.sum1(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)
        return buffered("hessian", x, casadi.hessian(f, x)[0])

    def jacobian() -> Any:
        u = casadi.SX.sym("u", side, side)
        wide = casadi.SX.zeros(side + 2, side + 2)
        wide[1:-1, 1:-1] = u
        around = wide[:-2, 1:-1] + wide[2:, 1:-1] + wide[1:-1, :-2] + wide[1:-1, 2:]
        value = casadi.vec(around - 4 * u + 1e-4 * casadi.exp(u))
        return buffered("jacobian", u, casadi.jacobian(value, casadi.vec(u)))

    # Both matrices are symmetric: entries by columns are entries by rows.
    at = rng.normal(size=100_000)
    ours = functools.cache(lambda how: tg.sparse_hessian(partial(rosenbrock, np), compile=how))
    theirs = at_first_call(hessian, at)
    yield "sparse_hessian rosenbrock 10^5", lambda how: ours(how)(at).data, theirs
    side = 300
    grid = rng.normal(size=(side, side))
    grid += grid.T  # by rows as by columns
    found = functools.cache(lambda how: tg.sparse_jacobian(bratu, compile=how))
    theirs = at_first_call(jacobian, grid)
    yield "sparse_jacobian Bratu", lambda how: found(how)(grid).data, theirs


def timed(name: str, ours: Any, theirs: Any, budget: float) -> tuple[float, ...]:
    """Seconds of the first calls, then medians of warm calls, ten at a time in turns: the first
    call after the other's waits for memory, and for the other's threads. By itself tapegrad's first
    call doesn't wait for the compiler; warm calls are compiled."""
    firsts, results = [], []
    for call in (lambda: ours("auto"), theirs):
        start = time.perf_counter()
        results.append(call())
        firsts.append(time.perf_counter() - start)
    import jax

    compiled = lambda: ours("always")  # noqa: E731
    results[0] = compiled()
    for a, b in zip(*map(jax.tree.leaves, results), strict=True):
        scale = np.max(np.abs(b), initial=1e-300)
        rtol = 1e-6 if b.dtype.itemsize > 4 else 1e-3
        if not np.allclose(a, b, rtol=rtol, atol=rtol * 1e-2 * scale):
            raise SystemExit(f"{name}: the results differ")
    times: tuple[list[float], list[float]] = ([], [])
    end = time.perf_counter() + budget
    while time.perf_counter() < end or not times[0]:
        for call, found in zip((compiled, theirs), times, strict=True):
            for _ in range(TOGETHER):
                start = time.perf_counter()
                call()
                found.append(time.perf_counter() - start)
    return *firsts, *map(statistics.median, times)


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option("--only", metavar="NAMES", default="*", help="Comma-separated, with * and ?.")
@click.option("--budget", default=1.0, help="Seconds of warm timing for each row.")
def main(only: str, budget: float) -> None:
    """Time derivatives beside JAX: first calls in ms, medians of warm ones in us, and ratios."""
    os.environ.setdefault("TAPEGRAD_CACHE_DIR", "off")
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    click.echo(f"{'':34}{'first':>9}{'JAX':>9}{'warm':>11}{'JAX':>11}{'ratio':>8}")
    ratios: dict[str, list[float]] = {}
    for name, ours, theirs in cases():
        if not any(fnmatchcase(name, pattern) for pattern in only.split(",")):
            continue
        first, their_first, warm, their_warm = timed(name, ours, theirs, budget)
        ratio = warm / their_warm
        ratios.setdefault(name.split()[0], []).append(ratio)
        click.echo(
            f"{name:34}{1e3 * first:9.0f}{1e3 * their_first:9.0f}{1e6 * warm:11.1f}"
            f"{1e6 * their_warm:11.1f}{ratio:8.2f}"
        )
    for kind, found in ratios.items():
        click.echo(f"{kind:34}{'geometric mean':>40}{statistics.geometric_mean(found):8.2f}")


if __name__ == "__main__":
    main()
