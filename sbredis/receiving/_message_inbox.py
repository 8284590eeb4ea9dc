"""The inboxes of messages: of a receiver without a session, and of one that holds a session.

The messages of a session come in their order. So before an earlier message returns to the session, the inbox withdraws
its credit, and gives back all that comes meanwhile. It fetches again when all of this is in the partition.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from sbredis._tasks import wait_until
from sbredis.engine import MAXIMUM_CREDIT, RELEASED, lease_token
from sbredis.exceptions import MessagingEntityNotFoundError, ServiceBusError, SessionLockLostError
from sbredis.model import (
    MessageLease,
    Reception,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    delivered,
    hold_of,
    lease_of,
)
from sbredis.receiving._credit import NO_DEMAND
from sbredis.receiving._credit_driver import CreditDriver
from sbredis.receiving._credit_places import demand_of
from sbredis.receiving._entity_lookup import require_messages
from sbredis.receiving._fetching import InboxOptions, InboxState, keep_for
from sbredis.receiving._inbox import Inbox
from sbredis.receiving._session_phases import SessionEvent, SessionPhase, phase_after

if TYPE_CHECKING:
    from sbredis.client import Entity
    from sbredis.engine import Delivery
    from sbredis.receiving._callers import ReceiveCall
    from sbredis.receiving._credit import HandedGift
    from sbredis.receiving._held_session import HeldSession

__all__ = ["MessageInbox", "SessionInbox"]


class MessageInbox(Inbox[ServiceBusReceivedMessage]):
    """The messages of one receiver."""

    __slots__ = ()

    def __init__(self, entity: Entity, identity: str, options: InboxOptions) -> None:
        super().__init__(entity, identity, options, lease_of)

    @property
    def source(self) -> str:
        """The side that the messages are on."""
        return self.side

    def opened(self, driver: CreditDriver, handed: Sequence[HandedGift[Delivery]]) -> list[ServiceBusReceivedMessage]:
        """Return the messages of gifts. Give those back whose lock may have ended."""
        messages: list[ServiceBusReceivedMessage] = []
        link, clock = driver.partition_client, self._clock
        for gift in handed:
            lease = None
            if self.mode is ServiceBusReceiveMode.PEEK_LOCK:
                token, ends = lease_token(gift.prefix, gift.serial), gift.ends
                if ends is None:
                    link.give_back_named(token, [each.name for each in gift.messages])
                    continue
                until_utc = clock.utc() + ends - clock.now()
                lease = MessageLease(token, ends, until_utc, gift.fence, partition=link.number)
            reception = Reception(self.entity.base(link.number), self.mode, link, rider=driver)
            for each in gift.messages:
                messages.append(delivered(each, reception, lease))  # noqa: PERF401 -- one call less for a single one
        return messages

    def _release(self, items: Sequence[ServiceBusReceivedMessage]) -> None:
        for hold in map(hold_of, items):
            _ = hold.reception.link.give_back(hold)

    def entity_changed(self) -> None:
        """Start again if the queue is in other partitions now. If a topic has replaced it, tell the callers."""
        super().entity_changed()
        if self.side != "t":
            try:
                require_messages(self.entity.record)
            except MessagingEntityNotFoundError as error:
                self.callers.fail(error)


class SessionInbox(MessageInbox):
    """The messages of a session that the receiver holds. All of them are in one partition."""

    __slots__ = (
        "_ahead",
        "_asks",
        "_gifts",
        "_others_elsewhere",
        "_phase",
        "_recalls",
        "_returning",
        "_withdrawn",
        "session",
    )
    is_one_of_many = False

    def __init__(self, entity: Entity, identity: str, options: InboxOptions, session: HeldSession) -> None:
        self.session = session
        """The session that the messages belong to."""
        self._recalls = 0
        """The number of open contexts of :meth:`recalled`. If there is one, the inbox fetches nothing."""
        self._returning = 0
        """The number of releases of messages that are under way."""
        self._phase = SessionPhase.KEPT
        self._withdrawn: asyncio.Event | None = None
        """Set when nothing returns any more; ``None`` before anything has returned."""
        self._gifts: dict[str, tuple[str, int]] = {}
        """The gift of each message that no caller may have got, by the name of the message, in their order."""
        self._ahead = 0
        """The number of messages that may come before a caller asks: the first ones of the session, or the next ones.

        They stay as long as the session, because nobody else could have them.
        """
        self._asks = 0
        """The number of messages to ask for with the next settlement."""
        self._others_elsewhere = False
        """Whether sessions wait in other partitions, so that this one must not keep the session for lack of others."""
        super().__init__(entity, identity, options)
        self._take_firsts()

    def _take_firsts(self) -> None:
        (driver,), gift = self.drivers, self.session.first
        if gift is not None:
            self.session.first = None
            made = self.session.grants_made
            handed = driver.credit.opened(gift, listens=False, now=self._clock.now(), made=made)
            self.buffer.put(self.opened(driver, handed))
            self._ahead = len(self.buffer)

    @property
    def source(self) -> str:
        """The messages of the session."""
        return f"={self.session.name}"

    @property
    def _partitions(self) -> Sequence[int]:
        return (self.session.partition_client.number,)

    def new_driver(self, number: int, name: str) -> CreditDriver:
        """Return the driver of the partition of the session. A second hold of the session begins to count anew."""
        del name
        session, locks = self.session, self.mode is ServiceBusReceiveMode.PEEK_LOCK
        link, token = self.entity.partition_client(number), session.lease.token
        return CreditDriver(self, link, token, source=self.source, locks=locks, dated=False, prefix=session.prefix)

    def opened(self, driver: CreditDriver, handed: Sequence[HandedGift[Delivery]]) -> list[ServiceBusReceivedMessage]:
        """Return the messages of gifts. They have the lock of the session."""
        link = driver.partition_client
        lease = self.session.lease if self.mode is ServiceBusReceiveMode.PEEK_LOCK else None
        reception = Reception(link.base, self.mode, link, rider=driver)
        messages: list[ServiceBusReceivedMessage] = []
        for gift in handed:
            for each in gift.messages:
                self._gifts[each.name] = gift.prefix, gift.serial
                messages.append(delivered(each, reception, lease))
        return messages

    def call_begins(self, partition: int, share: int) -> tuple[tuple[str, int] | None, int, bool]:
        """Note that a call is made now. Return the gift of the first message that no caller has got yet, the hands, and
        whether the call lets go of the session, unless messages of it are ready.
        """
        del partition, share
        before, hands = self._phase, self.taking.hands
        self._happens(SessionEvent.CALLED)
        return self._first_kept, MAXIMUM_CREDIT if hands is None else hands, before is SessionPhase.LEAVING

    @property
    def _first_kept(self) -> tuple[str, int] | None:
        if not self.buffer:
            self._gifts.clear()
            return None
        name = hold_of(self.buffer[0]).name
        if name in self._gifts:  # callers have got the messages before it
            while next(iter(self._gifts)) != name:
                del self._gifts[next(iter(self._gifts))]
        return self._gifts.get(name, ("", 0))

    def received(self, messages: list[ServiceBusReceivedMessage], *, pushed: bool = False) -> None:
        """Distribute the messages that a reply or a push has brought."""
        if self._state is InboxState.CLOSED and self.session.settled:
            return  # they returned with the session
        if self._phase.returns and self.mode is ServiceBusReceiveMode.PEEK_LOCK:
            self.give_back(messages)
            messages = []
        super().received(messages, pushed=pushed)

    @property
    def _capacity(self) -> int:
        return max(super()._capacity, self._ahead)

    def _caller_left(self, caller: ReceiveCall[ServiceBusReceivedMessage]) -> None:
        if caller.missing or caller.got:  # it has not only waited for its turn
            self._ahead = 0
        super()._caller_left(caller)

    def _happens(self, event: SessionEvent) -> None:
        self._phase = phase_after(self._phase, event)

    def held(self) -> None:
        """Record that the partition has answered a grant. Credit that a settlement has asked for stays for a moment:
        only now may its caller come back.
        """
        self._happens(SessionEvent.HELD)
        if self._ahead and not self.callers and self._state is not InboxState.CLOSED:
            self._linger()

    def failed(self, driver: CreditDriver, error: ServiceBusError, *, of_all: bool = False) -> None:
        """Record that a call failed. The loss of the lock ends the session, and so does a call that lets go of it."""
        if isinstance(error, SessionLockLostError):
            self._happens(SessionEvent.LOSE)
            self._is_withdrawn()
            if self._phase is SessionPhase.RELEASED:
                self._released()
                return
            self.session.lose()
        super().failed(driver, error, of_all=of_all)

    def entity_changed(self) -> None:
        if self.session.partition_client.number in self.entity.numbers:
            super().entity_changed()
        else:  # the session is gone with its partition
            self.failed(self.drivers[0], self.session.lock_lost())

    # -- letting go of the session -------------------------------------------------------------------------------------

    @property
    def terms(self) -> tuple[bool, int, bool]:
        """The terms of the receiver. If others wait elsewhere, the session is left even if nobody waits here."""
        suspects, first, yields = super().terms
        return suspects, first, yields and not self._others_elsewhere

    async def take_or_leave(self, wanted: int, *, others: bool) -> list[ServiceBusReceivedMessage] | None:
        """Return messages that are there now. If the call has released the session instead, return ``None``.

        It does so if the session has no messages, and ``others`` wait in other partitions, or in this one.
        """
        with self.leaving(wanted, others=others):
            there = await self.take(wanted, 0, gather=False)
        return there or (None if self.session.settled else [])

    @contextmanager
    def leaving(
        self, wanted: int, *, others: bool, beside: CreditDriver | None = None, in_company: bool = False
    ) -> Generator[None]:
        """Let the next call bring up to ``wanted`` messages, for example the settlement of the last one that is here.

        The call releases the session instead if the session has no messages, and ``others`` wait in other partitions,
        or in this one. Then it also brings the next session to the receiver ``beside``. A settlement ``in_company``
        waits for those of other sessions in this turn of the event loop. This ends with the context.
        """
        if self._state is InboxState.CLOSED:
            yield
            return
        (driver,) = self.drivers
        self._asks, self._others_elsewhere = wanted, others
        driver.beside, driver.in_company = beside, in_company
        self._happens(SessionEvent.LEAVE)
        try:
            yield
        finally:
            self._asks, self._others_elsewhere = 0, False
            driver.beside, driver.in_company = None, False
            self._happens(SessionEvent.STAY)

    def refused(self, said: str) -> bool:
        """Return whether a refusal says that the call has released the session."""
        if said != RELEASED or self._phase is not SessionPhase.LEFT:
            return False
        self._happens(SessionEvent.LOSE)
        self._released()
        return True

    def _released(self) -> None:
        self.session.released()
        self.end_waits()

    def others_wait(self) -> None:
        """Let go of the session with the next call, if the application yields and no message has come meanwhile."""
        if self.taking.yields and not self.buffer:
            self._happens(SessionEvent.LEAVE)
            self.drivers[0].credit.look_again()

    @property
    def is_empty(self) -> bool:
        """Whether the session had no more messages at the last call, and none have come since."""
        return not self.buffer and all(driver.credit.exhausted for driver in self.drivers)

    @property
    def wants(self) -> bool:
        return self._phase.returns or super().wants

    @property
    def _stocks(self) -> bool:
        """Whether messages may be fetched ahead now: not if the lock on the session ends soon."""
        return super()._stocks and self._kept_for(self.session.lease.until) > 0

    def _kept_for(self, ends: float) -> float:
        return keep_for(ends - self._clock.now(), self.stock.lock, in_session=True)

    # -- messages that return to the session ---------------------------------------------------------------------------

    def _make_calls(self) -> None:
        (driver,) = self.drivers
        if self._phase.returns:
            driver.credit.want(NO_DEMAND)
            driver.look()
            driver.touched = True
            if not self._returning and driver.credit.settled:
                self._happens(SessionEvent.BACK)
                if self._recalls:
                    self._happens(SessionEvent.RECALL)
                self._is_withdrawn()
        if self._phase.fetches:
            super()._make_calls()

    def _next_look(self) -> float:
        """Return the time at which to look at the partition: never while the session is recalled, or gone."""
        return super()._next_look() if self._phase.fetches or self._phase.returns else math.inf

    def want_for_ride(self, source: CreditDriver, settled: int) -> None:
        """Set what to want from the partition to which a call goes now."""
        if not self._phase.fetches:
            source.credit.want(NO_DEMAND)
        elif self._asks and not self.callers:
            self._ahead = self._asks
            source.credit.want(demand_of(self._asks, 0, self.terms))
        else:
            super().want_for_ride(source, settled)

    def _withdraw(self) -> asyncio.Event:
        """Withdraw the credit. Return what is set when all that returns is in the partition."""
        self._happens(SessionEvent.RETURN)
        if self._withdrawn is None:
            self._withdrawn = asyncio.Event()
        self._withdrawn.clear()
        return self._withdrawn

    def _is_withdrawn(self) -> None:
        if self._withdrawn is not None:
            self._withdrawn.set()

    def _release(self, items: Sequence[ServiceBusReceivedMessage]) -> None:
        for hold in map(hold_of, items):
            release = hold.reception.link.give_back(hold)
            if release is not None:
                _ = self._withdraw()
                self._returning += 1
                release.add_done_callback(self._returned)

    def _returned(self, release: asyncio.Future[None]) -> None:
        """Record the end of a release. When all releases have ended, fetch messages of the session again."""
        del release
        self._returning -= 1
        if not self._returning:
            self.pump()

    @asynccontextmanager
    async def recalled(self, deadline: float) -> AsyncGenerator[None]:
        """Release all messages in the buffer. Fetch and keep no messages as long as this context is open.

        It is used before an earlier message of the session returns to the queue, or all its messages leave the queue.
        """
        self._recalls += 1
        try:
            if self.buffer or self._phase.returns or not all(driver.credit.settled for driver in self.drivers):
                withdrawn = self._withdraw()
                if self.mode is ServiceBusReceiveMode.PEEK_LOCK:
                    self.give_back(self.buffer.empty())
                self.pump()
                if self._state is not InboxState.CLOSED:
                    await wait_until(withdrawn, deadline)
            else:
                self._happens(SessionEvent.RECALL)
            yield
        finally:
            self._recalls -= 1
            if not self._recalls:
                self._happens(SessionEvent.RESUME)
            self.pump()

    # -- the end -------------------------------------------------------------------------------------------------------

    def _close(self) -> None:
        super()._close()
        self._is_withdrawn()
        self.session.recalled, self.session.lease.recalled = nullcontext, None
        if self.taking.inbox is self:
            self.taking.inbox = None
