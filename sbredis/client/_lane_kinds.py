"""The kinds of lanes other than the send lane: settlements, renewals, and calls that are not shared."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from sbredis.client._lane import Job, Jobs, Lane
from sbredis.client._riding import GrantRide
from sbredis.client._spreading import MOST_WORK
from sbredis.engine import (
    MAXIMUM_CALL_BYTES,
    MAXIMUM_CALL_MESSAGES,
    MAXIMUM_GRANTS,
    MAXIMUM_PARTICIPANTS,
    MAXIMUM_TRANSACTIONS,
    CallId,
    Granted,
    Lock,
    Operation,
    Partition,
    Renewed,
    Request,
    SentGrant,
    Settled,
    Transacted,
    TransactedTogether,
    frees,
    is_dead,
    number_of,
    transact_together,
)
from sbredis.exceptions import (
    MessageLockLostError,
    MessageNotFoundError,
    Outcome,
    ServiceBusError,
    SessionLockLostError,
)
from sbredis.model import Hold

if TYPE_CHECKING:
    from sbredis.client._partition_client import PartitionClient
    from sbredis.client._riding import GrantRider
    from sbredis.model import MessageLease

__all__ = [
    "CallJob",
    "CallLane",
    "GrantLane",
    "RenewJob",
    "RenewLane",
    "Renewable",
    "SettleLane",
    "SettleMethod",
    "TransactionJob",
    "TransactionLane",
    "lock_lost",
    "note_renewal",
]

T = TypeVar("T")
_SENT: Callable[[GrantRide], SentGrant] = attrgetter("sent")
MOST_MESSAGES_TOGETHER = 200
"""The largest number of messages, session states, keys and watermarks of several transactions that share a call."""


class SettleManyJob(Job):
    """Messages to settle together, each of them once. The future has the holds of those that were not settled."""

    def __init__(self, holds: Sequence[Hold], deadline: float) -> None:
        super().__init__(deadline)
        self.holds = holds


SettleMethod = Callable[[Partition, CallId, Sequence[Lock]], Request[Settled]]
Settleable = Hold | Lock | SettleManyJob
"""What a settlement is about: a received message, the lock of a message of another process, or several messages."""


class SettleLane(Lane[Settleable, Settled]):
    """Settlements of one kind. Their calls carry grants of the receivers whose messages they settle.

    The terms of a settlement are the changes and the delay of the message, if it has any.
    """

    depth: ClassVar[int] = 2
    carries: ClassVar[bool] = True

    def __init__(self, link: PartitionClient, letter: str, method: SettleMethod) -> None:
        self.letter = letter  # type: ignore[misc]  # one class for all kinds
        self._method = method
        super().__init__(link)

    def settle(
        self, what: Hold | Lock, loop: asyncio.AbstractEventLoop, deadline: float, changes: bytes = b"", delay: int = 0
    ) -> asyncio.Future[None]:
        """Settle a message for a caller in this event loop. If the message is not settled, its hold says so again."""
        if type(what) is Hold:
            what.settled = True
        return self.add(what, loop.create_future(), deadline, (changes, delay) if changes or delay else None)

    def settle_many(self, holds: Sequence[Hold], deadline: float) -> asyncio.Future[list[Hold]]:
        """Settle messages together. The future has those that were not settled."""
        for hold in holds:
            hold.settled = True
        job = SettleManyJob(holds, deadline)
        return self.add(job, job.future, deadline)

    def share(self, jobs: Jobs[Settleable], *, ordered: bool) -> int:
        """Return how many jobs one call takes. It has each message only once, because the answer names messages."""
        del ordered
        what = jobs.what
        names = {each.name for each in what if not isinstance(each, SettleManyJob)}
        if len(names) == len(what) and not any(jobs.terms):
            return len(what)
        names.clear()
        size = 0
        for place, (each, _, _, terms) in enumerate(jobs):
            own = [hold.name for hold in each.holds] if isinstance(each, SettleManyJob) else (each.name,)
            size += len(terms[0]) if terms else 0
            too_many = size > MAXIMUM_CALL_BYTES or len(names) + len(own) > MAXIMUM_CALL_MESSAGES
            if place and (too_many or not names.isdisjoint(own)):
                return place
            names.update(own)
        return len(what)

    def sizes(self, jobs: Jobs[Settleable]) -> Sequence[int]:
        """Return the bytes of the changes of each message."""
        return [len(terms[0]) if terms else 0 for terms in jobs.terms]

    def request(self, partition: Partition, call_id: CallId, jobs: Jobs[Settleable]) -> Request[Settled]:
        """Return one call for all jobs."""
        locks: list[Lock] = []
        for what, terms in zip(jobs.what, jobs.terms, strict=True):
            if isinstance(what, Hold):
                locks.append(what.lock(*terms) if terms else what.lock())
            elif isinstance(what, Lock):
                locks.append(what._replace(changes=terms[0], delay=terms[1]) if terms else what)
            else:
                locks += [hold.lock() for hold in what.holds if hold.lease is not None]
        return self._method(partition, call_id, locks)

    @property
    def in_company(self) -> bool:
        """Whether the receiver of the latest message settles together with others."""
        gathered = self.gathering.what
        what = gathered[-1] if gathered else None
        hold = what.holds[0] if isinstance(what, SettleManyJob) and what.holds else what
        return isinstance(hold, Hold) and hold.reception.rider is not None and hold.reception.rider.in_company

    def riders(self, jobs: Jobs[Settleable]) -> Mapping[GrantRider, int]:
        """Return the receivers of the messages, and how many messages of each are settled."""
        riders: dict[GrantRider, int] = {}
        for hold in _holds(jobs):
            rider = hold.reception.rider
            if rider is not None:
                riders[rider] = riders.get(rider, 0) + 1
        return riders

    def answer(self, jobs: Jobs[Settleable], result: Settled, since: float) -> None:
        """Tell each caller which messages were settled. A message is settled even if no caller waits any more."""
        del since
        lost = set(result.lost)
        not_settled = lost.union(result.unfit)
        for what, future in zip(jobs.what, jobs.futures, strict=True):
            if isinstance(what, SettleManyJob):
                left = _end_holds(what.holds, not_settled)
                if not future.done():
                    future.set_result(left)
            elif what.name in not_settled:
                if type(what) is Hold:
                    what.settled = False
                if not future.done():
                    future.set_exception(self._error(what, lost))
            else:
                if type(what) is Hold and what.watchers:
                    what.let_go()
                if not future.done():
                    future.set_result(None)
        if result.more:
            self.link.catch_up()

    def unanswered(self, jobs: Jobs[Settleable]) -> None:
        """Mark the messages as not settled. So they can be settled later."""
        for hold in _holds(jobs):
            hold.settled = False

    def _error(self, what: Hold | Lock, lost: Collection[str]) -> ServiceBusError:
        """Return why a message was not settled."""
        number = what.sequence_number if isinstance(what, Hold) else None
        if what.name in lost:
            return lock_lost(self.link, what.name, what.session if isinstance(what, Hold) else None, number=number)
        return _dead_already(self.link, what.name, number)


def _end_holds(holds: Sequence[Hold], not_settled: Collection[str]) -> list[Hold]:
    """Note what a call has done to several messages of one job. Return those that were not settled."""
    left: list[Hold] = []
    for hold in holds:
        if hold.name in not_settled:
            hold.settled = False
            left.append(hold)
        elif hold.watchers:
            hold.let_go()
    return left


def _holds(jobs: Jobs[Settleable]) -> list[Hold]:
    """Return all messages that were received by this client."""
    holds: list[Hold] = []
    for what in jobs.what:
        if type(what) is Hold:
            holds.append(what)
        elif isinstance(what, SettleManyJob):
            holds += what.holds
    return holds


class Renewable(Protocol):
    """The part of a message that the lock renewal uses."""

    name: str
    lease: MessageLease | None

    @property
    def sequence_number(self) -> int: ...


class RenewJob(Job):
    """A message whose lock to renew."""

    def __init__(self, lock: Lock, deadline: float, hold: Renewable) -> None:
        super().__init__(deadline)
        self.lock = lock
        self.hold = hold


def note_renewal(hold: Renewable, fresh: MessageLease, *, apart: bool) -> None:
    """Note the new end of a message's lock. If the message was renewed ``apart``, its lease is now its own."""
    lease = hold.lease
    assert lease is not None  # only messages that were received under a lock are renewed
    if apart and not lease.name:
        lease = hold.lease = replace(lease, name=hold.name)
    lease.until, lease.until_utc = fresh.until, fresh.until_utc


