"""Where machine code looks into NumPy's arrays, held against what NumPy says of them."""

from __future__ import annotations

import struct
import subprocess
import sys

import numpy as np
import pytest

from tapegrad.backends.cpu import layout
from tapegrad.backends.cpu.layout import ARRAY_FIELDS, DTYPE_FIELDS, layout_fault


@pytest.fixture(autouse=True)
def anew():
    """A fault is looked for once in a process."""
    layout_fault.cache_clear()
    yield
    layout_fault.cache_clear()


def test_here_everything_is_where_it_should_be():
    assert layout_fault() == ""


def test_neither_numba_nor_llvm_is_needed():
    program = """
import sys
from tapegrad.backends.cpu.layout import layout_fault
assert layout_fault() == ""
print(*{"numba", "llvmlite", "scipy"}.intersection(sys.modules))
"""
    command = [sys.executable, "-c", program]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "\n"


WRONG = [
    *[(ARRAY_FIELDS, name, at) for name in ARRAY_FIELDS for at in range(0, 104, 4)],
    *[(DTYPE_FIELDS, name, at) for name in DTYPE_FIELDS for at in range(0, 200)],
]


def test_a_field_in_any_other_place_is_noticed(monkeypatch):
    """And nothing is read that might not be there: the process goes on."""
    for fields, name, at in WRONG:
        right = fields[name]
        with monkeypatch.context() as m:
            m.setitem(fields, name, at)
            layout_fault.cache_clear()
            assert bool(layout_fault()) == (at != right), (name, at)
            if at != right:
                shown = {"byteorder": "order of bytes"}.get(name, name)
                assert shown in layout_fault() and np.__version__ in layout_fault()


def test_fields_that_have_changed_places_are_noticed(monkeypatch):
    for one in ARRAY_FIELDS:
        for other in ARRAY_FIELDS:
            if one != other:
                with monkeypatch.context() as m:
                    places = ARRAY_FIELDS[one], ARRAY_FIELDS[other]
                    m.setitem(ARRAY_FIELDS, one, places[1])
                    m.setitem(ARRAY_FIELDS, other, places[0])
                    layout_fault.cache_clear()
                    assert layout_fault()


@pytest.mark.parametrize(("name", "value"), [("ALIGNED", 0x0200), ("SWAPPED", "<")])
def test_other_constants_are_noticed(name, value, monkeypatch):
    monkeypatch.setattr(layout, name, value)
    assert "doesn't have" in layout_fault()


def test_another_python_or_processor(monkeypatch):
    with monkeypatch.context() as m:
        m.setattr(sys, "byteorder", "big")
        assert "highest byte" in layout_fault()
    layout_fault.cache_clear()
    with monkeypatch.context() as m:
        m.setattr(struct, "calcsize", lambda kind: 4)
        assert "CPython" in layout_fault()


def test_it_is_looked_for_once(monkeypatch):
    layout_fault()
    monkeypatch.setitem(ARRAY_FIELDS, "data", 32)
    assert layout_fault() == ""
