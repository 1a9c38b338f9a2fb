"""Calls of `tapegrad.nn`, whose values and derivatives are held against PyTorch's and differences.

A call is a name, arguments, and options; what is a float array in it is differentiated, unless it
stands in `fixed`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tapegrad import nn

RNG = np.random.default_rng(7)
START = RNG.bit_generator.state
SHARED = np.random.default_rng(8)  # of arrays that several calls have


def normal(*shape: int, rng: np.random.Generator = RNG) -> np.ndarray:
    return rng.normal(size=shape)


def uniform(*shape: int) -> np.ndarray:
    return RNG.uniform(0.05, 0.95, size=shape)


def labels(count: int, *shape: int) -> np.ndarray:
    return RNG.integers(0, count, size=shape)


def signs(*shape: int) -> np.ndarray:
    return 2.0 * RNG.integers(0, 2, size=shape) - 1


@dataclass(eq=False)
class Call:
    name: str
    args: tuple[Any, ...]
    options: dict[str, Any] = field(default_factory=dict)
    fixed: tuple[Any, ...] = ()  # what isn't differentiated: places, and names of options

    def __post_init__(self) -> None:
        """The next call's arrays are drawn anew, so that one more changes none of the others'."""
        RNG.bit_generator.state = START

    def __str__(self) -> str:
        shapes = [x.shape if isinstance(x, np.ndarray) else x for x in self.args]
        options = {k: "array" if isinstance(v, np.ndarray) else v for k, v in self.options.items()}
        text = ", ".join([*map(str, shapes), *(f"{k}={v}" for k, v in options.items())])
        return f"{self.name}({text})"

    def moved(self) -> dict[Any, np.ndarray]:
        """The arrays that are differentiated, by place or name."""
        given = {**dict(enumerate(self.args)), **self.options}
        floats = {k: x for k, x in given.items() if isinstance(x, np.ndarray) and x.dtype == float}
        return {k: x for k, x in floats.items() if k not in self.fixed}

    def function(self, called: Callable[..., Any], as_array: Any, dtype: Any) -> Callable[..., Any]:
        """A function of these arrays alone."""
        keys = list(self.moved())

        def of_array(x: Any) -> Any:
            if not isinstance(x, np.ndarray):
                return x
            return as_array(x.astype(dtype) if x.dtype == float else x)

        args = [of_array(x) for x in self.args]
        options = {k: of_array(x) for k, x in self.options.items()}

        def function(*xs: Any) -> Any:
            given = dict(zip(keys, xs, strict=True))
            return called(
                *[given.get(i, x) for i, x in enumerate(args)],
                **{k: given.get(k, x) for k, x in options.items()},
            )

        return function

    def ours(self, dtype: Any = float) -> Callable[..., Any]:
        return self.function(getattr(nn, self.name), lambda x: x, dtype)


ELEMENTS = 2 * normal(3, 5, rng=SHARED)
POINTS = np.array([[-40.0, -3.1, -2.9, -1.3, -0.51], [-0.1, 0.3, 0.7, 2.9, 30.0]])

ACTIVATIONS = [
    *[Call(name, (POINTS,)) for name in ("relu", "relu6", "elu", "selu", "celu", "gelu", "silu")],
    *[Call(name, (POINTS,)) for name in ("mish", "hardswish", "hardsigmoid", "hardtanh")],
    *[Call(name, (POINTS,)) for name in ("leaky_relu", "softplus", "softsign", "tanhshrink")],
    *[Call(name, (POINTS,)) for name in ("softshrink", "hardshrink", "sigmoid", "logsigmoid")],
    Call("leaky_relu", (POINTS, 0.3)),
    Call("elu", (POINTS,), {"alpha": 0.7}),
    Call("celu", (POINTS,), {"alpha": 0.7}),
    Call("gelu", (POINTS,), {"approximate": "tanh"}),
    Call("hardtanh", (POINTS, -0.2, 2.0)),
    Call("softplus", (POINTS,), {"beta": 3.0, "threshold": 1.2}),
    Call("softplus", (POINTS,), {"beta": 0.5}),
    Call("softshrink", (POINTS, 1.1)),
    Call("hardshrink", (POINTS, 1.1)),
    *[Call(name, (ELEMENTS, dim)) for name in ("softmax", "log_softmax") for dim in (0, -1)],
    Call("log_softmax", (normal(2, 3, 4), 1)),
    Call("glu", (normal(3, 4),)),
    Call("glu", (normal(4, 3),), {"dim": 0}),
]
ONES = [normal(5, rng=SHARED) for _ in range(4)]
NORMALISATION = [
    Call("batch_norm", (normal(6, 3), None, None), {"training": True}),
    Call("batch_norm", (normal(4, 3, 5), None, None, normal(3), normal(3), True), {"eps": 0.1}),
    Call(
        "batch_norm", (normal(4, 3, 2, 2), normal(3), uniform(3), normal(3), normal(3)), {}, (1, 2)
    ),
    Call("layer_norm", (normal(4, 5), (5,))),
    Call("layer_norm", (normal(4, 3, 5), (3, 5), normal(3, 5), normal(3, 5)), {"eps": 0.1}),
    Call("layer_norm", (normal(4, 5), (5,)), {"weight": normal(5)}),
    Call("group_norm", (normal(3, 6), 2)),
    Call("group_norm", (normal(3, 6, 2, 2), 3, normal(6), normal(6)), {"eps": 0.1}),
    Call("instance_norm", (normal(3, 2, 5),)),
    Call("instance_norm", (normal(3, 2, 2, 3),), {"weight": normal(2), "bias": normal(2)}),
    Call(
        "instance_norm",
        (normal(3, 2, 5), normal(2), uniform(2)),
        {"use_input_stats": False},
        (1, 2),
    ),
    Call("rms_norm", (normal(4, 5), (5,))),
    Call("rms_norm", (normal(4, 3, 5), (3, 5), normal(3, 5)), {"eps": 0.1}),
    Call("local_response_norm", (normal(2, 5, 3), 3)),
    Call("local_response_norm", (normal(2, 5, 3, 2), 4), {"alpha": 0.5, "beta": 0.6, "k": 2.0}),
    Call("normalize", (normal(3, 4),)),
    Call("normalize", (normal(3, 4),), {"p": 1.0, "dim": 0}),
    Call("normalize", (normal(3, 4, 2),), {"p": 3.0, "eps": 1.5}),
]


def reductions(call: Call, *names: str) -> list[Call]:
    return [
        Call(call.name, call.args, {**call.options, "reduction": name}, call.fixed)
        for name in (names or ("none", "mean", "sum"))
    ]


X, T = normal(4, 3, rng=SHARED), normal(4, 3, rng=SHARED)
LOGITS = np.array([[-40.0, -3.0, 0.5, 8.0], [50.0, 1.0, 0.0, -7.0]])
LOSSES = [
    *reductions(Call("mse_loss", (X, T))),
    *reductions(Call("l1_loss", (X, T))),
    *reductions(Call("smooth_l1_loss", (X, T), {"beta": 0.7})),
    Call("smooth_l1_loss", (X, T)),
    Call("smooth_l1_loss", (X, T), {"beta": 0.0}),
    *reductions(Call("huber_loss", (X, T), {"delta": 0.7})),
    *reductions(Call("binary_cross_entropy", (uniform(4, 3), uniform(4, 3)))),
    Call(
        "binary_cross_entropy", (uniform(4, 3), uniform(4, 3)), {"weight": uniform(3)}, ("weight",)
    ),
    *reductions(Call("binary_cross_entropy_with_logits", (LOGITS, uniform(2, 4)))),
    Call(
        "binary_cross_entropy_with_logits",
        (normal(4, 3), uniform(4, 3)),
        {"weight": uniform(4, 1), "pos_weight": uniform(3), "reduction": "none"},
        ("weight", "pos_weight"),
    ),
    *reductions(Call("kl_div", (normal(4, 3), uniform(4, 3))), "none", "sum", "batchmean"),
    Call("kl_div", (normal(4, 3), normal(4, 3)), {"log_target": True, "reduction": "sum"}),
    *reductions(Call("poisson_nll_loss", (X, 3 * uniform(4, 3)), {"full": True}, (1,))),
    Call(
        "poisson_nll_loss",
        (uniform(4, 3), 3 * uniform(4, 3)),
        {"log_input": False, "eps": 0.1},
        (1,),
    ),
    *reductions(Call("gaussian_nll_loss", (X, T, uniform(4, 3)))),
    Call("gaussian_nll_loss", (X, T, uniform(4)), {"full": True, "reduction": "none"}),
    Call("gaussian_nll_loss", (X, T, uniform(4, 1))),
    *reductions(Call("hinge_embedding_loss", (X, signs(4, 3)), {"margin": 0.6}, (1,))),
    *reductions(Call("soft_margin_loss", (5 * X, signs(4, 3)), {}, (1,))),
    *reductions(Call("margin_ranking_loss", (X, T, signs(4, 3)), {"margin": 0.3}, (2,))),
    *reductions(Call("cosine_embedding_loss", (X, T, signs(4)), {"margin": -0.2}, (2,))),
    Call("cosine_embedding_loss", (normal(3), normal(3), np.array(-1)), {"margin": -0.9}),
    *reductions(Call("triplet_margin_loss", (X, T, normal(4, 3)), {"margin": 2.0})),
    Call("triplet_margin_loss", (X, T, normal(4, 3)), {"margin": 3.0, "p": 3.0, "swap": True}),
    Call("multilabel_soft_margin_loss", (X, uniform(4, 3)), {"weight": uniform(3)}, (1, "weight")),
]
IGNORED = np.where(labels(3, 5, 4) == 0, -100, labels(6, 5, 4))
CLASSES = [
    *reductions(Call("nll_loss", (normal(4, 6), labels(6, 4)))),
    *reductions(Call("nll_loss", (normal(5, 6, 4), IGNORED), {"weight": uniform(6)}, ("weight",))),
    Call("nll_loss", (normal(6), np.array(2))),
    *reductions(Call("cross_entropy", (4 * normal(4, 6), labels(6, 4)))),
    *reductions(
        Call("cross_entropy", (normal(5, 6, 4), IGNORED), {"weight": uniform(6)}, ("weight",))
    ),
    *reductions(
        Call(
            "cross_entropy",
            (normal(5, 6, 4), IGNORED),
            {"weight": uniform(6), "label_smoothing": 0.3},
            ("weight",),
        )
    ),
    Call("cross_entropy", (normal(6), np.array(2)), {"label_smoothing": 0.2}),
    Call("cross_entropy", (normal(4, 1), np.zeros(4, int))),
    Call("cross_entropy", (normal(4, 6), np.array([1, 2, 1, 5])), {"ignore_index": 1}),
    *reductions(Call("cross_entropy", (normal(4, 6), uniform(4, 6)))),
    Call(
        "cross_entropy",
        (normal(4, 6, 2), uniform(4, 6, 2)),
        {"weight": uniform(6), "label_smoothing": 0.3},
        ("weight",),
    ),
    *reductions(Call("multi_margin_loss", (normal(4, 6), labels(6, 4)))),
    Call(
        "multi_margin_loss",
        (normal(4, 6), labels(6, 4)),
        {"p": 2, "margin": 0.7, "weight": uniform(6)},
        ("weight",),
    ),
]
LAYERS = [
    Call("linear", (normal(4, 3), normal(2, 3), normal(2))),
    Call("linear", (normal(2, 4, 3), normal(3))),
    Call("bilinear", (normal(4, 3), normal(4, 5), normal(2, 3, 5), normal(2))),
    Call("bilinear", (normal(2, 4, 3), normal(2, 4, 5), normal(2, 3, 5))),
    Call("pad", (normal(2, 3, 4), (1, 2))),
    Call("pad", (normal(2, 3, 4), (1, -2, -1, 3), "constant", 2.5)),
    *[Call("pad", (normal(2, 3, 4, 5), (1, 2, 3, 0), m)) for m in ("reflect", "circular")],
    Call("pad", (normal(2, 3, 4), (5, 6), "replicate")),
    Call("cosine_similarity", (normal(4, 3), normal(4, 3))),
    Call("cosine_similarity", (normal(4, 3, 2), normal(1, 3, 1)), {"dim": -2, "eps": 0.1}),
    Call("pairwise_distance", (normal(4, 3), normal(4, 3))),
    Call("pairwise_distance", (normal(4, 3), normal(3)), {"p": 1.0, "keepdim": True}),
    Call("pairwise_distance", (normal(4, 3), normal(4, 3)), {"p": 3.0, "eps": 0.1}),
    Call("embedding", (labels(5, 2, 3), normal(5, 4))),
    Call("pixel_shuffle", (normal(2, 12, 2, 3), 2)),
    Call("pixel_unshuffle", (normal(3, 4, 6), 2)),
    Call("unfold", (normal(2, 3, 5, 6), 2)),
    Call("unfold", (normal(3, 7, 8), (3, 2)), {"dilation": 2, "padding": (1, 2), "stride": (2, 1)}),
    Call("fold", (normal(2, 12, 20), (5, 6), 2)),
    Call(
        "fold",
        (normal(12, 21), (5, 7), (3, 2)),
        {"dilation": (1, 2), "padding": 1, "stride": (2, 1)},
    ),
    Call("interpolate", (normal(2, 3, 4),), {"size": 7}),
    Call("interpolate", (normal(2, 3, 4, 5),), {"scale_factor": (1.7, 0.6)}),
    Call("interpolate", (normal(1, 2, 3, 4, 2),), {"size": (5, 2, 2), "mode": "nearest-exact"}),
    *[
        Call("interpolate", (normal(*shape),), {"scale_factor": factors, "mode": mode})
        for mode in ("nearest", "nearest-exact")
        for shape, factors in (
            ((1, 1, 35), 2.3),
            ((1, 2, 2, 21), (1.1, 2.3)),
            ((1, 2, 31, 2, 3), (2.3, 1.7, 1.0)),
        )
    ],
    Call("interpolate", (normal(2, 3, 4),), {"size": 7, "mode": "linear"}),
    *[
        Call("interpolate", (normal(2, 3, 4, 5),), {"mode": "bilinear", "align_corners": a, **how})
        for a in (True, False)
        for how in ({"size": (7, 3)}, {"scale_factor": 1.7})
    ],
    *[
        Call("interpolate", (normal(2, 3, 4, 5),), {"mode": "bicubic", "align_corners": a, **how})
        for a in (True, False)
        for how in ({"size": (7, 3)}, {"size": (1, 9)}, {"scale_factor": (1.7, 0.6)})
    ],
    *[
        Call("interpolate", (normal(1, 2, 3, 4, 2),), {"mode": "trilinear", **how})
        for how in (
            {"size": (5, 2, 3)},
            {"size": (5, 1, 3), "align_corners": True},
            {"scale_factor": (1.7, 0.6, 2.3)},
            {"scale_factor": (1.7, 0.6, 2.3), "recompute_scale_factor": True},
        )
    ],
    Call("interpolate", (normal(2, 3, 9),), {"scale_factor": 0.6, "mode": "linear"}),
    Call("interpolate", (normal(2, 3, 9),), {"scale_factor": 0.6, "mode": "area"}),
    Call("interpolate", (normal(2, 3, 4, 5),), {"size": (2, 7), "mode": "area"}),
    Call("interpolate", (normal(1, 2, 3, 4, 2),), {"size": (5, 2, 3), "mode": "area"}),
    *[
        Call("embedding_bag", (labels(5, 3, 4), normal(5, 2)), {"mode": m, "padding_idx": p})
        for m in ("sum", "mean", "max")
        for p in (None, 1)
    ],
    *[
        Call("embedding_bag", (labels(5, 7), normal(5, 2), offsets), {"mode": m, **how})
        for m in ("sum", "mean")
        for offsets, how in (
            (np.array([0, 2, 2, 5]), {"padding_idx": -1}),
            (np.array([0, 3, 7]), {"include_last_offset": True}),
        )
    ],
    Call(
        "embedding_bag",
        (labels(5, 3, 4), normal(5, 2)),
        {"mode": "sum", "per_sample_weights": normal(3, 4)},
    ),
]
FUNCTIONAL = [*ACTIVATIONS, *NORMALISATION, *LOSSES, *CLASSES, *LAYERS]
METHODS = [  # of tensors, or of torch itself
    Call("masked_fill", (normal(3, 4), normal(4) > 0, 2.5)),
    Call("masked_select", (normal(3, 4), normal(3, 4) > 0)),
    Call("index_add", (normal(3, 4), 1, np.array([0, 2, 0]), normal(3, 3)), {"alpha": 2.5}),
    Call("index_add", (normal(3, 4), 0, np.array([2, 2]), normal(2, 4))),
    Call("index_fill", (normal(3, 4), 1, np.array([0, 2, 0]), 1.5)),
    Call("scatter_add", (normal(3, 4), 0, labels(3, 5, 4), normal(5, 4))),
    Call("repeat_interleave", (normal(3, 4), 2)),
    Call("repeat_interleave", (normal(3, 4), np.array([1, 0, 2]), 0)),
    Call("flatten", (normal(2, 3, 4), 1)),
    Call("flatten", (normal(2, 3, 4),), {"end_dim": 1}),
]
OWN = [  # what PyTorch hasn't, or has no derivative of
    Call("scatter_add", (normal(3, 4), 1, labels(4, 2, 3), normal(3, 5))),
    Call("capped_shifted_negative_exponential", (POINTS, 0.5)),
    Call("kl_div", (normal(4, 3), normal(4, 3)), {"log_target": True}),
    Call("cosine_similarity", (normal(4, 3), normal(4, 3)), {"eps": 1.5}),
    Call("euclidean_distance", (normal(4, 3), normal(4, 3))),
    Call("euclidean_distance", (normal(4, 3), normal(3)), {"dim": 0, "keepdim": True}),
    *reductions(Call("least_squares", (X, T))),
    *reductions(Call("margin_loss", (normal(7), labels(2, 7)))),
    Call("weight_norm", (normal(3, 4), normal(3, 1))),
    Call("weight_norm", (normal(3, 4, 2), normal(1, 4, 1)), {"dim": 1}),
    Call("weight_norm", (normal(3, 4), np.array(0.7)), {"dim": None}),
    Call("batch_norm", (normal(6, 3),), {"training": True, "mask": labels(3, 6) > 0}),
    Call("batch_norm", (normal(6, 3, 4),), {"training": True, "mask": labels(3, 6, 4) > 0}),
]
CALLS = [*FUNCTIONAL, *METHODS, *OWN]
# Whose cotangents leave something out that differences have
STOPPED = [
    Call("embedding", (labels(5, 7), normal(5, 4)), {"padding_idx": -2}),
    Call("embedding", (labels(5, 2, 7), normal(5, 4)), {"scale_grad_by_freq": True}),
]
