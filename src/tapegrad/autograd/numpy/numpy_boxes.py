"""The class that programs ask for where they look for traced arrays."""

from tapegrad.autograd.tracer import ArrayBox, Box

__all__ = ["ArrayBox", "Box"]
