"""The rules of ``sbredis doctor``: each fact with the finding that it causes, and healthy facts with none."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sbredis.aio import ConnectionReport, ServerReport
from sbredis.exceptions import (
    ServerUnsuitableError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusServerBusyError,
)
from sbredis.model import PartitionRuntimeProperties, ReservationStatus
from sbredis.operating import (
    EntityFacts,
    EntitySlots,
    Finding,
    Severity,
    findings_of_entities,
    findings_of_servers,
    findings_of_transaction,
    form_of,
    gathered,
    nodes_in,
)
from sbredis.transport import Endpoint, ServerFacts, Target

GIGABYTE = 2**30
FACTS = ServerFacts(
    Endpoint("h", 1), product="valkey", version="9.1.2", append_only=True, append_fsync="always", connected_replicas=2
)
INFO = {"used_memory": str(GIGABYTE), "maxmemory": str(8 * GIGABYTE), "total_system_memory": str(16 * GIGABYTE)}
HEALTHY = ServerReport(
    FACTS,
    0.001,
    0.0,
    info=INFO,
    settings={"maxmemory": INFO["maxmemory"]},
    rights={"publish": True, "FLUSHALL": False, "EVAL": False},
)


def with_facts(**changes: Any) -> ServerReport:
    return replace(HEALTHY, facts=FACTS._replace(**changes))


def with_info(**changes: str) -> ServerReport:
    return replace(HEALTHY, info=INFO | changes)


SERVERS: dict[str, tuple[ServerReport, Severity | None, str]] = {
    "healthy": (HEALTHY, None, ""),
    "old Valkey": (with_facts(version="8.1.3"), Severity.WARNING, "CVE-2025-49844"),
    "mended Valkey": (with_facts(version="8.1.4"), None, ""),
    "mended old line": (with_facts(version="7.2.11"), None, ""),
    "a line that was never mended": (with_facts(version="7.0.15", product="redis"), Severity.WARNING, "CVE"),
    "a later line": (with_facts(version="8.4.0", product="redis"), None, ""),
    "an unknown version": (with_facts(version=None), None, ""),
    "no file and no replica": (replace(HEALTHY, can_lose_acknowledged=True), Severity.CRITICAL, "last snapshot"),
    "no file": (with_facts(append_only=False), Severity.WARNING, "stop together"),
    "every second": (with_facts(append_fsync="everysec"), Severity.NOTE, "last two seconds"),
    "no fsync": (with_facts(append_fsync="no"), Severity.WARNING, "appendfsync no"),
    "a full disk": (with_info(aof_last_write_status="err"), Severity.CRITICAL, "append-only file could not be written"),
    "a failed snapshot": (with_info(rdb_last_bgsave_status="err"), Severity.CRITICAL, "snapshot could not be written"),
    "a lagging replica": (
        with_info(slave0="ip=10.0.0.2,port=6380,state=wait_bgsave,offset=1,lag=0"),
        Severity.WARNING,
        "10.0.0.2:6380 is not in step (wait_bgsave)",
    ),
    "a replica in step": (with_info(slave0="ip=10.0.0.2,port=6380,state=online,offset=1,lag=0"), None, ""),
    "no limit of memory": (with_info(maxmemory="0"), Severity.NOTE, "maxmemory 0"),
    "no limit and a full machine": (
        with_info(maxmemory="0", used_memory=str(15 * GIGABYTE)),
        Severity.CRITICAL,
        "94% of the memory of its machine",
    ),
    "nearly full": (with_info(used_memory=str(7 * GIGABYTE)), Severity.WARNING, "88% of its memory limit"),
    "very full": (with_info(used_memory=str(8 * GIGABYTE - 1)), Severity.CRITICAL, "at the limit, sends are refused"),
    "full": (with_info(used_memory=str(8 * GIGABYTE)), Severity.CRITICAL, "it is full: it uses 100%"),
    "over its limit": (with_info(used_memory=str(9 * GIGABYTE)), Severity.CRITICAL, "112% of its memory limit"),
    "the allocator of the C library": (
        with_info(mem_allocator="libc"),
        Severity.NOTE,
        "jemalloc takes 1.2 to 1.4 times",
    ),
    "another allocator": (with_info(mem_allocator="jemalloc-5.3.0"), None, ""),
    "facts that may not be read": (replace(HEALTHY, info={}), Severity.WARNING, "INFO may not be read"),
    "settings that may not be read": (replace(HEALTHY, settings={}), Severity.NOTE, "CONFIG GET may not be read"),
    "no right to publish": (replace(HEALTHY, rights={"publish": False}), Severity.CRITICAL, "fails halfway"),
    "too many rights": (replace(HEALTHY, rights={"EVAL": True, "FLUSHALL": True}), Severity.NOTE, "EVAL, FLUSHALL"),
    "a wrong clock": (replace(HEALTHY, clock_ahead=30.0), Severity.WARNING, "30.0 s ahead"),
}


@pytest.mark.parametrize(("server", "severity", "problem"), SERVERS.values(), ids=SERVERS)
def test_a_fact_of_a_server_causes_its_finding(server: ServerReport, severity: Severity | None, problem: str) -> None:
    found = findings_of_servers(ConnectionReport(Target("standalone", (Endpoint("h", 1),)), (server,)))
    assert [finding.severity for finding in found] == ([] if severity is None else [severity])
    assert all(problem in finding.problem and finding.advice for finding in found)
    assert not any("docs/" in finding.advice for finding in found), "a user of the wheel does not have these files"


@pytest.mark.parametrize(("scripts", "noted"), [("auto", True), ("library", False), ("needed", False)])
def test_a_server_that_takes_no_library_is_noted_if_it_should_have_one(scripts: Any, noted: bool) -> None:
    target = Target("standalone", (Endpoint("h", 1),), scripts=scripts)
    refusing = replace(HEALTHY, library_refusal="NOPERM this user has no permissions to run the 'fcall' command")
    found = findings_of_servers(ConnectionReport(target, (refusing,)))
    assert [finding.severity for finding in found] == [Severity.NOTE] * noted
    assert all("NOPERM" in finding.problem and "1.8 times" in finding.problem for finding in found)


def test_the_form_of_the_scripts_says_why_it_is_no_library() -> None:
    report = ConnectionReport(Target("standalone", (Endpoint("h", 1),), scripts="all"), (HEALTHY,))
    assert form_of(replace(HEALTHY, has_library=True), report) == ("library", "")
    assert form_of(HEALTHY, report) == ("single", "the connection string says scripts=all")
    memory = ConnectionReport(Target("memory", (Endpoint("h", 1),)), (HEALTHY,))
    assert form_of(HEALTHY, memory) == ("single", "a server in memory has no functions")
    refused = replace(HEALTHY, library_refusal="OOM full")
    assert form_of(refused, report) == ("single", "it takes no library of functions: OOM full")


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (ServiceBusConnectionError("h:2 cannot be reached: connection refused."), "let a replica take over"),
        (ServiceBusServerBusyError("CLUSTERDOWN The cluster is down"), "cluster-require-full-coverage no"),
        (ServerUnsuitableError("h:2 evicts keys. Set maxmemory-policy noeviction."), "Change the server"),
    ],
    ids=["away", "down", "unsuitable"],
)
def test_a_master_that_cannot_be_used_is_critical_beside_the_findings_of_the_others(
    error: ServiceBusError, advice: str
) -> None:
    report = ConnectionReport(Target("cluster", (Endpoint("h", 1),)), (HEALTHY,), away={Endpoint("h", 2): error})
    (found,) = findings_of_servers(report)
    assert (found.severity, found.subject) == (Severity.CRITICAL, "h:2")
    assert error.message.rstrip(".") in found.problem
    assert advice in found.advice
    assert f"  h:2: {error.message}" in str(report)


def test_one_replica_stops_replicated_calls_while_it_is_away() -> None:
    target = Target("standalone", (Endpoint("h", 1),), durability="replicated")
    (found,) = findings_of_servers(ConnectionReport(target, (with_facts(connected_replicas=1),)))
    assert "no call is confirmed while that replica is away" in found.problem


MASTERS = "\n".join(
    f"m{n} 10.0.0.{n}:6379@1 master - 0 0 {n} connected {first}-{last}"
    for n, first, last in ((1, 0, 5460), (2, 5461, 10922), (3, 10923, 16383))
)
REPLICAS = "\n".join(f"r{n} 10.0.1.{n}:6379@1 slave m{n} 0 0 {n} connected" for n in (1, 2, 3))
WHOLE = f"{MASTERS}\n{REPLICAS}\n"
SHARDS = tuple(frozenset({f"m{n}", f"r{n}"}) for n in (1, 2, 3))

CLUSTERS: dict[str, tuple[str, tuple[frozenset[str], ...], Severity | None, str]] = {
    "healthy": (WHOLE, SHARDS, None, ""),
    "on one machine for trials": (
        WHOLE.replace("10.0.0.", "127.0.0.").replace("10.0.1.", "127.0.0."),
        SHARDS,
        None,
        "",
    ),
    "a failed replica": (WHOLE.replace(":6379@1 slave m1", ":6379@1 slave,fail m1"), (), Severity.WARNING, "failed"),
    "no replica": (MASTERS, (), Severity.WARNING, "has no replica"),
    "replicas beside their masters": (WHOLE.replace("10.0.1.", "10.0.0."), (), Severity.WARNING, "the same machine"),
    "slots without a master": (WHOLE.replace("10923-16383", "10923-16000"), (), Severity.CRITICAL, "383 of 16,384"),
    "uneven slots": (
        WHOLE.replace("0-5460", "0-9000").replace("5461-10922", "9001-10922"),
        (),
        Severity.WARNING,
        "10.0.0.1:6379 has 9,001, and 10.0.0.2:6379 has 1,922",
    ),
    "a replica outside its shard": (
        WHOLE,
        (frozenset({"m1"}), frozenset({"r1"}), *SHARDS[1:]),
        Severity.CRITICAL,
        "no shard id in nodes.conf",
    ),
    "a slot that is being moved": (WHOLE.replace("0-5460", "0-5460 [93->-m2]"), SHARDS, None, ""),
}


@pytest.mark.parametrize(("nodes", "shards", "severity", "problem"), CLUSTERS.values(), ids=CLUSTERS)
def test_a_fact_of_a_cluster_causes_its_finding(
    nodes: str, shards: tuple[frozenset[str], ...], severity: Severity | None, problem: str
) -> None:
    report = ConnectionReport(Target("cluster", (Endpoint("h", 1),)), (HEALTHY,), nodes, shards)
    found = findings_of_servers(report)
    assert {finding.severity for finding in found} == (set() if severity is None else {severity})
    assert severity is None or any(problem in finding.problem for finding in found)


def test_the_nodes_of_a_cluster_are_read() -> None:
    first, *_, last = nodes_in(WHOLE)
    assert (first.id, first.address, first.host, first.slots, first.linked) == (
        "m1",
        "10.0.0.1:6379",
        "10.0.0.1",
        5461,
        True,
    )
    assert (last.master, last.slots) == ("m3", 0)
    assert nodes_in("") == []


PART = PartitionRuntimeProperties(number=0, server="h:1", active_message_count=5, size_in_bytes=1000)
QUEUE = EntityFacts(
    path="orders",
    kind="queue",
    lock_duration=timedelta(seconds=60),
    time_to_live=timedelta(days=1),
    max_size_in_bytes=GIGABYTE,
    partitions=(PART,),
)


def with_part(**changes: Any) -> EntityFacts:
    return replace(QUEUE, partitions=(replace(PART, **changes),))


def with_sizes(*sizes: int) -> EntityFacts:
    return replace(QUEUE, partitions=tuple(replace(PART, size_in_bytes=size) for size in sizes))


ENTITIES: dict[str, tuple[EntityFacts, Severity | None, str]] = {
    "healthy": (QUEUE, None, ""),
    "a lock longer than life": (replace(QUEUE, time_to_live=timedelta(seconds=60)), Severity.WARNING, "live 60 s"),
    "a lock too short for handling": (
        replace(QUEUE, lock_duration=timedelta(seconds=30)),
        Severity.WARNING,
        "lasts 30 s, and handling takes 20 s",
    ),
    "a partition that is away": (with_part(available=False), Severity.CRITICAL, "1 of 1 partition does not answer: 0"),
    "a disabled queue": (replace(QUEUE, status="ReceiveDisabled"), Severity.NOTE, "ReceiveDisabled"),
    "a dead letter": (with_part(dead_letter_message_count=1), Severity.NOTE, "1 message is on its"),
    "dead letters": (with_part(dead_letter_message_count=2000), Severity.NOTE, "2,000 messages"),
    "moves that failed": (with_part(transfer_dead_letter_message_count=1), Severity.WARNING, "could not be moved"),
    "nearly full": (with_part(size_in_bytes=GIGABYTE * 9 // 10), Severity.WARNING, "90% of its size"),
    "full": (with_part(size_in_bytes=GIGABYTE), Severity.CRITICAL, "100% of its size"),
    "full partitions": (with_sizes(GIGABYTE // 2, GIGABYTE), Severity.CRITICAL, "its fullest partition has used 100%"),
    "many partitions that are half full": (with_sizes(*[GIGABYTE // 2] * 16), None, ""),
    "large": (
        replace(with_part(size_in_bytes=2 * GIGABYTE), max_size_in_bytes=80 * GIGABYTE),
        Severity.WARNING,
        "more than 1,600 MB",
    ),
    "a topic without a lock": (replace(QUEUE, kind="topic", lock_duration=None), None, ""),
}


@pytest.mark.parametrize(("entity", "severity", "problem"), ENTITIES.values(), ids=ENTITIES)
def test_a_fact_of_an_entity_causes_its_finding(entity: EntityFacts, severity: Severity | None, problem: str) -> None:
    found = findings_of_entities([entity], maintained=True, handling=timedelta(seconds=20))
    assert [finding.severity for finding in found] == ([] if severity is None else [severity])
    assert all(problem in finding.problem and finding.advice for finding in found)


def test_a_large_partition_is_no_problem_where_slots_move_whole() -> None:
    large = replace(with_part(size_in_bytes=2 * GIGABYTE), max_size_in_bytes=None)
    assert findings_of_entities([large], maintained=True, moves_slots_whole=True) == []


WAITING = {
    "forwarding": (replace(QUEUE, forwards=True), True),
    "removal": (replace(QUEUE, removed_when_idle=True), True),
    "transfers": (with_part(transfer_message_count=1), True),
    "scheduled on a topic": (replace(with_part(scheduled_message_count=1), kind="topic"), True),
    "scheduled on a queue": (with_part(scheduled_message_count=1), False),
    "nothing": (QUEUE, False),
}


@pytest.mark.parametrize(("entity", "needed"), WAITING.values(), ids=WAITING)
def test_missing_maintenance_is_found_where_something_needs_it(entity: EntityFacts, needed: bool) -> None:
    found = findings_of_entities([entity], maintained=False)
    assert [finding.subject for finding in found] == (["maintenance"] if needed else [])
    assert findings_of_entities([entity], maintained=True) == []


@pytest.mark.parametrize("stale", [False, True])
def test_a_reservation_without_a_sign_of_life_is_found(stale: bool) -> None:
    status = ReservationStatus(
        path="orders & more",
        consumer="capture",
        owner="",
        since=datetime(2026, 1, 1, tzinfo=UTC),
        last_seen=None,
        state="reserved",
        stale=stale,
        positions={},
        unreachable_partitions=(),
    )
    found = findings_of_entities([QUEUE], maintained=True, reservations=[status])
    assert [finding.advice for finding in found] == (
        ["Start the consumer again, or end the reservation:\nsbredis spark release 'orders & more'"] if stale else []
    )


def test_the_worst_comes_first_and_equal_problems_are_one() -> None:
    one, two, three = (
        Finding(Severity.NOTE, "a", "slow", "wait"),
        Finding(Severity.CRITICAL, "b", "lost", "look"),
        Finding(Severity.NOTE, "c", "slow", "wait"),
    )
    assert gathered([one, two, three]) == [two, Finding(Severity.NOTE, "a, c", "slow", "wait")]


# -- transactions ------------------------------------------------------------------------------------------------------

ONE, OTHER = (17,), (203,)
MANY, SHIFTED = (1, 65, 129, 193), (2, 66, 130, 194)

TOGETHER: dict[str, tuple[list[EntitySlots], list[tuple[Severity, str, str]]]] = {
    "one slot": ([EntitySlots("a", ONE), EntitySlots("b", ONE)], []),
    "two slots": (
        [EntitySlots("a", ONE), EntitySlots("b", OTHER)],
        [(Severity.WARNING, "b", "create it again with colocate_with='a'.")],
    ),
    "only what is apart is named": (
        [EntitySlots("a", ONE), EntitySlots("b", ONE), EntitySlots("c", OTHER)],
        [(Severity.WARNING, "c", "colocate_with='a'.")],
    ),
    "a topic and its subscription": ([EntitySlots("t", ONE), EntitySlots("t/subscriptions/s", ONE)], []),
    "a subscription is where its topic is": (
        [EntitySlots("t/subscriptions/s", ONE), EntitySlots("u/subscriptions/s", OTHER)],
        [(Severity.WARNING, "u/subscriptions/s", "create its topic u again with colocate_with='t'.")],
    ),
    "the same slots, and keys decide": (
        [EntitySlots("a", MANY), EntitySlots("b", MANY)],
        [(Severity.NOTE, "a, b", "the same key")],
    ),
    "other slots of partitioned entities": (
        [EntitySlots("a", MANY), EntitySlots("b", SHIFTED)],
        [(Severity.WARNING, "b", "colocate_with='a'.")],
    ),
    "one of them is partitioned": (
        [EntitySlots("a", MANY), EntitySlots("b", ONE)],
        [(Severity.WARNING, "b", "colocate_with='a', and with partitions.")],
    ),
    "one of them is not partitioned": (
        [EntitySlots("a", ONE), EntitySlots("b", MANY)],
        [(Severity.WARNING, "b", "colocate_with='a', and without partitions.")],
    ),
}


@pytest.mark.parametrize("case", TOGETHER)
def test_entities_of_a_transaction_in_other_slots_are_named(case: str) -> None:
    entities, expected = TOGETHER[case]
    found = findings_of_transaction(entities)
    assert [(each.severity, each.subject) for each in found] == [row[:2] for row in expected]
    for finding, (_, _, advice) in zip(found, expected, strict=True):
        assert advice in finding.advice


def test_slots_are_named_in_short() -> None:
    assert str(EntitySlots("a", ONE)) == "a: 1 slot of the namespace (17)"
    assert str(EntitySlots("a", tuple(range(16)))) == "a: 16 slots of the namespace (0, 1, 2, 3, 4, 5, 6, 7, …)"
