"""Where the two sides of a test meet: what all ways from it to the end come by first."""

from __future__ import annotations

import cProfile
import dis
import heapq
import statistics
import textwrap
from types import CodeType

import pytest
from tests.loops import branching

from tapegrad.observe.program.joins import RETURNED, sides_of


def reached(flow, starts, but=None):
    found, todo = set(), [o for o in starts if o != but]
    while todo:
        if (offset := todo.pop()) not in found:
            found.add(offset)
            todo += [o for o in flow.after(offset) if o != but]
    return found


def meeting(flow, starts):
    """By its definition: without it no end is reached, and of all such the least lies before it."""
    common = reached(flow, starts[:1]) & reached(flow, starts[1:])
    regions = {o: reached(flow, starts, o) for o in common if flow.after(o)}
    found = [o for o, region in regions.items() if all(map(flow.after, region))]
    return min(found, key=lambda o: len(regions[o]), default=RETURNED)


def codes(code):
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from codes(inner)


@pytest.mark.every(2)
@pytest.mark.parametrize("module", [branching, heapq, statistics, textwrap])
def test_sides_meet_where_all_ways_do(module):
    with open(module.__file__) as file:
        whole = compile(file.read(), module.__file__, "exec")
    found = []
    for code in codes(whole):
        sides = sides_of(code)
        flow = sides.flow
        for offset, i in flow.at.items():
            if i.opname.startswith("POP_JUMP") and i.opname.endswith(("_IF_TRUE", "_IF_FALSE")):
                join = sides.join(offset)
                if join is None:
                    continue
                starts = [flow.branch(offset, truth) for truth in (True, False)]
                assert join.offset == meeting(flow, starts), (code.co_name, offset)
                but = None if join.offset == RETURNED else join.offset
                assert join.region == reached(flow, starts, but)
                found.append(join.offset)
    assert len({*found}) > 5


def ends_of_jumps(code):
    """Where the jumps of a code lead as they lie there, those that aren't run too: so Python reads
    a code that it watches, and writes to these places."""
    for i in dis.get_instructions(code):
        if i.opname.startswith(("POP_JUMP", "JUMP_", "FOR_ITER", "SEND")):
            yield i.argval


def test_jumps_of_a_side_by_itself_stay_in_its_code():
    """in long functions, whose jumps have prefixes"""
    lines = [
        f"        if x[{k}] > {k}:\n            continue\n        y = y * x[{k}]" for k in range(40)
    ]
    text = "\n".join(["def f(x, y):", "    for i in range(9):", *lines, "    return y"])
    names = {}
    exec(text, names)
    sides = sides_of(names["f"].__code__)
    found = []
    for offset, i in sides.flow.at.items():
        if i.opname.startswith("POP_JUMP") and (join := sides.join(offset)) is not None:
            for code in join.codes.values():
                ends = [*ends_of_jumps(code)]
                assert all(0 <= end < len(code.co_code) for end in ends)
                found += ends
    assert len(found) > 40


def steps(n):
    """The calls of functions that take the joins of so many branches in a row."""
    lines = [
        f"    if x > {k}:\n        s = s * {k}\n    else:\n        s = s + x" for k in range(n)
    ]
    text = "\n".join(["def f(x, s):", *lines, "    return s"])
    names = {}
    exec(text, names)
    sides, profile = sides_of(names["f"].__code__), cProfile.Profile()
    jumps = [o for o, i in sides.flow.at.items() if i.opname.startswith("POP_JUMP")]
    profile.runcall(lambda: [sides.join(jump) for jump in jumps])
    assert len(jumps) == n and all(join is not None for join in sides._joins.values())
    return sum(entry.callcount for entry in profile.getstats())


def test_twice_the_branches_take_twice_the_steps():
    assert steps(160) < 2.1 * steps(80)
