# pyright: reportPrivateUsage=false
"""The kinds of lanes: sending, settling in its several ways, and renewing."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from sbredis.aio.calls._job import Job
from sbredis.aio.calls._lane import Lane
from sbredis.aio.calls._routing import facts_of
from sbredis.aio.telemetry._log_text import shortened
from sbredis.engine import (
    MAXIMUM_CALL_BYTES,
    MAXIMUM_CALL_MESSAGES,
    Lock,
    Outgoing,
    Partition,
    Renewed,
    Request,
    Sent,
    SettingsStaleError,
    Settled,
    Turn,
    decode,
    new_token,
)
from sbredis.exceptions import (
    MessageLockLostError,
    MessageNotFoundError,
    Outcome,
    ServiceBusError,
    SessionLockLostError,
)

if TYPE_CHECKING:
    from sbredis.aio.calls._partition_client import PartitionClient
    from sbredis.aio.calls._throttle import Throttle
    from sbredis.model import Lease, ServiceBusReceivedMessage
    from sbredis.rules import Facts

__all__ = [
    "CallJob",
    "CallLane",
    "Held",
    "RenewJob",
    "RenewLane",
    "SendJob",
    "SendLane",
    "SettleJob",
    "SettleLane",
    "Way",
    "lock_lost",
]

T = TypeVar("T")
_log = logging.getLogger("sbredis.client")
_SHOWN = 10
"""How many ids of messages the log shows at most."""
_STRETCH = 0.3
"""So long a call with messages that may go elsewhere tries to reach its partition."""


class SendJob(Job):
    """Messages that one caller sends: all of them, or none. Brings the sequence number of the first one."""

    __slots__ = ("facts", "messages", "movable", "ordered", "throttle", "widths")

    def __init__(
        self,
        messages: Sequence[Outgoing],
        size: int,
        deadline: float,
        throttle: Throttle,
        *,
        movable: bool,
        ordered: bool = False,
        facts: Sequence[Facts | None] = (),
    ) -> None:
        super().__init__(deadline, size)
        self.messages = messages
        self.facts = facts
        """What the rules of a topic see of each; ``None`` for one that is scheduled, and judged then."""
        self.widths: Sequence[int] = ()
        """How many numbers each of them takes, where that is not one each."""
        self.throttle = throttle
        self.movable = movable
        """It may be sent to any partition."""
        self.ordered = ordered
        """It must not overtake what was sent before it."""

    def numbers(self, first: int) -> list[int]:
        """The number of each, when that of the first one is known."""
        if not self.widths:
            return list(range(first, first + len(self.messages)))
        return list(accumulate(self.widths[:-1], initial=first))

    def ended(self) -> None:
        """Make room for others."""
        self.throttle.release(len(self.messages), self.size)


class SendLane(Lane[SendJob, Sent]):
    """Sends to one partition."""

    letter: ClassVar[str] = "s"
    depth: ClassVar[int] = 2

    def gather(self, queue: deque[SendJob], most: int, *, ordered: bool) -> list[SendJob]:
        """As many as one call takes, in the order in which they came."""
        jobs: list[SendJob] = []
        count = size = 0
        routing = self.partition_client.entity.routing
        largest = MAXIMUM_CALL_MESSAGES if routing is None else min(MAXIMUM_CALL_MESSAGES, routing.most)
        while queue and len(jobs) < most:
            job = queue[0]
            if job.future.done():
                queue.popleft().end()
                continue
            if job.ordered and not ordered:
                break
            count += len(job.messages)
            size += job.size
            if jobs and (count > largest or size > MAXIMUM_CALL_BYTES):
                break
            jobs.append(queue.popleft())
        return jobs

    def request(self, partition: Partition, turn: Turn, jobs: Sequence[SendJob]) -> Request[Sent]:
        """One send of all; to a topic, with what its rules make of each by now."""
        messages = [message for job in jobs for message in job.messages]
        entity = self.partition_client.entity
        routing = entity.routing
        if routing is None:
            if entity.record.kind == "topic":
                raise SettingsStaleError("It has become a topic, of which the rules are not known yet.")
            for job in jobs:
                job.widths = ()
            return partition.send(turn, messages)
        facts = [each for job in jobs for each in (job.facts or map(_facts, job.messages))]
        request, widths = routing.published(partition, self.partition_client.number, turn, messages, facts)
        at = 0
        for job in jobs:
            job.widths = widths[at : at + len(job.messages)]
            at += len(job.messages)
        return request

    def own_error(self, partition: Partition, job: SendJob) -> Exception | None:
        """What is wrong with a message itself."""
        try:
            partition._check_outgoing(job.messages)
        except (TypeError, ValueError) as error:
            return error
        return None

    def answer(self, jobs: Sequence[SendJob], result: Sent) -> None:
        """To each the number of its first message."""
        number = self.partition_client.entity.base(self.partition_client.number) + result.first
        for job in jobs:
            if not job.future.done():
                job.future.set_result(number)
            number += sum(job.widths) if job.widths else len(job.messages)
        self.partition_client.reached()
        if result.dropped:
            self._tell_of_dropped(jobs, result.dropped)
        connection = self.partition_client.entity.connection
        if connection.test_hooks is not None:
            messages = [message for job in jobs for message in job.messages]
            connection.test_hooks.sent(connection.target.namespace, self.partition_client.entity.name, messages)
        if result.more:
            self.partition_client.catch_up()

    def _tell_of_dropped(self, jobs: Sequence[SendJob], dropped: int) -> None:
        """Log and count duplicates. The partition says how many it has dropped, and not which."""
        entity = self.partition_client.entity
        known = [message.message_id for job in jobs for message in job.messages if message.message_id]
        ids = [shortened(message_id.decode(errors="replace")) for message_id in known]
        few = ", ".join(ids[:_SHOWN]) + (", …" if len(ids) > _SHOWN else "")
        if dropped == len(ids):
            which = f"message ids {few}" if dropped > 1 else f"message id {few}"
        else:
            which = f"they are among the {len(ids)} messages of one call, with the ids {few}"
        _log.info(
            "%s: %d duplicate%s dropped, because duplicate detection had seen the id before: %s",
            entity.name,
            dropped,
            " was" if dropped == 1 else "s were",
            which,
        )
        if entity.connection.count_dropped is not None:
            entity.connection.count_dropped(entity.name, dropped)

    def patience(self, jobs: Sequence[SendJob], seconds: float) -> float:
        """What can go elsewhere does not wait for long; nor do the first who cannot reach the partition, because others
        wait behind them who can. Where the user has limited the repetitions, nothing goes elsewhere: that is one too.
        """
        entity = self.partition_client.entity
        if (
            not entity.partitioned
            or self._is_limited
            or (self.partition_client.down_until and not any(job.movable for job in jobs))
        ):
            return seconds
        return min(seconds, max(_STRETCH, 3 * entity.connection.retry.first))

    @property
    def _is_limited(self) -> bool:
        return self.partition_client.entity.connection.retry.repetitions is not None

    def unreachable(self) -> None:
        """Send nothing here for a while that may be sent to any partition, and move what waits for the next call."""
        if self.partition_client.entity.partitioned:
            self.partition_client.missed()
            waiting = list(self._queue)
            self._queue.clear()
            self._queue.extend(self.move(waiting))

    def move(self, jobs: list[SendJob]) -> list[SendJob]:
        """Move jobs to partitions that can be reached; return those that must stay."""
        if not self.partition_client.entity.partitioned or self._is_limited:
            return jobs
        return [job for job in jobs if not (job.movable and self._moved(job))]

    def _moved(self, job: SendJob) -> bool:
        partition_client = self.partition_client.entity.next_partition_client()
        if partition_client.down_until:
            return False
        _ = partition_client.sending.submit(job)  # its caller has the future already
        return True


def _facts(message: Outgoing) -> Facts:
    """What rules see of one that was meant for a queue."""
    return facts_of(decode(message.payload))


class SettleJob(Job):
    """A message that is to be settled."""

    __slots__ = ("lock", "message", "session")

    def __init__(
        self, lock: Lock, deadline: float, message: ServiceBusReceivedMessage | None, session: str | None = None
    ) -> None:
        super().__init__(deadline, len(lock.changes))
        self.lock = lock
        self.message = message
        self.session = message._lease.session if message is not None and message._lease is not None else session
        """Whose lock it is, if it is that of a session."""

    def ended(self) -> None:
        """What was not settled can be."""
        message = self.message
        if message is None:
            return
        if not self.done:
            message._settled = False
        elif message._watchers:
            message._let_go()


Way = Callable[[Partition, Turn, Sequence[Lock]], Request[Settled]]


class SettleLane(Lane[SettleJob, Settled]):
    """Settlements of one kind."""

    depth: ClassVar[int] = 2

    def __init__(self, partition_client: PartitionClient, letter: str, way: Way) -> None:
        self.letter = letter  # type: ignore[misc]  # one class for all kinds
        self._way = way
        super().__init__(partition_client)

    def gather(self, queue: deque[SettleJob], most: int, *, ordered: bool) -> list[SettleJob]:
        """As many as one call takes; of one message only once, since the answer goes by its name."""
        del ordered
        jobs: list[SettleJob] = []
        names: set[str] = set()
        size, most = 0, min(most, MAXIMUM_CALL_MESSAGES)
        while queue and len(jobs) < most:
            job = queue[0]
            if job.future.done():
                queue.popleft().end()
                continue
            size += job.size
            if job.lock.name in names or (jobs and size > MAXIMUM_CALL_BYTES):
                break
            names.add(job.lock.name)
            jobs.append(queue.popleft())
        return jobs

    def request(self, partition: Partition, turn: Turn, jobs: Sequence[SettleJob]) -> Request[Settled]:
        """One call for all."""
        return self._way(partition, turn, [job.lock for job in jobs])

    def answer(self, jobs: Sequence[SettleJob], result: Settled) -> None:
        """To each whether it was settled."""
        failed: dict[str, ServiceBusError] = {}
        if result.lost or result.unfit:
            lost = set(result.lost)
            failed = {
                job.lock.name: lock_lost(self.partition_client, job.lock.name, job.session)
                for job in jobs
                if job.lock.name in lost
            }
            failed |= {name: _unfit(self.partition_client, name) for name in result.unfit}
        for job in jobs:
            error = failed.get(job.lock.name) if failed else None
            if error is None:
                job.done = True  # also for who went away meanwhile
                if not job.future.done():
                    job.future.set_result(None)
            elif not job.future.done():
                job.future.set_exception(error)
        if result.more:
            self.partition_client.catch_up()


class Held(Protocol):
    """A message as far as its lock goes."""

    _name: str
    _lease: Lease | None


class RenewJob(Job):
    """A message whose lock is to begin anew."""

    __slots__ = ("alone", "gone", "lock", "message")

    def __init__(self, lock: Lock, deadline: float, message: Held, *, alone: bool = False) -> None:
        super().__init__(deadline)
        self.alone = alone
        """In a call of its own, after which it shares its lease with no other message, and never moves again."""
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when it is over, also if nobody waited for it any more."""
        self.lock = lock
        self.message = message

    def ended(self) -> None:
        """Who wants to settle the message knows under which token it is held now."""
        self.gone.set_result(None)


