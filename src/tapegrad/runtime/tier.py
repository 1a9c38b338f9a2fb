"""How a variant gets from being played to being compiled.

A variant is played with NumPy until its machine code is there, which a compiler next door makes
meanwhile: no call waits for it, unless asked to by `compile="always"`.

In the default mode a program is sent to the compiler when it has been called twice, or was played
for a while, and a core is free. Where none is, since there is only one, or the compiler has others
to do, it is sent when the time spent playing reaches what compiling is estimated to cost: the total
is then never worse than about twice the better choice, without knowing how many calls will come
(the ski-rental rule).
"""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING, Any

from tapegrad.compiler import disk
from tapegrad.compiler.packed import Packed, opaque_of, pack
from tapegrad.compiler.protocol import available_cores
from tapegrad.core import log
from tapegrad.core.handlers import let_through
from tapegrad.core.late import MACHINE_CODE, NEXT_DOOR, load
from tapegrad.core.locks import cached_property
from tapegrad.core.log import Event
from tapegrad.errors import InternalError
from tapegrad.observe.program.source import at_source

if TYPE_CHECKING:
    from tapegrad.backends.source.driver import Executable
    from tapegrad.compiler.job import Job
    from tapegrad.ir.tape import Tape

SLOW = 2.0  # seconds of compiling that are worth a word
LONG = 0.02  # seconds of playing after which a program needn't be called twice


