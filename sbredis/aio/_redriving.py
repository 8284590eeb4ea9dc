"""Move dead letters back to the main side of their entity: choose them, move them at a rate, and watch a budget."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

from sbredis._tasks import to_the_end
from sbredis.aio._redrive_elsewhere import Elsewhere
from sbredis.aio.calls._arguments import deadline_of, seconds_of, sequence_numbers_of
from sbredis.aio.calls._routing import facts_of
from sbredis.aio.core._redriving import Bound, Census, Pace, Relapses, cursor_text, read_cursor
from sbredis.aio.maintenance._role import OWN, Role
from sbredis.aio.receiving._changes import require_modification
from sbredis.aio.receiving._settling import Settler
from sbredis.engine import (
    MAXIMUM_CALL_MESSAGES,
    CallId,
    Partition,
    Peeked,
    Redrive,
    Redriven,
    Request,
    SidePrefix,
    entity_name,
    payload_offset,
)
from sbredis.exceptions import MessageNotFoundError, Outcome, RedriveInProgressError, ServiceBusError
from sbredis.model import (
    CorrelationRuleFilter,
    PrimitiveTypes,
    RedriveBudget,
    RedriveResult,
    RuleFilter,
    RuleProperties,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    Source,
    SqlRuleFilter,
    delivered,
    hold_of,
    readable_content,
    redrive_of,
    rule_created,
)
from sbredis.rules import MessageView, RuleBook

if TYPE_CHECKING:
    from sbredis.aio.calls._entity import Entity

__all__ = ["Redriver"]

_PAGE_BYTES = 4 * 1024 * 1024
_CLAIM = 10.0
"""The seconds for which a redrive claims the dead-letter queue. The claim of a killed client ends after this time."""
_RENEW = 3.0
_MOVABLE, _ANY = "awf", "alwf"
Condition = Callable[[ServiceBusReceivedMessage], bool]


@dataclass(slots=True, kw_only=True)
class _Request:
    """The arguments of a redrive, checked before anything is sent."""

    sequence_numbers: Sequence[int] | None
    reason: str | None
    matching: str | RuleFilter | None
    modify: Mapping[str, PrimitiveTypes] | None
    rate: float | None
    budget: RedriveBudget | None
    cursor: str | None
    dry_run: bool
    timeout: float | None

    def check(self) -> Condition:
        """Raise for arguments that are wrong. Return the function that chooses the messages."""
        if self.rate is not None:
            self.rate = seconds_of(self.rate, "rate")
        if self.budget is not None and not isinstance(self.budget, RedriveBudget):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
            raise TypeError(f"budget must be a RedriveBudget, not {type(self.budget).__name__}")
        if self.budget is not None and self.rate is None and not self.dry_run:
            raise ValueError("A budget needs a rate: without one, all messages are back before any can die again.")
        if self.reason is not None and not isinstance(self.reason, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
            raise TypeError(f"reason must be text, not {type(self.reason).__name__}")
        if self.cursor is not None and self.sequence_numbers is not None:
            raise ValueError("Give a cursor or sequence_numbers, not both: sequence numbers need no cursor.")
        require_modification(self.modify)
        book = self._book()
        reason = self.reason

        def chosen(message: ServiceBusReceivedMessage) -> bool:
            if reason is not None and message.dead_letter_reason != reason:
                return False
            if book is None:
                return True
            facts = _facts(message)
            return facts is not None and bool(book.judge(facts))

        return chosen

    def _book(self) -> RuleBook | None:
        given = self.matching
        if given is None:
            return None
        if isinstance(given, str):
            given = SqlRuleFilter(given)
        if not isinstance(given, (SqlRuleFilter, CorrelationRuleFilter)):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
            raise TypeError(
                f"matching must be the text of a filter, an SqlRuleFilter or a CorrelationRuleFilter, not "
                f"{type(given).__name__}"
            )
        rule = rule_created(RuleProperties("redrive", filter=given))
        return RuleBook([([rule], False)])


def _facts(message: ServiceBusReceivedMessage) -> MessageView | None:
    """Return a dead letter as filters see it, with its reason and its description; ``None`` if it is unreadable."""
    content = readable_content(message)
    if content is None:
        return None
    facts = facts_of(content)
    system = dict(facts.system)
    if message.dead_letter_reason is not None:
        system["deadletterreason"] = message.dead_letter_reason
    if message.dead_letter_error_description is not None:
        system["deadlettererrordescription"] = message.dead_letter_error_description
    return MessageView(system, facts.user)


def _key(message: ServiceBusReceivedMessage) -> bytes:
    """Return a key that a message keeps when it is put back and dies again: a digest of the sender's data."""
    record = hold_of(message).delivery.record
    return blake2b(record[payload_offset(record) :], digest_size=16).digest()


