"""The attributes and methods that arrays and NumPy's scalars have, and their tracers."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from tapegrad.errors import ConversionError, TraceError, UnsupportedError
from tapegrad.tracing.dispatch import dispatch
from tapegrad.tracing.observe.observer import unobserved
from tapegrad.tracing.source import at_line, caller


class NumpyAttributes:
    """Mixin of what NumPy's arrays and scalars have in common."""

    __slots__ = ()
    __array_priority__ = 1000.0

    def item(self: Any, *args: Any) -> Any:
        """ndarray's: an integer or boolean is guarded, a float stays traced, as a Python number."""
        return dispatch.element(self, args)

    def tolist(self: Any) -> Any:
        """Nested lists of traced Python numbers."""
        return dispatch.number(self) if self.ndim == 0 else [x.tolist() for x in self]

    def __floor__(self: Any) -> int:
        return int(np.floor(self))

    def __ceil__(self: Any) -> int:
        return int(np.ceil(self))

    def __trunc__(self: Any) -> int:
        return int(self)

    @unobserved
    def __getitem__(self: Any, index: Any) -> Any:
        return dispatch.getitem(self, index)

    @property
    def T(self: Any) -> Any:
        return np.transpose(self)

    @property
    def real(self: Any) -> Any:
        return self

    @property
    def imag(self: Any) -> Any:
        return np.zeros_like(self)

    @property
    def nbytes(self: Any) -> int:
        return self._aval.nbytes

    @property
    def itemsize(self: Any) -> int:
        return self._aval.dtype.itemsize

    @property
    def flat(self: Any) -> Any:
        return dispatch.flat(self)

    @flat.setter
    def flat(self: Any, value: Any) -> None:
        self.flat[:] = value

    def __getattr__(self: Any, name: str) -> Any:
        kind = self.__class__
        if name in dispatch.methods and hasattr(kind, name):
            return partial(dispatch.method, name, self)
        hidden = name.startswith("__") and name != "__buffer__"  # which C code doesn't ask for
        if hidden or not hasattr(kind, name):
            raise AttributeError(f"{kind.__name__!r} object has no attribute {name!r}")
        found = getattr(kind, name)
        if not callable(found):
            raise _unsupported(kind, name)
        return partial(_refuse, kind, name)


def _refuse(kind: type, name: str, *args: Any, **kwargs: Any) -> Any:
    """Stands for a method that there is no rule for, until it is called."""
    raise _unsupported(kind, name)


def _unsupported(kind: type, name: str) -> TraceError:
    if caller() == "numba":
        return ConversionError(
            f"a function that numba compiled is called with a traced array{at_line()}. It runs "
            "machine code on plain arrays, which carries no derivative. Trace the Python function "
            "(f.py_func), or declare it with tapegrad.primitive and defvjp"
        )
    return UnsupportedError(
        f"{kind.__name__}.{name} isn't supported on a traced array{at_line()}. Use a NumPy "
        "function that has a rule, or declare one with tapegrad.primitive"
    )