class Tier:
    """The way of one tape to machine code. `mode` is how it is compiled: "auto", "always" or
    "never"."""

    def __init__(self, tape: Tape, mode: str, name: str) -> None:
        self.tape = tape
        self.mode = mode
        self.name = name  # of the derived function
        self.calls = 0
        self.played = 0.0  # seconds
        self.sought = False  # on disk
        self.failed = False
        self.anew = False  # what is on disk is useless
        self.event = ""  # how the code was come by, as it is counted
        self.kernels = 0  # that were compiled for it
        self.job: Job | None = None
        self.found: Executable | None = None
        self.is_shared = False  # by variants with other arrays from outside ...
        self.entry: Any = None  # ... a way into the code that holds none, for them to bind

    @cached_property
    def packed(self) -> Packed:
        return pack(self.tape)

    @cached_property
    def kept_as(self) -> str | None:
        """The key under which the code is kept on disk, if it is."""
        from tapegrad.compiler import kept

        return kept.key_of(self.packed)

    @cached_property
    def price(self) -> float:
        """The seconds of playing after which it is compiled where no core is free."""
        from tapegrad.schedule.cost import seconds_to_compile

        return seconds_to_compile(self.tape)

    @property
    def compiling(self) -> bool:
        """Whether the compiler is at it: who asks, and makes no call, may wait for the answer."""
        job = self.job
        if job is not None and not job.done:
            from tapegrad.compiler.client import client

            client.look()
        return job is not None and not job.done and not job.lost

    # ---- before a call

    @property
    def is_played(self) -> bool:
        """Whether there is no machine code, and none to come."""
        return self.found is None and (self.mode == "never" or self.failed)

    @property
    def why_played(self) -> str:
        """Why there is no machine code."""
        if self.mode == "never":
            return 'compile="never"'
        if self.failed:
            return "it couldn't be compiled"
        if self.compiling:
            return "it is being compiled"
        return "it is compiled when it has been called more often"

    def executable(self, wait: bool = False) -> Executable | None:
        """The machine code, if it is there, or is to be waited for."""
        wait = wait or self.mode == "always"
        if self.found is not None:
            return self.found
        if self.is_played:
            return None
        load(NEXT_DOOR)
        if not self.sought:
            self.sought = True
            found = self._kept()
            if found is not None:
                self.event = "loads"
                return found
            foresee("always" if wait else self.mode)
        if wait:
            self._submit()
        job = self.job
        if job is None:
            return None
        from tapegrad.compiler.client import client

        if job.lost:
            self.job = None
            return None
        if wait:
            while not job.done and client.wait(job, SLOW / 4 or 0.01):
                self._tell(job)
        elif not job.done:
            client.look()
        if not job.done:
            return None
        if job.error:
            self.fail(job.error)
            return None
        self.event = "loads" if job.found else "compiles"
        load(MACHINE_CODE)
        return job.executable()

    def refuse(self, error: str) -> None:
        """The machine code can't be used. What was on disk is compiled anew."""
        if self.event == "compiles":
            self.fail(error)
        self.job, self.found, self.entry, self.anew = None, None, None, True

    def _tell(self, job: Job) -> None:
        """Say to the program that waits, once, that it takes long."""
        if not job.done and not job.told and time.monotonic() - job.started > SLOW:
            job.told = True
            log.warn(f"{self._shown()} has been compiling for {SLOW:g} s")

    def _shown(self) -> str:
        source = next((call.src for call in self.tape.calls if call.src), None)
        return f"{self.name}, a tape of {len(self.tape.calls)} calls{at_source(source)},"

    def settle(self, executable: Executable) -> Event | None:
        """The machine code is in use: what led there isn't needed any more. How it was come by;
        None if it was in use before."""
        if self.found is not None:
            return None
        self.found = executable
        self.kernels = self.job.kernels if self.job is not None else 0
        times = self.job.times if self.job is not None else {}
        told = {"function": self.name, "calls": len(self.tape.calls), "kernels": self.kernels}
        self.job = None
        vars(self).pop("packed", None)
        if self.event == "loads":
            return Event("cache", f"{self._shown()} was found compiled", told)
        parts = ", ".join(f"{part} {1000 * x:.0f} ms" for part, x in times.items() if part != "all")
        text = f"{self._shown()} was compiled: {parts}; {self.kernels} kernels"
        return Event("compile", text, {**told, "seconds": times.get("all", 0.0)})

    def _kept(self) -> Executable | None:
        """The code that an earlier process left for this tape."""
        if disk.location() is None:
            return None
        try:
            if self.kept_as is None or not disk.has_any(self.kept_as):
                return None
            load(MACHINE_CODE)
            from tapegrad.compiler import kept
            from tapegrad.compiler.executable import decoded

            content = kept.find(kept.named(self.kept_as))
            return None if content is None else decoded(content, self._opaque())
        except Exception as error:  # whatever is wrong with the file: the code is compiled anew
            let_through(error)
            return None

    def _opaque(self) -> Any:
        return opaque_of(self.packed.primitives)

    def _submit(self) -> None:
        from tapegrad.compiler.client import client

        if self.job is None or self.job.lost:
            disk.look()
            self.job = client.submit(self.packed, self.kept_as, self.anew)

    def fail(self, error: str) -> None:
        """It can't be compiled."""
        self.failed = True
        if self.mode == "always":
            raise InternalError(f"{self.name} couldn't be compiled. {error}")
        # The tape is right without being compiled; it only stays slower.
        text = f"{self.name} couldn't be compiled and is played with NumPy instead"
        if "its process ended" not in error:  # somebody may have ended it
            text += ". Please report this as a fault of tapegrad"
        try:
            warnings.warn(f"{text}: {error}", RuntimeWarning, stacklevel=5)
        except RuntimeWarning:  # made an error, which the call is none of
            log.warn(f"{text}: {error}")

    # ---- after a call

    def note(self, seconds: float) -> None:
        """A call was played, and took so long."""
        self.calls += 1
        self.played += seconds
        if self.mode != "auto" or self.failed or (self.job is not None and not self.job.lost):
            return
        from tapegrad.compiler.client import client

        cores = available_cores()
        if cores == 1:
            pays = self.played > self.price
        else:
            pays = self.calls > 1 or self.played > LONG
        if pays and client.pending:
            client.look()  # whoever wanted what is there may never have called again
        if pays and (client.pending < max(1, cores - 1) or self.played > self.price):
            self._submit()


def foresee(mode: str) -> None:
    """Start the compiler, which takes as long as many a program, if it is likely to be wanted."""
    if mode == "always" or (mode == "auto" and available_cores() > 1):
        load(NEXT_DOOR)
        from tapegrad.compiler.client import client

        client.start()
