"""Functions for ``mapInArrow`` that let a task of Spark run more than once. They need nothing of the tests' modules,
because Spark sends them to processes that cannot import these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["always_dying", "dying_once", "slow_once"]

Feed = Callable[[Iterable["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]


def dying_once(url: str, queue: str, rows: int, *, turned: bool = False) -> Feed:
    """Let the second of two tasks die in its first attempt, when some of its rows are stored.

    The tasks have ``rows`` rows together, half of them each. With ``turned``, the second attempt has them in another
    order.
    """
    count = _counting(url, queue)

    def feed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        first = context.attemptNumber() == 0
        for batch in batches:
            places = range(batch.num_rows)
            yield batch if first or not turned else batch.take(pa.array(places[::-1], pa.int64()))
        if first and context.partitionId() == 1:
            count(rows // 2 + 1)
            raise RuntimeError("the executor is killed")

    return feed


def always_dying(url: str, queue: str, rows: int) -> Feed:
    """Let the second of two tasks die in every attempt, when some of its rows are stored."""
    count = _counting(url, queue)

    def feed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        yield from batches
        if context.partitionId() == 1:
            count(rows // 2 + 1)
            raise RuntimeError("the executor is killed")

    return feed


def slow_once(url: str, queue: str, rows: int, folder: str) -> Feed:
    """Let the second of two tasks wait in its first attempt until all rows are stored by another attempt.

    Each attempt of this task leaves a file in a folder.
    """
    count = _counting(url, queue)

    def feed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pathlib import Path

        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        slow = context.partitionId() == 1
        if slow:
            Path(folder, f"attempt-{context.attemptNumber()}").touch()
        waits = slow and context.attemptNumber() == 0
        for number, batch in enumerate(batches):
            if waits and number == 2:
                count(rows)
            yield batch

    return feed


def _counting(url: str, queue: str) -> Callable[[int], None]:
    """Return a function that waits until a queue has some number of messages."""

    def wait(messages: int) -> None:
        from threading import Event
        from time import monotonic

        from sbredis.sync.management import ServiceBusAdministrationClient

        end = monotonic() + 120
        with ServiceBusAdministrationClient(url) as administration:
            while administration.get_queue_runtime_properties(queue).active_message_count < messages:
                assert monotonic() < end, f"the queue does not get {messages} messages"
                Event().wait(0.05)

    return wait
