"""A negative log-likelihood as a function of unconstrained numbers, and its minimum.

SciPy's minimiser comes close to the minimum; then Newton steps with the exact Hessian continue up
to rounding error. The expected decrease g' H^-1 g / 2, the height of this point above the minimum,
is the criterion of convergence: it is in units of the log-likelihood, whatever the units of the
parameters.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tapegrad.api import value_and_grad
from tapegrad.derivatives import hessian, hvp, jacobian
from tapegrad.errors import ArgumentError
from tapegrad.transforms import Unconstrained, at_paths

_WITH_PRODUCTS = frozenset(["newton-cg", "trust-ncg", "trust-krylov", "trust-constr"])
_WITH_HESSIANS = frozenset(["dogleg", "trust-exact"])
_NEWTON = 300  # with more numbers the Hessian is computed only on request
_TOLERANCE = 1e-9  # of the minimum, in units of the log-likelihood
_FLAT = 1e-13  # relative to the largest curvature, after scaling each number by its own


class _Functions:
    """A likelihood as functions of unconstrained numbers and data, with their derivatives."""

    def __init__(self, nll: Any, penalty: Any, space: Unconstrained) -> None:
        self.nll, self.penalty, self.space = nll, penalty, space
        self.value_and_grad, self.hessian = value_and_grad(self.total), hessian(self.total)
        self.product, self.jacobian = hvp(self.total), jacobian(self.rows)
        self.flat_jacobian = jacobian(space.flat)

    def rows(self, u: Any, *data: Any) -> Any:
        rows = self.nll(self.space.forward(u), *data)
        return getattr(rows, "values", rows)  # values of a Series

    def total(self, u: Any, *data: Any) -> Any:
        params = self.space.forward(u)
        total = np.sum(self.nll(params, *data))
        return total if self.penalty is None else total + self.penalty(params)


@dataclasses.dataclass(frozen=True)
class _Made:
    """The parts of functions, compared by identity (`key`), and kept alive by this object."""

    parts: tuple[Any, Any, Unconstrained] = dataclasses.field(compare=False)
    key: Any


@functools.lru_cache(maxsize=4)  # the cache keeps the parts alive
def _functions(made: _Made) -> _Functions:
    """The functions of a likelihood; a later fit of it reuses their traces."""
    return _Functions(*made.parts)


class Likelihood:
    """The objective for some data: the sum of `rows(u)`, and the penalty."""

    def __init__(
        self,
        nll: Callable[..., Any],
        space: Unconstrained,
        data: tuple[Any, ...],
        penalty: Callable[[Any], Any] | None,
        bounds: Any,
    ) -> None:
        self.space, self.data = space, data
        self.lower, self.upper = _bounds(space, bounds)
        made = _Made((nll, penalty, space), (id(nll), id(penalty), space.form()))
        self.functions = _functions(made)
        self.count = self._check_start()

    def rows(self, u: np.ndarray) -> np.ndarray:
        """The negative log-likelihood of each row, or of all of them."""
        with np.errstate(all="ignore"):
            return np.asarray(self.functions.rows(u, *self.data))

    def _raw(self, u: np.ndarray) -> tuple[float, np.ndarray]:
        with np.errstate(all="ignore"):
            value, slope = self.functions.value_and_grad(u, *self.data)
        return float(value), np.asarray(slope, float)

    def at(self, u: np.ndarray) -> tuple[float, np.ndarray]:
        """The objective and its gradient.

        Where they aren't finite, the objective is 2 |f0| + 1 above its start value f0 with zero
        gradient: high enough that searches come back.
        """
        with contextlib.suppress(np.linalg.LinAlgError):  # a matrix isn't positive definite at u
            value, slope = self._raw(u)
            if value == -np.inf or (value < np.inf and np.isfinite(slope).all()):
                return value, slope
        return self.first + 2 * abs(self.first) + 1, np.zeros(len(u))

    def hessian(self, u: np.ndarray) -> np.ndarray:
        try:
            with np.errstate(all="ignore"):
                return np.asarray(self.functions.hessian(u, *self.data), float)
        except np.linalg.LinAlgError:  # no search ends at such a u
            return np.eye(len(u))

    def product(self, u: np.ndarray, v: np.ndarray) -> np.ndarray:
        return np.asarray(self.functions.product(u, *self.data, v), float)

    def scores(self, u: np.ndarray) -> np.ndarray:
        """The derivative of each row's negative log-likelihood."""
        if self.count is None:
            raise ArgumentError(
                "this needs the likelihood of each row, and nll returns one number for all of "
                "them: return an array with one for each"
            )
        return np.asarray(self.functions.jacobian(u, *self.data), float)

    def _check_start(self) -> int | None:
        """The number of rows, or None if the function returns one number; checks the start."""
        start = self.space.start
        rows = self.rows(start)
        if rows.ndim > 1 or rows.dtype.kind not in "fiu":
            raise ArgumentError(
                f"nll returned {rows.dtype} of shape {rows.shape}: it must be one number, or an "
                "array with one for each row"
            )
        if rows.size == 0:
            raise ArgumentError("nll returned an array of no rows: the data have none")
        bad = np.flatnonzero(~np.isfinite(rows))
        if bad.size:
            word = "row" if bad.size == 1 else "rows"
            where = f" in {word} {_few(bad)} of {rows.size}" if rows.ndim else ""
            raise ArgumentError(f"nll is {rows.flat[bad[0]]} at init{where}: begin elsewhere")
        self.first, slope = self._raw(start)
        bad = np.flatnonzero(~np.isfinite(slope))
        if not np.isfinite(self.first):
            raise ArgumentError(f"the penalty makes {self.first} of nll at init")
        if bad.size:
            raise ArgumentError(
                f"the derivative of nll by {self.called(bad)} is {slope[bad[0]]} at init"
            )
        # A single row may be a sum that kept its axis: its score is 0 at the estimate.
        return rows.size if rows.size > 1 else None

    def called(self, which: np.ndarray) -> str:
        """Names of unconstrained numbers: those of the constrained ones if there are as many."""
        names = self.space.names
        same = len(names) == len(self.space.start)
        return _few([names[k] if same else f"number {k}" for k in which])


