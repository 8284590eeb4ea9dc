"""The driver of the credit in one partition: it makes the calls that :mod:`sbredis.receiving._credit` decides on."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sbredis.client import GrantRide, Pauses, PushMember, may_recover
from sbredis.engine import (
    REFUSALS,
    CreditAnswer,
    CreditGrant,
    CreditPush,
    CreditReply,
    Delivery,
    SentGrant,
    new_token,
)
from sbredis.exceptions import (
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    Outcome,
    ServiceBusAuthorizationError,
    ServiceBusError,
)
from sbredis.receiving._asking import AskedSource, AskingState
from sbredis.receiving._credit import NO_DEMAND, CreditState, HandedGift, PartitionCredit

if TYPE_CHECKING:
    from sbredis.client import PartitionClient
    from sbredis.receiving._inbox import Inbox

__all__ = ["CLOSING", "UNKNOWN_RUN", "CreditDriver", "new_prefix", "part_from", "part_later", "run_of"]

_log = logging.getLogger("sbredis.client")
UNKNOWN_RUN: Final = "?"
"""What grants say of the server process if the user may not ask which one it is."""
_RUN = 8
"""The number of characters of a run id that grants have."""
_PATIENCE = 60.0
"""The seconds for which a call is repeated. A partition remembers a receiver for longer."""
_LEAVING = 2.0
"""The same for a call of a receiver that is being closed."""
CLOSING: Final = 5.0
"""The longest time for which a receiver that is being closed tries to take back what a partition has given to it."""
_LISTENING_AGAIN = 1.0
_HEARING_FIRST = 1.0
_OF_ALL = (MessagingEntityNotFoundError, MessagingEntityDisabledError, ServiceBusAuthorizationError)
"""Errors of a call that each receiver would get."""


def new_prefix() -> str:
    """Return a new prefix for the leases of a receiver."""
    return new_token()[:8]


def run_of(partition_client: PartitionClient) -> str:
    """Return the server process that has a partition, as grants say it."""
    server = partition_client.connection.transport.server_of(partition_client.partition.keys[0])
    return UNKNOWN_RUN if server is None else server.run_id[:_RUN].decode()


class CreditDriver(AskedSource):
    """The credit of a receiver in one partition. It makes one call after the other, and hears pushes.

    It reports what comes to the inbox, and the inbox says what it wants from the partition.
    """

    def __init__(
        self,
        inbox: Inbox[Any],
        partition_client: PartitionClient,
        identity: str,
        *,
        source: str,
        locks: bool,
        dated: bool = True,
        prefix: str = "",
    ) -> None:
        """``identity`` and ``source`` name the word of the receiver. With ``locks``, messages are locked and not
        deleted; if they are not ``dated``, they end with the lock of their session. ``prefix`` is the first prefix of
        the receiver, if it has one already.
        """
        connection = partition_client.connection
        super().__init__(partition_client, connection.timings.late)
        self._inbox = inbox
        self._receiver = identity
        self._connection, self._clock, self._timings = connection, connection.clock, connection.timings
        self._loop = asyncio.get_running_loop()
        run = run_of(partition_client)
        self._source = source
        self.locks = locks
        """Whether messages are locked, and not deleted."""
        self.credit: PartitionCredit[Delivery] = PartitionCredit(
            connection.server_clock, new_prefix, run, prefix, dated=locks and dated
        )
        """The decisions about this partition."""
        self.touched = True
        """Whether a call may be needed: something has happened here, or something else is wanted."""
        self.look_at = math.inf
        """The time of the loop at which to look at this driver again, if nothing happens before."""
        self.gave_at = -math.inf
        """The time at which the partition has given something last."""
        self._member: PushMember | None = None
        self._listens_at = 0.0
        """The time before which the driver does not try to listen again."""
        self._ride: GrantRide | None = None
        """The grant of the receiver in the call under way."""
        self._own_call: asyncio.Future[Any] | None = None
        """The future of a call of the receiver's own: it gets an error, or is cancelled, but gets no result."""
        self._ending: asyncio.Future[None] | None = None
        """Gets a result when the call under way ends, or the pause after a failure is cut short."""
        self._was_answered = False
        """Whether the partition has answered a grant, so that it may have given something that did not come."""
        self._pauses: Pauses | None = None
        """The pauses between calls, after a failure."""
        self.failure: BaseException | None = None
        """Why the last call has failed, if it has."""
        self.beside: CreditDriver | None = None
        """The driver of the receiver that asks for the next session with the call that leaves this one."""
        self.in_company = False
        """Whether other receivers settle messages in this turn of the event loop."""

    def __repr__(self) -> str:
        return f"<CreditDriver {self.partition_client} {self.credit.state.name}>"

    # -- what is known -------------------------------------------------------------------------------------------------

    @property
    def troubled(self) -> bool:
        """Whether the last call failed, the answer is late, or a call is under way without a connection."""
        return self.late or self._is_failing or (self.under_way and not self.partition_client.connected)

    @property
    def _is_failing(self) -> bool:
        return self._pauses is not None

    @property
    def may_answer(self) -> bool:
        """Whether an answer may still come, as far as the client knows."""
        return self.under_way and not self._is_failing and self.partition_client.connected

    @property
    def is_asleep(self) -> bool:
        """Whether nothing comes from the partition, and nothing was done about it."""
        hears_soon = self.credit.state is CreditState.UNHEARD and self._member is not None
        return self.credit.silent and not self.under_way and not hears_soon

    @property
    def replies_only(self) -> bool:
        """Whether the receiver gets messages in replies only, and news in pushes.

        A deleted message must not get lost on its way. A push may come before the replicas have the message.
        """
        return not self.locks or self._connection.target.durability != "master" or self.credit.run == UNKNOWN_RUN

    # -- calls ---------------------------------------------------------------------------------------------------------

    def look(self, *, listens: bool = False) -> None:
        """Make a call if one is needed now and may be made. Set the time to look again.

        If this receiver ``listens``, it hears pushes before the call if another receiver of the client does, so that
        this costs nothing; or after it, if the partition has nothing more now.
        """
        self.touched = False
        now = self._clock.now()
        if self.state is AskingState.RESTING and self.credit.needs_call(now):
            if listens and self._member is None and self._connection.pushes.hears(self._place):
                self.listen()
            self._call(now, _PATIENCE)
        elif listens and not self.under_way and self.calls and self.listen():
            self.look()
        ahead = self.credit.next_at - now if self.state is AskingState.RESTING else math.inf
        self.look_at = self._loop.time() + max(0.0, ahead) if ahead < _PATIENCE * 10 else self.changes_at

    def _call(self, now: float, seconds: float) -> None:
        ride, future = self._begin_call(now), self._loop.create_future()
        self._own_call = future
        future.add_done_callback(partial(self._not_answered, ride))
        _ = self.partition_client.granting.add(ride, future, self.asked_at + seconds)

    def _begin_call(self, now: float) -> GrantRide:
        """Return the grant for a call that is made now, and note that it is under way."""
        member, credit = self._member, self.credit
        share = credit.demand.callers + credit.demand.stock
        kept, hands, leaves = self._inbox.call_begins(self.partition_client.number, share)
        credit.began(kept)
        grant = credit.grant(now, hands=hands, leaves=leaves)
        channel = b"" if member is None or credit.state is CreditState.UNHEARD else member.channel
        self.calls += 1
        self.begin_asking(self._loop.time())
        self._inbox.refills_at = None
        ride = GrantRide(self, SentGrant(self._receiver, channel, self._source, grant, delete=not self.locks))
        self._ride = ride
        return ride

    def _not_answered(self, ride: GrantRide, done: asyncio.Future[Any]) -> None:
        """Handle the failure of a call, or that nobody waits for it any more."""
        error = None if done.cancelled() else done.exception()
        if self._ride is ride:
            self._end_call()
            self.credit.failed(ride.sent.grant)
            if error is not None:
                self._failed(error)

    def answered(self, ride: GrantRide, reply: CreditReply[Delivery], since: float) -> None:
        """Handle the answer to a grant. If nobody waits for it any more, only use what it has brought."""
        own_call, self._was_answered = self._own_call, True
        if self._ride is not ride or (own_call is not None and own_call.done()):
            self._inbox.received(self._read(reply, ride.sent.grant, since))
            return
        if own_call is None:
            self._inbox.ride_ended()
        self._end_call()
        self.failure, self._pauses = None, None
        messages, answer = self._read(reply, ride.sent.grant, since), reply.answer
        if not self._inbox.is_one_of_many and answer in {CreditAnswer.TAKEN, CreditAnswer.KNOWN}:
            self._inbox.held()
        if answer is CreditAnswer.REFUSED:
            if self._inbox.refused(reply.refusal):
                return
            self._failed(self._refusal(reply.refusal), of_all=True)
        elif self.credit.answers_for(ride.sent.grant) and not self.credit.news:
            self._inbox.callers.answered(self)
        if self.credit.suspects_wait and not self._inbox.taking.suspects:
            self._inbox.taking.told()
        if self.credit.others_wait:
            self._inbox.others_wait()
        self._inbox.received(messages)
        if self.credit.news:
            self._inbox.has_more(self)

    @property
    def ending(self) -> asyncio.Future[None]:
        """A future that is done when the call under way ends, or the pause after a failure is cut short."""
        if self._ending is None or self._ending.done():
            self._ending = self._loop.create_future()
        return self._ending

    def _end_call(self) -> None:
        self.end_asking()
        self._ride, self._own_call, self.touched = None, None, True
        if self._ending is not None:
            self._end_wait()

    def _end_wait(self) -> None:
        if self._ending is not None and not self._ending.done():
            self._ending.set_result(None)

    def _read(self, reply: CreditReply[Delivery], grant: CreditGrant, since: float) -> list[Any]:
        self.touched = True
        handed = self.credit.replied(grant, reply, since, self._clock.now())
        member = self._member
        if self.credit.state is CreditState.UNHEARD and member is not None and member.run == self.credit.run:
            member.learn()
            self.credit.subscribed(self.credit.run)  # the partition is where the subscription is
        if not self.locks:  # nobody can bring deleted messages again, so all of them are used
            handed = [HandedGift(gift.prefix, gift.place.serial, None, gift.messages, 0) for gift in reply.gifts]
        if handed:
            self.gave_at = self.asked_at
        return self._inbox.opened(self, handed)

    # -- grants that ride with other calls -----------------------------------------------------------------------------

    def ride(self, settled: int) -> GrantRide | None:
        """Return a grant for a call that settles this number of messages, if a grant is needed, or soon will be.

        A receiver has one call under way, and this is one.
        """
        if self.state is not AskingState.RESTING:
            return None
        self.touched = True  # the inbox looks at what it wants from this partition
        self._inbox.want_for_ride(self, settled)
        now = self._clock.now()
        if not self.credit.may_ride(now):
            return None
        return self._begin_call(now)

    def failed(self, ride: GrantRide) -> None:
        """Note that another call has brought no answer to a grant, and ask again."""
        self._inbox.ride_ended()
        self._end_call()
        self.credit.failed(ride.sent.grant)
        self._inbox.received([])

    def _failed(self, error: BaseException, *, of_all: bool = False) -> None:
        if self._pauses is None:
            self._pauses = Pauses(*self._timings.asking_again)
        self.pause(self._loop.time() + self._pauses.next())
        self.touched, self.failure, self.look_at = True, error, self.changes_at
        if isinstance(error, ServiceBusError) and self.state is not AskingState.LEFT:
            self._inbox.failed(self, error, of_all=of_all or isinstance(error, _OF_ALL))

    def _refusal(self, said: str) -> ServiceBusError:
        code, _, detail = said.partition(" ")
        kind, text = REFUSALS[code](detail)
        error = kind(text, outcome=Outcome.REFUSED)
        error.entity = self.partition_client.entity.name
        self.partition_client.entity.explain(error)
        return error

    # -- pushes --------------------------------------------------------------------------------------------------------

    def listen(self) -> bool:
        """Begin to hear pushes, unless the driver hears them or may not. A closed transport brings none.

        Return whether the channel was heard already, by others.
        """
        closed = self._connection.transport.closed or self.state is AskingState.LEFT
        if self._member is None and not closed and self._loop.time() >= self._listens_at:
            member = self._member = self._connection.pushes.join(self._place, self._receiver, self._source, self)
            if (run := member.run) is not None:
                self.credit.subscribed(run)
                self.touched = True
                return True
        return False

    def listen_first(self) -> None:
        """Hear pushes before the first call, because a search has found nothing here. Wait for that for a second."""
        self.listen()
        if self._member is not None and self.credit.state is CreditState.UNHEARD and not self.calls:
            self.pause(self._loop.time() + _HEARING_FIRST)
            self.touched = True

    @property
    def _place(self) -> tuple[int, str]:
        """The place of the channel: the partition, and the entity that it is of."""
        link = self.partition_client
        return link.number, link.entity.record.id

    def pushed(self, push: CreditPush[Delivery]) -> None:
        """Handle a push: messages, or the news that there are messages or that something has changed."""
        self.touched = True
        handed = self.credit.pushed(push, self._clock.now())
        if push.gift is None:
            self._rouse()
            if self.credit.others_wait:
                self._inbox.others_wait()
        else:
            self.gave_at = self._loop.time()
        self._inbox.received(self._inbox.opened(self, handed), pushed=True)

    def subscribed(self, run: str) -> None:
        """Handle a new subscription. Earlier pushes may be lost."""
        self.credit.subscribed(run)
        self._rouse()
        self._inbox.received([])

    def refused(self, error: ServiceBusError) -> None:
        """Handle a refusal of the channel: ask the partition once a second, and for the channel too."""
        self._member, self.touched = None, True
        self._listens_at = self._loop.time() + _LISTENING_AGAIN
        self.credit.unsubscribed()
        self._inbox.refills_at = None
        if not self._is_failing:
            self.end_pause()
        _log.info("%s: pushes cannot be heard, so the partition is asked once a second: %s", self, error)
        if not may_recover(error):
            self._inbox.received([])

    # -- events --------------------------------------------------------------------------------------------------------

    def look_again(self) -> None:
        """Ask the partition again: something may have changed there."""
        self._rouse()
        if self.credit.state is CreditState.ENDED:
            self.credit.ask_again()
        self.credit.look_again()

    def hurry(self) -> None:
        """Let the answer to the call under way be late sooner, because the time of a caller is over."""
        super().hurry()
        self.touched = True

    def on_time(self, now: float, *, wanted: bool) -> None:
        """Note that the answer is late, or that a pause has ended; ask again if there is no connection any more."""
        self.touched = True
        self.credit.end_wait()
        self.pass_time(now)
        if self.under_way or not wanted:
            return
        if self.credit.state is CreditState.ENDED and self.state is AskingState.RESTING:
            self.look_again()
        elif not self._is_failing and not self.partition_client.connected:
            self.credit.look_again()

    def _rouse(self) -> None:
        self._pauses, self.touched = None, True
        self.end_pause()
        self._end_wait()

    # -- the end -------------------------------------------------------------------------------------------------------

    def leave(self) -> None:
        """Stop receiving for good. If an answer to the call under way comes later, its messages are released."""
        super().leave()
        if self._own_call is not None:
            _ = self._own_call.cancel()
        member, self._member = self._member, None
        if member is not None:
            member.leave()

    @property
    def has_left(self) -> bool:
        """Whether the driver makes no call any more, and none is under way."""
        return self.state is AskingState.LEFT and self._ride is None

    @property
    def has_parted(self) -> bool:
        """Whether the partition can give nothing more to the receiver, or can never be asked again."""
        return not self.under_way and (self.credit.settled or self.is_in_vain)

    @property
    def is_in_vain(self) -> bool:
        """Whether no call can succeed any more, or the partition has given nothing and refuses the receiver.

        A refusal may end before the locks do, for example one of the user's credentials.
        """
        link = self.partition_client
        entity = link.entity
        hopeless = self.failure is not None and not may_recover(self.failure)
        return (
            (hopeless and not self._was_answered)
            or self._connection.closed
            or entity.gone
            or link.number not in entity.numbers
        )

    def begin_to_part(self) -> None:
        """Want nothing more from the partition, and ask at once for what it has given before."""
        self.credit.want(NO_DEMAND)
        if self.credit.keeps_due_time:  # the partition must give that task to another receiver
            self.credit.look_again()
        self.end_pause()

    def go_on_parting(self, left: float) -> float:
        """Make the call that is needed now. Return for how long to wait for the next step, at most ``left`` seconds.

        A call that has failed is made again, because messages may be locked that nobody has got. The result is 0 if no
        further call is needed, or none can succeed.
        """
        if self.is_in_vain:
            return 0.0
        if self.under_way:
            return left
        now, at = self._clock.now(), self._loop.time()
        self.pass_time(at)
        needed = self.credit.needs_call(now)
        if self.credit.settled and (self._is_failing or not needed):
            return 0.0
        if self.state is AskingState.PAUSED:
            return min(left, self.changes_at - at)
        if needed:
            self._call(now, min(left, _LEAVING))
            return left
        return min(left, max(0.001, self.credit.next_at - now))

    def part_in_background(self) -> None:
        """Let the partition take back its messages in the background, as long as their locks may hold."""
        if not (self.locks and self._connection.attempt(f"{self.partition_client}: a closed receiver", self._part)):
            self.leave()

    async def _part(self) -> None:
        lock = self.partition_client.entity.record.settings.lock_duration / 1000
        try:
            await part_from([self], self._loop.time() + lock)
        finally:
            self.leave()


