"""A compiler in the tests' process that does no more than it is asked for."""

from __future__ import annotations

import threading

from tapegrad.compiler.client import client
from tapegrad.compiler.in_process import InProcess


class Patient(InProcess):
    """Its thread starts once a call waits for a program. Few tests wait for the machine code that
    two calls of a derivative are worth elsewhere."""

    def __init__(self):
        super().__init__()
        self.unasked, self.gate = [], threading.Lock()

    def begin(self, number, job):
        with self.gate:
            self.unasked.append((number, job))

    def help(self):
        with self.gate:
            asked, self.unasked = self.unasked, []
        for number, job in asked:
            super().begin(number, job)
        return super().help()

    def rest(self):
        """Finish what has begun, and forget the rest."""
        if self.thread:
            self.thread.join(300)
        for number, job in self.unasked:
            job.use_once = True
            self.jobs.pop(number, None)
            client.by_name.pop(job.kept_as, None)
        self.unasked.clear()
