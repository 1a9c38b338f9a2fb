"""Randomness"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random as python_random
import re
import subprocess
import sys

import numpy as np
import pytest
from tests.honesty.check import refused

import tapegrad
from tapegrad import grad, jit, random, simplegrad, trace, value_and_grad, vjp
from tapegrad.errors import RandomnessError
from tapegrad.observe.objects import randomness

X = np.array([1.0, 2.0])


@pytest.fixture(params=["never", "always"])
def mode(request):
    return request.param


GLOBALS = (np.random.mtrand._rand, python_random._inst)


def states(generators):
    return [randomness.state_of(g) for g in (*GLOBALS, *generators)]


def put_back(generators, found):
    for g, state in zip((*GLOBALS, *generators), found, strict=True):
        randomness.put_back(g, state)


def held_against_numpy(f, *generators, mode="never", calls=5, traces=1, h=1e-6):
    """Each call gives what plain NumPy gives, and leaves all generators where that does."""
    np.random.seed(1)
    python_random.seed(1)
    df = value_and_grad(f, compile=mode)
    for k in range(calls):
        x = X + 0.1 * k
        start = states(generators)
        value = f(x)
        end = states(generators)
        steps = []
        for e in np.eye(2) * h:
            found = []
            for way in (e, -e):
                put_back(generators, start)
                found.append(f(x + way))
            steps.append((found[0] - found[1]) / (2 * h))
        put_back(generators, start)
        got, slope = df(x)
        np.testing.assert_allclose(got, value, rtol=1e-12)
        np.testing.assert_allclose(slope, steps, rtol=1e-5, atol=1e-7)
        assert all(map(randomness.same, states(generators), end))
    if traces is not None:
        assert df.cache_info().traces == traces


def test_the_global_generator_of_numpy(mode):
    """`np.random.normal()` and the like -> drawn at each call, as NumPy does"""

    def noisy(x):
        mask = np.random.rand(2) > 0.5
        return np.sum(np.where(mask, x, 0.0) * np.random.normal(size=2))

    held_against_numpy(noisy, mode=mode)


def test_the_second_number_of_a_pair():
    """`np.random.normal()` keeps a number for the next draw -> as it does in NumPy"""
    held_against_numpy(lambda x: np.sum(x * np.random.normal()))
    held_against_numpy(lambda x: np.sum(x * np.random.randn(3)[1:]) * python_random.gauss(0, 1))


def test_a_generator(mode):
    """draws of a closed-over, global or passed `Generator` -> drawn at each call"""
    rng = np.random.default_rng(0)
    held_against_numpy(lambda x: np.sum(x * rng.normal(size=2)), rng, mode=mode)
    held_against_numpy(lambda x, r=rng: np.sum(x * r.normal(size=2)), rng, mode=mode)
    df = grad(lambda x, r: np.sum(x * r.normal(size=2)), compile=mode)
    for seed in range(3):
        expected = np.random.default_rng(seed).normal(size=2)
        np.testing.assert_array_equal(df(X, np.random.default_rng(seed)), expected)
    assert df.cache_info().traces == 1


def test_a_generator_of_an_object(mode):
    """draws of a generator that `self` or a list holds -> drawn at each call"""

    class Dropout:
        def __init__(self):
            self.generators = [np.random.RandomState(0)]

        def mask(self, shape):
            return self.generators[0].uniform(size=shape) > 0.5

        def __call__(self, x):
            return np.sum(np.where(self.mask(x.shape), x, 0.0))

    dropout = Dropout()
    held_against_numpy(dropout, dropout.generators[0], mode=mode)


RNG = np.random.default_rng(0)


def test_a_generator_that_is_made_anew():
    """another generator takes a generator's place -> it is drawn from, and nothing traced anew"""
    global RNG
    df = grad(lambda x: np.sum(x * RNG.normal(size=2)), compile="never")
    for seed in range(4):
        RNG = np.random.default_rng(seed)
        expected = np.random.default_rng(seed).normal(size=(2, 2))
        for row in expected:
            np.testing.assert_array_equal(df(X), row)
    assert df.cache_info().traces == 1


