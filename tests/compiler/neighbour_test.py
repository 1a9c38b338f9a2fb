"""The compiler next door: what goes wrong with it is nobody's wait, and nobody's wrong number."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from tests.compiler.programs import LIMIT, run


def test_no_call_waits_and_numba_is_never_loaded(tmp_path):
    """The default mode plays until the machine code is there; nothing else happens here."""
    program = """
    df = made(3, "auto")
    calls = 0
    while not compiled(df):
        right(df, 3)
        time.sleep(0.001)
        calls += 1
        if calls == 2:
            assert df.cache_info().compiling == 1 or compiled(df)
    right(df, 3)
    assert calls > 2
    assert df.cache_info().compiling == 0
    assert "numba" not in sys.modules and "networkx" not in sys.modules
    assert threading.active_count() == 1
    """
    run(program, tmp_path)


def test_what_nobody_asks_for_any_more(shared):
    """A function that is forgotten while it is compiled doesn't stand in the way of others."""
    program = """
    from tapegrad.runtime import tier
    forgotten = made(1, "auto")
    right(forgotten, 1), right(forgotten, 1)
    assert client.pending == 1
    del forgotten
    df = made(2, "auto")
    right(df, 2)
    (variant,) = df.cache.all_variants()
    variant.tier.price = np.inf  # so that it waits for its turn
    until(lambda: right(df, 2) or compiled(df))
    assert client.pending == 0
    """
    shared.run(program)


def test_a_function_that_is_called_once_is_not_compiled(shared):
    program = """
    for k in range(5):
        df = made(k, "auto")
        right(df, k)
        assert client.pending == 0
    """
    shared.run(program)


@pytest.mark.every(3)
@pytest.mark.parametrize("name", ["KILL", "STOP", "SEGV"])
def test_a_worker_that_dies_or_hangs_is_replaced(name, shared):
    program = f"""
    office.SILENCE = 1.0
    df = made(1)
    right(df, 1)
    first = client.worker.pid
    played = made(2, "auto")
    right(played, 2), right(played, 2)
    os.kill(first, signal.SIG{name})
    waited = made(3)
    right(waited, 3)
    assert client.worker.pid != first and client.inside is None
    while not compiled(played):
        right(played, 2)
    try:
        os.kill(first, 0)
        raise AssertionError("the first worker is still there")
    except ProcessLookupError:
        pass
    """
    shared.run(program)


def test_workers_that_are_killed_at_random(shared):
    program = """
    random.seed(1)
    stop = False

    def kill():
        while not stop:
            time.sleep(random.expovariate(4))
            worker = client.worker
            if worker is not None:
                os.kill(worker.pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    for k in range(12):
        right(made(k, random.choice(["always", "auto"])), k)
    stop = True
    killer.join()
    """
    shared.run(program)


def test_a_program_that_kills_its_compiler_is_played(shared):
    """In the default mode with a warning; where the compiler is waited for it is an error."""
    program = """
    import warnings
    from tapegrad.compiler import packed
    from tapegrad.errors import InternalError

    class Bomb:
        def __reduce__(self):
            return os.kill, (0, 0)

    send = office.Worker.send
    def spoilt(self, number, job):
        from tapegrad.compiler.protocol import message
        self.jobs[number] = job
        self.outgoing += message(number, b"cos\\nabort\\n(tR.")  # a pickle that calls os.abort
        return True
    office.Worker.send = spoilt
    try:
        right(made(2), 2)
        raise AssertionError("no error")
    except InternalError as error:
        assert "couldn't be compiled" in str(error) and "ended with -6" in str(error)
    df = made(3, "auto")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        until(lambda: right(df, 3) or caught)
    assert "played with NumPy instead" in str(caught[0].message)
    right(df, 3)
    assert df.cache_info().compiling == 0
    office.Worker.send = send
    right(made(4), 4)
    assert client.inside is None
    """
    shared.run(program)


# Why there is none; and whether there are threads.
REASONS = {
    "sys.executable = '/usr/bin/uwsgi'; sys._base_executable = ''": True,
    "sys.executable = ''; sys._base_executable = None": False,
    "sys.frozen = True": True,
    "sys.executable = sys._base_executable = '/nowhere/python3'": False,
    "del os.posix_spawn": True,
    "sys.modules['_socket'] = None": True,
    "office._interpreter = lambda: '/bin/false'": False,
}


