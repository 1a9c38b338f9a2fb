"""Arrays that are kept in half precision, and computed with in float32."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tapegrad as tg
from tapegrad import nn, optim
from tapegrad.errors import ArgumentError, UnsupportedError

HALVES = [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)]
halves = pytest.mark.parametrize("half", HALVES, ids=str)
modes = pytest.mark.parametrize("mode", ["never", "always"])


def drawn(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


W, X, B, K = drawn(8, 5, seed=1), drawn(6, 8, seed=2), drawn(5, seed=3), drawn(3, 2, 3, 3, seed=4)
LABELS = np.array([0, 4, 2, 2, 1, 3])


def rounds(w, x):
    h = np.zeros(5, np.float32)
    for k in range(20):
        h = np.tanh(h + x[k % 6] @ w)
    return np.sum(h)


def branches(w, x):
    h = x[0] @ w
    for k in range(12):
        h = h * 0.9 + w[k % 8] if np.sum(h) > 0 else h - w[1]
    return np.sum(h**2)


def filled(w):
    out = np.zeros_like(w)
    for i in range(8):
        out[i] = w[i] ** 2
    return np.sum(out[1:] * out[:-1])


def written(w):
    w[0] = w[1] * w[2]
    w += 1
    row = w[3]
    row *= 2
    return np.sum(w**2)


PROGRAMS = [
    (lambda w, x, b: np.sum(np.tanh(x @ w + b)), (W, X, B)),
    (lambda x: np.mean(x) + np.var(x) + np.std(x, axis=0)[1] + np.median(x), (X,)),
    (lambda x: np.sum(np.sort(x, axis=0)[2:] * x[:-2] + np.abs(x.T).T[2:]), (X,)),
    (lambda x: np.sum(x * 2 + x * np.float16(0.1) + np.float32(3) * x + x // 1), (X,)),
    (lambda x, k: np.sum(x[:, k] ** 2), (X, np.array([0, 3, 3]))),
    (rounds, (W, X)),
    (branches, (W, X)),
    (filled, (W,)),
    (written, (W,)),
    (lambda x: np.sum(nn.layer_norm(x, (8,)) ** 3), (X,)),
    (lambda x: np.sum(nn.softmax(x, axis=-1) ** 2) + np.sum(nn.gelu(x)), (X,)),
    (lambda w, x: nn.cross_entropy(x @ w, LABELS), (W, X)),
    (lambda w: np.sum(nn.embedding(LABELS, w) ** 2), (W,)),
    (lambda w, x: nn.mse_loss(x @ w, np.zeros((6, 5))), (W, X)),
    (lambda k, x: np.sum(nn.conv2d(x, k, padding=1) ** 2), (K, drawn(2, 2, 6, 6))),
    (lambda x: np.sum(nn.scaled_dot_product_attention(x, x, x) ** 2), (drawn(2, 4, 8),)),
]


@halves
@pytest.mark.parametrize("f, args", PROGRAMS)
def test_programs_compute_as_on_float32_arrays(f, args, half):
    """Value and gradients are those of the same numbers as float32, and the gradient is rounded
    once, to the dtype of its argument."""
    kept = [x.astype(half) if x.dtype.kind == "f" else x for x in args]
    wide = [x.astype(np.float32) if x.dtype == half else x for x in kept]
    wrt = tuple(k for k, x in enumerate(kept) if x.dtype == half)
    g = tg.value_and_grad(f, wrt, compile="never")
    for _ in range(2):
        value, found = g(*kept)
        expected, gradients = g(*wide)
        assert (value.dtype, value) == (expected.dtype, expected)
        for x, y in zip(found, gradients, strict=True):
            assert x.dtype == half
            assert np.array_equal(x, y.astype(half))


def programs(count: int) -> Any:
    """Elementwise programs of random operations on two arrays."""
    unary = [
        np.tanh,
        np.sin,
        np.abs,
        lambda x: x * x,
        lambda x: x / 3,
        np.negative,
        lambda x: x[::-1],
    ]
    binary = [
        np.add,
        np.subtract,
        np.multiply,
        np.maximum,
        np.arctan2,
        lambda x, y: np.where(x > y, x, y),
    ]
    for seed in range(count):
        rng = np.random.default_rng(seed)
        steps = [
            (rng.integers(3), rng.integers(7), rng.integers(6), *rng.integers(99, size=2))
            for _ in range(9)
        ]

        def f(x, y, steps=steps):
            known = [x, y, np.float32(0.7), x * 0.5]
            for kind, u, b, i, j in steps:
                one, other = known[i % len(known)], known[j % len(known)]
                if kind == 0 and np.ndim(one):
                    known.append(unary[u](one))
                elif kind == 1:
                    known.append(one.astype([np.float16, ml_dtypes.bfloat16][u % 2]))
                else:
                    known.append(binary[b](one, other))
            return known[-1] * x + known[-2]

        yield seed, f


@modes
@halves
@pytest.mark.every(8)
@pytest.mark.parametrize("seed, f", list(programs(24)))
def test_random_programs(seed, f, half, mode):
    x, y = (drawn(33, seed=seed + k).astype(half) for k in range(2))
    wide = [a.astype(np.float32) for a in (x, y)]
    g, value = tg.elementwise_grad(f, (0, 1), compile=mode), tg.jit(f, compile=mode)
    for _ in range(2):
        assert value(x, y).dtype == np.float32
        assert np.array_equal(value(x, y), value(*wide))
        for found, expected in zip(g(x, y), g(*wide), strict=True):
            assert found.dtype == half
            assert np.array_equal(found, expected.astype(half))


@modes
@halves
def test_what_is_stored_leaves_in_that_dtype(half, mode):
    def f(x, y):
        z = x.astype(half)
        part = z[1:]
        part *= 3.0
        return x, y, z, part.reshape(2, -1), z * 1, y.astype(np.float32), y.T

    x = drawn(7)
    g = tg.jit(f, compile=mode)
    for _ in range(3):
        results = g(x, x.astype(half))
    kept = x.astype(half)
    once = np.concatenate([kept[:1], (kept[1:].astype("f4") * 3).astype(half)])
    whole = np.concatenate([kept[:1].astype("f4"), kept[1:].astype("f4") * 3])
    expected = [x, kept, once, once[1:].reshape(2, -1), whole, kept.astype("f4"), kept]
    for a, b in zip(results, expected, strict=True):
        assert a.dtype == b.dtype
        assert np.array_equal(a, b)


@modes
@halves
def test_casts_are_differentiable(half, mode):
    """The value is rounded; the cotangent passes as it is."""
    for x in (drawn(50), drawn(50).astype(float)):
        g = tg.grad(lambda x: np.sum(x.astype(half) ** 2), compile=mode)
        g(x)
        assert g(x).dtype == x.dtype
        assert np.array_equal(g(x), 2 * x.astype(half).astype(np.float32))
        _, tangent = tg.jvp(lambda x: x.astype(half) * 3, (x,), (np.full(50, 0.1, x.dtype),))
        assert np.array_equal(tangent, np.full(50, np.float32(0.1)) * 3)


@halves
def test_derivatives_of_all_kinds(half):
    def f(x):
        return np.sum(np.tanh(x) ** 3)

    x, v = drawn(5).astype(half), drawn(5, seed=9).astype(half)
    wide, along = x.astype("f4"), v.astype("f4")
    value, pullback = tg.vjp(np.tanh, x)
    assert (value.dtype, pullback(v)[0].dtype) == (np.float32, half)
    assert np.array_equal(pullback(v)[0], tg.vjp(np.tanh, wide)[1](along)[0].astype(half))
    assert np.array_equal(tg.jvp(f, (x,), (v,)), tg.jvp(f, (wide,), (along,)))
    assert np.array_equal(tg.hvp(f)(x, v), tg.hvp(f)(wide, along).astype(half))
    for made in (tg.hessian(f), tg.jacobian(np.tanh), tg.linearize(np.tanh, x)[1]):
        found = made(x)
        assert found.dtype == np.float32
    assert np.array_equal(tg.hessian(f)(x), tg.hessian(f)(wide))
    rows = drawn(4, 5).astype(half)
    mapped = tg.vmap(tg.grad(f))(rows)
    assert mapped.dtype == half
    assert np.array_equal(mapped, np.stack([tg.grad(f)(row) for row in rows]))
    inside = tg.jit(lambda x: (tg.grad(f)(x), tg.jit(lambda y: y.astype(half))(x * 2)))(x)
    assert [y.dtype for y in inside] == [half, half]
    assert tg.eval_shape(lambda x: x.astype(half), wide).dtype == half


@modes
@halves
def test_arrays_of_the_outside(half, mode):
    c, scale = drawn(5).astype(half), half.type(1.5)
    g = tg.value_and_grad(lambda w: np.sum(w * c * scale + c), compile=mode)
    for _ in range(3):
        value, found = g(B)
        expected = c.astype(np.float32) * np.float32(1.5)
        assert np.array_equal(found, expected)
        np.testing.assert_allclose(value, np.sum(B * expected + c.astype("f4")), rtol=1e-6)
        c[1] += 1  # each call reads it


@halves
def test_a_dtype_is_a_kind_of_arguments(half):
    f = tg.jit(lambda x: x * 2)
    for dtype in (half, np.dtype("f4"), np.dtype("f8"), half):
        x = drawn(5).astype(dtype)
        assert f(x).dtype == (np.float32 if dtype == half else dtype)
    assert f.cache_info().traces == 3


@halves
def test_numbers_of_half_precision(half):
    x = half.type(1.5)
    value, found = tg.value_and_grad(lambda x: x * x)(x)
    assert (value, value.dtype) == (2.25, np.float32)
    assert (found, found.dtype) == (3.0, half)
    assert type(found) is half.type
    array = np.array(0.5, half)
    assert tg.grad(lambda x: np.sum(x**2))(array) == 1.0


@pytest.mark.every(2)
@halves
def test_it_can_stand_alone(half, tmp_path):
    c = drawn(5).astype(half)

    def loss(w, t):
        return np.sum(np.tanh(w * c)) * t

    w, t = drawn(5, seed=1).astype(half), half.type(0.5)
    for made in (tg.simplegrad(loss, w, t), tg.standalone(tg.value_and_grad(loss, (0, 1)), w, t)):
        value, *found = made(w, t)
        found = found[0] if isinstance(found[0], tuple) else found
        expected, gradients = tg.value_and_grad(loss, (0, 1))(w, t)
        np.testing.assert_allclose(value, expected, rtol=1e-6)
        assert [x.dtype for x in found] == [half, half]
        np.testing.assert_allclose(
            found[0].astype("f4"), gradients[0].astype("f4"), rtol=float(np.finfo("f2").eps) * 8
        )
        with pytest.raises(ValueError, match="dtype float32"):
            made(w.astype("f4"), t)
    with pytest.raises(UnsupportedError, match=f"C code has no numbers of dtype {half}"):
        made.save(tmp_path / "made.c")


def written(y, x):
    y[:] = x
    return y


@pytest.mark.parametrize(
    "f",
    [
        lambda x, half: np.sum(x, dtype=half),
        lambda x, half: np.zeros_like(x, dtype=half),
        lambda x, half: np.full(3, x[0], dtype=half),
        lambda x, half: np.add(x, x, dtype=half),
        lambda x, half: np.cumsum(x, dtype=half),
        lambda x, half: written(np.zeros(5, half), x),
    ],
)
@halves
def test_nothing_is_computed_in_half_precision(f, half):
    with pytest.raises(UnsupportedError, match=half.name):
        tg.jit(f)(B, half)


@halves
def test_arrays_of_the_outside_are_not_written_to(half):
    held = np.zeros(5, half)

    def f(x):
        held[:] = x
        return np.sum(held)

    with pytest.raises(tg.errors.TapegradError):
        tg.jit(f)(B)
    assert not held.any()


@modes
@halves
def test_a_number_that_changes_from_call_to_call_is_one_of_float32(half, mode):
    """It becomes an input, which isn't computed with in half precision either."""
    state, x = SimpleNamespace(number=half.type(1)), np.ones(5, np.float32)
    g = tg.jit(lambda x: (np.sum(x) + state.number * state.number, state.number), compile=mode)
    for k in (1, 300, 301, 302):
        state.number = half.type(k)
        value, same = g(x)
        assert value == 5 + np.float32(state.number) ** 2
        assert same == state.number
        assert same.dtype == half
    assert g.cache_info().traces <= 2


