"""The architecture, as far as a test can hold it: who imports whom, and how large files grow."""

from __future__ import annotations

import ast
from pathlib import Path

import tapegrad

ROOT = Path(tapegrad.__file__).parent
FILES = {str(path.relative_to(ROOT)): path for path in sorted(ROOT.rglob("*.py"))}

# What every stage builds on, and the stages in order. Whatever isn't here may import them all.
FOUNDATION = {"errors", "ir", "primitives", "statics", "trees", "arrays", "request"}
FOUNDATION |= {"locks", "late", "handlers"}
STAGES = ("tracing", "differentiate", "optimize", "schedule", "emit")

# The foundation in itself: each part may import those named.
BELOW = {
    "errors": set(),
    "ir": {"errors", "locks", "handlers"},
    "primitives": {"errors", "ir", "handlers"},
    "statics": set(),
    "locks": set(),
    "late": set(),
    "handlers": set(),
    "trees": {"errors", "ir", "statics", "locks"},
    "arrays": set(),
    "request": {"errors", "ir", "statics", "trees", "arrays", "locks"},
}


def part(file: str) -> str:
    """The folder or top-level module that a file belongs to."""
    return file.partition("/")[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """The parts of tapegrad that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("tapegrad.")}
    return found


def test_a_stage_imports_the_foundation_and_itself():
    beyond = {
        file: imported(path) - FOUNDATION - {part(file)}
        for file, path in FILES.items()
        if part(file) in STAGES
    }
    assert {file: parts for file, parts in beyond.items() if parts} == {}


def test_the_foundation_knows_no_stage():
    beyond = {
        file: imported(path) - BELOW[part(file)] - {part(file)}
        for file, path in FILES.items()
        if part(file) in FOUNDATION
    }
    assert {file: parts for file, parts in beyond.items() if parts} == {}


def test_every_part_has_its_place():
    """A new folder is a stage, or it is on the way from the pipeline to the user."""
    above = {
        "pipeline",
        "runtime",
        "compiler",
        "log",
        "api",
        "methods",
        "linalg",
        "numpy",
        "random",
        "testing",
        "typing",
        "demo",
    }
    assert {part(file) for file in FILES} <= {*FOUNDATION, *STAGES, *above, "__main__", "__init__"}


def test_files_are_short_enough_to_be_read():
    lengths = {file: len(path.read_text().splitlines()) for file, path in FILES.items()}
    assert {file: length for file, length in lengths.items() if length > 500} == {}


def test_nothing_is_imported_by_star():
    """Where a name comes from is said where it is used."""
    assert [file for file, path in FILES.items() if "import *" in path.read_text()] == []


def test_the_public_names_are_exactly_those_that_are_listed():
    visible = {
        name
        for name, value in vars(tapegrad).items()
        if not name.startswith("_") and not isinstance(value, type(ast))
    }
    assert visible == set(tapegrad.__all__)


def test_every_public_name_is_explained():
    assert all(getattr(tapegrad, name).__doc__ for name in tapegrad.__all__)
