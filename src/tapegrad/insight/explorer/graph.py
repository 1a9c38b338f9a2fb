"""The layout of a tape's graph: the forward pass downwards, the reverse pass back up beside it.

Each function of the program has its own lane in each half, as have the calls without a function. A
cotangent stands at about the height of the forward values that it reads.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from tapegrad.ir.tape import Call, Literal, Tape, Var

WIDTH, HEIGHT = 168, 26  # size of a call
ACROSS, DOWN, BETWEEN = 14, 26, 70  # gaps: beside a call, below it, between lanes
MIN_BESIDE = 4  # calls in a row before a level gets another row


class Node(NamedTuple):
    """A call or an input: its position, its label, the number of the call, its lane."""

    x: float
    y: float
    label: str
    call: int | None
    lane: int


class Lane(NamedTuple):
    """A function of the program in one half, and its rectangle."""

    name: str
    is_reverse: bool
    left: float
    top: float
    right: float
    bottom: float


class Drawing(NamedTuple):
    nodes: Sequence[Node]
    edges: Sequence[tuple[int, int]]
    lanes: Sequence[Lane]


def drawing(tape: Tape) -> Drawing:
    """The layout of a tape. A call that holds tapes is one node."""
    made: dict[Var, int] = {}
    labels: list[str] = []
    levels: list[int] = []
    lanes: list[tuple[str, bool]] = []
    calls: list[int | None] = []
    edges: list[tuple[int, int]] = []
    names = tape.names or ("",) * len(tape.inputs)
    deepest = 0
    for var, name in zip(tape.inputs, names, strict=True):
        made[var] = len(labels)
        labels.append(f"{name or var} : {var.aval}")
        levels.append(0)
        lanes.append(("inputs", False))
        calls.append(None)
    for number, call in enumerate(tape.calls):
        read = dict.fromkeys(made[x] for x in call.operands if isinstance(x, Var))
        edges += [(k, len(labels)) for k in read]
        made.update(dict.fromkeys(call.outs, len(labels)))
        labels.append(_label(call))
        levels.append(1 + max((levels[k] for k in read), default=0))
        lanes.append((call.src.function if call.src is not None else "no line", call.is_cotangent))
        calls.append(number)
        if not call.is_cotangent:
            deepest = max(deepest, levels[-1])
    for k, (_, is_reverse) in enumerate(lanes):
        if is_reverse:
            levels[k] = 2 * deepest + 1 - levels[k]
    return _placed(labels, levels, lanes, calls, edges)


def _label(call: Call) -> str:
    numbers = [str(x) for x in call.operands if isinstance(x, Literal)]
    name = str(call.primitive.name) + (f" {', '.join(numbers)}" if numbers else "")
    return f"{name} : {call.outs[0].aval}" if call.outs else name


def _placed(
    labels: Sequence[str],
    levels: Sequence[int],
    lanes: Sequence[tuple[str, bool]],
    calls: Sequence[int | None],
    edges: Sequence[tuple[int, int]],
) -> Drawing:
    """Lanes side by side: first the forward ones, then the reverse ones in opposite order. In a
    lane, the calls of each level are laid out in rows."""
    forward = list(dict.fromkeys(x for x in lanes if not x[1]))
    back = [x for x in dict.fromkeys(lanes) if x[1]]
    order = [*forward, *sorted(back, key=lambda x: -_place((x[0], False), forward))]
    members: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    sizes = [0] * len(order)
    number = {lane: k for k, lane in enumerate(order)}
    for node, (level, lane) in enumerate(zip(levels, lanes, strict=True)):
        members[number[lane], level].append(node)
        sizes[number[lane]] += 1
    most = [max(MIN_BESIDE, math.isqrt(size)) for size in sizes]
    rows: defaultdict[int, int] = defaultdict(int)
    widths = [1] * len(order)
    for (at, level), own in members.items():
        rows[level] = max(rows[level], math.ceil(len(own) / most[at]))
        widths[at] = max(widths[at], min(len(own), most[at]))
    tops, y = {}, 0.0
    for level in sorted(rows):
        tops[level] = y
        y += rows[level] * (HEIGHT + DOWN)
    lefts, x = [], 0.0
    for width in widths:
        lefts.append(x)
        x += width * (WIDTH + ACROSS) + BETWEEN
    read: defaultdict[int, list[int]] = defaultdict(list)
    for start, end in edges:
        read[end].append(start)
    xs, ys = [0.0] * len(labels), [0.0] * len(labels)
    for (at, level), own in sorted(members.items()):
        own.sort(key=lambda k: sum(xs[p] for p in read[k]) / max(len(read[k]), 1))
        for k, node in enumerate(own):
            row, column = divmod(k, most[at])
            across = min(len(own) - row * most[at], most[at])
            first = lefts[at] + (widths[at] - across) * (WIDTH + ACROSS) / 2
            xs[node] = first + column * (WIDTH + ACROSS)
            ys[node] = tops[level] + row * (HEIGHT + DOWN)
    nodes = [
        Node(xs[k], ys[k], label, calls[k], number[lanes[k]]) for k, label in enumerate(labels)
    ]
    return Drawing(nodes, edges, [_lane(k, lane, nodes) for k, lane in enumerate(order)])


def _place(lane: tuple[str, bool], lanes: Sequence[Any]) -> int:
    return lanes.index(lane) if lane in lanes else len(lanes)


def _lane(number: int, lane: tuple[str, bool], nodes: Sequence[Node]) -> Lane:
    own = [node for node in nodes if node.lane == number]
    xs, ys = [node.x for node in own], [node.y for node in own]
    return Lane(*lane, min(xs), min(ys), max(xs) + WIDTH, max(ys) + HEIGHT)
