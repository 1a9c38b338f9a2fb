"""The operations of lamp.autograd, under their names there: derivatives for random cotangents, of
arguments that are read twice, against differences.

Sums as losses, arguments read once and symmetric matrices hide wrong rules.
"""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg

import tapegrad as tg
from tapegrad import nn

RNG = np.random.default_rng(35)


def n(*shape):
    return RNG.normal(size=shape)


def positive(*shape):
    return RNG.uniform(0.5, 2.0, size=shape)


A, B, ROW, CUBE = n(3, 4), n(3, 4), n(4), n(2, 3, 4)
SQUARE, STACK = n(3, 3) + 3 * np.eye(3), n(2, 3, 3) + 3 * np.eye(3)
INDEX = np.array([2, 0, 2, 1])  # one is read twice
MASK = A > 0.2
WEIGHTS = positive(4)
PLACES = RNG.integers(0, 3, size=(3, 4))


def definite(x):
    return x @ np.swapaxes(x, -1, -2) + 2 * np.eye(x.shape[-1])


CASES = {
    "Add": (lambda a, b: a + b, A, ROW),
    "ConstAdd": (lambda a: a + 2.5, A),
    "Minus": (lambda a, b: a - b, A, ROW),
    "Mult": (lambda a, b: a * b, A, ROW),
    "ConstMult": (lambda a: a * 2.5, A),
    "Div": (lambda a, b: a / b, A, positive(4)),
    "PowConst": (lambda a: a**2.5, positive(3, 4)),
    "Pow": (lambda a, b: a**b, positive(3, 4), n(4)),
    "Exp": (np.exp, A),
    "Log": (np.log, positive(3, 4)),
    "Log1p": (np.log1p, positive(3, 4)),
    "Sin": (np.sin, A),
    "Cos": (np.cos, A),
    "Tan": (lambda a: np.tan(0.3 * a), A),
    "Tanh": (np.tanh, A),
    "ArcTan": (np.arctan, A),
    "Sigmoid": (nn.sigmoid, A),
    "Relu": (nn.relu, A),
    "LeakyRelu": (lambda a: nn.leaky_relu(a, 0.1), A),
    "Gelu": (nn.gelu, A),
    "HardSwish": (nn.hardswish, A),
    "Softplus": (lambda a: nn.softplus(a, 2.0, 3.0), A),
    "CappedShiftedNegativeExponential": (
        lambda a: nn.capped_shifted_negative_exponential(a, 0.1),
        A,
    ),
    "LogSoftMax": (lambda a: nn.log_softmax(a, 1), A),
    "Sum": (lambda a: np.sum(a, axis=(0, 2)), CUBE),
    "Sum, kept": (lambda a: np.sum(a, axis=1, keepdims=True), CUBE),
    "Mean": (lambda a: np.mean(a, axis=(0, 2)), CUBE),
    "Variance": (lambda a: np.var(a, axis=(0, 2), ddof=1), CUBE),
    "Norm2": (lambda a: np.linalg.norm(a, axis=1), CUBE),
    "Norm2, kept": (lambda a: np.linalg.norm(a, axis=(0, 2), keepdims=True), CUBE),
    "SquaredFrobeniusMatrixNorm": (lambda a: np.sum(a**2, axis=(-1, -2)), CUBE),
    "EuclideanDistance": (lambda a, b: nn.euclidean_distance(a, b, 1), A, B),
    "ElementWiseMinimum": (np.minimum, A, ROW),
    "ElementWiseMaximum": (np.maximum, A, ROW),
    "MatMul": (lambda a, b: a @ b, A, n(4, 2)),
    "BatchedMatMul": (lambda a, b: a @ b, CUBE, n(2, 4, 5)),
    "Cross": (lambda a, b: np.cross(a, b, axis=0), A, B),
    "Inv": (np.linalg.inv, STACK),
    "PInv": (np.linalg.pinv, A),
    "LogDet": (lambda a: np.linalg.slogdet(a)[1], STACK * np.array([1, -1])[:, None, None]),
    "Cholesky": (lambda a: np.linalg.cholesky(definite(a)), STACK),
    "CholeskySolve": (
        lambda a, b: scipy.linalg.cho_solve((np.linalg.cholesky(definite(a)), True), b),
        SQUARE,
        n(3, 2),
    ),
    "Transpose": (lambda a: np.swapaxes(a, 0, 2), CUBE),
    "View": (lambda a: a.reshape(4, 6), CUBE),
    "Reshape": (lambda a: np.reshape(a.T, (2, -1)), CUBE),
    "Flatten": (lambda a: nn.flatten(a, 1, 2), CUBE),
    "Expand": (lambda a: np.broadcast_to(a, (5, 3, 4)), A),
    "ExpandAs": (lambda a, b: np.broadcast_to(a, b.shape) * b, ROW, A),
    "Concatenate": (lambda a, b: np.concatenate([a, b[:2]], axis=0), A, B),
    "Stack": (lambda a, b: np.stack([a, b, a], axis=1), A, B),
    "Select": (lambda a: a[:, 1], CUBE),
    "Slice": (lambda a: a[:, ::-2, 1:4:2], CUBE),
    "IndexSelect": (lambda a: np.take(a, INDEX, axis=1), CUBE),
    "IndexAdd": (lambda s: nn.index_add(np.zeros((3, 5)), 0, INDEX, s), n(4, 5)),
    "IndexAddToTarget": (lambda t, s: nn.index_add(t, 0, INDEX, s), n(3, 5), n(4, 5)),
    "ScatterAdd": (lambda s: nn.scatter_add(np.zeros((3, 4)), 0, PLACES, s), A),
    "IndexFill": (lambda a: nn.index_fill(a, 1, np.array([0, 2]), 3.0), A),
    "MaskFill": (lambda a: nn.masked_fill(a, MASK, 3.0), A),
    "MaskSelect": (lambda a: nn.masked_select(a, MASK), A),
    "Where": (lambda a, b: np.where(MASK, a, b), A, ROW),
    "EqWhere": (lambda a: (INDEX == 2) * a, ROW),
    "ArgMax": (lambda a: a[np.argmax(a, axis=0), np.arange(4)], A),
    "OneHot": (lambda a: nn.one_hot(INDEX, 3) @ a, A),
    "RepeatInterleave": (lambda a: nn.repeat_interleave(a, np.array([1, 0, 2]), 1), CUBE),
    "Diag": (lambda a: np.diag(np.diag(a, 1), -1), SQUARE),
    "Assign": (lambda a, b: b, A, B),
    "CastToPrecision": (lambda a: a.astype(np.float64) * 2, A),
    "MseLoss": (lambda a, b: nn.mse_loss(a, b, reduction="none"), A, B),
    "SmoothL1Loss": (lambda a, b: nn.smooth_l1_loss(a, b, beta=0.7, reduction="none"), A, B),
    "NllLoss": (
        lambda a: nn.nll_loss(a, np.array([1, -100, 3]), weight=WEIGHTS, reduction="none"),
        A,
    ),
    "BinaryCrossEntropyWithLogitsLoss": (
        lambda a, w: nn.binary_cross_entropy_with_logits(
            a, MASK * 1.0, pos_weight=w, reduction="none"
        ),
        A,
        positive(4),
    ),
    "WeightNorm": (lambda v, g: nn.weight_norm(v, g, 1), A, positive(1, 4)),
    "BatchNorm": (lambda x, w, b: nn.batch_norm(x, None, None, w, b, True), n(5, 4), ROW, n(4)),
    "LayerNormOp": (lambda x, w, b: nn.layer_norm(x, (4,), w, b), A, ROW, n(4)),
    "Embedding": (lambda w: nn.embedding(np.stack([INDEX, INDEX]), w), A),
    "Convolution": (
        lambda x, w, b: nn.conv2d(x, w, b, stride=2, padding=1, groups=2),
        n(2, 4, 5, 5),
        n(4, 2, 3, 3),
        n(4),
    ),
    "Convolution, transposed": (
        lambda x, w: nn.conv_transpose2d(x, w, stride=2, output_padding=1),
        n(1, 2, 3, 3),
        n(2, 3, 3, 3),
    ),
    "MaxPool1D": (lambda x: nn.max_pool1d(x, 3, 2, 1), n(2, 3, 8)),
    "MaxPool2D": (lambda x: nn.max_pool2d(x, 2, 1), n(1, 2, 4, 4)),
    "AvgPool2D": (lambda x: nn.avg_pool2d(x, 2, 2, 1), n(1, 2, 4, 4)),
    "ScaledDotProductAttention": (
        lambda q, k, v: nn.scaled_dot_product_attention(q, k, v, is_causal=True),
        n(1, 3, 4),
        n(1, 3, 4),
        n(1, 3, 2),
    ),
}


