"""Plain numbers for code that can't take traced ones: C functions, and keys of dicts and sets.

A C function that takes an integer checks its type, and doesn't ask a traced one for its value. So
it gets a plain integer, which is guarded. A function that only stores its arguments, or passes them
to operators and to functions of the user's, gets them unchanged. Keys are plain, too: they need the
hash and equality of plain integers, and a traced one that is stored would outlive the trace.
"""

from __future__ import annotations

import _json
import collections
import functools
import itertools
import operator
import re
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapegrad.core.named import own_attribute
from tapegrad.core.tables import is_pandas_file
from tapegrad.errors import UnsupportedError
from tapegrad.observe.activations.activation import Activation
from tapegrad.observe.activations.run_record import RunRecord
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.objects.naming import name_of
from tapegrad.observe.objects.purity import (
    DISPATCHER,
    PLAIN_TYPES,
    SEQUENCES,
    is_pythons_class,
    module_of,
)
from tapegrad.observe.program import frames
from tapegrad.observe.program.frames import operand_at
from tapegrad.observe.program.source import at_line
from tapegrad.primitives.base import Value

Plain = Callable[[Any], Any]  # the replacement of a value; None if it stays

# ---- functions in C


@functools.lru_cache(maxsize=1024)
def _is_foreign_module(name: str) -> bool:
    root = name.partition(".")[0]
    return root not in sys.stdlib_module_names and root not in ("numpy", "tapegrad")


def is_foreign(f: Any) -> bool:
    """Whether a callable is written in C, and neither Python's nor NumPy's."""
    kind: Any = type(f)
    if kind is types.FunctionType or kind is types.MethodType or isinstance(f, Value):
        return False
    if isinstance(f, type):
        return not f.__flags__ & _MADE_BY_A_CLASS_STATEMENT and _is_foreign_module(module_of(f))
    if kind in BOUND:
        held = f.__self__
        if held is None or isinstance(held, types.ModuleType):
            return _is_foreign_module(f.__module__ or "builtins")
        return _is_foreign_module(module_of(type(held)))
    return type(kind.__call__) is not types.FunctionType and _is_foreign_module(module_of(kind))


_MADE_BY_A_CLASS_STATEMENT = 1 << 9  # Py_TPFLAGS_HEAPTYPE
# Python has two classes of methods written in C; `types` names one of them.
BOUND = (types.BuiltinFunctionType, type(re.compile("").match), types.MethodWrapperType)


def plain_of(f: Any, args: Sequence[Any]) -> Plain | None:
    """The function that makes traced arguments of a call `f(*args)` plain, if C code takes their
    numbers; None if they are passed unchanged."""
    if all(type(x) in PLAIN_TYPES for x in args):
        return None
    if f is hash or type(f) is functools._lru_cache_wrapper:
        return plain_of_key
    if f is _json.make_encoder:
        return _plainly_answered
    if type(f) is _json.make_encoder:
        return functools.partial(_all_within, "json.dumps")
    if f is pow:
        return dispatch.whole if len(args) == 3 else None
    code = own_attribute(f, "__code__")
    if code is not None and is_pandas_file(code.co_filename):  # its arguments are passed on to C
        return dispatch.whole
    keys = keys_of(f)
    if keys is not None or not takes_numbers(f):
        return keys
    if _is_pythons_own(_module(f)):
        return functools.partial(dispatch.plain_number, name_of(f))
    return functools.partial(_all_within, name_of(f)) if dispatch.needs_plain() else dispatch.whole


def takes_numbers(f: Any) -> bool:
    """Whether a callable is written in C, and isn't known to only store its arguments or pass them
    on."""
    kind: Any = type(f)
    if kind is types.FunctionType or isinstance(f, Value) or not callable(f):
        return False
    if kind in (np.ufunc, DISPATCHER, functools.partial, *_CALLED):
        return False
    if isinstance(f, type):
        return _makes_of_numbers(f)
    if kind is types.MethodType:
        return takes_numbers(f.__func__)
    owner = _owner(f)
    if owner is not None:
        if owner in PLAIN_TYPES:
            return not (owner is str and own_attribute(f, "__name__", "") in _TEXTS)
        return not is_pythons_class(owner) and not _holds(module_of(owner))
    if isinstance(f, types.BuiltinFunctionType):
        return not _holds(_module(f))
    if type(kind.__call__) is types.FunctionType or is_pythons_class(kind):
        return False
    return not _holds(module_of(kind))


