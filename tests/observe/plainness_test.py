"""Code in C that takes an integer gets a plain one, and so do dicts and sets that are keyed by one:
the derivative is that of the plain program, at each integer.
"""

from __future__ import annotations

import array
import collections
import datetime
import decimal
import functools
import heapq
import itertools
import json
import math
import os
import random
import struct
import time
import zlib
from dataclasses import dataclass

import numpy as np
import pytest
from tests.frontend.check import name_of

from tapegrad import grad, jit
from tapegrad.errors import ConversionError

Point = collections.namedtuple("Point", "i j")


@dataclass(frozen=True)
class Cell:
    i: int
    j: int


class Doubling(dict):
    def __setitem__(self, key, value):
        super().__setitem__(key, 2 * value)


TO_CODE_IN_C = [
    lambda x, n: sum(collections.deque(x, maxlen=n)),
    lambda x, n: sum(collections.deque(x, **{"maxlen": n})),
    lambda x, n: math.ldexp(1.0, n) * math.ldexp(float(x[0]), n),
    lambda x, n: len(json.dumps({"n": [100 * n, n > 2, n / 4]})) * x[0],
    lambda x, n: float(decimal.Decimal(n) + decimal.Decimal(n / 4)) * x[0],
    lambda x, n: sum(a * b[-1] for a, *b in itertools.permutations(x, n)),
    lambda x, n: sum(a * b[-1] for a, *b in itertools.combinations(x, r=n)),
    lambda x, n: sum(a * b[-1] for a, *b in itertools.product(x[:2], repeat=n)),
    lambda x, n: sum(itertools.islice(x, n)) + sum(itertools.repeat(x[0], n)),
    lambda x, n: next(itertools.count(n)) * x[0],
    lambda x, n: int.bit_length(n) * x[0],
    lambda x, n: np.ndarray.sum(x * x) * np.ndarray.__add__(x, n)[0],
    lambda x, n: struct.pack("b", n)[0] * struct.Struct("bb").pack(n, n)[1] * x[0],
    lambda x, n: n.to_bytes(2, "little")[0] * int.from_bytes([n, n], "big") * x[0],
    lambda x, n: len(bytes(n)) * bytearray([n])[0] * x[0],
    lambda x, n: random.Random(n).getrandbits(n) * x[0],
    lambda x, n: np.random.default_rng(n).normal() * x[0],
    lambda x, n: len("a".rjust(n) + "a".zfill(n + 1)) * x[0],
    lambda x, n: len(os.path.join("a", str(1000 * n))) * x[0],
    lambda x, n: x[time.sleep(1e-9 * n) or 0] * n,
    lambda x, n: math.comb(6, n) * math.perm(6, n) * math.gcd(12, n) * math.factorial(n) * x[0],
    lambda x, n: datetime.timedelta(days=n, seconds=n / 4).total_seconds() * x[0],
    lambda x, n: np.timedelta64(n, "D").astype(int) * x[0],
    lambda x, n: pow(3, n, 5) * x[0],
    lambda x, n: sum(heapq.nlargest(n, list(x))),
    lambda x, n: sum(array.array("i", [n, n])) * x[0],
    lambda x, n: zlib.crc32(b"a", n) % 7 * x[0],
    lambda x, n: functools.partial(math.ldexp, 1.0, n)() * x[0],
    lambda x, n: float(functools.partial(decimal.Decimal, n)()) * x[0],
    lambda x, n: float(sum(map(decimal.Decimal, [n, n + 1]))) * x[0],
    lambda x, n: sum(itertools.starmap(math.ldexp, [(1.0, n)])) * x[0],
]


@pytest.mark.every(2)
@pytest.mark.filterwarnings("ignore:.*was traced for:RuntimeWarning")  # decimal is read anew
@pytest.mark.parametrize("f", TO_CODE_IN_C, ids=name_of)
def test_an_integer_that_goes_to_code_in_c_is_a_plain_one(f):
    """As Python's integer, at each value."""
    _check(f)


