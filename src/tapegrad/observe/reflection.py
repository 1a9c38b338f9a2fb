"""Python's builtins that look up a name in an object, or query an object's kind."""

from __future__ import annotations

import builtins
import collections
import contextvars
import functools
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

from tapegrad.core.named import own_attribute
from tapegrad.observe.activations.run_record import RunRecord
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.guards.lookups import asked_kind
from tapegrad.observe.guards.uses import Then
from tapegrad.observe.objects import inspection
from tapegrad.observe.objects.naming import names_of
from tapegrad.observe.objects.purity import (
    CONTAINERS,
    is_changeable,
    is_pythons_class,
    is_self_contained,
)
from tapegrad.observe.program.frames import MISSING
from tapegrad.primitives.base import Value


def of_attribute(name: str) -> Callable[..., Then | None]:
    """The recorder of a function that takes an object and an attribute's name: it calls the
    observer's method `name` with both."""

    def noted(o: RunRecord, args: Sequence[Any], kwargs: Any) -> Then | None:
        if len(args) > 1 and isinstance(args[1], str):
            o.kind(args[0])
            getattr(o, name)(args[0], args[1])
        return None

    return noted


def _getattr(o: RunRecord, args: Sequence[Any], kwargs: Any) -> Then | None:
    if len(args) < 2 or not isinstance(args[1], str):
        return None
    x, name = args[:2]
    o.kind(x)
    place, at = functools.partial(o.reads.place, x), ("attr", name)
    found: Then | None = dispatch.found(o.running, "STORE_ATTR", name, place, at)
    o.reads.given = (id(x), at) if found is not None else None
    o.looked_up(x, name)
    o.reads.given = None
    return found


def _found_plainly(o: RunRecord, args: Sequence[Any], kwargs: Any) -> Then | None:
    """Record `object.__getattribute__(x, name)`, with which a class's own `__getattribute__` goes
    on."""
    if len(args) > 1 and isinstance(args[1], str):
        o.kind(args[0])
        o.lookups.attribute(args[0], args[1], plainly=True)
    return None


ATTRIBUTE_METHODS = {
    "__getattribute__": _found_plainly,
    "__setattr__": of_attribute("stored"),
    "__delattr__": of_attribute("deleted"),
}


def read_vars(o: RunRecord, args: Sequence[Any], kwargs: Any) -> Then | None:
    if not args:
        return None
    x = args[0]
    if isinstance(x, type) and not is_changeable(x):
        return None
    place = o.reads.place(x)
    if place is None and isinstance(x, (type, types.ModuleType)):
        place = o.reads.constant(x, own_attribute(x, "__name__", ""))
    own = vars(x) if isinstance(x, type) else inspection.own_names(x)
    if place is not None and isinstance(own, dict):
        o.reads.read(place, ("attr", "__dict__"), names_of(x), own, place.word)
    elif isinstance(x, type):
        o.reads.use_once(f"vars({x.__name__})")
    return None


def in_context(o: RunRecord, variable: contextvars.ContextVar[Any], method: str) -> Then:
    """Record that a context variable is looked up, set or reset."""

    def then(result: Any) -> None:
        if method in ("set", "reset"):
            o.in_context[variable] += 1 if method == "set" else -1
        elif not o.in_context[variable]:  # else the value was set by the run itself
            place = o.reads.place(variable) or o.reads.constant(variable, variable.name)
            o.reads.read(place, "called", "{}.get()", result, variable.name)

    return then


def _globals(o: RunRecord, args: Sequence[Any], kwargs: Any) -> Then | None:
    o.globals_place(o.frame_globals())
    return None


def _dir(o: RunRecord, args: Sequence[Any], kwargs: Any) -> Then | None:
    if not args:  # a function's own names follow from the path taken
        held = o.running.frame.f_locals if o.running is not None else None
        place = o.reads.place(held)
        if place is not None:
            o.reads.read(place, "dir", f"set({{}}) == {set(held or ())!r}", True, "dir")
        return None
    x = args[0]
    o.kind(x)
    place = o.reads.place(x)
    if place is not None:
        names = o.reads._value(dir(x))
        o.reads.read(place, "dir", f"names_of({{}}) == {names}", True, place.word)
    return None


def _id(o: RunRecord, args: Sequence[Any], kwargs: Any) -> Then | None:
    for x in args:
        o.reads.pin(x)
    return None


