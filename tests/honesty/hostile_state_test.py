"""State that is hard to see"""

from __future__ import annotations

import abc
import bisect
import builtins
import collections
import contextlib
import ctypes
import datetime
import enum
import functools
import gc
import importlib
import itertools
import logging
import math
import operator
import sys
import threading
import types
import weakref
from typing import NamedTuple

import numpy as np
import pytest

from tapegrad import grad

ABSENT = object()


class Box:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)


class Pair(NamedTuple):
    first: object
    second: float = 0.0


class Point(ctypes.Structure):
    _fields_ = (("scale", ctypes.c_double),)


class Keyed(dict):
    __getattr__ = dict.__getitem__


class Computed:
    scale = property(operator.attrgetter("_scale"))

    def __init__(self, scale):
        self._scale = scale


class Looked:
    def __init__(self, held):
        self.held = held

    def keys(self):
        return self.held

    def __getitem__(self, name):
        return 1.0


class Kind(enum.Enum):
    ONE = "one"


class Slotted:
    __slots__ = ("scale",)


class Owner(type):
    rate = 2.0
    scale = property(lambda cls: cls.rate)


def stepped(z):
    yield z
    yield z


HOOK = sys.excepthook


def box(value):
    """A box, the way to change it, and the number that it holds."""
    b = Box(scale=value)
    return b, lambda v: setattr(b, "scale", v)


def caught(f, *args, instead=1.0):
    try:
        return f(*args)
    except (IndexError, KeyError, ValueError, NameError):
        return instead


