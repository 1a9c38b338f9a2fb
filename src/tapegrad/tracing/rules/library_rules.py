"""Functions of libraries that a user has given a derivative.

`defvjp(scipy.special.mathieu_a, ...)` makes a primitive of a function that can't be decorated. The
primitive answers the calls of the traced program, whichever way that came by the function.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np

from tapegrad.core.named import own_attribute
from tapegrad.core.request import describe
from tapegrad.errors import ArgumentError
from tapegrad.observe.answers.answers import Answer, beside, declare, original_of
from tapegrad.observe.objects.purity import is_users_file
from tapegrad.primitives.base import Value
from tapegrad.tracing.frontend.numpy.functions import function_of
from tapegrad.tracing.rules.custom import CustomPrimitive
from tapegrad.tracing.rules.declared import DeclaredRules, Rule

_adopted: dict[int, Adopted] = {}  # by the ids of functions, which they keep alive


class Adopted(CustomPrimitive):
    """A library's function as a primitive; it answers the function's calls from its first rule
    on."""

    def __init__(self, function: Any, home: ModuleType) -> None:
        super().__init__(function)
        self.home = home

    def define(self, given: DeclaredRules, rules: Sequence[Any], named: dict[str, Any]) -> Any:
        done = super().define(given, rules, named)
        if given:
            self._answer()
        return done

    def define_joint(self, given: DeclaredRules, rule: Rule) -> Rule:
        super().define_joint(given, rule)
        self._answer()
        return rule

    def _answer(self) -> None:
        declare(self.home, describe(self.function), self, when=_any_traced)


def adopted(f: Any, asked: str) -> Adopted:
    """The primitive for a library's function, for which `asked`, such as `defvjp`, declares a rule.

    Raises
    ------
    ArgumentError : it isn't a library's function, or one of NumPy's that has derivatives.
    """
    f = original_of(f)
    known = _adopted.get(id(f))
    if known is not None:
        return known
    home = _home_of(f)
    if home is None:
        raise ArgumentError(
            f"{asked} needs a function that is declared with tapegrad.primitive, or one of a "
            f"library's, not {f!r}. Put @primitive above its definition"
        )
    if _is_numpys(f):
        raise ArgumentError(
            f"np.{describe(f)} has derivatives, which all code relies on. Call it in a function of "
            "yours that is declared with tapegrad.primitive, and give that the rule"
        )
    return _adopted.setdefault(id(f), Adopted(f, home))


@contextmanager
def as_primitives(functions: Iterable[Any]) -> Iterator[None]:
    """Context in which each call of these functions by traced programs is one call on the tape, in
    this thread. Declared primitives are that already, and keep their rules."""
    wholes = []
    for f in functions:
        f = original_of(f)
        if not callable(f):
            raise ArgumentError(f"trace: {f!r} among the primitives isn't a function")
        known = _adopted.get(id(f))
        if not (isinstance(f, CustomPrimitive) or (known is not None and known.has_rule())):
            whole = CustomPrimitive(f)
            whole.whole = True
            wholes.append(Answer(ModuleType(""), describe(f), f, whole, when=_any_traced))
    with beside(wholes):
        yield


def _is_numpys(f: Any) -> bool:
    """Whether this is a function of NumPy's that tapegrad follows."""
    return function_of(f) is not None or (isinstance(f, np.ufunc) and vars(np).get(f.__name__) is f)


def _any_traced(args: Sequence[Any]) -> bool:
    return any(
        isinstance(x, Value) or (isinstance(x, (list, tuple)) and _any_traced(x)) for x in args
    )


def _home_of(f: Any) -> ModuleType | None:
    """The installed module that has this function by its own name."""
    if not callable(f) or isinstance(f, type):
        return None
    name = describe(f)
    own = own_attribute(f, "__module__")
    if isinstance(own, str) and own in sys.modules and not _is_users(sys.modules[own]):
        public = own.rpartition("._")[0] if "._" in own else own
        for candidate in (public, own):
            module = sys.modules.get(candidate) or importlib.import_module(candidate)
            if vars(module).get(name) is f:
                return module
    for module in [*sys.modules.values()]:
        if type(module) is ModuleType and vars(module).get(name) is f and not _is_users(module):
            return module
    return None


def _is_users(module: ModuleType) -> bool:
    file = vars(module).get("__file__")
    return module.__name__ == "__main__" or (file is not None and is_users_file(file))
