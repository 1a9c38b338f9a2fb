"""Functions and values on their way to other processes.

Pickle stores a function of a module by name, and a worker imports the module: it would have the
globals at import instead of the current ones. So the user's functions are sent by value, with the
objects that they reach. A worker that receives the same bytes again reuses its function, and its
compiled code.
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

CACHED_VALUES = 32  # received values that a process keeps; the least recently used is dropped

_lock = new_lock()
_known: OrderedDict[bytes, Sent] = OrderedDict()
_held: weakref.WeakKeyDictionary[Any, OrderedDict[str, Any]] = weakref.WeakKeyDictionary()


class Sent:
    """A value that is sent to other processes in its current state; here, the value itself."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self._bytes: bytes | None = None

    def pickled(self) -> bytes:
        """The value as bytes, in its state at the first call."""
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
    """The received value, one object in each process for the same bytes."""
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
    """A memory-mapped file of another process, mapped in this one."""
    return Sent(np.memmap(name, dtype, "r", offset, shape, order))


def everywhere(sent: Sent) -> Any:
    """A value as an argument of all tasks.

    In a cluster it is the future of a task that unpickles the value: the result is sent to each
    worker once, and recomputed if workers are lost.
    """
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
    """Forget the values sent to a cluster, since they may be lost, and return their futures."""
    return [*_held.pop(client, {}).values()]


def running_client() -> Any:
    """The distributed client that computes now; None without a cluster."""
    from dask.base import get_scheduler

    if "distributed" not in sys.modules:
        return None
    owner = getattr(get_scheduler(), "__self__", None)
    return owner if hasattr(owner, "submit") else None


def _pickled(value: Any) -> bytes:
    """The bytes of cloudpickle, but code keeps the name of its file, for tracebacks."""
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
    """A context in which the user's modules are pickled by value."""
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
        return False  # cloudpickle sends __main__ by value anyway
    ours = name.partition(".")[0] == "tapegrad"
    return not (ours or is_installed(file) or is_pythons(file))
