"""Maximum likelihood: what is found, how well it is known, and what is said where it isn't."""

import pickle
import warnings

import numpy as np
import pytest
from scipy import optimize, stats

import tapegrad
from tapegrad import optim, transforms
from tapegrad.errors import ArgumentError
from tapegrad.estimate import Estimate, maximum_likelihood

X = np.random.default_rng(0).normal(2.0, 3.0, size=1000)
CHI = stats.chi2.ppf(0.95, 1)


def normal(params, x):
    return -stats.norm.logpdf(x, params["mean"], params["scale"])


def total(params, x):
    return np.sum(normal(params, x))


def fitted(nll=normal, **options):
    start = {"mean": 0.0, "scale": 1.0}
    return maximum_likelihood(nll, start, X, transforms={"scale": transforms.log}, **options)


def regression(params, x, y):
    return -stats.norm.logpdf(y, x @ params["b"], params["scale"])


def collinear():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(200, 3))
    y = x @ [1.0, 2.0, 3.0] + rng.normal(size=200)
    return np.column_stack([x, x[:, 0] + x[:, 1]]), y


# ---- what is found


@pytest.mark.every(2)
@pytest.mark.parametrize("method", ["L-BFGS-B", "BFGS", "Newton-CG", "trust-ncg", "trust-exact"])
def test_normal_distribution(method):
    fit = fitted(method=method)
    n = len(X)
    assert fit.converged and fit.message == "converged" and fit.nobs == n
    assert fit.params["mean"] == pytest.approx(X.mean(), rel=1e-12)
    assert fit.params["scale"] == pytest.approx(X.std(), rel=1e-12)
    assert fit.se()["mean"] == pytest.approx(X.std() / np.sqrt(n), rel=1e-10)
    assert fit.se()["scale"] == pytest.approx(X.std() / np.sqrt(2 * n), rel=1e-10)
    assert fit.nll == pytest.approx(n * np.log(X.std()) + n / 2 * np.log(2 * np.pi * np.e))
    assert fit.aic == pytest.approx(4 + 2 * fit.nll)
    assert fit.bic == pytest.approx(2 * np.log(n) + 2 * fit.nll)


