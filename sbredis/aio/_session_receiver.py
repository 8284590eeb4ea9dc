"""Receiving the messages of one session."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

from sbredis._public import public
from sbredis.aio._receiver import ServiceBusReceiver
from sbredis.aio._session import ServiceBusSession
from sbredis.client import deadline_of
from sbredis.exceptions import OperationTimeoutError, Outcome
from sbredis.model import Hold, ServiceBusReceivedMessage, ServiceBusReceiveMode, hold_of
from sbredis.receiving import (
    SessionInbox,
    accept_named,
    accept_next,
    is_failed_delivery,
    require_not_forwarding,
    require_sessions,
)

if TYPE_CHECKING:
    from sbredis.aio._options import ReceiverOptions
    from sbredis.client import Connection, Creation, Entity
    from sbredis.receiving import HeldSession
    from sbredis.telemetry import Telemetry

__all__ = ["ServiceBusSessionReceiver"]

_DEFAULT_SESSION_WAIT = 65.0
"""The seconds that Azure's service waits for a free session by default."""


@public
class ServiceBusSessionReceiver(ServiceBusReceiver):
    """Receives the messages of one session, in their order.

    Made by :meth:`ServiceBusClient.get_queue_receiver` and ``get_subscription_receiver`` with a ``session_id``, and by
    ``accept_next_session``. The receiver accepts the session when it is opened, and releases it when it is closed.

    If an :class:`Exception` ends the block of ``async with receiver``, this counts as a failed delivery of each message
    that the application has received and not settled. So a message that makes its handler fail reaches the delivery
    limit. A cancellation, an interruption, a lost lock and :meth:`close` do not count as failed deliveries.
    """

    def __init__(
        self,
        connection: Connection,
        name: str,
        telemetry: Telemetry,
        *,
        client_identifier: str,
        create: Creation | None,
        options: ReceiverOptions,
        among: set[Any],
    ) -> None:
        super().__init__(
            connection,
            name,
            telemetry,
            client_identifier=client_identifier,
            create=create,
            options=options,
            among=among,
        )
        self._options = options
        self._session: ServiceBusSession | None = None
        """The accepted session."""
        self._accepting: asyncio.Lock | None = None
        """Lets one task at a time accept the session."""
        self._opening: asyncio.Task[HeldSession] | None = None
        """The task that accepts the session."""
        self._handed_out: dict[int, Hold] = {}
        """The messages that callers have received and not settled."""
        self._failed = False
        """Whether the ``async with`` block ended with an error that counts as a failed delivery."""
        self._leaves_locked = False
        """Whether the end of the receiver leaves the session locked."""

    @property
    def session(self) -> ServiceBusSession:
        """The session that the receiver receives from. Raises :class:`ValueError` before the session is accepted."""
        if self._session is None:
            raise ValueError(
                "The receiver has not accepted a session yet: first enter 'async with receiver' (or 'with receiver'), "
                "or receive messages."
            )
        return self._session

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._failed = is_failed_delivery(error)
        await super().__aexit__(kind, error, traceback)

    # -- messages that callers have ------------------------------------------------------------------------------------

    def _hand_over(self, messages: Sequence[ServiceBusReceivedMessage]) -> None:
        super()._hand_over(messages)
        if self._mode is ServiceBusReceiveMode.PEEK_LOCK:
            for hold in map(hold_of, messages):
                self._handed_out[id(hold)] = hold
                hold.watchers = (*hold.watchers, self._settled)

    def _settled(self, hold: Hold) -> None:
        self._handed_out.pop(id(hold), None)

    def _recalled(self, message: ServiceBusReceivedMessage, timeout: float | None) -> AbstractAsyncContextManager[None]:
        session, inbox = self._held, self._inbox
        if session is None or not isinstance(inbox, SessionInbox) or hold_of(message).lease is not session.lease:
            return nullcontext()
        self._settler.check(message, "abandon")
        return inbox.recalled(deadline_of(timeout))

    # -- accepting -----------------------------------------------------------------------------------------------------

    async def _ready(self, deadline: float, wait: float | None = None, wanted: int = 0) -> Entity:
        """Accept the session and return the entity.

        Wait up to ``wait`` seconds for a free session. Without ``wait``, use the time that was set for the receiver.
        The first ``wanted`` messages may come with a named session.
        """
        entity = await self._found(deadline)
        await entity.require(require_sessions, deadline)
        if self._held is None:
            await entity.require(require_not_forwarding, deadline)
            await self._accept(entity, deadline, self._longest_wait if wait is None else wait, wanted)
        session = self._held
        assert session is not None  # `_accept` has set the session
        session.check()
        return entity

    async def _check_kind(self, entity: Entity, deadline: float) -> None:
        """Do nothing: the kind was checked before the session was accepted."""

    @property
    def _longest_wait(self) -> float | None:
        """The time to wait for a free session if a call gives no time. ``None`` if the session is named."""
        if isinstance(self._session_id, str):
            return None
        return _DEFAULT_SESSION_WAIT if self._max_wait_time is None else self._max_wait_time

    async def _accept(self, entity: Entity, deadline: float, wait: float | None, wanted: int) -> None:
        """Accept the session, unless another task does it first. A cancelled caller leaves no session locked."""
        if self._accepting is None:
            self._accepting = asyncio.Lock()
        accepting = self._accepting
        try:
            async with asyncio.timeout_at(deadline):
                await accepting.acquire()
        except TimeoutError:
            raise OperationTimeoutError(
                f"The session of {entity.name!r} was not accepted in time.", outcome=Outcome.NEVER_SENT
            ) from None
        try:
            if self._held is None:
                self._lookup.check_open()
                if self._renewer is not None:
                    self._renewer.check_open()
                opening = self._opening = asyncio.ensure_future(self._accept_one(entity, deadline, wait, wanted))
                opening.add_done_callback(self._opened)
                try:
                    await asyncio.wait((opening,))
                except BaseException:
                    opening.cancel()
                    raise
                if opening.cancelled():
                    self._lookup.check_open()
                opening.result()
                self._lookup.check_open()  # a receiver that was closed meanwhile has given the session back
        finally:
            accepting.release()

    async def _accept_one(self, entity: Entity, deadline: float, wait: float | None, wanted: int) -> HeldSession:
        with self._telemetry.operation("accept_session", self.entity_path):
            if isinstance(self._session_id, str):
                locks = self._mode is ServiceBusReceiveMode.PEEK_LOCK  # deleted messages may get lost on their way
                return await accept_named(entity, self._session_id, deadline, first=wanted if locks else 0)
            left = deadline - asyncio.get_running_loop().time()
            return await accept_next(entity, left if wait is None else min(wait, left), deadline)

    def _opened(self, opening: asyncio.Task[HeldSession]) -> None:
        """Keep the session that was accepted, or release it if the receiver is closed."""
        if self._opening is opening:  # if this task was cancelled, another task may have replaced it
            self._opening = None
        if opening.cancelled() or opening.exception() is not None:
            return
        held = opening.result()
        if self._lookup.closed:
            held.give_back()
        else:
            self._keep(held)

    def _keep(self, held: HeldSession) -> None:
        self._held = held
        self._session = ServiceBusSession(held, self._telemetry)
        if self._renewer is not None and not self._renewer.closed:
            self._renewer.register(self, self._session)

    def _another(self) -> ServiceBusSessionReceiver:
        """Return another receiver with the same options, which takes messages in the same way."""
        made = ServiceBusSessionReceiver(
            self._connection,
            self._lookup.name,
            self._telemetry,
            client_identifier=self._client_identifier,
            create=None,
            options=self._options,
            among=self._among,
        )
        made._taking = replace(self._taking, inbox=None)
        return made

    # -- the end -------------------------------------------------------------------------------------------------------

    async def close(self, *, release_session: bool = True) -> None:
        """Stop receiving, and release the session with all of its messages, so that other receivers can accept it.

        With ``release_session=False``, the session stays locked until its lock ends. This is for an application whose
        thread still works on one of its messages and cannot be ended: nobody else gets the message meanwhile.
        """
        self._leaves_locked = self._leaves_locked or not release_session
        await super().close()

    def _leave(self) -> bool:
        if self._opening is not None:
            return False
        inbox = self._inbox
        if inbox is not None:
            if self._mode is not ServiceBusReceiveMode.PEEK_LOCK or self._leaves_locked:
                return False
            inbox.leave()
        return self._held is None or self._held.settled

    async def _wind_up(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait((self._opening,))
            self._leave()
        await super()._wind_up()
        if self._held is not None:
            if self._failed:
                await self._held.abandon(list(self._handed_out.values()))
            await self._held.release(unlock=not self._leaves_locked)


# -- for workers, which may not use private attributes ----------------------------------------------------------------
