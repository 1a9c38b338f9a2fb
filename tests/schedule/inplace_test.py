"""Results that are written where arguments lie: only where no element is read afterwards."""

import numpy as np
import pytest

from tapegrad.runtime.derived import derived
from tapegrad.runtime.transformations import Into

ONE = ((0, 0),)


def over(f, into=ONE, compile="always"):
    return derived(f, Into(into=into), compile)


def held(f, *args, into=ONE, lies=True):
    """The results are those of the function itself, and lie in place if they are said to."""
    expected = f(*[x.copy() for x in args])
    made = over(f, into)
    made.compile(*args)
    copies = [x.copy() for x in args]
    found = made(*copies)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    assert [found[k] is copies[m] for k, m in into] == [lies] * len(into)
    for m, x in enumerate(copies):
        if not lies or m not in [place for _, place in into]:
            np.testing.assert_array_equal(x, args[m])


X = np.random.default_rng(0).normal(size=(6, 6))
LARGE = np.random.default_rng(1).normal(size=300_000)


@pytest.mark.parametrize("x", [X, LARGE, X[0]])
def test_elementwise_results_lie_in_place(x):
    held(lambda x: (2 * np.sin(x) + x,), x)
    held(lambda m, g: (0.9 * m + g,), x, x[::-1].copy())


def test_several_results():
    def step(p, m, g):
        m = 0.9 * m + g
        return p - m * np.sqrt(np.abs(m)), m

    held(step, X, X + 1, X + 2, into=((0, 0), (1, 1)))


@pytest.mark.every(2)
@pytest.mark.parametrize(
    "f",
    [
        lambda x: (x[::-1] + x,),  # read at other places
        lambda x: (x.T + 1.0,),
        lambda x: (x - np.sum(x, axis=0),),  # read before and after
        lambda x: (x @ x,),
        lambda x: (np.cumsum(x, axis=0),),
        lambda x: (np.sort(x, axis=0),),
        lambda x: (np.linalg.inv(x),),
        lambda x: (np.roll(x, 1, axis=0) * x,),
        lambda x: (x,),
    ],
)
def test_results_that_would_overwrite_what_is_read_later_are_right(f):
    """Whether they lie in place or not."""
    made = over(f)
    made.compile(X)
    for _ in range(2):
        np.testing.assert_allclose(made(X.copy())[0], f(X)[0], rtol=1e-10, atol=1e-12)


def test_an_argument_that_another_result_reads():
    """The second loop reads x in another order after the first has run."""

    def f(x, y):
        return np.exp(y), x + y[::-1]

    made = over(f, into=((0, 1),))
    made.compile(X, X)
    x, y = X.copy(), X + 1
    found = made(x, y.copy())
    np.testing.assert_allclose(found[0], np.exp(y), rtol=1e-12)
    np.testing.assert_allclose(found[1], x + y[::-1], rtol=1e-12)


def test_what_may_stop_the_program_leaves_the_argument():
    """An index out of range is found out by the kernel: what it wrote would be lost."""

    def f(x, k):
        return (x * 2.0, x[k])

    made = over(f)
    made.compile(X, 1)
    x = X.copy()
    with pytest.raises(IndexError):
        made(x, 9)
    np.testing.assert_array_equal(x, X)


def step(p, g):
    return (p - 0.5 * g,)


def test_arguments_that_share_memory():
    made = over(step)
    made.compile(X, X)
    x = np.arange(12.0)
    for p, g in ((x[:6], x[3:9]), (x[:6], x[:6]), (x[2:8], x[:6])):
        before = x.copy()
        np.testing.assert_allclose(made(p, g)[0], p - 0.5 * g)
        np.testing.assert_array_equal(x, before)


def test_arguments_of_other_layouts_and_those_that_can_not_be_written():
    made = over(step)
    for p in (X.T, X[::-1], np.asfortranarray(X), X.astype(np.float32)):
        for _ in range(3):
            np.testing.assert_allclose(made(p, X)[0], p - 0.5 * X, rtol=1e-12)
    frozen = X.copy()
    frozen.flags.writeable = False
    np.testing.assert_allclose(made(frozen, X)[0], 0.5 * X)
    np.testing.assert_array_equal(frozen, X)
