"""Which code is harmless: it reads nothing but its arguments, and keeps no reference to them.

Functions written in C can't be followed. Those listed here are known to compute their results from
their arguments alone, and to return new objects, or ones from the arguments. Any other function may
read a clock or a file, or keep its arguments.
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
from tapegrad.core.named import own_attribute
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


class _Inert(dict[type, bool]):
    """Maps a class to whether its objects hold nothing that could change, and do nothing by
    themselves: numbers, strings, and traced values, which are on the tape."""

    def __missing__(self, kind: type) -> bool:
        found = kind in PLAIN_TYPES or issubclass(kind, (Value, np.generic, np.ufunc))
        found = found and stood_for(kind) is None  # a tracer of a user's subclass has methods
        found = found and not issubclass(kind, np.void)  # a row of an array is mutable
        if "<locals>" not in kind.__qualname__:  # a function's own class may be freed soon
            self[kind] = found
        return found


INERT = _Inert()

# ---- code

# They report something to the user, or load code, and compute nothing.
_SILENT = (
    *("logging", "warnings", "linecache", "traceback"),
    *("importlib", "pkgutil", "zipimport"),
    "_strptime",  # it is recorded as a whole
)
_INSPECT = PYTHONS + "inspect.py"
_SILENT_FILES = tuple(PYTHONS + name + end for name in _SILENT for end in (".py", os.sep))


def is_own(code: CodeType) -> bool:
    """Whether code is tapegrad's or NumPy's, whose reads are known."""
    return not is_users_path(code.co_filename) and not _is_scipys(code.co_filename)


def _is_scipys(file: str) -> bool:
    return f"{os.sep}scipy{os.sep}" in file


def is_silent(code: CodeType) -> bool:
    """Whether code only reports something to the user, such as which function calls which, or loads
    code."""
    file = code.co_filename
    if file == _INSPECT:
        return code.co_name in ("stack", "getouterframes")
    return file.startswith((*_SILENT_FILES, "<frozen importlib", "<frozen zipimport"))


def is_librarys_code(code: CodeType) -> bool:
    """Whether code is part of Python's library."""
    return is_pythons(code.co_filename)


def is_users_file(file: str | None, home: str = "") -> bool:
    """Whether a file is part of the user's program, and not of Python or an installed package.
    `home` is the folder of an installed package that counts as the user's."""
    if file is None or not is_users_path(file) or file.startswith("<frozen "):
        return False
    if home and file.startswith(home):
        return True
    return not (is_installed(file) or file.startswith(PYTHONS) or file == WRITTEN_OUT)


def module_of(kind: type) -> str:
    """The name of the module that defines a class; empty if unknown. `__module__` may be wrong, so
    the class is looked up there, unless it can't have been made by a class statement."""
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
    """Whether attributes of a class can be set: a class statement made it, or some modules in C."""
    return kind.__flags__ & (HEAP_TYPE | _IMMUTABLE_TYPE) == HEAP_TYPE


def is_pythons_class(kind: type) -> bool:
    """Whether a class, and each base up to a known one, was made by a class statement. Then its
    objects do nothing but what methods written in Python, and the known class, do."""
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
    """Whether a class's special method, which Python calls implicitly, is written in Python."""
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
    """Whether a module is NumPy's, and not one of a package whose name begins so."""
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
    """Whether a class belongs to an installed package, but not to NumPy, tapegrad or numba."""
    name = module_of(kind)
    if not name and isinstance(kind.__module__, str):  # made inside a function: of the package?
        methods = [x for x in vars(kind).values() if isinstance(x, types.FunctionType)]
        if all(is_installed(f.__code__.co_filename) for f in methods):
            name = kind.__module__
    return _is_inside(name)


def is_recorded(x: Any) -> bool:
    """Whether `x` is a derivative, whose calls are recorded. Of users' primitives, the bodies are
    read."""
    return callable(x) and module_of(type(x)).startswith("tapegrad.runtime.")


def is_followed(kind: Any) -> bool:
    """Whether the code of a class is followed: of an installed package, or a mapping of Python's
    library. Sequences aren't: NumPy would read their elements unseen."""
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
    name = own_attribute(x, "__module__")
    if not isinstance(name, str):
        return False
    if name == "builtins" and isinstance(x, type):
        name = declared_in(x)
    # pandas' C functions name the public module as their own.
    c: Any = type(x)
    in_c = c is types.BuiltinFunctionType or c.__name__ == "cython_function_or_method"
    if isinstance(x, type) and name.partition(".")[0] != "pandas" and _has_methods_in_c(x):
        return _is_extension(name, False)  # `__module__` may be a Python module of the package
    return _is_extension(name) or (in_c and name.partition(".")[0] == "pandas")


@lru_cache(maxsize=1024)
def _is_extension(module: str, in_c: bool = True) -> bool:
    file = str(getattr(sys.modules.get(module), "__file__", None))
    own = module.partition(".")[0] in (*_OWN_WAYS, "scipy")
    return file.endswith((".so", ".pyd") if in_c else "") and is_installed(file) and not own


