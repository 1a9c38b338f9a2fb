"""grad, value_and_grad and jit: their options, and what they return."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.errors import ArgumentError, GradientError

X, Y = np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0])


def product(x, y, scale=1.0):
    return np.sum(x * y) * scale


def grad(f, *args, **options):
    return tg.grad(f, *args, compile="never", **options)


def equal(found, expected):
    np.testing.assert_array_equal(found, expected)


# ---- argnums


def test_the_first_argument_is_the_default():
    equal(grad(product)(X, Y), Y)


@pytest.mark.parametrize(("argnums", "expected"), [(0, Y), (1, X), (-1, X), (-2, Y)])
def test_argnums_chooses_an_argument(argnums, expected):
    equal(grad(product, argnums)(X, Y), expected)


@pytest.mark.parametrize(
    ("argnums", "expected"),
    [((0,), (Y,)), ((0, 1), (Y, X)), ((1, 0), (X, Y)), ((0, -1, 0), (Y, X, Y)), ((), ())],
)
def test_several_argnums_give_a_tuple(argnums, expected):
    found = grad(product, argnums)(X, Y)
    assert isinstance(found, tuple)
    assert len(found) == len(expected)
    for g, e in zip(found, expected, strict=True):
        equal(g, e)


def test_argnums_may_be_a_list():
    equal(grad(product, [1, 0])(X, Y)[0], X)


@pytest.mark.parametrize("argnums", [1.0, (0, None), None, True, (False,), b"x", {"x": 0}])
def test_argnums_are_numbers_and_names(argnums):
    with pytest.raises(ArgumentError, match="argnums is an argument's number or name"):
        grad(product, argnums)


@pytest.mark.parametrize("argnums", [2, -3])
def test_argnums_must_be_there(argnums):
    with pytest.raises(ArgumentError, match=r"argnums is .* 2 positional arguments were passed"):
        grad(product, argnums)(X, Y)


# ---- argnums by name


def power(a, b, /, c=3.0, *rest, d=5.0, n=2, **more):
    """a b c d, and what else there is: linear in each."""
    total = a * b * c * d * n
    for x in (*rest, *more.values()):
        total = total * x
    return total


BY_NAME = [
    ("a", (2.0, 7.0), {}, 7.0 * 3 * 5 * 2),
    ("c", (2.0, 7.0, 11.0), {}, 2.0 * 7 * 5 * 2),
    ("c", (2.0, 7.0), {"c": 11.0}, 2.0 * 7 * 5 * 2),
    ("c", (2.0, 7.0), {}, 2.0 * 7 * 5 * 2),  # at its default
    ("d", (2.0, 7.0), {}, 2.0 * 7 * 3 * 2),
    ("z", (2.0, 7.0, 1.0, 4.0), {"z": 3.0, "y": 9.0}, 2.0 * 7 * 4 * 5 * 2 * 9),
    (("d", 0, "y", -1), (2.0, 7.0), {"z": 3.0, "y": 9.0}, (2268.0, 5670.0, 1260.0, 1620.0)),
    (["a"], (2.0, 7.0), {}, (210.0,)),
]


@pytest.mark.parametrize("compile", ["never", "always"])
@pytest.mark.parametrize(("argnums", "args", "kwargs", "expected"), BY_NAME)
def test_an_argument_is_chosen_by_its_name(argnums, args, kwargs, expected, compile):
    df = tg.grad(power, argnums, compile=compile)
    for _ in range(2):
        assert df(*args, **kwargs) == expected


def test_how_an_argument_is_passed_may_change_from_call_to_call():
    dy = grad(product, "y")
    for _ in range(2):
        equal(dy(X, Y), X)
        equal(dy(X, y=Y), X)
        equal(dy(scale=2.0, y=Y, x=X), 2 * X)
    equal(grad(grad(lambda t, s: t**2 * s, "t"), "s")(3.0, 5.0), 6.0)


def test_a_default_is_the_one_of_the_call():
    weights = np.array([1.0, 2.0, 3.0])

    def f(x, w=weights):
        return np.sum(x * w * w)

    dw = grad(f, "w")
    equal(dw(X), 2 * X * weights)
    weights[0] = 7.0
    equal(dw(X), 2 * X * weights)
    f.__defaults__ = (Y,)
    equal(dw(X), 2 * X * Y)


class Scaled:
    scale = 2.0

    def loss(self, x, y=3.0):
        return self.scale * x * y

    @tg.grad(argnums="y", compile="never")
    def d_y(self, x, y=3.0):
        return self.scale * x * y


def test_names_of_methods():
    model = Scaled()
    assert grad(model.loss, "y")(5.0) == grad(Scaled.loss, "y")(model, 5.0) == model.d_y(5.0) == 10
    assert grad(model.loss, ("y", "x"))(5.0, 7.0) == (10.0, 14.0)
    assert grad(model.d_y, "x")(5.0) == 2.0


@pytest.mark.parametrize(
    ("argnums", "message"),
    [
        ("sclae", r"no such argument. Its arguments are x, y, scale. Did you mean 'scale'\?"),
        ((0, "w"), "names 'w', and product has no such argument"),
    ],
)
def test_a_name_that_isnt_there_is_an_error_at_once(argnums, message):
    with pytest.raises(ArgumentError, match=message):
        grad(product, argnums)


def test_names_that_a_call_has_no_argument_for():
    with pytest.raises(ArgumentError, match="names 'y', which wasn't passed and has no default"):
        grad(product, "y")(X)
    with pytest.raises(ArgumentError, match=r"has no such argument.*n, alpha. Did you .*'alpha'"):
        grad(power, "alpa")(2.0, 7.0, alpha=3.0)
    with pytest.raises(ArgumentError, match=r"\(\*rest\). Choose these by their numbers"):
        grad(power, "rest")(2.0, 7.0)
    with pytest.raises(ArgumentError, match=r"\(\*\*more\). Choose these by their names"):
        grad(power, "more")(2.0, 7.0)
    with pytest.raises(ArgumentError, match="'n' is an integer"):
        grad(power, "n")(2.0, 7.0)


# ---- value and aux


def one_element(x):
    """x0 x1, as an array of shape (1, 1)."""
    return x[None, :1] * x[1]


@pytest.mark.parametrize("compile", ["never", "always"])
def test_an_array_of_one_element_is_a_loss_and_comes_back_as_it_was(compile):
    value, gradient = tg.value_and_grad(one_element, compile=compile)(X)
    equal(value, [[2.0]])
    assert value.shape == (1, 1)
    equal(gradient, [2.0, 1.0, 0.0])
    (value, aux), gradient = tg.value_and_grad(
        lambda x: (one_element(x), x[:1]), has_aux=True, compile=compile
    )(X)
    assert (value.shape, aux.shape) == ((1, 1), (1,))
    equal(gradient, [2.0, 1.0, 0.0])
    equal(tg.grad(tg.grad(lambda w: w**3, compile=compile), compile=compile)(X[1:2]), [12.0])

    def written(x):
        y = np.zeros_like(x[:1])
        y[0] = x @ x
        return y

    def carried(x):
        return tg.scan(lambda y, e: (y + e * e, None), np.zeros(1), x)[0]

    for f in (lambda x: x[None] @ x[:, None], written, carried):
        equal(tg.grad(f, compile=compile)(X), 2 * X)
    equal(tg.grad(lambda x: np.cumsum(x[2:] ** 2), compile=compile)(X), [0.0, 0.0, 6.0])


def test_other_shapes_at_later_calls_are_other_losses():
    square = grad(lambda x: x * x)
    for x in (np.array([3.0]), 3.0, np.array([[3.0]]), np.float32(3.0), np.array([3.0])):
        assert np.shape(square(x)) == np.shape(x)
        assert square(x) == 6.0
    for x in (np.ones(2), np.ones(0), np.ones((1, 0))):
        with pytest.raises(GradientError, match="needs a scalar"):
            square(x)


def test_one_element_of_another_kind_or_in_a_container_is_no_loss():
    for f in (lambda x: [x[:1]], lambda x: (x[:1],), lambda x: {"loss": x[:1]}):
        with pytest.raises(GradientError, match="needs the scalar itself"):
            grad(f)(X)
    with pytest.raises(GradientError, match="dtype bool"):
        grad(lambda x: x[:1] > 0)(X)


def test_value_and_grad_gives_both():
    value, gradient = tg.value_and_grad(product, compile="never")(X, Y)
    assert value == 32.0
    equal(gradient, Y)


def with_aux(x):
    hidden = np.tanh(x)
    return hidden.sum(), {"hidden": hidden, "label": "aux", "shape": x.shape}


def test_has_aux_hands_other_results_through():
    gradient, aux = grad(with_aux, has_aux=True)(X)
    np.testing.assert_allclose(gradient, 1 / np.cosh(X) ** 2, rtol=1e-15)
    equal(aux["hidden"], np.tanh(X))
    assert (aux["label"], aux["shape"]) == ("aux", (3,))


def test_value_and_grad_with_aux_gives_all_three():
    (value, aux), gradient = tg.value_and_grad(with_aux, has_aux=True, compile="never")(X)
    assert value == pytest.approx(np.tanh(X).sum())
    equal(aux["hidden"], np.tanh(X))
    assert gradient.shape == X.shape


def test_aux_may_hold_the_argument_itself():
    """And still the caller's arrays and the results are different arrays."""
    gradient, aux = grad(lambda x: (x.sum(), (x, x, X)), has_aux=True)(X)
    assert len({id(a) for a in (*aux, X, gradient)}) == 5
    assert not any(np.shares_memory(a, X) for a in aux)


