"""Played tapes without what keeps zeros: the same bits, as long as results have no NaN."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.backends.numpy.play import Script, run, straight
from tapegrad.backends.numpy.unmasked import unmasked
from tapegrad.core.handlers import quiet


def chosen(x):
    return np.sum(np.where(x > 0.0, np.log(np.where(x > 0.0, x, 1.0)) * x, 0.0))


def left_out(x):
    """The slope of what isn't taken is infinite where x is 0."""
    return np.sum(np.where(x > 0.0, np.sqrt(x) * np.sin(x), x))


def in_rounds(x):
    total = 0.0
    for v in x:
        total = total + np.where(v > 0.0, np.sqrt(v) * np.exp(-total), total * 0.5 + v)
    return total


def by_slices(x):
    y = x[:-1] * x[1:]
    for _ in range(5):
        y = np.where(y > 0.0, np.sqrt(np.abs(y)) * y, y * 0.5) + 0.1
    return np.sum(y)


def bare_parts(tape):
    """The names of the calls of a tape and of those in it."""
    for call in tape.calls:
        yield call.primitive.name
        for inner in call.primitive.tapes:
            yield from bare_parts(inner)


X = np.array([0.5, 2.0, 1.5, 3.0, 0.25, 1.0, 2.5, 0.75])
PROGRAMS = [chosen, left_out, in_rounds, by_slices]


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_masks_are_played_only_where_a_result_is_not_a_number(f):
    """Values go from such that need no masks to such that do, and back."""
    g = tg.grad(f, compile="never")
    g(X)
    (tape,) = g.tapes
    assert "isnan" in bare_parts(tape)
    found = unmasked(tape)
    assert found is not None and "isnan" not in bare_parts(found.tape)
    function = straight(tape)
    for x in (X, X[::-1].copy(), np.append(X[:-2], [0.0, 0.0]), X, np.full(8, np.nan)):
        expected, broken = quiet(Script(tape).run)([x])
        if broken is not None:
            continue
        for _ in range(3):
            ways = run(tape, [x])[0], function(x)
            for way in ways:
                assert way[0].tobytes() == expected[0].tobytes()


def test_slopes_that_are_left_out_are_zero_at_every_call():
    g = tg.grad(left_out, compile="never")
    x = np.append(X[:-1], 0.0)
    for k in range(60):
        value = x if k % 3 else X
        assert np.isfinite(g(value)).all()
        assert g(x)[-1] == 1.0


def test_what_could_hide_a_nan_is_played_with_masks():
    """A power to 0 is 1 whatever it is of, and a comparison is true or false."""

    def hidden(x):
        return np.sum(tg.grad(left_out)(x) ** (x - x) + (tg.grad(left_out)(x) > 0.5))

    _, tape = tg.trace(hidden, X)
    assert "isnan" in bare_parts(tape) and unmasked(tape) is None
    x = np.append(X[:-1], 0.0)
    value = tg.jit(hidden, compile="never")
    for _ in range(40):
        assert value(x) == 16.0 - np.sum(tg.grad(left_out)(x) <= 0.5)


def test_a_function_that_may_do_more_is_run_once():
    """A tape that calls it isn't played twice."""
    calls = []

    @tg.primitive
    def noted(x):
        calls.append(1)
        return np.frombuffer(bytes(x)) * 2.0

    tg.defvjp(noted, lambda ct, out, x: 2.0 * ct)
    g = tg.grad(lambda x: np.sum(np.where(x > 0.0, np.log(x) * noted(x), x)), compile="never")
    counts = []
    for x in (X, X, np.append(X[:-1], 0.0)):
        calls.clear()
        assert np.isfinite(g(x)).all()
        counts.append(len(calls))
    assert counts[2] == counts[1]


def binomial(p, n):
    v = np.maximum(p[0] * np.exp(p[1] * np.arange(n, -n - 1, -2.0)) - 1.0, 0.0)
    for _ in range(n):
        v = 0.99 * (p[2] * v[:-1] + (1.0 - p[2]) * v[1:])
    return v[0]


def test_rounds_read_parts_without_functions():
    """Parts of arrays are slices in the text of rounds."""
    g, p, h = tg.grad(binomial, compile="never"), np.array([1.0, 0.1, 0.5]), 1e-6
    for _ in range(40):
        found = g(p, 20)
    files: list[str] = []
    sys.setprofile(lambda frame, what, _: files.append(frame.f_code.co_filename))
    try:
        g(p, 20)
    finally:
        sys.setprofile(None)
    assert not [name for name in files if name.endswith("parts.py")]
    slopes = [(binomial(p + h * e, 20) - binomial(p - h * e, 20)) / (2 * h) for e in np.eye(3)]
    np.testing.assert_allclose(found, slopes, rtol=1e-6)
