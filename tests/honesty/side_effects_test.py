"""Side effects"""

from __future__ import annotations

import argparse
import ast
import bisect
import collections
import contextlib
import csv
import dataclasses
import functools
import hashlib
import heapq
import io
import itertools
import json
import logging
import os
import queue
import re
import subprocess
import sys
import time
import warnings
from array import array
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from tests.debugged import unobserved
from tests.honesty.check import refused

from tapegrad import debug, grad, jit, simplegrad, stop_gradient, value_and_grad, vjp
from tapegrad.errors import ConversionError, LeakedTracerError, UnsupportedError

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


def test_a_progress_bar(capsys):
    """the function goes round a progress bar of tqdm's, and shows its numbers there -> the bar is
    shown when the function is traced"""
    tqdm = pytest.importorskip("tqdm")
    rates = [1.0, 2.0]

    def scaled():
        for rate in rates:
            yield rate * WEIGHT[0]

    def f(x):
        y = 0.0
        with tqdm.tqdm(total=2, file=sys.stderr) as bar:
            for rate, _ in zip(tqdm.tqdm(scaled()), tqdm.trange(2, leave=False)):  # noqa: B905
                y = y + rate * np.sum(x**2)
                bar.update()
                bar.set_postfix(y=y)
                bar.set_description(f"{y:.3f}")
        return y * bar.n

    df = grad(f, compile="never")
    for k in range(6):
        rates[1], WEIGHT[0] = 2.0 + k // 2, 1.0 + k // 3
        np.testing.assert_allclose(df(X), 4 * sum(rates) * WEIGHT[0] * X)
        assert ("y=" in capsys.readouterr().err) == (k in (0, 2, 3))
    assert df.cache_info().traces == 3


WEIGHT = [1.0]


def test_the_time_that_a_progress_bar_tells():
    """the function computes with the time that a progress bar tells -> traced at each call"""
    tqdm = pytest.importorskip("tqdm")

    def f(x):
        bar = tqdm.tqdm(total=1, disable=False)
        bar.close()
        return x * (time.time() - bar.start_t < 5.0)

    df = grad(f, compile="never")
    assert df(2.0) == df(3.0) == 1.0
    assert df.cache_info().traces == 2


def test_repr(capsys):
    """`repr` of a traced value that is printed -> as untraced"""
    grad(lambda x: print(repr(x), f"{x[0] > 1!r}", [len(x)]) or np.sum(x), compile="never")(X)
    assert capsys.readouterr().out == "array([1., 2.]) np.False_ [2]\n"


def test_logging(caplog):
    """logging of traced values -> shows each call's numbers; where they go to the screen alone,
    those of the trace"""
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
    assert caplog.messages == [
        "loss 5.00 at [1. 2.] after 1",
        "loss 20.00 at [4. 2.] after 0",
        "loss 20.00 at [4. 2.] after 0",
    ]


class Kept(logging.Handler):
    def __init__(self):
        super().__init__()
        self.records = []

    def emit(self, record):
        self.records.append((record.getMessage(), record.lineno, record.funcName))


def test_logging_to_a_handler_of_the_programs(monkeypatch):
    """the same by a text, in rounds, in methods and within `with`; a handler or a level changes ->
    each call's own, with its line"""
    log, kept = logging.getLogger("model.inner"), Kept()
    log.addHandler(kept)
    monkeypatch.setattr(log, "propagate", False)

    class Model:
        def __init__(self):
            self.calls = 0

        def loss(self, x):
            self.calls += 1
            log.error("call %d: %s", self.calls, x)
            for k in range(30):
                x = x * 0.9
                log.debug("round %d: %.3f", k, x[0])
            with contextlib.suppress(KeyError):
                text = f"scaled {x[0]:.4f}"
                log.warning(text)
            if log.isEnabledFor(logging.INFO):
                log.info("%(s)s", {"s": np.sum(x)})
            return np.sum(x**2)

    plain, traced = Model(), Model()
    df = value_and_grad(traced.loss, compile="never")
    for level in (30, 30, 20, 10, 30, 10):
        log.setLevel(level)
        x = X * (level + len(kept.records))
        wanted = plain.loss(x)
        records, kept.records = kept.records, []
        assert df(x)[0] == pytest.approx(wanted, rel=1e-15)
        assert kept.records == records
        kept.records = []
    assert df.cache_info().traces == 3
    log.removeHandler(kept)
    df(X)
    assert kept.records == []


class InRun(logging.LoggerAdapter):
    def process(self, msg, kwargs):
        return f"run 1: {msg}", kwargs


class Through(logging.LoggerAdapter):
    def log(self, level, msg, *args, **kwargs):
        self.logger.log(level, msg, *args, **kwargs)


class OwnLogger(logging.Logger):
    pass


class Overriding(logging.Logger):
    def makeRecord(self, *args, **kwargs):
        return super().makeRecord(*args, **kwargs)

    def handle(self, record):
        super().handle(record)


class Calling(logging.Logger):
    def info(self, msg, *args, **kwargs):
        super().info(f"own: {msg}", *args, **kwargs)


def own_log(logger):
    plain = logger._log
    logger._log = lambda level, msg, args, **kwargs: plain(level, f"own: {msg}", args, **kwargs)
    return logger.info


WAYS_TO_LOG = {
    "an adapter's process": lambda log: InRun(log, {}).info,
    "an adapter's log": lambda log: Through(log, {}).info,
    "an adapter of an adapter": lambda log: logging.LoggerAdapter(InRun(log, {}), {}).info,
    "a partial": lambda log: functools.partial(log.log, 20),
    "by map": lambda log: lambda *args: list(map(log.info, args[:1])),
    "a level below": lambda log: lambda msg, *args: log._log(20, msg, args),
    "a record": lambda log: (
        lambda msg, *args: log.handle(log.makeRecord("own", 20, __file__, 1, msg, args, None))
    ),
    "a logger's own method": own_log,
}


class Stepping(logging.Logger):
    def step(self, k, *args):
        self.log(20, "step %s: %s", k, *args)


@pytest.mark.parametrize("how", ["info", "step"])
def test_a_logger_of_a_class_that_only_has_more(how):
    """a logger of a class that has methods of other names -> records are each call's"""
    log, kept = Stepping("own"), Kept()
    log.addHandler(kept)

    def f(x):
        log.info("at %s", x) if how == "info" else log.step(3, x)
        return x * x

    df = value_and_grad(f, compile="never")
    for k in range(4):
        f(1.0 + k)
        records, kept.records = kept.records, []
        assert df(1.0 + k)[0] == (1.0 + k) ** 2
        assert kept.records == records != []
        kept.records = []
    assert df.cache_info().traces == 1


