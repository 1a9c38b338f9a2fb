"""The structure of a Jacobian: never an entry too few, none too many where elements only move."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from tests.primitives.complexes import complex_samples
from tests.primitives.contract_test import over, tape_of
from tests.primitives.samples import all_samples
from tests.sparsity.dense import entries, jacobian

from tapegrad import trace
from tapegrad.checking.tape_verify import verify
from tapegrad.errors import GradientError
from tapegrad.ir.text import parse
from tapegrad.pipeline import derive
from tapegrad.sparsity import rows
from tapegrad.sparsity.pattern import pattern


def structure(f, *args, wrt=(0,), hessian=False):
    """The pattern of f's Jacobian, or of its Hessian, beside the entries of the matrix itself."""
    _, tape = trace(f, *args)
    values = {k: x for k, x in enumerate((*args, *tape.captured)) if _is_plain(x)}
    inputs = [*args, *tape.captured]
    if hessian:
        tape = derive(tape, wrt, keep=[])
    found = pattern(tape, wrt, values=values)
    assert found.has_canonical_format and found.dtype == bool
    return found.toarray(), entries(jacobian(tape, wrt, inputs))


def _is_plain(x):
    return np.asarray(x).dtype.kind in "iub"


X = np.linspace(0.3, 1.7, 12)
PLACES, MASK = np.array([3, 3, 0, -1]), np.arange(12) % 3 == 0
MATRIX = np.arange(1.0, 10).reshape(3, 3)
SPARSE = sparse.csr_array(np.triu(np.tril(np.ones((12, 12)), 2), -1))
CAMERA, POINT = np.array([0, 0, 1, 1]), np.array([0, 1, 1, 2])


def roll(x):
    return np.roll(x, 2) * x


def padded(x):
    u = np.pad(x.reshape(3, 4), 1)
    return u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1]


def joined(x):
    return np.concatenate([x[::-2], np.exp(x[3:5]), np.stack([x[0], x[1] * x[2]])])


def gathered(x):
    return np.sin(x[PLACES]) * x[PLACES[::-1]]


def scattered(x):
    y = np.zeros(6)
    np.add.at(y, PLACES, x[:4])
    y[PLACES[2:]] = x[5] * 2
    return y


def summed(x):
    return np.sum(x.reshape(3, 4) ** 2, axis=0)


def product(x):
    return MATRIX @ x[:3] + x[3]


def running(x):
    return np.cumsum(x.reshape(3, 4), axis=1)


def chosen(x):
    return np.where(MASK, x, x[::-1])


def diagonals(x):
    return np.diagonal(x[:9].reshape(3, 3) * 2, 1) + np.tril(np.outer(x[:2], x[2:4]))[1]


def window_loop(x):
    y = np.zeros(len(x))
    for k in range(1, len(x) - 1):
        y[k] = x[k - 1] - 2 * x[k] * x[k + 1]
    return y


def written_over(x):
    y = x.copy()
    for k in range(2, len(x)):
        y[k] = x[k - 2] * 3
    return y


def recurrence(x):
    y = np.zeros(len(x))
    h = 0.0
    for k in range(len(x)):
        h = np.tanh(h + x[k])
        y[k] = h
    return y


