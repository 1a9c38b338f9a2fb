"""Calls that are made again at their place record what they recorded the long way."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.frontend.again_test import numerical, same
from tests.loops.programs import PROGRAMS
from tests.loops.programs_test import drawn

from tapegrad import grad, jit, trace
from tapegrad.errors import UnsupportedError
from tapegrad.tracing import recipes

V, W = np.array([0.3, -1.2, 2.5, 0.7]), np.array([1.5, 0.2, -0.4, 1.1])
M = np.arange(16.0).reshape(4, 4) / 7.0


def replayed(f: Callable[..., Any], *args: Any) -> int:
    """How many calls were made by recipes; the tapes are the same with and without."""
    count = 0
    replay = recipes._replayed

    def counting(*given: Any) -> Any:
        nonlocal count
        found = replay(*given)
        count += found is not None
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recipes, "_replayed", counting)
        same(f, *args)
    return count


@pytest.mark.every(8)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_programs_with_loops(program: Any) -> None:
    """The first trace tells which branches may be conditionals."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        args = drawn(program, 1, 9)
        trace(program.function, *args)
        replayed(program.function, *args)


CALLS = """
    np.sum(v) ; v.sum() ; np.sum(M, axis=0) ; M.sum(1) ; np.max(M, axis=1) ; np.mean(v) ; v.std()
    np.where(c, w, v) ; np.where(c, w, 0.0) ; np.where(c, -0.0, v) ; np.abs(v) ; np.clip(v, -1.0, 1)
    M @ v ; v @ v ; M @ M ; v @ M ; np.dot(M, v) ; M.dot(v) ; np.outer(v, w) ; M.T
    np.einsum("ij,j", M, v) ; M.reshape(2, -1) ; M.ravel() ; np.transpose(M)[0] ; v[None]
    v[:, None] * w ;    M.T ; M[..., 0] ; np.roll(v, 1) ; v.astype(np.float32)
    np.concatenate([v, w]) ; np.stack([v, w]) ; np.stack([v, w], axis=1) ; np.pad(v, 1)
    np.zeros_like(v) ; v.copy() ; M.T.copy() ; np.cumsum(v) ; np.linalg.norm(v)
    K @ v ; K * v ; np.add(v, w, dtype=np.float32) ; np.maximum.reduce(M) ; c & c ; np.hypot(v, w)
    v.mean(keepdims=True) ; np.broadcast_to(v, (2, 4)) ; np.expand_dims(v, 0) ; M.swapaxes(0, 1)
""".replace("\n", ";").split(";")


@pytest.mark.parametrize("text", [text.strip() for text in CALLS if text.strip()])
def test_calls(text: str, tmp_path: Any) -> None:
    source = f"""
def f(v, w, M):
    total = 0.0
    for t in range(5):
        v = v * 0.9 + 0.1 * w
        M = M * 0.9
        c = v > 0.5
        total = total + np.sum(({text}) * 1.0)
    return total
"""
    path = tmp_path / "calls.py"  # lines are told, so it is a file
    path.write_text(source)
    names: dict[str, Any] = {"np": np, "K": np.arange(16.0).reshape(4, 4)}
    exec(compile(source, str(path), "exec"), names)
    assert replayed(names["f"], V, W, M) >= 3


def test_writes() -> None:
    def f(v: Any, w: Any, M: Any) -> Any:
        w, M, u = w * 1.0, M * 1.0, v * 2.0
        kept, part = [], u[1:3]
        for _ in range(6):
            w += v
            w[1:] += v[1:]
            w[2] *= 0.5
            M[:, 1] -= w
            M.T[0] += v
            part += 1.0
            part[...] = u[2:]
            u[0] = part[1]
            kept.append(w.copy())
        return sum(np.sum(k) for k in kept) + np.sum(M * M) + np.sum(u[1:3] * part)

    assert replayed(f, V, W, M) >= 15
    before = V.copy()
    assert np.allclose(grad(f)(V, W, M), numerical(lambda v: f(v, W, M), V))
    assert np.array_equal(V, before)


