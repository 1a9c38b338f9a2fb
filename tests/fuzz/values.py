"""What programs are given: each function draws a value with the generator of a call.

Real numbers stay away from 0 and from each other, where many functions have kinks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

# What draws takes a generator first; what is made of what was drawn doesn't.
DRAWN = [
    "any_number",
    "any_reals",
    "chosen",
    "complexes",
    "flag",
    "flags",
    "generator",
    "indices",
    "number",
    "random_state",
]
DRAWN += ["reals", "whole", "wholes"]
MADE = ["aligned_badly", "backwards", "by_columns", "frozen", "repeated", "strided", "swapped"]

Rng = np.random.Generator
SHAPES = [
    (3,),
    (2, 3),
    (),
    (1,),
    (4,),
    (3, 3),
    (3, 2),
    (1, 3),
    (3, 1),
    (2, 2),
    (2, 1, 3),
    (6,),
    (11,),
    (0,),
    (2, 0),
]


def number(rng: Rng) -> float:
    """A Python float."""
    return float(reals(rng, 1)[0])


def whole(rng: Rng, low: int, high: int) -> int:
    """A Python integer."""
    return int(rng.integers(low, high + 1))


def wholes(rng: Rng, shape: Any, dtype: Any = np.int64) -> Any:
    """An array of integers."""
    return rng.integers(1 if np.dtype(dtype).kind == "u" else -3, 4, shape).astype(dtype)


def indices(rng: Rng, count: int, extent: int) -> Any:
    """Places on an axis, also counted from its end."""
    return rng.integers(-extent, extent, count)


def flags(rng: Rng, shape: Any) -> Any:
    """An array of booleans."""
    return rng.integers(0, 2, shape).astype(bool)


def reals(rng: Rng, shape: Any, dtype: Any = np.float64) -> Any:
    """An array of reals, in one of the layouts that arrays come in."""
    sign = np.where(rng.random(shape) < 0.4, -1.0, 1.0)
    x = np.asarray(sign * rng.uniform(0.2, 1.6, shape)).astype(dtype)
    return LAYOUTS[rng.integers(len(LAYOUTS))](x) if x.ndim else x


def any_number(rng: Rng) -> float:
    """A Python float of any size."""
    return float(any_reals(rng, 1)[0])


def any_reals(rng: Rng, shape: Any, dtype: Any = np.float64) -> Any:
    """An array of reals whose exponents are those of all floats: each another, or all about one.
    Now and then some are zeros of either sign, infinities or NaN."""
    x = reals(rng, shape, dtype)
    info = np.finfo(dtype)
    low, high = int(np.log2(float(info.smallest_subnormal))), info.maxexp - 1
    spread = rng.choice([0, 3, 40, high])
    exponents = rng.integers(-spread, spread, shape, endpoint=True)
    if rng.random() < 0.5:
        exponents += rng.integers(low, high)
    with np.errstate(all="ignore"):
        x = np.asarray(np.ldexp(x, np.clip(exponents, low, high).astype(np.intc)), dtype)
    if rng.random() < 0.2:
        some = rng.choice([0.0, -0.0, -0.0, 0.0, np.inf, -np.inf, np.nan], shape)
        x = np.where(rng.random(shape) < 0.3, some.astype(dtype), x)
    return x


def complexes(rng: Rng, shape: Any) -> Any:
    """An array of complex numbers."""
    return np.asarray(reals(rng, shape) + 1j * reals(rng, shape))


def generator(rng: Rng) -> np.random.Generator:
    """A generator of random numbers."""
    kind = (np.random.PCG64, np.random.MT19937, np.random.Philox)[rng.integers(3)]
    return np.random.Generator(kind(int(rng.integers(1000))))


def random_state(rng: Rng) -> np.random.RandomState:
    """One of the older kind."""
    return np.random.RandomState(int(rng.integers(1000)))


def flag(rng: Rng) -> bool:
    """A Python boolean."""
    return bool(rng.integers(2))


def chosen(rng: Rng, *choices: Any) -> Any:
    """One of these."""
    return choices[rng.integers(len(choices))]


# ---- layouts in memory


def strided(x: Any) -> Any:
    """Each second element of a larger array."""
    if not np.ndim(x):
        return x
    whole = np.zeros(tuple(2 * n for n in x.shape), x.dtype)
    part = whole[tuple(slice(None, None, 2) for _ in x.shape)]
    part[...] = x
    return part


def backwards(x: Any) -> Any:
    """The first axis lies in memory from its end."""
    return np.ascontiguousarray(x[::-1])[::-1] if np.ndim(x) else x


def by_columns(x: Any) -> Any:
    """Fortran's order."""
    return np.asfortranarray(x) if np.ndim(x) else x


def repeated(x: Any) -> Any:
    """A row that is broadcast, and can't be written to."""
    return np.broadcast_to(x[:1], x.shape) if np.ndim(x) else x


def swapped(x: Any) -> Any:
    """The bytes of each element in the other order."""
    return x.astype(x.dtype.newbyteorder())


def aligned_badly(x: Any) -> Any:
    """At an address that no processor likes."""
    x = np.asarray(x)
    memory = np.zeros(x.nbytes + 1, np.uint8)
    found = memory[1:].view(x.dtype).reshape(x.shape)
    found[...] = x
    return found


def frozen(x: Any) -> Any:
    """An array that can't be written to."""
    x = np.array(x)
    x.flags.writeable = False
    return x


def _as_it_is(x: Any) -> Any:
    return x


LAYOUTS = [_as_it_is, _as_it_is, _as_it_is, strided, backwards, by_columns, repeated]
