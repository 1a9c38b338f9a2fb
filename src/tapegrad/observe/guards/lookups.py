"""Attribute look-up as Python does it, and its reads: in the class, and in the object itself."""

from __future__ import annotations

import collections
import functools
import inspect
import sys
import threading
import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapegrad.core.tables import is_pandas_object
from tapegrad.core.values import stood_for
from tapegrad.observe.guards.locations import ABSENT, Location
from tapegrad.observe.guards.reads import Reads
from tapegrad.observe.objects.inspection import found_in_class, looks_up_itself, own_names
from tapegrad.observe.objects.naming import Key, attribute, names_of
from tapegrad.observe.objects.progress_bars import is_bar, tells_time
from tapegrad.observe.objects.purity import (
    CONTAINERS,
    PLAIN_TYPES,
    is_changeable,
    is_inside,
    is_pythons_class,
    is_users_file,
    module_of,
)
from tapegrad.primitives.base import Value

# The layout of an array, and views of its memory. Other attributes read elements.
_LAYOUT = {"shape", "ndim", "size", "dtype", "strides", "itemsize", "nbytes"}
_EQUAL = (np.dtype, range)
_VIEWS = {"T", "mT"}
_METHODS = (staticmethod, classmethod)
# Their objects have only methods, or attributes that are equal for equal objects.
FIXED = (PLAIN_TYPES | CONTAINERS | {np.ufunc, np.dtype, range}) - {
    collections.deque,
    collections.defaultdict,
}


def _nothing(x: Any) -> None:
    """Record nothing: the default, and the state after the run."""


def asked_kind(x: Any) -> None:
    """Record that the program queries a value's type. If the trace has numbers that may be Python's
    or NumPy's, and this may be one or depend on one, it is repeated without them."""
    trace = getattr(x, "_trace", None) if isinstance(x, Value) else None
    if trace is None or not trace.mixed or x._aval.shape:
        return
    if x._either or (x._aval.dtype == np.bool_ and not x._weak):
        trace.reconsidered = True


