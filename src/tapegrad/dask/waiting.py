"""Waiting for Dask's results, as long as some worker can compute them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from concurrent.futures import CancelledError
from typing import Any, NamedTuple

from tapegrad.dask.sending import forgotten, running_client

ALONE = "5 minutes"  # a call gives up if no worker does anything for so long
AGAIN = 5.0  # seconds between checks of the workers

LOST = (
    "A worker was lost with its parts, and nothing says how to compute them again: data of "
    "client.scatter are lost with their worker. Send them again, or pass dask arrays or delayed "
    "values, which are recomputed when they are lost"
)


def computed(wanted: Iterable[Any], label: str) -> list[Any]:
    """The values of these dask collections, computed by the current scheduler."""
    from dask.base import compute

    client = running_client()
    if client is None:
        return list(compute(*wanted))
    futures = client.compute([*wanted])
    try:
        found: list[Any] = client.sync(_gathered, client, futures, label)
        return found
    finally:
        _release(futures)  # after a failure the other results aren't needed


async def _gathered(client: Any, futures: Sequence[Any], label: str) -> Any:
    """The values of futures, with a time limit.

    Dask itself waits for ever if nobody computes them: without any worker, or if it lost track of
    a task when a worker died.
    """
    import asyncio

    import dask
    from dask.utils import parse_timedelta

    said = dask.config.get("distributed.scheduler.no-workers-timeout", None) or ALONE
    limit, since, before = parse_timedelta(said), time.monotonic(), Seen({}, {}, True)
    work = asyncio.ensure_future(client.gather(futures, asynchronous=True))
    while not (await asyncio.wait([work], timeout=min(AGAIN, limit)))[0]:
        seen = await _seen(client)
        if seen.is_busy or seen.given != before.given:
            since, before = time.monotonic(), seen
        if time.monotonic() - since > limit and seen.has_heard_since(before):
            _release(futures)
            await asyncio.wait([work])
            await client.cancel(forgotten(client), asynchronous=True)
            raise TimeoutError(f"{label}: {seen.said(limit)}") from work.exception()
    try:
        return work.result()
    except CancelledError as error:
        error.add_note(LOST)
        raise


class Seen(NamedTuple):
    """The state of a cluster: the tasks given to each worker, the time of its last heartbeat, and
    whether any worker is busy."""

    given: dict[str, Any]
    heard: dict[str, float]
    is_busy: bool

    def has_heard_since(self, before: Seen) -> bool:
        """Whether all workers have reported since; a worker that imports or compiles can't."""
        return all(at > before.heard.get(name, 0.0) for name, at in self.heard.items())

    def said(self, limit: float) -> str:
        if self.given:
            why = (
                f"for {limit:g} seconds none of the cluster's {len(self.given)} workers has done "
                "anything. Perhaps none has the resources that a task needs, or Dask lost track of "
                "a task when a worker died; call again, or client.restart()"
            )
        else:
            why = (
                f"the cluster has had no worker for {limit:g} seconds. They may not have started "
                "yet, or may have died while starting, after which a LocalCluster starts no "
                "others: its scale(n) does"
            )
        setting = "distributed.scheduler.no-workers-timeout"
        return f"{why}. Dask's setting {setting} says how long a call waits"


async def _seen(client: Any) -> Seen:
    try:
        given = await client.processing()
        workers = (await client.scheduler.identity())["workers"]
    except OSError:  # the scheduler can't be reached: Dask gives up by itself
        return Seen({}, {}, True)
    counts = [worker["metrics"].get("task_counts", {}) for worker in workers.values()]
    is_busy = any(n for tasks in counts for name, n in tasks.items() if name != "memory")
    return Seen(given, {name: x["last_seen"] for name, x in workers.items()}, is_busy)


def _release(futures: Sequence[Any]) -> None:
    for future in futures:
        if hasattr(future, "release"):  # other objects are values already
            future.release()
