"""What every test of the emitters asks: that a tape gives the same played, as NumPy source, and
compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapegrad.backends.numpy.play import run
from tapegrad.backends.numpy.source import numpy_function
from tapegrad.ir.tape import Tape
from tapegrad.runtime.entry import Miss, flat_function

RTOL = {np.dtype(np.float64): 1e-9, np.dtype(np.float32): 1e-4}


def compiled(tape: Tape) -> Callable[..., list[Any] | None]:
    """The tape as it is, without passes, compiled: a function of the values of all inputs. It
    returns the outputs, or None if a guard doesn't hold or an index is out of range."""
    function = flat_function(tape)

    def call(*values: Any) -> list[Any] | None:
        given = [
            np.asarray(x).item() if v.shape == () else np.require(x, v.dtype, ["C", "A"])
            for v, x in zip(tape.inputs, values, strict=True)
        ]
        try:
            return function(*given)
        except Miss:
            return None

    return call


def assert_close(found: Sequence[Any], expected: Sequence[Any], what: str = "") -> None:
    """Equal shapes and dtypes; values up to rounding, NaN and infinities in the same places."""
    assert len(found) == len(expected)
    for k, (a, b) in enumerate(zip(found, expected, strict=True)):
        x, y = np.asarray(a), np.asarray(b)
        assert (x.shape, x.dtype) == (y.shape, y.dtype), f"{what}: output {k}"
        rtol = RTOL.get(y.dtype, 0.0)
        finite = np.abs(y[np.isfinite(y)]) if y.dtype.kind == "f" else np.abs(y, dtype=float)
        atol = rtol * float(finite.max(initial=0.0))
        np.testing.assert_allclose(x, y, rtol, atol, err_msg=f"{what}: output {k}")


def assert_agree(tape: Tape, *examples: Sequence[Any]) -> None:
    """Played, as NumPy source and compiled, the tape gives the same for each example's values."""
    reference, machine = numpy_function(tape), compiled(tape)
    free = len(tape.free_inputs)
    for values in examples:
        kept = [np.array(x) for x in values]
        played, broken = run(tape, values)
        found = machine(*values)
        if broken is not None:
            assert found is None, "the compiled guard holds where the played one doesn't"
            continue
        assert found is not None, "the compiled guard doesn't hold where the played one does"
        assert_close(reference(*values[:free]), played, "NumPy source")
        assert_close(found, played, "compiled")
        for x, y in zip(values, kept, strict=True):
            np.testing.assert_array_equal(x, y, err_msg="an input was written to")
