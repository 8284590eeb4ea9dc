"""The content of a partition's keys: a check of its invariants, and its conversion to a snapshot of the model."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from sbredis.engine import NEVER, PartitionSettings, Record, read_record
from sbredis.engine._keys import KINDS, STORE_KINDS
from sbredis.engine._settings import SETTINGS
from tests.engine.model import Model, Row, SessionRow, Snapshot
from tests.engine.terms import BAND_WIDTH, Side, State, split_member, split_score, state_of_band
from tests.stored_settings import settings_of

SORTED = ("order", "locks", "due", "dedup", "sessions", "turns", "once", "grants", "kept")
HASHES = tuple(kind not in SORTED for kind in KINDS)
BLANK = " " * 11
SENTINEL, SENTINEL_SCORE = b"0" * 65, 31 * BAND_WIDTH
"""The sentinel that every partition has: a member of `order` and a field of `entries` that is no message."""

_WHOLE = re.compile(rb"0|-?[1-9][0-9]{0,15}")
_ENTRY = re.compile(
    rb"([A-Za-z0-9_-]{11}[ 0->`p-~]| {11}[ 0->])([0-7])([afig])([-1->ATMFS])([0-9]{5})([0-9]{13})([1-9][0-9]*);"
    rb"([1-9][0-9]*|);([1-9][0-9]*|);(.*)",
    re.DOTALL,
)
_LEASE = re.compile(rb"([0-9]+) ([1-9][0-9]*) \+?(d?[0-9]+(?:-[0-9]+)?(?:,d?[0-9]+(?:-[0-9]+)?)*)")
_SESSION_LOCK = re.compile(rb"([0-9]+) 0 @(.*)", re.DOTALL)
_SEAT = re.compile(rb"([^\xff]*)\xff([ahps])([0-9a-f]{12})", re.DOTALL)
_LETTERS = {State.ACTIVE: "a", State.HELD: "h", State.DEFERRED: "p", State.SCHEDULED: "s"}
_DUE = re.compile(r"[ade][dt]?[0-9a-f]{12}")
_RUN = re.compile(r"([dt]?)([0-9]+)(?:-([0-9]+))?")
_STORE = {"layout", "seq", "bytes", "quota", "largest", "most_ids", "used"}
_MARKS = "offset", "dead_seq", "head", "horizon", "next_lock", "next_due", "biggest", "announced"
_STATE = {
    *_MARKS,
    *({setting.stored for setting in SETTINGS.values()} - _STORE),
    *("layout", "incarnation", "version", "status", "clock", "run_id", "clk", "lock", "deliveries", "ttl"),
    *("dead", "window", "shared", "sessions", "topic", "kept", "credit", "route_fence", "channel"),
    *("once_bytes", "once_forgotten", "settlements", "leaps"),
    *("birth", "granted", "used", "calling", "called", "pin"),
}
_KIND_OF_DUE = {"a": State.SCHEDULED, "d": State.DELAYED, "e": State.ACTIVE}


class Entry(NamedTuple):
    token: str
    alone: bool
    mark: str
    level: int
    home: str
    reason: str
    failures: int
    expires: int
    size: int
    store_number: int | None
    before: int | None
    changes: bytes


class MessageLease(NamedTuple):
    until: int
    left: int
    names: tuple[str, ...]
    session: str | None = None


@dataclass(frozen=True)
class Picture:
    """The content of the keys, by kind. Two pictures are compared by the replies, and only what is used is read."""

    replies: tuple[dict[bytes, bytes], ...]
    """The replies for the keys, in their order."""

    @property
    def keys(self) -> int:
        """The number of keys that exist."""
        return sum(map(bool, self.replies))

    @cached_property
    def hashes(self) -> dict[str, dict[bytes, bytes]]:
        return {kind: reply for kind, reply in zip(KINDS, self.replies, strict=True) if kind not in SORTED}

    @cached_property
    def sets(self) -> dict[str, dict[bytes, int]]:
        by_kind = dict(zip(KINDS, self.replies, strict=True))
        return {kind: {member: whole(score) for member, score in by_kind[kind].items()} for kind in SORTED}

    @cached_property
    def state(self) -> dict[str, bytes]:
        """The fields of the key `state`, with the words of the fields `settings` and `marks` in their places."""
        fields = {name.decode(): value for name, value in self.hashes["state"].items()}
        if not fields:
            return fields
        marks = dict(zip(_MARKS, fields.pop("marks").split(), strict=True))
        return fields | settings_of(fields.pop("settings")) | marks

    @cached_property
    def store(self) -> dict[str, bytes]:
        return {name.decode(): value for name, value in self.hashes["store"].items()}

    @cached_property
    def leases(self) -> dict[str, MessageLease]:
        return {token.decode(): _lease(text) for token, text in self.hashes["leases"].items()}

    @cached_property
    def messages(self) -> list[Standing]:
        """Every message, after a check of each one."""
        return standing(self)

    @cached_property
    def records(self) -> dict[int, bytes]:
        """All records by number; no number is in two hashes, because each number belongs to one hash."""
        found: dict[int, bytes] = {}
        for place in range(16):
            for field, record in self.hashes[f"m{place}"].items():
                number = whole(field)
                assert number // 4096 % 16 == place, f"the record of {number} is in m{place}"
                found[number] = record
        return found


def whole(text: bytes) -> int:
    """Return a number, after a check that its text has only decimal digits."""
    assert _WHOLE.fullmatch(text), f"{text!r} is no whole number"
    return int(text)


def _entry(text: bytes) -> Entry:
    match = _ENTRY.fullmatch(text)
    assert match, f"{text!r} is no entry"
    token, home, reason = (match[place].decode() for place in (1, 3, 4))
    number, before = (int(match[place]) if match[place] else None for place in (8, 9))
    alone = ord(token[11]) >= 96
    return Entry(
        token[:11],
        alone,
        chr(ord(token[11]) - 64) if alone else token[11],
        int(match[2]),
        home,
        reason,
        int(match[5]),
        int(match[6]),
        int(match[7]),
        number,
        before,
        match[10],
    )


def _lease(text: bytes) -> MessageLease:
    lock = _SESSION_LOCK.fullmatch(text)
    if lock:
        return MessageLease(whole(lock[1]), 0, (), lock[2].decode())
    match = _LEASE.fullmatch(text)
    assert match, f"{text!r} is no lease"
    return MessageLease(whole(match[1]), whole(match[2]), tuple(_named(match[3].decode())))


def _named(runs: str) -> Iterator[str]:
    for side, first, last in _RUN.findall(runs):
        yield from (f"{side}{number}" for number in range(int(first), int(last or first) + 1))


class Standing(NamedTuple):
    """A message, as stored in the keys."""

    side: Side
    number: int
    state: State
    entry: Entry | None
    store_number: int
    record: bytes
    read: Record
    level: int
    expires: int
    reached: str
    """How far the message has come, if it is being spread."""

    @property
    def name(self) -> str:
        return f"{self.side.value}{self.number}"

    def event(self, letter: str) -> str:
        """Return the name in `due` of an event of this message; the letter says which event it is."""
        return f"{letter}{self.side.value}{self.number:012x}"

    @property
    def changes(self) -> bytes:
        return self.entry.changes if self.entry else b""

    @property
    def row(self) -> Row:
        blank = Entry(BLANK, False, " ", self.level, "a", "-", 0, self.expires, len(self.record), None, None, b"")
        entry = self.entry or blank
        return Row(
            self.state,
            self.level,
            entry.token.strip(),
            entry.alone,
            entry.failures,
            entry.mark,
            self.expires,
            entry.home,
            entry.reason,
            entry.changes,
            entry.size,
            self.store_number,
            None if self.side is Side.MAIN else entry.before or self.store_number,
            self.read.enqueued,
            self.record,
            self.reached,
        )


def standing(picture: Picture) -> list[Standing]:
    """Return every message, after a check of each one."""
    records = picture.records
    order, texts = dict(picture.sets["order"]), dict(picture.hashes["entries"])
    sentinel = order.pop(SENTINEL, None), texts.pop(SENTINEL, None)
    assert sentinel == (SENTINEL_SCORE, b""), f"the sentinel is {sentinel}"
    spread = {name.decode()[1:]: texts.pop(name).decode() for name in list(texts) if name.startswith(b">")}
    entries = {name.decode(): _entry(text) for name, text in texts.items()}
    shared = picture.state["shared"] == b"1"
    found: list[Standing] = []
    for raw, score in order.items():
        name = raw.decode()
        side, number = split_member(name)
        of, in_band = split_score(score)
        band_side, state, band_level = state_of_band(of)
        assert (band_side, in_band) == (side, number), f"{name} is in band {of} as {in_band}"
        entry = entries.pop(name, None)
        store_number = (entry and entry.store_number) or number
        assert store_number in records, f"{name} has no record"
        record = records[store_number]
        read = read_record(record)
        if side is Side.DEAD:
            level, expires = 0, NEVER
        else:
            level, expires = read.level, read.expires
            if shared and entry:
                # A rule may have changed the time to live of a copy.
                longer = entry.expires > expires and not entry.changes
                assert not longer, f"{name} lives longer than its record: {entry}"
                expires = entry.expires
        one = Standing(side, number, state, entry, store_number, record, read, level, expires, spread.pop(name, ""))
        _check_entry(one, shared=shared)
        assert band_level == (level if state is State.ACTIVE else 0), f"{name} is at level {band_level}"
        waits = state is State.SCHEDULED and not one.reached
        assert waits is (record[:1] == b"s"), f"{name}: {record[:1]!r} is {state.value}"
        assert state is State.SCHEDULED or not one.reached, f"{name} is {state.value}, and has reached {one.reached}"
        found.append(one)
    assert not entries, f"entries without a message: {sorted(entries)}"
    assert not spread, f"spread, and not there: {spread}"
    return found


def check_store(pictures: Sequence[Picture]) -> None:
    """Check the invariants of a store and all partitions that use it."""
    there = [picture for picture in pictures if picture.state]
    if not there or not there[0].store:
        return
    messages = [one for picture in there for one in picture.messages]
    carried = Counter(one.store_number for one in messages)
    records, store = there[0].records, there[0].store
    assert set(carried) == set(records), f"stored is {sorted(records)}, referred to {sorted(carried)}"
    refs = {whole(number): whole(count) for number, count in there[0].hashes["refs"].items()}
    assert refs == {number: count for number, count in carried.items() if count > 1}, f"refs {refs}, carried {carried}"
    held = sum(map(len, records.values())) + sum(len(one.changes) for one in messages)
    held += sum(whole(picture.state["kept"]) for picture in there)
    assert whole(store["bytes"]) == held, f"bytes: {store['bytes']!r}, not {held}"


def _check_entry(one: Standing, *, shared: bool) -> None:
    """Check that a message has an entry only if needed, and that the entry agrees with the record and the state."""
    name, entry, state = one.name, one.entry, one.state
    if entry is None:
        assert one.side is Side.MAIN, f"{name} needs an entry"
        assert state in (State.ACTIVE, State.SCHEDULED), f"{name} is {state.value} and has no entry"
        return
    assert state is not State.SCHEDULED, f"{name} is scheduled and has an entry"
    out = state in (State.LOCKED, State.HELD)
    assert (entry.token != BLANK) is out, f"{name} is {state.value} under {entry.token!r}"
    assert (entry.level, entry.expires) == (one.level, one.expires), f"{name}: {entry}"
    assert entry.size == len(one.record), f"{name} has {len(one.record)} bytes, not {entry.size}"
    if one.side is Side.MAIN and shared and entry.store_number is not None:
        assert entry.store_number < one.number, f"{name} is no further copy: {entry}"
    else:
        assert (entry.store_number is None) is (one.side is Side.MAIN), f"{name}: {entry}"
    assert (entry.reason == "-") is (one.side is Side.MAIN), f"{name}: {entry}"
    assert entry.before is None or (one.side is Side.DEAD and entry.before > one.store_number), f"{name}: {entry}"
    assert (entry.home in "fg") >= (state is State.DEFERRED), f"{name}: {entry}"
    assert state is not State.ACTIVE or entry.home in "ai", f"{name}: {entry}"
    if one.side is Side.MAIN and state is State.ACTIVE and not shared:
        assert entry.failures or entry.changes or entry.home == "i", f"{name} needs no entry: {entry}"


def check(picture: Picture) -> list[Standing]:
    """Check the invariants of the keys of a partition. Return its messages."""
    state, store = picture.state, picture.store
    if not state:
        left = {kind: held for kind, held in (*picture.hashes.items(), *picture.sets.items()) if held}
        # The store of a subscription stays: it belongs to the topic.
        assert not set(left) - (set(STORE_KINDS) if store else set()), f"left of a destroyed partition: {left}"
        return []
    assert set(state) == _STATE, f"state: {set(state) ^ _STATE}"
    assert set(store) == _STORE, f"store: {set(store) ^ _STORE}"
    messages = picture.messages
    _check_leases(picture, messages)
    _check_due(picture, messages)
    _check_sessions(picture, messages)
    assert whole(state["biggest"]) >= max((len(one.record) + len(one.changes) for one in messages), default=0)
    for side, last in ((Side.MAIN, store["seq"]), (Side.DEAD, state["dead_seq"])):
        assert whole(last) >= max((one.number for one in messages if one.side is side), default=0)
    assert whole(state["once_bytes"]) == sum(map(len, picture.sets["once"])), f"once: {picture.sets['once']}"
    assert state["once_forgotten"] == b"0", "keys were forgotten too early"
    return messages


def _check_leases(picture: Picture, messages: Sequence[Standing]) -> None:
    held: dict[str, list[str]] = {}
    for one in messages:
        if one.entry and one.state in (State.LOCKED, State.HELD):
            held.setdefault(one.entry.token, []).append(one.name)
    leases = picture.leases
    on_sessions = {token for token, lease in leases.items() if lease.session is not None}
    own = {one.entry.token + one.name for one in messages if one.entry and one.entry.alone}
    shared = {key for key in leases if len(key) == 11}
    assert set(leases) - shared <= own, f"leases {sorted(leases)}, of single messages {sorted(own)}"
    for one in messages:
        if one.entry and one.entry.token != BLANK:
            assert one.entry.token in leases or one.entry.token + one.name in leases, f"{one.name}: {one.entry}"
    for one in messages:
        assert (
            not one.entry or one.entry.token == BLANK or (one.entry.token in on_sessions) is (one.state is State.HELD)
        )
    for token, lease in leases.items():
        if lease.session is not None:
            continue
        assert len(set(lease.names)) == len(lease.names), f"{token}: {lease}"
        if token not in shared:
            assert (lease.left, lease.names) == (1, (token[11:],)), f"{token}: {lease}"
        elif lease.until > whole(picture.state["clk"]):  # the lapse of a lease ignores what it still holds
            assert lease.left == len(held[token]), f"{token}: {lease}, held {held[token]}"
            assert set(held[token]) <= set(lease.names), f"{token}: {lease}, held {held[token]}"
    locks = {token.decode(): until for token, until in picture.sets["locks"].items()}
    assert locks == {token: lease.until for token, lease in leases.items()}
    first = min((lease.until for lease in leases.values()), default=NEVER)
    assert whole(picture.state["next_lock"]) <= first, f"next_lock {picture.state['next_lock']!r}, ends at {first}"


def _check_due(picture: Picture, messages: Sequence[Standing]) -> None:
    by_name = {one.name: one for one in messages}
    due = {entry.decode(): time for entry, time in picture.sets["due"].items()}
    for entry, time in due.items():
        if entry[0] == "b":
            continue  # see _check_sessions
        assert _DUE.fullmatch(entry), f"{entry!r} in `due` is no event"
        one = by_name.get(f"{entry[1:-12]}{int(entry[-12:], 16)}")
        assert one is not None, f"{entry} in `due` belongs to no message"
        assert one.state is _KIND_OF_DUE[entry[0]], f"{entry} in `due` is {one.state.value}"
        assert entry[0] != "e" or time == one.expires, f"{entry} at {time}, expires {one.expires}"
        assert entry[0] != "d" or time <= one.expires, f"{entry} at {time}, expires {one.expires}"
    for one in messages:
        for letter, state in (("a", State.SCHEDULED), ("d", State.DELAYED)):
            assert (one.state is state) is (one.event(letter) in due), f"{one.name} is {one.state.value}: {due}"
    # A message that is scheduled on a topic and is due waits for a client that publishes it.
    # On a topic the bound is the due time of the next scheduled message.
    first = min(due.values(), default=NEVER) if picture.state["topic"] == b"0" else NEVER
    assert whole(picture.state["next_due"]) <= first, f"next_due {picture.state['next_due']!r}, due {first}"
    # Pinned messages do not expire. They are the ready messages up to a number.
    pinned = pinned_up_to(picture)
    pin = {one for one in messages if (one.side, one.state) == (Side.MAIN, State.ACTIVE) and one.number <= pinned}
    assert not any(one.event("e") in due for one in pin), f"events of messages up to {pinned} in {due}"
    unseen = [
        one.expires for one in messages if one.state is State.ACTIVE and one.event("e") not in due and one not in pin
    ]
    head = min(unseen, default=NEVER)
    assert whole(picture.state["head"]) <= head, f"head {picture.state['head']!r}, expires {head}"
    announced, soonest = whole(picture.state["announced"]), _soonest(picture)
    assert announced <= soonest, f"announced for {announced}, and something may be due at {soonest}"


def pinned_up_to(picture: Picture) -> int:
    """Return the number of the last pinned message; 0 if the partition is not reserved."""
    words = picture.state["pin"].split()
    return whole(words[3]) if words and picture.state["reserved"] == b"1" else 0


def _soonest(picture: Picture) -> int:
    """Return the earliest time at which an event may be due; on a topic also that of a message that is due."""
    next_due, head, next_lock, offset = (
        whole(picture.state[name]) for name in ("next_due", "head", "next_lock", "offset")
    )
    if picture.state["topic"] == b"1" and next_due == NEVER:
        next_due = NEVER - bool(picture.sets["due"])  # a message that is due waits, and is not forgotten
    return min(next_due, head, max(0, next_lock - offset) if next_lock < NEVER else NEVER)


def _check_sessions(picture: Picture, messages: Sequence[Standing]) -> None:
    """Check that the index of sessions agrees with `order`, and that all keys agree about locks."""
    seats = picture.sets["sessions"]
    assert set(seats.values()) <= {0}, f"scores in `sessions`: {seats}"
    sessions = _sessions(picture)
    if picture.state["sessions"] == b"0":
        found = (seats, picture.sets["turns"], picture.hashes["states"])
        assert found == ({}, {}, {}), f"sessions where there are none: {found}"
        return
    stated = {name.encode() + b"\xffk" for name, one in sessions.items() if one[1] is not None}
    names = {(letter, number) for _, letter, number in _seats(picture)}
    standing_there = {(_LETTERS[one.state], one.number) for one in messages if one.side is Side.MAIN}
    assert names == standing_there, f"in `sessions`: {names}, in `order`: {standing_there}"
    assert {seat for seat in seats if not _SEAT.fullmatch(seat)} == stated, f"{seats}, stated {stated}"
    locks = {lease.session: token for token, lease in picture.leases.items() if lease.session is not None}
    assert locks == {name: one[0] for name, one in sessions.items() if one[0]}, f"{locks}, {sessions}"
    assert whole(picture.state["kept"]) == sum(len(one[1] or b"") for one in sessions.values())


def _seats(picture: Picture) -> frozenset[tuple[str, str, int]]:
    matches = (_SEAT.fullmatch(seat) for seat in picture.sets["sessions"])
    return frozenset((match[1].decode(), match[2].decode(), int(match[3], 16)) for match in matches if match)


def _sessions(picture: Picture) -> dict[str, SessionRow]:
    """Return the data of each session besides its messages, collected from all keys."""
    states, turns = picture.hashes["states"], picture.sets["turns"]
    names = {key[1:] for key in (*states, *turns)}
    found: dict[str, SessionRow] = {}
    used = 0
    for name in names:
        band, time = divmod(turns.get(b"s" + name, -1), BAND_WIDTH)
        token, state, blocked = (states.get(letter + name) for letter in (b"!", b"=", b"~"))
        stated = turns.get(b"t" + name)
        used += sum(value is not None for value in (token, state, blocked))
        assert (stated is None) is (state is None), f"{name!r}: state {state!r}, set at {stated}"
        assert stated is None or stated >= 4 * BAND_WIDTH
        assert (token is not None) is (band == 1), f"{name!r} is locked by {token!r}, in band {band}"
        assert band != 3 or whole(blocked or b"") == time, f"{name!r} is blocked until {blocked!r}, {time}"
        assert (blocked is None) is (b"b" + name not in picture.sets["due"])
        assert blocked is None or picture.sets["due"][b"b" + name] == whole(blocked)
        found[name.decode()] = SessionRow(
            (token or b"").decode(),
            state,
            0 if stated is None else stated - 4 * BAND_WIDTH,
            None if blocked is None else whole(blocked),
            band == 3,
            time if band == 0 else None,
        )
    assert used == len(states), f"states: {states}"
    assert {entry[1:] for entry in picture.sets["due"] if entry[:1] == b"b"} <= names
    return found


def told(picture: Picture) -> Snapshot:
    """Return a checked picture as a snapshot of the model."""
    messages = check(picture)
    state, store = picture.state, picture.store
    if not state:
        blank = Model().snapshot()
        # The rest of the store belongs to the topic, whose snapshot shows it.
        return replace(blank, bytes=whole(store["bytes"]), seq=whole(store["seq"])) if store else blank
    leases = picture.leases
    return Snapshot(
        exists=True,
        version=whole(state["version"]),
        settings=_settings(state, store),
        main={one.number: one.row for one in messages if one.side is Side.MAIN},
        dead={one.number: one.row for one in messages if one.side is Side.DEAD},
        leases={
            token: (
                lease.until,
                frozenset(
                    one.name
                    for one in messages
                    if one.entry
                    and one.entry.token == token[:11]
                    and (lease.session is not None or one.name in lease.names)
                ),
            )
            for token, lease in leases.items()
        },
        due={entry.decode(): time for entry, time in picture.sets["due"].items()},
        dedup=dict(picture.sets["dedup"]),
        lanes={lane.decode(): _lane(text) for lane, text in picture.hashes["ops"].items()},
        bytes=whole(store["bytes"]),
        seq=whole(store["seq"]),
        dead_seq=whole(state["dead_seq"]),
        clk=whole(state["clk"]),
        offset=whole(state["offset"]),
        run_id=state["run_id"].decode(),
        sessions=_sessions(picture),
        seats=_seats(picture),
        kept=whole(state["kept"]),
        once=dict(picture.sets["once"]),
        watermarks=_watermarks(picture),
        route_fence=whole(state["route_fence"]),
        granted=whole(state["granted"]),
        announced=whole(state["announced"]),
    )


def _watermarks(picture: Picture) -> dict[bytes, tuple[int, str]]:
    """Return the watermarks, whose number is stored with them."""
    lasting = picture.hashes["lasting"]
    found: dict[bytes, tuple[int, str]] = {}
    for field, text in lasting.items():
        if field.startswith(b"w:"):
            number, _, value = text.decode().partition(" ")
            found[field[2:]] = whole(number.encode()), value
    assert whole(lasting.get(b"watermarks", b"0")) == len(found), f"lasting: {lasting}"
    return found


def _settings(state: dict[str, bytes], store: dict[str, bytes]) -> PartitionSettings:
    found: dict[str, Any] = {}
    for name, setting in SETTINGS.items():
        text = (store if setting.with_records else state)[setting.stored]
        if setting.words:
            found[name] = text.decode()
        elif setting.least is None:
            found[name] = bool(whole(text))
        else:
            found[name] = whole(text) if text or not setting.optional else None
    return PartitionSettings(**found)


def _lane(text: bytes) -> tuple[int, int]:
    number, used, _ = text.split(b" ", 2)
    return whole(number), whole(used)
