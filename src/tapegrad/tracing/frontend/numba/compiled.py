"""Functions compiled by numba: for traced values, their Python source is called.

Machine code reads the memory of arrays. The Python source computes the same, and is traced like
user code, with the globals that numba has frozen in it (`frozen_globals.py`). numba compiles the
function first, as at a plain call, and provides the type of each expression. The source is changed
where Python's types would be others (`typed.py`).
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import threading
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tapegrad.core.handlers import quiet
from tapegrad.errors import ConversionError
from tapegrad.observe.answers import swapping
from tapegrad.observe.answers.answers import declare, declare_calls, declare_late
from tapegrad.observe.aside import aside
from tapegrad.observe.observer import observed, unobserved
from tapegrad.observe.program.source import at_line
from tapegrad.tracing.frontend.calling.library_code import followed
from tapegrad.tracing.frontend.calling.object_arrays import as_array, vectorized
from tapegrad.tracing.frontend.numba.frozen_globals import compiled_for, note_compiled
from tapegrad.tracing.frontend.numba.generalized import by_neighbours, by_rows
from tapegrad.tracing.frontend.numba.typed import (
    alike,
    argument_dtypes,
    as_pythons,
    python_of,
    typed,
)
from tapegrad.tracing.frontend.numpy.ufuncs import OTHERS
from tapegrad.tracing.frontend.numpy.undispatched import has_traced
from tapegrad.tracing.frontend.operands.operands import dtype_of
from tapegrad.tracing.loops.stacking import strong
from tapegrad.tracing.recording.trace import refusing
from tapegrad.tracing.tracers.tracer import Tracer


class _Following(threading.local):
    now = False  # whether the source of such a function is running


_following = _Following()


def _is_followed(args: Sequence[Any]) -> bool:
    """Whether the Python source is called: for traced values; for plain numbers, if another such
    source is running, so that a loop that calls it is one loop."""
    of_numbers = _following.now and all(isinstance(x, _NUMBERS) for x in args)
    return of_numbers or any(map(has_traced, args))


_NUMBERS = (int, float, complex, np.number, np.bool_)


@contextlib.contextmanager
def _within() -> Iterator[None]:
    """A context in which the Python source of such a function runs."""
    before, _following.now = _following.now, True
    try:
        yield
    finally:
        _following.now = before


def _python(f: Any, *args: Any, **kwargs: Any) -> Any:
    """The result of a function's Python source, without warnings, since numba issues none."""
    with _within():
        return quiet(followed)(f, *args, **kwargs)


@unobserved
def _function(f: Any, *args: Any, **kwargs: Any) -> Any:
    """A call of a function of numba.njit."""
    if not _is_followed((*args, *kwargs.values())):
        with observed():
            return f(*args, **kwargs)
    if f._can_compile:
        compiled = compiled_for(f, args, kwargs)
        python = python_of(f, compiled)
        returned = compiled.signature.return_type

        def run() -> Any:
            given = [as_pythons(x) for x in args]
            named = {name: as_pythons(x) for name, x in kwargs.items()}
            return typed(f.__name__, returned, _python(python, *given, **named))

        return run() if _following.now else alike(f, compiled, args, kwargs, run)
    only = len(f.nopython_signatures) == 1  # otherwise numba would choose the best match
    for signature in f.nopython_signatures:
        given = _all_as(signature.args, args, only)
        if not kwargs and given is not _OTHER:
            found = _of_signature(f, signature, args, given)
            if found is not _OTHER:
                return found
    kinds = ["(" + ", ".join(map(str, x.args)) + ")" for x in f.nopython_signatures]
    raise _cast(f.py_func.__name__, ", ".join(kinds))


def _of_signature(f: Any, signature: Any, args: Sequence[Any], given: Sequence[Any]) -> Any:
    """The result of a function compiled for given types. `given` are `args` in these types."""
    compiled, returned = f.overloads[signature.args], signature.return_type
    python = python_of(f, compiled)

    def run() -> Any:
        found = _as(returned, _python(python, *given))
        return found if found is _OTHER else typed(f.__name__, returned, found)

    return run() if _following.now else alike(f, compiled, args, {}, run)


