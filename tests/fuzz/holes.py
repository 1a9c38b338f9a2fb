"""What goes into the holes of a line: `hole.x` is the value of its main operand."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

KINDS = (np.ndarray, np.generic, float, int, complex)  # what is a number, or holds some


def real(x: Any) -> bool:
    return np.asarray(x).dtype.kind == "f"


def whole(x: Any) -> bool:
    return np.asarray(x).dtype.kind in "iu"


def imaginary(x: Any) -> bool:
    return np.asarray(x).dtype.kind == "c"


def writable(x: Any) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # broadcast arrays, which won't be soon
        return isinstance(x, np.ndarray) and x.flags.writeable


MAIN: dict[str, Callable[[Any], bool]] = {
    "x": real,
    "v": lambda x: real(x) and np.ndim(x) > 0,
    "m": lambda x: real(x) and np.ndim(x) > 1,
    "u": lambda x: real(x) and np.ndim(x) == 1,
    "w": lambda x: writable(x) and real(x),
    "i": lambda x: whole(x) and np.ndim(x) > 0,
    "b": lambda x: isinstance(x, (np.ndarray, np.bool_)) and x.dtype == bool,
    "n": lambda x: whole(x) and np.ndim(x) == 0,
    "z": imaginary,
    "zv": lambda x: imaginary(x) and np.ndim(x) > 0,
    "zu": lambda x: imaginary(x) and np.ndim(x) == 1,
}


def broadcasting(hole: Any) -> str:
    """A number, or a name that broadcasts with the main operand."""

    def fits(x: Any) -> bool:
        try:
            np.broadcast_shapes(np.shape(x), hole.x.shape)
        except ValueError:
            return False
        return real(x)

    pool = hole.names(fits)
    return hole.one_of(*pool) if pool and hole.grower.chance(0.8) else hole.number()


def named(fits: Callable[[Any], bool]) -> Callable[[Any], str | None]:
    def fill(hole: Any) -> str | None:
        pool = hole.names(fits)
        return hole.grower.recent(pool) if pool else None

    return fill


def scalar(hole: Any) -> str:
    pool = hole.names(lambda x: real(x) and np.ndim(x) == 0)
    arrays = hole.names(MAIN["v"])
    ends = [".sum()", ".ravel()[0]", ".max()"] if arrays else []
    made = [hole.one_of(*arrays) + end for end in ends]
    return hole.one_of(hole.number(), hole.number(), *pool, *made)


def condition(hole: Any) -> str:
    """Something that is true or false."""
    numbers = hole.names(MAIN["n"])
    flags = hole.names(lambda x: np.asarray(x).dtype == bool)
    return hole.one_of(
        f"{scalar(hole)} > {hole.number()}",
        f"{scalar(hole)} < {scalar(hole)}",
        *[f"{n} > {hole.one_of(1, 2, 3)}" for n in numbers],
        *[f"{n} % 2" for n in numbers],
        *[f"{b}.any()" for b in flags],
        *[f"np.all({b})" for b in flags],
        *hole.names(lambda x: isinstance(x, bool)),
    )


def flags_like(hole: Any) -> str:
    """Booleans that broadcast with the main operand."""
    pool = hole.names(lambda x: np.asarray(x).dtype == bool and np.shape(x) in ((), hole.x.shape))
    return hole.one_of(
        f"({hole.main} > {hole.number()})", f"({hole.main} < {hole.number()})", *pool
    )


def axis(hole: Any) -> str:
    return str(hole.rng.randrange(-hole.x.ndim, hole.x.ndim) if hole.x.ndim else 0)


def axes(hole: Any) -> str:
    ndim = hole.x.ndim
    some = tuple(a for a in range(ndim) if hole.grower.chance(0.5))
    return hole.one_of("None", axis(hole) if ndim else "None", str(some))


def shape(hole: Any) -> str:
    size = hole.x.size
    divisors = [d for d in (1, 2, 3, 4, 6) if size % d == 0]
    first = hole.one_of(*divisors)
    return hole.one_of(
        f"({first}, -1)", f"({size},)", f"({first}, {size // first})", f"(-1, 1, {first})"
    )


def wider(hole: Any) -> str:
    return str(hole.one_of((2, *hole.x.shape), tuple(3 if n == 1 else n for n in hole.x.shape)))


def permutation(hole: Any) -> str:
    order = list(range(hole.x.ndim))
    hole.rng.shuffle(order)
    return str(tuple(order))


def simple_entry(hole: Any, extent: int) -> str:
    k = hole.rng.randrange(-extent, extent) if extent else 0
    numbers = [f"{n} % {extent}" for n in hole.names(MAIN["n"])] if extent else []
    return hole.one_of(str(k), ":", "1:", ":-1", "::2", "::-1", "-2:", f"{k}:", "2:0:-1", *numbers)


def index(hole: Any) -> str:
    """Integers and slices, an Ellipsis or a new axis among them."""
    found = [simple_entry(hole, n) for n in hole.x.shape]
    found = found[: hole.rng.randrange(1, len(found) + 1)] if found else ["()"]
    extra = hole.one_of(None, None, None, "...", "None")
    if extra and found != ["()"]:
        found.insert(hole.rng.randrange(len(found) + 1), extra)
    return ", ".join(found)


def places(hole: Any) -> str | None:
    """A list of places on an axis, some of them twice; or a name of integers. None in an array of
    nothing, where NumPy doesn't look whether they exist."""
    if not hole.x.size:
        return None
    extent = max(1, min(hole.x.shape, default=1))
    found = [hole.rng.randrange(-extent, extent) for _ in range(hole.one_of(2, 3, 1))]
    names = hole.names(MAIN["i"])
    return hole.one_of(str(found), str(found), f"[{found}]", *names)


