"""What is passed to derivatives by mistake: each says what was done, and what to do."""

from __future__ import annotations

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.errors import ArgumentError, GradientError

X, V = np.array([1.0, 2.0, 3.0]), np.array([1.0, -1.0, 0.5])


def cubes(x):
    return x**3


def energy(x):
    return np.sum(x**3)


SCALAR = ["grad", "value_and_grad", "hessian", "value_grad_and_hessian", "hvp", "laplacian"]
SCALAR += ["sparse_hessian"]
OF_ARRAYS = ["jacobian", "value_and_jacobian", "elementwise_grad", "sparse_jacobian"]
OF_ARRAYS += ["gauss_newton_vp"]
SECOND = {*SCALAR[2:], "gauss_newton_vp"}


def called(name, f, x, argnums=0):
    derived = getattr(tg, name)(f, argnums=argnums)
    several = isinstance(argnums, tuple)
    v = (V,) * len(argnums) if several else V
    return derived(x, v) if name in ("hvp", "gauss_newton_vp") else derived(x)


@pytest.mark.parametrize("name", SCALAR + OF_ARRAYS)
def test_an_argument_is_chosen_once_for_second_derivatives(name):
    """Of those of one argument with respect to itself under another number there are two readings,
    and one of them were zeros. First derivatives of both numbers are the same."""
    f = energy if name in SCALAR else cubes
    for argnums in ((0, 0), (0, -1), (0, "x")):
        if name not in SECOND:
            called(name, f, X, argnums)
            continue
        with pytest.raises(ArgumentError, match=r"says an argument twice\. Say each once"):
            called(name, f, X, argnums)
    with pytest.raises(ArgumentError, match=rf"{name} of .*argnums names 'z'"):
        called(name, f, X, "z")


@pytest.mark.parametrize("name", OF_ARRAYS)
def test_a_result_without_derivative_is_refused(name):
    """Zeros, or None, would hide that a return is missing."""
    for f in (lambda x: None, lambda x: np.argmax(x), lambda x: "word", lambda x: x > 2):
        with pytest.raises(GradientError, match=rf"^{name}: <lambda> returned"):
            called(name, f, X)
    called(name, lambda x: 3.0, X)  # whose derivatives are zeros


@pytest.mark.parametrize("name", SCALAR)
def test_messages_name_the_transformation(name):
    with pytest.raises(GradientError, match=rf"^{name}: cubes returned f8\[3\], but {name} needs"):
        called(name, cubes, X)
    with pytest.raises(ArgumentError, match=rf"^{name} of energy: argument 'x' is an array of"):
        called(name, energy, np.arange(3))


def test_directions_and_operators():
    for wrong, words in [
        ((np.arange(3),), "primal 0 has a leaf of dtype int64.*or convert it to float64"),
        ((X.astype("f4"), X), "1 tangents|2 arguments"),
    ]:
        with pytest.raises(ArgumentError, match=words):
            tg.jvp(cubes, wrong, (V,))
    with pytest.raises(ArgumentError, match="no argument is a real or complex number"):
        tg.as_linear_operator(cubes, np.arange(3))
    with pytest.raises(ArgumentError, match="no value is a real or complex number"):
        tg.as_linear_operator(lambda x: None, X)
    assert tg.sparse_hessian(energy, ())(X).shape == (0, 0)


def test_a_reverse_rule_alone_says_what_forward_mode_needs():
    @tg.primitive
    def bits(x):
        return np.frombuffer(x.tobytes())

    tg.defvjp(bits, lambda ct, out, x: np.frombuffer(np.asarray(ct).tobytes()))
    np.testing.assert_array_equal(tg.grad(lambda x: np.sum(bits(x)))(X), np.ones(3))
    np.testing.assert_array_equal(tg.jacobian(bits)(X), np.eye(3))  # which takes reverse mode
    for forwards in (lambda: tg.jvp(bits, (X,), (V,)), lambda: tg.jacfwd(bits)(X)):
        with pytest.raises(GradientError, match=r"bits has a reverse rule alone.*tapegrad\.defjvp"):
            forwards()