def _few(items: Any) -> str:
    items = list(map(str, items))
    return ", ".join(items[:8]) + (f" and {len(items) - 8} others" if len(items) > 8 else "")


def _bounds(space: Unconstrained, bounds: Any) -> tuple[np.ndarray, np.ndarray]:
    """The bounds of each unconstrained number; a transformed number has none."""
    ends: list[list[np.ndarray]] = [[], []]
    found = at_paths(bounds, space.paths, "bounds")
    for part, known, given in zip(space.parts(space.start), space.transforms, found, strict=True):
        if given is not None and known is not None:
            raise ArgumentError(f"a parameter has bounds and {known!r}: one of them is enough")
        if given is not None and not _is_pair(given):
            raise ArgumentError(
                f"bounds of a parameter are (lower, upper), numbers or arrays, not {given!r}. For "
                "SciPy's pairs, one for each number, pass np.array(pairs, float).T, with "
                "infinities instead of None"
            )
        for side, open_end, end in zip(ends, (-np.inf, np.inf), given or (None, None), strict=True):
            side.append(np.broadcast_to(open_end if end is None else end, np.shape(part)).ravel())
    lower, upper = (np.concatenate([*side, np.zeros(0)]) for side in ends)
    if not (lower <= space.start).all() or not (space.start <= upper).all():
        raise ArgumentError("init isn't within the bounds")
    return lower, upper


def _is_pair(given: Any) -> bool:
    """Whether these are two ends. Tuples among them are SciPy's form, a pair for each number."""
    if not isinstance(given, (tuple, list, np.ndarray)) or len(given) != 2:
        return False
    return not any(type(x) is tuple for x in given)


@dataclasses.dataclass(frozen=True)
class Curvature:
    """The eigendecomposition of a symmetric matrix, scaled by the root `size` of its diagonal.

    `directions` are columns with curvature 1, `bent` columns with curvature 1 or -1, and `flat` the
    directions without positive curvature, in units of `size`; `has_bend` marks the numbers with
    some.
    """

    directions: np.ndarray
    bent: np.ndarray
    flat: np.ndarray
    size: np.ndarray
    has_bend: np.ndarray
    is_negative: bool

    @staticmethod
    def of(matrix: np.ndarray, fixed: np.ndarray) -> Curvature:
        """The curvature of a matrix; `fixed` numbers don't move."""
        size = np.sqrt(np.abs(np.diagonal(matrix)))
        known = (size > 0) & np.isfinite(size)
        size = np.where(known, size, size[known].min(initial=1.0))
        unit, scaled = np.eye(len(size)), matrix / size / size[:, None]
        if not np.isfinite(scaled).all():  # no direction is known
            return Curvature(unit[:, :0], unit[:, :0], unit, size, known, True)
        columns = unit[:, ~fixed]
        values, vectors = np.linalg.eigh(columns.T @ (scaled + scaled.T) @ columns / 2)
        most, vectors = max(np.abs(values).max(initial=0.0), 1e-300), columns @ vectors
        least = _FLAT * most
        flat = np.hstack([vectors[:, values <= least], unit[:, fixed]])
        columns = vectors / np.sqrt(np.maximum(np.abs(values), least)) / size[:, None]
        bent = columns[:, np.abs(values) > least]
        is_negative = bool((values < -1e-10 * most).any())  # beyond rounding error
        return Curvature(columns[:, values > least], bent, flat, size, known, is_negative)

    def knows(self, slopes: np.ndarray) -> np.ndarray:
        """Whether each row of linear functions is constant along the flat directions."""
        slopes = slopes / self.size
        along = np.abs(slopes @ self.flat).max(axis=-1, initial=0.0)
        return along <= 1e-6 * np.linalg.norm(slopes, axis=-1)


@dataclasses.dataclass(frozen=True)
class Minimum:
    """The end of a search. `on_bounds` marks the numbers that the slope holds on a bound; the
    curvature is set if Newton steps computed it."""

    u: np.ndarray
    value: float
    converged: bool
    message: str
    on_bounds: np.ndarray
    result: Any
    curvature: Curvature | None = None