def test_has_aux_needs_a_pair():
    with pytest.raises(GradientError, match="must return a pair"):
        grad(lambda x: x.sum(), has_aux=True)(X)


# ---- what doesn't matter, and what isn't floating point


def test_an_input_that_doesnt_matter_gets_zeros_of_its_shape_and_dtype():
    unused = np.ones((2, 3), np.float32)
    found = grad(lambda x, y, z: x.sum(), (1, 2))(X, unused, 2.0)
    equal(found[0], np.zeros((2, 3)))
    assert found[0].dtype == np.float32
    assert found[1] == 0.0


def test_a_constant_function_has_a_gradient_of_zeros():
    value, gradient = tg.value_and_grad(lambda x: 3.5, compile="never")(X)
    assert value == 3.5
    equal(gradient, np.zeros(3))


def test_a_stopped_gradient_is_zero():
    equal(grad(lambda x: (tg.stop_gradient(x) * x).sum())(X), X)
    equal(grad(lambda x: tg.stop_gradient(x).sum())(X), np.zeros(3))


def test_float32_stays_float32():
    x = X.astype(np.float32)
    value, gradient = tg.value_and_grad(lambda x: np.exp(x * 0.5).mean(), compile="never")(x)
    assert gradient.dtype == np.float32
    assert value.dtype == np.float32


