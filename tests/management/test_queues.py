"""Tests of queues for an administrator, beside what is the same for topics and subscriptions (test_entities.py).

A refused call changes nothing.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sbredis.aio.management import AsyncItemPaged, ServiceBusAdministrationClient
from sbredis.aio.management import _calls as calls
from sbredis.engine import head_keys, slot_for_name
from sbredis.entities import QUEUES, queue_creation
from sbredis.exceptions import MessagingEntityNotFoundError
from sbredis.management import EntityStatus, QueueProperties
from sbredis.registry import Namespace
from sbredis.transport import Transport
from tests.aio.queues import Calls
from tests.management.conftest import held
from tests.management.kinds import QUEUE, TOPIC, EntityKind
from tests.management.refusals import refused
from tests.offenders import for_each

in_memory = pytest.mark.parametrize("target", ["memory"], indirect=True)
Admin = ServiceBusAdministrationClient


# -- creating and finding ----------------------------------------------------------------------------------------------


@pytest.mark.everywhere("the registry and the partitions lie in different slots")
@pytest.mark.parametrize("kind", [QUEUE, TOPIC], ids=lambda kind: kind.word)
async def test_a_queue_or_topic_can_be_colocated_with_another(admin: Admin, kind: EntityKind) -> None:
    await admin.create_queue("First")
    place = slot_for_name("first", 4)
    other = next(name for name in "abcdef" if slot_for_name(name, 4) != place)
    created = await kind.call(admin, "create", other, colocate_with="FIRST")
    assert created.colocate_with == "First"
    assert (await admin._connection.namespace.get_entity(other)).partitions == (place,)
    await kind.call(admin, "update", {"name": other, "colocate_with": "first"})
    assert await kind.call(admin, "get", other) == created


@in_memory
async def test_wrong_arguments_are_refused_before_connecting(where: str) -> None:
    admin = Admin(where)
    for name, properties in (("a b", {}), ("q", {"lock_duration": "PT6M"}), ("q", {"colour": "red"})):
        with pytest.raises((ValueError, TypeError)):
            await admin.create_queue(name, **properties)  # type: ignore[arg-type]
        with pytest.raises((ValueError, TypeError)):
            await admin.ensure_queue(name, **properties)  # type: ignore[arg-type]
    near = r"does not take 'max_delivery_cont' \(did you mean 'max_delivery_count'\?\)"
    for call in (admin.create_queue, admin.ensure_queue):
        with pytest.raises(TypeError, match=rf"^{call.__name__} {near}, 'colour'$"):
            await call("q", max_delivery_cont=5, colour="red")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="update_queue does not take 'colour'"):
        await admin.update_queue({"name": "q"}, colour="red")  # type: ignore[call-arg]
    for make in (admin.create_queue, admin.ensure_queue, admin.create_topic):
        with pytest.raises(ValueError, match=r"^colocate_with: entity name 'a b'"):
            await make("q", colocate_with="a b")
    with pytest.raises(ValueError, match="timeout must be greater than 0"):
        await admin.get_queue("q", timeout=0)
    assert not admin._connection._opened
    await admin.close()


async def test_a_partitioned_queue_has_the_number_of_partitions_that_is_given(admin: Admin) -> None:
    made = await admin.create_queue("q", enable_partitioning=True, partition_count=2)
    assert made.partition_count == 2
    assert (await admin.get_queue("q")).partition_count == 2
    assert len((await admin._connection.namespace.get_entity("q")).partitions) == 2
    beside = await admin.create_queue("beside", enable_partitioning=True, colocate_with="q")
    assert (beside.partition_count, beside.colocate_with) == (2, "q")
    assert (await admin.create_queue("plain")).partition_count is None
    assert await admin.ensure_queue("q", enable_partitioning=True) == made
    await refused(
        admin, admin.ensure_queue("q", partition_count=3, enable_partitioning=True), ValueError, "is 2, not 3"
    )
    await refused(
        admin, admin.update_queue({"name": "q", "partition_count": 3}), ValueError, "cannot be changed: it is 2"
    )


# -- changing ----------------------------------------------------------------------------------------------------------


async def test_an_update_accepts_all_properties_of_a_queue_as_a_mapping(admin: Admin) -> None:
    queue = await admin.create_queue("q", requires_duplicate_detection=True)
    await admin.update_queue({**dict(queue), "lock_duration": "PT30S", "availability_status": "Limited"})
    assert await admin.get_queue("q") == QueueProperties("q", requires_duplicate_detection=True, lock_duration="PT30S")


# -- ensuring ----------------------------------------------------------------------------------------------------------


async def test_ensure_names_all_differences_in_fixed_properties(admin: Admin) -> None:
    await admin.create_queue("Orders", requires_duplicate_detection=True)
    await refused(
        admin,
        admin.ensure_queue(
            "orders", requires_duplicate_detection=False, enable_partitioning=True, lock_duration="PT9S"
        ),
        ValueError,
        "'Orders' already exists with other properties, which cannot be changed: requires_duplicate_detection is True, "
        "not False; enable_partitioning is False, not True. Use it as it is",
    )
    await refused(admin, admin.ensure_queue("orders", colocate_with="x"), ValueError, "colocate_with is None, not 'x'")


@in_memory
async def test_ensure_recreates_a_lost_namespace(admin: Admin, transport: Transport) -> None:
    (key,) = head_keys("ns")
    assert await transport.command("DEL", key, key=key) == 1
    with pytest.raises(MessagingEntityNotFoundError, match="There is no namespace 'ns'"):
        await admin.get_queue("q")
    assert (await admin.ensure_queue("q")).name == "q"
    assert (await admin.get_queue("q")).name == "q"


@in_memory
async def test_a_queue_can_be_created_with_a_test_clock(admin: Admin) -> None:
    namespace: Namespace = admin._connection.namespace
    record = await QUEUES.create_or_get(namespace, "q", 60, {"max_delivery_count": 3}, clock="test")
    assert (record.settings.clock, record.settings.max_delivery_count) == ("test", 3)
    assert (await admin.get_queue_runtime_properties("q")).total_message_count == 0


@pytest.mark.slow
@in_memory
async def test_create_if_missing_creates_a_missing_queue(admin: Admin) -> None:
    """Senders and receivers that are opened with ``create_if_missing`` create their queue in this way."""
    connection = admin._connection
    until = asyncio.get_running_loop().time() + 60
    creation = queue_creation(lock_duration="PT30S", enable_partitioning=True)
    record = await connection.record("q", until, creation)
    assert (record.settings.lock_duration, record.partitioned) == (30_000, True)
    assert await connection.record("Q", until, creation) == record
    found = await asyncio.gather(*(connection.record("another", until, creation) for _ in range(10)))
    assert len({each.incarnation for each in found}) == 1
    with pytest.raises(ValueError, match="allowed maximum of '5' minutes"):
        queue_creation(lock_duration="PT6M")
    with pytest.raises(TypeError, match="create_if_missing does not take 'colour'"):
        queue_creation(colour="red")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"does not take 'lock_durations' \(did you mean 'lock_duration'\?\)$"):
        queue_creation(lock_durations="PT30S")  # type: ignore[call-arg]


# -- listing -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_all_pages_except_the_last_are_full(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the last page may have fewer entries. A page is empty only if the whole list is empty."""
    monkeypatch.setattr(calls, "PAGE", 3)
    for name in "abcdefghij":
        await admin.create_topic(name)
    for name in ("b1", "f1", "g1", "y", "y1", "z"):
        await admin.create_queue(name)

    async def pages(listing: Any) -> list[list[str]]:
        return [[each.name async for each in page] async for page in listing.by_page()]

    for listing in (admin.list_queues(), admin.list_queues_runtime_properties()):
        assert await pages(listing) == [["b1", "f1", "g1"], ["y", "y1", "z"]]
    for topics in (admin.list_topics(), admin.list_topics_runtime_properties()):
        assert await pages(topics) == [["a", "b", "c"], ["d", "e", "f"], ["g", "h", "i"], ["j"]]
    for name in "abcdefghij":
        await admin.delete_topic(name)
    assert await pages(admin.list_topics()) == [[]]


