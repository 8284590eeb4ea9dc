"""Sends to one partition: the job of one caller, and the lane that joins the jobs of all callers."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, ClassVar

from sbredis.client._lane import Job, Lane
from sbredis.client._routing import facts_of, some_wait
from sbredis.engine import (
    MAXIMUM_CALL_BYTES,
    MAXIMUM_CALL_MESSAGES,
    CallId,
    Outgoing,
    Partition,
    Request,
    Sent,
    SettingsStaleError,
    decode,
)
from sbredis.telemetry._log_text import shortened

if TYPE_CHECKING:
    from sbredis.client._partition_client import PartitionClient
    from sbredis.client._throttle import Throttle
    from sbredis.rules import MessageView

__all__ = ["SendJob", "SendLane"]

_log = logging.getLogger("sbredis.client")
_SHOWN = 10
"""The largest number of message ids that the log shows."""
_STRETCH = 0.3
"""The least number of seconds for which a call tries to reach its partition before movable messages are moved."""


class SendJob(Job):
    """Messages that one caller sends.

    The partition accepts all of them or none. The result is the sequence number of the first message.
    """

    __slots__ = ("count", "facts", "made", "movable", "ordered", "throttle", "widths")

    def __init__(  # noqa: PLR0917 -- the message and its place, passed on
        self,
        loop: asyncio.AbstractEventLoop,
        made: Sequence[Outgoing] | bytes,
        size: int,
        deadline: float,
        throttle: Throttle,
        movable: bool,
        ordered: bool,
    ) -> None:
        """``loop`` is the event loop of the caller. It is not looked up here, because that is a call to the system."""
        # There is a send for each message, so all fields are set here, without a further call.
        self.deadline = deadline
        self.size = size
        self.future = loop.create_future()
        self.over = False
        self.made = made
        """The messages; or the payload of a single message that has nothing else, as nearly all have."""
        self.count = 1 if isinstance(made, bytes) else len(made)
        """The number of messages."""
        self.facts: Sequence[MessageView | None] = ()
        """The view of each message for a topic's rules; ``None`` for a message that is scheduled and judged later."""
        self.throttle = throttle
        self.movable = movable
        """Whether the messages may go to any partition."""
        self.ordered = ordered
        """Whether the messages must not overtake earlier ones."""
        self.widths: Sequence[int] = ()
        """The count of sequence numbers that each message takes; empty if each takes one."""

    @property
    def messages(self) -> Sequence[Outgoing]:
        """The messages. Calls of nothing but payloads do not need them."""
        return (Outgoing(self.made),) if isinstance(self.made, bytes) else self.made

    def numbers(self, first: int) -> list[int]:
        """Return the sequence numbers of all messages. ``first`` is the number of the first message."""
        if not self.widths:
            return list(range(first, first + self.count))
        return list(accumulate(self.widths[:-1], initial=first))

    def ended(self) -> None:
        """Return the allowance of the throttle."""
        self.throttle.release(self.count, self.size)


