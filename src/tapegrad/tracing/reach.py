"""What a function reaches without being passed it: the code that may run, and the names it says.

Python tells nobody which attribute was read while a function ran. But a name has to stand in the
code to be read, so all names of all code that may run are an upper bound. `Reach` finds that code:
from a function to the functions among its closure, globals and defaults; from an object to those
methods and properties of its class whose names occur; and on from there until nothing new comes.
Code of installed packages is not looked into, but for the package that the function itself is from.
What passes a call on, as a bound method, `functools.partial` or `np.vectorize`, is looked through.
"""

from __future__ import annotations

import builtins
import collections
import contextlib
import contextvars
import dataclasses
import dis
import functools
import inspect
import operator
import os
import reprlib
import sys
import types
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tapegrad.tracing.outside import read_by
from tapegrad.tracing.source import is_users_path

PLAIN = (bool, int, float, complex, str, bytes, type(None))
ABSENT = object()
_MAKERS = (dataclasses.__file__, reprlib.__file__)
# Whoever says one of these may read attributes whose names stand nowhere.
_REFLECTION = {
    "getattr",
    "hasattr",
    "__getattribute__",
    "vars",
    "__dict__",
    "attrgetter",
    "methodcaller",
    "eval",
    "exec",
}
_METHODS = (types.FunctionType, staticmethod, classmethod)
_PROBES = {"getattr", "hasattr", "AttributeError", "Exception", "vars", "__dict__"}
_CONTAINERS = (dict, list, tuple, set, frozenset, types.MappingProxyType)
_PLAIN_CONTAINERS = {*_CONTAINERS, collections.deque, collections.OrderedDict}
_PLAIN_CONTAINERS |= {collections.defaultdict, collections.Counter}
# Python's own containers that hold what they hold in an attribute
_HOLDERS = (
    collections.UserDict,
    collections.UserList,
    collections.ChainMap,
    contextlib.nullcontext,
    contextlib.closing,
)


