"""Selection by bits is NumPy's, to the last bit."""

import numpy as np
import pytest

from tapegrad.ir.tape import Aval
from tapegrad.primitives.elementwise import where
from tapegrad.primitives.selecting import MIN_SELECTED

N = 128
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, 1.0, -2.0]


def numbers(dtype, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(N, N)).astype(dtype)
    x.flat[rng.integers(0, N * N, 500)] = rng.choice(SPECIAL, 500)
    return x


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("change", ["same", "row", "column", "turned", "back", "number", "zero"])
def test_it_is_numpys(dtype, change):
    assert N * N >= MIN_SELECTED
    x, y = numbers(dtype, 0), numbers(dtype, 1)
    c = numbers(np.float64, 2) > 0.3
    other = {
        "same": y,
        "row": y[0],
        "column": y[:, :1],
        "turned": y.T,
        "back": y[::-1, ::-1],
        "number": dtype(-0.0),
        "zero": dtype(0.0),
    }[change]
    for cond in (c, c.T, c[0], c[:, :1]):
        for xs in ((cond, x, other), (cond, other, x)):
            function = where.for_types(*[Aval(v.shape, v.dtype) for v in xs])
            assert function is not np.where
            found, expected = function(*xs), np.where(*xs)
            assert found.shape == expected.shape and found.dtype == expected.dtype
            assert found.tobytes() == expected.tobytes()
            assert found.base is None and not any(np.shares_memory(found, v) for v in xs)


def test_other_types_are_left_to_numpy():
    c = Aval((N, N), np.dtype(bool))
    for dtype in (np.int64, np.complex128, bool):
        x = Aval((N, N), np.dtype(dtype))
        assert where.for_types(c, x, x) is np.where
    few = Aval((3,), np.dtype(float))
    assert where.for_types(Aval((3,), np.dtype(bool)), few, few) is np.where