class Lookups:
    """Records the reads of attribute look-ups."""

    def __init__(self, reads: Reads, home: str) -> None:
        self.reads = reads
        self.home = home
        self.by_user = True  # whether the user's code looks up
        self.made: Callable[[Any], None] = _nothing  # records all of a container
        self.table: Callable[[Any], None] = _nothing  # records all of an object of pandas
        self._users: dict[type, bool] = {}
        self._equipped: dict[int, type] = {}  # guarded classes, and those that the run made
        self._making: tuple[tuple[Any, ...], set[int]] = (), set()
        reads.placed = self.placed

    def attribute(self, x: Any, name: str, plainly: bool = False) -> None:
        """Record that `x.name` is about to be looked up; if `plainly`, as `object` does it, without
        the class's own `__getattribute__`."""
        kind = type(x)
        if isinstance(x, Value):
            kinds = (float, int)[: x._either]  # type: ignore[attr-defined]
            if name == "__class__" or not all(hasattr(k, name) for k in kinds or (float,)):
                asked_kind(x)
            self.of_subclass(stood_for(kind), name)
            return
        if kind in FIXED or isinstance(x, np.generic):
            return
        if kind is types.ModuleType:
            self._of_module(x, name)
        elif isinstance(x, type):
            self._of_class(x, name)
        elif isinstance(x, np.ndarray):
            self._of_array(x, name)
        elif kind is super:
            self._of_super(x, name)
        elif not plainly and looks_up_itself(kind):  # the method is followed
            for method in ("__getattribute__", "__getattr__"):
                if self.is_users_class(kind):
                    self.in_class(kind, method, _of_type(kind, method))
        else:
            self._of_object(x, name)

    def _of_module(self, module: types.ModuleType, name: str) -> None:
        held = vars(module)
        users = is_users_file(getattr(module, "__file__", None), self.home)
        if users or "__file__" not in held:
            place = self.reads.place(module)
            if place is not None:
                self.reads.type_of(place)  # a module's class may be set
        if name == "__dict__" and (users or self.by_user):
            place = self.reads.place(module) or self.reads.constant(module, module.__name__)
            self.reads.read(place, ("attr", name), names_of(module), held, place.word)
            return
        if not self.by_user and not (name in held and self.is_data(module, held[name])):
            return
        reads = self.reads
        if name not in held:
            if module is np:  # NumPy loads it on demand
                return
            place = reads.place(module) or reads.constant(module, module.__name__)
            reads.absent(place, name)
            name = "__getattr__"
        if name in held and users:
            place = reads.place(module) or reads.constant(module, module.__name__)
            reads.read(place, ("attr", name), attribute(name), held[name], name)
        elif name in held:  # a look-up in its dict is faster
            place = reads.place(held) or reads.constant(held, module.__name__)
            reads.read(place, ("item", Key(name)), f"{{}}[{reads.key(name)}]", held[name], name)

    def is_data(self, module: Any, x: Any) -> bool:
        """Whether a module's attribute may change where an installed package reads it. Functions,
        classes and modules don't change, unless they are the user's."""
        if is_users_file(getattr(module, "__file__", None), self.home):
            return True
        if isinstance(x, types.FunctionType):
            return is_users_file(x.__code__.co_filename, self.home)
        if isinstance(x, type) and is_changeable(x) and module_of(x) != "__main__":
            return self.is_users_class(x)
        return not isinstance(x, (type, types.ModuleType, types.FunctionType, np.ufunc)) and (
            not isinstance(x, types.BuiltinFunctionType)
        )

    def _of_array(self, x: np.ndarray, name: str) -> None:
        kind = type(x)
        if kind is not np.ndarray:
            found = _of_type(kind, name)
            if found is ABSENT or found is not _of_type(np.ndarray, name):
                self._of_object(x, name)
        for place in self.reads.arrays_of(x):
            if name == "base":
                self.reads.read(place, ("attr", name), "{}.base", x.base, place.word)
            elif name == "flags":
                self.reads.read(place, "flags", "{}.flags.num", x.flags.num, place.word)
            elif name in _LAYOUT:
                self.reads.layout(place)
            elif name not in _VIEWS and not callable(getattr(np.ndarray, name, None)):
                self.reads.contents(place)

    def of_subclass(self, kind: Any, name: str) -> None:
        """Record a look-up in the ndarray subclass of a traced array, if it has one."""
        if kind is None or not self.is_users_class(kind):
            return
        found = _of_type(kind, name)
        if found is not _of_type(np.ndarray, name):
            self.in_class(kind, name, found)

    def _of_super(self, x: Any, name: str) -> None:
        held = x.__self__
        kind = held if isinstance(held, type) and x.__self_class__ is held else type(held)
        mro = kind.__mro__
        start = mro.index(x.__thisclass__) + 1 if x.__thisclass__ in mro else 0
        for cls in mro[start:]:
            cls = vars(cls).get("_subclass", None) or cls  # the original of a tracer's class
            if name in vars(cls):
                if self.is_users_class(cls):
                    self.in_class(cls, name, vars(cls)[name])
                return
            if self.is_users_class(cls):
                self.reads.absent(self._class_place(cls), name)

    def _of_class(self, x: type, name: str) -> None:
        if not self.is_users_class(x):
            return
        meta = type(x)
        of_meta = inspect.getattr_static(meta, name, ABSENT) if meta is not type else ABSENT
        if of_meta is not ABSENT and self.is_users_class(meta):
            self.in_class(meta, name, of_meta)
        if name == "__dict__":
            self.whole_object(x)
            return
        if name in ("__mro__", "__name__", "__module__", "__bases__", "__qualname__"):
            value = getattr(x, name)
            self.reads.read(self._class_place(x), ("attr", name), attribute(name), value, name)
            if isinstance(value, tuple):
                self.made(value)
            return
        found = _of_type(x, name)
        if found is not ABSENT or not hasattr(type(of_meta), "__set__"):
            self.in_class(x, name, found)

    def _of_object(self, x: Any, name: str) -> None:
        reads, kind = self.reads, type(x)
        if looks_up_itself(kind) and not _goes_on_plainly(kind):
            if place := reads.place(x):
                reads.use_once(place.word)
            return
        if is_pandas_object(x) and not (self.by_user and name in x.__dict__):
            self.table(x)
            return
        if is_bar(kind) and tells_time(x, name):
            self.reads.use_once(name)
        place = reads.place(x)
        found = _of_type(kind, name)
        users = self.is_users_class(kind)
        if users and found is ABSENT and _looks_up_as(kind, object):
            getter = _of_type(kind, "__getattr__")
            if getter is not ABSENT:
                self.in_class(kind, "__getattr__", getter)
            if getter in (dict.__getitem__, dict.get) and place is not None:
                self._key(place, name)
        own = own_names(x) if kind.__dictoffset__ != 0 else None
        if name == "__dict__":
            if place is not None and own is not None:
                reads.read(place, ("attr", name), names_of(x), own, place.word)
            return
        is_data = found is not ABSENT and hasattr(type(found), "__set__")
        if is_data and not (isinstance(found, property) or is_pythons_class(type(found))):
            if place is not None:  # slots, fields of named tuples and of structures in C
                self._evaluated(place, name)
        elif not is_data and own is not None and name in own:
            if place is not None:
                reads.read(place, ("attr", name), attribute(name, x), own[name], name)
            elif isinstance(x, threading.Thread) and name == "_name" and x.name[:7] == "Thread-":
                reads.use_once("the name of a thread")  # it contains a counter
        elif found is not ABSENT:
            if users:
                self.in_class(kind, name, found)
            if place is not None and own is not None and not is_data:
                reads.absent(place, name, names_of(x))
            followed = hasattr(type(found), "__get__") and is_pythons_class(type(found))
            # A library's methods don't change, whatever their kind.
            followed = followed or callable(found) or isinstance(found, _METHODS)
            followed = followed or type(getattr(found, "fget", None)) is types.FunctionType
            if place is not None and not users and not followed:
                self._evaluated(place, name)
        elif place is not None:
            if own is not None:
                reads.absent(place, name, names_of(x))
            if users:
                self.in_class(kind, name, ABSENT)
            elif not (looks_up_itself(kind) or _looks_up_as(kind, object)):
                self._evaluated(place, name)  # of a threading.local, for instance

    def _key(self, place: Location, name: str) -> None:
        """Record an attribute look-up that reads a dict's key."""
        if name in place.x:
            text = f"{{}}[{self.reads.key(name)}]"
            self.reads.read(place, ("item", Key(name)), text, place.x[name], name)
        else:
            self.reads.absent(place, name, "{}")

    def _evaluated(self, place: Location, name: str) -> None:
        """Record an attribute that C code looks up: look it up once more, to see the value."""
        value = _plainly(place.x, name)
        if value is ABSENT:
            self.reads.read(
                place, ("attr", name), f"not hasattr({{}}, {self.reads.key(name)})", True, name
            )
            return
        if isinstance(value, (types.BuiltinMethodType, types.MethodWrapperType)):
            return  # a new object at each look-up
        anew = type(value) not in PLAIN_TYPES and _plainly(place.x, name) is not value
        if anew and type(value) is np.ndarray and not value.dtype.hasobject:
            self.reads.same_numbers(
                attribute(name, place.x).replace("{}", self.reads.named(place)), value, name
            )
            return
        self.reads.read(place, ("attr", name), attribute(name, place.x), value, name)
        if anew:
            # It is a new object each time, so later reads of it can't be guarded.
            if type(value) in CONTAINERS:
                self.made(value)
            elif not isinstance(value, (np.generic, *_EQUAL)):
                self.reads.use_once(name)

    # ---- classes

    def is_users_class(self, kind: type) -> bool:
        """Whether a class is the user's, so that its attributes may change."""
        known = False if self.is_made_here(kind) else self._users.get(kind)
        if known is None:
            name = module_of(kind)
            file = getattr(sys.modules.get(name), "__file__", None)
            if not name or name == "__main__":  # code typed at a prompt has no file
                known = is_changeable(kind) and not is_inside(kind)
            elif file is None:
                known = is_changeable(kind) and name not in sys.builtin_module_names
            else:
                known = is_users_file(file, self.home)
            self._users[kind] = known
        return known

    def _class_place(self, kind: type) -> Location:
        return self.reads.place(kind) or self.reads.constant(kind, kind.__name__)

    def in_class(self, kind: type, name: str, x: Any) -> None:
        """Record that looking up `name` in a user's class and its bases returns `x`."""
        reads, place = self.reads, self._class_place(kind)
        at = ("class", name)
        simple = _looks_up_as(type(kind), type)
        if x is ABSENT:
            absent = self.reads._value(ABSENT)
            text = f"static({{}}, {self.reads.key(name)}, {absent}) is {absent}"
            reads.read(place, at, text, True, name)
        elif isinstance(x, types.FunctionType) and simple:
            reads.read(place, at, attribute(name), x, name)
        elif isinstance(x, staticmethod) and simple:
            reads.read(place, at, attribute(name), x.__func__, name)
        elif isinstance(x, classmethod) and simple:
            reads.read(place, at, attribute(name) + ".__func__", x.__func__, name)
        elif hasattr(type(x), "__get__"):
            reads.read(place, at, f"static({{}}, {self.reads.key(name)})", x, name)
            self._inside_descriptor(x, name)
        else:
            reads.read(
                place,
                at,
                f"static({{}}, {self.reads.key(name)})" if not simple else attribute(name),
                x,
                name,
            )

    def _inside_descriptor(self, x: Any, name: str) -> None:
        """Register the functions that a descriptor calls."""
        held: list[tuple[str, Any]] = []
        if isinstance(x, property):
            held = [("{}.fget", x.fget), ("{}.fset", x.fset)]
            if x.fget is not None and not isinstance(x.fget, types.FunctionType):
                self.reads.use_once(name)  # written in C: not followed
        elif isinstance(x, (functools.cached_property, functools.partialmethod)):
            held = [("{}.func", x.func)]
        elif isinstance(x, functools.singledispatchmethod):
            held = [("{}.dispatcher", x.dispatcher), ("{}.func", x.func)]
        place = self.reads.place(x)
        for text, value in held:
            if value is not None and place is not None:
                self.reads.read(place, ("attr", text), text, value, name)

    def where(self, function: Any, kinds: list[type]) -> bool:
        """Whether one of the classes holds a function that Python has called implicitly. Its
        attribute in that class then counts as read."""
        for kind in kinds:
            for cls in kind.__mro__:
                for name, x in list(vars(cls).items()):
                    if x is function or function in _calls(x):
                        if self.is_users_class(cls):
                            self.in_class(kind, name, _of_type(kind, name))
                        return True
        return False

    def placed(self, place: Location) -> None:
        """Guard the class of a new place's object, and the class's attribute names."""
        x, kind = place.x, type(place.x)
        if self.equipped(kind):
            self.reads.type_of(place)
        if isinstance(x, type):
            self.equipped(x)

    def equipped(self, kind: type) -> bool:
        """Guard the attribute names of a user's class and its bases, since Python looks up special
        methods implicitly. Returns whether the class is a user's."""
        if id(kind) not in self._equipped:
            self._equipped[id(kind)] = kind
            if looks_up_itself(type(kind)):
                self.reads.use_once("a class")
                return False
            bases = kind.__mro__
            names = {k: [*vars(c)] for k, c in enumerate(bases) if self.is_users_class(c)}
            if names:
                record = [weakref.ref(cls) for cls in bases], names
                self.reads.unchanged(self._class_place(kind), record)
        return not looks_up_itself(type(kind)) and self.is_users_class(kind)

    def making_class(self, args: Sequence[Any]) -> Callable[[Any], None]:
        """Record that `type.__new__(*args)` may be about to make a class. Methods of its bases and
        of its attributes see the class before the call returns."""
        if not issubclass(args[0], type):
            return _nothing
        bases = next((x for x in args if type(x) is tuple), ()) or (object,)
        before = {id(c) for b in bases for c in type.__subclasses__(b)}
        self._making = bases, before

        def then(kind: Any) -> None:
            self._making = (), set()
            self.made_class(kind)

        return then

    def is_made_here(self, x: Any) -> bool:
        """Whether this is a class that the run has made, or is making."""
        if not isinstance(x, type):
            return False
        bases, before = self._making
        if bases and x.__bases__ == bases and id(x) not in before:
            self.made_class(x)
        return id(x) in self.reads.made_here

    def made_class(self, kind: Any) -> None:
        """Record that the run has made a class: its attributes need no guards."""
        if isinstance(kind, type):
            self._equipped[id(kind)] = self.reads.made_here[id(kind)] = kind
            self._users[kind] = False

    def forget(self) -> None:
        """Release all references that were held to keep ids unique."""
        self._equipped.clear()
        self._users.clear()
        self.made = self.table = self.reads.placed = (
            _nothing  # methods of this object, and of its holder
        )

    # ---- everything

    def whole_object(self, x: Any) -> list[Any]:
        """Record that all of an object's own attributes are read; returns their values."""
        place = self.reads.place(x)
        own = vars(x) if isinstance(x, type) else own_names(x)
        found = []
        if own is not None and place is not None:
            keys, held = self.reads._value(list(own)), names_of(x)
            self.reads.read(place, "names", f"list({held}) == {keys}", True, place.word)
            for name, value in list(own.items()):
                text = f"{held}[{self.reads.key(name)}]"
                self.reads.read(place, ("attr", name), text, value, name)
                found.append(value)
        for name in slots_of(type(x)):
            if place is not None and (value := _plainly(x, name)) is not ABSENT:
                self._evaluated(place, name)
                found.append(value)
        return found


