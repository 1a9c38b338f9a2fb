"""What loops do of whole rows is a call, and gives the same: `support/rows.py`."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest
from tests.emit.translation_test import assert_alike, both

from tapegrad.backends.cpu import support
from tapegrad.backends.cpu.linking import linked, shared_names
from tapegrad.backends.cpu.machine_code import kernel_function
from tapegrad.backends.cpu.support import blocks, shared_code
from tapegrad.primitives.elementwise import moderate

CALL = "tapegrad_shared_call"
PARAMETERS = {
    "x": ("array", (9, 40), "float64"),
    "y": ("array", (9, 40), "float64"),
    "v": ("array", (40,), "float64"),
    "n": ("array", (40,), "int64"),
    "found": ("array", (3,), "bool"),
    "s": ("scalar", (), "float64"),
}
# What a loop does, and whether it asks a function about rows.
LOOPS = {
    "beside a sum": (
        True,
        """
        fits = True
        for i in range(9):
            for j in range(40):
                v[j] += x[i, j]
                fits = fits & (moderate(x[i, j], 4.0))
        found[0] = fits
        """,
    ),
    "alone, of a part, under a name": (
        True,
        """
        fits = True
        for i in range(9):
            for j in range(rolled(30)):
                t = x[8 - i, j + 5]
                ok = moderate(t, 8.0)
                fits = fits & ok
        found[0] = fits
        """,
    ),
    "of what the loop writes": (
        False,
        """
        fits = True
        for i in range(9):
            for j in range(40):
                x[i, j] = x[i, j] * 3.0
                fits = fits & (moderate(x[i, j], 4.0))
        found[0] = fits
        """,
    ),
    "of what stands far apart": (
        False,
        """
        fits = True
        for i in range(40):
            for j in range(9):
                fits = fits & (moderate(x[j, i], 16.0))
        found[0] = fits
        """,
    ),
    "of what is read again": (
        False,
        """
        fits = True
        for j in range(40):
            fits = fits & (moderate(x[0, j], 2.0))
            if fits:
                v[j] = 1.0
        found[0] = fits
        """,
    ),
    "of too few, of any number, and of what is computed": (
        False,
        """
        fits = True
        for j in range(9):
            fits = fits & (moderate(x[0, j], 2.0))
        for i in range(9):
            for j in range(i, 40):
                fits = fits & (moderate(x[i, j], 64.0))
        for j in range(40):
            fits = fits & (moderate(x[1, j] * s, 64.0))
        found[0] = fits
        """,
    ),
    "rows that are filled and copied": (
        False,
        """
        for i in range(9):
            for j in range(40):
                x[i, j] = 0.0
        for i in range(9):
            for j in range(i, 40):
                y[i, j] = v[j - i]
        for j in range(40):
            n[j] = 0
        """,
    ),
    "rows that are other numbers, or moved in themselves": (
        False,
        """
        for j in range(40):
            x[0, j] = -0.0
        for j in range(39):
            v[j + 1] = v[j]
        for j in range(40):
            y[0, j] = n[j]
        """,
    ),
}


@pytest.mark.parametrize("what", LOOPS)
def test_loops_give_the_same(what):
    asks, text = LOOPS[what]
    body = textwrap.indent(textwrap.dedent(text).strip(), "    ")
    text = f"def kernel({', '.join(PARAMETERS)}):\n{body}\n    return 0\n"
    parameters = list(PARAMETERS.values())
    kernels = both(text, parameters)
    for seed in range(3):
        assert_alike(kernels, parameters, seed)
    code = support.object_code(
        kernel_function(text, "kernel", dict(support.namespace())), parameters
    )
    assert any("moderate" in name for name in shared_names(code)) == asks


@pytest.mark.parametrize("vectors", [(64, 32), (32, 16), (16, 32)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("bound", [2.0, 2.0**10, 2.0**60])
def test_rows_are_asked_exactly(vectors, dtype, bound, monkeypatch):
    """Each place of rows of several lengths has each kind of number in turn."""
    info, bound = np.finfo(dtype), dtype(bound)
    ends = [bound, 1 / bound, *(np.nextafter(x, dtype(1)) for x in (bound, 1 / bound))]
    ends += [np.nextafter(bound, dtype(np.inf)), np.nextafter(1 / bound, dtype(0))]
    ends += [0, 1, 1.5, info.max, info.tiny, info.smallest_subnormal, np.inf, np.nan]
    values = np.array([*ends, *(-x for x in ends)], dtype)
    monkeypatch.setattr(blocks, "registers", lambda: vectors)
    symbol = f"tapegrad_shared_moderate_{'d' if dtype == np.float64 else 's'}"
    shared = {symbol: shared_code(symbol), CALL: shared_code(CALL)}
    rng = np.random.default_rng(0)
    for n in (16, 17, 31, 67, 150):
        text = (
            f"def kernel(x, found):\n    fits = True\n    for j in range({n}):\n"
            f"        fits = fits & (moderate(x[j], {float(bound)}))\n"
            "    found[()] = fits\n    return 0\n"
        )
        function = kernel_function(text, "kernel", dict(support.namespace()))
        kinds = [("array", (n,), dtype), ("array", (), "bool")]
        code = support.object_code(function, kinds)
        assert shared_names(code) == shared.keys(), n
        kernel = linked("kernel", code, shared)
        for near in (rng.choice([1, -1.25, bound / 2], n), rng.choice([0, -0.0, 1, bound], n)):
            for k, value in enumerate(values):
                x, found = near.astype(dtype), np.array(False)
                x[(7 * k) % n] = value
                kernel(x, found)
                assert found == moderate.evaluate(x, bound).all(), (n, value)
