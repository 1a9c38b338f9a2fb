"""xarray's DataArrays and Datasets as arguments: its own code runs on traced arrays."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from tapegrad import grad, hvp, jacobian, jit, value_and_grad, vmap
from tapegrad.errors import ArgumentError

xr = pytest.importorskip("xarray")

MODES = pytest.mark.parametrize("mode", ["never", "always"])


def temperatures(seed=0, **attrs):
    values = np.random.default_rng(seed).normal(size=(6, 3)) + 2.0
    return xr.DataArray(
        values,
        dims=("time", "lat"),
        coords={
            "time": pd.date_range("2020-01-01", periods=6, freq="MS"),
            "lat": [10.0, 20.0, 30.0],
            "height": ("lat", [1.0, 2.0, 3.0]),
        },
        name="T",
        attrs={"units": "K", **attrs},
    )


def differences(f, x, h=1e-5):
    found = np.zeros(x.shape)
    for i in np.ndindex(*x.shape):
        a, b = x.copy(), x.copy()
        a.values[i], b.values[i] = a.values[i] + h, b.values[i] - h
        found[i] = (float(f(a)) - float(f(b))) / (2 * h)
    return found


def seasonal_means(t):
    """Means of seasons, in which months weigh by their days."""
    days = t.time.dt.days_in_month
    weights = days.groupby("time.season") / days.groupby("time.season").sum()
    return (t * weights).groupby("time.season").sum(dim="time")


def area_mean(t):
    """A mean over the globe: rows weigh by the cosine of their latitude."""
    return t.weighted(np.cos(np.deg2rad(t.lat))).mean("lat")


def anomalies(t):
    """What is left without the cycle of the year, in units of its spread."""
    monthly = t.groupby("time.month")
    return (monthly - monthly.mean("time")) / t.std("time")


PROGRAMS = {
    "seasons": lambda t: (seasonal_means(t) ** 2).sum().item(),
    "area": lambda t: (area_mean(t) ** 2).sum().item(),
    "anomalies": lambda t: (
        (anomalies(t.isel(time=slice(0, 5))) ** 2).sum().item() + (t - t.mean("time")).std().item()
    ),
    "labels": lambda t: (t.sel(lat=20.0) * t.sel(time="2020-03")).sum().item(),
    "slices": lambda t: (t.sel(lat=slice(10.0, 20.0)) ** 2).mean().item(),
    "aligned": lambda t: (t * t.sel(lat=[20.0, 30.0]) * t.height).sum().item(),
    "where": lambda t: t.where(t > 2.0).mean(skipna=True).item(),
    "windows": lambda t: (t.rolling(time=2).mean() ** 2).sum().item(),
    "coarse": lambda t: (t.coarsen(time=2).mean() ** 2).sum().item(),
    "products": lambda t: xr.dot(t, t, dim="lat").mean().item(),
    "concatenated": lambda t: (xr.concat([t, 2 * t], "copy") ** 2).sum().item(),
    "written": lambda t: (written(t) ** 2).sum().item(),
    "numpy": lambda t: np.sum(np.tanh(t).values * t.to_numpy()),
    "derivative": lambda t: (t.differentiate("lat") ** 2).integrate("lat").sum().item(),
    "ufunc": lambda t: (
        xr.apply_ufunc(lambda v: v @ np.ones(3), t, input_core_dims=[["lat"]]).prod().item()
    ),
}


def written(t):
    t = t.copy()
    t.loc[{"lat": 20.0}] = 5.0
    return t


@pytest.mark.every(8)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_run_as_they_are(name):
    f, t = PROGRAMS[name], temperatures()
    value, gradient = value_and_grad(f)(t)
    np.testing.assert_allclose(value, f(t), rtol=1e-12)
    np.testing.assert_allclose(gradient.values, differences(f, t), rtol=1e-6, atol=1e-7)
    assert xr.zeros_like(gradient).identical(xr.zeros_like(t))  # labels, name and attributes


@MODES
def test_calls_with_other_labels_are_told_apart(mode):
    f = value_and_grad(
        lambda t: (t.sel(lat=20.0) * t.attrs.get("factor", 1.0)).sum().item(), compile=mode
    )
    t = temperatures()
    assert np.isclose(f(t)[0], t.values[:, 1].sum())
    moved = t.assign_coords(lat=[20.0, 30.0, 40.0])
    value, gradient = f(moved)
    assert np.isclose(value, t.values[:, 0].sum()) and gradient.lat.equals(moved.lat)
    assert np.isclose(f(temperatures(factor=3.0))[0], 3 * t.values[:, 1].sum())
    assert np.isclose(f(2 * t)[0], 2 * t.values[:, 1].sum())
    height = jit(lambda t: t * t.height, compile=mode)
    xr.testing.assert_identical(height(t), t * t.height)
    t.coords["height"].values[0] = 7.0
    xr.testing.assert_identical(height(t), t * t.height)


def test_equal_labels_are_not_traced_again():
    traced = []

    @grad
    def f(t):
        traced.append(1)
        return (t**2).sum().item()

    f(temperatures(0))
    count = len(traced)
    xr.testing.assert_identical(f(temperatures(1)), 2 * temperatures(1).assign_attrs(units="K"))
    assert len(traced) == count or f.cache_info().misses == 1


@MODES
def test_datasets(mode):
    t = temperatures()
    data = xr.Dataset(
        {"t": t, "p": 3 * t, "n": ("time", np.arange(6)), "name": "station"}, attrs={"k": 1}
    )

    def f(d):
        assert d.name.item() == "station"
        return (d.t * d.p * d.n).sum().item()

    value, gradient = value_and_grad(f, compile=mode)(data)
    assert np.isclose(value, f(data))
    assert isinstance(gradient, xr.Dataset) and gradient.attrs == {"k": 1} and "n" not in gradient
    xr.testing.assert_allclose(gradient.t, 3 * t * data.n)
    mean = jit(lambda d: d[["t", "p"]].mean("time"), compile=mode)
    xr.testing.assert_identical(mean(data), data[["t", "p"]].mean("time"))


def test_other_transformations():
    t = temperatures()

    def f(t):
        return (t**3).sum().item()

    np.testing.assert_allclose(hvp(f)(t, xr.ones_like(t)).values, 6 * t.values)
    rows = vmap(grad(lambda w, t: (w * t**2).sum().item()), in_axes=(0, None))(np.ones(2), t)
    assert rows.shape == (2,)
    with pytest.raises(ArgumentError, match=r"would get numbers of shape .* pass x.values"):
        jacobian(lambda t: t.values[:, 0])(t)


def test_captured_arrays_are_what_they_are_at_the_call():
    t = temperatures()
    df = grad(lambda w: (w * t.sel(lat=20.0)).sum().item())
    assert np.isclose(df(1.0), t.values[:, 1].sum())
    t.values[:] = 2.0
    assert np.isclose(df(1.0), 12.0)


def test_a_trace_that_is_made_again_finds_what_it_has_noted():
    """In the code of several hundred functions, of which only some were kept in mind."""
    t = temperatures().isel(time=slice(0, 2), lat=slice(0, 2))

    def warming(t):
        mean = t.weighted(np.cos(np.deg2rad(t.lat))).mean("lat")
        return (mean.isel(time=1) - mean.sel(time="2020-01-01")).item()

    weights = np.cos(np.deg2rad(t.lat.values))
    weights = weights / weights.sum()
    np.testing.assert_allclose(grad(warming)(t).values, np.outer([-1.0, 1.0], weights))


RESULTS = {
    "array": lambda t: t * 2.0,
    "reduced": lambda t: (t**2).mean("lat"),
    "relabelled": lambda t: t.assign_coords(city=("lat", ["a", "b", "c"])) + 1.0,
    "dataset": lambda t: xr.Dataset({"a": t, "b": t.sum("time")}, attrs={"made": "here"}),
    "two": lambda t: (t.isel(time=0), {"rest": t.isel(time=slice(1, None))}),
}


@MODES
@pytest.mark.parametrize("name", RESULTS)
def test_results_with_labels_are_traced_once(name, mode):
    g = jit(RESULTS[name], compile=mode)
    for k in range(4):
        for found, right in zip(
            as_tuple(g(temperatures(k))), as_tuple(RESULTS[name](temperatures(k))), strict=True
        ):
            xr.testing.assert_identical(found, right)
    assert g.cache_info().traces == 1


def as_tuple(x):
    return (x[0], x[1]["rest"]) if isinstance(x, tuple) else (x,)


@MODES
def test_a_result_is_the_callers_to_change(mode):
    """Changes of one call's result aren't seen in the next one's."""

    def f(t):
        return t.assign_coords(city=("lat", ["a", "b", "c"])) * 2.0

    g = jit(f, compile=mode)
    for _ in range(3):
        x = g(temperatures())
        xr.testing.assert_identical(x, f(temperatures()))
        x.attrs["units"] = "C"
        x.city.values[0] = "z"
        x.city.attrs["of"] = "z"
        x.name = "z"
        del x.coords["time"]
        x.coords["lat"] = [1.0, 2.0, 3.0]
        x.values[:] = 0.0
    assert g.cache_info().traces == 1


def test_labels_that_can_change_are_named_in_the_warning():
    """An attribute that holds a list is a new list at each call."""
    g = jit(lambda t: (t * 2.0).assign_attrs(steps=[1, 2]))
    with pytest.warns(RuntimeWarning, match="a DataArray with the dimensions .* among the results"):
        for k in range(4):
            steps = g(temperatures(k)).attrs["steps"]
            assert steps == [1, 2]
            steps.append(3)
