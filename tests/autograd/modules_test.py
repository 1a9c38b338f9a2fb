"""The modules that programs import: NumPy's and SciPy's own, and those beside them."""

from __future__ import annotations

import subprocess
import sys

import numpy
import pytest
import scipy.signal
import scipy.special

import tapegrad.autograd.numpy as np
import tapegrad.autograd.scipy as asp
from tapegrad.autograd import grad, value_and_grad
from tapegrad.autograd.misc import const_graph, flatten
from tapegrad.autograd.misc.fixed_points import fixed_point
from tapegrad.autograd.misc.flatten import flatten_func
from tapegrad.autograd.misc.optimizers import adam, rmsprop, sgd
from tapegrad.autograd.test_util import check_grads, combo_check
from tapegrad.errors import GradcheckError


def test_names_are_numpys_and_scipys():
    import tapegrad.autograd.numpy.linalg as linalg
    import tapegrad.autograd.scipy.stats.norm as norm

    from tapegrad.autograd.scipy.misc import logsumexp

    assert np.sin is numpy.sin and np.random is numpy.random and linalg is numpy.linalg
    assert norm is asp.stats.norm and asp.special is scipy.special
    assert logsumexp is scipy.special.logsumexp
    slopes = grad(lambda x: np.sum(np.stack(map(np.sin, x)) ** 2))(numpy.ones(2))
    numpy.testing.assert_allclose(slopes, np.concatenate(iter([[np.sin(2.0)]] * 2)))
    for name in ("autograd.nothing", "autograd.numpy.nothing", "autograd.scipy.stats.nothing"):
        with pytest.raises(ModuleNotFoundError, match=f"tapegrad.{name}"):
            __import__(f"tapegrad.{name}")
    with pytest.raises(AttributeError):
        asp.nothing  # noqa: B018


