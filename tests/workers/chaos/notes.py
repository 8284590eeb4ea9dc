"""What a worker writes down of the messages that it handles, for :mod:`tests.workers.chaos.journal` to read.

Each process appends lines to a file of its own, each line with one call of the system. A line that was written survives
the death of the process, and an outage of the server.

The environment variable ``JOURNAL`` names the folder.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from sbredis.aio import ServiceBusReceiver
from sbredis.model import ServiceBusReceivedMessage, hold_of
from sbredis.workers import Context, SyncContext

__all__ = ["complete_noting", "complete_one_noting", "note", "note_done", "note_start", "noted", "noting", "number_of"]

STEP = 0.05


@functools.cache
def _journal(pid: int) -> int:
    return os.open(Path(os.environ["JOURNAL"]) / f"{pid}.journal", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def number_of(body: str) -> int:
    """Return the number of a message; for the message of a tick, its time in milliseconds."""
    value: Any = json.loads(body)
    return round(datetime.fromisoformat(value).timestamp() * 1000) if isinstance(value, str) else int(value["id"])


def note(event: str, body: str, fence: int | None, **more: Any) -> None:
    """Write a line about the delivery of a message. Its fence tells the delivery from the others."""
    line = {"event": event, "id": number_of(body), "fence": fence, "pid": os.getpid(), "time": time.time(), **more}
    os.write(_journal(os.getpid()), json.dumps(line).encode() + b"\n")


def note_start(body: str, context: Context | SyncContext) -> None:
    """Write down that a handler starts. It does this itself, before it does anything else."""
    note("start", body, context.fence, attempt=context.attempt)


def note_done(body: str, context: Context | SyncContext) -> None:
    """Write down the effect of a handler."""
    note("done", body, context.fence)


def locked_until(message: ServiceBusReceivedMessage) -> float:
    """Return when the lock of a message, or of its session, ends: never later than the server ends it."""
    lease = hold_of(message).lease
    return 0.0 if lease is None else lease.until_utc


async def _watch_locks(given: Sequence[tuple[ServiceBusReceivedMessage, int | None]]) -> None:
    """Write down each change of the locks."""
    before: dict[int | None, float] = {}
    while True:
        for message, fence in given:
            until = locked_until(message)
            if until != before.get(fence):
                before[fence] = until
                note("lock", str(message), fence, until=until)
        await asyncio.sleep(STEP)


async def noted(messages: Sequence[ServiceBusReceivedMessage], work: Any) -> Any:
    """Do the work on messages. Write down that the worker begins it, the locks, and its end."""
    given = [(message, message.fence) for message in messages]  # a lock that is lost has no fence
    for message, fence in given:
        note(
            "begin",
            str(message),
            fence,
            attempt=message.delivery_count,
            interrupted=message.interrupted,
            session=message.session_id,
            until=locked_until(message),
        )
    watching = asyncio.create_task(_watch_locks(given))
    how = "cut"
    try:
        result = await work()
        how = "end"
    except Exception:
        how = "failed"
        raise
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
        for message, fence in given:
            note(how, str(message), fence)
    return result


async def noting(context: Context, proceed: Any) -> Any:
    """Do this around each call of a handler, as its middleware."""
    return await noted([context.message], proceed)


_complete, _complete_one = ServiceBusReceiver.complete_messages, ServiceBusReceiver.complete_message


async def complete_noting(self: ServiceBusReceiver, messages: Any, **options: Any) -> None:
    """Complete messages, and write down that the server has acknowledged it."""
    given = [(message, message.fence) for message in messages]  # a message that is completed has no fence
    await _complete(self, [message for message, _ in given], **options)
    for message, fence in given:
        note("acknowledged", str(message), fence)


async def complete_one_noting(self: ServiceBusReceiver, message: Any, **options: Any) -> None:
    """Do the same with a single message, as the worker completes those of sessions."""
    fence = message.fence
    await _complete_one(self, message, **options)
    note("acknowledged", str(message), fence)
