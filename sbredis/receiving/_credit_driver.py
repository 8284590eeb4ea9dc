"""The driver of the credit in one partition: it makes the calls that :mod:`sbredis.receiving._credit` decides on."""

from __future__ import annotations

import asyncio
import logging
import math
from typing import TYPE_CHECKING, Any, Final

from sbredis.client import GrantJob, GrantRide, Pauses, PushMember, may_recover
from sbredis.engine import (
    REFUSALS,
    CreditAnswer,
    CreditGrant,
    CreditPush,
    CreditReply,
    Delivery,
    SentGrant,
    entity_of,
    new_token,
)
from sbredis.exceptions import Outcome, ServiceBusError
from sbredis.receiving._credit import CreditDemand, CreditState, HandedGift, PartitionCredit

if TYPE_CHECKING:
    from sbredis.client import PartitionClient
    from sbredis.receiving._inbox import Inbox

__all__ = ["UNKNOWN_RUN", "CreditDriver", "new_prefix", "run_of"]

_log = logging.getLogger("sbredis.client")
UNKNOWN_RUN: Final = "?"
"""What grants say of the server process if the user may not ask which one it is."""
_RUN = 8
"""The number of characters of a run id that grants have."""
_PATIENCE = 60.0
"""The seconds for which a call is repeated. A partition remembers a receiver for longer."""
_LEAVING = 2.0
"""The same for a call of a receiver that is being closed."""
_CLOSING = 5.0
"""The longest time for which a receiver that is being closed tries to take back what a partition has given to it."""
_LISTENING_AGAIN = 1.0
_HEARING_FIRST = 1.0
_HURRIED = 0.2
"""The part of ``Timings.late`` after which an answer is late for a caller whose time is over."""


def new_prefix() -> str:
    """Return a new prefix for the leases of a receiver."""
    return new_token()[:8]


def run_of(partition_client: PartitionClient) -> str:
    """Return the server process that has a partition, as grants say it."""
    server = partition_client.connection.transport.server_of(partition_client.partition.keys[0])
    return UNKNOWN_RUN if server is None else server.run_id[:_RUN].decode()