@pytest.mark.parametrize("way", [*WAYS_TO_LOG, OwnLogger, Overriding, Calling])
def test_records_that_no_call_repeats(way):
    """records of loggers and adapters of own classes, of partials, of what stands below `log.info`
    -> as untraced, at each call; where they go, and whether there are any, is seen"""
    log, kept = (way if isinstance(way, type) else logging.Logger)("own"), Kept()
    screen = logging.StreamHandler(sys.stderr)
    told = log.info if isinstance(way, type) else WAYS_TO_LOG[way](log)

    def f(x):
        for k in range(3):
            told("at %s", x) if k else told("begun")
        return x * x

    df = value_and_grad(f, compile="never")
    log.addHandler(screen)
    for k in range(6):
        if k == 2:
            log.addHandler(kept)
        log.disabled = k in (0, 4)
        f(1.0 + k)
        records, kept.records = kept.records, []
        assert df(1.0 + k)[0] == (1.0 + k) ** 2
        assert kept.records == records
        assert len(records) == (0 if k in (0, 1, 4) else 3)
        kept.records = []


def test_records_of_warnings(monkeypatch):
    """warnings that `logging` gets -> those of each call"""
    log, kept = logging.getLogger("py.warnings"), Kept()
    monkeypatch.setattr(log, "handlers", [kept])
    monkeypatch.setattr(log, "propagate", False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        warnings.simplefilter("always", UserWarning)
        logging.captureWarnings(True)
        try:
            df = grad(lambda x: warnings.warn("far off", stacklevel=1) or x * x, compile="never")
            assert [df(x) for x in (1.0, 2.0, 3.0)] == [2.0, 4.0, 6.0]
        finally:
            logging.captureWarnings(False)
    assert len(kept.records) == 3


def test_an_adapter_that_is_switched(caplog):
    """an adapter that says by itself whether it logs -> it is asked at each call"""
    run = InRun(logging.getLogger("model"), {})
    run.isEnabledFor = lambda level: run.on
    df = grad(lambda x: run.warning("at %s", x) or x * x, compile="never")
    for x in (1.0, 2.0, 3.0, 4.0):
        run.on = x in (2.0, 4.0)
        df(x)
    assert caplog.messages == ["run 1: at 2.0", "run 1: at 4.0"]


def test_own_loggers_that_show(monkeypatch):
    """records of an own class of loggers, that go to the screen alone -> those of the trace"""
    log, text = OwnLogger("own"), io.StringIO()
    monkeypatch.setattr(sys, "stderr", text)
    log.addHandler(logging.StreamHandler(text))
    df = grad(lambda x: log.warning("at %s", x) or x * x, compile="never")
    assert [df(x) for x in (1.0, 2.0, 3.0)] == [2.0, 4.0, 6.0]
    assert df.cache_info().traces == 1
    assert text.getvalue() == "at 1.0\n"


def test_a_last_resort(monkeypatch):
    """records that no handler gets but `logging.lastResort`, one of the program's -> each call's"""
    kept = Kept()
    monkeypatch.setattr(logging, "lastResort", kept)
    log = logging.Logger("own")
    df = grad(lambda x: log.warning("at %s", x) or x * x, compile="never")
    for x in (1.0, 2.0, 3.0):
        df(x)
    assert [text for text, *_ in kept.records] == ["at 1.0", "at 2.0", "at 3.0"]


def test_a_record_that_is_read_again():
    """what a handler keeps of a record decides what is computed, or is computed with -> as untraced
    at each call"""
    log, last = logging.Logger("own"), []
    keep = logging.Handler()
    keep.emit = lambda record: last.__setitem__(slice(None), [record])
    log.addHandler(keep)

    def f(x):
        log.warning("at %s", x[0] ** 2)
        return x[1] * last[0].args[0] * (2.0 if "4" in last[0].getMessage() else 3.0)

    df = grad(f, compile="never")
    for x in ([1.0, 2.0], [2.0, 2.0], [3.0, 1.0]):
        factor = 2.0 if x[0] == 2 else 3.0
        assert df(np.array(x)).tolist() == [2 * factor * x[0] * x[1], factor * x[0] ** 2]


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


REPRS = {
    "a condition": lambda x: x[0] ** 2 if repr(x[0] > 1) == "np.True_" else x[0] ** 3,
    "a conversion": lambda x: x[0] * len(f"{x[0] > 1!r}{x[1] > x[0]!s}"),
    "a text that is filled": lambda x: x[0] * len("%r %s" % (x[0] > 1, x[1] > 1)),  # noqa: UP031
    "in a list": lambda x: x[0] * len(repr([x[0] > 1, np.argmax(x)])),
    "mapped": lambda x: x[0] * len("".join(map(repr, (x > 1).tolist()))),
    "ascii": lambda x: x[0] * len(ascii(bool(x[0] > 1))),
    "evaluated": lambda x: x[0] * eval(repr(int(x[1]))),
    "a template": lambda x: x[0] * len("{!r}".format(*[x[1] > x[0]])),
    "an array": lambda x: x[0] * ("True" in str(x > 1)) + x[1] * len(np.array_repr(x > 2)),
    "an argument": lambda x, y: x[0] * len(repr(y)),
}


@pytest.mark.every(6)
@pytest.mark.parametrize("f", REPRS.values(), ids=list(REPRS))
def test_reprs_that_decide(derivative, f):
    """`repr` of a number, or of an array of integers or booleans, decides what is computed -> as
    untraced, guarded; of an array of reals -> refused"""
    df = derivative(f)
    for x in ([2.5, 3.5], [0.5, 12.5], [3.5, 0.25], [2.5, 3.5]):
        args = (np.array(x), x[0]) if f.__code__.co_argcount == 2 else (np.array(x),)
        df.at(*args)
    with refused(ConversionError, "text", "outside"):
        grad(lambda x: np.sum(x) * len(repr(x)))(X)


MADE_NUMBERS = {
    "json": lambda x: json.loads(f"[{x}]")[0],
    "code": lambda x: eval(f"3-{x}"),
    "code that is run": lambda x: (exec(f"a = {x}", d := {}), d["a"])[1],
    "a literal": lambda x: ast.literal_eval(repr([x]))[0],
    "an array": lambda x: np.array([str(x)]).astype(float)[0],
    "bytes": lambda x: np.fromstring(f"{x} 2".encode(), sep=" ")[0],
    "a stream": lambda x: np.loadtxt(io.StringIO(str(x))),
    "mapped": lambda x: sum(map(float, f"{x} {x}".split())),
    "an iterator": lambda x: next(map(float, iter([str(x)]))),
    "rounded": lambda x: float(f"{x:.2e}"),
    "an exact number": lambda x: float(Fraction(str(x)) + Fraction(Decimal(str(x)))),
    "a piece of its digits": lambda x: int(str(x).split(".")[1]) / 1e5,
    "digits between others": lambda x: float(str(x).replace(".", ".00")),
    "hexadecimal digits": lambda x: float.fromhex(x.hex()),
    "a table": lambda x: next(csv.reader([str(x)], quoting=csv.QUOTE_NONNUMERIC))[0],
    "another process": lambda x: float(subprocess.check_output(["echo", str(x)])),
}


@pytest.mark.parametrize("made", MADE_NUMBERS.values(), ids=list(MADE_NUMBERS))
@pytest.mark.filterwarnings("ignore:string or file:DeprecationWarning")
def test_numbers_that_are_made_of_texts(made):
    """a text of an argument's real number is made a number again: by `json.loads`, `eval`,
    `np.array([str(x)]).astype(float)`, `map(float, ...)`, another process, in pieces -> its
    derivative that way is refused"""
    f = lambda x, y: x * y * made(x)  # noqa: E731
    with refused(ConversionError, "text of a traced value", "a number again", "stop_gradient"):
        grad(f, compile="never")(1.23456, 2.0)
    df = grad(f, argnums=1, compile="never")
    for x in (1.23456, 2.34567):
        assert df(x, 2.0) == f(x, 1.0)


COMPUTED_TEXTS = {
    "code": lambda x: eval(f"{x * x}+1"),
    "code that is run": lambda x: (exec(f"a = {x * x}", d := {}), d["a"])[1],
    "code that is compiled": lambda x: eval(compile(f"{x * x} + 1", "a text", "eval")),
    "code in an expression": lambda x: x * float(eval(f"{np.exp(x)}")),
    "a table": lambda x: float(next(csv.reader([f"{x * x},1"]))[0]),
}


@pytest.mark.parametrize("made", COMPUTED_TEXTS.values(), ids=list(COMPUTED_TEXTS))
def test_code_that_is_made_of_what_is_computed(made):
    """a text of what is computed goes to `eval`, `exec`, `compile` or `next(csv.reader(...))` ->
    refused"""
    with refused(ConversionError, "a text is made of a traced value"):
        grad(made)(0.7)


class Diverged(Exception):
    pass


def caught(x, kind, spec, read):
    try:
        raise kind(f"{np.sum(x**2):{spec}} is too big")
    except kind as e:
        return read(e)


def percent(x):
    try:
        raise Diverged("%.3f" % np.exp(x))  # noqa: UP031
    except Diverged as e:
        return float(e.args[0])


def argument(x):
    try:
        raise ValueError(f"{x}")
    except ValueError as e:
        return float(str(e))


def captured(x):
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        print(x * x)
    return float(shown.getvalue())


SHOWN_NUMBERS = {
    "arguments": lambda x: caught(x, Diverged, ".6f", lambda e: float(e.args[0].split()[0])),
    "an error's text": lambda x: caught(x, ValueError, ".1e", lambda e: float(str(e)[:7])),
    "code": lambda x: caught(x, Diverged, "", lambda e: eval(str(e).split()[0])),
    "by a percent sign": percent,
    "an argument": argument,
    "found": lambda x: float(re.findall(r"[-\d.e]+", f"y={x * x}")[0]),
    "split": lambda x: float(re.split("=", f"y={x * x}")[1]),
    "mapped": lambda x: sum(map(float, f"{x * x} {x}".split())),
    "captured": captured,
}


@pytest.mark.parametrize("made", SHOWN_NUMBERS.values(), ids=list(SHOWN_NUMBERS))
def test_numbers_that_are_made_of_what_is_shown(made):
    """a number is read out of the text of an error that is caught again, of what `print` has
    written to a stream in memory, or of the parts of a text -> its derivative that way is refused,
    and its value is new at each call"""
    with refused(ConversionError, "text of a traced value", "a number again", "stop_gradient"):
        grad(made)(0.7)
    df = grad(lambda x, y: y * made(x), argnums=1)
    for x in (0.7, 1.3):
        assert df(x, 2.0) == made(x)


def test_shown_beside_other_texts(capsys):
    """the text of an error that is caught again, or the parts of a text, are only shown -> shown,
    with a derivative"""

    def f(x):
        y = np.exp(x)
        print(f"{y:.3f}".split("."))
        try:
            raise Diverged(f"{y:.5f}")
        except Diverged as e:
            text = str(e)
            print(text, len(text))
        return y * float("2.5") * json.loads("[0.5]")[0] * eval("lambda a: 2 * a")(1.0)

    df = grad(f)
    for x in (0.7, 1.3):
        assert df(x) == 2.5 * np.exp(x)
    assert f"{np.exp(0.7):.5f} 7" in capsys.readouterr().out


class Slotted:
    __slots__ = ("at",)


class Records(logging.Handler):
    def emit(self, record):
        self.last = record.args[0]


def held_unseen(bounded):
    """A function that makes arrays which code in C holds, and what looks these up."""
    remembered = functools.lru_cache(2 if bounded else None)

    @remembered
    def grid(n):
        return np.linspace(0.0, 1.0, n)

    @remembered
    def objects(n):
        w = np.linspace(0.0, 1.0, n)
        x = Slotted()
        x.at = w

        def f(y, also=w):
            return w * y + also

        def rest():
            also = np.ones(n)
            while True:
                yield also

        going = rest()
        next(going)
        kinds = type("Kind", (), {"at": w})
        record = Records()
        logger = logging.Logger("own")
        logger.addHandler(record)
        logger.warning("%s", w)
        return x, [w], {"w": (w[1:], w)}, f, functools.partial(np.dot, w), kinds, going, record

    def looked_up():
        x, listed, named, f, part, kind, going, record = objects(3)
        try:
            grid(4).reshape(7)
        except ValueError as error:
            error.args = (grid(4),)
            held = error.args
        return [
            *(grid(3), x.at, *listed, *named["w"], f.__closure__[0].cell_contents, *f.__defaults__),
            *(*part.args, kind.at, next(going), record.last, *held),
        ]

    return lambda x: np.sum(grid(3) * x) + np.sum(objects(3)[0].at * x**2), looked_up


@pytest.mark.parametrize("bounded", [True, False])
def test_arrays_that_outlive_the_trace(bounded):
    """arrays that the function makes are kept by `lru_cache`, `partial`, classes, slots, tuples,
    generators that wait, and records of logs -> plain arrays, which nobody can tell from NumPy's"""
    f, looked_up = held_unseen(bounded)
    expected = [np.copy(x) for x in held_unseen(bounded)[1]()]
    df = grad(f)
    for x in (2.0, 3.0, -1.0):
        assert df(x) == 1.5 + 3 * x
    found = looked_up()
    for x, y in zip(found, expected, strict=True):
        assert type(x) is np.ndarray
        np.testing.assert_array_equal(x, y)
    assert df.cache_info().traces <= 2
    x, listed, named = found[1:4]
    assert x is listed and np.shares_memory(named, x)
    x[2] = 5.0
    assert df(1.0) == 1.5 + 2 * 5.5


def test_arrays_that_outlive_a_trace_that_fails():
    """the same where the trace ends with an error -> plain arrays"""
    grid = functools.lru_cache(lambda n: np.linspace(0.0, 1.0, n))

    def f(x):
        raise ValueError(f"{grid(3)} {x}")

    with pytest.raises(ValueError, match=r"0\.5"):
        grad(f)(1.0)
    assert type(grid(3)) is np.ndarray


def raised(x, kind=ValueError):
    raise kind(f"bad {x * x}")


class Told(Exception):
    def __init__(self, text):
        super().__init__()
        self.told = f"{text}."


class Ignoring:
    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        self.length = len(str(error))
        return True


def ignored(x):
    with Ignoring() as around:
        raised(x)
    return around.length


def matched(x):
    try:
        raised(x)
    except ValueError as e:
        match e.args:
            case ("bad 0.25",):
                return 2.0
    return 3.0


def logged(x):
    logger, text = logging.Logger("own"), io.StringIO()
    logger.addHandler(logging.StreamHandler(text))
    logger.warning("%s", x * x)
    return len(text.getvalue())


def held(x):
    errors = []
    for v in (x, 2 * x):
        try:
            raised(v)
        except ValueError as e:
            errors.append(e)
    return len(" ".join(map(str, errors)))


def of_error(read, kind=ValueError):
    def f(x):
        try:
            raised(x, kind)
        except kind as e:
            return read(e)

    return f


ERRORS_READ = {
    "its length": of_error(lambda e: len(str(e))),
    "by a percent sign": of_error(lambda e: len("%s" % e)),  # noqa: UP031
    "by format": of_error(lambda e: len("{:>5}".format(str(e)))),  # noqa: UP032
    "by an f-string": of_error(lambda e: len(f"{e!r}")),
    "its arguments": of_error(lambda e: 2.0 if e.args[0].endswith("5") else 3.0),
    "by name": of_error(lambda e: len(getattr(e, "args")[0])),  # noqa: B009
    "an attribute": of_error(lambda e: len(e.told), Told),
    "an error of the system": of_error(lambda e: len(repr({"e": e})), OSError),
    "by a with statement": ignored,
    "by match": matched,
    "in a list": held,
    "logged": logged,
}


@pytest.mark.every(3)
@pytest.mark.parametrize("compile", ["never", "always"])
@pytest.mark.parametrize("read", ERRORS_READ.values(), ids=list(ERRORS_READ))
def test_texts_of_errors_that_decide(read, compile):
    """the text of an error that is caught again, or that was logged to a text in memory, decides
    what is computed, by its length say -> traced at each call"""
    df = value_and_grad(lambda x: x**2 * read(x), compile=compile)
    for x in (0.5, 0.25, 1.375, 0.5):
        assert df(x) == (x**2 * read(x), 2 * x * read(x))


@functools.lru_cache
def letters(text):
    return len(text)


KEPT_TEXTS = {
    "a key": lambda x: {f"{x}": 2.0}.get(f"{x}", 3.0),
    "a hash": lambda x: len(hashlib.sha1(json.dumps({"x": str(x)}).encode()).hexdigest()),
    "remembered": lambda x: letters(str(x)),
    "a file's name": lambda x: 2.0 if os.path.exists(f"/nowhere/{x}.txt") else 3.0,
    "a pattern": lambda x: len(re.sub("[0-9]", "", f"{x} and")),
    "letters": lambda x: sum(a == "." for a, _ in zip(str(x), itertools.count(), strict=False)),
    "an attribute": lambda x: vars(setattr(o := argparse.Namespace(), f"a{x}", 2.0) or o)[f"a{x}"],
    "beside names": lambda x: float(f"a{x}" > "a") * np.ones(2, "f8").sum() * float("2.5"),
}


@pytest.mark.parametrize("told", KEPT_TEXTS.values(), ids=list(KEPT_TEXTS))
def test_texts_of_which_no_number_is_made(told):
    """a text of an argument's number is a key, a hash, a file's name -> guarded"""
    df = grad(lambda x: x**2 * told(x), compile="never")
    for x in (7.23456, 8.5):
        assert df(x) == 2 * x * told(x)


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


@dataclasses.dataclass
class Held:
    first: object
    second: object


class Rated:
    def __init__(self, rate):
        self.rate = rate

    def __repr__(self):
        return f"Rated({self.rate:.2f})"

    def __str__(self):
        lines = ["model"]
        lines.append(f"{self.rate:.3f}")
        return ", ".join(lines)


def summary(x):
    text = "values"
    for v in x:
        text += f" {2 * v:.2f}"
    return text


def objects_shown(x):
    pair, model = Held(2 * x[0], x**2), Rated(x[0] * x[1])
    print(pair, model, [pair, model])
    print(f"{pair} {model!r}", str(model), summary(x))
    print(json.dumps({"a": float(x[0] * 2), "b": (x * 3).tolist()}))
    text = json.dumps({"a": float(x[0] * 2)})
    print(text, np.format_float_positional(x[0] * 2), np.format_float_scientific(x[1]))
    print(json.dumps({"a": float(x[0])}))
    return pair.first * model.rate


def test_texts_of_objects(capsys):
    """a text of an object that holds traced values (a dataclass, `__repr__`), of `json.dumps` or
    of a function that returns it, is printed -> shown; if it is also used otherwise -> refused"""
    x = np.array([1.5, 0.3])
    objects_shown(x)
    expected = capsys.readouterr().out
    g = grad(objects_shown)
    found = g(x)
    assert capsys.readouterr().out == expected
    np.testing.assert_allclose(found, [4 * x[0] * x[1], 2 * x[0] ** 2])
    np.testing.assert_allclose(g(2 * x), 4 * found)
    assert g.cache_info().traces == 1
    for used in (
        lambda x: x[0] * len(str(Rated(x[0] * x[1]))),
        lambda x: x[0] * len(summary(x)),
        lambda x: x[0] * len(json.dumps([float(x[0] * 2)])),
        lambda x: min([2 * x[0], 3 * x[1]], key=lambda v: f"{v}"),
    ):
        with refused(ConversionError, "a text is made of a traced value"):
            grad(used)(x)


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


class Model:
    """Keeps values as code with classes does."""

    def __init__(self):
        self.history, self.last, self.calls, self.state = [], {}, 0, np.zeros(2)

    def loss(self, x):
        self.loudness = np.sum(x**2)
        self.history.append(2 * x)
        self.history.extend([self.loudness, "a text"])
        self.history += [x[0]]
        self.last["h"] = np.tanh(x)
        self.both = (x[0], {"n": 3, "y": x + 1})
        return self.loudness * np.sum(self.last["h"])

    def counted(self, x):
        self.calls += 1
        self.mean = self.calls * 0.5
        return np.sum(x**2) * self.calls

    def moved(self, x):
        self.state = 0.5 * self.state + x
        return np.sum(self.state**2)

    def branching(self, x):
        self.calls += 1
        if self.calls % 2:
            self.odd = np.sum(x)
            return self.odd
        self.even = np.sum(x**2)
        return self.even


@dataclasses.dataclass
class Step:
    loss: object
    x: object
    more: dict = dataclasses.field(default_factory=dict)


class Record:
    __slots__ = ("__dict__", "own", "x")

    def __init__(self, x, **others):
        self.x = x
        self.own = self
        self.__dict__.update(others)


Pair = collections.namedtuple("Pair", "loss x")


class Recorder:
    """Keeps values in objects that it makes, and in containers of all kinds."""

    def __init__(self):
        self.step, self.log, self.best = None, {"n": 0}, [0.0, 1, "a text"]
        self.losses, self.counts = collections.defaultdict(list), collections.Counter()
        self.window, self.queue = collections.deque([1, 2], maxlen=3), collections.deque()
        self.history, self.flag, self.calls = [], False, 0

    def objects(self, x):
        loss = np.sum(x**2)
        self.step = Step(loss, x)
        self.step.more["pair"] = Pair(loss, x + 1)
        self.record = Record(np.tanh(x), loss=loss, of=self)
        self.history.append(Record(loss))
        return loss

    def one_in_two_places(self, x):
        shared = [np.sum(x)]
        self.first = self.log["shared"] = shared
        shared.append(x * 2)
        self.second = self.first[1]
        return np.sum(self.second)

    def dicts(self, x):
        loss = np.sum(x**2)
        self.log.update(loss=loss, n=3)
        self.log.update({"x": x})
        self.log |= {"twice": 2 * loss}
        self.first_loss = self.log.setdefault("first", 3.0)
        self.counts["n"] = self.counts["m"] + 2
        return loss

    def by_name(self, x):
        self.losses["a"].append(np.sum(x))
        self.log.setdefault("b", []).append(x[0])
        return np.sum(x**2)

    def deques(self, x):
        self.window.append(x[0])
        self.window.extend([x[1], np.sum(x)])
        self.queue.appendleft(x)
        self.queue.extendleft((x[0], 7))
        self.queue.append("a text")
        return np.sum(x**2)

    def items(self, x):
        self.best[0] = np.sum(x)
        self.best[-1] = {"x": x}
        return np.sum(x**2)

    def toggles(self, x):
        self.flag = not self.flag
        return np.sum(x**2) if self.flag else np.sum(x)

    def pullback(self, x):
        value, pullback = vjp(self.kept_inside, x)
        return np.sum(value) + np.sum(pullback(np.ones(2))[0])

    def kept_inside(self, x):
        self.step = Step(x * 2, [x[0]])
        self.best[0] = x[1]
        return x**3

    def inserts(self, x):
        self.history.insert(0, np.sum(x))
        self.window.append(x[0])
        self.window.appendleft(x[1])
        self.window.popleft()
        return np.sum(x**2)

    def functions(self, x):
        loss = np.sum(x**2)
        self.history.append(lambda: loss)
        self.seen = self.history[-1]()
        return loss


def same(a, b):
    """Whether two values are alike: types and numbers."""
    if isinstance(a, Record):
        return type(b) is Record and a.own is a and same(a.x, b.x) and same(vars(a), vars(b))
    if isinstance(a, Step):
        return type(b) is Step and same(vars(a), vars(b))
    if isinstance(a, Recorder):
        return isinstance(b, Recorder)
    if isinstance(a, collections.deque):
        return type(b) is type(a) and a.maxlen == b.maxlen and same([*a], [*b])
    if callable(a):
        return same(a(), b())
    if isinstance(a, (list, tuple, dict)):
        items = a.items() if isinstance(a, dict) else enumerate(a)
        return type(a) is type(b) and len(a) == len(b) and all(same(x, b[k]) for k, x in items)
    return type(a) is type(b) and np.all(a == b)


@pytest.mark.parametrize("method", ["loss", "counted", "moved", "branching"])
@pytest.mark.parametrize("compile", ["never", "always"])
def test_values_kept_on_objects(method, compile):
    """a traced value is kept in an attribute or a dict, or appended to a list; an attribute is
    counted up or moves on -> each call leaves its own, once"""
    model, plain = Model(), Model()
    df = value_and_grad(getattr(model, method), compile=compile)
    for k in range(5):
        x = np.array([1.0 + k, 2.0])
        before = vars(Model()) | {n: getattr(plain, n) for n in ("calls", "state")}
        value, slope = df(x)
        assert value == pytest.approx(getattr(plain, method)(x), rel=1e-14)
        assert vars(model).keys() == vars(plain).keys()
        for name, kept in vars(plain).items():
            assert same(getattr(model, name), kept), name
        for j, step in enumerate(1e-6 * np.eye(2)):
            ends = []
            for h in (step, -step):
                other = Model()
                vars(other).update(calls=before["calls"], state=before["state"])
                ends.append(getattr(other, method)(x + h))
            assert slope[j] == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-6)
    assert df.cache_info().traces == 1 + (method == "branching")


