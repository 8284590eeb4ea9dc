"""Sending messages to a queue or a topic, from a thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, Literal, Self

from sbredis import aio
from sbredis._public import public
from sbredis.aio._sender import window_of
from sbredis.model import MessageTypes, ServiceBusMessageBatch
from sbredis.sync._docstrings import documented_by
from sbredis.sync._facade import Facade
from sbredis.sync._stream import SendStream

__all__ = ["ServiceBusSender"]


@public
@documented_by(aio.ServiceBusSender, then_own=True)
class ServiceBusSender(Facade[aio.ServiceBusSender]):
    """Several threads may use the sender at the same time."""

    @property
    def entity_name(self) -> str:
        return self._aio.entity_name

    @property
    def client_identifier(self) -> str:
        return self._aio.client_identifier

    @property
    def in_flight(self) -> int:
        return self._aio.in_flight

    def __enter__(self) -> Self:
        self._bridge.call(self._aio.__aenter__)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send_messages(
        self,
        message: MessageTypes | ServiceBusMessageBatch,
        *,
        timeout: float | None = None,
    ) -> None:
        self._bridge.call(self._aio.send_messages, message, timeout=timeout)

    def schedule_messages(
        self,
        messages: MessageTypes,
        schedule_time_utc: datetime | Sequence[datetime],
        *,
        timeout: float | None = None,
    ) -> list[int]:
        return self._bridge.call(self._aio.schedule_messages, messages, schedule_time_utc, timeout=timeout)

    def cancel_scheduled_messages(self, sequence_numbers: int | Sequence[int], *, timeout: float | None = None) -> None:
        self._bridge.call(self._aio.cancel_scheduled_messages, sequence_numbers, timeout=timeout)

    def send_stream(
        self,
        messages: Iterable[Any],
        *,
        timeout: float | None = None,
        errors: Literal["raise", "return"] = "raise",
        progress: Callable[[int], object] | None = None,
    ) -> SendStream:
        """Send each item of an iterable as a message of its own, as fast as the throttle permits.

        ``for result in sender.send_stream(source)`` gives a :class:`SendResult` for each message in the order of the
        source. ``sender.send_stream(source).count()`` sends all of them and returns their number. At most
        ``max_in_flight`` messages are held, so the source is read no faster than the broker accepts its messages. The
        iterating thread reads the source.

        The first message that fails ends the stream: the iteration raises an error that names the message, after the
        results of all earlier messages. With ``errors="return"`` the stream continues, and the failure is in the result
        of the message. ``timeout`` applies to each message by itself. The iterating thread calls ``progress`` with the
        number of messages that were accepted so far, before the result of each. An error of that function ends the
        stream and is raised.
        """
        return SendStream(
            self._bridge,
            self._aio,
            messages,
            timeout=timeout,
            errors=errors,
            progress=progress,
            window=window_of(self._aio),
        )

    def create_message_batch(self, max_size_in_bytes: int | None = None) -> ServiceBusMessageBatch:
        return self._bridge.call(self._aio.create_message_batch, max_size_in_bytes)

    def close(self) -> None:
        self._bridge.finish(self._aio.close)
