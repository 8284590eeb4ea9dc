"""``sbredis queue``, ``topic``, ``subscription`` and ``rule`` on a server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, TypeAlias

import pytest
from click.testing import CliRunner

from sbredis import ServiceBusClient, ServiceBusMessage
from sbredis.aio.management import ServiceBusAdministrationClient as AsyncAdministrationClient
from sbredis.cli import _invocation
from sbredis.cli._app import program
from sbredis.management import (
    QueueRuntimeProperties,
    RuleProperties,
    SubscriptionRuntimeProperties,
    TopicRuntimeProperties,
)
from sbredis.operating import KINDS, RULE, EntityKind
from sbredis.servers import LocalServer
from sbredis.sync.management import ServiceBusAdministrationClient
from tests.cli.conftest import Bus, Command
from tests.offenders import for_each

RuntimeProperties: TypeAlias = QueueRuntimeProperties | TopicRuntimeProperties | SubscriptionRuntimeProperties

QUEUES = """\
NAME    STATUS    ACTIVE  DEAD LETTERS  SCHEDULED  TRANSFERS  BYTES
orders  Active         2             0          0          0    {size}
spare   Disabled       0             0          0          0      0
"""


def test_queues_are_listed_with_their_messages(sbredis: Command, server: LocalServer) -> None:
    assert sbredis("queue", "list").err == "no queues\n"
    assert sbredis("queue", "create", "orders").out == "queue orders is created\n"
    assert sbredis("queue", "create", "spare", "--status", "disabled").code == 0
    with ServiceBusClient(server.url) as client, client.get_queue_sender("orders") as sender:
        sender.send_messages([ServiceBusMessage("a"), ServiceBusMessage("b")])
    found = sbredis("queue", "list", "--output", "json").json
    assert found[1] == {
        "name": "spare",
        "status": "Disabled",
        "active": 0,
        "dead_letters": 0,
        "scheduled": 0,
        "transfers": 0,
        "bytes": 0,
    }
    assert sbredis("queue", "list").out == QUEUES.format(size=f"{found[0]['bytes']:>3}")


def test_all_kinds_are_created_listed_shown_changed_and_deleted(sbredis: Command) -> None:
    create = {
        "queue": ["--lock-duration", "30s", "--max-size-in-megabytes", "5", "--requires-session"],
        "topic": ["--default-message-time-to-live", "P1DT2H", "--enable-partitioning", "--partition-count", "8"],
        "subscription": ["--max-delivery-count", "3", "--dead-lettering-on-message-expiration"],
        "rule": ["--filter", "price > @x", "--parameter", "x:=5", "--action", "SET a = 1"],
    }
    update = {
        "queue": (["--lock-duration", "1m30s"], {"lock_duration": "1m30s", "max_size_in_megabytes": 5}),
        "topic": (["--auto-delete-on-idle", "1h"], {"auto_delete_on_idle": "1h"}),
        "subscription": (["--user-metadata", "ours"], {"user_metadata": "ours", "max_delivery_count": 3}),
        "rule": (
            ["--match", "label=x", "--match-property", "n:=5"],
            {"filter": {"label": "x", "properties": {"n": 5}}},
        ),
    }
    for kind in KINDS:
        entity = [kind.word, "create", *kind.example]
        assert sbredis(*entity, *create[kind.word]).code == 0, kind.word
        assert sbredis(*entity).code == 1, "it exists"
        names = [each["name"] for each in sbredis(kind.word, "list", *kind.example[:-1], "-o", "json").json]
        assert kind.example[-1] in names
    queue = sbredis("queue", "show", "orders", "-o", "json").json["properties"]
    assert (queue["lock_duration"], queue["requires_session"]) == ("30s", True)
    rule = sbredis("rule", "show", *RULE.example, "-o", "json").json["properties"]
    assert rule["filter"] == {"sql": "price > @x", "parameters": {"@x": 5}}
    for kind in KINDS:
        options, after = update[kind.word]
        assert sbredis(kind.word, "update", *kind.example, *options).code == 0, kind.word
        found = sbredis(kind.word, "show", *kind.example, "-o", "json").json
        assert found["kind"] == kind.word
        assert found["properties"] | after == found["properties"]
    assert sbredis("rule", "update", *RULE.example, "--action", "").code == 0
    assert sbredis("rule", "show", *RULE.example, "-o", "json").json["properties"]["action"] is None
    for kind in reversed(KINDS):
        assert sbredis(kind.word, "delete", *kind.example, "--yes").code == 0, kind.word
        assert sbredis(kind.word, "show", *kind.example).code == 1


SHOWN = """\
rule news/subscriptions/sports/rules/urgent

properties
  filter          priority >= 8
  action          -
