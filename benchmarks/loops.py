"""Time programs whose work is a long Python loop, beside JAX's own loop.

    python benchmarks/loops.py
    python benchmarks/loops.py --only 'kalman*,garch*' --compile auto
    python benchmarks/loops.py --steps
    python benchmarks/loops.py --check

tapegrad gets the loop as one writes it in plain NumPy, JAX the same mathematics with `lax.scan`.
`--steps` shows how tracing, compiling and the source grow with the number of rounds.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import click
import numpy as np
from clock import time_limit
from compiling import record_jobs
from engines import ENGINES, Call, Engine
from measure import (
    FAILURES,
    Measurement,
    arrays,
    compare,
    describe,
    relative_difference,
    time_in_turns,
)
from run import usable_engines
from show import HEADER, print_ratios, print_rows, readable
from workloads import (
    Workload,
    heat,
    heat_jax,
    lotka_volterra,
    lotka_volterra_jax,
    make_heat,
    make_lotka_volterra,
    make_rnn,
    rnn,
    rnn_jax,
)

# The programs. Each stands here once for NumPy and once for JAX, as functions of `params` and what
# isn't differentiated. Where the number of rounds isn't the length of an array it is `steps`.


def make_rnn_of(rng, size):
    params, xs = make_rnn(rng)
    return params, xs[:size]


def kalman(params, observed):
    """The likelihood of numbers by which a linear system of three states is seen."""
    F, log_q, log_r = params
    seen = np.array([1.0, 0.5, 0.0])
    Q = np.exp(log_q) * np.eye(3)
    mean, cov = np.zeros(3), np.eye(3)
    total = 0.0
    for y in observed:
        mean = F @ mean
        cov = F @ cov @ F.T + Q
        residual = y - seen @ mean
        s = seen @ cov @ seen + np.exp(log_r)
        gain = cov @ seen / s
        mean = mean + gain * residual
        cov = cov - np.outer(gain, seen @ cov)
        total = total + 0.5 * (residual**2 / s + np.log(s))
    return total


def kalman_jax(params, observed):
    import jax
    import jax.numpy as jnp

    F, log_q, log_r = params
    seen = jnp.array([1.0, 0.5, 0.0])
    Q, r = jnp.exp(log_q) * jnp.eye(3), jnp.exp(log_r)

    def step(state, y):
        mean, cov, total = state
        mean, cov = F @ mean, F @ cov @ F.T + Q
        residual = y - seen @ mean
        s = seen @ cov @ seen + r
        gain = cov @ seen / s
        total = total + 0.5 * (residual**2 / s + jnp.log(s))
        return (mean + gain * residual, cov - jnp.outer(gain, seen @ cov), total), None

    (_, _, total), _ = jax.lax.scan(step, (jnp.zeros(3), jnp.eye(3), 0.0), observed)
    return total


def make_kalman(rng, size):
    F = 0.7 * np.eye(3) + 0.1 * rng.standard_normal((3, 3))
    return (F, np.array(-1.0), np.array(-0.5)), rng.standard_normal(size)


def hmm(params, observed):
    """Minus the log likelihood of a hidden Markov model with normal observations."""
    start, transitions, means = params

    def log_sum(x):
        top = np.max(x, axis=0)
        return top + np.log(np.sum(np.exp(x - top), axis=0))

    log_a = transitions - log_sum(transitions.T)[:, None]
    log_b = -0.5 * (observed[:, None] - means) ** 2
    alpha = start - log_sum(start) + log_b[0]
    for t in range(1, len(observed)):
        alpha = log_sum(alpha[:, None] + log_a) + log_b[t]
    return -log_sum(alpha)


def hmm_jax(params, observed):
    import jax
    import jax.numpy as jnp

    start, transitions, means = params

    def log_sum(x):
        top = jnp.max(x, axis=0)
        return top + jnp.log(jnp.sum(jnp.exp(x - top), axis=0))

    log_a = transitions - log_sum(transitions.T)[:, None]
    log_b = -0.5 * (observed[:, None] - means) ** 2
    alpha, _ = jax.lax.scan(
        lambda alpha, b: (log_sum(alpha[:, None] + log_a) + b, None),
        start - log_sum(start) + log_b[0],
        log_b[1:],
    )
    return -log_sum(alpha)


def make_hmm(rng, size, states=12):
    params = (
        rng.standard_normal(states),
        rng.standard_normal((states, states)),
        rng.standard_normal(states),
    )
    return params, rng.standard_normal(size)


def lstm(params, xs, target):
    W, U, b = params
    n = target.shape[1]
    h, c = np.zeros_like(target), np.zeros_like(target)

    def sigmoid(x):
        return 1.0 / (1.0 + np.exp(-x))

    for x in xs:
        gates = x @ W + h @ U + b
        forget, enter = sigmoid(gates[:, :n]), sigmoid(gates[:, n : 2 * n])
        leave, new = sigmoid(gates[:, 2 * n : 3 * n]), np.tanh(gates[:, 3 * n :])
        c = forget * c + enter * new
        h = leave * np.tanh(c)
    return np.mean((h - target) ** 2)


def lstm_jax(params, xs, target):
    import jax
    import jax.numpy as jnp

    W, U, b = params

    def step(state, x):
        h, c = state
        forget, enter, leave, new = jnp.split(x @ W + h @ U + b, 4, axis=1)
        forget, enter, leave = (1.0 / (1.0 + jnp.exp(-gate)) for gate in (forget, enter, leave))
        c = forget * c + enter * jnp.tanh(new)
        return (leave * jnp.tanh(c), c), None

    start = jnp.zeros_like(target)
    (h, _), _ = jax.lax.scan(step, (start, start), xs)
    return jnp.mean((h - target) ** 2)


def make_lstm(rng, size, batch=8, hidden=32, inputs=16):
    params = (
        0.2 * rng.standard_normal((inputs, 4 * hidden)),
        0.1 * rng.standard_normal((hidden, 4 * hidden)),
        0.1 * rng.standard_normal(4 * hidden),
    )
    return params, rng.standard_normal((size, batch, inputs)), rng.standard_normal((batch, hidden))


def n_body(params, steps):
    """The energy of motion of bodies in space after a while, by Verlet's method."""
    x, v, masses = params
    h = 0.01

    def pull(x):
        apart = x[None, :, :] - x[:, None, :]
        squared = np.sum(apart**2, axis=2) + 0.01
        return np.sum((masses * squared**-1.5)[:, :, None] * apart, axis=1)

    a = pull(x)
    for _ in range(steps):
        v = v + 0.5 * h * a
        x = x + h * v
        a = pull(x)
        v = v + 0.5 * h * a
    return 0.5 * np.sum(masses[:, None] * v**2)


