"""Recurrent cells, and layers of cells whose steps are the iterations of one loop.

Weights are those of PyTorch's modules: `w_ih` is (gates * hidden, input), `w_hh` (gates * hidden,
hidden), biases are (gates * hidden,), with the gates of a cell concatenated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapegrad.loops import scan
from tapegrad.nn.activations import relu
from tapegrad.nn.arguments import as_array
from tapegrad.rules import defvjp, primitive

__all__ = [
    "fast_weights",
    "fast_weights_cell",
    "gru",
    "gru_cell",
    "lstm",
    "lstm_cell",
    "rnn",
    "rnn_cell",
]


# The only residuals of a step are the values of its gates. They are differences of numbers up to 1,
# exact to a rounding of 1, as in PyTorch's layers.


@primitive
def _tanh(x: Any) -> Any:
    return np.tanh(x)


@primitive
def _sigmoid(x: Any) -> Any:
    return 0.5 * np.tanh(0.5 * x) + 0.5


defvjp(_tanh, lambda ct, out, x: ct * (1 - out * out))
defvjp(_sigmoid, lambda ct, out, x: ct * (out * (1 - out)))

NONLINEAR: dict[str, Callable[[Any], Any]] = {
    "tanh": _tanh,
    "relu": relu,
}


def _linear(name: str, x: Any, weight: Any, bias: Any, gates: int) -> Any:
    """`x @ weight.T + bias`; a ValueError for shapes that don't fit."""
    shape = np.shape(weight)
    fits = len(shape) == 2 and np.ndim(x) and np.shape(x)[-1] == shape[1] and not shape[0] % gates
    if not fits or (bias is not None and np.shape(bias) != shape[:1]):
        raise ValueError(
            f"{name}: a weight of the shape {shape} and a bias of {np.shape(bias)} don't fit an "
            f"operand of the shape {np.shape(x)}; they should be ({gates} * hidden, features) and "
            f"({gates} * hidden,)"
        )
    found = x @ np.swapaxes(weight, 0, 1)
    return found if bias is None else found + bias


def _entry(name: str, x: Any, hidden: Any, weight: Any, bias: Any, gates: int) -> Any:
    """The contribution of a cell's input; a ValueError if input and state differ in their batch."""
    if np.shape(hidden)[:-1] != np.shape(x)[:-1]:
        raise ValueError(
            f"{name}: an input of the shape {np.shape(x)} and a hidden state of {np.shape(hidden)} "
            "should have the same axes but for the last"
        )
    return _linear(name, x, weight, bias, gates)


# Steps: (contribution of the input, loop-carried state, w_hh, b_hh) --> next state.


def _rnn_step(nonlinearity: str) -> Callable[..., Any]:
    if nonlinearity not in NONLINEAR:
        raise ValueError(f'nonlinearity={nonlinearity!r} should be "tanh" or "relu"')
    function = NONLINEAR[nonlinearity]

    def step(x: Any, h: Any, w_hh: Any, b_hh: Any) -> Any:
        return function(x + _linear("rnn", h, w_hh, b_hh, 1))

    return step


def _lstm_step(x: Any, state: Any, w_hh: Any, b_hh: Any) -> Any:
    h, c = state
    gates = x + _linear("lstm", h, w_hh, b_hh, 4)
    n = gates.shape[-1] // 4
    i, f, g, o = (gates[..., k * n : (k + 1) * n] for k in range(4))
    c = _sigmoid(f) * c + _sigmoid(i) * _tanh(g)
    return _sigmoid(o) * _tanh(c), c


def _gru_step(x: Any, h: Any, w_hh: Any, b_hh: Any) -> Any:
    hidden = _linear("gru", h, w_hh, b_hh, 3)
    n = hidden.shape[-1] // 3
    r = _sigmoid(x[..., :n] + hidden[..., :n])
    z = _sigmoid(x[..., n : 2 * n] + hidden[..., n : 2 * n])
    new = _tanh(x[..., 2 * n :] + r * hidden[..., 2 * n :])
    return (1 - z) * new + z * h


