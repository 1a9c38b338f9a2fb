"""The emitter: a plan becomes readable Python of fused loops, which targets translate.

Each kernel is one function; a plan without calls of NumPy in between is one kernel. The target
defines the functions that loops call (`exp`, `plus`, `matmul`, ...).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tapegrad.backends.source.driver import INDENT
from tapegrad.backends.source.names import Scope
from tapegrad.backends.source.products import emit_product
from tapegrad.backends.source.program import LINE, Axes, Kernel, Program, lines_of
from tapegrad.backends.source.rounds import emit_recurrence
from tapegrad.backends.source.rows import HoistedTests, is_cleared, is_short_row
from tapegrad.core.arrays import BITS, is_half
from tapegrad.ir.affine import Affine, Index
from tapegrad.ir.allocation import Allocation, Slot, Span, span
from tapegrad.ir.cells import At, Cell, Indirect, Read
from tapegrad.ir.plan import Plan, Recurrence, is_fill, leaves, most_chunks, segments, walk
from tapegrad.ir.steps import (
    ArgUpdate,
    CheckGuard,
    CheckRange,
    Compute,
    Gemm,
    Loop,
    PythonCall,
    Routine,
    Step,
)
from tapegrad.ir.tape import Literal, Source

LOOPS = "ijklmnpqrst"  # the names of loop indices


def emit(
    plan: Plan,
    allocation: Allocation,
    lengths: frozenset[int] = frozenset(),
    axes: Axes = (),
    reserved: Collection[str] = (),
) -> Program:
    """The program of a scheduled plan. `lengths` are the trip counts of the tape's loops, `axes`
    the axes of inputs that may have any length, and `reserved` names that no variable may have."""
    names = Scope(reserved)
    given: dict[Any, str] = {}
    for cell in plan.inputs:
        given[cell] = names.fresh(cell.hint or "x")
    outputs = [cell for cell in plan.outputs if cell not in given]  # others alias inputs
    for cell in outputs:
        given[cell] = names.fresh(cell.hint or "out")
    for number, slot in enumerate(allocation.slots):
        given[slot] = names.fresh(f"scratch{number}")
    for step in plan.steps:
        if isinstance(step, PythonCall):
            given[step] = names.fresh(str(step.primitive))
    program = Program(plan, [], allocation, names, given, lengths=lengths, axes=axes)
    letters = [n for n in LOOPS if names.is_free(n)][: _depth(plan.steps)]
    for letter in letters:  # no variable may have the name of a loop index around it
        names.fresh(letter)
    base = f"{plan.name}_kernel"
    parts = [s for s in segments(plan.steps) if not isinstance(s, PythonCall)]
    for number, steps in enumerate(parts):
        name = names.fresh(base if len(parts) == 1 else f"{base}{number}")
        program.kernels.append(_KernelEmitter(program, names, letters, steps, name).kernel())
    return program


def _depth(steps: Sequence[Step]) -> int:
    """The depth of the loop nest."""
    inside = [
        s.body if isinstance(s, Loop) else s.plan.steps
        for s in steps
        if isinstance(s, (Loop, Recurrence))
    ]
    return max((1 + _depth(body) for body in inside), default=0)


@dataclass(frozen=True)
class _Pending:
    """The value of a register that is to be written where it is read: its expression, whether that
    needs no parentheses as an operand, and all the memory that it reads."""

    text: str
    atomic: bool
    reads: tuple[Span, ...]


class _KernelEmitter:
    def __init__(
        self, program: Program, names: Scope, letters: list[str], steps: list[Step], name: str
    ) -> None:
        self.program = program
        self.shared = program.names
        self.names = names
        self.letters = letters
        self.allocation = program.allocation
        self.homes = program.allocation.homes
        self.steps = steps
        self.name = name
        self.lines: list[str] = []
        self.step: Step | None = None  # the step that is being written
        self.written: list[Step | None] = []  # of each line, the step that wrote it
        self.local: dict[Cell, str] = {}
        self.loops: dict[Index, str] = {}
        self.reads_left: dict[Cell, int] = {}
        self.writes: dict[Cell, int] = {}
        self.pending: dict[Cell, _Pending] = {}  # registers to be nested where they're read
        self.last_src: Source | None = None
        # Of the rounds of recurrences: the names of scalars; where in the lines each round starts,
        # with the arrays that are renamed in it and its depth; the depth at which the user's lines
        # are shown as comments; the number that is added to a status.
        self.numbers: dict[Cell, str] = {}
        self.rounds: list[bool] = []  # for each `for`, whether it is over rounds
        self.starts: list[tuple[int, set[str], int]] = []
        self.commented = 1
        self.first = 0
        self.views = 0
        self.firsts: dict[int, str] = {}  # the variable of a chunk's first row, by the chunk's size

    def kernel(self) -> Kernel:
        touched: dict[Cell, None] = dict.fromkeys(self.count_accesses(walk(self.steps)))
        parameters: list[Cell | Slot | Index] = [
            c for c in self.program.plan.inputs if c in touched
        ]
        memories = dict.fromkeys(self.homes[c].memory for c in touched if c in self.homes)
        outputs = [c for c in self.program.plan.outputs if c not in self.program.plan.inputs]
        parameters += [c for c in outputs if c in touched or c in memories]
        parameters += [m for m in memories if isinstance(m, Slot)]
        self.depth = 1
        (first, *_) = self.steps
        if isinstance(first, Loop) and first.parallel:
            parameters.append(first.index)
            self.shared[first.index] = self.loops[first.index] = self.names.fresh("chunk")
            self._comment(first)
            self.body(first.body)
        else:
            self.body(self.steps)
        self.line("return 0")
        shown = [self.shared[p] for p in parameters]
        head = f"def {self.name}({', '.join(shown)}):"
        if len(head) > LINE:
            listed = lines_of(", ".join(shown), LINE - 4)
            head = "\n".join([f"def {self.name}(", *[INDENT + line for line in listed], "):"])
        text = "\n".join([head, *self.lines, ""])
        inside = max([most_chunks(x) for x in self.steps if isinstance(x, Recurrence)], default=0)
        rounds, written = tuple(self.rounds), tuple(self.written)
        return Kernel(self.name, parameters, shown, text, rounds, written, inside)

    def count_accesses(self, steps: Iterable[Step]) -> list[Cell]:
        """Count the reads and the writes of each cell. Returns the cells."""
        touched = []
        for step in steps:
            for cell, _, writes in step.own():
                touched.append(cell.root)
                count = self.writes if writes else self.reads_left
                count[cell] = count.get(cell, 0) + 1
        return touched

    def line(self, text: str) -> None:
        self.lines.append(INDENT * self.depth + text)
        self.written.append(self.step)

    def loop_line(self, name: str, bounds: str, rounds: bool = False, note: str = "") -> None:
        """Write the `for` line of a loop; `rounds` tells whether it is over rounds."""
        self.line(f"for {name} in range({bounds}):{note}")
        self.rounds.append(rounds)

    # ---- steps

    def body(self, steps: Sequence[Step]) -> None:
        outer = self.step
        for position, step in enumerate(steps):
            self.step = step
            if self.depth == self.commented:
                self._comment(step)
            if isinstance(step, Compute):
                self._compute(step, steps[position + 1 :])
            else:
                EMITTED[type(step)](self, step)
        self.step = outer

    def _check_range(self, step: CheckRange) -> None:
        self.line(f"if {self.place(step.flag)}:")
        self.line(f"{INDENT}return {self.first + step.status}")

    def _check_guard(self, step: CheckGuard) -> None:
        self.line(f"if {self.text(step.read)} != {self._literal(step.expected)}:")
        self.line(f"{INDENT}return {self.first + step.status}")

    def _comment(self, step: Step) -> None:
        """Write, as comments, the user's lines that a top-level step comes from, where they
        change."""
        sources: dict[Source, None] = {}
        inside = leaves(step)
        if all(map(is_fill, inside)):
            return  # zeros to add to
        for inner in inside:
            if inner.src is not None:
                sources.setdefault(inner.src)
        fresh = [s for s in sources if s != self.last_src]
        if not fresh or (len(sources) == 1 and self.last_src in sources):
            return
        for src in sorted(sources, key=lambda s: (s.file, s.line)):
            text = src.text
            self.line(f"# {src}: {text}" if text else f"# {src}")
        self.last_src = src if len(sources) == 1 else None

    def open_round(self, index: Index, steps: tuple[str, str], backwards: bool, more: str) -> str:
        """Begin a loop over rounds, or an `if` for at most one. With `more`, it runs while that is
        true. Returns the name of its index."""
        begin, rounds = steps
        name = next((n for n in self.letters if n not in self.loops.values()), "")
        name = self.names.fresh("i0") if more or not name else name
        if index.extent == 1 and begin == "0" and not more and not rounds.isdigit():
            name = "0"
        self.loops[index] = name
        if name == "0":
            self.line(f"if {rounds} > 0:")
        elif more:
            self.line(f"{name} = 0")
            self.line(f"while {more} and {name} < {rounds}:")
        elif backwards:
            first = str(int(rounds) - 1) if rounds.isdigit() else f"{rounds} - 1"
            last = "-1" if begin == "0" else f"{begin} - 1"
            self.loop_line(name, f"{first}, {last}, -1", True)
        else:
            self.loop_line(name, f"{f'{begin}, ' * (begin != '0')}{rounds}", True)
        self.depth += 1
        return name

    def close_round(self, index: Index, name: str, more: str) -> None:
        """End the loop over rounds."""
        if more:
            self.line(f"{name} += 1")
        self.depth -= 1
        del self.loops[index]

    def _in_chunks(self, loop: Loop) -> None:
        """Write a loop that cores share inside a round."""
        name = self.loops[loop.index] = self.names.fresh("chunk")
        known, self.firsts = self.firsts, {}
        self.loop_line(name, f"shared({loop.index.extent})")
        self.depth += 1
        self.body(loop.body)
        self.depth -= 1
        self.firsts = known
        del self.loops[loop.index]

    def _loop(self, loop: Loop) -> None:
        if loop.parallel:
            self._in_chunks(loop)
            return
        if is_cleared(self, loop):
            self.line(f"clear({self.array(loop.body[0].cell)})")  # type: ignore[attr-defined]
            return
        loop = replace(loop, body=HoistedTests(self, loop).rest())
        if not loop.body:
            return
        tiles = loop.step != 1 and loop.start is None  # the short name is for the rows of a tile
        taken = self.loops.values()
        name = next((n for n in self.letters if n not in taken and not tiles), None)
        name = name or self.names.fresh("first" if loop.step != 1 else "i0")
        self.loops[loop.index] = name
        extent = loop.index.extent
        if loop.chunk is not None:
            chunk, rows = loop.chunk
            first = f"{self.loops[chunk]} * {rows}"
            last = f"{first} + {rows}"
            is_even = extent % rows == 0 and not self.program.axes
            last = last if is_even else f"min({last}, {extent})"
            bounds = f"{first}, {last}" + (f", {loop.step}" if loop.step != 1 else "")
        elif loop.start is not None:
            first = self.loops[loop.start]
            bounds = f"{first}, min({first} + {loop.step}, {extent})"
        else:
            end = str(extent) if loop.index.limit is None else self.entry(loop.index.limit)
            bounds = f"0, {end}, {loop.step}" if loop.step != 1 else end
            if is_short_row(loop, list(self.loops)):
                bounds = f"rolled({extent})"
        part = loop.part
        note = "" if part is None else f"  # entries {part.start} to {part.stop - 1}"
        self.loop_line(name, bounds, note=note)
        self.depth += 1
        self.body(loop.body)
        self.depth -= 1
        del self.loops[loop.index]

    def _compute(self, step: Compute, after: Sequence[Step]) -> None:
        cell = step.cell
        pending = self._value(step)
        value, atomic = pending.text, pending.atomic
        if not step.combine and self._may_nest(step, pending, after):
            self.pending[cell] = pending
            self.program.nested.add(cell)
            return
        target = self.target(cell, step.at)
        fold = step.combine
        if fold is None:
            self.line(f"{target} = {value}")
            return
        loose = fold.loose and cell.in_register and cell.dtype.kind in "fc"
        statement = fold.loose if loose else fold.statement
        if atomic:
            statement = statement.replace("({x})", "{x}")
        self.line(statement.format(acc=target, x=value))

    def _may_nest(self, step: Compute, value: _Pending, after: Sequence[Step]) -> bool:
        """Whether a register's value can be written where its only reader reads it: a later step of
        the same body, with no loop and no write to anything that the value reads in between."""
        cell = step.cell
        if not cell.in_register or self.writes.get(cell) != 1 or self.reads_left.get(cell) != 1:
            return False
        if self.program.width(value.text) > LINE // 2:
            return False
        for later in after:
            if not isinstance(later, Compute):
                return False
            reads = [r.cell for r in later.reads]
            if cell in reads:
                template = self.template(later)
                place = reads.index(cell)
                return template.count(f"{{{place}}}") == 1
            written = span(later.cell, later.at, self.allocation)
            if any(written.meets(read) for read in value.reads):
                return False
        return False

    def _routine(self, step: Routine) -> None:
        given = [*(self.matrix(*x) for x in step.arrays), *map(str, step.primitive.settings)]
        called = f"{step.primitive.kernel}({', '.join(given)})"
        targets = [self.target(cell, step.at) for cell in step.results]
        self.line(f"{', '.join(targets)} = {called}" if targets else called)

    def matrix(self, cell: Cell, at: At, swapped: bool = False) -> str:
        """The part of an array at the first entries of an index, or its transpose."""
        name = self.array(cell)
        if at:
            name = f"{name}[{', '.join(self.entry(k) for k in at)}]"
        return name + (".T" if swapped else "")

    def _arg_update(self, step: ArgUpdate) -> None:
        best, target = self.target(step.best, step.at), self.target(step.cell, step.at)
        value = self.names.fresh("value")
        self.line(f"{value} = {self.text(step.read)}")
        self.line(f"if {value} {step.better} {best} or ({value} != {value} and {best} == {best}):")
        self.line(f"{INDENT}{best} = {value}")
        self.line(f"{INDENT}{target} = {self.entry(step.position)}")

    # ---- values

    def template(self, step: Compute) -> str:
        return str(step.primitive.template(step.cell.dtype, [r.literal for r in step.reads]))

    def _value(self, step: Compute) -> _Pending:
        """The expression that a step computes, with the pending values that it reads written into
        it."""
        template = self.template(step)
        if step.reads and step.reads[0].literal is None:
            floats = step.reads[0].cell.dtype if step.reads[0].cell else step.cell.dtype
        else:
            floats = step.cell.dtype
        if np.float32 in (floats, step.cell.dtype):
            template = re.sub(
                r"(?<![\w.])\d+\.\d+", lambda m: self.program.constant(np.float32(m[0])), template
            )
        called = re.fullmatch(r"\w+\(\{0\}(, \{\d\})*\)", template) is not None
        operands = []
        reads = [span(c, at, self.allocation) for c, at, writes in step.accesses() if not writes]
        for read in step.reads:
            if read.cell is not None and read.cell in self.pending:
                below = self.pending.pop(read.cell)
                operand, atomic = below.text, below.atomic
                reads += below.reads
            else:
                operand = self.text(read)
                atomic = read.cell is not None or " " not in operand
            operands.append(operand if atomic or called or template == "{0}" else f"({operand})")
        text = template.format(*operands)
        if template == "{0}":
            atomic = re.fullmatch(r"[\w.]+|[\w.]+\[[^\[\]]*\]", text) is not None
        else:
            atomic = re.fullmatch(r"\w+\(.*\)", template) is not None
        return _Pending(text, atomic, tuple(reads))

    def text(self, read: Read) -> str:
        if read.literal is not None:
            return self._literal(read.literal)
        if read.cell is None:
            return self.entry(read.at[0])
        return self.target(read.cell, read.at)

    def _literal(self, literal: Literal) -> str:
        value: Any = literal.value
        dtype = literal.dtype
        if dtype.kind == "b":
            return str(bool(value))
        if dtype == np.int64:
            return str(int(value)) if value >= 0 else f"({int(value)})"
        if is_half(dtype):
            value = np.asarray(value).view(BITS)[()]
        if value.dtype.kind in "iu":
            return self.program.constant(value)
        if dtype == np.float32 or dtype.kind == "c":
            return self.program.constant(value)
        text = repr(float(value))
        if text in ("nan", "inf", "-inf"):
            return text if text != "-inf" else "(-inf)"
        return text if value >= 0 and not text.startswith("-") else f"({text})"

    # ---- places

    def place(self, cell: Cell) -> str:
        """The expression of a scalar cell."""
        return self.target(cell, ())

    def target(self, cell: Cell, at: At) -> str:
        if cell in self.numbers:
            return self.numbers[cell]
        if cell.scalar:
            return self.shared[cell]
        if cell.in_register:
            return self._register(cell)
        name = self.array(cell)
        if cell.alias is None and cell.axes is not None:
            at = tuple(at[a] for a in cell.axes)
        entries = ", ".join(self.entry(k) for k in at)
        return f"{name}[{entries or '()'}]"

    def _register(self, cell: Cell) -> str:
        if cell not in self.local:
            self.local[cell] = self.names.fresh(cell.hint or "t")
        return self.local[cell]

    def array(self, cell: Cell) -> str:
        """The name of an array. A view of scratch memory, or of another shape, is made once."""
        if cell in self.local:
            return self.local[cell]
        if cell.alias is None and cell in self.shared and cell.leaving is None:
            return self.shared[cell]
        start = 0
        if cell.alias is not None:
            base, shape = self.array(cell.root), cell.shape
        elif cell in self.shared:
            base, shape = self.shared[cell], cell.shape
        else:
            home = self.homes[cell]
            base, start, shape = self.shared[home.memory], home.start, cell.left
        name = self.names.fresh(cell.hint or "t")
        self.local[cell] = name
        dims = ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "")
        whole = f"reshaped({base}, ({dims}))"
        view = f"part({base}, {start}, ({dims}))" if start else whole
        # A view is made at the top of the function, where every loop can see it, or at the top of
        # the round for an array that the round renames.
        level = next((k for k, s in enumerate(self.starts) if base in s[1]), -1)
        at = self.views if level < 0 else self.starts[level][0]
        depth = 1 if level < 0 else self.starts[level][2]
        self.lines.insert(at, f"{INDENT * depth}{name} = {view}")
        self.written.insert(at, None)
        self.views += level < 0
        if level >= 0:
            self.starts[level][1].add(name)
        for k in range(max(level, 0), len(self.starts)):
            line, turning, deep = self.starts[k]
            self.starts[k] = line + 1, turning, deep
        return name

    def entry(self, k: Affine | Indirect) -> str:
        if isinstance(k, Indirect):
            return f"wrapped({self.text(k.read)}, {k.extent})"
        return k.text(self.loops.__getitem__)


EMITTED: dict[type[Step], Callable[[_KernelEmitter, Any], None]] = {
    Loop: _KernelEmitter._loop,
    Recurrence: emit_recurrence,
    Gemm: emit_product,
    Routine: _KernelEmitter._routine,
    ArgUpdate: _KernelEmitter._arg_update,
    CheckRange: _KernelEmitter._check_range,
    CheckGuard: _KernelEmitter._check_guard,
}
