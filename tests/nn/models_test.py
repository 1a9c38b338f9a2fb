"""Models, beside PyTorch's modules and beside plain NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from tests.nn.agreeing import agrees_with_torch, drawn, gradients
from tests.nn.recurrent_test import plain_fast, plain_gru, plain_lstm, plain_rnn

from tapegrad import grad, gradcheck, jit, nn, optim, random, trace, value_and_grad, vmap
from tapegrad.nn import models
from tapegrad.trees import tree_flatten, tree_leaves, tree_map, tree_unflatten

RNG = np.random.default_rng
MODES = pytest.mark.parametrize("mode", ["never", "always"])


def of_leaves(model, **options):
    """The model as a function of its input and the leaves of its parameters, and these, moved from
    where they start so that none is 0."""
    params = model.init(RNG(1), float)
    params = tree_map(lambda w: w + RNG(2).normal(size=w.shape) / 10, params)
    paths, leaves, structure = tree_flatten(params, paths=True)

    def function(x, *leaves):
        return model(tree_unflatten(structure, list(leaves)), x, **options)

    return function, leaves, paths


def has_torchs_values(pytorch, model, module, x, mode, name_of, call=None, **options):
    """`name_of(path)` is the name that PyTorch has for a parameter."""
    ours, leaves, paths = of_leaves(model, **options)

    def theirs(torch):
        there = module(torch).double()
        wanted = [name_of(*path) for path in paths]
        assert sorted(wanted) == sorted(name for name, _ in there.named_parameters())

        def function(x, *leaves):
            given = dict(zip(wanted, leaves, strict=True))
            found = torch.func.functional_call(there, given, (x,))
            return call(found) if call else found

        return function

    agrees_with_torch(pytorch, ours, theirs, [x, *leaves], mode, 1e-11)


@MODES
def test_mlp_is_torchs(mode, pytorch):
    def module(torch):
        return torch.nn.Sequential(
            torch.nn.Linear(4, 5),
            torch.nn.BatchNorm1d(5),
            torch.nn.Tanh(),
            torch.nn.Linear(5, 6),
            torch.nn.BatchNorm1d(6),
            torch.nn.GELU(),
            torch.nn.Linear(6, 3),
        )

    model = models.mlp(4, [5, 6, 3], ["tanh", "gelu", "relu"], classifier=True, batch_norm=True)

    def name_of(layer, part, name):
        return f"{3 * layer + (part == 'norm')}.{name}"

    has_torchs_values(pytorch, model, module, *drawn((7, 4)), mode, name_of, training=True)


@pytest.mark.every(2)
@MODES
def test_lenet_is_torchs(mode, pytorch):
    def module(torch):
        return torch.nn.Sequential(
            torch.nn.Conv2d(1, 2, 5, padding=2),
            torch.nn.Tanh(),
            torch.nn.MaxPool2d(2),
            torch.nn.Conv2d(2, 3, 3, padding=0),
            torch.nn.Tanh(),
            torch.nn.MaxPool2d(2),
            torch.nn.Flatten(),
            torch.nn.Linear(12, 5),
            torch.nn.Tanh(),
            torch.nn.Linear(5, 4),
        )

    model = models.spatial(
        1,
        (12, 12),
        [2, 3],
        [5, 4],
        kernel_sizes=[5, 3],
        paddings=[None, 0],
        poolings=2,
        activations="tanh",
    )

    def name_of(part, layer, _, name):
        return f"{3 * layer if part == 'maps' else 7 + 2 * layer}.{name}"

    has_torchs_values(pytorch, model, module, *drawn((2, 1, 12, 12)), mode, name_of)


@pytest.mark.every(4)
@MODES
@pytest.mark.parametrize("output", ["last", "all"])
@pytest.mark.parametrize("name", ["rnn", "lstm", "gru"])
def test_recurrent_models_are_torchs(name, output, mode, pytorch):
    model = getattr(models, name)(3, 4, layers=2, output=output)
    has_torchs_values(
        pytorch,
        model,
        lambda torch: getattr(torch.nn, name.upper())(3, 4, 2, batch_first=True),
        *drawn((2, 5, 3)),
        mode,
        lambda layer, name: f"{name}_l{layer}",
        lambda found: found[0] if output == "all" else found[0][:, -1],
    )


@pytest.mark.every(4)
@MODES
@pytest.mark.parametrize("pre_norm", [True, False])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_a_transformer_block_is_torchs(activation, pre_norm, mode, pytorch):
    has_torchs_values(
        pytorch,
        models.transformer_block(6, 2, 5, activation, pre_norm=pre_norm),
        lambda torch: torch.nn.TransformerEncoderLayer(
            6, 2, 5, 0.0, activation, batch_first=True, norm_first=pre_norm
        ),
        *drawn((2, 4, 6)),
        mode,
        lambda *path: ".".join(path),
    )


def test_a_causal_transformer_is_torchs(pytorch):
    def module(torch):
        class Causal(torch.nn.TransformerEncoder):
            def forward(self, x):
                mask = torch.triu(torch.full((4, 4), -torch.inf), 1)
                return super().forward(x, mask=mask.double())

        layer = torch.nn.TransformerEncoderLayer(6, 3, 24, 0.0, batch_first=True, norm_first=True)
        return Causal(layer, 2, torch.nn.LayerNorm(6), enable_nested_tensor=False)

    model = models.transformer(6, 3, 2, causal=True)
    (x,) = drawn((2, 4, 6))
    has_torchs_values(pytorch, model, module, x, "always", lambda *path: ".".join(map(str, path)))


@pytest.mark.parametrize(
    ("model", "module"),
    [
        (models.linear(300, 200), lambda torch: torch.nn.Linear(300, 200)),
        (models.conv2d(30, 20, 5), lambda torch: torch.nn.Conv2d(30, 20, 5)),
        (models.embedding(200, 300), lambda torch: torch.nn.Embedding(200, 300)),
        (models.layer_norm(3), lambda torch: torch.nn.LayerNorm(3)),
        (models.batch_norm(3), lambda torch: torch.nn.BatchNorm1d(3)),
        (models.rnn(300, 100), lambda torch: torch.nn.RNN(300, 100)),
        (models.lstm(300, 100, 2), lambda torch: torch.nn.LSTM(300, 100, 2)),
        (
            models.transformer_block(48, 4),
            lambda torch: torch.nn.TransformerEncoderLayer(48, 4, 192),
        ),
    ],
    ids=lambda x: repr(x) if isinstance(x, models.Model) else "",
)
def test_parameters_start_as_torchs(model, module, pytorch):
    """As large, each for itself, and float32."""
    found = tree_leaves(model.init(RNG(0)))
    assert {w.dtype for w in found} == {np.dtype("f4")}

    def told(arrays):
        return sorted([*w.shape, *map(float, (w.std(), abs(w).max()))] for w in arrays)

    def theirs(torch):
        torch.manual_seed(0)
        return told([w.detach().numpy() for w in module(torch).parameters()])

    for a, b in zip(told(found), pytorch.numbers(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=0.15, atol=1e-3)


# ---- beside plain NumPy


def plain_conv(x, padding, weight, bias):
    x = np.pad(x, [(0, 0)] * 2 + [(padding, padding)] * 2)
    windows = np.lib.stride_tricks.sliding_window_view(x, weight.shape[2:], (2, 3))
    return np.einsum("nchwij,ocij->nohw", windows, weight) + bias[:, None, None]


def plain_pool(x):
    n, c, h, w = x.shape
    x = x[:, :, : h // 2 * 2, : w // 2 * 2]
    return x.reshape(n, c, h // 2, 2, w // 2, 2).max((3, 5))


def plain_norm(x, axis, weight=1.0, bias=0.0):
    x = x - x.mean(axis, keepdims=True)
    return x / np.sqrt((x * x).mean(axis, keepdims=True) + 1e-5) * weight + bias


def linear(x, params):
    return x @ params["weight"].T + params["bias"]


def plain_mlp(params, x):
    for number, layer in enumerate(params):
        x = linear(x, layer["linear"])
        x = x if number == len(params) - 1 else np.maximum(x, 0)
    return x


def plain_lenet(params, x):
    for layer, padding in zip(params["maps"], (1, 0), strict=True):
        x = plain_pool(np.tanh(plain_conv(x, padding, **layer["conv"])))
    x = x.reshape(len(x), -1)
    (layer,) = params["hidden"]
    return linear(x, layer["linear"])


def plain_recurrent(step, memory):
    def of(params, x):
        state = [[np.zeros((len(x), 2)), np.zeros((len(x), *memory))] for _ in params]
        outputs = []
        for t in range(x.shape[1]):
            entry = x[:, t]
            for number, layer in enumerate(params):
                names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
                state[number] = step(entry, *state[number], *[layer[name] for name in names])
                entry = state[number][0]
            outputs.append(entry)
        return np.stack(outputs, 1)

    return of


def plain_transformer(params, x):
    for layer in params["layers"]:
        own = layer["self_attn"]
        parts = plain_norm(x, -1, **layer["norm1"])
        parts = np.split(parts @ own["in_proj_weight"].T + own["in_proj_bias"], 3, axis=-1)
        heads = []
        for half in (slice(0, 2), slice(2, 4)):
            query, key, value = (part[..., half] for part in parts)
            scores = np.exp(np.einsum("nie,nje->nij", query, key) / np.sqrt(2))
            scores = scores * np.tri(x.shape[1])
            heads.append(scores / scores.sum(-1, keepdims=True) @ value)
        x = x + linear(np.concatenate(heads, -1), own["out_proj"])
        y = np.maximum(linear(plain_norm(x, -1, **layer["norm2"]), layer["linear1"]), 0)
        x = x + linear(y, layer["linear2"])
    return plain_norm(x, -1, **params["norm"])


SMALL = {
    "mlp": (models.mlp(3, [4, 2], classifier=True), plain_mlp, (5, 3)),
    "lenet": (
        models.spatial(1, (10, 10), [2, 2], [3], 3, [None, 0], poolings=2, activations="tanh"),
        plain_lenet,
        (2, 1, 10, 10),
    ),
    "rnn": (models.rnn(3, 2, 2, "all"), plain_recurrent(plain_rnn, (2,)), (2, 4, 3)),
    "gru": (models.gru(3, 2, 2, "all"), plain_recurrent(plain_gru, (2,)), (2, 4, 3)),
    "lstm": (models.lstm(3, 2, 2, "all"), plain_recurrent(plain_lstm, (2,)), (2, 4, 3)),
    "fast_weights": (
        models.fast_weights(3, 2, 1, "all", rate=0.4, inner=2),
        plain_recurrent(plain_fast, (2, 2)),
        (2, 4, 3),
    ),
    "transformer": (
        models.transformer(4, 2, 2, 3, causal=True),
        plain_transformer,
        (2, 3, 4),
    ),
}


@pytest.mark.every(6)
@pytest.mark.parametrize("name", SMALL)
def test_models_are_their_formulas(name):
    """Played and compiled alike, and derivatives are those of differences."""
    model, plain, shape = SMALL[name]
    (x,) = drawn(shape)
    ours, leaves, _ = of_leaves(model)
    params = tree_unflatten(tree_flatten(model.init(RNG(0)))[1], leaves)
    np.testing.assert_allclose(ours(x, *leaves), plain(params, x), rtol=1e-9, atol=1e-12)
    _, played = gradients(ours, [x, *leaves], "never")
    _, compiled = gradients(ours, [x, *leaves], "always")
    for a, b in zip(played, compiled, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)
    assert gradcheck(ours, (x, *leaves))


def test_soft_attention_normalises_its_scores():
    model = models.soft_attention(4, 5, 2, layer_norm=True)
    params = model.init(RNG(0), float)
    subject, hidden = drawn((3, 4, 5), (3, 2))
    out, weights = model(params, subject, hidden)
    scores = np.einsum("fk,nfk->nk", params["weight_subject"], subject)
    scores = plain_norm(scores + hidden @ params["weight_hidden"], 1)
    wanted = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    np.testing.assert_allclose(weights, wanted, rtol=1e-12)
    np.testing.assert_allclose(out, np.einsum("nk,nfk->nf", wanted, subject), rtol=1e-12)
    assert gradcheck(model, (params, subject, hidden))
    bare = models.soft_attention(4, 5, 2)
    given = bare.init(RNG(0), float)
    found = bare(given, subject, hidden)
    np.testing.assert_array_equal(found[0], nn.soft_attention(subject, hidden, **given)[0])


# ---- states


def plain_normalised_lstm(params, x, h, c, count):
    """One layer, with the batch's statistics; the running ones, which start with 0 and 1."""
    running = {
        part: {"mean": np.zeros((count, size)), "var": np.ones((count, size))}
        for part, size in (("gates", 4 * h.shape[1]), ("cell", h.shape[1]))
    }

    def norm(part, z, t):
        at, own = min(t, count - 1), params[f"norm_{part}"]
        for name, new in (("mean", z.mean(0)), ("var", z.var(0, ddof=1))):
            running[part][name][at] = 0.9 * running[part][name][at] + 0.1 * new
        return plain_norm(z, 0, **own)

    outputs = []
    for t in range(x.shape[1]):
        z = norm("gates", x[:, t] @ params["weight_ih"].T + h @ params["weight_hh"].T, t)
        i, f, g, o = np.split(z, 4, axis=1)
        i, f, o = (1 / (1 + np.exp(-z)) for z in (i, f, o))
        c = norm("cell", f * c + i * np.tanh(g), t)
        h = o * np.tanh(c)
        outputs.append(h)
    return np.stack(outputs, 1), h, c, running


