"""State that a function reaches without being passed it, watched from call to call.

A trace holds what the function found when it ran: numbers, strings and flags among its closure,
its globals, its defaults and the attributes that it reads, and which arrays those names stood for.
`watch` finds them before the trace, by the names that the function's code and that of the user's
functions it calls mention; `State.holds` tells at a later call whether all of them are as they
were. If not, the function is traced anew. What is in the arrays needn't be watched: they are read
at each call.
"""

from __future__ import annotations

import dis
import functools
import inspect
import types
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tapegrad.primitives.base import Value
from tapegrad.tracing.source import is_users, is_users_file

MOST = 200  # facts about one function
SMALL = 4096  # bytes of an array whose content is compared at each call
DEEPEST = 4  # of containers in containers, and attributes of attributes
_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_ABSENT = object()
_DATA = (*_PLAIN, np.ndarray, np.generic, dict, list, tuple)


class State:
    """Facts about what a function reaches: `holds(f, args)` tells whether they still do."""

    def __init__(self, conditions: Sequence[str], values: dict[str, Any]) -> None:
        self.count = len(conditions)
        lines = ["def holds(f, args):", "    try:"]
        lines += [f"        if not ({c}): return False" for c in conditions]
        # What was there may be gone, or of another kind: then the facts don't hold either.
        lines += ["        return True", "    except _GONE:", "        return False"]
        names = {**values, "_GONE": (AttributeError, IndexError, KeyError, TypeError, ValueError)}
        exec("\n".join(lines), names)
        self.holds: Callable[[Any, Sequence[Any]], bool] = names["holds"]


def watch(f: Any, args: Sequence[Any] = ()) -> Watcher:
    """The facts about what `f` reaches now. Call it before the trace, and `state` after."""
    watcher = Watcher()
    for code in _codes(f):
        watcher.names |= set(code.co_names)
    watcher.function("f", f)
    for k, arg in enumerate(args):
        if hasattr(arg, "__dict__") and not isinstance(arg, (type, types.ModuleType)):
            watcher.attributes(f"args[{k}]", arg, 0)
    return watcher


def _codes(f: Any) -> Iterator[types.CodeType]:
    """The code of a function, of those inside it, and of the user's functions it mentions."""
    seen: set[types.CodeType] = set()
    waiting: list[Any] = [f]
    while waiting and len(seen) < MOST:
        g = waiting.pop()
        if isinstance(g, functools.partial):
            waiting.append(g.func)
        elif isinstance(g, types.MethodType):
            waiting.append(g.__func__)
        elif isinstance(g, types.FunctionType):
            fresh = [c for c in _nested(g.__code__) if c not in seen]
            if g is not f and not _is_watched(g.__code__):
                continue
            seen.update(fresh)
            yield from fresh
            if fresh:
                waiting += [v for _, v in _reached("f", g)]
        elif isinstance(getattr(g, "__wrapped__", None), types.FunctionType):
            waiting.append(g.__wrapped__)
        elif not isinstance(g, (type, types.ModuleType)):
            called = inspect.getattr_static(type(g), "__call__", None)
            if isinstance(called, types.FunctionType):
                waiting.append(called)


def _nested(code: types.CodeType) -> list[types.CodeType]:
    inside = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return [code, *[c for k in inside for c in _nested(k)]]


def _global_names(code: types.CodeType) -> set[str]:
    return {
        i.argval
        for c in _nested(code)
        for i in dis.get_instructions(c)
        if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    }


