"""Python's own classes: traced values work with plain containers, `isinstance` and `type`."""

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
    """The class of boxed lists and tuples. None is made: traced ones are plain."""


class DictBox(Box):
    """The class of boxed dicts. None is made: traced ones are plain."""


SequenceVSpace = ListVSpace = TupleVSpace = NamedTupleVSpace = DictVSpace = TreeVSpace
