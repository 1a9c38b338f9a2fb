"""Calls of SciPy's functions with plain arguments: each is one step, whose code isn't followed.

The result depends on the arguments, so these are all that is read: numbers, arrays by their
contents, objects by all of their contents. SciPy's Fortran routines and tables aren't part of the
user's program. There are two exceptions, which are noticed: random draws, and functions of the
user's that SciPy calls, which are followed as everywhere.
"""

from __future__ import annotations

import functools
import os
import sys
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import CodeType, FrameType
from typing import Any

import numpy as np

from tapegrad.core.installed import file_of_function, is_installed
from tapegrad.core.named import own_attribute
from tapegrad.core.tables import is_pandas_class, is_pandas_file, is_pandas_object
from tapegrad.observe.activations.run_record import RunRecord
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.guards.queried import is_date
from tapegrad.observe.guards.uses import Then, both
from tapegrad.observe.objects import inspection, randomness
from tapegrad.observe.objects.files import is_read
from tapegrad.observe.objects.naming import Key, name_of
from tapegrad.observe.objects.progress_bars import is_bars, shown
from tapegrad.observe.objects.purity import (
    CONTAINERS,
    INERT,
    is_extensions,
    is_inert,
    is_inside,
    is_librarys_code,
    is_own,
    is_pure,
    is_pythons_class,
    is_schema,
    is_scipys,
    is_scipys_module,
    is_users_file,
    module_of,
)
from tapegrad.observe.objects.settings import note_settings
from tapegrad.observe.program.source import SCIPY
from tapegrad.observe.sides.effects import Stopped
from tapegrad.primitives.base import Value

MAX_SEARCH = 2000  # maximal number of objects that are searched for one call


FOLLOWED = object()


