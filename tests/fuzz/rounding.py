"""How far two right results may be apart: as far as rounding takes them, which is measured.

A sum of n terms, added in any order, is off by at most about n u times the sum of their
magnitudes, where u = eps / 2 is the unit roundoff; so two orders differ by n eps. No line of a
program adds more than `MOST_ELEMENTS` terms. A program is run again with every value that a line
leaves, and every argument, moved by up to that much, as another order might have left it: what the
results move by is the condition number times n eps. That is the tolerance. It is only measured
where results differ by more than n eps as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
from tests.fuzz.programs import MOST_ELEMENTS, Call, Program

from tapegrad import stop_gradient
from tapegrad.core.trees import flatten

# A few runs find most of what the worst one would; results may differ by this times what they find.
RUNS, SAFETY = 5, 4
# Results that rounding moves by more than this part of them say nothing: it decides on a branch,
# or on a place in an order.
JUMP = 1e-2


def narrow(program: Program) -> bool:
    return "float32" in str(program)


def unit(program: Program) -> float:
    """n eps, in the least precise of the program's dtypes."""
    return MOST_ELEMENTS * float(np.finfo(np.float32 if narrow(program) else np.float64).eps)


def rounded(x: Any, by: float, seed: int) -> Any:
    """`x`, in place if it can be, with its numbers moved by up to this part of them. Equal numbers
    are moved alike, so what a program finds equal stays equal."""
    if isinstance(x, dict):
        return {key: rounded(value, by, seed) for key, value in x.items()}
    if type(x) in (list, tuple):
        return type(x)(rounded(value, by, seed) for value in x)
    if isinstance(x, float):
        return x * (1 + by * float(np.sin(seed * 1e6 * abs(x))))
    if not hasattr(x, "dtype") or x.dtype.kind not in "fc":
        return x
    size = np.abs(stop_gradient(x))
    moved = x * (1 + by * np.sin(seed * 1e6 * size)).astype(size.dtype)
    if isinstance(x, np.generic):
        return moved
    try:
        x[...] = moved
    except (ValueError, TypeError):  # a view that can't be written to, or a scalar
        return moved if x.ndim == 0 else x
    return x


def runs(call: Call, run: Callable[[Any], Any]) -> list[Any] | None:
    """`run` of the call's program, each time rounded in another way; None if one of them raises."""
    f = call.program.rounding.function()
    found = []
    for seed in range(1, RUNS + 1):
        call.enter(f, rounded=partial(rounded, by=unit(call.program), seed=seed))
        try:
            with np.errstate(all="ignore"):
                found.append(run(f))
        except Exception:
            return None
    return found


def outputs(result: Any) -> list[np.ndarray]:
    return [np.asarray(x) for x in flatten(result)[0]]


def spread(arrays: Iterable[Any], center: Any) -> Any:
    """How far apart rounding takes each element."""
    return SAFETY * np.max([np.abs(np.asarray(x) - center) for x in arrays], axis=0)


def compare(
    found: Any, expected: Any, rounding: Callable[[], Sequence[Any] | None], by: float, what: str
) -> str:
    """Equal structures, shapes and dtypes; values up to rounding. Says what came of it: nothing is
    compared where rounding decides what the result is."""
    try:
        _assert_equal(found, expected, [_last(x, by) for x in outputs(expected)], what)
    except AssertionError:
        others = rounding()
        if others is None or not all(_is_like(expected, other) for other in others):
            return "skipped"
        allowed = []
        for b, *moved in zip(outputs(expected), *map(outputs, others), strict=True):
            bound = _last(b, by) + (spread(moved, b) if b.dtype.kind in "fc" else 0.0)
            if np.any(bound > JUMP * (1 + np.abs(b))):
                return "skipped"
            allowed.append(bound)
        _assert_equal(found, expected, allowed, what)
    return "compared"


def _last(x: np.ndarray, by: float) -> Any:
    """What the last sum alone may be off by."""
    return by * np.max(np.abs(x), initial=1.0) if x.dtype.kind in "fc" else 0.0


def _assert_equal(found: Any, expected: Any, allowed: Sequence[Any], what: str) -> None:
    assert flatten(found)[1] == flatten(expected)[1], f"{what}: the structure"
    for a, b, bound in zip(outputs(found), outputs(expected), allowed, strict=True):
        if (a.shape, a.dtype) != (b.shape, _native(b.dtype)):
            raise AssertionError(f"{what}: {a!r}, not {b!r}")
        if b.dtype.kind not in "fiubc":
            assert np.array_equal(a, b), f"{what}: {a!r}, not {b!r}"
            continue
        with np.errstate(invalid="ignore"):
            near = (a == b) | (np.abs(np.subtract(a, b, dtype=_wide(b))) <= bound)
        near |= (a != a) & (b != b)
        assert np.all(near), f"{what}: {a!r}, not {b!r}, up to {bound}"


def _wide(x: np.ndarray) -> type:
    return complex if x.dtype.kind == "c" else float


def _native(dtype: np.dtype) -> np.dtype:
    """What NumPy gives in the other byte order is computed in the machine's."""
    return dtype.newbyteorder("=")


def _is_like(expected: Any, other: Any) -> bool:
    """Whether rounding leaves the structure, the shapes, and all that isn't real as they are."""
    return flatten(expected)[1] == flatten(other)[1] and all(
        (a.shape, a.dtype) == (b.shape, b.dtype) and (a.dtype.kind in "fc" or np.array_equal(a, b))
        for a, b in zip(outputs(expected), outputs(other), strict=True)
    )
