"""Activation functions, elementwise or along an axis, with the names of `torch.nn.functional`.

At a kink each function has the slope that PyTorch has there. `exp` is applied only to numbers of at
most 0, so nothing overflows, and small values and slopes keep their digits.
"""

from __future__ import annotations

import math

import numpy as np

from tapegrad.api import stop_gradient
from tapegrad.core.late import load
from tapegrad.nn.arguments import Array, axis_in, chosen_axis

SELU_ALPHA = 1.6732632423543772848170429916717
SELU_SCALE = 1.0507009873554804934193349852946
SPECIAL = ("scipy.special",)  # loaded at the first use


def relu(input: Array) -> Array:
    """max(x, 0), of any shape. The slope at 0 is 0, as in PyTorch; `np.maximum` has 1/2."""
    return np.where(input <= 0, 0, input)


def relu6(input: Array) -> Array:
    """min(max(x, 0), 6), of any shape. The slope at 0 and at 6 is 0."""
    return hardtanh(input, 0.0, 6.0)


def leaky_relu(input: Array, negative_slope: float = 0.01) -> Array:
    """x where x > 0, else negative_slope * x, of any shape."""
    return np.where(input > 0, input, input * negative_slope)


def elu(input: Array, alpha: float = 1.0) -> Array:
    """x where x > 0, else alpha * (exp(x) - 1), of any shape."""
    return np.where(input > 0, input, alpha * np.expm1(np.where(input > 0, 0, input)))


def selu(input: Array) -> Array:
    """scale * elu(x, alpha), of any shape: it keeps the mean and variance from layer to layer.

    scale = 1.0507009873554805 and alpha = 1.6732632423543772.
    """
    return SELU_SCALE * elu(input, SELU_ALPHA)


def celu(input: Array, alpha: float = 1.0) -> Array:
    """x where x > 0, else alpha * (exp(x / alpha) - 1), of any shape.

    Raises ValueError if alpha is 0.
    """
    if alpha == 0:
        raise ValueError("celu: alpha is 0, and celu divides x by alpha")
    return np.where(input > 0, input, alpha * np.expm1(np.where(input > 0, 0, input) / alpha))


def gelu(input: Array, approximate: str = "none") -> Array:
    """x P(x), of any shape, where P is the distribution function of the standard normal.

    `approximate` is "none", or "tanh" for x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
    P(x) = erfc(-x / sqrt(2)) / 2 keeps its digits far below 0, where PyTorch's formula
    1 + erf(x / sqrt(2)) is 0.

    Raises ValueError for another `approximate`.
    """
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (input + 0.044715 * (input * input * input))
        return input * sigmoid(2 * inner)  # (1 + tanh(u)) / 2
    if approximate != "none":
        raise ValueError(f'gelu: approximate={approximate!r} is neither "none" nor "tanh"')
    return input * (0.5 * load(SPECIAL).erfc(input * -math.sqrt(0.5)))


def silu(input: Array) -> Array:
    """x sigmoid(x), of any shape: the swish function."""
    return input * sigmoid(input)


def mish(input: Array) -> Array:
    """x tanh(softplus(x)), of any shape.

    With n = exp(x) (exp(x) + 2), tanh(log(1 + exp(x))) = n / (n + 2), computed from exp(-|x|).
    """
    below = input < 0
    e = np.exp(np.where(below, input, -input))
    top = np.where(below, e * (e + 2), 1 + 2 * e)
    return input * (top / (top + np.where(below, 2, 2 * e * e)))


def hardswish(input: Array) -> Array:
    """x min(max(x + 3, 0), 6) / 6, of any shape. The slope is 0 at -3 and 1 at 3."""
    return np.where(input <= -3, 0, np.where(input < 3, input * (input + 3) * (1 / 6), input))


def hardsigmoid(input: Array) -> Array:
    """min(max(x + 3, 0), 6) / 6, of any shape. The slope at -3 and at 3 is 0."""
    return hardtanh(input + 3, 0.0, 6.0) / 6


def hardtanh(input: Array, min_val: float = -1.0, max_val: float = 1.0) -> Array:
    """min(max(x, min_val), max_val), of any shape.

    The slope at both bounds is 0; `np.clip` has 1/2. Raises ValueError if min_val > max_val.
    """
    if min_val > max_val:
        raise ValueError(f"hardtanh: min_val={min_val} is above max_val={max_val}")
    return np.where(input <= min_val, min_val, np.where(input >= max_val, max_val, input))


