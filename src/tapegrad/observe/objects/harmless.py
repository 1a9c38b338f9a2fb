"""What is proven harmless: code that reads nothing but its arguments, and keeps nothing of them.

A function written in C can't be looked into. Of those listed here it is known that their results
follow from their arguments, and that what they return is new, or comes from the arguments. Every
other one may read a clock or a file, or remember what it was given.
"""

from __future__ import annotations

import _json
import builtins
import collections
import copyreg
import functools
import itertools
import operator
import os
import sys
import types
import weakref
from collections.abc import Mapping
from functools import cache, lru_cache
from types import CodeType
from typing import Any

import numpy as np

from tapegrad.core.installed import PYTHONS, is_installed, is_pythons
from tapegrad.core.values import stood_for
from tapegrad.observe.program.source import SCIPY, WRITTEN_OUT, declared_in, is_users_path
from tapegrad.primitives.base import Value

PLAIN = (bool, int, float, complex, str, bytes, type(None))
PLAIN_TYPES = frozenset([*PLAIN, type(...), type(NotImplemented)])
ARRAYS_ITERATOR = type(iter(np.zeros(1)))
SEQUENCES = (list, tuple, collections.deque)
_DICTS = (dict, collections.OrderedDict, collections.defaultdict, collections.Counter)
MAPPINGS: tuple[type, ...] = (*_DICTS, types.MappingProxyType)
CONTAINERS = frozenset([*SEQUENCES, *MAPPINGS, set, frozenset])


class _Calm(dict[type, bool]):
    """Whether objects of a class hold nothing that could change and do nothing by themselves:
    numbers, strings, and traced values, which are on the tape."""

    def __missing__(self, kind: type) -> bool:
        found = kind in PLAIN_TYPES or issubclass(kind, (Value, np.generic, np.ufunc))
        found = found and stood_for(kind) is None  # which has methods of a user's
        found = found and not issubclass(kind, np.void)  # a row of an array, which can be changed
        if "<locals>" not in kind.__qualname__:  # a function's own class may be gone soon
            self[kind] = found
        return found


CALM = _Calm()

# ---- code

# They tell the user something, or load code, and compute nothing.
_SILENT = (
    *("logging", "warnings", "linecache", "traceback", "tokenize"),
    *("importlib", "pkgutil", "zipimport"),
    "_strptime",  # which is asked again, as a whole
)
_INSPECT = PYTHONS + "inspect.py"
_SILENT_FILES = tuple(PYTHONS + name + end for name in _SILENT for end in (".py", os.sep))


def is_own(code: CodeType) -> bool:
    """Whether code is tapegrad's or NumPy's, which know what they read."""
    return not is_users_path(code.co_filename) and not _is_scipys(code.co_filename)


def _is_scipys(file: str) -> bool:
    return f"{os.sep}scipy{os.sep}" in file


def is_silent(code: CodeType) -> bool:
    """Whether code only tells the user something, as which function calls which, or loads code."""
    file = code.co_filename
    if file == _INSPECT:
        return code.co_name in ("stack", "getouterframes")
    return file.startswith((*_SILENT_FILES, "<frozen importlib", "<frozen zipimport"))


def is_librarys_code(code: CodeType) -> bool:
    """Whether code is part of Python's library."""
    return is_pythons(code.co_filename)


def is_users_file(file: str | None, home: str = "") -> bool:
    """Whether a file is part of the user's program, and not of Python or an installed package;
    `home` is the folder of an installed package that is the user's after all."""
    if file is None or not is_users_path(file) or file.startswith("<frozen "):
        return False
    if home and file.startswith(home):
        return True
    return not (is_installed(file) or file.startswith(PYTHONS) or file == WRITTEN_OUT)


def module_of(kind: type) -> str:
    """The name of the module that a class is of; empty where that isn't known. A class may say that
    it is of any module, so it is looked up there, unless no class statement can have made it."""
    name = vars(type)["__module__"].__get__(kind)
    if not isinstance(name, str):
        return ""
    if not is_changeable(kind):
        return declared_in(kind) if name == "builtins" else name
    found: Any = sys.modules.get(name)
    for part in kind.__qualname__.split("."):
        try:
            found = vars(found).get(part)
        except TypeError:  # it has no names
            return ""
    return name if found is kind else ""


