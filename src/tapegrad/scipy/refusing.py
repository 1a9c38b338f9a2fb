"""SciPy's functions that can't be traced, with advice.

Each public name of the supported modules is in one of four classes, as NumPy's are: with a
derivative; derivative zero; evaluated without a derivative; refused. docs/scipy.md lists all, and
a test checks the class of each name. A module here may give advice by `REFUSED`, a dict from
names, separated by spaces, to advice. `BY_SCIPYS_CODE` lists names that aren't declared, because
SciPy's own Python code is right on traced values.
"""

from __future__ import annotations

import functools
import importlib
import types
from collections.abc import Callable, Iterator
from typing import Any

from tapegrad.errors import TapegradError
from tapegrad.extending import any_traced, at_line, declare, observed, refusal, unobserved
from tapegrad.extending.arrays import numbers_taken, unmade
from tapegrad.extending.runs import error_of, row_of
from tapegrad.scipy.homes import HOMES

DEFAULT = (
    "Declare it with tapegrad.primitive, and give its derivative with defvjp; where none is "
    "wanted, call it on tapegrad.stop_gradient(x) there"
)


def public(home: str) -> Iterator[tuple[str, Any]]:
    """The public functions and classes of a module: pairs of a name and an object."""
    try:
        module = importlib.import_module(home)
    except ModuleNotFoundError:  # older SciPy versions lack it
        return
    for name in getattr(module, "__all__", ()) or dir(module):
        found = getattr(module, name, None)
        if not name.startswith("_") and callable(found) and not _is_error(found):
            yield name, found


def declaring(home: str) -> Any:
    """The module here that declares the functions of one of SciPy's modules."""
    return importlib.import_module(f"tapegrad.scipy.{HOMES[home]}")


def _is_error(x: Any) -> bool:
    return isinstance(x, type) and issubclass(x, (Exception, Warning))


def advice_on(home: str, name: str) -> str:
    for names, advice in getattr(declaring(home), "REFUSED", {}).items():
        if name in names.split():
            return f"Use {advice}"
    return DEFAULT


def refuse_the_others(home: str) -> None:
    """Declare that the functions of a module that have no answer are refused by name."""
    module = importlib.import_module(home)
    left_alone = getattr(declaring(home), "BY_SCIPYS_CODE", "").split()
    named = {name for names in getattr(declaring(home), "REFUSED", {}) for name in names.split()}
    for name, found in public(home):
        written = isinstance(found, (types.FunctionType, types.BuiltinFunctionType, type))
        if (written or name in named) and row_of(found) is None and name not in left_alone:
            declare(module, name, _refusal(home, name, found), when=any_traced)


def refuse_with_callbacks(home: str, names: str) -> None:
    """Declare that these functions, which take callbacks, are also refused if only a callback
    reads traced values."""
    module = importlib.import_module(home)
    for name in names.split():
        refused = _refusing_results(home, name, getattr(module, name))
        declare(module, name, refused, when=lambda args: True)


def _refusing_results(home: str, name: str, original: Any) -> Callable[..., Any]:
    refused = _refusal(home, name, original)

    def checked(f: Any) -> Any:
        if not isinstance(f, (types.FunctionType, types.MethodType, functools.partial)):
            return f

        @functools.wraps(f)
        def called(*args: Any, **kwargs: Any) -> Any:
            with observed():
                found = f(*args, **kwargs)
            if any_traced([found]):
                raise _refused(home, name)
            return found

        return called

    @functools.wraps(original, updated=())
    @unobserved
    def answer(*args: Any, **kwargs: Any) -> Any:
        if any_traced((*args, *kwargs.values())):
            return refused(*args, **kwargs)
        named = {key: checked(unmade(x)) for key, x in kwargs.items()}
        return original(*[checked(unmade(x)) for x in args], **named)

    return answer


def _refused(home: str, name: str) -> TapegradError:
    return refusal(
        f"{home}.{name} of traced values can't be traced{at_line()}. {advice_on(home, name)}"
    )


def _refusal(home: str, name: str, original: Any) -> Callable[..., Any]:
    @functools.wraps(original, updated=())
    def refused(*args: Any, **kwargs: Any) -> Any:
        if not any_traced((*args, *kwargs.values())):
            return original(*args, **kwargs)
        numbers = numbers_taken(args, kwargs)
        if numbers is not None:
            return unobserved(original)(*numbers[0], **numbers[1])
        raise unobserved(error_of)(original, args, kwargs, name) or _refused(home, name)

    refused.refuses = True  # type: ignore[attr-defined]
    return refused
