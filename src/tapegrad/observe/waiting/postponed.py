"""Changes of existing objects that are postponed to the end of a run.

    heapq.heappush(self.heap, loss)    the contents aren't read before the call is over, so they
    counts.update(steps=3)             don't matter: each call makes the same changes, with its
    jobs.put((loss, x))                own numbers, as the last thing that it does

If such an object is read earlier, the changes are made at that moment, and the tape is used once.
From the next trace on they are made where the program makes them.
"""

from __future__ import annotations

import collections
import functools
import sys
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tapegrad.core.handlers import let_through
from tapegrad.core.named import own_attribute
from tapegrad.ir.tape import Source
from tapegrad.observe.activations.activation import Activation
from tapegrad.observe.activations.code_facts import AT_ONCE, places
from tapegrad.observe.activations.error_handlers import is_caught
from tapegrad.observe.activations.retracing import Retrace
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.guards.locations import Location
from tapegrad.observe.guards.reads import Reads
from tapegrad.observe.objects.naming import Key
from tapegrad.observe.objects.progress_bars import is_unused
from tapegrad.observe.objects.purity import CONTAINERS
from tapegrad.observe.packages.opaque import FOLLOWED
from tapegrad.observe.program import frames
from tapegrad.observe.program.frames import MISSING, operand_at
from tapegrad.observe.program.source import user_source
from tapegrad.primitives.base import Value

_OF_DICTS = "clear pop"
_QUEUES = "put put_nowait task_done"
# Calls that change an object, and return nothing that is needed: methods by class, and functions by
# module, whose first argument is the object.
_METHODS = {
    "builtins.list": "sort reverse insert clear",
    "builtins.dict": _OF_DICTS,
    "builtins.set": "add discard clear",
    "collections.OrderedDict": f"{_OF_DICTS} move_to_end",
    "collections.defaultdict": _OF_DICTS,
    "collections.Counter": f"{_OF_DICTS} update subtract",
    "collections.deque": "rotate reverse clear",
    "array.array": "append extend insert reverse",
    "queue.Queue": _QUEUES,
    "queue.LifoQueue": _QUEUES,
    "queue.PriorityQueue": _QUEUES,
    "_queue.SimpleQueue": "put put_nowait",
    "threading.Event": "set clear",
    "_io.StringIO": "write writelines",
    "_io.BytesIO": "write writelines",
    "_heapq": "heappush heapify heappop heappushpop heapreplace",
    "_bisect": "insort_left insort_right",
}
_KNOWN = {name: frozenset(methods.split()) for name, methods in _METHODS.items()}
_COPYING = (
    "update",
    "subtract",
    "extend",
    "extendleft",
    "writelines",
)  # they read their arguments' contents
_BY_KEY = ("pop", "move_to_end")
_OF_SETS = ("add", "discard")
# Methods that may follow a postponed change of the same object.
_AFTER = ["append", "appendleft", "extend", "extendleft", "add", "discard", "update", "setdefault"]
_RAISING = (
    "move_to_end",
    "heappop",
    "heapreplace",
    "__setitem__",
    "__delitem__",
)  # if an item is missing
_GIVING = (
    "pop",
    "heappop",
    "heappushpop",
    "heapreplace",
    "write",
    "setdefault",
)  # a value that may be used


@dataclass(eq=False)
class Postponed:
    """A postponed call `f(x, *args, **kwargs)`, where x is the object of `holder`. `site` is its
    place in the program."""

    holder: Location
    f: Callable[..., Any]
    args: list[Any]
    kwargs: dict[str, Any]
    src: Source | None
    site: tuple[set[int], int]
    changes: Callable[[Any], None]  # records that a container is about to change
    trace: Any  # the trace that it is part of

    def at_once(self, reads: Reads) -> None:
        """Make the change now, and from the next trace on where the program makes it. If it fails
        now, the trace is repeated, so that the change is made there."""
        reads.use_once(self.holder.word)
        for x in self.held():
            if reads.place(x) is None:
                reads.constant(x, self.holder.word)
            self.changes(x)
        try:
            self.f(self.holder.x, *self.args, **self.kwargs)
        except Exception as error:  # by a traced key, or the program's own: raised there then
            let_through(error)
            self.trace.renounced = Retrace([self.site], None)  # if the program catches it
            raise self.trace.renounced from None
        held, at = self.site
        held.add(at)

    def held(self) -> list[Any]:
        """The containers that it changes."""
        x = self.holder.x
        if type(x) in CONTAINERS:
            return [x]
        return [v for v in getattr(x, "__dict__", {}).values() if type(v) in CONTAINERS]


def postpone(a: Activation, f: Any, args: Sequence[Any], kwargs: dict[str, Any], at: int) -> Any:
    """The recorder of a call, the operand number `at`, if it is postponed; else `FOLLOWED`."""
    kind: Any = type(f)
    if kind in (types.BuiltinFunctionType, types.MethodType) and _is_bound(f):
        args = [f.__self__, *args]
    x, name = args[0] if args else None, own_attribute(f, "__name__", "")
    if kind not in _CALLED or id(x) not in a.o.reads.places or not _is_known(a.o, f, x, name):
        return FOLLOWED
    if name == "pop" and isinstance(x, dict) and not is_unused(a.frame):
        return _popped(a, x, args[1:], at)
    given = _given(a, name, args[1:])
    method = getattr(type(x), name, None) or getattr(sys.modules[f.__module__], name)
    if given is None or not _waits(a, x, method, given, kwargs):
        return FOLLOWED
    frames.replace(operand_at(a.stack, at), _nothing)
    return None


