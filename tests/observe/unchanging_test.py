"""What is known to change nothing."""

import cProfile

import numpy as np
import pytest

from tapegrad.observe.guards.pure_operations import is_private

NESTED = [{"a": {"b": [[k, str(k)] for k in range(1000)]}}]

PRIVATE = {
    "a list": lambda: iter(NESTED),
    "a tuple": lambda: iter((NESTED,)),
    "the values of a dict": lambda: iter({"a": NESTED}.values()),
    "entries with their numbers": lambda: enumerate(NESTED),
    "entries of two": lambda: zip(NESTED, iter(NESTED), strict=True),
    "functions": lambda: iter([len, np.sin]),
    "iterators": lambda: iter([iter(NESTED)]),
}


@pytest.mark.parametrize("name", PRIVATE)
def test_an_iterator_of_data_goes_on_alone(name):
    """What the entries hold makes no difference, and isn't looked at."""
    x, profile = PRIVATE[name](), cProfile.Profile()
    assert profile.runcall(is_private, x)
    assert sum(entry.callcount for entry in profile.getstats()) < 50


def test_an_iterator_that_goes_on_with_others_is_not_alone():
    """These may be held, and looked at, elsewhere."""
    held = iter([1, 2])
    assert not is_private(zip([1], held, strict=True))
    assert not is_private(enumerate(held))
    assert not is_private(zip([1], (k for k in range(3)), strict=False))
    assert not is_private(enumerate(k for k in range(3)))
