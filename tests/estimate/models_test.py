"""Ten models of the field, in plain NumPy and SciPy, held against packages that know them.

Where a package isn't among those of the tests, the numbers are what it computed.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy import linalg, stats

from tapegrad import transforms
from tapegrad.estimate import maximum_likelihood


def linear(rng, n, *coefficients):
    x = np.column_stack([np.ones(n), rng.normal(size=(n, len(coefficients) - 1))])
    return x, x @ coefficients


def close(fit, name, value, se=None, rtol=1e-5, se_rtol=1e-4, kind="hessian"):
    np.testing.assert_allclose(fit.params[name], value, rtol=rtol)
    if se is not None:
        np.testing.assert_allclose(fit.se(kind)[name], se, rtol=se_rtol)
    assert fit.converged


# By lifelines 0.30: WeibullAFTFitter, and LogNormalAFTFitter.fit_left_censoring of exp(y), for the
# intercept, both coefficients and the logarithm of rho or sigma
WEIBULL = [1.04016935, 0.51618635, -0.40540512, 0.39821080]
WEIBULL_ERRORS = [0.04475689, 0.04980897, 0.05201144, 0.05121779]
TOBIT = [0.30478941, 0.90826094, -0.68043338, 0.23096407]
TOBIT_ERRORS = [0.07857441, 0.07522723, 0.07495703, 0.04925422]


# ---- survival, with times that are censored


def weibull(params, x, time, died):
    shape = params["shape"]
    z = (np.log(time) - x @ params["b"]) * shape
    return np.exp(z) - died * (np.log(shape) - np.log(time) + z)


def survival():
    rng = np.random.default_rng(1)
    x, level = linear(rng, 300, 1.0, 0.5, -0.3)
    time = np.exp(level) * rng.weibull(1.5, size=300)
    return x, np.minimum(time, 5.0), time < 5.0


def test_weibull_regression_of_censored_times():
    start = {"b": np.zeros(3), "shape": 1.0}
    fit = maximum_likelihood(weibull, start, *survival(), transforms={"shape": transforms.log})
    close(fit, "b", WEIBULL[:3], WEIBULL_ERRORS[:3])
    shape = np.exp(WEIBULL[3])
    close(fit, "shape", shape, shape * WEIBULL_ERRORS[3])
    assert fit.nll == pytest.approx(434.0611246916)


def tobit(params, x, y):
    level, scale = x @ params["b"], params["scale"]
    below = stats.norm.logcdf((0.0 - level) / scale)
    return -np.where(y > 0, stats.norm.logpdf(y, level, scale), below)


def censored():
    rng = np.random.default_rng(2)
    x, level = linear(rng, 400, 0.3, 1.0, -0.7)
    return x, np.maximum(level + 1.3 * rng.normal(size=400), 0.0)


def test_tobit():
    start = {"b": np.zeros(3), "scale": 1.0}
    fit = maximum_likelihood(tobit, start, *censored(), transforms={"scale": transforms.log})
    close(fit, "b", TOBIT[:3], TOBIT_ERRORS[:3])
    scale = np.exp(TOBIT[3])
    close(fit, "scale", scale, scale * TOBIT_ERRORS[3])


# ---- counts, shares, and ordered answers


def negative_binomial(params, x, y):
    mean, size = np.exp(x @ params["b"]), 1.0 / params["alpha"]
    return -stats.nbinom.logpmf(y, size, size / (size + mean))


def test_negative_binomial_regression():
    sm = pytest.importorskip("statsmodels.api")
    rng = np.random.default_rng(3)
    x, level = linear(rng, 500, 0.5, 0.4, -0.6)
    y = rng.negative_binomial(2.0, 2.0 / (2.0 + np.exp(level)))
    start = {"b": np.zeros(3), "alpha": 1.0}
    fit = maximum_likelihood(negative_binomial, start, x, y, transforms={"alpha": transforms.log})
    theirs = sm.NegativeBinomial(y, x).fit(disp=0, method="newton", maxiter=200)
    close(fit, "b", theirs.params[:3], theirs.bse[:3])
    close(fit, "alpha", theirs.params[3], theirs.bse[3])
    robust = sm.NegativeBinomial(y, x).fit(disp=0, method="newton", maxiter=200, cov_type="HC0")
    close(fit, "b", theirs.params[:3], robust.bse[:3], kind="sandwich")
    assert fit.bic == pytest.approx(theirs.bic) and fit.aic == pytest.approx(theirs.aic)


def beta_regression(params, x, y):
    mean = 1.0 / (1.0 + np.exp(-x @ params["b"]))
    return -stats.beta.logpdf(y, mean * params["precision"], (1.0 - mean) * params["precision"])


def test_beta_regression():
    betareg = pytest.importorskip("statsmodels.othermod.betareg")
    rng = np.random.default_rng(4)
    x, level = linear(rng, 300, 0.2, 0.5)
    mean = 1.0 / (1.0 + np.exp(-level))
    y = rng.beta(8.0 * mean, 8.0 * (1.0 - mean))
    start = {"b": np.zeros(2), "precision": 1.0}
    fit = maximum_likelihood(beta_regression, start, x, y, transforms={"precision": transforms.log})
    theirs = betareg.BetaModel(y, x).fit(disp=0, gtol=1e-8)
    close(fit, "b", theirs.params[:2], theirs.bse[:2], se_rtol=2e-3)
    close(fit, "precision", np.exp(theirs.params[2]), rtol=1e-4)


def ordered_probit(params, x, answer):
    cuts = np.concatenate([[-np.inf], params["cuts"], [np.inf]])
    level = x @ params["b"]
    upper, lower = stats.norm.cdf(cuts[answer + 1] - level), stats.norm.cdf(cuts[answer] - level)
    return -np.log(upper - lower)


def test_ordered_probit():
    ordinal = pytest.importorskip("statsmodels.miscmodels.ordinal_model")
    rng = np.random.default_rng(5)
    x = rng.normal(size=(600, 2))
    answer = np.digitize(x @ [0.8, -0.5] + rng.normal(size=600), [-0.7, 0.4, 1.5])
    start = {"b": np.zeros(2), "cuts": np.array([-1.0, 0.0, 1.0])}
    fit = maximum_likelihood(
        ordered_probit, start, x, answer, transforms={"cuts": transforms.ordered}
    )
    model = ordinal.OrderedModel(answer, x, distr="probit")
    theirs = model.fit(disp=0, method="bfgs", gtol=1e-8)
    close(fit, "b", theirs.params[:2], theirs.bse[:2], rtol=1e-4, se_rtol=1e-3)
    close(fit, "cuts", model.transform_threshold_params(theirs.params)[1:-1], rtol=1e-4)


# ---- series


def innovations(y, coefficient, noise, variance, first):
    """-log density of an AR(1) state with noise around it, by Kalman's filter, step by step."""
    state, spread, terms = 0.0, first, []
    for value in y:
        total = spread + noise
        error = value - state
        terms.append(0.5 * (np.log(2 * np.pi * total) + error**2 / total))
        gain = coefficient * spread / total
        state = coefficient * state + gain * error
        spread = coefficient**2 * spread * noise / total + variance
    return np.array(terms)


