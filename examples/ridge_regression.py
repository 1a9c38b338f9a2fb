"""Ridge regression on diabetes by gradient descent, held against scikit-learn's solution."""

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Ridge

from tapegrad import grad


def loss(w, X, y, alpha):
    """Squared errors and a penalty on large weights."""
    return np.sum((X @ w - y) ** 2) + alpha * np.sum(w**2)


def main(alpha=1.0, steps=300, rate=0.1):
    """Fit; returns the largest difference to scikit-learn's weights, relative to the largest."""
    X, y = load_diabetes(return_X_y=True)
    y = y - y.mean()  # the columns of X are centred already, so no intercept is needed
    w = np.zeros(X.shape[1])
    gradient = grad(loss)
    for _ in range(steps):
        w = w - rate * gradient(w, X, y, alpha)

    expected = Ridge(alpha=alpha).fit(X, y).coef_
    difference = np.max(np.abs(w - expected)) / np.max(np.abs(expected))
    print(f"weights {np.round(w, 1)}, {difference:.1e} from scikit-learn's")
    return float(difference)


if __name__ == "__main__":
    main()
