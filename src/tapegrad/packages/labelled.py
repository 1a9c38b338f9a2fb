"""xarray's DataArrays and Datasets as pytrees: their numbers are leaves, and their labels belong
to the structure, as pandas' do.

xarray computes on any array that implements NumPy's functions, including traced ones. So its own
code runs, and only the flattening and unflattening of its objects is declared here.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from tapegrad.errors import ArgumentError
from tapegrad.extending.arrays import Tracer
from tapegrad.extending.tables import (
    Functions,
    Returnable,
    contents_key,
    exact_key,
    index_key,
    unlike,
)

_ALONE = object()  # the key of a DataArray's own variable


class Labels(Returnable):
    """The structure of an xarray object: its named variables, emptied where they are leaves, and
    the names of the leaves."""

    def __init__(self, x: Any, variables: dict[Any, Any], names: Sequence[Any]) -> None:
        held = {name: _emptied(v) if name in names else _kept(v) for name, v in variables.items()}
        self.names = tuple(names)
        self.shapes = [held[name].shape for name in names]
        self.x, self.held = _with(x, held), held
        indices = x.xindexes
        keys = [
            (
                name is _ALONE or _key(name),
                v.dims,
                v.dtype if name in names else _contents(v, indices.get(name)),
                _mapping_key(v.attrs),
                _mapping_key(v.encoding),
            )
            for name, v in held.items()
        ]
        own = () if _is_array(x) else (_mapping_key(x.attrs), _mapping_key(x.encoding))
        name = _key(x.name) if _is_array(x) else None
        kinds = tuple([(_key(name), type(index)) for name, index in indices.items()])
        self.key = type(x), name, tuple(keys), kinds, own, self.names

    def __repr__(self) -> str:
        return f"a {type(self.x).__name__} with the dimensions {tuple(self.x.sizes)}"


def _is_array(x: Any) -> bool:
    return type(x).__name__ == "DataArray"


def _variables(x: Any) -> dict[Any, Any]:
    return {_ALONE: x._variable, **x._coords} if _is_array(x) else {**x._variables}


def _with(x: Any, variables: dict[Any, Any]) -> Any:
    """The object with other variables."""
    if not _is_array(x):
        return x._replace(variables)
    coords = {name: v for name, v in variables.items() if name is not _ALONE}
    return x._replace(variables[_ALONE], coords, indexes={**x._indexes})  # which can be popped from


def _emptied(v: Any) -> Any:
    return _filled(v, np.broadcast_to(np.zeros((), v.dtype), v.shape))


def _kept(v: Any) -> Any:
    """A variable as it is now, safe from later writes; index variables never change."""
    return v if type(v).__name__ == "IndexVariable" else v.copy(deep=True)


def _filled(v: Any, data: Any) -> Any:
    made = copy.copy(v)
    made._data = data
    return made


def _contents(v: Any, index: Any) -> Any:
    held = getattr(index, "index", None)  # pandas' index
    if type(v).__name__ == "IndexVariable" and held is not None:
        return index_key(held)
    return v.shape, contents_key(np.ravel(v.values))


def _key(x: Any) -> Any:
    return exact_key(x) or unlike()


def _mapping_key(attrs: Any) -> Any:
    return tuple([(_key(name), _key(value)) for name, value in attrs.items()])


def taken_apart(x: Any) -> tuple[list[Any], Labels]:
    """The leaves of an object, its numeric variables, and its labels."""
    variables = _variables(x)
    coords = x._coords if _is_array(x) else x._coord_names
    names = [
        name
        for name, v in variables.items()
        if v.dtype.kind in "fciub" and (name not in coords or isinstance(v._data, Tracer))
    ]
    numbers = [variables[name] for name in names]
    branches = [v._data if isinstance(v._data, np.ndarray) else v.values for v in numbers]
    return branches, Labels(x, variables, names)


def put_together(labels: Labels, branches: Sequence[Any]) -> Any:
    """The object with these labels and leaves."""
    there = {
        name: x for name, x in zip(labels.names, branches, strict=True) if x is not None
    }  # None: integers have no cotangent
    if labels.names and not there:
        return None
    for x, shape in zip(branches, labels.shapes, strict=True):
        if isinstance(x, (np.ndarray, np.generic, Tracer)) and x.shape != shape:
            raise ArgumentError(
                f"{labels!r} would get numbers of shape {x.shape} in the place of {shape}. A "
                "function of many rows, and a derivative that has more axes than its argument, is "
                "one of its numbers: pass x.values, and make the DataArray of that in the function"
            )
    variables = {
        name: _filled(v, there[name]) if name in there else _kept(v)
        for name, v in labels.held.items()
        if name in there or name not in labels.names
    }
    return _with(labels.x, variables)


def key_of(cls: type, labels: Labels) -> Any:
    return labels.key


def names_of(labels: Labels) -> list[str]:
    """The names of the leaves in messages."""
    return ["" if name is _ALONE else str(name) for name in labels.names]


def how(cls: type) -> Functions | None:
    """The tree functions of one of xarray's classes; None for other classes."""
    xarray: Any = sys.modules.get("xarray")
    if cls not in (getattr(xarray, "DataArray", None), getattr(xarray, "Dataset", None)):
        return None
    return Functions(taken_apart, put_together, key_of, names_of)
