"""Recurrent cells and layers, beside PyTorch's and beside plain steps."""

import itertools

import numpy as np
import pytest
from tests.nn.agreeing import agrees_with_torch, drawn, gradients

from tapegrad import gradcheck, nn, trace

GATES = {"rnn": 1, "gru": 3, "lstm": 4}


def weights(gates, features, hidden, layers=1, ways=1):
    """In the order of the parameters of PyTorch's modules."""
    shapes = []
    for layer in range(layers):
        width = features if layer == 0 else ways * hidden
        for _ in range(ways):
            shapes += [(gates * hidden, width), (gates * hidden, hidden)]
            shapes += [(gates * hidden,)] * 2
    return drawn(*shapes)


def in_fours(flat):
    return [flat[k : k + 4] for k in range(0, len(flat), 4)]


@pytest.mark.every(4)
@pytest.mark.parametrize("mode", ["never", "always"])
@pytest.mark.parametrize(
    ("name", "layers", "ways", "options"),
    [
        ("rnn", 2, 1, {}),
        ("rnn", 1, 2, {"nonlinearity": "relu"}),
        ("gru", 2, 2, {}),
        ("lstm", 1, 1, {"batch_first": True}),
        ("lstm", 2, 2, {}),
    ],
)
def test_layers_are_torchs(name, layers, ways, options, mode, pytorch):
    flat = weights(GATES[name], 3, 4, layers, ways)
    (x,) = drawn((6, 5, 3))
    states = drawn((layers * ways, 6 if options.get("batch_first") else 5, 4))
    states = states * 2 if name == "lstm" else states

    def theirs(torch):
        module = getattr(torch.nn, name.upper())(
            3, 4, layers, bidirectional=ways == 2, dtype=torch.float64, **options
        )
        names = [key for key, _ in module.named_parameters()]

        def function(x, *rest):
            given = rest[: len(states)]
            state = tuple(given) if name == "lstm" else given[0]
            parameters = dict(zip(names, rest[len(states) :], strict=True))
            out, last = torch.func.functional_call(module, parameters, (x, state))
            last = last if name == "lstm" else [last]
            return torch.cat([out.ravel(), *[s.ravel() for s in last]])

        return function

    def ours(x, *rest):
        given = rest[: len(states)]
        state = tuple(given) if name == "lstm" else given[0]
        layered = in_fours(rest[len(states) :])
        out, last = getattr(nn, name)(x, state, layered, bidirectional=ways == 2, **options)
        last = last if name == "lstm" else [last]
        return np.concatenate([out.ravel(), *[s.ravel() for s in last]])

    agrees_with_torch(pytorch, ours, theirs, [x, *states, *flat], mode, 1e-12)


