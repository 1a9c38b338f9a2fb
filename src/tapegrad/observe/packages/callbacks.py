"""The program's code that a package calls, in a call that each call of the derivative repeats.

The result of such a call is compared, so the reads of the program's code don't matter. The code
must not reach traced values, nor set variables that aren't its own.
"""

from __future__ import annotations

import functools
import types
from types import CodeType
from typing import Any

from tapegrad.core.listing import instructions_of
from tapegrad.core.named import own_attribute
from tapegrad.observe.activations.run_record import RunRecord
from tapegrad.observe.objects import inspection
from tapegrad.observe.objects.purity import is_changeable, is_pythons_class, is_users_file
from tapegrad.observe.packages.opaque import names_in


def users_parts(o: RunRecord, reached: list[Any], x: Any) -> list[Any] | None:
    """The parts of a function, class or object of the program's. None for any other object, and for
    one that may hold traced values or set variables. Objects that it may change are added to
    `reached`."""
    kind: Any = type(x)
    if kind is types.FunctionType:
        if not is_users_file(x.__code__.co_filename, o.home):
            return None
        if sets_variables(x.__code__):
            return None
        held = [x.__globals__[name] for name in names_in(x.__code__) if name in x.__globals__]
        cells = [cell.cell_contents for cell in x.__closure__ or () if cell != types.CellType()]
        parts = [*held, *cells, *(x.__defaults__ or ()), *(x.__kwdefaults__ or {}).values()]
    elif isinstance(x, type):
        if not (is_changeable(x) and o.lookups.is_users_class(x)):
            return None
        parts = [*x.__mro__[1:], *(_called_by(v) for v in vars(x).values())]
    elif is_pythons_class(kind) and o.lookups.is_users_class(kind):
        parts = [kind, *(inspection.own_names(x) or {}).values(), *inspection.in_slots(x)]
        parts += inspection.values(x) if inspection.base_of(kind) is not None else []
    else:
        return None
    reached += [x, *parts]
    return parts


def _called_by(x: Any) -> Any:
    """The function that an attribute of a class calls."""
    return getattr(x, "fget", own_attribute(x, "__func__", x))


@functools.lru_cache(maxsize=1024)
def sets_variables(code: CodeType) -> bool:
    """Whether code, or a function in it, sets variables that aren't its own."""
    for x in instructions_of(code):
        if x.opname in ("STORE_GLOBAL", "DELETE_GLOBAL", "IMPORT_STAR"):
            return True
        if x.opname in ("STORE_DEREF", "DELETE_DEREF") and x.argval in code.co_freevars:
            return True
    return any(isinstance(x, CodeType) and sets_variables(x) for x in code.co_consts)
