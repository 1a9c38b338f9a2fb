"""Python sources of numba functions with numba's types, and the comparison with numba's results.

`retyped.py` changes the source. A result is converted to numba's type, for example to a Python
number, and compared with numba's own result at each trace.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FunctionType, SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from tapegrad.core.handlers import let_through, quiet
from tapegrad.errors import ConversionError, TapegradError
from tapegrad.observe.program.source import at_line
from tapegrad.tracing.frontend.indexing.indexing import as_python
from tapegrad.tracing.frontend.numba.frozen_globals import frozen, types_of, with_frozen
from tapegrad.tracing.frontend.numba.inferred_types import Inferred, inferred
from tapegrad.tracing.frontend.numba.retyped import WIDE, Different, dtype_of_type, retyped
from tapegrad.tracing.recording.trace import refusing
from tapegrad.tracing.tracers.tracer import Tracer


@dataclass
class _Found:
    compiled: Any  # numba's
    retyped: Callable[[FunctionType], FunctionType]  # makes Python source compute as numba does
    is_pure: bool  # whether a repeated call changes nothing but its arguments
    made: tuple[Any, Any] = None, None  # a source, and the changed one


_known: WeakKeyDictionary[Any, dict[Any, _Found]] = WeakKeyDictionary()


def _examined(f: Any, compiled: Any) -> _Found:
    held, kinds = _known.setdefault(f, {}), compiled.signature.args
    found = held.get(kinds)
    if found is None or found.compiled is not compiled:
        known = inferred(f, kinds)
        try:
            python = retyped(f, known)
        except Different as error:
            raise _refused(f.py_func.__name__, str(error)) from None
        found = held[kinds] = _Found(compiled, python, _is_pure(known))
    return found


def python_of(f: Any, compiled: Any) -> FunctionType:
    """The Python source of a function, with numba's frozen values, that computes as numba does."""
    found, python = _examined(f, compiled), frozen(f, compiled.signature.args)
    if found.made[0] is not python:
        found.made = python, found.retyped(python)
    return found.made[1]


def python_of_stencil(f: Any, args: Sequence[Any]) -> FunctionType:
    """The same for a stencil's function. Its numbers become arrays, so it isn't changed."""
    function = f.kernel_ir.func_id.func
    _, typemap, calltypes = f.get_return_type(types_of(args))
    known = Inferred(typemap, f.kernel_ir.blocks, calltypes, None, [])
    try:
        retyped(SimpleNamespace(targetoptions={}), known)
    except Different:
        raise _refused(
            function.__name__,
            "it divides by what may be 0, or has numbers that numba computes with by rules of "
            "its own, which isn't followed in a stencil",
        ) from None
    return with_frozen(function, known.blocks)


def _refused(name: str, objection: str) -> ConversionError:
    return refusing(
        ConversionError(
            f"{name} is called with a traced value{at_line()}, and {objection}. Call "
            f"{name}.py_func for Python's result, change {name} so that both make the same, or "
            "declare it with tapegrad.primitive and defvjp"
        )
    )


def typed(name: str, kind: Any, x: Any) -> Any:
    """A function's result converted to numba's return type: scalars become Python numbers."""
    types = importlib.import_module("numba.core.types")
    if isinstance(kind, types.Optional) and x is not None:
        kind = kind.type
    if isinstance(kind, types.BaseTuple) and isinstance(x, tuple):
        parts = [typed(name, k, v) for k, v in zip(kind.types, x, strict=True)]
        return type(x)(*parts) if hasattr(x, "_fields") else tuple(parts)
    if not isinstance(kind, (types.Number, types.Boolean)) or np.ndim(x):
        return x
    dtype: Any = dtype_of_type(kind)
    own = x.dtype if isinstance(x, Tracer) else np.asarray(x).dtype
    if own.kind == "c" != dtype.kind:
        raise _refused(name, f"Python makes a complex number, numba one of {dtype}")
    if isinstance(x, Tracer):
        return as_python(x if x.dtype.kind == dtype.kind else x.astype(dtype))
    return np.asarray(x, dtype).item()


# ---- values


