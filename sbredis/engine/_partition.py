"""One partition of one entity: every operation of the broker as a request, typed, and checked before it is sent.

This module does no I/O: a request names the script, its keys and its arguments, and reads the reply. The headers of the
Lua files declare the same arguments, and a test compares the two.
"""

from __future__ import annotations

import re
from binascii import b2a_base64
from collections.abc import Callable, Sequence
from os import urandom
from typing import Any, Literal, NamedTuple, TypeVar

from sbredis._quoting import quoted
from sbredis.engine._keys import due_channel, partition_keys
from sbredis.engine._lifecycle import SidePrefix
from sbredis.engine._packing import (
    MAXIMUM_CALL_BYTES,
    MAXIMUM_CALL_MESSAGES,
    Lock,
    Outgoing,
    Redrive,
    SessionLock,
    check_outgoing,
    grouped,
    in_columns,
    named,
    redriven,
    signed,
    token_of,
    within,
)
from sbredis.engine._request import Request
from sbredis.engine._results import (
    NEVER,
    Awoken,
    Counts,
    Inspection,
    Looked,
    Peeked,
    Purged,
    Received,
    Redriven,
    Renewed,
    Sent,
    Settled,
    Undone,
    deliveries,
    names,
    renewed,
    settled,
)
from sbredis.engine._scripts import load
from sbredis.engine._settings import PartitionSettings
from sbredis.transport import Argument, Keys

__all__ = ["NO_CALL_ID", "CallId", "Mode", "Partition", "new_token"]

T = TypeVar("T")
Mode = Literal["lock", "delete"]

_INCARNATION = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_LANE = re.compile(r"[\x21-\x7e]{1,64}", re.ASCII)


class CallId(NamedTuple):
    """The identity of a call: its lane, and its number in the lane.

    A partition answers a repeated call with the result of the first one.
    """

    lane: str
    number: int
    now: int | None = None
    """The time, for a partition with a test clock."""


NO_CALL_ID = CallId("", 0)
"""The identity of a call that may run twice."""


_URL_SAFE = bytes.maketrans(b"+/", b"-_")


def new_token() -> str:
    """Return a new random token for a lease. It cannot be guessed, and never repeats."""
    return b2a_base64(urandom(9), newline=False).translate(_URL_SAFE).decode()


