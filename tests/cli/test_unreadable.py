"""The command on a namespace in which records cannot be read."""

from __future__ import annotations

import asyncio
import json

import pytest

from sbredis.aio import ServiceBusClient
from tests.cli.conftest import Bus
from tests.cli.exporting import exporting, fetched, refused
from tests.registry.damage import DAMAGED, UNREADABLE, Registered
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("clean")


@pytest.fixture
def clean(bus: Bus) -> None:
    for arguments in (("queue", "create", "bad"), ("queue", "create", "good"), ("topic", "create", "news")):
        bus.did(*arguments)
    bus.did("subscription", "create", "news", "bad")
    bus.did("subscription", "create", "news", "good")


def spoil(bus: Bus, path: str, damage: str, rule: str | None = None) -> None:
    async def spoilt() -> None:
        async with ServiceBusClient(bus.url) as client:
            await Registered(client._connection.transport, path, rule=rule).spoil(UNREADABLE[damage])

    asyncio.run(spoilt())


@pytest.mark.parametrize("damage", ["missing", "nested deeply", "a newer layout"])
def test_lists_leave_out_what_cannot_be_read_and_say_so(bus: Bus, damage: str) -> None:
    spoil(bus, "bad", damage)
    spoil(bus, "news/subscriptions/bad", damage)
    for arguments, left, path in (
        (("queue", "list"), ["good"], "bad"),
        (("topic", "list"), ["news"], "bad"),
        (("subscription", "list", "news"), ["good"], "news/subscriptions/bad"),
        (("top", "--once"), ["good", "news", "news/subscriptions/good"], "bad"),
    ):
        ran = bus.run(*arguments, "--output", "json")
        assert ran.code == 0, ran.err
        names = [row.get("name", row.get("entity")) for row in (ran.json if isinstance(ran.json, list) else ran.rows)]
        assert names == left
        assert ran.err.count(f"The record of '{path}' cannot be read") == 1


def spoil_bucket(bus: Bus) -> None:
    """Make the bucket of the queue `bad` unreadable."""

    async def spoilt() -> None:
        async with ServiceBusClient(bus.url) as client:
            await client._connection.open(asyncio.get_running_loop().time() + 60)
            bucket = client._connection.namespace._steps.registry.keys("bad")[0]
            await client._connection.transport.command("HSET", bucket, "layout", "3", key=bucket)

    asyncio.run(spoilt())


def test_a_list_without_a_part_of_the_registry_prints_the_rest_and_fails(bus: Bus) -> None:
    spoil_bucket(bus)
    ran = bus.run("queue", "list", "--output", "json")
    assert ran.code != 0
    assert [row["name"] for row in ran.json] == ["good"]
    assert "The list lacks the entities whose names belong to 1 slot of the namespace" in ran.err
    assert "has data layout 3" in ran.err
    shown = bus.run("namespace", "show", "--output", "json")
    assert shown.code == 0
    assert shown.json["availability_status"] == "Limited"
    assert len(shown.json["unreachable_slots"]) == 1


LACKS = "lacks the entities whose names belong to 1 slot of the namespace"


def test_tools_show_what_there_is_without_a_part_of_the_registry(bus: Bus) -> None:
    spoil_bucket(bus)
    ran = bus.run("top", "--once", "--output", "json")
    assert ran.code == 0, ran.err
    assert [row["entity"] for row in ran.json] == ["good", "news", "news/subscriptions/bad", "news/subscriptions/good"]
    assert LACKS in ran.err
    ran = bus.run("doctor", "--output", "json")
    assert ran.code == 4
    (found,) = (each for each in ran.json["findings"] if each["subject"] == "registry")
    assert (found["severity"], found["advice"]) == ("critical", "Make these slots readable, and examine again.")
    assert LACKS in found["problem"]
    with exporting(bus.url) as (address, _):
        wait_until(lambda: "sbredis_up 1" in fetched(f"{address}/metrics"))
        text = fetched(f"{address}/metrics")
        assert "sbredis_unreadable_slots 1\n" in text
        assert 'entity="good"' in text
        assert refused(f"{address}/entities/bad") == 503, "it may exist"
        assert refused(f"{address}/entities/none") == 503
        assert json.loads(fetched(f"{address}/entities/good"))["active"] == 0


