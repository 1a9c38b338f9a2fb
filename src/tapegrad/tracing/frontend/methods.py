"""The methods of ndarray that a tracer has, by name."""

from __future__ import annotations

from typing import Any

from tapegrad.tracing.floating import method, watching
from tapegrad.tracing.frontend import (
    contracting,
    indexing,
    misc,
    reducing,
    scattering,
    shaping,
    sorting,
)
from tapegrad.tracing.frontend.parameters import form_of, taken
from tapegrad.tracing.layout import settle
from tapegrad.tracing.observe.observer import unobserved


def _reshape(x: Any, *shape: Any, order: str = "C", copy: Any = None) -> Any:
    return shaping.reshape(x, shape[0] if len(shape) == 1 else shape, order)


def _transpose(x: Any, *axes: Any) -> Any:
    if len(axes) == 1 and (axes[0] is None or not hasattr(axes[0], "__index__")):
        axes = axes[0]
    return shaping.transpose(x, axes or None)


@unobserved
def call_method(name: str, x: Any, *args: Any, **kwargs: Any) -> Any:
    """The method of this name, of the table below."""
    given, named, _ = taken(form_of(METHODS[name]), (x, *args), kwargs)
    result = watching(method(name), given, named, lambda: METHODS[name](*given, **named))
    return settle(result, given, certain=True)


METHODS: dict[str, Any] = {
    "all": reducing.all_,
    "any": reducing.any_,
    "argmax": reducing.argmax,
    "argmin": reducing.argmin,
    "argsort": sorting.argsort,
    "astype": shaping.astype,
    "choose": indexing.choose,
    "clip": misc.clip,
    "compress": lambda x, condition, axis=None, out=None: indexing.compress(
        condition, x, axis, out
    ),
    "conj": shaping.copy,
    "conjugate": shaping.copy,
    "copy": shaping.copy,
    "cumprod": reducing.cumprod,
    "cumsum": reducing.cumsum,
    "diagonal": shaping.diagonal,
    "dot": contracting.dot,
    "fill": scattering.fill,
    "flatten": shaping.flatten,
    "max": reducing.max,
    "mean": reducing.mean,
    "min": reducing.min,
    "nonzero": indexing.nonzero,
    "prod": reducing.prod,
    "put": scattering.put,
    "ravel": shaping.ravel,
    "repeat": shaping.repeat,
    "reshape": _reshape,
    "round": misc.round_,
    "searchsorted": sorting.searchsorted,
    "sort": sorting.sort_in_place,
    "squeeze": shaping.squeeze,
    "std": reducing.std,
    "sum": reducing.sum,
    "swapaxes": shaping.swapaxes,
    "take": indexing.take,
    "trace": shaping.trace,
    "transpose": _transpose,
    "var": reducing.var,
    "view": shaping.view,
}
