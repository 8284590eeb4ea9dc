"""The kinds of lanes other than the send lane: settlements, renewals, and calls that are not shared."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from sbredis.client._lane import Job, Lane
from sbredis.client._spreading import MOST_WORK
from sbredis.engine import (
    MAXIMUM_CALL_BYTES,
    MAXIMUM_CALL_MESSAGES,
    MAXIMUM_PARTICIPANTS,
    MAXIMUM_TRANSACTIONS,
    CallId,
    Lock,
    Operation,
    Partition,
    Renewed,
    Request,
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

if TYPE_CHECKING:
    from sbredis.client._partition_client import PartitionClient
    from sbredis.client._riding import GrantRider
    from sbredis.model import Hold, MessageLease

__all__ = [
    "CallJob",
    "CallLane",
    "RenewJob",
    "RenewLane",
    "Renewable",
    "SettleJob",
    "SettleLane",
    "SettleManyJob",
    "SettleMethod",
    "TransactionJob",
    "TransactionLane",
    "lock_lost",
    "note_renewal",
]

T = TypeVar("T")
MOST_MESSAGES_TOGETHER = 200
"""The largest number of messages, session states, keys and watermarks of several transactions that share a call."""


class SettleJob(Job):
    """A message to settle."""

    __slots__ = ("_session", "done", "hold", "locks")

    def __init__(self, lock: Lock, deadline: float, hold: Hold | None, session: str | None = None) -> None:
        # There is a settlement for each message, so all fields are set here, without a further call.
        self.deadline = deadline
        self.size = len(lock.changes)
        self.future = asyncio.get_running_loop().create_future()
        self.over = self.done = False
        self.locks: Sequence[Lock] = (lock,)
        self.hold = hold
        self._session = session

    def settled(self, link: PartitionClient, lost: Collection[str], unfit: Collection[str]) -> None:
        """Set the outcome: the messages of the call were settled, except those that are ``lost`` or ``unfit``."""
        future = self.future
        if (lost or unfit) and (error := self._error(link, lost, unfit)) is not None:
            if not future.done():
                future.set_exception(error)
        else:
            self.done = True  # the job is done even if no caller waits for it any more
            if not future.done():
                future.set_result(None)
        if not self.over:
            self.over = True
            self.ended()

    def _error(self, link: PartitionClient, lost: Collection[str], unfit: Collection[str]) -> ServiceBusError | None:
        """Return why the message was not settled; ``None`` if it was."""
        hold, name = self.hold, self.locks[0].name
        if name in lost:
            return lock_lost(link, name, self._session if hold is None else hold.session)
        return _dead_already(link, name) if name in unfit else None

    def ended(self) -> None:
        """Mark the message as not settled if the call did not settle it. So it can be settled later."""
        hold = self.hold
        if hold is None:
            return
        if not self.done:
            hold.settled = False
        elif hold.watchers:
            hold.let_go()

    def count_riders(self, riders: dict[GrantRider, int]) -> None:
        """Add to the numbers of messages that the call settles for each receiver."""
        hold = self.hold
        if hold is not None and (rider := hold.reception.rider) is not None:
            riders[rider] = riders.get(rider, 0) + 1


class SettleManyJob(Job):
    """Messages to settle together, each of them once. The future has the holds of those that were not settled.

    The job itself records which messages were settled, because the caller may not wait for it any more.
    """

    __slots__ = ("done", "holds", "locks")

    def __init__(self, holds: Sequence[Hold], deadline: float) -> None:
        super().__init__(deadline)
        self.done = False
        self.holds = holds
        self.locks: Sequence[Lock] = [hold.lock() for hold in holds if hold.lease is not None]

    def settled(self, link: PartitionClient, lost: Collection[str], unfit: Collection[str]) -> None:
        """Set the outcome: the messages of the call were settled, except those that are ``lost`` or ``unfit``."""
        del link
        self.done = True
        left: list[Hold] = []
        for hold in self.holds:
            hold.settled = hold.name not in lost and hold.name not in unfit
            if not hold.settled:
                left.append(hold)
            elif hold.watchers:
                hold.let_go()
        if not self.future.done():
            self.future.set_result(left)
        self.end()

    def ended(self) -> None:
        """Mark the messages as not settled if the call did not run. So they can be settled later."""
        if not self.done:
            for hold in self.holds:
                hold.settled = False

    def count_riders(self, riders: dict[GrantRider, int]) -> None:
        """Add to the numbers of messages that the call settles for each receiver."""
        reception, rider = None, None
        for hold in self.holds:
            if hold.reception is not reception:
                reception = hold.reception
                rider = reception.rider
            if rider is not None:
                riders[rider] = riders.get(rider, 0) + 1


SettleMethod = Callable[[Partition, CallId, Sequence[Lock]], Request[Settled]]


class SettleLane(Lane[SettleJob | SettleManyJob, Settled]):
    """Settlements of one kind. Their calls carry grants of the receivers whose messages they settle."""

    depth: ClassVar[int] = 2
    carries: ClassVar[bool] = True

    def __init__(self, link: PartitionClient, letter: str, method: SettleMethod) -> None:
        self.letter = letter  # type: ignore[misc]  # one class for all kinds
        self._method = method
        super().__init__(link)

    def gather(self, queue: deque[SettleJob | SettleManyJob], *, ordered: bool) -> list[SettleJob | SettleManyJob]:
        """Take the jobs for one call. A call contains each message only once, because the answer names messages."""
        del ordered
        jobs: list[SettleJob | SettleManyJob] = []
        locks: list[Lock] = []
        size = 0
        while queue:
            job = queue.popleft()
            if job.future.done():
                job.end()
                continue
            size += job.size
            locks += job.locks
            if jobs and (size > MAXIMUM_CALL_BYTES or len(locks) > MAXIMUM_CALL_MESSAGES):
                queue.appendleft(job)
                break
            jobs.append(job)
        if len({lock.name for lock in locks}) < len(locks):
            first = _up_to_a_second_time(jobs)
            queue.extendleft(reversed(jobs[first:]))
            del jobs[first:]
        return jobs

    def request(
        self, partition: Partition, call_id: CallId, jobs: Sequence[SettleJob | SettleManyJob]
    ) -> Request[Settled]:
        """Return one call for all jobs."""
        return self._method(partition, call_id, [lock for job in jobs for lock in job.locks])

    def riders(self, jobs: Sequence[SettleJob | SettleManyJob]) -> Mapping[GrantRider, int]:
        """Return the receivers of the messages, and how many messages of each are settled."""
        riders: dict[GrantRider, int] = {}
        for job in jobs:
            job.count_riders(riders)
        return riders

    def answer(self, jobs: Sequence[SettleJob | SettleManyJob], result: Settled) -> None:
        """Tell each job which messages were settled, and end it."""
        lost, unfit = set(result.lost), set(result.unfit)
        for job in jobs:
            job.settled(self.link, lost, unfit)
        if result.more:
            self.link.catch_up()


def _up_to_a_second_time(jobs: Sequence[SettleJob | SettleManyJob]) -> int:
    """Return how many of the first jobs have no message that an earlier job has."""
    names: set[str] = set()
    for place, job in enumerate(jobs):
        own = [lock.name for lock in job.locks]
        if place and not names.isdisjoint(own):
            return place
        names.update(own)
    return len(jobs)


class Renewable(Protocol):
    """The part of a message that the lock renewal uses."""

    name: str
    lease: MessageLease | None


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

    def gather(self, queue: deque[RenewJob], *, ordered: bool) -> list[RenewJob]:
        """Take the jobs for one call. A call contains each message only once."""
        del ordered
        jobs: list[RenewJob] = []
        names: set[str] = set()
        while queue and len(jobs) < MAXIMUM_CALL_MESSAGES:
            job = queue[0]
            if job.future.done():
                queue.popleft().end()
                continue
            if job.lock.name in names:
                break
            names.add(job.lock.name)
            jobs.append(queue.popleft())
        return jobs

    def request(self, partition: Partition, call_id: CallId, jobs: Sequence[RenewJob]) -> Request[Renewed]:
        """Return one call for all jobs."""
        return partition.renew(call_id, [job.lock for job in jobs])

    def answer(self, jobs: Sequence[RenewJob], result: Renewed) -> None:
        """Update the end of each lock, and end the jobs."""
        lost, apart = set(result.lost), set(result.apart)
        for job in jobs:
            name = job.lock.name
            if name not in lost and job.hold.lease is not None:
                note_renewal(job.hold, self.link.lease("", result.lock, job.since), apart=name in apart)
            if not job.future.done():
                if name in lost:
                    job.future.set_exception(lock_lost(self.link, name))
                else:
                    job.future.set_result(None)
            job.end()
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
        self.catches_up = catches_up
        """Whether ``more`` in the result says that due work is left, which the client then does in the background."""
        self.told: Callable[[], None] | None = None
        """A function that is called when the result arrives, one turn of the loop before a callback of the future."""


class CallLane(Lane[CallJob[Any], Any]):
    """Calls that are not shared, one after the other."""

    notes_time: ClassVar[bool] = True

    def __init__(self, link: PartitionClient, letter: str) -> None:
        self.letter = letter  # type: ignore[misc]  # one class for all kinds
        super().__init__(link)

    def gather(self, queue: deque[CallJob[Any]], *, ordered: bool) -> list[CallJob[Any]]:
        """Take one job."""
        del ordered
        while queue:
            job = queue.popleft()
            if not job.future.done():
                return [job]
            job.end()
        return []

    def request(self, partition: Partition, call_id: CallId, jobs: Sequence[CallJob[Any]]) -> Request[Any]:
        """Return the call that the job makes."""
        return jobs[0].make(partition, call_id)

    def answer(self, jobs: Sequence[CallJob[Any]], result: Any) -> None:
        """Pass the result to the caller, or to ``orphaned``, and end the job."""
        job = jobs[0]
        if not job.future.done():
            job.future.set_result(result)
            if job.told is not None:
                job.told()
        elif job.orphaned is not None:
            job.orphaned(result)
        job.end()
        if job.catches_up and getattr(result, "more", False):
            self.link.catch_up()


class TransactionJob(Job, ABC):
    """A transaction to commit. Its future has the result."""

    def __init__(self, deadline: float, messages: int, size: int, links: frozenset[PartitionClient]) -> None:
        super().__init__(deadline, size)
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


class TransactionLane(Lane[TransactionJob, TransactedTogether]):
    """Transactions that this partition takes part in, and of which it recognises the repetitions.

    Transactions that wait at the same time share a call. Each of them happens or is refused on its own.
    """

    letter: ClassVar[str] = "z"
    depth: ClassVar[int] = 2
    spans: ClassVar[bool] = True
    carries: ClassVar[bool] = True

    def gather(self, queue: deque[TransactionJob], *, ordered: bool) -> list[TransactionJob]:
        """Take the jobs for one call. The limits of a call keep it from holding the server for long."""
        del ordered
        jobs: list[TransactionJob] = []
        links: set[PartitionClient] = set()
        messages = size = 0
        while queue and len(jobs) < MAXIMUM_TRANSACTIONS:
            job = queue[0]
            if job.future.done():
                queue.popleft().end()
                continue
            messages, size = messages + job.messages, size + job.size
            links |= job.links
            if jobs and (
                messages > MOST_MESSAGES_TOGETHER or size > MAXIMUM_CALL_BYTES or len(links) > MAXIMUM_PARTICIPANTS
            ):
                break
            jobs.append(queue.popleft())
        return jobs

    def request(
        self, partition: Partition, call_id: CallId, jobs: Sequence[TransactionJob]
    ) -> Request[TransactedTogether]:
        """Return one call for all jobs. If one of several jobs cannot be carried out, the lane splits the call."""
        del partition
        transactions: list[list[Operation]] = []
        work = 0.0
        for job in jobs:
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

    def riders(self, jobs: Sequence[TransactionJob]) -> Mapping[GrantRider, int]:
        """Return the receivers of the messages that are settled in this partition, which takes the grants."""
        riders: dict[GrantRider, int] = {}
        for job in jobs:
            job.count_riders(self.link, riders)
        return riders

    def at_limit(self, jobs: list[TransactionJob]) -> list[TransactionJob]:
        """Return the jobs that take in no data."""
        return [job for job in jobs if job.frees(self.connection.clock.told())]

    def answer(self, jobs: Sequence[TransactionJob], result: TransactedTogether) -> None:
        """Give each job the result or the refusal of its transaction, and end it."""
        for job, outcome in zip(jobs, result.outcomes, strict=True):
            if isinstance(outcome, Transacted):
                job.happened(outcome)
                if not job.future.done():
                    job.future.set_result(outcome)
            elif not job.future.done():
                job.future.set_exception(outcome)
            job.end()
        if result.more:
            self.link.catch_up()


class _NotTogetherError(Exception):
    """Several transactions cannot share a call, but each of them can have a call of its own."""


def _sequence_number(link: PartitionClient, name: str) -> str:
    number = link.base + number_of(name)
    return f"dead letter {number}" if is_dead(name) else f"message {number}"


def lock_lost(link: PartitionClient, name: str, session: str | None = None) -> ServiceBusError:
    """Return the error for a lock that has ended: the lock on a message, or on its ``session``, whose name may not be
    known.
    """
    number = _sequence_number(link, name)
    error: ServiceBusError
    if session is None and (is_dead(name) or not link.entity.record.settings.sessions):
        error = MessageLockLostError(
            f"The lock on {number} has ended, or the message is gone. "
            "This call did not settle it. Receive it again, and renew its lock if handling takes longer than the lock.",
            outcome=Outcome.REFUSED,
        )
    else:
        what = f"the session of {number}" if session is None else f"the session {session!r}"
        gone = "the message" if session is None else f"its {number}"
        error = SessionLockLostError(
            f"The lock on {what} has ended, or {gone} is gone. This call did not settle it. "
            "Accept the session again, and renew its lock if handling takes longer than the lock.",
            outcome=Outcome.REFUSED,
        )
    error.entity = link.entity.name
    return error


def _dead_already(link: PartitionClient, name: str) -> ServiceBusError:
    error = MessageNotFoundError(
        f"The {_sequence_number(link, name)} is on the dead-letter queue already, and stays locked. "
        "Complete it, abandon it or defer it.",
        outcome=Outcome.REFUSED,
    )
    error.entity = link.entity.name
    return error
