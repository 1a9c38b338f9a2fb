"""Time programs that consist of products of matrices, beside JAX: batched, small, shifted, large.

python benchmarks/products.py
python benchmarks/products.py --only 'attention*,conv*' --compile auto
"""

from functools import partial
from typing import Any

import numpy as np
from beside import command
from layers import (
    attention,
    convolutions,
    lstm,
    make_attention,
    make_convolutions,
    make_lstm,
    make_transformer,
    transformer,
)
from workloads import WORKLOADS, Workload

# ---- factors and forms


def masked_factors(xp, params, known, mask):
    U, V = params
    return xp.sum(mask * (U @ V.T - known) ** 2) + 0.1 * (xp.sum(U**2) + xp.sum(V**2))


def make_masked_factors(rng, m=300, n=200, k=10):
    params = rng.standard_normal((m, k)), rng.standard_normal((n, k))
    return params, rng.standard_normal((m, n)), (rng.random((m, n)) < 0.2).astype(float)


def chain(xp, params):
    A, B, C, D, x = params
    return xp.sum(A @ B @ C @ D @ x)


def make_chain(rng):
    shapes = (200, 30), (30, 150), (150, 20), (20, 100), (100, 40)
    return (tuple(rng.standard_normal(shape) for shape in shapes),)


def batched(xp, params):
    A, B = params
    return xp.sum(xp.tanh(A @ B) ** 2)


def make_batched(rng):
    return ((rng.standard_normal((64, 8, 8)), rng.standard_normal((64, 8, 8))),)


def systems(xp, params):
    A, b = params
    return xp.sum(xp.linalg.solve(A, b[..., None]) ** 2)


def make_systems(rng):
    return (
        (rng.standard_normal((10_000, 3, 3)) + 4 * np.eye(3), rng.standard_normal((10_000, 3))),
    )


def three_operands(xp, params):
    A, B, C = params
    return xp.sum(xp.einsum("ijk,kl,jm->ilm", A, B, C) ** 2)


def make_three_operands(rng):
    return (
        (
            rng.standard_normal((20, 30, 40)),
            rng.standard_normal((40, 25)),
            rng.standard_normal((30, 15)),
        ),
    )


def bilinear(xp, params):
    x, A, y = params
    return xp.sum(xp.einsum("bi,ij,bj->b", x, A, y) ** 2)


def make_bilinear(rng):
    x, y = rng.standard_normal((2000, 40)), rng.standard_normal((2000, 30))
    return ((x, rng.standard_normal((40, 30)), y),)


def mahalanobis(xp, params, x):
    mean, P = params
    d = x - mean
    return xp.sum(xp.log(1.0 + xp.sum((d @ P) * d, axis=1)))


def make_mahalanobis(rng):
    B = rng.standard_normal((5, 5))
    return (rng.standard_normal(5), B @ B.T), rng.standard_normal((100_000, 5))


def low_rank(xp, params, x):
    A, U, V = params
    return xp.sum(((A + U @ V.T) @ x) ** 2)


def make_low_rank(rng, n=300, k=5):
    A = rng.standard_normal((n, n))
    return (A, rng.standard_normal((n, k)), rng.standard_normal((n, k))), rng.standard_normal(n)


def ridge(xp, params, X, y):
    """Penalised least squares: by how much the fit misses, in the penalty and the weights."""
    log_penalty, w = params
    gram = X.T @ xp.diag(w) @ X + xp.exp(log_penalty) * xp.eye(X.shape[1])
    return xp.sum((y - X @ xp.linalg.solve(gram, X.T @ (w * y))) ** 2)


def make_ridge(rng, n=500, k=40):
    return (0.5, rng.random(n) + 0.5), rng.standard_normal((n, k)), rng.standard_normal(n)


def gram(xp, params):
    (X,) = params
    return xp.sum(xp.tanh(X.T @ X / X.shape[0]) ** 2)


def make_gram(rng):
    return ((rng.standard_normal((1000, 100)),),)


# ---- NPBench's linear algebra, of its smallest size but one


def gesummv(xp, params, alpha, beta):
    A, B, x = params
    return xp.sum(alpha * A @ x + beta * B @ x)


def mvt(xp, params):
    x1, x2, y1, y2, A = params
    return xp.sum(x1 + A @ y1) + xp.sum(x2 + y2 @ A)


def k2mm(xp, params, alpha, beta):
    A, B, C, D = params
    return xp.sum(alpha * A @ B @ C + beta * D)


def k3mm(xp, params):
    A, B, C, D = params
    return xp.sum(A @ B @ (C @ D))


def gemm(xp, params, alpha, beta):
    C, A, B = params
    return xp.sum(alpha * A @ B + beta * C)


def _matrices(*shapes: tuple[int, ...], numbers: bool = True) -> Any:
    def make(rng):
        drawn = tuple(rng.standard_normal(shape) for shape in shapes)
        return (drawn, 1.5, 1.2) if numbers else (drawn,)

    return make


def _known(name: str, family: str) -> Workload:
    (found,) = (w for w in WORKLOADS if w.name == name)
    return Workload(name, found.title, family, found.loss, found.make)


def _work(name: str, loss: Any, make: Any, family: str = "layers") -> Workload:
    return Workload(name, name.replace("_", " "), family, loss, make)


PROGRAMS = (
    _work("convolutions_b32", convolutions, make_convolutions),
    _work("convolutions_f4_b32", convolutions, partial(make_convolutions, dtype=np.float32)),
    _work("attention_f4_128x256", attention, make_attention),
    _work("attention_f8_128x256", attention, partial(make_attention, dtype=np.float64)),
    _known("yota_linear_128x784x100", "layers"),
    _known("mlp_f64_b128", "layers"),
    _known("mlp_f32_b128", "layers"),
    _work("transformer_d32", transformer, make_transformer),
    _work("lstm_8x32x64", lstm, make_lstm),
    _work("masked_factors_300x200", masked_factors, make_masked_factors, "factors"),
    _work("matrix_chain", chain, make_chain, "factors"),
    _work("batched_64x8x8", batched, make_batched, "factors"),
    _work("solves_10000x3x3", systems, make_systems, "factors"),
    _work("einsum_of_three", three_operands, make_three_operands, "factors"),
    _work("bilinear_forms", bilinear, make_bilinear, "factors"),
    _work("mahalanobis_1e5", mahalanobis, make_mahalanobis, "factors"),
    _work("ridge_500x40", ridge, make_ridge, "factors"),
    _work("gram_1000x100", gram, make_gram, "factors"),
    _work("low_rank_update", low_rank, make_low_rank, "factors"),
    _work("gesummv_1000", gesummv, _matrices((1000, 1000), (1000, 1000), (1000,)), "npbench"),
    _work(
        "mvt_1000",
        mvt,
        _matrices((1000,), (1000,), (1000,), (1000,), (1000, 1000), numbers=False),
        "npbench",
    ),
    _work("k2mm_200", k2mm, _matrices((200, 250), (250, 225), (225, 275), (200, 275)), "npbench"),
    _work(
        "k3mm_200",
        k3mm,
        _matrices((200, 220), (220, 210), (210, 250), (250, 230), numbers=False),
        "npbench",
    ),
    _work("gemm_250", gemm, _matrices((250, 300), (250, 275), (275, 300)), "npbench"),
)


main = command(PROGRAMS, "Time products in programs.")

if __name__ == "__main__":
    main()
