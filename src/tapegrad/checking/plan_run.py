"""An interpreter of plans in plain Python, element by element: the oracle between tapes and
kernels.

Each cell has memory of its own, or shares memory as an allocation says. Each element of memory
knows which cell's element it holds. So wrong reads are found even where the numbers happen to
agree:

- of an element that isn't written yet, in this iteration or kernel,
- of an element that another cell or iteration has overwritten,
- of a sum before all its terms are added.

Short names: `m` a position in memory, `owner` the number of the element stored there.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from tapegrad.checking.elements import Memory, missing, product
from tapegrad.core.handlers import quiet
from tapegrad.ir.affine import Affine, Index
from tapegrad.ir.allocation import Allocation, Slot, extent, left_of, strides
from tapegrad.ir.cells import At, Cell, Indirect, Read
from tapegrad.ir.fold import Fold
from tapegrad.ir.plan import Plan, Recurrence, segments
from tapegrad.ir.plan_text import malformed, show_step
from tapegrad.ir.steps import (
    ArgUpdate,
    CheckGuard,
    CheckRange,
    Compute,
    Cut,
    Gemm,
    Loop,
    PythonCall,
    Routine,
    Step,
)

APART = Allocation((), {})  # each cell has memory of its own


@dataclass
class Outcome:
    """The results of a plan, or the status with which it stopped; and the scalars that its guards
    checked, by status."""

    results: list[np.ndarray]
    status: int
    checked: dict[int, Any]


def run_plan(
    plan: Plan,
    values: Sequence[Any],
    allocation: Allocation | None = None,
    nested: Collection[Cell] = (),
    stops: bool = True,
    call: Callable[..., Any] = lambda primitive, *xs: primitive.evaluate(*xs),
) -> Outcome:
    """Run a plan on the values of all its inputs. Raises an InternalError if it reads invalid
    memory.

    With an allocation, registers end with their kernel, and the `nested` ones are computed where
    they are read. Unless it `stops`, guards are recorded only. `call` evaluates primitives with
    NumPy.
    """
    machine = _Machine(plan, allocation, frozenset(nested), stops, call)
    return quiet(machine.run)(values)


class _Stop(Exception):
    """The plan stops with a status."""


Action = Callable[[], None]
Number = Callable[[], int]
Locator = Callable[[], tuple[int, int]]  # (position in memory, number of the element)


@dataclass
class _Machine:
    plan: Plan
    allocation: Allocation | None
    nested: frozenset[Cell]
    stops: bool
    call: Callable[..., Any]
    env: dict[Index, int] = field(default_factory=dict)
    memories: dict[Slot | Cell, Memory] = field(default_factory=dict)
    numbers: dict[Cell, int] = field(default_factory=dict)  # number of each cell's first element
    elements: int = 0
    waiting: dict[Cell, Callable[[], Any]] = field(default_factory=dict)
    checked: dict[int, Any] = field(default_factory=dict)

    def run(self, values: Sequence[Any]) -> Outcome:
        for cell, value in zip(self.plan.inputs, values, strict=True):
            memory, start, number = self.home(cell)
            flat = np.asarray(value, cell.dtype).reshape(-1)
            assert start == 0 and len(flat) == extent(cell), "a value of another shape"
            memory.values[:] = list(flat)
            memory.owners[:] = range(number, number + len(flat))
        try:
            for segment in segments(self.plan.steps):
                if self.allocation is not None and not self.plan.among:
                    self.waiting.clear()
                    self.forget_registers(self.memories)
                steps = [segment] if isinstance(segment, PythonCall) else segment
                for step in steps:
                    self.action(step)()
        except _Stop as stop:
            return Outcome([], stop.args[0], self.checked)
        return Outcome([self.result(c) for c in self.plan.outputs], 0, self.checked)

    def result(self, cell: Cell) -> np.ndarray:
        memory, _, number = self.home(cell)
        for k, owner in enumerate(memory.owners):
            if owner != number + k:
                self.fail("a result isn't written whole", None, cell)
        return np.array(memory.values, cell.dtype).reshape(cell.outer)

    def forget_registers(self, among: Iterable[Any]) -> None:
        for cell in among:
            if isinstance(cell, Cell) and cell.in_register and cell in self.memories:
                self.memories[cell].forget()

    # ---- memory

    def home(self, cell: Cell) -> tuple[Memory, int, int]:
        """The memory of a cell, its start there, and the number of its first element."""
        root = cell.root
        home = (self.allocation or APART).home(root)
        if home.memory not in self.memories:
            where = home.memory
            size = where.size if isinstance(where, Slot) else extent(where)
            self.memories[where] = Memory.of(size)
        if root not in self.numbers:
            self.numbers[root] = self.elements
            self.elements += math.prod(root.shape)
        return self.memories[home.memory], home.start, self.numbers[root]

    def fail(self, message: str, step: Step | None, cell: Cell) -> NoReturn:
        line = "" if step is None else f" in `{show_step(self.plan, step)}`"
        raise malformed(self.plan, f"{message}{line}", cell=cell)

    def number(self, k: Affine) -> Number:
        """A function that evaluates an affine index."""
        env, const = self.env, k.const
        if not k.terms:
            return lambda: const
        if len(k.terms) == 1:
            ((index, factor),) = k.terms
            return lambda: env[index] * factor + const
        terms = k.terms
        return lambda: const + sum([env[i] * c for i, c in terms])

    def entry(self, k: Affine | Indirect, step: Step) -> Number:
        if isinstance(k, Affine):
            return self.number(k)
        value, size = self.read(k.read, step), k.extent

        def wrapped() -> int:
            found = int(value())
            found += size if found < 0 else 0
            return found if 0 <= found < size else 0  # the plan stops with a status later

        return wrapped

    def place(self, cell: Cell, at: At, step: Step) -> Locator:
        """A function that returns the position and number of an element of a cell."""
        _, start, number = self.home(cell)
        left = left_of(cell, at)
        if all(isinstance(k, Affine) for k in at):
            element = self.number(_dot(at, cell.shape) + number)
            if cell.axes is None:
                shift = start - number
                return lambda: ((owner := element()) + shift, owner)
            within = self.number(_dot(left, cell.left) + start)
            return lambda: (within(), element())
        entries = [self.entry(k, step) for k in at]
        axes = range(len(at)) if cell.axes is None else cell.axes
        steps, full = strides(cell.left), strides(cell.shape)

        def found() -> tuple[int, int]:
            values = [entry() for entry in entries]
            m = start + sum(values[a] * s for a, s in zip(axes, steps, strict=True))
            return m, number + sum(map(operator.mul, values, full))

        return found

    def read(self, read: Read, step: Step) -> Callable[[], Any]:
        if read.literal is not None:
            value = read.literal.value
            return lambda: value
        if read.pieces:
            pieces = [(piece, self.read(piece.read, step)) for piece in read.pieces]
            return lambda: next((value() for piece, value in pieces if piece.holds(self.env)), 0)
        if read.cell is None:
            (k,) = read.at
            entry = self.entry(k, step)
            return lambda: np.int64(entry())
        if read.cell in self.waiting:
            return self.waiting[read.cell]
        return self.reading(read.cell, read.at, step)

    def reading(self, cell: Cell, at: At, step: Step) -> Callable[[], Any]:
        memory, _, _ = self.home(cell)
        values, owners, was_read = memory.values, memory.owners, memory.was_read
        place = self.place(cell, at, step)

        def value() -> Any:
            m, owner = place()
            if owners[m] != owner:
                self.fail(missing(owners[m]), step, cell)
            was_read[m] = True
            return values[m]

        return value

    def storing(
        self, cell: Cell, at: At, step: Step, combine: Fold | None = None
    ) -> Callable[[Any], None]:
        memory, _, _ = self.home(cell)
        place = self.place(cell, at, step)
        kind = cell.dtype.type
        if combine is not None:
            combined, running = combine.function, combine.running

            def add(value: Any) -> None:
                m, owner = place()
                self.check_total(memory, m, owner, step, cell, running)
                memory.values[m] = kind(combined(memory.values[m], value))

            return add

        def store(value: Any) -> None:
            m, owner = place()
            self.take(memory, m, owner, step, cell)
            memory.values[m] = kind(value)

        return store

    def take(self, memory: Memory, m: int, owner: int, step: Step, cell: Cell) -> None:
        """Register a new value at `m`. If the old value of the same element was read, that read was
        too early, unless rounds update the element."""
        again = memory.owners[m] == owner and memory.writers[m] is not step
        if again and memory.was_read[m] and cell.root.role != "state":
            self.fail("it is written again after it was read", step, cell)
        memory.owners[m] = owner
        memory.writers[m] = step
        memory.was_read[m] = False

    def check_total(
        self, memory: Memory, m: int, owner: int, step: Step, cell: Cell, running: bool = False
    ) -> None:
        if memory.owners[m] != owner:
            self.fail(missing(memory.owners[m]), step, cell)
        if memory.was_read[m] and not running and cell.root.role != "state":
            self.fail("it was read before all its terms were in it", step, cell)

    # ---- arrays

    def part(self, cell: Cell, at: At) -> tuple[Memory, Locator, int, tuple[int, ...]]:
        """The part of an array selected by leading indices, as (memory, locator, size, shape)."""
        memory, start, number = self.home(cell)
        shape = cell.shape[len(at) :]
        first = self.number(_dot(at, cell.shape) + number)

        def place() -> tuple[int, int]:
            owner = first()
            return start + owner - number, owner

        return memory, place, math.prod(shape), shape

    def array(
        self, cell: Cell, at: At, step: Step, swapped: bool = False, kept: bool = True
    ) -> np.ndarray:
        """The part of a cell as an array. Unless `kept`, the step that reads it overwrites it."""
        memory, place, size, shape = self.part(cell, at)
        m, owner = place()
        if memory.owners[m : m + size] != list(range(owner, owner + size)):
            found = next(o for k, o in enumerate(memory.owners[m : m + size]) if o != owner + k)
            self.fail(missing(found), step, cell)
        for k in range(m, m + size):
            if not kept:
                self.check_total(memory, k, owner + k - m, step, cell)
            else:
                memory.was_read[k] = True
        found_ = np.array(memory.values[m : m + size], cell.dtype).reshape(shape)
        return found_.swapaxes(-1, -2) if swapped else found_

    def fill(self, cell: Cell, at: At, value: Any, step: Step) -> None:
        memory, place, size, shape = self.part(cell, at)
        m, owner = place()
        flat = np.broadcast_to(np.asarray(value).astype(cell.dtype), shape).reshape(-1)
        for k in range(size):
            self.take(memory, m + k, owner + k, step, cell)
        memory.values[m : m + size] = list(flat)

    # ---- steps

    def action(self, step: Step) -> Action:
        """A function that runs a step."""
        found: Action = ACTIONS[type(step)](self, step)
        return found

    def stop(self, status: int) -> None:
        raise _Stop(status)

    def loop(self, loop: Loop) -> Action:
        env, index = self.env, loop.index
        env[index] = 0
        body = [self.action(step) for step in loop.body]
        limit = None if index.limit is None else self.number(index.limit)

        def steps() -> Iterable[int]:
            if loop.chunk is not None:
                chunk, rows = loop.chunk
                first = env[chunk] * rows
                return range(first, min(first + rows, index.extent), loop.step)
            if loop.start is not None:
                first = env[loop.start]
                return range(first, min(first + loop.step, index.extent))
            return range(0, index.extent if limit is None else limit(), loop.step)

        inside = {cell.root for cell, _, writes in loop.accesses() if writes}

        def run() -> None:
            # Chunks are independent, so running them in reverse must give the same results. In a
            # round they know the registers that they don't write.
            order = reversed(list(steps())) if loop.parallel else steps()
            for value in order:
                if loop.parallel:
                    self.forget_registers(inside if self.plan.among else self.memories)
                env[index] = value
                for act in body:
                    act()

        return run

    def compute(self, step: Compute) -> Action:
        reads = [self.read(r, step) for r in step.reads]
        evaluate = step.primitive.evaluate
        if step.cell in self.nested:
            kind = step.cell.dtype.type
            self.waiting[step.cell] = lambda: kind(evaluate(*[read() for read in reads]))
            return lambda: None
        store = self.storing(step.cell, step.at, step, step.combine)
        if len(reads) == 1:
            (read,) = reads
            return lambda: store(evaluate(read()))
        return lambda: store(evaluate(*[read() for read in reads]))

    def arg_update(self, step: ArgUpdate) -> Action:
        value, position = self.read(step.read, step), self.number(step.position)
        best_memory, _, _ = self.home(step.best)
        best_place, place = (self.place(c, step.at, step) for c in (step.best, step.cell))
        memory, _, _ = self.home(step.cell)
        better = operator.lt if step.better == "<" else operator.gt

        def update() -> None:
            new = value()
            m, owner = best_place()
            self.check_total(best_memory, m, owner, step, step.best)
            best = best_memory.values[m]
            k, number = place()
            self.check_total(memory, k, number, step, step.cell)
            if better(new, best) or (new != new and best == best):
                best_memory.values[m] = step.best.dtype.type(new)
                memory.values[k] = step.cell.dtype.type(position())

        return update

    def routine(self, step: Routine) -> Action:
        flags = [self.storing(cell, step.at, step) for cell in step.results]

        def run() -> None:
            arrays = [
                self.array(*step.arrays[k][:2], step, step.arrays[k][2], k >= step.written)
                for k in step.read
            ]
            found = step.primitive.replayed(*arrays)
            values = iter(found if isinstance(found, tuple) else (found,))
            written = step.arrays[: len(step.primitive.overwrites)]  # the others are workspace
            for (cell, at, _), value in zip(written, values, strict=False):
                self.fill(cell, at, value, step)
            for store, value in zip(flags, values, strict=True):
                store(value)

        return run

    def check_range(self, step: CheckRange) -> Action:
        flag = self.reading(step.flag, (), step)
        return lambda: self.stop(step.status) if flag() else None

    def recurrence(self, step: Recurrence) -> None:
        """Run a loop round by round, each in fresh memory that holds only the results of the last
        round."""
        values = [
            self.entering(cell, read, step, number < step.carried)
            for number, (cell, read) in enumerate(zip(step.plan.inputs, step.reads, strict=True))
        ]
        count = step.carried
        begin = 0 if step.begin is None else int(self.read(step.begin, step)())
        rounds = range(begin, min(int(self.read(step.rounds, step)()), step.index.extent))
        going = None if step.until is None else bool(self.read(step.until, step)())
        made = 0
        for number in reversed(rounds) if step.backwards else rounds:
            if going is False:
                break
            made += 1
            env = {**self.env, step.index: number}
            inner = _Machine(step.plan, step.allocation, frozenset(), self.stops, self.call, env)
            found = inner.run(values)
            self.checked.update((step.first + k, x) for k, x in found.checked.items())
            if found.status:
                self.stop(step.first + found.status)
            values[:count] = found.results[:count]
            going = None if going is None else bool(found.results[count])
        for cell in (*step.places, *step.scratch):
            memory, start, _ = self.home(cell)
            memory.forget(start, extent(cell.root))
        ends: list[Any] = values[:count] if going is None else [*values[:count], made, going]
        for cell, value in zip(step.outs, ends, strict=True):
            self.fill(cell, (), value, step)

    def entering(self, cell: Cell, read: Read, step: Recurrence, carried: bool) -> Any:
        """The initial value of an input of a round."""
        if not cell.shape:
            return self.read(read, step)()
        if not carried:
            assert read.cell is not None
            return self.array(read.cell, read.at, step)
        return self.begun(cell, read.cell)

    def begun(self, like: Cell, cell: Cell | None) -> Any:
        """A cell's value, parts of which may be unset. Unset elements are NaN or 99, which no
        result may depend on."""
        value = np.full(like.shape, np.nan if like.dtype.kind == "f" else 99).astype(like.dtype)
        if cell is not None:
            memory, place, size, _ = self.part(cell, ())
            m, owner = place()
            flat = value.reshape(-1)
            for k in range(size):
                if memory.owners[m + k] == owner + k:
                    flat[k] = memory.values[m + k]
        return value

    def python_call(self, step: PythonCall) -> None:
        given: list[Any] = []
        for x in step.reads:
            if isinstance(x, Cell):
                given.append(self.begun(x, x) if x in step.outs else self.array(x, (), step)[()])
            else:
                given.append(x.value)
        found = self.call(step.primitive, *given)
        for out, value in zip(
            step.outs, found if step.primitive.results > 1 else (found,), strict=True
        ):
            self.fill(out, (), value, step)

    def check_guard(self, step: CheckGuard) -> Action:
        value = self.read(step.read, step)

        def check() -> None:
            found = self.checked[step.status] = value()
            if self.stops and found != step.expected.value:
                self.stop(step.status)

        return check


ACTIONS: dict[type[Step], Callable[[_Machine, Any], Action]] = {
    Loop: _Machine.loop,
    Compute: _Machine.compute,
    ArgUpdate: _Machine.arg_update,
    Gemm: lambda machine, step: lambda: product(machine, step),
    Routine: _Machine.routine,
    Recurrence: lambda machine, step: lambda: machine.recurrence(step),
    PythonCall: lambda machine, step: lambda: machine.python_call(step),
    CheckRange: _Machine.check_range,
    CheckGuard: _Machine.check_guard,
    Cut: lambda machine, step: lambda: None,
}


def _dot(at: At, shape: tuple[int, ...]) -> Affine:
    """The number of an element of a row-major array."""
    total = Affine()
    for k, stride in zip(at, strides(shape), strict=False):
        assert isinstance(k, Affine)
        total += k * stride
    return total
