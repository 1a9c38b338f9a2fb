"""`simplegrad`: a gradient function that stands alone, as source, as a file, and pickled."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections import OrderedDict, deque, namedtuple
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import tapegrad as tg
from tapegrad import simplegrad
from tapegrad.errors import ArgumentError

X = np.array([[0.5, -1.0, 2.0], [1.5, 3.0, -0.5]])
V = np.array([1.0, 2.0, 3.0])
TABLE = np.linspace(-1.0, 1.0, 40)  # too long to be written as a list

Pair = namedtuple("Pair", "a b")


@dataclass
class Layer:
    w: Any
    b: Any


def against_grad(f, *args):
    """The function, after its value and gradients were compared with the played ones."""
    df = simplegrad(f, *args)
    everything = tuple(range(len(args)))
    value, gradients = tg.value_and_grad(f, argnums=everything, compile="never")(*args)
    for _ in range(2):
        found = df(*args)
        np.testing.assert_allclose(found[0], value)
        assert np.shape(found[0]) == np.shape(value)
        assert len(found) == 1 + len(args)
        for one, other in zip(found[1:], gradients, strict=True):
            np.testing.assert_allclose(one, other)
    return df


FUNCTIONS = {
    "elementwise": (lambda x: np.sum(np.exp(x) * np.sin(x)), X),
    "product": (lambda x, v: np.sum(np.tanh(x @ v) ** 2), X, V),
    "softmax": (lambda x: np.log(np.sum(np.exp(x - np.max(x)))), X),
    "cumulative": (lambda x: np.sum(np.cumsum(x, axis=1) ** 2), X),
    "branch": (lambda x: np.sum(x**2) if x[0, 0] > 0 else np.sum(x), X),
    "number": (lambda x: x**3, 2.0),
    "0-d array": (lambda x: x**3, np.array(2.0)),
    "float32": (lambda x: np.sum(x * x), X.astype(np.float32)),
    "captured": (lambda v: np.sum(TABLE * v[0] ** 2) + np.sum(V * v), V),
    "constant": (lambda x: 3.0, X),
    "one element": (lambda x: x[:1, :1] * x[1, 0], X),
    "unused": (lambda x, y: np.sum(x), X, V),
}


@pytest.mark.every(8)
@pytest.mark.parametrize("case", FUNCTIONS.values(), ids=FUNCTIONS)
def test_values_and_gradients(case):
    against_grad(*case)


# ---- trees

TREES = {
    "dict": ({"w": X, "b": V}, {"w": 2 * X, "b": 2 * V}),
    "list": ([X, 3.0], [2 * X, 6.0]),
    "tuple of one": ((X,), (2 * X,)),
    "named tuple": (Pair(X, V), Pair(2 * X, 2 * V)),
    "dataclass": (Layer(X, V), Layer(2 * X, 2 * V)),
    "nested": ({"l": [Layer(X, Pair(V, 1.0))]}, {"l": [Layer(2 * X, Pair(2 * V, 2.0))]}),
    "integers": ({"w": X, "n": 3, "i": np.arange(2)}, {"w": 2 * X, "n": None, "i": None}),
    "static": ([X, "mean", True, None], [2 * X, None, None, None]),
}


def children(x):
    if isinstance(x, dict):
        return [x[k] for k in sorted(x)]
    if isinstance(x, (list, tuple)):
        return list(x)
    return [x.w, x.b] if isinstance(x, Layer) else None


def squares(x):
    parts = children(x)
    if parts is not None:
        return sum(map(squares, parts))
    return 0.0 if x is None or isinstance(x, (str, bool)) else np.sum(x * x)


def assert_same_tree(found, expected):
    parts = children(expected)
    if parts is not None:
        assert type(found) is type(expected)
        for one, other in zip(children(found), parts, strict=True):
            assert_same_tree(one, other)
    elif expected is None:
        assert found is None
    else:
        np.testing.assert_allclose(found, expected)


@pytest.mark.every(8)
@pytest.mark.parametrize(("tree", "expected"), TREES.values(), ids=TREES)
def test_gradients_mirror_the_arguments(tree, expected):
    df = simplegrad(lambda p: squares(p), tree)
    for _ in range(2):
        value, gradient = df(tree)
        np.testing.assert_allclose(value, squares(tree))
        assert_same_tree(gradient, expected)


def test_none_for_integer_and_static_arguments():
    df = simplegrad(lambda x, n, mode, i: np.sum(x[i]) * n, V, 2, "mean", np.array([0, 2]))
    value, dx, dn, dmode, di = df(V, 2, "mean", np.array([0, 2]))
    assert value == 8.0
    np.testing.assert_array_equal(dx, [2.0, 0.0, 2.0])
    assert dn is dmode is di is None


# ---- what is refused


def test_wrong_shapes_and_dtypes_name_the_argument():
    df = simplegrad(lambda params, x: np.sum(params["w"] * x), {"w": V}, V)
    with pytest.raises(ValueError, match=r"params\['w'\] has shape \(2,\).*for shape \(3,\)"):
        df({"w": V[:2]}, V)
    with pytest.raises(ValueError, match=r"^x has shape \(3,\) and dtype complex128"):
        df({"w": V}, V + 1j)


def test_arguments_of_another_kind_are_refused():
    """Nothing is converted: 2.5 isn't 2 for an integer, nor is a list an array."""

    def f(x, n, t, s, z, p, mode):
        total = np.sum(x["w"]) ** n * t * s * z + p.a * p.b[0]
        return total if mode == "sum" else -total

    kinds = {
        "x": [{"w": V}, {"w": [1.0, 2.0]}, {"w": V.astype("f4")}, {"w": V[::-1]}, {"v": V}, [V]],
        "n": [2, 2.5, 2.0, True, np.int64(2), np.array(2), "2", None, 2**70],
        "t": [3.0, 3, False, np.float64(3), np.float32(3), np.array(3.0), V, 2**60],
        "s": [np.float32(2), 2.0, np.float64(2), np.array(2, "f4")],
        "z": [np.array(1.5), 1.5, np.float64(1.5), np.array(1.5, "f4"), np.array([1.5])],
        "p": [Pair(1.0, [2.0]), (1.0, [2.0]), Pair(1.0, (2.0,)), Layer(1.0, [2.0]), Pair(1, [2.0])],
        "mode": ["sum", "mean", b"sum", None, 1],
    }
    good = {name: values[0] for name, values in kinds.items()}
    df = simplegrad(f, *good.values())
    assert df(*good.values())[0] == f(*good.values())
    for name, (_, *wrong) in kinds.items():
        for value in wrong:
            with pytest.raises((TypeError, ValueError), match=rf"^{name}\b.* made for|63 bits"):
                df(*{**good, name: value}.values())


