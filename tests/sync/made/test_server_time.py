"""The time of the server of an entity, which may have another clock than this machine."""

# Made by tools/make_sync from tests/aio/test_server_time.py.
# Change one of these two, and run `make sync`; a change in this file is lost.

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from sbredis import ServiceBusClient
from sbredis.exceptions import MessagingEntityNotFoundError

pytestmark = [pytest.mark.memory("the asynchronous test runs on servers")]


def test_the_time_of_the_server_of_an_entity(url: str) -> None:
    """The servers of tests run on this machine, so their clocks are that of the machine."""
    with ServiceBusClient(url) as client:
        client.ensure_queue("orders", enable_partitioning=True)
        for path, key in (("orders", None), ("orders/$DeadLetterQueue", "a"), ("ORDERS", "b"), ("orders", "c")):
            before = datetime.now(UTC)
            found = client.server_time(path, partition_key=key)
            after = datetime.now(UTC)
            assert found.tzinfo is UTC
            assert before - (after - before) <= found <= after + (after - before)


def test_an_unknown_entity_has_no_server(url: str) -> None:
    with ServiceBusClient(url) as client:
        with pytest.raises(MessagingEntityNotFoundError):
            client.server_time("orders")
        with pytest.raises(ValueError, match="partition_key"):
            client.server_time("orders", partition_key="k" * 129)
        with pytest.raises(MessagingEntityNotFoundError):
            client.describe_entity("orders")