def fancy(hole: Any) -> str | None:
    """An index with arrays in it, of an array that isn't empty: NumPy writes anything there."""
    if not hole.x.size:
        return None
    found = [simple_entry(hole, n) for n in hole.x.shape]
    for k in range(len(found)):
        if k == 0 or hole.grower.chance(0.4):
            found[k] = hole.one_of(
                places(hole), places(hole), f"np.arange({hole.x.shape[k]})[::-1]"
            )
    hole.rng.shuffle(found)
    found = found[: 1 + hole.rng.randrange(len(found))] if found else ["()"]
    if hole.grower.chance(0.2):
        found.insert(hole.rng.randrange(len(found) + 1), hole.one_of("None", "..."))
    return ", ".join(found)


def mask(hole: Any) -> str:
    pool = hole.names(lambda x: np.asarray(x).dtype == bool and 0 < np.ndim(x) <= hole.x.ndim)
    first = [str([bool(hole.rng.randrange(2)) for _ in range(n)]) for n in hole.x.shape[:1]]
    return hole.one_of(f"{hole.main} > {hole.number()}", f"{hole.main} < 0", *first, *pool)


def fitting(hole: Any) -> str | None:
    """An operand of a matrix product."""
    own = hole.x.shape
    pool = hole.names(lambda x: real(x) and np.ndim(x) and {own[-1], own[0]} & set(np.shape(x)))
    return hole.one_of(f"{hole.main}.T", *pool, *pool) if pool else f"{hole.main}.T"


def made_of_a_matrix(text: str) -> Callable[[Any], str | None]:
    """A square matrix made of a matrix `m` of as many rows, `n`: of the main operand, if any."""

    def fill(hole: Any) -> str | None:
        pool = hole.names(MAIN["m"])
        if not pool:
            return None
        hole.main = hole.main or hole.grower.recent(pool)
        return text.format(m=hole.main, n=f"{hole.main}.shape[-2], dtype={hole.main}.dtype")

    return fill


SQUARE = "(0.1 * {m} @ {m}.mT + np.tri({n}) + np.eye({n}))"  # far from singular
DEFINITE = "({m} @ {m}.mT + np.diag(np.arange({n}) + 1))"  # positive definite


def other(fits: Callable[[Any], bool]) -> Callable[[Any], str | None]:
    """A name of what isn't a number."""

    def fill(hole: Any) -> str | None:
        pool = [n for n, x in hole.env.items() if not isinstance(x, KINDS) and fits(x)]
        return hole.one_of(*pool) if pool else None

    return fill


def fresh(prefix: str) -> Callable[[Any], str]:
    return lambda hole: hole.grower.fresh(prefix)


HOLES: dict[str, Callable[[Any], str | None]] = {
    **{name: named(fits) for name, fits in MAIN.items()},
    "x2": named(MAIN["x"]),
    "v2": named(MAIN["v"]),
    "u2": named(MAIN["u"]),
    "i2": named(MAIN["i"]),
    "z2": named(MAIN["z"]),
    "g": other(lambda x: isinstance(x, np.random.Generator)),
    "rs": other(lambda x: isinstance(x, np.random.RandomState)),
    "many": lambda hole: hole.one_of("3", "4", "12"),
    "y": broadcasting,
    "s": scalar,
    "c": flags_like,
    "cond": condition,
    "axis": axis,
    "axes": axes,
    "shape": shape,
    "wider": wider,
    "perm": permutation,
    "index": index,
    "fancy": fancy,
    "mask": mask,
    "places": places,
    "fit": fitting,
    "square": made_of_a_matrix(SQUARE),
    "definite": made_of_a_matrix(DEFINITE),
    "flag": lambda hole: hole.one_of("False", "True"),
    "bit": lambda hole: hole.one_of("0", "1"),
    "int": lambda hole: hole.one_of("1", "0", "-1", "2"),
    "int2": lambda hole: hole.one_of("2", "(2, 1)", "(1, 2)"),
    "new": fresh("t"),
    "fn": fresh("f"),
    "out": fresh("v"),
    "act": other(lambda x: isinstance(x, np.ufunc)),
    "mode": other(lambda x: isinstance(x, str)),
    "none": other(lambda x: x is None),
    "count": fresh("k"),
    "counter": lambda hole: f"k{hole.grower.count}",
}

ONCE = {"fn", "out", "many", "g", "rs"}  # filled alike wherever a line has them
