"""Exact derivatives for statsmodels' likelihood models.

from tapegrad.estimate import ExactDerivatives

class Tobit(ExactDerivatives, GenericLikelihoodModel):
    def nloglikeobs(self, params): ...

Tobit(y, X).fit(method="bfgs")
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tapegrad.api import grad
from tapegrad.derivatives import hessian, jacobian


class ExactDerivatives:
    """Exact `score`, `score_obs` and `hessian` for a `GenericLikelihoodModel`.

    statsmodels itself takes finite differences. Put this class before the model among the bases.
    The class defines `nloglikeobs`, `loglikeobs` or `loglike` in plain NumPy; the attributes that
    they read from the model may change.
    """

    loglike: Any
    loglikeobs: Any

    @functools.cached_property
    def _score(self) -> Any:
        return grad(self.loglike)

    @functools.cached_property
    def _score_obs(self) -> Any:
        return jacobian(self.loglikeobs)

    @functools.cached_property
    def _hessian(self) -> Any:
        return hessian(self.loglike)

    def score(self, params: Any) -> np.ndarray:
        """The gradient of the log-likelihood."""
        return np.asarray(self._score(np.asarray(params, float)))

    def score_obs(self, params: Any, **_: Any) -> np.ndarray:
        """The derivatives of each observation's log-likelihood, one row each."""
        return np.asarray(self._score_obs(np.asarray(params, float)))

    def hessian(self, params: Any) -> np.ndarray:
        """The second derivatives of the log-likelihood."""
        return np.asarray(self._hessian(np.asarray(params, float)))