def minimum(likelihood: Likelihood, method: str, options: dict[str, Any]) -> Minimum:
    """The minimum reached from the start."""
    from scipy.optimize import Bounds, minimize

    lower, upper = likelihood.lower, likelihood.upper
    if method.lower() in _WITH_PRODUCTS:
        options.setdefault("hessp", likelihood.product)
    elif method.lower() in _WITH_HESSIANS:
        options.setdefault("hess", likelihood.hessian)
    if np.isfinite(lower).any() or np.isfinite(upper).any():
        options["bounds"] = Bounds(lower, upper)
    result = minimize(likelihood.at, likelihood.space.start, jac=True, method=method, **options)
    u = np.clip(result.x, lower, upper)
    value, slope = likelihood.at(u)
    fixed = _held(likelihood, u, slope)
    if not np.isfinite(value):
        return Minimum(u, value, False, f"nll is {value} where the search ended", fixed, result)
    if len(u) > _NEWTON:
        return Minimum(u, value, bool(result.success), str(result.message), fixed, result)
    return _newton(likelihood, u, value, slope, result)


def _held(likelihood: Likelihood, u: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """The numbers on a bound beyond which the likelihood would be higher."""
    return (u <= likelihood.lower) & (slope > 0) | (u >= likelihood.upper) & (slope < 0)


def _newton(
    likelihood: Likelihood, u: np.ndarray, value: float, slope: np.ndarray, result: Any
) -> Minimum:
    last, before = np.inf, np.zeros(len(u))
    for steps_left in range(50, -1, -1):
        fixed = _held(likelihood, u, slope)
        matrix = likelihood.hessian(u)
        curvature, bends = Curvature.of(matrix, fixed), np.diagonal(matrix)
        along = curvature.bent.T @ slope
        gain = along @ along / 2
        if gain <= 1e-20 or (last < _TOLERANCE and gain > last / 2):  # at rounding error
            break
        moved = _shorter(likelihood, u, value, -curvature.bent @ along) if steps_left else None
        if moved is None:
            break
        last, before = gain, before if last < _TOLERANCE else bends  # bends on entering tolerance
        u, value, slope = moved
    flat = curvature.flat * ~fixed[:, None]
    falls = np.abs(slope / curvature.size @ flat).max(initial=0.0)
    fades = (bends < 0.9 * before) if last < _TOLERANCE else np.zeros(len(u), bool)
    if not fades.any():
        fades = _flat_at_once(likelihood, u, value, curvature, along)
    fading = np.flatnonzero(fades & ~fixed)
    problem = ""
    if not np.isfinite(matrix).all():
        bad = np.flatnonzero(~np.isfinite(bends))
        problem = f"second derivatives by {likelihood.called(bad)} aren't finite there"
    elif curvature.is_negative:
        problem = "the Hessian isn't positive definite: this is no minimum"
    elif not gain <= _TOLERANCE * max(1.0, abs(value) * 1e-3):
        problem = f"the minimum is lower by {gain:.3g}, but no step leads down there"
    elif falls > 1e-6 * max(1.0, abs(likelihood.first)):
        problem = "the likelihood still falls where it has no curvature: it may have no minimum"
    elif fading.size:
        problem = f"the likelihood flattens out by {likelihood.called(fading)}: it ends nowhere"
    return Minimum(u, value, not problem, problem or "converged", fixed, result, curvature)


def _flat_at_once(
    likelihood: Likelihood, u: np.ndarray, value: float, curvature: Curvature, along: np.ndarray
) -> np.ndarray:
    """The numbers along which the likelihood is flat.

    If some have no curvature, those among them with curvature at the start. Otherwise the rise one
    standard error away decides: true curvature gives about 1/2, rounding error doesn't.
    """
    if (none := ~curvature.has_bend).any():
        return none & (likelihood.hessian(likelihood.space.start).diagonal() > 0)
    along = along if along.any() else np.ones(len(along))
    step = -curvature.bent @ (along / max(float(np.linalg.norm(along)), 1e-300))
    rises = []
    for there in (u + step, u - step):
        inside = np.array_equal(there, np.clip(there, likelihood.lower, likelihood.upper))
        higher, slope = likelihood.at(there)
        if inside and (slope.any() or higher < value + 1):  # otherwise maybe undefined there
            rises.append(higher - value)
    is_flat = bool(rises) and not 1e-3 < min(rises) < 1e2
    return is_flat & (np.abs(step * curvature.size) > 0.1)


def _shorter(
    likelihood: Likelihood, u: np.ndarray, value: float, step: np.ndarray
) -> tuple[np.ndarray, float, np.ndarray] | None:
    """The step, halved until it doesn't lead up; None if no part of it does."""
    for part in 0.5 ** np.arange(20):
        there = np.clip(u + part * step, likelihood.lower, likelihood.upper)
        at, slope = likelihood.at(there)
        if at <= value + 1e-12 * abs(value):
            return there, at, slope
    return None
