"""The exceptions that tapegrad raises, drawn as a tree.

    TapegradError
    ├── TraceError            the traced function did what a trace can't follow
    │   ├── UnsupportedError  a NumPy function, method or call form without a rule
    │   ├── ConversionError   a traced value was forced into a plain Python or NumPy value
    │   ├── LeakedTracerError a traced value was used after its trace had ended
    │   └── RandomnessError   random numbers were drawn while the function was traced
    ├── ArgumentError         what was passed can't be differentiated or traced
    ├── GradientError         the output can't be differentiated (not a real scalar, no rule)
    │   └── RuleError         a user's derivative rule returned what isn't a cotangent
    ├── NotFiniteError        with debug=True: a result or gradient is NaN or infinite
    ├── GradcheckError        a derivative disagrees with finite differences
    ├── TapeError             a tape is malformed, or a text isn't a tape
    └── InternalError         a fault of tapegrad's own; please report it

Every message says what the user did, in their terms and at their line; why it can't work; and
the usual fix.
"""


class TapegradError(Exception):
    """Base class of every error that tapegrad raises on purpose."""

    notes: tuple[tuple[set[int], int], ...] = ()  # with which the trace is made again
    may_be_caught = False  # whether a trace goes on in which the program catches it


class TraceError(TapegradError):
    """The function did something that a trace can't follow."""


class UnsupportedError(TraceError, NotImplementedError):
    """A NumPy function, method or form of call for which there is no rule.

    It is a `NotImplementedError` too, the class that Python uses for what isn't there yet.
    """


class ConversionError(TraceError, TypeError):
    """A traced value was forced into a plain number or array: `math.exp(x)`, `np.array([x])`.

    It is a `TypeError`, which NumPy and `math` raise for values of a wrong type.
    """


class LeakedTracerError(TraceError):
    """A traced value was kept somewhere and used after its trace had ended."""


class RandomnessError(TraceError):
    """Random numbers were drawn while a function was traced: each later call would repeat them."""


class ArgumentError(TapegradError, TypeError):
    """An argument can't be traced or differentiated: an integer, a string, an object array."""


class GradientError(TapegradError, TypeError):
    """The output can't be differentiated: it isn't a real scalar, or a rule is missing."""


class RuleError(GradientError):
    """A rule given to `defvjp`, or a `Function.backward`, returned what can't be a cotangent; or
    one given to `defjvp`, or a `Function.jvp`, what can't be a tangent.

    A cotangent has the shape of its argument; there is one for each argument, or None. A tangent
    has the shape of the result.
    """


class NotFiniteError(TapegradError, FloatingPointError):
    """With `debug=True`: a result or a gradient is NaN or infinite, or NaN decides a condition.
    `finding` is the first value or cotangent that is so and that it is made of.

    It is a `FloatingPointError`, which NumPy raises under `np.errstate(all="raise")`.
    """

    def __init__(self, message: str, finding: object = None) -> None:
        super().__init__(message)
        self.finding = finding


class GradcheckError(TapegradError, AssertionError):
    """A derivative disagrees with finite differences, or isn't the same in two calls."""


class TapeError(TapegradError, ValueError):
    """A tape is malformed, its inputs don't fit, or a text doesn't parse as a tape.

    `guard` is the fact that the tape assumes and that doesn't hold, if it is that.
    """

    guard: object = None
    failing: tuple[object, ...] = ()  # all of those that don't hold, where that is known


class InternalError(TapegradError):
    """A fault of tapegrad's own. The message carries the tape around the fault."""
