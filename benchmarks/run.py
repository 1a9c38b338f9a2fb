"""Time gradients of the same programs in tapegrad, JAX, HIPS autograd and by hand, in one process.

    python benchmarks/run.py --only 'mlp*' --engines tapegrad,jax

README.md, beside this file, says what is measured and how.
"""

import contextlib
import json
import math
import os
import platform
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from importlib import metadata
from pathlib import Path
from typing import Any

import click
import numpy as np
from workloads import WORKLOADS, Workload

Call = Callable[[], tuple[Any, Any]]  # () -> (value, gradients)


# The engines. `prepare` returns a call that is cold: nothing is traced or compiled for it yet.


def prepare_tapegrad(workload: Workload, args: tuple, tier: str) -> Call:
    import tapegrad

    # A new function object, and emptied caches: what an earlier preparation compiled is not reused.
    def loss(*args):
        return workload.loss(np, *args)

    tapegrad.clear_cache()
    gradient = tapegrad.value_and_grad(loss, compile=tier)
    return lambda: gradient(*args)


def prepare_jax(workload: Workload, args: tuple, tier: str) -> Call:
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    loss = workload.idiomatic_jax or (lambda *args: workload.loss(jnp, *args))
    gradient = jax.jit(jax.value_and_grad(loss))
    # The arguments are JAX's own arrays already, which spares it a copy per call.
    arrays = jax.tree.map(jnp.asarray, args)
    return lambda: jax.block_until_ready(gradient(*arrays))


def prepare_autograd(workload: Workload, args: tuple, tier: str) -> Call:
    import autograd

    gradient = autograd.value_and_grad(lambda *args: workload.loss(autograd.numpy, *args))
    return lambda: gradient(*args)


def prepare_by_hand(workload: Workload, args: tuple, tier: str) -> Call:
    import by_hand

    gradient = getattr(by_hand, workload.loss.__name__, None)
    if gradient is None:
        raise NotImplementedError("nobody wrote this one")
    return lambda: gradient(*args)


# Bytes of temporaries in one call of the compiled gradient, as the engines plan them.


def memory_of_tapegrad(workload: Workload, args: tuple) -> int | None:
    import tapegrad

    gradient = tapegrad.value_and_grad(lambda *args: workload.loss(np, *args), compile="never")
    gradient(*args)
    (tape,) = gradient.tapes
    return tape.memory_report().scratch_bytes


def memory_of_jax(workload: Workload, args: tuple) -> int | None:
    import jax
    import jax.numpy as jnp

    loss = workload.idiomatic_jax or (lambda *args: workload.loss(jnp, *args))
    compiled = jax.jit(jax.value_and_grad(loss)).lower(*jax.tree.map(jnp.asarray, args)).compile()
    found = compiled.memory_analysis()
    return None if found is None else found.temp_size_in_bytes


@dataclass(frozen=True)
class Engine:
    """What can differentiate a workload."""

    name: str
    prepare: Callable[[Workload, tuple, str], Call]
    memory: Callable[[Workload, tuple], int | None] | None = None
    compiles: bool = True
    tiered: bool = False  # has tiers: the first call plays and need not compile


ENGINES = {
    engine.name: engine
    for engine in (
        Engine("tapegrad", prepare_tapegrad, memory_of_tapegrad, tiered=True),
        Engine("jax", prepare_jax, memory_of_jax),
        Engine("autograd", prepare_autograd, compiles=False),
        Engine("by hand", prepare_by_hand),
    )
}

# Whom to believe when gradients differ, first choice first: never tapegrad, if another answered.
REFERENCES = ("jax", "autograd", "tapegrad")


@dataclass
class Measurement:
    """One engine on one workload; times in seconds, None where there is none."""

    workload: str
    family: str
    engine: str
    first: float | None = None  # from nothing to the first gradient
    compile: float | None = None  # tracing and compiling
    warm: float | None = None  # median of a warm call
    best: float | None = None  # fastest sample of a warm call
    to_jax: float | None = None  # warm, relative to JAX's
    memory: int | None = None  # bytes of temporaries that a compiled call plans with
    difference: float | None = None  # largest, relative to the reference's gradients
    wrong: bool = False
    error: str = ""


