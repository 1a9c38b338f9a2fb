"""Python that is called back from C"""

from __future__ import annotations

import functools
import itertools
import json
import math
import operator
import re

import numpy as np
import pytest

# What is compiled is the same for all ways to read something.
UNCOMPILED = pytest.mark.parametrize("derivative", ["played", "nested"], indirect=True)
K = 2.0
X = np.array([1.5, 0.5, 2.5])
ROWS = [1.0, 2.0, 3.0]


def drawn():
    for _ in ROWS:
        yield K


def drawn_below():
    yield from drawn()


class Counting:
    def __init__(self):
        self.left = 3

    def __iter__(self):
        return self

    def __next__(self):
        self.left -= 1
        if self.left < 0:
            raise StopIteration
        return K


class Going:
    def __iter__(self):
        for v in ROWS:
            yield v * K


going = Going()


class Scale:
    """Python asks it for a number, an order, a hash, an attribute or an item."""

    def __init__(self, v=1.0):
        self.v = v

    __float__ = __call__ = lambda self, *args: K
    __index__ = __hash__ = __len__ = lambda self: int(K)
    __str__ = lambda self: str(K)  # noqa: E731
    __eq__ = lambda self, other: K > 2.5  # noqa: E731
    __lt__ = lambda self, other: (self.v < other.v) == (K > 2.5)  # noqa: E731
    __bool__ = lambda self: K > 2.5  # noqa: E731

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return K


scale = Scale()
elementwise = np.frompyfunc(lambda v: v * K, 1, 1)
folding = np.frompyfunc(lambda a, b: a + b * K, 2, 1)
ordering = np.frompyfunc(lambda v: v * (2.5 - K), 1, 1)
vectorized = np.vectorize(lambda v: v * K)


class Encoder(json.JSONEncoder):
    def default(self, o):
        return K


def _pair(o):
    return [1, K]


FILLED = {
    "a constant": lambda x: np.sum(np.fromiter((K for _ in x), float) * x),
    "a product": lambda x: np.sum(np.fromiter((v * K for v in x), float)),
    "of plain numbers": lambda x: np.sum(np.fromiter((v * K for v in ROWS), float) * x),
    "map": lambda x: np.sum(np.fromiter(map(lambda v: v * K, x), float)),  # noqa: C417
    "filter": lambda x: np.sum(np.fromiter(filter(lambda v: v > K - 1, x), float)),
    "chain": lambda x: np.sum(np.fromiter(itertools.chain(drawn()), float) * x),
    "accumulate": lambda x: np.sum(
        np.fromiter(itertools.accumulate(x, lambda a, b: a * K + b), float)
    ),
    "zip": lambda x: np.sum(np.fromiter((a * b for a, b in zip(drawn(), x, strict=True)), float)),
    "a generator function": lambda x: np.sum(np.fromiter(drawn_below(), float) * x),
    "an iterator": lambda x: np.sum(np.fromiter(Counting(), float) * x),
    "an iterable": lambda x: np.sum(np.fromiter(going, float) * x),
    "one in another": lambda x: np.sum(
        np.fromiter((np.sum(np.fromiter((w * K * v for w in ROWS), float)) for v in x), float)
    ),
}


@UNCOMPILED
@pytest.mark.parametrize("f", FILLED.values(), ids=list(FILLED))
def test_arrays_filled_from_iterators(f, derivative, monkeypatch):
    """a generator, `map` or another iterator from which `np.fromiter` fills an array reads a global
    that changes -> traced anew"""
    df = derivative(f)
    df.at(X)
    monkeypatch.setitem(globals(), "K", 3.0)
    df.at(X)
    monkeypatch.setitem(globals(), "K", 2.0)
    df.at(X)


