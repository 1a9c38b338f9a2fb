"""Weighted sums over the neighbours of each element: the basis of filters of arrays."""

from __future__ import annotations

import importlib
import inspect
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapegrad.extending.arrays import as_tracer
from tapegrad.scipy.borrowing import kernels
from tapegrad.scipy.recomputed import constant

MAX_TERMS = 64  # up to this many terms are written out and fused; more are a product


def padded(x: Any, around: Sequence[tuple[int, int]], mode: str, fill: Any = 0.0) -> Any:
    """`x` with more elements before and after along each axis, made as by `np.pad`. A negative
    number cuts elements off."""
    wider = [(max(0, a), max(0, b)) for a, b in around]
    if any(a or b for a, b in wider):
        more = {"constant_values": fill} if mode == "constant" else {}
        x = np.pad(x, wider, mode, **more)  # type: ignore[call-overload]
    cut = [slice(max(0, -a), n - max(0, -b)) for (a, b), n in zip(around, x.shape, strict=True)]
    return x[tuple(cut)]


def parts(x: Any, sizes: Sequence[int]) -> list[Any]:
    """For each offset within a window of these sizes, the elements of all inner windows at that
    offset."""
    counts = [n - m + 1 for n, m in zip(x.shape, sizes, strict=True)]
    offsets = itertools.product(*map(range, sizes))
    return [
        x[tuple(slice(o, o + n) for o, n in zip(offset, counts, strict=True))] for offset in offsets
    ]


def picked(found: Any, candidates: Sequence[Any]) -> Any:
    """SciPy's result `found`, with the derivative of the candidate that it equals; ties share
    it."""
    stacked = np.stack(candidates).astype(found.dtype)
    same = np.logical_and(stacked == found, np.signbit(stacked) == np.signbit(found))
    same = np.logical_or(same, np.logical_and(np.isnan(stacked), np.isnan(found)))
    largest = np.max(np.where(same, stacked, -np.inf), axis=0)
    return np.where(np.isinf(largest), found, largest)  # none where SciPy reads beyond x


def filters(
    module: str, answers: dict[str, Any], completed: Callable[..., Any] | None = None
) -> None:
    """Declare replacements of filters in C. They are passed the array, and write into `output` or
    return their result.

    `completed` combines SciPy's result with the replacement's, if the replacement
    alone doesn't determine the result, like `picked`. For integers the result is SciPy's.
    """
    home = importlib.import_module(module)
    there = {name: getattr(home, name) for name in answers if hasattr(home, name)}
    kernels(module, {name: _filter(own, answers[name], completed) for name, own in there.items()})


def _filter(original: Any, answer: Any, completed: Callable[..., Any] | None) -> Any:
    names = list(inspect.signature(answer).parameters)
    place = names.index("output") if "output" in names else None

    def own(*args: Any) -> Any:
        if place is None:
            return original(*args)
        out = np.zeros(*args[place])
        original(*args[:place], out, *args[place + 1 :])
        return out

    def called(*args: Any) -> Any:
        output = args[0] if place is None else args[place]
        is_smooth = output.dtype.kind in "fc" and args[0].size
        found = None
        if completed or not is_smooth:
            made = output.shape, output.dtype
            plain = [made if k == place else x for k, x in enumerate(args)]
            found = constant(original.__name__, own, *plain)
        if is_smooth:
            found = completed(found, answer(*args)) if completed else answer(*args)
        if place is None:
            return found
        output[...] = found

    return called


def correlated(x: Any, weights: Any, zeros: bool = True) -> Any:
    """The sums of x[i + j] weights[j] over j, for each i whose window is inside. Zero weights
    matter where x is NaN or infinite. Without `zeros` weights that are nearly 0 are left out, as
    in parts of SciPy."""
    kept = np.ones(weights.shape, bool)
    if not zeros and isinstance(weights, np.ndarray):
        kept = np.abs(weights) > np.finfo(float).eps
    if math.prod(weights.shape) <= MAX_TERMS:
        terms = parts(x, weights.shape)
        places = zip(np.ndindex(*weights.shape), terms, strict=True)
        products = [weights[place] * part for place, part in places if kept[place]]
        if not products:
            shape = [n - m + 1 for n, m in zip(x.shape, weights.shape, strict=True)]
            return np.zeros(shape, np.result_type(x, weights))
        return sum(products[1:], products[0])
    windows = np.lib.stride_tricks.sliding_window_view(as_tracer(x, weights), weights.shape)
    if not kept.all():
        return windows[..., kept] @ weights[kept]
    axes = list(range(-weights.ndim, 0))
    return np.tensordot(windows, weights, (axes, list(range(weights.ndim))))
