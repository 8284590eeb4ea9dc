"""Keys of transactions: the work of a key is done once within its window."""

# Made by tools/make_sync from tests/aio/test_once.py.
# Change one of these two, and run `make sync`; a change in this file is lost.

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from sbredis import ServiceBusClient, ServiceBusSender, ServiceBusTransaction
from sbredis.engine import MessageId, slot_for_name
from sbredis.exceptions import KeyAlreadyUsedError, MessageSizeExceededError, Outcome
from sbredis.model import ServiceBusMessage
from tests.sync.queues import bodies_in

pytestmark = [pytest.mark.memory("the asynchronous test runs on servers")]


HOUR = timedelta(hours=1)


@pytest.fixture
def client(url: str) -> Iterator[ServiceBusClient]:
    with ServiceBusClient(url) as client:
        client.ensure_queue("inputs")
        client.ensure_queue("outputs", colocate_with="inputs")
        yield client


def send_once(client: ServiceBusClient, name: str, body: str, *keys: MessageId, window: Any = HOUR) -> None:
    with client.get_queue_sender(name) as sender, client.transaction() as tx:
        for key in keys:
            tx.once(key, window)
        tx.send_messages(sender, ServiceBusMessage(body))


def test_the_second_transaction_with_a_key_is_refused(client: ServiceBusClient) -> None:
    send_once(client, "outputs", "first", "order 7")
    with pytest.raises(KeyAlreadyUsedError, match=r"'order 7'.*was done before") as refused:
        send_once(client, "outputs", "second", "new", "order 7")
    assert (refused.value.key, refused.value.entity, refused.value.outcome) == ("order 7", "outputs", Outcome.REFUSED)
    assert bodies_in(client, "outputs") == ["first"]
    send_once(client, "outputs", "third", "new")


def test_a_text_is_the_same_key_as_its_bytes(client: ServiceBusClient) -> None:
    send_once(client, "outputs", "first", "ä")
    with pytest.raises(KeyAlreadyUsedError) as refused:
        send_once(client, "outputs", "second", "ä".encode())
    assert refused.value.key == "ä".encode()


@pytest.mark.parametrize(
    ("key", "same"),
    [
        (7, "7"),
        (UUID("12345678-1234-5678-1234-567812345678"), "12345678-1234-5678-1234-567812345678"),
        (b"\xff", bytearray(b"\xff")),
    ],
)
def test_a_key_is_anything_that_a_message_id_may_be(client: ServiceBusClient, key: MessageId, same: Any) -> None:
    """Keys are compared like message ids: by their texts."""
    send_once(client, "outputs", "first", key)
    with pytest.raises(KeyAlreadyUsedError) as refused:
        send_once(client, "outputs", "second", same)
    assert refused.value.key == same
    assert bodies_in(client, "outputs") == ["first"]


def test_the_input_of_known_work_stays_locked_and_can_be_completed(client: ServiceBusClient) -> None:
    """The first settled entity remembers the key, whether or not the transaction sends before it settles."""
    with client.get_queue_sender("inputs") as sender:
        sender.send_messages([ServiceBusMessage("1"), ServiceBusMessage("1 again")])
    outputs = client.get_queue_sender("outputs")
    with client.get_queue_receiver("inputs") as receiver:
        for _ in range(2):
            (message,) = receiver.receive_messages(1, 60)
            try:
                with client.transaction() as tx:
                    tx.once("order 1", HOUR)
                    tx.send_messages(outputs, ServiceBusMessage("bill"))
                    tx.complete_message(message)
            except KeyAlreadyUsedError:
                receiver.complete_message(message)
    assert (bodies_in(client, "inputs"), bodies_in(client, "outputs")) == ([], ["bill"])


