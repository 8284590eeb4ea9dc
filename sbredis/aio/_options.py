"""The keywords of the functions that make senders and receivers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypedDict

from sbredis._public import public_name
from sbredis.aio._renewer import AutoLockRenewer
from sbredis.model import (
    AZURE_HANDLER,
    ServiceBusReceiveMode,
    ServiceBusSessionFilter,
    ServiceBusSubQueue,
    refuse_unknown,
)
from sbredis.receiving._receiver_options import ReceiverOptions

__all__ = [
    "RECEIVER",
    "SENDER",
    "SESSION_RECEIVER",
    "HandlerKeywords",
    "ReceiverKeywords",
    "ReceivingKeywords",
    "SenderKeywords",
    "SessionReceiverKeywords",
    "known_of",
    "receiver_options",
]


class HandlerKeywords(TypedDict, total=False):
    """The keywords of all senders and receivers."""

    client_identifier: str | None
    socket_timeout: float | None


class SenderKeywords(HandlerKeywords, total=False):
    """The keywords of every sender."""

    max_in_flight: int
    max_in_flight_bytes: int


class ReceivingKeywords(HandlerKeywords, total=False):
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
