"""Regressors and classifiers with scikit-learn's conventions, made of a likelihood.

    from tapegrad.estimate.sklearn import Regressor

    model = Regressor(loss, prediction, init, transforms={"scale": log}).fit(X, y)
    model.params_, model.estimate_.se(), model.predict(X)

They work wherever scikit-learn's estimators do: pipelines, grid searches, cross-validation. This
module needs scikit-learn; `maximum_likelihood` itself doesn't.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np

from tapegrad.estimate.estimates import Estimate, maximum_likelihood

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise ImportError(
        "tapegrad.estimate.sklearn needs scikit-learn: pip install 'scikit-learn>=1.6'"
    ) from error

__all__ = ["Classifier", "Regressor"]


def __dir__() -> list[str]:
    return __all__


class _Fitted(BaseEstimator):
    """The common part of `Regressor` and `Classifier`."""

    params_: Any
    estimate_: Estimate

    def __init__(
        self,
        loss: Callable[..., Any],
        prediction: Callable[..., Any],
        init: Any,
        *,
        transforms: Any = None,
        bounds: Any = None,
        penalty: Any = None,
        method: str = "L-BFGS-B",
        tol: float | None = None,
        max_iter: int | None = None,
    ) -> None:
        self.loss = loss
        self.prediction = prediction
        self.init = init
        self.transforms = transforms
        self.bounds = bounds
        self.penalty = penalty
        self.method = method
        self.tol = tol
        self.max_iter = max_iter

    def _fit(self, X: np.ndarray, y: np.ndarray) -> Self:
        init = self.init(X, y) if callable(self.init) else self.init
        options = {} if self.max_iter is None else {"options": {"maxiter": self.max_iter}}
        self.estimate_ = maximum_likelihood(
            self.loss,
            init,
            X,
            y,
            transforms=self.transforms,
            bounds=self.bounds,
            penalty=self.penalty,
            method=self.method,
            tol=self.tol,
            **options,
        )
        self.params_ = self.estimate_.params
        self.n_iter_ = max(1, int(self.estimate_.result.nit))
        return self

    def _checked(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        return validate_data(self, X, dtype=np.float64, reset=False)


class Regressor(RegressorMixin, _Fitted):
    """A regressor defined by a loss and a prediction, functions of NumPy arrays.

    Parameters
    ----------
    loss : `loss(params, X, y)`, the negative log-likelihood: an array with one number for each row,
        or their sum. `X` is float64[n, k], `y` float64[n].
    prediction : `prediction(params, X)`, the result of `predict`.
    init : the start: a tree of parameters, or a function `init(X, y)` that makes one.
    transforms, bounds, penalty, method : as in `maximum_likelihood`.
    tol, max_iter : options of SciPy's minimiser.

    Attributes
    ----------
    params_ : the fitted parameters, a tree.
    estimate_ : the `Estimate`, with standard errors and more. It keeps the data.
    n_iter_, n_features_in_, feature_names_in_ : as in all estimators of scikit-learn.
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the parameters."""
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        return self._fit(X, np.asarray(y, float))

    def predict(self, X: Any) -> np.ndarray:
        """The prediction for each row."""
        X = self._checked(X)
        found = np.asarray(self.prediction(self.params_, X))
        if found.shape != (len(X),):
            raise ValueError(
                f"the prediction of {len(X)} rows has shape {found.shape}: it must be one number "
                "for each"
            )
        return found


class Classifier(ClassifierMixin, _Fitted):
    """A classifier defined by a loss and a prediction, functions of NumPy arrays.

    Parameters
    ----------
    loss : `loss(params, X, y)`, the negative log-likelihood: an array with one number for each row,
        or their sum. `X` is float64[n, k], `y` int64[n] with the number of each row's class in
        `classes_`.
    prediction : `prediction(params, X)`, the probability of each class, float64[n, classes], or,
        of two classes, the probability of the second, float64[n].
    init, transforms, bounds, penalty, method, tol, max_iter : as in `Regressor`.

    Attributes
    ----------
    classes_ : the labels, sorted.
    params_, estimate_, n_iter_, n_features_in_, feature_names_in_ : as in `Regressor`.
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the parameters."""
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, numbers = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"Classifier needs two classes, and there is 1 class: {self.classes_}")
        return self._fit(X, numbers)

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class, for each row: float64[n, classes]."""
        X = self._checked(X)
        found, count = np.asarray(self.prediction(self.params_, X)), len(self.classes_)
        if found.ndim == 1 and count == 2:
            found = np.stack([1.0 - found, found], axis=1)
        if found.shape != (len(X), count):
            raise ValueError(
                f"the prediction of {len(X)} rows has shape {found.shape}, and there are {count} "
                f"classes: it must be {(len(X), count)}"
            )
        return found

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row."""
        probabilities = self.predict_proba(X)
        return self.classes_[np.argmax(probabilities, axis=1)]