def programs():
    """What reads a number from outside, and what changes it to another one."""
    d = {"k": 2.0}
    yield "map(d.get)", lambda: sum(map(d.get, ["k"])), lambda v: d.update(k=v)
    e = {"k": 2.0, "m": 3.0}
    yield "min(key=d.get)", lambda: 1.0 + "km".index(min("km", key=e.get)), lambda v: e.update(k=v)
    b, set_b = box(2.0)
    yield "map(getattr)", lambda: sum(map(getattr, [b], ["scale"])), set_b
    c, set_c = box(2.0)
    yield "map(attrgetter)", lambda: sum(map(operator.attrgetter("scale"), [c])), set_c
    h = Box()
    yield "map(hasattr)", lambda: 1.0 + sum(map(hasattr, [h], ["k"])), lambda v: setattr(h, "k", v)
    r, set_r = box(2.0)
    yield "reduce(getattr)", lambda: functools.reduce(getattr, ["scale"], r), set_r
    w = np.array([2.0])
    yield "map(w.item)", lambda: sum(map(w.item, [0])), lambda v: w.fill(v)
    s = [1.0, 2.0]
    yield (
        "bisect(key=)",
        lambda: bisect.bisect([0, 1], 1.5, key=s.__getitem__),
        (lambda v: s.__setitem__(0, v)),
    )
    f = {"k": 2.0}
    yield "starmap", lambda: sum(itertools.starmap(f.get, [("k", 0.0)])), lambda v: f.update(k=v)
    g = {"k": 2.0}
    made = np.frompyfunc(g.get, 1, 1)
    yield "frompyfunc", lambda: float(made(np.array(["k"], object))[0]), lambda v: g.update(k=v)
    p = Pair([2.0])
    yield "a list in a named tuple", lambda: p.first[0], lambda v: p.first.__setitem__(0, v)
    a = np.array([2.0, 1.0])
    yield "f(*array)", lambda: (lambda k, m: k * m)(*a), lambda v: a.__setitem__(0, v)
    q = {}
    yield "pop of an empty dict", lambda: q.pop("k", 2.0) + len(q), lambda v: q.update(k=v, m=v)
    t = []
    yield "pop of an empty list", lambda: caught(t.pop), lambda v: t.extend([v, v])
    u = set()
    yield "discard", lambda: (u.discard(5), len(u))[1] + 1.0, lambda v: u.update({v, 7.0})
    x = [1.0, 2.0]

    def first_and_sum():
        x[0] = 1.0
        return sum(x)

    yield "a write that changes nothing", first_and_sum, lambda v: x.__setitem__(1, v)
    y = {"k": 2.0}
    yield "setdefault", lambda: y.setdefault("k", 2.0), lambda v: y.update(k=v)
    z, set_z = box(2.0)
    yield "str.format", lambda: float(f"{z.scale}"), set_z
    n = Point(2.0)
    yield "a field in C", lambda: n.scale, lambda v: setattr(n, "scale", v)
    o = Keyed(scale=2.0)
    yield "__getattr__ = dict.__getitem__", lambda: o.scale, lambda v: o.update(scale=v)
    m = Computed(2.0)
    yield "a property in C", lambda: m.scale, lambda v: setattr(m, "_scale", v)
    k = ["a"]
    yield (
        "f(**mapping)",
        lambda: 1.0 + len((lambda **kw: kw)(**Looked(k))),
        (lambda v: k.append("b")),
    )
    i = collections.deque([2.0, 3.0])
    yield "rotate", lambda: (i.rotate(2), i[0])[1], lambda v: i.__setitem__(0, v)
    log = logging.getLogger("tapegrad.tests.hostile")
    yield "isEnabledFor", lambda: 1.0 + log.isEnabledFor(5), lambda v: log.setLevel(1)
    j = np.ones(2)
    yield "flags", lambda: 1.0 + j.flags.writeable, lambda v: j.setflags(write=False)
    yield "gc.isenabled", lambda: 1.0 + gc.isenabled(), lambda v: gc.disable()
    lock = threading.Lock()
    yield "lock.locked", lambda: 1.0 + lock.locked(), lambda v: lock.acquire()
    rng = np.random.default_rng(0)
    yield (
        "state of a generator",
        lambda: float(rng.bit_generator.state["state"]["state"] % 1009),
        (lambda v: rng.normal()),
    )
    table = {"k": 2.0}
    yield "vars under map", lambda: sum(v["scale"] for v in map(vars, [r])), set_r
    parts = slice([2.0], 1)
    yield "a part of a slice", lambda: parts.start[0], lambda v: parts.start.__setitem__(0, v)
    queues = [collections.deque(maxlen=2)]
    yield (
        "maxlen",
        lambda: queues[0].maxlen,
        (lambda v: queues.__setitem__(0, collections.deque(maxlen=5))),
    )
    steps = stepped([2.0])
    next(steps)
    yield (
        "a variable of a generator",
        lambda: steps.gi_frame.f_locals["z"][0],
        (lambda v: steps.gi_frame.f_locals["z"].__setitem__(0, v)),
    )
    fields = np.dtype([("a", float)])
    yield (
        "names of a dtype",
        lambda: 1.0 + len(fields.names[0]),
        (lambda v: setattr(fields, "names", ("abc",))),
    )
    slotted = Slotted()
    slotted.scale = 2.0
    yield (
        "a slot's own __get__",
        lambda: Slotted.scale.__get__(slotted),
        (lambda v: setattr(slotted, "scale", v)),
    )
    other = threading.Lock()
    yield (
        "lock.acquire(False)",
        lambda: 1.0 + (other.acquire(False) and (other.release() or True)),
        (lambda v: other.acquire()),
    )
    yield (
        "sys.excepthook",
        lambda: 1.0 + (sys.excepthook is HOOK),
        (lambda v: setattr(sys, "excepthook", lambda *_: None)),
    )
    yield (
        "print options",
        lambda: len(str(np.array([1 / 3]))),
        (lambda v: np.set_printoptions(precision=3)),
    )
    yield "a name of NumPy", lambda: float(np.floor(2.5)), lambda v: setattr(np, "floor", np.ceil)
    yield "a name of math", lambda: math.floor(2.5), lambda v: setattr(math, "floor", math.ceil)
    yield "a name of Python", lambda: abs(-2.0), lambda v: setattr(builtins, "abs", lambda x: v)
    builtins.hostile = 2.0
    yield "a new name of Python", lambda: hostile, lambda v: setattr(builtins, "hostile", v)  # noqa: F821
    owned = Owner("Owned", (), {})
    yield "a property of a metaclass", lambda: owned.scale, lambda v: setattr(owned, "rate", v)
    yield (
        "a method as a key",
        lambda: max(["k"], key=table.__getitem__) and table["k"],
        (lambda v: table.update(k=v)),
    )


@pytest.mark.parametrize(("read", "change"), [pytest.param(r, c, id=n) for n, r, c in programs()])
def test_ways_to_read_a_number(read, change, monkeypatch):
    """a number from outside is read by C code that is handed a function written in C, through
    fields, properties and mappings written in C, or by a change that changes nothing -> as in
    plain NumPy at each call"""
    for module, name in ((np, "floor"), (math, "floor"), (builtins, "abs"), (sys, "excepthook")):
        monkeypatch.setattr(module, name, getattr(module, name))  # put back at the end
    options = np.get_printoptions()
    df = grad(lambda x: x**2 * read(), compile="never")
    try:
        for _ in range(2):
            assert df(1.0) == 2.0 * read()
        change(5.0)
        for _ in range(2):
            wanted = 2.0 * read() if "pop" not in read.__code__.co_names else None
            assert wanted is None or df(1.0) == wanted
        if wanted is None:  # which reading changes
            assert df(1.0) != 4.0
    finally:
        gc.enable()
        np.set_printoptions(**options)