class RenewLane(Lane[RenewJob, Renewed]):
    """Renewals of locks."""

    letter: ClassVar[str] = "r"
    notes_time: ClassVar[bool] = True

    def share(self, jobs: Jobs[RenewJob], *, ordered: bool) -> int:
        """Return how many jobs one call takes. It has each message only once, because the answer names messages."""
        del ordered
        names: set[str] = set()
        for place, job in enumerate(jobs.what):
            if job.lock.name in names:
                return place
            names.add(job.lock.name)
        return len(jobs)

    def request(self, partition: Partition, call_id: CallId, jobs: Jobs[RenewJob]) -> Request[Renewed]:
        """Return one call for all jobs."""
        return partition.renew(call_id, [job.lock for job in jobs.what])

    def answer(self, jobs: Jobs[RenewJob], result: Renewed, since: float) -> None:
        """Update the end of each lock."""
        lost, apart = set(result.lost), set(result.apart)
        for job in jobs.what:
            name = job.lock.name
            if name not in lost and job.hold.lease is not None:
                note_renewal(job.hold, self.link.lease("", result.lock, since), apart=name in apart)
            if not job.future.done():
                if name in lost:
                    job.future.set_exception(lock_lost(self.link, name, number=job.hold.sequence_number))
                else:
                    job.future.set_result(None)
        if result.more:
            self.link.catch_up()


