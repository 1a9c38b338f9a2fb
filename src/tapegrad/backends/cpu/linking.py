"""Machine code as Python functions.

A kernel's machine code is an object file, new from the compiler or stored by an earlier process.
`loading` puts it in memory, or else LLVM's linker, together with the functions that it shares with
other kernels. That needs no numba, and the first way no LLVM: their imports take 0.1 s and a
quarter of that.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.machinery
import importlib.util
import itertools
import os
import re
import sys
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tapegrad.backends.cpu.loading import Image, NotSimple
from tapegrad.backends.cpu.threads import pool
from tapegrad.core.handlers import let_through

ENTRY = "tapegrad_entry"  # the function of an object file that Python calls
# Symbols in machine code: Python objects, which the symbols are the addresses of, and, after these
# prefixes, routines of SciPy's BLAS and LAPACK, and functions that kernels share.
OBJECTS = {f"tapegrad_{x.__name__}": x for x in (np.ndarray, BufferError, SystemError, TypeError)}
FORTRAN = "tapegrad_fortran_"
SHARED = "tapegrad_shared_"
POOL = "tapegrad_pool"  # the memory of the pool of threads
_numbers = itertools.count()


@functools.cache
def vector_library() -> bool:
    """Load glibc's libmvec for the code that calls it. Returns whether it is there."""
    if sys.platform != "linux":
        return False
    if os.uname().machine != "x86_64":
        return False
    try:
        library = ctypes.CDLL("libmvec.so.1", ctypes.RTLD_GLOBAL)
    except OSError:
        return False
    return hasattr(library, "_ZGVdN4v_tanh")


@functools.cache
def _linker() -> Any:
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    linker = binding.create_lljit_compiler()
    # Never freed: at exit it might go before the code that it linked, which needs it to be freed.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(linker))
    return linker


def _cython_module(library: str) -> str:
    """SciPy's module of BLAS or LAPACK routines."""
    return f"scipy.linalg.cython_{library}"


def _address_in(library: ctypes.CDLL | None, symbol: str) -> int:
    """The address of a function; an AttributeError if it isn't there."""
    address = ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value
    assert address is not None
    return address


@functools.cache
def fortran(library: str) -> ctypes.CDLL | None:
    """SciPy's extension module as a plain library, with the BLAS and LAPACK that it is linked with.
    Loading it this way runs none of SciPy's code. None if that fails."""
    try:
        spec = importlib.util.find_spec("scipy")  # finds it without importing it
        folders = [os.path.join(top, "linalg") for top in spec.submodule_search_locations]  # type: ignore[union-attr]
        spec = importlib.machinery.PathFinder.find_spec(_cython_module(library), folders)
        return ctypes.CDLL(spec.origin)  # type: ignore[union-attr]
    except Exception as error:  # whatever fails, there is the slow way
        let_through(error)
        return None


@functools.cache
def _routine(name: str) -> int:
    """The address of a routine of SciPy's BLAS or LAPACK.

    `cython_blas.dgemm` does nothing but call Fortran's `dgemm_`, which is named `scipy_dgemm_` in
    SciPy's own wheels. Where neither is found, Cython's table of functions has the address; but its
    module needs the rest of scipy.linalg, which takes as long to load as numba.
    """
    for library in ("blas", "lapack"):
        for symbol in (f"scipy_{name}_", f"{name}_"):
            with contextlib.suppress(AttributeError):
                return _address_in(fortran(library), symbol)
    known: dict[str, Any] = {}
    for library in ("blas", "lapack"):
        known |= importlib.import_module(_cython_module(library)).__pyx_capi__
    capsule = known[name]
    python = ctypes.pythonapi
    name_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)
    pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    signature = name_of(("PyCapsule_GetName", python))(capsule)
    address = pointer_of(("PyCapsule_GetPointer", python))(capsule, signature)
    assert address is not None
    return address


class _Definition(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_FASTCALL = 0x0080
_new_function = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.POINTER(_Definition), ctypes.py_object, ctypes.c_void_p
)(("PyCFunction_NewEx", ctypes.pythonapi))


