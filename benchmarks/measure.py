"""Every engine on one workload: from cold, warm, and checked against each other."""

import contextlib
import math
import statistics
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from clock import OutOfTime, seconds, time_limit
from engines import ENGINES, Call, Engine, NotWritten
from workloads import Workload

# Whom to believe when gradients differ, first choice first: never tapegrad, if another answered.
REFERENCES = ("jax", "autograd", "torch", "tapegrad")

FAILURES = (Exception, OutOfTime)

COUNTS = (1, 10, 100, 10_000)  # of calls, whose total is told


@dataclass
class Measurement:
    """One engine on one workload; times in seconds, None where there is none."""

    workload: str
    family: str
    engine: str
    first: float | None = None  # from nothing to the first gradient
    compile: float | None = None  # tracing and compiling
    warm: float | None = None  # median of a warm call
    best: float | None = None  # fastest sample of a warm call
    to_jax: float | None = None  # warm, relative to JAX's
    memory: int | None = None  # bytes of temporaries that a compiled call plans with
    totals: dict[int, float] = field(default_factory=dict)  # of so many calls from nothing
    called: int = 0  # how many calls of the totals were made; beyond that they are extrapolated
    difference: float | None = None  # largest, relative to the reference's gradients
    wrong: bool = False
    error: str = ""


def measure(
    workload: Workload, engines: list[Engine], tier: str, budget: float, limit: float
) -> list[Measurement]:
    """Run every engine on one workload; what fails is reported and left out."""
    args = workload.make(np.random.default_rng(0))
    rows = {e.name: Measurement(workload.name, workload.family, e.name) for e in engines}
    calls: dict[str, Call] = {}
    cold: dict[str, float] = {}
    answers: dict[str, list[list[np.ndarray]]] = {}
    for engine in engines:
        row = rows[engine.name]
        time.sleep(PAUSE)
        try:
            with time_limit(limit):
                start = time.perf_counter()
                call = engine.prepare(workload, args)
                answer = call()
                row.first = cold[engine.name] = time.perf_counter() - start
            answers[engine.name] = [arrays(answer)]
            try:
                with time_limit(limit):
                    count_up(engine, call, row, budget)
            except OutOfTime as error:
                row.error = f"the totals: {error}"
            if engine.tiered:
                with time_limit(limit):
                    call = engine.prepare(workload, args, tier)
                    start = time.perf_counter()
                    answer = call()
                    cold[engine.name] = time.perf_counter() - start
                answers[engine.name].append(arrays(answer))
            calls[engine.name] = call
        except NotWritten:
            del rows[engine.name]
        except FAILURES as error:
            row.error = describe(error)

    compare(rows, answers)
    for name, samples in time_in_turns(calls, rows, budget, limit).items():
        row = rows[name]
        row.warm, row.best = statistics.median(samples), min(samples)
        engine = ENGINES[name]
        if engine.compiles and (tier == "always" or not engine.tiered):
            row.compile = max(cold[name] - row.warm, 0.0)
    for name in calls:
        with contextlib.suppress(*FAILURES), time_limit(limit):
            rows[name].memory = ENGINES[name].memory(workload, args)
    jax = rows["jax"].warm if "jax" in rows else None
    for row in rows.values():
        if jax and row.warm:
            row.to_jax = row.warm / jax
    return list(rows.values())


# The totals.

STRETCH = 0.01  # seconds between two looks at the clock: calls may take less than it takes to look


def count_up(engine: Engine, call: Call, row: Measurement, budget: float) -> None:
    """What the first 1, 10, 100 and 10,000 calls take together, `call` having been called once.

    The calls are made, until the budget is used up and the engine calls as it will from then on.
    The others are taken to last as long as the median of those that were made since.
    """
    made, total = 1, row.first or 0.0
    pace: list[float] = []  # seconds per call, in stretches, since the engine has settled
    rate = 0.0
    row.totals[1], row.called = total, made
    while made < COUNTS[-1] and (total < budget or len(pace) < 5):
        settled = bool(pace) or engine.settled(call)
        before_next = min(n for n in COUNTS if n > made) - made
        count = min(before_next, max(1, int(STRETCH / rate))) if rate else 1
        spent = seconds(call, count)
        made, total, rate = made + count, total + spent, spent / count
        if settled:
            pace.append(rate)
        if made in COUNTS:
            row.totals[made] = total
        row.called = made
    for count in COUNTS:
        if count > made:
            row.totals[count] = total + (count - made) * statistics.median(pace)


