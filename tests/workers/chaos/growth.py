"""How the memory of a worker grows with the messages that it has handled."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sbredis.aio import ServiceBusClient
from sbredis.model import ServiceBusMessage
from sbredis.workers import Worker
from tests.waiting import eventually

__all__ = ["handled", "objects_of_ours", "resident"]

AT_ONCE = 1000


async def handled(url: str, rounds: int, each: int, look: Callable[[int], object]) -> None:
    """Let a worker handle messages, in rounds. After each round nothing is under way, and ``look`` is called."""
    worker = Worker(url, namespace="ns")
    count, all_of_them = 0, asyncio.Event()
    goal = 0

    @worker.queue("orders", max_concurrent_calls=100)
    async def place(_: str) -> None:
        nonlocal count
        count += 1
        if count == goal:
            all_of_them.set()

    async with ServiceBusClient(url, namespace="ns") as client:
        await client.ensure_queue("orders")
        sender = client.get_queue_sender("orders")
        async with worker.running() as running:
            for number in range(rounds):
                all_of_them.clear()
                goal += each
                for start in range(0, each, AT_ONCE):
                    messages = [ServiceBusMessage(b"x" * 100) for _ in range(min(AT_ONCE, each - start))]
                    await sender.send_messages(messages)
                    few = goal - each + start - 10 * AT_ONCE
                    await eventually(lambda few=few: count >= few, 600)
                await all_of_them.wait()
                consumer: Any = running._running().services[0].consumer
                await eventually(lambda consumer=consumer: consumer.settlements.unacknowledged == 0)
                look(number + 1)


def objects_of_ours() -> Counter[str]:
    """Return how many objects of each class of sbredis there are."""
    gc.collect()
    names = (f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.get_objects())
    return Counter(name for name in names if name.startswith("sbredis."))


def resident() -> float:
    """Return the memory of this process in MB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6
