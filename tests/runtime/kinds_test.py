"""Each call is of a kind: types, dtypes, shapes and layouts of all arguments, whatever is read.

A function here says of which kind its second argument is. So a variant that answers for another
kind than its own is wrong by a number, though no kernel reads that argument.
"""

from __future__ import annotations

import dataclasses
import decimal
import enum
import types
from collections import OrderedDict, defaultdict, namedtuple
from fractions import Fraction

import numpy as np
import pytest

import tapegrad as tg
from tapegrad import grad, jit, simplegrad, trace, vjp
from tapegrad.errors import ArgumentError, TapeError

X = np.array([1.0, 2.0])


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Agreeable:
    """Equal to everything, as its `__eq__` says."""

    def __init__(self, factor):
        self.factor = factor

    def __eq__(self, other):
        return True

    def __hash__(self):
        return 0


class Loud(float):
    def __add__(self, other):
        return 7.0


class Rows(list):
    pass


class Doubling(np.ndarray):
    def __mul__(self, other):
        return 2 * np.asarray(self)


@dataclasses.dataclass
class One:
    x: object


@dataclasses.dataclass
class Other:
    x: object


@dataclasses.dataclass
class Counted:
    x: object
    count: object = dataclasses.field(default=0, init=False)


Pair, Couple = namedtuple("Pair", "a b"), namedtuple("Couple", "a b")


def counted(count):
    x = Counted(1.0)
    x.count = count
    return x


def strided(x):
    return np.repeat(x, 2)[::2]


def unaligned(x):
    room = np.zeros(x.nbytes + 1, np.uint8)
    y = room[1:].view(x.dtype).reshape(x.shape)
    y[...] = x
    return y


V = np.arange(6.0)

# Values of which no two are of one kind, though many are equal.
KINDS = {
    "numbers": [
        *(1, 1.0, True, "1", b"1", None),
        *(np.float64(1), np.float32(1), np.int64(1), np.bool_(True)),
        *(np.array(1.0), np.array(1), np.array([1.0])),
    ],
    "shapes": [V, V[:5], V[:0], V.reshape(2, 3), V.reshape(3, 2), V.reshape(6, 1), list(V)],
    "dtypes": [V, *(V.astype(t) for t in ("f4", "i8", "i4", "u1", "?", ">f8", ">i4"))],
    "layouts": [V.reshape(2, 3), np.asfortranarray(V.reshape(2, 3)), V.reshape(2, 3)[::-1]],
    "containers": [(V, V), [V, V], [V], [V, [V]], Pair(V, V), Couple(V, V), {"a": V, "b": V}],
    "dicts": [
        *({"a": V, "b": V}, {"b": V, "a": V}, {"a": V}, {"a": V, "c": V}),
        *({1: V}, {True: V}, {1.0: V}, {np.int64(1): V}),
        *(OrderedDict(a=V), defaultdict(list, a=V), {np.str_("a"): V}),
    ],
    "dataclasses": [One(1.0), Other(1.0), One(1), counted(1), counted(True)],
    "statics": [
        *(Colour.RED, Colour.BLUE, "RED", b"RED", "", False),
        *(frozenset({1}), frozenset({True}), frozenset({1.0}), frozenset({0.0}), frozenset({-0.0})),
        *(range(0), range(5, 5), range(3), slice(0, 3), slice(False, 3), slice(3)),
        *(Fraction(1, 2), decimal.Decimal("0.5"), decimal.Decimal("0.50"), np.str_("RED")),
        *(Agreeable(1.0), Agreeable(2.0)),
    ],
}


