"""What the tests of the compiler next door share."""

import pytest
from tests.compiler.programs import Shared


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    """A process that runs programs."""
    process = Shared(tmp_path_factory.mktemp("shared"))
    yield process
    process.end()
