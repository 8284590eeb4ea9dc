"""A command of the user that handles a message: the body on its stdin, the properties in its environment."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING

from sbredis.cli._stopping import Stop

if TYPE_CHECKING:
    from sbredis.model import ServiceBusReceivedMessage

__all__ = ["environment_of", "handle"]

_GRACE, _PAUSE = 10.0, 0.02  # seconds

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
    "dead_letter_source_sequence_number",
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
    """Run a command in the shell for a message. Return its exit code, or ``None`` if it was interrupted.

    The shell has a session of its own, so that a signal reaches all that it has started. After an interruption, the
    message comes again, so the call waits until all of that has ended. Some seconds after the end of the shell, it
    kills the rest.
    """
    environment: Mapping[str, str] = {**os.environ, **environment_of(message)}
    with _passing_on_hangups() as begun:
        process = await asyncio.create_subprocess_shell(
            command, stdin=asyncio.subprocess.PIPE, env=environment, start_new_session=True
        )
        try:
            with stop.calling(lambda: _send(process.pid, signal.SIGTERM)):
                begun(process.pid)
                await process.communicate(_body(message))
            if stop:
                await _until_gone(process.pid)
        except BaseException:  # a second Ctrl-C, which is an interruption or a cancellation
            _send(process.pid, signal.SIGKILL)
            raise
    return None if stop and process.returncode else process.returncode


def _send(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, number)


@contextmanager
def _passing_on_hangups() -> Generator[Callable[[int], None]]:
    """Let the end of the terminal end a group too. It does not belong to the session of the terminal.

    Yields a function that takes the group. The terminal may end before the group is known: its first process may run
    already.
    """
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_DFL:
        yield lambda _: None  # as with nohup
        return
    loop = asyncio.get_running_loop()
    groups: list[int] = []
    hung_up = False

    def end() -> None:
        for group in groups:
            _send(group, signal.SIGHUP)
        loop.remove_signal_handler(signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGHUP)

    def hang_up() -> None:
        nonlocal hung_up
        hung_up = True
        if groups:
            end()

    def begun(group: int) -> None:
        groups.append(group)
        if hung_up:
            end()

    loop.add_signal_handler(signal.SIGHUP, hang_up)
    try:
        yield begun
    finally:
        if hung_up and not groups:
            end()  # no process was started
        loop.remove_signal_handler(signal.SIGHUP)


async def _until_gone(group: int) -> None:
    """Wait until a group has no process any more. Kill those that do not end in time."""
    try:
        async with asyncio.timeout(_GRACE):
            while True:
                os.killpg(group, 0)
                await asyncio.sleep(_PAUSE)
    except TimeoutError:
        _send(group, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _body(message: ServiceBusReceivedMessage) -> bytes:
    from sbredis.model import AmqpMessageBodyType, content_of

    if message.body_type is AmqpMessageBodyType.DATA:
        return bytes(content_of(message).body)
    return str(message).encode()


def _text(value: object) -> str | None:
    if isinstance(value, datetime):
        return value.isoformat()
    return None if value is None else str(value)
