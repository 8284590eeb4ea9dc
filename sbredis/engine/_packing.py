"""Checks the arguments of callers and packs them for the scripts: messages in columns, locks in groups. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sbredis._quoting import quoted
from sbredis.engine._bands import LEVELS
from sbredis.engine._lifecycle import NEVER
from sbredis.engine._names import identifier
from sbredis.exceptions import MessageSizeExceededError, Outcome
from sbredis.transport import Argument

__all__ = [
    "LOCKED_SESSION",
    "MAXIMUM_CALL_BYTES",
    "MAXIMUM_CALL_COPIES",
    "MAXIMUM_CALL_MESSAGES",
    "MAXIMUM_CHANGES_BYTES",
    "MAXIMUM_ID_BYTES",
    "Copy",
    "Lock",
    "Outgoing",
    "Redrive",
    "SessionLock",
    "check_outgoing",
    "check_routes",
    "grouped",
    "in_columns",
    "named",
    "only_payloads",
    "redriven",
    "signed",
    "token_of",
    "within",
]

MAXIMUM_CALL_MESSAGES = 1000
MAXIMUM_ID_BYTES = 512
"""The largest size of an id: 128 characters of four bytes."""
MAXIMUM_CHANGES_BYTES = 64 * 1024
"""The largest size of a message's changed properties: the size that Azure allows for all of its properties."""
MAXIMUM_CALL_COPIES = 20_000
"""The largest number of copies that one call to a topic may make; a call with a single message may make more."""
MAXIMUM_CALL_BYTES = 4 * 1024 * 1024
"""The largest total size of the messages of one call; a call with a single message may be larger."""

_NAME = re.compile(r"[dt]?[1-9][0-9]{0,14}", re.ASCII)
_NAMES = re.compile(r"(?:[dt]?[1-9][0-9]{0,14} )+", re.ASCII)
"""The names of many messages: one search for all of them takes a fifth of the time."""
_TOKEN = re.compile(r"[A-Za-z0-9_-]{11}", re.ASCII)
_LEASE = re.compile(r"[A-Za-z0-9_-]{11}(?:[dt]?[1-9][0-9]{0,14})?", re.ASCII)
LOCKED_SESSION = "@"
"""In place of a session, for the scripts: the session that the token locks."""


class Outgoing(NamedTuple):
    """A message to be sent."""

    payload: bytes
    time_to_live: int | None = None
    """The time to live in ms; ``None`` for the time to live of the entity."""
    level: int = 0
    """The priority level, from 0 (the most urgent) to 7."""
    message_id: bytes = b""
    """The id by which duplicates are detected; empty for none."""
    due: int | None = None
    """The time at which it will be enqueued, in ms since 1970; ``None`` means now."""
    origin: str | None = None
    """On a topic, the number of a scheduled message that is published now. Its payload is already stored."""


class Copy(NamedTuple):
    """The copy of a topic's message in one of the subscriptions."""

    place: int
    """The index of the subscription among the targets, from 0."""
    changes: bytes = b""
    """Changed properties; empty for no change."""
    dead: bool = False
    """Whether the copy goes to the dead-letter queue because a rule failed. ``changes`` then contain the reason."""
    time_to_live: int | None = None
    """The copy's own time to live in ms, if ``changes`` change it."""


class Lock(NamedTuple):
    """A message to settle, and the token under which it was given out."""

    token: str
    name: str
    changes: bytes = b""
    """Changed properties; empty for no change."""
    delay: int = 0
    """The delay of an abandoned message, in ms."""


class Redrive(NamedTuple):
    """A dead letter that moves back to the main side, and what it is there."""

    name: str
    time_to_live: int | None = None
    """The time to live in ms, which begins again; ``None`` for the time to live of the entity."""
    changes: bytes = b""
    """Changed properties, which replace all earlier changes; empty for no change. A transfer dead letter must have a
    destination here.
    """


class SessionLock(NamedTuple):
    """The lock on a session: its name and the token of its holder."""

    name: str
    token: str


def signed(session: str | None) -> str:
    """Return a session for the scripts: ``=`` and its name, which may be empty; or an empty text for no session."""
    return "" if session is None else "=" + identifier(session, "session id", may_be_empty=True).decode()


def check_outgoing(messages: Sequence[Outgoing], largest: int) -> None:
    """Raise if no call can carry the messages, or if a message is larger than ``largest`` bytes."""
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
            f"{len(messages)} messages of {total} bytes together, properties included, are too large for one call, "
            f"which takes up to {MAXIMUM_CALL_BYTES} bytes. Send fewer messages at once.",
            outcome=Outcome.NEVER_SENT,
        )


def check_routes(messages: Sequence[Outgoing], routes: Sequence[Sequence[Copy] | None], targets: int) -> None:
    """Raise unless each message has a route that a call with this number of targets can carry."""
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
        if any(not 0 <= place < targets for place in places) or places != sorted(places):
            raise ValueError(f"the places of copies must be places of targets, in rising order, not {places!r}")


