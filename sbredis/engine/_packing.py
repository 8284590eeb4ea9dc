"""What callers give, as the scripts take it: messages in columns, locks in groups; checked on the way. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from sbredis._quoting import quoted
from sbredis.engine._lifecycle import LEVELS, NEVER
from sbredis.engine._names import identifier
from sbredis.exceptions import MessageSizeExceededError, Outcome
from sbredis.transport import Argument

__all__ = [
    "MAXIMUM_CALL_BYTES",
    "MAXIMUM_CALL_COPIES",
    "MAXIMUM_CALL_MESSAGES",
    "MAXIMUM_CHANGES_BYTES",
    "MAXIMUM_ID_BYTES",
    "Copy",
    "Lock",
    "Outgoing",
    "SessionLock",
    "check_outgoing",
    "grouped",
    "in_columns",
    "named",
    "signed",
    "token_of",
    "within",
]

MAXIMUM_CALL_MESSAGES = 1000
MAXIMUM_ID_BYTES = 512
"""128 characters of four bytes."""
MAXIMUM_CHANGES_BYTES = 64 * 1024
"""What the changed properties of a message may weigh: what Azure allows for all of its properties."""
MAXIMUM_CALL_COPIES = 20_000
"""What the messages of a call to a topic may become, in all of its subscriptions; a single one may become more."""
MAXIMUM_CALL_BYTES = 4 * 1024 * 1024
"""What the messages of one call may weigh; a single message may be larger."""

_NAME = re.compile(r"d?[1-9][0-9]{0,14}", re.ASCII)
_TOKEN = re.compile(r"[A-Za-z0-9_-]{12}", re.ASCII)


class Outgoing(NamedTuple):
    """A message to be sent."""

    payload: bytes
    time_to_live: int | None = None
    """In ms; ``None`` for as long as the entity lets it."""
    level: int = 0
    """Of eight, 0 the most urgent."""
    message_id: bytes = b""
    """By which duplicates are known; empty for none."""
    due: int | None = None
    """When it is to be enqueued, in ms since 1970; ``None`` for now."""
    origin: str | None = None
    """On a topic, under which number it was scheduled: it is published now, and its payload is there already."""


class Copy(NamedTuple):
    """What a message of a topic becomes in one of its subscriptions."""

    place: int
    """Of the subscription among the targets, from 0 on."""
    changes: bytes = b""
    """Changed properties; empty leaves them as they are."""
    dead: bool = False
    """It goes to the dead-letter queue, because a rule failed; ``changes`` say why."""
    time_to_live: int | None = None
    """Another one than the message has, in ms, where ``changes`` say so."""


class Lock(NamedTuple):
    """A message that is to be settled, and the token under which it was given out."""

    token: str
    name: str
    changes: bytes = b""
    """Changed properties; empty leaves them as they are."""
    delay: int = 0
    """In ms, for abandoning."""


class SessionLock(NamedTuple):
    """The lock on a session, as who has it names it."""

    name: str
    token: str


def signed(session: str | None) -> str:
    """A session as the scripts take it: behind a sign, because the empty text is a session as well; empty for none."""
    return "" if session is None else "=" + identifier(session, "session id", may_be_empty=True).decode()


def check_outgoing(messages: Sequence[Outgoing], largest: int) -> None:
    """Raise for messages that no call can carry, or of which one is larger than ``largest`` bytes."""
    if not 1 <= len(messages) <= MAXIMUM_CALL_MESSAGES:
        raise ValueError(f"a call takes 1 to {MAXIMUM_CALL_MESSAGES} messages, not {len(messages)}")
    total = 0
    for place, (payload, time_to_live, level, message_id, due, _) in enumerate(messages):
        if type(payload) is not bytes or type(message_id) is not bytes:
            raise TypeError(f"payload and message_id of message {place} must be bytes")
        size = len(payload)
        total += size
        if size > largest:
            which = f"Of {len(messages)} messages message {place}" if len(messages) > 1 else "The message"
            raise MessageSizeExceededError(
                f"{which} has {size} bytes; the entity takes messages of up to {largest} bytes, properties "
                "included. Make it smaller, or raise max_message_size_in_kilobytes.",
                outcome=Outcome.NEVER_SENT,
            )
        if len(message_id) > MAXIMUM_ID_BYTES:
            raise ValueError(f"message_id of message {place} has more than {MAXIMUM_ID_BYTES} bytes")
        if time_to_live is not None:
            within(f"time_to_live of message {place}", time_to_live, 0, NEVER)
        if due is not None:
            within(f"due of message {place}", due, 0, NEVER - 1)
        if type(level) is not int or level:
            within(f"level of message {place}", level, 0, LEVELS - 1)
    if total > MAXIMUM_CALL_BYTES and len(messages) > 1:
        raise MessageSizeExceededError(
            f"{len(messages)} messages of {total} bytes together, properties included, are too large for one call; "
            f"it takes {MAXIMUM_CALL_BYTES} bytes. Send fewer at once.",
            outcome=Outcome.NEVER_SENT,
        )


def within(what: str, value: object, least: int, most: int) -> None:
    """Raise unless it is a whole number within these bounds."""
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{what} must be a whole number from {least} to {most}, not {quoted(value)}")


def named(given: Sequence[str]) -> list[Argument]:
    """Names of messages, each once."""
    if isinstance(given, (str, bytes)):
        raise TypeError(f"several names are needed, not the one text {quoted(given)}")
    listed = list(given)
    if not 1 <= len(listed) <= MAXIMUM_CALL_MESSAGES:
        raise ValueError(f"a call takes 1 to {MAXIMUM_CALL_MESSAGES} messages, not {len(listed)}")
    for name in listed:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{quoted(name)} is no number of a message")
    if len(set(listed)) < len(listed):
        raise ValueError("a message is named twice")
    return list(listed)


def token_of(token: str) -> str:
    """A token, if it is one."""
    if not _TOKEN.fullmatch(token):
        raise ValueError(f"{quoted(token)} is no token of a lease")
    return token


def in_columns(
    messages: Sequence[Outgoing], routes: Sequence[Sequence[Copy] | None] = ()
) -> tuple[str, list[Argument]]:
    """Messages as the scripts take them: the letters of the columns that any of them needs, and their values."""
    timed = levelled = known = scheduled = named = False
    for _, time_to_live, level, message_id, due, origin in messages:
        # One look at each message: nearly all of them have none of it.
        if level or message_id or time_to_live is not None or due is not None or origin is not None:
            timed = timed or time_to_live is not None
            levelled = levelled or bool(level)
            known = known or bool(message_id)
            scheduled = scheduled or due is not None
            named = named or origin is not None
    if not (timed or levelled or known or scheduled or named or routes):
        return "", [message[0] for message in messages]
    changed = any(copy.changes for route in routes if route for copy in route)
    rest: list[Argument] = []
    for place, message in enumerate(messages):
        if routes:
            route = routes[place]
            rest.append("-" if route is None else " ".join(map(_as_text, route)))
            if changed:
                rest.append(b"".join([copy.changes for copy in route or ()]))
        if timed:
            rest.append("" if message.time_to_live is None else message.time_to_live)
        if levelled:
            rest.append(message.level)
        if known:
            rest.append(message.message_id)
        if scheduled:
            rest.append("" if message.due is None else message.due)
        if named:
            rest.append(message.origin or "")
        rest.append(message.payload)
    letters = zip("rctlido", (bool(routes), changed, timed, levelled, known, scheduled, named), strict=True)
    return "".join(letter for letter, used in letters if used), rest


def _as_text(copy: Copy) -> str:
    place, changes, dead, time_to_live = copy
    if dead:
        return f"{place + 1}e{len(changes)}"
    if not changes:
        return str(place + 1)
    lives = "" if time_to_live is None else f"t{time_to_live}"
    return f"{place + 1}a{len(changes)}{lives}"


def grouped(locks: Sequence[Lock], width: int) -> list[Argument]:
    """Messages by token, as the scripts take them: a token, a count, and for each message its name and, as far as
    ``width`` says, its changes and its delay.
    """
    if not 1 <= len(locks) <= MAXIMUM_CALL_MESSAGES:
        raise ValueError(f"a call takes 1 to {MAXIMUM_CALL_MESSAGES} messages, not {len(locks)}")
    groups: dict[str, list[Argument]] = {}
    fits = _NAME.fullmatch
    total = 0
    for token, name, changes, delay in locks:
        if not fits(name):
            raise ValueError(f"{quoted(name)} is no number of a message")
        if type(changes) is not bytes:
            raise TypeError(f"changed properties must be bytes, not {type(changes).__name__}")
        if changes:
            total += len(changes)
            if len(changes) > MAXIMUM_CHANGES_BYTES or total > MAXIMUM_CALL_BYTES:
                raise MessageSizeExceededError(
                    f"changed properties of {len(changes)} bytes, of {total} in one call, are too large: "
                    f"a message may have {MAXIMUM_CHANGES_BYTES}, a call {MAXIMUM_CALL_BYTES}"
                )
        listed = groups.get(token)
        if listed is None:
            listed = groups[token_of(token)] = []
        if width == 1:
            listed.append(name)
        elif width == 2:
            listed += (name, changes)
        else:
            listed += (name, changes, delay)
    rest: list[Argument] = []
    for token, listed in groups.items():
        rest += (token, len(listed) // width, *listed)
    return rest
