"""The architecture, as far as a test can hold it: who imports whom, and how large files grow."""

from __future__ import annotations

import ast
import builtins
import importlib
from collections import Counter
from pathlib import Path

import networkx as nx
from tests.imports import (
    FILES,
    SURFACE,
    graph_of_files,
    graph_of_parts,
    names_imported,
    part,
    picture,
)

import tapegrad
from tapegrad.primitives import elementwise, primitives
from tapegrad.primitives.base import Elementwise

# What each part may import. A stage knows the representations, the primitives, and no other stage.
FOUNDATION = {"errors", "core", "ir", "primitives"}
STAGES = ("tracing", "differentiate", "sparsity", "optimize", "schedule", "backends")
BELOW = {
    "errors": set(),
    "core": {"errors"},
    "ir": {"errors", "core"},
    "primitives": {"errors", "core", "ir"},
    **dict.fromkeys(STAGES, FOUNDATION),
    "observe": FOUNDATION,
    "tracing": {*FOUNDATION, "observe"},  # which watches the run
    "checking": {*FOUNDATION, "backends"},
    "pipeline": {*FOUNDATION, "observe", *STAGES, "checking"},
    "compiler": {*FOUNDATION, "observe", *STAGES, "pipeline"},
    "insight": {*FOUNDATION, "backends", "schedule", "pipeline"},
    "runtime": {*FOUNDATION, "observe", *STAGES, "checking", "pipeline", "compiler", "insight"},
}


def test_imports_go_down():
    graph = graph_of_parts()
    beyond = {name: set(graph[name]) - below for name, below in BELOW.items()}
    assert {name: parts for name, parts in beyond.items() if parts} == {}


LIBRARIES = (
    "packages",
    "pandas",
    "scipy",
)  # whose functions are answered by what others could have written
PUBLIC = ("errors", "extending")  # beside what `import tapegrad` has


def test_libraries_stand_on_the_public_interface():
    """What answers SciPy's and pandas' functions imports nothing that another library couldn't."""
    private = {
        (file, name)
        for file, path in FILES.items()
        if part(file) in LIBRARIES
        for name in names_imported(path)
        if name.startswith("tapegrad.")
        and name.split(".")[1] not in (part(file), *PUBLIC, *tapegrad.__all__)
    }
    assert private == set()


def test_every_name_of_the_interface_is_explained():
    """By its docstring. Those of `declaring.py` are names of the folder."""
    stems = {Path(file).stem for file in FILES if part(file) == "extending"} - {"declaring"}
    names = [f"tapegrad.extending.{stem}".removesuffix(".__init__") for stem in stems]
    modules = map(importlib.import_module, names)
    bare = {
        f"{module.__name__}.{name}"
        for module in modules
        for name, value in vars(module).items()
        if not name.startswith("_") and callable(value) and not value.__doc__
    }
    assert bare == set()


def test_no_file_imports_what_imports_it():
    """Nor by way of others, nor in a function, nor for annotations."""
    cycles = [sorted(files) for files in nx.strongly_connected_components(graph_of_files())]
    assert [files for files in cycles if len(files) > 1] == []


def test_folders_of_tracing_import_each_other_one_way():
    """Of any two of its folders, and of `observe`'s, one imports the other, or neither: not even by
    way of others. Each is small enough to be known."""
    folder = {
        file: file.rpartition("/")[0] for file in FILES if part(file) in ("observe", "tracing")
    }
    arrows = [(folder.get(a), folder.get(b)) for a, b in graph_of_files().edges]
    graph = nx.DiGraph((a, b) for a, b in arrows if a and b and a != b)
    circles = [sorted(names) for names in nx.strongly_connected_components(graph)]
    assert [names for names in circles if len(names) > 1] == []
    sizes = Counter(name for file, name in folder.items() if not file.endswith("__init__.py"))
    assert {name: size for name, size in sizes.items() if size > 14} == {}


def test_a_target_is_known_by_its_object_alone():
    """Outside its folder one file imports from that: the one that says which target there is."""
    folders = {Path(file).parent for file in FILES if file.endswith("/target.py")}
    places = [folder for folder in folders if folder.name != "backends"]
    assert places
    inside = tuple(f"tapegrad.{'.'.join(folder.parts)}." for folder in places)
    naming = {
        file
        for file, path in FILES.items()
        if not any(folder in Path(file).parents for folder in places)
        and any(f"{name}.".startswith(inside) for name in names_imported(path))
    }
    assert naming == {"backends/host.py"}


def test_the_picture_of_the_imports_is_right(request):
    page = Path(__file__).parents[1] / "docs" / "design.md"
    text = page.read_text(encoding="utf-8")
    start = text.index("```mermaid")
    end = text.index("```", start + 3) + 3
    if request.config.getoption("--update-golden"):
        page.write_text(text[:start] + picture() + text[end:], encoding="utf-8")
    else:
        assert text[start:end] == picture()


# Who asks which primitive a call is of: rewrites, which are about certain ones, also those of parts
# of arrays that become windows, and those who leave a user's function where it is.
ASKS = {
    "optimize/rewrites/arithmetic.py",
    "optimize/rewrites/contractions.py",
    "optimize/rewrites/diagonals.py",
    "optimize/rewrites/ranges.py",
    "optimize/rewrites/systems.py",
    "optimize/rewrites/views.py",
    "optimize/entries.py",
    "optimize/repetition.py",
    "optimize/reroll.py",
    "optimize/lists.py",
    "optimize/scalar_replacement.py",
    "optimize/extents.py",  # what each primitive makes of longer axes
    "optimize/growing_arrays.py",
    "optimize/roots.py",
    "optimize/shifts.py",
    "optimize/softplus.py",
    "optimize/stops.py",
    "schedule/sums.py",  # sums are calls of `add`
    "schedule/lowering.py",  # so are those of integers
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
    assert set(map(part, FILES)) == {*BELOW, *SURFACE, "__main__", "__init__"}


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
    assert visible - {"map", "range"} == set(tapegrad.__all__)


def test_a_star_hides_no_builtin():
    """`from tapegrad import *` leaves Python's `map` and `range`; tapegrad.map is an attribute."""
    assert not set(tapegrad.__all__) & set(dir(builtins))
    assert callable(tapegrad.map) and callable(tapegrad.range)


def test_every_public_name_is_explained():
    assert all(getattr(tapegrad, name).__doc__ for name in tapegrad.__all__)