def grid_loop(x):
    u, y = x.reshape(-1, 12), np.zeros((len(x) // 12, 12))
    for i in range(1, len(u) - 1):
        for j in range(1, 11):
            y[i, j] = u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1] - 4 * u[i, j]
    return y


@pytest.fixture(params=["bits", "sets"])
def held(request, monkeypatch):
    """Columns as bits of words, as few are held, and as sets that elements share."""
    if request.param == "sets":
        monkeypatch.setattr(rows, "FEW_COLUMNS", 0)


EXACT = [
    *[roll, padded, joined, gathered, scattered, summed, product, running, chosen, diagonals],
    *[window_loop, written_over, recurrence],
]


@pytest.mark.parametrize("f", EXACT, ids=lambda f: f.__name__)
def test_what_moves_and_adds_elements_has_the_very_structure(f, held):
    """Each entry of the Jacobian, and no other."""
    found, expected = structure(f, X)
    np.testing.assert_array_equal(found, expected)


LONG = [window_loop, written_over, recurrence, grid_loop]


@pytest.mark.every(8)
@pytest.mark.parametrize("f", LONG, ids=lambda f: f.__name__)
def test_loops_that_stay_loops_have_it_too(f, held):
    """A tape with a call of `loop`: the structure is that of the rounds."""
    x = np.linspace(0.2, 0.9, 96)
    assert any(call.primitive.repeats for call in trace(f, x)[1].calls)
    found, expected = structure(f, x)
    np.testing.assert_array_equal(found, expected)


def convolved(x):
    return np.convolve(x, [1.0, -2.0, 1.0], "same")


def times_sparse(x):
    return SPARSE @ x + SPARSE.T @ x


def inverses(x):
    return np.linalg.inv(x.reshape(3, 2, 2) + 9 * np.eye(2)) @ x[:2]


@pytest.mark.parametrize("f", [convolved, times_sparse, inverses], ids=lambda f: f.__name__)
def test_what_a_primitive_says_of_its_parts_counts(f, held):
    """Stencils of convolutions, captured sparse matrices, blocks of a batch."""
    found, expected = structure(f, X)
    np.testing.assert_array_equal(found, expected)


def test_what_is_of_a_batch_stays_in_it():
    """Of decompositions and solutions, each matrix has its own block."""

    def f(x):
        a = x.reshape(3, 2, 2) + 9 * np.eye(2)
        return np.linalg.eigvalsh(a), np.linalg.det(a), np.linalg.solve(a, a[:, :, :1])

    found, expected = structure(f, X)
    assert (found >= expected).all()
    blocks = np.repeat(np.arange(3), 4)
    own = np.concatenate([np.repeat(np.arange(3), n) for n in (2, 1, 2)])
    np.testing.assert_array_equal(found, own[:, None] == blocks)


NESTED = """tape f(x, y)
  inp   %1 : f8[6]
  inp   %2 : f8[6]
        %3 = loop(3, %2, %1, body=@1, carried=1, most=3) : f8[6]
  out   %3

@1 = tape outer(t, y, x)
  inp   %1 : i8[]
  inp   %2 : f8[6]
  inp   %3 : f8[6]
        %4, %5 = loop(2, %2, 1, %1, %3, body=@2, carried=2, most=2) : f8[6], i8[]
  out   %4

@2 = tape inner(s, y, k, t, x)
  inp   %1 : i8[]
  inp   %2 : f8[6]
  inp   %3 : i8[]
  inp   %4 : i8[]
  inp   %5 : f8[6]
        %6 = window(%5, %3, index=(0,), moves=((1,),)) : f8[]
        %7 = set_window(%2, %6, %1, %4, index=(0,), moves=((1,), (2,))) : f8[6]
        %8 = add(2, %1) : i8[]
        %9 = add(%8, %4) : i8[]
  out   %7, %9"""


def test_an_integer_that_inner_rounds_hand_on_is_known(held):
    """Which element is read follows from the rounds, those of the loop around them too."""
    tape = verify(parse(NESTED))
    expected = entries(jacobian(tape, [0, 1], [X[:6], X[6:]]))
    np.testing.assert_array_equal(pattern(tape, [0, 1]).toarray(), expected)


def rosenbrock(x):
    return np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def rosenbrock_loop(x):
    total = 0.0
    for k in range(len(x) - 1):
        total = total + 100 * (x[k + 1] - x[k] ** 2) ** 2 + (1 - x[k]) ** 2
    return total


def bratu(u):
    return np.sum(padded(u) ** 2 + np.exp(u.reshape(3, 4)))


def observations(x):
    cameras, points = x[:6].reshape(2, 3), x[6:].reshape(3, 2)
    seen = cameras[CAMERA][:, :2] * points[POINT] + cameras[CAMERA][:, 2:]
    return np.sum((seen - 1.0) ** 2)


@pytest.mark.parametrize("f", [rosenbrock, bratu, observations], ids=lambda f: f.__name__)
def test_hessians_have_the_structure_of_the_gradients_tape(f, held):
    """No entry too many: second derivatives are zero nowhere else."""
    found, expected = structure(f, X, hessian=True)
    np.testing.assert_array_equal(found, expected)


def test_the_hessian_of_a_sum_in_a_loop_is_tridiagonal():
    found, expected = structure(rosenbrock_loop, np.linspace(0.1, 2, 80), hessian=True)
    np.testing.assert_array_equal(found, expected)
    assert found.sum() == 3 * 80 - 2


def test_what_has_no_derivative_has_no_entries():
    """Constants, signs, comparisons and integers: rows without columns."""

    def f(x):
        return np.sign(x) + np.floor(x), (x > 1) * 1.0, np.ones(3), np.argsort(x)

    assert not structure(f, X)[0].any()


def test_indices_that_nobody_knows_may_be_any():
    """The order of a sort depends on values: each element may be any of those along the axis."""
    found, _ = structure(lambda x: np.sort(x.reshape(3, 4), axis=1), X)
    assert found.all(), "axes with indices are lumped"
    _, tape = trace(lambda x, i: x.reshape(4, 3)[i], X, np.array([2, 0]))
    unknown, known = pattern(tape, [0]), pattern(tape, [0], values={1: np.array([2, 0])})
    assert (unknown.nnz, known.nnz) == (24, 6)


def test_some_outputs_and_inputs_are_asked_for():
    """Blocks of rows and columns in the order in which they are given."""
    _, tape = trace(lambda x, y: (x * 2, y[::-1] * x), X[:3], X[3:6])
    whole = pattern(tape, [0, 1]).toarray()
    some = pattern(tape, [1, 0], outputs=[1]).toarray()
    np.testing.assert_array_equal(some, np.hstack([whole[3:, 3:], whole[3:, :3]]))
    np.testing.assert_array_equal(whole[:3], np.hstack([np.eye(3), np.zeros((3, 3))]))


def test_nothing_has_no_rows_or_no_columns(held):
    """Empty arrays, no inputs, no outputs, constants: matrices without entries."""
    _, tape = trace(lambda x, y: (x * 2, np.sum(y), np.sign(y[:1])), X[:0], X)
    assert pattern(tape, [0]).shape == (2, 0) and pattern(tape, []).shape == (2, 0)
    assert pattern(tape, [1], outputs=[]).shape == (0, 12)
    assert pattern(tape, [0, 1]).toarray().tolist() == [[True] * 12, [False] * 12]


def test_loops_of_unknown_length_are_followed():
    """As many rounds as there may be: elements stay apart where rounds keep them apart."""

    def f(x):
        while np.max(x) > 0.1:
            x = x * 0.9
        return x

    found, expected = structure(f, X)
    assert (found >= expected).all()


@pytest.mark.every(4)
@over([s for s in [*all_samples(), *complex_samples()] if s.floats and s.reverse])
def test_no_entry_of_any_primitives_derivative_is_missing(sample):
    """On the samples of the contract test. A NaN says nothing: it is 0 times an infinity."""
    tape = tape_of(sample)
    if sample.primitive.name == "norm_pullback":
        return  # it differentiates the norm, another operand, with respect to what that is made of
    values = {k: x for k, x in enumerate(sample.operands) if _is_plain(x)}
    found = pattern(tape, sample.floats, values=values).toarray()
    if found.size > 400:
        return
    try:
        with np.errstate(all="ignore"):
            dense = jacobian(tape, sample.floats, sample.operands)
    except GradientError:
        return
    assert not ((dense != 0) & ~np.isnan(dense) & ~found).any()
