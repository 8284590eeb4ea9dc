"""A command of the user that handles a message: the body on its stdin, the properties in its environment."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime

from sbredis.cli._stopping import Stop
from sbredis.model import AmqpMessageBodyType, ServiceBusReceivedMessage, content_of

__all__ = ["environment_of", "handle"]

_TOLD = (
    "message_id",
    "sequence_number",
    "session_id",
    "subject",
    "content_type",
    "correlation_id",
    "partition_key",
    "to",
    "reply_to",
    "reply_to_session_id",
    "delivery_count",
    "enqueued_time_utc",
    "dead_letter_reason",
    "dead_letter_error_description",
    "dead_letter_source",
)


def environment_of(message: ServiceBusReceivedMessage) -> dict[str, str]:
    """Return the variables for a message: ``SBREDIS_SUBJECT`` and so on, and ``SBREDIS_PROPERTY_NAME`` for properties.

    Letters of a property's name become capitals, and other characters become ``_``.
    """
    found = {f"SBREDIS_{name.upper()}": _text(getattr(message, name)) for name in _TOLD}
    for name, value in (message.application_properties or {}).items():
        found["SBREDIS_PROPERTY_" + re.sub(r"\W", "_", name, flags=re.ASCII).upper()] = _text(value)
    return {name: value.replace("\0", "") for name, value in found.items() if value is not None}


async def handle(command: str, message: ServiceBusReceivedMessage, stop: Stop) -> int | None:
    """Run a command in the shell for a message. Return its exit code, or ``None`` if it was interrupted."""
    environment: Mapping[str, str] = {**os.environ, **environment_of(message)}
    process = await asyncio.create_subprocess_shell(command, stdin=asyncio.subprocess.PIPE, env=environment)
    stop.call(lambda: _terminate(process))
    await process.communicate(_body(message))
    return None if stop and process.returncode else process.returncode


def _terminate(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.terminate()


def _body(message: ServiceBusReceivedMessage) -> bytes:
    if message.body_type is AmqpMessageBodyType.DATA:
        return bytes(content_of(message).body)
    return str(message).encode()


def _text(value: object) -> str | None:
    if isinstance(value, datetime):
        return value.isoformat()
    return None if value is None else str(value)
