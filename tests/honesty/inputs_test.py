"""Inputs"""

from __future__ import annotations

import array
import functools
import types
from collections import OrderedDict

import ml_dtypes
import numpy as np
import pytest
from scipy import stats
from tests.honesty.check import refused

from tapegrad import grad, gradcheck, jacobian, jit, simplegrad, trace, value_and_grad, vjp, vmap
from tapegrad.errors import ArgumentError, ConversionError, UnsupportedError

W = np.array([1.0, 2.0])
A = np.arange(1.0, 7.0).reshape(2, 3) / 4  # sums and products of these are exact


def unaligned(x):
    """A copy of `x` that starts at an odd address."""
    room = np.zeros(x.nbytes + 1, np.uint8)
    y = room[1:].view(x.dtype).reshape(x.shape)
    y[...] = x
    assert not y.flags.aligned
    return y


def frozen(x):
    y = x.copy()
    y.flags.writeable = False
    return y


def mapped(x, folder):
    y = np.memmap(folder / "array", x.dtype, "w+", shape=x.shape)
    y[...] = x
    return y


# The same numbers, in other memory.
LAYOUTS = {
    "plain": np.array,
    "Fortran-ordered": np.asfortranarray,
    "every second": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    "reversed": lambda x: x[::-1, ::-1].copy()[::-1, ::-1],
    "transposed": lambda x: x.T.copy().T,
    "inside a larger one": lambda x: np.pad(x, 1)[1:-1, 1:-1],
    "unaligned": unaligned,
    "read-only": frozen,
    "byte-swapped": lambda x: x.astype(x.dtype.newbyteorder()),
    "a subclass": lambda x: x.view(Named),
}


class Named(np.ndarray):
    """A subclass without a behaviour of its own."""

    def __array_finalize__(self, other):
        self.name = getattr(other, "name", "")


class Doubling(np.ndarray):
    """A subclass with one."""

    def __mul__(self, other):
        return 2 * np.asarray(self) * other


class Series:
    """Something that NumPy makes an array of."""

    def __init__(self, values):
        self.values = list(values)

    def __array__(self, dtype=None, copy=None):
        return np.array(self.values, dtype)


# ---- trees


def test_dicts_whose_order_changes():
    """`OrderedDict.move_to_end` of an argument, or of one inside it -> as it looks at each call"""
    inner = OrderedDict(a=2.0, b=3.0)
    given = OrderedDict(k=inner, m=5.0)

    def f(x, given):
        first, *_ = given.values()
        return x * (first if isinstance(first, float) else 7.0 * next(iter(first.values())))

    df, dgiven = grad(f, compile="never"), grad(f, argnums=1, compile="never")
    for held, key, wanted in [(inner, "a", 21.0), (inner, "b", 14.0), (given, "k", 5.0)]:
        held.move_to_end(key)
        assert df(1.0, given) == wanted
        gradient = dgiven(2.0, given)
        assert list(gradient) == list(given)
        assert list(gradient["k"]) == list(inner)


# ---- memory


def test_layouts_as_an_argument(derivative):
    """arrays of other layouts, byte orders and alignments alternate -> each is read as it lies"""
    df = derivative(lambda x: np.sum(x * x.T.reshape(2, 3) * x))
    for _ in range(2):
        for make in LAYOUTS.values():
            df.at(make(A))


@pytest.mark.parametrize("compile", ["never", "always"])
def test_a_large_integer_in_a_later_call(compile):
    """an integer argument beyond 64 bits, after smaller ones -> error that names it"""
    df = grad(lambda x, n: x * (n % 7), compile=compile)
    assert df(1.0, 2**62) == 2**62 % 7
    with pytest.raises(ArgumentError, match=r"argument 'n' is \d+, which doesn't fit in 63 bits"):
        df(1.0, 2**70)


def test_layouts_in_a_dict(derivative):
    """the same inside a dict, beside another argument -> each is read as it lies"""
    df = derivative(lambda p, y: np.sum(p["w"] ** 2 * np.ravel(y).reshape(2, 3)))
    makers = list(LAYOUTS.values())
    for make, other in zip(makers, makers[::-1], strict=True):
        df.at({"w": make(A)}, other(A))


