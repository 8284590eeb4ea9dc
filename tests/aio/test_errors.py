"""Errors: how they are copied and pickled, and the advice in their texts."""

from __future__ import annotations

import copy
import pickle

import pytest

from sbredis import ServiceBusMessage
from sbredis.aio import ServiceBusClient
from sbredis.exceptions import MessagingEntityNotFoundError, Outcome, ScriptRefusedError, ServiceBusCommunicationError
from sbredis.registry import EntityRecord, Namespace


def test_an_error_can_be_copied_and_pickled() -> None:
    error = ScriptRefusedError("CODE", "detail", after_unknown=True)
    error.entity = "orders"
    for made in (copy.copy(error), pickle.loads(pickle.dumps(error)), error.twin()):  # noqa: S301  # our own
        assert type(made) is ScriptRefusedError
        assert (str(made), made.reply_code, made.after_unknown, made.entity) == (str(error), "CODE", True, "orders")


async def test_the_error_for_a_missing_entity_says_how_to_create_a_queue_or_topic() -> None:
    async with ServiceBusClient("memory://errors") as client:
        with pytest.raises(MessagingEntityNotFoundError, match=r"ensure_queue\('nope'\) or ensure_topic\('nope'\)"):
            await client.get_topic_sender("nope").send_messages([])


async def test_the_error_for_a_subscription_path_used_as_a_queue_names_the_right_method() -> None:
    client = ServiceBusClient("memory://errors")
    text = r"which is reserved: .* Receive from it with get_subscription_receiver\('a/t', 's'\), and send to its topic$"
    for get in (client.get_queue_sender, client.get_topic_sender, client.get_queue_receiver):
        with pytest.raises(ValueError, match=text):
            get("a/t/Subscriptions/s")
    for path in ("t/subscriptions", "subscriptions/s", "t/subscriptions/s/more"):
        with pytest.raises(ValueError, match=r"which is reserved$"):
            client.get_queue_sender(path)
    await client.close()


async def test_a_call_was_never_sent_if_its_entity_could_not_be_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The look-up continues a creation, and it is not known whether a partition was made. But no message was sent."""

    async def cut(*_: object, **__: object) -> EntityRecord:
        raise ServiceBusCommunicationError("a partition cannot be reached", outcome=Outcome.UNKNOWN)

    async with ServiceBusClient("memory://errors") as client:
        monkeypatch.setattr(Namespace, "get_entity", cut)
        with pytest.raises(ServiceBusCommunicationError) as raised:
            await client.get_queue_sender("half").send_messages(ServiceBusMessage(b"m"))
        assert (raised.value.outcome, raised.value.entity) == (Outcome.NEVER_SENT, "half")