def alike(f: Any, compiled: Any, args: Sequence[Any], kwargs: Any, run: Callable[[], Any]) -> Any:
    """The result of `run()`, the Python source of a function. A result that differs from numba's is
    refused; an error of numba's is raised."""
    is_pure = _examined(getattr(f, "_dispatcher", f), compiled).is_pure
    return compared(f, f.__name__, (*args, kwargs) if is_pure else object(), run)


def compared(f: Any, name: str, given: Any, run: Callable[[], Any]) -> Any:
    """The same for a function with this name; `given` holds its arguments, the keywords last."""
    given = _primals(given)
    try:
        found = run()
    except (ValueError, ArithmeticError) as error:
        let_through(error)
        if given is None or isinstance(error, TapegradError):
            raise
        theirs = _outcome(f, given)
        if type(theirs) is type(error):
            raise
        made = theirs if not isinstance(theirs, Exception) else f"an error, {theirs}"
        raise _refused(
            name, f"Python raises {type(error).__name__}: {error}, numba makes {made}"
        ) from error
    if given is None:
        return found
    theirs, ours = _outcome(f, given), _primals(found)
    if isinstance(theirs, Exception):
        raise theirs
    if ours is not None and not _are_near(ours, theirs):
        raise _refused(name, f"Python makes {ours} of it, numba {theirs}")
    return found


def _is_pure(known: Any, seen: frozenset[Any] = frozenset()) -> bool:
    """Whether a call changes nothing but its arguments, judged by numba's types."""
    for kind in known.typemap.values():
        inner: Any = getattr(kind, "dispatcher", None)
        if type(kind).__name__ == "Dispatcher" and inner not in seen:
            held = [x.type_annotation for x in inner.overloads.values()]
            if not all(not isinstance(x, str) and _is_pure(x, seen | {inner}) for x in held):
                return False
        if getattr(kind, "typing_key", None) is print or type(kind).__name__ in _IMPURE:
            return False
    return True


_IMPURE = {"ExternalFunction", "ExternalFunctionPointer", "ObjModeDispatcher"}
_IMPURE |= {"ClassInstanceType", "NumPyRandomGeneratorType"}


def _primals(x: Any) -> Any:
    """Arguments with copies of plain values for tracers; None if a value is unknown."""
    if isinstance(x, Tracer):
        value = x._read()[1]
        return value if value is None else value.item() if x._weak else np.copy(value)[()]
    if type(x) in (tuple, list):
        parts = [_primals(v) for v in x]
        return None if any(p is None for p in parts) else type(x)(parts)
    if type(x) is dict:
        parts = [_primals(v) for v in x.values()]
        return None if any(p is None for p in parts) else dict(zip(x, parts, strict=True))
    if type(x) is np.ndarray:
        return x.copy("K")
    is_plain = isinstance(x, (bool, int, float, complex, np.generic)) or hasattr(x, "py_func")
    return x if is_plain else None


def _outcome(f: Any, given: tuple[Any, ...]) -> Any:
    """numba's result for plain values, or its error."""
    try:
        return quiet(f)(*given[:-1], **given[-1])
    except Exception as error:
        let_through(error)
        return error


def _are_near(x: Any, y: Any) -> bool:
    """Whether two results are equal except for rounding."""
    if isinstance(x, (tuple, list)):
        return type(x) is type(y) and len(x) == len(y) and all(map(_are_near, x, y))
    x, y = np.asarray(x), np.asarray(y)
    if x.shape != y.shape or x.dtype != y.dtype:
        return False
    if x.dtype.kind not in "fc":
        return np.array_equal(x, y)
    known = np.isfinite(x)
    if not np.array_equal(known, np.isfinite(y)) or not np.array_equal(
        x[~known], y[~known], equal_nan=True
    ):
        return False
    most = np.max(np.abs(y), where=known, initial=0.0)
    return bool(np.all(np.abs(x - y)[known] <= 1e-3 * most))


def as_pythons(x: Any) -> Any:
    """An argument as numba sees it: NumPy's 64-bit numbers and integers become Python's."""
    is_scalar = isinstance(x, np.generic) or (isinstance(x, Tracer) and x._is_scalar())
    if not is_scalar or not (x.dtype in WIDE or x.dtype.kind == "i"):
        return x
    return as_python(x) if isinstance(x, Tracer) else x.item()


def argument_dtypes(compiled: Any) -> tuple[np.dtype | None, ...]:
    return tuple([dtype_of_type(kind) for kind in compiled.signature.args])
