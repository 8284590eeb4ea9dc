"""The facts that servers report, and whether sbredis can run on such servers."""

from __future__ import annotations

import re
from typing import Any

import pytest

from sbredis.transport import Durability, Endpoint, ServerFacts, parse_info
from sbredis.transport._address import Kind
from sbredis.transport._server_facts import (
    UNKNOWN_RUN_ID,
    ReplicaCount,
    can_lose_acknowledged,
    durability_note,
    not_writable,
    problems,
    server_facts,
    unconfirmable,
    unknown_note,
)

HERE = Endpoint("h", 6379)
RUN_ID = "f0" * 20

REDIS_7_0 = f"""\
# Server\r
redis_version:7.0.15\r
redis_mode:standalone\r
run_id:{RUN_ID}\r
executable:/usr/bin/redis-server\r
\r
# Memory\r
maxmemory_policy:noeviction\r
# Persistence\r
aof_enabled:0\r
# Replication\r
role:master\r
connected_slaves:2\r
slave0:ip=127.0.0.1,port=7001,state=online,offset=14,lag=1\r
"""
REDIS_8_2 = (
    REDIS_7_0.replace("7.0.15", "8.2.3").replace("standalone", "cluster").replace("aof_enabled:0", "aof_enabled:1")
)
VALKEY_9_1 = (
    REDIS_7_0.replace("7.0.15", "7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2\r\nserver_mode:standalone")
    .replace("role:master", "role:slave\r\nmaster_host:10.0.0.1\r\nmaster_port:7000\r\nmaster_link_status:up")
    .replace("noeviction", "allkeys-lru")
    .replace("connected_slaves:2", "connected_slaves:0")
)


@pytest.mark.parametrize(
    ("info", "facts", "name"),
    [
        (
            REDIS_7_0,
            ServerFacts(
                HERE, RUN_ID.encode(), "redis", "7.0.15", "standalone", "master", None, 2, "noeviction", False, "always"
            ),
            "Redis 7.0.15 at h:6379",
        ),
        (
            REDIS_8_2,
            ServerFacts(
                HERE, RUN_ID.encode(), "redis", "8.2.3", "cluster", "master", None, 2, "noeviction", True, "always"
            ),
            "Redis 8.2.3 at h:6379",
        ),
        (
            VALKEY_9_1,
            ServerFacts(
                HERE, RUN_ID.encode(), "valkey", "9.1.2", "standalone", "slave", "10.0.0.1:7000", 0, "allkeys-lru",
                False, "always",
            ),
            "Valkey 9.1.2 at h:6379",
        ),
        ("", ServerFacts(HERE, append_fsync="always"), "Unknown server (version unknown) at h:6379"),
        (None, ServerFacts(HERE, append_fsync="always"), "Unknown server (version unknown) at h:6379"),
        (
            "redis_version:7.4\nconnected_slaves:²",
            ServerFacts(HERE, product="redis", version="7.4", append_fsync="always"),
            "Redis 7.4 at h:6379",
        ),
    ],
    ids=["redis 7.0", "redis 8.2", "valkey 9.1", "empty", "nothing", "hardly anything"],
)  # fmt: skip
def test_the_answers_of_a_server_are_parsed(info: str | None, facts: ServerFacts, name: str) -> None:
    assert server_facts(HERE, info, "always", None) == facts
    assert str(facts) == name


def test_a_reported_value_may_contain_colons_and_a_line_may_have_no_value() -> None:
    assert parse_info("# Title\na:b:c\n\nnonsense\nempty:\n") == {"a": "b:c", "empty": ""}


GOOD = ServerFacts(
    HERE, RUN_ID.encode(), "valkey", "9.1.2", "standalone", "master", None, 1, "noeviction", True, "always", "allowed"
)


@pytest.mark.parametrize(
    ("changes", "kind", "durability", "expected"),
    [
        ({}, "standalone", "fsync", None),
        ({}, "unix", "master", None),
        ({"mode": "cluster"}, "cluster", "master", None),
        ({"mode": "cluster", "role": "slave"}, "cluster", "master", None),
        ({"product": "redis", "version": "7.0.0"}, "standalone", "master", None),
        ({"product": "redis", "version": "6.2.14"}, "standalone", "master", "Redis 6.2.14 at h:6379 is too old"),
        ({"product": "valkey", "version": "7.2.0"}, "standalone", "master", None),
        ({"product": "redis", "version": "255.255.255"}, "standalone", "master", None),
        ({"product": "redis", "version": "unstable"}, "standalone", "master", "too old"),
        ({"product": "redis", "version": "10.0.0"}, "standalone", "master", None),
        ({"mode": "sentinel"}, "standalone", "master", r"use redis\+sentinel://h:6379/MASTER-NAME"),
        ({"mode": "standalone"}, "cluster", "master", "use redis://h:6379"),
        ({"mode": "cluster"}, "standalone", "master", r"use redis\+cluster://h:6379"),
        ({"mode": "cluster"}, "sentinel", "master", r"use redis\+cluster://h:6379"),
        ({"role": "slave", "master": "m:1"}, "standalone", "master", None),
        ({"role": "slave", "master": "m:1"}, "sentinel", "master", None),
        ({"eviction": "volatile-lru"}, "standalone", "master", "Set maxmemory-policy noeviction"),
        ({"scripts": "denied"}, "standalone", "master", "Permit EVALSHA"),
        ({"append_only": False}, "standalone", "fsync", "needs appendonly yes"),
        ({"append_fsync": "everysec"}, "standalone", "fsync", "runs appendfsync everysec"),
        ({"append_fsync": "everysec"}, "standalone", "master", None),
        ({"append_fsync": "everysec"}, "standalone", "replicated", None),
    ],
)
def test_a_problem_of_a_server_is_reported_with_its_remedy(
    changes: dict[str, Any], kind: Kind, durability: Durability, expected: str | None
) -> None:
    found = problems(GOOD._replace(**changes), kind, durability)
    assert len(found) == (expected is not None)
    assert all(re.search(expected or "", problem) for problem in found)


