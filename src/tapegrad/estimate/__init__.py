"""Maximum likelihood: estimates with standard errors, intervals and profiles, by exact derivatives.

    from tapegrad.estimate import maximum_likelihood

    fit = maximum_likelihood(nll, {"mean": 0.0, "scale": 1.0}, x, transforms={"scale": log})
    print(fit.summary())

`nll(params, *data)` is a negative log-likelihood of plain NumPy, `params` a tree. Constraints are
the transforms of `tapegrad.transforms`, or bounds. `ExactDerivatives` adds exact derivatives to
statsmodels' likelihood models; `tapegrad.estimate.sklearn` has estimators with scikit-learn's
conventions.
"""

from tapegrad.estimate.estimates import Delta, Estimate, maximum_likelihood
from tapegrad.estimate.statsmodels import ExactDerivatives

__all__ = ["Delta", "Estimate", "ExactDerivatives", "maximum_likelihood"]


def __dir__() -> list[str]:
    return __all__
