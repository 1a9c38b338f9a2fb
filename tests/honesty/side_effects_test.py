"""Side effects"""

from __future__ import annotations

import io
import logging

import numpy as np
import pytest
from tests.debugged import unobserved
from tests.honesty.check import refused

from tapegrad import grad, jit, value_and_grad, vjp
from tapegrad.errors import ConversionError, LeakedTracerError

X = np.array([1.0, 2.0])
LAST = None


def test_print(capsys):
    """`print` of traced values -> shows their numbers, when the function is traced"""

    def f(x):
        y = np.sum(x**2)
        print(x, y)
        print(f"{y:.3f} {x[0]:g} {x.sum()!s}")
        return y

    df = grad(f, compile="never")
    df(X)
    assert capsys.readouterr().out == "[1. 2.] 5.0\n5.000 1 3.0\n"
    df(2 * X)
    assert capsys.readouterr().out == ""


def test_repr():
    """`repr` of a traced value -> says that it is one, its type and its numbers"""
    seen = []
    grad(lambda x: seen.append(repr(x)) or np.sum(x), compile="never")(X)
    assert seen == ["Tracer(f8[2], value=[1. 2.])"]


def test_logging(caplog):
    """logging of traced values -> shows their numbers"""
    log = logging.getLogger("model")

    def f(x):
        y = np.sum(x**2)
        log.warning("loss %.2f at %s after %d", y, x, np.argmax(x))
        return y

    df = grad(f, compile="never")
    df(X)
    vjp(f, np.array([4.0, 2.0]))
    df(np.array([4.0, 2.0]))
    assert df.cache_info().traces == 1
    assert caplog.messages == ["loss 5.00 at [1. 2.] after 1", "loss 20.00 at [4. 2.] after 0"]


def test_texts_that_decide():
    """a text of a traced value is compared, or is the key of a dict -> an argument's number, or an
    integer, is guarded; what is computed of real numbers is refused"""
    rates = {"w1": 2.0, "w2": 5.0}

    def by_key(x, n):
        again = "w%d" % n  # noqa: UP031
        return x * rates[f"w{n}"] + x**2 * rates[again] if str(x) != "3.0" else x

    df = grad(by_key, compile="never")
    for x, n in [(1.0, 1), (1.0, 2), (3.0, 2), (1.0, 1)]:
        wanted = 1.0 if x == 3 else rates[f"w{n}"] * (1 + 2 * x)
        assert df(x, n) == wanted
    with refused(ConversionError, "text", 'f"{2 * x:.0f}"', "outside"):
        grad(lambda x: x * 2 if f"{2 * x:.0f}" == "2" else x)(1.0)


def info(text):
    """Not a logger's."""
    return len(text)


def collected(x):
    file = io.StringIO()
    print(2 * x, file=file)
    return x * len(file.getvalue())


def test_texts_that_seem_to_be_shown():
    """a text of what is computed goes to a function of the user's that is called `info` or `write`
    and returns something, or to an io.StringIO -> refused"""
    for f in (lambda x: x * info(f"{2 * x}"), collected):
        with refused(ConversionError, "a text is made of a traced value"):
            grad(f)(1.0)


class OutOfRange(Exception):
    def __init__(self, x):
        super().__init__(f"{x} is out of range")


def test_texts_of_the_users_errors(caplog):
    """a text in an error class of the user's, or logged by `verbose and log.info(...)` -> shown"""
    log, verbose = logging.getLogger("model"), True

    def f(x):
        y = 2 * x
        verbose and log.warning(f"y is {y}")
        if y > 3:
            raise OutOfRange(y)
        return y

    df = grad(f, compile="never")
    assert df(1.0) == 2.0
    assert caplog.messages == ["y is 2.0"]
    with pytest.raises(OutOfRange, match=r"4\.0 is out of range"):
        df(2.0)