@pytest.mark.every(3)
@pytest.mark.parametrize("make", LAYOUTS.values(), ids=LAYOUTS)
def test_layouts_of_a_captured_array(derivative, make):
    """a captured array of another layout -> read at each call, as it lies and what it holds then"""
    c = make(A)
    df = derivative(lambda x: np.sum(x * x * c[::-1] + c.T[1] @ x * c[0]))
    df.at(A)
    df.at(2 * A)
    if c.flags.writeable:
        c[0] = 5.0
        df.at(A)


def test_a_memory_mapped_array(derivative, tmp_path):
    """a memory-mapped file, as an argument or captured -> read at each call"""
    m = mapped(A, tmp_path)
    df = derivative(lambda x, y: np.sum(x * x * y * m))
    df.at(m, A)
    df.at(A, m)
    m[0] = 3.0
    df.at(m, m)


def test_a_broadcast_array(derivative):
    """a `broadcast_to` array, whose strides are 0 -> every element has a derivative of its own"""
    df = derivative(lambda x: np.sum(np.sin(x) * A))
    df.at(np.broadcast_to(np.float64(0.5), (2, 3)))
    df.at(A)
    df.at(np.broadcast_to(A[0], (2, 3)))


def test_the_same_array_twice(derivative):
    """one array for two arguments -> two arguments: the derivative is that of the one asked for"""
    df = derivative(lambda x, y: np.sum(x * x * y))
    df.at(A, A)
    df.at(A, 2 * A)
    derivative(lambda p: np.sum(p["a"] * p["b"] ** 2)).at({"a": A, "b": A})


def test_overlapping_views(derivative):
    """overlapping views of one array -> as if each were a copy"""
    base = np.arange(1.0, 6.0)
    df = derivative(lambda x, y: np.sum(x * y * y))
    df.at(base[:-1], base[1:])
    df.at(base[1:], base[:-1])
    df.at(base[:4], base[3::-1])


def test_a_write_to_one_of_two_views(derivative):
    """a write to a copy of an argument that overlaps another -> the other doesn't see it"""

    def f(x, y):
        x = x.copy()
        x[0] = 10.0
        return np.sum(x * y * y * x)

    base = np.arange(1.0, 6.0)
    derivative(f, 1).at(base[:-1], base[:-1])


def test_arrays_written_between_calls(derivative):
    """the caller writes into an argument between calls -> the new values count"""
    x = A.copy()
    df = derivative(lambda x: np.sum(x**3))
    df.at(x)
    x[0, 0] = -3.0
    df.at(x)
    x *= 2
    df.at(x)


def test_an_argument_of_which_little_is_read(derivative):
    """an argument whose shape or length alone matters has another one -> traced anew"""
    df = derivative(lambda b, x, w: np.sum(x @ w + b * b))
    for rows in (4, 3, 7, 4):
        df.at(np.ones(2), np.ones((rows, 3)), np.ones((3, 2)))
    df = derivative(lambda x, batch: np.sum(x**2) / len(batch))
    for batch in (A, A[:1], [1.0, 2.0, 3.0], "ab", {1: 2.0}, A):
        df.at(A, batch)
    with pytest.raises(ArgumentError, match="MaskedArray"):
        df.call(A, np.ma.array(A))


def test_statics_that_are_equal(derivative):
    """values beside that are equal, and aren't the same -> each has its own code"""
    df = derivative(lambda x, n: np.sum(x**3) * len(repr(n)))
    for n in (True, frozenset({1}), frozenset({True}), frozenset({1.5}), range(0), range(5, 5)):
        df.at(A, n)
    df = derivative(lambda x, d: np.sum(x**3) * len(repr([*d])))
    for d in ({1: 2.0}, {True: 2.0}, {1.0: 2.0}, {1: 2.0}):
        df.at(A, d)


def test_numbers_with_operators_of_their_own():
    """a number or a container of a class of the user's own -> refused, with the fix"""

    class Odd(float):
        def __mul__(self, other):
            return 7.0

    class Row(list):
        pass

    for how in ("never", "always"):
        df = grad(lambda x, y: np.sum(x) * y, compile=how)
        df(A, 2.0)
        for y, fix in ((Odd(2.0), "Pass float"), (Row([2.0]), "Pass a tuple")):
            for _ in range(2):
                with pytest.raises(ArgumentError, match=fix):
                    df(A, y)


