"""What `profile` says of calls: parts that were measured, lines, limits, and files."""

from __future__ import annotations

import html
import itertools
import json
import sys

import numpy as np
import pytest

from tapegrad import grad, jit, profile, set_num_threads, value_and_grad
from tapegrad.backends.host import HOST
from tapegrad.backends.source.driver import Driver
from tapegrad.errors import ArgumentError
from tapegrad.insight import limits, profiling
from tapegrad.insight.limits import Limits
from tapegrad.insight.measuring import OUTSIDE, TICK, ticking
from tapegrad.insight.profiling import BESIDE, REST
from tapegrad.runtime import profiled

rng = np.random.default_rng(0)
X, Y = rng.normal(size=(400, 30)), rng.normal(size=400)


def loss(w):
    h = np.tanh(X @ w)
    z = np.fft.fft(h).real
    return np.sum(z**2) + np.sum((h - Y) ** 2)


W = rng.normal(size=30)


@pytest.fixture(scope="module")
def compiled():
    return value_and_grad(loss, compile="always").profile(W, calls=3)


def test_parts_of_compiled_calls(compiled):
    """Kernels, what NumPy makes between them, and Python's part, one after the other."""
    names = [part.name for part in compiled.parts]
    assert names[-1] == OUTSIDE and names.count("NumPy: fft") == 2
    assert next(name for name in names if name.startswith("kernel")) == "kernel 1"
    assert all(part.seconds >= 0 for part in compiled.parts)
    inside = compiled.parts[:-1]
    for one, other in itertools.pairwise(inside):
        assert other.start == pytest.approx(one.start + one.seconds, abs=1e-6)
    assert compiled.calls == 3 and compiled.seconds > 0
    assert compiled.answered.startswith("by machine code")


@pytest.mark.parametrize("mode", ["never", "always"])
def test_parts_and_lines_add_up_to_the_call(mode):
    found = value_and_grad(loss, compile=mode).profile(W, calls=3)
    taken = sum(part.seconds for part in found.parts) + found.rest
    assert taken == pytest.approx(found.seconds) and found.to_dict()["rest"] == found.rest
    tables = str(found).split("\n\n")[1:3]
    for text in tables:
        rows = [float(row.split("%")[0].split()[-1]) for row in text.splitlines()[1:]]
        assert sum(rows) == pytest.approx(100, abs=0.1 * len(rows))
    assert all(text.endswith(last) for text, last in zip(tables, [REST, BESIDE], strict=True))
    assert REST in found._repr_html_() and html.escape(BESIDE) in found._repr_html_()


def test_lines_of_compiled_calls(compiled):
    """All time that isn't Python's is some line's, and what is a share of a kernel is marked."""
    inside = sum(part.seconds for part in compiled.parts if part.name != OUTSIDE)
    assert sum(line.seconds for line in compiled.lines) == pytest.approx(inside)
    texts = {line.text for line in compiled.lines}
    assert {"h = np.tanh(X @ w)", "z = np.fft.fft(h).real"} <= texts
    assert all(0 <= line.backward <= line.seconds * (1 + 1e-12) for line in compiled.lines)
    assert any(line.estimated for line in compiled.lines)
    assert sorted(compiled.lines, key=lambda x: -x.seconds) == compiled.lines


def test_played_calls_are_measured_by_line():
    found = value_and_grad(loss, compile="never").profile(W, calls=2)
    assert found.parts[0].name == "NumPy, call by call"
    assert not any(line.estimated for line in found.lines)
    assert any(line.backward for line in found.lines)
    assert not any(line.backward for line in jit(loss, compile="never").profile(W).lines)


@pytest.mark.parametrize("mode", ["never", "always"])
def test_the_line_that_takes_the_time(mode):
    def f(x):
        cheap = np.sum(x) * 2.0
        costly = np.sum(np.exp(np.sin(np.outer(x, x)) ** 2))
        return cheap + costly

    found = grad(f, compile=mode).profile(np.linspace(0, 1, 300))
    assert found.lines[0].text.startswith("costly = ")
    assert found.lines[0].seconds > 0.7 * sum(line.seconds for line in found.lines)


def test_rounds_of_a_loop_count():
    """A line in a loop of the tape has the work of all its rounds."""

    def f(x):
        s = 0.0
        for _ in range(2000):
            s = s + np.sin(s * x[0]) * x[1]
        return s + np.sum(np.cos(x))

    found = profile(grad(f, compile="always"), np.array([1.0, 2.0]))
    assert "for _ in range(2000)" in found.lines[0].text or "np.sin(s" in found.lines[0].text
    assert found.flops > 2000


