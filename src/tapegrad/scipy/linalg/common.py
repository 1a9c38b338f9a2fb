"""What the answers to scipy.linalg's functions have in common."""

from __future__ import annotations

import functools
import importlib
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from tapegrad.errors import TapegradError
from tapegrad.scipy.declaring import stands_for
from tapegrad.tracing.frontend.linalg import floating, raise_if
from tapegrad.tracing.frontend.operands import as_tracer
from tapegrad.tracing.tracer import Tracer

HOME = "scipy.linalg"
F = TypeVar("F", bound=Callable[..., Any])


def answers(name: str = "", parameters: str = "", lists: str = "") -> Callable[[F], F]:
    """Declare what answers a function of scipy.linalg, if not of the answer's name, whose errors
    are SciPy's own."""

    def declared(function: F) -> F:
        called = name or function.__name__
        whole = in_scipys_words(getattr(importlib.import_module(HOME), called), function)
        stands_for(HOME, called, parameters=parameters, lists=lists)(whole)
        return function

    return declared


def in_scipys_words(original: Any, function: F) -> F:
    """A function that answers SciPy's `original`: where it raises, SciPy does, with the values at
    hand."""

    @functools.wraps(function)
    def answered(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TapegradError:
            raise
        except (ValueError, TypeError, NotImplementedError, np.linalg.LinAlgError):
            plain = [_plain(x) for x in args]
            named = {key: _plain(x) for key, x in kwargs.items()}
            if not any(x is _UNKNOWN for x in (*plain, *named.values())):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    original(*plain, **named)
            raise

    return answered  # type: ignore[return-value]


_UNKNOWN = object()


def _plain(x: Any) -> Any:
    """The value of what is traced, in tuples too; of some only types are known."""
    if isinstance(x, Tracer):
        value = x._read()[1]
        return _UNKNOWN if value is None else np.asarray(value)
    if type(x) in (tuple, list):
        parts = [_plain(part) for part in x]
        return _UNKNOWN if any(part is _UNKNOWN for part in parts) else type(x)(parts)
    return x


def checked(check_finite: Any, *xs: Any) -> list[Any]:
    """Operands traced, in LAPACK's dtypes; a ValueError if they aren't finite and SciPy looks."""
    found = floating(*map(as_array, xs))
    for x in found if check_finite else ():
        raise_if(~np.all(np.isfinite(x)), "array must not contain infs or NaNs", ValueError)
    return found


def as_array(x: Any) -> Any:
    """Lists as arrays."""
    return np.asarray(x) if isinstance(x, (list, tuple)) else x


def shown(x: Any, *others: Any) -> Any:
    """An operand on the tape, whatever it holds."""
    return as_tracer(as_array(x), *others)
