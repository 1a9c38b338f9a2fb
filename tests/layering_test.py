"""The architecture, as far as a test can hold it: who imports whom, and how large files grow."""

from __future__ import annotations

import ast
from pathlib import Path

import tapegrad
from tapegrad.primitives import elementwise, primitives
from tapegrad.primitives.base import Elementwise

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


# Who asks which primitive a call is of: rewrites, which are about certain ones, and those who leave
# a user's function where it is.
ASKS = {
    "optimize/rewrites/arithmetic.py",
    "optimize/rewrites/views.py",
    "optimize/roots.py",
    "optimize/stops.py",
    "schedule/sums.py",  # sums are calls of `add`
    "compiler/packed.py",
    "compiler/executable.py",
    "compiler/key.py",
}
ASKING = (*STAGES[1:], "runtime", "compiler")


def asked_for(path: Path) -> set[str]:
    """The primitives and classes of them that a file compares with, or has a table of."""
    tree = ast.parse(path.read_text())
    names = {p.__name__ for p in primitives().values() if isinstance(p, type)}
    names |= {name for name, p in vars(elementwise).items() if isinstance(p, Elementwise)}
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("tapegrad.primitives")
        for alias in node.names
    }
    found = set()

    def note(*nodes: ast.AST | None) -> None:
        for node in nodes:
            if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
                note(*node.elts)
            elif isinstance(node, ast.Name) and node.id in imported & names:
                found.add(node.id)
            elif isinstance(node, ast.Attribute) and getattr(node.value, "id", "") in imported:
                found.update(names & {node.attr})

    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
            note(node.args[1])
        elif isinstance(node, ast.Compare):
            note(node.left, *node.comparators)
        elif isinstance(node, ast.Dict):
            note(*node.keys)
        elif isinstance(node, ast.Assign):
            note(node.value)  # classes to be asked for
    return found


def test_what_a_primitive_is_like_is_declared_and_not_asked():
    """Facts about primitives stand in their declarations: a new one needs no other place."""
    asked = {
        file: asked_for(path)
        for file, path in FILES.items()
        if part(file) in ASKING and file not in ASKS
    }
    assert {file: names for file, names in asked.items() if names} == {}
    assert all(asked_for(FILES[file]) for file in ASKS), "no longer an exception"


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
