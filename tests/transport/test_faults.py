"""Faults in a cluster under 400 callers: every call ends, none is executed twice, none raises a foreign exception.

There are 200 callers of each of two kinds. The calls of the first kind must not be repeated, and an error says whether
the call ran. The script of the second kind recognises repeated calls, and its callers see only a pause.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from benchmarks.faults import (
    FAULTS,
    KEYS,
    SLOT,
    Fault,
    counts_on,
    fail_over_by_hand,
    in_thread,
    migrate_atomically,
    migrate_key_by_key,
)
from benchmarks.pressure import COUNT, COUNT_ONCE, Pressure, Report, beside
from sbredis.servers import LocalCluster
from sbredis.transport import Transport
from tests.plugins.parts import first
from tests.transport.opening import opened


@pytest.fixture
def anyio_backend() -> str:
    """Choose asyncio without its debug mode, because the callers would be too slow with it."""
    return "asyncio"


SILENT_FAULTS = (fail_over_by_hand, migrate_key_by_key, migrate_atomically)
"""During these faults the servers answer every call, at least with a redirection. So no outcome may be unknown."""


ONCE = [key + b":once" for key in KEYS]
"""The keys of the calls whose script recognises repetitions; they are in the same slots as the others."""


@asynccontextmanager
async def under(
    cluster: LocalCluster, keys: Sequence[bytes], *, repeatable: bool, query: str = ""
) -> AsyncIterator[tuple[Pressure, Transport]]:
    """Run 200 callers until they are warmed up; yield the callers and their transport."""
    script = COUNT_ONCE if repeatable else COUNT
    async with await opened(cluster.url + query, scripts=[script]) as transport:

        async def call(key: bytes, operation: str) -> None:
            await transport.call(script, (key, beside(key)), (operation,), timeout=20, repeatable=repeatable)

        async with Pressure(call, keys, successes=100) as pressure:
            await pressure.flows()
            yield pressure, transport


async def finished(pressure: Pressure, transport: Transport, keys: Sequence[bytes]) -> tuple[Report, dict[str, int]]:
    """Let the callers make more calls, wait until every call has ended, and count."""
    await pressure.flows()
    report = pressure.report
    await pressure.__aexit__()
    counts = await counts_on(transport, keys)
    lost, errors = len(report.lost(counts)), dict(report.errors)
    said = f"{report.started} calls; errors {errors}; lost {lost}; gap {report.longest_gap:.2f} s"
    print(said)  # noqa: T201  # pytest shows it with a failure
    return report, counts


@pytest.mark.parametrize("fault", first(1, FAULTS, "it lasts for seconds"), ids=lambda fault: str(fault.__name__))
async def test_a_fault_lets_no_call_run_twice_and_each_call_know_its_outcome(
    replicated_cluster: LocalCluster, fault: Fault
) -> None:
    """Of the calls that must not be repeated, a call that succeeded ran once, a call that was refused or never sent did
    not run, and an unknown call ran at most once. The callers whose script recognises repetitions see no error.
    """
    if fault is migrate_atomically and not replicated_cluster.supports_atomic_migration:
        pytest.skip("this server has no CLUSTER MIGRATESLOTS (Valkey 9 has)")
    async with (
        under(replicated_cluster, KEYS, repeatable=False) as (pressure, transport),
        under(replicated_cluster, ONCE, repeatable=True) as (pressure_once, transport_once),
    ):
        await fault(replicated_cluster, pressure)
        report, counts = await finished(pressure, transport, KEYS)
        report_once, counts_once = await finished(pressure_once, transport_once, ONCE)
    assert len(report.succeeded) + len(report.failed) == report.started
    assert report.foreign == []
    assert report.executed_twice(counts) == []
    assert report.executed_although_denied(counts) == []
    if fault in SILENT_FAULTS:
        assert dict(report.errors) == {}
        assert report.lost(counts) == []
    else:
        assert all("unknown" in described for described in report.errors), report.errors

    assert dict(report_once.errors) == {}
    assert len(report_once.succeeded) == report_once.started
    assert report_once.executed_twice(counts_once) == []
    if fault in SILENT_FAULTS:
        assert report_once.lost(counts_once) == []


async def test_a_write_confirmed_by_all_replicas_survives_the_master(replicated_cluster: LocalCluster) -> None:
    """With ``durability=replicated`` no acknowledged write is lost by a kill. A shard without its replica accepts no
    write.
    """
    cluster = replicated_cluster
    async with under(cluster, KEYS, repeatable=True, query="?durability=replicated") as (pressure, transport):
        master = cluster.master_of(SLOT)
        await in_thread(master.kill)
        await in_thread(cluster.wait_until_ok)
        await in_thread(master.restart)
        report, counts = await finished(pressure, transport, KEYS)
    assert dict(report.errors) == {}
    assert report.lost(counts) == []
    assert report.executed_twice(counts) == []
