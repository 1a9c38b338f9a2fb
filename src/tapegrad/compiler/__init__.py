"""From tapes to machine code: compiled in this process or in a worker process, or found on disk."""

import time

LOADED = time.time()  # sources changed later aren't the ones that run
