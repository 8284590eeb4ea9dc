"""The arguments, the answers and the parts of the model of a partition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from sbredis.engine import NEVER, Delivery, PartitionSettings
from tests.engine.terms import Reason, Side, State, band, member, score

MOST = 1000
ROOM = 4 * 1024 * 1024
LETTERS = {
    State.ACTIVE: "a",
    State.LOCKED: "l",
    State.HELD: "l",
    State.DELAYED: "w",
    State.DEFERRED: "f",
    State.SCHEDULED: "s",
}
Mode = Literal["lock", "delete"]


class Bounds(NamedTuple):
    """The amount of due work that a call does before it leaves the rest to later calls."""

    share: int = 100
    """The number of due messages that a call handles; a call that does only due work handles five times as many."""
    weight: int = 2 * 1024 * 1024
    """The bytes of messages that a call reads for due work."""
    purged: int = 4 * 1024 * 1024
    """The bytes of messages that a purge reads."""
    held: int = 1000
    """The number of messages of a session that may be held at the same time."""
    watermarks: int = 10_000
    """The number of watermarks that a partition keeps."""
    remembered: int = 256
    """The number of texts for which a library remembers the results of a fragment. It changes no result."""


REAL_BOUNDS = Bounds()


# -- arguments ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """A call: the caller's knowledge of the entity, the lane and the number of the call, and its time."""

    run_id: str = "r1"
    incarnation: str = "i1"
    version: int = 1
    lane: str = ""
    number: int = 0
    now: int = 0
    sound: bool = True
    """Whether the arguments of the call are well-formed, as far as the model cannot check this itself."""


# -- answers -----------------------------------------------------------------------------------------------------------


class Refused(Exception):  # noqa: N818 - a refusal is an answer, not an error of the model
    """The call was refused, and it changed nothing."""

    def __init__(self, code: str, detail: str = "") -> None:
        super().__init__(f"{code} {detail}".rstrip())
        self.code = code
        self.detail = detail


@dataclass(frozen=True)
class Told:
    """A number, a truth value or bytes, with the fields that every answer has."""

    value: Any
    more: bool = False


@dataclass(frozen=True)
class Counts:
    more: bool
    due: int  # the ms until something is due; 0 for never
    bytes: int
    last: int
    states: dict[tuple[Side, State], int]


def written_expiry(record: bytes) -> int:
    """Return the time of expiry that is written in the record of a message."""
    return int(record[15:28]) if record.startswith(b"x") else NEVER


# -- transactions ------------------------------------------------------------------------------------------------------


class Stored(NamedTuple):
    """The result of a send or a publish: the first number, and the places of the dropped messages."""

    first: int
    dropped: tuple[int, ...]
    scheduled: tuple[int, ...] = ()
    """On a topic: the numbers of the messages that wait."""


@dataclass(frozen=True)
class Transacted:
    results: tuple[Stored | int | tuple[int, tuple[str, ...]] | None, ...]
    """An int is the number that is stored with a watermark. A renewal has the lock duration and the moved messages."""
    more: bool = False


@dataclass(frozen=True)
class TransactedTogether:
    outcomes: tuple[Transacted | Refused, ...]
    more: bool = False


def nothing() -> None:
    """Return no refusal."""


@dataclass(frozen=True)
class Plan:
    """An operation that was checked. It can be carried out alone, or in a transaction."""

    act: Callable[[], Any]
    sound: bool = True
    early: tuple[str, str] | None = None
    """A refusal that takes precedence over the check of the arguments."""
    refusal: tuple[str, str] | None = None
    full: Callable[[], tuple[str, str] | None] = nothing
    """Return the refusal for lack of room, if there is still one after all due work."""
    strict: Callable[[], tuple[str, str] | None] = nothing
    """Return the refusal that only a transaction gives."""
    growth: int = 0
    """The number of bytes that the operation stores."""
    targets: tuple[Any, ...] = ()
    """The subscriptions that get copies."""


@dataclass
class Together:
    """The knowledge that the operations of a transaction share while they are checked."""

    plans: list[Plan] = field(default_factory=list[Plan])
    """The operations that were checked."""
    pending: Counter[int] = field(default_factory=Counter)
    """By store: the bytes that the operations before this one will store."""
    settled: set[tuple[int, str]] = field(default_factory=set)
    """The messages that the operations before this one settle, each with its partition."""
    watermarks: set[tuple[int, bytes]] = field(default_factory=set)
    """The watermarks that the operations before this one advance, each with its partition."""
    marks: dict[int, int] = field(default_factory=dict)
    """By partition: the number of watermarks after the operations before this one."""
    states: dict[tuple[int, str], int] = field(default_factory=dict)
    """The sizes of the session states that the operations before this one set, by partition and session."""
    leaping: dict[int, bool] = field(default_factory=dict)
    """By subscription: whether its next dead letter gets a number after a leap."""


