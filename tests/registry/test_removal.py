"""Tests of the removal of an unused entity. The proof in the folder removal has clients that stop after any step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from sbredis.engine import CallId, Outgoing, PartitionSettings, ScriptCaller, SettingsStaleError, perform
from sbredis.exceptions import MessagingEntityNotFoundError, Outcome, ServiceBusCommunicationError, ServiceBusError
from sbredis.registry import EntityRecord, Namespace
from sbredis.rules import Rule, TrueFilter
from sbredis.transport import Argument, Script, Transport
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


async def topic_with_subscription(transport: Transport, clock: Clock) -> tuple[Namespace, EntityRecord, EntityRecord]:
    namespace = await opened(transport, "ns", 2, told=clock.told)
    await namespace.create_entity("T", replace(SETTINGS, topic=True), kind="topic", partitioned=True)
    subscription = await namespace.create_subscription(
        "T", "S", replace(SETTINGS, shared=True), rules=[Rule("all", TrueFilter())]
    )
    return namespace, await namespace.get_entity("T"), subscription


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
