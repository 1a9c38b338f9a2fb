"""`logsumexp`, in the module where SciPy once had it."""

from scipy.special import logsumexp

__all__ = ["logsumexp"]
