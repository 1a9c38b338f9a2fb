"""Whose code a file holds: Python's own library's, an installed package's, or the program's.

A package is installed where a folder is called so, or where its record lies beside it in a folder
that Python searches, as `pip install --target` leaves it:

    .../site-packages/numpy/linalg/_linalg.py                      -->  .../site-packages/numpy
    app/numpy/linalg/_linalg.py, app/numpy-2.4.0.dist-info/RECORD  -->  app/numpy
    app/model.py                                                   -->  none: the program's
"""

from __future__ import annotations

import os
import sys
import sysconfig
from functools import cache, lru_cache
from types import FunctionType

PYTHONS = sysconfig.get_paths()["stdlib"] + os.sep


@lru_cache(maxsize=8192)
def package_of(file: str) -> str:
    """The folder, or the file, of the installed package that a file is in; empty if in none."""
    parts = file.split(os.sep)
    for k, part in enumerate(parts[:-1]):
        if part.endswith("-packages"):
            return os.sep.join(parts[: k + 2])
    for k in range(1, len(parts)):
        folder = os.sep.join(parts[:k])
        if folder in sys.path and parts[k] in _recorded(folder):
            return os.sep.join(parts[: k + 1])
    return ""


def is_installed(file: str) -> bool:
    """Whether a file is an installed package's."""
    return bool(package_of(file))


def is_pythons(file: str) -> bool:
    """Whether a file is of Python's own library."""
    return file.startswith(PYTHONS) and not is_installed(file)


@cache
def _recorded(folder: str) -> frozenset[str]:
    """Names in a folder that the records of installed packages have."""
    names: set[str] = set()
    try:
        records = [name for name in os.listdir(folder or os.sep) if name.endswith(".dist-info")]
    except OSError:  # an archive, or nothing any more
        return frozenset()
    for name in records:
        try:
            with open(os.path.join(folder, name, "RECORD"), encoding="utf-8") as lines:
                names.update(line.partition("/")[0].partition(",")[0] for line in lines)
        except OSError:
            continue
    return frozenset(names)


def file_of_function(f: FunctionType) -> str:
    """The file of a function's code; of one that a text was run for, as some decorators do, that of
    the module that it says it is of."""
    file = f.__code__.co_filename
    if file.startswith("<"):
        file = str(getattr(sys.modules.get(f.__module__), "__file__", None) or file)
    return file
