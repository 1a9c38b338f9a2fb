"""Functions of installed packages that each call of a derivative calls again.

These are functions in C, and functions in Python that can't be followed. The result in the trace is
a guard: a later call calls the function with the same arguments, and is traced anew if the result
differs, as it may for a function with state. It is called as often as in plain Python: during one
call of the derivative, the result is kept for the next variant that is tried, and for the trace.

Such a function may return objects, and be passed objects that were returned before: a model that is
created and fitted. They are different objects at each call, so an object is identified by the call
that returned it. Later queries of such an object, as of an attribute, are calls like the first.
Each attempt creates its own objects, since calls change them.
"""

from __future__ import annotations

import threading
import types
import weakref
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tapegrad.core.handlers import let_through
from tapegrad.core.named import own_attribute
from tapegrad.core.tables import is_pandas_object
from tapegrad.observe.guards.descriptions import (
    Bound,
    Incomparable,
    Made,
    New,
    Same,
    contents_of,
    copied,
    holds_made,
    is_object,
    is_source,
    kind_of,
    kinds_of,
    shared_in,
    stays,
    write_back,
)
from tapegrad.observe.guards.queried import CALLED_OUTSIDE, Leaf, bytes_of, same
from tapegrad.observe.guards.reads import Reads
from tapegrad.observe.objects import randomness
from tapegrad.observe.objects.files import are_changed
from tapegrad.observe.objects.purity import (
    CONTAINERS,
    is_extensions,
    is_scipys,
)


class Local(Leaf):
    """A function that a run has created, with its variables' values: each call creates one with
    copies of these."""

    def __init__(self, f: types.FunctionType, told: Callable[[Any], Any]) -> None:
        self.f = f
        cells = [[x.cell_contents] for x in f.__closure__ or () if x != types.CellType()]
        if len(cells) < len(f.__closure__ or ()) or [f] in cells:  # it calls itself
            raise Incomparable
        self.held = told((cells, f.__defaults__, f.__kwdefaults__))

    def made(self) -> types.FunctionType:
        """A new function for one call."""
        cells, defaults, named = filled(self.held)
        f, closure = self.f, tuple(types.CellType(*held) for held in cells)
        made = types.FunctionType(f.__code__, f.__globals__, f.__name__, defaults, closure)
        made.__kwdefaults__ = named
        return made

    def __eq__(self, other: Any) -> bool:
        is_one = isinstance(other, Local) and self.f.__code__ is other.f.__code__
        return is_one and same(self.held, other.held)

    __hash__ = None  # type: ignore[assignment]


