"""Settle messages by their outcomes: completions together, everything else one by one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final

from sbredis.exceptions import KeyAlreadyUsedError, MessageLockLostError, ServiceBusError, SessionLockLostError
from sbredis.exceptions import Outcome as Effect
from sbredis.model import ServiceBusMessage, ServiceBusReceivedMessage, hold_of
from sbredis.workers.declaring._handlers import HandlerPlan
from sbredis.workers.declaring._outcomes import Abandon, Complete, DeadLetter, Defer, GiveBack, Outcome
from sbredis.workers.running._additions import UNCHANGED
from sbredis.workers.running._calls import CallOrigin, HandlerCall, can_be_settled, is_too_large
from sbredis.workers.running._gathering import Gathering

if TYPE_CHECKING:
    from sbredis.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender
    from sbredis.workers.observing._counts import EntityCounts

__all__ = ["CallSettler"]

_log = logging.getLogger("sbredis.worker")
_DONE: Final = Complete()
_CALLS: Final = 4
"""The number of calls for completions that are under way at once. Further completions gather until one has ended."""


class CallSettler(CallOrigin):
    """Settles the messages of one entity. With sessions, the origin of each call says from which session they are."""

    def __init__(
        self,
        client: ServiceBusClient,
        receiver: ServiceBusReceiver,
        sender_to: Callable[[str], ServiceBusSender],
        *,
        entity: str,
        counts: EntityCounts,
        when_failed: Callable[[Sequence[ServiceBusReceivedMessage], Exception], None],
        judge: Callable[[HandlerPlan, ServiceBusReceivedMessage, Exception], Outcome],
    ) -> None:
        super().__init__(entity, receiver, counts, None)
        self._client = client
        self._sender_to = sender_to
        self.when_settled: Callable[[], None] | None = None
        """Called when settlements were answered."""
        self._when_failed = when_failed
        self._judge = judge
        self._loop = asyncio.get_running_loop()
        self._done: list[ServiceBusReceivedMessage] = []
        """Messages to complete with the next call."""
        self._to_transact: list[HandlerCall] = []
        """Calls to complete with the next transactions, together with what their handlers have sent."""
        self._gathering = Gathering()
        self._scheduled = False
        self._calls: set[asyncio.Task[object]] = set()
        self._under_way = 0
        """The number of messages whose settlement is under way."""

    # -- what tests watch ----------------------------------------------------------------------------------------------

    def noted(self, messages: Sequence[ServiceBusReceivedMessage], outcome: Outcome) -> None:
        """Count messages that are settled."""
        if isinstance(outcome, Complete):
            self.counts.completed += len(messages)
        elif isinstance(outcome, Abandon):
            self.counts.abandoned += len(messages)
        elif isinstance(outcome, DeadLetter):
            self.counts.dead_lettered += len(messages)
        else:
            self.counts.deferred += len(messages)

    def failed(self, messages: Sequence[ServiceBusReceivedMessage], error: Exception) -> None:
        """Count and report messages that could not be settled."""
        self.counts.settlements_failed += len(messages)
        self._when_failed(messages, error)

    # ------------------------------------------------------------------------------------------------------------------

    @property
    def unacknowledged(self) -> int:
        """The number of messages whose settlement was not answered yet."""
        return self._under_way + len(self._done) + len(self._to_transact)

    # -- without waiting -----------------------------------------------------------------------------------------------

    def complete_soon(self, message: ServiceBusReceivedMessage) -> None:
        """Complete a message, together with others that are completed in the same moment."""
        self._done.append(message)
        if not self._scheduled:
            self._gather()

    def transact_soon(self, call: HandlerCall) -> None:
        """Complete the message of a call and send what its handler has sent, in a transaction with those of others."""
        self._to_transact.append(call)
        if not self._scheduled:
            self._gather()

    def settle_soon(self, call: HandlerCall, outcome: Outcome) -> None:
        """Settle the messages of a call in a task of its own."""
        self.start(self.settle_reporting(call, outcome), len(call.messages))

    async def all_settled(self) -> None:
        """Wait until every settlement is answered."""
        while self._calls or self._waits:
            if self._waits and not self._calls:
                self._start_gathered()
            await asyncio.wait(set(self._calls))

    @property
    def _waits(self) -> bool:
        """Whether there are completions that no call makes yet."""
        return bool(self._done or self._to_transact)

    def _gather(self) -> None:
        if len(self._calls) < _CALLS:
            self._scheduled = True
            self._loop.call_soon(self._start_gathered)

    def _start_gathered(self) -> None:
        self._scheduled = False
        batch, self._done = self._done, []
        if batch:
            self.start(self.complete(batch), len(batch))
        calls, self._to_transact = self._to_transact, []
        for together in self._gathering.transactions(calls):
            self.start(self._transact_together(together), len(together))

    def start(self, work: Coroutine[Any, Any, object], count: int) -> None:
        """Settle this number of messages in a task of its own."""
        _ = self.started(work, count)

    def started(self, work: Coroutine[Any, Any, object], count: int) -> asyncio.Task[object]:
        """Settle this number of messages in a task of its own, and return the task."""
        self._under_way += count
        task = self._loop.create_task(work)
        self._calls.add(task)
        task.add_done_callback(lambda ended: self._ended(ended, count))
        return task

    def _ended(self, task: asyncio.Task[object], count: int) -> None:
        self._calls.discard(task)
        self._under_way -= count
        if self._waits and not self._scheduled:
            self._start_gathered()
        if self.when_settled is not None:
            self.when_settled()

    async def complete(self, batch: list[ServiceBusReceivedMessage]) -> None:
        try:
            await self.receiver.complete_messages(batch)
            self.noted(batch, _DONE)
        except MessageLockLostError as error:
            lost = _lost(batch, error)
            self.noted([each for each in batch if each not in lost], _DONE)
            self.failed(lost, error)
        except Exception as error:  # noqa: BLE001 -- it is reported, and must not end the worker
            if len(batch) > 1 and isinstance(error, ValueError):  # one message is to blame, and nothing was sent
                for message in batch:
                    await self.complete([message])
            else:
                self.failed(batch, error)

    async def _transact_together(self, calls: list[HandlerCall]) -> None:
        """Complete the messages of calls, and send what their handlers have sent. Errors are reported, not raised.

        If the transaction is refused, each call is settled alone.
        """
        if len(calls) > 1:
            try:
                await self._commit(calls)
            except Exception as error:  # noqa: BLE001 -- it is reported, and must not end the worker
                if isinstance(error, ServiceBusError) and error.outcome is Effect.UNKNOWN:
                    for call in calls:
                        self.failed(call.messages, error)
                    return
                if is_too_large(error):
                    self._gathering.too_large(calls)
                outcomes = await asyncio.gather(*(self.settle_reporting(call, _DONE) for call in calls))
                if (
                    isinstance(error, ValueError)
                    and not is_too_large(error)
                    and all(each == _DONE for each in outcomes)
                ):
                    self._gathering.only_alone(calls)
            else:
                self._gathering.happened()
                self.noted([call.message for call in calls], _DONE)
        else:
            await self.settle_reporting(calls[0], _DONE)

    async def settle_reporting(self, call: HandlerCall, outcome: Outcome) -> Outcome | None:
        """Settle the messages of a call. An error is reported, and not raised.

        If the outcome is refused, or what the handler has sent, nothing of it has happened, and the call counts as
        failed. A batch that is too large for a transaction is given back uncounted, and comes again in smaller batches.
        Returns the outcome that the first message got; ``None`` if it could not be settled.
        """
        if call.context is None:
            return await self._settle_reporting(call, outcome)
        # a copy, because the messages of a batch are settled at the same time
        return await self._loop.create_task(self._settle_reporting(call, outcome), context=call.context.copy())

    async def _settle_reporting(self, call: HandlerCall, outcome: Outcome) -> Outcome | None:
        try:
            return await self.settle(call, outcome)
        except Exception as error:  # noqa: BLE001 -- it is reported, and must not end the worker
            self.failed(_lost(call.messages, error), error)
            if not can_be_settled(error):
                return None
            if is_too_large(error) and len(call.messages) > 1:
                call.additions.overfull = True
                judged: list[tuple[ServiceBusReceivedMessage, Outcome]] = [(each, GiveBack()) for each in call.messages]
            else:
                judged = [(message, self._judge(call.handler, message, error)) for message in call.messages]
        try:
            for message, each in judged:
                await self._settle_one(call, message, each)
        except Exception as error:  # noqa: BLE001 -- as above
            self.failed(_lost(call.messages, error), error)
            return None
        return judged[0][1]

    # -- with waiting --------------------------------------------------------------------------------------------------

    async def settle(self, call: HandlerCall, outcome: Outcome) -> Outcome:
        """Settle the messages of a call, together with what the handler has sent if the outcome completes them.

        Returns the outcome.
        """
        if isinstance(outcome, Complete):
            if call.additions:
                await self._transact(call)
            else:
                receiver = call.origin.receiver
                try:
                    if len(call.messages) == 1:
                        await receiver.complete_message(call.message)
                    else:
                        await receiver.complete_messages(call.messages)
                except MessageLockLostError as error:
                    lost = _lost(call.messages, error)
                    self.noted([each for each in call.messages if each not in lost], outcome)
                    raise
            self.noted(call.messages, outcome)
        elif len(call.messages) == 1:
            await self._settle_one(call, call.message, outcome)
        else:
            await asyncio.gather(*(self._settle_one(call, message, outcome) for message in call.messages))
        return outcome

    async def _settle_one(self, call: HandlerCall, message: ServiceBusReceivedMessage, outcome: Outcome) -> None:
        receiver = call.origin.receiver
        if isinstance(outcome, Abandon):
            await receiver.abandon_message(
                message, delay=outcome.delay, properties_to_modify=outcome.properties_to_modify
            )
        elif isinstance(outcome, DeadLetter):
            await receiver.dead_letter_message(
                message, outcome.reason, outcome.description, properties_to_modify=outcome.properties_to_modify
            )
        elif isinstance(outcome, GiveBack):
            await self.release((message,), origin=call.origin)
            return
        elif isinstance(outcome, Defer):
            await receiver.defer_message(message, properties_to_modify=outcome.properties_to_modify)
        else:
            raise TypeError(f"{outcome!r} is not an outcome that a worker knows.")
        self.noted((message,), outcome)

    async def _transact(self, call: HandlerCall) -> None:
        try:
            await self._commit([call])
        except KeyAlreadyUsedError:
            _log.info("%s: message %s was handled before", call.origin.entity, call.message.sequence_number)
            await call.origin.receiver.complete_messages(call.messages)

    async def _commit(self, calls: Sequence[HandlerCall]) -> None:
        """Do all that calls have added when they complete their messages, or nothing of it."""
        sends: dict[str, list[ServiceBusMessage]] = {}
        async with self._client.transaction() as transaction:
            for call in calls:
                for key, window in (call.additions.keys or {}).items():
                    transaction.once(key, window)
                for message in call.messages:
                    transaction.complete_message(message)
                for entity, sent in call.additions.sends or ():
                    sends.setdefault(entity, []).append(sent)
                if call.additions.session_state is not UNCHANGED:
                    assert call.origin.session is not None
                    state: Any = call.additions.session_state
                    transaction.set_session_state(call.origin.session, state)
            for entity, together in sends.items():
                transaction.send_messages(self._sender_to(entity), together)

    async def release(
        self,
        messages: Sequence[ServiceBusReceivedMessage],
        *,
        origin: CallOrigin | None = None,
        interrupted: bool = False,
    ) -> None:
        """Give messages back without counting a delivery: messages of this entity, or of the session ``origin``."""
        receiver = self.receiver if origin is None else origin.receiver
        results = await asyncio.gather(
            *(receiver.release_message(message, interrupted=interrupted) for message in messages),
            return_exceptions=True,
        )
        for message, result in zip(messages, results, strict=True):
            if isinstance(result, (MessageLockLostError, SessionLockLostError)):
                continue  # the message comes again anyway
            if isinstance(result, Exception):
                _log.warning("%s: message %s was not given back: %s", receiver.entity_path, message, result)
            else:
                self.counts.given_back += 1


def _lost(messages: Sequence[ServiceBusReceivedMessage], error: Exception) -> Sequence[ServiceBusReceivedMessage]:
    """Return the messages whose locks were lost according to an error; all of them if it names none.

    The error names messages by their numbers. A message that was completed together with its earlier delivery is not
    lost, although the earlier delivery has the same number.
    """
    if not isinstance(error, MessageLockLostError):
        return messages
    numbers = set(error.sequence_numbers)
    lost = [each for each in messages if each.sequence_number in numbers and not hold_of(each).settled]
    return lost or messages
