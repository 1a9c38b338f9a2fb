"""Values that each call makes anew after its result, and the calls that they come from: see
`afterwards.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tapegrad.ir.tape import Source
from tapegrad.tracing.observe.naming import name_of
from tapegrad.tracing.observe.notes import Notes
from tapegrad.tracing.source import user_source


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
    found: set[Later] = set()
    todo = [*values]
    while todo:
        x = todo.pop()
        if isinstance(x, Later) and x not in found:
            found.add(x)
            todo += [*x.args, *x.kwargs.values()]
        elif type(x) in (list, tuple, dict):
            todo += x.values() if type(x) is dict else x
    return found


def _filled(x: Any, made: dict[Later, Any]) -> Any:
    """Arguments with what calls have given in their places."""
    if isinstance(x, Later):
        return made[x]
    if type(x) in (list, tuple):
        return type(x)(_filled(y, made) for y in x)
    return {k: _filled(y, made) for k, y in x.items()} if type(x) is dict else x


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
