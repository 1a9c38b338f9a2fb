"""What a likelihood says about its parameters: estimates, their errors, and where they may lie."""

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
    """A function of the estimates, with its standard errors: of each number of `value`, in the
    order of `trees.flatten`, `cov` has a row."""

    value: Any
    se: Any
    cov: np.ndarray


class Summary(str):
    """A text that shows itself as it is."""

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
    """The parameters under which the data are most likely, and how well they are known.

        fit = maximum_likelihood(nll, {"mean": 0.0, "scale": 1.0}, x, transforms={"scale": log})
        fit.params, fit.se(), fit.confidence_interval("scale", method="profile")
        print(fit.summary())

    Parameters
    ----------
    nll : `nll(params, *data)`, the negative log-likelihood of plain NumPy: an array with one number
        for each independent row, or their sum. A mean would make all errors too large.
    init : where to begin: a tree of arrays and floats.
    data : what else the function takes.
    transforms : a transform for all parameters, or a dict (of dicts) from their names to transforms
        of `tapegrad.transforms`. The likelihood is the same whatever transforms it, so no Jacobian
        is added.
    bounds : the same of pairs `(lower, upper)`, None where there is no end, for parameters that may
        lie on their bounds. These have no standard errors there.
    penalty : `penalty(params)`, which is added once: minus the logarithm of a prior density, say,
        whose most likely parameters are then found.
    method : of `scipy.optimize.minimize`; those that take Hessians or products with them get exact
        ones. With up to 300 numbers Newton steps follow, to the last digits.
    options : what else SciPy's function takes (`tol=`, `options=`).

    Returns
    -------
    An `Estimate`. A warning says where the search didn't converge.

    Raises
    ------
    ArgumentError : the likelihood or a derivative isn't finite at `init`; the message says in which
        rows, or by which parameters. Or `init` isn't within its transforms and bounds.
    """
    likelihood = Likelihood(nll, Unconstrained(init, transforms), data, penalty, bounds)
    found = minimum(likelihood, method, options)
    if not found.converged:
        warn(f"no maximum likelihood was found: {found.message}")
    return Estimate(likelihood, found)


class Estimate:
    """The parameters that `maximum_likelihood` found.

    Attributes
    ----------
    params : a tree like `init`.
    nll : the negative log-likelihood there, without the penalty.
    nobs : the number of rows, if `nll` tells them apart, or None.
    converged, message : whether it is a maximum, and what is known of it.
    result : what SciPy's minimiser returned, for the unconstrained numbers.

    The `kind` of covariance is "hessian", the inverse of the Hessian H; "opg", that of S^T S, where
    S has the derivative of each row; or "sandwich", H^-1 S^T S H^-1, which holds for independent
    rows whatever their distribution really is. With a penalty H is that of what was minimised.
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
        """The likelihood, if it still says what it said."""
        now = float(np.sum(self._likelihood.rows(self._found.u)))
        if not np.isclose(now, self.nll, rtol=1e-9, atol=1e-9, equal_nan=True):
            raise ArgumentError(
                f"nll is {now:.10g} at the estimate, and was {self.nll:.10g} when it was found: "
                "the data, or what the function reads, have changed. Fit again"
            )
        return self._likelihood

    def cov(self, kind: str = "hessian") -> np.ndarray:
        """The covariance of all numbers of `params`, in the order of `trees.flatten`.

        Rows of numbers that the data don't tell are NaN, and a warning names them.
        """
        slopes = self._likelihood.functions.flat_jacobian(self._found.u)
        return self._told(slopes, kind, self._likelihood.space.names)

    def se(self, kind: str = "hessian") -> Any:
        """The standard errors: a tree like `params`."""
        return self._likelihood.space.tree(_roots(self.cov(kind)))

    def delta(self, g: Callable[[Any], Any], kind: str = "hessian") -> Delta:
        """A function of the parameters at the estimate, and its standard errors by the delta
        method: J cov J^T with the exact Jacobian J.

            fit.delta(lambda params: params["a"] / params["b"]).se

        `g` returns a number, an array, or a tree of these.
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
        """Where the parameters, or a function of them, lie by this level: `(lower, upper)`.

            fit.confidence_interval()                              # a tree for each end
            fit.confidence_interval("scale", method="profile")
            fit.confidence_interval(("w", 0))
            fit.confidence_interval(lambda params: params["a"] / params["b"])

        Parameters
        ----------
        of : the name of a number, the path to it (indices of arrays come last), or a function of
            the parameters that returns one. None means all parameters, by "wald" alone.
        method : "wald", so many standard errors to both sides; or "profile", all values that the
            likelihood doesn't reject, whatever the other parameters: it is the same for a parameter
            and for its logarithm.
        kind : of the covariance, for "wald".
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
        """The profile likelihood: the least that is minimised where a number has these values.

            2 * (fit.profile("scale", grid) - fit.nll)    # beside a quantile of chi2(1)

        Parameters
        ----------
        of : a number, as in `confidence_interval`.
        values : float64[k], what it is held to.

        Returns
        -------
        float64[k], with the penalty where there is one. NaN where no minimum was found, which a
        warning says.
        """
        likelihood, values = self._same_likelihood(), np.asarray(values, float)
        return profiling.profile(likelihood, self._found, self._hessian, *self._one(of), values)

    def _one(self, of: Quantity) -> tuple[Callable[[Any], Any], str]:
        """A function of the parameters that gives one number, and what it is called."""
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
        """The covariance of a vector with these derivatives by the unconstrained numbers."""
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
    """The function of a tree that gives an entry of a leaf."""

    def __init__(self, path: Any, index: tuple[Any, ...]) -> None:
        self.path, self.index = path, index

    def __call__(self, params: Any) -> Any:
        leaf = nested_get(params, self.path)
        return leaf[self.index] if self.index else leaf


def _far(level: float) -> float:
    """How many standard errors an interval of this level has to each side."""
    if not 0 < level < 1:
        raise ArgumentError(f"level is between 0 and 1, as 0.95 is; not {level!r}")
    return float(stats.norm.isf((1.0 - level) / 2))


def _roots(cov: np.ndarray) -> np.ndarray:
    return np.sqrt(np.maximum(np.diagonal(cov), 0.0))
