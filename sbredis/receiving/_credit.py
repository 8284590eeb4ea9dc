"""Decide which credit a receiver grants to a partition, and which messages it hands out. Pure.

``_credit_driver`` makes the calls. ``tests/engine/proof/credit_machine.py`` runs this decider against a model of the
partition.

Theory
------

A receiver grants *credit* to a partition: the number of messages, and of their bytes, that the partition may still give
to it. The partition gives messages in the reply to a grant, and later in pushes. Every message that it gives is locked.
A set of messages that is given at once is a *gift*, and is one lease.

Replies and pushes cross, pushes get lost, and calls are repeated and overtake each other. So all counts are absolute:

- A *grant* has a rising number. A grant with an older number changes nothing.
- Its *limits* count from the receiver's first grant: the messages (and bytes) that were given until then may reach the
  limit. So a repeated grant gives nothing twice. A grant with a lower limit is a *withdrawal*.
- A gift has the next *serial* of the receiver's *prefix*, and says how many messages and bytes were given, itself
  included. The receiver hands out gifts in the order of their serials. It ignores a serial that it has had, and a
  prefix that is not its own.
- Each grant says the last serial without a gap before it (*seen*), and what the receiver has *counted* until there.

The partition gives no more than 17 gifts beyond *seen*. So it can bring all of them again: a grant with *again* is
answered with all gifts after *seen* that still hold messages, and with the last serial before the pushes of this call.
The serials between that are not in the reply are *gone*: their locks have ended. The partition answers a repeated grant
in this way too. The receiver asks for it

- with the first grant of a prefix, for the earlier prefixes,
- when a serial has been missing for 50 ms,
- when a call has failed, because the call may have run,
- when it withdraws credit, so that it learns of everything that was given before.

A *prefix* serves one subscription to one server process. A grant names this process, and another process does not take
the grant. A receiver takes a new prefix whenever it enters one of these states:

======= =============================================================================================================
unheard There is no subscription. Credit ends with the reply to each call.
fresh   The subscription is confirmed. No grant with the prefix was answered yet, so the partition may begin a word.
open    The partition knows the prefix. If it has forgotten it, it does not take the grant.
ended   The partition has refused the grant, because nobody may receive now. The receiver waits until it may ask again.
======= =============================================================================================================

Earlier prefixes are *retired*. Each grant names them, until *again* has answered for them. Until then the receiver
hands out no gift of the new prefix, and it takes gifts of the retired ones from this answer only. So gifts have one
order. With the first grant of a prefix the partition counts anew: what the receiver has counted, and what it will be
given again, counts as given.

A partition that has no word with a prefix begins one only if the receiver says that it may: no grant with this prefix
was answered yet, and the first one was made less than ten seconds ago. So a late call begins no word a second time.

A grant is *once* if the first gift ends it. It is *now* if it ends with the reply. It is *announced* if the partition
gives messages in the reply only, and after that pushes the news that there are more. An announced grant may have no
credit at all: a receiver that has its credit in another partition wants only the news. Such news is told once, in a
push or in the reply, and the next grant asks for it again. So a receiver with an announced grant makes a call only
when it wants messages and there is news, whatever its callers want meanwhile. News that it does not use for 0.1 s is
answered by a call that wants none.

A receiver that only wants more from a partition with credit waits with the grant for 10 ms: the partition has no more
messages now, and mostly a settlement can carry the grant.

A grant says up to which gift the application has *begun* everything, and how many messages it may begin before the next
report: its *hands*. If the receiver ends, its deliveries count so far and no further. Messages that were settled need
no report, because the partition knows them. So an application that holds a fixed number of messages at most has begun
the first ones that are left, as many as it has hands.

A *suspect* is a message whose last holders ended. It is given alone. A receiver may say that it takes no suspects, and
is then told when the next message is one.

A gift whose lock cannot be dated (:mod:`sbredis.client._server_clock`), or has ended before it is handed out, is to
be given back. It counts as given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import auto
from typing import Any, Final, Generic, NamedTuple, TypeVar

from sbredis._quick_enum import QuickEnum
from sbredis.client import ServerClock
from sbredis.engine import CreditAnswer, CreditGift, CreditGrant, CreditPush, CreditReply, GiftPlace, SessionGift

__all__ = [
    "MOST_UNSEEN",
    "NO_DEMAND",
    "TABLE",
    "CreditDemand",
    "CreditEvent",
    "CreditState",
    "HandedGift",
    "PartitionCredit",
]

MOST_UNSEEN: Final = 16
"""The largest number of unseen gifts of a prefix. A reply may add one."""
_GAP: Final = 0.05
_REPORT: Final = 0.5
_MANY_UNREPORTED: Final = MOST_UNSEEN // 2
"""The number of gifts after which the next call reports them, although they were given a moment ago."""
_ANSWER: Final = 0.1
"""The seconds after which a receiver that does not use news says so. A partition passes news on after a second."""
_SOON: Final = 0.01
"""The seconds for which a grant waits for another call that can carry it, if the partition has credit left."""
_RENEW: Final = 120.0
_POLL: Final = 1.0
_UNANSWERED: Final = 10.0
"""The seconds in which a partition may begin a word with a prefix.

