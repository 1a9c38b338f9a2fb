"""To a type checker `tapegrad.numpy` is NumPy: every name and every signature is NumPy's own."""

from numpy import *
