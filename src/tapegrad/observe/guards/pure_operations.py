"""Operators, look-ups and calls that are known to change no existing object.

Functions written in Python are followed, so their changes are seen when they happen.
"""

from __future__ import annotations

import _abc  # type: ignore[import-not-found]
import builtins
import cmath
import collections
import functools
import gc
import math
import operator
import sys
import types
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tapegrad.core.named import own_attribute
from tapegrad.observe.guards.lookups import FIXED
from tapegrad.observe.objects import inspection, randomness
from tapegrad.observe.objects.purity import (
    CONTAINERS,
    DISPATCHER,
    INERT,
    MAPPINGS,
    METHODS_OF,
    PLAIN_TYPES,
    is_extensions,
    is_file,
    is_inert,
    is_numpys_module,
    is_own,
    is_pure,
    is_pythons_class,
    is_self_contained,
    is_silent,
    module_of,
)
from tapegrad.observe.program.frames import COUNTED
from tapegrad.primitives.base import Value

ALONE = 2 + COUNTED  # references by its holder, the local name, and the argument of `getrefcount`


# ---- values


def is_known(x: Any) -> bool:
    """Whether operators on this value change nothing, and run no code that isn't followed."""
    kind: Any = type(x)
    return INERT[kind] or isinstance(x, np.ndarray) or kind in _PLAIN or is_pythons_class(kind)


_PLAIN = frozenset(
    [list, tuple, dict, set, frozenset, range, slice, type, types.ModuleType, types.FunctionType]
    + [types.MethodType, types.BuiltinFunctionType, np.ufunc, DISPATCHER, type(...), np.dtype]
    + [type(NotImplemented), types.CellType, types.CodeType, functools.partial, super]
)


def is_passive(x: Any, depth: int = 0) -> bool:
    """Whether a function of Python's or NumPy's that reads this value changes nothing: it is no
    iterator, which would advance."""
    kind: Any = type(x)
    if INERT[kind]:
        return True
    if kind is slice:
        return all(is_passive(v, depth + 1) for v in (x.start, x.stop, x.step))
    if kind in CONTAINERS and _stands(x):
        values = [*x, *x.values()] if kind in MAPPINGS else x
        return depth < _DEEP and all(is_passive(v, depth + 1) for v in values)
    return _stands(x)


def _stands(x: Any) -> bool:
    """Whether iterating over this value changes nothing: it is no iterator, whatever it holds."""
    kind: Any = type(x)
    if INERT[kind] or isinstance(x, (np.ndarray, type, np.dtype)):
        return True
    if kind in CONTAINERS:
        return kind is not types.MappingProxyType
    return kind in (range, np.ufunc, DISPATCHER, types.FunctionType)


_DEEP = 8
ITERATORS: frozenset[type] = frozenset(
    [type(iter([])), type(iter(())), type(iter({})), type(iter("")), type(iter(range(1)))]
    + [type(iter(np.empty(1))), type(reversed([])), type(iter(collections.deque()))]
    + [type(iter({}.values())), type(iter({}.items())), enumerate, zip, reversed]
)
_THROUGH_TUPLES = type(iter(()))


def is_private(x: Any) -> bool:
    """Whether an iterator is the only user of the iterators that it advances."""
    held: Any
    for held in gc.get_referents(x):
        if type(held) is tuple and type(x) is not _THROUGH_TUPLES:  # of a zip
            inner: Any = [y for y in held if type(y) in ITERATORS]
            # The references are the tuple's, the list's, and the three as above.
            if any(sys.getrefcount(y) > ALONE + 1 or not is_private(y) for y in inner):
                return False
            if not all(type(y) in ITERATORS or _stands(y) for y in held):
                return False
        elif type(held) in ITERATORS:
            if sys.getrefcount(held) > ALONE + 1 or not is_private(held):
                return False
        elif not _stands(held):
            return False
    return True


