"""In-place writes and aliasing"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from tests.honesty.check import assert_apart, refused

import tapegrad.numpy as tnp
from tapegrad import grad, jit, primitive, simplegrad, trace, value_and_grad, vjp
from tapegrad.errors import UnsupportedError

X = np.array([1.0, -2.0, 3.0, 0.5])
M = np.arange(1.0, 13.0).reshape(3, 4) / 4
W = np.array([1.0, 2.0, -1.0, 0.5])  # weights, so that no two elements count the same

ALL = ["never", "always"]

# ---- on an array of the function's own


def test_items_and_slices(derivative):
    """`y[k] = v`, `y[a:b] = v`, `y[mask] = v`, `y[k] += v` -> recorded, as NumPy does them"""

    def f(x):
        y = x * 2
        y[0] = x[1] ** 2
        y[1:3] = x[2:] ** 3
        y[y > 5] = x[0]
        y[-1] += y[0] * x[3]
        y[[0, 2]] *= x[:2]
        return np.sum(y**2)

    df = derivative(f)
    df.at(X)
    df.at(-X)


def test_augmented_assignment_of_a_name(derivative):
    """`y += x` and its relatives, with another name for `y` -> both names see it"""

    def f(x):
        y = x.copy()
        z = y
        y += 1
        y *= x
        y -= x**2
        y /= 3.0
        y **= 2
        return np.sum(z * W)

    derivative(f).at(X)


def test_numbers_are_bound_anew(derivative):
    """`s += 1` where `s` is a number -> the name is bound anew, other names keep the old value"""

    def f(x):
        s = t = x[0]
        s += x[1]
        s *= 3
        return s**2 * t

    df = derivative(f)
    df.at(X)
    derivative(lambda a: f([a, a * 2])).at(1.5)


def test_filling_a_new_array_in_a_loop(derivative):
    """`np.zeros_like(x)`, `ones_like`, `empty_like`, `full_like` filled in a loop -> right"""

    def f(x):
        a, b, c = np.zeros_like(x), np.empty_like(x), np.full_like(x, 2.0, shape=(2, 4))
        for k in range(len(x)):
            a[k] = x[k] ** 2 + a[k - 1]
            b[k] = a[k] * x[0]
            c[k % 2, k] *= b[k]
        return np.sum(c * W) + np.sum(a * b)

    derivative(f).at(X)


def test_out(derivative):
    """`out=` of functions, ufuncs, methods and reductions -> written to, as NumPy does"""

    def f(x):
        y, row = np.zeros_like(x), np.zeros_like(x[0])
        np.exp(x, out=y)
        np.multiply(y, x, y)
        np.sum(y, axis=0, out=row)
        np.add(x, row, out=y, where=x > 1)
        x.cumsum(axis=1, out=y[:, :])
        np.clip(y, 1.0, 4.0, out=y)
        return np.sum(y * W) + np.sum(row**2)

    derivative(f).at(M)


def test_functions_that_write(derivative):
    """`np.add.at`, `copyto`, `put`, `place`, `putmask`, `fill_diagonal`, `fill` -> as NumPy does"""

    def f(x):
        y = x * 1
        np.add.at(y, [0, 0, 2], x[:3] ** 2)
        np.copyto(y, x**3, where=x > 1)
        np.put(y, [0, 1], x[2:])
        np.place(y, y > 7, x[:2])
        np.putmask(y, x < 0, x**2)
        square = np.zeros_like(x, shape=(4, 4))
        np.fill_diagonal(square, y)
        square[3].fill(x[0] * x[1])
        return np.sum(square @ W * W)

    df = derivative(f)
    df.at(X)
    df.at(-X)


def test_sorting_in_place(derivative):
    """`y.sort()`, along an axis, through a view -> sorted, and traced derivatives follow"""

    def f(x):
        y = x**2
        y.sort()
        y[::-1].sort()
        z = x.reshape(2, 2).T.copy()
        z.sort(axis=0)
        return np.sum(y * W) + np.sum(z @ W[:2])

    df = derivative(f)
    df.at(X)
    df.at(np.array([0.5, 3.0, -2.0, 1.0]))


def test_what_changes_an_array_as_a_whole():
    """`x.resize`, `x.shape =`, `x.dtype =` of an argument -> error with the line and another way"""

    def resized(x):
        x.resize(2)
        return np.sum(x)

    def shaped(x):
        x.shape = (2, 2)
        return np.sum(x)

    def retyped(x):
        x.dtype = np.int64
        return np.sum(x)

    for f, line in [
        (resized, "x.resize(2)"),
        (shaped, "x.shape = (2, 2)"),
        (retyped, "x.dtype = np.int64"),
    ]:
        with refused(NotImplementedError, line):
            grad(f)(X.copy())


# ---- views


def test_writes_through_views(derivative):
    """a write through a slice, `.T`, `reshape`, `ravel`, `[None]` -> reaches the base"""

    def f(x):
        y = x * 1
        y[1:][0] = x[0] ** 2
        y.T[1] *= x[:, 0]
        y.reshape(-1)[5] += x[2, 2]
        y.ravel()[::5] *= 2
        y[None, ..., 0][0, 1] = x[0, 1] ** 3
        y.swapaxes(0, 1)[3, 1:] -= x[1, 1]
        np.expand_dims(y, 1)[0, 0, 0] = x[2, 3]
        return np.sum((y @ W) ** 2)

    derivative(f).at(M)


def test_views_of_views(derivative):
    """a write through a view of a view of a view -> reaches the base and every other view"""

    def f(x):
        y = x * 1
        a = y[1:]
        b = a.T[::-1]
        c = b[1:3].reshape(2, 2)[0]
        c += x[0, :2]
        first = np.sum(a**2)
        y[2] *= 2
        a[:, 1] = x[0, 0]
        return first + np.sum(b * x[0, :4, None]) + np.sum(c**3) + np.sum(y[:, 2])

    derivative(f).at(M)


def test_a_view_is_read_after_its_base_was_written(derivative):
    """a view, made before its base was written to, is read -> what was written"""

    def f(x):
        y = x.copy()
        head, every_other = y[:2], y[::2]
        before = np.sum(head**2)
        y *= x
        y[0] = 7 * x[3]
        return before + np.sum(head**3) * np.sum(every_other)

    derivative(f).at(X)


def test_flat(derivative):
    """`y.flat[k] = v` and `y.flat = v`, on a transposed array too -> the elements in order"""

    def f(x):
        y = x.T * 1
        y.flat[3] = x[0, 0] ** 2
        y.T.flat[4:6] = x[1, :2] ** 3
        z = np.zeros_like(x)
        z.flat = y
        return np.sum((z @ W) ** 2)

    derivative(f).at(M)


def test_views_that_are_only_read():
    """a write to a broadcast view or a diagonal -> refused, as NumPy does, with the line"""

    def diagonal(x):
        y = x * 1
        y.diagonal()[0] = 3.0
        return np.sum(y)

    with refused(ValueError, "read-only", "y.diagonal()[0] = 3.0", "np.fill_diagonal"):
        grad(diagonal)(M)

    def f(x):
        y = np.broadcast_to(x, (3, 4))
        y[0] = 1.0
        return np.sum(y)

    with pytest.raises(ValueError, match="read-only"):
        f(X)
    with refused(ValueError, "read-only", "y[0] = 1.0"):
        grad(f)(X)


def test_a_diagonal_that_is_written_to(derivative):
    """`np.einsum("ii->i", m)[:] = x`, the one diagonal that NumPy can write to -> written to `m`"""

    def f(x):
        y = x[:, :3] * x[0, 0]
        np.einsum("ii->i", y)[:] = x[0, :3] ** 2
        return np.sum(y * y)

    derivative(f).at(M)


def test_reshapes_in_other_memory_orders(derivative):
    """`y.ravel()` is a copy where `y` lies in column order, and is written to -> as NumPy does"""

    def f(x):
        total = 0.0
        for k, y in enumerate(
            [
                x.T * 1,
                x.T.copy(),
                np.copy(x.T),
                np.exp(x.T) + x.T[0],
                np.zeros_like(x.T),
                x.T.astype(float),
                np.where(x.T > 1.1, x.T, 2.0),
                +x[::-1].T,
            ]
        ):
            y[1] *= 2  # a write doesn't change how an array lies
            y.ravel()[:2] = x[0, 0] ** 2
            y.reshape(2, 6)[1] = 3 * x[1, 1]
            total = total + (k + 1) * np.sum(y @ W[:3] * W)
        return total

    df = derivative(f)
    df.at(M)
    df.at(M.reshape(4, 3).T)


def test_memory_orders_that_are_not_followed():
    """a reshape whose memory isn't followed is written to, and its base read -> error"""

    def f(x):
        y = np.einsum("ij,i->ji", x, x[:, 0])
        y.ravel()[0] = 5.0
        return np.sum(y)

    def g(x):
        y = np.einsum("ij,jk->ki", x, x.T)
        flat = y.reshape(-1)
        y[0] = 5.0
        return np.sum(flat)

    def h(x):
        y = np.sort(x.T, axis=0).ravel()  # nobody sees whether this is a copy
        y[0] = 5.0
        return np.sum(y)

    with refused(NotImplementedError, "np.sum(y)", "y.ravel()[0] = 5.0", "lie in memory"):
        grad(f)(M)
    with refused(NotImplementedError, "np.sum(flat)", "y[0] = 5.0", "Write to a copy"):
        grad(g)(M)
    np.testing.assert_array_equal(grad(h)(M).ravel()[:2], [0, 1])


