"""Handlers of operators, comparisons and tests: what each instruction reads. Each function handles
one kind of instruction for the activation `a`, and may return a recorder of the result."""

from __future__ import annotations

from types import CodeType
from typing import Any

import numpy as np

from tapegrad.errors import TapegradError
from tapegrad.observe.activations.activation import Activation
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.guards.uses import Then, both
from tapegrad.observe.objects.purity import CONTAINERS, INERT, MAPPINGS, SEQUENCES
from tapegrad.observe.operands.filled_arrays import fill
from tapegrad.observe.operands.plain_operands import put_key
from tapegrad.observe.operands.replacement import put_operands
from tapegrad.observe.packages import library_calls
from tapegrad.observe.packages.opaque import FOLLOWED
from tapegrad.observe.program.frames import operand_at, operands, operator_of, replace
from tapegrad.observe.waiting import repeated_calls
from tapegrad.primitives.base import Value


@library_calls.watched
def binary(a: Activation, in_place: bool) -> Then | None:
    if in_place:
        fill(a, 1, 0, in_place=True)
    x, y = operands(a.stack)
    if INERT[type(x)] and INERT[type(y)]:
        asked: Any = repeated_calls.operation(a, x, y) if type(x) is str else FOLLOWED
        return None if asked is FOLLOWED else asked
    if in_place and type(x) is list and type(y) in (list, tuple):  # as `extend`
        a.o.adds(x, len(y))
        return a.o.taken([y])
    if in_place and type(x) is dict and type(y) is dict:  # as `update`
        for key in y:
            a.o.sets_item(x, key)
        return a.o.taken([y])
    if type(x) is list and type(y) is list and (joined := dispatch.joined(a.o, x)) is not None:
        return both(a.o.taken([y]), joined)
    if in_place:
        a.o.changes(x)
    for answers in (repeated_calls.operation, library_calls.operation):
        if (asked := answers(a, x, y)) is not FOLLOWED:
            return asked
    read = put_operands(a, x, y)
    if type(x) is str:
        a.o.printed(y if type(y) is tuple else [y])
    if type(x) in SEQUENCES and type(y) in (int, *SEQUENCES) and operator_of(a.frame) is not None:
        return a.o.taken(a.o.gone_through(read))  # `[x] * n` doesn't read inside the items
    return a.o.operands(read)


def compare(a: Activation, asks_truth: bool) -> Then | None:
    if asks_truth:  # the truth of its result is read within the instruction
        a.direct = None
        a.numbers = all(isinstance(x, (int, float, Value)) for x in (a.top(0), a.top(1)))
    return binary(a, False)


@library_calls.watched
def unary(a: Activation, _: Any) -> Then | None:
    x = a.top()
    if INERT[type(x)]:
        return None
    asked: Any = library_calls.operation(a, x)
    return a.o.operands([x]) if asked is FOLLOWED else asked


def contains(a: Activation, _: Any) -> Then | None:
    put_key(a, 1, a.top(0), "__contains__")
    held, x = a.top(0), a.top(1)
    if type(held) in SEQUENCES:
        a.o.identities.sought(x, held)
    if type(held) in MAPPINGS or type(held) in (set, frozenset):
        a.o.kind(x)
        a.o.reads.pin(x)
        if type(held) in MAPPINGS:
            return a.o.item(held, x, makes=False)
    return a.o.operands([held, x])


def truth(a: Activation, _: Any) -> Then | None:
    x = a.top()
    if a.turning is not None or type(x) in (bool, np.bool_):
        dispatch.tested(a, x)
    if INERT[type(x)]:
        return None
    if type(x) in CONTAINERS:
        a.o.truth(x)
        return None
    return a.o.operands([x])


# Their results go to C code, which takes plain booleans and integers alone.
RETURN_PLAINLY = ("__bool__", "__index__", "__hash__")


def _returns_plainly(code: CodeType, variables: dict[str, Any]) -> bool:
    """Whether this is the code of such a method: `__bool__ = lambda self: self.value > 3`."""
    if code.co_argcount != 1:
        return False
    own = type(variables.get(code.co_varnames[0]))
    return any(getattr(getattr(own, n, None), "__code__", None) is code for n in RETURN_PLAINLY)


def returned(a: Activation, name: str) -> None:
    """Replace what one of these special methods returns by the number, which is guarded."""
    x: Any = a.top()
    kind: Any = x.__class__  # that of the number which a traced one stands for
    if not (isinstance(x, Value) and kind in (bool, int)):
        return
    if name in RETURN_PLAINLY or _returns_plainly(a.frame.f_code, a.frame.f_locals):
        try:
            replace(operand_at(a.stack, 0), kind(x))
        except TapegradError as error:
            a.o.refuse(error)


def is_builtin(a: Activation, _: Any) -> None:
    """Replace the built-in function that the program's `all` is compared with, so that the program
    calls its own. See `core/listing.py`."""
    replace(operand_at(a.stack, 0), object())


def identity(a: Activation, _: Any) -> None:
    x, y = a.top(1), a.top(0)
    try:
        same = a.o.identities.same(x, y, a.users)
    except TapegradError as error:  # for instance in a rule, where only types are known
        a.o.refuse(error)
        return
    if same and x is not y:
        replace(operand_at(a.stack, 1), y)
