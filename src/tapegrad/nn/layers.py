"""Linear maps, distances, padding and dropout, with the names of `torch.nn.functional`."""

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
    """x W^T + b, of shape (*, out), for x (*, in), W (out, in) and b (out,).

    For W (in,) and a number b the result is (*). Raises ValueError for shapes that don't fit.
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
    """x1^T W[k] x2 + b[k], (*, out), for x1 (*, in1), x2 (*, in2), W (out, in1, in2), b (out,).

    Raises ValueError for shapes that don't fit.
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
    """x with entries added at its edges.

    `pad` is (before, after) for the last axis, then for the one before it, and so on. `mode` is
    "constant" with `value` (0), "reflect" (the edge itself is not repeated), "replicate" (repeats
    the edge) or "circular". Negative numbers remove entries; "constant" and "circular" remove
    before they add. Modes other than "constant" pad any axes; in PyTorch they pad the last one to
    three axes of an array with channels.

    Raises ValueError for an odd number of numbers, too many numbers, an unknown mode, a value with
    a mode other than "constant", more entries than "reflect" and "circular" can supply, and a
    result with fewer than one entry.
    """
    if mode != "constant" and mode not in PADDING:
        known = ", ".join(map(repr, ("constant", *PADDING)))
        raise ValueError(f"pad: mode={mode!r} is none of {known}")
    if len(pad) % 2 or len(pad) > 2 * np.ndim(input):
        raise ValueError(
            f"pad: {len(pad)} numbers given; pad needs two for each padded axis, and there are "
            f"{np.ndim(input)} axes"
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
    """x without the entries that negative numbers remove."""
    pairs = zip(edges, np.shape(x), strict=True)
    return x[tuple(slice(max(-a, 0), n - max(-b, 0)) for (a, b), n in pairs)]


def flatten(input: Array, start_dim: int = 0, end_dim: int = -1) -> Array:
    """x with the axes from `start_dim` to `end_dim`, inclusive, joined into one; a number --> (1,).

    Raises IndexError for axes that don't exist, ValueError if `end_dim` is before `start_dim`.
    """
    shape = np.shape(input) or (1,)
    first, last = (axis_in("flatten", axis, len(shape)) for axis in (start_dim, end_dim))
    if last < first:
        raise ValueError(f"flatten: end_dim={end_dim} is before start_dim={start_dim}")
    middle = math.prod(shape[first : last + 1])
    return np.reshape(input, (*shape[:first], middle, *shape[last + 1 :]))


def drawing(f: F) -> F:
    """Declare that a function draws by `uniforms` and reads nothing else of a generator."""
    f.notes = (np.random.Generator, np.random.RandomState)  # type: ignore[attr-defined]
    return f


@drawing
def dropout(input: Array, p: float = 0.5, training: bool = True, *, rng: Any = None) -> Array:
    """0 with probability p, else x / (1 - p), independently for each element; x if not training.

    It draws `rng.random(shape)` and drops the elements below p. `rng` is a NumPy generator, a key
    of `tapegrad.random`, or None for `np.random`, whose state advances. PyTorch draws other
    numbers. Raises ValueError for a p outside [0, 1].
    """
    check_probability("dropout", "p", p)
    if not training or p == 0:
        return input
    drawn = uniforms(rng, np.shape(input))
    return np.where(drawn >= p, input * (1 / (1 - p) if p < 1 else 0.0), 0)


def uniforms(rng: Any, shape: tuple[int, ...]) -> Array:
    """Numbers from 0 to 1 of a generator, of a key of `tapegrad.random`, or of `np.random`.

    If a traced function is passed a generator, each call draws from it.
    """
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
    """x1 . x2 / (max(|x1|, eps) max(|x2|, eps)) along `dim` (or `axis`), which is summed away.

    The arrays broadcast. Raises IndexError for an axis that doesn't exist.
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
    """|x1 - x2| along `dim` (or `axis`), as in lamp: `pairwise_distance` without eps.

    The slope is 0 where both are equal.
    """
    along = chosen_axis("euclidean_distance", dim, axis, -1)
    return np.linalg.norm(x1 - x2, axis=along, keepdims=keepdim)
