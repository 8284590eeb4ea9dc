"""Idempotency: remember for a window that a message was handled."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from sbredis.model import MessageId, ServiceBusReceivedMessage
from sbredis.workers.declaring._checks import require_plain_function, require_seconds
from sbredis.workers.declaring._context import Context
from sbredis.workers.declaring._middleware import Proceed

__all__ = ["Idempotency"]


def _message_id(message: ServiceBusReceivedMessage) -> MessageId:
    found = message.message_id
    return str(found) if found is None else found


class Idempotency:
    """Lets each key be completed once within a window: what the second message of a key sends is dropped.

    The key is the id of the message, unless ``key`` is a function of the message. It is remembered in the transaction
    that completes the message, together with everything that the handler has sent. So a worker that dies at any moment
    leaves either both or neither. A second message of the same key is completed, and nothing that its handler sent goes
    out. What a handler does elsewhere may happen twice: guard it with ``context.fence``.

    Handlers of batches cannot have it. Each partition of an entity remembers its own keys: on a partitioned entity, the
    messages of one key must have the same partition key or session id. If the key is the message id, and the entity
    detects duplicates, messages without either are also in one partition.
    """

    def __init__(
        self,
        window: timedelta | float = 86400.0,
        *,
        key: Callable[[ServiceBusReceivedMessage], MessageId] = _message_id,
    ) -> None:
        seconds = window.total_seconds() if isinstance(window, timedelta) else window
        require_seconds("window", seconds)
        require_plain_function("key", key, "a message")
        self._window = float(seconds)
        self._key = key

    @property
    def by_message_id(self) -> bool:
        """Whether the key is the message id."""
        return self._key is _message_id

    async def __call__(self, context: Context, proceed: Proceed) -> Any:
        """Call the handler, and let its message be completed only if the key is new."""
        context.once(self._key(context.message), self._window)
        return await proceed()