@MODES
def test_lstm_with_batch_normalisation_is_its_formula(mode):
    model = models.lstm(3, 2, output="all", batch_norm=True, max_norms=3)
    params = model.init(RNG(0), float)
    (x,) = drawn((6, 5, 3))
    state = model.state(6, float)
    zeros = np.zeros((6, 2))
    wanted, h, c, running = plain_normalised_lstm(params[0], x, zeros, zeros, 3)

    def ours(params, x, state):
        return model(params, x, state=state, training=True)

    for f in (ours, jit(ours, compile=mode)):
        found, after = f(params, x, state)
        np.testing.assert_allclose(found, wanted, rtol=1e-9)
        np.testing.assert_allclose(after["hidden"], [h[None], c[None]], rtol=1e-9)
        for a, b in zip(tree_leaves(after["statistics"]), tree_leaves(running), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9)
    assert not any(np.any(s) for s in state["hidden"])  # nothing is written into
    assert gradcheck(lambda params, x: model(params, x, training=True), (params, x))
    calm, same = model(params, x, state=after)
    assert not np.allclose(calm, wanted)
    np.testing.assert_array_equal(*[tree_leaves(s["statistics"])[0] for s in (same, after)])


@MODES
def test_running_statistics_are_torchs(mode, pytorch):
    model = models.mlp(3, [4, 2], batch_norm=True)
    params, (x,) = model.init(RNG(0)), drawn((6, 3), dtype="f4")
    step = jit(lambda *xs, state: model(*xs, state=state, training=True), compile=mode)
    state = model.state()
    for k in range(3):
        _, state = step(params, x * (k + 1), state=state)

    def theirs(torch):
        norm = torch.nn.BatchNorm1d(4)
        for k in range(3):
            norm(torch.tensor(linear(x * (k + 1), params[0]["linear"])))
        return norm.running_mean, norm.running_var

    pytorch.agrees([state[0]["norm"][name] for name in ("mean", "var")], theirs, 1e-5)
    calm, after = model(params, x, state=state)
    assert calm.shape == (6, 2)
    np.testing.assert_array_equal(after[0]["norm"]["mean"], state[0]["norm"]["mean"])
    np.testing.assert_array_equal(calm[:2], model(params, x[:2], state=state)[0])


