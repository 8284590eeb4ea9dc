"""Calls that come together: how few are made, in which order, and whose failure is whose."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import Any

import pytest

from sbredis.aio import ServiceBusClient, ServiceBusSender
from sbredis.exceptions import (
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    OperationTimeoutError,
    Outcome,
    ServiceBusError,
    ServiceBusQuotaExceededError,
)
from sbredis.model import ServiceBusMessage
from sbredis.servers import LocalServer
from tests.aio.gates import Gate, lies_in
from tests.aio.standing import Calls, both, in_memory, queue_at
from tests.aio.test_sending import flat
from tests.transport.hand import turns

pytestmark = pytest.mark.anyio


def sends(sender: ServiceBusSender, *bodies: str | bytes, timeout: float = 20) -> list[asyncio.Task[None]]:
    return [asyncio.create_task(sender.send_messages(ServiceBusMessage(body), timeout=timeout)) for body in bodies]


async def ended(tasks: list[asyncio.Task[None]]) -> list[BaseException | None]:
    return await asyncio.gather(*tasks, return_exceptions=True)


# -- how many calls ----------------------------------------------------------------------------------------------------


async def test_a_thousand_sends_are_a_handful_of_calls(url: str) -> None:
    async with queue_at(url) as queue, queue.client.get_queue_sender("q", max_in_flight=5000) as sender:
        with Calls(queue.transport) as calls:
            await asyncio.gather(*sends(sender, *map(str, range(800))))
        assert calls.by_script["send"] <= 6
        (found,) = await lies_in(queue)
        assert sorted(map(int, found)) == list(range(800))


async def test_over_partitions_they_are_few_as_well(url: str) -> None:
    async with queue_at(url, partitioned=True) as queue, queue.client.get_queue_sender("q") as sender:
        with Calls(queue.transport) as calls:
            await asyncio.gather(*sends(sender, *map(str, range(500))))
        assert calls.by_script["send"] <= 16
        assert len(flat(await lies_in(queue))) == 500


async def test_the_server_runs_as_few_scripts(server: LocalServer) -> None:
    """Counted by the server itself."""
    async with queue_at(server.url) as queue, queue.client.get_queue_sender("q") as sender:
        server.ask("CONFIG", "RESETSTAT")
        await asyncio.gather(*sends(sender, *map(str, range(500))))
        line = next(line for line in str(server.ask("INFO", "commandstats")).splitlines() if "evalsha" in line)
        assert int(line.partition("calls=")[2].partition(",")[0]) <= 6


@in_memory
async def test_the_first_is_not_delayed(url: str) -> None:
    """Its call is made in the next turns of the loop, whoever else may come."""
    async with queue_at(url) as queue, queue.client.get_queue_sender("q") as sender:
        with Gate(queue.client) as gate:
            gate.shut = True
            first = sends(sender, "first")
            await turns(4)
            assert len(gate.came) == 1
            gate.open()
            await asyncio.gather(*first)


@in_memory
async def test_what_comes_while_calls_are_under_way_gathers_for_the_next(url: str) -> None:
    async with queue_at(url) as queue, queue.client.get_queue_sender("q") as sender:
        with Gate(queue.client) as gate:
            gate.shut = True
            tasks = sends(sender, "1", "2")
            await turns(5)
            for body in "3456789":
                tasks += sends(sender, body)
                await turns(5)
            under_way = len(gate.came)
            assert under_way <= 2
            gate.open()
            await asyncio.gather(*tasks)
            assert len(gate.came) == under_way + 1
        assert flat(await lies_in(queue)) == list("123456789")


async def test_a_call_takes_no_more_than_the_script_does(url: str) -> None:
    """A thousand messages, four megabytes: what does not fit goes with the next."""
    async with queue_at(url) as queue, queue.client.get_queue_sender("q", max_in_flight=10_000) as sender:
        with Gate(queue.client) as gate:
            gate.shut = True
            tasks = sends(sender, *[b"x" * 900_000] * 9) + [
                asyncio.create_task(sender.send_messages([ServiceBusMessage("y")] * 600)) for _ in range(4)
            ]
            await gate.reached()
            gate.open()
            await asyncio.gather(*tasks)
            for call in gate.came:
                payloads = [argument for argument in call.arguments[6:] if isinstance(argument, bytes)]
                assert len(payloads) <= 1000
                assert sum(map(len, payloads)) <= 4 * 1024 * 1024
            assert len(gate.came) >= 4
        assert (await queue.counts()).active == 2409


@both
async def test_several_senders_share_calls(url: str, *, partitioned: bool) -> None:
    async with queue_at(url, partitioned=partitioned) as queue:
        senders = [queue.client.get_queue_sender("q") for _ in range(20)]
        await asyncio.gather(*(sender.send_messages([]) for sender in senders))
        with Calls(queue.transport) as calls:
            await asyncio.gather(*(task for sender in senders for task in sends(sender, *"abcdefghij")))
        assert calls.by_script["send"] <= 8
        assert len(flat(await lies_in(queue))) == 200


@both
async def test_who_awaits_each_send_keeps_the_order_beside_a_crowd(url: str, *, partitioned: bool) -> None:
    async with queue_at(url, partitioned=partitioned) as queue, queue.client.get_queue_sender("q") as sender:

        async def one(key: str) -> None:
            for number in range(8):
                await sender.send_messages(ServiceBusMessage(f"{key}{number:02}", partition_key=key))

        await asyncio.gather(*map(one, "abcdefghij"))
        for key in "abcdefghij":
            for bodies in await lies_in(queue):
                of_key = [body for body in bodies if body.startswith(key)]
                assert of_key in ([], [f"{key}{number:02}" for number in range(8)])


# -- whose failure is whose --------------------------------------------------------------------------------------------


async def test_who_is_too_large_for_the_quota_fails_alone(url: str) -> None:
    async with queue_at(url, quota=20_000) as queue, queue.client.get_queue_sender("q") as sender:
        bodies = [b"small", bytes(30_000), b"small", bytes(25_000), *[b"small"] * 20, bytes(40_000)]
        with Gate(queue.client) as gate:
            gate.shut = True
            tasks = sends(sender, b"first", b"second")
            await gate.reached()
            tasks += sends(sender, *bodies)
            await turns(5)
            gate.open()
            found = await ended(tasks)
        large = [error for body, error in zip([b"first", b"second", *bodies], found, strict=True) if len(body) > 100]
        assert [error for error in found if error is not None] == large
        assert all(type(error) is ServiceBusQuotaExceededError for error in large)
        assert len({id(error) for error in large}) == 3
        for error in large:
            assert isinstance(error, ServiceBusError)
            assert (error.entity, error.outcome, error.is_transient) == ("q", Outcome.REFUSED, False)
            assert error.tracking_id in str(error)
            assert "entity 'q'" in str(error)
        assert (await queue.counts()).active == len(found) - 3


async def test_a_full_queue_is_found_out_with_few_calls(url: str) -> None:
    async with queue_at(url, quota=100) as queue, queue.client.get_queue_sender("q") as sender:
        with Calls(queue.transport) as calls:
            found = await ended(sends(sender, *[bytes(500)] * 400))
        assert {type(error) for error in found} == {ServiceBusQuotaExceededError}
        assert calls.by_script["send"] <= 30
        assert sender.in_flight == 0


@in_memory
async def test_what_became_too_large_meanwhile_fails_alone(url: str) -> None:
    """Another client has lowered the limit."""
    async with queue_at(url) as queue, queue.client.get_queue_sender("q") as sender:
        await sender.send_messages([])
        record = queue.entity.record
        async with queue.other_client() as other:
            settings = record.settings.__class__(largest_message=1000)
            await other._connection.namespace.update_entity(record, settings)
        found = await ended(sends(sender, b"a", bytes(2000), b"b"))
        assert [type(error) for error in found] == [type(None), MessageSizeExceededError, type(None)]
        assert flat(await lies_in(queue)) == ["a", "b"]


@in_memory
async def test_everybody_gets_an_error_of_their_own(url: str) -> None:
    """One exception must not be raised in two tasks."""
    async with queue_at(url, status="Disabled") as queue, queue.client.get_queue_sender("q") as sender:
        found = await ended(sends(sender, *"abc"))
        assert [type(error) for error in found] == [MessagingEntityDisabledError] * 3
        assert len({id(error) for error in found}) == 3


@in_memory
async def test_a_defect_ends_callers_instead_of_hanging_them(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with queue_at(url) as queue, queue.client.get_queue_sender("q") as sender:
        await sender.send_messages([])
        lane = queue.entity.desk(queue.entity.numbers[0]).sending
        with monkeypatch.context() as patched:

            def broken(*_: Any) -> None:
                raise ZeroDivisionError("oh")

            patched.setattr(lane, "answer", broken)
            (error,) = await ended(sends(sender, "a"))
        assert isinstance(error, ServiceBusError)
        assert error.outcome is Outcome.UNKNOWN
        assert "A defect in sbredis: ZeroDivisionError: oh" in str(error)
        assert "broke on a defect" in caplog.text
        assert sender.in_flight == 0
        await asyncio.gather(*sends(sender, "b"))


# -- time --------------------------------------------------------------------------------------------------------------


async def test_each_caller_of_a_call_has_a_deadline_of_its_own(binary: str | None) -> None:
    """Those who have no time left end; the others get their outcome, when the server goes on."""
    with LocalServer(binary=binary) as server:
        async with queue_at(server.url) as queue, queue.client.get_queue_sender("q") as sender:
            await sender.send_messages([])
            server.pause()
            try:
                began = time.monotonic()
                patient = sends(sender, *"ab", timeout=60)
                hasty = sends(sender, *"cd", timeout=0.2)
                await turns(5)
                late = sends(sender, "e", timeout=0.2)
                late_too = [asyncio.create_task(sender.cancel_scheduled_messages(1, timeout=0.2))]
                found = await ended(hasty + late + late_too)
                assert 0.2 <= time.monotonic() - began < 5
            finally:
                server.resume()
            for error in found:
                assert isinstance(error, OperationTimeoutError)
                assert (error.entity, error.is_transient) == ("q", True)
            outcomes = [error.outcome for error in found if isinstance(error, ServiceBusError)]
            assert outcomes == [Outcome.UNKNOWN] * 2 + outcomes[2:]
            await asyncio.gather(*patient)
            await sender.close()
            bodies = flat(await lies_in(queue))
            assert bodies[:4] == list("abcd")
            assert bodies[4:] == ([] if outcomes[2] is Outcome.NEVER_SENT else ["e"])


@in_memory
async def test_who_waits_behind_calls_that_take_all_the_time_was_never_sent(url: str) -> None:
    async with queue_at(url) as queue, queue.client.get_queue_sender("q") as sender:
        await sender.send_messages([])
        with Gate(queue.client) as gate:
            gate.shut = True
            first = sends(sender, *"ab")
            await gate.reached()
            first += sends(sender, "c")
            await turns(5)
            (error,) = await ended(sends(sender, "d", timeout=0.05))
            assert isinstance(error, OperationTimeoutError)
            assert error.outcome is Outcome.NEVER_SENT
            assert "the calls before it took all the time" in str(error)
            gate.open()
            await asyncio.gather(*first)
        await sender.close()
        assert flat(await lies_in(queue)) == list("abc")


@in_memory
async def test_the_time_for_connecting_counts(url: str) -> None:
    client = ServiceBusClient(url, namespace="ns")
    async with client:
        calls: list[Awaitable[Any]] = [
            client.get_queue_sender("q").send_messages(ServiceBusMessage("x"), timeout=1e-9),
            client.ensure_queue("q", timeout=1e-9),
        ]
        for call in calls:
            with pytest.raises(OperationTimeoutError) as caught:
                await call
            assert caught.value.outcome is not Outcome.REFUSED
