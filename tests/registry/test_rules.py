"""Tests of the rules of subscriptions: creating, finding, listing, changing, deleting, and their stored text."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sbredis.exceptions import (
    DataLayoutError,
    MessagingEntityAlreadyExistsError,
    MessagingEntityNotFoundError,
    ServiceBusQuotaExceededError,
)
from sbredis.registry import EntityChangedError, KeptRule, Namespace, path_of, place_of
from sbredis.registry import _rulebook as rulebook_module
from sbredis.registry._registry import Limits
from sbredis.registry._rules import MAXIMUM_RULE_BYTES, decode_rule, encode_rule, kind_of
from sbredis.rules import CorrelationFilter, FalseFilter, Rule, SqlAction, SqlFilter, TrueFilter
from sbredis.transport import Transport
from tests.engine.opening import open_with_scripts
from tests.registry.keys import bucket_of, snapshot
from tests.registry.refusals import refused
from tests.registry.topics import ANY, CORRELATED, NONE, OF_SUBSCRIPTION, SQL, kept_of, make_topic, require_whole

RULES = bucket_of("Topic", 2)[4]
EVERYTHING = Rule(
    "Every-thing_1.2",
    CorrelationFilter(
        correlation_id="é\U0001f600",
        to="",
        properties={"a": 2**62, "b": 1.5, "c": True, "d": datetime(2026, 1, 2, tzinfo=UTC)},
    ),
    SqlAction("SET sys.TimeToLive = @p", {"@p": timedelta(1)}),
)


@pytest.fixture
async def namespace(transport: Transport) -> Namespace:
    """A namespace that has a topic with a subscription that has one rule."""
    namespace = await Namespace.open(transport, "ns", 2)
    await make_topic(namespace)
    await namespace.create_subscription("Topic", "Sub", OF_SUBSCRIPTION, rules=[ANY])
    return namespace


# -- one rule ----------------------------------------------------------------------------------------------------------


async def test_every_change_of_a_rule_raises_the_topic_version(transport: Transport, namespace: Namespace) -> None:
    version = (await namespace.get_entity("Topic")).version
    created = await namespace.create_rule("topic", "SUB", SQL)
    assert created.rule == SQL
    assert created.created_at > 1_700_000_000_000
    assert await namespace.get_rule("Topic", "Sub", "sQL") == created
    assert (await namespace.topic_facts("Topic"))[1:] == (1, 2, 0)  # the filter that is always true is counted too
    changed = Rule("SQL", CORRELATED.filter)
    updated = await namespace.update_rule("Topic", "Sub", changed)
    assert updated == KeptRule(changed, created.created_at, updated.stamp)
    assert updated.stamp != created.stamp
    assert await namespace.get_rule("Topic", "Sub", "sql") == updated
    assert (await namespace.topic_facts("Topic"))[1:] == (1, 1, 1)
    await namespace.update_rule("Topic", "Sub", Rule("sql", FalseFilter()))
    assert (await namespace.topic_facts("Topic"))[1:] == (1, 2, 0)
    await namespace.delete_rule("Topic", "Sub", "Sql")
    assert (await namespace.get_entity("Topic")).version == version + 4
    assert [kept.rule for kept in await namespace.list_rules("Topic", "Sub")] == [ANY]
    require_whole(await kept_of(transport), 2)


@pytest.mark.slow
async def test_only_the_rule_that_was_read_is_changed(transport: Transport, namespace: Namespace) -> None:
    seen = await namespace.create_rule("Topic", "Sub", SQL)
    now = await namespace.update_rule("Topic", "Sub", Rule("Sql", CORRELATED.filter), seen=seen)
    change = namespace.update_rule("Topic", "Sub", Rule("Sql", FalseFilter()), seen=seen)
    await refused(transport, change, EntityChangedError, "'Topic/subscriptions/Sub/rules/Sql' has changed since")
    await namespace.delete_rule("Topic", "Sub", "Sql")
    gone = namespace.update_rule("Topic", "Sub", Rule("Sql", FalseFilter()), seen=now)
    await refused(transport, gone, MessagingEntityNotFoundError, "has no rule 'Sql'")
    await namespace.create_rule("Topic", "Sub", Rule("Sql", CORRELATED.filter))
    another = namespace.update_rule("Topic", "Sub", Rule("Sql", FalseFilter()), seen=now)
    await refused(transport, another, EntityChangedError, "Read it again")


async def test_every_part_of_a_rule_is_read_back(namespace: Namespace) -> None:
    await namespace.create_rule("Topic", "Sub", EVERYTHING)
    assert (await namespace.get_rule("Topic", "Sub", "every-thing_1.2")).rule == EVERYTHING
    assert (await namespace.routes("Topic")).subscriptions[0].rules == (ANY, EVERYTHING)


@pytest.mark.slow
async def test_rules_are_listed_by_name_and_subscription(namespace: Namespace) -> None:
    for name in ("Su", "Sub-2", "Sub.a", "Subs"):
        await namespace.create_subscription("Topic", name, OF_SUBSCRIPTION, rules=[Rule("other")])
    for name in ("b", "A", "a-1", "0", "B2"):
        await namespace.create_rule("Topic", "Sub", Rule(name))
    expected = ["$Default", "0", "A", "a-1", "b", "B2"]
    for limit in (1, 2, 5, 6, 1000):
        listed: list[str] = []
        while page := await namespace.list_rules("Topic", "Sub", listed[-1] if listed else "", limit):
            assert len(page) <= limit
            listed += [kept.rule.name for kept in page]
        assert listed == expected
    assert [kept.rule.name for kept in await namespace.list_rules("Topic", "Sub", "AA", 1)] == ["b"]
    assert await namespace.list_rules("Topic", "Sub", "zz\U0010ffff") == ()
    routes = await namespace.routes("Topic")
    assert [[rule.name for rule in routed.rules] for routed in routes.subscriptions] == [
        *(["other"], expected, ["other"], ["other"], ["other"])
    ]


# -- refusals ----------------------------------------------------------------------------------------------------------


async def test_a_rule_name_that_differs_only_in_case_from_another_is_taken(
    transport: Transport, namespace: Namespace
) -> None:
    text = "The subscription 'Topic/subscriptions/Sub' already has a rule '\\$DEFAULT'; .* Change it with update_rule"
    again = namespace.create_rule("Topic", "sub", Rule("$DEFAULT", SQL.filter))
    await refused(transport, again, MessagingEntityAlreadyExistsError, text)


@pytest.mark.parametrize(
    ("rule", "error", "text"),
    [
        (Rule("a b"), ValueError, "rule name 'a b'"),
        (Rule(""), ValueError, "rule name"),
        (Rule("$other"), ValueError, "rule name"),
        (Rule(5), TypeError, "rule name must be text"),  # type: ignore[arg-type]
        ("Sql", TypeError, "must be a sbredis.rules.Rule, not str"),
        (Rule("r", 5), TypeError, "int"),  # type: ignore[arg-type]
        (Rule("r", CorrelationFilter(to="x" * MAXIMUM_RULE_BYTES)), ValueError, "are stored|characters"),
    ],
)
async def test_an_invalid_rule_is_refused_before_sending(
    transport: Transport, namespace: Namespace, rule: Any, error: type[Exception], text: str
) -> None:
    before = await snapshot(transport)
    for done in (namespace.create_rule("Topic", "Sub", rule), namespace.update_rule("Topic", "Sub", rule)):
        with pytest.raises(error, match=text):
            await done
    for name in ("a b", "", "$other"):
        for also in (namespace.get_rule("Topic", "Sub", name), namespace.delete_rule("Topic", "Sub", name)):
            with pytest.raises(ValueError, match="rule name"):
                await also
    for place in (("a//b", "Sub"), ("Topic", "a/b")):
        with pytest.raises(ValueError, match="name"):
            await namespace.create_rule(*place, SQL)
    assert await snapshot(transport) == before


@pytest.mark.slow
async def test_the_number_of_filters_of_a_topic_is_limited(
    transport: Transport, namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit counts the filters of all subscriptions.

    At the limit, a filter can still be replaced by one of the same kind, and a filter that does not count can be added.
    """
    monkeypatch.setattr(rulebook_module, "LIMITS", Limits(9, 1, 1))
    await namespace.create_subscription("Topic", "Other", OF_SUBSCRIPTION, rules=[SQL, CORRELATED])
    for rule, what in ((SQL, "SQL"), (CORRELATED, "correlation")):
        text = f"The topic 'Topic' would have more than 1 rules with {what} filters"
        done = namespace.create_rule("Topic", "Sub", rule)
        await refused(transport, done, ServiceBusQuotaExceededError, text)
        done = namespace.update_rule("Topic", "Sub", Rule("$Default", rule.filter))
        await refused(transport, done, ServiceBusQuotaExceededError, text)
    await namespace.create_rule("Topic", "Sub", NONE)
    await namespace.update_rule("Topic", "Other", Rule("Sql", SqlFilter("b = 2")))
    await namespace.update_rule("Topic", "Other", Rule("Correlated", CorrelationFilter(subject="y")))
    await namespace.delete_rule("Topic", "Other", "Sql")
    await namespace.create_rule("Topic", "Sub", SQL)
    require_whole(await kept_of(transport), 2)


