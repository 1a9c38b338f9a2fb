"""Every pass, on random tapes: it keeps all values, leaves a good tape, and is done in one go."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from tests.fuzzing import share
from tests.optimize.random_tapes import tapes
from tests.tapes import Kept, around, assert_same_bits, awkward

import tapegrad as tg
from tapegrad import pipeline
from tapegrad.backends.numpy.play import run
from tapegrad.checking.tape_verify import verify
from tapegrad.ir.tape import Tape
from tapegrad.ir.text import parse
from tapegrad.optimize.cse import eliminate_common
from tapegrad.optimize.dce import remove_dead
from tapegrad.optimize.inline import inline_custom
from tapegrad.optimize.simplify import simplify
from tapegrad.optimize.stops import drop_stops

PASSES = [simplify, eliminate_common, remove_dead, inline_custom, drop_stops]


def played(tape: Tape, seed: int) -> list:
    """The results for awkward inputs; no results if a guard doesn't hold."""
    return run(tape, [awkward(var, seed + 3 * k) for k, var in enumerate(tape.inputs)])[0]


@pytest.mark.every(5)
@pytest.mark.parametrize("apply", PASSES, ids=lambda p: p.__name__)
@share(0.2)
@given(tape=tapes())
def test_a_pass_keeps_every_value(apply, tape):
    done = verify(apply(verify(tape)), after=apply.__name__)
    assert done.inputs == tape.inputs
    assert_same_bits(played(done, 0), played(tape, 0))
    assert_same_bits(played(done, 5), played(tape, 5))


@pytest.mark.every(4)
@pytest.mark.parametrize("apply", PASSES, ids=lambda p: p.__name__)
@share(0.1)
@given(tape=tapes())
def test_a_pass_does_the_same_to_a_tape_inside_tapes(apply, tape):
    """Which keeps its inputs and its outputs."""
    outer = around(around(tape, Kept), Kept)
    done = verify(apply(outer), after=apply.__name__)
    assert_same_bits(played(done, 0), played(outer, 0))
    assert apply(done) == done
    (middle,) = done.calls[0].primitive.tapes
    assert middle.calls[0].primitive.tapes == (apply(tape),)


@pytest.mark.every(4)
@pytest.mark.parametrize("apply", PASSES, ids=lambda p: p.__name__)
@share(0.13)
@given(tape=tapes())
def test_a_pass_has_nothing_left_to_do_after_itself(apply, tape):
    done = apply(tape)
    assert apply(done) == done


@share(0.2)
@given(tape=tapes())
def test_all_passes_in_order_keep_every_value(tape):
    done = pipeline.optimized(tape)
    assert_same_bits(played(done, 0), played(tape, 0))
    assert len(done) <= len(tape) + 5
    assert parse(str(done)) == done


# ---- whole functions, with the passes and without


def softmax_loss(w, x):
    z = x @ w - (x @ w).max(axis=1, keepdims=True)
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    return -np.log(p[np.arange(3), [0, 1, 0]]).mean()


def in_place(w, x):
    out = np.zeros_like(w)
    out[0] = w[1] * 2
    out[1:] += x[1:, :1] * w[1:]
    return (out * w).sum() + np.where(w > 0, w, -w).sum()


def branches(w, x):
    total = w.sum()
    for k in range(3):
        total = total * x[k, 0] if total > 0 else total - x[k, 1]
    return total


def joined(w, x):
    both = np.concatenate([w.ravel(), x.T.ravel()])
    return np.prod(both.reshape(-1, 3).sum(0)) + np.linalg.norm(both[::-2])


PROGRAMS = [softmax_loss, in_place, branches, joined]


def derivatives(f, w, x) -> list:
    """The value, both gradients, a gradient of a gradient, and the compiled function's value."""
    value, gradients = tg.value_and_grad(f, argnums=(0, 1), compile="never")(w, x)
    second = tg.grad(lambda v: (tg.grad(f, compile="never")(v, x) * w).sum(), compile="never")(w)
    return [value, *gradients, second, tg.jit(f, compile="never")(w, x)]


@pytest.mark.every(4)
@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_no_pass_is_needed_for_correctness(f, monkeypatch):
    rng = np.random.default_rng(0)
    w, x = rng.normal(size=(3, 2)), rng.normal(size=(3, 3))
    with_passes = derivatives(f, w, x)
    tg.clear_cache()
    monkeypatch.setattr(pipeline, "BEFORE", ())
    monkeypatch.setattr(pipeline, "AFTER", ())
    without = derivatives(f, w, x)
    tg.clear_cache()
    assert with_passes[0] == pytest.approx(f(w, x), rel=1e-14)
    for found, expected in zip(without, with_passes, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_the_tape_is_verified_after_each_pass_when_asked(monkeypatch):
    monkeypatch.setattr(pipeline, "DEBUG", True)

    def broken(tape):
        return Tape(tape.name, tape.inputs, (), tape.outputs)

    _, made = tg.trace(lambda x: np.exp(x).sum(), np.ones(3))
    with pytest.raises(tg.errors.InternalError, match="malformed tape after broken"):
        pipeline.run_passes(made, [simplify, broken])
