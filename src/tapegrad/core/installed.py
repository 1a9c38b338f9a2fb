"""The owner of a file: Python's standard library, an installed package, or the user's program.

A package is installed if a folder above it is named `...-packages`, or if its record is beside it
in a folder on Python's path, as `pip install --target` leaves it:

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
    """The folder or file of the installed package that contains a file, or ""."""
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
    """Whether a file belongs to an installed package."""
    return bool(package_of(file))


def is_pythons(file: str) -> bool:
    """Whether a file belongs to Python's standard library."""
    return file.startswith(PYTHONS) and not is_installed(file)


@cache
def _recorded(folder: str) -> frozenset[str]:
    """The names in a folder that belong to installed packages, according to their records."""
    names: set[str] = set()
    try:
        records = [name for name in os.listdir(folder or os.sep) if name.endswith(".dist-info")]
    except OSError:  # an archive, or a folder that is gone
        return frozenset()
    for name in records:
        try:
            with open(os.path.join(folder, name, "RECORD"), encoding="utf-8") as lines:
                names.update(line.partition("/")[0].partition(",")[0] for line in lines)
        except OSError:
            continue
    return frozenset(names)


def file_of_function(f: FunctionType) -> str:
    """The file of a function's code. For code generated from text, as by some decorators, the file
    of the function's module."""
    file = f.__code__.co_filename
    if file.startswith("<"):
        file = str(getattr(sys.modules.get(f.__module__), "__file__", None) or file)
    return file