def has_attributes(x: Any) -> bool:
    """Whether looking up an attribute changes nothing. Methods written in Python are followed."""
    kind = type(x)
    known = INERT[kind] or kind in FIXED or kind in _PLAIN or isinstance(x, np.ndarray)
    known = known or is_pythons_class(kind) or _is_tapegrads(module_of(kind))
    return known or kind in randomness.kinds()


def has_items(x: Any, key: Any) -> bool:
    kind: Any = type(x)
    known = INERT[kind] or kind in (list, tuple, dict, range, collections.deque)
    known = known or isinstance(x, (np.ndarray, tuple))
    known = known or (kind in MAPPINGS and type(key) in (int, str) and key in x)
    users = is_pythons_class(kind) and not isinstance(x, (dict, collections.deque))
    return (known or users) and is_known(key)


# ---- calls


_NAMES = """
    abs all any ascii bin callable chr divmod hash hex isinstance issubclass len max min oct ord pow
    repr round sorted sum
"""
_BUILTINS = frozenset(getattr(builtins, name) for name in _NAMES.split())
_ASKING = frozenset(getattr(_abc, f"_abc_{name}check") for name in ("instance", "subclass"))
_CLASSES = (bool, int, float, complex, str, tuple, list, dict, set, frozenset, range, slice)
_MAKING = (*_CLASSES, collections.deque, super)
_LOOKED_UP = (getattr, hasattr)
_MODULES = (math, cmath)
_SIGNS = """
    abs add and_ eq floordiv ge getitem gt index inv invert le lshift lt matmul mod mul ne neg not_
    or_ pos pow rshift sub truediv truth xor
"""
_OPERATORS = frozenset(getattr(operator, name) for name in _SIGNS.split())
# Methods written in C, by class, that read and return a new object.
_METHODS: dict[type, frozenset[str]] = {
    list: frozenset(["copy", "count", "index", "__len__", "__getitem__"]),
    dict: frozenset(["copy", "get", "items", "keys", "values", "__len__", "__getitem__"]),
    tuple: frozenset(["count", "index", "__new__"]),
    collections.deque: frozenset(["copy", "count", "index", "__len__", "__getitem__"]),
}
_IN_PLACE = "byteswap dump fill itemset partition put resize setfield setflags sort tofile"
_WRITING = frozenset(_IN_PLACE.split())


