"""Hash slots, and the servers that serve them. Pure: nothing here awaits or opens anything."""

from __future__ import annotations

from array import array
from binascii import crc_hqx
from collections.abc import Iterable
from typing import Any

from sbredis.transport._address import Endpoint

__all__ = [
    "SLOTS",
    "SlotMap",
    "is_steady",
    "key_slot",
    "parse_cluster_slots",
    "parse_redirection",
    "replica_counts",
]

SLOTS = 16384


def key_slot(key: bytes) -> int:
    """Return the hash slot of a key: CRC16 of its hash tag, or of the whole key if it has none."""
    start = key.find(b"{")
    if start >= 0:
        end = key.find(b"}", start + 1)
        if end > start + 1:
            key = key[start + 1 : end]
    return crc_hqx(key, 0) % SLOTS


class SlotMap:
    """The endpoint of each slot, as far as it is known.

    It is kept as numbers in an array: the garbage collector would look at each of 16,384 references again and again.
    """

    __slots__ = ("number_of", "numbers", "ranges")

    def __init__(self, ranges: Iterable[tuple[int, int, Endpoint]] = ()) -> None:
        self.ranges = list(ranges)
        """The first slot, the last slot and the endpoint of each range. Where two ranges overlap, the later one counts.
        """
        named = 0
        for first, last, _ in self.ranges:
            if not 0 <= first <= last < SLOTS:
                raise ValueError(f"slots {first} to {last} are outside 0 to {SLOTS - 1}")
            named += last - first + 1
            if named > SLOTS:
                raise ValueError("a slot is named twice")
        endpoints = sorted({endpoint for _, _, endpoint in self.ranges})
        self.number_of = {endpoint: number for number, endpoint in enumerate(endpoints, 1)}
        """The numbers of the endpoints, from 1."""
        self.numbers = array("H", bytes(2 * SLOTS))
        """For each slot, the number of its endpoint; 0 if the slot has no server."""
        for first, last, endpoint in self.ranges:
            self.numbers[first : last + 1] = array("H", (self.number_of[endpoint],)) * (last - first + 1)

    @classmethod
    def whole(cls, endpoint: Endpoint) -> SlotMap:
        """Return the map of one server that has all slots."""
        return cls([(0, SLOTS - 1, endpoint)])

    @property
    def masters(self) -> frozenset[Endpoint]:
        """The endpoints that serve slots."""
        return frozenset(
            endpoint
            for first, last, endpoint in self.ranges
            if self.number_of[endpoint] in self.numbers[first : last + 1]
        )


def parse_cluster_slots(reply: Any, asked: Endpoint) -> SlotMap:
    """Return the slot map from the answer of ``asked`` to CLUSTER SLOTS.

    A server that does not know its own address gives an empty address. Then the address at which the server was asked
    is used. ``?`` marks a node whose address is configured to be hidden and is not yet known.
    """
    ranges: list[tuple[int, int, Endpoint]] = []
    try:
        for first, last, master, *_ in reply:
            host = _text(master[0])
            if host == "?":
                continue
            ranges.append((int(first), int(last), Endpoint(host or asked.host, int(master[1]))))
        return SlotMap(ranges)
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        raise ValueError(f"CLUSTER SLOTS of {asked} is malformed: {error}") from error


def replica_counts(nodes: str, asked: Endpoint) -> dict[Endpoint, int]:
    """Return the number of replicas of each master, dead ones included, from the text of CLUSTER NODES.

    A master with a host name is in the result twice, because the cluster's configuration decides which of its two
    addresses the slot map gives. Dead replicas are counted on purpose: in a split network, a replica that is dead for
    one side may be the next master on the other side.
    """
    masters: dict[str, list[Endpoint]] = {}
    of_master: dict[str, int] = {}
    for line in nodes.splitlines():
        fields = line.split()
        if len(fields) < 8:
            continue
        identity, address, flags, master = fields[:4]
        roles = flags.split(",")
        if "master" in roles:
            masters[identity] = _names(address, asked)
        elif "slave" in roles or "replica" in roles:
            of_master[master] = of_master.get(master, 0) + 1
    return {name: of_master.get(identity, 0) for identity, names in masters.items() for name in names}


def is_steady(nodes: str) -> bool:
    """Whether the text of CLUSTER NODES shows no node that is down or joining, so that no failover is under way. A
    master without slots counts as well: it may have just been replaced, and not be a replica yet.
    """
    for line in nodes.splitlines():
        fields = line.split()
        if len(fields) < 8:
            continue
        flags = set(fields[2].split(","))
        if flags & {"fail", "fail?", "handshake", "noaddr"} or ("master" in flags and len(fields) == 8):
            return False
    return True


def parse_redirection(detail: str, asked: Endpoint) -> tuple[int, Endpoint]:
    """Return slot and endpoint from the text after MOVED or ASK, such as ``3999 127.0.0.1:6381``."""
    slot, _, address = detail.partition(" ")
    number = int(slot)
    if not 0 <= number < SLOTS:
        raise ValueError(f"slot {number}")
    return number, _endpoint(address.split(" ")[0], asked)


def _names(address: str, asked: Endpoint) -> list[Endpoint]:
    """Return the addresses that the slot map may give a node, from ``ip:port@busport[,hostname[,…]]``."""
    where, hostname, *_ = [*address.split(","), ""]
    try:
        endpoint = _endpoint(where.split("@")[0], asked)
    except ValueError:
        return []  # the node has no address at the moment
    return [endpoint, Endpoint(hostname, endpoint.port)] if hostname and "=" not in hostname else [endpoint]


def _endpoint(address: str, asked: Endpoint) -> Endpoint:
    host, _, port = address.rpartition(":")
    if host == "?":
        raise ValueError(f"the address of the node is not known: {address}")
    return Endpoint(host or asked.host, int(port))


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value.decode() if isinstance(value, bytes) else str(value)