def softplus(input: Array, beta: float = 1.0, threshold: float = 20.0) -> Array:
    """log(1 + exp(beta x)) / beta, of any shape, and x where beta x > threshold."""
    scaled = input * beta
    above = scaled > threshold
    return np.where(above, input, -logsigmoid(np.where(above, 0, -scaled)) / beta)


def softsign(input: Array) -> Array:
    """x / (1 + |x|), of any shape. The slope at 0 is 1."""
    return input / (1 + np.abs(input))


def tanhshrink(input: Array) -> Array:
    """x - tanh(x), of any shape."""
    return input - np.tanh(input)


def softshrink(input: Array, lambd: float = 0.5) -> Array:
    """x - lambd where x > lambd, x + lambd where x < -lambd, else 0, of any shape.

    Raises ValueError if lambd is negative.
    """
    if lambd < 0:
        raise ValueError(f"softshrink: lambd={lambd} must not be negative")
    within = (input >= -lambd) & (input <= lambd)
    return np.where(within, 0, np.where(input < 0, input + lambd, input - lambd))


def hardshrink(input: Array, lambd: float = 0.5) -> Array:
    """x where |x| > lambd, else 0, of any shape."""
    return np.where((input >= -lambd) & (input <= lambd), 0, input)


def sigmoid(input: Array) -> Array:
    """1 / (1 + exp(-x)), of any shape. Both tails keep their digits."""
    below = input < 0
    e = np.exp(np.where(below, input, -input))
    return np.where(below, e, 1) / (1 + e)


def logsigmoid(input: Array) -> Array:
    """log(1 / (1 + exp(-x))) = min(x, 0) - log(1 + exp(-|x|)), of any shape."""
    below = input < 0
    return np.where(below, input, 0) - np.log1p(np.exp(np.where(below, input, -input)))


def capped_shifted_negative_exponential(input: Array, shift: float) -> Array:
    """1 where x <= shift, else exp(shift - x), of any shape. The slope at `shift` is 0."""
    below = input <= shift
    return np.where(below, 1, np.exp(np.where(below, 0, shift - input)))


def softmax(input: Array, dim: int = -1, dtype: object = None, *, axis: int | None = None) -> Array:
    """exp(x) / sum(exp(x)) along `dim` (or `axis`), of the shape of `input`.

    `dtype` is the dtype of the computation. The default axis is the last one; PyTorch's default
    depends on the number of dimensions. Raises IndexError for an axis that doesn't exist.
    """
    terms, axis = _exponents("softmax", input, dim, axis, dtype)
    terms = np.exp(terms)
    return terms / np.sum(terms, axis=axis, keepdims=True)


def log_softmax(
    input: Array, dim: int = -1, dtype: object = None, *, axis: int | None = None
) -> Array:
    """x - log(sum(exp(x))) along `dim` (or `axis`), of the shape of `input`: see `softmax`."""
    terms, axis = _exponents("log_softmax", input, dim, axis, dtype)
    return terms - np.log(np.sum(np.exp(terms), axis=axis, keepdims=True))


def _exponents(
    function: str, input: Array, dim: int, axis: int | None, dtype: object
) -> tuple[Array, int | None]:
    """x minus its largest element along the axis, and the axis.

    The axis of a number is None; the accepted axes are 0 and -1. The subtracted maximum cancels in
    the result, so it is a constant for derivatives.
    """
    chosen, ndim = chosen_axis(function, dim, axis, -1), np.ndim(input)
    along: int | None = axis_in(function, chosen, ndim or 1)
    along = along if ndim else None
    x = input if dtype is None else input.astype(dtype)
    return x - stop_gradient(np.max(x, axis=along, keepdims=True)), along


def glu(input: Array, dim: int = -1, *, axis: int | None = None) -> Array:
    """a sigmoid(b), where a and b are the halves of `input` along `dim` (or `axis`).

    The axis has half its length in the result. Raises ValueError for an odd length.
    """
    along = axis_in("glu", chosen_axis("glu", dim, axis, -1), np.ndim(input))
    if np.shape(input)[along] % 2:
        raise ValueError(
            f"glu: axis {along} has {np.shape(input)[along]} elements, an odd number: no halves"
        )
    first, second = np.split(input, 2, axis=along)
    return first * sigmoid(second)