def is_changeable(kind: type) -> bool:
    """Whether a class may get other attributes: a class statement made it, or some modules in C."""
    return kind.__flags__ & (HEAP_TYPE | _IMMUTABLE_TYPE) == HEAP_TYPE


def is_pythons_class(kind: type) -> bool:
    """Whether a class statement made a class and all between it and a known one: then its
    instances do nothing but what methods written in Python do, and that known class."""
    while kind not in _KNOWN_BASES:
        if not kind.__flags__ & HEAP_TYPE or "__module__" not in kind.__dict__:
            return False
        own = kind.__dict__
        base = kind.__base__
        if base is None or not all(_is_pythons(x) for n, x in own.items() if n in _ASKED):
            return False
        if "__slots__" not in own and "__dict__" not in own and not _has_dict(base):
            return False
        kind = base
    return True


def _is_pythons(x: Any) -> bool:
    """Whether what a class has for a method that Python calls by itself is written in Python."""
    if isinstance(x, (staticmethod, classmethod)):
        x = x.__func__
    return x is None or isinstance(x, (types.FunctionType, *_DICTS_OWN))


_DICTS_OWN: tuple[Any, ...] = (type(dict.get), type(dict.__getitem__))  # `__getattr__ = dict.get`
_ASKED = frozenset(
    f"__{name}__"
    for name in (
        *("call", "iter", "next", "len", "bool", "getitem", "contains", "enter", "exit", "eq"),
        "ne",
        *("lt", "le", "gt", "ge", "hash", "index", "int", "float", "missing", "getattr", "add"),
        *("radd", "mul", "rmul", "sub", "rsub", "truediv", "rtruediv", "pow", "matmul", "neg"),
    )
)
HEAP_TYPE, _IMMUTABLE_TYPE = 1 << 9, 1 << 8


def _has_dict(kind: type) -> bool:
    return kind.__dictoffset__ != 0


_KNOWN_BASES = frozenset(
    [object, type, *PLAIN_TYPES, *CONTAINERS, np.ndarray, types.ModuleType, types.SimpleNamespace]
    + [x for x in vars(builtins).values() if isinstance(x, type) and issubclass(x, BaseException)]
)


def is_numpys_module(module: Any) -> bool:
    """Whether a module is NumPy's, not one of a package whose name begins so."""
    return isinstance(module, str) and module.partition(".")[0] == "numpy"


def is_scipys_module(module: Any) -> bool:
    """Whether a module of SciPy's computes, and reads no files."""
    return (
        isinstance(module, str)
        and module.startswith("scipy.")
        and not module.startswith(("scipy.io", "scipy.datasets"))
    )


@lru_cache(maxsize=1024)
def is_scipys(kind: Any) -> bool:
    """Whether a class is one of SciPy's."""
    name = module_of(kind)
    file = getattr(sys.modules.get(name), "__file__", None) or ""
    return is_scipys_module(name) and file.startswith(SCIPY)


def is_inside(kind: Any) -> bool:
    """Whether a class is an installed package's, but NumPy's and ours."""
    name = module_of(kind)
    if not name and isinstance(kind.__module__, str):  # made by a function: by the package's own?
        methods = [x for x in vars(kind).values() if isinstance(x, types.FunctionType)]
        if all(is_installed(f.__code__.co_filename) for f in methods):
            name = kind.__module__
    return _is_inside(name)


def is_recorded(x: Any) -> bool:
    """Whether this is a derivative: what it does where it is called is recorded. Of users' own
    primitives, the bodies are read."""
    return callable(x) and module_of(type(x)).startswith("tapegrad.runtime.")


def is_followed(kind: Any) -> bool:
    """Whether a class is an installed package's, or a mapping of Python's library, whose code is
    followed. Of a sequence NumPy would read all, unseen."""
    name = module_of(kind)
    if is_inside(kind):
        return name.partition(".")[0] not in ("scipy", "pandas")
    return issubclass(kind, Mapping) and _is_of_library(name)


@lru_cache(maxsize=1024)
def _is_of_library(module: str) -> bool:
    """Whether a module of Python's library is written in Python, and followed."""
    file = str(getattr(sys.modules.get(module), "__file__", None))
    return is_pythons(file) and file.endswith(".py") and not file.startswith(_SILENT_FILES)


