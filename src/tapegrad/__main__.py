"""The command line: `tapegrad` or `python -m tapegrad`."""

from pathlib import Path

import click


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
    often it was traced and compiled, and the path of a plot of its loss.
    """
    try:
        from tapegrad import demo as job
    except ModuleNotFoundError as error:
        if error.name not in {"sklearn", "matplotlib"}:
            raise
        raise click.ClickException(
            f"the demo needs {error.name}, which is not installed: "
            'pip install "tapegrad[demo]" brings it'
        ) from error
    job.run(output)


if __name__ == "__main__":
    main(prog_name="python -m tapegrad")
