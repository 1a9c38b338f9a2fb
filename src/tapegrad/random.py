"""Random numbers inside traced functions: a function of a key, as every traced value is of inputs.

    from tapegrad import grad, random

    def loss(w, key):
        return np.sum((w + 0.1 * random.normal(key, w.shape)) ** 2)

    for key in random.split(random.key(0), 100):
        w -= 0.1 * grad(loss)(w, key)

Draws from NumPy's generators, inside a traced function, leave those where they do in NumPy. A key
is an argument, and nothing is left anywhere: equal keys give equal numbers, and another key gives
others, with the same tape. The numbers are NumPy's, of `np.random.default_rng` seeded with the key;
they are constants for derivatives. Outside a trace these are ordinary functions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from tapegrad.tracing.rules.custom import CustomPrimitive

__all__ = ["integers", "key", "normal", "permutation", "split", "uniform"]

Array = np.ndarray
Shape = tuple[int, ...] | int


def __dir__() -> list[str]:
    return __all__


def key(seed: int) -> Array:
    """The key of a seed.

    Parameters
    ----------
    seed : an integer from 0 up, of any size.

    Returns
    -------
    Two numbers of 64 bits: shape (2,), dtype uint64.

    Raises
    ------
    ValueError : the seed is negative.
    """
    return np.random.SeedSequence(seed).generate_state(2, np.uint64)


def split(key: Any, count: int = 2) -> Array:
    """New keys of one, for draws that should be independent.

    Parameters
    ----------
    key : an array of shape (2,), from `key` or `split`.
    count : how many.

    Returns
    -------
    The keys: shape (count, 2), dtype uint64.
    """
    return _draws("split", count)(key)


def normal(key: Any, shape: Shape = ()) -> Array:
    """Numbers of the standard normal distribution.

    Parameters
    ----------
    key : an array of shape (2,), from `key` or `split`.
    shape : that of the result.

    Returns
    -------
    The numbers, float64.
    """
    return _draws("normal", shape)(key)


def uniform(key: Any, shape: Shape = ()) -> Array:
    """Numbers between 0, included, and 1, not included, each as likely as any other.

    Parameters
    ----------
    key : an array of shape (2,), from `key` or `split`.
    shape : that of the result.

    Returns
    -------
    The numbers, float64.
    """
    return _draws("uniform", shape)(key)


def integers(key: Any, low: int, high: int, shape: Shape = ()) -> Array:
    """Integers from `low`, included, to `high`, not included, each as likely as any other.

    Parameters
    ----------
    key : an array of shape (2,), from `key` or `split`.
    low, high : the bounds.
    shape : that of the result.

    Returns
    -------
    The numbers, int64.

    Raises
    ------
    ValueError : there is no integer between the bounds.
    """
    return _draws("integers", low, high, shape)(key)


def permutation(key: Any, count: int) -> Array:
    """The integers from 0 to `count` - 1 in random order.

    Parameters
    ----------
    key : an array of shape (2,), from `key` or `split`.
    count : how many.

    Returns
    -------
    The numbers: shape (count,), int64.
    """
    return _draws("permutation", count)(key)


def _split(rng: np.random.Generator, count: int) -> np.ndarray:
    children = rng.bit_generator.seed_seq.spawn(count)  # type: ignore[attr-defined]
    return np.stack([child.generate_state(2, np.uint64) for child in children])


# Not the methods themselves: numpy.random loads when it is first named.
_METHODS = {
    "normal": "standard_normal",
    "uniform": "random",
    "integers": "integers",
    "permutation": "permutation",
}


@lru_cache(maxsize=256)
def _draws(name: str, *options: Any) -> Callable[[Any], Any]:
    """What is drawn, as a function of the key: a primitive that NumPy runs, with no derivative."""

    def numbers(key: Any) -> Any:
        rng = np.random.default_rng(np.asarray(key))
        return _split(rng, *options) if name == "split" else getattr(rng, _METHODS[name])(*options)

    numbers.__name__ = name
    made = CustomPrimitive(numbers)
    made.define(made.reverse, [None], {})
    return made