# -- several clients ---------------------------------------------------------------------------------------------------


async def test_only_one_concurrent_change_of_the_same_rule_succeeds(
    url: str, transport: Transport, namespace: Namespace
) -> None:
    async with await open_with_scripts(url) as another:
        clients = (namespace, await Namespace.open(another, "ns")) * 3
        done: list[Any] = await asyncio.gather(
            *(client.create_rule("Topic", "Sub", SQL) for client in clients), return_exceptions=True
        )
        assert [type(each) for each in done].count(MessagingEntityAlreadyExistsError) == 5
        done = await asyncio.gather(
            *(client.delete_rule("Topic", "Sub", "Sql") for client in clients), return_exceptions=True
        )
        assert [type(each) for each in done].count(MessagingEntityNotFoundError) == 5
        assert done.count(None) == 1
    require_whole(await kept_of(transport), 2)


# -- the stored text ---------------------------------------------------------------------------------------------------


def test_the_stored_text_of_a_rule_does_not_change() -> None:
    """Later releases must read stored rules, so a change of the text would need another layout."""
    assert encode_rule(SQL) == '{"filter":{"kind":"sql","text":"a = 1"},"name":"Sql"}'
    assert decode_rule(b"2 s stamp-stamp_ 5 " + encode_rule(SQL).encode()) == KeptRule(SQL, 5, "stamp-stamp_")
    assert encode_rule(EVERYTHING).isascii()