class Reach:
    """The user's code that may run when `roots` are called or used.

    `codes` are the code objects, `names` all names in them. `all_names` says that some are
    computed, so that every attribute counts as read. `outside` names a clock or file that is read.
    """

    def __init__(self, roots: Sequence[Any]) -> None:
        self.codes: dict[types.CodeType, None] = {}
        self.names: set[str] = set()
        self.homes = [home for f in roots if (home := _home(_file_of(f)))]
        self.outside = ""
        self._seen: dict[int, Any] = {}  # with the objects, so that no id is given away meanwhile
        self.functions: list[types.FunctionType] = []
        self.objects: list[Any] = []  # and classes and modules; their attributes are read by name
        # Under which names the code has an object; "" if it has it in other ways.
        self._names_of: dict[int, set[str]] = {}
        self._waiting: list[tuple[str, Any]] = [("", f) for f in roots]
        known = -1
        while known != len(self._seen):  # a new name may make an attribute of an old object read
            known = len(self._seen)
            while self._waiting:
                self._visit(*self._waiting.pop())
            for x in self.objects:
                self._waiting += self.attributes(x)

    @property
    def all_names(self) -> bool:
        return not self.names.isdisjoint(_REFLECTION)

    @property
    def probes(self) -> bool:
        """Whether some code may ask for attributes that aren't there."""
        return not self.names.isdisjoint(_PROBES)

    def attributes(self, x: Any) -> Iterator[tuple[str, Any]]:
        """The attributes of an object, class or module that the code may read, not computed.

        Of a user's class, methods that Python itself calls (`__call__`, `__getitem__`) count too.
        """
        own = set(getattr(x, "__dict__", ()))
        names = self.names
        if isinstance(x, _HOLDERS):
            names = names | own
        if self.all_names and not isinstance(x, types.ModuleType):
            names = names | own | set(_slots(x))
        if not isinstance(x, types.ModuleType):
            names = names | self._special(x)
        for name in sorted(names):
            found = inspect.getattr_static(x, name, ABSENT)
            if found is ABSENT and name in own:  # of a threading.local
                found = x.__dict__[name]
            if isinstance(found, types.MemberDescriptorType):  # of __slots__
                found = getattr(x, name, ABSENT) if not isinstance(x, type) else ABSENT
            if found is not ABSENT:
                yield name, found

    def _special(self, x: Any) -> set[str]:
        """The methods with double underscores that the user's class of an object defines; of a
        class, those too that make an object."""
        making = () if isinstance(x, type) else ("__init__", "__new__", "__post_init__")
        return {
            name
            for base in (x if isinstance(x, type) else type(x)).__mro__
            if self.is_users_class(base)
            for name, value in vars(base).items()
            if name.startswith("__") and isinstance(value, _METHODS)
            if name not in making
            if not (_is_generated(base, value) and self._is_taken_apart(x))
        }

    def _is_taken_apart(self, x: Any) -> bool:
        """Whether the code does nothing with an object but read its attributes and call its
        methods: then it isn't compared, hashed or shown, and neither does anybody else."""
        if isinstance(x, type) or self.all_names:
            return False
        methods = [f for c in type(x).__mro__ for f in vars(c).values() if _is_own(c, f)]
        names = self._names_of.get(id(x), {""}) | {
            f.__code__.co_varnames[0] for f in methods if f.__code__.co_argcount
        }
        return "" not in names and all(names.isdisjoint(_bare(code)) for code in self.codes)

    def is_open(self, x: Any) -> bool:
        """Whether the attributes of an object, class or module are looked at."""
        if isinstance(x, types.ModuleType):
            return is_users_file(getattr(x, "__file__", None), self.homes)
        if isinstance(x, type):
            return self.is_users_class(x)
        own = type(x).__module__.startswith("tapegrad.") and not self.is_users_class(type(x))
        if own:
            return False
        has_any = hasattr(x, "__dict__") or any(True for _ in _slots(x))
        return has_any or self.is_users_class(type(x))

    def classes(self, x: Any) -> list[tuple[str, type]]:
        """The user's classes besides an object's own that may answer for it: the metaclass of a
        class, and those behind it whose methods `super()` may call; each with its place."""
        found = []
        place, kind = ("{}", x) if isinstance(x, type) else ("type({})", type(x))
        if kind is x and self.is_users_class(type(x)):
            found.append(("type({})", type(x)))
        if "super" in self.names:
            order = enumerate(kind.__mro__)
            behind = [(k, c) for k, c in order if k and self.is_users_class(c)]
            found += [(f"{place}.__mro__[{k}]", c) for k, c in behind]
        return found

    def is_users_code(self, code: types.CodeType) -> bool:
        return is_users_file(code.co_filename, self.homes)

    def is_users_class(self, cls: type) -> bool:
        module = sys.modules.get(cls.__module__)
        # What is typed at a prompt belongs to a module without a file, or to none.
        if module is None or cls.__module__ == "__main__":
            return True
        return is_users_file(getattr(module, "__file__", None), self.homes)

    def _visit(self, name: str, x: Any) -> None:
        if type(x) in PLAIN or isinstance(x, (np.ndarray, np.generic)):
            return
        self._names_of.setdefault(id(x), set()).add(name)
        if id(x) in self._seen:
            return
        self._seen[id(x)] = x
        if isinstance(x, types.FunctionType):
            self._visit_function(x)
        elif isinstance(x, types.MethodType):
            itself = x.__func__.__code__.co_varnames[0] if hasattr(x.__func__, "__code__") else ""
            self._waiting += [("", x.__func__), (itself, x.__self__)]
        elif isinstance(x, (operator.attrgetter, operator.methodcaller)):
            self.names.add("attrgetter")
        elif isinstance(x, (staticmethod, classmethod)):
            self._wait(x.__func__)
        elif isinstance(x, property):
            self._wait(x.fget)
        elif isinstance(x, _CONTAINERS):
            self._wait(*(x.values() if hasattr(x, "values") else x))
            if is_users_container(x) and self.is_open(x):
                self.objects.append(x)
        else:
            self._wait(*(value for _, value in through("x", x)), wrapped_by(x))
            if self.is_open(x):
                self.objects.append(x)
                if not isinstance(x, types.ModuleType):
                    self._wait(*(c for _, c in self.classes(x)))

    def _wait(self, *values: Any) -> None:
        self._waiting += [("", x) for x in values]

    def _visit_function(self, f: types.FunctionType) -> None:
        reached = list(reached_by("f", f))
        if not self.is_users_code(f.__code__):
            # A decorator of some package holds the user's function in its closure.
            held = [value for *_, value in reached] if f.__closure__ else []
            self._wait(*(v for v in held if holds_functions(v)))
            return
        self.functions.append(f)
        codes = nested(f.__code__)
        self.outside = self.outside or read_by(f, codes)
        for code in codes:
            self.codes[code] = None
            self.names.update(code.co_names)
            if _matches_attributes(code):
                self.names.add("getattr")
        self._waiting += [(name.rstrip("="), value) for _, name, _, value in reached]
        self._wait(*vars(f).values())