def within(what: str, value: object, least: int, most: int) -> None:
    """Raise unless a value is a whole number within these bounds."""
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{what} must be a whole number from {least} to {most}, not {quoted(value)}")


def each_within(bounds: Iterable[tuple[str, object, int, int]]) -> None:
    """Raise unless each value is a whole number within its bounds. Each entry is a name, a value, and its bounds."""
    for what, value, least, most in bounds:
        if type(value) is not int or not least <= value <= most:
            within(what, value, least, most)


def named(given: Sequence[str]) -> list[Argument]:
    """Check the names of messages, refuse a name that occurs twice, and return the names."""
    if isinstance(given, (str, bytes)):
        raise TypeError(f"a list of names is needed, not the text {quoted(given)}")
    listed = list(given)
    if not 1 <= len(listed) <= MAXIMUM_CALL_MESSAGES:
        raise ValueError(f"a call takes 1 to {MAXIMUM_CALL_MESSAGES} messages, not {len(listed)}")
    for name in listed:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{quoted(name)} is not the number of a message")
    if len(set(listed)) < len(listed):
        raise ValueError("a message is named twice")
    return list(listed)


def redriven(messages: Sequence[Redrive]) -> list[Argument]:
    """Check dead letters that move back to the main side, and pack them for the script."""
    rest: list[Argument] = []
    names = named([message.name for message in messages]) if messages else ()
    side = "t" if str(names[0] if names else "").startswith("t") else "d"
    for name in names:
        if not str(name).startswith(side):
            raise ValueError(f"{quoted(name)} is not the number of a dead letter, or of another dead-letter queue")
    for name, time_to_live, changes in messages:
        if time_to_live is not None:
            within("time_to_live", time_to_live, 0, NEVER)
        if len(changes) > MAXIMUM_CHANGES_BYTES:
            raise ValueError(f"the changes of {name} have {len(changes)} bytes, more than {MAXIMUM_CHANGES_BYTES}")
        rest += (name, "" if time_to_live is None else time_to_live, changes)
    return rest


def token_of(token: str) -> str:
    """Check a token and return it."""
    if not _TOKEN.fullmatch(token):
        raise ValueError(f"{quoted(token)} is not the token of a lease")
    return token


def _lease_of(key: str) -> str:
    """Check the key of a lease and return it."""
    if not _LEASE.fullmatch(key):
        raise ValueError(f"{quoted(key)} is not the key of a lease")
    return key


def only_payloads(messages: Sequence[Outgoing]) -> Sequence[bytes] | None:
    """Return the payloads of messages that have nothing else, as nearly all have; otherwise ``None``.

    For speed, it looks at whole columns, and not at each message.
    """
    if not messages:
        return None
    payloads, lives, levels, ids, dues, origins = zip(*messages, strict=True)
    timeless = lives.count(None) == dues.count(None) == origins.count(None) == len(payloads)
    return payloads if timeless and levels.count(0) == ids.count(b"") == len(payloads) else None


def in_columns(
    messages: Sequence[Outgoing], routes: Sequence[Sequence[Copy] | None] = ()
) -> tuple[str, list[Argument]]:
    """Pack messages for the scripts.

    Return the letters of the columns that at least one message needs, and the values.
    """
    timed = levelled = known = scheduled = named = False
    for _, time_to_live, level, message_id, due, origin in messages:
        # One test checks all these fields together for speed: in nearly all messages, all these fields are empty.
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


def grouped(locks: Sequence[Lock], width: int, leases: Sequence[str] = ()) -> list[Argument]:
    """Group messages by token for the scripts. A group is a token, the number of messages, and ``width`` values for
    each message: its name, then its changes, then its delay. Each of the ``leases``, by its key, is a group without
    messages.
    """
    count = len(locks) + len(leases)
    if not 1 <= count <= MAXIMUM_CALL_MESSAGES:
        raise ValueError(f"a call takes 1 to {MAXIMUM_CALL_MESSAGES} messages, not {count}")
    names = [name for _, name, _, _ in locks]
    together = " ".join(names)
    if names and (together.count(" ") != len(names) - 1 or not _NAMES.fullmatch(together + " ")):
        wrong = next(name for name in names if not _NAME.fullmatch(name))
        raise ValueError(f"{quoted(wrong)} is not the number of a message")
    groups: dict[str, list[Argument]] = {}
    total = 0
    for token, name, changes, delay in locks:
        if type(changes) is not bytes:
            raise TypeError(f"changed properties must be bytes, not {type(changes).__name__}")
        if changes:
            total += len(changes)
            if len(changes) > MAXIMUM_CHANGES_BYTES or total > MAXIMUM_CALL_BYTES:
                raise MessageSizeExceededError(
                    f"the changed properties of a message have {len(changes)} bytes ({total} in the call so far); "
                    f"at most {MAXIMUM_CHANGES_BYTES} are allowed for a message, and {MAXIMUM_CALL_BYTES} for a call"
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
    for lease in leases:
        rest += (_lease_of(lease), 0)
    return rest
