"""Handlers of Python's instructions: what each reads, writes and calls. Each function handles one
kind of instruction for the activation `a`, and may return a recorder of the result."""

from __future__ import annotations

import functools
from collections import deque
from types import CodeType, ModuleType
from typing import Any

import numpy as np

from tapegrad.core.values import stood_for
from tapegrad.errors import UnsupportedError
from tapegrad.observe.activations.activation import Activation
from tapegrad.observe.answers.answers import UNKNOWN
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.calls import called
from tapegrad.observe.guards.lookups import FIXED, asked_kind
from tapegrad.observe.guards.uses import Then, both
from tapegrad.observe.objects.inspection import code_called, found_in_class, kind_of_items
from tapegrad.observe.objects.naming import Key
from tapegrad.observe.objects.purity import (
    ARRAYS_ITERATOR,
    CONTAINERS,
    INERT,
    MAPPINGS,
    is_pythons_class,
)
from tapegrad.observe.operands.caught_errors import unless_caught
from tapegrad.observe.operands.filled_arrays import fill, fill_all, fill_called
from tapegrad.observe.operands.plain_operands import put_key
from tapegrad.observe.operands.replacement import (
    put,
    put_class,
    put_plain,
    put_super,
    put_traced,
    put_without_derivative,
)
from tapegrad.observe.packages import library_calls
from tapegrad.observe.packages.opaque import FOLLOWED, remembers
from tapegrad.observe.program.frames import (
    IS_TAGGED,
    MISSING,
    clear,
    entry,
    has_mapping,
    operand,
    operand_at,
    operands,
    replace,
    upper,
)
from tapegrad.observe.program.source import at_line
from tapegrad.observe.unwatched_loops import rest
from tapegrad.observe.waiting import repeated_calls, threads
from tapegrad.observe.waiting.logging_calls import made_as_one, stays
from tapegrad.observe.waiting.postponed import postpone_item
from tapegrad.primitives.base import Value

# ---- attributes and items


@library_calls.watched
def load_attribute(a: Activation, name: str) -> Then | None:
    x = a.top()
    kind = type(x)
    if name in ("f_locals", "f_globals") and a.o.library is not None:
        a.o.library.looks_back = True
    if INERT[kind] or kind in FIXED:
        if isinstance(x, Value):
            put_without_derivative(a, x, name)
            a.o.lookups.attribute(x, name)
        return None
    if kind is ModuleType:
        if (id(x), name) in a.o.asked:
            return None
        a.o.asked[id(x), name] = x
    for answers in (repeated_calls.attribute, library_calls.attribute):
        if (asked := answers(a, x, name)) is not FOLLOWED:
            return asked
    a.o.kind(x)
    place = functools.partial(a.o.reads.place, x)
    found: Then | None = dispatch.found(a, "STORE_ATTR", name, place, ("attr", name))
    a.o.reads.given = None if found is None else (id(x), ("attr", name))
    if found is not None:
        a.o.asked.pop((id(x), name), None)  # each look-up is replaced by the input
    a.o.lookups.by_user = a.users
    if found is None or type(x) is not type:  # else the attribute is the class's own
        a.o.lookups.attribute(x, name)
    a.o.lookups.by_user, a.o.reads.given = True, None
    return both(found, handed_on(a, getattr(found_in_class(kind, name), "fget", None)))


def load_super_attribute(a: Activation, asked: tuple[str, bool]) -> None:
    """Record `super().name`, or `super(kind, x).name`: one instruction."""
    name, is_told = asked
    f, cls, x = a.top(2), a.top(1), a.top()
    if f is not super or not isinstance(cls, type):
        a.o.reads.use_once("super")
        return
    cls = put_class(a, 1, cls, x) if is_told else put_super(operand_at(a.stack, 2), cls, x)
    a.o.kind(x)
    try:
        found = super(cls, x)
    except TypeError:  # Python will raise it
        return
    a.o.lookups.by_user = a.users
    a.o.lookups.attribute(found, name)
    a.o.lookups.by_user = True


