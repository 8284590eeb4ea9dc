"""Sessions of a partition: accepting and renewing them, their state, and finding them. Requests, made without I/O."""

from __future__ import annotations

from typing import Any

from sbredis.engine._packing import (
    MAXIMUM_CALL_MESSAGES,
    MAXIMUM_CHANGES_BYTES,
    SessionLock,
    signed,
    token_of,
    within,
)
from sbredis.engine._partition import NO_CALL_ID, CallId, Partition, new_token
from sbredis.engine._request import Request
from sbredis.engine._results import NEVER, Accepted, Purged, SessionsListed
from sbredis.exceptions import MessageSizeExceededError
from sbredis.transport import Argument

__all__ = [
    "accept_session",
    "bury_session",
    "get_state",
    "list_sessions",
    "list_sessions_since",
    "look_for_session",
    "peek_state",
    "release_session",
    "renew_session",
    "set_state",
]


def accept_session(
    partition: Partition, call_id: CallId, token: str, name: str | None, *, waiter: bytes = b"", waiting_for: int = 1
) -> Request[Accepted]:
    """Lock a session under a token: the named session, or else the session that has been free for longest.

    ``waiter`` is the channel on which the caller waits for a free session, if it names no session and gets none.
    """
    return _accepting(partition, call_id, token_of(token), name, 1, waiter, waiting_for)


def look_for_session(
    partition: Partition, *, waiter: bytes = b"", waiting_for: int = 1, call_id: CallId = NO_CALL_ID
) -> Request[Accepted]:
    """Report whether a session is free, without locking it. If none is free, register the caller to wait for one.

    With ``waiting_for`` 0 the caller does not wait, and an earlier wait ends. A look does not use a lane.
    """
    return _accepting(partition, call_id, new_token(), None, 0, waiter, waiting_for)._replace(repeatable=True)


def _accepting(  # noqa: PLR0917 -- the arguments of the script
    partition: Partition, call_id: CallId, token: str, name: str | None, take: int, waiter: bytes, waiting_for: int
) -> Request[Accepted]:
    within("waiting_for", waiting_for, 0, 1)

    def read(reply: list[Any]) -> Accepted:
        return Accepted(bool(reply[0]), reply[1], reply[2], reply[3].decode(), reply[4].decode(), reply[5])

    scalars: dict[str, Argument] = {
        "session": signed(name),
        "take": take,
        "token": token,
        "waiter": waiter,
        "waiting_for": waiting_for,
    }
    return partition.request("accept_session", call_id, read, scalars)


def renew_session(partition: Partition, call_id: CallId, session: SessionLock) -> Request[int]:
    """Renew the lock on a session for the full duration; the result is the duration in ms."""

    def read(reply: list[Any]) -> int:
        return int(reply[1])

    return partition.request("renew_session", call_id, read, _locked(session))


def release_session(partition: Partition, call_id: CallId, session: SessionLock) -> Request[int]:
    """Release a session and its held messages; no delivery counts as failed. The result is the number of messages."""

    def read(reply: list[Any]) -> int:
        return int(reply[1])

    return partition.request("release_session", call_id, read, _locked(session))


def set_state(partition: Partition, call_id: CallId, session: SessionLock, state: bytes | None) -> Request[bool]:
    """Set the state of a session, or remove it with ``None``; the result says whether more work is due."""
    if state is not None and type(state) is not bytes:
        raise TypeError(f"the state of a session must be bytes, not {type(state).__name__}")
    if state is not None and len(state) > partition.settings.largest_message:
        raise MessageSizeExceededError(
            f"the state of the session has {len(state)} bytes; the entity allows up to "
            f"{partition.settings.largest_message} bytes"
        )

    def read(reply: list[Any]) -> bool:
        return bool(reply[0])

    scalars = _locked(session) | {"given": int(state is not None), "state": state or b""}
    return partition.request("set_state", call_id, read, scalars)._replace(at_limit=state is None)


def get_state(partition: Partition, session: SessionLock, call_id: CallId = NO_CALL_ID) -> Request[bytes | None]:
    """Read the state of a session, which the caller has locked."""
    return partition.request("get_state", call_id, _state, _locked(session))


def peek_state(partition: Partition, name: str, call_id: CallId = NO_CALL_ID) -> Request[bytes | None]:
    """Read the state of a session, whoever has locked it."""
    return partition.request("get_state", call_id, _state, {"session": signed(name), "token": ""})


def _state(reply: list[Any]) -> bytes | None:
    return reply[1] if len(reply) > 1 else None


def list_sessions(
    partition: Partition, wanted: int, after: str | None = None, call_id: CallId = NO_CALL_ID
) -> Request[SessionsListed]:
    """List sessions that have a state, active messages or held messages, in the order of their names in UTF-8."""
    scalars: dict[str, Argument] = {"wanted": _wanted(wanted), "after": signed(after), "since": ""}
    return partition.request("list_sessions", call_id, _listed, scalars)


def list_sessions_since(
    partition: Partition, wanted: int, since: int, skip: int = 0, call_id: CallId = NO_CALL_ID
) -> Request[SessionsListed]:
    """List sessions whose state was set at ``since`` (in ms) or later, in the order of these times, without the first
    ``skip`` sessions.
    """
    within("since", since, 0, NEVER)
    within("skip", skip, 0, 999_999_999)
    scalars: dict[str, Argument] = {"wanted": _wanted(wanted), "after": skip, "since": since}
    return partition.request("list_sessions", call_id, _listed, scalars)


def bury_session(
    partition: Partition,
    call_id: CallId,
    session: SessionLock,
    changes: bytes = b"",
    *,
    share: int = 500,
) -> Request[Purged]:
    """Move one share of a session's messages to the dead-letter queue; the result says whether there may be more."""
    within("share", share, 1, MAXIMUM_CALL_MESSAGES)
    if len(changes) > MAXIMUM_CHANGES_BYTES:
        raise MessageSizeExceededError(
            f"reason and description have {len(changes)} bytes; a message may have up to {MAXIMUM_CHANGES_BYTES}"
        )

    def read(reply: list[Any]) -> Purged:
        return Purged(bool(reply[0]), reply[1], 0 if reply[2] else None)

    scalars = _locked(session) | {"share": share, "changes": changes}
    return partition.request("bury_session", call_id, read, scalars)


def _locked(session: SessionLock) -> dict[str, Argument]:
    return {"session": signed(session.name), "token": token_of(session.token)}


def _wanted(wanted: int) -> int:
    within("wanted", wanted, 1, MAXIMUM_CALL_MESSAGES)
    return wanted


def _listed(reply: list[Any]) -> SessionsListed:
    onwards = reply[3].decode() if len(reply) > 3 else ""
    return SessionsListed(
        tuple(name.decode() for name in reply[1]),
        tuple(map(int, reply[2])),
        onwards[1:] if onwards else None,
        more=bool(reply[0]),
    )
