"""Tests of the removal of an unused entity: by clients that stop after any step, and with a user at any step."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from sbredis.engine import CallId, Outgoing, PartitionSettings, ScriptCaller, SettingsStaleError, perform
from sbredis.exceptions import MessagingEntityNotFoundError, Outcome, ServiceBusCommunicationError, ServiceBusError
from sbredis.registry import EntityChangedError, EntityRecord, Namespace
from sbredis.rules import Rule, TrueFilter
from sbredis.transport import Argument, Script, Transport
from tests.engine.taking import first_token, receiving, run_of
from tests.plugins.parts import first
from tests.registry.cuts import opened, settled
from tests.registry.keys import bucket_of, keys_of, snapshot
from tests.registry.turns import Cut

START = 1_700_000_000_000
MINUTE = 60_000
IDLE = 5 * MINUTE
SETTINGS = PartitionSettings(clock="test")
in_memory = pytest.mark.parametrize("target", ["memory"], indirect=True)


class Clock:
    """The time for the partitions."""

    now = START

    def told(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def client(transport: ScriptCaller, clock: Clock, partitions: int = 3) -> Namespace:
    return Namespace(transport, "ns", partitions, 0, clock.told)


async def made(
    transport: Transport, clock: Clock, partitions: int = 3, **changes: Any
) -> tuple[Namespace, EntityRecord]:
    namespace = await opened(transport, "ns", partitions, told=clock.told)
    record = await namespace.create_entity(
        "Q", SETTINGS, partitioned=True, properties={"auto_delete_on_idle": IDLE}, **changes
    )
    return namespace, record


async def send(  # noqa: PLR0917 -- the world, the place and the message
    transport: ScriptCaller,
    namespace: Namespace,
    record: EntityRecord,
    number: int,
    clock: Clock,
    due: int | None = None,
) -> EntityRecord:
    """Send a message to a partition as a client does that knows this record. Return the record that it knows then.

    Raises :class:`MessagingEntityNotFoundError` if the entity is gone.
    """
    while True:
        partition = namespace.partition(record, number)
        try:
            await perform(transport, partition.send(CallId("", 0, clock.now), [Outgoing(b"m", due=due)]), timeout=60)
        except SettingsStaleError:
            record = await namespace.get_entity(record.path)
        except ServiceBusError as error:
            if type(error).__name__ != "SettingsBehindError":
                raise
            await perform(transport, partition.configure(now=clock.now), timeout=60)
        else:
            return record


async def states(transport: Transport) -> list[dict[bytes, bytes]]:
    kept = keys_of(await snapshot(transport), "ns")
    return [value for key, value in kept.items() if key.endswith(":state")]


async def only_the_registry_is_left(transport: Transport) -> bool:
    return set(settled(await snapshot(transport), "ns")) == {"{registry}:namespace"}


async def test_an_entity_is_removed_after_its_idle_time_and_a_minute(transport: Transport, clock: Clock) -> None:
    namespace, record = await made(transport, clock)
    clock.now += IDLE + MINUTE - 1
    before = await snapshot(transport)
    assert await namespace.remove_if_idle(record, IDLE) == (False, IDLE + MINUTE - 1)
    assert await namespace.get_entity("Q") == record
    assert set(await snapshot(transport)) == set(before)
    clock.now += 1
    assert (await namespace.remove_if_idle(record, IDLE)).removed
    assert await only_the_registry_is_left(transport)
    with pytest.raises(MessagingEntityNotFoundError):
        await namespace.get_entity("Q")


async def test_a_use_of_one_partition_keeps_the_entity(transport: Transport, clock: Clock) -> None:
    namespace, record = await made(transport, clock)
    clock.now += IDLE + MINUTE
    await send(transport, namespace, record, 1, clock)
    clock.now += 1000
    assert await namespace.remove_if_idle(record, IDLE) == (False, 1000)
    assert await namespace.get_entity("Q") == record, "nothing has changed"


async def test_a_scheduled_message_keeps_the_entity_until_its_time_and_then_for_the_idle_time(
    transport: Transport, clock: Clock
) -> None:
    namespace, record = await made(transport, clock)
    due = clock.now + 10 * IDLE
    await send(transport, namespace, record, 2, clock, due)
    clock.now = due - 1
    assert await namespace.remove_if_idle(record, IDLE) == (False, 0)
    clock.now = due + 5
    await perform(transport, namespace.partition(record, 2).due(CallId("", 0, clock.now)), timeout=60)
    clock.now = due + IDLE + MINUTE - 1
    assert await namespace.remove_if_idle(record, IDLE) == (False, IDLE + MINUTE - 1)
    clock.now += 1
    assert (await namespace.remove_if_idle(record, IDLE)).removed


async def test_an_update_counts_as_use_and_taking_back_does_not(transport: Transport, clock: Clock) -> None:
    namespace, record = await made(transport, clock)
    clock.now += IDLE + MINUTE
    updated = await namespace.update_entity(record, record.settings, properties={"auto_delete_on_idle": IDLE, "a": 1})
    assert await namespace.remove_if_idle(updated, IDLE) == (False, 0)
    clock.now += IDLE + MINUTE
    with pytest.raises(ServiceBusCommunicationError):
        await client(Cut(transport, 6, before=True), clock).remove_if_idle(updated, IDLE)
    assert [each.state for each in await namespace.list_entities()] == ["removing"]
    taken_back = await namespace.get_entity("Q")
    assert (taken_back.state, taken_back.version) == ("active", updated.version + 1)
    assert taken_back.updated_at == updated.updated_at
    assert (await namespace.remove_if_idle(taken_back, IDLE)).removed


@pytest.mark.parametrize("at", [1, 2, 3])
async def test_a_creation_that_nobody_finishes_is_finished_and_later_removed(
    transport: Transport, clock: Clock, at: int
) -> None:
    await opened(transport, "ns", 2, told=clock.told)
    with pytest.raises(ServiceBusCommunicationError):
        await client(Cut(transport, at, before=False), clock, 2).create_entity("Q", SETTINGS, partitioned=True)
    namespace = client(transport, clock, 2)
    (record,) = await namespace.list_entities()
    assert record.state == "creating"
    assert await namespace.remove_if_idle(record, IDLE) == (False, 0)
    (record,) = await namespace.list_entities()
    assert record.state == "active"
    clock.now += IDLE + MINUTE
    assert (await namespace.remove_if_idle(record, IDLE)).removed
    assert await only_the_registry_is_left(transport)


@pytest.mark.slow
@pytest.mark.parametrize("then", first(1, ["continue", "read", "send"], "each stops after every step"))
async def test_a_removal_that_stops_after_any_step_is_taken_back_or_finished(
    transport: Transport, clock: Clock, then: str
) -> None:
    at, ended = 1, False
    while not ended:
        for before in (True, False):
            namespace, record = await made(transport, clock)
            clock.now += IDLE + MINUTE
            try:
                await client(Cut(transport, at, before=before), clock).remove_if_idle(record, IDLE)
                ended = True
            except ServiceBusCommunicationError as error:
                assert error.outcome is Outcome.UNKNOWN  # noqa: PT017 -- the last round has no error
            listed = await namespace.list_entities()
            left = listed[0].state if listed else "gone"
            if then == "continue":
                if listed and listed[0].state != "deleting":
                    assert (await namespace.remove_if_idle(listed[0], IDLE)).removed
                elif listed:
                    await namespace.finish_deletion(listed[0])
                assert await only_the_registry_is_left(transport)
            elif left in ("active", "removing"):
                if then == "send":
                    for number in range(3):
                        record = await send(transport, namespace, record, number, clock)
                found = await namespace.get_entity("Q")
                assert (found.state, found.version) == ("active", 1 if left == "active" else 2)
                for number in range(3):
                    record = await send(transport, namespace, record, number, clock)
                assert len(await states(transport)) == 3
                await namespace.delete_entity("Q")
            else:
                with pytest.raises(MessagingEntityNotFoundError):
                    await send(transport, namespace, record, 1, clock)
                with pytest.raises(MessagingEntityNotFoundError):
                    await namespace.get_entity("Q")
                assert await only_the_registry_is_left(transport)
        at += 1
    assert at > 12


class Without:
    """Passes calls to another transport, but none to the partitions in one slot."""

    def __init__(self, transport: ScriptCaller, salt: str) -> None:
        self._transport = transport
        self._tag = f"{{{salt}}}".encode()
        self.sealed = True

    async def call(self, script: Script, keys: Sequence[bytes], arguments: Sequence[Argument] = (), **rest: Any) -> Any:
        if self.sealed and self._tag in keys[0]:
            raise ServiceBusCommunicationError("connection refused", outcome=Outcome.UNKNOWN)
        return await self._transport.call(script, keys, arguments, **rest)


@pytest.mark.slow
async def test_an_entity_of_16_partitions_is_not_removed_while_one_cannot_be_reached(
    transport: Transport, clock: Clock
) -> None:
    """The message that a client sends to the unreachable partition meanwhile is not lost."""
    namespace, record = await made(transport, clock, 16)
    clock.now += IDLE + MINUTE
    tag = namespace.partition(record, 11).keys[0].decode().partition("{")[2].partition("}")[0]
    cut = Without(transport, tag)
    with pytest.raises(ServiceBusCommunicationError) as raised:
        await client(cut, clock, 16).remove_if_idle(record, IDLE)
    assert raised.value.unreachable_partitions == (11,)
    assert await namespace.get_entity("Q") == record
    await send(transport, namespace, record, 11, clock)
    assert not (await namespace.remove_if_idle(record, IDLE)).removed
    assert (
        await perform(transport, namespace.partition(record, 11).count(CallId("", 0, clock.now)), timeout=60)
    ).active == 1


async def test_a_deletion_deletes_no_partition_before_all_are_shut(transport: Transport, clock: Clock) -> None:
    namespace, record = await made(transport, clock)
    await send(transport, namespace, record, 0, clock)
    tag = namespace.partition(record, 2).keys[0].decode().partition("{")[2].partition("}")[0]
    with pytest.raises(
        ServiceBusCommunicationError, match=r"^connection refused\. Partitions of 'Q' that could not be reached: 2\. "
    ) as raised:
        await client(Without(transport, tag), clock).delete_entity("Q")
    assert raised.value.unreachable_partitions == (2,)
    assert len(await states(transport)) == 3
    for number in (0, 1):
        with pytest.raises(MessagingEntityNotFoundError):
            await perform(
                transport,
                namespace.partition(record, number).send(CallId("", 0, clock.now), [Outgoing(b"m")]),
                timeout=60,
            )
    with pytest.raises(MessagingEntityNotFoundError):
        await namespace.get_entity("Q")
    assert await only_the_registry_is_left(transport)


# -- a topic and its subscriptions -------------------------------------------------------------------------------------


class Between:
    """Passes calls to another transport, and does something once, before one of the calls."""

    def __init__(self, transport: ScriptCaller, at: int, act: Callable[[], Awaitable[None]]) -> None:
        self._transport = transport
        self._at = at
        self._act = act
        self.calls = 0

    async def call(self, script: Script, keys: Sequence[bytes], arguments: Sequence[Argument] = (), **rest: Any) -> Any:
        self.calls += 1
        if self.calls == self._at:
            await self._act()
        return await self._transport.call(script, keys, arguments, **rest)


async def topic_with_subscription(transport: Transport, clock: Clock) -> tuple[Namespace, EntityRecord, EntityRecord]:
    namespace = await opened(transport, "ns", 2, told=clock.told)
    await namespace.create_entity("T", replace(SETTINGS, topic=True), kind="topic", partitioned=True)
    subscription = await namespace.create_subscription(
        "T", "S", replace(SETTINGS, shared=True), rules=[Rule("all", TrueFilter())]
    )
    return namespace, await namespace.get_entity("T"), subscription


async def receive(transport: Transport, namespace: Namespace, record: EntityRecord, number: int, clock: Clock) -> None:
    """Receive from a partition as a client does that knows this record."""
    while True:
        partition = namespace.partition(record, number)
        try:
            run = run_of(transport, partition)
            await perform(transport, receiving(partition, first_token(), 1, run=run, now=clock.now), timeout=60)
        except SettingsStaleError:
            record = await namespace.get_entity(record.path)
        else:
            return


@pytest.mark.slow
@in_memory
async def test_a_receive_from_a_subscription_at_any_step_keeps_the_topic_or_reports_that_it_is_gone(
    transport: Transport, clock: Clock
) -> None:
    at, kept, gone = 0, 0, 0
    while at == kept + gone:
        at += 1
        namespace, topic, subscription = await topic_with_subscription(transport, clock)
        clock.now += IDLE + MINUTE
        received: list[bool] = []

        async def use(
            namespace: Namespace = namespace, record: EntityRecord = subscription, received: list[bool] = received
        ) -> None:
            try:
                await receive(transport, namespace, record, 1, clock)
            except MessagingEntityNotFoundError:
                received.append(False)
            else:
                received.append(True)

        removed = False
        with suppress(EntityChangedError):
            between = Between(transport, at, use)
            removed = (await client(between, clock, 2).remove_if_idle(topic, IDLE)).removed
        listed = [each.path for each in await namespace.list_entities()]
        assert listed == ([] if removed else ["T"])
        if received == [True]:
            kept += 1
            assert not removed
            assert [each.state for each in await namespace.list_entities()] == ["active"]
            assert [each.state for each in await namespace.list_subscriptions("T")] == ["active"]
            for number in range(2):
                await receive(transport, namespace, subscription, number, clock)
            await namespace.delete_entity("T")
        elif received:
            gone += 1
            assert removed
        assert await only_the_registry_is_left(transport)
    assert kept > 8
    assert gone > 3


@in_memory
async def test_a_topic_is_in_use_while_a_subscription_forwards_its_messages(transport: Transport, clock: Clock) -> None:
    namespace, topic, _ = await topic_with_subscription(transport, clock)
    forwards = replace(SETTINGS, shared=True, forwards=True)
    await namespace.create_subscription("T", "Z", forwards, rules=[Rule("all", TrueFilter())])
    clock.now += IDLE + MINUTE
    bucket = bucket_of("T", 2)[1]
    before = (await snapshot(transport))[bucket]
    assert await namespace.remove_if_idle(topic, IDLE) == (False, 0)
    assert (await snapshot(transport))[bucket] == before
    last = (await namespace.list_subscriptions("T"))[-1]
    await namespace.update_entity(last, replace(last.settings, forwards=False))
    clock.now += IDLE + MINUTE
    assert (await namespace.remove_if_idle(topic, IDLE)).removed
    assert await only_the_registry_is_left(transport)
