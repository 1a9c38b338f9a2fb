"""Checks of derivatives against finite differences, for users' own functions and rules."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tapegrad.core.arrays import native
from tapegrad.core.frames import short_traceback
from tapegrad.core.late import LINEAR_MAPS, load
from tapegrad.core.request import Request, describe
from tapegrad.core.trees import (
    flatten,
    flatten_up_to,
    flatten_with_paths,
    is_number,
    is_traced,
    unflatten,
)
from tapegrad.errors import ArgumentError, GradcheckError

__all__ = ["check_rule", "gradcheck"]

Array = np.ndarray


def __dir__() -> list[str]:
    return __all__


@short_traceback
def gradcheck(
    f: Callable[..., Any],
    args: Any,
    eps: float = 1e-6,
    atol: float = 1e-4,
    rtol: float = 1e-3,
    seed: int = 0,
) -> bool:
    """Check the derivatives of `f` at `args` against central differences; True if they agree.

    With J the Jacobian, for every element i of the result and j of the arguments

        |N[i, j] - J[i, j]| <= atol + rtol * |N[i, j]|,
        N[i, j] = (f(x + eps e_j) - f(x - eps e_j))[i] / (2 eps),

    where J comes row by row from the pullback of `f`. A second check compares u^T J v with the
    difference along v, for a random cotangent u and direction v (drawn with `seed`), and a third
    that two runs give the same bits.

    Parameters
    ----------
    f : a function of arrays whose value is an array, or nested tuples, lists and dicts of them.
    args : its arguments, as a tuple or list; one that is neither may stand alone. Real arrays and
        floats are checked, nested ones too; integers, strings and the like are passed on as they
        are.
    eps : the step of the differences.
    atol, rtol : how far the derivative may be off.
    seed : of the random direction.

    Returns
    -------
    True, so that `assert gradcheck(f, args)` reads as it should.

    Raises
    ------
    GradcheckError : a derivative is wrong. It names the argument, the element and both values, and
        is an AssertionError, so tests can call `gradcheck` as it is.
    ArgumentError : none of the arguments is real.

    Use float64: in float32 the differences are mostly rounding, and a warning says so. Stay away
    from kinks, where a difference has no derivative to agree with.
    """
    load(LINEAR_MAPS)
    from tapegrad.runtime.pullback import vjp

    args = args if isinstance(args, tuple) else tuple(args) if isinstance(args, list) else (args,)
    point = _Point.of(f, args, eps)
    _check_determinism(point, "value", lambda: point.run(point.zeros))
    point.value, point.pullback = vjp(f, args)
    _refuse_complex(f, "result", flatten(point.value)[0])
    ones = [np.ones(shape) for shape in point.value_shapes]
    _check_determinism(point, "gradient", lambda: point.pull(ones))
    _check_elements(point, atol, rtol)
    _check_direction(point, atol, rtol, np.random.default_rng(seed))
    return True


@short_traceback
def check_rule(
    f: Callable[..., Any],
    *args: Any,
    modes: Sequence[str] = ("forward", "reverse"),
    order: int = 2,
    eps: float = 1e-6,
    atol: float = 1e-8,
    rtol: float = 1e-6,
    seed: int = 0,
) -> bool:
    """Check the derivatives of `f` at `args` in forward and in reverse mode, along random tangents
    t and for random cotangents ct; True if they agree.

    With J the Jacobian, of first order these are one number, to some digits for the differences
    and to almost all for the others:

        <ct, (f(x + eps t) - f(x - eps t)) / 2 eps>  =  <ct, J t>  =  <J^T ct, t>

    Of second order the maps (x, t) -> J t and (x, ct) -> J^T ct are taken for f, so that both modes
    of the rules of both modes are checked. Of complex numbers <a, b> is the real part of the sum of
    their products.

    Parameters
    ----------
    f : a function of arrays whose value is an array, or nested tuples, lists and dicts of them.
        Mostly it is one that has rules, or that calls one.
    args : its arguments; nested ones, too. Those that are floats, complex numbers or arrays of
        such are moved, the others are passed on as they are.
    modes : "forward", "reverse" or both. With one of them the other isn't needed, of second order
        either.
    order : 1 or 2.
    eps : the step of the differences.
    atol, rtol : how far these may be off, for each unit of ct, and as a part of what was added up.
    seed : of the random directions.

    Returns
    -------
    True, so that `assert check_rule(f, x)` reads as it should.

    Raises
    ------
    GradcheckError : two of the numbers differ. It says which.
    GradientError : there is no such derivative.
    ArgumentError : none of the arguments can be moved, or `modes` or `order` aren't as above.

    `gradcheck` compares each element of the Jacobian and names the one that is wrong; this looks
    at both modes and at their derivatives. Stay away from kinks, and use double precision.
    """
    from tapegrad.runtime.both_modes import check_rules

    return check_rules(f, args, modes, order, eps, atol, rtol, seed)


@dataclass
class _Point:
    """A function at a point. The real leaves of the arguments, numbered `real`, can be moved."""

    request: Request
    real: list[int]
    eps: float
    value: Any = None
    pullback: Any = None

    @staticmethod
    def of(f: Callable[..., Any], args: tuple[Any, ...], eps: float) -> _Point:
        request = Request(f, args).check("gradcheck")
        leaves, words = request.leaves, request.words
        _refuse_complex(f, "argument", leaves)
        real = [k for k, x in enumerate(leaves) if _is_real(x)]
        if not real:
            raise ArgumentError(
                f"gradcheck of {describe(f)}: none of the arguments is a float or an array of "
                "floats, so there is no derivative to check. Write 3.0 instead of 3, or pass "
                "x.astype(float)"
            )
        for k in real:
            dtype = native(np.asarray(leaves[k]).dtype)
            if dtype != np.float64:
                warnings.warn(
                    f"gradcheck of {describe(f)}: {words[k]} is {dtype}, whose rounding is larger "
                    "than the differences that are compared. Use float64",
                    stacklevel=4,
                )
        return _Point(request, real, eps)

    @property
    def name(self) -> str:
        return self.request.name

    def run(self, shift: Sequence[Any]) -> list[Array]:
        """The real leaves of the value, with the real arguments moved by `shift`."""
        leaves = list(self.request.leaves)
        for k, step in zip(self.real, shift, strict=True):
            moved = np.array(leaves[k]) + step
            leaves[k] = float(moved) if is_number(leaves[k]) else moved.astype(leaves[k].dtype)[()]
        args, _ = unflatten(self.request.structure, leaves)
        return _real_leaves(self.request.f(*args))

    def slope(self, direction: Sequence[Any]) -> list[Array]:
        """(f(x + eps v) - f(x - eps v)) / 2 eps, for the real leaves of the value."""
        above = self.run([self.eps * v for v in direction])
        below = self.run([-self.eps * v for v in direction])
        return [(a - b) / (2 * self.eps) for a, b in zip(above, below, strict=True)]

    def pull(self, cts: Sequence[Any]) -> list[Array]:
        """The cotangents of the real arguments, for those of the real leaves of the value."""
        given = iter(cts)
        leaves, structure = flatten(self.value)
        ct = unflatten(structure, [next(given) if _is_real(x) else None for x in leaves])
        found: list[Any] = []
        for arg, pulled in zip(self.request.args, self.pullback(ct), strict=True):
            _, spec = flatten(arg)
            found += [None] * spec.num_leaves if pulled is None else flatten_up_to(spec, pulled)
        return [np.asarray(found[k]) for k in self.real]

    @property
    def zeros(self) -> list[Any]:
        """The real arguments stay where they are."""
        return [np.zeros(shape) for shape in self.shapes]

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the real arguments."""
        return [np.shape(self.request.leaves[k]) for k in self.real]

    @property
    def value_shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the real leaves of the value."""
        return [x.shape for x in _real_leaves(self.value)]


def _refuse_complex(f: Callable[..., Any], what: str, leaves: Sequence[Any]) -> None:
    if any(np.iscomplexobj(x) for x in leaves if is_traced(x)):
        raise ArgumentError(
            f"gradcheck of {describe(f)}: a complex {what}, and only real ones are checked. Check "
            "a function of real and imaginary parts that returns those"
        )


def _is_real(x: Any) -> bool:
    if isinstance(x, (np.ndarray, np.generic)):
        return x.dtype.kind == "f"
    return isinstance(x, float)


def _real_leaves(value: Any) -> list[Array]:
    return [np.asarray(x) for x in flatten(value)[0] if _is_real(x)]


# ---- the checks


def _check_determinism(point: _Point, what: str, run: Callable[[], list[Array]]) -> None:
    """Two runs give the same bits."""
    once, again = run(), run()
    if any(a.tobytes() != b.tobytes() for a, b in zip(once, again, strict=True)):
        raise GradcheckError(
            f"gradcheck of {point.name}: its {what} isn't the same in two runs on the same "
            "arguments. Pass random numbers and everything else that changes as arguments"
        )


def _check_elements(point: _Point, atol: float, rtol: float) -> None:
    """Every element of the Jacobian against a central difference."""
    rows = [_flat(point.pull(ct)) for ct in _units(point.value_shapes)]
    columns = [_flat(point.slope(v)) for v in _units(point.shapes)]
    if not rows or not columns:
        return
    found, expected = np.array(rows), np.array(columns).T
    allowed = atol + rtol * np.abs(expected)
    error = np.abs(found - expected)
    wrong = ~(error <= allowed)  # so that NaN is wrong
    if wrong.any():
        badness = np.where(wrong, np.nan_to_num(error / allowed, nan=np.inf), -1)
        i, j = np.unravel_index(np.argmax(badness), wrong.shape)
        result = _element(int(i), point.value_shapes, _result_words(point))
        argument = _element(int(j), point.shapes, [point.request.words[k] for k in point.real])
        raise GradcheckError(
            f"gradcheck of {point.name}: the derivative of {result} with respect to {argument} is "
            f"{found[i, j]:.8g}, and a central difference gives {expected[i, j]:.8g}: off by "
            f"{error[i, j]:.3g}, where {allowed[i, j]:.3g} is allowed. "
            f"{wrong.sum()} of {wrong.size} elements disagree"
        )


def _check_direction(point: _Point, atol: float, rtol: float, rng: np.random.Generator) -> None:
    """u^T J v against the difference along v, for unit vectors u and v in random directions."""
    u, v = _random_unit(point.value_shapes, rng), _random_unit(point.shapes, rng)
    found = float(_flat(point.pull(u)) @ _flat(v))
    expected = float(_flat(u) @ _flat(point.slope(v)))
    if not abs(found - expected) <= atol + rtol * abs(expected):
        raise GradcheckError(
            f"gradcheck of {point.name}: with a random cotangent u and direction v, u^T J v is "
            f"{found:.8g} by the derivative and {expected:.8g} by a central difference, though the "
            "single elements agree. A rule must be linear in its cotangent"
        )


def _flat(arrays: Sequence[Array]) -> Array:
    return np.concatenate([np.zeros(0), *[np.ravel(x) for x in arrays]])


def _split(flat: Array, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    return [x.reshape(s) for x, s in zip(np.split(flat, ends[:-1]), shapes, strict=True)]


def _units(shapes: Sequence[tuple[int, ...]]) -> Iterator[list[Array]]:
    """Each unit vector of the space of arrays of these shapes."""
    size = sum(math.prod(shape) for shape in shapes)
    for k in range(size):
        flat = np.zeros(size)
        flat[k] = 1
        yield _split(flat, shapes)


def _random_unit(shapes: Sequence[tuple[int, ...]], rng: np.random.Generator) -> list[Array]:
    flat = rng.normal(size=sum(math.prod(shape) for shape in shapes))
    return _split(flat / max(float(np.linalg.norm(flat)), 1e-300), shapes) if shapes else []


def _result_words(point: _Point) -> list[str]:
    paths, leaves, _ = flatten_with_paths(point.value)
    return [
        "the result" + "".join(f"[{p!r}]" for p in path)
        for path, leaf in zip(paths, leaves, strict=True)
        if _is_real(leaf)
    ]


def _element(position: int, shapes: Sequence[tuple[int, ...]], words: Sequence[str]) -> str:
    """What to call element `position` of arrays of these shapes, one after the other."""
    for shape, word in zip(shapes, words, strict=True):
        size = math.prod(shape)
        if position < size:
            index = ", ".join(str(int(k)) for k in np.unravel_index(position, shape))
            return f"{word} at [{index}]" if shape else word
        position -= size
    raise IndexError(position)
