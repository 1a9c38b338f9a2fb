"""The methods of ndarray that a tracer has, by name."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegrad.tracing import recipes
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
from tapegrad.tracing.frontend.complexes import check_method
from tapegrad.tracing.frontend.parameters import form_of, running, taken
from tapegrad.tracing.layout import settle
from tapegrad.tracing.observe.observer import unobserved


def _reshape(x: Any, *shape: Any, order: str = "C", copy: Any = None) -> Any:
    return shaping.reshape(x, shape[0] if len(shape) == 1 else shape, order, copy=copy)


def _transpose(x: Any, *axes: Any) -> Any:
    if len(axes) == 1 and (axes[0] is None or np.ndim(axes[0])):
        axes = axes[0]
    return shaping.transpose(x, None if axes is None or not len(axes) else axes)


@unobserved
def call_method(name: str, x: Any, *args: Any, **kwargs: Any) -> Any:
    """The method of this name, of the table below."""
    if running.numpys:
        return _called(name, x, args, kwargs)
    return recipes.applied(name, (x, *args), kwargs, lambda: _called(name, x, args, kwargs))


def _called(name: str, x: Any, args: Any, kwargs: Any) -> Any:
    given, named, _ = taken(form_of(METHODS[name]), (x, *args), kwargs)
    check_method(name, given, named)
    if running.numpys:  # what called that is watched
        return settle(METHODS[name](*given, **named), given, certain=True)
    result = watching(method(name), given, named, lambda: METHODS[name](*given, **named))
    return settle(result, given, certain=True)


def _compress(x: Any, condition: Any, axis: Any = None, out: Any = None) -> Any:
    return indexing.compress(condition, x, axis, out)


def _conjugate(x: Any, out: Any = None) -> Any:
    """Of real numbers the method gives the array itself, and the ufunc a copy."""
    return x if out is None and x.dtype.kind != "c" else np.conjugate(x, out=out)


# Methods by the modules that have them, under the same names
_NAMES: dict[Any, str] = {
    reducing: "all any argmax argmin cumprod cumsum max mean min prod std sum var",
    sorting: "argpartition argsort searchsorted",
    shaping: "astype copy diagonal flatten ravel repeat squeeze swapaxes trace view",
    indexing: "choose nonzero take",
    misc: "clip round",
    contracting: "dot",
    scattering: "fill put",
}
METHODS: dict[str, Any] = {
    **{name: getattr(m, name) for m, names in _NAMES.items() for name in names.split()},
    "compress": _compress,
    "conj": _conjugate,
    "conjugate": _conjugate,
    "partition": sorting.partition_in_place,
    "reshape": _reshape,
    "sort": sorting.sort_in_place,
    "transpose": _transpose,
}