def test_bytes_and_operations(compiled):
    product = 2 * X.size
    assert 2 * product < compiled.flops < 20 * product
    assert X.nbytes + Y.nbytes < compiled.nbytes < 10 * X.nbytes
    assert compiled.bandwidth > 1e8 and compiled.peak > 1e8


def test_no_call_is_beyond_the_limits(monkeypatch):
    """Limits that were measured too low, as beside another process, are those of the call."""
    monkeypatch.setattr(profiling, "limits", lambda: Limits(1.0, 1.0))
    found = profile(grad(loss, compile="always"), W, calls=3)
    assert found.nbytes / found.seconds == found.bandwidth
    assert found.flops / found.seconds <= found.peak
    assert all(x.flops / x.seconds <= found.peak for x in found.parts if x.seconds)


def test_limits_rise_and_never_sink(monkeypatch):
    """What was measured on a busy machine is mended by the next profile."""
    monkeypatch.setattr(limits, "_most", Limits(1.0, 1.0))
    found = limits.limits()
    assert min(found) > 1e6
    monkeypatch.setattr(limits, "_fastest", lambda function: 1e3)
    assert limits.limits() == found


def test_pages_files_and_pictures(compiled, tmp_path):
    text = str(compiled)
    assert text == repr(compiled) and "value_and_grad_loss" in text and "profile_test.py:" in text
    assert "~" in text and "NumPy: fft" in text and "scratch when compiled" in text
    json.dumps(compiled.to_dict())
    compiled.save(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert [e["name"] for e in events] == [part.name for part in compiled.parts]
    assert all(e["ph"] == "X" and e["dur"] >= 0 for e in events)
    pytest.importorskip("matplotlib").use("agg")
    axes = compiled.plot()
    assert len(axes.get_yticklabels()) == sum(line.seconds > 0 for line in compiled.lines)
    limits, *kernels = compiled.plot(roofline=True).get_lines()
    assert len(kernels) == sum(part.name.startswith("kernel") for part in compiled.parts)
    assert limits.get_ydata()[-1] == pytest.approx(compiled.peak / 1e9)


def test_random_numbers_methods_and_wrong_numbers():
    noise = np.random.default_rng(3)

    class Model:
        @jit
        def energy(self, x):
            return np.sum(x * noise.normal(size=3))

    for mode in ("never", "always"):
        df = grad(lambda x: np.sum(x * noise.normal(size=3)), compile=mode)
        assert df.profile(np.ones(3), calls=2).parts
    assert profile(Model().energy, np.ones(3)).function == "energy"
    with pytest.raises(ArgumentError, match="calls is a number of calls"):
        profile(loss, W, calls=0)


def test_a_profile_changes_nothing():
    df = value_and_grad(loss, compile="always")
    before = df(W)
    traces = df.cache_info().traces
    df.profile(W)
    assert df.cache_info().traces == traces
    np.testing.assert_array_equal(df(W)[1], before[1])


def test_operations_of_loops_that_are_shared_in_tiles():
    """Rows in chunks for the cores, and these in tiles: each row counts once."""
    rows, data = 100_000, np.random.default_rng(1)
    x, y = data.normal(size=(rows, 5)), data.normal(size=rows)

    def f(b):
        r = np.abs(y - x @ b)
        return np.sum(np.where(r < 1, 0.5 * r**2, r - 0.5))

    found = value_and_grad(f, compile="never").profile(np.full(5, 0.1), calls=1)
    assert 4 * x.size < found.flops < 20 * x.size


def test_products_count_as_they_are_compiled():
    """Products of matrices that become products with vectors."""

    def f(x):
        m = np.outer(x, x)
        return np.sum(m @ m @ m)

    x = np.linspace(0, 0.1, 200)
    assert value_and_grad(f, compile="never").profile(x, calls=1).flops < x.size**3


@pytest.mark.parametrize("mode", ["never", "always"])
def test_loops_that_stop_by_a_condition(mode):
    """The rounds that they make are computed, and not those that they have room for."""

    def f(x):
        while x * x - 2.0 > 1e-9:
            x = x - 0.1 * (x * x - 2.0) / (2.0 * x)
        return x

    def rounds(x, found=0):
        return rounds(x - 0.1 * (x * x - 2.0) / (2.0 * x), found + 1) if x * x - 2 > 1e-9 else found

    df = value_and_grad(f, compile=mode)
    few, many = df.profile(1.45, calls=1), df.profile(2.0, calls=1)
    per_round = many.flops / rounds(2.0)
    assert 10 < per_round < 50 and few.flops == pytest.approx(per_round * rounds(1.45), rel=0.1)
    assert many.nbytes < 100 and "operations: " in str(many)


def test_loops_inside_of_loops_that_stop_by_a_condition():
    """How often those go round isn't known."""

    def f(x):
        for _ in range(30):
            while x * x - 2.0 > 1e-9:
                x = x - 0.1 * (x * x - 2.0) / (2.0 * x)
            x = x + 1.0
        return x

    found = value_and_grad(f, compile="never").profile(2.0, calls=1)
    assert np.isnan(found.flops) and any(line.estimated for line in found.lines)
    assert "operations aren't counted, as nobody knows how often a loop" in str(found)
    json.dumps(found.to_dict())


def far(x):
    near = np.sum(x) * 2.0
    return near + np.sum(np.exp(np.sin(np.outer(x, x)) ** 2))


def test_memory_at_the_peak():
    """By buffer, with the line that each is for."""
    x = np.linspace(0, 1, 500)
    played = value_and_grad(far, compile="never").profile(x, calls=1)
    large = played.buffers[:4]
    assert [buffer.nbytes for buffer in large] == [2_000_000] * 4
    assert {buffer.text for buffer in large} == {played.lines[0].text} and "np.outer" in large[
        0
    ].text
    report = value_and_grad(far, compile="never").lower(x).tape.memory_report()
    assert sum(buffer.nbytes for buffer in played.buffers) == report.peak_live_bytes
    assert sum(line.nbytes for line in played.lines) <= report.peak_live_bytes
    assert played.lines[0].nbytes == 8_000_000
    assert "8.0 MB of memory beside the arguments, at the peak" in str(played)
    compiled = value_and_grad(far, compile="always").profile(x, calls=1)
    results = [buffer for buffer in compiled.buffers if buffer.name.startswith("result ")]
    assert [buffer.nbytes for buffer in results] == [4000]
    total = sum(buffer.nbytes for buffer in compiled.buffers)
    assert total == report.scratch_bytes + 4008


def test_memory_of_the_rounds_of_loops():
    """Of loops in loops, too, as where the reverse pass makes rounds again: each has its line."""

    def settle(x):
        u = np.sin(x)
        for _ in range(400):
            lap = np.concatenate([[0.0], u[2:] - 2 * u[1:-1] + u[:-2], [0.0]])
            u = u + 0.2 * lap * np.cos(u)
        return np.sum(u**2)

    df = value_and_grad(settle, compile="always", checkpoint="sqrt")
    found = df.profile(np.linspace(0, 1, 2000), calls=1)
    scratch = [x for x in found.buffers if x.name.startswith("scratch ")]
    assert len(scratch) > 3 and all(x.line.startswith("profile_test.py:") for x in scratch)
    assert {"for _ in range(400):"} < {x.text for x in scratch}


@pytest.mark.every(2)
@pytest.mark.parametrize("threads", [1, 2])
def test_threads_of_kernels(threads):
    """How many share one, and how much of their time they wait; afterwards as many work as
    before."""
    set_num_threads(threads)
    try:
        found = value_and_grad(far, compile="always").profile(np.linspace(0, 1, 1500), calls=2)
        shared = max(found.parts, key=lambda part: part.seconds)
        assert shared.threads == threads == HOST.threads_at_work
        assert 0 <= shared.waiting < 1 and (f"{threads} threads, " in str(found)) == (threads > 1)
        assert shared.flops > 0 and shared.nbytes > 0
    finally:
        set_num_threads()


def test_routines_of_libraries():
    """A kernel says which it calls, and the line that calls them has what they are expected to
    take of it."""

    def f(scale):
        S = scale * np.outer(W, W) + np.eye(W.size)
        inverse = np.linalg.inv(S)
        return W @ inverse @ W

    found = value_and_grad(f, compile="always").profile(0.1, calls=1)
    assert any(part.name.startswith("kernel") and "lu" in part.name for part in found.parts)
    assert found.lines[0].text == "inverse = np.linalg.inv(S)"


def test_the_clock_is_asked_once_a_part(monkeypatch):
    """And once at the end. Other calls don't ask it."""
    df = value_and_grad(loss, compile="always")
    asked = []
    monkeypatch.setattr(
        profiled, "ticking", lambda *given: asked.append(ticking(*given)) or asked[0]
    )
    found = df.profile(W, calls=2)
    (driver,) = asked
    assert sum(line.startswith(TICK) for line in driver.lines) == len(found.parts)
    df(W)
    assert not any(TICK in line for line in df.cache.all_variants()[0].tier.found.driver.lines)


def clocks_asked(call):
    """The functions inside of which `call()` asks a clock, each with those around it."""
    asked = []

    def look(frame, event, function):
        if event == "c_call" and function.__module__ == "time":
            names = []
            while frame is not None:
                names.append(frame.f_code.co_qualname)
                frame = frame.f_back
            asked.append(names)

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        call()
    finally:
        sys.setprofile(before)
    return asked


def test_nothing_is_measured_where_no_profile_is_asked_for():
    """The same machine code answers before, after, and in the calls whose median is told: no clock
    is asked in these. Only the further calls of a profile have one between kernels."""
    df = value_and_grad(loss, compile="always")
    df(W), df(W)
    entry, front = df.cache.all_variants()[0].entry, (*df.front.recent,)
    assert entry is not None and clocks_asked(lambda: df(W)) == []
    asked = clocks_asked(lambda: df.profile(W, calls=7))
    assert len(asked) > 2 * 7
    assert not [names for names in asked if "Derived.__call__" in names]
    assert df.cache.all_variants()[0].entry is entry and (*df.front.recent,) == front
    assert clocks_asked(lambda: df(W)) == []


def test_a_line_with_a_lambda_is_one_line():
    def f(x):
        return np.sum(np.exp((lambda y: y * y)(x)) * x)

    lines = value_and_grad(f, compile="never").profile(np.ones(3), calls=1).lines
    places = [line.line for line in lines]
    assert len(set(places)) == len(places)


def test_a_kernel_with_many_arguments_is_a_part():
    """Its call takes several lines: its name need not stand in the first one."""
    call = ["status = parallel(", "    kernel1, 2, x, y", ")", "if status:", "    raise Stale"]
    lines = ("out = empty((3,), float64)", "if kernel0(x, out):", "    raise Stale", *call)
    ticks = ticking(Driver((), (), (), (), lines), ["kernel0", "kernel1"]).lines
    assert [k for k, line in enumerate(ticks) if line.startswith(TICK)] == [1, 4, 10]
    assert [line for line in ticks if not line.startswith(TICK)] == [*lines]


@pytest.mark.parametrize("mode", ["never", "always"])
def test_constants_are_memory_of_a_call(mode):
    """An array that the function makes of what isn't traced: its bytes, the line that reads it."""
    groups = np.arange(2000) % 500

    def f(x):
        onehot = groups[:, None] == np.arange(500)
        return np.sum((onehot.astype(float) @ x) ** 2)

    df = grad(f, compile=mode)
    found = df.profile(np.ones(500), calls=1)
    largest = found.buffers[0]
    assert largest.name == "constant c0: f8[2000,500]" and largest.nbytes == 8_000_000
    assert largest.text == "return np.sum((onehot.astype(float) @ x) ** 2)"
    assert "1 parameter 4.0 kB, 1 constant 8.0 MB" in found.memory
    assert "8.0 MB   " in str(found) and sum(x.nbytes for x in found.buffers) > 8_000_000
    assert any(x.nbytes >= 8_000_000 for x in found.lines)
    assert f"# c0, read at {largest.line}" in str(df.tape)


def test_machine_code_that_arrives_in_the_middle(monkeypatch):
    """The call is measured again: parts and median are of one way of answering."""
    g, x, told = value_and_grad(lambda x: np.sum(np.sin(x) * x)), np.ones(30), []
    g(x)
    profile_of = profiled.profile_of

    def measured(name, answered, *rest):
        if not told:
            g.compile(x)
        told.append(answered)
        return profile_of(name, answered, *rest)

    monkeypatch.setattr(profiled, "profile_of", measured)
    found = g.profile(x)
    assert found.answered == told[-1] == "by machine code"
    assert len(told) == 2


def test_lines_of_a_loop_with_checkpoints():
    """The search for a checkpoint's place, a loop without a bound, isn't most of the work."""
    w = np.random.default_rng(1).standard_normal((30, 30))

    def f(x):
        for _ in range(40):
            x = np.tanh(w @ x)
        return np.sum(x)

    found = value_and_grad(f, compile="always", checkpoint=3).profile(np.ones(30), calls=3)
    seconds = {line.text: line.seconds for line in found.lines}
    assert seconds["x = np.tanh(w @ x)"] > 10 * seconds.get("for _ in range(40):", 0.0)
