"""The arguments with respect to which a derivative is taken, chosen by number or by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from tapegrad.core.request import Request, describe
from tapegrad.errors import ArgumentError

Argnum = int | str
Argnums = Argnum | Sequence[Argnum]

_KEYWORD = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_MANY: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}


def checked_argnums(argnums: Any) -> Argnum | tuple[Argnum, ...]:
    """The value of `argnums`, checked: a number or name, or a tuple of these."""
    single = _checked(argnums)
    if single is not None:
        return single
    if isinstance(argnums, (tuple, list)):
        several = [_checked(a) for a in argnums]
        known = tuple([a for a in several if a is not None])
        if len(known) == len(several):
            return known
    raise ArgumentError(
        f"argnums is an argument's number or name, or a tuple of such, not {argnums!r}"
    )


def _checked(argnum: Any) -> Argnum | None:
    if isinstance(argnum, (int, np.integer)) and not isinstance(argnum, bool):
        return int(argnum)
    return str(argnum) if isinstance(argnum, str) else None


class Chosen:
    """The arguments selected by `argnums`. `transformation` is the name of the transformation, for
    messages."""

    def __init__(self, transformation: str, argnums: Argnum | tuple[Argnum, ...]) -> None:
        self.transformation = transformation
        self.argnums = argnums
        self.each = argnums if isinstance(argnums, tuple) else (argnums,)
        self.names = [a for a in self.each if isinstance(a, str)]

    def check(self, f: Callable[..., Any]) -> None:
        """Raise an ArgumentError if `f` can't have an argument with one of the names."""
        known = _parameters(f) if self.names else None
        if known is None or any(p.kind is p.VAR_KEYWORD for p in known.values()):
            return
        for name in self.names:
            if name not in known or known[name].kind in _MANY:
                raise self._unknown(f, name, known)

    def completed(
        self, f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """A call's arguments, completed by the defaults of named arguments that weren't passed."""
        known = (_parameters(f) if self.names else None) or {}
        for name in self.names:
            p = known.get(name)
            if p is None or name in kwargs or p.default is p.empty:
                continue
            place = _place(name, known)
            if place is not None and place < len(args):
                continue
            if p.kind in _KEYWORD:
                kwargs = {**kwargs, name: p.default}
            else:  # positional-only: those before it are passed too
                before = list(known.values())[len(args) : place]
                if not any(q.default is q.empty for q in before):
                    args = (*args, *[q.default for q in before], p.default)
        return args, kwargs

    def places(self, request: Request) -> list[int]:
        """The positions of the chosen arguments in a call. Keyword arguments come last, sorted by
        name."""
        count = len(request.args)
        names = sorted(request.kwargs)
        known = _parameters(request.f) if self.names else None
        found = []
        for a in self.each:
            if isinstance(a, int):
                if not -count <= a < count:
                    raise self._too_few(request, a)
                found.append(a % count)
                continue
            place = None if known is None else _place(a, known)
            if place is not None and place < count:
                found.append(place)
            elif a in request.kwargs:
                found.append(count + names.index(a))
            else:
                raise self._missing(request, a, known)
        return found

    def _too_few(self, request: Request, argnum: int) -> ArgumentError:
        """The error for a number to which no argument belongs."""
        count, named = len(request.args), ", ".join(map(repr, sorted(request.kwargs)))
        passed = "1 positional argument was" if count == 1 else f"{count} positional arguments were"
        advice = f"Choose what is passed by name by its name: {named}" if named else ""
        if count and not named:
            advice = "Its number is 0"
            if count > 1:
                advice = f"They are numbered from 0 to {count - 1}"
        what = f"{self.transformation} of {request.name}: argnums is {self.argnums}"
        there = f"{what}, and there is no argument {argnum}: {passed} passed"
        return ArgumentError(f"{there}. {advice}" if advice else there)

    def _missing(
        self, request: Request, name: str, known: dict[str, inspect.Parameter] | None
    ) -> ArgumentError:
        """The error for a name to which no argument belongs."""
        if known is None:
            return ArgumentError(
                f"{self.transformation} of {request.name}: argnums names {name!r}, and which "
                f"parameters {request.name} has isn't known. Pass it by name, or choose it by its "
                "number"
            )
        if name in known and known[name].kind not in _MANY:
            return ArgumentError(
                f"{self.transformation} of {request.name}: argnums names {name!r}, which wasn't "
                "passed and has no default"
            )
        return self._unknown(request.f, name, known, request.kwargs)

    def _unknown(
        self,
        f: Callable[..., Any],
        name: str,
        known: dict[str, inspect.Parameter],
        passed: Iterable[str] = (),
    ) -> ArgumentError:
        """The error for a name that isn't a parameter of the function."""
        what = f"{self.transformation} of {describe(f)}: argnums names {name!r}, "
        if name in known:
            stars = _MANY[known[name].kind]
            by = "numbers" if stars == "*" else "names"
            return ArgumentError(
                f"{what}which stands for any number of arguments ({stars}{name}). Choose these by "
                f"their {by}"
            )
        own = [n for n, p in known.items() if p.kind not in _MANY]
        names = list(dict.fromkeys([*own, *passed]))
        from difflib import get_close_matches

        close = get_close_matches(name, names, n=1)
        there = f"Its arguments are {', '.join(names)}" if names else "It has none with a name"
        hint = f". Did you mean {close[0]!r}?" if close else ""
        return ArgumentError(f"{what}and {describe(f)} has no such argument. {there}{hint}")


def _parameters(f: Callable[..., Any]) -> dict[str, inspect.Parameter] | None:
    """The parameters of a function by name; None if they are unknown."""
    try:
        return dict(inspect.signature(f).parameters)
    except (TypeError, ValueError):
        return None


def _place(name: str, known: dict[str, inspect.Parameter]) -> int | None:
    """The position at which a parameter can be passed, or None."""
    p = known.get(name)
    return list(known).index(name) if p is not None and p.kind in _POSITIONAL else None
