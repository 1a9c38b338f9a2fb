"""Time how compiling grows with the size of a program, in tapegrad and in JAX.

    python benchmarks/growth.py --upto 1000

Programs of 10 to 5,000 operations in straight line, of four families. Prints the seconds that each
stage takes, with the power of the size by which they grow, and draws growth.png.
"""

import json
import math
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from show import described, environment, readable

SIZES = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000)

# What is timed, in order. The columns of the table.
STAGES = {
    "tapegrad": ("derive", "schedule", "compile"),
    "jax": ("lower", "compile"),
}


# The programs. Each is a function of a namespace, a number of rounds and an array.


def chain(xp: Any, rounds: int, x: Any) -> Any:
    for _ in range(rounds):
        x = 1.01 * xp.sin(x) + 0.1
    return xp.sum(x)


def pendulum(xp: Any, rounds: int, x: Any) -> Any:
    angle, speed = x[0], x[1]
    for _ in range(rounds):
        speed = speed - 0.1 * xp.sin(angle) - 0.01 * speed
        angle = angle + 0.1 * speed
    return angle * angle


def layers(xp: Any, rounds: int, x: Any) -> Any:
    h = x
    for _ in range(rounds):
        h = xp.tanh(h @ x)
    return xp.sum(h)


def softmax(xp: Any, rounds: int, x: Any) -> Any:
    for _ in range(rounds):
        e = xp.exp(x - xp.max(x, axis=1, keepdims=True))
        x = 3.0 * (e / xp.sum(e, axis=1, keepdims=True))
    return xp.sum(x * x)


@dataclass(frozen=True)
class Family:
    """Programs that differ in length alone: so many operations a round."""

    name: str
    what: str
    program: Callable[..., Any]
    operations: int
    shape: tuple[int, ...]

    def rounds(self, size: int) -> int:
        return max(1, round(size / self.operations))


FAMILIES = (
    Family("chain", "1.01 * sin(x) + 0.1, of 1,000 elements", chain, 3, (1000,)),
    Family("pendulum", "steps of a pendulum, of two numbers", pendulum, 7, (2,)),
    Family("layers", "tanh(h @ W), of 16 x 16", layers, 2, (16, 16)),
    Family("softmax", "softmax of rows, of 16 x 16", softmax, 6, (16, 16)),
)

TRIFLE = Family("trifle", "x * x", lambda xp, rounds, x: xp.sum(x * x), 1, (3,))


# What is timed.

Point = tuple[int, list[float]]  # operations, and the stages' seconds
Points = dict[int, list[float]]


def stages_of_tapegrad(family: Family, rounds: int) -> list[float]:
    """Seconds to trace and differentiate; to optimise, schedule and emit; to compile and link."""
    from tapegrad import grad
    from tapegrad.compiler.client import client
    from tapegrad.compiler.packed import pack
    from tapegrad.core.request import Request
    from tapegrad.runtime.entry import compiled_text

    x = argument(family)
    derivative: Any = grad(lambda x: family.program(np, rounds, x))
    start = time.perf_counter()
    tape = derivative._derive(Request(derivative.f, (x,))).tape
    derived = time.perf_counter()
    job = client.submit(pack(tape), None)
    client.wait(job)
    compiled_text(job.executable())
    total = time.perf_counter() - derived
    scheduled = job.times["passes"] + job.times["schedule"]
    return [derived - start, scheduled, total - scheduled]


def stages_of_jax(family: Family, rounds: int) -> list[float]:
    """Seconds to trace, differentiate and lower; to compile."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    x = jnp.asarray(argument(family))
    gradient = jax.jit(jax.grad(lambda x: family.program(jnp, rounds, x)))
    start = time.perf_counter()
    lowered = gradient.lower(x)
    between = time.perf_counter()
    lowered.compile()
    return [between - start, time.perf_counter() - between]


TIMED = {"tapegrad": stages_of_tapegrad, "jax": stages_of_jax}


def argument(family: Family) -> np.ndarray:
    return 0.3 * np.random.default_rng(0).standard_normal(family.shape)


def work(pipe: Any, engine: str, family: Family, rounds: int) -> None:
    """In a process of its own: send "ready", and then the stages' seconds."""
    try:
        TIMED[engine](TRIFLE, 1)  # what is loaded once a process is not counted
        pipe.send("ready")
        pipe.send(TIMED[engine](family, rounds))
    except Exception as error:
        pipe.send(f"{type(error).__name__}: {error}")


def attempt(engine: str, family: Family, rounds: int, limit: float) -> list[float] | str:
    """The stages' seconds for one program, or why there are none.

    A process of its own has nothing that was compiled before, and it can be stopped, which no
    signal does with a compiler that is written in C++.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=work, args=(theirs, engine, family, rounds), daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(120.0):
            return "it doesn't start"
        if (said := ours.recv()) != "ready":
            return said
        return ours.recv() if ours.poll(limit) else f"no answer within {limit:g} s"
    except EOFError:
        return "its process died"
    finally:
        process.terminate()
        process.join()


def measured(engine: str, family: Family, sizes: list[int], limit: float) -> Iterator[Point]:
    """Numbers of operations and the stages' seconds, until a program takes too long."""
    for size in sizes:
        rounds = family.rounds(size)
        attempts = []
        while len(attempts) < 3 and sum(map(sum, attempts)) < 1.0:
            found = attempt(engine, family, rounds, limit)
            if isinstance(found, str):
                click.echo(f"{family.name}: {engine} stops before {size:,} operations: {found}")
                return
            attempts.append(found)
        yield rounds * family.operations, min(attempts, key=sum)


