"""Python's integers beside small ones"""

from __future__ import annotations

import numpy as np
import pytest

from tapegrad import jit
from tapegrad.errors import UnsupportedError

BYTES = np.array([1, 250], np.uint8)


@pytest.mark.parametrize(
    "f",
    [
        lambda k: BYTES + k,
        lambda k: k | np.uint8(3),
        lambda k: BYTES * (k + 1),
        lambda k: np.minimum(BYTES, k),
        lambda k: k > BYTES,
        lambda k: k == BYTES,
        lambda k: np.array([1, 2], np.uint64) + k,
        lambda k: np.array([1, 2], np.uint64) >= k,
        lambda k: BYTES // max(k, 1),
        lambda k: np.int8(3) & k,
    ],
)
def test_integers_that_do_not_fit(f):
    """an integer argument meets an array of small integers that don't hold it -> NumPy's
    OverflowError, also at a later call; comparisons as NumPy does them"""
    df = jit(f, compile="never")
    for k in (3, 300, -1, 3, 70000, 2):
        try:
            wanted = f(k)
        except OverflowError:
            with pytest.raises(OverflowError, match="out of bounds"):
                df(k)
        else:
            found = df(k)
            assert found.dtype == wanted.dtype
            np.testing.assert_array_equal(found, wanted)


def test_one_element_is_no_index():
    """a plain array is indexed with a traced array of one integer -> guarded; a boolean -> error"""
    table = np.arange(10.0)
    for f, x in (
        (lambda x: table[np.argmax(x, keepdims=True)], np.array([1.0, 2.0])),
        (lambda x: table[np.flatnonzero(x > 1)], np.array([1.0, 2.0])),
        (lambda x: table[x], np.array([2])),
    ):
        np.testing.assert_array_equal(jit(f, compile="never")(x), f(x), strict=True)
    with pytest.raises(UnsupportedError, match="indexed with a traced boolean"):
        jit(lambda x: table[x > 1], compile="never")(2.0)


def test_choices_wrap_around():
    """`np.where(m, np.int8(1), k)` of an integer that int8 doesn't hold -> it wraps around, as
    NumPy casts it"""
    x = np.array([0.5, 2.0])
    for f in (
        lambda x, k: np.where(x > 1, np.int8(1), k) * x,
        lambda x, k: np.where(x > 1, k, np.ones(2, np.uint8)) * x,
        lambda x, k: np.where(x > 1, np.int8(1), 300) * x,
        lambda x, k: np.where(x > 1, -1, np.uint8(1)) * x,
    ):
        for k in (3, 300, -1, 2**40):
            for how in ("never", "always"):
                np.testing.assert_array_equal(jit(f, compile=how)(x, k), f(x, k), strict=True)