def store_attribute(a: Activation, name: str) -> Then | None:
    fill(a, 0, 1)
    x, value = a.top(), a.top(1)
    asked = library_calls.sets_attribute(a, x, name, value)
    if asked is not FOLLOWED:
        return asked
    a.o.kind(x)
    a.o.stored(x, name)
    # A setter written in C may read the value. Python methods are followed.
    kind = stood_for(type(x))
    is_followed = is_pythons_class(type(x)) and not isinstance(x, (Value, np.ndarray))
    is_followed = is_followed or kind is not None
    return None if is_followed else a.o.taken([x, value])


def delete_attribute(a: Activation, name: str) -> None:
    a.o.kind(a.top())
    a.o.deleted(a.top(), name)


@library_calls.watched
def subscript(a: Activation, _: Any) -> Then | None:
    put_key(a, 0, a.top(1), "__getitem__")
    x, key = operands(a.stack)
    return look_up_item(a, put_traced(a, 1, x, key), key)


def subscript_slice(a: Activation, _: Any) -> Then | None:
    """Record `x[i:j]`, whose slice Python makes within the instruction."""
    return look_up_item(a, a.top(2), slice(a.top(1), a.top(0)))


def look_up_item(a: Activation, x: Any, key: Any) -> Then | None:
    if (kind := kind_of_items(x)) is not type(x):
        a.o.kind(x)
    if INERT[kind]:
        return None if INERT[type(key)] else a.o.taken([x, key])
    numbered = kind in (list, tuple) and type(key) is int and 0 <= key < len(x)
    if numbered or (kind in MAPPINGS and a.o.reads.is_key(key) and isinstance(x, dict)):
        place, at = functools.partial(a.o.reads.place, x), ("item", Key(key))
        found: Then | None = dispatch.found(a, "STORE_SUBSCR", key, place, at)
        if found is not None:
            return found
    if kind is deque:
        a.o.running = a
        dispatch.open_if_bounded(a.o, x)
    if kind is list and type(key) is int and -len(x) <= key < 0:
        found = dispatch.last(a, x, key)
        if found is not None:
            return found
    if kind is list and type(key) is slice:
        found = dispatch.tail(a, x, key)
        if found is not None:
            return found
    if kind in CONTAINERS:
        return both(None if INERT[type(key)] else a.o.taken([key]), a.o.item(x, key))
    if isinstance(x, np.ndarray) and not isinstance(x, Value):
        if isinstance(key, Value) and (key.dtype.kind, key.shape) == ("b", ()):
            a.o.refuse(
                UnsupportedError(
                    f"a plain array is indexed with a traced boolean{at_line()}, which NumPy would "
                    "take for an integer here. Use np.where, or index with int(condition)"
                )
            )
        return a.o.element(x, key)
    for answers in (repeated_calls.item, library_calls.item):
        if (asked := answers(a, x, key)) is not FOLLOWED:
            return asked
    a.o.kind(x)
    return both(a.o.operands([x, key]), handed_on(a, found_in_class(kind, "__getitem__")))


def handed_on(a: Activation, f: Any) -> Then | None:
    """Record that the instruction will look up by calling `f`, and return its result."""
    a.hands_on = code_called(f)
    return None if a.hands_on is None else a.looked_up


def store_subscript(a: Activation, _: Any) -> Then | None:
    fill(a, 1, 0, 2)
    put_key(a, 0, a.top(1), "__setitem__")
    if postpone_item(a, [a.top(2)]):
        return None
    if (note := repeated_calls.set_item(a)) is not FOLLOWED:
        return note
    return set_item(a, a.top(1), a.top(0), a.top(2))


def store_slice(a: Activation, _: Any) -> Then | None:
    fill(a, 2, 3)
    return set_item(a, a.top(2), slice(a.top(1), a.top(0)), a.top(3))


def set_item(a: Activation, x: Any, key: Any, value: Any) -> Then | None:
    if isinstance(x, Value):
        return a.o.taken([x, key, value])
    if remembers(a, x, key, value):
        return None
    note = change_item(a, x, key)
    # A container's item stores the value without reading it; elsewhere its parts are read.
    held = type(key) is slice if kind_of_items(x) in CONTAINERS else not INERT[type(value)]
    return both(note, a.o.taken([value]) if held else None)


def delete_subscript(a: Activation, _: Any) -> Then | None:
    put_key(a, 0, a.top(1), "__delitem__")
    if postpone_item(a, []):
        return None
    return change_item(a, a.top(1), a.top(0), deletes=True)