class OutOfTime(Exception):
    """The engine used up the time limit."""


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise OutOfTime in what runs too long, where the platform can interrupt it."""
    if not hasattr(signal, "setitimer"):
        yield
        return

    def stop(*_):
        raise OutOfTime(f"no answer within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def measure(
    workload: Workload, engines: list[Engine], tier: str, budget: float, limit: float
) -> list[Measurement]:
    """Run every engine on one workload; what fails is reported and left out."""
    args = workload.make(np.random.default_rng(0))
    rows = {e.name: Measurement(workload.name, workload.family, e.name) for e in engines}
    calls, cold, answers = {}, {}, {}
    for engine in engines:
        row = rows[engine.name]
        try:
            with time_limit(limit):
                start = time.perf_counter()
                call = engine.prepare(workload, args, "auto")
                answers[engine.name] = [arrays(call())]
                row.first = cold[engine.name] = time.perf_counter() - start
                if engine.tiered:
                    call = engine.prepare(workload, args, tier)
                    start = time.perf_counter()
                    answers[engine.name].append(arrays(call()))
                    cold[engine.name] = time.perf_counter() - start
            calls[engine.name] = call
        except NotImplementedError:
            del rows[engine.name]
        except Exception as error:
            row.error = describe(error)

    compare(rows, answers)
    for name, samples in time_in_turns(calls, rows, budget, limit).items():
        row = rows[name]
        row.warm, row.best = statistics.median(samples), min(samples)
        engine = ENGINES[name]
        if engine.compiles and (tier == "always" or not engine.tiered):
            row.compile = max(cold[name] - row.warm, 0.0)
    for name in calls:
        memory = ENGINES[name].memory
        with contextlib.suppress(Exception), time_limit(limit):
            rows[name].memory = memory and memory(workload, args)
    jax = rows["jax"].warm if "jax" in rows else None
    for row in rows.values():
        if jax and row.warm:
            row.to_jax = row.warm / jax
    return list(rows.values())


def arrays(answer: tuple[Any, Any]) -> list[np.ndarray]:
    """The value and each gradient, as NumPy arrays."""
    value, gradients = answer
    leaves = gradients if isinstance(gradients, tuple | list) else [gradients]
    return [np.asarray(leaf) for leaf in (value, *leaves)]


def compare(rows: dict[str, Measurement], answers: dict[str, list[list[np.ndarray]]]) -> None:
    """Hold every answer against the reference's."""
    reference = next((name for name in REFERENCES if name in answers), None)
    if reference is None:
        return
    expected = answers[reference][0]
    tolerance = 1e-3 if any(a.dtype == np.float32 for a in expected) else 1e-6
    for name, attempts in answers.items():
        row = rows[name]
        for attempt in attempts:
            if [a.shape for a in attempt] != [a.shape for a in expected]:
                row.wrong, row.error = True, f"the gradients' shapes differ from {reference}'s"
                continue
            worst = max(map(relative_difference, attempt, expected))
            row.difference = max(worst, row.difference or 0.0)
            if not worst <= tolerance:  # nan is wrong too
                row.wrong, row.error = True, f"{worst:.1e} away from {reference}'s gradients"


def relative_difference(actual: np.ndarray, expected: np.ndarray) -> float:
    """Largest difference, relative to the largest expected number."""
    difference = np.max(np.abs(actual.astype(float) - expected.astype(float)))
    return float(difference / (np.max(np.abs(expected.astype(float))) + 1e-12))


# Seconds until another engine's turn: the threads of OpenBLAS, of which NumPy and SciPy have one
# each, go on spinning for some 25 ms after a product, on cores that others need.
PAUSE = 0.03