def test_the_package_has_what_is_imported_from_it():
    """Modules that `import autograd` alone makes known there, and functions of its parts."""
    code = (
        "import tapegrad.autograd as ours; ours.install(); import autograd\n"
        "assert autograd.numpy.sin and autograd.util.subvals and autograd.tracer\n"
        "assert autograd.core and autograd.extend and autograd.builtins and autograd.wrap_util\n"
        "from autograd import check_grads, defjvp, defvjp, fixed_point, flatten, primitive\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


INSTALLED = """
import sys
import tapegrad.autograd as ours

ours.install()
ours.install()
import autograd.numpy as np
import autograd.numpy.random as npr
import autograd.scipy.stats.norm as norm
from autograd import grad
from autograd.extend import defvjp, primitive
from autograd.misc.optimizers import adam
from autograd.numpy.numpy_boxes import ArrayBox
import scipy.stats, numpy

assert sys.modules["autograd"] is ours and grad is ours.grad and norm is scipy.stats.norm
assert npr is numpy.random and grad(lambda x: np.sum(x**2))(3.0) == 6
try:
    import autograd.nothing
except ModuleNotFoundError as error:
    assert error.name == "autograd.nothing"
ours.uninstall()
ours.uninstall()
assert not any(name.partition(".")[0] == "autograd" for name in sys.modules)
sys.modules["autograd"] = numpy
try:
    ours.install()
except ImportError as error:
    assert "was imported before" in str(error)
else:
    raise AssertionError
"""


def test_installed_the_imports_stay_as_they_are():
    """In a process of its own: it is for all of one. It can't be if the real one is there."""
    subprocess.run([sys.executable, "-c", INSTALLED], check=True)


@pytest.mark.parametrize("mode", ["full", "valid", "same"])
def test_convolutions(mode):
    """Along all axes they are SciPy's; along some, sums of these."""
    rng = numpy.random.default_rng(0)
    A, B = rng.standard_normal((2, 3, 6, 5)), rng.standard_normal((3, 4, 2, 3))
    found = asp.signal.convolve(A, B, ([2, 3], [2, 3]), ([1], [0]), mode)
    for i in range(2):
        for j in range(4):
            parts = [scipy.signal.convolve(A[i, k], B[k, j], mode) for k in range(3)]
            numpy.testing.assert_allclose(found[i, j], sum(parts), atol=1e-12)
    swapped = asp.signal.convolve(B, A, ([2, 3], [2, 3]), ([0], [1]), mode)
    if mode != "same":
        numpy.testing.assert_allclose(swapped, np.swapaxes(found, 0, 1), atol=1e-12)
    check_grads(lambda B: asp.signal.convolve(A[0, 0], B, mode=mode), order=1)(B[0, 0])


def test_flat_vectors():
    tree = {"b": (1.0, 2j), "a": np.array([[3.0, 4.0]])}
    flat, unflatten = flatten(tree)
    numpy.testing.assert_array_equal(flat, [3, 4, 1, 2j])
    again = unflatten(2 * flat)
    assert again["b"] == (2, 4j) and not numpy.iscomplexobj(again["a"])
    f, _, x = flatten_func(lambda t: [t[0] * 2, t[1]], [np.ones(2), 3.0])
    numpy.testing.assert_array_equal(f(x), [2, 2, 3])
    slope = grad(lambda t: np.sum(flatten(t)[0] ** 2))({"w": np.ones(2), "b": 3.0})
    numpy.testing.assert_array_equal(slope["w"], [2, 2])
    assert slope["b"] == 6 and flatten([])[0].shape == (0,)


def test_flat_vectors_are_put_together_in_functions_that_are_traced_once():
    flat, unflatten = flatten({"a": numpy.ones(3), "b": 2.0})

    def loss(v):
        p = unflatten(v)
        return np.sum(p["a"] ** 2) * p["b"]

    for k in (1.0, 2.0, 3.0, 4.0):
        numpy.testing.assert_allclose(grad(loss)(flat * k), k**2 * numpy.array([4, 4, 4, 3]))
    assert grad(loss).cache_info().traces == 1


@pytest.mark.parametrize("optimize", [adam, rmsprop, sgd])
def test_optimizers_of_nested_parameters(optimize):
    """The callback sees each round's parameters and gradient, put together as they are."""

    def loss(p, i):
        return np.sum((p["w"] - 1) ** 2) + (p["b"] - 2) ** 2

    seen = []
    start = {"w": np.zeros(2), "b": 0.0}
    end = optimize(grad(loss), start, lambda p, i, g: seen.append((i, p["b"], g["b"])), 200, 0.05)
    assert seen[0] == (0, 0, -4) and len(seen) == 200
    assert abs(end["b"] - 2) < 0.1 and numpy.allclose(end["w"], 1, atol=0.1)


def test_fixed_points():
    """Newton's iteration for the square root: its derivatives are those of the root."""

    def root(a):
        step = lambda a: lambda x: 0.5 * (x + a / x)  # noqa: E731
        return fixed_point(step, a, 1.0, lambda x, y: np.abs(x - y), 1e-12)

    value, slope = value_and_grad(root)(2.0)
    numpy.testing.assert_allclose([value, slope], [2**0.5, 0.5 * 2**-0.5])
    numpy.testing.assert_allclose(grad(grad(root))(2.0), -0.25 * 2**-1.5)
    numpy.testing.assert_allclose(grad(root)(9.0), 1 / 6)


def test_checks_of_gradients():
    check_grads(lambda x, y: x * np.sin(y), (0, 1))(2.0, 3.0)
    combo_check(np.sum, order=1)([numpy.ones((2, 2))], axis=[None, 0])
    import tapegrad

    def square(x):
        return x**2

    wrong = tapegrad.defvjp(tapegrad.primitive(square), lambda ct, out, x: ct * x)
    with pytest.raises(GradcheckError, match=r"\(VJP\) check of square failed"):
        check_grads(wrong, modes=["rev"], order=1)(3.0)
    with pytest.raises(ValueError, match="fwd"):
        check_grads(np.sin, modes=["back"])(1.0)


def test_graphs_are_kept_as_it_is():
    f = const_graph(lambda a, x: a * np.sin(x), 2.0)
    assert grad(f)(0.0) == 2


def test_what_is_joined_may_be_anything_that_can_be_iterated():
    """lifelines stacks the values of a dict, which isn't a sequence to NumPy."""

    def f(x):
        named = {"a": x, "b": x**2}
        return np.sum(np.stack(named.values()) * np.concatenate(x * k for k in (1.0, 2.0))[:3])

    x = np.array([1.0, 2.0, 3.0])
    numpy.testing.assert_allclose(grad(f)(x), 2 * x + 3 * x**2)
