"""Loops as Python that runs fast: a loop of the tape, and those inside it, as one Python function;
and so a tape that is run often.

    def loop(rounds, c0, i0, i1):
        for t0 in range(min(int(rounds), 50)):
            v5 = c0 * i0
            v6 = i1[0 + t0]
            v7 = tanh(v6)
            c0 = v5 + v7
        return c0

A round costs what NumPy costs, and no more: values are local names, functions and constants global
ones, and where operators do the same as a function of NumPy's they are used. Numbers of type
float64 are Python's floats, whose operators give the same bits in a sixth of the time; what passes
the function's arguments and results is NumPy's. A number that is read once has no line of its own.
`Loop.played` says what a loop computes, step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

from tapegrad.backends.numpy.lives import (
    SMALL,
    added_places,
    box_of,
    is_ufunc,
    kept,
    reads,
    standing_zeros,
    summed_places,
    written_over,
)
from tapegrad.backends.numpy.numbers import (
    FLOAT,
    FLOATS,
    FUNCTIONS,
    INTEGER,
    NO,
    TRUE,
    as_number,
    as_numpys,
    form_of,
    kinds_of,
)
from tapegrad.core.values import same_bits
from tapegrad.ir.memory import last_uses
from tapegrad.ir.tape import Aval, Call, Guard, Literal, Operand, Tape, Var
from tapegrad.ir.updates import in_place, kept_in_place
from tapegrad.primitives.base import Elementwise
from tapegrad.primitives.control import Applied
from tapegrad.primitives.kinds import Moving, Repeated, StaticIndex
from tapegrad.primitives.views import as_numpy

INDENT = "    "
DEEPEST = 12  # loops in loops; Python has room for 20
AS_FLOAT = "float("  # how operators begin that make a float of any number, a step, too
LONGEST = 5000  # lines of a function before calls of tapes stay such: Python has to compile them
WIDEST = 120  # characters of a number that stands where it is read, without a line of its own


class Broken(Exception):
    """A guard of a tape that a call holds doesn't hold. It goes no further than that call."""

    def __init__(self, guard: Guard) -> None:
        self.guard = guard


def copied(evaluate: Callable[..., Any], *xs: Any) -> Any:
    """A view that is read after what it shows was written to."""
    return np.array(evaluate(*xs))[()]


def repeat(loop: Repeated, own: Collection[int], run: Callable[..., list[Any]]) -> Any:
    """The function of a loop's operands, made once; `run` plays the tapes of other calls. Of what
    is carried, it may write to what is numbered in `own`."""
    key = (loop.carried, loop.most, loop.backwards, loop.until, loop.later, tuple(sorted(own)))
    made = vars(loop.body).setdefault("_loops", {})
    function = made.get(key)
    if function is None:
        function = made[key] = _Text(run).function(loop, own)
    return function


def whole(
    tape: Tape, run: Callable[..., list[Any]], own: bool = False
) -> Callable[..., tuple[Any, ...]]:
    """A tape as such a function: of its inputs, which it doesn't write to. Where its results are to
    be its caller's `own`, each is row-major and has memory that nothing else shows."""
    return _Text(run).straight(tape, own)


def owned(x: Any, others: Sequence[Any]) -> Any:
    """An array, copied where it shows the memory of another one, or is one of the others."""
    flags = x.flags
    fresh = x.base is None and flags.owndata and flags.c_contiguous
    return x if fresh and all(x is not y for y in others) else np.array(x, order="C")


_code = lru_cache(maxsize=256)(compile)  # traces of one function leave the same loops mostly


