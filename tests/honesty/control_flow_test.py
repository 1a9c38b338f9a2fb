"""Control flow"""

from __future__ import annotations

import math
import warnings
from array import array
from collections import OrderedDict, defaultdict
from functools import lru_cache, singledispatch
from typing import Any

import numpy as np
import pytest
from scipy import special
from tests.debugged import unobserved
from tests.honesty.check import refused

from tapegrad import grad, jit, stop_gradient, vjp
from tapegrad.errors import ConversionError, GradientError

X = np.array([1.0, -2.0, 3.0])
Y = np.array([-1.5, 2.5, 0.5])

# ---- branches


def test_an_if_that_flips(derivative):
    """an `if` on a traced value takes the other branch -> traced anew"""
    df = derivative(lambda x: x**2 if x > 0 else -(x**3))
    df.at(3.0)
    df.at(-1.0)
    df.at(2.0)


def test_a_flip_in_the_tenth_call(derivative):
    """a branch flips only in the tenth call -> traced anew then"""
    df = derivative(lambda x: x**3 if x < 9.5 else x**2)
    for k in range(12):
        df.at(float(k))


def test_and_or_not(derivative):
    """`and`, `or`, `not` on traced values -> short circuits as in Python, each part guarded"""

    def f(x, y):
        if x > 0 and y > 0:
            return x**2 * y
        if not (x > 0 or y > 0):
            return x**3 + y
        return x * (x or y) ** 2 + y

    df = derivative(f)
    for x, y in [(1.0, 2.0), (-1.0, -2.0), (1.0, -2.0), (-1.0, 2.0), (3.0, 1.0)]:
        df.at(x, y)


def test_chained_comparison(derivative):
    """a chained comparison, `0 < x <= 1` -> both parts guarded"""
    df = derivative(lambda x: x**2 if 0 < x <= 1 else x**3)
    for x in (0.5, 2.0, -1.0, 0.25):
        df.at(x)
    df.at(1.0, gradient=2.0)


def test_nested_branches_and_early_returns(derivative):
    """branches in branches and early returns -> a trace for each path taken"""

    def f(x):
        if x[0] > 0:
            if x[1] > 0:
                return np.sum(x**2)
            x = x * 2
        return np.sum(x**3)

    df = derivative(f)
    for a in (1.0, -1.0):
        for b in (2.0, -2.0):
            df.at(np.array([a, b]))
    df.at(np.array([0.5, 0.5]))


def test_match(derivative):
    """`match` on a traced number: values, guards and classes -> the case that plain Python takes"""

    def f(x, n):
        match n:
            case 0:
                return x**2
            case 1 | 2:
                return x**3
            case int(k) if k > 5:
                return x * k
        match x:
            case 2.0:
                return x**4
            case float():
                return x**5
        return x

    df = derivative(f)
    for x, n in [(1.5, 0), (1.5, 2), (1.5, 7), (2.5, 3), (1.5, 1), (1.5, 0)]:
        df.at(x, n)


def test_truth_of_an_array(derivative):
    """`if x:` for an array of one element -> its truth; of several -> NumPy's own error"""
    df = derivative(lambda x: np.sum(x**2) if x else np.sum(x**3 + x))
    df.at(np.array([2.0]))
    df.at(np.array([[-1.0]]))
    with pytest.raises(ValueError, match="truth value of an array with more than one element"):
        df.call(np.array([1.0, 2.0]))


def test_all_and_any(derivative):
    """`np.all`, `np.any` and their methods in an `if` -> one guard on the answer"""

    def f(x):
        if np.all(x > 0):
            return np.sum(x**2)
        return np.sum(x**3) if (x > 2).any() else np.sum(x**4)

    df = derivative(f)
    df.at(np.array([1.0, 2.0]))
    df.at(np.array([-1.0, 3.0]))
    df.at(np.array([-1.0, 1.0]))
    df.at(np.array([2.0, 1.0]))


def test_comparisons_of_arrays(derivative):
    """`np.array_equal`, `np.allclose` and `x in y` in an `if` -> guarded"""

    def f(x, y):
        if np.array_equal(x, y):
            return np.sum(x**2)
        return np.sum(x**3) if np.allclose(x, y, atol=0.5) else np.sum(x**4) * (2.0 in x)

    df = derivative(f)
    for y in (X, X + 0.25, X + 5.0, X):
        df.at(X, y, gradient=[2 * X, 3 * X**2, 0 * X][min(2, int(4 * (y - X)[0]))])


