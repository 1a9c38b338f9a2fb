"""The kernels of small programs, as text; and each gives what the played tape gives."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
from tests.emit.check import assert_agree, compiled

from tapegrad import trace
from tapegrad.ir.tape import Tape
from tapegrad.pipeline import gradient, optimized, schedule


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape)


def kernel(tape: Tape) -> str:
    """The text of a tape's only kernel."""
    (found,) = schedule(tape).kernels
    return found.text


def check(tape: Tape, args: Sequence[Any], expected: str) -> None:
    """The kernel reads like this, comments aside, and computes what the tape says."""
    text = re.sub(r"^ *#.*\n", "", kernel(tape), flags=re.MULTILINE)
    assert text == dedent(expected).lstrip()
    assert_agree(tape, args)


def check_value(f: Callable[..., Any], args: Sequence[Any], expected: str) -> None:
    check(optimized(trace(f, *args)[1]), args, expected)


def check_gradient(f: Callable[..., Any], args: Sequence[Any], expected: str) -> None:
    check(gradient(trace(f, *args)[1], [0]), args, expected)


# ---- loops


def test_an_elementwise_chain_is_one_loop():
    def chain(x, y):
        h = np.tanh(x * y)
        return h * 2.0 + x

    check_value(
        chain,
        (normal(5), normal(5)),
        """
        def chain_kernel(x, y, out):
            for i in range(5):
                out[i] = (tanh(x[i] * y[i]) * 2.0) + x[i]
            return 0
        """,
    )


def test_softmax_of_rows_is_inner_loops_under_one_outer_loop():
    def softmax(x):
        e = np.exp(x - x.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)

    check_value(
        softmax,
        (normal(3, 4),),
        """
        def softmax_kernel(x, out, scratch0):
            e = reshaped(scratch0, (4,))
            for i in range(3):
                t = (-inf)
                for j in range(4):
                    t = largest(t, x[i, j])
                t1 = t
                t2 = 0.0
                for j in range(4):
                    e[j] = exp(x[i, j] - t1)
                    t2 = plus(t2, e[j])
                t3 = t2
                for j in range(4):
                    out[i, j] = e[j] / t3
            return 0
        """,
    )


def test_a_column_reduction_accumulates_rows():
    def columns(x):
        return x.sum(axis=0)

    check_value(
        columns,
        (normal(3, 4),),
        """
        def columns_kernel(x, out):
            clear(out)
            for i in range(3):
                for j in range(4):
                    out[j] += x[i, j]
            return 0
        """,
    )


@pytest.mark.parametrize(
    ("function", "rolled"),
    [
        (lambda x: x * x[:1] + 1.0, True),  # each row by itself
        (lambda x: np.sum(x * x, axis=1), True),
        (lambda x: np.sum(x * x, axis=0), False),  # all rows into one
        (lambda x: np.max(x * x, axis=1), True),
        (lambda x: np.exp(x[:, :12]), True),
        (lambda x: np.exp(x[:, :10]), False),  # functions of what is left over would take long
        (lambda x: (x * x)[:, :5], False),
    ],
)
def test_short_rows_are_vectorised_along_the_row(function, rolled):
    """LLVM is kept from unrolling them where it would gather elements of several rows."""
    _, tape = trace(function, normal(30, 24))
    text = "".join(kernel.text for kernel in schedule(tape).kernels)
    assert ("rolled(" in text) == rolled


def test_a_large_product_goes_to_the_library_and_a_transpose_with_it():
    def product(x, y):
        return x.T @ y

    check_value(
        product,
        (normal(50, 60), normal(50, 70)),
        """
        def product_kernel(x, y, out):
            matmul(x.T, y, out)
            return 0
        """,
    )


# ---- indices


def test_slices_are_index_arithmetic():
    def differences(x):
        return (x[1:] - x[:-1]) * x[:0:-1]

    check_value(
        differences,
        (normal(5),),
        """
        def differences_kernel(x, out):
            for i in range(4):
                out[i] = (x[i + 1] - x[i]) * x[4 - i]
            return 0
        """,
    )


def test_an_assignment_writes_in_place():
    def assigned(x):
        y = x * 1.0
        y[1:3] = 7.0
        y[0] += x[4]
        return y

    check_value(
        assigned,
        (normal(5),),
        """
        def assigned_kernel(x, out):
            for i in range(5):
                out[i] = x[i]
            for i in range(2):
                out[i + 1] = 7.0
            out[0] = x[0] + x[4]
            return 0
        """,
    )


