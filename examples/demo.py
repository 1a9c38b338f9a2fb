"""The demo, `make demo`: a network in plain NumPy learns handwritten digits.

Read `network`, `loss` and `train` first: they are all that a user of tapegrad would write. Besides
it shows the tape of a small function and the source of its gradient, and holds the network's
against finite differences, and its time against NumPy's.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from tqdm import tqdm

from tapegrad import gradcheck, simplegrad, trace, value_and_grad

Array = np.ndarray
Params = dict[str, Array]

HIDDEN = 64
EPOCHS = 60
BATCH = 64
RATE = 0.3
SHADES = " .:-=+*#%@"


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


def by_hand(params: Params, images: Array, labels: Array) -> tuple[float, Params]:
    """What `dloss` returns, written out in NumPy: what one would need without tapegrad."""
    before = images @ params["W1"] + params["b1"]
    hidden = np.maximum(before, 0.0)
    scores = hidden @ params["W2"] + params["b2"]
    scores = scores - scores.max(axis=1, keepdims=True)
    exps = np.exp(scores)
    sums = exps.sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    value = np.mean(np.log(sums[:, 0]) - scores[rows, labels])
    d_scores = exps / sums
    d_scores[rows, labels] -= 1.0
    d_scores /= len(labels)
    d_before = (d_scores @ params["W2"].T) * (before > 0.0)
    return float(value), {
        "W1": images.T @ d_before,
        "b1": d_before.sum(axis=0),
        "W2": hidden.T @ d_scores,
        "b2": d_scores.sum(axis=0),
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


def main(output: Path = Path("demo.png")) -> Result:
    """Do all that `make demo` does; the plot of the loss goes to `output`."""
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
    show_guesses(test_images, test_labels, guesses)
    check(params, train_images[:BATCH], train_labels[:BATCH])
    plot_losses(losses, output)
    click.echo(f"\nthe loss curve is in {output.resolve()}")
    return Result(accuracy, losses, output)


def show_inside() -> None:
    """Print what tapegrad makes of `logistic`: its tape, then the source of its gradient."""
    w, x = np.array([0.5, -1.0, 2.0]), np.array([1.0, 2.0, 3.0])
    value, tape = trace(logistic, w, x)
    click.secho(f"A small function, {logistic.__name__}(w, x) = {value:.4f}, on tape", bold=True)
    click.echo(str(tape))
    click.secho("\nThe source generated for its value and gradients", bold=True)
    click.echo(simplegrad(logistic, w, x).source)


def show_guesses(images: Array, labels: Array, guesses: Array, count: int = 6) -> None:
    """Print some digits as text with what the network takes them for; the last ones wrongly."""
    right, wrong = (np.flatnonzero((guesses == labels) == yes) for yes in (True, False))
    missed = wrong[:2]
    shown = [*right[: count - len(missed)], *missed]
    click.secho("\nDigits that it has never seen, and what it takes them for", bold=True)
    for line in range(8):
        rows = [images[k].reshape(8, 8)[line] for k in shown]
        texts = ["".join(2 * SHADES[int(x * (len(SHADES) - 1))] for x in row) for row in rows]
        click.echo("  ".join(texts).rstrip())
    words = [
        str(guesses[k]) if guesses[k] == labels[k] else f"{guesses[k]}, it is {labels[k]}"
        for k in shown
    ]
    click.echo("  ".join(f"{word:^16}" for word in words).rstrip())


def check(params: Params, images: Array, labels: Array) -> None:
    """Hold the gradient against finite differences, and its time against NumPy's."""
    click.secho("\nIs it right, and what does it save?", bold=True)
    gradcheck(lambda params: loss(params, images, labels), (params,))
    count = sum(x.size for x in params.values())
    click.echo(f"gradcheck: all {count:,} derivatives of the loss agree with finite differences")

    value, gradients = dloss(params, images, labels)
    expected, by_numpy = by_hand(params, images, labels)
    assert np.isclose(value, expected)
    assert all(np.allclose(gradients[name], by_numpy[name]) for name in params)
    ours, numpys = times_in_turns([dloss, by_hand], params, images, labels)
    click.echo(
        f"a step's value and gradient take {1e6 * ours:.0f} us; derived by hand and written in "
        f"NumPy they take {1e6 * numpys:.0f} us"
    )


def times_in_turns(functions: list[Callable[..., Any]], *args: Any) -> list[float]:
    """Seconds of a call of each function: the median, one after the other, so that what else the
    machine does falls on all alike."""
    samples: list[list[float]] = [[] for _ in functions]
    for _ in range(50):
        for f, found in zip(functions, samples, strict=True):
            start = time.perf_counter()
            for _ in range(5):
                f(*args)
            found.append((time.perf_counter() - start) / 5)
    return [float(np.median(found)) for found in samples]


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


if __name__ == "__main__":
    main()
