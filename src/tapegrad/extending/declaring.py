"""How answers to a library's functions are declared."""

from __future__ import annotations

import copy
import functools
import importlib
import inspect
from collections.abc import Callable, Iterable
from itertools import zip_longest
from types import MethodType
from typing import Any, TypeVar, cast

import numpy as np

from tapegrad.core.handlers import let_through
from tapegrad.errors import TapegradError, UnsupportedError
from tapegrad.observe.answers.answers import declare
from tapegrad.observe.objects.naming import Key
from tapegrad.observe.observer import following, observed, unobserved
from tapegrad.observe.program.source import at_line, is_users
from tapegrad.tracing.frontend.calling.library_code import is_instance
from tapegrad.tracing.frontend.calling.result_kinds import with_numbers
from tapegrad.tracing.frontend.calling.validation import accepted, error_of
from tapegrad.tracing.frontend.numpy.undispatched import has_traced, stacked, unmade
from tapegrad.tracing.frontend.operands.parameters import (
    form_of,
    numbers_taken,
    running,
    taken,
    tolerance,
)
from tapegrad.tracing.recording.layout import overwritten, settle
from tapegrad.tracing.recording.trace import refusing
from tapegrad.tracing.runs.floating_errors import watching_special

F = TypeVar("F", bound=Callable[..., Any])


class Untraced(Exception):
    """No argument of a call is traced, nor do functions that are passed reach traced values: the
    library's own function is called."""


class Carrier:
    """A proxy of a library's object that holds traced values: a frozen distribution with a traced
    parameter, a sparse matrix with traced entries."""


def is_traced(x: Any) -> bool:
    """Whether an argument holds a traced value: in nested lists, in a dict, in a `Carrier`, or in
    an object of borrowed code."""
    if isinstance(x, dict):
        return any(map(is_traced, x.values()))
    if isinstance(x, (list, tuple)):
        return any(map(is_traced, x))
    return isinstance(x, Carrier) or has_traced(x) or is_instance(x)


def any_traced(args: Iterable[Any]) -> bool:
    """Whether any of the arguments holds a traced value."""
    return any(map(is_traced, args))


def stands_for(
    home: str | type,
    name: str = "",
    callbacks: bool = False,
    parameters: str = "",
    lists: str = "",
) -> Callable[[F], F]:
    """Declare the answer to calls of a library's function while a program is traced.

        @stands_for("scipy.special")
        def softmax(x, axis=None): ...

    The answer's parameters have the names of the function's. It may lack some: a call that passes
    one of these is refused, unless the value is the default. The answer works on tracers and plain
    arrays; lists with traced values are passed to it as arrays. It notes the objects that it reads
    with `seen`. It is traced like the program's own code, unless it is one of tapegrad's.

    Parameters
    ----------
    home : the module, or the class whose method it answers.
    name : the function's name there, if it isn't that of the answer.
    callbacks : whether it calls functions of the user's, which may reach traced values: then it
        answers all calls, else those with a traced value among their arguments.
    parameters : the names of further parameters that decide what is recorded, beside NumPy's
        (`frontend/operands/parameters.py`): traced integers there are guarded.
    lists : the names of parameters whose lists are passed unchanged: they aren't arrays.
    """
    module = importlib.import_module(home) if isinstance(home, str) else home

    def declared(function: F) -> F:
        called_there = name or function.__name__
        original = getattr(module, called_there)
        shown = _shown(module, called_there)
        kind = module if isinstance(module, type) else None
        answer = answering(function, original, shown, callbacks, parameters, lists, kind)
        when = _always if callbacks else any_traced
        declare(module, called_there, answer, when=when)
        return answer

    return declared


def _always(args: Iterable[Any]) -> bool:
    return True


def _shown(home: Any, name: str) -> str:
    """The function's name in errors."""
    if isinstance(home, type):
        return f"{home.__name__}.{name}"
    return f"{home.__name__}.{name}"


