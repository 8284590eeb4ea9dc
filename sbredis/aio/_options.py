"""The options of senders and receivers: the keywords of the functions that make them, and their checked values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypedDict

from sbredis._public import public_name
from sbredis.aio._receiver import prefetch_count_of
from sbredis.aio._renewer import AutoLockRenewer
from sbredis.client import seconds_of
from sbredis.engine import identifier
from sbredis.model import (
    AZURE_HANDLER,
    ServiceBusReceiveMode,
    ServiceBusSessionFilter,
    ServiceBusSubQueue,
    refuse_unknown,
)

__all__ = [
    "RECEIVER",
    "SENDER",
    "SESSION_RECEIVER",
    "ReceiverKeywords",
    "ReceiverOptions",
    "ReceivingKeywords",
    "SenderKeywords",
    "SessionReceiverKeywords",
    "SharedKeywords",
    "known_of",
    "receiver_options",
]


class SharedKeywords(TypedDict, total=False):
    """The keywords of all senders and receivers."""

    client_identifier: str | None
    socket_timeout: float | None


class SenderKeywords(SharedKeywords, total=False):
    """The keywords of every sender."""

    max_in_flight: int
    max_in_flight_bytes: int


class ReceivingKeywords(SharedKeywords, total=False):
    """The keywords of every receiver, except ``auto_lock_renewer``, which has another type in the synchronous API."""

    receive_mode: ServiceBusReceiveMode | str
    max_wait_time: float | None
    prefetch_count: int
    adaptive_prefetch: bool


class SessionReceiverKeywords(ReceivingKeywords, total=False):
    """The keywords of a receiver of a session."""

    auto_lock_renewer: AutoLockRenewer | None


class ReceiverKeywords(SessionReceiverKeywords, total=False):
    """The keywords of a receiver from any path."""

    sub_queue: ServiceBusSubQueue | str | None


# The defaults of the keywords. A socket_timeout is ignored, because every call has a time-out of its own.
SENDER: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "client_identifier": None,
        "socket_timeout": None,
        "max_in_flight": 1000,
        "max_in_flight_bytes": 32 * 1024 * 1024,
    }
)
SESSION_RECEIVER: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "client_identifier": None,
        "socket_timeout": None,
        "receive_mode": ServiceBusReceiveMode.PEEK_LOCK,
        "max_wait_time": None,
        "prefetch_count": 0,
        "adaptive_prefetch": False,
        "auto_lock_renewer": None,
    }
)
RECEIVER: Final[Mapping[str, Any]] = MappingProxyType({**SESSION_RECEIVER, "sub_queue": None})


class ReceiverOptions(NamedTuple):
    """The options of a receiver: the part of the entity to receive from, and the way to receive."""

    session_id: str | ServiceBusSessionFilter | None = None
    sub_queue: ServiceBusSubQueue | None = None
    receive_mode: ServiceBusReceiveMode = ServiceBusReceiveMode.PEEK_LOCK
    max_wait_time: float | None = None
    auto_lock_renewer: AutoLockRenewer | None = None
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


def known_of(function: Callable[..., object], given: Mapping[str, Any], known: Mapping[str, object]) -> dict[str, Any]:
    """Return the keywords that a method accepts, without those of Azure's library. Refuse all others."""
    unknown = {name: value for name, value in given.items() if name not in known}
    refuse_unknown(function, unknown, AZURE_HANDLER)
    return {name: value for name, value in given.items() if name in known}


def receiver_options(
    given: Mapping[str, Any], session_id: str | ServiceBusSessionFilter | None, sub_queue: ServiceBusSubQueue | None
) -> ReceiverOptions:
    """Make the options of a receiver from its keywords. Raise for keywords that do not fit together."""
    asked = {**RECEIVER, **given}
    renewer = asked["auto_lock_renewer"]
    if renewer is not None and not isinstance(renewer, AutoLockRenewer):
        raise TypeError(f"auto_lock_renewer must be a sbredis.aio.AutoLockRenewer, not a {public_name(renewer)}")
    options = ReceiverOptions(
        session_id=session_id,
        sub_queue=sub_queue,
        receive_mode=ServiceBusReceiveMode(asked["receive_mode"]),
        max_wait_time=asked["max_wait_time"],
        auto_lock_renewer=renewer,
        prefetch_count=asked["prefetch_count"],
        adaptive_prefetch=asked["adaptive_prefetch"],
    )
    options.check()
    return options
