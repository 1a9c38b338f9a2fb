"""What random programs found: each was wrong, or an error, once."""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from tests.frontend.check import assert_same

from tapegrad import grad, jit, value_and_grad
from tapegrad.errors import ArgumentError
from tapegrad.optimize import repetition, unrolled


def check(f: Callable[..., Any], *calls: Sequence[Any], compile: str = "never") -> None:
    """In each call `f` gives what NumPy gives. NumPy comes last: it may write to the arguments."""
    g = jit(f, compile=compile)
    for args in calls:
        with np.errstate(all="ignore"):
            found = g(*args)
            assert_same(found, f(*args))


def reals(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).uniform(-1.5, 1.5, shape)


# ---- guards that don't hold where something else depends on them


@pytest.mark.parametrize("compile", ["never", "always"])
def test_a_mask_of_another_count_where_its_elements_meet_others(compile):
    """The arrays that come of the mask don't fit each other before the count is looked at."""

    def f(x):
        chosen = x[np.nonzero(x > 0)]
        return chosen * np.arange(len(chosen)), np.repeat(chosen, 2)

    calls = [[np.array(x)] for x in ([1.0, -2.0, 3.0], [1.0, 2.0, 3.0], [-1.0, -2.0, 3.0])]
    check(f, *calls, compile=compile)


def test_a_mask_of_another_count_where_its_elements_are_replaced():
    def f(x):
        y = x * 1.0
        y[y < 0] *= y.sum()
        return y

    check(f, [np.array([1.0, -2.0, 3.0])], [np.array([-1.0, -2.0, 3.0])])


# ---- compiled


def test_an_index_that_is_computed_again_where_it_is_read():
    """The place in the table is cheap, so it isn't stored; it is an index of another read."""

    def f(x, y):
        return np.choose(x > 0, [x, y]), y == y

    check(f, [reals(3, 2), reals(3, 2) + 1.0], compile="always")


@pytest.mark.parametrize("shape", [(3,), (1, 3)])
def test_a_scattered_term_of_a_sum_is_broadcast(shape):
    """It isn't added where it stands in its own shape, but in every row."""

    def f(x, y):
        row = np.pad(y, [(0, 0)] * (y.ndim - 1) + [(0, 2)])
        return np.sin(x) + row

    check(f, [reals(2, 3), reals(*shape[:-1], 1)], compile="always")


# ---- what is a view, and what a copy


def reversed_in_memory(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x[::-1])[::-1]


LAYOUTS = [np.ascontiguousarray, np.asfortranarray, reversed_in_memory]


@pytest.mark.parametrize("order", LAYOUTS, ids=lambda f: f.__name__)
def test_ravel_is_a_view_of_rows_in_order_alone(order):
    def f(x):
        x.ravel()[1:] *= 2.0
        return x

    check(f, [order(reals(3, 2))], [order(reals(3))])


@pytest.mark.parametrize("order", LAYOUTS, ids=lambda f: f.__name__)
def test_a_written_array_stays_in_memory_as_it_was(order):
    def f(x):
        x.sort(axis=0)
        x.ravel()[1:] *= -1.0
        return x

    check(f, [order(reals(3, 2))])


@pytest.mark.parametrize(
    "copied",
    [
        lambda x: x.copy(),
        lambda x: x.copy("F"),
        lambda x: x.T.copy(),
        lambda x: np.copy(x),
        lambda x: np.copy(x, order="C"),
        lambda x: np.zeros_like(x),
        lambda x: np.zeros_like(x, order="C"),
        lambda x: np.ones_like(x, shape=(2, 2)),
    ],
)
def test_copies_lie_in_memory_as_those_of_numpy(copied):
    def f(x):
        y = copied(x)
        y.reshape(-1)[1:] += 5.0
        return y

    check(f, [np.asfortranarray(reals(3, 2))], [reals(3, 2)])


