"""What the public functions return, as a type checker and an editor see it.

    df: Derived[[Array, float], Array] = grad(f)  # for f(x: Array, scale: float)

All are protocols: types alone, to annotate with. Gradients mirror arguments, so `grad(f)` has the
parameters of `f`, names and defaults included, and returns what the first of them is annotated as.
For other `argnums` it is Any: a type can't count. It can't say "None for an integer" either:
`vjp` and `simplegrad` give each argument's own type for its cotangent.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Literal,
    ParamSpec,
    Protocol,
    Self,
    TypedDict,
    overload,
)

if TYPE_CHECKING:
    from typing_extensions import TypeVar, TypeVarTuple

    from tapegrad.ir.tape import Tape
    from tapegrad.runtime.ahead import Lowered
    from tapegrad.runtime.cache import CacheInfo

    # Of an argument without annotation mypy would otherwise say that its gradient never comes.
    A = TypeVar("A", default=Any)
else:
    from typing import TypeVar, TypeVarTuple

    A = TypeVar("A")

C = TypeVar("C")
A_contra = TypeVar("A_contra", contravariant=True)
F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
S = TypeVar("S")
T = TypeVar("T")
X = TypeVar("X")
Ts = TypeVarTuple("Ts")

__all__ = ["Checkpoint", "Compile", "Derived", "Differentiable", "Pullback", "StandAlone"]

Checkpoint = Literal["auto", "never", "sqrt"] | int
Compile = Literal["auto", "always", "never"] | None


def __dir__() -> list[str]:
    return __all__


class Options(TypedDict, total=False):
    """How gradients are computed; see `grad`."""

    compile: Compile
    checkpoint: Checkpoint
    max_bytes: int | None
    out: Any
    key: Callable[..., Hashable] | None
    debug: bool | Callable[[Any], Any]


class Differentiable(Protocol[P, A_contra, R_co]):
    """A function with parameters P that returns R, whose first argument is an A.

    A checker finds P by the first line and A by the second, in one and the same function.
    """

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...
    @overload
    def __call__(self, x: A_contra, /, *args: Any, **kwargs: Any) -> R_co: ...


class Derived(Protocol[P, R_co]):
    """What `grad`, `value_and_grad` and `jit` return: a function with parameters P that returns R.

    As a method it is bound to its instance, as functions are.
    """

    __name__: str

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    @overload
    def __get__(self, instance: None, owner: Any = None) -> Derived[P, R_co]: ...
    @overload
    def __get__(
        self: Derived[Concatenate[S, Q], R_co], instance: S, owner: Any = None
    ) -> Derived[Q, R_co]: ...

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """What this function is for arguments of these shapes and dtypes, without being called."""
        ...

    def compile(self, *args: Any, **kwargs: Any) -> Self:
        """This function, when the machine code for such arguments is there."""
        ...

    def cache_info(self) -> CacheInfo:
        """How often this function hit, missed, traced and compiled."""
        ...

    def clear_cache(self) -> None:
        """Forget all tapes and compiled code, and set the counts to zero."""
        ...

    @property
    def tapes(self) -> list[Tape]:
        """The tapes held now, most recently used first."""
        ...

    @property
    def tape(self) -> Tape:
        """The tape that answered the last call."""
        ...

    @property
    def source(self) -> str:
        """The loops of the last call's tape as Python, which numba compiles."""
        ...

    def show(self) -> str:
        """What answered the last call, as text."""
        ...


class Pullback(Protocol[*Ts]):
    """What `vjp` returns with the value: from its cotangent to a tuple, one of each argument."""

    def __call__(self, ct: Any) -> tuple[*Ts]: ...


class StandAlone(Protocol[R_co, *Ts]):
    """What `standalone` and `simplegrad` return: a function of arguments of certain shapes."""

    __name__: str

    def __call__(self, *args: *Ts) -> R_co: ...

    @property
    def source(self) -> str:
        """The kernels and the function that calls them."""
        ...

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a Python file with this function in it, which needs NumPy, numba and SciPy only."""
        ...


# What `@grad(argnums=1)` and the like are: functions of a function.


class DifferentiatingFirst(Protocol):
    def __call__(self, f: Differentiable[P, A, Any], /) -> Derived[P, A]: ...


class Differentiating(Protocol):
    def __call__(self, f: Callable[P, Any], /) -> Derived[P, Any]: ...


class ValuingFirst(Protocol):
    def __call__(self, f: Differentiable[P, A, R], /) -> Derived[P, tuple[R, A]]: ...


class Valuing(Protocol):
    def __call__(self, f: Callable[P, R], /) -> Derived[P, tuple[R, Any]]: ...


class Jitting(Protocol):
    def __call__(self, f: Callable[P, R], /) -> Derived[P, R]: ...