def changes_nothing(f: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Whether a call changes nothing that existed before it. Python code that it runs is
    followed."""
    kind: Any = type(f)
    values = (*args, *kwargs.values())
    if kind is types.FunctionType:
        if is_silent(f.__code__):
            return False
        if not is_own(f.__code__):
            return True
        if _is_tapegrads(f.__module__):
            tells = getattr(f, "tells", False)  # the trace doesn't call these functions
            return _are_passive([x for x in values if not (tells and callable(x))])
        return is_pure(f) and _reads(kwargs) and _are_passive(values)
    if kind is types.MethodType:
        return changes_nothing(f.__func__, [f.__self__, *args], kwargs)
    if kind is functools.partial:
        return changes_nothing(f.func, [*f.args, *args], {**f.keywords, **kwargs})
    if kind is np.ufunc:
        given = len(args) <= f.nin or all(isinstance(x, Value) for x in args[f.nin :])
        return is_pure(f) and given and _reads(kwargs) and _are_passive(values)
    if kind is DISPATCHER:
        writes = f in _WRITERS and not (args and isinstance(args[0], Value))
        return is_pure(f) and not writes and _reads(kwargs) and _are_passive(values)
    if isinstance(f, type):
        plain = any(f is x for x in _MAKING) or issubclass(f, np.generic)
        if f is enumerate or f is zip or f is reversed:  # later steps are seen when they happen
            return all(is_passive(x) or type(x) in ITERATORS for x in values)
        if not plain and is_pythons_class(f) and type(f) is type:
            return issubclass(f, tuple) or f.__new__ is object.__new__
        return plain and _are_passive(values)
    if _is_tapegrads(module_of(kind)):  # a derivative: its function is followed
        return _are_passive(values)
    if kind is types.BuiltinFunctionType or kind in _UNBOUND:
        return _is_builtin(f, args, values)
    return is_pythons_class(kind) and not is_numpys_module(module_of(kind))  # it is followed


_UNBOUND = (types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType)
_WRITERS = (np.copyto, np.put, np.place, np.putmask, np.put_along_axis, np.fill_diagonal)


def _is_tapegrads(module: Any) -> bool:
    return isinstance(module, str) and module.startswith("tapegrad.")


def _are_passive(values: Iterable[Any]) -> bool:
    return all(is_passive(x) or is_pythons_class(type(x)) for x in values)


def _reads(kwargs: dict[str, Any]) -> bool:
    """Whether results are written to new or traced arrays alone."""
    out = kwargs.get("out")
    return all(x is None or isinstance(x, Value) for x in (out if type(out) is tuple else (out,)))


def _is_builtin(f: Any, args: Sequence[Any], values: Sequence[Any]) -> bool:
    held = own_attribute(f, "__self__")
    if held is None or isinstance(held, types.ModuleType):
        if type(f) in _UNBOUND:
            held, args, values = (args[0], args[1:], values[1:]) if args else (None, (), ())
            return held is not None and _is_reading(held, f.__name__) and _are_passive(values)
        if f in _LOOKED_UP:
            return bool(args) and has_attributes(args[0])
        known = f in _BUILTINS or f in _OPERATORS or held in _MODULES or f in _ASKING
        if not known and is_numpys_module(f.__module__):
            known = is_pure(f) and f not in _WRITERS
        return known and all(is_passive(x) for x in values)
    return _is_reading(held, f.__name__) and _are_passive(values)


def _is_reading(x: Any, name: str) -> bool:
    """Whether this method of an object written in C leaves the object unchanged."""
    kind: Any = type(x)
    if isinstance(x, type):
        return name in ("__new__", "fromkeys") and x in (object, tuple, dict)
    if isinstance(x, (np.ndarray, np.generic)):
        return name not in _WRITING and not name.startswith(("__i", "__set", "__del"))
    if kind is np.ufunc:
        return name in ("reduce", "accumulate", "outer", "reduceat")
    if INERT[kind] or kind in (range, slice):
        return True
    return name in _METHODS.get(kind, ())


# ---- operators


def has_own_operators(x: Any) -> bool:
    """Whether all operators of an object are defined in classes that are followed."""
    followed = is_pythons_class(type(x)) and inspection.base_of(type(x)) is None
    return followed and not isinstance(x, (np.ndarray, Value))


def operator_is_known(kind: type) -> bool:
    """Whether the operators of a class are known, or written in Python."""
    return (
        kind in PLAIN_TYPES
        or kind in CONTAINERS
        or kind in METHODS_OF
        or issubclass(kind, (np.ndarray, np.dtype, Value))
        or (issubclass(kind, np.generic) and not issubclass(kind, np.void))
        or is_inert(kind)
        or (issubclass(kind, tuple) and hasattr(kind, "n_sequence_fields"))  # sys.version_info
        or kind in _OPERATED
        or is_file(kind)
        or is_self_contained(kind)
        or is_pythons_class(kind)
        or module_of(kind).partition(".")[0] == "pandas"  # see `packages/opaque.py`
        or is_extensions(kind)
        or module_of(kind).startswith("tapegrad.")  # holds traced values: made by the run
    )


_OPERATED: tuple[Any, ...] = (
    *(type(np.empty(0).flags), np.nditer, np.flatiter, type(np.dtype), types.UnionType),
    *(type(collections.OrderedDict().values()), type(collections.OrderedDict().keys())),
    type(collections.OrderedDict().items()),
    *(types.BuiltinFunctionType, types.ModuleType, np.dtype, type(object.__init__)),
    *(types.NoneType, types.EllipsisType, types.NotImplementedType),
)
