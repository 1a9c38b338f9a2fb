"""Distributions of vectors and of matrices.

Each is a table of formulas by the names of SciPy's methods, with its parameters. A matrix is read
in its lower triangle, as SciPy does, and factored by Cholesky. SciPy refuses one whose least
eigenvalue is less than 2e-10 of the largest as well; here it is the factorization that fails.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special as sc
from scipy import stats
from scipy.stats import _multivariate as theirs

from tapegrad.errors import UnsupportedError
from tapegrad.scipy.declaring import Carrier, any_traced, declare_method
from tapegrad.scipy.linalg.factors import cholesky
from tapegrad.scipy.linalg.systems import solve_triangular
from tapegrad.scipy.refusing import DEFAULT
from tapegrad.scipy.stats.laws import LOG_2, LOG_2PI, LOG_PI
from tapegrad.scipy.stats.methods import held
from tapegrad.tracing.answers import declare_calls
from tapegrad.tracing.frontend.answering import stacked, unmade
from tapegrad.tracing.frontend.operands import as_tracer
from tapegrad.tracing.layout import settle
from tapegrad.tracing.observe.observer import unobserved
from tapegrad.tracing.source import at_line
from tapegrad.tracing.tracer import Tracer

Table = dict[str, Callable[..., Any]]


def _float(x: Any) -> Any:
    if not isinstance(x, Tracer):
        return np.asarray(x, float)
    return x if x.dtype == np.float64 else x.astype(np.float64)


def _squeezed(x: Any) -> Any:
    """As SciPy gives results, without axes of length 1."""
    return np.squeeze(x)


def _whole(x: Any, dim: int) -> Any:
    """A matrix of which one number, or the diagonal, may be given."""
    if x.ndim == 0:
        return x * np.eye(dim)
    return np.diag(x) if x.ndim == 1 else x


# ---- the normal distribution, and Student's t


def _location(mean: Any, cov: Any, what: str, called: str) -> tuple[int, Any, Any]:
    """The dimension, the location, and the matrix, of which one number or the diagonal may do."""
    if isinstance(cov, stats.Covariance):
        raise UnsupportedError(
            f"{what} with a Covariance object can't be traced{at_line()}. Pass the matrix"
        )
    cov = _float(1.0 if cov is None else cov)
    mean = None if mean is None else _float(mean)
    dim = int(mean.size if mean is not None else cov.shape[0] if cov.ndim == 2 else 1)
    mean = np.zeros(dim) if mean is None else mean
    if dim == 1:
        mean, cov = np.reshape(mean, (1,)), np.reshape(cov, (1,))
    if mean.ndim != 1 or mean.shape[0] != dim:
        raise ValueError(f"Array '{called}' must be a vector of length {dim}.")
    if cov.ndim > 2:
        raise ValueError(f"Array 'cov' must be at most two-dimensional, but cov.ndim = {cov.ndim}")
    if cov.ndim and cov.shape != (dim,) * cov.ndim:
        raise ValueError(
            f"Dimension mismatch: array 'cov' is of shape {cov.shape}, but '{called}' is a vector "
            f"of length {dim}."
        )
    return dim, mean, cov


def _points(x: Any, dim: int) -> Any:
    x = _float(x)
    if x.ndim == 0:
        return x[np.newaxis]
    if x.ndim == 1:
        return x[:, np.newaxis] if dim == 1 else x[np.newaxis, :]
    return x


def _positive(x: Any) -> None:
    if not np.all(x > 0):
        raise np.linalg.LinAlgError(
            "When `allow_singular is False`, the input matrix must be symmetric positive definite."
        )


def _log_det(cov: Any, dim: int) -> Any:
    if cov.ndim < 2:
        _positive(cov)
        return np.sum(np.log(cov * np.ones(dim)))
    return 2 * np.sum(np.log(np.diagonal(cholesky(cov, lower=True))))


def _distance(dev: Any, cov: Any, dim: int) -> tuple[Any, Any]:
    """dev' cov^-1 dev for vectors along the last axis, and log(det(cov))."""
    if cov.ndim < 2:
        _positive(cov)
        return np.sum(dev * dev / cov, axis=-1), np.sum(np.log(cov * np.ones(dim)))
    factor = cholesky(cov, lower=True)
    columns = np.reshape(dev, (-1, dim)).T
    whitened = solve_triangular(factor, columns, lower=True)
    found = np.reshape(np.sum(whitened * whitened, axis=0), np.shape(dev)[:-1])
    return found, 2 * np.sum(np.log(np.diagonal(factor)))


