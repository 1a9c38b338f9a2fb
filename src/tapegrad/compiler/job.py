"""A program that is being compiled."""

from __future__ import annotations

import time

from tapegrad.backends.source.driver import Executable
from tapegrad.compiler.packed import Packed, opaque_of
from tapegrad.compiler.protocol import Answer


class Job:
    """A program that is being compiled, or was. A `lost` one was started before a fork."""

    def __init__(self, packed: Packed, kept_as: str | None, anew: bool) -> None:
        self.packed = packed
        self.kept_as = kept_as
        self.anew = anew
        self.attempts = 0
        self.started = time.monotonic()
        self.done = False
        self.kernels = 0  # kernels that were compiled
        self.found = False  # whether it was found on disk
        self.told = False  # whether the user was told that it takes long
        self.lost = False
        self.foreign = False  # the worker can't read it
        self.error = ""
        self.times: dict[str, float] = {}
        self._content: bytes | Executable = b""

    def executable(self) -> Executable:
        """The compiled program."""
        if isinstance(self._content, Executable):
            return self._content
        from tapegrad.compiler.executable import decoded

        return decoded(self._content, opaque_of(self.packed.primitives))

    def finish(self, answer: Answer) -> None:
        """Take the compiler's answer."""
        self._content, self.error, self.times, self.kernels, self.found = answer[:5]
        self.done = True
