"""Watermarks: of all transactions that advance one from the same value, exactly one happens."""

# Made by tools/make_sync from tests/aio/test_watermarks.py.
# Change one of these two, and run `make sync`; a change in this file is lost.

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sbredis import ServiceBusClient
from sbredis.engine import partition_for_key
from sbredis.exceptions import (
    MessageSizeExceededError,
    Outcome,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    WatermarkChangedError,
)
from sbredis.model import ServiceBusMessage

pytestmark = [pytest.mark.memory("the asynchronous test runs on servers")]


@pytest.fixture
def client(url: str) -> Iterator[ServiceBusClient]:
    with ServiceBusClient(url) as client:
        client.ensure_queue("jobs")
        yield client


def advance(
    client: ServiceBusClient,
    to: str | None,
    expected: str | None,
    *bodies: str,
    queue: str = "jobs",
    key: str = "mark",
) -> int | None:
    """Advance the watermark ``mark`` in a transaction that sends messages. Return its sequence number."""
    with client.get_queue_sender(queue) as sender, client.transaction() as tx:
        tx.advance(sender, "mark", to, expected=expected)
        tx.send_messages(sender, [ServiceBusMessage(body, partition_key=key) for body in bodies])
    return tx.watermarks["mark"]


def peeked(client: ServiceBusClient, queue: str = "jobs") -> list[tuple[int | None, str]]:
    with client.get_queue_receiver(queue) as receiver:
        return [(each.sequence_number, str(each)) for each in receiver.peek_messages(100)]


def test_a_refusal_tells_that_a_watermark_is_absent(client: ServiceBusClient) -> None:
    with pytest.raises(
        WatermarkChangedError, match=r"expects the watermark 'mark' to be '1', but it is absent"
    ) as told:
        advance(client, "2", "1", "x")
    assert (told.value.name, told.value.value, told.value.sequence_number) == ("mark", None, None)
    assert peeked(client) == []


def test_a_watermark_keeps_the_number_of_the_last_message_that_was_sent_with_it(
    client: ServiceBusClient,
) -> None:
    first = advance(client, "1", None, "a", "b")
    assert advance(client, "2", "1") == first
    assert [number for number, _ in peeked(client)][-1] == first
    assert advance(client, None, "2") == first
    assert advance(client, "1", None) is None


def test_a_watermark_is_gone_with_its_entity(client: ServiceBusClient, url: str) -> None:
    from sbredis.management import ServiceBusAdministrationClient

    advance(client, "1", None)
    with ServiceBusAdministrationClient(url) as administration:
        administration.delete_queue("jobs")
        administration.create_queue("jobs")
    advance(client, "1", None)


def test_a_rollback_and_an_exception_do_not_advance(client: ServiceBusClient) -> None:
    sender = client.get_queue_sender("jobs")
    with client.transaction() as tx:
        tx.advance(sender, "mark", "1", expected=None)
        tx.rollback()
    assert not tx.watermarks
    with pytest.raises(TypeError, match="to must be"):
        advance(client, 1, None)  # type: ignore[arg-type]
    advance(client, "1", None)


def test_a_watermark_and_the_messages_of_its_transaction_are_in_one_partition(client: ServiceBusClient) -> None:
    client.ensure_queue("parted", enable_partitioning=True)
    other = next(key for key in map(str, range(100)) if partition_for_key(key, 16) != partition_for_key("mark", 16))
    with pytest.raises(ServiceBusError, match="name of a watermark decides its partition") as refused:
        advance(client, "1", None, "x", queue="parted", key=other)
    assert (refused.value.entity, refused.value.outcome) == ("parted", Outcome.NEVER_SENT)
    assert advance(client, "1", None, "x", queue="parted") is not None


@pytest.mark.slow
def test_a_partition_is_full_of_watermarks(client: ServiceBusClient) -> None:
    sender = client.get_queue_sender("jobs")
    for at in range(0, 10_000, 100):
        with client.transaction() as tx:
            for number in range(at, at + 100):
                tx.advance(sender, str(number), "1", expected=None)
    with pytest.raises(ServiceBusQuotaExceededError, match="10000 watermarks"):
        advance(client, "1", None)


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
def test_wrong_watermarks_are_refused(
    client: ServiceBusClient, name: Any, values: tuple[Any, Any], kind: type[Exception], text: str
) -> None:
    sender = client.get_queue_sender("jobs")
    with client.transaction() as tx:
        with pytest.raises(kind, match=text):
            tx.advance(sender, name, values[0], expected=values[1])


def test_a_transaction_advances_a_watermark_once(client: ServiceBusClient) -> None:
    sender = client.get_queue_sender("jobs")
    with client.transaction() as tx:
        tx.advance(sender, "mark", "1", expected=None)
        with pytest.raises(ValueError, match="advances the watermark 'mark' already"):
            tx.advance(client.get_queue_sender("jobs"), "mark", "2", expected="1")
        for number in range(99):
            tx.advance(sender, str(number), "1", expected=None)
        with pytest.raises(MessageSizeExceededError, match="keys and watermarks"):
            tx.advance(sender, "more", "1", expected=None)
