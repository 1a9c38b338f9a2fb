"""A small transformer that writes Python's documentation, letter by letter.

Each letter sees those before it in a window, and guesses the next one: blocks of attention and
linear layers, with rows for letters and for places in front, and scores behind.
"""

import textwrap
from pathlib import Path

import numpy as np
from character_lstm import codes_of, show_text, text_of
from matplotlib.figure import Figure

from tapegrad import jit, nn, optim
from tapegrad.nn import models


def network(letters, length, features):
    """Scores of the letter that comes next, after each of up to `length` numbers of letters."""
    return models.sequential(
        embed=models.embedding(letters, features, length),
        body=models.transformer(features, heads=4, layers=2, causal=True),
        last=models.linear(features, letters),
    )


def windows(codes, length):
    """The letters of each window, and those that follow them."""
    count = (len(codes) - 1) // length
    return tuple(codes[k : k + count * length].reshape(count, length) for k in (0, 1))


def train(model, read, kept, epochs):
    """The parameters, the history with bits a letter, and bits by the place in a window."""

    def loss(params, letters, following):
        """Mean cross-entropy."""
        scores = model(params, letters)
        return nn.cross_entropy(nn.flatten(scores, 0, 1), nn.flatten(following))

    def of_places(params, letters, following):
        """Mean cross-entropy of each place in a window."""
        scores = np.swapaxes(model(params, letters), 1, 2)
        return np.mean(nn.cross_entropy(scores, following, reduction="none"), axis=0)

    params = model.init(np.random.default_rng(0))
    params["embed"] = {name: w * np.float32(0.2) for name, w in params["embed"].items()}
    steps = epochs * (len(read[0]) // 16)
    rate = optim.warmup(optim.cosine(1e-2, steps), 20)
    fitted = optim.fit(
        loss,
        params,
        read,
        optim.adamw(rate, weight_decay=0.05).clipped(norm=1.0),
        epochs=epochs,
        batch_size=16,
        drop_last=True,
        validation=kept,
    )
    return fitted.params, fitted.history, jit(of_places)(fitted.params, *kept) / np.log(2)


def written(model, params, alphabet, start, count, length, rng, heat=0.6):
    """A text and what the network writes after it, each letter drawn of the chances that it gives.
    The window is filled up behind, which letters don't see."""
    scores_of = jit(model)
    codes = [alphabet.index(letter) for letter in start]
    while len(codes) < count:
        seen = np.zeros((1, length), int)
        last = codes[-length:]
        seen[0, : len(last)] = last
        scores = scores_of(params, seen)[0, len(last) - 1]
        codes.append(rng.choice(len(alphabet), p=nn.softmax(scores.astype(float) / heat)))
    return "".join(alphabet[code] for code in codes)


def draw(history, places, text, output):
    """Bits a letter over the epochs, and by how many letters are seen; what the network writes."""
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(1, 1.5))
    axes = left.subplots()
    for name, label in (("loss", "in training"), ("validation", "other text")):
        axes.plot(
            [e["epoch"] for e in history], [e[name] / np.log(2) for e in history], label=label
        )
    axes.set(xlabel="epoch", title="bits a letter", ylim=(0, None))
    axes.legend()
    above, below = right.subplots(2, 1)
    show_text(above, text)
    below.plot(1 + np.arange(len(places)), places)
    below.set(xlabel="letters seen", title="bits a letter of other text", ylim=(0, None))
    figure.savefig(output, dpi=100)


def main(output=Path("character_transformer.png"), count=200_000, epochs=6, features=64):
    """Train, write and draw; returns the bits a letter of text that it wasn't trained on."""
    alphabet, *parts = codes_of(text_of(count))
    length = 64
    model = network(len(alphabet), length, features)
    read, kept = [windows(codes, length) for codes in parts]
    params, history, places = train(model, read, kept, epochs)
    found = written(model, params, alphabet, "The ", 560, length, np.random.default_rng(0))
    bits = history[-1]["validation"] / np.log(2)
    print(f"{history[0]['loss'] / np.log(2):.2f} bits a letter in the first epoch, {bits:.2f} of")
    print("other text in the end.", textwrap.fill(found, 80), sep="\n")
    draw(history, places, found, output)
    return bits


if __name__ == "__main__":
    main()
