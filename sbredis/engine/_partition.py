"""One partition of one entity: every operation of the broker as a request, typed, and checked before it is sent.

This module does no I/O: a request names the script, its keys and its arguments, and reads the reply. The headers of the
Lua files declare the same arguments, and a test compares the two.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import partial
from os import urandom
from typing import Any, Literal, NamedTuple, TypeVar, cast

from sbredis._quoting import quoted
from sbredis.engine._bands import BAND_WIDTH
from sbredis.engine._columns import Rows, RowsRead
from sbredis.engine._grants import Granted, SentGrant, granted, packed_grants
from sbredis.engine._keys import KINDS, SESSION_KINDS, due_channel, partition_keys
from sbredis.engine._lifecycle import SidePrefix
from sbredis.engine._moving import (
    MAXIMUM_MOVE_BYTES,
    MAXIMUM_REFUSED_CHANGES,
    Batch,
    Destination,
    Destroyed,
    MovesRead,
    Origin,
    Swept,
    Taken,
    Verdict,
    destination_text,
    exact_names,
    names_of_runs,
    origin_text,
    read_moves,
    read_swept,
    read_taken,
    runs_of,
)
from sbredis.engine._packing import (
    LOCKED_SESSION,
    MAXIMUM_CALL_BYTES,
    MAXIMUM_CALL_MESSAGES,
    MAXIMUM_CHANGES_BYTES,
    MAXIMUM_ID_BYTES,
    Copy,
    Lock,
    Outgoing,
    Redrive,
    SessionLock,
    check_outgoing,
    check_routes,
    grouped,
    in_columns,
    named,
    only_payloads,
    redriven,
    signed,
    token_of,
    within,
)
from sbredis.engine._request import Request
from sbredis.engine._reserved import MOST, MOST_ROWS, Committed, Pin, Planned, Ranged, Unpinned, read_planned
from sbredis.engine._results import (
    NEVER,
    Accepted,
    Awoken,
    Closing,
    Counts,
    Delivery,
    Inspection,
    Peeked,
    Purged,
    Received,
    Redriven,
    Renewed,
    Ripe,
    Sent,
    SessionsListed,
    Settled,
    Undone,
    WatermarksRead,
    deliveries,
    names,
    published,
    received_deferred,
    renewed,
    sent,
    sessions_listed,
    settled,
    watermarks_read,
)
from sbredis.engine._scripts import facts_of, load
from sbredis.engine._settings import PartitionSettings
from sbredis.engine._settlements import BEGINNING, SettlementsPlace, SettlementsRead, read_records
from sbredis.exceptions import MessageSizeExceededError
from sbredis.transport import Argument, Keys

__all__ = ["COMMON_ARGUMENTS", "NO_CALL_ID", "TARGET_KINDS", "CallId", "Mode", "Partition", "new_stamp"]

COMMON_ARGUMENTS = 5
"""The number of arguments that every call has, without the run id, which the transport adds."""
TARGET_KINDS = ("state", "order", "entries", "due", "words", "grants")
"""The kinds of a subscription's keys that a call needs to publish to it, in the order of ``publish.lua``."""

T = TypeVar("T")
Mode = Literal["lock", "delete"]

_INCARNATION = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_BOUND = re.compile(r"[A-Za-z0-9_-]*", re.ASCII)
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