def test_texts_with_a_name(capsys):
    """a text of a traced value gets a name, under which it is only printed or logged -> is shown;
    if it is also used otherwise -> refused"""

    def shown(x):
        y = np.sum(x**2)
        text = f"loss {y:.1f}"
        if len(x) > 1:
            print(text, "at", x)
        return y

    grad(shown, compile="never")(X)
    assert capsys.readouterr().out == "loss 5.0 at [1. 2.]\n"

    def used(x):
        y = np.sum(x**2)
        text = f"{y:.1f}"
        print(text)
        return y * len(text)

    with refused(ConversionError, "text", 'text = f"{y:.1f}"'):
        grad(used, compile="never")(X)


def test_texts_of_errors():
    """a text of a traced value in an error that is raised, or in an assert's message -> is shown"""

    def f(x):
        if x[0] > 5:
            raise ValueError(f"{x.sum():.1f} is too much")
        assert x[1] < 5, f"not {x[1]}"
        return np.sum(x)

    df = grad(f, compile="never")
    df(X)
    with pytest.raises(ValueError, match=r"9\.0 is too much"):
        df(np.array([7.0, 2.0]))
    with pytest.raises(AssertionError, match=r"not 7\.0"):
        df(np.array([2.0, 7.0]))


@pytest.mark.parametrize("derive", [grad, value_and_grad, jit])
def test_a_list_outside(derive):
    """traced values are appended to an outer list -> refused, with the value's line and the list"""
    history = []

    def f(x):
        y = np.sum(x**2)
        history.append({"loss": [y]})
        return y

    with refused(LeakedTracerError, "y = np.sum(x**2)", "'history'", "has_aux=True"):
        derive(f)(X)


def test_an_attribute():
    """a traced value is kept in an attribute, a dict or a global -> refused"""

    class Model:
        def __init__(self):
            self.cache = {}

        def loss(self, x):
            self.hidden = np.tanh(x)
            return np.sum(self.hidden)

        def cached(self, x):
            self.cache["h"] = np.tanh(x)
            return np.sum(self.cache["h"])

    def f(x):
        global LAST
        LAST = x * 2
        return np.sum(LAST)

    for function, name in ((Model().loss, "hidden"), (Model().cached, "cache"), (f, "LAST")):
        with refused(LeakedTracerError, f"'{name}'", "Return the value"):
            grad(function)(X)


def test_an_inner_function():
    """an inner derivative's function appends to a list of the outer one -> an error at its use"""

    def outer(x):
        kept = []

        def inner(y):
            kept.append(y * 2)
            return np.sum(y**2)

        slope = grad(inner)(x)
        return np.sum(slope * kept[0])

    with refused(LeakedTracerError, "used after that trace had ended", "slope * kept[0]"):
        grad(outer)(X)


def test_a_leak_that_nobody_can_see():
    """a traced value is kept where nobody can look, and used -> an error at its use"""
    kept = iter([]), []
    unobserved(grad(lambda x: kept[1].append(x) or np.sum(x)))(X)
    with refused(LeakedTracerError, "used after that trace had ended", "kept[1][0] + 1"):
        kept[1][0] + 1


def test_numbers_that_are_appended():
    """plain numbers are appended to an outer list -> traced at each call, as NumPy would run"""
    calls = []

    def f(x):
        calls.append(len(calls))
        return np.sum(x**2) * len(calls)

    df = grad(f, compile="never")
    for k in range(1, 4):
        np.testing.assert_array_equal(df(X), 2 * k * X)
    assert calls == [0, 1, 2]


def test_an_object_that_is_written_to():
    """a counter in an attribute is raised -> traced at each call, as plain NumPy would run"""

    class Model:
        steps = 0

        def loss(self, x):
            self.steps += 1
            return np.sum(x**2) / self.steps

    model = Model()
    df = grad(model.loss, compile="never")
    for k in range(1, 4):
        np.testing.assert_allclose(df(X), 2 * X / k)
    assert model.steps == 3


def test_values_returned_instead():
    """values are returned with has_aux -> right at each call"""
    df = value_and_grad(lambda x: (np.sum(x**2), {"h": np.tanh(x)}), has_aux=True, compile="never")
    for x in (X, 2 * X):
        (value, aux), slope = df(x)
        assert value == np.sum(x**2)
        np.testing.assert_array_equal(aux["h"], np.tanh(x))
        np.testing.assert_array_equal(slope, 2 * x)
