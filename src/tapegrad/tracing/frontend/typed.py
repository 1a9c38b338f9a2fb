"""The types that numba computes with, where they aren't those of the Python that it compiles.

    numba                                      Python and NumPy
    int32 + int32             -> int64         int32, which wraps around
    float32 * 0.1             -> float64       float32
    x[0], of an array         -> float         np.float64, when it is returned
    1 if x > 1 else x * 0.5   -> 1.0           1

numba says the type of each expression. Where one is narrower than 64 bits, a function is followed
if none computes with it in another way than NumPy does: elements may be read, be indices, and meet
their like. Results are made what numba makes them, and the first one is held against numba's.
"""

from __future__ import annotations

import importlib
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from tapegrad.core.handlers import let_through, quiet
from tapegrad.errors import ConversionError, TapegradError
from tapegrad.tracing.frontend.indexing import as_python
from tapegrad.tracing.frontend.whole import objections_to_integers
from tapegrad.tracing.source import at_line
from tapegrad.tracing.trace import refusing
from tapegrad.tracing.tracer import Tracer


class _Found(NamedTuple):
    compiled: Any  # by numba
    objection: str  # why its Python computes something else; empty if it doesn't
    is_pure: bool  # whether a further call changes nothing but its arguments


_known: WeakKeyDictionary[Any, dict[Any, _Found]] = WeakKeyDictionary()


def _examined(f: Any, compiled: Any) -> _Found:
    held, kinds = _known.setdefault(f, {}), compiled.signature.args
    found = held.get(kinds)
    if found is None or found.compiled is not compiled:
        annotation = compiled.type_annotation
        if isinstance(annotation, str):  # it comes from a disk
            annotation = _annotated(f, kinds, "cache")
        of_integers = next(_of_integers(annotation), "")
        if of_integers and f.targetoptions.get("parallel"):
            serial = _annotated(f, kinds, "cache", "parallel")  # which still has its loops
            of_integers = next(_of_integers(serial), "")
        objection = next(_objections(annotation), of_integers)
        found = held[kinds] = _Found(compiled, objection, _is_pure(annotation))
    return found


def _annotated(f: Any, kinds: Any, *without: str) -> Any:
    """The types of a function that is compiled anew, without some options."""
    options = {k: v for k, v in f.targetoptions.items() if k not in without}
    again = importlib.import_module("numba").jit(**options)(f.py_func)
    again.compile(kinds)
    return again.overloads[kinds].type_annotation


def _of_integers(annotation: Any) -> Iterator[str]:
    types = importlib.import_module("numba.core.types")
    return objections_to_integers(
        annotation, lambda x: getattr(_dtype(types, x), "kind", "f") in "iu"
    )


def check_types(f: Any, compiled: Any) -> None:
    """Refuse a function whose Python computes with other types than numba does."""
    objection = _examined(f, compiled).objection
    if objection:
        raise _refused(f.py_func.__name__, objection)


def _refused(name: str, objection: str) -> ConversionError:
    return refusing(
        ConversionError(
            f"{name} is called with a traced value{at_line()}, and {objection}. Call "
            f"{name}.py_func for Python's result, change {name} so that both make the same, or "
            "declare it with tapegrad.primitive and defvjp"
        )
    )


# ---- types


def _objections(annotation: Any) -> Iterator[str]:
    """Why Python computes something else."""
    import random  # which numba has loaded, and a program without it hasn't

    for called in map(_callee, annotation.typemap.values()):
        owner = getattr(called, "__self__", None)
        if isinstance(owner, (random.Random, np.random.RandomState)):
            yield (
                f"draws by {called.__name__} from numba's own generator, which Python doesn't "
                "have: pass it a np.random.Generator"
            )
    yield from _others(annotation)


def _callee(kind: Any) -> Any:
    """The function of Python's that a type of numba's is of."""
    return getattr(kind, "typing_key", None)


