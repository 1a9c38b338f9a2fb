"""Functions as PyTorch modules, and PyTorch modules as functions."""

from __future__ import annotations

import copy
import io
import pickle

import numpy as np
import pytest

from tapegrad import hvp, jvp, value_and_grad
from tapegrad.errors import ArgumentError
from tapegrad.nn import functionalize
from tapegrad.trees import tree_leaves, tree_map

torch = pytest.importorskip("torch")

from tapegrad.torch import AutoCriterion, AutoModule  # noqa: E402

MODES = pytest.mark.parametrize("mode", ["never", "always"])


def affine(params, x):
    return np.tanh(x @ params["W"] + params["b"])


def parameters(dtype=np.float64):
    rng = np.random.default_rng(0)
    return {"W": rng.normal(size=(3, 2)).astype(dtype), "b": np.zeros(2, dtype)}


def drawn(*shape, grad=False, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(*shape, generator=generator, dtype=dtype).requires_grad_(grad)


@MODES
def test_gradients_are_those_of_the_same_program_in_pytorch(mode):
    layer, x = AutoModule(affine, parameters(), compile=mode), drawn(5, 3, grad=True)
    (layer(x) ** 2).sum().backward()
    w, b = (torch.tensor(p, requires_grad=True) for p in parameters().values())
    x2 = drawn(5, 3, grad=True)
    (torch.tanh(x2 @ w + b) ** 2).sum().backward()
    for found, wanted in ((layer.W, w), (layer.b, b), (x, x2)):
        torch.testing.assert_close(found.grad, wanted.grad)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_derivatives_to_second_order_agree_with_differences(dtype):
    layer = AutoModule(lambda w, z: w * np.exp(z) * np.conj(z), np.ones(3))
    z = torch.randn(3, dtype=dtype, requires_grad=True)
    w = torch.randn(3, dtype=torch.float64, requires_grad=True)

    def f(w, z):
        return torch.func.functional_call(layer, {"w": w}, (z,))

    assert torch.autograd.gradcheck(f, (w, z))
    assert torch.autograd.gradgradcheck(f, (w, z))


def test_parameters_are_named_by_their_paths():
    tree = {"layers": [{"W": np.ones(2)}, {"W": np.ones(3)}], "n": 3, "places": np.arange(2)}
    module = AutoModule(lambda params, x: x, tree)
    assert [name for name, _ in module.named_parameters()] == ["layers.0.W", "layers.1.W"]
    assert [name for name, _ in module.named_buffers()] == ["places"]
    flat = AutoModule(lambda params, x: x * params["layers.0.W"], {"layers.0.W": np.ones(2)})
    assert [*flat.state_dict()] == ["layers.0.W"]
    several = AutoModule(lambda weight, bias, x: x, np.ones(2), {"a": np.ones(3)})
    assert [*several.state_dict()] == ["weight", "bias.a"]
    for name in ("forward", "", "layers..W"):
        with pytest.raises(ArgumentError, match="can't be called"):
            AutoModule(affine, {name: np.ones(2)})


def test_initial_parameters_are_copied():
    params = parameters()
    layer = AutoModule(affine, params)
    with torch.no_grad():
        layer.W.zero_()
    assert np.all(params["W"] != 0)


@pytest.mark.parametrize("how", ["deepcopy", "pickle", "save"])
def test_copies_are_modules_of_their_own(how):
    layer, x = AutoModule(affine, parameters()), drawn(5, 3)
    model = torch.nn.Sequential(torch.nn.Linear(3, 3).double(), layer)
    model(x)
    if how == "deepcopy":
        other = copy.deepcopy(model)
    elif how == "pickle":
        other = pickle.loads(pickle.dumps(model))
    else:
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        other = torch.load(file, weights_only=False)
    assert torch.equal(other(x), model(x))
    with torch.no_grad():
        other[1].W += 1
    assert not torch.equal(other(x), model(x))
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(x), model(x))
    assert not other.eval().training


def test_dtypes_follow_the_module():
    layer = AutoModule(affine, parameters()).float()
    out = layer(drawn(5, 3, dtype=torch.float32))
    assert out.dtype == torch.float32
    out.sum().backward()
    assert layer.W.grad.dtype == torch.float32
    assert layer.double()(drawn(5, 3)).dtype == torch.float64


@MODES
def test_inputs_of_any_layout_and_of_changing_sizes(mode):
    layer = AutoModule(affine, parameters(), compile=mode)
    plain = parameters()
    for x in (drawn(3, 5).T, drawn(1, 3).expand(4, 3), drawn(8, 3)[::2], drawn(0, 3), drawn(2, 3)):
        wanted = affine(plain, x.numpy())
        np.testing.assert_allclose(layer(x).detach().numpy(), wanted, rtol=1e-14)
        layer.zero_grad()
        layer(x).sum().backward()
        slopes = 1 - wanted**2
        np.testing.assert_allclose(layer.W.grad.numpy(), x.numpy().T @ slopes, atol=1e-14)