def opaque(o: RunRecord, f: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The recorder of a call that is about to be made, if it is a SciPy call with plain arguments;
    else `FOLLOWED`."""
    kind: Any = type(f)
    if kind is types.FunctionType and is_bars(f.__code__.co_filename):
        return shown(o, f, args, kwargs)
    values = [*args, *kwargs.values()]
    reached = _reached(f, values)
    if reached is None:
        if kind is types.FunctionType and is_pandas(f.__code__):
            note_settings(o.reads, "pandas")  # before the function changes some temporarily
        return FOLLOWED
    if is_asked_anew(f):
        return _asked(o, f, values)
    if type(getattr(kind, "__call__", None)) is types.FunctionType:  # noqa: B004
        o.lookups.attribute(f, "__call__")
        values.append(f)
    if o.effects is not None and o.apart is not None and not _are_arrays(values):
        raise Stopped
    library = "scipy" if is_scipys_own(f) else "pandas"
    return _noted(o, o.running, [x for x in values if not _is_librarys(x)], reached, library)


def _asked(o: RunRecord, f: Any, values: Sequence[Any]) -> Then | None:
    """Record a call of a C function of an installed package, which each call of the derivative
    repeats."""
    if o.effects is not None:
        o.effects.count += 1
    if is_compiled(f) and o.reads.place(f) is None:  # compiled in this trace
        _note_names(o, f, set())
    objects = [x for x in values if any(map(is_extensions, type(x).__mro__))]
    for x in objects:
        o.reads.pin(x)
    given = [x for x in values if not any(x is y for y in objects)]
    note, word = o.taken(given, whole=True), name_of(f)
    o.questions.last = None
    return both(note, lambda result: o.questions.note(word))


def is_compiled(f: Any) -> bool:
    """Whether this is a function compiled by numba."""
    return str(type(f).__module__).startswith("numba.") and _python_of(f) is not None


def _python_of(f: Any) -> Any:
    return getattr(getattr(f, "_dispatcher", f), "py_func", None)


def _note_names(o: RunRecord, f: Any, seen: set[int]) -> None:
    """Record the names used by compiled code: it holds their values at compilation."""
    function = _python_of(f) if is_compiled(f) else f
    if type(function) is not types.FunctionType or id(function) in seen:
        return
    seen.add(id(function))
    code, held = function.__code__, []
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        o.cell(cell, name, function)
        held += [x.cell_contents for x in (cell,) if x != types.CellType()]
    for name in names_in(code):
        if name in function.__globals__:
            o.name(function.__globals__, name)
            held.append(function.__globals__[name])
    for x in held:
        if is_compiled(x) or type(x) is types.FunctionType:
            _note_names(o, x, seen)
        elif not isinstance(x, types.ModuleType):
            o.read_all(x)


def names_in(code: CodeType) -> Iterator[str]:
    """The global names and attributes that code looks up, including functions in it."""
    yield from code.co_names
    for x in code.co_consts:
        if isinstance(x, CodeType):
            yield from names_in(x)


def entered(o: RunRecord, frame: FrameType, above: Any) -> bool:
    """Record that a frame begins. Returns whether it runs a pandas function with plain arguments,
    which isn't followed. Python calls such functions for operators, attributes and items, too."""
    a = getattr(above, "__self__", None)
    if a is None or o.apart is not None or not is_pandas(frame.f_code):
        return False
    values = [*frame.f_locals.values()]
    reached = generators_in(values)
    if reached is None:
        return False
    a.then = both(a.then, _noted(o, a, values, reached, "pandas"))
    return True


def is_pandas(code: CodeType) -> bool:
    """Whether code is pandas', except its input and output."""
    return is_pandas_file(code.co_filename) and f"{os.sep}pandas{os.sep}io{os.sep}" not in (
        code.co_filename
    )


@functools.lru_cache(maxsize=1024)
def is_librarys(kind: Any) -> bool:
    """Whether a class is SciPy's or pandas'."""
    return is_scipys(kind) or (is_pandas_class(kind) and module_of(kind) != "")


def is_opaque(f: Any, values: Sequence[Any]) -> bool:
    """Whether this is a call of SciPy's with plain arguments."""
    return _reached(f, values) is not None


def _reached(f: Any, values: Sequence[Any]) -> list[Any] | None:
    """The generators that such a call may draw from; None for all other calls. C functions of
    installed packages read the number of a traced value by a conversion, which is guarded or
    refused."""
    if is_compiled(f):
        return generators_in(values)
    if not (is_scipys_own(f) or _is_pandas_in_c(f)):
        owner = _in_c(f)
        if owner is None or is_date(f):
            return None
        values = [x for x in values if not isinstance(x, Value)]
    return generators_in(values if type(f) is types.FunctionType else [f, *values])


def _is_pandas_in_c(f: Any) -> bool:
    """Whether this is a pandas class in Python whose objects are created in C."""
    return isinstance(f, type) and is_librarys(f) and not is_pythons_class(f)


def is_scipys_own(f: Any) -> bool:
    """Whether a callable is SciPy's, in Python or in C."""
    kind: Any = type(f)
    if kind is types.FunctionType:
        return _is_pythons(f)
    return is_scipys(f) if isinstance(f, type) else _is_scipys_in_c(f, kind)


# ---- SciPy's functions


def _is_pythons(f: types.FunctionType) -> bool:
    """Whether a function's code is SciPy's: in one of its files, or generated by it."""
    name = str(f.__globals__.get("__name__"))
    if not is_scipys_module(name) or not f.__code__.co_filename.startswith((SCIPY, "<")):
        return False
    return vars(sys.modules.get(name, types)) is f.__globals__


def _is_scipys_in_c(f: Any, kind: Any) -> bool:
    if kind.__name__ == "fortran" and kind.__module__ == "builtins":  # LAPACK, for instance
        return True
    if kind is types.MethodType:
        return is_scipys_own(f.__func__)
    if type(getattr(kind, "__call__", None)) is types.FunctionType:  # noqa: B004
        return is_scipys(kind)
    held = own_attribute(f, "__self__")
    if held is not None and not isinstance(held, types.ModuleType):
        return is_scipys_object(held)
    if isinstance(f, types.MethodDescriptorType):
        return is_scipys(f.__objclass__)
    return is_scipys_module(own_attribute(f, "__module__"))


def is_scipys_object(x: Any) -> bool:
    """Whether an object's class is SciPy's."""
    kind: Any = type(x)
    return is_scipys(kind)


def is_asked_anew(f: Any) -> bool:
    """Whether this is an unknown C function of an installed package, or a function compiled by
    numba. It may do anything, so each call of the derivative repeats its calls."""
    if is_compiled(f):
        return True
    owner = None if is_scipys_own(f) else _in_c(f)
    return owner is not None and not (is_pandas_class(owner) or is_date(f))


def _in_c(f: Any) -> Any:
    """The function or class that tells which installed package a C function belongs to; None if it
    belongs to none."""
    kind: Any = type(f)
    if kind is types.FunctionType:
        return None
    if kind is types.MethodType:
        f = f.__func__
    held = own_attribute(f, "__self__")
    owner = own_attribute(f, "__objclass__", kind)
    if callable(f) and is_extensions(f):
        owner = f
    elif held is not None and not isinstance(held, types.ModuleType):  # the class that has it
        holder = held if isinstance(held, type) else type(held)
        owner = next((c for c in holder.__mro__ if f.__name__ in vars(c)), holder)
    return owner if is_extensions(owner) and not is_schema(owner) else None


# ---- notes


def draws_of(o: RunRecord, generators: Sequence[Any]) -> Callable[[], None]:
    """A function that records the draws of a call from these generators, once it has returned."""
    states = [(g, randomness.state_of(g)) for g in generators]

    def note() -> None:
        for generator, state in states:
            if not randomness.same(state, randomness.state_of(generator)):
                o.states.setdefault(id(generator), (generator, state))
                o.draws(generator)

    return note


def _noted(
    o: RunRecord, a: Any, values: Sequence[Any], reached: Sequence[Any], library: str
) -> Then | None:
    if o.effects is not None and not _are_arrays(values):
        o.effects.count += 1
    note_settings(o.reads, library)
    note_draws = draws_of(o, (*global_generators(), *reached))
    o.drawn_from = {id(g) for g in reached}
    note = o.held_by(values)
    o.drawn_from = set()
    a.is_opaque = True

    def then(result: Any) -> None:
        a.is_opaque = False
        note_draws()

    return both(note, then)


def remembers(a: Any, x: Any, key: Any, value: Any) -> bool:
    """Record that a cached property stores its value, if no traced value is part of it. Then it
    makes no difference whether it is stored already. Returns whether it was recorded."""
    if a.frame.f_code is not functools.cached_property.__get__.__code__:
        return False
    if a.o.reads.place(x) is None or generators_in([value], packages=True) is None:
        return False
    kept = a.o.reads.remembered
    kept[id(x), ("item", Key(key))] = kept[id(a.frame.f_locals["instance"]), ("attr", key)] = value
    return True


# ---- reachable objects


def generators_in(
    values: Iterable[Any],
    most: int = MAX_SEARCH,
    packages: bool = False,
    users: Callable[[Any], list[Any] | None] | None = None,
) -> list[Any] | None:
    """The random generators that can be reached from these values. None if a traced value or code
    of the user's can be, or more than `most` objects. Functions of installed `packages` may be
    reachable if that is set. `users` returns the parts of the user's code, if that may be
    reached."""
    todo: list[Any] = list(values)
    seen: set[int] = set()
    found: list[Any] = []
    while todo:
        x = todo.pop()
        kind: Any = type(x)
        if kind is str and x in ("now", "today"):  # pandas converts it to a time
            return None
        if isinstance(x, Value) and not dispatch.is_made(x):
            return None
        if INERT[kind] or id(x) in seen:
            continue
        seen.add(id(x))
        if len(seen) > most:
            return None
        if users is not None and (parts := users(x)) is not None:
            todo += parts
        elif isinstance(x, np.ndarray):
            if x.dtype.hasobject:
                todo += x.ravel().tolist()
        elif kind in CONTAINERS:
            todo += inspection.values(x)
        elif isinstance(x, randomness.kinds()):
            found.append(x)
        elif isinstance(x, (np.dtype, range, slice)):
            continue
        elif isinstance(x, type):
            if not (_is_of_others(x) or (packages and is_inside(x))):
                return None
        elif kind is types.FunctionType:
            if not (
                _is_pythons(x)
                or is_pandas(x.__code__)
                or is_own(x.__code__)
                or is_librarys_code(x.__code__)
                or (packages and is_installed(file_of_function(x)))
            ):
                return None
            todo += [c.cell_contents for c in x.__closure__ or ()]
        elif kind is types.MethodType:
            todo.append(x.__self__)
            its: Any = type(x.__self__)
            if not (_is_made_of_text(x.__func__) and is_scipys(its)):
                todo.append(x.__func__)
        elif isinstance(x, weakref.ref):
            todo.append(x())
        elif kind is functools.partial:
            todo += [x.func, *x.args, *x.keywords.values()]
        elif is_pandas_object(x) or type(x).__module__.startswith("pandas._libs."):
            continue
        elif is_librarys(kind) or module_of(kind).startswith("numpy.") or _is_inside(kind):
            todo += [*(inspection.own_names(x) or {}).values(), *inspection.in_slots(x)]
            todo += inspection.values(x) if inspection.base_of(kind) is not None else []
        elif kind in _IN_C and _in_c(x) is not None:
            held = own_attribute(x, "__self__")
            todo += [] if isinstance(held, (type, types.ModuleType)) else [held]
        elif not _is_known(x, kind):
            return None
    return found


_IN_C = (types.BuiltinFunctionType, types.MethodDescriptorType)


def _is_inside(kind: Any) -> bool:
    """Whether a class belongs to an installed package."""
    file = getattr(sys.modules.get(module_of(kind)), "__file__", None)
    return (file is not None and not is_users_file(file)) or is_inside(kind)


def _is_known(x: Any, kind: Any) -> bool:
    """Whether an object written in C holds no object of the user's."""
    if is_pythons_class(kind) and kind is not types.ModuleType:
        return False
    known = is_inert(kind) or kind is types.ModuleType or is_pure(x)
    known = known or _is_scipys_in_c(x, kind) or is_scipys_object(x) or is_read(x)
    return known or is_extensions(kind) or (callable(x) and is_extensions(x))


def _is_made_of_text(f: Any) -> bool:
    """Whether a function was generated from a text without the name of its module, as methods of
    distributions are."""
    made = type(f) is types.FunctionType and f.__code__.co_filename.startswith("<")
    return made and "__name__" not in f.__globals__


def _is_of_others(kind: Any) -> bool:
    """Whether a class is Python's, NumPy's, SciPy's or pandas', or an installed package's in C."""
    root = str(kind.__module__).partition(".")[0]
    known = root in ("numpy", "pandas") or (root in sys.stdlib_module_names and module_of(kind))
    return bool(known) or is_librarys(kind) or is_extensions(kind)


def _are_arrays(values: Iterable[Any]) -> bool:
    return all(INERT[type(x)] or isinstance(x, np.ndarray) for x in values)


def global_generators() -> list[Any]:
    """The global random generators."""
    python = getattr(sys.modules.get("random"), "_inst", None)
    return [g for g in (randomness.numpys(), python) if g is not None]


def _is_librarys(x: Any) -> bool:
    """Whether an object is an attribute of a module of SciPy's, such as a distribution: then its
    methods are functions of SciPy."""
    module = str(getattr(type(x), "__module__", ""))
    return is_scipys_module(module) and any(v is x for v in vars(sys.modules[module]).values())