def n_body_jax(params, steps):
    import jax
    import jax.numpy as jnp

    x, v, masses = params
    h = 0.01

    def pull(x):
        apart = x[None, :, :] - x[:, None, :]
        squared = jnp.sum(apart**2, axis=2) + 0.01
        return jnp.sum((masses * squared**-1.5)[:, :, None] * apart, axis=1)

    def step(state, _):
        x, v, a = state
        v = v + 0.5 * h * a
        x = x + h * v
        a = pull(x)
        return (x, v + 0.5 * h * a, a), None

    (_, v, _), _ = jax.lax.scan(step, (x, v, pull(x)), None, length=steps)
    return 0.5 * jnp.sum(masses[:, None] * v**2)


def make_n_body(rng, size, bodies=5):
    return (
        (rng.standard_normal((bodies, 3)), 0.5 * rng.standard_normal((bodies, 3)), np.ones(bodies)),
    )


def crank_nicolson(params, steps):
    """Heat in one dimension: at each step Thomas's algorithm goes down the points, and up again."""
    u, k = params
    for _ in range(steps):
        wide = np.pad(u, 1)
        right = u + 0.5 * k * (wide[2:] - 2.0 * u + wide[:-2])
        c, d = np.zeros_like(u), np.zeros_like(u)
        c[0] = -0.5 * k / (1.0 + k)
        d[0] = right[0] / (1.0 + k)
        for i in range(1, len(u)):
            pivot = 1.0 + k + 0.5 * k * c[i - 1]
            c[i] = -0.5 * k / pivot
            d[i] = (right[i] + 0.5 * k * d[i - 1]) / pivot
        u = d.copy()
        for i in range(len(u) - 2, -1, -1):
            u[i] = d[i] - c[i] * u[i + 1]
    return np.sum(u**2)


