"""Python's own: traced values go through plain containers, and answer `isinstance` and `type`."""

import builtins

from tapegrad.autograd.tracer import Box
from tapegrad.autograd.vspace import TreeVSpace

__all__ = [
    "DictBox",
    "DictVSpace",
    "ListVSpace",
    "NamedTupleVSpace",
    "SequenceBox",
    "SequenceVSpace",
    "TupleVSpace",
    "dict",
    "isinstance",
    "list",
    "tuple",
    "type",
]


dict, isinstance, list = builtins.dict, builtins.isinstance, builtins.list
tuple, type = builtins.tuple, builtins.type


class SequenceBox(Box):
    """What traced lists and tuples would be instances of: they are plain ones."""


class DictBox(Box):
    """What traced dicts would be instances of: they are plain ones."""


SequenceVSpace = ListVSpace = TupleVSpace = NamedTupleVSpace = DictVSpace = TreeVSpace