@modes
@halves
def test_an_array_that_changes_from_call_to_call_is_one_of_float32(half, mode):
    state, x = SimpleNamespace(array=B.astype(half)), np.ones(5, np.float32)
    g = tg.jit(lambda x: (state.array * x, state.array, state.array[::-1]), compile=mode)
    for k, order in enumerate("====>>>>" if half == np.float16 else "===="):
        state.array = (B * k).astype(half.newbyteorder(order))
        product, *same = g(x)
        assert product.dtype == np.float32
        assert np.array_equal(product, state.array.astype(np.float32))
        assert [y.dtype for y in same] == [half, half]
        assert np.array_equal(same[1], state.array[::-1])


@modes
@halves
def test_a_function_may_keep_such_an_array(half, mode):
    """What it makes of it is of float32, as it is elsewhere."""
    state, x = SimpleNamespace(array=np.ones(5, half)), np.ones(5, np.float32)

    def f(x):
        state.array = state.array * 3 + x
        return np.sum(state.array)

    g, expected = tg.jit(f, compile=mode), np.ones(5, np.float32)
    for _ in range(5):
        expected = expected * 3 + x
        assert g(x) == np.sum(expected)
        assert np.array_equal(state.array.astype(np.float32), expected)
        state.array = state.array.astype(half)


