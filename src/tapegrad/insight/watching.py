"""Each value of a call, passed to a hook when it is computed: the origin of the first NaN.

%8 = log(%3) : f8[3]   # model.py:12    -->    a Finding: the value, its operands, the line,
                                               the rounds of the loops around it
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tapegrad.backends.numpy.play import stale
from tapegrad.backends.numpy.rounds import Broken
from tapegrad.backends.numpy.source import statement_of
from tapegrad.core.arrays import plain
from tapegrad.core.values import Source, same_bits
from tapegrad.errors import NotFiniteError
from tapegrad.insight.undecided import other_answer
from tapegrad.ir.tape import Call, Guard, Literal, Operand, Tape, Var
from tapegrad.ir.text import show_call

Rounds = tuple[tuple[Source | None, int], ...]


@dataclass(frozen=True, eq=False)
class Finding:
    """A value that a call of a tape has just computed.

    value, operands : numbers, and read-only arrays.
    call, src : the line of the `tape`, and the line of the program.
    rounds : the loops around the call, each with the number of its round, the outermost first.
    is_cotangent : whether the value belongs to the reverse pass.
    read : for an intermediate value of a derivative's rule, the values from outside the rule that
        it read.
    """

    call: Call
    tape: Tape
    value: Any
    operands: tuple[Any, ...]
    rounds: Rounds
    read: tuple[tuple[Call, Any], ...] = ()

    @property
    def src(self) -> Source | None:
        return self.call.src

    @property
    def is_cotangent(self) -> bool:
        return self.call.is_cotangent

    @property
    def is_finite(self) -> bool:
        """Whether no element is NaN or infinite."""
        return _bad(self.value) == 0

    @property
    def has_nan(self) -> bool:
        """Whether an element is NaN."""
        x = np.asarray(self.value)
        return x.dtype.kind in "fc" and bool(np.isnan(x).any())

    def has_big(self, limit: float = 1e6) -> bool:
        """Whether the magnitude of an element exceeds a limit; infinite elements count."""
        x = np.asarray(self.value)
        return x.dtype.kind in "iufc" and bool((np.abs(x.astype(complex)) > limit).any())

    @property
    def generated(self) -> list[str]:
        """The statement of this call in the tape's NumPy source, `tape.numpy_source`."""
        return statement_of(self.tape, self.call)

    def to_dot(self) -> str:
        """The tape in Graphviz's language, with this call in red, and the [minimum, maximum] of its
        value."""
        from tapegrad.ir.graph import to_dot

        return to_dot(self.tape, {self.call.outs: _bounds(self.value)})

    def show(self) -> str:
        """Open the drawing of `to_dot` in the browser, made by Graphviz's `dot`. If that isn't
        installed, the page shows the tape as text, with the call in red. Returns the file's path.
        """
        from tapegrad.insight.drawing import opened

        return opened(self.to_dot(), str(self), str(self.tape), show_call(self.call))

    def __str__(self) -> str:
        what = "a cotangent" if self.is_cotangent else "a value"
        where = f" at {self.src.quoted}" if self.src is not None else ""
        inside = f" in a derivative's rule ({self.call.reason})" if self.read else ""
        name = self.call.primitive.name
        rows = [f"{name}{inside} gave {what}, {_summary(self.value)}{where}"]
        rows += [
            f"  in round {number}" + (f" of the loop at {src}" if src is not None else "")
            for src, number in reversed(self.rounds)
        ]
        rows.append(f"  tape: {show_call(self.call)}")
        rows += [f"  generated: {line}" for line in self.generated]
        rows += [
            f"  {x}: {_summary(value)}"
            for x, value in zip(self.call.operands, self.operands, strict=True)
            if isinstance(x, Var)
        ]
        rows += [
            f"  the rule read what {call.primitive.name} gave: {_summary(value)}"
            for call, value in self.read
        ]
        return "\n".join(rows)


def _shown(x: Any) -> Any:
    """A read-only view of a value, for a hook: the tape still uses the array."""
    if isinstance(x, np.ndarray):
        x = x.view()
        x.flags.writeable = False
    return x