@pytest.mark.parametrize(
    "made",
    [
        lambda x: np.repeat(x, 2, axis=1),
        lambda x: np.repeat(x, 1),
        lambda x: np.tile(x, 1),
        lambda x: np.tile(x, (2, 1)),
        lambda x: np.roll(x, 0, axis=0),
        lambda x: np.roll(x, 3, axis=0),
        lambda x: np.pad(x, 0),
        lambda x: np.pad(x, 0, mode="edge"),
    ],
)
def test_what_numpy_makes_anew_can_be_written_to_alone(made):
    def f(x):
        y = made(x)
        y[::-1] = y * 2.0
        return x, y

    check(f, [reals(3, 1)])


def test_an_integer_and_a_new_axis_make_a_view():
    def f(x):
        last = x[-1, None]
        last *= 3.0
        return x

    check(f, [reals(3)])


def test_arrays_that_fit_already_are_broadcast_to_themselves():
    def f(x):
        y = np.broadcast_arrays(x, x)[0]
        y[1] = 7.0
        return x

    check(f, [reals(3)])


def test_a_copy_of_a_number_can_be_written_to():
    def f(x):
        y = np.copy(np.sin(x))
        y[()] = 2.0 * x
        return y

    check(f, [0.5])
    assert grad(f, compile="never")(0.5) == 2.0


def test_a_copy_of_an_array_without_axes_can_be_written_to():
    def f(x):
        y = x.copy()
        y[...] = 2.0 * x
        return y

    check(f, [np.array(0.5)])


def test_put_into_an_array_without_axes():
    def f(x):
        y = np.full_like(x, 2.0)
        np.put(y, [0, -1], x * 3.0)
        return y

    check(f, [np.array(0.5)])


# ---- single functions


def test_booleans_choose_as_0_and_1():
    check(lambda x, y: np.choose(x > 0, [x, y[0]]), [reals(3, 2), reals(3, 2)])


def test_numbers_among_choices_take_the_dtype_of_the_arrays():
    check(lambda x: np.choose(x > 0, [x, 1.5]), [reals(3).astype(np.float32)])


@pytest.mark.parametrize("f", [np.sum, np.prod, np.mean, np.var, np.std])
def test_a_plain_array_where_a_traced_mask_is(f):
    plain = np.arange(1.0, 4.0)
    check(lambda x: f(plain, where=x > 0), [np.array([1.0, -1.0, 2.0])])


def test_a_norm_is_a_scalar():
    """And its reshape is an array of its own."""

    def f(x):
        size = np.linalg.norm(x, 2)
        y = np.reshape(size, (1, 1), order="F")
        y[0] = 7.0
        return size, y

    check(f, [reals(2, 3)])


def test_a_scalar_is_sorted_as_a_vector_of_one_element():
    check(lambda x: (np.argsort(-x[..., 0]), np.argmax(x[..., 0], axis=-1)), [reals(3)])


def test_logaddexp_of_nothing():
    check(lambda x: np.logaddexp.reduce(x, axis=1), [np.ones((2, 0))])


def test_logaddexp_keeps_float32_and_promotes_integers():
    f = lambda x: np.logaddexp.reduce(x, axis=0)  # noqa: E731
    check(f, [reals(3, 2).astype(np.float32)], [np.arange(3)])


def test_quantiles_of_nothing_at_all():
    check(lambda x: np.quantile(x, 0.3, axis=0), [np.ones((2, 0))])


def test_a_clipped_number_is_a_float64():
    check(lambda x, low: np.clip(x, low, None), [0.25, reals(3).astype(np.float32)])


def test_booleans_are_close_as_numbers_are():
    check(lambda x: np.isclose(x > 0, x > 1), [reals(3)])


@pytest.mark.parametrize("ord", [None, 1, 2, np.inf, "fro", "nuc"])
@pytest.mark.parametrize("shape", [(2, 0), (0, 2)])
def test_norms_of_matrices_of_nothing(ord, shape):
    check(lambda x: np.linalg.norm(x, ord), [np.ones(shape)])


