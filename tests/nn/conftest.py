"""What PyTorch says, with and without it."""

import re

import pytest
from tests.nn.agreeing import PyTorch


@pytest.fixture
def pytorch(request):
    """Its numbers in this test, the same ones whether that is compiled or played."""
    name = re.sub("(never|always)", "", request.node.name)
    update = request.config.getoption("update_golden")
    return PyTorch(f"{request.path.stem}::{name}", update)
