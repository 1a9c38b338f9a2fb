"""How many random examples the tests run.

`make test` runs the same few each time. `make fuzz` sets TAPEGRAD_FUZZ_EXAMPLES, and runs new ones.
"""

import os

from hypothesis import HealthCheck, settings

ENVIRONMENT = "TAPEGRAD_FUZZ_EXAMPLES"
EXAMPLES = int(os.environ.get(ENVIRONMENT, "300"))


def share(part: float) -> settings:
    """The settings of a test that runs this part of all examples."""
    return settings(
        max_examples=max(1, round(part * EXAMPLES)),
        derandomize=ENVIRONMENT not in os.environ,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
