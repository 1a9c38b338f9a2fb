"""Machine code as Python functions.

A kernel's machine code is an object file, fresh from the compiler or kept from an earlier process.
It is put in memory by `loading`, or by LLVM's linker, as are the functions that it shares with
others. numba isn't needed for that, nor LLVM for the first; their imports take a tenth of a second
and a quarter of that.
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
# What machine code refers to by name: Python objects, whose addresses these symbols are, and, after
# these prefixes, the routines of SciPy's BLAS and LAPACK, and functions that kernels share.
OBJECTS = {f"tapegrad_{x.__name__}": x for x in (np.ndarray, BufferError, SystemError, TypeError)}
FORTRAN = "tapegrad_fortran_"
SHARED = "tapegrad_shared_"
POOL = "tapegrad_pool"  # the memory of the pool of threads
_numbers = itertools.count()


@functools.cache
def vector_library() -> bool:
    """Whether glibc's libmvec is here; code that calls it finds it then."""
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
    # Never freed: at exit it might go before the code that it linked, which needs it to go.
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
    """The file of SciPy's module, and with it the BLAS and LAPACK that it is linked with: what is
    loaded so runs nothing of SciPy's. None if that can't be done."""
    try:
        spec = importlib.util.find_spec("scipy")  # finds it without importing it
        folders = [os.path.join(top, "linalg") for top in spec.submodule_search_locations]  # type: ignore[union-attr]
        spec = importlib.machinery.PathFinder.find_spec(_cython_module(library), folders)
        return ctypes.CDLL(spec.origin)  # type: ignore[union-attr]
    except Exception as error:  # there is the long way, whatever is wrong with this one
        let_through(error)
        return None


@functools.cache
def _routine(name: str) -> int:
    """The address of a routine of SciPy's BLAS or LAPACK.

    `cython_blas.dgemm` does nothing but call Fortran's `dgemm_`, which SciPy's own wheels call
    `scipy_dgemm_`. Where it isn't found, Cython's table of functions says where they are; but its
    module needs the rest of scipy.linalg, which loads for as long as numba does.
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
    """Where something is that machine code refers to by name."""
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
    """The names with a prefix that are in an object file."""
    return {x.decode() for x in re.findall(prefix.encode() + rb"\w+", code)}


def shared_names(code: bytes) -> set[str]:
    """The names of the functions that an object file shares with others."""
    return _named(SHARED, code)


def _linked(symbol: str, code: bytes, shared: Mapping[str, bytes]) -> tuple[Any, int]:
    """What holds an object file in memory, and the address of its function of this name."""
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
    """The address of a function that kernels share. There are few, and they are never freed: code
    that calls them may be what runs last in a process."""
    memory, address = _linked(symbol, code, {})
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(memory))
    return address


# Linked code and its definition, by the number of their `_Code`, and what sees to their end.
_held: dict[int, tuple[Any, _Definition, weakref.ref[Any]]] = {}


class _Code:
    """Linked machine code: the `self` of its function, so it is freed after that.

    CPython looks at the definition until the function is gone. In a cycle of garbage, as each entry
    is one, that is late: all that the collector sees is finalised first and then cleared, in any
    order, and meanwhile the function may be called. So the collector sees nothing of this: it is
    told to leave this object alone, and what it stands for is held by the module.
    """

    __slots__ = ("__weakref__",)

    def __new__(cls, name: str, code: bytes, shared: Mapping[str, bytes]) -> _Code:
        memory, entry = _linked(ENTRY, code, shared)
        self = object.__new__(cls)
        ctypes.pythonapi.PyObject_GC_UnTrack(ctypes.py_object(self))
        # All of it is C code: what a signal's handler raises in a line of `__del__` is lost.
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
    """The function of an object file, linked with those that it shares with others, by name; raises
    RuntimeError if it can't be linked."""
    owner = _Code(name, code, shared)
    return _new_function(ctypes.byref(owner.definition), owner, None)
