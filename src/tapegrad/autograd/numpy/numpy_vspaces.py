"""The vector spaces of arrays."""

from tapegrad.autograd.vspace import ArrayVSpace, ComplexArrayVSpace

__all__ = ["ArrayVSpace", "ComplexArrayVSpace"]
