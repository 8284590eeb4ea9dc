"""Tests of the buckets of a namespace together: lists, counts, look-ups by id, and logs of changes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from sbredis.engine import PartitionSettings, bucket_keys, name_key, slot_for_name
from sbredis.exceptions import DataLayoutError, NamespaceSlotsError, Outcome, ServiceBusCommunicationError
from sbredis.registry import EntityRecord, IncompleteListError, Namespace
from sbredis.registry._registry import Registry
from sbredis.transport import Argument, Script, Transport
from tests.engine.opening import open_with_scripts
from tests.registry.keys import snapshot

SETTINGS = PartitionSettings()
SLOTS = 16

in_memory = pytest.mark.parametrize("target", ["memory"], indirect=True)
on_real_servers = pytest.mark.parametrize("target", ["server", "cluster"], indirect=True)


@pytest.fixture
async def namespace(transport: Transport) -> Namespace:
    return await Namespace.open(transport, "ns", SLOTS)


class Cut:
    """A transport that reaches no bucket in some slots."""

    def __init__(self, transport: Transport, namespace: Namespace, *numbers: int) -> None:
        self._transport = transport
        self.lost = {f"{{{namespace.salt(number)}}}".encode() for number in numbers}

    async def call(self, script: Script, keys: Sequence[bytes], arguments: Sequence[Argument] = (), **how: Any) -> Any:
        if any(part in keys[0] for part in self.lost):
            raise ServiceBusCommunicationError("The server is away.", outcome=Outcome.NEVER_SENT)
        return await self._transport.call(script, keys, arguments, **how)


def named(namespace: Namespace, number: int) -> str:
    """Return a name in the bucket of this number."""
    return next(name for name in map("q{}".format, range(10_000)) if slot_for_name(name, namespace.slots) == number)


async def everything(namespace: Namespace, after: str = "", page: int = 7) -> list[str]:
    """Return the names of all entities, page by page."""
    entities, found = namespace.entities(after), list[str]()
    while not entities.ended:
        found += [record.name for record in (await entities.next(page, asyncio.get_running_loop().time() + 60)).records]
    if (error := entities.error) is not None:
        raise error
    return found


# -- lists -------------------------------------------------------------------------------------------------------------


async def test_a_list_has_the_entities_of_all_buckets_in_order(namespace: Namespace) -> None:
    names = [f"{letter}{number}" for letter in "bAc" for number in range(9)]
    for name in names:
        await namespace.create_entity(name, SETTINGS)
    expected = sorted(names, key=name_key)
    assert len({slot_for_name(name, SLOTS) for name in names}) > SLOTS // 2
    assert await everything(namespace) == expected
    assert await everything(namespace, "B2") == [name for name in expected if name_key(name) > "b2"]
    assert [record.name for record in await namespace.list_entities("B2", 4)] == ["b3", "b4", "b5", "b6"]


@in_memory
async def test_a_list_goes_on_while_entities_come_and_go(transport: Transport, namespace: Namespace) -> None:
    """An entity that is there all the time is listed exactly once."""
    chance = random.Random(7)
    lasting = [f"lasting{number:02}" for number in range(60)]
    for name in lasting:
        await namespace.create_entity(name, SETTINGS)
    others, away = await Namespace.open(transport, "ns"), [f"other{number}" for number in range(20)]
    entities, found = namespace.entities(), list[str]()
    while not entities.ended:
        for name in chance.sample(away, 3):
            if await others.list_entities(name[:-1] + chr(ord(name[-1]) - 1), 1) and chance.random() < 0.5:
                continue
            await asyncio.gather(others.create_entity(name, SETTINGS), return_exceptions=True)
            if chance.random() < 0.5:
                await asyncio.gather(others.delete_entity(name), return_exceptions=True)
        found += [record.name for record in (await entities.next(9, asyncio.get_running_loop().time() + 60)).records]
    assert [name for name in found if name in lasting] == lasting
    assert len(set(found)) == len(found)


async def test_a_list_names_the_slots_that_it_could_not_read_after_all_others(
    transport: Transport, namespace: Namespace
) -> None:
    names = [named(namespace, number) for number in range(SLOTS)]
    for name in names:
        await namespace.create_entity(name, SETTINGS)
    cut = Namespace(Cut(transport, namespace, 3, 5), "ns", SLOTS, 0)
    entities, found = cut.entities(), list[str]()
    while not entities.ended:
        found += [record.name for record in (await entities.next(5, asyncio.get_running_loop().time() + 60)).records]
    assert found == sorted(name for number, name in enumerate(names) if number not in {3, 5})
    error = entities.error
    assert error is not None
    assert error.unreachable_partitions == (3, 5)
    assert error.message == (
        "The list lacks the entities whose names belong to 2 slots of the namespace, because the registry could not be "
        "read there: 3, 5. The server is away."
    )
    with pytest.raises(IncompleteListError):
        await cut.list_entities()
    nowhere = Namespace(Cut(transport, namespace, *range(SLOTS)), "ns", SLOTS, 0)
    with pytest.raises(ServiceBusCommunicationError, match=r"^The server is away") as raised:
        await nowhere.list_entities()
    assert type(raised.value) is ServiceBusCommunicationError


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("layout", "3", (DataLayoutError, "A part of the registry of namespace 'ns' has data layout 3")),
        ("slots", "8", (NamespaceSlotsError, "was written when the namespace had 8 slots")),
    ],
)
async def test_a_bucket_of_another_release_or_other_slots_costs_its_entities_alone(
    transport: Transport, namespace: Namespace, field: str, value: str, expected: tuple[type[Exception], str]
) -> None:
    error, text = expected
    good, bad = named(namespace, 1), named(namespace, 2)
    for name in (good, bad):
        await namespace.create_entity(name, SETTINGS)
    key = bucket_keys("ns", namespace.salt(2))[0]
    await transport.command("HSET", key, field, value, key=key)
    before = await snapshot(transport)
    assert (await namespace.get_entity(good)).name == good
    for call in (
        namespace.get_entity(bad),
        namespace.create_entity(bad, SETTINGS),
        namespace.delete_entity(bad),
        namespace.changes(2, 0, 10),
    ):
        with pytest.raises(error, match=text):
            await call
    with pytest.raises(IncompleteListError, match=text):
        await namespace.list_entities()
    facts = await namespace.facts()
    assert (facts.entities, facts.unreachable) == (1, (2,))
    assert await snapshot(transport) == before


async def test_the_counts_of_a_namespace_name_the_slots_that_are_missing(
    transport: Transport, namespace: Namespace
) -> None:
    for number in (0, 1, 2):
        await namespace.create_entity(named(namespace, number), SETTINGS)
    facts = await Namespace(Cut(transport, namespace, 1, 9), "ns", SLOTS, 0).facts()
    assert (facts.entities, facts.unreachable) == (2, (1, 9))
    assert (await namespace.facts()).unreachable == ()


async def test_limits_that_not_all_buckets_know_are_an_error_and_nothing_is_created_without_a_check(
    transport: Transport, namespace: Namespace
) -> None:
    cut = Namespace(Cut(transport, namespace, 4), "ns", SLOTS, 0)
    with pytest.raises(ServiceBusCommunicationError, match=r"not yet in force .* namespace: 4\. Set the limits again"):
        await cut.limit(entities=5, megabytes=None)
    with pytest.raises(ServiceBusCommunicationError, match=r"could not be checked: .* could not be reached: 4"):
        await cut.create_entity(named(namespace, 1), SETTINGS)
    assert (await namespace.limit(entities=5, megabytes=None)).most_entities == 5
    await namespace.create_entity(named(namespace, 1), SETTINGS)


# -- ids and changes ---------------------------------------------------------------------------------------------------


async def test_an_entity_is_found_by_its_id_with_one_call(namespace: Namespace) -> None:
    record = await namespace.create_entity("q", SETTINGS)
    assert await namespace.find_entity(record.id) == record
    await namespace.delete_entity("q")
    again = await namespace.create_entity("q", SETTINGS)
    assert await namespace.find_entity(record.id) is None
    assert await namespace.find_entity(again.id) == again
    for unknown in ("zz1", "0", "", "00!", f"{record.id}1"):
        assert await namespace.find_entity(unknown) is None


async def read_log(namespace: Namespace, number: int, after: int = 0) -> dict[str, bytes | None]:
    """Return what a reader of a log finds after a number, page by page."""
    found: dict[str, bytes | None] = {}
    more = True
    while more:
        changes = await namespace.changes(number, after, 2)
        assert changes is not None
        found |= dict(changes.records)
        after, more = changes.number, changes.more
    return found


async def test_a_log_has_each_entity_once_with_its_last_change(namespace: Namespace) -> None:
    number = slot_for_name("topic", SLOTS)
    assert await namespace.changes(number, 0, 10) is None, "a bucket is begun by its first entity"
    topic = await namespace.create_entity("topic", PartitionSettings(topic=True), kind="topic")
    first = await namespace.changes(number, 0, 10)
    assert first is not None
    assert [path for path, _ in first.records] == ["topic"]
    shared = PartitionSettings(shared=True)
    await namespace.create_subscription("topic", "one", shared, rules=[])
    await namespace.create_subscription("topic", "two", shared, rules=[])
    assert set(await read_log(namespace, number, first.number)) == {
        *("topic", "topic/subscriptions/one", "topic/subscriptions/two")
    }, "the topic got another version"
    await namespace.delete_entity("topic/subscriptions/one")
    log = await read_log(namespace, number)
    assert (len(log), log["topic/subscriptions/one"]) == (3, None)
    second = await namespace.changes(number, 0, 10)
    assert second is not None
    assert (await namespace.changes(number, second.number, 10)) == second._replace(records=())
    await namespace.update_entity(await namespace.get_entity("topic"), topic.settings)
    assert set(await read_log(namespace, number, second.number)) == {"topic"}


@pytest.mark.long("it creates and deletes a thousand queues")
@in_memory
async def test_a_log_keeps_a_thousand_deleted_entities_and_says_what_it_has_lost(transport: Transport) -> None:
    namespace = await Namespace.open(transport, "ns", 1)
    await namespace.create_entity("kept", SETTINGS)
    registry = Registry("ns", 1)
    for number in range(1005):
        await namespace.create_entity(f"q{number}", SETTINGS)
        await namespace.delete_entity(f"q{number}")
    log = await read_log(namespace, 0)
    assert len(log) == 1001
    assert "q4" not in log
    assert log["q5"] is None
    assert log["kept"] is not None
    changes = await namespace.changes(0, 0, 10)
    assert changes is not None
    assert 0 < changes.floor < changes.number
    bucket, *_, gone = registry.bucket_keys(0)
    assert await transport.command("ZCARD", gone, key=bucket) == 1000
    await namespace.create_entity("q900", SETTINGS)
    assert await transport.command("ZCARD", gone, key=bucket) == 999
    assert (await read_log(namespace, 0))["q900"] is not None


@on_real_servers
async def test_a_log_has_another_life_on_another_server_process_and_after_a_loss(
    transport: Transport, namespace: Namespace
) -> None:
    number = slot_for_name("q", SLOTS)
    await namespace.create_entity("q", SETTINGS)
    before = await namespace.changes(number, 0, 10)
    assert before is not None
    for key in bucket_keys("ns", namespace.salt(number)):
        await transport.command("DEL", key, key=key)
    await namespace.create_entity("q", SETTINGS)
    after = await namespace.changes(number, 0, 10)
    assert after is not None
    assert before.life != after.life
    assert before.life.split()[1] == after.life.split()[1], "the process is the same one"


@pytest.fixture
async def another(url: str) -> AsyncIterator[Transport]:
    async with await open_with_scripts(url) as transport:
        yield transport


async def test_each_change_of_a_record_is_announced_on_the_channel_of_its_slot(
    another: Transport, namespace: Namespace
) -> None:
    from sbredis.engine import due_channel
    from tests.waiting import eventually

    class Ear:
        def __init__(self) -> None:
            self.heard: list[bytes] = []

        def message(self, payload: bytes) -> None:
            self.heard.append(payload)

        def gap(self) -> None:
            pass

    number = slot_for_name("q", SLOTS)
    ear = Ear()
    await another.subscribe(due_channel("ns", namespace.salt(number)), ear)
    said = bucket_keys("ns", namespace.salt(number))[0] + b" changed"
    await namespace.create_entity("q", SETTINGS)
    await eventually(lambda: said in ear.heard)
    for change in (_update, _delete):
        ear.heard.clear()
        await change(namespace)
        await eventually(lambda: said in ear.heard)


async def _update(namespace: Namespace) -> EntityRecord:
    return await namespace.update_entity(await namespace.get_entity("q"), PartitionSettings(lock_duration=5000))


async def _delete(namespace: Namespace) -> None:
    await namespace.delete_entity("q")
