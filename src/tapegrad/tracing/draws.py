"""Random numbers that a traced program draws: inputs of the tape, which each call draws anew.

A call of a generator's method is made as it stands, and what it gives becomes an input. A later
call of the gradient finds the generator where the program found it, makes the same calls in the
same order, and so leaves it where plain NumPy would have. If it then turns out that the tape isn't
the right one for these numbers, the generator's state is put back, and the next tape draws.

A parameter that is traced isn't part of the draw: numbers of the standard distribution are drawn,
as NumPy does it, and made what they should be on the tape (Kingma and Welling, 2014, Auto-Encoding
Variational Bayes: the derivative of a location and a scale). Where numbers jump with the parameter,
or are accepted and rejected by it, there is no such derivative, and the draw is refused.

A generator that the program makes for itself, of a seed, draws the same numbers at each call, which
are constants; its draws come here where a parameter is traced.

What can't be an input, such as a list that is shuffled, stays what it is; such a program is traced
at each call.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tapegrad.core.handlers import let_through
from tapegrad.ir.tape import Aval
from tapegrad.tracing import randomness
from tapegrad.tracing.dispatch import dispatch
from tapegrad.tracing.drawn import Drawn
from tapegrad.tracing.explaining import explain_call
from tapegrad.tracing.made import is_made, is_traceable
from tapegrad.tracing.observe.effects import Stopped
from tapegrad.tracing.observe.harmless import is_numpys_module
from tapegrad.tracing.observe.notes import Notes
from tapegrad.tracing.observe.observer import unobserved
from tapegrad.tracing.trace import Trace, traces_under_way, untraced
from tapegrad.tracing.tracer import Tracer, stand_in, to_operand


class _Unknown(Exception):
    """The value of a parameter isn't there yet."""


class _Plain(Exception):
    """What this draws can't be an input."""


# ---- while a program is traced


@unobserved
def draw(
    observer: Notes, generator: Any, method: Callable[..., Any], /, *args: Any, **kwargs: Any
) -> Any:
    """What a call of a generator's method, which the user's program makes, gives."""
    given = args[1:] if args and args[0] is generator else args
    name = method.__name__
    traces, outside = traces_under_way(), observer.is_outside(generator)

    def plainly() -> Any:
        if outside:
            observer.before_draw(generator)
            observer.reads.lost(type(generator).__name__)
        return method(*args, **kwargs)

    if not traces or traces[0] is not observer.trace:  # in a rule, say
        return plainly()
    refused = [t for t in traces if t.repeats and not (t.in_frame or t.once)]
    if refused:
        raise traces[0].refused(randomness.drawn_once(refused[0].label, generator))
    if observer.apart is not None:
        raise Stopped
    if observer.effects is not None:
        observer.effects.changed()
    calls = (Calls if outside else _Own)(observer, holder_of_draws(traces), generator)
    try:
        return calls.made(name, given, kwargs)
    except _Plain:
        return plainly()


@unobserved
def read_clock(observer: Notes, clock: Callable[[], Any], of: Any = time, /) -> Any:
    """What a clock that the user's program reads shows: each call reads it anew."""
    traces = traces_under_way()
    outer = traces and traces[0] is observer.trace and observer.apart is None
    if not (outer and observer.clocks.are_inputs) or any(
        t.repeats and not (t.in_frame or t.once) for t in traces
    ):
        observer.reads.lost(f"time.{clock.__name__}")
        return clock()
    if observer.effects is not None:
        observer.effects.changed()
    observer.clocks.are_read = True
    return Calls(observer, holder_of_draws(traces), of).number(clock.__name__)


def holder_of_draws(traces: Sequence[Trace]) -> Trace:
    """Of the traces under way the one whose inputs the numbers are that are drawn: the outermost,
    or one for a row, which is followed by others that draw their own."""
    return next((t for t in reversed(traces) if t.holds_draws), traces[0])