@lru_cache(maxsize=4096)
def _is_inside(name: str) -> bool:
    file = str(getattr(sys.modules.get(name), "__file__", None))
    return is_installed(file) and name.partition(".")[0] not in _OWN_WAYS


_OWN_WAYS = ("numpy", "tapegrad", "numba", "llvmlite")


def is_extensions(x: Any) -> bool:
    """Whether a function or class is written in C, in a module of an installed package."""
    name = getattr(x, "__module__", None)
    if not isinstance(name, str):
        return False
    if name == "builtins" and isinstance(x, type):
        name = declared_in(x)
    # pandas' say that they are of the module that shows them
    c: Any = type(x)
    in_c = c is types.BuiltinFunctionType or c.__name__ == "cython_function_or_method"
    if isinstance(x, type) and name.partition(".")[0] != "pandas" and _has_methods_in_c(x):
        return _is_extension(name, False)  # it may say that it is of the package's own module
    return _is_extension(name) or (in_c and name.partition(".")[0] == "pandas")


@lru_cache(maxsize=1024)
def _is_extension(module: str, in_c: bool = True) -> bool:
    file = str(getattr(sys.modules.get(module), "__file__", None))
    own = module.partition(".")[0] in (*_OWN_WAYS, "scipy")
    return file.endswith((".so", ".pyd") if in_c else "") and is_installed(file) and not own


@lru_cache(maxsize=4096)
def _has_methods_in_c(kind: type) -> bool:
    """Whether a class itself is written in C, and not by a class statement."""
    own = (types.MethodDescriptorType, types.WrapperDescriptorType)
    return any(isinstance(x, own) and x.__objclass__ is kind for x in vars(kind).values())


# ---- functions written in C

_JSON = (_json.make_encoder, _json.make_scanner)
_BUILTINS = """
    abs all any ascii bin bool bytearray bytes callable chr classmethod complex dict divmod
    enumerate filter float format frozenset hash hex int isinstance issubclass iter len list map
    max min next object oct ord pow print property range repr reversed round set slice sorted
    staticmethod str sum super tuple type zip __build_class__ locals memoryview
"""
MODULES_IN_C = {
    "math": None,
    "cmath": None,
    "_operator": None,
    "itertools": None,
    "_bisect": None,
    "_heapq": None,
    "_statistics": None,
    "_struct": None,
    "binascii": None,
    "zlib": None,
    "_abc": None,
    "_string": None,
    "_sre": None,
    "_collections": None,
    "_functools": ("reduce", "cmp_to_key", "partial", "_lru_cache_wrapper"),
    "_contextvars": None,
    "_stat": None,
    "_codecs": ("lookup", "lookup_error", "utf_8_decode", "latin_1_decode", "ascii_decode"),
    "posix": ("fspath", "_path_normpath", "_path_splitroot", "_path_splitroot_ex"),
    "time": ("sleep",),
    "_thread": ("allocate_lock", "RLock", "get_ident"),
    "sys": ("intern", "audit", "exc_info"),
    "gc": ("collect",),
    "_json": None,
    "_hashlib": None,
    "_warnings": ("warn", "warn_explicit"),
    "_weakref": ("ref", "ReferenceType", "getweakrefcount"),
    "_typing": None,
}
METHODS_OF: tuple[Any, ...] = (
    *PLAIN_TYPES,
    *CONTAINERS,
    *(range, slice, bytearray, memoryview, object, type, super, property, classmethod),
    *(staticmethod, types.FunctionType, types.MethodType, types.GeneratorType, types.CodeType),
    *(types.SimpleNamespace, types.GenericAlias, types.UnionType, types.CellType, BaseException),
    *(enumerate, zip, map, filter, reversed, np.ndarray, np.generic, np.dtype, np.ufunc),
    *(type({}.keys()), type({}.values()), type({}.items()), type(iter([])), type(iter(()))),
    *(type(iter({})), type(iter({}.values())), type(iter({}.items())), type(iter(""))),
    *(type(iter(set())), type(iter(range(1))), type(reversed([])), functools.partial),
    *(x for x in vars(itertools).values() if isinstance(x, type)),
    *(type(operator.itemgetter(0)), type(operator.attrgetter("a"))),
    type(operator.methodcaller("a")),
)
_NOT_METHODS = {"__subclasses__", "__sizeof__", "tofile", "dump", "dumps", "__setstate__"}
_NOT_METHODS |= {"now", "utcnow", "today", "fromtimestamp", "timestamp", "astimezone", "locked"}
_LOCKS = ("lock", "RLock", "SemLock")
_OF_A_LOCK = {
    *("acquire", "release", "__enter__", "__exit__"),
    *("_release_save", "_acquire_restore", "_is_owned"),  # by which conditions wait
}
_OF_LOCKS = ("_thread", "_multiprocessing")

