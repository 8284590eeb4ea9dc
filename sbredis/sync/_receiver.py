"""Receiving messages from a queue or a subscription, and settling them, from a thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self

from sbredis import aio
from sbredis._public import public
from sbredis.aio._receiver import take_back, take_back_by_number
from sbredis.model import (
    PrimitiveTypes,
    RedriveBudget,
    RedriveResult,
    RuleFilter,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
)
from sbredis.sync._docstrings import documented_by
from sbredis.sync._facade import Facade

if TYPE_CHECKING:
    from sbredis.sync._bridge import Bridge
    from sbredis.sync._session import ServiceBusSession

__all__ = ["ServiceBusReceiver"]


@public
@documented_by(aio.ServiceBusReceiver, then_own=True)
class ServiceBusReceiver(Facade[aio.ServiceBusReceiver], Iterator[ServiceBusReceivedMessage]):
    """Several threads may use the receiver at the same time. Each message goes to only one of these threads.

    If a thread is interrupted while it receives, no message stays locked for it.
    """

    def __init__(self, bridge: Bridge, receiver: aio.ServiceBusReceiver) -> None:
        super().__init__(bridge, receiver)
        # If a caller is interrupted at the moment when messages arrive for it, these functions run in the loop.
        self._take_back = partial(take_back, receiver)
        self._take_back_by_number = partial(take_back_by_number, receiver)

    # -- properties, opening -------------------------------------------------------------------------------------------

    @property
    def entity_path(self) -> str:
        return self._aio.entity_path

    @property
    def client_identifier(self) -> str:
        return self._aio.client_identifier

    @property
    def prefetch_count(self) -> int:
        return self._aio.prefetch_count

    @prefetch_count.setter
    def prefetch_count(self, value: int) -> None:
        self._bridge.make(setattr, self._aio, "prefetch_count", value)

    @property
    def traces(self) -> bool:
        return self._aio.traces

    @property
    def receive_mode(self) -> ServiceBusReceiveMode:
        return self._aio.receive_mode

    @property
    def session(self) -> ServiceBusSession | None:
        return None

    def __enter__(self) -> Self:
        """Connect. A session receiver also accepts its session. If one of these steps fails, close the receiver."""
        try:
            self._bridge.call(self._aio.__aenter__)
        except Exception:
            raise  # the asynchronous receiver has closed itself
        except BaseException:
            self.close()  # the receiver may have accepted a session, and Python calls no __exit__ if __enter__ raises
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bridge.finish(partial(self._aio.__aexit__, kind, error, traceback))

    # -- receiving -----------------------------------------------------------------------------------------------------

    def receive_messages(
        self, max_message_count: int | None = 1, max_wait_time: float | None = None, *, gather: bool = True
    ) -> list[ServiceBusReceivedMessage]:
        return self._bridge.call_undoable(
            self._take_back, self._aio.receive_messages, max_message_count, max_wait_time, gather=gather
        )

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ServiceBusReceivedMessage:
        """Wait for the next message and return it. The iteration ends if no message comes within ``max_wait_time``."""
        for message in self._bridge.call_undoable(self._take_back, self._next):
            return message
        raise StopIteration

    async def _next(self) -> list[ServiceBusReceivedMessage]:
        """Return the next message of an iteration, in a list that is empty at its end."""
        async for message in self._aio:
            return [message]
        return []

    def next(self) -> ServiceBusReceivedMessage:
        """Return the next message, like an iteration. Raise :class:`StopIteration` after ``max_wait_time``."""
        return self.__next__()

    def receive_deferred_messages(
        self, sequence_numbers: int | Sequence[int], *, timeout: float | None = None
    ) -> list[ServiceBusReceivedMessage]:
        return self._bridge.call_undoable(
            self._take_back_by_number, self._aio.receive_deferred_messages, sequence_numbers, timeout=timeout
        )

    def receive_messages_by_number(
        self, sequence_numbers: int | Sequence[int], *, timeout: float | None = None
    ) -> list[ServiceBusReceivedMessage]:
        return self._bridge.call_undoable(
            self._take_back_by_number, self._aio.receive_messages_by_number, sequence_numbers, timeout=timeout
        )

    def delete_messages_by_number(self, sequence_numbers: int | Sequence[int], *, timeout: float | None = None) -> None:
        self._bridge.call(self._aio.delete_messages_by_number, sequence_numbers, timeout=timeout)

    def dead_letter_messages_by_number(
        self,
        sequence_numbers: int | Sequence[int],
        reason: str | None = None,
        error_description: str | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        self._bridge.call(
            self._aio.dead_letter_messages_by_number, sequence_numbers, reason, error_description, timeout=timeout
        )

    def peek_messages(
        self,
        max_message_count: int = 1,
        *,
        sequence_number: int = 0,
        session_id: str | None = None,
        timeout: float | None = None,
    ) -> list[ServiceBusReceivedMessage]:
        return self._bridge.call(
            self._aio.peek_messages,
            max_message_count,
            sequence_number=sequence_number,
            session_id=session_id,
            timeout=timeout,
        )

    # -- deleting ------------------------------------------------------------------------------------------------------

    def delete_messages(
        self,
        max_message_count: int,
        *,
        before_enqueued_time_utc: datetime | None = None,
        session_id: str | None = None,
        timeout: float | None = None,
    ) -> int:
        return self._bridge.call(
            self._aio.delete_messages,
            max_message_count,
            before_enqueued_time_utc=before_enqueued_time_utc,
            session_id=session_id,
            timeout=timeout,
        )

    def purge_messages(
        self,
        *,
        before_enqueued_time_utc: datetime | None = None,
        session_id: str | None = None,
        progress: Callable[[int], object] | None = None,
        timeout: float | None = None,
    ) -> int:
        return self._bridge.call(
            self._aio.purge_messages,
            before_enqueued_time_utc=before_enqueued_time_utc,
            session_id=session_id,
            progress=progress,
            timeout=timeout,
        )

    def redrive_messages(
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
        progress: Callable[[int], object] | None = None,
        timeout: float | None = None,
    ) -> RedriveResult:
        return self._bridge.call(
            self._aio.redrive_messages,
            to=to,
            sequence_numbers=sequence_numbers,
            reason=reason,
            matching=matching,
            properties_to_modify=properties_to_modify,
            rate=rate,
            budget=budget,
            cursor=cursor,
            dry_run=dry_run,
            progress=progress,
            timeout=timeout,
        )

    def process_span(
        self,
        message: ServiceBusReceivedMessage | Sequence[ServiceBusReceivedMessage],
        *,
        continue_trace: bool = True,
    ) -> AbstractContextManager[object]:
        return self._aio.process_span(message, continue_trace=continue_trace)

    # -- settling ------------------------------------------------------------------------------------------------------

    def complete_message(self, message: ServiceBusReceivedMessage, *, timeout: float | None = None) -> None:
        self._bridge.call(self._aio.complete_message, message, timeout=timeout)

    def complete_messages(self, messages: Iterable[ServiceBusReceivedMessage], *, timeout: float | None = None) -> None:
        self._bridge.call(self._aio.complete_messages, list(messages), timeout=timeout)

    def abandon_message(
        self,
        message: ServiceBusReceivedMessage,
        *,
        delay: timedelta | float | None = None,
        properties_to_modify: Mapping[str, PrimitiveTypes] | None = None,
        timeout: float | None = None,
    ) -> None:
        self._bridge.call(
            self._aio.abandon_message, message, delay=delay, properties_to_modify=properties_to_modify, timeout=timeout
        )

    def release_message(
        self, message: ServiceBusReceivedMessage, *, interrupted: bool = False, timeout: float | None = None
    ) -> None:
        self._bridge.call(self._aio.release_message, message, interrupted=interrupted, timeout=timeout)

    def defer_message(
        self,
        message: ServiceBusReceivedMessage,
        *,
        properties_to_modify: Mapping[str, PrimitiveTypes] | None = None,
        timeout: float | None = None,
    ) -> None:
        self._bridge.call(self._aio.defer_message, message, properties_to_modify=properties_to_modify, timeout=timeout)

    def dead_letter_message(
        self,
        message: ServiceBusReceivedMessage,
        reason: str | None = None,
        error_description: str | None = None,
        *,
        properties_to_modify: Mapping[str, PrimitiveTypes] | None = None,
        timeout: float | None = None,
    ) -> None:
        self._bridge.call(
            self._aio.dead_letter_message,
            message,
            reason,
            error_description,
            properties_to_modify=properties_to_modify,
            timeout=timeout,
        )

    def renew_message_lock(self, message: ServiceBusReceivedMessage, *, timeout: float | None = None) -> datetime:
        return self._bridge.call(self._aio.renew_message_lock, message, timeout=timeout)

    def get_lock_handle(self, message: ServiceBusReceivedMessage, *, timeout: float | None = None) -> str:
        return self._bridge.call(self._aio.get_lock_handle, message, timeout=timeout)

    def close(self) -> None:
        self._bridge.finish(self._aio.close)
