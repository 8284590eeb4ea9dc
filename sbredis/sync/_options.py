"""What a receiver is asked to be, as threads write it."""

from __future__ import annotations

from sbredis.aio._options import ReceivingKeywords
from sbredis.model import ServiceBusSubQueue
from sbredis.sync._renewer import AutoLockRenewer

__all__ = ["ReceiverKeywords", "SessionReceiverKeywords"]


class SessionReceiverKeywords(ReceivingKeywords, total=False):
    """What a receiver of a session is asked to be."""

    auto_lock_renewer: AutoLockRenewer | None


class ReceiverKeywords(SessionReceiverKeywords, total=False):
    """What a receiver is asked to be, whatever it receives from."""

    sub_queue: ServiceBusSubQueue | str | None
