"""Declarations of the functions that implement NumPy's functions and array methods on tracers.

All that the front end knows of a function is in its declaration. A function without one runs by
NumPy's own Python code (`frontend/numpy/functions.py`), and is refused if NumPy has it in C.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeVar

import numpy as np

from tapegrad.errors import UnsupportedError
from tapegrad.observe.program.source import at_line
from tapegrad.tracing.frontend.operands.parameters import Form, form_of, taken
from tapegrad.tracing.recording.trace import refusing
from tapegrad.tracing.tracers.tracer import Tracer

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, eq=False)
class Declared:
    """The implementation of a NumPy function or method, called `show` in errors."""

    function: Callable[..., Any]
    numpys: Any
    show: str
    of_complex: bool
    lists: str | None

    @property
    def form(self) -> Form:
        return form_of(self.function, self.numpys)

    def taken(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[list[Any], Any, bool]:
        """The arguments with plain parameters, and whether one of the parameters was traced."""
        return taken(self.form, args, kwargs)

    def check(self, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Raise an error for complex arguments, unless they are known to be right."""
        if not self.of_complex and has_complex((*args, *kwargs.values())):
            raise refusing(
                UnsupportedError(
                    f"{self.show} of complex numbers isn't supported{at_line()}. Use it on z.real "
                    "and z.imag, or write it with functions that are"
                )
            )


FUNCTIONS: dict[Any, Declared] = {}  # by NumPy's functions
METHODS: dict[str, Declared] = {}  # by the names of array methods


def stands_for(
    *homes: ModuleType | type, name: str = "", of_complex: bool = False, lists: str | None = ""
) -> Callable[[F], F]:
    """Declare the implementation of a NumPy function on traced arguments.

        @stands_for(np, np.ndarray, of_complex=True)
        def cumsum(a, axis=None, dtype=None, out=None): ...

    It takes the arguments of NumPy's function, in the same order. The names of arguments decide
    which are parameters, whose traced values are guarded (`parameters.py`). A function of `*args`
    and `**kwargs` passes them on, and is called like NumPy's. The decorator returns the function
    unchanged, for other callers.

    Parameters
    ----------
    homes : The NumPy modules that have the function, and `np.ndarray` if it is a method of arrays
        too. Names that this version of NumPy lacks aren't declared.
    name : NumPy's name, if it differs from the function's; several are separated by spaces.
    of_complex : Whether the function is known to be right for complex numbers. They are refused if
        it isn't.
    lists : The names of the arguments that are lists of arrays. A list with traced values in the
        place of any other argument is stacked to an array; if `lists` is None, none is.
    """

    def declared(function: F) -> F:
        for called in (name or function.__name__).split():
            numpys = None
            for home in homes:
                found = getattr(home, called, None)
                if home is np.ndarray and found is not None:
                    show = f"ndarray.{called}"
                    METHODS[called] = Declared(function, numpys, show, of_complex, lists)
                elif found is not None:
                    numpys, show = found, shown(found)
                    FUNCTIONS[found] = Declared(function, found, show, of_complex, lists)
        return function

    return declared


def shown(numpys: Any) -> str:
    """The name of a NumPy function in errors: "np.linalg.solve"."""
    return f"{numpys.__module__}.{numpys.__name__}".replace("numpy", "np", 1)


def has_complex(xs: Any) -> bool:
    """Whether complex numbers are among arguments, or within lists and tuples there."""
    for x in xs:
        kind = type(x)
        if issubclass(kind, (Tracer, np.ndarray, np.generic)):
            if x.dtype.kind == "c":
                return True
        elif kind is complex or (kind in (list, tuple) and has_complex(x)):
            return True
    return False