@pytest.mark.parametrize("compile", ["never", "always"])
@pytest.mark.parametrize(
    ("method", "traces"),
    [
        *(("objects", 1), ("one_in_two_places", 1), ("dicts", 2), ("by_name", 2), ("deques", 1)),
        *(("items", 1), ("toggles", 2), ("pullback", 1), ("inserts", 5), ("functions", 5)),
    ],
)
@pytest.mark.filterwarnings("ignore:.*traced for three calls:RuntimeWarning")
def test_values_kept_in_containers_and_objects(method, traces, compile):
    """a traced value is kept in an object that is made in the function, in an item of a list, a
    deque, a defaultdict, by `update` and `setdefault`, or in two places at once -> each call leaves
    its own, once"""
    recorder, plain = Recorder(), Recorder()
    df = value_and_grad(getattr(recorder, method), compile=compile)
    for k in range(5):
        x = np.array([1.0 + k, 2.0])
        value, _ = df(x)
        assert value == pytest.approx(getattr(plain, method)(x), rel=1e-14)
        assert [*vars(recorder)] == [*vars(plain)]
        for name, kept in vars(plain).items():
            assert same(getattr(recorder, name), kept), name
    assert df.cache_info().traces == traces
    if method == "one_in_two_places":
        assert recorder.first is recorder.log["shared"]
        assert recorder.first[1] is recorder.second
    if method == "objects":
        assert recorder.record.of is recorder


