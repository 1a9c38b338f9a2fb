"""Minimum cuts are networkx's: of those that are equally small the one nearest to the sink."""

from __future__ import annotations

import math
import random

import networkx as nx
import pytest

from tapegrad.core.mincut import sink_side


def made_again(rng, count):
    """Edges as of values that are kept, or made again: whole prices, so many cuts are as small."""
    edges = []
    for k in range(count):
        edges.append(("source", k, rng.randint(0, 5)))
        edges.append((k, ("value", k), rng.randint(0, 5)))
        for _ in range(rng.randint(0, 2)):
            edges.append((("value", rng.randrange(k + 1)), k + 1, math.inf))
        if k == count - 1 or rng.random() < 0.3:
            edges.append((("value", k), "sink", math.inf))
    return edges


@pytest.mark.every(4)
@pytest.mark.parametrize("seed", range(60))
def test_cuts(seed):
    rng = random.Random(seed)
    edges = made_again(rng, rng.randint(1, 40))
    graph = nx.DiGraph()
    for one, other, capacity in edges:
        graph.add_edge(one, other, **({} if math.isinf(capacity) else {"capacity": capacity}))
    _, (_, expected) = nx.minimum_cut(graph, "source", "sink")
    assert sink_side(edges, "source", "sink") == set(expected)