def crank_nicolson_jax(params, steps):
    import jax
    import jax.numpy as jnp

    u, k = params

    def down(before, right):
        c, d = before
        pivot = 1.0 + k + 0.5 * k * c
        new = -0.5 * k / pivot, (right + 0.5 * k * d) / pivot
        return new, new

    def up(after, row):
        c, d = row
        x = d - c * after
        return x, x

    def step(u, _):
        wide = jnp.pad(u, 1)
        right = u + 0.5 * k * (wide[2:] - 2.0 * u + wide[:-2])
        # Before the first row and after the last one everything is 0.
        _, rows = jax.lax.scan(down, (0.0 * k, 0.0 * k), right)
        _, u = jax.lax.scan(up, 0.0 * k, rows, reverse=True)
        return u, None

    u, _ = jax.lax.scan(step, u, None, length=steps)
    return jnp.sum(u**2)


def make_crank_nicolson(rng, size, points=64):
    return ((rng.standard_normal(points), np.array(0.8)),)


def garch(params, returns):
    """Minus the log likelihood of returns whose variance follows from those before."""
    omega, alpha, beta = params[0], params[1], params[2]
    variance, total = omega / (1.0 - alpha - beta), 0.0
    for r in returns:
        total = total + 0.5 * (np.log(variance) + r**2 / variance)
        variance = omega + alpha * r**2 + beta * variance
    return total


def garch_jax(params, returns):
    import jax
    import jax.numpy as jnp

    omega, alpha, beta = params

    def step(state, r):
        variance, total = state
        total = total + 0.5 * (jnp.log(variance) + r**2 / variance)
        return (omega + alpha * r**2 + beta * variance, total), None

    start = omega / (1.0 - alpha - beta), 0.0
    (_, total), _ = jax.lax.scan(step, start, returns)
    return total


def make_garch(rng, size):
    return np.array([0.1, 0.1, 0.8]), rng.standard_normal(size)


def optimiser(params, X, y, X_test, y_test, steps):
    """Logistic regression by Adam; the loss is of what was learned, for the settings' gradients."""
    log_rate, log_penalty, w = params
    rate, penalty = np.exp(log_rate), np.exp(log_penalty)
    m, v = np.zeros_like(w), np.zeros_like(w)
    for t in range(1, steps + 1):
        error = 1.0 / (1.0 + np.exp(-(X @ w))) - y
        slope = X.T @ error / len(y) + penalty * w
        m = 0.9 * m + 0.1 * slope
        v = 0.999 * v + 0.001 * slope**2
        w = w - rate * (m / (1.0 - 0.9**t)) / (np.sqrt(v / (1.0 - 0.999**t)) + 1e-8)
    z = X_test @ w
    return np.mean(np.logaddexp(0.0, z) - y_test * z)


def optimiser_jax(params, X, y, X_test, y_test, steps):
    import jax
    import jax.numpy as jnp

    log_rate, log_penalty, w = params
    rate, penalty = jnp.exp(log_rate), jnp.exp(log_penalty)

    def step(state, t):
        w, m, v = state
        error = 1.0 / (1.0 + jnp.exp(-(X @ w))) - y
        slope = X.T @ error / len(y) + penalty * w
        m = 0.9 * m + 0.1 * slope
        v = 0.999 * v + 0.001 * slope**2
        w = w - rate * (m / (1.0 - 0.9**t)) / (jnp.sqrt(v / (1.0 - 0.999**t)) + 1e-8)
        return (w, m, v), None

    start = w, jnp.zeros_like(w), jnp.zeros_like(w)
    (w, _, _), _ = jax.lax.scan(step, start, jnp.arange(1.0, steps + 1))
    z = X_test @ w
    return jnp.mean(jnp.logaddexp(0.0, z) - y_test * z)


