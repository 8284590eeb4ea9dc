"""Sending a stream of messages, with bounded memory and with results in order."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Generator, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from sbredis.client import deadline_of
from sbredis.exceptions import Outcome, ServiceBusError
from sbredis.model import ServiceBusMessage, as_message, keep_id, prepared, use_id
from sbredis.sending import size_of

if TYPE_CHECKING:
    from sbredis.client import ConnectionReference
    from sbredis.sending import Outbox
    from sbredis.telemetry import Observation, Telemetry

__all__ = ["SendResult", "SendStream"]

_YIELD_EVERY = 50

_log = logging.getLogger("sbredis.client")


@dataclass(frozen=True, slots=True)
class SendResult:
    """The outcome of one message of a stream."""

    index: int
    """The position of the message in the stream, from 0 on."""
    message: ServiceBusMessage
    sequence_number: int | None
    """The sequence number of the message, if the broker accepted it.

    A message with very many copies in the subscriptions of a topic gets another number when the first ones are made.
    """
    error: Exception | None = None
    """The error, if the message was not accepted or may not have been accepted."""


@dataclass(slots=True)
class _Pending:
    index: int
    message: Any
    future: asyncio.Future[int]
    message_id: str | None
    """The id that the message got for this send, if it got one."""


class SendStream(AsyncIterator[SendResult]):
    """A stream of messages that is being sent. Iterate over it for the results, or await it for the number sent.

    A separate task reads the source. It reads at most the sender's ``max_in_flight`` messages ahead of the iteration.
    If the iteration ends early, the task stops reading. It still sends the messages that it has read, and logs
    failures.
    """

    def __init__(
        self,
        outbox: Outbox,
        source: AsyncIterable[Any] | Iterable[Any],
        *,
        telemetry: Telemetry,
        streams: set[SendStream],
        timeout: float | None,
        errors: Literal["raise", "return"],
        progress: Callable[[int], object],
        window: int,
        reference: ConnectionReference,
    ) -> None:
        self._reference = reference
        self._outbox = outbox
        self._telemetry = telemetry
        self._streams = streams
        """The sender's streams that are under way."""
        self._source = source
        self._timeout = timeout
        self._errors = errors
        self._progress = progress
        self._accepted = 0
        self._window = window
        self._pending: deque[_Pending] = deque()
        self._unfinished: list[asyncio.Future[int]] = []
        """Sends that are still under way after the iteration has ended."""
        self._changed = asyncio.Event()
        self._feeder: asyncio.Task[None] | None = None
        self._exhausted = False
        self._failed: BaseException | None = None
        self._ended = False
        self._iterating = False

    def __aiter__(self) -> AsyncGenerator[SendResult]:
        return self._results()

    async def _results(self) -> AsyncGenerator[SendResult]:
        """Return a generator, because Python closes a generator when a loop over it is left early."""
        try:
            while True:
                try:
                    result = await anext(self)
                except StopAsyncIteration:
                    return
                yield result
        except GeneratorExit:
            await self.aclose()
            raise

    def __await__(self) -> Generator[Any, None, int]:
        return self._all().__await__()

    async def _all(self) -> int:
        count = 0
        async for result in self:
            if result.error is None:
                count += 1
        return count

    async def __anext__(self) -> SendResult:
        if self._ended:
            raise StopAsyncIteration
        if self._iterating:
            raise RuntimeError("a stream can be iterated over by one task at a time only")
        self._iterating = True
        try:
            return await self._next()
        except asyncio.CancelledError:
            await self._end(waits=False)
            raise
        except BaseException:
            await self.aclose()
            raise
        finally:
            self._iterating = False

    async def _next(self) -> SendResult:
        if self._feeder is None:
            self._streams.add(self)
            self._feeder = asyncio.get_running_loop().create_task(self._feed(), name="sbredis send_stream")
        while not self._pending:
            if self._exhausted:
                if self._failed is not None:
                    raise self._failed
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        first = self._pending[0]
        if not first.future.done():
            await asyncio.wait((first.future,))
            if self._ended:  # another task ended the stream meanwhile
                raise StopAsyncIteration
        self._pending.popleft()
        self._changed.set()
        if first.future.cancelled():
            _keep_id(first)
            raise asyncio.CancelledError
        error = first.future.exception()
        if error is None:
            self._accepted += 1
            self._progress(self._accepted)
            return SendResult(first.index, first.message, first.future.result())
        _keep_id(first)
        if not isinstance(error, Exception):
            raise error
        named = _named(error, first)
        if self._errors == "raise":
            raise named
        return SendResult(first.index, first.message, None, named)

    async def aclose(self) -> None:
        """Stop reading, and wait for the outcome of the messages that were read."""
        await self._end(waits=True)

    async def halt(self) -> None:
        """Stop the stream because the sender is closing. The iterating task gets the outcomes, and then an error."""
        if not self._exhausted:
            self._failed = ValueError("The sender was closed before the source of the stream had ended.")
        await self._stop()
        if self._pending:
            await asyncio.wait([pending.future for pending in self._pending])
        if not self._iterating:
            self._report()
        self._streams.discard(self)

    async def _end(self, *, waits: bool) -> None:
        self._ended = True
        await self._stop()
        self._unfinished += [pending.future for pending in self._pending]
        try:
            if self._unfinished and waits:
                await asyncio.wait(self._unfinished)
        finally:
            self._report()
            self._pending.clear()
            self._streams.discard(self)

    async def _stop(self) -> None:
        if self._feeder is not None and not self._feeder.done():
            self._feeder.cancel()
            await asyncio.wait((self._feeder,))
            self._exhausted = True  # the task may not even have started
            self._changed.set()

    def _report(self) -> None:
        """Log the failures that no caller will ask for."""
        errors: Counter[str] = Counter()
        for pending in self._pending:
            if not pending.future.done():
                _keep_id(pending)
                pending.future.add_done_callback(_log_failure)
            elif not pending.future.cancelled() and (error := pending.future.exception()) is not None:
                _keep_id(pending)
                errors[str(error)] += 1
        for error_text, count in errors.items():
            _log.warning(
                "%d messages of a stream failed, and no caller was waiting for their results any more: %s",
                count,
                error_text,
            )

    # -- reading the source --------------------------------------------------------------------------------------------

    async def _feed(self) -> None:
        try:
            async with aclosing(_each(self._source)) as items:
                index = 0
                async for item in items:
                    await self._put(index, item)
                    index += 1
                    if index % _YIELD_EVERY == 0:
                        await asyncio.sleep(0)  # let other tasks run, because the source may never wait
                    while len(self._pending) >= self._window:
                        self._changed.clear()
                        await self._changed.wait()
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001  # the source failed: the iterating task raises its error
            self._failed = error
        finally:
            self._exhausted = True
            self._changed.set()

    async def _put(self, index: int, item: Any) -> None:
        outbox = self._outbox
        message: Any = item
        message_id: str | None = None
        operation: Observation | None = None
        try:
            deadline = deadline_of(self._timeout)
            if self._telemetry.watching:
                message = as_message(item)
                operation = self._telemetry.operation("send", outbox.destination, messages=[message])
                operation.begin()
            entity = await outbox.ready(deadline)
            message = as_message(message)
            made = prepared(message, detects_duplicates=entity.detects_duplicates)
            message_id = use_id(message)
            listed = made if isinstance(made, bytes) else (made,)
            future = await outbox.begin((message,), listed, size_of(made), entity, deadline, ordered=True)
        except Exception as error:  # noqa: BLE001  # the result of this message carries the error
            future = asyncio.get_running_loop().create_future()
            future.set_exception(error)
        except BaseException as error:
            if message_id is not None:
                keep_id(message, message_id)
            if operation is not None:
                operation.end(error)
            raise
        if operation is not None:
            future.add_done_callback(partial(_end, operation))
        self._pending.append(_Pending(index, message, future, message_id))
        self._changed.set()


