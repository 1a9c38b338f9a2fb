"""Checks of derivatives against differences, along random directions.

`tapegrad.testing.gradcheck` checks each element. These functions compare one number for each mode
and order, as programs written for HIPS autograd expect.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from tapegrad.autograd.core import make_jvp, make_vjp
from tapegrad.autograd.vspace import vspace
from tapegrad.autograd.wrap_util import get_name, unary_to_nary
from tapegrad.errors import GradcheckError

__all__ = [
    "check_equivalent",
    "check_grads",
    "check_jvp",
    "check_vjp",
    "combo_check",
    "make_numerical_jvp",
    "scalar_close",
]

EPS = 1e-6
TOL = 1e-6
RTOL = 1e-6


def scalar_close(a: Any, b: Any) -> bool:
    """Whether two numbers differ by less than a millionth, or by less than a millionth of their
    sum."""
    return bool(abs(a - b) < TOL or abs(a - b) / abs(a + b) < RTOL)


def make_numerical_jvp(f: Callable[..., Any], x: Any) -> Callable[[Any], Any]:
    """v -> (f(x + v h / 2) - f(x - v h / 2)) / h, with h = 1e-6."""
    space, image = vspace(x), vspace(f(x))

    def slope(v: Any) -> Any:
        above = f(space.add(x, space.scalar_mul(v, EPS / 2)))
        below = f(space.add(x, space.scalar_mul(v, -EPS / 2)))
        return image.scalar_mul(image.add(above, image.scalar_mul(below, -1.0)), 1 / EPS)

    return slope


def check_vjp(f: Callable[..., Any], x: Any) -> None:
    """Compare <u, J v> by the pullback with the difference, for random u and v."""
    pull, y = make_vjp(f, x)
    space, image = vspace(x), vspace(y)
    v, u = space.randn(), image.randn()
    pulled = space.covector(pull(image.covector(u)))
    if vspace(pulled) != space:
        raise GradcheckError(
            f"the cotangent that the pullback of {get_name(f)} returns is of {vspace(pulled)}, and "
            f"the argument of {space}"
        )
    exact = space.inner_prod(v, pulled)
    numeric = image.inner_prod(u, make_numerical_jvp(f, x)(v))
    if not scalar_close(exact, numeric):
        raise GradcheckError(
            f"Derivative (VJP) check of {get_name(f)} failed with arg {x}: along a direction it is "
            f"{exact}, and the difference {numeric}"
        )


def check_jvp(f: Callable[..., Any], x: Any) -> None:
    """Compare J v by forward mode with the difference, for a random v."""
    v = vspace(x).randn()
    check_equivalent(make_jvp(f, x)(v)[1], make_numerical_jvp(f, x)(v))


def check_equivalent(x: Any, y: Any) -> None:
    """Compare two values along a random direction."""
    if vspace(x) != vspace(y):
        raise GradcheckError(f"these aren't put together alike: {vspace(x)}, {vspace(y)}")
    v = vspace(x).randn()
    if not scalar_close(vspace(x).inner_prod(x, v), vspace(x).inner_prod(y, v)):
        raise GradcheckError(f"these aren't the same: {x}, {y}")


@unary_to_nary
def check_grads(
    f: Callable[..., Any], x: Any, modes: Sequence[str] = ("fwd", "rev"), order: int = 2
) -> None:
    """Compare derivatives of `f` with differences, in these modes, and those of its derivatives up
    to this order: `check_grads(f, argnum, modes, order)(*args)`. Raises a GradcheckError, which is
    an AssertionError, if one is wrong."""
    unknown = {*modes} - {"fwd", "rev"}
    if unknown:
        raise ValueError(f'modes are "fwd" and "rev", not {sorted(unknown)}')
    if "fwd" in modes:
        check_jvp(f, x)
        if order > 1:

            def pushed(x: Any, v: Any) -> Any:
                return make_jvp(f, x)(v)[1]

            pushed.__name__ = f"jvp_{get_name(f)}"
            check_grads(pushed, (0, 1), modes, order - 1)(x, vspace(x).randn())
    if "rev" in modes:
        check_vjp(f, x)
        if order > 1:

            def pulled(x: Any, v: Any) -> Any:
                return make_vjp(f, x)[0](v)

            pulled.__name__ = f"vjp_{get_name(f)}"
            check_grads(pulled, (0, 1), modes, order - 1)(x, vspace(f(x)).randn())


def combo_check(f: Callable[..., Any], *options: Any, **named: Any) -> Callable[..., None]:
    """`check_grads` for each combination of arguments, one from each list."""

    def checked(*lists: Any, **named_lists: Any) -> None:
        for args in itertools.product(*lists):
            for values in itertools.product(*named_lists.values()):
                kwargs = dict(zip(named_lists, values, strict=True))
                check_grads(f, *options, **named)(*args, **kwargs)

    return checked
