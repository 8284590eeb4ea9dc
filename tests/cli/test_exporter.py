"""``sbredis exporter``: its measures as text and as JSON, and the files that it prints."""

from __future__ import annotations

import json
import re
import signal
from datetime import UTC, datetime, timedelta

import pytest
import yaml

from sbredis.cli import main
from sbredis.model import PartitionRuntimeProperties
from sbredis.operating import EntityFacts, Measures, json_of, prometheus_of
from tests.cli.conftest import Bus
from tests.cli.exporting import exporting, fetched, refused
from tests.waiting import wait_until

NOW = datetime(2026, 5, 1, tzinfo=UTC)
PARTS = (
    PartitionRuntimeProperties(
        number=0,
        server="h:1",
        active_message_count=3,
        locked_message_count=1,
        delayed_message_count=2,
        size_in_bytes=100,
        oldest_enqueued_at_utc=NOW - timedelta(seconds=90),
        waiting_receiver_count=2,
    ),
    PartitionRuntimeProperties(number=1, server=None, available=False),
)
MEASURES = Measures("ns", (EntityFacts(path='a"b', kind="queue", partitions=PARTS),), True, NOW, 0.25)


def test_the_text_for_prometheus_has_every_measure() -> None:
    text = prometheus_of(MEASURES, up=True)
    label = 'namespace="ns",entity="a\\"b",kind="queue"'
    for line in (
        "sbredis_up 1",
        "sbredis_maintenance 1",
        "sbredis_unreadable_slots 0",
        "sbredis_round_seconds 0.25",
        f'sbredis_messages{{{label},state="active"}} 3',
        f'sbredis_messages{{{label},state="dead_letter"}} 0',
        f"sbredis_bytes{{{label}}} 100",
        f"sbredis_oldest_message_age_seconds{{{label}}} 90.0",
        f"sbredis_waiting_receivers{{{label}}} 2",
        f'sbredis_sessions{{{label},state="waiting"}} 0',
        f'sbredis_partitions{{{label},available="yes"}} 1',
        f'sbredis_partitions{{{label},available="no"}} 1',
    ):
        assert f"{line}\n" in text
    typed = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert typed == {line.partition("{")[0].split()[0] for line in text.splitlines() if not line.startswith("#")}


def test_old_measures_are_not_shown_while_servers_do_not_answer() -> None:
    assert prometheus_of(MEASURES, up=False).splitlines()[-1] == "sbredis_up 0"
    assert prometheus_of(None, up=False).splitlines()[-1] == "sbredis_up 0"


def test_the_numbers_of_an_entity_are_json() -> None:
    assert json_of(MEASURES)['a"b'] == {
        "kind": "queue",
        "active": 3,
        "locked": 1,
        "delayed": 2,
        "deferred": 0,
        "scheduled": 0,
        "transfer": 0,
        "dead_letter": 0,
        "transfer_dead_letter": 0,
        "backlog": 6,
        "bytes": 100,
        "oldest_age_seconds": 90.0,
        "waiting_receivers": 2,
        "waiting_sessions": 0,
        "locked_sessions": 0,
        "partitions": 2,
        "available_partitions": 1,
    }


def test_the_exporter_answers_until_it_is_told_to_end(bus: Bus) -> None:
    bus.queue()
    bus.did("send", "orders", "x", "--count", "3")
    with exporting(bus.url) as (address, process):
        wait_until(lambda: "sbredis_up 1" in fetched(f"{address}/metrics"))
        assert 'entity="orders",kind="queue",state="active"} 3' in fetched(f"{address}/metrics")
        assert json.loads(fetched(f"{address}/entities/Orders"))["active"] == 3
        assert list(json.loads(fetched(f"{address}/entities"))) == ["orders"]
        assert refused(f"{address}/entities/none") == 404
        assert refused(f"{address}/") == 404
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143


def test_the_exporter_says_when_servers_do_not_answer() -> None:
    with exporting("redis://127.0.0.1:1") as (address, process):
        assert fetched(f"{address}/metrics").splitlines()[-1] == "sbredis_up 0"
        assert refused(f"{address}/entities") == 503
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130


WRONG = {
    "an address": (["--listen", "nowhere"], "must be HOST:PORT or PORT"),
    "a pause": (["--every", "0s"], "0"),
    "a duration": (["--every", "soon"], "is not a duration"),
    "a file": (["--print", "nothing"], "'nothing' is not one of"),
}


@pytest.mark.parametrize(("options", "said"), WRONG.values(), ids=WRONG)
def test_wrong_options_are_refused(options: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exporter", "--url", "redis://127.0.0.1:1", *options]) == 2
    assert said in capsys.readouterr().err


def test_the_files_for_a_start_use_only_measures_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    known = {line.split()[2] for line in prometheus_of(MEASURES, up=True).splitlines() if line.startswith("# TYPE")}
    assert main(["exporter", "--print", "dashboard"]) == 0
    dashboard = json.loads(capsys.readouterr().out)
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert main(["exporter", "--print", "alerts"]) == 0
    alerts = yaml.safe_load(capsys.readouterr().out)
    expressions += [rule["expr"] for group in alerts["groups"] for rule in group["rules"]]
    used = {name for text in expressions for name in names_in(text)}
    assert used
    assert used <= known
    assert main(["exporter", "--print", "scaled-object"]) == 0
    scaled = yaml.safe_load(capsys.readouterr().out)
    location = scaled["spec"]["triggers"][0]["metadata"]["valueLocation"]
    assert location in json_of(MEASURES)['a"b']


def test_handlers_of_the_last_messages_are_not_scaled_away(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exporter", "--print", "scaled-object"]) == 0
    location = yaml.safe_load(capsys.readouterr().out)["spec"]["triggers"][0]["metadata"]["valueLocation"]
    handled = PartitionRuntimeProperties(number=0, server="h:1", locked_message_count=1)
    measures = Measures("ns", (EntityFacts(path="orders", kind="queue", partitions=(handled,)),), True, NOW, 0.25)
    assert json_of(measures)["orders"][location] == 1


def names_in(expression: str) -> list[str]:
    return re.findall(r"sbredis_\w+", expression)
