"""Parameters of NumPy's functions: their names, and the guards on their traced values.

A function's arguments are *operands*, which go on the tape, and *parameters*, which decide what is
recorded: axes, shapes, counts, orders, flags. The value of a traced integer or boolean that is
passed as a parameter is guarded, and the function gets the plain value. Parameters that NumPy's C
code accepts in several spellings are normalised here: `order="f"`, `kind="Stable"`, `mode=1`,
`where="a"`.
"""

from __future__ import annotations

import inspect
import operator
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from typing import Any

import numpy as np

from tapegrad.observe.values.exact import is_of_integers
from tapegrad.tracing.operators.deciding import FOR_C, has_varied
from tapegrad.tracing.recording.decisions import may_decide
from tapegrad.tracing.recording.trace import current_trace, innermost
from tapegrad.tracing.tracers.hashing import plain_key
from tapegrad.tracing.tracers.tracer import Tracer, stand_in, to_operand

# The names of parameters in NumPy's functions; all others are operands.
_NAMES = """
    axes axis axis1 axis2 axisa axisb axisc source destination shape new_shape dims reps repeats
    kth window_shape shift pad_width indices_or_sections k n N num minlength offset decimals obj
    ind deg ord edge_order ddof correction include_initial stat_length keepdims rowvar bias endpoint
    retstep returned increasing upper sparse copy subok writeable wrap equal_nan hermitian
    full_matrices stable assume_unique return_index return_indices return_inverse return_counts
    sorted invert density full cov trim einsum_call descending compute_uv overwrite_input
    optimize dtype type to device casting order bitorder kind mode side method indexing UPLO
    reflect_type count s norm refcheck
"""
PARAMETERS = frozenset(_NAMES.split())

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_MANY = inspect.Parameter.VAR_POSITIONAL
_ANY = {_MANY, inspect.Parameter.VAR_KEYWORD}


