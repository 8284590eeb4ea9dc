"""The worker that is killed, terminated and cut off: its handlers write down all that they do."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from typing import Any

from sbredis.aio import ServiceBusReceiver
from sbredis.model import ServiceBusReceivedMessage
from sbredis.workers import Context, SyncContext, Worker
from tests.workers.chaos.notes import complete_noting, complete_one_noting, note, note_done, note_start, noted, noting

GIVEN: dict[str, Any] = json.loads(os.environ["CHAOS"])
ServiceBusReceiver.complete_messages = complete_noting  # type: ignore[method-assign]
ServiceBusReceiver.complete_message = complete_one_noting  # type: ignore[method-assign]

worker = Worker(GIVEN["url"], namespace=GIVEN["namespace"], **GIVEN["options"])
KINDS = GIVEN["kinds"]
AT_ONCE = GIVEN["at_once"]


def die_of(text: str) -> None:
    """End this process if the message is one that kills."""
    if json.loads(text)["kills"]:
        os.kill(os.getpid(), signal.SIGKILL)


async def plain(text: str, context: Context) -> None:
    note_start(text, context)
    die_of(text)
    given = json.loads(text)
    if given["planted"] and context.attempt == 1:
        await give_away(context.message)
    await asyncio.sleep(given["takes"])
    note_done(text, context)
    if given["sends"]:
        context.send("out", given["id"])


async def give_away(message: ServiceBusReceivedMessage) -> None:
    """Let a message come again although its handler runs: what a defect of a client or a script would do."""
    token = str(message.lock_token)
    await worker.client.get_settler("plain").abandon_message(token)


def thread(text: str, context: SyncContext) -> None:
    note_start(text, context)
    die_of(text)
    given = json.loads(text)
    time.sleep(given["takes"])
    note_done(text, context)
    if given["sends"]:
        context.send("out", given["id"])


async def session(text: str, context: Context) -> None:
    note_start(text, context)
    die_of(text)
    given = json.loads(text)
    await asyncio.sleep(given["takes"])
    note_done(text, context)
    if given["sends"]:
        context.send("out", given["id"])


async def batch(messages: list[ServiceBusReceivedMessage]) -> None:
    for message in messages:
        note("start", str(message), message.fence, attempt=message.delivery_count)

    async def work() -> None:
        for message in messages:
            die_of(str(message))
        await asyncio.sleep(max(json.loads(str(message))["takes"] for message in messages))
        for message in messages:
            note("done", str(message), message.fence)

    await noted(messages, work)


def process(text: str, context: SyncContext) -> None:
    """Handle a message in a process of the handler."""
    note_start(text, context)
    die_of(text)
    time.sleep(json.loads(text)["takes"])
    note_done(text, context)


if "plain" in KINDS:
    worker.queue("plain", max_concurrent_calls=AT_ONCE["plain"], prefetch=GIVEN["prefetch"], middleware=[noting])(plain)
if "thread" in KINDS:
    worker.queue("thread", max_concurrent_calls=AT_ONCE["thread"], middleware=[noting])(thread)
if "session" in KINDS:
    sessions: Any = {"max_concurrent_calls": AT_ONCE["session"], "session_idle_timeout": 0.1}
    worker.queue("session", middleware=[noting], **sessions)(session)
if "batch" in KINDS:
    batches: Any = {"max_concurrent_calls": AT_ONCE["batch"] // GIVEN["batch"], "batch": GIVEN["batch"]}
    worker.queue("batch", batch_wait=0.05, **batches)(batch)
if "process" in KINDS:
    worker.queue("process", max_concurrent_calls=AT_ONCE["process"], execution="process", middleware=[noting])(process)
