"""Stochastic gradient descent: the gradient may differ in each round.

`grad(x, i)` is the gradient at x in round i, and `callback(x, i, gradient)` is called in each round
before the step. `x` may be nested lists, tuples and dicts of arrays; the result has its structure.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tapegrad.autograd.misc.flatten import flatten

__all__ = ["adam", "rmsprop", "sgd", "unflatten_optimizer"]

Gradient = Callable[[Any, int], Any]
Callback = Callable[[Any, int, Any], Any] | None


def unflatten_optimizer(optimize: Callable[..., Any]) -> Callable[..., Any]:
    """An optimizer of flat vectors as one of nested arrays."""

    @functools.wraps(optimize)
    def nested(
        grad: Gradient, x0: Any, callback: Callback = None, *args: Any, **kwargs: Any
    ) -> Any:
        flat, unflatten = flatten(x0)

        def flat_grad(x: Any, i: int) -> Any:
            return flatten(grad(unflatten(x), i))[0]

        def flat_callback(x: Any, i: int, g: Any) -> Any:
            return callback(unflatten(x), i, unflatten(g)) if callback else None

        return unflatten(optimize(flat_grad, flat, flat_callback, *args, **kwargs))

    return nested


@unflatten_optimizer
def sgd(
    grad: Gradient,
    x: Any,
    callback: Any,
    num_iters: int = 200,
    step_size: float = 0.1,
    mass: float = 0.9,
) -> Any:
    """Stochastic gradient descent with momentum: v <- m v - (1 - m) g, x <- x + s v."""
    velocity = np.zeros(len(x))
    for i in range(num_iters):
        g = grad(x, i)
        callback(x, i, g)
        velocity = mass * velocity - (1.0 - mass) * g
        x = x + step_size * velocity
    return x


@unflatten_optimizer
def rmsprop(
    grad: Gradient,
    x: Any,
    callback: Any,
    num_iters: int = 100,
    step_size: float = 0.1,
    gamma: float = 0.9,
    eps: float = 1e-8,
) -> Any:
    """Steps s g / (sqrt(a) + e), with a <- c a + (1 - c) g^2, from a = 1."""
    average = np.ones(len(x))
    for i in range(num_iters):
        g = grad(x, i)
        callback(x, i, g)
        average = average * gamma + g**2 * (1 - gamma)
        x = x - step_size * g / (np.sqrt(average) + eps)
    return x


@unflatten_optimizer
def adam(
    grad: Gradient,
    x: Any,
    callback: Any,
    num_iters: int = 100,
    step_size: float = 0.001,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
) -> Any:
    """Adam (Kingma and Ba, 2015): steps from averages of g and of g^2, which are corrected for
    their start at 0."""
    first, second = np.zeros(len(x)), np.zeros(len(x))
    for i in range(num_iters):
        g = grad(x, i)
        callback(x, i, g)
        first = (1 - b1) * g + b1 * first
        second = (1 - b2) * g**2 + b2 * second
        step = first / (1 - b1 ** (i + 1))
        x = x - step_size * step / (np.sqrt(second / (1 - b2 ** (i + 1))) + eps)
    return x
