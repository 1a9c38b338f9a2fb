"""Machine code in memory: by tapegrad's loader, by LLVM's linker where that won't do, and not at
all where the file is broken."""

from __future__ import annotations

import contextlib
import platform
import random
import struct
import sys
import weakref
from functools import partial

import numpy as np
import pytest

import tapegrad as tg
from tapegrad import pipeline
from tapegrad.backends.cpu import linking, loading
from tapegrad.backends.cpu.loading import Image, NotSimple
from tapegrad.backends.cpu.support import scalars, shared_code
from tapegrad.core.trees import array_leaves

pytestmark = pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="LLVM's linker does it all"
)

RNG = np.random.default_rng(0)
A, B = RNG.normal(size=(2, 40, 40))


def everything(a, b, flag=True):
    """Calls of libm, libmvec, BLAS and LAPACK, tables of constants, and a guard."""
    L = np.linalg.cholesky(a @ a.T + np.eye(40))
    z = np.linalg.solve(L, np.tanh(a @ b) + np.exp(-b))
    return np.sum(np.sort(np.abs(z)) ** 2.5) + np.sum(np.log1p(z**2)) if np.sum(a) < 1e9 else 0.0


@pytest.fixture(scope="module")
def made():
    df = tg.grad(everything, (0, 1), compile="never")
    df(A, B)
    (tape,) = df.tapes
    return pipeline.compile(tape)


@pytest.fixture(scope="module")
def kernels(made):
    """The object files of kernels, and of a function that they share."""
    return [*made.kernels.values(), *made.shared.values()]


@pytest.fixture(scope="module")
def where(made):
    """Where is what they refer to by name."""
    return partial(linking._where, shared=made.shared)


def gradients():
    """Of functions that are traced and compiled anew."""
    return array_leaves(tg.grad(lambda a, b: everything(a, b), (0, 1), compile="always")(A, B))


def test_all_that_numba_makes_is_simple(made, kernels, where):
    for name in (
        b"tapegrad_fortran_dsymm",
        b"tapegrad_fortran_dpotrf",
        b"_ZGV" if scalars.VECTORISED else b"tanh",
    ):
        assert any(name in code for code in kernels)
    for code in made.kernels.values():
        assert linking.ENTRY in Image(code, where).addresses
    for name, code in made.shared.items():
        assert name in Image(code, where).addresses


def test_llvms_linker_gives_the_same(monkeypatch):
    def refuse(code, where):
        raise NotSimple

    expected = gradients()
    monkeypatch.setattr(linking, "Image", refuse)
    for found, wanted in zip(gradients(), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_routines_are_found_in_scipys_modules_too(monkeypatch):
    """As where SciPy isn't linked as in its own wheels."""
    expected = gradients()
    monkeypatch.setattr(linking, "fortran", lambda library: None)
    linking._routine.cache_clear()
    for found, wanted in zip(gradients(), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
    linking._routine.cache_clear()


def test_nothing_can_be_written_and_run(kernels, where):
    for code in kernels:
        image = Image(code, where)
        first, last = image._base, image._base + len(image.memory)
        with open("/proc/self/maps") as file:
            rows = [row.split()[:2] for row in file]
        spans = [([int(x, 16) for x in span.split("-")], access) for span, access in rows]
        inside = {access for (start, end), access in spans if start < last and end > first}
        assert "r-xp" in inside and not {a for a in inside if "w" in a and "x" in a}


def test_memory_is_freed_with_the_function(made, kernels):
    function = linking.linked("kernel", kernels[0], made.shared)
    memory = weakref.ref(function.__self__.memory.memory)
    assert memory() is not None
    del function
    assert memory() is None


def test_a_file_that_ends_too_early(kernels, where):
    code = kernels[0]
    for size in range(0, len(code), 97):
        with pytest.raises(NotSimple):
            Image(code[:size], where)


def test_damaged_files_are_refused_or_loaded_but_never_crash(kernels, where):
    choose = random.Random(0)
    header = struct.unpack_from("<Q", kernels[0], 40)[0]  # where the table of sections starts
    for k in range(2000):
        code = bytearray(kernels[0])
        at = choose.randrange(header if k % 2 else 0, len(code))
        code[at] = choose.randrange(256)
        with contextlib.suppress(NotSimple):
            Image(bytes(code), where)


@pytest.mark.parametrize(
    ("offset", "value", "why"),
    [
        (4, b"\x01", "another kind"),  # 32 bits
        (16, b"\x03\x00", "another kind"),  # a shared library
        (18, b"\xb7\x00", "another kind"),  # for ARM
    ],
)
def test_other_kinds_of_files(offset, value, why, kernels, where):
    code = kernels[0][:offset] + value + kernels[0][offset + len(value) :]
    with pytest.raises(NotSimple, match=why):
        Image(code, where)


def test_other_relocations(kernels, where, monkeypatch):
    """As of code of another model, whose addresses are relative."""
    monkeypatch.setattr(loading, "_R_X86_64_64", 2)
    with pytest.raises(NotSimple, match="a relocation of type 1"):
        Image(kernels[0], where)


def test_what_is_nowhere_in_the_process(where):
    code = shared_code("tapegrad_shared_call")
    with pytest.raises(NotSimple, match="isn't in this process"):
        Image(code.replace(b"PyLong_FromLongLong", b"PyLong_FromLongLonq"), where)