def _end(operation: Observation, future: asyncio.Future[int]) -> None:
    """End the operation of one message of a stream with its outcome."""
    if future.cancelled():
        operation.end(asyncio.CancelledError())
    elif (error := future.exception()) is not None:
        operation.end(error)
    else:
        operation.numbered([future.result()])
        operation.end()


async def _each(source: AsyncIterable[Any] | Iterable[Any]) -> AsyncGenerator[Any]:
    if isinstance(source, AsyncIterable):
        async for item in source:
            yield item
        return
    for item in source:
        yield item


def _keep_id(pending: _Pending) -> None:
    """Keep the id of a message whose send failed or may have failed, so that the next send uses the same id."""
    if isinstance(pending.message, ServiceBusMessage):
        keep_id(pending.message, pending.message_id)


def _log_failure(future: asyncio.Future[int]) -> None:
    if not future.cancelled() and (error := future.exception()) is not None:
        _log.warning("a message of a stream failed, and no caller was waiting for its result any more: %s", error)


def _named(error: Exception, pending: _Pending) -> Exception:
    """Return the error, with a text that names the message of the stream."""
    name = f"message {pending.index} of the stream"
    if isinstance(pending.message, ServiceBusMessage) and pending.message.message_id is not None:
        name += f" (message id {pending.message.message_id!r})"
    if isinstance(error, ServiceBusError):
        error.message = f"The {name} was not sent, or it is not known whether it was sent: {error.message}"
        if error.outcome is not Outcome.UNKNOWN:
            error.message = error.message.replace(", or it is not known whether it was sent", "", 1)
        return error
    error.add_note(f"It was the {name}.")
    return error
