"""Sums of products in another order: no finite number becomes infinite by it, no zero another
number, whatever the magnitudes, and moderate numbers take the shorter way."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from tests.tapes import tape

from tapegrad import jit, pipeline, trace, value_and_grad
from tapegrad.ir.ranges import RANGE
from tapegrad.ir.text import parse
from tapegrad.optimize.simplify import reorder, simplify
from tapegrad.primitives.elementwise import moderate


def chained(A, B, x):
    return np.sum(A @ B @ x)


def scaled(A, B, x):
    return np.sum(A[0, 0] * (B @ x) - x / A[0, 0])


def outer(A, B, x):
    return np.sum((x[:, None] * A[0]) @ B)


def diagonal(A, B, x):
    return np.sum(np.trace(A @ B) * np.diag(x) @ B)


def repeated(A, B, x):
    return np.sum(np.full((3, 64), A[0, 0]) @ B, axis=0)[0]


def of_two(A, B, x):
    return np.einsum("ij,jk->", A, B) * x[0]


def of_three(A, B, x):
    return np.einsum("ij,jk,k->", A, B, x)


def of_four(A, B, x):
    return np.einsum("ij,jk,kl,l->i", A[:20, :20], B[:20, :20], A[:20, :20], x[:20])[0]


PROGRAMS = [chained, scaled, outer, diagonal, repeated, of_two, of_three, of_four]
MAGNITUDES = [
    (1e307, 1e-300, 1.0),
    (1e-200, 1e-200, 1e300),
    (1e200, 1e200, 1e-300),
    (1e-300, 1e300, 1e-20),
    (np.inf, 1.0, 0.0),
    (1.0, np.nan, 1.0),
    (-0.0, 1.0, 1.0),
    (0.0, -1.0, 3.0),
    (1e-300, 1e-10, 1e300),
    (0.5, 2.0, 3.0),
]


def kind_of(x):
    return np.select([np.isnan(x), np.isinf(x), x == 0], ["nan", "inf", "zero"], "finite")


def assert_alike(found, expected, what):
    assert kind_of(found) == kind_of(expected), f"{what}: {found!r}, not {expected!r}"
    if not np.isnan(expected):
        assert np.signbit(found) == np.signbit(expected), f"{what}: {found!r}, not {expected!r}"
    np.testing.assert_allclose(found, expected, rtol=1e-10, err_msg=str(what))


def matrices(a, b, x):
    return np.full((64, 64), a), np.full((64, 64), b), np.full(64, x)


@pytest.mark.parametrize("compile", ["always", "never"])
def test_sums_of_products_are_numpys_for_all_magnitudes(compile):
    """Finite, infinite, zero and NaN where NumPy's result is, call after call of one trace."""
    with np.errstate(all="ignore"):
        f = jit(lambda *args: [program(*args) for program in PROGRAMS], compile=compile)
        for magnitudes in [*MAGNITUDES, *MAGNITUDES]:
            args = matrices(*magnitudes)
            for program, found in zip(PROGRAMS, f(*args), strict=True):
                what = f"{program.__name__} of {magnitudes}"
                assert_alike(found, program(*args), what)
        assert f.cache_info().traces == 1


def test_gradients_played_and_compiled_are_alike_for_all_magnitudes():
    """The backward half is reordered as the forward half is."""
    ways = {c: value_and_grad(chained, (0, 1, 2), compile=c) for c in ("always", "never")}
    with np.errstate(all="ignore"):
        for magnitudes in MAGNITUDES:
            args = matrices(*magnitudes)
            played, compiled = (ways[c](*args) for c in ("never", "always"))
            assert_alike(compiled[0], chained(*args), magnitudes)
            for x, y in zip(compiled[1], played[1], strict=True):
                np.testing.assert_array_equal(kind_of(x), kind_of(y), err_msg=str(magnitudes))


MATRIX_AND_VECTOR = """
%3 = einsum(%1, %2, subscripts='ij,j->i') : f8[3]
%4 = sum(%3, axes=(0,)) : f8[]
out %4
"""


def test_the_order_changes_under_guards_alone():
    """Passes before and after differentiating keep NumPy's order; the one for what is compiled asks
    for moderate operands."""
    given = tape("f8[3,4] f8[4]", MATRIX_AND_VECTOR)
    assert str(simplify(given)) == str(given)
    done = reorder(given)
    assert "subscripts='i,i->'" in str(done)
    assert [guard.what for guard in done.guards] == [RANGE, RANGE]
    assert done.play(np.ones((3, 4)), np.ones(4)) == 12.0
    with pytest.raises(ValueError, match="range"):
        done.play(np.full((3, 4), 1e300), np.ones(4))


def test_the_same_numbers_are_asked_about_once():
    """Of products that are reordered one after the other, which ask how large the same matrix is,
    the one is left that lets fewer numbers pass."""

    def product(*matrices):
        return np.sum(functools.reduce(np.matmul, matrices))

    matrices = [np.full((3, 3), 2.0)] * 5
    given = pipeline.gradient(trace(product, *matrices)[1], range(5), keep=[0])
    done = reorder(given)
    asked = [call.operands for call in done.calls if call.primitive is moderate]
    assert len(asked) == len({x for x, _ in asked}) == len(done.guards)
    assert {x for x, _ in asked} == {*done.inputs}
    assert {bound.value for _, bound in asked} == {2.0**120}
    for found, expected in zip(done.play(*matrices), given.play(*matrices), strict=True):
        np.testing.assert_allclose(found, expected)


def test_literals_are_asked_at_once():
    """A number that is known to be too large leaves the sum as it is."""
    given = tape(
        "f8[3,4] f8[4]",
        """
        %3 = einsum(%1, %2, subscripts='ij,j->i') : f8[3]
        %4 = mul(%3, 1e+300) : f8[3]
        %5 = sum(%4, axes=(0,)) : f8[]
        out %5
        """,
    )
    assert str(reorder(given)) == str(given)


LOOP = """
tape f(x, y)
  inp   %1 : f8[3]
  inp   %2 : f8[3,3]
        %3 = loop(3, %1, %1, %2, body=@1, carried=1, most=3) : f8[3]
  out   %3

@1 = tape round(t, before, x, y)
  inp   %1 : i8[]
  inp   %2 : f8[3]
  inp   %3 : f8[3]
  inp   %4 : f8[3,3]
        %5 = greater(%2, 0.0) : b1[3]
        %6 = astype(%5, dtype=f8) : f8[3]
        %7 = expand_dims(%6, axes=(1,)) : f8[3,1]
        %8 = mul(%7, {vector}) : f8[3,3]
        %9 = einsum(%8, %4, subscripts='ij,jk->ik') : f8[3,3]
        %10 = sum(%9, axes=(1,)) : f8[3]
        %11 = sub(%2, %10) : f8[3]
  out   %11
"""


def test_rounds_change_the_order_of_what_is_the_same_in_each():
    """A truth value is 0 or 1; of what a round has changed nothing is asked."""
    given = parse(LOOP.format(vector="%3"))
    done = reorder(given)
    assert "einsum" in str(given) and "einsum(%8" not in str(done)
    assert [guard.what for guard in done.guards] == [RANGE, RANGE]
    x, y = np.array([0.5, -1.0, 2.0]), np.arange(9.0).reshape(3, 3) / 10
    np.testing.assert_allclose(done.play(x, y), given.play(x, y), rtol=1e-14)
    with pytest.raises(ValueError, match="range"):
        done.play(x, y * 1e300)
    kept = parse(LOOP.format(vector="%2"))
    assert str(reorder(kept)) == str(kept)