@lru_cache(maxsize=4096)
def _has_methods_in_c(kind: type) -> bool:
    """Whether a class is written in C, and not made by a class statement."""
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
_CALM = """
    math cmath _operator itertools _bisect _heapq _statistics _struct binascii zlib _abc _string
    _sre _collections _contextvars _stat _tokenize unicodedata _json _hashlib _typing
"""
MODULES_IN_C = {
    **dict.fromkeys(_CALM.split()),
    "_functools": ("reduce", "cmp_to_key", "partial", "_lru_cache_wrapper"),
    "_codecs": ("lookup", "lookup_error", "utf_8_decode", "latin_1_decode", "ascii_decode"),
    "posix": ("fspath", "_path_normpath", "_path_splitroot", "_path_splitroot_ex"),
    "time": ("sleep",),
    "_thread": ("allocate_lock", "RLock", "get_ident"),
    "sys": ("intern", "audit", "exc_info"),
    "gc": ("collect",),
    "_warnings": ("warn", "warn_explicit"),
    "_weakref": ("ref", "ReferenceType", "getweakrefcount"),
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
    *("_release_save", "_acquire_restore", "_is_owned"),  # used by conditions
}
_OF_LOCKS = ("_thread", "_multiprocessing")

# NumPy's functions that read files, or state besides their arguments.
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
    """The harmless builtins of Python by id; they are held, so the ids stay unique."""
    found = [getattr(builtins, name) for name in _BUILTINS.split()]
    found += [f for f in (getattr(copyreg, "__reduce_ex__", None), *_JSON) if f is not None]
    return {id(f): f for f in found}


def is_pure(f: Any) -> bool:
    """Whether the result of a callable written in C, or NumPy's, depends on its arguments alone."""
    kind: Any = type(f)
    if kind is np.ufunc:  # one made by np.frompyfunc calls a Python function
        return any(set(types) != set("O->") for types in f.types)
    if kind is DISPATCHER:
        return f.__name__ not in _NUMPYS_STATE
    if isinstance(f, type):
        return _is_pure_class(f)
    if id(f) in functions_in_c():
        return True
    if kind in _C_METHODS:
        return _is_pure_method(f)
    if issubclass(kind, types.BuiltinFunctionType):
        held = f.__self__
        if held is not None and not isinstance(held, types.ModuleType):
            return _is_pure_method(f)
        return _is_of_pure_module(f)
    if kind.__name__ == "cython_function_or_method":
        return str(f.__module__).startswith("pandas._libs.") and f.__name__ not in _NOT_METHODS
    if kind is types.FunctionType:  # NumPy's or numba's, as the caller has checked
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


def _is_pure_method(f: Any) -> bool:
    name = f.__name__
    held = own_attribute(f, "__self__")
    kind = own_attribute(f, "__objclass__", held if isinstance(held, type) else type(held))
    copies = name == "__setstate__" and issubclass(kind, np.dtype)  # as in `deepcopy` of an array
    if name in _NOT_METHODS and not copies:
        return False
    if name == "__init_subclass__":
        return True  # inherited from object
    if name in ("__new__", "__class_getitem__") and isinstance(held, type):
        return _is_pure_class(held)
    if module_of(kind) in _OF_LOCKS:
        return name in _OF_A_LOCK
    if issubclass(kind, METHODS_OF) and (is_pythons_class(kind) or kind in METHODS_OF):
        return True
    if issubclass(kind, (np.generic, np.dtype)) and is_numpys_module(module_of(kind)):
        return not issubclass(kind, (np.void, np.dtypes.VoidDType))  # parts of these are mutable
    return is_inert(kind)


def is_schema(kind: Any) -> bool:
    """Whether a class is one of pydantic's that belongs to a model class, and reads and writes all
    parts of the models that it is passed; or the class of their arguments."""
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
        # Objects of SciPy's C classes are computed once, except samplers of random numbers.
        or (module.startswith("scipy.") and "unuran" not in module)
        or (module == "builtins" and kind in (types.CoroutineType, types.TracebackType))
    )


def is_self_contained(kind: Any) -> bool:
    """Whether objects of a class written in C are determined by the calls made on them. One that
    the run has created is harmless; any other is state."""
    return (module_of(kind), kind.__name__) in (
        ("_io", "StringIO"),
        ("_io", "BytesIO"),
        ("_queue", "SimpleQueue"),
        ("array", "array"),
        ("_hashlib", "HASH"),
        ("decimal", "Context"),
        ("decimal", "ContextManager"),
    )


def is_file(kind: type) -> bool:
    """Whether objects of a class are open files. The reads of one that the run has opened for
    reading are determined by the file's contents."""
    module, name = module_of(kind), kind.__name__
    if module == "_io":
        return name in ("TextIOWrapper", "BufferedReader", "FileIO")
    return (module, name) == ("numpy.lib.npyio", "NpzFile")


def _is_of_pure_module(f: Any) -> bool:
    module = f.__module__ or (f.__self__.__name__ if f.__self__ is not None else "")
    if module in MODULES_IN_C:
        names = MODULES_IN_C[module]
        return names is None or f.__name__ in names
    if is_numpys_module(module):
        return f.__name__ not in _NUMPYS_STATE and not module.startswith("numpy.random")
    return module.startswith("scipy.") and not module.startswith(("scipy.io", "scipy.datasets"))


def _is_pure_class(kind: type) -> bool:
    """Whether creating an instance of a class written in C reads nothing but the arguments."""
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
    """Whether a file of NumPy's is about arrays, and not files or random numbers."""
    parts = os.path.splitext(file)[0].split(os.sep)
    if "numpy" not in parts:
        return False
    module = ".".join(parts[len(parts) - 1 - parts[::-1].index("numpy") :])
    return module.startswith(_NUMPYS) and "npyio" not in module and "format" not in module


# They keep a function, and read nothing of it before it is called.
_DECORATORS = ("numba/core/decorators.py", "numba/np/ufunc/decorators.py")
