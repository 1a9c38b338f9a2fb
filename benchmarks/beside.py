"""The command of benchmarks that hold programs beside JAX, one after the other."""

import os
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

import click
from loops import timed
from measure import Measurement
from run import usable_engines
from show import HEADER, print_ratios, print_rows
from workloads import Workload


def command(programs: Sequence[Workload], help: str) -> click.Command:
    """Times the programs that `--only` chooses, by name or family. It exits with 1 if any of
    tapegrad's gradients is wrong."""

    @click.command(
        help=f"{help} Exits with 1 if any of tapegrad's gradients is wrong.",
        context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
    )
    @click.option("--only", metavar="NAMES", default="*", help="Comma-separated, with * and ?.")
    @click.option("--engines", metavar="NAMES", default="tapegrad,jax", help="Comma-separated.")
    @click.option(
        "--compile", "tier", type=click.Choice(["always", "auto", "never"]), default="always"
    )
    @click.option("--budget", default=2.0, help="Seconds of warm timing per program and engine.")
    @click.option("--limit", default=300.0, help="Seconds after which an engine is given up.")
    def main(**options: Any) -> None:
        os.environ.setdefault("TAPEGRAD_CACHE_DIR", "")
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
        usable = usable_engines(options["engines"], options["tier"])
        click.echo(HEADER)
        results: list[Measurement] = []
        patterns = options["only"].split(",")
        for program in programs:
            if any(p == program.family or fnmatchcase(program.name, p) for p in patterns):
                rows = timed(program, usable, options["tier"], options["budget"], options["limit"])
                print_rows(rows)
                results += rows
        print_ratios(results)
        if any(row.wrong and row.engine == "tapegrad" for row in results):
            raise SystemExit(1)

    return main
