"""Tell about an outage of the server, in a command that runs until Ctrl-C."""

from __future__ import annotations

from sbredis.cli._invocation import Invocation
from sbredis.exceptions import ServiceBusError

__all__ = ["OutageRemarks"]


class OutageRemarks:
    """Tells the user when an outage begins and when it ends, once each."""

    def __init__(self, invocation: Invocation) -> None:
        self._invocation = invocation
        self._lasts = False

    def failed(self, error: ServiceBusError) -> None:
        """Take the error of an attempt. Raises it if another attempt would not help."""
        if not error.is_transient:
            raise error
        if not self._lasts:
            self._invocation.out.remark(f"{error.message.rstrip('.')}. It is tried again; Ctrl-C ends this.")
        self._lasts = True

    def answered(self) -> None:
        """Take note that an attempt has succeeded."""
        if self._lasts:
            self._invocation.out.remark("The server answers again.")
        self._lasts = False