def test_copies_do_not_follow(derivative):
    """`.copy()`, `y[[0, 1]]`, `y[mask]`, `+y`, `np.array(y)`, `flatten` -> keep what they held"""

    def f(x):
        y = x * 1
        kept = [
            y.copy(),
            y[[0, 1, 2, 3]],
            y[y > -9],
            +y,
            tnp.array(y),
            y.flatten(),
            y.astype(float),
        ]
        y[:] = x**2
        return sum((k + 1) * np.sum(z * W) for k, z in enumerate(kept)) + np.sum(y)

    derivative(f).at(X)


def test_swaps(derivative):
    """rows are swapped: by index lists, by copies, and without -> as NumPy does, trap included"""

    def f(x):
        y, z, t = x * 1, x * 2, x * 3
        y[[0, 1]] = y[[1, 0]]
        z[0], z[1] = z[1].copy(), z[0].copy()
        t[0], t[1] = t[1], t[0]  # both are row 1 now: the right-hand sides are views
        t[0, 0], t[2, 3] = t[2, 3], t[0, 0]  # numbers are swapped
        return np.sum((y @ W) * x[:, 0]) + np.sum((z @ W) ** 2) + np.sum((t @ W) * x[:, 1])

    derivative(f).at(M)


def test_overlapping_slices(derivative):
    """`y[1:] = y[:-1]`, `y[1:] += y[:-1]`, `np.add(y[1:], y[:-1], out=y[1:])` -> as NumPy does"""

    def f(x):
        y = x * x
        y[1:] = y[:-1]
        y[1:] += y[:-1] * x[1:]
        y[:-1] -= y[1:]
        np.multiply(y[1:], y[:-1], out=y[1:])
        y[::-1] += y
        return np.sum(y * W)

    derivative(f).at(X)