@pytest.mark.parametrize("name", ["rnn", "gru", "lstm", "fast_weights"])
def test_a_sequence_may_come_in_parts(name):
    model = getattr(models, name)(3, 2, 2, "all")
    params, (x,) = model.init(RNG(0), float), drawn((2, 7, 3))
    whole, end = model(params, x, state=model.state(2, float))
    np.testing.assert_array_equal(whole, model(params, x))
    first, state = model(params, x[:, :4], state=model.state(2, float))
    second, state = model(params, x[:, 4:], state=state)
    np.testing.assert_allclose(np.concatenate([first, second], 1), whole, rtol=1e-12)
    for a, b in zip(tree_leaves(state), tree_leaves(end), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_the_state_of_a_chain_is_those_of_its_parts():
    model = models.sequential(
        embed=models.embedding(5, 3),
        body=models.lstm(3, 2, output="all", batch_norm=True),
        squash=np.tanh,
        last=models.linear(2, 5),
    )
    params, state = model.init(RNG(0)), model.state(3)
    assert list(params) == ["embed", "body", "last"] and list(state) == ["body"]
    out, after = model(params, np.arange(12).reshape(3, 4) % 5, state=state, training=True)
    assert out.shape == (3, 4, 5)
    assert tree_map(np.shape, after) == tree_map(np.shape, state)
    listed = models.sequential(models.linear(2, 3), np.tanh, models.batch_norm(3))
    assert tree_map(np.shape, listed.init(RNG(0))[1]) == {}
    assert listed.state()[:2] == [{}, {}]


# ---- loops, draws, trees


@pytest.mark.every(2)
@pytest.mark.parametrize("options", [{}, {"batch_norm": True}])
def test_steps_are_rounds_of_a_loop(options):
    """The tape doesn't grow with the length, and machine code serves any."""
    model = models.lstm(3, 2, **options)
    params = model.init(RNG(0))

    def loss(params, x):
        return np.sum(model(params, x, training=True) ** 2)

    sizes = []
    for length in (20, 50):
        (x,) = drawn((4, length, 3), dtype="f4")
        sizes.append(len(trace(loss, params, x)[1].calls))
    assert sizes[0] == sizes[1] < 40
    df, made = grad(loss, compile="always"), []
    for length in range(20, 26):
        df(params, drawn((4, length, 3), dtype="f4")[0])
        made.append(df.cache_info().kernels)
    assert made[2] == made[-1] > 0


def test_dropout_draws_as_numpy_does():
    model = models.mlp(3, [4, 2], classifier=True, dropout=[0.5, 0.25])
    params, (x,) = model.init(RNG(0), float), drawn((5, 3))
    rng = RNG(3)
    kept = [rng.random((5, 3)) >= 0.5, rng.random((5, 4)) >= 0.25]
    h = np.maximum(linear(x * kept[0] / 0.5, params[0]["linear"]), 0)
    wanted = linear(h * kept[1] / 0.75, params[1]["linear"])
    np.testing.assert_allclose(model(params, x, training=True, rng=RNG(3)), wanted, rtol=1e-12)
    f = jit(lambda params, x, rng: model(params, x, training=True, rng=rng), compile="always")
    np.testing.assert_allclose(f(params, x, RNG(3)), wanted, rtol=1e-12)
    np.testing.assert_array_equal(model(params, x, rng=RNG(3)), plain_mlp(params, x))


def test_a_key_is_split_for_those_that_draw():
    """Or two layers of one size would drop the same."""
    drop = models.dropout(0.5)
    model = models.sequential(drop, drop)
    x, key = np.ones(2000), random.key(0)
    found = model([{}, {}], x, training=True, rng=key)
    assert set(found) == {0.0, 4.0} and abs(np.mean(found == 4) - 0.25) < 0.05
    np.testing.assert_array_equal(found, model([{}, {}], x, training=True, rng=key))
    maps = models.dropout(0.5, channels=True)({}, np.ones((9, 8, 2, 3)), training=True, rng=key)
    assert set(np.ptp(maps, axis=(2, 3)).ravel()) == {0.0} and set(maps.ravel()) == {0.0, 2.0}


@pytest.mark.parametrize("name", ["gru", "transformer"])
def test_dropout_of_layers_is_drawn_in_training(name):
    model = {
        "gru": models.gru(4, 4, 2, "all", dropout=0.5),
        "transformer": models.transformer(4, 2, 1, dropout=0.5),
    }[name]
    params, (x,) = model.init(RNG(0)), drawn((2, 5, 4), dtype="f4")
    one, again, other = (model(params, x, training=True, rng=RNG(k)) for k in (0, 0, 1))
    np.testing.assert_array_equal(one, again)
    assert not np.allclose(one, other) and one.dtype == np.float32
    np.testing.assert_array_equal(model(params, x), model(params, x, rng=RNG(1)))


def test_the_norm_of_a_small_transformers_slopes_compiles():
    """LLVM gave up where it compared two float32 numbers at once for the largest of a row."""
    model = models.sequential(
        models.embedding(20, 8, 8),
        models.transformer(8, 2, 1, causal=True),
        models.linear(8, 20),
    )
    params, letters = model.init(RNG(0)), RNG(0).integers(0, 20, (4, 8))

    def norm(params, letters):
        slopes = grad(lambda params: np.sum(model(params, letters) ** 2))(params)
        return optim.global_norm(slopes)

    found, wanted = (jit(norm, compile=how)(params, letters) for how in ("always", "never"))
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_parameters_are_ordinary_trees(tmp_path):
    """Several models side by side, a step of training, a file."""
    model = models.mlp(3, [4, 1], "tanh", classifier=True)
    several = [model.init(RNG(seed)) for seed in range(3)]
    (x,) = drawn((6, 3), dtype="f4")
    y = np.sum(x, axis=1, keepdims=True)
    stacked = tree_map(lambda *ws: np.stack(ws), *several)
    found = vmap(model, in_axes=(0, None))(stacked, x)
    np.testing.assert_allclose(found, [model(params, x) for params in several], rtol=1e-5)

    def loss(params, x, y):
        return nn.mse_loss(model(params, x), y)

    params = several[0]
    rule = optim.adam(0.05)
    state = rule.init(params)
    before = loss(params, x, y)
    for _ in range(30):
        _, slopes = value_and_grad(loss)(params, x, y)
        params, state = rule.update(slopes, state, params)
    assert loss(params, x, y) < before / 4
    optim.save_tree(tmp_path / "params.npz", params)
    again, _ = optim.load_tree(tmp_path / "params.npz", like=model.init(RNG(0)))
    np.testing.assert_array_equal(model(again, x), model(params, x))


def test_alexnets_shape():
    """Large kernels with a stride, poolings that overlap, dropout of the layers behind."""
    model = models.spatial(
        3,
        (63, 63),
        [4, 6, 8],
        [10, 10, 5],
        kernel_sizes=[11, 5, 3],
        paddings=[2, 2, 1],
        input_stride=4,
        poolings=[(3, 2), (3, 2), 1],
        hidden_dropout=[0.5, 0.5, 0.0],
        batch_norm=True,
    )
    params, (x,) = model.init(RNG(0)), drawn((2, 3, 63, 63), dtype="f4")
    found, state = model(params, x, state=model.state(), training=True, rng=RNG(0))
    assert found.shape == (2, 5) and found.dtype == np.float32
    assert params["hidden"][0]["linear"]["weight"].shape == (10, 8 * 3 * 3)
    assert model(params, x, state=state)[0].shape == (2, 5)
    maps = models.spatial(3, (63, 63), [4], kernel_sizes=4, paddings=0)
    assert maps(maps.init(RNG(0)), x).shape == (2, 4, 60, 60)


def test_what_does_not_fit_is_refused():
    mlp, lstm = models.mlp(3, [4, 2]), models.lstm(3, 2, 2)
    block = models.transformer_block(4, 2)
    params, (x,) = mlp.init(RNG(0)), drawn((5, 4))
    normed = models.mlp(3, [4, 2], batch_norm=True)
    places = models.embedding(5, 3, length=2)
    sequences = np.zeros((2, 5, 3))
    for call, message in [
        (lambda: mlp(lstm.init(RNG(0)), x), r"mlp: there is no params\[0\]\['linear'\]\['bias'\]"),
        (lambda: mlp([*params, params[0]], x), r"it has no parameter params\[2\]"),
        (
            lambda: mlp([params[0], params[0]], x),
            r"params\[1\]\['linear'\]\['bias'\] has shape \(4,\), and must have \(2,\)",
        ),
        (lambda: normed(normed.init(RNG(0)), x[:, :3]), "model.state"),
        (lambda: lstm(lstm.init(RNG(0)), x), r"\(5, 4\), and should have \(n, length, 3\)"),
        (
            lambda: lstm(lstm.init(RNG(0)), sequences, state=lstm.state(1)),
            r"have \[\(2, 1, 2\), \(2, 1, 2\)\], and should have \[\(2, 2, 2\)",
        ),
        (lambda: block(block.init(RNG(0)), x[0]), r"\(4,\), and should have \(\.\.\., length"),
        (lambda: places(places.init(RNG(0)), np.zeros((2, 3), int)), "2 places"),
        (lambda: models.lstm(3, 2, output="first"), '"last" or "all"'),
        (lambda: models.lstm(3, 2, batch_norm=True, max_norms=0), "at least 1"),
        (lambda: models.rnn(3, 2, nonlinearity="sin"), '"tanh" or "relu"'),
        (lambda: models.transformer_block(5, 2), "2 equal parts"),
        (lambda: models.transformer(4, 2, 0), "at least 1"),
        (lambda: models.mlp(3, [4, 2], dropout=[0.1]), "1 items for 2 layers"),
        (lambda: models.mlp(3, [4, 2], dropout=1.5), "from 0 to 1"),
        (lambda: models.mlp(3, [4, 2], "sine"), "'sine' is no function"),
        (lambda: models.spatial(1, (4, 4), [2, 2], poolings=4), "after layer 1"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()
    for parts, named in [((), {}), ((np.tanh,), {"last": np.tanh}), ((3,), {})]:
        with pytest.raises(TypeError, match=r"^sequential: "):
            models.sequential(*parts, **named)
    with pytest.raises(ValueError, match=r"\(5, 4\) and weight \(4, 3\)") as told:
        mlp(params, x)
    assert told.value.__notes__[-1] == "In part 0 of mlp, Model(layer)."
    assert "part 'linear'" in told.value.__notes__[0]
