"""Errors in the background work of a client: they are logged once, the work is tried again, and the client goes on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, ClassVar

import pytest

from sbredis.aio import ServiceBusClient
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.maintenance import DutyResources, Maintenance
from sbredis.maintenance._duty import Duty, Tenure
from sbredis.maintenance._maintenance import DUTIES
from sbredis.model import ServiceBusMessage
from tests.aio.diverting import divert
from tests.aio.gates import Gate
from tests.aio.queues import PARTITIONS, Queue, in_memory, queue_at
from tests.waiting import eventually


class _Broken(Duty):
    """A duty with a defect."""

    runs: ClassVar[list[float]] = []

    def called(self) -> None:
        raise ZeroDivisionError

    async def run(self, tenure: Tenure) -> None:
        del tenure
        self.runs.append(asyncio.get_running_loop().time())
        await asyncio.sleep(0)
        raise ZeroDivisionError(len(self.runs))


class _Annoying(Duty):
    """A duty that does its work, and fails whenever the list of entities was read."""

    reads: ClassVar[list[int]] = []

    def called(self) -> None: ...

    async def run(self, tenure: Tenure) -> None:
        del tenure

        def read(_: object) -> None:
            self.reads.append(len(self.shared.census.by_id))
            raise AttributeError("read")

        ended = self.shared.census.use(read)
        try:
            await asyncio.Event().wait()
        finally:
            ended()


def of_role(kind: type[Duty], name: str) -> type[Duty]:
    return type(kind.__name__, (kind,), {"role": name})


@pytest.fixture(autouse=True)
def fresh() -> None:
    _Broken.runs.clear()
    _Annoying.reads.clear()


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR]


async def still_works(queue: Queue) -> bool:
    await queue.client.get_queue_sender("q").send_messages(ServiceBusMessage("x"))
    async with queue.receiver() as receiver:
        (message,) = await receiver.receive_messages(1)
        await receiver.complete_message(message)
    return not queue.client._connection.closed


@asynccontextmanager
async def maintaining(queue: Queue, *duties: type[Duty]) -> AsyncIterator[Maintenance]:
    connection = queue.client._connection
    maintenance = Maintenance(connection, duties)
    assert connection.start(maintenance.run())
    try:
        yield maintenance
    finally:
        await maintenance.end()


async def test_a_duty_with_a_defect_is_tried_again_and_harms_nothing_else(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        queue_at(url) as queue,
        maintaining(queue, of_role(_Broken, "broken"), of_role(_Annoying, "annoying"), *DUTIES) as maintenance,
    ):
        await eventually(lambda: len(_Broken.runs) >= 4)
        pauses = [after - before for before, after in zip(_Broken.runs, _Broken.runs[1:], strict=False)]
        assert pauses[0] >= 0.5
        assert pauses[2] >= 2 * 0.5 * 2, "the pauses grow"
        await eventually(lambda: _Annoying.reads)
        maintenance.census.read_now()
        await eventually(lambda: len(_Annoying.reads) >= 2)
        assert all(maintenance.keeper(duty.role).held for duty in DUTIES)
        assert await still_works(queue)
    logged = errors(caplog)
    assert sum("the duty 'broken' failed because of a defect, and is tried again" in each for each in logged) == 1
    assert sum("a use of the list of entities failed because of a defect" in each for each in logged) == 1
    assert len(logged) == 2
    assert all(each.exc_info for each in caplog.records if each.levelno >= logging.ERROR)


@pytest.mark.slow
@pytest.mark.parametrize("script", ["read_changes", "hold_role", "upcoming", "calling", "quiet"])
async def test_a_defect_in_any_call_of_maintenance_is_logged_once_and_passes(
    url: str, script: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with queue_at(url) as queue:
        async with ServiceBusAdministrationClient(url, namespace="ns") as administration:
            await administration.create_queue("temporary", auto_delete_on_idle=timedelta(minutes=5))
        async with maintaining(queue, *DUTIES) as maintenance:
            transport = queue.transport
            through, broken, seen = transport.call, 2, 0

            async def call(given: Any, *arguments: Any, **options: Any) -> Any:
                nonlocal broken, seen
                if given.name == script:
                    seen += 1
                    if broken:
                        broken -= 1
                        raise AttributeError("a defect of the test")
                return await through(given, *arguments, **options)

            divert(transport, call)
            await eventually(lambda: not broken and seen > 2)
            assert await still_works(queue)
            await eventually(lambda: all(maintenance.keeper(duty.role).held for duty in DUTIES))
            divert(transport, through)
    logged = [each for each in errors(caplog) if "a defect" in each]
    assert 1 <= len(logged) <= 3, "once for each role at most"
    assert len(set(logged)) == len(logged)


@in_memory
async def test_a_client_is_closed_during_maintenance_without_an_error_in_the_log(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The client is closed after each number of steps of the event loop after each call."""
    async with ServiceBusAdministrationClient(url, slot_count=PARTITIONS) as administration:
        for name in ("one", "two"):
            await administration.create_topic(name)
            await administration.create_subscription(name, "s")
        await administration.create_queue("temporary", auto_delete_on_idle=timedelta(minutes=5))
    for script in ("read_changes", "upcoming", "hold_role", "calling", "quiet"):
        for steps in range(14):
            client = ServiceBusClient(url, maintenance=True)
            await client._connection.open(asyncio.get_running_loop().time() + 60)
            with Gate(client, script) as gate:
                gate.shut = True
                await gate.reached()
                gate.open()
                for _ in range(steps):
                    await asyncio.sleep(0)
                await client.close()
            assert errors(caplog) == [], (script, steps)


@in_memory
@pytest.mark.parametrize("script", ["read_changes", "upcoming", "calling"])
async def test_a_client_is_closed_while_a_call_of_maintenance_is_held(
    url: str, script: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with ServiceBusAdministrationClient(url, slot_count=PARTITIONS) as administration:
        await administration.create_topic("t")
        await administration.create_subscription("t", "s")
    client = ServiceBusClient(url, maintenance=True)
    await client._connection.open(asyncio.get_running_loop().time() + 60)
    with Gate(client, script) as gate:
        gate.shut = True
        await gate.reached()
        await client.close()
    assert errors(caplog) == []


class _Failing:
    """Work that fails."""

    def __init__(self) -> None:
        self.begun = 0

    async def work(self) -> None:
        self.begun += 1
        raise AttributeError("a defect of the test")


@in_memory
async def test_work_for_which_nobody_waits_does_not_close_the_client(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    failing = _Failing()
    async with queue_at(url) as queue:
        for _ in range(3):
            assert queue.client._connection.attempt("some work", failing.work)
        await eventually(lambda: failing.begun == 3)
        assert await still_works(queue)
    assert errors(caplog) == ["some work failed because of a defect, and is tried again"]


@in_memory
async def test_an_error_after_the_end_of_a_client_is_not_logged(url: str, caplog: pytest.LogCaptureFixture) -> None:
    async with queue_at(url) as queue:
        shared = DutyResources.of(queue.client._connection)
    shared.failures.report("some work", ZeroDivisionError())
    assert errors(caplog) == []