def test_a_counter_in_an_array():
    """a captured array is counted up in place, by `np.add(c, 1, out=c)` -> as plain NumPy would
    run, at each call"""
    count = np.zeros(1)

    def f(x):
        np.add(count, 1.0, out=count)
        return x * float(count[0])

    df = grad(f, compile="never")
    assert [df(1.0) for _ in range(3)] == [1.0, 2.0, 3.0]


class Old:
    def scale(self):
        return 2.0


class New:
    def scale(self):
        return 5.0


def test_classes_that_change():
    """`__class__` of an object is set, `__bases__` of a class; a class gets a method that Python
    asks for; somebody registers with an abstract class -> traced anew"""
    held = Old()
    df = grad(lambda x: x * held.scale(), compile="never")
    assert df(1.0) == 2.0
    held.__class__ = New
    assert df(1.0) == 5.0

    class Base(Old):
        pass

    class Child(Base):
        def scale(self):
            return super().scale()

    child = Child()
    df = grad(lambda x: x * child.scale() * (2.0 if isinstance(child, New) else 1.0))
    assert df(1.0) == 2.0
    Base.__bases__ = (New,)
    assert df(1.0) == 10.0

    class Registry(abc.ABC):  # noqa: B024
        pass

    df = grad(lambda x: x * (2.0 if isinstance(child, Registry) else 1.0), compile="never")
    assert df(1.0) == 1.0
    Registry.register(Base)
    assert df(1.0) == 2.0


@pytest.mark.parametrize(
    ("ask", "name", "method"),
    [
        (lambda a: 1.0 if a else 2.0, "__bool__", lambda self: False),
        (lambda a: 1.0 if a else 2.0, "__len__", lambda self: 0),
        (lambda a: 1.0 if a == 3 else 2.0, "__eq__", lambda self, other: True),
        (lambda a: 1.0 if callable(a) else 2.0, "__call__", lambda self: None),
        (lambda a: 1.0 if str(a) == "a" else 2.0, "__str__", lambda self: "a"),
        (lambda a: 1.0 if f"{a}" == "a" else 2.0, "__format__", lambda self, spec: "a"),
        (lambda a: 1.0 if isinstance(a, collections.abc.Sized) else 2.0, "__len__", len),
        (lambda a: 1.0 if {a: 1}.get(a) and hash(a) == 7 else 2.0, "__hash__", lambda self: 7),
    ],
)
def test_methods_that_appear(ask, name, method):
    """a class gets a method that Python asks for by itself, where there was none -> traced anew"""
    kind = type("Kind", (), {})
    held = kind()
    df = grad(lambda x: x * ask(held), compile="never")
    assert df(1.0) == ask(held)
    setattr(kind, name, method)
    assert df(1.0) == ask(held)


def one(self, k):
    """`self[0]` is an item, and no others are."""
    if k in (0, "k"):
        return 7.0
    raise IndexError


FIRST = {  # what objects of each kind are made of
    object: (),
    list: ([2.0, 3.0],),
    dict: ({"k": 2.0},),
    set: ([1.0],),
    int: (2,),
    float: (2.0,),
    str: ("k",),
    tuple: ((2.0, 3.0),),
}


def __array__(self, dtype=None, copy=None):
    return np.full(2, 9.0)


ASKED = {  # what Python asks objects for by itself, and an answer
    "__bool__": lambda self: False,
    "__len__": lambda self: 7,
    "__iter__": lambda self: iter([7.0]),
    "__reversed__": lambda self: iter([9.0]),
    "__contains__": lambda self, x: True,
    "__getitem__": one,
    "__missing__": lambda self, k: 7.0,
    "__hash__": lambda self: 77,
    "__eq__": lambda self, other: True,
    "__lt__": lambda self, other: True,
    "__float__": lambda self: 7.0,
    "__index__": lambda self: 7,
    "__add__": lambda self, other: 7.0,
    "__neg__": lambda self: 7.0,
    "__str__": lambda self: "seven",
    "__format__": lambda self, spec: "seven",
    "__call__": lambda self: 7.0,
    "__getattr__": lambda self, name: 7.0,
    "__getattribute__": lambda self, name: 7.0,
    "__setattr__": lambda self, name, value: None,
    "__array__": __array__,
    "__enter__": lambda self: 7.0,
    "keys": lambda self: ["k"],
    "n": 7.0,
}


def enter(a):
    with a as b:
        return b


