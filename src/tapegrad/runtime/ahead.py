"""Ahead-of-time tracing and compilation: tapes and machine code for calls that haven't been made.

The function is traced as for any call, except that arguments may be shapes without values (see
`tracing.recording.decisions`). The run has no lasting effect: its random draws and its writes
outside are undone, and there is no result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tapegrad.core.arrays import computed_in
from tapegrad.core.handlers import quiet
from tapegrad.core.request import Request
from tapegrad.core.shapes import ShapeDtype
from tapegrad.core.trees import flatten, is_of_texts, is_traced, unflatten
from tapegrad.core.values import Source
from tapegrad.errors import ArgumentError, UnsupportedError
from tapegrad.insight.explaining import Explanation, explanation
from tapegrad.ir.tape import Tape
from tapegrad.observe.guards.state import State
from tapegrad.runtime.retracing import fix_of, what_changed
from tapegrad.runtime.traced import is_inside, observed
from tapegrad.runtime.transformations import Jit
from tapegrad.tracing.recording.decisions import only
from tapegrad.tracing.runs.traced import Traced

if TYPE_CHECKING:
    from tapegrad.ir.plan import Plan
    from tapegrad.runtime.cache import Cache
    from tapegrad.runtime.variant import Variant

T = TypeVar("T")
GOLDEN = (5**0.5 - 1) / 2  # its multiples have distinct fractional parts
_WATCHED = {"raise", "call", "log"}  # settings of NumPy that handle floating-point errors visibly


def looked_at(
    root: Any, request: Request, make: Callable[[Traced], T], without: bool
) -> tuple[T, State]:
    """The result of `make` for the trace of a call, and the state that the trace depends on.

    All effects of the run are undone. `without` means that some values are missing; the values that
    stand in for them cause no warnings.
    """

    def run() -> tuple[T, State]:
        made, observer = observed(root, request, make, again=True)
        try:
            return made, State(observer.reads, root, request.args, request.kwargs)
        finally:
            observer.put_back()
            observer.forget()

    return (quiet(run) if without and not _WATCHED & {*np.geterr().values()} else run)()


def shape_of(x: Any) -> ShapeDtype | None:
    """The shape for which a leaf stands, or None if it is a value or anything else."""
    if isinstance(x, ShapeDtype):
        return x
    if (
        isinstance(x, type)
        or is_traced(x)
        or is_of_texts(x)
        or not (hasattr(x, "shape") and hasattr(x, "dtype"))
    ):
        return None
    try:
        return ShapeDtype(x.shape, x.dtype)
    except ArgumentError:
        return None


def with_stand_ins(tree: Any) -> tuple[Any, Sequence[Any] | None]:
    """The tree with values in place of shapes, and the leaves that had values before; None for
    these if there are no shapes."""
    leaves, structure = flatten(tree)
    shapes = [shape_of(x) for x in leaves]
    if not any(s is not None for s in shapes):
        return tree, None
    found = [x if s is None else _stand_in(s) for x, s in zip(leaves, shapes, strict=True)]
    given = [x for x, s in zip(leaves, shapes, strict=True) if s is None]
    return unflatten(structure, found), given


def _stand_in(of: ShapeDtype) -> Any:
    """A value of this shape: zeros for integers, which are valid indices of any array; distinct
    numbers between 0.5 and 1 for reals, where most functions are defined."""
    if computed_in(of.dtype).kind not in "fc":
        found = np.zeros(of.shape, of.dtype)
    else:
        fractions = np.modf(np.arange(1, of.size + 1) * GOLDEN)[0]
        found = (0.5 + fractions / 2).astype(of.dtype).reshape(of.shape)
    return found if of.shape else found[()]


class Lowered:
    """The lowered form of a derived function for arguments of some shapes and dtypes, or with some
    values, as returned by `lower`.

    `tape` is its computation, differentiated and optimised; `plan` is the tape as loops, and
    `source` the loops as Python. `compile()` makes the machine code, so that calls begin with it.
    """

    def __init__(self, derived: Any, request: Request, variant: Variant) -> None:
        self._derived, self._request, self._variant = derived, request, variant

    @property
    def tape(self) -> Tape:
        """The tape as it is compiled. Its inputs are the leaves of the arguments that are arrays
        and numbers, followed by the arrays that the function uses without being passed them."""
        return self._variant.finished

    @property
    def plan(self) -> Plan:
        """The tape as loops."""
        return plan_of(self.tape)

    @property
    def source(self) -> str:
        """The loops as Python source."""
        return source_of(self.tape)

    def compile(self) -> Any:
        """Wait for the machine code for these shapes, and return the derived function. The next
        call with such arguments uses the code, if it takes the same path through the function."""
        self._derived.take(self._request, self._variant)
        return self._derived

    def __repr__(self) -> str:
        return f"<{self._derived!r}, lowered>\n{self.tape}"


def plan_of(tape: Tape) -> Plan:
    """The plan of a tape."""
    from tapegrad.pipeline import at_its_best, schedule

    return schedule(at_its_best(tape)).plan


def source_of(tape: Tape) -> str:
    """These loops as Python."""
    from tapegrad import pipeline

    return pipeline.source_of(tape, settled=True)


def how(variant: Variant) -> str:
    """A description of how a variant answers calls."""
    state, tier = variant.state, variant.tier
    if state.never:
        return f"traced at each call. {what_changed(state.never, state)}"
    if variant.entry is not None:
        return f"by machine code{' from disk' * (tier.event == 'loads')}"
    return f"played by NumPy: {tier.why_played}"


def rows(variants: Sequence[Variant]) -> list[tuple[str, str, int]]:
    """For each variant: its arguments, how it answers calls, and the number of calls on its
    tape."""
    found = []
    for variant in variants:
        named = zip(variant.tape.names, variant.tape.free_inputs, strict=False)
        arguments = ", ".join([f"{name}: {var.aval}" for name, var in named])
        found.append((arguments or "no arrays", how(variant), len(variant.tape.calls)))
    return found


def explained(name: str, variant: Variant, cache: Cache) -> Explanation:
    """The explanation of the call that a variant answered."""
    variants = cache.all_variants()
    answered = f"variant {variants.index(variant) + 1} of {len(variants)}, {how(variant)}"
    return explanation(
        name,
        answered,
        variant.shown,
        list(cache.front.history),
        variant.entry is None,
        {src: first and first[0] for src, (*_, first) in variant.traced.begun.items()},
        partial(_why_unrolled, variant.traced),
    )


def _why_unrolled(
    traced: Traced, head: Source, inside: Callable[[Source], bool]
) -> tuple[int, str] | None:
    """How many rounds of a loop the trace has one after the other, and why."""
    from tapegrad.optimize.differences import Begun, unrolled

    met = {(src.file, src.line): src for src in traced.begun}
    src = met.get((head.file, head.line), head)
    begun = Begun(src.function, *traced.begun.get(src, ()))
    found = [unrolled(tape, inside, begun, fix_of) for tape in _tapes(traced.tape)]
    return max(filter(None, found), default=None)


def _tapes(tape: Tape) -> Iterator[Tape]:
    """A tape, and those in it."""
    yield tape
    for call in tape.calls:
        for body in call.primitive.tapes:
            yield from _tapes(body)


def shown(name: str, variant: Variant) -> str:
    """A variant's tape, plan and source as text."""
    tape = variant.shown
    parts = [f"{name}, {how(variant)}", tape]
    try:
        parts += [plan_of(tape), source_of(tape)]
    except UnsupportedError as error:
        parts.append(f"not compiled: {error}")
    return "\n\n".join(map(str, parts))


def result_shapes(f: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The result of a call, with shapes in place of arrays and numbers."""
    if not callable(f):
        raise ArgumentError(f"eval_shape needs a function, not {f!r}")
    (args, kwargs), given = with_stand_ins((tuple(args), kwargs))
    request = Request(f, args, kwargs).check("eval_shape")
    plain = Jit()

    def make(traced: Traced) -> Any:
        derivation = plain.derive(traced, plain.select(request), final=False)
        kept = plain.halves(derivation, ())
        found = zip(derivation.tape.outputs, kept, strict=True)
        return derivation.assemble([ShapeDtype(x.shape, half or x.dtype) for x, half in found])

    if is_inside(request):
        from tapegrad.pipeline import trace

        return make(trace(request, idle=True))
    with only(given):
        return looked_at(f, request, make, without=given is not None)[0]