# NumPy's functions that go to files, or to what isn't an argument.
_OF_FILES = """
    load loadtxt genfromtxt fromfile fromregex save savez savez_compressed savetxt memmap
    DataSource open_memmap get_printoptions set_printoptions
    printoptions geterr seterr geterrcall seterrcall setbufsize getbufsize info
    show_config show_runtime test source lookfor byte_bounds get_include
"""
_NUMPYS_STATE = frozenset(_OF_FILES.split())
_NUMPYS: tuple[str, ...] = (
    "numpy._core.",
    "numpy.lib.",
    "numpy.linalg",
    "numpy.fft",
    "numpy.polynomial",
)
_NUMPYS += ("numpy.ma", "numpy.matrixlib", "numpy.ctypeslib", "numpy.dtypes")


@cache
def functions_in_c() -> dict[int, Any]:
    """The harmless functions of Python by id; they are held, so none is given away."""
    found = [getattr(builtins, name) for name in _BUILTINS.split()]
    found += [f for f in (getattr(copyreg, "__reduce_ex__", None), *_JSON) if f is not None]
    return {id(f): f for f in found}


def is_harmless(f: Any) -> bool:
    """Whether a callable written in C, or NumPy's, follows from its arguments alone."""
    kind: Any = type(f)
    if kind is np.ufunc:  # one that np.frompyfunc has made calls what it was made of
        return any(set(types) != set("O->") for types in f.types)
    if kind is DISPATCHER:
        return f.__name__ not in _NUMPYS_STATE
    if isinstance(f, type):
        return _is_harmless_class(f)
    if id(f) in functions_in_c():
        return True
    if kind in _C_METHODS:
        return _is_harmless_method(f)
    if issubclass(kind, types.BuiltinFunctionType):
        held = f.__self__
        if held is not None and not isinstance(held, types.ModuleType):
            return _is_harmless_method(f)
        return _is_of_harmless_module(f)
    if kind.__name__ == "cython_function_or_method":
        return str(f.__module__).startswith("pandas._libs.") and f.__name__ not in _NOT_METHODS
    if kind is types.FunctionType:  # of NumPy's or numba's: who asks has seen that
        file = f.__code__.co_filename
        return f.__name__ not in _NUMPYS_STATE and (_is_numpys(file) or file.endswith(_DECORATORS))
    return kind in _CALLED


DISPATCHER = type(np.sum)
_C_METHODS: tuple[type, ...] = (
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
)
_C_METHODS += (types.ClassMethodDescriptorType,)
_CALLED = (
    *(type(operator.itemgetter(0)), type(operator.attrgetter("a"))),
    *(type(operator.methodcaller("a")), types.GenericAlias, functools.partial),
    *_JSON,
)
# They read attributes, whose names are their arguments or a part of them.
LOOKING_UP = (type(operator.attrgetter("a")), type(operator.methodcaller("a")))
READERS = frozenset(map(id, (getattr, hasattr, setattr, delattr, vars, dir, next, globals, locals)))


def _is_harmless_method(f: Any) -> bool:
    name = f.__name__
    held = getattr(f, "__self__", None)
    kind = getattr(f, "__objclass__", None)
    if kind is None:
        kind = held if isinstance(held, type) else type(held)
    copies = name == "__setstate__" and issubclass(kind, np.dtype)  # as `deepcopy` of an array
    if name in _NOT_METHODS and not copies:
        return False
    if name == "__init_subclass__":
        return True  # which is object's
    if name in ("__new__", "__class_getitem__") and isinstance(held, type):
        return _is_harmless_class(held)
    if module_of(kind) in _OF_LOCKS:
        return name in _OF_A_LOCK
    if issubclass(kind, METHODS_OF) and (is_pythons_class(kind) or kind in METHODS_OF):
        return True
    if issubclass(kind, (np.generic, np.dtype)) and is_numpys_module(module_of(kind)):
        return not issubclass(kind, (np.void, np.dtypes.VoidDType))  # their parts can be changed
    return is_inert(kind)


