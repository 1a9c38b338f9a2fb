"""Captured state"""

from __future__ import annotations

import collections
import functools
import types
from dataclasses import dataclass

import numpy as np
import pytest

from tapegrad import cache_info, grad, jit, simplegrad, value_and_grad, vjp

X = np.array([1.0, 2.0])
SCALE = 2.0
TABLE = {"weights": [1.5, np.array([2.0, 3.0])], "on": True}


def test_an_array_that_is_changed_in_place(derivative):
    """a closed-over array is changed in place -> read at each call, nothing is traced anew"""
    w = np.array([3.0, 4.0])
    df = derivative(lambda x: np.sum(w * x**3))
    df.at(X)
    w[0] = 7.0
    df.at(X)
    if df.how != "nested":
        assert df.d.cache_info().traces == 1


def test_an_array_that_meets_no_traced_value(derivative):
    """the same, where plain NumPy computes with the array (`x / w.max()`) -> traced anew"""
    w = np.array([3.0, 4.0])
    df = derivative(lambda x: np.sum(w * x**3) / w.max())
    df.at(X)
    w[:] = [1.0, 9.0]
    df.at(X)


def test_a_large_array_that_meets_no_traced_value(derivative):
    """the same, a large array and one element -> traced anew"""
    w = np.ones(100_000)
    df = derivative(lambda x: np.sum(x**3) * w.sum())
    df.at(X)
    w[77_777] = -5e4
    df.at(X)


def test_a_branch_on_an_array_that_is_changed_in_place(derivative):
    """a branch on a closed-over array, whose tenth change flips it -> traced anew"""
    w = np.array([1.0, 2.0])
    df = derivative(lambda x: np.sum(w * x**2) if w[0] < 10 else -np.sum(w * x**3))
    for k in range(1, 13):
        w[0] = k
        if k in (1, 2, 10, 12):
            df.at(X)


def test_a_view_of_an_array_that_is_changed(derivative):
    """the base of a closed-over view is changed -> read at each call"""
    base = np.arange(6.0).reshape(3, 2)
    row = base[1]
    df = derivative(lambda x: np.sum(row * x**2) + np.sum(base[2:] * x))
    df.at(X)
    base += 1.0
    df.at(X)


def test_an_array_that_is_rebound(derivative):
    """a closed-over array is rebound, to another shape too -> traced anew"""
    w = np.array([3.0, 4.0])
    df = derivative(lambda x: np.sum(w * x**3))
    df.at(X)
    w = np.array([5.0, 6.0])
    df.at(X)
    w = np.array([[5.0], [7.0], [1.0]])
    df.at(X)
    w = np.array([2, 3])
    df.at(X)


def scaled(x):
    return SCALE * np.sum(x**3)


def helped(x):
    return scaled(x) + np.sum(x)


def test_a_global(derivative, monkeypatch):
    """a global number is rebound, in a function that the function calls too -> traced anew"""
    df = derivative(helped)
    df.at(X)
    monkeypatch.setitem(globals(), "SCALE", -3.0)
    df.at(X)


def test_a_global_function(derivative, monkeypatch):
    """a global function is replaced -> traced anew"""
    df = derivative(helped)
    df.at(X)
    monkeypatch.setitem(globals(), "scaled", lambda x: np.sum(np.sin(x)))
    df.at(X)


def test_a_numpy_function_by_another_name(derivative):
    """a closed-over NumPy function is replaced by another -> traced anew"""
    act = np.tanh
    df = derivative(lambda x: np.sum(act(x)))
    df.at(X)
    act = np.sin
    df.at(X)


def test_a_constant_of_a_module(derivative, tmp_path):
    """a constant of a module of yours is changed -> traced anew"""
    config = types.ModuleType("config")
    config.__file__ = str(tmp_path / "config.py")
    config.power = 2
    df = derivative(lambda x: np.sum(x**config.power))
    df.at(X)
    config.power = 3
    df.at(X)


class Layer:
    def __init__(self, gain):
        self.gain = gain

    def __call__(self, x):
        return self.gain * x**3


class Model:
    kind = "cubic"

    def __init__(self):
        self.rate = 2.0
        self.weights = np.array([1.0, 3.0])
        self.layers = [Layer(1.0), Layer(2.0)]
        self.options = {"bias": None, "nested": {"shift": 1.0, "by": np.array([0.5])}}
        self.seen = []

    @property
    def doubled(self):
        return 2 * self.rate

    def predict(self, x):
        return self.doubled * self.weights * x**2 + self.options["nested"]["shift"]

    def loss(self, x):
        y = self.predict(x) if self.kind == "cubic" else x
        for layer in self.layers:
            y = y + layer(x)
        if self.options["bias"] is not None:
            y = y + self.options["bias"] * x
        return np.sum(y * self.options["nested"]["by"])