def test_each_first_entity_has_keys_of_its_own(client: ServiceBusClient) -> None:
    send_once(client, "outputs", "a", "key")
    send_once(client, "inputs", "b", "key")
    far = next(name for n in range(100) if slot_for_name(name := f"q{n}", 256) != slot_for_name("inputs", 256))
    client.ensure_queue(far)
    near, there = client.get_queue_sender("inputs"), client.get_queue_sender(far)

    def send_from(*senders: ServiceBusSender) -> None:
        with client.transaction() as tx:
            for sender in senders:
                tx.send_messages(sender, ServiceBusMessage("c"))
            tx.once("key", HOUR)

    with pytest.raises(KeyAlreadyUsedError) as refused:
        send_from(near, there)
    assert refused.value.entity == "inputs"
    send_from(there, near)


def test_a_rollback_and_an_exception_do_not_use_the_key(client: ServiceBusClient) -> None:
    with client.get_queue_sender("outputs") as sender:
        with client.transaction() as tx:
            tx.once("key", HOUR)
            tx.send_messages(sender, ServiceBusMessage("a"))
            tx.rollback()
        with pytest.raises(ZeroDivisionError):
            _fail(client.transaction())
    send_once(client, "outputs", "b", "key")
    assert bodies_in(client, "outputs") == ["b"]


def _fail(transaction: ServiceBusTransaction) -> None:
    with transaction as tx:
        tx.once("key", HOUR)
        raise ZeroDivisionError


# -- wrong calls -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "window", "kind", "text"),
    [
        ("", 1, ValueError, "key is empty"),
        ("x" * 129, 1, ValueError, "has 129 characters"),
        ("\ud800", 1, ValueError, "surrogate"),
        (b"", 1, ValueError, "key has 0 bytes"),
        (b"x" * 129, 1, ValueError, "key has 129 bytes"),
        (7.5, 1, TypeError, "key must be str, int, UUID or bytes, not float"),
        (True, 1, TypeError, "key must be str, int, UUID or bytes, not bool"),
        (None, 1, TypeError, "key must be str, int, UUID or bytes, not NoneType"),
        (-1, 1, ValueError, "does not fit into 64 bits"),
        ("x", 0, ValueError, "more than 0 seconds"),
        ("x", -1, ValueError, "more than 0 seconds"),
        ("x", float("nan"), ValueError, "more than 0 seconds"),
        ("x", timedelta(0), ValueError, "more than 0 seconds"),
        ("x", timedelta(days=366, seconds=1), ValueError, "at most 366 days"),
        ("x", True, TypeError, "timedelta or a number of seconds, not bool"),
        ("x", "1", TypeError, "timedelta or a number of seconds, not str"),
    ],
)
def test_wrong_keys_and_windows_are_refused(
    client: ServiceBusClient, key: Any, window: Any, kind: type[Exception], text: str
) -> None:
    with client.transaction() as tx:
        with pytest.raises(kind, match=text):
            tx.once(key, window)


def test_a_key_is_given_once(client: ServiceBusClient) -> None:
    with client.transaction() as tx:
        tx.once("key", HOUR)
        with pytest.raises(ValueError, match="uses the key 'key' already"):
            tx.once("key", 1)
        tx.rollback()
        with pytest.raises(ValueError, match="was rolled back"):
            tx.once("other", HOUR)
    with pytest.raises(ValueError, match="has ended"):
        tx.once("other", HOUR)


def test_a_key_needs_a_message(client: ServiceBusClient) -> None:
    with pytest.raises(ValueError, match="neither sends nor settles a message"):
        with client.transaction() as tx:
            tx.once("key", HOUR)


def test_keys_count_in_the_limit_of_a_transaction(client: ServiceBusClient) -> None:
    with client.get_queue_sender("outputs") as sender:
        with client.transaction() as tx:
            for number in range(99):
                tx.once(f"key {number}", HOUR)
            tx.send_messages(sender, ServiceBusMessage("a"))
            with pytest.raises(MessageSizeExceededError, match="messages, session states, keys and watermarks"):
                tx.once("one more", HOUR)
        with pytest.raises(KeyAlreadyUsedError) as refused:
            send_once(client, "outputs", "b", "new", "key 50")
        assert refused.value.key == "key 50"