def test_changes_that_give_nothing_back():
    """`heappush`, `insort`, `sort`, `insert`, `Counter.update`, `move_to_end`, `dict.pop`, a set's
    `add` or a queue's `put` changes an object from outside -> each call does it once, after its
    result"""

    def f(x, heap, counts, jobs, seen):
        heapq.heappush(heap, np.sum(x))
        seen.add("a")
        seen.add(x[0])
        seen.discard(x[0] + 1.0)
        counts.update(["calls"])
        jobs.put(x[0])
        return np.sum(x**2)

    held, plain = [([], collections.Counter(), queue.Queue(), {-1.0, 5}) for _ in range(2)]
    df = value_and_grad(lambda x: f(x, *held), compile="never")
    for k in range(4):
        x = np.array([1.0 - k, 2.0])
        value, slope = df(x)
        assert value == f(x, *plain)
        np.testing.assert_array_equal(slope, 2 * x)
        assert held[:2] == plain[:2]
        assert [*held[2].queue] == [*plain[2].queue]
        assert held[3] == plain[3]
        assert {*map(type, held[3])} <= {int, str, float, np.float64}
    assert df.cache_info().traces == 1


def test_containers_that_are_put_back():
    """a trace is refused or made again after it has changed containers -> they are as before"""
    recorder = Recorder()
    before = {name: repr(kept) for name, kept in vars(recorder).items()}

    def refusing(x):
        for method in ("objects", "dicts", "by_name", "deques", "items", "inserts"):
            getattr(recorder, method)(x)
        return array("d", x)[0]

    with refused(ConversionError, "array"):
        grad(refusing)(X)
    assert before == {name: repr(getattr(recorder, name)) for name in before}


