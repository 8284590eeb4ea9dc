"""Tests of subscriptions for an administrator: creating, finding, changing, listing and deleting them.

A refused call changes nothing.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.engine import PartitionSettings
from sbredis.entities._definitions import SUBSCRIPTIONS, subscription_creation
from sbredis.exceptions import (
    MessagingEntityAlreadyExistsError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    RuleSyntaxError,
)
from sbredis.management import (
    CorrelationRuleFilter,
    EntityStatus,
    RuleProperties,
    SqlRuleFilter,
    SubscriptionProperties,
    TrueRuleFilter,
)
from tests.management.conftest import held
from tests.management.refusals import refused
from tests.management.test_topic_and_subscription_properties import FIXED, SUBSCRIPTION_KEPT
from tests.stored_settings import settings_of

pytestmark = pytest.mark.anyio

in_memory = pytest.mark.parametrize("target", ["memory"], indirect=True)
every_kept_property = pytest.mark.parametrize("name", SUBSCRIPTION_KEPT)
Admin = ServiceBusAdministrationClient


@pytest.fixture
async def admin(admin: Admin) -> Admin:
    """The client, with a topic."""
    await admin.create_topic("News")
    return admin


async def rules(admin: Admin, subscription: str) -> list[str]:
    return [rule.name async for rule in admin.list_rules("news", subscription)]


# -- creating and finding ----------------------------------------------------------------------------------------------


async def test_a_new_subscription_has_azures_defaults_and_a_rule_that_matches_every_message(admin: Admin) -> None:
    created = await admin.create_subscription("news", "All")
    assert created == SubscriptionProperties("All")
    assert await admin.get_subscription("NEWS", "all") == created
    assert [each async for each in admin.list_subscriptions("news")] == [created]
    (rule,) = [rule async for rule in admin.list_rules("news", "all")]
    assert (rule.name, rule.filter, rule.action) == ("$Default", TrueRuleFilter(), None)


async def test_a_subscription_may_be_created_with_other_rules(admin: Admin) -> None:
    """Then no ``$Default`` rule exists that could take messages before a program deletes it."""
    given = [
        RuleProperties("red", filter=CorrelationRuleFilter(label="red")),
        RuleProperties("blue", filter=SqlRuleFilter("colour = 'blue'")),
    ]
    await admin.create_subscription("news", "some", rules=given)
    assert await rules(admin, "some") == ["blue", "red"]
    assert (await admin.get_rule("news", "some", "red")).filter == given[0].filter
    await admin.create_subscription("news", "none", rules=[])
    assert await rules(admin, "none") == []
    await admin.ensure_subscription("news", "ensured", rules=given)
    await admin.ensure_subscription("news", "ensured")
    assert await rules(admin, "ensured") == ["blue", "red"]


@pytest.mark.slow
async def test_a_subscription_is_not_created_with_wrong_rules(admin: Admin) -> None:
    wrong = RuleProperties("r", filter=SqlRuleFilter("a ="))
    twice = [RuleProperties("r"), RuleProperties("R")]
    for make in (admin.create_subscription, admin.ensure_subscription):
        await refused(admin, make("news", "s", rules=[wrong]), RuleSyntaxError, "line 1, column 4")
        await refused(admin, make("news", "s", rules=[{"name": "r"}]), TypeError, "list of RuleProperties, not of dict")  # type: ignore[list-item]
        await refused(admin, make("news", "s", rules=iter(twice)), TypeError, "rules must be a list of RuleProp")  # type: ignore[arg-type]
        await refused(admin, make("news", "s", rules=RuleProperties("r")), TypeError, "not RuleProperties")  # type: ignore[arg-type]
        await refused(admin, make("news", "s", rules=twice), ValueError, "two rules have the name 'R'")
        await refused(admin, make("news", "s", rules=[RuleProperties("a b")]), ValueError, "rule name 'a b'")


@every_kept_property
async def test_a_property_is_read_back_as_given(admin: Admin, name: str) -> None:
    await admin.create_queue("Other")
    value = SUBSCRIPTION_KEPT[name].value
    expected = SubscriptionProperties("s", **{name: value})
    assert await admin.create_subscription("news", "s", **{name: value}) == expected
    assert await admin.get_subscription("news", "s") == expected
    assert [each async for each in admin.list_subscriptions("news")] == [expected]


@in_memory
@every_kept_property
async def test_every_property_except_the_fixed_ones_can_be_changed_and_reset(admin: Admin, name: str) -> None:
    await admin.create_queue("Other")
    found = await admin.create_subscription("news", "s")
    setattr(found, name, SUBSCRIPTION_KEPT[name].value)
    if name in FIXED:
        text = "The value for the RequiresSession property of an existing Subscription cannot be changed"
        await refused(admin, admin.update_subscription("news", found), ValueError, text)
        return
    await admin.update_subscription("news", found)
    assert await admin.get_subscription("news", "s") == found
    await admin.update_subscription("news", found, **{name: None})
    assert await admin.get_subscription("news", "s") == SubscriptionProperties("s")


async def test_dead_lettering_on_filter_errors_is_stored_under_its_name(admin: Admin) -> None:
    """If the property is not stored, a message whose filter fails is dead-lettered.

    The clients that evaluate rules read the property under this name.
    """
    name = "dead_lettering_on_filter_evaluation_exceptions"
    namespace = admin._connection.namespace
    await admin.create_subscription("news", "s")
    assert (await namespace.get_entity("news/subscriptions/s")).properties.get(name, True) is True
    await admin.update_subscription("news", {"name": "s", name: False})
    assert (await namespace.get_entity("news/subscriptions/s")).properties.get(name, True) is False


@pytest.mark.everywhere("the registry and the partitions lie in different slots")
@pytest.mark.both_shapes
async def test_the_settings_of_a_subscription_reach_the_partitions_of_its_topic(
    admin: Admin, *, partitioned: bool
) -> None:
    await admin.create_topic("t", enable_partitioning=partitioned)
    await admin.create_subscription("t", "s", lock_duration="PT30S", requires_session=True)
    await admin.update_subscription("t", {"name": "s"}, status="ReceiveDisabled")
    namespace = admin._connection.namespace
    record = await namespace.get_entity("t/subscriptions/s")
    topic = await namespace.get_entity("t")
    assert record.settings == PartitionSettings(
        shared=True, sessions=True, lock_duration=30_000, status="ReceiveDisabled"
    )
    assert (record.partitions, record.partitioned) == (topic.partitions, partitioned)
    for number in record.partitions:
        state = namespace.partition(record, number).keys[0]
        stored = settings_of(await admin._connection.transport.command("HGET", state, "settings", key=state))
        assert (stored["lock"], stored["status"], stored["sessions"]) == (b"30000", b"ReceiveDisabled", b"1")


async def test_topics_may_have_subscriptions_with_the_same_name(admin: Admin) -> None:
    await admin.create_topic("other")
    await admin.create_subscription("news", "s", max_delivery_count=3)
    await admin.create_subscription("other", "s", max_delivery_count=4)
    await admin.update_subscription("other", {"name": "s"}, user_metadata="ours")
    assert await admin.get_subscription("news", "s") == SubscriptionProperties("s", max_delivery_count=3)
    await admin.delete_subscription("news", "s")
    assert (await admin.get_subscription("other", "s")).max_delivery_count == 4


async def test_a_name_that_is_taken_is_refused(admin: Admin) -> None:
    await admin.create_subscription("news", "All")
    text = "There is already an entity '[Nn]ews/subscriptions/All' in namespace 'ns'"
    await refused(admin, admin.create_subscription("news", "ALL"), MessagingEntityAlreadyExistsError, text)


async def test_subscription_exists_reports_whether_a_subscription_exists(admin: Admin) -> None:
    await admin.create_queue("orders")
    await admin.create_subscription("news", "All")
    before = await held(admin)
    asked = [("NEWS", "all"), ("news", "other"), ("nothing", "all"), ("orders", "all")]
    assert [await admin.subscription_exists(*path) for path in asked] == [True, False, False, False]
    assert await held(admin) == before


@pytest.mark.slow
async def test_the_error_of_a_subscription_names_the_missing_topic(admin: Admin) -> None:
    await admin.create_queue("Queue")
    for topic, text in (
        ("nothing", "of a topic 'nothing' in namespace 'ns', because there is no such topic.*create_topic.'nothing'"),
        ("Queue", "of a topic 'Queue' in namespace 'ns', because 'Queue' is a queue, which has no subscriptions"),
        ("news", "of a topic 'news' in namespace 'ns'. Create it with .*create_subscription"),
    ):
        for done in (
            admin.get_subscription(topic, "s"),
            admin.delete_subscription(topic, "s"),
            admin.create_rule(topic, "s", "r"),
            anext(admin.list_rules(topic, "s")),
        ):
            await refused(admin, done, MessagingEntityNotFoundError, f"There is no subscription 's' {text}")


@pytest.mark.slow
async def test_the_error_names_the_missing_entity(admin: Admin) -> None:
    for topic, name in (("news", "s"), ("nothing", "s")):
        for done in (
            admin.get_subscription(topic, name),
            admin.get_subscription_runtime_properties(topic, name),
            admin.update_subscription(topic, {"name": name}),
            admin.delete_subscription(topic, name),
        ):
            await refused(
                admin, done, MessagingEntityNotFoundError, f"There is no subscription 's' of a topic '{topic}'"
            )
    for done in (
        admin.create_subscription("nothing", "s"),
        admin.ensure_subscription("nothing", "s"),
        anext(admin.list_subscriptions("nothing")),
        anext(admin.list_subscriptions_runtime_properties("nothing")),
    ):
        await refused(admin, done, MessagingEntityNotFoundError, "There is no topic 'nothing'")
    with pytest.raises(MessagingEntityNotFoundError) as caught:
        await admin.get_subscription("news", "s")
    assert caught.value.entity == "news/subscriptions/s"


# -- refusals ----------------------------------------------------------------------------------------------------------

WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    (
        {"lock_duration": "PT5M0.001S"},
        ValueError,
        "^The supplied lock time exceeds the allowed maximum of '5' minutes$",
    ),
    ({"lock_duration": "PT4.999S"}, ValueError, "lock_duration must be 0:00:05 or longer"),
    ({"max_delivery_count": 0}, ValueError, "max_delivery_count must be from 1 to 99999, not 0"),
    ({"default_message_time_to_live": "PT0.9S"}, ValueError, "default_message_time_to_live must be 0:00:01 or longer"),
    ({"user_metadata": "x" * 1025}, ValueError, "user_metadata has 1025 characters; at most 1024 are allowed"),
    ({"status": "Deleting"}, ValueError, "status can be set to Active, Disabled, .*, not to 'Deleting'"),
    ({"auto_delete_on_idle": "PT4M"}, ValueError, "auto_delete_on_idle must be 0:05:00 or longer"),
    ({"forward_to": "news/subscriptions/all"}, ValueError, "forward_to: .* is a subscription"),
    ({"forward_dead_lettered_messages_to": "o/$DeadLetterQueue"}, ValueError, "is a dead-letter queue"),
    ({"dead_lettering_on_filter_evaluation_exceptions": 1}, TypeError, "must be True or False, not int"),
    ({"max_size_in_megabytes": 5}, TypeError, "max_size_in_megabytes"),
    ({"enable_partitioning": True}, TypeError, "enable_partitioning"),
    ({"colocate_with": "other"}, TypeError, "colocate_with"),
]


@pytest.mark.slow
@in_memory
@pytest.mark.parametrize(("properties", "error", "text"), WRONG)
async def test_wrong_properties_neither_create_nor_change_a_subscription(
    admin: Admin, properties: dict[str, Any], error: type[Exception], text: str
) -> None:
    await refused(admin, admin.ensure_subscription("news", "s", **properties), error, text)
    with pytest.raises(error, match=text):
        await admin.create_subscription("news", "s", **properties)
    assert [each async for each in admin.list_subscriptions("news")] == []
    await admin.create_subscription("news", "s")
    await refused(admin, admin.ensure_subscription("news", "s", **properties), error, text)
    await refused(admin, admin.update_subscription("news", {"name": "s", **properties}), error, text)
    found = SubscriptionProperties("s")
    await refused(admin, admin.update_subscription("news", found, **properties), error, text)


@in_memory
async def test_wrong_arguments_are_refused_before_connecting(where: str) -> None:
    admin = Admin(where)
    for topic, name in (
        ("a b", "s"),
        ("news", "a b"),
        ("news", "s" * 51),
        ("news", ""),
        ("n" * 261, "s"),
        ("t", "a/b"),
    ):
        for done in (
            admin.create_subscription(topic, name),
            admin.ensure_subscription(topic, name),
            admin.get_subscription(topic, name),
            admin.subscription_exists(topic, name),
            admin.get_subscription_runtime_properties(topic, name),
            admin.update_subscription(topic, {"name": name}),
            admin.delete_subscription(topic, name),
        ):
            with pytest.raises(ValueError, match=r"(entity|subscription) name"):
                await done
    for listed in (admin.list_subscriptions, admin.list_subscriptions_runtime_properties):
        with pytest.raises(ValueError, match="entity name 'a b'"):
            listed("a b")
    for wrong, error in (("s", TypeError), ({}, ValueError), ({"name": "s", "colour": 1}, TypeError)):
        with pytest.raises(error):
            await admin.update_subscription("news", wrong)  # type: ignore[arg-type]
    assert not admin._connection._opened
    await admin.close()


async def test_requires_session_cannot_be_changed(admin: Admin) -> None:
    found = await admin.create_subscription("news", "s", requires_session=True)
    found.requires_session = False
    found.max_delivery_count = 3
    text = "^The value for the RequiresSession property of an existing Subscription cannot be changed: it is True$"
    await refused(admin, admin.update_subscription("news", found), ValueError, text)
    text = (
        "The subscription '[Nn]ews/subscriptions/s' already exists with other .*: requires_session is True, not False"
    )
    await refused(admin, admin.ensure_subscription("news", "s", requires_session=False), ValueError, text)


async def test_concurrent_changes_all_succeed(admin: Admin) -> None:
    await admin.create_subscription("news", "s")
    await asyncio.gather(
        admin.update_subscription("news", {"name": "s"}, lock_duration="PT30S"),
        admin.update_subscription("news", {"name": "s"}, max_delivery_count=3),
        admin.update_subscription("news", {"name": "s"}, dead_lettering_on_filter_evaluation_exceptions=False),
        admin.create_rule("news", "s", "red"),
    )
    assert await admin.get_subscription("news", "s") == SubscriptionProperties(
        "s", lock_duration="PT30S", max_delivery_count=3, dead_lettering_on_filter_evaluation_exceptions=False
    )
    assert await rules(admin, "s") == ["$Default", "red"]


# -- ensuring ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_ensure_creates_missing_entities_and_leaves_existing_ones(admin: Admin, where: str) -> None:
    made = await admin.ensure_subscription("news", "All", lock_duration="PT30S")
    assert made == SubscriptionProperties("All", lock_duration="PT30S")
    await admin.delete_rule("news", "all", "$Default")
    before = await held(admin)
    assert await admin.ensure_subscription("NEWS", "all", lock_duration="PT10S") == made
    assert await held(admin) == before
    async with Admin(where) as another:
        found = await asyncio.gather(
            *(
                client.ensure_subscription("news", "s", max_delivery_count=number + 1)
                for number, client in enumerate((admin, another) * 8)
            )
        )
    assert len({each.max_delivery_count for each in found}) == 1
    assert await rules(admin, "s") == ["$Default"]


@pytest.mark.slow
@pytest.mark.everywhere("the registry and the partitions lie in different slots")
async def test_concurrent_ensure_and_delete_succeed_or_find_nothing(admin: Admin) -> None:
    for _ in range(3):
        done = await asyncio.gather(
            *(admin.ensure_subscription("news", "s") for _ in range(4)),
            *(admin.delete_subscription("news", "s") for _ in range(4)),
            return_exceptions=True,
        )
        wrong: list[object] = [each for each in done[:4] if not isinstance(each, SubscriptionProperties)]
        wrong += [each for each in done[4:] if not (each is None or type(each) is MessagingEntityNotFoundError)]
        assert wrong == []


@in_memory
async def test_create_if_missing_creates_a_missing_subscription(admin: Admin) -> None:
    """Receivers that are opened with ``create_if_missing`` create their subscription in this way."""
    connection = admin._connection
    until = asyncio.get_running_loop().time() + 60
    creation = subscription_creation(lock_duration="PT30S", rules=[RuleProperties("red")])
    record = await connection.record("news/subscriptions/s", until, creation)
    assert (record.kind, record.settings.lock_duration, record.settings.shared) == ("subscription", 30_000, True)
    assert await connection.record("NEWS/Subscriptions/S", until, creation) == record
    assert SUBSCRIPTIONS.described(record, reachable=True).name == "s"
    assert await rules(admin, "s") == ["red"]
    with pytest.raises(MessagingEntityNotFoundError, match="There is no topic 'nothing'"):
        await connection.record("nothing/subscriptions/s", until, creation)
    with pytest.raises(ValueError, match="'news' is not the path of a subscription"):
        await creation(connection.namespace, "news", 60)
    with pytest.raises(TypeError, match="create_if_missing does not take 'colour'"):
        subscription_creation(colour="red")  # type: ignore[call-arg]
    with pytest.raises(RuleSyntaxError):
        subscription_creation(rules=[RuleProperties("r", filter=SqlRuleFilter("a ="))])


# -- listing and deleting ----------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_subscriptions_are_listed_by_name_over_several_pages(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sbredis.aio.management._calls.PAGE", 3)
    names = ["b", "A", "c", "B2", "a2", "d"]
    for name in names:
        await admin.create_subscription("news", name)
    by_name = sorted(names, key=str.lower)
    assert [each.name async for each in admin.list_subscriptions("news")] == by_name
    assert [each.name async for each in admin.list_subscriptions_runtime_properties("news")] == by_name
    pages = admin.list_subscriptions("news").by_page()
    assert [each.name async for each in await anext(pages)] == by_name[:3]
    assert pages.continuation_token == by_name[2]
    await admin.delete_subscription("news", by_name[2])
    rest = admin.list_subscriptions("news").by_page(pages.continuation_token)
    assert [[each.name async for each in page] async for page in rest] == [by_name[3:]], "no empty page behind the last"
    assert rest.continuation_token is None
    with pytest.raises(ValueError, match="'a b' is not a continuation_token of this list"):
        await anext(admin.list_subscriptions("news").by_page("a b"))


@pytest.mark.everywhere("the registry and the partitions lie in different slots")
async def test_a_deleted_subscription_leaves_no_keys_and_its_name_is_free(admin: Admin) -> None:
    before = set(await held(admin))
    await admin.create_subscription("news", "s", requires_session=True, rules=[RuleProperties("red")])
    await admin.delete_subscription("News", "S")
    assert {key for key in set(await held(admin)) - before if b"{fjl}" not in key} == set()
    await admin.create_subscription("news", "s")
    assert await rules(admin, "s") == ["$Default"]


@in_memory
async def test_a_disabled_subscription_is_shown_with_the_status_disabled(admin: Admin) -> None:
    found = await admin.create_subscription("news", "s", status=EntityStatus.RECEIVE_DISABLED)
    assert found.status is EntityStatus.RECEIVE_DISABLED
    await admin.update_subscription("news", found, status="Active")
    assert (await admin.get_subscription("news", "s")).status is EntityStatus.ACTIVE


@pytest.mark.slow
@in_memory
async def test_a_call_with_a_timeout_of_zero_changes_nothing(admin: Admin) -> None:
    await admin.create_subscription("news", "s")
    for done in (
        admin.create_subscription("news", "other", timeout=1e-9),
        admin.ensure_subscription("news", "other", timeout=1e-9),
        admin.get_subscription("news", "s", timeout=1e-9),
        admin.subscription_exists("news", "s", timeout=1e-9),
        admin.get_subscription_runtime_properties("news", "s", timeout=1e-9),
        admin.update_subscription("news", {"name": "s"}, max_delivery_count=3, timeout=1e-9),
        admin.delete_subscription("news", "s", timeout=1e-9),
        anext(admin.list_subscriptions("news", timeout=1e-9)),
        anext(admin.list_subscriptions_runtime_properties("news", timeout=1e-9)),
    ):
        await refused(admin, done, OperationTimeoutError, ".")
