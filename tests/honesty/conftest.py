"""The fixture that runs each promise in three ways."""

import functools

import pytest
from tests.honesty.check import Derivative


@pytest.fixture(params=["played", "compiled", "nested"])
def derivative(request):
    """Makes `Derivative`s: `derivative(f, argnums=0)`."""
    return functools.partial(Derivative, request.param)