def test_a_gather_checks_its_range():
    def pick(table, rows):
        return table[rows] * 2.0

    table, rows = normal(4, 2), np.array([3, 0, -1])
    check_value(
        pick,
        (table, rows),
        """
        def pick_kernel(table, rows, out):
            bad = False
            for i in range(3):
                bad = bad | (rows[i] < (-4))
                bad = bad | (rows[i] >= 4)
                for j in range(2):
                    out[i, j] = (table[wrapped(rows[i], 4), j]) * 2.0
            if bad:
                return 1
            return 0
        """,
    )
    call = compiled(optimized(trace(pick, table, rows)[1]))
    assert call(table, np.array([3, 0, -4])) is not None
    assert call(table, np.array([3, 0, 4])) is None
    assert call(table, np.array([3, 0, -5])) is None


# ---- gradients


def test_the_gradient_of_a_gather_adds_at_its_rows():
    def picked(table, rows):
        return np.sum(table[rows] ** 2)

    check_gradient(
        picked,
        (normal(4, 2), np.array([3, 0, -1])),  # row 3 twice
        """
        def grad_picked_kernel(table, rows, out, d_table):
            bad = False
            t = 0.0
            for i in range(4):
                for j in range(2):
                    d_table[i, j] = 0.0
            for i in range(3):
                bad = bad | (rows[i] < (-4))
                bad = bad | (rows[i] >= 4)
                for j in range(2):
                    t1 = table[wrapped(rows[i], 4), j]
                    t = plus(t, t1 * t1)
                    d_table[wrapped(rows[i], 4), j] += t1 * 2.0
            if bad:
                return 1
            out[()] = t
            return 0
        """,
    )


def test_the_gradient_of_rosenbrock():
    def rosenbrock(x):
        return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)

    check_gradient(
        rosenbrock,
        (normal(5000),),
        """
        def grad_rosenbrock_kernel(x, out, d_x):
            t = 0.0
            d_x[4999] = 0.0
            for i in range(4999):
                t1 = x[i + 1] - (x[i] * x[i])
                t2 = 1.0 - x[i]
                t = plus(t, (100.0 * (t1 * t1)) + (t2 * t2))
                d_x[i] = (t2 * (-2.0)) + ((t1 * (-200.0)) * (x[i] * 2.0))
            out[()] = t
            for i in range(4999):
                d_x[i + 1] += (x[i + 1] - (x[i] * x[i])) * 200.0
            return 0
        """,
    )


# ---- guards, names, dtypes


def test_a_guard_returns_early():
    def signed(x):
        if x.sum() > 0.0:
            return x * 2.0
        return -x

    up = np.array([1.0, 2.0, 3.0])
    check_value(
        signed,
        (up,),
        """
        def signed_kernel(x, out):
            t = 0.0
            for i in range(3):
                t = plus(t, x[i])
                out[i] = x[i] * 2.0
            t1 = t > 0.0
            if t1 != True:
                return 1
            return 0
        """,
    )
    assert_agree(optimized(trace(signed, up)[1]), (up,), (-up,))
    assert compiled(optimized(trace(signed, up)[1]))(-up) is None


def test_comments_show_the_users_lines_and_names_are_the_users():
    def scaled(weights, inputs):
        total = np.sum(weights * inputs)
        return inputs / total

    args = np.full(3, 2.0), normal(3)
    tape = optimized(trace(scaled, *args)[1])
    line = scaled.__code__.co_firstlineno
    expected = f"""
        def scaled_kernel(weights, inputs, out):
            total = 0.0
            # numba_source_test.py:{line + 1}: total = np.sum(weights * inputs)
            for i in range(3):
                total = plus(total, weights[i] * inputs[i])
            # numba_source_test.py:{line + 2}: return inputs / total
            for i in range(3):
                out[i] = inputs[i] / total
            return 0
        """
    assert kernel(tape) == dedent(expected).lstrip()
    assert_agree(tape, args)


def test_float32_constants_are_typed():
    def single(x):
        return np.exp(x) * 0.1 + 1.0 / x

    x = np.array([0.5, 1.0, 3.0], np.float32)
    check_value(
        single,
        (x,),
        """
        def single_kernel(x, out):
            for i in range(3):
                out[i] = (exp(x[i]) * f4_0_1) + (f4_1_0 / x[i])
            return 0
        """,
    )
    constants = schedule(optimized(trace(single, x)[1])).constants
    assert constants == {"f4_0_1": np.float32(0.1), "f4_1_0": np.float32(1.0)}
    assert {type(c) for c in constants.values()} == {np.float32}
