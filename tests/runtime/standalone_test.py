"""`standalone`: what any transformation makes of a function, as source and as a file."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections import namedtuple

import numpy as np
import pytest

import tapegrad as tg
from tapegrad import standalone
from tapegrad.errors import ArgumentError, RandomnessError, UnsupportedError

X = np.array([0.5, -1.0, 2.0, 1.5])
V = np.array([1.0, 2.0, 3.0, -0.5])
ROWS = np.outer([1.0, -0.5, 2.0], X)

Pair = namedtuple("Pair", "a b")


def scalar(x):
    waves = np.sin(x)
    return np.sum(waves * x[::-1])


def vector(x):
    return np.tanh(x[1:] * x[:-1])


def of_pair(p):
    return p.a @ p.a * np.sum(p.b)


def error(w, x):
    return np.tanh(w @ x) if x[0] > 0 else w @ x


CASES = {
    "grad": (tg.grad(scalar), X),
    "value_and_grad": (tg.value_and_grad(lambda a, b: a @ b, argnums=(0, 1)), X, V),
    "has_aux": (tg.grad(lambda x: (scalar(x), {"n": x[0], "m": "q", "k": None}), 0, True), X),
    "jacobian": (tg.jacobian(vector, mode="forward"), X),
    "jacrev": (tg.jacrev(vector), X),
    "value_and_jacobian": (tg.value_and_jacobian(vector), X),
    "hessian": (tg.hessian(scalar), X),
    "hessian of a tree": (tg.hessian(of_pair), Pair(X, V)),
    "value_grad_and_hessian": (tg.value_grad_and_hessian(scalar), X),
    "hvp": (tg.hvp(scalar), X, V),
    "elementwise_grad": (tg.elementwise_grad(np.sin), X),
    "laplacian": (tg.laplacian(scalar), X),
    "gauss_newton_vp": (tg.gauss_newton_vp(vector), X, V),
    "second": (tg.grad(tg.grad(lambda x: x**3)), 2.0),
    "vmap": (tg.vmap(lambda x: np.tanh(x) @ x), ROWS),
    "vmap of grad": (tg.vmap(tg.grad(error), in_axes=(None, 0)), X, ROWS),
    "jvp": (lambda x, t: tg.jvp(vector, (x,), (t,)), X, V),
    "vjp": (lambda x, ct: tg.vjp(vector, x)[1](ct), X, V[1:]),
    "linearize": (lambda x, t: tg.linearize(vector, x)[1](t), X, V),
    "jet": (lambda x: tg.jet(scalar, x, 3), X),
    "complex": (tg.jacobian(lambda z: z**2 * np.exp(z), holomorphic=True), X + 1j),
    "the function": (lambda x: {"y": 2 * x, "z": (x, [x, "a", 3.0, True]), "c": np.ones(2)}, X),
}


def assert_same(found, expected):
    if isinstance(expected, dict):
        assert [*found] == [*expected]
        found, expected = list(found.values()), list(expected.values())
    if isinstance(expected, (list, tuple)):
        assert type(found) is type(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    elif expected is None or isinstance(expected, str):
        assert found == expected
    else:
        assert type(found) is type(expected) and np.shape(found) == np.shape(expected)
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.every(16)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_results_are_those_of_the_transformation(case):
    """The same values, nested alike, of the same types."""
    f, *args = case
    alone = standalone(f, *args)
    assert_same(alone(*args), f(*args))


def test_saved_files_run_without_tapegrad(tmp_path):
    names = ["hessian", "jvp", "complex"]
    expected = []
    for k, name in enumerate(names):
        f, *args = CASES[name]
        alone = standalone(f, *args)
        alone.save(tmp_path / f"saved{k}.py")
        expected.append((alone.__name__, args, f(*args)))
    (tmp_path / "expected.pickle").write_bytes(pickle.dumps(expected))
    program = """