@dataclass(frozen=True)
class Form:
    """How a function is called: `renamed` maps NumPy's argument names to ours, `positions` are
    those of parameters, and from `after` on, if it isn't None, all arguments are parameters."""

    renamed: dict[str, str]
    positions: tuple[int, ...]
    after: int | None
    read: tuple[tuple[int, str], ...]  # positions and names of parameters with several spellings
    names: tuple[str, ...]  # of all positional arguments

    def own(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """The keyword arguments under our names."""
        if not self.renamed:
            return kwargs
        return {self.renamed.get(name, name): x for name, x in kwargs.items()}

    def is_parameter(self, k: int) -> bool:
        """Whether the argument at position `k` is a parameter."""
        return k in self.positions or (self.after is not None and k >= self.after)

    def is_named(self, k: int, names: Sequence[str]) -> bool:
        return k < len(self.names) and self.names[k] in names


def _parameters(numpys: Any) -> list[inspect.Parameter]:
    """The parameters in the signature of a NumPy function; empty for C functions of older versions,
    which have no signature."""
    try:
        return list(inspect.signature(numpys).parameters.values())
    except ValueError:
        return []


@cache
def form_of(function: Callable[..., Any], numpys: Any = None) -> Form:
    """The form of a front-end function that implements the NumPy function `numpys`."""
    own = list(inspect.signature(function).parameters.values())
    renamed = {}
    theirs = [] if numpys is None else _parameters(numpys)
    if theirs and {p.kind for p in own} >= _ANY:  # it passes them on
        own = theirs
    for mine, its in zip(own, theirs, strict=False):
        if mine.kind in _POSITIONAL and its.kind in _POSITIONAL and mine.name != its.name:
            renamed[its.name] = mine.name
    positions = tuple(
        k for k, p in enumerate(own) if p.name in PARAMETERS and p.kind in (*_POSITIONAL, _MANY)
    )
    rest = [k for k in positions if own[k].kind is _MANY]
    read = tuple((k, p.name) for k, p in enumerate(own) if p.name in READ and p.kind in _POSITIONAL)
    names = tuple(p.name for p in takewhile(lambda p: p.kind in _POSITIONAL, own))
    return Form(renamed, positions, rest[0] if rest else None, read, names)


def taken(form: Form, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[list[Any], Any, bool]:
    """The arguments with plain parameters, and whether one of the parameters was traced."""
    done, named, found = list(args), kwargs, False
    positions: Sequence[int] = form.positions
    if form.after is not None:
        positions = (*positions, *range(form.after + 1, len(done)))
    for k in positions:
        if k < len(done) and _is_taken(done[k]):
            name = form.names[k] if k < len(form.names) else ""
            done[k], found = _taken(name, done[k], args), True
    for k, name in form.read:
        if k < len(done):
            done[k] = READ[name](done[k])
    for name, x in kwargs.items():
        if name in READ:
            named = {**named, name: READ[name](x)}
            continue
        if form.renamed.get(name, name) in PARAMETERS and _is_taken(x):
            others = (*args, *kwargs.values())
            named, found = {**named, name: _taken(name, x, others)}, True
    return done, named, found


def _taken(name: str, x: Any, others: Sequence[Any]) -> Any:
    """A parameter as a plain value, or traced where it needn't be plain and another call has
    passed another one."""
    if not name or not isinstance(x, Tracer) or x.ndim or x.dtype.kind not in "iu":
        return plain_parameter(x, others)
    what = f"the parameter {name!r}"
    if name in _FOLLOWED and has_varied(what):
        return x
    value = x._guarded_int(what)
    return value if x._weak else x.dtype.type(value)  # of the type that it has untraced


# Parameters that the front end's functions take traced, too
_FOLLOWED = ("shift", "decimals")

# ---- spellings


def _text(x: Any) -> Any:
    return x.decode() if type(x) is bytes else x


def letter(x: Any) -> Any:
    """A memory order in NumPy's spelling: "f" or b"F" --> "F"."""
    x = _text(x)
    return x.upper() if type(x) is str and x in ("c", "f", "a", "k") else x


def _lower(x: Any) -> Any:
    """A sorting method in NumPy's spelling: "Stable" --> "stable"."""
    x = _text(x)
    return x.lower() if type(x) is str else x


def truth(x: Any) -> Any:
    """A mask; of an object that is no array, its truth: "a" --> True. Numbers stay, since `np.mean`
    adds them up to count the elements."""
    if isinstance(x, (bool, np.ndarray)) or x is np._NoValue or has_tracers([x], {}):
        return x
    if (hasattr(x, "dtype") and x.ndim) or np.asarray(x).dtype.kind in "biuf":
        return x
    return np.asarray(x, bool)[()]


READ: dict[str, Callable[[Any], Any]] = {"order": letter, "kind": _lower, "where": truth}


def one_of(x: Any, *names: str) -> Any:
    """The name of a mode that is passed as a name or as its number, 0, 1 or 2."""
    x = _text(x)
    return x if isinstance(x, str) else names[-1 if x is None else operator.index(x)]


def beyond(mode: Any) -> Any:
    """The mode for indices out of bounds: "clip", "wrap" or "raise"."""
    return one_of(mode, "clip", "wrap", "raise")


class _Running(threading.local):
    """Whether NumPy's own code is running in this thread. The arrays that it makes and passes as
    parameters can't change at later calls."""

    numpys = False


running = _Running()


def _is_taken(x: Any) -> bool:
    """Whether a parameter contains a tracer, or an array, which may change between calls."""
    if isinstance(x, (list, tuple)):
        return any(map(_is_taken, x))
    if isinstance(x, dict):
        return any(map(_is_taken, x.values()))
    return isinstance(x, Tracer) or (isinstance(x, np.ndarray) and not running.numpys)


def plain_parameter(x: Any, others: Sequence[Any]) -> Any:
    """A parameter with guarded plain values for traced integers and booleans. The elements of
    captured arrays are guarded too, in the trace of the tracers among `others`."""
    if isinstance(x, list):
        return [plain_parameter(part, others) for part in x]
    if isinstance(x, tuple):
        return tuple(plain_parameter(part, others) for part in x)
    if isinstance(x, dict):
        return {key: plain_parameter(part, others) for key, part in x.items()}
    if type(x) is np.ndarray and x.dtype.kind in "iub":
        tracers = list(_tracers(others))
        if not tracers:
            return x
        trace = innermost(tracers)
        x = stand_in(trace, *to_operand(trace, x))
    if not isinstance(x, Tracer) or x.dtype.kind not in "iub":
        return x
    if x.ndim:
        found = np.array(x._concrete)
        same: Any = np.all(np.equal(x, found.copy()))
        if isinstance(same, Tracer):  # not for an array that the function makes: it is constant
            x._trace.guard(same, True, "an array of axes, counts or flags")
        return found
    value = bool(x) if x.dtype.kind == "b" else x.__index__()
    return value if x._weak else x.dtype.type(value)  # of the type that it has untraced


def whole(x: Any, what: str = FOR_C) -> Any:
    """The guarded plain value of a traced integer or boolean scalar; None for all else."""
    if not isinstance(x, Tracer) or not x._is_scalar() or x.dtype.kind not in "iub":
        return None
    value = x._guarded(what)
    kind: Any = x.__class__ if x._weak else x.dtype.type  # of the type that it has untraced
    return kind(value)


def key(x: Any) -> Any:
    """The guarded plain value of a key of a dict or set: an integer or boolean, or a real number
    where the function needs it as a key."""
    if isinstance(x, Tracer) and x._is_scalar() and x.dtype.kind == "f":
        return plain_key(x)
    return whole(x, "a number that is looked up")


def plain_number(by: str, x: Any) -> Any:
    """The guarded plain value of a number that is passed to the function `by`. A real number must
    not be differentiated."""
    if not isinstance(x, Tracer) or not x._is_scalar() or x.dtype.kind != "f":
        return whole(x)
    of_integers = is_of_integers(x._trace, x._read()[0])
    value = x._guarded("a number that goes to code in C") if of_integers else x._plain_float(by)
    return float(value) if x._weak else x.dtype.type(value)


def tolerance(x: Any) -> Any:
    """The guarded plain value of a traced tolerance.

    The exact result doesn't depend on the tolerance of its approximation, so no derivative is lost.
    The guard compares nine digits, since played and compiled code round differently."""
    trace = current_trace()
    if type(x) is np.ndarray and x.dtype.kind in "fiub" and not x.ndim and trace is not None:
        x = stand_in(trace, *to_operand(trace, x))  # its contents may change between calls
    if not isinstance(x, Tracer) or x.ndim:
        return x
    if x.dtype.kind != "f":
        return plain_parameter(x, ())
    if x._can_be_plain():
        return x._as_plain("a tolerance, or a size of steps")
    if x._trace.repeats or not may_decide(x._trace, x._read()[0]) or x._read()[1] is None:
        return x
    value = x.dtype.type(x._read()[1])
    if not (np.abs(x - value) <= 1e-9 * abs(value)):
        return x  # NaN
    return value


def _tracers(xs: Any) -> Iterator[Tracer]:
    if isinstance(xs, Tracer):
        yield xs
    elif isinstance(xs, (list, tuple)):
        for x in xs:
            yield from _tracers(x)


def has_tracers(args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Whether a traced value is left among the arguments."""
    return next(_tracers([*args, *kwargs.values()]), None) is not None


def numbers_taken(args: Any, kwargs: Any) -> Any:
    """The arguments with guarded values for all tracers, for a function that NumPy runs; None
    unless each tracer is a single integer or boolean."""
    tracers = list(_tracers([*args, *kwargs.values()]))
    if not tracers or any(x.dtype.kind not in "iub" or x.ndim for x in tracers):
        return None
    taken_all = [plain_parameter(x, ()) for x in args]
    return taken_all, {name: plain_parameter(x, ()) for name, x in kwargs.items()}