def time_in_turns(
    calls: dict[str, Call], rows: dict[str, Measurement], budget: float, limit: float
) -> dict[str, list[float]]:
    """Seconds per warm call, sampled from one engine after the other, round by round.

    What else the machine does then falls on all of them alike. Every round another engine begins,
    so that nobody always follows the one that leaves the caches full.
    """
    repeats: dict[str, int] = {}
    samples: dict[str, list[float]] = {}
    for name, call in calls.items():
        try:
            with time_limit(limit):
                repeats[name] = warm_up(call, budget / 4)
            samples[name] = []
        except Exception as error:
            rows[name].error = describe(error)

    end = time.perf_counter() + budget * len(samples)
    for turn in range(300):
        names = list(samples)
        if not names or (turn >= 5 and time.perf_counter() > end):
            break
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            call, count = calls[name], repeats[name]
            try:
                with time_limit(limit):
                    time.sleep(PAUSE)
                    call()
                    start = time.perf_counter()
                    for _ in range(count):
                        call()
                    samples[name].append((time.perf_counter() - start) / count)
            except Exception as error:
                rows[name].error = describe(error)
                del samples[name]
    return samples


def warm_up(call: Call, seconds: float) -> int:
    """Call for a while; returns how many calls make a sample of at least a millisecond."""
    fastest = math.inf
    end = time.perf_counter() + seconds
    while fastest == math.inf or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        fastest = min(fastest, time.perf_counter() - start)
    return math.ceil(1e-3 / fastest)


def describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


# What is shown.

HEADER = (
    f"{'workload':<27}{'engine':<10}{'first':>10}{'compile':>10}{'warm':>10}{'to JAX':>8}"
    f"{'memory':>10}"
)


def print_rows(rows: list[Measurement]) -> None:
    name = rows[0].workload
    for row in rows:
        times = "".join(f"{readable(t):>10}" for t in (row.first, row.compile, row.warm))
        ratio = "-" if row.to_jax is None else f"{row.to_jax:.2f}"
        memory = "-" if row.memory is None else size(row.memory)
        click.echo(f"{name:<27}{row.engine:<10}{times}{ratio:>8}{memory:>10}")
        if row.error:
            click.echo(f"{'':<27}! {' '.join(row.error.split())[:300]}")
        name = ""


def readable(seconds: float | None) -> str:
    """1.23 us, 45.6 ms, 0.1 s: three figures, and a unit that fits."""
    if seconds is None:
        return "-"
    for unit, scale in (("us", 1e-6), ("ms", 1e-3)):
        if seconds < 1000 * scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds:.3g} s"


def size(count: int) -> str:
    """12 B, 1.5 kB, 3.1 MB."""
    for unit, scale in (("B", 1), ("kB", 1e3)):
        if count < 1000 * scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count / 1e6:.3g} MB"


def print_summary(rows: list[Measurement]) -> None:
    ratios = [
        row.to_jax for row in rows if row.engine == "tapegrad" and row.to_jax and not row.wrong
    ]
    if ratios:
        mean = statistics.geometric_mean(ratios)
        click.echo(
            f"tapegrad's warm call takes {mean:.2f} of JAX's time, "
            f"the geometric mean of {len(ratios)} workloads"
        )


