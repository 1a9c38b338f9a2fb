"""State that a function reaches without being passed it, watched from call to call.

A trace holds what the function found when it ran: numbers, strings and flags among its closure,
its globals, its defaults and the attributes that it reads, and which arrays those names stood for.
`watch` finds them before the trace (see `reach`); `State.holds` tells at a later call whether all
of them are as they were. If not, the function is traced anew.

What is in an array needn't be compared if only traced calls read it (see `mentions`): it is an
input of the tape then. Of all other arrays the contents are facts too.
"""

from __future__ import annotations

import array
import collections
import dataclasses
import datetime
import enum
import functools
import inspect
import marshal
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tapegrad.primitives.base import Value
from tapegrad.tracing import randomness
from tapegrad.tracing.mentions import Meetings
from tapegrad.tracing.reach import (
    PLAIN,
    Reach,
    holds_functions,
    in_context,
    is_users_container,
    reached_by,
    through,
    wrapped_by,
)
from tapegrad.trees import is_traced

MOST = 5000  # facts; a function that reaches more is traced at each call
_LARGE = 1 << 16  # bytes
_EQUAL = (range, slice, np.dtype, datetime.date)
_EQUAL_TOO = {"decimal": "Decimal", "fractions": "Fraction"}  # if loaded, as for all who have one
_CONTAINERS = (dict, types.MappingProxyType, list, tuple, set, frozenset, collections.deque)
_STATELESS = (type(threading.Lock()), type(threading.RLock()), type(...), type(NotImplemented))
_GONE = (AttributeError, IndexError, KeyError, TypeError, ValueError)


class State:
    """Facts about what a function reaches: `holds(f, args, kwargs)` tells whether they still do.

    `facts` are conditions, each with what the user calls the place, and among them assignments of
    short names, which have no word.
    """

    def __init__(self, facts: Sequence[tuple[str, str]], values: dict[str, Any]) -> None:
        self._facts, self._values = facts, {**values, **_HELPERS}
        self.count = sum(bool(word) for _, word in facts)
        text = ["def holds(f, args, kwargs=None):", "    try:"]
        for line, word in facts:
            text.append(f"        if not ({line}): return False" if word else f"        {line}")
        # What was there may be gone, or of another kind: then the facts don't hold either.
        text += ["        return True", "    except _GONE:", "        return False"]
        names = dict(self._values)
        exec("\n".join(text), names)
        self.holds: Callable[..., bool] = names["holds"]

    def broken(self, f: Any, args: Any, kwargs: Any) -> str:
        """What the user calls the first thing that has changed; empty if nothing has."""
        names = {**self._values, "f": f, "args": args, "kwargs": kwargs}
        last = "something"
        for line, word in self._facts:
            last = word or last
            try:
                if not word:
                    exec(line, names)
                elif not eval(line, names):
                    return word
            except _GONE:
                return last
        return ""


def watch(f: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None) -> Watcher:
    """The facts about what `f` reaches now. Call it before the trace, and `state` after."""
    kwargs = kwargs or {}
    watcher = Watcher(Reach([f, *_objects(args), *_objects(list(kwargs.values()))]))
    watcher.function("f", f)
    for k, arg in enumerate(args):
        watcher.argument(f"args[{k}]", arg)
    for name, arg in kwargs.items():
        watcher.argument(f"kwargs[{name!r}]", arg)
    return watcher


def _objects(args: Any) -> Iterator[Any]:
    """What among arguments isn't traced: objects whose attributes are state."""
    if is_users_container(args):
        yield type(args)
    if isinstance(args, dict):
        args = list(args.values())
    if isinstance(args, (list, tuple)):
        for arg in args:
            yield from _objects(arg)
    elif not is_traced(args) and not isinstance(args, PLAIN):
        yield args