def test_attributes_of_self(derivative):
    """attributes of `self` that a method, a property or another method reads -> traced anew"""
    model = Model()
    df = derivative(model.loss)
    df.at(X)
    model.rate = 5.0
    df.at(X)
    model.kind = "linear"
    df.at(X)


def test_arrays_of_self(derivative):
    """an array of `self` is changed in place, then rebound -> read anew, then traced anew"""
    model = Model()
    df = derivative(model.loss)
    df.at(X)
    model.weights[1] = -1.0
    df.at(X)
    model.weights = np.array([0.5, 0.25])
    df.at(X)


def test_objects_in_lists_and_dicts_of_self(derivative):
    """numbers and arrays in objects, lists and dicts that `self` holds -> traced anew"""
    model = Model()
    df = derivative(model.loss)
    df.at(X)
    model.layers[1].gain = 4.0
    df.at(X)
    model.layers.append(Layer(-1.0))
    df.at(X)
    model.options["bias"] = 0.5
    df.at(X)
    model.options["nested"]["shift"] = -2.0
    df.at(X)
    model.options["nested"]["by"][0] = 3.0
    df.at(X)


def test_attributes_of_closed_over_objects(derivative):
    """attributes of a closed-over object -> traced anew"""
    model = Model()
    df = derivative(lambda x: model.loss(x) + np.sum(x * model.rate))
    df.at(X)
    model.rate = -1.0
    df.at(X)


def test_attributes_whose_names_are_computed(derivative):
    """`getattr(self, name)` and `vars(self)[name]` -> traced anew"""
    model = Model()
    df = derivative(lambda x: np.sum(x**2 * getattr(model, "ra" + "te") * vars(model)["rate"]))
    df.at(X)
    model.rate = -1.0
    df.at(X)


def test_slots_and_class_attributes(derivative):
    """slots, and attributes of the class -> traced anew"""

    class Scaler:
        __slots__ = ("factor",)
        offset = 1.0

        def __call__(self, x):
            return np.sum(self.factor * x**2 + self.offset * x)

    scaler = Scaler()
    scaler.factor = 1.0
    df = derivative(scaler)
    df.at(X)
    scaler.factor = 2.0
    df.at(X)
    Scaler.offset = -1.0
    df.at(X)


def test_a_method_that_is_replaced(derivative, monkeypatch):
    """a method of a class is replaced -> traced anew"""
    model = Model()
    df = derivative(model.loss)
    df.at(X)
    monkeypatch.setattr(Model, "predict", lambda self, x: np.sin(x))
    df.at(X)


def test_globals_in_containers(derivative, monkeypatch):
    """what a global dict holds, nested -> traced anew"""
    df = derivative(
        lambda x: np.sum(x**2 * TABLE["weights"][1]) * TABLE["weights"][0] if TABLE["on"] else x[0]
    )
    df.at(X)
    monkeypatch.setitem(TABLE, "weights", [0.5, np.array([1.0, -1.0])])
    df.at(X)
    monkeypatch.setitem(TABLE, "on", False)
    df.at(X)


@pytest.mark.parametrize(
    "box, change",
    [
        ({1.0, 2.0}, lambda box: box.add(5.0)),
        (collections.deque([1.0, 2.0]), lambda box: box.append(5.0)),
        (bytearray(b"ab"), lambda box: box.append(1)),
        (collections.OrderedDict(a=1.0), lambda box: box.update(b=7.0)),
    ],
    ids=lambda v: type(v).__name__,
)
def test_other_containers(derivative, box, change):
    """sets, deques, byte arrays, dicts whose keys change -> traced anew"""
    df = derivative(lambda x: np.sum(x**2) * len(box))
    df.at(X)
    change(box)
    df.at(X)


def test_an_iterator(derivative):
    """a closed-over iterator is drawn from -> each call takes its next value"""
    numbers = iter([1.0, 2.0, 3.0, 4.0])
    df = grad(lambda x: np.sum(x) * next(numbers), compile="never")
    assert [df(X)[0] for _ in range(3)] == [1.0, 2.0, 3.0]
    assert df.cache_info().traces == 1


def test_partial(derivative):
    """arguments of functools.partial, changed in place -> traced anew"""
    options = {"power": 2, "shift": np.array([1.0])}

    def f(options, x, *, gain):
        return np.sum((x + options["shift"]) ** options["power"]) * gain[0]

    gain = [2.0]
    df = derivative(functools.partial(f, options, gain=gain))
    df.at(X)
    options["power"] = 3
    df.at(X)
    options["shift"][0] = 2.0
    df.at(X)
    gain[0] = -1.0
    df.at(X)