def change_item(a: Activation, x: Any, key: Any, deletes: bool = False) -> Then | None:
    """Record that an item of `x` will be set or deleted, which fails if it isn't there."""
    a.o.kind(x)
    note = None if INERT[type(key)] else a.o.taken([key])
    if deletes and kind_of_items(x) in MAPPINGS and a.o.reads.is_key(key):
        a.o.item(x, key, makes=False)
    a.o.sets_item(x, key, deletes)
    return note


def hashed(a: Activation, where: tuple[int, int]) -> None:
    """Record elements of a set or keys of a dict: every `step`-th operand, `count` in all."""
    step, count = where
    for k in range(step - 1, step * count, step):
        put_key(a, k)
        x = a.top(k)
        if not INERT[type(x)]:
            a.o.kind(x)
            a.o.reads.pin(x)


# ---- iterating


def iterate(a: Activation, _: Any) -> Then | None:
    x = a.top()
    # From Python 3.13 on, a comprehension calls `iter` on an array's iterator. Rows are views.
    rows = isinstance(x, np.ndarray) and x.ndim > 1 and not isinstance(x, Value)
    if INERT[type(x)] or type(x) is ARRAYS_ITERATOR or rows:
        return None
    if type(x) in CONTAINERS:
        a.o.running = a
        a.o.shallow(x)
        return None
    a.o.kind(x)
    return a.o.operands([x])


def begin_loop(a: Activation, _: Any) -> Then | None:
    """Handle the start of a `for`, or a comprehension, over the object on top of the stack."""
    counted = dispatch.counted(a)
    if counted is None:
        return iterate(a, _)
    note = None if isinstance(a.top(), (np.ndarray, range)) else iterate(a, _)
    replace(operand_at(a.stack, 0), counted)
    return note


def step_iterator(a: Activation, depth: int) -> None:
    place = a.o.reads.places.get(id(x := operand(a.stack, depth)))
    if place is not None and is_pythons_class(type(x)):  # its `__next__` is followed
        a.o.kind(x)
    elif place is not None:
        a.o.undoing.goes_on(a.o.reads, x)
        a.o.reads.use_once(place.word)
    elif a.loops:
        rest(a, a.frame.f_lasti >> 1)


# ---- calls


@library_calls.watched
def call(a: Activation, arg: tuple[int, tuple[str, ...]]) -> Then | None:
    return call_with(a, 0, *arg)


@library_calls.watched
def call_named(a: Activation, count: int) -> Then | None:
    """Handle a call whose names of keyword arguments are on the stack."""
    return call_with(a, 1, count, a.top())


def call_with(
    a: Activation, above: int, count: int, names: tuple[str, ...], filled: bool = False
) -> Then | None:
    """Handle a call. Below the arguments are a method and its object, or a callable and an empty
    entry, which is the lower one in Python 3.11 and 3.12, and the upper one in later versions."""
    first, second = entry(a.stack, above + count + 1), entry(a.stack, above + count)
    values = upper(a.stack, count, above)
    f = second if first is MISSING else first
    if a.o.lent is not None:
        a.o.lent.call(a, f, range(above, above + count))
        values = upper(a.stack, count, above)
        second = entry(a.stack, above + count)
    if first is not MISSING and second is not MISSING:
        values = [second, *values]
    named = len(names)
    if not named and stays(a, f, values):
        return None
    kwargs = dict(zip(names, values[len(values) - named :], strict=True)) if named else {}
    found = [] if filled else fill_called(a, f, values[: len(values) - named], kwargs)
    if found:
        del first, second, values, f, kwargs  # they would count among the references to an array
        fill_all(a, found)
        return call_with(a, above, count, names, filled=True)
    places = [above + k for k in range(count)]
    at = above + count + (first is not MISSING)
    passed = functools.partial(put_plain, a, places, None)
    positional = values[: len(values) - named]
    note = made_as_one(a, f, positional, kwargs, at, passed)
    if note is not FOLLOWED:
        return note
    f = put(a, f, above + count + (first is not MISSING), values, places, named=named)
    a.o.running = a
    a.direct = code_called(f)
    now, given = entry(a.stack, at), upper(a.stack, count, above)
    return unless_caught(a, now, given, called(a.o, f, positional, kwargs), positional, kwargs)