def test_the_largest_of_no_numbers_is_a_norm_of_0():
    check(lambda x: np.linalg.norm(x, np.inf), [np.ones(0)])


def test_an_empty_mask_chooses_nothing_from_any_axis():
    def f(x):
        y = x * 2.0
        y[np.zeros(0, bool)] = 7.0
        return y, x[np.zeros(0, bool)], x[np.zeros((0, 3), bool)]

    check(f, [reals(2, 3)])


def test_a_part_of_what_is_joined_isnt_sought_in_an_empty_part():
    def f(x):
        y = np.gradient(np.stack([x, x]))
        y[-1:] += x
        return y

    check(f, [0.5])


@pytest.mark.parametrize(
    "f",
    [
        lambda x: np.take(x, [[-1]], axis=-1),
        lambda x: np.repeat(x, 2, axis=0),
        lambda x: np.cumsum(x, axis=0),
        lambda x: np.cumprod(x, axis=-1),
        lambda x: np.nancumsum(x, axis=0),
        lambda x: np.compress([True], x, axis=0),
    ],
)
def test_an_axis_of_a_scalar_is_that_of_a_vector_of_one_element(f):
    check(f, [np.array(0.5)], [np.float64(0.5)])


def test_what_is_taken_is_a_copy():
    def f(x):
        row = np.take(x, 0, axis=0)
        row[...] = 7.0
        return x, row

    check(f, [reals(2, 3)])


@pytest.mark.parametrize(
    "made",
    [
        lambda x: np.take(x, [[0, 2]], axis=1),
        lambda x: np.compress([True, False, True], x, axis=1),
        lambda x: np.choose(x > 0, [x, -x]),
        lambda x: np.select([x > 0], [x]),
        lambda x: np.pad(x, 1),
        lambda x: np.pad(x, 1, mode="edge"),
        lambda x: np.sort(x, axis=0),
        lambda x: np.delete(x, 0, axis=0),
        lambda x: np.gradient(x, axis=1),
        lambda x: np.linalg.inv(x),
        lambda x: np.linalg.solve(x, x + 1.0),
        lambda x: np.linalg.matrix_power(x, -1),
        lambda x: np.linalg.multi_dot([x, x, x]),
    ],
)
@pytest.mark.parametrize("order", LAYOUTS, ids=lambda f: f.__name__)
def test_results_lie_in_memory_as_those_of_numpy(made, order):
    def f(x):
        y = made(x)
        y.ravel()[1:] *= 2.0
        return y

    check(f, [order(reals(3, 3) + 2.0 * np.eye(3))])


@pytest.mark.parametrize("made", [np.sort, lambda x: np.gradient(x, axis=1)])
def test_results_lie_in_memory_as_an_argument_whose_axes_are_in_any_order(made):
    def f(x):
        y = made(x.transpose(1, 0, 2))
        y.ravel()[1:] *= 2.0
        return y

    check(f, [reals(2, 3, 2)])


@pytest.mark.parametrize("view", [np.squeeze, np.transpose, lambda x: np.reshape(x, ())])
def test_an_array_made_of_a_number_is_written_to(view):
    def f(x):
        y = view(x)
        np.exp(-x, out=y)
        z = np.multiply(y, 3.0, out=y, where=(y > 0.7))
        return x, y, z

    check(f, [0.25], [0.5])


@pytest.mark.parametrize(
    "f",
    [
        lambda x: np.interp(x, [0.0, 1.0], [0.0, 2.0]),
        lambda x: np.heaviside(x, 0.5),
        lambda x: np.quantile(x, 0.3),
        np.sum,
        np.median,
        np.nan_to_num,
        np.sinc,
    ],
)
def test_a_scalar_that_has_two_names_is_two_scalars(f):
    """What these functions make of an array without axes can't be written to: += binds anew."""

    def twice(x):
        y = z = f(x)
        z += 1.0
        return y, z

    check(twice, [np.array(0.5)], [np.float64(0.5)])


