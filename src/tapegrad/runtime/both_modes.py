"""Checks of derivatives in both modes along random directions: `testing.check_rule`.

A function's tape is differentiated in each mode, which gives tapes of J t and J^T ct. Then <ct, J
t>, <J^T ct, t> and the differences along t are compared. For second order the same is done with
those tapes as the functions.

Names: `t` tangents, `ct` cotangents; `wrt` the inputs that are varied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tapegrad.backends.numpy.play import run
from tapegrad.core.request import Request
from tapegrad.core.trees import flatten, is_number, unflatten
from tapegrad.errors import ArgumentError, GradcheckError
from tapegrad.ir.tape import Tape
from tapegrad.pipeline import derive, derive_forward, settled
from tapegrad.runtime.traced import traced

MODES = ("forward", "reverse")


def check_rules(
    f: Callable[..., Any],
    args: Sequence[Any],
    modes: Sequence[str],
    order: int,
    eps: float,
    atol: float,
    rtol: float,
    seed: int,
) -> bool:
    """Implements `testing.check_rule`."""
    request = Request(f, args).check("check_rule")
    if not modes or not set(modes) <= set(MODES):
        raise ArgumentError(f'check_rule: modes are "forward" and "reverse", not {modes!r}')
    if order not in (1, 2):
        raise ArgumentError(f"check_rule: order is 1 or 2, not {order!r}")
    tape = traced(request, lambda found: found).bound_tape()
    values = request.inputs
    wrt = [k for k, x in enumerate(values) if np.asarray(x).dtype.kind in "fc"]
    if not wrt:
        raise ArgumentError(
            f"check_rule of {request.name}: none of the arguments is a float, a complex number or "
            "an array of such, so there is no derivative to check. Pass x.astype(float)"
        )
    tape = replace(tape, form=None)
    rng = np.random.default_rng(seed)
    _Check(request.name, tape, values, wrt, _plainly(request), modes, eps, atol, rtol, rng).run(
        order
    )
    return True


def _plainly(request: Request) -> Callable[[Sequence[Any]], list[Any]]:
    """The function itself, as a function of its inputs' values."""

    def call(values: Sequence[Any]) -> list[Any]:
        given = iter(values)
        inputs = [id(x) for x in request.inputs]
        leaves = [next(given) if id(x) in inputs else x for x in request.leaves]
        args, kwargs = unflatten(request.structure, leaves)
        found = flatten(request.f(*args, **kwargs))[0]
        return [x for x in found if isinstance(x, (np.ndarray, np.generic, float, complex, int))]

    return call


