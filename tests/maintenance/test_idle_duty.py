"""The duty of the role ``idle``: it finishes deletions that another client has begun and does not finish."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sbredis.exceptions import Outcome, ServiceBusConnectionError, ServiceBusError
from sbredis.maintenance._idle import IdleDuty
from tests.aio.diverting import divert
from tests.aio.queues import PATIENT, Calls, in_memory, queue_at
from tests.maintenance.hand_census import HandCensus, doing, shared_of
from tests.transport.hand import turns
from tests.waiting import eventually

pytestmark = in_memory


@pytest.mark.parametrize("after", [3600.0, 0.0])
async def test_a_deletion_is_finished_if_it_lasts_for_long(url: str, after: float) -> None:
    """Before that, the client that deletes the queue may still be at work."""

    async def dying(script: Any, *arguments: Any, **options: Any) -> Any:
        if script.name == "unregister_entity":
            raise ServiceBusConnectionError("The client has died.", outcome=Outcome.NEVER_SENT)
        return await through(script, *arguments, **options)

    async with queue_at(url, timings=replace(PATIENT, finishing_deletions=after)) as queue:
        namespace, transport = queue.client._connection.namespace, queue.transport
        through = transport.call
        divert(transport, dying)
        with pytest.raises(ServiceBusError):
            await namespace.delete_entity("q")
        divert(transport, through)

        async def listed() -> list[str]:
            return [record.state for record in await namespace.list_entities("", 10, timeout=60)]

        (record,) = await namespace.list_entities("", 10, timeout=60)
        assert record.state == "deleting"
        census = HandCensus()
        async with doing(IdleDuty(shared_of(queue.client, census))):
            with Calls(transport) as calls:
                census.show(record)
                await turns(100)
            if after:
                assert not calls.by_script
                assert await listed() == ["deleting"]
                return

            async def finished() -> bool:
                return not await listed()

            await eventually(finished)
