"""The names that the support of machine code defines: no variable of a kernel may have one."""

from __future__ import annotations

import os
from functools import cache
from importlib.machinery import SourceFileLoader
from opcode import opmap
from typing import Any

# Further files that are part of a saved function, besides `support`.
CARRIED = ("layout", "linking", "loading", "threads")


@cache
def support_words() -> frozenset[str]:
    """The names that the files of `cpu.support` define or import. Their code isn't run, so that
    reading a tape's source needs no numba."""
    home = os.path.dirname(__file__)
    folder = os.path.join(home, "support")
    files = [os.path.join(folder, file) for file in os.listdir(folder)]
    files += [os.path.join(home, f"{name}.py") for name in CARRIED]
    words: set[str] = set()
    for path in files:
        if path.endswith(".py") and not path.endswith("__init__.py"):
            words |= _defined(SourceFileLoader(path, path).get_code(path))
    return frozenset(words)


def _defined(code: Any) -> set[str]:
    """The names that a module's statements bind, read from its bytecode: to load the bytecode that
    imports keep on disk is thirty times as fast as to parse the source."""
    words, number = set(), 0
    for operation, argument in zip(code.co_code[::2], code.co_code[1::2], strict=True):
        number = number << 8 | argument
        if operation == opmap["STORE_NAME"]:
            words.add(code.co_names[number])
        if operation != opmap["EXTENDED_ARG"]:
            number = 0
    return words