import importlib, pickle, sys
sys.modules["tapegrad"] = None
import numpy as np
for k, (name, args, expected) in enumerate(pickle.load(open("expected.pickle", "rb"))):
    found = getattr(importlib.import_module(f"saved{k}"), name)(*args)
    if not isinstance(expected, tuple):
        found, expected = (found,), (expected,)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_sparse_matrices_are_scipys():
    """By colours of columns, and of a symmetric matrix, whose entries are told apart afterwards:
    of acyclic colours by differences."""
    i, j = np.random.default_rng(0).integers(0, 40, (2, 120))

    def pairs(x):
        return np.sum(np.sin(x[i] * x[j]))

    def chain(x):
        return np.sum((x[1:] - x[:-1] ** 2) ** 2) + x[0] * x[-1] * x[2]

    x = np.linspace(0.1, 1.0, 40)
    assert "np.subtract.at(out, owner0" in standalone(tg.sparse_hessian(pairs), x).source
    for derived in (
        tg.sparse_jacobian(vector),
        tg.sparse_hessian(chain, format="csc"),
        tg.sparse_hessian(pairs),
        tg.sparse_jacobian(lambda x: (vector(x), x[0]), has_aux=True),
    ):
        alone = standalone(derived, x)
        for at in (x, x + 1):
            found, expected = alone(at), derived(at)
            if isinstance(expected, tuple):
                assert found[1] == expected[1]
                found, expected = found[0], expected[0]
            assert type(found) is type(expected)
            np.testing.assert_allclose(found.toarray(), expected.toarray(), rtol=1e-9, atol=1e-12)
    assert "return csr_array((out, indices, indptr), (39, 40))" in (
        standalone(tg.sparse_jacobian(vector), x).source
    )


def test_the_source_says_the_users_names_and_lines():
    """Seeds are loops and no tables, vectors are tangents, kernels are called as the function is,
    and what ran in a derivative inside another function keeps its own line."""
    source = standalone(tg.hvp(scalar), X, V).source
    assert "def hvp_scalar(x, t_x):" in source and "def hvp_scalar_kernel(x, t_x, " in source
    assert "waves = np.sin(x)" in source
    large = standalone(tg.hessian(scalar), np.ones(30)).source
    assert "b85decode" not in large and "array([" not in large and "def hessian_scalar" in large
    inside = standalone(lambda x: tg.grad(scalar)(x), X).source
    assert "waves = np.sin(x)" in inside


def test_other_shapes_and_paths_are_refused():
    alone = standalone(tg.vmap(tg.grad(error), in_axes=(None, 0)), X, ROWS)
    with pytest.raises(ValueError, match=r"x has shape \(2, 4\).*for shape \(3, 4\)"):
        alone(X, ROWS[:2])
    branch = standalone(tg.jacobian(lambda x: x**2 if x[0] > 0 else x), X)
    with pytest.raises(ValueError, match="traced where something held"):
        branch(-X)


class Box:
    def __init__(self, x):
        self.x = x


def test_what_cant_be_written_down_is_refused():
    """A clear error, with what to do."""
    with pytest.raises(UnsupportedError, match="holds a Pair, and no argument does"):
        standalone(lambda x: Pair(x, x), X)
    with pytest.raises(UnsupportedError, match=r"holds a Pullback.*lambda x, ct"):
        standalone(lambda x: tg.vjp(vector, x)[1], X)
    with pytest.raises(ArgumentError, match="standalone needs a function, not 3"):
        standalone(3, X)
    with pytest.raises(ArgumentError, match="'x' holds a Box"):
        standalone(lambda x: x.x, Box(X))
    with pytest.raises(RandomnessError, match="draws random numbers"):
        standalone(tg.grad(lambda x: np.sum(x * np.random.normal(size=4))), X)

    def by_name(x, *, scale=2.0):
        return scale * np.sum(x)

    with pytest.raises(ArgumentError, match="'scale' by name alone"):
        standalone(tg.grad(by_name, argnums="scale"), X)


def test_traced_values_are_refused_with_what_to_call_instead():
    """It is machine code; the derivative that it was made of may be part of a trace."""
    alone = standalone(tg.grad(lambda x: np.sum(x**2)), np.ones(2))
    with pytest.raises(UnsupportedError, match="is called with traced values"):
        tg.jit(lambda x: alone(2 * x))(np.ones(2))
