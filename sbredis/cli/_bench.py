"""``sbredis bench``: a short measurement of one's own server, in a queue of its own that is deleted afterwards."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from sbredis._counting import counted
from sbredis._tasks import to_the_end
from sbredis.cli._commands import command
from sbredis.cli._invocation import Invocation
from sbredis.cli._output import TableColumn
from sbredis.cli._parameters import DURATION, WholeRange
from sbredis.cli._progress import ProgressCounter
from sbredis.exceptions import MessagingEntityNotFoundError, ServiceBusError

if TYPE_CHECKING:
    from sbredis.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender
    from sbredis.model import ServiceBusMessage, ServiceBusReceivedMessage

__all__ = ["bench"]

_ABANDONED = timedelta(minutes=5)
"""A client with maintenance deletes the queue of a command that was killed, after this time without a use."""
_CLEARING = 5.0
"""How long to try to delete the queue after a failure, in seconds: the server may be the reason of the failure."""
_BATCH = 100
_AT_ONCE = 50
"""The number of tasks of the measurements in parallel."""
_WARMING = 20
Step = Callable[[], Awaitable[int]]
"""One operation. It returns the number of messages that it has dealt with."""


@command("bench", examples=["sbredis bench", "sbredis bench --time 5s --size 10000 --partitioned --output json"])
@click.option("--time", "duration", type=DURATION, default="1s", metavar="DURATION",
              help="How long each measurement takes. [1s]")  # fmt: skip
@click.option("--size", type=WholeRange(0, 200_000), default=100, metavar="BYTES", help="The size of a body. [100]")
@click.option("--partitioned", is_flag=True, help="Use a partitioned queue, on up to 16 servers.")
async def bench(invocation: Invocation, *, duration: timedelta, size: int, partitioned: bool) -> None:
    """Measure the server: sending, receiving and completing, one by one, in parallel and in batches.

    It takes about ten seconds, loads the server, and works in a queue of its own, which is deleted at the end and after
    Ctrl-C. This process is a part of what is measured: several processes together are faster.
    """
    if duration <= timedelta():
        raise click.UsageError("--time must be longer than 0.")
    rows = await _measure(invocation, duration.total_seconds(), size, partitioned=partitioned)
    invocation.out.table([TableColumn(name, rank) for rank, name in enumerate(rows[0])], rows)
    if not invocation.out.as_json:
        invocation.out.remark(f"bodies of {counted(size, 'byte')}; the times are of one call, in milliseconds")


async def _measure(invocation: Invocation, seconds: float, size: int, *, partitioned: bool) -> list[dict[str, Any]]:
    """Make all measurements with bodies of this size. Return a row for each."""
    rows: list[dict[str, Any]] = []
    client, name = invocation.client(), f"sbredis-bench-{secrets.token_hex(4)}"
    measurements = _Bench(client, name, seconds, bytes(size)).measurements
    with ProgressCounter("made", "measurement", total=len(measurements)) as progress:
        async with client, _queue(invocation, name, partitioned=partitioned):
            for title, made in measurements.items():
                result = await made()
                rows.append({"measurement": title, **summary_of(result)})
                progress.add()
    return rows


@asynccontextmanager
async def _queue(invocation: Invocation, name: str, *, partitioned: bool) -> AsyncGenerator[None]:
    """Make a queue, and delete it whatever happens."""
    async with invocation.administration() as administration:

        async def delete(timeout: float | None) -> None:
            with suppress(MessagingEntityNotFoundError):
                await administration.delete_queue(name, timeout=timeout)

        try:
            await administration.create_queue(name, enable_partitioning=partitioned, auto_delete_on_idle=_ABANDONED)
            yield
        except BaseException:
            try:
                await to_the_end(delete(_CLEARING))
            except ServiceBusError:
                minutes = _ABANDONED // timedelta(minutes=1)
                invocation.out.remark(
                    f"the queue {name} may be left: a client with maintenance deletes it after {minutes} minutes"
                )
            raise
        await to_the_end(delete(None))


class _Bench:
    """The measurements, in an order in which each finds what it needs."""

    def __init__(self, client: ServiceBusClient, name: str, seconds: float, body: bytes) -> None:
        self._client = client
        self._name = name
        self._seconds = seconds
        self._body = body
        self.measurements: dict[str, Callable[[], Awaitable[Result]]] = {
            "send, one by one": self._sends(1, 1),
            "send, 50 tasks": self._sends(1, _AT_ONCE),
            "send, batches of 100": self._sends(_BATCH, 1),
            "receive and complete, one by one": self._receives(1, 1),
            "receive and complete, 50 tasks": self._receives(1, _AT_ONCE),
            "receive and complete, batches of 100": self._receives(_BATCH, 1),
            "round trip to a waiting receiver": self._round_trips,
        }

    def _message(self) -> ServiceBusMessage:
        from sbredis.model import ServiceBusMessage

        return ServiceBusMessage(self._body)

    def _sends(self, batch: int, tasks: int) -> Callable[[], Awaitable[Result]]:
        async def measure() -> Result:
            async with self._client.get_queue_sender(self._name) as sender:
                return await self._measured(lambda: self._send(sender, batch), tasks)

        return measure

    async def _send(self, sender: ServiceBusSender, batch: int) -> int:
        await sender.send_messages([self._message() for _ in range(batch)] if batch > 1 else self._message())
        return batch

    def _receives(self, batch: int, tasks: int) -> Callable[[], Awaitable[Result]]:
        async def measure() -> Result:
            prefetch = 4 * tasks if tasks > 1 else 0
            async with (
                self._client.get_queue_sender(self._name) as sender,
                self._client.get_queue_receiver(self._name, prefetch_count=prefetch, max_wait_time=5) as receiver,
            ):

                async def receive() -> int:
                    messages = await receiver.receive_messages(batch, 0)
                    while not messages:  # the measurements of sending have left too few
                        await self._send(sender, 10 * _BATCH)
                        messages = await receiver.receive_messages(batch, 1)
                    await _complete(receiver, messages)
                    return len(messages)

                return await self._measured(receive, tasks)

        return measure

    async def _round_trips(self) -> Result:
        async with (
            self._client.get_queue_sender(self._name) as sender,
            self._client.get_queue_receiver(self._name, max_wait_time=5) as receiver,
        ):
            await receiver.purge_messages()

            async def trip() -> int:
                waiting = asyncio.ensure_future(receiver.receive_messages(1, 5))
                await asyncio.sleep(0)
                await sender.send_messages(self._message())
                messages = await waiting
                await _complete(receiver, messages)
                return len(messages)

            return await self._measured(trip, 1)

    async def _measured(self, step: Step, tasks: int) -> Result:
        """Repeat an operation in several tasks for the time of a measurement."""
        for _ in range(min(_WARMING, 2 * tasks)):
            await step()
        times: list[float] = []
        began = time.perf_counter()
        ends = began + self._seconds

        async def repeat() -> int:
            count = 0
            while (at := time.perf_counter()) < ends:
                count += await step()
                times.append(time.perf_counter() - at)
            return count

        async with asyncio.TaskGroup() as group:
            running = [group.create_task(repeat()) for _ in range(tasks)]
        return Result(sum(task.result() for task in running), time.perf_counter() - began, times)


async def _complete(receiver: ServiceBusReceiver, messages: list[ServiceBusReceivedMessage]) -> None:
    if len(messages) == 1:
        await receiver.complete_message(messages[0])
    else:
        await receiver.complete_messages(messages)


# -- the numbers -------------------------------------------------------------------------------------------------------


class Result(NamedTuple):
    """A measurement."""

    messages: int
    seconds: float
    times: Sequence[float]
    """The seconds that each call took."""


def summary_of(result: Result) -> dict[str, float | int | None]:
    """Return the messages a second, and the times in ms that half, 99 % and all of the calls did not exceed."""
    times = sorted(result.times)
    return {
        "messages_per_second": round(result.messages / max(result.seconds, 1e-9)),
        "calls": len(times),
        "median": _milliseconds(times, 0.5),
        "p99": _milliseconds(times, 0.99),
        "longest": _milliseconds(times, 1.0),
    }


def _milliseconds(times: Sequence[float], share: float) -> float | None:
    """Return the time that this share of the calls did not exceed."""
    if not times:
        return None
    return round(times[min(len(times) - 1, max(0, int(share * len(times) + 0.999999) - 1))] * 1000, 3)