@dataclass
class State:
    position: Any
    speed: Any


@pytest.mark.parametrize("compile", ALL)
def test_attributes_and_containers(compile):
    """`state.position += v` and `params["w"][k] = v` on arguments in containers -> right"""

    def f(state):
        lists = {"w": [state.speed * 1]}
        for _ in range(2):
            state.position += state.speed
            state.speed[1:] *= state.position[:-1]
            lists["w"][0][0] += state.position[2]
        return np.sum(state.position**2) + np.sum(lists["w"][0] * W)

    d = value_and_grad(f, compile=compile)
    for x in (X, X[::-1].copy()):
        state, mine = State(x, x * 2), State(x.copy(), x * 2)
        value, gradient = d(state)
        assert value == pytest.approx(f(mine), rel=1e-12)
        np.testing.assert_array_equal(state.position, x)
        np.testing.assert_array_equal(state.speed, x * 2)
        step = 1e-6
        for k in range(4):
            up, down = (State(x + s * np.eye(4)[k], x * 2) for s in (step, -step))
            slope = (f(up) - f(down)) / (2 * step)
            assert gradient.position[k] == pytest.approx(slope, rel=1e-6)


# ---- the caller's arrays


def _written(a):
    a[0] = a[1] ** 2
    a *= 2
    a.T[2:] += a[0]
    np.add.at(a, [1, 1], 3.0)
    a.sort()
    return np.sum(a * W)


