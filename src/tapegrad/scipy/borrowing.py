"""SciPy's own Python code, run on traced arrays.

If a SciPy function is written in Python, with NumPy functions and other traceable functions, its
own code is the declaration (`tracing/frontend/calling/library_code.py`). Where SciPy queries the
array namespace, it gets NumPy.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import types
from typing import Any

import numpy as np

from tapegrad.extending import (
    answering,
    any_traced,
    declare,
    declare_calls,
    declare_method,
    unobserved,
)
from tapegrad.extending.runs import accepted, library_code


def borrow(home: str, names: str, decorated: bool = False, lists: str = "") -> None:
    """Declare that SciPy's own code answers calls of these functions with traced arguments.

    `decorated`: run its decorators too. `lists` names the parameters whose lists aren't arrays. A
    parameter that SciPy converts to a plain number is guarded.
    """
    library_code.know(_of_the_library())
    module = importlib.import_module(home)
    for name in names.split():
        original = getattr(module, name, None)  # older SciPy versions may lack it, or have it in C
        code = inspect.unwrap(original) if callable(original) else None
        if not isinstance(code, types.FunctionType):
            continue
        own = library_code.borrowed(original, original if decorated else code)
        answer = answering(own, original, f"{home}.{name}", lists=lists)
        declare(module, name, answer, when=any_traced)


def kernels(module: str, answers: dict[str, Any]) -> None:
    """Declare the replacements of C functions that SciPy's own code calls from one of its
    modules."""
    try:
        home = importlib.import_module(module)
    except ImportError:  # SciPy moved them: borrowed code then refuses tracers
        return
    library_code.know(
        {
            getattr(home, name): _of_traced(getattr(home, name), answer)
            for name, answer in answers.items()
            if hasattr(home, name)
        }
    )


def borrow_classes(module: str, names: str) -> list[type]:
    """Declare that SciPy's own code may make objects of these classes from traced values, and call
    their methods. Returns the classes that this version of SciPy has."""
    home = importlib.import_module(module)
    found = [getattr(home, name) for name in names.split() if hasattr(home, name)]
    library_code.know_classes(*[x for kind in found for x in kind.__mro__ if _is_theirs(x)])
    return found


def _is_theirs(kind: type) -> bool:
    return kind.__module__.startswith("scipy.") and isinstance(
        vars(kind).get("__init__", _is_theirs), types.FunctionType
    )


def borrow_objects(home: str, names: str, methods: str = "__call__") -> None:
    """Declare that SciPy's own code makes objects of these classes from traced values. It also
    runs these methods on objects of plain values that are passed traced arguments."""
    for kind in borrow_classes(home, names):
        shown = f"{home}.{kind.__name__}"
        made = _accepting(kind, library_code.borrowed(kind, kind), shown)
        declare(importlib.import_module(home), kind.__name__, made, when=any_traced)
        for name in methods.split():
            original = getattr(kind, name, None)
            if not isinstance(original, types.FunctionType):
                continue
            own = library_code.borrowed(original, original)
            answer = answering(own, original, f"{kind.__name__}.{name}", kind=kind)
            if name == "__call__":
                declare_calls(kind, answer, when=any_traced)
            owner = next(x for x in kind.__mro__ if name in vars(x))
            if owner is kind or name != "__call__":  # a call is observed, or that of its own class
                declare_method(owner, name, answer)


def _accepting(kind: type, own: Any, shown: str) -> Any:
    @functools.wraps(kind, updated=())
    @unobserved
    def made(*args: Any, **kwargs: Any) -> Any:
        if not any_traced((*args, *kwargs.values())):
            return kind(*args, **kwargs)
        return accepted(kind, args, kwargs, lambda: own(*args, **kwargs), shown)

    return made


def converting(module: str, names: str) -> None:
    """Declare that `float` leaves a traced number traced in the code of these functions."""
    home = importlib.import_module(module)
    found = [inspect.unwrap(getattr(home, name)) for name in names.split() if hasattr(home, name)]
    library_code.know_converting(*found)


def _of_traced(original: Any, answer: Any) -> Any:
    def called(*args: Any, **kwargs: Any) -> Any:
        traced = any_traced((*args, *kwargs.values()))
        return (answer if traced else original)(*args, **kwargs)

    return called


def _of_the_library() -> dict[Any, Any]:
    """The replacements of the functions by which SciPy queries the array namespace."""
    found: dict[Any, Any] = {}
    try:
        library = importlib.import_module("scipy._lib._array_api")
    except ImportError:
        return found
    numpys: Any = library_code.module(np)
    answers = {
        "array_namespace": lambda *arrays: numpys,
        "_asarray": _asarray,
        "is_numpy": lambda xp: True,
    }
    for name, answer in answers.items():
        if hasattr(library, name):
            found[getattr(library, name)] = answer
    return found


def _asarray(
    array: Any,
    dtype: Any = None,
    order: Any = None,
    copy: Any = None,
    *,
    xp: Any = None,
    check_finite: bool = False,
    subok: bool = False,
) -> Any:
    made = library_code.module(np).array if copy else library_code.module(np).asarray
    return made(array, dtype=dtype)
