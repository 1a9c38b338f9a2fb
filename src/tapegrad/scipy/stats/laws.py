"""Distributions of one variable: formulas of the standard form, and the effects of location,
scale, support and invalid parameters.

A law is declared once, by formulas in z = (x - loc) / scale and its shape parameters. The rest is
the same for all laws, as in SciPy's `rv_continuous` and `rv_discrete`:

- Outside of the support the density is 0. There the formula is evaluated at a point within the
  support, so that its slope is finite, and its value isn't chosen: the derivative is 0, never NaN.
- Parameters outside their domain make z NaN, and so the result, as in SciPy.
- z and the parameters are float64, as in SciPy.

A formula uses NumPy's functions and ufuncs of scipy.special, which work on traced values and on
plain numbers. Its constants are computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.special as sc
from scipy import stats

from tapegrad.errors import UnsupportedError
from tapegrad.extending import at_line, held_in, read, refusal
from tapegrad.extending.arrays import Tracer, as_tracer, dispatch
from tapegrad.extending.runs import following
from tapegrad.scipy.callbacks import Callback, values_of
from tapegrad.scipy.optimize.elementwise import Each
from tapegrad.scipy.optimize.roots import ending
from tapegrad.scipy.recomputed import constant
from tapegrad.scipy.solver_calls import SolverCall
from tapegrad.scipy.stats.others import ADVICE, domain_of, formulas_of, moments_of
from tapegrad.scipy.stats.sums import terms

Formula = Callable[..., Any]


@dataclass(frozen=True)
class Law:
    """The standard form of a distribution.

    A formula takes z or a probability first, then the shape parameters. Some formulas that are
    None are derived from others, as in SciPy.

    Parameters
    ----------
    logpdf, pdf, cdf, sf, logcdf, logsf : formulas of z and the shapes; for a discrete distribution
        `logpdf` and `pdf` are the mass function.
    ppf, isf : formulas of a probability and the shapes.
    mean, var, skew, kurtosis, entropy : formulas of the shapes. Default: SciPy's own.
    valid, support : functions of the shapes: whether they are in their domain, and the ends of the
        support. Default: SciPy's own.
    within : a function of the shapes: a point of the support where the formulas are smooth.
    open : whether the density's support excludes its ends.
    finite : whether the formulas are wrong for infinite z.
    inside : whether the formulas of probabilities are wrong at the ends of the support, even where
        the density's formula is right.
    even : whether -X has the same law: a formula of one side then serves the other side.
    """

    name: str
    logpdf: Formula | None = None
    pdf: Formula | None = None
    cdf: Formula | None = None
    sf: Formula | None = None
    logcdf: Formula | None = None
    logsf: Formula | None = None
    ppf: Formula | None = None
    isf: Formula | None = None
    mean: Formula | None = None
    var: Formula | None = None
    skew: Formula | None = None
    kurtosis: Formula | None = None
    entropy: Formula | None = None
    valid: Formula | None = None
    support: Formula | None = None
    within: Formula | None = None
    open: bool = False
    finite: bool = False
    inside: bool = False
    even: bool = False
    discrete: bool = False
    ends: tuple[float, float] = (-np.inf, np.inf)
    dist: Any = None  # SciPy's, or the user's

    def has(self, *names: str) -> bool:
        return all(getattr(self, name) is not None for name in names)


_laws: dict[Any, Law] = {}  # by `_key`


def _key(dist: Any) -> Any:
    """The key of a distribution in the table: its class alone isn't enough, since several
    distributions may be instances of one class."""
    return type(dist), float(dist.a), float(dist.b), np.isnan(dist.badvalue)


def law(name: str, *own: str, **formulas: Any) -> None:
    """Declare the formulas of SciPy's distribution `name`, if this version of SciPy has it. The
    methods named in `own` keep the formulas of SciPy's class."""
    dist = getattr(stats, name, None)
    if dist is not None:
        said = moments_of(dist, formulas) | domain_of(dist)
        said |= {x: lambda *xs, x=x: formulas_of(dist)[x](*xs) for x in own}
        _laws[_key(dist)] = _law(dist, name, said | formulas)