@pytest.mark.parametrize("how", ["never", "always"])
def test_results_outlive_their_arguments(how):
    """the caller overwrites or resizes an argument after the call -> results stay as they were"""
    f = jit(lambda x: (x, x[1:], x.T, 2 * x, x.reshape(3, 1)), compile=how)
    for _ in range(3):
        x = np.array([1.0, 2.0, 3.0])
        results = f(x)
        x[:] = np.nan
        x.resize(300, refcheck=False)
        del x
        other = f(np.zeros(3))
        for found, wanted in zip(results, ([1, 2, 3], [2, 3], [1, 2, 3], [2, 4, 6]), strict=False):
            np.testing.assert_array_equal(found, wanted)
        results[0][:] = 7.0
        assert results[1][0] == 2.0
        assert np.all(other[0] == 0.0)


@pytest.mark.filterwarnings("ignore:Setting the shape:DeprecationWarning")  # from NumPy 2.5 on
def test_a_captured_array_of_another_shape(derivative):
    """a captured array gets another shape or dtype in place -> traced anew"""
    c = np.arange(1.0, 7.0).reshape(2, 3)
    df = derivative(lambda x: np.sum(c @ (c.T * x) @ c) * x)
    df.at(2.0)
    c.shape = (3, 2)
    df.at(2.0)
    c.shape = (6, 1)
    df.at(2.0)


# ---- shapes


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 3)])
def test_empty_arrays(derivative, shape):
    """arrays without elements -> as in NumPy; the gradient has their shape"""
    df = derivative(lambda x: np.sum(x * x) + np.sum(np.sum(x, axis=0)) + np.prod(x) + np.size(x))
    df.at(np.zeros(shape))
    df.at(np.ones((2, 2)))
    df.at(np.zeros(shape))


def test_reductions_of_nothing():
    """the largest of no elements -> NumPy's error, also when another shape was compiled before"""
    f = jit(np.max, compile="always")
    assert f(np.ones(3)) == 1.0
    with pytest.raises(ValueError, match="zero-size array to reduction operation max"):
        f(np.ones(0))


def test_scalars_of_all_kinds(derivative):
    """0-d arrays, NumPy scalars and Python floats alternate -> right; float32 stays float32"""
    df = derivative(lambda x: np.exp(x) * x)
    for _ in range(2):
        for x in (np.array(0.5), np.float64(0.5), 0.5, np.array([0.5])[0]):
            df.at(x)
    for x in (np.float32(0.5), np.array(0.5, np.float32)):
        assert grad(lambda x: x * x)(x).dtype == np.float32


def test_arrays_of_one_element(derivative):
    """arrays of one element, of several ranks -> right, with a gradient of their shape"""
    df = derivative(lambda x: np.sum(np.sin(x) * x))
    for shape in ((1,), (1, 1), (), (1, 1, 1)):
        df.at(np.full(shape, 0.5))


def test_shapes_alternate(derivative):
    """shapes alternate on one derivative -> each has its own code"""
    df = derivative(lambda x: np.sum(x) ** 2)
    for n in (3, 1, 0, 3, 2):
        df.at(np.arange(1.0, n + 1))
        df.at(np.ones((n, 2)))


# ---- dtypes