class Partition:
    """The partition of an entity in one slot, for a caller that knows its incarnation and its version of settings."""

    __slots__ = ("channel", "incarnation", "keys", "settings", "version")

    def __init__(  # noqa: PLR0917 -- the place, the identity and the settings of a partition
        self,
        namespace: str,
        salt: str,
        entity: str,
        incarnation: str,
        version: int,
        settings: PartitionSettings,
        store: str | None = None,
    ) -> None:
        within("version", version, 1, 999_999_999_999_999)
        if not _INCARNATION.fullmatch(incarnation):
            raise ValueError(f"{quoted(incarnation)} is not an incarnation")
        self.keys = Keys(partition_keys(namespace, salt, entity, store))
        self.channel = due_channel(namespace, salt)
        self.incarnation = incarnation
        self.version = version
        self.settings = settings

    # -- sending --------------------------------------------------------------------------------------------------

    def send(self, call_id: CallId, messages: Sequence[Outgoing]) -> Request[Sent]:
        """Store messages, all of them or none. Each message is active immediately, or scheduled."""
        self.check_outgoing(messages)
        letters, rest = in_columns(messages)
        return self.request("send", call_id, _sent, {"columns": letters}, rest)

    def send_payloads(self, call_id: CallId, payloads: Sequence[bytes]) -> Request[Sent]:
        """Store messages that have only a payload, all of them or none. For many messages, this is faster to make."""
        sizes = list(map(len, payloads))
        fits = 1 <= len(sizes) <= MAXIMUM_CALL_MESSAGES and sum(sizes) <= MAXIMUM_CALL_BYTES
        if not fits or max(sizes) > self.settings.largest_message or set(map(type, payloads)) != {bytes}:
            self.check_outgoing(list(map(Outgoing, payloads)))
        return self.request("send", call_id, _sent, {"columns": ""}, payloads)

    def cancel(self, call_id: CallId, scheduled: Sequence[str]) -> Request[Undone]:
        """Delete scheduled messages. If one of the messages is not scheduled, delete none."""

        def read(reply: list[Any]) -> Undone:
            return Undone(bool(reply[0]), names(reply[1]))

        return self.request("cancel", call_id, read, {}, named(scheduled))

    # -- receiving ------------------------------------------------------------------------------------------------

    def receive(
        self,
        call_id: CallId,
        token: str,
        wanted: int,
        *,
        side: SidePrefix = "",
        mode: Mode = "lock",
        room: int = MAXIMUM_CALL_BYTES,
        waiter: bytes = b"",
        waiting_for: int = 1,
        session: str | None = None,
    ) -> Request[Received]:
        """Give out the oldest messages, locked under ``token`` or deleted immediately.

        ``waiter`` is the channel on which the caller can wait. The caller waits if it gets no message, or if it gets
        all messages that are there but fewer than ``waiting_for``. The caller names the channel again in its next call.
        With ``waiting_for`` 0 the caller does not wait, and an earlier wait ends. With ``session``, ``token`` is the
        token of the lock on the session.
        """
        within("wanted", wanted, 1, MAXIMUM_CALL_MESSAGES)
        within("room", room, 1, 1 << 30)
        within("waiting_for", waiting_for, 0, MAXIMUM_CALL_MESSAGES)
        scalars: dict[str, Argument] = {
            "side": side,
            "mode": mode,
            "wanted": wanted,
            "room": room,
            "token": token_of(token),
            "waiter": waiter,
            "waiting_for": waiting_for,
            "session": signed(session),
        }
        return self.request("receive", call_id, _received, scalars)

    def look(
        self,
        *,
        side: SidePrefix = "",
        waiter: bytes = b"",
        waiting_for: int = 1,
        call_id: CallId = NO_CALL_ID,
        session: SessionLock | None = None,
    ) -> Request[Looked]:
        """Report whether a message can be received, without giving it out. If there is no such message, register the
        caller to wait.

        With ``waiting_for`` 0 the caller does not wait, and an earlier wait ends. If there is a message, the next
        waiter is then woken instead of the caller. A look does not use a lane. ``call_id`` is used only for the time of
        a test clock.
        """
        within("waiting_for", waiting_for, 0, MAXIMUM_CALL_MESSAGES)

        def read(reply: list[Any]) -> Looked:
            return Looked(bool(reply[0]), max(reply[1], 0), reply[1] == _FOUND)

        scalars: dict[str, Argument] = {
            "side": side,
            "mode": "lock",
            "wanted": 0,
            "room": 1,
            "token": new_token() if session is None else token_of(session.token),
            "waiter": waiter,
            "waiting_for": waiting_for,
            "session": signed(None if session is None else session.name),
        }
        return self.request("receive", call_id, read, scalars)._replace(repeatable=True)

    def receive_deferred(
        self,
        call_id: CallId,
        token: str,
        deferred: Sequence[str],
        *,
        mode: Mode = "lock",
        room: int = MAXIMUM_CALL_BYTES,
        session: str | None = None,
        wide: bool = False,
    ) -> Request[Received]:
        """Give out deferred messages by name; with ``wide``, active and delayed messages too. If one of the messages is
        not in such a state here, give out none.

        The call gives out no more than ``room`` bytes, but at least one message. The result says how many messages at
        the end of the list did not fit; the caller asks for them again. With the mode ``delete``, the call gives out
        all messages or none. So messages that do not fit into one call must be received with the mode ``lock``.
        """
        within("room", room, 1, 1 << 30)
        scalars: dict[str, Argument] = {
            "mode": f"{mode} any" if wide else mode,
            "token": token_of(token),
            "session": signed(session),
            "room": room,
        }
        return self.request("receive_deferred", call_id, _received_deferred, scalars, named(deferred))

    def peek(
        self,
        start: int,
        wanted: int,
        *,
        side: SidePrefix = "",
        room: int = MAXIMUM_CALL_BYTES,
        states: str = "alwfs",
        session: str | None = None,
        call_id: CallId = NO_CALL_ID,
    ) -> Request[Peeked]:
        """Return messages in the given states, beginning at the number ``start``, without changing them.

        Among ``states``, ``l`` stands for all locked messages. A message that was deferred when it was locked has the
        state ``g`` in the result.
        """
        within("start", start, 0, (1 << 48) - 1)
        within("wanted", wanted, 1, MAXIMUM_CALL_MESSAGES)
        within("room", room, 1, 1 << 30)
        if not states or not set(states) <= set("alwfsx"):
            raise ValueError(f"states must be one or more of a, l, w, f, s and x, not {quoted(states)}")

        def read(reply: list[Any]) -> Peeked:
            return Peeked(deliveries(reply[1], reply[3], reply[4], reply[2].decode()), more=bool(reply[0]))

        scalars: dict[str, Argument] = {"side": side, "from": start, "wanted": wanted, "room": room, "states": states}
        scalars["session"] = signed(session)
        return self.request("peek", call_id, read, scalars)

    # -- settling -------------------------------------------------------------------------------------------------

    def complete(self, call_id: CallId, locks: Sequence[Lock]) -> Request[Settled]:
        """Complete messages: they are deleted."""
        return self.request("complete", call_id, settled, {}, grouped(locks, 1))

    def renew(self, call_id: CallId, token: str, locks: Sequence[Lock], leases: Sequence[str] = ()) -> Request[Renewed]:
        """Renew locks for the full duration. If only a part of a lease is named, that part moves to ``token``.

        ``leases`` are tokens of leases that are extended, whatever they hold. They keep their tokens.
        """
        return self.request("renew", call_id, renewed, {"token": token_of(token)}, grouped(locks, 1, leases))

    def abandon(
        self, call_id: CallId, locks: Sequence[Lock], *, counted: bool = True, interrupted: bool = False
    ) -> Request[Settled]:
        """Release messages. Each delivery counts as failed, unless not ``counted``, or ``interrupted``."""
        for lock in locks:
            within("delay", lock.delay, 0, NEVER)
        rest = grouped(locks, 3)
        return self.request("abandon", call_id, settled, {"counted": "i" if interrupted else int(counted)}, rest)

    def defer(self, call_id: CallId, locks: Sequence[Lock]) -> Request[Settled]:
        """Defer messages: they can then be received by number only."""
        return self.request("defer", call_id, settled, {}, grouped(locks, 2))

    def dead_letter(self, call_id: CallId, locks: Sequence[Lock]) -> Request[Settled]:
        """Move messages to the dead-letter queue."""
        return self.request("dead_letter", call_id, settled, {}, grouped(locks, 2))

    def redrive(self, call_id: CallId, messages: Sequence[Redrive]) -> Request[Redriven]:
        """Move dead letters that no receiver holds back to the main side, as new messages.

        Without messages, the call only returns the last number of the dead-letter queue.
        """

        def read(reply: list[Any]) -> Redriven:
            return Redriven(bool(reply[0]), reply[1], names(reply[2]), names(reply[3]), reply[4], reply[5])

        return self.request("redrive", call_id, read, {}, redriven(messages))

    # -- administration -------------------------------------------------------------------------------------------

    def purge(
        self,
        call_id: CallId,
        before: int,
        *,
        side: SidePrefix = "",
        share: int = MAXIMUM_CALL_MESSAGES,
        start: int = 0,
        session: str | None = None,
    ) -> Request[Purged]:
        """Delete messages that were enqueued before a time and are not locked or scheduled, in one bounded step.

        With ``session``, delete only messages of that session; no lock on it is needed.
        """
        within("before", before, 0, NEVER)
        within("share", share, 1, MAXIMUM_CALL_MESSAGES)
        within("start", start, 0, 1 << 53)

        def read(reply: list[Any]) -> Purged:
            return Purged(bool(reply[0]), reply[1], int(reply[2]) if reply[2] else None)

        scalars: dict[str, Argument] = {"side": side, "before": before, "share": share, "from": start}
        scalars["session"] = signed(session)
        return self.request("purge", call_id, read, scalars)

    def count(self, call_id: CallId = NO_CALL_ID) -> Request[Counts]:
        """Count the messages by side and state."""

        def read(reply: list[Any]) -> Counts:
            return Counts(*reply)

        return self.request("count", call_id, read, {})

    def inspect(self, call_id: CallId = NO_CALL_ID) -> Request[Inspection]:
        """Tell who waits, how the sessions stand, and how old the oldest message is."""

        def read(reply: list[Any]) -> Inspection:
            waiting, free, locked, oldest = reply
            return Inspection(waiting, free, locked, int(oldest) if oldest else None)

        return self.request("inspect", call_id, read, {})

    def due(self, call_id: CallId = NO_CALL_ID) -> Request[Awoken]:
        """Do a large share of the due work."""

        def read(reply: list[Any]) -> Awoken:
            return Awoken(bool(reply[0]), reply[1])

        return self.request("due", call_id, read, {})

    def configure(self, *, create: bool = False, use: bool = False, now: int | None = None) -> Request[int]:
        """Create the partition, or give it the settings of this version. Due work is done first, under the old ones.

        ``use`` says that a user has changed the entity. ``now`` is the time of a test clock.
        """
        scalars: dict[str, Argument] = {"create": int(create), "channel": self.channel}
        scalars |= {"birth": new_token(), "use": int(use)}

        def read(reply: list[Any]) -> int:
            return int(reply[0])

        return self.request("configure", CallId("", 0, now), read, scalars, self.settings.arguments())

    def destroy(self, *, share: int = 500) -> Request[bool]:
        """Delete the partition; the result says whether another step is needed. A ``share`` of 0 only shuts it."""
        within("share", share, 0, MAXIMUM_CALL_MESSAGES)

        def read(reply: list[Any]) -> bool:
            return bool(reply[0])

        return self.request("destroy", NO_CALL_ID, read, {"share": share})

    # -------------------------------------------------------------------------------------------------------------

    def request(
        self,
        name: str,
        call_id: CallId,
        read: Callable[[Any], T],
        scalars: dict[str, Argument],
        rest: Sequence[Argument] = (),
    ) -> Request[T]:
        """Return the request that calls a script.

        ``scalars`` maps the names in the script's header to arguments, in the header's order.
        """
        lane, number, now = call_id
        if lane and not _LANE.fullmatch(lane):
            raise ValueError(f"{quoted(lane)} is not a lane: 1 to 64 printable ASCII characters without a space")
        within("number", number, 0 if not lane else 1, 999_999_999_999_999)
        if now is not None:
            within("now", now, 0, NEVER - 1)
        if scalars.get("side", "") not in _SIDES or scalars.get("mode", "lock") not in _MODES:
            raise ValueError("side must be '', 'd' or 't', and mode 'lock' or 'delete'")
        common = (self.incarnation, self.version, lane, number, "" if now is None else now)
        repeatable = bool(lane) or name in _HARMLESS
        return Request(load(name), self.keys, (*common, *scalars.values(), *rest), read, repeatable)

    def check_outgoing(self, messages: Sequence[Outgoing]) -> None:
        """Raise for messages that no call of this partition can carry."""
        check_outgoing(messages, self.settings.largest_message)


_SIDES, _MODES = ("", "d", "t"), ("lock", "delete", "lock any", "delete any")
_HARMLESS = {
    *("close", "configure", "count", "destroy", "due", "get_state", "inspect", "list_sessions", "peek", "plan"),
    *("read_pin", "read_range", "ripe", "settlements", "touch", "unpin", "watermarks"),
}
"""Scripts that have the same effect when they run twice."""
_FOUND = -1
"""The value that a look returns in place of the next due time if it found a message."""


def _sent(reply: list[Any]) -> Sent:
    return Sent(bool(reply[0]), reply[1], reply[2])


def _received(reply: list[Any]) -> Received:
    given = deliveries(reply[3], reply[4], reply[5])
    return Received(bool(reply[0]), reply[1], reply[2], given, (), 0, bool(reply[6]), reply[7])


def _received_deferred(reply: list[Any]) -> Received:
    found = deliveries(reply[3], reply[4], reply[5], "g" * len(reply[3]))
    return Received(bool(reply[0]), reply[1], reply[2], found, names(reply[6]), reply[7], fence=reply[8])
