"""State that a function reaches without being passed it: what changes there is seen."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
import signal
import time
import types

import numpy as np
import pytest

from tapegrad import grad, value_and_grad

pytestmark = pytest.mark.filterwarnings("ignore:.*traced for three calls in a row")
X = np.array([1.0, 2.0])
SCALE = 2.0
TABLE = np.array([1.0, 3.0])


def scaled(x):
    return SCALE * np.sum(x)


def helped(x):
    return scaled(x) + np.sum(x)


def tabled(x):
    return np.sum(np.sin(TABLE)) * np.sum(x)


@pytest.fixture(params=["never", "always"])
def compile(request):
    return request.param


def check(df, *args, expected):
    """Right at the call, and at a second call that a kept variant answers."""
    for _ in range(2):
        np.testing.assert_allclose(df(*args), expected)


def test_a_global_number(compile, monkeypatch):
    df = grad(scaled, compile=compile)
    check(df, X, expected=[2.0, 2.0])
    monkeypatch.setitem(globals(), "SCALE", 5.0)
    check(df, X, expected=[5.0, 5.0])
    monkeypatch.setitem(globals(), "SCALE", 2.0)
    traces = df.cache_info().traces
    check(df, X, expected=[2.0, 2.0])
    assert df.cache_info().traces == traces  # a state seen before has its variant


def test_a_global_of_a_function_that_is_called(compile, monkeypatch):
    df = grad(helped, compile=compile)
    check(df, X, expected=[3.0, 3.0])
    monkeypatch.setitem(globals(), "SCALE", 5.0)
    check(df, X, expected=[6.0, 6.0])
    monkeypatch.setitem(globals(), "scaled", lambda x: 0.0 * np.sum(x))
    check(df, X, expected=[1.0, 1.0])


def test_an_array_that_only_numpy_saw(compile, monkeypatch):
    df = grad(tabled, compile=compile)
    check(df, X, expected=[np.sum(np.sin(TABLE))] * 2)
    monkeypatch.setitem(globals(), "TABLE", TABLE.copy())
    TABLE[0] = 7.0
    check(df, X, expected=[np.sum(np.sin(TABLE))] * 2)
    TABLE[0] = 1.5
    check(df, X, expected=[np.sum(np.sin(TABLE))] * 2)


def test_a_closed_over_number_and_a_rebound_array(compile):
    a, w = 2.0, np.array([1.0, 2.0])

    def f(x):
        return a * np.sum(w * x)

    df = grad(f, compile=compile)
    check(df, X, expected=2.0 * w)
    w[0] = 5.0  # in place: read again, no new trace
    check(df, X, expected=2.0 * w)
    assert df.cache_info().traces == 1
    w = np.array([3.0, 4.0])
    check(df, X, expected=2.0 * w)
    a = -1.0
    check(df, X, expected=-w)


def test_attributes_and_what_is_in_them(compile):
    class Model:
        def __init__(self):
            self.rate = 2.0
            self.offset = None
            self.parts = {"on": True, "weights": [1.0, 2.0]}

        def loss(self, x):
            if self.offset is not None:
                x = x * self.offset
            factor = self.parts["weights"][0] if self.parts["on"] else 0.0
            return self.rate * factor * np.sum(x)

    model = Model()
    df = grad(model.loss, compile=compile)
    check(df, X, expected=[2.0, 2.0])
    model.rate = 3.0
    check(df, X, expected=[3.0, 3.0])
    model.parts["weights"][0] = 4.0
    check(df, X, expected=[12.0, 12.0])
    model.offset = 2.0
    check(df, X, expected=[24.0, 24.0])
    model.parts["on"] = False
    check(df, X, expected=[0.0, 0.0])


def test_a_callable_object(compile):
    class Loss:
        power = 2

        def __init__(self):
            self.power = 3

        def __call__(self, x):
            return np.sum(x**self.power)

    loss = Loss()
    df = grad(loss, compile=compile)
    check(df, X, expected=3 * X**2)
    loss.power = 2
    check(df, X, expected=2 * X)


def test_attributes_of_the_class_and_slots(compile):
    class Model:
        __slots__ = ("rate",)
        scale = 2.0

        def loss(self, x):
            return self.rate * self.scale * np.sum(x)

    model = Model()
    model.rate = 1.0
    df = grad(model.loss, compile=compile)
    check(df, X, expected=[2.0, 2.0])
    Model.scale = 3.0
    check(df, X, expected=[3.0, 3.0])
    model.rate = 2.0
    check(df, X, expected=[6.0, 6.0])


def test_the_instance_of_a_decorated_method(compile):
    class Model:
        rate = 1.0

        def __init__(self, rate):
            self.rate = rate

        @functools.partial(grad, argnums=1, compile=compile)
        def slope(self, x):
            return self.rate * np.sum(x)

    model = Model(2.0)
    check(model.slope, X, expected=[2.0, 2.0])
    model.rate = 3.0
    check(model.slope, X, expected=[3.0, 3.0])


def test_partial_arguments_and_defaults(compile):
    weights = [2.0]

    def f(a, x, *, b=weights):
        return a["k"] * b[0] * np.sum(x)

    options = {"k": 3.0}
    df = grad(functools.partial(f, options), compile=compile)
    check(df, X, expected=[6.0, 6.0])
    options["k"] = 1.0
    check(df, X, expected=[2.0, 2.0])
    weights[0] = 5.0
    check(df, X, expected=[5.0, 5.0])


def test_a_constant_of_a_module_of_the_users(compile, tmp_path):
    config = types.ModuleType("config")
    config.__file__ = str(tmp_path / "config.py")
    config.scale = 2.0
    df = grad(lambda x: config.scale * np.sum(x), compile=compile)
    check(df, X, expected=[2.0, 2.0])
    config.scale = 4.0
    check(df, X, expected=[4.0, 4.0])


def test_a_derivative_inside_the_function(compile, monkeypatch):
    inner = grad(scaled)

    def f(x):
        return np.sum(inner(x) * x)

    df = grad(f, compile=compile)
    check(df, X, expected=[2.0, 2.0])
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    check(df, X, expected=[3.0, 3.0])


def test_state_that_the_function_itself_changes(compile):
    calls = 0

    def f(x):
        nonlocal calls
        calls += 1
        return calls * np.sum(x)

    df = value_and_grad(f, compile=compile)
    assert [float(df(X)[0]) for _ in range(3)] == [3.0, 6.0, 9.0]


def test_what_the_function_does_not_mention_costs_no_trace(compile):
    class Model:
        def __init__(self):
            self.rate, self.history = 2.0, []

        def loss(self, x):
            return self.rate * np.sum(x)

    model = Model()
    df = grad(model.loss, compile=compile)
    for k in range(3):
        df(X)
        model.history.append(k)
    assert df.cache_info().traces == 1


class _Watcher:
    """Something that Python calls by itself, and whose reads can't be compared."""

    def __init__(self):
        self.seen = 0

    def method(self, first, second):
        self.seen += 1
        self.at = time.perf_counter()

    def __call__(self, *args):
        self.method(*args)


