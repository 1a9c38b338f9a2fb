"""Derivatives that are called while the program ends."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap


def printed(program: str) -> list[str]:
    """The lines that a program prints."""
    found = ended(program)
    return found.stdout.splitlines()


def ended(program: str) -> subprocess.CompletedProcess[str]:
    plain = {name: text for name, text in os.environ.items() if name != "TAPEGRAD_DEBUG"}
    run = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)]
    return subprocess.run(run, capture_output=True, text=True, check=True, env=plain)


def test_calls_in_functions_of_atexit():
    """`atexit.register` before the first call, which makes optree forget what trees are -> the
    derivative, of every kind of argument"""
    program = """
        import atexit
        from collections import OrderedDict, namedtuple

        @atexit.register
        def last():
            for args in ARGS:
                print(*map(repr, map(float, optree_leaves(d(*args)))))

        import numpy as np
        from tapegrad import grad

        Pair = namedtuple("Pair", "a b")

        def optree_leaves(x):
            if isinstance(x, dict):
                x = list(x.values())
            return [y for z in x for y in optree_leaves(z)] if isinstance(x, (list, tuple)) else [x]

        d = grad(lambda x: sum((k + 1.0) * y**2 for k, y in enumerate(optree_leaves(x))))
        ARGS = [((3.0, 1.0),), ({"b": 2.0, "a": [1.0]},), (Pair(1.0, 2.0),), (OrderedDict(c=5.0),)]
        d(1.0)
    """
    assert printed(program) == ["6.0 4.0", "4.0 4.0", "2.0 8.0", "10.0"]


def test_calls_in_finalizers_of_the_end():
    """`__del__` when modules are gone -> the result if the code is there, else one plain error"""
    program = """
        import numpy as np
        from tapegrad import grad

        class Held:
            def __init__(self, how):
                self.d = grad(lambda x: x**2, compile=how)

            def __del__(self):
                try:
                    print(self.d(3.0))
                except Exception as error:
                    print(type(error).__name__, str(error).split(",")[0])

        compiled, cold = Held("always"), Held("never")
        compiled.d(1.0)
    """
    assert sorted(printed(program)) == ["6.0", "TraceError <lambda> is called while Python ends"]


def test_a_program_that_ends_while_something_compiles():
    """nothing waits for the compiler -> nothing is said"""
    program = """
        import numpy as np
        from tapegrad import grad
        from tapegrad.runtime import tier

        tier.SLOW = 0.0
        d = grad(lambda x: np.sum(np.sin(x) ** 2))
        for k in range(50):
            d(np.ones(3))
    """
    assert ended(program).stderr == ""


def test_a_program_that_ends_while_a_daemon_thread_loads_modules(tmp_path):
    """Python would end the thread in the middle of a C++ module, and abort."""
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(0.3)\nprint('loaded')\n")
    program = f"""
        import sys, threading
        from tapegrad.core import late

        sys.path.insert(0, {str(tmp_path)!r})
        begun = threading.Event()

        def first_call():
            begun.set()
            late.load(("slow",))
            late.load(("this",))

        threading.Thread(target=first_call, daemon=True).start()
        begun.wait()
    """
    assert printed(program) == ["loaded"]
