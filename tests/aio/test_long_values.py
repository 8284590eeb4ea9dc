"""An error quotes enough of a value to recognise it, but never the whole of a value of 10,000 characters."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from sbredis._quoting import quoted, shortened
from sbredis.aio import ServiceBusClient
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.management import SqlRuleFilter
from sbredis.model import ServiceBusMessage

LONG: Any = "x" * 10_000
LONG_NUMBER = 10**9000
LONGEST = 2_000
"""The maximum length of an error text, including its quotes."""


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("orders", "'orders'"),
        ("x" * 58, "'" + "x" * 58 + "'"),
        ("x" * 59, "'" + "x" * 58 + "…"),
        ("x" * 61, "'" + "x" * 58 + "…"),
        (b"\xff" * 61, repr(b"\xff" * 61)[:59] + "…"),
        (["x" * 100], "['" + "x" * 57 + "…"),
        (10**5000, "a value of the type int"),
        (7, "7"),
        (None, "None"),
    ],
    ids=lambda value: str(type(value).__name__),
)
def test_a_value_is_quoted_up_to_sixty_characters(value: object, shown: str) -> None:
    assert quoted(value) == shown
    assert len(quoted(value)) <= 60


def test_a_text_is_shortened_to_the_requested_length() -> None:
    assert (shortened("abcdef", 6), shortened("abcdefg", 6)) == ("abcdef", "abcde…")


CALLS: dict[str, Callable[[ServiceBusClient], object]] = {
    "queue": lambda client: client.get_queue_sender(LONG),
    "segment": lambda client: client.get_queue_sender(f"a/{LONG}/subscriptions/{LONG}"),
    "topic": lambda client: client.get_topic_sender(LONG),
    "subscription": lambda client: client.get_subscription_receiver("events", LONG),
    "session": lambda client: client.get_queue_receiver("orders", session_id=LONG),
    "sub-queue": lambda client: client.get_queue_receiver("orders", sub_queue=LONG),
    "receive mode": lambda client: client.get_queue_receiver("orders", receive_mode=LONG),
    "least wait": lambda client: client.get_queue_receiver("orders", max_wait_time=-LONG_NUMBER),
    "sub-queues": lambda client: client.get_queue_receiver(f"{LONG}/$deadletterqueue", sub_queue="transferdeadletter"),
    "prefetch": lambda client: client.get_queue_receiver("orders", prefetch_count=10**9000),
    "wait": lambda client: client.get_queue_receiver("orders", max_wait_time=-(10**9000)),
    "create_if_missing": lambda client: client.get_queue_sender("orders", create_if_missing=LONG),
    "max_in_flight": lambda client: client.get_queue_sender("orders", max_in_flight=-(10**9000)),
    "url": lambda _: ServiceBusClient(f"redis://{LONG}:1:2"),
    "host": lambda _: ServiceBusClient(f"redis://{LONG}!"),
    "scheme": lambda _: ServiceBusClient(f"{LONG}://host"),
    "option": lambda _: ServiceBusClient(f"redis://host?{LONG}=1"),
    "choice": lambda _: ServiceBusClient(f"redis://host?durability={LONG}"),
    "database": lambda _: ServiceBusClient(f"redis://host/{LONG}"),
    "namespace in the url": lambda _: ServiceBusClient(f"redis://host?namespace={LONG}"),
    "namespace": lambda _: ServiceBusClient("memory://x", namespace=LONG),
    "retry_mode": lambda _: ServiceBusClient("memory://x", retry_mode=LONG),
    "retry_total": lambda _: ServiceBusClient("memory://x", retry_total=LONG),
    "message id": lambda _: ServiceBusMessage("", message_id=LONG),
    "session id": lambda _: ServiceBusMessage("", session_id=LONG),
    "partition key": lambda _: ServiceBusMessage("", session_id="a", partition_key=LONG[:100]),
    "property": lambda _: ServiceBusMessage("", application_properties={LONG: object()}),
}


@pytest.mark.parametrize("name", CALLS)
async def test_a_refused_argument_is_not_quoted_in_full(name: str) -> None:
    async with ServiceBusClient("memory://long-values") as client:
        with pytest.raises((ValueError, TypeError)) as refused:
            CALLS[name](client)
        assert len(str(refused.value)) < LONGEST


ADMINISTRATION: dict[str, Callable[[ServiceBusAdministrationClient], Coroutine[Any, Any, object]]] = {
    "queue": lambda client: client.get_queue(LONG),
    "duration": lambda client: client.create_queue("q", lock_duration=LONG),
    "status": lambda client: client.create_queue("q", status=LONG),
    "delivery limit": lambda client: client.create_queue("q", max_delivery_count=10**9000),
    "metadata": lambda client: client.create_queue("q", user_metadata=LONG),
    "forwarding": lambda client: client.create_queue("q", forward_to=LONG),
    "subscription": lambda client: client.create_subscription("t", LONG),
    "neighbour": lambda client: client.ensure_queue("q", colocate_with=LONG),
    "unknown property": lambda client: client.update_queue({"name": "q", LONG: 1}),
    "unknown properties": lambda client: client.update_queue({"name": "q", **dict.fromkeys(map(str, range(999)))}),
    "page": lambda client: client.list_queues().by_page(LONG).next_page(),
    "page of rules": lambda client: client.list_rules("t", "s").by_page(LONG).next_page(),
    "rule": lambda client: client.create_rule("t", "s", LONG),
    "filter": lambda client: client.create_rule("t", "s", "r", filter=SqlRuleFilter(f"{LONG} = ")),
    "number": lambda client: client.create_rule("t", "s", "r", filter=SqlRuleFilter(f"a = {'1' * 9000}")),
    "system property": lambda client: client.create_rule("t", "s", "r", filter=SqlRuleFilter(f"sys.{LONG} = 1")),
}


@pytest.mark.parametrize("name", ADMINISTRATION)
async def test_a_value_refused_by_the_administration_client_is_not_quoted_in_full(name: str) -> None:
    async with ServiceBusAdministrationClient.from_connection_string("memory://long-values") as client:
        await client.create_queue("q")
        await client.create_topic("t")
        await client.create_subscription("t", "s")
        with pytest.raises((ValueError, TypeError)) as refused:
            await ADMINISTRATION[name](client)
        assert "int_max_str_digits" not in str(refused.value), "an error of Python about the quoted value"
        assert len(str(refused.value)) < LONGEST