def test_what_meshgrid_copies_lies_in_rows():
    def f(x):
        grid = np.meshgrid(x, x)[1]
        grid.ravel()[1:] *= 2.0
        return grid

    check(f, [reals(3)])


# ---- later calls with other arguments


@pytest.mark.parametrize(
    ("f", "calls"),
    [
        (lambda x, y: np.sum(x**2) / len(y), [(reals(3), reals(n)) for n in (4, 2, 4)]),
        (lambda x, y: np.arange(len(y)) * x, [(1.5, reals(n)) for n in (0, 5, 0)]),
        (lambda x, y: x * (2.0 if y.ndim > 1 else 3.0), [(1.5, reals(3)), (1.5, reals(1, 3))]),
        (lambda x, y: x + np.ones(y.shape, y.dtype), [(1.5, reals(2)), (1.5, np.ones(2, "f4"))]),
        (lambda x, y: np.take_along_axis(x, np.argsort(x, axis=0), axis=0), [(reals(0), 1.0)]),
    ],
)
def test_what_no_kernel_reads_is_another_argument_all_the_same(f, calls):
    check(f, *calls, *calls[:1], compile="always")


def test_an_array_of_no_elements_has_a_shape():
    df = grad(lambda x: np.sum(np.sort(x, axis=0)), compile="always")
    for shape in ((0,), (0, 1), (1, 0), (0,)):
        assert df(np.ones(shape)).shape == shape


def test_a_gradient_that_is_0_has_the_dtype_of_its_argument():
    df = grad(lambda x, y: np.sum(y), (0, 1), compile="always")
    for dtype in (np.float32, np.float64, np.float32):
        assert df(np.ones(3, dtype), np.ones(2))[0].dtype == dtype


# ---- what changes between calls


@pytest.mark.filterwarnings("ignore:f was traced:RuntimeWarning")
def test_an_array_of_another_shape_with_the_same_bytes():
    settings = {"w": np.arange(6.0).reshape(2, 3)}

    def f(x):
        return np.sort(settings["w"], axis=0).sum(axis=0)

    g = jit(f, compile="never")
    for shape in ((2, 3), (3, 2), (6, 1)):
        settings["w"] = np.arange(6.0).reshape(shape)
        assert_same(g(1.0), f(1.0))


def test_an_array_in_a_list_that_is_written_into_and_replaced_by_what_it_was():
    rows = [None, np.array([-1, 0])]

    def f(x):
        return rows[1]

    g = jit(f, compile="never")
    assert_same(g(1.0), f(1.0))
    rows[1][...] = 0
    rows[1] = np.array([-1, 0])
    assert_same(g(1.0), f(1.0))


@pytest.mark.filterwarnings("ignore:f was traced:RuntimeWarning")
def test_a_module_without_a_file():
    config = types.ModuleType("config")

    def f(x):
        return config.rate * x

    g = jit(f, compile="never")
    for rate in (2.0, 3.0, np.ones(2), np.zeros(2), 2.0):
        config.rate = rate
        assert_same(g(1.5), f(1.5))


# ---- errors of NumPy's


def assert_raises_alike(f: Callable[..., Any], x: Any) -> None:
    with pytest.raises(Exception) as numpys:
        f(x)
    with pytest.raises(numpys.type):
        jit(f, compile="never")(x)


@pytest.mark.parametrize("part", [lambda x: x[:1], lambda x: x[None, :1]])
def test_an_element_isnt_assigned_an_array(part):
    def f(x):
        y = x.copy()
        y[0] = part(x)
        return y

    assert_raises_alike(f, reals(3))


@pytest.mark.parametrize(
    "f",
    [
        lambda x: np.max(x, initial=-2),
        lambda x: np.min(x, initial=300),
        lambda x: np.sum(x, initial=-2.0),
        lambda x: np.prod(x, initial=-2.0),
        lambda x: np.full_like(x, 300),
    ],
)
def test_a_number_that_the_dtype_doesnt_hold(f):
    assert_raises_alike(f, np.ones(3, np.uint8))