# -- state -------------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Message:
    number: int
    store_number: int
    level: int
    payload: bytes
    time_to_live: int
    record: bytes
    enqueued: int | None = None  # None while the message is scheduled
    expires: int = NEVER
    side: Side = Side.MAIN
    state: State = State.NEW
    failures: int = 0
    lapses: int = 0  # the deliveries that ended with the ends of locks since the last settlement
    suspect: bool = False
    home: str = "a"
    reason: Reason = Reason.NONE
    ended: int = 0  # how many lapses a dead letter had at last
    changes: bytes = b""
    token: str = ""
    alone: bool = False  # whether it has a lease of its own, or had one, because it was renewed alone
    due: int | None = None  # the time when the message is activated, or when its delay ends
    interrupted: bool = False  # whether the last delivery was interrupted
    indexed: bool = False  # whether the expiry of the message is in `due`
    session: str | None = None
    died_as: int | None = None  # the number that a dead letter had before it died
    reached: str = ""  # how far a message that is being spread has come

    @property
    def name(self) -> str:
        return member(self.side, self.number)

    @property
    def own_key(self) -> str:
        """The key of the message's own lease."""
        return self.token + self.name

    @property
    def letter(self) -> str:
        """The reason of a dead letter as its entry has it."""
        return chr(ord("0") + self.ended) if self.reason is Reason.LAPSES else self.reason.value

    @property
    def mark(self) -> str:
        """The lapses as the entry has them."""
        return " " if not self.lapses else "0" if self.suspect and self.lapses == 1 else chr(ord("0") + self.lapses)

    @property
    def size(self) -> int:
        """The bytes that the message takes in a reply."""
        return len(self.record) + len(self.changes)

    def event(self, letter: str) -> str:
        """Return the name in `due` of an event of this message."""
        return f"{letter}{self.side.value}{self.number:012x}"

    @property
    def score(self) -> int:
        return score(band(self.side, self.state, self.level), self.number)

    def enqueue(self, now: int, ceiling: int) -> None:
        """Begin the time to live of the message, and write the time of expiry into the record."""
        self.enqueued = now
        self.expires = min(now + min(self.time_to_live, ceiling), NEVER)
        form, end = (b"a", b"") if self.expires == NEVER else (b"x", b"%013d" % self.expires)
        self.record = b"%b%d%013d%b%b" % (form, self.level, now, end, self.payload)

    def delivery(self, state: State = State.LOCKED) -> Delivery:
        expires = self.expires if self.side is Side.MAIN else written_expiry(self.record)
        letter = "g" if self.home == "f" and state is not State.DEFERRED else LETTERS[state]
        return Delivery(
            self.name,
            self.record,
            self.failures,
            self.letter,
            self.changes,
            letter,
            expires,
            self.interrupted,
            self.died_as,
            self.suspect,
        )


@dataclass
class MessageLease:
    until: int  # the end of the lease, on the logical clock
    messages: list[Message]  # the messages in the order of locking; only those with the token are still held
    session: str | None = None  # the locked session, if any; then the lease holds all messages with the token


@dataclass
class Session:
    """A session: its lock, its state and its delay, but not its messages."""

    token: str = ""  # the token of the lock
    state: bytes | None = None
    stated: int = 0  # the time when the state was set
    blocked: int | None = None  # the time until which the session gives out nothing
    barred: bool = False  # whether the session would be free if it were not blocked
    free: int | None = None  # the time since which the session has been free and had a message

    @property
    def trace(self) -> bool:
        """Whether the session has left any trace."""
        return bool(self.token) or self.state is not None or self.blocked is not None or self.free is not None


@dataclass
class Lane:
    number: int
    used: int
    again: Callable[[Call], Any]  # returns the answer to a repetition


class Row(NamedTuple):
    """A message in a snapshot."""

    state: State
    level: int
    token: str
    alone: bool
    failures: int
    mark: str
    expires: int
    home: str
    reason: str
    changes: bytes
    size: int
    store_number: int
    died_as: int | None
    enqueued: int | None
    record: bytes
    reached: str


class SessionRow(NamedTuple):
    """A session in a snapshot, without its messages."""

    token: str
    state: bytes | None
    stated: int
    blocked: int | None
    barred: bool
    free: int | None


@dataclass(frozen=True)
class Snapshot:
    """The state of a partition, with all the data that is compared."""

    exists: bool
    version: int
    settings: PartitionSettings
    main: dict[int, Row]
    dead: dict[int, Row]
    leases: dict[str, tuple[int, frozenset[str]]]
    due: dict[str, int]
    dedup: dict[bytes, int]
    once: dict[bytes, int]
    watermarks: dict[bytes, tuple[int, str]]
    lanes: dict[str, tuple[int, int]]
    bytes: int
    seq: int
    dead_seq: int
    clk: int
    offset: int
    run_id: str
    sessions: dict[str, SessionRow]
    seats: frozenset[tuple[str, str, int]]
    kept: int
    route_fence: int
    granted: int
    announced: int


def row(message: Message) -> Row:
    return Row(
        message.state,
        message.level,
        message.token,
        message.alone,
        message.failures,
        message.mark,
        message.expires,
        {"a": "i", "f": "g"}[message.home] if message.interrupted else message.home,
        message.letter,
        message.changes,
        len(message.record),
        message.store_number,
        message.died_as,
        message.enqueued,
        message.record,
        message.reached,
    )
