"""Tests of handlers that end together: they share a transaction, and none of them can spoil it for the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from sbredis import ServiceBusMessage
from sbredis.client import connection_of
from sbredis.exceptions import OperationTimeoutError
from sbredis.exceptions import Outcome as Effect
from sbredis.testing import Bus
from sbredis.workers import Context, Retries, Worker
from tests.aio.diverting import divert
from tests.aio.queues import Calls
from tests.waiting import eventually
from tests.workers.looking import bodies, dead, empty, send_to

TEXTS = [f"{number:02}" for number in range(12)]
Act = Callable[[Context, str], None]


@dataclass
class Together:
    """A worker whose handlers have all begun, and end in the same turn when ``go`` is set."""

    worker: Worker
    go: asyncio.Event = field(default_factory=asyncio.Event)
    attempts: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    contexts: dict[str, Context] = field(default_factory=dict[str, Context])

    @property
    def counts(self) -> Any:
        return self.worker._running().report().counts["orders"]

    @property
    def transport(self) -> Any:
        return connection_of(self.worker.client).transport


@asynccontextmanager
async def together(bus: Bus, act: Act) -> AsyncGenerator[Together]:
    """Send a message for each text, and run a worker until its handlers have begun all of them."""
    worker = Worker(bus.url, max_concurrent_calls=len(TEXTS), retries=Retries(first_delay=0))
    state = Together(worker)

    @worker.queue("orders")
    async def place(text: str, context: Context) -> None:
        state.contexts[text] = context
        state.attempts.append((text, context.attempt))
        act(context, text)
        await state.go.wait()

    await send_to(bus, "orders", [ServiceBusMessage(text) for text in TEXTS])
    async with worker.running():
        await eventually(lambda: len(state.contexts) == len(TEXTS))
        yield state


def forward(context: Context, text: str) -> None:
    context.send("out", text.encode())


async def queues(bus: Bus, **out: Any) -> None:
    await bus.create_queue("orders", max_delivery_count=2)
    await bus.create_queue("out", **out)


async def sent(bus: Bus) -> list[str]:
    return sorted(body.decode() for body in await bodies(bus, "out"))


@pytest.mark.parametrize("here", [True, False], ids=["in the same slot", "in another slot"])
async def test_handlers_that_end_together_share_a_transaction(sbredis_bus: Bus, here: bool) -> None:
    await queues(sbredis_bus, **({"colocate_with": "orders"} if here else {}))
    async with together(sbredis_bus, forward) as state:
        with Calls(state.transport) as calls:
            state.go.set()
            await eventually(lambda: empty(sbredis_bus))
            await eventually(lambda: sent(sbredis_bus), what="moved")
            moves = 0 if here else 1  # a transaction takes the messages to their slot, all together
            assert calls.by_script["transact"] == 1 + moves
        await eventually(lambda: state.counts.completed == len(TEXTS))
    assert await sent(sbredis_bus) == TEXTS


async def test_a_lost_lock_refuses_only_what_its_own_handler_has_sent(sbredis_bus: Bus) -> None:
    await queues(sbredis_bus)
    async with together(sbredis_bus, forward) as state:
        token = str(state.contexts["05"].message.lock_token)
        await sbredis_bus.client.get_settler("orders").dead_letter_message(token, "Lost")
        state.go.set()
        await eventually(lambda: empty(sbredis_bus))
        await eventually(lambda: dead(sbredis_bus, 1))
        await eventually(lambda: state.counts.settlements_failed == 1)
    assert await sent(sbredis_bus) == [text for text in TEXTS if text != "05"]
    assert len(state.attempts) == len(TEXTS)


async def test_a_send_that_is_refused_fails_only_its_own_handler(sbredis_bus: Bus) -> None:
    await queues(sbredis_bus, colocate_with="orders")
    await sbredis_bus.create_queue("sessions", requires_session=True, colocate_with="orders")

    def send(context: Context, text: str) -> None:
        context.send("sessions" if text == "05" else "out", text.encode())

    async with together(sbredis_bus, send) as state:
        state.go.set()
        await eventually(lambda: empty(sbredis_bus))
        await eventually(lambda: dead(sbredis_bus, 1))
    assert await sent(sbredis_bus) == [text for text in TEXTS if text != "05"]
    assert sorted(state.attempts) == sorted([*((text, 1) for text in TEXTS), ("05", 2)])
    (letter,) = await sbredis_bus.dead_lettered("orders")
    assert letter.dead_letter_reason == "SessionIdMissingError"


async def test_messages_for_a_partitioned_queue_keep_their_keys(sbredis_bus: Bus) -> None:
    await queues(sbredis_bus, enable_partitioning=True)

    def send(context: Context, text: str) -> None:
        context.send("out", text.encode(), partition_key=text)

    async with together(sbredis_bus, send) as state:
        state.go.set()
        await eventually(lambda: empty(sbredis_bus))
        await eventually(lambda: state.counts.completed == len(TEXTS))
        assert state.counts.settlements_failed == 0
    assert await sent(sbredis_bus) == TEXTS


async def test_messages_that_are_too_large_together_go_in_several_transactions(sbredis_bus: Bus) -> None:
    await queues(sbredis_bus)
    async with together(sbredis_bus, lambda context, text: context.send("out", text.encode() * 250_000)) as state:
        state.go.set()
        await eventually(lambda: empty(sbredis_bus))
        await eventually(lambda: state.counts.completed == len(TEXTS))
    assert [body[:2] for body in await sent(sbredis_bus)] == TEXTS


async def test_a_key_that_is_known_completes_its_message_without_what_the_handler_has_sent(sbredis_bus: Bus) -> None:
    await queues(sbredis_bus)

    def send(context: Context, text: str) -> None:
        context.once("same" if text in ("03", "07") else text, timedelta(hours=1))
        forward(context, text)

    async with together(sbredis_bus, send) as state:
        state.go.set()
        await eventually(lambda: empty(sbredis_bus))
        await eventually(lambda: state.counts.completed == len(TEXTS))
        gathering = state.worker._running().services[0].consumer.settlements._gathering  # type: ignore[attr-defined]
        assert gathering._alone == set()
    left = await sent(sbredis_bus)
    assert len(left) == len(TEXTS) - 1
    assert set(TEXTS) - set(left) < {"03", "07"}


async def test_a_transaction_with_an_unknown_outcome_is_not_made_again(sbredis_bus: Bus) -> None:
    await queues(sbredis_bus)
    async with together(sbredis_bus, forward) as state:
        call = state.transport.call
        refused = list[str]()

        async def lose(script: Any, *arguments: Any, **options: Any) -> Any:
            if script.name != "transact":
                return await call(script, *arguments, **options)
            refused.append(script.name)
            raise OperationTimeoutError("The answer did not come.", outcome=Effect.UNKNOWN, is_transient=False)

        divert(state.transport, lose)
        state.go.set()
        await eventually(lambda: state.counts.settlements_failed == len(TEXTS))
        divert(state.transport, call)
        assert len(refused) == 1
        assert state.counts.completed == 0
    assert await sent(sbredis_bus) == []
