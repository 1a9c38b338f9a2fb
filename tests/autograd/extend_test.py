"""Users' functions and rules, boxes and vector spaces, as programs of HIPS autograd have them."""

from __future__ import annotations

import numpy as np
import pytest

import tapegrad
import tapegrad.autograd.numpy as anp
from tapegrad.autograd import builtins, grad, hessian, make_jvp
from tapegrad.autograd.extend import (
    VSpace,
    defjvp,
    defjvp_argnum,
    defjvp_argnums,
    defvjp,
    defvjp_argnum,
    defvjp_argnums,
    notrace_primitive,
    primitive,
    vspace,
)
from tapegrad.autograd.numpy.numpy_boxes import ArrayBox
from tapegrad.autograd.numpy.numpy_vjps import unbroadcast_f
from tapegrad.autograd.tracer import Box, getval, isbox
from tapegrad.errors import ArgumentError, UnsupportedError

X = np.array([1.0, 2.0, 3.0])


def test_curried_rules():
    @primitive
    def scale(x, k, n=1):
        return k * np.sum(x) ** n

    defvjp(
        scale,
        lambda ans, x, k, n=1: lambda g: 10 * g * k * n * np.sum(x) ** (n - 1) * np.ones_like(x),
        None,
    )
    np.testing.assert_allclose(grad(scale)(X, 2.0), [20, 20, 20])
    np.testing.assert_allclose(grad(scale)(X, 2.0, n=2), [240, 240, 240])
    np.testing.assert_allclose(
        hessian(scale)(X, 2.0, n=2), np.full((3, 3), 40)
    )  # of the rule, as it is written
    assert grad(scale, 1)(X, 2.0) == 0


def test_rules_for_some_arguments():
    """An argument without a rule is an error, and not 0."""

    @primitive
    def f(name, x, y):
        return x * y

    defvjp(f, lambda ans, name, x, y: lambda g: 7 * g * y, argnums=(1,))
    assert grad(f, 1)("f", 2.0, 3.0) == 21
    with pytest.raises(tapegrad.errors.GradientError, match="'y'"):
        grad(f, 2)("f", 2.0, 3.0)
    with pytest.raises(ArgumentError, match="None for one without"):
        defvjp(primitive(lambda *xs: xs[0]), lambda ans, *xs: lambda g: g, argnums=(1,))


def test_one_rule_for_all_arguments():
    @primitive
    def total(*xs):
        return xs[0] * xs[1]

    defvjp_argnum(total, lambda k, ans, args, kwargs: lambda g: 10 * g * args[1 - k])
    assert grad(total, (0, 1))(2.0, 3.0) == (30, 20)
    defvjp_argnums(total, lambda ks, ans, args, kwargs: lambda g: [g * args[1 - k] for k in ks])
    assert grad(total, (0, 1))(2.0, 3.0) == (3, 2)


def test_functions_of_scipys_and_rules_that_undo_broadcasting():
    from scipy import special

    f = primitive(special.gammainc)
    defvjp(f, None, lambda ans, a, x: unbroadcast_f(x, lambda g: g * np.exp(-x)))
    np.testing.assert_allclose(grad(lambda x: np.sum(f(np.ones(3), x)))(2.0), 3 * np.exp(-2))


class Backend:
    """Names of NumPy's that a program looks up in a class of its own."""

    array = staticmethod(anp.array)


def test_rules_that_differentiate_functions_which_make_arrays():
    """A solution of h(x, a) = 0, by the implicit function theorem."""

    def h(x, a):
        pair = Backend.array([x, a])
        return np.sum(pair**2) - 4.0

    @primitive
    def solved(a):
        return np.sqrt(4.0 - a * a)

    defvjp(solved, lambda ans, a: lambda g: -g * grad(h, 1)(ans, a) / grad(h, 0)(ans, a))
    assert grad(solved)(1.0) == pytest.approx(-1 / np.sqrt(3))


def test_rules_of_what_is_no_primitive_are_told_to_do_nothing():
    with pytest.warns(UserWarning, match="f = primitive"):
        defvjp(np.sin, lambda ans, x: lambda g: 7 * g)
    assert grad(lambda x: np.sin(x))(0.0) == 1


def test_forward_rules():
    """One for each argument, "same" where the function is linear, and one for all."""
    f, g = primitive(lambda x, k: np.sin(x) * k), primitive(lambda x, y: x * y)
    defjvp(f, lambda t, ans, x, k: 7 * t * np.cos(x) * k, "same")
    assert make_jvp(f, (0, 1))(0.0, 2.0)((1.0, 3.0)) == (0, 14)
    assert grad(f)(0.0, 2.0) == 14  # its transpose
    defjvp_argnum(g, lambda k, t, ans, args, kwargs: 7 * t * args[1 - k])
    assert make_jvp(g, (0, 1))(2.0, 3.0)((1.0, 1.0)) == (6, 35)


def boxed(x):
    return np.sum(x * x._value) if isinstance(x, ArrayBox) else None


def known(x):
    return np.sum(x * getval(x)) if isbox(x) else None


@pytest.mark.parametrize("f", [boxed, known])
@pytest.mark.parametrize("compile", ["never", "always"])
def test_the_value_in_a_box_is_a_constant_and_that_of_each_call(f, compile):
    derived = tapegrad.grad(f, compile=compile)
    for k in (1.0, 2.0, 3.0):
        np.testing.assert_array_equal(derived(k * X), k * X)


def test_functions_that_arent_traced_are_constant():
    f = notrace_primitive(lambda x: x**2)
    assert grad(lambda x: x * f(x))(3.0) == 9