def draw(rows: list[Measurement], path: Path) -> None:
    """Bars for the warm call (log scale) and for compiling, a group for each workload."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(row.workload for row in rows))
    engines = list(dict.fromkeys(row.engine for row in rows))
    height = 0.8 / len(engines)
    figure = Figure(figsize=(11, 1.5 + 0.5 * len(names)), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    contents = (("warm", "one warm call", "log"), ("compile", "tracing and compiling", "linear"))
    for axes, (field, title, scale) in zip(panels, contents, strict=True):
        for i, engine in enumerate(engines):
            mine = [row for row in rows if row.engine == engine and getattr(row, field)]
            places = [
                names.index(row.workload) + (i - (len(engines) - 1) / 2) * height for row in mine
            ]
            axes.barh(places, [getattr(row, field) for row in mine], height, label=engine)
        axes.set(xscale=scale, xlabel="seconds", title=title)
        axes.grid(axis="x", alpha=0.3)
        axes.set_axisbelow(True)
    panels[0].set_yticks(range(len(names)), names)
    panels[0].invert_yaxis()
    panels[0].legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def environment() -> dict[str, Any]:
    """What the numbers depend on."""
    packages = ("tapegrad", "numpy", "numba", "llvmlite", "scipy", "jax", "jaxlib", "autograd")
    versions = {}
    for package in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return {
        "python": platform.python_version(),
        "machine": platform.platform(),
        "cores": os.cpu_count(),
        "versions": versions,
    }


# What is run.


def load(engine: Engine, tier: str) -> str:
    """Import an engine and let it differentiate something, off the clock; returns what failed.

    Otherwise the first workload would pay for what an engine imports and sets up once a process.
    """
    trifle = Workload("trifle", "call", lambda xp, x: xp.sum(x * x), lambda rng: (np.ones(3),))
    if engine.prepare is prepare_by_hand:
        return ""
    try:
        for used in ("auto", tier) if engine.tiered else ("auto",):
            engine.prepare(trifle, (np.ones(3),), used)()
    except Exception as error:
        return describe(error)
    return ""


def chosen_workloads(patterns: str | None) -> list[Workload]:
    if patterns is None:
        return list(WORKLOADS)
    chosen = []
    for pattern in patterns.split(","):
        found = [w for w in WORKLOADS if fnmatchcase(w.name, pattern) or w.family == pattern]
        if not found:
            names = ", ".join(w.name for w in WORKLOADS)
            raise click.BadParameter(f"no workload fits {pattern!r}; there are {names}")
        chosen += [w for w in found if w not in chosen]
    return chosen


def chosen_engines(names: str) -> list[Engine]:
    for name in names.split(","):
        if name not in ENGINES:
            raise click.BadParameter(f"no engine {name!r}; there are {', '.join(ENGINES)}")
    return [ENGINES[name] for name in names.split(",")]


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option(
    "--only", metavar="NAMES", help="Workloads or families, comma-separated, with * and ?."
)
@click.option("--engines", metavar="NAMES", default=",".join(ENGINES), help="Comma-separated.")
@click.option(
    "--compile",
    "tier",
    type=click.Choice(["always", "auto", "never"]),
    default="always",
    help="How tapegrad runs in the warm timing; its first call is always timed with auto.",
)
@click.option("--budget", default=2.0, help="Seconds of warm timing per workload and engine.")
@click.option("--limit", default=120.0, help="Seconds after which an engine is given up.")
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path(__file__).with_name("results.png"),
    show_default="results.png beside run.py",
    help="Where to draw the results.",
)
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), help="Data.")
def main(
    only: str | None,
    engines: str,
    tier: str,
    budget: float,
    limit: float,
    plot: Path,
    json_path: Path | None,
) -> None:
    """Time gradients in tapegrad, JAX and HIPS autograd, and check them against each other.

    Exits with 1 if any of tapegrad's gradients is wrong.
    """
    # Cold means cold: nothing that an earlier process compiled. And all engines use the CPU.
    os.environ.setdefault("TAPEGRAD_CACHE_DIR", "")
    os.environ.setdefault("JAX_PLATFORMS", "cpu")

    workloads, usable = chosen_workloads(only), []
    for engine in chosen_engines(engines):
        if error := load(engine, tier):
            click.echo(f"{engine.name} is left out: {error}")
        else:
            usable.append(engine)
    if not usable:
        raise click.ClickException("no engine works")

    click.echo(HEADER)
    results: list[Measurement] = []
    for workload in workloads:
        rows = measure(workload, usable, tier, budget, limit)
        print_rows(rows)
        results += rows
    print_summary(results)

    draw(results, plot)
    click.echo(f"the plot is in {plot.resolve()}")
    if json_path is not None:
        data = {"environment": environment(), "results": [asdict(row) for row in results]}
        json_path.parent.mkdir(parents=True, exist_ok=True)
        json_path.write_text(json.dumps(data, indent=1) + "\n")
        click.echo(f"the data is in {json_path.resolve()}")
    if any(row.wrong and row.engine == "tapegrad" for row in results):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
