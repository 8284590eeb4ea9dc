"""What a receiver is asked to be, as threads write it."""

from __future__ import annotations

from typing import TypedDict

from sbredis.model import ServiceBusReceiveMode, ServiceBusSubQueue
from sbredis.sync._renewer import AutoLockRenewer

__all__ = ["ReceiverKeywords"]


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
