"""Requests with which tests receive messages and accept sessions.

Each is a grant of a receiver of its own, and its credit ends with the reply. So a test need not count, and gets no
pushes. A repeated request shows what its receiver still has. A receiver has as many hands as a grant may have, so
every lapse of a lock counts.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from sbredis.engine import (
    NO_CALL_ID,
    REFUSALS,
    Accepted,
    CreditAnswer,
    CreditGrant,
    CreditReply,
    Delivery,
    Granted,
    Mode,
    Partition,
    Received,
    Request,
    SentGrant,
    SidePrefix,
    new_token,
)
from sbredis.exceptions import Outcome
from sbredis.transport import Transport

__all__ = ["ROOM", "accepting", "first_token", "receiving", "run_of"]

ROOM = 1 << 22
"""The bytes of messages that a receiver asks for, unless a test says another number."""
_HANDS = 100_000
_FIRST = "AAB"
"""The end of the token of the first gift of a receiver."""
_numbers = count(1)

Refuse = Callable[[str, str], Exception]
"""A function that returns the error for the code and the detail of a refusal."""


def first_token(prefix: str = "") -> str:
    """Return the token of the first gift of a receiver whose tokens begin with this prefix, or with a new one."""
    return f"{prefix or new_token()[:8]}{_FIRST}"


def run_of(transport: Transport, partition: Partition) -> str:
    """Return how grants name the server process of a partition."""
    server = transport.server_of(partition.keys[0])
    return "?" if server is None else server.run_id[:8].decode()


def receiving(
    partition: Partition,
    token: str,
    wanted: int,
    *,
    run: str,
    now: int | None = None,
    side: SidePrefix = "",
    mode: Mode = "lock",
    room: int = ROOM,
    session: str | None = None,
    refuse: Refuse | None = None,
) -> Request[Received]:
    """Give out the oldest messages, locked under ``token`` or deleted immediately.

    Outside of a session, the token must be a :func:`first_token` that was never used. With ``session``, it is the token
    of the lock on the session. ``now`` is the time of a test clock.
    """
    source: str = side
    prefix = token[:8]
    if session is not None:
        source = f"={session}"
        prefix = f"s{next(_numbers):07}"  # a receiver of a session has one word, and begins to count anew
    elif not token.endswith(_FIRST):
        raise ValueError(f"{token!r} is not the token of a first gift")

    def read(reply: CreditReply[Delivery], more: bool) -> Received:
        for gift in reply.gifts:
            lock = int(gift.until - reply.clock)
            return Received(more, lock, tuple(gift.messages), fence=gift.fence)
        return Received(more, 0, ())

    sent = SentGrant(token, b"", source, _grant(prefix, wanted, room, run), mode == "delete")
    return _asking(partition, sent, now, read, refuse)


def accepting(
    partition: Partition, token: str, *, run: str, now: int | None = None, refuse: Refuse | None = None
) -> Request[Accepted | None]:
    """Lock the session that has been free for longest under a :func:`first_token`; the result is ``None`` if no session
    is free.
    """

    def read(reply: CreditReply[Delivery], more: bool) -> Accepted | None:
        for gift in reply.gifts:
            assert gift.session is not None
            lock = int(gift.until - reply.clock)
            return Accepted(more, lock, "taken", gift.session.name, gift.fence)
        return None

    return _asking(partition, SentGrant(token, b"", "next", _grant(token[:8], 1, 0, run)), now, read, refuse)


def _grant(prefix: str, wanted: int, room: int, run: str) -> CreditGrant:
    return CreditGrant.ending(next(_numbers), run, prefix, wanted, room=room, hands=_HANDS)


def _asking(partition: Partition, sent: SentGrant, now: int | None, read: Any, refuse: Refuse | None) -> Request[Any]:
    """Return a call with one grant. Its result is what ``read`` makes of the answer; a refusal is the error for it."""
    request = partition.grant([sent], NO_CALL_ID._replace(now=now))

    def result(reply: Any) -> Any:
        granted: Granted = request.read(reply)
        (answer,) = granted.credits
        if answer.refusal:
            code, _, detail = answer.refusal.partition(" ")
            raise (refuse or _error)(code, detail)
        if answer.answer is CreditAnswer.FORGOTTEN and refuse:
            raise refuse("FORGOTTEN", sent.grant.run)
        assert answer.answer in {CreditAnswer.TAKEN, CreditAnswer.KNOWN}, answer
        return read(answer, granted.more)

    return request._replace(read=result)


def _error(code: str, detail: str) -> Exception:
    kind, text = REFUSALS[code](detail)
    return kind(text, outcome=Outcome.REFUSED)