def _others(annotation: Any) -> Iterator[str]:
    """The expressions that numba computes with other types."""
    types = importlib.import_module("numba.core.types")
    ir = importlib.import_module("numba.core.ir")
    typed, numbers = annotation.typemap, set(_whole_arguments(annotation))
    for expression, signature in annotation.calltypes.items():
        if type(expression) is not ir.Expr or expression.op not in _COMPUTING or not signature:
            continue
        parts = expression._kws
        names = [x.name for x in expression.list_vars() if x.name not in numbers]
        given = [_dtype(types, typed[x]) for x in names if x in typed]
        kinds, made = {x for x in given if x is not None}, _dtype(types, signature.return_type)
        wide = all(x in _WIDE for x in {*kinds, made} - {None})
        counted = made == np.int64 and kinds == {np.dtype(bool)} and "fn" in parts  # True + True
        if (wide and not counted) or _is_alike(kinds, made, parts.get("fn")):
            continue
        called = typed.get(getattr(parts.get("func"), "name", ""))
        if isinstance(called, (types.NumberClass, types.Dispatcher)) or _callee(called) in _READING:
            continue
        meeting = ", ".join(sorted(map(str, kinds))) or str(made)
        yield (
            f"numba computes with {meeting} in line {expression.loc.line} of "
            f"{expression.loc.filename} by rules of its own, where NumPy has others"
        )


def _whole_arguments(annotation: Any) -> Iterator[str]:
    """The names of arguments that are integers: Python's have as many bits as numba counts in."""
    ir = importlib.import_module("numba.core.ir")
    for block in annotation.blocks.values():
        given = [x for x in block.body if type(x) is ir.Assign and isinstance(x.value, ir.Arg)]
        for name in [x.target.name for x in given]:
            if getattr(annotation.typemap[name], "signed", False):
                yield name


_COMPUTING = {"binop", "inplace_binop", "unary", "call", "arrayexpr"}
_WIDE = {np.dtype(c) for c in ("int64", "float64", "complex128", "bool")}
_READING = {range, len, float, int, bool, enumerate, zip}
_COMPARING = {operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne}


def _is_alike(kinds: set[np.dtype], made: Any, function: Any) -> bool:
    """Whether NumPy computes with the same types: of one type, or of integers that it compares."""
    compares = function in _COMPARING
    if compares and all(k.kind in "ib" for k in kinds):
        return True
    return len(kinds) == 1 and (made in kinds or (compares and made == np.bool_))


def _dtype(types: Any, kind: Any) -> np.dtype | None:
    """The dtype of a number, or of what an array or a container holds."""
    while not isinstance(kind, (types.Number, types.Boolean)):
        if isinstance(kind, types.BaseTuple):
            found = {_dtype(types, x) for x in kind.types} - {None}
            return next((x for x in found if x not in _WIDE), next(iter(found), None))
        held = getattr(kind, "dtype", getattr(kind, "this", None))  # of an array, and its method
        if held is None or held is kind:
            return None
        kind = held
    return np.dtype("?" if isinstance(kind, types.Boolean) else str(types.unliteral(kind)))


def typed(name: str, kind: Any, x: Any) -> Any:
    """A function's result, as numba makes it of its type: of scalars Python's numbers."""
    types = importlib.import_module("numba.core.types")
    if isinstance(kind, types.Optional) and x is not None:
        kind = kind.type
    if isinstance(kind, types.BaseTuple) and isinstance(x, tuple):
        parts = [typed(name, k, v) for k, v in zip(kind.types, x, strict=True)]
        return type(x)(*parts) if hasattr(x, "_fields") else tuple(parts)
    if not isinstance(kind, (types.Number, types.Boolean)) or np.ndim(x):
        return x
    dtype: Any = _dtype(types, kind)
    own = x.dtype if isinstance(x, Tracer) else np.asarray(x).dtype
    if own.kind == "c" != dtype.kind:
        raise _refused(name, f"Python makes a complex number, numba one of {dtype}")
    if isinstance(x, Tracer):
        return as_python(x if x.dtype.kind == dtype.kind else x.astype(dtype))
    return np.asarray(x, dtype).item()


# ---- values


