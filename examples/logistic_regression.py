"""Logistic regression on breast_cancer: SciPy minimises, tapegrad gives the gradient.

`value_and_grad(f)` returns what `scipy.optimize.minimize(..., jac=True)` wants to be given.
"""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy.optimize import minimize
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from tapegrad import value_and_grad


def loss(w, X, y):
    """Negative log-likelihood of labels 0 and 1, and a ridge penalty (w[0] is the intercept)."""
    z = w[0] + X @ w[1:]
    return np.sum(np.logaddexp(0.0, z) - y * z) + 0.5 * np.sum(w[1:] ** 2)


def draw(scores, labels, output):
    """How sure the model is of each tumour that it hasn't seen, by what the tumour is."""
    figure = Figure(figsize=(6, 3.4), layout="constrained")
    axes = figure.subplots()
    chances = 1 / (1 + np.exp(-scores))
    kinds = [chances[labels == 0], chances[labels == 1]]
    axes.hist(kinds, bins=10, label=["malignant", "benign"])
    axes.set(xlabel="chance of being benign, by the model", ylabel="tumours of the test part")
    axes.set(yscale="symlog", title="Logistic regression")
    axes.legend()
    figure.savefig(output, dpi=100)


def main(output=Path("logistic_regression.png")):
    """Fit on three quarters of the data, and draw; returns the fit and its accuracy on the rest."""
    X, y = load_breast_cancer(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, random_state=0, stratify=y)
    scaler = StandardScaler().fit(X)
    X, X_test = scaler.transform(X), scaler.transform(X_test)

    start = np.zeros(1 + X.shape[1])
    fit = minimize(value_and_grad(loss), start, args=(X, y), jac=True, method="BFGS")
    scores = fit.x[0] + X_test @ fit.x[1:]
    accuracy = np.mean((scores > 0) == y_test)
    print(f"{fit.nit} iterations, loss {fit.fun:.3f}, right on {accuracy:.1%} of the test part")
    draw(scores, y_test, output)
    return fit, float(accuracy)


if __name__ == "__main__":
    main()
