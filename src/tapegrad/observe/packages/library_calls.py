"""Python functions of installed packages that the program calls with plain arguments.

They are followed, as the user's code is: then later calls needn't call them. One that can't be
followed reads values that can't be compared, is too long, or fails on tracers of plain arrays. Then
the trace is used once, or repeated. From then on all package calls of this code are single steps
that each call repeats (`guards/package_calls.py`).
"""

from __future__ import annotations

import functools
import operator
import os
import sys
import types
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tapegrad.core.installed import file_of_function, package_of
from tapegrad.core.tables import is_pandas_object
from tapegrad.errors import TapegradError, UnsupportedError
from tapegrad.observe.activations.activation import Activation, Handler
from tapegrad.observe.activations.code_facts import ASKED, FOLLOWED_ON, STEADY, VARYING, places
from tapegrad.observe.activations.run_record import RunRecord
from tapegrad.observe.answers.answers import answer_of, is_answered
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.guards.descriptions import is_source
from tapegrad.observe.guards.pure_operations import ITERATORS
from tapegrad.observe.guards.queried import CALLED_OUTSIDE
from tapegrad.observe.guards.snapshots import MAX_SNAPSHOT, Holding
from tapegrad.observe.guards.uses import Then, both
from tapegrad.observe.objects import inspection, randomness
from tapegrad.observe.objects.naming import name_of
from tapegrad.observe.objects.purity import (
    CONTAINERS,
    INERT,
    PLAIN_TYPES,
    is_inside,
    is_own,
    is_pure,
    is_silent,
)
from tapegrad.observe.packages.callbacks import users_parts
from tapegrad.observe.packages.callers import Among
from tapegrad.observe.packages.iterators import takes_next
from tapegrad.observe.packages.opaque import (
    FOLLOWED,
    generators_in,
    global_generators,
    is_librarys,
    is_pandas,
    is_scipys_own,
)
from tapegrad.observe.program import frames
from tapegrad.observe.program.frames import MISSING, operand_at
from tapegrad.primitives.base import Value

MOST_FRAMES = 1000  # in one call; a call with more isn't followed to its end
_GENERATOR = 0x20 | 0x80 | 0x200  # of any kind


class Called:
    """A followed call of a package's function, and the instruction that makes it."""

    def __init__(self, o: RunRecord, site: tuple[set[int], int]) -> None:
        self.site = site
        self.losses, self.frames = o.reads.losses, 0
        self.start = len(o.reads.guards)
        self.looks_back = False  # whether it reads its callers' variables

    def over(self, o: RunRecord, result: Any) -> None:
        """Record that the call has returned or raised."""
        o.library, o.quiet = None, False
        if self.looks_back:
            _looks_back.add((id(self.site[0]), self.site[1]))
        o.reads.inside.update(word for _, word in o.reads.guards[self.start :] if word)
        o.unfollowed = o.unfollowed or o.reads.losses != self.losses
        o.failed_inside = result is MISSING
        if o.unfollowed and not o.failed_inside:  # else the trace is repeated, which notes them
            not_followed(o.sites)

    def entered(self, o: RunRecord, frame: Any) -> bool:
        """Record a new frame of the call. Returns whether there are too many to follow."""
        self.frames += 1
        if self.frames <= MOST_FRAMES:
            return False
        o.quiet = True
        o.reads.use_once("a long computation of an installed package's")
        while not getattr(getattr(frame.f_trace, "__self__", None), "users", False):
            frame.f_trace_opcodes, frame.f_trace = False, None
            frame = frame.f_back
        return True


class Step:
    """A call of SciPy's that is one step, and the instruction that makes it."""

    def __init__(self, o: RunRecord, site: tuple[set[int], int]) -> None:
        self.site, self.losses = site, o.reads.losses

    def over(self, o: RunRecord, result: Any) -> None:
        """Record the end of the call. If its reads can't be compared, each call repeats it from
        then on."""
        if o.reads.losses != self.losses:
            not_followed([self.site])