def stochastic_volatility(params, y):
    """Harvey, Ruiz and Shephard (1994): log y^2 is a level, a state, and noise of known size."""
    phi, variance = params["phi"], params["sigma"] ** 2
    centred = np.log(y**2) + 1.2704 - params["level"]
    return innovations(centred, phi, np.pi**2 / 2, variance, variance / (1 - phi**2))


def returns():
    rng = np.random.default_rng(6)
    state, out = 0.0, []
    for _ in range(800):
        state = 0.95 * state + 0.3 * rng.normal()
        out.append(np.exp((state - 0.5) / 2) * rng.normal())
    return np.array(out)


def test_stochastic_volatility():
    sm = pytest.importorskip("statsmodels.api")
    y = returns()
    start = {"level": 0.0, "phi": 0.5, "sigma": 0.5}
    known = {"phi": transforms.Between(-1.0, 1.0), "sigma": transforms.log}
    fit = maximum_likelihood(stochastic_volatility, start, y, transforms=known)

    class Volatility(sm.tsa.statespace.MLEModel):
        start_params = np.zeros(3)
        param_names = ("level", "phi", "sigma")

        def __init__(self, endog):
            super().__init__(endog, k_states=1, initialization="stationary")
            self["design", 0, 0] = self["selection", 0, 0] = 1.0
            self["obs_cov", 0, 0] = np.pi**2 / 2

        def update(self, params, **kwargs):
            params = super().update(params, **kwargs)
            self["obs_intercept", 0, 0] = params[0] - 1.2704
            self["transition", 0, 0] = params[1]
            self["state_cov", 0, 0] = params[2] ** 2

    model, names = Volatility(np.log(y**2)), ("level", "phi", "sigma")
    theirs = model.smooth([fit.params[name] for name in names], cov_type="approx")
    assert -fit.nll == pytest.approx(theirs.llf, abs=1e-8) and fit.converged
    np.testing.assert_allclose(model.score(theirs.params) * theirs.bse, 0.0, atol=1e-4)
    np.testing.assert_allclose([fit.se()[name] for name in names], theirs.bse, rtol=1e-3)


