"""Send what a handler returns as the reply to its message."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from sbredis.exceptions import ServiceBusError
from sbredis.model import ServiceBusMessage, ServiceBusReceivedMessage
from sbredis.workers.declaring._messages import message_with

__all__ = ["Replies", "SendTo"]

_log = logging.getLogger("sbredis.worker")
_PATIENCE: Final = 10.0
SendTo = Callable[[str, ServiceBusMessage, float], Awaitable[None]]
"""Sends a message to a queue or topic, within a number of seconds."""


class Replies:
    """Sends the replies of one handler.

    A reply goes out before its message is completed, so that it is not lost when the worker dies. If it dies in
    between, the message comes again, and the asker gets a second reply with the same correlation id. A reply that
    cannot be sent is only logged: the asker may be gone, and the message was handled.
    """

    def __init__(self, send: SendTo, permitted: bool | Sequence[str]) -> None:
        self._send = send
        self._permitted = None if permitted is True else {path.lower() for path in permitted or ()}

    async def reply(self, message: ServiceBusReceivedMessage, result: object) -> None:
        """Reply to a message, if it asks for a reply."""
        to = message.reply_to
        if not to:
            return
        if self._permitted is not None and to.lower() not in self._permitted:
            _log.warning("message %s asks for a reply to %r, which is not permitted", message.sequence_number, to)
            return
        made = result if isinstance(result, ServiceBusMessage) else message_with(result, {})
        made.correlation_id = message.message_id if message.correlation_id is None else message.correlation_id
        if message.reply_to_session_id is not None:
            made.session_id = message.reply_to_session_id
        try:
            await self._send(to, made, _PATIENCE)
        except (ServiceBusError, ValueError) as error:
            _log.warning("the reply to message %s was not sent to %r: %s", message.sequence_number, to, error)
