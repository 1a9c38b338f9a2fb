"""How the programs of the benchmarks of products read, at smaller sizes: the value and gradient of
a network of convolutions, and of an attention block."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tapegrad import value_and_grad

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import layers

GOLDEN = Path(__file__).parent / "sources"
PROGRAMS = {
    "convolutions": (layers.convolutions, partial(layers.make_convolutions, batch=2)),
    "attention": (layers.attention, partial(layers.make_attention, n=32, d=64)),
}


@pytest.mark.every(2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_how_they_read(name, request):
    """And that they compute what the tape says when it is played."""
    loss, make = PROGRAMS[name]
    args = make(np.random.default_rng(0))
    derived = value_and_grad(partial(loss, np), compile="always")
    value, slopes = derived(*args)
    expected, known = value_and_grad(partial(loss, np), compile="never")(*args)
    rtol = 1e-4 if args[1].dtype == np.float32 else 1e-9
    np.testing.assert_allclose(value, expected, rtol)
    for a, b in zip(slopes, known, strict=True):
        np.testing.assert_allclose(a, b, rtol, rtol * np.max(np.abs(b)))

    (tape,) = derived.tapes
    lines = [line for line in tape.source.splitlines() if not line.lstrip().startswith("#")]
    text, file = "\n".join(lines) + "\n", GOLDEN / f"{name}.txt"
    if request.config.getoption("--update-golden"):
        file.write_text(text)
    assert text == file.read_text()
