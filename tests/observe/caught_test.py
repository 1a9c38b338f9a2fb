"""An error that values decide, and that the function catches, is a path like another."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tapegrad import defvjp, grad, primitive, value_and_grad, vjp
from tapegrad.errors import TapegradError

PLAIN = np.arange(3.0)


def whole(x: Any) -> Any:
    return np.floor(x).astype(int)


def read(x: Any) -> Any:
    return np.sum(x[whole(x)] * PLAIN)


def read_plain(x: Any) -> Any:
    return PLAIN[whole(x)] @ x


def written(x: Any) -> Any:
    y = np.zeros(3)
    y[whole(x)] = x
    return y @ PLAIN


def written_at_two(x: Any) -> Any:
    y = np.zeros((3, 3))
    y[whole(x), whole(x)] += x
    return np.sum(y * PLAIN)


def added_at(x: Any) -> Any:
    y = np.zeros(3)
    np.add.at(y, whole(x), x)
    return y @ PLAIN


def in_a_loop(x: Any) -> Any:
    y = np.zeros(3)
    for k in range(4):
        y[whole(x)] += x * k
    return y @ PLAIN


def taken(x: Any) -> Any:
    return np.take_along_axis(x, whole(x), 0) @ PLAIN + np.take(x, whole(x)).sum()


def powers(x: Any) -> Any:
    return np.sum(np.array([2, 3, 4]) ** (whole(x) - 4) * x)


def inner(x: Any) -> Any:
    return grad(lambda y: PLAIN[whole(y)] @ y**2)(x).sum()


def inner_raise(x: Any) -> Any:
    def positive(y: Any) -> Any:
        if y < 1:
            raise ValueError
        return y**2

    return grad(positive)(x[2])


def inner_pullback(x: Any) -> Any:
    return vjp(lambda y: PLAIN[whole(y)] @ y**2, x)[1](1.0)[0].sum()


def inner_inverse(x: Any) -> Any:
    return grad(lambda y: np.linalg.inv(np.diag(np.floor(y)))[0, 0] * y[0])(x)[0]


@primitive
def traceable(x: Any) -> Any:
    if np.min(x) < 1:
        raise ValueError("too small")
    return x**2


@primitive
def opaque(x: Any) -> Any:
    if float(x) < 1:
        raise ArithmeticError("too small")
    return float(x) ** 2


defvjp(traceable, lambda ct, out, x: 2 * x * ct)
defvjp(opaque, lambda ct, out, x: 2 * x * ct)

CALLS = np.array(
    [[0.5, 1.5, 2.5], [0.5, 1.5, 7.5], [2.5, 1.5, 1.5], [0.5, -4.5, 1.5], [2.5, 2.5, 1.5]]
)
FUNCTIONS: list[Callable[..., Any]] = [
    *(read, read_plain, written, written_at_two, added_at, in_a_loop, taken, powers),
    *(inner, inner_raise, inner_pullback, inner_inverse),
    *(lambda x: np.sum(traceable(x)), lambda x: opaque(x[0])),
]


@pytest.mark.every(12)
@pytest.mark.filterwarnings("ignore:.* was traced for three calls")
@pytest.mark.parametrize("compile", ["never", "always"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_an_error_that_is_caught_is_a_path(function: Callable[..., Any], compile: Any) -> None:
    for calls in (CALLS, CALLS[::-1], CALLS[1:]):

        def caught(x: Any) -> Any:
            try:
                return function(x)
            except (IndexError, ValueError, ArithmeticError):
                return 100 * x[2]

        derivative = value_and_grad(caught, compile=compile)
        for x in [*calls, *calls[:2]]:
            value, slope = derivative(x)
            np.testing.assert_allclose(value, caught(x))
            np.testing.assert_allclose(slope, grad(caught, compile="never")(x))


@pytest.mark.parametrize("compile", ["never", "always"])
def test_indices_out_of_bounds_cost_no_new_trace(compile: Any) -> None:
    def caught(x: Any) -> Any:
        try:
            return written(x)
        except IndexError:
            return x[0]

    derivative = grad(caught, compile=compile)
    for x in [*CALLS, *CALLS]:
        derivative(x)
    assert derivative.cache_info().traces == 2


def test_a_tuple_of_traced_indices_is_one_index_for_each_axis() -> None:
    def counted(x: Any) -> Any:
        count, sums, most = np.zeros((3, 3), int), np.zeros((3, 3)), np.ones((3, 3))
        np.add.at(count, (whole(x), [0, 1, 2]), 1)
        np.subtract.at(sums, (whole(x), whole(x)), x)
        np.add.at(sums, (slice(1, None), whole(x)[0]), x[:2])
        np.multiply.at(most, (0, whole(x)), [x[0], 2.0, x[1]])
        return np.sum((count + sums * most) * np.arange(9.0).reshape(3, 3) * x)

    derivative = value_and_grad(counted)
    for x in CALLS[[0, 2, 4]]:
        value, slope = derivative(x)
        assert value == pytest.approx(counted(x))
        steps = 1e-6 * np.eye(3)
        found = [(counted(x + h) - counted(x - h)) / 2e-6 for h in steps]
        np.testing.assert_allclose(slope, found, rtol=1e-6)


REFUSED: list[Callable[..., Any]] = [
    lambda x: np.array2string(x) + x.tobytes(),
    lambda x: np.savetxt("nowhere", x),
    lambda x: np.partition(1j * x, 1),
]


@pytest.mark.parametrize("refused", REFUSED)
def test_a_refusal_that_is_caught_stands(refused: Callable[..., Any]) -> None:
    def caught(x: Any) -> Any:
        try:
            refused(x)
        except Exception:
            return x[0]
        return x[1]

    with pytest.raises(TapegradError):
        grad(caught)(CALLS[0])


class Diverged(Exception):
    def __init__(self, x: Any, best: Any) -> None:
        super().__init__("diverged", x)
        self.best, self.tried = best, [best, {"at": x}]


def test_errors_carry_values() -> None:
    """What an error takes out of the function is what plain NumPy has there."""

    def diverging(x: Any) -> Any:
        try:
            if x[0] > 2:
                raise ValueError("too large", float(x[0]), x[0], x > 1)
        except ValueError as error:
            raise Diverged(x, x[0] * 2) from error
        return np.sum(x * x)

    derivative = grad(diverging)
    x = np.array([3.0, 1.0])
    for _ in range(2):
        with pytest.raises(Diverged) as found:
            derivative(x)
        error = found.value
        assert type(error.args[1]) is np.ndarray and type(error.best) is np.float64
        np.testing.assert_array_equal(error.args[1], x)
        np.testing.assert_array_equal(error.tried[1]["at"], x)
        assert error.best == error.tried[0] == 6.0
        assert error.__cause__ is not None and error.__cause__.args[:3] == ("too large", 3.0, 3.0)
        np.testing.assert_array_equal(error.__cause__.args[3], [True, False])
        np.testing.assert_array_equal(derivative(np.ones(2)), [2, 2])


REFUSED: list[tuple[Callable[..., Any], int]] = [  # and the paths of these calls
    (lambda x: np.linalg.inv(x[0]), 1),
    (lambda x: np.linalg.cholesky(x), 1),
    (lambda x: x + np.ones(4) * x[0], 1),
    (lambda x: np.dot(x, np.outer(PLAIN[:2], x)), 1),
    (lambda x: x.reshape(2, 2), 1),
    (lambda x: np.concatenate([x, np.outer(x, x)]), 1),
    (lambda x: np.repeat(x, whole(x)), 5),  # four that other integers decide
]


@pytest.mark.every(14)
@pytest.mark.parametrize("compile", ["never", "always"])
@pytest.mark.parametrize("at", range(len(REFUSED)))
def test_what_numpy_refuses_again_costs_no_new_trace(at: int, compile: Any) -> None:
    """Be it because of shapes or of values: the tape asks NumPy at each call."""
    function, paths = REFUSED[at]

    def caught(x: Any) -> Any:
        try:
            return np.sum(function(x)) + x[1]
        except ValueError:
            return 100 * x[2]

    derivative = value_and_grad(caught, compile=compile)
    for x in [*CALLS, *CALLS]:
        value, slope = derivative(x)
        np.testing.assert_allclose(value, caught(x))
        np.testing.assert_allclose(slope, grad(caught, compile="never")(x))
    assert derivative.cache_info().traces == paths


def test_an_error_that_cannot_be_asked_for_again_is_told_with_its_line() -> None:
    def caught(x: Any) -> Any:
        try:
            return opaque(x[0])
        except ArithmeticError:  # which only the primitive's own code knows of
            return x[1]

    derivative = grad(caught, compile="never")
    with pytest.warns(RuntimeWarning, match=r"return opaque\(x\[0\]\)"):
        for _ in range(4):
            derivative(CALLS[0])
