"""State behind other objects"""

from __future__ import annotations

import collections
import contextvars
import enum
import functools
import itertools
import operator
import os
import pathlib
import queue
import re
import subprocess
import sys
import threading
import time
import types
import typing
import weakref
from pathlib import Path

import numpy as np
import pytest

from tapegrad import checkpoint, defvjp, grad, optim, primitive

X = np.array([1.0, 2.0])
SCALE = 2.0


class Box:
    """An object with what attributes it is given."""

    def __init__(self, **attributes):
        self.__dict__.update(attributes)


def held_by_python(values):
    """Functions that return `values["k"]`, and hold the dict in different ways."""
    box = Box(values=values)
    yield values.__getitem__
    yield values.get
    yield functools.partial(operator.getitem, values)
    view = types.MappingProxyType(values)
    yield lambda key: view[key]
    chain = collections.ChainMap({}, values)
    yield lambda key: chain[key]
    user = collections.UserDict()
    user.data = values
    yield lambda key: user[key]
    reference = weakref.ref(box)
    yield lambda key, _=box: reference().values[key]
    attribute = operator.attrgetter("values")
    yield lambda key: attribute(box)[key]
    local = threading.local()
    local.values = values
    yield lambda key: local.values[key]
    variable = contextvars.ContextVar("variable", default=values)
    yield lambda key: variable.get()[key]
    vectorized = np.vectorize(lambda t: t * values["k"])
    yield lambda key: vectorized(1.0)


class Times:
    """A callable object, whose factor may change."""

    factor = 2.0

    def __call__(self, x):
        return np.sum(self.factor * x)

    def method(self, x):
        return self(x)


@pytest.mark.parametrize(
    "of",
    [
        lambda times: times,
        lambda times: times.method,
        lambda times: functools.partial(lambda t, x: t(x), times),
    ],
)
@pytest.mark.parametrize("is_root", [False, True])
def test_what_is_passed_to_a_wrapper_of_tapegrads(of, is_root, derivative):
    """a callable object, a method or a partial goes through `checkpoint`, and what it holds
    changes -> read anew"""
    times = Times()
    part = checkpoint(of(times))
    df = derivative(part if is_root else lambda x: part(x) ** 2)
    df.at(X)
    times.factor = 3.0
    df.at(X)
    times.factor = 4.0
    df.at(X)


def test_what_a_rule_holds(derivative):
    """a rule of `defvjp` is a partial, and the object that it holds changes -> read anew"""
    times = Times()
    double = primitive(lambda x: 2 * x)
    defvjp(double, functools.partial(lambda t, ct, out, x: ct * t.factor, times))
    df = derivative(lambda x: np.sum(double(x)))
    for factor in (2.0, 3.0, 4.0):
        times.factor = factor
        df.at(X, gradient=np.full(2, factor))


def test_what_a_learning_rate_holds(derivative):
    """a learning rate is a callable object, whose attributes change -> read anew"""

    class Rate:
        value = 0.1

        def __call__(self, n):
            return self.value

    rate = Rate()
    optimiser = optim.sgd(optim.warmup(rate, 1))
    state = optim.State(np.int64(1), {})
    df = derivative(lambda x: np.sum(optimiser.plain_update(np.sin(x), state, x)[0] ** 2))
    df.at(X)
    rate.value = 0.3
    df.at(X)
    updated = optimiser.update(np.ones(2), state, np.ones(2))[0]
    rate.value = 0.5
    assert np.all(optimiser.update(np.ones(2), state, np.ones(2))[0] == 0.5) and updated[0] == 0.7


@pytest.mark.parametrize("k", range(11))
def test_what_python_holds(k, derivative):
    """a number is reached through a bound method of a dict, a partial, a read-only view, a
    ChainMap, a UserDict, a weak reference, an attrgetter, a thread's local, a context variable or
    np.vectorize -> traced anew"""
    values = {"k": 2.0}
    look_up = list(held_by_python(values))[k]
    df = derivative(lambda x: np.sum(x**3) * look_up("k"))
    df.at(X)
    values["k"] = 5.0
    df.at(X)


