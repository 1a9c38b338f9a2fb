"""NumPy's and SciPy's own Python functions, run on traced arrays.

Much of both is Python code, which calls other functions. It runs on tracers unchanged if the
functions that make arrays in it (`asarray`, `empty`, ...) keep tracers traced. So a function's code
is run with other globals: replacements for some of NumPy's functions, copies of other Python
functions with replaced globals, and, in SciPy's code, the registered replacements of its functions.

A traced value that decides anything in such code is guarded, as in the user's code; an operation
that isn't possible on a tracer is an error. Captured arrays are traced before they are passed in,
so that computations on them are recorded.
"""

from __future__ import annotations

import builtins
import contextlib
import sys
from collections.abc import Callable, Iterator
from functools import cache, cached_property, partial, wraps
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    MemberDescriptorType,
    ModuleType,
)
from typing import Any

import numpy as np

from tapegrad.core.trees import is_array
from tapegrad.observe.answers.answers import as_called, original_of, row_of
from tapegrad.observe.observer import following, note_root, observed
from tapegrad.tracing.frontend.operands.memory import copy_of, scalar
from tapegrad.tracing.frontend.operands.operands import (
    as_operand,
    as_tracer,
    has_tracer,
    written_into_plain,
)
from tapegrad.tracing.frontend.operands.parameters import running
from tapegrad.tracing.frontend.shapes.making import from_contents, is_traceable, uniform
from tapegrad.tracing.recording.trace import current_trace, refusing
from tapegrad.tracing.tracers.subclass_tracers import SubclassTracer, bare, users
from tapegrad.tracing.tracers.tracer import Tracer

# ---- replacements of functions that make arrays


def _asarray(a: Any, dtype: Any = None, order: Any = None, **kwargs: Any) -> Any:
    if not has_tracer(a):
        out, trace = np.asarray(a, dtype, order, **kwargs), current_trace()
        if trace is None or out is a or not out.ndim or out.dtype.kind not in "fc":
            return out
        return from_contents(trace, out)
    x = bare(a) if isinstance(a, SubclassTracer) else as_operand(a)
    always = kwargs.get("copy") in (True, np._CopyMode.ALWAYS)
    x = copy_of(x) if x._is_scalar() or (always and x is a) else x
    return x if dtype is None else x.astype(dtype, copy=False)


