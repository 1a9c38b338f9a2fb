"""Exact derivatives of statsmodels' likelihood models, held against its own."""

import pickle
import warnings

import numpy as np
import pytest
from scipy import stats

from tapegrad.estimate import ExactDerivatives

sm = pytest.importorskip("statsmodels.api")
GenericLikelihoodModel = pytest.importorskip("statsmodels.base.model").GenericLikelihoodModel
OrderedModel = pytest.importorskip("statsmodels.miscmodels.ordinal_model").OrderedModel
approx_fprime = pytest.importorskip("statsmodels.tools.numdiff").approx_fprime

pytestmark = pytest.mark.filterwarnings("ignore:df_")

RNG = np.random.default_rng(0)
X = np.column_stack([np.ones(300), RNG.normal(size=(300, 2))])
LEVEL = X @ [0.5, 0.4, -0.6]
COUNTS = RNG.negative_binomial(2.0, 2.0 / (2.0 + np.exp(LEVEL)))
BINARY = (LEVEL + RNG.normal(size=300) > 0).astype(float)
CENSORED = np.maximum(LEVEL + RNG.normal(size=300), 0.0)
NEAR = np.array([0.4, 0.3, -0.5, 0.1])  # where plain Newton steps lead on


class Counts(ExactDerivatives, GenericLikelihoodModel):
    def nloglikeobs(self, params):
        mean, size = np.exp(self.exog @ params[:-1]), 1.0 / params[-1]
        return -stats.nbinom.logpmf(self.endog, size, size / (size + mean))


class PlainTobit(GenericLikelihoodModel):
    def nloglikeobs(self, params):
        level, scale = self.exog @ params[:-1], np.exp(params[-1])
        below = stats.norm.logcdf(-level / scale)
        return -np.where(self.endog > 0, stats.norm.logpdf(self.endog, level, scale), below)


class Tobit(ExactDerivatives, PlainTobit):
    pass


def negative_binomial(**options):
    model = sm.NegativeBinomial(COUNTS, X)
    return model.fit(disp=0, method="newton", maxiter=100, **options)


def exact(kind):
    return type(f"Exact{kind.__name__}", (ExactDerivatives, kind), {})


def ordered(kind):
    return kind(np.digitize(LEVEL, [-0.5, 0.5, 1.0]), X[:, 1:], distr="probit")


@pytest.mark.every(3)
@pytest.mark.parametrize(
    ("ours", "theirs", "params", "near"),
    [
        (Counts(COUNTS, X), negative_binomial().model, [0.4, 0.3, -0.5, 0.6], 1e-9),
        (exact(sm.Probit)(BINARY, X), sm.Probit(BINARY, X), [0.4, 0.3, -0.5], 1e-9),
        (exact(sm.Logit)(BINARY, X), sm.Logit(BINARY, X), [0.4, 0.3, -0.5], 1e-9),
        (exact(sm.Poisson)(COUNTS, X), sm.Poisson(COUNTS, X), [0.4, 0.3, -0.5], 1e-9),
        (Tobit(CENSORED, X), PlainTobit(CENSORED, X), [0.4, 0.3, -0.5, 0.1], 1e-5),
        (ordered(exact(OrderedModel)), ordered(OrderedModel), [0.4, -0.5, -0.5, 0.1, 0.2], 1e-5),
    ],
)
def test_derivatives(ours, theirs, params, near):
    params = np.array(params)
    for name in ("score", "score_obs", "hessian"):
        wanted = np.asarray(getattr(theirs, name)(params))
        atol = near * np.abs(wanted).max()
        np.testing.assert_allclose(getattr(ours, name)(params), wanted, rtol=0, atol=atol)


def test_a_fit():
    theirs = negative_binomial()
    start = np.array([0.0, 0.0, 0.0, 1.0])
    fit = Counts(COUNTS, X).fit(start, method="bfgs", disp=0, gtol=1e-8)
    np.testing.assert_allclose(fit.params, theirs.params, rtol=1e-5)
    np.testing.assert_allclose(fit.bse, theirs.bse, rtol=1e-5)
    robust = Counts(COUNTS, X).fit(start, method="bfgs", disp=0, gtol=1e-8, cov_type="HC0")
    known = negative_binomial(cov_type="HC0")
    np.testing.assert_allclose(robust.bse, known.bse, rtol=1e-5)


def test_newtons_method():
    """It takes the exact Hessian: differences of the log-likelihood are a millionth off."""
    fit = Tobit(CENSORED, X).fit(NEAR, method="newton", disp=0, tol=1e-12)
    model = Tobit(CENSORED, X)
    np.testing.assert_allclose(model.score(fit.params), 0.0, atol=1e-10)
    slopes = approx_fprime(fit.params, model.score, centered=True)
    np.testing.assert_allclose(model.hessian(fit.params), slopes, rtol=1e-6, atol=1e-4)


def test_what_a_model_has_may_change():
    model = Tobit(CENSORED.copy(), X)
    before = model.score(np.zeros(4))
    model.endog = CENSORED + 1.0
    now = model.score(np.zeros(4))
    np.testing.assert_allclose(now, Tobit(CENSORED + 1.0, X).score(np.zeros(4)))
    assert not np.allclose(before, now)


def test_results_are_pickled():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = Tobit(CENSORED, X).fit(NEAR, method="newton", disp=0)
        again = pickle.loads(pickle.dumps(fit))
    np.testing.assert_allclose(again.model.hessian(fit.params), fit.model.hessian(fit.params))
