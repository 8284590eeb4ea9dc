"""The values of credit: what a receiver grants to a partition, and what the partition gives. Pure.

``sbredis/receiving/_credit.py`` has the theory. ``Message`` is the type of a message: a
:class:`~sbredis.engine._results.Delivery`, or a number in the model of a partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import auto
from typing import Generic, NamedTuple, TypeVar

from sbredis._quick_enum import QuickEnum

__all__ = ["CreditAnswer", "CreditGift", "CreditGrant", "CreditPush", "CreditReply", "GiftPlace", "SessionGift"]

Message = TypeVar("Message")


class CreditAnswer(QuickEnum):
    """What a partition did with a grant."""

    TAKEN = auto()
    KNOWN = auto()
    """It has had this grant, or a later one. The reply answers *again*."""
    FORGOTTEN = auto()
    """It has no word with the prefix of the grant, or is at another server process now."""
    REFUSED = auto()
    """Nobody may receive now."""


class GiftPlace(NamedTuple):
    """A place in the order of gifts."""

    serial: int
    messages: int
    """The number of messages that were given until here."""
    size: int
    """The number of their bytes."""


class CreditGift(NamedTuple, Generic[Message]):
    """Messages under one lease, or a session with its first messages."""

    prefix: str
    place: GiftPlace
    until: float
    """The end of the lock by the clock of the server, in milliseconds."""
    messages: Sequence[Message]
    fence: int = 0
    """The fence of the lock; 0 for messages without a lock of their own."""
    session: SessionGift[Message] | None = None
    """The session, if the gift is one. Then it has no other messages, and counts as one message without bytes."""


class SessionGift(NamedTuple, Generic[Message]):
    """A session that a receiver gets, locked under the token of the gift."""

    name: str
    gifts: Sequence[CreditGift[Message]]
    """The gifts of its first messages. The word of the session's messages has begun with the prefix of the session's
    gift, and the number of its latest grant is 0. It has no credit left."""


class CreditGrant(NamedTuple):
    """The part of a call that grants credit. The call is a receive, or a settlement."""

    number: int
    run: str
    """The server process that the prefix belongs to."""
    prefix: str
    begins: bool
    """Whether the partition may begin a word: no grant with this prefix was answered yet."""
    seen: GiftPlace
    """The last gift without a gap before it, and what was counted until there."""
    begun: int
    """The last serial of which the application has begun a message."""
    hands: int
    """The number of messages that the application may begin before the next report."""
    callers: int
    """The limit of messages for which callers wait."""
    limit: int
    """The limit of all messages, those for later callers included."""
    size_limit: int
    retired: tuple[tuple[str, int, int], ...]
    """The earlier prefixes, each with the serials seen and begun."""
    again: bool
    once: bool
    now: bool
    announced: bool
    suspects: bool
    """Whether the receiver takes suspects."""
    first: int = 0
    """At the source of free sessions: the number of messages that come with each session."""
    first_size: int = 0
    """The number of their bytes. The first message comes whatever its size, except in a push."""
    leaves: bool = False
    """At a held session: whether the partition releases the session if it holds and has no message for the receiver."""
    yields: bool = False
    """At a held session: whether the receiver wants to know that other sessions wait, and nobody can take them."""

    @classmethod
    def ending(cls, number: int, run: str, prefix: str, callers: int, *, room: int, hands: int) -> CreditGrant:
        """Return a grant that ends with the reply, with a new prefix, for this many callers and bytes."""
        return cls(
            number=number,
            run=run,
            prefix=prefix,
            begins=True,
            seen=GiftPlace(0, 0, 0),
            begun=0,
            hands=hands,
            callers=callers,
            limit=callers,
            size_limit=room,
            retired=(),
            again=False,
            once=False,
            now=True,
            announced=False,
            suspects=True,
        )


class CreditReply(NamedTuple, Generic[Message]):
    """The part of a reply that answers a grant."""

    run: str
    clock: float
    """The clock of the server, in milliseconds."""
    answer: CreditAnswer
    prefix: str
    """The prefix of the receiver's word; empty if there is none."""
    last: GiftPlace
    """The last gift of this prefix."""
    limit: int
    """The limit of messages that is left after this reply."""
    gifts: Sequence[CreditGift[Message]]
    there: bool
    """Whether there are more messages for the receiver after this reply."""
    suspects: bool
    """Whether suspects wait for a receiver that takes them."""
    again: bool
    """Whether the gifts are all gifts that the partition still holds for the receiver after those that it has seen."""
    due: float | None
    """The seconds until the receiver must make a call, because something is due then."""
    keeps: bool = False
    """Whether this call is the receiver's task. Other receivers call only if those with the task have not called."""
    refusal: str = ""
    """Why nobody may receive now: the code and the detail of a refusal."""
    others_wait: bool = False
    """Whether the held session is empty, and other sessions wait that nobody can take. Said to receivers that yield."""


class CreditPush(NamedTuple, Generic[Message]):
    """A push: a gift, or the news that there are messages or that something has changed."""

    run: str
    clock: float
    prefix: str
    """The prefix of the receiver's word. Nobody can guess it, so a forged push is ignored."""
    gift: CreditGift[Message] | None
    others_wait: bool = False
    """Whether the news is that other sessions wait and nobody can take them, while the held one is empty."""
