"""Entries of proxies of pandas' tables, by labels and by positions."""

from __future__ import annotations

from types import FunctionType
from typing import Any

from tapegrad.extending import unobserved
from tapegrad.extending.arrays import dispatch


class At:
    """`x.iloc`, `x.loc`, `x.iat` and `x.at`: entries by their positions or labels."""

    def __init__(self, of: Any, how: str) -> None:
        self._of, self._how = of, how

    def __getitem__(self, key: Any) -> Any:
        return self._item(of_table(key, self._of))

    @unobserved
    def _item(self, key: Any) -> Any:
        x = self._of
        found = x._entry(self._how, key) if x._labels.columns is None else None
        return dispatch.table_item(x, self._how, key) if found is None else found

    def __setitem__(self, key: Any, value: Any) -> None:
        dispatch.table_write(self._of, self._how, of_table(key, self._of), value)


def of_table(key: Any, x: Any) -> Any:
    """A key; if it is a function of the program's, its result for this table."""
    if type(key) is tuple:
        return tuple([of_table(k, x) for k in key])
    return key(x) if isinstance(key, FunctionType) else key


def places(index: Any, key: Any) -> Any:
    """The positions of a label, or a list of labels, that are texts; None where pandas has to find
    them."""
    texts = key if type(key) is list else [key]
    if not texts or any(type(k) is not str for k in texts) or index.nlevels > 1:
        return None
    if not index.is_unique or any(k not in index for k in texts):
        return None
    return [int(index.get_loc(k)) for k in key] if type(key) is list else int(index.get_loc(key))
