"""Parameters of NumPy's functions: by which name one is passed, and whether it may be traced.

A function's arguments are *operands*, which go on the tape, and *parameters*, which decide what is
recorded: axes, shapes, counts, orders, flags. A traced integer or boolean as a parameter is taken
for granted: its value is guarded, and the function gets that. What NumPy's code in C reads in
several spellings has one here: `order="f"`, `kind="Stable"`, `mode=1`, `where="a"`.
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
    """How a function is called: NumPy's names of arguments that have another name here, and the
    positions of parameters; `after` is the position from which on all are, if there is one."""

    renamed: dict[str, str]
    positions: tuple[int, ...]
    after: int | None
    read: tuple[tuple[int, str], ...]  # the positions of those that have several spellings
    names: tuple[str, ...]  # of all arguments that have a place

    def own(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Arguments by the names that they have here."""
        if not self.renamed:
            return kwargs
        return {self.renamed.get(name, name): x for name, x in kwargs.items()}

    def is_parameter(self, k: int) -> bool:
        """Whether the argument in this place is one."""
        return k in self.positions or (self.after is not None and k >= self.after)

    def is_named(self, k: int, names: Sequence[str]) -> bool:
        return k < len(self.names) and self.names[k] in names


def _parameters(numpys: Any) -> list[inspect.Parameter]:
    """The parameters of a function of NumPy's; an older one doesn't tell those of C code."""
    try:
        return list(inspect.signature(numpys).parameters.values())
    except ValueError:
        return []


@cache
def form_of(function: Callable[..., Any], numpys: Any = None) -> Form:
    """The form of a function of the front end, which stands for one of NumPy's."""
    own = list(inspect.signature(function).parameters.values())
    renamed = {}
    theirs = [] if numpys is None else _parameters(numpys)
    if theirs and {p.kind for p in own} >= _ANY:  # it hands them on
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
    """The arguments with plain parameters, and whether one of them was traced."""
    done, named, found = list(args), kwargs, False
    positions: Sequence[int] = form.positions
    if form.after is not None:
        positions = (*positions, *range(form.after + 1, len(done)))
    for k in positions:
        if k < len(done) and _is_taken(done[k]):
            done[k], found = plain_parameter(done[k], args), True
    for k, name in form.read:
        if k < len(done):
            done[k] = READ[name](done[k])
    for name, x in kwargs.items():
        if name in READ:
            named = {**named, name: READ[name](x)}
            continue
        if form.renamed.get(name, name) in PARAMETERS and _is_taken(x):
            others = (*args, *kwargs.values())
            named, found = {**named, name: plain_parameter(x, others)}, True
    return done, named, found


# ---- spellings


def _text(x: Any) -> Any:
    return x.decode() if type(x) is bytes else x


def letter(x: Any) -> Any:
    """An order in memory: "f" or b"F" --> "F"."""
    x = _text(x)
    return x.upper() if type(x) is str and x in ("c", "f", "a", "k") else x


def _lower(x: Any) -> Any:
    """A way to sort: "Stable" --> "stable"."""
    x = _text(x)
    return x.lower() if type(x) is str else x


def truth(x: Any) -> Any:
    """A mask: of what is no array the truth counts, "a" --> True. Numbers stay, which `np.mean`
    adds up to count the elements."""
    if isinstance(x, (bool, np.ndarray)) or x is np._NoValue or has_tracers([x], {}):
        return x
    if (hasattr(x, "dtype") and x.ndim) or np.asarray(x).dtype.kind in "biuf":
        return x
    return np.asarray(x, bool)[()]


READ: dict[str, Callable[[Any], Any]] = {"order": letter, "kind": _lower, "where": truth}


def one_of(x: Any, *names: str) -> Any:
    """The mode that a parameter says by its name, or by its number: of 0, 1, 2 the names."""
    x = _text(x)
    return x if isinstance(x, str) else names[-1 if x is None else operator.index(x)]


def beyond(mode: Any) -> Any:
    """What becomes of indices beyond the ends."""
    return one_of(mode, "clip", "wrap", "raise")


class _Running(threading.local):
    """Whether code of NumPy's runs: what it makes parameters of can't change later."""

    numpys = False


running = _Running()


def _is_taken(x: Any) -> bool:
    """Whether a parameter has traced integers in it, or is an array, whose elements may change."""
    if isinstance(x, (list, tuple)):
        return any(map(_is_taken, x))
    if isinstance(x, dict):
        return any(map(_is_taken, x.values()))
    return isinstance(x, Tracer) or (isinstance(x, np.ndarray) and not running.numpys)


def plain_parameter(x: Any, others: Sequence[Any]) -> Any:
    """A parameter with guarded values for traced integers and booleans. An array from outside is
    guarded as well: it is read in the trace of the tracers among `others`."""
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
        if isinstance(same, Tracer):  # an array that the function makes is the same each time
            x._trace.guard(same, True, "an array of axes, counts or flags")
        return found
    value = bool(x) if x.dtype.kind == "b" else x.__index__()
    return value if x._weak else x.dtype.type(value)  # as it would be untraced


def whole(x: Any) -> Any:
    """A traced integer or boolean as a plain one, which is guarded; None for all else."""
    if not isinstance(x, Tracer) or not x._is_scalar() or x.dtype.kind not in "iub":
        return None
    value = x._guarded("a number that is a key, or goes to code in C")
    kind: Any = x.__class__ if x._weak else x.dtype.type  # as it would be untraced
    return kind(value)


def key(x: Any) -> Any:
    """The same of a key of a dict or set, a real one too where the function needs that."""
    if isinstance(x, Tracer) and x._is_scalar() and x.dtype.kind == "f":
        return plain_key(x)
    return whole(x)


def plain_number(by: str, x: Any) -> Any:
    """The same of a real number too, for a function, which must not be differentiated."""
    if not isinstance(x, Tracer) or not x._is_scalar() or x.dtype.kind != "f":
        return whole(x)
    of_integers = is_of_integers(x._trace, x._read()[0])
    value = x._guarded("a number that goes to code in C") if of_integers else x._plain_float(by)
    return float(value) if x._weak else x.dtype.type(value)


def tolerance(x: Any) -> Any:
    """A traced number that says how well a result is approximated, as a plain one. What it is the
    approximation of doesn't depend on it, so no derivative is lost. One that played and compiled
    code round differently is the same to nine digits."""
    trace = current_trace()
    if type(x) is np.ndarray and x.dtype.kind in "fiub" and not x.ndim and trace is not None:
        x = stand_in(trace, *to_operand(trace, x))  # it may hold another number later
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
    """Arguments with guarded values for all that is traced, for a function that NumPy runs; None if
    something traced isn't a single integer or boolean."""
    tracers = list(_tracers([*args, *kwargs.values()]))
    if not tracers or any(x.dtype.kind not in "iub" or x.ndim for x in tracers):
        return None
    taken_all = [plain_parameter(x, ()) for x in args]
    return taken_all, {name: plain_parameter(x, ()) for name, x in kwargs.items()}