class CallJob(Job, Generic[T]):
    """A call that one caller makes and that no other caller shares. Its future has the result."""

    def __init__(
        self,
        make: Callable[[Partition, CallId], Request[T]],
        deadline: float,
        orphaned: Callable[[T], None] | None = None,
        *,
        catches_up: bool = True,
    ) -> None:
        super().__init__(deadline)
        self.make = make
        self.orphaned = orphaned
        """A function that is called with the result if no caller waits for the result any more."""
        self.since = 0.0
        """The time at which the call was last written to a connection, according to the client's clock.

        The duration of a lock from this call begins no earlier. It is known with the result.
        """
        self.catches_up = catches_up
        """Whether ``more`` in the result says that due work is left, which the client then does in the background."""

    def answer(self, result: T, since: float) -> None:
        """Pass the result to the caller, or to ``orphaned``."""
        self.since = since
        if not self.future.done():
            self.future.set_result(result)
        elif self.orphaned is not None:
            self.orphaned(result)


class CallLane(Lane[CallJob[Any], Any]):
    """Calls that are not shared, one after the other."""

    notes_time: ClassVar[bool] = True

    def __init__(self, link: PartitionClient, letter: str) -> None:
        self.letter = letter  # type: ignore[misc]  # one class for all kinds
        super().__init__(link)

    def share(self, jobs: Jobs[CallJob[Any]], *, ordered: bool) -> int:
        """Return 1, because calls are not shared."""
        del jobs, ordered
        return 1

    def request(self, partition: Partition, call_id: CallId, jobs: Jobs[CallJob[Any]]) -> Request[Any]:
        """Return the call that the job makes."""
        return jobs.what[0].make(partition, call_id)

    def answer(self, jobs: Jobs[CallJob[Any]], result: Any, since: float) -> None:
        """Answer the job."""
        job = jobs.what[0]
        job.answer(result, since)
        if job.catches_up and getattr(result, "more", False):
            self.link.catch_up()


