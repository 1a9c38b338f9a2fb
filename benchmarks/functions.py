"""Time single functions of NumPy that take more than one pass, beside JAX's.

    python benchmarks/functions.py
    python benchmarks/functions.py --only 'convolve*,interp*' --compile auto

Each program is one call of the function, and a sum: value and gradient.
"""

import os
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

import click
import numpy as np
from loops import timed
from measure import Measurement
from run import usable_engines
from show import HEADER, print_ratios, print_rows
from workloads import Workload

TAPS = 101


def products(function: str, size: int, mode: str) -> Workload:
    """`np.convolve` or `np.correlate` of a signal with taps, with regard to both."""

    def loss(xp: Any, params: Any) -> Any:
        return xp.sum(getattr(xp, function)(*params, mode) ** 2)

    def make(rng: np.random.Generator) -> tuple:
        return ((rng.standard_normal(size), rng.standard_normal(TAPS)),)

    return Workload(f"{function}_{mode}_{size}", function, function, loss, make)


def search(size: int, knots: int) -> Workload:
    """Points are looked for in sorted numbers, and weighed by what stands there."""

    def loss(xp: Any, params: Any, ends: Any) -> Any:
        weights, points = params
        return xp.sum(weights[xp.searchsorted(ends, points)] * points)

    def make(rng: np.random.Generator) -> tuple:
        params = rng.standard_normal(knots + 1), rng.standard_normal(size)
        return params, np.sort(rng.standard_normal(knots))

    return Workload(f"searchsorted_{size}_in_{knots}", "searchsorted", "order", loss, make)


def interpolation(size: int, knots: int, both: bool, ordered: bool = False) -> Workload:
    """Linear interpolation; with regard to the values, or to the points too, which may be in
    order."""

    def loss(xp: Any, params: Any, knots: Any, *points: Any) -> Any:
        values, *given = (*params, *points) if both else (params, *points)
        return xp.sum(xp.interp(given[0], knots, values) ** 2)

    def make(rng: np.random.Generator) -> tuple:
        points, values = rng.standard_normal(size), rng.standard_normal(knots)
        ends = np.sort(rng.standard_normal(knots))
        points = np.sort(points) if ordered else points
        return ((values, points), ends) if both else (values, ends, points)

    name = f"interp_{size}_in_{knots}" + "_both" * both + "_ordered" * ordered
    return Workload(name, "interp", "order", loss, make)


def running(function: str, shape: tuple[int, ...], axis: int) -> Workload:
    """A sum, product or the like that runs along an axis."""
    name, _, method = function.partition(".")

    def loss(xp: Any, x: Any, weights: Any) -> Any:
        run = getattr(xp, name)
        run = getattr(run, method) if method else run
        return xp.sum(run(x, axis=axis) * weights)

    def make(rng: np.random.Generator) -> tuple:
        return 1.0 + rng.standard_normal(shape) / shape[axis], rng.standard_normal(shape)

    extents = "x".join(map(str, shape))
    return Workload(f"{function}_{extents}_axis{axis}", function, "running", loss, make)


def norm(xp: Any, row: Any) -> Any:
    return xp.sqrt(xp.sum(row**2))


def softmax(xp: Any, row: Any) -> Any:
    e = xp.exp(row - xp.max(row))
    return e / xp.sum(e)


def entropy(xp: Any, row: Any) -> Any:
    p = softmax(xp, row)
    return -xp.sum(p * xp.log(p))


def smooth(xp: Any, row: Any) -> Any:
    return xp.convolve(row, xp.array([0.25, 0.5, 0.25]), "same")


def along(function: Any, rows: int, axis: int = 1, width: int = 20) -> Workload:
    """A function of rows, or of columns, of a matrix."""

    def loss(xp: Any, x: Any) -> Any:
        return xp.sum(xp.apply_along_axis(lambda row: function(xp, row), axis, x) ** 2)

    def make(rng: np.random.Generator) -> tuple:
        x = rng.standard_normal((rows, width))
        return (x if axis else x.T.copy(),)

    name = f"along_{function.__name__}_{rows}" + "_columns" * (not axis)
    return Workload(name, function.__name__, "apply_along_axis", loss, make)


def workloads() -> Iterator[Workload]:
    for function in ("convolve", "correlate"):
        for size in (1_000, 10_000, 100_000):
            for mode in ("full", "same", "valid"):
                yield products(function, size, mode)
    for size in (10_000, 100_000):
        for knots in (1_000, 10_000, 100_000):
            yield search(size, knots)
        for knots in (100, 1_000, 10_000):
            for both in (False, True):
                yield interpolation(size, knots, both)
        yield interpolation(size, 1_000, False, ordered=True)
    for function in ("cumsum", "cumprod", "maximum.accumulate"):
        yield running(function, (100_000,), 0)
        for axis in (0, 1):
            yield running(function, (300, 300), axis)
    for rows in (100, 1_000):
        for function in (norm, softmax, entropy, smooth):
            yield along(function, rows)
    yield along(norm, 100, axis=0)


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
@click.option("--budget", default=1.0, help="Seconds of warm timing per program and engine.")
@click.option("--limit", default=120.0, help="Seconds after which an engine is given up.")
def main(only: str, engines: str, tier: str, budget: float, limit: float) -> None:
    """Time functions of NumPy in tapegrad and JAX, and check them against each other.

    Exits with 1 if any of tapegrad's gradients is wrong.
    """
    os.environ.setdefault("TAPEGRAD_CACHE_DIR", "")
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    patterns = only.split(",")
    chosen = [w for w in workloads() if any(fnmatchcase(w.name, p) for p in patterns)]
    if not chosen:
        raise click.BadParameter(f"no program fits {only!r}", param_hint="--only")
    usable = usable_engines(engines, tier)
    click.echo(HEADER)
    results: list[Measurement] = []
    for workload in chosen:
        rows = timed(workload, usable, tier, budget, limit)
        print_rows(rows)
        results += rows
    print_ratios(results)
    if any(row.wrong and row.engine == "tapegrad" for row in results):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
