"""Redrive dead letters: check the arguments, claim the dead-letter queue, and move the messages.

One run goes through a dead-letter queue. It chooses messages, moves them at a rate, and watches a budget. Only one run
at a time goes through a queue, because it has the *claim* to the queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sbredis._quoting import quoted
from sbredis._tasks import to_the_end
from sbredis.client import OWN, Role
from sbredis.engine import (
    MAXIMUM_CALL_MESSAGES,
    MAXIMUM_CHANGES_BYTES,
    Changes,
    SidePrefix,
    encode_changes,
    payload_offset,
)
from sbredis.exceptions import (
    MessageNotFoundError,
    MessageSizeExceededError,
    Outcome,
    RedriveInProgressError,
    ServiceBusError,
)
from sbredis.model import (
    PrimitiveTypes,
    RedriveBudget,
    RedriveResult,
    RuleFilter,
    ServiceBusReceivedMessage,
    hold_of,
)
from sbredis.moving._choosing import Condition, condition_of
from sbredis.moving._chosen import ChosenMover, finding
from sbredis.moving._redrive_limits import (
    DeadLetterCounts,
    PartitionBounds,
    Portions,
    RedrivePace,
    Relapses,
    cursor_text,
    read_cursor,
)
from sbredis.moving._redrive_ways import Back, Elsewhere, Way
from sbredis.moving._sides import ANY, MOVABLE, DeadLetters, key_of, own_number
from sbredis.receiving import require_modification

if TYPE_CHECKING:
    from sbredis.client import Connection, Entity

__all__ = ["RedriveArguments", "Redriver"]

_HIGHEST = (1 << 48) - 1
_SOONEST, _LATEST = 0.02, 1.0
"""The shortest and the longest pause between two checks of the messages of a portion, in seconds."""


@dataclass(slots=True, kw_only=True)
class RedriveArguments:
    """The arguments of a redrive, checked before anything is sent."""

    to: str | None
    """The queue or topic to move the messages to; ``None`` to move them back."""
    sequence_numbers: Sequence[int] | None
    reason: str | None
    matching: str | RuleFilter | None
    modify: Mapping[str, PrimitiveTypes] | None
    rate: float | None
    budget: RedriveBudget | None
    cursor: str | None
    dry_run: bool
    timeout: float | None
    progress: Callable[[int], object]
    """Is called again and again with the number of messages that were moved, or in a dry run counted."""

    def check(self) -> Condition:
        """Raise for arguments that are wrong. Return the function that chooses the messages."""
        if self.rate is not None:
            if isinstance(self.rate, bool) or not isinstance(self.rate, (int, float)):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
                raise TypeError(f"rate must be a number of messages a second, not {type(self.rate).__name__}")
            if not self.rate > 0:
                raise ValueError(f"rate must be greater than 0, not {quoted(self.rate)}")
        if self.budget is not None and not isinstance(self.budget, RedriveBudget):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
            raise TypeError(f"budget must be a RedriveBudget, not {type(self.budget).__name__}")
        if self.reason is not None and not isinstance(self.reason, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
            raise TypeError(f"reason must be text, not {type(self.reason).__name__}")
        if self.cursor is not None and not isinstance(self.cursor, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
            raise TypeError(f"cursor must be the text of an earlier redrive, not {type(self.cursor).__name__}")
        require_modification(self.modify)
        size = len(encode_changes(Changes(dict(self.modify)))) if self.modify is not None else 0
        if size > MAXIMUM_CHANGES_BYTES:
            raise MessageSizeExceededError(
                f"properties_to_modify have {size} bytes. At most {MAXIMUM_CHANGES_BYTES} bytes are allowed.",
                outcome=Outcome.NEVER_SENT,
            )
        matches = None if self.matching is None else condition_of(self.matching)
        reason = self.reason

        def chosen(message: ServiceBusReceivedMessage) -> bool:
            if reason is not None and message.dead_letter_reason != reason:
                return False
            return matches is None or matches(message)

        return chosen


class Redriver:
    """Redrives the dead letters of one receiver. ``side`` is the sub-queue of the receiver.

    ``goes_on`` is called again and again with the number of moved messages. If it returns false, the redrive stops.
    """

    def __init__(self, connection: Connection, side: SidePrefix, goes_on: Callable[[int], bool]) -> None:
        self._connection = connection
        self._side: SidePrefix = side
        self._goes_on = goes_on

    def check(self, arguments: RedriveArguments) -> Condition:
        """Raise for arguments that are wrong. Return the function that chooses the messages."""
        chosen = arguments.check()
        if self._side == "":
            raise ValueError(
                "Messages are redriven from a dead-letter queue: make the receiver with sub_queue='deadletter'."
            )
        return chosen

    async def redrive(self, entity: Entity, arguments: RedriveArguments, chosen: Condition) -> RedriveResult:
        """Carry out a redrive whose arguments were checked."""
        timeout, modify = arguments.timeout, arguments.modify
        letters = DeadLetters(entity, self._side, timeout)
        find = finding(self._connection, timeout)
        way: Way
        if arguments.to is None:
            way = Back(letters, modify, find)
        else:
            other = self._other(arguments.to, entity, await find(arguments.to))
            way = Elsewhere(ChosenMover(letters, other, find, modify))
        if arguments.budget is not None:
            _require_watchable(way.watched)
        run = _RedriveRun(letters, arguments, chosen, way, self._goes_on)
        if arguments.dry_run:
            return await run.count()
        claim = _RedriveClaim(letters)
        try:
            await claim.keep()
            return await run.run(claim)
        finally:
            await to_the_end(claim.give_up())

    def _other(self, to: str, entity: Entity, found: Entity) -> Entity:
        """Return the entity with the name ``to``. Raise if dead letters cannot be moved to it."""
        if found.record.id != entity.record.id:
            return found
        if self._side == "t":
            raise ValueError(f"{quoted(to)} is the entity through which these messages were sent: name another one.")
        raise ValueError(f"{quoted(to)} is the entity of these dead letters: leave out `to`.")


def _require_watchable(letters: DeadLetters) -> None:
    """Raise if a redrive could not see messages that have died again."""
    record, why = letters.entity.record, None
    if letters.side == "t":
        return
    if record.kind == "topic":
        why = "is a topic, and messages die in its subscriptions"
    elif record.settings.forwards:
        why = "forwards its messages, so they die elsewhere"
    elif record.settings.forwards_dead:
        why = "forwards its dead letters, so they may be gone before the redrive sees them"
    if why is not None:
        raise ValueError(f"A budget cannot be judged: {quoted(record.name)} {why}. Leave out the budget.")


class _RedriveRun:
    """One run through a dead-letter queue, partition by partition, in the order of the numbers."""

    def __init__(
        self,
        letters: DeadLetters,
        arguments: RedriveArguments,
        chosen: Condition,
        way: Way,
        goes_on: Callable[[int], bool],
    ) -> None:
        self._letters = letters
        self._entity = letters.entity
        self._arguments = arguments
        self._chosen = chosen
        self._way = way
        self._goes_on = goes_on
        self._loop = asyncio.get_running_loop()
        self._pace = RedrivePace(arguments.rate, MAXIMUM_CALL_MESSAGES)
        budget = arguments.budget
        self._relapses = None if budget is None else Relapses(budget)
        by_portions = budget is not None and arguments.rate is None
        self._portions = Portions(budget.minimum, MAXIMUM_CALL_MESSAGES) if budget is not None and by_portions else None
        self._counts = DeadLetterCounts()
        self._moved = 0
        self._skipped = 0
        self._bounds: dict[int, PartitionBounds] = {}
        self._watched: dict[int, int] = {}
        """For each partition, the next number at which to look for messages that have died again."""
        self._named: dict[int, list[ServiceBusReceivedMessage]] | None = None
        """The messages that the caller has named, by their partitions."""

    @property
    def _origin(self) -> str:
        """A text that cursors of other dead-letter queues do not have."""
        return self._entity.record.incarnation + ("/t" if self._letters.side == "t" else "")

    # -- the runs ------------------------------------------------------------------------------------------------------

    async def count(self) -> RedriveResult:
        """Count the messages, and change nothing."""
        given = self._given_bounds() or {number: PartitionBounds(0, _HIGHEST) for number in self._entity.numbers}
        await self._find_named(given)
        for number, bound in given.items():
            self._bounds[number] = PartitionBounds(bound.start, max(bound.start - 1, 0))
            async for messages in self._messages(number, PartitionBounds(bound.start, bound.last)):
                for message in messages:
                    self._add(message)
                self._arguments.progress(self._counts.matched)
        return self._result(completed=True, because="It was a dry run: no message was moved.")

    async def run(self, claim: _RedriveClaim) -> RedriveResult:
        """Move the messages, until all are moved or too many have died again."""
        given = self._given_bounds()
        self._bounds = given or {
            number: PartitionBounds(0, last) for number, last in (await self._letters.lasts()).items()
        }
        await self._find_named(self._bounds)
        if self._relapses is not None:
            self._watched = {number: last + 1 for number, last in (await self._way.watched.lasts()).items()}
        await self._way.open()
        for number, bound in self._bounds.items():
            async for messages in self._messages(number, PartitionBounds(bound.start, bound.last)):
                while messages:
                    if (because := await self._wait(claim)) is not None:
                        bound.start = own_number(messages[0])
                        return self._result(completed=False, because=because)
                    size = min(self._pace.step, self._portions.left) if self._portions is not None else self._pace.step
                    step, messages = messages[:size], messages[size:]
                    await self._move(number, step)
            self._passed(number, bound)
        because = await self._spent()
        return self._result(completed=True, because=because or "All messages were dealt with.")

    def _given_bounds(self) -> dict[int, PartitionBounds] | None:
        if self._arguments.cursor is None:
            return None
        return read_cursor(self._arguments.cursor, self._origin, self._entity.numbers)

    def _passed(self, number: int, bound: PartitionBounds) -> None:
        """Record that the redrive has gone through a partition."""
        if self._named is None:
            bound.start = max(bound.start, bound.last + 1)
        elif named := self._named.get(number):
            bound.start = max(bound.start, own_number(named[-1]) + 1)

    def _result(self, *, completed: bool, because: str) -> RedriveResult:
        return RedriveResult(
            matched=self._counts.matched,
            moved=self._moved,
            skipped=self._skipped,
            died_again=0 if self._relapses is None else self._relapses.died_again,
            completed=completed,
            stopped_because=because,
            cursor=cursor_text(self._origin, self._bounds),
            by_reason=dict(self._counts.by_reason),
            by_fingerprint=dict(self._counts.by_fingerprint),
        )

    # -- choosing ------------------------------------------------------------------------------------------------------

    async def _messages(self, number: int, bound: PartitionBounds) -> AsyncIterator[list[ServiceBusReceivedMessage]]:
        """Yield the chosen messages of a partition, page by page."""
        if self._named is not None:
            named = self._named.get(number, [])
            if self._arguments.dry_run and named:
                self._bounds[number].last = own_number(named[-1])
            if messages := [message for message in named if self._chosen(message)]:
                yield messages
            return
        while bound.start <= bound.last:
            page = await self._letters.page(number, bound.start, self._pace.page, MOVABLE)
            page = [message for message in page if own_number(message) <= bound.last]
            if not page:
                return
            bound.start = own_number(page[-1]) + 1
            if self._arguments.dry_run:
                self._bounds[number].last = bound.start - 1
            if messages := [message for message in page if self._chosen(message)]:
                yield messages

    async def _find_named(self, bounds: Mapping[int, PartitionBounds]) -> None:
        """Find the messages that the caller has named. If one is missing, raise an error before the first is moved.

        Messages before the place of the cursor are left out, because an earlier redrive has dealt with them.
        """
        if self._arguments.sequence_numbers is None:
            return
        found: dict[int, list[ServiceBusReceivedMessage]] = {}
        missing: list[int] = []
        wanted: dict[int, list[int]] = {}
        for sequence_number in self._arguments.sequence_numbers:
            partition, own = self._entity.place(sequence_number)
            bound = bounds.get(partition)
            if bound is None or not 0 < own <= bound.last:
                missing.append(sequence_number)
            elif own >= bound.start:
                wanted.setdefault(partition, []).append(own)
        for partition, owns in wanted.items():
            found[partition] = await self._letters.those(partition, sorted(owns), MOVABLE)
            names = {own_number(message) for message in found[partition]}
            missing += [self._entity.base(partition) + own for own in owns if own not in names]
        if missing:
            error = MessageNotFoundError(
                f"These messages are not in the dead-letter queue, or a receiver holds them: "
                f"{', '.join(map(str, sorted(missing)))}. No message was moved.",
                outcome=Outcome.REFUSED,
            )
            error.entity = self._entity.name
            raise error
        self._named = found

    def _add(self, message: ServiceBusReceivedMessage) -> None:
        self._counts.add(message.dead_letter_reason, message.dead_letter_error_description)

    # -- moving --------------------------------------------------------------------------------------------------------

    async def _wait(self, claim: _RedriveClaim) -> str | None:
        """Wait until the next messages may be moved. Return why the redrive must stop, or ``None``."""
        await claim.sleep(self._pace.wait(self._loop.time()))
        await claim.keep()
        because, portions, budget = await self._reason_to_stop(), self._portions, self._arguments.budget
        if because is not None or portions is None or budget is None or portions.left:
            return because
        ends, pause = self._loop.time() + budget.window, _SOONEST
        waiting = self._way.moved_to()
        while waiting and because is None and self._loop.time() < ends:
            await claim.sleep(min(pause, ends - self._loop.time()))
            pause = min(2 * pause, _LATEST)
            waiting = [each for each in waiting if await self._way.watched.unhandled(*each)]
            because = await self._reason_to_stop()
        portions.judged()
        return because

    async def _move(self, number: int, messages: list[ServiceBusReceivedMessage]) -> None:
        for message in messages:
            self._add(message)
        moved = await self._way.carry(number, messages)
        now = self._loop.time()
        if self._relapses is not None:
            self._relapses.put_back(moved.values(), now)
        self._moved += len(moved)
        self._arguments.progress(self._moved)
        self._skipped += len(messages) - len(moved)
        self._pace.moved(len(moved), now)
        if self._portions is not None:
            self._portions.moved(len(moved))

    async def _reason_to_stop(self) -> str | None:
        """Return why the redrive must stop, or ``None``."""
        return await self._spent() if self._goes_on(self._moved) else "Its caller has stopped it."

    async def _spent(self) -> str | None:
        """Look for messages that have died again. Return why the redrive must stop, or ``None``."""
        relapses, watched = self._relapses, self._way.watched
        if relapses is None or not self._moved:
            return None
        for number in watched.entity.numbers:
            while page := await watched.page(number, self._watched[number], MAXIMUM_CALL_MESSAGES, ANY):
                self._watched[number] = own_number(page[-1]) + 1
                for message in page:
                    record = hold_of(message).delivery.record
                    relapses.found_dead(key_of(record[payload_offset(record) :]), self._loop.time())
        now = self._loop.time()
        if not relapses.exhausted(now):
            return None
        recent, dead = relapses.recent(now)
        return f"The budget is spent: {dead} of the {recent} messages that were moved last have died again."


class _RedriveClaim:
    """The right to redrive a dead-letter queue, which one caller has at a time."""

    def __init__(self, letters: DeadLetters) -> None:
        connection, record = letters.entity.connection, letters.entity.record
        self._timings = connection.timings
        self._name = letters.entity.name
        name = f"{OWN}sbredis-redrive.{record.id}" + ("-transfers" if letters.side == "t" else "")
        self._role = Role(connection.transport, connection.namespace.name, name)
        self._renew_at = 0.0
        self._loop = asyncio.get_running_loop()

    async def keep(self) -> None:
        """Claim the queue, or renew the claim in time. Raise if another caller has it."""
        now = self._loop.time()
        if now < self._renew_at:
            return
        standing = await self._role.claim(self._timings.claiming_redrive)
        if not standing.held:
            text = (
                "Another redrive of this dead-letter queue is running. Wait until it has ended. If its client was "
                f"killed, the queue is free in {standing.seconds:.0f} seconds."
            )
            if self._renew_at:
                text = (
                    "This redrive did not renew its claim in time, and another one has begun. The messages that were "
                    "moved stay moved. Begin again when the other redrive has ended."
                )
            error = RedriveInProgressError(text, outcome=Outcome.REFUSED)
            error.entity = self._name
            raise error
        self._renew_at = now + self._timings.renewing_redrive

    async def sleep(self, seconds: float) -> None:
        """Sleep, and keep the claim meanwhile."""
        until = self._loop.time() + seconds
        while (left := until - self._loop.time()) > 0:
            await asyncio.sleep(min(left, self._timings.renewing_redrive))
            await self.keep()

    async def give_up(self) -> None:
        """End the claim."""
        with suppress(ServiceBusError):
            await self._role.give_up()
