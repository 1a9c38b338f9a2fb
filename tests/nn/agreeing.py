"""Values and derivatives of functions of `tapegrad.nn`, beside PyTorch's and plain ones."""

from __future__ import annotations

import importlib.util
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tapegrad

RNG = np.random.default_rng
RECORD = Path(__file__).with_name("torch.json")
HERE = importlib.util.find_spec("torch") is not None


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


class PyTorch:
    """The numbers that PyTorch has in a test: computed where it is installed, and read from a
    record where it isn't."""

    def __init__(self, test: str, update: bool) -> None:
        self.test, self.update, self.asked = test, update, 0

    def numbers(self, theirs: Callable[[Any], list[Any]]) -> list[Any]:
        """What `theirs(torch)` is, lists of numbers and texts; each call has a line of its own."""
        self.asked += 1
        key, known = f"{self.test} {self.asked}", json.loads(RECORD.read_text())
        found = theirs(importlib.import_module("torch")) if HERE else known.get(key)
        if HERE and self.update:
            known[key] = found
            lines = [f"{json.dumps(k)}: {json.dumps(known[k])}" for k in sorted(known)]
            RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        assert key in known and same(found, known[key]), (
            f"{RECORD.name} doesn't hold what PyTorch says in this test: run `make torch`, and "
            "`.venv/bin/python -m pytest tests/nn --update-golden`"
        )
        return found

    def agrees(self, found: Any, theirs: Callable[[Any], Any], at: float) -> None:
        """The arrays have the shapes, dtypes and numbers of the arrays `theirs(torch)`, up to `at`
        of the largest. Where PyTorch isn't installed that is known of a few sums."""

        def wanted(torch: Any) -> list[Any]:
            arrays = [np.asarray(x) for x in theirs(torch)]
            for a, b in zip(found, arrays, strict=True):
                assert (np.shape(a), np.result_type(a)) == (b.shape, b.dtype)
                scale = max(1, abs(b).max(initial=0, where=np.isfinite(b)))
                np.testing.assert_allclose(a, b, rtol=at, atol=at * scale)
            return [*map(told, arrays)]

        for a, (kind, shape, scale, sums) in zip(
            map(told, found), self.numbers(wanted), strict=True
        ):
            assert a[:2] == [kind, shape]
            room = 2 * max(at, 1e-13) * max(1, scale) * math.sqrt(math.prod(shape))
            np.testing.assert_allclose(a[3], sums, rtol=0, atol=room)


def same(a: Any, b: Any) -> bool:
    """Whether two lists have the same texts, and nearly the same numbers: PyTorch's versions round
    in ways of their own."""
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    return a == b if isinstance(a, str) else math.isclose(a, b, rel_tol=1e-3, abs_tol=1e-3)


def told(x: Any) -> list[Any]:
    """An array's dtype, shape and largest number, and four random sums; of up to four numbers
    these."""
    x = np.asarray(x)
    flat = np.nan_to_num(x.ravel().astype(float), nan=1.2345, posinf=2.3456, neginf=-3.4567)
    sums = RNG(x.size).normal(size=(4, x.size)) @ flat if x.size > 4 else flat
    scale = abs(flat).max(initial=0)
    return [x.dtype.name, [*x.shape], float(f"{scale:.3g}"), [float(f"{s:.15g}") for s in sums]]


def agrees_with_torch(
    pytorch: PyTorch,
    f: Callable[..., Any],
    theirs: Callable[[Any], Callable[..., Any]],
    xs: Any,
    mode: str,
    at: float,
) -> None:
    """Value, dtype and gradients are those of the function `theirs(torch)`, up to `at` of the
    largest number."""
    found, slopes = gradients(f, xs, mode)
    weights = RNG(1).normal(size=found.shape).astype(found.dtype)

    def wanted(torch: Any) -> list[Any]:
        tensors = [torch.tensor(x, requires_grad=True) for x in xs]
        out = theirs(torch)(*tensors)
        (out * torch.tensor(weights)).sum().backward()
        return [out.detach(), *[t.grad for t in tensors]]

    pytorch.agrees([found, *slopes], wanted, at)