class Counted:
    rate = 1.5


def counting(x):
    Counted.rate *= 1.5
    return np.sum(x) * float(f"{Counted.rate}")  # C code needs what had become an input


def of_a_clock(x):
    return np.sum(x) * (json.dumps(time.perf_counter()) != "")


@pytest.mark.parametrize("f", [counting, of_a_clock])
def test_a_trace_that_is_made_again(f, capsys, caplog):
    """a trace that is made again has printed, logged, and counted in an array -> once"""
    count, log = np.zeros(2), logging.getLogger("model")

    def told(x):
        print("loss", np.sum(x))
        log.warning("loss %.1f", np.sum(x))
        np.add(count, 1.0, out=count)
        count[1:] += 1.0
        return f(x)

    for k in (1, 2, 3):
        grad(told, compile="never")(X)
        assert capsys.readouterr().out == "loss 3.0\n"
        assert count.tolist() == [k, 2 * k] and len(caplog.messages) == k


def test_arrays_that_are_put_back():
    """a trace is refused after it has written to an array from outside -> that is as before"""
    held = np.array([3.0, 1.0, 2.0])

    def refusing(x):
        held[0] = 5.0
        held[1:] *= 2.0
        np.add(held, 1.0, out=held)
        held.sort()
        return array("d", x)[0]

    with refused(ConversionError, "array"):
        grad(refusing)(X)
    assert held.tolist() == [3.0, 1.0, 2.0]