def test_where_there_is_no_worker_a_thread_compiles(tmp_path):
    """And where there is no thread either, whoever asks for it. Each is a fork of a process that
    has loaded the compiler."""
    program = f"""
    from tapegrad.compiler.warm_up import compile_first

    def start(self):
        raise RuntimeError("can't start new thread")

    def work(threads):
        df = made(3)
        right(df, 3)
        assert compiled(df) and client.inside is not None
        other = made(4, "auto")
        for _ in range(20):
            right(other, 4)
        if threads:
            until(lambda: right(other, 4) or compiled(other))

    compile_first()
    for reason, threads in {REASONS}.items():
        number = os.fork()
        if not number:
            exec(reason)
            if not threads:
                threading.Thread.start = start
            work(threads)
            os._exit(0)
        assert os.waitpid(number, 0)[1] == 0, reason
    """
    run(program, tmp_path, "-W", "ignore")


def test_where_no_thread_can_be_had_none_is_asked_for(tmp_path):
    """SciPy's BLAS starts some when it is loaded, and interrupts the process where that fails."""
    program = """
    from importlib.machinery import PathFinder

    def start(thread):
        raise RuntimeError("can't start new thread")

    def found(name, *args, once=PathFinder.find_spec):
        if name.startswith("scipy.linalg"):
            asked.append(os.environ.get("OPENBLAS_NUM_THREADS"))
        return once(name, *args)

    asked = []
    PathFinder.find_spec = found
    threading.Thread.start = start
    os.environ.pop("OPENBLAS_NUM_THREADS", None)
    client.failed = office.ATTEMPTS
    df = made(1)
    right(df, 1)
    assert compiled(df)
    assert asked and set(asked) == {"1"} and "OPENBLAS_NUM_THREADS" not in os.environ
    """
    run(program, tmp_path)


def test_asking_whether_something_is_compiled(shared):
    """Who asks need not call."""
    program = """
    df = made(1, "auto")
    right(df, 1), right(df, 1)
    until(lambda: not df.cache_info().compiling)
    right(df, 1)
    assert compiled(df)
    """
    shared.run(program)


def test_a_program_that_only_this_process_knows(shared):
    """A primitive whose parameter can't travel, or can't be read there -> compiled here."""
    program = """
    from tapegrad.ir.tape import Aval, Builder
    from tapegrad.primitives.base import Parametric, parametric
    from tapegrad.primitives.kinds import Library

    @parametric
    class Here(Library):
        value: object
        name = "here"
        def aval(self, x): return x
        def evaluate(self, x): return np.sin(x)

    for value in (1, lambda: 1):
        builder = Builder("f")
        x = builder.input(Aval((3,), np.dtype(float)), "x")
        (out,) = builder.call(Here(value), [x])
        np.testing.assert_array_equal(builder.finish([out]).compile()(X), np.sin(X))
    assert client.inside is not None and client.worker is not None
    """
    shared.run(program)


@pytest.mark.every(2)
@pytest.mark.parametrize("mode", ["auto", "always"])
def test_functions_of_the_users_stay_apart(mode, shared, tmp_path):
    """Programs that differ in the user's functions alone are one program on disk; each calls its
    own, also where they are compiled at the same time."""
    program = f"""
    import warnings
    from tapegrad import defvjp, primitive

    os.environ["TAPEGRAD_CACHE_DIR"] = {str(tmp_path / "cache")!r}

    def opaque(k):
        @primitive
        def p(x):
            return k * np.sin(np.array(x.tolist()))

        @primitive
        def slope(x):
            return k * np.cos(np.array(x.tolist()))

        defvjp(p, lambda ct, out, x: ct * slope(x))
        return grad(lambda x: np.sum(p(x)), compile="{mode}")

    functions = [opaque(float(k)) for k in range(4)]

    def work(k):
        for _ in range(3):
            right(functions[k], k)
        for _ in range(200):
            right(functions[k], k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    def ready():  # compiled, or found
        for k in range(4):
            right(functions[k], k)
        return all(sum(df.cache_info()[3:7:3]) for df in functions)

    until(ready)
    """
    shared.run(program)


def test_what_the_parent_has_open_is_closed(shared):
    program = """
    client.end()
    reads, writes = os.pipe()
    os.set_inheritable(writes, True)
    right(made(1), 1)
    os.close(writes)
    assert os.read(reads, 1) == b""  # at once: the worker has no hold of it
    """
    shared.run(program)


def test_a_cache_folder_that_is_named_from_here(tmp_path):
    program = f"""
    from tapegrad.runtime import reuse
    os.chdir({str(tmp_path)!r})
    right(made(1), 1)
    assert os.listdir("cache")
    reuse.forget()
    again = made(1)
    right(again, 1)
    assert again.cache_info().loads == 1
    """
    run(program, tmp_path, TAPEGRAD_CACHE_DIR="cache")


