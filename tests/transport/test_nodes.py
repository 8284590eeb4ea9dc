"""The servers of a transport, and which of them serves a slot, while a cluster changes."""

from __future__ import annotations

from functools import partial
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from sbredis.transport import SLOTS, Endpoint, parse_target
from sbredis.transport._nodes import Nodes
from sbredis.transport._replies import Failure, FailureKind
from sbredis.transport._slots import SlotMap
from sbredis.transport._topology import Layout

ENDPOINTS = [Endpoint("10.0.0.1", port) for port in range(7000, 7004)]
A, B, C, D = ENDPOINTS
HALF, LAST = SLOTS // 2, SLOTS - 1
MAPS = [
    SlotMap(ranges)
    for ranges in (
        [],
        [(0, LAST, A)],
        [(0, LAST, B)],
        [(0, HALF, A), (HALF + 1, LAST, B)],
        [(0, HALF, C), (HALF + 1, LAST, B)],  # a failover
        [(0, HALF, B), (HALF + 1, LAST, A)],
        [(0, 99, A), (101, HALF, D), (HALF + 1, LAST, B)],  # a slot without a server
        [(0, 99, A), (0, 99, D)],  # a server without slots
    )
]
OWNERS = [{slot: owner for first, last, owner in each.ranges for slot in range(first, last + 1)} for each in MAPS]
SEEN = (0, 99, 100, 101, HALF, HALF + 1, LAST)


class HandNode:
    """A server whose connections stay open as long as the test says."""

    def __init__(self, kept: set[Endpoint], endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._kept = kept

    def retire(self) -> bool:
        return self.endpoint in self._kept

    def reinstate(self) -> None:
        pass


@settings(max_examples=100)
@given(
    st.lists(
        st.one_of(st.integers(0, len(MAPS) - 1), st.tuples(st.sampled_from(SEEN), st.sampled_from(ENDPOINTS))),
        max_size=10,
    ),
    st.sets(st.sampled_from(ENDPOINTS)),
)
@example([1, (0, A), 1], set())
@example([1, (0, B), 1, 2], set())
@example([3, 4], set())
def test_each_slot_has_the_server_that_was_told_last(
    steps: list[int | tuple[int, Endpoint]], kept: set[Endpoint]
) -> None:
    """Maps, by their place in ``MAPS``, and redirections come in any order. Servers of ``kept`` still owe answers when
    they have no slots.
    """
    make: Any = partial(HandNode, kept)
    nodes = Nodes(parse_target("redis+cluster://10.0.0.1:7000"), make)
    owners: dict[int, Endpoint] = {}
    mended = False
    for step in steps:
        if isinstance(step, tuple):
            slot, endpoint = step
            text = f"{slot} {endpoint.host}:{endpoint.port}"
            assert nodes.redirected(Failure(FailureKind.MOVED, text, endpoint=A)).endpoint == endpoint
            owners[slot], mended = endpoint, True
        else:
            layout = Layout(MAPS[step])
            assert nodes.apply(layout) is (mended or owners != OWNERS[step])
            owners, mended = dict(OWNERS[step]), False
            assert not nodes.apply(layout)
            assert {node.endpoint for node in nodes} <= {*owners.values()} | kept
        assert all(nodes.owner_of(slot) == owners.get(slot) for slot in SEEN)
        assert all(node is nodes.at(node.endpoint) for slot in SEEN if (node := nodes.of_slot(slot)))
        assert sorted(node.endpoint for node in nodes.masters) == sorted({*owners.values()})
        one_of_each = nodes.slots_of_masters
        assert one_of_each.keys() == {*owners.values()}
        assert all(owners[slot] == endpoint for endpoint, slot in one_of_each.items())
