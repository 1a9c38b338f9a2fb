"""A plate of glass turns the beam of a laser into a picture, in the focus of a lens.

A lens makes the Fourier transform of the light before it. The plate takes no light away, but delays
it, at each place by a phase of its own: exp(i phase). Gradient descent finds the phases for which
the light in the focus is a nabla, or any picture that you like.
"""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from tapegrad import value_and_grad

SIZE = 64


def focus(phase):
    """The amplitude of the light in the focus, of a beam that is as bright as a bell is high."""
    x, y = (np.mgrid[:SIZE, :SIZE] - (SIZE - 1) / 2) / (SIZE / 3)
    beam = np.exp(-(x**2 + y**2)) * np.exp(1j * phase)
    light = np.fft.fftshift(np.fft.fft2(beam, norm="ortho"))
    return np.abs(light) / np.sqrt(np.sum(np.abs(beam) ** 2))


def loss(phase, wanted):
    """Squared errors of the amplitudes; all light together is 1, wanted and found."""
    return np.sum((focus(phase) - wanted) ** 2)


def nabla():
    """The amplitude of the picture: soft lines along the sides of a triangle, and all light on
    them."""
    y, x = (np.mgrid[:SIZE, :SIZE] - (SIZE - 1) / 2) / (SIZE / 2)
    sides = np.maximum(-y - 0.25, 0.866 * np.abs(x) + 0.5 * y - 0.25)
    lines = np.exp(-((sides / 0.07) ** 2))
    return lines / np.sqrt(np.sum(lines**2))


def draw(pictures, losses, output):
    """The pictures, and how the loss fell."""
    figure = Figure(figsize=(12, 3), layout="constrained")
    *tops, last = figure.subplots(1, len(pictures) + 1)
    for axes, (title, (picture, colours)) in zip(tops, pictures.items(), strict=True):
        image = axes.imshow(picture, cmap=colours)
        axes.set(title=title, xticks=[], yticks=[])
        figure.colorbar(image, ax=axes, shrink=0.8)
    last.semilogy(losses, color="tab:red")
    last.set(title="squared errors", xlabel="step of descent")
    last.grid(alpha=0.3)
    figure.savefig(output, dpi=100)


def main(output=Path("hologram.png"), steps=400, rate=20.0, momentum=0.9):
    """Descend, and draw; returns the squared errors that are left."""
    wanted = nabla()
    descend = value_and_grad(loss)
    phase = 0.1 * np.random.default_rng(1).standard_normal((SIZE, SIZE))
    x, y = np.mgrid[:SIZE, :SIZE] - (SIZE - 1) / 2
    phase += 0.02 * (x**2 + y**2)  # out of focus, so that there is light everywhere
    speed, losses = np.zeros_like(phase), []
    for _ in range(steps):
        value, gradient = descend(phase, wanted)
        speed = momentum * speed - rate * gradient
        phase = phase + speed
        losses.append(float(value))

    print(f"squared errors: {losses[0]:.3f} -> {losses[-1]:.3f}")
    pictures = {
        "wanted": (wanted**2, "inferno"),
        "found: the phase of the plate": (np.angle(np.exp(1j * phase)), "twilight"),
        "light in the focus": (focus(phase) ** 2, "inferno"),
    }
    draw(pictures, losses, output)
    return losses[-1]


if __name__ == "__main__":
    main()
