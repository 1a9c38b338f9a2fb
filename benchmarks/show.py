"""Measurements as tables and as a plot."""

import contextlib
import datetime
import os
import platform
import statistics
from importlib import metadata
from pathlib import Path
from typing import Any

import click
from engines import ENGINES
from measure import COUNTS, Measurement
from workloads import WORKLOADS

# The main table.

HEADER = (
    f"{'workload':<27}{'engine':<15}{'first':>10}{'compile':>10}{'warm':>10}{'to JAX':>8}"
    f"{'memory':>10}"
)


def print_rows(rows: list[Measurement]) -> None:
    """One workload's lines."""
    name = rows[0].workload if rows else ""
    for row in rows:
        times = "".join(f"{readable(t):>10}" for t in (row.first, row.compile, row.warm))
        ratio = "-" if row.to_jax is None else f"{row.to_jax:.2f}"
        memory = "-" if row.memory is None else size(row.memory)
        click.echo(f"{name:<27}{row.engine:<15}{times}{ratio:>8}{memory:>10}")
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
    return f"{seconds:.3g} s" if seconds < 1000 else f"{seconds:.0f} s"


def size(count: int) -> str:
    """12 B, 1.5 kB, 3.1 MB."""
    for unit, scale in (("B", 1), ("kB", 1e3)):
        if count < 1000 * scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count / 1e6:.3g} MB"


# tapegrad's warm call beside each peer's.


def print_ratios(results: list[Measurement]) -> None:
    """A line for each workload, a column for each peer, and their geometric means."""
    warm = {(r.workload, r.engine): r.warm for r in results if r.warm and not r.wrong}
    peers = list(dict.fromkeys(engine for _, engine in warm if engine != "tapegrad"))
    names = [name for name, engine in warm if engine == "tapegrad"]
    if not peers or not names:
        return
    click.echo("\ntapegrad's warm call, relative to that of\n")
    click.echo(f"{'workload':<27}" + "".join(f"{peer:>14}" for peer in peers))
    columns: dict[str, list[float]] = {peer: [] for peer in peers}
    for name in dict.fromkeys(names):
        cells = []
        for peer in peers:
            known = (name, peer) in warm
            if known:
                columns[peer].append(warm[name, "tapegrad"] / warm[name, peer])
            cells.append(f"{columns[peer][-1]:.2f}" if known else "-")
        click.echo(f"{name:<27}" + "".join(f"{cell:>14}" for cell in cells))
    means = [statistics.geometric_mean(c) if c else None for c in columns.values()]
    shown = ["-" if mean is None else f"{mean:.2f}" for mean in means]
    click.echo(f"{'geometric mean':<27}" + "".join(f"{cell:>14}" for cell in shown))
    counts = "".join(f"{len(c):>14}" for c in columns.values())
    click.echo(f"{'  of so many workloads':<27}{counts}")


# The totals.


def print_totals(results: list[Measurement]) -> None:
    """What the first calls take together, and that relative to JAX's."""
    jax = {row.workload: row.totals for row in results if row.engine == "jax"}
    click.echo(
        "\ntotal of the first calls, from nothing, and relative to JAX's (~: extrapolated)\n"
    )
    heads = "".join(f"{n:>10,}{'to JAX':>7}" for n in COUNTS)
    click.echo(f"{'workload':<27}{'engine':<14}{heads}")
    behind, last = [], ""
    for row in results:
        cells = ""
        for count in COUNTS:
            total, other = row.totals.get(count), jax.get(row.workload, {}).get(count)
            sign = "~" if total is not None and count > row.called else ""
            ratio = total / other if total is not None and other else None
            cells += f"{sign + readable(total):>10}{'-' if ratio is None else brief(ratio):>7}"
            if row.engine == "tapegrad" and ratio is not None and ratio >= 1:
                behind.append(f"{row.workload}, {count:,} call{'s'[: count - 1]} ({brief(ratio)})")
        name, last = "" if row.workload == last else row.workload, row.workload
        click.echo(f"{name:<27}{row.engine:<14}{cells}")
    if jax and any(row.engine == "tapegrad" for row in results):
        click.echo("\ntapegrad's totals are shorter than JAX's" + (", but for" if behind else ""))
        for line in behind:
            click.echo(f"    {line}")