@pytest.mark.parametrize("x", [0.0, -0.0, np.nan, np.inf, -np.inf, 5e-324])
def test_equality_with_zero(derivative, x):
    """a guard on float equality, at 0.0, -0.0, nan, infinities and denormals -> as in NumPy"""
    df = derivative(lambda x: x * 2 if x == 0 else x * 3)
    for at in (1.0, x, 1.0, x):
        df.at(np.float64(at), gradient=2.0 if at == 0 else 3.0)


def test_signs_of_zeros_and_nans_decide(derivative):
    """a branch on `np.signbit` or `np.isnan` -> -0.0 isn't taken for 0.0, nor nan for a number"""
    df = derivative(lambda x: 2 * x if np.signbit(x) else 4 * x if np.isnan(x) else 3 * x)
    for x, d in [(0.0, 3.0), (-0.0, 2.0), (np.nan, 4.0), (0.0, 3.0), (-0.0, 2.0)]:
        df.at(np.float64(x), gradient=d)


# ---- loops


def test_while(derivative):
    """a `while` whose number of rounds depends on a value -> each call makes its own"""

    def f(x):
        while x < 10:
            x = x * x
        return x

    df = derivative(f)
    for x in (3.0, 1.5, 20.0, 2.5):
        df.at(x)


def test_a_loop_until_convergence(derivative):
    """a loop that runs until it converges -> each call runs its own number of rounds"""

    def f(a):
        x = a
        while abs(x * x - a) > 1e-9:
            x = (x + a / x) / 2
        return x

    df = derivative(f)
    for a in (2.0, 900.0, 2.5):
        df.at(a)


def test_ranges_and_lengths(derivative):
    """`for` over `range(n)` and `range(len(x))` -> another count or length is traced anew"""

    def f(x, n):
        total = 0.0
        for k in range(len(x)):
            total = total + (k + 1) * x[k] ** 2
        for _ in range(n):
            total = total * x[0]
        return total

    df = derivative(f)
    for x, n in [(X, 2), (X, 3), (X[:2], 3), (X, 0), (X, 2)]:
        df.at(x, n)


def test_iterating_a_traced_array(derivative):
    """`for row in x`, `zip`, `reversed`, unpacking -> rows are traced; other shapes, traced anew"""

    def f(x):
        total = 0.0
        for k, (row, other) in enumerate(zip(x, reversed(x), strict=True)):
            first, *rest = row
            total = total + (k + 1) * first * np.sum(other**2) + sum(rest)
        return total

    df = derivative(f)
    rng = np.random.default_rng(0)
    for shape in ((2, 3), (3, 2), (2, 3)):
        df.at(rng.normal(size=shape))


def test_comprehension_filters(derivative):
    """filters in comprehensions and generators, lists that branches append to -> for numbers any
    choice is one trace while the list is summed, counted, gone through, or made an array; after
    other uses, of tuples and of arrays, each number of entries has a trace; of parts of arrays
    each choice"""

    def f(x):
        total = sum(v**2 for v in x if v > 0)
        total = total + sum([v**3 for v in x if not v > 0])
        kept = []
        for v in x:
            if v > -1:
                kept.append(v**4)
        return total + np.sum(kept)

    df = derivative(f)
    df.at(X)
    df.at(Y)
    df.at(X)


def test_breaks(derivative):
    """`break` and `continue` -> each choice is guarded"""

    def f(x):
        total = 0.0 * x[0]
        for v in x:
            if v < -1:
                continue
            if v > 2:
                break
            total = total + v**4
        return total

    df = derivative(f)
    df.at(X)
    df.at(Y)
    df.at(X)


def test_recursion(derivative):
    """recursion that ends by a value -> each depth is traced"""

    def f(x):
        return x if x > 8 else f(x * x)

    df = derivative(f)
    for x in (2.0, 1.2, 9.0, 3.0):
        df.at(x)


# ---- Python's functions on traced numbers


def test_min_max_sorted(derivative):
    """Python's `min`, `max`, `sorted` -> as in Python; `sorted` is one trace for all orders"""

    def f(x):
        low, middle, high = sorted(x)
        return max(x) ** 2 * low + min(x[0], x[1]) ** 3 + middle * high + sorted(x, key=abs)[0] ** 2

    df = derivative(f)
    df.at(X)
    df.at(Y)
    df.at(X + 0.25)


