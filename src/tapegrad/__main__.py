"""The command line: `tapegrad` or `python -m tapegrad`."""

from pathlib import Path

import click

from tapegrad.compiler import disk


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tapegrad", message="tapegrad %(version)s")
def main() -> None:
    """Plain NumPy in, compiled gradients out."""


@main.command()
@click.option(
    "--output",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    default=Path("tapegrad-demo.png"),
    show_default=True,
    help="Where to write the plot of the loss.",
)
def demo(output: Path) -> None:
    """Train a network on handwritten digits, and show what happens inside.

    Prints the tape of a small function and the source generated for its gradient. Then trains a
    two-layer network, written in plain NumPy, on scikit-learn's digits; prints its accuracy, how
    often it was traced and compiled, some digits with its guesses, a check of its gradient against
    finite differences and its time beside NumPy's, and the path of a plot of its loss.
    """
    try:
        from tapegrad import demo as job
    except ModuleNotFoundError as error:
        if error.name not in {"sklearn", "matplotlib", "tqdm"}:
            raise
        raise click.ClickException(
            f"the demo needs {error.name}, which is not installed: "
            'pip install "tapegrad[demo]" brings it'
        ) from error
    job.run(output)


@main.group()
def cache() -> None:
    """Look at the compiled code that is kept on disk, or remove it."""


@cache.command()
def info() -> None:
    """Say where compiled code is kept, and how much of it."""
    found = disk.info()
    if found.folder is None:
        click.echo("nothing is kept: TAPEGRAD_CACHE_DIR is off, or there is no home folder")
        return
    click.echo(f"folder  {click.format_filename(found.folder)}")
    click.echo(f"tapes   {found.files}")
    click.echo(f"size    {found.bytes / 1e6:.1f} MB of {found.limit / 1e6:.0f} MB")


@cache.command()
def clear() -> None:
    """Remove the compiled code that is kept on disk."""
    before = disk.info()
    disk.clear()
    click.echo(f"removed {before.files - disk.info().files} compiled tapes")


if __name__ == "__main__":
    main(prog_name="python -m tapegrad")
