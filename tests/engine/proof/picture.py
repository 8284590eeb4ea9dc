"""What the keys of a partition hold, checked for what must always be true of it, and told as the model tells it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from sbredis.engine._keys import KINDS
from sbredis.engine._lifecycle import BAND_WIDTH, NEVER, Side, State, split_member, split_score, state_of_band
from sbredis.engine._results import Record, read_record
from tests.engine.model import Model, Row, Settings, Snapshot, Waiter

SORTED = ("order", "locks", "due", "dedup", "waiters")
HASHES = tuple(kind not in SORTED for kind in KINDS)
BLANK = " " * 12
SENTINEL, SENTINEL_SCORE = b"0" * 65, 31 * BAND_WIDTH
"""What stands in `order` and in `entries` of every partition and is no message."""

_WHOLE = re.compile(rb"0|-?[1-9][0-9]{0,15}")
_ENTRY = re.compile(
    rb"([A-Za-z0-9_-]{12}| {12})([0-7])([af])([-ATM])([0-9]{5})([0-9]{13})([1-9][0-9]*);([1-9][0-9]*|);(.*)", re.DOTALL
)
_LEASE = re.compile(rb"([0-9]+) ([1-9][0-9]*) (d?[0-9]+(?:-[0-9]+)?(?:,d?[0-9]+(?:-[0-9]+)?)*)")
_RUN = re.compile(r"(d?)([0-9]+)(?:-([0-9]+))?")
_STATE = {
    *("layout", "incarnation", "version", "status", "clock", "run_id", "offset", "clk", "lock", "deliveries", "ttl"),
    *("dead", "window", "dead_seq", "head", "horizon", "shared", "next_lock", "next_due", "waiting", "biggest"),
}
_STORE = {"layout", "seq", "bytes", "quota", "largest"}
_KIND_OF_DUE = {"s": State.SCHEDULED, "w": State.DELAYED, "e": State.ACTIVE}


class Entry(NamedTuple):
    token: str
    level: int
    home: str
    reason: str
    failures: int
    expires: int
    size: int
    store_number: int | None
    changes: bytes


class Lease(NamedTuple):
    until: int
    left: int
    names: tuple[str, ...]


@dataclass(frozen=True)
class Picture:
    """The keys, by kind."""

    hashes: dict[str, dict[bytes, bytes]]
    sets: dict[str, dict[bytes, int]]

    @staticmethod
    def of(replies: Sequence[dict[bytes, bytes]]) -> Picture:
        """From what the keys hold, in their order."""
        by_kind = dict(zip(KINDS, replies, strict=True))
        return Picture(
            {kind: by_kind[kind] for kind in KINDS if kind not in SORTED},
            {kind: {member: whole(score) for member, score in by_kind[kind].items()} for kind in SORTED},
        )

    @property
    def keys(self) -> int:
        """How many of the keys there are."""
        return sum(1 for held in chain(self.hashes.values(), self.sets.values()) if held)

    @property
    def state(self) -> dict[str, bytes]:
        return {name.decode(): value for name, value in self.hashes["state"].items()}

    @property
    def store(self) -> dict[str, bytes]:
        return {name.decode(): value for name, value in self.hashes["store"].items()}

    @property
    def leases(self) -> dict[str, Lease]:
        return {token.decode(): _lease(text) for token, text in self.hashes["leases"].items()}

    @property
    def records(self) -> dict[int, bytes]:
        """All records by number; none stands in two hashes, since each number has its own."""
        found: dict[int, bytes] = {}
        for place in range(16):
            for field, record in self.hashes[f"m{place}"].items():
                number = whole(field)
                assert number // 4096 % 16 == place, f"the record of {number} stands in m{place}"
                found[number] = record
        return found


def whole(text: bytes) -> int:
    """A number as it is to be written: in decimals, and nothing else."""
    assert _WHOLE.fullmatch(text), f"{text!r} is no whole number"
    return int(text)


def _entry(text: bytes) -> Entry:
    match = _ENTRY.fullmatch(text)
    assert match, f"{text!r} is no entry"
    token, home, reason = (match[place].decode() for place in (1, 3, 4))
    number = int(match[8]) if match[8] else None
    return Entry(token, int(match[2]), home, reason, int(match[5]), int(match[6]), int(match[7]), number, match[9])


def _lease(text: bytes) -> Lease:
    match = _LEASE.fullmatch(text)
    assert match, f"{text!r} is no lease"
    return Lease(whole(match[1]), whole(match[2]), tuple(_named(match[3].decode())))


def _named(runs: str) -> Iterator[str]:
    for side, first, last in _RUN.findall(runs):
        yield from (f"{side}{number}" for number in range(int(first), int(last or first) + 1))


class Standing(NamedTuple):
    """A message as the keys have it."""

    side: Side
    number: int
    state: State
    entry: Entry | None
    store_number: int
    record: bytes
    read: Record
    level: int
    expires: int

    @property
    def name(self) -> str:
        return f"{self.side.value}{self.number}"

    @property
    def changes(self) -> bytes:
        return self.entry.changes if self.entry else b""

    @property
    def row(self) -> Row:
        blank = Entry(BLANK, self.level, "a", "-", 0, self.expires, len(self.record), None, b"")
        entry = self.entry or blank
        return Row(
            self.state,
            self.level,
            entry.token.strip(),
            entry.failures,
            self.expires,
            entry.home,
            entry.reason,
            entry.changes,
            entry.size,
            self.store_number,
            self.read.enqueued,
            self.record,
        )


def standing(picture: Picture) -> list[Standing]:
    """Every message, each checked by itself."""
    records = picture.records
    order, texts = dict(picture.sets["order"]), dict(picture.hashes["entries"])
    sentinel = order.pop(SENTINEL, None), texts.pop(SENTINEL, None)
    assert sentinel == (SENTINEL_SCORE, b""), f"the sentinel is {sentinel}"
    entries = {name.decode(): _entry(text) for name, text in texts.items()}
    found: list[Standing] = []
    for raw, score in order.items():
        name = raw.decode()
        side, number = split_member(name)
        of, in_band = split_score(score)
        band_side, state, band_level = state_of_band(of)
        assert (band_side, in_band) == (side, number), f"{name} stands in band {of} as {in_band}"
        entry = entries.pop(name, None)
        store_number = (entry and entry.store_number) or number
        assert store_number in records, f"{name} has no record"
        record = records[store_number]
        read = read_record(record)
        if side is Side.DEAD:
            level, expires = 0, NEVER
        else:
            level, expires = read.level, read.expires
        one = Standing(side, number, state, entry, store_number, record, read, level, expires)
        _check_entry(one)
        assert band_level == (level if state is State.ACTIVE else 0), f"{name} stands at level {band_level}"
        assert (state is State.SCHEDULED) is (record[:1] == b"s"), f"{name}: {record[:1]!r} is {state.value}"
        found.append(one)
    assert not entries, f"entries of nothing: {sorted(entries)}"
    carried = [one.store_number for one in found]
    assert sorted(carried) == sorted(records), f"stored is {sorted(records)}, referred to {sorted(carried)}"
    return found


def _check_entry(one: Standing) -> None:
    """It exists exactly where there is something to say, and says what the record and the place say."""
    name, entry, state = one.name, one.entry, one.state
    if entry is None:
        assert one.side is Side.MAIN, f"{name} needs an entry"
        assert state in (State.ACTIVE, State.SCHEDULED), f"{name} is {state.value} and has no entry"
        return
    assert state is not State.SCHEDULED, f"{name} is scheduled and has an entry"
    assert (entry.token != BLANK) is (state is State.LOCKED), f"{name} is {state.value} under {entry.token!r}"
    assert (entry.level, entry.expires) == (one.level, one.expires), f"{name}: {entry}"
    assert entry.size == len(one.record), f"{name} has {len(one.record)} bytes, not {entry.size}"
    assert (entry.store_number is None) is (one.side is Side.MAIN), f"{name}: {entry}"
    assert (entry.reason == "-") is (one.side is Side.MAIN), f"{name}: {entry}"
    assert (entry.home == "f") >= (state is State.DEFERRED), f"{name}: {entry}"
    assert state is not State.ACTIVE or entry.home == "a", f"{name}: {entry}"
    if one.side is Side.MAIN and state is State.ACTIVE:
        assert entry.failures or entry.changes, f"{name} needs no entry: {entry}"


def check(picture: Picture) -> list[Standing]:
    """What is always true of the keys of a partition. Answers its messages."""
    state, store = picture.state, picture.store
    if not state:
        assert picture.keys == 0, f"left of what is gone: {picture}"
        return []
    assert set(state) == _STATE, f"state: {set(state) ^ _STATE}"
    assert set(store) == _STORE, f"store: {set(store) ^ _STORE}"
    messages = standing(picture)
    _check_leases(picture, messages)
    _check_due(picture, messages)
    assert not picture.hashes["refs"], "only what is shared is counted"
    held = sum(len(one.record) + len(one.changes) for one in messages)
    assert whole(store["bytes"]) == held, f"bytes: {store['bytes']!r}, not {held}"
    assert whole(state["biggest"]) >= max((len(one.record) for one in messages), default=0)
    for side, last in ((Side.MAIN, store["seq"]), (Side.DEAD, state["dead_seq"])):
        assert whole(last) >= max((one.number for one in messages if one.side is side), default=0)
    assert state["waiting"] in (b"", b"1")
    assert state["waiting"] or not picture.sets["waiters"], "somebody waits unseen"
    return messages


def _check_leases(picture: Picture, messages: Sequence[Standing]) -> None:
    held: dict[str, list[str]] = {}
    for one in messages:
        if one.entry and one.state is State.LOCKED:
            held.setdefault(one.entry.token, []).append(one.name)
    leases = picture.leases
    assert set(held) == set(leases), f"leases {sorted(leases)}, in use {sorted(held)}"
    for token, lease in leases.items():
        assert lease.left == len(held[token]), f"{token}: {lease}, held {held[token]}"
        assert set(held[token]) <= set(lease.names), f"{token}: {lease}, held {held[token]}"
        assert len(set(lease.names)) == len(lease.names), f"{token}: {lease}"
    locks = {token.decode(): until for token, until in picture.sets["locks"].items()}
    assert locks == {token: lease.until for token, lease in leases.items()}
    first = min(locks.values(), default=NEVER)
    assert whole(picture.state["next_lock"]) <= first, f"next_lock {picture.state['next_lock']!r}, ends at {first}"


def _check_due(picture: Picture, messages: Sequence[Standing]) -> None:
    by_name = {one.name: one for one in messages}
    due = {entry.decode(): time for entry, time in picture.sets["due"].items()}
    for entry, time in due.items():
        one = by_name.get(entry[1:])
        assert one is not None, f"{entry} in `due` is of nothing"
        assert one.state is _KIND_OF_DUE[entry[0]], f"{entry} in `due` is {one.state.value}"
        assert entry[0] != "e" or time == one.expires, f"{entry} at {time}, expires {one.expires}"
        assert entry[0] != "w" or time <= one.expires, f"{entry} at {time}, expires {one.expires}"
    for one in messages:
        for letter, state in (("s", State.SCHEDULED), ("w", State.DELAYED)):
            assert (one.state is state) is (letter + one.name in due), f"{one.name} is {one.state.value}: {due}"
    first = min(due.values(), default=NEVER)
    assert whole(picture.state["next_due"]) <= first, f"next_due {picture.state['next_due']!r}, due {first}"
    unseen = [one.expires for one in messages if one.state is State.ACTIVE and "e" + one.name not in due]
    head = min(unseen, default=NEVER)
    assert whole(picture.state["head"]) <= head, f"head {picture.state['head']!r}, expires {head}"


def told(picture: Picture) -> Snapshot:
    """A checked picture as the model tells it."""
    messages = check(picture)
    state, store = picture.state, picture.store
    if not state:
        return Model().snapshot()
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
                frozenset(one.name for one in messages if one.entry and one.entry.token == token),
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
        waiting=bool(state["waiting"]),
        waiters={name.decode(): _waiter(score) for name, score in picture.sets["waiters"].items()},
    )


def _settings(state: dict[str, bytes], store: dict[str, bytes]) -> Settings:
    return Settings(
        status=state["status"].decode(),
        lock_duration=whole(state["lock"]),
        max_delivery_count=whole(state["deliveries"]),
        time_to_live=whole(state["ttl"]),
        dead_letter_expired=bool(whole(state["dead"])),
        duplicate_window=whole(state["window"]) if state["window"] else None,
        quota=whole(store["quota"]),
        largest_message=whole(store["largest"]),
        clock=state["clock"].decode(),
        shared=bool(whole(state["shared"])),
    )


def _lane(text: bytes) -> tuple[int, int]:
    number, used, _ = text.split(b" ", 2)
    return whole(number), whole(used)


def _waiter(score: int) -> Waiter:
    room, rest = divmod(score, BAND_WIDTH)
    until, wanted = divmod(rest, 128)
    return Waiter(Side.DEAD if room % 8 else Side.MAIN, until, wanted, woken=room >= 8)


def due_by_keys(picture: Picture, offset: int) -> int:
    """When something happens next by what the keys say of it: the first lock, the first of `due`, and the bound."""
    times = [until - offset for until in picture.sets["locks"].values()]
    first = min([*times, *picture.sets["due"].values(), whole(picture.state["head"])])
    return first if first < NEVER else 0