def _full_rank(cov: Any, allowed: Any, what: str) -> None:
    if not allowed:
        return
    if cov.ndim == 2:
        values = np.linalg.eigvalsh(cov)
        singular = np.min(values) <= np.max(np.abs(values)) * 1e6 * np.finfo(float).eps
    else:
        singular = np.min(cov) <= np.max(np.abs(cov)) * 1e6 * np.finfo(float).eps
    if singular:
        raise UnsupportedError(
            f"{what} with a singular matrix can't be traced{at_line()}. Add a small multiple of "
            "the identity to it"
        )


def _normal_logpdf(x: Any, mean: Any = None, cov: Any = 1, allow_singular: Any = False) -> Any:
    dim, mean, cov = _location(mean, cov, "multivariate_normal", "mean")
    _full_rank(cov, allow_singular, "multivariate_normal")
    distance, log_det = _distance(_points(x, dim) - mean, cov, dim)
    return _squeezed(-0.5 * (dim * LOG_2PI + log_det + distance))


def _normal_entropy(mean: Any = None, cov: Any = 1, allow_singular: Any = False) -> Any:
    dim, _, cov = _location(mean, cov, "multivariate_normal", "mean")
    return 0.5 * (dim * (LOG_2PI + 1) + _log_det(cov, dim))


def _t_logpdf(x: Any, loc: Any = None, shape: Any = 1, df: Any = 1) -> Any:
    df = 1 if df is None else df
    if not np.all(df > 0):
        raise ValueError("'df' must be greater than zero.")
    if np.all(df == np.inf):
        return _normal_logpdf(x, loc, shape)
    dim, loc, shape = _location(loc, shape, "multivariate_t", "loc")
    distance, log_det = _distance(_points(x, dim) - loc, shape, dim)
    t = 0.5 * (df + dim)
    found = sc.gammaln(t) - sc.gammaln(0.5 * df) - dim / 2.0 * np.log(df * np.pi)
    return _squeezed(found - 0.5 * log_det - t * np.log1p(distance / df))


# ---- of proportions and counts


def _positive_vector(alpha: Any) -> Any:
    alpha = _float(alpha)
    if np.min(alpha) <= 0:
        raise ValueError("All parameters must be greater than 0")
    if alpha.ndim != 1:
        raise ValueError(
            f"Parameter vector 'a' must be one dimensional, but a.shape = {alpha.shape}."
        )
    return alpha


def _proportions(alpha: Any, x: Any) -> Any:
    """The entries, of which the last may be left out, as what the others leave."""
    x, count = _float(x), alpha.shape[0]
    if x.shape[0] not in (count, count - 1):
        raise ValueError(
            "Vector 'x' must have either the same number of entries as, or one entry fewer than, "
            f"parameter vector 'a', but alpha.shape = {alpha.shape} and x.shape = {x.shape}."
        )
    if x.shape[0] != count:
        x = np.concatenate([x, (1 - np.sum(x, 0))[np.newaxis]])
    if np.min(x) < 0:
        raise ValueError("Each entry in 'x' must be greater than or equal to zero.")
    if np.max(x) > 1:
        raise ValueError("Each entry in 'x' must be smaller or equal one.")
    along = np.reshape(alpha, (count,) + (1,) * (x.ndim - 1))
    if np.any(np.logical_and(x == 0, along < 1)):
        raise ValueError(
            "Each entry in 'x' must be greater than zero if its alpha is less than one."
        )
    if np.any(np.abs(np.sum(x, 0) - 1.0) > 10e-10):
        raise ValueError("The input vector 'x' must lie within the normal simplex.")
    return x


