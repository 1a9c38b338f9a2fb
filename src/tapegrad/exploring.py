"""The command `python -m tapegrad explore program.py:f`: the page of a function of a program."""

from __future__ import annotations

import contextlib
import inspect
import operator
import os
import sys
import tokenize
import types
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tapegrad.core.handlers import let_through
from tapegrad.errors import ArgumentError
from tapegrad.runtime.shown import told
from tapegrad.showing import explore

if TYPE_CHECKING:
    from tapegrad.insight.explorer.page import Exploration


def explore_program(
    path: str, name: str, arguments: Sequence[str] = ()
) -> tuple[Exploration, Exception | None]:
    """The page of a function of a program, which is run; and what the program raised. Its arguments
    are expressions, or those of the last call that the program has made of it or of what it derives
    of it: the last one that works, where the program raised."""
    calls: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []
    failed: Exception | None = None
    with _as_main(path) as module:
        token = told.set(lambda *call: calls.append(call))
        try:
            exec(compile(_text(path), os.path.abspath(path), "exec"), vars(module))
        except SystemExit:  # programs may end so
            pass
        except Exception as error:
            let_through(error)
            failed = error
        finally:
            told.reset(token)
        try:
            f = operator.attrgetter(name)(module)
        except AttributeError:
            if failed is not None:
                raise failed from failed.__cause__
            raise ArgumentError(f"{path} has nothing called {name}") from None
        if arguments:
            return explore(f, *[eval(x, vars(module)) for x in arguments]), failed
        own = [x for x in calls if f in (x[0], x[0].root) or f == getattr(x[0], "f", None)]
        for derived, args, kwargs in reversed(own):
            try:
                return explore(derived, *args, **kwargs), failed
            except Exception as error:  # the call at which the program ended
                let_through(error)
                if failed is None:
                    raise
        if failed is not None:
            raise failed
        if needed := _needed(f):
            raise ArgumentError(
                f"{path} makes no call of {name} or of a derivative of it. Pass its arguments "
                f"({', '.join(needed)}) as expressions: python -m tapegrad explore {path}:{name} "
                + " ".join(["'np.ones(3)'"] * len(needed))
            )
        return explore(f), None


@contextlib.contextmanager
def _as_main(path: str) -> Iterator[types.ModuleType]:
    """A module for a program that is run, in the place of the one that runs."""
    module = types.ModuleType("__main__")
    module.__file__ = path
    before = sys.modules["__main__"], sys.argv, [*sys.path]
    sys.modules["__main__"], sys.argv = module, [path]
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    try:
        yield module
    finally:
        sys.modules["__main__"], sys.argv, sys.path[:] = before


def _text(path: str) -> str:
    try:
        with tokenize.open(path) as file:
            return file.read()
    except OSError as error:
        raise ArgumentError(f"{path} can't be read: {error.strerror}") from None


def _needed(f: Callable[..., Any]) -> list[str]:
    """The names of the arguments without which a function can't be called."""
    kinds = inspect.Parameter
    return [
        x.name
        for x in inspect.signature(f).parameters.values()
        if x.default is kinds.empty and x.kind not in (kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD)
    ]