def _next(o: RunRecord, args: Sequence[Any], kwargs: Any) -> Then | None:
    o.kind(args[0])
    place = o.reads.place(args[0])
    if place is not None and not is_pythons_class(type(args[0])):
        o.reads.use_once(place.word, _TAKES_FIRST)
    return None


_TAKES_FIRST = (
    "Take its next value before anything else in the function: then each call takes its own. Or "
    "take it outside, and pass it as an argument"
)


def _length(o: RunRecord, args: Sequence[Any], kwargs: Any) -> Then | None:
    x = args[0] if len(args) == 1 else None
    if type(x) not in CONTAINERS:
        return o.taken(args)
    found: Then | None = None
    if isinstance(x, (list, collections.deque)) and o.running is not None:
        found = dispatch.length(o.running, x)
    if found is None:
        o.length(x)
    return found


def _exec(o: RunRecord, args: Sequence[Any], kwargs: Any) -> Then | None:
    o.kind(args[0])
    for x in args[1:]:
        if isinstance(x, dict) and o.reads.place(x) is None:
            o.made_globals.append(x)
    o.globals_place(args[1] if len(args) > 1 and isinstance(args[1], dict) else o.frame_globals())
    return None


def _quiet(o: RunRecord, args: Sequence[Any], kwargs: dict[str, Any]) -> Then | None:
    """Record `print`: its text goes to a stream."""
    place = o.reads.place(kwargs.get("file"))
    if place is not None and is_self_contained(type(place.x)):
        o.reads.use_once(place.word)
    return None


def _identity(o: RunRecord, args: Sequence[Any], kwargs: Any) -> Then | None:
    for x in args:
        o.reads.pin(x)
    return o.taken(args)


def _isinstance(o: RunRecord, args: Sequence[Any], kwargs: Any) -> Then | None:
    """Record `isinstance` and others: classes answer by methods, which are followed, or by the
    object's class."""
    for x in args[:1]:
        asked_kind(x)
    for x in args:
        for kind in x if isinstance(x, tuple) else (x,):
            o.classes(kind if isinstance(kind, type) else type(kind))
    return o.taken([x for x in args if isinstance(x, tuple)])


def _type(o: RunRecord, args: Sequence[Any], kwargs: Any) -> Then | None:
    if len(args) != 1:
        return _class_made(o, args, kwargs)
    if isinstance(args[0], Value):
        asked_kind(args[0])
        return o.stand_in(args[0])
    o.kind(args[0])
    return _isinstance(o, args, kwargs)


def _class_made(o: RunRecord, args: Sequence[Any], kwargs: Any) -> Then:
    return o.lookups.made_class


def _compile(o: RunRecord, args: Sequence[Any], kwargs: Any) -> Then | None:
    for x in (*args[:1], kwargs.get("source")):
        o.kind(x)
    return None


def _nothing(o: RunRecord, args: Sequence[Any], kwargs: Any) -> Then | None:
    """Record nothing: the code that is called is followed."""
    return None


def _import(o: RunRecord, args: Sequence[Any], kwargs: Any) -> Then:
    """Record `__import__("name")`, as the statement `import name` is."""

    def then(module: Any) -> None:
        if module is MISSING:
            o.reads.use_once("__import__")
            return
        names = getattr(module, "__name__", ""), *args[:1]
        o.loaded(next((n for n in names if sys.modules.get(n) is module), ""), module)

    return then


SPECIAL: dict[int, tuple[Any, Callable[..., Then | None]]] = {
    id(f): (f, note)
    for f, note in [
        (getattr, _getattr),
        (hasattr, of_attribute("looked_up")),
        (setattr, ATTRIBUTE_METHODS["__setattr__"]),
        (delattr, ATTRIBUTE_METHODS["__delattr__"]),
        (vars, read_vars),
        (globals, _globals),
        (dir, _dir),
        (id, _id),
        (next, _next),
        (len, _length),
        (exec, _exec),
        (eval, _exec),
        (print, _quiet),
        (super, _nothing),
        (hash, _identity),
        (isinstance, _isinstance),
        (issubclass, _isinstance),
        (callable, _isinstance),
        (type, _type),
        (builtins.__build_class__, _class_made),
        (compile, _compile),
        (__import__, _import),
    ]
}