CALLED = {
    "sorted": lambda x: x[0] * sorted(ROWS, key=lambda v: v * (K - 2.5))[0],
    "sorted, traced": lambda x: sorted(x, key=lambda v: v * (K - 2.5))[0] ** 2,
    "max": lambda x: max([*x], key=lambda v: v * (K - 2.5)) ** 2,
    "reduce": lambda x: functools.reduce(lambda a, b: a + b * K, x),
    "filter": lambda x: sum(filter(lambda v: v > K - 1, x)),
    "sum": lambda x: sum(v * K for v in x),
    "prod": lambda x: math.prod(v * K for v in x),
    "join": lambda x: x[0] * float("".join(str(K) for _ in range(1))),
    "dict": lambda x: x[0] * dict((k, K) for k in "a")["a"],  # noqa: C402
    "cmp_to_key": lambda x: (
        x[0] * sorted(ROWS, key=functools.cmp_to_key(lambda a, b: (a - b) * (K - 2.5)))[0]
    ),
    "groupby": lambda x: x[0] * next(itertools.groupby(ROWS, key=lambda v: K))[0],
    "iter of a call": lambda x: x[0] * next(iter(lambda: K, None)),
    "re.sub": lambda x: x[0] * float(re.sub("a", lambda m: str(K), "a")),
    "json.dumps": lambda x: x[0] * float(json.dumps(going, default=lambda o: K)),
    "json.dumps of a list": lambda x: x[0] * json.loads(json.dumps(going, default=_pair))[1],
    "JSONEncoder.default": lambda x: x[0] * float(json.dumps({"a": going}, cls=Encoder)[6:-1]),
    "frompyfunc": lambda x: np.sum(elementwise(x)),
    "frompyfunc of a made array": lambda x: np.sum(elementwise(np.arange(3.0)).astype(float) * x),
    "its reduce": lambda x: x[0] * folding.reduce(np.arange(3.0)),
    "its accumulate": lambda x: x[0] * folding.accumulate(np.arange(3.0))[-1],
    "its outer": lambda x: x[0] * np.sum(folding.outer(np.arange(3.0), ROWS).astype(float)),
    "reduce by one": lambda x: x[0] * functools.reduce(folding, ROWS),
    "max by one": lambda x: x[0] * max(ROWS, key=ordering),
    "max by a reduction": lambda x: x[0] * max(([1.0, -2.0], [0.0, 1.5]), key=folding.reduce)[1],
    "vectorize": lambda x: np.sum(vectorized(x)),
    "apply_along_axis": lambda x: np.sum(np.apply_along_axis(lambda r: r * K, 0, x)),
    "fromfunction": lambda x: np.sum(np.fromfunction(lambda i: i * K, (3,)) * x),
    "piecewise": lambda x: np.sum(np.piecewise(x, [x > 1], [lambda v: v * K, 0.0])),
    "__float__": lambda x: x[0] * math.sqrt(scale),
    "__index__": lambda x: np.sum(x[: operator.index(scale)] ** 2),
    "__hash__": lambda x: x[0] * hash((scale,)),
    "__eq__": lambda x: x[0] * [4, scale].count(3) + x[1],
    "__lt__": lambda x: x[0] * min([Scale(1.0), Scale(2.0)]).v,
    "__bool__": lambda x: x[0] * any([scale]) + x[1],
    "__str__": lambda x: x[0] * float(str([scale] and scale)),
    "__getattr__": lambda x: x[0] * operator.attrgetter("rate")(scale),
    "__call__": lambda x: x[0] * next(map(scale, ROWS)),
}


@pytest.mark.every(6)
@UNCOMPILED
@pytest.mark.parametrize("f", CALLED.values(), ids=list(CALLED))
def test_functions_and_methods_that_c_code_calls(f, derivative, monkeypatch):
    """C code (`sorted`, `functools.reduce`, `re.sub`, `hash`, a NumPy function) calls a function or
    a special method that reads a global that changes -> traced anew"""
    df = derivative(f)
    df.at(X)
    monkeypatch.setitem(globals(), "K", 3.0)
    df.at(X)
