"""Decide which offers of a partition to use, and what the next call says about the last one. Pure.

Theory
------

A partition can send messages in the wake of a waiter: an *offer*. It locks the messages for one second under a token
that the waiter has named when it was registered. The next call of the waiter *takes* the offer, which then has the full
lock duration, or *declines* it. So the client follows these rules:

- *Each registration has a fresh token, and each call ends the registration before it.* An offer counts only if its
  token is the token of the present registration. If an offer and a call cross, the call says that the client has read
  no offer, and declines it. The wake of this offer arrives after the call was made, and is ignored.
- *An offer that comes before the answer to the call that registered the client is kept until that answer.* The answer
  has the logical clock of the partition at the registration.
- *An offer is not used if it may be older than half a second*, because its lock may end before the partition gets the
  call that takes it. The two clocks of the partition, of the registration and of the offer, give the age of the offer:
  the registration ran no earlier than its call was made.
- *A call that takes an offer is made again if its outcome is not known.* It names the same token again. After a
  second the client gives up: the next call declines the offer, which has no effect if it was taken.
"""

from __future__ import annotations

from typing import Final

from sbredis.engine import OFFER_MS, Asked, Last, Offer

__all__ = ["Offers"]

_LOCKED: Final = OFFER_MS / 1000
_USABLE: Final = _LOCKED / 2


class Offers:
    """What a waiter knows about the offers of one partition."""

    __slots__ = ("_asked", "_early", "_last", "_made_at", "_named", "_registered_at")

    def __init__(self) -> None:
        self._asked = ""
        """The token of the present registration, or of the call under way that will register the waiter."""
        self._named: Last | None = None
        """What the call under way says about the offer before."""
        self._last: Last | None = None
        """What the next call must say."""
        self._made_at = 0.0
        self._registered_at: int | None = None
        """The logical clock at the registration; ``None`` until the answer has come."""
        self._early: Offer | None = None
        """An offer that came before the answer to the call that registered the waiter."""

    @property
    def owes(self) -> bool:
        """Whether the next call takes an offer."""
        return self._last is not None and self._last.read

    def call(self, asked: Asked | None) -> Last | None:
        """Begin a call that asks for offers, or for none. Return what it says about the offer before."""
        self._named, self._last = self._last, None
        self._asked, self._registered_at, self._early = "" if asked is None else asked.token, None, None
        return self._named

    def answered(self, made_at: float, clock: int, *, registered: bool) -> Offer | None:
        """End a call that was made at ``made_at`` and that the partition ran at its logical time ``clock``.

        Return the offer that came before the answer, if there is one.
        """
        early, self._early, self._named = self._early, None, None
        if not registered or not self._asked:
            self._asked = ""
            return None
        self._made_at, self._registered_at = made_at, clock
        self._last = Last(self._asked, read=False)
        return early

    def failed(self) -> None:
        """End a call whose outcome is not known. The next call says the same, or declines what this call asked for."""
        named, self._named, self._early = self._named, None, None
        if named is not None and (named.read or not self._asked):
            self._last = named
        elif self._asked:
            self._last = Last(self._asked, read=False)
        self._asked = ""

    def give_up(self) -> None:
        """Decline the offer that was read, because its time has passed, unless a call under way takes it."""
        if self._last is not None:
            self._last = self._last._replace(read=False)

    def read(self, offer: Offer, now: float) -> float | None:
        """Return the time at which the lock of an offer ends unless it is taken, or ``None`` if it is not used now."""
        if offer.token != self._asked:
            return None
        if self._registered_at is None:
            self._early = offer
            return None
        made = self._made_at + max(0, offer.clock - self._registered_at) / 1000
        ends = min(made, now) + _LOCKED
        if ends - now < _USABLE:
            return None
        self._asked, self._last = "", Last(offer.token, read=True)
        return ends