def postpone_item(a: Activation, value: Sequence[Any]) -> bool:
    """Postpone the setting of an item, whose key is the topmost operand, to `value`, or its
    deletion. Returns False if no other change of the container is postponed, or if this one can't
    be."""
    x, key = a.top(1), a.top(0)
    if id(x) not in a.o.reads.waiting or type(x) not in CONTAINERS or not a.o.reads.is_key(key):
        return False
    name = "__setitem__" if value else "__delitem__"
    if not _waits(a, x, getattr(type(x), name), [key, *value], {}):
        return False
    frames.replace(operand_at(a.stack, 1), _SINK)
    return True


def _popped(a: Activation, x: Any, args: Sequence[Any], at: int) -> Any:
    """Replace `x.pop(key, default)` of a dict: the item is read now, and removed at the end."""
    key = args[0] if args else None
    given = x.get(key, args[1] if len(args) > 1 else MISSING) if a.o.reads.is_key(key) else MISSING
    if (
        given is MISSING
        or id(x) in a.o.reads.waiting
        or (id(x), ("item", Key(key))) in a.o.reads.written
    ):
        return FOLLOWED
    if not _waits(a, x, type(x).pop, [key, None], {}, begins=False):
        return FOLLOWED
    place, where = functools.partial(a.o.reads.place, x), ("item", Key(key))
    note = dispatch.found(a, "STORE_SUBSCR", key, place, where) if key in x else None
    if note is None:
        a.o.item(x, key, makes=False)
    _waits(a, x, type(x).pop, [key, None], {})
    frames.replace(operand_at(a.stack, at), lambda *_: given)
    return note


def _waits(
    a: Activation, x: Any, f: Any, args: list[Any], kwargs: dict[str, Any], begins: bool = True
) -> bool:
    """Whether a change `f(x, *args, **kwargs)` is postponed; it is recorded if it `begins` now."""
    code, place = a.frame.f_code, a.frame.f_lasti
    if place in places(code, AT_ONCE) or not _may_wait(a, f.__name__):
        return False
    if begins:
        a.o.identities.changes(x)
        site, holder = (places(code, AT_ONCE), place), a.o.reads.places[id(x)]
        notes = a.o.changes, a.o.trace
        change = Postponed(holder, f, args, dict(kwargs), user_source(), site, *notes)
        a.o.reads.postpone(change)
    return True


def _nothing(*args: Any, **kwargs: Any) -> None:
    """The replacement of a postponed call."""


class _Sink:
    """The replacement of a container with a postponed change."""

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def __delitem__(self, key: Any) -> None:
        pass


_SINK = _Sink()
_CALLED = (
    *(types.BuiltinFunctionType, types.MethodDescriptorType),
    *(types.FunctionType, types.MethodType),
)


def _is_bound(f: Any) -> bool:
    return not (f.__self__ is None or isinstance(f.__self__, (types.ModuleType, type)))


def _is_known(o: Any, f: Any, x: Any, name: str) -> bool:
    kind: Any = type(x)
    if name in _KNOWN.get(str(own_attribute(f, "__module__")), ()):
        return kind is list
    known = _KNOWN.get(f"{kind.__module__}.{kind.__qualname__}", ())
    if name not in known and not (
        name in _AFTER and kind in CONTAINERS and id(x) in o.reads.waiting
    ):
        return False
    method = getattr(kind, name, None)
    return f is method or own_attribute(f, "__func__") is method or f == getattr(x, name, None)


def _may_wait(a: Activation, name: str) -> bool:
    """Whether later calls would make the change as this run does."""
    o, trace = a.o, a.o.trace
    if not o.again or trace is None or not trace.is_innermost or trace.inside is not None:
        return False
    if o.apart is not None or o.library is not None or not a.users or a.turning is not None:
        return False
    return name not in _RAISING or not is_caught(a)


def _given(a: Activation, name: str, args: Sequence[Any]) -> list[Any] | None:
    """The arguments, as they are now; None if the call isn't postponed."""
    if name in _GIVING and not is_unused(a.frame):
        return None
    if name in _BY_KEY and not (args and all(map(a.o.reads.is_key, args[:1]))):
        return None
    if name in _OF_SETS and not (len(args) == 1 and _has_hash(a, args[0])):
        return None
    if name == "pop" and len(args) < 2:
        return None  # it raises KeyError
    if name not in _COPYING:
        return [*args]
    if not all(type(x) in (list, tuple, dict, collections.Counter, str) for x in args):
        return None  # others can be iterated once only
    if (note := a.o.taken(args)) is not None:
        note(None)
    return [x.copy() if hasattr(x, "copy") else x for x in args]


def _has_hash(a: Activation, x: Any) -> bool:
    """Whether this is a valid key, or a traced number, which each call makes plain."""
    traced: Any = x if isinstance(x, Value) else None
    return a.o.reads.is_key(x) if traced is None else traced._is_scalar()