@pytest.mark.parametrize("f", [lambda x: x[::2], lambda x: x.shape[0], lambda x: x.mT])
def test_a_python_number_isnt_an_array(f):
    assert_raises_alike(f, 0.5)


@pytest.mark.parametrize("x", [np.float64(0.5), np.bool_(True), np.int64(3)])
def test_nothing_is_put_into_a_scalar(x):
    """NumPy puts it into a copy."""

    def f(x):
        np.put(x, [0, -1], 2)
        return x

    assert_same(jit(f, compile="never")(x), x)
    assert_raises_alike(lambda x: np.put(x, 1, 2), x)
    assert_raises_alike(f, x.item())


@pytest.mark.parametrize("value", [lambda x: x[:1], lambda x: np.ones(1), lambda x: [1.0]])
@pytest.mark.parametrize("at", [1, np.int64(1)])
def test_one_element_of_flat_is_a_number(value, at):
    def f(x):
        y = x * 1.0
        y.flat[at] = value(x)
        return y

    assert_raises_alike(f, reals(3))


@pytest.mark.parametrize(
    "at", [True, False, 1, -1, slice(2), [0, 1], np.array([True, False, True])]
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_booleans_as_indices_of_flat(at):
    """True is the first element, False is none; an array of booleans is a mask."""

    def f(x):
        y = x * 1.0
        y.flat[at] = 5.0
        return y, x.flat[at]

    check(f, [reals(3)])


@pytest.mark.parametrize("at", [np.bool_(True), [True, False, True]])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_iterators_dont_take(at):
    assert_raises_alike(lambda x: x.flat[at], reals(3))


MASKED = [(3, 1, 3), (1, 1, 3), (2,), (3, 3)]


@pytest.mark.parametrize("shape", MASKED)
@pytest.mark.parametrize("index", [lambda x: x > 0, lambda x: (x > 0,), lambda x: (..., x > 0)])
def test_values_for_the_elements_of_a_mask(shape, index):
    """Where a mask alone is the index, values have one axis at most."""

    def f(x):
        y = x * 1.0
        y[index(x)] = np.ones(shape) * x[0, 0]
        return y

    assert_raises_alike(f, 1.0 + np.arange(9.0).reshape(3, 3))


@pytest.mark.parametrize("x", [np.float64(0.5), 0.5])
@pytest.mark.parametrize(
    "f",
    [
        lambda x: np.clip(x, -1, 1, out=x),
        lambda x: np.add(x, 1, out=x),
        lambda x: np.sum([x, x], out=x),
        lambda x: np.nan_to_num(x, copy=False),
    ],
)
def test_numbers_hold_no_results(f, x):
    assert_raises_alike(f, x)


@pytest.mark.parametrize("x", [np.float64(0.5), 0.5])
@pytest.mark.parametrize(
    "f", [lambda x: np.tril(x), lambda x: np.triu(x, 1), lambda x: np.fill_diagonal(x, 1.0)]
)
def test_a_number_has_no_diagonal(f, x):
    assert_raises_alike(f, x)


@pytest.mark.parametrize("x", [np.float64(0.5), 0.5])
@pytest.mark.parametrize("split", [np.split, np.array_split])
@pytest.mark.parametrize("parts", [1, 2, [1]])
def test_a_number_has_no_parts(split, parts, x):
    assert_raises_alike(lambda x: split(x, parts), x)


@pytest.mark.parametrize("value", [lambda x: x[:1], lambda x: [x[0]], lambda x: np.ones(1)])
def test_arrays_are_filled_with_numbers(value):
    def f(x):
        y = x * 1.0
        y.fill(value(x))
        return y

    assert_raises_alike(f, reals(3))


@pytest.mark.parametrize(
    "f",
    [
        lambda x, w: np.sum(x, where=w),
        lambda x, w: np.mean(x, where=w),
        lambda x, w: np.max(x, initial=0.0, where=w),
        lambda x, w: np.nansum(x, where=w),
        lambda x, w: np.add(x, 1, out=x * 1, where=w),
    ],
)
def test_where_takes_booleans(f):
    """Of what is no array the truth counts."""
    for w in (1, np.int8(1), [2, 0, 1], [True, False, True], np.array(True)):
        check(f, [np.arange(3.0), w])
        check(lambda x, w=w: f(x, w), [np.arange(3.0)])
    for w in (np.array(1), np.array([1, 0, 1]), np.ones(3)):
        assert_raises_alike(lambda x, w=w: f(x, w), np.arange(3.0))


# ---- memory


@pytest.mark.parametrize("compile", ["never", "always"])
def test_an_argument_whose_elements_are_one_is_written_to(compile):
    """All elements change at once, in NumPy. A trace keeps them apart, so it is refused."""

    def f(x):
        x[0] = 5.0
        return x * 1.0

    g = jit(f, compile=compile)
    np.testing.assert_array_equal(g(np.ones(3)), [5.0, 1.0, 1.0])
    np.testing.assert_array_equal(g(np.ones(6)[::2]), [5.0, 1.0, 1.0])
    with pytest.raises(ArgumentError, match="whose elements share memory with each other"):
        g(np.lib.stride_tricks.as_strided(np.ones(1), (3,), (0,)))


def test_writes_by_ufuncs_methods_are_followed():
    """`np.add.at` changes what it is passed, and not the ufunc."""

    def f(x):
        y = x * 1.0
        np.add.at(y, [0, 0], 2.0)
        return y

    g = jit(f, compile="never")
    for _ in range(3):
        np.testing.assert_array_equal(g(np.ones(3)), [5.0, 1.0, 1.0])
    assert g.cache_info().traces == 1


# ---- what a class says that it is


@pytest.mark.parametrize("said", [None, "builtins", "numpy", "collections", "no_module", 3])
def test_classes_that_say_they_are_of_another_module(said):
    """A class is of the module that its text is run for, which needs no name."""
    names = {"np": np} if said is None else {"np": np, "__name__": said}
    exec("class Model:\n    w = 2.0\n    def f(self, x):\n        return Model.w * x", names)
    model = names["Model"]()
    g = jit(model.f, compile="never")
    assert g(1.5) == 3.0
    names["Model"].w = 3.0
    assert g(1.5) == 4.5
    names["Model"].f = lambda self, x: -x
    assert jit(model.f, compile="never")(1.5) == -1.5


# ---- results that aren't traced


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.array(["u", "v"]),
        lambda: np.zeros(2, complex),
        lambda: np.zeros(2, np.float16),
        lambda: np.zeros(2, "M8[D]"),
        lambda: np.array([None, 1], dtype=object),
        lambda: {1, 2},
        lambda: bytearray(b"ab"),
        lambda: [types.SimpleNamespace(q=1)],
    ],
)
@pytest.mark.parametrize("compile", ["never", "always"])
@pytest.mark.filterwarnings("ignore:.*among the results.*:RuntimeWarning")
def test_results_that_arent_traced_are_the_callers_own(make, compile):
    """Who changes what one call has returned finds nothing of that in the next one's."""

    def f(x):
        return x * 2.0, make()

    g = jit(f, compile=compile)
    for _ in range(3):
        _, found = g(1.5)
        assert repr(found) == repr(make())
        if isinstance(found, np.ndarray):
            found[:] = found[::-1]
            found[0] = 1
        elif isinstance(found, set):
            found.add(5)
        elif isinstance(found, bytearray):
            found[0] = 66
        else:
            found[0].q = 2