def _fast_step(decay: Any, rate: Any, inner: int, layer_norm: bool) -> Callable[..., Any]:
    def step(x: Any, state: Any, w_hh: Any, b_hh: Any) -> Any:
        h, fast = state
        fast = decay * fast + rate * h[..., :, None] * h[..., None, :]
        slow = x + _linear("fast_weights", h, w_hh, b_hh, 1)
        h = _tanh(slow)
        for _ in range(inner):
            h = slow + (fast @ h[..., None])[..., 0]
            if layer_norm:
                h = h - np.mean(h, axis=-1, keepdims=True)
                h = h / np.sqrt(np.mean(h * h, axis=-1, keepdims=True) + 1e-5)
            h = _tanh(h)
        return h, fast

    return step


# ---- cells


def rnn_cell(
    input: Any,
    hidden: Any,
    w_ih: Any,
    w_hh: Any,
    b_ih: Any = None,
    b_hh: Any = None,
    nonlinearity: str = "tanh",
) -> Any:
    """One step: `tanh(w_ih input + b_ih + w_hh hidden + b_hh)`.

    Parameters
    ----------
    input : (n, features), or (features,).
    hidden : (n, hidden), or (hidden,).
    w_ih, w_hh : (hidden, features) and (hidden, hidden).
    b_ih, b_hh : (hidden,), or None.
    nonlinearity : "tanh" or "relu".

    Returns
    -------
    The next hidden state.

    Raises
    ------
    ValueError : the shapes don't fit, or the nonlinearity has another name.
    """
    return _rnn_step(nonlinearity)(
        _entry("rnn_cell", input, hidden, w_ih, b_ih, 1), hidden, w_hh, b_hh
    )


def lstm_cell(
    input: Any, state: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None
) -> tuple[Any, Any]:
    """One step of long short-term memory.

        i, f, g, o = w_ih input + b_ih + w_hh h + b_hh, in four parts
        c = sigmoid(f) c + sigmoid(i) tanh(g)
        h = sigmoid(o) tanh(c)

    Parameters
    ----------
    input : (n, features), or (features,).
    state : a pair `h, c` of (n, hidden), or (hidden,).
    w_ih, w_hh : (4 * hidden, features) and (4 * hidden, hidden).
    b_ih, b_hh : (4 * hidden,), or None.

    Returns
    -------
    The next `h, c`.

    Raises
    ------
    ValueError : the shapes don't fit.
    """
    h, c = state
    if np.shape(h) != np.shape(c):
        raise ValueError(f"lstm_cell: h and c have the shapes {np.shape(h)} and {np.shape(c)}")
    x = _entry("lstm_cell", input, h, w_ih, b_ih, 4)
    found: tuple[Any, Any] = _lstm_step(x, state, w_hh, b_hh)
    return found


def gru_cell(
    input: Any, hidden: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None
) -> Any:
    """One step of a gated recurrent unit.

        x_r, x_z, x_n = w_ih input + b_ih, and h_r, h_z, h_n = w_hh hidden + b_hh, in three parts
        z = sigmoid(x_z + h_z)
        n = tanh(x_n + sigmoid(x_r + h_r) h_n)
        next = (1 - z) n + z hidden

    Parameters
    ----------
    input : (n, features), or (features,).
    hidden : (n, hidden), or (hidden,).
    w_ih, w_hh : (3 * hidden, features) and (3 * hidden, hidden).
    b_ih, b_hh : (3 * hidden,), or None.

    Returns
    -------
    The next hidden state.

    Raises
    ------
    ValueError : the shapes don't fit.
    """
    return _gru_step(_entry("gru_cell", input, hidden, w_ih, b_ih, 3), hidden, w_hh, b_hh)


