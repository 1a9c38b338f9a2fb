"""Long loops in chunks, which several threads share."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

from tapegrad import grad, jit, set_num_threads, simplegrad, value_and_grad
from tapegrad.backends.cpu import support, threads
from tapegrad.backends.cpu.machine_code import kernel_function
from tapegrad.backends.cpu.support import regions
from tapegrad.errors import ArgumentError
from tapegrad.ir.affine import Affine, Index
from tapegrad.ir.cells import Cell, Read
from tapegrad.ir.fold import SUM
from tapegrad.ir.plan import Plan, is_parallel
from tapegrad.ir.steps import Compute, Loop
from tapegrad.ir.tape import Literal
from tapegrad.pipeline import schedule
from tapegrad.primitives import elementwise as ew
from tapegrad.runtime.entry import Scratch
from tapegrad.schedule import parallelise

RNG = np.random.default_rng(0)
X, W = RNG.normal(size=(1003, 7)), RNG.normal(size=7)
V = RNG.normal(size=1003)


@pytest.fixture(autouse=True)
def short_chunks(monkeypatch):
    """Loops are cut that wouldn't be worth it."""
    monkeypatch.setattr(parallelise, "GRAIN", 100)
    yield
    set_num_threads()


def softmax_loss(x, w):
    z = x * w
    z = z - np.max(z, axis=1, keepdims=True)
    return np.sum(np.log(np.sum(np.exp(z), axis=1)))


def products(x, y):
    """Which are cut along rows, and for the gradient of y along columns."""
    return np.sum(np.tanh(x @ y) ** 2)


PROGRAMS = {
    "elementwise": (lambda x: np.sum(np.sin(x) * x), (V,)),
    "a gradient for each row, and one for all": (lambda x, w: np.sum(np.tanh(x * w) ** 2), (X, W)),
    "sums of rows": (softmax_loss, (X, W)),
    "tiles": (lambda w, x: np.sum(np.logaddexp(0, x @ w)), (W, X)),
    "a product": (lambda x: np.prod(1 + 1e-3 * x), (V,)),
    "a highest": (lambda x: np.max(x**2) + np.min(x), (V,)),
    "neighbours": (lambda x: np.sum((x[1:] - x[:-1] ** 2) ** 2), (V,)),
    "a scalar from before": (lambda x: np.sum((x - np.mean(x)) ** 2) / np.std(x), (V,)),
    "float32": (lambda x: np.sum(np.exp(x)) + np.sum(x), (V.astype(np.float32),)),
    "all and any": (lambda x: np.sum(x) * (1 + np.all(x < 9)) * (2 - np.any(x > 9)), (V,)),
    "a cumulative sum": (lambda x: np.sum(np.cumsum(x) ** 2), (V,)),
    "a scatter": (lambda x: np.sum(np.bincount(np.arange(1003) % 5, x) ** 2), (V,)),
    "a gather": (lambda x: np.sum(x[np.arange(1003) % 5] ** 2 * x), (V,)),
    "products": (products, (RNG.normal(size=(141, 9)), RNG.normal(size=(9, 129)))),
    "a branch in the middle": (lambda x: np.sum(x) if np.max(x) < 9 else np.sum(x**2), (V,)),
}


def leaves(found):
    return [*found] if isinstance(found, tuple) else [found]


@pytest.mark.every(15)
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_threads_dont_matter(name):
    f, args = PROGRAMS[name]
    argnums = tuple(range(len(args)))
    played_value, played = value_and_grad(f, argnums, compile="never")(*args)
    results = []
    for count in (1, 2, 5):
        set_num_threads(count)
        df = value_and_grad(f, argnums, compile="always")
        results.append(df(*args))
        assert str(results[-1]) == str(df(*args))
    tolerance = 1e-12 if args[0].dtype == np.float64 else 1e-5
    for value, gradients in results:
        np.testing.assert_allclose(value, played_value, rtol=tolerance)
        assert value == results[0][0]
        for found, first, expected in zip(gradients, results[0][1], played, strict=True):
            np.testing.assert_allclose(found, expected, tolerance, tolerance)
            np.testing.assert_array_equal(found, first)


def plan_of(f, *args):
    df = grad(f, compile="never")
    df(*args)
    (tape,) = df.tapes
    return schedule(tape)


def test_which_loops_are_cut():
    """Chunks go by kernels of their own; what depends on the iteration before isn't cut."""

    def cut(name):
        f, args = PROGRAMS[name]
        return any(s.parallel for s in plan_of(f, *args).plan.steps if isinstance(s, Loop))

    assert {name for name in PROGRAMS if not cut(name)} <= {"a cumulative sum", "a scatter"}


