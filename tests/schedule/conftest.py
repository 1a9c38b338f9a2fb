"""Programs are compiled inside this process, where the tests set the bounds of the scheduler."""

import pytest


@pytest.fixture(autouse=True)
def compiler(inside):
    """A worker would know nothing of what is set here."""
