"""Tapes that are one function of Python's: numbers have the bits and types that NumPy gives."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.backends.numpy import rounds
from tapegrad.backends.numpy.lives import nan_masks, reads
from tapegrad.backends.numpy.play import Script, run, straight
from tapegrad.core.handlers import quiet
from tapegrad.errors import UnsupportedError
from tapegrad.ir.tape import Aval, Builder, Literal, Var
from tapegrad.primitives.base import DECLARED, Elementwise, Slice
from tapegrad.primitives.elementwise import (
    AsType,
    add,
    div,
    equal,
    exp,
    isnan,
    less,
    logical_and,
    mul,
    neg,
    where,
)
from tapegrad.primitives.scatter import SetItem
from tapegrad.primitives.views import GetItem

NUMBERS = {
    "f8": [0.0, -0.0, 1.5, -2.0, 3.0, np.inf, -np.inf, np.nan, 1e308, 5e-324],
    "f4": [0.0, -0.0, 1.5, -2.0, np.inf, np.nan, 3e38],
    "i8": [0, 1, -7, 2**62, -(2**63)],
    "b1": [False, True],
    "c16": [0j, 1 - 2j, complex(np.inf, 0)],
}
F8, B1 = Aval((), np.dtype(float)), Aval((), np.dtype(bool))
PLACES = ["{0}", "{1}", "{2}"]
OPERATORS = [
    p
    for p in DECLARED.values()
    if isinstance(p, Elementwise) and (p.scalar_text(PLACES) or p.quick_text(PLACES))
]


def of_one_call(primitive, avals):
    builder = Builder("f")
    return builder.finish(builder.call(primitive, list(map(builder.input, avals))))


@quiet
def evaluated(tape, xs):
    """What the calls of a tape give, one by one."""
    values = dict(zip(tape.inputs, xs, strict=True))
    for call in tape.calls:
        given = [values[x] if isinstance(x, Var) else x.value for x in call.operands]
        values[call.outs[0]] = call.primitive.evaluate(*given)
    return [values[x] for x in tape.outputs]


def same(tape, xs, expected=None):
    """Both ways to play a tape give the same types and bits, which may be known."""
    ways = [straight(tape)(*xs), run(tape, xs)[0], *([[expected]] if expected is not None else [])]
    if all(call.primitive.results == 1 and not call.primitive.tapes for call in tape.calls):
        ways.append(evaluated(tape, xs))
    for found in zip(*ways, strict=True):
        one, *others = [x if np.shape(x) else x[()] for x in found]
        for other in others:
            assert type(one) is type(other), (xs, found)
            assert one.dtype == other.dtype and one.tobytes() == other.tobytes(), (xs, found)


@pytest.mark.parametrize("primitive", OPERATORS, ids=str)
def test_operators_are_numpys(primitive):
    for kind, numbers in NUMBERS.items():
        for count in (1, 2, 3):
            avals = [Aval((), np.dtype(kind))] * count
            if primitive.name == "where":
                avals[:1] = [B1]
            try:
                tape = of_one_call(primitive, avals)
                with np.errstate(all="ignore"):
                    one = primitive.evaluate(*[x.dtype.type(1) for x in avals])
                if one.dtype != tape.outputs[0].dtype:  # operands of it are never such numbers
                    continue
            except (TypeError, ValueError, UnsupportedError):
                continue
            for xs in itertools.islice(itertools.product(numbers, repeat=count), 120):
                operands = [x.dtype.type(v) for x, v in zip(avals, xs, strict=True)]
                with np.errstate(all="ignore"):
                    expected = primitive.evaluate(*operands)
                same(tape, operands, expected)


def test_numbers_that_are_read_once_stand_where_they_are_read():
    """As operands of numbers, functions, updates and loops; and quotients by zero are NumPy's."""
    builder = Builder("f")
    x, y, a = builder.input(F8), builder.input(F8), builder.input(Aval((4,), np.dtype(float)))

    def call(primitive, *xs):
        return builder.call(primitive, xs)[0]

    product = call(mul, x, Literal(np.float64(3.0)))
    ratio = call(div, call(add, product, y), call(mul, x, y))
    side = call(where, call(less, ratio, x), call(neg, ratio), call(exp, call(mul, y, y)))
    element = call(GetItem((2,)), a)
    written = call(SetItem((1,)), call(mul, a, a), call(mul, element, side))
    put = call(SetItem(()), call(add, x, y), call(div, element, x))
    part = call(mul, call(GetItem((Slice(0, 2),)), written), call(add, x, x))
    tape = builder.finish([written, part, put, call(AsType(np.dtype(np.float32)), put), element])
    for xs in itertools.product(NUMBERS["f8"], repeat=2):
        same(tape, [*map(np.float64, xs), np.array([1.0, -0.0, np.nan, 4.0])])


