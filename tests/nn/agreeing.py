"""Values and derivatives of functions of `tapegrad.nn`, beside PyTorch's and plain ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tapegrad

RNG = np.random.default_rng


def drawn(*shapes: tuple[int, ...], dtype: Any = float) -> list[np.ndarray]:
    rng = RNG(0)
    return [rng.normal(size=shape).astype(dtype) for shape in shapes]


def gradients(f: Callable[..., Any], xs: Any, mode: str) -> tuple[Any, Any]:
    """The value of `f`, and the gradients of its product with random numbers."""
    plain = f(*xs)
    weights = RNG(1).normal(size=plain.shape).astype(plain.dtype)
    numbers = tuple(range(len(xs)))
    df = tapegrad.grad(lambda *xs: np.sum(f(*xs) * weights), argnums=numbers, compile=mode)
    return plain, df(*xs)


def agrees_with_torch(f: Callable[..., Any], theirs: Any, xs: Any, mode: str, at: float) -> None:
    """Value, dtype and gradients are PyTorch's, up to `at` of the largest number."""
    import torch

    tensors = [torch.tensor(x, requires_grad=True) for x in xs]
    out = theirs(*tensors)
    found, slopes = gradients(f, xs, mode)
    (out * torch.tensor(RNG(1).normal(size=found.shape).astype(found.dtype))).sum().backward()
    wanted = [out.detach().numpy(), *[t.grad.numpy() for t in tensors]]
    for a, b in zip((found, *slopes), wanted, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a, b, rtol=at, atol=at * max(1, abs(b).max(initial=0)))