def _law(dist: Any, name: str, formulas: dict[str, Any]) -> Law:
    discrete, ends = isinstance(dist, stats.rv_discrete), (float(dist.a), float(dist.b))
    return Law(name, discrete=discrete, ends=ends, dist=dist, **formulas)


def laws() -> list[Law]:
    return list(_laws.values())


def law_of(dist: Any, method: str) -> Law:
    """The law of a distribution: from the table, or made of the methods of its own class."""
    found = _laws.get(_key(dist))
    if found is not None:
        return found
    formulas = formulas_of(dist)
    if not formulas.keys() & {"logpdf", "pdf", "cdf"}:
        raise refusal(f"{method} of {dist.name} can't be traced{at_line()}. {ADVICE}")
    return _law(dist, dist.name, formulas)


def is_known(dist: Any) -> bool:
    """Whether a distribution is one of SciPy's that are in the table."""
    return _key(dist) in _laws


def parameters_of(frozen: Any) -> tuple[list[Any], dict[str, Any], Callable[[Any], Any]]:
    """`(args, kwds, done)` of a frozen distribution, which may be another object of the same law
    at each call. Pass the result through `done` once it is known which arrays became inputs."""
    dist, here = frozen.dist, following.observer
    read(frozen, "dist", "args", "kwds")
    if is_known(dist):
        read(dist, "a", "b", "badvalue", "shapes")
    elif here is not None:
        here.reads.pin(dist)
        here.kind(dist)  # its methods may be the user's
    args, noted = held_in(frozen.args)
    kwds, noted_too = held_in(frozen.kwds)
    named = dict(zip(frozen.kwds, kwds, strict=True))
    return args, named, lambda found: noted_too(noted(found))


# ---- operands


def prepared(*xs: Any) -> list[Any]:
    """Operands in float64, as SciPy computes with them. Lists and arrays become tracers, since
    their elements may change between calls; plain numbers stay plain."""
    given = [dispatch.as_operand(x) if isinstance(x, (list, tuple)) else x for x in xs]
    return [_float(x, given) for x in given]


def _float(x: Any, others: Sequence[Any]) -> Any:
    if isinstance(x, (int, float, np.number, np.bool_)) and not isinstance(x, Tracer):
        return float(x)
    x = as_tracer(x, *others)
    if x.dtype.kind == "c":
        raise TypeError(f"a distribution is of real numbers{at_line()}, not complex ones")
    x = x if x.dtype == np.float64 else x.astype(np.float64)
    return np.positive(x) if x._weak else x  # SciPy returns NumPy scalars


def varies(condition: Any) -> bool:
    """Whether a condition is traced or has elements, such as a comparison of a plain array."""
    return isinstance(condition, Tracer) or np.ndim(condition) > 0


def both(*conditions: Any) -> Any:
    """Whether all conditions hold; a plain bool if no traced value is needed to know it."""
    return _joined(conditions, np.logical_and, True)


def either(*conditions: Any) -> Any:
    """Whether one of the conditions holds; a plain bool if no traced value is needed to know it."""
    return _joined(conditions, np.logical_or, False)


def _joined(conditions: Sequence[Any], join: Any, found: Any) -> Any:
    of_none = found
    for each in conditions:
        if varies(each):
            found = each if found is of_none else join(found, each)
        elif bool(each) is not of_none:
            return not of_none
    return found


def choose(condition: Any, x: Any, y: Any) -> Any:
    """np.where, or a plain choice if the condition is plain."""
    if varies(condition):
        return np.where(condition, x, y)
    return x if condition else y


def _is_plain(x: Any, value: float) -> bool:
    return not isinstance(x, Tracer) and bool(np.all(x == value))


