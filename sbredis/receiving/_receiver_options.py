"""The options of a receiver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from sbredis.client._arguments import count_of, seconds_of
from sbredis.engine import identifier
from sbredis.model import (
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusSessionFilter,
    ServiceBusSubQueue,
)
from sbredis.receiving._session import ServiceBusSession

__all__ = ["LockRenewer", "ReceiverOptions", "prefetch_count_of"]

_MOST_PREFETCHED = 50_000


class LockRenewer(Protocol):
    """The part of an ``AutoLockRenewer`` that a receiver needs."""

    @property
    def closed(self) -> bool:
        """Whether the renewer was closed."""
        ...

    def check_open(self) -> None:
        """Raise if the renewer was closed."""
        ...

    def register(self, receiver: Any, renewable: ServiceBusReceivedMessage | ServiceBusSession) -> None:
        """Renew a lock from now on."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverOptions:
    """The options of a receiver: the part of the entity to receive from, and the way to receive."""

    session_id: str | ServiceBusSessionFilter | None = None
    sub_queue: ServiceBusSubQueue | None = None
    receive_mode: ServiceBusReceiveMode = ServiceBusReceiveMode.PEEK_LOCK
    max_wait_time: float | None = None
    auto_lock_renewer: LockRenewer | None = None
    prefetch_count: int = 0
    adaptive_prefetch: bool = False

    def check(self) -> None:
        """Raise if an option is invalid, or if two of them exclude each other."""
        prefetch_count_of(self.prefetch_count)
        if self.max_wait_time is not None:
            seconds_of(self.max_wait_time, "max_wait_time", zero=True)
        session: Any = self.session_id
        if session is not None and not isinstance(session, ServiceBusSessionFilter):
            identifier(session, "session_id", may_be_empty=True)
        if session is not None and self.sub_queue is not None:
            raise ValueError("A dead-letter queue has no sessions: leave out session_id, or sub_queue.")
        if self.auto_lock_renewer is None:
            return
        if self.receive_mode is ServiceBusReceiveMode.RECEIVE_AND_DELETE and session is None:
            raise ValueError("Messages that are received and deleted have no locks: leave out auto_lock_renewer.")


def prefetch_count_of(value: int) -> int:
    """Return the number of messages to fetch ahead. Raise if it is invalid."""
    return count_of(value, "prefetch_count", _MOST_PREFETCHED, least=0)
