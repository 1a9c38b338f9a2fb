"""The functions that the emitted loops call: fixed-shape arrays, scalars, BLAS and LAPACK, for
numba.

These files are also the tail of every saved gradient function, so they import NumPy, numba and
SciPy (whose BLAS and LAPACK numba uses too), and of tapegrad only what is saved with them.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

from tapegrad.backends.cpu import layout, linking, loading, threads
from tapegrad.backends.cpu.support import (
    arrays,
    bessels,
    blas,
    blocks,
    compiling,
    complexes,
    composed,
    copies,
    correlation,
    entry,
    functions,
    gammas,
    halves,
    integrals,
    lapack,
    operators,
    outline,
    packed,
    regions,
    rows,
    scalars,
    searching,
    shared,
    syntax,
    translation,
    unrolled,
)
from tapegrad.backends.cpu.support.compiling import (
    compiled,
    completed,
    linked_here,
    object_code,
    shared_code,
)

MODULES = (
    *(layout, loading, threads, linking, shared, arrays, regions, scalars, unrolled),
    *(blocks, rows, copies, packed, correlation, searching),
    *(blas, lapack, operators, outline, syntax, functions, translation),
    *(composed, gammas, integrals, bessels),
    halves,
    *(complexes, entry, compiling),
)


def namespace() -> dict[str, Any]:
    """The globals of emitted functions."""
    kernels = (rows, correlation, searching, blas, lapack)
    functions = (scalars, halves, composed, gammas, integrals, bessels)
    modules = (arrays, complexes, *functions, *kernels, compiling, threads)
    found = {name: x for module in modules for name, x in vars(module).items()}
    return {name: x for name, x in found.items() if not name.startswith("__")}  # the modules' own


def text() -> str:
    """The source of all modules, as one file without tapegrad."""
    parts = []
    for module in MODULES:
        body = inspect.getsource(module).split('"""', 2)[2]
        body = re.sub(r"from (__future__|tapegrad\S*) import (\([^)]*\)|[^\n]*)\n", "", body)
        parts.append(body.strip())
    return "\n\n\n".join(parts)


__all__ = [
    "compiled",
    "completed",
    "linked_here",
    "namespace",
    "object_code",
    "shared_code",
    "text",
]