def test_a_method_of_an_array(derivative):
    """a bound method of an array, whose contents change -> traced anew"""
    w = np.array([1.0, 2.0])
    total = w.sum
    df = derivative(lambda x: np.sum(x**3) * total())
    df.at(X)
    w[0] = 7.0
    df.at(X)


def test_a_method_of_an_iterator():
    """`step = iterator.__next__` -> each call takes its next value"""
    step = iter([1.0, 2.0, 3.0]).__next__
    df = grad(lambda x: x * step())
    assert [df(1.0) for _ in range(3)] == [1.0, 2.0, 3.0]


def test_what_nobody_can_look_into():
    """a queue is drawn from -> each call takes its next value"""
    numbers = queue.SimpleQueue()
    df = grad(lambda x: x * numbers.get())
    for k in (2.0, 5.0):
        numbers.put(k)
        assert df(1.0) == k


def test_what_cannot_change():
    """a lock, a pattern or a mark of the user's is held -> nothing is traced anew"""
    lock, pattern, mark = threading.Lock(), re.compile("a"), object()

    def f(x):
        with lock:
            return x * bool(pattern.match("a")) * (mark is not ...)

    df = grad(f)
    assert df(1.0) == df(2.0) == 1.0
    assert df.cache_info().traces == 1


class Table(dict):
    factor = 1.0

    def scaled(self):
        return self["k"] * self.factor * SCALE


class Row(list):
    def scaled(self):
        return self[0] * SCALE


class Pair(typing.NamedTuple):
    first: float
    second: float

    def scaled(self):
        return self.first * SCALE


class Word(str):
    __slots__ = ()

    def scaled(self):
        return len(self) * SCALE


class Level(enum.IntEnum):
    LOW = 1

    def scaled(self):
        return self.value * SCALE


class Mode(enum.Enum):
    FAST = "fast"

    @property
    def scale(self):
        return SCALE


def test_properties_of_enums_that_are_passed(derivative, monkeypatch):
    """a property of an enum that is an argument reads a global -> traced anew"""
    df = derivative(lambda x, mode: np.sum(x**3) * mode.scale)
    df.at(X, Mode.FAST)
    monkeypatch.setitem(globals(), "SCALE", 7.0)
    df.at(X, Mode.FAST)


@pytest.mark.parametrize("held", [Table(k=1.0), Row([1.0]), Pair(1.0, 2.0), Word("ab"), Level.LOW])
def test_methods_of_subclasses(held, derivative, monkeypatch):
    """a method of a user's subclass of dict, list, tuple, str or int reads a global -> traced
    anew"""
    df = derivative(lambda x: np.sum(x**3) * held.scaled())
    df.at(X)
    monkeypatch.setitem(globals(), "SCALE", 7.0)
    df.at(X)


def test_methods_of_containers_that_are_passed(derivative, monkeypatch):
    """a method of a named tuple that is an argument reads a global -> traced anew"""
    df = derivative(lambda p: p.scaled() ** 3)
    df.at(Pair(1.0, 2.0))
    monkeypatch.setitem(globals(), "SCALE", 7.0)
    df.at(Pair(1.0, 2.0))


def test_attributes_of_containers(derivative):
    """an attribute of a user's dict is changed -> traced anew"""
    table = Table(k=1.0)
    df = derivative(lambda x: np.sum(x**3) * table["k"] * table.factor)
    df.at(X)
    table.factor = 3.0
    df.at(X)


class Stored:
    """A descriptor that keeps its values in a dict of its own."""

    def __init__(self):
        self.values = {}

    def __get__(self, x, kind=None):
        return self.values[id(x)]

    def __set__(self, x, value):
        self.values[id(x)] = value


class Kinds:
    stored = Stored()

    def by(self, factor):
        return factor * SCALE

    @staticmethod
    def static():
        return SCALE

    @classmethod
    def of_class(cls):
        return SCALE

    @functools.singledispatchmethod
    def dispatched(self, x):
        return SCALE

    @functools.cached_property
    def cached(self):
        return SCALE

    doubled = functools.partialmethod(by, 2.0)


