"""The object code of kernels in this process, by what it depends on.

A key that ends in None is that of a kernel of one program. All other keys are those of code that
many programs use.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

SHARED = "shared"  # the last entry of the key of a function that kernels share


class Memo:
    """The object code of the kernels used last, and of the functions that they share.

    `added` is the code that was added since it was last taken out, to be stored elsewhere.
    `compiles` counts the kernels that were compiled.
    """

    def __init__(self, most: int = 512) -> None:
        self.most = most
        self.compiles = 0
        self.added: dict[Any, bytes] = {}
        self._held: OrderedDict[Any, bytes] = OrderedDict()

    def get(self, key: Any) -> bytes | None:
        """The code under this key; None if there is none."""
        if key in self._held:
            self._held.move_to_end(key)
        return self._held.get(key)

    def add(self, codes: Mapping[Any, bytes]) -> None:
        """Add these codes, and drop the ones used longest ago if there are too many."""
        self.added.update(codes)
        self._held.update(codes)
        while len(self._held) > self.most:
            self._held.popitem(last=False)

    def clear(self) -> None:
        """Forget all kernels, but not the functions that they share, which belong to no one
        program."""
        for held in (self._held, self.added):
            for key in [key for key in held if not is_shared(key)]:
                del held[key]


def is_shared(key: tuple[Any, ...]) -> bool:
    """Whether this is the key of a function that kernels share."""
    return bool(key[-1] == SHARED)


def is_common(key: tuple[Any, ...]) -> bool:
    """Whether this is the key of code that many programs use: a template or a shared function."""
    return key[-1] is not None
