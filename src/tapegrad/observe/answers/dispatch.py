"""What tracers hand on to the front end. That is built on tracers, and puts itself in here; so does
what says which trace is running."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tapegrad.core.late import BRANCHES, load

Handler = Callable[..., Any]


class Dispatch:
    """The front end, as tracers see it: `tracing.frontend` fills it in when it is imported, which
    is before the first tracer is made."""

    trace: Handler  # the innermost trace that is running in this thread, or None
    ufunc: Handler  # of a universal function, its method, inputs and keywords
    known: Handler  # what a universal function came to on operands like these
    again: Handler  # its result on operands that are like earlier ones; None if it has to be asked
    function: Handler  # of another function of NumPy's, its arguments and keywords
    method: Handler  # of a method's name, the array and arguments
    methods: dict[str, Any]  # by name
    element: Handler  # what `x.item(...)` is
    number: Handler  # an array of one element as one of Python's
    getitem: Handler
    setitem: Handler
    set_shape: Handler  # `x.shape = shape`
    put: Handler
    flat: Handler  # what `x.flat` is
    # of what has pandas' labels: see `pandas.labelled`
    labelled: Handler  # an operation on it
    frame: Any  # what stands for a DataFrame
    series: Any  # and for a Series
    objects: Any  # and for one of texts and numbers
    table_method: Handler  # a method of it, by name; None if there is none
    table_item: Handler  # what is chosen of it by a key
    table_aggregated: Handler  # what a function of pandas' is that is passed others for groups
    table_at: Handler  # `x.loc` and the like of what stands for one
    table_filled: Handler  # two with the same labels, and a number where one has none
    table_write: Handler  # something is written there
    has_labels: Handler  # whether something is, or stands for, a Series or DataFrame
    namespace: Handler  # the array API's, for a module that asks
    draw: Handler  # what a method of a generator of random numbers gives
    clock: Handler  # what a clock shows
    end_derivative: Handler  # no derivative may go through such a value
    at_the_time: Handler  # a traced value as it is now, and its number
    running: Handler  # the traces that run in this thread, from the outermost on
    root: Handler  # a function is called by tapegrad, and is followed
    found: Handler  # what becomes an input of what a name holds that the code sets too
    varied: Handler  # what becomes inputs of what a call has returned that each call makes anew
    length: Handler  # what becomes an input of the length of a list to which the code adds
    tail: Handler  # and of the last few of them
    joined: Handler  # what is noted of a sum of a list and others
    lend: Handler  # an array of the outside is about to be written to: see `tracing.outside.lent`
    lent: Handler  # what a plain array is on a tape, if it is lent
    last: Handler  # and of one of the last items of it
    open: Handler  # lets the items of a list that is about to change be inputs
    open_if_bounded: Handler  # the same of a deque that is about to be read
    ask: Handler  # what a function in C of an installed package returns
    # of arrays of subclasses of ndarray: see `frontend.numpy.subclasses`
    beside: Handler  # a plain array on the left of one, as a traced one where that counts
    made_of: Handler  # what calls of such a class come to
    with_bare: Handler  # a call with arrays of NumPy's own in their places
    attribute: Handler  # one of an array's that is an array
    part: Handler  # an item
    viewed: Handler  # such an array, of another one
    seed: Handler  # what a generator is made of, with plain integers for traced ones
    plain: Handler  # the plain array of one that the function made; None for all else
    whole: Handler  # a traced integer as a plain one, which is guarded; None for all else
    key: Handler  # and one that is a key
    needs_plain: Handler  # whether code in C needs plain real numbers at this instruction
    plain_number: Handler  # a traced real number, too, which must not be differentiated
    is_made: Handler  # whether an array is one that the function made, and holds none traced
    # of plain arrays that become traced ones: see `observe.operands.filling`
    has_traced: Handler  # whether a traced value is in nested lists, besides made arrays
    began: Handler  # the frame that has begun the innermost trace
    held: Handler  # the arrays that traces have as inputs of tapes
    fillable: Handler  # what stands for an array, its views and their methods, by their ids
    gathered: Handler  # a plain array as a traced one, if what it is indexed with asks for that
    as_operand: Handler  # an operand that may be a list
    stack: Handler
    entry: Handler  # of a list, in a loop's round, by its number there; None where that is guarded
    counted: Handler  # what stands for a range whose rounds may be traced once; else None
    asked: Handler  # what a program hears that asks for a truth; None where it is guarded
    tested: Handler  # what a conditional jump asks for isn't traced
    exhausted: Handler  # what is called for what goes through all entries; else None
    # of lists of which a call says how long they are: see `frontend.python.appended`
    varying: Handler  # what stands for one; None where it must be a list
    look: Handler  # an instruction is about to run that may be passed one
    ranged: Handler  # the same of a range whose bounds are traced
    # of branches that go both ways: see `tracing.branches.merging`
    arrays: Handler
    nothing: Any
    apart: Handler
    merged: Handler
    chosen: Handler

    def __getattr__(self, name: str) -> Any:
        """What waits for the first branch that goes both ways, or test of a traced value."""
        load(BRANCHES)
        return object.__getattribute__(self, name)


dispatch = Dispatch()
