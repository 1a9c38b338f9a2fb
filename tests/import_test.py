"""What `import tapegrad` leaves for later: what only some programs need, and what is slow."""

import subprocess
import sys

PROGRAM = """
import sys
import numpy as np

before = set(sys.modules)
from tapegrad import grad

print(*sorted(set(sys.modules) - before))
before = set(sys.modules)
grad(lambda x: np.sum(x * x), compile="never")(np.ones(3))
print(*sorted(set(sys.modules) - before))
"""

LATER = {"hashlib", "json", "llvmlite", "networkx", "numba", "opt_einsum", "optree", "scipy"}
LATER |= {"numpy.ma", "numpy.random", "tapegrad.pipeline", "tapegrad.demo", "tapegrad.emit.program"}
OUTSIDE = {"numpy.random", "random", "pathlib", "decimal", "fractions"}  # unless it is mentioned
COMPILING = {"json", "llvmlite", "networkx", "numba", "scipy", "tapegrad.emit.program"}


def test_what_is_imported_when():
    """Trees and the pipeline wait for the first call, and what compiles for its own turn."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    first, second = (set(line.split()) for line in done.stdout.splitlines())
    assert "tapegrad.api" in first and LATER.isdisjoint(first)
    assert "optree" in second and (COMPILING | OUTSIDE).isdisjoint(second)
    assert not {name for name in first | second if name.startswith("tapegrad.schedule")}
