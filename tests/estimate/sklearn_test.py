"""Estimators by scikit-learn's conventions: its own checks, and its own models beside ours."""

import pickle

import numpy as np
import pytest

from tapegrad import transforms
from tapegrad.errors import ArgumentError

pytest.importorskip("sklearn")

from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from tapegrad.estimate.sklearn import Classifier, Regressor


def normal(params, X, y):
    z = (y - X @ params["w"] - params["b"]) / params["scale"]
    return 0.5 * z**2 + np.log(params["scale"])


def line(params, X):
    return X @ params["w"] + params["b"]


def start(X, y):
    return {"w": np.zeros(X.shape[1]), "b": np.mean(y), "scale": np.std(y) + 1e-3}


def weak(params):
    return 1e-3 * np.sum(params["w"] ** 2) + 1e-3 / params["scale"]


def scores(params, X):
    return X @ params["W"] + params["b"]


def cross_entropy(params, X, y):
    s = scores(params, X)
    top = np.max(s, axis=1, keepdims=True)
    return np.log(np.sum(np.exp(s - top), axis=1)) + top[:, 0] - s[np.arange(len(y)), y]


def softmax(params, X):
    s = scores(params, X)
    e = np.exp(s - np.max(s, axis=1, keepdims=True))
    return e / np.sum(e, axis=1, keepdims=True)


def zeros(X, y):
    return {"W": np.zeros((X.shape[1], y.max() + 1)), "b": np.zeros(y.max() + 1)}


def shrunk(params):
    return 0.5 * np.sum(params["W"] ** 2) + 0.5 * np.sum(params["b"] ** 2)


def regressor(**options):
    return Regressor(normal, line, start, transforms={"scale": transforms.log}, **options)


@pytest.mark.every(2)
@pytest.mark.filterwarnings("ignore")  # of its checks
@pytest.mark.parametrize(
    "estimator",
    [regressor(penalty=weak), Classifier(cross_entropy, softmax, zeros, penalty=shrunk)],
    ids=["Regressor", "Classifier"],
)
def test_scikit_learns_checks(estimator):
    checks = check_estimator(estimator, on_skip=None)
    assert sum(check["status"] == "passed" for check in checks) > 45


def rows(n=150):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    return X, X @ [1.0, -2.0, 0.5] + 0.3 + rng.normal(size=n)


def test_a_regression():
    X, y = rows()
    model = regressor().fit(X, y)
    design = np.column_stack([X, np.ones(len(X))])
    found = np.linalg.lstsq(design, y, rcond=None)[0]
    np.testing.assert_allclose(model.params_["w"], found[:3], rtol=1e-9)
    np.testing.assert_allclose(model.predict(X), design @ found, rtol=1e-9)
    errors = np.sqrt(np.diagonal(np.linalg.inv(design.T @ design))) * model.params_["scale"]
    np.testing.assert_allclose(model.estimate_.se()["w"], errors[:3], rtol=1e-8)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_a_ridge():
    """The penalty is of rows with a scale of 1."""
    X, y = rows()
    loss = Regressor(
        lambda p, X, y: 0.5 * (y - line(p, X)) ** 2,
        line,
        {"w": np.zeros(3), "b": 0.0},
        penalty=lambda p: 0.5 * 7.0 * np.sum(p["w"] ** 2),
    ).fit(X, y)
    np.testing.assert_allclose(loss.params_["w"], Ridge(7.0).fit(X, y).coef_, rtol=1e-8)


@pytest.mark.every(2)
@pytest.mark.parametrize("classes", [2, 3])
def test_a_classification(classes):
    X, y = rows()
    labels = np.array(["no", "perhaps", "yes"])[np.digitize(y, [-0.5, 1.0][: classes - 1])]
    penalty = lambda p: 0.5 * np.sum(p["W"] ** 2) + 1e-9 * np.sum(p["b"] ** 2)  # noqa: E731
    model = Classifier(cross_entropy, softmax, zeros, penalty=penalty).fit(X, labels)
    assert list(model.classes_) == sorted(set(labels))
    if classes == 3:
        theirs = LogisticRegression(C=1.0, tol=1e-10, max_iter=1000).fit(X, labels)
        np.testing.assert_allclose(
            model.predict_proba(X), theirs.predict_proba(X), rtol=1e-4, atol=1e-6
        )
    assert np.mean(model.predict(X) == labels) > 0.75
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)


def test_two_classes_by_one_probability():
    X, y = rows()
    model = Classifier(
        lambda w, X, y: np.logaddexp(0.0, (1 - 2 * y) * (X @ w)),
        lambda w, X: 1.0 / (1.0 + np.exp(-(X @ w))),
        np.zeros(3),
    ).fit(X, y > 0)
    theirs = LogisticRegression(C=np.inf, fit_intercept=False, tol=1e-10).fit(X, y > 0)
    np.testing.assert_allclose(model.predict_proba(X), theirs.predict_proba(X), atol=1e-5)
    assert set(model.predict(X)) == {False, True}


def test_where_scikit_learn_takes_them():
    X, y = rows()
    pipeline = make_pipeline(StandardScaler(), regressor())
    found = cross_val_predict(pipeline, X, y, cv=3)
    assert np.corrcoef(found, y)[0, 1] > 0.8
    grid = GridSearchCV(regressor(), {"penalty": [None, weak]}, cv=3).fit(X, y)
    assert grid.best_estimator_.n_features_in_ == 3
    assert "method='BFGS'" in repr(regressor(method="BFGS"))


def test_a_loss_that_is_nan_says_where():
    X, y = rows(20)
    with pytest.raises(ArgumentError, match="nll is nan at init in row 4 of 20"):
        Regressor(lambda p, X, y: np.where(y == y[4], np.nan, y * p), line, 1.0).fit(X, y)


def test_predictions_of_another_shape():
    """They would be other labels, or be broadcast in a score."""
    x = np.random.default_rng(0).normal(size=(30, 2))
    y = np.arange(30) % 3

    def loss(params, X, y):
        return (X @ params - y) ** 2

    three = Classifier(loss, lambda params, X: np.exp(X @ params), np.zeros(2)).fit(x, y)
    two = Classifier(loss, lambda params, X: np.ones((len(X), 3)), np.zeros(2)).fit(x, y > 0)
    for model, shape in (
        (three, r"\(30,\), and there are 3"),
        (two, r"\(30, 3\), and there are 2"),
    ):
        for ask in (model.predict, model.predict_proba):
            with pytest.raises(ValueError, match=shape):
                ask(x)
    mean = Regressor(loss, lambda params, X: np.mean(X @ params), np.zeros(2)).fit(x, 1.0 * y)
    with pytest.raises(ValueError, match="one number for each"):
        mean.predict(x)