def test_a_compiler_that_is_stopped(shared):
    """The process that compiles one program: another takes its place."""
    program = """
    def forks():
        path = f"/proc/{client.worker.pid}/task/{client.worker.pid}/children"
        return [int(word) for word in open(path).read().split()]

    def stop():
        while not (found := forks()):
            pass
        os.kill(found[0], signal.SIGSTOP)

    right(made(1), 1)
    thread = threading.Thread(target=stop)
    thread.start()
    right(made(2), 2)
    thread.join()
    """
    if not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
        pytest.skip("this system doesn't tell a process's children")
    shared.run(program)


def test_files_with_the_names_of_modules(tmp_path):
    """In the folder of the program, where Python looks first."""
    for name in ("numba", "networkx"):
        (tmp_path / f"{name}.py").write_text("raise AssertionError('not this one')\n")
    program = """
    right(made(1), 1)
    assert client.worker is not None and client.inside is None
    """
    run(program, tmp_path)


# ---- processes


def test_the_worker_goes_with_its_process(tmp_path):
    program = """
    right(made(1), 1)
    print(client.worker.pid, flush=True)
    if len(sys.argv) > 1:
        os.kill(os.getpid(), signal.SIGKILL)
    """
    pids = [int(run(program, tmp_path))]
    found = subprocess.run(
        [sys.executable, str(tmp_path / "program.py"), "kill"], capture_output=True, timeout=LIMIT
    )
    assert found.returncode == -signal.SIGKILL
    pids.append(int(found.stdout))
    end = time.monotonic() + 300
    for pid in pids:
        while is_running(pid):
            assert time.monotonic() < end
            time.sleep(0.01)


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_socket_that_the_program_closes_is_not_written_to(shared, tmp_path):
    """It closes all files, and opens its own under the same numbers."""
    program = f"""
    right(made(1), 1)
    number = client.worker.socket.fileno()
    os.closerange(3, 1000)
    while (file := os.open({str(tmp_path / "own")!r}, os.O_RDWR | os.O_CREAT)) < number:
        pass
    df = made(2, "auto")
    for _ in range(5):
        right(df, 2)
    right(made(3), 3)
    os.fstat(file)  # it is still open
    assert os.path.getsize({str(tmp_path / "own")!r}) == 0
    """
    shared.run(program)


# ---- interruptions


def test_calls_in_the_middle_of_calls(tmp_path):
    """Signals' handlers, finalizers and `atexit` call gradients at any moment."""
    program = """
    count, delays = 0, [random.uniform(0.001, 0.2) for _ in range(9)]

    def handler(number, frame):
        global count
        count += 1
        right(made(count, ["always", "auto"][count % 2]), count)
        if count < 8:
            signal.setitimer(signal.ITIMER_REAL, delays[count])

    class Finalized:
        def __del__(self):
            right(made(7), 7)

    exchange, calls = office.Worker.exchange, list(range(10))
    def calling(self):
        if calls:  # each is compiled, and others wait for that
            calls.pop()
            made(8)(X), made(9, "auto")(X)
        return exchange(self)
    office.Worker.exchange = calling

    made(0, "never")(X)  # a module that is being imported can't be used
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    for k in range(1000):
        cycle = [Finalized()]
        cycle.append(cycle)
        del cycle
        right(made(k), k)
        gc.collect()
        if k > 2 and count > 2:  # as many as a fast machine takes
            break
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert count > 2

    @atexit.register
    def last():
        right(made(20), 20)
        right(made(21, "auto"), 21)
    """
    run(program, tmp_path)


def test_waiting_for_the_compiler_can_be_interrupted(shared):
    program = """
    def strike():
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGINT)

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
    right(made(1), 1)
    os.kill(client.worker.pid, signal.SIGSTOP)
    df = made(2)
    threading.Thread(target=strike).start()
    try:
        df(X)
        raise AssertionError("it wasn't interrupted")
    except KeyboardInterrupt:
        pass
    os.kill(client.worker.pid, signal.SIGCONT)
    right(df, 2)
    assert compiled(df)
    """
    shared.run(program)


def test_messages_of_long_programs(shared):
    """They are larger than what a socket holds."""
    program = """
    def long(x):
        for k in range(3000):
            x = x + np.sin(x * (1 + k / 3000)) / 1000
        return np.sum(x)
    df = grad(long)
    expected = df(X)
    np.testing.assert_array_equal(df(X), expected)
    until(lambda: df(X) is None or client.worker and not client.worker.outgoing)
    right(made(1), 1)
    """
    shared.run(program)


def test_a_compiler_of_other_sources_is_not_used(tmp_path):
    """Where tapegrad was installed anew since this process has loaded it, a worker would run what
    is there now: it ends, and this process compiles."""
    program = """
    from tapegrad.compiler import client, key
    key.LOADED = 0.0
    df = made(3, "always")
    right(df, 3)
    assert client.client.worker is None and client.client.inside is not None
    """
    run(program, tmp_path)