class Redriver(Settler):
    """A receiver that can move dead letters back."""

    _side: SidePrefix

    @abstractmethod
    async def _found(self, deadline: float) -> Entity:
        """Return the entity, without accepting a session."""

    async def redrive_messages(
        self,
        *,
        to: str | None = None,
        sequence_numbers: int | Sequence[int] | None = None,
        reason: str | None = None,
        matching: str | RuleFilter | None = None,
        properties_to_modify: Mapping[str, PrimitiveTypes] | None = None,
        rate: float | None = None,
        budget: RedriveBudget | None = None,
        cursor: str | None = None,
        dry_run: bool = False,
        timeout: float | None = None,
    ) -> RedriveResult:
        """Move dead letters back to the queue or subscription in which they died, as new messages, or to the queue or
        topic ``to``.

        The receiver must be one of a dead-letter queue. Without further arguments, the call moves all dead letters that
        no receiver holds. It moves only those with these ``sequence_numbers``, with this ``reason``, or ``matching``
        this filter in the language of rules, which can also use ``sys.DeadLetterReason`` and
        ``sys.DeadLetterErrorDescription``. The copies of other subscriptions do not change.

        A message that is moved is active under a new sequence number. Its delivery count, its enqueued time and its
        time to live begin again, and it loses its reason and its description. It is the last message of its session.
        ``properties_to_modify`` are added to its application properties, or replace them. Each message is moved once:
        messages that die again during the call stay in the dead-letter queue.

        ``rate`` limits the messages a second. With a ``budget`` the call stops by itself when too many of the messages
        have died again. ``cursor`` is that of an earlier result: the call goes on where that redrive has ended. With
        ``dry_run`` the call only counts the messages, by reason and by fingerprint. ``timeout`` limits each call to the
        server.

        Raises :class:`~sbredis.exceptions.RuleSyntaxError` if the filter is not valid,
        :class:`~sbredis.exceptions.MessageNotFoundError` if one of the ``sequence_numbers`` is not there, and
        :class:`~sbredis.exceptions.RedriveInProgressError` if another redrive of this queue is running. In these cases
        nothing was moved, unless the client was away for so long that another redrive has begun.
        """
        request = _Request(
            sequence_numbers=None if sequence_numbers is None else sequence_numbers_of(sequence_numbers),
            reason=reason,
            matching=matching,
            modify=properties_to_modify,
            rate=rate,
            budget=budget,
            cursor=cursor,
            dry_run=dry_run,
            timeout=timeout,
        )
        chosen = request.check()
        if to is not None and budget is not None:
            raise ValueError("A budget watches the own dead-letter queue: leave out the budget, or leave out `to`.")
        if self._side != "d":
            raise ValueError(
                "Messages are redriven from a dead-letter queue: make the receiver with sub_queue='deadletter'."
            )
        with self._telemetry.operation("redrive", self.entity_path) as operation:
            entity, elsewhere = await self._found(deadline_of(timeout)), None
            if to is not None:
                elsewhere = Elsewhere(entity, await self._other(to, entity, timeout), properties_to_modify)
            result = await _redrive(entity, request, chosen, elsewhere)
            operation.counted(result.moved)
            return result

    async def _other(self, to: str, entity: Entity, timeout: float | None) -> Entity:
        """Return the entity with the name ``to``. Raise if dead letters cannot be moved to it."""
        found = await self._connection.entity(entity_name(to), deadline_of(timeout))
        if found.record.id == entity.record.id:
            raise ValueError(f"{to!r} is the entity of these dead letters: leave out `to`.")
        return found


async def _redrive(entity: Entity, request: _Request, chosen: Condition, elsewhere: Elsewhere | None) -> RedriveResult:
    """Carry out a request that was checked."""
    redriving = _Redriving(entity, request, chosen, elsewhere)
    if request.dry_run:
        return await redriving.look()
    claim = _Claim(entity)
    try:
        await claim.keep()
        if elsewhere is not None:
            await elsewhere.open()
        return await redriving.run(claim)
    finally:
        await to_the_end(claim.give_up())


class _Claim:
    """The right to redrive a dead-letter queue, which one caller has at a time."""

    def __init__(self, entity: Entity) -> None:
        runtime = entity.runtime
        self._name = entity.name
        self._role = Role(runtime.transport, runtime.namespace.name, f"{OWN}sbredis-redrive.{entity.record.id}")
        self._renew_at = 0.0
        self._loop = asyncio.get_running_loop()

    async def keep(self) -> None:
        """Claim the queue, or renew the claim in time. Raise if another caller has it."""
        now = self._loop.time()
        if now < self._renew_at:
            return
        standing = await self._role.claim(_CLAIM)
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
        self._renew_at = now + _RENEW

    async def sleep(self, seconds: float) -> None:
        """Sleep, and keep the claim meanwhile."""
        until = self._loop.time() + seconds
        while (left := until - self._loop.time()) > 0:
            await asyncio.sleep(min(left, _RENEW))
            await self.keep()

    async def give_up(self) -> None:
        """End the claim."""
        with suppress(ServiceBusError):
            await self._role.give_up()


