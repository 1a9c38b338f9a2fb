"""Played, as NumPy source and compiled, every tape gives the same: random tapes, the samples of
every primitive and their cotangents, and plain NumPy programs with their gradients."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from tests.emit.check import assert_agree
from tests.emit.more_tapes import wide_tapes
from tests.fuzzing import NEW, share
from tests.optimize.random_tapes import tapes
from tests.primitives.samples import all_samples
from tests.tapes import awkward

from tapegrad import gradcheck, value_and_grad
from tapegrad.differentiate.reverse import reverse
from tapegrad.ir.plan import Recurrence
from tapegrad.ir.steps import PythonCall
from tapegrad.ir.tape import Builder, Literal, aval_of
from tapegrad.optimize.cse import eliminate_common
from tapegrad.optimize.dce import remove_dead
from tapegrad.optimize.inline import inline_custom
from tapegrad.pipeline import schedule
from tapegrad.primitives.kinds import Moving, Repeated


@share(0.1)
@given(tapes())
def test_random_tapes(tape):
    assert_agree(tape, *[[awkward(v, seed) for v in tape.inputs] for seed in (0, 3)])


@share(0.1)
@given(wide_tapes())
def test_random_tapes_of_more_forms(tape):
    assert_agree(tape, *[[awkward(v, seed) for v in tape.inputs] for seed in (0, 3)])


# ---- samples: many calls on one tape, since each compilation costs a tenth of a second

BATCH = 24
SAMPLES = [
    s
    for s in all_samples()
    if all(x.dtype != np.float16 for x in s.operands)
    and not s.primitive.memory.unset  # it has any values
]
BATCHES = [SAMPLES[k : k + BATCH] for k in range(0, len(SAMPLES), BATCH)]


LOOPS = [s for s in SAMPLES if isinstance(s.primitive, Repeated)]


def together(samples, derivatives, literals=False):
    """A tape that applies each sample's primitive to inputs of its own; and the inputs' values.
    Single integers may be literals instead."""
    builder, values, outputs = Builder("samples"), [], []
    placed, fixed = [], set()
    for sample in samples:
        operands = []
        for k, x in enumerate(map(np.asarray, sample.operands)):
            if k in sample.fixed:
                fixed.add(len(values))
            if literals and x.shape == () and x.dtype.kind == "i":
                operands.append(Literal(x[()]))
            else:
                operands.append(builder.input(aval_of(x)))
                values.append(x)
        placed.append(operands)
    for sample, inputs in zip(samples, placed, strict=True):
        outs = builder.call(sample.primitive, inputs)
        outputs += outs if not derivatives else [o for o in outs if o.dtype.kind == "f"]
    tape = builder.finish(outputs)
    if derivatives:
        rng = np.random.default_rng(0)
        floats = [k for k, v in enumerate(tape.inputs) if v.dtype.kind == "f"]
        wrt = [k for k in floats if k not in fixed]
        values += [rng.standard_normal(o.shape).astype(o.dtype) for o in outputs]
        tape = remove_dead(eliminate_common(reverse(tape, wrt, seed=True, keep=())))
    return inline_custom(tape), values


@pytest.mark.every(24)
@pytest.mark.parametrize("samples", BATCHES, ids=lambda b: f"{b[0].primitive.name}...")
def test_samples_of_every_primitive(samples):
    assert_agree(*together(samples, derivatives=False))


@pytest.mark.every(2)
@pytest.mark.parametrize("derivatives", [False, True])
def test_samples_of_loops_whose_rounds_are_known(derivatives):
    """They stay loops in kernels, as do parts of arrays whose places are known."""
    samples = [s for s in SAMPLES if isinstance(s.primitive, (Repeated, Moving))]
    tape, values = together(samples, derivatives, literals=True)
    assert_agree(tape, values)
    steps = schedule(tape).plan.steps
    assert sum(isinstance(step, Recurrence) for step in steps) >= len(LOOPS)
    assert not any(isinstance(step, PythonCall) for step in steps)


REVERSIBLE = [s for s in SAMPLES if s.reverse and s.smooth and s.floats]
if not NEW:  # compiling takes long: half of each primitive's samples, and all in `make fuzz`
    REVERSIBLE = sorted(REVERSIBLE, key=lambda s: s.primitive.name)[::2]


@pytest.mark.every(24)
@pytest.mark.parametrize(
    "samples",
    [REVERSIBLE[k : k + BATCH] for k in range(0, len(REVERSIBLE), BATCH)],
    ids=lambda b: f"{b[0].primitive.name}...",
)
def test_cotangents_of_every_primitive(samples):
    assert_agree(*together(samples, derivatives=True))


def test_a_value_is_not_read_after_another_took_its_memory():
    """Found by the samples: the tree of a product, whose levels share scratch memory."""

    def f(x):
        return np.prod(x[:7]) * np.prod(x)

    x = np.random.default_rng(0).standard_normal(9)
    compiled = value_and_grad(f, compile="always")(x)[1]
    np.testing.assert_allclose(compiled, value_and_grad(f, compile="never")(x)[1], rtol=1e-12)


# ---- programs

R = np.random.default_rng(7)


def mlp(w, x):
    h = np.tanh(x @ w["W1"] + w["b1"])
    return np.mean((h @ w["W2"] + w["b2"]) ** 2)


def softmax_regression(w, x):
    z = x @ w
    z = z - np.max(z, axis=1, keepdims=True)
    p = np.exp(z) / np.sum(np.exp(z), axis=1, keepdims=True)
    return -np.sum(np.log(p[np.arange(len(x)), np.arange(len(x)) % 3]))


def mixture(m, x):
    d = np.sum((x[:, None, :] - m[None]) ** 2, axis=2)
    top = np.max(-d, axis=1)
    return np.sum(top + np.log(np.sum(np.exp(-d - top[:, None]), axis=1)))


def rosenbrock(x):
    return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def recurrent(w, x):
    h = np.zeros(3)
    for t in range(4):
        h = np.tanh(x[t] @ w["W1"] + h @ w["W1"].T)
    return np.sum(h**2)


def heat(u):
    for _ in range(3):
        inner = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1]
        u = np.pad(u[1:-1, 1:-1] + 0.1 * inner, 1)
    return np.sum(u * u)


def layer_norm(x):
    y = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)
    return np.sum(y**3)


def attention(w, x):
    scores = np.einsum("bik,bjk->bij", x @ w, x) / 2.0
    weights = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
    weights = weights / np.sum(weights, axis=-1, keepdims=True)
    return np.sum((weights @ x) ** 2)


def convolution(k, x):
    parts = [k[i] * x[i : i + 6] for i in range(3)]
    return np.sum(np.maximum(np.sum(np.stack(parts), axis=0), 0.1) ** 2)


def filled(x):
    y = np.zeros_like(x)
    y[1:] = 2 * x[:-1]
    y[::2] += x[::2] ** 2
    return np.sum(np.sin(y) * np.cumsum(x))


def largest(x):
    return x[np.argmax(x)] ** 2 + np.prod(x[:3]) + np.sum(np.concatenate([x, x[::-1]])[2:5])


W = {
    "W1": R.normal(size=(3, 3)),
    "b1": R.normal(size=3),
    "W2": R.normal(size=(3, 1)),
    "b2": R.normal(size=1),
}
PROGRAMS = [
    (mlp, W, R.normal(size=(6, 3))),
    (softmax_regression, R.normal(size=(3, 3)), R.normal(size=(5, 3))),
    (mixture, R.normal(size=(4, 2)), R.normal(size=(6, 2))),
    (rosenbrock, R.normal(size=8)),
    (recurrent, {"W1": W["W1"]}, R.normal(size=(4, 3))),
    (heat, R.normal(size=(6, 5))),
    (layer_norm, R.normal(size=(3, 4))),
    (attention, R.normal(size=(4, 4)), R.normal(size=(2, 3, 4))),
    (convolution, R.normal(size=3), R.normal(size=8)),
    (filled, R.normal(size=6)),
    (largest, R.normal(size=5)),
]


@pytest.mark.every(11)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p[0].__name__)
def test_programs(program):
    """Compiled and played agree, on the gradient that finite differences find."""
    f, *args = program
    compiled = value_and_grad(f, compile="always")(*args)
    played = value_and_grad(f, compile="never")(*args)
    np.testing.assert_allclose(compiled[0], f(*args), rtol=1e-12)

    def leaves(g):
        return [g[k] for k in sorted(g)] if isinstance(g, dict) else [g]

    for a, b in zip(leaves(compiled[1]), leaves(played[1]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
    assert gradcheck(f, tuple(args))
