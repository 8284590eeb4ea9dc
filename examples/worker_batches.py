"""A handler takes many messages at once and inserts them into a database with one statement.

python examples/worker_batches.py [CONNECTION STRING]
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

from sbredis.workers import DeadLetter, Outcome, Router, Worker

ROWS = 1000

handlers = Router()
database = Path(tempfile.mkdtemp()) / "readings.sqlite"
done = threading.Event()


@dataclass
class Reading:
    """A reading of a sensor."""

    number: int
    celsius: float


@handlers.queue("readings", batch=500, batch_wait=0.2, max_concurrent_calls=1, create_if_missing=True)
def insert(readings: list[Reading]) -> list[Outcome | None]:
    """Insert readings. A plain function runs in a thread, so the database does not block the event loop.

    ``None`` completes a message. An exception would abandon all messages of the batch.
    """
    possible = [reading for reading in readings if reading.celsius > -273.15]
    rows = [(reading.number, reading.celsius) for reading in possible]
    with sqlite3.connect(database) as connection:
        # A batch that comes again inserts nothing twice.
        connection.executemany("insert or ignore into readings values (?, ?)", rows)
    connection.close()
    if count() == ROWS - 1:
        done.set()
    return [None if reading in possible else DeadLetter("ImpossibleReading") for reading in readings]


def count() -> int:
    """Return the number of rows."""
    with sqlite3.connect(database) as connection:
        rows: int = connection.execute("select count(*) from readings").fetchone()[0]
    connection.close()
    return rows


async def main(url: str = "memory://example") -> None:
    """Send readings, one of which is impossible, and wait until the others are in the database."""
    with sqlite3.connect(database) as connection:
        connection.execute("create table readings (number integer primary key, celsius real)")
    connection.close()
    worker = Worker(url)
    worker.include(handlers)
    async with worker.running():
        async with asyncio.TaskGroup() as group:
            for number in range(ROWS):
                group.create_task(worker.send("readings", Reading(number, -300.0 if number == 7 else 21.5)))
        await asyncio.to_thread(done.wait)
        print(f"{count()} rows")
        async with worker.client.get_queue_receiver("readings", sub_queue="deadletter") as receiver:
            (dead,) = await receiver.receive_messages(max_wait_time=10)
            print(f"dead letter: {dead}: {dead.dead_letter_reason}")
            await receiver.complete_message(dead)
    database.unlink()
    database.parent.rmdir()


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