def test_two_generators_that_become_one():
    """two places hold the same generator from some call on -> traced anew"""
    both = [np.random.default_rng(0), np.random.default_rng(1)]

    def f(x):
        return x[0] * both[0].normal() + x[1] * both[1].normal()

    held_against_numpy(f, *both)
    df = value_and_grad(f, compile="never")
    df(X)
    both[1] = both[0]
    for _ in range(3):
        state = both[0].bit_generator.state
        expected = f(X)
        both[0].bit_generator.state = state
        assert df(X)[0] == expected


def test_the_random_module(mode):
    """the `random` module, and a `random.Random` -> drawn at each call"""
    own = python_random.Random(0)

    def f(x):
        s = python_random.random() * x[0] + own.gauss(0, 1) * x[1]
        return s * own.uniform(1.0, 2.0) + python_random.randint(1, 6) * x[0] ** 2

    held_against_numpy(f, own, mode=mode)


def test_what_is_no_number():
    """a list is shuffled, sampled or chosen from; bytes -> traced at each call"""
    items = [1.0, 2.0, 3.0]

    def f(x):
        mine = list(items)
        python_random.shuffle(mine)
        chosen = python_random.choice(items) + python_random.sample(items, 2)[0]
        order = np.arange(2)
        np.random.shuffle(order)
        return mine[0] * x[0] + chosen * x[1] * np.random.normal() + x[order[0]] ** 2

    with pytest.warns(RuntimeWarning, match="traced for three calls"):
        held_against_numpy(f, traces=None)


def test_integers_of_many_bits():
    """what is drawn may have more than 64 bits -> traced at each call"""

    def f(x):
        bits = python_random.getrandbits(80) >> 70
        return x[0] * bits + x[1] * python_random.randrange(2**70) / 2**70

    with pytest.warns(RuntimeWarning, match="traced for three calls"):
        held_against_numpy(f, traces=None)


def test_a_seed_in_the_function(mode):
    """`np.random.seed(3)` in the function -> the same numbers at each call, as in NumPy"""

    def f(x):
        np.random.seed(3)
        python_random.seed(4)
        return np.sum(x * np.random.normal(size=2)) * python_random.random()

    held_against_numpy(f, mode=mode)


def test_draws_that_decide():
    """a branch or an index goes by a draw -> guarded: what was drawn for another is put back"""
    rng = np.random.default_rng(0)

    def branch(x):
        if rng.random() < 0.5:
            return np.sum(x * rng.normal(size=2))
        return np.sum(x**2) * rng.uniform()

    held_against_numpy(branch, rng, calls=12, traces=2)

    def length(x):
        n = rng.integers(1, 4)
        return np.sum(x) * np.sum(rng.normal(size=n))

    held_against_numpy(length, rng, calls=12, traces=3)

    def shape(x):
        n = rng.integers(1, 4)
        picked = rng.choice(np.arange(9.0), size=(n, 2))
        return np.sum(x) * np.sum(rng.standard_normal((n, 2)) * picked)

    held_against_numpy(shape, rng, calls=12, traces=3)


def test_draws_in_loops(mode):
    """a plain loop draws in each round -> drawn at each call; a round is traced once"""
    rng = np.random.default_rng(0)

    def walk(x):
        s = x[0]
        for _ in range(60):
            s = 0.9 * s + x[1] * rng.normal() + 0.1 * np.sum(x * rng.uniform(size=2))
        return s

    held_against_numpy(walk, rng, mode=mode, calls=3)
    tape = trace(walk, X)[1]
    assert " = loop(" in str(tape)
    assert len(tape.inputs) < 8  # the draws of all rounds are one input

    def counted(x):
        s = x[0]
        for _ in tapegrad.range(20):
            s = 0.9 * s + x[1] * rng.normal()
        return s

    held_against_numpy(counted, rng, calls=3)

    def until(x):
        s = x[0]
        while s < 4.0:
            s = s + x[1] * rng.random()
        return s

    held_against_numpy(until, rng, calls=6, traces=None)