def _is_generated(cls: type, f: Any) -> bool:
    """Whether `dataclass` has made this method: it reads or compares the fields, and no more."""
    made = isinstance(f, types.FunctionType) and f.__code__.co_filename in ("<string>", *_MAKERS)
    return made and "__dataclass_fields__" in vars(cls)


def _is_own(cls: type, f: Any) -> bool:
    return isinstance(f, types.FunctionType) and not _is_generated(cls, f)


@functools.lru_cache(maxsize=4096)
def _bare(code: types.CodeType) -> frozenset[str]:
    """The names of values that a piece of code loads for more than to read an attribute."""
    found: set[str] = set()
    last: tuple[str, ...] = ()
    for i in dis.get_instructions(code):
        if i.opname not in ("LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR"):
            found.update(last)
        last = ()
        if i.opname.startswith("LOAD_") and isinstance(i.argval, (str, tuple)):
            *before, said = i.argval if isinstance(i.argval, tuple) else (i.argval,)
            found.update(before)  # of two loads in one
            last = (said,)
    return frozenset(found)


def through(place: str, x: Any) -> list[tuple[str, Any]]:
    """What a call or look-up of an object of Python's or NumPy's goes on to: places and values."""
    if isinstance(x, types.MethodType):
        return [(f"{place}.__func__", x.__func__), (f"{place}.__self__", x.__self__)]
    if isinstance(x, (types.BuiltinMethodType, types.MethodWrapperType)):
        held = x.__self__
        known = held is None or isinstance(held, types.ModuleType)
        return [] if known else [(f"{place}.__self__", held)]
    if isinstance(x, functools.partial):
        found = [(f"{place}.func", x.func), (f"{place}.args", x.args)]
        return [*found, (f"{place}.keywords", x.keywords)]
    if isinstance(x, (functools.cached_property, functools.partialmethod)):
        return [(f"{place}.func", x.func)]
    if isinstance(x, functools.singledispatchmethod):
        return [(f"{place}.dispatcher.dispatch", x.dispatcher.dispatch)]
    if isinstance(x, np.vectorize):
        return [(f"{place}.pyfunc", x.pyfunc)]
    if isinstance(x, weakref.ref):
        return [(f"{place}()", x())]
    if isinstance(x, contextvars.ContextVar):
        return [(f"in_context({place})", in_context(x))]
    return []


def in_context(x: contextvars.ContextVar[Any]) -> Any:
    """The value of a context variable, None if it has none."""
    try:
        return x.get()
    except LookupError:
        return None


def is_users_container(x: Any) -> bool:
    """Whether a container is of a class with attributes or methods of its own."""
    return isinstance(x, (*_CONTAINERS, collections.deque)) and type(x) not in _PLAIN_CONTAINERS


def holds_functions(x: Any) -> bool:
    """Whether this is a function, or a table of functions, such as functools.singledispatch has."""
    found = list(x.values()) if isinstance(x, dict) else [x]
    return any(isinstance(f, types.FunctionType) for f in found)


def wrapped_by(x: Any) -> Any:
    """The function that a decorated one stands for, a derivative for instance; or None."""
    own = type(x).__module__.startswith("tapegrad.")
    return (
        getattr(x, "__wrapped__", None) if own else inspect.getattr_static(x, "__wrapped__", None)
    )


