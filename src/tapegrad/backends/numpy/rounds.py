"""Loops as Python functions: a loop of the tape and the loops in it, or a tape that runs often.

    def loop(rounds, c0, i0, i1):
        for t0 in range(min(int(rounds), 50)):
            v5 = c0 * i0
            v6 = i1[0 + t0]
            v7 = tanh(v6)
            c0 = v5 + v7
        return c0

A round takes no longer than its NumPy calls: values are local variables, functions and constants
are globals, and operators replace NumPy's functions where both do the same. Scalars of type
float64 are Python floats, whose operators return the same bits in a sixth of the time; the
function's arguments and results are NumPy's. A scalar that is read once has no line of its own.
`Loop.played` defines what a loop computes, step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import cache, lru_cache, partial
from typing import Any

import numpy as np

from tapegrad.backends.numpy.elements import (
    MIN_ROUNDS,
    Elements,
    is_view,
    left_in_elements,
    read_in_elements,
    writes_fixed,
)
from tapegrad.backends.numpy.lines import INDENT, Names
from tapegrad.backends.numpy.lives import (
    SMALL_BYTES,
    added_places,
    box_of,
    is_ufunc,
    kept,
    nan_masks,
    reads,
    summed_places,
    written_over,
)
from tapegrad.backends.numpy.numbers import FLOAT, FLOATS, INTEGER, as_number, as_numpys
from tapegrad.backends.numpy.unmasked import unmasked
from tapegrad.ir.memory import last_uses
from tapegrad.ir.tape import Aval, Call, Guard, Literal, Operand, Tape, Var
from tapegrad.ir.updates import InPlace, in_place, kept_in_place
from tapegrad.primitives.base import Elementwise
from tapegrad.primitives.control import Applied
from tapegrad.primitives.kinds import Moving, Repeated, StaticIndex
from tapegrad.primitives.texts import box_text

DEEPEST = 12  # the deepest nest of loops; Python allows 20
LONGEST = 5000  # lines of a function, beyond which tapes aren't inlined: compiling takes time


class Broken(Exception):
    """A guard of the tape of a call doesn't hold. It is caught where that call is played."""

    def __init__(self, guard: Guard) -> None:
        self.guard = guard


def copied(function: Callable[..., Any], *xs: Any) -> Any:
    """A copy of a view, which is read after its array was overwritten."""
    return np.array(function(*xs))[()]


def repeat(loop: Repeated, own: Collection[int], run: Callable[..., list[Any]]) -> Any:
    """The function of a loop's operands, cached on its body. `run` plays the tapes of other calls.
    The function may overwrite the loop-carried values numbered in `own`."""
    key = (loop.carried, loop.most, loop.backwards, loop.until, loop.later, tuple(sorted(own)))
    made = vars(loop.body).setdefault("_loops", {})
    function = made.get(key)
    if function is None:
        function = made[key] = _Text(run).function(loop, own)
    return function


def whole(
    tape: Tape, run: Callable[..., list[Any]], own: bool = False
) -> Callable[..., tuple[Any, ...]]:
    """A tape as a Python function of its inputs, which it doesn't write to. With `own`, each result
    is row-major and shares its memory with nothing else."""
    quick = unmasked(tape)
    exact = cache(lambda: _Text(run).straight(tape, own))
    if quick is None or quick.failed:
        return exact()
    bare = _Text(run).straight(quick.tape, own)

    def played(*xs: Any) -> tuple[Any, ...]:
        results: Any = None if quick.failed else bare(*xs)
        if results is not None and quick.holds(results):
            return results
        results = None  # free their memory
        return exact()(*xs)

    return played


def often(tape: Tape, run: Callable[..., list[Any]], last: int) -> Callable[..., Any]:
    """A tape as a function of its `last` inputs, which stay the same for many calls. That returns a
    function of the other inputs, whose results share no memory. Short arrays are in elements."""
    return _Text(run).bound(tape, last)


def _kind(x: Operand) -> tuple[tuple[int, ...], np.dtype]:
    return x.aval.shape, x.dtype


_code = lru_cache(maxsize=256)(compile)  # traces of one function mostly have the same loops