def test_what_was_added_before_stays():
    """Two loops add to one sum: what it starts from isn't moved behind the first."""
    x, total = Cell((1000,), np.dtype(float), "input"), Cell((), np.dtype(float), "output")
    zero = Read(None, (), Literal(np.float64(0.0)))

    def adding():
        i = Index(1000)
        at = (Affine.of(i),)
        return Loop(i, (Compute(total, (), ew.copy, (Read(x, at),), SUM),))

    start, first, second = Compute(total, (), ew.copy, (zero,)), adding(), adding()
    once = parallelise.parallelise(Plan("f", (x,), (total,), (start, first)))
    assert [type(s) for s in once.steps] == [Loop, Compute, Loop]
    both = parallelise.parallelise(Plan("f", (x,), (total,), (start, first, second)))
    assert [type(s) for s in both.steps] == [Loop, Compute, Loop, Loop, Loop]
    assert [is_parallel(s) for s in both.steps] == [True, False, False, True, False]


def test_chunks_write_apart():
    """What two cores write is never in one line of the cache, nor in two that are fetched
    together."""
    f = value_and_grad(lambda w: np.sum(np.tanh(X * w) ** 2 @ W[:, None]), compile="never")
    f(W)
    plan = schedule(f.tapes[0]).plan
    rows = {
        cell: at
        for loop in plan.steps
        if is_parallel(loop)
        for cell, at, writes in loop.accesses()
        if writes and len(cell.shape) > 1 and cell.shape[0] == loop.index.extent
    }
    assert rows
    for cell, at in rows.items():
        (inner, _), *_ = at[1].terms
        assert (cell.shape[1] - inner.extent) * cell.dtype.itemsize >= 128


def test_small_loops_stay_whole(monkeypatch):
    monkeypatch.undo()
    program = plan_of(lambda x: np.sum(np.sin(x) * x), V)
    assert [k.chunks for k in program.kernels] == [0]


@pytest.mark.every(2)
@pytest.mark.parametrize("name", ["sums of rows", "products"])
def test_a_function_that_stands_alone(name, tmp_path):
    """The saved file brings the threads along."""
    f, args = PROGRAMS[name]
    made = simplegrad(f, *args)
    assert "parallel(" in made.source
    made.save(tmp_path / "made.py")
    np.savez(tmp_path / "args.npz", x=args[0], w=args[1])
    program = (
        f"import numpy as np, made; a = np.load('args.npz'); r = made.grad_{f.__name__}(a['x'], "
        "a['w']); np.savez('found.npz', value=r[0], x=r[1], w=r[2])"
    )
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, timeout=600)
    found = np.load(tmp_path / "found.npz")
    for key, expected in zip(("value", "x", "w"), made(*args), strict=True):
        np.testing.assert_array_equal(found[key], expected)