def called_plainly(f: Any) -> Any:
    """The function `f`, which C code will call, with plain numbers for traced arguments."""
    return functools.partial(_called, f)


def _called(f: Any, *args: Any, **kwargs: Any) -> Any:
    plain = plain_of(f, (*args, *kwargs.values())) or (lambda x: None)
    given = [x if (found := plain(x)) is None else found for x in args]
    named = {n: x if (found := plain(x)) is None else found for n, x in kwargs.items()}
    return f(*given, **named)


_CALLED = tuple(type(f(*"a")) for f in (operator.itemgetter, operator.attrgetter)) + (
    type(operator.methodcaller("a")),
    types.GenericAlias,
)
_TEXTS = ("format", "format_map", "join", "__format__", "__mod__", "__str__", "__repr__")
# They store their arguments, or pass them on: to operators, to functions, to another thread.
_NAMES = """
    builtins types contextvars _contextvars threading gc sys atexit copyreg typing weakref
    _abc _asyncio _bisect _collections _functools _heapq _operator _queue _thread _typing
    _warnings _weakref collections functools operator queue _random random
"""
_HOLDING = frozenset(_NAMES.split())
_OF_ITERTOOLS = (itertools.repeat, itertools.accumulate, itertools.zip_longest, itertools.count)
_OF_NUMBERS = (np.datetime64, np.timedelta64, collections.deque)


def _owner(f: Any) -> Any:
    """The class of a method written in C; None for other callables."""
    found = own_attribute(f, "__objclass__")
    if found is not None:
        return found
    held = own_attribute(f, "__self__")
    if held is None or isinstance(held, types.ModuleType):
        return None
    return held if isinstance(held, type) else type(held)


def _module(f: Any) -> str:
    """The name of the module that this, or its class, belongs to."""
    owner = f if isinstance(f, type) else _owner(f)
    if owner is not None:
        return module_of(owner)
    return str(own_attribute(f, "__module__") or module_of(type(f)))


def _holds(module: str) -> bool:
    root = module.partition(".")[0]
    return module in _HOLDING or root in ("numpy", "tapegrad", "numba", "llvmlite")


def _makes_of_numbers(kind: type) -> bool:
    """Whether a class creates its instances from numbers, in C."""
    if kind in _OF_NUMBERS:
        return True
    if kind in _OF_ITERTOOLS or issubclass(kind, (Value, BaseException, np.generic)):
        return False
    if is_pythons_class(kind) or type(type(kind).__call__) is types.FunctionType:
        return False
    made = (kind.__init__, kind.__new__)
    return not any(type(x) is types.FunctionType for x in made) and not _holds(module_of(kind))


def _is_pythons_own(module: str) -> bool:
    root = module.partition(".")[0]
    return root in sys.stdlib_module_names and root not in ("math", "cmath")


def _all_within(by: str, x: Any) -> Any:
    """Nested containers with plain numbers."""
    within = functools.partial(_or_itself, functools.partial(_all_within, by))
    if type(x) in (list, tuple):
        return type(x)(map(within, x))
    if type(x) is dict:
        return {k: within(y) for k, y in x.items()}
    return dispatch.plain_number(by, x)


def _plainly_answered(f: Any) -> Any:
    """A function of the program's, with plain numbers in its results, for C code."""
    if type(f) not in (types.FunctionType, types.MethodType):
        return None
    return lambda x: _or_itself(functools.partial(_all_within, "json.dumps"), f(x))


def _or_itself(plain: Plain, x: Any) -> Any:
    found = plain(x)
    return x if found is None else found


# ---- keys


