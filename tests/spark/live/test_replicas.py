"""Tests of batches that read from replicas: they load no master, and may miss the last messages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from sbredis.exceptions import ServiceBusError, SparkSetupError
from sbredis.servers import LocalCluster, LocalServer, free_port
from sbredis.spark._browse import BrowseReader
from tests.spark.live.reading import query, rows_of, send
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def master(binary: str | None) -> Iterator[LocalServer]:
    """A server of its own."""
    with LocalServer(binary=binary) as server:
        yield server


@pytest.fixture
def replica(master: LocalServer, binary: str | None) -> Iterator[LocalServer]:
    """The replica of the server."""
    with LocalServer(binary=binary, config={"replicaof": f"127.0.0.1 {master.port}"}) as server:
        wait_until(lambda: "state=online" in str(master.ask("INFO", "replication")))
        yield server


def calls(servers: Iterable[Any]) -> list[int]:
    """Return how many calls of scripts that only read each server has run."""
    found = [str(each.ask("INFO", "commandstats")) for each in servers]
    return [sum(map(int, re.findall(r"cmdstat_(?:fcall|evalsha)_ro:calls=(\d+)", each))) for each in found]


def caught_up(master: Any) -> bool:
    """Return whether the replicas of a server have all its writes."""
    said = str(master.ask("INFO", "replication"))
    written = re.findall(r"master_repl_offset:(\d+)", said)
    return set(re.findall(r",offset=(\d+)", said)) == set(written)


def numbers(url: str, **options: str) -> list[int]:
    reader = BrowseReader(query(url, stream=False, queue="orders", readFrom="replica", maxTasks="2", **options))
    return sorted(int(row["body"]) for row in rows_of(reader, reader.partitions()))


def test_a_batch_reads_from_the_replica(master: LocalServer, replica: LocalServer) -> None:
    send(master.url, "orders", map(str, range(500)))
    wait_until(lambda: caught_up(master))
    assert numbers(master.url) == list(range(500))
    before = calls([replica])[0]
    assert numbers(master.url, pageMessages="10") == list(range(500))
    assert calls([replica])[0] - before >= 50


def test_a_replica_that_gets_nothing_more_is_not_read(master: LocalServer, replica: LocalServer) -> None:
    """It would give what it had long ago."""
    send(master.url, "orders", map(str, range(100)))
    wait_until(lambda: caught_up(master))
    assert numbers(master.url) == list(range(100))
    replica.ask("REPLICAOF", "127.0.0.1", free_port())
    wait_until(lambda: "connected_slaves:0" in str(master.ask("INFO", "replication")))
    with pytest.raises(SparkSetupError, match=r"readFrom=replica is not possible: .* has no replica"):
        numbers(master.url)


def test_another_replica_is_asked_if_one_does_not_answer(
    master: LocalServer, replica: LocalServer, binary: str | None
) -> None:
    send(master.url, "orders", map(str, range(100)))
    with LocalServer(binary=binary, config={"replicaof": f"127.0.0.1 {master.port}"}):
        wait_until(lambda: str(master.ask("INFO", "replication")).count("state=online") == 2)
        wait_until(lambda: caught_up(master))
        assert numbers(master.url) == list(range(100))
    assert numbers(master.url) == list(range(100))
    replica.stop()
    master.ask("CLIENT", "KILL", "TYPE", "replica")
    wait_until(lambda: "connected_slaves:0" in str(master.ask("INFO", "replication")))
    with pytest.raises(ServiceBusError):
        numbers(master.url, callTimeout="1")


def test_a_server_without_a_replica_is_refused(master: LocalServer) -> None:
    send(master.url, "orders", ["1"])
    with pytest.raises(SparkSetupError, match=r"readFrom=replica is not possible: .* has no replica"):
        numbers(master.url)


def test_a_server_in_memory_is_refused() -> None:
    send("memory://replicas", "orders", ["1"])
    with pytest.raises(SparkSetupError, match="readFrom=replica is not possible"):
        numbers("memory://replicas")


def test_a_cluster_is_read_from_its_replicas(binary: str | None) -> None:
    with LocalCluster(3, 1, binary=binary) as cluster:
        send(cluster.url, "orders", map(str, range(200)))
        wait_until(lambda: all(map(caught_up, cluster.masters)))
        replicas = [replica for master in cluster.masters for replica in cluster.replicas_of(master)]
        before = calls(replicas)
        assert numbers(cluster.url, pageMessages="5") == list(range(200))
        assert all(now > then for now, then in zip(calls(replicas), before, strict=True))