class GrantLane(Lane[GrantRide, Granted]):
    """Grants of the receivers of a client. Their calls need no number, because each grant has one."""

    letter: ClassVar[str] = "k"
    notes_time: ClassVar[bool] = True

    def share(self, jobs: Jobs[GrantRide], *, ordered: bool) -> int:
        """Return how many jobs one call takes: each receiver once, and as many messages as a call gives out."""
        del ordered
        receivers, wanted = set[tuple[str, str]](), 0
        for place, ride in enumerate(jobs.what[:MAXIMUM_GRANTS]):
            receiver, grant = (ride.sent.receiver, ride.sent.source), ride.sent.grant
            wanted += grant.limit - grant.seen.messages
            if place and (wanted > MAXIMUM_CALL_MESSAGES or receiver in receivers):
                return place
            receivers.add(receiver)
        return MAXIMUM_GRANTS

    def request(self, partition: Partition, call_id: CallId, jobs: Jobs[GrantRide]) -> Request[Granted]:
        """Return one call for all jobs."""
        return partition.grant(list(map(_SENT, jobs.what)), CallId("", 0, call_id.now))

    def answer(self, jobs: Jobs[GrantRide], result: Granted, since: float) -> None:
        """Give each receiver its answer, at once. The futures are for errors, so they get no results."""
        for ride, reply in zip(jobs.what, result.credits, strict=True):
            ride.rider.answered(ride, reply, since)
        if result.more:
            self.link.catch_up()


class TransactionJob(Job, ABC):
    """A transaction to commit. Its future has the result."""

    def __init__(self, deadline: float, messages: int, size: int, links: frozenset[PartitionClient]) -> None:
        super().__init__(deadline)
        self.size = size
        self.messages = messages
        """The number of messages, session states, keys and watermarks."""
        self.links = links
        """The partitions that take part."""

    @abstractmethod
    def operations(self, now: int | None) -> tuple[list[Operation], float]:
        """Return the operations, and the work of their copies in subscriptions. ``now`` is the time of a test clock.

        Raises an error if the transaction cannot be carried out.
        """

    def frees(self, now: int | None) -> bool:
        """Return whether the transaction takes in no data."""
        try:
            return frees(self.operations(now)[0])
        except ServiceBusError:
            return False

    def count_riders(self, link: PartitionClient, riders: dict[GrantRider, int]) -> None:
        """Add to the numbers of messages that the transaction settles for each receiver at this partition."""

    @abstractmethod
    def happened(self, result: Transacted) -> None:
        """Note that the transaction has happened, even if no caller waits for it any more."""

    @abstractmethod
    def ended(self) -> None:
        """Clean up at the end of the job, with any outcome. The method is called once."""


