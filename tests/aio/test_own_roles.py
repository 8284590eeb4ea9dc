"""Roles of applications: one client of all has a role, and another one takes it when it is free."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sbredis.aio import ServiceBusClient
from sbredis.client import OWN, Role, is_held
from sbredis.engine import role_keys
from sbredis.exceptions import OperationTimeoutError, ServiceBusQuotaExceededError
from tests.aio.queues import in_memory
from tests.waiting import eventually


def client_of(url: str, **options: Any) -> ServiceBusClient:
    return ServiceBusClient(url, namespace="ns", slot_count=3, **options)


@pytest.mark.conformance
async def test_a_role_has_one_holder_and_the_next_one_takes_it_at_once(url: str) -> None:
    async with client_of(url) as one, client_of(url) as two:
        taken = asyncio.Event()

        async def wait_for_role() -> int:
            async with two.claim_role("reports", claim_duration=600) as role:
                taken.set()
                return role.fence

        async with one.claim_role("reports", claim_duration=600) as role:
            assert (role.name, role.held, repr(role)) == ("reports", True, "<ServiceBusRole 'reports', held>")
            with pytest.raises(OperationTimeoutError, match="Another client has had the role 'reports'"):
                await two.claim_role("reports", max_wait_time=0.01).__aenter__()
            async with two.claim_role("other"):
                pass
            waiting = asyncio.create_task(wait_for_role())
            assert not await role.wait_lost(timeout=0)
            assert not taken.is_set()
        assert not role.held
        assert not await role.wait_lost()
        assert await waiting > role.fence
        async with role:  # the object can be used again
            assert role.held


async def test_a_role_that_another_client_has_taken_is_lost(url: str) -> None:
    """For instance, the clock of the server was set forward."""
    async with client_of(url) as client:
        async with client.claim_role("r", claim_duration=1) as role:
            (key,) = role_keys("ns")
            transport = client._connection.transport
            seconds, _ = await transport.command("TIME", key=key)
            until = (int(seconds) + 60) * 1000
            await transport.command("HSET", key, f"{OWN}r", f"0;another {until} 1;;another {role.fence + 1}", key=key)
            assert await role.wait_lost(timeout=60)
            assert not role.held
        assert await role.wait_lost()
        stored = await transport.command("HGET", key, f"{OWN}r", key=key)
        assert b";another " in stored


async def test_an_own_role_with_the_name_of_a_role_of_maintenance_is_another_role(url: str) -> None:
    async with client_of(url) as client, client.claim_role("route"):
        assert not await is_held(client._connection.transport, "ns", "route")


@pytest.mark.parametrize("name", ["", "a b", "-a", "x" * 51, "rôle"])
async def test_an_invalid_name_is_refused(url: str, name: str) -> None:
    async with client_of(url) as client:
        with pytest.raises(ValueError, match="role name"):
            client.claim_role(name)
        with pytest.raises(ValueError, match="claim_duration must be from 1 to 3600"):
            client.claim_role("r", claim_duration=0.5)


@in_memory
async def test_at_most_a_thousand_roles_are_remembered(url: str) -> None:
    async with client_of(url) as client:
        transport = client._connection.transport
        (key,) = role_keys("ns")
        seconds, _ = await transport.command("TIME", key=key)
        now = int(seconds) * 1000
        full = [part for number in range(1000) for part in (f"{OWN}r{number}", f"0;h {now} 1;;h {now}")]
        await transport.command("HSET", key, *full, key=key)
        with pytest.raises(ServiceBusQuotaExceededError, match="1000 roles of applications already"):
            await client.claim_role("new").__aenter__()
        assert await transport.command("HLEN", key, key=key) == 1000
        await transport.command("HSET", key, f"{OWN}r7", f"0;h {now - 86_500_000} 1;;h {now - 90_000_000}", key=key)
        async with client.claim_role("new"):
            assert await transport.command("HEXISTS", key, f"{OWN}r7", key=key) == 0


async def test_closing_the_client_gives_the_role_up(url: str) -> None:
    one = client_of(url)
    async with client_of(url) as two:
        await two.__aenter__()
        role = one.claim_role("r", claim_duration=600)
        await role.__aenter__()
        await one.close()
        assert not role.held
        assert not await role.wait_lost(timeout=0)

        async def free() -> bool:
            return not await is_held(two._connection.transport, "ns", f"{OWN}r")

        await eventually(free)


async def test_a_cancelled_wait_leaves_no_claim(url: str) -> None:
    async with client_of(url) as client:
        holder = Role(client._connection.transport, "ns", f"{OWN}r")
        await holder.claim(600)
        waiting = asyncio.create_task(client.claim_role("r").__aenter__())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait((waiting,))
        await holder.give_up()
        assert not await is_held(client._connection.transport, "ns", f"{OWN}r")


# -- maintenance -------------------------------------------------------------------------------------------------------


async def test_a_client_maintains_the_namespace_inside_of_a_block(url: str) -> None:
    async with client_of(url) as client, client_of(url) as other:

        async def is_maintained() -> bool:
            return await is_held(other._connection.transport, "ns", "route")

        assert not await is_maintained()
        async with client.maintain():
            await eventually(is_maintained)
            async with client.maintain():
                pass
            assert await is_maintained()
        assert not await is_maintained()
        async with client.maintain():
            await eventually(is_maintained)


async def test_a_client_that_offers_maintenance_goes_on_after_a_block(url: str) -> None:
    async with client_of(url, maintenance=True) as client:
        offer = client._offer.maintenance
        assert offer is not None
        async with client.maintain():
            await eventually(lambda: offer.keeper("route").held)
        assert offer.keeper("route").held