The partition remembers a word for these seconds longer than a call may be repeated. So it cannot begin a word twice.
"""
_SERIALS: Final = 1 << 18

Message = TypeVar("Message")


class CreditState(QuickEnum):
    """The state of the credit of a receiver in a partition."""

    UNHEARD = auto()
    FRESH = auto()
    OPEN = auto()
    ENDED = auto()


class CreditEvent(QuickEnum):
    """An event that can change the state."""

    SUBSCRIBED = auto()
    """A subscription is confirmed."""
    UNSUBSCRIBED = auto()
    """The subscription is lost."""
    TAKEN = auto()
    """The partition has taken the latest grant, or one with this prefix."""
    FORGOTTEN = auto()
    """The partition does not know the prefix."""
    ELSEWHERE = auto()
    """Another server process has answered."""
    REFUSED = auto()
    """Nobody may receive now."""
    UNANSWERED = auto()
    """The prefix was not answered in time."""
    USED_UP = auto()
    """The prefix has no serials left."""
    ASKED = auto()
    """The partition may be asked again."""


_S, _E = CreditState, CreditEvent
TABLE: Final[dict[tuple[CreditState, CreditEvent], CreditState]] = {
    (_S.UNHEARD, _E.SUBSCRIBED): _S.FRESH,
    (_S.UNHEARD, _E.ELSEWHERE): _S.UNHEARD,
    (_S.UNHEARD, _E.FORGOTTEN): _S.UNHEARD,
    (_S.UNHEARD, _E.USED_UP): _S.UNHEARD,
    (_S.UNHEARD, _E.UNANSWERED): _S.UNHEARD,
    (_S.FRESH, _E.SUBSCRIBED): _S.FRESH,
    (_S.FRESH, _E.UNSUBSCRIBED): _S.UNHEARD,
    (_S.FRESH, _E.TAKEN): _S.OPEN,
    (_S.FRESH, _E.FORGOTTEN): _S.FRESH,
    (_S.FRESH, _E.ELSEWHERE): _S.UNHEARD,
    (_S.FRESH, _E.UNANSWERED): _S.FRESH,
    (_S.OPEN, _E.SUBSCRIBED): _S.FRESH,
    (_S.OPEN, _E.UNSUBSCRIBED): _S.UNHEARD,
    (_S.OPEN, _E.FORGOTTEN): _S.FRESH,
    (_S.OPEN, _E.ELSEWHERE): _S.UNHEARD,
    (_S.OPEN, _E.REFUSED): _S.ENDED,
    (_S.OPEN, _E.USED_UP): _S.FRESH,
    (_S.ENDED, _E.ASKED): _S.FRESH,
    (_S.ENDED, _E.FORGOTTEN): _S.ENDED,
    (_S.ENDED, _E.UNANSWERED): _S.ENDED,
    (_S.ENDED, _E.SUBSCRIBED): _S.ENDED,
    (_S.ENDED, _E.UNSUBSCRIBED): _S.UNHEARD,
    (_S.ENDED, _E.ELSEWHERE): _S.UNHEARD,
}
"""The transitions. An event without a row changes nothing; a row takes a new prefix, except that of TAKEN.

