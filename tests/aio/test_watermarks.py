"""Watermarks: of all transactions that advance one from the same value, exactly one happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from sbredis.aio import ServiceBusClient
from sbredis.engine import partition_for_key
from sbredis.exceptions import (
    MessageSizeExceededError,
    Outcome,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    WatermarkChangedError,
)
from sbredis.model import ServiceBusMessage


@pytest.fixture
async def client(url: str) -> AsyncIterator[ServiceBusClient]:
    async with ServiceBusClient(url) as client:
        await client.ensure_queue("jobs")
        yield client


async def advance(
    client: ServiceBusClient, to: str | None, expected: str | None, *bodies: str, queue: str = "jobs", key: str = "mark"
) -> int | None:
    """Advance the watermark ``mark`` in a transaction that sends messages. Return its sequence number."""
    async with client.get_queue_sender(queue) as sender, client.transaction() as tx:
        tx.advance(sender, "mark", to, expected=expected)
        tx.send_messages(sender, [ServiceBusMessage(body, partition_key=key) for body in bodies])
    return tx.watermarks["mark"]


async def peeked(client: ServiceBusClient, queue: str = "jobs") -> list[tuple[int | None, str]]:
    async with client.get_queue_receiver(queue) as receiver:
        return [(each.sequence_number, str(each)) for each in await receiver.peek_messages(100)]


@pytest.mark.everywhere("a watermark is in the partition of its name")
@pytest.mark.parametrize("partitioned", [False, True])
async def test_one_of_many_transactions_advances_a_watermark(client: ServiceBusClient, *, partitioned: bool) -> None:
    await client.ensure_queue("many", enable_partitioning=partitioned)
    assert await advance(client, "0", None, queue="many") is None
    for step in range(1, 4):
        tries = [advance(client, str(step), str(step - 1), f"{step}", queue="many") for _ in range(5)]
        results = await asyncio.gather(*tries, return_exceptions=True)
        numbers = [each for each in results if not isinstance(each, BaseException)]
        refusals = [each for each in results if isinstance(each, WatermarkChangedError)]
        assert (len(numbers), len(refusals)) == (1, 4)
        sent = await peeked(client, "many")
        assert sent[-1] == (numbers[0], str(step))
        for each in refusals:
            assert (each.name, each.value, each.sequence_number) == ("mark", str(step), numbers[0])
            assert (each.entity, each.outcome) == ("many", Outcome.REFUSED)
    assert [body for _, body in await peeked(client, "many")] == ["1", "2", "3"]


async def test_a_refusal_tells_that_a_watermark_is_absent(client: ServiceBusClient) -> None:
    with pytest.raises(
        WatermarkChangedError, match=r"expects the watermark 'mark' to be '1', but it is absent"
    ) as told:
        await advance(client, "2", "1", "x")
    assert (told.value.name, told.value.value, told.value.sequence_number) == ("mark", None, None)
    assert await peeked(client) == []


async def test_a_watermark_keeps_the_number_of_the_last_message_that_was_sent_with_it(client: ServiceBusClient) -> None:
    first = await advance(client, "1", None, "a", "b")
    assert await advance(client, "2", "1") == first
    assert [number for number, _ in await peeked(client)][-1] == first
    assert await advance(client, None, "2") == first
    assert await advance(client, "1", None) is None


async def test_a_watermark_is_gone_with_its_entity(client: ServiceBusClient, url: str) -> None:
    from sbredis.aio.management import ServiceBusAdministrationClient

    await advance(client, "1", None)
    async with ServiceBusAdministrationClient(url) as administration:
        await administration.delete_queue("jobs")
        await administration.create_queue("jobs")
    await advance(client, "1", None)


async def test_a_watermark_and_the_messages_of_its_transaction_are_in_one_partition(client: ServiceBusClient) -> None:
    await client.ensure_queue("parted", enable_partitioning=True)
    other = next(key for key in map(str, range(100)) if partition_for_key(key, 16) != partition_for_key("mark", 16))
    with pytest.raises(ServiceBusError, match="name of a watermark decides its partition") as refused:
        await advance(client, "1", None, "x", queue="parted", key=other)
    assert (refused.value.entity, refused.value.outcome) == ("parted", Outcome.NEVER_SENT)
    assert await advance(client, "1", None, "x", queue="parted") is not None


async def test_watermarks_of_two_entities_may_have_one_name(client: ServiceBusClient) -> None:
    await client.ensure_queue("others", colocate_with="jobs")
    async with client.transaction() as tx:
        for queue in ("jobs", "others"):
            tx.advance(client.get_queue_sender(queue), "mark", queue, expected=None)
    for queue in ("jobs", "others"):
        await advance(client, None, queue, queue=queue)


@pytest.mark.slow
async def test_a_partition_is_full_of_watermarks(client: ServiceBusClient) -> None:
    sender = client.get_queue_sender("jobs")
    for at in range(0, 10_000, 100):
        async with client.transaction() as tx:
            for number in range(at, at + 100):
                tx.advance(sender, str(number), "1", expected=None)
    with pytest.raises(ServiceBusQuotaExceededError, match="10000 watermarks"):
        await advance(client, "1", None)


# -- wrong calls -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "values", "kind", "text"),
    [
        ("", ("1", None), ValueError, "name is empty"),
        ("x" * 129, ("1", None), ValueError, "has 129 characters"),
        (7, ("1", None), TypeError, "name must be"),
        ("x", (1, None), TypeError, "to must be a str or None, not int"),
        ("x", ("1", 0), TypeError, "expected must be a str or None, not int"),
        ("x", ("", None), ValueError, "to must have 1 to 128 printable ASCII characters"),
        ("x", ("é", None), ValueError, "printable ASCII"),
        ("x", ("a\nb", None), ValueError, "printable ASCII"),
        ("x", ("1", "x" * 129), ValueError, "expected must have 1 to 128"),
        ("x", (None, None), ValueError, "cannot be removed"),
    ],
)
async def test_wrong_watermarks_are_refused(
    client: ServiceBusClient, name: Any, values: tuple[Any, Any], kind: type[Exception], text: str
) -> None:
    sender = client.get_queue_sender("jobs")
    async with client.transaction() as tx:
        with pytest.raises(kind, match=text):
            tx.advance(sender, name, values[0], expected=values[1])


async def test_a_transaction_advances_a_watermark_once(client: ServiceBusClient) -> None:
    sender = client.get_queue_sender("jobs")
    async with client.transaction() as tx:
        tx.advance(sender, "mark", "1", expected=None)
        with pytest.raises(ValueError, match="advances the watermark 'mark' already"):
            tx.advance(client.get_queue_sender("jobs"), "mark", "2", expected="1")
        for number in range(99):
            tx.advance(sender, str(number), "1", expected=None)
        with pytest.raises(MessageSizeExceededError, match="keys and watermarks"):
            tx.advance(sender, "more", "1", expected=None)
