"""Tiers: when a variant is played, and when it is compiled.

A variant is played with NumPy until its machine code is ready, which the worker process makes
meanwhile. No call waits for it, unless `compile="always"` asks for that.

In the default mode a program is sent to the compiler once it was called twice, or played for a
while, if a core is free. If none is free, because there is only one or the compiler is busy, it is
sent when the time spent playing reaches the estimated cost of compiling. Then the total is at most
about twice that of the better choice, without knowing how many calls will come (the ski-rental
rule).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tapegrad.compiler import disk
from tapegrad.compiler.packed import Packed, opaque_of, pack
from tapegrad.compiler.protocol import available_cores
from tapegrad.core import log
from tapegrad.core.frames import warn
from tapegrad.core.handlers import let_through
from tapegrad.core.late import MACHINE_CODE, NEXT_DOOR, load
from tapegrad.core.locks import cached_property
from tapegrad.core.log import Event
from tapegrad.core.progress import Progress
from tapegrad.errors import InternalError
from tapegrad.observe.program.source import at_source

if TYPE_CHECKING:
    from tapegrad.backends.source.driver import Executable
    from tapegrad.compiler.job import Job
    from tapegrad.ir.tape import Tape

SLOW = 2.0  # seconds of compiling after which the user is told
LONG_PLAYING = 0.02  # seconds of playing after which one call is enough


class Tier:
    """The progress of one tape from played to compiled. `mode` is "auto", "always" or "never"."""

    def __init__(self, tape: Tape, mode: str, name: str) -> None:
        self.tape = tape
        self.mode = mode
        self.name = name  # the derived function's name
        self.calls = 0
        self.played = 0.0  # seconds
        self.sought = False  # whether code was looked for on disk
        self.failed = False
        self.anew = False  # whether the code on disk is useless
        self.event = ""  # the count for the code's origin
        self.kernels = 0  # number of kernels compiled for it
        self.job: Job | None = None
        self.found: Executable | None = None
        self.is_shared = False  # by variants with other captured arrays ...
        self.entry: Any = None  # ... an entry without captured arrays, for them to bind

    @cached_property
    def packed(self) -> Packed:
        return pack(self.tape)

    @cached_property
    def kept_as(self) -> str | None:
        """The key under which the code is kept on disk, or None."""
        from tapegrad.compiler import code_store

        return code_store.key_of(self.packed)

    @cached_property
    def price(self) -> float:
        """The seconds of playing after which it is compiled even if no core is free."""
        from tapegrad.schedule.cost import seconds_to_compile

        return seconds_to_compile(self.tape)

    @property
    def compiling(self) -> bool:
        """Whether it is being compiled. Takes an answer that has arrived: the user may be waiting
        for it without making calls."""
        job = self.job
        if job is not None and not job.done:
            from tapegrad.compiler.client import client

            client.look()
        return job is not None and not job.done and not job.lost

    # ---- before a call

    @property
    def is_played(self) -> bool:
        """Whether there is no machine code, and there won't be any."""
        return self.found is None and (self.mode == "never" or self.failed)

    @property
    def why_played(self) -> str:
        """The reason why there is no machine code."""
        if self.mode == "never":
            return 'compile="never"'
        if self.failed:
            return "it couldn't be compiled"
        if self.compiling:
            return "it is being compiled"
        return "it is compiled when it has been called more often"

    def executable(self, wait: bool = False) -> Executable | None:
        """The machine code, if it is ready or is to be waited for."""
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
            with Progress(f"compiling {self.name}", " s", lambda: self.price) as progress:
                while not job.done and client.wait(job, SLOW / 4 or 0.01):
                    progress.at(time.monotonic() - job.started)
                    if progress.bar is None:
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
        """The machine code can't be used. If it came from disk, it is compiled again."""
        if self.event == "compiles":
            self.fail(error)
        self.job, self.found, self.entry, self.anew = None, None, None, True

    def _tell(self, job: Job) -> None:
        """Log once that compiling takes long, while the program waits."""
        if not job.done and not job.told and time.monotonic() - job.started > SLOW:
            job.told = True
            log.warn(f"{self._shown()} has been compiling for {SLOW:g} s")

    def _shown(self) -> str:
        source = next((call.src for call in self.tape.calls if call.src), None)
        return f"{self.name}, a tape of {len(self.tape.calls)} calls{at_source(source)},"

    def settle(self, executable: Executable) -> Event | None:
        """Note that the machine code is in use, and free what led there. Returns the event; None if
        it was in use before."""
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
        count = len(executable.kernels)
        kernels = f"{count} kernel{'s' * (count != 1)}"
        if self.kernels != count:  # others were compiled for another tape, or are alike
            kernels += f", of which {self.kernels} {'were' if self.kernels != 1 else 'was'} new"
        text = f"{self._shown()} was compiled: {parts}; {kernels}"
        return Event("compile", text, {**told, "seconds": times.get("all", 0.0)})

    def _kept(self) -> Executable | None:
        """The code that an earlier process left on disk for this tape."""
        if disk.location() is None:
            return None
        try:
            if self.kept_as is None or not disk.has_any(self.kept_as):
                return None
            load(MACHINE_CODE)
            from tapegrad.compiler import code_store
            from tapegrad.compiler.executable import decoded

            content = code_store.find(code_store.named(self.kept_as))
            return None if content is None else decoded(content, self._opaque())
        except Exception as error:  # whatever is wrong with the file, the code is compiled again
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
        """Compiling failed."""
        self.failed = True
        if self.mode == "always":
            raise InternalError(f"{self.name} couldn't be compiled. {error}")
        # The played tape gives the right result; it is only slower.
        text = f"{self.name} couldn't be compiled and is played with NumPy instead"
        if "its process ended" not in error:  # somebody may have killed it
            text += ". Please report this as a fault of tapegrad"
        try:
            warn(f"{text}: {error}")
        except RuntimeWarning:  # warnings are errors, but the call is fine
            log.warn(f"{text}: {error}")

    # ---- after a call

    def note(self, seconds: float) -> None:
        """Record a played call and its time, and send the tape to the compiler if that pays."""
        self.calls += 1
        self.played += seconds
        if self.mode != "auto" or self.failed or (self.job is not None and not self.job.lost):
            return
        from tapegrad.compiler.client import client

        cores = available_cores()
        if cores == 1:
            pays = self.played > self.price
        else:
            pays = self.calls > 1 or self.played > LONG_PLAYING
        if pays and client.pending:
            client.look()  # answers may be there for functions that weren't called again
        if pays and (client.pending < max(1, cores - 1) or self.played > self.price):
            self._submit()


def foresee(mode: str) -> None:
    """Start the compiler if it is likely to be needed. Starting it takes as long as compiling many
    a program."""
    if mode == "always" or (mode == "auto" and available_cores() > 1):
        load(NEXT_DOOR)
        from tapegrad.compiler.client import client

        client.start()
