"""What is found by watching the run"""

from __future__ import annotations

import collections
import datetime
import functools
import importlib
import inspect
import io
import itertools
import operator
import os
import pickle
import pkgutil
import secrets
import subprocess
import sys
import time
import types
import uuid
import weakref
import zoneinfo
from importlib import resources
from random import SystemRandom

import numpy as np
import pytest
from tests.honesty.check import refused

from tapegrad import Function, defvjp, grad, primitive, value_and_grad
from tapegrad.errors import RandomnessError, UnsupportedError

# What is compiled is the same for all ways to read something.
UNCOMPILED = pytest.mark.parametrize("derivative", ["played", "nested"], indirect=True)
X = np.array([1.0, 2.0])
SCALE = 2.0
WEIGHTS = np.array([1.0, 2.0])


class Box:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)


# ---- rules


class Scaled(Function):
    factor = 2.0

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3 * SCALE * Scaled.factor

    @staticmethod
    def backward(ctx, ct):
        (x,) = ctx.saved_tensors
        return ct * 3 * x**2 * SCALE * Scaled.factor


@primitive
def cubed(x):
    return x**3 * SCALE


defvjp(cubed, lambda ct, out, x: ct * 3 * x**2 * SCALE)


@pytest.mark.parametrize("f", [Scaled.apply, cubed])
def test_globals_of_rules(f, derivative, monkeypatch):
    """a global is read by `Function.forward` and `backward`, or by a rule of `defvjp` -> traced
    anew"""
    df = derivative(lambda x: np.sum(f(x)))
    df.at(X)
    monkeypatch.setitem(globals(), "SCALE", 7.0)
    df.at(X)


def test_closures_and_class_attributes_of_rules(derivative, monkeypatch):
    """a closed-over number of a rule, a class attribute of a Function -> traced anew"""
    rate = 2.0

    @primitive
    def scaled(x):
        return x**3 * rate

    defvjp(scaled, lambda ct, out, x: ct * 3 * x**2 * rate)
    df = derivative(lambda x: np.sum(scaled(x)) + np.sum(Scaled.apply(x)))
    df.at(X)
    rate = 5.0
    df.at(X)
    monkeypatch.setattr(Scaled, "factor", -1.0)
    df.at(X)


def test_a_rule_that_is_replaced(derivative):
    """`defvjp` gives a primitive another rule -> traced anew"""

    @primitive
    def halved(x):
        return x / 2

    defvjp(halved, lambda ct, out, x: ct / 2)
    df = derivative(lambda x: np.sum(halved(x) ** 2))
    df.at(X)
    defvjp(halved, lambda ct, out, x: ct)
    if df.how != "nested":  # differences know nothing of rules
        df.at(X, gradient=X)


# ---- callables


class Unit:
    @staticmethod
    def fixed(x):
        return x**2

    def relu(self, x):
        return np.where(x > 0, x, 0.0)

    def tanh(self, x):
        return np.tanh(x)

    @property
    def act(self):
        return self.tanh if SCALE == 2.0 else self.relu


def test_a_bound_method_that_is_rebound(derivative):
    """an attribute `act = obj.relu` is bound to `obj.tanh` -> traced anew"""
    unit = Unit()
    box = Box(act=unit.relu)
    df = derivative(lambda x: np.sum(box.act(x) ** 2))
    df.at(X)
    box.act = unit.tanh
    df.at(X)


def test_a_partial_that_is_rebound(derivative):
    """an attribute that holds a functools.partial is bound to another one -> traced anew"""

    def power(n, x):
        return x**n

    box = Box(act=functools.partial(power, 2))
    df = derivative(lambda x: np.sum(box.act(x)))
    df.at(X)
    box.act = functools.partial(power, 3)
    df.at(X)


def test_what_a_property_returns(derivative, monkeypatch):
    """a property returns a method, by a global -> traced anew"""
    unit = Unit()
    df = derivative(lambda x: np.sum(unit.act(x) ** 2))
    df.at(X)
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    df.at(X)


