"""Recurrent networks; their steps are the iterations of one loop."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import tapegrad.nn.layers as of_arrays
import tapegrad.nn.recurrent as recurrent
from tapegrad.loops import scan
from tapegrad.nn.activations import sigmoid
from tapegrad.nn.arguments import as_array, check_probability
from tapegrad.nn.models.model import Model, drawn, full, keys_of, uniform
from tapegrad.nn.normalisation import batch_norm as normalised

__all__ = ["fast_weights", "gru", "lstm", "rnn"]


def rnn(
    features: int,
    hidden: int,
    layers: int = 1,
    output: str = "last",
    nonlinearity: str = "tanh",
    dropout: float = 0.0,
) -> Model:
    """Layers of `nn.rnn_cell`, of sequences (n, length, features).

    Parameters
    ----------
    features : the number of features of an entry.
    hidden : the number of units of a layer.
    layers : the number of layers.
    output : "last" for the output after the last entry, (n, hidden), or "all" for the outputs after
        each entry, (n, length, hidden).
    nonlinearity : "tanh" or "relu".
    dropout : the probability that an input of a layer is dropped; the first layer drops none.

    Returns
    -------
    A `Model`. Parameters are a list with `weight_ih`, `weight_hh`, `bias_ih` and `bias_hh` of each
    layer, PyTorch's names in the order of `nn.rnn`, initially uniform in +-1 / sqrt(hidden), as in
    `torch.nn.RNN`. `state(n)` has the entry `hidden`, as `nn.rnn` takes and returns it.

    Raises
    ------
    ValueError : an option has another value.
    """
    if nonlinearity not in recurrent.NONLINEAR:
        raise ValueError(f'nonlinearity={nonlinearity!r} should be "tanh" or "relu"')

    def layer(x: Any, state: Any, weights: Any) -> tuple[Any, Any]:
        return recurrent.rnn(x, state, weights, nonlinearity, batch_first=True)

    return _stacked("rnn", layer, 1, features, hidden, layers, output, dropout, (1,))


def gru(
    features: int, hidden: int, layers: int = 1, output: str = "last", dropout: float = 0.0
) -> Model:
    """Layers of `nn.gru_cell`, of sequences (n, length, features); otherwise as `rnn`."""

    def layer(x: Any, state: Any, weights: Any) -> tuple[Any, Any]:
        return recurrent.gru(x, state, weights, batch_first=True)

    return _stacked("gru", layer, 3, features, hidden, layers, output, dropout, (1,))


def lstm(
    features: int,
    hidden: int,
    layers: int = 1,
    output: str = "last",
    dropout: float = 0.0,
    batch_norm: bool = False,
    max_norms: int = 10,
) -> Model:
    """Layers of `nn.lstm_cell`, of sequences (n, length, features).

    With `batch_norm`, the gates and the cell are normalised, as in torch-autograd:

        i, f, g, o = norm(w_ih x + w_hh h), in four parts
        c = norm(sigmoid(f) c + sigmoid(i) tanh(g))
        h = sigmoid(o) tanh(c)

    Parameters
    ----------
    features, hidden, layers, output, dropout : as in `rnn`.
    batch_norm : see above; then pass `state=`.
    max_norms : the number of entries with their own running statistics, since the first ones
        differ; later entries share the last statistics.

    Returns
    -------
    A `Model`. Parameters are as in `rnn`; with `batch_norm`, `norm_gates` and `norm_cell` replace
    the biases, each with a `weight`, initially 0.1, and a `bias`, initially 0. State: `hidden` is a
    pair `h, c`; with `batch_norm`, `statistics` has the running statistics of each layer.

    Raises
    ------
    ValueError : an option has another value.
    """
    if not batch_norm:

        def layer(x: Any, state: Any, weights: Any) -> tuple[Any, Any]:
            return recurrent.lstm(x, state, weights, batch_first=True)

        return _stacked("lstm", layer, 4, features, hidden, layers, output, dropout, (1, 1))
    if max_norms < 1:
        raise ValueError(f"max_norms={max_norms} should be at least 1")
    return _normalised(features, hidden, layers, output, dropout, max_norms)


def fast_weights(
    features: int,
    hidden: int,
    layers: int = 1,
    output: str = "last",
    decay: float = 0.9,
    rate: float = 0.5,
    inner: int = 1,
    layer_norm: bool = True,
    dropout: float = 0.0,
) -> Model:
    """Layers of `nn.fast_weights_cell`, of sequences (n, length, features).

    torch-autograd calls `decay` lambda, `rate` eta and `inner` S.

    Parameters
    ----------
    features, hidden, layers, output, dropout : as in `rnn`.
    decay, rate, inner, layer_norm : as in `nn.fast_weights_cell`.

    Returns
    -------
    A `Model`. Parameters are as in `rnn`. State: `hidden` is a pair `h, A`.

    Raises
    ------
    ValueError : an option has another value.
    """

    def layer(x: Any, state: Any, weights: Any) -> tuple[Any, Any]:
        return recurrent.fast_weights(
            x, state, weights, decay, rate, inner, layer_norm, batch_first=True
        )

    return _stacked("fast_weights", layer, 1, features, hidden, layers, output, dropout, (1, 2))


NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def _starts(gates: int, features: int, hidden: int, layers: int) -> list[dict[str, Any]]:
    bound, rows = 1 / math.sqrt(max(hidden, 1)), gates * hidden
    shapes = [
        ((rows, hidden if layer else features), (rows, hidden), (rows,), (rows,))
        for layer in range(layers)
    ]
    return [
        {name: uniform(bound, *shape) for name, shape in zip(NAMES, each, strict=True)}
        for each in shapes
    ]


def _check(name: str, layers: int, output: str, p: float) -> None:
    if output not in ("last", "all") or layers < 1:
        raise ValueError(
            f'{name}: output={output!r} should be "last" or "all", and layers={layers} at least 1'
        )
    check_probability(name, "dropout", p)


def _sequences(name: str, x: Any, features: int) -> Any:
    x = as_array(x)
    if x.ndim != 3 or x.shape[-1] != features or not x.shape[1]:
        raise ValueError(
            f"{name}: sequences have the shape {x.shape}, and should have (n, length, {features})"
        )
    return x


def _hidden(name: str, state: Any, wanted: list[tuple[int, ...]]) -> Any:
    """The hidden states from which a call continues, or None; a ValueError for other shapes."""
    given = state.get("hidden") if state else None
    if given is not None:
        shapes = [np.shape(s) for s in (given if len(wanted) > 1 else [given])]
        if shapes != wanted:
            raise ValueError(f"{name}: hidden states have {shapes}, and should have {wanted}")
    return given


def _stacked(
    name: str,
    layer: Callable[[Any, Any, Any], tuple[Any, Any]],
    gates: int,
    features: int,
    hidden: int,
    layers: int,
    output: str,
    p: float,
    ranks: tuple[int, ...],
) -> Model:
    """Layers of a function of `nn.recurrent`; part k of its state has `ranks[k]` axes of the hidden
    size."""
    _check(name, layers, output, p)

    def apply(params: Any, state: Any, training: bool, rng: Any, x: Any) -> tuple[Any, Any]:
        x = _sequences(name, x, features)
        given = _hidden(name, state, [(layers, len(x), *[hidden] * rank) for rank in ranks])
        pair = given is not None and len(ranks) > 1
        lasts = []
        for k, draws in enumerate(keys_of(rng, layers)):
            if k:
                x = of_arrays.dropout(x, p, training, rng=draws)
            before = given
            if given is not None:
                before = tuple([s[k : k + 1] for s in given]) if pair else given[k : k + 1]
            x, last = layer(x, before, [[params[k][name] for name in NAMES]])
            lasts.append(last)
        after: dict[str, Any] = {}
        if pair:
            after["hidden"] = tuple([np.concatenate(s) for s in zip(*lasts, strict=True)])
        elif given is not None:
            after["hidden"] = np.concatenate(lasts)
        return x if output == "all" else x[:, -1], after

    def fresh(n: int | None) -> Any:
        if n is None:
            return {}
        found = tuple([full(0.0, layers, n, *[hidden] * rank) for rank in ranks])
        return {"hidden": found if len(ranks) > 1 else found[0]}

    return Model(
        f"{name}({features}, {hidden})", _starts(gates, features, hidden, layers), apply, fresh
    )


def _normalised(
    features: int, hidden: int, layers: int, output: str, p: float, max_norms: int
) -> Model:
    """`lstm` with batch normalisation."""
    _check("lstm", layers, output, p)
    sizes = {"gates": 4 * hidden, "cell": hidden}
    starts = _starts(4, features, hidden, layers)
    for each in starts:
        del each["bias_ih"], each["bias_hh"]
        for part, size in sizes.items():
            each[f"norm_{part}"] = {"weight": full(0.1, size), "bias": full(0.0, size)}

    def apply(params: Any, state: Any, training: bool, rng: Any, x: Any) -> tuple[Any, Any]:
        x = _sequences("lstm", x, features)
        if not state and not training:
            raise ValueError("lstm: without training batch_norm needs state=, of model.state()")
        known = state["statistics"] if state else drawn(statistics, None, x.dtype)
        given = _hidden("lstm", state, [(layers, len(x), hidden)] * 2)
        found, ends = [], []
        for k, draws in enumerate(keys_of(rng, layers)):
            if k:
                x = of_arrays.dropout(x, p, training, rng=draws)
            zeros = np.zeros((len(x), hidden), np.result_type(x, params[k]["weight_ih"]))
            start = (zeros, zeros) if given is None else tuple([s[k] for s in given])
            x, last, statistic = _normalised_layer(x, start, params[k], known[k], training)
            found.append(statistic)
            ends.append(last)
        after: dict[str, Any] = {"statistics": found}
        if given is not None:
            after["hidden"] = tuple([np.stack(s) for s in zip(*ends, strict=True)])
        return x if output == "all" else x[:, -1], after

    statistics = [
        {
            part: {"mean": full(0.0, max_norms, size), "var": full(1.0, max_norms, size)}
            for part, size in sizes.items()
        }
        for _ in range(layers)
    ]

    def fresh(n: int | None) -> Any:
        if n is None:
            return {"statistics": statistics}
        zeros = full(0.0, layers, n, hidden)
        return {"statistics": statistics, "hidden": (zeros, zeros)}

    return Model(f"lstm({features}, {hidden}, batch_norm=True)", starts, apply, fresh)


def _normalised_layer(
    x: Any, start: tuple[Any, Any], params: Any, known: Any, training: bool
) -> tuple[Any, Any, Any]:
    """The outputs of a layer, its final state, and the updated running statistics."""
    entries = np.swapaxes(x @ np.swapaxes(params["weight_ih"], 0, 1), 0, 1)
    count = len(known["gates"]["mean"])

    def one(carry: Any, x: Any) -> Any:
        (h, c), known, t = carry
        after = {}

        def norm(part: str, x: Any) -> Any:
            own, here = params[f"norm_{part}"], (np.arange(count) == t)[:, None]
            found, *new = normalised(
                x,
                known[part]["mean"][t],
                known[part]["var"][t],
                own["weight"],
                own["bias"],
                training,
                return_statistics=True,
            )
            names = zip(("mean", "var"), new, strict=True)
            after[part] = {name: np.where(here, s, known[part][name]) for name, s in names}
            return found

        gates = norm("gates", x + h @ np.swapaxes(params["weight_hh"], 0, 1))
        i, f, g, o = np.split(gates, 4, axis=-1)
        c = norm("cell", sigmoid(f) * c + sigmoid(i) * np.tanh(g))
        h = sigmoid(o) * np.tanh(c)
        return ((h, c), after, np.minimum(t + 1, count - 1)), h

    (last, after, _), outputs = scan(one, (start, known, 0), entries)
    return np.swapaxes(outputs, 0, 1), last, after