def test_integer_arguments_beside(derivative):
    """integers and booleans of any width as other arguments -> as in NumPy"""
    df = derivative(lambda x, n: np.sum(x * n + n // 2))
    for dtype in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"):
        df.at(A[0], np.array([1, 2, 100], dtype))
    flags = derivative(lambda x, b: np.sum(x * b) + np.sum(x[b] ** 2))
    flags.at(A[0], np.array([True, False, True]))
    flags.at(A[0], np.array([True, True, True]))


def test_python_numbers_beside(derivative):
    """Python and NumPy numbers as other arguments -> as in NumPy; a bool is a fixed choice"""
    df = derivative(lambda x, n: np.sum(x * x) * n)
    for n in (2, 3, 2.5, True, False, np.bool_(True), np.int64(2), np.int8(3), np.float64(0.5)):
        df.at(A, n)


def test_promotion():
    """dtypes are promoted as NumPy does it (NEP 50) -> a Python number takes the array's dtype"""
    f4, f8, i2 = np.ones(2, "f4"), np.ones(2), np.ones(2, "i2")
    cases = [
        (lambda x: x * 0.1, f4),
        (lambda x: x * np.float64(0.1), f4),
        (lambda x: x + f8, f4),
        (lambda x: np.where(x > 0, x, 0.1), f4),
        (lambda x: np.clip(x, 0.1, 2), f4),
        (lambda x: x**2.0, f4),
        (lambda x: x * 2, i2),
        (lambda x: x * 0.5, i2),
        (lambda x: x * np.float32(2), np.ones(2, "i4")),
        (lambda x: np.concatenate([x, f8]), f4),
        (lambda x: x @ f8, f4),
        (np.mean, i2),
        (np.sum, np.ones(2, "i1")),
        (lambda x: x - np.ones(2, int), np.ones(2, "u8")),
    ]
    for f, x in cases:
        for how in ("never", "always"):
            found, expected = jit(f, compile=how)(x), f(x)
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)


def test_gradients_have_the_dtype_of_their_argument():
    """float32 and float64 together -> each gradient has its argument's dtype"""
    df = grad(lambda x, y: np.sum(x * y), (0, 1))
    assert [d.dtype for d in df(np.ones(2, "f4"), np.ones(2))] == [np.float32, np.float64]


def test_an_integer_out_of_range_of_a_small_dtype():
    """a Python number that doesn't fit the array's dtype -> NumPy's OverflowError"""
    with pytest.raises(OverflowError):
        jit(lambda x: x + 300)(np.ones(2, "i1"))


@pytest.mark.parametrize("x", [np.arange(3), np.array([True]), 3, np.int64(3), np.uint8(3)])
def test_integers_differentiated(x):
    """the derivative with respect to integers -> refused, with `x.astype(float)`"""
    with pytest.raises(ArgumentError, match=r"argument 'x' is .*x\.astype\(float\)"):
        grad(lambda x: np.sum(x * 2.0))(x)


# ---- what isn't an array of numbers


REFUSED = {
    "a masked array": (np.ma.masked_array([1.0, 2.0], [True, False]), r"np\.asarray\(x\)"),
    "np.matrix": (np.array([[1.0, 2.0]]).view(np.matrix), r"np\.asarray\(x\)"),
    "np.recarray": (np.ones(2).view(np.recarray), r"np\.asarray\(x\)"),
    "a subclass": (np.ones(2).view(Doubling), r"its own __mul__.*np\.asarray\(x\)"),
    "long double": (np.ones(2, "g"), "dtype (float128|longdouble).*astype"),
    "complex long double": (np.ones(2, "G"), "dtype (complex256|clongdouble).*astype"),
    "dates": (np.array(["2020-01-01"], "M8[D]"), "dtype datetime64.*astype"),
    "times": (np.array([1, 2], "m8[s]"), "dtype timedelta64.*astype"),
    "records": (np.zeros(2, [("a", "f8")]), "Pass its fields"),
    "objects": (np.array([1.0, None]), "dtype object.*Make it float64"),
    "an object with __array__": (Series([1.0, 2.0]), r"type Series.*np\.asarray\(x\)"),
    "a memoryview": (memoryview(np.ones(2)), r"type memoryview.*np\.asarray\(x\)"),
    "an array.array": (array.array("d", [1.0]), r"type array.*np\.asarray\(x\)"),
    "an iterator": (iter([1.0]), "Pass a tuple"),
    "a set": ({1.0}, "Pass a tuple"),
    "an int of 65 bits": (2**64, "Pass it as a float"),
}


def product(w, x):
    return np.sum(w * x)


@pytest.mark.parametrize("x, advice", REFUSED.values(), ids=REFUSED)
def test_arguments_that_are_refused(x, advice):
    """masked arrays, np.matrix, subclasses with operators of their own, long double,
    dates, records, objects, foreign arrays -> refused by every function, with the
    argument's name and the fix
    """
    for call in (
        lambda: grad(product)(2.0, x),
        lambda: grad(product)(2.0, x),  # the second call is no different
        lambda: grad(product, 1)(2.0, x),
        lambda: jit(product, compile="always")(2.0, x),
        lambda: trace(product, 2.0, x),
        lambda: vjp(product, 2.0, x),
        lambda: simplegrad(product, 2.0, x),
        lambda: gradcheck(product, (2.0, x)),
    ):
        with pytest.raises(ArgumentError, match=rf"argument 'x' .*{advice}"):
            call()
    with pytest.raises(ArgumentError, match=rf"argument x\['a'\] .*{advice}"):
        grad(lambda w, x: product(w, x["a"]))(2.0, {"a": x})
    df = grad(product)
    df(2.0, np.ones(2))
    with pytest.raises(ArgumentError, match=rf"argument 'x' .*{advice}"):
        df(2.0, x)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_arguments_of_half_precision(dtype):
    """an argument of float16 or bfloat16, in a function that asks for `x.dtype` -> it is float32
    there, also where it is asked; the gradient has the argument's dtype, and is rounded once
    """

    def f(x):
        scale = 3.0 if x.dtype == np.float32 else 1.0
        return np.sum(x * x.astype(x.dtype)) * scale

    x = np.array([0.1, 2.0, -3.0]).astype(dtype)
    df = grad(f)
    for _ in range(3):
        found = df(x)
        assert found.dtype == dtype
        assert np.array_equal(found, (6 * x.astype(np.float32)).astype(dtype))


_TAKEN = (
    "a masked array",
    "np.matrix",
    "a subclass",
    "records",
    "dates",
    "an int of 65 bits",
    "an object with __array__",
)
_PYTHONS = ("a set", "an iterator", "objects")  # the error is Python's, as in NumPy
CAPTURED = [k for k in REFUSED if k not in _TAKEN]


@pytest.mark.parametrize("kind", CAPTURED)
def test_captured_things_that_are_refused(kind):
    """the same but for subclasses, captured by the function -> refused at the line that uses it"""
    c = REFUSED[kind][0]
    for _ in range(2):
        if kind in _PYTHONS:
            with pytest.raises(TypeError, match="unsupported operand"):
                grad(lambda w: np.sum(w * c))(np.array(2.0))
            continue
        with refused((ArgumentError, ConversionError, UnsupportedError)):
            grad(lambda w: np.sum(w * c))(np.array(2.0))


def test_masked_arrays_after_compiling():
    """a masked array where an array was compiled -> refused: its mask would be ignored"""
    f, x = (lambda x: np.sum(x * x)), np.ones(3)
    masked = np.ma.masked_array(x, [True, False, False])
    tape = trace(f, x)[1]
    for made in (grad(f, compile="always"), simplegrad(f, x), tape.play, tape.compile()):
        made(x)
        with pytest.raises((ArgumentError, TypeError), match="MaskedArray"):
            made(masked)


@pytest.mark.parametrize("made", [jit, grad, jacobian])
@pytest.mark.parametrize(
    "f",
    [
        lambda x: np.ma.array(x, mask=[True, True]).sum(),
        lambda x: np.ma.array(x, mask=[True, False]) * 2.0,
        lambda x: np.ma.array(np.ones(2), mask=[True, False]),
    ],
)
def test_masked_results(f, made):
    """a result that is `np.ma.masked`, or an array of `np.ma` with a mask -> refused: return
    `x.filled(value)`"""
    with pytest.raises(UnsupportedError, match=r"mask would be lost. Let it return x\.filled"):
        made(f, compile="never")(np.array([1.0, 2.0]))


def test_complex_numbers_made_inside():
    """complex numbers made inside the function -> right"""
    x = np.array([0.3, 1.7])
    for f in (
        lambda x: np.sum(np.abs(np.sqrt(x.astype(complex) - 1))),
        lambda x: np.sum(np.abs(1j * x + 2)),
        lambda x: np.sum(np.abs(x + np.array([1j]))),
        lambda x: np.sum(np.abs(np.fft.fft(x)) ** 3),
        lambda x: np.sum(np.abs(np.emath.sqrt(-x) + 1)),
        lambda x: np.abs(complex(x[0]) + 1j * x[1].item()),
    ):
        assert gradcheck(f, x)


def test_lists_as_arrays(derivative):
    """a list of floats where the function makes an array of it -> a gradient that is a list"""
    df = derivative(lambda x: np.sum(np.stack(x) ** 2))
    df.at([1.0, 2.0, 3.0])
    df.at([1.0, 2.0])


def test_lists_without_an_array():
    """a list of floats multiplied as if it were an array -> Python's own TypeError"""
    with pytest.raises(TypeError, match="can't multiply sequence"):
        grad(lambda x: np.sum(x * 1.5))([1.0, 2.0])


def test_nones(derivative):
    """None among the leaves -> stays None; it decides which code is used"""

    def f(p, y):
        return np.sum(p["w"] ** 2) + (0.0 if y is None else np.sum(y))

    df = derivative(f)
    df.at({"w": A, "b": None}, None)
    df.at({"w": A, "b": None}, A)
    df.at({"w": A, "b": None}, None)


def test_arrays_of_strings_beside(derivative):
    """an array of strings as another argument, or beside floats in one -> what it holds has its own
    code; what the function writes to it the caller doesn't see
    """
    here, there = np.array(["B", "S", "B"]), np.array(["S", "B", "B"])
    df = derivative(lambda x, s: np.sum(x**2 * (s == "B") * [1, 2, 3]))
    for s in (here, there, here.copy(), here[::-1], there):
        df.at(A, s)
    changed = here.copy()
    df.at(A, changed)
    changed[:] = there
    df.at(A, changed)
    slopes = grad(lambda p: np.sum(p["x"][:, p["s"] == "B"] ** 2))
    for s in (here, there, here):
        np.testing.assert_allclose(slopes({"x": A, "s": s})["x"], 2 * A * (s == "B"))

    with pytest.raises(ArgumentError, match="has no rows"):
        vmap(lambda x, s: np.sum(x) * len(s))(A, here[:2])

    def written(x, s):
        s[0] = "Z"
        return np.sum(x**2 * (s == "B"))

    for s in (here.copy(), there.copy(), here.copy()):
        before = s.copy()
        df = grad(written)(A, s)
        np.testing.assert_array_equal(s, before)
        np.testing.assert_allclose(df, grad(written)(A, s))


def test_strings_and_flags_beside(derivative):
    """strings and flags as other arguments -> each value has its own code"""
    df = derivative(lambda x, how: np.sum(x**2) if how == "square" else np.sum(x**3))
    df.at(A, "square")
    df.at(A, "cube")
    df.at(A, "square")


# ---- objects


class Batch:
    def __init__(self, **held):
        self.__dict__.update(held)


class Slotted:
    __slots__ = ("scale", "x", "y")

    def __init__(self, scale, x, y):
        self.scale, self.x, self.y = scale, x, y


def traces_of(df):
    return (df.outer if df.how == "nested" else df.d).cache_info().traces


@pytest.mark.parametrize("kind", [Batch, Slotted, types.SimpleNamespace])
def test_an_object_that_is_another_one_at_each_call(kind, derivative):
    """an object of the user's class is another one at each call, with other numbers and arrays ->
    these are inputs: nothing is traced anew for that"""
    rng = np.random.default_rng(0)
    df = derivative(lambda w, data: data.scale * np.sum((data.x @ w - data.y) ** 2))
    traces = []
    for k in range(5):
        df.at(W, kind(scale=k + 0.5, x=rng.normal(size=(4, 2)), y=rng.normal(size=4)))
        traces.append(traces_of(df))
    assert traces[1] == traces[-1]


MADE = {
    "norm": lambda k: stats.norm(0.5 * k, 1.0 + k),
    "the same": lambda k: stats.norm(0.5, scale=2.0),
    "by name": lambda k: stats.gamma(2.0, scale=1.0 + k),
    "an array": lambda k: stats.norm(np.arange(2.0) * k, 3.0),
    "joint": lambda k: stats.multivariate_normal([0.5 * k, 1.0], np.eye(2) * (1.0 + k)),
}


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("reached", ["passed", "found"])
def test_a_frozen_law_that_is_made_anew(name, reached, derivative, monkeypatch):
    """a frozen distribution of SciPy's is made anew for each call, with other parameters -> they
    are inputs: nothing is traced anew for that"""
    if reached == "passed":
        df = derivative(lambda w, law: np.sum(law.logpdf(w**2)))
    else:
        df = derivative(lambda w: np.sum(WORLD.law.logpdf(w**2)))
    traces = []
    for k in range(6):
        law = MADE[name](k)
        monkeypatch.setattr(WORLD, "law", law, raising=False)
        df.at(*((W, law) if reached == "passed" else (W,)))
        traces.append(traces_of(df))
    assert traces[2] == traces[-1]


def test_what_a_frozen_law_is_asked_besides(derivative):
    """a frozen distribution that is made anew is asked for what depends on nothing traced, or is
    one of another law -> each call has its own"""
    df = derivative(lambda w, law: np.sum(w**2) * law.mean() + law.ppf(0.6) * w[0] * law.std())
    for k in range(5):
        df.at(W, stats.norm(0.5 * k, 2.0 + k))
    traces = traces_of(df)
    df.at(W, stats.norm(9.0, 3.0))
    assert traces == traces_of(df) <= 3
    df.at(W, stats.expon(1.0, 2.0))
    df.at(W, stats.gamma(1.0, 2.0))
    df.at(W, stats.truncnorm(-1.0, 2.0))
    df.at(W, stats.norm(9.0, 3.0))


class Tilted(stats.rv_continuous):
    rate = 1.0

    def _pdf(self, x):
        return np.exp(-(x**2) / 2) * self.rate / np.sqrt(2 * np.pi)


def test_a_frozen_law_of_the_programs(derivative, monkeypatch):
    """a distribution of the program's own class is frozen outside -> its methods are followed, and
    what they read is read by each call"""
    law = Tilted(name="tilted")(0.1, 1.5)
    df = derivative(lambda w: np.sum(law.logpdf(w**2)))
    df.at(W)
    df.at(W)
    assert traces_of(df) == 1
    monkeypatch.setattr(Tilted, "rate", 2.0)
    df.at(W)
    law.kwds["loc"], law.args = 0.3, ()
    df.at(W)
    law = Tilted(name="tilted")(0.7)
    df.at(W)


class Element:
    def __init__(self, rate):
        self.rate = rate

    def __mul__(self, x):
        return self.rate * x


def test_arrays_of_objects(derivative):
    """a function reaches an array of objects -> they are compared one by one, with all that they
    hold"""
    held = np.array([Element(1.0), Element(2.0)], dtype=object)
    lists = np.array([[1.0, 2.0], [3.0]], dtype=object)
    df = derivative(lambda w: np.sum((held * 2.0).astype(float) * w**2) * lists.sum()[0])
    df.at(W)
    df.at(W)
    assert traces_of(df) == 1
    held[0].rate = 3.0
    df.at(W)
    held[1] = Element(5.0)
    df.at(W)
    lists[0][0] = 7.0
    df.at(W)
    lists[0] = [9.0]
    df.at(W)


def test_many_objects_that_differ(derivative):
    """many objects, each of which has the function do something else -> traced once for each"""
    powers = [Batch(name="x" * k, f=functools.partial(np.multiply, 1 / k)) for k in range(1, 21)]
    df = derivative(lambda w, data: np.sum(data.f(w) ** 2) * len(data.name))
    for _ in range(2):
        for data in powers:
            df.at(W, data)
    assert traces_of(df) <= len(powers)


WORLD = Batch(n=1.0)


def test_objects_that_become_one():
    """two objects are one at another call, also one that the function reaches by itself, and are
    written to or compared -> right"""

    def f(w, first, second):
        first.n = first.n + 1.0
        second.part.n = second.part.n * 3.0
        found = 2.0 if first is second else 1.0
        return np.sum(w**2) * first.n * second.n * WORLD.n * first.part.n * found

    def given(which):
        WORLD.n, WORLD.part = 1.0, Batch(n=2.0)
        one = Batch(n=5.0, part=Batch(n=7.0))
        two = Batch(n=11.0, part=one.part if "parts" in which else Batch(n=13.0))
        return {
            "both": (one, one),
            "first": (WORLD, two),
            "second": (one, WORLD),
            "all": (WORLD, WORLD),
        }.get(which, (one, two))

    for compile in ("never", "always"):
        df = value_and_grad(f, compile=compile)
        for which in ("none", "both", "parts", "first", "none", "all", "second", "both", "none"):
            expected, left = f(W, *(plain := given(which))), [x.n for x in plain] + [WORLD.n]
            value, slope = df(W, *(own := given(which)))
            np.testing.assert_allclose(value, expected)
            np.testing.assert_allclose(slope, 2 * W * expected / np.sum(W**2))
            assert [x.n for x in own] + [WORLD.n] == left


def test_objects_of_other_classes_and_with_other_attributes(derivative):
    """the next object is of another class, or has an attribute of its own -> traced anew"""

    class Power:
        def __init__(self, n):
            self.n = n

        def of(self, w):
            return w**self.n

    class Exponential(Power):
        def of(self, w):
            return np.exp(w / self.n)

    own = Power(2.0)
    own.of = np.sin
    more = Power(3.0)
    more.shift = 1.0
    df = derivative(lambda w, model: np.sum(model.of(w)) + getattr(model, "shift", 0.0))
    for model in (
        Power(2.0),
        Power(3.0),
        Exponential(2.0),
        own,
        more,
        Power(4.0),
        Exponential(3.0),
    ):
        df.at(W, model)
