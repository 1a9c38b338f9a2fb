"""Long loops in the rounds of a loop, which cores share: which ones, and with what results."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from types import FunctionType

import numpy as np
import pytest

from tapegrad import set_num_threads, simplegrad, trace, value_and_grad
from tapegrad.checking.plan_verify import verify_plan
from tapegrad.errors import InternalError
from tapegrad.ir.plan import Recurrence, is_parallel
from tapegrad.pipeline import at_its_best, looped, schedule, scratch_of
from tapegrad.schedule import buffers, rounds

RNG = np.random.default_rng(0)
LARGE, SMALL = (RNG.normal(size=(n, n)) for n in (400, 24))


def heat(u):
    for _ in range(20):
        u = u + 0.1 * (np.roll(u, 1, 0) + np.roll(u, -1, 0) + np.roll(u, 1, 1) - 3 * u)
    return np.sum(u * u)


def network(w, x):
    h = np.zeros_like(x[0])
    for t in range(len(x)):
        h = np.tanh(x[t] + h @ w)
    return np.sum(h * h)


def summed(x):
    """A number that the next round reads."""
    s = 1.0
    for _ in range(20):
        s = np.sum(np.cos(s * x)) / 1e5
    return s


def kept(x):
    """Written to rows, and added to by index arrays."""
    rows = np.zeros((16, *x.shape))
    for t in range(15):
        rows[t + 1] = np.sin(rows[t]) + x
    return np.sum(rows[::3] ** 2)


def halved(x):
    while np.mean(np.abs(x)) > 0.01:
        x = np.sin(x) * 0.5
    return np.sum(x * x)


def nested(x):
    for _ in range(6):
        for _ in range(8):
            x = np.sin(x) * 0.9
        x = x - np.mean(x, 0)
    return np.sum(x * x)


WEIGHTS, INPUTS = RNG.normal(size=(128, 128)) / 12, RNG.normal(size=(24, 256, 128))
PROGRAMS = {
    "heat": (heat, (LARGE,)),
    "network": (network, (WEIGHTS, INPUTS)),
    "summed": (summed, (LARGE,)),
    "kept": (kept, (LARGE,)),
    "halved": (halved, (LARGE,)),
    "nested": (nested, (LARGE,)),
}


def tape_of(f, *args):
    derivative = derived(f, args)
    derivative(*args)
    return at_its_best(derivative.tapes[0])


def derived(f, args):
    """The derivative of a function that no other test has called."""
    new = FunctionType(f.__code__, f.__globals__, f.__name__)
    return value_and_grad(new, tuple(range(len(args))), compile="always")


@pytest.mark.every(3)
@pytest.mark.parametrize("name", PROGRAMS)
def test_cores_share_them_and_bits_do_not_depend_on_how_many(name):
    f, args = PROGRAMS[name]
    derivative, bits = derived(f, args), set()
    try:
        for threads in (1, 2, 3, 4):
            set_num_threads(threads)
            for _ in range(3):
                value, found = derivative(*args)
                bits.add(b"".join([value.tobytes(), *[x.tobytes() for x in found]]))
    finally:
        set_num_threads()
    assert len(bits) == 1
    source = derivative.tapes[0].source
    assert source.count("(shared(") >= 2, source  # forward and backward
    assert "with_helpers(" in source
    expected, known = value_and_grad(f, tuple(range(len(args))), compile="never")(*args)
    np.testing.assert_allclose(value, expected, 1e-10)
    for one, other in zip(found, known, strict=True):
        np.testing.assert_allclose(one, other, 1e-9, 1e-9 * np.max(np.abs(other)))


def test_short_ones_stay_as_they_are(monkeypatch):
    derivative = derived(heat, (SMALL,))
    derivative(SMALL)
    source = derivative.tapes[0].source
    assert "shared(" not in source and "with_helpers(" not in source
    monkeypatch.setattr("tapegrad.schedule.rounds.share_rounds", lambda plan, room: plan)
    assert schedule(derivative.tapes[0]).kernels[0].text in source


def test_no_call_of_python_for_a_round():
    """One call of a kernel holds all rounds, and all regions in them."""
    derivative = derived(heat, (LARGE,))
    derivative(LARGE)
    (kernel,) = schedule(derivative.tapes[0]).kernels
    assert kernel.inside == 8 and kernel.text.count("range(shared(8))") == 2
    assert "range(20)" in kernel.text and "range(19, -1, -1)" in kernel.text


def test_saved_programs_share_them_too_and_c_does_not(tmp_path):
    gradient = simplegrad(heat, LARGE)
    gradient.save(tmp_path / "heat_gradient.py")
    gradient.save(tmp_path / "heat_gradient.c")
    assert "shared(" not in (tmp_path / "heat_gradient.c").read_text()
    np.save(tmp_path / "x.npy", LARGE)
    np.save(tmp_path / "expected.npy", gradient(LARGE)[1])
    text = (
        "import numpy as np, heat_gradient as h\n"
        "assert 'shared(' in open(h.__file__).read()\n"
        "(x, expected) = (np.load(n) for n in ('x.npy', 'expected.npy'))\n"
        "assert np.array_equal(h.grad_heat(x)[1], expected)"
    )
    subprocess.run([sys.executable, "-c", text], cwd=tmp_path, check=True)


def test_kernels_for_any_length_share_them():
    derivative = derived(heat, (LARGE,))
    for n in (400, 420, 380, 512):
        x = RNG.normal(size=(n, n))
        value, (found,) = derivative(x)
        expected, known = value_and_grad(heat, compile="never")(x)
        np.testing.assert_allclose(value, expected, 1e-10)
        np.testing.assert_allclose(found, known, 1e-9, 1e-12)


def test_scratch_memory_does_not_grow(monkeypatch):
    tape = tape_of(network, WEIGHTS, INPUTS)
    shared = scratch_of(looped(tape).plan)
    monkeypatch.setattr(rounds, "FINER", 0)
    assert shared <= scratch_of(looped(tape).plan) * (1 + rounds.OWN)


def test_results_are_written_over_what_no_chunk_reads_any_more():
    """Where steps become one loop, another chunk may still read it: then they stay apart."""
    steps = looped(tape_of(network, WEIGHTS, INPUTS)).plan.steps
    loops = [step for step in steps if isinstance(step, Recurrence)]
    over = [
        (step.plan, home.memory, new)
        for step in loops
        for new, home in step.allocation.homes.items()
        if home.memory in step.plan.inputs
    ]
    assert over and all(buffers.hands_over(*x) for x in over)


def test_chunks_that_meet_are_found():
    tape = at_its_best(trace(heat, LARGE)[1])
    plan = looped(tape).plan
    (step,) = [s for s in plan.steps if isinstance(s, Recurrence)]
    (loop,) = [s for s in step.plan.steps if is_parallel(s)]
    verify_plan(step.plan)
    broken = replace(loop, body=(replace(loop.body[0], chunk=None),))
    steps = tuple([broken if s is loop else s for s in step.plan.steps])
    with pytest.raises(InternalError, match="two chunks meet"):
        verify_plan(replace(step.plan, steps=steps))


def test_explain_says_so():
    derivative = derived(heat, (LARGE,))
    derivative(LARGE)
    found = derivative.explain(LARGE)
    assert "loops shared by the cores in each round" in str(found)
    assert not any("go on from each other" in text for text in found.alone)
    few = derived(heat, (SMALL,))
    few(SMALL)
    assert "there is too little to do" in str(few.explain(SMALL))
    steep = derived(cumulated, (LARGE,))
    steep(LARGE)
    assert any("running sum" in text for text in steep.explain(LARGE).alone)


def cumulated(x):
    y = x.ravel()
    for _ in range(30):
        y = np.cumsum(y) * 1e-3
    return np.sum(y)
