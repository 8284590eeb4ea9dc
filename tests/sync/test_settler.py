"""The settler of a thread: it opens, settles by the lock tokens of another client, and closes."""

from __future__ import annotations

import pytest

from sbredis import ServiceBusClient, ServiceBusMessage
from sbredis.exceptions import MessagingEntityNotFoundError


def test_a_settler_looks_its_entity_up_when_it_opens_and_is_closed_after_its_block(url: str) -> None:
    with ServiceBusClient(url) as client, ServiceBusClient(url) as other:
        with pytest.raises(MessagingEntityNotFoundError), other.get_settler("orders"):
            pass
        client.ensure_queue("orders")
        with client.get_queue_sender("orders") as sender, client.get_queue_receiver("orders") as receiver:
            sender.send_messages(ServiceBusMessage("a"))
            (message,) = receiver.receive_messages(1, 60)
            token = str(message.lock_token)
            with other.get_settler("orders") as settler:
                settler.dead_letter_message(token, "why")
            with pytest.raises(ValueError, match="closed"):
                settler.complete_message(token)
            assert receiver.peek_messages() == []
