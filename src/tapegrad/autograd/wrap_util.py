"""Tools for programs that define transformations of functions of several arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tapegrad.autograd.derived import places

__all__ = ["get_doc", "get_name", "unary_to_nary", "wraps"]


def get_name(f: Any) -> str:
    """The name of a function."""
    return getattr(f, "__name__", "[unknown name]")


def get_doc(f: Any) -> str:
    """Its docstring."""
    return getattr(f, "__doc__", "")


def wraps(fun: Any, namestr: str = "{fun}", docstr: str = "{doc}", **words: Any) -> Any:
    """A decorator that sets a function's name and docstring, made of those of `fun`."""

    def named(f: Any) -> Any:
        f.__name__ = namestr.format(fun=get_name(fun), **words)
        f.__doc__ = docstr.format(fun=get_name(fun), doc=get_doc(fun), **words)
        return f

    return named


def unary_to_nary(operator: Callable[..., Any]) -> Callable[..., Any]:
    """Turn an operator on a function of one argument and a point into one on a function of several:

        operator(f, x, ...)    -->    made(f, argnum, ...)(*args, **kwargs)

    For a list or tuple of numbers `x` is a tuple. Each call makes a new function of one argument,
    and traces its derivatives again.
    """

    @functools.wraps(operator)
    def made(fun: Callable[..., Any], argnum: Any = 0, *more: Any, **options: Any) -> Any:
        numbers, single = places(argnum), isinstance(argnum, int)

        def at(*args: Any, **kwargs: Any) -> Any:
            def unary(x: Any) -> Any:
                full = [*args]
                for k, value in zip(numbers, (x,) if single else x, strict=True):
                    full[k] = value
                return fun(*full, **kwargs)

            x = args[argnum] if single else tuple([args[k] for k in numbers])
            unary.__name__ = get_name(fun)
            return operator(unary, x, *more, **options)

        return at

    return made