def test_what_asks_for_no_gradient_has_none():
    """Its derivative isn't even on the tape."""
    layer, x = AutoModule(affine, parameters(), compile="never"), drawn(5, 3, grad=True)
    layer.W.requires_grad_(False)
    layer(x).sum().backward()
    assert layer.W.grad is None and layer.b.grad is not None and x.grad is not None
    with torch.no_grad():
        assert not layer(x).requires_grad
    assert not layer.requires_grad_(False)(x.detach()).requires_grad
    (flat,) = {*layer._bridge.flat.values()}
    assert [*flat.pulling] == [(1, 2)]


def test_a_pullback_belongs_to_the_parameters_as_they_were():
    layer, x = AutoModule(affine, parameters()), drawn(5, 3)
    wanted = torch.autograd.grad(layer(x).sum(), layer.W)[0]
    out = layer(x).sum()
    with torch.no_grad():
        layer.W.mul_(2)
    torch.testing.assert_close(torch.autograd.grad(out, layer.W)[0], wanted)


@MODES
def test_gradients_share_no_memory(mode):
    """PyTorch adds to what it keeps in `grad`, in place."""
    add = AutoModule(lambda a, b: a + b, compile=mode)
    a, b = drawn(3, grad=True), drawn(3, grad=True)
    for k in range(1, 4):
        add(a, b).sum().backward()
        assert a.grad.tolist() == b.grad.tolist() == [k] * 3
    same = AutoModule(lambda x: x, compile=mode)
    out = same(a)
    assert out.data_ptr() != a.data_ptr()
    with torch.no_grad():
        assert same(a).data_ptr() != a.data_ptr()


def test_nested_inputs_and_results():
    def f(params, pair, *, scale, array):
        return {"y": params["w"] * pair[0] * scale, "k": np.argmax(pair[1]), "s": "text", "n": None}

    module, x = AutoModule(f, {"w": np.ones(3)}), drawn(3)
    out = module((x, x), scale=2.0, array=np.ones(2))
    assert (out["s"], out["n"], out["k"].dtype) == ("text", None, torch.int64)
    assert not out["k"].requires_grad
    out["y"].sum().backward()
    torch.testing.assert_close(module.w.grad, 2 * x)
    torch.testing.assert_close(module((x, x), scale=3.0, array=np.ones(2))["y"], 3 * x)


def test_results_that_run_backwards_and_results_of_integers():
    x = drawn(4, grad=True)
    out = AutoModule(lambda x: x[::-1])(x)
    assert out.tolist() == x.tolist()[::-1]
    assert not AutoModule(lambda x: np.argsort(x))(x).requires_grad


def test_it_trains_with_pytorchs_optimiser():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(64, 3)), rng.normal(size=(64, 2)).clip(-0.5, 0.5)
    layer = AutoModule(affine, parameters())
    criterion = AutoCriterion(lambda out, target: np.mean((out - target) ** 2))
    optimiser = torch.optim.Adam(layer.parameters(), lr=0.05)
    losses = []
    for _ in range(60):
        optimiser.zero_grad()
        loss = criterion(layer(torch.tensor(x)), torch.tensor(y))
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


def test_what_cannot_be_is_refused():
    x = drawn(3)
    with pytest.raises(ArgumentError, match="needs a function"):
        AutoModule(3)
    with pytest.raises(ArgumentError, match="float8_e5m2 can't be had as an array"):
        AutoModule(lambda x: x)(x.to(torch.float8_e5m2))
    with pytest.raises(ArgumentError, match=r"whose value is a number, .* is \(3,\)"):
        AutoCriterion(lambda out, target: out - target)(x, x)
    with pytest.raises(ArgumentError, match="is None"):
        AutoCriterion(lambda out, target: None)(x, x)
    with pytest.raises(ArgumentError, match="had as an array"):
        torch.func.vmap(AutoModule(np.sin))(drawn(2, 3, grad=True))


@MODES
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_tensors_of_half_precision(dtype, mode):
    """They are computed with in float32, and gradients are rounded once."""
    module = AutoModule(affine, parameters(), compile=mode).to(dtype)
    x = drawn(5, 3).to(dtype).requires_grad_()
    (module(x) ** 2).sum().backward()
    w, b, x2 = (p.detach().float().requires_grad_() for p in (module.W, module.b, x))
    (torch.tanh(x2 @ w + b) ** 2).sum().backward()
    for found, wanted in ((module.W, w), (module.b, b), (x, x2)):
        assert found.grad.dtype == dtype
        torch.testing.assert_close(found.grad, wanted.grad.to(dtype))
    assert module(x).dtype == torch.float32
    assert AutoModule(lambda x: x)(x).dtype == dtype