@pytest.mark.every(2)
@pytest.mark.parametrize("name", GATES)
def test_cells_are_torchs(name, pytorch):
    flat = weights(GATES[name], 3, 4)
    x, h, c = drawn((5, 3), (5, 4), (5, 4))
    kind = {"rnn": "RNNCell", "gru": "GRUCell", "lstm": "LSTMCell"}[name]
    ours = getattr(nn, f"{name}_cell")

    def theirs(torch):
        cell = getattr(torch.nn, kind)(3, 4, dtype=torch.float64)
        names = [key for key, _ in cell.named_parameters()]

        def function(x, h, c, *flat):
            parameters = dict(zip(names, flat, strict=True))
            given = x, (h, c) if name == "lstm" else h
            found = torch.func.functional_call(cell, parameters, given)
            return torch.cat(found) if name == "lstm" else torch.cat([found, c])

        return function

    def mine(x, h, c, *flat):
        found = ours(x, (h, c) if name == "lstm" else h, *flat)
        return np.concatenate(found if name == "lstm" else [found, c])

    agrees_with_torch(pytorch, mine, theirs, [x, h, c, *flat], "always", 1e-12)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def plain_lstm(x, h, c, w_ih, w_hh, b_ih, b_hh):
    i, f, g, o = np.split(x @ w_ih.T + b_ih + h @ w_hh.T + b_hh, 4, axis=-1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def plain_gru(x, h, _, w_ih, w_hh, b_ih, b_hh):
    xr, xz, xn = np.split(x @ w_ih.T + b_ih, 3, axis=-1)
    hr, hz, hn = np.split(h @ w_hh.T + b_hh, 3, axis=-1)
    z = sigmoid(xz + hz)
    return (1 - z) * np.tanh(xn + sigmoid(xr + hr) * hn) + z * h, None


def plain_rnn(x, h, _, w_ih, w_hh, b_ih, b_hh):
    return np.tanh(x @ w_ih.T + b_ih + h @ w_hh.T + b_hh), None


def plain_fast(x, h, fast, w_ih, w_hh, b_ih, b_hh):
    fast = 0.9 * fast + 0.4 * np.einsum("ni,nj->nij", h, h)
    slow = x @ w_ih.T + b_ih + h @ w_hh.T + b_hh
    h = np.tanh(slow)
    for _ in range(2):
        h = slow + np.einsum("nij,nj->ni", fast, h)
        h = h - h.mean(1, keepdims=True)
        h = np.tanh(h / np.sqrt((h * h).mean(1, keepdims=True) + 1e-5))
    return h, fast


@pytest.mark.parametrize("mode", ["never", "always"])
@pytest.mark.parametrize(
    ("name", "gates", "step"),
    [("rnn", 1, plain_rnn), ("gru", 3, plain_gru), ("lstm", 4, plain_lstm)],
)
def test_layers_are_loops_of_steps(name, gates, step, mode):
    """Without a batch, both ways, from zeros."""
    flat = weights(gates, 3, 2, 1, 2)
    (x,) = drawn((5, 3))

    def ours(x, *flat):
        return getattr(nn, name)(x, None, in_fours(flat), bidirectional=True)[0]

    found, _ = gradients(ours, [x, *flat], mode)
    for way, order in ((0, range(5)), (1, range(4, -1, -1))):
        h = c = np.zeros(2)
        for t in order:
            h, c = step(x[t], h, c, *in_fours(flat)[way])
            np.testing.assert_allclose(found[t, 2 * way : 2 * way + 2], h, rtol=1e-12)
    assert gradcheck(ours, (x, *flat))


@pytest.mark.parametrize("mode", ["never", "always"])
def test_fast_weights_are_loops_of_steps(mode):
    flat = weights(1, 3, 2)
    (x,) = drawn((4, 2, 3))
    options = {"decay": 0.9, "rate": 0.4, "inner": 2}

    def ours(x, *flat):
        return nn.fast_weights(x, None, in_fours(flat), **options)[0]

    found, _ = gradients(ours, [x, *flat], mode)
    state = np.zeros((2, 2)), np.zeros((2, 2, 2))
    cell = state
    for t in range(4):
        state = plain_fast(x[t], *state, *flat)
        cell = nn.fast_weights_cell(x[t], cell, *flat, **options)
        np.testing.assert_allclose(found[t], state[0], rtol=1e-10)
        np.testing.assert_allclose(cell[1], state[1], rtol=1e-10)
    bare = nn.fast_weights(x, None, [flat[:2]], layer_norm=False, **options)[0]
    assert not np.allclose(bare, found)
    assert gradcheck(ours, (x, *flat))


def test_a_layer_is_one_loop_and_types_stay():
    """The tape doesn't grow with the length."""
    flat = [w.astype("f4") for w in weights(4, 3, 2)]
    (x,) = drawn((50, 2, 3), dtype="f4")
    (out, (h, c)), tape = trace(lambda x, *flat: nn.lstm(x, None, [flat]), x, *flat)
    assert {y.dtype for y in (out, h, c)} == {np.dtype(np.float32)} and len(tape.calls) < 20
    np.testing.assert_array_equal(out[-1], h[0])
    short, _ = nn.lstm(x[:1], (h, c), [flat])
    longer, _ = nn.lstm(np.concatenate([x, x[:1]]), None, [flat])
    np.testing.assert_allclose(longer[-1:], short, rtol=1e-5)


def test_what_does_not_fit_is_refused():
    flat = weights(4, 3, 2)
    (x,) = drawn((5, 2, 3))
    for call, message in [
        (lambda: nn.lstm(x[..., :2], None, [flat]), r"\(8, 3\) .* \(5, 2, 2\)"),
        (lambda: nn.lstm(x, (x, x), [flat]), r"should have \[\(1, 2, 2\), \(1, 2, 2\)\]"),
        (lambda: nn.lstm(x, None, []), "at least one"),
        (lambda: nn.lstm(x, None, [flat], bidirectional=True), "one for each direction"),
        (lambda: nn.rnn(x, None, [flat], nonlinearity="sin"), '"tanh" or "relu"'),
        (lambda: nn.gru_cell(x[0], x[0], *flat), r"\(3 \* hidden, features\)"),
        (lambda: nn.lstm_cell(x[0], (x[0], x[1, :1]), *flat), r"\(1, 3\)"),
        (lambda: nn.rnn_cell(x[0], x[0, 0], *flat), r"\(2, 3\) .* \(3,\)"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()


def by_paths(log_probs, labels, blank):
    """Minus the logarithm of the summed probability of all paths that mean the labels."""
    time, classes = log_probs.shape
    total = 0.0
    for path in itertools.product(range(classes), repeat=time):
        said = [k for k, _ in itertools.groupby(path) if k != blank]
        if said == list(labels):
            total += np.exp(sum(log_probs[t, k] for t, k in enumerate(path)))
    with np.errstate(divide="ignore"):
        return -np.log(total)


LABELS = [[1, 1, 2], [2, 0, 0], [2, 1, 2], [0, 0, 0], [1, 2, 0]]
LENGTHS, COUNTS = [5, 4, 3, 4, 0], [3, 1, 3, 0, 0]


@pytest.mark.parametrize("mode", ["never", "always"])
def test_ctc_sums_over_all_paths(mode):
    (x,) = drawn((5, 5, 3))
    labels = np.array(LABELS)

    def losses(x):
        x = x - np.log(np.sum(np.exp(x), axis=2, keepdims=True))
        return nn.ctc_loss(x, labels, LENGTHS, COUNTS, reduction="none")

    found, _ = gradients(losses, [x], mode)
    logs = x - np.log(np.exp(x).sum(2, keepdims=True))
    for k, (t, n) in enumerate(zip(LENGTHS, COUNTS, strict=True)):
        np.testing.assert_allclose(found[k], by_paths(logs[:t, k], LABELS[k][:n], 0), atol=1e-12)
    assert gradcheck(losses, (x,))
    mean = nn.ctc_loss(logs, labels, LENGTHS, COUNTS)
    np.testing.assert_allclose(mean, np.mean(found / np.maximum(COUNTS, 1)), rtol=1e-12)
    assert nn.ctc_loss(logs.astype("f4"), labels, LENGTHS, COUNTS).dtype == np.float32


@pytest.mark.every(4)
@pytest.mark.parametrize("mode", ["never", "always"])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("flat", [False, True])
def test_ctc_is_torchs(flat, reduction, mode, pytorch):
    """Behind a log_softmax, with targets in rows and one behind the other, some too long."""
    lengths, counts = np.array([6, 5, 2, 6]), np.array([3, 1, 3, 2])
    labels = np.random.default_rng(2).integers(1, 4, (4, 3))
    labels[0] = 1
    labels = labels[np.arange(3) < counts[:, None]] if flat else labels
    options = {"reduction": reduction, "zero_infinity": True}

    def ours(x):
        x = x - np.log(np.sum(np.exp(x), axis=2, keepdims=True))
        return nn.ctc_loss(x, labels, lengths, counts, **options)

    def theirs(torch):
        given = [*map(torch.tensor, (labels, lengths, counts))]
        loss = torch.nn.functional.ctc_loss
        return lambda x: loss(torch.log_softmax(x, 2), *given, **options)

    agrees_with_torch(pytorch, ours, theirs, drawn((6, 4, 5)), mode, 1e-12)


def test_ctc_of_one_entry_and_of_traced_labels():
    (x,) = drawn((6, 4))
    labels = np.array([1, 2])
    alone = nn.ctc_loss(x, labels, 6, 2, blank=3, reduction="none")
    np.testing.assert_allclose(alone, by_paths(x, labels, 3), rtol=1e-12)
    value, _ = trace(lambda *xs: nn.ctc_loss(*xs, blank=3, reduction="sum"), x, labels, 6, 2)
    np.testing.assert_allclose(value, alone, rtol=1e-12)
    for labels, time, n, options, message in [
        ([1, 4], 6, 2, {}, "from 0 to 3"),
        ([1, 2], 7, 2, {}, r"lengths are \[7\] and \[2\]"),
        ([1, 2], [6, 6], 2, {}, r"lengths of \(2,\)"),
        ([1, 2], 6, 2, {"reduction": "max"}, "reduction='max'"),
        ([1.0, 2.0], 6, 2, {}, "should be integers"),
        ([[[1]]], 6, 2, {}, r"targets of the shape \(1, 1, 1\)"),
    ]:
        with pytest.raises(ValueError, match=message):
            nn.ctc_loss(x, labels, time, n, **options)