def test_draws_whose_number_depends_on_values(mode):
    """how often a loop draws depends on values -> the same; each round is traced where there are \
several kinds of draws, unless they are of NumPy's `Generator` and no integers"""
    rng = np.random.default_rng(0)

    def until(x):
        s = x[0]
        while s < 4.0:
            s = s + abs(x[1] * rng.normal())
            if rng.random() < 0.3:
                s = s - 0.1 * rng.exponential()
        return s

    held_against_numpy(until, rng, mode=mode, calls=6, traces=None)

    legacy = np.random.RandomState(0)

    def mixed(x):
        s = x[0]
        while s < 4.0:
            s = s + x[1] * legacy.rand() + 0.1 * legacy.randint(3)
        return s

    held_against_numpy(mixed, legacy, calls=6, traces=None)


def test_branches_that_go_both_ways_and_draw():
    """both ways of a branch draw in a loop -> each draws what it does in NumPy"""
    rng = np.random.default_rng(0)

    def f(x):
        s = 0.3 * x[0]
        for t in range(20):
            if s > 1.0:
                s = s - x[1] * rng.random()
            else:
                s = s + x[1] * rng.exponential() * (t % 3)
        return s

    held_against_numpy(f, rng, calls=4, traces=None)


MOVED = {
    "normal": lambda r, x: r.normal(x[0], np.exp(x[1]), size=3),
    "normal of arrays": lambda r, x: r.normal(x, np.ones((3, 1))),
    "normal of one": lambda r, x: r.normal(x[0]),
    "uniform": lambda r, x: r.uniform(x[0], 3.0 * x[1], (2, 2)),
    "exponential": lambda r, x: r.exponential(x),
    "laplace": lambda r, x: r.laplace(x[0], x[1], 4),
    "logistic": lambda r, x: r.logistic(scale=x[1]),
    "gumbel": lambda r, x: r.gumbel(x[0], 2.0, 3),
    "rayleigh": lambda r, x: r.rayleigh(x[0], 3),
    "lognormal": lambda r, x: r.lognormal(x[0], 0.1 * x[1], 3),
    "gamma": lambda r, x: r.gamma(2.0, x[1], 3),
    "weibull": lambda r, x: r.weibull(x[0], 3),
    "pareto": lambda r, x: r.pareto(x[0] + 2.0, 3),
    "power": lambda r, x: r.power(x[0], 3),
    "multivariate_normal": lambda r, x: r.multivariate_normal(x, np.eye(2) + 0.5, 3),
    "normal of lists": lambda r, x: r.normal([x[0], 1.0], [x[1], x[0]]),
    "uniform of an array and a list": lambda r, x: r.uniform(x, [9 * x[1], 5.0]),
    "permutation": lambda r, x: r.permutation(x) * [1.0, 3.0],
    "choice": lambda r, x: r.choice(x, 5, p=[0.25, 0.75]),
}


@pytest.mark.every(2)
@pytest.mark.parametrize("name", MOVED)
def test_parameters_that_are_traced(name):
    """parameters of a draw are traced -> followed, where the numbers move with them"""
    for rng in (np.random.default_rng(0), np.random.RandomState(0)):

        def f(x, rng=rng):
            return np.sum(np.sin(MOVED[name](rng, x)))

        held_against_numpy(f, rng, calls=3)


def test_an_array_that_is_shuffled():
    """a traced array is shuffled -> followed"""
    for rng in (np.random.default_rng(0), np.random.RandomState(0)):

        def f(x, rng=rng):
            y = np.outer(np.arange(1.0, 6.0), x)
            rng.shuffle(y)
            z = y[:, 1] * 2
            rng.shuffle(z)
            return y[0, 0] + 3 * y[1, 1] + 5 * z[2]

        held_against_numpy(f, rng)


def permuted_in_place(r, y):
    r.permuted(y, axis=1, out=y)
    return y


PERMUTED = {
    "all": lambda r, y: r.permuted(y),
    "as they lie in memory": lambda r, y: r.permuted(y.T).T,
    "of a part": lambda r, y: r.permuted(y[::2]),
    "of a row": lambda r, y: r.permuted(y[1]),
    "of a list": lambda r, y: r.permuted([y[0, 0], y[1, 1], 2.0]),
    "columns": lambda r, y: r.permuted(y, axis=0),
    "rows": lambda r, y: r.permuted(y, axis=-1),
    "in place": permuted_in_place,
}