# ---- derivatives


def test_memory_that_nested_values_read_one_by_one():
    """Each of two products stands where it is stored, over the elements that it reads."""

    def f(x, y):
        v = x @ y
        w = np.concatenate([v[1:], v[:1]])
        u = np.prod(w) * w
        return np.sum(np.cumsum(np.prod(u) * w) * np.array([1.2, 0.8]))

    args = reals(2, 2), reals(2)
    compiled = grad(f, (0, 1), compile="always")(*args)
    for a, b in zip(compiled, grad(f, (0, 1), compile="never")(*args), strict=True):
        np.testing.assert_allclose(a, b)


def test_the_second_derivative_of_norms_of_one_operand():
    """Their direction is one array, and no list of them."""
    x = reals(2, 2)
    c = reals(2)

    def slope(y):
        df = grad(lambda z: np.sum(np.linalg.norm(z, axis=-2) * c) + np.linalg.norm(z, 2) % 0.5)
        return np.sum(df(y) * x.T)

    found = grad(slope, compile="never")(x)
    steps = 1e-6 * np.eye(4).reshape(4, 2, 2)
    wanted = [(slope(x + h) - slope(x - h)) / 2e-6 for h in steps]
    np.testing.assert_allclose(found.ravel(), wanted, atol=1e-6)