def make_optimiser(rng, size, rows=100, features=10):
    X, X_test = rng.standard_normal((2, rows, features))
    y, y_test = (rng.random((2, rows)) < 0.5).astype(float)
    params = np.array(-3.0), np.array(-2.0), 0.1 * rng.standard_normal(features)
    return params, X, y, X_test, y_test


@dataclass(frozen=True)
class Loop:
    """A program, for NumPy and for JAX, on the arguments that `make(rng, rounds)` draws."""

    name: str
    title: str
    in_numpy: Callable[..., Any]
    in_jax: Callable[..., Any]
    make: Callable[[np.random.Generator, int], tuple]
    rounds: int  # that are timed
    few: int  # on which answers are compared
    counted: bool = False  # the number of rounds is passed as `steps`

    def of(self, rounds: int) -> Workload:
        """As a workload of so many rounds."""
        steps = {"steps": rounds} if self.counted else {}
        return Workload(
            self.name,
            self.title,
            "loop",
            lambda xp, *args: self.in_numpy(*args, **steps),
            lambda rng: self.make(rng, rounds),
            idiomatic_jax=partial(self.in_jax, **steps),
        )


LOTKA_VOLTERRA = Loop(
    "lotka_volterra_rk4_1000",
    "Runge and Kutta, 1000 steps",
    partial(lotka_volterra, np),
    lotka_volterra_jax,
    lambda rng, rounds: make_lotka_volterra(rng),
    1000,
    10,
    counted=True,
)
LOOPS = (
    LOTKA_VOLTERRA,
    Loop(
        "rnn_T200_B8_H32",
        "recurrent network, 200 steps",
        partial(rnn, np),
        rnn_jax,
        make_rnn_of,
        200,
        5,
    ),
    Loop(
        "heat2d_128_100steps",
        "heat equation, 128 x 128, 100 steps",
        partial(heat, np),
        heat_jax,
        lambda rng, rounds: make_heat(rng),
        100,
        5,
        counted=True,
    ),
    Loop("kalman_3_T200", "Kalman filter, 200 steps", kalman, kalman_jax, make_kalman, 200, 7),
    Loop("hmm_12_T300", "hidden Markov model, 300 steps", hmm, hmm_jax, make_hmm, 300, 7),
    Loop("lstm_T100_B8_H32", "LSTM, 100 steps", lstm, lstm_jax, make_lstm, 100, 5),
    Loop(
        "n_body_5_200steps",
        "five bodies, 200 steps",
        n_body,
        n_body_jax,
        make_n_body,
        200,
        6,
        counted=True,
    ),
    Loop(
        "crank_nicolson_64_50steps",
        "Crank and Nicolson, 64 points, 50 steps",
        crank_nicolson,
        crank_nicolson_jax,
        make_crank_nicolson,
        50,
        2,
        counted=True,
    ),
    Loop("garch_T1000", "GARCH, 1000 returns", garch, garch_jax, make_garch, 1000, 12),
    Loop(
        "optimiser_100steps",
        "100 steps of Adam",
        optimiser,
        optimiser_jax,
        make_optimiser,
        100,
        6,
        counted=True,
    ),
)


# Timing.


def timed(
    workload: Workload, engines: list[Engine], tier: str, budget: float, limit: float
) -> list[Measurement]:
    """The first call of each engine, and the fastest of many later ones, taken in turns.

    `compile` is the time from nothing until calls are of machine code, less one such call.
    """
    args = workload.make(np.random.default_rng(0))
    rows = {e.name: Measurement(workload.name, workload.family, e.name) for e in engines}
    calls: dict[str, Call] = {}
    ready: dict[str, float] = {}
    answers: dict[str, list[list[np.ndarray]]] = {}
    for engine in engines:
        row = rows[engine.name]
        try:
            with time_limit(limit):
                start = perf_counter()
                call = engine.prepare(workload, args, tier)
                answer = call()
                row.first = perf_counter() - start
                while not engine.settled(call):
                    call()
                ready[engine.name] = perf_counter() - start
                answers[engine.name] = [arrays(answer), arrays(call())]
            calls[engine.name] = call
        except FAILURES as error:
            row.error = describe(error)
            abandon(engine, tier)
    compare(rows, answers)
    for name, samples in time_in_turns(calls, rows, budget, limit).items():
        row = rows[name]
        row.warm = row.best = min(samples)
        row.compile = max(ready[name] - row.best, 0.0)
    jax = rows["jax"].warm if "jax" in rows else None
    for row in rows.values():
        row.to_jax = row.warm / jax if row.warm and jax else None
    return list(rows.values())


