"""Machine code as Python functions.

A kernel's machine code is an object file, fresh from the compiler or kept from an earlier process.
LLVM's linker loads it. numba isn't needed for that, and its import takes a tenth of a second.
"""

from __future__ import annotations

import ctypes
import importlib.machinery
import importlib.util
import itertools
import os
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from llvmlite import binding

ENTRY = "tapegrad_entry"  # the function of an object file that Python calls
# What machine code refers to by name: Python objects, whose addresses these symbols are, and the
# routines of SciPy's BLAS and LAPACK, each for float64 and float32.
OBJECTS = {f"tapegrad_{x.__name__}": x for x in (np.ndarray, BufferError, SystemError, TypeError)}
ROUTINES = {
    f"tapegrad_{letter}{name}": (library, letter + name)
    for library, names in (("blas", "gemm symm trsm trsv"), ("lapack", "getrf getri getrs potrf"))
    for name in names.split()
    for letter in "ds"
}
_numbers = itertools.count()


@cache
def vector_library() -> bool:
    """Whether glibc's libmvec is here; code that calls it finds it then."""
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        return False
    try:
        library = ctypes.CDLL("libmvec.so.1", ctypes.RTLD_GLOBAL)
    except OSError:
        return False
    return hasattr(library, "_ZGVdN4v_tanh")


@cache
def _linker() -> Any:
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    vector_library()
    linker = binding.create_lljit_compiler()
    # Never freed: at exit it might go before the code that it linked, which needs it to go.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(linker))
    return linker


@cache
def _cython_module(library: str) -> Any:
    """SciPy's BLAS or LAPACK: that module by itself, since the rest of scipy.linalg loads for as
    long as numba does. Who imports it later gets it with the rest, as if it hadn't been here."""
    name = f"scipy.linalg.cython_{library}"
    if name in sys.modules:
        return sys.modules[name]
    try:
        spec = importlib.util.find_spec("scipy")
        folders = [os.path.join(top, "linalg") for top in spec.submodule_search_locations]  # type: ignore[union-attr]
        spec = importlib.machinery.PathFinder.find_spec(name, folders)
        module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
        spec.loader.exec_module(module)  # type: ignore[union-attr]
        sys.modules.pop(name, None)
        return module
    except Exception:  # the long way, whatever is wrong with the short one
        return importlib.import_module(name)


@cache
def _routine(library: str, name: str) -> int:
    """The address of a routine of SciPy's BLAS or LAPACK."""
    capsule = _cython_module(library).__pyx_capi__[name]
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


class _Code:
    """Linked machine code: the `self` of its function, so it is freed after that."""

    def __init__(self, name: str, code: bytes) -> None:
        library = binding.JITLibraryBuilder().add_object_img(code).add_current_process()
        library.export_symbol(ENTRY)
        for symbol, x in OBJECTS.items():
            library.import_symbol(symbol, id(x))
        for symbol, routine in ROUTINES.items():
            if symbol.encode() in code:
                library.import_symbol(symbol, _routine(*routine))
        self.tracker = library.link(_linker(), f"tapegrad{next(_numbers)}")
        self.definition = _Definition(name.encode(), self.tracker[ENTRY], _FASTCALL, None)


def linked(name: str, code: bytes) -> Callable[..., int]:
    """The function of an object file; raises RuntimeError if it can't be linked."""
    owner = _Code(name, code)
    return _new_function(ctypes.byref(owner.definition), owner, None)