class _Redriving:
    """One run through a dead-letter queue, partition by partition, in the order of the numbers."""

    def __init__(self, entity: Entity, request: _Request, chosen: Condition, elsewhere: Elsewhere | None) -> None:
        self._entity = entity
        self._request = request
        self._chosen = chosen
        self._elsewhere = elsewhere
        self._loop = asyncio.get_running_loop()
        self._pace = Pace(request.rate, MAXIMUM_CALL_MESSAGES)
        self._relapses = None if request.budget is None else Relapses(request.budget)
        self._census = Census()
        self._moved = 0
        self._skipped = 0
        self._bounds: dict[int, Bound] = {}
        self._watched: dict[int, int] = {}
        """For each partition, the next number at which to look for messages that have died again."""

    @property
    def _incarnation(self) -> str:
        return self._entity.record.incarnation

    # -- the runs ------------------------------------------------------------------------------------------------------

    async def look(self) -> RedriveResult:
        """Count the messages, and change nothing."""
        for number, bound in self._given_bounds((1 << 48) - 1).items():
            self._bounds[number] = Bound(bound.start, bound.start - 1 if bound.start else 0)
            async for messages in self._messages(number, Bound(bound.start, bound.last)):
                for message in messages:
                    self._add(message)
        return self._result(completed=True, because="It was a dry run: no message was moved.")

    async def run(self, claim: _Claim) -> RedriveResult:
        """Put the messages back, until all are back or too many have died again."""
        lasts = {number: (await self._call(number, [])).last for number in self._entity.numbers}
        self._watched = {number: last + 1 for number, last in lasts.items()}
        self._bounds = self._given_bounds(0)
        if self._request.cursor is None:
            self._bounds = {number: Bound(0, last) for number, last in lasts.items()}
        for number, bound in self._bounds.items():
            async for messages in self._messages(number, Bound(bound.start, bound.last)):
                while messages:
                    await claim.sleep(self._pace.wait(self._loop.time()))
                    await claim.keep()
                    if (because := await self._spent()) is not None:
                        if self._request.sequence_numbers is None:
                            bound.start = _own_number(messages[0])
                        return self._result(completed=False, because=because)
                    step, messages = messages[: self._pace.step], messages[self._pace.step :]
                    await self._put_back(number, step)
            if self._request.sequence_numbers is None:
                bound.start = max(bound.start, bound.last + 1)
        because = await self._spent()
        return self._result(completed=True, because=because or "All messages were dealt with.")

    def _given_bounds(self, last: int) -> dict[int, Bound]:
        numbers = self._entity.numbers
        if self._request.cursor is not None:
            return read_cursor(self._request.cursor, self._incarnation, numbers)
        return {number: Bound(0, last) for number in numbers}

    def _result(self, *, completed: bool, because: str) -> RedriveResult:
        return RedriveResult(
            matched=self._census.matched,
            moved=self._moved,
            skipped=self._skipped,
            died_again=0 if self._relapses is None else self._relapses.died_again,
            completed=completed,
            stopped_because=because,
            cursor=cursor_text(self._incarnation, self._bounds),
            by_reason=dict(self._census.by_reason),
            by_fingerprint=dict(self._census.by_fingerprint),
        )

    # -- choosing ------------------------------------------------------------------------------------------------------

    async def _messages(self, number: int, bound: Bound) -> AsyncIterator[list[ServiceBusReceivedMessage]]:
        """Yield the chosen messages of a partition, page by page."""
        if self._request.sequence_numbers is not None:
            yield [message for message in await self._named(number) if self._chosen(message)]
            return
        while bound.start <= bound.last:
            page = await self._page(number, bound.start, self._pace.page, _MOVABLE)
            page = [message for message in page if _own_number(message) <= bound.last]
            if not page:
                return
            bound.start = _own_number(page[-1]) + 1
            if self._request.dry_run:
                self._bounds[number].last = bound.start - 1
            if messages := [message for message in page if self._chosen(message)]:
                yield messages

    async def _named(self, number: int) -> list[ServiceBusReceivedMessage]:
        """Return the messages of a partition that the caller has named. All of them are looked for before the first is
        moved; if one is missing, none is moved.
        """
        if not hasattr(self, "_found"):
            self._found: dict[int, list[ServiceBusReceivedMessage]] = {}
            missing: list[int] = []
            wanted: dict[int, list[int]] = {}
            for sequence_number in self._request.sequence_numbers or ():
                partition, own = self._entity.place(sequence_number)
                if partition in self._entity.numbers and 0 < own < 10**15:
                    wanted.setdefault(partition, []).append(own)
                else:
                    missing.append(sequence_number)
            for partition, owns in wanted.items():
                there = await self._those(partition, sorted(owns))
                self._found[partition] = there
                names = {_own_number(message) for message in there}
                missing += [self._entity.base(partition) + own for own in owns if own not in names]
            if missing:
                error = MessageNotFoundError(
                    f"These messages are not in the dead-letter queue, or a receiver holds them: "
                    f"{', '.join(map(str, sorted(missing)))}. No message was moved.",
                    outcome=Outcome.REFUSED,
                )
                error.entity = self._entity.name
                raise error
        return self._found.get(number, [])

    async def _those(self, number: int, owns: list[int], states: str = _MOVABLE) -> list[ServiceBusReceivedMessage]:
        found: list[ServiceBusReceivedMessage] = []
        at = 0
        while at < len(owns):
            last = owns[min(at + MAXIMUM_CALL_MESSAGES, len(owns)) - 1]
            page = await self._page(number, owns[at], min(MAXIMUM_CALL_MESSAGES, last - owns[at] + 1), states)
            there = {_own_number(message): message for message in page}
            reached = max(there, default=last)
            while at < len(owns) and owns[at] <= reached:
                if owns[at] in there:
                    found.append(there[owns[at]])
                at += 1
        return found

    async def _page(self, number: int, start: int, wanted: int, states: str) -> list[ServiceBusReceivedMessage]:
        def make(partition: Partition, call_id: CallId) -> Request[Peeked]:
            return partition.peek(
                start, wanted, side="d", room=_PAGE_BYTES, states=states, call_id=CallId("", 0, call_id.now)
            )

        partition_client = self._entity.partition_client(number)
        page = await partition_client.read("p", make, deadline_of(self._request.timeout))
        source = Source(self._entity.base(number), ServiceBusReceiveMode.PEEK_LOCK, self._entity, peeked=True)
        return [delivered(each, source, None) for each in page.messages]

    def _add(self, message: ServiceBusReceivedMessage) -> None:
        self._census.add(message.dead_letter_reason, message.dead_letter_error_description)

    # -- moving --------------------------------------------------------------------------------------------------------

    async def _put_back(self, number: int, messages: list[ServiceBusReceivedMessage]) -> None:
        for message in messages:
            self._add(message)
        if self._elsewhere is not None:
            await self._elsewhere.carry(number, messages)
            left = await self._those(number, [_own_number(message) for message in messages], _ANY)
            self._moved += len(messages) - len(left)
            self._skipped += len(left)
            self._pace.moved(len(messages), self._loop.time())
            return
        by_name = {hold_of(message).name: message for message in messages}
        asked: dict[str, Redrive] = {
            name: redrive_of(message, self._request.modify) for name, message in by_name.items()
        }
        while asked:
            names = list(asked)
            result = await self._call(number, list(asked.values()))
            moved = result.moved(names)
            now = self._loop.time()
            if self._relapses is not None:
                self._relapses.put_back([_key(by_name[name]) for name in moved], now)
            self._moved += len(moved)
            self._skipped += len(result.missing) + len(result.unfit)
            self._pace.moved(len(moved), now)
            done = {*moved, *result.missing, *result.unfit}
            asked = {name: one for name, one in asked.items() if name not in done}

    async def _call(self, number: int, messages: Sequence[Redrive]) -> Redriven:
        def make(partition: Partition, call_id: CallId) -> Request[Redriven]:
            return partition.redrive(call_id, messages)

        return await self._entity.partition_client(number).call("v", make, deadline_of(self._request.timeout))

    async def _spent(self) -> str | None:
        """Look for messages that have died again. Return why the redrive must stop, or ``None``."""
        relapses = self._relapses
        if relapses is None or not self._moved:
            return None
        for number in self._entity.numbers:
            while page := await self._page(number, self._watched[number], MAXIMUM_CALL_MESSAGES, _ANY):
                self._watched[number] = _own_number(page[-1]) + 1
                for message in page:
                    relapses.found_dead(_key(message), self._loop.time())
        now = self._loop.time()
        if not relapses.exhausted(now):
            return None
        recent, dead = relapses.recent(now)
        return f"The budget is spent: {dead} of the {recent} messages that were put back last have died again."


def _own_number(message: ServiceBusReceivedMessage) -> int:
    """Return the number of a dead letter within its partition."""
    return int(hold_of(message).name.removeprefix("d"))