def test_globals_and_cells_that_are_kept():
    """a traced value is kept in a global or a nonlocal variable, which count calls, too -> each
    call leaves its own"""
    count, last = 0, None

    def f(x):
        global LAST
        nonlocal count, last
        count += 1
        LAST, last = x * 2, np.sum(x)
        return np.sum(LAST) * count

    df = grad(f, compile="never")
    for k in range(1, 4):
        np.testing.assert_array_equal(df(k * X), [2.0 * k, 2.0 * k])
        np.testing.assert_array_equal(LAST, 2 * k * X)
        assert (type(LAST), type(last), last, count) == (np.ndarray, np.float64, 3.0 * k, k)
    assert df.cache_info().traces == 1


@pytest.mark.parametrize("derive", [grad, value_and_grad, jit, lambda f: lambda x: vjp(f, x)])
def test_once_a_call(derive):
    """whatever is derived, with branches traced again -> each call keeps its values once"""
    kept = []

    def f(x):
        kept.append(np.sum(x))
        y = x[0]
        for _ in range(30):
            y = y * 0.9 if y > 1 else y * 1.2
        return y

    df = derive(f)
    for k in range(1, 4):
        df(k * X)
        assert kept == [3.0 * j for j in range(1, k + 1)]
        assert type(kept[-1]) is np.float64


@pytest.mark.parametrize("compile", ["never", "always"])
def test_values_kept_by_an_inner_function(compile):
    """the function of an inner derivative keeps values -> what plain NumPy keeps, once"""
    model, plain = Model(), Model()

    def f(x):
        model.history.append(x[1])
        return np.sum(grad(model.loss)(x) ** 2) + model.loudness

    df = grad(f, compile=compile)
    for k in range(1, 4):
        x = k * X
        slope = df(x)
        plain.history.append(x[1])
        plain.loss(x)
        for name, kept in vars(plain).items():
            assert same(getattr(model, name), kept), name
        for j, step in enumerate(1e-5 * np.eye(2)):
            above, below = (np.sum(grad(Model().loss)(x + h) ** 2) for h in (step, -step))
            assert slope[j] == pytest.approx((above - below) / 2e-5 + 2 * x[j], rel=1e-6)
    second = grad(lambda x: np.sum(grad(model.counted)(x)), compile=compile)
    for k in range(1, 4):
        np.testing.assert_allclose(second(X), 2.0 * k)
        assert (type(model.calls), model.calls) == (int, k)


def test_errors_in_the_middle():
    """a call ends with an error -> what it kept before is kept, as in plain NumPy, and no traced
    value; where a trace is refused, nothing is"""
    kept = []

    def f(x):
        kept.append(np.sum(x))
        if x[0] > 2:
            raise ValueError("too large")
        return np.sum(x**2)

    df = grad(f, compile="never")
    for x in (X, 3 * X, 2 * X, 3 * X):
        with contextlib.suppress(ValueError):
            df(x)
    assert kept == [3.0, 9.0, 6.0, 9.0]
    assert {type(v) for v in kept} == {np.float64}

    def refusing(x):
        kept.append(np.sum(x))
        return array("d", x)[0]

    with refused(ConversionError, "array"):
        grad(refusing)(X)
    assert len(kept) == 4


def test_errors_in_an_inner_derivative():
    """an inner derivative's function keeps values and fails -> no traced value is kept"""
    kept = []

    def inner(x):
        kept.append(np.sum(x))
        if x[0] > 2:
            raise ValueError("too large")
        return np.sum(x**2)

    def outer(x):
        try:
            return np.sum(grad(inner)(x))
        except ValueError:
            return np.sum(x)

    for f in (outer, lambda x: np.sum(grad(inner)(x))):
        kept.clear()
        df = grad(f, compile="never")
        for x in (X, 3 * X, 2 * X):
            with contextlib.suppress(ValueError):
                df(x)
        assert kept == [3.0, 9.0, 6.0]
        assert {type(v) for v in kept} == {np.float64}


@pytest.mark.parametrize("compile", ["never", "always"])
def test_items_that_count_calls(compile):
    """an item of a dict is counted up, or moves on -> each call's own, nothing is traced anew"""
    held = collections.Counter(calls=0, mean=0.5)
    plain = collections.Counter(calls=0, mean=0.5)

    def f(x, held):
        held["mean"] = 0.9 * held["mean"] + 0.1 * np.sum(x)
        held["calls"] += 1
        return np.sum(x) * held["mean"] * held["calls"]

    df = value_and_grad(lambda x: f(x, held), compile=compile)
    for k in range(1, 5):
        value, _ = df(k * X)
        np.testing.assert_allclose(value, f(k * X, plain))
        np.testing.assert_allclose([*held.values()], [*plain.values()])
        assert type(held["calls"]) is int
    assert df.cache_info().traces <= 2  # the mean is Python's number at first, then NumPy's


