# pyright: reportPrivateUsage=false
"""``sbredis apply`` and ``sbredis export`` on a server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from sbredis import ServiceBusMessage
from sbredis.aio import ServiceBusClient
from sbredis.cli import _apply as applying
from sbredis.operating import PlanStep, make_plan, read_declarations
from tests.cli.conftest import Bus, Command
from tests.cli.test_entities import everything, silence
from tests.offenders import for_each

FILE = """\
queues:
  orders:
    lock_duration: 30s
    forward_dead_lettered_messages_to: letters
  letters:
    protected: true
topics:
  news:
    subscriptions:
      sports:
        rules:
          red: {filter: {label: red, properties: {n: 5}}}
"""

PLANNED = """\
+ queue letters
    protected: true
+ queue orders
    lock_duration: 30s
    forward_dead_lettered_messages_to: letters
+ topic news
+ subscription news/subscriptions/sports
    rule red (filter: {label: red, properties: {n: 5}})
4 changes: 4 to create, 0 to update, 0 to delete
"""

EXPORTED = """\
# Written by 'sbredis export'. 'sbredis apply' creates or updates what this file declares.
queues:
  letters:
    protected: true
  orders:
    lock_duration: 30s
    forward_dead_lettered_messages_to: letters
topics:
  news:
    subscriptions:
      sports:
        rules:
          red:
            filter:
              label: red
              properties:
                n: 5
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "bus.yaml"
    path.write_text(FILE, "utf-8")
    return path


def test_a_file_is_planned_applied_and_exported(sbredis: Command, file: Path, tmp_path: Path) -> None:
    assert sbredis("apply", str(file), "--plan") == (3, PLANNED, "")
    assert sbredis("queue", "list", "-o", "json").json == [], "a plan changes nothing"
    assert sbredis("apply", str(file)) == (0, PLANNED + "applied 4 changes\n", "")
    assert sbredis("apply", str(file)) == (0, "no changes\n", "")
    assert sbredis("export") == (0, EXPORTED, "")
    exported = tmp_path / "exported.yaml"
    assert sbredis("export", "--file", str(exported), "--defaults").out == f"{exported}: 4 entities\n"
    assert sbredis("apply", str(exported), "--plan", "--prune") == (0, "no changes\n", "")
    assert sbredis("queue", "show", "orders", "-o", "json").json["properties"]["lock_duration"] == "30s"
    assert [each["name"] for each in sbredis("rule", "list", "news", "sports", "-o", "json").json] == ["red"]


def test_every_rule_that_can_be_created_is_exported_and_is_then_no_difference(sbredis: Command) -> None:
    assert sbredis("topic", "create", "news").code == 0
    assert sbredis("subscription", "create", "news", "all").code == 0
    for name, *options in (
        ("empty", "--match", "label="),
        ("one", "--match", "to=x", "--match", "label="),
        ("duration", "--filter", "age > @x", "--parameter", 'x:={"$duration": "1h"}'),
        ("dollar", "--match-property", "$decimal=1.5", "--match-property", 'at:={"$decimal": "1.5"}'),
        ("number", "--match-property", "n:=1"),
    ):
        assert sbredis("rule", "create", "news", "all", name, *options).code == 0
    text = sbredis("export").out
    assert sbredis("apply", "-", "--plan", "--prune", stdin=text.encode()) == (0, "no changes\n", "")
    assert sbredis("rule", "show", "news", "all", "duration", "-o", "json").json["properties"]["filter"] == {
        "sql": "age > @x",
        "parameters": {"@x": {"$duration": "3600s"}},
    }
    assert "label = ''" in sbredis("rule", "list", "news", "all").out
    changed = text.replace("n: 1\n", "n: true\n").encode()
    assert sbredis("apply", "-", stdin=changed).out.endswith("applied 1 change\n")
    assert sbredis("apply", "-", stdin=changed).out == "no changes\n"
    assert "n = True" in sbredis("rule", "list", "news", "all").out


def test_a_file_comes_from_stdin_and_the_result_is_json(sbredis: Command) -> None:
    ran = sbredis("apply", "-", "-o", "json", stdin=b"queues: {q: {max_delivery_count: 3}}")
    step = {
        "action": "create",
        "kind": "queue",
        "name": "q",
        "properties": {"max_delivery_count": {"before": 10, "after": 3}},
    }
    assert ran.json == {"changes": [step], "kept": [], "applied": 1}
    ran = sbredis("apply", "-", "-o", "json", "--plan", stdin=b"queues: {q: {max_delivery_count: 4}}")
    assert (ran.code, ran.json["applied"]) == (3, 0)
    assert ran.json["changes"][0]["properties"] == {"max_delivery_count": {"before": 3, "after": 4}}


def test_pruning_spares_messages_and_protected_entities(sbredis: Command, bus: Bus) -> None:
    for name in ("empty", "full", "kept"):
        bus.queue(name, protected=name == "kept")
    bus.did("send", "full", "hello")
    declaration = b"queues: {q: }"
    ran = sbredis("apply", "-", "--prune", stdin=declaration)
    assert (ran.code, "Give --yes" in ran.err) == (2, True)
    assert len(sbredis("queue", "list", "-o", "json").json) == 3, "nothing is changed without an answer"
    ran = sbredis("apply", "-", "--prune", "--yes", stdin=declaration)
    assert "! queue full is kept: it has 1 message\n" in ran.out
    assert [each["name"] for each in sbredis("queue", "list", "-o", "json").json] == ["full", "kept", "q"]
    assert sbredis("apply", "-", "--prune", "--prune-nonempty", "--yes", stdin=declaration).code == 0
    assert [each["name"] for each in sbredis("queue", "list", "-o", "json").json] == ["kept", "q"]


