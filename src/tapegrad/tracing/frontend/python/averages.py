"""Python's `statistics` of traced numbers.

Most of that module is written in Python, and followed. The functions replaced here convert numbers
to fractions, which are added without rounding: so sums are rounded once, and deviations neither
overflow nor underflow.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tapegrad.core.handlers import quiet
from tapegrad.observe.answers.answers import declare, declare_late
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.observer import observed, unobserved
from tapegrad.primitives import special
from tapegrad.primitives.elementwise import stop_gradient
from tapegrad.tracing.frontend.indexing.indexing import as_python
from tapegrad.tracing.frontend.operands.memory import scalar
from tapegrad.tracing.frontend.operands.operands import cast
from tapegrad.tracing.frontend.operands.parameters import whole
from tapegrad.tracing.frontend.python.mathematics import exact_sum, is_finite, is_followed, said
from tapegrad.tracing.loops.stacking import strong
from tapegrad.tracing.tracers.tracer import Tracer


def _answered(original: Callable[..., Any], by: Callable[..., Any]) -> Callable[..., Any]:
    """The replacement for a function of `statistics`. `by` gets arrays in the place of lists, and
    returns None where the original raises an error."""
    signature = inspect.signature(original)

    @functools.wraps(original)
    @unobserved
    def called(*args: Any, **kwargs: Any) -> Any:
        with observed():
            args = tuple(map(_listed, signature.bind(*args, **kwargs).args))
        every = [e for x in args for e in (x if isinstance(x, list) else [x])]
        if not is_followed(every):
            with observed():
                return original(*map(_whole, args))  # its C code checks types
        result = quiet(by)(*map(_numbers, args))
        if result is None or not is_finite(result):
            for x in every:
                if isinstance(x, Tracer) and not np.isfinite(x) and not np.isnan(x):
                    bool(x > 0)
            found = original(*map(_plain, args))  # may raise
            return found if result is None or np.isnan(result) else result
        of_numpys = any(isinstance(x, np.generic) for x in every)
        if of_numpys and not original.__name__.endswith("stdev"):
            return scalar(strong(result))
        return as_python(result)

    return called


def _listed(x: Any) -> Any:
    single = isinstance(x, Tracer) and not x.ndim
    return [*map(said, x)] if hasattr(x, "__iter__") and not single else x


def _numbers(x: Any) -> Any:
    if not isinstance(x, list):
        return x
    traced = any(isinstance(e, Tracer) for e in x)
    return cast(dispatch.as_operand(x), np.float64) if traced else np.array(x, np.float64)


def _whole(x: Any) -> Any:
    if isinstance(x, list):
        return [*map(_whole, x)]
    return x if (found := whole(x)) is None else found


def _plain(x: Any) -> Any:
    if isinstance(x, list):
        return [*map(_plain, x)]
    return float(x._concrete) if isinstance(x, Tracer) else x


def _mean(data: Any) -> Any:
    total = exact_sum(data) / len(data)
    if is_finite(total):
        return total
    return exact_sum(np.ldexp(data, -64)) / len(data) * 2.0**64


def _harmonic_mean(data: Any, weights: Any = None) -> Any:
    parts = 1.0 if weights is None else weights
    if len(data) == 1 and weights is None:
        return data[0] if data[0] >= 0 else None
    if not (np.all(data >= 0) and np.all(parts >= 0)):
        return None
    total = float(len(data)) if weights is None else exact_sum(weights)
    return total / exact_sum(parts / data)


def _deviations(data: Any, at: Any, rest: int) -> tuple[Any, Any] | None:
    """The mean of the squared deviations divided by 4**k, and the exponent k."""
    if len(data) <= rest:
        return None
    apart = data - (_mean(data) if at is None else at)
    exponent = np.frexp(np.max(np.abs(stop_gradient(apart))))[1]
    apart = np.ldexp(apart, -exponent)
    squares = exact_sum(apart * apart)
    if at is None:  # the mean was rounded
        squares = squares - exact_sum(apart) ** 2 / len(data)
    return squares / (len(data) - rest), exponent


def _variance(rest: int, data: Any, at: Any = None) -> Any:
    found = _deviations(data, at, rest)
    return found and np.ldexp(found[0], 2 * found[1])


def _deviation(rest: int, data: Any, at: Any = None) -> Any:
    found = _deviations(data, at, rest)
    return found and np.ldexp(np.sqrt(found[0]), found[1])


def _quantile(p: Any, mu: Any, sigma: Any) -> Any:
    return as_python(mu + sigma * special.ndtri(p))


def _declare() -> None:
    statistics = importlib.import_module("statistics")
    answers: dict[str, Callable[..., Any]] = {
        "mean": _mean,
        "harmonic_mean": _harmonic_mean,
        "variance": functools.partial(_variance, 1),
        "pvariance": functools.partial(_variance, 0),
        "stdev": functools.partial(_deviation, 1),
        "pstdev": functools.partial(_deviation, 0),
    }
    by = {name: _answered(getattr(statistics, name), f) for name, f in answers.items()}

    def mean_and_deviation(data: Any) -> Any:
        data = [*data]
        mean = by["mean"](data)
        if not (is_finite(mean) if isinstance(mean, Tracer) else math.isfinite(mean)):
            return mean, math.nan
        return mean, by["stdev"](data)

    for name, answer in by.items():
        declare(statistics, name, answer)
    declare(statistics, "_mean_stdev", unobserved(mean_and_deviation))
    declare(statistics, "_normal_dist_inv_cdf", unobserved(_quantile), traced=True)


def declare_all() -> None:
    """Register the replacements once a program imports that module."""
    declare_late("statistics", _declare)
