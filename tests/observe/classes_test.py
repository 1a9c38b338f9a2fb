"""Classes that a function makes are its own: later calls need no other trace for them, and what
goes into them from outside is seen."""

from __future__ import annotations

import abc
import dataclasses
import enum
import typing

import numpy as np
import pytest

from tapegrad import grad

X = np.array([1.0, 2.0])
RATE = 2.0


def a_dataclass(x):
    @dataclasses.dataclass(order=True)
    class Law:
        rate: object
        factor: float = RATE

        def __post_init__(self):
            self.both = self.rate * self.factor

    return Law(x[0]).both * x[1]


def one_made_by_name(x):
    law = dataclasses.make_dataclass("Law", ["rate", ("factor", float, RATE)])(x[0])
    return law.rate * law.factor * x[1]


def an_enum(x):
    class Kind(enum.Enum):
        FIRST = 1.0
        SECOND = RATE

    return np.sum(x**2) * Kind.SECOND.value * len(Kind)


def an_integer_enum(x):
    class Power(enum.IntEnum):
        SQUARE = 2
        OTHER = int(RATE) + 1

    return np.sum(x**Power.SQUARE) * Power(int(RATE) + 1)


def an_abstract_class(x):
    class Base(abc.ABC):
        rate = RATE

        @abc.abstractmethod
        def loss(self): ...

    class Law(Base):
        def loss(self):
            return self.rate * x[0] * x[1]

    return Law().loss()


def a_protocol(x):
    class Base(typing.Protocol):
        def loss(self): ...

    class Law(Base):
        def loss(self):
            return RATE * x[0] * x[1]

    return Law().loss()


def one_with_a_metaclass(x):
    class Meta(type):
        def __new__(meta, name, bases, names):
            names["rate"] = RATE
            made = super().__new__(meta, name, bases, names)
            made.factor = 2 * RATE
            return made

    class Law(metaclass=Meta):
        pass

    return Law.rate * Law.factor * np.sum(x**2)


class Registered:
    """Keeps all classes that derive from it."""

    kinds: typing.ClassVar[list] = []

    def __init_subclass__(cls):
        Registered.kinds.append(cls)
        cls.rate = RATE * len(Registered.kinds)


PROGRAMS = [
    *(a_dataclass, one_made_by_name, an_enum, an_integer_enum, an_abstract_class, a_protocol),
    one_with_a_metaclass,
]


def slope(f, x):
    steps = 1e-6 * np.eye(len(x))
    return np.array([(f(x + s) - f(x - s)) / 2e-6 for s in steps])


@pytest.mark.every(4)
@pytest.mark.parametrize("f", PROGRAMS)
def test_a_class_that_is_made_inside(f, monkeypatch):
    g = grad(f)
    for k in range(6):
        monkeypatch.setitem(globals(), "RATE", 2.0 + k // 3)
        assert np.allclose(g(X), slope(f, X))
    assert g.cache_info().traces <= 2


@pytest.mark.filterwarnings("ignore:grad_f was traced for three calls")
def test_a_base_class_of_the_outside_that_counts_them(monkeypatch):
    monkeypatch.setattr(Registered, "kinds", [])

    def f(x):
        class Law(Registered):
            pass

        return Law.rate * np.sum(x)

    g = grad(f)
    assert [g(X)[0] for _ in range(4)] == [2.0, 4.0, 6.0, 8.0]