class Watcher:
    """Collects facts; `state` makes them checkable."""

    def __init__(self, reach: Reach) -> None:
        self.reach = reach
        self.generators: list[Any] = []  # of random numbers
        self._facts: list[tuple[str, str]] = []
        self._values: dict[str, Any] = {}
        self._arrays: list[tuple[str, str, np.ndarray, bytes]] = []
        self._seen: set[Any] = set()

    def state(self, hidden: Sequence[Any], meetings: Meetings) -> State | None:
        """The facts, now that it is known where the arrays met tracers."""
        named = [x for _, _, x, _ in self._arrays]
        for x in hidden:
            if isinstance(x, np.ndarray) and not any(np.may_share_memory(x, a) for a in named):
                meetings.strange = True
        if self.reach.outside:
            self._facts.append(("False", self.reach.outside))
        for name, place, x, content in self._arrays:
            if not any(x is h for h in hidden):  # who reads these looks at their layout too
                layout = f"({place}.shape, {place}.dtype, {place}.strides) == {{}}"
                self._fact(layout, (x.shape, x.dtype, x.strides), name)
            if not meetings.prove(x, name, self.reach.codes):
                self._fact(f"same_bytes({place}, {{}})", content, name)
        if len(self._values) > MOST:
            self._facts.append(("False", f"one of more than {MOST} things that it can reach"))
        return State(self._facts, self._values) if self._facts else None

    # ---- facts

    def _fact(self, condition: str, value: Any, word: str) -> None:
        """`condition`, in which `{}` stands for the value seen now."""
        name = f"v{len(self._values)}"
        self._values[name] = value
        self._facts.append((condition.format(name), word or "something"))

    def _held(self, place: str) -> str:
        """A short name for a place that others are reached from."""
        name = f"x{len(self._facts)}"
        self._facts.append((f"{name} = {place}", ""))
        return name

    def _same_object(self, place: str, x: Any, word: str) -> None:
        try:
            self._fact(f"{place} is {{0}}()", weakref.ref(x), word)
        except TypeError:
            self._fact(f"{place} is {{0}}", x, word)

    def _first(self, *key: Any) -> bool:
        """Whether this is seen for the first time; and not more than can be checked."""
        fresh = key not in self._seen and len(self._values) <= MOST
        self._seen.add(key)
        return fresh

    # ---- what is watched

    def function(self, place: str, f: Any) -> None:
        """What a function reaches."""
        if isinstance(f, (types.MethodType, functools.partial)):
            self._through(place, f)
        elif isinstance(f, types.FunctionType):
            if not self._first("code", id(f)):
                return
            held = self._held(place)
            users = self.reach.is_users_code(f.__code__)
            for where, name, key, value in reached_by(held, f):
                # A decorator of some package holds the user's function in its closure.
                if self._first(*key) and (users or holds_functions(value)):
                    self.value(where, value, name)
            if users and (vars(f) or self.reach.probes):
                read = vars(f).keys() if self.reach.all_names else self.reach.names & vars(f).keys()
                for name in sorted(read):
                    self.value(f"{held}.{name}", vars(f)[name], name)
                self._absent(held, f)
        elif isinstance(f, types.BuiltinFunctionType):
            self._through(place, f)
        elif not isinstance(f, (type, np.ufunc)):
            self.attributes(place, f)

    def _absent(self, held: str, x: Any) -> None:
        """No attribute appears that the code asks for, or that would hide one of the class."""
        others = self.reach.names - vars(x).keys()
        if not self.reach.probes:
            others = {n for n in others if inspect.getattr_static(type(x), n, None) is not None}
        if self.reach.all_names:
            self._fact(f"vars({held}).keys() == {{0}}", frozenset(vars(x)), "a new attribute")
        elif others:
            self._fact(f"vars({held}).keys().isdisjoint({{0}})", others, "a new attribute")

    def _through(self, place: str, x: Any) -> None:
        """What a call or look-up of `x` goes on to."""
        for where, value in through(place, x):
            if isinstance(value, (types.FunctionType, types.MethodType, functools.partial)):
                self.function(where, value)
            elif isinstance(x, types.MethodType):
                self.attributes(where, value)
            else:
                self.value(where, value, "what is called")

    def argument(self, place: str, x: Any) -> None:
        """The objects among an argument's leaves; the leaves themselves are known by their key."""
        if is_users_container(x):
            self.attributes(f"type({place})", type(x))
        if isinstance(x, dict):
            for key in x:
                self.argument(f"{place}[{self._key(key)}]", x[key])
        elif isinstance(x, (list, tuple)):
            for k, element in enumerate(x):
                self.argument(f"{place}[{k}]", element)
        elif dataclasses.is_dataclass(x) and not isinstance(x, type):
            self.attributes(f"type({place})", type(x))
            for f in dataclasses.fields(x):
                self.argument(f"{place}.{f.name}", getattr(x, f.name, None))
        elif isinstance(x, enum.Enum):
            self.attributes(f"type({place})", type(x))
        elif not is_traced(x) and not isinstance(x, PLAIN):
            if isinstance(x, (types.FunctionType, types.MethodType, functools.partial)):
                self.function(place, x)
            else:
                self.attributes(place, x)

    def value(self, place: str, x: Any, name: str) -> None:
        """What a place holds, which `name` stands for in the code."""
        if isinstance(x, Value):
            return  # of another trace, which watches by itself
        if isinstance(x, PLAIN):
            self._plain(place, x, name)
            if type(x) not in PLAIN:  # of a class that derives from str, with methods
                self.attributes(place, x)
        elif isinstance(x, np.generic):
            same = f"type({place}) is type({{0}}) and {place}.tobytes() == {{0}}.tobytes()"
            self._fact(same, x, name)
        elif isinstance(x, np.ndarray):
            self._same_object(place, x, name)
            if x.dtype.hasobject:
                self._fact("{0}", False, name)
            else:
                self._arrays.append((name, place, x, x.tobytes()))
        elif isinstance(x, _CONTAINERS):
            self._container(place, x, name)
        elif isinstance(x, (types.FunctionType, types.MethodType, functools.partial)):
            if isinstance(x, types.FunctionType):
                self._same_object(place, x, name)
            self.function(place, x)
        elif isinstance(x, types.ModuleType):
            self.attributes(place, x)
        elif _is_equal(x):
            self._fact(f"type({place}) is type({{0}}) and {place} == {{0}}", x, name)
        elif isinstance(x, (bytearray, memoryview, array.array)):
            self._fact(f"bytes({place}) == {{0}}", bytes(x), name)
        elif isinstance(x, randomness.kinds()):
            self._same_object(place, x, name)
            self.generators.append(x)
        elif isinstance(x, collections.abc.Iterator):
            self._fact("{0}", False, name)  # whether it has moved on can't be seen
        elif not self.reach.is_open(x) and _is_opaque(x):
            self._fact("{0}", False, name)
        else:
            self._same_object(place, x, name)
            self._through(place, x)
            self.attributes(place, x)

    def attributes(self, place: str, x: Any) -> None:
        """The attributes of an object, class or module that the code mentions by name."""
        if isinstance(x, randomness.kinds()):
            self.generators.append(x)
        wrapped = wrapped_by(x)
        if wrapped is not None:
            self.function(f"{place}.__wrapped__", wrapped)
        if not self.reach.is_open(x) or not self._first("attributes", id(x)):
            return
        held = self._held(place)
        own = getattr(x, "__dict__", {})
        for name, found in self.reach.attributes(x):
            if isinstance(x, (type, types.ModuleType)) or name in own:
                of_class = held
            else:
                of_class = f"type({held})"
            if isinstance(found, types.FunctionType):
                self._same_object(f"{of_class}.{name}", found, name)
                self.function(f"{of_class}.{name}", found)
            elif not hasattr(type(found), "__get__") or (name in own and not isinstance(x, type)):
                self.value(f"{held}.{name}", found, name)
            else:
                self._descriptor(f"static({of_class}, {name!r})", found)
        if isinstance(x, types.ModuleType):
            return
        for where, cls in self.reach.classes(x):
            self.attributes(where.format(held), cls)
        if hasattr(x, "__dict__") and not isinstance(x, type):
            self._absent(held, x)

    def _descriptor(self, place: str, x: Any) -> None:
        """What an attribute of a class computes with."""
        if isinstance(x, property):
            self.function(f"{place}.fget", x.fget)
        elif isinstance(x, (staticmethod, classmethod)):
            self.function(f"{place}.__func__", x.__func__)
        elif through(place, x):
            self._through(place, x)
        elif self.reach.is_users_class(type(x)):
            self.attributes(place, x)

    # ---- kinds of values

    def _plain(self, place: str, x: Any, name: str) -> None:
        kind = f"kind{len(self._values)}"
        self._values[kind] = type(x)
        same = f"{place} is {{0}} or (type({place}) is {kind} and {place} == {{0}}"
        if isinstance(x, float):  # 0.0 is not -0.0
            same += f" and signbit({place}) == signbit({{0}})"
        self._fact(f"{same})", x, name)

    def _container(self, place: str, x: Any, name: str) -> None:
        try:
            content = marshal.dumps(x, 2)  # of plain numbers, strings and containers alone
        except ValueError:
            pass
        else:
            self._fact(f"marshalled({place}, 2) == {{0}}", content, name)
            return
        if not self._first("container", id(x)):
            return
        held = self._held(place)
        if is_users_container(x):
            self.attributes(held, x)
        if isinstance(x, (set, frozenset)):
            self._fact(f"type({held}) is type({{0}}) and {held} == {{0}}", x.copy(), name)
            return
        keyed = isinstance(x, (dict, types.MappingProxyType))
        if keyed:
            self._fact(f"list({held}) == {{0}}", list(x), name)
        else:
            self._fact(f"len({held}) == {{0}}", len(x), name)
        for key in x if keyed else range(len(x)):
            self.value(f"{held}[{self._key(key)}]", x[key], name)

    def _key(self, key: Any) -> str:
        """A key as it is written in the text of the facts."""
        if type(key) in (str, int, bool):
            return repr(key)
        name = f"key{len(self._values)}"
        self._values[name] = key
        return name


