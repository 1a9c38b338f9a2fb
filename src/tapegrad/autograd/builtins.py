"""Python's own: traced values go through plain containers, and answer `isinstance` and `type`."""

import builtins

from tapegrad.autograd.tracer import Box, Traced

__all__ = ["DictBox", "SequenceBox", "dict", "isinstance", "list", "tuple", "type"]


dict, isinstance, list = builtins.dict, builtins.isinstance, builtins.list
tuple, type = builtins.tuple, builtins.type


class _NoInstances(Traced):
    def __instancecheck__(cls, instance: object) -> bool:
        return False


class SequenceBox(Box, metaclass=_NoInstances):
    """What traced lists and tuples would be instances of: they are plain ones."""


class DictBox(Box, metaclass=_NoInstances):
    """What traced dicts would be instances of: they are plain ones."""