def test_types_of_numbers_that_branches_leave(derivative):
    """a branch leaves Python's integer or a float: `max(0, v)`, `0 if v > 1 else v` -> the type
    that plain Python leaves; where the branches of a loop's rounds leave either, a float64"""
    functions = [
        lambda v: max(0, v),
        lambda v: min(max(v, 0), 1),
        lambda v: 0 if v > 1 else v,
        lambda v: sorted([0, v, 2])[1],
        lambda v: next((k for k in [1, 2] if v < k), 0),
        lambda v: np.array([max(0, v), 1]),
        lambda v: np.ones(2, np.float32) * max(0, v),
    ]

    def clipped(v):
        s = 0
        for k in range(5):
            s = v * k if v > k else 0
        return s

    for how in ("never", "always"):
        for f in functions:
            played = jit(f, compile=how)
            for v in (-2.0, 0.5, np.float64(3.0), np.float32(1.5), 2):
                found, plain = np.asarray(played(v)), np.asarray(f(v))
                assert found.dtype == plain.dtype
                np.testing.assert_array_equal(found, plain)
        found = jit(clipped, compile=how)(2.0)
        assert found == clipped(2.0)
        assert found.dtype == np.float64


def test_membership(derivative):
    """`x in list` and `list.index(x)` -> each comparison is guarded"""
    df = derivative(lambda x: x**2 * [3.0, x].index(x) if x in [1.0, 2.0] else x**3)
    df.at(1.0, gradient=2.0)
    df.at(5.0)
    df.at(2.0, gradient=4.0)
    df.at(4.0)


def test_integers_of_a_traced_number(derivative):
    """`int(x)`, `round(x)`, `math.floor`, `math.ceil`, `math.trunc`, `x.item()` -> a traced integer
    without a derivative; where it decides a shape, or goes into C, it is guarded"""

    def f(x):
        return x**2 * int(x) + x * round(x) + x**3 * math.floor(x) * math.ceil(x) * math.trunc(x)

    df = derivative(f)
    for x in (2.25, 2.75, -2.25, 2.3):
        df.at(x)
        df.at(np.float64(x))


def test_integers_of_a_traced_number_are_indices(derivative):
    """`table[int(x / step)]`, in loops too -> one trace"""
    table = np.sin(np.arange(12.0))

    def interpolated(x):
        total = 0.0
        for v in x:
            k = int(v / 0.5)
            part = v / 0.5 - k
            total = total + table[k] * (1 - part) + table[k + 1] * part
        return total * x[np.argmax(x).item()]

    df = derivative(interpolated)
    for x in ([0.3, 1.7, 4.1], [4.2, 0.1, 2.6], [3.3, 2.2, 5.1]):
        df.at(np.array(x))
    assert (df.outer if df.how == "nested" else df.d).cache_info().traces == 1
    with pytest.raises(IndexError):
        df.call(np.array([7.0, 1.0, 1.0]))


def test_integers_of_a_traced_number_that_64_bits_do_not_hold(derivative):
    """`int(x)` of NaN, or of a number that 64 bits don't hold -> Python's error or integer"""

    def f(x, y):
        try:
            n = int(x)
        except (ValueError, OverflowError) as error:
            return y**2 * len(str(error))
        return y * float(n * n % 1000)

    df = derivative(f)
    for x in (3.5, 4e9, 4e18, -7e30, np.nan, np.inf, 2.5):
        df.at(x, 1.5, gradient=0.0)


def test_divmod_decides(derivative):
    """`//`, `%` and `divmod` decide a branch -> as in Python, for negative numbers too"""

    def f(x):
        whole, rest = divmod(x, 2)
        if x // 3 == 1:
            return x**2 * rest
        return x**3 + rest**2 if whole % 2 == 1 else x**4

    df = derivative(f)
    for x in (4.5, 7.5, 1.5, -1.5, -4.5, 3.5):
        df.at(x)


def test_arithmetic_of_integers_becomes_a_float(derivative):
    """`math.sqrt(n / 2)` and `float(n)` of an integer argument -> a number that is guarded"""
    df = derivative(lambda x, n: x**2 * math.sqrt(n / 2) + x * float(n))
    for n in (2, 3, 2):
        df.at(1.5, n)


def test_an_integer_exponent(derivative):
    """an integer argument as an exponent, of any sign -> guarded until another one comes, then
    recorded"""
    base = np.array([2.0, 3.0])
    df = derivative(lambda x, n: x**n * 2**n + np.sum(x * base**n))
    for n in (2, -1, 0, 3, 2):
        df.at(1.5, n)


def test_integers_that_are_looked_up(derivative):
    """an integer argument, or an argmax, is looked up in a dict or a set -> guarded"""
    table = {0: 2.0, 1: 3.0, 2: 5.0}

    def f(x, n):
        scale = table[n] * table.get(n + 1, 7.0) * (11.0 if n in {0, 2} else 1.0)
        return np.sum(x**3) * scale * table[np.argmax(x)]

    df = derivative(f)
    for n in (0, 1, 2, 0):
        df.at(np.array([1.0, 2.0]), n)
    df.at(np.array([2.0, 1.0]), 0)


