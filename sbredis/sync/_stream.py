"""Sending a stream of messages from a thread, with bounded memory and with results in order."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from sbredis import aio
from sbredis.aio import SendResult
from sbredis.client import progress_of
from sbredis.exceptions import Outcome, ServiceBusError

if TYPE_CHECKING:
    from sbredis.sync._bridge import Bridge

__all__ = ["SendStream"]


class _End(NamedTuple):
    """Marks the end of the items to send, or the end of the results.

    It has the error that ended them, if there was one.
    """

    error: BaseException | None


class _SourceQueue(AsyncIterator[Any]):
    """A queue from a thread to the event loop. The first item wakes the loop; further items do not wake it again before
    it reads.
    """

    def __init__(self, post: Callable[[Callable[[], object]], object]) -> None:
        self._post = post
        self._items: deque[Any] = deque()
        self._arrived = asyncio.Event()
        self._waking = False

    def put(self, item: Any) -> None:
        """Add one item. The thread calls this."""
        self._items.append(item)
        if not self._waking:
            self._waking = True
            self._post(self._wake)

    def _wake(self) -> None:
        self._waking = False  # the loop reads the items after this, so each later item must wake the loop again
        self._arrived.set()

    async def __anext__(self) -> Any:
        while not self._items:
            self._arrived.clear()
            await self._arrived.wait()
        item = self._items.popleft()
        if not isinstance(item, _End):
            return item
        if item.error is not None:
            raise item.error
        raise StopAsyncIteration


class SendStream(Iterator[SendResult]):
    """A stream of messages that is being sent. Iterate over it for the results, or call :meth:`count` for their number.

    The iterating thread itself reads the source, so the source may use objects of that thread, such as a database
    cursor or a receiver. The thread reads only while no result is available, and at most the sender's ``max_in_flight``
    messages ahead. Each message is sent as soon as it is read, even while the thread waits for the source. If the
    iteration ends early, the stream stops reading. It still sends the messages that it has read, and logs failures.
    """

    def __init__(
        self,
        bridge: Bridge,
        sender: aio.ServiceBusSender,
        source: Iterable[Any],
        *,
        timeout: float | None,
        errors: Literal["raise", "return"],
        progress: Callable[[int], object] | None,
        window: int,
    ) -> None:
        self._progress = progress_of(progress)
        self._accepted = 0
        self._bridge = bridge
        self._items = _SourceQueue(bridge.post)
        self._stream = bridge.run(sender.send_stream, self._items, timeout=timeout, errors=errors)
        self._source = iter(source)
        self._window = window
        self._under_way = 0
        self._exhausted = False
        self._results: SimpleQueue[SendResult | _End] = SimpleQueue()
        self._task: asyncio.Task[None] | None = None
        self._ended = False
        self._iterating = threading.Lock()

    def __iter__(self) -> Generator[SendResult]:
        """Return a generator, because Python closes a generator when a loop over it is left early."""
        try:
            while (result := next(self, None)) is not None:
                yield result
        except GeneratorExit:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __next__(self) -> SendResult:
        if not self._iterating.acquire(blocking=False):
            raise RuntimeError("a stream can be iterated over by one thread at a time only")
        try:
            result = self._next()
        except BaseException:
            self._end(waits=False)
            raise
        finally:
            self._iterating.release()
        if result is None:
            raise StopIteration
        return result

    def count(self) -> int:
        """Send the rest of the source, and return the number of messages that were accepted."""
        return sum(result.error is None for result in self)

    def close(self) -> None:
        """Stop reading, and wait for the outcome of the messages that were read."""
        self._end(waits=True)

    def _end(self, *, waits: bool) -> None:
        self._ended = True
        if self._task is not None:
            self._bridge.finish(partial(self._stop, self._task, waits=waits))

    def _next(self) -> SendResult | None:
        if self._ended:
            return None
        if self._task is None:
            self._task = self._bridge.call(self._start)
        while self._under_way < self._window and not self._exhausted and self._results.empty():
            self._read()
        result = self._results.get()
        if not isinstance(result, _End):
            self._under_way -= 1
            if result.error is None:
                self._accepted += 1
                self._progress(self._accepted)
            return result
        self._ended = True
        if isinstance(result.error, asyncio.CancelledError):
            raise ServiceBusError("The sender or its client was closed meanwhile.", outcome=Outcome.UNKNOWN)
        if result.error is not None:
            raise result.error
        return None

    def _read(self) -> None:
        try:
            item = next(self._source)
        except StopIteration:
            item = _End(None)
        except Exception as error:  # noqa: BLE001  # the error of the source is raised after the earlier results
            item = _End(error)
        self._exhausted = isinstance(item, _End)
        self._under_way += not self._exhausted
        self._items.put(item)

    # -- in the loop ---------------------------------------------------------------------------------------------------

    async def _start(self) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(_collect(self._stream, self._results))
        await asyncio.sleep(0)  # let the task start: a task that never runs does not mark the end of the results
        return task

    async def _stop(self, task: asyncio.Task[None], *, waits: bool) -> None:
        task.cancel()
        await asyncio.wait((task,))
        if waits:
            await self._stream.aclose()
        await self._stream.aclose()


async def _collect(stream: aio.SendStream, results: SimpleQueue[SendResult | _End]) -> None:
    end: BaseException | None = None
    try:
        async for result in stream:
            results.put(result)
    except BaseException as error:  # noqa: BLE001  # the iterating thread raises the error
        end = error
    results.put(_End(end))
