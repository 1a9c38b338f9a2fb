"""Ridge regression on diabetes by gradient descent, held against scikit-learn's solution."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Ridge

from tapegrad import grad


def loss(w, X, y, alpha):
    """Squared errors and a penalty on large weights."""
    return np.sum((X @ w - y) ** 2) + alpha * np.sum(w**2)


def draw(path, expected, names, output):
    """The weights at each step, and scikit-learn's at the end."""
    figure = Figure(figsize=(7, 3.6), layout="constrained")
    axes = figure.subplots()
    for weights, end, name in zip(path.T, expected, names, strict=True):
        (line,) = axes.plot(weights, label=name)
        axes.plot(len(path) - 1, end, "o", color=line.get_color(), markersize=5)
    axes.set(xscale="symlog", xlabel="step", ylabel="weight")
    axes.set(title="Gradient descent, and the closed form (dots)")
    axes.legend(fontsize="x-small", ncols=2, loc="upper left", bbox_to_anchor=(1, 1))
    figure.savefig(output, dpi=100)


def main(output=Path("ridge_regression.png"), alpha=1.0, steps=300, rate=0.1):
    """Fit, and draw; returns the largest difference to scikit-learn's weights, relative to the
    largest."""
    data = load_diabetes()
    X, y = data.data, data.target
    y = y - y.mean()  # the columns of X are centred already, so no intercept is needed
    w = np.zeros(X.shape[1])
    gradient = grad(loss)
    path = [w]
    for _ in range(steps):
        w = w - rate * gradient(w, X, y, alpha)
        path.append(w)

    expected = Ridge(alpha=alpha).fit(X, y).coef_
    difference = np.max(np.abs(w - expected)) / np.max(np.abs(expected))
    print(f"weights {np.round(w, 1)}, {difference:.1e} from scikit-learn's")
    draw(np.stack(path), expected, data.feature_names, output)
    return float(difference)


if __name__ == "__main__":
    main()