def brief(ratio: float) -> str:
    """A ratio in at most five characters: 0.042, 0.42, 4.20, 42.0, 420."""
    digits = 3 if ratio < 0.0995 else 2 if ratio < 9.995 else 1 if ratio < 99.95 else 0
    return f"{ratio:.{digits}f}"


# The plot.


def draw(results: list[Measurement], environment: dict[str, Any], path: Path) -> None:
    """Dots on logarithmic axes, for the warm call and for compiling, a line for each engine.

    What wasn't measured says so where its dot would be.
    """
    from matplotlib.figure import Figure

    titles = {workload.name: workload.title for workload in WORKLOADS}
    names = list(dict.fromkeys(row.workload for row in results))
    engines = list(dict.fromkeys(row.engine for row in results))
    rows = {(row.workload, row.engine): row for row in results}
    lane = 0.8 / len(engines)
    inches = 2.0 + (0.15 + 0.11 * len(engines)) * len(names)
    figure = Figure(figsize=(11, inches), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    contents = (("warm", "one warm call"), ("compile", "tracing and compiling"))
    for axes, (field, title) in zip(panels, contents, strict=True):
        for i, engine in enumerate(engines):
            color = f"C{i}"
            dots = []
            for k, name in enumerate(names):
                place = k + (i - (len(engines) - 1) / 2) * lane
                seconds = getattr(rows.get((name, engine)), field, None)
                if seconds:
                    dots.append((seconds, place))
                else:
                    why = f"{engine}: {absence(rows.get((name, engine)), engine, field)}"
                    edge = axes.get_yaxis_transform()
                    axes.text(0.01, place, why, transform=edge, color=color, size=5.5, va="center")
            axes.plot(*(zip(*dots, strict=True) if dots else ((), ())), "o", ms=4, label=engine)
        for k in range(1, len(names)):
            axes.axhline(k - 0.5, color="0.9", lw=0.8, zorder=0)
        axes.set(xscale="log", xlabel="seconds", title=title, ylim=(len(names) - 0.5, -0.5))
        axes.grid(axis="x", alpha=0.3)
    panels[0].set_yticks(range(len(names)), [titles.get(name, name) for name in names])
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(engines), frameon=False)
    figure.supxlabel(described(environment), size=7, color="0.3")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def absence(row: Measurement | None, engine: str, field: str) -> str:
    """Why a figure isn't there."""
    known = ENGINES.get(engine)
    if field == "compile" and known is not None and not known.compiles:
        return "doesn't compile"
    if row is None:
        return "not written for it"
    return " ".join(row.error.split())[:60] or "not measured"


def environment() -> dict[str, Any]:
    """What the numbers depend on."""
    versions = {}
    for package in (package for engine in ENGINES.values() for package in engine.packages):
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return {
        "python": platform.python_version(),
        "machine": f"{processor()}, {platform.system()}",
        "cores": os.cpu_count(),
        "date": datetime.date.today().isoformat(),
        "versions": versions,
    }


def processor() -> str:
    """The processor's name, where Linux tells it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def described(environment: dict[str, Any]) -> str:
    """The machine, the versions and the day, in two lines."""
    versions = [f"{name} {version}" for name, version in environment.get("versions", {}).items()]
    known = [("machine", "{}"), ("cores", "{} cores"), ("python", "Python {}"), ("date", "{}")]
    where = [text.format(environment[key]) for key, text in known if environment.get(key)]
    return "\n".join(filter(None, [", ".join(where), ", ".join(versions)]))
