"""A worker is killed at each step between the end of a handler and the reply of the script that completes the message.

Whatever the step, the sends of the handler arrive exactly once. The handler itself runs again only if the script had
not run, and only after the lock has ended.
"""

from __future__ import annotations

import asyncio
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from sbredis.aio import ServiceBusClient
from sbredis.model import ServiceBusMessage
from sbredis.servers import LocalServer
from sbredis.workers import Context, Idempotency, Worker
from tests.aio.scissors import Scissors
from tests.children import child
from tests.waiting import eventually

DYING = """
import asyncio, os, signal, sys
from sbredis.workers import Context, Idempotency, Worker

url, queue, dies = sys.argv[1:]

def die(at):
    if dies == at:
        os.kill(os.getpid(), signal.SIGKILL)

async def dying_after_the_handler(context, proceed):
    result = await proceed()
    die("after the middleware")
    return result

worker = Worker(url, namespace="ns", maintenance=False, middleware=[dying_after_the_handler, Idempotency()])

@worker.queue(queue)
async def place(text: str, context: Context) -> None:
    with open(f"{queue}.log", "a") as log:
        log.write(f"{context.attempt}\\n")
    context.send(f"{queue}-near", text)
    context.send(f"{queue}-far", text)
    die("at the end of the handler")

asyncio.run(worker.run())
"""
STEPS: dict[str, tuple[dict[str, bool] | None, list[int]]] = {
    "at the end of the handler": (None, [1, 2]),
    "after the middleware": (None, [1, 2]),
    "before the server has the call": ({"on_the_way": True}, [1, 2]),
    "after the script, before the reply": ({}, [1]),
    "after the reply": ({"after": True}, [1]),
}
"""The steps, what the network does there, and the attempts that the handler sees."""


async def killed(process: Process) -> None:
    process.kill()
    await process.wait()


@pytest.mark.long("it starts a worker for each step at which it dies")
async def test_the_sends_of_a_handler_arrive_once_at_whatever_step_the_worker_dies(
    server: LocalServer, tmp_path: Path
) -> None:
    queues = {step: f"q{number}" for number, step in enumerate(STEPS)}
    async with ServiceBusClient(server.url, namespace="ns", maintenance=True) as client:
        for queue in queues.values():
            await client.ensure_queue(queue, lock_duration=timedelta(seconds=5))
            await client.ensure_queue(f"{queue}-near", colocate_with=queue)
            await client.ensure_queue(f"{queue}-far")
            async with client.get_queue_sender(queue) as sender:
                await sender.send_messages(ServiceBusMessage("order", message_id="1"))
        async with AsyncExitStack() as stack:
            dying: list[Process] = []
            for step, queue in queues.items():
                network = await stack.enter_async_context(Scissors(server).listening())
                given = f"redis://127.0.0.1:{network.port}", queue, step
                process = await stack.enter_async_context(child("-c", DYING, *given, cwd=tmp_path, stderr=DEVNULL))
                cut = STEPS[step][0]
                if cut is not None:
                    network.cut("transact", then=partial(killed, process), **cut)
                dying.append(process)
            async with asyncio.timeout(240):
                assert [await process.wait() for process in dying] == [-9] * len(STEPS)

        worker = Worker(server.url, namespace="ns", middleware=[Idempotency()])
        for queue in queues.values():
            worker.queue(queue)(_handler(queue, tmp_path))
        async with worker.running():
            for queue in queues.values():
                await eventually(partial(_has, client, queue, 0))
                for near_or_far in ("near", "far"):
                    await eventually(partial(_has, client, f"{queue}-{near_or_far}", 1))
            # the same order comes again: its handler runs, and what it sends is dropped
            for queue in queues.values():
                await worker.send(queue, ServiceBusMessage("order", message_id="1"))
                await eventually(partial(_has, client, queue, 0))
        for step, queue in queues.items():
            attempts = [int(line) for line in (tmp_path / f"{queue}.log").read_text().split()]
            assert attempts == [*STEPS[step][1], 1], step
            assert await _has(client, f"{queue}-near", 1), step
            assert await _has(client, f"{queue}-far", 1), step


def _handler(queue: str, folder: Path) -> Callable[..., Awaitable[None]]:
    async def place(text: str, context: Context) -> None:
        with (folder / f"{queue}.log").open("a") as log:
            log.write(f"{context.attempt}\n")
        context.send(f"{queue}-near", text)
        context.send(f"{queue}-far", text)

    return place


async def _has(client: ServiceBusClient, queue: str, count: int) -> bool:
    async with client.get_queue_receiver(queue) as receiver:
        return len(await receiver.peek_messages(10)) == count