def _asanyarray(a: Any, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
    if isinstance(a, SubclassTracer):
        return a if dtype is None else a.astype(dtype, copy=False)
    return _asarray(a, dtype, *args, **kwargs)


def _array(a: Any, dtype: Any = None, *, copy: Any = True, ndmin: int = 0, **kwargs: Any) -> Any:
    if not has_tracer(a):
        return np.array(a, dtype, copy=copy, ndmin=ndmin, **kwargs)
    subok = kwargs.get("subok", False)
    x = _asanyarray(a, dtype) if subok else _asarray(a, dtype)
    if copy is False and x is not a:
        np.array(0.0, np.float32, copy=False)  # NumPy's own error
    always = copy is True or copy is np._CopyMode.ALWAYS
    x = np.copy(x, subok=subok) if always and (x is a or isinstance(a, SubclassTracer)) else x
    return np.reshape(x, (1,) * (ndmin - x.ndim) + x.shape) if ndmin > x.ndim else x


def _contiguous(a: Any, dtype: Any = None) -> Any:
    """The replacement for user code, which copies when NumPy does."""
    row = row_of(np.ascontiguousarray)
    return (np.ascontiguousarray if row is None else row.by)(a, dtype)


def _filled(function: Callable[..., Any], value: int) -> Callable[..., Any]:
    """A function whose result is a new array, to which traced values may be written."""

    def made(shape: Any, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
        out, trace = function(shape, dtype), current_trace()
        if trace is None or not is_traceable(out.dtype):
            return out
        return uniform(trace, out.shape, value, out.dtype)

    return made


def _linspace(*args: Any, **kwargs: Any) -> Any:
    """np.linspace, traced, since traced indices may read it."""
    out, trace = np.linspace(*args, **kwargs), current_trace()
    return out if trace is None or type(out) is not np.ndarray else from_contents(trace, out)


def _of_arrays(function: Any) -> Callable[..., Any]:
    """A function of arrays, which accepts lists with traced values, too."""
    return lambda *xs: function(*[as_operand(x) if has_tracer(x) else x for x in xs])


class _Converter:
    """NumPy's `_array_converter`: converts arguments to arrays, and results to scalars."""

    def __init__(self, *given: Any) -> None:
        self._given = given
        self.scalar_input = tuple(np.ndim(x) == 0 for x in given)

    def as_arrays(self, **kwargs: Any) -> Any:
        return tuple(map(_asanyarray if kwargs.get("subok", True) else _asarray, self._given))

    def __iter__(self) -> Any:
        return iter(self.as_arrays())

    def __getitem__(self, k: int) -> Any:
        return self.as_arrays()[k]

    def result_type(self, extra_dtype: Any = None, ensure_inexact: bool = False) -> Any:
        kinds = [*self._given, *([] if extra_dtype is None else [extra_dtype])]
        return np.result_type(*kinds, *([0.0] if ensure_inexact else []))

    def wrap(self, x: Any, to_scalar: Any = None) -> Any:
        to_scalar = all(self.scalar_input) if to_scalar is None else to_scalar
        of: Any = next((y for y in self._given if isinstance(y, SubclassTracer)), None)
        if of is None or (to_scalar and not x.ndim) or type(x) is type(of):
            return scalar(x) if to_scalar else x
        return users(type(of).__array_wrap__, of)(of, x, None, to_scalar)


def _makearray(a: Any) -> Any:
    """NumPy's `_makearray`: an array, and the function that wraps results in its class."""
    return _asarray(a), lambda x: x


def _private(module: str, name: str) -> Any:
    """A private object of NumPy. If this version lacks it, borrowed code refuses tracers."""
    return getattr(sys.modules.get(f"numpy.{module}"), name, name)


_OURS: dict[Any, Any] = {
    np.asarray: _asarray,
    np.asanyarray: _asanyarray,
    np.array: _array,
    np.ascontiguousarray: _contiguous,
    np.zeros: _filled(np.zeros, 0),
    np.empty: _filled(np.zeros, 0),
    np.ones: _filled(np.ones, 1),
    np.linspace: _linspace,
    **{f: _of_arrays(f) for f in (np.atleast_1d, np.atleast_2d, np.atleast_3d, np.isfinite)},
    np.eye: np.eye,  # nothing is written to the results
    np.tri: np.tri,
    _private("_core._multiarray_umath", "_array_converter"): _Converter,
    _private("linalg._linalg", "_makearray"): _makearray,
    _private("lib._arraysetops_impl", "_unique_hash"): lambda *args, **kwargs: NotImplemented,
    # NumPy's code may call a function's implementation, which doesn't dispatch
    **{
        getattr(f, "_implementation", None): f
        for f in (np.concatenate, np.dot, np.where, np.copyto, np.result_type, np.empty_like)
    },
}


_CALLED = {FunctionType, BuiltinFunctionType, type(np.linspace), np.ufunc, type}


# ---- code with replaced globals


class _Module:
    """A module of NumPy's or SciPy's, as borrowed code sees it."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return _ours(getattr(self._module, name))


module = cache(_Module)


class _Object:
    """An object of the library, whose methods are replaced as in user code."""

    def __init__(self, theirs: Any) -> None:
        self._theirs = theirs

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return type(self._theirs)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._theirs, name)
        return as_called(found) if callable(found) else found

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return as_called(self._theirs.__call__)(*args, **kwargs)


_OBJECTS: set[type] = set()  # classes whose objects are wrapped so


def know_objects(kind: type) -> None:
    """Register a class whose objects are wrapped in borrowed code."""
    _OBJECTS.add(kind)


def _is_object(x: Any) -> bool:
    return not _OBJECTS.isdisjoint(type(x).__mro__)


class _Answered(type):
    """The metaclass of a NumPy scalar type whose calls are replaced as in user code."""

    def __call__(cls, *args: Any) -> Any:
        return getattr(row_of(np.float64), "by", np.float64)(*args)

    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, np.float64)


class _Float64(np.float64, metaclass=_Answered):  # as a dtype it is float64
    pass


class _Converting(_Module):
    """NumPy, for code that calls `np.float64`."""

    float64 = _Float64


def know(ours: dict[Any, Any]) -> None:
    """Register replacements for functions that borrowed code calls."""
    _OURS.update(ours)
    _CALLED.update(map(type, ours))


def _ours(x: Any, fresh: dict[Any, Any] | None = None) -> Any:
    """The object that a global name refers to in borrowed code, from the original object; see
    `_rebound` for `fresh`."""
    x = original_of(x)
    if isinstance(x, ModuleType):
        return module(x) if x.__name__.startswith((*_LIBRARIES, "math", "cmath")) else x
    if type(x) in _TABLES:
        return _table(x, fresh)
    if _is_object(x):
        return _Object(x)
    if (type(x) in _CALLED or isinstance(x, type)) and x in _OURS:
        return _OURS[x]
    if isinstance(x, type):
        return _reborn(x, fresh) if x in _CLASSES else x
    row = row_of(x)
    if row is not None and row.looked_up:
        return row.by
    if row is not None and getattr(row.module, "__name__", "").startswith(_ANSWERED):
        return row.by
    # A function that dispatches on its arguments reaches the front end by itself.
    return _rebound(x, fresh) if isinstance(x, FunctionType) and not implementation_of(x) else x


def _table(x: Any, fresh: dict[Any, Any] | None, depth: int = 2) -> Any:
    """The same for a table of functions, whose entries may be lists of functions. If no entry
    changes, the result is the table itself, since other code may write to it."""
    parts = list(x.values() if type(x) is dict else x)
    found = [
        _ours(part, fresh)
        if type(part) not in _TABLES
        else (_table(part, fresh, depth - 1) if depth else part)
        for part in parts
    ]
    if all(a is b for a, b in zip(found, parts, strict=True)):
        return x
    return dict(zip(x, found, strict=True)) if type(x) is dict else type(x)(found)


_TABLES = (dict, list, tuple)


def implementation_of(function: Any) -> Any:
    """The Python code of a NumPy function that dispatches on its arguments; None if it has none."""
    own = getattr(function, "_implementation", None)
    return own if isinstance(own, FunctionType) else None


def _names(code: CodeType) -> Iterator[str]:
    """The global names in a code object and those nested in it."""
    yield from code.co_names
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from _names(part)


_LIBRARIES = ("numpy", "scipy")
_ANSWERED = (
    "scipy",
    "math",
    "numpy.lib.stride_tricks",
)  # modules whose registered replacements borrowed code uses
_OF_MODULES = ("__name__", "__package__", "__spec__")  # for imports
_CLASSES: set[type] = set()  # classes of the library whose methods are rebound, too
_CONVERTING: set[FunctionType] = set()  # functions in which `float` is only called
_made: dict[Any, Any] = {}  # rebound functions and classes, by the originals
_remade: set[type] = set()  # the rebound classes


def _import(name: str, *args: Any, **kwargs: Any) -> Any:
    """An import within borrowed code, with the replacements of its globals."""
    return _ours(builtins.__import__(name, *args, **kwargs))


_BUILTINS = {**vars(builtins), "__import__": _import}


def _rebound(f: FunctionType, fresh: dict[Any, Any] | None = None) -> FunctionType:
    """A library function with replaced globals; any other function unchanged.

    `fresh` holds the functions under construction, which may refer to each other. All are published
    together when they are complete, so no thread or interrupt sees an unfinished one.
    """
    outermost, fresh = fresh is None, {} if fresh is None else fresh
    known = _made.get(f) or fresh.get(f)
    if known is not None or (f.__module__ or "").partition(".")[0] not in _LIBRARIES:
        return known or f
    theirs = f.__globals__
    names = {"__builtins__": _BUILTINS, **{name: theirs.get(name) for name in _OF_MODULES}}
    cells = f.__closure__ and tuple(CellType() for _ in f.__closure__)
    made = FunctionType(f.__code__, names, f.__name__, f.__defaults__, cells)
    made.__kwdefaults__ = f.__kwdefaults__
    fresh[f] = made
    if f in _CONVERTING:
        names["float"] = getattr(row_of(float), "by", float)
    names.update({k: _ours(theirs[k], fresh) for k in set(_names(f.__code__)) & theirs.keys()})
    if f in _CONVERTING and "np" in names:
        names["np"] = _Converting(np)
    for cell, own in zip(cells or (), f.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # an empty cell
            cell.cell_contents = _ours(own.cell_contents, fresh)
    if outermost:
        _made.update(fresh)
    return made


def _reborn(kind: type, fresh: dict[Any, Any] | None = None) -> Any:
    """A class with rebound methods."""
    outermost, fresh = fresh is None, {} if fresh is None else fresh
    known = _made.get(kind) or fresh.get(kind)
    if known is not None:
        return known
    bases = tuple(_ours(base, fresh) for base in kind.__bases__)
    if kind in fresh:  # a base's method makes objects of this class
        if outermost:
            _made.update(fresh)
        return fresh[kind]
    left = {"__dict__", "__weakref__", "__slots__", *_slots(kind)}  # a dict replaces the slots
    own = {name: x for name, x in vars(kind).items() if name not in left}
    made = fresh[kind] = type(kind)(kind.__name__, bases, own)
    for name, x in own.items():
        if isinstance(x, property):
            parts = (x.fget, x.fset, x.fdel)
            setattr(made, name, property(*[part and _ours(part, fresh) for part in parts]))
        elif isinstance(x, (classmethod, staticmethod)):
            setattr(made, name, type(x)(_ours(x.__func__, fresh)))
        elif isinstance(x, cached_property):
            cached = cached_property(_ours(x.func, fresh))
            cached.__set_name__(made, name)
            setattr(made, name, cached)
        elif isinstance(x, FunctionType):
            setattr(made, name, _ours(x, fresh))
    _remade.add(made)
    if outermost:
        _made.update(fresh)
    return made


def _slots(kind: type) -> list[str]:
    """The names of a class's own slots."""
    return [name for name, x in vars(kind).items() if isinstance(x, MemberDescriptorType)]


def know_classes(*kinds: type) -> None:
    """Register classes of the library, written in Python, whose methods borrowed code may run.
    Their slots become entries of the instances' dicts."""
    _CLASSES.update(kinds)


def of_class(kind: type) -> type:
    """The rebound class, after it is registered."""
    know_classes(kind, *[x for x in kind.__mro__ if _is_of_library(x)])
    return _reborn(kind)


def _is_of_library(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in _LIBRARIES


def know_converting(*functions: FunctionType) -> None:
    """Register library functions in which `float` and `np.float64` are only called, so that a
    replacement that keeps values traced is right. In others, the name may be a dtype or an argument
    of `isinstance`."""
    _CONVERTING.update(functions)


def is_instance(x: Any) -> bool:
    """Whether `x` is an instance of a rebound class, made of traced arrays."""
    return type(x) in _remade


def _instance(x: Any) -> Any:
    """A copy of a user's object, with rebound methods. What they store in it isn't visible in the
    user's object. Its whole state is guarded."""
    here = following.observer
    note = None if here is None else here.taken([x], whole=True)
    if note is not None:
        note(None)
    made: Any = object.__new__(_reborn(type(x)))
    names = [name for kind in type(x).__mro__ for name in _slots(kind) if hasattr(x, name)]
    made.__dict__.update({name: getattr(x, name) for name in names}, **x.__dict__)
    return made


def borrowed(function: Any, own: Any = None) -> Callable[..., Any]:
    """A function on traced arrays that runs the `own` Python code of a NumPy or SciPy function; if
    `own` is a class, it makes objects of the rebound class."""
    own = own or implementation_of(function)

    @wraps(own, updated=())
    def run(*args: Any, **kwargs: Any) -> Any:
        given = (*args, *kwargs.values())
        plain: list[Tracer] = []
        named = {name: _taken(x, given, plain) for name, x in kwargs.items()}
        before, running.numpys = running.numpys, True
        try:
            ours = _reborn(own) if isinstance(own, type) else _rebound(own)
            found = ours(*[_taken(x, given, plain) for x in args], **named)
        finally:
            running.numpys = before
        if any(x._owner._version for x in plain):
            raise refusing(written_into_plain("output="))
        return found

    return run


@cache
def borrowed_method(kind: type, name: str) -> Callable[..., Any]:
    """NumPy's own code of a method, for traced arrays."""
    return _rebound(getattr(kind, name))


def _taken(x: Any, given: Any, plain: list[Tracer]) -> Any:
    """An argument for borrowed code: arrays traced (listed in `plain`), user functions observed."""
    if isinstance(x, Tracer):
        return x
    if type(x) in (list, tuple):
        return type(x)(_taken(part, given, plain) for part in x)
    if is_array(x):
        plain.append(as_tracer(x, *given))
        return plain[-1]
    if type(x) in _CLASSES:
        return _instance(x)
    if _is_object(x):
        return _Object(x)
    if not callable(x) or _is_numpys(x):
        return x
    row = None if isinstance(x, type) else row_of(x)
    return partial(followed, x) if row is None else row.by


def _is_numpys(x: Any) -> bool:
    """Whether a callable is NumPy's own, or a builtin type. It reads no user state."""
    home = getattr(x, "__module__", None) or ""
    own = home.partition(".")[0] == "numpy" or (isinstance(x, type) and home == "builtins")
    return own and not hasattr(x, "__self__")


def followed(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A call of a user's function by borrowed code. It is observed, whatever its package."""
    note_root(function)
    before, running.numpys = running.numpys, False
    try:
        with observed():
            return as_called(function)(*args, **kwargs)
    finally:
        running.numpys = before