WAYS = {  # of asking an object `a`; `b` is another one of its kind
    "truth": lambda a, b: 1.0 if a else 2.0,
    "not": lambda a, b: 1.0 if not a else 2.0,
    "bool": lambda a, b: 1.0 + bool(a),
    "len": lambda a, b: len(a),
    "sum": lambda a, b: sum(a),
    "loop": lambda a, b: sum(1.0 for _ in a),
    "sorted": lambda a, b: sorted(a)[0],
    "unpacked": lambda a, b: len([*a]),
    "reversed": lambda a, b: next(iter([*reversed(a)])),
    "in": lambda a, b: 1.0 + (2.0 in a),
    "item": lambda a, b: a["k"],
    "first": lambda a, b: a[0],
    "key": lambda a, b: {2: 4.0}.get(a, 5.0),
    "other key": lambda a, b: {a: 2.0}.get(b, 3.0),
    "keys": lambda a, b: len({a: 1, b: 2}),
    "set": lambda a, b: len({a, b}),
    "set of list": lambda a, b: len(set([a, b])),  # noqa: C405
    "equal": lambda a, b: 1.0 + (a == b),
    "less": lambda a, b: 1.0 + (a < b),
    "max": lambda a, b: 1.0 + (max([a, b]) is b),
    "float": lambda a, b: float(a),
    "index": lambda a, b: [1.0, 2.0, 3.0][a],
    "plus": lambda a, b: a + 1.0,
    "minus": lambda a, b: -a,
    "text": lambda a, b: len(str(a)),
    "f-string": lambda a, b: len(f"{a}"),
    "percent": lambda a, b: len("%s" % (a,)),  # noqa: UP031
    "call": lambda a, b: float(a()),
    "callable": lambda a, b: 1.0 + callable(a),
    "attribute": lambda a, b: a.n,
    "getattr": lambda a, b: getattr(a, "n", 3.0),
    "hasattr": lambda a, b: 1.0 + hasattr(a, "n"),
    "setattr": lambda a, b: (setattr(a, "m", 2.0), vars(a)["m"])[1],
    "array": lambda a, b: float(np.sum(np.array(a))),
    "asarray": lambda a, b: np.sum(np.asarray([a, b], float)),
    "with": lambda a, b: enter(a),
    "**": lambda a, b: len((lambda **kw: kw)(**a)),
    "dict": lambda a, b: len(dict(a)),
    "sized": lambda a, b: 1.0 + isinstance(a, collections.abc.Sized),
    "mapped": lambda a, b: next(map(operator.not_, [a])),
    "filtered": lambda a, b: 1.0 + len(list(filter(None, [a, b]))),
}


def answer(f, *args):
    """What a function gives, or the class of its error."""
    try:
        return float(f(*args))
    except Exception as error:
        return type(error)


def asked(base, of_class):
    """Two objects of a new class that has a base, or a new class itself, twice; and their class."""
    meta = type("Meta", (type,), {})
    kind = meta("Kind", (base,), {})
    return (kind, kind, meta) if of_class else (kind(*FIRST[base]), kind(*FIRST[base]), kind)


@pytest.mark.every(6)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("of_class", [False, True])
def test_every_method_that_python_asks_for(way, of_class):
    """a class of any base gets any special method that it hadn't, or its metaclass does -> traced
    anew, or the function is traced at each call"""
    ask = WAYS[way]
    for base, (name, method) in itertools.product(FIRST, ASKED.items()):
        a, b, kind = asked(base, of_class)
        before = answer(ask, a, b)
        setattr(kind, name, method)
        after = answer(ask, a, b)
        if after == before or float not in (type(before), type(after)):
            continue
        a, b, kind = asked(base, of_class)
        df = grad(lambda x, a=a, b=b: x * float(ask(a, b)), compile="never")
        assert answer(df, 1.0) == before, (base, name)
        setattr(kind, name, method)
        assert answer(df, 1.0) == after, (base, name)


@pytest.mark.filterwarnings("ignore:.*utcnow.*:DeprecationWarning")  # from Python 3.12 on
def test_clocks_under_other_names():
    """`datetime.now()`, `date.today()`, `np.datetime64("now")` -> traced at each call"""
    for read in (
        datetime.datetime.now,
        datetime.date.today,
        lambda: np.datetime64("now"),
        datetime.datetime.utcnow,
    ):
        df = grad(lambda x, read=read: x * len(str(read())), compile="never")
        df(1.0), df(1.0)
        assert df.cache_info().traces == 2


