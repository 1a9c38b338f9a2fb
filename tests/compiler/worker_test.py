"""The parts of the compiler next door, one by one."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from tests.emit.agreement_test import PROGRAMS
from tests.primitives.samples import all_samples

from tapegrad import errors, grad
from tapegrad.backends.cpu import layout
from tapegrad.compiler import disk, packed, worker
from tapegrad.compiler.key import exact
from tapegrad.compiler.protocol import HEAD, message, messages
from tapegrad.ir.tape import Builder, Tape, aval_of
from tapegrad.primitives.control import ForeignCall

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


# ---- tapes as bytes


def of_sample(sample):
    builder = Builder(f"of_{sample.primitive.name}")
    inputs = [builder.input(aval_of(x), f"x{k}") for k, x in enumerate(sample.operands)]
    return builder.finish(builder.call(sample.primitive, inputs))


def of_program(f, *args):
    df = grad(f, compile="never")
    df(*args)
    return df.cache.all_variants()[0].tape


def same(tape: Tape, other: Tape) -> bool:
    """Equal, what serves people included; variables may have other numbers."""
    sources = [[(c.src, c.reason) for c in t.calls] for t in (tape, other)]
    labels = [(t.name, t.names, t.output_names, len(t.captured)) for t in (tape, other)]
    checks = [[(g.what, g.src, g.expected) for g in t.guards] for t in (tape, other)]
    return (
        exact(packed.pack(tape)) == exact(packed.pack(other))
        and sources[0] == sources[1]
        and labels[0] == labels[1]
        and checks[0] == checks[1]
    )


def test_every_primitive_travels():
    for sample in all_samples():
        tape = of_sample(sample)
        content = packed.pack(tape)
        opaque = packed.opaque_of(content.primitives)
        again = packed.loaded(packed.dumped(content, opaque)).unpack()
        if not opaque:
            assert str(again) == str(tape)


def test_programs_travel():
    for program in PROGRAMS:
        tape = of_program(*program)
        assert same(tape, packed.loaded(packed.dumped(packed.pack(tape))).unpack())


def test_functions_of_the_users_stay_here():
    builder = Builder("f")
    x = builder.input(aval_of(np.ones(3)))
    for function in (lambda x: [x], lambda x: [2 * x]):
        (x,) = builder.call(ForeignCall("f", function, (x.aval,), 1), [x])
    content = packed.pack(builder.finish([x]))
    opaque = packed.opaque_of(content.primitives)
    there = packed.loaded(packed.dumped(content, opaque))
    assert [p.function.number for p in there.primitives] == [0, 1]
    with pytest.raises(AssertionError, match="in another process"):
        there.primitives[0].evaluate(1.0)


KEY = """
import numpy as np
from tapegrad import grad
from tapegrad.compiler.key import program_key
from tapegrad.compiler.packed import pack

def f(p, x):
    return np.sum(np.tanh(p["w"] @ x) ** 2) * 3.5 if x[0] > 0 else 0.0

