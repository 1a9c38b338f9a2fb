"""The lines of an entry that unpack the user's arguments, and the expressions of its results.

They check that the arguments are of the variant's kind: their containers, types, dtypes and
layouts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from tapegrad.backends.source.arguments import (
    Mark,
    is_named_tuple,
    is_plain_tree,
    put_together,
    take_apart,
)
from tapegrad.core import instances
from tapegrad.core.instances import Fields, Functions, tree_of
from tapegrad.core.request import leaf_key
from tapegrad.core.statics import is_generator
from tapegrad.core.trees import is_traced
from tapegrad.tracing.memory.aliasing import lie_apart


class NotSimple(Exception):
    """The arguments or results have a structure for which no entry is generated."""


class Unpacker:
    """Writes the lines that unpack arguments and check that they are of the variant's kind."""

    def __init__(self, text: Any, alike: bool = False) -> None:
        self.text = text
        self.alike = alike  # whether Python's floats are taken for np.float64
        self.lines: list[str] = []
        self.inputs = iter(text.driver.inputs)

    def _miss_if(self, condition: str) -> None:
        self.lines += self.text.missed(condition)

    def _said(self, x: Any) -> str:
        """The name of a type or function in the source."""
        return self.text.named(x.__name__, x)

    def unpack_arguments(self, place: str, args: Sequence[Any]) -> None:
        self._miss_if(f"{self._said(len)}({place}) != {len(args)}")
        for position, arg in enumerate(args):
            self.unpack(f"{place}[{position}]", arg)

    def unpack(self, place: str, tree: Any) -> None:
        take_apart(place, tree, self._enter)

    def _enter(self, place: str, x: Any) -> str | None:
        """Check a value. Returns the name of a container, whose parts come next; None for
        others."""
        if is_traced(x):
            self._leaf(place, x)
            return None
        if is_plain_tree(x) or is_named_tuple(x):
            return self._container(place, x)
        if has_called(x):
            self._parts(place, x)
        elif x is None:
            self._miss_if(f"{place} is not None")
        elif type(x) in (bool, str, bytes):
            kind = f"{self._said(type)}({place}) is not {self._said(type(x))}"
            self._miss_if(f"{kind} or {place} != {x!r}")
        elif is_generator(x):
            self._miss_if(f"{self._said(type)}({place}) is not {self._said(type(x))}")
        else:
            raise NotSimple
        return None

    def _container(self, given: str, x: Any) -> str:
        place = self.text.scope.fresh("a")
        self.lines.append(f"{place} = {given}")
        kind = f"{self._said(type)}({place}) is not {self._said(type(x))}"
        if isinstance(x, dict):
            (key_type, *others) = {type(k) for k in x} or {str}
            if others:
                raise NotSimple
            types = f"{{*{self._said(map)}({self._said(type)}, {place})}}"
            one = self.text.named("key_types", {key_type})
            self._miss_if(f"{kind} or [*{place}] != {list(x)!r}")
            if x:  # equal keys may differ in type: 1, 1.0 and True
                self._miss_if(f"{types} != {one}")
        else:
            self._miss_if(f"{kind} or {self._said(len)}({place}) != {len(x)}")
        return place

    def _parts(self, given: str, x: Any) -> None:
        """Flatten an instance with its class's function, into branches and data that must be
        unchanged."""
        kind, place = self._said(type(x)), self.text.scope.fresh("a")
        self._miss_if(f"{self._said(type)}({given}) is not {kind}")
        how = tree_of(type(x))
        if isinstance(how, Functions):
            flatten: Any = how.flatten
            parts, rest = flatten(x)
            rest, key = how.key(type(x), rest), f"{self._said(how.key)}({kind}, {place}[1])"
        else:
            flatten, key = instances.take_apart, f"{place}[1]"
            parts, rest, _ = flatten(x)
        self.lines.append(f"{place} = {self._said(flatten)}({given})")
        self._miss_if(f"{key} != {self.text.named('key', rest)}")
        for k, part in enumerate(parts):
            self.unpack(f"{place}[0][{k}]", part)

    def _leaf(self, place: str, x: Any) -> None:
        given = next(self.inputs)
        name = given.name
        self.lines.append(f"{name} = {place}")
        if isinstance(x, np.ndarray) and x.shape and not is_plain(x):
            self.lines += self.text.of_layout(name, name, leaf_key(x), given.dtype)
            return
        if given.shape:
            if not given.checked:
                self._miss_if(self.text.unfit(name, given.shape, given.dtype))
            return
        kind = type(x)
        other = f"{self._said(type)}({name}) is not {self._said(kind)}"
        if self.alike and kind is np.float64:
            other += f" and {self._said(type)}({name}) is not {self._said(float)}"
        if kind is np.ndarray:
            dtype = self.text.named("dtype", x.dtype)
            self._miss_if(f"{other} or {name}.shape or {name}.dtype != {dtype}")
            self.lines.append(f"{name} = {name}.item()")
        elif kind is int:
            above = "" if given.checked else f" < {2**63}"  # a kernel checks larger ones
            self._miss_if(f"{other} or not {-(2**63)} < {name}{above}")
        else:
            self._miss_if(other)
            if issubclass(kind, np.complexfloating):
                self.lines.append(f"{name} = {name}.item()")


