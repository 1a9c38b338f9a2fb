"""Time what it costs to check, at each call, that what a function was traced with still holds.

    python benchmarks/guards.py

Each line is a function that reaches something from outside, or branches. `checked` is the time in
nanoseconds that its state takes to check; `call` is that of a whole call of its compiled gradient.
"""

from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from clock import nanoseconds

from tapegrad import clear_cache, grad

X = np.array([1.0, 2.0, 3.0])
RATE = 2.0


class Model:
    """A small model as users write them: hyperparameters, a flag, weights, a helper method."""

    def __init__(self) -> None:
        self.rate, self.power, self.centred, self.name = 0.5, 3, False, "model"
        self.weights = np.array([1.0, -2.0, 0.5])

    def scaled(self, x: np.ndarray) -> np.ndarray:
        return x * self.rate * self.weights

    def loss(self, x: np.ndarray) -> np.ndarray:
        y = self.scaled(x - x.mean() if self.centred else x)
        return np.sum(y**self.power)


def programs() -> Iterator[tuple[str, Callable[..., Any]]]:
    """What is reached, and the function that reaches it."""
    rate, weights, config = 2.0, np.array([1.0, 2.0, 3.0]), {"rate": 2.0, "on": True, "power": 3}
    settings = SimpleNamespace(rate=2.0)
    layers = [np.ones(3) * k for k in range(1, 9)]
    yield "nothing", lambda x: np.sum(x**2)
    yield "a branch, in compiled code", lambda x: np.sum(x**2) if x[0] > 0 else np.sum(x)
    yield "a closed-over number", lambda x: np.sum(rate * x**2)
    yield "a global number", lambda x: np.sum(RATE * x**2)
    yield "an attribute", lambda x: np.sum(settings.rate * x**2)
    yield "an array that meets traced values", lambda x: np.sum(weights * x**2)
    yield (
        "three entries of a dict",
        lambda x: config["rate"] * np.sum(x ** config["power"]) if config["on"] else np.sum(x),
    )
    yield "a method, four attributes and a method", Model().loss
    yield "eight arrays in a list", lambda x: sum(np.sum(w * x**2) for w in layers)
    for size in (100, 6_000, 3_000_000):
        apart = np.ones(size)
        what = f"an array of {apart.nbytes:,} bytes that meets no traced value"
        yield what, lambda x, apart=apart: np.sum(x**2) * apart[::2].sum()


def main() -> None:
    print(f"{'what is reached':<58}{'checked, ns':>12}{'call, ns':>12}")
    for what, f in programs():
        clear_cache()
        derivative = grad(f, compile="always")
        derivative(X)
        (variant,) = derivative.cache.all_variants()
        state = variant.state
        checked = nanoseconds(partial(state.holds, f, (X,))) if state else 0.0
        whole = nanoseconds(partial(derivative, X))
        print(f"{what:<58}{checked:>12,.0f}{whole:>12,.0f}")


if __name__ == "__main__":
    main()
