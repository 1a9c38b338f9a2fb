"""Signatures of functions of rows, like those of NumPy's generalised ufuncs: `(m,n),(n)->(m)`.

The last axes of each argument belong to the function itself, as the signature names them. The axes
before broadcast over all arguments, and each entry of the broadcast shape is a row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tapegrad.core.request import Request, describe
from tapegrad.core.trees import is_traced
from tapegrad.errors import ArgumentError, TraceError
from tapegrad.observe.observer import unobserved
from tapegrad.runtime.mapped import Axes, VMap
from tapegrad.runtime.transformations import Jit, Transformation

_PART = r"\((?:\w+(?:,\w+)*)?\)"
_SIDE = rf"{_PART}(?:,{_PART})*"

Sizes = dict[str, int]


@dataclass(frozen=True)
class Signature:
    """The names of the core axes of each argument and each result."""

    arguments: tuple[tuple[str, ...], ...]
    results: tuple[tuple[str, ...], ...]

    @staticmethod
    def parsed(text: Any) -> Signature:
        if not isinstance(text, str) or not re.fullmatch(
            rf"{_SIDE}->{_SIDE}", re.sub(r"\s", "", text)
        ):
            raise ArgumentError(
                "vmap: a signature names the axes of a row's arguments and results, as "
                f"'(m,n),(n)->(m)' does, and not {text!r}"
            )
        first, second = [
            tuple([tuple(re.findall(r"\w+", part)) for part in re.findall(_PART, side)])
            for side in text.split("->")
        ]
        return Signature(first, second)

    def __str__(self) -> str:
        sides = [
            ",".join([f"({','.join(names)})" for names in side])
            for side in (self.arguments, self.results)
        ]
        return "->".join(sides)


@dataclass(frozen=True)
class Vectorized(Jit):
    """The function of arguments with any axes before those that the signature names. Arguments
    whose `in_axes` are None are passed whole, and aren't part of the signature."""

    in_axes: Axes
    signature: Signature

    name = "vmap"

    def within(self, request: Request) -> Request:
        return Request(_Calls(request.f, self), request.args, request.kwargs, request.names)


class _Calls:
    """The calls of a function for all entries of the axes before its own."""

    def __init__(self, f: Callable[..., Any], transformation: Vectorized) -> None:
        self.f, self.label = f, f"vmap of {describe(f)}"
        self.in_axes, self.signature = transformation.in_axes.spec, transformation.signature
        self.__name__ = describe(f)
        self.__wrapped__ = f

    @unobserved
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        mapped, cores = self._mapped(args), self.signature.arguments
        sizes: Sizes = {}
        leads = {
            k: self._lead(np.shape(args[k]), names, sizes, f"argument {k}", ArgumentError)
            for k, names in zip(mapped, cores, strict=True)
        }
        try:
            lead = np.broadcast_shapes(*leads.values())
        except ValueError:
            told = ", ".join([f"argument {k} has {shape}" for k, shape in leads.items()])
            raise ArgumentError(
                f"{self.label}: the axes before those of {self.signature} don't broadcast: {told}"
            ) from None
        count = int(np.prod(lead))
        given = list(args)
        axes: list[int | None] = [None] * len(args)
        for k, own in leads.items():
            if own:
                core = np.shape(args[k])[len(own) :]
                full = np.broadcast_to(args[k], (*lead, *core))
                given[k], axes[k] = np.reshape(full, (count, *core)), 0
        inner: Transformation = VMap(Axes(tuple(axes)), Axes(0), None) if lead else Jit()
        found = inner.inside(Request(self.f, given, kwargs))
        return self._results(found, lead, sizes)

    def _mapped(self, args: Sequence[Any]) -> list[int]:
        """The numbers of the arguments to which the signature applies."""
        each = self.in_axes
        if isinstance(each, (tuple, list)) and len(each) != len(args):
            raise ArgumentError(
                f"{self.label}: in_axes has {len(each)} entries, and {len(args)} positional "
                "arguments were passed. Give an entry for each"
            )
        whole = each if isinstance(each, (tuple, list)) else [each] * len(args)
        mapped = [k for k, axis in enumerate(whole) if axis is not None]
        if len(mapped) != len(self.signature.arguments):
            raise ArgumentError(
                f"{self.label}: its signature {self.signature} is about "
                f"{len(self.signature.arguments)} arguments, and {len(mapped)} were passed"
            )
        for k in mapped:
            if not is_traced(args[k]):
                raise ArgumentError(
                    f"{self.label}: argument {k} is a {type(args[k]).__name__}, and the signature "
                    "is about arrays and numbers. Say None for it in in_axes, and leave it out of "
                    "the signature: then it is passed whole"
                )
        return mapped

    def _lead(
        self, shape: Any, names: Sequence[str], sizes: Sizes, word: str, error: type[Exception]
    ) -> tuple[int, ...]:
        """The axes before the named ones, whose sizes are recorded."""
        own = shape[len(shape) - len(names) :]
        if len(names) > len(shape):
            raise error(
                f"{self.label}: {word} has shape {shape}, and the axes ({', '.join(names)}) in "
                f"the signature {self.signature}"
            )
        for name, n in zip(names, own, strict=True):
            wanted = int(name) if name.isdecimal() else sizes.setdefault(name, n)
            if wanted != n:
                raise error(
                    f"{self.label}: {word} has shape {shape}, so the axis {name!r} in the "
                    f"signature {self.signature} has {n} entries, and {wanted} elsewhere"
                )
        lead: tuple[int, ...] = shape[: len(shape) - len(names)]
        return lead

    def _results(self, found: Any, lead: tuple[int, ...], sizes: Sizes) -> Any:
        wanted = self.signature.results
        several = isinstance(found, (tuple, list))
        if several != (len(wanted) > 1) or (several and len(found) != len(wanted)):
            told = f"{len(found)} results" if several else "one result"
            raise TraceError(
                f"{self.label}: the function returns {told}, and its signature {self.signature} "
                f"has {len(wanted)}"
            )
        results = []
        for k, (x, names) in enumerate(zip(found if several else [found], wanted, strict=True)):
            core = np.shape(x)[1 if lead else 0 :]
            if self._lead(core, names, sizes, f"result {k} of a row", TraceError):
                raise TraceError(
                    f"{self.label}: result {k} of a row has shape {core}, and the axes "
                    f"({', '.join(names)}) in the signature {self.signature}"
                )
            results.append(np.reshape(x, (*lead, *core)) if lead else x)
        return tuple(results) if several else results[0]
