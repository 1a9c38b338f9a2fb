"""What an installed package does with plain arguments is one step where it can't be followed: each
call of the derivative does it anew, and right values come of it whatever changes in between."""

from __future__ import annotations

import os
import sys
import types

import numpy as np
import pytest

from tapegrad import grad
from tapegrad.observe.objects.purity import is_extensions

X = np.array([1.0, 2.0])
# Where something changes before each call, each call is traced.
pytestmark = pytest.mark.filterwarnings("ignore:grad_.* was traced for three calls")
PACKAGE = """
import datetime
import sys
import threading
import uuid

import numpy as np

settings = {"factor": 1.0}
count = 0

def number():
    global count
    uuid.uuid4()
    count += 1
    return float(count)

def scaled(rate):
    uuid.uuid4()
    if rate < 0:
        raise ValueError("a negative rate")
    return rate * settings["factor"]

def long(n):
    return sum(one(k) for k in range(n)) * settings["factor"]

def one(k):
    return 1.0

class Chosen:  # a descriptor that gives a method, as scikit-learn's `available_if` does
    def __init__(self, function):
        self.function = function

    def __get__(self, instance, owner=None):
        return self.function.__get__(instance)

class Mean:
    def __init__(self, rate):
        self.name = uuid.uuid4().hex
        self.rate = rate
        self.calls = 0

    def fit(self, data):
        self.calls += 1
        self.mean_ = self.rate * settings["factor"] * data.mean(axis=0)
        return self

    @property
    def total(self):
        return self.mean_.sum()

    @Chosen
    def predicted(self, data):
        vars(threading.local())
        return data @ self.mean_ * settings["factor"]

    def again(self, data):
        return self.fit(data).mean_

    def __add__(self, other):
        return Mean(self.rate + other)

    def __gt__(self, other):
        return Mean(self.rate * other)

    def __neg__(self):
        return Mean(-self.rate)

    def __getitem__(self, k):
        return self.mean_[k]

class Holder:
    def __init__(self, held):
        self.name = uuid.uuid4().hex
        self.held = held

    def change(self):
        vars(threading.local())
        if isinstance(self.held, Mean):
            self.held.calls += 1
        elif isinstance(self.held, list):
            self.held.append(settings["factor"])
        else:
            self.held += settings["factor"]

def masked(data):
    vars(threading.local())
    mask = np.zeros(len(data), dtype=bool)
    if type(mask) is not np.ndarray:
        raise TypeError("no array")
    return float((data * ~mask).sum())

class Dated:
    def __init__(self, x):
        self.x, self.made = x, datetime.datetime.now()

    def square(self):
        return (self.x ** 2).sum()

    def year(self):
        return float(self.made.year)

class Expression:  # nothing can refer to it weakly
    __slots__ = ("k", "told")

    def __init__(self, k):
        self.k, self.told = k * settings["factor"], None

    def __float__(self):
        vars(threading.local())
        return float(self.k)

expressions = {}

def expression(k):
    vars(threading.local())
    key = k, settings["factor"]
    return expressions.setdefault(key, Expression(k))

def function_of(text):
    vars(threading.local())
    names = {"c": settings["factor"], "np": np}
    exec(f"def made(x): return c * np.sum({text})", names)
    return names["made"]

def class_of(k):
    vars(threading.local())
    class Law:
        rate = k
        def total(self, data):
            return self.rate * data.sum() * settings["factor"]
    return Law

class Remembering:
    def __init__(self):
        self.last, self.known = None, {}

    def computed(self, k):
        vars(threading.local())
        self.known[k] = self.last = Expression(k)
        self.last.told = 1
        return self.last

def found_by(way, name):
    vars(threading.local())
    frame = sys._getframe(1)
    if way == "get":
        return frame.f_locals.get(name)
    if way == "copy":
        return frame.f_locals.copy()[name]
    if way == "in":
        return frame.f_locals[name] if name in frame.f_locals else 1.0
    if way == "dict":
        return dict(frame.f_locals)[name]
    if way == "emptied":
        frame.f_locals.clear()
        return sys._getframe(1).f_locals[name]
    if way == "items":
        return next(x for key, x in frame.f_locals.items() if key == name)
    return frame.f_globals[name]

def in_callers(name):
    vars(threading.local())
    return sys._getframe(1).f_locals[name]

class Drawing:
    def __init__(self):
        self.rng = np.random.default_rng(0)

    def drawn(self, data):
        vars(threading.local())
        return self.rng.random() * data.sum()

the_kept = Mean(1.0)

def kept():
    vars(threading.local())
    return the_kept

class Graph:
    def __init__(self, is_strange):
        self.nodes = {k: {"name": k} for k in range(2)}
        self.is_strange = is_strange

    def __iter__(self):
        return iter(self.nodes)

    def __getitem__(self, k):
        if self.is_strange:
            vars(threading.local())
        return self.nodes[k]

    def node(self, k):
        return self[k]

    @property
    def first(self):
        return self.nodes[0]

    def names(self, k):
        if self.is_strange:
            vars(threading.local())
        return iter(self.nodes[k])

class Sky:
    def __init__(self):
        self.cache = {}

    def __getattr__(self, name):
        if name == "near":
            vars(threading.local())
            self.cache[name] = 1.0
            return 2.0
        if name == "far":
            self.cache[name] = masked(np.ones(2))
            return 3.0
        raise AttributeError(name)

class Strange:
    # Objects that compare themselves to arrays.

    def __eq__(self, other):
        return np.ones(2)

    __hash__ = None

class Solver:
    def __init__(self):
        self.state = (1.0, Strange(), lambda: None)

    def solve(self):
        vars(threading.local())
        before = self.state
        self.state = (1.0, Strange(), lambda: None)
        return before[0] + 1.0 * settings["factor"]
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An installed package that can't be followed: it draws random names."""
    folder = tmp_path / "site-packages" / "package_with_names"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(str(folder.parent))
    import package_with_names

    yield package_with_names
    del sys.modules["package_with_names"]


