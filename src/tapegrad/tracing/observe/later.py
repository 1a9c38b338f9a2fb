"""Values that each call makes anew after its result, and the calls that they come from: see
`afterwards.py`."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tapegrad.errors import ConversionError
from tapegrad.ir.tape import Source
from tapegrad.tracing.dispatch import dispatch
from tapegrad.tracing.observe.files import path_of
from tapegrad.tracing.observe.harmless import is_file
from tapegrad.tracing.observe.naming import name_of
from tapegrad.tracing.observe.notes import Notes
from tapegrad.tracing.source import at_line, at_source, user_source
from tapegrad.tracing.texts import may_be_of, of_texts


class Text(str):
    """A text that each call makes anew."""


@dataclass(eq=False)
class AtTheTime:
    """A traced value as it is at one moment: its operand, and the value that the trace sees."""

    operand: Any
    value: Any
    aval: Any
    weak: bool
    is_array: bool


class Later:
    """A call `f(*args, **kwargs)`, with its arguments as they were then: traced values by their
    variables, later values by their calls. `has_effect` says that each call makes it, whether or
    not what it returns is kept, and `draws` that it is a plot's."""

    __slots__ = ("args", "draws", "f", "has_effect", "kwargs", "number", "src", "word")

    def __init__(
        self, number: int, f: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]
    ) -> None:
        self.number, self.f, self.args, self.kwargs = number, f, args, kwargs
        self.has_effect = self.draws = False
        self.word = name_of(f)
        self.src: Source | None = user_source()

    def getstate(self) -> None:
        """It draws from nothing: see `randomness.state_of`."""

    def again(self) -> Any:
        """What it gives now, where it depends on clocks alone."""
        made: dict[Later, Any] = {}
        for call in sorted(calls_in([self]), key=lambda call: call.number):
            args, kwargs = _filled(call.args, made), _filled(call.kwargs, made)
            made[call] = call.f(*args, **kwargs)
        return made[self]


def calls_in(values: Sequence[Any]) -> set[Later]:
    """The calls that values come from, and those before them."""
    return {x for x in held_in(values) if isinstance(x, Later)}


def held_in(values: Sequence[Any]) -> set[Any]:
    """These calls, and the traced values that were passed to them."""
    found: set[Any] = set()
    todo = [*values]
    while todo:
        x = todo.pop()
        if isinstance(x, (Later, AtTheTime)) and x not in found:
            found.add(x)
            todo += [*x.args, *x.kwargs.values()] if isinstance(x, Later) else ()
        elif type(x) in (list, tuple, dict):
            todo += x.values() if type(x) is dict else x
    return found


def read_back(o: Notes) -> None:
    """Something is read that may hold what the run has written before. No derivative goes through
    it: neither by values that were passed to such calls, nor by those that texts were made of."""
    for trace, operand, src in o.sent:
        _end(o, trace, operand, f"what a traced value is written to{at_source(src)} is read again")
    for trace, guard in of_texts():
        _end(o, trace, guard.operand, f"{_A_TEXT}{at_source(guard.src)} may be read again")


def made_a_number(o: Notes, text: Any) -> None:
    """A number is made of a text. It carries no derivative of those that texts were made of."""
    for trace, guard in of_texts():
        if may_be_of(text, guard.expected.value):
            _end(o, trace, guard.operand, f"{_A_TEXT}{at_source(guard.src)} is made a number again")


_A_TEXT = "the text of a traced value"


def _end(o: Notes, trace: Any, operand: Any, fact: str) -> None:
    """No derivative goes through a traced value any more, by this fact."""
    if (trace, operand) in o.ended:
        return
    o.ended.add((trace, operand))
    why = (
        f"{fact}{at_line()}, which carries no derivative. Compute with the value itself, or pass "
        "on tapegrad.stop_gradient(x) where no derivative is wanted"
    )
    if trace.alive:
        dispatch.end_derivative(trace, operand, why)
    else:
        o.refuse(ConversionError(why))


def _filled(x: Any, made: dict[Later, Any]) -> Any:
    """Arguments with what calls have given in their places."""
    if isinstance(x, Later):
        return made[x]
    if type(x) in (list, tuple):
        return type(x)(_filled(y, made) for y in x)
    return {k: _filled(y, made) for k, y in x.items()} if type(x) is dict else x


# ---- where a trace is made again


def now_of(
    o: Notes, later: Later, f: Any, args: Sequence[Any], kwargs: dict[str, Any]
) -> Callable[[], Any]:
    """What makes the call in the trace. Where a trace is made again, the first ones that have an
    effect are done, and give what they gave; a file that was closed is opened to be written on.
    What has gone since, with a folder for a while, is done once more."""
    k, left = len(o.done), left_by([*args, *kwargs.values()])
    if later.has_effect and k < len(o.known):
        word, known, found = o.known[k]
        if word == later.word and known == left and o.redone.isdisjoint(left):
            if not (getattr(found, "closed", False) or word.endswith(("close", "__exit__"))):
                return lambda: found
            if not word.endswith("open"):
                return functools.partial(f, *args, **kwargs)
            mode = kwargs.get("mode", args[1] if len(args) > 1 else "r")
            args = [args[0], mode.replace("w", "a").replace("x", "a"), *args[2:]]
            kwargs = {name: x for name, x in kwargs.items() if name != "mode"}
        else:
            o.redone.update(left)
    return functools.partial(f, *args, **kwargs)


def left_by(values: Sequence[Any]) -> dict[str, bool]:
    """The files and folders that values name, and whether they are there. What goes to an open file
    names no other."""
    values = values[:1] if values and is_file(type(values[0])) else parts_of(values)
    named = [x for x in values if type(x) is not str or os.sep in x]
    return {path: os.path.exists(path) for path in filter(None, map(path_of, named))}


def parts_of(values: Sequence[Any]) -> list[Any]:
    """Arguments, and what is in lists, tuples and dicts among them."""
    found: list[Any] = []
    for x in values:
        found.append(x)
        if type(x) in (list, tuple, dict) and len(found) < MOST:
            found += parts_of([*(x.values() if type(x) is dict else x)])
    return found


MOST = 10_000


def is_later(o: Notes, x: Any) -> bool:
    return id(x) in o.reads.anew


class Attribute:
    """An attribute, by its name."""

    def __init__(self, name: str) -> None:
        self.__name__ = self.__qualname__ = name

    def __call__(self, x: Any) -> Any:
        return getattr(x, self.__name__)


class Method:
    """A method, by its name: that of another object at each call."""

    def __init__(self, name: str) -> None:
        self.__name__ = self.__qualname__ = name

    def __call__(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(x, self.__name__)(*args, **kwargs)
