"""Sends to one partition: the lane that joins the sends of all callers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, ClassVar, cast

from sbredis.client._lane import Jobs, Lane
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

__all__ = ["SendJob", "SendLane", "SendTerms"]

_log = logging.getLogger("sbredis.client")
_SHOWN = 10
"""The largest number of message ids that the log shows."""
_STRETCH = 0.3
"""The least number of seconds for which a call tries to reach its partition before movable messages are moved."""


@dataclass(frozen=True, slots=True, eq=False)
class SendTerms:
    """What is said about many sends: they share the terms."""

    throttle: Throttle
    movable: bool = False
    """Whether the messages may go to any partition."""
    ordered: bool = False
    """Whether the messages must not overtake earlier ones."""


class SendJob:
    """Messages that one caller sends, if they are not just the payload of a single message, as nearly all are.

    The partition accepts all of them or none.
    """

    __slots__ = ("facts", "messages", "size", "widths")

    def __init__(self, messages: Sequence[Outgoing], size: int) -> None:
        self.messages = messages
        self.size = size
        self.facts: Sequence[MessageView | None] = ()
        """The view of each message for a topic's rules; ``None`` for a message that is scheduled and judged later."""
        self.widths: Sequence[int] = ()
        """The count of sequence numbers that each message takes; empty if each takes one."""