def test_a_write_to_an_argument(derivative):
    """the function writes to its argument -> right; the caller's array stays as it was"""

    def of_a_copy(x):
        return _written(x.copy())

    derivative(of_a_copy).at(X)
    for compile in ALL:
        d = value_and_grad(_written, compile=compile)
        x = X.copy()
        for _ in range(2):
            value, gradient = d(x)
            np.testing.assert_array_equal(x, X)
            assert value == of_a_copy(X)
            np.testing.assert_array_equal(gradient, grad(of_a_copy)(X))


def test_a_write_in_a_helper(derivative):
    """a helper function writes to the array that it is passed -> the caller inside sees it"""

    def helper(a, k):
        a[k] *= a[k - 1]
        a += 1

    def f(x):
        y = x * 1
        helper(y, 1)
        helper(y[1:], 1)
        return np.sum(y * W)

    derivative(f).at(X)


def test_a_read_only_argument():
    """the caller's array is read-only -> the function may write to it all the same"""
    x = X.copy()
    x.setflags(write=False)
    for compile in ALL:
        np.testing.assert_allclose(grad(_written, compile=compile)(x), grad(_written)(X))


@pytest.mark.parametrize("compile", ALL)
def test_arguments_that_share_memory(compile):
    """the function writes to an argument that shares memory with another -> error, at each call"""

    def f(a, b):
        a[0] = b[1]
        return np.sum(a * b)

    df = grad(f, (0, 1), compile=compile)
    df(X, X.copy())
    for a, b in [(X, X), (X[1:], X[:-1]), (X, X[::-1])]:
        with refused(TypeError, "a[0] = b[1]", "shares memory with argument b", "Pass a copy"):
            df(a, b)
    M2 = M.copy()
    df(M2[:, 0], M2[:, 1])  # interleaved, and apart
    with refused(TypeError, "shares memory"):
        grad(lambda x: jit(f)(x, x))(X)
    with refused(TypeError, "shares memory"):
        vjp(f, X, X)


@pytest.mark.parametrize("compile", ALL)
def test_arguments_that_share_memory_and_are_only_read(compile):
    """arguments share memory and nothing is written -> right, each has its own gradient"""
    df = grad(lambda a, b: np.sum(a**2 * b), (0, 1), compile=compile)
    d_a, d_b = df(X, X)
    np.testing.assert_array_equal(d_a, 2 * X * X)
    np.testing.assert_array_equal(d_b, X**2)
    assert not np.shares_memory(d_a, d_b)


def test_a_write_to_a_captured_array():
    """a traced value is written into an array that the function captured -> as in plain NumPy"""
    buffer = np.zeros(4)

    def f(x):
        buffer[:] = x**2
        return np.sum(buffer)

    def g(x):
        np.exp(x, out=buffer)
        return np.sum(buffer)

    np.testing.assert_allclose(grad(f)(X), 2 * X)
    np.testing.assert_array_equal(buffer, X**2)
    np.testing.assert_allclose(grad(g)(X), np.exp(X))
    np.testing.assert_array_equal(buffer, np.exp(X))