def _file_of(f: Any) -> str:
    """The file that a function, method or callable object is defined in."""
    while isinstance(f, functools.partial):
        f = f.func
    code = getattr(f, "__code__", getattr(type(f).__call__, "__code__", None))
    return code.co_filename if isinstance(code, types.CodeType) else ""


def nested(code: types.CodeType) -> list[types.CodeType]:
    """A function's code and that of the functions, classes and comprehensions inside it."""
    inside = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return [code, *[c for k in inside for c in nested(k)]]


def reached_by(
    place: str, f: types.FunctionType
) -> Iterator[tuple[str, str, tuple[Any, ...], Any]]:
    """What a function's closure, globals and defaults hold: for each the place, the name that the
    code has for it, a key that is the same where two functions share the place, and the value."""
    names = f.__code__.co_freevars
    for k, (name, cell) in enumerate(zip(names, f.__closure__ or (), strict=True)):
        try:
            yield f"{place}.__closure__[{k}].cell_contents", name, (id(cell),), cell.cell_contents
        except ValueError:
            continue  # not bound yet
    for name in sorted(_global_names(f.__code__)):
        if name in f.__globals__:
            key = (id(f.__globals__), name)
            yield f"{place}.__globals__[{name!r}]", name, key, f.__globals__[name]
        elif not hasattr(builtins, name):  # `except NameError` may follow
            key = (id(f.__globals__), name)
            yield f"{place}.__globals__.get({name!r})", name, key, None
    for name in sorted(_imported(f.__code__)):
        module = sys.modules.get(name)
        if module is None or is_users_file(getattr(module, "__file__", None)):
            yield f"modules.get({name!r})", name, ("module", name), module
    defaults = f.__defaults__ or ()
    last = f.__code__.co_varnames[f.__code__.co_argcount - len(defaults) :]
    for k, (name, value) in enumerate(zip(last, defaults, strict=False)):
        yield f"{place}.__defaults__[{k}]", f"{name}=", (id(f), k), value
    for name, value in (f.__kwdefaults__ or {}).items():
        yield f"{place}.__kwdefaults__[{name!r}]", f"{name}=", (id(f), name), value


@functools.lru_cache(maxsize=4096)
def _global_names(code: types.CodeType) -> frozenset[str]:
    return frozenset(
        i.argval
        for c in nested(code)
        for i in dis.get_instructions(c)
        if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    )


@functools.lru_cache(maxsize=4096)
def _imported(code: types.CodeType) -> frozenset[str]:
    """The modules that a function imports when it runs."""
    code_of = (i for c in nested(code) for i in dis.get_instructions(c))
    return frozenset(i.argval for i in code_of if i.opname == "IMPORT_NAME")


@functools.lru_cache(maxsize=4096)
def _matches_attributes(code: types.CodeType) -> bool:
    """Whether a `case Class(name=...)` reads attributes, whose names stand in a constant."""
    before: Any = None
    for i in dis.get_instructions(code):
        if i.opname == "MATCH_CLASS" and (i.arg or before):
            return True
        before = i.argval
    return False


def _slots(x: Any) -> Iterator[str]:
    for cls in type(x).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        yield from (slots,) if isinstance(slots, str) else slots


def is_users_file(file: str | None, homes: Sequence[str] = ()) -> bool:
    """Whether a file is part of the user's program, and not of Python or an installed package.

    `homes` are installed packages that are the user's after all.
    """
    if file is None or not is_users_path(file):
        return False
    if file.startswith(tuple(homes)):
        return True
    return "-packages" + os.sep not in file and not file.startswith(_STDLIB)


_STDLIB = os.path.dirname(os.__file__) + os.sep


def _home(file: str) -> str:
    """The folder of the installed package that a file is in; empty if it is in none."""
    parts = file.split(os.sep)
    for k, part in enumerate(parts[:-1]):
        if part.endswith("-packages"):
            return os.sep.join(parts[: k + 2])
    return ""