@pytest.mark.filterwarnings("ignore:overflow")
def test_integers_wrap_around_in_machine_code():
    """LLVM takes `k + 1 > k` for true where it is told that nothing overflows."""

    def f(x, k):
        total = np.sum(np.where(k * np.arange(1, 5) > 0, x, 2.0 * x))
        for test in (k + 1 > k, k - 1 < k, -k < 0, 2 * k >= k, k * k >= 0):
            total = 3.0 * total + np.where(test, x[0], x[1])
        return total

    x, df = np.linspace(0.3, 1.1, 4), jit(f, compile="always")
    for k in (3, 2**62, 2**63 - 1, -(2**63)):
        np.testing.assert_allclose(df(x, np.int64(k)), f(x, np.int64(k)))


def test_a_loop_whose_guards_alone_are_read():
    def f(x, p):
        u = p
        for i in range(len(x)):
            for j in range(i):
                if x[j] >= p:
                    u = p + 0.3 * u
        return u

    for seed in (8, 3):
        x = np.random.RandomState(seed).normal(size=20)
        value, slope = value_and_grad(f, argnums=1, compile="never")(x, -0.3)
        np.testing.assert_allclose(value, f(x, -0.3))
        expected = (f(x, -0.3 + 1e-6) - f(x, -0.3 - 1e-6)) / 2e-6
        np.testing.assert_allclose(slope, expected, rtol=1e-6)


@pytest.mark.every(4)
@pytest.mark.parametrize("carries", [True, False])
@pytest.mark.parametrize("mode", ["never", "always"])
def test_a_nest_whose_inner_loops_only_look(carries, mode):
    """Nothing leaves the inner loops, which have another number of rounds each time."""

    def f(x, a):
        for i in range(20):
            for j in range(i):
                if a[i, j] > 5.0:
                    return x * 0.5
            if carries:
                x = x * 1.1 + 0.1
        return x

    df = value_and_grad(lambda x, a: np.sum(f(x, a)), compile=mode)
    a = np.random.default_rng(0).normal(size=(20, 20))
    other = a.copy()
    other[15, 3] = 6.0
    for given in (a, other, a):
        value, slope = df(np.ones(2), given)
        np.testing.assert_allclose(value, np.sum(f(np.ones(2), given)))
        by = 0.5 if given is other else 1.0
        rounds = (15 if given is other else 20) * carries
        np.testing.assert_allclose(slope, by * 1.1**rounds * np.ones(2))


def test_a_loop_that_breaks_and_leaves_rounds_out(monkeypatch):
    for name, least in (("MIN_ROUNDS", 2), ("MIN_CALLS", 6)):
        monkeypatch.setattr(repetition, name, least)
        monkeypatch.setattr(unrolled, name, least)
    monkeypatch.setattr(repetition, "MIN_NUMPY_CALLS", 6)

    def f(x):
        for k in range(60):
            if np.sum(np.abs(x)) > 3:
                break
            if k % 2:
                continue
            x = x * 1.1 + 0.1
        return x

    check(f, *[[k / 10 * np.ones((1, 3))] for k in range(1, 12)])
