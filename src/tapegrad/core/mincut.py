"""Minimum cuts of graphs whose edges have capacities (Dinic, 1970)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable
from itertools import pairwise

Node = Hashable


def sink_side(edges: Iterable[tuple[Node, Node, float]], source: Node, sink: Node) -> set[Node]:
    """The nodes on the sink's side of the minimum cut that is nearest to the sink. Capacities may
    be infinite, but not along a whole path from source to sink."""
    room: dict[Node, dict[Node, float]] = defaultdict(dict)  # residual capacities
    for one, other, capacity in edges:
        room[one][other] = capacity
        room[other].setdefault(one, 0.0)
    while True:
        far = _distances(room, sink)
        if source not in far:
            return set(far)
        _fill(room, far, source, sink)


def _distances(room: dict[Node, dict[Node, float]], sink: Node) -> dict[Node, int]:
    """The number of edges from each node to the sink, along edges with residual capacity."""
    far, order = {sink: 0}, [sink]
    for node in order:
        for other in room[node]:
            if other not in far and room[other][node] > 0:
                far[other] = far[node] + 1
                order.append(other)
    return far


def _fill(
    room: dict[Node, dict[Node, float]], far: dict[Node, int], source: Node, sink: Node
) -> None:
    """Send as much flow as possible along shortest paths."""
    ways = {
        node: [other for other in room[node] if far.get(other) == distance - 1]
        for node, distance in far.items()
    }
    path = [source]
    while ways[source]:
        node = path[-1]
        if node == sink:
            edges = list(pairwise(path))
            least = min(room[one][other] for one, other in edges)
            for one, other in edges:
                room[one][other] -= least
                room[other][one] += least
            del path[1 + next(k for k, (one, other) in enumerate(edges) if not room[one][other]) :]
        elif not ways[node]:
            path.pop()
            ways[path[-1]].pop()
        elif room[node][ways[node][-1]] > 0:
            path.append(ways[node][-1])
        else:
            ways[node].pop()