class RenewLane(Lane[RenewJob, Renewed]):
    """Renewals."""

    letter: ClassVar[str] = "r"

    def __init__(self, partition_client: PartitionClient) -> None:
        super().__init__(partition_client)
        self._token = ""
        self._last: dict[str, RenewJob] = {}

    def submit(self, job: RenewJob) -> asyncio.Future[Any]:
        """Queue a job, and remember it as the last one of its message."""
        name = job.lock.name
        self._last[name] = job
        job.gone.add_done_callback(lambda _: self._last.pop(name) if self._last.get(name) is job else None)
        return super().submit(job)

    def of(self, message: Held) -> asyncio.Future[None] | None:
        """The end of the last renewal of a message that is waiting or under way."""
        if not self._last:
            return None
        job = self._last.get(message._name)
        return None if job is None else job.gone

    def gather(self, queue: deque[RenewJob], most: int, *, ordered: bool) -> list[RenewJob]:
        """As many as one call takes, of one message only once."""
        del most, ordered
        jobs: list[RenewJob] = []
        names: set[str] = set()
        while queue and len(jobs) < MAXIMUM_CALL_MESSAGES:
            job = queue[0]
            if job.future.done():
                queue.popleft().end()
                continue
            if job.lock.name in names or (job.alone and jobs):
                break
            names.add(job.lock.name)
            jobs.append(queue.popleft())
            if job.alone:
                break
        return jobs

    def request(self, partition: Partition, turn: Turn, jobs: Sequence[RenewJob]) -> Request[Renewed]:
        """One call for all."""
        self._token = new_token()
        for job in jobs:
            if job.message._lease is not None:
                # The renewal before this one may have moved it.
                job.lock = job.lock._replace(token=job.message._lease.token)
        return partition.renew(turn, self._token, [job.lock for job in jobs])

    def answer(self, jobs: Sequence[RenewJob], result: Renewed) -> None:
        """To each when its lock ends now; those that moved have another lease from here on."""
        self.partition_client.renewed(jobs, result, self._token)
        lost = set(result.lost)
        for job in jobs:
            if job.future.done():
                continue
            if job.lock.name in lost:
                job.future.set_exception(lock_lost(self.partition_client, job.lock.name))
            else:
                job.future.set_result(None)
        if result.more:
            self.partition_client.catch_up()