def test_a_descriptor(derivative):
    """a descriptor of the user's keeps the number elsewhere -> traced anew"""
    x = Kinds()
    x.stored = 2.0
    df = derivative(lambda t: t**3 * x.stored)
    df.at(2.0)
    x.stored = 5.0
    df.at(2.0)


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x.static(),
        lambda x: x.of_class(),
        lambda x: x.dispatched(1),
        lambda x: x.doubled(),
        lambda x: x.cached,
    ],
)
def test_kinds_of_methods(read, derivative, monkeypatch):
    """a static, class, partial or single-dispatch method, or a cached property, reads a global ->
    traced anew"""
    holder = [Kinds()]
    df = derivative(lambda t: t**3 * read(holder[0]))
    df.at(2.0)
    monkeypatch.setitem(globals(), "SCALE", 7.0)
    holder[0] = Kinds()
    df.at(2.0)


def test_single_dispatch(derivative):
    """an implementation for one type is replaced -> traced anew"""

    @functools.singledispatch
    def scale(kind):
        return 1.0

    df = derivative(lambda x: np.sum(x**3) * scale("a"))
    df.at(X)
    scale.register(str, lambda kind: 3.0)
    df.at(X)


def test_a_method_behind_super(derivative, monkeypatch):
    """a method that `super()` calls is replaced -> traced anew"""

    class Parent:
        def scale(self):
            return 2.0

    class Child(Parent):
        def scale(self):
            return 3.0 * super().scale()

    child = Child()
    df = derivative(lambda x: np.sum(x**3) * child.scale())
    df.at(X)
    monkeypatch.setattr(Parent, "scale", lambda self: 5.0)
    df.at(X)


@pytest.mark.parametrize(
    "read",
    [
        lambda x: getattr(x, "scale", 1.0),
        lambda x: x.scale if hasattr(x, "scale") else 1.0,
        lambda x: x.fallback(),
    ],
)
def test_an_attribute_that_appears(read, derivative):
    """an attribute that wasn't there is set; a method is hidden by an attribute -> traced anew"""

    class Model:
        def fallback(self):
            return 1.0

    model = Model()
    df = derivative(lambda x: np.sum(x**3) * read(model))
    df.at(X)
    model.scale, model.fallback = 5.0, lambda: 6.0
    df.at(X)
    del model.scale, model.fallback
    df.at(X)


class Registered(type):
    numbers: typing.ClassVar = {}

    def __getattr__(cls, name):
        return cls.numbers[name]


class Named(metaclass=Registered):
    def __class_getitem__(cls, name):
        return cls.numbers[name]


class One:
    """A class with one instance."""

    only = None

    def __new__(cls):
        if cls.only is None:
            cls.only = super().__new__(cls)
        return cls.only


def test_classes_that_answer(derivative):
    """a number is read through a metaclass, by `Class[name]`, or of a singleton -> traced anew"""
    df = derivative(lambda x: np.sum(x**3) * Named.scale * Named["other"] * One().scale)
    for k in (2.0, 5.0):
        Registered.numbers.update(scale=k, other=k + 1)
        One().scale = k
        df.at(X)


def matched(box):
    match box:
        case Box(scale=scale):
            return scale


@pytest.mark.parametrize(
    "read", [matched, lambda box: object.__getattribute__(box, "scale"), lambda box: vars(box)]
)
def test_attributes_without_a_name(read, derivative):
    """`case Class(scale=s)` and `object.__getattribute__(x, name)` -> traced anew"""
    box = Box(scale=2.0)

    def f(x):
        scale = read(box)
        return np.sum(x**3) * (scale["scale"] if isinstance(scale, dict) else scale)

    df = derivative(f)
    df.at(X)
    box.scale = 5.0
    df.at(X)


def test_a_global_that_appears(derivative, monkeypatch):
    """a global name that wasn't bound is bound -> traced anew"""

    def f(x):
        try:
            scale = NOT_YET
        except NameError:
            scale = 1.0
        return np.sum(x**3) * scale

    df = derivative(f)
    df.at(X)
    monkeypatch.setitem(globals(), "NOT_YET", 5.0)
    df.at(X)


def test_attributes_of_functions(derivative):
    """an attribute of a function is changed -> traced anew"""

    def f(x):
        return np.sum(x**3) * getattr(f, "scale", 1.0)

    df = derivative(f)
    df.at(X)
    f.scale = 5.0
    df.at(X)
    f.scale = 6.0
    df.at(X)