LISTS: dict[str, Callable[..., AsyncItemPaged[Any]]] = {
    "queues": Admin.list_queues,
    "queues, counted": Admin.list_queues_runtime_properties,
    "topics": Admin.list_topics,
    "topics, counted": Admin.list_topics_runtime_properties,
    "subscriptions": lambda admin, **part: admin.list_subscriptions("topic0", **part),
    "subscriptions, counted": lambda admin, **part: admin.list_subscriptions_runtime_properties("topic0", **part),
    "rules": lambda admin, **part: admin.list_rules("topic0", "sub0", **part),
    "partitions": lambda admin, **part: admin.list_partitions("wide", **part),
    "reservations": Admin.list_reservations,
    "unreadable entities": Admin.list_unreadable_entities,
}


@in_memory
@for_each(
    ("listing", "name", "value", "kind"),
    [
        (listing, *each)
        for listing in LISTS
        for each in (
            ("skip", -1, ValueError),
            ("skip", True, TypeError),
            ("skip", 1.5, TypeError),
            ("skip", None, TypeError),
            ("top", 0, ValueError),
            ("top", -5, ValueError),
            ("top", "5", TypeError),
        )
    ],
)
async def test_a_part_of_a_list_that_cannot_be_is_refused_at_once(
    admin: Admin, listing: str, name: str, value: object, kind: type[Exception]
) -> None:
    with pytest.raises(kind, match=f"^{name} must be "):
        LISTS[listing](admin, **{name: value})