def is_schema(kind: Any) -> bool:
    """Whether this is a class of pydantic's that is made with the class of a model, and reads and
    writes all of the models that it is passed; or of what these are made of."""
    known = kind.__name__ in ("SchemaValidator", "SchemaSerializer", "ArgsKwargs")
    return known and module_of(kind) == "pydantic_core._pydantic_core"


def is_inert(kind: Any) -> bool:
    """Whether objects of a class written in C never change, or hold nothing that could be read."""
    module, name = module_of(kind), kind.__name__
    return (
        (module in _OF_LOCKS and name in _LOCKS)
        or (module == "re" and name in ("Pattern", "Match"))
        or (module == "datetime" and name in ("date", "datetime", "time", "timedelta", "timezone"))
        or (module, name)
        in (*(("fractions", "Fraction"), ("decimal", "Decimal"), ("zoneinfo", "ZoneInfo")),)
        or (module == "_struct" and name == "Struct")
        or (name == "Token" and module.endswith("contextvars"))
        or kind in (types.GetSetDescriptorType, types.MemberDescriptorType)
        or kind in _C_METHODS
        or is_schema(kind)
        # SciPy's in C are computed once; but those that draw random numbers
        or (module.startswith("scipy.") and "unuran" not in module)
        or (module == "builtins" and kind in (types.CoroutineType, types.TracebackType))
    )


def is_self_contained(kind: Any) -> bool:
    """Whether objects of a class written in C follow from what was done with them: one that the run
    has made is harmless, one of the outside is state."""
    return (module_of(kind), kind.__name__) in (
        ("_io", "StringIO"),
        ("_io", "BytesIO"),
        ("_queue", "SimpleQueue"),
        ("array", "array"),
        ("_hashlib", "HASH"),
    )


def is_file(kind: type) -> bool:
    """Whether objects of a class are open files. One that the run has opened, to read it, follows
    from what is in it."""
    module, name = module_of(kind), kind.__name__
    if module == "_io":
        return name in ("TextIOWrapper", "BufferedReader", "FileIO")
    return (module, name) == ("numpy.lib.npyio", "NpzFile")


def _is_of_harmless_module(f: Any) -> bool:
    module = f.__module__ or (f.__self__.__name__ if f.__self__ is not None else "")
    if module in MODULES_IN_C:
        names = MODULES_IN_C[module]
        return names is None or f.__name__ in names
    if is_numpys_module(module):
        return f.__name__ not in _NUMPYS_STATE and not module.startswith("numpy.random")
    return module.startswith("scipy.") and not module.startswith(("scipy.io", "scipy.datasets"))


def _is_harmless_class(kind: type) -> bool:
    """Whether making an instance of a class written in C reads nothing but the arguments."""
    if id(kind) in functions_in_c() or kind in METHODS_OF:
        return True
    if issubclass(kind, (np.generic, np.dtype, Value)) or kind in _KNOWN_BASES:
        return True
    module = module_of(kind)
    if module in MODULES_IN_C and MODULES_IN_C[module] is None:
        return True
    if is_numpys_module(module):
        return kind.__name__ not in _NUMPYS_STATE and not module.startswith("numpy.random")
    if kind in (weakref.ref, functools._lru_cache_wrapper):
        return True
    return is_inert(kind) or is_self_contained(kind) or module.startswith("scipy.")


@lru_cache(maxsize=4096)
def _is_numpys(file: str) -> bool:
    """Whether one of NumPy's own files is about arrays, not files and random numbers."""
    parts = os.path.splitext(file)[0].split(os.sep)
    if "numpy" not in parts:
        return False
    module = ".".join(parts[len(parts) - 1 - parts[::-1].index("numpy") :])
    return module.startswith(_NUMPYS) and "npyio" not in module and "format" not in module


# They keep a function, and read nothing of it before it is called
_DECORATORS = ("numba/core/decorators.py", "numba/np/ufunc/decorators.py")