_OTHER = object()  # numba would convert the value


def _all_as(kinds: Sequence[Any], xs: Sequence[Any], cast: bool) -> Any:
    found = [_as(kind, x, cast) for kind, x in zip(kinds, xs, strict=False)]
    fit = len(kinds) == len(xs) and not any(x is _OTHER for x in found)
    return tuple(found) if fit else _OTHER


def _as(kind: Any, x: Any, cast: bool = True) -> Any:
    """A value in one of numba's types: a number, an array, or a tuple of these; `_OTHER` if it
    doesn't fit. Traced floats are converted if `cast`."""
    types = importlib.import_module("numba.core.types")
    if isinstance(kind, types.BaseTuple):
        return _all_as(kind.types, x, cast) if isinstance(x, tuple) else _OTHER
    if kind == types.none:
        return x if x is None else _OTHER
    is_array = isinstance(kind, types.Array)
    own = kind.dtype if is_array else kind
    if not isinstance(own, (types.Number, types.Boolean)) or isinstance(x, (tuple, list)):
        return _OTHER
    if x is None or np.ndim(x) != (kind.ndim if is_array else 0):
        return _OTHER
    dtype = np.dtype("?" if isinstance(own, types.Boolean) else str(own))
    theirs = x.dtype if hasattr(x, "dtype") else np.asarray(x).dtype
    if theirs == dtype:
        return x
    if has_traced(x):
        is_alike = cast and not is_array and dtype.kind == theirs.kind == "f"
        return strong(x).astype(dtype) if is_alike else _OTHER
    if dtype == np.float64 and isinstance(x, (int, float, np.number)):
        return float(x)
    if (
        dtype.kind in "iu"
        and isinstance(x, (int, np.integer))
        and np.can_cast(np.min_scalar_type(x), dtype)
    ):
        return int(x)
    return _OTHER


def _cast(name: str, kinds: str) -> ConversionError:
    return refusing(
        ConversionError(
            f"{name} is called with a traced value{at_line()}, and numba has compiled it for "
            f"{kinds} alone: it makes its arguments and results such, and its Python doesn't. "
            "Leave the types out, pass what it was compiled for, or declare it with "
            "tapegrad.primitive and defvjp"
        )
    )


@unobserved
def _elementwise(f: Any, *args: Any, **kwargs: Any) -> Any:
    """A call of a function of numba.vectorize, for each element."""
    if kwargs or not _is_followed(args):
        with observed():
            return f(*args, **kwargs)
    loop = _loop(f, args)
    compiled = next(x for x in f._dispatcher.overloads.values() if argument_dtypes(x) == loop[:-1])
    python = python_of(f._dispatcher, compiled)
    given = [_with_dtype(x, dtype) for x, dtype in zip(args, loop, strict=False)]

    def run() -> Any:
        if all(np.ndim(x) == 0 for x in given):
            found = as_array(_python(python, *given))[()]
        else:
            with _within():
                found = vectorized(np.vectorize(_of_elements(python)), *given)
        if not np.can_cast(found.dtype, loop[-1], "same_kind"):
            raise _cast(f.__name__, ", ".join(f.types))
        return _with_dtype(found, loop[-1])

    return run() if _following.now else alike(f, compiled, args, {}, run)


_of_ufuncs: dict[int, Any] = {}  # weak references, by the ids of ufuncs


def _of_ufunc(ufunc: np.ufunc) -> Any:
    """The handler of a ufunc made by numba.vectorize; None for any other."""
    f = _of_ufuncs.get(id(ufunc), lambda: None)()
    return None if f is None or f.ufunc is not ufunc else functools.partial(_elementwise, f)


def _method(name: str) -> Any:
    """The replacement for a ufunc method, such as `f.reduce`, of a numba.vectorize function."""

    @unobserved
    def called(f: Any, *args: Any, **kwargs: Any) -> Any:
        _of_ufuncs[id(f.ufunc)] = weakref.ref(f)
        return getattr(f.ufunc, name)(*args, **kwargs)

    return called


