"""What a partition of the model holds, and the answers that follow from it: due times, locks, a snapshot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from sbredis.engine import NEVER, Lock, PartitionSettings
from tests.engine.model.values import (
    REAL_BOUNDS,
    Bounds,
    Lane,
    Message,
    MessageLease,
    Session,
    SessionRow,
    Snapshot,
    row,
)
from tests.engine.terms import Condition, Event, Reason, Side, State, split_member

SEATS = {State.ACTIVE: "a", State.HELD: "h", State.DEFERRED: "p", State.SCHEDULED: "s"}


@dataclass(eq=False)
class Store:
    """The data that the partitions of a topic and of its subscriptions share."""

    seq: int = 0
    carriers: list[Contents] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """The stored bytes: each record once, changed properties, and session states."""
        records: dict[int, int] = {}
        beside = 0
        for carrier in self.carriers:
            for message in carrier.everything():
                records[message.store_number] = len(message.record)
                beside += len(message.changes)
            beside += carrier.kept
        return sum(records.values()) + beside


@dataclass
class Contents:
    """The state of one partition."""

    settings: PartitionSettings = field(default_factory=PartitionSettings)
    bounds: Bounds = REAL_BOUNDS
    layout: str = "2"
    exists: bool = False
    incarnation: str = ""
    version: int = 0
    run_id: str = "?"
    clk: int = 0
    offset: int = 0
    store: Store = field(default_factory=Store)
    dead_seq: int = 0
    horizon: int = 0
    # Three times: the first expiry of an active message that is not indexed, the first end of a lease, and the next
    # other event, which follows the plain clock. Each is a lower bound: it may be too early, but never too late.
    head: int = NEVER
    next_lock: int = NEVER
    next_due: int = NEVER
    epoch: bool = False  # whether the running call begins an epoch
    passing: bool = False  # whether the running call is doing due work
    more: bool = False  # whether the running call has used up its share
    messages: dict[Side, dict[int, Message]] = field(default_factory=lambda: {side: {} for side in Side})
    leases: dict[str, MessageLease] = field(default_factory=dict)
    dedup: dict[bytes, int] = field(default_factory=dict)
    lanes: dict[str, Lane] = field(default_factory=dict)
    sessions: dict[str, Session] = field(default_factory=dict)
    touched: set[str] = field(default_factory=set)  # the sessions in which the running call has moved a message
    once: dict[bytes, int] = field(default_factory=dict)  # the ends of the windows of remembered keys
    watermarks: dict[bytes, tuple[int, str]] = field(default_factory=dict)  # each with the number of its last message
    last_sent: int | None = None  # the number of the last message that the present transaction has sent here
    route_fence: int = 0  # of the last holder of the routing role that has published
    granted: int = 0  # the fence of the last lock
    announced: int = NEVER  # the due time that was announced last

    taken: Counter[tuple[Side, State, Event, Condition]] = field(default_factory=Counter)
    transacted: Counter[tuple[Side, State, Event, Condition]] = field(default_factory=Counter)  # in transactions
    refused: Counter[str] = field(default_factory=Counter)
    repeated: int = 0

    def __post_init__(self) -> None:
        self.store.carriers.append(self)

    def _clear(self) -> None:
        fresh = type(self)(
            bounds=self.bounds,
            taken=self.taken,
            transacted=self.transacted,
            refused=self.refused,
            repeated=self.repeated,
        )
        store = self.store
        self.__dict__.update(fresh.__dict__)
        self.store = store
        if store.carriers[0] is self:
            self.store.seq = 0

    @property
    def seq(self) -> int:
        return self.store.seq

    @seq.setter
    def seq(self, seq: int) -> None:
        self.store.seq = seq

    @property
    def bytes(self) -> int:
        return self.store.bytes

    @property
    def kept(self) -> int:
        """The bytes of all session states of the partition."""
        return sum(len(session.state or b"") for session in self.sessions.values())

    def everything(self) -> Iterator[Message]:
        return (message for side in Side for message in self.messages[side].values())

    def _ready(self, side: Side) -> list[Message]:
        active = (message for message in self.messages[side].values() if message.state is State.ACTIVE)
        return sorted(active, key=lambda message: (message.level, message.number))

    def _find(self, names: Iterable[str], state: State) -> tuple[list[Message], tuple[str, ...]]:
        """Return the messages of these names that are in a state, and the names of the others."""
        there = {message.name: message for side in Side for message in self.messages[side].values()}
        found = {name: there[name] for name in names if name in there and there[name].state is state}
        return list(found.values()), tuple(name for name in names if name not in found)

    def _locked(self, lock: Lock, logical: int | None = None) -> Message | None:
        """Return the message if this token locks it, now or at a logical time. An ended lease locks nothing, even
        before it lapses. A message that was renewed alone has two leases, of which one is enough.
        """
        try:
            side, number = split_member(lock.name)
        except ValueError:
            return None
        message = self.messages[side].get(number)
        if message is None or message.state not in (State.LOCKED, State.HELD) or message.token != lock.token:
            return None
        now = self.clk if logical is None else logical
        return message if any(lease.until > now for lease in self._holders(message)) else None

    def _holders(self, message: Message) -> list[MessageLease]:
        """Return the leases of a locked message: that of its token, and its own, as far as they are there."""
        keys = [message.token, message.own_key] if message.alone else [message.token]
        return [self.leases[key] for key in keys if key in self.leases]

    def locked_until(self, message: Message) -> int:
        """Return the end of the lock on a message, on the logical clock."""
        return max(lease.until for lease in self._holders(message))

    def _held(self, key: str) -> list[Message]:
        """Return the messages that a lease still holds, in the order in which they were locked."""
        lease = self.leases[key]
        return [
            one for one in (self.everything() if lease.session is not None else lease.messages) if one.token == key[:11]
        ]

    def _forget_empty_leases(self) -> None:
        """Forget the leases whose messages were settled. Only its lapse ends a lease of many whose time is over."""
        self.leases = {
            key: lease
            for key, lease in self.leases.items()
            if lease.session is not None or self._held(key) or (len(key) == 11 and lease.until <= self.clk)
        }

    def _due(self) -> dict[str, int]:
        """Return the times of the events that follow the plain clock, by the name of the event in ``due``."""
        due = {"b" + name: session.blocked for name, session in self.sessions.items() if session.blocked is not None}
        for message in (message for side in Side for message in self.messages[side].values()):
            if message.due is not None:
                due[message.event("a" if message.state is State.SCHEDULED else "d")] = message.due
            elif message.indexed:
                due[message.event("e")] = message.expires
        return due

    def _next_due(self, now: int, offset: int) -> int:
        """Return the exact time until the next event, in ms of the plain clock; 0 for never."""
        due = self._due()
        expiries = [message.expires for message in self._ready(Side.MAIN)]
        leases = [lease.until - offset for lease in self.leases.values()]
        first = min([*due.values(), *expiries, *leases], default=NEVER)
        return max(1, first - now) if first < NEVER else 0

    def snapshot(self) -> Snapshot:
        """Return the whole state, in a form that can be compared."""
        return Snapshot(
            exists=self.exists,
            version=self.version,
            settings=self._told_settings(),
            main={number: row(message) for number, message in sorted(self.messages[Side.MAIN].items())},
            dead={number: row(message) for number, message in sorted(self.messages[Side.DEAD].items())},
            leases={
                token: (lease.until, frozenset(message.name for message in self._held(token)))
                for token, lease in self.leases.items()
            },
            due=self._due(),
            dedup=dict(self.dedup),
            lanes={name: (lane.number, lane.used) for name, lane in self.lanes.items()},
            bytes=self.bytes,
            seq=self.seq,
            dead_seq=self.dead_seq,
            clk=self.clk,
            offset=self.offset,
            run_id=self.run_id,
            sessions={
                name: SessionRow(one.token, one.state, one.stated, one.blocked, one.barred, one.free)
                for name, one in self.sessions.items()
            },
            seats=frozenset(
                (one.session, SEATS[one.state], one.number)
                for one in self.messages[Side.MAIN].values()
                if one.session is not None
            ),
            kept=self.kept,
            once=dict(self.once),
            watermarks=dict(self.watermarks),
            route_fence=self.route_fence,
            granted=self.granted,
            announced=self.announced,
        )

    def _told_settings(self) -> PartitionSettings:
        """Return the settings; the limits of the store are those of the store's owner."""
        owner = self.store.carriers[0].settings
        if not self.exists:
            return self.settings
        return replace(self.settings, quota=owner.quota, largest_message=owner.largest_message, most_ids=owner.most_ids)

    def describe(self) -> str:
        """Return the snapshot as text for a reader."""
        lines = [
            f"clk {self.clk} offset {self.offset} seq {self.seq} dead {self.dead_seq} bytes {self.bytes}"
            f" horizon {self.horizon} head {self.head} version {self.version}" + ("" if self.exists else " GONE")
        ]
        for message in (self.messages[side][number] for side in Side for number in sorted(self.messages[side])):
            facts = [message.name, message.state.value, f"level {message.level}", f"failures {message.failures}"]
            facts += [f"token {message.token}"] if message.token else []
            facts += [f"due {message.due}"] if message.due is not None else []
            facts += [f"expires {message.expires}"] if message.expires < NEVER else []
            facts += [f"home {message.home}"] if message.home != "a" else []
            facts += ["interrupted"] if message.interrupted else []
            facts += [f"reason {message.letter}"] if message.reason is not Reason.NONE else []
            facts += [f"stored as {message.store_number}"] if message.side is Side.DEAD else []
            lines.append("  " + ", ".join(facts))
        lines += [f"  lease {token} until {lease.until}" for token, lease in self.leases.items()]
        return "\n".join(lines)