def test_there_are_no_boxes():
    assert not isinstance(X, ArrayBox) and not isinstance({}, builtins.DictBox)
    with pytest.raises(ArgumentError):
        Box()


def test_containers_and_types_are_pythons():
    def f(x):
        pair = builtins.tuple([x, 2 * x])
        named = builtins.dict(a=builtins.list(pair))
        assert builtins.isinstance(pair, tuple) and builtins.type(x) is np.ndarray
        return np.sum(named["a"][1])

    np.testing.assert_array_equal(grad(f)(X), [2, 2, 2])


def test_a_primitive_is_traced_once():
    """Which traces are under way is no state of it."""

    @primitive
    def halved(x):
        return x / 2

    defvjp(halved, lambda ans, x: lambda g: g / 2)
    for f in (halved, lambda x: np.sum(halved(x))):
        for k in range(5):
            np.testing.assert_array_equal(grad(f)(float(k)), 0.5)
        assert tapegrad.cache_info(f).traces == 1


def test_vector_spaces():
    tree = {"a": X, "b": [1.0, 2j]}
    space = vspace(tree)
    assert space.size == 6 and space.iscomplex and space == vspace({"a": X, "b": [2.0, 1j]})
    assert space != vspace(X) and len([*space.standard_basis()]) == 6
    assert (vspace(X).shape, vspace(X).ndim, vspace(X).dtype) == ((3,), 1, np.float64)
    twice = space.add(tree, space.scalar_mul(tree, 1.0))
    assert space.inner_prod(tree, twice) == 2 * (X @ X + 1 + 4)
    assert space.covector(tree)["b"][1] == -2j
    assert space.zeros()["b"] == [0, 0] and space.ones()["b"] == [1, 1 + 1j]
    assert vspace(space.randn()) == space
    with pytest.raises(ArgumentError, match="str"):
        vspace("word")


def test_graphs_of_nodes_are_refused_by_their_names():
    """Their names can be imported. An error for whoever uses one says what to use instead."""
    from tapegrad.autograd import core, extend, tracer, util

    uses = {
        "core.primitive_vjps": lambda: core.primitive_vjps[np.sin],
        "core.SparseObject": lambda: extend.SparseObject(X, X),
        "tracer.toposort": lambda: util.toposort(None),
    }
    for name, use in uses.items():
        with pytest.raises(UnsupportedError, match=f"autograd.{name} is for"):
            use()
    with pytest.raises(UnsupportedError, match=r"tapegrad\.trace\(f\)"):

        class Mine(tracer.Node):
            pass


def test_rules_that_run_on_plain_arrays_make_arrays():
    """One that can't be traced, since it asks for memory, makes plain arrays."""

    @primitive
    def total(x):
        return float(np.sum(anp.zeros_like(x) + x, dtype=float))

    def maker(ans, x):
        found = anp.ones_like(x)
        found.ctypes  # noqa: B018
        return lambda g: g * found

    defvjp(total, maker)
    for compile in ("never", "always"):
        derived = tapegrad.grad(lambda x: total(x * 2), compile=compile)
        np.testing.assert_array_equal(derived(X), [2, 2, 2])


def test_rules_declared_by_methods():
    """As programs for HIPS autograd before 1.2 do; an argument that isn't named has no rule."""

    @primitive
    def product(x, y, z):
        return x * y + z

    product.defgrad(lambda ans, x, y, z: lambda g: 10 * g * y)
    product.defvjp(lambda g, ans, space, image, x, y, z: 10 * g * x * np.ones(space.shape), 1)
    product.defvjp_is_zero([2])
    found = grad(lambda x, y, z: np.sum(product(x, y, z)), (0, 1, 2))(X, X + 1, X)
    np.testing.assert_allclose(found, [10 * (X + 1), 10 * X, 0 * X])


def test_a_joint_forward_rule():
    @primitive
    def product(x, y):
        return x * y

    defjvp_argnums(
        product,
        lambda ks, ts, ans, args, kwargs: sum(
            10 * t * args[1 - k] for k, t in zip(ks, ts, strict=True)
        ),
    )
    assert make_jvp(product, (0, 1))(2.0, 3.0)((1.0, 1.0)) == (6, 50)
    assert make_jvp(product, 1)(2.0, 3.0)(1.0) == (6, 20)


def test_classes_of_arrays_may_be_registered():
    class Parameter(np.ndarray):
        """An array of a kind of its own."""

    VSpace.register(Parameter, vspace_maker=vspace)
    ArrayBox.register(Parameter)
    found = grad(lambda x: np.sum(x**2))(X.view(Parameter))
    np.testing.assert_allclose(found, 2 * X)


def test_names_that_rules_use():
    from tapegrad.autograd.numpy import numpy_vjps, numpy_wrapper
    from tapegrad.autograd.util import quick_grad_check

    repeated, count = numpy_vjps.repeat_to_match_shape(X[:2], (2, 3), np.dtype(float), 1, False)
    np.testing.assert_array_equal(repeated, [[1, 1, 1], [2, 2, 2]])
    assert count == 3 and numpy_wrapper.sin is np.sin
    assert numpy_vjps.repeat_to_match_shape(2.0, (2, 3), np.dtype(float), None, False)[1] == 6
    np.testing.assert_array_equal(numpy_vjps.replace_zero(np.array([0.0, 2.0]), 1.0), [1, 2])
    assert numpy_vjps.match_complex(1.0, 2 + 1j) == 2
    quick_grad_check(lambda x, y: x**2 + y, 1.0, (2.0,))