def kind_of(x):
    """A number for what the function is told about an argument, other than what it holds."""
    if isinstance(x, np.ndarray):
        return hash((x.shape, x.dtype.newbyteorder("=").str, x.ndim, np.iterable(x))) % 9973
    if isinstance(x, dict):
        return hash((type(x).__name__, *((k, type(k).__name__) for k in x))) % 9973
    if isinstance(x, (list, tuple)):
        return hash((type(x).__name__, *map(kind_of, x))) % 9973
    if isinstance(x, Agreeable):
        return x.factor
    if isinstance(x, Counted):
        return hash(repr(x.count)) % 9973
    if isinstance(x, (float, int)) and not isinstance(x, (bool, enum.Enum)):
        return 3.0 if isinstance(x, float) else 5.0
    if isinstance(x, np.generic) and not isinstance(x, np.character):
        return hash(x.dtype.str) % 9973
    if dataclasses.is_dataclass(x):
        return hash((type(x).__name__, kind_of(x.x))) % 9973
    return hash((type(x).__name__, repr(x))) % 9973


@pytest.mark.every(16)
@pytest.mark.filterwarnings("ignore:.*calls in a row")
@pytest.mark.parametrize("how", ["never", "always"])
@pytest.mark.parametrize("kinds", KINDS.values(), ids=KINDS)
def test_each_kind_has_its_own_variant(kinds, how):
    """In any order, and again: what a kind has been answered for before doesn't matter."""
    derivative = jit(lambda x, y: x * kind_of(y), compile=how)
    rng = np.random.default_rng(0)
    chosen = [*range(len(kinds)), *rng.integers(len(kinds), size=40)]
    for k in chosen:
        np.testing.assert_array_equal(derivative(X, kinds[k]), X * kind_of(kinds[k]))
    # Objects of a class are of one kind: of the second one it is learned what differs, once for all
    learned = sum(isinstance(x, Agreeable) for x in kinds[:-1]) * (how == "always")
    assert len(kinds) - learned <= derivative.cache_info().traces <= len(kinds)


def test_what_no_kernel_reads_counts():
    """The loss's gradient is a count of rows, of which the optimised tape reads none."""
    loss = lambda b, x, w: np.sum(x @ w + b)  # noqa: E731
    for how in ("never", "always"):
        df = grad(loss, compile=how)
        for rows in (32, 20, 7, 32, 7):
            x, w = np.ones((rows, 3)), np.ones((3, 4))
            np.testing.assert_array_equal(df(np.zeros(4), x, w), np.full(4, float(rows)))


def refusals(*wrong):
    """Calls with a second argument that the first call's kind doesn't have, by every way."""
    f = lambda w, y: np.sum(w**2) / (y.ndim + 1)  # noqa: E731
    tape = trace(f, X, X)[1]
    ways = [grad(f, compile="never"), grad(f, compile="always"), tape.play, tape.compile()]
    for way in (*ways, simplegrad(f, X, X)):
        way(X, X)
        for y in wrong:
            yield lambda way=way, y=y: way(X, y)


def test_what_passes_for_no_array_is_refused_everywhere():
    masked = np.ma.array(X, mask=[True, False])
    wrong = [None, "ab", masked, X.view(Doubling), {1: 2}.items(), object(), Rows([1.0, 2.0])]
    calls = [*refusals(*wrong, types.MappingProxyType({1: 1.0, 2: 1.0}))]
    calls += [*refusals(np.array(["a", "b"]))][2:]  # which derivatives take as it is
    for call in calls:
        with pytest.raises((TypeError, ValueError, AttributeError)):
            call()


def test_the_cotangent_of_a_pullback_is_checked():
    _, pullback = vjp(lambda x: np.stack([np.sum(x), 1.0]), X)
    (found,) = pullback(np.array([2.0, 1.0]))
    np.testing.assert_array_equal(found, [2.0, 2.0])
    masked = np.ma.array([2.0, 1.0], mask=[True, False])
    for wrong in (masked, np.ones(3), 1.0, "ab", None, np.array([1j, 2]), np.array([X, 1], object)):
        with pytest.raises((ArgumentError, ValueError)):
            pullback(wrong)


