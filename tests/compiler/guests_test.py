"""Forks, pools, threads and interpreters around the compiler next door: nothing hangs."""

from __future__ import annotations

import pytest
from tests.compiler.programs import run


def test_forks(shared):
    """Before, while and after something is compiled, in a process with threads."""
    program = """
    def child(work):
        number = os.fork()
        if not number:
            try:
                work()
                os._exit(0)
            except BaseException as error:
                print(repr(error), file=sys.stderr, flush=True)
                os._exit(1)
        return number

    def work():
        for k, df in enumerate(derived):
            right(df, k)
            right(df, k)
        right(made(100), 100)
        right(made(101, "auto"), 101)
        assert client.worker is None or client.worker.pid not in parents

    parents, children, derived = set(), [], []
    busy = threading.Thread(target=lambda: [right(made(200 + k), 200 + k) for k in range(6)])
    busy.start()
    for k in range(4):  # each starts a compiler
        derived.append(made(k, "auto" if k % 2 else "always"))
        right(derived[k], k), right(derived[k], k)
        parents.add(client.worker.pid)
        children.append(child(work))
        time.sleep(0.1 * k)
    busy.join()
    assert [os.waitpid(number, 0)[1] for number in children] == [0] * len(children)
    right(made(9), 9)
    """
    shared.run(program)


def test_forks_while_modules_are_loaded(tmp_path):
    """A child never gets the lock of a module that another thread was importing."""
    program = """
    threads = [
        threading.Thread(target=lambda k=k: right(made(k, "auto"), k)) for k in range(2)
    ]
    for thread in threads:
        thread.start()
    children = []
    for k in range(12):
        children.append(os.fork())
        if not children[-1]:
            signal.alarm(300)  # ends a child that hangs
            df = made(k, "never")
            right(df, k)
            os._exit(0)
        time.sleep(0.01)
    for thread in threads:
        thread.join()
    assert [os.waitpid(number, 0)[1] for number in children] == [0] * len(children)
    """
    run(program, tmp_path, "-W", "ignore")


@pytest.mark.every(3)
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_pools(method, tmp_path):
    program = f"""
    if __name__ == "__main__":
        right(made(50), 50)
        with multiprocessing.get_context("{method}").Pool(2) as pool:
            assert pool.map(work, range(4)) == [0, 1, 2, 3]
    """
    run(program, tmp_path, "-W", "ignore")


@pytest.mark.every(2)
@pytest.mark.parametrize("where", ["", "client.failed = office.ATTEMPTS"])
def test_a_fork_while_the_compiler_is_waited_for(where, shared):
    """As by a signal's handler; the child goes on, where only its parent will get an answer."""
    program = f"""
    {where}
    right(made(1), 1)
    children = []
    sleep = office.Client._sleep

    def forking(self):
        children or children.append(os.fork())
        sleep(self)

    office.Client._sleep = forking

    def long(x):
        for k in range(60):
            x = x + np.sin(x * (1 + k / 60)) / 100
        return np.sum(x)

    df, expected = grad(long, compile="always"), grad(long, compile="never")(X)
    np.testing.assert_allclose(df(X), expected, rtol=1e-12)
    np.testing.assert_allclose(df(X), expected, rtol=1e-12)
    if children[0]:
        assert os.waitpid(children[0], 0)[1] == 0
    """
    shared.run(program)


def test_asyncio_and_threads(shared):
    program = """
    async def one(k):
        df = made(k, ["always", "auto"][k % 2])
        for _ in range(20):
            await asyncio.to_thread(right, df, k)
            right(df, k)

    async def main():
        await asyncio.gather(*[one(k) for k in range(6)])

    asyncio.run(main())
    """
    shared.run(program)


def test_joblib(tmp_path):
    """A function that is made in its threads and processes, and one that travels with what has been
    compiled here."""
    program = """
    import joblib

    if __name__ == "__main__":
        here = made(50)
        right(here, 50)
        for backend in ("threading", "loky"):
            with joblib.Parallel(n_jobs=2, backend=backend) as pool:
                assert pool(joblib.delayed(work)(k) for k in range(4)) == [0, 1, 2, 3]
                pool(joblib.delayed(right)(here, 50) for _ in range(2))
    """
    run(program, tmp_path, "-W", "ignore")