@in_memory
@pytest.mark.parametrize("listing", [name for name in LISTS if name not in {"reservations", "unreadable entities"}])
async def test_skip_and_top_select_a_part_of_a_list(admin: Admin, listing: str) -> None:
    await admin.create_queue("wide", enable_partitioning=True)
    for number in range(4):
        await admin.create_topic(f"topic{number}")
        await admin.create_subscription("topic0", f"sub{number}")
    for number in range(3):
        await admin.create_queue(f"queue{number}")
        await admin.create_rule("topic0", "sub0", f"rule{number}")
    paged = LISTS[listing]
    whole = [repr(each) async for each in paged(admin)]
    assert len(whole) == 4
    for skip, top in itertools.product(range(6), (None, 1, 2, 3, 4, 9)):
        end = None if top is None else skip + top
        assert [repr(each) async for each in paged(admin, skip=skip, top=top)] == whole[skip:end]


@in_memory
async def test_a_part_of_a_list_has_pages(admin: Admin) -> None:
    """A page after a continuation token goes on in the part, whichever client asks for it."""
    await admin.create_topic("topic0")
    await admin.create_subscription("topic0", "sub0")
    await admin.delete_rule("topic0", "sub0", "$Default")
    names = sorted(f"r{number}" for number in range(250))
    for name in names:
        await admin.create_rule("topic0", "sub0", name)
    for skip, top, sizes in (
        (0, None, [100, 100, 50]),
        (20, None, [100, 100, 30]),
        (120, None, [100, 30]),
        (0, 200, [100, 100]),
        (30, 201, [100, 100, 1]),
        (130, 101, [100, 1]),
        (149, 500, [100, 1]),
        (250, None, [0]),
        (1000, 1, [0]),
    ):
        pages = admin.list_rules("topic0", "sub0", skip=skip, top=top).by_page()
        found = [[rule.name async for rule in await anext(pages)]]
        while pages.continuation_token is not None:
            pages = admin.list_rules("topic0", "sub0", skip=skip, top=top).by_page(pages.continuation_token)
            found.append([rule.name async for rule in await anext(pages)])
        assert list(map(len, found)) == sizes
        assert list(itertools.chain(*found)) == names[skip : None if top is None else skip + top]


async def test_a_part_of_a_list_reads_no_more_than_it_needs(admin: Admin) -> None:
    """Entities that are left out are not counted, and of each bucket of the registry only a beginning is read."""
    for number in range(6):
        await admin.create_queue(f"q{number}")
    transport, slots = admin._connection.transport, admin._connection.namespace.slots
    with Calls(transport) as made:
        assert [queue.name async for queue in admin.list_queues(skip=1, top=2)] == ["q1", "q2"]
        assert made.by_script == {"list_entities": slots}
        found = [queue.name async for queue in admin.list_queues_runtime_properties(skip=4, top=1)]
        assert (found, made.by_script) == (["q4"], {"list_entities": 2 * slots, "count": 1})


async def test_an_invalid_continuation_token_is_refused(admin: Admin) -> None:
    for token in ("!!", "a b", "a\ud800", "0:a", "-1:a", "x:a", ":a", "1:", "1:a b"):
        for listing in (admin.list_queues(), admin.list_queues_runtime_properties(), admin.list_topics()):
            with pytest.raises(ValueError, match="is not a continuation_token of this list, because it is not a "):
                await anext(listing.by_page(token))
    with pytest.raises(TypeError, match=r"^continuation_token must be the .* of an earlier page, .*, not int$"):
        admin.list_queues().by_page(5)  # type: ignore[arg-type]


@pytest.mark.everywhere("the registry and the partitions lie in different slots")
@pytest.mark.parametrize("state", ["creating", "deleting"])
async def test_a_queue_that_is_only_partly_created_or_deleted_is_listed_with_that_status(
    admin: Admin, state: Any
) -> None:
    await admin.create_queue("q")
    await admin.create_queue("whole")
    namespace = admin._connection.namespace
    record = await namespace.get_entity("q")
    revise = namespace._steps.registry.revise(replace(record, state=state), "another-stamp"[:12])
    await namespace._steps.ask(revise, asyncio.get_running_loop().time() + 60, "q")
    before = await held(admin)
    listed = [queue.status async for queue in admin.list_queues()]
    assert listed == [EntityStatus(state.capitalize()), EntityStatus.ACTIVE]
    assert [queue.name async for queue in admin.list_queues_runtime_properties()] == ["whole"]
    assert await held(admin) == before
