"""How what stands for a function of NumPy's, or for a method of its arrays, is declared.

All that the front end knows of one stands where it is written. What isn't declared runs by NumPy's
own code, where that is Python (`frontend/numpy/functions.py`), and is refused if it is not.
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
    """What stands for a function or a method, which errors `show` so; see `stands_for`."""

    function: Callable[..., Any]
    numpys: Any
    show: str
    of_complex: bool
    lists: str | None

    @property
    def form(self) -> Form:
        return form_of(self.function, self.numpys)

    def taken(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[list[Any], Any, bool]:
        """The arguments with plain parameters, and whether one of them was traced."""
        return taken(self.form, args, kwargs)

    def check(self, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """An error for complex numbers, where it isn't known to be right for them."""
        if not self.of_complex and has_complex((*args, *kwargs.values())):
            raise refusing(
                UnsupportedError(
                    f"{self.show} of complex numbers isn't supported{at_line()}. Use it on z.real "
                    "and z.imag, or write it with functions that are"
                )
            )


FUNCTIONS: dict[Any, Declared] = {}  # by NumPy's functions
METHODS: dict[str, Declared] = {}  # by the names of methods of arrays


def stands_for(
    *homes: ModuleType | type, name: str = "", of_complex: bool = False, lists: str | None = ""
) -> Callable[[F], F]:
    """Declare what stands for a function of NumPy's where an argument is traced.

        @stands_for(np, np.ndarray, of_complex=True)
        def cumsum(a, axis=None, dtype=None, out=None): ...

    It takes what NumPy's takes, in the same order. Which arguments are parameters, whose traced
    values are guarded, their names say (`parameters.py`). One that takes any arguments hands them
    on, and is called as NumPy's is. It stays what it is, for others that call it.

    Parameters
    ----------
    homes : NumPy's modules that have it; `np.ndarray` if it is a method of arrays, too. What this
        version of NumPy doesn't have isn't declared.
    name : what it is called there, if not as the function is; more than one, apart by spaces.
    of_complex : whether it is known to be right for complex numbers, which are refused if not.
    lists : the names of arguments that are lists of arrays. In the place of any other argument a
        list with traced values is an array; of none if this is None.
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
    """What errors call a function of NumPy's."""
    return f"{numpys.__module__}.{numpys.__name__}".replace("numpy", "np", 1)


def has_complex(xs: Any) -> bool:
    """Whether complex numbers are among arguments, in lists and tuples too."""
    for x in xs:
        kind = type(x)
        if issubclass(kind, (Tracer, np.ndarray, np.generic)):
            if x.dtype.kind == "c":
                return True
        elif kind is complex or (kind in (list, tuple) and has_complex(x)):
            return True
    return False
