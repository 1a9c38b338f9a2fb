"""Random numbers inside traced functions: a function of a key, as every traced value is of inputs.

    from tapegrad import grad, random

    def loss(w, key):
        return np.sum((w + 0.1 * random.normal(key, w.shape)) ** 2)

    for key in random.split(random.key(0), 100):
        w -= 0.1 * grad(loss)(w, key)

A generator that is drawn from inside a traced function would be drawn from once, and is refused.
A key is an argument: equal keys give equal numbers, and another key gives others, with the same
tape. The numbers are NumPy's, of `np.random.default_rng` seeded with the key; they are constants
for derivatives. Outside a trace these are ordinary functions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from tapegrad.api import defvjp, primitive

__all__ = ["integers", "key", "normal", "permutation", "split", "uniform"]

Shape = tuple[int, ...] | int


def key(seed: int) -> np.ndarray:
    """The key of a seed, an integer from 0 up: two numbers of 64 bits, dtype uint64."""
    return np.random.SeedSequence(seed).generate_state(2, np.uint64)


def split(key: Any, count: int = 2) -> Any:
    """`count` new keys of one, shape (count, 2): for draws that should be independent."""
    return _draws("split", count)(key)


def normal(key: Any, shape: Shape = ()) -> Any:
    """Numbers of the standard normal distribution, float64."""
    return _draws("normal", shape)(key)


def uniform(key: Any, shape: Shape = ()) -> Any:
    """Numbers between 0, included, and 1, not included; float64."""
    return _draws("uniform", shape)(key)


def integers(key: Any, low: int, high: int, shape: Shape = ()) -> Any:
    """Integers from `low`, included, to `high`, not included; int64."""
    return _draws("integers", low, high, shape)(key)


def permutation(key: Any, count: int) -> Any:
    """The integers from 0 to `count` - 1 in random order; int64, shape (count,)."""
    return _draws("permutation", count)(key)


def _split(rng: np.random.Generator, count: int) -> np.ndarray:
    children = rng.bit_generator.seed_seq.spawn(count)  # type: ignore[attr-defined]
    return np.stack([child.generate_state(2, np.uint64) for child in children])


_DRAWS: dict[str, Callable[..., Any]] = {
    "split": _split,
    "normal": np.random.Generator.standard_normal,
    "uniform": np.random.Generator.random,
    "integers": np.random.Generator.integers,
    "permutation": np.random.Generator.permutation,
}


@lru_cache(maxsize=256)
def _draws(name: str, *options: Any) -> Callable[[Any], Any]:
    """What is drawn, as a function of the key: a primitive that NumPy runs, with no derivative."""

    def numbers(key: Any) -> Any:
        return _DRAWS[name](np.random.default_rng(np.asarray(key)), *options)

    numbers.__name__ = name
    made = primitive(numbers)
    defvjp(made, None)
    return made
