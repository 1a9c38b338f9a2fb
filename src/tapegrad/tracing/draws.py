"""Random numbers that a traced program draws: inputs of the tape, which each call draws anew.

A call of a generator's method is made as it stands, and what it gives becomes an input. A later
call of the gradient finds the generator where the program found it, makes the same calls in the
same order, and so leaves it where plain NumPy would have. If it then turns out that the tape isn't
the right one for these numbers, the generator's state is put back, and the next tape draws.

A parameter that is traced isn't part of the draw: numbers of the standard distribution are drawn,
as NumPy does it, and made what they should be on the tape (Kingma and Welling, 2014, Auto-Encoding
Variational Bayes: the derivative of a location and a scale). Where numbers jump with the parameter,
or are accepted and rejected by it, there is no such derivative, and the draw is refused.

What can't be an input, such as a list that is shuffled, stays what it is; such a program is traced
at each call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from tapegrad.ir.inputs import renumbered
from tapegrad.ir.tape import Aval, Call, Tape, Var
from tapegrad.primitives.scatter import Stack
from tapegrad.tracing import randomness
from tapegrad.tracing.dispatch import dispatch
from tapegrad.tracing.made import is_made, is_traceable
from tapegrad.tracing.observe.effects import Stopped
from tapegrad.tracing.observe.notes import Notes
from tapegrad.tracing.observe.observer import unobserved
from tapegrad.tracing.trace import Trace, traces_under_way
from tapegrad.tracing.tracer import Tracer, stand_in


class _Plain(Exception):
    """What this draws can't be an input."""


@dataclass(frozen=True, eq=False)
class Drawn:
    """A draw: the call `method(*args, **kwargs)` of a generator, and the input that it gave, if it
    gives one."""

    generator: Any
    method: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    value: np.ndarray | None

    def again(self, generator: Any) -> Any:
        return getattr(generator, self.method)(*self.args, **self.kwargs)


# ---- while a program is traced


@unobserved
def draw(
    observer: Notes, generator: Any, method: Callable[..., Any], /, *args: Any, **kwargs: Any
) -> Any:
    """What a call of a generator's method, which the user's program makes, gives."""
    given = args[1:] if args and args[0] is generator else args
    name = method.__name__
    traces = traces_under_way()
    if not traces or traces[0] is not observer.trace:  # in a rule, say
        observer.before_draw(generator)
        observer.reads.lost(type(generator).__name__)
        return method(*args, **kwargs)
    refused = [t for t in traces if t.repeats and not t.in_frame]
    if refused:
        raise traces[0].refused(randomness.drawn_once(refused[0].label, generator))
    if observer.apart is not None:
        raise Stopped
    if observer.effects is not None:
        observer.effects.count += 1
    calls = _Calls(observer, traces[0], generator)
    try:
        return calls.made(name, given, kwargs)
    except _Plain:
        observer.before_draw(generator)
        observer.reads.lost(type(generator).__name__)
        return method(*args, **kwargs)