# ---- trees


def test_cast():
    tree = {
        "w": W,
        "n": np.array([3]),
        "f": 2.0,
        "z": np.float64(0.1),
        "c": np.ones(2) * 1j,
        "s": "x",
    }
    for dtype in ("bfloat16", np.float16, np.float64):
        found = tg.cast(tree, dtype)
        wanted = found["w"].dtype
        assert wanted.name == np.dtype(dtype).name
        assert np.array_equal(found["w"], W.astype(wanted))
        assert found["z"] == np.array(0.1).astype(wanted)
        for name in ("n", "f", "c", "s"):
            assert found[name] is tree[name]
    with pytest.raises(ArgumentError, match="int64 isn't a dtype of floating-point"):
        tg.cast(tree, int)
    assert tg.trees.cast is tg.cast


@modes
@halves
def test_cast_is_differentiable(half, mode):
    def loss(params, x):
        kept = tg.cast(params, half)
        return np.sum((x @ kept["w"] + kept["b"]) ** 2)

    params = {"w": W, "b": B}
    g = tg.grad(loss, compile=mode)
    g(params, X)
    found = g(params, X)
    rounded = {name: x.astype(half).astype("f4") for name, x in params.items()}
    expected = tg.grad(lambda p: np.sum((X @ p["w"] + p["b"]) ** 2), compile=mode)(rounded)
    for name, x in found.items():
        assert x.dtype == np.float32
        np.testing.assert_allclose(x, expected[name], rtol=1e-5)
    step = tg.jit(lambda p: tg.cast(tg.tree_map(lambda x: x * 0.5, p), half), compile=mode)
    assert [x.dtype for x in tg.tree_leaves(step(params))] == [half, half]


