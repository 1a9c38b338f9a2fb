"""Derivatives with respect to objects of classes that have a vector space of their own."""

from __future__ import annotations

import numpy as np
import pytest

import tapegrad
from tapegrad.autograd import (
    elementwise_grad,
    grad,
    grad_and_aux,
    hessian,
    jacobian,
    make_jvp,
    make_vjp,
    value_and_grad,
)
from tapegrad.autograd.builtins import NamedTupleVSpace
from tapegrad.autograd.extend import (
    Box,
    VSpace,
    defjvp,
    defvjp,
    defvjp_argnum,
    notrace_primitive,
    primitive,
    vspace,
)
from tapegrad.autograd.numpy.numpy_vspaces import ArrayVSpace
from tapegrad.autograd.test_util import check_grads
from tapegrad.autograd.tracer import getval, isbox
from tapegrad.errors import ArgumentError, GradientError, UnsupportedError


class Poly:
    """A polynomial, by its coefficients. Nothing says to tapegrad what it holds."""

    __slots__ = ("c",)

    def __init__(self, c):
        self.c = c

    @primitive
    def __call__(self, x):
        return sum(c * x**k for k, c in enumerate(self.c))

    def __add__(self, other):
        return vspace(self).add(self, other)

    def __mul__(self, a):
        return vspace(self).scalar_mul(self, a)


class PolyBox(Box, Poly):
    """What stands for one."""

    __slots__ = ()


class PolySpace(VSpace):
    """Polynomials with that many coefficients."""

    def __init__(self, p):
        self.n = len(p.c)

    def zeros(self):
        return Poly([0.0] * self.n)

    def randn(self):
        return Poly([*np.random.randn(self.n)])

    def _add(self, p, q):
        return Poly([a + b for a, b in zip(p.c, q.c, strict=True)])

    def _scalar_mul(self, p, a):
        return Poly([a * b for b in p.c])

    def _inner_prod(self, p, q):
        return sum(a * b for a, b in zip(p.c, q.c, strict=True))


PolyBox.register(Poly)
PolySpace.register(Poly)


@primitive
def monomials(x, n):
    return Poly([x**k for k in range(n)])


@primitive
def slope(p):
    return Poly([k * c for k, c in enumerate(p.c)][1:] + [0.0])


@primitive
def shifted(p):
    return Poly([0.0] + [k * p.c[k - 1] for k in range(1, len(p.c))])


@notrace_primitive
def count(p):
    assert type(p) is Poly
    return len(p.c)


defvjp(
    Poly.__call__,
    lambda ans, p, x: lambda g: monomials(x, count(p)) * g,
    lambda ans, p, x: lambda g: slope(p)(x) * g,
)
defjvp(Poly.__call__, lambda g, ans, p, x: g(x), lambda g, ans, p, x: slope(p)(x) * g)
defvjp(monomials, lambda ans, x, n: lambda g: slope(g)(x), None)
defjvp(monomials, lambda g, ans, x, n: shifted(monomials(x, n)) * g, None)
defvjp(slope, lambda ans, p: lambda g: shifted(g))
defjvp(slope, lambda g, ans, p: slope(g))
defvjp(shifted, lambda ans, p: lambda g: slope(g))
defjvp(shifted, lambda g, ans, p: shifted(g))

P, X = Poly([0.3, -0.5, 0.7, 0.2]), 0.8


def energy(p, x):
    return np.sin(p(x)) * p(0.3) + p(x) ** 2 + x * slope(p)(0.5)


def differences(f, c):
    """The slope of a function of coefficients, along each of them."""
    steps = np.eye(len(c)) * 1e-6
    return [(f(Poly([*(c + h)])) - f(Poly([*(c - h)]))) / 2e-6 for h in steps]


def test_gradients_are_objects():
    expected = differences(lambda p: energy(p, X), np.array(P.c))
    assert type(grad(energy)(P, X)) is Poly
    np.testing.assert_allclose(grad(energy)(P, X).c, expected, rtol=1e-7)
    of_object, of_number = grad(energy, (0, 1))(P, X)
    np.testing.assert_allclose(of_object.c, expected, rtol=1e-7)
    np.testing.assert_allclose(of_number, tapegrad.grad(energy, 1)(P, X), rtol=1e-12)
    value, found = value_and_grad(energy)(P, X)
    assert (value, found.c) == (energy(P, X), of_object.c)
    _, aux = grad_and_aux(lambda p: (energy(p, X), {"at": p(X)}))(P)
    assert aux == {"at": P(X)}
    _, moved = make_jvp(energy)(P, X)(Poly([1.0, 2.0, 0.5, -1.0]))
    np.testing.assert_allclose(moved, np.dot(expected, [1.0, 2.0, 0.5, -1.0]), rtol=1e-7)


def test_objects_in_trees_and_as_values():
    tree = {"p": [P, P], "x": np.array([X, 0.1])}
    found = grad(lambda t: energy(t["p"][0], t["x"][0]) * t["p"][1](t["x"][1]))(tree)
    plain = differences(lambda p: energy(P, X) * p(0.1), np.array(P.c))
    np.testing.assert_allclose(found["p"][1].c, plain, rtol=1e-7)
    pull, value = make_vjp(lambda p: p * 2.0 + slope(p))(P)
    assert type(value) is Poly
    np.testing.assert_allclose(pull(Poly([1.0, 0, 0, 0])).c, [2, 1, 0, 0])
    assert grad(lambda p: 3.0)(P).c == [0, 0, 0, 0]
    both = elementwise_grad(lambda p: np.stack([p(0.1), p(0.2)]))(P)
    np.testing.assert_allclose(both.c, [2, 0.3, 0.05, 0.009])
    square = grad(lambda p: vspace(p).inner_prod(p, p * 2.0))(P)
    np.testing.assert_allclose(square.c, [4 * c for c in P.c])


