"""The rules of optimisers: gradient descent, and methods that adapt its steps.

In the formulas p is a parameter, g its gradient (with `weight_decay` w, g + w p, unless the text
says otherwise), t the number of the update, from 1, and a the learning rate. Names, defaults and
results are those of `torch.optim`, if it has the optimiser.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegrad.errors import ArgumentError
from tapegrad.optim.optimiser import Optimiser, Schedule, as_of

Rate = float | Schedule
Slots = dict[str, Any]


def sgd(
    rate: Rate = 1e-3,
    momentum: float = 0.0,
    dampening: float = 0.0,
    weight_decay: float = 0.0,
    nesterov: bool = False,
) -> Optimiser:
    """Gradient descent, optionally with momentum.

        m <- momentum m + (1 - dampening) g        (m <- g at the first update)
        p <- p - a m                               (p - a (g + momentum m) by Nesterov)

    Sutskever et al., On the importance of initialization and momentum in deep learning, 2013.

    Raises
    ------
    ArgumentError : a number is out of its range, or Nesterov's rule has no momentum or a dampening.
    """
    _at_least(0, momentum=momentum, weight_decay=weight_decay)
    if nesterov and (momentum <= 0 or dampening != 0):
        raise ArgumentError("sgd: Nesterov's rule needs a momentum, and no dampening")

    def rule(t: Any, a: Any, p: Any, g: Any, slots: Slots) -> tuple[Any, Slots]:
        g = _decayed(g, p, weight_decay)
        if momentum == 0:
            return p - a * g, {}
        share = as_of(np.where(t == 1, 1.0, 1.0 - dampening), p) if dampening else 1.0
        m = momentum * slots["momentum"] + share * g
        return p - a * (g + momentum * m if nesterov else m), {"momentum": m}

    return Optimiser("sgd", rule, rate, {"momentum": np.zeros_like} if momentum else {})


def asgd(
    rate: Rate = 1e-2,
    decay: float = 1e-4,
    power: float = 0.75,
    start: float = 1e6,
    weight_decay: float = 0.0,
) -> Optimiser:
    """Averaged gradient descent: the slot "average" holds the mean of the parameters since `start`.

        b = a / (1 + decay a (t - 1))^power
        p <- (1 - decay b) p - b g
        average <- average + (p - average) / max(1, t - 1 - start)

    `decay`, `power` and `start` are `lambd`, `alpha` and `t0` of `torch.optim.ASGD`. Polyak and
    Juditsky, Acceleration of stochastic approximation by averaging, 1992.
    """
    _at_least(0, decay=decay, weight_decay=weight_decay)

    def rule(t: Any, a: Any, p: Any, g: Any, slots: Slots) -> tuple[Any, Slots]:
        g = _decayed(g, p, weight_decay)
        b = a / as_of((1 + decay * a * (t - 1)) ** power, p)
        p = (1 - decay * b) * p - b * g
        share = as_of(1 / np.maximum(1.0, t - 1 - start), p)
        return p, {"average": slots["average"] + share * (p - slots["average"])}

    return Optimiser("asgd", rule, rate, {"average": np.zeros_like})


def adagrad(
    rate: Rate = 1e-2,
    rate_decay: float = 0.0,
    weight_decay: float = 0.0,
    initial: float = 0.0,
    eps: float = 1e-10,
) -> Optimiser:
    """Steps divided by the root of the sum of all squared gradients.

        s <- s + g^2                               (s is `initial` at first)
        p <- p - a / (1 + rate_decay (t - 1)) g / (sqrt(s) + eps)

    Duchi, Hazan and Singer, Adaptive subgradient methods, 2011.
    """
    _at_least(0, rate_decay=rate_decay, weight_decay=weight_decay, initial=initial, eps=eps)

    def rule(t: Any, a: Any, p: Any, g: Any, slots: Slots) -> tuple[Any, Slots]:
        g = _decayed(g, p, weight_decay)
        s = slots["squares"] + g * g
        a = a / as_of(1 + rate_decay * (t - 1), p) if rate_decay else a
        return p - a * g / (np.sqrt(s) + eps), {"squares": s}

    return Optimiser("adagrad", rule, rate, {"squares": lambda p: np.full_like(p, initial)})


def rmsprop(
    rate: Rate = 1e-2,
    alpha: float = 0.99,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    momentum: float = 0.0,
    centered: bool = False,
) -> Optimiser:
    """Steps divided by a running root mean square of the gradients.

        s <- alpha s + (1 - alpha) g^2
        e <- alpha e + (1 - alpha) g               (centered; e is 0 otherwise)
        m <- momentum m + g / (sqrt(s - e^2) + eps)
        p <- p - a m

    Tieleman and Hinton, Neural Networks for Machine Learning, lecture 6.5, 2012; centered: Graves,
    Generating sequences with recurrent neural networks, 2013.
    """
    _at_least(0, alpha=alpha, eps=eps, weight_decay=weight_decay, momentum=momentum)

    def rule(t: Any, a: Any, p: Any, g: Any, slots: Slots) -> tuple[Any, Slots]:
        g = _decayed(g, p, weight_decay)
        after = {"squares": alpha * slots["squares"] + (1 - alpha) * g * g}
        spread = after["squares"]
        if centered:
            after["mean"] = slots["mean"] + (1 - alpha) * (g - slots["mean"])
            spread = spread - after["mean"] * after["mean"]
        step = g / (np.sqrt(spread) + eps)
        if momentum:
            step = after["momentum"] = momentum * slots["momentum"] + step
        return p - a * step, after

    names = ["squares", *(["mean"] if centered else []), *(["momentum"] if momentum else [])]
    return Optimiser("rmsprop", rule, rate, dict.fromkeys(names, np.zeros_like))


def rprop(
    rate: float = 1e-2,
    etas: tuple[float, float] = (0.5, 1.2),
    sizes: tuple[float, float] = (1e-6, 50.0),
) -> Optimiser:
    """Steps by the signs of gradients: a step grows while its sign stays, and shrinks when it
    flips.

    It suits full batches, not minibatches.

        s <- min(max(s eta, smallest), largest)    (eta of etas, by the sign of g and the last g)
        g <- 0 where the sign has flipped
        p <- p - sign(g) s

    Riedmiller and Braun, A direct adaptive method for faster backpropagation, 1993.

    Raises
    ------
    ArgumentError : not 0 < etas[0] < 1 < etas[1].
    """
    less, more = etas
    if not 0 < less < 1 < more:
        raise ArgumentError(f"rprop: etas are {etas}, and must be below 1 and above 1")

    def rule(t: Any, a: Any, p: Any, g: Any, slots: Slots) -> tuple[Any, Slots]:
        turned = g * slots["gradient"]
        factor = np.where(turned > 0, more, np.where(turned < 0, less, 1.0))
        s = np.clip(slots["step"] * as_of(factor, p), *sizes)
        g = np.where(turned < 0, as_of(np.zeros(()), p), g)
        return p - np.sign(g) * s, {"gradient": g, "step": s}

    return Optimiser(
        "rprop", rule, rate, {"gradient": np.zeros_like, "step": lambda p: np.full_like(p, rate)}
    )


def adadelta(
    rate: Rate = 1.0, rho: float = 0.9, eps: float = 1e-6, weight_decay: float = 0.0
) -> Optimiser:
    """Steps in the units of the parameters.

        s <- rho s + (1 - rho) g^2
        d = sqrt(u + eps) / sqrt(s + eps) g
        u <- rho u + (1 - rho) d^2
        p <- p - a d

    Zeiler, ADADELTA: an adaptive learning rate method, 2012.
    """
    _at_least(0, rho=rho, eps=eps, weight_decay=weight_decay)

    def rule(t: Any, a: Any, p: Any, g: Any, slots: Slots) -> tuple[Any, Slots]:
        g = _decayed(g, p, weight_decay)
        s = rho * slots["squares"] + (1 - rho) * g * g
        d = np.sqrt(slots["steps"] + eps) / np.sqrt(s + eps) * g
        return p - a * d, {"squares": s, "steps": rho * slots["steps"] + (1 - rho) * d * d}

    return Optimiser("adadelta", rule, rate, dict.fromkeys(("squares", "steps"), np.zeros_like))


def adam(
    rate: Rate = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    amsgrad: bool = False,
) -> Optimiser:
    """Steps from running means of the gradients and of their squares.

        m <- b1 m + (1 - b1) g
        v <- b2 v + (1 - b2) g^2                   (amsgrad: the largest v so far divides)
        p <- p - a m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps)

    Kingma and Ba, Adam: a method for stochastic optimization, 2015; amsgrad: Reddi, Kale and Kumar,
    On the convergence of Adam and beyond, 2018.
    """
    _at_least(0, weight_decay=weight_decay)
    return _adam("adam", rate, betas, eps, weight_decay, 0.0, amsgrad)


def adamw(
    rate: Rate = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 1e-2,
    amsgrad: bool = False,
) -> Optimiser:
    """`adam` with decoupled weight decay: first p <- (1 - a weight_decay) p.

    Loshchilov and Hutter, Decoupled weight decay regularization, 2019.
    """
    _at_least(0, weight_decay=weight_decay)
    return _adam("adamw", rate, betas, eps, 0.0, weight_decay, amsgrad)


def _adam(
    name: str,
    rate: Rate,
    betas: tuple[float, float],
    eps: float,
    coupled: float,
    decoupled: float,
    amsgrad: bool,
) -> Optimiser:
    b1, b2 = _betas(name, betas)
    _at_least(0, eps=eps)

    def rule(t: Any, a: Any, p: Any, g: Any, slots: Slots) -> tuple[Any, Slots]:
        g = _decayed(g, p, coupled)
        p = p * (1 - a * decoupled) if decoupled else p
        m = b1 * slots["mean"] + (1 - b1) * g
        v = b2 * slots["squares"] + (1 - b2) * g * g
        after = {"mean": m, "squares": v}
        if amsgrad:
            v = after["largest"] = np.maximum(slots["largest"], v)
        step, scale = a / as_of(1 - b1**t, p), as_of(1 / np.sqrt(1 - b2**t), p)
        return p - step * (m / (np.sqrt(v) * scale + eps)), after

    names = ["mean", "squares", *(["largest"] if amsgrad else [])]
    return Optimiser(name, rule, rate, dict.fromkeys(names, np.zeros_like))


def adamax(
    rate: Rate = 2e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
) -> Optimiser:
    """`adam` with the decayed maximum of the gradients instead of the mean square.

        m <- b1 m + (1 - b1) g
        u <- max(b2 u, |g| + eps)
        p <- p - a / (1 - b1^t) m / u

    Kingma and Ba, Adam: a method for stochastic optimization, 2015, section 7.1.
    """
    b1, b2 = _betas("adamax", betas)
    _at_least(0, eps=eps, weight_decay=weight_decay)

    def rule(t: Any, a: Any, p: Any, g: Any, slots: Slots) -> tuple[Any, Slots]:
        g = _decayed(g, p, weight_decay)
        m = b1 * slots["mean"] + (1 - b1) * g
        u = np.maximum(b2 * slots["largest"], np.abs(g) + eps)
        return p - a / as_of(1 - b1**t, p) * (m / u), {"mean": m, "largest": u}

    return Optimiser("adamax", rule, rate, dict.fromkeys(("mean", "largest"), np.zeros_like))


def lion(
    rate: Rate = 1e-4, betas: tuple[float, float] = (0.9, 0.99), weight_decay: float = 0.0
) -> Optimiser:
    """Steps of one size, by the sign of a running mean.

        p <- (1 - a weight_decay) p - a sign(b1 m + (1 - b1) g)
        m <- b2 m + (1 - b2) g

    Chen et al., Symbolic discovery of optimization algorithms, 2023. PyTorch has no such optimiser.
    """
    b1, b2 = _betas("lion", betas)
    _at_least(0, weight_decay=weight_decay)

    def rule(t: Any, a: Any, p: Any, g: Any, slots: Slots) -> tuple[Any, Slots]:
        m = slots["mean"]
        p = p * (1 - a * weight_decay) if weight_decay else p
        return p - a * np.sign(b1 * m + (1 - b1) * g), {"mean": b2 * m + (1 - b2) * g}

    return Optimiser("lion", rule, rate, {"mean": np.zeros_like})


def _decayed(g: Any, p: Any, weight_decay: float) -> Any:
    return g + weight_decay * p if weight_decay else g


def _at_least(smallest: float, **numbers: float) -> None:
    for name, number in numbers.items():
        if not number >= smallest:
            raise ArgumentError(f"{name} is {number}, and must be at least {smallest}")


def _betas(name: str, betas: tuple[float, float]) -> tuple[float, float]:
    b1, b2 = betas
    if not (0 <= b1 < 1 and 0 <= b2 < 1):
        raise ArgumentError(f"{name}: betas are {betas}, and must be at least 0 and below 1")
    return b1, b2