class SendLane(Lane[bytes | SendJob, Sent]):
    """Sends to one partition. A job is the payload of a message that has nothing else, or a :class:`SendJob`.

    The result for a single message is its sequence number, and the result for several is the list of their numbers.
    """

    letter: ClassVar[str] = "s"
    depth: ClassVar[int] = 2

    def __init__(self, link: PartitionClient, elsewhere: Callable[[], SendLane]) -> None:
        """``elsewhere`` returns the lane for messages that may go to any partition."""
        super().__init__(link)
        self._elsewhere = elsewhere

    def share(self, jobs: Jobs[bytes | SendJob], *, ordered: bool) -> int:
        """Return how many of the first jobs one call takes."""
        most = len(jobs)
        if not ordered and any(terms.ordered for terms in set(jobs.terms)):
            most = [terms.ordered for terms in jobs.terms].index(True)
        routing = self.entity.routing
        largest = MAXIMUM_CALL_MESSAGES if routing is None else min(MAXIMUM_CALL_MESSAGES, routing.most)
        count, size = _measure(jobs.what)
        if count <= largest and size <= MAXIMUM_CALL_BYTES:
            return most
        count = size = 0
        for place, what in enumerate(jobs.what[:most]):
            more, bytes_more = _measure((what,))
            count, size = count + more, size + bytes_more
            if place and (count > largest or size > MAXIMUM_CALL_BYTES):
                return place
        return most

    def sizes(self, jobs: Jobs[bytes | SendJob]) -> Sequence[int]:
        """Return the bytes of each job."""
        return [_measure((what,))[1] for what in jobs.what]

    def request(self, partition: Partition, call_id: CallId, jobs: Jobs[bytes | SendJob]) -> Request[Sent]:
        """Return one call that sends all messages. For a topic, it sends the copies that the current rules make."""
        entity = self.entity
        routing = entity.routing
        if routing is None:
            if entity.record.kind == "topic":
                raise SettingsStaleError("The entity is a topic now, and this client has not read its rules yet.")
            if set(map(type, jobs.what)) == {bytes}:
                return partition.send_payloads(call_id, cast("Sequence[bytes]", jobs.what))
            for what in jobs.what:
                if isinstance(what, SendJob):
                    what.widths = ()
            return partition.send(call_id, _messages(jobs.what))
        listed = [SendJob((Outgoing(what),), len(what)) if isinstance(what, bytes) else what for what in jobs.what]
        messages = _messages(listed)
        facts = [each for job in listed for each in (job.facts or map(_facts, job.messages))]
        divisible = len(jobs) > 1
        made = routing.published(partition, self.link.number, call_id, messages, facts, divisible=divisible)
        at = 0
        for job in listed:
            job.widths = made.widths[at : at + len(job.messages)]
            at += len(job.messages)
        jobs.what[:] = listed
        return made.request

    def own_error(self, partition: Partition, what: bytes | SendJob) -> Exception | None:
        """Return the error in a message itself, if there is one."""
        try:
            partition.check_outgoing(_messages((what,)))
        except (TypeError, ValueError) as error:
            return error
        return None

    def answer(self, jobs: Jobs[bytes | SendJob], result: Sent, since: float) -> None:
        """Give each caller the numbers of its messages. Spread messages first if no other client does."""
        if result.scheduled and self._some_wait(jobs, result):
            taken = jobs.take(len(jobs))
            if not self.connection.start(self._answer_when_spread(taken, result)):
                self.answer(taken, result._replace(scheduled=()), since)
            return
        link = self.link
        number = self.entity.base(link.number) + result.first
        for what, future in zip(jobs.what, jobs.futures, strict=True):
            numbers: int | list[int]
            if isinstance(what, bytes):
                numbers = number
                number += 1
            else:
                widths, count = what.widths, len(what.messages)
                following = accumulate(widths[:-1], initial=number) if widths else range(number, number + count)
                number += sum(widths) if widths else count
                numbers = list(following)
                numbers = numbers[0] if len(numbers) == 1 else numbers
            if not future.done():
                future.set_result(numbers)
        if link.down_until:
            link.reached()
        if result.dropped:
            self._tell_of_dropped(_messages(jobs.what), result.dropped)
        hooks = self.connection.test_hooks
        if hooks is not None:
            hooks.sent(self.connection.target.namespace, self.entity.name, _messages(jobs.what))
        if result.more:
            link.catch_up()
        self.unanswered(jobs)

    def _some_wait(self, jobs: Jobs[bytes | SendJob], result: Sent) -> bool:
        """Return whether messages of these jobs wait to be spread, and not because they are for a later time."""
        widths = [width for what in jobs.what if isinstance(what, SendJob) for width in what.widths]
        return some_wait(_messages(jobs.what), widths, result.first, result.scheduled, self.connection.clock.utc())

    async def _answer_when_spread(self, jobs: Jobs[bytes | SendJob], result: Sent) -> None:
        try:
            until = max(jobs.deadlines)
            await self.connection.observer.spread(self.connection, self.entity, self.link.number, until)
        finally:
            self.answer(jobs, result._replace(scheduled=()), 0.0)  # the messages are stored in any case

    def unanswered(self, jobs: Jobs[bytes | SendJob]) -> None:
        """Return the allowances of the throttles."""
        kinds = set(jobs.terms)
        for terms in kinds:
            own = jobs.what
            if len(kinds) > 1:
                own = [what for what, its in zip(jobs.what, jobs.terms, strict=True) if its is terms]
            terms.throttle.release(*_measure(own))

    def _tell_of_dropped(self, messages: Sequence[Outgoing], dropped: int) -> None:
        """Log and count the dropped duplicates. The partition reports their number, but not the messages."""
        entity = self.entity
        known = [message.message_id for message in messages if message.message_id]
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

    def patience(self, jobs: Jobs[bytes | SendJob], seconds: float) -> float:
        """Limit the ``seconds`` for a call that need not wait for an unreachable partition.

        Movable messages wait only a short time. The first jobs that cannot reach a partition also wait only a short
        time, because movable messages may be queued after them. If the user has limited the repetitions, nothing is
        moved, because a move would be a repetition too.
        """
        entity = self.entity
        if (
            not entity.partitioned
            or self._is_limited
            or (self.link.down_until and not any(terms.movable for terms in jobs.terms))
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
            waiting = self.gathering.take(len(self.gathering))
            self.move(waiting)
            self.gathering.put_back(waiting)

    def move(self, jobs: Jobs[bytes | SendJob]) -> bool:
        """Move jobs to partitions that can be reached. Return whether there were any."""
        if not self.entity.partitioned or self._is_limited:
            return False
        moved: list[bool] = []
        for what, future, deadline, terms in jobs:
            lane = self._elsewhere() if terms.movable else self
            moved.append(lane is not self and not lane.link.down_until)
            if moved[-1]:
                _ = lane.add(what, future, deadline, terms)
        _ = jobs.split_off(moved)
        return True in moved


def _measure(listed: Sequence[bytes | SendJob]) -> tuple[int, int]:
    """Return how many messages these are, and how many bytes."""
    if set(map(type, listed)) == {bytes}:
        return len(listed), sum(map(len, cast("Sequence[bytes]", listed)))
    count = sum([1 if isinstance(what, bytes) else len(what.messages) for what in listed])
    return count, sum([len(what) if isinstance(what, bytes) else what.size for what in listed])


def _messages(listed: Sequence[bytes | SendJob]) -> list[Outgoing]:
    """Return all messages. Calls of nothing but payloads do not need them."""
    found: list[Outgoing] = []
    for what in listed:
        found += (Outgoing(what),) if isinstance(what, bytes) else what.messages
    return found


def _facts(message: Outgoing) -> MessageView:
    """Return the view that the rules judge, for a message that was prepared for a queue."""
    return facts_of(decode(message.payload))
