"""Dates: each call has its own, and so has what comes of one by methods, operators and as a text.
Whatever else is done with one, the function is traced at each call."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pytest

from tapegrad import grad, jit

X = np.array([1.0, 2.0])


class Log:
    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.last: Any = None
        self.by_name: dict[str, Any] = {}


def in_a_list(log, x):
    log.rows.append((datetime.datetime.now(), np.sum(x)))
    return np.sum(x**2)


def in_a_dict(log, x):
    row = {"time": datetime.datetime.now(), "value": np.sum(x)}
    log.rows.append([row["time"], row])
    return np.sum(x**2)


def in_attributes(log, x):
    log.last = log.by_name["now"] = datetime.datetime.utcnow()
    log.rows.append([log.last])
    return np.sum(x**2)


@pytest.mark.parametrize("f", [in_a_list, in_a_dict, in_attributes])
@pytest.mark.filterwarnings("ignore:.*utcnow:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.* was traced for three calls")
def test_each_call_keeps_its_own(f):
    log = Log()
    g = grad(lambda x: f(log, x), compile="never")
    for k in range(4):
        np.testing.assert_array_equal(g(X + k), 2 * (X + k))
        assert type(log.rows[k][0]) is datetime.datetime
    times = [row[0] for row in log.rows]
    assert times == sorted({*times})
    if f is in_attributes:
        assert log.last is log.by_name["now"] is times[-1]
    else:
        assert g.cache_info().traces == 1


USES = {
    "its text": lambda now: float(f"{now:%f}"),
    "a comparison": lambda now: float(now > datetime.datetime(2020, 1, 1)),
    "a key": lambda now: {now: 2.0}[now],
    "a hash": lambda now: float(hash(now) % 100),
    "a list": lambda now: float(str([now])[-4:-2].strip(" ,)")),
}


@pytest.mark.parametrize("name", USES)
@pytest.mark.filterwarnings("ignore:.* was traced for three calls")
def test_what_is_computed_with_one(name, monkeypatch):
    g = grad(lambda x: USES[name](datetime.datetime.now()) * np.sum(x), compile="never")
    found = [g(X)[0] for _ in range(4)]
    assert g.cache_info().traces == 4
    assert len({*found}) > 1 or name in ("a comparison", "a key", "a list")


def test_numbers_that_come_of_one_are_each_calls_own():
    def f(x):
        now = datetime.datetime.now()
        took = (now - datetime.datetime(2020, 1, 1)).total_seconds()
        return np.sum(x) * (took + now.replace(year=2001).microsecond / 1e6)

    g = grad(f, compile="never")
    found = [g(X)[0] for _ in range(4)]
    assert found == sorted({*found}) or g.cache_info().traces == 1
    assert g.cache_info().traces == 1
    zero = grad(lambda x: np.sum(x) * began_before(), compile="never")
    assert all(zero(X)[0] >= 0 for _ in range(4)) and zero.cache_info().traces == 1


def began_before():
    """The later date is read last, at each call."""
    began = datetime.datetime.now()
    return (datetime.datetime.now() - began).total_seconds()


def test_those_of_pandas():
    pandas, log = pytest.importorskip("pandas"), Log()

    def f(x):
        log.last = pandas.Timestamp.now()
        log.rows.append(log.last.strftime("%Y"))
        return np.sum(x**2)

    g = grad(f, compile="never")
    found = []
    for _ in range(4):
        g(X)
        found.append(log.last)
    assert found == sorted({*found}) and log.rows == 4 * [f"{found[0]:%Y}"]
    assert g.cache_info().traces == 1


def test_texts_that_are_kept():
    log = Log()

    def f(x):
        now = datetime.datetime.now()
        log.last = f"{now:%Y} at {np.sum(x):.1f}"
        log.rows.append(now.strftime("%Y") + "-" + str(now.month))
        log.by_name["day"] = f"{now.date()}"
        return np.sum(x**2)

    g = grad(f, compile="never")
    for k in range(4):
        g(X + k)
        now = datetime.datetime.now()
        assert log.last == f"{now:%Y} at {3 + 2 * k:.1f}"
        assert log.rows == (k + 1) * [f"{now.year}-{now.month}"]
        assert log.by_name["day"] == f"{now.date()}"
        assert {*map(type, (log.last, *log.rows))} == {str}
    assert g.cache_info().traces == 1


def test_one_that_is_returned():
    g = jit(lambda x: (np.sum(x), datetime.datetime.now()), compile="never")
    assert g(X)[1] < g(X)[1]
