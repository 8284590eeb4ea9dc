"""Renewing: keeping the locks of messages and sessions, in an event loop, a thread or a process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sbredis._lazy import lazily
from sbredis.renewing._renewals import LockRenewFailureCallback, RenewalReport, Renewals, RenewedLock
from sbredis.renewing._stand_in_process import StandInProcess

if TYPE_CHECKING:
    from sbredis.renewing._renewal_thread import RenewalThread

__all__ = [
    "LockRenewFailureCallback",
    "RenewalReport",
    "RenewalThread",
    "Renewals",
    "RenewedLock",
    "StandInProcess",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazily(__name__, {"_renewal_thread": ("RenewalThread",)})
