"""The NumPy source of small programs, as text, with its values."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
from tests.emit.check import assert_agree, assert_close
from tests.tapes import tape

from tapegrad import primitive, trace
from tapegrad.backends.numpy.play import run
from tapegrad.backends.numpy.source import numpy_function
from tapegrad.ir.tape import Tape, Var
from tapegrad.pipeline import gradient, numpy_source_of, optimized
from tapegrad.primitives import primitives
from tapegrad.primitives.base import Primitive
from tapegrad.primitives.kinds import Control, Library

X = np.random.default_rng(0).normal(size=(3, 4))


def check(tape: Tape, args: Sequence[Any], expected: str) -> None:
    """The source reads like this, comments and imports aside, and gives the tape's values."""
    lines = numpy_source_of(tape).splitlines(keepends=True)
    text = "".join(line for line in lines if "# " not in line)
    assert text == "import numpy as np\n\n\n" + dedent(expected).lstrip()
    assert_agree(tape, args)


def test_one_statement_a_call():
    def softmax(x):
        e = np.exp(x - x.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)

    tape = optimized(trace(softmax, X)[1])
    check(
        tape,
        (X,),
        """
        def softmax(x):
            t = np.max(x, axis=1)
            t1 = t[:, None]
            t2 = x - t1
            e = np.exp(t2)
            t3 = np.sum(e, axis=1)
            t4 = t3[:, None]
            t5 = e / t4
            return t5
        """,
    )
    assert_close(numpy_function(tape)(X), [softmax(X)])
    line = softmax.__code__.co_firstlineno + 2
    comment = f"# numpy_source_test.py:{line}: return e / e.sum(axis=1, keepdims=True)\n"
    assert comment in numpy_source_of(tape)


def test_a_gradient_writes_into_zeros():
    def picked(table, rows):
        return np.sum(table[rows] ** 2)

    rows = np.array([2, 0, -1])
    check(
        gradient(trace(picked, X, rows)[1], [0]),
        (X, rows),
        """
        def grad_picked(table, rows):
            t = table[rows]
            t1 = np.square(t)
            t2 = np.sum(t1)
            ct = t * 2.0
            d_table = np.zeros((3, 4))
            np.add.at(d_table, (rows,), ct)
            return t2, d_table
        """,
    )


def test_a_guard_raises():
    def signed(x):
        if x.sum() > 0.0:
            return x * 2.0
        return -x

    up = np.array([1.0, 2.0])
    tape = optimized(trace(signed, up)[1])
    where = f"numpy_source_test.py:{signed.__code__.co_firstlineno + 1}"
    check(
        tape,
        (up,),
        f"""
        def signed(x):
            t = np.sum(x)
            t1 = t > 0.0
            if t1 != np.True_:
                raise ValueError('traced where a condition was True ({where})')
            t2 = x * 2.0
            return t2
        """,
    )
    with pytest.raises(ValueError, match="traced where a condition was True"):
        numpy_function(tape)(-up)


# ---- all primitives


def line_of(call: str, *types: str) -> list[str]:
    """The lines that a call of operands of these types becomes; they give what it gives."""
    results = call.rpartition(" : ")[2].count("[")
    outs = [f"%{len(types) + 1 + k}" for k in range(results)]
    small = tape(" ".join(types), f"{', '.join(outs)} = {call}\nout {', '.join(outs)}")
    assert_close(numpy_function(small)(*map(value, small.inputs)), played(small))
    lines = numpy_source_of(small).splitlines()
    return [line.strip() for line in lines[lines.index("") + 3 : -1]]


def value(var: Var) -> np.ndarray:
    return np.arange(var.aval.size).reshape(var.shape).astype(var.dtype)


def played(small: Tape) -> list[Any]:
    return run(small, list(map(value, small.inputs)))[0]


