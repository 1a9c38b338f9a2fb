"""Dense Jacobians of tapes, column by column: what structures and recovery are held against."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tapegrad.backends.numpy.play import run
from tapegrad.errors import GradientError
from tapegrad.ir.tape import Tape
from tapegrad.pipeline import derive, derive_forward


def values_of(tape: Tape, xs: Sequence[Any]) -> list[Any]:
    """The tape's outputs for the values of all inputs; its guards hold."""
    with np.errstate(all="ignore"):
        results, broken = run(tape, xs)
    assert broken is None
    return results


def flat(results: Sequence[Any]) -> Any:
    return np.concatenate([np.ravel(x) for x in results]) if results else np.zeros(0)


def jacobian(tape: Tape, wrt: Sequence[int], xs: Sequence[Any]) -> Any:
    """All outputs by all inputs of these numbers, by forward mode; by reverse mode, where a
    primitive has no forward rule. `xs` are the values of all inputs."""
    try:
        return np.hstack([_columns(tape, k, xs) for k in wrt])
    except GradientError:
        return np.vstack([_rows(tape, n, wrt, xs) for n in range(len(tape.outputs))])


def _units(x: Any) -> Any:
    for k in range(x.size):
        unit = np.zeros(x.size, x.dtype)
        unit[k] = 1
        yield unit.reshape(x.shape)


def _columns(tape: Tape, k: int, xs: Sequence[Any]) -> Any:
    done = derive_forward(tape, [k])
    free = len(tape.free_inputs)
    size = sum(x.aval.size for x in tape.outputs)
    found = [
        flat(values_of(done, [*xs[:free], unit, *xs[free:]])) for unit in _units(np.asarray(xs[k]))
    ]
    return np.stack(found, 1) if found else np.zeros((size, 0))


def _rows(tape: Tape, n: int, wrt: Sequence[int], xs: Sequence[Any]) -> Any:
    out = tape.outputs[n]
    width = sum(np.size(xs[k]) for k in wrt)
    if out.dtype.kind not in "fc" or not out.aval.size:
        return np.zeros((out.aval.size, width))
    done = derive(Tape(tape.name, tape.inputs, tape.calls, (out,)), wrt, seed=True, keep=[])
    free = len(tape.free_inputs)
    units = _units(np.zeros(out.shape, out.dtype))
    return np.stack([flat(values_of(done, [*xs[:free], unit, *xs[free:]])) for unit in units])


def entries(matrix: Any) -> Any:
    """Where a matrix isn't zero."""
    return (matrix != 0) | np.isnan(matrix)