class Watch:
    """Plays tapes, and passes each value to a hook, except values that are only moved, and
    intermediate values of derivatives' rules. Without a hook it raises an error if an output is NaN
    or infinite.

    For each value that isn't finite it finds the origin, the first such value that it depends on:

        log(0) = -inf, -inf * 0 = nan        the origin of nan is the result of log
        log(0) = -inf, exp(-inf) = 0         0 is finite, and has none
    """

    def __init__(self, hook: Callable[[Finding], Any] | None, every: bool = False) -> None:
        """With `every`, the hook gets the value of every call."""
        self.hook, self.every = hook, every
        self._origins: list[Finding] = []  # in order of computation
        self._told = set[int]()  # ids of the rules' origins that the hook has been given
        self._left: Finding | None = None  # origin left by the last rounds of a loop
        self._of_outputs: Finding | None = None  # origin of a tape's outputs
        # Origin of the first NaN that decided a condition, and the condition's line
        self._decided: tuple[Finding, Source | None] | None = None

    def __call__(self, tape: Tape, values: Sequence[Any]) -> tuple[list[Any], Guard | None]:
        """The outputs, and the first guard that fails."""
        self._begin()
        try:
            outputs = self._run(tape, values, (), _of_program(tape), False, None)
        except Broken as inside:
            return [], inside.guard
        if self.hook is None and self._of_outputs is not None:
            raise NotFiniteError(
                f"the first value that is NaN or infinite and gets into a result or a gradient:\n"
                f"{self._of_outputs}\nIf that is intended, look at all values with your own hook "
                "instead: debug=lambda found: ...",
                self._of_outputs,
            )
        if self.hook is None and self._decided is not None:
            finding, src = self._decided
            where = f" at {src.quoted}" if src is not None else ""
            raise NotFiniteError(
                f"NaN decides a condition{where}. It comes from:\n{finding}\n"
                "Comparisons with NaN are False. If that is intended, test np.isnan(x) first, or "
                "look at all values with your own hook instead: debug=lambda found: ...",
                finding,
            )
        return outputs, None

    def _begin(self) -> None:
        """Forget the findings of an earlier call."""
        self._origins, self._told, self._left, self._decided = [], set(), None, None

    def _decides(self, x: Operand, others: dict[Any, Any], src: Source | None) -> None:
        """Record that a value decides what is computed, if NaN has decided the value."""
        if x in others and self._decided is None:
            self._decided = others[x][1], src

    def _run(
        self,
        tape: Tape,
        values: Sequence[Any],
        rounds: Rounds,
        own: set[Var],
        inside: bool,
        origin: Finding | None,
        until: bool = False,
    ) -> list[Any]:
        """The outputs of a tape.

        `own` are the program's values; `inside` says whether the tape is part of a forward loop.
        Inputs that aren't finite have this `origin`. With `until`, the last output is the condition
        that ends a loop.
        """
        env: dict[Var, Any] = dict(zip(tape.inputs, map(plain, values), strict=True))
        origins = {x: origin for x, value in env.items() if origin is not None and _bad(value)}
        others: dict[Any, Any] = {}  # condition --> (value with the other answers, origin)
        guards: dict[Operand, list[Guard]] = {}
        for guard in tape.guards:
            guards.setdefault(guard.operand, []).append(guard)
        inner = _inside_of_rules(tape, own, inside)

        def value_of(x: Operand) -> Any:
            return x.value if isinstance(x, Literal) else env[x]

        def check(x: Operand) -> None:
            for guard in guards.get(x, ()):
                if not same_bits(value_of(x), guard.expected):
                    raise Broken(guard)
                if guard.expected.dtype.kind == "b":  # not how many elements a mask selects
                    self._decides(x, others, guard.src)

        literals: list[Operand] = [x for x in guards if isinstance(x, Literal)]
        for known in (*literals, *tape.inputs):
            check(known)
        for call in tape.calls:
            xs = tuple(map(value_of, call.operands))
            loop: Any = call.primitive
            for head in loop.heads(call.operands) if loop.repeats else ():
                self._decides(head, others, call.src)
            found = self._computed(call, xs, rounds, own, origins)
            outs = found if isinstance(found, tuple) and len(call.outs) > 1 else (found,)
            for out, x in zip(call.outs, map(_alone, outs), strict=True):
                env[out] = x
                finding = Finding(call, tape, _shown(x), tuple(map(_shown, xs)), rounds)
                if _bad(x):
                    self._trace_back(finding, out, origins, env, inner)
                answers = {y: answer for y, (answer, _) in others.items()}
                if (other := other_answer(call, xs, x, answers)) is not None:
                    operands = [y for y in call.operands if isinstance(y, Var)]
                    from_others = [others[y][1] for y in operands if y in others]
                    from_values = [origins[y] for y in operands if y in origins]
                    others[out] = other, [*from_others, *from_values, finding][0]
                if self.hook and (self.every or (_is_new(call) and out not in inner)):
                    self.hook(finding)
                check(out)
        if until:
            self._decides(tape.outputs[-1], others, _source_of(tape, tape.outputs[-1]))
        behind = [origins[x] for x in tape.outputs if isinstance(x, Var) and x in origins]
        self._of_outputs = self._first(behind)
        self._left = self._of_outputs or self._left
        return [value_of(x) for x in tape.outputs]

    def _first(self, found: Sequence[Finding]) -> Finding | None:
        """The first of some origins; the program's own values come before cotangents."""
        known = [x for x in self._origins if any(x is y for y in found)]
        return min(known, key=lambda x: x.is_cotangent, default=None)

    def _trace_back(
        self,
        finding: Finding,
        out: Var,
        origins: dict[Var, Finding],
        env: dict[Var, Any],
        inner: set[Operand],
    ) -> None:
        """Record the origin of a value that isn't finite. A hook is given an intermediate value of
        a rule if values outside the rule depend on it."""
        call = finding.call
        known = [x for x in call.operands if isinstance(x, Var) and x in origins]
        origin: Finding | None
        there = [x for x in known if _meet(env[x], finding.value)]
        if call.primitive.tapes and self._left is not None:
            origin = self._left
        elif known:
            origin = self._first([origins[x] for x in there or known])
        elif _is_new(call):
            origin = replace(finding, read=_read_by(finding, env)) if out in inner else finding
            self._origins.append(origin)
        else:
            return
        assert origin is not None
        origins[out] = origin
        is_of_rule = bool(origin.read) and origin.call is not call and out not in inner
        if self.hook and not self.every and is_of_rule and id(origin) not in self._told:
            self._told.add(id(origin))
            self.hook(origin)

    def _computed(
        self,
        call: Call,
        xs: Sequence[Any],
        rounds: Rounds,
        own: set[Var],
        origins: dict[Var, Finding],
    ) -> Any:
        primitive: Any = call.primitive
        if not primitive.tapes:
            return primitive.for_types(*[x.aval for x in call.operands])(*xs)

        forward = [out in own for out in call.outs]
        behind = [origins[x] for x in call.operands if isinstance(x, Var) and x in origins]
        self._left = None

        def inside(tape: Tape, given: Sequence[Any], kept: Sequence[int] = ()) -> list[Any]:
            further = ((call.src, int(given[0])),) if primitive.repeats else ()
            is_forward = any(forward) and len(forward) == len(tape.outputs)
            outs = itertools.compress(tape.outputs, forward) if is_forward else tape.outputs
            origin = self._left or self._first(behind)
            places = (*rounds, *further)
            until = bool(primitive.repeats and primitive.until)
            return self._run(tape, given, places, _behind(tape, outs), is_forward, origin, until)

        return primitive.played(inside, *xs)