A refusal is an answer, so TAKEN comes before REFUSED. A fresh prefix cannot be used up: the partition gives no more
than 17 gifts until it was answered.
"""


class HandedGift(NamedTuple, Generic[Message]):
    """A gift that is handed out."""

    prefix: str
    serial: int
    ends: float | None
    """The client's time at which the lock ends; None if the messages must be given back uncounted."""
    messages: Sequence[Message]
    fence: int
    session: SessionGift[Message] | None = None
    """The session, if the gift is one. It is given back by its release."""


class CreditDemand(NamedTuple):
    """The messages that a receiver wants from a partition now, without those that it was handed already."""

    callers: int = 0
    """The number of messages for which callers wait."""
    stock: int = 0
    """The number of messages to keep for later callers."""
    room: int = 1 << 20
    """The number of bytes that may be given beyond what was counted."""
    once: bool = False
    now: bool = False
    announced: bool = False
    """Whether the receiver wants news instead of pushed messages. Without callers and stock it wants nothing else."""
    suspects: bool = True
    first: int = 0
    """The number of messages that come with each session, if the receiver wants sessions."""
    first_room: int = 0
    """The number of their bytes."""
    yields: bool = False
    """Whether the receiver holds a session, and wants to know that others wait while it is empty."""


NO_DEMAND: Final = CreditDemand()
_NONE: Final = GiftPlace(0, 0, 0)


