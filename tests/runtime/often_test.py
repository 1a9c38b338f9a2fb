"""Tapes that are called often, as solvers do: played as one function, then compiled."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

import numpy as np
import pytest
import scipy.integrate

from tapegrad import grad, jit, vmap
from tapegrad.backends.numpy.play import run
from tapegrad.backends.numpy.rounds import Broken
from tapegrad.core.request import Request
from tapegrad.pipeline import trace
from tapegrad.runtime import variant
from tapegrad.runtime.entry import flat_function
from tapegrad.runtime.hot import CALLS_BETWEEN_LOOKS, HotTape, guarded


def test_what_is_called_often_is_compiled():
    """Results are new arrays, the same before and after."""

    def f(x, a):
        return np.sin(x) * a + x[0], x, a * a

    often = HotTape(trace(Request(f, (np.ones(3), 2.0))).bound_tape(), "f")
    often.tier.mode = "always"  # so it is waited for
    call = often.on([0.5])
    for k in range(CALLS_BETWEEN_LOOKS + 3):
        x = np.array([k, 1.0, -2.0])
        found = call(x)
        for a, b in zip(found, f(x, 0.5), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-14)
        assert found[1] is not x
        assert (often.compiled is None) == (k + 1 < CALLS_BETWEEN_LOOKS)


def test_a_guard_that_fails_is_said_of_what_is_called_often():
    """Played and compiled."""
    often = HotTape(
        trace(Request(lambda x, a: np.log(x) * a if x > 0 else x, (2.0, 3.0))).tape, "f"
    )
    often.tier.mode = "always"
    call = often.on([2.0])
    for _ in range(2 * CALLS_BETWEEN_LOOKS):
        assert call(3.0) == pytest.approx((2.0 * np.log(3.0),))
        with pytest.raises(Broken):
            call(-1.0)
    assert often.compiled is not None


def test_what_a_solver_calls_is_one_function(monkeypatch):
    """Of each evaluation Python enters three: what looks at the arguments, what counts the calls,
    and the tape's. NumPy's warnings and what the callback reaches are settled once for all."""

    def f(p):
        def slope(y, t):
            return [p[0] * y[0] - p[1] * y[0] * y[1], p[2] * y[0] * y[1] - p[3] * y[1]]

        times = np.linspace(0, 5, 20)
        y, told = scipy.integrate.odeint(slope, [1.0, 1.0], times, full_output=True)
        return y[-1], told["nfe"][-1]

    monkeypatch.setattr(
        "tapegrad.runtime.hot.CALLS_BETWEEN_LOOKS", 1 << 20
    )  # no machine code is looked for
    g, p = jit(f, compile="never"), np.array([1.0, 0.3, 0.2, 0.8])
    expected, evaluations = [g(p) for _ in range(4)][-1]
    entered: list[Any] = []
    sys.setprofile(lambda frame, event, arg: event == "call" and entered.append(frame.f_code))
    try:
        found, _ = g(p)
    finally:
        sys.setprofile(None)
    np.testing.assert_array_equal(found, expected)
    often = [code for code, count in Counter(entered).items() if count == evaluations]
    assert len(often) == 3


def test_a_tape_whose_guard_fails_gives_nothing():
    """Later calls of NumPy's aren't made."""

    def f(x):
        return np.log(x) if x > 0 else x

    call = guarded(trace(Request(f, (2.0,))).bound_tape())
    assert call(3.0) == [np.log(3.0)]
    assert call(-1.0) is None


def test_machine_code_that_is_called_where_names_are_swapped():
    """in a run that isn't observed: its results are plain arrays, and not those of the trace"""
    tape = trace(Request(lambda x: np.exp(np.sum(x)), (np.ones(3),))).bound_tape()
    given = np.full(3, 0.5)

    def f(x):
        assert flat_function(tape)(given) == [np.exp(1.5)]
        return np.sum(x)

    before = sys.gettrace()
    sys.settrace(lambda *event: None)
    try:
        found = grad(f)(np.ones(3))
    finally:
        sys.settrace(before)
    np.testing.assert_array_equal(found, np.ones(3))


def test_the_first_result_is_the_traced_runs(monkeypatch):
    """Nothing is played for it, and no result is what somebody else holds."""
    played = []
    monkeypatch.setattr(variant, "run", lambda *args: played.append(1) or run(*args))
    kept = np.ones(2)

    def f(x):
        y = np.sin(x)
        return y, y, y[:1], x, kept, 3.0 * y[0]

    for made, x in ((jit, np.ones(2)), (vmap, np.ones((3, 2)))):
        played.clear()
        g = made(f, compile="never")
        results = []
        for k in range(3):
            results.append(g(x))
            assert len(played) == k
            for y in results[-1]:
                held = [x, kept, *[z for z in results[-1] if z is not y]]
                assert not any(np.may_share_memory(y, z) for z in held)
        first, *others = results
        for other in others:
            for a, b in zip(first, other, strict=True):
                assert type(a) is type(b) and a.dtype == b.dtype
                np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("ahead", [True, False])
def test_what_the_run_has_computed_is_let_go(ahead):
    """by the first call, whoever answers that, and by what is compiled ahead"""
    g = jit(lambda x: np.sin(x) * 2.0, compile="always")
    g.compile(np.ones(3)) if ahead else g(np.ones(3))
    (kept,) = [v for known in g.cache._signatures.values() for v in known]
    assert kept.derivation.computed is None