class CallResult:
    """The result of a function, and its arguments before and after the call."""

    def __init__(self, f: Any, before: Any) -> None:
        self.f, self.before = f, before
        self.result: Any = None
        self.raw: Any = None  # the very objects, until the program has them; later a copy will do
        self.handed = False  # whether a trace has them
        self.objects: list[Any] = []  # new objects in the result
        self.olds: list[Any] = []  # existing objects in it that were returned before
        self.arrays: list[np.ndarray] = []  # the arrays in it
        self.after: Any = None
        self.error: Exception | None = None
        self.has_objects = holds_made(before)
        self.drew: list[tuple[Any, Any]] = []  # generators, and their states before
        self.once = False  # whether the call has taken a value that can't be put back
        self.shared: list[Any] = []  # containers in such a value that are referenced elsewhere

    def ask(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Call the function. The result may be one that can't be compared."""
        try:
            names = {"f": self.f, "args": args, "kwargs": kwargs}
            # The frame has no other names. C code may check whether an argument has one.
            found = eval(_CALL_BY_NAME if kwargs else _CALL, {"_": names})
        except Exception as error:
            let_through(error)
            self.error = error
            return None
        if self.once and type(found) in CONTAINERS:
            self.shared = shared_in(found)
        self.note(found, args, kwargs)
        self.raw = found
        return found

    def note(self, found: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Record the function's result."""
        self.result, self.after = self._held(found), contents_of((args, kwargs))
        self.has_objects = self.has_objects or bool(self.objects)

    def is_of(self, f: Any, before: Any) -> bool:
        """Whether this is the answer to the same call."""
        return _is_same_function(self.f, f) and same(self.before, before)

    def is_spent(self) -> bool:
        """Whether the result can be consumed only once, as a generator, and a trace has consumed
        it."""
        return self.handed and self.result is _OTHER and not self.once and is_source(self.raw)

    def is_like(self, other: CallResult, varies: bool = False) -> bool:
        """Whether both calls had the same result; if it `varies`, up to the values of numbers."""
        if self.error is not None or other.error is not None:
            return type(self.error) is type(other.error) and str(self.error) == str(other.error)
        told = kinds_of if varies else lambda x: x
        return same(told(self.result), told(other.result)) and same(self.after, other.after)

    def _held(self, x: Any) -> Any:
        """A description of a function's result. It is `_OTHER` if the result can't be compared."""
        known = {id(y): Made(k, n) for k, n, y in answers.objects()}

        def each(part: Any) -> Any:
            if isinstance(part, np.ndarray):
                self.arrays.append(part)
            if type(part) is types.MethodType and type(part.__func__) is types.FunctionType:
                holder = each(part.__self__)
                if isinstance(holder, Leaf):  # the method is found by its holder
                    return Bound(holder, part.__func__)
            if not is_object(part):
                return Same(part) if stays(part) else copied(part, each)
            if _was_returned(part) and id(part) not in known:
                known[id(part)] = Same(part)  # type: ignore[assignment]
                self.olds.append(part)
            elif id(part) not in known:
                known[id(part)] = New(len(self.objects), kind_of(part))  # type: ignore[assignment]
                self.objects.append(part)
            return known[id(part)]

        try:
            return each(x)
        except Incomparable:
            self.objects.clear()
            return _OTHER


_CALL = compile("_['f'](*_['args'])", "<asked anew>", "eval")
_CALL_BY_NAME = compile("_['f'](*_['args'], **_['kwargs'])", "<asked anew>", "eval")
_OTHER = object()  # equal to nothing
# Objects that calls in traces have returned, by id: returned again, they aren't new. For objects
# without weak references, such as SymPy's expressions, the answer that holds them.
_returned: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def _was_returned(x: Any) -> bool:
    found = _returned.get(id(x))
    return found is x or (type(found) is CallResult and any(y is x for y in found.objects))


class _CallResults(threading.local):
    # the answers in this call of the derivative, in order; None for one to be repeated
    given: list[CallResult | None] | None = None

    def objects(self) -> Iterator[tuple[int, int, Any]]:
        """Yield the returned objects so far, with the numbers of the call and of the object."""
        for k, answer in enumerate(self.given or ()):
            for n, x in enumerate(answer.objects if answer is not None else ()):
                yield k, n, x

    def renew(self) -> None:
        """Begin another attempt: drop answers with objects, and restore generators that were drawn
        from."""
        drew: list[tuple[Any, Any]] = []
        for k, answer in enumerate(self.given or ()):
            if answer is not None and not answer.once and (answer.has_objects or answer.drew):
                drew += answer.drew
                self.given[k] = None  # type: ignore[index]
        for generator, state in reversed(drew):
            randomness.put_back(generator, state)


answers = _CallResults()


@contextmanager
def one_call(given: list[CallResult | None] | None = None) -> Iterator[None]:
    """Context of one call of a derivative: no function is called twice in it for one call of the
    program. The answers in `given` so far remain valid."""
    before, answers.given = answers.given, [] if given is None else given
    try:
        yield
    finally:
        answers.given = before


class Query:
    """Call number `k` of such functions in a run, and its answer."""

    def __init__(self, k: int, answer: CallResult) -> None:
        self.k, self.answer = k, answer
        self.varies = False  # whether the numbers in the result are inputs of the tape

    def again(self) -> bool:
        """Whether the call has the same result now."""
        was = self.answer
        now = _given(self.k, was.f, was.before)
        if now is None:
            now = CallResult(was.f, was.before)
            now.once = was.once
            args, kwargs = filled(was.before)
            now.drew = [(g, randomness.state_of(g)) for g, _ in was.drew]
            now.ask(args, kwargs)
            _give(self.k, now)
        return now.is_like(was, self.varies)

    def number(self, path: Sequence[Any]) -> Any:
        """A number or array in the call's current result."""
        given = answers.given
        answer = given[self.k] if given is not None and self.k < len(given) else None
        found: Any = None if answer is None else answer.raw
        for key in path if found is not None else ():
            found = found[key]
        return found

    def part(self, n: int) -> Any:
        """Object number `n` in the call's current result."""
        given = answers.given
        answer = given[self.k] if given is not None else None
        return answer.objects[n] if answer is not None else None


class Queries:
    """The calls of such functions in one run."""

    def __init__(self, reads: Reads) -> None:
        self.reads = reads
        self.count = 0
        self.takes = 0  # the number of calls that took a value from an iterator or a queue
        self.last: Query | None = None  # the call that has just been made
        self.made: dict[int, Any] = {}  # returned objects, by id
        self.olds: dict[int, Any] = {}  # and those that existed before
        self._returned: list[tuple[np.ndarray, int]] = []  # returned arrays, and checksums

    def call(self, f: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Make the program's own call and return its result."""
        self.last = None
        if type(f) is types.MethodType and type(f.__func__) is types.FunctionType:
            f, args = f.__func__, (f.__self__, *args)
        elif type(getattr(type(f), "__call__", None)) is types.FunctionType:  # noqa: B004
            f, args = type(f).__call__, (f, *args)
        elif id(f) in self.made:
            f, args = _called, (f, *args)
        try:
            before = self._told((args, kwargs))
            self._check_holder(f)
        except Incomparable:
            return f(*args, **kwargs)
        if are_changed(self.reads.effects, (*args, *kwargs.values())):
            return f(*args, **kwargs)
        k, self.count = self.count, self.count + 1
        answer = _given(k, f, before)
        if answer is None or answer.is_spent():
            answer = CallResult(f, before)
            answer.once = any(map(is_source, (own_attribute(f, "__self__"), *args)))
            found = answer.ask(args, kwargs)
            _give(k, answer)
        else:
            found = answer.raw
            if answer.result is not _OTHER:
                answer.raw = None
                found = filled(answer.result) if found is None else found
            if answer.error is None:
                write_back(answer.after, (args, kwargs))
        answer.handed = True
        self.takes += answer.once
        self.last = Query(k, answer)
        if answer.error is not None:
            raise answer.error
        return found

    def asked(self, f: Any, args: Sequence[Any]) -> Callable[[Any], None]:
        """The recorder of the result of an instruction that is equivalent to `f(*args)`."""
        self.last = None
        try:
            answer = CallResult(f, self._told((args, {})))
        except Incomparable:
            return lambda result: None

        def then(result: Any) -> None:
            k, self.count = self.count, self.count + 1
            _given(k, f, answer.before)  # drops the answers of another path
            answer.note(result, args, {})
            _give(k, answer)
            self.last = Query(k, answer)

        return then

    def note(self, word: str, site: tuple[set[int], int] | None = None) -> None:
        """Guard the result of the call that has just been made. If the guard fails, `site` is
        noted."""
        question, self.last = self.last, None
        answer = None if question is None else question.answer
        if answer is None or not answer.is_like(answer):
            self.reads.use_once(word, CALLED_OUTSIDE)
            return
        answer.raw = None
        if answer.has_objects:
            self.reads.again()
        name, self.reads.asks = self.reads._value(question), True
        self.reads.called.add(word)
        self.reads.found(f"{name}.again()", True, word)
        if site is not None:
            self.reads.lines[self.reads.guards[-1][0]] = site
        for x in answer.olds:
            self.olds[id(x)] = x
            self.reads.constant(x, word)
        for n, x in enumerate(answer.objects):
            self.made[id(x)] = x
            try:
                _returned[id(x)] = x
            except TypeError:
                _returned[id(x)] = answer
            if self.reads.place(x) is not None:  # it existed before
                self.reads.use_once(word, CALLED_OUTSIDE)
                return
            place = self.reads._place(x, self.reads._assigned(f"{name}.part({n})"), word)
            if isinstance(x, np.ndarray):
                self.reads.contents(place)
        if any(checksum != _checksum(x) for x, checksum in self._returned):
            self.reads.use_once(word, CALLED_OUTSIDE)  # the tape may have used the former contents
        if answer.has_objects:
            self._returned += [(x, _checksum(x)) for x in answer.arrays]

    def can_be_told(self, x: Any) -> bool:
        """Whether a value can be passed to such a function again."""
        try:
            return self._told(x) is not _OTHER
        except Incomparable:
            return False

    def _told(self, x: Any) -> Any:
        """A description of an argument; raises `Incomparable` if it can't be described
        completely."""
        if id(x) in self.made:
            found = next((Made(k, n) for k, n, y in answers.objects() if y is x), None)
            if found is None:
                raise Incomparable
            return found
        known = isinstance(x, randomness.kinds()) or is_source(x)
        if known and self.reads.place(x) is not None:
            self.reads.pin(x)
            return Same(x)
        if type(x) is types.FunctionType:
            return Same(x) if self.reads.place(x) is not None else Local(x, self._told)
        if is_object(x):
            kind: Any = type(x)
            if self.reads.place(x) is None and not (is_pandas_object(x) or is_scipys(kind)):
                raise Incomparable
            return Same(x)
        return Same(x) if stays(x) else copied(x, self._told)

    def _check_holder(self, f: Any) -> None:
        """Check that a method's object exists before the run."""
        holder = own_attribute(f, "__self__")
        if is_extensions(type(holder)) and self.reads.place(holder) is None:
            raise Incomparable


def _called(f: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Call a function that a call has returned."""
    return f(*args, **kwargs)


def filled(x: Any) -> Any:
    """A copy of a description with the objects that its leaves represent."""
    if isinstance(x, Made):
        given = answers.given
        answer = given[x.k] if given is not None else None
        if answer is None:
            raise LookupError("an object that wasn't made")
        return answer.objects[x.part]
    if isinstance(x, Bound):
        return types.MethodType(x.function, filled(x.holder))
    if isinstance(x, Local):
        return x.made()
    return x.x if isinstance(x, Same) else copied(x, filled)


def _checksum(x: np.ndarray) -> int:
    return zlib.crc32(bytes_of(x))


def _given(k: int, f: Any, before: Any) -> CallResult | None:
    """The answer to this call in the current call of the derivative, if it was made already."""
    known = answers.given
    answer = None if known is None or k >= len(known) else known[k]
    if answer is not None and not answer.is_of(f, before):
        del known[k:]  # type: ignore[union-attr]  # another path
        return None
    return answer


def _give(k: int, answer: CallResult) -> None:
    known = answers.given
    if known is not None and k <= len(known):
        known[k : k + 1] = [answer]


def _is_same_function(f: Any, g: Any) -> bool:
    holder = own_attribute(f, "__self__")
    is_method = holder is not None and holder is getattr(g, "__self__", None)
    return f is g or (is_method and f.__name__ == g.__name__)
