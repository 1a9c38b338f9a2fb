"""Expressions in strings that numexpr compiles: a program of steps over registers, each of which
is one NumPy function.

  evaluate("2 * x + 1")  -->  mul_ddd r0 x 2.0; add_ddd r0 r0 1.0
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numexpr import necompiler
from numexpr.necompiler import disassemble, interpreter

from tapegrad.extending import any_traced, at_line, declare, refusal, taken_by, unobserved
from tapegrad.extending.arrays import Tracer, as_array
from tapegrad.extending.runs import names_in, note_variables, observer, user_frames

_DTYPES = {"b": "?", "i": "i4", "l": "i8", "f": "f4", "d": "f8", "c": "c16"}
_NUMPYS = {
    **{"sub": "subtract", "mul": "multiply", "div": "divide", "pow": "power", "neg": "negative"},
    **{"floordiv": "floor_divide", "gt": "greater", "ge": "greater_equal", "eq": "equal"},
    **{"ne": "not_equal", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor"},
}
_AXES = ("sum", "prod", "min", "max")
_OWN = {
    "cast": lambda x, dtype: x.astype(dtype),
    "complex": lambda x, y: x + 1j * y,
}
_CALLED = {  # by types, and the function's number in a step
    (key.decode().rpartition("_")[2], code): key.decode().rpartition("_")[0]
    for key, code in interpreter.funccodes.items()
}


def _function(name: str, types: str, last: Any) -> Any:
    """The function of a step; None if NumPy has none."""
    if name == "func":
        name = _CALLED[types[:-1], last]
    if name in ("div", "floordiv", "contains") and types[0] in "ilb":
        return None  # C's integer division rounds towards 0
    return _OWN.get(name) or getattr(np, _NUMPYS.get(name, name), None)


def _names_traced(args: Any) -> bool:
    """Whether an expression names a traced variable."""
    found = next(user_frames()).f_locals
    text = "".join(x for x in args[:1] if isinstance(x, str))
    return any_traced([*args[1:], *(found[name] for name in names_in(text) if name in found)])


@unobserved
def evaluated(
    ex: str, local_dict: Any = None, global_dict: Any = None, out: Any = None, **how: Any
) -> Any:
    """The traceable `numexpr.evaluate(ex)`."""
    if out is not None and not isinstance(out, Tracer):
        raise refusal(f"numexpr with out= of an array from outside isn't followed{at_line()}")
    frame, here = next(user_frames()), observer()
    if local_dict is None and here is not None:
        note_variables(here, frame, ex)
    taken_by([x for x in (local_dict, global_dict) if x is not None])()
    inner = frame.f_locals if local_dict is None else local_dict
    outer = frame.f_globals if global_dict is None else global_dict
    context = necompiler.getContext(
        {key: x for key, x in how.items() if key not in ("order", "casting", "disable_cache")}
    )
    names, _ = necompiler.getExprNames(ex, context)
    given = [as_array(inner[name] if name in inner else outer[name]) for name in names]
    types = [(name, necompiler.getType(x)) for name, x in zip(names, given, strict=True)]
    found = _played(necompiler.NumExpr(ex, types, **context), given)
    if out is None:
        return found
    out[...] = found
    return out


def _played(program: Any, given: list[Any]) -> Any:
    """The result of a compiled expression for these arguments, step by step."""
    known = dict(enumerate(given, 1))
    for letter, x in zip(program.constsig.decode(), program.constants, strict=True):
        known[len(known) + 1] = x if letter == "s" else np.dtype(_DTYPES[letter]).type(x)
    for operation, *places in disassemble(program):
        name, _, types = operation.decode().rpartition("_")
        if operation == b"noop":
            continue
        f = _function(name, types, places[len(types) - 1])
        if f is None:
            raise refusal(f"{operation.decode()} of numexpr isn't followed{at_line()}")
        into, *at = [int(x[1:].partition(b"[")[0]) for x in places if isinstance(x, bytes)]
        values = [known[k] for k in at]
        if name == "cast":
            values.append(_DTYPES[types[0]])
        known[into] = f(*values, axis=places[2]) if name in _AXES else f(*values)
    return as_array(known[0])


def _by_others(args: Any) -> bool:
    """Whether the caller is another module than numexpr."""
    return next(user_frames()).f_globals is not vars(necompiler)


@unobserved
def _evaluated_again(*args: Any, **kwargs: Any) -> Any:
    raise refusal(
        f"numexpr.re_evaluate isn't followed{at_line()}, since calls whose trace is there don't "
        "compile expressions. Use numexpr.evaluate, which costs no more then"
    )


declare(necompiler, "evaluate", evaluated, when=_names_traced)
declare(necompiler, "re_evaluate", _evaluated_again, when=_by_others)