def _check(f):
    slope, x = grad(f, compile="never"), np.array([0.3, 1.1, 0.7, 0.2])
    for n in (2, 3, 2, 4):
        expected = [(f(x + h, n) - f(x - h, n)) / 2e-6 for h in 1e-6 * np.eye(4)]
        assert np.allclose(slope(x, n), expected, rtol=1e-6, atol=1e-6)


def test_a_real_number_that_goes_to_code_in_c():
    """It is guarded where nothing is differentiated by it; else its derivative would be lost."""

    def f(x, t):
        return float(decimal.Decimal(t)) * x + datetime.timedelta(seconds=t).total_seconds()

    slope, again = grad(f, compile="never"), jit(f, compile="never")
    for t in (0.5, 1.25, 0.5):
        assert slope(2.0, t) == t
        assert again(2.0, t) == 3 * t
    with pytest.raises(ConversionError, match=r"by decimal\.Decimal"):
        grad(f, argnums=1)(2.0, 0.5)


def _fibonacci(x, n):
    known = {}

    def fib(k):
        if k in known:
            return known[k]
        known[k] = x[0] * k if k < 2 else fib(k - 1) + x[1] * fib(k - 2)
        return known[k]

    return fib(n + 2)


def _remembered(x, n):
    @functools.cache
    def paths(i, j=0):
        return x[0] if min(i, j) == 0 else paths(i - 1, j) + x[1] * paths(i, j=j - 1)

    return paths(n, n - 1)


def _pairs(x, n):
    table = {}
    for i in range(n):
        for j in range(n):
            table[i, j] = x[i % 4] * x[j % 4]
    table[n, n] = x[0]
    return sum(table.values()) + table[(n - 1, 0)] + table[n, n]


def _kept(x, n):
    table = {n: x[0], 2 * n: x[1]}
    table.setdefault(n + 1, x[2])
    table.update([(n + 5, x[3])])
    assert all(type(k) is int for k in table)
    return sum(k * v for k, v in table.items()) + table.pop(2 * n)


def _deleted(x, n):
    table = {1: x[0], 2: x[1], 3: x[2], 4: x[3]}
    del table[n]
    return sum(table.values())


def _grouped(x, n):
    groups = collections.defaultdict(list)
    for k, v in ((n, x[0]), (n % 2, x[1]), (n, x[2])):
        groups[k].append(v)
    return sum(k * sum(v) for k, v in groups.items())


def _sets(x, n):
    s, t = {n, n + 1}, set(list(range(n)) + [n])
    s.add(n + 2)
    t.discard(n)
    u = frozenset(k % n for k in (n, n + 1))
    return len(s) * x[0] + len(t) * x[1] + (n in s) * x[2] + len(s & u) * x[3]


def _counted(x, n):
    counts = collections.Counter([n, n, n + 1])
    counts[n] += 1
    return sum(k * v for k, v in counts.items()) * x[0] + counts.most_common(1)[0][0] * x[1]


def _objects(x, n):
    table = {Point(n, n + 1): x[0], Cell(n, 1): x[1], Cell(2, 1): x[2]}
    return table[n, n + 1] * table[Cell(n, 1)] * len(table)


def _doubled(x, n):
    table = Doubling()
    table[n] = x[0]
    return table[n] * table.get(n, x[1])


KEYED = [
    _fibonacci,
    _remembered,
    _pairs,
    _kept,
    _deleted,
    _grouped,
    _sets,
    _counted,
    _objects,
    _doubled,
    lambda x, n: {k + n: x[k] for k in range(3)}[n] * len({v % 2 for v in (n, n + 2)}),
    lambda x, n: dict(zip([n, n + 1], [x[0], x[1]], strict=True))[n],
    lambda x, n: {True: x[0], False: x[1]}[n > 2] * {n > 2: 3.0}[n > 2],
    lambda x, n: hash((n, 1)) % 7 * x[0],
    lambda x, n: {np.argmax(x): x[0] * n}[1],
]


@pytest.mark.every(2)
@pytest.mark.filterwarnings("ignore:.*was traced for:RuntimeWarning")  # so is functools.cache
@pytest.mark.parametrize("f", KEYED, ids=name_of)
def test_a_key_is_a_plain_integer(f):
    """Dicts, sets and remembered results that are keyed by an integer are as in plain Python."""
    _check(f)