def test_methods_that_are_replaced(derivative, monkeypatch):
    """a static method or a property of a class is replaced -> traced anew"""
    unit = Unit()
    df = derivative(lambda x: np.sum(unit.fixed(x) + unit.act(x) ** 2))
    df.at(X)
    monkeypatch.setattr(Unit, "fixed", staticmethod(lambda x: x**3))
    df.at(X)
    monkeypatch.setattr(Unit, "act", property(lambda self: np.sin))
    df.at(X)


def test_code_that_is_replaced(derivative):
    """`f.__code__` is set, of the function or of one that it calls -> traced anew"""

    def helper(x):
        return x**2

    def f(x):
        return np.sum(helper(x))

    df = derivative(f)
    df.at(X)
    helper.__code__ = (lambda x: x**3).__code__
    df.at(X)
    f.__code__ = _other(helper).__code__
    df.at(X)


def _other(helper):
    def f(x):
        return np.sum(np.sin(helper(x)))

    return f


def test_operators_that_are_replaced(derivative, monkeypatch):
    """`__add__` of a user's class is replaced, or `__call__` -> traced anew"""

    class Number:
        def __init__(self, x):
            self.x = x

        def __add__(self, other):
            return self.x + other

        def __call__(self, x):
            return x * self.x

    number = Number(2.0)
    df = derivative(lambda x: np.sum((number + x**2) * number(x)))
    df.at(X)
    monkeypatch.setattr(Number, "__add__", lambda self, other: self.x - other)
    df.at(X)
    monkeypatch.setattr(Number, "__call__", lambda self, x: x**2)
    df.at(X)


# ---- arrays that are read with and without traced values


def test_a_line_that_meets_both(derivative):
    """one line meets a traced value in one visit, and plain arrays in another -> traced anew"""
    weights = np.array([1.0, 2.0])

    def times(x):
        return x * weights

    df = derivative(lambda x: np.sum(times(x) ** 2) * np.sum(times(np.ones(2))))
    df.at(X)
    weights[0] = 5.0
    df.at(X)


def test_arrays_by_computed_names(derivative):
    """`getattr(self, "w")` and `vars(self)["w"]`, where plain NumPy computes with the array ->
    traced anew"""
    for read in (lambda box: getattr(box, "w"), lambda box: vars(box)["w"]):  # noqa: B009
        box = Box(w=np.array([1.0, 2.0]))
        df = derivative(lambda x, box=box, read=read: np.sum(x**2 * read(box)) / read(box).max())
        df.at(X)
        box.w[1] = 7.0
        df.at(X)
        box.w = np.array([3.0, 4.0])
        df.at(X)


@pytest.mark.every(4)
@UNCOMPILED
@pytest.mark.parametrize(
    "read",
    [
        lambda w: w[0],
        lambda w: w[:1].sum(),
        lambda w: float(w[1]),
        lambda w: max(w),
        lambda w: next(iter(w)),
        lambda w: sum(k for k in w),
        lambda w: w.tolist()[1],
        lambda w: 1.0 if (w > 1.5).all() else 2.0,
        lambda w: w.reshape(2, 1)[1, 0],
        lambda w: np.array(w)[0],
        lambda w: np.concatenate([w, w])[3],
        lambda w: memoryview(w)[1],
        lambda w: w.copy().sum(),
        lambda w: [*w][-2],
        lambda w: w.flat[1],
        lambda w: np.einsum("i,i", w, w),
        lambda w: operator.itemgetter(1)(w),
        lambda w: np.vectorize(lambda k: 2 * k)(w).sum(),
        lambda w: np.apply_along_axis(sum, 0, w),
        lambda w: dict(enumerate(w))[1],
        lambda w: np.linalg.norm(w),
    ],
)
def test_ways_to_read_an_array(read, derivative):
    """elements of an array from outside are read without a traced value, in any way -> traced
    anew"""
    w = np.array([1.0, 2.0])
    df = derivative(lambda x: np.sum(x**2 * w) * read(w))
    df.at(X)
    w[:] = [3.0, 5.0]
    df.at(X)