def plain_of_key(x: Any) -> Any:
    """The plain number of a traced one, also inside tuples; None for other objects.

    From Python 3.14 on, a tuple keeps its hash. That of a traced number is right for one
    instruction only (`tracing/tracers/hashing.py`), so a copy of the tuple is the key there."""
    if type(x) is tuple or (isinstance(x, tuple) and hasattr(x, "_fields")):
        found = [plain_of_key(y) for y in x]
        is_kept = _HASHES_ARE_KEPT and any(isinstance(y, Value) for y in x)
        if all(y is None for y in found) and not is_kept:
            return None
        both = [x if y is None else y for x, y in zip(x, found, strict=True)]
        return tuple(both) if type(x) is tuple else type(x)(*both)
    return dispatch.key(x)


def put_key(a: Activation, k: int, held: Any = None, method: str = "") -> None:
    """Replace the operand number `k` by a plain key, if the class of `held` looks keys up by this
    method in C."""
    x = a.top(k)
    if type(x) in PLAIN_TYPES:
        return
    is_plain = isinstance(x, int) and not isinstance(x, Value)
    if is_plain and isinstance(held, SEQUENCES):  # a member of an enumeration
        frames.replace(operand_at(a.stack, k), int.__index__(x))
    if not isinstance(x, (Value, tuple)):
        return
    if held is not None:
        looks_up = getattr(type(held), method, None)
        if not isinstance(held, _KEYED) or type(looks_up) is types.FunctionType:
            return
    found = plain_of_key(x)
    if found is not None:
        frames.replace(operand_at(a.stack, k), found)


_HASHES_ARE_KEPT = sys.version_info >= (3, 14)
_KEYED = (dict, set, frozenset, types.MappingProxyType)
_BY_KEY = {"get", "setdefault", "pop", "add", "discard", "remove", "move_to_end"}
_BY_KEY |= {"__getitem__", "__setitem__", "__delitem__", "__contains__"}
_MADE_OF_PAIRS = (dict, collections.OrderedDict, collections.defaultdict)


def keys_of(f: Any) -> Plain | None:
    """The function that makes keys plain for a method of a dict or set, or a constructor from
    elements or pairs."""
    if f is set or f is frozenset or own_attribute(f, "__name__", "") == "_count_elements":
        return _elements
    if any(f is x for x in _MADE_OF_PAIRS):
        return _pairs
    owner = _owner(f)
    if owner is None or not issubclass(owner, _KEYED) or f.__name__ in ("__init__", "__new__"):
        return None
    if f.__name__ in _BY_KEY:
        return plain_of_key
    return _pairs if f.__name__ == "update" and issubclass(owner, dict) else _elements


def place_of_keys(f: Any) -> int | None:
    """The position of the argument that is a key or has keys, for methods and constructors of
    dicts, whose other arguments are values. None for other callables, for which all count."""
    if any(f is x for x in _MADE_OF_PAIRS):
        return int(f is collections.defaultdict)  # after the default factory
    owner = _owner(f)
    if owner is None or not issubclass(owner, (dict, types.MappingProxyType)):
        return None
    return int(type(f) in (types.MethodDescriptorType, types.WrapperDescriptorType))  # behind it


def _elements(x: Any) -> Any:
    """The elements of an argument as plain keys."""
    return _each(functools.partial(_or_itself, plain_of_key), x)


def _pairs(x: Any) -> Any:
    """Pairs of a key and a value, with plain keys."""
    return _each(_pair, x)


def _pair(x: Any) -> Any:
    both = type(x) in (list, tuple) and len(x) == 2
    return (_or_itself(plain_of_key, x[0]), x[1]) if both else x


def _each(plain: Plain, x: Any) -> Any:
    if type(x) in (list, tuple):
        return list(map(plain, x))
    rows = isinstance(x, Value) and bool(getattr(x, "shape", None))
    return map(plain, x) if rows or hasattr(type(x), "__next__") else None


def check_range(o: RunRecord, kind: Any, x: Any) -> None:
    """Check the value of a traced integer for a NumPy integer type, in which it would wrap around
    silently."""
    value, held = int(x._read()[1]), np.iinfo(kind)
    if not held.min <= value <= held.max:
        o.refuse(
            UnsupportedError(
                f"np.{kind.__name__} is made of {value}, which it doesn't hold{at_line()}. Use "
                "x.astype, or keep the integer as it is"
            )
        )