"""


def test_a_rule_is_shown(sbredis: Command) -> None:
    with_rule(sbredis)
    assert sbredis("rule", "list", "news", "sports").out == (
        "NAME      FILTER         ACTION\n$Default  all messages   -\nurgent    priority >= 8  -\n"
    )
    shown = sbredis("rule", "show", *RULE.example).out.splitlines(keepends=True)
    assert "".join(shown[:5]) == SHOWN


def with_rule(sbredis: Command) -> None:
    assert sbredis("topic", "create", "news").code == 0
    assert sbredis("subscription", "create", "news", "sports").code == 0
    assert sbredis("rule", "create", *RULE.example, "--filter", "priority >= 8").code == 0


def test_a_queue_is_shown_with_its_partitions_and_its_users(sbredis: Command, server: LocalServer) -> None:
    assert sbredis("queue", "create", "orders", "--requires-session").code == 0
    with ServiceBusClient(server.url) as client, client.get_queue_sender("orders") as sender:
        sender.send_messages([ServiceBusMessage("a", session_id="s"), ServiceBusMessage("b", session_id="t")])
        with client.accept_next_session("orders", max_wait_time=5) or pytest.fail("no session") as receiver:
            assert receiver.receive_messages(1, max_wait_time=5)
            found = sbredis("queue", "show", "orders", "-o", "json").json
            shown = sbredis("queue", "show", "orders").out
    assert found["messages"]["active"] == found["messages"]["locked"] == 1
    assert found["sessions"] == {"waiting": 1, "locked": 1}
    assert 0 <= found["age_of_the_oldest_message"] < 3600
    assert found["reservation"] is None
    (partition,) = found["partitions"]
    assert partition["server"] == f"127.0.0.1:{server.port}"
    assert (partition["active"], partition["locked"], partition["waiting_receivers"]) == (1, 1, 0)
    lines = shown.splitlines()
    assert lines[0] == "queue orders"
    assert "  requires session                         yes" in lines
    assert lines[-2].split() == [
        *("PARTITION", "SERVER", "ACTIVE", "LOCKED", "BYTES", "OLDEST", "WAITING", "RECEIVERS")
    ]
    assert lines[-1].split()[1:4] == [f"127.0.0.1:{server.port}", "1", "1"]


MISSING = {
    "queue": (["queue", "show", "odrers"], "Did you mean 'orders'?"),
    "topic": (["subscription", "list", "nwes"], "Did you mean 'news'?"),
    "topic of a subscription": (["subscription", "show", "nwes", "sports"], "'news/subscriptions/sports'?"),
    "subscription": (["subscription", "show", "news", "sprots"], "'news/subscriptions/sports'?"),
    "rule": (["rule", "delete", "news", "sports", "urgnet", "--yes"], "'news/subscriptions/sports/rules/urgent'?"),
    "update": (["queue", "update", "odrers", "--lock-duration", "5s"], "Did you mean 'orders'?"),
    "another case": (["queue", "show", "ODRERS"], "Did you mean 'orders'?"),
    "a subscription without its infix": (["peek", "news/sprots"], "'news/subscriptions/sports'?"),
    "the same with another topic": (["receive", "nwes/sports"], "'news/subscriptions/sports'?"),
    "a destination": (["queue", "create", "zz", "--forward-to", "odrers"], "Did you mean 'orders'?"),
    "a destination of dead letters": (
        ["queue", "update", "orders", "--forward-dead-lettered-messages-to", "nwes"],
        "Did you mean 'news'?",
    ),
    "a destination of a subscription": (
        ["subscription", "create", "news", "x", "--forward-to", "odrers"],
        "Did you mean 'orders'?",
    ),
    "a neighbour": (["queue", "create", "zz", "--colocate-with", "odrers"], "Did you mean 'orders'?"),
    "nothing like it": (["queue", "show", "zzz"], "There is no entity 'zzz' in namespace 'default'."),
    **{
        f"the entity of {' '.join(words)}": ([*words[:-1], *words[-1].split("|")], "Did you mean 'orders'?")
        for words in (
            ("send", "order|x"),
            ("receive", "order"),
            ("peek", "order"),
            ("message", "show", "order|1"),
            ("message", "delete", "order|1"),
            ("purge", "order"),
            ("dlq", "purge", "order"),
            ("dlq", "list", "order"),
            ("dlq", "redrive", "order"),
            ("move", "order|orders"),
        )
    },
}


@pytest.fixture
def entities(sbredis: Command) -> None:
    """Create a topic, its subscription, a rule, and a queue."""
    with_rule(sbredis)
    assert sbredis("queue", "create", "orders").code == 0


@pytest.mark.usefixtures("entities")
@for_each(("arguments", "hint"), [pytest.param(*each, id=name) for name, each in MISSING.items()])
def test_an_unknown_entity_is_refused_with_the_nearest_name(sbredis: Command, arguments: list[str], hint: str) -> None:
    ran = sbredis(*arguments)
    assert (ran.code, ran.out) == (1, "")
    assert hint in ran.err
    assert "ServiceBusAdministrationClient" not in ran.err


@pytest.mark.usefixtures("entities")
def test_an_unknown_entity_is_named_even_if_its_like_cannot_be_looked_for_in_time(
    sbredis: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_invocation, "_LOOKING", 0.0)
    ran = sbredis("queue", "show", "odrers")
    assert (ran.code, ran.out, ran.err) == (1, "", "sbredis: There is no entity 'odrers' in namespace 'default'.\n")


WRONG = {
    "a duration": (["queue", "create", "x", "--lock-duration", "soon"], "'soon' is not a duration"),
    "a limit": (["queue", "create", "x", "--max-delivery-count", "0"], "must be from 1 to 99999"),
    "a choice": (["topic", "create", "x", "--status", "ReceiveDisabled"], "can be set to"),
    "a name": (["queue", "create", "a/../b"], "has the segment '..'"),
    "a contradiction": (
        ["queue", "create", "x", "--enable-partitioning", "--colocate-with", "orders"],
        "which is not partitioned",
    ),
    "partitions of an unpartitioned queue": (
        ["queue", "create", "x", "--partition-count", "8"],
        "give enable_partitioning=True too",
    ),
    "too many partitions": (
        ["queue", "create", "x", "--enable-partitioning", "--partition-count", "257"],
        "must be from 1 to 256, not 257",
    ),
    "an option that is fixed": (["queue", "update", "orders", "--requires-session"], "No such option"),
    "nothing to change": (["queue", "update", "orders"], "Nothing to change"),
    "two filters": (["rule", "create", "news", "sports", "x", "--filter", "a", "--match-all"], "Give one of"),
    "a parameter without SQL": (["rule", "create", "news", "sports", "x", "--parameter", "a=1"], "needs --filter"),
    "no pair": (["rule", "create", "news", "sports", "x", "--match-property", "a"], "is not a property"),
    "no property": (["rule", "create", "news", "sports", "x", "--match", "colour=red"], "and not 'colour'"),
    "SQL": (["rule", "create", "news", "sports", "x", "--filter", "price > "], "expected a value"),
    "no terminal": (["queue", "delete", "orders"], "Give --yes"),
    "dead letters": (["send", "orders/$DeadLetterQueue", "x"], "orders/$DeadLetterQueue"),
}


@pytest.fixture
def before(entities: None, sbredis: Command) -> list[object]:
    """All entities, before a command runs."""
    del entities
    return everything(sbredis)


@for_each(("arguments", "text"), [pytest.param(*each, id=name) for name, each in WRONG.items()])
def test_a_wrong_command_is_refused_and_changes_nothing(
    sbredis: Command, before: list[object], arguments: list[str], text: str
) -> None:
    ran = sbredis(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert text in ran.err
    assert everything(sbredis) == before


def everything(sbredis: Command) -> list[object]:
    listed = (["queue"], ["topic"], ["subscription", "news"], ["rule", "news", "sports"])
    return [sbredis(kind, "list", *names, "-o", "json").json for kind, *names in listed]


def test_a_deletion_says_what_it_would_delete(sbredis: Command, server: LocalServer) -> None:
    with_rule(sbredis)
    with ServiceBusClient(server.url) as client, client.get_topic_sender("news") as sender:
        sender.send_messages(ServiceBusMessage("a"))
    assert sbredis("topic", "delete", "news", "--dry-run").out == "would delete the topic news with 1 message\n"
    assert sbredis("topic", "list", "-o", "json").json[0]["name"] == "news"
    assert sbredis("topic", "delete", "news", "--yes", "-o", "json").json == {
        "deleted": True,
        "kind": "topic",
        "name": "news",
        "messages": 1,
    }


def test_a_protected_entity_is_not_deleted(sbredis: Command) -> None:
    assert sbredis("queue", "create", "orders", "--protected").code == 0
    ran = sbredis("queue", "delete", "orders", "--yes")
    assert ran.code == 1
    assert "sbredis queue update orders --no-protected" in ran.err
    assert sbredis("queue", "update", "orders", "--no-protected").code == 0
    assert sbredis("queue", "delete", "orders", "--yes").code == 0


def test_a_topic_with_protected_subscriptions_is_not_deleted(sbredis: Command) -> None:
    with_rule(sbredis)
    assert sbredis("subscription", "create", "news", "kept", "--protected").code == 0
    before = everything(sbredis)
    for options in (("--yes",), ("--dry-run",)):
        ran = sbredis("topic", "delete", "news", *options)
        assert (ran.code, ran.out) == (1, "")
        assert ran.err == (
            "sbredis: The topic news has the protected subscription kept. To delete the topic, first run: "
            "sbredis subscription update news kept --no-protected\n"
        )
    assert sbredis("subscription", "update", "news", "sports", "--protected").code == 0
    assert "the protected subscriptions kept, sports." in sbredis("topic", "delete", "news", "--yes").err
    assert everything(sbredis) == before
    for name in ("kept", "sports"):
        assert sbredis("subscription", "update", "news", name, "--no-protected").code == 0
    assert sbredis("topic", "delete", "news", "--yes").code == 0


UNKNOWN = "an unknown number of messages (0 without those of 2 partitions, which do not answer)"


def test_a_deletion_says_that_the_number_of_messages_is_not_known(
    sbredis: Command, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_rule(sbredis)
    bus.queue("orders")
    silence(monkeypatch)
    for kind, *names in (["queue", "orders"], ["subscription", "news", "sports"]):
        path = "/subscriptions/".join(names)
        ran = sbredis(kind, "delete", *names)
        assert (ran.code, ran.out) == (2, "")
        assert f"Delete the {kind} {path} with {UNKNOWN}?" in ran.err
        assert sbredis(kind, "delete", *names, "--dry-run", "-o", "json").json["messages"] is None
    assert (
        "with an unknown number of messages (0 without those of 4 partitions"
        in sbredis("topic", "delete", "news", "--dry-run").out
    )


def silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let two partitions of each entity not answer when its messages are counted."""

    def deaf(found: RuntimeProperties) -> RuntimeProperties:
        return replace(found, unreachable_partitions=(1, 3))

    for kind in KINDS[:3]:
        get = kind.call(AsyncAdministrationClient, "get", of="_runtime_properties")
        list_ = kind.call(AsyncAdministrationClient, "list", of="_runtime_properties")

        async def counted(*arguments: object, get: Any = get) -> RuntimeProperties:
            return deaf(await get(*arguments))

        async def listed(*arguments: object, list_: Any = list_) -> AsyncIterator[RuntimeProperties]:
            async for each in list_(*arguments):
                yield deaf(each)

        monkeypatch.setattr(AsyncAdministrationClient, get.__name__, counted)
        monkeypatch.setattr(AsyncAdministrationClient, list_.__name__, listed)


