"""Kernels of NumPy's benchmarks, text unchanged: what they return and their derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.answers.kernels import KERNELS

from tapegrad import value_and_grad


def total(f: Callable[..., Any]) -> Callable[..., Any]:
    """A number of all that a kernel returns."""

    def number(*args: Any) -> Any:
        found = f(*args)
        parts = found if isinstance(found, tuple) else (found,)
        return sum(np.sum(np.sin(part) * (1.0 + k)) for k, part in enumerate(parts))

    return number


@pytest.mark.every(8)
@pytest.mark.parametrize(("f", "args"), KERNELS, ids=[f.__name__ for f, _ in KERNELS])
def test_a_kernel(f, args):
    number = total(f)
    real = [k for k, x in enumerate(args) if np.asarray(x).dtype.kind == "f"]
    derived = value_and_grad(number, argnums=tuple(real), compile="never")
    for scale in (1.0, 1.05):
        given = tuple(x * scale if k in real else x for k, x in enumerate(args))
        before = [np.copy(x) for x in given]
        value, slopes = derived(*given)
        assert value == pytest.approx(number(*given), rel=1e-12)
        assert all(np.array_equal(x, y) for x, y in zip(given, before, strict=True))
        rng, h = np.random.default_rng(1), 1e-6
        along = {k: rng.standard_normal(np.shape(given[k])) for k in real}
        up, down = (
            number(*[x + s * h * along[k] if k in along else x for k, x in enumerate(given)])
            for s in (1, -1)
        )
        found = sum(np.sum(along[k] * slope) for k, slope in zip(real, slopes, strict=True))
        assert found == pytest.approx((up - down) / (2 * h), rel=1e-5, abs=1e-7)