# ---- reflection


def test_imports_in_the_function(derivative, monkeypatch, tmp_path):
    """the function imports a module relatively, or by importlib; a module has `__getattr__` ->
    traced anew"""
    package = tmp_path / "observed_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "settings.py").write_text("rate = 2.0\n")
    (package / "lazy.py").write_text(
        "values = {'rate': 3.0}\n"
        "def __getattr__(name):\n"
        "    if name in values:\n"
        "        return values[name]\n"
        "    raise AttributeError(name)\n"
    )
    (package / "model.py").write_text(
        "import numpy as np\n"
        "def f(x):\n"
        "    from . import settings\n"
        "    from .lazy import rate\n"
        "    return np.sum(x**3) * settings.rate * rate\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    model = importlib.import_module("observed_package.model")
    settings, lazy = sys.modules.get("observed_package.settings"), None
    df = derivative(model.f)
    df.at(X)
    settings, lazy = (sys.modules[f"observed_package.{n}"] for n in ("settings", "lazy"))
    settings.rate = 5.0
    df.at(X)
    lazy.values["rate"] = 7.0
    df.at(X)
    by_name = derivative(
        lambda x: np.sum(x**3) * importlib.import_module("observed_package.settings").rate
    )
    by_name.at(X)
    settings.rate = 6.0
    by_name.at(X)
    for name in [n for n in sys.modules if n.startswith("observed_package")]:
        del sys.modules[name]


def test_sys_modules(derivative, monkeypatch):
    """a module is found in `sys.modules` -> traced anew"""
    config = types.ModuleType("observed_config")
    config.scale = 2.0
    monkeypatch.setitem(sys.modules, "observed_config", config)
    df = derivative(lambda x: np.sum(x**3) * sys.modules["observed_config"].scale)
    df.at(X)
    config.scale = 5.0
    df.at(X)
    other = types.ModuleType("observed_config")
    other.scale = 3.0
    monkeypatch.setitem(sys.modules, "observed_config", other)
    df.at(X)


READ = getattr  # under another name


class Shown:
    def __init__(self, scale):
        self.scale = scale

    def __format__(self, spec):
        return str(self.scale)

    def __reduce__(self):
        return Shown, (self.scale,)

    def __repr__(self):
        return f"Shown({self.scale})"


@pytest.mark.every(4)
@UNCOMPILED
@pytest.mark.parametrize(
    "read",
    [
        lambda s: READ(s, "sc" + "ale"),
        lambda s: inspect.getattr_static(s, "scale"),
        lambda s: float(f"{s}"),
        lambda s: float(format(s)),
        lambda s: pickle.loads(pickle.dumps(s)).scale,
        lambda s: dict(inspect.getmembers(s))["scale"],
        lambda s: sys._getframe(1).f_globals["SHOWN"].scale,
        lambda s: operator.attrgetter("scale")(s),
        lambda s: s.__dict__["scale"],
        lambda s: object.__getattribute__(s, "scale"),
        lambda s: eval(repr(s)).scale,
        lambda s: s.__reduce__()[1][0],
        lambda s: types.SimpleNamespace(**vars(s)).scale,
        lambda s: {**vars(s)}["scale"],
        lambda s: [v for k, v in vars(s).items()][-1],
        lambda s: weakref.ref(s)().scale,
        lambda s: weakref.proxy(s).scale,
        lambda s: globals()["SHO" + "WN"].scale,
        lambda s: exec_(s),
    ],
)
def test_reflection(read, derivative, monkeypatch):
    """attributes are read by `getattr` under another name, inspect, format, pickle, a frame's
    globals, `__reduce__`, eval or exec -> traced anew"""
    shown = Shown(2.0)
    monkeypatch.setitem(globals(), "SHOWN", shown)
    df = derivative(lambda x: np.sum(x**3) * read(shown))
    df.at(X)
    shown.scale = 5.0
    df.at(X)


def parts(first, x):
    def read():
        return first  # noqa: F821

    yield x * read()
    del first
    yield x
    yield x


def test_what_is_read_after_a_variable_of_a_closure_was_deleted(derivative):
    """a generator that has deleted a closure's variable goes on; what is read then changes
    -> traced anew"""
    rate = [2.0]
    df = derivative(lambda x: np.sum(sum(parts(1.0, x)) ** 2) * rate[0])
    df.at(X)
    rate[0] = 5.0
    df.at(X)


class Renamed:
    def __getattribute__(self, name):
        return object.__getattribute__(self, "scale_" if name == "scale" else name)


def test_lookups_of_a_classes_own(derivative):
    """an attribute that a `__getattribute__` of the class's own finds changes -> traced anew"""
    renamed = Renamed()
    renamed.scale_ = 2.0
    df = derivative(lambda x: np.sum(x**3) * renamed.scale)
    df.at(X)
    renamed.scale_ = 5.0
    df.at(X)


def exec_(s):
    found = {"s": s}
    exec("scale = s.scale", found)
    return found["scale"]


# ---- containers and namespaces


class Key:
    pass


@pytest.mark.every(4)
@UNCOMPILED
@pytest.mark.parametrize(
    "make",
    [
        lambda box: (weakref.WeakValueDictionary({"k": box}), lambda d: d["k"].scale),
        lambda box: (weakref.WeakKeyDictionary({box: [box]}), lambda d: list(d)[-1].scale),
        lambda box: (weakref.WeakSet([box]), lambda d: next(iter(d)).scale),
        lambda box: (
            types.SimpleNamespace(inner=types.SimpleNamespace(box=box)),
            lambda d: d.inner.box.scale,
        ),
        lambda box: (collections.ChainMap({}, {"k": box}), lambda d: d["k"].scale),
        lambda box: (collections.defaultdict(list, {"k": box}), lambda d: d["k"].scale),
        lambda box: (collections.deque([box]), lambda d: d[0].scale),
        lambda box: ({"k": (box,)}.values(), lambda d: list(d)[-1][0].scale),
        lambda box: ({"k": box}.__getitem__, lambda d: d("k").scale),
        lambda box: (types.MappingProxyType({"k": box}), lambda d: d.get("k").scale),
        lambda box: ((lambda: box), lambda d: d().scale),
        lambda box: ([[box]], lambda d: [b for row in d for b in row][-1].scale),
        lambda box: ({box}, lambda d: max(d, key=id).scale),
        lambda box: ([box, box], lambda d: d[-1].scale),
        lambda box: ((1, (box, 2)), lambda d: (lambda a, b: b[0].scale)(*d)),
        lambda box: ({"box": box}, lambda d: (lambda box: box.scale)(**d)),
    ],
)
def test_where_an_object_may_be(make, derivative):
    """a number is read of an object in weak dictionaries, namespaces, chains, views -> traced
    anew"""
    box = Box(scale=2.0)
    held, read = make(box)
    df = derivative(lambda x: np.sum(x**3) * read(held))
    df.at(X)
    box.scale = 5.0
    df.at(X)


def test_defaults_of_a_dict(derivative):
    """a defaultdict makes what isn't there; a key appears -> traced anew"""
    counts = collections.defaultdict(lambda: 1.0)
    table = {}
    df = derivative(lambda x: np.sum(x**3) * counts["a"] * table.get("b", 2.0))
    df.at(X)
    counts["a"] = 5.0
    df.at(X)
    table["b"] = 3.0
    df.at(X)


# ---- outside of the process


@pytest.mark.parametrize(
    "read",
    [
        lambda path: 2.0 if os.path.isdir(path) else 1.0,
        lambda path: 2.0 if list(os.scandir(os.path.dirname(path))) else 1.0,
        lambda path: 2.0 if __import__("glob").glob(path) else 1.0,
        lambda path: 2.0 if os.access(path, os.F_OK) else 1.0,
        lambda path: 1.0 + float(subprocess.run(["test", "-e", path]).returncode),
    ],
)
def test_files_and_processes(read, tmp_path):
    """`os.path.isdir`, `os.scandir`, `glob`, `subprocess` -> asked again, or traced at each call"""
    path = str(tmp_path / "here")
    df = grad(lambda x: np.sum(x) * read(path), compile="never")
    before = df(X)[0]
    os.mkdir(path)
    assert df(X)[0] != before


def test_a_memory_map_made_inside(tmp_path):
    """`np.memmap` and `np.fromfile` in the function -> traced at each call"""
    path = str(tmp_path / "numbers")
    np.array([1.0, 2.0]).tofile(path)
    for read in (lambda: np.memmap(path, np.float64, "r"), lambda: np.fromfile(path)):
        np.array([1.0, 2.0]).tofile(path)
        df = grad(lambda x, read=read: np.sum(x * np.array(read())), compile="never")
        np.testing.assert_array_equal(df(X), [1.0, 2.0])
        np.array([3.0, 4.0]).tofile(path)
        np.testing.assert_array_equal(df(X), [3.0, 4.0])


def test_the_time_of_day():
    """`time.time` under another name -> read at each call; `time.strftime` is asked again"""
    now = time.time
    df = grad(lambda x: x * now(), compile="never")
    assert df(1.0) < df(1.0)
    df = grad(lambda x: x * len(time.strftime("%H")), compile="never")
    assert df(1.0) == df(1.0) == 2.0
    assert df.cache_info().traces == 1


@UNCOMPILED
def test_time_zones(derivative, monkeypatch):
    """`date.astimezone()`, `timestamp()`, `fromtimestamp` of Python's dates; the zone of a date or
    of the computer changes -> traced anew"""
    zone = datetime.UTC
    box = Box(day=datetime.datetime(2020, 6, 1, 12, tzinfo=zone), zone=zone)

    def f(x):
        hours = box.day.astimezone(box.zone).hour, datetime.datetime.fromtimestamp(1e9).hour
        hours += datetime.datetime.fromtimestamp(1e9, zoneinfo.ZoneInfo("Asia/Tokyo")).hour, 1
        return np.sum(x**2) * sum(hours) + x[0] * (box.day.timestamp() % 1e5)

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    df = derivative(f)
    df.at(X)
    box.zone = datetime.timezone(datetime.timedelta(hours=3))
    df.at(X)
    box.day = box.day.replace(hour=15)
    df.at(X)
    monkeypatch.setenv("TZ", "America/Lima")
    time.tzset()
    df.at(X)
    monkeypatch.undo()
    time.tzset()


@UNCOMPILED
def test_a_time_that_is_read_of_a_text(derivative):
    """`datetime.strptime` and `time.strptime` are asked again; the text changes -> traced anew"""
    box = Box(text="2020-01-02")

    def f(x):
        day = datetime.datetime.strptime(box.text, "%Y-%m-%d")
        later = datetime.datetime.strptime("Mar 5 2020", "%b %d %Y")
        return np.sum(x**2) * (later - day).days * time.strptime("12:30", "%H:%M").tm_min

    df = derivative(f)
    df.at(X)
    df.at(2 * X)
    assert df.d.cache_info().traces == 1
    box.text = "2020-02-02"
    df.at(X)


@UNCOMPILED
def test_a_ufunc_that_is_made_of_a_function(derivative):
    """what the function reads that `np.frompyfunc` is passed changes -> traced anew"""
    box = Box(rate=2.0)

    def f(x):
        scaled = np.frompyfunc(lambda a: a * a * box.rate, 1, 1)
        sizes = np.frompyfunc(lambda a: abs(a), 1, 1)(np.array([-1.0, 2.0]))
        return np.sum(scaled(x)) + np.sum(sizes * x)

    df = derivative(f)
    df.at(X)
    df.at(2 * X)
    assert df.d.cache_info().traces == 1
    box.rate = 3.0
    df.at(X)


def test_time_zones_that_stay():
    """the same of dates that stay -> nothing is traced anew"""
    day = datetime.datetime(2020, 6, 1, 12, tzinfo=datetime.UTC)
    df = grad(lambda x: x * day.astimezone(datetime.UTC).hour * day.timestamp())
    for x in (1.0, 2.0, 3.0):
        assert df(x) == 12 * day.timestamp()
    assert df.cache_info().traces == 1


def test_data_of_a_package(monkeypatch, tmp_path):
    """`importlib.resources.files` and `pkgutil.get_data` read a package's file -> read again"""
    (tmp_path / "with_data").mkdir()
    (tmp_path / "with_data" / "__init__.py").touch()
    data = tmp_path / "with_data" / "scale.txt"
    monkeypatch.syspath_prepend(tmp_path)

    def f(x):
        scale = float(pkgutil.get_data("with_data", "scale.txt").decode())
        return x * scale * float(resources.files("with_data").joinpath("scale.txt").read_text())

    df = grad(f, compile="never")
    for scale in (2.0, 2.0, 3.0, 3.0, 2.0):
        data.write_text(str(scale))
        assert df(1.0) == scale**2
    assert df.cache_info().traces <= 3


def test_arguments_of_the_program(derivative, monkeypatch):
    """`sys.argv` -> traced anew"""
    monkeypatch.setattr(sys, "argv", ["program", "2"])
    df = derivative(lambda x: np.sum(x**3) * float(sys.argv[1]))
    df.at(X)
    monkeypatch.setattr(sys, "argv", ["program", "5"])
    df.at(X)
    sys.argv[1] = "7"
    df.at(X)


@pytest.mark.filterwarnings("ignore:.*traced for three calls:RuntimeWarning")
def test_names_that_nobody_else_has():
    """the function makes a UUID -> each call makes its own"""
    df = grad(lambda x: np.sum(x) * (uuid.uuid4().int % 2**40))
    assert len({df(X)[0] for _ in range(4)}) == 4


@pytest.mark.parametrize(
    "draw",
    [
        lambda: secrets.randbelow(100),
        lambda: SystemRandom().random(),
        lambda: os.urandom(1)[0],
        lambda: secrets.choice([1, 2, 3]),
    ],
)
def test_random_numbers_of_the_system(draw):
    """draws by `secrets`, `SystemRandom`, `os.urandom` -> refused"""
    with refused(RandomnessError, "drew random numbers from os.urandom"):
        grad(lambda x: x * draw(), compile="never")(1.0)


def test_a_legacy_generator_with_a_seed(derivative):
    """`np.random.RandomState(0)`, `Generator(PCG64(0))` made with a seed inside -> the same at each
    call, as in NumPy"""

    def f(x):
        old = np.random.RandomState(0).normal(size=2)
        new = np.random.Generator(np.random.PCG64(1)).normal(size=2)
        return np.sum(x**2 * old * new)

    df = derivative(f)
    df.at(X)
    df.at(2 * X)


@pytest.mark.parametrize(
    "make", [np.random.default_rng, np.random.RandomState, np.random.PCG64, np.random.MT19937]
)
def test_an_integer_argument_as_a_seed(make, derivative):
    """an integer argument is the seed of a generator made inside -> guarded: each seed its own
    draws"""

    def f(x, k):
        made = make(k)
        rng = np.random.Generator(made) if hasattr(made, "jumped") else made
        return np.sum(x**2 * rng.normal(size=2))

    df = derivative(f)
    for k in (0, 7, 0):
        df.at(X, k)
    if df.how == "played":
        assert df.d.cache_info().traces == 2


def test_a_generator_whose_state_is_set_back():
    """draws of a generator whose state is set back afterwards -> traced at each call"""
    rng = np.random.default_rng(0)

    def f(x):
        before = rng.bit_generator.state
        drawn = rng.normal()
        rng.bit_generator.state = before
        return x * drawn

    df = grad(f, compile="never")
    for _ in range(3):
        assert df(1.0) == df(1.0) == f(1.0)
        rng.normal()


# ---- names


def test_a_local_that_is_called_as_a_builtin():
    """a local name `input`, `open` or `eval` -> nothing is traced anew"""

    def f(inputs):
        open = 0.0
        for input in inputs:
            open = open + np.tanh(input)
        return np.sum(open)

    df = grad(f, compile="never")
    for k in range(3):
        df(np.full((3, 2), float(k)))
    assert df.cache_info().traces == 1


def test_a_global_that_hides_a_builtin(derivative, monkeypatch):
    """a global name appears that hides a function of Python's -> traced anew"""
    df = derivative(lambda x: np.sum(x**2) * max(1.0, 2.0))
    df.at(X)
    monkeypatch.setitem(globals(), "max", min)
    df.at(X)


def test_which_object_it_is(derivative):
    """`x is other` of objects from outside, `id` and `hash` -> traced anew where it changes"""
    first, second = Box(), Box()
    box = Box(current=first)
    table = {first: 2.0, second: 5.0}
    df = derivative(
        lambda x: np.sum(x**3) * (2.0 if box.current is first else 3.0) * table[box.current]
    )
    df.at(X)
    box.current = second
    df.at(X)
    df = derivative(lambda x, b: np.sum(x**3) * (2.0 if b is first else 3.0))
    df.at(X, first)
    df.at(X, second)


def test_a_stream_of_text():
    """a text is written to an io.StringIO from outside, and read again -> traced at each call"""
    file = io.StringIO()

    def f(x):
        file.write("a")
        return x * len(file.getvalue())

    df = grad(f, compile="never")
    assert [df(1.0) for _ in range(3)] == [1.0, 2.0, 3.0]


# ---- what the run writes


def test_writes_without_reads():
    """an attribute, an item or a global is set to a number, without being read -> set again when
    somebody else has changed it"""
    box, table = Box(), {}

    def f(x):
        box.used = True
        table["k"] = 1.0
        return x * 2

    df = grad(f, compile="never")
    df(1.0), df(1.0)
    traces = df.cache_info().traces
    df(1.0)
    assert df.cache_info().traces == traces
    box.used = False
    df(1.0)
    assert box.used
    table["k"] = 5.0
    df(1.0)
    assert table["k"] == 1.0


def test_a_buffer_of_the_outside(derivative):
    """an array from outside is filled with plain numbers, and read -> filled again when somebody
    else has changed it"""
    buffer = np.zeros(2)

    def f(x):
        buffer[:] = 3.0
        return np.sum(x**2 * buffer)

    df = derivative(f)
    df.at(X)
    buffer[:] = 7.0
    df.at(X)


def test_what_is_computed_once(derivative):
    """a table is built when it is first needed, and kept in an attribute -> traced twice"""
    box = Box(basis=None)

    def f(x):
        if box.basis is None:
            box.basis = np.array([2.0, 3.0])
        return np.sum(x**3 * box.basis)

    df = derivative(f)
    for _ in range(4):
        df.at(X)
    if df.how == "played":
        assert df.d.cache_info().traces == 2


@functools.cache
def table_of(n):
    return {"weights": np.arange(1.0, n + 1)}


def test_what_is_remembered(derivative):
    """what a function under functools.lru_cache returns is changed in place -> traced anew"""
    table_of.cache_clear()
    df = derivative(lambda x: np.sum(x**3 * table_of(2)["weights"]) / table_of(2)["weights"][1])
    df.at(X)
    table_of(2)["weights"][1] = 9.0
    df.at(X)
    table_of(2)["weights"] = np.array([5.0, 5.0])
    df.at(X)


def test_a_debugger(derivative):
    """a debugger or a coverage tool has `sys.settrace` -> it stays theirs; traced at each call"""
    box, seen = Box(scale=2.0), []

    def watch(frame, event, arg):
        seen.append(event)
        return watch

    df = grad(lambda x: np.sum(x**3) * box.scale, compile="never")
    before = sys.gettrace()
    sys.settrace(watch)
    try:
        found = [df(X)]
        box.scale = 5.0
        found.append(df(X))
        assert sys.gettrace() is watch
    finally:
        sys.settrace(before)
    np.testing.assert_array_equal(found, [6 * X**2, 15 * X**2])
    assert "line" in seen


# ---- warnings


def test_what_changes_at_every_call():
    """a list that grows or an iterator makes every call a trace -> the third call in a row
    warns, with what it is and the fix"""
    calls, numbers = [], iter(range(100))

    def counted(x):
        calls.append(1)
        return x * sum(calls)

    for f, word in (
        (counted, r"'calls' \(observed_state_test.py:\d+: .*longer at each call.*calls\[-k:\]"),
        (lambda x: x * sum(itertools.islice(numbers, 1)), r"'numbers'.*Read it outside"),
    ):
        df = grad(f, compile="never")
        df(1.0), df(1.0)
        with pytest.warns(RuntimeWarning, match="three calls in a row.*" + word):
            df(1.0)
        df(1.0)  # says it once


# ---- which argument it is


def test_one_array_for_two_arguments():
    """`x is y` of two arguments, or of an argument and a captured array -> traced anew where
    another answer may follow; refused where one array is passed for both"""
    w = np.array([3.0, 4.0])

    def f(x, y):
        return np.sum(x**2 * (2.0 if x is y else y)) * (5.0 if y is w else 1.0)

    df = grad(f, compile="never")
    y = np.array([1.0, 3.0])
    np.testing.assert_array_equal(df(X, y), 2 * X * y)
    for args in ((X, X), (X, w)):
        with refused(UnsupportedError, "whether two values are one object", "Pass a flag"):
            df(*args)
    np.testing.assert_array_equal(df(y, X), 2 * X * y)
    assert df.cache_info().traces == 1  # the others were refused


def test_caches_that_forget():
    """a cache of functools.lru_cache is emptied, or full, so that it forgets what it remembered ->
    traced anew"""
    made, rate = [], [2.0]

    @functools.lru_cache(maxsize=2)
    def remembered(k):
        made.append(k)
        return k + rate[0]

    def f(x):
        return x * remembered(1)

    df = grad(f, compile="never")
    assert df(1.0) == df(2.0) == 3.0
    rate[0] = 5.0
    assert df(1.0) == 3.0
    remembered.cache_clear()
    assert df(1.0) == df(2.0) == 6.0
    rate[0] = 7.0
    remembered(2)
    remembered(3)
    assert df(1.0) == 8.0
    assert made == [1, 1, 2, 3, 1]


@pytest.mark.parametrize("most", [None, 2])
def test_caches_that_remember_traced_values(most):
    """a function of functools.lru_cache reads what the function has set -> the derivative, and
    plain numbers in the cache, which later calls find there"""
    held = {}

    @functools.lru_cache(maxsize=most)
    def remembered(k):
        return k * held["rate"]

    def f(x):
        held["rate"] = x[0]
        found = remembered(4) * x[1]
        del held["rate"]
        return found

    df = value_and_grad(f, compile="never")
    expected = [(8.0, [8.0, 4.0]), (12.0, [0.0, 4.0]), (16.0, [0.0, 4.0])]
    for k, (value, slopes) in enumerate(expected):
        found = df(np.array([1.0, 2.0]) + k)
        assert found[0] == value
        np.testing.assert_array_equal(found[1], slopes)
        assert type(remembered(4)) is np.float64
    assert f(np.array([5.0, 5.0])) == 20.0
    assert df.cache_info().traces == 2
