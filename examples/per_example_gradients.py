"""What each example does to a model: a gradient for each, by `vmap(grad(loss))`.

A regression learns handwritten digits of which some have a wrong label. By the implicit function
theorem, leaving out the example i changes the parameters by H^-1 g_i, with its gradient g_i and the
Hessian H of the whole loss, and so the loss of the test set by its own gradient times that (R. Cook
and S. Weisberg, 1982; P. Koh and P. Liang, 2017). Refits tell whether it does. The examples whose
absence would help most are those with wrong labels.
"""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize
from scipy.special import logsumexp
from sklearn.datasets import load_digits

from tapegrad import grad, hessian, value_and_grad, vmap

PIXELS = 16  # of pictures at half their resolution
DECAY = 1.0


def loss(weights, image, label):
    """Of pictures, or of one: minus the logarithm of the probability of labels, unit vectors."""
    scores = image @ weights.reshape(PIXELS + 1, 10)
    return logsumexp(scores, axis=-1) - np.sum(scores * label, axis=-1)


def total(weights, images, labels, counts):
    """Of all of them, each as often as it counts, with weight decay."""
    return counts @ loss(weights, images, labels) + DECAY * np.sum(weights**2) / 2


def digits(rng, n, wrong):
    """Pictures and labels to learn from, the first few labels wrong, and others to test."""
    data = load_digits()
    order = rng.permutation(len(data.target))
    small = data.images.reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4)).reshape(-1, PIXELS) / 16
    images = np.column_stack([small, np.ones(len(small))])[order]
    labels = data.target[order]
    learnt = labels[:n].copy()
    learnt[:wrong] = (learnt[:wrong] + rng.integers(1, 10, wrong)) % 10
    units = np.eye(10)
    return data.images[order], images[:n], units[learnt], images[n:], units[labels[n:]]


def fit(images, labels):
    start = np.zeros((PIXELS + 1) * 10)
    ones = np.ones(len(labels))
    derivatives = value_and_grad(total)
    options = {"maxiter": 2000, "ftol": 1e-14, "gtol": 1e-8}
    arguments = images, labels, ones
    return minimize(derivatives, start, arguments, jac=True, options=options, method="L-BFGS-B").x


def refit(weights, factor, images, labels, without):
    """Newton's method with the old Hessian, which is near that of one example less."""
    counts = np.ones(len(labels))
    counts[without] = 0.0
    derivative = grad(total)
    for _ in range(12):
        weights = weights - cho_solve(factor, derivative(weights, images, labels, counts))
    return weights


def draw(pictures, labels, helped, guess, truth, output):
    figure = Figure(figsize=(8, 3), layout="constrained")
    left, right = figure.subfigures(1, 2)
    axes = left.subplots()
    axes.plot(truth, guess, "o")
    axes.axline((0, 0), slope=1, color="k", lw=0.5)
    axes.set(xlabel="by fitting again", ylabel="by its gradient", title="Test loss without one")
    panels = right.subplots(2, 4).ravel()
    right.suptitle("Labels that do most harm")
    for panel, k in zip(panels, np.argsort(helped)[:8], strict=True):
        panel.imshow(pictures[k], cmap="gray_r")
        panel.set(title=str(np.argmax(labels[k])), xticks=[], yticks=[])
    figure.savefig(output, dpi=90)


def main(output=Path("per_example_gradients.png"), n=500, wrong=40, refits=12):
    """Fit, tell, refit, draw; the correlation of told and true changes, and how many of the most
    harmful examples have a wrong label."""
    pictures, images, labels, others, others_labels = digits(np.random.default_rng(0), n, wrong)
    weights = fit(images, labels)
    ones = np.ones(n)
    factor = cho_factor(hessian(total)(weights, images, labels, ones))
    each = vmap(grad(loss), in_axes=(None, 0, 0))(weights, images, labels)  # a gradient a row
    test = vmap(grad(loss), in_axes=(None, 0, 0))(weights, others, others_labels).mean(axis=0)
    change = each @ cho_solve(factor, test)  # of the test loss, were the example left out
    chosen = np.argsort(change)[np.linspace(0, n - 1, refits).astype(int)]
    again = [refit(weights, factor, images, labels, k) for k in chosen]
    before = loss(weights, others, others_labels).mean()
    truth = np.array([loss(w, others, others_labels).mean() - before for w in again])
    correlation = np.corrcoef(truth, change[chosen])[0, 1]
    found = np.sum(np.argsort(change)[:wrong] < wrong)
    print(f"told and true changes of the test loss: correlation {correlation:.4f}")
    print(f"of the {wrong} most harmful examples {found} have a wrong label")
    draw(pictures, labels, change, change[chosen], truth, output)
    return correlation, int(found)


if __name__ == "__main__":
    main()
