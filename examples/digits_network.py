"""A network of any depth on handwritten digits, trained with Adam.

The parameters are a list of (weights, bias) pairs. Gradients mirror them, so whatever maps over
trees of arrays, here `optree.tree_map`, writes the optimiser in three lines.
"""

from itertools import pairwise
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from optree import tree_map
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from tapegrad import value_and_grad


def network(layers, images):
    """Log-probabilities of the ten digits."""
    *hidden, (weights, bias) = layers
    for W, b in hidden:
        images = np.tanh(images @ W + b)
    scores = images @ weights + bias
    scores = scores - scores.max(axis=1, keepdims=True)
    return scores - np.log(np.sum(np.exp(scores), axis=1, keepdims=True))


def loss(layers, images, one_hot):
    """Mean cross-entropy, with a little weight decay."""
    decay = sum(np.sum(W**2) for W, _ in layers)
    return -np.sum(network(layers, images) * one_hot) / len(images) + 1e-4 * decay


def adam(f, params, *args, steps=200, rate=0.01, decay1=0.9, decay2=0.999, epsilon=1e-8):
    """Minimise f(params, *args) over params; returns the params and the value at each step."""
    df = value_and_grad(f)
    mean, square = tree_map(np.zeros_like, params), tree_map(np.zeros_like, params)
    values = []
    for step in range(1, steps + 1):
        value, grads = df(params, *args)
        mean = tree_map(lambda m, g: decay1 * m + (1 - decay1) * g, mean, grads)
        square = tree_map(lambda s, g: decay2 * s + (1 - decay2) * g**2, square, grads)
        # Both averages start from zero; `stretch` undoes the bias of the first steps.
        stretch = rate * np.sqrt(1 - decay2**step) / (1 - decay1**step)
        params = tree_map(
            lambda p, m, s, r=stretch: p - r * m / (np.sqrt(s) + epsilon), params, mean, square
        )
        values.append(float(value))
    return params, values


def draw(values, images, guesses, labels, output):
    """The loss at each step; and digits that the network hasn't seen, with its guesses."""
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    left, right = figure.subfigures(1, 2)
    axes = left.subplots()
    axes.semilogy(values)
    axes.set(xlabel="step", ylabel="loss", title="Adam")
    wrong = np.flatnonzero(guesses != labels)
    shown = [*wrong[:5], *np.flatnonzero(guesses == labels)][:15]
    for place, k in zip(right.subplots(3, 5).flat, shown, strict=True):
        place.imshow(images[k].reshape(8, 8), cmap="gray_r")
        color = "black" if guesses[k] == labels[k] else "tab:red"
        place.set_title(str(guesses[k]), color=color, fontsize="small")
        place.set_axis_off()
    figure.savefig(output, dpi=100)


def main(output=Path("digits_network.png")):
    """Train a 64-48-32-10 network, and draw; returns its accuracy on images it has never seen."""
    images, labels = load_digits(return_X_y=True)
    x, x_test, y, y_test = train_test_split(
        images / 16.0, labels, test_size=0.25, random_state=0, stratify=labels
    )
    rng = np.random.default_rng(0)
    sizes = [64, 48, 32, 10]
    layers = [(rng.normal(0.0, np.sqrt(1.0 / n), (n, m)), np.zeros(m)) for n, m in pairwise(sizes)]
    layers, values = adam(loss, layers, x, np.eye(10)[y])
    guesses = network(layers, x_test).argmax(axis=1)
    accuracy = np.mean(guesses == y_test)
    print(f"loss {values[0]:.3f} -> {values[-1]:.3f}, right on {accuracy:.1%} of the test images")
    draw(values, x_test, guesses, y_test, output)
    return float(accuracy)


if __name__ == "__main__":
    main()