ZERO = Literal(np.float64(0.0))


def masked(builder, is_zero, x):
    """What `differentiate.masks` makes of a contribution."""
    test = builder.call(logical_and, [is_zero, *builder.call(isnan, [x])])
    return builder.call(where, [*test, ZERO, x])[0]


def test_zeros_of_small_arrays_stand():
    """Where there is no NaN a contribution is what it was, but one whose cotangent is written to
    before is worked out where it stands."""
    array = Aval((4,), np.dtype(float))
    builder = Builder("f")
    ct, x, y = [builder.input(array) for _ in range(3)]
    (product,) = builder.call(mul, [ct, x])
    (power,) = builder.call(mul, [y, y])
    (test,) = builder.call(equal, [ct, ZERO])
    tape = builder.finish([masked(builder, test, product), masked(builder, test, power), product])
    assert list(nan_masks(tape, reads(tape)).values()).count(None) == 5
    ct, x = np.array([0.0, -0.0, 2.0, np.nan]), np.array([np.inf, 1.0, np.nan, 0.0])
    for y in (ct, x, np.ones(4), np.array([np.nan, 1e200, -np.inf, 0.0])):
        same(tape, [ct, x, y])

    builder = Builder("g")
    x, y = builder.input(array), builder.input(array)
    (ct,) = builder.call(SetItem((2,)), [x, ZERO])
    found = masked(builder, *builder.call(equal, [ct, ZERO]), *builder.call(mul, [y, y]))
    tape = builder.finish([*builder.call(SetItem((1,)), [ct, Literal(np.float64(3.0))]), found])
    assert nan_masks(tape, reads(tape)) == {}
    same(tape, [np.zeros(4), np.full(4, np.nan)])


def test_zeros_of_numbers_stand():
    """A mask of four calls is one step, and no more than a comparison."""
    number = Aval((), np.dtype(float))
    builder = Builder("f")
    ct, x = builder.input(number), builder.input(number)
    (test,) = builder.call(equal, [ct, ZERO])
    (product,) = builder.call(mul, [ct, x])
    (power,) = builder.call(mul, [x, x])
    first, second = masked(builder, test, product), masked(builder, test, power)
    tape = builder.finish([*builder.call(add, [first, second]), second, product])
    assert len(tape.calls) == 10
    assert len(Script(tape).steps) == 5
    for xs in itertools.product(NUMBERS["f8"], repeat=2):
        same(tape, [*map(np.float64, xs)])


def stepping(x, a):
    """Steps as integers, as floats, as indices, and handed to an inner loop; parts of `a`."""
    total, k = x, 0
    for t in range(7):
        k = (t * t + 3 * t) % 5
        far = abs(t - 4) if t > 2 else -t
        total = total * 0.5 + x ** (k % 3) * far + a[k] * t + float(t) / (t + 1)
        for s in range(t):
            total = total + (s * t) * a[1] * 0.01
    return total + k


def filtered(a, x):
    y = np.zeros(len(x))
    for t in range(2, len(x)):
        y[t] = x[t] - a[0] * y[t - 1] - a[1] * y[t - 2]
    return np.sum(y * y)


def test_steps_are_integers():
    a = np.array([0.5, -1.0, 2.0, 0.25, 3.0])
    g = tg.value_and_grad(stepping, argnums=(0, 1), compile="never")
    for x in (0.75, -2.0):
        value, (dx, da) = g(x, a)
        assert value == stepping(x, a) and type(value) is np.float64
        h = 1e-6
        found = [(stepping(x, a + h * e) - stepping(x, a - h * e)) / (2 * h) for e in np.eye(5)]
        np.testing.assert_allclose(da, found, rtol=1e-7)
        np.testing.assert_allclose(
            dx, (stepping(x + h, a) - stepping(x - h, a)) / (2 * h), rtol=1e-7
        )


def test_numbers_are_added_where_they_stand(monkeypatch):
    """In the gradient of a filter no array of zeros is made for the cotangent of a coefficient,
    and none at all for few coefficients, which are numbers in rounds."""
    texts = []
    monkeypatch.setattr(rounds, "_code", lambda *args: texts.append(args[0]) or compile(*args))
    x, h = np.linspace(-1.0, 1.0, 30) ** 3, 1e-6
    for n in (8, 2):
        a = np.append([-0.5, 0.2], np.ones(n - 2))
        _, found = tg.value_and_grad(filtered, compile="never")(a, x)
        slopes = [(filtered(a + h * e, x) - filtered(a - h * e, x)) / (2 * h) for e in np.eye(n)]
        np.testing.assert_allclose(found, slopes, rtol=1e-7)
        for k in (0, 1):
            assert (f"[0:{n}][{k}] += " in texts[-1]) == (n > 2)
