"""One partition of one entity: every operation of the broker as a request, typed, and checked before it is sent.

This module does no I/O: a request names the script, its keys and its arguments, and reads the reply. The headers of the
Lua files declare the same arguments, and a test compares the two.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

from sbredis._quoting import quoted
from sbredis.engine._keys import KINDS, SESSION_KINDS, due_channel, partition_keys
from sbredis.engine._lifecycle import SidePrefix
from sbredis.engine._packing import (
    MAXIMUM_CALL_BYTES,
    MAXIMUM_CALL_COPIES,
    MAXIMUM_CALL_MESSAGES,
    MAXIMUM_CHANGES_BYTES,
    Copy,
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
    Delivery,
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
    spelled_out,
)
from sbredis.engine._scripts import load
from sbredis.engine._settings import PartitionSettings
from sbredis.exceptions import MessageSizeExceededError
from sbredis.transport import Argument, Keys

__all__ = [
    "MAXIMUM_CALL_BYTES",
    "MAXIMUM_CALL_COPIES",
    "MAXIMUM_CALL_MESSAGES",
    "MAXIMUM_CHANGES_BYTES",
    "NO_CALL_ID",
    "CallId",
    "Copy",
    "Lock",
    "Mode",
    "Outgoing",
    "Partition",
    "Redrive",
    "SessionLock",
    "SidePrefix",
    "new_token",
]

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


def new_token() -> str:
    """Return a new random token for a lease. It cannot be guessed, and never repeats."""
    return secrets.token_urlsafe(9)


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

    def publish(
        self,
        call_id: CallId,
        messages: Sequence[Outgoing],
        routes: Sequence[Sequence[Copy] | None],
        targets: Sequence[Partition],
        *,
        fence: int | None = None,
    ) -> Request[Sent]:
        """Store messages of a topic for the subscriptions that they match. Each message is stored once.

        ``targets`` are the subscriptions' partitions in this slot. ``routes`` are the copies of each message, in the
        order of targets. A scheduled message may have ``None`` as its route, and then waits even if its time has
        passed. If a message has waited, its ``origin`` is the number under which it was scheduled. ``fence`` is the
        fence of the client that holds the routing role.
        """
        self.check_outgoing(messages)
        if len(routes) != len(messages):
            raise ValueError("every message needs a route, which may be empty")
        if any(route is None and message.due is None for route, message in zip(routes, messages, strict=True)):
            raise ValueError("only a scheduled message may be without a route")
        judged = [route for route in routes if route is not None]
        if len(messages) > 1 and (total := sum(map(len, judged))) > MAXIMUM_CALL_COPIES:
            raise MessageSizeExceededError(
                f"the {len(messages)} messages would have {total} copies in the subscriptions of the topic; one call "
                f"may make {MAXIMUM_CALL_COPIES} copies"
            )
        for route in judged:
            places = [copy.place for copy in route]
            if any(not 0 <= place < len(targets) for place in places) or places != sorted(places):
                raise ValueError(f"the places of copies must be places of targets, in rising order, not {places!r}")
        if len({target.keys[0] for target in targets}) < len(targets):
            raise ValueError("a subscription is named twice among the targets")
        if fence is not None:
            within("fence", fence, 1, 999_999_999_999_999)
        letters, rest = in_columns(messages, routes)
        keys = self.keys + tuple(key for target in targets for key in target.target_keys)
        scalars: dict[str, Argument] = {
            "columns": letters,
            "incarnations": " ".join(target.incarnation + "+" * target.settings.sessions for target in targets),
            "fence": "" if fence is None else fence,
        }
        return self.request("publish", call_id, _published, scalars, rest)._replace(keys=keys)

    @property
    def target_keys(self) -> tuple[bytes, ...]:
        """The keys of this subscription that a call needs to publish to it."""
        kinds = _TARGET_KINDS + SESSION_KINDS if self.settings.sessions else _TARGET_KINDS
        return tuple(self.keys[KINDS.index(kind)] for kind in kinds)

    def ripe(
        self, wanted: int, *, room: int = MAXIMUM_CALL_BYTES, call_id: CallId = NO_CALL_ID
    ) -> Request[tuple[Delivery, ...]]:
        """Return messages that are scheduled on a topic and are due."""
        within("wanted", wanted, 1, MAXIMUM_CALL_MESSAGES)
        within("room", room, 1, 1 << 30)

        def read(reply: list[Any]) -> tuple[Delivery, ...]:
            return deliveries(reply[1], reply[2], [], "s" * len(reply[1]))

        return self.request("ripe", call_id, read, {"wanted": wanted, "room": room})

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
_HARMLESS = {"close", "configure", "count", "destroy", "due", "get_state", "list_sessions", "peek", "ripe", "touch"}
"""Scripts that have the same effect when they run twice."""
_FOUND = -1
"""The value that a look returns in place of the next due time if it found a message."""


_TARGET_KINDS = ("state", "order", "entries", "due", "waiters")
"""The kinds of a subscription's keys that a call needs to publish to it, in the order of ``publish.lua``."""


def _sent(reply: list[Any]) -> Sent:
    return Sent(bool(reply[0]), reply[1], reply[2])


def _published(reply: list[Any]) -> Sent:
    return Sent(bool(reply[0]), reply[1], reply[2], spelled_out(reply[3]))


def _received(reply: list[Any]) -> Received:
    given = deliveries(reply[3], reply[4], reply[5])
    return Received(bool(reply[0]), reply[1], reply[2], given, waits=bool(reply[6]), fence=reply[7])


def _received_deferred(reply: list[Any]) -> Received:
    found = deliveries(reply[3], reply[4], reply[5], "g" * len(reply[3]))
    return Received(bool(reply[0]), reply[1], reply[2], found, names(reply[6]), reply[7], fence=reply[8])
