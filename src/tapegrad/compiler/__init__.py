"""Tapes to machine code: here, in a process next door, or found on disk."""

import time

LOADED = time.time()  # sources that were changed later aren't those that run
