"""A network that writes Python's documentation, letter by letter: two layers of an LSTM.

The text is cut into streams that are read side by side, a piece at a time. The hidden states of one
piece are where the next starts, and gradients go back as far as the piece does.
"""

import textwrap
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from tapegrad import jit, nn, optim
from tapegrad.nn import models


def text_of(count):
    """So many letters of what `help()` says of Python, or of NumPy where that isn't installed."""
    try:
        from pydoc_data.topics import topics
    except ImportError:
        topics = {name: getattr(np, name).__doc__ or "" for name in dir(np)}
    words = " ".join(topics[name] for name in sorted(topics)).split()
    return " ".join(word for word in words if any(map(str.isalnum, word)))[:count]


def codes_of(text):
    """The letters that there are, and the numbers of the text's: nine tenths of it and the rest."""
    alphabet = sorted(set(text))
    codes = np.array([alphabet.index(letter) for letter in text])
    return alphabet, *np.split(codes, [len(codes) * 9 // 10])


def network(letters, units):
    """Scores of the letter that comes next, after each of some numbers of letters."""
    return models.sequential(
        embed=models.embedding(letters, 32),
        body=models.lstm(32, units, layers=2, output="all", dropout=0.1),
        last=models.linear(units, letters),
    )


def pieces(codes, streams, length):
    """The letters of each stream in pieces, and those that follow them."""
    count = (len(codes) - 1) // (streams * length)
    parts = [codes[k : k + streams * count * length].reshape(streams, count, -1) for k in (0, 1)]
    return list(zip(*(part.swapaxes(0, 1) for part in parts), strict=True))


def train(model, read, kept, epochs, streams, rng):
    """The parameters after some epochs, and the bits a letter of each step and of each epoch's
    end, those of text that it isn't trained on."""

    def loss(params, letters, following, state, training=False, rng=None):
        """Mean cross-entropy, and the state in which the piece ends."""
        scores, state = model(params, letters, state=state, training=training, rng=rng)
        return nn.cross_entropy(nn.flatten(scores, 0, 1), nn.flatten(following)), state

    adam = optim.adam(optim.cosine(1e-2, epochs * len(read))).clipped(norm=1.0)
    step = optim.training_step(loss, adam, has_aux=True)
    measured = jit(loss)
    params = model.init(rng)
    place = adam.init(params)
    steps, ends = [], []
    for _ in range(epochs):
        state = model.state(streams)
        for letters, following in read:
            (value, state), params, place = step(
                params, place, letters, following, state, training=True, rng=rng
            )
            steps.append(float(value))
        state, losses = model.state(streams), []
        for letters, following in kept:
            value, state = measured(params, letters, following, state)
            losses.append(value)
        ends.append(float(np.mean(losses)))
    return params, np.array(steps) / np.log(2), np.array(ends) / np.log(2)


def written(model, params, alphabet, start, count, rng, heat=0.6):
    """A text and what the network writes after it, letter by letter, each drawn of the chances that
    it gives them; and what the first 60 units of its last layer say meanwhile."""
    advance = jit(lambda params, letter, state: model(params, letter, state=state))
    state, found, units = model.state(1), "", []
    for k in range(count):
        if k < len(start):
            letter = alphabet.index(start[k])
        scores, state = advance(params, np.array([[letter]]), state)
        found += alphabet[letter]
        units.append(state["body"]["hidden"][0][-1, 0, :60])
        letter = rng.choice(len(alphabet), p=nn.softmax(scores[0, 0].astype(float) / heat))
    return found, np.array(units)


def show_text(axes, text):
    """What a network writes, in the place of a plot."""
    axes.set_title("what it writes")
    axes.set_axis_off()
    shown = textwrap.fill(text, 72).replace("$", r"\$")
    axes.text(0, 1, shown, family="monospace", fontsize=7, va="top")


def draw(steps, ends, text, units, output):
    """Bits a letter over the steps, what the network writes, and its units while it does."""
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(1, 1.5))
    axes = left.subplots()
    axes.plot(steps, lw=0.7, label="pieces")
    axes.plot(len(steps) / len(ends) * np.arange(1, len(ends) + 1), ends, "o-", label="other text")
    axes.set(xlabel="step", title="bits a letter", ylim=(0, None))
    axes.legend()
    above, below = right.subplots(2, 1)
    show_text(above, text)
    below.imshow(units.T, cmap="RdBu", vmin=-1, vmax=1, aspect="auto", interpolation="nearest")
    below.set(xlabel="letter", ylabel="unit", title="its second layer meanwhile")
    figure.savefig(output, dpi=100)


def main(output=Path("character_lstm.png"), count=200_000, epochs=4, units=128):
    """Train, write and draw; returns the bits a letter of text that it wasn't trained on."""
    alphabet, *parts = codes_of(text_of(count))
    streams, length, rng = 32, 32, np.random.default_rng(0)
    model = network(len(alphabet), units)
    read, kept = [pieces(codes, streams, length) for codes in parts]
    params, steps, ends = train(model, read, kept, epochs, streams, rng)
    found, said = written(model, params, alphabet, "The ", 560, rng)
    print(f"{steps[0]:.2f} bits a letter at first, {ends[-1]:.2f} of other text in the end")
    print(textwrap.fill(found, 80))
    draw(steps, ends, found, said, output)
    return float(ends[-1])


if __name__ == "__main__":
    main()
