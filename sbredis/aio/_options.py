"""What a receiver is asked to be, checked before it is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from sbredis._public import public_name
from sbredis._quoting import quoted
from sbredis.aio._renewer import AutoLockRenewer
from sbredis.aio.calls._arguments import count_of, seconds_of
from sbredis.engine import identifier
from sbredis.model import ServiceBusReceiveMode, ServiceBusSessionFilter, ServiceBusSubQueue

if TYPE_CHECKING:
    from typing import Any

__all__ = ["ReceiverKeywords", "ReceiverOptions", "split_sub_queue"]

_SUB_QUEUES = {
    "/$transfer/$deadletterqueue": ServiceBusSubQueue.TRANSFER_DEAD_LETTER,
    "/$deadletterqueue": ServiceBusSubQueue.DEAD_LETTER,  # the other one ends so as well
}
_MOST_PREFETCHED = 50_000


class ReceiverKeywords(TypedDict, total=False):
    """What a receiver is asked to be, whatever it receives from, as callers write it."""

    client_identifier: str | None
    socket_timeout: float | None
    sub_queue: ServiceBusSubQueue | str | None
    receive_mode: ServiceBusReceiveMode | str
    max_wait_time: float | None
    auto_lock_renewer: AutoLockRenewer | None
    prefetch_count: int
    adaptive_prefetch: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverOptions:
    """How messages are received, from where in an entity."""

    session_id: str | ServiceBusSessionFilter | None = None
    sub_queue: ServiceBusSubQueue | None = None
    receive_mode: ServiceBusReceiveMode = ServiceBusReceiveMode.PEEK_LOCK
    max_wait_time: float | None = None
    auto_lock_renewer: AutoLockRenewer | None = None
    prefetch_count: int = 0
    adaptive_prefetch: bool = False

    def check(self) -> None:
        """Raise for what cannot be."""
        count_of(self.prefetch_count, "prefetch_count", _MOST_PREFETCHED, least=0)
        if self.max_wait_time is not None:
            seconds_of(self.max_wait_time, "max_wait_time", zero=True)
        session: Any = self.session_id
        if session is not None and not isinstance(session, ServiceBusSessionFilter):
            identifier(session, "session_id", may_be_empty=True)
        if session is not None and self.sub_queue is not None:
            raise ValueError("A dead-letter queue has no sessions: leave out session_id, or sub_queue.")
        renewer: Any = self.auto_lock_renewer
        if renewer is None:
            return
        if not isinstance(renewer, AutoLockRenewer):
            raise TypeError(f"auto_lock_renewer is a sbredis.aio.AutoLockRenewer, not a {public_name(renewer)}")
        if self.receive_mode is ServiceBusReceiveMode.RECEIVE_AND_DELETE and session is None:
            raise ValueError("Messages that are received and deleted have no locks: leave out auto_lock_renewer.")


def split_sub_queue(name: str, sub_queue: ServiceBusSubQueue | str | None) -> tuple[str, ServiceBusSubQueue | None]:
    """A name and the sub-queue of it that is meant, which may stand behind the name as well."""
    if sub_queue is not None:
        sub_queue = ServiceBusSubQueue(sub_queue)
    lowered = str(name).lower()
    for suffix, kind in _SUB_QUEUES.items():
        if lowered.endswith(suffix):
            if sub_queue is not None and sub_queue is not kind:
                raise ValueError(f"{quoted(name)} is another sub-queue than sub_queue={sub_queue!r}")
            return name[: -len(suffix)], kind
    return name, sub_queue