@pytest.mark.every(2)
@pytest.mark.parametrize("name", CASES)
def test_random_cotangents_and_arguments_that_are_read_twice(name):
    f, *args = CASES[name]
    rng = np.random.default_rng(5)

    def twice(*xs):
        return f(*xs) + sum(np.mean(np.sin(x)) for x in xs)

    value, pull = tg.vjp(twice, *args)
    np.testing.assert_allclose(value, twice(*args), rtol=1e-12, atol=1e-13)
    for _ in range(3):
        ct = rng.normal(size=np.shape(value))
        ts = [rng.normal(size=x.shape) for x in args]
        ahead, back = [
            twice(*[x + s * t for x, t in zip(args, ts, strict=True)]) for s in (1e-6, -1e-6)
        ]
        expected = np.vdot(ct, (ahead - back) / 2e-6)
        found = sum(np.vdot(g, t) for g, t in zip(pull(ct), ts, strict=True))
        assert abs(found - expected) <= 2e-7 * (1 + abs(expected))
        _, along = tg.jvp(twice, tuple(args), tuple(ts))
        np.testing.assert_allclose(np.vdot(ct, along), found, rtol=1e-9, atol=1e-11)


def test_formulas_of_inverses_and_products():
    """What the cotangents of `inv`, `cross`, `logdet` and `var` over two axes are."""
    ct = n(3, 3)
    v = np.linalg.inv(SQUARE)
    np.testing.assert_allclose(tg.vjp(np.linalg.inv, SQUARE)[1](ct)[0], -v.T @ ct @ v.T)
    a, b, g = n(5, 3), n(5, 3), n(5, 3)
    found = tg.vjp(np.cross, a, b)[1](g)
    np.testing.assert_allclose(found[0], np.cross(b, g), atol=1e-14)
    np.testing.assert_allclose(found[1], np.cross(g, a), atol=1e-14)
    (found,) = tg.vjp(lambda x: np.linalg.slogdet(x)[1], -SQUARE)[1](2.0)
    np.testing.assert_allclose(found, -2 * v.T)
    (found,) = tg.vjp(lambda x: np.var(x, axis=(0, 2), ddof=1), CUBE)[1](np.arange(3.0))
    centred = CUBE - CUBE.mean(axis=(0, 2), keepdims=True)
    np.testing.assert_allclose(found, np.arange(3.0)[:, None] * 2 * centred / 7)


def test_what_has_no_derivative_has_zeros_and_is_no_error():
    for f in (np.argmax, lambda x: np.argsort(x)[0], lambda x: np.sum(x > 0)):
        np.testing.assert_array_equal(tg.grad(lambda x, f=f: f(x) * 1.0)(ROW), np.zeros(4))