def exponent(points: dict[int, float]) -> float | None:
    """The power of the size by which the seconds grow: the slope of a line through the upper half
    of the points, on logarithmic scales."""
    if len(points) < 3:
        return None
    middle = math.sqrt(min(points) * max(points))
    upper = [(math.log(n), math.log(t)) for n, t in points.items() if n >= middle]
    return float(np.polyfit(*zip(*upper, strict=True), 1)[0]) if len(upper) > 1 else None


# What is shown.


def print_table(family: Family, found: dict[str, Points], sizes: list[int]) -> None:
    click.echo(f"\n{family.name}: {family.what}\n")
    heads, units = f"{'':>10}", f"{'operations':>10}"
    for engine in found:
        columns = [*STAGES[engine], "total"]
        heads += f"{engine:>{10 * len(columns)}}"
        units += "".join(f"{column:>10}" for column in columns)
    click.echo(f"{heads}\n{units}")
    for size in sizes:
        operations = family.rounds(size) * family.operations
        line = f"{operations:>10,}"
        for engine, points in found.items():
            stages = points.get(operations)
            cells = [*stages, sum(stages)] if stages else [None] * (len(STAGES[engine]) + 1)
            line += "".join(f"{readable(cell):>10}" for cell in cells)
        click.echo(line)
    line = f"{'grows as':>10}"
    for engine, points in found.items():
        for k in range(len(STAGES[engine])):
            line += f"{power({n: stages[k] for n, stages in points.items()}):>10}"
        line += f"{power(totals(points)):>10}"
    click.echo(line)


def power(points: dict[int, float]) -> str:
    found = exponent(points)
    return "-" if found is None else f"n^{found:.2f}"


def totals(points: Points) -> dict[int, float]:
    return {n: sum(stages) for n, stages in points.items()}


CAPTION = (
    "n^p is the slope of a straight line through the upper half of a curve, on these axes. It says "
    "how the seconds grew between those sizes,\nand not how they go on: where kernels are alike "
    "(layers, pendulum) they are compiled once, so that p is small,\nuntil the stages that grow as "
    "n^1 are what is left."
)


def draw(results: dict[str, dict[str, Points]], where: dict[str, Any], path: Path) -> None:
    """A panel for each family: the total of each engine, and tapegrad's stages."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 8), layout="constrained")
    panels = figure.subplots(math.ceil(len(results) / 2), 2, sharex=True, squeeze=False).flat
    for axes, (name, found) in zip(panels, results.items(), strict=False):
        family = next(f for f in FAMILIES if f.name == name)
        for engine, points in found.items():
            if not points:
                continue
            color = {"tapegrad": "C0", "jax": "C1"}[engine]
            grown = power(totals(points))
            label = f"{engine}, {grown} at its end"
            axes.plot(*zip(*totals(points).items(), strict=True), "o-", color=color, label=label)
            if engine == "tapegrad":
                for k, (stage, dashes) in enumerate(
                    zip(STAGES[engine], (":", "--", "-."), strict=True)
                ):
                    one = [stages[k] for stages in points.values()]
                    axes.plot([*points], one, dashes, color=color, alpha=0.6, label=f"  {stage}")
        ends = np.array([min(SIZES), max(SIZES)])
        axes.plot(ends, 2e-4 * ends, color="gray", lw=0.8, label="n^1")
        axes.set(xscale="log", yscale="log", title=f"{name}: {family.what}")
        axes.set(xlabel="operations", ylabel="seconds")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    figure.supxlabel(f"{CAPTION}\n{described(where)}", size=8, color="0.3")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def numbered(results: dict[str, Any]) -> dict[str, dict[str, Points]]:
    """Results that were stored: in JSON, sizes are texts."""
    return {
        family: {e: {int(n): stages for n, stages in points.items()} for e, points in found.items()}
        for family, found in results.items()
    }


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option("--families", default=",".join(f.name for f in FAMILIES), help="Comma-separated.")
@click.option("--engines", default=",".join(TIMED), help="Comma-separated.")
@click.option("--upto", default=max(SIZES), help="The size of the largest programs.")
@click.option("--limit", default=60.0, help="Seconds for a program; larger ones are left out then.")
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path(__file__).with_name("growth.png"),
    show_default="growth.png beside growth.py",
    help="Where to draw the results.",
)
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), help="Data.")
@click.option(
    "--redraw",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Measure nothing, and draw the data of an earlier run.",
)
def main(
    families: str,
    engines: str,
    upto: int,
    limit: float,
    plot: Path,
    json_path: Path | None,
    redraw: Path | None,
) -> None:
    """Time how compiling grows with the size of a program."""
    if redraw is not None:
        data = json.loads(redraw.read_text())
        draw(numbered(data["results"]), data["environment"], plot)
        click.echo(f"the plot is in {plot.resolve()}")
        return
    os.environ.setdefault("TAPEGRAD_CACHE_DIR", "")
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    for known, names in (([f.name for f in FAMILIES], families), ([*TIMED], engines)):
        if unknown := set(names.split(",")) - set(known):
            raise click.BadParameter(f"no {', '.join(unknown)}; there are {', '.join(known)}")
    sizes = [size for size in SIZES if size <= upto]
    results = {}
    for family in (f for f in FAMILIES if f.name in families.split(",")):
        found = {e: dict(measured(e, family, sizes, limit)) for e in engines.split(",")}
        print_table(family, found, sizes)
        results[family.name] = found
    where = environment()
    draw(results, where, plot)
    if json_path is not None:
        json_path.write_text(json.dumps({"environment": where, "results": results}) + "\n")
    click.echo(f"\nthe plot is in {plot.resolve()}")


if __name__ == "__main__":
    main()
