"""Who imports whom, among the files of the package."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import networkx as nx

import tapegrad

ROOT = Path(tapegrad.__file__).parent
FILES = {str(path.relative_to(ROOT)): path for path in sorted(ROOT.rglob("*.py"))}


def part(file: str) -> str:
    """The folder or top-level module that a file belongs to."""
    return file.partition("/")[0].removesuffix(".py")


def _module(file: str) -> str:
    name = ".".join(["tapegrad", *Path(file).with_suffix("").parts])
    return name.removesuffix(".__init__")


@cache
def names_imported(path: Path) -> set[str]:
    """All modules and names in modules that a file imports, anywhere in it: at its head, in a
    function, or for annotations alone."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


@cache
def graph_of_files() -> nx.DiGraph:
    """An arrow from each file to those that it imports."""
    files = {_module(file): file for file in FILES}
    graph = nx.DiGraph()
    graph.add_nodes_from(FILES)
    for file, path in FILES.items():
        for name in names_imported(path):
            target = files.get(name) or files.get(name.rpartition(".")[0])
            if target is not None and target != file:
                graph.add_edge(file, target)
    return graph


def graph_of_parts() -> nx.DiGraph:
    """An arrow from each folder and each module beside them to those that it imports."""
    graph = nx.DiGraph()
    graph.add_nodes_from(part(file) for file in FILES)
    graph.add_edges_from(
        (part(a), part(b)) for a, b in graph_of_files().edges if part(a) != part(b)
    )
    return graph


def picture() -> str:
    """The parts as a diagram in Mermaid's language. An arrow that others say together is left out,
    and so are programs and the user's surface, which may import everything."""
    graph = graph_of_parts()
    graph.remove_nodes_from([*SURFACE, "__init__", "__main__"])
    arrows = sorted(nx.transitive_reduction(graph).edges)
    lines = [f"    {a} --> {b}" for a, b in arrows]
    return "\n".join(["```mermaid", "graph TD", *lines, "```"])


# What users import, and programs: built on all the rest.
SURFACE = (
    *(
        "api",
        "autograd",
        "dask",
        "debug",
        "derivatives",
        "doctor",
        "elsewhere",
        "estimate",
        "exploring",
        "extending",
        "flat",
        "jax",
        "loops",
        "mapping",
        "methods",
    ),
    *(
        "nn",
        "numpy",
        "optim",
        "packages",
        "pandas",
        "pytensor",
        "random",
        "registering",
        "roots",
        "rules",
        "scipy",
        "series",
        "showing",
    ),
    *("settings", "structure", "testing", "torch", "transforms", "trees", "typing"),
)