def answering(
    function: Callable[..., Any],
    original: Any,
    shown: str,
    callbacks: bool = False,
    parameters: str = "",
    lists: str = "",
    kind: type | None = None,
) -> Any:
    """The function that answers calls of a library's function `original` by calling `function`.
    `shown` is its name in errors, and `kind` its class, if it is a method."""
    theirs, own = signature_of(original), inspect.signature(function)
    form = form_of(function)
    if is_users(getattr(function, "__code__", _OWN)):
        function = _as_programs(function)
    more, as_they_are = frozenset(parameters.split()), frozenset(lists.split())
    draws = theirs is not None and not _OF_DRAWS.isdisjoint(theirs.parameters)

    @functools.wraps(function)
    @unobserved
    def called(*args: Any, **kwargs: Any) -> Any:
        if not callbacks and not any_traced((*args, *kwargs.values())):
            plain = {key: unmade(x) for key, x in kwargs.items()}
            with observed():
                return original(*map(unmade, args), **plain)
        if callbacks or draws or running.numpys:
            return answer(args, kwargs)
        run = watching_special(original, args, kwargs, lambda: followed(args, kwargs))
        if kind is not None and args and isinstance(args[0], kind) and hasattr(args[0], "__dict__"):
            method = MethodType(original, copy.copy(args[0]))  # a copy: the call may change it
            return accepted(method, args[1:], kwargs, run, shown, False)
        return accepted(original, args, kwargs, run, shown)

    def followed(args: Any, kwargs: Any) -> Any:
        """The answer's result; or that of SciPy's function where only integers are traced, and the
        answer fails."""
        try:
            return answer(args, kwargs)
        except TapegradError:
            raise
        except Exception as error:
            let_through(error)
            numbers = numbers_taken(args, kwargs)
            if numbers is None:
                raise
            return original(*numbers[0], **numbers[1])

    def answer(args: Any, kwargs: Any) -> Any:
        try:
            asked = (theirs or own).bind(*args, **kwargs).arguments
            named = _bound(shown, theirs, own, asked)
        except UnsupportedError as error:
            raise error_of(original, args, kwargs, shown) or refusing(error) from None

        def operand(key: Any, x: Any) -> Any:
            if key in _TOLERANCES:
                return tolerance(x)
            return x if key in as_they_are else stacked(x)

        pairs = zip_longest(own.parameters, named.args)
        given = [operand(key, x) for key, x in pairs][: len(named.args)]
        by_name = {key: operand(key, x) for key, x in named.kwargs.items()}
        given, by_name, _ = taken(form, given, by_name)
        if not (callbacks or any_traced((*given, *by_name.values()))):
            numbers = numbers_taken(args, kwargs)
            if numbers is not None:
                return original(*numbers[0], **numbers[1])
        if more:
            for place, key in enumerate(own.parameters):
                if key in more and place < len(given):
                    given[place] = as_parameter(given[place])
                elif key in more and key in by_name:
                    by_name[key] = as_parameter(by_name[key])
        try:
            found = function(*given, **by_name)
            found = settle(
                found if callbacks or draws else with_numbers(found), given, certain=False
            )
        except Untraced:
            found = None
        else:
            note_memory(asked, shown, found)
            return found
        given_so = dict(zip(own.parameters, given, strict=False)) | by_name
        with observed():
            return original(**{key: unmade(x) for key, x in given_so.items()})

    return called


def _as_programs(function: F) -> F:
    """Another library's answer, traced like the program's own code."""

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        with observed():
            return function(*args, **kwargs)

    return cast(F, called)


_OWN = _as_programs.__code__


def note_memory(named: Any, shown: str, found: Any) -> None:
    """Note which arguments the function may have overwritten, as `overwrite_a=True` allows."""
    for key, x in named.items():
        if key.startswith("overwrite_") and not has_traced(x) and x:
            overwritten(named.get(key.removeprefix("overwrite_")), f"{shown}({key}=True)", found)


def as_parameter(x: Any) -> Any:
    """A traced integer or boolean as a plain one, which is guarded."""
    if not has_traced(x):
        return x
    if isinstance(x, (list, tuple)):
        return type(x)(map(as_parameter, x))
    return np.asarray(x)[()] if np.ndim(x) == 0 else np.asarray(x)


# Tolerances and steps of a solver: they don't change what it looks for
_TOLERANCES = {
    *("tol", "cond", "rtol", "atol", "xtol", "ftol", "gtol", "xatol", "fatol", "btol"),
    *("bc_tol", "epsabs", "epsrel", "maxiter", "maxfev", "limit", "max_step", "min_step"),
    *("first_step", "h0", "hmax", "hmin", "mxstep", "epsfcn", "factor", "diff_step"),
    *("cache_size",),
}

# Parameters of SciPy's methods, not of the result: an answer takes them by `**how`, or ignores them
_HOW = {
    *("blocksize", "maxp1", "limlst", "quiet", "maxit", "check", "verbose", "ixpr", "mxhnil"),
    *("mxordn", "mxords", "printmessg", "permc_spec", "diag_pivot_thresh", "relax", "panel_size"),
}

# Parameters of where SciPy computes; so is `overwrite_a`
_IDLE = {"workers", "plan"}


def signature_of(original: Any) -> inspect.Signature | None:
    """The signature of a function of SciPy's; None for functions in C, and for those that only pass
    on `*args, **kwargs`."""
    try:
        found = inspect.signature(original)
    except (TypeError, ValueError):
        return None
    kinds = [x.kind for x in found.parameters.values()]
    return None if kinds == [inspect.Parameter.VAR_POSITIONAL, _KEYWORDS] else found