def test_covariances_of_each_kind():
    fit, m, s = fitted(), X.mean(), X.std()
    scores = np.column_stack([(X - m) / s**2, (X - m) ** 2 / s**3 - 1 / s])
    outer, hessian = scores.T @ scores, np.diag([1 / s**2, 2 / s**2]) * len(X)
    inverse = np.linalg.inv(hessian)
    np.testing.assert_allclose(fit.cov(), inverse, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(fit.cov("opg"), np.linalg.inv(outer), rtol=1e-9)
    np.testing.assert_allclose(fit.cov("sandwich"), inverse @ outer @ inverse, rtol=1e-9)
    with pytest.raises(ArgumentError, match='kind is "hessian", "opg" or "sandwich"'):
        fit.cov("robust")


def test_a_sum_will_do_but_for_what_rows_say():
    fit = fitted(total)
    assert fit.params["scale"] == pytest.approx(X.std()) and fit.nobs is None
    with pytest.raises(ArgumentError, match="return an array with one for each"):
        fit.cov("sandwich")
    with pytest.raises(ArgumentError, match="how many rows there are isn't known"):
        _ = fit.bic


def test_tables():
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame({"y": X[:100]})
    fit = maximum_likelihood(lambda m, table: 0.5 * (table["y"] - m) ** 2, 0.0, table)
    assert fit.params == pytest.approx(X[:100].mean()) and fit.nobs == 100
    assert fit.se("sandwich") == pytest.approx(X[:100].std() / 10)


def test_what_the_function_reads_may_change():
    shift = 0.0

    def nll(m, x):
        return 0.5 * (x - shift - m) ** 2

    assert maximum_likelihood(nll, 0.0, X).params == pytest.approx(X.mean())
    shift = 1.0
    assert maximum_likelihood(nll, 0.0, X).params == pytest.approx(X.mean() - 1)


def test_what_is_asked_later_is_of_the_likelihood_that_was_fitted():
    x, weight = X.copy(), [1.0]

    def nll(m, x):
        return weight[0] * 0.5 * (x - m) ** 2

    fit = maximum_likelihood(nll, 0.0, x)
    weight[0] = 4.0
    assert fit.se() == pytest.approx(1 / np.sqrt(len(x)))
    for asked in (lambda: fit.se("sandwich"), lambda: fit.profile((), [1.0])):
        with pytest.raises(ArgumentError, match="the function reads, have changed"):
            asked()
    weight[0] = 1.0
    x[0] += 1.0
    with pytest.raises(ArgumentError, match="the data, or what"):
        fit.confidence_interval((), method="profile")


def test_a_penalty_is_added_once():
    fit = maximum_likelihood(
        lambda m, x: 0.5 * (x - m) ** 2, 0.0, X, penalty=lambda m: 0.5 * 100.0 * m**2
    )
    n = len(X)
    assert fit.params == pytest.approx(X.sum() / (n + 100))
    assert fit.se() == pytest.approx(1 / np.sqrt(n + 100))
    assert fit.nll == pytest.approx(0.5 * np.sum((X - fit.params) ** 2))


def test_many_parameters():
    """Without Newton's steps, whose Hessian nobody asks for."""
    y = np.random.default_rng(0).normal(size=400)
    fit = maximum_likelihood(lambda b: 0.5 * (y - b) ** 2, np.zeros(400))
    np.testing.assert_allclose(fit.params, y, atol=1e-4)
    np.testing.assert_allclose(fit.se(), 1.0)


def test_the_next_fit_traces_nothing():
    first = fitted()
    functions = first._likelihood.functions
    before = tapegrad.cache_info(functions.value_and_grad).traces
    second = maximum_likelihood(
        normal,
        {"mean": 5.0, "scale": 4.0},
        X[::-1].copy(),
        transforms={"scale": transforms.Above(0.0)},
    )
    assert first.params["scale"] == pytest.approx(second.params["scale"])
    assert second._likelihood.functions is functions
    assert tapegrad.cache_info(functions.value_and_grad).traces == before
    other = maximum_likelihood(normal, {"mean": 5.0, "scale": 4.0}, X)
    assert other._likelihood.functions is not functions


def test_likelihoods_that_compare_equal_are_told_apart():
    class Shifted:
        def __init__(self, by):
            self.by = by

        def __eq__(self, other):
            return True

        def __hash__(self):
            return 0

        def __call__(self, m, x):
            return 0.5 * (x - self.by - m) ** 2

    for by in (0.0, 1.0):
        fit = maximum_likelihood(Shifted(by), 0.0, X)
        assert fit.params == pytest.approx(X.mean() - by)


def test_steps_to_where_a_matrix_is_not_positive_definite_are_taken_back():
    """Without a constraint: the search crosses what isn't allowed."""
    x = np.random.default_rng(3).multivariate_normal([0, 0], [[1.0, 0.95], [0.95, 1.0]], size=80)

    def nll(r, x):
        factor = np.linalg.cholesky(np.array([[1.0, 0.0], [0.0, 1.0]]) + r * np.eye(2)[::-1])
        z = np.linalg.solve(factor, x.T)
        return 0.5 * np.sum(z**2, axis=0) + np.sum(np.log(np.diagonal(factor)))

    fit = maximum_likelihood(nll, 0.0, x)
    assert fit.converged and 0.9 < fit.params < 0.99


# ---- bounds


def test_bounds():
    x, y = collinear()
    start = {"b": np.ones(3), "scale": 1.0}
    scale = {"scale": transforms.log}
    bounds = {"b": (None, [9.0, 9.0, 2.5])}
    fit = maximum_likelihood(regression, start, x[:, :3], y, transforms=scale, bounds=bounds)
    free = maximum_likelihood(
        lambda p, x, y: regression({**p, "b": np.append(p["b"], 2.5)}, x, y),
        {"b": np.ones(2), "scale": 1.0},
        x[:, :3],
        y,
        transforms=scale,
    )
    assert fit.params["b"][2] == 2.5 and fit.converged
    np.testing.assert_allclose(fit.params["b"][:2], free.params["b"], rtol=1e-8)
    with pytest.warns(RuntimeWarning, match=r"the data don't tell b\[2\].*bounds hold them"):
        errors = fit.se()["b"]
    np.testing.assert_allclose(errors[:2], free.se()["b"], rtol=1e-8)
    assert np.isnan(errors[2])
    with pytest.raises(ArgumentError, match="bounds hold parameters"):
        fit.confidence_interval("scale", method="profile")


def test_profiles_within_bounds():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 2))
    x[:, 1] += x[:, 0]
    y = x @ [0.35, 1.0] + rng.normal(size=100)

    def nll(b, x, y):
        return 0.5 * (y - x @ b) ** 2

    fit = maximum_likelihood(nll, np.ones(2), x, y, bounds=(0.0, None))
    first = fit.confidence_interval(0, method="profile")
    second = fit.confidence_interval(1, method="profile")

    def rise(value):
        free = (x[:, 0] @ (y - value * x[:, 1])) / (x[:, 0] @ x[:, 0])
        least = nll(np.array([max(free, 0.0), value]), x, y).sum()
        return 2 * (least - fit.nll) - CHI

    ends = [optimize.brentq(rise, fit.params[1], far) for far in (0.0, 3.0)]
    np.testing.assert_allclose(second, ends, rtol=1e-7)
    assert first[0] == pytest.approx(0.0, abs=1e-12)
    np.testing.assert_allclose(fit.profile(1, ends) - fit.nll, CHI / 2, rtol=1e-7)


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ({"scale": (0, None)}, "a parameter has bounds and Above"),
        ({"b": (1, 2)}, "init isn't within the bounds"),
        ({"c": (1, 2)}, "bounds has c, and the parameters are b, scale"),
    ],
)
def test_bounds_that_are_none(bounds, message):
    start = {"b": np.zeros(4), "scale": 1.0}
    with pytest.raises(ArgumentError, match=message):
        maximum_likelihood(
            regression, start, *collinear(), transforms={"scale": transforms.log}, bounds=bounds
        )


