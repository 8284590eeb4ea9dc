"""Consume the messages of an entity with sessions: accept sessions, and handle the messages of each in order."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from sbredis.aio.shared_sessions import (
    accept_sessions,
    asking,
    has_messages,
    is_empty,
    is_released,
    kept_messages,
    others_wait_elsewhere,
    receive_or_release,
)
from sbredis.exceptions import ServiceBusError, SessionLockLostError
from sbredis.model import NEXT_AVAILABLE_SESSION, ServiceBusReceivedMessage, Taking, taking_of
from sbredis.workers.declaring._handlers import EntityPlan, HandlerPlan
from sbredis.workers.declaring._outcomes import Abandon, Complete, GiveBack, Outcome
from sbredis.workers.running._batches import BatchSize, call_of, filled, settle_parts
from sbredis.workers.running._call_states import CallState, CallTask
from sbredis.workers.running._calls import CallOrigin, HandlerCall
from sbredis.workers.running._consuming import CANCELLING
from sbredis.workers.running._gates import Gates
from sbredis.workers.running._handling import Handling
from sbredis.workers.running._injecting import Scopes
from sbredis.workers.running._locks import Renewable, RenewalLimit, cover_nothing, snapshot
from sbredis.workers.running._session_slots import SessionSlots, SlotEvent, SlotState
from sbredis.workers.running._settling import CallSettler
from sbredis.workers.running._suspects import Alone, SuspectTurns
from sbredis.workers.running._tracebacks import for_the_log

if TYPE_CHECKING:
    from sbredis.aio import ServiceBusClient, ServiceBusSessionReceiver

__all__ = ["SessionConsumer"]

_log = logging.getLogger("sbredis.worker")
_AHEAD: Final = 10
"""The number of messages of a session that are received with one call."""
_WAITING: Final = 60.0
"""The seconds to wait for free sessions. Then the consumer asks again."""
_SETTLING: Final = frozenset({CallState.DECIDED, CallState.DECIDED_LATE})
"""The states in which the worker settles the messages of a call of a session."""


class _Slot(CallOrigin):
    """A slot of a consumer, with the session that has taken it. It is compared as an object."""

    __slots__ = ("call", "has_room", "held", "settlements", "task", "turn")
    task: asyncio.Task[None]
    """The task that works on the session."""
    turn: asyncio.Future[None]
    """The turn of its suspect, once it waits for one."""

    def __init__(self, receiver: ServiceBusSessionReceiver, settlements: CallSettler) -> None:
        super().__init__(settlements.entity, receiver, settlements.counts, receiver.session)
        self.held = receiver
        """The receiver of the session."""
        self.settlements = settlements
        self.call: HandlerCall | None = None
        """The call that runs or is settled."""
        self.has_room = False
        """Whether it has room for its dependencies."""

    async def settle(self, call: HandlerCall, outcome: Outcome) -> Outcome:
        """Settle the messages of a call now."""
        return await self.settlements.settle(call, outcome)


class SessionConsumer:
    """The consumer of one entity with sessions.

    Each session is held by a task of its own, which handles one message after the other: the next call waits until the
    outcome of the one before it is acknowledged. The task gives the session back when no message has come for a while,
    when it has held the session for long enough, and after a message that comes again: nothing may overtake it.

    A session without messages does not keep others waiting. While slots have such sessions, the consumer accepts as
    many sessions more, and gives back those that have been without messages for longest. If it is known that others
    wait, a session is released with the call that finds no further messages.

    A session whose next message is a suspect gives all its messages back, and waits for its turn. In that turn the
    process has no other message: all other sessions are given back. If the process dies, only the messages of running
    calls count, for each session.
    """

    def __init__(
        self,
        plan: EntityPlan,
        handling: Handling,
        client: ServiceBusClient,
        settlements: CallSettler,
        app: Scopes,
        *,
        alone: Alone | None = None,
    ) -> None:
        self._plan = plan
        self._handling = handling
        self._client = client
        self._settlements = settlements
        self._app = app
        self.gates = Gates(plan.handlers)
        self._room = asyncio.Event()
        self._slots: SessionSlots[_Slot] = SessionSlots(plan.settings.max_concurrent_calls)
        self._failed: Exception | None = None
        """An error that should not happen, which has ended the work on a session."""
        self._stopping = False
        self._scopes = asyncio.Semaphore(plan.settings.max_concurrent_calls)
        """Room for the dependencies of sessions. A session that was accepted early waits for that of an ending one."""
        self._size = BatchSize(plan)
        self._in_batches = plan.in_batches
        self.cover: Callable[[Sequence[Renewable], float | None], None] = cover_nothing
        self._limit = RenewalLimit(plan.settings.max_auto_lock_renewal_duration, handling.time, self.lost)
        self._alone = Alone(handling.time) if alone is None else alone
        self._alone.join(self)
        self._accepting: Taking | None = None
        """How the receiver takes sessions that waits for them now."""
        self._turns = SuspectTurns()
        self._turning: asyncio.Task[None] | None = None
        """Gives turns to the sessions that wait."""

    async def consume(self) -> None:
        """Accept sessions until cancelled. Errors of accepting reach the caller."""
        while True:
            await self._room_for_one()
            if (error := self._failed) is not None:
                self._failed = None
                raise error
            surplus: list[ServiceBusSessionReceiver] = []
            try:
                accepted = await accept_sessions(self._receiver(), self._acceptable, _AHEAD, _WAITING)
            finally:
                self._accepting = None
            for receiver in accepted:
                if self._slots.free <= 0 and not self._replace():
                    surplus.append(receiver)  # a session that was idle has messages again
                else:
                    self._take_slot(receiver)
            await asyncio.gather(*(receiver.close() for receiver in surplus))

    def _take_slot(self, receiver: ServiceBusSessionReceiver) -> None:
        """Let a session take a slot, and work on it in a task of its own."""
        slot = _Slot(receiver, self._settlements)
        self._slots.take(slot)
        slot.task = asyncio.get_running_loop().create_task(self._hold(slot))
        slot.task.add_done_callback(partial(self._given_back, slot))

    @property
    def _acceptable(self) -> int:
        """The number of sessions to accept now: not more than may begin a message."""
        room = self._handling.limit.at_most(self._slots.free + len(self._slots.those(SlotState.IDLE)))
        return self.gates.room(self._handling.time.now(), room) if self.gates else room

    def _receiver(self) -> ServiceBusSessionReceiver:
        receiver = self._client.get_receiver(self._plan.source.path, session_id=NEXT_AVAILABLE_SESSION)
        self._accepting = taking = taking_of(receiver)
        taking.hands = self._plan.handlers[0].settings.batch or 1
        taking.suspects = False  # it gets them all the same, but if the process dies, none of them counts
        return receiver

    @property
    def _ahead(self) -> int:
        """The number of messages of a session that are received with one call."""
        return self._size.most if self._in_batches else _AHEAD

    def _replace(self, state: SlotState = SlotState.IDLE) -> bool:
        """Give back the session that is in a state for longest. Return whether there is one."""
        slot = self._slots.longest_in(state)
        if slot is None:
            return False
        self._slots.happens(slot, SlotEvent.REPLACE)
        slot.task.cancel()
        return True

    async def _room_for_one(self) -> None:
        """Wait until one more session may be accepted."""
        time = self._handling.time
        while self._slots.free + len(self._slots.those(SlotState.IDLE)) <= 0 or not self._admits():
            self._room.clear()
            await time.wait(self._room, self.gates.wait(time.now()) if self.gates else None)

    def _admits(self, slot: _Slot | None = None) -> bool:
        """Return whether suspects, the gates, and the number of messages of the process let a handler start."""
        if not self._handling.limit.left:
            return False
        if self._alone.is_taken and (slot is None or self._slots.state_of(slot) is not SlotState.CHOSEN):
            return False
        return not self.gates or self.gates.room(self._handling.time.now(), 1) > 0

    # -- suspects ------------------------------------------------------------------------------------------------------

    @property
    def entity(self) -> str:
        """The path of the entity."""
        return self._plan.source.path

    @property
    def held(self) -> int:
        """The number of calls that run or are settled; while suspects are taken, of sessions that may have any."""
        if self._alone.is_taken:
            waiting = self._slots.those(SlotState.WAITING)
            return len(self._slots) - len(waiting) + (self._accepting is not None)
        return sum([slot.call is not None for slot in self._slots.taken])

    def rest(self) -> None:
        """Begin no message, because another consumer of the process takes suspects."""

    async def let_go(self) -> None:
        """Give back all sessions, apart from those whose suspects wait. A call that is running ends before that."""
        while self._replace() or self._replace(SlotState.OPENING):  # the one that waits may have the room they wait for
            pass
        if (accepting := self._accepting) is not None and accepting.inbox is not None:
            with suppress(ServiceBusError):  # the partition is away, so its sessions cannot be begun either
                await accepting.inbox.let_go()

    def resume(self) -> None:
        """Begin messages again."""
        self._room.set()

    async def _wait_for_turn(self, slot: _Slot) -> None:
        """Wait, without any message, until the session may have its suspect."""
        taking = taking_of(slot.held)
        if taking.inbox is not None:
            with suppress(ServiceBusError):  # an error of the partition comes again with the next call
                await taking.inbox.let_go()
        slot.turn = asyncio.get_running_loop().create_future()
        self._slots.happens(slot, SlotEvent.SUSPECT)
        if self._turning is None or self._turning.done():
            self._turning = asyncio.create_task(self._give_turns())
            self._turning.add_done_callback(self._turns_ended)
        self._alone.noted()
        await slot.turn
        taking.suspects = True

    def _turns_ended(self, turning: asyncio.Task[None]) -> None:
        if not turning.cancelled() and (error := turning.exception()) is not None:
            for slot in self._slots.those(SlotState.WAITING):
                if not slot.turn.done():
                    slot.turn.set_exception(error)

    async def _give_turns(self) -> None:
        """Give turns to the sessions that wait, as long as there are any."""
        while self._slots.those(SlotState.WAITING):
            left = self._turns.due_in(self._handling.time.now(), self._alone.held)
            if left > 0 or self._alone.is_taken:
                await self._alone.change()
            else:
                await self._handling.prepare()
                await self._alone.turn(self, self._turns, self._take_alone)

    async def _take_alone(self, began: float) -> None:
        while (slot := self._slots.longest_in(SlotState.WAITING)) is not None and self._turns.goes_on(
            began, self._handling.time.now()
        ):
            self._slots.happens(slot, SlotEvent.CHOOSE)
            if not slot.turn.done():  # otherwise the session was lost, or the worker ends
                slot.turn.set_result(None)
            try:
                await asyncio.wait((slot.task,))  # it gives its session back after the suspect
            finally:
                if slot.call is None and not slot.task.done():  # others begin when it has given its message back
                    slot.task.cancel()
                    await asyncio.wait((slot.task,), timeout=self._turns.patience)
                self._slots.happens(slot, SlotEvent.TURN_OVER)
            if not self._handling.ready:
                break

    def _given_back(self, slot: _Slot, task: asyncio.Task[None]) -> None:
        self._slots.give_up(slot)
        self._alone.noted()
        self._give_up_room(slot)
        self._room.set()
        error = None if task.cancelled() else task.exception()
        if isinstance(error, ServiceBusError):
            _log.warning("%s: a session was given back after an error: %s", self._plan.source.path, error)
        elif isinstance(error, Exception):
            self._failed = error

    async def _hold(self, slot: _Slot) -> None:
        receiver, task = slot.held, asyncio.current_task()
        assert task is not None
        slot.task = task  # with an eager task factory, nobody else knows it yet
        settings = self._plan.settings
        self.cover((receiver.session,), settings.max_auto_lock_renewal_duration)
        scopes = self._app.inner("session")
        time = self._handling.time
        ends, left = time.now() + settings.max_session_time, settings.max_session_messages
        wait = self._plan.handlers[0].settings.batch_wait if self._in_batches else 0.0
        handle_all = self._handle_batch if self._in_batches else self._handle_all
        suspect = False
        try:
            await self._have_scope(slot)
            while not self._stopping and time.now() < ends and left != 0 and self._admits(slot):
                wanted = self._handling.limit.at_most(self._ahead if left is None else min(self._ahead, left))
                messages = await self._next(slot, 1 if suspect else wanted, wait)
                if not suspect and (innocent := _before_suspect(messages)) < len(messages):
                    await self._settlements.release(messages[innocent:], origin=slot)
                    if not (messages := messages[:innocent]):
                        await self._wait_for_turn(slot)
                        ends, suspect = math.inf, True
                        continue
                if suspect and self._slots.state_of(slot) is not SlotState.CHOSEN:
                    break  # its turn was over before its message came
                if suspect and messages:
                    with self._alone.handling(self.entity, messages[0]):
                        await handle_all(slot, messages, scopes, ends)
                if suspect or not messages or not await handle_all(slot, messages, scopes, ends):
                    break
                left = None if left is None else left - len(messages)
        except SessionLockLostError as error:
            if not is_released(receiver):  # otherwise a call whose answer was lost has let go of the session
                _log.warning("%s: %s", self._plan.source.path, error)
        finally:
            self._slots.happens(slot, SlotEvent.END)
            call = slot.call
            if call is not None:
                await self._end_call(call)
                self._holds_no_call(slot)
            if scopes.unused:
                self._give_up_room(slot)
            await receiver.close(release_session=call is None or not (call.state.is_left or call.in_thread))
            if not scopes.unused:  # its dependencies keep the slot until they are cleaned up
                self._slots.happens(slot, SlotEvent.CLEAN_UP)
                await self._clean_up(scopes)

    async def _have_scope(self, slot: _Slot) -> None:
        """Wait for room for the dependencies of a session, unless the session is given back at once."""
        if not (self._stopping or self._alone.is_taken):
            self._slots.happens(slot, SlotEvent.OPEN)
            await self._scopes.acquire()
            slot.has_room = True
            self._slots.happens(slot, SlotEvent.BEGIN)

    def _give_up_room(self, slot: _Slot) -> None:
        if slot.has_room:
            slot.has_room = False
            self._scopes.release()

    async def _next(self, slot: _Slot, wanted: int, wait: float) -> list[ServiceBusReceivedMessage]:
        """Return the next messages of a session; none if the session is to be given back, or was released."""
        receiver = slot.held
        if is_released(receiver):
            return []
        messages: list[ServiceBusReceivedMessage] | None = []
        if has_messages(receiver):
            if self._in_batches:
                messages = await filled(receiver, wanted, 0, wait, self._handling.time)
            else:
                messages = kept_messages(receiver, wanted)
        elif not is_empty(receiver):
            others = self._may_leave_slot(slot)
            messages = await receive_or_release(receiver, wanted, others=others)
            self._leaves_slot(slot, leaves=messages is None)
        if messages is None:
            return []
        return messages or await self._more(slot, wanted, wait)

    def _may_leave_slot(self, slot: _Slot) -> bool:
        """Return whether no slot is free and sessions wait in other partitions.

        Then one of them may be accepted before this one is released.
        """
        others = self._slots.free <= 0 and others_wait_elsewhere(slot.held, _AHEAD)
        if others:
            self._leaves_slot(slot, leaves=True)
        return others

    def _leaves_slot(self, slot: _Slot, *, leaves: bool) -> None:
        if self._slots.happens(slot, SlotEvent.LEAVE if leaves else SlotEvent.STAY) and leaves:
            self._room.set()

    async def _settle_last(self, slot: _Slot, call: HandlerCall, outcome: Outcome) -> Outcome | None:
        """Settle the last message that is here. The same call asks for more, or releases the session if others wait."""
        receiver, settlements = slot.held, self._settlements
        if not isinstance(outcome, Complete) or has_messages(receiver) or self._stopping or self._alone.is_taken:
            return await settlements.settle_reporting(call, outcome)
        others, company = self._may_leave_slot(slot), len(self._slots) > 1
        with asking(receiver, self._ahead, _AHEAD, others=others, in_company=company):
            settled = await settlements.settle_reporting(call, outcome)
        self._leaves_slot(slot, leaves=is_released(receiver))
        return settled

    async def _more(self, slot: _Slot, wanted: int, wait: float) -> list[ServiceBusReceivedMessage]:
        """Wait for messages of a session that has none now, unless another session takes its slot."""
        receiver = slot.held
        self._slots.happens(slot, SlotEvent.EMPTY)
        self._room.set()
        try:
            idle, time = self._plan.settings.session_idle_timeout, self._handling.time
            return await filled(receiver, wanted, idle, wait, time, goes_on=lambda: not is_released(receiver))
        finally:
            self._slots.happens(slot, SlotEvent.FILLED)

    async def _end_call(self, call: HandlerCall) -> None:
        """Decide what becomes of the messages of a call that the work on its session leaves unsettled."""
        settlements = self._settlements
        match call.stop() if self._stopping else call.broken():
            case CallTask.GIVE_BACK:
                await settlements.release(call.messages, origin=call.origin, interrupted=True)
            case CallTask.GIVE_BACK_UNTRIED:
                await settlements.release(call.messages, origin=call.origin)
            case CallTask.ABANDON:  # the end of the session gives them back uncounted: they would come again for ever
                for message in call.messages:
                    await settlements.settle_reporting(call.part((message,)), self._again(call, message))
            case _:
                pass

    def _again(self, call: HandlerCall, message: ServiceBusReceivedMessage) -> Abandon:
        """Return the outcome of a message that its handler has left unsettled: nothing may overtake it."""
        return Abandon(call.handler.retries.delay(message.delivery_count, self._handling.draw))

    async def _clean_up(self, scopes: Scopes) -> None:
        """End the dependencies of a session. Their errors belong to the application."""
        try:
            await scopes.close()
        except Exception as error:  # noqa: BLE001 -- a function of the application may raise anything
            said = "%s: a dependency of a session could not be cleaned up"
            _log.error(said, self._plan.source.path, exc_info=for_the_log(error))

    async def _handle_all(
        self,
        slot: _Slot,
        messages: Sequence[ServiceBusReceivedMessage],
        scopes: Scopes,
        ends: float,
    ) -> bool:
        """Handle messages in their order. Return whether the session may be kept."""
        for message in messages:
            if self._stopping or self._handling.time.now() >= ends or not self._admits(slot):
                return False
            if not slot.held.session.locked:  # the process was suspended, or a handler has blocked the event loop
                return self._ended_before(slot, message)
            self._handling.limit.take(1)
            slot.counts.received += 1
            chosen = self._handling.choose(message)
            handler = chosen if isinstance(chosen, HandlerPlan) else self._plan.handlers[0]
            call = slot.call = HandlerCall(slot, handler, (message,))
            if isinstance(chosen, Outcome):
                outcome: Outcome | None = chosen
            else:
                self._handling.note_beginning(slot, call.messages)
                (outcome,) = await self._handling.outcomes_of(call, scopes)
                await self._forget_cancellation(slot.task, call)
            outcome = outcome or self._again(call, message)
            if call.end((outcome,)) is CallTask.SETTLE:
                if message is messages[-1]:
                    settled = await self._settle_last(slot, call, outcome)
                else:
                    settled = await self._settlements.settle_reporting(call, outcome)
                if _comes_again(settled):
                    return False
            elif not _may_go_on(call):
                return False
            self._holds_no_call(slot)
        return not is_released(slot.held)

    def _holds_no_call(self, slot: _Slot) -> None:
        slot.call = None
        self._alone.noted()

    def _ended_before(self, slot: _Slot, message: ServiceBusReceivedMessage) -> bool:
        """Report that the lock on a session ended before a handler began its next message. The session is not kept."""
        said = "%s: the lock on session %r ended before the message %s began; it comes again"
        _log.warning(said, self._plan.source.path, slot.held.session.session_id, message.sequence_number)
        return False

    async def _handle_batch(
        self,
        slot: _Slot,
        messages: Sequence[ServiceBusReceivedMessage],
        scopes: Scopes,
        ends: float,
    ) -> bool:
        """Handle messages in batches. Return whether the session may be kept."""
        rest = deque(messages)
        try:
            chosen = self._handling.choose(rest[0])
            while rest:
                if self._stopping or self._handling.time.now() >= ends or not self._admits(slot):
                    return False
                if not slot.held.session.locked:
                    return self._ended_before(slot, rest[0])
                own, following = self._run_of(chosen, rest)
                count = self._handling.limit.take(len(own))
                if count < len(own):
                    rest.extendleft(reversed(own[count:]))
                    own, following = own[:count], chosen
                slot.counts.received += len(own)
                if isinstance(chosen, HandlerPlan):
                    call, others = call_of(chosen, own, self._handling, slot)
                else:
                    call, others = None, [(HandlerCall(slot, self._plan.handlers[0], own), chosen)]
                for unhandled, outcome in others:
                    slot.call = unhandled
                    unhandled.end((outcome,))
                    if _comes_again(await self._settlements.settle_reporting(unhandled, outcome)):
                        return False
                if call is not None and not await self._handle_run(slot, call, scopes):
                    return False
                self._holds_no_call(slot)
                if following is not None:
                    chosen = following
            return True
        finally:
            await self._settlements.release(rest, origin=slot)

    def _run_of(
        self, chosen: HandlerPlan | Outcome, rest: deque[ServiceBusReceivedMessage]
    ) -> tuple[list[ServiceBusReceivedMessage], HandlerPlan | Outcome | None]:
        """Take the next messages that one handler gets together: nothing may overtake a message of another handler.

        ``chosen`` is the handler of the first one, or its outcome if no handler gets it. Returns the messages, and the
        handler or the outcome of the message after them.
        """
        own = [rest.popleft()]
        while rest:
            following = self._handling.choose(rest[0])
            if following is not chosen or isinstance(chosen, Outcome):
                return own, following
            own.append(rest.popleft())
        return own, None

    async def _handle_run(self, slot: _Slot, call: HandlerCall, scopes: Scopes) -> bool:
        """Handle messages of one handler. Return whether further messages may be handled after them."""
        slot.call = call
        self._handling.note_beginning(slot, call.messages)
        outcomes = await self._handling.outcomes_of(call, scopes)
        await self._forget_cancellation(slot.task, call)
        decided = [
            outcome or self._again(call, message) for message, outcome in zip(call.messages, outcomes, strict=True)
        ]
        if call.end(decided) is CallTask.SETTLE:
            settled = await settle_parts(self._settlements, call, decided)
            self._size.adapt(call)
            return not any(_comes_again(each) for each in settled)
        return _may_go_on(call)

    async def _forget_cancellation(self, task: asyncio.Task[None], call: HandlerCall) -> None:
        """Take back that a handler has cancelled its own task, which has further messages to handle."""
        if task.cancelling() and call.state.is_free:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
            while task.uncancel():
                pass

    # -- locks ---------------------------------------------------------------------------------------------------------

    def renewables(self) -> Iterable[Renewable]:
        """Return the sessions that are held. Called in another thread."""
        allows = self._limit.allows
        kept = [slot for slot in snapshot(self._slots.taken) if self._slots.state_of(slot) is not SlotState.LEFT]
        return [slot.held.session for slot in kept if allows(slot.call, (slot.held.session,))]

    def lost(self, renewable: Renewable) -> bool:
        """End the work on a session whose lock was lost."""
        for slot in self._slots.taken:
            if slot.session is renewable:
                if slot.call is not None:
                    slot.call.origin.counts.locks_lost += 1
                if slot.call is None or slot.call.lose_lock() is CallTask.CANCEL:
                    slot.task.cancel()
                return True
        return False

    # -- the end -------------------------------------------------------------------------------------------------------

    def cancel(self) -> None:
        """Cancel the running handlers once at the end, except those in threads, which cannot be cancelled."""
        self._stopping = True  # their messages are given back uncounted, also if `finish` was not reached yet
        if self._turning is not None:
            self._turning.cancel()
        for slot in self._slots.taken:
            if slot.call is None or (
                slot.call.cut_off() is CallTask.CANCEL and self._slots.happens(slot, SlotEvent.CUT_OFF)
            ):
                slot.task.cancel()

    async def finish(self, seconds: float, cancelling: float = CANCELLING) -> None:
        """Let the running handlers finish. Cancel the rest, and give their messages back uncounted.

        A session whose handler runs on, in a thread or although it was cancelled, stays locked until its lock ends.
        """
        self._stopping = True
        if self._turning is not None:
            self._turning.cancel()
        for slot in self._slots.taken:
            if slot.call is not None:
                slot.call.unqueue()
            elif self._slots.state_of(slot) is not SlotState.ACCEPTED and not self._ends(slot):  # it waits
                slot.task.cancel()
        if len(self._slots):
            await asyncio.wait([slot.task for slot in self._slots.taken], timeout=seconds)
        calls = {slot: slot.call for slot in self._slots.taken if self._slots.state_of(slot) is not SlotState.LEFT}
        self.cancel()
        if calls:
            await asyncio.wait([slot.task for slot in calls], timeout=cancelling)
        for slot, call in calls.items():
            if self._slots.state_of(slot) is not None and slot.call is call:
                await self._leave(slot)
        settling = [slot.task for slot in self._slots.taken if slot.call is not None and slot.call.state in _SETTLING]
        if settling:
            await asyncio.wait(settling)

    def _ends(self, slot: _Slot) -> bool:
        """Return whether a session is given back already."""
        state = self._slots.state_of(slot)
        return state is None or state.ends

    @property
    def left(self) -> set[asyncio.Task[None]]:
        """The tasks that the worker has left."""
        return {slot.task for slot in self._slots.those(SlotState.LEFT)}

    async def _leave(self, slot: _Slot) -> None:
        """Leave a task that does not end, with its session locked if a handler still works on it."""
        call = slot.call
        if call is None:
            if self._ends(slot):
                self._slots.happens(slot, SlotEvent.ABANDON)
                _log.warning(
                    "%s: the end of a session, or the clean-up of its dependencies, goes on although it was cancelled: "
                    "the worker ends without it",
                    self._plan.source.path,
                )
        elif not self._ends(slot) and call.leave():
            self._slots.happens(slot, SlotEvent.ABANDON)
            if call.in_thread:
                slot.task.cancel()
            await slot.held.close(release_session=False)


def _before_suspect(messages: Sequence[ServiceBusReceivedMessage]) -> int:
    """Return how many messages come before the first suspect."""
    for place, message in enumerate(messages):
        if message.is_suspect:
            return place
    return len(messages)


def _comes_again(outcome: Outcome | None) -> bool:
    """Return whether a message with this outcome comes again, or could not be settled: nothing may overtake it."""
    return outcome is None or isinstance(outcome, (Abandon, GiveBack))


def _may_go_on(call: HandlerCall) -> bool:
    """Return whether the next message of a session may be handled after a call that the worker does not settle.

    It may if the handler has settled its messages, the session is still locked, and none of them comes again.
    """
    return call.state.is_settled and not call.state.has_lost_lock and not call.comes_again
