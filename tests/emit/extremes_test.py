"""Every function of elements at the ends of its range: compiled it is zero, infinite or NaN where
NumPy and SciPy are, with the sign that they give."""

from __future__ import annotations

import importlib
import pkgutil

import numpy as np
import pytest

import tapegrad.primitives
from tapegrad import grad, jit
from tapegrad.ir.tape import Builder, aval_of
from tapegrad.primitives.base import Elementwise
from tapegrad.runtime.entry import flat_function

SIZES = [1e-30, 1e-16, 1e-8, 1e-4, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 8.0, 20.0]
SIZES += [37.5, 88.5, 170.5, 172.0, 709.5, 746.0, 1e4, 1e10, 1e16, 1e17, 1e30, np.inf]
LARGE = [1e-300, 1e-200, 1e-160, 1e154, 1e155, 1e200, 1e300, 2.5e305, 1e306]  # or small, of float64
# NumPy's vectors choose among zeros of both signs, the scalars that are left over otherwise.
OPEN = {"maximum", "minimum", "fmax", "fmin"}
OPEN |= {"real", "imag", "conj", "copy"}  # and these take no floats when they are compiled


def pointwise():
    """The functions with an expression, of one or two floats."""
    modules = pkgutil.iter_modules(tapegrad.primitives.__path__)
    found = {}
    for module in modules:
        values = vars(importlib.import_module(f"tapegrad.primitives.{module.name}")).values()
        found |= {x.name: x for x in values if isinstance(x, Elementwise) and x.scalar}
    return [found[name] for name in sorted(found)]


def extremes(dtype):
    kind = np.finfo(dtype)
    least = kind.smallest_subnormal
    sizes = [0.0, least, 3 * least, kind.smallest_normal / 8, 0.999 * kind.smallest_normal]
    sizes += [kind.smallest_normal, 4 * kind.smallest_normal, 1 - kind.eps, 1 + kind.eps]
    sizes += [kind.max / 4, kind.max, *SIZES, *(LARGE if dtype == np.float64 else [])]
    x = np.unique(np.array(sizes, dtype))
    return np.concatenate([x, -x, [np.nan]]).astype(dtype)


def operands_of(primitive, x):
    """The whole range for one operand, or for two; None if it takes neither."""
    few = x[:: len(x) // 20]
    for xs in ([x], [y.ravel() for y in np.meshgrid(few, few)]):
        try:
            kinds = {np.asarray(primitive.evaluate(*xs)).dtype.kind}
            kinds |= {x.dtype.kind for x in primitive.avals(*map(aval_of, xs))}
        except (TypeError, ValueError):
            continue
        return xs if kinds == {"f"} else None
    return None


def kind_of(x):
    """0 for zeros, 1 for finite numbers, 2 for infinities, 3 for NaN."""
    return np.select([np.isnan(x), np.isinf(x), x == 0], [3, 2, 0], 1)


@pytest.mark.every(2)
@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["f8", "f4"])
def test_zeros_infinities_and_signs_are_those_of_numpy(dtype):
    """What `evaluate` gives, which is NumPy's and SciPy's, and the compiled loops agree in kind."""
    builder, values, wanted, outs = Builder("extremes"), [], {}, []
    with np.errstate(all="ignore"):
        for primitive in pointwise():
            xs = operands_of(primitive, extremes(dtype))
            if xs is None or primitive.name in OPEN:
                continue
            inputs = [builder.input(aval_of(x)) for x in xs]
            values += xs
            outs += builder.call(primitive, inputs)
            wanted[primitive.name] = xs, primitive.evaluate(*xs)
    assert len(wanted) > 50
    found = flat_function(builder.finish(outs))(*values)
    for (name, (xs, exact)), y in zip(wanted.items(), found, strict=True):
        kind = kind_of(exact)
        same = (kind_of(y) == kind) & ((kind == 3) | (np.signbit(y) == np.signbit(exact)))
        at = np.flatnonzero(~same)[:5]
        assert not at.size, f"{name} of {[x[at] for x in xs]} is {y[at]}, not {exact[at]}"


def counted(x):
    """A loop whose branch is taken where the small number was lost on the way."""
    lost = 0.0
    for v in x:
        if v * 2.0**-600 * 2.0**600 == 0.0:
            lost = lost + 1.0
    return lost


PROGRAMS = {
    "scaled": lambda x: x * 2.0**-600 * 2.0**600,
    "scaled up": lambda x: x * 2.0**600 * 2.0**600 * 2.0**-700,
    "divided": lambda x: x / 2.0**600 * 2.0**600,
    "divided by a small number": lambda x: x / 2.0**-1030,
    "branch": counted,
    "running sum": lambda x: 1.0 / np.cumsum(-0.0 * np.abs(x)),
    "sum": lambda x: 1.0 / np.sum(-0.0 * np.abs(x)),
    "sum over no axis": lambda x: 1.0 / np.sum(-0.0 * np.abs(x), axis=()),
    "sum from -0.0": lambda x: 1.0 / np.sum(-0.0 * np.abs(x), initial=-0.0),
    "sum from -0.0 of some": lambda x: 1.0 / np.sum(0.0 * x, where=x < 0, initial=-0.0),
    "sum from -0.0 of both zeros": lambda x: 1.0 / np.sum(0.0 * x, initial=-0.0),
    "sum from a traced zero": lambda x: 1.0 / np.sum(-0.0 * np.abs(x), initial=-0.0 * x[0]),
    "sum from -0.0 of nothing": lambda x: 1.0 / np.sum(x[:0], initial=-0.0),
    "sums of runs": lambda x: 1.0 / np.add.reduceat(0.0 * x, [1, 0, 1, 2]),
}


@pytest.mark.parametrize("compile", ["always", "never"])
def test_programs_at_the_ends_of_the_range(compile):
    """Played and compiled, products of small and large numbers are NumPy's, and so are the signs of
    sums of zeros."""
    x = np.array([1e-200, -1e-200, 1e200, 5e-324, 3.0])
    with np.errstate(all="ignore"):
        found = jit(lambda x: [f(x) for f in PROGRAMS.values()], compile=compile)(x)
        for (name, f), y in zip(PROGRAMS.items(), found, strict=True):
            np.testing.assert_array_equal(y, f(x), err_msg=name)


@pytest.mark.parametrize("compile", ["always", "never"])
def test_sums_of_negative_zeros_have_the_slopes_of_sums(compile):
    zeros = np.full(3, -0.0)
    by = grad(lambda x: np.sum(x, initial=x[0]) + np.sum(x, initial=-0.0), compile=compile)(zeros)
    np.testing.assert_array_equal(by, [3.0, 2.0, 2.0])
    runs = grad(lambda x: np.sum(np.add.reduceat(x, [0, 1]) * [2.0, 3.0]), compile=compile)(zeros)
    np.testing.assert_array_equal(runs, [2.0, 3.0, 3.0])
