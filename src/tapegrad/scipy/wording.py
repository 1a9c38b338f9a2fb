"""Errors in SciPy's words."""

from __future__ import annotations

import functools
import importlib
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from tapegrad.errors import TapegradError
from tapegrad.scipy.declaring import stands_for
from tapegrad.tracing.tracer import Tracer

F = TypeVar("F", bound=Callable[..., Any])

_RAISED = (ValueError, TypeError, NotImplementedError, np.linalg.LinAlgError)


def answers_of(home: str) -> Callable[..., Callable[[F], F]]:
    """`stands_for` of a module, for functions whose errors are SciPy's own. They remain as they
    are, for others that call them."""

    def answers(name: str = "", parameters: str = "", lists: str = "") -> Callable[[F], F]:
        def declared(function: F) -> F:
            called = name or function.__name__
            whole = in_scipys_words(getattr(importlib.import_module(home), called), function)
            stands_for(home, called, parameters=parameters, lists=lists)(whole)
            return function

        return declared

    return answers


def in_scipys_words(original: Any, function: F) -> F:
    """A function that answers SciPy's `original`: where it raises, SciPy does, with the values at
    hand."""

    @functools.wraps(function)
    def answered(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TapegradError:
            raise
        except _RAISED:
            plain = [plain_of(x) for x in args]
            named = {key: plain_of(x) for key, x in kwargs.items()}
            if not any(x is UNKNOWN for x in (*plain, *named.values())):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    original(*plain, **named)
            raise

    return answered  # type: ignore[return-value]


UNKNOWN = object()  # of which only the type is known


def plain_of(x: Any) -> Any:
    """The value of what is traced, in lists too."""
    if isinstance(x, Tracer):
        value = x._read()[1]
        return UNKNOWN if value is None else np.asarray(value)
    if type(x) in (tuple, list):
        parts = [plain_of(part) for part in x]
        return UNKNOWN if any(part is UNKNOWN for part in parts) else type(x)(parts)
    return x
