"""Statistics of samples: SciPy's own code, run on traced arrays.

Most of these functions are Python that calls NumPy along the last axis, behind a decorator. The
decorator moves the samples to the last axis and looks for NaNs. Its work is done here: one axis,
several axes or none, `keepdims` and `nan_policy`. Whether there are NaNs is guarded.
"""

from __future__ import annotations

import functools
import inspect
import math
import warnings
from typing import Any

import numpy as np
import scipy.special as sc
from scipy import stats
from scipy.stats import _stats_py as theirs_of

from tapegrad.extending import (
    answering,
    any_traced,
    at_line,
    declare,
    is_traced,
    observed,
    refusal,
    stands_for,
    unobserved,
)
from tapegrad.extending.arrays import Tracer, dispatch, scales
from tapegrad.extending.runs import let_through, library_code, observer, row_of
from tapegrad.scipy.borrowing import borrow, kernels
from tapegrad.scipy.recomputed import each

HOME = "scipy.stats"

# Functions without the decorator: SciPy's code runs unchanged.
borrow(
    HOME,
    """zscore zmap gzscore gstd describe quantile expectile boxcox boxcox_llf yeojohnson
    yeojohnson_llf ttest_ind_from_stats chisquare power_divergence chi2_contingency sigmaclip trim1
    trimboth obrientransform energy_distance wasserstein_distance scoreatpercentile
    percentileofscore cumfreq relfreq directional_stats false_discovery_control quantile_test
    tiecorrect median_test theilslopes probplot
    bayes_mvs mvsdist binomtest""",
)
borrow(HOME, "bootstrap permutation_test", decorated=True, lists="data")


def _drawing(name: str) -> None:
    """Declare a function that draws random numbers. Without a seed each call draws other
    numbers."""
    original = getattr(stats, name)
    own = getattr(row_of(original), "by", original)

    @functools.wraps(original)
    @unobserved
    def called(*args: Any, **kwargs: Any) -> Any:
        here = observer()
        if here is not None and kwargs.get("rng") is None and kwargs.get("random_state") is None:
            here.reads.use_once("a random generator that is made without a seed")
        return own(*args, **kwargs)

    declare(stats, name, called, when=any_traced)


_drawing("bootstrap")
_drawing("permutation_test")
borrow(HOME, "binned_statistic binned_statistic_2d binned_statistic_dd", lists="sample")


def _yeojohnson(x: Any, lmbda: Any, xp: Any = None) -> Any:
    """Box and Cox's transform of 1 + |x|, to the power 2 - lambda below 0. SciPy branches at
    lambda = 0 and 2, which loses the derivative along lambda."""
    above = x >= 0
    up, down = np.where(above, x, 0.0), np.where(above, 0.0, -x)
    return np.where(above, sc.boxcox1p(up, lmbda), -sc.boxcox1p(down, 2.0 - lmbda))


def _yeojohnson_llf(x: Any, *, lmb: Any, axis: Any = 0) -> Any:
    """The log likelihood of Yeo and Johnson's transform. Its term in x is smooth at 0; SciPy's
    sign(x) log(1 + |x|) isn't when it is differentiated rule by rule."""
    above = x >= 0
    up, down = np.where(above, x, 0.0), np.where(above, 0.0, -x)
    slopes = np.sum(np.where(above, np.log1p(up), -np.log1p(down)), axis=axis)
    variance = np.var(_yeojohnson(x, lmb), axis=axis)
    return (lmb - 1) * slopes - x.shape[axis] / 2 * np.log(variance)


kernels(
    "scipy.stats._morestats",
    {"_yeojohnson_transform": _yeojohnson, "_yeojohnson_llf": _yeojohnson_llf},
)

_REDUCED = {
    1: "gmean hmean pmean tmean tvar tstd tmin tmax tsem sem skew kurtosis moment kstat trim_mean "
    "iqr median_abs_deviation variation circmean circvar circstd skewtest kurtosistest normaltest "
    "jarque_bera differential_entropy lmoment kstatvar mode combine_pvalues cramervonmises",
    2: "ttest_1samp ttest_ind ttest_rel linregress pointbiserialr ks_2samp spearmanrho",
    0: "f_oneway levene bartlett alexandergovern fligner",  # any number of samples
}
_PAIRED = ("ttest_rel", "linregress", "pointbiserialr")
_OF_ALL = ("mode",)  # NaN is an ordinary value for these
SMALL_SAMPLE = 8  # a sample with more numbers than this has every statistic


def _last(x: Any, axis: Any) -> Any:
    """A sample with its `axis`, or its axes merged, moved to the last place."""
    x = x if isinstance(x, Tracer) else np.asarray(x)
    if axis is None:
        return np.reshape(x, -1)
    axes = axis if isinstance(axis, tuple) else (axis,)
    count = len(axes)
    x = np.moveaxis(x, axes, range(-count, 0))
    kept = x.shape[: x.ndim - count]
    return np.reshape(x, (*kept, math.prod(x.shape[x.ndim - count :])))