def fast_weights_cell(
    input: Any,
    state: Any,
    w_ih: Any,
    w_hh: Any,
    b_ih: Any = None,
    b_hh: Any = None,
    decay: Any = 0.95,
    rate: Any = 0.5,
    inner: int = 1,
    layer_norm: bool = True,
) -> tuple[Any, Any]:
    """One step of a network with fast weights, a matrix that remembers recent hidden states.

        A = decay A + rate h h^T
        s = w_ih input + b_ih + w_hh h + b_hh,   h = tanh(s)
        `inner` times: h = tanh(norm(s + A h))

    With `layer_norm`, `norm` subtracts the mean and divides by sqrt(variance + 1e-5); otherwise it
    is the identity.

    Parameters
    ----------
    input : (n, features), or (features,).
    state : a pair `h, A` of (n, hidden) and (n, hidden, hidden), or without n.
    w_ih, w_hh : (hidden, features) and (hidden, hidden).
    b_ih, b_hh : (hidden,), or None.
    decay, rate : numbers.
    inner : the number of times the fast weights act.
    layer_norm : see above.

    Returns
    -------
    The next `h, A`.

    Raises
    ------
    ValueError : the shapes don't fit.
    """
    x = _entry("fast_weights_cell", input, state[0], w_ih, b_ih, 1)
    found: tuple[Any, Any] = _fast_step(decay, rate, inner, layer_norm)(x, state, w_hh, b_hh)
    return found


# ---- layers


def _layers(
    name: str,
    step: Callable[..., Any],
    gates: int,
    input: Any,
    state: Any,
    weights: Sequence[Sequence[Any]],
    batch_first: bool,
    bidirectional: bool,
    ranks: tuple[int, ...],
) -> tuple[Any, Any]:
    """The outputs of the last layer, and the final states of all layers.

    Part k of the loop-carried state has `ranks[k]` axes of the hidden size; part 0 is the output.
    """
    ways = 2 if bidirectional else 1
    x = as_array(input)
    if x.ndim not in (2, 3) or not weights or len(weights) % ways:
        raise ValueError(
            f"{name}: an input of the shape {x.shape} and weights of {len(weights)} layers should "
            "be (length, n, features), or (length, features), and "
            + ("two for each layer, one for each direction" if bidirectional else "at least one")
        )
    turned = batch_first and x.ndim == 3
    x = np.swapaxes(x, 0, 1) if turned else x
    ahead = x.shape[1:-1]
    finals = []
    for number in range(0, len(weights), ways):
        found = []
        for way in range(ways):
            w_ih, w_hh, b_ih, b_hh = [*weights[number + way], None, None][:4]
            # The contribution of the input is one product for all steps.
            entries = _linear(name, x, w_ih, b_ih, gates)
            if b_hh is not None and gates != 3:  # a GRU multiplies part of b_hh by its reset gate
                entries, b_hh = entries + b_hh, None
            hidden = np.shape(w_hh)[-1]
            shapes = [(*ahead, *[hidden] * rank) for rank in ranks]
            start = _start(name, state, number + way, len(weights), shapes, entries)

            def one(carry: Any, entry: Any, w_hh: Any = w_hh, b_hh: Any = b_hh) -> Any:
                carry = step(entry, carry, w_hh, b_hh)
                return carry, carry[0] if len(ranks) > 1 else carry

            last, outputs = scan(one, start, entries, reverse=way == 1)
            finals.append(last)
            found.append(outputs)
        x = np.concatenate(found, axis=-1) if bidirectional else found[0]
    x = np.swapaxes(x, 0, 1) if turned else x
    if len(ranks) == 1:
        return x, np.stack(finals)
    return x, tuple([np.stack([last[k] for last in finals]) for k in range(len(ranks))])


def _start(
    name: str, state: Any, number: int, count: int, shapes: Sequence[tuple[int, ...]], like: Any
) -> Any:
    """The state of the first step: zeros, or the part of `state` for a layer."""
    if state is None:
        found = [np.zeros(shape, like.dtype) for shape in shapes]
    else:
        given = state if len(shapes) > 1 else (state,)
        wanted = [(count, *shape) for shape in shapes]
        if [np.shape(x) for x in given] != wanted:
            raise ValueError(
                f"{name}: the state has the shapes {[np.shape(x) for x in given]}, and should have "
                f"{wanted}"
            )
        found = [x[number] for x in given]
    return tuple(found) if len(found) > 1 else found[0]