def test_a_captured_array_is_changed_while_it_is_used():
    """a captured array meets traced values and is changed by the function -> as in plain NumPy"""
    weights = np.ones(4)

    def f(x):
        y = np.sum(weights * x)
        weights[0] += 1
        return y * np.sum(weights * x)

    df = grad(f)
    for k in (1.0, 2.0):
        first, then = np.ones(4), np.ones(4)
        first[0], then[0] = k, k + 1
        np.testing.assert_allclose(df(X), first * np.sum(then * X) + then * np.sum(first * X))
        np.testing.assert_array_equal(weights, then)


def test_a_captured_array_and_the_argument_are_one():
    """the function writes to an argument that it also captured -> error with the line"""
    x = X.copy()

    def f(a):
        a[0] = 5.0
        return np.sum(a * x)

    df = grad(f, compile="never")
    np.testing.assert_array_equal(df(X), [0.0, *x[1:]])
    with refused(TypeError, "a[0] = 5.0", "shares memory with an array that it uses"):
        df(x)


def test_a_write_to_an_outer_array():
    """an inner derivative writes to an array of the outer function -> error with the line"""

    def f(x):
        y = x * 1

        def inner(z):
            y[0] = z
            return z**2 * y[1]

        return grad(inner)(x[0]) + np.sum(y)

    with refused(NotImplementedError, "y[0] = z", "y = y.copy()"):
        grad(f)(X)


# ---- results are the caller's own


@pytest.mark.parametrize("compile", ALL)
def test_results_share_no_memory(compile):
    """identity, one array twice, views of the argument, of a captured array -> all are copies"""
    captured = X * 2

    def f(x):
        y = x * 2
        return x, x, x[1:], x.reshape(2, 2).T, captured, captured[1:], y, y, y[:2], np.zeros_like(x)

    def check(results):
        assert_apart(list(results), [X, captured])
        for found, expected in zip(results, f(X), strict=True):
            np.testing.assert_array_equal(found, expected)
        for x in results:
            x[...] = -1.0

    d = jit(f, compile=compile)
    for _ in range(3):
        check(d(X))
    check(vjp(f, X)[0])


def test_results_inside_a_function_share_no_memory(derivative):
    """results of derivatives inside a function are written to -> nothing else changes"""

    def f(x):
        y = x * 1
        same, tail = jit(lambda a: (a, a[1:]))(y)
        twice, again = jit(lambda a: (a * 2,) * 2)(y)
        slope, aux = grad(lambda a: (np.sum(a * y), {"a": a, "tail": a[1:]}), has_aux=True)(y)
        value, pullback = vjp(lambda a: a, y)
        ct = y * 3
        (d_y,) = pullback(ct)
        everything = [y, same, tail, twice, again, slope, *aux.values(), value, ct, d_y]
        for k, z in enumerate(everything):
            z *= k / 10
            z[0] += x[1] ** 2
        everything += pullback(ct)
        return sum((k + 1) * np.sum(z * W[: z.size]) for k, z in enumerate(everything))

    df = derivative(f)
    df.at(X)
    df.at(-X)


def test_a_primitive_returns_its_argument():
    """a primitive returns its argument, and one of the two is written to -> error with the line"""
    same = primitive(lambda a: a)

    def f(x):
        y = x * 1
        z = same(y)
        z += 1
        return np.sum(y)

    with refused(NotImplementedError, "z += 1", "what a primitive returns"):
        grad(f)(X)
    np.testing.assert_array_equal(grad(lambda x: np.sum(same(x) * x))(X), 2 * X)


def test_the_value_of_a_trace():
    """`trace` returns the argument itself, or a view of it -> a copy"""
    for f in (lambda x: x, lambda x: x[1:], lambda x: x * 1):
        assert_apart([trace(f, X)[0]], [X])