@pytest.mark.parametrize("kind", KINDS[:3], ids=lambda kind: kind.word)
def test_every_property_that_can_be_set_has_an_option(kind: EntityKind) -> None:
    for verb, new in (("create", True), ("update", False)):
        text = CliRunner().invoke(program, [kind.word, verb, "--help"], terminal_width=200).output
        for name, field in kind.properties.fields().items():
            shown = f"--{name.replace('_', '-')} " in text or f"--{name.replace('_', '-')}\n" in text
            assert shown == (not field.read_only and (new or not field.fixed)), name


def test_what_the_command_creates_is_what_a_program_reads(sbredis: Command, server: LocalServer) -> None:
    with_rule(sbredis)
    with ServiceBusAdministrationClient(server.url) as administration:
        rule = administration.get_rule(*RULE.example)
    assert isinstance(rule, RuleProperties)
    assert rule.filter.sql_expression == "priority >= 8"  # type: ignore[union-attr]


def test_the_namespace_is_shown_and_limited(sbredis: Command) -> None:
    assert sbredis("queue", "create", "orders", "--max-size-in-megabytes", "10").code == 0
    assert "max entities           -" in sbredis("namespace", "show").out
    sizes = sbredis(
        "namespace", "limit", "--max-entities", "1", "--max-size-in-megabytes", "30", "--output", "json"
    ).json
    assert {name: sizes[name] for name in ("entity_count", "max_entities", "size_in_megabytes")} == {
        "entity_count": 1,
        "max_entities": 1,
        "size_in_megabytes": 10,
    }
    refused = sbredis("queue", "create", "spare")
    assert refused.code == 1
    assert "would have more than 1 entities" in refused.err
    after = sbredis("namespace", "limit", "--max-entities", "none", "--output", "json").json
    assert (after["max_entities"], after["max_size_in_megabytes"]) == (None, 30)
    assert "more than 30 MB" in sbredis("queue", "create", "spare").err


@for_each(
    ("arguments", "message"),
    [
        ((), "name a limit: --max-entities, --max-size-in-megabytes, or both"),
        (("--max-entities", "-1"), "-1 is not in the range"),
        (("--max-entities", "many"), "'many' is not a valid whole number, and not 'none'"),
    ],
)
def test_wrong_limits_of_the_namespace_are_refused(sbredis: Command, arguments: tuple[str, ...], message: str) -> None:
    found = sbredis("namespace", "limit", *arguments)
    assert found.code == 2
    assert message in found.err
    assert sbredis("namespace", "show", "--output", "json").json["max_entities"] is None