@pytest.mark.parametrize(
    ("role", "kind", "expected"),
    [
        ("master", "standalone", None),
        (None, "standalone", None),
        ("slave", "standalone", "read-only replica of m:1: connect to its master"),
        ("slave", "unix", "read-only replica of m:1: connect to its master"),
        ("slave", "sentinel", "h:6379 is a replica of m:1"),
        ("slave", "cluster", None),
    ],
)
def test_a_replica_is_refused_if_its_writes_are_not_redirected(
    role: str | None, kind: Kind, expected: str | None
) -> None:
    said = not_writable(GOOD._replace(role=role, master="m:1"), kind)
    assert (said is None) is (expected is None)
    assert (expected or "") in (said or "")


@pytest.mark.parametrize(
    ("copies", "kind", "expected", "may_pass"),
    [
        (ReplicaCount(1, 1), "standalone", None, False),
        (ReplicaCount(2, 1), "standalone", None, False),
        (ReplicaCount(0, 0), "standalone", "has no replica, so nothing can confirm", False),
        (ReplicaCount(None, None), "standalone", "does not let this user read", False),
        (ReplicaCount(1, 0), "standalone", "has no replica connected.*replicas=1", False),
        (ReplicaCount(1, 0), "unix", "has no replica connected.*replicas=1", False),
        (ReplicaCount(1, None), "standalone", None, False),
        (ReplicaCount(1, 0), "cluster", None, False),  # the replica is down, or has not connected yet
        (ReplicaCount(1, 0, steady=False), "sentinel", None, False),
        (ReplicaCount(0, 0), "cluster", "has no replica, so nothing can confirm", False),
        (ReplicaCount(0, 0, steady=False), "cluster", "has no replica at the moment", True),
        (ReplicaCount(0, 0, steady=False), "sentinel", "has no replica at the moment", True),
    ],
)
def test_a_shard_without_a_replica_is_refused_unless_a_failover_may_be_the_reason(
    copies: ReplicaCount, kind: Kind, expected: str | None, may_pass: bool
) -> None:
    said = unconfirmable(GOOD, copies, kind)
    assert (said is None) is (expected is None)
    if said is not None:
        assert re.search(expected or "", said[0])
        assert said[1] is may_pass


@pytest.mark.parametrize(
    ("append_only", "replicated", "loses"),
    [(False, False, True), (False, True, False), (True, False, False), (None, False, False)],
)
def test_a_server_without_a_file_or_replica_can_lose_acknowledged_data(
    append_only: bool | None, replicated: bool, loses: bool
) -> None:
    assert can_lose_acknowledged(GOOD._replace(append_only=append_only), replicated=replicated) is loses


@pytest.mark.parametrize("kind", ["standalone", "cluster", "sentinel", "unix", "embedded", "memory"])
@pytest.mark.parametrize("durability", ["master", "replicated", "fsync"])
def test_a_server_whose_facts_are_unknown_is_never_refused(kind: Kind, durability: Durability) -> None:
    assert problems(ServerFacts(HERE), kind, durability) == []


def test_all_problems_are_reported_together() -> None:
    facts = GOOD._replace(
        version="7.0", mode="cluster", role="slave", eviction="x", scripts="denied", append_only=False
    )
    assert len(problems(facts, "standalone", "fsync")) == 5


@pytest.mark.parametrize(
    ("facts", "durability", "words"),
    [
        (GOOD._replace(run_id=UNKNOWN_RUN_ID), "master", ["run id"]),
        (GOOD._replace(eviction=None), "master", ["make sure that it is noeviction"]),
        (GOOD._replace(append_fsync=None), "master", ["how much a crash loses is not known"]),
        (GOOD._replace(append_fsync=None), "fsync", ["make sure that it is always"]),
        (ServerFacts(HERE), "master", ["h:6379", "version", "run id", "maxmemory-policy", "appendfsync"]),
    ],
)
def test_one_warning_names_all_unreadable_facts(facts: ServerFacts, durability: Durability, words: list[str]) -> None:
    note = unknown_note(facts, durability)
    assert note is not None
    assert [word for word in words if word not in note] == []


def test_there_is_no_warning_if_all_facts_could_be_read() -> None:
    assert unknown_note(GOOD, "fsync") is None


@pytest.mark.parametrize(
    ("changes", "durability", "replicated", "words"),
    [
        ({}, "fsync", False, ["a crash of the server loses nothing acknowledged", "no replica"]),
        ({"append_fsync": "everysec"}, "master", True, ["the last two seconds", "had not reached the new master"]),
        ({"append_fsync": "no"}, "master", True, ["what its operating system had not written"]),
        ({"append_only": False}, "master", True, ["loses everything since its last snapshot"]),
        ({"append_only": None}, "master", True, ["could not be read"]),
        ({"append_fsync": None}, "master", True, ["could not be read"]),
        ({"append_only": False}, "replicated", True, ["since its last snapshot", "failover to any replica"]),
    ],
)
def test_the_log_says_what_an_acknowledgement_promises(
    changes: dict[str, Any], durability: Durability, replicated: bool, words: list[str]
) -> None:
    note = durability_note(GOOD._replace(**changes), durability, replicated=replicated)
    assert [word for word in words if word not in note] == []