# ---- training


@pytest.mark.every(2)
@pytest.mark.parametrize("name", ["sgd", "adam", "adamw", "rmsprop", "adagrad", "lion", "rprop"])
@halves
def test_optimisers_keep_what_they_remember_in_float32(name, half):
    rule = getattr(optim, name)(0.01)
    for inplace in (False, True):
        params = {"w": W.astype(half), "b": B.copy()}
        grads = {"w": drawn(8, 5).astype(half), "b": drawn(5)}
        wide, wide_grads = tg.cast(params, "float32"), tg.cast(grads, "float32")
        state, wide_state = rule.init(params), rule.init(wide)
        for _ in range(2):
            params, state = rule.update(grads, state, params, inplace=inplace)
            wide, wide_state = rule.update(wide_grads, wide_state, wide)
            assert params["w"].dtype == half
            assert np.array_equal(params["w"], wide["w"].astype(half))
            for a, b in zip(tg.tree_leaves(state), tg.tree_leaves(wide_state), strict=True):
                assert a.dtype == b.dtype
                assert np.array_equal(a, b)
            wide = tg.cast(params, "float32")


@halves
def test_fit_and_its_checkpoints(half, tmp_path):
    def loss(params, x, y):
        return np.mean((x @ params["w"] - y) ** 2)

    x, params = drawn(64, 8), {"w": np.zeros((8, 5), half)}
    y = x @ W
    fitted = optim.fit(loss, params, (x, y), optim.adam(0.1), epochs=8)
    assert fitted.params["w"].dtype == half
    assert loss(tg.cast(fitted.params, "float32"), x, y) < 0.2 * np.mean(y**2)
    optim.save_tree(tmp_path / "kept", fitted.params)
    found, _ = optim.load_tree(tmp_path / "kept", params)
    assert found["w"].dtype == half
    assert np.array_equal(found["w"], fitted.params["w"])


def test_ml_dtypes_is_loaded_by_programs_alone():
    program = (
        "import sys, numpy as np, tapegrad as tg\n"
        "x = np.ones(3, np.float16)\n"
        "print(tg.grad(lambda x: np.sum(x**2), compile='always')(x).dtype)\n"
        "print('ml_dtypes' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["float16", "False"]
