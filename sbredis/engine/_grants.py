"""The form of grants in calls, of their answers in replies, and of pushes. Pure.

A grant is one argument of a call: its values as words, and the source at the end, which may have any characters. The
answer to a grant is a list: a text of words, and then the gifts. A gift of messages has its words, a list of names, the
records, and facts about some of the messages. A gift of a session has its words, the session's name, and the gifts of
its first messages. A push is one text, which begins with the length of each of its parts, because records may have any
bytes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import compress, repeat
from operator import itemgetter
from typing import Any, Final, Generic, NamedTuple, TypeVar

from sbredis._quoting import quoted
from sbredis._unreadable import decodes
from sbredis.engine._credit_values import (
    CreditAnswer,
    CreditGift,
    CreditGrant,
    CreditPush,
    CreditReply,
    GiftPlace,
    SessionGift,
)
from sbredis.engine._packing import each_within, signed, token_of
from sbredis.engine._request import Request
from sbredis.engine._results import FACTS, Delivery, deliveries
from sbredis.transport import Argument

__all__ = [
    "MAXIMUM_CREDIT",
    "MAXIMUM_GRANTS",
    "MAXIMUM_REPLY_BYTES",
    "NEXT_SESSION",
    "RELEASED",
    "Carried",
    "Granted",
    "PushHeard",
    "SentGrant",
    "carrying",
    "granted",
    "packed_grants",
    "read_push",
]

MAXIMUM_GRANTS: Final = 32
"""The largest number of grants in one call."""
MAXIMUM_CREDIT: Final = 100_000
"""The largest number of messages that a partition may still give to a receiver."""
MAXIMUM_ROOM: Final = 1 << 30
"""The largest number of bytes that a partition may still give to a receiver."""
MAXIMUM_REPLY_BYTES: Final = 2_000_000
"""The largest total size of the messages that one reply gives out; a single message may be larger. A script takes less
than 10 ms for them.
"""
NEXT_SESSION: Final = "next"
"""The source of free sessions."""
RELEASED: Final = "LOST released"
"""The refusal of a grant that has left its session."""
_MOST_RETIRED: Final = 32
_MOST_FIRST: Final = 1000
_LARGEST: Final = 999_999_999_999_999
_WHOLE: Final = {int}
_WORD: Final = itemgetter(0, 2)
"""Returns what a partition keeps the word of a grant by: the receiver and the source."""

T = TypeVar("T")

_RECEIVER = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)
_CHANNEL = re.compile(rb"[\x21-\x7e]{0,500}")
_RUN = re.compile(r"[\x21-\x7e]{1,8}")
_PREFIX = re.compile(r"[A-Za-z0-9_-]{8}", re.ASCII)
_SOURCE = re.compile(r"|d|t|next|=.*", re.DOTALL)

_TIME = re.compile(rb"([\x21-\x7e]{1,8}) ([0-9]{1,15})")
_ANSWER = re.compile(
    rb"([tkfr]) ([A-Za-z0-9_-]{8}|) ([0-9]{1,15}) ([0-9]{1,15}) ([0-9]{1,15}) ([0-9]{1,15}) "
    rb"([akmsw]*) ([0-9]{0,15}) (.*)"
)
_GIFT = re.compile(rb"([A-Za-z0-9_-]{8}) ([0-9]{1,15}) ([0-9]{1,15}) ([0-9]{1,15}) (-?[0-9]{1,15}) ([0-9]{1,15})")
_PUSH = re.compile(
    rb"([A-Za-z0-9_.-]{1,64}) ([\x21-\x7e]{1,8}) ([0-9]{1,15}) ([A-Za-z0-9_-]{8}) ([0-9]{1,9}(?:,[0-9]{1,9})*)"
)
_OTHERS_WAIT: Final = b"w"
_ANSWERS: Final = {
    b"t": CreditAnswer.TAKEN,
    b"k": CreditAnswer.KNOWN,
    b"f": CreditAnswer.FORGOTTEN,
    b"r": CreditAnswer.REFUSED,
}


class SentGrant(NamedTuple):
    """A grant as a call carries it."""

    receiver: str
    """The id of the receiver: letters, digits, ``.``, ``_`` and ``-``. At a held session, the token of its lock."""
    channel: bytes
    """The channel for pushes to the receiver; empty if it has none, and then the grant must be *now*."""
    source: str
    """Nothing for the main side, ``d``, ``t``, ``next`` for free sessions, or ``=`` and the name of a session."""
    grant: CreditGrant
    delete: bool = False
    """Whether messages are deleted when they are given, instead of locked. They are given in replies only."""


class Granted(NamedTuple):
    """The result of a call that only grants credit."""

    more: bool
    """Whether due work is left in the partition, because a call does only a share of it. Another call is needed."""
    credits: tuple[CreditReply[Delivery], ...]
    """The answer to each grant, in the order of the grants."""


class Carried(NamedTuple, Generic[T]):
    """The result of another call that carries grants."""

    result: T
    credits: tuple[CreditReply[Delivery], ...]
    """The answer to each grant, in the order of the grants."""


class PushHeard(NamedTuple):
    """A push, and for whom it is."""

    receiver: str
    source: str
    push: CreditPush[Delivery]


def packed_grants(grants: Sequence[SentGrant]) -> list[Argument]:
    """Check grants and pack them: each is one argument."""
    if len(grants) > MAXIMUM_GRANTS:
        raise ValueError(f"a call takes up to {MAXIMUM_GRANTS} grants, not {len(grants)}")
    if len(grants) > 1 and len(set(map(_WORD, grants))) < len(grants):
        raise ValueError("a receiver grants credit twice in one call")
    return list(map(_packed, grants))


def _packed(sent: SentGrant) -> str:
    receiver, channel, source, grant, delete = sent
    before, between = _seldom_changing(receiver, channel, source, grant.run, grant.prefix)
    seen, begun, hands, callers, limit = grant.seen, grant.begun, grant.hands, grant.callers, grant.limit
    counts = (*seen, begun, hands, callers, limit, grant.size_limit, grant.number, grant.first, grant.first_size)
    if not (
        set(map(type, counts)) == _WHOLE
        and min(counts) >= 0
        and max(counts) <= _LARGEST
        and grant.number >= 1
        and 1 <= hands <= MAXIMUM_CREDIT
        and seen.messages <= callers <= limit <= seen.messages + MAXIMUM_CREDIT
        and seen.size <= grant.size_limit <= seen.size + MAXIMUM_ROOM
        and grant.first <= _MOST_FIRST
        and grant.first_size <= MAXIMUM_ROOM
    ):
        raise ValueError(f"a number of a grant is not whole, or not within its bounds: {grant}")
    if not (channel or grant.now):
        raise ValueError("credit of a grant that stays open needs a channel for pushes")
    if (grant.leaves or grant.yields) and not source.startswith("="):
        raise ValueError("only a grant at a held session may leave the session, or yield")
    if (grant.first or grant.first_size) and source != NEXT_SESSION:
        raise ValueError("first messages come only with a grant of sessions")
    retired = _retired(grant) if grant.retired else ""
    said = grant.begins, grant.again, grant.announced, grant.now, grant.once, grant.suspects, delete
    flags = "".join(compress("bainosdly", (*said, grant.leaves, grant.yields)))
    first = f"{grant.first}:{grant.first_size}" if grant.first else ""
    return (
        f"{before} {grant.number} {between} {seen.serial} {seen.messages} {seen.size} {begun} {hands} "
        f"{callers} {limit} {grant.size_limit} {flags} {retired} {first} {source}"
    )


@lru_cache(maxsize=1024)
def _seldom_changing(receiver: str, channel: bytes, source: str, run: str, prefix: str) -> tuple[str, str]:
    """Check the words of a grant that are mostly those of the receiver's last one.

    Return what comes before the number of the grant, and what comes after it.
    """
    for what, text, form in (
        ("receiver", receiver, _RECEIVER),
        ("run", run, _RUN),
        ("source", source, _SOURCE),
        ("prefix", prefix, _PREFIX),
    ):
        if not form.fullmatch(text):
            raise ValueError(f"{quoted(text)} is not the {what} of a grant")
    if not _CHANNEL.fullmatch(channel):
        raise ValueError(f"{quoted(channel)} is not a channel")
    if source.startswith("="):
        signed(source[1:])
        token_of(receiver)
    return f"{receiver} {channel.decode()}", f"{run} {prefix}"


def _retired(grant: CreditGrant) -> str:
    for prefix, *serials in grant.retired:
        if not _PREFIX.fullmatch(prefix):
            raise ValueError(f"{quoted(prefix)} is not the prefix of a grant")
        each_within([("seen and begun", serial, 0, _LARGEST) for serial in serials])
    return ",".join([f"{prefix}:{seen}:{begun}" for prefix, seen, begun in grant.retired[-_MOST_RETIRED:]])


def granted(reply: list[Any]) -> Granted:
    """Read the result of a call that only grants credit."""
    return Granted(bool(reply[0]), _credits(reply[1]))


def carrying(request: Request[T], grants: Sequence[SentGrant]) -> Request[Carried[T]]:
    """Return a settlement or a transaction with grants. They follow its other arguments, and their answers its result.

    A call that is refused does not read them. Without grants, the call stays as it is.
    """

    def read(reply: list[Any]) -> Carried[T]:
        if not grants:
            return Carried(request.read(reply), ())
        answers = _credits(reply[-1])
        if len(answers) != len(grants):
            raise ValueError("another number of grants was answered")
        return Carried(request.read(reply[:-1]), answers)

    arguments = (*request.arguments, *packed_grants(grants))
    return Request(request.script, request.keys, arguments, read, request.repeatable, request.at_limit)


def _credits(reply: list[Any]) -> tuple[CreditReply[Delivery], ...]:
    """Read the answers to grants: the server process and its clock, and then a list for each grant."""
    run, clock = _words(_TIME, reply[0])
    return tuple(map(_credit, repeat(run.decode()), repeat(int(clock)), reply[1:]))


def _credit(run: str, clock: int, reply: list[Any]) -> CreditReply[Delivery]:
    """Read the answer to a grant: its words, and gifts of messages or of sessions with their first messages."""
    answer, prefix, serial, messages, size, limit, letters, due, refusal = _words(_ANSWER, reply[0])
    flags = letters.decode()  # to look for bytes in bytes takes much longer
    gifts: list[CreditGift[Delivery]] = []
    for said, name, *rest in reply[1:]:
        if isinstance(name, list):
            names: list[Any] = name  # pyright: ignore[reportUnknownVariableType]  # the elements are of any type
            gifts.append(_gift(clock, said, names, *rest))
        else:
            firsts = [_gift(clock, *first) for first in rest]
            gifts.append(_session(_gift(clock, said, [], [], []), name, firsts))
    return CreditReply(
        run=run,
        clock=clock,
        answer=_ANSWERS[answer],
        prefix=prefix.decode(),
        last=GiftPlace(int(serial), int(messages), int(size)),
        limit=int(limit),
        gifts=gifts,
        there="m" in flags,
        suspects="s" in flags,
        again="a" in flags,
        due=int(due) / 1000 if due else None,
        keeps="k" in flags,
        refusal=refusal.decode(),
        others_wait="w" in flags,
    )


def _session(gift: CreditGift[Delivery], name: bytes, firsts: list[CreditGift[Delivery]]) -> CreditGift[Delivery]:
    session = SessionGift(name.decode(), firsts)
    return CreditGift(gift.prefix, gift.place, gift.until, gift.messages, gift.fence, session)


def _gift(clock: int, said: bytes, names: list[bytes], records: list[bytes], extras: list[Any]) -> CreditGift[Delivery]:
    prefix, serial, messages, size, left, fence = _words(_GIFT, said)
    place = GiftPlace(int(serial), int(messages), int(size))
    found = deliveries(names, records, extras)
    return CreditGift(prefix.decode(), place, clock + int(left), found, int(fence))


def _words(form: re.Pattern[bytes], text: bytes) -> tuple[bytes, ...]:
    found = form.fullmatch(text)
    if found is None:
        raise ValueError("a part of an answer to a grant is malformed")
    return found.groups()


@decodes("A push")
def read_push(text: bytes) -> PushHeard:
    """Read a push.

    The parts of a push are the source and, if it is a gift, the words of the gift, the names, the records, and the
    facts about some of the messages. The gift of a session has its words, the session's name, and then such parts for
    the first messages, if there are any. The letter ``w`` in place of a gift says that other sessions wait. Raises
    :class:`~sbredis.exceptions.DataLayoutError` for any other text.
    """
    line, _, rest = text.partition(b"\n")
    receiver, run, clock, prefix, lengths = _words(_PUSH, line)
    at = 0
    parts: list[bytes] = []
    for length in lengths.split(b","):
        end = at + int(length)
        parts.append(rest[at:end])
        at = end
    if at != len(rest):
        raise ValueError("the parts have other lengths")
    source, others_wait = parts[0].decode(), parts[1:] == [_OTHERS_WAIT]
    gift = None
    if source == NEXT_SESSION and len(parts) > 1:
        gift = _pushed_session(int(clock), *parts[1:])
    elif len(parts) > 1 and not others_wait:
        gift = _pushed_gift(int(clock), parts[1:])
    if not _SOURCE.fullmatch(source) or (gift is not None and gift.prefix != prefix.decode()):
        raise ValueError("the source or the gift is malformed")
    push = CreditPush(run.decode(), int(clock), prefix.decode(), gift, others_wait)
    return PushHeard(receiver.decode(), source, push)


def _pushed_session(clock: int, said: bytes, name: bytes, *first: bytes) -> CreditGift[Delivery]:
    gift = _gift(clock, said, [], [], [])
    firsts = [_pushed_gift(clock, [*first])] if first else []
    if any(each.prefix != gift.prefix for each in firsts):
        raise ValueError("the first messages of a session have another prefix")
    return _session(gift, name, firsts)


def _pushed_gift(clock: int, parts: list[bytes]) -> CreditGift[Delivery]:
    names = parts[1].split(b" ")
    end = 2 + len(names)
    facts: list[Any] = parts[end:]
    if facts:
        facts[::FACTS] = map(int, facts[::FACTS])
        if len(facts) % FACTS:
            raise ValueError("the facts about the messages are incomplete")
    return _gift(clock, parts[0], names, parts[2:end], facts)
