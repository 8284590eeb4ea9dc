"""What a file declares, and how its mistakes are reported."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbredis.management import CorrelationRuleFilter, EntityStatus, SqlRuleAction, SqlRuleFilter, TrueRuleFilter
from sbredis.operating import DeclaredEntity, MistakesError, read_declarations

FILE = """\
x-short: &short
  lock_duration: 30s
  max_delivery_count: 5
queues:
  orders:
    <<: *short
    max_delivery_count: 7
    status: disabled
  "123": {forward_to: orders}
  empty:
topics:
  news:
    default_message_time_to_live: P1DT2H
    subscriptions:
      all:
      sports:
        auto_delete_on_idle: none
        rules:
          red:
            filter:
              label: red
              properties: {n: 5, at: {$decimal: "1.5"}}
          dear:
            filter: price > 5
            action: {sql: SET a = @x, parameters: {"@x": 1}}
          rest: {filter: true}
"""


def by_path(declared: list[DeclaredEntity]) -> dict[str, dict[str, Any]]:
    return {f"{each.kind.word} {each.path}": dict(each.properties) for each in declared}


def test_a_file_declares_entities_and_rules() -> None:
    declared = read_declarations(FILE, "bus.yaml")
    found = by_path(declared)
    assert found["queue orders"] == {
        "lock_duration": timedelta(seconds=30),
        "max_delivery_count": 7,
        "status": EntityStatus.DISABLED,
    }
    assert found["queue 123"] == {"forward_to": "orders"}
    assert found["queue empty"] == {}
    assert found["topic news"] == {"default_message_time_to_live": timedelta(days=1, hours=2)}
    assert found["subscription news/subscriptions/sports"] == {"auto_delete_on_idle": timedelta.max}
    rules = {path.rpartition("/")[2]: rule for path, rule in found.items() if path.startswith("rule")}
    assert isinstance(rules["red"]["filter"], CorrelationRuleFilter)
    assert rules["dear"] == {"filter": SqlRuleFilter("price > 5"), "action": SqlRuleAction("SET a = @x", {"@x": 1})}
    assert rules["rest"] == {"filter": TrueRuleFilter()}
    assert [each.names[-1] for each in declared if each.with_rules] == ["sports"]
    assert next(each.line_of("max_delivery_count") for each in declared if each.path == "orders") == 7


MISTAKES: dict[str, tuple[str, list[str]]] = {
    "an unknown key": (
        "queues:\n  q: {lock_duratoin: 5s}",
        ["bus.yaml:2: a queue has no 'lock_duratoin'. Did you mean"],
    ),
    "an unknown section": ("queue:\n  q:", ["bus.yaml:1: a file has no 'queue'. Did you mean 'queues'?"]),
    "a property of another kind": (
        "topics:\n  t: {lock_duration: 5s}",
        ["bus.yaml:2: a topic has no 'lock_duration'."],
    ),
    "a wrong type": (
        "queues:\n  q:\n    max_delivery_count: many",
        ["bus.yaml:3: max_delivery_count must be a whole number"],
    ),
    "a number for a duration": ("queues:\n  q: {lock_duration: 30}", ["bus.yaml:2: lock_duration must be a duration"]),
    "a wrong duration": ("queues:\n  q: {lock_duration: soon}", ["bus.yaml:2: 'soon' is not a duration"]),
    "beyond a limit": ("queues:\n  q: {max_delivery_count: 0}", ["bus.yaml:2: max_delivery_count must be from 1"]),
    "a read-only property": ("queues:\n  q: {availability_status: Limited}", ["bus.yaml:2: a queue has no"]),
    "a wrong name": ("queues:\n  a/../b:", ["bus.yaml:2: entity name 'a/../b' has the segment"]),
    "twice": ("queues:\n  q:\n  q:", ["bus.yaml:3: 'q' is given twice"]),
    "twice in other letters": (
        "queues:\n  q:\ntopics:\n  Q:",
        ["bus.yaml:4: the topic Q is declared twice, first in line 2"],
    ),
    "a list": ("queues: [q]", ["bus.yaml:1: queues must be a mapping of names"]),
    "SQL": (
        "topics:\n  t:\n    subscriptions:\n      s:\n        rules:\n          r: {filter: 'price > '}",
        ["bus.yaml:6: filter: line 1, column 9: found the end", "  price > ", "          ^"],
    ),
    "a key of a filter": (
        "topics: {t: {subscriptions: {s: {rules: {r: {filter: {tag: x}}}}}}}",
        ["bus.yaml:1: a filter has no 'tag'"],
    ),
    "two mistakes": (
        "queues:\n  a: {x: 1}\n  b: {y: 1}",
        ["bus.yaml:2: a queue has no 'x'", "bus.yaml:3: a queue has no 'y'"],
    ),
    "no YAML": ("queues:\n  a: {x: 1\n  b: 2", ["bus.yaml:3: this is not YAML"]),
    "a tab": ("queues:\n\ta:", ["bus.yaml:2: this is not YAML: found character '\\t'"]),
    "a strange character": ("queues: \x00", ["bus.yaml:1: this is not YAML"]),
    "two documents": ("queues:\n---\nqueues:", ["bus.yaml:2: this is not YAML: but found another document"]),
    "an unknown alias": ("queues: *nothing", ["bus.yaml:1: this is not YAML: found undefined alias"]),
    "an unknown type": (
        "queues: {q: {user_metadata: !!binary aaaa}}",
        ["bus.yaml:1: tag:yaml.org,2002:binary is not a type"],
    ),
    "a circle of aliases": ("queues: {q: {authorization_rules: &a [*a]}}", ["bus.yaml:1: the file contains itself"]),
    "a circle of merges": ("queues: {q: &a {<<: *a}}", ["bus.yaml:1: the file contains itself"]),
    "too deep": (f"queues: {{q: {'[' * 70}{']' * 70}}}", ["bus.yaml:1: the file is nested too deeply"]),
    "much too deep": ("[" * 100_000, ["bus.yaml:1: the file is nested too deeply"]),
    "too deep by aliases": (
        "\n".join(
            [
                "x-0: &a0 [" + "[" * 20 + "]" * 20 + "]",
                *(f"x-{at}: &a{at} {'[' * 20}*a{at - 1}{']' * 20}" for at in range(1, 5)),
            ]
        ),
        ["bus.yaml:1: the file is nested too deeply"],
    ),
    "aliases of aliases": (
        "\n".join(["x-0: &a0 {k: v}", *(f"x-{at}: &a{at} [{f'*a{at - 1}, ' * 9}]" for at in range(1, 10))])
        + "\nqueues: {q: {authorization_rules: *a9}}",
        ["bus.yaml:1: the aliases of the file stand for"],
    ),
    "merges of merges": (
        "\n".join(
            [
                "x-0: &a0 {lock_duration: 1m}",
                *(f"x-{at}: &a{at} {{<<: [{f'*a{at - 1}, ' * 9}]}}" for at in range(1, 10)),
            ]
        )
        + "\nqueues: {q: *a9}",
        ["bus.yaml:1: the aliases of the file stand for"],
    ),
    "too long": ("# " + "x" * 16_000_000, ["bus.yaml:1: the file is too long"]),
    "nothing": ("# nothing", ["bus.yaml:1: the file is empty"]),
    "text": ("hello", ["bus.yaml:1: the file must be a mapping"]),
}


@pytest.mark.parametrize(("text", "texts"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_reported_with_its_line(text: str, texts: list[str]) -> None:
    with pytest.raises(MistakesError) as caught:
        read_declarations(text, "bus.yaml")
    lines = str(caught.value).split("\n")
    assert len(lines) == len(texts), lines
    for line, expected in zip(lines, texts, strict=True):
        assert expected in line


@given(st.text(alphabet="queustopic: {}[]&*-\n#'\"!<|>x1", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found = read_declarations(text, "bus.yaml")
    except MistakesError:
        return
    assert isinstance(found, list)


EMULATOR: dict[str, Any] = {
    "UserConfig": {
        "Namespaces": [
            {
                "Name": "sbemulatorns",
                "Queues": [
                    {
                        "Name": "queue.1",
                        "Properties": {
                            "DeadLetteringOnMessageExpiration": True,
                            "DefaultMessageTimeToLive": "PT1H",
                            "DuplicateDetectionHistoryTimeWindow": "PT20S",
                            "ForwardDeadLetteredMessagesTo": "",
                            "ForwardTo": "",
                            "LockDuration": "PT1M",
                            "MaxDeliveryCount": 3,
                            "RequiresDuplicateDetection": False,
                            "RequiresSession": False,
                        },
                    }
                ],
                "Topics": [
                    {
                        "Name": "topic.1",
                        "Properties": {"DefaultMessageTimeToLive": "P10675199DT2H48M5.4775807S"},
                        "Subscriptions": [
                            {"Name": "all", "Rules": []},
                            {
                                "Name": "some",
                                "Properties": {"MaxDeliveryCount": 10},
                                "Rules": [
                                    {
                                        "Name": "compare",
                                        "Properties": {
                                            "FilterType": "Correlation",
                                            "CorrelationFilter": {
                                                "ContentType": "application/json",
                                                "ReplyToSessionId": "s",
                                                "Properties": {"Prop1": "value1"},
                                            },
                                        },
                                    },
                                    {
                                        "Name": "sql",
                                        "Properties": {
                                            "FilterType": "Sql",
                                            "SqlFilter": {"SqlExpression": "sys.MessageId = '1'"},
                                            "Action": {"SqlExpression": "SET Prop3 = 'value3'"},
                                        },
                                    },
                                ],
                            },
                        ],
                    }
                ],
            }
        ],
        "Logging": {"Type": "File"},
    }
}


def test_the_configuration_of_the_emulator_is_read() -> None:
    declared = read_declarations(json.dumps(EMULATOR, indent=2), "Config.json", "default")
    found = by_path(declared)
    assert found["queue queue.1"] == {
        "dead_lettering_on_message_expiration": True,
        "default_message_time_to_live": timedelta(hours=1),
        "duplicate_detection_history_time_window": timedelta(seconds=20),
        "forward_dead_lettered_messages_to": None,
        "forward_to": None,
        "lock_duration": timedelta(minutes=1),
        "max_delivery_count": 3,
        "requires_duplicate_detection": False,
        "requires_session": False,
    }
    assert found["topic topic.1"] == {"default_message_time_to_live": timedelta.max}
    some = "topic.1/subscriptions/some"
    assert found[f"rule {some}/rules/compare"] == {
        "filter": CorrelationRuleFilter(
            content_type="application/json", reply_to_session_id="s", properties={"Prop1": "value1"}
        )
    }
    assert found[f"rule {some}/rules/sql"] == {
        "filter": SqlRuleFilter("sys.MessageId = '1'"),
        "action": SqlRuleAction("SET Prop3 = 'value3'"),
    }
    assert [each.path for each in declared if each.with_rules] == [some]


def test_a_namespace_of_the_emulator_is_chosen_by_its_name() -> None:
    namespaces = [{"Name": name, "Queues": [{"Name": f"queue-{name}"}]} for name in ("one", "two")]
    text = json.dumps({"UserConfig": {"Namespaces": namespaces}})
    assert list(by_path(read_declarations(text, "f", "Two"))) == ["queue queue-two"]
    with pytest.raises(MistakesError, match=r"f:1: choose one of the namespaces with --namespace: one, two"):
        read_declarations(text, "f", None)


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({}, "UserConfig has no Namespaces"),
        ({"Namespaces": {}}, "Namespaces must be a list"),
        ({"Namespaces": [{"Name": "a", "Queues": [{}]}]}, "a queue has no Name"),
        (
            {"Namespaces": [{"Name": "a", "Queues": [{"Name": "q", "Properties": {"Lock": 1}}]}]},
            "a queue has no 'lock'",
        ),
    ],
)
def test_a_mistake_in_the_configuration_of_the_emulator_is_reported(config: Any, text: str) -> None:
    with pytest.raises(MistakesError) as caught:
        read_declarations(json.dumps({"UserConfig": config}), "f")
    assert str(caught.value).startswith(f"f:1: {text}")
