"""The additions of a handler to the transaction that completes its messages."""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from sbredis.codec import decode_body, encode_body
from sbredis.exceptions import MessageSizeExceededError, Outcome
from sbredis.model import ServiceBusMessage

__all__ = ["UNCHANGED", "Additions", "AdditionsMark", "decoded_state", "encoded_state"]

UNCHANGED: Final = object()
"""The state of a session that no handler has set."""
MOST_ITEMS: Final = 100
"""The largest number of messages, session states and keys that a transaction takes."""


class AdditionsMark(NamedTuple):
    """The additions of a call at one moment."""

    sends: int
    """The number of messages to send."""
    session_state: object
    keys: dict[str | bytes, float] | None


class Additions:
    """The messages, the session state and the keys that go out when the messages of a call are completed."""

    # Values of the class, because most calls add nothing.

    sends: list[tuple[str, ServiceBusMessage]] | None = None
    """The messages that the handler has sent, with the entities to which they go."""
    session_state: object = UNCHANGED
    """The new state of the session, as the handler gave it."""
    keys: dict[str | bytes, float] | None = None
    """The keys that are remembered when the message is completed, each with its window in seconds."""
    overfull = False
    """Whether the messages and their additions do not fit into one transaction."""

    def __bool__(self) -> bool:
        """Return whether there is anything that only a transaction can do."""
        return self.sends is not None or self.session_state is not UNCHANGED or self.keys is not None

    def mark(self) -> AdditionsMark:
        """Return the additions up to now, to restore them later."""
        return AdditionsMark(len(self.sends or ()), self.session_state, self.keys)

    def restore(self, mark: AdditionsMark) -> None:
        """Forget what was added after a mark."""
        if self.sends is not None:
            del self.sends[mark.sends :]
            self.sends = self.sends or None
        self.session_state, self.keys = mark.session_state, mark.keys

    def send(self, entity: str, message: ServiceBusMessage) -> None:
        """Add a message."""
        if self.sends is None:
            self.sends = []
        self.sends.append((entity, message))

    def require_room(self, count: int, messages: int) -> None:
        """Raise if the transaction that completes this number of messages cannot take more items."""
        added = len(self.sends or ()) + len(self.keys or ()) + (self.session_state is not UNCHANGED)
        if count and messages + added + count > MOST_ITEMS:
            self.overfull = True
            one = messages == 1
            raise MessageSizeExceededError(
                f"A handler's messages go out in the transaction that completes its {'message' if one else 'batch'}. "
                f"A transaction takes up to {MOST_ITEMS} messages, session states and keys, and has "
                f"{messages} to complete and {added} from the handler already. "
                + ("Send fewer." if one else "Send fewer, or set a smaller batch=."),
                outcome=Outcome.NEVER_SENT,
            )


def encoded_state(value: object) -> bytes:
    """Return a value as the state of a session.

    A state has no content type, so a member of an enumeration is JSON, also if it is a text.
    """
    body, content_type = encode_body(value)
    if content_type is None or not content_type.startswith("text/") or type(value) is str:
        return body
    return json.dumps(body.decode()).encode()


def decoded_state(state: bytes, as_type: Any) -> Any:
    """Return the state of a session as a value of a type. A state has no content type, so without a type it is JSON."""
    return decode_body(state, "application/json" if as_type in {Any, object} else None, as_type)
