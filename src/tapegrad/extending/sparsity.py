"""Which elements of a tape's results depend on which operands, and how few products tell them.

Apart, since SciPy's sparse matrices come with it.
"""

from tapegrad.sparsity.pattern import pattern as pattern
from tapegrad.sparsity.recovery import choose as choose