df = grad(f, compile="never")
df({"w": np.ones((2, 3))}, np.ones(3))
(tape,) = df.tapes
print(program_key(pack(tape)))
"""


def test_the_key_is_the_same_in_each_process():
    found = [
        subprocess.run(
            [sys.executable, "-c", KEY],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert found[0] == found[1] and len(found[0].strip()) == 40


# ---- messages


def test_messages_arrive_in_pieces():
    sent = message(1, b"") + message(7, b"abc") + message(2, b"x" * 100)
    buffer, found = bytearray(), []
    for k in range(0, len(sent), 7):
        buffer += sent[k : k + 7]
        found += messages(buffer)
    assert found == [(1, b""), (7, b"abc"), (2, b"x" * 100)] and not buffer
    buffer += sent[: HEAD.size - 1]
    assert messages(buffer) == [] and len(buffer) == HEAD.size - 1


# ---- forks


@forks
def test_kernels_of_a_long_program_are_shared(monkeypatch):
    monkeypatch.setattr(worker, "available_cores", lambda: 3)
    sizes = {k: 2000 + 100 * k for k in range(10)}
    found = worker.side_by_side(lambda k: f"{k} {os.getpid()}".encode(), sizes)
    assert [int(found[k].split()[0]) for k in range(10)] == list(range(10))
    assert len({found[k].split()[1] for k in range(10)}) == 3
    few = worker.side_by_side(lambda k: str(os.getpid()).encode(), {1: 10, 2: 10})
    assert set(few.values()) == {str(os.getpid()).encode()}


@forks
@pytest.mark.parametrize("end", [lambda: 1 / 0, lambda: os.kill(os.getpid(), signal.SIGKILL)])
def test_a_fork_that_fails(end):
    fork = worker.Fork(end)
    with pytest.raises(RuntimeError, match="ended with status"):
        fork.result()


@forks
def test_a_fork_that_has_ended_may_be_looked_at_again():
    """Its end was seen, and its result not read yet -> it was waited for twice, and failed."""
    fork = worker.Fork(lambda: "done")
    while fork.status is None:
        fork.end_if_stopped()
    fork.end_if_stopped()
    assert fork.result() == "done"


@forks
def test_results_of_a_fork_may_be_large():
    assert worker.Fork(lambda: b"x" * 3_000_000).result() == b"x" * 3_000_000


@forks
def test_one_process_at_a_time(tmp_path, monkeypatch):
    """Works on what will be kept under a name, and others on other names."""
    monkeypatch.setenv("TAPEGRAD_CACHE_DIR", str(tmp_path / "cache"))
    name, other = f"{'0' * 40}/{'0' * 40}", f"{'1' * 40}/{'0' * 40}"

    def timed(wanted):
        start = time.monotonic()
        with disk.claim(wanted):
            return time.monotonic() - start

    with disk.claim(name):
        fork, free = worker.Fork(lambda: timed(name)), worker.Fork(lambda: timed(other))
        free.result()
        time.sleep(0.3)
    assert fork.result() > 0.1  # it had to wait
    monkeypatch.setattr(disk, "PATIENCE", 0.2)
    with disk.claim(name):  # who waits too long goes on
        worker.Fork(lambda: timed(name)).result()
    with disk.claim(None):  # what isn't kept needs no claim
        pass


# ---- what isn't as machine code takes it to be


def test_arrays_that_lie_otherwise(monkeypatch, in_background):
    """Another NumPy, whose arrays have their parts in other places -> no machine code runs."""
    monkeypatch.setattr(layout, "layout_fault", lambda: "arrays have no strides")
    x = np.array([1.0, 2.0])
    with pytest.raises(errors.InternalError, match="arrays have no strides"):
        grad(lambda x: np.sum(x**3), compile="always")(x)
    df = grad(lambda x: np.sum(x**3), compile="auto")
    end = time.monotonic() + 300
    with pytest.warns(RuntimeWarning, match="played with NumPy instead"):
        while time.monotonic() < end and not df.cache.all_variants()[:1]:
            df(x)
        variant = df.cache.all_variants()[0]
        while time.monotonic() < end and not variant.tier.failed:
            np.testing.assert_array_equal(df(x), 3 * x**2)
    np.testing.assert_array_equal(df(x), 3 * x**2)


def test_pickles_of_tapes_hold_what_they_are():
    """And nothing that was worked out for playing them."""
    tape = of_program(lambda x: np.sum(np.sin(x)), np.ones(3))
    tape.play(np.ones(3))
    again = pickle.loads(pickle.dumps(tape))
    assert vars(tape).keys() > vars(again).keys()
    assert again == tape


LOADED = """
import sys
import numpy as np
from tapegrad.compiler import worker
from tapegrad.ir.text import parse
from tapegrad.pipeline import compile
from tapegrad.schedule import recompute

worker.prepare()
before = set(sys.modules)
cuts = []
computed_again = recompute._Network.computed_again
recompute._Network.computed_again = lambda network: cuts.append(1) or computed_again(network)
compile(parse('''{tape}'''))
assert cuts
assert "numba.np.arraymath" not in sys.modules and "scipy.linalg" not in sys.modules
print(*sorted(set(sys.modules) - before))
"""


def test_no_fork_loads_what_the_worker_could_have_loaded():
    """A program with a bit of everything: rows, a product, a system, a choice what to keep."""
    w, x = np.ones((30, 30)) + np.eye(30), np.ones((20, 30))

    def loss(w, x):
        h = np.exp(x @ w - np.max(x @ w, axis=1, keepdims=True))
        h = h / np.sum(h, axis=1, keepdims=True)
        return np.sum(np.where(h > 0.1, np.log(h), h) ** 2) + np.linalg.slogdet(w)[1]

    df = grad(loss, compile="never")
    df(w, x)
    (tape,) = df.tapes
    program = LOADED.format(tape=tape)
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert found.stdout.split() == []
