"""The table that random programs are drawn from: one line of NumPy each, with holes.

A line has at most one main operand, which other holes look at:

    {x} real    {v} real, with axes    {m} real matrix, or more axes    {w} real, to be written to
    {i} integers    {b} booleans    {n} a whole number

An expression gets a name; anything else is a statement.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def real(x: Any) -> bool:
    return np.asarray(x).dtype.kind == "f"


def whole(x: Any) -> bool:
    return np.asarray(x).dtype.kind in "iu"


MAIN: dict[str, Callable[[Any], bool]] = {
    "x": real,
    "v": lambda x: real(x) and np.ndim(x) > 0,
    "m": lambda x: real(x) and np.ndim(x) > 1,
    "w": lambda x: isinstance(x, np.ndarray) and real(x) and x.flags.writeable,
    "i": lambda x: whole(x) and np.ndim(x) > 0,
    "b": lambda x: np.asarray(x).dtype == bool,
    "n": lambda x: whole(x) and np.ndim(x) == 0,
}

# ---- what programs are given: real numbers first, which is what the first argument is

INPUTS = [
    ["reals(SHAPE)", "reals(SHAPE)", "reals(SHAPE)", "reals(SHAPE, np.float32)", "number()"],
    ["reals(SHAPE)", "number()", "{'a': reals(SHAPE), 'b': number()}"],
    ["whole(1, 4)", "wholes(SHAPE)", "wholes(SHAPE, np.int32)", "wholes(SHAPE, np.uint8)"],
    ["flags(SHAPE)", "indices(4, 2)", "indices(3, 3)", "indices(2, 1)"],
]

# ---- expressions and statements

SMOOTH = [
    "np.sin({x})",
    "np.tanh({x})",
    "np.exp(-{x})",
    "np.exp({x} * 0.3)",
    "-{x}",
    "{x} ** 2",
    "{x} ** 3",
    "{x} ** 0.5",
    "(np.abs({x}) + 0.5) ** {y}",
    "(np.abs({x}) + 0.5) ** -1.5",
    "2.0 ** {x}",
    "np.log(np.abs({x}) + 0.5)",
    "np.log1p({x} ** 2)",
    "np.sqrt({x} ** 2 + 0.1)",
    "np.cbrt(np.abs({x}) + 0.2)",
    "1 / (1 + np.exp(-{x}))",
    "np.arctan({x})",
    "np.arcsin(np.tanh({x}) * 0.9)",
    "np.arctan2({x}, np.abs({y}) + 0.3)",
    "np.hypot({x}, {y})",
    "np.logaddexp({x}, {y})",
    "np.expm1({x})",
    "np.cosh({x})",
    "np.sinc({x})",
    "np.reciprocal({x})",
    "np.square({x})",
    "np.positive({x})",
    "np.float_power(np.abs({x}) + 0.5, {y})",
    "{x} + {y}",
    "{x} - {y}",
    "{y} - {x}",
    "{x} * {y}",
    "{y} * {x}",
    "{x} / {y}",
    "{x} / (np.abs({y}) + 0.5)",
    "np.multiply({x}, {y}, dtype=np.float64)",
    "np.add({x}, {i2})",
    "{x} * {c}",
]

KINKED = [
    "np.abs({x})",
    "np.maximum({x}, {y})",
    "np.minimum({x}, {y})",
    "np.fmax({x}, {y})",
    "np.sign({x}) * {y}",
    "np.floor({x})",
    "np.round({x}, {int})",
    "np.rint({x} * 2)",
    "np.trunc({x}) + {x}",
    "{x} // {y}",
    "{x} % {y}",
    "np.fmod({x}, {y})",
    "divmod({x}, {y})[1]",
    "np.modf({x})[0]",
    "np.clip({x}, -0.7, 0.9)",
    "np.clip({x}, {y}, None)",
    "{x}.clip(min={y})",
    "np.where({c}, {x}, {y})",
    "np.where({x} > 0, np.log({x}), {x})",
    "np.where({c}, {y}, {x})",
    "np.heaviside({x}, 0.5) * {y}",
    "np.copysign({x}, {y})",
    "np.nan_to_num({x})",
    "np.select([{x} > 1, {x} > 0], [{x}, {x} * 2], {y})",
    "np.piecewise({x}, [{x} < 0, {x} >= 0], [lambda t: t * 2, lambda t: t ** 2])",
    "np.interp({x}, [-1.0, 0.0, 1.5], [0.3, 1.0, -0.7])",
    "np.isfinite({x}) * {y}",
]

REDUCTIONS = [
    "np.sum({x}, axis={axes}, keepdims={flag})",
    "np.sum({v}, where={c}, axis={axes})",
    "{x}.sum({axes})",
    "{v}.mean(axis={axes}, keepdims={flag})",
    "np.mean({v}, axis={axes}, where={x2} > -9)",
    "np.prod({x}, axis={axes})",
    "np.prod({v}, axis={axes}, where={c})",
    "np.max({v}, axis={axes}, keepdims={flag})",
    "np.min({v}, axis={axes})",
    "np.max({v}, axis={axes}, initial=0.4)",
    "np.max({v}, axis={axes}, where={c}, initial=-2.0)",
    "np.ptp({v}, axis={axis})",
    "np.var({v}, axis={axes})",
    "np.std({v}, axis={axes}, ddof=1, keepdims={flag})",
    "np.average({v}, axis={axis}, weights=np.abs({v}) + 0.1)",
    "np.median({v}, axis={axis})",
    "np.quantile({v}, 0.3, axis={axis})",
    "np.nansum({v}, axis={axes})",
    "np.linalg.norm({v})",
    "np.linalg.norm({v}, axis={axis}, keepdims={flag})",
    "np.linalg.norm({v}, 1, axis={axis})",
    "np.logaddexp.reduce({v}, axis={axis})",
    "np.add.reduce({v}, axis={axis})",
    "np.multiply.reduce({v})",
    "np.maximum.reduce({v}, axis={axis})",
    "np.add.accumulate({v})",
    "np.cumsum({v}, axis={axis})",
    "np.cumprod({v}, axis={axis})",
    "{v}.cumsum()",
    "np.trapezoid({v}, axis={axis})",
    "np.trace({m})",
    "np.argmax({v}, axis={axis})",
    "np.argmin({v})",
    "np.count_nonzero({v} > 0)",
    "np.any({v} > 1, axis={axis})",
    "np.all({v} > -0.5)",
    "sum({v})",
    "min({v}[0], {s})",
    "np.maximum.outer({v}, {v2})",
]

SHAPING = [
    "{x}.reshape({shape})",
    "np.reshape({x}, {shape}, order='F')",
    "{x}.reshape(-1)",
    "{x}.ravel()",
    "{x}.flatten()",
    "{x}.T",
    "np.transpose({v}, {perm})",
    "np.swapaxes({m}, 0, -1)",
    "np.moveaxis({m}, 0, -1)",
    "{m}.mT",
    "np.expand_dims({x}, {axis})",
    "{x}[None]",
    "{v}[..., None]",
    "np.squeeze({x})",
    "np.broadcast_to({x}, {wider})",
    "np.broadcast_arrays({x}, {y})[0]",
    "np.flip({v}, axis={axis})",
    "np.roll({v}, {int}, axis={axis})",
    "np.roll({v}, 1)",
    "np.rot90({m})",
    "np.tile({x}, {int2})",
    "np.repeat({v}, 2, axis={axis})",
    "np.repeat({x}, 2)",
    "np.pad({v}, 1)",
    "np.pad({v}, (1, 2), mode='edge')",
    "np.diag({v})",
    "np.diagonal({m})",
    "np.tril({m}, {int})",
    "np.triu({m})",
    "np.atleast_2d({x})",
    "np.zeros_like({x})",
    "np.ones_like({x}) * {s}",
    "np.full_like({x}, {s})",
    "np.copy({x})",
    "{x}.copy()",
    "np.diff({v}, axis={axis})",
    "np.gradient({v})",
    "np.resize({x}, {shape})",
    "{x}.view()",
    "{x} * 1",
]

JOINING = [
    "np.concatenate([{v}, {v2}], axis={axis})",
    "np.concatenate([{v}, {v2}], axis=None)",
    "np.stack([{x}, {x2}])",
    "np.stack([{x}, {y}], axis={axis})",
    "np.hstack([{x}, {x2}])",
    "np.vstack([{x}, {x2}])",
    "np.column_stack([{v}, {v2}])",
    "np.append({x}, {s})",
    "np.split({v}, [1])[{bit}]",
    "np.array_split({v}, 2)[{bit}]",
    "np.insert({v}, 1, {s})",
    "np.delete({v}, 0, axis={axis})",
    "np.meshgrid({v}, {v2})[{bit}]",
    "np.block([{v}, {v2}])",
    "np.stack([t * {s} for t in {v}])",
    "np.stack([{s}, {s}, {s}])",
]

INDEXING = [
    "{x}[{index}]",
    "{v}[{index}]",
    "{v}[{index}]",
    "{v}[{fancy}]",
    "{v}[{fancy}]",
    "{v}[{mask}]",
    "{v}[{index}][{bit}:]",
    "{v}[np.argsort({v}, axis=0)]",
    "{v}[np.argmax({v}.ravel()) % len({v})]",
    "np.take({v}, {places}, axis={axis})",
    "np.take({v}, [5, -3], mode='wrap')",
    "np.take_along_axis({v}, np.argsort({v}, axis={axis}), axis={axis})",
    "np.compress(np.arange(len({v})) > 0, {v}, axis=0)",
    "np.extract({v} > 0, {v})",
    "{v}.flat[{bit}]",
    "{v}[np.nonzero({v} > 0)]",
    "np.choose({v} > 0, [{y}, {x2}])",
    "{v}[{i2}]",
]

ORDER = [
    "np.sort({v}, axis={axis})",
    "np.sort({v}, axis=None)[::-1]",
    "np.argsort({v})",
    "{v}[np.argsort(-{v}[..., 0])]",
    "np.searchsorted(np.sort({v}.ravel()), {y})",
    "np.digitize({x}, [-1.0, 0.0, 1.0])",
]

PRODUCTS = [
    "{v} @ {fit}",
    "{v} @ {fit}",
    "{fit} @ {v}",
    "np.dot({v}, {fit})",
    "np.matmul({m}, {m}.T)",
    "np.inner({v}, {v2})",
    "np.outer({v}, {v2})",
    "np.vdot({v}, {v})",
    "np.tensordot({v}, {v2}, axes=0)",
    "np.tensordot({m}, {m}, axes=(0, 0))",
    "np.tensordot({m}, {fit}, axes=1)",
    "np.einsum('...i,...i->...', {v}, {y})",
    "np.einsum('ij,ij->j', {m}, {y})",
    "np.einsum('ij,jk->ki', {m}, {fit})",
    "np.einsum('i,j->ij', {v}, {v2})",
    "np.einsum('ii->i', {m}) * 1.0",
    "np.einsum('ij->ji', {m})",
    "np.kron({v}, {v2})",
    "np.cross({v}, {v2})",
    "np.convolve({v}, {v2})",
    "np.linalg.matrix_power({m} * 0.5, 2)",
    "np.polyval([0.5, {s}, 1.0], {x})",
]

INTEGERS = [
    "{i} * 2 - 1",
    "{i} + {n}",
    "{i} // 2",
    "{i} % 3",
    "{i}.sum()",
    "np.cumsum({i})",
    "{i} / 2",
    "{i} > 0",
    "({x} * 2).astype(int)",
    "np.floor({x} * 3).astype(np.int32)",
    "{i} ** 2",
    "{i} & 3",
    "np.abs({i})",
    "np.max({i})",
    "{i}[::-1]",
    "np.bincount(np.abs({i}.ravel()))",
    "np.arange(int({n}))",
    "{n} + 1",
    "np.where({i} > 0, {i}, 0)",
]

FLAGS = [
    "{x} > {y}",
    "{x} <= {y}",
    "{x} == {x}",
    "~{b}",
    "{b} & ({x2} > 0)",
    "{b} | {b}",
    "np.logical_not({x} > 0.5)",
    "{b} * {s}",
    "{b}.sum()",
    "np.isclose({x}, {y})",
    "np.signbit({x})",
]

CASTS = [
    "{x}.astype(np.float32)",
    "{x}.astype(np.float64)",
    "{x} * np.float32(1.5)",
    "{x} + np.float64(0.25)",
    "np.sum({x}, dtype=np.float32)",
    "{b}.astype(float)",
    "{i}.astype(np.float32)",
    "{x} * {i2}",
    "{x} + {n}",
    "np.zeros_like({x}, dtype=np.float32)",
    "np.zeros_like({x}, shape={shape})",
    "np.ones_like({i}, dtype=float)",
]

WRITES = [
    "{w}[{index}] = {y}",
    "{w}[{index}] = {s}",
    "{w}[{index}] += {s}",
    "{w}[{index}] *= {x2}",
    "{w}[{index}] -= {w}[{index}]",
    "{w}[1:] = {w}[:-1]",
    "{w}[:-1] += {w}[1:]",
    "{w}[::-1] = {w}",
    "{w}[...] = {y}",
    "{w}[{fancy}] = {s}",
    "{w}[{fancy}] = {y}",
    "{w}[{fancy}] += {s}",
    "{w}[{mask}] = {s}",
    "{w}[{mask}] *= {s}",
    "{w}[{mask}] = {w}[{mask}] ** 2",
    "{w} += {y}",
    "{w} *= {y}",
    "{w} /= np.abs({y}) + 0.5",
    "{w} **= 2",
    "{w} %= 0.7",
    "np.add({w}, {y}, out={w})",
    "np.multiply({x2}, {s}, out={w})",
    "np.exp(-{x2}, out={w})",
    "np.multiply({w}, {y}, out={w}, where={c})",
    "np.copyto({w}, {y})",
    "np.copyto({w}, {s}, where={c})",
    "np.add.at({w}, {places}, {s})",
    "np.fill_diagonal({w}, {s})",
    "np.put({w}, [0, -1], {s})",
    "np.clip({w}, -0.8, 0.8, out={w})",
    "np.cumsum({w}, axis=0, out={w})",
    "{w}.fill({s})",
    "{w}.sort()",
    "{w}.reshape(-1)[{bit}] = {s}",
    "{w}.ravel()[{bit}:] *= {s}",
    "{w}.T[{bit}] = {s}",
    "{w}.flat[{bit}] = {s}",
    "{w}[{index}][{bit}:] = {s}",
    "{w}[{index}, ...].fill({s})",
    "{w}[0], {w}[-1] = {w}[-1], {w}[0]",
    "np.maximum({w}, {y}, out={w})",
]

FUNCTIONS = [
    "(lambda t: t * {s} + {x2})({x})",
    "np.stack([np.sum(t * {s}) for t in {v}])",
    "[t for t in {v}][-1]",
    "dict(a={x}, b={s})['a']",
    "{x} if {cond} else {y}",
    "len({v}) * {s}",
    "{v}.shape[0] * {v}",
    "{x} * {n}",
    "{v}[{n} % len({v})]",
    "np.apply_along_axis(np.sum, {axis}, {v})",
]

STEPS = [
    SMOOTH,
    SMOOTH,
    KINKED,
    REDUCTIONS,
    REDUCTIONS,
    SHAPING,
    SHAPING,
    JOINING,
    INDEXING,
    INDEXING,
    ORDER,
    PRODUCTS,
    INTEGERS,
    FLAGS,
    CASTS,
    WRITES,
    WRITES,
    WRITES,
    FUNCTIONS,
]

# ---- blocks: how they begin

BLOCKS = [
    ["if {cond}:"],
    ["if {cond}:", "if {cond} and {cond}:", "if not {cond}:"],
    [
        "for {new} in range(3):",
        "for {new} in range({n}):",
        "for {new} in {v}:",
        "for {new} in range(len({v})):",
        "for {new}, {new} in enumerate({v}):",
        "for {new}, {new} in zip({v}, {v2}):",
        "for {new} in ({s}, {s}):",
        "for {new} in reversed(range(2)):",
    ],
    [
        "{count} = 0\nwhile {counter} < 4 and {cond}:\n    {counter} += 1",
        "{count} = 0\nwhile {counter} < min({n}, 4):\n    {counter} += 1",
    ],
]

# ---- what goes into the holes; `hole.x` is the value of the main operand


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


def places(hole: Any) -> str:
    """A list of places on an axis, some of them twice; or a name of integers."""
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


def fresh(prefix: str) -> Callable[[Any], str]:
    return lambda hole: hole.grower.fresh(prefix)


HOLES: dict[str, Callable[[Any], str | None]] = {
    **{name: named(fits) for name, fits in MAIN.items()},
    "x2": named(MAIN["x"]),
    "v2": named(MAIN["v"]),
    "i2": named(MAIN["i"]),
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
    "flag": lambda hole: hole.one_of("False", "True"),
    "bit": lambda hole: hole.one_of("0", "1"),
    "int": lambda hole: hole.one_of("1", "0", "-1", "2"),
    "int2": lambda hole: hole.one_of("2", "(2, 1)", "(1, 2)"),
    "new": fresh("t"),
    "count": fresh("k"),
    "counter": lambda hole: f"k{hole.grower.count}",
}
