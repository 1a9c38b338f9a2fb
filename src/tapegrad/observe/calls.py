"""Reads made by a call, unless its code is Python code that is followed.

A harmless function may read all of its arguments: their elements, items and items of items. An
array that is passed to a traced call becomes an input of the tape, and isn't recorded as read.
"""

from __future__ import annotations

import collections
import contextvars
import functools
import gc
import inspect
import operator
import os
import sys
import threading
import types
import warnings
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from tapegrad.core.installed import is_installed
from tapegrad.core.named import own_attribute
from tapegrad.observe.activations.generators import (
    draws_unseeded,
    made_generator,
    of_generator,
    taken_by_a_derivative,
)
from tapegrad.observe.activations.later_values import may_show, parts_of, read_back
from tapegrad.observe.activations.run_record import RunRecord
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.followed_calls import go_on, root_called
from tapegrad.observe.guards.locations import ABSENT, put_by, written
from tapegrad.observe.guards.queried import (
    CALLED_OUTSIDE,
    OF_STREAMS,
    advice_about,
    is_date,
    queried,
    reads_own,
    sets_options,
)
from tapegrad.observe.guards.uses import Then, both
from tapegrad.observe.objects import randomness
from tapegrad.observe.objects.containers import CHANGING
from tapegrad.observe.objects.files import may_tell
from tapegrad.observe.objects.inspection import found_in_class, kind_of_items
from tapegrad.observe.objects.naming import Key, name_of
from tapegrad.observe.objects.purity import (
    CONTAINERS,
    DISPATCHER,
    INERT,
    MAPPINGS,
    PLAIN_TYPES,
    is_file,
    is_numpys_module,
    is_own,
    is_pure,
    is_pythons_class,
    is_schema,
    is_self_contained,
    is_silent,
    module_of,
)
from tapegrad.observe.objects.settings import note_cache, note_warning
from tapegrad.observe.operands.plain_operands import BOUND, check_range, plain_of_key
from tapegrad.observe.packages.opaque import FOLLOWED, opaque
from tapegrad.observe.program.source import TAPEGRAD
from tapegrad.observe.reflection import ATTRIBUTE_METHODS, SPECIAL, in_context, read_vars
from tapegrad.primitives.base import Value