def new_stamp() -> str:
    """Return a new random text, such as an incarnation. It cannot be guessed, and never repeats."""
    return urlsafe_b64encode(urandom(9)).decode()


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

    # -- sending -------------------------------------------------------------------------------------------------

    def send(self, call_id: CallId, messages: Sequence[Outgoing]) -> Request[Sent]:
        """Store messages, all of them or none. Each message is active immediately, or scheduled."""
        payloads = only_payloads(messages)
        if payloads is not None:
            return self.send_payloads(call_id, payloads)
        self.check_outgoing(messages)
        letters, rest = in_columns(messages)
        return self.request("send", call_id, sent, {"columns": letters}, rest)

    def send_payloads(self, call_id: CallId, payloads: Sequence[bytes]) -> Request[Sent]:
        """Store messages that have only a payload, all of them or none. For many messages, this is faster to make."""
        sizes = list(map(len, payloads))
        fits = 1 <= len(sizes) <= MAXIMUM_CALL_MESSAGES and sum(sizes) <= MAXIMUM_CALL_BYTES
        if not fits or max(sizes) > self.settings.largest_message or set(map(type, payloads)) != {bytes}:
            self.check_outgoing(list(map(Outgoing, payloads)))
        return self.request("send", call_id, sent, {"columns": ""}, payloads)

    def cancel(self, call_id: CallId, scheduled: Sequence[str]) -> Request[Undone]:
        """Delete scheduled messages. If one of the messages is not scheduled, delete none."""

        def read(reply: list[Any]) -> Undone:
            return Undone(bool(reply[0]), names(reply[1]))

        return self.request("cancel", call_id, read, {}, named(scheduled))

    # -- topics --------------------------------------------------------------------------------------------------

    def publish(
        self,
        call_id: CallId,
        messages: Sequence[Outgoing],
        routes: Sequence[Sequence[Copy] | None],
        targets: Sequence[Partition],
        *,
        fence: int | None = None,
        bounds: tuple[str, str] | None = None,
    ) -> Request[Sent]:
        """Store messages of a topic for the subscriptions that they match. Each message is stored once.

        ``targets`` are the subscriptions' partitions in this slot. ``routes`` are the copies of each message, in the
        order of targets. A scheduled message may have ``None`` as its route, and then waits even if its time has
        passed. If a message has waited, its ``origin`` is the number under which it was scheduled. ``fence`` is the
        fence of the client that holds the routing role.

        With ``bounds``, the messages are spread: this call makes the copies for the subscriptions whose incarnations
        come after the first bound and not after the second one. An empty text is no bound.
        """
        self.check_outgoing(messages)
        check_routes(messages, routes, len(targets))
        if len({target.keys[0] for target in targets}) < len(targets):
            raise ValueError("a subscription is named twice among the targets")
        if fence is not None:
            within("fence", fence, 1, 999_999_999_999_999)
        if bounds is not None and not (
            all(message.origin for message in messages) and all(map(_BOUND.fullmatch, bounds))
        ):
            raise ValueError("only messages that wait can be spread, between two incarnations")
        letters, rest = in_columns(messages, routes)
        keys = self.keys + tuple(key for target in targets for key in target.target_keys())
        scalars: dict[str, Argument] = {
            "columns": letters,
            "incarnations": " ".join(target.incarnation + "+" * target.settings.sessions for target in targets),
            "fence": "" if fence is None else fence,
            "bounds": "" if bounds is None else ":".join(bounds),
        }
        return self.request("publish", call_id, published, scalars, rest)._replace(keys=keys)

    def target_keys(self) -> tuple[bytes, ...]:
        """Return the keys of a subscription that a call needs to publish to it."""
        kinds = TARGET_KINDS + SESSION_KINDS if self.settings.sessions else TARGET_KINDS
        return tuple(self.keys[KINDS.index(kind)] for kind in kinds)

    def ripe(
        self, wanted: int, *, room: int = MAXIMUM_CALL_BYTES, call_id: CallId = NO_CALL_ID
    ) -> Request[tuple[Ripe, ...]]:
        """Return messages that are scheduled on a topic and are due."""
        within("wanted", wanted, 1, MAXIMUM_CALL_MESSAGES)
        within("room", room, 1, 1 << 30)

        def read(reply: list[Any]) -> tuple[Ripe, ...]:
            found = deliveries(reply[1], reply[2], [], "s" * len(reply[1]))
            return tuple([Ripe(each, reached.decode()) for each, reached in zip(found, reply[3], strict=True)])

        return self.request("ripe", call_id, read, {"wanted": wanted, "room": room})

    # -- receiving -----------------------------------------------------------------------------------------------

    def grant(self, grants: Sequence[SentGrant], call_id: CallId = NO_CALL_ID) -> Request[Granted]:
        """Grant credit: give out messages in the reply, and later in pushes.

        A grant does not use a lane, because its number makes a repetition harmless. ``call_id`` is used only for the
        time of a test clock.
        """
        if not grants:
            raise ValueError("a call that grants credit needs a grant")
        return self.request("grant", call_id, granted, {}, packed_grants(grants))

    def receive_deferred(
        self,
        call_id: CallId,
        token: str,
        deferred: Sequence[str],
        *,
        mode: Mode = "lock",
        room: int = MAXIMUM_CALL_BYTES,
        session: str | None = None,
        in_session: bool = False,
        wide: bool = False,
    ) -> Request[Received]:
        """Give out deferred messages by name; with ``wide``, active and delayed messages too. If one of the messages is
        not in such a state here, give out none. With ``in_session``, they are in the session that the token locks.

        The call gives out no more than ``room`` bytes, but at least one message. The result says how many messages at
        the end of the list did not fit; the caller asks for them again. With the mode ``delete``, the call gives out
        all messages or none. So messages that do not fit into one call must be received with the mode ``lock``.
        """
        within("room", room, 1, 1 << 30)
        scalars: dict[str, Argument] = {
            "mode": f"{mode} any" if wide else mode,
            "token": token_of(token),
            "session": LOCKED_SESSION if in_session else signed(session),
            "room": room,
        }
        return self.request("receive_deferred", call_id, received_deferred, scalars, named(deferred))

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

    def peek_rows(
        self,
        start: int,
        wanted: int,
        *,
        side: SidePrefix = "",
        room: int = MAXIMUM_CALL_BYTES,
        states: str = "alwfs",
        call_id: CallId = NO_CALL_ID,
    ) -> Request[RowsRead]:
        """Return messages as :meth:`peek` does, but as rows, for readers of many messages, who make columns of them.

        It is the same call. An object for each message would cost such a reader a quarter of its time.
        """

        def read(reply: list[Any]) -> RowsRead:
            return RowsRead(Rows(reply[1], reply[3], reply[4], reply[2].decode()), bool(reply[0]))

        request: Request[Any] = self.peek(start, wanted, side=side, room=room, states=states, call_id=call_id)
        return cast("Request[RowsRead]", request._replace(read=read))

    # -- settling ------------------------------------------------------------------------------------------------

    def complete(self, call_id: CallId, locks: Sequence[Lock]) -> Request[Settled]:
        """Complete messages: they are deleted."""
        return self.request("complete", call_id, settled, {}, grouped(locks, 1))

    def renew(self, call_id: CallId, locks: Sequence[Lock], leases: Sequence[str] = ()) -> Request[Renewed]:
        """Renew locks for the full duration. Messages that are only a part of their lease get leases of their own.

        ``leases`` are the keys of leases that are extended, whatever they hold: a token, or a token and the name of a
        message that has a lease of its own.
        """
        return self.request("renew", call_id, renewed, {}, grouped(locks, 1, leases))

    def abandon(
        self,
        call_id: CallId,
        locks: Sequence[Lock],
        *,
        counted: bool = True,
        interrupted: bool = False,
    ) -> Request[Settled]:
        """Release messages. Each delivery counts as failed, unless not ``counted``, or ``interrupted``."""
        for lock in locks:
            within("delay", lock.delay, 0, NEVER)
        how: dict[str, Argument] = {"counted": "i" if interrupted else int(counted)}
        return self.request("abandon", call_id, settled, how, grouped(locks, 3))

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

    # -- sessions ------------------------------------------------------------------------------------------------

    def accept_session(self, call_id: CallId, token: str, name: str) -> Request[Accepted]:
        """Lock a session of this name under a token, even if it has no messages.

        If the call carries a grant at the session, whose receiver is the token, it brings the first messages.
        """

        def read(reply: list[Any]) -> Accepted:
            return Accepted(bool(reply[0]), reply[1], reply[2].decode(), name, reply[3])

        return self.request("accept_session", call_id, read, {"session": signed(name), "token": token_of(token)})

    def renew_session(self, call_id: CallId, session: SessionLock | str) -> Request[int]:
        """Renew the lock on a session for the full duration; the result is the duration in ms."""

        def read(reply: list[Any]) -> int:
            return int(reply[1])

        return self.request("renew_session", call_id, read, _locked(session))

    def release_session(self, call_id: CallId, session: SessionLock | str) -> Request[int]:
        """Release a session and its held messages; no delivery counts as failed. The result is their number."""

        def read(reply: list[Any]) -> int:
            return int(reply[1])

        return self.request("release_session", call_id, read, _locked(session))

    def set_state(self, call_id: CallId, session: SessionLock | str, state: bytes | None) -> Request[bool]:
        """Set the state of a session, or remove it with ``None``; the result says whether more work is due."""
        if state is not None and type(state) is not bytes:
            raise TypeError(f"the state of a session must be bytes, not {type(state).__name__}")
        if state is not None and len(state) > self.settings.largest_message:
            raise MessageSizeExceededError(
                f"the state of the session has {len(state)} bytes; the entity allows up to "
                f"{self.settings.largest_message} bytes"
            )

        def read(reply: list[Any]) -> bool:
            return bool(reply[0])

        scalars = _locked(session) | {"given": int(state is not None), "state": state or b""}
        return self.request("set_state", call_id, read, scalars)

    def get_state(self, session: SessionLock | str, call_id: CallId = NO_CALL_ID) -> Request[bytes | None]:
        """Read the state of a session, which the caller has locked."""
        return self.request("get_state", call_id, _state, _locked(session))

    def peek_state(self, name: str, call_id: CallId = NO_CALL_ID) -> Request[bytes | None]:
        """Read the state of a session, whoever has locked it."""
        return self.request("get_state", call_id, _state, {"session": signed(name), "token": ""})

    def list_sessions(
        self, wanted: int, after: str | None = None, call_id: CallId = NO_CALL_ID
    ) -> Request[SessionsListed]:
        """List sessions that have a state, active messages or held messages, in the order of their names in UTF-8."""
        scalars: dict[str, Argument] = {"wanted": _wanted(wanted), "after": signed(after), "since": ""}
        return self.request("list_sessions", call_id, sessions_listed, scalars)

    def list_sessions_since(
        self, wanted: int, since: int, skip: int = 0, call_id: CallId = NO_CALL_ID
    ) -> Request[SessionsListed]:
        """List sessions whose state was set at ``since`` (in ms) or later, in the order of these times, without the
        first ``skip`` sessions.
        """
        within("since", since, 0, NEVER)
        within("skip", skip, 0, 999_999_999)
        scalars: dict[str, Argument] = {"wanted": _wanted(wanted), "after": skip, "since": since}
        return self.request("list_sessions", call_id, sessions_listed, scalars)

    def bury_session(
        self,
        call_id: CallId,
        session: SessionLock,
        changes: bytes = b"",
        *,
        share: int = 500,
    ) -> Request[Purged]:
        """Move one share of a session's messages to the dead-letter queue; the result says if there may be more."""
        within("share", share, 1, MAXIMUM_CALL_MESSAGES)
        if len(changes) > MAXIMUM_CHANGES_BYTES:
            raise MessageSizeExceededError(
                f"reason and description have {len(changes)} bytes; a message may have up to {MAXIMUM_CHANGES_BYTES}"
            )

        def read(reply: list[Any]) -> Purged:
            return Purged(bool(reply[0]), reply[1], 0 if reply[2] else None)

        scalars = _locked(session) | {"share": share, "changes": changes}
        return self.request("bury_session", call_id, read, scalars)

    # -- moves to other partitions -------------------------------------------------------------------------------

    def outgoing(
        self,
        *,
        wanted: int = MAXIMUM_CALL_MESSAGES,
        room: int = MAXIMUM_MOVE_BYTES,
        start: int = 0,
        now: int | None = None,
    ) -> Request[MovesRead]:
        """Return the outstanding batches of a partition, and the first messages that wait to be moved.

        ``start`` is the place where to begin, if the caller skips messages whose destination cannot be reached.
        """
        within("wanted", wanted, 1, MAXIMUM_CALL_MESSAGES)
        within("room", room, 1, 1 << 30)
        within("start", start, 0, 1 << 53)
        return self._outgoing({"wanted": wanted, "room": room, "start": start, "batch": ""}, now)

    def read_batch(self, destination: Destination, *, now: int | None = None) -> Request[MovesRead]:
        """Return the outstanding batch for a destination, with all its messages."""
        return self._outgoing({"wanted": 1, "room": 1, "start": 0, "batch": destination_text(destination)}, now)

    def _outgoing(self, scalars: dict[str, Argument], now: int | None) -> Request[MovesRead]:
        return self.request("outgoing", CallId("", 0, now), read_moves, scalars)

    def freeze(
        self,
        birth: str,
        destination: Destination,
        incarnation: str,
        messages: Sequence[Delivery],
        *,
        purpose: bytes = b"",
        now: int | None = None,
    ) -> Request[Batch | None]:
        """Freeze messages as the next batch for a destination; the result is ``None`` if there is no batch.

        ``birth`` is the birth of the source when the messages were read. A source that was made again gives the same
        names to other messages. ``purpose`` is stored with the batch. It tells every mover of the batch what to make of
        the messages, if this does not follow from the messages themselves.

        Messages that are not there any more as they were read are left out. If a batch for the destination is
        outstanding, nothing is changed, and the result is that batch.
        """

        def read(reply: list[Any]) -> Batch | None:
            number, holder, runs, stored = int(reply[1]), reply[2].decode(), reply[3], reply[4]
            return Batch(destination, holder, number, names_of_runs(runs), stored) if number else None

        within("the size of the purpose", len(purpose), 0, 2 * MAXIMUM_CHANGES_BYTES)
        scalars: dict[str, Argument] = {
            "destination": destination_text(destination),
            "holder": incarnation,
            "birth": birth,
        }
        scalars["purpose"] = purpose
        return self.request("freeze", CallId("", 0, now), read, scalars, exact_names(messages))

    def settle_batch(
        self,
        birth: str,
        destination: Destination,
        number: int,
        verdict: Verdict,
        *,
        names: Sequence[str] = (),
        changes: Mapping[str, bytes] | None = None,
        now: int | None = None,
    ) -> Request[bool]:
        """End a batch: delete the messages that are at the destination, and return the others to their places.

        With ``again``, ``names`` are the messages that are at the destination. With ``refused``, ``changes`` has the
        messages that were refused for good, and their changed properties, which contain the reason. The result is false
        if the batch is not outstanding.
        """
        within("number", number, 1, 999_999_999_999_999)
        if verdict not in {"taken", "back", "again", "refused"}:
            raise ValueError(f"{quoted(verdict)} is not a verdict")
        if bool(names) is not (verdict == "again") or bool(changes) is not (verdict == "refused"):
            raise ValueError("names belong to the verdict 'again', and changes to the verdict 'refused'")
        rest: list[Argument] = named(names) if names else []
        for name, changed in (changes or {}).items():
            if type(changed) is not bytes or not 0 < len(changed) <= MAXIMUM_REFUSED_CHANGES:
                raise ValueError(f"changed properties must be 1 to {MAXIMUM_REFUSED_CHANGES} bytes")
            rest += (*named([name]), changed)

        def read(reply: list[Any]) -> bool:
            return bool(reply[1])

        scalars: dict[str, Argument] = {
            "destination": destination_text(destination),
            "batch": number,
            "birth": birth,
            "verdict": verdict,
        }
        return self.request("settle_batch", CallId("", 0, now), read, scalars, rest)

    def take(
        self,
        origin: Origin,
        batch: Batch,
        door: str,
        sending: Request[Sent] | None,
        *,
        now: int | None = None,
    ) -> Request[Taken]:
        """Store the messages of a batch at their destination, unless this batch was judged there before.

        ``sending`` is the request that would send or publish the messages of the batch, in their order. It is ``None``
        if one call cannot carry them; the verdict is then ``TOOLARGE``. ``door`` must have been learnt before the batch
        was read from its source.
        """
        operation, keys = "toolarge", tuple(self.keys)
        rest: tuple[Argument, ...] = ()
        if sending is not None:
            operation, keys, rest = sending.script.name, sending.keys, sending.arguments[COMMON_ARGUMENTS:]
            if operation not in {"send", "publish"} or keys[: len(self.keys)] != self.keys:
                raise ValueError(f"{operation!r} is not a request that sends to this destination")
        scalars: dict[str, Argument] = {
            "origin": origin_text(origin),
            "batch": batch.number,
            "names": runs_of(batch.names),
            "door": door,
            "operation": operation,
            "size": len(rest),
        }
        request = self.request("take", CallId("", 0, now), read_taken, scalars, rest)
        return request._replace(keys=keys)

    def sweep(
        self,
        destination: Destination,
        incarnation: str,
        taken: Batch | None = None,
        birth: str = "",
        *,
        wanted: int = MAXIMUM_CALL_MESSAGES,
        room: int = MAXIMUM_MOVE_BYTES,
        now: int | None = None,
    ) -> Request[Swept]:
        """End the batch that the destination has taken, and freeze the messages of the main side that wait.

        ``birth`` is the birth of the source that the ``taken`` batch was frozen in. Only the destination of all
        messages that the source forwards may be given. With 0 as ``wanted``, no message is frozen.
        """
        within("wanted", wanted, 0, MAXIMUM_CALL_MESSAGES)
        within("room", room, 1, 1 << 30)
        if (taken is None) is not (birth == ""):
            raise ValueError("a batch that was taken is known by its number and the birth of its source")
        scalars: dict[str, Argument] = {
            "wanted": wanted,
            "room": room,
            "destination": destination_text(destination),
            "holder": incarnation,
            "birth": birth,
            "batch": "" if taken is None else taken.number,
        }
        return self.request("sweep", CallId("", 0, now), partial(read_swept, destination, incarnation), scalars)

    def forget_source(self, origins: Sequence[Origin], *, now: int | None = None) -> Request[int]:
        """Forget sources whose partitions were destroyed. The result says how many of them were known."""
        if not 1 <= len(origins) <= MAXIMUM_CALL_MESSAGES:
            raise ValueError(f"a call takes 1 to {MAXIMUM_CALL_MESSAGES} origins, not {len(origins)}")

        def read(reply: list[Any]) -> int:
            return int(reply[1])

        scalars: dict[str, Argument] = {"door": new_stamp()}
        listed = [origin_text(origin) for origin in origins]
        return self.request("forget_source", CallId("", 0, now), read, scalars, listed)

    # -- reserved ranges -----------------------------------------------------------------------------------------

    def plan(
        self,
        fence: int,
        committed: Committed | None,
        rows: int,
        *,
        room: int = MOST,
        accept: bool = False,
        call_id: CallId = NO_CALL_ID,
    ) -> Request[Planned]:
        """Remove the messages of the committed range, and plan the next one.

        Without ``committed``, the call only answers where to begin: at :attr:`Planned.committed` of its result. With 0
        ``rows``, it only removes messages. ``room`` limits the bytes of the range by an estimate; a range has at least
        one message. A fence that is lower than an earlier one is refused. If the committed plan is not that of the
        partition, messages were lost, and the call is refused. With ``accept`` it goes on, from the committed number or
        a later one.
        """
        within("fence", fence, 1, MOST)
        within("rows", rows, 0, MOST_ROWS)
        within("room", room, 1, MOST)
        scalars: dict[str, Argument] = {"fence": fence, "birth": "", "plan": "", "committed": ""}
        if committed is not None:
            within("plan", committed.plan, 0, MOST)
            within("committed", committed.number, 0, BAND_WIDTH - 1)
            scalars |= {"birth": committed.birth, "plan": committed.plan, "committed": committed.number}
        scalars |= {"rows": rows, "room": room, "accept": int(accept)}
        return self.request("plan", call_id, read_planned, scalars)

    def read_range(
        self,
        birth: str,
        after: int,
        upto: int,
        *,
        wanted: int = MAXIMUM_CALL_MESSAGES,
        room: int = MAXIMUM_CALL_BYTES,
        pinned: bool = True,
        call_id: CallId = NO_CALL_ID,
    ) -> Request[Ranged]:
        """Return the ready messages after a number and up to another one, in the order of their numbers.

        If ``pinned``, the call is refused unless the whole range is pinned, so no message of it can be missing.
        """
        within("after", after, 0, BAND_WIDTH - 1)
        within("upto", upto, 0, BAND_WIDTH - 1)
        within("wanted", wanted, 1, MAXIMUM_CALL_MESSAGES)
        within("room", room, 1, 1 << 30)

        def read(reply: list[Any]) -> Ranged:
            return Ranged(Rows(reply[1], reply[2], reply[3]), bool(reply[0]))

        scalars: dict[str, Argument] = {"birth": birth, "after": after, "upto": upto, "wanted": wanted, "room": room}
        scalars["pinned"] = int(pinned)
        return self.request("read_range", call_id, read, scalars)

    def unpin(self, fence: int, *, call_id: CallId = NO_CALL_ID) -> Request[Unpinned]:
        """Remove messages that are committed, and then end the latest plan: its messages expire again as before."""
        within("fence", fence, 1, MOST)

        def read(reply: list[Any]) -> Unpinned:
            return Unpinned(bool(reply[0]), *reply[1:])

        return self.request("unpin", call_id, read, {"fence": fence})

    def read_pin(self, *, call_id: CallId = NO_CALL_ID) -> Request[Pin]:
        """Return how far a reservation is, without changing anything."""

        def read(reply: list[Any]) -> Pin:
            return Pin(reply[0].decode(), *reply[1:])

        return self.request("read_pin", call_id, read, {})

    # -- administration ------------------------------------------------------------------------------------------

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
        scalars |= {"birth": new_stamp(), "use": int(use)}

        def read(reply: list[Any]) -> int:
            return int(reply[0])

        return self.request("configure", CallId("", 0, now), read, scalars, self.settings.arguments())

    def destroy(self, *, share: int = 500) -> Request[bool]:
        """Delete the partition; the result says whether another step is needed. A ``share`` of 0 only shuts it."""
        within("share", share, 0, MAXIMUM_CALL_MESSAGES)

        def read(reply: list[Any]) -> bool:
            return bool(reply[0])

        return self.request("destroy", NO_CALL_ID, read, {"share": share})

    def destroy_source(self, *, share: int = 500) -> Request[Destroyed]:
        """Delete a partition, and return the entities that may remember it as a source of moves."""

        def read(reply: list[Any]) -> Destroyed:
            return Destroyed(bool(reply[0]), reply[1].decode(), tuple(reply[2].decode().split()))

        request: Request[Any] = self.destroy(share=share)
        return cast("Request[Destroyed]", request._replace(read=read))

    def touch(self, call_id: CallId = NO_CALL_ID) -> Request[bool]:
        """Note a use of a partition that changes nothing else in it. The result says whether a time was written."""

        def read(reply: list[Any]) -> bool:
            return bool(reply[0])

        return self.request("touch", call_id, read, {})

    def close(self, idle: int, closed: int, *, again: bool = False, now: int | None = None) -> Request[Closing]:
        """Close a partition if nobody has used it for ``idle`` ms, because its entity is about to be removed.

        ``closed`` is the version of a closed partition: the version after the one that all clients know. With the
        present version as ``closed``, the call only asks. With ``again``, the partition is closed already and is
        checked again.
        """
        within("idle", idle, 1, NEVER)
        within("closed", closed, self.version, self.version + 1)

        def read(reply: list[Any]) -> Closing:
            return Closing(bool(reply[0]), reply[1])

        partition = self
        if again:
            partition = copy(self)
            partition.version = closed
        return partition.request("close", CallId("", 0, now), read, {"idle": idle, "closed": closed})

    def read_settlements(
        self,
        after: SettlementsPlace = BEGINNING,
        wanted: int = MAXIMUM_CALL_MESSAGES,
        *,
        call_id: CallId = NO_CALL_ID,
    ) -> Request[SettlementsRead]:
        """Read up to ``wanted`` records of the stream after a place."""
        within("after", after.record, 0, 999_999_999_999_999)
        within("wanted", wanted, 1, MAXIMUM_CALL_MESSAGES)

        def read(reply: list[Any]) -> SettlementsRead:
            last, leaps, records = reply
            return read_records(after, SettlementsPlace(last, leaps), records)

        return self.request("settlements", call_id, read, {"after": after.record, "wanted": wanted})

    def watermarks(
        self, prefix: bytes = b"", cursor: str | None = None, *, call_id: CallId = NO_CALL_ID
    ) -> Request[WatermarksRead]:
        """Read the watermarks whose names begin with ``prefix``, about a thousand at a time.

        A watermark that is there during all calls is in at least one part.
        """
        if len(prefix) > MAXIMUM_ID_BYTES:
            raise ValueError(f"the name of a watermark has up to {MAXIMUM_ID_BYTES} bytes, not {len(prefix)}")
        return self.request("watermarks", call_id, watermarks_read, {"prefix": prefix, "cursor": cursor or "0"})

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
        if now is not None or type(number) is not int or not (1 if lane else 0) <= number <= _LARGEST:
            within("number", number, 1 if lane else 0, _LARGEST)
            within("now", now or 0, 0, NEVER - 1)
        if scalars.get("side", "") not in _SIDES or scalars.get("mode", "lock") not in _MODES:
            raise ValueError("side must be '', 'd' or 't', and mode 'lock' or 'delete'")
        common = (self.incarnation, self.version, lane, number, "" if now is None else now)
        facts = facts_of(name)
        freeing = facts.freeing
        return Request(
            load(name),
            self.keys,
            (*common, *scalars.values(), *rest),
            read,
            repeatable=bool(lane) or facts.repeatable.always or facts.repeatable.holds(scalars),
            at_limit=freeing.argument is not None and not freeing.always and freeing.holds(scalars),
        )

    def check_outgoing(self, messages: Sequence[Outgoing]) -> None:
        """Raise for messages that no call of this partition can carry."""
        check_outgoing(messages, self.settings.largest_message)


_LARGEST = 999_999_999_999_999
_SIDES, _MODES = ("", "d", "t"), ("lock", "delete", "lock any", "delete any")


def _state(reply: list[Any]) -> bytes | None:
    return reply[1] if len(reply) > 1 else None


def _locked(session: SessionLock | str) -> dict[str, Argument]:
    """Return the arguments for a session. A caller who does not know its name gives only the token of its lock."""
    if isinstance(session, str):
        return {"session": LOCKED_SESSION, "token": token_of(session)}
    return {"session": signed(session.name), "token": token_of(session.token)}


def _wanted(wanted: int) -> int:
    within("wanted", wanted, 1, MAXIMUM_CALL_MESSAGES)
    return wanted