def test_each_gradient_has_its_arguments_dtype():
    x32 = X.astype(np.float32)
    found = grad(lambda x, y: (x * y).sum(), (0, 1))(x32, Y)
    assert [g.dtype for g in found] == [np.float32, np.float64]


def test_python_numbers_are_arguments_too():
    assert grad(lambda x: x**3)(2.0) == 12.0
    assert grad(lambda x, n: x**n)(2.0, 3) == 12.0
    assert grad(lambda x, flag: x if flag else -x)(2.0, False) == -1.0


def test_0d_arrays_and_numpy_scalars_are_arguments_too():
    assert grad(np.square)(np.array(3.0)) == 6.0
    assert grad(np.square)(np.float64(3.0)) == 6.0
    assert grad(np.square)(np.float32(3.0)).dtype == np.float32


@pytest.mark.parametrize("x", [3, True, np.arange(3), np.array([True])], ids=repr)
def test_integers_and_booleans_have_no_gradient(x):
    with pytest.raises(ArgumentError, match=r"integers or booleans|which has no derivative"):
        grad(lambda x: np.sum(x * 1.0))(x)


def test_an_integer_beyond_64_bits_is_an_error():
    with pytest.raises(ArgumentError, match="doesn't fit in 63 bits"):
        grad(lambda x, n: x * n)(2.0, 2**70)