@library_calls.watched
def call_ex(a: Activation, flags: int | None) -> Then | None:
    return call_together(a, flags)


def call_together(a: Activation, flags: int | None, filled: bool = False) -> Then | None:
    above = has_mapping(flags)
    if a.o.lent is not None:
        for k in range(above + 1):
            a.o.lent.pass_on(a, k)
    kwargs = a.top(0) if above and a.top(0) is not MISSING else {}
    args, f = a.top(above), a.top(above + 1)
    lower = f is MISSING  # from Python 3.13 on the upper entry is empty
    f = a.top(above + 2) if lower else f
    passed = [*args] if type(args) in (list, tuple) else []
    found = [] if filled else fill_called(a, f, passed, kwargs if type(kwargs) is dict else {})
    if found:
        del args, f, kwargs, passed  # they would count among the references to an array
        fill_all(a, found)
        return call_together(a, flags, filled=True)
    if type(args) in (list, tuple) and type(kwargs) is dict:
        plain = functools.partial(put_plain, a, (), above)
        note = made_as_one(a, f, passed, kwargs, above + 1 + lower, plain)
        if note is not FOLLOWED:
            return note
    passed = passed if type(args) in (list, tuple) else [UNKNOWN]
    passed += kwargs.values() if type(kwargs) is dict else []
    f = put(a, f, above + 1 + lower, passed, together=above)
    o = a.o
    o.running = a
    a.direct = code_called(f)
    given = [*args] if type(args) in (list, tuple) else []
    if type(args) in (list, tuple):
        o.shallow(args)
    elif (given_by := o.operands([args])) is not None:
        given_by(None)
    if isinstance(kwargs, dict):
        o.shallow(kwargs)
    note = called(o, f, given, dict(kwargs) if type(kwargs) is dict else {})
    return unless_caught(a, f, a.top(above), note, given, kwargs)


def make_function(a: Activation, _: Any) -> None:
    code = a.top()
    if isinstance(code, CodeType):
        a.o.made.add(code)


@library_calls.watched
def enter_with(a: Activation, _: Any) -> Then | None:
    x = a.top()
    if x is MISSING:  # in Python 3.14, if the method's descriptor has bound it
        unknown(a, "LOAD_SPECIAL")
        return None
    for enters in (threads.enter_with, repeated_calls.enter_with, library_calls.enter_with):
        if (asked := enters(a, x)) is not FOLLOWED:
            _put_methods(a, x)
            return asked
    a.o.kind(x)
    for name in ("__enter__", "__exit__"):
        a.o.lookups.attribute(x, name)
    if (note := a.o.operands([x])) is not None:
        note(None)
    return None


def _put_methods(a: Activation, x: Any) -> None:
    """Put the methods of what has replaced `x` on top of the stack where Python has looked up those
    of `x`. From Python 3.14 on, `__exit__`, `x`, `__enter__` and `x` are on the stack, or a bound
    method and an empty entry."""
    by: Any = a.top()
    if IS_TAGGED and by is not x:
        replace(operand_at(a.stack, 1), type(by).__enter__)
        clear(operand_at(a.stack, 2))
        replace(operand_at(a.stack, 3), by.__exit__)


def formatted(a: Activation, how: tuple[int, int]) -> Then | None:
    """Record the text made of an operand: `how` is its depth and the kind of conversion."""
    x = a.top(how[0])
    if (note := repeated_calls.formatted(a, *how)) is not FOLLOWED:
        return note
    a.o.printed([x])
    return a.o.operands([x])


def match_class(a: Activation, _: Any) -> None:
    names, kind, x = a.top(0), a.top(1), a.top(2)
    a.o.kind(x)
    asked_kind(x)
    if isinstance(kind, type):
        a.o.lookups.attribute(kind, "__match_args__")
        a.o.read_all(named := getattr(kind, "__match_args__", ()))
        names = (*names, *named)
    for name in names:
        a.o.lookups.attribute(x, name)


def unknown(a: Activation, name: str) -> None:
    a.o.reads.use_once(f"the instruction {name}")