# ---- functions of the parameters, intervals and profiles


def test_delta_method():
    fit, n = fitted(), len(X)
    m, s = X.mean(), X.std()
    found = fit.delta(lambda params: params["mean"] / params["scale"])
    assert found.value == pytest.approx(m / s)
    assert found.se == pytest.approx(np.sqrt((1 + (m / s) ** 2 / 2) / n))
    tree = fit.delta(lambda params: {"twice": 2 * params["mean"], "log": np.log(params["scale"])})
    assert tree.se["twice"] == pytest.approx(2 * fit.se()["mean"])
    assert tree.se["log"] == pytest.approx(np.sqrt(1 / (2 * n)))
    assert tree.cov.shape == (2, 2)
    robust = fit.delta(lambda params: params["scale"] ** 2, kind="sandwich")
    assert robust.se == pytest.approx(2 * s * fit.se("sandwich")["scale"])


def rise(s):
    """2 (profile nll of the scale - nll)."""
    return 2 * len(X) * (np.log(s / X.std()) + 0.5 * ((X.std() / s) ** 2 - 1))


def test_profile_of_a_parameter():
    fit, grid = fitted(), np.array([2.0, 2.8, 3.0, 4.0, 8.0])
    np.testing.assert_allclose(2 * (fit.profile("scale", grid) - fit.nll), rise(grid), rtol=1e-8)