async def part_from(drivers: Sequence[CreditDriver], until: float) -> Sequence[CreditDriver]:
    """Make calls until each partition has answered, or none can succeed. Return those that have not until a time."""
    loop = asyncio.get_running_loop()
    while drivers and (left := until - loop.time()) > 0:
        waits = {driver: driver.go_on_parting(left) for driver in drivers}
        drivers = [driver for driver in drivers if waits[driver] > 0]
        if drivers:
            endings, soonest = [driver.ending for driver in drivers], min(waits[driver] for driver in drivers)
            await asyncio.wait(endings, timeout=soonest, return_when=asyncio.FIRST_COMPLETED)
    return [driver for driver in drivers if not (driver.has_parted or driver.is_in_vain)]


def part_later(drivers: Sequence[CreditDriver]) -> None:
    """Part in the background from partitions that have taken no call of a receiver that is closed now."""
    if not drivers:
        return
    first, more = drivers[0], len(drivers) - 1
    _log.warning(
        "%s%s taken no call for %.0f s, so a receiver was closed without it. Messages that were given to the "
        "receiver, and that nobody has got, %s",
        first.partition_client,
        f" and {more} more have" if more else " has",
        CLOSING,
        "stay locked until a call is taken, or until their locks end" if first.locks else "are lost",
    )
    for driver in drivers:
        driver.part_in_background()
