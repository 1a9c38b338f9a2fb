"""Elementwise functions with kinks: |x|, the larger of two, the length and the angle of (x, y).

Their rules are in `kinks` and `norms`. The conventions for ties are in `docs/conventions.md`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegrad.ir.traits import Algebra
from tapegrad.primitives.base import Elementwise, Kink, total
from tapegrad.primitives.elementwise import FUNCTION, not_equal, select, signbit, where, zero
from tapegrad.primitives.kinks import shared, turned
from tapegrad.primitives.norms import ALONE, norm_pullback
from tapegrad.primitives.stated import stated

SELECTS = Algebra(selects=True)


def _abs_rule(ct: Any, x: Any) -> Any:
    return where(x > 0, ct, where(x < 0, -ct, zero(ct)))


absolute = Elementwise(
    np.absolute,
    name="abs",
    kink=Kink(lambda directions, ct, out, x: (turned(directions, x, ct),)),
    jvp=lambda ts, out, x: _abs_rule(ts[0], x),
    quick="abs({0})",
    algebra=SELECTS,
)


def _signed(ct: Any, y: Any) -> Any:
    return where(signbit(y), -ct, ct)


copysign = Elementwise(
    np.copysign,
    kink=Kink(lambda directions, ct, out, x, y: (turned(directions, x, _signed(ct, y)), None)),
    jvp=lambda ts, out, x, y: None if ts[0] is None else _abs_rule(_signed(ts[0], y), x),
    algebra=SELECTS,
)


def _choice(name: str, ufunc: Any) -> Elementwise:
    """maximum, minimum, fmax or fmin: the chosen operand gets all of the cotangent, at a tie each
    gets half."""

    def share(ct: Any, out: Any, x: Any, y: Any) -> Any:
        return select(x.equals(out), where(y.equals(out), ct * 0.5, ct))

    larger = name in ("maximum", "fmax")

    def along(directions: Any, ct: Any, out: Any, x: Any, y: Any) -> Any:
        return shared(larger, directions, ct, out, x, y)

    def jvp(ts: Any, out: Any, x: Any, y: Any) -> Any:
        (tx, ty) = ts
        return total(
            [
                None if tx is None else share(tx, out, x, y),
                None if ty is None else share(ty, out, y, x),
            ]
        )

    scalar = name + "({0}, {1})"
    return Elementwise(
        ufunc, name=name, scalar=scalar, kink=Kink(along, 2), jvp=jvp, algebra=SELECTS
    )


maximum = _choice("maximum", np.maximum)


minimum = _choice("minimum", np.minimum)


fmax = _choice("fmax", np.fmax)


fmin = _choice("fmin", np.fmin)


def _hypot_partials(out: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """x / r and y / r; 0 at the origin. The slope of x / r is (y / r)^2 / r. It is stated, since
    the quotient rule would lose all digits where y is small."""
    r = where(not_equal(out, zero(out)), out, out.constant(1))
    along_x, along_y = x / r, y / r
    across = -(along_x * along_y / r)
    return (
        stated(along_x, (x, along_y * along_y / r), (y, across)),
        stated(along_y, (x, across), (y, along_x * along_x / r)),
    )


def _hypot_along(directions: Any, ct: Any, out: Any, x: Any, y: Any) -> Any:
    return norm_pullback((ALONE, ALONE), directions, ct, out, x, y)


hypot = Elementwise(np.hypot, _hypot_partials, kink=Kink(_hypot_along, 2, origin=0), cost=FUNCTION)


def _arctan2_partials(out: Any, y: Any, x: Any) -> tuple[Any, Any]:
    """x / r**2 and -y / r**2, as two divisions, so that no square overflows; 0 at the origin."""
    r = hypot(x, y)
    away = not_equal(r, zero(r))
    return select(away, x / r / r), select(away, -(y / r / r))


arctan2 = Elementwise(np.arctan2, _arctan2_partials, scalar="atan2({0}, {1})", cost=2 * FUNCTION)
