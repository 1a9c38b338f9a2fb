"""The page about older systems names tests and functions that are there."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.ir.tape import Tape

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "seeds.md").read_text(encoding="utf-8")
ROWS = [line for line in TEXT.splitlines() if line.startswith("| ") and "there" not in line[:8]]


def test_each_test_that_it_names_is_there():
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w*)(?:\[([^]]*)\])?`", TEXT)
    assert len(named) > 150
    for file, name, case in named:
        text = (ROOT / file).read_text(encoding="utf-8")
        assert f"def {name or 'test_'}" in text, (file, name)
        assert not case or f'    "{case}": ' in text, (file, case)


def test_each_row_of_a_feature_has_a_test():
    features = TEXT.partition("## Their examples")[0]
    rows = [line for line in features.splitlines() if line in ROWS]
    assert [row for row in rows if row.count(" | ") != 2 or "`tests/" not in row] == []


@pytest.mark.parametrize("package", ["tapegrad", "np", "scipy"])
def test_each_name_that_it_has_is_there(package):
    for name in set(re.findall(rf"`({package}(?:\.\w+)+)`", TEXT)):
        first, *parts = name.split(".")
        found = np if first == "np" else importlib.import_module(first)
        for k, part in enumerate(parts):
            if not hasattr(found, part):
                importlib.import_module(".".join([first, *parts[: k + 1]]))
            found = getattr(found, part)


def test_each_method_of_tapes_is_there():
    for name in re.findall(r"`Tape\.(\w+)", TEXT):
        assert hasattr(Tape, name)


def test_a_cotangent_is_looked_at():
    """lamp's `Debug`: an identity whose rule is handed the cotangent, at each call."""
    seen = []

    @tg.primitive
    def watched(x):
        return x * 1.0

    @tg.defvjp(watched)
    def _(ct, out, x):
        seen.append((bool(np.isnan(np.sum(ct))), float(np.max(ct))))
        return (ct,)

    slope = tg.grad(lambda x: np.sum(watched(np.sin(x)) ** 2))
    x = np.array([0.5, 1.5])
    for _ in range(3):
        np.testing.assert_allclose(slope(x), np.sin(2 * x))
    assert seen[-1] == (False, 2 * np.sin(1.5))
    assert len(seen) >= 3
