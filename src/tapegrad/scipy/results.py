"""Reports of SciPy's functions: further results, such as messages and counts."""

from __future__ import annotations

from typing import Any

from tapegrad.extending import Carrier, at_line, refusal


class Untold:
    """A report that belongs to the traced call. Reading it is refused."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getitem__(self, *key: Any) -> Any:
        raise refusal(f"what {self._name} tells of its work can't be traced{at_line()}")

    def __getattr__(self, name: str) -> Any:
        return self[name]

    def __iter__(self) -> Any:
        return self[0]

    __len__ = __contains__ = __bool__ = __eq__ = __str__ = __format__ = __getitem__
    __float__ = __array__ = __lt__ = __le__ = __gt__ = __ge__ = __neg__ = __abs__ = __getitem__
    __add__ = __sub__ = __mul__ = __truediv__ = __pow__ = __getitem__
    __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __rpow__ = __getitem__
    __array_ufunc__ = None  # NumPy's operators then call this class's
    __repr__ = object.__repr__  # printing isn't refused, for debuggers
    __hash__ = None  # type: ignore[assignment]


class Info(dict[str, Any], Carrier):
    """A dict of reported values of which only some can be traced. Reading the rest is refused."""

    def __init__(self, name: str, **fields: Any) -> None:
        super().__init__(**fields)
        self._rest = Untold(name)

    def __missing__(self, key: str) -> Any:
        return self._rest[key]

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or bool(self._rest[key])

    def get(self, key: str, default: Any = None) -> Any:
        return self[key]