class SendLane(Lane[SendJob, Sent]):
    """Sends to one partition."""

    letter: ClassVar[str] = "s"
    depth: ClassVar[int] = 2

    def __init__(self, link: PartitionClient, elsewhere: Callable[[], SendLane]) -> None:
        """``elsewhere`` returns the lane for messages that may go to any partition."""
        super().__init__(link)
        self._elsewhere = elsewhere

    def gather(self, queue: deque[SendJob], *, ordered: bool) -> list[SendJob]:
        """Take as many jobs as one call may contain, in the order in which they came."""
        jobs: list[SendJob] = []
        count = size = 0
        routing = self.entity.routing
        largest = MAXIMUM_CALL_MESSAGES if routing is None else min(MAXIMUM_CALL_MESSAGES, routing.most)
        while queue:
            job = queue.popleft()
            if job.future.done():
                job.end()
                continue
            count += job.count
            size += job.size
            if ((count > largest or size > MAXIMUM_CALL_BYTES) and jobs) or (job.ordered and not ordered):
                queue.appendleft(job)
                break
            jobs.append(job)
        return jobs

    def request(self, partition: Partition, call_id: CallId, jobs: Sequence[SendJob]) -> Request[Sent]:
        """Return one call that sends all messages. For a topic, it sends the copies that the current rules make."""
        entity = self.entity
        routing = entity.routing
        if routing is None:
            if entity.record.kind == "topic":
                raise SettingsStaleError("The entity is a topic now, and this client has not read its rules yet.")
            for job in jobs:
                job.widths = ()
            payloads = [job.made for job in jobs if isinstance(job.made, bytes)]
            if len(payloads) == len(jobs):
                return partition.send_payloads(call_id, payloads)
            return partition.send(call_id, [message for job in jobs for message in job.messages])
        messages = [message for job in jobs for message in job.messages]
        facts = [each for job in jobs for each in (job.facts or map(_facts, job.messages))]
        divisible = len(jobs) > 1
        made = routing.published(partition, self.link.number, call_id, messages, facts, divisible=divisible)
        at = 0
        for job in jobs:
            job.widths = made.widths[at : at + job.count]
            at += job.count
        return made.request

    def own_error(self, partition: Partition, job: SendJob) -> Exception | None:
        """Return the error in a message itself, if there is one."""
        try:
            partition.check_outgoing(job.messages)
        except (TypeError, ValueError) as error:
            return error
        return None

    def answer(self, jobs: Sequence[SendJob], result: Sent) -> None:
        """Give each job the number of its first message, and end it. Spread messages first if no other client does."""
        messages = [message for job in jobs for message in job.messages] if result.scheduled else []
        widths = [width for job in jobs for width in job.widths]
        if messages and some_wait(messages, widths, result.first, result.scheduled):
            self.connection.start(self._answer_when_spread(list(jobs), result))
        else:
            self._answer(jobs, result)

    async def _answer_when_spread(self, jobs: Sequence[SendJob], result: Sent) -> None:
        try:
            await self.connection.observer.spread(self.connection, self.entity, self.link.number)
        finally:
            self._answer(jobs, result)  # the messages are stored in any case

    def _answer(self, jobs: Sequence[SendJob], result: Sent) -> None:
        number = self.link.base + result.first
        throttle, released, size = jobs[0].throttle, 0, 0
        for job in jobs:
            future, count = job.future, job.count
            if not future.done():
                future.set_result(number)
            number += sum(job.widths) if job.widths else count
            # The allowances of a throttle are returned together.
            job.over = True
            if job.throttle is not throttle:
                throttle.release(released, size)
                throttle, released, size = job.throttle, 0, 0
            released += count
            size += job.size
        throttle.release(released, size)
        self.link.reached()
        if result.dropped:
            self._tell_of_dropped(jobs, result.dropped)
        hooks = self.connection.test_hooks
        if hooks is not None:
            messages = [message for job in jobs for message in job.messages]
            hooks.sent(self.connection.target.namespace, self.entity.name, messages)
        if result.more:
            self.link.catch_up()

    def _tell_of_dropped(self, jobs: Sequence[SendJob], dropped: int) -> None:
        """Log and count the dropped duplicates. The partition reports their number, but not the messages."""
        entity = self.entity
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
        self.connection.observer.dropped_duplicates(entity.name, dropped)

    def patience(self, jobs: Sequence[SendJob], seconds: float) -> float:
        """Limit the ``seconds`` for a call that need not wait for an unreachable partition.

        Movable messages wait only a short time. The first jobs that cannot reach a partition also wait only a short
        time, because movable messages may be queued after them. If the user has limited the repetitions, nothing is
        moved, because a move would be a repetition too.
        """
        entity = self.entity
        if (
            not entity.partitioned
            or self._is_limited
            or (self.link.down_until and not any(job.movable for job in jobs))
        ):
            return seconds
        return min(seconds, max(_STRETCH, 3 * self.connection.retry.first))

    @property
    def _is_limited(self) -> bool:
        return self.connection.retry.repetitions is not None

    def unreachable(self) -> None:
        """For a while, send no movable messages to this partition. Move those that wait for the next call."""
        if self.entity.partitioned:
            self.link.missed()
            waiting = list(self.gathering)
            self.gathering.clear()
            self.gathering.extend(self.move(waiting))

    def move(self, jobs: list[SendJob]) -> list[SendJob]:
        """Move jobs to partitions that can be reached. Return the jobs that must stay."""
        if not self.entity.partitioned or self._is_limited:
            return jobs
        return [job for job in jobs if not (job.movable and self._moved(job))]

    def _moved(self, job: SendJob) -> bool:
        lane = self._elsewhere()
        if lane.link.down_until:
            return False
        _ = lane.submit(job)  # the result is not needed, because the caller has the job's future
        return True


def _facts(message: Outgoing) -> MessageView:
    """Return the view that the rules judge, for a message that was prepared for a queue."""
    return facts_of(decode(message.payload))
