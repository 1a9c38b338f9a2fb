"""Names of HIPS autograd that tapegrad lacks: its graphs of nodes, and functions that read them.

A program may import them. Any use of one is an error that says what to use instead.
"""

from __future__ import annotations

from typing import Any, NoReturn

from tapegrad.errors import UnsupportedError

_INSTEAD = {
    "a graph of nodes": (
        "tapegrad.trace(f)(*args) gives the tape of a function, which prints, and has "
        "to_networkx and to_dot"
    ),
    "a table of the rules of all functions": (
        "Declare rules with defvjp and defjvp; tapegrad.vjp(f, *args) applies those there are"
    ),
    "an object in the place of an array": (
        "Say what it holds with tapegrad.register_tree, or return an array"
    ),
}


class Absent:
    """A name that can be imported, and raises when it is used."""

    def __init__(self, name: str, what: str) -> None:
        self._name, self._what = name, what
        self.__doc__ = f"Isn't there: {what}."

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise UnsupportedError(
            f"autograd.{self._name} is for {self._what}, which tapegrad doesn't have: a "
            f"function is traced as a whole, and compiled. {_INSTEAD[self._what]}"
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # code that only inspects the module looks these up
            raise AttributeError(name)
        self._refuse()

    def __repr__(self) -> str:
        return f"<autograd.{self._name}, which tapegrad doesn't have>"

    __call__ = __getitem__ = __setitem__ = __contains__ = __iter__ = __len__ = _refuse
    __mro_entries__ = __instancecheck__ = _refuse


_GRAPH, _TABLE, _OBJECT = _INSTEAD

Node = Absent("tracer.Node", _GRAPH)
find_top_boxed_args = Absent("tracer.find_top_boxed_args", _GRAPH)
toposort = Absent("tracer.toposort", _GRAPH)
primitive_vjps = Absent("core.primitive_vjps", _TABLE)
primitive_jvps = Absent("core.primitive_jvps", _TABLE)
SparseObject = Absent("core.SparseObject", _OBJECT)
SparseBox = Absent("core.SparseBox", _OBJECT)
