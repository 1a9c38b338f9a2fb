"""The main job: a network in plain NumPy learns handwritten digits.

Read `network`, `loss` and `train` first: they are all that a user of tapegrad would write.
"""

import time
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from tqdm import tqdm

from tapegrad import simplegrad, trace, value_and_grad

Array = np.ndarray
Params = dict[str, Array]

HIDDEN = 64
EPOCHS = 60
BATCH = 64
RATE = 0.3


def network(params: Params, images: Array) -> Array:
    """A score for every image and class, through one layer of rectified units."""
    hidden = np.maximum(images @ params["W1"] + params["b1"], 0.0)
    return hidden @ params["W2"] + params["b2"]


def loss(params: Params, images: Array, labels: Array) -> Array:
    """Cross-entropy: how much the labels surprise the network, on average."""
    scores = network(params, images)
    scores = scores - scores.max(axis=1, keepdims=True)
    log_probs = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    return -np.mean(log_probs[np.arange(len(labels)), labels])


# Left to itself, tapegrad compiles once playing the tape has cost as much as compiling would. This
# training is about that short, so the demo asks for it: its report must not depend on the clock.
dloss = value_and_grad(loss, compile="always")


def train(params: Params, images: Array, labels: Array, rng: np.random.Generator) -> list[float]:
    """Gradient descent on shuffled batches; moves `params` in place, returns every loss."""
    losses = []
    for _ in tqdm(range(EPOCHS), desc="training", unit="epoch"):
        # The last images of a shuffle sit out when they do not fill a batch: one shape, one trace.
        order = rng.permutation(len(images))[: len(images) // BATCH * BATCH]
        for batch in order.reshape(-1, BATCH):
            value, gradients = dloss(params, images[batch], labels[batch])
            for name in params:
                params[name] -= RATE * gradients[name]
            losses.append(float(value))
    return losses


def initial_params(inputs: int, classes: int, rng: np.random.Generator) -> Params:
    """Random weights that keep the scale of what flows through rectified units."""
    return {
        "W1": rng.normal(0.0, np.sqrt(2.0 / inputs), (inputs, HIDDEN)),
        "b1": np.zeros(HIDDEN),
        "W2": rng.normal(0.0, np.sqrt(2.0 / HIDDEN), (HIDDEN, classes)),
        "b2": np.zeros(classes),
    }


def logistic(w: Array, x: Array) -> Array:
    """A function small enough to show its whole tape."""
    return np.sum(1.0 / (1.0 + np.exp(-w * x)))


@dataclass(frozen=True)
class Result:
    """What the demo found, for those who call it from Python."""

    accuracy: float
    losses: list[float]
    plot: Path


def run(output: Path) -> Result:
    """Do everything that `tapegrad demo` does; the plot of the loss goes to `output`."""
    show_inside()

    click.secho("\nTraining a network on handwritten digits", bold=True)
    images, labels = load_digits(return_X_y=True)
    train_images, test_images, train_labels, test_labels = train_test_split(
        images / 16.0, labels, test_size=0.25, random_state=0, stratify=labels
    )
    rng = np.random.default_rng(0)
    params = initial_params(images.shape[1], labels.max() + 1, rng)
    start = time.perf_counter()
    losses = train(params, train_images, train_labels, rng)
    seconds = time.perf_counter() - start

    guesses = network(params, test_images).argmax(axis=1)
    accuracy = float(np.mean(guesses == test_labels))
    cache = dloss.cache_info()
    click.echo(f"{len(losses)} steps in {seconds:.1f} s, loss {losses[0]:.3f} -> {losses[-1]:.3f}")
    click.echo(f"right on {accuracy:.1%} of {len(test_labels)} images that it has never seen")
    click.echo(
        f"the loss was traced {times(cache.traces)}, compiled {times(cache.compiles)} and found "
        f"on disk {times(cache.loads)}; {cache.hits} calls found their code ready"
    )
    plot_losses(losses, output)
    click.echo(f"the loss curve is in {output.resolve()}")
    return Result(accuracy, losses, output)


def show_inside() -> None:
    """Print what tapegrad makes of `logistic`: its tape, then the source of its gradient."""
    w, x = np.array([0.5, -1.0, 2.0]), np.array([1.0, 2.0, 3.0])
    value, tape = trace(logistic, w, x)
    click.secho(f"A small function, {logistic.__name__}(w, x) = {value:.4f}, on tape", bold=True)
    click.echo(str(tape))
    click.secho("\nThe source generated for its value and gradients", bold=True)
    click.echo(simplegrad(logistic, w, x).source)


def plot_losses(losses: list[float], output: Path) -> None:
    """Draw every batch's loss faintly, and each epoch's mean on top."""
    steps = len(losses) // EPOCHS
    middles = np.arange(EPOCHS) + 0.5
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot(np.arange(1, len(losses) + 1) / steps, losses, color="tab:blue", alpha=0.25)
    axes.plot(middles, np.reshape(losses, (EPOCHS, steps)).mean(axis=1), color="tab:blue")
    axes.set(xlabel="epoch", ylabel="cross-entropy", yscale="log", title="Digits, training loss")
    axes.grid(alpha=0.3)
    output.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(output, dpi=150)


def times(count: int) -> str:
    """once, twice, 3 times, ..."""
    return {1: "once", 2: "twice"}.get(count, f"{count} times")