CALLS = {
    # constants say their dtype where nothing beside them does
    "add(%1, 0.5) : f8[3]": (["f8[3]"], ["t = x + 0.5"]),
    "add(%1, f4(0.5)) : f4[3]": (["f4[3]"], ["t = x + np.float32(0.5)"]),
    "exp(0.5) : f8[]": (["f8[3]"], ["t = np.exp(np.float64(0.5))"]),
    "maximum(%1, f8(-inf)) : f8[3]": (["f8[3]"], ["t = np.maximum(x, -np.inf)"]),
    "where(%1, 1.0, f8(nan)) : f8[3]": (
        ["b1[3]"],
        ["t = np.where(x, np.float64(1.0), np.float64(np.nan))"],
    ),
    "logical_xor(%1, True) : b1[3]": (["b1[3]"], ["t = np.logical_xor(x, True)"]),
    "astype(%1, dtype=f4) : f4[3]": (["b1[3]"], ["t = x.astype(np.float32)"]),
    # dtypes that NumPy would widen
    "sum(%1, axes=(0,)) : i4[4]": (["i4[3,4]"], ["t = np.sum(x, axis=0, dtype=np.int32)"]),
    "cumsum(%1, axis=1, reverse=True) : f8[3,4]": (
        ["f8[3,4]"],
        ["t = np.flip(np.cumsum(np.flip(x, 1), 1), 1)"],
    ),
    # views
    "transpose(%1, axes=(0, 2, 1)) : f8[2,4,3]": (
        ["f8[2,3,4]"],
        ["t = np.transpose(x, (0, 2, 1))"],
    ),
    "expand_dims(%1, axes=(0, 2)) : f8[1,3,1]": (["f8[3]"], ["t = x[None, :, None]"]),
    "getitem(%1, index=(2, Slice(3, 4, -1))) : f8[4]": (["f8[3,4]"], ["t = x[2, ::-1]"]),
    "getitem(%1, index=(Slice(1, 2, 1), Slice(0, 4, 1))) : f8[2,4]": (["f8[3,4]"], ["t = x[1:]"]),
    "getitem(%1, index=(Slice(0, 3, 2),)) : f8[3]": (["f8[6]"], ["t = x[::2]"]),
    "getitem(%1, index=()) : f8[]": (["f8[]"], ["t = x[()]"]),
    "diagonal(%1, offset=1) : f8[2]": (["f8[3,3]"], ["t = np.diagonal(x, 1)"]),
    # writes
    "place(%1, shape=(5,), index=(Slice(1, 3, 1),)) : f8[5]": (
        ["f8[3]"],
        ["t = np.zeros((5,))", "t[1:4] = x"],
    ),
    "setitem(%1, %2, index=(0, Slice(0, 4, 1))) : f4[3,4]": (
        ["f4[3,4]", "f4[4]"],
        ["t = np.array(x)", "t[0] = x1"],
    ),
    "place_diagonal(%1, shape=(3, 4), offset=1) : f8[2,3,4]": (
        ["f8[2,3]"],
        ["t = np.zeros((2, 3, 4))", "t[..., np.arange(3), np.arange(1, 4)] = x"],
    ),
    "scatter_add(%1, %2, shape=(3,)) : f4[3]": (
        ["f4[2]", "i8[2]"],
        ["t = np.zeros((3,), np.float32)", "np.add.at(t, (x1,), x)"],
    ),
    "scatter_set(%1, %2, %3) : f8[3]": (
        ["f8[3]", "f8[2]", "i8[2]"],
        ["t = np.array(x)", "t[x2] = x1"],
    ),
    "winners(%1, shape=(3,)) : b1[2]": (
        ["i8[2]"],
        ["t = np.full((3,), -1)", "t[x] = np.arange(2)", "t = t[x] == np.arange(2)"],
    ),
    "concatenate(%1, %2, axis=0) : f8[5]": (
        ["f8[2]", "f8[3]"],
        ["t = np.concatenate([x, x1], 0)"],
    ),
    # calls
    "nonzero(%1, count=3, ndim=2) : i8[3], i8[3]": (["b1[2,2]"], ["(t, t1,) = np.nonzero(x)"]),
    "expit(%1) : f8[3]": (["f8[3]"], ["t = scipy.special.expit(x)"]),
    "searchsorted(%1, %2, right=True) : i8[3]": (
        ["f8[2]", "f8[3]"],
        ["t = np.searchsorted(x, x1, 'right')"],
    ),
}


@pytest.mark.parametrize("call", CALLS)
def test_calls(call):
    types, lines = CALLS[call]
    assert line_of(call, *types) == lines


def test_every_primitive_has_lines():
    """Except calls with a body of their own, and those that only NumPy makes, by their names."""
    classes = {p for p in primitives().values() if isinstance(p, type)}
    silent = {p for p in classes if p.numpy_text is Primitive.numpy_text}
    assert {p for p in silent if not issubclass(p, (Library, Control))} == set()


def test_a_function_that_only_numpy_can_run_is_called_by_name():
    @primitive
    def backwards(x):
        return np.array([array("d", [v])[0] for v in x[::-1]])

    tape = trace(lambda x: 2.0 * backwards(x), X[0])[1]
    assert "    t = backwards(x)\n    t1 = 2.0 * t\n" in tape.numpy_source
    assert_agree(tape, (X[0],))


def test_names_stay_those_of_python_and_the_user():
    """A lambda and a function called like a word of Python become what can be defined."""
    tape = trace(lambda np: np * 2.0, X)[1]
    assert "def lambda_(np1):" in tape.numpy_source
    compile(tape.source, "source", "exec")