def _looks_up_as(kind: Any, other: Any) -> bool:
    """Whether two classes look up their objects' attributes in the same way."""
    found = kind.__getattribute__
    return found is other.__getattribute__ or (other is object and _is_of_values(found))


def _is_of_values(found: Any) -> bool:
    """Whether this is the `__getattribute__` of containers and plain values, which is
    `object`'s."""
    c = isinstance(found, types.WrapperDescriptorType)
    return c and (found.__objclass__ in CONTAINERS or found.__objclass__ in PLAIN_TYPES)


def _goes_on_plainly(kind: type) -> bool:
    """Whether a class's own `__getattribute__` finally calls `object`'s."""
    ways = [vars(cls).get("__getattribute__") for cls in kind.__mro__]
    first = next(x for x in ways if not isinstance(x, (types.FunctionType, types.NoneType)))
    return first is object.__getattribute__ or _is_of_values(first)


def _plainly(x: Any, name: str) -> Any:
    """The attribute, found without calling a `__getattribute__` written in Python."""
    try:
        itself = looks_up_itself(type(x))
        return object.__getattribute__(x, name) if itself else getattr(x, name)
    except AttributeError:
        return ABSENT


def _of_type(kind: type, name: str) -> Any:
    return found_in_class(kind, name, ABSENT)


def _calls(x: Any) -> tuple[Any, ...]:
    """The functions that a descriptor calls."""
    if isinstance(x, property):
        return (x.fget, x.fset, x.fdel)
    if isinstance(x, (staticmethod, classmethod)):
        return (x.__func__,)
    if isinstance(x, (functools.cached_property, functools.partialmethod)):
        return (x.func,)
    if isinstance(x, functools.singledispatchmethod):
        return (x.func,)
    return ()


def slots_of(kind: type) -> list[str]:
    """The names of the slots of a class's objects."""
    found = []
    for cls in kind.__mro__:
        slots = cls.__dict__.get("__slots__", ())
        found += [slots] if isinstance(slots, str) else list(slots)
    return [name for name in found if name not in ("__weakref__", "__dict__")]