def test_values_of_keys(derivative):
    """an array, a list or a tuple is a value in `dict(a=x)`, `d.update(a=x)`, `dict(**d)`,
    `dict.fromkeys(names, x)` or `d.get(name, x)` -> it stays what it is"""

    def f(x, n):
        parts = [x[0]]
        d = dict({"m": x}, a=x, parts=parts, pair=(x, n))
        parts.append(x[1] * n)
        d.update(more=2 * x, both=(x, parts))
        d = dict(**d)
        e = dict.fromkeys("cd", x**2)
        found = d.get("none", x) + e.setdefault("e", x**3) + dict.get(e, "none", x)
        assert d["parts"] is d["both"][1] and type(d["pair"]) is tuple
        return np.sum(d["a"] * d["more"] + e["d"] + found) * sum(d["parts"]) * d["pair"][1]

    df = derivative(f)
    for n in (1, 2, 1):
        df.at(np.array([1.0, 2.0]), n)


def test_integers_that_are_remembered(derivative):
    """an integer is kept as a key of a dict, in a set or by functools.lru_cache -> guarded: what is
    kept is the plain integer"""

    @lru_cache
    def remembered(n):
        return 2 * n

    def f(x, n):
        known, seen = {n: x[0]}, {n, n + 1}
        known = defaultdict(list, OrderedDict([(n, known[n])]))
        known = OrderedDict(defaultdict(list, [(n, known[n])]))

        def power(k):
            if k not in known:
                known[k] = x[1] * power(k - 1)
            return known[k]

        result = power(n + 3) * remembered(n) * len(seen | {2})
        assert {type(k) for k in (*known, *seen)} == {int}
        return result

    df = derivative(f)
    for n in (0, 1, 2, 0):
        df.at(np.array([1.5, 2.0]), n)


def test_real_numbers_that_are_remembered(derivative):
    """a real number that nothing is differentiated by is such a key, or is computed of some -> they
    are guarded"""
    widths = lru_cache(lambda s: 2 * s)
    kept = {1.5: 3.0, 2.0: 5.0}

    def f(x, t, knots):
        groups = {}
        for knot, y in zip(knots, x, strict=True):
            groups.setdefault(knot, []).append(y**2)
        sums = [sum(group) * (k + 1) for k, group in enumerate(groups.values())]
        scale = (
            widths(0.5 * np.exp(t) + knots[0]) * kept[t] * len({t, 2 * t, 3.0}) * len(set(knots))
        )
        assert {type(k) for k in groups} == {np.float64} and len({t: 1} | {1.5: 1}) == 1 + (
            t != 1.5
        )
        return sum(sums) * scale

    df = derivative(f)
    for t, knots in [(1.5, [1.0, 2.0]), (2.0, [1.0, 2.0]), (1.5, [3.0, 3.0]), (2.0, [1.0, 2.0])]:
        df.at(np.array([1.0, 2.0]), t, np.array(knots))


def test_a_key_that_needs_no_derivative(derivative):
    """`stop_gradient` of what is differentiated by is such a key -> guarded"""
    kept = {}

    def f(x):
        return x**2 * kept.setdefault(round(stop_gradient(x), 3), 2.0)

    df = derivative(f)
    for x in (1.5, 2.5, 1.5):
        df.at(x)
    assert {type(k) for k in kept} == {float}


def test_numbers_that_are_remembered():
    """a real number that is differentiated by is such a key, or is looked up -> error with the
    line"""
    remembered = lru_cache(lambda x: 2.0)
    kept = {1: 2.0, 1.5: 2.0}
    for f in [
        lambda x: x * remembered(x),
        lambda x: x * len({x: 1}),
        lambda x: x * len({x}),
        lambda x: x * kept[x],
        lambda x: kept.setdefault(x, 1.0),
        lambda x: x * len({2 * x}),
        lambda x: x * len({np.exp(x): 1}),
    ]:
        with refused(ConversionError, "is the key of a dict"):
            grad(f)(1.5)


def test_a_table_of_results(derivative):
    """a decorator remembers results where arguments can be hashed, and computes them where not ->
    computed: what was remembered has no derivative"""
    known = {}

    def power(*args):
        try:
            if args not in known:
                known[args] = args[0] ** args[1]
            return known[args]
        except TypeError:
            return args[0] ** args[1]

    power(1.5, 3.0)
    df = derivative(lambda x: power(x, 3.0))
    df.at(1.5)
    df.at(2.5)


