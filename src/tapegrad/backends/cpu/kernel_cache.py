"""Kernels that are alike compile once: in a program, which may repeat itself, and in a process.

What a kernel is doesn't depend on the names of its variables. Python's own compiler leaves them
out: byte code numbers them in order of appearance. So kernels with equal byte code, over equal
constants and equal globals, that take equal types, are one kernel.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from types import FunctionType
from typing import Any

import numpy as np

Types = Sequence[tuple[str, tuple[Any, ...], np.dtype]]


class Memo:
    """The object files of the kernels used last, and of what they share, by what these are.

    `added` are those that were put there, since somebody last took them out of it; `compiles`
    counts the kernels that were compiled.
    """

    def __init__(self, most: int = 512) -> None:
        self.most = most
        self.compiles = 0
        self.added: dict[Any, bytes] = {}
        self._held: OrderedDict[Any, bytes] = OrderedDict()

    def get(self, key: Any) -> bytes | None:
        """The machine code of the kernel of this identity, if it is known."""
        if key in self._held:
            self._held.move_to_end(key)
        return self._held.get(key)

    def add(self, codes: Mapping[Any, bytes]) -> None:
        """Know these from now on."""
        self.added.update(codes)
        self._held.update(codes)
        while len(self._held) > self.most:
            self._held.popitem(last=False)

    def clear(self) -> None:
        """Forget all kernels. What they share is no part of a program."""
        for held in (self._held, self.added):
            for key in [key for key in held if not is_shared(key)]:
                del held[key]


kernels = Memo()
SHARED = "shared"  # the last of an identity, if it is that of a function that kernels share


def identity(
    function: FunctionType,
    types: Types,
    constants: Mapping[str, Any],
    numbers: Sequence[str] | None = None,
) -> tuple[Any, ...]:
    """All that the machine code of a kernel depends on, and no more. If it is a template, the code
    gets its `numbers`, which are of these dtypes, later."""
    code = function.__code__
    return (
        code.co_code,
        tuple(map(repr, code.co_consts)),  # which tells 1 from 1.0 and True, and 0.0 from -0.0
        tuple(
            (name, _exact(constants[name]) if name in constants else "") for name in code.co_names
        ),
        code.co_argcount,
        tuple((passed, shape, np.dtype(dtype).str) for passed, shape, dtype in types),
        _settings(),
        None if numbers is None else tuple(numbers),
    )


def shared_identity(name: str) -> tuple[Any, ...]:
    """All that the machine code of a function depends on that kernels share."""
    return name, _settings(), SHARED


def is_shared(key: tuple[Any, ...]) -> bool:
    """Whether this is the identity of such a function."""
    return bool(key[-1] == SHARED)


def is_common(key: tuple[Any, ...]) -> bool:
    """Whether this is the identity of what many programs have: a template, a shared function."""
    return key[-1] is not None


def _settings() -> tuple[tuple[str, str], ...]:
    return tuple(sorted(x for x in os.environ.items() if x[0].startswith("NUMBA_")))


def _exact(value: Any) -> tuple[str, bytes]:
    array = np.asarray(value)
    return array.dtype.str, array.tobytes()