def test_pruning_spares_entities_whose_messages_are_not_known(
    sbredis: Command, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus.queue("away")
    silence(monkeypatch)
    ran = sbredis("apply", "-", "--prune", "--yes", stdin=b"queues: {q: }")
    assert "! queue away is kept: some of its partitions do not answer, so it may have messages\n" in ran.out
    assert [each["name"] for each in sbredis("queue", "list", "-o", "json").json] == ["away", "q"]


def test_a_queue_that_gets_messages_after_the_plan_is_not_deleted(
    sbredis: Command, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus.queue("empty")
    carry_out = applying._carry_out

    async def send_before(administration: Any, plan: Any, **options: Any) -> None:
        async with ServiceBusClient(bus.url) as client, client.get_queue_sender("empty") as sender:
            await sender.send_messages(ServiceBusMessage("x"))
        await carry_out(administration, plan, **options)

    monkeypatch.setattr(applying, "_carry_out", send_before)
    ran = sbredis("apply", "-", "--prune", "--yes", stdin=b"queues: {q: }")
    assert ran.code == 1
    assert "queue empty was empty when the plan was made, and has now 1 message, so it was not deleted" in ran.err
    assert bus.bodies("empty") == ["x"]


TYPED = [
    (1, "old-0\n", 0),
    (1, "delete 1\n", 1),
    (2, "delete 2\n", 0),
    (2, "delete 3\n", 1),
    (2, "old-0\n", 1),
    (2, "prod\n", 1),
]


@pytest.mark.parametrize(("count", "typed", "code"), TYPED)
def test_in_a_protected_context_the_name_or_the_number_of_what_is_deleted_is_typed(
    sbredis: Command, bus: Bus, file: Path, *, count: int, typed: str, code: int
) -> None:
    assert sbredis("context", "add", "prod", bus.url, "--protected").code == 0
    names = [f"old-{number}" for number in range(count)]
    for name in names:
        bus.queue(name)
    ran = bus.typed(typed, "apply", str(file), "--prune", "--yes", "--context", "prod")
    assert ran.code == code
    assert f"Type {'old-0' if count == 1 else f'delete {count}'!r} to go on" in ran.err
    left = [each["name"] for each in sbredis("queue", "list", "-o", "json").json]
    assert left == (names if code else ["letters", "orders"])


WRONG = {
    "a mistake": (b"queues:\n  new:\n  q: {lock_duration: soon}", "stdin:3: 'soon' is not a duration"),
    "SQL": (b"topics: {t: {subscriptions: {s: {rules: {r: {filter: 'a >'}}}}}}", "stdin:1: filter: line 1, column 4"),
    "no YAML": (b"queues: [", "stdin:1: this is not YAML"),
    "a fixed property": (
        b"queues:\n  new:\n  orders: {requires_session: true}",
        "stdin:3: queue orders: requires_session cannot be changed: it is False, and not True",
    ),
    "no destination": (b"queues:\n  new: {forward_to: nobody}", "stdin:2: queue new: forward_to: there is no queue"),
    "no text": (b"\xff\xfe", "is not text in UTF-8"),
}


@pytest.fixture
def entities(bus: Bus) -> None:
    """Create a queue, a topic, and its subscription."""
    bus.queue("orders")
    bus.administration(lambda administration: administration.create_topic("news"))
    bus.administration(lambda administration: administration.create_subscription("news", "sports"))


@pytest.mark.usefixtures("entities")
@for_each(("declaration", "text"), [pytest.param(*each, id=name) for name, each in WRONG.items()])
def test_a_wrong_file_is_refused_with_its_line_and_changes_nothing(
    sbredis: Command, declaration: bytes, text: str
) -> None:
    before = everything(sbredis)
    ran = sbredis("apply", "-", stdin=declaration)
    assert (ran.code, ran.out) == (2, "")
    assert text in ran.err
    assert everything(sbredis) == before


def test_a_missing_file_and_a_contradiction_are_refused(sbredis: Command, tmp_path: Path) -> None:
    assert sbredis("apply", str(tmp_path / "none.yaml")).code == 2
    assert sbredis("apply", "-", "--prune-nonempty", stdin=b"queues: {q: }").code == 2
    assert sbredis("export", "--file", str(tmp_path / "no" / "such")).code == 2


async def test_an_interruption_ends_the_work_between_two_steps(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begun, may_end, done = asyncio.Event(), asyncio.Event(), list[str]()

    async def do(_: object, step: PlanStep) -> None:
        begun.set()
        await may_end.wait()
        done.append(step.path)

    monkeypatch.setattr(applying, "_do", do)
    plan = make_plan("f", read_declarations("queues: {a: , b: }", "f"), [])
    work = asyncio.ensure_future(applying._carry_out(cast("Any", None), plan, sparing=True))
    await begun.wait()
    work.cancel()
    await asyncio.wait({work}, timeout=0)
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert done == ["a"]
    assert capsys.readouterr().err == "interrupted: applied 1 of 2 changes\n"
