"""What arguments carry along, and what results do"""

from __future__ import annotations

import functools
from collections import OrderedDict, namedtuple
from dataclasses import dataclass, field

import numpy as np
import pytest

from tapegrad import grad, jit, register_tree, simplegrad, value_and_grad
from tapegrad.errors import ArgumentError, LeakedTracerError


@dataclass
class Model:
    w: np.ndarray
    scale = 1.0  # no annotation, so it is no field

    @functools.cached_property
    def norm(self):
        return float(np.sum(self.w**2))


@dataclass
class Started:
    w: np.ndarray
    n = 2.0

    def __post_init__(self):
        self.n = 3.0


@dataclass
class Slotted(Model):
    __slots__ = ("factor",)
    shift: float = 0.5


class Point(namedtuple("Plain", "a b")):
    """Doubles what it is made of."""

    def __new__(cls, a, b):
        return super().__new__(cls, a, b * 2)


def ones(**attributes):
    model = Model(np.ones(2))
    for name, value in attributes.items():
        setattr(model, name, value)
    return model


def weighed(model):
    return np.sum(model.w) * model.scale


@pytest.mark.parametrize("compile", ["never", "always"])
def test_attributes_that_are_no_fields(compile):
    """a dataclass or named tuple argument has attributes that are no fields -> the function finds
    them, and a change is noticed"""
    df = value_and_grad(weighed, compile=compile)
    model = ones(scale=5.0)
    for scale in (5.0, 6.0, True, 2, 6.0):
        model.scale = scale
        value, gradient = df(model)
        assert value == 2.0 * scale
        np.testing.assert_array_equal(gradient.w, np.full(2, float(scale)))
    del model.scale
    assert df(model)[0] == 2.0
    point = Point(2.0, 1.5)
    point.more = 3.0
    g = jit(lambda p: p.a * p.b * p.more, compile=compile)
    for more in (3.0, 4.0):
        point.more = more
        assert g(point) == 6.0 * more


def test_objects_among_them():
    """such an attribute is an array, a list or a dict -> what it holds is compared"""
    model = ones(scale=np.array([1.0, 2.0]), names={"k": [1.0]})
    g = jit(lambda m: np.sum(m.w * m.scale) * m.names["k"][0], compile="never")
    assert g(model) == 3.0
    model.scale[0] = 5.0
    assert g(model) == 7.0
    model.names["k"][0] = 2.0
    assert g(model) == 14.0
    model.names = {"k": [3.0]}
    assert g(model) == 21.0


def test_what_has_been_set_while_it_was_made():
    """`__init__`, `__post_init__` or a cached property has set attributes -> they are as they were
    set, and nothing is run twice"""
    assert grad(lambda s: np.sum(s.w) * s.n)(Started(np.ones(2))).w.tolist() == [3.0, 3.0]
    model = ones()
    assert model.norm == 2.0
    model.w = np.full(2, 3.0)
    assert jit(lambda m: np.sum(m.w) * m.norm)(model) == 12.0
    slotted = Slotted(np.ones(2))
    slotted.factor = 7.0
    assert jit(lambda s: np.sum(s.w) * s.factor * s.shift)(slotted) == 7.0
    point = Point(2.0, 3.0)
    value, gradient = value_and_grad(lambda p: p.a * p.b)(point)
    assert (value, *gradient) == (12.0, 6.0, 2.0)
    assert tuple(jit(lambda p: p)(point)) == (2.0, 6.0)


def test_they_come_back():
    """a dataclass is returned -> with its attributes"""
    made = jit(lambda m: m, compile="never")(ones(scale=5.0))
    assert made.scale == 5.0
    made = grad(weighed, compile="never")(ones(scale=5.0))
    assert made.scale == 5.0