class CallJob(Job, Generic[T]):
    """A call by itself. Brings its result."""

    __slots__ = ("make", "orphaned")

    def __init__(
        self,
        make: Callable[[Partition, Turn], Request[T]],
        deadline: float,
        orphaned: Callable[[T], None] | None = None,
    ) -> None:
        super().__init__(deadline)
        self.make = make
        self.orphaned = orphaned
        """What becomes of a result that nobody waits for any more."""


class CallLane(Lane[CallJob[Any], Any]):
    """Calls that are not shared, one after the other."""

    def __init__(self, partition_client: PartitionClient, letter: str) -> None:
        self.letter = letter  # type: ignore[misc]  # one class for all kinds
        super().__init__(partition_client)

    def gather(self, queue: deque[CallJob[Any]], most: int, *, ordered: bool) -> list[CallJob[Any]]:
        """One."""
        del most, ordered
        while queue:
            job = queue.popleft()
            if not job.future.done():
                return [job]
            job.end()
        return []

    def request(self, partition: Partition, turn: Turn, jobs: Sequence[CallJob[Any]]) -> Request[Any]:
        """What the job makes."""
        return jobs[0].make(partition, turn)

    def answer(self, jobs: Sequence[CallJob[Any]], result: Any) -> None:
        """The result, to whom it belongs."""
        job = jobs[0]
        if not job.future.done():
            job.future.set_result(result)
        elif job.orphaned is not None:
            job.orphaned(result)
        if getattr(result, "more", False):
            self.partition_client.catch_up()