@pytest.mark.parametrize("name", PERMUTED)
def test_elements_that_are_permuted(name):
    """the elements of a traced array are permuted -> followed"""
    rng = np.random.default_rng(0)

    def f(x):
        y = PERMUTED[name](rng, np.outer(np.arange(1.0, 6.0), x))
        return np.sum(np.sin(y) * np.arange(1.0, y.size + 1).reshape(y.shape))

    held_against_numpy(f, rng)


SHUFFLED = {
    "shuffle": lambda r, x: r.shuffle(x),
    "shuffle along an axis": lambda r, x: r.shuffle(x, axis=1),
    "permutation along an axis": lambda r, x: r.permutation(x, axis=1),
    "choice along an axis": lambda r, x: r.choice(x, 2, axis=1),
    "Python's": lambda r, x: python_random.shuffle(x),
}


@pytest.mark.parametrize("name", SHUFFLED)
def test_arrays_of_all_shapes_are_shuffled(name):
    """an array without elements is shuffled, or one in a way that NumPy refuses -> as NumPy does"""

    def f(x):
        y = x * 1.0
        try:
            z = SHUFFLED[name](rng, y)
        except (IndexError, TypeError, ValueError) as error:
            return type(error).__name__
        return y if z is None else z

    for rng in (np.random.default_rng(0), np.random.RandomState(0)):
        for shape in ((2, 0), (0, 2), (3, 2), (3,), (), (4, 1)):
            x = np.arange(1.0, 1.0 + np.prod(shape)).reshape(shape)
            start = states([rng])
            expected, end = f(x), states([rng])
            put_back([rng], start)
            np.testing.assert_array_equal(jit(f, compile="never")(x), expected)
            assert all(map(randomness.same, states([rng]), end))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
def test_pythons_draws_have_the_dtype_of_their_parameters(dtype):
    """parameters of Python's draws are NumPy's -> what they are multiplied with isn't wider"""

    def f(x):
        found = [python_random.gauss(x, 0.5), python_random.uniform(0, x)]
        found += [python_random.lognormvariate(x, 0.5)]
        found += [python_random.paretovariate(x)] if x.dtype.kind == "i" else []
        return [np.float32(2.0) * y for y in found]

    x = dtype(2)
    python_random.seed(2)
    expected = f(x)
    python_random.seed(2)
    for got, wanted in zip(jit(f, compile="never")(x), expected, strict=True):
        np.testing.assert_array_equal(got, wanted, strict=True)


def test_parameters_that_numbers_jump_with():
    """a draw accepts and rejects, or counts, by a traced parameter -> refused"""
    rng = np.random.default_rng(0)
    before = rng.bit_generator.state
    for f in (
        lambda x: rng.poisson(x[0]) * x[1],
        lambda x: np.sum(rng.poisson([x[0], x[1]])),
        lambda x: rng.gamma(x[0]) * x[1],
        lambda x: np.random.beta(x[0], 1.0),
        lambda x: np.sum(rng.multivariate_normal(np.zeros(2), np.diag(x))),
    ):
        with refused(RandomnessError, "traced", "no derivative", "standard_normal"):
            grad(f)(X)
    assert rng.bit_generator.state == before
    with pytest.raises(ValueError, match="scale < 0"):
        grad(lambda x: rng.normal(0.0, -x[0]))(X)


REFUSED = {
    "rng.normal(x[0], 'odd')": ValueError,
    "rng.normal(0.0, -1.0, size=x.astype(int))": ValueError,
    "rng.normal(x, size=())": ValueError,
    "rng.normal(x, 1.0, 2, 3)": TypeError,
    "rng.normal(x, scale=object())": TypeError,
    "rng.uniform(x[1], 1.0)": ValueError,
    "rng.uniform(x, [3.0, 4.0, 5.0])": ValueError,
    "rng.uniform(x[0], size='C')": TypeError,
    "rng.multivariate_normal(x[:, None], np.eye(2))": ValueError,
    "np.random.gamma(1.0, x[0], mode=1)": TypeError,
}