def test_profile_intervals():
    fit = fitted()
    ends = [optimize.brentq(lambda s: rise(s) - CHI, X.std(), far) for far in (1.0, 10.0)]
    found = fit.confidence_interval("scale", method="profile")
    np.testing.assert_allclose(found, ends, rtol=1e-7)
    squares = fit.confidence_interval(lambda params: params["scale"] ** 2, method="profile")
    np.testing.assert_allclose(squares, np.square(ends), rtol=1e-7)  # whatever it is measured by
    assert fit.confidence_interval("scale", 0.5, method="profile")[0] > found[0]


def test_profiles_of_entries():
    x, y = collinear()
    fit = maximum_likelihood(
        regression,
        {"b": np.zeros(3), "scale": 1.0},
        x[:, :3],
        y,
        transforms={"scale": transforms.log},
    )
    lower, upper = fit.confidence_interval(("b", 0), method="profile")
    # of a normal model: n log(1 + t^2 / (n - p)) is the quantile
    se = fit.se()["b"][0]
    half = se * np.sqrt(200 * np.expm1(CHI / 200))
    assert upper - fit.params["b"][0] == pytest.approx(half, rel=1e-6)
    assert fit.params["b"][0] - lower == pytest.approx(half, rel=1e-6)
    with pytest.raises(ArgumentError, match="b isn't one number"):
        fit.confidence_interval("b", method="profile")
    with pytest.raises(ArgumentError, match=r"'c' isn't a parameter; these are: b\[0\]"):
        fit.profile("c", [1.0])


def test_a_profile_that_ends_nowhere():
    """The likelihood never falls as far as the level asks."""
    fit = maximum_likelihood(lambda p: p**2 / (1 + p**2), 0.1)
    with pytest.warns(RuntimeWarning, match="an end of the interval of x wasn't found: it is NaN"):
        ends = fit.confidence_interval((), method="profile")
    assert np.isnan(ends).any()


def test_wald_intervals():
    fit = fitted()
    lower, upper = fit.confidence_interval(level=0.9)
    far = stats.norm.ppf(0.95)
    assert upper["mean"] == pytest.approx(fit.params["mean"] + far * fit.se()["mean"])
    assert lower["scale"] == pytest.approx(fit.params["scale"] - far * fit.se()["scale"])
    assert fit.confidence_interval("scale", 0.9) == pytest.approx((lower["scale"], upper["scale"]))
    for method in ("wald", "profile"):
        with pytest.raises(ArgumentError, match="level is between 0 and 1"):
            fit.confidence_interval("scale", 95, method=method)


def test_summary():
    assert repr(fitted().summary()) == SUMMARY
    assert "se (sandwich)" in fitted().summary(kind="sandwich")


SUMMARY = """\
       estimate  se (hessian)      z  P(>|z|)   2.5%  97.5%
mean      1.856       0.09266  20.03    0.000  1.674  2.038
scale      2.93       0.06552  44.72    0.000  2.802  3.059
nll 2494.03  AIC 4992.06  BIC 5001.87  rows 1000"""


def test_estimates_are_pickled():
    fit = fitted()
    again = pickle.loads(pickle.dumps(fit))
    assert isinstance(again, Estimate) and again.params == fit.params
    np.testing.assert_allclose(again.cov("sandwich"), fit.cov("sandwich"))


# ---- where it isn't known


def test_what_the_data_do_not_tell():
    x, y = collinear()
    fit = maximum_likelihood(
        regression, {"b": np.zeros(4), "scale": 1.0}, x, y, transforms={"scale": transforms.log}
    )
    known = np.linalg.inv(x[:, :3].T @ x[:, :3])
    assert fit.converged
    with pytest.warns(
        RuntimeWarning, match=r"the data don't tell b\[0\], b\[1\], b\[3\]: "
    ) as told:
        errors = fit.se()["b"]
    assert told[0].filename == __file__
    assert np.isnan(errors[[0, 1, 3]]).all()
    assert errors[2] == pytest.approx(fit.params["scale"] * np.sqrt(known[2, 2]))
    # but sums that they do tell have theirs
    found = fit.delta(lambda params: params["b"][0] + params["b"][3])
    assert found.se == pytest.approx(fit.params["scale"] * np.sqrt(known[0, 0]))
    with pytest.raises(ArgumentError, match=r"the data don't tell b\[0\]: it has no profile"):
        fit.profile(("b", 0), [1.0])