def _log_beta(alpha: Any) -> Any:
    return np.sum(sc.gammaln(alpha)) - sc.gammaln(np.sum(alpha))


def _dirichlet_logpdf(x: Any, alpha: Any) -> Any:
    alpha = _positive_vector(alpha)
    x = _proportions(alpha, x)
    powers = np.reshape(alpha - 1, (-1,) + (1,) * (x.ndim - 1))
    return _squeezed(np.sum(sc.xlogy(powers, x), 0) - _log_beta(alpha))


def _dirichlet_cov(alpha: Any) -> Any:
    alpha = _positive_vector(alpha)
    total = np.sum(alpha)
    a = alpha / total
    return _squeezed((np.diag(a) - np.outer(a, a)) / (total + 1))


def _dirichlet_entropy(alpha: Any) -> Any:
    alpha = _positive_vector(alpha)
    total = np.sum(alpha)
    found = _log_beta(alpha) + (total - alpha.shape[0]) * sc.digamma(total)
    return found - np.sum((alpha - 1) * sc.digamma(alpha))


def _probabilities(n: Any, p: Any) -> tuple[Any, Any, Any]:
    """Counts and probabilities, of which the last is what the others leave, and where one of them
    is out of its domain."""
    n, p = _float(n), _float(p)
    last = 1.0 - np.sum(p[..., :-1], axis=-1)
    off = np.abs(1 - np.sum(p, axis=-1)) > 10 * np.finfo(float).eps
    ends = np.where(off, last, p[..., -1])
    p = np.concatenate([p[..., :-1], ends[..., np.newaxis]], axis=-1)
    bad = np.logical_or(np.any(p < 0, axis=-1), np.any(p > 1, axis=-1))
    return n, p, np.logical_or(bad, n < 0)


def _multinomial_logpmf(x: Any, n: Any, p: Any) -> Any:
    n, p, bad = _probabilities(n, p)
    x = _float(x)
    if x.ndim == 0:
        raise ValueError("x must be an array.")
    if x.shape[-1] != p.shape[-1]:
        raise ValueError(
            f"Size of each quantile should be size of p: received {x.shape[-1]}, but expected "
            f"{p.shape[-1]}."
        )
    whole = np.floor(x)
    outside = np.logical_or(np.any(whole != x, axis=-1), np.any(whole < 0, axis=-1))
    outside = np.logical_or(outside, np.sum(whole, axis=-1) != n)
    safe = np.maximum(whole, 0.0)
    found = sc.gammaln(n + 1) + np.sum(sc.xlogy(safe, p) - sc.gammaln(safe + 1), axis=-1)
    return np.where(bad, np.nan, np.where(outside, -np.inf, found))


def _multinomial_mean(n: Any, p: Any) -> Any:
    n, p, bad = _probabilities(n, p)
    return np.where(bad[..., np.newaxis], np.nan, n[..., np.newaxis] * p)


def _multinomial_cov(n: Any, p: Any) -> Any:
    n, p, bad = _probabilities(n, p)
    spread = (
        np.eye(p.shape[-1]) * p[..., np.newaxis] - p[..., :, np.newaxis] * p[..., np.newaxis, :]
    )
    found = n[..., np.newaxis, np.newaxis] * spread
    return np.where(bad[..., np.newaxis, np.newaxis], np.nan, found)


# ---- of matrices


def _multigammaln(a: Any, dim: int) -> Any:
    """log Gamma_d(a), the sum of log Gamma(a - j / 2), and of powers of pi."""
    terms = sc.gammaln(np.expand_dims(a, -1) - 0.5 * np.arange(float(dim)))
    return dim * (dim - 1) * 0.25 * LOG_PI + np.sum(terms, axis=-1)