def _bound(
    shown: str, theirs: inspect.Signature | None, own: inspect.Signature, asked: dict[str, Any]
) -> inspect.BoundArguments:
    """The call's arguments, bound to the answer's parameters. An error if the answer lacks a
    parameter that matters."""
    if theirs is None:
        return inspect.BoundArguments(own, asked)
    given: dict[str, Any] = {}
    how: dict[str, Any] = {}
    for name, x in asked.items():
        kind = theirs.parameters[name].kind
        if name in own.parameters:
            given[name] = x
        elif kind is inspect.Parameter.VAR_KEYWORD and x.keys() <= own.parameters.keys():
            given.update(x)
        elif name in _IDLE or name.startswith("overwrite_"):
            continue
        elif name in _HOW:
            how[name] = as_parameter(tolerance(x))
        elif not _is_default(x, theirs.parameters[name].default):
            if kind is inspect.Parameter.VAR_KEYWORD:
                name = next(iter(x.keys() - own.parameters.keys()))
            raise UnsupportedError(
                f"{shown}(..., {name}=...) can't be traced{at_line()}, only without {name}. Call "
                "it in a function that is declared with tapegrad.primitive, and give its "
                "derivative with defvjp"
            )
    rest = next((p.name for p in own.parameters.values() if p.kind is _KEYWORDS), "")
    if rest and how:
        given[rest] = {**given.get(rest, {}), **how}
    return inspect.BoundArguments(own, {p: given[p] for p in own.parameters if p in given})


def refusal(text: str) -> TapegradError:
    """The error for a call that can't be traced. It ends the trace even if the program catches
    it."""
    return refusing(UnsupportedError(text))


def _is_default(x: Any, default: Any) -> bool:
    kinds = {type(x), type(default)}
    alike = len(kinds) == 1 or kinds == {int, float}  # 0 for 0.0
    return x is default or (alike and isinstance(x, _PLAIN) and x == default)


_OF_DRAWS = frozenset(["rng", "random_state", "seed"])
_KEYWORDS = inspect.Parameter.VAR_KEYWORD
_PLAIN = (bool, int, float, str)


def answers_of(home: str) -> Callable[..., Callable[[F], F]]:
    """`stands_for` for a module, as a decorator that returns the function unchanged, so that others
    can call it."""

    def answers(name: str = "", parameters: str = "", lists: str = "") -> Callable[[F], F]:
        def declared(function: F) -> F:
            stands_for(home, name, parameters=parameters, lists=lists)(function)
            return function

        return declared

    return answers


def declare_method(cls: type, name: str, answer: Any, always: bool = False) -> None:
    """Declare the answer to a method, which itself notes what it reads of the object."""
    answer.notes = (cls,)
    declare(cls, name, answer, when=_always if always else any_traced)


def seen(x: Any) -> Any:
    """Note that an answer reads an object's attributes: a later call compares all of them."""
    return taken_by([x])(x)


def read(x: Any, *names: str) -> None:
    """Note that attributes of an object are read, but not their contents."""
    if (here := following.observer) is not None:
        for name in names:
            here.looked_up(x, name)


def held(x: Any, *names: str) -> Callable[..., Any]:
    """Note that attributes of an object are read, with all their contents."""
    read(x, *names)
    return taken_by([getattr(x, name) for name in names])


def held_in(x: Any, attributes: Iterable[str] = ()) -> tuple[list[Any], Callable[..., Any]]:
    """All items of a container, or some attributes of an object, noted as read with their contents.
    Numbers and arrays that differ at a later call are inputs."""
    here = following.observer
    parts: dict[tuple[str, Any], Any] = {("attr", name): getattr(x, name) for name in attributes}
    keys = () if parts else list(x) if isinstance(x, dict) else range(len(x))
    parts |= {("item", Key(key)): x[key] for key in keys}
    place = None if here is None else here.reads.place(x)
    found = dict(parts)
    if here is not None and place is not None:
        if not attributes:
            here.reads.shape_of(place, keys)
        found = {at: here.found_at(place, at, value) for at, value in parts.items()}
    return [*found.values()], taken_by([value for at, value in parts.items() if found[at] is value])


def taken_by(values: list[Any]) -> Callable[..., Any]:
    """Note that an answer reads the contents of all values. The returned function passes on the
    answer's result, once it is known which arrays became inputs of a tape."""
    here = following.observer
    note = None if here is None else here.held_by(values)

    def noted(result: Any = None) -> Any:
        if note is not None:
            note(None)
        return result

    return noted
