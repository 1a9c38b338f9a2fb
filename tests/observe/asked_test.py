"""What tells something of Python, the system or a file is asked again at each call."""

from __future__ import annotations

import copy
import dataclasses
import datetime
import decimal
import hashlib
import importlib
import importlib.metadata
import inspect
import io
import json
import logging
import os
import sys
import time
import tokenize
import unicodedata
import warnings

import numpy as np
import pytest

from tapegrad import grad, jit, value_and_grad

X = np.array([1.0, 2.0])


class Box:
    """An object with what attributes it is given."""

    def __init__(self, **attributes):
        self.__dict__.update(attributes)


@dataclasses.dataclass
class Pair:
    a: float
    b: float


def scaled():
    whole = RATE.is_integer
    return 1.0 + whole() + RATE.as_integer_ratio()[1]


def with_precision(x, digits, given):
    context = decimal.Context(prec=digits) if given else None
    with decimal.localcontext(context) as found:
        found.prec = digits
        return np.sum(x) * float(decimal.Decimal(1) / 7)


def names_in(x):
    table = {"size": len(dir())}
    table.update(NAMES)
    return np.sum(x) * (table["size"] + len(table))


def tokens():
    return len([*tokenize.tokenize(io.BytesIO(b"a + b").readline)])


TOKENS = tokens()  # it keeps compiled patterns
NAMES = {"dir": dir, "id": id, "open": open}  # which are stored, and not called
RATE = np.float64(2.5)
BOX, PAIR = Box(a=1.0), Pair(1.0, 2.0)

UNCHANGED = {
    "deepcopy": lambda x: np.sum(x) * copy.deepcopy({"a": [1.0]})["a"][0],
    "deepcopy of a scalar": lambda x: np.sum(x) * copy.deepcopy([RATE, RATE > 0])[0],
    "methods of scalars": lambda x: np.sum(x) * sum(map(np.float64.item, [RATE])) * scaled(),
    "asdict": lambda x: np.sum(x) * dataclasses.asdict(PAIR)["b"],
    "dir": lambda x: np.sum(x) * len(dir(BOX)),
    "__import__": lambda x: np.sum(x) * __import__("os.path").path.sep.count("/"),
    "decimal": lambda x: np.sum(x) * float(decimal.Decimal("1.5") * 2),
    "a precision": lambda x: np.sum(x) * decimal.getcontext().prec,
    "a precision of its own": lambda x: with_precision(x, 5, False),
    "a context of its own": lambda x: with_precision(x, 6, True),
    "builtins in a dict, and a function's names": names_in,
    "tokens": lambda x: np.sum(x) * tokens() / TOKENS,
    "a character": lambda x: np.sum(x) * len(unicodedata.name("a")),
    "a version": lambda x: np.sum(x) * len(importlib.metadata.version("numpy")),
    "recursion": lambda x: np.sum(x) * sys.getrecursionlimit(),
    "signature": lambda x: np.sum(x) * len(inspect.signature(Box).parameters),
    "folder": lambda x: np.sum(x) * len(os.getcwd()),
    "a file": lambda x: np.sum(x) * os.path.exists("/nowhere at all"),
    "json": lambda x: np.sum(x) * json.loads("[1.5]")[0] * len(json.dumps({"a": 1})),
    "a hash": lambda x: np.sum(x) * hashlib.sha256(b"a").digest()[0],
    "errors": lambda x: np.sum(x) * len(np.geterr()["over"]),
}


@pytest.mark.every(2)
@pytest.mark.parametrize("name", UNCHANGED)
def test_what_stays_the_same_needs_no_other_trace(name):
    """Ten calls are traced once."""
    f = UNCHANGED[name]
    g = grad(f)
    for _ in range(10):
        np.testing.assert_allclose(g(X), f(X) / np.sum(X))
    assert g.cache_info().traces == 1


