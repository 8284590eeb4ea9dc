"""A separate cluster for tests: a test forms it, lets it fail over, kills and restarts servers, and moves slots."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sbredis.exceptions import ServerUnsuitableError
from sbredis.servers import ClusterNode, LocalCluster, ServerBinary
from sbredis.servers._cluster import NodeView, parse_nodes, roles_of
from tests.servers.processes import is_running
from tests.waiting import wait_until

TAG = "{tag}"


@pytest.fixture(scope="module")
def cluster(binary: ServerBinary) -> Iterator[LocalCluster]:
    with LocalCluster(3, 1, binary=binary) as cluster:
        yield cluster


@pytest.fixture
def slot(cluster: LocalCluster) -> int:
    """Return a slot with 25 keys."""
    cluster.wait_until_ok()
    cluster.flush()
    slot = cluster.nodes[0].ask("CLUSTER", "KEYSLOT", TAG)
    assert isinstance(slot, int)
    for number in range(25):
        cluster.master_of(slot).ask("SET", f"{TAG}{number}", number)
    return slot


def keys_in(node: ClusterNode, slot: int) -> object:
    return node.ask("CLUSTER", "COUNTKEYSINSLOT", slot)


def other_master(cluster: LocalCluster, slot: int) -> ClusterNode:
    return next(node for node in cluster.masters if node is not cluster.master_of(slot))


def test_every_master_of_a_cluster_gets_an_even_share_of_slots(cluster: LocalCluster) -> None:
    assert len(cluster.nodes) == 6
    assert cluster.masters == cluster.nodes[:3]
    for index, master in enumerate(cluster.masters):
        assert cluster.replicas_of(master) == [cluster.nodes[3 + index]]
    shares = [sum(len(slots) for slots in view.slots) for view in cluster.nodes[0].view() if view.is_master]
    assert sum(shares) == 16384
    assert max(shares) - min(shares) <= 1
    assert cluster.url == "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in cluster.nodes)


def test_a_slot_moved_key_by_key_keeps_its_keys(cluster: LocalCluster, slot: int) -> None:
    source, target = cluster.master_of(slot), other_master(cluster, slot)
    steps = cluster.migrate_slot_classic_steps(slot, target, batch=10)
    assert (next(steps), next(steps), next(steps)) == ("importing", "migrating", "keys")
    assert (keys_in(source, slot), keys_in(target, slot)) == (15, 10)
    assert cluster.master_of(slot) is source
    assert list(steps) == ["keys", "keys", "assigned"]
    assert cluster.master_of(slot) is target
    assert keys_in(target, slot) == 25
    cluster.wait_until_ok()
    cluster.migrate_slot_classic(slot, source)
    assert cluster.master_of(slot) is source
    cluster.migrate_slot_classic(slot, source)  # the slot is already at its target, so this has no effect


def test_a_slot_moved_in_one_step_keeps_its_keys(cluster: LocalCluster, slot: int) -> None:
    source, target = cluster.master_of(slot), other_master(cluster, slot)
    if not cluster.supports_atomic_migration:
        with pytest.raises(ServerUnsuitableError, match="Valkey 9"):
            cluster.migrate_slot_atomic(slot, target)
        return
    for there in (target, source):  # there and back, to check that the newest of several migrations counts
        cluster.migrate_slot_atomic(slot, there)
        cluster.wait_until_ok()
        assert cluster.master_of(slot) is there
        assert keys_in(there, slot) == 25


def test_flush_deletes_all_keys(cluster: LocalCluster, slot: int) -> None:
    cluster.flush()
    assert keys_in(cluster.master_of(slot), slot) == 0


def test_a_server_survives_a_sharded_publish_from_a_script(cluster: LocalCluster, slot: int) -> None:
    """A server that does not know its own shard fails an assertion at this publish."""
    master = cluster.master_of(slot)
    assert master.ask("EVAL", "return redis.call('SPUBLISH', KEYS[1], 'x')", 1, TAG) == 0


def test_a_replica_that_becomes_the_master_keeps_the_keys(cluster: LocalCluster, slot: int) -> None:
    master = cluster.master_of(slot)
    (replica,) = cluster.replicas_of(master)
    cluster.failover(replica)
    assert cluster.master_of(slot) is replica
    assert cluster.replicas_of(replica) == [master]
    assert keys_in(replica, slot) == 25


def test_a_killed_master_is_replaced_and_returns_as_a_replica(cluster: LocalCluster, slot: int) -> None:
    master = cluster.master_of(slot)
    (replica,) = cluster.replicas_of(master)
    # WAIT confirms the writes of its own connection, but the earlier writes precede it in the stream to the replica.
    wait_until(lambda: master.ask("WAIT", 1, 1000) == 1)
    port = master.port
    master.kill()
    with pytest.raises(ServerUnsuitableError, match=f"{master.id}, which is dead"):
        cluster.wait_until_ok(0)  # the error names the missing node
    cluster.wait_until_ok()
    assert cluster.master_of(slot) is replica
    master.restart()
    cluster.wait_until_ok()
    assert master.port == port
    assert cluster.replicas_of(replica) == [master]
    assert keys_in(replica, slot) == 25


def test_a_master_that_is_added_has_no_slots_until_some_are_moved_to_it() -> None:
    with LocalCluster(2) as cluster:
        before, slot = cluster.masters, cluster.nodes[0].ask("CLUSTER", "KEYSLOT", TAG)
        assert isinstance(slot, int)
        cluster.master_of(slot).ask("SET", f"{TAG}0", "x")
        added = cluster.add_master()
        assert cluster.nodes == [*before, added]
        assert cluster.masters == before
        cluster.migrate_slot_classic(slot, added)
        cluster.wait_until_ok()
        assert cluster.master_of(slot) is added
        assert added.ask("GET", f"{TAG}0") == "x"
        assert added.ask("EVAL", "return redis.call('SPUBLISH', KEYS[1], 'x')", 1, TAG) == 0
        assert str(added.port) in cluster.url


def test_a_master_is_added_only_to_a_cluster_that_runs() -> None:
    with pytest.raises(RuntimeError, match="was not started"):
        LocalCluster(1).add_master()


def test_a_master_is_added_although_another_is_down_and_a_failure_leaves_the_cluster_as_it_was() -> None:
    with LocalCluster(2) as cluster:
        first = cluster.nodes[0]
        first.kill()
        with pytest.raises(ServerUnsuitableError):  # the cluster is not whole, so waiting for that fails
            cluster.add_master(timeout=0.5)
        first.restart()
        cluster.wait_until_ok(30)
        assert len(cluster.nodes) == 3
        for node in cluster.nodes:
            node.kill()
        with pytest.raises(RuntimeError, match="no node of this cluster is running"):
            cluster.add_master()
        assert len(cluster.nodes) == 3


def test_stop_removes_everything_and_start_forms_a_new_cluster() -> None:
    cluster = LocalCluster(1)
    cluster.start()
    pids = [node.pid for node in cluster.nodes]
    cluster.stop()
    assert not any(map(is_running, pids))
    assert cluster.nodes == []


def test_the_error_quotes_a_server_that_refuses_its_configuration() -> None:
    with pytest.raises(ServerUnsuitableError, match="no-such-key"):
        LocalCluster(1, config={"no-such-key": "1"}).start()


def test_the_answers_of_a_node_are_parsed() -> None:
    own, other, replica = parse_nodes(
        "a1 127.0.0.1:1@2,,tls-port=0,shard-id=s myself,master - 0 0 5 connected 0-5 7 [7->-b2]\n"
        "b2 127.0.0.1:3@4 master,fail? - 0 0 6 disconnected 6 8-9\n"
        "c3 127.0.0.1:5@6 slave a1 0 0 5 connected\n"
    )
    assert (own.is_myself, own.is_master, own.config_epoch, own.slots) == (True, True, 5, (range(6), range(7, 8)))
    assert (own.owns(7), own.owns(6)) == (True, False)
    assert (other.is_failing, other.link_is_up) == (True, False)
    assert (replica.master_id, replica.is_master) == ("a1", False)


def test_nodes_agree_only_if_they_name_the_same_master_for_each_live_replica() -> None:
    def view(replica: str) -> list[NodeView]:
        return parse_nodes(f"a1 127.0.0.1:1@2 myself,master - 0 0 5 connected 0-5\nc3 127.0.0.1:5@6 {replica}\n")

    follows = view("slave a1 0 0 5 connected")
    not_yet = view("master - 0 0 5 connected")
    assert roles_of(follows, {"a1", "c3"}) != roles_of(not_yet, {"a1", "c3"})
    assert roles_of(follows, {"a1"}) == roles_of(not_yet, {"a1"})
    assert roles_of(follows, {"a1"}) == {"a1": (None, frozenset({range(6)}))}
