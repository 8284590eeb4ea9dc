"""Tests of queues for an administrator: creating, finding, changing, listing and deleting them.

A refused call changes nothing.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from sbredis.aio.management import AsyncItemPaged, ServiceBusAdministrationClient
from sbredis.aio.management import _calls as calls
from sbredis.engine import PartitionSettings, partition_for_name
from sbredis.entities._definitions import QUEUES, queue_creation
from sbredis.exceptions import (
    MessagingEntityAlreadyExistsError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
)
from sbredis.management import EntityStatus, QueueProperties
from sbredis.registry import Namespace
from sbredis.transport import Transport
from tests.aio.queues import Calls
from tests.management.conftest import held
from tests.management.refusals import refused
from tests.management.test_properties import FIXED, KEPT, every_kept_property
from tests.offenders import for_each
from tests.stored_settings import settings_of

pytestmark = pytest.mark.anyio

in_memory = pytest.mark.parametrize("target", ["memory"], indirect=True)
Admin = ServiceBusAdministrationClient


# -- creating and finding ----------------------------------------------------------------------------------------------


@every_kept_property
async def test_a_property_is_read_back_as_given(admin: Admin, name: str) -> None:
    await admin.create_topic("Other")
    value = KEPT[name][0]
    expected = QueueProperties("q", **{name: value})
    assert await admin.create_queue("q", **{name: value}) == expected
    assert await admin.get_queue("q") == expected
    assert [queue async for queue in admin.list_queues()] == [expected]


@every_kept_property
async def test_every_property_except_the_fixed_ones_can_be_changed_and_reset(admin: Admin, name: str) -> None:
    await admin.create_topic("Other")
    queue = await admin.create_queue("q")
    setattr(queue, name, KEPT[name][0])
    if name in FIXED:
        words = "".join(word.capitalize() for word in name.split("_"))
        text = f"The value for the {words} property of an existing Queue cannot be changed"
        await refused(admin, admin.update_queue(queue), ValueError, text)
        return
    await admin.update_queue(queue)
    assert await admin.get_queue("q") == queue
    await admin.update_queue(queue, **{name: None})
    assert await admin.get_queue("q") == QueueProperties("q")


@pytest.mark.everywhere("the registry and the partitions lie in different slots")
async def test_the_settings_of_a_queue_reach_its_partitions(admin: Admin) -> None:
    await admin.create_queue("q", lock_duration="PT30S", enable_partitioning=True, max_size_in_megabytes=2)
    record = await admin._connection.namespace.get_entity("q")
    assert record.settings == PartitionSettings(lock_duration=30_000, quota=2 * 1024 * 1024)
    for number in record.partitions:
        state = admin._connection.namespace.partition(record, number).keys[0]
        stored = settings_of(await admin._connection.transport.command("HGET", state, "settings", key=state))
        assert stored["lock"] == b"30000"


@pytest.mark.everywhere("the registry and the partitions lie in different slots")
async def test_a_partitioned_queue_exists_in_all_partitions(admin: Admin) -> None:
    created = await admin.create_queue("q", enable_partitioning=True)
    assert created.enable_partitioning
    assert (await admin._connection.namespace.get_entity("q")).partitions == (0, 1, 2, 3)
    assert await admin.get_queue("q") == created


@pytest.mark.everywhere("the registry and the partitions lie in different slots")
async def test_the_partitions_know_whether_the_queue_requires_sessions(admin: Admin) -> None:
    assert (await admin.create_queue("q", requires_session=True)).requires_session
    assert (await admin._connection.namespace.get_entity("q")).settings == PartitionSettings(sessions=True)
    await refused(
        admin,
        admin.update_queue({"name": "q", "requires_session": False}),
        ValueError,
        "^The value for the RequiresSession property of an existing Queue cannot be changed: it is True$",
    )
    await refused(admin, admin.ensure_queue("q", requires_session=False), ValueError, "requires_session is True, not")


async def test_queue_exists_reports_whether_a_queue_exists(admin: Admin) -> None:
    await admin.create_queue("Orders")
    await admin.create_topic("news")
    before = await held(admin)
    assert [await admin.queue_exists(name) for name in ("orders", "other", "news")] == [True, False, False]
    assert await held(admin) == before


@pytest.mark.slow
async def test_a_topic_is_not_found_as_a_queue(admin: Admin) -> None:
    await admin.create_topic("News")
    await admin.create_subscription("news", "all")
    text = "'News' in namespace 'ns' is a topic, not a queue"
    for done in (
        admin.get_queue("news"),
        admin.get_queue_runtime_properties("news"),
        admin.update_queue({"name": "news"}, max_delivery_count=3),
        admin.delete_queue("news"),
    ):
        await refused(admin, done, MessagingEntityNotFoundError, text)
    await refused(admin, admin.create_queue("NEWS"), MessagingEntityAlreadyExistsError, "'News' in namespace 'ns'")
    text = "'News' already exists, and is a topic, not a queue"
    await refused(admin, admin.ensure_queue("NEWS"), MessagingEntityAlreadyExistsError, text)
    assert [queue.name async for queue in admin.list_queues()] == []
    assert [queue.name async for queue in admin.list_queues_runtime_properties()] == []


async def test_an_error_names_its_queue(admin: Admin) -> None:
    for done in (admin.get_queue("q"), admin.delete_queue("q"), admin.update_queue({"name": "q"})):
        with pytest.raises(MessagingEntityNotFoundError) as caught:
            await done
        assert caught.value.entity == "q"


@pytest.mark.everywhere("the registry and the partitions lie in different slots")
async def test_a_queue_can_be_colocated_with_another(admin: Admin) -> None:
    await admin.create_queue("First")
    place = partition_for_name("first", 4)
    other = next(name for name in "abcdef" if partition_for_name(name, 4) != place)
    created = await admin.create_queue(other, colocate_with="FIRST")
    assert created.colocate_with == "First"
    assert (await admin._connection.namespace.get_entity(other)).partitions == (place,)
    await admin.update_queue({"name": other, "colocate_with": "first"})
    assert await admin.get_queue(other) == created


async def test_a_name_that_is_taken_is_refused(admin: Admin) -> None:
    await admin.create_queue("Orders")
    await refused(
        admin,
        admin.create_queue("orders", enable_partitioning=True),
        MessagingEntityAlreadyExistsError,
        "There is already an entity 'Orders' in namespace 'ns'",
    )


WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    (
        {"lock_duration": "PT5M0.001S"},
        ValueError,
        "^The supplied lock time exceeds the allowed maximum of '5' minutes$",
    ),
    ({"lock_duration": timedelta.max}, ValueError, "exceeds the allowed maximum of '5' minutes"),
    ({"lock_duration": "PT4.999S"}, ValueError, "lock_duration must be 0:00:05 or longer"),
    ({"lock_duration": timedelta(seconds=-30)}, ValueError, "lock_duration must be 0:00:05 or longer"),
    ({"max_delivery_count": 0}, ValueError, "max_delivery_count must be from 1 to 99999, not 0"),
    ({"max_delivery_count": 100_000}, ValueError, "max_delivery_count must be from 1"),
    ({"default_message_time_to_live": "PT0.9S"}, ValueError, "default_message_time_to_live must be 0:00:01 or longer"),
    ({"duplicate_detection_history_time_window": "PT19S"}, ValueError, "must be 0:00:20 or longer"),
    ({"duplicate_detection_history_time_window": "P7DT1S"}, ValueError, "must be 7 days, 0:00:00 or shorter"),
    ({"duplicate_detection_history_max_ids": -1}, ValueError, "must be from 0 to"),
    ({"max_size_in_megabytes": 0}, ValueError, "max_size_in_megabytes must be from 1 to"),
    ({"max_message_size_in_kilobytes": 0}, ValueError, "max_message_size_in_kilobytes must be from 1 to 102400"),
    ({"max_message_size_in_kilobytes": 102_401}, ValueError, "from 1 to 102400, not 102401"),
    ({"user_metadata": "x" * 1025}, ValueError, "user_metadata has 1025 characters; at most 1024 are allowed"),
    ({"status": "Deleting"}, ValueError, "status can be set to Active, Disabled, .*, not to 'Deleting'"),
    ({"auto_delete_on_idle": "PT4M59S"}, ValueError, "auto_delete_on_idle must be 0:05:00 or longer"),
    ({"forward_to": "news/subscriptions/all"}, ValueError, "forward_to: .* is a subscription"),
    ({"forward_dead_lettered_messages_to": "o/$DeadLetterQueue"}, ValueError, "is a dead-letter queue"),
    ({"lock_duration": 30}, TypeError, "lock_duration must be a datetime.timedelta or a str"),
    ({"lock_durration": "PT30S"}, TypeError, "lock_durration"),
    ({"authorization_rules": [{"key_name": "k" * 70_000}]}, ValueError, "at most 65536 are stored"),
]
every_wrong_property = for_each(("properties", "error", "text"), WRONG)


@in_memory
@every_wrong_property
async def test_a_queue_is_not_created_with_wrong_properties(
    admin: Admin, properties: dict[str, Any], error: type[Exception], text: str
) -> None:
    await refused(admin, admin.ensure_queue("q", **properties), error, text)
    with pytest.raises(error, match=text):
        await admin.create_queue("q", **properties)
    assert [queue async for queue in admin.list_queues()] == []


@pytest.fixture
async def existing(admin: Admin) -> None:
    """Create a queue ``q``."""
    await admin.create_queue("q")


@pytest.mark.slow
@in_memory
@pytest.mark.usefixtures("existing")
@every_wrong_property
async def test_an_update_with_wrong_properties_changes_nothing(
    admin: Admin, properties: dict[str, Any], error: type[Exception], text: str
) -> None:
    await refused(admin, admin.ensure_queue("q", **properties), error, text)
    await refused(admin, admin.update_queue({"name": "q", **properties}), error, text)
    await refused(admin, admin.update_queue(QueueProperties("q"), **properties), error, text)


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
    for name in ("a b", "a" * 261, "t/subscriptions/s", ""):
        for done in (
            admin.get_queue(name),
            admin.get_queue_runtime_properties(name),
            admin.queue_exists(name),
            admin.delete_queue(name),
            admin.update_queue({"name": name}),
        ):
            with pytest.raises(ValueError, match="entity name"):
                await done
    with pytest.raises(ValueError, match="timeout must be greater than 0"):
        await admin.get_queue("q", timeout=0)
    assert not admin._connection._opened
    await admin.close()


@pytest.mark.slow
async def test_a_queue_cannot_be_colocated_with_a_missing_or_partitioned_entity(admin: Admin) -> None:
    await admin.create_queue("everywhere", enable_partitioning=True)
    for make in (admin.create_queue, admin.ensure_queue):
        text = r"'q' was to be colocated with 'nothing' \(colocate_with\)\. There is no entity 'nothing'"
        await refused(admin, make("q", colocate_with="nothing"), MessagingEntityNotFoundError, text)
        await refused(admin, make("q", colocate_with="everywhere"), ValueError, "cannot be colocated with 'everywhere'")
        await refused(
            admin, make("q", colocate_with="x", enable_partitioning=True), ValueError, "leave out colocate_with"
        )
        await refused(admin, make("q", colocate_with="a b"), ValueError, "^colocate_with: entity name 'a b'")


@in_memory
async def test_an_invalid_name_is_refused_before_a_connection_is_opened(where: str) -> None:
    admin = Admin(where)
    for make in (admin.create_queue, admin.ensure_queue, admin.create_topic):
        with pytest.raises(ValueError, match=r"^colocate_with: entity name 'a b'"):
            await make("q", colocate_with="a b")
    assert not admin._connection._opened
    await admin.close()


async def test_the_error_for_a_missing_entity_suggests_a_remedy(admin: Admin) -> None:
    for done in (
        admin.get_queue("Orders"),
        admin.get_queue_runtime_properties("Orders"),
        admin.update_queue({"name": "Orders"}),
        admin.delete_queue("Orders"),
    ):
        await refused(
            admin, done, MessagingEntityNotFoundError, r"ensure_queue\('Orders'\), .* with create_if_missing=True"
        )


# -- changing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("requires_session", True, "RequiresSession"),
        ("requires_duplicate_detection", True, "RequiresDuplicateDetection"),
        ("enable_partitioning", True, "EnablePartitioning"),
        ("colocate_with", "other", "ColocateWith"),
    ],
)
async def test_fixed_properties_cannot_be_changed(admin: Admin, name: str, value: Any, words: str) -> None:
    queue = await admin.create_queue("q")
    setattr(queue, name, value)
    queue.max_delivery_count = 3
    text = f"^The value for the {words} property of an existing Queue cannot be changed: it is (False|None)$"
    await refused(admin, admin.update_queue(queue), ValueError, text)


async def test_an_update_by_mapping_keeps_the_changes_of_other_clients(admin: Admin) -> None:
    await admin.create_queue("q", max_delivery_count=3, user_metadata="x")
    await admin.update_queue({"name": "Q", "lock_duration": "PT30S"})
    await admin.update_queue({"name": "q"}, user_metadata="y")
    assert await admin.get_queue("q") == QueueProperties(
        "q", max_delivery_count=3, lock_duration="PT30S", user_metadata="y"
    )


async def test_an_update_accepts_all_properties_of_a_queue_as_a_mapping(admin: Admin) -> None:
    queue = await admin.create_queue("q", requires_duplicate_detection=True)
    await admin.update_queue({**dict(queue), "lock_duration": "PT30S", "availability_status": "Limited"})
    assert await admin.get_queue("q") == QueueProperties("q", requires_duplicate_detection=True, lock_duration="PT30S")


async def test_concurrent_changes_all_succeed(admin: Admin) -> None:
    await admin.create_queue("q", enable_partitioning=True)
    await asyncio.gather(
        admin.update_queue({"name": "q"}, lock_duration="PT30S"),
        admin.update_queue({"name": "q"}, max_delivery_count=3),
        admin.update_queue({"name": "q"}, user_metadata="x"),
    )
    assert await admin.get_queue("q") == QueueProperties(
        "q", enable_partitioning=True, lock_duration="PT30S", max_delivery_count=3, user_metadata="x"
    )


@in_memory
async def test_an_entity_of_another_kind_is_not_updated_as_a_queue(admin: Admin) -> None:
    for wrong, error in (("q", TypeError), (None, TypeError), ({}, ValueError), ({"name": 5}, TypeError)):
        with pytest.raises(error):
            await admin.update_queue(wrong)  # type: ignore[arg-type]


# -- ensuring ----------------------------------------------------------------------------------------------------------


async def test_ensure_creates_missing_entities_and_leaves_existing_ones(admin: Admin) -> None:
    made = await admin.ensure_queue("Orders", lock_duration="PT30S", requires_duplicate_detection=True)
    assert made == QueueProperties("Orders", lock_duration="PT30S", requires_duplicate_detection=True)
    before = await held(admin)
    assert await admin.ensure_queue("orders") == made
    assert await admin.ensure_queue("orders", lock_duration="PT10S", requires_session=False) == made
    assert await held(admin) == before


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


@pytest.mark.slow
@pytest.mark.everywhere("the registry and the partitions lie in different slots")
@pytest.mark.both_shapes
async def test_many_clients_may_ensure_a_queue_at_the_same_time(admin: Admin, where: str, *, partitioned: bool) -> None:
    async with Admin(where) as another:
        for turn in range(3):
            found = await asyncio.gather(
                *(
                    client.ensure_queue(f"q{turn}", enable_partitioning=partitioned, max_delivery_count=number + 1)
                    for number, client in enumerate((admin, another) * 8)
                )
            )
            assert len({queue.max_delivery_count for queue in found}) == 1
            assert found[0] == await admin.get_queue(f"q{turn}")


@pytest.mark.slow
@pytest.mark.everywhere("the registry and the partitions lie in different slots")
async def test_concurrent_ensure_and_delete_succeed_or_find_nothing(admin: Admin) -> None:
    for _ in range(5):
        done = await asyncio.gather(
            *(admin.ensure_queue("q") for _ in range(4)),
            *(admin.delete_queue("q") for _ in range(4)),
            return_exceptions=True,
        )
        wrong: list[object] = [each for each in done[:4] if not isinstance(each, QueueProperties)]
        wrong += [each for each in done[4:] if not (each is None or type(each) is MessagingEntityNotFoundError)]
        assert wrong == []


@in_memory
async def test_ensure_recreates_a_lost_namespace(admin: Admin, transport: Transport) -> None:
    key = b"sb:ns:{fjl}:namespace"
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


async def test_queues_are_listed_by_name_over_several_pages(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "PAGE", 3)
    assert [queue async for queue in admin.list_queues()] == []
    names = ["b", "A", "c", "B2", "a2", "d"]
    for name in names:
        await admin.create_queue(name)
    by_name = sorted(names, key=str.lower)
    assert [queue.name async for queue in admin.list_queues()] == by_name
    assert [queue.name async for queue in admin.list_queues_runtime_properties()] == by_name
    await admin.create_queue("e")
    pages = admin.list_queues().by_page()
    first = await anext(pages)
    assert [queue.name async for queue in first] == by_name[:3]
    tokens = [pages.continuation_token]
    rest = [[queue.name async for queue in page] async for page in admin.list_queues().by_page(by_name[2])]
    assert rest == [by_name[3:], ["e"]]
    assert [[queue.name async for queue in page] async for page in pages] == rest
    tokens.append(pages.continuation_token)
    assert tokens == [by_name[2], None]
    listing = admin.list_queues()
    assert (await anext(listing)).name == "A"
    assert [queue.name async for queue in listing] == [*by_name[1:], "e"]


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


@pytest.mark.parametrize("listing", LISTS)
@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("skip", -1, ValueError),
        ("skip", True, TypeError),
        ("skip", 1.5, TypeError),
        ("skip", None, TypeError),
        ("top", 0, ValueError),
        ("top", -5, ValueError),
        ("top", "5", TypeError),
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
    """Entities that are left out are not counted, and entities behind the part are not read."""
    for number in range(6):
        await admin.create_queue(f"q{number}")
    transport = admin._connection.transport
    with Calls(transport) as made:
        assert [queue.name async for queue in admin.list_queues(skip=1, top=2)] == ["q1", "q2"]
        assert made.by_script == {"list_entities": 1}
        found = [queue.name async for queue in admin.list_queues_runtime_properties(skip=4, top=1)]
        assert (found, made.by_script) == (["q4"], {"list_entities": 2, "count": 1})


async def test_an_invalid_continuation_token_is_refused(admin: Admin) -> None:
    for token in ("!!", "a b", "a\ud800", "0:a", "-1:a", "x:a", ":a", "1:", "1:a b"):
        for listing in (admin.list_queues(), admin.list_queues_runtime_properties(), admin.list_topics()):
            with pytest.raises(ValueError, match="is not a continuation_token of this list, because it is not a "):
                await anext(listing.by_page(token))
    with pytest.raises(TypeError, match=r"^continuation_token must be the .* of an earlier page, .*, not int$"):
        admin.list_queues().by_page(5)  # type: ignore[arg-type]


@pytest.mark.slow
@in_memory
async def test_more_queues_than_a_page_holds_are_all_listed(admin: Admin) -> None:
    names = sorted(f"q{number:03}" for number in range(calls.PAGE * 2 + 1))
    await asyncio.gather(*(admin.create_queue(name) for name in names))
    assert [queue.name async for queue in admin.list_queues()] == names
    assert [queue.name async for queue in admin.list_queues_runtime_properties()] == names


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


# -- deleting ----------------------------------------------------------------------------------------------------------


@pytest.mark.everywhere("the registry and the partitions lie in different slots")
@pytest.mark.both_shapes
async def test_a_deleted_queue_leaves_no_keys_and_its_name_is_free(admin: Admin, *, partitioned: bool) -> None:
    before = set(await held(admin))
    await admin.create_queue("q", enable_partitioning=partitioned)
    await admin.delete_queue("Q")
    assert {key for key in set(await held(admin)) - before if b"{fjl}" not in key} == set()
    assert await admin.ensure_queue("q", enable_partitioning=not partitioned) is not None


@in_memory
async def test_a_call_with_a_timeout_of_zero_changes_nothing(admin: Admin) -> None:
    await admin.create_queue("q")
    for done in (
        admin.create_queue("other", timeout=1e-9),
        admin.ensure_queue("other", timeout=1e-9),
        admin.update_queue({"name": "q"}, max_delivery_count=3, timeout=1e-9),
        admin.delete_queue("q", timeout=1e-9),
        anext(admin.list_queues(timeout=1e-9)),
    ):
        await refused(admin, done, OperationTimeoutError, ".")