def test_a_float_of_a_traced_number(derivative):
    """`float(x)` of a traced real -> a traced float"""
    df = derivative(lambda x: float(x) ** 2 * isinstance(float(x), float))
    df.at(2.0)
    df.at(np.float64(-1.5))


def test_a_plain_float_in_c():
    """`array.array("d", x)` of traced reals, or `float(x)` under a debugger -> error with the
    line"""
    with refused(TypeError, "plain Python float", "lambda x:", "NumPy's functions"):
        grad(lambda x: array("d", [x])[0])(np.float64(2.0))
    with refused(TypeError, "plain Python float", "lambda x:", "NumPy's functions"):
        unobserved(grad(lambda x: float(x) ** 2))(np.float64(2.0))
    assert vjp(lambda x: float(x) ** 2, np.float64(2.0))[1](1.0) == (4.0,)


def test_functions_of_the_math_module(derivative):
    """`math.exp(x)`, `math.log(x)` of a traced real -> traced; their errors are branches"""

    def f(x):
        try:
            return math.log(x) * math.hypot(x, 2.0) + math.sin(x) ** 2
        except ValueError:
            return math.exp(x) * 2

    df = derivative(f)
    df.at(2.0)
    df.at(0.5)
    df.at(-1.0)
    df.at(-0.5)
    df.at(3.0)


def test_errors_of_floating_point(derivative):
    """an error of floating point under `np.errstate(all="raise")` is caught -> guarded"""

    def f(x):
        try:
            with np.errstate(all="raise"):
                y = np.zeros_like(x)
                y[...] = 1 / x
                return np.sum(y) + np.mean(x * x) + x.sum()
        except FloatingPointError:
            return np.sum(x**3)

    df = derivative(f)
    df.at(np.array([1.0, 2.0]))
    df.at(np.array([1.0, 0.0]), gradient=np.array([3.0, 0.0]))
    df.at(np.array([3.0, 2.0]))
    df.at(np.array([1e-200, 2.0]), gradient=np.array([0.0, 12.0]))
    df.at(np.array([1.0, -2.0]))


def test_each_kind_of_error_is_guarded():
    """the same for one kind of error alone, for casts, methods, functions and out= -> guarded"""
    operations = [
        lambda x: np.exp(x),
        lambda x: x.astype("f4"),
        lambda x: np.add(x, x, out=np.zeros_like(x)),
        lambda x: np.log(x),
        lambda x: np.linalg.norm(x),
        lambda x: x.prod(keepdims=True),
        lambda x: np.multiply.reduce(x),
        lambda x: x / x[::-1],
        lambda x: np.sqrt(x),
    ]
    points = [[1.0, 2.0], [0.0, 0.0], [1e308, 1e308], [1e-200, 1e-200], [-1.0, 1.0], [2.0, 3.0]]
    for kind in ("all", "divide", "over", "under", "invalid"):
        for operation in operations:

            def f(x, operation=operation, kind=kind):
                try:
                    with np.errstate(all="ignore"), np.errstate(**{kind: "raise"}):
                        return np.sum(operation(x))
                except FloatingPointError as error:
                    return np.sum(x * 0.5) + len(error.args)

            played = jit(f, compile="never")
            for point in (*points, *points):
                x = np.array(point)
                with np.errstate(all="ignore"):
                    np.testing.assert_allclose(played(x), f(x), 1e-15)


def test_errors_of_special_functions(derivative):
    """an error of SciPy's functions under `scipy.special.errstate(all="raise")`, or a warning that
    is made an error, is caught -> guarded"""

    def f(x):
        try:
            with special.errstate(all="raise"):
                return np.sum(special.gammaln(x)) + special.polygamma(1, x[0])
        except special.SpecialFunctionError:
            return np.sum(x**3)

    df = derivative(f)
    df.at(np.array([1.5, 2.0]))
    df.at(np.array([1.5, 0.0]), gradient=np.array([3 * 1.5**2, 0.0]))
    df.at(np.array([3.0, 2.5]))

    def warned(x):
        with warnings.catch_warnings(), special.errstate(singular="warn"):
            warnings.simplefilter("error")
            try:
                return special.digamma(x)
            except special.SpecialFunctionWarning:
                return x

    def counted(x):
        with warnings.catch_warnings(record=True) as heard, special.errstate(singular="warn"):
            warnings.simplefilter("always")
            special.gammaln(x), special.digamma(np.array([x, x])), special.poch(x, 0.5)
        return x * len(heard)

    for g in (warned, counted):
        played = jit(g, compile="never")
        assert [played(x) for x in (1.5, -1.0, 0.0, 2.5)] == [g(x) for x in (1.5, -1.0, 0.0, 2.5)]


