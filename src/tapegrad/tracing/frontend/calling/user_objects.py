"""Operators on a traced value and a user's object.

NumPy applies an operator to each element, as Python does. A NumPy scalar that meets an object which
isn't an array becomes a Python number, and Python's operator calls the object's method: `x[0] * q`
is `q.__rmul__(float(x[0]))`.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from tapegrad.core.arrays import is_foreign
from tapegrad.errors import UnsupportedError
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.observer import observed
from tapegrad.observe.program.source import at_line
from tapegrad.tracing.frontend.calling.object_arrays import beside_objects, is_of_objects
from tapegrad.tracing.frontend.indexing.indexing import as_python
from tapegrad.tracing.frontend.operands.operands import has_tracer
from tapegrad.tracing.recording.trace import refusing
from tapegrad.tracing.tracers.tracer import Tracer

_OPERATORS: dict[Any, Any] = {
    np.add: operator.add,
    np.subtract: operator.sub,
    np.multiply: operator.mul,
    np.true_divide: operator.truediv,
    np.floor_divide: operator.floordiv,
    np.remainder: operator.mod,
    np.power: operator.pow,
    np.left_shift: operator.lshift,
    np.right_shift: operator.rshift,
    np.bitwise_and: operator.and_,
    np.bitwise_or: operator.or_,
    np.bitwise_xor: operator.xor,
    np.less: operator.lt,
    np.less_equal: operator.le,
    np.greater: operator.gt,
    np.greater_equal: operator.ge,
}
_KNOWN = (Tracer, np.ndarray, np.generic, int, float, complex, list, tuple, str, bytes)


def elsewhere(ufunc: Any, method: str, inputs: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """A tuple with the result of a ufunc call beside objects; empty if there are none. It is
    NotImplemented beside an object with its own `__array_ufunc__`, which NumPy calls next, and an
    array of objects beside one."""
    for x in inputs:
        own = not isinstance(x, _KNOWN) and not dispatch.has_labels(x)
        if own and callable(getattr(type(x), "__array_ufunc__", None)):
            return (NotImplemented,)
    if any(map(is_of_objects, inputs)) and not any(map(has_tracer, kwargs.values())):
        return (beside_objects(ufunc, method, inputs, kwargs),)
    return ()


def meets_object(ufunc: Any, inputs: Sequence[Any]) -> bool:
    """Whether an operator is applied to a traced value and an object that isn't an array."""
    if ufunc not in _OPERATORS:
        return False
    others = [x for x in inputs if not isinstance(x, _KNOWN)]
    return bool(others) and all(map(_is_object, others))


def _is_object(x: Any) -> bool:
    if dispatch.has_labels(x) or is_foreign(x) or isinstance(x, bytearray):
        return False
    return np.asarray(x).dtype == object and np.ndim(x) == 0


def meet(ufunc: Any, inputs: Sequence[Any]) -> Any:
    """The result of an operator on a traced scalar and an object."""
    if any(np.ndim(x) for x in inputs if isinstance(x, (Tracer, np.ndarray))):
        name = next(type(x).__name__ for x in inputs if not isinstance(x, _KNOWN))
        raise refusing(
            UnsupportedError(
                f"a traced array meets an object of type {name}{at_line()}: NumPy has each element "
                "meet it, and what comes of that is an array of objects, which can't be traced. "
                f"With __array_ufunc__ = None in the class {name} Python calls its method instead, "
                "with the whole array"
            )
        )
    given = [as_python(x) if isinstance(x, Tracer) and not x._weak else x for x in inputs]
    plain = [x.item() if isinstance(x, (np.generic, np.ndarray)) else x for x in given]
    with observed():
        return _OPERATORS[ufunc](*plain)