def test_arrays_that_grow_are_written_to_through_views_of_one_size() -> None:
    def f(x: Any) -> Any:
        total = x[:1] * 1.0
        for k in range(4):
            longer = np.zeros(k + 2) + x[0]
            longer[: total.size] += total
            part = longer[:1]
            part *= x[1]
            longer[1:2] = part + k
            total = longer
        return np.sum(total * np.arange(5.0))

    replayed(f, V)


def test_an_array_that_others_have_keeps_what_it_holds() -> None:
    def f(v: Any) -> Any:
        w, held = v * 1.0, []
        for _ in range(6):
            other = w
            view = w[:2]
            w += v
            held.append(other is w)
            held.append(np.sum(view * other[:2]))
            w = w * 1.0
        return np.sum(w) + sum(held)

    same(f, V)


def test_one_place_sees_operands_of_all_kinds() -> None:
    def f(v: Any, M: Any) -> Any:
        total = 0.0
        x32, F = v.astype(np.float32), M.T.copy()
        for _t in range(3):
            for x in (v, v[::-1], M, M.T, M[:, ::2], F, x32, v[0], v[:0], M[0], v > 0.0):
                for y in (x, v[0], 2.0, np.float32(2), 0.0, -0.0, 0, False):
                    z = np.where(x > 0, x, y)
                    total = total + np.sum(z.reshape(-1)) + np.sum(x.ravel()) + np.abs(z).sum()
        return total

    assert replayed(f, V, M) > 100


def test_an_axis_isnt_a_flag_and_zeros_have_signs() -> None:
    def f(v: Any, M: Any) -> Any:
        kept = []
        for _t in range(4):
            for axis in (0, 1, (0, 1), None):
                kept.append(np.sum(np.sum(M, axis=axis) * v[0]))
            for zero in (0.0, -0.0, 0, False):
                kept.append(np.arctan2(np.where(v > 9.0, v, zero), -1.0)[0])
        return np.stack(kept)

    same(f, V, M)


def test_which_operands_are_the_same_counts() -> None:
    def f(v: Any, w: Any) -> Any:
        total, seen = 0.0, []
        for k in range(4):
            seen.insert(0, k)  # so each round is made
            for x, y in ((v, w), (v, v), (w, v), (v[1:], v[:-1]), (v, v * 1.0)):
                total = total + np.dot(x, y) + np.outer(x, y)[0, 1]
        return total

    assert replayed(f, V, W) > 10


def test_what_is_guarded_is_guarded_each_time() -> None:
    def f(x: Any, ns: Any) -> Any:
        total = x
        for t in range(6):
            n = ns[t]
            total = total + np.sum(np.roll(x, int(n))[:1]) * np.power(x, n)
        return np.sum(total)

    g = jit(f)
    ns = np.array([1, 2, 3, 1, 2, 3])
    for k in range(6):
        changed = ns.copy()
        changed[k] = 0
        assert np.allclose(g(V, changed), f(V, changed))
    same(f, V, ns)


def test_a_guard_that_there_is_already_is_none_of_another_value() -> None:
    def f(x: Any, first: Any, second: Any) -> Any:
        total = 0.0
        for t in range(6):
            total = total + np.roll(x, first if t < 4 else second)[0] * (t + 1.0)
        return total

    g = jit(f)
    for n in (1, 2, 3):
        assert np.allclose(g(V, np.int64(1), np.int64(n)), f(V, np.int64(1), np.int64(n)))


def test_a_value_that_is_read_is_a_branch() -> None:
    def f(x: Any) -> Any:
        total = 0.0
        for t in range(6):
            total = total + np.sum(x[x > t * 0.2])
        return total

    g = jit(f)
    for x in (V, -V, V * 2.0):
        assert np.allclose(g(x), f(x))


def test_arrays_from_outside() -> None:
    arrays = [np.arange(16.0).reshape(4, 4), np.eye(4)]

    def f(v: Any) -> Any:
        for t in range(8):
            v = np.tanh(arrays[t % 2] @ v) + np.where(v > 0.0, arrays[0][0], v)
        return np.sum(v)

    g = jit(f)
    assert np.allclose(g(V), f(V))
    arrays[1][0, 1] = 3.0
    assert np.allclose(g(V), f(V))
    same(f, V)