def test_warnings_that_are_errors():
    """a warning of NumPy's that the function makes an error, or records, and looks at -> guarded"""

    def f(x):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                y = np.log(x)
            except RuntimeWarning:
                y = x**2
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            z = np.sqrt(x)
        return np.sum(y) + (np.sum(x) if heard else np.sum(z))

    for how in ("never", "always"):
        compiled = jit(f, compile=how)
        for x in ([1.0, 2.0], [1.0, -1.0], [3.0, 2.0], [0.0, 2.0]):
            np.testing.assert_allclose(compiled(np.array(x)), f(np.array(x)), 1e-15)


def test_callbacks_for_errors():
    """`np.errstate(divide="call")` where a division by zero occurs -> error with the line"""

    def f(x):
        with np.errstate(divide="call", call=lambda kind, flags: None):
            return np.sum(1 / x)

    df = grad(f)
    np.testing.assert_allclose(df(np.array([1.0, 2.0])), [-1.0, -0.25])
    with refused(NotImplementedError, "np.errstate(divide='call')", "return np.sum(1 / x)"):
        df(np.array([1.0, 0.0]))


def test_modes_that_are_set_for_a_while():
    """`np.seterr` in the function -> nothing is traced anew while the caller's modes are the same,
    where the function sets these back"""

    def f(x):
        before = np.seterr(invalid="ignore", divide="raise")
        try:
            return np.sum(np.log(x - 1))
        except FloatingPointError:
            return np.sum(x**2)
        finally:
            np.seterr(**before)

    def for_good(x):
        np.seterr(under="raise")
        return np.sum(x**2)

    left, f_, g_ = np.geterr(), jit(f, compile="never"), jit(for_good, compile="never")
    try:
        for x in ([2.0, 3.0], [4.0, 3.0], [1.0, 2.0], [3.0, 5.0], [1.0, 4.0]):
            np.testing.assert_equal(f_(np.array(x)), f(np.array(x)))
            assert np.geterr() == left
        assert f_.cache_info().traces == 2
        for under in ("warn", "ignore", "warn"):
            np.seterr(under=under)
            assert g_(np.array(x)) == 17.0
            assert np.geterr()["under"] == "raise"
        np.seterr(**left)
        assert f_(np.array(x)) == 17.0
    finally:
        np.seterr(**left)


def test_the_modes_are_read():
    """`np.geterr` in the function, or `np.seterr` without setting back -> traced at each call"""

    def f(x):
        return np.sum(x**2) if np.geterr()["under"] == "ignore" else np.sum(x**3)

    played, x = jit(f, compile="never"), np.array([1.0, 2.0])
    assert played(x) == f(x) == 5.0
    with np.errstate(under="warn"):
        assert played(x) == f(x) == 9.0


def test_isinstance(derivative):
    """`isinstance(x, ...)` on arguments and results -> true of what it is true of untraced"""

    def f(x):
        if isinstance(x, (int, float)) and not isinstance(x, np.floating):
            return x**2
        if isinstance(x, np.ndarray) and isinstance(x[0], np.float64):
            return np.sum(x**3)
        return x**4 if isinstance(x, np.float64) and np.isscalar(x) else x * 1.0

    df = derivative(f)
    for x, slope in [
        (3.0, 6.0),
        (np.float64(3.0), 108.0),
        (np.array([3.0, 2.0]), [27.0, 12.0]),
        (2.0, 4.0),
    ]:
        df.at(x, gradient=np.array(slope))


@singledispatch
def _energy(x: Any) -> Any:
    return np.sum(x**2)


@_energy.register
def _(x: float) -> Any:
    return x**3


def test_other_ways_to_ask_for_the_kind(derivative):
    """`singledispatch`, `hasattr(x, "__len__")`, `np.iterable` -> as untraced"""

    def f(x):
        size = len(x) if hasattr(x, "__len__") else 7
        return _energy(x) * size * (2 if np.iterable(x) else 3)

    df = derivative(f)
    df.at(2.0)
    df.at(np.array([2.0, 1.0]))
    df.at(3.0)


# ---- shapes and integers


def test_shapes_and_dtypes(derivative):
    """branches on `len`, `shape`, `ndim`, `size` and `dtype` -> other ones are traced anew"""

    def f(x):
        if x.dtype == np.float32:
            return np.sum(x**3)
        if x.ndim == 2 and x.shape[1] > x.shape[0]:
            return np.sum(x**2) * len(x)
        return np.sum(x**4) * x.size

    df = derivative(f)
    df.at(X)
    df.at(X[None])
    df.at(X[:, None])
    df.at(X.astype(np.float32), gradient=3 * X**2)
    df.at(Y)


