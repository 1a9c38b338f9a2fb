"""Trees of arrays in files, from which a run continues.

A file has NumPy's own format (`np.savez`) with a description in JSON. It holds no pickled objects,
so loading a file of unknown origin runs no code. It is written to a temporary file and renamed: a
killed process leaves the last file whole.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from tapegrad.core.arrays import is_half
from tapegrad.core.statics import Keyed
from tapegrad.core.trees import is_traced
from tapegrad.errors import ArgumentError
from tapegrad.trees import tree_flatten, tree_unflatten

_NOTES = "notes"
_BLOCK = 1 << 22  # bytes read at a time for a checksum


def save_tree(path: str | os.PathLike[str], tree: Any, notes: Any = None) -> None:
    """Write the arrays and numbers of a tree, and `notes`, to a file.

    Parameters
    ----------
    path : the file, with any ending. An existing file is replaced when the new one is whole.
    tree : the tree; its numeric leaves are saved with their dtypes, bit for bit.
    notes : an object that JSON can hold.
    """
    paths, leaves, _ = tree_flatten(tree, paths=True)
    kept = [(at, np.asarray(x)) for at, x in zip(paths, leaves, strict=True) if is_traced(x)]
    held = {"notes": notes, "places": [repr(at) for at, _ in kept]}
    arrays = {f"leaf{k}": array for k, (_, array) in enumerate(kept)}
    target = Path(path).absolute()
    handle, made = tempfile.mkstemp(dir=target.parent, prefix=target.name, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, allow_pickle=False, **{_NOTES: np.array(json.dumps(held))}, **arrays)
            file.flush()
            os.fsync(file.fileno())
        os.replace(made, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(made)
        raise


def load_tree(path: str | os.PathLike[str], like: Any) -> tuple[Any, Any]:
    """Read a file of `save_tree`: `(tree, notes)`.

    Parameters
    ----------
    path : the file.
    like : a tree with the structure that was saved. Its numbers are ignored; its leaves that
        aren't numeric appear in the result.

    Raises
    ------
    ArgumentError : the file holds another tree (places, shapes or dtypes), or another format.
    """
    held, found = _read(path)
    paths, leaves, structure = tree_flatten(like, paths=True)
    wanted = [k for k, x in enumerate(leaves) if is_traced(x)]
    places = [repr(paths[k]) for k in wanted]
    if held["places"] != places:
        other = sorted(set(held["places"]) ^ set(places))
        raise ArgumentError(
            f"{os.fspath(path)} holds another tree: {', '.join(other[:3]) or 'its order'} differs"
        )
    for k, place, array in zip(wanted, places, found, strict=True):
        there = np.asarray(leaves[k])
        if is_half(there.dtype) and array.dtype == f"V{there.itemsize}":
            array = array.view(there.dtype)  # NumPy's files can't name dtypes of other packages
        if (there.shape, there.dtype) != (array.shape, array.dtype):
            raise ArgumentError(
                f"{os.fspath(path)} has {array.dtype}{list(array.shape)} at {place}, and "
                f"{there.dtype}{list(there.shape)} is wanted"
            )
        leaves[k] = array if isinstance(leaves[k], np.ndarray) else array[()]
    return tree_unflatten(structure, leaves), held["notes"]


def digest(tree: Any) -> str:
    """A fingerprint of the arrays of a tree: their shapes, dtypes and a checksum of their bytes."""
    said: list[Any] = []
    for x in tree_flatten(tree)[0]:
        if isinstance(x, Keyed):  # a column that isn't numeric
            said.append(zlib.crc32(repr(x.key).encode()) if x.key == x.key else None)
            continue
        array, checksum = np.asarray(x), 0
        rows = max(1, _BLOCK * len(array) // max(array.nbytes, 1)) if array.ndim else 1
        for k in range(0, len(array) if array.ndim and not array.dtype.hasobject else 0, rows):
            checksum = zlib.crc32(np.ascontiguousarray(array[k : k + rows]).tobytes(), checksum)
        said.append((array.shape, str(array.dtype), checksum))
    return f"{zlib.crc32(repr(said).encode()):08x}"


def load_notes(path: str | os.PathLike[str]) -> Any:
    """The notes of a file of `save_tree`."""
    return _read(path)[0]["notes"]


def _read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], list[np.ndarray]]:
    """The description in a file, and its arrays."""
    try:
        with open(path, "rb") as opened, np.load(opened, allow_pickle=False) as file:
            held = json.loads(str(file[_NOTES]))
            return held, [file[f"leaf{k}"] for k in range(len(held["places"]))]
    except (KeyError, ValueError, EOFError, TypeError, zipfile.BadZipFile) as error:
        raise ArgumentError(f"{os.fspath(path)} isn't a file of save_tree ({error})") from None