def _sequence_number(partition_client: PartitionClient, name: str) -> str:
    number = partition_client.entity.base(partition_client.number) + int(name.removeprefix("d"))
    return f"dead letter {number}" if name.startswith("d") else f"message {number}"


def lock_lost(partition_client: PartitionClient, name: str, session: str | None = None) -> ServiceBusError:
    """The lock on a message has ended, or that on its ``session``."""
    error: ServiceBusError
    if session is None:
        error = MessageLockLostError(
            f"The lock on {_sequence_number(partition_client, name)} has ended, or the message is gone. "
            "It is not settled by this; receive it again, and renew the lock of what takes longer.",
            outcome=Outcome.REFUSED,
        )
    else:
        number = _sequence_number(partition_client, name)
        error = SessionLockLostError(
            f"The lock on the session {session!r} has ended, or its {number} is gone. It is not settled by this; "
            "accept the session again, and renew the lock of what takes longer.",
            outcome=Outcome.REFUSED,
        )
    error.entity = partition_client.entity.name
    return error


def _unfit(partition_client: PartitionClient, name: str) -> ServiceBusError:
    error = MessageNotFoundError(
        f"The {_sequence_number(partition_client, name)} is on the dead-letter queue already, and stays locked. "
        "Complete it, abandon it or defer it.",
        outcome=Outcome.REFUSED,
    )
    error.entity = partition_client.entity.name
    return error