class Holding:
    """A result that holds `residuals`, which are outputs of the tape."""

    residuals: list[Any]

    def holding(self, residuals: list[Any]) -> Holding:
        """A copy with these residuals."""
        made: Holding = object.__new__(type(self))
        vars(made).update(vars(self))
        made.residuals = residuals
        return made


def written_as(text: Any, x: Any) -> str:
    """The expression of a result."""
    return put_together(
        x, partial(expression_of, text), lambda kind: text.named(kind.__name__, kind)
    )


def expression_of(text: Any, x: Any) -> str | None:
    """The expression of a part of the result; None for a container of parts."""
    if isinstance(x, Mark):
        return x.text
    if isinstance(x, Holding):
        return f"{text.named('holding', x.holding)}([{', '.join(r.text for r in x.residuals)}])"
    if has_called(x):
        how = tree_of(type(x))
        if isinstance(how, Functions):
            made = how.unflatten
            parts, rest = how.flatten(x)
        else:
            made = partial(instances.put_together, type(x))
            parts, rest, _ = instances.take_apart(x)
        inner = ", ".join(written_as(text, part) for part in parts)
        return f"{text.named('made', made)}({text.named('rest', rest)}, [{inner}])"
    if type(x) is float and not math.isfinite(x):
        return str(text.named("constant", x))
    if x is None or type(x) in (bool, str, int, float):
        return repr(x)
    if not (is_plain_tree(x) or is_named_tuple(x)):
        raise NotSimple
    return None


def has_called(x: Any) -> bool:
    """Whether this is an instance whose functions generated code may call."""
    how = tree_of(type(x))
    return isinstance(how, Fields) or (isinstance(how, Functions) and how.called)


def own(written: Sequence[np.ndarray], arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The arrays that a kernel writes into. Those that are read-only, or share memory with another
    array of the call, are replaced by copies."""
    shared: set[int] = set()
    if not lie_apart(arrays):
        at = [x.__array_interface__["data"][0] for x in arrays]
        end, last = -1, -1
        for start, k in sorted((start, k) for k, start in enumerate(at) if arrays[k].size):
            if start < end:
                shared |= {id(arrays[k]), id(arrays[last])}
            if start + arrays[k].nbytes > end:
                end, last = start + arrays[k].nbytes, k
    return [x.copy() if id(x) in shared or not x.flags.writeable else x for x in written]


def is_plain(x: np.ndarray) -> bool:
    return x.flags.c_contiguous and x.flags.aligned and x.dtype.isnative and type(x) is np.ndarray


def fits(x: Any, shape: tuple[int, ...], dtype: np.dtype) -> bool:
    """Whether an array is what a kernel takes."""
    return (
        type(x) is np.ndarray
        and x.shape == shape
        and x.dtype.num == dtype.num
        and x.dtype.isnative
        and x.flags.c_contiguous
        and x.flags.aligned
    )
