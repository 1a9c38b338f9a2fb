"""`gradcheck` finds wrong rules, and says where."""

from array import array

import numpy as np
import pytest

from tapegrad import defvjp, gradcheck, primitive
from tapegrad.errors import ArgumentError, GradcheckError

X = np.array([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]])


def squared(rule):
    """x**2 with this reverse rule."""
    f = primitive(lambda x: x**2)
    defvjp(f, rule)
    return f


def fails(f, *args, **options):
    with pytest.raises(GradcheckError) as caught:
        gradcheck(f, args, **options)
    return str(caught.value)


def test_correct_derivatives_pass():
    assert gradcheck(np.sin, (X,)) is True
    assert gradcheck(np.sin, X)
    assert gradcheck(lambda x: x**3, 2.0)
    assert gradcheck(lambda x, y: x @ y.T, [X, X])
    assert gradcheck(squared(lambda ct, out, x: 2 * x * ct), X)


def test_arguments_that_are_not_arrays_are_passed_on():
    def f(x, n, axis, mode, extra):
        assert (type(n), mode, extra) == (int, "a", None)
        return np.sum(x**n, axis=axis)

    # Traced, an integer is a tracer; what is static stays as it is.
    def g(x, n, axis, mode, extra):
        return f(x, int(n), int(axis), mode, extra)

    assert gradcheck(g, (X, 3, 0, "a", None))


def test_nested_arguments_and_several_results():
    def f(p, scale):
        y = p["w"] @ p["layers"][0]
        return y * scale, {"total": np.sum(y), "count": len(y), "largest": np.argmax(y)}

    assert gradcheck(f, ({"w": X, "layers": [np.ones(3)]}, 1.5))


def test_a_wrong_rule_is_named_with_its_element_and_both_values():
    message = fails(squared(lambda ct, out, x: x * ct), X)
    assert "the result at [0, 2] with respect to argument 'x' at [0, 2]" in message
    assert "is 2, and a central difference gives 4" in message
    assert "6 of 36 elements disagree" in message


def test_the_argument_and_result_that_are_wrong_are_named():
    wrong = squared(lambda ct, out, x: 3 * x * ct)
    message = fails(lambda p, x: (x, {"y": p["a"] * wrong(p["b"])}), {"a": 1.0, "b": 2.0}, X)
    assert "the result[1]['y'] with respect to argument p['b']" in message
    assert "is 6, and a central difference gives 4" in message
    assert "1 of 56 elements disagree" in message


def test_the_function_is_named():
    def model(x):
        return squared(lambda ct, out, x: 0)(x)

    assert fails(model, X).startswith("gradcheck of model: ")


def test_nan_is_wrong():
    assert "nan" in fails(squared(lambda ct, out, x: np.nan * ct), X)


def test_a_rule_that_is_not_linear_in_its_cotangent():
    """Single elements can't show it, a random cotangent does."""
    message = fails(squared(lambda ct, out, x: 2 * x * np.abs(ct)), X)
    assert "random cotangent" in message and "linear" in message


def test_results_that_change_from_run_to_run():
    rng = np.random.default_rng(0)
    noisy = primitive(lambda x: np.asarray(x) * rng.normal())
    defvjp(noisy, lambda ct, out, x: ct)
    assert "its value isn't the same in two runs" in fails(noisy, X)

    def noise(x):  # which no trace follows
        exact = np.array([array("d", [a])[0] for a in np.ravel(x)])
        return rng.normal() + 0 * exact.reshape(np.shape(x))

    noisy_rule = squared(lambda ct, out, x: 2 * x * ct * noise(x))
    assert "its gradient isn't the same in two runs" in fails(noisy_rule, X)


def test_tolerances():
    almost = squared(lambda ct, out, x: 2.002 * x * ct)
    assert gradcheck(almost, X, rtol=2e-3)
    assert "0.1%" not in fails(almost, X, rtol=1e-4, atol=1e-6)
    assert gradcheck(almost, X, rtol=0, atol=0.1)


def test_float32_is_warned_about():
    with pytest.warns(UserWarning, match=r"argument 'x' is float32.*Use float64") as caught:
        assert gradcheck(lambda x: x, X.astype(np.float32), eps=1e-2, atol=1e-2)
    assert caught[0].filename == __file__


def test_nothing_to_check():
    with pytest.raises(ArgumentError, match=r"none of the arguments is a float.*3\.0 instead of 3"):
        gradcheck(lambda x: x, 3)


def test_arguments_are_left_alone():
    x = X.copy()
    gradcheck(lambda x: np.tanh(x), x)
    np.testing.assert_array_equal(x, X)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (1, 1), ()])
def test_empty_and_small_arrays(shape):
    assert gradcheck(np.sin, np.full(shape, 0.3))


def test_constant_results():
    assert gradcheck(lambda x: (3.0, np.zeros(2), np.float64(1.0)), X)