@unobserved
def ask(observer: Notes, f: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """What a function in C of an installed package returns, which later calls ask it anew."""
    if observer.apart is not None:
        raise Stopped
    given, named = tuple(map(_integer, args)), {key: _integer(x) for key, x in kwargs.items()}
    try:
        return observer.questions.call(f, given, named)
    except (TypeError, ValueError) as error:
        if any(isinstance(x, Tracer) for x in (*given, *named.values())):
            explain_call(error, f)
        raise


def _integer(x: Any) -> Any:
    """An integer that goes to C code is guarded, and plain."""
    if not isinstance(x, Tracer) or not x._is_scalar() or x.dtype.kind not in "iub":
        return x
    return bool(x) if x._weak and x.dtype.kind == "b" else _plain(x)


def as_input(trace: Trace, value: np.ndarray, weak: bool = False, is_array: bool = True) -> Tracer:
    """What stands for a value that was drawn, as an input of a trace."""
    var = trace.builder.fresh(Aval(value.shape, value.dtype, weak=weak))
    trace.captured[id(value)] = var, value
    return stand_in(trace, var, value if is_array else value[()], weak)


class Calls:
    """Calls of one generator's methods in a trace."""

    def __init__(self, observer: Notes, trace: Trace, generator: Any) -> None:
        self.observer, self.trace, self.generator = observer, trace, generator

    def made(self, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        python = not is_numpys_module(type(self.generator).__module__)
        if python and name in _OF_LISTS:
            raise _Plain
        if name == "shuffle":
            return self._shuffled(*args, **kwargs)
        if name in ("permutation", "choice") and args and _is_traced(args[0]):
            return self._picked(name, dispatch.as_operand(args[0]), *args[1:], **kwargs)
        order = () if python else _WITH_OUT.get(name, ())
        if len(args) == len(order):  # the last of them is `out`
            args, kwargs = (), dict(zip(order, args, strict=True)) | kwargs
        out = kwargs.get("out")
        if isinstance(out, Tracer):
            kwargs = dict(zip(order, args, strict=False)) | kwargs
            return self._written(out, name, {k: x for k, x in kwargs.items() if k != "out"})
        if any(map(_is_traced, (*args, *kwargs.values()))):
            return self._of_standard(name, args, kwargs)
        if out is not None or name not in _followed(self.generator):
            raise _Plain
        return self.number(name, *args, **kwargs)

    def _written(self, out: Any, name: str, kwargs: dict[str, Any]) -> Any:
        """NumPy fills the memory of `out` from its beginning to its end."""
        value = out._read()[1]
        if value is None or not out._owner._ordered or any(map(_is_traced, kwargs.values())):
            raise self.trace.refused(randomness.no_derivative(self.trace.label, name))
        copied = np.array(value) if value.flags.forc else np.ones((2, 2, 2))[::2, ::2]
        named = {key: _plain(x) for key, x in kwargs.items()}
        getattr(_like(self.generator), name)(**named, out=copied)  # NumPy's own errors
        rows = value.flags.c_contiguous
        kwargs = {**kwargs, "size": out.shape if rows else out.shape[::-1]}
        (out if rows else out.T)[...] = self.number(name, **kwargs)
        return out

    def number(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        """The input that a draw of plain parameters gives."""
        given = tuple(map(_plain, args))
        named = {key: _plain(x) for key, x in kwargs.items()}
        if any(type(x) is int and abs(x) > _LARGE for x in (*given, *named.values())) or (
            name == "getrandbits" and given and given[0] > 62
        ):
            raise _Plain  # what it draws may be more than 64 bits hold
        self.observer.before_draw(self.generator)
        return self.drawn(name, given, named, getattr(self.generator, name)(*given, **named))

    def drawn(self, name: str, given: Any, named: dict[str, Any], found: Any) -> Any:
        """The input that stands for what this draw of plain parameters has given."""
        if name in _STATES:
            self._note(name, given, named, None)
            return found
        if type(found) in (int, float):
            value, weak = np.asarray(found), True
        elif isinstance(found, (np.ndarray, np.generic)) and is_traceable(found.dtype):
            value, weak = np.array(found, order="C"), False
        else:
            self.observer.reads.lost(type(self.generator).__name__)
            return found
        self._note(name, given, named, value)
        is_array, inner = isinstance(found, np.ndarray), traces_under_way()[-1]
        drawn = as_input(self.trace, value, weak, is_array)
        if not is_array:
            return drawn
        if inner is self.trace or inner.repeats:
            return drawn
        # The array is that of the function which is traced now, and may be written to there.
        operand, value = to_operand(inner, drawn)
        return stand_in(inner, operand, value)

    def _note(self, name: str, args: Any, kwargs: Any, value: Any) -> None:
        self.observer.drawn.append(Drawn(self.generator, name, args, kwargs, value))

    # ---- traced parameters

    def _of_standard(self, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        python = not is_numpys_module(type(self.generator).__module__)
        form = (_PYTHONS if python else _NUMPYS).get(name)
        if (
            form is None
            and name in _followed(self.generator)
            and all(x.dtype.kind in "iub" for x in _traced([*args, *kwargs.values()]))
        ):
            return self.number(name, *args, **kwargs)  # how many, and of how many, is guarded
        if form is None:
            raise self.trace.refused(randomness.no_derivative(self.trace.label, name))
        refusal = None if python else self._refusal(name, args, kwargs)
        if isinstance(refusal, TypeError):
            raise refusal
        names = [key for key, _ in form.parameters]
        given = dict(form.parameters) | dict(zip(names, args, strict=False))
        size = args[len(names)] if len(args) > len(names) else kwargs.get("size")
        given |= {key: x for key, x in kwargs.items() if key in names}
        given = {key: dispatch.as_operand(x) if _is_list(x) else x for key, x in given.items()}
        rest = {k: x for k, x in kwargs.items() if k not in names and k != "size"}
        for key in names:
            if given[key] is _REQUIRED:
                raise TypeError(f"{name}() missing required argument {key!r}")
        held = {key: given[key] for key in form.held}
        if any(map(_is_traced, held.values())):
            raise self.trace.refused(randomness.no_derivative(self.trace.label, name))
        moved = [given[key] for key in names if key not in held]
        if not python:  # whose code computes with what it is given
            given |= {key: _real(given[key]) for key in names if key not in held}
            moved = [given[key] for key in names if key not in held]
        for key in form.positive:
            if np.any(np.signbit(given[key])):
                raise ValueError(f"{key} < 0")
        may_fall = name == "uniform" and hasattr(self.generator, "bit_generator")
        if may_fall and np.any(np.signbit(moved[1] - moved[0])):
            raise ValueError("high - low < 0")
        if refusal is not None:
            self.trace.note_raised(name)
            raise refusal
        if not python and name != "multivariate_normal":
            shapes = [np.shape(x) for x in given.values()]
            shape = np.broadcast_shapes(*shapes)
            rest["size"] = size if size is not None or not shape else shape
        elif size is not None:
            rest["size"] = size
        z = self.number(form.standard, *form.given(list(held.values()), moved), **rest)
        return form.formula(z, *moved)

    def _refusal(self, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """NumPy's own error, which is that of another generator with the values of this call."""
        try:
            given, named = [*map(_valued, args)], {key: _valued(x) for key, x in kwargs.items()}
            with untraced():
                getattr(_like(self.generator), name)(*given, **named)
        except _Unknown:
            return None
        except Exception as error:
            let_through(error)
            return error.with_traceback(None)

    # ---- what is picked of traced arrays

    def _picked(self, name: str, x: Any, *args: Any, **kwargs: Any) -> Any:
        """Some of an array's entries: which, is drawn."""
        if not x.ndim:
            return self.number(name, x, *args, **kwargs)
        self._check(name, x, args, kwargs)
        axis = kwargs.pop("axis", 0)
        if name == "permutation" and args:
            axis = args[0]
        size = x.shape[axis]
        given = args if name == "choice" else ()
        return np.take(x, self.number(name, size, *given, **kwargs), axis=axis)

    def _shuffled(self, x: Any, axis: int = 0) -> None:
        if not isinstance(x, Tracer) or is_made(x):
            raise _Plain
        self._check("shuffle", x, (), {"axis": axis} if axis else {})
        if x.size:  # else NumPy draws nothing
            x[...] = np.take(x, self.number("permutation", x.shape[axis]), axis=axis)

    def _check(self, name: str, x: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """NumPy's own errors, which those of an array of zeros are."""
        zeros = np.zeros(x.shape)
        named = {key: _plain(value) for key, value in kwargs.items()}
        method = getattr(_like(self.generator), name)
        method(zeros[()] if x._is_scalar() else zeros, *map(_plain, args), **named)


class _Own(Calls):
    """Those of a generator that the program has made."""

    def number(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        """What a draw of plain parameters gives, a constant."""
        given = {key: _plain(x) for key, x in kwargs.items()}
        return getattr(self.generator, name)(*map(_plain, args), **given)


def _like(generator: Any) -> Any:
    """Another generator of this kind, for NumPy's own errors."""
    found = getattr(generator, "bit_generator", None)
    return np.random.RandomState(0) if found is None else type(generator)(type(found)(0))


def _traced(x: Any) -> list[Tracer]:
    """The traced values in nested lists."""
    if isinstance(x, (list, tuple)):
        return [found for part in x for found in _traced(part)]
    return [x] if isinstance(x, Tracer) and not is_made(x) else []


def _is_traced(x: Any) -> bool:
    return bool(_traced(x))


def _is_list(x: Any) -> bool:
    return type(x) in (list, tuple) and _is_traced(x)


def _plain(x: Any) -> Any:
    """An argument of a draw; traced integers are guarded."""
    if isinstance(x, Tracer):
        if not x._is_scalar() or is_made(x):
            return np.array(x.__array__())
        return int(x) if x._weak else x.dtype.type(int(x))
    if type(x) in (list, tuple):
        return type(x)(map(_plain, x))
    return x.copy() if isinstance(x, np.ndarray) else x


def _valued(x: Any) -> Any:
    """The value of a parameter at this call."""
    if isinstance(x, Tracer):
        value = x._read()[1]
        if value is None:
            raise _Unknown
        return np.asarray(value).item() if x._weak else np.array(value)[()]
    return type(x)(map(_valued, x)) if type(x) in (list, tuple) else x


def _real(x: Any) -> Any:
    """A parameter, as NumPy computes with it."""
    if isinstance(x, Tracer):
        return x if x._weak or x.dtype == np.float64 else x.astype(np.float64)
    return x if type(x) in (int, float) else np.asarray(x, float)[()]


_LARGE = 2**62
_REQUIRED = object()


class _Form(NamedTuple):
    """How numbers with parameters come of standard ones: `formula(z, *parameters)`, without those
    that are `held`, which the draw itself takes."""

    parameters: tuple[tuple[str, Any], ...]
    standard: str
    formula: Callable[..., Any]
    positive: tuple[str, ...] = ()
    given: Callable[..., Sequence[Any]] = lambda held, moved: ()
    held: tuple[str, ...] = ()


def _at_zero_and_one(held: Any, moved: Any) -> tuple[float, float]:
    return 0.0, 1.0


def _shifted(z: Any, loc: Any, scale: Any) -> Any:
    return loc + scale * z


def _exponential(z: Any, mu: Any, sigma: Any) -> Any:
    """What `math.exp` gives of it: a number of Python's."""
    x = mu + z * sigma
    if np.shape(x):
        float(np.ones(np.shape(x)))  # NumPy's own error, where it makes one of it
    return dispatch.number(np.exp(_real(x)))


_LOCATED = (("loc", 0.0), ("scale", 1.0))
_SCALED = (("scale", 1.0),)
_A = (("a", _REQUIRED),)

_NUMPYS: dict[str, _Form] = {
    "normal": _Form(_LOCATED, "standard_normal", _shifted, ("scale",)),
    **{
        name: _Form(_LOCATED, name, _shifted, ("scale",), _at_zero_and_one)
        for name in ("laplace", "logistic", "gumbel")
    },
    "uniform": _Form(
        (("low", 0.0), ("high", 1.0)), "random", lambda z, low, high: low + (high - low) * z
    ),
    "exponential": _Form(_SCALED, "standard_exponential", lambda z, s: s * z, ("scale",)),
    "rayleigh": _Form(_SCALED, "rayleigh", lambda z, s: s * z, ("scale",), lambda h, m: (1.0,)),
    "lognormal": _Form(
        (("mean", 0.0), ("sigma", 1.0)),
        "standard_normal",
        lambda z, mean, sigma: np.exp(mean + sigma * z),
        ("sigma",),
    ),
    "gamma": _Form(
        (("shape", _REQUIRED), *_SCALED),
        "standard_gamma",
        lambda z, s: s * z,
        ("scale",),
        lambda held, moved: held,
        ("shape",),
    ),
    "weibull": _Form(_A, "standard_exponential", lambda z, a: z ** (1 / a), ("a",)),
    "pareto": _Form(_A, "standard_exponential", lambda z, a: np.expm1(z / a), ("a",)),
    "power": _Form(_A, "standard_exponential", lambda z, a: (-np.expm1(-z)) ** (1 / a), ("a",)),
    "multivariate_normal": _Form(
        (("mean", _REQUIRED), ("cov", _REQUIRED)),
        "multivariate_normal",
        lambda z, mean: mean + z,
        given=lambda held, moved: (np.zeros(np.shape(moved[0])), held[0]),
        held=("cov",),
    ),
}

_PYTHONS: dict[str, _Form] = {
    **{
        name: _Form((("mu", 0.0), ("sigma", 1.0)), name, _shifted, (), _at_zero_and_one)
        for name in ("gauss", "normalvariate")
    },
    "lognormvariate": _Form(
        (("mu", 0.0), ("sigma", 1.0)),
        "normalvariate",
        _exponential,
        (),
        _at_zero_and_one,
    ),
    "uniform": _Form(
        (("a", _REQUIRED), ("b", _REQUIRED)), "random", lambda z, a, b: a + (b - a) * z
    ),
    "expovariate": _Form(
        (("lambd", 1.0),), "expovariate", lambda z, lambd: z / lambd, (), lambda h, m: (1.0,)
    ),
}

# Their results are new arrays or numbers, which their arguments and the state decide.
_OF_NUMPYS = """
    beta binomial chisquare choice dirichlet exponential f gamma geometric gumbel hypergeometric
    integers laplace logistic lognormal logseries multinomial multivariate_hypergeometric
    multivariate_normal negative_binomial noncentral_chisquare noncentral_f normal pareto
    permutation permuted poisson power rand randint randn random random_integers random_sample
    ranf rayleigh sample standard_cauchy standard_exponential standard_gamma standard_normal
    standard_t tomaxint triangular uniform vonmises wald weibull zipf
"""
_OF_PYTHONS = """
    betavariate binomialvariate expovariate gammavariate gauss getrandbits lognormvariate
    normalvariate paretovariate randint random randrange triangular uniform vonmisesvariate
    weibullvariate
"""
_WITH_OUT = {  # their parameters
    "random": ("size", "dtype", "out"),
    "standard_normal": ("size", "dtype", "out"),
    "standard_exponential": ("size", "dtype", "method", "out"),
    "standard_gamma": ("shape", "size", "dtype", "out"),
}
# Of Python's, which give what is in a list or an array, or move it, and are written in Python.
_OF_LISTS = frozenset(["choice", "choices", "sample", "shuffle"])
_STATES = frozenset(["seed", "set_state", "setstate"])  # these give nothing


_FOLLOWED = {
    "numpy": frozenset([*_OF_NUMPYS.split(), *_STATES]),
    "random": frozenset([*_OF_PYTHONS.split(), *_STATES]),
}


def _followed(generator: Any) -> frozenset[str]:
    return _FOLLOWED[type(generator).__module__.partition(".")[0]]


def seed(x: Any) -> Any:
    """A seed of traced integers as a plain one, which is guarded; None for all else."""
    traced = [e for e in (x if type(x) in (list, tuple) else [x]) if _is_traced(e)]
    whole = all(isinstance(e, Tracer) and e.dtype.kind in "iu" for e in traced)
    return _plain(x) if traced and whole else None