@pytest.mark.parametrize("call", REFUSED)
def test_what_numpy_refuses(call):
    """parameters of a draw that NumPy refuses -> its error, also at a later call"""
    rng = np.random.default_rng(0)
    f = eval(f"lambda x: np.sum({call}) + np.sum(x)", {"rng": rng, "np": np})
    df = grad(f, compile="never")
    for _ in range(2):
        with pytest.raises(REFUSED[call]) as plain:
            f(X)
        with pytest.raises(REFUSED[call], match=re.escape(str(plain.value))):
            df(X)
    drawn = grad(lambda x: rng.uniform(x[0], 1.5), compile="never")
    assert 0.0 < drawn(np.array([1.0, 2.0]))[0] < 1.0
    with pytest.raises(ValueError, match="high - low < 0"):
        drawn(np.array([2.0, 1.0]))


def test_rounds_that_are_traced_once():
    """draws in the body of scan, map or cond -> refused"""
    rng = np.random.default_rng(0)
    for f in (
        lambda x: tapegrad.scan(lambda h, t: (h * rng.normal(), None), x[0], np.arange(3))[0],
        lambda x: np.sum(tapegrad.map(lambda e: e * rng.normal(), x)),
    ):
        with refused(RandomnessError, "traced once", "rng.normal(size=(n, 3))"):
            grad(f)(X)


def test_derivatives_of_derivatives_draw_once():
    """a derivative of a derivative -> one draw"""
    rng = np.random.default_rng(0)
    draws = np.random.default_rng(0).normal(size=(3, 2))
    hessian = grad(lambda x: np.sum(grad(lambda x: np.sum(x**3 * rng.normal(size=2)))(x)))
    for row in draws:
        np.testing.assert_allclose(hessian(X), 6 * X * row, rtol=1e-14)


def test_draws_that_are_written_to_in_derivatives_of_derivatives(mode):
    """what is drawn is written to in a derivative of a derivative -> followed"""
    rng = np.random.default_rng(0)
    draws = np.random.default_rng(0).normal(size=(3, 2))

    def f(x):
        y = rng.normal(size=2)
        y[:1] = x[1] ** 3
        y[1:] *= x[0] ** 2
        return y[0] + y[1]

    hessian = grad(lambda x: np.sum(grad(f, compile=mode)(x)), compile=mode)
    for row in draws:
        np.testing.assert_allclose(hessian(X), [2 * row[1], 6 * X[1]], rtol=1e-14)


def test_a_generator_without_a_seed():
    """`np.random.default_rng()` made inside, without a seed -> refused"""

    def noisy(x):
        return np.sum(x * np.random.default_rng().normal(size=2))

    with refused(RandomnessError, "without a seed", "default_rng()", "default_rng(seed)"):
        grad(noisy)(X)
    assert np.random.default_rng().normal() != np.random.default_rng().normal()


def test_a_generator_with_a_seed(derivative):
    """`np.random.default_rng(0)` made with a seed inside -> the same at each call, as in NumPy"""
    df = derivative(lambda x: np.sum(x**2 * np.random.default_rng(0).normal(size=2)))
    df.at(X)
    df.at(2 * X)


def test_a_generator_with_a_state(derivative):
    """a generator that is made without a seed gets a known state -> the same at each call"""

    def f(x):
        numpys, pythons = np.random.RandomState(), python_random.Random()
        numpys.set_state(np.random.RandomState(3).get_state())
        with contextlib.suppress(TypeError):
            numpys.set_state(None)  # an error, which leaves it as it is
        pythons.setstate(python_random.Random(3).getstate())
        return np.sum(x**2 * numpys.normal(size=2)) * pythons.random()

    df = derivative(f)
    df.at(X)
    df.at(2 * X)


def test_a_state_that_numpy_refuses():
    """what it is set to is no state -> it is one without a seed still: error"""

    def f(x):
        numpys = np.random.RandomState()
        with contextlib.suppress(TypeError, ValueError):
            numpys.set_state(("MT19937", 5, 1))
        return np.sum(x**2 * numpys.normal(size=2))

    with refused(RandomnessError, "without a seed"):
        grad(f)(X)