def arma(params, y):
    """ARMA(1, 1) as a state: y_t = e_t + (phi + theta) s_t, s_t+1 = phi s_t + e_t."""
    phi, theta, scale = params["phi"], params["theta"], params["scale"]
    transition, design = np.array([[phi, 1.0], [0.0, 0.0]]), np.array([1.0, 0.0])
    shock = np.array([1.0, theta])
    noise = scale**2 * np.outer(shock, shock)
    state = np.zeros(2)
    spread = linalg.solve_discrete_lyapunov(transition, noise)
    terms = []
    for value in y - params["mean"]:
        total = design @ spread @ design
        error = value - design @ state
        terms.append(0.5 * (np.log(2 * np.pi * total) + error**2 / total))
        gain = spread @ design / total
        state = transition @ (state + gain * error)
        spread = transition @ (spread - np.outer(gain, design @ spread)) @ transition.T + noise
    return np.array(terms)


def test_arma():
    sm = pytest.importorskip("statsmodels.api")
    rng = np.random.default_rng(7)
    shocks, y = rng.normal(size=401), [0.0]
    for before, now in pairwise(shocks):
        y.append(0.7 * y[-1] + now + 0.4 * before)
    y = np.array(y[1:]) + 2.0
    start = {"mean": 1.0, "phi": 0.1, "theta": 0.1, "scale": 1.0}
    known = {"phi": transforms.Between(-1.0, 1.0), "scale": transforms.log}
    fit = maximum_likelihood(arma, start, y, transforms=known)
    theirs = sm.tsa.ARIMA(y, order=(1, 0, 1)).fit(cov_type="approx")
    theirs = theirs.model.fit(
        theirs.params, cov_type="approx", method_kwargs={"pgtol": 1e-9, "factr": 1.0}
    )
    assert -fit.nll == pytest.approx(theirs.llf, abs=1e-5)
    for k, name in enumerate(("mean", "phi", "theta")):
        close(fit, name, theirs.params[k], theirs.bse[k], rtol=2e-3, se_rtol=2e-2)
    assert fit.params["scale"] ** 2 == pytest.approx(theirs.params[3], rel=1e-3)


# ---- and others


def process(params, x, y):
    far = (x[:, None] - x) ** 2
    k = params["height"] ** 2 * np.exp(-0.5 * far / params["length"] ** 2)
    factor = np.linalg.cholesky(k + params["noise"] ** 2 * np.eye(len(x)))
    z = linalg.solve_triangular(factor, y, lower=True)
    return 0.5 * z @ z + np.sum(np.log(np.diagonal(factor))) + 0.5 * len(x) * np.log(2 * np.pi)