@pytest.mark.parametrize("compile", ALL)
def test_gradients_share_no_memory(compile):
    """one gradient for two arguments, the gradient is a captured array -> all are copies"""
    weights = X * 2

    def f(a, b, c):
        return np.sum((a + b) * weights) + np.sum(c * weights)

    df = grad(f, (0, 1, 2), compile=compile)
    for _ in range(3):
        found = df(X, X, X)
        assert_apart(list(found), [X, weights])
        for gradient in found:
            np.testing.assert_array_equal(gradient, weights)
            gradient[...] = -1.0


@pytest.mark.parametrize("compile", ALL)
def test_auxiliary_outputs_share_no_memory(compile):
    """`has_aux` outputs that are the argument, or the same twice -> copies"""

    def f(x):
        y = x * 2
        return np.sum(y * x), {"x": x, "y": y, "again": y, "head": x[:2]}

    d = value_and_grad(f, has_aux=True, compile=compile)
    for _ in range(3):
        (_, aux), gradient = d(X)
        results = [*aux.values(), gradient]
        assert_apart(results, [X])
        np.testing.assert_array_equal(aux["y"], 2 * X)
        for x in results:
            x[...] = -1.0


def test_a_pullback_called_twice():
    """a pullback's result, its cotangent or the arguments are written to -> it stays as it was"""
    x, ct = X.copy(), W.copy()
    value, pullback = vjp(lambda a, b: a + b * a, x, x)
    assert_apart([value], [x])
    first = [g.copy() for g in pullback(ct)]
    found = pullback(ct)
    assert_apart(list(found), [x, ct, value])
    for a in (*found, value, x):
        a[...] = -1.0
    for a, b in zip(first, pullback(ct), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(ct, W)


def test_the_cotangent_itself():
    """the gradient is the cotangent itself -> a copy of it"""
    ct = W.copy()
    _, pullback = vjp(lambda a, b: (a + b, a), X, X)
    found = pullback((ct, ct))
    assert_apart(list(found), [ct, X])
    _, pullback = vjp(lambda a: a, X)
    assert_apart(list(pullback(ct)), [ct, X])


@pytest.mark.parametrize("compile", ALL)
def test_results_stay_as_they_are(compile):
    """a result is kept while the derivative is called again -> the later call doesn't touch it"""
    d = value_and_grad(lambda x: np.sum(np.exp(x) * x), compile=compile)
    _, first = d(X)
    kept = first.copy()
    d(X + 1)
    np.testing.assert_array_equal(first, kept)


def test_a_stand_alone_gradient_of_shared_memory():
    """a function of `simplegrad` that writes to an argument is called with arrays that share memory
    -> refused"""

    def f(a, p):
        a[0] = a[0] * 2
        return np.sum(a * p["b"])

    x, y = X.copy(), X + 1
    made = simplegrad(f, x, {"b": y})
    assert made(x, {"b": y})[0] == f(x.copy(), {"b": y})
    for b in (x, x[::-1]):
        with pytest.raises(ValueError, match="a shares memory with another array"):
            made(x, {"b": b})


def test_a_stand_alone_gradient():
    """a function of `simplegrad` writes to its argument -> the caller's array stays as it was"""

    def f(a):
        a[1:] *= a[:-1]
        a += 1
        return np.sum(a * W)

    x = X.copy()
    gradient = simplegrad(f, x)
    first, second = gradient(x), gradient(x)
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(first[1], second[1])
    assert_apart([first[1], second[1]], [x])


# ---- plain arrays, and tapegrad.numpy


def test_copies_of_plain_arrays_hold_traced_values(derivative):
    """`u0.copy()`, `u0 * 1.0`, `np.sort(u0)` of a plain `u0`, filled, whoever holds it -> right"""
    u0 = np.array([0.3, 0.7, 1.1, 0.2])

    def f(x):
        u, scaled, ordered = u0.copy(), u0 * 1.0, np.sort(u0)
        rest, same = u[1:], ordered
        rest[:2] = x[:2] * u[:2]
        scaled[0] += x[1] ** 2
        same *= x[2]
        return np.sum(u * u) + np.sum(scaled**3) + np.sum(ordered)

    df = derivative(f)
    df.at(X)
    df.at(-X)
    u0[:] = 2.0
    df.at(X)


def test_plain_arrays_that_others_hold():
    """the same of one that code in C holds, too, or to which there is a weak reference -> error"""

    def lent(x):
        u = np.sort([1.0, 2.0])
        seen = memoryview(u)
        u[0] = x[0]
        return np.sum(u) + len(seen)

    def watched(x):
        u = np.sort([1.0, 2.0])
        seen = weakref.ref(u)
        u[0] = x[0]
        return np.sum(seen())

    with refused(TypeError, "u[0] = x[0]", "code has which isn't traced", "np.sort([1.0, 2.0])"):
        grad(lent)(X)
    with refused(TypeError, "u[0] = x[0]", "weak reference", "np.sort([1.0, 2.0])"):
        grad(watched)(X)


def test_memory_of_another_object_cannot_hold_traced_values():
    """an array from outside that shows another object's memory is filled with traced values ->
    error that says how to"""
    outside = np.frombuffer(bytearray(32))

    def filled(x):
        outside[0] = x[0] ** 2
        return np.sum(outside)

    def added(x):
        y = outside
        y += x
        return np.sum(y)

    def put(x):
        np.put(outside, [0], x[0])
        return np.sum(outside)

    for f, line in [
        (filled, "outside[0] = x[0] ** 2"),
        (added, "y += x"),
        (put, "np.put(outside, [0], x[0])"),
    ]:
        with refused(TypeError, line, "np.zeros(n)"):
            grad(f)(X)


def test_numpys_arrays_hold_traced_values(derivative):
    """`np.zeros(n)` filled with traced values, `np.array([a, b])`, lists for arrays -> right"""

    def f(x):
        y, t = np.zeros(len(x)), np.ones((2, len(x)))[1]
        for k in range(len(x)):
            y[k] = x[k] ** 2 + y[k - 1]
            t[k:] += y[k]
        np.put(t, [0], x[1])
        turned = np.array([[x[0], -x[1]], [x[1], x[0]]]) @ y[:2]
        return np.sum(y * t) + np.sum(turned) + np.dot([x[0], 2.0], y[:2]) * np.max([x[0], x[1]])

    df = derivative(f)
    df.at(X)
    df.at(X[:3])
    df.at(-X)


def test_arrays_to_be_filled(derivative):
    """`zeros`, `ones`, `full`, `empty` of `tapegrad.numpy`, filled with traced values -> right"""

    def f(x):
        n = len(x)
        y, z, t = tnp.zeros(n), tnp.ones((2, n)), tnp.full(n, 3.0)
        e = tnp.empty((n, 2))
        for k in range(n):
            y[k] = x[k] ** 2 + y[k - 1]
            z[k % 2] *= x[k]
            t[k:] += y[k]
            e[k] = x[k], k
        e += tnp.full((n, 2), x[0])
        return np.sum(y * t) + np.sum(z @ x) + np.sum(e**3)

    df = derivative(f)
    df.at(X)
    df.at(X[:3])
    df.at(-X)


def test_arrays_of_traced_numbers(derivative):
    """`tapegrad.numpy.array([[a, -b], [b, 1]])`, nested, with arrays in it -> traced"""

    def f(angle, x):
        c, s = np.cos(angle), np.sin(angle)
        turn = tnp.array([[c, -s], [s, c]])
        grown = tnp.asarray([x, [1, angle, 2, 3]]) + tnp.array([angle] * 4, ndmin=2)
        return np.sum(turn @ x[:2] * W[:2]) + np.sum((grown @ W) ** 2) + np.sum(tnp.array(x) * W)

    df = derivative(f)
    df.at(0.5, X)
    df.at(1.5, -X)


def test_constants_to_write_to(derivative):
    """`eye`, `linspace`, `arange`, `array([1.0, 2.0])` of `tapegrad.numpy`, written to -> right"""

    def f(x):
        m, t, r, a = (
            tnp.eye(4),
            tnp.linspace(0, 1, 4),
            tnp.arange(4.0),
            tnp.array([1.0, 2.0, 3.0, 4.0]),
        )
        m[1] = x
        t[2] *= x[0]
        r[0] = x[1] ** 2
        a -= x
        return np.sum(m @ t * r * a) + np.sum(tnp.linspace(x[0], x[1] ** 2, 3) ** 2)

    df = derivative(f)
    df.at(X)
    df.at(-X)


def test_each_call_starts_anew(derivative):
    """what was written into a new array in one call -> isn't there in the next"""
    base = np.array([1.0, 2.0, 3.0, 4.0])

    def f(x):
        y, z = tnp.zeros(4), tnp.array(base)
        y += x
        z *= x
        return np.sum(y**2 * W) + np.sum(z**2)

    df = derivative(f)
    for _ in range(2):
        df.at(X)
    base[1] = 7.0  # `tnp.array(base)` copies what is there at each call
    df.at(X)
    df.at(-X)


def test_it_is_numpy_otherwise():
    """everything else in `tapegrad.numpy`, and all of it outside a trace -> NumPy's own"""
    assert tnp.pi is np.pi and tnp.ndarray is np.ndarray and tnp.linalg is np.linalg
    assert tnp.sin is np.sin and set(dir(np)) <= set(dir(tnp))
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = tnp.nothing_of_the_kind
    for made in (tnp.zeros(3), tnp.array([1, 2]), tnp.full(2, 3), tnp.arange(2.0), tnp.empty(1)):
        assert type(made) is np.ndarray
    x = np.arange(3.0)
    assert tnp.asarray(x) is x
    assert tnp.array([1, 2]).dtype == np.array([1, 2]).dtype

    def f(x):
        assert type(tnp.arange(3)) is np.ndarray  # it counts and indexes
        assert isinstance(tnp.zeros(3), np.ndarray)
        assert tnp.zeros(3, complex).dtype == complex
        return np.sum(x[tnp.arange(2)] * tnp.array([1.0, 2.0]))

    np.testing.assert_array_equal(grad(f)(X), [1, 2, 0, 0])


def test_types_of_new_arrays():
    """dtypes and shapes that `tapegrad.numpy` gives new arrays -> NumPy's"""
    single = np.float32(1.5)
    for f in (
        lambda x: tnp.array([x, 1.0]),
        lambda x: tnp.array([x, x]),
        lambda x: tnp.array([x, 1]),
        lambda x: tnp.array([[x], [2]], dtype=np.float32),
        lambda x: tnp.array(x),
        lambda x: tnp.array([x > 1, True]),
        lambda x: tnp.full((2, 1), x),
        lambda x: tnp.full(2, x, dtype=float),
        lambda x: tnp.full((2, 0), 3),
        lambda x: tnp.zeros(3, dtype=np.float32) + x,
        lambda x: tnp.linspace(x, 2 * x, 3),
        lambda x: tnp.asarray([[1, 2], [x, 4]]),
        lambda x: tnp.copy(np.arange(2)) * x,
        lambda x: tnp.fromiter((x * k for k in range(3)), np.float32),
    ):
        for x in (single, np.float64(1.5), 1.5, 2):
            found, expected = trace(f, x)[0], f(x)
            assert found.dtype == expected.dtype
            assert found.shape == expected.shape
            np.testing.assert_allclose(found, expected, 1e-7)


def test_memory_that_may_be_used_again():
    """an array that a function was told it may write to (`overwrite_a=True`,
    `overwrite_input=True`) is read afterwards -> refused: what is in it is left open. Pass a copy,
    or leave that out"""

    def f(x):
        y = x * 2
        return np.median(y, overwrite_input=True) + y[0]

    with refused(UnsupportedError, "overwrite_input=True", "Pass a copy, or leave that out"):
        grad(f)(X)
    grad(lambda x: np.median(x * 2, overwrite_input=True) + x[0])(X)
