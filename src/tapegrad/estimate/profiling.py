"""Profile likelihoods, by SciPy's SLSQP with exact derivatives.

The unconstrained numbers are u = u_0 + T z, where z is the distance from the estimate in standard
errors along each direction: in z the likelihood is nearly the same quadratic for all models.

    profile at c      min nll(u)         where g(u) = c
    ends by level     min, max of g(u)   where 2 (nll(u) - nll(u_0)) <= the quantile of chi2(1)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import stats
from scipy.optimize import minimize

from tapegrad.api import value_and_grad
from tapegrad.core.frames import warn
from tapegrad.errors import ArgumentError
from tapegrad.estimate.likelihood import Curvature, Likelihood, Minimum


class _Scaled:
    """The likelihood and a quantity as functions of z, with derivatives."""

    def __init__(
        self, likelihood: Likelihood, found: Minimum, curvature: Curvature, quantity: Any, name: str
    ) -> None:
        if not found.converged or found.on_bounds.any():
            why = "bounds hold parameters" if found.converged else "the fit hasn't converged"
            raise ArgumentError(f"the profile of {name} isn't known: {why}")
        self.likelihood, self.u, self.least, self.name = likelihood, found.u, found.value, name
        self.scale = curvature.directions
        space = likelihood.space
        self.quantity = value_and_grad(lambda u: quantity(space.forward(u)))
        value, slope = self.quantity(self.u)
        along = self.scale.T @ np.asarray(slope, float)
        self.value, self.se = float(value), float(np.linalg.norm(along))
        if not self.se > 0 or not curvature.knows(np.asarray(slope, float)[None])[0]:
            raise ArgumentError(f"the data don't tell {name}: it has no profile")
        self.toward = along / self.se
        ends = np.concatenate([self.u - likelihood.lower, likelihood.upper - self.u])
        rows = np.concatenate([self.scale, -self.scale])[np.isfinite(ends)]
        self.within: dict[str, Any] = {
            "type": "ineq",
            "fun": lambda z: rows @ z + ends[np.isfinite(ends)],
            "jac": lambda z: rows,
        }

    def rise(self, z: np.ndarray) -> tuple[float, np.ndarray]:
        """The rise of the objective above its value at the estimate, and its gradient."""
        value, slope = self.likelihood.at(self.u + self.scale @ z)
        return value - self.least, self.scale.T @ slope

    def off(self, z: np.ndarray) -> tuple[float, np.ndarray]:
        """The distance of the quantity from its estimate, in standard errors, and its gradient."""
        value, slope = self.quantity(self.u + self.scale @ z)
        return (float(value) - self.value) / self.se, self.scale.T @ np.asarray(slope) / self.se

    def least_of(
        self, goal: Callable[..., Any], kind: str, held: Callable[..., Any], start: np.ndarray
    ) -> np.ndarray:
        """The z that minimises `goal` subject to `held` = 0 or >= 0; NaN if it isn't found."""
        limit = {"type": kind, "fun": lambda z: held(z)[0], "jac": lambda z: held(z)[1]}
        limits = [limit, self.within] if len(self.within["fun"](start)) else [limit]
        options = {"ftol": 1e-13, "maxiter": 500}
        with np.errstate(all="ignore"):
            result = minimize(
                goal, start, jac=True, method="SLSQP", constraints=limits, options=options
            )
            z = result.x
            (_, slope), (gap, normal) = goal(z), held(z)
            # Check feasibility and that the slopes cancel, whatever SciPy reports.
            rest = slope - normal * np.vdot(normal, slope) / np.vdot(normal, normal)
            small = 1e-4 * max(1.0, float(np.linalg.norm(slope)))
        if abs(gap) < 1e-6 and np.linalg.norm(rest) < small:
            return z
        if len(limits) == 2 and np.min(self.within["fun"](z)) < 1e-9 and result.success:
            return z  # on a bound: rely on SciPy's report
        return np.full_like(start, np.nan)


def ends(
    likelihood: Likelihood,
    found: Minimum,
    curvature: Curvature,
    quantity: Callable[[Any], Any],
    name: str,
    level: float,
) -> tuple[float, float]:
    """The smallest and the largest value that the likelihood ratio doesn't reject."""
    scaled = _Scaled(likelihood, found, curvature, quantity, name)
    allowed = float(stats.chi2.ppf(level, 1)) / 2

    def room(z: np.ndarray) -> tuple[float, np.ndarray]:
        rise, slope = scaled.rise(z)
        return allowed - rise, -slope

    both = []
    for sign in (-1.0, 1.0):

        def goal(z: np.ndarray, sign: float = sign) -> tuple[float, np.ndarray]:
            off, slope = scaled.off(z)
            return -sign * off, -sign * slope

        z = scaled.least_of(goal, "ineq", room, sign * np.sqrt(2 * allowed) * scaled.toward)
        both.append(scaled.value + scaled.se * scaled.off(z)[0] if z[0] == z[0] else np.nan)
    if np.isnan(both).any():
        warn(f"an end of the interval of {name} wasn't found: it is NaN")
    return both[0], both[1]


def profile(
    likelihood: Likelihood,
    found: Minimum,
    curvature: Curvature,
    quantity: Callable[[Any], Any],
    name: str,
    values: np.ndarray,
) -> np.ndarray:
    """The minimum of the likelihood at each value, outwards, each started from the last."""
    scaled = _Scaled(likelihood, found, curvature, quantity, name)
    offs = (values.ravel() - scaled.value) / scaled.se
    out = np.full(offs.shape, np.nan)
    for side in (offs < 0, offs >= 0):
        z, before = np.zeros(scaled.scale.shape[1]), 0.0
        for k in sorted(np.flatnonzero(side), key=lambda k: abs(offs[k])):

            def held(z: np.ndarray, off: float = offs[k]) -> tuple[float, np.ndarray]:
                at, slope = scaled.off(z)
                return at - off, slope

            start = z + (offs[k] - before) * scaled.toward
            there = scaled.least_of(scaled.rise, "eq", held, start)
            if there[0] == there[0]:
                z, before, out[k] = there, offs[k], scaled.rise(there)[0] + scaled.least
    if np.isnan(out).any():
        warn(f"the profile of {name} wasn't found for some values: it is NaN there")
    return out.reshape(values.shape)