_looks_back: set[tuple[int, int]] = set()  # sites of calls that read their callers' variables


def call(
    a: Activation, f: Any, args: Sequence[Any], kwargs: dict[str, Any], at: int, passed: Any
) -> Any:
    """The recorder of a call, the operand number `at`, if it is a package's that later calls of the
    derivative repeat; else `FOLLOWED`. `passed` replaces arguments by plain values."""
    o = a.o
    held: Any = f.__self__ if type(f) is types.MethodType else f
    if not _is_watched(a):
        return FOLLOWED
    values = [held, *args, *kwargs.values()]
    one_step = is_scipys_own(f)
    takes = takes_next(o, f, args)
    known = one_step or takes or _is_packages(o, f) or is_made(o, held)
    if not (known or _is_about_packages(f, values)):
        return FOLLOWED
    if not (takes or _are_plain(o, values)):
        return FOLLOWED
    site = places(a.frame.f_code, ASKED), a.frame.f_lasti
    if site[1] in places(a.frame.f_code, FOLLOWED_ON):
        return FOLLOWED
    if not (takes or site[1] in site[0] or _is_given(o, values)):
        if one_step:
            o.step = Step(o, site)
            return FOLLOWED
        return _follow(o, site)
    passed(_plain_within)
    o.questions.last = None
    if (id(site[0]), site[1]) in _looks_back:
        return _among_variables(a, f, values, at)
    frames.replace(operand_at(a.stack, at), functools.partial(dispatch.ask, o, f))
    return _noted(a, values[1:] if takes else values, name_of(f))