def _loop(f: Any, args: Sequence[Any]) -> tuple[np.dtype, ...]:
    """The dtypes of the arguments and the result. numba compiles for them if needed."""
    given = tuple(dtype_of(x) for x in args) + (None,)
    try:
        return f.ufunc.resolve_dtypes(given)
    except TypeError:
        if f._frozen:
            raise
        f._compile_for_args(*[np.zeros(1, x)[0] for x in given[:-1]])
        return f.ufunc.resolve_dtypes(given)


def _of_elements(python: Any) -> Any:
    """The function of elements, called with NumPy scalars, so that a division by 0 is no error."""

    def called(*xs: Any) -> Any:
        return python(*[strong(x) if has_traced(x) else np.asarray(x)[()] for x in xs])

    return called


def _with_dtype(x: Any, dtype: np.dtype) -> Any:
    """An argument converted as numba does."""
    if not isinstance(x, (Tracer, np.ndarray)):
        return dtype.type(x)
    x = strong(x) if isinstance(x, Tracer) else x
    return x if x.dtype == dtype else x.astype(dtype)


@unobserved
def _by_rows(f: Any, *args: Any, **kwargs: Any) -> Any:
    """A call of a function of numba.guvectorize."""
    return by_rows(_within, not _following.now, f, *args, **kwargs)


@unobserved
def _by_neighbours(f: Any, *args: Any, **kwargs: Any) -> Any:
    """A call of a function of numba.stencil."""
    return by_neighbours(_within, not _following.now, f, *args, **kwargs)


def _leave_the_compiler_alone() -> None:
    """While numba compiles, names are the original ones, since it knows functions by identity, and
    none of the hundred thousand functions that it calls is followed."""
    events = importlib.import_module("numba.core.event")
    around: list[Any] = []  # contexts, since numba compiles what it calls, in one thread at a time

    class Compiling(events.Listener):  # type: ignore[name-defined]
        def on_start(self, event: Any) -> None:
            swapping.pause()
            around.append(aside())
            around[-1].__enter__()

        def on_end(self, event: Any) -> None:
            if around:  # else it began before it was listened to
                around.pop().__exit__(None, None, None)
            swapping.go_on()
            note_compiled(**event.data)

    events.register("numba:compile", Compiling())


def _declare() -> None:
    _leave_the_compiler_alone()
    kinds = {
        importlib.import_module(f"numba.{module}").__dict__[name]: by
        for module, name, by in (
            ("core.registry", "CPUDispatcher", _function),
            ("np.ufunc.dufunc", "DUFunc", _elementwise),
            ("np.ufunc.gufunc", "GUFunc", _by_rows),
            ("stencils.stencil", "StencilFunc", _by_neighbours),
        )
    }
    methods = {name: _method(name) for name in ("reduce", "accumulate", "outer", "reduceat")}
    for answer in (*kinds.values(), *methods.values()):
        answer.notes = tuple(kinds)  # functions among the arguments are recorded at the call
    for kind, by in kinds.items():
        declare_calls(kind, by, when=_is_followed)
        if by is _elementwise:
            for name, method in methods.items():
                declare(kind, name, method, when=_is_followed)
    OTHERS.append(_of_ufunc)


def _declare_containers() -> None:
    """Typed lists and dicts are plain ones here: numba provides the types of their items."""
    typed_ones = importlib.import_module("numba.typed")
    rows: tuple[tuple[Any, str, Any], ...] = (
        (typed_ones, "List", list),
        (typed_ones, "Dict", dict),
        (typed_ones.List, "empty_list", lambda *types, **options: []),
        (typed_ones.Dict, "empty", lambda *types, **options: {}),
    )
    for module, name, made in rows:
        by = functools.partial(_made, made)
        declare(module, name, by, when=lambda args: _following.now)


def _made(made: Any, *args: Any, **kwargs: Any) -> Any:
    return made(*args, **kwargs)


def declare_all() -> None:
    declare_late("numba", _declare)
    declare_late("numba.typed", _declare_containers)