def test_values_kept_and_files():
    """simplegrad of a function that keeps a value on an object -> refused, with the line"""
    with refused(UnsupportedError, "'loudness'", "self.loudness = np.sum(x**2)", "stands alone"):
        simplegrad(Model().loss, X)
    with refused(UnsupportedError, "'history'", "self.history.insert(0", "stands alone"):
        simplegrad(Recorder().inserts, X)


def test_an_inner_function():
    """an inner derivative's function appends to a list of the outer one -> right"""

    def outer(x):
        kept = []

        def inner(y):
            kept.append(y * 2)
            return np.sum(y**2)

        slope = grad(inner)(x)
        return np.sum(slope * kept[0])

    for x in (X, 3 * X):
        np.testing.assert_allclose(grad(outer)(x), 8 * x, rtol=1e-15)


def test_a_leak_that_nobody_can_see():
    """a traced value is kept where nobody can look, and used -> an error at its use"""
    kept = iter([]), []
    unobserved(grad(lambda x: kept[1].append(x) or np.sum(x)))(X)
    with refused(LeakedTracerError, "used after that trace had ended", "kept[1][0] + 1"):
        kept[1][0] + 1


def test_a_list_that_is_read_too():
    """numbers are appended to an outer list whose length is read -> each call counts its own"""
    calls = []

    def f(x):
        calls.append(len(calls))
        return np.sum(x**2) * len(calls)

    df = grad(f, compile="never")
    for k in range(1, 4):
        np.testing.assert_array_equal(df(X), 2 * k * X)
    assert calls == [0, 1, 2]


def test_values_returned_instead():
    """values are returned with has_aux -> right at each call"""
    df = value_and_grad(lambda x: (np.sum(x**2), {"h": np.tanh(x)}), has_aux=True, compile="never")
    for x in (X, 2 * X):
        (value, aux), slope = df(x)
        assert value == np.sum(x**2)
        np.testing.assert_array_equal(aux["h"], np.tanh(x))
        np.testing.assert_array_equal(slope, 2 * x)


def test_what_is_written_and_read_again(tmp_path):
    """a traced real value is written to a file, and what is read of it computed with -> its
    derivative that way is refused; integers, and what `stop_gradient` gives, are traced at each
    call"""

    def f(x, y):
        np.save(tmp_path / "x.npy", x)
        return np.sum(np.load(tmp_path / "x.npy") * y)

    with refused(ConversionError, "is read again", "stop_gradient"):
        grad(f)(X, X)
    np.testing.assert_array_equal(grad(f, argnums=1)(X, X), X)
    np.testing.assert_array_equal(grad(lambda x: f(stop_gradient(x), x))(X), X)


SHIFTED = {
    "pop": lambda kept: len(kept) > 2 and kept.pop(0),
    "del": lambda kept: kept.__delitem__(slice(None, -2)),
    "insert": lambda kept: (kept.insert(0, 1.0), kept.__delitem__(slice(3, None))),
    "shuffle": None,
    "reverse": lambda kept: kept.reverse(),
}


@pytest.mark.parametrize("name", SHIFTED)
@pytest.mark.parametrize("number", [True, False])
def test_items_that_are_moved(name, number):
    """an item of a list is set, and moved by `pop(0)`, `del`, `insert` or a shuffle -> each call
    leaves its own"""

    def program(kept):
        rng = np.random.default_rng(0)
        move = SHIFTED[name] or rng.shuffle

        def f(x):
            kept[-1] = x[0] if number else x * 2
            kept.append(x[1])
            move(kept)
            kept.append(None)
            return np.sum(x**2)

        return f

    expected, kept = [0.5], [0.5]
    f, df = program(expected), grad(program(kept), compile="never")
    for k in range(5):
        f(X + k)
        np.testing.assert_allclose(df(X + k), 2 * (X + k))
        assert [type(x) for x in kept] == [type(x) for x in expected]
        for one, other in zip(kept, expected, strict=True):
            np.testing.assert_array_equal(one, other)


def test_changes_of_long_containers_that_wait():
    """a list or deque of more than 100 items is changed in the middle, and by `insert` or `rotate`
    -> as plain NumPy leaves it"""

    def program(items, queue):
        def f(x):
            items[3] = x[0]
            items.pop(0)
            items.append(x[1])
            items.insert(4, 2.0)
            queue[3] = x[0]
            queue.popleft()
            queue.append(x[1])
            queue.rotate(2)
            return np.sum(x**2)

        return f

    expected, kept = [0.5] * 150, [0.5] * 150
    turned, queue = collections.deque(expected), collections.deque(kept)
    f, df = program(expected, turned), grad(program(kept, queue), compile="never")
    for k in range(4):
        f(X + k)
        np.testing.assert_allclose(df(X + k), 2 * (X + k))
        assert kept == expected
        assert queue == turned
        assert {type(x) for x in (*kept, *queue)} == {float, np.float64}


@pytest.mark.parametrize("length", [2, 150])
def test_slices_of_lists_with_changes_that_wait(length):
    """all items of a list are set, and after an `insort` some of them deleted or set -> in this
    order"""

    def program(kept, cut):
        def f(x):
            kept[:] = [item * 0.5 for item in kept]
            bisect.insort(kept, 0.75)
            kept.insert(0, x[0])
            if cut:
                del kept[2:]
            else:
                kept[:3] = [1.0]
            return np.sum(x**2)

        return f

    for cut in (True, False):
        expected, kept = [1.0] * length, [1.0] * length
        f, df = program(expected, cut), grad(program(kept, cut), compile="never")
        for k in range(4):
            f(X + k)
            np.testing.assert_allclose(df(X + k), 2 * (X + k))
            assert kept == expected


def test_values_are_told_at_each_call():
    """`debug.print`, `debug.callback`, in a loop and on one path -> at each call of the derivative,
    once, in the order of plain Python; what was told before a guard fails isn't told again"""
    seen = []

    def f(x):
        s = 0.0
        for k in range(50):
            s = np.cos(s) * x + x
            debug.callback(seen.append, (k, s))
        if s > 1.0:
            debug.callback(seen.append, "above")
        return s * s

    df = value_and_grad(f)
    for x in (0.1, 2.0, 0.2, 3.0):
        seen.clear()
        df(x)
        told = list(seen)
        seen.clear()
        f(x)
        assert told == seen and len(told) in (50, 51)
    assert df.cache_info().traces == 2


class Settings:
    """What a function reads, and a callback changes."""


