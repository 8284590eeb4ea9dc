"""Slots, the slot map, and the replies that clusters of several kinds and versions give about themselves."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from redis.crc import key_slot as key_slot_of_redis_py

from sbredis.transport import SLOTS, Endpoint, key_slot
from sbredis.transport._slots import SlotMap, is_steady, parse_cluster_slots, parse_redirection, replica_counts

A, B = Endpoint("10.0.0.1", 7000), Endpoint("10.0.0.2", 7001)
ASKED = Endpoint("seed", 7000)

KEYS = st.lists(st.one_of(st.sampled_from([b"{", b"}", b"{}"]), st.binary(max_size=6)), max_size=8).map(b"".join)


def owners(slots: SlotMap) -> list[Endpoint | None]:
    """Return the endpoint of each slot."""
    return [[None, *slots.number_of][number] for number in slots.numbers]


@given(KEYS)
@example(b"")
@example(b"{}")
@example(b"{}{a}")
@example(b"a}b{c}d")
@example(b"{a")
@example(b"{{a}}")
@example(b"{\xff\x00}x")
def test_keys_have_the_same_slot_as_in_redis_py(key: bytes) -> None:
    assert key_slot(key) == key_slot_of_redis_py(key)


@given(KEYS, KEYS, st.binary(min_size=1).filter(lambda tag: b"}" not in tag))
def test_keys_with_one_tag_share_a_slot(before: bytes, after: bytes, tag: bytes) -> None:
    before = before.replace(b"{", b"")
    assert key_slot(before + b"{" + tag + b"}" + after) == key_slot(b"{" + tag + b"}")


# -- the map -----------------------------------------------------------------------------------------------------------


def test_a_slot_map_knows_only_the_owners_it_was_given() -> None:
    slots = SlotMap([(0, 99, A), (200, 200, B)])
    assert (owners(slots)[0], owners(slots)[99], owners(slots)[100], owners(slots)[200]) == (A, A, None, B)
    assert len(owners(slots)) == SLOTS
    assert slots.masters == {A, B}


def test_an_empty_map_has_no_masters() -> None:
    assert SlotMap().masters == frozenset()


def test_a_later_range_takes_slots_from_an_earlier_one() -> None:
    slots = SlotMap([(0, 9, A), (20, 29, B), (0, 4, B)])
    assert (owners(slots)[4], owners(slots)[5]) == (B, A)
    assert slots.masters == {A, B}
    assert SlotMap([(0, 9, A), (0, 9, B)]).masters == {B}


def test_a_single_server_owns_every_slot() -> None:
    assert set(owners(SlotMap.whole(A))) == {A}


@pytest.mark.parametrize(("first", "last"), [(-1, 5), (5, 4), (0, SLOTS)])
def test_slots_that_do_not_exist_are_refused(first: int, last: int) -> None:
    with pytest.raises(ValueError, match="outside"):
        SlotMap([(first, last, A)])


# -- CLUSTER SLOTS -----------------------------------------------------------------------------------------------------

NODE_ID = b"e7d1eecce10fd6bb5eb35b9f99a514335d9ba9ca"


@pytest.mark.parametrize(
    ("node", "endpoint"),
    [
        ([b"10.0.0.1", 7000, NODE_ID], A),
        ([b"10.0.0.1", 7000, NODE_ID, [b"hostname", b"a.example"]], A),
        ([b"10.0.0.1", 7000, NODE_ID, {b"hostname": b"a.example"}], A),
        ([b"a.example", 7000, NODE_ID, [b"ip", b"10.0.0.1"]], Endpoint("a.example", 7000)),
        (["a.example", "7000"], Endpoint("a.example", 7000)),
        ([b"2001:db8::1", 7000, NODE_ID], Endpoint("2001:db8::1", 7000)),
        ([b"", 7005, NODE_ID], Endpoint("seed", 7005)),
        ([None, 7005, NODE_ID], Endpoint("seed", 7005)),
        ([b"?", 7000, NODE_ID], None),
    ],
)
def test_the_first_node_of_a_range_is_its_master(node: list[Any], endpoint: Endpoint | None) -> None:
    replica = [b"10.0.0.9", 7009, NODE_ID]
    slots = parse_cluster_slots([[0, 5460, node, replica]], ASKED)
    assert (owners(slots)[0], owners(slots)[5460], owners(slots)[5461]) == (endpoint, endpoint, None)


def test_slots_without_an_owner_stay_without_one() -> None:
    slots = parse_cluster_slots([[0, 1, [b"10.0.0.1", 7000]], [3, 3, [b"10.0.0.2", 7001]]], ASKED)
    assert owners(slots)[:5] == [A, A, None, B, None]


def test_a_cluster_without_slots_has_an_empty_map() -> None:
    assert parse_cluster_slots([], ASKED).masters == frozenset()


@pytest.mark.parametrize(
    "reply",
    [None, 7, b"OK", [[0]], [[0, 1]], [[0, 1, []]], [[0, 1, [b"h"]]], [[0, 1, [b"h", b"x"]]], [[0, SLOTS, [b"h", 1]]],
     [[b"a", b"b", [b"h", 1]]], [[0, 1, [b"\xff", 1]]], [[0, 1, None]], {b"slots": 1}],
)  # fmt: skip
def test_a_malformed_answer_is_reported_with_its_server(reply: Any) -> None:
    with pytest.raises(ValueError, match="CLUSTER SLOTS of seed:7000"):
        parse_cluster_slots(reply, ASKED)


# -- MOVED and ASK -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("detail", "redirection"),
    [
        ("3999 10.0.0.1:7000", (3999, A)),
        ("0 a.example:7000", (0, Endpoint("a.example", 7000))),
        ("16383 2001:db8::1:7000", (16383, Endpoint("2001:db8::1", 7000))),
        ("3999 :7005", (3999, Endpoint("seed", 7005))),
    ],
)
def test_a_redirection_names_slot_and_server(detail: str, redirection: tuple[int, Endpoint]) -> None:
    assert parse_redirection(detail, ASKED) == redirection


@pytest.mark.parametrize("detail", ["", "x h:1", "1", "1 h", "1 h:", "1 h:x", "16384 h:1", "-1 h:1", "1 ?:7000"])
def test_a_redirection_that_names_no_server_is_an_error(detail: str) -> None:
    with pytest.raises(ValueError, match=r"slot|unpack|int|address"):
        parse_redirection(detail, ASKED)


# -- CLUSTER NODES -----------------------------------------------------------------------------------------------------

REDIS_7_0 = """\
aaa 10.0.0.1:7000@17000, myself,master - 0 0 1 connected 0-5460 [77->-bbb]
bbb 10.0.0.2:7001@17001, master - 0 1700000000000 2 connected 5461-10922
ccc 10.0.0.3:7002@17002, slave aaa 0 1700000000000 1 connected
ddd 10.0.0.4:7003@17003, slave,fail aaa 1700000000000 0 1 disconnected
"""
REDIS_8_2 = """\
aaa 10.0.0.1:7000@17000,a.example,shard-id=f00 myself,master - 0 0 1 connected 0-5460
bbb 10.0.0.2:7001@17001,,tls-port=0,shard-id=f01 master - 0 0 2 connected 5461-10922
ccc 10.0.0.3:7002@17002,c.example slave aaa 0 0 1 connected
ddd :0@0 slave,noaddr,fail bbb 0 0 1 disconnected
eee 10.0.0.5:7004@17004 handshake - 0 0 0 disconnected
"""
VALKEY_9 = """\
aaa 10.0.0.1:7000@17000,,tls-port=0,shard-id=f00,availability-zone=1a myself,master - 0 0 1 connected 0-5460
bbb 10.0.0.2:7001@17001,,tls-port=0,shard-id=f01 master,fail? - 0 0 2 connected
ccc 10.0.0.3:7002@17002,,tls-port=0,shard-id=f00 slave,fail? aaa 0 0 1 connected
fff :0@0,,tls-port=0 master,noaddr,fail - 0 0 9 disconnected
vars currentEpoch 3 lastVoteEpoch 0
"""


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        (REDIS_7_0, {A: 2, B: 0}),
        (REDIS_8_2, {A: 1, Endpoint("a.example", 7000): 1, B: 1}),
        (VALKEY_9, {A: 1, B: 0, Endpoint("seed", 0): 0}),
        ("aaa :7000@17000 myself,master - 0 0 1 connected\nb h:1@2 slave aaa 0 0 1 connected", {ASKED: 1}),
        ("aaa 2001:db8::1:7000@17000 master - 0 0 1 connected", {Endpoint("2001:db8::1", 7000): 0}),
        ("aaa nonsense master - 0 0 1 connected", {}),
        ("aaa ?:0@0 master - 0 0 1 connected", {}),
        ("", {}),
    ],
    ids=["redis 7.0", "redis 8.2", "valkey 9", "own address unknown", "ipv6", "nonsense", "unknown", "nothing"],
)
def test_replicas_are_counted_whether_they_are_up_or_down(text: str, counts: dict[Endpoint, int]) -> None:
    """A master with a host name is found by its host name and by its address, because the slot map has only one of
    them.
    """
    assert replica_counts(text, ASKED) == counts


# -- nodes that are down -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "steady"),
    [
        ("slave", True),
        ("slave,nofailover", True),
        ("master", False),  # the master has no slots, or no longer any
        ("master,fail", False),
        ("master,fail?", False),
        ("slave,fail", False),
        ("handshake", False),
        ("slave,noaddr", False),
    ],
)
def test_a_cluster_is_steady_if_no_node_is_down_or_joining(flags: str, steady: bool) -> None:
    healthy = "a 10.0.0.1:7000@17000 myself,master - 0 0 1 connected 0-16383"
    assert is_steady(f"{healthy}\nb 10.0.0.2:7001@17001 {flags} - 0 0 2 connected\n") is steady


def test_a_cluster_that_does_not_report_its_nodes_counts_as_steady() -> None:
    assert is_steady("")
