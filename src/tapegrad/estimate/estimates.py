"""Estimates of a likelihood's parameters: standard errors, intervals, profiles."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from tapegrad.core.frames import warn
from tapegrad.derivatives import jacobian
from tapegrad.errors import ArgumentError
from tapegrad.estimate import profiling
from tapegrad.estimate.likelihood import Curvature, Likelihood, Minimum, minimum
from tapegrad.transforms import Unconstrained
from tapegrad.trees import flatten, nested_get

Quantity = str | tuple[Any, ...] | Callable[[Any], Any]


class Delta(NamedTuple):
    """A function of the estimates, with standard errors; `cov` has a row for each number of
    `value`, in the order of `trees.flatten`."""

    value: Any
    se: Any
    cov: np.ndarray


class Summary(str):
    """A text whose `repr` is the text itself."""

    def __repr__(self) -> str:
        return str(self)


def maximum_likelihood(
    nll: Callable[..., Any],
    init: Any,
    *data: Any,
    transforms: Any = None,
    bounds: Any = None,
    penalty: Callable[[Any], Any] | None = None,
    method: str = "L-BFGS-B",
    **options: Any,
) -> Estimate:
    """The parameters that maximise the likelihood of the data, with their uncertainty.

        fit = maximum_likelihood(nll, {"mean": 0.0, "scale": 1.0}, x, transforms={"scale": log})
        fit.params, fit.se(), fit.confidence_interval("scale", method="profile")
        print(fit.summary())

    Parameters
    ----------
    nll : `nll(params, *data)`, the negative log-likelihood in plain NumPy: an array with one number
        for each independent row, or their sum. With a mean all errors would be too large.
    init : the start: a tree of arrays and floats.
    data : further arguments of the function.
    transforms : a transform for all parameters, or a dict (of dicts) from their names to transforms
        of `tapegrad.transforms`. A likelihood doesn't depend on the transform, so no Jacobian
        is added.
    bounds : likewise, pairs `(lower, upper)`, with None for no end, for parameters that may lie on
        their bounds. A parameter on its bound has no standard error.
    penalty : `penalty(params)`, added once: for example minus the log-density of a prior, for the
        parameters of the highest posterior density.
    method : a method of `scipy.optimize.minimize`; methods that take Hessians or Hessian-vector
        products get exact ones. For up to 300 numbers Newton steps refine the result to full
        precision.
    options : other arguments of SciPy's function (`tol=`, `options=`).

    Returns
    -------
    An `Estimate`. A search that doesn't converge gives a warning.

    Raises
    ------
    ArgumentError : the likelihood or a derivative isn't finite at `init` (the message names the
        rows or the parameters); or `init` lies outside its transforms or bounds.
    """
    likelihood = Likelihood(nll, Unconstrained(init, transforms), data, penalty, bounds)
    found = minimum(likelihood, method, options)
    if not found.converged:
        warn(f"no maximum likelihood was found: {found.message}")
    return Estimate(likelihood, found)


class Estimate:
    """The result of `maximum_likelihood`.

    Attributes
    ----------
    params : a tree like `init`.
    nll : the negative log-likelihood at `params`, without the penalty.
    nobs : the number of rows, or None if `nll` returns one number.
    converged, message : whether the search converged to a maximum, and the details.
    result : the result of SciPy's minimiser, for the unconstrained numbers.

    The `kind` of covariance is "hessian", the inverse of the Hessian H; "opg", the inverse of
    S^T S, where S has the derivative of each row; or "sandwich", H^-1 S^T S H^-1, which is valid
    for independent rows of any distribution. With a penalty, H is the Hessian of the penalised sum.
    """

    def __init__(self, likelihood: Likelihood, found: Minimum) -> None:
        self._likelihood, self._found = likelihood, found
        self.params = likelihood.space.forward(found.u)
        self.nll = float(np.sum(likelihood.rows(found.u)))
        self.nobs = likelihood.count
        self.converged, self.message, self.result = found.converged, found.message, found.result

    def __repr__(self) -> str:
        return f"Estimate(params={self.params}, nll={self.nll:.6g}, converged={self.converged})"

    @property
    def aic(self) -> float:
        """Akaike's criterion: 2 k + 2 nll, with k unconstrained numbers."""
        return 2.0 * len(self._found.u) + 2.0 * self.nll

    @property
    def bic(self) -> float:
        """Schwarz's criterion: k log(nobs) + 2 nll."""
        if self.nobs is None:
            raise ArgumentError("nll returned one number, so how many rows there are isn't known")
        return len(self._found.u) * float(np.log(self.nobs)) + 2.0 * self.nll

    @functools.cached_property
    def _hessian(self) -> Curvature:
        found = self._found
        if found.curvature is not None:
            return found.curvature
        return Curvature.of(self._same_likelihood().hessian(found.u), found.on_bounds)

    @functools.cached_property
    def _scores(self) -> np.ndarray:
        return self._same_likelihood().scores(self._found.u)

    def _same_likelihood(self) -> Likelihood:
        """The likelihood, after a check that its value at the estimate hasn't changed."""
        now = float(np.sum(self._likelihood.rows(self._found.u)))
        if not np.isclose(now, self.nll, rtol=1e-9, atol=1e-9, equal_nan=True):
            raise ArgumentError(
                f"nll is {now:.10g} at the estimate, and was {self.nll:.10g} when it was found: "
                "the data, or what the function reads, have changed. Fit again"
            )
        return self._likelihood

    def cov(self, kind: str = "hessian") -> np.ndarray:
        """The covariance of all numbers of `params`, in the order of `trees.flatten`.

        Rows of numbers that the data don't determine are NaN, and a warning names them.
        """
        slopes = self._likelihood.functions.flat_jacobian(self._found.u)
        return self._told(slopes, kind, self._likelihood.space.names)

    def se(self, kind: str = "hessian") -> Any:
        """The standard errors: a tree like `params`."""
        return self._likelihood.space.tree(_roots(self.cov(kind)))

    def delta(self, g: Callable[[Any], Any], kind: str = "hessian") -> Delta:
        """A function of the parameters at the estimate, with standard errors by the delta method.

        Its covariance is J cov J^T, with the exact Jacobian J of `g`.

            fit.delta(lambda params: params["a"] / params["b"]).se

        `g` returns a number, an array, or a tree of them.
        """
        space = self._likelihood.space
        value = g(space.forward(self._found.u))
        _, back = flatten(value)
        cov = self._told(jacobian(lambda u: flatten(g(space.forward(u)))[0])(self._found.u), kind)
        return Delta(value, back(_roots(cov)), cov)

    def confidence_interval(
        self,
        of: Quantity | None = None,
        level: float = 0.95,
        *,
        method: str = "wald",
        kind: str = "hessian",
    ) -> tuple[Any, Any]:
        """A confidence interval for the parameters, or a function of them: `(lower, upper)`.

            fit.confidence_interval()                              # a tree for each end
            fit.confidence_interval("scale", method="profile")
            fit.confidence_interval(("w", 0))
            fit.confidence_interval(lambda params: params["a"] / params["b"])

        Parameters
        ----------
        of : the name of a number, the path to it (indices of arrays come last), or a function of
            the parameters that returns a number. None means all parameters, by "wald" only.
        method : "wald", a multiple of the standard error to both sides; or "profile", all values
            that the likelihood ratio doesn't reject, with the other parameters refitted. The
            "profile" interval of log(p) has the logarithms of the ends for p.
        kind : the kind of covariance, for "wald".
        """
        if method not in ("wald", "profile"):
            raise ArgumentError(f'method is "wald" or "profile", not {method!r}')
        if method == "profile":
            _far(level)
            if of is None or kind != "hessian":
                raise ArgumentError("a profile is of one number, `of`, and knows no other `kind`")
            return profiling.ends(
                self._same_likelihood(), self._found, self._hessian, *self._one(of), level
            )
        far = _far(level)
        if of is not None:
            quantity, _ = self._one(of)
            value, se, _ = self.delta(quantity, kind)
            return float(value - far * se), float(value + far * se)
        tree = self._likelihood.space.tree
        value, se = self._likelihood.space.flat(self._found.u), _roots(self.cov(kind))
        return tree(value - far * se), tree(value + far * se)

    def profile(self, of: Quantity, values: Any) -> np.ndarray:
        """The profile likelihood: the minimum of the objective at fixed values of one number.

            2 * (fit.profile("scale", grid) - fit.nll)    # compare with a quantile of chi2(1)

        Parameters
        ----------
        of : a number, as in `confidence_interval`.
        values : float64[k], the fixed values.

        Returns
        -------
        float64[k], including the penalty if there is one. It is NaN, with a warning, where no
        minimum was found.
        """
        likelihood, values = self._same_likelihood(), np.asarray(values, float)
        return profiling.profile(likelihood, self._found, self._hessian, *self._one(of), values)

    def _one(self, of: Quantity) -> tuple[Callable[[Any], Any], str]:
        """A function of the parameters that returns one number, and its name."""
        if callable(of):
            quantity, name = of, getattr(of, "__name__", repr(of))
        else:
            path = of if isinstance(of, tuple) else (of,)
            leaf = [p for p in self._likelihood.space.paths if tuple(p) == path[: len(p)]]
            if not leaf:
                names = ", ".join(self._likelihood.space.names[:20])
                raise ArgumentError(f"{of!r} isn't a parameter; these are: {names}")
            index = path[len(leaf[0]) :]
            quantity, name = _Entry(leaf[0], index), ".".join(map(str, leaf[0])) or "x"
            name += f"[{', '.join(map(str, index))}]" if index else ""
        if np.shape(quantity(self.params)):
            raise ArgumentError(f"{name} isn't one number: add an index, as in ('w', 0)")
        return quantity, name

    def summary(self, level: float = 0.95, kind: str = "hessian") -> Summary:
        """A table of the parameters, as text."""
        space = self._likelihood.space
        value, se = space.flat(self._found.u), _roots(self.cov(kind))
        far = _far(level)
        with np.errstate(all="ignore"):
            z = value / se
        columns = [value, se, z, 2 * stats.norm.sf(np.abs(z)), value - far * se, value + far * se]
        ends = [f"{100 * (1 - level) / 2:g}%", f"{100 * (1 + level) / 2:g}%"]
        heads = ["", "estimate", f"se ({kind})", "z", "P(>|z|)", *ends]
        rows = [heads] + [
            [
                name,
                *(f"{x:.4g}" for x in numbers[:2]),
                f"{numbers[2]:.2f}",
                f"{numbers[3]:.3f}",
                *(f"{x:.4g}" for x in numbers[4:]),
            ]
            for name, *numbers in zip(space.names, *columns, strict=True)
        ]
        wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join([row[0].ljust(wide[0]), *map(str.rjust, row[1:], wide[1:])]) for row in rows
        ]
        known = {"nll": f"{self.nll:.6g}", "AIC": f"{self.aic:.6g}"}
        if self.nobs is not None:
            known |= {"BIC": f"{self.bic:.6g}", "rows": f"{self.nobs}"}
        if not self.converged:
            lines.insert(0, f"not converged: {self.message}")
        return Summary("\n".join([*lines, "  ".join(f"{k} {v}" for k, v in known.items())]))

    def _told(self, slopes: Any, kind: str, names: Sequence[str] | None = None) -> np.ndarray:
        """The covariance of a vector; `slopes` is its Jacobian by the unconstrained numbers."""
        if kind not in ("hessian", "opg", "sandwich"):
            raise ArgumentError(f'kind is "hessian", "opg" or "sandwich", not {kind!r}')
        slopes = np.asarray(slopes, float)
        curvature = self._hessian
        if kind == "opg":
            curvature = Curvature.of(self._scores.T @ self._scores, self._found.on_bounds)
        along = slopes @ curvature.directions
        middle = self._scores @ curvature.directions if kind == "sandwich" else None
        cov = along @ along.T if middle is None else along @ (middle.T @ middle) @ along.T
        unknown = ~curvature.knows(slopes)
        cov[unknown] = cov[:, unknown] = np.nan
        if unknown.any():
            which = ", ".join(np.asarray(names)[unknown]) if names else "some of these numbers"
            held = ", or bounds hold them" if self._found.on_bounds.any() else ""
            warn(
                f"the data don't tell {which}: the likelihood has no curvature there{held}. "
                "Their standard errors are NaN"
            )
        return cov


class _Entry:
    """A function of a tree: an entry of one leaf."""

    def __init__(self, path: Any, index: tuple[Any, ...]) -> None:
        self.path, self.index = path, index

    def __call__(self, params: Any) -> Any:
        leaf = nested_get(params, self.path)
        return leaf[self.index] if self.index else leaf


def _far(level: float) -> float:
    """Half the length of an interval of this level, in standard errors."""
    if not 0 < level < 1:
        raise ArgumentError(f"level is between 0 and 1, as 0.95 is; not {level!r}")
    return float(stats.norm.isf((1.0 - level) / 2))


def _roots(cov: np.ndarray) -> np.ndarray:
    return np.sqrt(np.maximum(np.diagonal(cov), 0.0))
