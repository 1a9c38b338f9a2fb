"""Loops that go on until something holds, in which numbers change that aren't traced: what they do
depends on how many rounds there were."""

from __future__ import annotations

from tests.loops.convergent import Convergent, each

KEPT: list[Convergent] = []


def kept(*calls):
    def noted(f):
        KEPT.append(Convergent(f, calls, None, 0))
        return f

    return noted


def improved(x, a):
    return 0.5 * (x + a / x)


def is_far(x, a):
    return abs(x * x - a) > 1e-12 * a


by_targets = kept(*each((2.0, 1e6, 1.0, 1e-5, 40.0)))


@by_targets
def appended(a):
    x, history = 1.0 * a, []
    while is_far(x, a):
        x = improved(x, a)
        history.append(x)
    return x + 0.1 * sum(history)


@by_targets
def added_to(a):
    x, history = 1.0 * a, []
    while is_far(x, a):
        x = improved(x, a)
        history += [x]
    return x + len(history)


@by_targets
def concatenated(a):
    x, history = 1.0 * a, ()
    while is_far(x, a):
        x = improved(x, a)
        history = (*history, x)
    return x + len(history)


@by_targets
def counted(a):
    x, n = 1.0 * a, 0
    while is_far(x, a):
        x = improved(x, a)
        n += 1
    return x + n


@by_targets
def counted_in_a_range(a):
    x = 1.0 * a
    for n in range(60):  # noqa: B007
        x = improved(x, a)
        if not is_far(x, a):
            break
    return x * (1 + n)


@by_targets
def count_is_read(a):
    x, n = 1.0 * a, 0
    while is_far(x, a):
        x = improved(x, a) + 0 * n * x
        n += 1
        if n % 3 == 0:
            x = x * (1 + 1e-13)
    return x


@by_targets
def count_of_a_range_is_read(a):
    x = 1.0 * a
    for n in range(60):
        x = improved(x, a) + 1e-3 * a / (n + 1) ** 4
        if abs(x * x - a) < 0.1 * a:
            break
    return x


@by_targets
def other_branch_late(a):
    x = 1.0 * a
    for n in range(60):
        x = improved(x, a)
        if n == 6:
            x = x * 1.5
        if not is_far(x, a):
            break
    return x


@by_targets
def cap_reached(a):
    x, n = 1.0 * a, 0
    while is_far(x, a) and n < 7:
        x = improved(x, a)
        n += 1
    return x


@by_targets
def cap_of_a_range_reached(a):
    x = 1.0 * a
    for _ in range(7):
        x = improved(x, a)
        if not is_far(x, a):
            break
    return 2 * x


@by_targets
def else_clause(a):
    x = 1.0 * a
    for _ in range(7):
        x = improved(x, a)
        if not is_far(x, a):
            break
    else:
        x = x + 1
    return x


@by_targets
def counts_down(a):
    x, n = 1.0 * a, 7
    while is_far(x, a):
        n -= 1
        if n <= 0:
            return 3 * x
        x = improved(x, a)
    return x


@by_targets
def jumps(a):
    """It isn't counted in steps of one, and 9 isn't met exactly by 7, 11."""
    x, n = 1.0 * a, 3
    while is_far(x, a) and n != 11:
        x = improved(x, a)
        n += 4
        if n == 11:
            n += 1
    return x
