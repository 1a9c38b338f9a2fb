"""Strike at gradients at random moments, and look whether a result is wrong or a call hangs.

    python benchmarks/faults.py

Interrupts while something is traced, compiled, loaded and run; forks while other threads compile;
workers that are killed; calls from many threads; and the memory of a process that makes many
functions. Each is a process of its own, with a limit on its time.
"""

import os
import subprocess
import sys
import textwrap
import time

import click

HEAD = """
import os, random, resource, signal, sys, threading, time, warnings
import numpy as np
from tapegrad import clear_cache, grad
from tapegrad.compiler.client import client

warnings.simplefilter("ignore")
random.seed(0)
X = np.linspace(0.1, 2.0, 50)
count = int(sys.argv[1])
wrong = 0

def made(k, mode):
    return grad(lambda x: np.sum(np.sin(x) * k + x**2), compile=mode)

def check(df, k):
    global wrong
    wrong += not np.allclose(df(X), np.cos(X) * k + 2 * X, rtol=1e-10)

check(made(1.0, "always"), 1.0)
"""

STRIKES = {
    "interrupts": (
        1000,
        """
        struck = k = 0
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        while struck < count:
            k += 1
            df = made(float(k), random.choice(["auto", "always"]))
            try:
                signal.setitimer(signal.ITIMER_REAL, random.expovariate(20))
                for _ in range(20):
                    check(df, k)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                struck += 1
            check(df, k)
            if k % 50 == 0:
                clear_cache()
        print(struck, "interrupts,", k, "functions")
        """,
    ),
    "forks": (
        500,
        """
        stop = False

        def busy(seed):
            k = seed
            while not stop:
                k += 2
                df = made(float(k), random.choice(["auto", "always"]))
                for _ in range(10):
                    check(df, k)

        threads = [threading.Thread(target=busy, args=(seed,)) for seed in (1000, 1001)]
        for thread in threads:
            thread.start()
        codes = {}
        for k in range(count):
            time.sleep(random.uniform(0, 0.02))
            child = os.fork()
            if not child:
                wrong = 0
                df = made(float(k), "auto")
                check(df, k), check(df, k)
                if k % 25 == 0:
                    check(made(k + 0.5, "always"), k + 0.5)
                os._exit(1 if wrong else 0)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            codes[code] = codes.get(code, 0) + 1
        stop = True
        for thread in threads:
            thread.join()
        print(codes, "how children ended")
        wrong += sum(n for code, n in codes.items() if code)
        """,
    ),
    "kills": (
        200,
        """
        from tapegrad.compiler import client as office

        office.ATTEMPTS = 10**9  # else, after two in a row, there is none to kill
        killed, k = 0, 0

        def kill():
            global killed
            while killed < count:
                time.sleep(random.expovariate(1))
                worker = client.worker
                if worker is not None:
                    try:
                        os.kill(worker.pid, signal.SIGKILL)
                        killed += 1
                    except ProcessLookupError:
                        pass

        thread = threading.Thread(target=kill)
        thread.start()
        while killed < count:
            k += 1
            df = made(float(k), random.choice(["auto", "always"]))
            for _ in range(5):
                check(df, k)
        thread.join()
        print(killed, "killed,", k, "functions")
        """,
    ),
    "threads": (
        100_000,
        """
        derived = [made(float(k), "auto") for k in range(8)]

        def work(seed):
            for n in range(count // 8):
                k = (n // 100 + seed) % 8
                check(derived[k], k)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(sum(df.cache_info().hits for df in derived), "hits,",
              sum(df.cache_info().compiles for df in derived), "compiled")
        """,
    ),
    "functions": (
        5_000,
        """
        def memory():
            return int(open("/proc/self/status").read().partition("VmRSS:")[2].split()[0]) / 1024

        seen = []
        for k in range(count):
            check(made(float(k), "always"), k)
            if k % (count // 10) == count // 10 - 1:
                seen.append(round(memory()))
        print("MB:", *seen)
        """,
    ),
}


@click.command()
@click.option("--part", default=1.0, help="Of the full numbers.")
@click.option("--only", default="", type=click.Choice(["", *STRIKES]))
@click.option("--limit", default=1800.0, help="Seconds for each.")
def main(part: float, only: str, limit: float) -> None:
    for name, (count, program) in STRIKES.items():
        if only not in ("", name):
            continue
        start = time.perf_counter()
        text = HEAD + textwrap.dedent(program) + "print('wrong:', wrong)\n"
        try:
            found = subprocess.run(
                [sys.executable, "-c", text, str(int(part * count))],
                env={**os.environ, "TAPEGRAD_CACHE_DIR": "off"},
                timeout=limit,
                capture_output=True,
                text=True,
            )
            said = " ".join(found.stdout.split()) or found.stderr[-2000:]
        except subprocess.TimeoutExpired:
            said = f"NO END within {limit:g} s"
        print(f"{name:<12}{said}  ({time.perf_counter() - start:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
