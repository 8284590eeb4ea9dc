"""The inbox of free sessions: receivers of a client that want the next free session of an entity wait here."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from sbredis.engine import MAXIMUM_CREDIT, NEXT_SESSION, SessionLock, lease_token
from sbredis.model import MessageLease, ServiceBusReceiveMode, Taking
from sbredis.receiving._credit_driver import CreditDriver
from sbredis.receiving._credit_places import demand_of
from sbredis.receiving._fetching import InboxOptions, InboxState
from sbredis.receiving._held_session import HeldSession, give_back_session
from sbredis.receiving._inbox import Inbox

if TYPE_CHECKING:
    from sbredis.client import Entity
    from sbredis.engine import Delivery
    from sbredis.receiving._credit import HandedGift

__all__ = ["FreeSessions"]

_IDLE = 5.0
"""The seconds for which the inbox stays without a caller. Most workers ask again soon."""
_HEARING = 1.0
"""The seconds for which partitions send news to an inbox without a caller."""
_COMING_BACK = 1.0
"""The seconds for which sessions wait for the callers that settlements have announced."""


class FreeSessions(Inbox[HeldSession]):
    """The free sessions of an entity. All receivers of a client share this inbox, so partitions know one receiver."""

    def __init__(self, entity: Entity, first: int, hands: int | None, ended: Callable[[], None]) -> None:
        """``first`` messages come with each session. ``ended`` is called when the inbox is closed.

        ``hands`` is the number of messages of a session that its receiver has begun at a time, as far as it is known.
        If it is known, the receiver begins no suspect before it says so.
        """
        self.first = first
        self._ended = ended
        self._ends_at = 0.0
        self._with_more: set[CreditDriver] = set()
        """The partitions that have said that there are more free sessions."""
        self._expected, self._expected_until = 0, 0.0
        """How many sessions may come before a caller asks, because settlements have asked for them."""
        super().__init__(
            entity,
            secrets.token_hex(5),
            InboxOptions(
                "",
                ServiceBusReceiveMode.PEEK_LOCK,
                prefetch=0,
                adaptive=False,
                taking=Taking(MAXIMUM_CREDIT if hands is None else hands, suspects=hands is None),
            ),
            attrgetter("lease"),
        )

    @property
    def source(self) -> str:
        """What receivers of free sessions want."""
        return NEXT_SESSION

    def opened(self, driver: CreditDriver, handed: Sequence[HandedGift[Delivery]]) -> list[HeldSession]:
        """Return the sessions of gifts. Release those whose lock may have ended."""
        self._with_more.intersection_update(self.drivers)
        if driver.credit.news and driver not in self._seats.departing:
            self._with_more.add(driver)
        else:
            self._with_more.discard(driver)
        sessions: list[HeldSession] = []
        link, clock = driver.partition_client, self._clock
        for gift in handed:
            assert gift.session is not None  # only sessions come from this source
            token, name = lease_token(gift.prefix, gift.serial), gift.session.name
            if gift.ends is None:
                self.entity.connection.see_off(give_back_session(link, SessionLock(name, token)))
                continue
            until_utc = clock.utc() + gift.ends - clock.now()
            lease = MessageLease(token, gift.ends, until_utc, gift.fence, session=name, partition=link.number)
            sessions.append(HeldSession(link, name, lease, gift))
        return sessions

    def driver_with_more(self, partition: int) -> CreditDriver | None:
        """Return the driver of a partition, if it has said that there are more free sessions."""
        able = self._with_more.intersection(self.drivers)
        return next((driver for driver in able if driver.partition_client.number == partition), None)

    def more_elsewhere(self, partition: int) -> bool:
        """Return whether another partition has said that there are more free sessions."""
        search = self._seats.search
        if search is not None and search.rotation.waiting:
            return True
        return any([driver.partition_client.number != partition for driver in self._with_more])  # noqa: C419 -- faster

    # -- grants that ride with settlements -----------------------------------------------------------------------------

    def want_for_ride(self, source: CreditDriver, settled: int) -> None:
        """Ask for as many sessions as the call that goes now leaves, unless the partition pushes them anyway."""
        if self._state is InboxState.CLOSED or source in self._seats.departing or source.credit.outstanding:
            return
        self._expected += settled
        self._expected_until = self._loop.time() + _COMING_BACK
        source.credit.want(demand_of(settled, 0, self.terms, now=True))

    def ride_ended(self) -> None:
        """Keep the sessions for a moment: only now do callers ask for them."""
        self._expected_until = self._loop.time() + _COMING_BACK
        self._set_timer()

    @property
    def _capacity(self) -> int:
        return self._expected

    def _release(self, items: Sequence[HeldSession]) -> None:
        for session in items:
            self.entity.connection.see_off(give_back_session(session.partition_client, session.lock))

    # -- callers who leave ---------------------------------------------------------------------------------------------

    def _linger(self) -> None:
        """Withdraw the credit at once: a session that nobody waits for would be kept from others."""
        now = self._loop.time()
        self._ends_at = now + _IDLE
        _ = self.lingering.begin(now, lingers=0.0, hears=_HEARING if len(self._partitions) > 1 else 0.0)
        self.pump()

    def _next_look(self) -> float:
        at = super()._next_look()
        if self._expected:
            at = min(at, self._expected_until)
        return at if self.callers else min(at, self._ends_at)

    def _look_after_calls(self) -> None:
        now = self._loop.time()
        if now >= self._expected_until:
            self._expected = 0
        super()._look_after_calls()
        if not self.callers and now >= self._ends_at and self._state is not InboxState.CLOSED:
            self._ended()  # at once: a caller that comes before the inbox is closed gets another one
            self.entity.connection.see_off(super().aclose())

    async def aclose(self) -> None:
        """Withdraw the credit. Later callers get another inbox."""
        if self._state is not InboxState.CLOSED:
            self._ended()
            await super().aclose()
