"""What is asked of whole rows is asked at once, before the loop along them: `source/rows.py`,
`support/rows.py`."""

from __future__ import annotations

import numpy as np
import pytest
from tests.emit.check import assert_agree, compiled
from tests.emit.translation_test import assert_alike, both
from tests.tapes import tape

from tapegrad.backends.cpu import support
from tapegrad.backends.cpu.linking import linked, shared_names
from tapegrad.backends.cpu.machine_code import kernel_function
from tapegrad.backends.cpu.support import blocks, shared_code
from tapegrad.ir.tape import Tape
from tapegrad.pipeline import schedule
from tapegrad.primitives.elementwise import moderate

CALL = "tapegrad_shared_call"
PARAMETERS = {
    "x": ("array", (9, 40), "float64"),
    "z": ("array", (40,), "float32"),
    "v": ("array", (40,), "float64"),
    "n": ("array", (40,), "int64"),
    "found": ("array", (3,), "bool"),
    "s": ("scalar", (), "float64"),
}
KERNEL = """
    fits = True
    for i in range(9):
        fits = fits & all_moderate(x[i], 0, 40, 4.0)
        for j in range(40):
            v[j] += x[i, j]
    found[0] = fits
    found[1] = all_moderate(x, 7, 16, 2.0) & all_moderate(z, 1, min(39, 17), 1024.0)
    found[2] = all_moderate(x, 0, 360, where(s > 0.0, 4.0, 1024.0))
    clear(n)
    clear(z)
    return 0
"""


def test_kernels_do_the_same_by_numbas_own_front_end():
    parameters = list(PARAMETERS.values())
    kernels = both(f"def kernel({', '.join(PARAMETERS)}):{KERNEL}", parameters)
    for seed in range(3):
        assert_alike(kernels, parameters, seed)


# The shape of an input; what is asked about, and its shape; and how, where that is asked at once.
TAPES = {
    "along rows": ("60,40", "", "60,40", "(x[i], 0, 40,"),
    "along short rows": ("60,5", "", "60,5", "(x, 0, 300,"),
    "along parts of rows": (
        "60,40",
        "getitem(%1, index=(Slice(0, 60, 1), Slice(7, 30, 1)))",
        "60,30",
        "(x[i], 7, 30,",
    ),
    "along chunks": ("300003", "", "300003", "(x, 9376 * chunk, min(9376, 300003 - 9376 * chunk),"),
    "of what stands far apart": ("60,40", "transpose(%1, axes=(1, 0))", "40,60", ""),
    "of what is computed": ("60,40", "neg(%1)", "60,40", ""),
    "along few": ("3,2", "", "3,2", "(x, 0, 6,"),
}


def source_of(given: Tape) -> str:
    """The kernels of a tape."""
    return "\n".join(kernel.text for kernel in schedule(given).kernels)


@pytest.mark.every(3)
@pytest.mark.parametrize("what", TAPES)
def test_rows_are_asked_before_the_loop_along_them(what):
    shape, made, asked, question = TAPES[what]
    x = "%8" if made else "%1"
    given = tape(
        f"f8[{shape}]",
        f"""
        {f"%8 = {made} : f8[{asked}]" if made else ""}
        %2 = exp({x}) : f8[{asked}]
        %3 = sum(%2, axes=(0,)) : f8[{asked.partition(",")[2]}]
        %9 = moderate({x}, 1024.0) : b1[{asked}]
        %10 = all(%9, axes={tuple(range(asked.count(",") + 1))}) : b1[]
        guard %10 = True
        out %3
        """,
    )
    source = source_of(given)
    assert (f"all_moderate{question}" in source) if question else "all_moderate" not in source
    rng = np.random.default_rng(0)
    values = rng.choice([1.0, -3.5, 0.0], given.inputs[0].shape)
    assert_agree(given, [values])
    places = {0, values.size - 1, *rng.integers(values.size, size=20)}
    call = compiled(given)
    for k in places:
        other = values.copy()
        other.flat[k] = 2000.0
        holds = "parts" in what and not 7 <= k % 40 < 37
        assert (call(other) is not None) == holds, k


def test_vectors_are_cleared_by_a_call():
    given = tape("f8[30,50]", "%2 = sum(%1, axes=(0,)) : f8[50]\nout %2")
    assert "clear(out)" in source_of(given)
    assert_agree(given, [np.arange(1500.0).reshape(30, 50)])


@pytest.mark.every(2)
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
    for n in (1, 5, 16, 17, 31, 67, 150):
        text = (
            f"def kernel(x, found):\n    found[()] = all_moderate(x, 0, {n}, {float(bound)})\n"
            "    return 0\n"
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
