"""``show``: what it finds out about one entity."""

from __future__ import annotations

import pytest

from sbredis.aio import ServiceBusClient
from sbredis.bulk import reserve
from sbredis.registry import Namespace
from tests.cli.conftest import Bus


def test_the_reservation_of_an_entity_is_shown_and_no_other_entity_is_read(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus.queue()
    bus.queue("other")

    async def take(client: ServiceBusClient) -> None:
        await reserve(client, "orders", consumer="capture", owner="job 7")

    bus.client(take)
    monkeypatch.delattr(Namespace, "list_entities")
    shown = bus.did("queue", "show", "orders", "--output", "json").json["reservation"]
    assert (shown["consumer"], shown["owner"], shown["state"], shown["stale"]) == (
        "capture", "job 7", "reserved", False,
    )  # fmt: skip
    assert bus.did("queue", "show", "other", "--output", "json").json["reservation"] is None
    assert "consumer" in bus.did("queue", "show", "orders").out
