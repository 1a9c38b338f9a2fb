"""The vector spaces of arrays."""

from tapegrad.autograd.vspace import VSpace

__all__ = ["ArrayVSpace", "ComplexArrayVSpace"]

ArrayVSpace = ComplexArrayVSpace = VSpace