@pytest.mark.every(3)
@pytest.mark.parametrize("modes", [["fwd"], ["rev"], ["fwd", "rev"]])
def test_second_derivatives(modes):
    np.random.seed(0)
    check_grads(energy, (0, 1), modes=modes, order=2)(P, X)


def test_derivatives_inside():
    """Of arrays, in a function of an object: the object is a constant to them."""
    found = grad(lambda p: grad(lambda y: p(y) ** 2)(0.2))(P)
    expected = differences(lambda p: 2 * p(0.2) * slope(p)(0.2), np.array(P.c))
    np.testing.assert_allclose(found.c, expected, rtol=1e-6)
    matrix = []
    grad(lambda p: p(matrix.append(jacobian(lambda v: v**2)(np.ones(2))) or X))(P)
    np.testing.assert_array_equal(matrix[0], 2 * np.eye(2))


def test_constants_of_objects():
    def f(p):
        assert isbox(p) and isinstance(p, Box) and isinstance(p, Poly) and not isbox(getval(p))
        return p(X) * getval(p)(0.5)

    np.testing.assert_allclose(grad(f)(P).c, [P(0.5) * X**k for k in range(4)])


def test_one_rule_for_all_arguments():
    @primitive
    def at(p, x):
        return p(x)

    defvjp_argnum(
        at, lambda k, ans, args, kwargs: lambda g: monomials(args[1], 4) * g if k == 0 else g
    )
    np.testing.assert_allclose(grad(at)(P, X).c, [X**k for k in range(4)])


@primitive
def second(p):
    return p.c[1]


def test_what_is_refused():
    with pytest.raises(UnsupportedError, match="register_tree"):
        hessian(energy)(P, X)
    with pytest.raises(UnsupportedError, match=r"objects_test.py:\d+: .*register_tree"):
        grad(lambda p: tapegrad.jit(lambda y: p(y))(X))(P)
    with pytest.raises(GradientError, match="second has no derivative rule"):
        grad(second)(P)
    with pytest.raises(GradientError, match="scalar"):
        grad(lambda p: np.stack([p(X), p(X)]))(P)
    with pytest.raises(AttributeError, match="'c' of a Poly is read"):
        grad(lambda p: p.c[0])(P)
    with pytest.raises(ArgumentError):
        PolyBox(P, None, None)


def test_traced_values_in_an_object_are_found():
    """There a derivative would be lost."""
    with pytest.raises(UnsupportedError, match="holds traced values"):
        grad(lambda p: shifted(Poly([p(X), 1.0]))(p(X)))(P)
    with pytest.raises(UnsupportedError, match="holds traced values"):
        make_vjp(lambda p: Poly([p(X), 1.0]))(P)[0](P)


class Kernels:
    """A function that is a sum of kernels: its space has no dimension, and gradients hold more
    terms than it does."""

    def __init__(self, terms=()):
        self.terms = dict(terms)

    @primitive
    def __call__(self, x):
        return sum((a * np.exp(-((x - z) ** 2)) for z, a in self.terms.items()), 0.0)


class KernelSpace(VSpace):
    def zeros(self):
        return Kernels()

    def _add(self, f, g):
        return Kernels({z: f.terms.get(z, 0.0) + g.terms.get(z, 0.0) for z in f.terms | g.terms})

    def _scalar_mul(self, f, a):
        return Kernels({z: a * b for z, b in f.terms.items()})


def test_a_space_without_dimension():
    KernelSpace.register(Kernels)
    type("KernelBox", (Box, Kernels), {}).register(Kernels)
    defvjp(
        Kernels.__call__,
        lambda ans, f, x: lambda g: vspace(f).scalar_mul(Kernels({x: 1.0}), g),
    )
    xs, ys = [0.0, 1.0, 2.0], [1.0, 3.0, 2.0]
    f, a, matrix = Kernels(), np.zeros(3), np.exp(-(np.subtract.outer(xs, xs) ** 2))
    for _ in range(5):
        down = grad(lambda f: sum((f(x) - y) ** 2 for x, y in zip(xs, ys, strict=True)))(f)
        f = vspace(f).add(f, vspace(f).scalar_mul(down, -0.1))
        a = a - 0.2 * (matrix @ a - ys)
    np.testing.assert_allclose([f.terms[x] for x in xs], a)


def test_spaces_of_arrays_and_tuples():
    class Parameter(np.ndarray):
        """An array of a kind of its own."""

    VSpace.register(Parameter, vspace_maker=VSpace.mappings[np.ndarray])
    ArrayVSpace.register(Parameter)
    x = np.arange(3.0).view(Parameter)
    assert isinstance(vspace(x), ArrayVSpace) and vspace(x) == vspace(np.zeros(3))
    np.testing.assert_allclose(grad(lambda x: np.sum(x**2))(x), [0, 2, 4])
    assert NamedTupleVSpace((1.0, 2.0)) == vspace((3.0, 4.0)) != vspace([3.0, 4.0])
    with pytest.raises(NotImplementedError, match="KernelSpace declares no ones"):
        KernelSpace(Kernels()).ones()