def test_a_generator_with_a_seed_and_traced_parameters(derivative):
    """a parameter of its draws is traced -> followed, as of any other generator"""

    def noisy(x):
        rng, legacy = np.random.default_rng(3), np.random.RandomState(3)
        z = rng.normal(x[0], np.exp(x[1]), size=3) * rng.uniform(x[0], high=5.0) + rng.random()
        for k in range(20):
            z = 0.9 * z + legacy.normal(x[k % 2]) if rng.random() < 0.5 else -z
        mixed = x.copy()
        legacy.shuffle(mixed)
        return np.sum(z**2) + mixed[0] * rng.choice(mixed)

    df = derivative(noisy)
    df.at(X)
    df.at(2 * X)
    with refused(RandomnessError, "gamma with a parameter", "jumps with that parameter"):
        grad(lambda x: np.random.default_rng(3).gamma(x[0]))(X)


def test_in_everything_that_keeps_a_tape():
    """inside jit and an inner derivative -> drawn at each call; simplegrad -> refused"""
    rng = np.random.default_rng(0)
    draws = np.random.default_rng(0).normal(size=(5, 2))

    def noisy(x):
        return np.sum(x * rng.normal(size=2))

    f = jit(noisy)
    for row in draws[:2]:
        assert f(X) == pytest.approx(np.sum(X * row), rel=1e-14)
    df = grad(lambda x: np.sum(grad(noisy)(x) * x))
    for row in draws[2:4]:
        np.testing.assert_array_equal(df(X), row)
    value, tape = trace(noisy, X)  # which holds what was drawn
    assert value == tape.play(X) == pytest.approx(np.sum(X * draws[4]), rel=1e-14)
    with pytest.raises(RandomnessError, match=r"noisy draws .* stands alone.*Draw them outside"):
        simplegrad(noisy, X)


def test_vjp_draws_at_each_call():
    """inside vjp -> new draws at each call"""
    rng = np.random.default_rng(0)
    draws = np.random.default_rng(0).normal(size=(2, 2))
    for k in range(2):
        _, pullback = vjp(lambda x: np.sum(x * rng.normal(size=2)), X)
        np.testing.assert_array_equal(pullback(1.0)[0], draws[k])


@pytest.mark.parametrize("draw", [np.random.uniform, np.random.default_rng(0).uniform])
def test_draws_by_c_code(draw):
    """a method of a generator is handed to `map` -> refused"""
    with pytest.raises(RandomnessError, match="drew random numbers"):
        grad(lambda x: x * sum(map(draw, [0.0], [1.0])), compile="never")(1.0)


def test_draws_that_are_passed_in(derivative):
    """draws passed in as an argument -> each call its own"""
    rng = np.random.default_rng(0)
    df = derivative(lambda x, noise: np.sum((x + noise) ** 3))
    for _ in range(3):
        df.at(X, rng.normal(size=2))


def test_keys(derivative):
    """draws by a key that is passed in, `tapegrad.random.normal(key, shape)` -> each key its own"""

    def noisy(x, key):
        a, b, c = random.split(key, 3)
        mask = random.uniform(a, x.shape) < 0.5
        order = random.permutation(b, x.size)
        return np.sum(np.where(mask, x**2, x**3)[order] * random.normal(c, 2))

    df = derivative(noisy)
    for key in random.split(random.key(0), 4):
        df.at(X, key)
    if df.how != "nested":
        assert df.d.cache_info().traces == 1


def test_keys_are_functions_of_the_seed():
    """equal keys -> equal draws; split keys -> independent draws"""
    key = random.key(7)
    draws = random.normal(key, 10_000)
    np.testing.assert_array_equal(draws, random.normal(random.key(7), 10_000))
    assert abs(draws.mean()) < 0.05
    assert abs(draws.std() - 1) < 0.05
    first, second = random.split(key)
    both = np.corrcoef(random.normal(first, 10_000), random.normal(second, 10_000))
    assert abs(both[0, 1]) < 0.05
    assert set(random.integers(key, 3, 6, 100)) == {3, 4, 5}
    np.testing.assert_array_equal(np.sort(random.permutation(key, 5)), np.arange(5))