def _degrees(df: Any, scale: Any) -> tuple[int, Any, Any, Any]:
    """The dimension, the degrees of freedom, the factor of the scale, and log(det(scale))."""
    scale = _float(1.0 if scale is None else scale)
    if scale.ndim > 2:
        raise ValueError(
            f"Array 'scale' must be at most two-dimensional, but scale.ndim = {scale.ndim}"
        )
    if scale.ndim == 2 and scale.shape[0] != scale.shape[1]:
        raise ValueError(
            "Array 'scale' must be square if it is two dimensional, but scale.scale = "
            f"{scale.shape}."
        )
    dim = scale.shape[0] if scale.ndim else 1
    factor = cholesky(_whole(scale, dim), lower=True)
    df = dim if df is None else df
    if np.ndim(df):
        raise ValueError("Degrees of freedom must be a scalar.")
    if df <= dim - 1:
        raise ValueError(
            "Degrees of freedom must be greater than the dimension of scale matrix minus 1."
        )
    return dim, df, factor, 2 * np.sum(np.log(np.diagonal(factor)))


def _matrices(x: Any, dim: int) -> Any:
    """Matrices along the first axis; SciPy has them along the last."""
    x = _float(x)
    if x.ndim == 0:
        x = (x * np.eye(dim))[np.newaxis]
    elif x.ndim == 1:
        x = x[:, np.newaxis, np.newaxis] if dim == 1 else np.diag(x)[np.newaxis]
    elif x.ndim == 2:
        x = x[np.newaxis]
    elif x.ndim == 3:
        x = np.moveaxis(x, 2, 0)
    if x.ndim != 3 or x.shape[1:] != (dim, dim):
        raise ValueError(
            f"Quantiles have incompatible dimensions: should be {(dim, dim)}, got {x.shape[1:]}."
        )
    return x


def _wishart_logpdf(x: Any, df: Any, scale: Any) -> Any:
    dim, df, factor, log_det = _degrees(df, scale)
    roots = cholesky(_matrices(x, dim), lower=True)
    log_det_x = 2 * np.sum(np.log(np.diagonal(roots, axis1=1, axis2=2)), axis=-1)
    columns = np.reshape(np.moveaxis(roots, 0, 1), (dim, -1))
    halves = np.reshape(solve_triangular(factor, columns, lower=True), (dim, -1, dim))
    trace = np.sum(halves * halves, axis=(0, 2))
    found = 0.5 * (df - dim - 1) * log_det_x - 0.5 * trace
    constant = 0.5 * df * (dim * LOG_2 + log_det) + _multigammaln(0.5 * df, dim)
    return _squeezed(found - constant)


def _invwishart_logpdf(x: Any, df: Any, scale: Any) -> Any:
    dim, df, factor, log_det = _degrees(df, scale)
    roots = cholesky(_matrices(x, dim), lower=True)
    halves = solve_triangular(roots, np.broadcast_to(factor, roots.shape), lower=True)
    log_det_x = 2 * np.sum(np.log(np.diagonal(roots, axis1=1, axis2=2)), axis=-1)
    found = 0.5 * df * (log_det - dim * LOG_2) - 0.5 * np.sum(halves * halves, axis=(1, 2))
    return _squeezed(found - 0.5 * (df + dim + 1) * log_det_x - _multigammaln(0.5 * df, dim))


def _wishart_entropy(df: Any, scale: Any) -> Any:
    dim, df, _, log_det = _degrees(df, scale)
    slopes = np.sum(sc.digamma(0.5 * (df - np.arange(float(dim)))))
    found = 0.5 * (dim + 1) * (log_det + dim * LOG_2) + _multigammaln(0.5 * df, dim)
    return found - 0.5 * (df - dim - 1) * slopes + 0.5 * df * dim


# ---- the table


