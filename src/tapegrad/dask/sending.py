"""Functions and values on their way to other processes.

A function of a module is pickled by its name, and a worker imports the module anew: it would have
the globals of the import, and not those of now. So what is the user's goes by value, with what it
reaches. A worker that gets the same bytes again has the function already, and what it has compiled.
"""

from __future__ import annotations

import hashlib
import io
import sys
import weakref
from collections import ChainMap, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any, ClassVar

import numpy as np

from tapegrad.core.installed import is_installed, is_pythons
from tapegrad.core.locks import new_lock

CACHED_VALUES = 32  # values that a process keeps for others; the least recently used goes first

_lock = new_lock()
_known: OrderedDict[bytes, Sent] = OrderedDict()
_held: weakref.WeakKeyDictionary[Any, OrderedDict[str, Any]] = weakref.WeakKeyDictionary()


class Sent:
    """A value that another process gets as it is now. In this process it is the value itself."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self._bytes: bytes | None = None

    def pickled(self) -> bytes:
        """The value as bytes, as it was when they were first asked for."""
        if self._bytes is None:
            self._bytes = _pickled(self.value)
        return self._bytes

    def __reduce__(self) -> Any:
        x = self.value
        if (
            isinstance(x, np.memmap)
            and x.base is getattr(x, "_mmap", None)
            and x.filename is not None
        ):
            order = "C" if x.flags.c_contiguous else "F"
            return _mapped, (x.filename, x.dtype, x.offset, x.shape, order)
        return received, (self.pickled(),)


def received(data: bytes) -> Sent:
    """What was sent: once in a process, however often it comes."""
    import cloudpickle

    with _lock:
        sent = _known.get(data)
        if sent is None:
            sent = _known[data] = Sent(cloudpickle.loads(data))
            sent._bytes = data
        _known.move_to_end(data)
        while len(_known) > CACHED_VALUES:
            _known.popitem(last=False)
    return sent


def _mapped(name: Any, dtype: Any, offset: int, shape: Any, order: Any) -> Sent:
    """A file that is mapped elsewhere, mapped here."""
    return Sent(np.memmap(name, dtype, "r", offset, shape, order))


def everywhere(sent: Sent) -> Any:
    """What tasks take in place of a value that all of them take. In a cluster it is a task that
    unpickles it: its result goes to each worker once, and is made again where workers are lost."""
    import dask
    from dask.delayed import delayed

    client = running_client()
    if client is None:
        return delayed(sent, traverse=False)
    name = f"sent-{hashlib.blake2b(sent.pickled(), digest_size=16).hexdigest()}"
    held = _held.setdefault(client, OrderedDict())
    future = held.get(name)
    if future is None or future.status in ("cancelled", "lost", "error"):
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
            future = held[name] = client.submit(received, sent.pickled(), key=name)
    held.move_to_end(name)
    while len(held) > CACHED_VALUES:
        held.popitem(last=False)
    return future


def forgotten(client: Any) -> list[Any]:
    """What was sent to a cluster, which may not have come; it is sent again."""
    return [*_held.pop(client, {}).values()]


def running_client() -> Any:
    """The client that computes what is computed now; None if it isn't a cluster's."""
    from dask.base import get_scheduler

    if "distributed" not in sys.modules:
        return None
    owner = getattr(get_scheduler(), "__self__", None)
    return owner if hasattr(owner, "submit") else None


def _pickled(value: Any) -> bytes:
    """As cloudpickle does it, but code keeps the name of its file, for tracebacks."""
    import cloudpickle

    known = cloudpickle.CloudPickler.dispatch_table

    def code_with_file(code: CodeType) -> Any:
        make, args = known[CodeType](code)
        return make, tuple([code.co_filename if x == "<dynamic-code>" else x for x in args])

    class Pickler(cloudpickle.CloudPickler):
        dispatch_table: ClassVar = ChainMap({CodeType: code_with_file}, known)

    file = io.BytesIO()
    with _by_value():
        Pickler(file).dump(value)
    return file.getvalue()


@contextmanager
def _by_value() -> Iterator[None]:
    """While this lasts, what the user's modules define is pickled by value."""
    import cloudpickle

    with _lock:
        known = cloudpickle.list_registry_pickle_by_value()
        modules = [m for name, m in [*sys.modules.items()] if _is_users(name, m)]
        fresh = [m for m in modules if m.__name__ not in known]
        for module in fresh:
            cloudpickle.register_pickle_by_value(module)
        try:
            yield
        finally:
            for module in fresh:
                cloudpickle.unregister_pickle_by_value(module)


def _is_users(name: str, module: Any) -> bool:
    file = getattr(module, "__file__", None)
    if name == "__main__" or not isinstance(file, str) or getattr(module, "__name__", "") != name:
        return False  # what is in __main__ goes by value in any case
    ours = name.partition(".")[0] == "tapegrad"
    return not (ours or is_installed(file) or is_pythons(file))