def test_a_draw_elsewhere():
    """draws between calls, outside of the function -> nothing happens to the derivative"""
    rng = np.random.default_rng(0)
    df = value_and_grad(lambda x: np.sum(x**2) * (rng is not None), compile="never")
    for _ in range(3):
        noise = rng.normal(size=2) + np.random.normal(size=2)
        np.testing.assert_array_equal(df(noise)[1], 2 * noise)
    assert df.cache_info().traces == 1


# Drawn by an installed package, whose code isn't looked into, and which loads what it draws from.
PACKAGE = """
def draws():
    import numpy as np
    return np.random.normal(size=2)

def makes():
    import numpy as np
    return np.random.default_rng().normal(size=2)

def draws_plain():
    import random
    return random.random()

def seeded():
    import numpy as np
    return np.random.default_rng(0).normal(size=2)
"""
PROGRAM = """
import sys
import numpy as np
from tapegrad import grad
from tapegrad.errors import RandomnessError
import noise

for name in ("random", "numpy.random"):
    assert name not in sys.modules
f = getattr(noise, sys.argv[1])
try:
    print(grad(lambda x: np.sum(x * f()), compile="never")(np.ones(2)))
except RandomnessError as error:
    print(error)
"""


@pytest.mark.every(2)
@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("draws", ""),
        ("makes", ""),
        ("draws_plain", ""),
        ("seeded", str(np.random.default_rng(0).normal(size=2))),
    ],
)
def test_a_module_that_is_loaded_while_the_function_runs(function, said, tmp_path):
    """a generator's module is loaded only when the function runs -> the same as if it had been"""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "noise.py").write_text(PACKAGE)
    command = [sys.executable, "-c", PROGRAM, function]
    path = os.pathsep.join([str(folder), *sys.path])
    env = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert said in done.stdout


def test_what_a_generator_writes_to(mode):
    """a draw is written into an array, by `out=` -> as NumPy does"""

    rng = np.random.default_rng(5)

    def f(x):
        a, b = np.zeros((2, 3), order="F"), np.zeros((2, 2))
        rng.random(out=a)
        a[0, 0] += x[0]
        rng.standard_exponential(out=a)
        b[0, 0] = x[0]
        rng.standard_gamma(2.0, out=b)
        c = np.zeros(3)
        for _ in range(3):
            rng.standard_normal(None, np.float64, c)
            b[1] += c[:2] * x[1]
        inverted = rng.standard_exponential(2, method="inv")
        return np.sum(a * np.arange(6.0).reshape(2, 3)) * x[0] + np.sum(b * x) + inverted @ x

    held_against_numpy(f, rng, mode=mode)

    def sized(x):
        a = np.zeros(3)
        a[0] = x[0]
        rng.random(4, out=a)
        return np.sum(a)

    with pytest.raises(ValueError, match="size must match"):
        grad(sized)(X)


@pytest.mark.filterwarnings("ignore:.*calls in a row")
def test_seeds_that_are_drawn_or_passed(mode):
    """a generator is made of a seed that is drawn, or an argument -> guarded"""

    rng = np.random.default_rng(5)

    def f(x, n=3):
        found = np.random.default_rng(rng.integers(9)).normal() * x[0]
        found = found + np.random.default_rng([1, rng.integers(3)]).random() * x[1]
        found = (
            found + np.random.Generator(np.random.PCG64(rng.integers(5, size=2))).random() * x[0]
        )
        found = found + np.random.RandomState(seed=rng.integers(9)).rand() * x[1]
        return found + python_random.Random(n).random() * x[0]

    held_against_numpy(f, rng, mode="never", traces=None)
    df = value_and_grad(lambda x, n: python_random.Random(n).random() * x[0], compile=mode)
    for n in (3, 4, 3):
        assert df(X, n)[0] == python_random.Random(n).random()


