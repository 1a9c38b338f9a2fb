"""Guards checked once, without a function of their own.

A trace's guards are checked when it has ended, and most never again before machine code checks
them: to compile a function of them would take longer than anything else at a first call. But their
lines are alike: `v4['sum'] is v5` says of other names what `v2['exp'] is v3` says. So there is one
function for all lines that differ in names, texts and integers alone, by what stands between these.
"""

from __future__ import annotations

import ast
import marshal
import re
import reprlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tapegrad.core.handlers import let_through
from tapegrad.observe.objects.comparing import HELPERS

# What the lines of guards differ in: the names that `reads` gives, texts without escapes, integers.
_DIFFERING = re.compile(
    r"((?<![\w.])(?:f|args|kwargs|[vx]\d+|drawn\d+)\b|'[^'\"\\]*'|(?<![\w.])\d+(?![\w.]))"
)
_INTRICATE = re.compile(r"[\"\\]")  # where it isn't plain which quotes belong together

MOST = 1000  # functions that are held
_functions: dict[tuple[str, ...], Callable[..., Any]] = {}  # by what stands between the names


def hold_now(
    guards: Sequence[tuple[str, str]], values: dict[str, Any], f: Any, args: Any, kwargs: Any
) -> bool:
    """Whether these guards hold."""
    return next(failing(guards, values, f, args, kwargs), None) is None


def failing(
    guards: Sequence[tuple[str, str]], values: dict[str, Any], f: Any, args: Any, kwargs: Any
) -> Iterator[tuple[str, str]]:
    """The guards that don't hold, up to one that can't be asked. Places that none of them uses
    aren't gone to."""
    found = _Values({**values, "f": f, "args": args, "kwargs": kwargs})
    for line, word in guards:
        if not word:
            name, _, text = line.partition(" = ")
            found.places[name] = text
            continue
        try:
            if not found.of(line):
                yield line, word
        except Exception as error:  # what was there is gone, or of another kind
            let_through(error)
            yield line, word
            return


def difference(
    guards: Sequence[tuple[str, str]], values: dict[str, Any], f: Any, args: Any, kwargs: Any
) -> tuple[str, str, str]:
    """What the user calls the first thing that isn't as the guards have it, what it was, and what
    it is now; empty where that isn't known."""
    found = _Values({**values, "f": f, "args": args, "kwargs": kwargs})
    for line, word in failing(guards, values, f, args, kwargs):
        found.places = dict(line.split(" = ", 1) for line, word in guards if not word)
        now, before = _sides(ast.parse(line, mode="eval").body, found)
        return word, before, now
    return "", "", ""


def _sides(test: ast.expr, values: _Values) -> tuple[str, str]:
    """What stands on both sides of a guard's first comparison, as texts."""
    while isinstance(test, ast.BoolOp):
        test = test.values[0]
    if not isinstance(test, ast.Compare):
        return "", ""
    left, right = test.left, test.comparators[0]
    is_packed = isinstance(left, ast.Call) and ast.unparse(left.func) == "marshalled"
    if is_packed:
        left = left.args[0]  # type: ignore[attr-defined]
    try:
        now, before = [values.of(ast.unparse(side)) for side in (left, right)]
        if isinstance(test.ops[0], ast.NotIn):  # a name that is set now, and wasn't
            return shown(before[now]) if isinstance(before, dict) else shown(now), "nothing"
        is_gone = isinstance(right, ast.Call) and before is None  # a weak reference
        before = (
            "what is gone" if is_gone else shown(marshal.loads(before) if is_packed else before)
        )
        sides = shown(now), before
    except Exception as error:  # it is gone, or of another kind
        let_through(error)
        return "", ""
    return sides if sides[0] != sides[1] else ("", "")


def shown(x: Any) -> str:
    """A value in few words."""
    if isinstance(x, (np.ndarray, np.generic)) and np.ndim(x):
        return f"an array of {x.dtype} with the shape {x.shape}"
    if isinstance(x, type):
        return x.__qualname__
    plain = isinstance(
        x, (bool, int, float, complex, str, bytes, tuple, list, dict, set, type(None))
    )
    return reprlib.repr(x) if plain else f"{type(x).__qualname__} at {id(x):#x}"


class _Values:
    """What expressions give, in terms of what is known, and of places, which become known."""

    def __init__(self, known: dict[str, Any]) -> None:
        self.known = known
        self.places: dict[str, str] = {}

    def of(self, text: str) -> Any:
        if _INTRICATE.search(text):
            for name in set(_DIFFERING.findall(text)) & self.places.keys():
                self.named(name)
            return eval(text, dict(self.known))
        parts = _DIFFERING.split(text)
        given: list[Any] = []
        for name in parts[1::2]:
            if name[0] == "'":
                given.append(name[1:-1])
            elif name.isdigit():
                given.append(int(name))
            else:
                given.append(self.named(name))
        return _function(tuple(parts[::2]))(*given)

    def named(self, name: str) -> Any:
        if name in self.places:
            self.known[name] = self.of(self.places.pop(name))
        return self.known[name]


def _function(between: tuple[str, ...]) -> Callable[..., Any]:
    """The function of lines with this text between what they differ in."""
    found = _functions.get(between)
    if found is None:
        names = [f"p{k}" for k in range(len(between) - 1)]
        text = "".join([x + name for x, name in zip(between, [*names, ""], strict=True)])
        if len(_functions) >= MOST:
            _functions.clear()
        found = _functions[between] = eval(f"lambda {', '.join(names)}: {text}", dict(HELPERS))
    return found
