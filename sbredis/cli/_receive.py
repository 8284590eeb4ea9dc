"""``sbredis receive``: messages as lines, or as the input of a command, each settled when it was dealt with."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import click

from sbredis._counting import counted
from sbredis._visible import json_line
from sbredis.cli._commands import command
from sbredis.cli._exit_codes import ExitCode
from sbredis.cli._invocation import Invocation
from sbredis.cli._outage import OutageRemarks
from sbredis.cli._parameters import DURATION, WholeRange, dead_letters, entity_argument
from sbredis.cli._progress import ProgressCounter
from sbredis.cli._stopping import Stop, to_a_good_end
from sbredis.cli._streams import Sink
from sbredis.exceptions import ServiceBusError, SessionLockLostError
from sbredis.operating import dead_letters_of, entity_of, fields_of, names_dead_letters, shown_body, source_of

if TYPE_CHECKING:
    from sbredis.aio import ServiceBusClient, ServiceBusReceiver
    from sbredis.model import ServiceBusReceivedMessage, ServiceBusSessionFilter

__all__ = ["receive"]

_AHEAD = 100
"""The number of messages that are received at a time. The command holds them until it has dealt with them."""
_LONGEST = 365 * 86_400.0
_FIRST_DELAY = 1.0
"""The delay after the first failure, as workers have it by default, in seconds."""
_RETRY = 1.0
"""The seconds until the next attempt if the server does not answer."""
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
Settlement = Literal["complete", "dead-letter", "abandon", "none"]


@command("receive", examples=[
    "sbredis receive orders",
    "sbredis receive orders --count 100 --output json | jq .body",
    "sbredis receive orders --follow --exec './handle-order.sh'",
    "sbredis receive chats --session next --all",
])  # fmt: skip
@entity_argument()
@dead_letters
@click.option("--count", type=WholeRange(1), metavar="N", help="Receive N messages at most. [1]")
@click.option("--all", "everything", is_flag=True, help="Receive until no message comes for the time --wait.")
@click.option("--follow", is_flag=True, help="Receive for ever.")
@click.option("--wait", type=DURATION, default="5s", metavar="DURATION", help="How long to wait for a message. [5s]")
@click.option("--session", metavar="ID", help="Receive from this session, or from the 'next' free one.")
@click.option("--ack", type=click.Choice(["complete", "dead-letter", "none"]), default="complete",
              help="What becomes of a message; 'none' gives it back at the end. [complete]")  # fmt: skip
@click.option("--reason", metavar="TEXT", help="The reason of dead letters.")
@click.option("--exec", "handler", metavar="COMMAND",
              help="Run this for each message: the body on stdin, properties as $SBREDIS_….")  # fmt: skip
@click.option("--on-failure", "chosen", type=click.Choice(["abandon", "dead-letter", "none"]),
              help="What becomes of a message whose COMMAND fails. [abandon]")  # fmt: skip
@click.option("--retry-delay", type=DURATION, metavar="DURATION",
              help="How long an abandoned message waits at first. The time doubles up to 5m. [1s]")  # fmt: skip
async def receive(
    invocation: Invocation,
    *,
    entity: str,
    dead_letters: bool,
    count: int | None,
    everything: bool,
    follow: bool,
    wait: timedelta,
    session: str | None,
    ack: Settlement,
    reason: str | None,
    handler: str | None,
    chosen: Settlement | None,
    retry_delay: timedelta | None,
) -> int:
    """Receive messages, and print their bodies.

    A message is completed after its line was written, and in a pipe after the reader has taken it. With --exec it is
    completed when COMMAND has ended with 0. If COMMAND fails, the message comes again after a delay, until it becomes a
    dead letter at the limit of deliveries. After Ctrl-C, and when the reader of the pipe has gone, the messages that
    were not dealt with go back to the queue, without counting a delivery.
    """
    from sbredis.receiving import require_reason

    if sum([count is not None, everything, follow]) > 1:
        raise click.UsageError("Give one of --count, --all and --follow.")
    if chosen is not None and handler is None:
        raise click.UsageError("--on-failure is for messages whose --exec COMMAND fails.")
    if handler is not None and not handler.strip():
        raise click.UsageError("--exec COMMAND is empty: every message would be completed, and none be handled.")
    on_failure: Settlement = chosen or "abandon"
    if reason is not None and "dead-letter" not in {ack, on_failure}:
        raise click.UsageError("--reason is for dead letters: give --ack dead-letter, or --on-failure dead-letter.")
    require_reason(reason, None)
    if retry_delay is not None and (handler is None or on_failure != "abandon"):
        raise click.UsageError("--retry-delay is for messages whose --exec COMMAND fails and that are abandoned.")
    if retry_delay is not None and retry_delay > timedelta(seconds=_LONGEST):
        raise click.UsageError("--retry-delay may be a year at most.")
    path = dead_letters_of(entity) if dead_letters else entity
    if names_dead_letters(path) and "dead-letter" in {ack, on_failure}:
        raise click.UsageError("The messages are dead letters already.")
    limit = None if everything or follow else count or 1
    receiving = _ReceiveRun(
        invocation=invocation, limit=limit, wait=None if follow else wait.total_seconds(), ack=ack,
        reason=reason, handler=handler, on_failure=on_failure,
        retry_delay=_FIRST_DELAY if retry_delay is None else retry_delay.total_seconds(),
        outage=OutageRemarks(invocation),
    )  # fmt: skip
    with receiving.progress:
        async with invocation.client() as client, invocation.looking_for(entity_of(path)):
            longest = wait_of(wait.total_seconds(), follow=follow)
            async with _receivers(client, path, session, longest) as another:
                await to_a_good_end(lambda stop: receiving.run(another, stop))
            if receiving.reader_gone:
                raise BrokenPipeError
    if receiving.failed:
        verb = "was" if receiving.failed == 1 else "were"
        invocation.out.remark(
            f"{receiving.failed:,} of {counted(receiving.progress.count, 'message')} {verb} not handled"
        )
        return ExitCode.FAILED
    if not receiving.progress.count:
        invocation.out.remark("no message came" if receiving.opened else "no session is free")
        return ExitCode.DIFFERENT
    return ExitCode.DONE


@asynccontextmanager
async def _receivers(
    client: ServiceBusClient, path: str, session: str | None, wait: float
) -> AsyncGenerator[Callable[[], ServiceBusReceiver]]:
    """Yield a function that returns a new receiver. The locks of its messages, or of its session, are renewed."""
    from sbredis.aio import AutoLockRenewer
    from sbredis.model import NEXT_AVAILABLE_SESSION

    info = await source_of(client, path)
    if info.requires_session and session is None:
        raise click.UsageError(f"{info.path} has sessions: give --session ID or --session next.")
    if session is not None and not info.requires_session:
        raise click.UsageError(f"{info.path} has no sessions: leave out --session.")
    chosen: str | ServiceBusSessionFilter | None = NEXT_AVAILABLE_SESSION if session == "next" else session
    async with AutoLockRenewer(max_lock_renewal_duration=_LONGEST) as renewer:
        yield partial(client.get_receiver, path, session_id=chosen, max_wait_time=wait, auto_lock_renewer=renewer)


@dataclass(kw_only=True)
class _ReceiveRun:
    """One run of the command."""

    invocation: Invocation
    limit: int | None
    wait: float | None
    """How long to wait for a message, in seconds; ``None`` for ever."""
    ack: Settlement
    reason: str | None
    handler: str | None
    on_failure: Settlement
    retry_delay: float
    """How long a message waits after its first failure, in seconds."""
    progress: ProgressCounter = field(default_factory=lambda: ProgressCounter("received", beside_output=True))
    outage: OutageRemarks
    failed: int = 0
    """The number of messages that were not handled, or whose settlement has failed."""
    opened: bool = False
    """Whether a receiver was opened."""
    reader_gone: bool = False
    held: dict[int, ServiceBusReceivedMessage] = field(default_factory=dict[int, Any])
    """The messages that go back at the end, by their numbers."""
    settling: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    async def run(self, another: Callable[[], ServiceBusReceiver], stop: Stop) -> None:
        """Receive messages and deal with them. If the lock on a session ends, go on with ``another`` receiver."""
        while (receiver := await self._open(another, stop)) is not None:
            try:
                await self._receive(receiver, stop)
            except SessionLockLostError as error:
                if self.wait is not None:
                    raise
                self.invocation.out.remark(f"{error.message.partition('.')[0]}. A session is accepted again.")
            else:
                return
            finally:
                await receiver.close()

    async def _open(self, another: Callable[[], ServiceBusReceiver], stop: Stop) -> ServiceBusReceiver | None:
        """Return an open receiver. ``None`` if no session is free, or the command is interrupted.

        A command that receives for ever waits for a free session, and for one that it has had.
        """
        from sbredis.receiving import NoSessionError

        while not stop:
            receiver = another()
            try:
                if await stop.unless(receiver.__aenter__()) is not None:
                    self.opened = True
                    return receiver
            except NoSessionError:
                if self.wait is not None:
                    break
            except ServiceBusError as error:
                if self.wait is not None or not self.opened:
                    raise
                self.outage.failed(error)
                await stop.sleep(_RETRY)
        return None

    async def _receive(self, receiver: ServiceBusReceiver, stop: Stop) -> None:
        """Receive messages and deal with them, and give back what is left."""
        sink = Sink()
        try:
            while not stop and (messages := await self._next(receiver, stop)):
                self.held |= {message.sequence_number: message for message in messages}
                for message in messages:
                    if not await self._deal(receiver, sink, message, stop):
                        return
        except BrokenPipeError:  # an error that leaves the block of a session counts as a failed delivery
            self.reader_gone = True
        finally:
            await asyncio.gather(*self.settling)
            await asyncio.gather(*(_give_back(receiver, message) for message in self.held.values()))
            self.held.clear()

    async def _next(self, receiver: ServiceBusReceiver, stop: Stop) -> Sequence[ServiceBusReceivedMessage]:
        """Return the next messages. None come after the last one, or when the command is interrupted."""
        wanted = _AHEAD if self.handler is None else 1
        if self.limit is not None:
            wanted = min(wanted, self.limit - self.progress.count)
        while wanted and not stop:
            try:
                found = await stop.unless(receiver.receive_messages(wanted, self.wait, gather=False))
            except ServiceBusError as error:
                if self.wait is not None:
                    raise
                self.outage.failed(error)
                await stop.sleep(_RETRY)
                continue
            if found is not None:
                self.outage.answered()
            if found or self.wait is not None:
                return found or ()
        return ()

    async def _deal(
        self, receiver: ServiceBusReceiver, sink: Sink, message: ServiceBusReceivedMessage, stop: Stop
    ) -> bool:
        """Print or handle a message and settle it. Return False if the command was interrupted before."""
        settlement = self.ack
        if self.handler is None:
            if stop or not await sink.put(_line(message, as_json=self.invocation.out.as_json), stop):
                return False
        else:
            code = None if stop else await _handle(self.handler, message, stop)
            if code is None:
                return False
            if code:
                self.failed += 1
                settlement = self.on_failure
        self.progress.add()
        if settlement != "none":
            del self.held[message.sequence_number]
            task = asyncio.create_task(self._settle(receiver, message, settlement))
            self.settling.add(task)
            task.add_done_callback(self.settling.discard)
        return True

    async def _settle(
        self, receiver: ServiceBusReceiver, message: ServiceBusReceivedMessage, settlement: Settlement
    ) -> None:
        try:
            if settlement == "complete":
                await receiver.complete_message(message)
            elif settlement == "abandon":
                await receiver.abandon_message(
                    message, delay=delay_after(message.delivery_count or 1, self.retry_delay)
                )
            else:
                await receiver.dead_letter_message(message, self.reason)
        except ServiceBusError as error:
            self.failed += 1
            self.invocation.out.remark(f"message {message.sequence_number}: {error.message}")


def wait_of(wait: float, *, follow: bool) -> float:
    """Return the seconds for which a receiver waits on the server.

    A command that receives for ever asks again after each wait. So it waits for some time even if the user gave none.
    """
    return max(wait, _RETRY) if follow else wait


def delay_after(failures: int, first: float) -> float:
    """Return the seconds until a message comes again that has failed so often, as a worker counts them."""
    from sbredis.workers import Retries

    longest = max(first, Retries().longest_delay)
    return Retries(first_delay=first, longest_delay=longest, jitter=False).delay(failures, lambda: 1.0)


async def _give_back(receiver: ServiceBusReceiver, message: ServiceBusReceivedMessage) -> None:
    with suppress(ServiceBusError):  # its lock is lost, or the server is: then the message goes back by itself
        await receiver.release_message(message)


def _line(message: ServiceBusReceivedMessage, *, as_json: bool) -> bytes:
    """Return what is printed for a message. A pipe gets the body as it is."""
    from sbredis.model import AmqpMessageBodyType, content_of

    if as_json:
        return json_line(fields_of(message)).encode() + b"\n"
    if sys.stdout.isatty() or message.body_type is not AmqpMessageBodyType.DATA:
        return shown_body(message).encode() + b"\n"
    return bytes(content_of(message).body) + b"\n"


# -- a command of the user: it gets the body of a message on its stdin, and the properties in its environment ----------


def environment_of(message: ServiceBusReceivedMessage) -> dict[str, str]:
    """Return the variables for a message: ``SBREDIS_SUBJECT`` and so on, and ``SBREDIS_PROPERTY_NAME`` for properties.

    Letters of a property's name become capitals, and other characters become ``_``.
    """
    found = {f"SBREDIS_{name.upper()}": _text(getattr(message, name)) for name in _TOLD}
    for name, value in (message.application_properties or {}).items():
        found["SBREDIS_PROPERTY_" + re.sub(r"\W", "_", name, flags=re.ASCII).upper()] = _text(value)
    return {name: value.replace("\0", "") for name, value in found.items() if value is not None}


async def _handle(command: str, message: ServiceBusReceivedMessage, stop: Stop) -> int | None:
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
            with stop.calling(lambda: _signal(process.pid, signal.SIGTERM)):
                begun(process.pid)
                await process.communicate(_body(message))
            if stop:
                await _until_gone(process.pid)
        except BaseException:  # a second Ctrl-C, which is an interruption or a cancellation
            _signal(process.pid, signal.SIGKILL)
            raise
    return None if stop and process.returncode else process.returncode


def _signal(group: int, number: signal.Signals) -> None:
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
            _signal(group, signal.SIGHUP)
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
        _signal(group, signal.SIGKILL)
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
