"""Batches of messages that are sent together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from sbredis.engine import MAXIMUM_CALL_MESSAGES, Outgoing, decode
from sbredis.exceptions import MessageSizeExceededError
from sbredis.model._amqp import AmqpAnnotatedMessage
from sbredis.model._message import ServiceBusMessage, as_message, content_of, from_content, keep_id, outgoing, use_id

__all__ = ["DEFAULT_BATCH_BYTES", "BatchContents", "ServiceBusMessageBatch", "contents_of"]

DEFAULT_BATCH_BYTES = 1024 * 1024
"""The default limit of the total size of a batch, in bytes."""


class BatchContents:
    """The messages of a batch, and their encoded form."""

    __slots__ = ("_assigned", "_send_number", "_used", "messages", "outgoing", "prepare", "size")

    def __init__(self) -> None:
        self.messages: list[ServiceBusMessage] = []
        self.outgoing: list[Outgoing] = []
        """Each message as it is sent to an entity that detects duplicates."""
        self.size = 0
        """The total size, in bytes."""
        self.prepare: Callable[[Sequence[ServiceBusMessage]], None] | None = None
        """A function that is called with each message before the message is encoded. The sender that makes a batch uses
        it to add trace contexts.
        """
        self._assigned: list[str | None] = []
        """The id that sbredis assigned to each message; ``None`` for a message that already had an id."""
        self._used = False
        """Whether the batch was sent with these ids, or is being sent now."""
        self._send_number = 0

    def add(self, message: ServiceBusMessage, most: int) -> None:
        """Add a message, unless the batch would then be larger than ``most``."""
        if self.prepare is not None:
            self.prepare([message])
        sent = outgoing(message, detects_duplicates=True)
        size = self.size + len(sent.payload)
        message_id = use_id(message)
        if size > most:
            keep_id(message, message_id)
            raise MessageSizeExceededError(_no_room(len(sent.payload), self.size, most))
        self.messages.append(message)
        self.outgoing.append(sent)
        self._assigned.append(message_id)
        self.size = size

    def use_ids(self) -> int:
        """Mark the batch as being sent. If it was sent before, assign new ids. Return the number of this send."""
        if self._used:
            for place, message_id in enumerate(self._assigned):
                if message_id is not None:
                    self._assign(place, message_id)
        self._used = True
        self._send_number += 1
        return self._send_number

    def _assign(self, place: int, before: str) -> None:
        message, sent = self.messages[place], self.outgoing[place]
        content = decode(sent.payload)  # the message as it was when it was added, without later changes
        content.message_id = None
        anew = from_content(content)
        made = self.outgoing[place] = outgoing(anew, detects_duplicates=True)
        self.size += len(made.payload) - len(sent.payload)
        self._assigned[place] = use_id(anew)
        current = content_of(message)
        if current.message_id is current.assigned == before:
            current.message_id = current.assigned = self._assigned[place]

    def keep_ids(self, send_number: int) -> None:
        """Record that a send of the batch failed.

        The next send of the batch, or of its messages, uses the ids of the failed send again.
        """
        if send_number == self._send_number:
            self._used = False
            for message, message_id in zip(self.messages, self._assigned, strict=True):
                keep_id(message, message_id)


class ServiceBusMessageBatch:
    """Messages that are sent together: either all of them or none.

    The size of the batch is the sum of the sizes that the broker counts: the encoded body and properties of each
    message. The batch takes messages up to :attr:`max_size_in_bytes`, and at most 1,000 of them. Changing a message
    after it was added does not change the batch. A batch that was sent can be sent again. For the new send, sbredis
    replaces the ids that it has assigned, as it does for messages outside a batch.
    """

    __slots__ = ("_contents", "_max_size")

    def __init__(self, max_size_in_bytes: int | None = None) -> None:
        size = DEFAULT_BATCH_BYTES if max_size_in_bytes is None else max_size_in_bytes
        if isinstance(size, bool) or not isinstance(size, int):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
            raise TypeError(f"max_size_in_bytes must be a whole number or None, not {type(size).__name__}")
        if size < 1:
            raise ValueError(f"max_size_in_bytes must be 1 or more, not {size}")
        self._max_size = size
        self._contents = BatchContents()

    @property
    def max_size_in_bytes(self) -> int:
        """The largest size that the batch may have."""
        return self._max_size

    @property
    def size_in_bytes(self) -> int:
        """The current size."""
        return self._contents.size

    def add_message(self, message: ServiceBusMessage | AmqpAnnotatedMessage | Mapping[str, Any]) -> None:
        """Add a message.

        Raises :class:`~sbredis.exceptions.MessageSizeExceededError` if the message does not fit. The batch does not
        change. In that case, send the batch and add the message to another batch.
        """
        taken = as_message(message)
        if len(self) >= MAXIMUM_CALL_MESSAGES:
            raise MessageSizeExceededError(
                f"The batch is full: it has {MAXIMUM_CALL_MESSAGES} messages, the most that one call takes. Send the "
                "batch, and put the message into another batch."
            )
        self._contents.add(taken, self._max_size)

    def __len__(self) -> int:
        return len(self._contents.messages)

    def __repr__(self) -> str:
        return f"<ServiceBusMessageBatch {len(self)} messages, {self._contents.size} of {self._max_size} bytes>"


contents_of: Callable[[ServiceBusMessageBatch], BatchContents] = attrgetter("_contents")
"""Return the messages of a batch, and their encoded form."""


def _no_room(message: int, batch: int, most: int) -> str:
    """Return the error text for a message that does not fit. All arguments are sizes in bytes."""
    if message > most:
        return (
            f"The message has {message} bytes, properties included, and does not fit into any batch of this size: it "
            f"takes {most} bytes. Make the message smaller, or make the batch larger if the entity permits that."
        )
    return (
        f"The message of {message} bytes does not fit into the batch, which has {batch} of {most} bytes. Send the "
        "batch, and put the message into another batch."
    )
