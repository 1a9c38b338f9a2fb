"""What a function reads beside its arguments and the values around it: settings of libraries, and
what hangs on arrays and tables. A change of it is noticed at the next call."""

from __future__ import annotations

import decimal
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.fft
import scipy.special

from tapegrad import grad


class Labelled(np.ndarray):
    rate = 2.0


class Doubled:
    """A backend of scipy.fft."""

    __ua_domain__ = "numpy.scipy.fft"

    @staticmethod
    def __ua_function__(method, args, kwargs):
        return 2.0 * args[0]


def warned():
    try:
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    except DeprecationWarning:
        return 2.0
    return 1.0


def attributes():
    """Ways to read a number of what hangs on an array or a table, and to change it."""
    df = pd.DataFrame({"a": [1.0, 2.0]})
    df.attrs.update(k=2.0, nested={"n": [1.0]})
    yield "attrs", lambda: df.attrs["k"], lambda: df.attrs.update(k=3.0)
    yield (
        "nested attrs",
        lambda: df.attrs["nested"]["n"][0],
        lambda: df.attrs["nested"].update(n=[5.0]),
    )
    yield "copied attrs", lambda: df.copy().attrs["k"], lambda: setattr(df, "attrs", {"k": 7.0})
    yield (
        "flags",
        lambda: 1.0 + df.flags.allows_duplicate_labels,
        lambda: setattr(df.flags, "allows_duplicate_labels", False),
    )
    series = pd.Series([1.0, 2.0])
    series.attrs["k"] = 2.0
    yield "a Series' attrs", lambda: series.attrs["k"], lambda: series.attrs.update(k=3.0)
    own, shared = np.ones(2).view(Labelled), np.ones(2).view(Labelled)
    own.rate = 4.0
    yield "an array's attribute", lambda: own.rate, lambda: setattr(own, "rate", 5.0)
    yield "a class's attribute", lambda: shared.rate, lambda: setattr(Labelled, "rate", 3.0)
    masked = np.ma.array([1.0, 2.0, 4.0], mask=[False, True, False], fill_value=3.0)
    yield "a masked value", lambda: masked.filled()[1], lambda: setattr(masked, "fill_value", 5.0)
    yield "a mask", lambda: masked.sum(), lambda: masked.__setitem__(0, np.ma.masked)


def settings():
    """Ways to read a number that a setting decides, and to change the setting."""
    table, number = pd.Series([1.23456789]), np.float64(1.5)
    spectrum = np.ones(3)
    yield "a table's text", lambda: len(str(table)), lambda: pd.set_option("display.precision", 2)
    yield (
        "get_option",
        lambda: pd.get_option("display.width"),
        lambda: pd.set_option("display.width", 40),
    )
    yield "a number's text", lambda: len(repr(number)), lambda: np.set_printoptions(legacy="1.25")
    yield (
        "SciPy's backend",
        lambda: abs(np.sum(scipy.fft.fft(spectrum))),
        lambda: scipy.fft.set_global_backend(Doubled),
    )
    yield (
        "special functions' errors",
        lambda: len(scipy.special.geterr()["singular"]),
        lambda: scipy.special.seterr(singular="raise"),
    )
    yield "a filter of warnings", warned, lambda: warnings.simplefilter("error")
    yield (
        "decimal's context",
        lambda: float(decimal.Decimal(1) / 3),
        lambda: setattr(decimal.getcontext(), "prec", 3),
    )


def check(read, change):
    df = grad(lambda x: x**2 * read(), compile="never")
    first = read()
    assert [df(1.0), df(1.0)] == [2.0 * first] * 2 and df.cache_info().traces == 1
    change()
    assert first != read()
    assert [df(1.0), df(1.0)] == [2.0 * read()] * 2


@pytest.mark.parametrize(("read", "change"), [pytest.param(r, c, id=n) for n, r, c in attributes()])
def test_what_hangs_on_an_array_or_a_table(read, change):
    """Tables have `attrs` and flags; an array of a class has attributes, a masked one a mask."""
    check(read, change)


@pytest.mark.parametrize(("read", "change"), [pytest.param(r, c, id=n) for n, r, c in settings()])
def test_settings_that_a_library_reads(read, change):
    """They are compared as they were when the function was traced."""
    errors, context = scipy.special.geterr(), decimal.getcontext().copy()
    options, printed = ("display.precision", "display.width"), np.get_printoptions()
    before = [pd.get_option(name) for name in options]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            check(read, change)
        finally:
            scipy.fft.set_global_backend("scipy")
            scipy.special.seterr(**errors)
            decimal.setcontext(context)
            np.set_printoptions(**printed)
            for name, value in zip(options, before, strict=True):
                pd.set_option(name, value)


def test_how_numpy_prints_is_set():
    """For a while, or as it stays: the texts that are made then follow from that."""
    third = np.array([1 / 3])

    def for_a_while(x):
        with np.printoptions(precision=2):
            digits = len(str(third))
        return digits * np.sum(x)

    def for_good(x):
        np.set_printoptions(precision=3)
        return len(str(third)) * np.sum(x)

    with np.printoptions():
        for f, digits, most in ((for_a_while, 6.0, 1), (for_good, 7.0, 2)):
            g = grad(f, compile="never")
            for _ in range(4):
                np.testing.assert_array_equal(g(np.ones(2)), [digits, digits])
            assert g.cache_info().traces <= most
        np.set_printoptions(precision=5)
        np.testing.assert_array_equal(g(np.ones(2)), [7.0, 7.0])
        assert np.get_printoptions()["precision"] == 3
