"""Numbers of half precision in kernels: the bits that NumPy and ml_dtypes have."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tapegrad.backends.cpu import support
from tapegrad.backends.cpu.machine_code import kernel_function
from tapegrad.backends.cpu.support import halves, linked_here

HALVES = [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)]
ALL = np.arange(2**16, dtype=np.uint16)


@pytest.fixture(params=["as the processor does it", "by integers"], autouse=True)
def _way(request, monkeypatch):
    if request.param == "by integers":
        monkeypatch.setattr(halves, "_CONVERTS", False)


def converted(function: str, x: np.ndarray, dtype: str) -> np.ndarray:
    """What a loop of this function makes of all elements."""
    text = (
        f"def loop(x, y):\n    for i in range({x.size}):\n"
        f"        y[i] = {function}(x[i])\n    return 0\n"
    )
    names: dict[str, Any] = {**support.namespace(), "__name__": "loops"}
    out = np.zeros(x.shape, dtype)
    types = [("array", x.shape, x.dtype), ("array", x.shape, out.dtype)]
    code = support.object_code(kernel_function(text, "loop", names), types)
    assert linked_here("loop", code)(x, out) == 0
    return out


def is_quiet(bits: np.ndarray) -> np.ndarray:
    """Of float16 what isn't a signalling NaN, which processors make quiet."""
    return (bits & 0x7E00 != 0x7C00) | (bits & 0x7FFF == 0x7C00)


@pytest.mark.parametrize("half", HALVES, ids=str)
def test_each_number_is_read(half):
    found, expected = converted(f"from_{half.name}", ALL, "f4"), ALL.view(half).astype("f4")
    same = is_quiet(ALL) if half == np.float16 else np.full(ALL.shape, True)
    assert np.array_equal(found.view("u4")[same], expected.view("u4")[same])
    assert np.array_equal(found, expected, equal_nan=True)


@pytest.mark.every(2)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("half", HALVES, ids=str)
def test_numbers_are_rounded_to_the_nearest(half, dtype):
    """Each number of half precision, what lies between two, and their neighbours; numbers beyond
    the largest, below the smallest, and of any bits."""
    rng = np.random.default_rng(0)
    with np.errstate(invalid="ignore"):  # of signalling NaN
        known = ALL.view(half).astype(dtype)
    known = np.sort(known[np.isfinite(known)])
    middles = ((known[1:].astype("f8") + known[:-1].astype("f8")) / 2).astype(dtype)
    far = np.array([65519.0, 65520, 65535, 65536, 1e5, 3e38, 3.3895e38, 3.396e38, np.inf], dtype)
    base = np.concatenate([known, middles, far, -far])
    infinite = base.dtype.type(np.inf)
    width = 8 * base.itemsize
    bits = rng.integers(0, 2**width - 1, 2**18, f"u{base.itemsize}", endpoint=True)
    scaled = np.ldexp(1 + rng.random(2**18), rng.integers(-30, 20, 2**18)).astype(dtype)
    around = [np.nextafter(base, infinite), np.nextafter(base, -infinite)]
    x = np.concatenate([base, *around, bits.view(dtype), scaled])
    with np.errstate(all="ignore"):
        expected = x.astype(half)
    found = converted(f"to_{half.name}", x, "u2")
    there = ~np.isnan(x)
    assert np.array_equal(found[there], expected.view("u2")[there])
    assert np.isnan(found[~there].view(half)).all()
    assert np.array_equal(found[~there] >> 15, expected.view("u2")[~there] >> 15)
