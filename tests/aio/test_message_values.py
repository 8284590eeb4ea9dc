"""Ids, properties and bodies of every type: how they are sent, rules on them, and duplicate detection."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from sbredis.amqp import AmqpAnnotatedMessage
from sbredis.engine import partition_for_key
from sbredis.exceptions import MessageSizeExceededError
from sbredis.management import CorrelationRuleFilter, RuleProperties, SqlRuleAction, SqlRuleFilter, TrueRuleFilter
from sbredis.model import ServiceBusMessage
from tests.aio.gates import stored_bodies
from tests.aio.queues import PARTITIONS, both, queue_at
from tests.aio.topics import topic_at

ID = UUID("12345678-1234-5678-1234-567812345678")
IDS: list[Any] = ["text", 0, 2**64 - 1, ID, b"bytes", b"\xff", b"\x00" * 128]


def ids_of(message: Any) -> tuple[Any, ...]:
    return type(message.message_id), message.message_id, type(message.correlation_id), message.correlation_id


@pytest.mark.slow
@both
async def test_ids_are_received_with_the_type_and_value_that_were_sent(
    url: str, *, partitioned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "sbredis")
    async with (
        queue_at(url, partitioned=partitioned) as queue,
        queue.client.get_queue_sender("q") as sender,
        queue.receiver() as receiver,
    ):
        for given in IDS:
            sent: list[Any] = [
                ServiceBusMessage("own", message_id=given, correlation_id=given),
                {"body": "mapping", "message_id": given, "correlation_id": given},
                AmqpAnnotatedMessage(data_body="a", properties={"message_id": given, "correlation_id": given}),
            ]
            batch = await sender.create_message_batch()
            batch.add_message(sent[0])
            for each in (*sent, [sent[0]], batch):
                await sender.send_messages(each)
                (message,) = await receiver.receive_messages(1, max_wait_time=60)
                assert ids_of(message) == (type(given), given) * 2
                assert message.raw_amqp_message.properties.message_id == given
                assert repr(given) in repr(message)
                await receiver.complete_message(message)
        await sender.send_messages(ServiceBusMessage("x", message_id="last", correlation_id=b"\xff"))
        (peeked,) = await receiver.peek_messages(5)
        assert peeked.correlation_id == b"\xff"
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize(
    ("first", "again", "other"),
    [(7, "7", 8), (ID, str(ID), UUID(int=1)), (b"ab", "ab", b"\xff"), (b"\xff", b"\xff", b"\xfe")],
)
async def test_duplicates_are_recognised_by_the_text_of_their_ids(url: str, first: Any, again: Any, other: Any) -> None:
    async with (
        queue_at(url, partitioned=True, duplicate_window=60_000) as queue,
        queue.client.get_queue_sender("q") as sender,
    ):
        for body, message_id in (("1", first), ("2", first), ("3", again), ("4", other)):
            await sender.send_messages(ServiceBusMessage(body, message_id=message_id))
        found = await stored_bodies(queue)
        assert sorted(body for bodies in found for body in bodies) == ["1", "4"]
        key = again if isinstance(again, str) else first
        assert "1" in found[partition_for_key(key, PARTITIONS)]
        await sender.send_messages([ServiceBusMessage("5", message_id=one) for one in (first, again)])


@pytest.mark.slow
async def test_rules_see_the_text_of_an_id(url: str) -> None:
    rules = {
        "number": [RuleProperties("r", filter=CorrelationRuleFilter(message_id="7", correlation_id="8"))],
        "uuid": [RuleProperties("r", filter=SqlRuleFilter(f"sys.MessageId = '{ID}' AND sys.CorrelationId LIKE '12%'"))],
        "bytes": [RuleProperties("r", filter=SqlRuleFilter("sys.MessageId = 'ab'"))],
        "no text": [RuleProperties("r", filter=SqlRuleFilter("sys.MessageId = @id", {"@id": b"\xff"}))],
        "changed": [
            RuleProperties(
                "r",
                filter=TrueRuleFilter(),
                action=SqlRuleAction("SET id = sys.MessageId; SET sys.CorrelationId = sys.MessageId"),
            )
        ],
    }
    async with (
        topic_at(url, {name.replace(" ", "-"): rule for name, rule in rules.items()}) as subject,
        subject.sender() as sender,
    ):
        for given, correlated in ((7, 8), (ID, ID), (b"ab", None), (b"\xff", None)):
            await sender.send_messages(ServiceBusMessage(repr(given), message_id=given, correlation_id=correlated))
        assert await subject.take_bodies("number") == ["7"]
        assert await subject.take_bodies("uuid") == [repr(ID)]
        assert await subject.take_bodies("bytes") == ["b'ab'"]
        assert await subject.take_bodies("no-text") == [repr(b"\xff")]
        changed = await subject.take_all("changed")
        assert [message.message_id for message in changed] == [7, ID, b"ab"]
        assert [message.correlation_id for message in changed] == ["7", str(ID), "ab"]
        assert [(message.application_properties or {})["id"] for message in changed] == ["7", str(ID), "ab"]
        (failed,) = await subject.take_all("changed", dead=True)
        assert failed.message_id == b"\xff"
        assert "sys.CorrelationId must be text, not bytes" in str(failed.dead_letter_error_description)


@pytest.mark.slow
@both
async def test_the_raw_amqp_of_a_sender_is_received_byte_for_byte(url: str, *, partitioned: bool) -> None:
    raw = bytes(range(256)) * 40
    action = SqlRuleAction("SET sys.Label = 'changed'; SET extra = 1")
    rules = {"plain": None, "made": [RuleProperties("r", filter=SqlRuleFilter("a = 1"), action=action)]}
    async with topic_at(url, rules, partitioned=partitioned) as subject, subject.sender() as sender:
        sent = ServiceBusMessage("x", raw_amqp=raw, application_properties={"a": 1}, subject="s")
        await sender.send_messages(sent)
        (plain,), (made,) = await subject.take_all("plain"), await subject.take_all("made")
        assert plain.raw_amqp == made.raw_amqp == raw
        assert (plain.subject, made.subject) == ("s", "changed")
        assert (made.application_properties or {})["extra"] == 1
        await sender.send_messages(AmqpAnnotatedMessage(value_body=[1], raw_amqp=raw))
        (value,) = await subject.take_all("plain")
        assert (value.raw_amqp_message.raw_amqp, value.raw_amqp_message.body) == (raw, [1])


async def test_raw_amqp_counts_towards_the_size_of_a_message(url: str) -> None:
    async with queue_at(url, largest_message=100_000) as queue, queue.client.get_queue_sender("q") as sender:
        with pytest.raises(MessageSizeExceededError, match="properties included"):
            await sender.send_messages(ServiceBusMessage(b"x" * 60_000, raw_amqp=b"y" * 60_000))
        batch = await sender.create_message_batch()
        batch.add_message(ServiceBusMessage("x", raw_amqp=b"y" * 60_000))
        assert batch.size_in_bytes > 60_000
        with pytest.raises(MessageSizeExceededError):
            batch.add_message(ServiceBusMessage("x", raw_amqp=b"y" * 60_000))
        assert await stored_bodies(queue) == [[]]


async def test_a_property_that_is_too_large_is_refused_before_any_call(url: str) -> None:
    async with queue_at(url) as queue, queue.client.get_queue_sender("q") as sender:
        with pytest.raises(ValueError, match="subject has 150000 bytes; a property may have 32768"):
            await sender.send_messages({"body": "x", "subject": "s" * 150_000})
        message = ServiceBusMessage("x", subject="s" * 32_768, to="t" * 32_768)
        with pytest.raises(MessageSizeExceededError, match="together they may have 65536"):
            await sender.send_messages([ServiceBusMessage("before"), message])
        assert await stored_bodies(queue) == [[]]
        message.to = None
        message.time_to_live = timedelta(hours=1)
        await sender.send_messages(message)
        assert await stored_bodies(queue) == [["x"]]
