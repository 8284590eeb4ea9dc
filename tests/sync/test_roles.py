"""Roles, ticks and maintenance, from threads."""

from __future__ import annotations

import threading

import pytest

from sbredis import ServiceBusClient
from sbredis.exceptions import OperationTimeoutError


def test_one_thread_has_a_role_and_another_waits_for_it(url: str) -> None:
    fences: list[int] = []
    with ServiceBusClient(url) as one, ServiceBusClient(url) as two:

        def wait() -> None:
            with two.claim_role("r") as other:
                fences.append(other.fence)

        with one.claim_role("r") as role:
            assert (role.held, role.name) == (True, "r")
            assert not role.wait_lost(timeout=0)
            with pytest.raises(OperationTimeoutError), two.claim_role("r", max_wait_time=0):
                pass
            thread = threading.Thread(target=wait)
            thread.start()
        thread.join(60)
        assert not role.held
        assert fences[0] > role.fence


def test_a_client_takes_part_in_maintenance_inside_of_a_block(url: str) -> None:
    with ServiceBusClient(url) as client:
        with client.maintain():
            assert client._aio._offer.maintenance is not None
        assert client._aio._offer.maintenance is None
