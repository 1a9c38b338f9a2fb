"""Randomness"""

from __future__ import annotations

import os
import random as python_random
import subprocess
import sys

import numpy as np
import pytest
from tests.honesty.check import refused

from tapegrad import grad, jit, random, simplegrad, trace, value_and_grad, vjp
from tapegrad.errors import RandomnessError

X = np.array([1.0, 2.0])
FIX = "pass them in as an argument"


@pytest.fixture(params=["never", "always"])
def mode(request):
    return request.param


def test_the_global_generator_of_numpy(mode):
    """`np.random.normal()` and the like -> refused, with the line"""

    def noisy(x):
        mask = np.random.rand(2) > 0.5
        return np.sum(np.where(mask, x, 0.0))

    with refused(RandomnessError, "np.random", "np.random.rand(2) > 0.5", FIX):
        grad(noisy, compile=mode)(X)


def test_the_second_number_of_a_pair():
    """`np.random.normal()` keeps a number for the next draw -> refused for either"""
    state = np.random.get_state()
    try:
        np.random.seed(0)
        for _ in range(4):
            with refused(RandomnessError, "np.random", FIX):
                grad(lambda x: np.sum(x * np.random.normal()))(X)
    finally:
        np.random.set_state(state)


def test_a_generator(mode):
    """draws of a closed-over, global or passed `Generator` -> refused"""
    rng = np.random.default_rng(0)
    with refused(RandomnessError, "a Generator", "rng.normal(size=2)", FIX):
        grad(lambda x: np.sum(x * rng.normal(size=2)), compile=mode)(X)
    with refused(RandomnessError, "a Generator", "r.normal(size=2)", FIX):
        grad(lambda x, r: np.sum(x * r.normal(size=2)), compile=mode)(X, rng)


def test_a_generator_of_an_object():
    """draws of a generator that `self` or a list holds -> refused"""

    class Dropout:
        def __init__(self):
            self.generators = [np.random.RandomState(0)]

        def mask(self, shape):
            return self.generators[0].uniform(size=shape) > 0.5

        def __call__(self, x):
            return np.sum(np.where(self.mask(x.shape), x, 0.0))

    with refused(RandomnessError, "a RandomState", "uniform(size=shape)", FIX):
        grad(Dropout())(X)


def test_the_random_module():
    """the `random` module, and a `random.Random` -> refused"""
    with refused(RandomnessError, "the random module", "python_random.random()", FIX):
        grad(lambda x: np.sum(x) * python_random.random())(X)
    own = python_random.Random(0)
    with refused(RandomnessError, "a random.Random", "own.gauss(0, 1)", FIX):
        grad(lambda x: np.sum(x) * own.gauss(0, 1))(X)


def test_a_generator_without_a_seed():
    """`np.random.default_rng()` made inside, without a seed -> refused"""

    def noisy(x):
        return np.sum(x * np.random.default_rng().normal(size=2))

    with refused(RandomnessError, "without a seed", "default_rng()", FIX):
        grad(noisy)(X)
    assert np.random.default_rng().normal() != np.random.default_rng().normal()


def test_a_generator_with_a_seed(derivative):
    """`np.random.default_rng(0)` made with a seed inside -> the same at each call, as in NumPy"""
    df = derivative(lambda x: np.sum(x**2 * np.random.default_rng(0).normal(size=2)))
    df.at(X)
    df.at(2 * X)


def test_in_everything_that_keeps_a_tape():
    """inside jit, trace, simplegrad and an inner derivative -> refused"""

    def noisy(x):
        return np.sum(x * np.random.normal(size=2))

    for call in (
        lambda: jit(noisy)(X),
        lambda: trace(noisy, X),
        lambda: simplegrad(noisy, X),
        lambda: grad(lambda x: np.sum(grad(noisy)(x) * x))(X),
    ):
        with refused(RandomnessError, "np.random.normal(size=2)"):
            call()


def test_vjp_draws_at_each_call():
    """inside vjp, which traces at each call -> new draws at each call"""
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


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("draws", "drew random numbers from np.random"),
        ("makes", "made without a seed"),
        ("draws_plain", "drew random numbers from the random module"),
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
