"""Equal kernels compile once: in a program, which may repeat itself, and in a process.

A kernel's identity doesn't depend on the names of its variables. Python's own compiler drops them:
bytecode numbers variables in order of appearance. So kernels with equal bytecode, constants,
globals and parameter types are one kernel.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import FunctionType
from typing import Any

import numpy as np

from tapegrad.backends.memo import SHARED, Memo

Types = Sequence[tuple[str, tuple[Any, ...], np.dtype]]


kernels = Memo()


def identity(
    function: FunctionType,
    types: Types,
    constants: Mapping[str, Any],
    numbers: Sequence[str] | None = None,
) -> tuple[Any, ...]:
    """All that a kernel's machine code depends on, and no more. For a template, `numbers` are the
    dtypes of the numbers that the code gets later."""
    code = function.__code__
    return (
        code.co_code,
        tuple(map(repr, code.co_consts)),  # tells 1 from 1.0 and True, and 0.0 from -0.0
        tuple(
            (name, _exact(constants[name]) if name in constants else "") for name in code.co_names
        ),
        code.co_argcount,
        tuple((passed, shape, np.dtype(dtype).str) for passed, shape, dtype in types),
        _settings(),
        None if numbers is None else tuple(numbers),
    )


def shared_identity(name: str) -> tuple[Any, ...]:
    """All that the machine code of a shared function depends on."""
    return name, _settings(), SHARED


def _settings() -> tuple[tuple[str, str], ...]:
    return tuple(sorted(x for x in os.environ.items() if x[0].startswith("NUMBA_")))


def _exact(value: Any) -> tuple[str, bytes]:
    array = np.asarray(value)
    return array.dtype.str, array.tobytes()
