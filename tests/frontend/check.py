"""What every test of the front end asks of a function: traced, it is NumPy's, and its gradient
is the one that differences find.

The tables hold one-line lambdas; each line is its test's name.
"""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapegrad import grad, trace
from tapegrad.checking.tape_verify import verify

TOLERANCE = {np.dtype(np.float64): 1e-12, np.dtype(np.float32): 2e-5}


def source_line(value: Any) -> str | None:
    """The line of a table that a lambda stands on: the name of its test."""
    if not inspect.isfunction(value):
        return None
    code = value.__code__
    text = linecache.getline(code.co_filename, code.co_firstlineno).strip().rstrip(",")
    return text.removeprefix("lambda ")


def name_of(f: Any) -> str:
    """The text of a table's lambda; the name of another function."""
    return source_line(f) or getattr(f, "__name__", "")


def normal(*shape: int, seed: int = 0, dtype: Any = np.float64) -> np.ndarray:
    """Random numbers, a different draw for each shape."""
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def positive(*shape: int, seed: int = 0) -> np.ndarray:
    """Random numbers between a half and three halves."""
    return np.random.default_rng([seed, *shape]).uniform(0.5, 1.5, shape)


def builtin_kind(error: type[BaseException]) -> type[BaseException]:
    """Python's own class that an exception is of: NumPy has subclasses for its details."""
    return next(c for c in error.__mro__ if c.__module__ == "builtins")


def leaves(result: Any) -> list[Any]:
    """The arrays and numbers of a result, in order."""
    if isinstance(result, (tuple, list)):
        return [leaf for part in result for leaf in leaves(part)]
    return [result]


def assert_same(found: Any, expected: Any) -> None:
    """Equal structure, shapes and dtypes, and values up to rounding."""
    got, wanted = leaves(found), leaves(expected)
    assert len(got) == len(wanted)
    for a, b in zip(got, wanted, strict=True):
        x, y = np.asarray(a), np.asarray(b)
        assert x.shape == y.shape
        assert x.dtype == y.dtype
        rtol = TOLERANCE.get(y.dtype, 0)
        np.testing.assert_allclose(x, y, rtol=rtol, atol=rtol)


def check_value(f: Callable[..., Any], *args: Any) -> None:
    """`f` traced and its tape played give what NumPy gives, and leave the arguments alone."""
    kept = [np.array(x) for x in args]
    expected = f(*[np.array(x) if np.ndim(x) else x for x in args])
    value, tape = trace(f, *args)
    verify(tape)
    assert_same(value, expected)
    played = tape.play(*args) if len(tape.outputs) else ()
    floats = [x for x in leaves(value) if isinstance(x, (np.ndarray, np.generic))]
    if len(floats) == len(tape.outputs):
        assert_same(played, tuple(floats))
    for x, y in zip(args, kept, strict=True):
        np.testing.assert_array_equal(x, y)


def moved(args: Sequence[Any], k: int, step: Any) -> list[Any]:
    """The arguments with a step added to one of them, which keeps its layout in memory."""
    done = [np.array(x) if np.ndim(x) else x for x in args]
    if np.ndim(done[k]):
        done[k] += step
    else:
        done[k] = np.float64(done[k] + step)
    return done


def check_gradient(
    f: Callable[..., Any], *args: Any, wrt: Sequence[int] | None = None, atol: float = 1e-7
) -> None:
    """The gradient of a random weighting of the results, along a random direction, against a
    central difference. `wrt` numbers the arguments; the floating-point arrays, if not given."""
    if wrt is None:
        wrt = [k for k, x in enumerate(args) if np.asarray(x).dtype.kind == "f"]
    if not wrt:
        return
    rng = np.random.default_rng(1)
    wide = [np.array(x, np.float64) if np.asarray(x).dtype.kind == "f" else x for x in args]
    results = leaves(f(*[np.array(x) if np.ndim(x) else x for x in wide]))
    weights = [rng.standard_normal(np.shape(r)) for r in results]
    # A function that makes float32 of float64 has steps, which the difference must span.
    coarse = any(getattr(r, "dtype", None) == np.float32 for r in results) or "f4" in name_of(f)
    h = 1e-2 if coarse else 1e-6

    def weighted(*xs: Any) -> Any:
        total: Any = 0.0
        for w, r in zip(weights, leaves(f(*xs)), strict=True):
            if getattr(r, "dtype", np.dtype(bool)).kind == "f":
                total = total + np.sum(r * w.astype(r.dtype))
        return total

    gradients = grad(weighted, argnums=tuple(wrt), compile="never")(*args)
    single = any(np.asarray(args[k]).dtype == np.float32 for k in wrt)
    for k, g in zip(wrt, gradients, strict=True):
        x = np.asarray(args[k])
        assert np.shape(g) == x.shape
        assert np.asarray(g).dtype == x.dtype
        direction = rng.standard_normal(x.shape)
        expected = (
            weighted(*moved(wide, k, h * direction)) - weighted(*moved(wide, k, -h * direction))
        ) / (2 * h)
        size = 1 + np.sum(np.abs(np.float64(g) * direction))
        found = np.sum(np.float64(g) * direction)
        tolerance = 1e-3 if coarse else 1e-5 if single else atol
        assert abs(found - expected) <= tolerance * size, (found, expected)


def check(f: Callable[..., Any], *args: Any, atol: float = 1e-7) -> None:
    """Value, shape, dtype and gradient of `f` at these arguments."""
    check_value(f, *args)
    check_gradient(f, *args, atol=atol)