def test_fits_side_by_side(tmp_path):
    """A derivative goes to joblib's threads and processes, and is compiled where it arrives: by its
    function's name, or by cloudpickle, as lambdas do."""
    program = """
    import pickle
    import cloudpickle, joblib
    from scipy.optimize import minimize
    from tapegrad import hvp, value_and_grad

    def misfit(w, x):
        return np.sum(np.log1p((x @ w - 1.0) ** 2)) + w @ w

    by_name = value_and_grad(misfit, compile="always")

    def fitted(g, k):
        x = np.random.default_rng(k).normal(size=(50, 3))
        found = minimize(g, np.zeros(3), args=(x,), jac=True, method="L-BFGS-B").x
        return found, os.getpid(), g.cache_info()

    if __name__ == "__main__":
        scale = 2.0
        by_value = value_and_grad(lambda w, x: scale * misfit(w, x) / 2.0, compile="always")
        wanted = [fitted(by_name, k)[0] for k in range(6)]
        for g, backend in [
            (by_name, "threading"), (by_name, "loky"), (by_name, "multiprocessing"),
            (by_value, "threading"), (by_value, "loky"),
        ]:
            jobs = (joblib.delayed(fitted)(g, k) for k in range(6))
            found, pids, infos = zip(*joblib.Parallel(n_jobs=2, backend=backend)(jobs))
            np.testing.assert_allclose(found, wanted, rtol=1e-6)
            assert (os.getpid() in pids) == (backend == "threading")
            assert all(info.compiles + info.loads for info in infos), infos
        v = np.ones(3)
        x = np.eye(3)
        for kind in (pickle, cloudpickle):
            for make in (value_and_grad, hvp):
                g = kind.loads(kind.dumps(make(misfit)))
                args = (v, x, v) if make is hvp else (v, x)
                for a, b in zip(g(*args), make(misfit)(*args)):
                    np.testing.assert_allclose(a, b)
    """
    run(program, tmp_path, "-W", "ignore")


def test_dask(tmp_path):
    program = """
    import dask

    if __name__ == "__main__":
        right(made(50), 50)
        tasks = [dask.delayed(work)(k) for k in range(4)]
        for scheduler in ("synchronous", "threads", "processes"):
            found = dask.compute(*tasks, scheduler=scheduler, num_workers=2)
            assert found == (0, 1, 2, 3), scheduler
    """
    run(program, tmp_path, "-W", "ignore")


def test_forks_while_the_compiler_inside_is_loaded(tmp_path):
    """numba is imported by a thread then; a child finds none of it locked."""
    program = """
    client.failed = office.ATTEMPTS
    df = made(1, "auto")
    for _ in range(3):
        right(df, 1)
    assert client.inside.thread.is_alive()
    children = []
    for k in range(10):
        children.append(os.fork())
        if not children[-1]:
            signal.alarm(300)  # ends a child that hangs
            client.failed = office.ATTEMPTS
            for mode in ("auto", "always"):
                right(made(k, mode), k)
            import numba.core.dispatcher
            os._exit(0)
        time.sleep(0.1)
    assert [os.waitpid(number, 0)[1] for number in children] == [0] * len(children)
    until(lambda: right(df, 1) or compiled(df))
    """
    run(program, tmp_path, "-W", "ignore")


def test_a_fork_while_a_module_is_imported(tmp_path):
    """Any of tapegrad's: the child imports it anew."""
    program = """
    from importlib.machinery import SourceFileLoader

    def execute(self, module, once=SourceFileLoader.exec_module):
        if module.__name__ == "tapegrad.ir.allocation" and not entered.is_set():
            entered.set()
            go_on.wait(300)
        once(self, module)

    entered, go_on = threading.Event(), threading.Event()
    SourceFileLoader.exec_module = execute
    df = made(2)
    right(df, 2)
    (tape,) = df.tapes
    thread = threading.Thread(target=tape.memory_report)
    thread.start()
    entered.wait()
    child = os.fork()
    if not child:
        signal.alarm(300)  # ends a child that hangs
        assert tape.memory_report().scratch_bytes >= 0
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    go_on.set()
    thread.join()
    """
    run(program, tmp_path, "-W", "ignore")


SUB_INTERPRETER = """
try:
    import _interpreters as interpreters
    number = interpreters.create("legacy")
except ImportError:
    import _xxsubinterpreters as interpreters
    number = interpreters.create(isolated=False)
failed = interpreters.run_string(number, '''
import warnings
warnings.simplefilter("ignore")
try:
    import numpy as np
    from tapegrad import grad
    grad(np.sum)(np.ones(2))
    said = "nothing"
except ImportError as error:
    said = str(error)
assert "sub-interpreter" in said or "once per process" in said, said
''')
assert not failed, failed
"""


@pytest.mark.parametrize("first", ["import numpy", "import tapegrad", ""])
def test_a_sub_interpreter(first, tmp_path):
    """optree would hang there, so tapegrad says that it doesn't run there; where NumPy is loaded
    already, NumPy says so."""
    run(SUB_INTERPRETER, tmp_path, head=f"{first}\n")
