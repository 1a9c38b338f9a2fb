"""The class that programs ask for where they look for traced arrays."""

from tapegrad.autograd.tracer import Box

__all__ = ["ArrayBox", "Box"]


class ArrayBox(Box):
    """What traced arrays and numbers are instances of. None is made of it."""
