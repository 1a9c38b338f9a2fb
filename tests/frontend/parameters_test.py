"""Traced integers, where NumPy wants an axis, a shape, a count, an order: guarded for all alike.

A table of calls with a traced integer `k`, each played for several values of it, there and back;
what NumPy refuses is refused with an exception of the same kind.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from tests.frontend.check import assert_same, builtin_kind, name_of

import tapegrad.numpy as tnp
from tapegrad import jit
from tapegrad.tracing.frontend.numpy.functions import followed, function_of
from tapegrad.tracing.frontend.operands.declaring import METHODS
from tapegrad.tracing.frontend.operands.parameters import PARAMETERS

CUBE = np.arange(24.0).reshape(2, 3, 4)
SQUARE = np.arange(9.0).reshape(3, 3) + np.eye(3)
LINE = np.arange(6.0) ** 1.5

CASES = [
    lambda x, k: np.roll(x, k),
    lambda x, k: np.roll(x.reshape(2, 3), (k, 1), axis=(0, 1)),
    lambda x, k: np.tri(3, k=k) * x[0],
    lambda x, k: np.eye(3, k=k) * x[0],
    lambda x, k: np.tril(SQUARE * x[0], k),
    lambda x, k: np.triu(SQUARE * x[0], k),
    lambda x, k: np.sum(CUBE * x[0], axis=k),
    lambda x, k: np.sum(CUBE * x[0], axis=(0, k)),
    lambda x, k: (CUBE * x[0]).sum(k),
    lambda x, k: (CUBE * x[0]).std(axis=k, ddof=k),
    lambda x, k: np.add.reduce(SQUARE * x[0], axis=k - 1),
    lambda x, k: np.logaddexp.reduce(SQUARE * x[0], axis=k - 1),
    lambda x, k: np.maximum.accumulate(SQUARE * x[0], axis=k - 1),
    lambda x, k: x.reshape(k, -1),
    lambda x, k: np.reshape(x, (k, -1)),
    lambda x, k: np.linspace(0, x[0], k),
    lambda x, k: np.arange(k) * x[0],
    lambda x, k: np.ones((k, 2)) * x[0],
    lambda x, k: np.zeros_like(x, shape=k) + x[0],
    lambda x, k: np.full_like(x, x[0], shape=(k, 2)),
    lambda x, k: tnp.zeros((k, 2)) + x[0],
    lambda x, k: tnp.eye(3, k=k) * x[0],
    lambda x, k: np.repeat(x, k),
    lambda x, k: np.repeat(SQUARE * x[0], 2, axis=k - 1),
    lambda x, k: np.tile(x, (k, 2)),
    lambda x, k: np.diff(x, k),
    lambda x, k: np.cross(SQUARE * x[0], SQUARE.T, axis=k - 1),
    lambda x, k: np.array_split(x, k),
    lambda x, k: np.split(x, [k]),
    lambda x, k: np.moveaxis(CUBE * x[0], k, 0),
    lambda x, k: np.swapaxes(CUBE * x[0], 0, k),
    lambda x, k: np.transpose(SQUARE * x[0], (k - 1, 2 - k)),
    lambda x, k: (SQUARE * x[0]).transpose(k - 1, 2 - k),
    lambda x, k: np.linalg.matrix_power(SQUARE * x[0], k),
    lambda x, k: np.expand_dims(x, k - 1),
    lambda x, k: np.take(SQUARE * x[0], [0], axis=k - 1),
    lambda x, k: np.percentile(x, k),
    lambda x, k: np.quantile(x, [k / 8, 0.5]),
    lambda x, k: np.linalg.norm(x, k),
    lambda x, k: np.linalg.norm(x, ord=-k),
    lambda x, k: np.linalg.norm(SQUARE * x[0], k),
    lambda x, k: np.linalg.cond(SQUARE * x[0], k),
    lambda x, k: np.diag(x, k),
    lambda x, k: np.diagonal(SQUARE * x[0], k),
    lambda x, k: np.trace(SQUARE * x[0], k),
    lambda x, k: np.flip(CUBE * x[0], k),
    lambda x, k: np.rot90(SQUARE * x[0], k),
    lambda x, k: np.pad(x, (k, 1)),
    lambda x, k: np.concatenate([SQUARE * x[0], SQUARE], axis=k - 1),
    lambda x, k: np.insert(x, k, 9.0),
    lambda x, k: np.delete(x, [0, k]),
    lambda x, k: np.cumsum(SQUARE * x[0], axis=k - 1),
    lambda x, k: np.sort(SQUARE * x[0], axis=k - 1),
    lambda x, k: np.argmax(SQUARE * x[0], axis=k - 1),
    lambda x, k: np.broadcast_to(x, (k, 6)),
    lambda x, k: np.resize(x, (k, 2)),
    lambda x, k: np.round(x, k),
    lambda x, k: np.vander(x, k),
    lambda x, k: np.tensordot(SQUARE * x[0], SQUARE, k),
    lambda x, k: np.cov(SQUARE * x[0], ddof=k),
    lambda x, k: np.meshgrid(x, x, sparse=k > 1),
    lambda x, k: x.item(k),
    lambda x, k: np.tile(LINE, k) * x[0],
    lambda x, k: np.insert(LINE, k, 0) * x[0],
    lambda x, k: np.delete(LINE, k) * x[0],
    lambda x, k: np.partition(LINE, k) * x[0],
    lambda x, k: np.unravel_index(k, (2, 3))[0] * x[0],
    lambda x, k: np.repeat(LINE, np.array([k, 1, 0, 2, 1, k])) * x[0],
    lambda x, k: np.roll(a=x, shift=k),
]


def outcome(f: Any, *args: Any) -> Any:
    """The result, or what kind of error there is."""
    try:
        return f(*args)
    except Exception as error:
        return builtin_kind(type(error))


@pytest.mark.every(6)
@pytest.mark.parametrize("f", CASES, ids=name_of)
def test_an_integer_is_guarded(f):
    played = jit(f, compile="never")
    x, y = LINE + 1, LINE[::-1] + 0.5
    for k in (1, 2, 1, np.int64(2), -1):
        for point in (x, y):
            expected, found = outcome(f, point, k), outcome(played, point, k)
            if isinstance(expected, type):
                assert found is expected
            else:
                assert_same(found, expected)


def test_an_array_of_counts_from_outside_is_guarded():
    counts = np.array([1, 0, 2, 1, 1, 1])
    played = jit(lambda x: np.repeat(x, counts), compile="never")
    assert_same(played(LINE), np.repeat(LINE, counts))
    counts[:2] = 0, 1
    assert_same(played(LINE), np.repeat(LINE, counts))


def test_a_real_order_of_a_norm_has_a_derivative():
    played = jit(lambda x, p: np.linalg.norm(x, p), compile="never")
    for p in (2.5, 3.0, 2.0, np.inf):
        assert_same(played(LINE, p), np.linalg.norm(LINE, p))


OPERANDS = {
    *("a", "a1", "a2", "a_max", "a_min", "A", "above", "append", "args", "arr", "arrays", "ary"),
    *(
        "array",
        "arys",
        "atol",
        "base",
        "aweights",
        "b",
        "below",
        "bins",
        "choicelist",
        "choices",
        "condition",
    ),
    *(
        "condlist",
        "default",
        "discont",
        "dst",
        "dx",
        "f",
        "fill_value",
        "fp",
        "from_",
        "func",
        "func1d",
    ),
    *("funclist", "fweights", "indices", "initial", "kw", "kwargs", "m", "mask", "max", "max_work"),
    *("mean", "min", "nan", "neginf", "operands", "out", "p", "period", "posinf", "prepend", "q"),
    *("rcond", "right", "rtol", "sorter", "src", "start", "stop", "to_begin", "to_end", "tol"),
    *("tup", "v", "val", "vals", "value", "values", "varargs", "weights", "where", "x", "x1", "x2"),
    *("xi", "xp", "xs", "y", "z", "ar", "ar1", "ar2", "element", "filt", "range", "seq_of_zeros"),
    *("keys", "multi_index", "sample"),
    *("test_elements", "u", "w"),
}


FUNCTIONS = {f: function_of(f) for _, _, f in followed()}


@pytest.mark.parametrize("table", [FUNCTIONS, METHODS], ids=["functions", "methods"])
def test_each_name_is_an_operand_or_a_parameter(table):
    names = {
        name
        for declared in table.values()
        for name in (*inspect.signature(declared.function).parameters, *declared.form.names)
    }
    assert not (OPERANDS & PARAMETERS)
    assert names - PARAMETERS - OPERANDS == set()


def test_arguments_may_be_passed_by_numpys_names():
    keywords = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    for numpys, declared in FUNCTIONS.items():
        own = inspect.signature(declared.function).parameters
        rest = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in own.values())
        renamed = declared.form.renamed
        for name, p in inspect.signature(numpys).parameters.items():
            known = p.kind not in keywords or rest or renamed.get(name, name) in own
            assert known, (numpys, name)
