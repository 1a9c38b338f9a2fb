"""The methods of tapes by which others read them: graphs, JSON, drawings.

`ir/graph.py` implements these methods.
"""

from __future__ import annotations

from typing import Any, Self

from tapegrad.ir.editable import METHODS


class Drawn:
    """The methods of a tape for other programs."""

    def to_networkx(self) -> Any:
        """The tape as a `networkx.DiGraph`: a node for each variable and call, edges along the data
        flow."""
        return METHODS["to_networkx"](self)

    def to_json(self) -> str:
        """The same graph as JSON: `{"name": ..., "nodes": [...], "edges": [...]}`, with all that
        `Tape.from_json` makes the tape of again."""
        return str(METHODS["to_json"](self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The tape that `to_json` has written: equal to that one, so it plays and compiles to the
        same bits. It takes its inputs, in order or by name.

        Raises a `TapeError` if the text isn't one, or the tape calls functions of the user's, which
        a text can't hold: it names the first.
        """
        found: Self = METHODS["from_json"](text)
        return found

    def to_dot(self) -> str:
        """The tape in Graphviz's language: ellipses are values, boxes are calls."""
        return str(METHODS["to_dot"](self))