def check(f, change, compile, most=None, count=6):
    """The derivative of `f`, which is `c * sum(x**2)`, while `change` changes something before each
    call. It isn't traced more than `most` times."""
    g = grad(f, compile=compile)
    for k in range(count):
        change(k)
        found = g(X)
        change(k)
        assert np.allclose(found, 2 * f(X) / np.sum(X**2) * X), k
    if most is not None:
        assert g.cache_info().traces <= most


MODES = pytest.mark.parametrize("compile", ["always", "never"])


def test_a_method_that_a_descriptor_gives(package):
    """It is of the model that this call has made: one tape, and the settings of each call count."""

    def loss(x):
        model = package.Mean(2.0).fit(np.ones((2, 2)))
        return np.sum(model.predicted(np.eye(2)) * x**2)

    dloss = grad(loss, compile="never")
    for _ in range(4):
        np.testing.assert_array_equal(dloss(X), 4 * X)
    assert dloss.cache_info().traces == 2
    package.settings["factor"] = 3.0
    np.testing.assert_array_equal(dloss(X), 36 * X)


@MODES
def test_a_model_that_is_fitted_inside_is_fitted_at_each_call(package, compile):
    data = np.arange(6.0).reshape(3, 2)

    def f(x):
        model = package.Mean(2.0).fit(data)
        return (model.total + model[0] + model.mean_[1]) * np.sum(x**2)

    check(f, lambda k: None, compile, most=2)

    def change(k):
        data[:] = k + 1.0
        package.settings["factor"] = 1.0 + k // 2

    check(f, change, compile)