# The answers.


def arrays(answer: tuple[Any, Any]) -> list[np.ndarray]:
    """The value and each gradient, as NumPy arrays."""
    value, gradients = answer
    leaves = gradients if isinstance(gradients, tuple | list) else [gradients]
    return [np.asarray(leaf) for leaf in (value, *leaves)]


def compare(rows: dict[str, Measurement], answers: dict[str, list[list[np.ndarray]]]) -> None:
    """Hold every answer against the reference's."""
    reference = next((name for name in REFERENCES if name in answers), None)
    if reference is None:
        return
    every = answers[reference][0]
    tolerance = 1e-3 if any(a.dtype == np.float32 for a in every) else 1e-6
    for name, attempts in answers.items():
        row = rows[name]
        expected = every[:1] if ENGINES[name].value_alone else every
        for attempt in attempts:
            if [a.shape for a in attempt] != [a.shape for a in expected]:
                row.wrong, row.error = True, f"the gradients' shapes differ from {reference}'s"
                continue
            # NumPy's maximum is nan if any is; Python's would be that only of a first one.
            worst = float(np.max([*map(relative_difference, attempt, expected)]))
            row.difference = max(worst, row.difference or 0.0)
            if not worst <= tolerance:  # nan is wrong too
                row.wrong, row.error = True, f"{worst:.1e} away from {reference}'s gradients"


def relative_difference(actual: np.ndarray, expected: np.ndarray) -> float:
    """Largest difference, relative to the largest expected number."""
    difference = np.max(np.abs(actual.astype(float) - expected.astype(float)))
    return float(difference / (np.max(np.abs(expected.astype(float))) + 1e-12))


# Warm calls.

# Seconds until another engine's turn: the threads of OpenBLAS, of which NumPy and SciPy have one
# each, go on spinning for some 25 ms after a product, on cores that others need.
PAUSE = 0.03


def time_in_turns(
    calls: dict[str, Call], rows: dict[str, Measurement], budget: float, limit: float
) -> dict[str, list[float]]:
    """Seconds per warm call, sampled from one engine after the other, round by round.

    What else the machine does then falls on all of them alike. Every round another engine begins,
    so that nobody always follows the one that leaves the caches full.
    """
    repeats: dict[str, int] = {}
    samples: dict[str, list[float]] = {}
    for name, call in calls.items():
        try:
            with time_limit(limit):
                repeats[name] = warm_up(call, budget / 4)
            samples[name] = []
        except FAILURES as error:
            rows[name].error = describe(error)

    end = time.perf_counter() + budget * len(samples)
    for turn in range(300):
        names = list(samples)
        if not names or (turn >= 5 and time.perf_counter() > end):
            break
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            call, count = calls[name], repeats[name]
            try:
                with time_limit(limit):
                    time.sleep(PAUSE)
                    call()
                    samples[name].append(seconds(call, count) / count)
            except FAILURES as error:
                rows[name].error = describe(error)
                del samples[name]
    return samples


def warm_up(call: Call, budget: float) -> int:
    """Call for a while; returns how many calls make a sample of at least a millisecond."""
    fastest = math.inf
    end = time.perf_counter() + budget
    while fastest == math.inf or time.perf_counter() < end:
        fastest = min(fastest, seconds(call))
    return math.ceil(1e-3 / fastest)


def describe(error: BaseException) -> str:
    if isinstance(error, OutOfTime):
        return str(error)
    return f"{type(error).__name__}: {error}"