def alike(f: Any, compiled: Any, args: Sequence[Any], kwargs: Any, run: Callable[[], Any]) -> Any:
    """`run()`, the Python of a function; where its result is another one than numba's, it is
    refused. What numba raises is raised."""
    of = getattr(f, "_dispatcher", f)
    given = _primals((*args, kwargs)) if _examined(of, compiled).is_pure else None
    try:
        found = run()
    except (ValueError, ArithmeticError) as error:
        let_through(error)
        if given is None or isinstance(error, TapegradError):
            raise
        theirs = _outcome(f, given)
        if type(theirs) is type(error):
            raise
        made = theirs if not isinstance(theirs, Exception) else f"an error, {theirs}"
        raise _refused(
            f.__name__, f"Python raises {type(error).__name__}: {error}, numba makes {made}"
        ) from error
    if given is None:
        return found
    theirs, ours = _outcome(f, given), _primals(found)
    if isinstance(theirs, Exception):
        raise theirs
    if ours is not None and not _are_near(ours, theirs):
        raise _refused(f.__name__, f"Python makes {ours} of it, numba {theirs}")
    return found


def _is_pure(annotation: Any, seen: frozenset[Any] = frozenset()) -> bool:
    """Whether a call writes to its arguments at most, which numba's types tell."""
    types = importlib.import_module("numba.core.types")
    for kind in annotation.typemap.values():
        if isinstance(kind, types.Dispatcher):
            if kind.dispatcher not in seen:
                inner = seen | {kind.dispatcher}
                held = [x.type_annotation for x in kind.dispatcher.overloads.values()]
                if not all(not isinstance(x, str) and _is_pure(x, inner) for x in held):
                    return False
        elif isinstance(kind, types.Function):
            if _callee(kind) is print:
                return False
        elif type(kind).__name__ in _IMPURE:
            return False
    return True


_IMPURE = {"ExternalFunction", "ExternalFunctionPointer", "ObjModeDispatcher"}
_IMPURE |= {"ClassInstanceType", "NumPyRandomGeneratorType"}


def _primals(x: Any) -> Any:
    """Copies of plain values for traced ones; None if one isn't known."""
    if isinstance(x, Tracer):
        value = x._read()[1]
        return value if value is None else value.item() if x._weak else np.copy(value)[()]
    if type(x) in (tuple, list):
        parts = [_primals(v) for v in x]
        return None if any(p is None for p in parts) else type(x)(parts)
    if type(x) is dict:
        parts = [_primals(v) for v in x.values()]
        return None if any(p is None for p in parts) else dict(zip(x, parts, strict=True))
    if type(x) is np.ndarray:
        return x.copy("K")
    is_plain = isinstance(x, (bool, int, float, complex, np.generic)) or hasattr(x, "py_func")
    return x if is_plain else None


def _outcome(f: Any, given: tuple[Any, ...]) -> Any:
    """What numba makes of plain values, or its error."""
    try:
        return quiet(f)(*given[:-1], **given[-1])
    except Exception as error:
        let_through(error)
        return error


def _are_near(x: Any, y: Any) -> bool:
    """Whether two results are the same but for rounding."""
    if isinstance(x, (tuple, list)):
        return type(x) is type(y) and len(x) == len(y) and all(map(_are_near, x, y))
    x, y = np.asarray(x), np.asarray(y)
    if x.shape != y.shape or x.dtype != y.dtype:
        return False
    if x.dtype.kind not in "fc":
        return np.array_equal(x, y)
    known = np.isfinite(x)
    if not np.array_equal(known, np.isfinite(y)) or not np.array_equal(
        x[~known], y[~known], equal_nan=True
    ):
        return False
    most = np.max(np.abs(y), where=known, initial=0.0)
    return bool(np.all(np.abs(x - y)[known] <= 1e-3 * most))


def as_pythons(x: Any) -> Any:
    """An argument, as numba sees it: NumPy's numbers of 64 bits, and integers, are Python's."""
    is_scalar = isinstance(x, np.generic) or (isinstance(x, Tracer) and x._is_scalar())
    if not is_scalar or not (x.dtype in _WIDE or x.dtype.kind == "i"):
        return x
    return as_python(x) if isinstance(x, Tracer) else x.item()


def argument_dtypes(compiled: Any) -> tuple[np.dtype | None, ...]:
    types = importlib.import_module("numba.core.types")
    return tuple([_dtype(types, kind) for kind in compiled.signature.args])
