"""What all tests share: tapes are verified after each pass, and golden texts can be rewritten."""

import collections
import gc
import os
import signal
import sys
import zlib

import pytest

MANY_CASES = 12
MODES = ("always", "never")  # of compiling

# Settings of whoever runs the tests say nothing to them, nor to the processes that they start.
for name in [name for name in os.environ if name.startswith("TAPEGRAD_")]:
    if not name.startswith("TAPEGRAD_FUZZ") and name != "TAPEGRAD_DEBUG":
        del os.environ[name]
os.environ.setdefault("TAPEGRAD_DEBUG", "1")  # before tapegrad is imported, which reads it
os.environ["TAPEGRAD_CACHE_DIR"] = "off"  # what is compiled here is neither found nor left

# OpenBLAS's threads wait busily for each other; as many processes as there are cores would stall.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# A background shell starts programs with interrupts ignored, which tests send and wait for.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden texts")
    parser.addoption("--freeze", action="store_true", help="break the promises of tests/honesty")
    parser.addoption("--sweep", action="store_true", help="run all cases of the sweeps")


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "every(n): a sweep, of which one case in n runs, and all with --sweep"
    )


def pytest_collection_modifyitems(config, items):
    """Of a sweep over many cases a share runs where all tests do, of files that the command line
    names each case. The sweeps of a file take turns: n of them run each case that they share."""
    if config.getoption("sweep") or config.args_source is not config.ArgsSource.TESTPATHS:
        return
    tests, turns, left = {}, collections.Counter(), set()
    for item in items:
        tests.setdefault((item.path, item.originalname), []).append(item)
    for (path, _), cases in tests.items():
        if (n := cases_per_run(cases)) > 1:
            left.update(set(cases).difference(chosen(cases, n, turns[path, n])))
            turns[path, n] += 1
    config.hook.pytest_deselected(items=[x for x in items if x in left])
    items[:] = [x for x in items if x not in left]


def cases_per_run(cases):
    """Of how many cases of a test one runs. A sweep says that by its mark. Of other tests with many
    cases every second runs, and of those that are compiled in some and played in others."""
    if (mark := cases[0].get_closest_marker("every")) is not None:
        return mark.args[0]
    params = [x.callspec.params for x in cases if hasattr(x, "callspec")]
    texts = [[x for x in xs.values() if isinstance(x, str)] for xs in params]
    both = all(any(x in xs for xs in texts) for x in MODES)
    return 2 if both or len(cases) >= MANY_CASES else 1


def chosen(cases, n, turn):
    """Every n-th case of a test, as their names decide: one that is added moves no other one. Of
    so few cases that this is one of them, which one is a matter of the turn."""
    if len(cases) > n:
        numbers = [zlib.crc32(f"{x.path.name} {x.callspec.id}".encode()) for x in cases]
        if found := [x for x, k in zip(cases, numbers, strict=True) if (k + turn) % n == 0]:
            return found
    return [cases[turn % len(cases)]]


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """What is collected stays to the end. The garbage collector would look at it again and again,
    which took a sixth of the time; it runs in the tests, but more rarely."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        gc.set_threshold(10_000)


@pytest.fixture(scope="module", autouse=True)
def no_garbage_of_others():
    """What a module's tests have left is collected, and what stays of it isn't looked at again:
    towards the end a look at all that lives would take seconds. Boxes that tests have made by hand
    are gone, too: as long as there are some, calls look for their traced values."""
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def no_relatives(compiler_inside):
    """What other tests' functions of the same code have left is gone: each traces its own."""
    relatives = sys.modules.get("tapegrad.runtime.reuse")
    if relatives is not None:
        relatives.forget()
    yield
    compiler_inside.rest()  # what is compiled still isn't the next test's


@pytest.fixture(autouse=True)
def no_trace_under_way():
    """A test ends its traces: while one is under way, calls in all threads take the slow way. Those
    of boxes that a test has made by hand end when they are collected."""
    yield
    recording = sys.modules.get("tapegrad.tracing.recording.trace")
    if recording is not None and recording.running:
        gc.collect()
        assert not recording.running


@pytest.fixture
def own_answers(request):
    """What a test declares to answer functions of libraries is gone after it."""
    from tapegrad.observe.answers import answers
    from tapegrad.tracing.rules import library_rules

    here = request.module.__name__
    answers.look_for_modules()
    before = dict(answers._rows)
    yield
    for at, row in [*answers._rows.items()]:
        if at in before:
            answers._rows[at] = before[at]
        elif isinstance(row.by, library_rules.Adopted) or row.by.__module__ in ("document", here):
            del answers._rows[at]
    answers._declared.append(None)
    library_rules._adopted.clear()


@pytest.fixture(scope="session", autouse=True)
def compiler_inside():
    """Programs are compiled in this process, which knows what a test sets, and forks nothing: that
    takes a quarter less than next door. tests/compiler is about the process there."""
    from tests.patient import Patient

    from tapegrad.compiler import client

    client.client.failed = client.ATTEMPTS
    client.client.inside = Patient()
    return client.client.inside


@pytest.fixture
def in_background(monkeypatch):
    """Programs are compiled while nothing waits for them."""
    from tapegrad.compiler import client, in_process

    monkeypatch.setattr(client.client, "inside", in_process.InProcess())


@pytest.fixture(scope="module")
def neighbour():
    """A compiler next door that the tests of a module share."""
    from tapegrad.compiler.client import Client

    client = Client()
    yield client
    client.end()


@pytest.fixture
def next_door(neighbour, monkeypatch):
    """Programs are compiled next door. On a machine that is too busy to let a worker speak, it
    isn't given up."""
    from tapegrad.compiler import client

    monkeypatch.setattr(client, "SILENCE", float("inf"))
    monkeypatch.setattr(client, "client", neighbour)
