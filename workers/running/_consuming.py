"""Consume the messages of one entity without sessions: receive, call handlers, settle."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import Any

from sbredis.exceptions import ServiceBusError
from sbredis.model import ServiceBusReceivedMessage, taking_of
from sbredis.workers.declaring._handlers import EntityPlan, HandlerPlan
from sbredis.workers.declaring._outcomes import Complete
from sbredis.workers.running._call_states import CallTask
from sbredis.workers.running._calls import CallOrigin, HandlerCall
from sbredis.workers.running._gates import Gates
from sbredis.workers.running._gathering import Gathering
from sbredis.workers.running._handling import Handling
from sbredis.workers.running._locks import Renewable, RenewalLimit, cover_nothing, snapshot
from sbredis.workers.running._prefetching import Prefetching
from sbredis.workers.running._settling import CallSettler
from sbredis.workers.running._starting import SharedTask, new_task
from sbredis.workers.running._suspects import Alone, SuspectTurns

__all__ = ["CANCELLING", "Consumer", "RunningCalls"]

_log = logging.getLogger("sbredis.worker")
CANCELLING = 5.0
"""The seconds that cancelled handlers get to end."""
_LONGEST_WAIT = 0.4
"""The longest time in seconds that messages wait in the buffer while no handler can start."""


class RunningCalls:
    """The calls of one entity that are running, and the room for more.

    A finished handler makes room at once; its settlement does not occupy the room. But nothing new starts while more
    settlements are unanswered than handlers may run.

    So the consumer holds at most twice as many messages as handlers may run, and tells the partitions: if the process
    dies, no more deliveries count. A message whose holders have died again and again is a suspect, which the consumer
    takes while the process holds nothing else.
    """

    def __init__(
        self, plan: EntityPlan, handling: Handling, settlements: CallSettler, alone: Alone | None = None
    ) -> None:
        self.plan = plan
        self.handling = handling
        self.settlements = settlements
        self.origin: CallOrigin = settlements
        self._most = plan.settings.max_concurrent_calls
        self._loop = asyncio.get_running_loop()
        self._room = asyncio.Event()
        self._running: dict[asyncio.Task[None], HandlerCall] = {}
        self._starting: HandlerCall | None = None
        """The call whose task runs its first step now, and so is not known yet."""
        self._cut_off: list[HandlerCall] = []
        """The calls that were cancelled at the end of the worker."""
        self.left: set[asyncio.Task[None]] = set()
        self._most_unanswered = self._most * (plan.handlers[0].settings.batch or 1)
        settlements.when_settled = self._make_room
        self.gates = Gates(plan.handlers)
        self.cover: Callable[[Sequence[Renewable], float | None], None] = cover_nothing
        self._limit = RenewalLimit(plan.settings.max_auto_lock_renewal_duration, handling.time, self.lost)
        self.alone = Alone(handling.time) if alone is None else alone
        self.alone.join(self)
        self._turns = SuspectTurns()
        self._looking: asyncio.Handle | None = None
        """The next look whether it is time to take the suspects that wait."""
        self._taking = taking_of(self.origin.receiver)
        self._taking.hands = self._hands = 3 * self._most_unanswered if plan.in_batches else 2 * self._most_unanswered
        self._taking.suspects, self._taking.told = False, self._look_for_suspects
        self._has_taken = False
        """Whether suspects were taken here, so that some may come after their turn."""

    @property
    def room(self) -> int:
        """The number of handlers that may start now."""
        room = self.handling.limit.at_most(self._slots)
        return self.gates.room(self.handling.time.now(), room) if self.gates else room

    @property
    def _slots(self) -> int:
        """The number of handlers for which there is room, apart from the gates and the limit of the process."""
        if self.settlements.unacknowledged > self._most_unanswered or not self.alone.lets_begin(self):
            return 0
        return self._most - len(self._running)

    async def free_slot(self) -> None:
        """Wait until there is room for a handler whose messages have begun, so apart from the gates and the limit."""
        while self._slots <= 0:
            self._room.clear()
            await self.handling.time.wait(self._room, None)

    async def room_for_one(self) -> int:
        """Wait until a handler may start. Return how many may start."""
        while (room := self.room) <= 0:
            self._room.clear()
            wait = self.gates.wait(self.handling.time.now()) if self.gates else None
            await self.handling.time.wait(self._room, wait)
        return room

    def admitted(self, messages: list[ServiceBusReceivedMessage], each: int = 1) -> list[ServiceBusReceivedMessage]:
        """Return the messages that the gates still admit, after the wait for messages. Give the others back uncounted.

        ``each`` is the number of messages for one call of a handler.
        """
        room = self.gates.room(self.handling.time.now(), len(messages)) * each
        self.give_back(messages[room:])
        return messages[:room]

    def begun(self, messages: list[ServiceBusReceivedMessage]) -> list[ServiceBusReceivedMessage]:
        """Return the messages that the process may still begin. Give the others back uncounted."""
        count = self.handling.limit.take(len(messages))
        self.give_back(messages[count:])
        return messages[:count]

    def has_ended(self, message: ServiceBusReceivedMessage) -> bool:
        """Return whether the lock of a message has ended before its handler begins. Log it if it has.

        That happens if the process was suspended.
        """
        inbox = self._taking.inbox
        if inbox is None or not inbox.has_ended(message):
            return False
        _log.warning("%s: a lock ended before its handler began; the message comes again", self.entity)
        return True

    def give_back(self, messages: Sequence[ServiceBusReceivedMessage]) -> None:
        """Give messages that no handler has begun back uncounted, in a task that the end of the worker waits for."""
        if messages:
            self.settlements.start(self.settlements.release(messages), len(messages))

    def start(self, call: HandlerCall, work: Coroutine[Any, Any, None]) -> None:
        """Run a call in a task of its own."""
        self._starting = call  # the first step may block the event loop, and its locks must be renewed meanwhile
        self.cover(call.messages, self.plan.settings.max_auto_lock_renewal_duration)
        task = new_task(self._loop, work)
        self._running[task] = call
        self._starting = None
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        call = self._running.pop(task)
        self._make_room()
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("%s ended in a way that was not expected", call.handler.name, exc_info=error)

    def _make_room(self) -> None:
        self._room.set()  # the consumer counts again, and asks its gates when to count next
        self.alone.noted()

    # -- suspects ------------------------------------------------------------------------------------------------------

    @property
    def entity(self) -> str:
        """The path of the entity."""
        return self.plan.source.path

    @property
    def held(self) -> int:
        """The number of calls that are running, and of settlements that were not answered."""
        return len(self._running) + self.settlements.unacknowledged

    def rest(self) -> None:
        """Receive nothing, because another consumer of the process takes suspects."""
        with suppress(ValueError):  # the client is closed
            self.origin.receiver.prefetch_count = 0
        self._taking.end_waits()

    async def let_go(self) -> None:
        """Give back all messages that no handler has begun, and let no more come."""
        if self._taking.inbox is not None:
            with suppress(ServiceBusError):  # the partition is away, so its messages cannot be begun either
                await self._taking.inbox.let_go()

    def resume(self) -> None:
        """Receive again, and look whether suspects wait here, too."""
        self._make_room()
        self._look_for_suspects()

    def _look_for_suspects(self) -> None:
        """If suspects wait, end the wait for other messages as soon as it is time to take them."""
        if self._looking is None:
            self._looking = self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._looking = None
        if self._taking.suspects_wait:
            left = self._turns.due_in(self.handling.time.now(), self.alone.held)
            if left > 0:
                self._looking = self._loop.call_later(left, self._look)
                self.alone.at_calm(self._look_now)
            else:
                self._taking.end_waits()

    def _look_now(self) -> None:
        """Look at once if a later look is planned: the process holds nothing."""
        if self._looking is not None:
            self._looking.cancel()
            self._looking = self._loop.call_soon(self._look)

    async def take_suspects(self) -> None:
        """Take the suspects that wait, if it is time for that: one at a time, while the process holds nothing else."""
        waits = self._taking.suspects_wait and not self.alone.is_taken
        if waits and self._turns.due_in(self.handling.time.now(), self.alone.held) <= 0:
            self.origin.receiver.prefetch_count = 0
            self._has_taken = True
            await self.handling.prepare()
            await self.alone.turn(self, self._turns, self._take_alone)

    async def _take_alone(self, began: float) -> None:
        self._taking.suspects, self._taking.hands = True, 1
        try:
            while self._turns.goes_on(began, self.handling.time.now()) and self.room > 0:
                messages = self.begun(await self.origin.receiver.receive_messages(1, 0))
                if not messages:
                    break
                with self.alone.handling(self.entity, messages[0]):
                    self.start_messages(messages)
                    await asyncio.sleep(0)
                    await self.alone.calm()
                if not self.handling.ready:
                    break
        finally:
            self._taking.suspects, self._taking.hands = False, self._hands
            with suppress(TimeoutError):  # a reply that is under way may bring a suspect: nothing begins before that
                async with asyncio.timeout(self._turns.patience):
                    await self.let_go()

    async def innocent(self, messages: list[ServiceBusReceivedMessage]) -> list[ServiceBusReceivedMessage]:
        """Return the messages that may be handled beside others. Give suspects that came after their turn back.

        The next call is made after that, so that it learns that they wait.
        """
        if not self._has_taken or not any([message.is_suspect for message in messages]):  # noqa: C419 -- faster
            return messages
        late = [message for message in messages if message.is_suspect]
        others = [message for message in messages if not message.is_suspect]
        released = self.settlements.started(self.settlements.release(late), len(late))
        try:
            await asyncio.wait((released,), timeout=self._turns.patience)
        except asyncio.CancelledError:
            self.give_back(others)
            raise
        return others

    def start_messages(self, messages: list[ServiceBusReceivedMessage]) -> None:
        """Start the handlers of messages, for which there is room."""
        raise NotImplementedError

    # -- locks ---------------------------------------------------------------------------------------------------------

    def renewables(self) -> Iterable[Renewable]:
        """Return the messages that handlers work on now. Called in another thread."""
        starting = self._starting  # before the others, because it soon is one of them
        calls = snapshot(self._running.values())
        if starting is not None and starting not in calls:
            calls.append(starting)
        calls = [call for call in calls if not call.state.is_left and self._limit.allows(call, call.messages)]
        return [message for call in calls for message in call.messages]

    def lost(self, renewable: Renewable) -> bool:
        """End the call of a message whose lock was lost: cancel a coroutine, kill a process, and tell a thread.

        A batch goes on, because it has the locks of its other messages.
        """
        for task, call in self._running.items():
            for message in call.messages:
                if message is renewable:
                    self._lost(task, call, message)
                    return True
        return False

    def _lost(self, task: asyncio.Task[None], call: HandlerCall, message: ServiceBusReceivedMessage) -> None:
        self.origin.counts.locks_lost += 1
        if call.handler.settings.batch is not None:
            call.lost_messages = [*call.lost_messages, message]
        elif call.lose_lock() is CallTask.CANCEL:
            task.cancel()

    # -- the end -------------------------------------------------------------------------------------------------------

    def cancel(self) -> None:
        """Cancel the running handlers once, except those in threads, which cannot be cancelled."""
        for task, call in self._running.items():
            if call not in self._cut_off and call.cut_off() is CallTask.CANCEL:
                self._cut_off.append(call)
                task.cancel()

    async def finish(self, seconds: float, cancelling: float = CANCELLING) -> None:
        """Let the running handlers finish. Cancel the rest, and give their messages back uncounted.

        ``cancelling`` is the number of seconds that cancelled handlers get to end.

        Messages whose plain functions still wait for a thread are given back first: those functions never begin. A
        message whose handler ends well although it was cancelled is completed. A thread cannot be cancelled, and a
        coroutine may go on although it was. The message of such a handler is not given back while it runs: another
        worker would handle it at the same time. It comes again when its lock ends, and its delivery counts.
        """
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
        await self._give_back_stopped([call for call in self._running.values() if call.unqueue()])
        if self._running:
            await asyncio.wait(set(self._running), timeout=seconds)
        left = {task: call for task, call in self._running.items() if not call.state.is_left}
        self.cancel()
        if left:
            await asyncio.wait(left, timeout=cancelling)
        for task, call in left.items():
            if self._running.get(task) is call and call.leave():
                self.left.add(task)
                if call.in_thread:
                    task.cancel()
        await self._give_back_stopped(self._cut_off)
        await self.settlements.all_settled()

    async def _give_back_stopped(self, calls: Iterable[HandlerCall]) -> None:
        """Stop calls, and give back the messages of those that are neither settled, lost nor left."""
        tasks = [(call.stop(), call.messages) for call in calls]
        untried = [each for task, messages in tasks if task is CallTask.GIVE_BACK_UNTRIED for each in messages]
        interrupted = [each for task, messages in tasks if task is CallTask.GIVE_BACK for each in messages]
        await self.settlements.release(untried)
        await self.settlements.release(interrupted, interrupted=True)


class Consumer(RunningCalls):
    """The consumer of one entity. It asks for as many messages as handlers may start, so no message waits here.

    The receiver fetches further messages ahead if the handlers are fast.
    """

    def __init__(
        self,
        plan: EntityPlan,
        handling: Handling,
        settlements: CallSettler,
        prefetching: Prefetching,
        alone: Alone | None = None,
    ) -> None:
        super().__init__(plan, handling, settlements, alone)
        self._prefetching = prefetching
        self._next = deque[HandlerCall]()
        """The calls whose handlers begin in this turn of the event loop, unless the handler before them blocks it."""
        self._waits_since: float | None = None
        """The time since which no handler could start; ``None`` if one can."""
        self._resting: asyncio.TimerHandle | None = None

    async def consume(self) -> None:
        """Receive messages and start handlers until cancelled. Errors of the receiver reach the caller."""
        while True:
            await self.take_suspects()
            if self.gates and self.gates.room(self.handling.time.now(), 2) < 2:
                self._prefetch(0)
                room = await self.room_for_one()
            else:
                room = self.room
                if room <= 0:
                    room = await self._room_after_wait()
                size = self._prefetching.size_after(self.origin.receiver.prefetch_count)
                self._prefetch(self.handling.limit.at_most(size))
            messages = await self.innocent(await self.origin.receiver.receive_messages(room, 60, gather=False))
            if self.gates:
                messages = self.admitted(messages)
            if not self.alone.lets_begin(self):
                self.give_back(messages)
                continue
            self.start_messages(self.begun(messages))
            await asyncio.sleep(0)  # now all calls have ended, or have tasks of their own

    def start_messages(self, messages: list[ServiceBusReceivedMessage]) -> None:
        """Start the handlers of messages, for which there is room."""
        self.origin.counts.received += len(messages)
        self.handling.note_beginning(self.origin, messages)
        waiting = iter(messages)
        calls: deque[HandlerCall] = deque()
        try:
            for message in waiting:
                if (call := self._call_for(message)) is not None:
                    calls.append(call)
        except Exception:
            self.give_back(list(waiting))  # the message that failed comes again when its lock ends, and counts
            raise
        finally:
            if calls:
                self._next = calls
                self.cover([call.message for call in calls], self.plan.settings.max_auto_lock_renewal_duration)
                _ = new_task(self._loop, SharedTask(self, calls).run())

    @property
    def held(self) -> int:
        return super().held + len(self._next)

    async def _room_after_wait(self) -> int:
        """Wait until a handler may start. If that takes long, give back what was fetched ahead: others may be idle."""
        if not self._prefetching.adapts or self.origin.receiver.prefetch_count == 0:
            return await self.room_for_one()
        self._waits_since = self._loop.time()
        if self._resting is None:
            self._resting = self._loop.call_later(_LONGEST_WAIT, self._rest)
        try:
            return await self.room_for_one()
        finally:
            self._waits_since = None

    def _rest(self) -> None:
        self._resting = None
        if self._waits_since is None:
            return
        left = self._waits_since + _LONGEST_WAIT - self._loop.time()
        if left > 0:
            self._resting = self._loop.call_later(left, self._rest)
        else:
            self.origin.receiver.prefetch_count = 0

    def _prefetch(self, size: int) -> None:
        receiver = self.origin.receiver
        if abs(size - receiver.prefetch_count) * 4 > receiver.prefetch_count:  # not for every small change
            receiver.prefetch_count = size
        if (warning := self._prefetching.warning()) is not None:
            _log.warning("%s: %s", self.plan.source.path, warning)

    async def finish(self, seconds: float, cancelling: float = CANCELLING) -> None:
        """Give back what was fetched ahead, let the running handlers finish, and give the rest back uncounted."""
        if self._resting is not None:
            self._resting.cancel()
        with suppress(ValueError):  # the client is closed, so nothing is fetched ahead any more
            self.origin.receiver.prefetch_count = 0
        await super().finish(seconds, cancelling)

    def _call_for(self, message: ServiceBusReceivedMessage) -> HandlerCall | None:
        """Return the call of the handler that takes a message. Settle the message if no handler takes it."""
        chosen = self.handling.choose(message)
        if isinstance(chosen, HandlerPlan):
            return HandlerCall(self.origin, chosen, (message,))
        self.settlements.settle_soon(HandlerCall(self.origin, self.plan.handlers[0], (message,)), chosen)
        return None

    def renewables(self) -> Iterable[Renewable]:
        """Return the messages that handlers work on now, or begin to work on. Called in another thread."""
        return [*(call.message for call in snapshot(self._next)), *super().renewables()]

    # -- for the shared task -------------------------------------------------------------------------------------------

    def began(self, task: asyncio.Task[None], item: HandlerCall) -> None:
        """Note that a task works on a call."""
        self._running[task] = item

    def ended(self, task: asyncio.Task[None]) -> None:
        """Note that a task no longer works on its call."""
        del self._running[task]
        self._make_room()

    def failed(self, item: HandlerCall, error: Exception) -> None:
        """Log an error that is not expected."""
        _log.error("%s ended in a way that was not expected", item.handler.name, exc_info=error)

    def start_alone(self, item: HandlerCall) -> None:
        """Run a call in a task of its own."""
        self.start(item, self.work_on(item))

    async def work_on(self, call: HandlerCall, /) -> None:
        """Call the handler, and settle the message by the outcome."""
        if self.has_ended(call.message):
            self.origin.counts.locks_lost += 1
            self.give_back(call.messages)
            return
        (outcome,) = outcomes = await self.handling.outcomes_of(call)
        if call.end(outcomes) is not CallTask.SETTLE or outcome is None:
            return
        if type(outcome) is Complete and not call.additions and call.context is None:
            self.settlements.complete_soon(call.message)
        elif type(outcome) is Complete and Gathering.takes(call):
            self.settlements.transact_soon(call)
        else:  # it belongs to the span of its handler
            self.settlements.settle_soon(call, outcome)