def test_traced_values_in_other_objects():
    """a result holds traced values where nobody takes it apart -> refused"""

    class Result:
        def __init__(self, v):
            self.v = [v]

    def noted(model):
        model.total = np.sum(model.w)
        return model

    with pytest.raises(LeakedTracerError, match="returns a Result, which holds a traced value"):
        jit(lambda x: Result(x * 2))(1.0)
    with pytest.raises(
        LeakedTracerError, match="returns a Model with a 'total', which holds a traced value"
    ):
        jit(noted)(ones())


def test_what_cannot_carry():
    """attributes of an OrderedDict, fields that are descriptors, `simplegrad` of an argument with
    attributes that are no fields -> refused"""

    class Doubled:
        def __get__(self, x, owner=None):
            return 2 * x._a if x is not None else 0.0

        def __set__(self, x, value):
            x._a = value

    @dataclass
    class Odd:
        a: float = Doubled()

    given = OrderedDict(a=1.0)
    given.more = 2.0
    with pytest.raises(ArgumentError, match="an OrderedDict has attributes of its own"):
        jit(lambda d: d["a"] * d.more)(given)
    with pytest.raises(ArgumentError, match="the field 'a' of Odd is a Doubled"):
        jit(lambda d: d.a * 1.0)(Odd(3.0))
    with pytest.raises(ArgumentError, match="argument 'model' holds a Model"):
        simplegrad(weighed, ones(scale=5.0))


def test_counts_among_the_fields():
    """a field with `init=False` holds an integer or a text -> carried along, and compared"""

    @dataclass
    class Counted:
        w: float
        count: int = field(init=False, default=1)

    counted = Counted(2.0)
    df = grad(lambda c: c.w * c.count, compile="never")
    assert df(counted).w == 1.0
    counted.count = 4
    assert df(counted).w == 4.0


class Settings:
    rate = 3.0


@register_tree(static=("settings", "options"))
@dataclass
class Static:
    w: np.ndarray
    settings: Settings
    options: list


class Kept:
    def __init__(self, w, settings):
        self.w, self.settings = w, settings


register_tree(Kept, lambda x: ([x.w], (x.settings,)), lambda rest, branches: Kept(*branches, *rest))


@pytest.mark.parametrize("compile", ["never", "always"])
def test_what_registered_classes_keep(compile):
    """a static field of a registered class, or what its own functions keep besides the branches,
    changes, in place too -> traced anew"""

    def f(x):
        return np.sum(x.w) * x.settings.rate * len(getattr(x, "options", "1"))

    settings, options = Settings(), [1]
    df = grad(f, compile=compile)
    for _ in range(2):
        assert df(Static(np.ones(2), settings, options)).w[0] == settings.rate * len(options)
        assert df(Kept(np.ones(2), settings)).w[0] == settings.rate
        settings.rate = 5.0
        options.append(2)
    assert df(Kept(np.ones(2), Settings())).w[0] == 3.0


def test_what_can_change_without_notice_is_a_branch():
    """functions of a registered class keep a list, dict or array besides the branches
    -> refused"""

    class Own(Kept):
        pass

    for kept in ([1.0], {}, np.ones(2)):
        register_tree(Own, lambda x, kept=kept: ([x.w], kept), lambda rest, b: Own(*b, rest))
        with pytest.raises(ArgumentError, match="which can change without notice"):
            grad(lambda x: np.sum(x.w), compile="never")(Own(np.ones(2), None))


def test_a_cached_property_that_is_dropped_is_kept_again():
    """a cached property that the function keeps is dropped between calls -> the next call computes
    it, and keeps it again"""

    class Model:
        scale = 2.0

        @functools.cached_property
        def table(self):
            return np.arange(3.0) * self.scale

    def run(wrapped):
        model = Model()
        f, x = wrapped(lambda x: np.sum(model.table * x)), np.ones(3)
        found = [f(x), f(x)]
        for drop in (lambda: delattr(model, "table"), lambda: model.__dict__.pop("table")):
            drop()
            found += [f(x), "table" in vars(model)]
        model.scale = 5.0
        return [*found, f(x)]

    assert run(lambda f: jit(f, compile="never")) == run(lambda f: f)
