"""The steps that make a namespace as a file declares it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import UTC, timedelta
from itertools import pairwise
from typing import Any

import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sbredis.management import CorrelationRuleFilter, FalseRuleFilter, SqlRuleAction, SqlRuleFilter, TrueRuleFilter
from sbredis.operating import (
    KINDS,
    QUEUE,
    RULE,
    SUBSCRIPTION,
    TOPIC,
    ChangePlan,
    EntityKind,
    Existing,
    Key,
    MistakesError,
    Names,
    export_text,
    make_plan,
    plan_json,
    plan_lines,
    read_declarations,
)
from sbredis.operating._exporting import json_text
from sbredis.registry import DESTINATIONS


def entity(kind: EntityKind, *names: str, **properties: Any) -> Existing:
    defaults = {name: field.default for name, field in kind.properties.fields().items()}
    return Existing(kind, names, {**defaults, **properties})


def planned(text: str, *existing: Existing, **options: Any) -> list[str]:
    return list(plan_lines(make_plan("f", read_declarations(text, "f"), existing, **options)))


SUBSCRIBED = [entity(TOPIC, "t"), entity(SUBSCRIPTION, "t", "s"), entity(RULE, "t", "s", "$Default")]
RULES = "topics: {t: {subscriptions: {s: {rules: {r: {filter: a = 1}}}}}}"

PLANS: dict[str, tuple[str, list[Existing], dict[str, Any], list[str]]] = {
    "nothing to do": ("queues: {q: {max_delivery_count: 10}}", [entity(QUEUE, "Q")], {}, ["no changes"]),
    "a new queue": (
        "queues: {q: {lock_duration: 30s, audit: true}}",
        [],
        {},
        ["+ queue q", "    lock_duration: 30s", "    audit: true", "1 change: 1 to create, 0 to update, 0 to delete"],
    ),
    "a change": (
        "queues: {q: {lock_duration: 30s, max_delivery_count: 10}}",
        [entity(QUEUE, "q", user_metadata="stays")],
        {},
        ["~ queue q", "    lock_duration: 1m -> 30s", "1 change: 0 to create, 1 to update, 0 to delete"],
    ),
    "a new subscription with rules": (
        RULES,
        [],
        {},
        [
            "+ topic t",
            "+ subscription t/subscriptions/s",
            "    rule r (filter: a = 1)",
            "2 changes: 2 to create, 0 to update, 0 to delete",
        ],
    ),
    "rules of an existing subscription": (
        RULES,
        SUBSCRIBED,
        {"prune": True},
        [
            "+ rule t/subscriptions/s/rules/r",
            "    filter: a = 1",
            "- rule t/subscriptions/s/rules/$Default",
            "2 changes: 1 to create, 0 to update, 1 to delete",
        ],
    ),
    "a value of another type in a filter": (
        "topics: {t: {subscriptions: {s: {rules: {r: {filter: {properties: {n: true}}}}}}}}",
        [*SUBSCRIBED, entity(RULE, "t", "s", "r", filter=CorrelationRuleFilter(properties={"n": 1}))],
        {},
        [
            "~ rule t/subscriptions/s/rules/r",
            "    filter: {properties: {n: 1}} -> {properties: {n: true}}",
            "1 change: 0 to create, 1 to update, 0 to delete",
        ],
    ),
    "rules that the file leaves out stay": (
        "topics: {t: {subscriptions: {s: }}}",
        SUBSCRIBED,
        {"prune": True},
        ["no changes"],
    ),
    "a neighbour and a destination come first": (
        "queues: {a: {colocate_with: b}, b: {forward_to: c}, c: }",
        [],
        {},
        [
            "+ queue c",
            "+ queue b",
            "    forward_to: c",
            "+ queue a",
            "    colocate_with: b",
            "3 changes: 3 to create, 0 to update, 0 to delete",
        ],
    ),
    "queues that name each other for dead letters": (
        "queues: {a: {forward_dead_lettered_messages_to: b}, b: {forward_dead_lettered_messages_to: a}}",
        [],
        {},
        [
            "+ queue a",
            "+ queue b",
            "    forward_dead_lettered_messages_to: a",
            "~ queue a",
            "    forward_dead_lettered_messages_to: nothing -> b",
            "3 changes: 2 to create, 1 to update, 0 to delete",
        ],
    ),
    "a destination is turned round": (
        "queues: {a: {forward_to: null}, b: {forward_to: a}}",
        [entity(QUEUE, "a", forward_to="b"), entity(QUEUE, "b")],
        {},
        [
            "~ queue a",
            "    forward_to: b -> nothing",
            "~ queue b",
            "    forward_to: nothing -> a",
            "2 changes: 0 to create, 2 to update, 0 to delete",
        ],
    ),
    "three destinations are turned round": (
        "queues: {a: {forward_to: null}, b: {forward_to: a}, c: {forward_to: b}}",
        [entity(QUEUE, "a", forward_to="b"), entity(QUEUE, "b", forward_to="c"), entity(QUEUE, "c")],
        {},
        [
            "~ queue a",
            "    forward_to: b -> nothing",
            "~ queue b",
            "    forward_to: c -> a",
            "~ queue c",
            "    forward_to: nothing -> b",
            "3 changes: 0 to create, 3 to update, 0 to delete",
        ],
    ),
    "what is not declared stays": ("queues: {q: }", [entity(QUEUE, "q"), entity(QUEUE, "x")], {}, ["no changes"]),
    "what is not declared is deleted last": (
        "queues: {q: }",
        [entity(QUEUE, "x"), *SUBSCRIBED],
        {"prune": True},
        ["+ queue q", "- topic t", "- queue x", "3 changes: 1 to create, 0 to update, 2 to delete"],
    ),
    "messages and protection spare an entity": (
        "queues: {q: }",
        [
            entity(QUEUE, "q"),
            entity(QUEUE, "full"),
            entity(QUEUE, "kept", protected=True),
            entity(TOPIC, "t"),
            entity(SUBSCRIPTION, "t", "s", protected=True),
        ],
        {"prune": True, "held": {("queue", ("full",)): 1}},
        [
            "! topic t is kept: subscription t/subscriptions/s is protected",
            "! queue full is kept: it has 1 message",
            "! queue kept is kept: it is protected",
            "no changes",
        ],
    ),
    "an entity whose messages are not known is spared": (
        "queues: {q: }",
        [entity(QUEUE, "q"), entity(QUEUE, "away")],
        {"prune": True, "held": {("queue", ("away",)): None}},
        ["! queue away is kept: some of its partitions do not answer, so it may have messages", "no changes"],
    ),
    "a spared entity spares its destinations": (
        "queues: {q: }",
        [
            entity(QUEUE, "q"),
            entity(QUEUE, "full", forward_to="Next", forward_dead_lettered_messages_to="dead"),
            entity(QUEUE, "next", forward_to="last"),
            entity(TOPIC, "last"),
            entity(QUEUE, "dead"),
            entity(QUEUE, "other", forward_to="dead"),
        ],
        {"prune": True, "held": {("queue", ("full",)): 1}},
        [
            "- queue other",
            "! queue full is kept: it has 1 message",
            "! queue next is kept: queue full forwards messages to it",
            "! queue dead is kept: queue full forwards dead letters to it",
            "! topic last is kept: queue next forwards messages to it",
            "1 change: 0 to create, 0 to update, 1 to delete",
        ],
    ),
    "a subscription of a spared topic spares its destination": (
        "queues: {q: }",
        [
            entity(QUEUE, "q"),
            *SUBSCRIBED[:1],
            entity(SUBSCRIPTION, "t", "s", forward_to="x", protected=True),
            entity(QUEUE, "x"),
        ],
        {"prune": True},
        [
            "! topic t is kept: subscription t/subscriptions/s is protected",
            "! queue x is kept: subscription t/subscriptions/s forwards messages to it",
            "no changes",
        ],
    ),
    "a destination may go if its last source is turned away": (
        "queues: {q: {forward_to: null}}",
        [entity(QUEUE, "q", forward_to="x"), entity(QUEUE, "x")],
        {"prune": True},
        ["~ queue q", "    forward_to: x -> nothing", "- queue x", "2 changes: 0 to create, 1 to update, 1 to delete"],
    ),
    "messages do not spare an entity if this is asked for": (
        "queues: {q: }",
        [entity(QUEUE, "q"), entity(QUEUE, "full"), entity(QUEUE, "kept", protected=True)],
        {"prune": True, "prune_nonempty": True, "held": {("queue", ("full",)): 1, ("queue", ("kept",)): 1}},
        ["- queue full", "! queue kept is kept: it is protected", "1 change: 0 to create, 0 to update, 1 to delete"],
    ),
}


@pytest.mark.parametrize(("text", "existing", "options", "lines"), PLANS.values(), ids=PLANS)
def test_a_plan(text: str, existing: list[Existing], options: dict[str, Any], lines: list[str]) -> None:
    assert planned(text, *existing, **options) == lines


ILLEGAL: dict[str, tuple[str, list[Existing], dict[str, Any], str]] = {
    "a fixed property": (
        "queues:\n  q:\n    requires_session: true",
        [entity(QUEUE, "q")],
        {},
        "f:3: queue q: requires_session cannot be changed: it is False, and not True",
    ),
    "another kind": ("topics: {q: }", [entity(QUEUE, "q")], {}, "f:1: topic q: there is a queue of this name"),
    "a missing destination": (
        "queues:\n  q: {forward_to: x}",
        [],
        {},
        "f:2: queue q: forward_to: there is no queue or topic 'x'",
    ),
    "a misspelt destination": (
        "queues: {q: {forward_to: orderz}}",
        [entity(QUEUE, "Orders")],
        {},
        "f:1: queue q: forward_to: there is no queue or topic 'orderz'. Did you mean 'Orders'?",
    ),
    "a destination that is deleted": (
        "queues: {q: {forward_to: x}}",
        [entity(QUEUE, "x")],
        {"prune": True},
        "f:1: queue q: forward_to: there is no queue or topic 'x' that is left",
    ),
    "a destination that the file does not name and that is deleted": (
        "queues:\n  q: {max_delivery_count: 3}",
        [entity(QUEUE, "q", forward_dead_lettered_messages_to="x"), entity(QUEUE, "x")],
        {"prune": True},
        "f:2: queue q: forward_dead_lettered_messages_to: there is no queue or topic 'x' that is left",
    ),
    "a missing neighbour": (
        "queues: {q: {colocate_with: x}}",
        [],
        {},
        "f:1: queue q: colocate_with: there is no queue or topic 'x'",
    ),
    "a partitioned neighbour": (
        "queues: {q: {colocate_with: x}, x: {enable_partitioning: true}}",
        [],
        {},
        "f:1: queue q: colocate_with: 'x' is partitioned; either both are partitioned, or neither is",
    ),
    "a neighbour that is not partitioned": (
        "queues: {q: {colocate_with: x, enable_partitioning: true}, x: {}}",
        [],
        {},
        "f:1: queue q: colocate_with: 'x' is not partitioned; either both are partitioned, or neither is",
    ),
    "a neighbour with another number of partitions": (
        "queues: {q: {colocate_with: x, enable_partitioning: true, partition_count: 8}}",
        [entity(QUEUE, "x", enable_partitioning=True, partition_count=16)],
        {},
        "f:1: queue q: colocate_with: 'x' has 16 partitions, and not 8",
    ),
    "a new neighbour with another number of partitions": (
        (
            "queues:\n  x: {enable_partitioning: true}\n"
            "  q: {partition_count: 8, colocate_with: x, enable_partitioning: true}"
        ),
        [],
        {"slots": 256},
        "f:3: queue q: colocate_with: 'x' has 16 partitions, and not 8",
    ),
    "more partitions than slots": (
        "queues: {q: {enable_partitioning: true, partition_count: 8}}",
        [],
        {"slots": 4},
        "f:1: queue q: partition_count: 8 partitions are too many: the namespace has 4 slots, and each",
    ),
    "partitions of an entity that is not partitioned": (
        "queues: {q: {partition_count: 8}}",
        [],
        {},
        "f:1: queue q: partition_count is for a partitioned queue: give enable_partitioning=True too",
    ),
    "neighbours of each other": (
        "queues:\n  q: {colocate_with: x}\n  x: {colocate_with: y}\n  y: {colocate_with: x}",
        [],
        {},
        "f:2: queue q: colocate_with: these entities name each other: q > x > y > x",
    ),
    "itself": ("queues: {q: {forward_to: q}}", [], {}, "f:1: queue q: The entity 'q' has an auto-forwarding policy"),
    "a circle": (
        "queues: {b: {forward_to: a}}",
        [entity(QUEUE, "a", forward_to="b"), entity(QUEUE, "b")],
        {},
        "f:1: queue b: forward_to='a' of 'b' would make a circle",
    ),
    "a chain that is too long": (
        "queues: {" + ", ".join(f"{one}: {{forward_to: {next_}}}" for one, next_ in pairwise("abcdef")) + ", f: }",
        [],
        {},
        "f:1: queue a: forward_to='b' of 'a' would make a chain of more than 4 hops",
    ),
}


@pytest.mark.parametrize(("text", "existing", "options", "mistake"), ILLEGAL.values(), ids=ILLEGAL)
def test_a_plan_that_is_not_legal_is_refused(
    text: str, existing: list[Existing], options: dict[str, Any], mistake: str
) -> None:
    with pytest.raises(MistakesError) as caught:
        planned(text, *existing, **options)
    assert str(caught.value).split("\n")[0].startswith(mistake)


def test_a_plan_as_json_has_the_values_before_and_after() -> None:
    text = "queues: {q: {lock_duration: 30s}}\n" + RULES
    plan = make_plan("f", read_declarations(text, "f"), [entity(QUEUE, "q")])
    assert plan_json(plan) == {
        "changes": [
            {"action": "create", "kind": "topic", "name": "t", "properties": {}},
            {
                "action": "create",
                "kind": "subscription",
                "name": "t/subscriptions/s",
                "properties": {},
                "rules": {"r": {"filter": "a = 1"}},
            },
            {
                "action": "update",
                "kind": "queue",
                "name": "q",
                "properties": {"lock_duration": {"before": "1m", "after": "30s"}},
            },
        ],
        "kept": [],
    }


def test_a_file_with_defaults_has_also_the_rule_that_a_new_subscription_has() -> None:
    """So applying it restores the rule after somebody has deleted it."""
    assert "rules" not in export_text(SUBSCRIBED)
    declared = read_declarations(export_text(SUBSCRIBED, defaults=True), "f")
    plan = make_plan("f", declared, SUBSCRIBED[:2], prune=True)
    assert [(step.action, step.path) for step in plan.steps] == [("create", "t/subscriptions/s/rules/$Default")]


# -- any namespace -----------------------------------------------------------------------------------------------------

QUEUES, TOPICS, SUBSCRIPTIONS, RULE_NAMES = ["a", "b", "C", "d/e"], ["news", "t.1"], ["all", "s1"], ["$Default", "r"]
LIMITED = st.integers(5_000, 300_000).map(lambda ms: timedelta(milliseconds=ms))
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "lock_duration": LIMITED,
    "max_delivery_count": st.integers(1, 99_999),
    "default_message_time_to_live": st.just(timedelta.max) | LIMITED,
    "user_metadata": st.none() | st.text(st.characters(codec="utf-8"), max_size=10) | st.sampled_from(["yes", "1:30"]),
    "audit": st.booleans(),
    "protected": st.booleans(),
    "requires_session": st.booleans(),
    "dead_lettering_on_filter_evaluation_exceptions": st.booleans(),
}
TEXTS = st.text(st.characters(codec="utf-8"), max_size=3)
RULE_VALUES = (
    *(st.integers(-5, 5), TEXTS, st.uuids(), st.booleans(), st.timedeltas(), st.binary(max_size=3)),
    *(st.floats(allow_nan=False, allow_infinity=False), st.decimals(-5, 5, places=2)),
    st.datetimes(timezones=st.just(UTC)),
)
PARAMETERS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries({"@x": st.one_of(RULE_VALUES)})
PROPERTY_NAMES = TEXTS.filter(bool) | st.sampled_from(["$map", "$decimal", "$x", "<<", "label"])


def compared(least: int) -> st.SearchStrategy[dict[str, Any]]:
    pairs = st.tuples(PROPERTY_NAMES, st.one_of(RULE_VALUES))
    return st.lists(pairs, min_size=least, max_size=2, unique_by=lambda pair: pair[0].lower()).map(dict)


FILTERS = (
    st.sampled_from([TrueRuleFilter(), FalseRuleFilter(), SqlRuleFilter("a = 1")])
    | PARAMETERS.map(lambda given: SqlRuleFilter("a = @x", given))
    | st.builds(CorrelationRuleFilter, label=TEXTS, properties=compared(0))
    | st.builds(CorrelationRuleFilter, to=st.none() | TEXTS, properties=compared(1))
)
ACTIONS = st.none() | st.just(SqlRuleAction("SET a = 1"))


@st.composite
def buses(draw: st.DrawFn) -> list[Existing]:
    """Entities and rules of a namespace whose destinations make no circle."""
    found: list[Existing] = []

    def add(kind: EntityKind, *names: str) -> Existing:
        if kind is RULE:
            values: dict[str, Any] = {"filter": draw(FILTERS), "action": draw(ACTIONS)}
        else:
            fields = kind.settable(new=True)
            values = {name: draw(VALUES[name]) for name in VALUES if name in fields and draw(st.booleans())}
        found.append(entity(kind, *names, **values))
        return found[-1]

    queues = draw(st.lists(st.sampled_from(QUEUES), unique=True))
    for name in queues:
        add(QUEUE, name)
    for topic in draw(st.lists(st.sampled_from(TOPICS), unique=True)):
        add(TOPIC, topic)
        for subscription in draw(st.lists(st.sampled_from(SUBSCRIPTIONS), unique=True)):
            add(SUBSCRIPTION, topic, subscription)
            for rule in draw(st.lists(st.sampled_from(RULE_NAMES), unique=True)):
                add(RULE, topic, subscription, rule)
    for number, each in enumerate(found):
        others = queues[number + 1 :] if each.kind is QUEUE else queues
        if each.kind in (QUEUE, SUBSCRIPTION) and others and not each.properties["requires_session"]:
            destination = draw(st.none() | st.sampled_from(others))
            found[number] = entity(each.kind, *each.names, **{**each.properties, DESTINATIONS[0]: destination})
    return found


def carried_out(existing: Iterable[Existing], plan: ChangePlan) -> dict[Key, Existing]:
    """Return the entities after the steps of a plan."""
    found = {each.key: each for each in existing}
    for step in plan.steps:
        key = step.kind.word, tuple(name.lower() for name in step.names)
        if step.action == "delete":
            found = {
                other: each for other, each in found.items() if other[1][: len(key[1])] != key[1] or at(other) < at(key)
            }
            continue
        assert (key in found) == (step.action == "update")
        for name in DESTINATIONS:
            if (destination := step.values.get(name)) is not None:
                assert {("queue", (destination.lower(),)), ("topic", (destination.lower(),))} & found.keys()
        before = found[key].properties if key in found else {}
        found[key] = entity(step.kind, *step.names, **{**before, **step.values})
        if step.action == "create" and step.kind is SUBSCRIPTION:
            names: Names = step.names
            default = [entity(RULE, *names, "$Default")]
            for rule in (
                default if step.rules is None else [entity(RULE, *each.names, **each.properties) for each in step.rules]
            ):
                found[rule.key] = rule
    return found


def at(key: Key) -> int:
    return next(number for number, kind in enumerate(KINDS) if kind.word == key[0])


@settings(max_examples=60)
@given(buses(), st.booleans())
def test_what_was_exported_is_no_difference(bus: list[Existing], defaults: bool) -> None:
    declared = read_declarations(export_text(bus, defaults=defaults), "f")
    assert make_plan("f", declared, bus, prune=True) == ChangePlan()
    copied = carried_out([], make_plan("f", declared, []))
    assert copied == {each.key: each for each in bus}
    assert export_text(copied.values(), defaults=defaults) == export_text(bus, defaults=defaults)
    in_json = export_text(bus, defaults=defaults, as_json=True)
    assert json.loads(in_json) == yaml.safe_load(export_text(bus, defaults=defaults))
    assert make_plan("f", read_declarations(in_json, "f"), bus, prune=True) == ChangePlan()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=20), inner, max_size=3),
)


@given(JSON)
def test_json_is_read_as_yaml_with_the_same_values(value: Any) -> None:
    text = json_text(value)
    assert json.loads(text) == value
    assert yaml.safe_load(text) == value


@settings(max_examples=60)
@given(buses(), buses(), st.booleans())
def test_a_file_that_was_applied_changes_nothing_more(bus: list[Existing], other: list[Existing], prune: bool) -> None:
    declared = read_declarations(export_text(bus, defaults=True), "f")
    try:
        plan = make_plan("f", declared, other, prune=prune)
    except MistakesError as error:
        assume(not re.search(r"cannot be changed|chain|circle|cannot be forwarded", str(error)))
        raise
    after = carried_out(other, plan)
    assert make_plan("f", declared, after.values(), prune=prune).steps == ()
    for each in bus:
        assert after[each.key].properties == each.properties