def test_what_cant_be_taken_apart_is_refused():
    @dataclass
    class Counting:
        w: Any
        calls: Any = field(default=0, init=False)

    for x in (
        OrderedDict(b=V, a=X),
        deque([V]),
        Counting(V),
        {(1, 2): V},
        {"a": V, 1: V},
        [Pair],
        frozenset({1}),
    ):
        with pytest.raises(ArgumentError, match=r"stands? alone"):
            simplegrad(lambda x: 1.0, x)


def branching(x):
    return np.sum(x**2) if x[0] > 0 else np.sum(x)


def test_a_guard_that_doesnt_hold_names_the_line():
    df = simplegrad(branching, V)
    line = branching.__code__.co_firstlineno + 1
    with pytest.raises(ValueError, match=rf"simplegrad_test.py:{line}\b"):
        df(-V)
    np.testing.assert_allclose(df(V)[1], 2 * V)


def test_what_cant_be_differentiated_is_refused():
    with pytest.raises(ArgumentError, match="complex"):
        simplegrad(lambda x: np.sum(x), V + 1j)
    with pytest.raises(tg.errors.GradientError):
        simplegrad(lambda x: x * 2, V)


# ---- the source


def model(weights, inputs):
    hidden = np.tanh(inputs @ weights)
    residual = hidden - 1.0
    return np.sum(residual**2)