class Located:
    """A law with its shapes, a location and a scale. It has the methods of SciPy's
    distributions."""

    def __init__(self, of: Law, shapes: Sequence[Any], loc: Any, scale: Any) -> None:
        self.law, self.shapes = of, shapes
        self.valid = both(*([of.valid(*shapes)] if of.valid else [x > 0 for x in shapes]))
        self.fine = both(self.valid, scale > 0, loc == loc)
        # A parameter outside its domain makes the scale NaN if that is traced, otherwise z.
        scales = isinstance(scale, Tracer)
        self.known: Any = True if scales else self.valid
        proper = both(self.valid, scale > 0) if scales else scale > 0
        self.loc, self.scale = loc, choose(proper, scale, np.nan)
        ends: tuple[Any, Any] = of.support(*shapes) if of.support else of.ends
        self.low, self.high = ends

    def _refused(self, method: str) -> UnsupportedError:
        return UnsupportedError(
            f"{method} of scipy.stats.{self.law.name} has no formula that can be traced"
            f"{at_line()}. Call it in a function that is declared with tapegrad.primitive, and "
            "give its derivative with defvjp"
        )

    def _apply(self, name: str, *xs: Any) -> Any:
        formula = getattr(self.law, name)
        found = None if formula is None else formula(*xs, *self.shapes)
        if found is None:
            raise self._refused(name)
        return found

    # ---- along the axis

    def _standard(self, x: Any) -> Any:
        z = x if _is_plain(self.loc, 0.0) else x - self.loc
        z = choose(self.known, z, np.nan)
        return z if _is_plain(self.scale, 1.0) else z / self.scale

    def _beyond(self, z: Any, closed: bool) -> tuple[Any, Any]:
        """Where z is below the support, and where it is above. The ends are outside unless
        `closed`."""
        below: Any = False
        above: Any = False
        if not _is_plain(self.low, -np.inf):
            below = z < self.low if closed else z <= self.low
        if not _is_plain(self.high, np.inf):
            above = z > self.high if closed else z >= self.high
        if self.law.finite:
            return either(below, z == -np.inf), either(above, z == np.inf)
        return below, above

    def _inner(self) -> Any:
        """A point within the support."""
        if self.law.within is not None:
            return self.law.within(*self.shapes)
        low = np.maximum(self.low, np.minimum(self.high, 1.0) - 2.0)
        return (low + np.minimum(self.high, low + 2.0)) / 2

    def _moved(self, z: Any, outside: Any) -> Any:
        return z if outside is False else choose(outside, self._inner(), z)

    def _density(self, x: Any, name: str, nothing: float) -> Any:
        z = self._standard(x)
        below, above = self._beyond(z, closed=not self.law.open)
        outside = either(below, above)
        if self.law.discrete:
            whole = np.floor(z)
            outside = either(outside, whole != z)
            outside = both(outside, z == z)
            z = whole
        said: Any = {} if self.known is True else {"divide": "ignore", "invalid": "ignore"}
        with np.errstate(**said):  # SciPy doesn't warn of shapes outside their domain
            found = getattr(self, f"_{name}")(self._moved(z, outside))
        return choose(outside, nothing, found)

    def _logpdf(self, z: Any) -> Any:
        found = (
            self.law.logpdf(z, *self.shapes) if self.law.logpdf else np.log(self._apply("pdf", z))
        )
        found = self._doubted(found)
        return found if _is_plain(self.scale, 1.0) else found - np.log(self.scale)

    def _pdf(self, z: Any) -> Any:
        found = self.law.pdf(z, *self.shapes) if self.law.pdf else np.exp(self._apply("logpdf", z))
        found = self._doubted(found)
        return found if _is_plain(self.scale, 1.0) else found / self.scale

    def _doubted(self, found: Any) -> Any:
        """NaN where shapes are outside their domain. A NaN in z isn't enough: nan ** 0 is 1."""
        return found if self.known is True else found - choose(self.known, 0.0, np.nan)

    def logpdf(self, x: Any) -> Any:
        return self._density(x, "logpdf", -np.inf)

    def pdf(self, x: Any) -> Any:
        return self._density(x, "pdf", 0.0)

    logpmf, pmf = logpdf, pdf

    def _probability(self, x: Any, name: str, first: float, last: float) -> Any:
        z = self._standard(x)
        if self.law.discrete:
            z = np.floor(z)
            below, above = self._beyond(z, closed=True)
            above = either(above, z >= self.high)
            moved = self._moved(z, either(below, above))
        else:
            below, above = self._beyond(z, closed=False)
            # If the formula allows it, it is evaluated at the same points as the density: a model
            # that uses both then shares common subexpressions. A logarithm that is infinite at an
            # end has no slope there.
            infinite = (first == -np.inf and below is not False) or (
                last == -np.inf and above is not False
            )
            shares = not (infinite or self.law.inside) and self.law.has(name)
            beyond = self._beyond(z, closed=not self.law.open) if shares else (below, above)
            moved = self._moved(z, either(*beyond))
        found = self._doubted(getattr(self, f"_{name}")(moved))
        return choose(below, first, choose(above, last, found))

    def _cdf(self, z: Any) -> Any:
        return self._apply("cdf", z)

    def _sf(self, z: Any) -> Any:
        if self.law.sf:
            return self.law.sf(z, *self.shapes)
        return self._cdf(-z) if self.law.even else 1.0 - self._cdf(z)

    def _logcdf(self, z: Any) -> Any:
        if self.law.logcdf:
            return self.law.logcdf(z, *self.shapes)
        return self._log(self._cdf(z), self._sf, z)

    def _logsf(self, z: Any) -> Any:
        if self.law.logsf:
            return self.law.logsf(z, *self.shapes)
        if self.law.even and self.law.logcdf:
            return self._logcdf(-z)
        return self._log(self._sf(z), self._cdf, z)

    def _log(self, side: Any, other: Callable[[Any], Any], z: Any) -> Any:
        """The logarithm of a probability. From the median on it is log1p(-other), as in SciPy,
        since the logarithm of a probability near 1 loses its digits."""
        if self.law.discrete:
            return np.log(side)
        less = side < 0.5
        rest = np.log1p(-choose(less, 0.5, other(z)))
        return choose(less, np.log(choose(less, side, 0.5)), rest)

    def cdf(self, x: Any) -> Any:
        return self._probability(x, "cdf", 0.0, 1.0)

    def sf(self, x: Any) -> Any:
        return self._probability(x, "sf", 1.0, 0.0)

    def logcdf(self, x: Any) -> Any:
        return self._probability(x, "logcdf", -np.inf, 0.0)

    def logsf(self, x: Any) -> Any:
        return self._probability(x, "logsf", 0.0, -np.inf)

    # ---- quantiles

    def ppf(self, q: Any) -> Any:
        low, high = self._ends()
        return self._quantile(q, self._lower, low, high)

    def isf(self, q: Any) -> Any:
        low, high = self._ends()
        return self._quantile(q, self._upper, high, low)

    def _lower(self, p: Any) -> Any:
        return self._apply("ppf", p) if self.law.ppf else self._inverse("ppf", self._cdf, p)

    def _upper(self, p: Any) -> Any:
        if self.law.isf:
            return self._apply("isf", p)
        if self.law.even:
            return -self._lower(p)
        if self.law.ppf:
            return self._apply("ppf", 1.0 - p)
        return self._inverse("isf", self._sf, p)

    def _inverse(self, name: str, side: Callable[[Any], Any], p: Any) -> Any:
        """The z with side(z) = p. SciPy finds it; dz = (dp - side_shapes dshapes) / side_z."""
        original = getattr(self.law.dist, name)
        given = [p, *self.shapes]
        if self.law.discrete:  # piecewise constant
            return constant(f"{self.law.name}.{name}", original, *given)
        if self.law.cdf is None:
            raise self._refused(name)
        if not any(isinstance(x, Tracer) for x in given):
            return original(*given)
        shape = np.broadcast_shapes(*map(np.shape, given))
        p = np.broadcast_to(as_tracer(p, *given), shape)
        start = np.asarray(original(*values_of(given)), float)[()]
        watched = Callback(lambda z: side(z) - p, [start])

        def solver(fs: Any, values: Any) -> Any:
            return np.asarray(original(*values), float)[()], ending(True)

        outside = SolverCall(name, solver, [watched], given)
        rule = outside.rule(lambda equations, z: equations.value(0, z))
        (found,) = outside.record(Each(rule.tape, rule.further, rule.lead))
        return found

    def _ends(self) -> tuple[Any, Any]:
        below = 1.0 if self.law.discrete else 0.0
        return self._end(self.low, below), self._end(self.high)

    def _end(self, z: Any, less: float = 0.0) -> Any:
        """An end of the support, located and scaled. An infinite end doesn't depend on the
        parameters."""
        if not isinstance(z, Tracer) and np.isinf(z):
            return choose(self.fine, z, np.nan)
        z = z - less if less else z
        if isinstance(z, Tracer):
            finite = np.isfinite(z)
            moved = np.where(finite, np.where(finite, z, 0.0) * self.scale + self.loc, z)
            return choose(self.fine, moved, np.nan)
        return choose(self.fine, z * self.scale + self.loc, np.nan)

    def _quantile(self, q: Any, of: Callable[[Any], Any], first: Any, last: Any) -> Any:
        if not isinstance(q, Tracer):
            inside: Any = 0 < q < 1
            edge = first if q == 0 else last if q == 1 else np.nan
            return self._placed(of(q)) if inside else edge
        inside = np.logical_and(q > 0, q < 1)
        found = self._placed(of(np.where(inside, q, 0.5)))
        edge = np.where(np.equal(q, 0), first, np.where(np.equal(q, 1), last, np.nan))
        return np.where(inside, found, edge)

    def _placed(self, z: Any) -> Any:
        z = z if _is_plain(self.scale, 1.0) else z * self.scale
        return choose(self.fine, z + self.loc, np.nan)

    def median(self) -> Any:
        return self.ppf(0.5)

    def interval(self, confidence: Any) -> tuple[Any, Any]:
        if not np.all(np.logical_and(confidence >= 0, confidence <= 1)):
            raise ValueError("alpha must be between 0 and 1 inclusive")
        return self.ppf((1.0 - confidence) / 2), self.ppf((1.0 + confidence) / 2)

    def support(self) -> tuple[Any, Any]:
        return self._end(self.low), self._end(self.high)

    # ---- moments

    def mean(self) -> Any:
        return self._placed(self._apply("mean"))

    def var(self) -> Any:
        return choose(self.fine, self._apply("var") * (self.scale * self.scale), np.nan)

    def std(self) -> Any:
        return np.sqrt(self.var())

    def entropy(self) -> Any:
        found = self.law.entropy(*self.shapes) if self.law.entropy else None
        if found is None and self.law.discrete:
            return np.sum(sc.entr(self._pdf(terms(self))))
        found = self._apply("entropy") if found is None else found
        found = found if _is_plain(self.scale, 1.0) else found + np.log(self.scale)
        return choose(self.fine, found, np.nan)

    def stats(self, moments: str = "mv") -> Any:
        found: list[Any] = []
        for letter, of in (("m", self.mean), ("v", self.var)):
            if letter in moments:
                found.append(of())
        for letter, name in (("s", "skew"), ("k", "kurtosis")):
            if letter in moments:
                found.append(choose(self.fine, self._apply(name), np.nan))
        return found[0] if len(found) == 1 else tuple(found)

    def moment(self, order: int) -> Any:
        """The moment about 0, by the binomial formula from the moments of the standard form."""
        if order == 0:
            return choose(self.fine, 1.0, np.nan)
        if order == 1:
            return self.mean()
        if order == 2:
            mean = self.mean()
            return self.var() + mean * mean
        if order > 4:
            raise self._refused(f"moment(order={order})")
        mean, var = self.mean(), self.var()
        third = choose(self.fine, self._apply("skew"), np.nan) * var**1.5
        if order == 3:
            return third + 3.0 * mean * var + mean**3
        fourth = (choose(self.fine, self._apply("kurtosis"), np.nan) + 3.0) * (var * var)
        return fourth + 4.0 * mean * third + 6.0 * mean * mean * var + mean**4