def test_lambdas_made_in_a_loop(derivative):
    """lambdas made in a loop, by a shared variable or by defaults -> each its own"""
    shared = [derivative(lambda x: np.sum(x**2) * k) for k in (1.0, 2.0)]  # noqa: B023
    own = [derivative(lambda x, k=k: np.sum(x**2) * k) for k in (1.0, 2.0)]
    for df in (*shared, *own):
        df.at(X)
    np.testing.assert_array_equal([df.f(X) for df in (*shared, *own)], [10.0, 10.0, 5.0, 10.0])


def test_default_arguments(derivative):
    """default arguments, changed in place or replaced -> traced anew"""

    def f(x, weights=[1.0, 2.0], *, shift=np.array([1.0])):  # noqa: B006, B008
        return np.sum((x + shift) ** 2) * weights[0]

    df = derivative(f)
    df.at(X)
    f.__defaults__[0][0] = 3.0
    df.at(X)
    f.__kwdefaults__["shift"][0] = 5.0
    df.at(X)
    f.__defaults__ = ([7.0],)
    df.at(X)


def test_keyword_arguments():
    """keyword arguments that change, numbers, strings and objects -> as in plain NumPy"""
    layer = Layer(2.0)

    def f(x, *, power=2, how="sum", layer=None):
        y = np.sum(x**power) if how == "sum" else np.mean(x**power)
        return y if layer is None else y + np.sum(layer(x))

    df = grad(f, compile="never")
    np.testing.assert_allclose(df(X), 2 * X)
    np.testing.assert_allclose(df(X, power=3), 3 * X**2)
    np.testing.assert_allclose(df(X, how="mean"), X)
    np.testing.assert_allclose(df(X, layer=layer), 2 * X + 6 * X**2)
    layer.gain = 3.0
    np.testing.assert_allclose(df(X, layer=layer), 2 * X + 9 * X**2)
    np.testing.assert_allclose(df(X, power=3, how="mean"), 3 * X**2 / 2)


def test_static_arguments(derivative):
    """strings, booleans and None as arguments change -> traced anew for each"""

    def f(x, how, negate, shift):
        y = np.sum(x**2) if how == "square" else np.sum(np.sin(x))
        y = y if shift is None else y + np.sum(x * shift)
        return -y if negate else y

    df = derivative(f)
    for args in (
        ("square", False, None),
        ("sin", False, None),
        ("sin", True, None),
        ("sin", True, 2.0),
        ("square", False, X),
        ("square", False, None),
    ):
        df.at(X, *args)


def test_objects_as_arguments(derivative):
    """an object is passed, and its attributes change, or another equal one is passed -> right"""

    class Always(Layer):
        def __eq__(self, other):
            return True

        def __hash__(self):
            return 0

    df = derivative(lambda x, layer: np.sum(layer(x)))
    layer = Layer(2.0)
    df.at(X, layer)
    layer.gain = 3.0
    df.at(X, layer)
    df.at(X, Always(4.0))
    df.at(X, Always(5.0))


def test_numbers_where_arrays_were(derivative):
    """a number where an array was, an int where a float was -> traced anew"""
    df = derivative(lambda x, k: np.sum(x**2 * k))
    for k in (2.0, np.array([1.0, 3.0]), 3, np.float32(2.0), np.array([[1.0], [2.0]]), True, 2.0):
        df.at(X, k)


def test_dictionaries_whose_keys_change(derivative):
    """dictionaries whose keys change, or come in another order -> right, in their own order"""

    def f(p):
        return sum(np.sum((k + 1.0) * v**2) for k, v in enumerate(p.values()))

    df = derivative(f)
    a, b = np.array([1.0, 2.0]), np.array([3.0])
    df.at({"a": a, "b": b})
    df.at({"b": b, "a": a})
    df.at({"a": a})
    df.at({"a": a, "b": b, "c": 2.0})


@dataclass
class Settings:
    power: int
    weights: np.ndarray


def test_dataclasses(derivative):
    """a closed-over dataclass is changed -> traced anew"""
    settings = Settings(2, np.array([1.0, 2.0]))
    df = derivative(lambda x: np.sum(settings.weights * x**settings.power))
    df.at(X)
    settings.power = 3
    df.at(X)
    settings.weights[0] = 5.0
    df.at(X)


