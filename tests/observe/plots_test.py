"""Plots of traced values: each call of a derivative draws its own, as plain Python does."""

from __future__ import annotations

import io
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.path import Path

from tapegrad import grad
from tapegrad.errors import ConversionError

matplotlib.use("Agg")
plt: Any = pytest.importorskip("matplotlib.pyplot")
POINTS = [*np.random.default_rng(1).normal(size=(5, 3))]
T = np.arange(3.0)


@pytest.fixture
def axes():
    axes = plt.subplots()[1]
    yield axes
    plt.close("all")


def lines(axes, x):
    axes.plot(T, x, "o-")
    axes.axhline(np.mean(x), ls="--")
    axes.set_title("a")
    axes.text(0, 0, f"{np.sum(x):.3f}")


def of_a_figure(axes, x):
    """which is made, drawn into, and closed"""
    figure, own = plt.subplots(2, 2)
    (line,) = own[0, 0].plot(T, x, label=f"sum {np.sum(x):.2f}")
    line.set_color("r")
    own[0, 1].imshow(np.outer(x, x))
    own[1, 0].hist(x)
    own[1][1].bar(T, x, color=plt.cm.viridis(0.3))
    for each in own.ravel():
        each.set_xticks([])
    figure.tight_layout()
    axes.plot(x)
    plt.close(figure)


def of_the_last_figure(axes, x):
    plt.sca(axes)
    plt.plot(T, x)
    plt.xlabel("t")


@pytest.mark.parametrize("draws", [lines, of_a_figure, of_the_last_figure])
@pytest.mark.parametrize("compile", ["never", "always"])
def test_each_call_draws_its_own(draws, compile, axes):
    _, plain = plt.subplots()

    def f(x):
        draws(axes, x)
        return np.sum(x**2)

    g = grad(f, compile=compile)
    for x in POINTS:
        np.testing.assert_allclose(g(x), 2 * x)
        draws(plain, x)
    ours, theirs = ([[*line.get_ydata()] for line in a.lines] for a in (axes, plain))
    assert ours == theirs
    assert [t.get_text() for t in axes.texts] == [t.get_text() for t in plain.texts]
    assert g.cache_info().traces <= 2 and len(plt.get_fignums()) == 2


def test_in_a_branch(axes):
    def f(x):
        if x[0] > 0:
            axes.plot(x)
        return np.sum(x**2)

    g = grad(f, compile="never")
    for x in POINTS:
        np.testing.assert_allclose(g(x), 2 * x)
    drawn = [x for x in POINTS if x[0] > 0]
    np.testing.assert_array_equal([line.get_ydata() for line in axes.lines], drawn)


@pytest.mark.parametrize(
    "read",
    [
        lambda axes: axes.lines[-1].get_ydata()[0],
        lambda axes: axes.get_ylim()[1],
        lambda axes: plt.gca().get_ylim()[1],
    ],
)
def test_what_is_read_of_a_plot_has_no_derivative(read, axes):
    def f(x):
        axes.plot(T, x)
        return np.sum(x) * read(axes)

    with pytest.raises(ConversionError, match=r"plots_test.py:\d+: .*It carries no derivative"):
        grad(f)(POINTS[0])


def test_a_picture_in_memory(monkeypatch):
    """Later calls can't make it anew, so each call is a trace; the warning names the line."""
    monkeypatch.setattr(Path, "_unit_rectangle", None)  # which matplotlib makes, and locks

    def draw():
        figure = plt.figure(figsize=(1, 1))
        figure.savefig(io.BytesIO(), format="png", dpi=20)
        plt.close(figure)

    def f(x):
        draw()
        return np.sum(x**2)

    g = grad(f, compile="never")
    with pytest.warns(RuntimeWarning, match=r"plots_test.py:\d+: .*Draw outside of the function"):
        for x in (*POINTS, *POINTS)[:4]:
            np.testing.assert_allclose(g(x), 2 * x)


def test_a_picture_in_memory_of_a_plot_from_outside(axes, monkeypatch):
    monkeypatch.setattr(Path, "_unit_rectangle", None)
    sizes = []

    def f(x):
        picture = io.BytesIO()
        axes.figure.savefig(picture, format="png", dpi=20)
        sizes.append(len(picture.getvalue()))
        return np.sum(x**2)

    f(POINTS[0])
    np.testing.assert_allclose(grad(f, compile="never")(POINTS[0]), 2 * POINTS[0])
    assert sizes[0] == sizes[1] > 0