def _source_of(tape: Tape, x: Operand) -> Source | None:
    """The line that computes a value."""
    return next((call.src for call in tape.calls if x in call.outs), None)


def _meet(x: Any, out: Any) -> bool:
    """Whether some element is not finite in both arrays."""
    try:
        return bool(np.any(~np.isfinite(x) & ~np.isfinite(out)))
    except ValueError:  # the shapes don't broadcast
        return False


def _read_by(root: Finding, env: dict[Var, Any]) -> tuple[tuple[Call, Any], ...]:
    """The values from outside a rule that the rule read to compute a value."""
    made = {out: call for call in root.tape.calls for out in call.outs if out in env}

    def is_of_rule(x: Var) -> bool:
        return (made[x].reason, made[x].src) == (root.call.reason, root.call.src)

    waiting, seen = [*root.call.operands], set[Operand]()
    while waiting:
        x = waiting.pop()
        if isinstance(x, Var) and x in made and x not in seen:
            seen.add(x)
            waiting += made[x].operands if is_of_rule(x) else ()
    return tuple([(made[x], _shown(env[x])) for x in env if x in seen and not is_of_rule(x)])


def _of_program(tape: Tape) -> set[Var]:
    """The values that the function's own results depend on: all but those of the gradient alone."""
    made = {out for call in tape.calls if not call.is_cotangent for out in call.outs}
    return _behind(tape, made.intersection(tape.outputs))


