"""Models of pydantic's, which its code in C checks and writes out."""

from __future__ import annotations

import numpy as np
import pytest

from tapegrad import grad
from tapegrad.errors import ConversionError

pydantic = pytest.importorskip("pydantic")
pytest.importorskip("pydantic.dataclasses")
X = np.array([1.0, 2.0, 3.0])


def check(f, change, traces):
    g = grad(f, compile="never")
    for k in range(5):
        x = X * (k + 1)
        change(k)
        scale = f(x) / np.sum(x**2)
        change(k)
        np.testing.assert_allclose(g(x), 2 * x * scale, rtol=1e-13)
    assert g.cache_info().traces <= traces


class Inner(pydantic.BaseModel):
    weights: list[float] = pydantic.Field(default_factory=lambda: [1.0, 2.0])


class Model(pydantic.BaseModel):
    rate: float = 2.0
    inner: Inner = pydantic.Field(default_factory=Inner)


def test_a_model_that_the_function_makes():
    def f(x):
        model = Model.model_validate({"rate": 3, "inner": {"weights": [1, 4]}})
        return (
            np.sum(x**2) * Model(rate=2.0).rate * model.inner.weights[1] * len(model.model_dump())
        )

    check(f, lambda k: None, 1)


def test_a_model_of_the_outside_that_changes():
    model = Model()

    def change(k):
        model.rate = 1.0 + k
        model.inner.weights[0] = 2.0 + k

    def f(x):
        written = model.model_copy(update={"inner": model.inner}).model_dump()
        return np.sum(x**2) * written["rate"] * written["inner"]["weights"][0]

    with pytest.warns(RuntimeWarning, match="schemas_test.py"):
        check(f, change, 5)


def test_a_check_of_the_programs():
    scale = [1.0]

    class Checked(pydantic.BaseModel):
        rate: float

        @pydantic.field_validator("rate")
        @classmethod
        def scaled(cls, rate):
            return rate * scale[0]

    check(
        lambda x: np.sum(x**2) * Checked(rate=2.0).rate, lambda k: scale.__setitem__(0, k + 1.0), 2
    )


def test_an_array_in_a_model():
    class Holding(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
        x: np.ndarray

    check(lambda x: np.sum(Holding(x=x).x ** 2), lambda k: None, 1)


def test_attributes_that_are_checked_when_they_are_set():
    class Checked(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(validate_assignment=True)
        calls: float = 0.0

    model, plain = Checked(), Checked()

    def f(x, model):
        model.calls = model.calls + 1
        return np.sum(x**2) * model.calls

    g = grad(lambda x: f(x, model), compile="never")
    with pytest.warns(RuntimeWarning, match="schemas_test.py"):
        for _ in range(5):
            np.testing.assert_allclose(g(X), 2 * X * f(X, plain) / np.sum(X**2))
            assert model.calls == plain.calls


@pydantic.dataclasses.dataclass
class Kept:
    rate: float = 2.0


def test_a_dataclass_that_the_function_makes():
    check(lambda x: np.sum(x**2) * Kept(rate=3.0).rate, lambda k: None, 1)


@pytest.mark.filterwarnings("ignore:grad_.* was traced for three calls")
def test_a_model_of_numbers_that_are_passed():
    """They are plain in it, and guarded; an error if anything is differentiated by them."""

    def f(x, rate):
        model = Model(rate=2 * rate, inner={"weights": [rate, rate + 1]})
        return np.sum(x**2) * model.rate * sum(model.inner.weights)

    g = grad(f, compile="never")
    for rate in (1.5, 2.5, 1.5, 2.5):
        np.testing.assert_allclose(g(X, rate), 2 * X * f(X, rate) / np.sum(X**2))
    assert g.cache_info().traces == 2
    with pytest.raises(ConversionError, match="takes plain numbers"):
        grad(f, 1, compile="never")(X, 1.5)


@pytest.mark.parametrize("kind", [Model, Kept])
def test_a_model_that_is_passed_and_another_one_each_time(kind):
    g = grad(lambda x, model: np.sum(x**2) * model.rate, compile="never")
    for k in range(5):
        np.testing.assert_allclose(g(X, kind(rate=k)), 2 * X * k)
    assert g.cache_info().traces <= 2
