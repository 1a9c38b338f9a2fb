"""A variational autoencoder of handwritten digits, by plain draws of NumPy's generator.

The encoder gives each image a normal distribution over eight numbers, the decoder makes an image of
eight numbers. The loss draws them with `rng.normal`: each step of the training draws anew, and the
gradient goes through the draws to the means and deviations. What the decoder makes of draws of the
standard normal distribution are digits that nobody wrote.
"""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from tapegrad import jit, nn, optim
from tapegrad.nn import models

HIDDEN = 8  # numbers of a code
ENCODER = models.mlp(64, [96, 96, 2 * HIDDEN], "silu", classifier=True)
DECODER = models.mlp(HIDDEN, [96, 96, 64], "silu", classifier=True)


def encode(params, images):
    """Means of the hidden numbers, and the logarithms of their deviations."""
    return np.split(ENCODER(params["encoder"], images), 2, axis=1)


def decode(params, hidden):
    """Images of numbers between 0 and 1."""
    return nn.sigmoid(DECODER(params["decoder"], hidden))


def loss(params, images, rng):
    """Minus the evidence bound, a mean over images, up to a constant. A pixel says how many of 16
    points are black, so it costs 16 times what a point does."""
    mean, log_deviation = encode(params, images)
    hidden = mean + np.exp(log_deviation) * rng.normal(size=mean.shape)
    scores = DECODER(params["decoder"], hidden)
    error = 16 * nn.binary_cross_entropy_with_logits(scores, images, reduction="sum")
    distance = 0.5 * np.sum(mean**2 + np.exp(2 * log_deviation) - 2 * log_deviation - 1)
    return (error + distance) / len(images)


def draw(history, images, again, samples, output):
    """The bound over the epochs; images, what is made of their codes, and decoded draws."""
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    left, middle, right = figure.subfigures(1, 3, width_ratios=(1.2, 1, 1))
    axes = left.subplots()
    for name, label in (("loss", "in training"), ("test", "other images")):
        axes.plot([e["epoch"] for e in history], [e[name] for e in history], label=label)
    axes.set(xlabel="epoch", title="nats an image")
    axes.legend()
    middle.suptitle("images, and through their codes")
    rows = np.concatenate([images.reshape(3, 6, 64), again.reshape(3, 6, 64)], axis=1)
    right.suptitle("decoded draws")
    for part, pictures in ((middle, rows.reshape(36, 64)), (right, samples)):
        for place, picture in zip(part.subplots(6, 6).flat, pictures, strict=True):
            place.imshow(picture.reshape(8, 8), cmap="gray_r", vmin=0, vmax=1)
            place.set_axis_off()
    figure.savefig(output, dpi=100)


def main(output=Path("variational_autoencoder.png"), epochs=100):
    """Train, and draw; returns the mean squared error of images through their codes, and that of
    the mean image, both of images that weren't trained on."""
    images = load_digits().data / 16.0
    x, x_test = train_test_split(images, test_size=0.25, random_state=0)
    rng = np.random.default_rng(0)
    params = {"encoder": ENCODER.init(rng, float), "decoder": DECODER.init(rng, float)}
    test_loss = jit(loss)

    def after(entry, params):
        entry["test"] = float(test_loss(params, x_test, rng))

    rate = optim.cosine(5e-3, epochs * -(-len(x) // 64))
    fitted = optim.fit(
        loss, params, x, optim.adam(rate), epochs=epochs, batch_size=64, callback=after
    )
    mean, _ = encode(fitted.params, x_test)
    again = decode(fitted.params, mean)
    samples = decode(fitted.params, rng.normal(size=(36, HIDDEN)))
    errors = [np.mean((x_test - found) ** 2) for found in (again, x.mean(axis=0))]
    last = fitted.history[-1]
    print(f"{last['loss']:.1f} nats an image, {last['test']:.1f} of others; squared errors of")
    print(f"{errors[0]:.4f} through the codes, {errors[1]:.4f} of the mean image")
    draw(fitted.history, x_test[:18], again[:18], samples, output)
    return errors


if __name__ == "__main__":
    main()