def _promoted(samples: list[Any]) -> list[Any]:
    """Samples converted to one common dtype, as in SciPy."""
    kinds = {x.dtype for x in samples if np.ndim(x)}
    common = np.result_type(*kinds) if len(kinds) > 1 else None
    return samples if common is None else [x.astype(common) if np.ndim(x) else x for x in samples]


def _restored(found: Any, ndim: int, axis: Any) -> Any:
    """A result with axes of length 1 in place of the reduced axes (`keepdims`)."""
    axes = tuple(range(ndim)) if axis is None else axis
    return each(lambda x: np.expand_dims(x, axes), found)


def has_nans(xs: list[Any], policy: str) -> bool:
    """Whether there are NaNs to omit. Raises ValueError if there are NaNs and the policy is
    'raise'."""
    if policy == "propagate":
        return False
    if policy not in ("omit", "raise"):
        raise ValueError("nan_policy must be one of {'propagate', 'raise', 'omit'}.")
    found = any(bool(np.any(np.isnan(x))) for x in xs)
    if found and policy == "raise":
        raise ValueError("The input contains nan values")
    return found


def _row(xs: list[Any], k: tuple[int, ...]) -> list[Any]:
    return [x[k] if np.ndim(x) > len(k) else x for x in xs]


def _without_nans(xs: list[Any], paired: bool) -> list[Any]:
    """Samples without NaNs. If they are paired, a pair with a NaN is dropped."""
    if paired:
        there = ~functools.reduce(np.logical_or, [np.isnan(x) for x in xs])
        return [x[there] for x in xs]
    return [x[~np.isnan(x)] if np.ndim(x) else x for x in xs]


def _refused(name: str, of: str) -> Exception:
    return refusal(
        f"scipy.stats.{name}(..., nan_policy='omit') of {of} with NaNs among the samples can't be "
        f"traced{at_line()}. Leave them out before: x[~np.isnan(x)]"
    )


def _of_too_few(original: Any, xs: list[Any], bound: dict[str, Any]) -> Any:
    """SciPy's result for samples that are too small for the statistic, which doesn't depend on
    their values; None for larger samples."""
    if xs[0].size and all(np.size(x) and np.shape(x)[-1] > SMALL_SAMPLE for x in xs if np.ndim(x)):
        return None
    plain = [np.zeros(np.shape(x), x.dtype) if np.ndim(x) else np.zeros(()) for x in xs]
    others = {key: np.ones(np.shape(x)) if is_traced(x) else x for key, x in bound.items()}
    axis = {"axis": -1} if "axis" in inspect.signature(original).parameters else {}
    with warnings.catch_warnings(record=True) as told, observed():
        warnings.simplefilter("always")
        try:
            found = original(*plain, **others, **axis)
        except Exception as error:
            let_through(error)
            if xs[0].size:
                return None  # the error depends on the values
            raise
    few = any(x.category.__name__ == "SmallSampleWarning" for x in told)
    return found if few or not xs[0].size else None


def _reducing(name: str, count: int) -> None:
    """Declare the answer to a statistic of `count` samples; 0 is for any number."""
    original = getattr(stats, name, None)
    if original is None or not hasattr(original, "__wrapped__"):
        return
    own = library_code.borrowed(original, inspect.unwrap(original))
    theirs, inner = inspect.signature(original), inspect.signature(inspect.unwrap(original))
    many = next(iter(theirs.parameters)) if count == 0 else ""
    samples = [*theirs.parameters][:count]
    default = theirs.parameters["axis"].default if "axis" in theirs.parameters else 0

    def statistic(xs: list[Any], bound: dict[str, Any]) -> Any:
        last = xs[0]
        few = _of_too_few(original, xs, bound)
        if few is not None:
            return few
        if many and last.ndim == 1:  # SciPy's code writes to its elements
            return each(lambda x: x[0], statistic([x[None] for x in xs], bound))
        found = own(*xs, **bound, **({"axis": -1} if "axis" in inner.parameters else {}))
        if last.dtype.kind == "f" and name not in _OF_ALL:
            rows = [np.any(np.isnan(x), axis=-1) for x in xs if np.ndim(x)]
            unknown = functools.reduce(np.logical_or, rows)
            found = each(lambda x: np.where(unknown, np.nan, x)[()], found)
        return found

    def along(*args: Any, **kwargs: Any) -> Any:
        bound = theirs.bind(*args, **kwargs).arguments
        axis, keepdims = bound.pop("axis", default), bound.pop("keepdims", False)
        policy = bound.pop("nan_policy", "propagate")
        chosen = bound.pop(many) if many else [bound.pop(key) for key in samples]
        given = _promoted([dispatch.as_operand(x) for x in chosen])
        ndim = np.ndim(given[0])
        weights = bound.get("weights")
        if weights is not None:
            bound["weights"] = _last(np.broadcast_to(weights, np.shape(given[0])), axis)
        xs = [_last(np.atleast_1d(given[0]), axis)]
        xs += [_last(x, axis) if np.ndim(x) else x for x in given[1:]]
        if has_nans(xs, policy):
            if weights is not None:
                raise _refused(name, "weights")
            rows = [_row(xs, k) for k in np.ndindex(xs[0].shape[:-1])]
            kept = [statistic(_without_nans(row, name in _PAIRED), bound) for row in rows]
            if xs[0].ndim == 1:
                found = kept[0]
            elif isinstance(kept[0], tuple):
                raise _refused(name, "several rows")
            else:
                found = np.reshape(np.stack(kept), xs[0].shape[:-1])
        else:
            found = statistic(xs, bound)
        return _restored(found, ndim, axis) if keepdims else found

    along.__signature__ = theirs  # type: ignore[attr-defined]
    answer = answering(along, original, f"{HOME}.{name}")

    def answered(*args: Any, _no_deco: bool = False, **kwargs: Any) -> Any:
        """Accepts `_no_deco`, by which SciPy's functions call each other with the axis already
        last."""
        return answer(*args, **kwargs)

    declare(stats, name, answered, when=any_traced)


