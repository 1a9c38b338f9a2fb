"""Linear maps, distances, padding and dropout, as `torch.nn.functional` names them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from tapegrad.extending.arrays import dispatch
from tapegrad.extending.runs import following, is_generator
from tapegrad.nn.arguments import (
    Array,
    axis_in,
    check_probability,
    chosen_axis,
)
from tapegrad.random import uniform

F = TypeVar("F", bound=Callable[..., Any])


def linear(input: Array, weight: Array, bias: Array | None = None) -> Array:
    """x W^T + b: (*, out) of (*, in), W of (out, in) and b of (out,).

    With W of (in,) and b a number it is (*). Raises ValueError where shapes don't fit.
    """
    if np.ndim(weight) not in (1, 2) or np.shape(input)[-1:] != np.shape(weight)[-1:]:
        raise ValueError(
            f"linear: input has shape {np.shape(input)} and weight {np.shape(weight)}; they must "
            "be (*, in) and (out, in)"
        )
    found = input @ (weight.T if np.ndim(weight) == 2 else weight)
    if bias is None:
        return found
    _check_bias("linear", bias, np.shape(weight)[:-1])
    return found + bias


def bilinear(input1: Array, input2: Array, weight: Array, bias: Array | None = None) -> Array:
    """x1^T W[k] x2 + b[k]: (*, out) of (*, in1), (*, in2), W of (out, in1, in2) and b of (out,).

    Raises ValueError where shapes don't fit.
    """
    lead, n1, n2 = np.shape(input1)[:-1], np.shape(input1)[-1:], np.shape(input2)[-1:]
    if np.shape(input2)[:-1] != lead or np.shape(weight)[1:] != n1 + n2 or np.ndim(weight) != 3:
        raise ValueError(
            f"bilinear: the inputs have shapes {np.shape(input1)} and {np.shape(input2)} and "
            f"weight {np.shape(weight)}; they must be (*, in1), (*, in2) and (out, in1, in2)"
        )
    out = np.shape(weight)[0]
    first = np.reshape(input1 @ np.reshape(np.swapaxes(weight, 0, 1), (*n1, -1)), (*lead, out, *n2))
    found = np.sum(first * np.expand_dims(input2, -2), axis=-1)
    if bias is None:
        return found
    _check_bias("bilinear", bias, (out,))
    return found + bias


def _check_bias(function: str, bias: Array, shape: tuple[int, ...]) -> None:
    if np.shape(bias) != shape:
        raise ValueError(f"{function}: bias has shape {np.shape(bias)}, and must have {shape}")


PADDING = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}  # NumPy's names


def pad(
    input: Array, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> Array:
    """x with more entries at its edges: `pad` is (before, after) of the last axis, then of the one
    before it, and so on.

    `mode` is "constant" with `value` (0), "reflect" without the edge, "replicate" of the edge, or
    "circular". Negative numbers take entries away, of "constant" and "circular" before others are
    added. The other modes than "constant" pad any axes; PyTorch's the last one to three of an array
    with channels.

    Raises ValueError for an odd number of numbers, too many of them, another mode, a value with
    another mode than "constant", and for more entries than "reflect" and "circular" find, or fewer
    than one left.
    """
    if mode != "constant" and mode not in PADDING:
        known = ", ".join(map(repr, ("constant", *PADDING)))
        raise ValueError(f"pad: mode={mode!r} is none of {known}")
    if len(pad) % 2 or len(pad) > 2 * np.ndim(input):
        raise ValueError(
            f"pad: {len(pad)} numbers aren't two for each of some axes of {np.ndim(input)}"
        )
    edges = [(0, 0)] * np.ndim(input)
    for i in range(len(pad) // 2):
        edges[-1 - i] = pad[2 * i], pad[2 * i + 1]
    added = [(max(a, 0), max(b, 0)) for a, b in edges]
    if mode == "constant":
        return np.pad(_cut(input, edges), added, constant_values=value or 0)
    if value is not None:
        raise ValueError(f"pad: value={value} is for mode='constant', not {mode!r}")
    for (a, b), n in zip(edges, np.shape(input), strict=True):
        most = {"reflect": n - 1, "circular": n}.get(mode, max(a, b))
        left = n + min(a, b) if mode == "circular" else n + a + b
        if max(a, b) > most or (n == 0 and max(a, b) > 0) or (min(a, b) < 0 and left < 1):
            raise ValueError(f"pad: mode={mode!r} can't pad {n} entries by {(a, b)}")
    if mode == "circular":
        return np.pad(_cut(input, edges), added, mode="wrap")
    return _cut(np.pad(input, added, mode=PADDING[mode]), edges)  # type: ignore[call-overload]


def _cut(x: Array, edges: list[tuple[int, int]]) -> Array:
    """x without what negative numbers take away."""
    pairs = zip(edges, np.shape(x), strict=True)
    return x[tuple(slice(max(-a, 0), n - max(-b, 0)) for (a, b), n in pairs)]


def flatten(input: Array, start_dim: int = 0, end_dim: int = -1) -> Array:
    """x with the axes from `start_dim` to `end_dim`, included, as one; a number as (1,).

    Raises IndexError for axes that aren't there, ValueError where `end_dim` is before `start_dim`.
    """
    shape = np.shape(input) or (1,)
    first, last = (axis_in("flatten", axis, len(shape)) for axis in (start_dim, end_dim))
    if last < first:
        raise ValueError(f"flatten: end_dim={end_dim} is before start_dim={start_dim}")
    middle = math.prod(shape[first : last + 1])
    return np.reshape(input, (*shape[:first], middle, *shape[last + 1 :]))


def drawing(f: F) -> F:
    """A function that draws by `uniforms`: it reads nothing else of a generator."""
    f.notes = (np.random.Generator, np.random.RandomState)  # type: ignore[attr-defined]
    return f


@drawing
def dropout(input: Array, p: float = 0.5, training: bool = True, *, rng: Any = None) -> Array:
    """0 with the probability p, else x / (1 - p), each element by itself; x without training.

    It draws `rng.random(shape)` and drops what is below p. `rng` is a generator of NumPy's, or a
    key of `tapegrad.random`; None stands for `np.random`, whose state moves on. PyTorch's draws
    are others. Raises ValueError for a p that isn't from 0 to 1.
    """
    check_probability("dropout", "p", p)
    if not training or p == 0:
        return input
    drawn = uniforms(rng, np.shape(input))
    return np.where(drawn >= p, input * (1 / (1 - p) if p < 1 else 0.0), 0)


def uniforms(rng: Any, shape: tuple[int, ...]) -> Array:
    """Numbers from 0 to 1 of a generator, of a key of `tapegrad.random`, or of `np.random`. Of a
    generator that a traced function is passed each call draws them anew."""
    if rng is None:
        return np.random.random(shape)
    here = following.observer
    if here is not None and is_generator(rng) and here.is_outside(rng):
        return dispatch.draw(here, rng, rng.random, shape)
    return rng.random(shape) if hasattr(rng, "random") else uniform(rng, shape)


# ---- distances


def cosine_similarity(
    x1: Array, x2: Array, dim: int = 1, eps: float = 1e-8, *, axis: int | None = None
) -> Array:
    """x1 . x2 / (max(|x1|, eps) max(|x2|, eps)) along `dim` (or `axis`), which the result lacks.

    The arrays broadcast. Raises IndexError for an axis that isn't there.
    """
    ndim = max(np.ndim(x1), np.ndim(x2))
    along = axis_in("cosine_similarity", chosen_axis("cosine_similarity", dim, axis, 1), ndim)
    x1, x2 = np.broadcast_arrays(x1, x2)
    norms = [np.sqrt(np.sum(x * x, axis=along)) for x in (x1, x2)]
    first, second = (np.where(norm < eps, eps, norm) for norm in norms)
    return np.sum(x1 * x2, axis=along) / (first * second)


def pairwise_distance(
    x1: Array, x2: Array, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Array:
    """The p-norm of x1 - x2 + eps along the last axis. The arrays broadcast."""
    return np.linalg.norm(x1 - x2 + eps, p, axis=-1, keepdims=keepdim)


def euclidean_distance(
    x1: Array, x2: Array, dim: int = -1, keepdim: bool = False, *, axis: int | None = None
) -> Array:
    """|x1 - x2| along `dim` (or `axis`), lamp's: `pairwise_distance` without eps. Its slope is 0
    where both are equal."""
    along = chosen_axis("euclidean_distance", dim, axis, -1)
    return np.linalg.norm(x1 - x2, axis=along, keepdims=keepdim)