def test_an_integer_argument(derivative):
    """an integer argument is an index, a bound, a range, an exponent, a shape -> guarded"""

    def f(x, n):
        y = x[n] ** n + np.sum(x[:n] ** 2) + np.sum(np.arange(n) * x[:n] ** 3)
        return y + np.sum(np.zeros((n, 2)) + x[0] ** 2) + np.sum(x.reshape(-1, n - n + 1) * n)

    df = derivative(f)
    for n in (1, 2, 0, 1):
        df.at(X, n)


def test_integers_from_traced_data(derivative):
    """`argmax`, `argsort`, `searchsorted` as an index, a bound, a shape -> right for other data"""

    def f(x):
        k = np.argmax(x)
        order = np.argsort(x)
        place = np.searchsorted(np.array([-0.9, 0.0, 0.9]), x[0])
        y = x[k] ** 2 * x[order[0]] + np.sum(x[order] * np.arange(3.0)) + x[place - 1] ** 3
        return y + np.sum(x[: k + 1] ** 2) + np.sum(np.ones(int(k) + 1) * x[0] ** 2)

    df = derivative(f)
    for x in (X, Y, X[::-1], X):
        df.at(np.array(x))


def test_masks(derivative):
    """a boolean mask with another count of true elements -> right, traced anew: for the second
    count, and for others where more than elements and sums of what it selects is used"""

    def f(x):
        positive = x[x > 0]
        return np.sum(positive**2) * len(positive) + np.sum(np.where(x > 0, x, x**3))

    df = derivative(f)
    for x in (X, -X, Y, -np.abs(X), X):
        df.at(x)


def test_counts_of_indices(derivative):
    """`nonzero`, `flatnonzero`, `argwhere`, one-armed `where` with another count -> right"""

    def f(x):
        (a,) = np.nonzero(x > 0)
        b, c, (d,) = np.flatnonzero(x < 0), np.argwhere(x > 2.25), np.where(x < -1.75)
        total = np.sum(x[a] ** 2) * a.size + np.sum(x[b] ** 3) * b.size
        return total + np.sum(x[c] ** 4) + np.sum(x[d] ** 2) * len(d)

    df = derivative(f)
    for x in (X, -X, Y, 0.25 * X, X):
        df.at(x)


def test_an_index_out_of_range_later():
    """an index computed from data is out of range in a later call -> NumPy's IndexError"""
    for compile in ("never", "always"):
        df = grad(lambda x, k: x[k * 1] ** 2 + np.sum(x[k * np.ones(2, int)]), compile=compile)
        np.testing.assert_array_equal(df(X, np.array(1)), [0, -2, 0])
        with pytest.raises(IndexError):
            df(X, np.array(3))
        np.testing.assert_array_equal(df(X, np.array(0)), [4, 0, 0])


# ---- errors of the user's own


def test_assert(derivative):
    """an `assert` that passes, and fails in a later call -> the AssertionError of the program"""

    def f(x):
        assert np.all(x > 0), "x must be positive"
        return np.sum(x**3)

    df = derivative(f)
    df.at(np.abs(X))
    with pytest.raises(AssertionError, match="x must be positive"):
        df.call(X)
    df.at(np.abs(Y))


def test_an_exception_that_is_raised(derivative):
    """the program raises on some values -> the same error then, and right again afterwards"""

    def f(x):
        if x < 0:
            raise KeyError("negative")
        return x**3

    df = derivative(f)
    for _ in range(2):
        df.at(2.0)
        with pytest.raises(KeyError, match="negative"):
            df.call(-2.0)


def test_an_exception_that_is_caught(derivative):
    """the program catches what depends on values, ZeroDivisionError too -> each path as untraced"""

    def f(x):
        try:
            if x > 4:
                raise ValueError
            return x + 1 / (x - 1)
        except ZeroDivisionError:
            return x**2
        except ValueError:
            return x**3

    df = derivative(f)
    for x, slope in [(2.0, 0.0), (1.0, 2.0), (5.0, 75.0), (3.0, 0.75), (1.0, 2.0)]:
        df.at(x, gradient=slope)


def test_an_exception_that_a_comprehension_raises(derivative):
    """an element of a comprehension raises, which its caller catches -> as untraced"""

    def f(x):
        results = [np.sum(row) ** 2 for row in np.ones((9, 1)) * x]
        try:
            return sum([r[1:] for r in results if len(r) > 1])
        except TypeError:
            return np.array([float(r) for r in results])[3]

    df = derivative(f)
    df.at(X)
    df.at(2 * X)