@dataclass(slots=True, eq=False, repr=False)
class PartitionCredit(Generic[Message]):
    """The credit of one receiver in one partition: for its messages, for its sessions, or for those of one session.

    Its owner tells it of events, and hands out what they return. After each event, and at the time ``next_at``, the
    owner asks :meth:`needs_call`, and makes a call with :meth:`grant`. Any other call may carry a grant too. It begins
    without a subscription.
    """

    _clocks: Callable[[str], ServerClock]
    """Returns the clock of a server process."""
    _new_prefix: Callable[[], str]
    run: str
    """The server process that the prefix belongs to."""
    _prefix: str = ""
    dated: bool = True
    """Whether gifts have ends of their own. The messages of a session that the receiver holds have none."""
    serials: int = _SERIALS
    """The number of serials of a prefix."""
    state: CreditState = CreditState.UNHEARD
    suspects_wait: bool = False
    """Whether the partition has suspects, and the latest grant takes none."""
    news: bool = False
    """Whether the partition has told since the last grant that there are messages, or of a change."""
    others_wait: bool = False
    """Whether the held session is empty and others wait, as the partition has told since the last grant."""
    keeps_due_time: bool = False
    """Whether it is the receiver's task to call when something is due."""
    outstanding: int = 0
    """The number of messages that the partition may still push, or has given and that are not handed out."""
    silent: bool = True
    """Whether the partition neither pushes messages nor sends news until it gets another grant."""
    spent: bool = False
    """Whether the partition is silent because it has pushed all that it might, so that it may have more."""
    demand: CreditDemand = NO_DEMAND
    """The latest demand of the receiver."""
    _wanted: int = 0
    """The number of messages that the partition may give now."""
    _number: int = 0
    _seen: GiftPlace = _NONE
    _begun: int = 0
    _retired: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    _early: dict[int, tuple[GiftPlace, HandedGift[Message]]] = field(default_factory=dict[int, Any])
    """The gifts that were not handed out yet, by their serials."""
    _latest: CreditGrant | None = None
    """The latest grant; None if it is void, because the prefix is a new one or the partition did not take it."""
    _open: int = 0
    """The limit up to which the partition may give, as far as the receiver knows."""
    _used_at: float = math.inf
    """The time of the first grant with the prefix."""
    _met: bool = False
    """Whether the partition has answered that it knows the prefix."""
    _under_way: tuple[int, ...] = ()
    """The numbers of the grants whose calls have not ended. A reply may come after its call has failed."""
    _again: bool = False
    _told: bool = False
    _known: int = 0
    """The largest serial of the prefix of which the receiver has heard."""
    _made_at: float = -math.inf
    _missing_since: float = math.inf
    _unreported_since: float = math.inf
    _due_at: float = math.inf
    _answer_at: float = math.inf
    """When news must be answered that no call has answered yet."""
    _soon_at: float = math.inf
    """When a grant must be made that can wait for another call."""
    _once_after: float = math.inf
    """The serial after which the next gift ends the latest grant, because the grant is *once*."""

    def __post_init__(self) -> None:
        self._prefix = self._prefix or self._new_prefix()

    def opened(
        self, gift: HandedGift[Message], *, listens: bool, now: float, made: int = 0
    ) -> list[HandedGift[Message]]:
        """Return the first messages of a session that was given, or accepted with a grant of the number ``made``.

        The word of the session's messages has the prefix of the gift. Without a subscription at the server process that
        has given the session (``listens``), the next grant is *now*.
        """
        assert gift.session is not None
        self._prefix, self._met, self._used_at, self._number = gift.prefix, True, now, made
        self.state = CreditState.OPEN if listens else CreditState.UNHEARD
        for first in gift.session.gifts:
            self._put(first, 0.0, now)
        handed = self._advance(now)
        self._unreported_since = math.inf
        self._restate()
        return handed

    # -- what the receiver wants ---------------------------------------------------------------------------------------

    def want(self, demand: CreditDemand) -> None:
        """Set what the receiver wants now."""
        self.demand = demand
        self._wanted = 0 if self.state is CreditState.ENDED else demand.callers + demand.stock

    def ask_again(self) -> None:
        """Ask a partition again that has refused."""
        self._happens(CreditEvent.ASKED)

    def look_again(self) -> None:
        """Make a call soon: there may be messages, or a change, of which the receiver has not heard."""
        self._told = True

    def end_wait(self) -> None:
        """Make the grant now that waits for another call. The clock of a test may stand still meanwhile."""
        self._told = self._told or self._soon_at < math.inf

    def began(self, kept: tuple[str, int] | None) -> None:
        """Note that the application has begun all messages that it was handed, but those from the gift ``kept`` on.

        The gift is named by its prefix and its serial. One with a forgotten prefix tells nothing.
        """
        if kept is not None and kept[0] != self._prefix and kept[0] not in self._retired:
            return
        for prefix, (seen, begun) in self._retired.items():
            if kept is not None and kept[0] == prefix:
                self._retired[prefix] = seen, max(begun, kept[1] - 1)
                return
            self._retired[prefix] = seen, seen
        self._begun = max(self._begun, self._seen.serial if kept is None else kept[1] - 1)

    # -- the subscription ----------------------------------------------------------------------------------------------

    def subscribed(self, run: str) -> None:
        """Note a new subscription, which the server process ``run`` has confirmed."""
        self.run = run
        self._happens(CreditEvent.SUBSCRIBED)

    def unsubscribed(self) -> None:
        """Note that the subscription is lost."""
        self._happens(CreditEvent.UNSUBSCRIBED)

    # -- what is known -------------------------------------------------------------------------------------------------

    def answers_for(self, grant: CreditGrant) -> bool:
        """Return whether a reply to this grant says what the partition has.

        It does not if the grant declines, or if its prefix has been replaced since.
        """
        asks = grant.now or grant.announced or grant.limit > grant.seen.messages
        return asks and grant.prefix == self._prefix

    def _restate(self) -> None:
        """Note what the partition may still do, after each event."""
        latest, seen = self._latest, self._seen.messages
        pushes = latest is not None and not latest.now
        announced = latest is not None and latest.announced
        left = max(0, self._open - seen)
        self.outstanding = 0 if announced and not self._under_way else left
        self.silent = not pushes or not (announced or left)
        self.spent = pushes and not announced and 0 < self._open <= seen

    @property
    def exhausted(self) -> bool:
        """Whether the partition had no more messages when it answered the latest grant."""
        latest = self._latest
        return latest is not None and not self._under_way and not self.news and (latest.now or self.outstanding > 0)

    @property
    def outstanding_for_callers(self) -> int:
        """The number of these messages that the partition gives as to a waiting caller."""
        return 0 if self._latest is None else max(0, self._latest.callers - self._seen.messages)

    @property
    def manner(self) -> tuple[bool, bool]:
        """Whether the latest grant is *now*, and whether it is announced."""
        latest = self._latest
        return (False, False) if latest is None else (latest.now, latest.announced)

    # -- calls ---------------------------------------------------------------------------------------------------------

    @property
    def settled(self) -> bool:
        """Whether the partition can give nothing to the receiver, and the receiver knows all that it gave."""
        return not (
            self._under_way
            or self._again
            or self._retired
            or self._early
            or self._open > self._seen.messages
            or self._missing_since < math.inf
        )

    @property
    def next_at(self) -> float:
        """The time at which a call is needed if nothing happens before."""
        at = min(
            self._missing_since + _GAP, self._unreported_since + _REPORT, self._answer_at, self._soon_at, self._due_at
        )
        if not (self._retired or self._asks):
            return at
        return min(at, self._made_at + (_POLL if self.state is CreditState.UNHEARD else _RENEW))

    def needs_call(self, now: float) -> bool:
        """Return whether a call is needed now."""
        if self._told or self._again:
            return True
        patience = self._patience()
        if not patience:
            return True
        self._soon_at = math.inf if patience == math.inf else min(self._soon_at, now + patience)
        return self.next_at <= now

    def may_ride(self, now: float) -> bool:
        """Return whether a call that is made anyway is to carry a grant: one is needed now, or will be before long."""
        if self.state is CreditState.ENDED:
            return False
        if self._latest is not None and self._seen.serial >= self._latest.seen.serial + _MANY_UNREPORTED:
            return True
        return self.needs_call(now) or self._soon_at < math.inf or self._unreported_since <= now - _REPORT / 2

    def grant(self, now: float, *, hands: int = 1, leaves: bool = False) -> CreditGrant:
        """Return the grant for a call that is made now. Each grant must be answered: `replied`, or `failed`.

        The application has ``hands`` for this number of messages. With ``leaves`` the partition releases the held
        session, unless there are messages for the receiver.
        """
        if not self._met and now >= self._used_at + _UNANSWERED:
            self._happens(CreditEvent.UNANSWERED)
        demand, seen, latest = self.demand, self._seen, self._latest
        unheard = self.state is CreditState.UNHEARD
        limit = seen.messages + self._wanted
        self._number += 1
        again = self._again or bool(self._retired) or now >= self._missing_since + _GAP or limit < self._open
        self._latest = CreditGrant(
            number=self._number,
            run=self.run,
            prefix=self._prefix,
            begins=not self._met,
            seen=seen,
            begun=self._begun,
            hands=hands,
            callers=min(seen.messages + demand.callers, limit),
            limit=limit,
            size_limit=seen.size + demand.room,
            retired=tuple([(prefix, *serials) for prefix, serials in self._retired.items()]) if self._retired else (),
            again=again,
            once=demand.once,
            now=demand.now or unheard,
            announced=demand.announced,
            suspects=demand.suspects if latest is None or limit > seen.messages or self._asks else latest.suspects,
            first=demand.first,
            first_size=demand.first_room,
            leaves=leaves,
            yields=demand.yields,
        )
        self._open, self._made_at = limit, now
        self._again = self._told = self.news = self.others_wait = self.keeps_due_time = False
        if again:
            self._missing_since = math.inf
        self._unreported_since = self._answer_at = self._soon_at = self._due_at = self._once_after = math.inf
        self._under_way += (self._number,)
        self._used_at = min(self._used_at, now)
        self._restate()
        return self._latest

    def _call_ended(self, grant: CreditGrant) -> None:
        self._under_way = tuple([number for number in self._under_way if number != grant.number])

    def failed(self, grant: CreditGrant) -> None:
        """Note that a call has failed. It may have run."""
        self._call_ended(grant)
        self._again = True
        if grant is self._latest:
            self._latest = None
        self._restate()

    def replied(
        self, grant: CreditGrant, reply: CreditReply[Message], written: float, now: float
    ) -> list[HandedGift[Message]]:
        """Return what to hand out after a reply. The call of the grant was last written at the time ``written``."""
        if self._under_way == (grant.number,):
            self._under_way = ()
        else:
            self._call_ended(grant)
        self._clocks(reply.run).replied(reply.clock, written, now)
        handed = self._resolve_retired(grant, reply, now) if reply.again else []
        if grant.prefix != self._prefix:  # the receiver has taken another prefix since
            handed += self._advance(now)
            self._restate()
            return handed
        if reply.run != self.run:
            self.run = reply.run
            self._happens(CreditEvent.ELSEWHERE)
            return handed
        if reply.answer is CreditAnswer.FORGOTTEN:
            self._happens(CreditEvent.FORGOTTEN)
            return handed
        if reply.due is not None:  # a grant that was overtaken may bring the task, too
            self._due_at = min(self._due_at, written + reply.due)
            self.keeps_due_time |= reply.keeps
        if grant is self._latest:
            self._open = min(self._open, reply.limit)
            self.news, self.suspects_wait, self.others_wait = reply.there, reply.suspects, reply.others_wait
            if grant.once:
                self._once_after = reply.last.serial
        self._met = True
        if self.state is CreditState.FRESH:
            self._happens(CreditEvent.TAKEN)
        handed += self._take_reply(reply, now)
        self._restate()
        if reply.answer is CreditAnswer.REFUSED:
            self._happens(CreditEvent.REFUSED)
        return handed

    def pushed(self, push: CreditPush[Message], now: float) -> list[HandedGift[Message]]:
        """Return what to hand out after a push."""
        known = "?" not in (push.run, self.run)  # a user without the right to INFO knows no server process
        if push.prefix != self._prefix or (known and push.run != self.run):
            return []
        if push.gift is None:
            if push.others_wait:
                self._told = self.others_wait = True
                return []
            self.news = True
            if self._latest is None or not self._latest.announced:
                self._told = True
            self._answer_at = min(self._answer_at, now + _ANSWER)
            return []
        self._put(push.gift, push.clock, now)
        handed = self._advance(now)
        self._restate()
        return handed

    # -- gifts ---------------------------------------------------------------------------------------------------------

    def _resolve_retired(
        self, grant: CreditGrant, reply: CreditReply[Message], now: float
    ) -> list[HandedGift[Message]]:
        """Hand out what the partition holds under earlier prefixes. All their other gifts are gone."""
        handed: list[HandedGift[Message]] = []
        for prefix, _, _ in grant.retired:
            if self._retired.pop(prefix, None) is None:
                continue
            gifts = sorted((gift for gift in reply.gifts if gift.prefix == prefix), key=lambda gift: gift.place)
            handed += [_lasting(self._dated_gift(gift, reply.run, reply.clock, now), now) for gift in gifts]
        return handed

    def _take_reply(self, reply: CreditReply[Message], now: float) -> list[HandedGift[Message]]:
        if reply.prefix != self._prefix:
            return []
        for gift in reply.gifts:
            if gift.prefix == self._prefix:
                self._put(gift, reply.clock, now)
        self._known = max(self._known, reply.last.serial)
        handed = self._advance(now, gone_until=reply.last.serial if reply.again else 0)
        if reply.last.serial == self._seen.serial and reply.prefix == self._prefix:
            self._seen = self._seen if reply.last == self._seen else reply.last  # equal ones share an object
        return handed

    def _put(self, gift: CreditGift[Message], shown: float, now: float) -> None:
        place = gift.place
        serial = place.serial
        if serial > self._seen.serial and serial not in self._early:
            self._known = max(self._known, serial)
            self._early[serial] = place, self._dated_gift(gift, self.run, shown, now)
            self._unreported_since = min(self._unreported_since, now)

    def _dated_gift(self, gift: CreditGift[Message], run: str, shown: float, now: float) -> HandedGift[Message]:
        ends = self._clocks(run).ends(gift.until, shown, now) if self.dated else math.inf
        return HandedGift(gift.prefix, gift.place.serial, ends, gift.messages, gift.fence, gift.session)

    def _advance(self, now: float, gone_until: int = 0) -> list[HandedGift[Message]]:
        """Return the gifts that no serial is missing before. Serials up to ``gone_until`` are not missing but gone."""
        handed: list[HandedGift[Message]] = []
        while not self._retired:
            serial = self._seen.serial + 1
            early = self._early.pop(serial, None)
            if early is not None:
                self._seen, gift = early
                handed.append(_lasting(gift, now))
                if serial > self._once_after:
                    self._open = min(self._open, self._seen.messages)
            elif serial <= gone_until:
                self._seen = self._seen._replace(serial=serial)
            else:
                break
        if self._known <= self._seen.serial or self._retired:
            self._missing_since = math.inf
        elif self._missing_since == math.inf or handed:
            self._missing_since = now
        if self._seen.serial > self.serials - 2 * MOST_UNSEEN:
            self._happens(CreditEvent.USED_UP)
        return handed

    # -- the state -----------------------------------------------------------------------------------------------------

    @property
    def _asks(self) -> bool:
        """Whether the receiver wants messages, or news of them."""
        return self._wanted > 0 or (self.demand.announced and self.state is not CreditState.ENDED)

    def _patience(self) -> float:
        """Return for how many seconds a grant may wait for another call that carries it.

        This is infinity if the latest grant says what the receiver wants. A receiver that only wants more messages
        than it has granted waits a moment: a partition that has credit left, or would have sent news, has none now.
        """
        demand, latest, seen, wanted = self.demand, self._latest, self._seen, self._wanted
        asks = wanted > 0 or self._asks
        if latest is None:
            return 0.0 if asks or self._retired else math.inf
        if latest.now:  # it has ended by itself, also if it was announced
            if demand.now or self.state is CreditState.UNHEARD:
                asks = seen.messages + wanted > latest.limit or (self.news and wanted > 0)
            return 0.0 if asks else math.inf
        if asks and latest.suspects != demand.suspects:
            return 0.0
        waits = self.news and not wanted and self._open <= seen.messages  # the news is used later
        if demand.announced and (latest.announced or waits):
            return 0.0 if self.news and wanted else math.inf
        other = latest.yields != demand.yields or latest.first != demand.first
        other = other or latest.size_limit - seen.size < demand.room // 2
        if seen.messages + wanted == self._open and latest.announced == demand.announced:
            more = demand.callers > max(0, latest.callers - seen.messages)
            if not (asks and (other or more)):
                return math.inf
        other = other or demand.announced or demand.now or self.news
        has_none = latest.announced or self._open > seen.messages
        return _SOON if has_none and 0 < wanted >= self.outstanding and not other else 0.0

    def _happens(self, event: CreditEvent) -> None:
        """Change the state; see the table."""
        state = TABLE.get((self.state, event))
        if state is None:
            return
        self.state = state
        if event is CreditEvent.TAKEN:
            return
        self.want(self.demand)
        if self._used_at < math.inf:
            self._retired[self._prefix] = (self._seen.serial, self._begun)
        self._prefix = self._new_prefix()
        self._seen, self._begun = self._seen._replace(serial=0) if self._seen.serial else self._seen, 0
        self._early.clear()
        self._known, self._latest, self._open = 0, None, 0
        self._used_at, self._met, self.keeps_due_time = math.inf, False, False
        self._missing_since = self._unreported_since = self._answer_at = self._due_at = self._once_after = math.inf
        self._soon_at = math.inf
        self._restate()


def _lasting(gift: HandedGift[Message], now: float) -> HandedGift[Message]:
    """Return the gift. If its lock has ended, its messages must be given back."""
    return gift if gift.ends is not None and gift.ends > now else gift._replace(ends=None)