def test_many_callers_share_the_helpers():
    f, args = PROGRAMS["sums of rows"]
    df = grad(f, compile="always")
    expected = df(*args)
    wrong = []

    def work():
        for _ in range(50):
            if not np.array_equal(df(*args), expected):
                wrong.append(1)

    callers = [threading.Thread(target=work) for _ in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_after_a_fork():
    """The helpers aren't in the child, which gets its own."""
    set_num_threads(2)
    f, args = PROGRAMS["elementwise"]
    df = grad(f, compile="always")
    expected = df(*args)
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(df(*args), expected) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_when_the_interpreter_ends():
    """No helper can be had then; the caller does it all, also where none has been needed before."""
    program = """
        import atexit, builtins
        import numpy as np
        from tapegrad import grad, set_num_threads
        from tapegrad.schedule import parallelise

        set_num_threads(2)
        parallelise.GRAIN = 100
        df, x = grad(lambda x: np.sum(np.sin(x)), compile="always"), np.ones(1000)
        df(x)
        atexit.register(lambda: print(np.allclose(df(x), np.cos(x))))

        class Last:
            def __del__(self, df=df, x=x):
                df(x)
                df(x)
                print(df(x).tolist() == [df(x)[0]] * 1000)

        if len(__import__("sys").argv) > 1:
            set_num_threads(2)
            builtins.last = Last()
    """
    run = [sys.executable, "-c", textwrap.dedent(program)]
    for further, lines in (([], 1), (["last"], 2)):
        env = {**os.environ, "TAPEGRAD_DEBUG": ""}  # which imports what can't be had any more
        done = subprocess.run(
            [*run, *further], capture_output=True, text=True, timeout=600, env=env
        )
        assert done.stdout == "True\n" * lines, done.stderr


def wait_for_rest(awake=0):
    """Until no more helpers than that look for work."""
    while threads.pool.words[threads.AWAKE] > awake or threads.pool.crew.bell.qsize():
        time.sleep(0.001)


def counting(text="return chunk % 7"):
    """A kernel whose chunks count how often they run, and for a while add up numbers."""
    lines = f"""def kernel(counts, factor, sums, chunk):
    counts[chunk] += 1
    t = 0.0
    for i in range(20000):
        t += factor * i
    sums[chunk] = t
    {text}
"""
    array = [("array", (50,), np.int64), ("scalar", (), np.float64), ("array", (50,), np.float64)]
    function = kernel_function(lines, "kernel", support.namespace())
    return support.compiled(function, [*array, ("chunk", (), np.int64)])


@pytest.fixture(scope="module")
def kernel():
    return counting()


def assert_each_runs_once(kernel, chunks=50):
    counts, sums = np.zeros(50, np.int64), np.zeros(50)
    assert threads.parallel(kernel, chunks, counts, 0.5, sums) == min(6, chunks - 1)
    np.testing.assert_array_equal(counts, np.arange(50) < chunks)
    np.testing.assert_array_equal(sums, counts * (0.5 * 19999 * 10000))


@pytest.mark.parametrize("count", [1, 2, 5, 40])
def test_each_chunk_runs_once(count, kernel):
    set_num_threads(count)
    for chunks in (50, 1, 2, 7) * 20:
        assert_each_runs_once(kernel, chunks)


def test_helpers_take_part(kernel):
    """Both ends of the chunks are taken, also when the helper has to be woken."""
    set_num_threads(2)
    assert_each_runs_once(kernel)  # which says where the machine code of helpers is
    place = threads.FIRST_SLOT * threads.LINE + threads.LINE
    for pause in (0.0, 0.05):
        time.sleep(pause)
        for _ in range(1000):
            assert_each_runs_once(kernel)
            taken = threads.pool.words[place]
            if min(taken % 2**32, taken >> 32) > 5:
                break
        else:
            raise AssertionError("no helper came in 1000 loops")


def test_more_callers_than_slots(kernel):
    set_num_threads(3)
    found = []

    def work():
        for _ in range(30):
            assert_each_runs_once(kernel)
        found.append(True)

    callers = [threading.Thread(target=work) for _ in range(threads.SLOTS + 4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(found) == len(callers)
    states = range(threads.FIRST_SLOT * threads.LINE, threads.WORDS, 4 * threads.LINE)
    assert not any(threads.pool.words[k] for k in states)


def test_sizes_that_change_while_others_work(kernel):
    stop, found = threading.Event(), []

    def work():
        while not stop.is_set():
            assert_each_runs_once(kernel)
        found.append(True)

    callers = [threading.Thread(target=work) for _ in range(3)]
    for caller in callers:
        caller.start()
    for k in range(60):
        set_num_threads(1 + k % 4)
        time.sleep(0.002)
    stop.set()
    for caller in callers:
        caller.join()
    assert len(found) == 3
    set_num_threads(2)
    wait_for_rest(1)  # those of other sizes go


def system_threads():
    """How many threads this process has."""
    return len(os.listdir("/proc/self/task"))


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="no /proc on this system")
def test_crews_that_are_not_wanted_end(kernel):
    """Also where several threads change the size at once."""
    set_num_threads(1)
    before, stop = system_threads(), threading.Event()

    def work():
        while not stop.is_set():
            assert_each_runs_once(kernel)

    def resize(seed):
        for k in range(200):
            set_num_threads(1 + (k + seed) % 4)

    callers = [threading.Thread(target=work) for _ in range(2)]
    callers += [threading.Thread(target=resize, args=(k,)) for k in range(2)]
    for caller in callers:
        caller.start()
    for caller in callers[2:]:
        caller.join()
    stop.set()
    for caller in callers[:2]:
        caller.join()
    set_num_threads(1)
    until = time.monotonic() + 300
    while system_threads() > before and time.monotonic() < until:
        time.sleep(0.01)
    assert system_threads() <= before
    set_num_threads(2)
    test_helpers_take_part(kernel)


def test_how_long_helpers_look_is_measured_or_left(monkeypatch, kernel):
    """A crew that ends while it measures would find that looking takes no time."""
    set_num_threads(2)
    assert_each_runs_once(kernel)
    wait_for_rest()
    monkeypatch.setattr(threads.pool, "patience", 0)
    seconds = threads._seconds

    def resized(*args):
        set_num_threads(3)
        return seconds(*args)

    monkeypatch.setattr(threads, "_seconds", resized)
    set_num_threads(2)
    crew = threads.pool.crew
    threads.pool.wake(1)
    while threads.pool.crew is crew:
        time.sleep(0.001)
    wait_for_rest()
    assert threads.pool.patience == 0
    monkeypatch.setattr(threads, "_seconds", seconds)
    set_num_threads(2)
    threads.pool.wake(1)
    wait_for_rest()
    assert threads.PROBE <= threads.pool.patience <= threads.AWHILE / threads.LEAST_LOOK


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="no masks on this system")
def test_signals_are_left_to_who_waits_for_them():
    program = """
    import signal, os
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    df = value_and_grad(lambda x: np.sum(np.sin(x) * np.exp(x)), compile="always")
    for _ in range(100):
        df(np.ones(100_000))
    assert threads.pool.crew.started
    os.kill(os.getpid(), signal.SIGUSR1)
    print(signal.sigwait([signal.SIGUSR1]) == signal.SIGUSR1)
    """
    run_program(textwrap.dedent(program), "True")


def test_arguments_that_do_not_fit(kernel):
    """An error before any chunk has run."""
    counts = np.zeros(50, np.int64)
    for args in ((counts, 0.5, np.zeros(49)), (counts, None, np.zeros(50)), (counts, 0.5)):
        with pytest.raises((BufferError, TypeError)):
            threads.parallel(kernel, 50, *args)
    assert not counts.any()


def test_a_chunk_that_fails():
    kernel = counting(f"return {regions.FAILED - 3} + chunk")
    for count in (1, 2):
        set_num_threads(count)
        with pytest.raises(SystemError, match="raised an exception"):
            threads.parallel(kernel, 4, np.zeros(50, np.int64), 0.5, np.zeros(50))


def test_helpers_that_cant_start(monkeypatch, kernel):
    """Whoever can't be had isn't waited for, and no chunk is left to them."""
    start, started = threads.start_new_thread, []

    def failing(*args):
        if len(started) == allowed:
            raise RuntimeError("can't start new thread")
        started.append(args)
        return start(*args)

    assert_each_runs_once(kernel)
    monkeypatch.setattr(threads, "start_new_thread", failing)
    for allowed in (0, 1, 2):
        set_num_threads(4)
        started.clear()
        for _ in range(20):
            assert_each_runs_once(kernel)
        assert threads.pool.crew.started == allowed


def test_helpers_that_never_come(monkeypatch, kernel):
    """They are rung for, and don't hear it."""
    set_num_threads(3)
    assert_each_runs_once(kernel)
    for _ in range(2):
        wait_for_rest()
        threads.pool.wake(2)
    wait_for_rest()
    assert threads.pool.crew.started == 2
    rung = []

    class Mute:
        qsize = rung.__len__
        put = rung.append
        get = threads.pool.crew.bell.get  # a helper may be late to fall asleep

    with monkeypatch.context() as patch:
        patch.setattr(threads.pool.crew, "bell", Mute())
        for _ in range(3):
            assert_each_runs_once(kernel)
    assert rung == [True, True]  # once each


# A worker would know nothing of GRAIN.
INSIDE = "from tapegrad.compiler import client\nclient.client.failed = client.ATTEMPTS\n"


def run_program(text, *lines):
    """What a program prints, which is ended if it hangs."""
    program = "import numpy as np\nfrom tapegrad import grad, value_and_grad, set_num_threads\n"
    program += (
        "from tapegrad.schedule import parallelise\nfrom tapegrad.backends.cpu import threads\n"
    )
    program += "set_num_threads(2)\nparallelise.GRAIN = 2000\n" + INSIDE + textwrap.dedent(text)
    ran = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "TAPEGRAD_DEBUG": ""},  # calls are compiled ones alone
    )
    assert ran.stdout.split() == [*lines], ran.stdout + ran.stderr


