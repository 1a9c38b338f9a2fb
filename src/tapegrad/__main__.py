"""The command line: `tapegrad` or `python -m tapegrad`."""

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
