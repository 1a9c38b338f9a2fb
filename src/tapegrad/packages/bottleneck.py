"""bottleneck's reductions and moving windows: NumPy's functions that skip NaN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tapegrad.extending import stands_for

_REDUCTIONS = "nansum nanmean nanmin nanmax nanmedian median nanargmin nanargmax"


def _reduction(f: Callable[..., Any]) -> Callable[..., Any]:
    def answer(a: Any, axis: Any = None) -> Any:
        return f(a, axis)

    return answer


for _name in _REDUCTIONS.split():
    stands_for("bottleneck", _name)(_reduction(getattr(np, _name)))
stands_for("bottleneck", "ss")(_reduction(lambda a, axis: np.sum(a * a, axis)))
stands_for("bottleneck", "anynan")(_reduction(lambda a, axis: np.any(np.isnan(a), axis)))
stands_for("bottleneck", "allnan")(_reduction(lambda a, axis: np.all(np.isnan(a), axis)))


def _spread(f: Callable[..., Any]) -> Callable[..., Any]:
    def answer(a: Any, axis: Any = None, ddof: Any = 0) -> Any:
        return f(a, axis, ddof=ddof)

    return answer


stands_for("bottleneck", "nanstd", parameters="ddof")(_spread(np.nanstd))
stands_for("bottleneck", "nanvar", parameters="ddof")(_spread(np.nanvar))


# ---- moving windows along an axis, which are shorter at its beginning


def _moving(name: str, f: Callable[..., Any], spread: bool = False) -> None:
    def of_windows(a: Any, window: int, min_count: Any, axis: int, **how: Any) -> Any:
        rows = np.moveaxis(a, axis, -1)
        least = window if min_count is None else min_count
        if not 1 <= least <= window <= rows.shape[-1]:
            raise ValueError(f"window={window}, min_count={min_count} of {rows.shape[-1]} entries")
        before = np.full((*rows.shape[:-1], window - 1), np.nan, rows.dtype)
        places = np.arange(rows.shape[-1])[:, None] + np.arange(window)
        windows = np.concatenate([before, rows], -1)[..., places]
        known = np.sum(~np.isnan(windows), -1) >= least
        filled = np.where(known[..., None], windows, 0.0)  # all entries of a window may be NaN
        return np.moveaxis(np.where(known, f(filled, -1, **how), np.nan), -1, axis)

    def answer(a: Any, window: Any, min_count: Any = None, axis: Any = -1) -> Any:
        return of_windows(a, window, min_count, axis)

    def spreading(a: Any, window: Any, min_count: Any = None, axis: Any = -1, ddof: Any = 0) -> Any:
        return of_windows(a, window, min_count, axis, ddof=ddof)

    asked = "window min_count ddof"
    stands_for("bottleneck", f"move_{name}", parameters=asked)(spreading if spread else answer)


for _name, _function in (
    *(("sum", np.nansum), ("mean", np.nanmean), ("median", np.nanmedian)),
    *(("min", np.nanmin), ("max", np.nanmax)),
):
    _moving(_name, _function)
_moving("std", np.nanstd, spread=True)
_moving("var", np.nanvar, spread=True)


@stands_for("bottleneck", parameters="n")
def push(a: Any, n: Any = None, axis: Any = -1) -> Any:
    """Each NaN replaced by the last entry that isn't NaN, if that is at most `n` places before."""
    rows = np.moveaxis(a, axis, -1)
    here = np.arange(rows.shape[-1])
    last = np.maximum.accumulate(np.where(np.isnan(rows), -1, here), axis=-1)
    found = np.take_along_axis(rows, np.maximum(last, 0), -1)
    if n is not None:
        found = np.where(here - last <= n, found, np.nan)
    return np.moveaxis(found, -1, axis)
