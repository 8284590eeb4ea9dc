"""Tests of a batch: its size is the size that the broker counts for its messages, and it never exceeds the limit."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbredis.engine import MAXIMUM_CALL_MESSAGES, decode
from sbredis.exceptions import MessageSizeExceededError
from sbredis.model import AmqpAnnotatedMessage, ServiceBusMessage, ServiceBusMessageBatch, contents_of, outgoing

BATCH: Any = ServiceBusMessageBatch


@given(st.lists(st.binary(max_size=300), max_size=12), st.integers(1, 2000))
def test_a_batch_accepts_messages_up_to_its_size(bodies: list[bytes], limit: int) -> None:
    batch, expected = ServiceBusMessageBatch(limit), list[bytes]()
    for body in bodies:
        message = ServiceBusMessage(body)
        payload = outgoing(message, detects_duplicates=False).payload
        if sum(map(len, expected)) + len(payload) <= limit:
            batch.add_message(message)
            expected.append(payload)
        else:
            with pytest.raises(MessageSizeExceededError, match="does not fit"):
                batch.add_message(message)
        assert [sent.payload for sent in contents_of(batch).outgoing] == expected
        assert batch.size_in_bytes == sum(map(len, expected)) <= batch.max_size_in_bytes
        assert len(batch) == len(expected)


def test_a_message_that_does_not_fit_is_refused_with_a_remedy() -> None:
    batch = ServiceBusMessageBatch(1000)
    batch.add_message(ServiceBusMessage(bytes(600)))
    with pytest.raises(MessageSizeExceededError, match="Send the batch, and put the message into another batch"):
        batch.add_message(ServiceBusMessage(bytes(600)))
    with pytest.raises(MessageSizeExceededError, match="does not fit into any batch of this size: it takes 1000 bytes"):
        batch.add_message(ServiceBusMessage(bytes(2000)))
    assert len(batch) == 1


def test_a_batch_accepts_every_form_of_a_message() -> None:
    batch = ServiceBusMessageBatch()
    batch.add_message({"body": "a"})
    batch.add_message(AmqpAnnotatedMessage(data_body="b"))
    batch.add_message(ServiceBusMessage("c"))
    contents = contents_of(batch)
    assert [decode(sent.payload).body for sent in contents.outgoing] == [b"a", b"b", b"c"]
    assert all(
        sent.message_id == str(message.message_id).encode()
        for message, sent in zip(contents.messages, contents.outgoing, strict=True)
    )
    assert batch.max_size_in_bytes == 1024 * 1024


def test_a_batch_keeps_a_message_as_it_was_when_added() -> None:
    batch, message = ServiceBusMessageBatch(), ServiceBusMessage("x", subject="before")
    batch.add_message(message)
    message.subject = "after"
    assert decode(contents_of(batch).outgoing[0].payload).subject == "before"


def test_a_batch_takes_at_most_as_many_messages_as_one_call() -> None:
    batch = ServiceBusMessageBatch()
    for _ in range(MAXIMUM_CALL_MESSAGES):
        batch.add_message(ServiceBusMessage(None))
    size = batch.size_in_bytes
    with pytest.raises(MessageSizeExceededError, match="full: it has 1000 messages"):
        batch.add_message(ServiceBusMessage(None))
    assert (len(batch), batch.size_in_bytes) == (MAXIMUM_CALL_MESSAGES, size)


def test_an_invalid_message_leaves_the_batch_unchanged() -> None:
    batch = ServiceBusMessageBatch()
    unfit = ServiceBusMessage("x", application_properties={"a": "x" * 40_000})
    for wrong, error in (("text", TypeError), ({"subject": "x"}, TypeError), (unfit, MessageSizeExceededError)):
        add: Any = batch.add_message
        with pytest.raises(error):
            add(wrong)
    assert (len(batch), batch.size_in_bytes) == (0, 0)


@pytest.mark.parametrize(("size", "error"), [(0, ValueError), (-1, ValueError), ("1", TypeError), (True, TypeError)])
def test_an_invalid_size_is_refused(size: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="max_size_in_bytes must be"):
        BATCH(size)


def test_the_repr_of_a_batch_shows_how_full_it_is() -> None:
    batch = ServiceBusMessageBatch(500)
    batch.add_message(ServiceBusMessage("secret", message_id="m"))
    assert repr(batch) == f"<ServiceBusMessageBatch 1 messages, {batch.size_in_bytes} of 500 bytes>"