def test_a_module_that_the_function_imports(derivative, monkeypatch, tmp_path):
    """a constant of a module that the function itself imports is changed -> traced anew"""
    constants = types.ModuleType("constants_of_test")
    constants.__file__ = str(tmp_path / "constants_of_test.py")
    constants.scale = 2.0
    monkeypatch.setitem(sys.modules, "constants_of_test", constants)

    def f(x):
        from constants_of_test import scale

        return np.sum(x**3) * scale

    df = derivative(f)
    df.at(X)
    constants.scale = 5.0
    df.at(X)


def test_files(derivative, tmp_path):
    """the function reads a file: `open`, `np.load`, `Path.read_text` -> read again, or traced at
    each call"""
    file, text = tmp_path / "scale.npy", tmp_path / "scale.txt"

    def f(x):
        with open(text) as lines:
            scale = float(lines.read())
        return np.sum(x**3) * np.load(file) * scale * float(text.read_text())

    df = derivative(f)
    for scale in (2.0, 5.0):
        np.save(file, np.float64(scale))
        text.write_text(str(scale))
        df.at(X)


@pytest.mark.parametrize(
    "exists",
    [
        lambda name: pathlib.Path(name).exists(),
        lambda name: (pathlib.Path(name).parent / "scale").is_file(),
        lambda name: Path(name).exists(),
    ],
)
def test_paths_made_in_the_function(exists, derivative, tmp_path):
    """the function makes a path and asks what is there -> asked again at each call"""
    name = str(tmp_path / "scale")

    def f(x):
        return np.sum(x**3) * (2.0 if exists(name) else 1.0)

    df = derivative(f)
    df.at(X)
    Path(name).touch()
    df.at(X)
    Path(name).unlink()
    df.at(X)


LATE = """
import os
import sys
import numpy as np
from tapegrad import grad

def f(x):
    import pathlib
    return np.sum(x) * (2.0 if pathlib.Path.exists(pathlib.Path(PATH)) else 1.0)

PATH = sys.argv[1]
df = grad(f, compile="never")
assert "pathlib" not in sys.modules
before = df(np.ones(1))
open(PATH, "w").close()
between = df(np.ones(1))
os.unlink(PATH)
print(before, between, df(np.ones(1)))
"""


def test_a_module_that_the_function_itself_loads(tmp_path):
    """the function imports what it reads files with -> traced at each call"""
    command = [sys.executable, "-c", LATE]
    done = subprocess.run(
        [*command, str(tmp_path / "file")], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[1.] [2.] [1.]\n"


@pytest.mark.parametrize(
    "read",
    [
        lambda: os.environ["TAPEGRAD_TEST"],
        lambda: os.getenv("TAPEGRAD_TEST"),
        lambda: os.environ.get("TAPEGRAD_TEST"),
    ],
)
def test_the_environment(read, derivative, monkeypatch):
    """the function reads the environment -> traced at each call"""
    df = derivative(lambda x: np.sum(x**3) * float(read()))
    for text in ("2", "5"):
        monkeypatch.setenv("TAPEGRAD_TEST", text)
        df.at(X)


def test_the_clock():
    """the function reads the clock -> each call reads it anew, and is no other trace"""
    started = time.perf_counter()
    df = grad(lambda x: x * (time.perf_counter() - started))
    found = [df(1.0) for _ in range(100)]
    assert all(b > a for a, b in itertools.pairwise(found))
    assert df.cache_info().traces == 1


def test_code_in_texts(derivative, monkeypatch):
    """`eval`, and `globals()[name]` -> traced at each call"""
    df = derivative(lambda x: np.sum(x**3) * eval("SCALE") * globals()["SC" + "ALE"])
    df.at(X)
    monkeypatch.setitem(globals(), "SCALE", 7.0)
    df.at(X)


def test_a_method_that_keeps_traced_values():
    """traced values are appended by `push = values.append` -> each call appends its own"""
    values = []
    push = values.append

    def f(x):
        push(2 * x)
        return x

    df = grad(f, compile="never")
    for x in (1.0, 2.0, 3.0):
        assert df(x) == 1.0
    assert values == [2.0, 4.0, 6.0]
    assert {type(v) for v in values} == {float}
    assert df.cache_info().traces == 1