@dataclass
class _Check:
    """A function at a point: its tape, and `value`, the function in plain NumPy."""

    name: str
    tape: Tape
    inputs: Sequence[Any]
    wrt: Sequence[int]
    value: Callable[[Sequence[Any]], list[Any]]
    modes: Sequence[str]
    eps: float
    atol: float
    rtol: float
    rng: np.random.Generator

    def run(self, order: int) -> None:
        ts = [self._like(self.inputs[k]) for k in self.wrt]
        outs = _floats(self.value(self.inputs))
        cts = [self._like(x) for x in outs]
        given = iter(cts)
        seeds = [
            next(given) if x.dtype.kind in "fc" else np.zeros(x.shape, x.dtype)[()]
            for x in self.tape.outputs
        ]
        further: list[tuple[str, Tape, list[Any], list[int]]] = []
        found: dict[str, float] = {}
        sizes: list[float] = []
        first = len(self.inputs)
        for mode in self.modes:
            if mode == "forward":
                derived, along = derive_forward(self.tape, self.wrt), ts
                moved = _floats(_played(derived, self.name)([*self.inputs, *ts]))
                found[mode] = inner(cts, moved)
                sizes.append(inner(map(np.abs, cts), map(np.abs, moved)))
            else:
                derived, along = derive(self.tape, self.wrt, seed=True, keep=()), seeds
                pulled = _played(derived, self.name)([*self.inputs, *seeds])
                found[mode] = inner(pulled, ts)
                sizes.append(inner(map(np.abs, pulled), map(np.abs, ts)))
            places = [first + k for k, x in enumerate(along) if x.dtype.kind in "fc"]
            further.append((mode, derived, [*self.inputs, *along], [*self.wrt, *places]))
        self._compare(found, self._difference(ts, cts), outs, cts, max(sizes))
        for mode, derived, inputs, wrt in further if order > 1 else ():
            name = f"the {mode} mode of {self.name}"
            part = replace(derived, output_names=())
            value = _played(part, name)
            replace(self, name=name, tape=part, inputs=inputs, wrt=wrt, value=value).run(1)

    def _difference(self, ts: Sequence[Any], cts: Sequence[Any]) -> float:
        def moved(step: float) -> list[Any]:
            xs = list(self.inputs)
            for k, t in zip(self.wrt, ts, strict=True):
                x = np.asarray(xs[k]) + step * t
                xs[k] = x.item() if is_number(xs[k]) else x.astype(np.asarray(xs[k]).dtype)[()]
            return _floats(self.value(xs))

        return (inner(cts, moved(self.eps)) - inner(cts, moved(-self.eps))) / (2 * self.eps)

    def _compare(
        self,
        found: dict[str, float],
        expected: float,
        outs: Sequence[Any],
        cts: Sequence[Any],
        size: float,
    ) -> None:
        types = [np.asarray(x).dtype for x in (*outs, *[self.inputs[k] for k in self.wrt])]
        rounding = max(np.finfo(x).eps for x in types)
        # The rounding error of the values is divided by the step, too.
        noise = 8 * rounding / self.eps * inner(map(np.abs, cts), map(np.abs, outs))
        allowed = self.rtol * (size + abs(expected)) + noise
        allowed += self.atol * sum(float(np.sum(np.abs(ct))) for ct in cts)
        for mode, x in found.items():
            if not abs(x - expected) <= allowed:
                raise GradcheckError(
                    f"check_rule of {self.name}: along a random direction t, for a random "
                    f"cotangent ct, <ct, J t> is {x:.8g} in {mode} mode, and a central difference "
                    f"gives {expected:.8g}: off by {abs(x - expected):.3g}, where {allowed:.3g} is "
                    "allowed"
                )
        if len(found) == 2:
            pushed, pulled = found["forward"], found["reverse"]
            if not abs(pushed - pulled) <= 1e4 * rounding * size:
                raise GradcheckError(
                    f"check_rule of {self.name}: <ct, J t> is {pushed:.16g} in forward mode, and "
                    f"<J^T ct, t> is {pulled:.16g} in reverse mode. They are one number: one of "
                    "the rules is wrong by less than differences show, or isn't linear in t or ct"
                )

    def _like(self, x: Any) -> Any:
        """Random numbers with an array's type."""
        x = np.asarray(x)
        draw = self.rng.standard_normal(x.shape)
        if x.dtype.kind == "c":
            draw = draw + 1j * self.rng.standard_normal(x.shape)
        return np.asarray(draw).astype(x.dtype)[()]


def inner(xs: Iterable[Any], ys: Iterable[Any]) -> float:
    """The real part of the sum of products."""
    pairs = [(np.asarray(x), np.asarray(y)) for x, y in zip(xs, ys, strict=True)]
    return float(sum(np.sum(x.astype(np.result_type(x, float)) * y).real for x, y in pairs))


def _floats(values: Sequence[Any]) -> list[Any]:
    return [x for x in map(np.asarray, values) if x.dtype.kind in "fc"]


def _played(tape: Tape, name: str) -> Callable[[Sequence[Any]], list[Any]]:
    done = settled(tape)
    return lambda values: _play(done, values, name)


def _play(tape: Tape, values: Sequence[Any], name: str) -> list[Any]:
    """The results of a settled tape. Raises a GradcheckError if a guard fails: the tape follows the
    path of the traced values."""
    found, broken = run(tape, [*[np.asarray(x)[()] for x in values], *tape.captured])
    if broken is not None:
        raise GradcheckError(
            f"check_rule of {name}: it takes another path within a step of these arguments. Check "
            "it away from where it branches"
        )
    return found