def test_commands_that_must_know_all_entities_change_nothing_without_a_part_of_the_registry(bus: Bus) -> None:
    spoil_bucket(bus)
    for arguments in (("export",), ("apply", "-", "--prune", "--yes")):
        ran = bus.run(*arguments, stdin=b"queues: {new: {}}")
        assert ran.code == 5
        assert LACKS in ran.err
    assert [row["name"] for row in bus.run("queue", "list", "--output", "json").json] == ["good"]


@pytest.mark.parametrize("damage", ["missing", "not JSON"])
def test_the_doctor_says_what_to_do_about_a_damaged_record(bus: Bus, damage: str) -> None:
    spoil(bus, "bad", damage)
    spoil(bus, "news/subscriptions/bad", damage)
    found = {each["subject"]: each for each in bus.run("doctor", "--output", "json").json["findings"]}
    assert found["bad"]["severity"] == "critical"
    assert "its record cannot be read" in found["bad"]["problem"]
    assert "sbredis queue delete bad or sbredis topic delete bad" in found["bad"]["advice"]
    assert "sbredis subscription delete news bad" in found["news/subscriptions/bad"]["advice"]


@pytest.mark.any_form("sbredis upgrade loads no library by its calls, so it sends single scripts")
def test_the_doctor_and_the_upgrade_name_a_newer_layout(bus: Bus) -> None:
    spoil(bus, "bad", "a newer layout")
    found = {each["subject"]: each for each in bus.run("doctor", "--output", "json").json["findings"]}
    assert found["bad"]["severity"] == "warning"
    assert "data layout '3'" in found["bad"]["problem"]
    assert "Install a release" in found["bad"]["advice"]
    ran = bus.run("upgrade", "--plan")
    assert ran.code == 1
    assert "bad cannot be read: it has data layout '3'" in ran.err
    assert "good" in ran.out


def test_the_export_says_what_it_lacks(bus: Bus) -> None:
    spoil(bus, "bad", "no fields")
    ran = bus.run("export", "--output", "json")
    assert ran.code == 1
    assert list(ran.json["queues"]) == ["good"]
    assert "bad is not in the file, because its record cannot be read" in ran.err


def test_a_file_that_declares_what_cannot_be_read_changes_nothing(bus: Bus) -> None:
    spoil(bus, "bad", "no fields")
    ran = bus.run("apply", "-", stdin=b"queues: {bad: {}, new: {}}")
    assert ran.code == 1
    assert "bad cannot be created or updated" in ran.err
    assert bus.run("queue", "show", "new").code == 1
    bus.did("apply", "-", "--prune", "--yes", stdin=b"queues: {new: {}}")
    assert "The record of 'bad' cannot be read" in bus.run("queue", "list").err, "it is not pruned either"


@pytest.mark.parametrize("damage", list(DAMAGED))
def test_what_is_damaged_is_deleted_and_created_again(bus: Bus, damage: str) -> None:
    spoil(bus, "bad", damage)
    spoil(bus, "news/subscriptions/bad", damage)
    for kind, names in (("queue", ["bad"]), ("subscription", ["news", "bad"])):
        tried = bus.run(kind, "delete", *names, "--dry-run")
        assert tried.code == 0
        assert "an unknown number of messages, because its record is damaged" in tried.out
        assert "cannot be read" in bus.run(kind, "show", *names).err
        bus.did(kind, "delete", *names, "--yes")
        bus.did(kind, "create", *names)
        assert bus.run(kind, "show", *names).code == 0
    assert bus.did("queue", "list", "--output", "json").err == ""


def test_what_a_newer_release_has_written_is_not_deleted(bus: Bus) -> None:
    spoil(bus, "bad", "a newer layout")
    ran = bus.run("queue", "delete", "bad", "--yes")
    assert ran.code == 1
    assert "install that release" in ran.err
    assert "The record of 'bad' cannot be read" in bus.run("queue", "list").err


def test_a_damaged_rule_is_deleted(bus: Bus) -> None:
    spoil(bus, "news/subscriptions/bad", "not JSON", rule="$Default")
    found = {each["subject"]: each for each in bus.run("doctor", "--output", "json").json["findings"]}
    assert "sbredis rule delete news bad '$default'" in found["news/subscriptions/bad/rules/$default"]["advice"]
    bus.did("rule", "delete", "news", "bad", "$Default", "--yes")
    assert bus.did("rule", "list", "news", "bad", "--output", "json").json == []
