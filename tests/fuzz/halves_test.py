"""Random programs whose arguments are kept in half precision: they compute as on float32 arrays."""

from __future__ import annotations

import random
import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.fuzz.growing import grow
from tests.fuzz.plain import grow_plain
from tests.fuzz.programs import Program
from tests.fuzz.properties import weighted

from tapegrad import jit, value_and_grad
from tapegrad.core.trees import flatten, unflatten

HALVES = [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)]


def is_real(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.dtype.kind == "f"


def outcome(program: Program, half: np.dtype, dtype: Any, differentiated: bool) -> Any:
    """What a program comes to for arrays of numbers that half precision has, kept in a dtype: its
    result, or gradients; or the type of its error."""
    f, call = program.function(), program.call(0)
    call.enter(f)
    leaves, structure = flatten(call.args())
    given = [x.astype(half).astype(dtype) if is_real(x) else x for x in leaves]
    args = unflatten(structure, given)
    wrt = tuple(k for k, x in enumerate(call.args()) if is_real(x))
    g = (
        value_and_grad(weighted(f), wrt, compile="never")
        if differentiated
        else jit(f, compile="never")
    )
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return g(*args) if wrt else None
        except Exception as error:
            return type(error)


@pytest.mark.every(6)
@pytest.mark.parametrize("differentiated", [False, True])
@pytest.mark.parametrize("seed", range(30))
def test_random_programs_compute_in_float32(seed, differentiated):
    half = HALVES[seed % 2]
    program = (grow if seed % 3 else grow_plain)(random.Random(seed))
    found = outcome(program, half, half, differentiated)
    expected = outcome(program, half, np.float32, differentiated)
    ours, wanted = flatten(found)[0], flatten(expected)[0]
    assert len(ours) == len(wanted), (found, expected)
    for x, y in zip(ours, wanted, strict=True):
        if not isinstance(y, (np.ndarray, np.generic)):
            assert x == y or x != x
            continue
        assert x.dtype in (y.dtype, half), program
        assert np.array_equal(x, y.astype(x.dtype), equal_nan=x.dtype.kind in "fcV"), program
