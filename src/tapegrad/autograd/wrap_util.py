"""How programs make transformations of their own, of functions of several arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tapegrad.autograd.derived import places

__all__ = ["get_doc", "get_name", "unary_to_nary", "wraps"]


def get_name(f: Any) -> str:
    """What a function is called."""
    return getattr(f, "__name__", "[unknown name]")


def get_doc(f: Any) -> str:
    """Its docstring."""
    return getattr(f, "__doc__", "")


def wraps(fun: Any, namestr: str = "{fun}", docstr: str = "{doc}", **words: Any) -> Any:
    """A decorator that gives a function a name and a docstring made of those of `fun`."""

    def named(f: Any) -> Any:
        f.__name__ = namestr.format(fun=get_name(fun), **words)
        f.__doc__ = docstr.format(fun=get_name(fun), doc=get_doc(fun), **words)
        return f

    return named


def unary_to_nary(operator: Callable[..., Any]) -> Callable[..., Any]:
    """What takes a function of one argument and a point, as what takes a function of several:

        operator(f, x, ...)    -->    made(f, argnum, ...)(*args, **kwargs)

    For a list or tuple of numbers `x` is a tuple. The function of one argument is made anew at each
    call, and what is derived of it is traced then.
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