@contextlib.contextmanager
def _collecting(called):
    """Python collects garbage all the time, and calls this."""
    threshold = gc.get_threshold()
    gc.callbacks.append(called)
    gc.set_threshold(10)
    try:
        yield
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(called)


@contextlib.contextmanager
def _signalling(called):
    """Ten thousand signals a second, which this handles."""
    before = signal.signal(signal.SIGALRM, called)
    signal.setitimer(signal.ITIMER_REAL, 1e-4, 1e-4)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.every(8)
@pytest.mark.parametrize("form", ["method", "object", "function", "closure"])
@pytest.mark.parametrize("source", ["collector", "signal"])
def test_what_python_runs_by_itself_costs_no_trace(source, form):
    watcher = _Watcher()

    def closure(first, second):
        return (lambda: watcher(first, second))()

    called = {
        "method": watcher.method,
        "object": watcher,
        "function": lambda *args: watcher(*args),
        "closure": closure,
    }[form]

    def f(x):
        for _ in range(100):
            x = np.sin(x) + len(list(map(list, [()] * 1000)))
        return np.sum(x)

    df = grad(f, compile="never")
    x = np.ones(2)
    with _collecting(called) if source == "collector" else _signalling(called):
        for _ in range(3):
            df(x)
    assert watcher.seen
    assert df.cache_info().traces == 1


def test_what_a_dataclass_can_do_is_not_watched():
    """Only its attributes are read, so nobody compares, hashes or shows it: one fact for each."""

    @dataclasses.dataclass(frozen=True)
    class Settings:
        rate: float
        power: int
        name: str
        offset: float = 0.0

    settings = Settings(2.0, 3, "cubic")
    df = grad(lambda x: settings.rate * np.sum(x**settings.power), compile="never")
    df(X)
    (variant,) = df.cache.all_variants()
    # The code, NumPy, its sum, the object, that it is of a class that is there and has the names
    # that it had, and two fields.
    assert variant.state.count == 9