def test_hyperparameters_of_a_gaussian_process():
    gaussian_process = pytest.importorskip("sklearn.gaussian_process")
    kernels = gaussian_process.kernels
    rng = np.random.default_rng(8)
    x = np.sort(rng.uniform(0, 10, size=60))
    y = np.sin(x) + 0.2 * rng.normal(size=60)
    start = {"height": 1.0, "length": 1.0, "noise": 0.5}
    fit = maximum_likelihood(process, start, x, y, transforms=transforms.log)
    kernel = kernels.ConstantKernel(1.0) * kernels.RBF(1.0) + kernels.WhiteKernel(0.25)
    theirs = gaussian_process.GaussianProcessRegressor(kernel, alpha=0.0).fit(x[:, None], y)
    assert fit.nll == pytest.approx(-theirs.log_marginal_likelihood_value_, abs=1e-6)
    found = np.exp(theirs.kernel_.theta)  # height^2, length, noise^2
    ours = [fit.params["height"] ** 2, fit.params["length"], fit.params["noise"] ** 2]
    np.testing.assert_allclose(ours, found, rtol=2e-3)


def mixture(params, x):
    parts = stats.norm.logpdf(x[:, None], params["mean"], params["scale"])
    return -np.log(np.exp(parts + np.log(params["share"])).sum(axis=1))


def test_mixture():
    sklearn_mixture = pytest.importorskip("sklearn.mixture")
    rng = np.random.default_rng(9)
    x = np.concatenate([rng.normal(-2, 0.7, 150), rng.normal(1, 0.5, 250), rng.normal(4, 1, 200)])
    start = {"mean": np.array([-1.0, 1.0, 3.0]), "scale": np.ones(3), "share": np.full(3, 1 / 3)}
    known = {"mean": transforms.ordered, "scale": transforms.log, "share": transforms.simplex}
    fit = maximum_likelihood(mixture, start, x, transforms=known)
    theirs = sklearn_mixture.GaussianMixture(
        3, tol=1e-14, max_iter=20000, reg_covar=0.0, means_init=[[-1.0], [1.0], [3.0]]
    ).fit(x[:, None])
    close(fit, "mean", theirs.means_[:, 0], rtol=1e-4)
    close(fit, "scale", np.sqrt(theirs.covariances_[:, 0, 0]), rtol=1e-4)
    close(fit, "share", theirs.weights_, rtol=1e-4)
    assert fit.params["share"].sum() == pytest.approx(1.0)
    places = slice(6, 9)  # of the shares, behind means and scales: they have two degrees of freedom
    np.testing.assert_allclose(fit.cov()[places, places].sum(axis=0), 0.0, atol=1e-12)


def multivariate(params, x):
    factor = params["factor"]
    z = linalg.solve_triangular(factor, (x - params["mean"]).T, lower=True)
    return 0.5 * np.sum(z**2, axis=0) + np.sum(np.log(np.diagonal(factor)))


def test_multivariate_normal():
    rng = np.random.default_rng(10)
    true = np.array([[1.0, 0, 0], [0.5, 0.8, 0], [-0.3, 0.4, 1.2]])
    x = rng.normal(size=(500, 3)) @ true.T + [1.0, 2.0, 3.0]
    start = {"mean": np.zeros(3), "factor": np.eye(3)}
    fit = maximum_likelihood(
        multivariate, start, x, transforms={"factor": transforms.cholesky_factor}
    )
    cov = np.cov(x.T, ddof=0)
    close(fit, "mean", x.mean(axis=0), np.sqrt(np.diagonal(cov) / 500), rtol=1e-9, se_rtol=1e-8)
    close(fit, "factor", np.linalg.cholesky(cov), rtol=1e-9)
    found = fit.delta(lambda params: params["factor"] @ params["factor"].T)
    variances = np.diagonal(cov)
    expected = np.sqrt((cov**2 + np.outer(variances, variances)) / 500)
    np.testing.assert_allclose(found.value, cov, rtol=1e-9)
    np.testing.assert_allclose(found.se, expected, rtol=1e-8)
