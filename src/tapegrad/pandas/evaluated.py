"""Expressions as text: `x.eval("a * b")`, `x.query("a > @least")`.

pandas parses the text and evaluates it by Python's operators, with the traced columns instead
of its own. The program's variables that are named in the text count as read.
"""

from __future__ import annotations

from typing import Any

from tapegrad.extending import declare, declare_late, unobserved
from tapegrad.extending.arrays import Tracer, strong
from tapegrad.extending.runs import names_in, note_variables, observer, user_frames
from tapegrad.extending.tables import pandas
from tapegrad.pandas.arranging import has_traced
from tapegrad.pandas.labelled import Labelled, plain_of, refused, stood_in


def _of_caller(expr: Any, given: dict[str, Any]) -> dict[str, Any]:
    """The caller's variables, which a text may name, as arguments for pandas."""
    frame, here = next(user_frames()), observer()
    if "level" in given:
        raise refused("an expression with level=", "Pass the variables: local_dict={...}")
    if here is not None:
        note_variables(here, frame, expr)
    found = {"local_dict": frame.f_locals, "global_dict": frame.f_globals} | given
    variables = found["local_dict"].items()  # pandas reads the dtype of each
    found["local_dict"] = {k: strong(v) if isinstance(v, Tracer) else v for k, v in variables}
    return found


def _table(x: Any, inplace: bool) -> Any:
    if inplace and not isinstance(x, Labelled):
        raise refused("a plain DataFrame that is changed by a text", "Take what it returns")
    return stood_in(x)


@unobserved
def evaluated(x: Any, expr: Any, *, inplace: bool = False, **kwargs: Any) -> Any:
    """`x.eval(expr)`"""
    x = _table(x, inplace)
    plain, columns = plain_of(x), dict(enumerate(x._labels.columns))
    there = [k for k, name in columns.items() if not isinstance(name, int)]
    named = dict(zip(plain._get_cleaned_column_resolvers(), map(x._series, there), strict=True))
    given = {"target": x} | _of_caller(expr, kwargs) | {"engine": "python"}
    given["resolvers"] = (*given.get("resolvers", ()), named, plain._get_index_resolvers())
    if inplace:
        given["inplace"] = True
    return pandas().eval(expr, level=1, **given)


@unobserved
def queried(x: Any, expr: Any, *, inplace: bool = False, **kwargs: Any) -> Any:
    """`x.query(expr)`"""
    x = _table(x, inplace)
    at = evaluated(x, expr, target=None, **kwargs)
    try:
        found = x.loc[at]
    except ValueError:
        found = x[at]
    if not inplace:
        return found
    x._labels, x._branches = found._labels, found._branches
    return None


def _names_traced(args: Any) -> bool:
    """Whether a text names a traced variable."""
    held = next(user_frames()).f_locals
    return any(has_traced([held[name]]) for name in names_in(args[1:2]) if name in held)


def _declare() -> None:
    for name, by in (("eval", evaluated), ("query", queried)):
        declare(pandas().DataFrame, name, by, when=_names_traced)


declare_late("pandas", _declare)