# A gradient with scratch memory and chunks, which takes a millisecond or two.
LONG = """
    import random, signal, time
    x = np.linspace(-1.0, 1.0, 60_000).reshape(-1, 6)

    def f(x):
        z = np.tanh(x) * np.exp(x - np.max(x, axis=1, keepdims=True))
        return np.sum(np.sin(z - np.mean(z)) ** 2)

    df = value_and_grad(f, compile="always")
    expected = df(x)
    (entry,) = df.front.recent
    assert entry.driver.scratch and any("parallel(" in line for line in entry.driver.lines)

    def same(found):
        return found[0] == expected[0] and np.array_equal(found[1], expected[1])
"""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers on this system")
def test_signals_in_the_middle_of_a_call():
    """Ctrl-C at any moment of a call: the calls after it are right, and none hangs. And a handler
    that calls the gradient that is running: each has memory of its own."""
    program = """
    timer = signal.ITIMER_REAL
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    random.seed(0)
    begin = time.perf_counter()
    for _ in range(5):
        df(x)
    each = (time.perf_counter() - begin) / 5
    interrupts = wrong = 0
    while interrupts < 320:
        try:
            signal.setitimer(timer, random.uniform(0.02, 1.1) * each)
            wrong += not same(df(x))
            wrong += not same(df(x))
            signal.setitimer(timer, 0)
        except KeyboardInterrupt:
            interrupts += 1
        wrong += not same(df(x))
    print(wrong)

    inside, outside = [], []

    def handler(*_):
        inside.append(same(df(x)))

    signal.signal(signal.SIGALRM, handler)
    while len(inside) < 50:
        signal.setitimer(timer, random.uniform(0.02, 1.1) * each)
        outside.append(same(df(x)))
    signal.setitimer(timer, 0)
    print(all(outside), all(inside))
    """
    run_program(LONG + program.lstrip("\n"), "0", "True", "True")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_forks_while_the_pool_works():
    """In a child of another thread, and of a handler in the middle of a call."""
    program = """
    import os, threading, warnings
    warnings.simplefilter("ignore")
    stop = threading.Event()

    def work():
        while not stop.is_set():
            df(x)

    def fork():
        child = os.fork()
        if child == 0:
            signal.alarm(20)  # ends a child that hangs
            os._exit(0 if same(df(x)) else 1)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    workers = [threading.Thread(target=work) for _ in range(2)]
    for worker in workers:
        worker.start()
    found = {fork() for _ in range(10)}
    stop.set()
    for worker in workers:
        worker.join()
    print(found)

    forked = []

    def handler(*_):
        if os.getpid() == parent and not forked:
            forked.append(os.fork())

    parent, codes = os.getpid(), set()
    signal.signal(signal.SIGUSR1, handler)
    for k in range(20):
        forked.clear()
        later = threading.Timer(0.0002 * k, os.kill, (parent, signal.SIGUSR1))
        later.start()
        right = True
        while not forked:
            right = right and same(df(x))
        if os.getpid() != parent:
            signal.alarm(20)
            os._exit(0 if right and same(df(x)) else 1)
        codes |= {not right, os.waitstatus_to_exitcode(os.waitpid(forked[0], 0)[1])}
        later.join()
    print(codes)
    """
    run_program(LONG + program.lstrip("\n"), "{0}", "{False}")


