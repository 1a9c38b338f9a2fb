"""Derivatives along a direction by central differences, and how far off those are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from tests.fuzz.programs import Call

from tapegrad.core.trees import flatten, unflatten

STEP = 1e-4
# Central differences c(h), c(h/2), c(h/4) are extrapolated: r(h) = (4 c(h/2) - c(h)) / 3. An error
# of e in each value of the function makes one of (4 * 4 e/h + 2 e/h) / 3 = 6 e/h in r(h/2).
AMPLIFIED = 6 / STEP


class Slope(NamedTuple):
    """The derivative, and what the step being finite takes it off by."""

    value: float
    truncation: float


def real_leaves(call: Call, wrt: Sequence[int]) -> list[Any]:
    args = call.args()
    return flatten(tuple(args[k] for k in wrt))[0]


def direction_of(leaf: Any, rng: np.random.Generator) -> np.ndarray:
    direction = rng.standard_normal(np.shape(leaf))
    if np.iscomplexobj(leaf):
        direction = direction + 1j * rng.standard_normal(np.shape(leaf))
    if 0 in getattr(leaf, "strides", ()):  # repeated rows stay equal: apart, they'd be a kink
        direction = np.broadcast_to(direction[:1], direction.shape)
    return direction


def along(loss: Callable[..., Any], call: Call, wrt: Sequence[int], k: int, direction: Any) -> Any:
    """The function of one number that `loss` is along a direction of the k-th real leaf."""

    def at(step: float) -> float:
        args = list(call.args())
        leaves, structure = flatten(tuple(args[j] for j in wrt))
        moved = np.asarray(leaves[k] + step * direction)
        moved = moved.astype(np.complex128 if moved.dtype.kind == "c" else np.float64)
        leaves[k] = as_it_was(moved, leaves[k])
        for j, arg in zip(wrt, unflatten(structure, leaves), strict=True):
            args[j] = arg
        with np.errstate(all="ignore"):
            return float(loss(*args))

    return at


def as_it_was(x: np.ndarray, like: Any) -> Any:
    """`x` as the kind of number or array that another is, laid out as that is."""
    if type(like) is float:
        return float(x)
    if type(like) is complex:
        return complex(x)
    if isinstance(like, np.generic):
        return x[()]
    return laid_out(x, like)


def slope(at: Callable[[float], float], noise: float) -> Slope | None:
    """The derivative at 0 of a function whose values are off by `noise`; None where it has a kink,
    a jump or another path within the step."""
    steps = [STEP, STEP / 2, STEP / 4]
    try:
        here = at(0.0)
        ups, downs = [at(h) for h in steps], [at(-h) for h in steps]
    except Exception:  # another path, which raises
        return None
    c = [(u - d) / (2 * h) for u, d, h in zip(ups, downs, steps, strict=True)]
    bends = [abs(u - 2 * here + d) / h for u, d, h in zip(ups, downs, steps, strict=True)]
    if not np.all(np.isfinite([*c, *bends])):
        return None
    # A kink's two slopes differ as much at a smaller step; a smooth function's half as much.
    blur = AMPLIFIED * noise
    if bends[1] > 0.7 * bends[0] + 2 * blur or bends[2] > 0.7 * bends[1] + 4 * blur:
        return None
    coarse, fine = (4 * c[1] - c[0]) / 3, (4 * c[2] - c[1]) / 3
    # The error of `fine` is a fifteenth of this where the series has begun to converge.
    return Slope(fine, abs(coarse - fine))


def laid_out(x: np.ndarray, like: np.ndarray) -> np.ndarray:
    """`x` with the layout in memory of another array: NumPy's views depend on it."""
    if x.ndim == 0:
        return x
    if like.flags.c_contiguous:
        return np.ascontiguousarray(x)
    if like.flags.f_contiguous:
        return np.asfortranarray(x)
    if 0 in like.strides:
        once = tuple(slice(1) if s == 0 else slice(None) for s in like.strides)
        return np.broadcast_to(np.ascontiguousarray(x[once]), x.shape)
    if any(s < 0 for s in like.strides):
        reverse = tuple(slice(None, None, -1 if s < 0 else 1) for s in like.strides)
        return np.ascontiguousarray(x[reverse])[reverse]
    whole = np.zeros(tuple(2 * n for n in x.shape), x.dtype)
    part = whole[tuple(slice(None, None, 2) for _ in x.shape)]
    part[...] = x
    return part
