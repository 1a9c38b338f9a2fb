"""The command line: `tapegrad` or `python -m tapegrad`."""

import sys
from pathlib import Path

import click

from tapegrad.compiler import disk


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tapegrad", message="tapegrad %(version)s")
def main() -> None:
    """Plain NumPy in, compiled gradients out."""


@main.command()
def doctor() -> None:
    """Say what tapegrad finds on this machine, and whether it works; the status is 1 if not."""
    from tapegrad.doctor import findings

    is_wrong = False
    for found in findings():
        is_wrong |= found.is_wrong
        click.echo(f"{found.subject:10}{'WRONG: ' * found.is_wrong}{found.text}")
    if is_wrong:
        raise SystemExit(1)


@main.command()
@click.argument("target", metavar="PROGRAM.PY:FUNCTION")
@click.argument("arguments", nargs=-1)
@click.option(
    "-o", "--output", metavar="PAGE.HTML", help="Where to write the page: PROGRAM-FUNCTION.html."
)
def explore(target: str, arguments: tuple[str, ...], output: str | None) -> None:
    """Run a program, and write a page that shows what one of its functions does.

    ARGUMENTS are expressions, in which the program's names are known. Without any, they are those
    of the last call that the program itself makes of the function or of a derivative of it. Where
    the program raises, it is the last call before.
    """
    from tapegrad.core.frames import shorten
    from tapegrad.errors import TapegradError
    from tapegrad.exploring import explore_program

    path, _, name = target.rpartition(":")
    if not path or not name:
        raise click.UsageError("say the program and the function: program.py:f")
    output = output or f"{Path(path).stem}-{name}.html"
    try:
        found, failed = explore_program(path, name, arguments)
        found.save(output)
    except (TapegradError, ImportError) as error:
        raise click.ClickException(str(error)) from error
    except Exception as error:  # the program's
        shorten(error, of_command=True)
        sys.excepthook(type(error), error, error.__traceback__)
        raise SystemExit(1) from None
    if failed is not None:
        click.echo(f"{path} raised {type(failed).__name__}: {failed}", err=True)
    click.echo(f"{output}: open it in a browser")


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