def test_numbers_of_a_class_of_their_own_are_refused():
    f = jit(lambda x: x + 1.0, compile="never")
    assert f(1.0) == 2.0
    for _ in range(2):
        with pytest.raises(ArgumentError, match=r"of type Loud, .* Pass float\(x\)"):
            f(Loud(1.0))


def test_containers_of_a_class_of_their_own_are_refused():
    """What they hold isn't taken apart, and may change."""
    f = jit(lambda x, y: x * y[0], compile="never")
    for y in (Rows([2.0]), types.MappingProxyType({0: 2.0})):
        with pytest.raises(ArgumentError, match="can change without notice"):
            f(X, y)


# ---- arrays from outside, which change in place


def square(order):
    return np.array([[1.0, 2.0], [3.0, 4.0]], order=order)


def reshape(a):
    a.shape = (4, 1) if a.flags.c_contiguous else (1, 2, 2)


def reinterpret(a):
    a.dtype = np.int64


def restride(a):
    a.strides = a.strides[::-1]


CHANGES = [reshape, restride, reinterpret]
CAPTURED = {
    "what is read": lambda a: (
        lambda x: np.sum(x * a.reshape(-1)[:2]) * (2 if a.dtype == float else 3)
    ),
    "the shape alone": lambda a: lambda x: np.sum(x) * a.shape[0],
    "what no kernel reads": lambda a: lambda x: np.sum(x) * (x[0] * a).shape[0],
    "plain NumPy's work": lambda a: lambda x: np.sum(x) * a[0].sum() * a.shape[0],
}


@pytest.mark.every(2)
@pytest.mark.filterwarnings("ignore:Setting the:DeprecationWarning")
@pytest.mark.parametrize("f", CAPTURED.values(), ids=CAPTURED)
@pytest.mark.parametrize("order", ["C", "F"])
def test_captured_arrays_change_their_type_in_place(f, order):
    for how, change in [*(("never", c) for c in CHANGES), ("always", CHANGES[order == "F"])]:
        a = square(order)
        plain = f(a)
        derivative = jit(plain, compile=how)
        for _ in range(2):
            assert derivative(X) == plain(X)
        change(a)
        for _ in range(2):
            assert derivative(X) == plain(X)


# ---- tapes that are called by themselves


def test_a_tape_is_called_as_it_was_traced():
    _, tape = trace(lambda x, scale, *, shift: np.sum(x * scale) + shift, X, 2.0, shift=1.0)
    for call in (tape.play, tape.compile()):
        assert call(X, 2.0, shift=1.0) == 7.0
        for args, kwargs in [
            ((X, 2.0), {"shift": 1.0, "nonsense": True}),
            ((X, 2.0), {"nonsense": 1.0}),
            ((X,), {"scale": 2.0, "shift": 1.0}),
            ((X, 2.0, 1.0), {}),
            ((X, 2.0, None), {"shift": 1.0}),
            ((X, "2.0"), {"shift": 1.0}),
        ]:
            with pytest.raises((TapeError, ArgumentError)):
                call(*args, **kwargs)


def test_a_tape_is_called_with_the_static_values_it_was_traced_with():
    _, tape = trace(lambda x, how: np.sum(x) if how == "sum" else np.max(x), X, "sum")
    for call in (tape.play, tape.compile()):
        assert call(X, "sum") == 3.0
        with pytest.raises(TapeError, match="traced with 'sum'"):
            call(X, "max")


def test_options_that_nobody_knows_are_errors():
    for make in (
        lambda: grad(np.sum, nonsense=True),
        lambda: jit(np.sum, nonsense=True),
        lambda: tg.value_and_grad(np.sum, nonsense=True),
        lambda: vjp(np.sum, X, nonsense=True),
        lambda: simplegrad(np.sum, X, nonsense=True),
        lambda: simplegrad(lambda x: np.sum(x), X)(X, nonsense=True),
        lambda: trace(lambda x: x, X)[1].compile(nonsense=True),
    ):
        with pytest.raises(TypeError, match="nonsense"):
            make()
