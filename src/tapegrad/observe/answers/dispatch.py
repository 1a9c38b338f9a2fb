"""The hooks by which tracers and the observer call the front end and the tracing code. These import
tracers, so they can't be imported here; they register themselves instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tapegrad.core.late import BRANCHES, load

Handler = Callable[..., Any]


class Dispatch:
    """The registered hooks. `tracing.frontend` sets them when it is imported, which is before the
    first tracer is made."""

    trace: Handler  # the innermost trace that is running in this thread, or None
    ufunc: Handler  # a ufunc, its method, inputs and keywords --> the result
    known: Handler  # the cached result type of a ufunc on operands like these
    again: Handler  # the result on operands like earlier ones; None if unknown
    function: Handler  # another NumPy function, its arguments and keywords --> the result
    method: Handler  # a method's name, the array and arguments --> the traced result
    methods: dict[str, Any]  # methods of arrays by name
    element: Handler  # `x.item(...)`
    number: Handler  # an array of one element --> Python's number
    getitem: Handler
    setitem: Handler
    set_shape: Handler  # `x.shape = shape`
    put: Handler
    flat: Handler  # `x.flat`
    # for objects with pandas' labels: see `pandas.labelled`
    labelled: Handler  # an operator on such an object
    frame: Any  # the traced counterpart of a DataFrame
    series: Any  # the traced counterpart of a Series
    objects: Any  # the same for a Series of texts and numbers
    table_method: Handler  # a method of such an object, by name; None if there is none
    table_item: Handler  # its part that a key selects
    table_aggregated: Handler  # a pandas function with a parameter `aggfunc`, as pivot tables
    table_at: Handler  # `x.loc` and the like
    table_filled: Handler  # two objects with the same labels, and a number for missing entries
    table_write: Handler  # a write to such an object
    has_labels: Handler  # whether an object is, or is traced as, a Series or DataFrame
    namespace: Handler  # the array API namespace for a module that requests it
    draw: Handler  # the result of a method of a random generator
    clock: Handler  # a clock's reading
    end_derivative: Handler  # forbid derivatives through this value
    at_the_time: Handler  # a traced value's snapshot, and its number
    running: Handler  # the traces that run in this thread, outermost first
    root: Handler  # register a function that tapegrad calls: it is followed
    found: Handler  # make an input of a name's value, where the code also sets the name
    varied: Handler  # make inputs of the result of a call that is repeated at each call
    length: Handler  # make an input of the length of a list that the code appends to
    tail: Handler  # the same for its last items
    joined: Handler  # a recorder of the sum of a list and others
    lend: Handler  # a captured array will be written to: see `tracing.outside.captured_tracers`
    lent: Handler  # the traced counterpart of a plain array, if it is lent
    last: Handler  # the same for one of the last items of a list
    open: Handler  # make inputs of the items of a list that is about to change
    open_if_bounded: Handler  # the same for a deque that is about to be read
    ask: Handler  # the result of a C function of an installed package
    # for arrays of subclasses of ndarray: see `frontend.numpy.subclasses`
    beside: Handler  # a plain left operand of such an array, traced if that is needed
    made_of: Handler  # the answer to calls of such a class
    with_bare: Handler  # a call with base-class arrays in place of these
    attribute: Handler  # an attribute that is itself an array
    part: Handler  # an item
    viewed: Handler  # an array viewed as such a class
    seed: Handler  # a generator's seed, with traced integers made plain
    plain: Handler  # the plain array of a `CreatedTracer`; None for other objects
    whole: Handler  # a traced integer, guarded and made plain; None for other objects
    key: Handler  # the same for a key
    needs_plain: Handler  # whether C code needs plain real numbers at this instruction
    plain_number: Handler  # the same for a real number, which then has no derivative
    is_made: Handler  # whether an array was made by the function, and holds no traced value
    # for plain arrays that become traced ones: see `observe.operands.filled_arrays`
    has_traced: Handler  # whether nested lists hold a traced value, besides made arrays
    began: Handler  # the frame that began the innermost trace
    held: Handler  # the arrays that are inputs of tapes
    fillable: Handler  # replacements of an array, its views and their methods, by their ids
    gathered: Handler  # a plain array, traced if its index requires that
    as_operand: Handler  # an operand that may be a list
    stack: Handler
    entry: Handler  # an item of a list, in a loop's round; None if its index is guarded
    counted: Handler  # the iterator of a loop that may be traced once; else None
    asked: Handler  # the truth that is returned unguarded; None if it must be guarded
    tested: Handler  # a conditional jump tests a plain value
    exhausted: Handler  # the replacement of a function that exhausts its iterator; else None
    # for lists whose length a call determines: see `frontend.python.appended_lists`
    varying: Handler  # the replacement of such a list; None if it must be a list
    look: Handler  # an instruction may be passed such a list
    ranged: Handler  # the same for a range with traced bounds
    # for branches that are merged: see `tracing.branches.merging`
    arrays: Handler
    nothing: Any
    apart: Handler
    merged: Handler
    chosen: Handler

    def __getattr__(self, name: str) -> Any:
        """Import the code for merged branches when one of its hooks is first needed."""
        load(BRANCHES)
        return object.__getattribute__(self, name)


dispatch = Dispatch()