def abandon(engine: Engine, tier: str) -> None:
    """Let tapegrad's compiler not go on with what was given up: the others need the cores."""
    if engine.name != "tapegrad":
        return
    from tapegrad.compiler.client import client

    client.end()
    client.unsent.clear()
    engine.load(tier)  # another one is started off the clock


# Answers.


def checked(loops: list[Loop], tier: str) -> bool:
    """Whether values and gradients on a few rounds are those of JAX, to nine digits."""
    good = True
    for loop in loops:
        workload = loop.of(loop.few)
        args = workload.make(np.random.default_rng(0))
        ours = arrays(ENGINES["tapegrad"].prepare(workload, args, tier)())
        theirs = arrays(ENGINES["jax"].prepare(workload, args)())
        differences = [relative_difference(a, b) for a, b in zip(ours, theirs, strict=True)]
        worst = float(np.max(differences))  # which is nan if any is
        right = worst < 1e-9
        good = good and right
        click.echo(f"{loop.name:<27}{worst:>10.1e}{'' if right else '   wrong'}")
    return good


# The growth with the number of steps.

STEPS = (10, 100, 1000, 10_000)
HEADS = ("trace", "compile", "first", "calls", "lines", "source", "jax first")


@dataclass
class Grown:
    """What becomes of a program of so many steps."""

    trace: float  # seconds: traced, differentiated, optimised
    compile: float  # seconds
    calls: int  # on the tape
    lines: int  # of the source
    size: int  # of the source, in bytes


def grown(steps: int, jobs: list[Any]) -> Grown:
    """tapegrad's first compiled gradient of Lotka and Volterra's equations."""
    workload = LOTKA_VOLTERRA.of(steps)
    args = workload.make(np.random.default_rng(0))
    call: Any = ENGINES["tapegrad"].prepare(workload, args, "always")
    start = perf_counter()
    call()
    total = perf_counter() - start
    (tape,) = call.func.tapes
    source = tape.source
    compiling = jobs[-1].times["all"]
    return Grown(
        max(total - compiling, 0.0),
        compiling,
        len(tape.calls),
        len(source.splitlines()),
        len(source.encode()),
    )


def first_of_jax(steps: int) -> float:
    workload = LOTKA_VOLTERRA.of(steps)
    start = perf_counter()
    ENGINES["jax"].prepare(workload, workload.make(np.random.default_rng(0)))()
    return perf_counter() - start


def growth(engines: list[Engine], upto: int, limit: float) -> Iterator[tuple[int, Any, Any]]:
    """The number of steps, and what tapegrad and JAX make of them, each None where there is none.

    An engine that is too slow isn't asked for more.
    """
    sizes = [steps for steps in STEPS if steps <= upto]
    seconds: dict[int, float] = {}
    if any(engine.name == "jax" for engine in engines):
        try:
            for steps in sizes:
                with time_limit(limit):
                    seconds[steps] = first_of_jax(steps)
        except FAILURES as error:
            click.echo(f"jax stops before {steps:,} steps: {describe(error)}")
    slow = not any(engine.name == "tapegrad" for engine in engines)
    jobs = record_jobs()
    for steps in sizes:
        ours = None
        if not slow:
            try:
                with time_limit(limit):
                    ours = grown(steps, jobs)
            except FAILURES as error:
                slow = True
                abandon(ENGINES["tapegrad"], "always")
                click.echo(f"tapegrad stops before {steps:,} steps: {describe(error)}")
        yield steps, ours, seconds.get(steps)