def _reached(place: str, f: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """What a function's closure, globals and defaults hold, and where."""
    for k, cell in enumerate(f.__closure__ or ()):
        try:
            yield f"{place}.__closure__[{k}].cell_contents", cell.cell_contents
        except ValueError:
            continue  # not bound yet
    for name in sorted(_global_names(f.__code__)):
        if name in f.__globals__:
            yield f"{place}.__globals__[{name!r}]", f.__globals__[name]
    for k, value in enumerate(f.__defaults__ or ()):
        yield f"{place}.__defaults__[{k}]", value
    for name, value in (f.__kwdefaults__ or {}).items():
        yield f"{place}.__kwdefaults__[{name!r}]", value


class Watcher:
    """Collects facts; `state` makes them checkable."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.conditions: list[str] = []
        self.values: dict[str, Any] = {}
        self._arrays: list[tuple[str, np.ndarray, bytes]] = []
        self._seen: set[int] = set()

    def state(self, hidden: Sequence[Any]) -> State | None:
        """The facts, once it is known which arrays are read at each call: the others only took
        part in what the function computed without its arguments, so their contents are facts."""
        inputs = {id(x) for x in hidden}
        for place, array, content in self._arrays:
            if id(array) not in inputs:
                self._fact(f"{place}.tobytes() == {{}}", content)
        return State(self.conditions, self.values) if self.conditions else None

    def _fact(self, condition: str, value: Any) -> None:
        """`condition`, in which `{}` stands for the value seen now."""
        if len(self.conditions) < MOST:
            name = f"v{len(self.values)}"
            self.values[name] = value
            self.conditions.append(condition.format(name))

    def function(self, place: str, f: Any) -> None:
        if isinstance(f, functools.partial):
            self.function(f"{place}.func", f.func)
            self.value(f"{place}.args", f.args, 0)
            self.value(f"{place}.keywords", f.keywords, 0)
        elif isinstance(f, types.MethodType):
            self.function(f"{place}.__func__", f.__func__)
            self.attributes(f"{place}.__self__", f.__self__, 0)
        elif isinstance(f, types.FunctionType):
            if id(f) in self._seen or not (place == "f" or _is_watched(f.__code__)):
                return
            self._seen.add(id(f))
            for where, value in _reached(place, f):
                self.value(where, value, 0)
        elif hasattr(f, "__dict__"):
            self.attributes(place, f, 0)

    def value(self, place: str, x: Any, depth: int) -> None:
        if isinstance(x, Value):
            return  # of another trace, which watches by itself
        if isinstance(x, _PLAIN):
            kind = f"v{len(self.values)}_kind"
            self.values[kind] = type(x)
            same = f"{place} is {{0}} or (type({place}) is {kind} and {place} == {{0}}"
            if isinstance(x, float):  # 0.0 is not -0.0
                self.values.setdefault("signs", np.signbit)
                same += f" and signs({place}) == signs({{0}})"
            self._fact(f"{same})", x)
        elif isinstance(x, np.generic):
            self._fact(f"type({place}) is type({{0}}) and {place}.tobytes() == {{0}}.tobytes()", x)
        elif isinstance(x, np.ndarray):
            self._same_object(place, x)
            if x.nbytes <= SMALL and x.dtype != object:
                self._arrays.append((place, x, x.tobytes()))
        elif isinstance(x, (dict, list, tuple)):
            self._container(place, x, depth)
        elif isinstance(x, (types.FunctionType, types.MethodType, functools.partial)):
            if isinstance(x, types.FunctionType):
                self._same_object(place, x)
            self.function(place, x)
        elif isinstance(x, types.ModuleType):
            if _is_users_file(getattr(x, "__file__", None)):
                self.attributes(place, x, depth)
        elif not isinstance(x, type) and hasattr(x, "__dict__"):
            self._same_object(place, x)
            self.attributes(place, x, depth)
            if isinstance(getattr(x, "__wrapped__", None), types.FunctionType):
                self.function(f"{place}.__wrapped__", x.__wrapped__)

    def attributes(self, place: str, x: Any, depth: int) -> None:
        """The attributes of an object that the code mentions by name."""
        if id(x) in self._seen or depth > DEEPEST:
            return
        self._seen.add(id(x))
        for name in sorted(self.names):
            found = inspect.getattr_static(x, name, _ABSENT)
            if isinstance(found, types.MemberDescriptorType):  # of __slots__
                found = getattr(x, name, _ABSENT)
            of_class = name not in getattr(x, "__dict__", {})
            if found is _ABSENT or (of_class and not isinstance(found, _DATA)):
                continue  # methods and properties; their code is looked through by name
            self.value(f"{place}.{name}", found, depth + 1)

    def _same_object(self, place: str, x: Any) -> None:
        try:
            self._fact(f"{place} is {{0}}()", weakref.ref(x))
        except TypeError:
            return

    def _container(self, place: str, x: Any, depth: int) -> None:
        if depth > DEEPEST:
            return
        self._fact(f"len({place}) == {{0}}", len(x))
        keys = x if isinstance(x, dict) else range(len(x))
        for key in list(keys)[:MOST]:
            if type(key) in (str, int):
                self.value(f"{place}[{key!r}]", x[key], depth + 1)


def _is_watched(code: types.CodeType) -> bool:
    return is_users(code) and _is_users_file(code.co_filename)


def _is_users_file(file: str | None) -> bool:
    """Whether a module belongs to the user's program and not to an installed package."""
    if file is None or "site-packages" in file or "/lib/python" in file:
        return False
    return is_users_file(file)
