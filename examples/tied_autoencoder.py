"""An autoencoder whose decoder has the encoder's weights, transposed.

Each layer's matrix is used twice in the loss, on the way to a code of eight numbers and on the way
back; its gradient is the sum of both. The codes are held against as many principal components,
which are the best that a linear map can do.
"""

from itertools import pairwise
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from tapegrad import nn, optim


def start(sizes, rng):
    """For each layer its weights, and the biases of both ways."""
    return [
        (rng.normal(0.0, np.sqrt(1 / n), (n, m)), np.zeros(m), np.zeros(n))
        for n, m in pairwise(sizes)
    ]


def encode(layers, images):
    """The codes of images."""
    *hidden, (weights, bias, _) = layers
    for W, b, _ in hidden:
        images = np.tanh(images @ W + b)
    return images @ weights + bias


def scores(layers, codes):
    """What `nn.sigmoid` makes images of."""
    (weights, _, bias), *hidden = layers
    for W, _, b in reversed(hidden):
        codes = np.tanh(codes @ W.T + b)
    return codes @ weights.T + bias


def loss(layers, images):
    """Mean cross-entropy of the images through their codes, with a little weight decay."""
    error = nn.binary_cross_entropy_with_logits(scores(layers, encode(layers, images)), images)
    return error + 1e-5 * sum(np.sum(W**2) for W, _, _ in layers)


def principal(images, others, count):
    """The others through so many principal components of the images."""
    mean = images.mean(axis=0)
    directions = np.linalg.svd(images - mean, full_matrices=False)[2][:count]
    return (others - mean) @ directions.T @ directions + mean


def draw(history, layers, rows, output):
    """The loss over the epochs, the weights of the first layer, and images with their kin."""
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    left, middle, right = figure.subfigures(1, 3, width_ratios=(1.1, 1, 1.4))
    axes = left.subplots()
    for name, label in (("loss", "in training"), ("validation", "other images")):
        axes.plot([e["epoch"] for e in history], [e[name] for e in history], label=label)
    axes.set(xlabel="epoch", title="loss", ylim=(0.2, None))
    axes.legend()
    middle.suptitle("first layer")
    for place, picture in zip(middle.subplots(6, 6).flat, layers[0][0].T, strict=False):
        place.imshow(picture.reshape(8, 8), cmap="RdBu")
    for place in middle.axes:
        place.set_axis_off()
    right.suptitle("images, by codes, by components")
    for place, picture in zip(right.subplots(3, 5).flat, np.concatenate(rows), strict=True):
        place.imshow(picture.reshape(8, 8), cmap="gray_r", vmin=0, vmax=1)
        place.set_axis_off()
    figure.savefig(output, dpi=100)


def main(output=Path("tied_autoencoder.png"), epochs=200):
    """Train, and draw; returns the mean squared errors of images that weren't trained on, through
    their codes and through principal components."""
    images = load_digits().data / 16.0
    x, x_test = train_test_split(images, test_size=0.25, random_state=0)
    rate = optim.cosine(5e-3, epochs * -(-len(x) // 64))
    fitted = optim.fit(
        loss,
        start([64, 36, 16, 8], np.random.default_rng(0)),
        x,
        optim.adam(rate),
        epochs=epochs,
        batch_size=64,
        validation=x_test,
    )
    layers = fitted.params
    found = nn.sigmoid(scores(layers, encode(layers, x_test))), principal(x, x_test, 8)
    errors = [np.mean((x_test - again) ** 2) for again in found]
    print(f"mean squared errors {errors[0]:.4f}, and {errors[1]:.4f} of principal components")
    draw(fitted.history, layers, [part[:5] for part in (x_test, *found)], output)
    return errors


if __name__ == "__main__":
    main()