def test_the_source_speaks_the_users_language():
    source = simplegrad(model, V, X).source
    compile(source, "source", "exec")
    line = model.__code__.co_firstlineno + 1
    assert f"# simplegrad_test.py:{line}: hidden = np.tanh(inputs @ weights)" in source
    assert "def grad_model(weights, inputs):" in source
    for name in ("hidden", "residual", "d_weights", "d_inputs"):
        assert name in source


def test_parameters_may_be_called_like_words_of_the_generated_code():
    def f(exp, empty, scratch, float64, np_):
        return np.sum(np.exp(exp) * empty + np.cumsum(scratch) * float64) * np_

    against_grad(f, V, 2 * V, 3 * V, 4 * V, 5.0)


def test_parameters_may_be_called_like_the_names_that_others_would_get():
    def f(exp, exp_, exp1, d_exp, out):
        return np.sum(np.exp(exp) * exp_ * exp1 * d_exp * out)

    against_grad(f, V, 2 * V, 3 * V, 4 * V, 5.0)


def test_parameters_may_be_called_like_the_keys_of_others():
    df = simplegrad(lambda a, b: np.sum(a["b"] * b["c"]), {"b": V}, {"c": 2 * V})
    _, da, db = df({"b": V}, {"c": 2 * V})
    np.testing.assert_array_equal(da["b"], 2 * V)
    np.testing.assert_array_equal(db["c"], V)


# ---- what it holds


def test_captured_arrays_are_those_of_the_time_it_was_made():
    w = V.copy()
    df = simplegrad(lambda x: np.sum(w * x), X[0])
    w[:] = 0.0
    np.testing.assert_array_equal(df(X[0])[1], V)


def test_results_are_fresh():
    df = simplegrad(lambda x, y: np.sum(x + y), V, V)
    (_, a, b), (_, c, d) = df(V, V), df(V, V)
    a[:] = 7.0
    for other in (b, c, d):
        np.testing.assert_array_equal(other, np.ones(3))


def net(params, x, n):
    hidden = np.tanh(x @ params["w"] + params["b"])
    return np.sum(hidden @ hidden.T) / n + np.sum(TABLE[:2] * x[:, 0]) + np.sum(TABLE**2)


ARGS = ({"w": np.outer(V, [0.1, -0.2]), "b": np.array([0.5, 1.0])}, X, 2)


def test_a_saved_file_runs_without_tapegrad(tmp_path):
    df = simplegrad(net, *ARGS)
    df.save(tmp_path / "saved.py")
    (tmp_path / "args.pickle").write_bytes(pickle.dumps((ARGS, df(*ARGS))))
    program = """
import pickle, sys
sys.modules["tapegrad"] = None
import numpy as np
from saved import grad_net
args, (value, d_params, d_x, d_n) = pickle.load(open("args.pickle", "rb"))
found = grad_net(*args)
np.testing.assert_allclose(found[0], value)
np.testing.assert_allclose(found[1]["w"], d_params["w"])
np.testing.assert_allclose(found[1]["b"], d_params["b"])
np.testing.assert_allclose(found[2], d_x)
assert found[3] is None
try:
    grad_net(args[0], args[1][:1], 2)
except ValueError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("x has shape (1, 3)")


def test_a_pickle_round_trip():
    df = simplegrad(net, *ARGS)
    again = pickle.loads(pickle.dumps(df))
    assert again.source == df.source
    assert repr(again) == repr(df) == "<tapegrad grad_net>"
    for one, other in zip(df(*ARGS)[1:3], again(*ARGS)[1:3], strict=True):
        assert_same_tree(one, other)