@pytest.mark.parametrize("wrap", [lambda x: [x], lambda x: {"loss": x}, lambda x: (x,)])
def test_the_result_is_a_scalar_and_no_container(wrap):
    with pytest.raises(GradientError, match="with one value, but grad needs the scalar itself"):
        grad(lambda x: wrap(x.sum()))(X)


def test_integers_may_be_other_arguments():
    equal(grad(lambda x, k: x[k] * k)(X, 2), [0.0, 0.0, 2.0])
    equal(grad(lambda x, k: x[k].sum())(X, np.array([0, 0, 2])), [2.0, 0.0, 1.0])


# ---- forms of calling


def test_keyword_arguments_and_defaults():
    df = grad(product)
    equal(df(X, Y), Y)
    equal(df(X, Y, 2.0), 2 * Y)
    equal(df(X, y=Y, scale=3.0), 3 * Y)
    equal(df(X, scale=3.0, y=Y), 3 * Y)
    equal(df(x=X, y=Y), Y)
    with pytest.raises(ArgumentError, match="0 positional arguments were passed"):
        grad(lambda *, x: np.sum(x))(x=X)


@pytest.mark.parametrize("compile", ["never", "always"])
def test_what_is_passed_by_name_may_be_passed_by_position(compile):
    """The calls f(x, y) and f(x, y=y) have one trace."""

    def f(x, y, scale=1.0, *, power=1.0):
        return np.sum(x * y) * scale**power

    df = tg.grad(f, compile=compile)
    for _ in range(3):
        equal(df(X, Y, 3.0), 3 * Y)
        equal(df(X, scale=3.0, y=Y), 3 * Y)
        equal(df(scale=3.0, y=Y, x=X), 3 * Y)
        assert df.lower(X, y=Y, scale=3.0).tape.inputs == df.tape.inputs
    assert df.cache_info().traces == df.cache_info().variants == 1
    equal(df(X, Y, power=2.0, scale=3.0), 9 * Y)
    equal(df(X, Y, 3.0, power=2.0), 9 * Y)
    assert df.cache_info().traces == 2
    equal(grad(f, argnums=1)(X, y=Y), X)
    equal(grad(f, argnums=-1)(X, y=Y), Y)  # the last of those by position
    equal(tg.hvp(lambda x, y: np.sum(x**2 * y))(X, X, y=Y), 2 * X * Y)

    def g(y, x):
        return np.sum(x * x * y)

    equal(grad(g)(y=Y, x=X), X * X)
    dg = grad(g)
    g.__code__ = (lambda x, y: np.sum(x * x * y)).__code__
    equal(dg(X, y=Y), 2 * X * Y)
    with pytest.raises(TypeError, match="multiple values"):
        df(X, x=X, y=Y)


def test_variable_arguments():
    def total(x, *rest, **options):
        return x * sum(rest) * options["factor"]

    assert grad(total)(2.0, 3.0, 4.0, factor=5.0) == 35.0


def test_as_a_decorator():
    @tg.grad
    def plain(x):
        """A square."""
        return x**2

    @tg.value_and_grad(argnums=1, compile="never")
    def chosen(x, y):
        return x * y

    assert plain(3.0) == 6.0
    assert chosen(2.0, 3.0) == (6.0, 2.0)
    assert plain.__name__ == "grad_plain"
    assert plain.__doc__.startswith("A square.\n\nDerived by tapegrad: grad of plain: 1 variant, ")
    assert plain.__wrapped__(3.0) == 9.0
    assert repr(chosen) == "<tapegrad value_and_grad(argnums=1) of chosen: 1 variant, 0 compiled>"


def test_lambdas_partials_and_callable_objects():
    from functools import partial

    class Cube:
        def __call__(self, x):
            return x**3

    assert grad(lambda x: x**3)(2.0) == 12.0
    assert grad(partial(product, Y))(X).tolist() == Y.tolist()
    assert grad(Cube())(2.0) == 12.0