def _behind(tape: Tape, outputs: Iterable[Operand]) -> set[Var]:
    """The variables on which these depend, including themselves."""
    found = {x for x in outputs if isinstance(x, Var)}
    for call in reversed(tape.calls):
        if not found.isdisjoint(call.outs):
            found |= {x for x in call.operands if isinstance(x, Var)}
    return found


def _inside_of_rules(tape: Tape, own: set[Var], inside: bool) -> set[Operand]:
    """The intermediate values of derivatives' rules, where a rule may mask infinities and NaN.

        where(ct == 0, 0, ct / x)     --> the quotient is one of them, the result of `where` isn't

    For the program's `own` values only its own calls count as readers, since the rules of an outer
    derivative read all of them. In a forward loop (`inside`), values kept for reverse mode are no
    cotangents yet.
    """
    rules: dict[Operand, Any] = {
        out: (call.reason, call.src) for call in tape.calls if call.reason for out in call.outs
    }
    left = {
        x
        for call in tape.calls
        for x in call.operands
        if x in rules and rules[x] != (call.reason, call.src)
        if x not in own or not own.isdisjoint(call.outs)
    }
    seen = left | set(tape.outputs)
    return rules.keys() - (seen & own if inside else seen)


ROUNDS_SHOWN = 3  # rounds of a loop that are printed


def print_calls(tape: Tape, values: Sequence[Any]) -> list[Any]:
    """The outputs of a tape; prints each call with its value, and the first rounds of each loop."""

    shown: list[Any] = [None]  # the last printed line, since a call may have several values

    def show(found: Finding) -> None:
        if all(number < ROUNDS_SHOWN for _, number in found.rounds):
            place, shown[0] = shown[0], (found.call, found.rounds)
            if place == shown[0]:
                print(f"{'  ' * len(found.rounds)}    {_summary(found.value)}")
                return
            where = "".join(f"round {number}: " for _, number in found.rounds)
            note = "  ".join(filter(None, [str(found.src or ""), found.call.reason]))
            print(
                f"{'  ' * len(found.rounds)}{where}{show_call(found.call)}  # {note}".rstrip(" #")
            )
            print(f"{'  ' * len(found.rounds)}    {_summary(found.value)}")

    outputs, broken = Watch(show, every=True)(tape, values)
    if broken is not None:
        raise stale(tape, broken)
    return outputs


def _bounds(x: Any) -> str:
    """[minimum, maximum] of the finite elements, and the numbers of the others."""
    x = np.asarray(x)
    good = np.abs(x[np.isfinite(x)]) if x.dtype.kind == "c" else x[np.isfinite(x)]
    bounds = f"[{good.min():.4g}, {good.max():.4g}]" if good.size else "[]"
    nans, infinite = int(np.isnan(x).sum()), int(np.isinf(x).sum())
    odd = [f"{count} {word}" for count, word in ((nans, "NaN"), (infinite, "infinite")) if count]
    return ", ".join([bounds, *odd])


def _alone(x: Any) -> Any:
    return x[0] if isinstance(x, tuple) else x


def _is_new(call: Call) -> bool:
    """Whether a call computes numbers, instead of moving them or allocating an array."""
    primitive: Any = call.primitive
    moves = primitive.memory.unset or primitive.memory.updates or primitive.memory.is_view
    return not (moves or primitive.tapes or (primitive.foreign and primitive.checks))


def _bad(x: Any) -> int:
    """The number of elements that are NaN or infinite."""
    return int(np.count_nonzero(~np.isfinite(x))) if np.asarray(x).dtype.kind in "fc" else 0


def _summary(x: Any) -> str:
    """A value in one line: the range of its elements, and the numbers of NaN and infinities."""
    x = np.asarray(x)
    if not x.shape:
        return f"{x[()]}"
    if x.dtype.kind not in "fc" or not x.size:
        return f"an array of {x.dtype} with the shape {x.shape}"
    good = np.abs(x[np.isfinite(x)]) if x.dtype.kind == "c" else x[np.isfinite(x)]
    bounds = f"from {good.min():.4g} to {good.max():.4g}" if good.size else "nothing finite"
    nans, infinite = int(np.isnan(x).sum()), int(np.isinf(x).sum())
    odd = [f"{count} {word}" for count, word in ((nans, "NaN"), (infinite, "infinite")) if count]
    first = f", the first at {tuple(map(int, np.argwhere(~np.isfinite(x))[0]))}" if odd else ""
    tail = f"; {', '.join(odd)} of {x.size}{first}" if odd else ""
    return f"{x.dtype} of the shape {x.shape}, {bounds}{tail}"