def test_a_flipped_tensor_of_complex_numbers():
    z = torch.randn(3, dtype=torch.complex128)
    found = AutoModule(lambda z: 2 * z)(z.conj())
    torch.testing.assert_close(found, 2 * z.conj().resolve_conj())


# ---- modules as functions


def network():
    torch.manual_seed(0)
    parts = torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2)
    return torch.nn.Sequential(*parts).double()


def plain(params, x):
    h = np.tanh(x @ params["0.weight"].T + params["0.bias"])
    return h @ params["2.weight"].T + params["2.bias"]


X = np.linspace(-1, 1, 15).reshape(5, 3)


@MODES
def test_a_module_is_a_function_of_its_parameters(mode):
    module = network()
    f, params = functionalize(module)
    assert [*params] == ["0.weight", "0.bias", "2.weight", "2.bias"]
    np.testing.assert_allclose(f(params, X), module(torch.tensor(X)).detach().numpy(), rtol=1e-15)
    other = tree_map(lambda w: w + 0.1, params)

    def loss(g):
        return lambda p, x: np.sum(g(p, np.sin(x)) ** 2)

    found, wanted = (
        value_and_grad(loss(g), argnums=(0, 1), compile=mode)(other, X) for g in (f, plain)
    )
    for a, b in zip(tree_leaves(found), tree_leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12)
    assert all(p.grad is None for p in module.parameters())
    np.testing.assert_array_equal(params["0.bias"], module[0].bias.detach().numpy())


def test_both_modes_and_second_order_of_a_module():
    f, params = functionalize(network())
    ts = tree_map(np.ones_like, params)

    def loss(g):
        return lambda p: np.sum(g(p, X) ** 3)

    for derivative in (
        lambda g: jvp(loss(g), (params,), (ts,)),
        lambda g: hvp(loss(g))(params, ts),
    ):
        for a, b in zip(tree_leaves(derivative(f)), tree_leaves(derivative(plain)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11)


def test_buffers_are_state_where_they_are_named():
    module = torch.nn.BatchNorm1d(3).double()
    f, params, state = functionalize(module, state=True)
    assert [*params] == ["weight", "bias"]
    assert sorted(state) == ["num_batches_tracked", "running_mean", "running_var"]
    twin = copy.deepcopy(module)
    for _ in range(2):
        out, state = f(params, state, X)
        wanted = twin(torch.tensor(X)).detach().numpy()
    np.testing.assert_allclose(out, wanted)
    np.testing.assert_allclose(state["running_mean"], twin.running_mean.numpy())
    assert state["num_batches_tracked"] == 2 and not module.running_mean.any()
    g, params = functionalize(module)  # without state it is lost
    np.testing.assert_allclose(g(params, X), wanted)
    assert not module.running_mean.any() and module.num_batches_tracked == 0
    with pytest.raises(ArgumentError, match="no buffer 'mean'"):
        functionalize(module, state="mean")


def test_parameters_that_ask_for_no_gradient_stay_the_modules():
    module = network()
    module[0].requires_grad_(False)
    f, params = functionalize(module)
    assert [*params] == ["2.weight", "2.bias"]
    np.testing.assert_allclose(f(params, X), module(torch.tensor(X)).detach().numpy())
    with pytest.raises(ArgumentError, match=r"no '0\.bias', but a parameter"):
        f({**params, "0.bias": np.zeros(4)}, X)


def test_a_gradient_meets_the_draws_of_its_value():
    f, params = functionalize(torch.nn.Sequential(network(), torch.nn.Dropout(0.5)))
    value, slopes = value_and_grad(lambda p: np.sum(f(p, X)), compile="never")(params)
    counts = slopes["0.2.bias"] / 2  # how many of the five results are kept, twice as large
    assert set(counts) <= {0, 1, 2, 3, 4, 5}
    again = [value_and_grad(lambda p: np.sum(f(p, X)), compile="never")(params) for _ in range(8)]
    assert len({float(v) for v, _ in [(value, 0), *again]}) > 1


def test_errors_of_a_module_are_pytorchs_and_leave_nothing():
    module = network()
    f, params = functionalize(module)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        f(params, np.ones((5, 7)))
    np.testing.assert_allclose(f(params, X), module(torch.tensor(X)).detach().numpy())
    assert all(type(p) is torch.nn.Parameter for p in module.parameters())


def test_a_functions_module_is_a_function_again():
    f, params = functionalize(AutoModule(affine, parameters()))
    assert sorted(params) == ["W", "b"]
    np.testing.assert_allclose(f(params, X), affine(params, X))
    slopes = value_and_grad(lambda p: np.sum(f(p, X)), compile="never")(params)[1]
    wanted = value_and_grad(lambda p: np.sum(affine(p, X)))(params)[1]
    for name, slope in wanted.items():
        np.testing.assert_allclose(slopes[name], slope)
