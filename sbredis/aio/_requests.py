"""Requests and their replies: one queue for the replies of a client, and one task that receives them."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from sbredis import codec
from sbredis._quoting import quoted
from sbredis.aio._client_options import creation_of
from sbredis.exceptions import MessagingEntityNotFoundError, OperationTimeoutError, Outcome, ServiceBusError
from sbredis.model import ServiceBusMessage, ServiceBusReceivedMessage

if TYPE_CHECKING:
    from sbredis.aio._receiver import ServiceBusReceiver
    from sbredis.aio._sender import ServiceBusSender
    from sbredis.client import Connection, Creation

__all__ = ["Requests"]

_AT_ONCE: Final = 100
_AGAIN: Final = 0.5
"""The seconds to wait after a failed call."""
_TEMPORARY: Final = {"auto_delete_on_idle": "PT5M", "default_message_time_to_live": "PT10M"}
"""The properties of a queue for replies."""


class Requests:
    """The requests of one client that wait for replies.

    The queue for the replies is made with the first request, and again if it has been removed meanwhile. A task
    receives the replies while requests wait. After that the queue is unused, and removes itself.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._queue = f"sbredis.replies.{secrets.token_hex(8)}"
        self._waiting: dict[str, asyncio.Future[ServiceBusReceivedMessage]] = {}
        """The requests that wait for replies, by their message ids."""
        self._opening: asyncio.Lock | None = None
        self._receiver: ServiceBusReceiver | None = None
        self._senders: dict[str, ServiceBusSender] = {}

    async def request(  # noqa: PLR0917 -- what is asked, and the functions that make senders and receivers
        self,
        entity: str,
        message: ServiceBusMessage,
        as_type: Any,
        seconds: float,
        sender: Callable[[str], ServiceBusSender],
        receiver: Callable[[str, Creation | None], ServiceBusReceiver],
    ) -> Any:
        """Send a request to an entity, and return the decoded reply."""
        id_ = message.message_id = secrets.token_hex(12)
        message.reply_to, message.time_to_live = self._queue, timedelta(seconds=seconds)
        sent = False
        future = self._waiting[id_] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(seconds):
                await self._listen(receiver)
                if entity not in self._senders:
                    self._senders[entity] = sender(entity)
                sent = True
                await self._senders[entity].send_messages(message)
                reply = await future
        except TimeoutError:
            error = OperationTimeoutError(
                f"No reply to the request to {quoted(entity)} came within {seconds:g} s.",
                outcome=Outcome.UNKNOWN if sent else Outcome.NEVER_SENT,
            )
            error.entity = entity
            raise error from None
        finally:
            del self._waiting[id_]
        return codec.decode_body(bytes(reply.body), reply.content_type, as_type)

    async def _listen(self, make: Callable[[str, Creation | None], ServiceBusReceiver]) -> None:
        """Begin to receive replies, unless the client does so already."""
        if self._opening is None:
            self._opening = asyncio.Lock()
        async with self._opening:
            if self._receiver is None:
                create = creation_of(_TEMPORARY, self._connection, "queue")
                receiver = await make(self._queue, create).__aenter__()
                try:
                    self._deliver(await receiver.receive_messages(_AT_ONCE, 0))
                except MessagingEntityNotFoundError:  # the queue that the client remembers was removed
                    await receiver.__aenter__()
                except BaseException:
                    await receiver.close()
                    raise
                if self._connection.start(self._receive(receiver)):
                    self._receiver = receiver

    def _deliver(self, replies: Sequence[ServiceBusReceivedMessage]) -> None:
        """Give replies to the requests that wait for them. Drop the replies for which no request waits any more."""
        for reply in replies:
            future = self._waiting.get(str(reply.correlation_id))
            if future is not None and not future.done():
                future.set_result(reply)

    async def _receive(self, receiver: ServiceBusReceiver) -> None:
        """Receive replies until no request has waited for some time."""
        try:
            while True:
                try:
                    seconds = self._connection.timings.lingering
                    replies = await receiver.receive_messages(_AT_ONCE, seconds, gather=False)
                except ServiceBusError as error:
                    if not error.is_transient:
                        raise
                    replies = []
                    await asyncio.sleep(_AGAIN)
                self._deliver(replies)
                if not replies and not self._waiting:
                    return
        except (ServiceBusError, ValueError) as error:
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(error.twin() if isinstance(error, ServiceBusError) else error)
        finally:
            self._receiver = None  # the next request begins anew
            await receiver.close()