@pytest.mark.parametrize(
    ("rule", "kind"),
    [(ANY, "t"), (NONE, "t"), (SQL, "s"), (CORRELATED, "c"), (Rule("r", TrueFilter(), SqlAction("SET a = 1")), "t")],
)
def test_a_rule_is_counted_under_the_kind_of_its_filter(rule: Rule, kind: str) -> None:
    assert kind_of(rule) == kind


def test_the_place_of_a_rule_starts_with_its_subscription() -> None:
    assert place_of(path_of("A/b", "C"), "D") == "a/b/subscriptions/c d"


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"3 s stamp-stamp- 5 {}",
        b"2 s stamp-stamp- 5 {}",
        b"2 x stamp-stamp- 5 {}",
        b"2 s stamp-stamp 5 {}",
        b"2 s stamp-stamp- 5 []",
        b'2 s stamp-stamp- 5 {"name":"a"}',
        b'2 s stamp-stamp- 5 {"name":"a","filter":{"kind":"moon"}}',
        b'2 s stamp-stamp- 5 {"name":5,"filter":{"kind":"true"}}',
        b"2 s stamp-stamp- 5 {",
    ],
)
async def test_a_rule_of_an_unknown_form_is_reported(text: bytes) -> None:
    with pytest.raises(DataLayoutError, match=r"The rule .* cannot be read: .* install that release"):
        decode_rule(text)


async def test_a_rule_of_another_layout_is_not_changed(transport: Transport, namespace: Namespace) -> None:
    await transport.command("HSET", RULES, "topic/subscriptions/sub $default", "3 x", key=RULES)
    for done in (
        namespace.get_rule("Topic", "Sub", "$Default"),
        namespace.create_rule("Topic", "Sub", ANY),
        namespace.update_rule("Topic", "Sub", ANY),
        namespace.delete_rule("Topic", "Sub", "$Default"),
    ):
        before = await snapshot(transport)
        with pytest.raises(DataLayoutError):
            await done
        assert await snapshot(transport) == before