def test_modules_that_are_replaced(monkeypatch):
    """`importlib.import_module` gives another module; a variable of a closure is bound later ->
    traced anew"""
    for scale in (2.0, 5.0):
        module = types.ModuleType("hostile_config")
        module.scale = scale
        monkeypatch.setitem(sys.modules, "hostile_config", module)
        if scale == 2.0:
            df = grad(lambda x: x * importlib.import_module("hostile_config").scale)
        assert df(1.0) == scale

    def f(x):
        try:
            return x * late
        except NameError:
            return x * 2.0

    df = grad(f, compile="never")
    assert df(1.0) == 2.0
    late = 5.0
    assert df(1.0) == 5.0


def test_names_of_classes(monkeypatch):
    """`__name__` and `__match_args__` of a class are set -> traced anew"""

    class Matched:
        __match_args__ = ("first",)
        first, second = 2.0, 5.0

    held = Matched()

    def f(x):
        match held:
            case Matched(scale):
                return x * scale * len(Matched.__name__)

    df = grad(f, compile="never")
    assert df(1.0) == 14.0
    Matched.__match_args__ = ("second",)
    assert df(1.0) == 35.0
    Matched.__name__ = "M"
    assert df(1.0) == 5.0


def test_objects_of_the_run_are_freed():
    """objects that the function makes, or that are deleted afterwards -> they are freed"""
    seen, held = weakref.WeakSet(), Box(scale=2.0)
    reference = weakref.ref(held)

    def f(x):
        made = Box(scale=3.0)
        seen.add(made)
        return x * made.scale * (1.0 if reference() is None else reference().scale)

    df = grad(f, compile="never")
    gc.disable()
    try:
        assert df(1.0) == 6.0
        assert not seen
        del held
        assert reference() is None
    finally:
        gc.enable()
    assert df(1.0) == 3.0


def test_a_tracer_of_the_functions_own():
    """the function itself calls `sys.settrace` -> it has what it set when it is over"""

    def watch(frame, event, arg):
        return None

    def f(x):
        sys.settrace(watch)
        return 2 * x

    before = sys.gettrace()
    try:
        assert grad(f, compile="never")(1.0) == 2.0
        assert sys.gettrace() is watch
    finally:
        sys.settrace(before)


@contextlib.contextmanager
def nothing():
    yield 1.0


@functools.singledispatch
def dispatched(x):
    return 1.0


def decorated(f):
    @functools.wraps(f)
    def wrapper(*args, **kwargs):
        return f(*args, **kwargs)

    return wrapper


@decorated
def doubled(x):
    return 2 * x


@pytest.mark.parametrize(
    "f",
    [
        lambda x: 2 * x if x.dtype == np.float64 else x,
        functools.partial(lambda k, x: k * x, 2.0),
        lambda x: doubled(x),
        lambda x: dispatched("a") * x,
        lambda x: x * len(Kind("one").value),
        lambda x: logging.getLogger("tapegrad").debug("x") or 2 * x,
        lambda x: x * sum(k for k in range(3)),
        lambda x: x * len(sorted({"b": 1, "a": 2}.items(), key=lambda item: item[1])),
        lambda x: x * np.linalg.norm(np.ones(3)),
        lambda x: x * Keyed(scale=2.0).scale,
    ],
)
def test_ordinary_programs_are_traced_once(f):
    """ordinary programs: decorators, partials, logging, enums, generators -> nothing is traced anew
    once their caches are filled"""
    df = grad(f, compile="never")
    for _ in range(2):
        df(np.float64(1.0))
    traces = df.cache_info().traces
    for _ in range(3):
        df(np.float64(1.0))
    assert df.cache_info().traces == traces


def test_context_managers_are_traced_once():
    """a context manager made of a generator, and `np.errstate` -> nothing is traced anew"""

    def f(x):
        with nothing() as one, np.errstate(all="ignore"):
            return one * np.log(x)

    df = grad(f, compile="never")
    for k in range(3):
        df(k + 1.0)
    assert df.cache_info().traces == 1


@pytest.mark.parametrize("name", ["a b", "class", "x1", "{}", "é", "ﬁ", "x = 1", "'x2'", "__k"])
def test_names_that_are_no_names(name):
    """attributes, keys and keywords of any name -> traced anew"""
    held, table = Box(), {}

    def f(x):
        x1 = getattr(held, name)
        return x * len(x1) * table[name] * (lambda **kw: kw[name])(**table) * table.get("x1", 1.0)

    df = grad(f, compile="never")
    for value in ("ab", "abcde"):
        setattr(held, name, value)
        table[name] = 3.0
        for _ in range(2):
            assert df(1.0) == len(value) * 9.0 * (3.0 if name == "x1" else 1.0)
    assert df.cache_info().traces == 2