class _Text(Elements):
    """Writes the source of one function."""

    def __init__(self, run: Callable[..., list[Any]]) -> None:
        super().__init__(run)
        self.known["Broken"] = Broken

    def function(self, loop: Repeated, own: Collection[int]) -> Any:
        heads = [self._fresh("n") for _ in range(1 + loop.until + loop.later)]
        given = [self._given(x) for x in loop.body.inputs[1:]]
        outs = [self._fresh("v") for _ in range(int(loop.results))]
        found = self._loop(loop, heads, [(x, None) for x in given], outs, own, 1)
        for k, elements in found.items():
            outs[k] = self._packed(elements, loop.body.outputs[k].aval, 1)
        kinds = [x.aval for x in loop.body.outputs]  # with `until`, the last is whether it goes on
        counts = [
            *kinds[: loop.carried],
            *([Aval((), np.dtype(np.int64)), kinds[-1]] if loop.until else []),
        ]
        left = list(map(as_numpys, outs, counts))
        return self._made([*heads, *given], ", ".join(left), loop.body.name)

    def straight(self, tape: Tape, own: bool) -> Any:
        given = [self._given(x) for x in tape.inputs]
        names = Names(zip(tape.inputs, given, strict=True))
        return self._made(given, self._results(tape, given, names, own, 1), tape.name)

    def bound(self, tape: Tape, last: int) -> Any:
        self.apart = True
        first = len(tape.inputs) - last
        names, called = Names(), self._fresh("f")
        names.wanted = read_in_elements(tape)
        given: list[list[str]] = []
        for depth, inputs in ((1, tape.inputs[first:]), (2, tape.inputs[:first])):
            head = len(self.lines)
            given.append([self._given(x, depth) for x in inputs])
            names.update(zip(inputs, given[-1], strict=True))
            self._hoisted(inputs, names, depth)
        self.lines.insert(head, f"{INDENT}def {called}({', '.join(given[-1])}):")
        results = self._results(tape, [x for xs in given for x in xs], names, True, 2)
        self._line(2, f"return {results}")
        return self._made(given[0], called, tape.name)

    def _results(
        self, tape: Tape, given: Sequence[str], names: Names, own: bool, depth: int
    ) -> str:
        """The expressions of a tape's results, after the lines of its calls."""
        self._body(tape, "", names, (), depth)
        outs = self._left(tape, names, depth)
        outs = self._own(tape, given, outs, depth) if own else outs
        outs = [as_numpys(name, x.aval) for name, x in zip(outs, tape.outputs, strict=True)]
        return "".join(f"{x}, " for x in outs) or "()"

    def _made(self, given: Sequence[str], results: str, name: str) -> Any:
        """Compile the lines written so far, as a function of the parameters `given`."""
        text = "\n".join(
            [f"def made({', '.join(given)}):", *self.lines, f"{INDENT}return {results}"]
        )
        # The file name is one of tapegrad's, so that searches for the user's frames skip it.
        exec(_code(text, f"{__file__}: {name}", "exec"), self.known)
        return self.known.pop("made")  # or the function would be in its own globals, a cycle

    def _given(self, x: Var, depth: int = 1) -> str:
        """The name of a new parameter."""
        name = self._fresh("c")
        if not x.shape:
            self._line(depth, f"{name} = {as_number(name, x.aval)}")
        return name

    # ---- loops

    def _loop(
        self,
        loop: Repeated,
        heads: Sequence[str],
        given: Sequence[tuple[str, list[str] | None]],
        outs: Sequence[str],
        own: Collection[int],
        depth: int,
    ) -> dict[int, list[str]]:
        """Write a loop. `given` are the names and elements of its operands, `outs` the names that
        its results get. Returns the elements of the results that it leaves in elements."""
        body, count = loop.body, loop.carried
        stays = kept_in_place(body, 1, count)
        outside, self.apart = self.apart, self.apart or loop.most >= MIN_ROUNDS
        split = left_in_elements(body, count, stays) if self.apart else []
        names, found = Names(), {}
        targets: list[str] = []
        start: list[str] = []
        for k, (x, (name, elements)) in enumerate(zip(body.inputs[1:], given, strict=True)):
            if k in split:
                found[k] = names.elements[x] = [self._fresh("v") for _ in range(x.aval.size)]
                targets += found[k]
                start += elements or self._unpacked(name, x.shape, depth)
            elif k < count:
                names[x] = outs[k]
                targets.append(outs[k])
                name = self._numpys(name) if name else self._packed(elements or (), x.aval, depth)
                is_copied = k in stays and k not in own and x.shape
                start.append(f"array({name})" if is_copied else name)
            else:
                names.update({x: name} if name else {})
                names.elements.update({x: elements} if elements else {})
        if self.apart:
            names.wanted = read_in_elements(body)
            self._hoisted(body.inputs[1 + count :], names, depth)
        if targets:
            self._line(depth, f"{', '.join(targets)} = {', '.join(start)}")
        if loop.most > 1:
            self._in_front(body, count, names, depth)
        step = self._fresh("t")
        self.most[step] = loop.most
        rounds = f"min(int({heads[0]}), {loop.most})"
        if loop.until:
            made, more = outs[count:]
            targets.append(more)
            last = self._fresh("n")
            self._line(depth, f"{last}, {step}, {more} = {rounds}, 0, {heads[1]}")
            self._line(depth, f"while {more} and {step} < {last}:")
        elif loop.most == 1 and not loop.later:
            self._line(depth, f"{step} = 0")
            self._line(depth, f"if {heads[0]} > 0:")
        else:
            first = f"int({heads[1]})" if loop.later else "0"
            steps = f"{rounds} - 1, {first} - 1, -1" if loop.backwards else f"{first}, {rounds}"
            self._line(depth, f"for {step} in range({steps}):")
        self._body(body, step, names, [1 + k for k in stays], depth + 1)
        left = self._left(body, names, depth + 1, split)
        moved = [(a, b) for a, b in zip(targets, left, strict=True) if a != b]
        if moved:
            news, olds = zip(*moved, strict=True)
            self._line(depth + 1, f"{', '.join(news)} = {', '.join(olds)}")
        if loop.until:
            self._line(depth + 1, f"{step} += 1")
            self._line(depth, f"{made} = int64({step})")
        elif not moved:
            self._line(depth + 1, "pass")
        self.apart = outside
        return found

    def _in_front(self, body: Tape, count: int, names: Names, depth: int) -> None:
        """Write the views of loop-invariant arrays before the loop."""
        fixed: set[Operand] = {*body.inputs[1 + count :]}
        guarded = {guard.operand for guard in body.guards}
        calls: list[Call] = []
        for call in body.calls:
            is_fixed = all(isinstance(x, Literal) or x in fixed for x in call.operands)
            if is_fixed and is_view(call) and call.outs[0] not in guarded:
                calls.append(call)
                fixed.update(call.outs)
        if calls:
            outs = tuple([call.outs[0] for call in calls])
            front = replace(body, calls=tuple(calls), outputs=outs, guards=())
            self._body(front, "", names, (), depth)

    def _left(self, tape: Tape, names: Names, depth: int, split: Collection[int] = ()) -> list[str]:
        """The expressions of the outputs, and for those numbered in `split` of their elements."""
        found: list[str] = []
        for k, x in enumerate(tape.outputs):
            if k in split:
                found += names.elements.get(x) or self._unpacked(names[x], x.aval.shape, depth)
            else:
                self._whole([x], names, depth)
                found.append(self._numpys(self._name(x, names)))
        return found

    def _body(self, tape: Tape, step: str, names: Names, own: Sequence[int], depth: int) -> None:
        """Write the calls of a round, or with an empty `step` those of a tape."""
        dead = last_uses(tape)
        over = written_over(tape, dead)
        writes = in_place(tape, own)
        taken = set(over.values())
        variables = {out.id: out for call in tape.calls for out in call.outs}
        if step:
            names[tape.inputs[0]] = step
            self.steps.add(step)
        guards: dict[Operand, list[Guard]] = {}
        for guard in tape.guards:
            guards.setdefault(guard.operand, []).append(guard)
        known: list[Operand] = [x for x in guards if isinstance(x, Literal)]
        for x in (*known, *tape.inputs):
            self._check(guards.get(x, ()), names, depth)
        held = {*names.values()}  # the names of inputs, hoisted values and outputs
        left = {*tape.outputs}
        uses = reads(tape)
        sums = summed_places(tape, uses)
        standing = nan_masks(tape, uses)
        adding = [k for k in writes.updates if not (self.apart and writes_fixed(tape.calls[k]))]
        parts = added_places(tape, uses, adding)
        totals: dict[int, str] = {}
        for position, call in enumerate(tape.calls):
            if call.outs[0] in names:
                continue
            if position in standing:
                pair = standing[position]
                elements = self._masked(pair, names, depth) if pair is not None else None
                if elements is not None:
                    names.elements[call.outs[0]] = elements
                elif pair is not None and not pair[1].aval.shape:
                    ct, e = [self._atom(x, names, depth) for x in pair]
                    zero = self._name(call.operands[1], names)
                    text = f"({e} if {e} == {e} or {ct} != {zero} else {zero})"
                    names[call.outs[0]] = self._kept(text, uses[call.outs[0]] == 1, depth)
                    self._check(guards.get(call.outs[0], ()), names, depth)
                elif pair is not None:
                    self._whole(pair, names, depth)
                    text = ", ".join([self._name(x, names) for x in pair])
                    names[call.outs[0]] = self._assigned(f"{self._global(kept)}({text})", depth)
                continue
            if self.apart and call.outs[0] not in parts:
                of_sum = sums.get(position)
                elements = self._spread(call, names, uses, depth, of_sum)
                if elements is not None:
                    if call.outs[0].shape:
                        names.elements[call.outs[0]] = elements
                    else:
                        (names[call.outs[0]],) = elements
                        self._check(guards.get(call.outs[0], ()), names, depth)
                    continue
            number = self._number(call, names, depth)
            outs = [self._fresh("v") for _ in call.outs] if not number else []
            place = names[variables[over[position]]] if position in over else ""
            if number:
                outs = [self._kept(number, uses[call.outs[0]] == 1, depth)]
            elif position in sums:
                outs = [self._added(call, totals, sums[position], names, depth)]
                held.update(outs)
            elif call.outs[0] in parts:
                outs = [self._name(call.operands[0], names)]
            elif position in writes.updates and call.outs[0].aval.shape:
                outs = self._update(call, names, depth, parts.get(call.operands[1]))
                held.difference_update(outs)
            elif call.primitive.repeats and 1 < depth < DEEPEST:
                loop: Any = call.primitive
                heads = [self._atom(x, names, depth) for x in loop.heads(call.operands)]
                given = [self._said(x, names, depth) for x in loop.given(call.operands)]
                mine = writes.loops.get(position, ())
                found = self._loop(loop, heads, given, outs, mine, depth)
                for k, elements in found.items():
                    names.elements[call.outs[k]] = elements
                    packed = "" if self.apart else self._packed(elements, call.outs[k].aval, depth)
                    outs[k] = packed
            elif isinstance(call.primitive, Applied) and len(self.lines) < LONGEST:
                outs = self._applied(call, names, depth)
            elif self._filled(call, outs[0], names, depth):
                pass
            else:
                self._whole(call.operands, names, depth)
                value = self._value(call, names, place, (position, writes), depth)
                comma = "," if len(outs) == 1 and call.primitive.results != 1 else ""
                if value in self.steps:
                    outs = [value]
                else:
                    self._line(depth, f"{', '.join(outs)}{comma} = {value}")
                for name, x in zip(outs, call.outs, strict=True):
                    if len(outs) > 1 and not x.shape:
                        self._line(depth, f"{name} = {as_number(name, x.aval)}")
            names.update((x, name) for x, name in zip(call.outs, outs, strict=True) if name)
            held.update([name for x, name in zip(call.outs, outs, strict=True) if x in left])
            for out in call.outs:
                self._check(guards.get(out, ()), names, depth)
            gone = [
                variables[k]
                for k in dead.get(position, ())
                if k in variables and k not in taken and variables[k].aval.nbytes > SMALL_BYTES
            ]
            for x in gone:
                if x in names and names[x] not in held and x not in parts:  # a scalar
                    self._line(depth, f"{names[x]} = None")

    def _added(
        self, call: Call, totals: dict[int, str], first: int, names: Names, depth: int
    ) -> str:
        """The name of a sum of parts. If `call` makes a part, write its addition to the sum."""
        if first not in totals:
            totals[first] = self._fresh("v")
            self._full(totals[first], call, 0, depth)
        box = box_of(call)
        if box is not None:
            self._whole(call.operands, names, depth)
            at = f"{totals[first]}{box_text(box)}"
            self._line(depth, f"{at} += {self._name(call.operands[0], names)}")
        return totals[first]

    def _applied(self, call: Call, names: Names, depth: int) -> list[str]:
        """Write the calls of a tape in the place of the call that runs it. Results get names of
        their own: an operand may be returned as it is, or a number."""
        tape: Tape = call.primitive.tapes[0]
        inner = Names()
        for x, y in zip(tape.inputs, call.operands, strict=True):
            name, elements = self._said(y, names, depth)
            inner.update({x: name} if name else {})
            inner.elements.update({x: elements} if elements else {})
        inner.wanted = read_in_elements(tape) if self.apart else set()
        given = set(inner.values())
        self._body(tape, "", inner, (), depth)
        outs: list[str] = []
        for result, out in zip(tape.outputs, call.outs, strict=True):
            apart = inner.elements.get(result)
            if apart is not None:
                names.elements[out] = apart
            is_whole = apart is None or result in inner
            name = self._numpys(self._name(result, inner)) if is_whole else ""
            if name in given or (name and name in outs) or name in self.known:
                name = self._assigned(name, depth)
            outs.append(name)
        return outs

    # ---- calls

    def _passed(self, call: Call, names: Names) -> list[str]:
        """The operands as a function's arguments. Python's integers are faster indices than
        NumPy's, but functions other than ufuncs may read a scalar's dtype."""
        shown: Any = call.primitive
        beside = isinstance(shown, Elementwise) and any(x.aval.shape for x in call.operands)
        operands = [self._name(x, names, beside) for x in call.operands]
        first = len(operands) - (len(shown.moves) if isinstance(shown, Moving) else 0)
        for k, x in enumerate(call.operands[:first]):
            operands[k] = self._numpys(operands[k])
            if not (beside and isinstance(x, Literal)) and not is_ufunc(shown):
                operands[k] = as_numpys(operands[k], x.aval)
        return operands

    def _update(self, call: Call, names: Names, depth: int, box: StaticIndex | None) -> list[str]:
        """Write the call that overwrites its first operand. Returns that array's name, now the
        result's. With `box`, it adds a number there."""
        self._whole(call.operands[:1], names, depth)
        if box is None and self._written(call, names, depth):
            return [names.pop(call.operands[0])]
        self._whole(call.operands[1:], names, depth)
        quick = self._quick(call, names)
        if box is not None:
            window, _, number = quick.partition(" += ")
            quick = f"{window}{box_text(box)} += {number}"
        if not (quick and self._counts(call, names)) or names[call.operands[0]] == self._name(
            call.operands[1], names
        ):
            function = self._global(call.primitive.updating())
            quick = f"{function}({', '.join(self._passed(call, names))})"
        self._line(depth, quick)
        return [names.pop(call.operands[0])]

    def _quick(self, call: Call, names: Names) -> str:
        """The operators and indices that compute a call; "" if there are none."""
        beside = isinstance(call.primitive, Elementwise)
        return call.primitive.quick_text([self._name(x, names, beside) for x in call.operands])

    def _value(
        self, call: Call, names: Names, place: str, at: tuple[int, InPlace], depth: int
    ) -> str:
        """The expression of a call's result, written to the memory of `place` if there is one. `at`
        is the call's position, and the tape's in-place writes."""
        primitive: Any = call.primitive
        position, writes = at
        is_copied = position in writes.copies
        out = call.outs[0]
        is_number = len(call.outs) == 1 and not out.shape
        # An element of an array is a copy already.
        is_copied = is_copied and not (primitive.memory.picks and is_number)
        called = place or is_copied or primitive.memory.updates
        if isinstance(primitive, Elementwise) and is_number:  # `_number` has handled the operators
            called = True
        quick = "" if called else self._quick(call, names)
        if quick and is_number and primitive.memory.picks and out.dtype in {*FLOATS, INTEGER}:
            name = self._name(call.operands[0], names)
            text = f"{name}.item({quick[len(name) + 1 : -1]})"
            return text if out.dtype in FLOATS else self._step(text, depth)
        if primitive.name == "stack" and {*map(_kind, call.operands)} == {((), FLOAT)}:
            quick = f"array(({', '.join([self._name(x, names) for x in call.operands])},))"
        if not quick:
            function = primitive.for_types(*[x.aval for x in call.operands])
            if primitive.repeats:
                function = repeat(primitive, writes.loops.get(position, ()), self.run)
            elif primitive.tapes:
                function = partial(primitive.played, self.run)
            elif is_copied:
                function = partial(copied, function)
            operands = self._passed(call, names) + [f"out={place}"] * bool(place)
            quick = f"{self._global(function)}({', '.join(operands)})"
            if is_ufunc(primitive) and out.dtype != FLOAT:
                return quick
        return as_number(quick, out.aval) if is_number else quick