def test_what_the_data_do_not_tell_in_any_units():
    x, y = np.column_stack([X[:50], X[50:100], X[50:100]]), X[100:150]
    for units in ([1.0, 1e6, 1e-6], [1e-6, 1.0, 1e6], [1e6, 1e-6, 1.0]):
        fit = maximum_likelihood(lambda b, x, y: 0.5 * (y - x @ b) ** 2, np.zeros(3), x * units, y)
        with pytest.warns(RuntimeWarning, match=r"don't tell x\[1\], x\[2\]:"):
            errors = fit.se()
        known = np.linalg.inv(x[:, :2].T @ x[:, :2])
        assert errors[0] * units[0] == pytest.approx(np.sqrt(known[0, 0]), rel=1e-6)


def test_infinities_and_nan_at_the_start():
    bad = X.copy()
    bad[[3, 17]] = np.nan
    with pytest.raises(ArgumentError, match="nll is nan at init in rows 3, 17 of 1000"):
        maximum_likelihood(normal, {"mean": 0.0, "scale": 1.0}, bad)
    with pytest.raises(ArgumentError, match="nll is nan at init: begin elsewhere"):
        maximum_likelihood(total, {"mean": 0.0, "scale": 1.0}, bad)
    with pytest.raises(ArgumentError, match="the derivative of nll by scale is inf at init"):
        maximum_likelihood(
            lambda p: (p["mean"] - 1) ** 2 + np.arcsin(p["scale"]), {"mean": 0.0, "scale": 1.0}
        )
    with pytest.raises(ArgumentError, match=r"nll returned float64 of shape \(2, 2\)"):
        maximum_likelihood(lambda p: np.ones((2, 2)) * p, 1.0)


def separated(b, x, y):
    return np.logaddexp(0.0, -y * (b["slope"] * x + b["shift"]))


@pytest.mark.parametrize(
    ("nll", "init", "data", "message"),
    [
        (lambda p: -p["a"] + p["b"] ** 2, {"a": 0.0, "b": 1.0}, (), "it may have no minimum"),
        (lambda p: np.cos(p), 0.0, (), "the Hessian isn't positive definite"),
        (lambda p: np.log(np.maximum(p**2 - 0.1, 0.0)), 0.9, (), "nll is -inf where"),
        (
            separated,
            {"slope": 1.0, "shift": 0.0},
            (np.array([-2.0, -1.0, 1.0, 2.0]), np.array([-1.0, -1.0, 1.0, 1.0])),
            "the likelihood flattens out by shift, slope: it ends nowhere",
        ),
    ],
)
def test_likelihoods_without_a_maximum(nll, init, data, message):
    with pytest.warns(RuntimeWarning, match="no maximum likelihood was found: ") as told:
        fit = maximum_likelihood(nll, init, *data)
    assert not fit.converged and message in fit.message and told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert fit.message in fit.summary()


@pytest.mark.every(3)
@pytest.mark.parametrize(
    "law", ["norm", "logistic", "cauchy", "gumbel_l", "gumbel_r", "laplace", "hypsecant"]
)
def test_derivatives_of_probabilities_at_infinity(law):
    """Where the outermost cuts of a model of ordered answers are: they are 0, and some were NaN."""
    law = getattr(stats, law)

    def outside(x):
        return np.sum(law.cdf(np.array([-np.inf, 0.0, np.inf]) - x) ** 2)

    both = tapegrad.grad(outside)
    assert both(0.3) == pytest.approx(-2 * law.cdf(-0.3) * law.pdf(-0.3))
    slope = (both(0.3 + 1e-5) - both(0.3 - 1e-5)) / 2e-5
    assert tapegrad.hessian(outside)(0.3) == pytest.approx(slope, rel=1e-6)