def _where(symbol: str, shared: Mapping[str, bytes]) -> int:
    """The address of a symbol in machine code."""
    if symbol in OBJECTS:
        return id(OBJECTS[symbol])
    if symbol == POOL:
        return pool.address
    if symbol.startswith(FORTRAN):
        return _routine(symbol.removeprefix(FORTRAN))
    if symbol.startswith(SHARED):
        if symbol not in shared:
            raise NotSimple(f"{symbol} is missing")
        return _shared(symbol, shared[symbol])
    try:
        return _address_in(ctypes.CDLL(None), symbol)
    except AttributeError:
        raise NotSimple(f"{symbol} isn't in this process") from None


def _named(prefix: str, code: bytes) -> set[str]:
    """The names with a prefix that occur in an object file."""
    return {x.decode() for x in re.findall(prefix.encode() + rb"\w+", code)}


def shared_names(code: bytes) -> set[str]:
    """The names of the shared functions that an object file calls."""
    return _named(SHARED, code)


def _linked(symbol: str, code: bytes, shared: Mapping[str, bytes]) -> tuple[Any, int]:
    """The owner of an object file's memory, and the address of its function `symbol`."""
    vector_library()
    try:
        memory = Image(code, functools.partial(_where, shared=shared))
        return memory, memory.addresses[symbol]
    except (NotSimple, KeyError):
        return _linked_by_llvm(symbol, code, shared)


def _linked_by_llvm(symbol: str, code: bytes, shared: Mapping[str, bytes]) -> tuple[Any, int]:
    from llvmlite import binding

    library = binding.JITLibraryBuilder().add_object_img(code).add_current_process()
    library.export_symbol(symbol)
    known = {x for x in (*OBJECTS, POOL) if x.encode() in code} | _named(FORTRAN, code)
    for name in known | (shared_names(code) & shared.keys()):
        library.import_symbol(name, _where(name, shared))
    tracker = library.link(_linker(), f"tapegrad{next(_numbers)}")
    return tracker, tracker[symbol]


@functools.cache
def _shared(symbol: str, code: bytes) -> int:
    """The address of a function that kernels share. These are few and never freed: code that calls
    them may be the last to run in a process."""
    memory, address = _linked(symbol, code, {})
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(memory))
    return address


# By the id of each `_Code`: its linked code, its definition, and the weak reference that drops
# both.
_held: dict[int, tuple[Any, _Definition, weakref.ref[Any]]] = {}


class _Code:
    """Linked machine code: the `self` of its function, so that it is freed after the function.

    CPython reads the definition until the function is gone. In a cycle of garbage (each entry is in
    one) that is late: the collector first finalises and then clears all objects that it sees, in
    any order, and the function may be called meanwhile. So the collector sees nothing of this: the
    object is untracked, and the module holds its code and definition.
    """

    __slots__ = ("__weakref__",)

    def __new__(cls, name: str, code: bytes, shared: Mapping[str, bytes]) -> _Code:
        memory, entry = _linked(ENTRY, code, shared)
        self = object.__new__(cls)
        ctypes.pythonapi.PyObject_GC_UnTrack(ctypes.py_object(self))
        # All of it is C code: an exception from a signal handler in a line of `__del__` would be
        # lost.
        end: Any = weakref.ref(self, functools.partial(_held.pop, id(self)))
        _held[id(self)] = memory, _Definition(name.encode(), entry, _FASTCALL, None), end
        return self

    @property
    def memory(self) -> Any:
        return _held[id(self)][0]

    @property
    def definition(self) -> _Definition:
        return _held[id(self)][1]

    def __reduce__(self) -> Any:
        raise TypeError("machine code is of one process, and can't be copied or pickled")


def linked(name: str, code: bytes, shared: Mapping[str, bytes]) -> Callable[..., int]:
    """The function of an object file, linked with the functions that it shares with others, by
    name. Raises RuntimeError if it can't be linked."""
    owner = _Code(name, code, shared)
    return _new_function(ctypes.byref(owner.definition), owner, None)
