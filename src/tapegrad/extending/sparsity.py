"""The sparsity of a tape's results in its operands, and the fewest products that determine it.

A module of its own, since it imports SciPy's sparse matrices.
"""

from tapegrad.sparsity.pattern import pattern as pattern
from tapegrad.sparsity.recovery import choose as choose