def test_dataclasses_that_are_compared(derivative):
    """a closed-over dataclass is compared, hashed, shown or found in a list, and one of its fields,
    which stand nowhere in the code, changes -> traced anew"""

    @dataclass(unsafe_hash=True)
    class Point:
        place: int
        name: str

        def is_other(self, other):
            return self != other

    origin, point, places = Point(0, "a"), Point(0, "a"), {Point(0, "a"): 2.0}
    for f in [
        lambda x: np.sum(x**2) if point == origin else np.sum(x**3),
        lambda x: np.sum(x**2) if point in [origin] else np.sum(x**3),
        lambda x: np.sum(x**2) * places.get(point, 3.0),
        lambda x: np.sum(x**2) if str(point) == str(origin) else np.sum(x**3),
        lambda x: np.sum(x**2) if point.is_other(origin) else np.sum(x**3),
    ]:
        df = derivative(f)
        df.at(X)
        point.place = 1
        df.at(X)
        point.place = 0
        df.at(X)


def test_a_derivative_inside(derivative):
    """state of a function whose derivative is taken inside -> traced anew"""
    gain = 2.0

    def inner(x):
        return gain * np.sum(x**4)

    dinner = grad(inner)
    df = derivative(lambda x: np.sum(dinner(x)))
    df.at(X, gradient=2.0 * 12 * X**2)
    gain = -1.0
    df.at(X, gradient=-1.0 * 12 * X**2)


def test_state_that_the_function_changes():
    """the function itself counts its calls -> traced at each call, as plain NumPy would run"""
    calls = 0

    def f(x):
        nonlocal calls
        calls += 1
        return calls * np.sum(x)

    df = value_and_grad(f, compile="never")
    assert [float(df(X)[0]) for _ in range(3)] == [3.0, 6.0, 9.0]


def test_state_seen_before():
    """a state that was seen before comes back -> its tape is used, nothing is traced anew"""
    gain = 1.0
    df = grad(lambda x: gain * np.sum(x), compile="never")
    for value in (1.0, 2.0, 1.0, 2.0, 1.0):
        gain = value
        np.testing.assert_array_equal(df(X), [gain, gain])
    assert df.cache_info().traces == 2


def test_state_that_keeps_changing():
    """a captured text is another at each call -> right, and a warning names it and the fix"""
    name = ""
    df = grad(lambda x: len(name) * np.sum(x), compile="never")
    with pytest.warns(RuntimeWarning, match=r"'name'.*Pass it as an argument"):
        for step in range(20):
            name = "a" * step
            np.testing.assert_array_equal(df(X), [step, step])


def test_two_functions_from_one_text():
    """two functions made by one `def`, with other closures -> each its own cache"""

    def make(k):
        return lambda x: np.sum(x) * k

    first, second = make(1.0), make(2.0)
    assert [grad(f)(X)[0] for f in (first, second, first)] == [1.0, 2.0, 1.0]
    assert cache_info(first).traces == cache_info(second).traces == 1


def test_jit_and_vjp():
    """jit and vjp of a function whose state changes -> as grad"""
    gain = 2.0

    def f(x):
        return gain * x

    run = jit(f, compile="never")
    for value in (2.0, 5.0):
        gain = value
        np.testing.assert_array_equal(run(X), gain * X)
        np.testing.assert_array_equal(vjp(f, X)[1](X)[0], gain * X)


def test_simplegrad_is_for_one_state():
    """simplegrad of a function whose state changes -> its result is for that state"""
    gain = 2.0

    def f(x):
        return gain * np.sum(x)

    made = simplegrad(f, X)
    gain = 3.0
    np.testing.assert_array_equal(made(X)[1], [2.0, 2.0])
    np.testing.assert_array_equal(simplegrad(f, X)(X)[1], [3.0, 3.0])


def test_simplegrad_is_for_some_arguments():
    """simplegrad's result is called with another string or boolean, or a dict with other keys ->
    error that says what it was made for"""

    def f(p, how, twice):
        total = sum(np.sum(x) for x in p.values())
        return (np.sin(total) if how == "sin" else np.cos(total)) * (2 if twice else 1)

    p = {"a": X, "b": X}
    made = simplegrad(f, p, "sin", True)
    assert made(p, "sin", True)[0] == f(p, "sin", True)
    for args in [
        (p, "cos", True),
        (p, "sin", False),
        ({**p, "c": X}, "sin", True),
        ({}, "sin", True),
    ]:
        with pytest.raises(ValueError, match="this function was made for"):
            made(*args)


def test_state_behind_a_method_that_a_method_is_bound_to():
    """a method is bound to another object's method, and that object's state changes -> traced
    anew"""

    class Model:
        scale = 1.0

        def loss(self, x):
            return self.scale * np.sum(x**2)

    model = Model()
    slope = jit(types.MethodType(lambda f, x: grad(f)(x), model.loss))
    for model.scale in (1.0, 3.0):
        np.testing.assert_array_equal(slope(np.ones(2)), [2 * model.scale] * 2)
