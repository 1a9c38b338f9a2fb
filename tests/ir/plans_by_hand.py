"""Small plans for tests, written step by step."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegrad.ir.affine import Affine, Index
from tapegrad.ir.cells import At, Cell, Read
from tapegrad.ir.fold import SUM
from tapegrad.ir.plan import Plan
from tapegrad.ir.steps import Compute, Loop, Step
from tapegrad.ir.tape import Literal
from tapegrad.primitives.elementwise import add, copy

N = 6
I, J = Index(N), Index(N)
AT, AT_J = Affine.of(I), Affine.of(J)


def cell(*shape: int, role: str = "temporary", **fields: Any) -> Cell:
    return Cell(shape or (N,), np.dtype(np.float64), role, **fields)


def total() -> Cell:
    return Cell((), np.dtype(np.float64))


def alone(out: Cell, value: float) -> Step:
    """A number, stored."""
    return Compute(out, (), copy, (Read(None, (), Literal(np.float64(value))),))


def store(out: Cell, at: At, source: Cell, source_at: At = ()) -> Step:
    return Compute(out, at, copy, (Read(source, source_at),))


def add_up(out: Cell, source: Cell) -> Step:
    """A term of a sum, in the loop over `I`."""
    return Compute(out, (), copy, (Read(source, (AT,)),), SUM)


FIRST: At = (Affine(),)


def step(out: Cell, *reads: Cell, at: At = FIRST) -> Step:
    """out[at] = reads[at] + ..., by default of the first elements."""
    primitive = add if len(reads) > 1 else copy
    return Compute(out, at, primitive, tuple(Read(r, at) for r in reads))


def along(out: Cell, *reads: Cell) -> Step:
    """for i: out[i] = reads[i] + ..."""
    index = Index(out.shape[0])
    return Loop(index, (step(out, *reads, at=(Affine.of(index),)),))


def plan(*steps: Step) -> Plan:
    """The steps, with the arguments and results among their cells."""
    roles: dict[str, dict[Cell, None]] = {"input": {}, "output": {}}
    for each in steps:
        for found, _, _ in each.accesses():
            if found.role in roles:
                roles[found.role].setdefault(found)
    return Plan("f", tuple(roles["input"]), tuple(roles["output"]), steps)