class _Text:
    """The text of a function, and the values of its global names."""

    def __init__(self, run: Callable[..., list[Any]]) -> None:
        self.run = run
        self.lines: list[str] = []
        self.known: dict[str, Any] = {
            "array": np.array,
            "int64": np.int64,
            "float64": np.float64,
            "bool_": np.bool_,
            **FUNCTIONS,
            "Broken": Broken,
        }
        self.literals: dict[tuple[int, bool], str] = {}  # beside arrays, and beside numbers
        self.steps: set[str] = set()  # of loops, which are Python's integers
        self.count = 0

    def function(self, loop: Repeated, own: Collection[int]) -> Any:
        heads = [self._fresh("n") for _ in range(1 + loop.until + loop.later)]
        given = [self._given(x) for x in loop.body.inputs[1:]]
        outs = [self._fresh("v") for _ in range(int(loop.results))]
        self._loop(loop, heads, given, outs, own, 1)
        kinds = [x.aval for x in loop.body.outputs]  # of `until`, whether it goes on comes last
        counts = [
            *kinds[: loop.carried],
            *([Aval((), np.dtype(np.int64)), kinds[-1]] if loop.until else []),
        ]
        left = list(map(as_numpys, outs, counts))
        return self._made([*heads, *given], ", ".join(left), loop.body.name)

    def straight(self, tape: Tape, own: bool) -> Any:
        given = [self._given(x) for x in tape.inputs]
        outs = self._body(tape, "", dict(zip(tape.inputs, given, strict=True)), (), 1)
        outs = self._own(tape, given, outs) if own else outs
        outs = [as_numpys(name, x.aval) for name, x in zip(outs, tape.outputs, strict=True)]
        return self._made(given, "".join(f"{x}, " for x in outs) or "()", tape.name)

    def _own(self, tape: Tape, given: Sequence[str], outs: Sequence[str]) -> list[str]:
        """What says the results, which share no memory. Of what is new for sure only the order in
        memory is looked at."""
        made = {x for c in tape.calls if is_ufunc(c.primitive) or c.primitive.owns for x in c.outs}
        names: list[str] = []
        for x, name in zip(tape.outputs, outs, strict=True):
            if not x.aval.shape:
                names.append(name)
                continue
            if x in made and name not in names:
                flags = self._fresh("v")
                self._line(1, f"{flags} = {name}.flags")
                near = f"{flags}.c_contiguous and {flags}.owndata"
                self._line(1, f"if not ({near}): {name} = array({name}, order='C')")
            else:
                others = "".join(f"{y}, " for y in (*given, *names))
                value, name = f"{self._global(owned)}({name}, ({others}))", self._fresh("v")
                self._line(1, f"{name} = {value}")
            names.append(name)
        return names

    def _made(self, given: Sequence[str], results: str, name: str) -> Any:
        """The function whose lines are there, of these names."""
        text = "\n".join(
            [f"def made({', '.join(given)}):", *self.lines, f"{INDENT}return {results}"]
        )
        # A file of tapegrad's, to whoever follows the user's own.
        exec(_code(text, f"{__file__}: {name}", "exec"), self.known)
        return self.known.pop("made")  # which would hold itself by its globals

    def _fresh(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"

    def _given(self, x: Var) -> str:
        """The name of what the function is passed."""
        name = self._fresh("c")
        if not x.shape:
            self._line(1, f"{name} = {as_number(name, x.aval)}")
        return name

    def _global(self, value: Any, letter: str = "f") -> str:
        name = self._fresh(letter)
        self.known[name] = value
        return name

    def _line(self, depth: int, text: str) -> None:
        self.lines.append(INDENT * depth + text)

    # ---- loops

    def _loop(
        self,
        loop: Repeated,
        heads: Sequence[str],
        given: Sequence[str],
        outs: Sequence[str],
        own: Collection[int],
        depth: int,
    ) -> None:
        """A loop of operands with these names, whose results get those."""
        body, count = loop.body, loop.carried
        carried = list(outs[:count])
        stays = kept_in_place(body, 1, count)
        start = [
            f"array({x})" if k in stays and k not in own and body.inputs[1 + k].shape else x
            for k, x in enumerate([self._numpys(x) for x in given[:count]])
        ]
        if carried:
            self._line(depth, f"{', '.join(carried)} = {', '.join(start)}")
        step = self._fresh("t")
        rounds = f"min(int({heads[0]}), {loop.most})"
        more = ""
        if loop.until:
            made, more = outs[count:]
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
        names: dict[Operand, str] = dict(
            zip(body.inputs[1:], [*carried, *given[count:]], strict=True)
        )
        left = self._body(body, step, names, [1 + k for k in stays], depth + 1)
        targets = [*carried, *([more] if more else [])]
        moved = [(a, b) for a, b in zip(targets, left, strict=True) if a != b]
        if moved:
            news, olds = zip(*moved, strict=True)
            self._line(depth + 1, f"{', '.join(news)} = {', '.join(olds)}")
        if loop.until:
            self._line(depth + 1, f"{step} += 1")
            self._line(depth, f"{made} = int64({step})")
        elif not moved:
            self._line(depth + 1, "pass")

    def _body(
        self, tape: Tape, step: str, names: dict[Operand, str], own: Sequence[int], depth: int
    ) -> list[str]:
        """The calls of a round, or of a tape that has no step; the names of what it leaves."""
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
        held = {names[x] for x in tape.inputs}  # what is passed, and what is left
        left = {*tape.outputs}
        uses = reads(tape)
        sums = summed_places(tape, uses)
        standing = standing_zeros(tape, uses)
        parts = added_places(tape, uses, writes.updates)
        totals: dict[int, str] = {}
        for position, call in enumerate(tape.calls):
            if position in standing:
                pair = standing[position]
                if pair is not None:
                    text = ", ".join([self._name(x, names) for x in pair])
                    names[call.outs[0]] = self._assigned(f"{self._global(kept)}({text})", depth)
                continue
            number = self._number(call, names, depth)
            outs = [self._fresh("v") for _ in call.outs] if not number else []
            place = names[variables[over[position]]] if position in over else ""
            if number:
                is_short = number.isidentifier() or (
                    uses[call.outs[0]] == 1 and len(number) < WIDEST
                )
                outs = [number if is_short else self._assigned(number, depth)]
            elif position in sums:
                outs = [self._added(call, totals, sums[position], names, depth)]
                held.update(outs)
            elif call.outs[0] in parts:
                outs = [self._name(call.operands[0], names)]
            elif position in writes.updates and call.outs[0].aval.shape:
                outs = self._update(call, names, depth, parts.get(call.operands[1]))
                held.difference_update(outs)
            elif call.primitive.repeats and depth < DEEPEST:
                loop: Any = call.primitive
                heads = [self._atom(x, names, depth) for x in loop.heads(call.operands)]
                given = [self._atom(x, names, depth) for x in loop.given(call.operands)]
                self._loop(loop, heads, given, outs, writes.loops.get(position, ()), depth)
            elif isinstance(call.primitive, Applied) and len(self.lines) < LONGEST:
                outs = self._applied(call, names, depth)
            else:
                value = self._value(call, names, place, position in writes.copies)
                comma = "," if len(outs) == 1 and call.primitive.results != 1 else ""
                self._line(depth, f"{', '.join(outs)}{comma} = {value}")
                for name, x in zip(outs, call.outs, strict=True):
                    if len(outs) > 1 and not x.shape:
                        self._line(depth, f"{name} = {as_number(name, x.aval)}")
            names.update(zip(call.outs, outs, strict=True))
            held.update([name for x, name in zip(call.outs, outs, strict=True) if x in left])
            for out in call.outs:
                self._check(guards.get(out, ()), names, depth)
            gone = [
                variables[k]
                for k in dead.get(position, ())
                if k in variables and k not in taken and variables[k].aval.nbytes > SMALL
            ]
            for x in gone:
                if x in names and names[x] not in held:
                    self._line(depth, f"{names[x]} = None")
        return [self._numpys(self._name(x, names)) for x in tape.outputs]

    def _added(
        self, call: Call, totals: dict[int, str], first: int, names: dict[Operand, str], depth: int
    ) -> str:
        """The name of a sum of parts, to which a part is added where the call is one."""
        if first not in totals:
            totals[first] = self._fresh("v")
            zeros = self._global(partial(np.zeros, call.out.shape, call.out.dtype))
            self._line(depth, f"{totals[first]} = {zeros}()")
        box = box_of(call)
        if box is not None:
            at = ", ".join(map(str, as_numpy(box))) or "()"
            self._line(depth, f"{totals[first]}[{at}] += {self._name(call.operands[0], names)}")
        return totals[first]

    def _applied(self, call: Call, names: dict[Operand, str], depth: int) -> list[str]:
        """The calls of a tape in the place of the call that runs it. Results get names of their
        own: what is passed may be left as it is, or a number."""
        tape: Tape = call.primitive.tapes[0]
        given = [self._atom(x, names, depth) for x in call.operands]
        inner: dict[Operand, str] = dict(zip(tape.inputs, given, strict=True))
        outs: list[str] = []
        for name in self._body(tape, "", inner, (), depth):
            if name in given or name in outs or name in self.known:
                value, name = name, self._fresh("v")
                self._line(depth, f"{name} = {value}")
            outs.append(name)
        return outs

    def _check(self, guards: Sequence[Guard], names: dict[Operand, str], depth: int) -> None:
        for guard in guards:
            name = self._name(guard.operand, names)
            if guard.expected.dtype.kind == "b":
                broken = f"not {name}" if guard.expected.value else name
            else:
                value = as_numpys(self._numpys(name), guard.operand.aval)
                broken = f"not {self._global(same_bits)}({value}, {self._global(guard.expected)})"
            self._line(depth, f"if {broken}: raise Broken({self._global(guard)})")

    # ---- calls

    def _name(self, x: Operand, names: dict[Operand, str], beside: bool = False) -> str:
        """What says an operand: of a number `beside` an array, an array without axes, which NumPy
        takes in less time than numbers."""
        if isinstance(x, Var):
            return names[x]
        name = self.literals.get((id(x), beside))
        if name is None:
            value = np.array(x.value) if beside else x.value
            value = value.item() if not beside and value.dtype in FLOATS else value
            name = self.literals[id(x), beside] = self._global(value, "k")
        return name

    def _numpys(self, name: str) -> str:
        """A name whose integers are NumPy's."""
        return f"int64({name})" if name in self.steps else name

    def _atom(self, x: Operand, names: dict[Operand, str], depth: int) -> str:
        """The name of an operand, which gets one where it is an expression."""
        name = self._name(x, names)
        if isinstance(x, Var) and not name.isidentifier():
            name = names[x] = self._assigned(name, depth)
        return name

    def _assigned(self, value: str, depth: int) -> str:
        name = self._fresh("v")
        self._line(depth, f"{name} = {value}")
        return name

    def _number(self, call: Call, names: dict[Operand, str], depth: int) -> str:
        """An expression of operators for a number made of numbers; "" where there is none. What it
        reads more than once has a name."""
        kinds = kinds_of(call)
        form, often = (
            form_of(call.primitive, len(call.operands), kinds == TRUE) if kinds else ("", NO)
        )
        if not form:
            return ""
        for k in often:
            self._atom(call.operands[k], names, depth)
        given = [self._name(x, names) for x in call.operands]
        # An operator of Python's integers alone would give another one.
        is_pythons = " if " in form or self.steps.issuperset(given)
        if call.outs[0].aval.dtype == INTEGER and is_pythons:
            given = list(map(self._numpys, given))
        text: str = form.format(*given)
        if text.isidentifier():
            return text
        is_number = call.outs[0].aval.dtype != FLOAT or kinds <= FLOATS or form.startswith(AS_FLOAT)
        return f"({text})" if is_number else f"float({text})"

    def _passed(self, call: Call, names: dict[Operand, str]) -> list[str]:
        """What says the operands to a function. Python's integers are quicker indices than
        NumPy's; what isn't a ufunc may ask a number for its type."""
        shown: Any = call.primitive
        beside = isinstance(shown, Elementwise) and any(x.aval.shape for x in call.operands)
        operands = [self._name(x, names, beside) for x in call.operands]
        first = len(operands) - (len(shown.moves) if isinstance(shown, Moving) else 0)
        for k, x in enumerate(call.operands[:first]):
            operands[k] = self._numpys(operands[k])
            if not (beside and isinstance(x, Literal)) and not is_ufunc(shown):
                operands[k] = as_numpys(operands[k], x.aval)
        return operands

    def _update(
        self, call: Call, names: dict[Operand, str], depth: int, box: StaticIndex | None
    ) -> list[str]:
        """What writes over its first operand, which has another name from here on; a number in a
        `box` of what it writes."""
        quick = self._quick(call, names)
        if box is not None:
            window, _, number = quick.partition(" += ")
            quick = f"{window}[{', '.join(map(str, as_numpy(box)))}] += {number}"
        if not quick or names[call.operands[0]] == self._name(call.operands[1], names):
            function = self._global(call.primitive.update)
            quick = f"{function}({', '.join(self._passed(call, names))})"
        self._line(depth, quick)
        return [names.pop(call.operands[0])]

    def _quick(self, call: Call, names: dict[Operand, str]) -> str:
        """Operators and indices that do what a call does, if there are such."""
        beside = isinstance(call.primitive, Elementwise)
        return call.primitive.quick_text([self._name(x, names, beside) for x in call.operands])

    def _value(self, call: Call, names: dict[Operand, str], place: str, is_copied: bool) -> str:
        """An expression for what a call gives, in the memory of `place` if there is one."""
        primitive: Any = call.primitive
        out = call.outs[0]
        is_number = len(call.outs) == 1 and not out.shape
        # An element of an array is a copy of what stands there.
        is_copied = is_copied and not (primitive.picks and is_number)
        called = place or is_copied or primitive.updates
        if isinstance(primitive, Elementwise) and is_number:  # `_number` knows which operators
            called = True
        quick = "" if called else self._quick(call, names)
        if quick and is_number and primitive.picks and out.dtype in FLOATS:
            name = self._name(call.operands[0], names)
            return f"{name}.item({quick[len(name) + 1 : -1]})"
        if not quick:
            function = primitive.for_types(*[x.aval for x in call.operands])
            if primitive.repeats:
                function = repeat(primitive, (), self.run)
            elif primitive.tapes:
                function = partial(primitive.played, self.run)
            elif is_copied:
                function = partial(copied, primitive.evaluate)
            operands = self._passed(call, names) + [f"out={place}"] * bool(place)
            quick = f"{self._global(function)}({', '.join(operands)})"
            if is_ufunc(primitive) and out.dtype != FLOAT:
                return quick
        return as_number(quick, out.aval) if is_number else quick