def test_python_numbers_raise():
    """1 / 0 of Python's numbers -> ZeroDivisionError; of NumPy's -> an infinity"""
    for f in (lambda x: 1 / x, lambda x: x % x, lambda x: divmod(1.0, x)[1], lambda x: x**-1.0):
        for compile in ("never", "always"):
            df = grad(f, compile=compile)
            df(2.0)
            with pytest.raises(ZeroDivisionError):
                df(0.0)
        with np.errstate(all="ignore"):
            assert not np.isfinite(jit(f)(np.float64(0.0)))


def test_a_complex_power():
    """a fractional power of a negative Python number -> the complex number that Python has"""
    df = grad(lambda x: abs(x**0.5 - 1))
    assert df(4.0) == 0.25
    assert df(-4.0) == pytest.approx(-0.5 * 2 / 5**0.5 * 0.5)
    with pytest.raises(GradientError, match="complex scalar"):
        grad(lambda x: x**0.5)(-4.0)


# ---- what is traced, and what isn't


@pytest.mark.parametrize("compile", ["never", "always"])
def test_a_path_seen_before(compile):
    """a path that was taken before -> not traced again: its guards are checked at each call"""
    df = grad(lambda x: x**2 if x > 0 else x**3, compile=compile)
    for x in (1.0, -1.0, 2.0, -2.0, -3.0):
        assert df(x) == (2 * x if x > 0 else 3 * x**2)
    info = df.cache_info()
    assert (info.traces, info.variants, info.misses, info.hits) == (2, 2, 2, 3)
    assert info.guard_failures >= 1


def test_more_paths_than_are_kept(derivative):
    """more paths than are kept -> traced anew, and right; a warning names the line that branches"""
    df = derivative(lambda x, n: np.sum(np.full(n + 1, x)) ** 2)
    with pytest.warns(RuntimeWarning) as told:
        for n in [*range(20), 0, 1]:
            df.at(1.5, n)
    texts = [str(warning.message) for warning in told]
    assert len(texts) == 2 and all("control_flow_test.py:" in text for text in texts)
    assert "four calls in a row" in texts[0] and "more than 16 paths" in texts[1]


@pytest.mark.parametrize("kind", [list, np.array])
def test_places_that_values_say(kind):
    """an entry of a list, or of a dict, at a place or by a key that traced values say -> guarded;
    the warning for many paths says that arrays take such an index, which are one trace"""

    def f(x):
        sums = kind([0.0] * 8)
        for v in x:
            sums[int(v)] += v**2
        return sum(k * total for k, total in enumerate(sums))

    df = grad(f, compile="never")
    rng = np.random.default_rng(0)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for x in rng.uniform(0.0, 8.0, (20, 6)):
            np.testing.assert_allclose(df(x), 2 * np.floor(x) * x)
    if kind is list:
        assert "Arrays take a traced index where lists and dicts don't" in str(found[0].message)
    else:
        assert df.cache_info().traces == 1 and not found


def test_a_guard_after_the_output(derivative):
    """a branch taken after the value is known, which changes only an earlier list -> guarded"""

    def f(x):
        parts = [x**2]
        total = sum(parts)
        if x > 1:
            parts.append(total * x)
        return sum(parts)

    df = derivative(f)
    for x in (0.5, 2.0, 0.75):
        df.at(x)


def test_a_derivative_of_a_derivative():
    """the inner function of a derivative of a derivative takes another branch -> traced anew"""

    def inner(x):
        return x**3 if x > 1 else x**4

    for compile in ("never", "always"):
        ddf = grad(grad(inner, compile=compile), compile=compile)
        assert [ddf(x) for x in (2.0, 0.5, 3.0, 0.25)] == [12.0, 3.0, 18.0, 0.75]
        assert ddf.cache_info().traces == 2


def test_a_branch_on_a_derivative(derivative):
    """a branch on the value of an inner derivative, as in Newton's method -> guarded"""

    def f(a):
        def g(x):
            return x**3 - a * x

        x = a
        while abs(grad(g)(x)) > 1e-10:
            x = x - grad(g)(x) / grad(grad(g))(x)
        return x if grad(g)(x + 1) > 4 else x**2

    df = derivative(f)
    for a in (2.0, 0.5, 12.0):
        df.at(a)


def test_an_error_then_a_good_call(derivative):
    """a call that fails, in the first trace too -> the next call is right"""

    def f(x):
        if x[0] > 5:
            return x[7]
        return np.sum(x**3)

    df = derivative(f)
    for x in (X + 9, X, X + 9, Y):
        if x[0] > 5:
            with pytest.raises(IndexError):
                df.call(x)
        else:
            df.at(x)