def _exp(logarithm: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(logarithm)
    def density(*args: Any, **kwargs: Any) -> Any:
        return np.exp(logarithm(*args, **kwargs))

    return density


def _beside(scale: Any, factor: Any) -> Any:
    scale = _float(1.0 if scale is None else scale)
    return _squeezed(_whole(scale, scale.shape[0] if scale.ndim else 1) * factor)


TABLES: dict[str, Table] = {
    "multivariate_normal": {
        "logpdf": _normal_logpdf,
        "pdf": _exp(_normal_logpdf),
        "entropy": _normal_entropy,
    },
    "multivariate_t": {"logpdf": _t_logpdf, "pdf": _exp(_t_logpdf)},
    "dirichlet": {
        "logpdf": _dirichlet_logpdf,
        "pdf": _exp(_dirichlet_logpdf),
        "mean": lambda alpha: _squeezed(_positive_vector(alpha) / np.sum(alpha)),
        "var": lambda alpha: np.diagonal(_dirichlet_cov(alpha)),
        "cov": _dirichlet_cov,
        "entropy": _dirichlet_entropy,
    },
    "multinomial": {
        "logpmf": _multinomial_logpmf,
        "pmf": _exp(_multinomial_logpmf),
        "mean": _multinomial_mean,
        "cov": _multinomial_cov,
    },
    "wishart": {
        "logpdf": _wishart_logpdf,
        "pdf": _exp(_wishart_logpdf),
        "mean": lambda df, scale: _beside(scale, df),
        "entropy": _wishart_entropy,
    },
    "invwishart": {"logpdf": _invwishart_logpdf, "pdf": _exp(_invwishart_logpdf)},
}
_OF_FROZEN = {  # where SciPy's frozen ones keep their parameters
    "multivariate_t": {"loc": "loc", "shape": "shape", "df": "df"},
    "dirichlet": {"alpha": "alpha"},
    "multinomial": {"n": "n", "p": "p"},
    "wishart": {"df": "df", "scale": "scale"},
    "invwishart": {"df": "df", "scale": "scale"},
}


def _given(args: Any, kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Operands; what is in an array may change, so it is traced, too."""
    args = [stacked(x) for x in args]
    kwargs = {key: stacked(x) for key, x in kwargs.items()}
    every = (*args, *kwargs.values())
    return [_traced(x, every) for x in args], {k: _traced(x, every) for k, x in kwargs.items()}


def _traced(x: Any, others: Any) -> Any:
    if isinstance(x, list | tuple):
        x = np.asarray(x)
    return as_tracer(x, *others) if isinstance(x, np.ndarray) else x


def _declare(name: str, table: Table) -> None:
    dist = getattr(stats, name)
    cls = type(dist)
    for method in _methods(cls):
        original = vars(cls)[method]
        if method in table:
            declare_method(cls, method, _answer(original, table[method]))
        else:
            declare_method(cls, method, _refusal(original, name))
    freeze = _freezing(name, cls)
    declare_calls(cls, freeze)
    declare_method(cls, "__call__", freeze)
    frozen = getattr(theirs, f"{name}_frozen", None)
    for method in _methods(frozen):
        original = vars(frozen)[method]
        if method in table and len(inspect.signature(original).parameters) == 2:
            declare_method(frozen, method, _answer_frozen(name, original, table[method]))
        elif method not in table:
            declare_method(frozen, method, _refusal(original, name))


def _methods(cls: Any) -> list[str]:
    """The names of a class's own methods."""
    if cls is None:
        return []
    return [name for name, x in vars(cls).items() if name[0] != "_" and inspect.isfunction(x)]


def _answer(original: Any, formula: Callable[..., Any]) -> Callable[..., Any]:
    signature, own = inspect.signature(original), inspect.signature(formula).parameters

    @functools.wraps(original)
    @unobserved
    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(self, *args, **kwargs)  # SciPy's own error
        named = {key: x for key, x in bound.arguments.items() if key != "self"}
        _, given = _given((), named)
        return settle(formula(**{k: x for k, x in given.items() if k in own}), (), certain=False)

    return called


def _refusal(original: Any, name: str) -> Callable[..., Any]:
    @functools.wraps(original)
    def refused(*args: Any, **kwargs: Any) -> Any:
        raise UnsupportedError(
            f"{original.__name__} of scipy.stats.{name} can't be traced{at_line()}. {DEFAULT}"
        )

    return refused


class FrozenJoint(Carrier):
    """A distribution of vectors with traced parameters: what SciPy's frozen one is for plain ones.
    Its methods are those of the table."""

    def __init__(self, name: str, parameters: dict[str, Any]) -> None:
        self._name, self._parameters = name, parameters

    def __getattr__(self, name: str) -> Any:
        table, parameters = TABLES[self._name], self._parameters
        if name.startswith("__"):
            raise AttributeError(name)
        if name in parameters and name not in table:
            return parameters[name]
        formula = table.get(name)
        if formula is None:
            raise UnsupportedError(
                f"{name} of a frozen scipy.stats.{self._name} with traced parameters can't be "
                f"traced{at_line()}. Call the method of scipy.stats.{self._name} with plain ones"
            )

        @unobserved
        def called(*args: Any) -> Any:
            given, named = _given(args, parameters)
            own = inspect.signature(formula).parameters
            named = {key: x for key, x in named.items() if key in own}
            return settle(formula(*given, **named), (), certain=False)

        return called


def _freezing(name: str, cls: Any) -> Callable[..., Any]:
    original = vars(cls)["__call__"]
    signature = inspect.signature(original)

    @functools.wraps(original)
    @unobserved
    def freeze(dist: Any, *args: Any, **kwargs: Any) -> Any:
        if not any_traced((*args, *kwargs.values())):
            plain = {key: unmade(x) for key, x in kwargs.items()}
            return original(dist, *map(unmade, args), **plain)
        if name not in TABLES:
            raise UnsupportedError(
                f"scipy.stats.{name} of traced values can't be traced{at_line()}. {DEFAULT}"
            )
        bound = signature.bind(dist, *args, **kwargs)
        bound.apply_defaults()
        given = {k: x for k, x in bound.arguments.items() if k not in ("self", "seed", "kwds")}
        return FrozenJoint(name, {key: stacked(x) for key, x in given.items()})

    return freeze


def _answer_frozen(name: str, original: Any, formula: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    @unobserved
    def called(self: Any, x: Any) -> Any:
        if name == "multivariate_normal":
            done = held(self, "mean", "cov_object")
            found = _of_normal(self, x)
            found = np.exp(found) if original.__name__ == "pdf" else found
        else:
            names = _OF_FROZEN[name]
            done = held(self, *names.values())
            given, named = _given((x,), {k: getattr(self, at) for k, at in names.items()})
            found = formula(*given, **named)
        done()
        return settle(found, (), certain=False)

    return called


def _of_normal(frozen: Any, x: Any) -> Any:
    """The logarithm of SciPy's frozen normal distribution, which has factored its matrix."""
    of = frozen.cov_object
    if not np.all(of.rank == frozen.dim) or not isinstance(of, theirs._covariance.CovViaPSD):
        raise UnsupportedError(
            f"logpdf of a frozen multivariate_normal whose matrix is singular, or a Covariance "
            f"object, can't be traced{at_line()}. Pass the matrix"
        )
    (x, mean, root), _ = _given((x, frozen.mean, of._LP), {})
    whitened = (_points(x, frozen.dim) - mean) @ root
    distance = np.sum(whitened * whitened, axis=-1)
    return _squeezed(-0.5 * (frozen.dim * LOG_2PI + float(of.log_pdet) + distance))


for _name, _dist in vars(stats).items():
    if isinstance(_dist, theirs.multi_rv_generic):
        _declare(_name, TABLES.get(_name, {}))