class _Calls:
    """Calls of one generator's methods in a trace."""

    def __init__(self, observer: Notes, trace: Trace, generator: Any) -> None:
        self.observer, self.trace, self.generator = observer, trace, generator

    def made(self, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        python = not type(self.generator).__module__.startswith("numpy")
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
        found = getattr(self.generator, name)(*given, **named)
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
        aval = Aval(value.shape, value.dtype, weak=weak)
        var = self.trace.builder.fresh(aval)
        self.trace.captured[id(value)] = var, value
        return stand_in(
            self.trace, var, value if isinstance(found, np.ndarray) else value[()], weak
        )

    def _note(self, name: str, args: Any, kwargs: Any, value: Any) -> None:
        self.observer.drawn.append(Drawn(self.generator, name, args, kwargs, value))

    # ---- traced parameters

    def _of_standard(self, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        python = not type(self.generator).__module__.startswith("numpy")
        form = (_PYTHONS if python else _NUMPYS).get(name)
        if (
            form is None
            and name in _followed(self.generator)
            and all(x.dtype.kind in "iub" for x in (*args, *kwargs.values()) if _is_traced(x))
        ):
            return self.number(name, *args, **kwargs)  # how many, and of how many, is guarded
        if form is None:
            raise self.trace.refused(randomness.no_derivative(self.trace.label, name))
        names = [key for key, _ in form.parameters]
        given = dict(form.parameters) | dict(zip(names, args, strict=False))
        size = args[len(names)] if len(args) > len(names) else kwargs.get("size")
        given |= {key: x for key, x in kwargs.items() if key in names}
        rest = {k: x for k, x in kwargs.items() if k not in names and k != "size"}
        for key in names:
            if given[key] is _REQUIRED:
                raise TypeError(f"{name}() missing required argument {key!r}")
        held = {key: given[key] for key in form.held}
        if any(map(_is_traced, held.values())):
            raise self.trace.refused(randomness.no_derivative(self.trace.label, name))
        moved = [_real(given[key]) for key in names if key not in held]
        for key in form.positive:
            if np.any(np.signbit(given[key])):
                raise ValueError(f"{key} < 0")
        if not python and name != "multivariate_normal":
            shapes = [np.shape(x) for x in given.values()]
            shape = np.broadcast_shapes(*shapes)
            rest["size"] = size if size is not None or not shape else shape
        elif size is not None:
            rest["size"] = size
        z = self.number(form.standard, *form.given(list(held.values()), moved), **rest)
        return form.formula(z, *moved)

    # ---- what is picked of traced arrays

    def _picked(self, name: str, x: Any, *args: Any, **kwargs: Any) -> Any:
        """Some of an array's entries: which, is drawn."""
        if not x.ndim:
            return self.number(name, x, *args, **kwargs)
        legacy = not hasattr(self.generator, "bit_generator")
        axis = kwargs.pop("axis", 0)
        if name == "permutation" and args:
            axis = args[0]
        if legacy and name == "choice" and x.ndim != 1:
            raise ValueError("a must be 1-dimensional")
        size = x.shape[axis]
        given = args if name == "choice" else ()
        return np.take(x, self.number(name, size, *given, **kwargs), axis=axis)

    def _shuffled(self, x: Any, axis: int = 0) -> None:
        if not isinstance(x, Tracer) or is_made(x):
            raise _Plain
        x[...] = np.take(x, self.number("permutation", x.shape[axis]), axis=axis)


def _like(generator: Any) -> Any:
    """Another generator of this kind, for NumPy's own errors."""
    return type(generator)(type(generator.bit_generator)(0))


def _is_traced(x: Any) -> bool:
    if isinstance(x, (list, tuple)):
        return any(map(_is_traced, x))
    return isinstance(x, Tracer) and not is_made(x)


def _plain(x: Any) -> Any:
    """An argument of a draw; traced integers are guarded."""
    if isinstance(x, Tracer):
        return int(x) if x._is_scalar() and not is_made(x) else np.array(x.__array__())
    if type(x) in (list, tuple):
        return type(x)(map(_plain, x))
    return x.copy() if isinstance(x, np.ndarray) else x


def _real(x: Any) -> Any:
    """A parameter, as NumPy computes with it."""
    if isinstance(x, Tracer):
        return x if x._weak or x.dtype == np.float64 else x.astype(np.float64)
    return np.asarray(x, float)[()] if isinstance(x, (np.ndarray, np.generic)) else x


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
        lambda z, mu, sigma: np.exp(mu + sigma * z),
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
_OF_LISTS = frozenset(["choice", "choices", "sample"])  # of Python's, which give what is in them
_STATES = frozenset(["seed", "set_state", "setstate"])  # these give nothing


_FOLLOWED = {
    "numpy": frozenset([*_OF_NUMPYS.split(), *_STATES]),
    "random": frozenset([*_OF_PYTHONS.split(), *_STATES]),
}


def _followed(generator: Any) -> frozenset[str]:
    return _FOLLOWED[type(generator).__module__.partition(".")[0]]


def _seed(x: Any) -> Any:
    """A seed of traced integers as a plain one, which is guarded; None for all else."""
    traced = [e for e in (x if type(x) in (list, tuple) else [x]) if _is_traced(e)]
    whole = all(isinstance(e, Tracer) and e.dtype.kind in "iu" for e in traced)
    return _plain(x) if traced and whole else None


dispatch.draw, dispatch.seed = draw, _seed


# ---- at later calls


class Taken:
    """What was drawn: values by the positions of captured inputs. Where the context is left before
    it is known that they are wanted, they weren't drawn after all: the states before are put back.
    """

    __slots__ = ("_states", "values")
    nothing: Taken

    def __init__(self, states: Sequence[tuple[Any, Any]], values: dict[int, Any]) -> None:
        self._states, self.values = states, values

    def __enter__(self) -> Taken:
        return self

    def keep(self) -> None:
        self._states = ()

    def __exit__(self, *exc: object) -> None:
        for generator, state in self._states:
            randomness.put_back(generator, state)

    def among(self, captured: Sequence[Any]) -> Sequence[Any]:
        """The values of the captured inputs."""
        if not self.values:
            return captured
        return [self.values.get(k, x) for k, x in enumerate(captured)]


Taken.nothing = Taken((), {})


def _input(x: Any) -> Any:
    """A number that was drawn, as a tape is played with it."""
    return x if isinstance(x, np.ndarray) and x.ndim else np.asarray(x)[()]


def joined(
    tape: Tape, captured: Sequence[Any], drawn: Sequence[Drawn]
) -> tuple[Tape, tuple[Any, ...], Mapping[int, tuple[int, int | None]]]:
    """The tape with one input for draws that a loop reads in turn, and the values of its last
    inputs. For draws, by the ids of what they gave: the number of the captured input that holds it,
    and where in that; None if it is that."""
    first = len(tape.inputs) - len(captured)
    values = {id(d.value): d.value for d in drawn if d.value is not None}
    inputs = zip(tape.inputs[first:], captured, strict=True)
    own: dict[Any, Any] = {var: value for var, value in inputs if id(value) in values}
    uses = Counter(x for call in tape.calls for x in call.operands if x in own)
    uses.update(x for x in (*tape.outputs, *[g.operand for g in tape.guards]) if x in own)
    calls: list[Call] = []
    further: list[tuple[Var, np.ndarray]] = []
    where: dict[int, tuple[int, int | None]] = {}
    gone: set[Any] = set()
    for call in tape.calls:
        xs = call.operands
        once = isinstance(call.primitive, Stack) and call.primitive.axis == 0
        if not once or not all(x in own and uses[x] == 1 for x in xs):
            calls.append(call)
            continue
        gone.update(xs)
        where.update({id(own[x]): (len(further), k) for k, x in enumerate(xs)})
        further.append((call.out, np.stack([own[x] for x in xs])))
    kept = [k for k, var in enumerate(tape.inputs) if var not in gone]
    rest = [captured[k - first] for k in kept if k >= first]
    found = {key: (len(rest) + n, row) for key, (n, row) in where.items()}
    found.update({id(x): (k, None) for k, x in enumerate(rest) if id(x) in values})
    tape = replace(
        tape,
        calls=tuple(calls),
        inputs=(*[tape.inputs[k] for k in kept], *[var for var, _ in further]),
        names=(*[tape.names[k] for k in kept], *[f"d{k}s" for k in range(len(further))]),
    )
    return renumbered(tape), (*rest, *[value for _, value in further]), found


class Draws:
    """The draws of a tape, in order. `inputs` says where among the captured inputs what they give
    goes, None for what nothing reads; `whole` are the shapes and dtypes of those that hold several.
    `sources` number the generators."""

    def __init__(
        self,
        drawn: Sequence[Drawn],
        captured: Sequence[Any],
        where: Mapping[int, tuple[int, int | None]],
    ) -> None:
        self.drawn = drawn
        self.inputs = [None if d.value is None else where.get(id(d.value)) for d in drawn]
        several = {at[0] for at in self.inputs if at is not None and at[1] is not None}
        self.whole = {k: (captured[k].shape, captured[k].dtype) for k in several}
        self.generators = list({id(d.generator): d.generator for d in drawn}.values())
        order = {id(g): k for k, g in enumerate(self.generators)}
        self.sources = [order[id(d.generator)] for d in drawn]

    def first(self, captured: Sequence[Any]) -> Taken:
        """What the trace itself has drawn."""
        return Taken((), {at[0]: _input(captured[at[0]]) for at in self.inputs if at is not None})

    @property
    def numbers(self) -> set[int]:
        """The numbers of the captured inputs that are drawn."""
        return {at[0] for at in self.inputs if at is not None}

    def take(self, *generators: Any) -> Taken:
        """Draw from generators that stand in the places of `generators`."""
        states = [(g, randomness.state_of(g)) for g in generators]
        found: dict[int, Any] = {k: np.empty(*of) for k, of in self.whole.items()}
        for drawn, source, at in zip(self.drawn, self.sources, self.inputs, strict=True):
            value = drawn.again(generators[source])
            if at is None:
                continue
            number, row = at
            if row is None:
                found[number] = _input(value)
            else:
                found[number][row] = value
        return Taken(states, found)
