"""Functions of machine code live as long as anybody can call them, and CPython look at them: in
garbage, and at exit. Where they don't, the process ends, so each is tried in a fork of its own."""

from __future__ import annotations

import copy
import gc
import pickle
import subprocess
import sys

import numpy as np
import pytest

import tapegrad as tg
from tapegrad import pipeline
from tapegrad.backends.cpu import linking
from tapegrad.runtime import reuse

START = """
import builtins
import ctypes
import gc
import os
import pickle
import sys

import numpy as np

import tapegrad as tg
from tapegrad.backends.cpu import linking
from tapegrad.backends.cpu import loading
from tapegrad import pipeline

x, out = np.full(5, 2.0), np.zeros(5)
if sys.argv[1] == "LLVM's linker":  # in a process that compiles, too
    loading._EM_X86_64 = None  # no file is simple
    df = tg.grad(lambda x: np.sum(x * x * x), compile="never")
    df(x)
    made = pipeline.compile(df.tapes[0])
    (code,), shared = made.kernels.values(), made.shared
else:
    code, shared = pickle.load(sys.stdin.buffer)
kernel = linking.linked("kernel", code, shared)


def call(kernel):
    out[:] = 0
    kernel(x, out)
    print(*out)


class Last:
    def __del__(self, call=call):
        call(self.kernel)
"""

PROGRAMS = {
    # Objects of the garbage that are cleared early have the others cleared while the kernel lives.
    "while garbage is cleared": """
@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def cleared(_, address=id(kernel)):
    call(ctypes.cast(address, ctypes.py_object).value)


new = ctypes.pythonapi.PyCapsule_New
new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
names = {"capsule": new(1, None, cleared), "kernel": kernel}
names["names"] = names
del names, kernel
gc.collect()
""",
    "while garbage is finalised": """
last = Last()
last.kernel, last.last = kernel, last
del last, kernel
gc.collect()
""",
    "after it was garbage": """
class Phoenix:
    def __del__(self):
        builtins.kept = self


bird = Phoenix()
bird.kernel, bird.bird = kernel, bird
del bird, kernel
gc.collect()
last = Last()
last.kernel, last.bird = builtins.kept.kernel, builtins.kept
last.last = last
builtins.kept.last = last
del last, builtins.kept
gc.collect()
""",
    "at exit": """
builtins.last = Last()
builtins.last.kernel = kernel
""",
    "at exit, in a cycle of modules": """
last = Last()
last.kernel, last.last, last.modules = kernel, last, dict(sys.modules)
""",
}


@pytest.fixture(scope="module")
def code():
    """The machine code of a gradient, pickled."""
    df = tg.grad(lambda x: np.sum(x * x * x), compile="never")
    df(np.ones(5))
    made = pipeline.compile(df.tapes[0])
    (code,) = made.kernels.values()
    return pickle.dumps((code, made.shared))


EACH = """
for when, program in PROGRAMS.items():
    print(when, flush=True)
    if not os.fork():
        exec(program)
        break  # and ends as a process does
    print(os.wait()[1], flush=True)
"""


@pytest.mark.every(2)
@pytest.mark.parametrize("by", ["tapegrad", "LLVM's linker"])
def test_they_can_be_called(by, code):
    command = [sys.executable, "-c", f"{START}\nPROGRAMS = {PROGRAMS}\n{EACH}", by]
    done = subprocess.run(command, capture_output=True, input=code)
    expected = [(when, "12.0 12.0 12.0 12.0 12.0", "0") for when in PROGRAMS]
    lines = done.stdout.decode().splitlines()
    assert [*zip(*[iter(lines)] * 3, strict=True)] == expected, done.stderr


def compiled():
    df = tg.grad(lambda x: np.sum(x**3), compile="always")
    df(np.ones(3))
    return df


def collect():
    """All garbage, what only other garbage has kept included."""
    while gc.collect():
        pass


def test_nothing_is_left_of_those_that_are_gone():
    collect()
    before = len(linking._held)
    held = [compiled() for _ in range(3)]
    assert len(linking._held) > before
    del held
    reuse.forget()  # which others of the same code would take over
    collect()
    assert len(linking._held) == before


def test_they_are_neither_copied_nor_pickled():
    collect()
    before = set(linking._held)
    df = compiled()
    (added,) = set(linking._held) - before
    (kernel,) = (
        f
        for f in gc.get_objects()
        if type(f) is type(len)
        and id(f.__self__) == added
        and isinstance(f.__self__, linking._Code)
    )
    assert copy.copy(kernel) is copy.deepcopy(kernel) is kernel
    assert kernel.__doc__ is None and kernel.__name__ in repr(kernel)
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="can't be copied or pickled"):
            attempt(kernel.__self__)
    with pytest.raises(TypeError, match="can't be copied or pickled"):
        pickle.dumps(kernel)
    del df
