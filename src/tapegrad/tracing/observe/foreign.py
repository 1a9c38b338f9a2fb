"""Functions in C of installed packages: nothing is known of them, so each call calls them anew.

What such a function returned in the trace is a guard. A later call calls it with the same
arguments, and is traced anew if it returns something else, as one with a state of its own may. It
is called as often as in plain Python: what it has returned in a call of the derivative is kept
until that is over, for the next variant that asks, and for the trace.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tapegrad.core.handlers import let_through
from tapegrad.tracing.observe.asked import CALLED_OUTSIDE, TYPES, same
from tapegrad.tracing.observe.harmless import PLAIN_TYPES, is_extensions
from tapegrad.tracing.observe.reads import Reads


class Incomparable(Exception):
    """This can't be compared from call to call."""


class Answer:
    """What a function returned, and what its arguments were before and after."""

    def __init__(self, f: Any, before: Any) -> None:
        self.f, self.before = f, before
        self.result: Any = None
        self.after: Any = None
        self.error: Exception | None = None

    def ask(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Call the function. It may return what isn't compared."""
        try:
            found = self.f(*args, **kwargs)
        except Exception as error:
            let_through(error)
            self.error = error
            return None
        self.result, self.after = _held(found), _contents((args, kwargs))
        return found

    def is_of(self, f: Any, before: Any) -> bool:
        """Whether this is what the same call has returned."""
        return _is_same_function(self.f, f) and same(self.before, before)


class _Answers(threading.local):
    given: list[Answer] | None = None  # in the call of a derivative that is under way, in order


answers = _Answers()


@contextmanager
def one_call(given: list[Answer] | None = None) -> Iterator[None]:
    """One call of a derivative: nothing is called twice in it for one call of the program. What was
    `given` in it so far goes on to count."""
    before, answers.given = answers.given, [] if given is None else given
    try:
        yield
    finally:
        answers.given = before


class Question:
    """The call number `k` of such functions in a run, and what it returned then."""

    def __init__(self, k: int, answer: Answer) -> None:
        self.k, self.answer = k, answer

    def again(self) -> bool:
        """Whether the call gives the same now."""
        was = self.answer
        now = _given(self.k, was.f, was.before)
        if now is None:
            now = Answer(was.f, was.before)
            args, kwargs = copied(was.before)
            now.ask(args, kwargs)
            _give(self.k, now)
        if now.error is not None:
            return False
        return same(now.result, was.result) and same(now.after, was.after)


class Questions:
    """The calls of one run."""

    def __init__(self, reads: Reads) -> None:
        self.reads = reads
        self.count = 0
        self.last: Question | None = None  # the one that has just been made

    def call(self, f: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """What the program's own call returns."""
        self.last = None
        try:
            before = self._told((args, kwargs))
            self._check_holder(f)
        except Incomparable:
            return f(*args, **kwargs)
        k, self.count = self.count, self.count + 1
        answer = _given(k, f, before)
        if answer is None:
            answer = Answer(f, before)
            found = answer.ask(args, kwargs)
            _give(k, answer)
        else:
            found = copied(answer.result)
            _write_back(answer.after, (args, kwargs))
        if answer.error is not None:
            raise answer.error
        self.last = Question(k, answer)
        return found

    def note(self, word: str) -> None:
        """The call is over: what it returned is a guard."""
        question, self.last = self.last, None
        answer = None if question is None else question.answer
        if answer is None or not (
            same(answer.result, answer.result) and same(answer.after, answer.after)
        ):
            self.reads.lost(word, CALLED_OUTSIDE)
            return
        self.reads.asks = True
        self.reads.found(f"{self.reads._value(question)}.again()", True, word)

    def _told(self, x: Any) -> Any:
        """A copy of what is passed, of which all is known."""
        if is_extensions(type(x)):
            if self.reads.place(x) is None:
                raise Incomparable
            return x
        return copied(x, self._told)

    def _check_holder(self, f: Any) -> None:
        """What a method belongs to has to be an object of the outside."""
        holder = getattr(f, "__self__", None)
        if is_extensions(type(holder)) and self.reads.place(holder) is None:
            raise Incomparable


def copied(x: Any, each: Any = None) -> Any:
    """A copy of arguments or results, whose parts `each` copies."""
    kind: Any = type(x)
    each = each or copied
    if kind is np.ndarray and not x.dtype.hasobject:
        return x.copy(order="K")
    if kind in (tuple, list):
        return kind(map(each, x))
    if kind is dict:
        return {key: each(value) for key, value in x.items()}
    if kind is slice:
        return slice(each(x.start), each(x.stop), each(x.step))
    is_scalar = isinstance(x, (np.generic, np.dtype)) and not isinstance(x, np.void)
    is_type = isinstance(x, type) and (x in TYPES or issubclass(x, np.generic))
    if kind in PLAIN_TYPES or is_scalar or is_type or is_extensions(kind):
        return x
    raise Incomparable


def _contents(x: Any) -> Any:
    """The arrays among arguments, and what is in them. Objects are what they are."""
    return None if is_extensions(type(x)) else copied(x, _contents)


def _held(x: Any) -> Any:
    """A copy of what a function returned, that says whether it can be compared."""
    try:
        return copied(x)
    except Incomparable:
        return _OTHER


_OTHER = object()  # is like nothing


def _given(k: int, f: Any, before: Any) -> Answer | None:
    """What was returned in this call of the derivative already, if it was asked."""
    known = answers.given
    if known is None or k >= len(known):
        return None
    if known[k].is_of(f, before):
        return known[k]
    del known[k:]  # another path
    return None


def _give(k: int, answer: Answer) -> None:
    known = answers.given
    if known is not None and k == len(known):
        known.append(answer)


def _write_back(found: Any, x: Any) -> None:
    """Put what a function has written to its arguments into these."""
    if isinstance(x, np.ndarray):
        if not same(found, x):
            x[...] = found
    elif type(x) in (tuple, list):
        for part, own in zip(found, x, strict=True):
            _write_back(part, own)
    elif type(x) is dict:
        for key, own in x.items():
            _write_back(found[key], own)


def _is_same_function(f: Any, g: Any) -> bool:
    holder = getattr(f, "__self__", None)
    if f is g or holder is None:
        return f is g
    return holder is getattr(g, "__self__", None) and f.__name__ == g.__name__