def test_an_array_that_is_written_to_meanwhile() -> None:
    K = np.eye(4)

    def f(v: Any) -> Any:
        for t in range(6):
            v = K @ v
            K[0, 0] = t
        return np.sum(v)

    assert np.allclose(jit(f)(V), f(V))
    K[0, 0] = 1.0
    g = jit(f)
    for _ in range(2):
        found, left = g(V), K.copy()
        K[0, 0] = 1.0
        assert np.allclose(found, f(V)) and np.array_equal(left, K)
        K[0, 0] = 1.0


def test_errors_that_are_watched_for_are_branches() -> None:
    def f(x: Any) -> Any:
        total = 0.0
        for t in range(8):
            with np.errstate(divide="raise" if t == 5 else "ignore"):
                try:
                    total = total + np.hypot(np.mean(1.0 / (x - 1.0)), 1.0)
                except FloatingPointError:
                    total = total * 0.5 + 3.0
        return total

    g = jit(f)
    for x in (V + 4.0, np.array([1.0, 2.0, 3.0, 4.0]), V + 5.0):
        assert np.allclose(g(x), f(x), equal_nan=True)


def test_numpys_warnings_come_as_without_a_trace() -> None:
    def f(x: Any) -> Any:
        for _ in range(5):
            y = np.mean(np.reciprocal(x)) + np.sum(np.where(x > 0.0, 1.0 / x, 0.0))
        return y

    counts = []
    for run in (lambda: f(V * 0.0), lambda: trace(f, V * 0.0)):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            run()
        counts.append(len(found))
    assert counts[0] == counts[1]


def test_orders_in_memory_decide_what_is_a_view() -> None:
    def f(M: Any) -> Any:
        total = 0.0
        for t in range(6):
            A = (M if t % 2 else M.T) * 1.0
            flat = A.reshape(-1)
            flat[0] = 5.0 + t
            total = total + np.sum(A * A) + np.sum(A.ravel()[:3])
        return total

    same(f, M)
    assert np.allclose(grad(f)(M), numerical(f, M), rtol=1e-4, atol=1e-3)


def test_errors_of_linear_algebra_are_guarded_each_time() -> None:
    def f(A: Any, b: Any, scales: Any) -> Any:
        total = 0.0
        for t in range(6):
            try:
                total = total + np.sum(np.linalg.solve(A * scales[t], b))
                total = total + np.linalg.inv(A * scales[t])[0, 1] + np.linalg.det(A)
            except np.linalg.LinAlgError:
                total = total - 1.0
        return total

    A, ones = M + 4.0 * np.eye(4), np.ones(6)
    assert replayed(f, A, V, ones) >= 8
    g = jit(f)
    for k in range(6):
        scales = ones.copy()
        scales[k] = 0.0
        assert np.allclose(g(A, V, ones), f(A, V, ones))
        assert np.allclose(g(A, V, scales), f(A, V, scales))
    scales[2] = 0.0
    same(f, A, V, scales)


def test_what_may_share_memory_stays_refused() -> None:
    def f(x: Any) -> Any:
        for _ in range(5):
            y = np.einsum("ij,jk->ki", x, x)  # which may lie in any order
            z = y.reshape(-1)
            total = np.sum(z)
        z[0] = 0.0
        return total + np.sum(y)

    with pytest.raises(UnsupportedError):
        trace(f, M)


def test_values_of_two_traces_meet_at_one_place() -> None:
    def norm(x: Any, y: Any) -> Any:
        return np.sum(np.where(x > 0.0, x, y) * np.mean(x))

    def f(x: Any) -> Any:
        def inner(u: Any) -> Any:
            total = 0.0
            for _ in range(4):
                total = total + norm(u, u) + norm(u, x) + norm(x, x)
            return total

        total = 0.0
        for _ in range(4):
            total = total + norm(x, x) + np.sum(grad(inner)(x * 0.5))
        return total

    same(f, V)
    assert np.allclose(grad(f)(V), numerical(f, V), rtol=1e-4)


def test_a_loop_of_large_arrays_is_written_in_place() -> None:
    def f(x: Any) -> Any:
        w = x * 1.0
        for _ in range(12):
            w += x
            memory.add(w._read()[1].ctypes.data)
        return np.sum(w)

    memory: set[int] = set()
    trace(f, np.ones(5000))
    assert len(memory) == 1
