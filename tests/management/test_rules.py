"""Tests of rules for an administrator: creating, finding, changing, listing and deleting them.

A refused call changes nothing.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.exceptions import MessagingEntityNotFoundError, Outcome, RuleSyntaxError
from sbredis.management import (
    CorrelationRuleFilter,
    FalseRuleFilter,
    RuleProperties,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)
from sbredis.registry import Namespace
from tests.management.refusals import refused
from tests.management.test_rule_properties import FILTERS
from tests.offenders import for_each

in_memory = pytest.mark.parametrize("target", ["memory"], indirect=True)
Admin = ServiceBusAdministrationClient

VALUES: dict[str, Any] = {
    "@text": "é",
    "@whole": 2**63 - 1,
    "@part": 0.1,
    "@flag": True,
    "@bytes": b"\x00\xff",
    "@time": datetime(2026, 1, 2, 3, 4, 5, 6, UTC),
    "@span": timedelta(days=3, microseconds=1),
    "@id": UUID(int=7),
}


@pytest.fixture
async def admin(admin: Admin) -> Admin:
    """The client, with a topic that has a subscription without rules."""
    await admin.create_topic("News")
    await admin.create_subscription("news", "All", rules=[])
    return admin


# -- creating and finding ----------------------------------------------------------------------------------------------


async def test_a_filter_is_read_back_as_given(admin: Admin) -> None:
    rules = []
    for number, (given, _) in enumerate(FILTERS):
        name = f"Rule{number}"
        created = await admin.create_rule("news", "all", name, filter=given)
        assert created.created_at_utc is not None
        assert abs(created.created_at_utc - datetime.now(UTC)) < timedelta(minutes=1)
        assert created == RuleProperties(name, filter=given, action=None, created_at_utc=created.created_at_utc)
        assert type(created.filter) is type(given)
        assert await admin.get_rule("NEWS", "ALL", name.lower()) == created
        rules.append(created)
    assert [rule async for rule in admin.list_rules("news", "all")] == rules


async def test_an_action_with_values_of_every_type_is_read_back_as_given(admin: Admin) -> None:
    text = "SET a = @text; SET b = @whole; SET c = @part; SET d = @flag; SET e = @time; SET sys.TimeToLive = @span"
    action = SqlRuleAction(f"{text}; SET g = @id; REMOVE h", VALUES)
    await admin.create_rule("news", "all", "red", action=action)
    found = await admin.get_rule("news", "all", "red")
    assert (found.filter, found.action) == (TrueRuleFilter(), action)
    assert found.action is not None
    assert found.action.parameters is not None
    assert {name: type(value) for name, value in found.action.parameters.items()} == {
        name: type(value) for name, value in VALUES.items()
    }


async def test_a_rule_without_a_filter_matches_every_message(admin: Admin) -> None:
    assert (await admin.create_rule("news", "all", "one")).filter == TrueRuleFilter()
    assert (await admin.create_rule("news", "all", "two", filter=None)).filter == TrueRuleFilter()  # type: ignore[arg-type]


async def test_the_default_rule_can_be_deleted_and_recreated(admin: Admin) -> None:
    await admin.create_rule("news", "all", "$Default")
    await admin.delete_rule("news", "all", "$DEFAULT")
    assert not await admin.rule_exists("news", "all", "$default")
    assert (await admin.create_rule("news", "all", "$Default", filter=FalseRuleFilter())).name == "$Default"


@pytest.mark.slow
async def test_the_error_names_the_missing_entity(admin: Admin) -> None:
    for topic, subscription, text in (
        ("news", "all", "'[Nn]ews/subscriptions/[Aa]ll' has no rule 'red'"),
        ("news", "other", "There is no subscription 'other' of a topic 'news'"),
        ("nothing", "all", "There is no subscription 'all' of a topic 'nothing'"),
    ):
        for done in (
            admin.get_rule(topic, subscription, "red"),
            admin.update_rule(topic, subscription, RuleProperties("red", filter=None, action=None)),
            admin.update_rule(topic, subscription, {"name": "red"}, filter=FalseRuleFilter()),
            admin.delete_rule(topic, subscription, "red"),
        ):
            await refused(admin, done, MessagingEntityNotFoundError, text)
    for topic, subscription in (("news", "other"), ("nothing", "all")):
        for done in (admin.create_rule(topic, subscription, "red"), anext(admin.list_rules(topic, subscription))):
            await refused(admin, done, MessagingEntityNotFoundError, f"'{subscription}' of a topic '{topic}'")
    with pytest.raises(MessagingEntityNotFoundError) as caught:
        await admin.get_rule("news", "all", "red")
    assert caught.value.entity == "news/subscriptions/all/rules/red"


# -- refusals ----------------------------------------------------------------------------------------------------------

WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"filter": SqlRuleFilter("colour = ")}, RuleSyntaxError, "line 1, column 10: found the end"),
    ({"filter": "colour = 'red'"}, TypeError, "filter must be an SqlRuleFilter, .*, not str"),
    ({"filter": CorrelationRuleFilter(properties={"a": "x" * 70_000})}, ValueError, "at most 65536 are stored"),
    ({"action": SqlRuleAction("SET a = 1;" * 33)}, ValueError, "may have 32 statements"),
]


@pytest.fixture
async def rule(admin: Admin) -> RuleProperties:
    """A rule that is called ``r``."""
    return await admin.create_rule("news", "all", "r", filter=SqlRuleFilter("a = 1"))


@in_memory
@for_each(("given", "error", "text"), WRONG)
async def test_an_invalid_rule_is_neither_created_nor_stored_by_an_update(
    admin: Admin, rule: RuleProperties, given: dict[str, Any], error: type[Exception], text: str
) -> None:
    await refused(admin, admin.create_rule("news", "all", "new", **given), error, text)
    await refused(admin, admin.update_rule("news", "all", {"name": "r", **given}), error, text)
    await refused(admin, admin.update_rule("news", "all", rule, **given), error, text)


@in_memory
async def test_a_wrong_rule_is_refused_before_connecting(where: str) -> None:
    admin = Admin(where)
    with pytest.raises(ValueError, match="subscription name 'a b'"):
        admin.list_rules("t", "a b")
    with pytest.raises(RuleSyntaxError) as caught:
        await admin.create_rule("t", "s", "r", filter=SqlRuleFilter("colour =\n= 'red'"))
    assert (caught.value.line, caught.value.column, caught.value.outcome) == (2, 1, Outcome.NEVER_SENT)
    assert caught.value.expected
    with pytest.raises(RuleSyntaxError):
        await admin.update_rule("t", "s", RuleProperties("r", action=SqlRuleAction("SET")))
    assert not admin._connection._opened
    await admin.close()


# -- changing ----------------------------------------------------------------------------------------------------------


async def test_a_changed_rule_keeps_its_creation_time(admin: Admin) -> None:
    rule = await admin.create_rule("news", "all", "Red", action=SqlRuleAction("SET a = 1"))
    rule.filter = CorrelationRuleFilter(label="red")
    await admin.update_rule("news", "all", rule)
    assert await admin.get_rule("news", "all", "red") == rule
    rule.action = None
    await admin.update_rule("news", "all", rule)
    assert await admin.get_rule("news", "all", "red") == rule


@pytest.mark.parametrize("recreated", [False, True], ids=["changed", "recreated"])
async def test_a_concurrent_change_of_another_property_is_kept(
    admin: Admin, recreated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the rule was deleted and created again meanwhile, no property of the old rule is written into the new one."""
    await admin.create_rule("news", "all", "r", filter=SqlRuleFilter("a = 1"), action=SqlRuleAction("SET old = 1"))
    namespace = admin._namespace  # pyright: ignore[reportPrivateUsage]
    update = Namespace.update_rule
    seen: list[Any] = []

    async def overtaken(*args: Any, **options: Any) -> Any:
        seen.append(options["seen"].rule.action)
        if len(seen) == 1:
            if recreated:
                await namespace.delete_rule("news", "all", "r")
                await admin.create_rule("news", "all", "r", action=SqlRuleAction("SET new = 1"))
            else:
                await admin.update_rule("news", "all", {"name": "r"}, action=SqlRuleAction("SET new = 1"))
        return await update(*args, **options)

    monkeypatch.setattr(Namespace, "update_rule", overtaken)
    await admin.update_rule("news", "all", {"name": "r"}, filter=SqlRuleFilter("a = 2"))
    rule = await admin.get_rule("news", "all", "r")
    assert (rule.filter, rule.action) == (SqlRuleFilter("a = 2"), SqlRuleAction("SET new = 1"))
    assert len(seen) == (2 if recreated else 3)


# -- listing -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@in_memory
async def test_all_rules_are_listed_even_if_they_do_not_fit_into_one_answer(admin: Admin) -> None:
    large = {"a": "x" * 60_000}
    names = [f"r{number:02}" for number in range(40)]
    for name in names:
        await admin.create_rule("news", "all", name, filter=CorrelationRuleFilter(label=name, properties=large))
    assert [rule.name async for rule in admin.list_rules("news", "all")] == names
