"""The worker that is killed, terminated and cut off: its handlers write down all that they do.

Each process appends lines to a file of its own. A line that was written survives the death of the process.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from sbredis.aio import ServiceBusReceiver
from sbredis.model import ServiceBusReceivedMessage, hold_of
from sbredis.workers import Context, SyncContext, Worker

GIVEN: dict[str, Any] = json.loads(os.environ["CHAOS"])
FOLDER = Path(GIVEN["folder"])
STEP = 0.05


@functools.cache
def _journal(pid: int) -> int:
    return os.open(FOLDER / f"{pid}.journal", os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def note(event: str, text: str, **more: Any) -> None:
    line = {"event": event, "id": json.loads(text)["id"], "pid": os.getpid(), "time": time.time(), **more}
    os.write(_journal(os.getpid()), json.dumps(line).encode() + b"\n")


def note_begin(message: ServiceBusReceivedMessage) -> None:
    note(
        "begin",
        str(message),
        attempt=message.delivery_count,
        fence=message.fence,
        interrupted=message.interrupted,
        session=message.session_id,
    )


def locked_until(message: ServiceBusReceivedMessage) -> float:
    """Return when the lock of a message, or of its session, ends: never later than the server ends it."""
    lease = hold_of(message).lease
    return 0.0 if lease is None else lease.until_utc


async def watch_locks(messages: Sequence[ServiceBusReceivedMessage]) -> None:
    """Write down each change of the locks."""
    before: dict[int, float] = {}
    while True:
        for number, message in enumerate(messages):
            until = locked_until(message)
            if until != before.get(number):
                before[number] = until
                note("lock", str(message), until=until)
        await asyncio.sleep(STEP)


async def noted(messages: Sequence[ServiceBusReceivedMessage], work: Any) -> Any:
    """Do the work on messages. Write down its beginning, the locks, and its end."""
    for message in messages:
        note_begin(message)
        note("lock", str(message), until=locked_until(message))
    watching = asyncio.create_task(watch_locks(messages))
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
        for message in messages:
            note(how, str(message))
    return result


async def noting(context: Context, proceed: Any) -> Any:
    return await noted([context.message], proceed)


complete = ServiceBusReceiver.complete_messages


async def complete_noting(self: ServiceBusReceiver, messages: Any, **options: Any) -> None:
    """Complete messages, and write down that the server has acknowledged it."""
    given = list(messages)
    await complete(self, given, **options)
    for message in given:
        note("acknowledged", str(message))


ServiceBusReceiver.complete_messages = complete_noting  # type: ignore[assignment,method-assign]

worker = Worker(GIVEN["url"], namespace="ns", **GIVEN["options"])
AT_ONCE = GIVEN.get("at_once", 8)
KINDS = GIVEN["kinds"]


async def work_on(text: str) -> None:
    await asyncio.sleep(json.loads(text)["takes"])
    note("done", text)


def work_on_in_thread(text: str) -> None:
    time.sleep(json.loads(text)["takes"])
    note("done", text)


if "plain" in KINDS:

    @worker.queue("plain", max_concurrent_calls=AT_ONCE, prefetch=GIVEN["prefetch"], middleware=[noting])
    async def plain(text: str, context: Context) -> None:
        await work_on(text)
        given = json.loads(text)
        if given["sends"]:
            context.send("out", given["id"])


if "thread" in KINDS:

    @worker.queue("thread", max_concurrent_calls=AT_ONCE, middleware=[noting])
    def thread(text: str, context: SyncContext) -> None:
        work_on_in_thread(text)
        given = json.loads(text)
        if given["sends"]:
            context.send("out", given["id"])


if "session" in KINDS:

    @worker.queue("session", max_concurrent_calls=4, session_idle_timeout=0.1, middleware=[noting])
    async def session(text: str, context: Context) -> None:
        await work_on(text)
        given = json.loads(text)
        if given["sends"]:
            context.send("out", given["id"])


if "batch" in KINDS:

    @worker.queue("batch", max_concurrent_calls=2, batch=5, batch_wait=0.05)
    async def batch(messages: list[ServiceBusReceivedMessage]) -> None:
        async def work() -> None:
            await asyncio.sleep(max(json.loads(str(message))["takes"] for message in messages))
            for message in messages:
                note("done", str(message))

        await noted(messages, work)


def process(text: str) -> None:
    """Handle a message in a process of the handler."""
    work_on_in_thread(text)


if "process" in KINDS:
    worker.queue("process", max_concurrent_calls=2, execution="process", middleware=[noting])(process)
