"""Dynamic programming, and chains of states."""

from __future__ import annotations

import numpy as np
from tests.loops.program import Program


def hmm_forward(start, transitions, emissions):
    """The likelihood of a hidden Markov model, in logarithms throughout."""

    def log_sum(x, axis):
        top = np.max(x, axis=axis, keepdims=True)
        return np.squeeze(top, axis) + np.log(np.sum(np.exp(x - top), axis=axis))

    log_a = transitions - log_sum(transitions, 1)[:, None]
    alpha = start - log_sum(start, 0) + emissions[0]
    for t in range(1, len(emissions)):
        alpha = log_sum(alpha[:, None] + log_a, 0) + emissions[t]
    return log_sum(alpha, 0)


def make_hmm_forward(rng, size):
    return rng.standard_normal(3), rng.standard_normal((3, 3)), rng.standard_normal((size + 1, 3))


def viterbi(start, transitions, emissions):
    """The score of the best path."""
    score = start + emissions[0]
    for emission in emissions[1:]:
        score = np.max(score[:, None] + transitions, axis=0) + emission
    return np.max(score)


def make_viterbi(rng, size):
    return rng.standard_normal(3), rng.standard_normal((3, 3)), rng.standard_normal((size + 1, 3))


def soft_edit_distance(x, y, gap):
    """Aligning two series: a table, row by row and cell by cell, with a smooth minimum."""

    def least(*costs):
        return -np.log(sum(np.exp(-cost) for cost in costs))

    above = [gap * j for j in range(len(y) + 1)]
    for i in range(len(x)):
        row = [gap * (i + 1)]
        for j in range(len(y)):
            match = above[j] + (x[i] - y[j]) ** 2
            row.append(least(match, above[j + 1] + gap, row[j] + gap))
        above = row
    return above[-1]


def make_soft_edit_distance(rng, size):
    return rng.standard_normal(size), rng.standard_normal(5), 0.5 + rng.random()


def alignment(log_probs, extended):
    """Connectionist temporal classification: all ways to stretch a text over the frames."""
    blank = 0
    repeated = extended[2:] == extended[:-2]
    closed = (extended[2:] == blank) | repeated
    alpha = np.full(len(extended), -30.0)
    alpha[0] = 0.0
    for frame in log_probs:
        one = np.concatenate([alpha[:1] - 30.0, alpha[:-1]])
        two = np.concatenate([alpha[:2] - 30.0, np.where(closed, -30.0, alpha[:-2])])
        alpha = np.logaddexp(np.logaddexp(alpha, one), two) + frame[extended]
    return -np.logaddexp(alpha[-1], alpha[-2])


def make_alignment(rng, size):
    return rng.standard_normal((size, 3)), np.array([0, 1, 0, 2, 0])


def value_iteration(rewards, discount, moves, rounds):
    """Bellman's equation: what the best action is worth, in each state."""
    v = np.zeros_like(rewards[0])
    for _ in range(rounds):
        v = np.max(rewards + discount * (moves @ v), axis=0)
    return np.mean(v)


def make_value_iteration(rng, size):
    moves = rng.random((2, 4, 4))
    moves = moves / moves.sum(axis=-1, keepdims=True)
    return rng.standard_normal((2, 4)), 0.5 + 0.4 * rng.random(), moves, size


def backward_induction(utilities, wage, steps):
    """Savings, decided from the last year back; a smooth choice between a few levels."""
    worth = np.log(1.0 + utilities)
    for _ in range(steps - 1, -1, -1):
        scores = -((utilities[:, None] - wage * utilities[None, :]) ** 2) + 0.9 * worth[None, :]
        top = np.max(scores, axis=1)
        worth = top + np.log(np.sum(np.exp(scores - top[:, None]), axis=1))
    return np.sum(worth)


def make_backward_induction(rng, size):
    return rng.random(4), 0.5 + 0.5 * rng.random(), size


def markov(weights, start, steps):
    """How often a chain is where, on its way."""
    moves = np.exp(weights) / np.sum(np.exp(weights), axis=1, keepdims=True)
    p = start / np.sum(start)
    visits = 0.0
    for _ in range(steps):
        visits = visits + p
        p = p @ moves
    return visits[0] * visits[1] / steps


def make_markov(rng, size):
    return rng.standard_normal((3, 3)), 0.1 + rng.random(3), size


def knapsack(values, steps):
    """Each thing twice or not at all, with a smooth maximum, over shifted rows of a table."""
    best = np.zeros_like(values)
    for k in range(steps):
        taken = np.concatenate([best[:1], best[:-1] + values[k % len(values)]])
        best = np.logaddexp(best, taken)
    return best[-1]


def make_knapsack(rng, size):
    return rng.random(4), size


def option_tree(spot, up, strike, steps):
    """A binomial tree: every round has one node fewer, so no two rounds are alike."""
    p = (1.01 - 1 / up) / (up - 1 / up)
    ends = np.arange(steps + 1)
    values = np.maximum(spot * up ** (2.0 * ends - steps) - strike, 0.0)
    for _ in range(steps):
        values = (p * values[1:] + (1 - p) * values[:-1]) / 1.01
    return values[0]


def make_option_tree(rng, size):
    return 1.0 + 0.1 * rng.random(), 1.1 + 0.1 * rng.random(), 1.03, size


def looked_up(table, words):
    """Embeddings, looked up by words, that a running mean forgets slowly."""
    state = np.zeros_like(table[0])
    for word in words:
        state = 0.8 * state + 0.2 * np.tanh(table[word] + state)
    return np.sum(state**2)


def make_looked_up(rng, size):
    return rng.standard_normal((4, 3)), rng.integers(0, 4, size)


PROGRAMS = (
    Program(hmm_forward, make_hmm_forward, (0, 1, 2)),
    Program(viterbi, make_viterbi, (0, 1, 2)),
    Program(soft_edit_distance, make_soft_edit_distance, (0, 1, 2), loops=2),
    Program(alignment, make_alignment, (0,), least=6),
    Program(value_iteration, make_value_iteration, (0, 1)),
    Program(backward_induction, make_backward_induction, (0, 1)),
    Program(markov, make_markov, (0, 1)),
    # The thing that a round reads changes with a period of four.
    Program(knapsack, make_knapsack, (0,)),
    Program(option_tree, make_option_tree, (0, 1, 2), loops=None),
    Program(looked_up, make_looked_up, (0,)),
)
