"""Messages on the way to another entity: what the destination gets of a message that waits in its source. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple

from sbredis._unreadable import unreadable
from sbredis.engine import (
    MOST_HOPS,
    NEVER,
    Changes,
    Content,
    Delivery,
    Outgoing,
    decode,
    decode_changes,
    encode,
    encode_changes,
    is_dead,
    read_record,
)
from sbredis.exceptions import ServiceBusError
from sbredis.model._message_ids import comparable_id, duplicate_key
from sbredis.model._received import current_content
from sbredis.model._redrive import redriven_changes

if TYPE_CHECKING:
    from sbredis.engine import Value

__all__ = ["MoveKind", "Purpose", "TooManyHopsError", "key_of_content", "moved", "read_purpose"]

MoveKind = Literal["forward", "dead", "transfer", "redrive", "chosen"]
"""Why a message is moved: its entity forwards its messages, or its dead letters; a transaction sent it to an entity in
another slot; a redrive moves a dead letter elsewhere; or a client has chosen it."""


class TooManyHopsError(ServiceBusError):
    """The message was forwarded as often as a message may be."""


class Purpose(NamedTuple):
    """The instructions for the messages of a batch. They are stored with it, so every mover makes the same messages."""

    chosen: bool = False
    """Whether a client has chosen the messages, as a redrive does. If not, they wait to be moved."""
    modify: Mapping[str, Value] | None = None
    """The properties that a redrive adds to the application properties, or replaces."""
    to: str | None = None
    """The name of the destination that the client has chosen."""
    mover: str = ""
    """A text that only this client has, so that each batch is counted by the client that has frozen it."""

    def stored(self) -> bytes:
        """Return the purpose as it is stored with a batch; empty for messages that wait to be moved."""
        if not self.chosen:
            return b""
        changes = encode_changes(Changes(dict(self.modify or {}) or None, destination=self.to))
        return b"%b%b %b" % (_CHOSEN, self.mover.encode(), changes)

    def kind(self, message: Delivery) -> MoveKind:
        """Return why a message is moved."""
        if self.chosen:
            return "redrive" if is_dead(message.name) else "chosen"
        if message.state == "x":
            return "transfer"
        return "dead" if message.name.startswith("d") else "forward"


_CHOSEN = b"redrive "
_STORED = re.compile(rb"redrive ([\w-]*) ")


def read_purpose(stored: bytes) -> Purpose:
    """Return the purpose of a batch. Raises :class:`~sbredis.exceptions.DataLayoutError` if it cannot be read."""
    if not stored:
        return Purpose()
    found = _STORED.match(stored)
    if found is None:
        raise unreadable("The purpose of a batch", "it has a form that this release does not know")
    changes = decode_changes(stored[found.end() :])
    return Purpose(True, changes.properties, changes.destination, found[1].decode())


def moved(
    message: Delivery,
    purpose: Purpose,
    *,
    number: int,
    now: int,
    died_in: str | None = None,
    detects_duplicates: bool = False,
    partitioned: bool = False,
) -> tuple[Outgoing, Content]:
    """Return what the destination gets of a message, and its content there.

    ``number`` is the full sequence number of the message in its source, and of a dead letter the one that it had before
    it died. ``now`` is the time of the source partition, and ``died_in`` the path of the entity in which a dead letter
    died. In a ``partitioned`` destination, a chosen message without a key gets its id as its key, so that such messages
    are spread over the partitions. Raises :class:`TooManyHopsError`.
    """
    kind = purpose.kind(message)
    if kind == "transfer":
        return _transferred(message, detects_duplicates=detects_duplicates)
    if kind == "redrive":
        message = message._replace(changes=redriven_changes(message, purpose.modify))
    content = current_content(message, with_reason=kind == "dead")
    record = read_record(message.record)
    if kind == "redrive":
        content.hops = None
    hops = content.hops or 0
    if kind in {"forward", "dead"}:
        if hops >= MOST_HOPS:
            raise TooManyHopsError(f"The message was forwarded {MOST_HOPS} times already.")
        content.hops = hops + 1
    if kind == "chosen":  # as if its sender had sent it to the destination
        content.hops = content.enqueued_number = content.dead_letter_source = content.dead_letter_number = None
        if partitioned and key_of_content(content, detects_duplicates=detects_duplicates) is None:
            content.partition_key = None if content.message_id is None else str(content.message_id)
    elif content.enqueued_number is None:
        content.enqueued_number = number
    if died_in is not None:
        content.dead_letter_source, content.dead_letter_number = died_in, number
    time_to_live = content.time_to_live
    if kind in {"forward", "chosen"}:
        expires = record.expires if message.expires is None else message.expires
        time_to_live = None if expires >= NEVER else max(0, expires - now)
    message_id = duplicate_key(content.message_id) if detects_duplicates and content.message_id is not None else b""
    return Outgoing(encode(content), time_to_live, record.level, message_id), content


def _transferred(message: Delivery, *, detects_duplicates: bool) -> tuple[Outgoing, Content]:
    """Return what the destination gets of a transfer: what the transaction has sent."""
    record = read_record(message.record)
    if _is_as_sent(message.changes):
        content, payload = decode(record.payload), record.payload
    else:
        content = current_content(message, with_reason=False)
        payload = encode(content)
    message_id = duplicate_key(content.message_id) if detects_duplicates and content.message_id is not None else b""
    due = None if content.scheduled is None else max(content.scheduled, 0)
    return Outgoing(payload, content.time_to_live, record.level, message_id, due), content


@lru_cache(maxsize=16)  # the changes of a transfer are mostly its destination only, which the next one has too
def _is_as_sent(changes: bytes) -> bool:
    """Return whether changes leave the data of the sender as they are."""
    read = decode_changes(changes)
    return read.properties is None and not read.system


def key_of_content(content: Content, *, detects_duplicates: bool) -> str | bytes | None:
    """Return the key that chooses the partition of a partitioned destination; ``None`` if the message has no key."""
    if content.session_id is not None:
        return content.session_id
    if content.partition_key is not None:
        return content.partition_key
    if detects_duplicates and content.message_id is not None:
        return comparable_id(content.message_id)
    return None