def answers(a: Activation, f: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Whether a call of a package's function has a declared answer."""
    answer = answer_of(f)
    if answer is None or is_scipys_own(f) or not _is_packages(a.o, f):
        return False
    return is_answered(answer, a.frame.f_code, [*args, *kwargs.values()])


def _plain_within(x: Any) -> Any:
    """The plain array of a `CreatedTracer`, also inside lists and dicts, which are updated, and
    tuples. None if `x` needs no replacement."""
    if type(x) is tuple:
        parts = [_plain_within(y) for y in x]
        if all(y is None for y in parts):
            return None
        return tuple(x if y is None else y for x, y in zip(x, parts, strict=True))
    if type(x) in (list, dict):
        for key, y in [*(x.items() if type(x) is dict else enumerate(x))]:
            if (plain := _plain_within(y)) is not None:
                x[key] = plain
        return None
    return dispatch.plain(x)


def _among_variables(a: Activation, f: Any, values: Sequence[Any], at: int) -> Then:
    """The recorder of a repeated call of code that reads its callers' variables: it is called in a
    frame with the plain ones among these."""
    o, variables, here = a.o, {}, a.frame.f_lasti
    others = {*a.frame.f_locals}
    for name, x in a.frame.f_locals.items():
        given = x if (plain := dispatch.plain(x)) is None else plain
        if _are_plain(o, [given]) and o.questions.can_be_told(given):
            variables[name] = given
    among = Among(f, a.frame.f_globals, others - {*variables})

    def asked(*args: Any, **kwargs: Any) -> Any:
        return dispatch.ask(o, among, variables, args, kwargs)

    frames.replace(operand_at(a.stack, at), asked)
    note = _noted(a, values, name_of(f))

    def then(result: Any) -> None:
        note(result)
        o.read_all([variables[name] for name in among.asked if name in variables])
        if among.uses_others:
            o.back = [(places(a.frame.f_code, FOLLOWED_ON), here)]
            o.refuse(UnsupportedError("a variable of the program's that isn't plain"))

    return then


def _is_about_packages(f: Any, values: Sequence[Any]) -> bool:
    """Whether a function of Python's or NumPy's calls methods of a package's object."""
    if isinstance(f, type) and not (f in CONTAINERS or f in PLAIN_TYPES):
        return False
    if not is_pure(f) or any(f is x for x in _NEVER_ASKED):
        return False
    kinds = {type(x): x for x in (values if f in _LOOKS_AT_NONE else parts_of(values))}
    return any(_is_inside(x) and not is_pandas_object(x) for x in kinds.values())


_LOOKS_AT_NONE = (len, enumerate, zip, reversed)  # they call no method of the items of a list
_NEVER_ASKED = (print, iter, next, id, map, list.append, list.pop, list.insert)


def _is_given(o: RunRecord, values: Sequence[Any]) -> bool:
    """Whether a repeated call has returned one of these values. Then calls with it are repeated,
    too."""
    olds = o.questions.olds
    return any(is_made(o, x) or id(x) in olds for x in parts_of(values))


def _follow(o: RunRecord, site: tuple[set[int], int]) -> Any:
    o.sites.append(site)
    o.library = Called(o, site)
    return FOLLOWED


def watched(handler: Handler) -> Handler:
    """Decorate the handler of an instruction that may call a package: the call ends with the
    instruction."""

    @functools.wraps(handler)
    def noted(a: Activation, arg: Any) -> Then | None:
        before = a.o.library
        try:
            note = handler(a, arg)
        except Exception:
            a.o.library, a.o.step = before, None
            raise
        for begun in (a.o.library if a.o.library is not before else None, a.o.step):
            if begun is not None:
                note = both(note, functools.partial(begun.over, a.o))
        a.o.step = None
        return note

    return noted


def attribute(a: Activation, x: Any, name: str) -> Any:
    """Record that an attribute of a package's object is looked up."""
    made = is_made(a.o, x)
    if not a.users or not (_is_inside(x) or made):
        return FOLLOWED
    if _is_method(x, name) and not (made and inspection.looks_up_itself(type(x))):
        return FOLLOWED
    is_held = name in (inspection.own_names(x) or ())
    return FOLLOWED if is_held and not made else _instruction(a, getattr, (x, name))


def sets_attribute(a: Activation, x: Any, name: str, value: Any) -> Any:
    """Record that an attribute of an object from a repeated call is set to a plain value."""
    if not is_made(a.o, x):
        return FOLLOWED
    then = _instruction(a, setattr, (x, name, value))
    return FOLLOWED if then is FOLLOWED else lambda result: then(None)


def item(a: Activation, x: Any, key: Any) -> Any:
    """Record that an item of such an object is looked up."""
    known = _is_inside(x) or is_made(a.o, x)
    return _instruction(a, operator.getitem, (x, key)) if known else FOLLOWED


def enter_with(a: Activation, x: Any) -> Any:
    """Record that `with x` begins for such an object."""
    return _instruction(a, _entered, (x,)) if is_made(a.o, x) else FOLLOWED


def _entered(x: Any) -> Any:
    return type(x).__enter__(x)


def operation(a: Activation, *operands: Any) -> Any:
    """Record an operator or comparison of such an object and a plain value, or such a sign."""
    if not a.users or not any(_is_inside(v) or is_made(a.o, v) for v in operands):
        return FOLLOWED
    f = frames.operation_of(a.frame)
    return FOLLOWED if f is None else _instruction(a, f, operands)


def _instruction(a: Activation, f: Any, args: tuple[Any, ...]) -> Any:
    """Record an instruction that is equivalent to `f(*args)`."""
    o = a.o
    if not _is_watched(a) or not _are_plain(o, args):
        return FOLLOWED
    site = places(a.frame.f_code, ASKED), a.frame.f_lasti
    if site[1] in places(a.frame.f_code, FOLLOWED_ON):
        return FOLLOWED
    if not (site[1] in site[0] or _is_given(o, args)):
        return _follow(o, site)
    told = o.questions.asked(f, args)
    note = _noted(a, [*args], name_of(f) if f is not getattr else str(args[1]))

    def then(result: Any) -> None:
        if result is not MISSING:
            told(result)
        note(result)

    return then


def _is_watched(a: Activation) -> bool:
    """Whether this is the user's code, in a run that isn't nested, and not inside a package's
    call."""
    o = a.o
    return (
        a.users
        and o.library is None
        and o.apart is None
        and o.trace is not None
        and not o.is_nested
    )


def is_made(o: RunRecord, x: Any) -> bool:
    """Whether a repeated call has returned this object."""
    return id(x) in o.questions.made


def parts_of(values: Sequence[Any]) -> Iterator[Any]:
    """Yield arguments, and the contents of lists, tuples and dicts among them."""
    for x in values:
        yield x
        if type(x) in (list, tuple, dict):
            yield from x.values() if type(x) is dict else x


def not_followed(sites: Sequence[tuple[set[int], int]]) -> None:
    """Have the packages' functions called at these places repeated by each call from now on."""
    for held, place in sites:
        held.add(place)


def failed_in(o: RunRecord, error: Exception) -> list[tuple[set[int], int]]:
    """The places of package calls to note after a failed trace. If it failed in such a call, the
    trace is repeated without following those that this code calls. Or the error holds the notes."""
    if isinstance(error, TapegradError) and error.notes:
        return [*error.notes]
    inside = o.library is not None or o.failed_inside or o.barred
    return o.back or (o.sites if inside else [])


def _noted(a: Activation, values: Sequence[Any], word: str) -> Then:
    """The recorder of a repeated call."""
    o, code, place = a.o, a.frame.f_code, a.frame.f_lasti
    if o.effects is not None:
        o.effects.count += 1
    outside = [x for x in values if o.reads.place(x) is not None and not is_made(o, x)]
    for x in outside:
        if _is_inside(x) or type(x) is types.FunctionType:
            o.reads.pin(x)
    of_users: list[Any] = []  # objects reachable from the program's code
    users = functools.partial(users_parts, o, of_users)
    reached = generators_in(outside, MAX_SNAPSHOT, packages=True, users=users) or []
    generators = [*global_generators(), *reached]
    states = [(g, randomness.state_of(g)) for g in generators]
    # Earlier arguments may be held by an object that this call changes. The program's new arguments
    # may be changed: that is compared.
    local = {id(x) for x in values} - {id(x) for x in outside}
    before = Holding(
        [x for x in (*o.passed, *outside, *of_users) if id(x) not in local and not is_source(x)]
    )
    given = [x if (plain := dispatch.plain(x)) is None else plain for x in values]
    o.passed += [x for x in given if not (INERT[type(x)] or is_made(o, x))]
    note = o.taken(_read_of(o, values), whole=True)
    o.quiet = True

    def then(result: Any) -> None:
        o.quiet = False
        _note_draws(o, states)
        if not before.is_now():
            o.reads.use_once(word, CHANGES)
        if _is_part(result, before):  # the program may change it
            o.back = [(places(code, FOLLOWED_ON), place)]
            o.refuse(UnsupportedError(f"a container from outside the function that {word} returns"))
        if o.questions.last is None:  # an argument came from a followed call
            not_followed(o.sites)
        last, is_varying = o.questions.last, place in places(code, VARYING)
        shared = last.answer.shared if last is not None else []
        for x in shared:
            o.reads.constant(x, word)
            o.reads.use_once(word, CALLED_OUTSIDE)
        is_varying = not shared and (is_varying or (last is not None and last.answer.once))
        is_varying = is_varying and place not in places(code, STEADY)
        if is_varying and o.questions.last is not None:
            dispatch.varied(a, o.questions.last, result, (places(code, STEADY), place))
        o.questions.note(word, (places(code, VARYING), place))

    return both(note, then) or then


def _is_part(x: Any, held: Holding) -> bool:
    """Whether a value is, or contains, a container that others hold, too; or is an iterator."""
    if type(x) not in CONTAINERS:
        return type(x) in ITERATORS or type(x) is types.GeneratorType
    return id(x) in held.held or any(_is_part(y, held) for y in inspection.values(x))


def _read_of(o: RunRecord, values: Iterable[Any]) -> Iterator[Any]:
    """Yield the arguments that are read; a package's object is known by the call that returned
    it."""
    for x in values:
        if type(x) in (list, tuple, dict) and any(is_made(o, y) for y in parts_of([x])):
            yield from _read_of(o, x.values() if type(x) is dict else x)
        elif not (_is_inside(x) or is_made(o, x) or (is_source(x) and o.reads.place(x))):
            yield x


def _note_draws(o: RunRecord, states: Sequence[tuple[Any, Any]]) -> None:
    """Record the draws of a repeated call. Each call repeats them, before those for the tape."""
    question, own = o.questions.last, [drawn.generator for drawn in o.drawn]
    for generator, state in states:
        if randomness.same(state, randomness.state_of(generator)):
            continue
        if question is None or any(x is generator for x in own):
            o.draws(generator)
        else:
            question.answer.drew.append((generator, state))


CHANGES = (
    "It changes an object that was made outside: make that in the function, or call it outside"
)


# ---- which calls


def _is_packages(o: RunRecord, f: Any) -> bool:
    """Whether a callable is a Python function of an installed package, which would be followed
    otherwise."""
    if isinstance(f, type):
        return is_inside(f) and _is_others(o, f.__module__) and not is_scipys_own(f)
    if type(f) is types.MethodType:
        f = f.__func__
    elif type(f) is not types.FunctionType:
        f = inspection.found_in_class(type(f), "__call__")
    return _is_packages_function(o, f)


def _is_packages_function(o: RunRecord, f: Any) -> bool:
    if type(f) is not types.FunctionType:
        return False
    code, file = f.__code__, file_of_function(f)
    package = package_of(file)
    if not package or code.co_flags & _GENERATOR or code in o.roots:
        return False
    name = os.path.basename(package)
    reads_files = f"{os.sep}scipy{os.sep}io{os.sep}" in file
    if (name in _WAYS and not reads_files) or (o.home and file.startswith(o.home)):
        return False
    return not (is_own(code) or is_silent(code) or is_pandas(code))


def _is_others(o: RunRecord, module: str) -> bool:
    file = str(getattr(sys.modules.get(module), "__file__", None))
    return module.partition(".")[0] not in _WAYS and not (o.home and file.startswith(o.home))


_WAYS = ("numpy", "scipy", "pandas", "tapegrad", "numba", "llvmlite", "tqdm")


def _is_method(x: Any, name: str) -> bool:
    """Whether an attribute is a method of the class."""
    found = inspection.found_in_class(type(x), name)
    kinds = (types.FunctionType, types.MethodDescriptorType, staticmethod, classmethod)
    return isinstance(found, kinds) and name not in (inspection.own_names(x) or {})


def _are_plain(o: RunRecord, values: Sequence[Any]) -> bool:
    """Whether neither a traced value, nor code of the user's, nor an object that the run has
    changed can be reached from these values."""
    if all(INERT[type(x)] and not isinstance(x, Value) for x in values):
        return True
    given = [x for x in values if not _is_packages_function(o, x)]
    # An object that a call has returned holds that call's arguments.
    others = [x for x in given if not is_made(o, x)]
    reached: list[Any] = []
    users = functools.partial(users_parts, o, reached)
    if generators_in(others, MAX_SNAPSHOT, packages=True, users=users) is None:
        return False
    written = bool(o.reads.written) if reached else _is_written(o, given)
    o.barred = o.barred or written
    return not written


def _is_inside(x: Any) -> bool:
    """Whether an object's class belongs to a package."""
    kind: Any = type(x)
    return is_inside(kind) and not is_librarys(kind)


def _is_written(o: RunRecord, values: Sequence[Any]) -> bool:
    """Whether an object that the run has changed can be reached from these values."""
    written = {id(write.x) for write in o.reads.written.values()}
    return bool(written) and any(number in written for number in Holding(values).held)