def test_lists_of_traced_values_are_picked_from():
    """a list of traced values is chosen or sampled from -> followed; traced at each call"""

    def f(x):
        found = python_random.choice([x[0], x[1]]) + python_random.choices([x[0], 1.0], k=2)[1]
        found = found + python_random.sample([x[0], x[1], 3.0], 2)[0] * x[1]
        return found + np.random.choice([x[0], x[1]]) * np.random.permutation([x[0], 2.0])[0]

    held_against_numpy(f, traces=None)


def unused(x):
    rng, others = np.random.default_rng(), (python_random.Random(), np.random.RandomState())
    return np.sum(x**3) if rng is not others else x[0]


def seeded_later(x):
    rng, legacy = python_random.Random(), np.random.RandomState()
    rng.seed(3)
    legacy.seed(4)
    return np.sum(x**3) * rng.random() * legacy.normal()


@pytest.mark.parametrize("f", [unused, seeded_later])
def test_a_generator_without_a_seed_that_draws_nothing(f, derivative):
    """`np.random.default_rng()` or `random.Random()` made inside, and not drawn from, or given a
    seed before -> as in NumPy"""
    df = derivative(f)
    df.at(X)
    df.at(2 * X)


UNSEEDED = [
    lambda x: np.sum(x) * np.random.Generator(np.random.PCG64()).normal(),
    lambda x: np.sum(x) * np.random.default_rng(np.random.SeedSequence()).normal(),
    lambda x: np.sum(x) * np.random.default_rng(np.random.default_rng()).normal(),
    lambda x: np.sum(x) * np.random.default_rng().spawn(1)[0].normal(),
    lambda x: np.sum(x) * python_random.Random().random(),
    lambda x: np.sum(x) * python_random.Random().choice([1.0, 2.0]),
]


@pytest.mark.parametrize("f", UNSEEDED)
def test_draws_without_a_seed(f):
    """what is made of a generator or a seed that has none draws -> refused"""
    with refused(RandomnessError, "without a seed"):
        grad(f)(X)


def test_names_that_pythons_library_draws():
    """`multiprocessing.RLock()` made inside, as by a first `tqdm`, whose name is drawn -> as in
    NumPy; traced at each call"""

    def f(x):
        with multiprocessing.RLock():
            return np.sum(x**2) * SCALE[0]

    df = grad(f, compile="never")
    for scale in (1.0, 3.0):
        SCALE[0] = scale
        np.testing.assert_array_equal(df(X), 2 * scale * X)


SCALE = [1.0]


MOVED_OUTSIDE = {
    "shuffle": lambda r, a: r.shuffle(a),
    "shuffle of a view": lambda r, a: r.shuffle(a[:0:-1]),
    "permuted": lambda r, a: r.permuted(a, out=a) if isinstance(r, np.random.Generator) else None,
    "filled": lambda r, a: r.random(out=a) if isinstance(r, np.random.Generator) else None,
    "Python's": lambda r, a: python_random.shuffle(a),
}
WRITTEN_THEN = {
    "to write": lambda a, x: a.__setitem__(0, np.sum(x)),
    "to read": lambda a, x: None,
    "to index": lambda a, x: x[int(a[1]) % 2],
}


@pytest.mark.every(2)
@pytest.mark.parametrize("then", WRITTEN_THEN)
@pytest.mark.parametrize("name", MOVED_OUTSIDE)
@pytest.mark.parametrize("kind", [np.random.default_rng, np.random.RandomState])
def test_an_array_of_the_outside_is_shuffled(name, then, kind):
    """an array from outside is shuffled or filled, and written to or read -> as NumPy does it,
    once a call"""

    def program():
        rng, a = kind(0), np.arange(4.0)

        def f(x):
            before = np.sum(x * a[:2]) if then == "to read" and name != "Python's" else 0.0
            MOVED_OUTSIDE[name](rng, a)
            WRITTEN_THEN[then](a, x)
            return np.sum(x**2) * a[1] + before

        return f, a, rng

    (f, a, rng), (g, b, other) = program(), program()
    df = value_and_grad(g, compile="never")
    for k in range(4):
        python_random.seed(k)
        expected = f(X + k)
        python_random.seed(k)
        np.testing.assert_allclose(df(X + k)[0], expected)
        np.testing.assert_array_equal(b, a)
        assert all(map(randomness.same, states([rng]), states([other])))