@MODES
def test_a_packages_settings_are_seen(package, compile):
    def f(x):
        return package.scaled(2.0) * np.sum(x**2)

    check(f, lambda k: package.settings.update(factor=1.0 + k // 3), compile, most=3)


@MODES
def test_attributes_that_are_set_are_set_at_each_call(package, compile):
    rates = [1.0]

    def f(x):
        model = package.Mean(5.0)
        model.rate = rates[0]
        return model.fit(np.ones((2, 2))).total * np.sum(x**2)

    check(f, lambda k: rates.__setitem__(0, 1.0 + k // 3), compile, most=3)


OPERATIONS = {
    "operator": lambda x: x + 2.0,
    "comparison": lambda x: x > 3.0,
    "reflected comparison": lambda x: 3.0 < x,  # noqa: SIM300
    "sign": lambda x: -x,
}


@MODES
@pytest.mark.parametrize("name", OPERATIONS)
def test_operators_of_its_objects_are_applied_at_each_call(package, compile, name):
    def f(x):
        model = OPERATIONS[name](package.Mean(1.0))
        return model.fit(np.ones((2, 2))).total * np.sum(x**2)

    check(f, lambda k: package.settings.update(factor=1.0 + k // 3), compile, most=3)


@MODES
def test_each_path_has_objects_of_its_own(package, compile):
    """A branch that the variant tried first doesn't take leaves no traces in an object."""

    def f(x):
        model = package.Mean(1.0)
        model.fit(np.ones((2, 2)))
        if x[0] > 0:
            model.fit(np.full((2, 2), 3.0))
        return model.calls * model.total * np.sum(x**2)

    g = grad(f, compile=compile)
    for k in range(6):
        x = X * (-1) ** k
        assert np.allclose(g(x), 2 * f(x) / np.sum(x**2) * x)
    assert g.cache_info().traces <= 4


@MODES
def test_what_has_a_state_is_called_as_often_as_in_plain_python(package, compile):
    def f(x):
        return package.number() * np.sum(x**2)

    g = grad(f, compile=compile)
    found = [g(X)[0] for _ in range(5)]
    assert found == [2.0, 4.0, 6.0, 8.0, 10.0]


@MODES
def test_an_object_of_the_outside_that_changes_does_so_once_a_call(package, compile):
    model = package.Mean(1.0)

    def f(x):
        model.again(np.ones((2, 2)))
        return model.calls * np.sum(x**2)

    g = grad(f, compile=compile)
    assert [g(X)[0] for _ in range(5)] == [2.0, 4.0, 6.0, 8.0, 10.0]


@MODES
@pytest.mark.parametrize("made_inside", [False, True])
@pytest.mark.parametrize("kind", ["object", "list", "array"])
def test_what_an_object_holds_and_changes(package, compile, kind, made_inside):
    """An object that is made inside changes what it was passed, the program's own too."""

    def made():
        return {"object": package.Mean(1.0), "list": [], "array": np.zeros(1)}[kind]

    outside = made()

    def f(x):
        held = made() if made_inside else outside
        holder = package.Holder(held)
        holder.change()
        holder.change()
        c = held.calls if kind == "object" else sum(held)
        return c * np.sum(x**2)

    g, total = grad(f, compile=compile), 0.0
    for k in range(6):
        package.settings["factor"] = 1.0 if kind == "object" else 1.0 + k // 3
        step = 2 * package.settings["factor"]
        total = step if made_inside else total + step
        assert g(X)[0] == 2 * total, k


@MODES
def test_an_object_that_is_returned_each_time_changes_once_a_call(package, compile):
    """A function of the package's returns an object that it keeps, which the program changes."""

    def f(x):
        model = package.kept()
        model.again(np.ones((2, 2)))
        return model.calls * np.sum(x**2)

    g = grad(f, compile=compile)
    assert [g(X)[0] for _ in range(6)] == [2.0, 4.0, 6.0, 8.0, 10.0, 12.0]


@MODES
def test_an_object_that_is_returned_each_time_and_only_read(package, compile):
    package.kept().fit(np.ones((2, 2)))

    def f(x):
        return package.kept().total * np.sum(x**2)

    def change(k):
        package.kept().mean_ = np.full(2, 1.0 + k // 3)

    check(f, change, compile, most=4)


@MODES
def test_an_object_of_the_outside_that_is_only_read(package, compile):
    model = package.Mean(1.0)
    model.fit(np.ones((2, 2)))

    def f(x):
        package.scaled(1.0)
        return (model + 1.0).fit(np.ones((2, 2))).total * model.total * np.sum(x**2)

    check(f, lambda k: setattr(model, "rate", 1.0 + k // 3), compile)


@MODES
def test_a_long_computation_is_done_at_each_call(package, compile):
    def f(x):
        return package.long(3000) * np.sum(x**2)

    check(f, lambda k: package.settings.update(factor=1.0 + k // 3), compile, most=3)


def test_its_errors_are_the_programs(package):
    rate = [-1.0]

    def f(x):
        try:
            return package.scaled(rate[0]) * np.sum(x**2)
        except ValueError:
            return 5.0 * np.sum(x**2)

    check(f, lambda k: rate.__setitem__(0, k // 3 - 0.5), "never")
    with pytest.raises(ValueError, match="a negative rate"):
        grad(lambda x: package.scaled(-1.0) * x)(1.0)


def test_a_traced_argument_is_followed(package):
    def f(x):
        return package.Mean(x[0]).fit(np.ones((2, 2))).total * x[1]

    assert np.allclose(grad(f)(X), [4.0, 2.0])


def test_a_date_that_a_package_only_keeps(package):
    """has nothing traced anew; where something is done with it, each call is traced"""
    g = grad(lambda x: package.Dated(x).square(), compile="never")
    for k in range(4):
        assert np.array_equal(g(X + k), 2 * (X + k))
    assert g.cache_info().traces == 1
    dated = grad(lambda x: package.Dated(x).square() * package.Dated(x).year(), compile="never")
    for _ in range(3):
        assert np.array_equal(dated(X), 2 * X * package.Dated(X).year())
    assert dated.cache_info().traces == 3


def test_one_that_reads_what_cant_be_compared_and_fails_on_what_stands_for_arrays(package):
    data = np.array([1.0, 2.0])
    check(lambda x: package.masked(data) * np.sum(x**2), lambda k: None, "never", most=2)


MADE = {
    "a number of what can't be referred to weakly": lambda p: float(p.expression(2.0)),
    "an array": lambda p: np.asarray([float(p.expression(2.0)), 3.0]).sum(),
    "a sum": lambda p: sum(p.Mean(2.0).fit(np.ones((2, 2)))),
    "an object of a class that a function has made": lambda p: p.class_of(2.0)().total(np.ones(3)),
}


@MODES
@pytest.mark.parametrize("name", MADE)
def test_what_is_done_with_its_objects_is_done_anew(package, compile, name):
    """A function of Python's or NumPy's goes on to methods of the package's."""

    def f(x):
        return MADE[name](package) * np.sum(x**2)

    check(f, lambda k: None, compile, most=3)
    check(f, lambda k: package.settings.update(factor=1.0 + k // 3), compile)


@MODES
def test_a_function_that_it_makes_of_a_text(package, compile):
    """It is followed with traced values, and what it reads is noticed."""

    def f(x):
        return package.function_of("x**2")(x)

    check(f, lambda k: package.settings.update(factor=1.0 + k // 3), compile, most=4)


@MODES
def test_an_object_of_the_outside_that_remembers(package, compile):
    """What wasn't there may be filled in, and an equal object take the place of another."""
    memory = package.Remembering()

    def f(x):
        return memory.computed(2.0).k * np.sum(x**2)

    check(f, lambda k: None, compile, most=3)
    check(f, lambda k: package.settings.update(factor=1.0 + k // 3), compile)


def test_a_variable_of_the_programs_that_it_looks_for(package):
    """It is there when a later call calls the function; a global one is that of the call."""
    rates = [2.0]

    def f(x):
        rate = rates[0]
        return package.in_callers("rate") * rate * np.sum(x**2)

    check(f, lambda k: None, "never", most=2)
    check(f, lambda k: rates.__setitem__(0, 1.0 + k // 3), "never", most=3)


@pytest.mark.parametrize("way", ["get", "in", "global"])
def test_ways_to_look_for_a_variable_of_the_programs(package, way, monkeypatch):
    """What is looked at is compared, and other variables don't matter."""
    rates = [2.0]

    def f(x):
        rate, unused = rates[0], [np.sum(x)]
        found = package.found_by(way, "RATE" if way == "global" else "rate")
        return found * len(unused) * rate * np.sum(x**2)

    def change(k):
        rates[0] = 1.0 + k // 3
        monkeypatch.setitem(globals(), "RATE", 1.0 + k // 3)

    check(f, lambda k: monkeypatch.setitem(globals(), "RATE", 2.0), "never", most=2)
    check(f, change, "never", most=3)


@pytest.mark.parametrize("way", ["copy", "dict", "items", "emptied"])
def test_all_variables_of_the_programs(package, way):
    """Where traced ones are among them the call is followed."""

    def f(x):
        rate = 2.0
        return package.found_by(way, "rate") * rate * np.sum(x**2)

    check(f, lambda k: None, "never")


def test_a_traced_variable_that_it_looks_for(package):
    """It isn't there when a later call calls the function, so that is followed."""

    def f(x):
        rate = np.sum(x**2)  # noqa: F841
        return package.found_by("get", "rate") * 3.0

    check(f, lambda k: None, "never")


@MODES
def test_a_model_with_a_generator_of_its_own(package, compile):
    """It is made anew at each call, and so draws the same numbers."""

    def f(x):
        return package.Drawing().drawn(np.ones(2)) * np.sum(x**2)

    check(f, lambda k: None, compile, most=3)


def test_a_generator_of_an_object_of_the_outside_goes_on(package):
    drawing, other = package.Drawing(), package.Drawing()
    dloss = grad(lambda x: drawing.drawn(np.ones(2)) * np.sum(x**2), compile="never")
    for _ in range(4):
        np.testing.assert_allclose(dloss(X), 2 * X * other.drawn(np.ones(2)))


@MODES
@pytest.mark.parametrize("is_strange", [False, True])
@pytest.mark.parametrize("way", ["item", "method"])
def test_containers_of_its_objects_that_the_program_writes_to(package, compile, is_strange, way):
    """What it returns is no copy: what the program puts there is there at the next look-up."""
    graph = package.Graph(is_strange)

    def f(x):
        for k in graph:
            graph[k]["value"] = x[k]
        nodes = [graph[k] if way == "item" else graph.node(k) for k in range(2)]
        return nodes[0]["value"] * nodes[1]["value"] * (1 + graph.first["name"])

    g = grad(f, compile=compile)
    for k in range(5):
        np.testing.assert_array_equal(g(X * (k + 1)), (X * (k + 1))[::-1])
        assert [graph.nodes[j]["value"] for j in range(2)] == [*X * (k + 1)]
    assert g.cache_info().traces <= 1 or is_strange


@MODES
def test_what_goes_through_a_container_of_its_objects(package, compile):
    """Once something else can't be followed, what is called anew is not what gives an iterator."""
    graph, sky = package.Graph(False), package.Sky()

    def f(x):
        return np.sum(x**2) * sky.near * sum(len(name) for name in graph.names(0))

    check(f, lambda k: None, compile, most=3)
    check(f, lambda k: graph.nodes[0].update({"n" * k: 1}), compile)


@MODES
def test_an_object_that_another_call_has_changed(package, compile):
    """The second look-up fails on what stands for arrays, and can't be made anew alone."""
    sky = package.Sky()
    check(lambda x: np.sum(x**2) * sky.near * sky.far, lambda k: None, compile, most=3)


def test_entries_that_compare_themselves_in_ways_of_their_own(package):
    solver, plain = package.Solver(), package.Solver()
    g = grad(lambda x: np.sum(x**2) * solver.solve(), compile="never")
    for _ in range(4):
        np.testing.assert_array_equal(g(X), 2 * X * plain.solve())


def test_a_class_in_c_that_says_it_is_pythons(monkeypatch):
    """polars' classes do; the module that has it tells whose it is."""
    module = types.ModuleType("_a_package")
    module.__file__ = f"{os.sep}lib{os.sep}site-packages{os.sep}_a_package.so"
    module.Frame = type("Frame", (), {"__module__": "builtins"})
    monkeypatch.setitem(sys.modules, "_a_package", module)
    assert is_extensions(module.Frame)
    assert not is_extensions(type("Frame", (), {"__module__": "builtins"}))


def test_what_has_no_plain_name():
    """An object whose name is something that has no truth and can't be hashed, as polars' `pl.col`,
    is called as others are."""

    class Names:
        __hash__ = None  # type: ignore[assignment]

        def __getattr__(self, name):
            if name == "__wrapped__":
                raise AttributeError(name)
            return self

        def __bool__(self):
            raise TypeError("no truth")

        def __call__(self, x):
            return 2.0 * x

    names = Names()
    g = grad(lambda x: np.sum(names(x)), compile="never")
    for _ in range(4):
        np.testing.assert_array_equal(g(X), [2.0, 2.0])