class Regression:
    def __init__(self, x, y):
        self.x, self.y = x, y

    def loss(self, w):
        return ((self.x * w - self.y) ** 2).sum()

    @tg.grad(argnums=1, compile="never")
    def slope(self, w):
        return ((self.x * w - self.y) ** 2).sum()


def test_methods():
    """Of a bound method the first argument is the one after `self`; a decorator counts `self`."""
    one, two = Regression(X, Y), Regression(Y, X)
    for model in (one, two, one):
        expected = np.sum(2 * model.x * (model.x * 0.5 - model.y))
        assert grad(model.loss)(0.5) == pytest.approx(expected)
        assert model.slope(0.5) == pytest.approx(expected)
    assert Regression.slope(one, 0.5) == one.slope(0.5)
    assert one.slope.cache_info().variants == 2


def test_a_derivative_can_be_pickled_and_copied():
    for again in (pickle.loads(pickle.dumps(grad(product))), copy.deepcopy(grad(product))):
        equal(again(X, Y), Y)


@tg.jit
def decorated(x):
    return x**2


@tg.primitive
def declared(x):
    return 3 * x


@tg.custom_root(lambda x, a: x * x - a)
def solved(start, a):
    return np.sqrt(a)


class Model:
    @tg.value_and_grad
    def loss(self, x):
        return x**2

    @staticmethod
    @tg.grad
    def slope(x):
        return x**2


@pytest.mark.parametrize("f", [decorated, declared, solved, Model.loss, Model.slope])
def test_what_decorators_make_is_pickled_by_its_name(f):
    """A module has it by the function's."""
    assert pickle.loads(pickle.dumps(f)) is f


def test_derivatives_of_what_decorators_make_are_pickled():
    for f, slope in [(decorated, 4.0), (declared, 3.0)]:
        assert pickle.loads(pickle.dumps(grad(f)))(2.0) == slope
    bound = pickle.loads(pickle.dumps(Model().loss))
    assert isinstance(bound, type(Model().loss))


def test_only_functions_can_be_differentiated():
    with pytest.raises(ArgumentError, match=r"grad needs a function, not 3\.0"):
        tg.grad(3.0)
    with pytest.raises(ArgumentError, match='compile is "auto", "always" or "never"'):
        tg.grad(product, compile="sometimes")


# ---- results are the caller's own


def test_results_share_no_memory_with_arguments_or_each_other():
    x = X.copy()
    first = grad(lambda x, y: (x + y).sum(), (0, 1))(x, x)
    again = tg.jit(lambda x: (x, x[1:], x[::-1], x), compile="never")(x)
    arrays = [x, *first, *again]
    for k, a in enumerate(arrays):
        assert not any(np.shares_memory(a, b) for b in arrays[k + 1 :])
    assert all(a.flags.writeable and a.flags.c_contiguous for a in (*first, *again))


def test_arguments_are_not_written_to():
    def f(x):
        x[0] = 5.0
        x *= 2
        return (x * x).sum()

    x = X.copy()
    equal(grad(f)(x), [0.0, 16.0, 24.0])
    equal(x, X)


# ---- jit


def test_jit_is_the_function_itself():
    fast = tg.jit(product, compile="never")
    assert fast(X, Y) == 32.0
    assert fast(X, Y, scale=0.5) == 16.0
    assert fast.cache_info().traces == 2


def test_jit_returns_whatever_the_function_returns():
    assert tg.jit(lambda x: None, compile="never")(X) is None
    assert tg.jit(lambda x: ("a", 1, x.sum() > 3), compile="never")(X) == ("a", 1, True)
    equal(tg.jit(lambda x: np.arange(3), compile="never")(X), [0, 1, 2])


def test_jit_of_integers_and_booleans():
    equal(tg.jit(lambda k: k * 2 + 1, compile="never")(np.arange(3)), [1, 3, 5])
    equal(tg.jit(lambda x: ~(x > 1.5), compile="never")(X), [True, False, False])
