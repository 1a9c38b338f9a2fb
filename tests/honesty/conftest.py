"""The fixture that runs each promise in three ways, and an option that breaks the promises."""

import functools

import numpy as np
import pytest
from tests.honesty.check import Derivative


@pytest.fixture(params=["played", "compiled", "nested"])
def derivative(request):
    """Makes `Derivative`s: `derivative(f, argnums=0)`."""
    return functools.partial(Derivative, request.param)


@pytest.fixture(autouse=True)
def freeze(request, monkeypatch):
    """With `--freeze`: what tracers do that keep no promise. The first tape answers every call."""
    if not request.config.getoption("--freeze"):
        return
    from tapegrad.observe.observer import Observer
    from tapegrad.runtime import derived
    from tapegrad.tracing.outside import leaks
    from tapegrad.tracing.recording import trace

    capture = trace.Trace.capture

    def capture_as_it_is(self, outside, aval):
        if isinstance(outside, np.ndarray):
            outside = outside.copy()
        return capture(self, outside, aval)

    monkeypatch.setattr(trace.Trace, "guard", lambda *args: None)
    monkeypatch.setattr(trace.Trace, "capture", capture_as_it_is)
    monkeypatch.setattr(trace.Trace, "check_captured", lambda self: None)
    monkeypatch.setattr(derived, "State", lambda reads: None)
    monkeypatch.setattr(Observer, "refuse", lambda *args: None)
    monkeypatch.setattr(leaks, "check_leaks", lambda *args: None)


_failed = set()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    """With `--freeze`: a test of which one case fails needs no others."""
    report = yield
    if report.failed and item.config.getoption("--freeze"):
        _failed.add((item.path, item.originalname))
    return report


def pytest_runtest_setup(item):
    if (item.path, item.originalname) in _failed:
        pytest.skip("another case has failed")


def pytest_collection_modifyitems(items):
    """Tests that change something before each call are warned of it, as a user would be. The ways
    to run a promise are a sweep: the tests of a file take turns."""
    for item in items:
        if "honesty" in item.path.parts:
            item.add_marker(pytest.mark.filterwarnings("ignore:.*traced for three calls in a row"))
            if "derivative" in item.fixturenames and not item.get_closest_marker("every"):
                item.add_marker(pytest.mark.every(3))
