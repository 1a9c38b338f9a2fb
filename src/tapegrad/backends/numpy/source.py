"""The reference emitter: a tape as readable NumPy, one statement per call.

    # model.py:12: h = np.tanh(x @ W + b)
    t = x @ W
    t1 = t + b
    h = np.tanh(t1)

Nothing is fused or reordered, so this is the program that the compiled loops must agree with, and
the one to read when they don't. Most primitives are one expression; those that write into their
result take several lines. `numpy_text` of a primitive returns its lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapegrad.backends.source.names import Scope, user_names
from tapegrad.core.handlers import quiet
from tapegrad.ir.tape import Call, Guard, Literal, Operand, Source, Tape, Var
from tapegrad.primitives.base import Elementwise
from tapegrad.primitives.kinds import Library, Repeated, Running
from tapegrad.primitives.texts import dtype_called

INDENT = "    "


def numpy_source(tape: Tape) -> str:
    """The source of a function of all inputs of the tape, captured ones last.

    Sub-tapes must be inlined. A primitive without a line of NumPy is called by its name.
    """
    return _Writer(tape).text()


def statement_of(tape: Tape, call: Call) -> list[str]:
    """The lines of one call of a tape."""
    writer = _Writer(tape)
    for each in tape.calls:
        first = len(writer.lines)
        if each.primitive.tapes and not each.primitive.repeats:  # they would be inlined
            writer.names.update((out, writer.handed_out.fresh("t")) for out in each.outs)
        else:
            writer._call(each)
        if each is call:
            return writer.lines[first:]
    return []


def numpy_function(tape: Tape) -> Callable[..., list[Any]]:
    """The source as a function of the values of the free inputs; it returns a list of outputs."""
    writer = _Writer(tape)
    exec(compile(writer.text(), f"<tapegrad {tape.name}>", "exec"), writer.functions)
    function = writer.functions[writer.name]

    @quiet
    def run(*values: Any) -> list[Any]:
        pairs = zip(tape.inputs, [*values, *tape.captured], strict=True)
        found = function(*[v.dtype.type(x) if v.shape == () else x for v, x in pairs])
        return [found] if len(tape.outputs) == 1 else list(found)

    return run


class _Writer:
    """Writes one function. `functions` are the globals of its source besides NumPy and SciPy."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.functions: dict[str, Any] = {}
        self.handed_out = Scope({"scipy", "ml_dtypes"})
        self.name = self.handed_out.fresh(tape.name)
        names = tape.names or ("",) * len(tape.inputs)
        self.names = {
            var: self.handed_out.fresh(name or "x")
            for var, name in zip(tape.inputs, names, strict=True)
        }
        self.hints: dict[Var, str] = user_names(tape)
        for x, hint in zip(tape.outputs, tape.output_names, strict=False):
            if isinstance(x, Var) and hint:
                self.hints.setdefault(x, hint)
        self.lines: list[str] = []

    def text(self) -> str:
        lines = [f"def {self.name}({', '.join(self.names.values())}):"]
        self._statements(self.tape)
        outputs = ", ".join(map(self._alone, self.tape.outputs))
        self.lines.append(f"return {outputs or '()'}")
        body = "\n".join([*lines, *[INDENT + line for line in self.lines]])
        imports = "import numpy as np\n"
        for module in sorted(set(re.findall(r"\b(?:scipy\.\w+|ml_dtypes)(?=\.)", body))):
            imports += f"import {module}\n"
        return f"{imports}\n\n{body}\n"

    def _statements(self, tape: Tape) -> None:
        """Write the calls of a tape whose inputs have names, and its guards."""
        src: Source | None = None
        for guard in tape.guards:
            if isinstance(guard.operand, Literal) or guard.operand in self.names:
                self._guard(guard)
        for call in tape.calls:
            if call.src is not None and call.src != src:
                src = call.src
                self.lines.append(f"# {src}: {src.text}" if src.text else f"# {src}")
            self._call(call)
            for guard in tape.guards:
                if guard.operand in call.outs:
                    self._guard(guard)

    # ---- operands

    def _alone(self, x: Operand) -> str:
        """A variable's name, or a constant with its dtype."""
        if isinstance(x, Var):
            return self.names[x]
        if x.dtype == np.bool_:
            return f"np.{bool(x.value)}_"
        return f"{dtype_called(x.dtype)}({_number(x.value)})"

    def _operands(self, call: Call) -> list[str]:
        """Names and constants. Beside a variable of its dtype, a constant is a plain number."""
        kinds = {x.dtype for x in call.operands if isinstance(x, Var)}
        plain = kinds & {np.dtype(np.float64), np.dtype(np.int64), np.dtype(bool)}
        return [
            _number(x.value) if isinstance(x, Literal) and x.dtype in plain else self._alone(x)
            for x in call.operands
        ]

    # ---- statements

    def _call(self, call: Call) -> None:
        operands = self._operands(call)
        hint = "ct" if call.is_cotangent else "t"
        outs = [self.handed_out.fresh(self.hints.get(out, hint)) for out in call.outs]
        self.names.update(zip(call.outs, outs, strict=True))
        if isinstance(call.primitive, Repeated):
            self._loop(call.primitive, outs, call)
            return
        lines = call.primitive.numpy_text(outs, operands, call)
        if lines:
            self.lines += lines
        else:
            self._foreign(call.primitive, outs, operands)

    def _loop(self, loop: Repeated, carried: Sequence[str], call: Call) -> None:
        """Write a loop, with its body indented. Loop-carried values have the names of its
        results."""
        rounds, going, first = (
            call.operands[0],
            loop.going(call.operands),
            loop.first(call.operands),
        )
        given = loop.given(call.operands)
        start, invariants = given[: loop.carried], given[loop.carried :]
        count = self.names[rounds] if isinstance(rounds, Var) else str(int(rounds.value))
        *carried, step, more = (
            carried if loop.until else (*carried, self.handed_out.fresh("step"), "")
        )
        if carried:
            self.lines.append(f"{', '.join(carried)} = {', '.join(map(self._alone, start))}")
        if loop.until:
            self.lines += [f"{more} = {self._alone(going)}", f"{step} = np.int64(0)"]
            self.lines.append(f"while {more} and {step} < {count}:")
        else:
            down = "[::-1]" if loop.backwards else ""
            begin = "" if first is None else f"{self._alone(first)}, "
            self.lines.append(f"for {step} in np.arange({begin}{count}){down}:")
        names, lines, hints = self.names, self.lines, self.hints
        inside = [step, *carried, *map(self._alone, invariants)]
        self.names = dict(zip(loop.body.inputs, inside, strict=True))
        self.lines, self.hints = [], user_names(loop.body)
        self._statements(loop.body)
        left = ", ".join(map(self._alone, loop.body.outputs))
        self.lines.append(f"{', '.join([*carried, *([more] if more else [])])} = {left}")
        if loop.until:
            self.lines.append(f"{step} += 1")
        inner = self.lines
        self.names, self.lines, self.hints = names, lines, hints
        self.lines += [INDENT + line for line in inner]

    def _foreign(self, primitive: Any, outs: Sequence[str], operands: Sequence[str]) -> None:
        """Write a call of a function that is only known by name."""
        assert isinstance(primitive, (Elementwise, Library, Running)), primitive
        name = self.handed_out.fresh(str(primitive))
        self.functions[name] = primitive.evaluate
        self.lines.append(f"{', '.join(outs)} = {name}({', '.join(operands)})")

    def _guard(self, guard: Guard) -> None:
        """Write the check of a guard, as soon as its variable is known."""
        found, expected = self._alone(guard.operand), self._alone(guard.expected)
        nan = guard.expected.value != guard.expected.value
        self.lines.append(f"if {found} == {found}:" if nan else f"if {found} != {expected}:")
        line = f" ({guard.src})" if guard.src else ""
        message = f"traced where {guard.what or 'a value'} was {guard.expected}{line}"
        self.lines.append(f"{INDENT}raise ValueError({message!r})")


def _number(value: np.generic) -> str:
    """The shortest text of a number."""
    text = str(value)
    return (
        f"{'-' * (text[0] == '-')}np.{text.strip('-')}"
        if text.strip("-") in ("nan", "inf")
        else text
    )
