"""Time gradients of the same programs in tapegrad and its peers, in one process.

    python benchmarks/run.py --only 'mlp*' --engines tapegrad,jax

README.md, beside this file, says what is measured and how.
"""

import json
import os
from dataclasses import asdict
from fnmatch import fnmatchcase
from pathlib import Path

import click
from engines import ENGINES, Engine
from measure import Measurement, describe, measure
from show import HEADER, draw, environment, print_ratios, print_rows, print_totals
from workloads import WORKLOADS, Workload


def chosen_workloads(patterns: str | None) -> list[Workload]:
    if patterns is None:
        return list(WORKLOADS)
    chosen: list[Workload] = []
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


def usable_engines(names: str, tier: str) -> list[Engine]:
    """The chosen engines that work here; a line says which one doesn't, and why."""
    usable = []
    for engine in chosen_engines(names):
        try:
            engine.load(tier)
            usable.append(engine)
        except Exception as error:
            click.echo(f"{engine.name} is left out: {' '.join(describe(error).split())[:200]}")
    if not usable:
        raise click.ClickException("no engine works")
    return usable


def draw_again(source: Path, plot: Path) -> None:
    """Draw what an earlier run has written with `--json`."""
    data = json.loads(source.read_text())
    draw([Measurement(**row) for row in data["results"]], data["environment"], plot)
    click.echo(f"the plot is in {plot.resolve()}")


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option(
    "--only", metavar="NAMES", help="Workloads or families, comma-separated, with * and ?."
)
@click.option(
    "--engines",
    metavar="NAMES",
    default=",".join(name for name in ENGINES if name not in ("played", "numpy")),
    help=f"Comma-separated, of {', '.join(ENGINES)}.",
)
@click.option(
    "--compile",
    "tier",
    type=click.Choice(["always", "auto", "never"]),
    default="always",
    help="How tapegrad runs in the warm timing; first calls and totals are always with auto.",
)
@click.option(
    "--budget",
    default=2.0,
    help="Seconds of warm timing per workload and engine, and of calls for the totals.",
)
@click.option("--limit", default=120.0, help="Seconds after which an engine is given up.")
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path(__file__).with_name("results.png"),
    show_default="results.png beside run.py",
    help="Where to draw the results.",
)
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), help="Data.")
@click.option(
    "--redraw",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Measure nothing, and draw the data of an earlier run.",
)
def main(
    only: str | None,
    engines: str,
    tier: str,
    budget: float,
    limit: float,
    plot: Path,
    json_path: Path | None,
    redraw: Path | None,
) -> None:
    """Time gradients in tapegrad and its peers, and check them against each other.

    Exits with 1 if any of tapegrad's gradients is wrong.
    """
    if redraw is not None:
        draw_again(redraw, plot)
        return
    # Cold means cold: nothing that an earlier process compiled. And all engines use the CPU.
    os.environ.setdefault("TAPEGRAD_CACHE_DIR", "")
    os.environ.setdefault("JAX_PLATFORMS", "cpu")

    workloads, usable = chosen_workloads(only), usable_engines(engines, tier)
    click.echo(HEADER)
    results: list[Measurement] = []
    for workload in workloads:
        rows = measure(workload, usable, tier, budget, limit)
        print_rows(rows)
        results += rows
    print_ratios(results)
    print_totals(results)

    where = environment()
    draw(results, where, plot)
    click.echo(f"\nthe plot is in {plot.resolve()}")
    if json_path is not None:
        data = {"environment": where, "results": [asdict(row) for row in results]}
        json_path.parent.mkdir(parents=True, exist_ok=True)
        json_path.write_text(json.dumps(data, indent=1) + "\n")
        click.echo(f"the data is in {json_path.resolve()}")
    if any(row.wrong and row.engine == "tapegrad" for row in results):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
