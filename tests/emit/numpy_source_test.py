"""The NumPy source of small programs, as text, with its values."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
from tests.emit.check import assert_agree, assert_close

from tapegrad import trace
from tapegrad.emit.numpy_source import numpy_function
from tapegrad.ir.tape import Tape
from tapegrad.pipeline import gradient, numpy_source_of, optimized

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
            t2 = x * 2.0
            if t1 != np.True_:
                raise ValueError('traced where a condition was True ({where})')
            return t2
        """,
    )
    with pytest.raises(ValueError, match="traced where a condition was True"):
        numpy_function(tape)(-up)