def _is_equal(x: Any) -> bool:
    """Whether an object never changes, and equal ones are the same to whoever reads them."""
    found = [getattr(sys.modules.get(m), name, ()) for m, name in _EQUAL_TOO.items()]
    return isinstance(x, (*_EQUAL, *found))


def _is_opaque(x: Any) -> bool:
    """Whether an object may change where nobody can look: a queue for instance. It is written in
    C, has no attributes of its own, and its hash says nothing about what it holds."""
    hashes: Any = type(x).__hash__
    plain = hashes is None or hashes is object.__hash__
    return (
        plain
        and not hasattr(x, "__dict__")
        and not (callable(x) or isinstance(x, _STATELESS) or type(x) is object)
    )


def _same_bytes(x: np.ndarray, content: bytes) -> bool:
    """Whether an array holds these bytes, in row-major order."""
    if x.nbytes < _LARGE or x.nbytes % 8 or not x.flags.c_contiguous:
        return x.tobytes() == content
    words = x.reshape(-1).view(np.uint64)  # compared without a copy
    return len(content) == x.nbytes and bool((words == np.frombuffer(content, np.uint64)).all())


_HELPERS = {
    "_GONE": _GONE,
    "same_bytes": _same_bytes,
    "marshalled": marshal.dumps,
    "signbit": np.signbit,
    "static": inspect.getattr_static,
    "modules": sys.modules,
    "in_context": in_context,
}
