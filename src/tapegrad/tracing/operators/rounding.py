"""`round(x, digits)` of Python floats: the decimal nearest to the exact value of the float.

NumPy multiplies by 10**digits and rounds the product, which is already rounded: 2.675 as a float is
below 2.675, but its product with 100 is 267.5. The exact rounding error of the product tells on
which side of the half the number is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegrad.errors import ConversionError
from tapegrad.observe.program.source import at_line

_SPLITS = 2.0**27 + 1  # splits a float into two halves of 26 bits
_WHOLE = 2.0**52  # floats from here on are integers
_POWERS = 22  # 10**22 is the largest power of ten that is a float


def rounded(x: Any, digits: int) -> Any:
    """`round(x, digits)` of a traced Python float; its derivative is 0."""
    if not np.isfinite(x) or x == 0:
        return +x
    if digits > 323 or (digits >= 0 and abs(x) >= _WHOLE):
        return +x
    if digits < -308:
        return 0.0 * x
    scale = 10.0 ** min(abs(digits), _POWERS)
    if abs(digits) > _POWERS or not abs(x) < (_WHOLE / scale if digits > 0 else _WHOLE):
        raise ConversionError(
            f"round(x, {digits}) of a traced number{at_line()} needs more digits than its float "
            "has. Use np.round(x, digits)"
        )
    scaled = x * scale if digits >= 0 else x / scale
    lost = _lost_by_product(x, scale, scaled) if digits >= 0 else x - _nearest_half(scaled) * scale
    floor = np.floor(scaled)
    halfway = scaled - floor == 0.5
    up = np.where(lost > 0, floor + 1, np.where(lost < 0, floor, np.rint(scaled)))
    whole = np.where(halfway, up, np.rint(scaled))
    whole = np.copysign(whole, x)
    return (whole / scale if digits >= 0 else whole * scale)._as_pythons()


def _nearest_half(x: Any) -> Any:
    return np.floor(x) + 0.5


def _lost_by_product(x: Any, y: float, product: Any) -> Any:
    """x * y - product, exactly (Dekker)."""
    high, low = _halves(x)
    top, rest = _halves(y)
    return ((high * top - product) + high * rest + low * top) + low * rest


def _halves(x: Any) -> tuple[Any, Any]:
    part = x * _SPLITS
    high = part - (part - x)
    return high, x - high