def print_growth(points: Iterator[tuple[int, Any, Any]]) -> list[tuple[int, Any, Any]]:
    click.echo(f"{'steps':>8}" + "".join(f"{head:>11}" for head in HEADS))
    found = []
    for steps, ours, theirs in points:
        cells = ["-"] * 6
        if ours is not None:
            times = ours.trace, ours.compile, ours.trace + ours.compile
            cells = [readable(t) for t in times]
            cells += [f"{ours.calls:,}", f"{ours.lines:,}", f"{ours.size / 1e3:.1f} kB"]
        cells.append(readable(theirs))
        click.echo(f"{steps:>8,}" + "".join(f"{cell:>11}" for cell in cells))
        found.append((steps, ours, theirs))
    return found


def draw_growth(points: list[tuple[int, Any, Any]], path: Path) -> None:
    """Seconds on the left, the size of the source on the right."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    ours = [(steps, found) for steps, found, _ in points if found is not None]
    theirs = [(steps, seconds) for steps, _, seconds in points if seconds is not None]
    for part in ("trace", "compile"):
        line = [getattr(found, part) for _, found in ours]
        left.plot([steps for steps, _ in ours], line, "o-", label=f"tapegrad, {part}")
    if theirs:
        left.plot(*zip(*theirs, strict=True), "o-", label="jax, first call")
    right.plot([s for s, _ in ours], [found.lines for _, found in ours], "o-", label="lines")
    right.plot([s for s, _ in ours], [found.calls for _, found in ours], "o-", label="calls")
    left.set(xscale="log", yscale="log", xlabel="steps", ylabel="seconds")
    right.set(xscale="log", yscale="log", xlabel="steps", title="source and tape")
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    figure.savefig(path, dpi=150)


def chosen(patterns: str) -> list[Loop]:
    found = [loop for loop in LOOPS if any(fnmatchcase(loop.name, p) for p in patterns.split(","))]
    if not found:
        names = ", ".join(loop.name for loop in LOOPS)
        raise click.BadParameter(f"no loop fits {patterns!r}; there are {names}")
    return found


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option("--only", metavar="NAMES", default="*", help="Comma-separated, with * and ?.")
@click.option("--engines", metavar="NAMES", default="tapegrad,jax", help="Comma-separated.")
@click.option(
    "--compile",
    "tier",
    type=click.Choice(["always", "auto", "never"]),
    default="always",
    help="How tapegrad runs; with auto it is called until it has compiled.",
)
@click.option("--budget", default=2.0, help="Seconds of warm timing per program and engine.")
@click.option("--limit", default=300.0, help="Seconds after which an engine is given up.")
@click.option("--check", is_flag=True, help="Compare answers on a few rounds, and time nothing.")
@click.option("--steps", is_flag=True, help="Compiling and source, by the number of steps.")
@click.option("--upto", default=max(STEPS), help="The largest number of steps of --steps.")
@click.option(
    "--plot", type=click.Path(dir_okay=False, path_type=Path), help="Where --steps draws."
)
def main(
    only: str,
    engines: str,
    tier: str,
    budget: float,
    limit: float,
    check: bool,
    steps: bool,
    upto: int,
    plot: Path | None,
) -> None:
    """Time long loops in tapegrad and JAX, and check them against each other.

    Exits with 1 if any of tapegrad's gradients is wrong.
    """
    os.environ.setdefault("TAPEGRAD_CACHE_DIR", "")
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    if check:
        if {engine.name for engine in usable_engines("tapegrad,jax", tier)} != {"tapegrad", "jax"}:
            raise click.ClickException("answers are compared with JAX's")
        if not checked(chosen(only), tier):
            raise SystemExit(1)
        return
    usable = usable_engines(engines, tier)
    if steps:
        points = print_growth(growth(usable, upto, limit))
        if plot is not None:
            draw_growth(points, plot)
            click.echo(f"\nthe plot is in {plot.resolve()}")
        return
    click.echo(HEADER)
    results: list[Measurement] = []
    for loop in chosen(only):
        rows = timed(loop.of(loop.rounds), usable, tier, budget, limit)
        print_rows(rows)
        results += rows
    print_ratios(results)
    if any(row.wrong and row.engine == "tapegrad" for row in results):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
