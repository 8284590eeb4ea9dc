"""Convert the arguments of a settlement to the form that the engine takes: changes to the message, and a delay."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, cast

from sbredis._quoting import quoted
from sbredis.engine import decode, decode_changes, encode_changes, read_record
from sbredis.exceptions import MessageSizeExceededError, Outcome
from sbredis.model import Hold, PrimitiveTypes, require_single

__all__ = ["changes_of", "delay_of", "require_modification", "require_reason"]

_MOST_BYTES = 64 * 1024
_LONGEST_REASON = 4096


def changes_of(
    hold: Hold,
    modify: Mapping[str, PrimitiveTypes] | None,
    reason: str | None,
    description: str | None,
) -> bytes:
    """Return the changes of a settlement, together with those of earlier settlements."""
    changes = decode_changes(hold.delivery.changes)
    require_modification(modify)
    if modify is not None:
        before = changes.properties
        if before is None:
            before = decode(read_record(hold.delivery.record).payload).properties or {}
        changes.properties = {**before, **modify}
    require_reason(reason, description)
    changes.reason = changes.reason if reason is None else reason
    changes.description = changes.description if description is None else description
    made = encode_changes(changes)
    if len(made) > _MOST_BYTES:
        raise MessageSizeExceededError(
            f"The properties of message {hold.sequence_number} would have {len(made)} bytes. At most {_MOST_BYTES} "
            "bytes are allowed: store fewer or smaller properties.",
            outcome=Outcome.NEVER_SENT,
        )
    return made


def require_modification(modify: object) -> None:
    """Refuse modifications that are not a mapping of application properties."""
    if modify is None:
        return
    if not isinstance(modify, Mapping):
        raise TypeError(f"properties_to_modify must be a mapping of properties, not {type(modify).__name__}")
    require_single(cast("Mapping[Any, object]", modify))


def require_reason(reason: object, description: object) -> None:
    """Refuse a reason or description for a dead letter that is not text, or is too long."""
    for name, text in (("reason", reason), ("error_description", description)):
        if text is not None and not isinstance(text, str):
            raise TypeError(f"{name} must be text, not {type(text).__name__}")
        if text is not None and len(text) > _LONGEST_REASON:
            raise ValueError(f"{name} has {len(text)} characters; at most {_LONGEST_REASON} are allowed")


def delay_of(delay: timedelta | float | None) -> int:
    """Return a delay in ms."""
    if delay is None:
        return 0
    if isinstance(delay, timedelta):
        delay = delay.total_seconds()
    if isinstance(delay, bool) or not isinstance(delay, (int, float)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"delay must be a timedelta or a number of seconds, not {type(delay).__name__}")
    if not 0 <= delay <= 366 * 86400 * 100:
        raise ValueError(f"delay must be from 0 seconds to 100 years, not {quoted(delay)}")
    return round(delay * 1000)