class CreditDriver:
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
        self.partition_client = partition_client
        self.calls = 0
        """The number of calls made, including the one under way."""
        self.late = False
        """Whether the answer to the call under way is late."""
        self._inbox = inbox
        self._receiver = identity
        self._connection, self._clock, self._timings = connection, connection.clock, connection.timings
        self._loop = asyncio.get_running_loop()
        run = run_of(partition_client)
        self._locks, self._source = locks, source
        self.credit = PartitionCredit[Delivery](
            connection.server_clocks.of, new_prefix, run, dated=locks and dated, prefix=prefix
        )
        """The decisions about this partition."""
        self.touched = True
        """Whether anything has happened since the inbox has looked at this driver."""
        self.gave_at = -math.inf
        """The time at which the partition has given something last."""
        self._member: PushMember | None = None
        self._listens_at = 0.0
        """The time before which the driver does not try to listen again."""
        self._under_way: GrantJob | _DriverRide | None = None
        """The call under way that carries a grant of the receiver."""
        self._ending: asyncio.Future[None] | None = None
        """Gets a result when the call under way ends."""
        self._asked_at = self._late_at = 0.0
        self._pauses = Pauses(*self._timings.asking_again)
        self._paused_until = 0.0
        self._hopeless = False
        """Whether the last call has failed, and another one cannot succeed."""
        self._left = False
        self.beside: CreditDriver | None = None
        """The driver of the receiver that asks for the next session with the call that leaves this one."""
        self.in_company = False
        """Whether other receivers settle messages in this turn of the event loop."""

    def __repr__(self) -> str:
        return f"<CreditDriver {self.partition_client} {self.credit.state.name}>"

    # -- what is known -------------------------------------------------------------------------------------------------

    @property
    def under_way(self) -> bool:
        """Whether a call is under way."""
        return self._under_way is not None

    @property
    def able(self) -> bool:
        """Whether the partition may be asked: it is not late, and no pause after a failure has to end first."""
        return not self.late and self._loop.time() >= self._paused_until

    @property
    def troubled(self) -> bool:
        """Whether the last call failed, the answer is late, or a call is under way without a connection."""
        return self.late or bool(self._pauses) or (self.under_way and not self.partition_client.connected)

    @property
    def may_answer(self) -> bool:
        """Whether an answer may still come, as far as the client knows."""
        return self.under_way and not self._pauses and self.partition_client.connected

    @property
    def is_unheard(self) -> bool:
        """Whether the partition has answered that it has nothing more, and could not push it."""
        return self.credit.state is CreditState.UNHEARD and self.calls > 0 and not self.under_way

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
        return not self._locks or self._connection.target.durability != "master" or self.credit.run == UNKNOWN_RUN

    @property
    def next_at(self) -> float:
        """The time of the loop at which to look at this partition again, if nothing happens before."""
        now = self._loop.time()
        if self.under_way:
            return math.inf if self.late else self._late_at
        if self._paused_until > now:
            return self._paused_until
        ahead = self.credit.next_at - self._clock.now()
        return now + max(0.0, ahead) if ahead < _PATIENCE * 10 else math.inf

    # -- calls ---------------------------------------------------------------------------------------------------------

    def call_if_needed(self) -> None:
        """Make a call if one is needed now and may be made."""
        now = self._clock.now()
        if not self.under_way and self.able and self.credit.needs_call(now):
            self._call(now, _PATIENCE)

    def _call(self, now: float, seconds: float) -> None:
        sent = self._begin_call(now)
        grant = sent.grant

        def orphaned(reply: CreditReply[Delivery]) -> None:
            self._inbox.received(self._read(reply, grant, job.since))

        job = GrantJob(sent, self._asked_at + seconds, orphaned)
        self._under_way = job
        _ = self.partition_client.granting.submit(job)  # `once` handles the end of the job

        def once() -> None:
            if self._under_way is job:
                self._ended(job, grant)

        job.told = once
        job.future.add_done_callback(lambda _: once())

    def _begin_call(self, now: float) -> SentGrant:
        """Return the grant for a call that is made now, and note that it is under way."""
        self.touched = True
        member = self._member
        self.credit.began(self._inbox.first_kept(self.partition_client.number))
        grant = self.credit.grant(now, leaves=self._inbox.begin_leaving())
        heard = member is not None and self.credit.state is not CreditState.UNHEARD
        channel = member.channel if heard and member is not None else b""
        self.calls += 1
        self._asked_at = self._loop.time()
        self._late_at = self._asked_at + self._timings.late
        return SentGrant(self._receiver, channel, self._source, grant, delete=not self._locks)

    def _ended(self, job: GrantJob, grant: CreditGrant) -> None:
        done: asyncio.Future[CreditReply[Delivery]] = job.future
        if done.cancelled():
            self._end_call()
            self.credit.failed(grant)
            return
        job.told = None  # the callback refers to the job, so both would keep each other and the messages in memory
        error = done.exception()
        if error is not None:
            self._end_call()
            self.credit.failed(grant)
            self._failed(error)
            return
        job.orphaned = None
        self._answered(done.result(), grant, job.since)

    def _answered(self, reply: CreditReply[Delivery], grant: CreditGrant, since: float) -> None:
        """Handle the answer to the grant under way."""
        self._end_call()
        self._pauses.reset()
        self._hopeless = False
        messages = self._read(reply, grant, since)
        if reply.answer in {CreditAnswer.TAKEN, CreditAnswer.KNOWN}:
            self._inbox.held()
        if reply.answer is CreditAnswer.REFUSED:
            if self._inbox.refused(reply.refusal):
                return
            self._failed(self._refusal(reply.refusal))
        elif self.credit.answers_for(grant) and not self.credit.news:
            self._inbox.callers.answered(self)
        if self.credit.suspects_wait:
            self._inbox.suspects_wait()
        if self.credit.others_wait:
            self._inbox.others_wait()
        self._inbox.received(messages)

    @property
    def ending(self) -> asyncio.Future[None]:
        """A future that is done when the call under way ends."""
        if self._ending is None or self._ending.done():
            self._ending = self._loop.create_future()
        return self._ending

    def _end_call(self) -> None:
        self._under_way, self.late, self.touched = None, False, True
        if self._ending is not None and not self._ending.done():
            self._ending.set_result(None)

    def _read(self, reply: CreditReply[Delivery], grant: CreditGrant, since: float) -> list[Any]:
        self.touched = True
        handed = self.credit.replied(grant, reply, since, self._clock.now())
        member = self._member
        if self.credit.state is CreditState.UNHEARD and member is not None and member.run == self.credit.run:
            member.learn()
            self.credit.subscribed(self.credit.run)  # the partition is where the subscription is
        if not self._locks:  # nobody can bring deleted messages again, so all of them are used
            handed = [HandedGift(gift.prefix, gift.place.serial, None, gift.messages, 0) for gift in reply.gifts]
        if handed:
            self.gave_at = self._asked_at
        return self._inbox.opened(self, handed)

    # -- grants that ride with other calls -----------------------------------------------------------------------------

    def ride(self, settled: int) -> GrantRide | None:
        """Return a grant for a call that settles this number of messages, if a grant is needed, or soon will be.

        A receiver has one call under way, and this is one.
        """
        if self._left or self.under_way or not self.able:
            return None
        self.touched = True  # the inbox looks at what it wants from this partition
        self._inbox.want_for_ride(self, settled)
        now = self._clock.now()
        if not self.credit.may_ride(now):
            return None
        ride = _DriverRide(self, self._begin_call(now))
        self._under_way = ride
        return ride

    def ride_ended(self, ride: _DriverRide, reply: CreditReply[Delivery] | None, since: float = 0.0) -> None:
        """Handle the answer to a ride; without one, ask again."""
        grant = ride.sent.grant
        self._inbox.ride_ended()
        if reply is not None:
            self._answered(reply, grant, since)
        else:
            self._end_call()
            self.credit.failed(grant)
            self._inbox.received([])

    def _failed(self, error: BaseException) -> None:
        self._paused_until = self._loop.time() + self._pauses.next()
        self.touched, self._hopeless = True, not may_recover(error)
        if isinstance(error, ServiceBusError) and not self._left:
            self._inbox.failed(self, error)

    def _refusal(self, said: str) -> ServiceBusError:
        code, _, detail = said.partition(" ")
        kind, text = REFUSALS[code](detail)
        error = kind(text, outcome=Outcome.REFUSED)
        error.entity = self.partition_client.entity.name
        self.partition_client.entity.explain(error)
        return error

    # -- pushes --------------------------------------------------------------------------------------------------------

    def listen(self) -> None:
        """Begin to hear pushes, unless the driver hears them or may not. A closed transport brings none."""
        closed = self._connection.transport.closed
        if self._member is None and not self._left and not closed and self._loop.time() >= self._listens_at:
            member = self._member = self._connection.pushes.join(self._place, self._receiver, self._source, self)
            if (run := member.run) is not None:
                self.credit.subscribed(run)
                self.touched = True

    def listen_first(self) -> None:
        """Hear pushes before the first call, because a search has found nothing here. Wait for that for a second."""
        self.listen()
        if self._member is not None and self.credit.state is CreditState.UNHEARD and not self.calls:
            self._paused_until, self.touched = self._loop.time() + _HEARING_FIRST, True

    def listen_if_heard(self) -> None:
        """Hear pushes if another receiver of the client does, so that this costs nothing."""
        if self._member is None and self._connection.pushes.hears(self._place):
            self.listen()

    @property
    def _place(self) -> tuple[int, str]:
        """The place of the channel: the partition, and the entity that it is of."""
        link = self.partition_client
        return link.number, entity_of(link.partition.keys[0])

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
        self._inbox.received(self._inbox.opened(self, handed))

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
        if not self._pauses:
            self._paused_until = 0.0
        _log.info("%s: pushes cannot be heard, so the partition is asked once a second: %s", self, error)
        if not may_recover(error):
            self._inbox.received([])

    # -- events --------------------------------------------------------------------------------------------------------

    def ask_now(self) -> None:
        """Ask the partition for what it has now."""
        self.look_again()

    def look_again(self) -> None:
        """Ask the partition again: something may have changed there."""
        self._rouse()
        if self.credit.state is CreditState.ENDED:
            self.credit.ask_again()
        self.credit.look_again()

    def wanted(self) -> None:
        """Record that a new caller waits for messages. It has not seen an earlier refusal."""
        if self.credit.state is CreditState.ENDED:
            self.look_again()

    def hurry(self) -> None:
        """Let the answer to the call under way be late sooner, because the time of a caller is over."""
        self._late_at = min(self._late_at, self._asked_at + self._timings.late * _HURRIED)
        self.touched = True

    def on_time(self, now: float, *, wanted: bool) -> None:
        """Note that the answer is late, or that a pause has ended; ask again if there is no connection any more."""
        self.touched = True
        self.credit.end_wait()
        if self.under_way:
            self.late = self.late or now >= self._late_at
        elif self.credit.state is CreditState.ENDED and wanted and now >= self._paused_until:
            self.look_again()
        elif wanted and not self._pauses and not self.partition_client.connected:
            self.credit.look_again()

    def _rouse(self) -> None:
        self._pauses.reset()
        self._paused_until, self.touched = 0.0, True

    # -- the end -------------------------------------------------------------------------------------------------------

    def leave(self) -> None:
        """Stop receiving, because the queue is in other partitions now."""
        self._left = True
        self._forget_call()
        self._stop_listening()

    def _forget_call(self) -> None:
        """Wait no more for the call under way. If an answer comes later, its messages are released."""
        if isinstance(self._under_way, GrantJob):
            self._under_way.future.cancel()

    def _stop_listening(self) -> None:
        member, self._member = self._member, None
        if member is not None:
            member.leave()

    @property
    def has_parted(self) -> bool:
        """Whether the partition can give nothing more to the receiver, or can never be asked again."""
        return not self.under_way and (self.credit.settled or self._is_in_vain)

    @property
    def _is_in_vain(self) -> bool:
        """Whether no call can succeed any more."""
        link = self.partition_client
        return self._hopeless or self._connection.closed or link.number not in link.entity.numbers

    async def aclose(self) -> None:
        """Withdraw the credit, and take what the partition has given before, so that the inbox can give it back.

        If a call fails, it is made again, because messages may be locked that nobody has got.
        """
        until = self._loop.time() + _CLOSING
        self.credit.want(CreditDemand())
        if self.credit.keeps_due_time:  # the partition must give that task to another receiver
            self.credit.look_again()
        self._paused_until = 0.0
        while (left := until - self._loop.time()) > 0 and not self._is_in_vain:
            now, paused = self._clock.now(), self._paused_until - self._loop.time()
            if self.under_way:
                await asyncio.wait((self.ending,), timeout=left)
            elif self.credit.settled and (self._pauses or not self.credit.needs_call(now)):
                break
            elif paused > 0:
                await asyncio.sleep(min(left, paused))
            elif self.credit.needs_call(now):
                self._call(now, min(left, _LEAVING))
            else:
                await asyncio.sleep(min(left, max(0.001, self.credit.next_at - now)))
        if not (self.has_parted or self._is_in_vain):
            _log.warning(
                "%s has not answered for %.0f s, so a receiver was closed without it. Messages that were given to the "
                "receiver, and that nobody has got, %s",
                self.partition_client,
                _CLOSING,
                "stay locked until their locks end" if self._locks else "are lost",
            )
        self._left = True
        self._forget_call()
        self._stop_listening()


class _DriverRide:
    """A grant of a driver that rides with another call."""

    __slots__ = ("_driver", "sent")

    def __init__(self, driver: CreditDriver, sent: SentGrant) -> None:
        self._driver = driver
        self.sent = sent

    @property
    def beside(self) -> CreditDriver | None:
        """The receiver that asks for the next session, if this grant leaves one."""
        return self._driver.beside if self.sent.grant.leaves else None

    def answered(self, reply: CreditReply[Delivery], since: float) -> None:
        """Handle the answer."""
        self._driver.ride_ended(self, reply, since)

    def failed(self) -> None:
        """Note that no answer comes."""
        self._driver.ride_ended(self, None)