def test_scratch_memory_is_dropped_after_an_exception(monkeypatch):
    set_num_threads(2)
    f, args = PROGRAMS["sums of rows"]
    df = grad(f, compile="always")
    expected = df(*args)
    (entry,) = df.front.recent
    (scratch,) = [x for x in entry.names.values() if isinstance(x, Scratch)]
    (memory,) = scratch.spare
    df(*args)
    assert scratch.spare[0] is memory

    def interrupted(*args):
        threads.parallel(*args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setitem(entry.names, "parallel", interrupted)
        with pytest.raises(KeyboardInterrupt):
            df(*args)
    assert scratch.spare == []
    np.testing.assert_array_equal(df(*args), expected)
    assert scratch.spare[0] is not memory


def test_the_setting(monkeypatch):
    set_num_threads(3)
    assert threads.pool.crew.size == 3
    monkeypatch.setenv("TAPEGRAD_NUM_THREADS", "2")
    set_num_threads()
    assert threads.pool.crew.size == 2
    for odd in ("many", "\u00b2", "0", "-3", ""):
        monkeypatch.setenv("TAPEGRAD_NUM_THREADS", odd)
        assert threads.available_cores() >= 1
    monkeypatch.setenv("TAPEGRAD_NUM_THREADS", "9" * 26)
    assert threads.available_cores() == threads.MAX_THREADS
    set_num_threads(np.int64(2))
    assert threads.pool.crew.size == 2
    for bad in (0, -1, 2.5, "2", True, 2**70):
        with pytest.raises(ArgumentError, match="positive number of threads"):
            set_num_threads(bad)
    assert jit(lambda x: x * 2)(3.0) == 6.0