class TransactionLane(Lane[TransactionJob, TransactedTogether]):
    """Transactions that this partition takes part in, and of which it recognises the repetitions.

    Transactions that wait at the same time share a call. Each of them happens or is refused on its own.
    """

    letter: ClassVar[str] = "z"
    depth: ClassVar[int] = 2
    spans: ClassVar[bool] = True
    carries: ClassVar[bool] = True

    def share(self, jobs: Jobs[TransactionJob], *, ordered: bool) -> int:
        """Return how many jobs one call takes. The limits of a call keep it from holding the server for long."""
        del ordered
        links: set[PartitionClient] = set()
        messages = size = 0
        for place, job in enumerate(jobs.what[:MAXIMUM_TRANSACTIONS]):
            messages, size = messages + job.messages, size + job.size
            links |= job.links
            if place and (
                messages > MOST_MESSAGES_TOGETHER or size > MAXIMUM_CALL_BYTES or len(links) > MAXIMUM_PARTICIPANTS
            ):
                return place
        return MAXIMUM_TRANSACTIONS

    def sizes(self, jobs: Jobs[TransactionJob]) -> Sequence[int]:
        """Return the bytes of each transaction."""
        return [job.size for job in jobs.what]

    def request(self, partition: Partition, call_id: CallId, jobs: Jobs[TransactionJob]) -> Request[TransactedTogether]:
        """Return one call for all jobs. If one of several jobs cannot be carried out, the lane splits the call."""
        del partition
        transactions: list[list[Operation]] = []
        work = 0.0
        for job in jobs.what:
            try:
                operations, more = job.operations(call_id.now)
            except ServiceBusError as error:
                if len(jobs) > 1:
                    raise _NotTogetherError from error
                raise
            transactions.append(operations)
            work += more
        if work > MOST_WORK and len(jobs) > 1:
            raise _NotTogetherError
        return transact_together(call_id, transactions)

    def riders(self, jobs: Jobs[TransactionJob]) -> Mapping[GrantRider, int]:
        """Return the receivers of the messages that are settled in this partition, which takes the grants."""
        riders: dict[GrantRider, int] = {}
        for job in jobs.what:
            job.count_riders(self.link, riders)
        return riders

    def at_limit(self, jobs: Jobs[TransactionJob]) -> Sequence[bool]:
        """Return which jobs take in no data."""
        return [job.frees(self.connection.clock.told()) for job in jobs.what]

    def answer(self, jobs: Jobs[TransactionJob], result: TransactedTogether, since: float) -> None:
        """Give each job the result or the refusal of its transaction, and end it."""
        del since
        for job, outcome in zip(jobs.what, result.outcomes, strict=True):
            if isinstance(outcome, Transacted):
                job.happened(outcome)
                if not job.future.done():
                    job.future.set_result(outcome)
            elif not job.future.done():
                job.future.set_exception(outcome)
        self.unanswered(jobs)
        if result.more:
            self.link.catch_up()

    def unanswered(self, jobs: Jobs[TransactionJob]) -> None:
        """End the jobs."""
        for job in jobs.what:
            job.ended()


class _NotTogetherError(Exception):
    """Several transactions cannot share a call, but each of them can have a call of its own."""


def _numbered(link: PartitionClient, name: str, number: int | None) -> str:
    number = link.base + number_of(name) if number is None else number
    return f"dead letter {number}" if is_dead(name) else f"message {number}"


def lock_lost(
    link: PartitionClient, name: str, session: str | None = None, *, number: int | None = None
) -> ServiceBusError:
    """Return the error for a lock that has ended: the lock on a message, or on its ``session``, whose name may not be
    known. ``number`` is the sequence number of a message that this client has received.
    """
    numbered = _numbered(link, name, number)
    error: ServiceBusError
    if session is None and (is_dead(name) or not link.entity.record.settings.sessions):
        error = MessageLockLostError(
            f"The lock on {numbered} has ended, or the message is gone. "
            "This call did not settle it. Receive it again, and renew its lock if handling takes longer than the lock.",
            outcome=Outcome.REFUSED,
        )
    else:
        what = f"the session of {numbered}" if session is None else f"the session {session!r}"
        gone = "the message" if session is None else f"its {numbered}"
        error = SessionLockLostError(
            f"The lock on {what} has ended, or {gone} is gone. This call did not settle it. "
            "Accept the session again, and renew its lock if handling takes longer than the lock.",
            outcome=Outcome.REFUSED,
        )
    error.entity = link.entity.name
    return error


def _dead_already(link: PartitionClient, name: str, number: int | None) -> ServiceBusError:
    error = MessageNotFoundError(
        f"The {_numbered(link, name, number)} is on the dead-letter queue already, and stays locked. "
        "Complete it, abandon it or defer it.",
        outcome=Outcome.REFUSED,
    )
    error.entity = link.entity.name
    return error
