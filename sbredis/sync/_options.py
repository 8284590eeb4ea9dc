"""The keywords of synchronous receivers: those of asynchronous receivers, with a synchronous renewer."""

# Made by tools/make_sync from sbredis/aio/_options.py.
# Change one of these two, and run `make sync`; a change in this file is lost.

from __future__ import annotations

from sbredis.aio._options import ReceivingKeywords
from sbredis.model import ServiceBusSubQueue
from sbredis.sync._renewer import AutoLockRenewer

__all__ = ["ReceiverKeywords", "SessionReceiverKeywords"]


class SessionReceiverKeywords(ReceivingKeywords, total=False):
    """The keywords of a receiver of a session."""

    auto_lock_renewer: AutoLockRenewer | None


class ReceiverKeywords(SessionReceiverKeywords, total=False):
    """The keywords of a receiver from any path."""

    sub_queue: ServiceBusSubQueue | str | None
