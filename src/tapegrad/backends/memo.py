"""Object code that is known in this process, by what it depends on.

What is under a key that ends in None is a kernel of one program; all else is what many have.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

SHARED = "shared"  # the last of the key of a function that kernels share


class Memo:
    """The code of the kernels used last, and of what they share.

    `added` are those that were put there, since somebody last took them out of it; `compiles`
    counts the kernels that were compiled.
    """

    def __init__(self, most: int = 512) -> None:
        self.most = most
        self.compiles = 0
        self.added: dict[Any, bytes] = {}
        self._held: OrderedDict[Any, bytes] = OrderedDict()

    def get(self, key: Any) -> bytes | None:
        """The code under this key, if it is known."""
        if key in self._held:
            self._held.move_to_end(key)
        return self._held.get(key)

    def add(self, codes: Mapping[Any, bytes]) -> None:
        """Know these from now on."""
        self.added.update(codes)
        self._held.update(codes)
        while len(self._held) > self.most:
            self._held.popitem(last=False)

    def clear(self) -> None:
        """Forget all kernels. What they share is no part of a program."""
        for held in (self._held, self.added):
            for key in [key for key in held if not is_shared(key)]:
                del held[key]


def is_shared(key: tuple[Any, ...]) -> bool:
    """Whether this is the key of a function that kernels share."""
    return bool(key[-1] == SHARED)


def is_common(key: tuple[Any, ...]) -> bool:
    """Whether this is the key of what many programs have: a template, a shared function."""
    return key[-1] is not None
