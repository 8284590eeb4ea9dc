"""The recorded calls of a transaction: what it will do when it is committed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from sbredis.engine import MessageId, Outgoing, decode
from sbredis.model import Hold, ServiceBusMessage, from_content

if TYPE_CHECKING:
    from sbredis.receiving._held_session import HeldSession
    from sbredis.sending._outbox import Outbox

__all__ = ["AdvancePart", "Keys", "Part", "SendPart", "SettleKind", "SettlePart", "StatePart"]

SettleKind = Literal["complete", "abandon", "defer", "dead_letter", "renew"]
Keys = Mapping[bytes, tuple[MessageId, int]]
"""A mapping from each key of a transaction, in its stored form, to the key as it was given and its window in ms."""


@dataclass(slots=True, eq=False)
class SendPart:
    """Messages that one call of the transaction sends or schedules."""

    outbox: Outbox
    made: list[Outgoing]
    """The encoded messages, in the form for an entity that detects duplicates."""
    originals: list[ServiceBusMessage]
    """The messages of the application."""
    needs_numbers: bool
    """Whether the application needs the sequence numbers of the messages."""
    numbers: list[int] = field(default_factory=list[int])
    """The sequence numbers, after the commit."""
    _copies: list[ServiceBusMessage] | None = None

    @property
    def messages(self) -> list[ServiceBusMessage]:
        """Copies of the messages, as they were at the call. Rules and keys apply to them."""
        if self._copies is None:
            self._copies = [from_content(decode(one.payload)) for one in self.made]
        return self._copies


@dataclass(slots=True, eq=False)
class SettlePart:
    """A message that the transaction settles, or whose lock it renews."""

    kind: SettleKind
    hold: Hold
    key: str | bytes | None
    """The key that has chosen the partition of the message; ``None`` if the message has no key."""
    changes: bytes = b""
    delay: int = 0


@dataclass(slots=True, eq=False)
class StatePart:
    """The state that the transaction sets for a session; None removes the state."""

    held: HeldSession
    state: bytes | None


@dataclass(slots=True, eq=False)
class AdvancePart:
    """A watermark that the transaction advances."""

    outbox: Outbox
    name: str
    expected: str | None
    value: str | None
    sequence_number: int | None = None
    """The sequence number that is stored with the watermark, after the commit."""


Part = SendPart | SettlePart | StatePart | AdvancePart