def test_a_module_whose_name_begins_as_numpys_is_none_of_its(tmp_path, monkeypatch):
    """Its classes are followed as all others: a change of their numbers is seen, once."""
    source = """
class Model:
    rate = 2.0

    def __init__(self, kind):
        self.kind = kind

    def __call__(self, x):
        return x * self.rate
"""
    (tmp_path / "numpy_models.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    models = importlib.import_module("numpy_models")

    def f(x):
        return np.sum(models.Model("plain")(x))

    g = grad(f)
    for rate in (2.0, 3.0):
        models.Model.rate = rate
        for _ in range(4):
            np.testing.assert_array_equal(g(X), rate)
    assert g.cache_info().traces == 2


def test_another_answer_is_noticed(tmp_path, monkeypatch):
    """A limit, a folder, a file that appears, what is in one, the names in an object and in a
    module, a precision, whether it is used or only read."""
    path, box, module = tmp_path / "numbers.txt", Box(), {"a": 1.0}

    def third(x):
        with decimal.localcontext() as context:
            context.prec = 28
        return np.sum(x) * float(decimal.Decimal(1) / 3)

    limit = sys.getrecursionlimit()
    changes = [
        (lambda x: np.sum(x) * sys.getrecursionlimit(), lambda: sys.setrecursionlimit(limit + 10)),
        (lambda x: np.sum(x) * len(os.getcwd()), lambda: monkeypatch.chdir(tmp_path)),
        (lambda x: np.sum(x) * path.exists(), lambda: path.write_text("1.5")),
        (lambda x: np.sum(x) * np.loadtxt(path), lambda: path.write_text("2.5")),
        (lambda x: np.sum(x) * len(dir(box)), lambda: setattr(box, "a", 1.0)),
        (lambda x: np.sum(x) * eval("len(dir())", module), lambda: module.update(b=1.0)),
        (third, lambda: setattr(decimal.getcontext(), "prec", 3)),
        (
            lambda x: np.sum(x) * decimal.getcontext().prec,
            lambda: setattr(decimal.getcontext(), "prec", 4),
        ),
        (
            lambda x: (
                np.sum(x) * len(decimal.Context().create_decimal_from_float(0.1).as_tuple().digits)
            ),
            lambda: setattr(decimal.DefaultContext, "prec", 9),
        ),
    ]
    context, default = decimal.getcontext().copy(), decimal.DefaultContext.prec
    try:
        for f, change in changes:
            g = grad(f)
            np.testing.assert_allclose(g(X), f(X) / np.sum(X))
            change()
            np.testing.assert_allclose(g(X), f(X) / np.sum(X), rtol=1e-12)
    finally:
        sys.setrecursionlimit(limit)
        decimal.setcontext(context)
        decimal.DefaultContext.prec = default


def test_a_warning_is_given_while_the_function_is_traced():
    """As what is printed is; the tape is used again."""

    def f(x):
        warnings.warn("slow", UserWarning, stacklevel=1)
        return np.sum(x)

    g = grad(f)
    with pytest.warns(UserWarning, match="slow"):
        g(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(4):
            g(X)
    assert g.cache_info().traces == 1
    with pytest.raises(UserWarning, match="slow"):  # an error by the tests' filters
        g(X)


# ---- clocks


@pytest.mark.parametrize("compile", ["never", "always"])
@pytest.mark.parametrize("name", ["time", "perf_counter", "monotonic_ns", "process_time"])
def test_a_clock_is_read_at_each_call(name, compile, monkeypatch):
    """What it shows is an input of the tape, whose value is that of the call."""
    clock = getattr(time, name)
    f = value_and_grad(lambda x: np.sum(x) * 0 + clock(), compile=compile)
    found = [f(X)[0] for _ in range(4)]
    assert sorted(found) == found
    assert clock() >= found[-1] and found[0] < found[-1]
    assert f.cache_info().traces == 1


MISSING = None


@pytest.mark.parametrize(
    "missing",
    [
        lambda x: MISSING(x),
        lambda x: MISSING(lambda: x, 2),
        lambda x: MISSING(x, n=2),
        lambda x: MISSING(*(x, 1), **{"n": 2}),
        lambda x: MISSING(*(x,)),
    ],
)
def test_none_is_no_clock(missing):
    with pytest.raises(TypeError, match="'NoneType' object is not callable"):
        grad(missing)(2.0)


def test_a_time_that_is_only_printed_or_compared_costs_no_trace(capsys):
    """The text is that of the trace; a limit is a guard."""

    def f(x):
        start, total = time.perf_counter(), 0.0
        for k in range(4):
            if time.perf_counter() - start > 1000:
                break
            total = total + k * np.sum(x)
        print(f"took {time.perf_counter() - start:.3f} s")
        return total

    g = grad(f)
    for _ in range(5):
        np.testing.assert_allclose(g(X), 6.0)
    assert g.cache_info().traces == 1 and "took" in capsys.readouterr().out


def test_what_takes_no_traced_time_gets_a_plain_one():
    """It is traced at each call then, as plain Python would run it."""
    rng = np.random.default_rng(0)

    def f(x):
        return np.sum(x) * (len(time.ctime(time.time())) > 0) * rng.normal()

    g = grad(f)
    found = [g(X)[0] for _ in range(2)]
    rng = np.random.default_rng(0)
    np.testing.assert_allclose(found, [rng.normal() for _ in range(2)])


def took(x):
    start = datetime.datetime.now()
    total = np.sum(x)
    print(f"{datetime.datetime.now() - start}")
    return total


TOLD = {
    "a date": lambda x: (np.sum(x), print(datetime.date.today()))[0],
    "now": lambda x: (np.sum(x), print(datetime.datetime.now().isoformat()))[0],
    "a duration": took,
    "formatted": lambda x: (np.sum(x), print(f"{datetime.datetime.now():%H:%M:%S.%f}"))[0],
    "strftime": lambda x: (np.sum(x), print(time.strftime("%S", time.localtime(time.time()))))[0],
    "ctime": lambda x: (np.sum(x), print("at", time.ctime()))[0],
    "logged": lambda x: (np.sum(x), logging.info("at %s", datetime.datetime.now()))[0],
}


@pytest.mark.parametrize("name", TOLD)
def test_a_date_that_is_only_told_costs_no_trace(name, capsys):
    """The text is that of the trace."""
    g = grad(TOLD[name])
    for _ in range(5):
        np.testing.assert_allclose(g(X), 1.0)
    assert g.cache_info().traces == 1
    assert name == "logged" or capsys.readouterr().out.count("\n") == 1


@pytest.mark.filterwarnings("ignore:.*three calls in a row")
def test_a_date_that_goes_elsewhere_is_that_of_each_call(monkeypatch):
    """To the result, to a list by way of what is printed, to another `print`."""
    f = value_and_grad(lambda x: np.sum(x) * 0 + datetime.datetime.now().timestamp())
    found = [f(X)[0] for _ in range(3)]
    assert found[0] < found[1] < found[2]
    kept = []

    def noted(x):
        kept.append(x)
        return x

    def by_function(x):
        print(noted(datetime.datetime.now()))
        return np.sum(x)

    def by_name(x):
        print(datetime.datetime.now())
        return np.sum(x)

    for f in (by_function, by_name):
        kept.clear()
        g = grad(f)
        for _ in range(3):
            g(X)
        assert len(set(kept)) == 3
        monkeypatch.setitem(globals(), "print", noted)


def test_a_local_time_is_asked_again(monkeypatch):
    """It is traced anew when it is another."""
    g = grad(lambda x: np.sum(x) * time.localtime(0.0).tm_hour)
    try:
        for zone, hour in (("UTC", 0.0), ("UTC", 0.0), ("UTC-3", 3.0)):
            monkeypatch.setenv("TZ", zone)
            time.tzset()
            np.testing.assert_allclose(g(X), hour)
    finally:
        monkeypatch.undo()
        time.tzset()
    assert g.cache_info().traces == 2


def test_the_warning_says_where_it_is_read_and_what_helps():
    """The user's line, not one of the library."""
    g = grad(lambda x: np.sum(x) * hash(datetime.datetime.now()))
    line = rf"asked_test.py:{inspect.currentframe().f_lineno - 1}: .*Ask for the time outside"
    with pytest.warns(RuntimeWarning, match=line):
        for _ in range(4):
            g(X)


def test_times_that_are_kept_are_plain_numbers():
    """An object or a list gets one for each call, as in plain Python."""
    kept, box = [], Box()

    def f(x):
        kept.append(time.time())
        box.t = time.time()
        return np.sum(x)

    g = grad(f)
    for _ in range(2):
        g(X)
    assert list(map(type, kept)) == [float, float] and type(box.t) is float
    assert kept[0] < kept[1] < box.t


def test_a_clock_in_an_inner_derivative():
    """It is read once for each time that the program reads it."""
    inner = grad(lambda y: np.sum(y * y) * (time.time() > 0))
    g = grad(lambda x: np.sum(inner(x)))
    for _ in range(3):
        np.testing.assert_allclose(g(X), [2.0, 2.0])
    assert g.cache_info().traces == 1
    stamp = jit(lambda x: x * 0 + time.time())
    assert stamp(X)[0] < stamp(X)[0]


def test_who_calls_has_advice_of_its_own():
    """The call isn't followed into the files that it reads, and the warning names it."""

    def f(x):
        return np.sum(x**2) * len(inspect.stack()[0].function)

    g = grad(f, compile="never")
    with pytest.warns(RuntimeWarning, match=r"'inspect.stack' \(asked_test.py:\d+: .*outside"):
        for k in (1.0, 2.0, 3.0, 4.0):
            np.testing.assert_array_equal(g(X * k), 2 * k * X)


def test_a_copy_of_a_dtype():
    def f(x):
        return np.sum(x**2) * copy.deepcopy(np.dtype("f4")).itemsize

    g = grad(f, compile="never")
    for k in (1.0, 2.0, 3.0):
        np.testing.assert_array_equal(g(X * k), 8 * k * X)
    assert g.cache_info().traces == 1