def _told_to_change(way):
    """A function that reads what it has `debug.callback` change before."""
    state, items, table = Settings(), [1.0, 2.0], {"k": 1.0}
    state.k, state.word, state.seen = 1.0, "a", []
    block = np.array([1.0, 2.0])
    changes = {
        "attribute": lambda v: setattr(state, "k", state.k + v),
        "text": lambda v: setattr(state, "word", state.word + "b"),
        "entry": lambda v: table.update(k=table["k"] + v),
        "new entry": lambda v: table.update(new=table.get("new", 0.0) + v),
        "list": lambda v: items.__setitem__(0, items[0] + v),
        "length": state.seen.append,
        "array": lambda v: block.__setitem__(0, block[0] + v),
        "loop": lambda v: setattr(state, "k", state.k + v),
    }
    reads = {
        "attribute": lambda: state.k,
        "text": lambda: len(state.word),
        "entry": lambda: table["k"],
        "new entry": lambda: table.get("new", 5.0),
        "list": lambda: sum(items),
        "length": lambda: len(state.seen),
        "array": lambda: float(block.sum()),
        "loop": lambda: state.k,
    }
    change, read = changes[way], reads[way]

    def f(x):
        if way != "loop":
            debug.callback(change, x)
            return x * read()
        total = 0.0
        for _ in range(4):
            total = total + x * read()
            debug.callback(change, x)
        return total

    return f


WAYS = ["attribute", "text", "entry", "new entry", "list", "length", "array", "loop"]


@pytest.mark.parametrize("mode", ["never", "always"])
@pytest.mark.parametrize("way", WAYS)
def test_a_callback_that_changes_what_is_read_after_it(way, mode):
    """a function that `debug.callback` calls changes a number, a list or an object that the
    function reads after that -> an error at that call"""
    f = _told_to_change(way)
    df = grad(f, compile=mode)
    for x in (1.0, 2.0, 3.0):
        with pytest.raises(UnsupportedError, match=r"debug calls has changed .*read after that"):
            df(x)


def test_a_callback_that_changes_what_was_read_before_it():
    """a function that `debug.callback` calls changes what the function has read before, or sets
    itself -> followed"""
    state = Settings()
    state.step, state.rate, state.seen = 0, 0.5, []

    def f(x):
        state.rate *= 0.5
        y = x * x * state.step * state.rate
        debug.callback(lambda v: setattr(state, "step", state.step + 1), x)
        debug.callback(state.seen.append, x)
        state.count = len(state.words)
        return y

    state.words = ["a"]
    df = grad(f)
    assert [df(1.0) for _ in range(4)] == [0.0, 2 * 0.125, 4 * 0.0625, 6 * 0.03125]
    assert state.step == 4 and state.seen == [1.0] * 4 and state.count == 1

    def counts(x):  # cotangents come when all is read
        x = debug.cotangent(lambda v: setattr(state, "step", state.step + 1), x)
        return x * x * state.step

    df = grad(counts)
    assert [df(1.0) for _ in range(3)] == [8.0, 10.0, 12.0] and state.step == 7


def test_a_callback_that_reaches_what_the_call_creates():
    """a function that `debug.callback` calls reaches a list or an object that the call has
    created, or sets one of its variables -> an error"""

    def appends(x):
        seen = []
        debug.callback(seen.append, x)
        return x * len(seen)

    def fills(x):
        seen = {}
        debug.callback(lambda v: seen.update(x=v), x)
        return x * seen.get("x", 1.0)

    def has_its_own(x):
        debug.callback(Recorder().add, x)
        return x

    def sets(x):
        n = 0

        def count(v):
            nonlocal n
            n += 1

        debug.callback(count, x)
        return x * n

    class Recorder:
        def add(self, v):
            self.v = v

    class Held:
        pass

    def passes(x):
        held = Held()
        held.x = x
        debug.callback(id, held)
        return x

    for f, match in (
        (appends, "reaches an object of the class list"),
        (fills, "reaches an object of the class dict"),
        (has_its_own, "reaches an object of the class .*Recorder"),
        (sets, "sets 'n', a variable of the function"),
        (passes, "an object of the class .*Held that holds traced"),
    ):
        with pytest.raises(UnsupportedError, match=match):
            grad(f)(1.0)


@pytest.mark.parametrize("mode", ["never", "always"])
def test_a_callback_that_changes_something_before_a_guard_fails(mode):
    """a function that `debug.callback` calls changes what the function has read, and then the call
    takes another path than the last one -> an error at that call"""
    state = Settings()
    state.n = 0

    def f(x):
        n = state.n
        y = np.sin(x)
        debug.callback(lambda v: setattr(state, "n", state.n + 1), y)
        return y * n if y * 2.0 > 0.5 else x * n

    df = grad(f, compile=mode)
    df(1.0)
    assert df(1.5) == np.cos(1.5)
    with pytest.raises(UnsupportedError, match=r"changed 'n' \(2 --> 3\), and the call"):
        df(-1.0)
    assert df(0.5) == 3 * np.cos(0.5) and state.n == 4


calls = 0


def test_a_callback_that_uses_what_the_function_sets():
    """a function that `debug.callback` calls has in it the name of an attribute, a variable or an
    item of a dict that the traced function sets -> an error"""
    state, table, told, number = Settings(), {"n": 0}, [], 0
    state.n, state.other = 0, 0

    def attribute(x):
        state.n += 1
        debug.callback(lambda v: told.append(state.n), x)
        return x

    def item(x):
        table["n"] += 1
        debug.callback(lambda v: told.append(table["n"]), x)
        return x

    def variable(x):
        global calls
        calls += 1
        debug.callback(lambda v: told.append(calls), x)
        return x

    def outer(x):
        nonlocal number
        number += 1
        debug.callback(lambda v: told.append(number), x)
        return x

    for f in (attribute, item, variable, outer):
        with pytest.raises(
            UnsupportedError, match=r"is set .* that tapegrad\.debug calls has this"
        ):
            grad(f)(1.0)
    assert state.n == table["n"] == calls == number == 0

    def others(x):
        state.other += 1
        debug.callback(lambda v: told.append(state.n), x)
        return x

    df = grad(others)
    told.clear()
    assert [df(1.0), df(2.0)] == [1.0, 1.0] and told == [0, 0] and state.other == 2


@pytest.mark.parametrize("mode", ["never", "always"])
def test_variables_of_a_callback(mode):
    """a function that `debug.callback` calls reads a variable that the function sets again later
    -> it has the value from where it was passed"""
    told = []

    def f(x):
        for k in range(5):
            debug.callback(lambda v: told.append(k + v), x)  # noqa: B023
        k = 9.0
        return k * x

    df = grad(f, compile=mode)
    for x in (0.25, 0.5):
        told.clear()
        assert df(x) == 9.0 and told == [k + x for k in range(5)]


def test_an_error_of_a_callback():
    """a function that `debug.callback` calls raises -> its error reaches who has called, and
    nothing is called again"""
    seen = []

    def check(v):
        seen.append(v)
        if v > 1:
            raise KeyError(v)

    df = grad(lambda x: (debug.callback(check, x), x * x)[1])
    df(0.5)
    with pytest.raises(KeyError):
        df(2.0)
    assert seen == [0.5, 2.0] and df.cache_info().traces == 1
