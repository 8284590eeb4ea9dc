"""What goes into the model of a partition, what comes out, and what it is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from sbredis.engine._lifecycle import NEVER, Reason, Side, State, band, member, score

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
    """How much a call does of what it finds to do, before it leaves the rest to others."""

    share: int = 100
    """So many messages of what is due on the way, and five times as many where that is all it does."""
    weight: int = 2 * 1024 * 1024
    """So many bytes of messages that are read for it."""
    purged: int = 4 * 1024 * 1024
    """So many bytes of messages that a purge reads."""
    held: int = 1000
    """So many messages of a session are out at once."""


REAL_BOUNDS = Bounds()


# -- what goes in ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """Who calls, with what knowledge, at which place of which lane, and when."""

    run_id: str = "r1"
    incarnation: str = "i1"
    version: int = 1
    lane: str = ""
    number: int = 0
    now: int = 0
    sound: bool = True
    """Whether its arguments have the form that the operation asks for, as far as this model cannot see it."""


@dataclass(frozen=True)
class Settings:
    """Of the entity; durations in ms."""

    status: str = "Active"
    lock_duration: int = 60_000
    max_delivery_count: int = 10
    time_to_live: int = NEVER
    dead_letter_expired: bool = False
    duplicate_window: int | None = None
    quota: int = 1024 * 1024 * 1024
    largest_message: int = 1024 * 1024
    clock: str = "test"
    shared: bool = False
    sessions: bool = False
    topic: bool = False


class Outgoing(NamedTuple):
    payload: bytes
    time_to_live: int | None = None
    level: int = 0
    message_id: bytes = b""
    due: int | None = None
    origin: str | None = None


class Copy(NamedTuple):
    place: int
    changes: bytes = b""
    dead: bool = False
    time_to_live: int | None = None


class Lock(NamedTuple):
    token: str
    name: str
    changes: bytes = b""
    delay: int = 0


# -- what comes out ----------------------------------------------------------------------------------------------------


class Refused(Exception):  # noqa: N818 - a refusal is an answer, not an error of the model
    """The call was refused, and nothing whatsoever changed."""

    def __init__(self, code: str, detail: str = "") -> None:
        super().__init__(f"{code} {detail}".rstrip())
        self.code = code
        self.detail = detail


@dataclass(frozen=True)
class Delivery:
    name: str
    record: bytes
    failures: int = 0
    reason: str = "-"
    changes: bytes = b""
    state: str = "l"
    expires: int = NEVER


@dataclass(frozen=True)
class Sent:
    first: int
    dropped: int
    more: bool = False
    scheduled: tuple[int, ...] = ()


@dataclass(frozen=True)
class Received:
    messages: tuple[Delivery, ...] = ()
    lock: int = 0  # how long they are locked, from now; 0 where they are deleted or there are none
    due: int = 0  # in how many ms something is due, if nothing is left; 0 for never
    missing: tuple[str, ...] = ()
    left: int = 0  # so many of the last ones asked for found no room
    more: bool = False
    waits: bool = False  # it was given all there was, and waits for more


@dataclass(frozen=True)
class Looked:
    due: int = 0  # in how many ms something is due, if nothing was found; 0 for never
    found: bool = False
    more: bool = False


@dataclass(frozen=True)
class Accepted:
    outcome: str
    session: str = ""
    lock: int = 0
    due: int = 0  # in how many ms something is due, if there is none
    more: bool = False


@dataclass(frozen=True)
class Listed:
    names: tuple[str, ...]
    times: tuple[int, ...] = ()
    onwards: str | None = None
    more: bool = False


@dataclass(frozen=True)
class Told:
    """A number, a truth or bytes, and what every answer says beside."""

    value: Any
    more: bool = False


@dataclass(frozen=True)
class Settled:
    lost: tuple[str, ...] = ()
    unfit: tuple[str, ...] = ()
    more: bool = False


@dataclass(frozen=True)
class Renewed:
    lock: int
    lost: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    more: bool = False


@dataclass(frozen=True)
class Undone:
    missing: tuple[str, ...] = ()
    more: bool = False


@dataclass(frozen=True)
class Purged:
    count: int
    onwards: int | None  # the score where the next step begins; None at the end
    more: bool = False


@dataclass(frozen=True)
class Peeked:
    messages: tuple[Delivery, ...]
    more: bool = False


@dataclass(frozen=True)
class Awoken:
    due: int  # in how many ms something is due; 0 for never
    more: bool = False


@dataclass(frozen=True)
class Counts:
    more: bool
    due: int  # in how many ms something is due; 0 for never
    bytes: int
    last: int
    states: dict[tuple[Side, State], int]


def written_expiry(record: bytes) -> int:
    """When a message expires, as far as its record says it."""
    return int(record[15:28]) if record.startswith(b"x") else NEVER


# -- what is there -----------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Message:
    number: int
    store_number: int
    level: int
    payload: bytes
    time_to_live: int
    record: bytes
    enqueued: int | None = None  # None while it is scheduled
    expires: int = NEVER
    side: Side = Side.MAIN
    state: State = State.NEW
    failures: int = 0
    home: str = "a"
    reason: Reason = Reason.NONE
    changes: bytes = b""
    token: str = ""
    due: int | None = None  # when it is to be activated, or its delay is over
    indexed: bool = False  # its expiry stands in `due`
    session: str | None = None

    @property
    def name(self) -> str:
        return member(self.side, self.number)

    def event(self, letter: str) -> str:
        """What happens to it by the clock, as the keys name it."""
        return f"{letter}{self.side.value}{self.number:012x}"

    @property
    def score(self) -> int:
        return score(band(self.side, self.state, self.level), self.number)

    def enqueue(self, now: int, ceiling: int) -> None:
        """Begin its time to live; the record says so."""
        self.enqueued = now
        self.expires = min(now + min(self.time_to_live, ceiling), NEVER)
        form, end = (b"a", b"") if self.expires == NEVER else (b"x", b"%013d" % self.expires)
        self.record = b"%b%d%013d%b%b" % (form, self.level, now, end, self.payload)

    def delivery(self, state: State = State.LOCKED) -> Delivery:
        expires = self.expires if self.side is Side.MAIN else written_expiry(self.record)
        letter = "g" if self.home == "f" and state is not State.DEFERRED else LETTERS[state]
        return Delivery(self.name, self.record, self.failures, self.reason.value, self.changes, letter, expires)


@dataclass
class MessageLease:
    until: int  # on the logical clock
    messages: list[Message]  # in the order in which they were locked; those still held carry the token
    session: str | None = None  # on which it is a lock; then it holds whatever carries the token


@dataclass
class Session:
    """What there is about a session beside its messages."""

    token: str = ""  # of the lock on it
    waiter: str = ""  # the channel on which who has it waits
    state: bytes | None = None
    stated: int = 0  # when the state was set
    blocked: int | None = None  # until when it gives nothing out
    barred: bool = False  # it is free, but for that
    free: int | None = None  # since when it can be accepted, and has something

    @property
    def trace(self) -> bool:
        """Whether anything is left of it."""
        return bool(self.token) or self.state is not None or self.blocked is not None or self.free is not None


@dataclass
class Lane:
    number: int
    used: int
    again: Callable[[Call], Any]  # how a repetition is answered


class Waiter(NamedTuple):
    side: str  # a side; or s, where sessions are waited for, or h, in one
    until: int  # in hundredths of a second; once woken, when it was
    wanted: int
    woken: bool = False


class Row(NamedTuple):
    """A message in a snapshot."""

    state: State
    level: int
    token: str
    failures: int
    expires: int
    home: str
    reason: str
    changes: bytes
    size: int
    store_number: int
    enqueued: int | None
    record: bytes


class SessionRow(NamedTuple):
    """What there is about a session, in a snapshot."""

    token: str
    waiter: str
    state: bytes | None
    stated: int
    blocked: int | None
    barred: bool
    free: int | None


@dataclass(frozen=True)
class Snapshot:
    """All that is to be told of a partition, for comparison."""

    exists: bool
    version: int
    settings: Settings
    main: dict[int, Row]
    dead: dict[int, Row]
    leases: dict[str, tuple[int, frozenset[str]]]
    due: dict[str, int]
    dedup: dict[bytes, int]
    lanes: dict[str, tuple[int, int]]
    bytes: int
    seq: int
    dead_seq: int
    clk: int
    offset: int
    run_id: str
    waiting: bool
    waiters: dict[str, Waiter]
    sessions: dict[str, SessionRow]
    seats: frozenset[tuple[str, str, int]]
    kept: int
    fence: int
    announced: int


def row(message: Message) -> Row:
    return Row(
        message.state,
        message.level,
        message.token,
        message.failures,
        message.expires,
        message.home,
        message.reason.value,
        message.changes,
        len(message.record),
        message.store_number,
        message.enqueued,
        message.record,
    )