def rnn(
    input: Any,
    state: Any,
    weights: Sequence[Sequence[Any]],
    nonlinearity: str = "tanh",
    batch_first: bool = False,
    bidirectional: bool = False,
) -> tuple[Any, Any]:
    """Layers of `rnn_cell`; each takes the outputs of the layer before.

    `torch.nn.RNN` has these weights as its parameters, in this order.

    Parameters
    ----------
    input : (length, n, features), or (length, features).
    state : (layers, n, hidden), or (layers, hidden); each direction counts as a layer. None for
        zeros.
    weights : for each layer `w_ih, w_hh`, optionally followed by both biases; with two directions
        there are two entries for each layer, forward and backward.
    nonlinearity : "tanh" or "relu".
    batch_first : whether input and outputs are (n, length, ...).
    bidirectional : whether a second direction runs from the last entry to the first; its outputs
        are appended to those of the first direction.

    Returns
    -------
    The outputs of the last layer, (length, n, hidden), and the final state.

    Raises
    ------
    ValueError : the shapes don't fit, or the nonlinearity has another name.
    """
    step = _rnn_step(nonlinearity)
    return _layers("rnn", step, 1, input, state, weights, batch_first, bidirectional, (1,))


def lstm(
    input: Any,
    state: Any,
    weights: Sequence[Sequence[Any]],
    batch_first: bool = False,
    bidirectional: bool = False,
) -> tuple[Any, tuple[Any, Any]]:
    """Layers of `lstm_cell`; otherwise as `rnn`.

    Parameters
    ----------
    input, batch_first, bidirectional : as in `rnn`.
    state : a pair `h, c`, each as in `rnn`; None for zeros.
    weights : as in `rnn`, with the shapes of `lstm_cell`.

    Returns
    -------
    The outputs of the last layer, (length, n, hidden), and the final `h, c`.

    Raises
    ------
    ValueError : the shapes don't fit.
    """
    return _layers("lstm", _lstm_step, 4, input, state, weights, batch_first, bidirectional, (1, 1))


def gru(
    input: Any,
    state: Any,
    weights: Sequence[Sequence[Any]],
    batch_first: bool = False,
    bidirectional: bool = False,
) -> tuple[Any, Any]:
    """Layers of `gru_cell`; otherwise as `rnn`.

    Parameters
    ----------
    input, state, batch_first, bidirectional : as in `rnn`.
    weights : as in `rnn`, with the shapes of `gru_cell`.

    Returns
    -------
    The outputs of the last layer, (length, n, hidden), and the final state.

    Raises
    ------
    ValueError : the shapes don't fit.
    """
    return _layers("gru", _gru_step, 3, input, state, weights, batch_first, bidirectional, (1,))


def fast_weights(
    input: Any,
    state: Any,
    weights: Sequence[Sequence[Any]],
    decay: Any = 0.95,
    rate: Any = 0.5,
    inner: int = 1,
    layer_norm: bool = True,
    batch_first: bool = False,
) -> tuple[Any, tuple[Any, Any]]:
    """Layers of `fast_weights_cell`; otherwise as `fast_weights_cell` and `rnn`.

    Parameters
    ----------
    input, weights, batch_first : as in `rnn`.
    state : a pair `h, A` of (layers, n, hidden) and (layers, n, hidden, hidden); None for zeros.
    decay, rate, inner, layer_norm : as in `fast_weights_cell`.

    Returns
    -------
    The outputs of the last layer, (length, n, hidden), and the final `h, A`.

    Raises
    ------
    ValueError : the shapes don't fit.
    """
    step = _fast_step(decay, rate, inner, layer_norm)
    return _layers("fast_weights", step, 1, input, state, weights, batch_first, False, (1, 2))