for _count, _names in _REDUCED.items():
    for _name in _names.split():
        _reducing(_name, _count)


@stands_for(HOME)
def entropy(
    pk: Any,
    qk: Any = None,
    base: Any = None,
    axis: Any = 0,
    nan_policy: str = "propagate",
    keepdims: Any = False,
) -> Any:
    """-sum(p log(p)), or with a second distribution sum(p log(p / q))."""
    if has_nans([pk] if qk is None else [pk, qk], nan_policy):
        raise _refused("entropy", "distributions")
    keepdims = bool(keepdims)
    if base is not None and base <= 0:
        raise ValueError("`base` must be a positive number or `None`.")
    if axis is None:
        pk, qk, axis = np.ravel(pk), None if qk is None else np.ravel(qk), 0
    p = 1.0 * pk / np.sum(pk, axis=axis, keepdims=True)
    if qk is None:
        found = np.sum(sc.entr(p), axis=axis, keepdims=keepdims)
    else:
        p, q = np.broadcast_arrays(p, qk)
        q = 1.0 * q / np.sum(q, axis=axis, keepdims=True)
        found = np.sum(sc.rel_entr(p, q), axis=axis, keepdims=keepdims)
    if base is None:
        return found
    return (found / (np.log(base) if is_traced(base) else math.log(base))).astype(found.dtype)


class _Correlation(theirs_of.PearsonRResult):
    """The result of `pearsonr` for traced samples."""

    @unobserved
    def confidence_interval(self, confidence_level: Any = 0.95, method: Any = None) -> Any:
        """The interval by Fisher's transform: arctanh(r) is about normal with variance 1 / (n - 3)
        (Fisher, 1915)."""
        if method is not None:
            raise refusal(
                f"confidence_interval(method=...) of pearsonr can't be traced{at_line()}, only "
                "without method"
            )
        r, n, side = self.statistic, self._n, self._alternative
        low, high = -np.ones_like(r), np.ones_like(r)
        if n > 3:
            level = 0.5 + confidence_level / 2 if side == "two-sided" else confidence_level
            width = sc.ndtri(level) / math.sqrt(n - 3)
            low = low if side == "less" else np.tanh(np.arctanh(r) - width)
            high = high if side == "greater" else np.tanh(np.arctanh(r) + width)
        return theirs_of.ConfidenceInterval(low=low, high=high)


@stands_for(HOME)
def pearsonr(x: Any, y: Any, *, alternative: str = "two-sided", axis: Any = 0) -> Any:
    """The correlation r and its p-value. For independent normal samples (1 + r) / 2 has a beta
    distribution with both shapes n / 2 - 1 (Student, 1908)."""
    if axis is None:
        x, y, axis = np.ravel(x), np.ravel(y), -1
    x, y = (np.moveaxis(v, axis, -1) for v in np.broadcast_arrays(x, y))
    n = x.shape[-1]
    if n < 2:
        raise ValueError("`x` and `y` must have length at least 2.")
    x, y = (
        np.where(np.all(v == v[..., :1], axis=-1, keepdims=True), np.nan, v)  # constant samples
        for v in (x, y)
    )
    dx, dy = (v - np.mean(v, axis=-1, keepdims=True) for v in (x, y))
    dx, dy = (d * scales(d, -1)[0] for d in (dx, dy))  # squares neither overflow nor underflow
    dx, dy = (d / np.linalg.norm(d, axis=-1, keepdims=True) for d in (dx, dy))
    r = np.clip(np.sum(dx * dy, axis=-1), -1.0, 1.0)
    half = n / 2 - 1
    if alternative == "two-sided":
        pvalue = 2 * sc.betainc(half, half, (1 - np.abs(r)) / 2)
    elif alternative in ("less", "greater"):
        pvalue = sc.betainc(half, half, (1 + r if alternative == "less" else 1 - r) / 2)
    else:
        raise ValueError('`alternative` must be "less", "greater", or "two-sided".')
    if n == 2:
        r = np.round(r)
        pvalue = r * 0.0 + 1.0
    return _Correlation(
        statistic=r, pvalue=pvalue, alternative=alternative, n=n, x=x, y=y, axis=axis
    )
