"""The form of grants in calls, of their answers in replies, and of pushes. Pure.

A grant is one argument of a call: its values as words, and the source at the end, which may have any characters. The
answer to a grant is a list: a text of words, and then the gifts. A gift of messages has its words, a list of names, the
records, and facts about some of the messages. A gift of a session has its words, the session's name, and the gifts of
its first messages. A push is one text, which begins with the length of each of its parts, because records may have any
bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
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
from sbredis.engine._packing import signed, token_of, within
from sbredis.engine._request import Request
from sbredis.engine._results import FACTS, Delivery, deliveries
from sbredis.transport import Argument

__all__ = [
    "MAXIMUM_CREDIT",
    "MAXIMUM_GRANTS",
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
NEXT_SESSION: Final = "next"
"""The source of free sessions."""
RELEASED: Final = "LOST released"
"""The refusal of a grant that has left its session."""
_MOST_RETIRED: Final = 32
_MOST_FIRST: Final = 1000
_LARGEST: Final = 999_999_999_999_999

T = TypeVar("T")

_RECEIVER = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)
_CHANNEL = re.compile(rb"[\x21-\x7e]{0,500}")
_RUN = re.compile(r"[\x21-\x7e]{1,8}")
_PREFIX = re.compile(r"[A-Za-z0-9_-]{8}", re.ASCII)
_SOURCE = re.compile(r"|d|t|next|=.*", re.DOTALL)

_TIME = re.compile(rb"([\x21-\x7e]{1,8}) ([0-9]{1,15})")
_ANSWER = re.compile(
    rb"([tkfr]) ([A-Za-z0-9_-]{8}|) ([0-9]{1,15}) ([0-9]{1,15}) ([0-9]{1,15}) ([0-9]{1,15}) "
    rb"([amsw]*) ([0-9]{0,15}) (.*)"
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
    if len({(sent.receiver, sent.source) for sent in grants}) < len(grants):
        raise ValueError("a receiver grants credit twice in one call")
    return [_packed(sent) for sent in grants]


def _packed(sent: SentGrant) -> str:
    receiver, channel, source, grant, delete = sent
    _check(sent)
    retired = ",".join([f"{prefix}:{seen}:{begun}" for prefix, seen, begun in grant.retired[-_MOST_RETIRED:]])
    flags = "".join(
        letter
        for letter, said in zip(
            "bainosdly",
            (
                *(grant.begins, grant.again, grant.announced, grant.now, grant.once, grant.suspects, delete),
                *(grant.leaves, grant.yields),
            ),
            strict=True,
        )
        if said
    )
    first = f"{grant.first}:{grant.first_size}" if grant.first else ""
    seen = grant.seen
    return (
        f"{receiver} {channel.decode()} {grant.number} {grant.run} {grant.prefix} "
        f"{seen.serial} {seen.messages} {seen.size} {grant.begun} {grant.hands} "
        f"{grant.callers} {grant.limit} {grant.size_limit} {flags} {retired} {first} {source}"
    )


def _check(sent: SentGrant) -> None:
    receiver, channel, source, grant, _ = sent
    for what, text, form in (
        ("receiver", receiver, _RECEIVER),
        ("run", grant.run, _RUN),
        ("source", source, _SOURCE),
        *(("prefix", prefix, _PREFIX) for prefix in (grant.prefix, *(prefix for prefix, _, _ in grant.retired))),
    ):
        if not form.fullmatch(text):
            raise ValueError(f"{quoted(text)} is not the {what} of a grant")
    if not _CHANNEL.fullmatch(channel):
        raise ValueError(f"{quoted(channel)} is not a channel")
    if not channel and not grant.now:
        raise ValueError("credit that stays open needs a channel for pushes")
    if source.startswith("="):
        signed(source[1:])
        token_of(receiver)
    elif grant.leaves or grant.yields:
        raise ValueError("only a grant at a held session may leave the session, or yield")
    if source != NEXT_SESSION and (grant.first or grant.first_size):
        raise ValueError("first messages come only with a grant of sessions")
    within("first", grant.first, 0, _MOST_FIRST)
    within("first_size", grant.first_size, 0, MAXIMUM_ROOM)
    seen = grant.seen
    within("number", grant.number, 1, _LARGEST)
    for each in (*seen, grant.begun, *(serial for _, *serials in grant.retired for serial in serials)):
        within("seen and begun", each, 0, _LARGEST)
    within("hands", grant.hands, 1, MAXIMUM_CREDIT)
    within("limit", grant.limit, seen.messages, seen.messages + MAXIMUM_CREDIT)
    within("callers", grant.callers, seen.messages, grant.limit)
    within("size_limit", grant.size_limit, seen.size, seen.size + MAXIMUM_ROOM)


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
    return tuple([_credit(run.decode(), int(clock), answer) for answer in reply[1:]])


def _credit(run: str, clock: int, reply: list[Any]) -> CreditReply[Delivery]:
    answer, prefix, serial, messages, size, limit, flags, due, refusal = _words(_ANSWER, reply[0])
    return CreditReply(
        run=run,
        clock=clock,
        answer=_ANSWERS[answer],
        prefix=prefix.decode(),
        last=GiftPlace(int(serial), int(messages), int(size)),
        limit=int(limit),
        gifts=[_given(clock, gift) for gift in reply[1:]],
        there=b"m" in flags,
        suspects=b"s" in flags,
        again=b"a" in flags,
        due=int(due) / 1000 if due else None,
        refusal=refusal.decode(),
        others_wait=b"w" in flags,
    )


def _given(clock: int, gift: list[Any]) -> CreditGift[Delivery]:
    """Read a gift in a reply: of messages, or of a session with the gifts of its first messages."""
    said, name, *rest = gift
    if isinstance(name, list):
        names: list[Any] = name  # pyright: ignore[reportUnknownVariableType]  # the elements are of any type
        return _gift(clock, said, names, *rest)
    return _session(_gift(clock, said, [], [], []), name, [_gift(clock, *first) for first in rest])


def _session(gift: CreditGift[Delivery], name: bytes, firsts: list[CreditGift[Delivery]]) -> CreditGift[Delivery]:
    return gift._replace(session=SessionGift(name.decode(), firsts))


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
    parts = list(_cut(rest, [int(length) for length in lengths.split(b",")]))
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


def _cut(text: bytes, lengths: list[int]) -> Iterator[bytes]:
    if sum(lengths) != len(text):
        raise ValueError("the parts have other lengths")
    at = 0
    for length in lengths:
        yield text[at : at + length]
        at += length


def _pushed_session(clock: int, said: bytes, name: bytes, *first: bytes) -> CreditGift[Delivery]:
    gift = _gift(clock, said, [], [], [])
    firsts = [_pushed_gift(clock, [*first])] if first else []
    if any(each.prefix != gift.prefix for each in firsts):
        raise ValueError("the first messages of a session have another prefix")
    return _session(gift, name, firsts)


def _pushed_gift(clock: int, parts: list[bytes]) -> CreditGift[Delivery]:
    names = parts[1].split(b" ")
    records, extras = parts[2 : 2 + len(names)], parts[2 + len(names) :]
    facts: list[Any] = [int(value) if not at % FACTS else value for at, value in enumerate(extras)]
    if len(facts) % FACTS:
        raise ValueError("the facts about the messages are incomplete")
    return _gift(clock, parts[0], names, records, facts)
