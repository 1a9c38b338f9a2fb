"""Long programs are cut into kernels: it changes how they compile, not what they compute."""

from __future__ import annotations

import numpy as np
import pytest
from tests.emit.agreement_test import PROGRAMS
from tests.emit.check import assert_agree

from tapegrad import pipeline, trace
from tapegrad.backends.cpu import kernel_cache
from tapegrad.ir.inputs import renumbered
from tapegrad.ir.plan import segments
from tapegrad.ir.steps import Cut, Loop, PythonCall
from tapegrad.optimize.reroll import Rerolled
from tapegrad.schedule import cut, fuse
from tapegrad.schedule.cost import code_size


@pytest.fixture
def tiny(monkeypatch):
    """Kernels and nests of a few statements."""
    monkeypatch.setattr(cut, "LONGEST", 12)
    monkeypatch.setattr(fuse, "MAX_WEIGHT", 12)


def chain(x):
    for k in range(30):
        x = np.sin(x) if k % 3 else np.exp(-x)
    return np.sum(x)


def scalars(p):
    """Values of three dtypes cross kernels, into a loop that stays one and out of it, and a guard
    reads one that does."""
    x, count, is_large = p[0], p[0].astype(np.int64), p[1] > 0.5
    y = p[1].astype(np.float32)
    for k in range(12):
        x = x * p[k % 3] + 0.1 * y
        y = y * np.float32(0.5)
        count = count + k
    if x > 100.0:
        x = -x
    return np.where(is_large, x * count, x + y)


def gradient_of(f, *args):
    tape = trace(f, *args)[1]
    wrt = [k for k, x in enumerate(tape.inputs) if x.dtype.kind == "f"]
    return pipeline.gradient(tape, wrt, keep=range(len(tape.outputs)))


@pytest.mark.every(2)
@pytest.mark.parametrize(
    "f, args", [(chain, (np.linspace(0.1, 1.0, 7),)), (scalars, (np.ones(3),))]
)
def test_cut_programs_compute_the_same(tiny, f, args):
    tape = gradient_of(f, *args)
    assert len(pipeline.schedule(tape).kernels) > 3
    assert_agree(tape, (*args, *tape.captured))


@pytest.mark.every(2)
@pytest.mark.parametrize("name", ["attention", "mixture", "layer_norm"])
def test_nests_and_library_calls_are_cut_too(tiny, name):
    f, *args = next(p for p in PROGRAMS if p[0].__name__ == name)
    tape = gradient_of(f, *args)
    assert len(pipeline.schedule(tape).kernels) > 3
    assert_agree(tape, args)


def test_kernels_are_as_long_as_allowed(monkeypatch):
    tape = gradient_of(chain, np.ones(5))
    whole = pipeline.schedule(tape).plan.steps
    assert not any(isinstance(s, Cut) for s in whole)
    monkeypatch.setattr(cut, "LONGEST", 30)
    monkeypatch.setattr(fuse, "MAX_WEIGHT", 30)
    plan = pipeline.schedule(tape).plan
    for kernel in segments(plan.steps):
        assert not isinstance(kernel, PythonCall)
        # What one nest recomputes comes on top.
        assert sum(map(code_size, kernel)) <= 30 or len(kernel) == 1
    assert not any(
        isinstance(s, Cut) for loop in plan.steps if isinstance(loop, Loop) for s in loop.body
    )


def test_a_cut_is_where_little_crosses():
    tape = trace(lambda x: np.exp(x[0] * x[1]) - np.sin(np.exp(x[0] * x[1])), np.ones(2))[1]
    plan = pipeline.schedule(pipeline.optimized(tape)).plan
    # product; exp; sin; difference
    assert cut.Lives(plan.steps, [0] * len(plan.steps)).crossing[:4] == [0, 1, 1, 2]


# ---- kernels that are alike

TWO = np.float32(2)


def compiles(f, *args):
    """How many kernels are compiled for the gradient of a function."""
    before = kernel_cache.kernels.compiles
    pipeline.compile(gradient_of(f, *args))
    return kernel_cache.kernels.compiles - before


@pytest.fixture
def nothing_known():
    kernel_cache.kernels.clear()


def test_functions_of_the_same_kernel_compile_one(nothing_known):
    def first(x):
        y = np.sin(x) * 3.25  # names and comments don't matter
        return np.sum(y)

    def second(theta):
        return np.sum(np.sin(theta) * 3.25)

    assert compiles(first, np.ones(3)) == 1
    assert compiles(second, np.ones(3)) == 0


@pytest.mark.parametrize(
    "other, x",
    [
        (lambda x: np.sum(np.sin(x) * 3.5), np.ones(3)),  # a constant
        (lambda x: np.sum(np.cos(x) * 3.25), np.ones(3)),  # a function
        (lambda x: np.sum(np.sin(x) * 3.25), np.ones(4)),  # a shape
        (lambda x: np.sum(np.sin(x) * 3.25), np.ones((3, 1))),
        (lambda x: np.sum(np.sin(x) * 3.25), np.ones(3, np.float32)),  # a dtype
    ],
)
def test_kernels_that_differ_do_not_share(nothing_known, other, x):
    assert compiles(lambda x: np.sum(np.sin(x) * 3.25), np.ones(3)) == 1
    assert compiles(other, x) == 1


@pytest.mark.parametrize(
    "text, other",
    [
        ("x[0] = 1", "x[0] = 1.0"),
        ("x[0] = 1", "x[0] = True"),
        ("x[0] = 0.0", "x[0] = -0.0"),
        ("x[0] = x[1] + c", "x[0] = c + x[1]"),
        ("x[0] = x[1] + c", "x[0] = x[1] - c"),
        ("return 1", "return 2"),
    ],
)
def test_what_tells_kernels_apart(text, other):
    def identity(text, c=TWO, shape=(2,), dtype="f8"):
        names = {}
        exec(f"def kernel(x):\n    {text}\n", names)
        return kernel_cache.identity(names["kernel"], [("array", shape, np.dtype(dtype))], {"c": c})

    assert identity(text) != identity(other)
    assert identity(text) != identity(text, shape=(3,))
    assert identity(text) != identity(text, dtype="i8")
    if "c" in text:
        assert identity(text) != identity(text, c=np.float32(3))
        assert identity(text) != identity(text, c=np.int32(2))
        assert identity("y = x; y[0] = y[1] + c") == identity("z = x; z[0] = z[1] + c")


def test_the_least_recently_used_is_forgotten():
    memo = kernel_cache.Memo(most=2)
    made = []

    def of(value):
        if memo.get(value) is None:
            made.append(value)
            memo.add({value: b""})

    for value in (1, 2, 1, 3, 1, 2):
        of(value)
    assert made == [1, 2, 3, 2]


def test_repeats_of_a_loop_are_compiled_once(monkeypatch, nothing_known):
    """An unrolled loop whose steps are alike: few of its kernels are compiled."""
    monkeypatch.setattr(cut, "LONGEST", 40)
    monkeypatch.setattr(
        "tapegrad.optimize.reroll.reroll", lambda tape, *_: Rerolled(renumbered(tape))
    )

    def steps(x):
        seen = []
        for k in range(40):
            seen.insert(0, k)  # so each round is made
            x = x + 0.01 * np.sin(x)
        return x

    tape = pipeline.optimized(trace(steps, 1.0)[1])
    before = kernel_cache.kernels.compiles
    program = pipeline.compile(tape)
    assert len(program.kernels) > 4
    assert kernel_cache.kernels.compiles - before == 3  # the first, the last, and all between
    assert_agree(tape, (1.0,))
