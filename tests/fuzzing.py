"""How many random examples the tests run.

`make test` runs the same few each time. `make fuzz` sets TAPEGRAD_FUZZ_EXAMPLES, and runs new ones;
with TAPEGRAD_FUZZ_SEED those from that number on.
"""

import os

from hypothesis import HealthCheck, settings

ENVIRONMENT = "TAPEGRAD_FUZZ_EXAMPLES"
NEW = ENVIRONMENT in os.environ
EXAMPLES = int(os.environ.get(ENVIRONMENT, "48"))  # random programs, each held to everything
FIRST = int(os.environ["TAPEGRAD_FUZZ_SEED"]) if "TAPEGRAD_FUZZ_SEED" in os.environ else None
TAPES = EXAMPLES if NEW else 300  # random tapes, which are checked in far less time


def share(part: float) -> settings:
    """The settings of a test that runs this part of all random tapes."""
    return settings(
        max_examples=max(1, round(part * TAPES)),
        derandomize=not NEW,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