def called(o: RunRecord, f: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Then | None:
    """Record that `f(*args, **kwargs)` is about to be called."""
    kind: Any = type(f)
    if kind not in (types.FunctionType, np.ufunc, DISPATCHER):
        o.undoing.before_call(o.reads, f, args)
    if o.drawing is not None:  # `draw` has replaced the method
        if id(o.drawing) in o.unseeded:
            draws_unseeded(o, o.drawing)
        given, o.drawing = [x for x in args if x is not o.drawing], None
        return o.taken([*given, *kwargs.values()])
    if kind in (DISPATCHER, np.ufunc):
        if _harmless.get(id(f)) is not f:
            if is_pure(f):
                _note_harmless(f)
            elif kind is np.ufunc:
                _of_function(o, f)
            else:
                return _unknown(o, f, args, kwargs)
        if _are_calm(args, kwargs) and "out" not in kwargs:
            return None
        if f.__name__ in _TEXTS:
            o.printed(args)
        for x in written(f, args, kwargs):
            o.changes(x)
        return o.taken([*args, *kwargs.values()] if kwargs else args)
    if kind is types.FunctionType:
        if _harmless.get(id(f)) is not f:
            if not is_own(f.__code__):
                if is_silent(f.__code__):
                    return queried(o, f, args, kwargs, name_of(f), None) or _told(o, f)
                note = opaque(o, f, args, kwargs)
                return None if note is FOLLOWED else note
            if f.__code__.co_filename.startswith(TAPEGRAD) or is_pure(f):
                _note_harmless(f)
            else:
                return _unknown(o, f, args, kwargs)
        root_called(o, f)
        if _are_calm(args, kwargs):
            return None
        given = [*args, *kwargs.values()]
        for x in given:
            if not isinstance(x, Value) and module_of(type(x)).startswith("tapegrad."):
                go_on(o, x)
        # The methods that a derivative consists of are followed into.
        if hasattr(f, "derives") or (f.__module__ or "").startswith("tapegrad.runtime."):
            given = [x for x in given if not _is_users_method(x)]
        noted = getattr(f, "notes", ())  # classes whose reads it records itself
        given = [x for x in given if not isinstance(x, noted)] if noted else given
        return o.taken(given, whole=True)
    if f is randomness.seed():
        return of_generator(o, f, (randomness.numpys(), *args), kwargs)
    if _harmless.get(id(f)) is f and _are_calm(args, kwargs):
        return None
    seeded = randomness.is_seeded(f, args, kwargs)
    if seeded is not None:
        o.quiet = True  # some ask the system for a seed without using it
        note = o.taken([*args, *kwargs.values()])
        return both(note, lambda made: made_generator(o, made, seeded, args))
    special = SPECIAL.get(id(f))
    if special is not None and special[0] is f:
        return special[1](o, args, kwargs)
    if args and kind is not types.MethodType and isinstance(args[0], randomness.kinds()):
        return of_generator(o, f, args, kwargs)
    if f is threading.get_ident:
        o.reads.found("thread()", threading.get_ident(), "threading.get_ident")
        return None
    if kind is types.MethodType:
        return called(o, f.__func__, [f.__self__, *args], kwargs)
    if kind is functools.partial:
        return _partial(o, f, args, kwargs)
    if kind in (weakref.ref, weakref.WeakMethod):
        return _result_of(o, f, "{}()", "a weak reference")
    if kind is functools._lru_cache_wrapper:
        note = o.taken([*args, *kwargs.values()])
        return both(note, functools.partial(_remembered, o, f))
    if isinstance(f, Value):
        o.lookups.attribute(f, "__call__")
        return None
    note = opaque(o, f, args, kwargs)
    if note is not FOLLOWED:
        return note
    if isinstance(f, type):
        return _instance(o, f, args, kwargs)
    if kind in BOUND:
        held = f.__self__
        if held is not None and not isinstance(held, types.ModuleType):
            args = [held, *args]
            if isinstance(held, contextvars.ContextVar):
                return in_context(o, held, f.__name__)
            if isinstance(held, randomness.kinds()):
                return of_generator(o, f, args, kwargs)
    elif kind in _UNBOUND and args:
        if isinstance(args[0], contextvars.ContextVar):
            return in_context(o, args[0], f.__name__)
    elif module_of(kind).startswith("tapegrad."):
        go_on(o, f)
        return taken_by_a_derivative(o, [*args, *kwargs.values()])
    elif type(kind.__call__) is types.FunctionType and is_own(kind.__call__.__code__):
        return o.taken([f, *args, *kwargs.values()], whole=True)  # a callable object of NumPy's
    elif is_pythons_class(kind):  # its `__call__` is followed
        o.lookups.attribute(f, "__call__")
        return None
    elif kind in _READERS_OF_ATTRIBUTES:
        return _reader(o, f, args)
    is_own_file = bool(args) and is_file(type(args[0])) and o.reads.place(args[0]) is None
    if args and (is_own_file or is_self_contained(type(args[0]))) and kind in (*BOUND, *_UNBOUND):
        reads = own_attribute(f, "__name__", "") not in ("write", "flush", "close")
        if reads and (id(args[0]) in o.streams or may_show(args[:1])):
            o.reads.use_once("what is shown", OF_STREAMS)
        sets_options(o, f)  # decimal.localcontext(context)
        if o.reads.place(args[0]) is not None:
            o.reads.use_once(o.reads.places[id(args[0])].word)
        return o.taken([*args[1:], *kwargs.values()])
    if not is_pure(f):
        writes = own_attribute(f, "__name__", "") in ("write", "flush")
        if args and writes and any(args[0] is x for x in (sys.stdout, sys.stderr)):
            return o.taken(args[1:])  # as `print`
        if f is os.urandom:
            if is_installed(named_by := _namer(o)):
                return None  # a package's own identifier, which no value depends on
            if not named_by:
                o.refuse(randomness.drawn_by(o.label, "os.urandom"))
        return _unknown(o, f, args, kwargs)
    if kind is types.BuiltinFunctionType and f in _OF_NUMBERS:
        _note_harmless(f)
    return _method(o, f, args, kwargs)


def _is_users_method(f: Any) -> bool:
    is_bound = type(f) is types.MethodType and type(f.__func__) is types.FunctionType
    return is_bound and is_pythons_class(type(f.__self__))


def _of_function(o: RunRecord, f: np.ufunc) -> None:
    """Record the function that a ufunc of `np.frompyfunc` calls."""
    for held in gc.get_referents(f):
        if callable(held) and type(held) is not types.FunctionType:
            o.reads.use_once(name_of(f))  # in C: not followed
        elif callable(held) and o.reads.place(f) is not None and o.reads.place(held) is None:
            o.reads.constant(held, name_of(held))


# `sys._getframemodulename` exists from Python 3.12 on
_WHO_CALLS = (sys._getframe, getattr(sys, "_getframemodulename", sys._getframe))


def _unknown(o: RunRecord, f: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Then | None:
    """Record a function that may read anything. One that only reports state is called again at a
    later call."""
    if f in _WHO_CALLS and o.running is not None and not o.running.users:
        return None  # a library asks for its caller
    frame = None if o.running is None else o.running.frame
    if is_date(f) and frame is not None and is_installed(frame.f_code.co_filename):
        return o.date
    if o.reads.effects and may_tell(f, o.reads.effects, parts_of([*args, *kwargs.values()])):
        read_back(o)
    if reads_own(o, f, args) or sets_options(o, f):
        return o.taken([*args, *kwargs.values()])
    note = queried(o, f, args, kwargs, name_of(f), frame)
    if note is None:
        o.reads.use_once(name_of(f), advice_about(f))
    return note


def _namer(o: RunRecord) -> str:
    """The file of the caller of `uuid`, if the running frame is that module's; else an empty
    text."""
    frame = None if o.running is None else o.running.frame
    made = frame is not None and frame.f_globals.get("__name__") == "uuid" and frame.f_back
    return made.f_code.co_filename if made else ""


CACHED_FUNCTIONS = 10_000  # maximal number of cached functions
_harmless: dict[int, Any] = {}  # harmless functions of C and NumPy, by id
_OF_NUMBERS = {abs, divmod, len, max, min, pow, round, sum}  # reveal nothing else of arguments


def _note_harmless(f: Any) -> None:
    if len(_harmless) >= CACHED_FUNCTIONS:
        _harmless.clear()
    _harmless[id(f)] = f


def _are_calm(args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Whether no argument has anything to record."""
    for x in args:
        if not INERT[type(x)]:
            return False
    return not kwargs or all(INERT[type(x)] for x in kwargs.values())


_UNBOUND = (
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
)
_READERS_OF_ATTRIBUTES = (
    type(operator.attrgetter("a")),
    type(operator.itemgetter(0)),
    type(operator.methodcaller("a")),
)


def _told(o: RunRecord, f: Any) -> Then:
    """Record a function that only reports something, or loads code: its result is state of the
    program."""

    def then(result: Any) -> None:
        if isinstance(result, types.ModuleType):
            known = sys.modules.get(result.__name__) is result
            o.loaded(result.__name__ if known else "", result)
        elif module_of(type(result)) == "logging":
            o.reads.place(result) or o.reads.constant(result, name_of(f))
        elif result is not None:
            o.reads.use_once(name_of(f))

    return then


# ---- callables that call others


def _partial(o: RunRecord, f: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Then | None:
    o.partial(f)
    return called(o, f.func, [*f.args, *args], {**f.keywords, **kwargs})


def _instance(o: RunRecord, kind: type, args: Sequence[Any], kwargs: dict[str, Any]) -> Then | None:
    if issubclass(kind, str):
        o.printed(args)
    if is_pythons_class(kind) and not is_numpys_module(module_of(kind)):
        for name in ("__new__", "__init__", "__call__"):
            meta = type(kind)
            if name == "__call__":
                if meta is not type and o.lookups.is_users_class(meta):
                    o.lookups.in_class(meta, name, inspect.getattr_static(meta, name, ABSENT))
            elif o.lookups.is_users_class(kind):
                o.lookups.in_class(kind, name, inspect.getattr_static(kind, name, ABSENT))
        # Classes written in C, from which it derives, aren't followed.
        plain = type(kind) is type and found_in_class(kind, "__new__") is object.__new__
        if plain and type(found_in_class(kind, "__init__")) is types.FunctionType:
            return None
        note = o.taken([*args, *kwargs.values()])
        return both(note, o.lookups.made_class) if issubclass(kind, type) else note
    dates = issubclass(kind, np.timedelta64)
    whole = issubclass(kind, np.integer) and not dates and args and isinstance(args[0], Value)
    if whole and args[0].dtype.kind == "i" and args[0]._read()[1] is not None:
        check_range(o, kind, args[0])
    now = kind is np.datetime64 and any(x in ("now", "today") for x in args)
    is_known = is_pure(kind) or kind is randomness.python_random()  # its seed is recorded
    is_known = is_known or module_of(kind).startswith("tapegrad.")  # it holds its arguments
    if not is_known or now:
        o.reads.use_once(name_of(kind), advice_about(kind, ""))
        return None
    given = [*args, *kwargs.values()]
    if kind is weakref.ref and len(given) == 1:
        return None  # it reads nothing of the object
    return o.taken(o.gone_through(given) if kind in _GOING_THROUGH else given)


# They read the items of their arguments, and not what these items hold.
_GOING_THROUGH = (list, tuple, dict, collections.deque, enumerate, zip, reversed)
_LOOKS = "iter copy items keys values __iter__ __reversed__ pop popleft clear reverse rotate"
_SHALLOW = frozenset(_LOOKS.split())


def _result_of(o: RunRecord, f: Any, text: str, word: str) -> Then:
    """Record a call whose result, an object of the program's, is the same at each call."""

    def then(result: Any) -> None:
        place = o.reads.place(f) or o.reads.constant(f, word)
        o.reads.read(place, "called", text, result, place.word)

    return then


def _remembered(o: RunRecord, f: Any, x: Any) -> None:
    """Record the result of a `functools.lru_cache` function: it may come from the cache, and is the
    same as long as it is kept there."""
    note_cache(o.reads, f, name_of(f), x)
    if type(x) not in PLAIN_TYPES and not isinstance(x, Value) and o.reads.place(x) is None:
        o.reads.constant(x, name_of(f)).like = type(x) in CONTAINERS


_FIELDS = (types.GetSetDescriptorType, types.MemberDescriptorType)
_TEXTS = {
    *("str", "repr", "ascii", "format", "format_map", "__str__", "__repr__", "__format__"),
    *("array2string", "array_repr", "array_str"),
}


def _method(o: RunRecord, f: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Then | None:
    """Record a call of a harmless function written in C."""
    name = own_attribute(f, "__name__", "")
    if name in ATTRIBUTE_METHODS and args and isinstance(f, (*BOUND, *_UNBOUND)):
        return ATTRIBUTE_METHODS[name](o, args, kwargs)
    if name == "__get__" and len(args) > 1 and isinstance(args[0], _FIELDS):
        if args[0].__name__ == "__dict__":
            return read_vars(o, args[1:2], {})
        o.lookups.attribute(args[1], args[0].__name__)
        return None
    if name == "acquire" and (len(args) > 1 or kwargs) and o.reads.place(args[0]) is not None:
        o.reads.use_once(o.reads.places[id(args[0])].word)  # whether the lock is free is read
    if name in _TEXTS:
        o.printed(args)
    if f is warnings.warn:
        given = kwargs.get("message", args[0] if args else None)
        category = kwargs.get("category", args[1] if len(args) > 1 else None) or UserWarning
        note_warning(o.reads, type(given) if isinstance(given, Warning) else category)
    if name == "__new__" and len(args) > 2 and all(isinstance(x, type) for x in args[:1]):
        return both(o.taken([*args[1:], *kwargs.values()]), o.lookups.making_class(args))
    if name in ("__reduce_ex__", "__reduce__", "__getstate__") and args:
        for x in o.lookups.whole_object(args[0]):
            o.read_all(x)
    # Looking up one item reads that item alone.
    if (
        args
        and kind_of_items(args[0]) in MAPPINGS
        and name in ("get", "__getitem__", "__contains__")
    ):
        if len(args) < 2:
            return None
        if name == "get" and isinstance(args[0], dict) and o.reads.is_key(args[1]):
            place, at = functools.partial(o.reads.place, args[0]), ("item", Key(args[1]))
            found: Then | None = dispatch.found(o.running, "STORE_SUBSCR", args[1], place, at)
            if found is not None:
                return found
        return o.item(args[0], args[1], name == "__getitem__")
    if args and name in ("__getitem__", "item") and type(args[0]) in CONTAINERS and len(args) == 2:
        return o.item(args[0], args[1])
    if args and name == "__next__" and o.reads.place(args[0]) is not None:
        o.reads.use_once(o.reads.places[id(args[0])].word)
        return None
    texts = name in ("format", "format_map") and args and isinstance(args[0], str)
    if texts and not all(INERT[type(x)] for x in (*args[1:], *kwargs.values())):
        o.reads.use_once("str.format")  # it may read attributes
    # Adding values at an end doesn't read the values that are there.
    kind: Any = kind_of_items(args[0]) if args else None
    puts = put_by(name, args)
    sets = _set_by(o, name, args, kwargs) if kind in MAPPINGS else None
    if name in CHANGING and sets is None and puts is None:
        dispatch.open(o, args[0])
    given = [*(args if sets is None and puts is None else args[1:]), *kwargs.values()]
    if puts is not None and not name.startswith("extend"):
        given = []  # it stores a value without reading it
    if args and is_schema(kind):
        model = o.reads.place(args[1]) if name == "validate_assignment" else None
        if model is not None:
            o.reads.use_once(model.word, CALLED_OUTSIDE)
        o.in_schema = True  # its own functions are always the same
        return both(o.taken(given, whole=True), lambda result: setattr(o, "in_schema", False))
    moves = name in _SHALLOW and _are_calm(given[1:], {})
    moves = moves or puts is not None or (sets is not None and _are_calm(sets, {}))
    note = o.taken(o.gone_through(given) if moves else given)
    if puts is not None:
        o.adds(args[0], *puts)
    elif sets is not None:
        for key in sets:
            o.sets_item(args[0], key)
    elif args and name in CHANGING:
        o.changes(args[0])
    elif len(args) > 1 and name == "at" and type(args[0]) is np.ufunc:
        o.changes(args[1])
    return note


def _set_by(
    o: RunRecord, name: str, args: Sequence[Any], kwargs: dict[str, Any]
) -> list[Any] | None:
    """The keys that a call of a dict's method sets. None if the method reads anything else."""
    if name in ("update", "__ior__") and type(args[0]) is not collections.Counter:
        if all(type(x) is dict for x in args[1:2]) and len(args) < 3:
            return [*(key for x in args[1:] for key in x), *kwargs]
    elif name in ("setdefault", "__setitem__") and len(args) in (2, 3) and not kwargs:
        plain = plain_of_key(args[1])  # it has replaced the key in the call
        args = args if plain is None else [args[0], plain, *args[2:]]
        if name == "setdefault" and o.reads.is_key(args[1]):
            o.item(args[0], args[1], makes=False)
        return [args[1]] if name == "__setitem__" or args[1] not in args[0] else []
    return None


def _reader(o: RunRecord, f: Any, args: Sequence[Any]) -> Then | None:
    """Record attrgetter, itemgetter or methodcaller: the names that they look up are their
    arguments."""
    _, how = f.__reduce__()
    if not args:
        return None
    if isinstance(f, operator.attrgetter):
        for path in how:
            x = args[0]
            for name in path.split("."):
                o.lookups.attribute(x, name)
                x = getattr(x, name, None)
        return None
    if isinstance(f, operator.itemgetter):
        for key in how:
            note = o.item(args[0], key)
            if note is not None and len(how) > 1:
                o.read_all(args[0])
        return o.item(args[0], how[0]) if len(how) == 1 else None
    name = how[0] if isinstance(how, tuple) and isinstance(how[0], str) else ""
    o.lookups.attribute(args[0], name)
    method = getattr(args[0], name, None)
    return called(o, method, how[1:], {}) if method is not None else None