@pytest.mark.every(2)
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("scale", [0.1, 10.0, 1e4])
def test_classes_that_can_be_separated_have_no_maximum(seed, scale):
    """However far the search went, to where rounding alone bends the likelihood or nothing does."""
    r = np.random.default_rng(seed)
    x = np.column_stack([np.ones(100), r.normal(size=(100, 3)) * scale])
    y = x @ r.normal(size=4) > 0

    def separated(b, x, y):
        return np.logaddexp(0, x @ b) - y * (x @ b)

    with pytest.warns(RuntimeWarning, match="no maximum likelihood was found"):
        assert not maximum_likelihood(separated, np.zeros(4), x, y).converged


@pytest.mark.every(2)
@pytest.mark.parametrize(
    ("seed", "method"), [(1053, "trust-ncg"), (1059, "trust-ncg"), (1109, "BFGS")]
)
def test_separated_classes_in_odd_units(seed, method):
    """Steps lead down by 1e-20, where curvatures stay as they are: one standard error away the
    likelihood is as high, or 1e12 higher."""
    r = np.random.default_rng(seed)
    rows, columns = r.integers(4, 300), r.integers(1, 5)
    x = r.normal(size=(rows, columns)) * 10 ** r.uniform(-3, 5)
    x = np.column_stack([np.ones(rows), x])
    y = x @ r.normal(size=columns + 1) > 0

    def separated(b, x, y):
        return np.logaddexp(0, x @ b) - y * (x @ b)

    start = np.zeros(columns + 1)
    with pytest.warns(RuntimeWarning, match="no maximum likelihood was found"):
        fit = maximum_likelihood(separated, start, x, y, method=method, tol=[None, 1e-14][seed % 2])
    assert not fit.converged


def test_data_without_rows():
    with pytest.raises(ArgumentError, match="no rows"):
        maximum_likelihood(lambda m, y: (y - m) ** 2, 0.0, np.zeros(0))


@pytest.mark.parametrize("bounds", [[(0, 1), (2, 3)], ((0, 1), (2, 3)), [(0, 1)] * 3])
def test_pairs_of_scipy_are_no_bounds(bounds):
    """Of two numbers they would be read as other bounds: lower (0, 1), upper (2, 3)."""
    init = np.array([0.5, 2.5, 1.0][: len(bounds)])
    with pytest.raises(ArgumentError, match=r"bounds of a parameter are \(lower, upper\)"):
        maximum_likelihood(lambda p: np.sum(p**2), init, bounds=bounds)
    with pytest.raises(ArgumentError, match=r"bounds are \(lower, upper\)"):
        optim.minimise(lambda p: np.sum(p**2), init, bounds=bounds)
    fit = optim.minimise(lambda p: np.sum(p**2), init, bounds=np.array(bounds, float).T)
    np.testing.assert_allclose(
        fit.x, [0, 2 if len(bounds) == 2 else 0, 0][: len(bounds)], atol=1e-8
    )


def test_a_sum_that_keeps_its_axis_tells_no_rows_apart():
    """Its score is 0 at the estimate, and so were the standard errors made of it."""
    y = np.random.default_rng(0).normal(2.0, 3.0, 200)

    def nll(p, y):
        return np.sum(0.5 * ((y - p["mean"]) / p["sd"]) ** 2 + np.log(p["sd"]), keepdims=True)

    fit = maximum_likelihood(nll, {"mean": 0.0, "sd": 1.0}, y, transforms={"sd": transforms.log})
    assert fit.se()["mean"] == pytest.approx(y.std() / np.sqrt(200), rel=1e-6)
    for kind in ("sandwich", "opg"):
        with pytest.raises(ArgumentError, match="one number for all of them"):
            fit.se(kind)
