"""The report and the warnings of ``check_connection``."""

from __future__ import annotations

import logging

import pytest

from sbredis.aio import ConnectionReport, ServerReport, check_connection
from sbredis.exceptions import OperationTimeoutError, ServerUnsuitableError, ServiceBusConnectionError, ServiceBusError
from sbredis.servers import LocalCluster, LocalServer
from sbredis.transport import Endpoint, ServerFacts, Target

TARGET = Target("cluster", (Endpoint("h", 1),))


def server(port: int, ahead: float, round_trip: float = 0.001) -> ServerReport:
    return ServerReport(ServerFacts(Endpoint("h", port), product="valkey", version="9.1.2"), round_trip, ahead)


@pytest.mark.parametrize(
    ("servers", "expected"),
    [
        ((server(1, 0.2), server(2, -0.2)), []),
        ((server(1, 3.0, round_trip=5.0),), []),  # the round trip takes so long that it hides the difference
        ((server(1, 2.0),), ["the clock of Valkey 9.1.2 at h:1 is 2.0 s ahead of that of this machine"]),
        ((server(1, -2.0),), ["the clock of Valkey 9.1.2 at h:1 is 2.0 s behind that of this machine"]),
        (
            (server(1, 0.7), server(2, -0.7)),
            ["the clocks of the servers differ by 1.4 s: Valkey 9.1.2 at h:1 is the furthest ahead"],
        ),
        (
            (server(1, 5.0), server(2, 0.0), server(3, 5.2)),
            ["at h:1 is 5.0 s ahead", "at h:3 is 5.2 s ahead", "the servers differ by 5.2 s"],
        ),
    ],
)
def test_clock_differences_are_reported_as_warnings(servers: tuple[ServerReport, ...], expected: list[str]) -> None:
    report = ConnectionReport(TARGET, servers)
    assert len(report.warnings) == len(expected)
    for warning, part in zip(report.warnings, expected, strict=True):
        assert part in warning
        assert f"Warning: {warning}" in str(report)


async def test_a_server_that_can_lose_acknowledged_messages_causes_a_warning(
    server: LocalServer, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "sbredis"):
        report = await check_connection(server.url)
    assert report.servers[0].can_lose_acknowledged
    assert "can lose acknowledged messages" in str(report)
    # the first client of a process logs this warning
    assert "a crash of the server loses everything since its last snapshot" in caplog.text


async def test_a_server_with_an_append_only_file_causes_no_warning(
    binary: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    with LocalServer(binary=binary, config={"appendonly": "yes"}) as own, caplog.at_level(logging.INFO, "sbredis"):
        report = await check_connection(own.url)
    assert (report.warnings, report.servers[0].can_lose_acknowledged) == ((), False)
    worth = [each for each in caplog.records if each.getMessage().startswith("durability=master on")]
    assert [each.levelno for each in worth] == [logging.INFO]


@pytest.mark.parametrize("options", ["", "?durability=replicated"])
async def test_a_server_with_a_replica_cannot_lose_acknowledged_messages(
    replicated_cluster: LocalCluster, options: str
) -> None:
    report = await check_connection(f"{replicated_cluster.url}{options}")
    assert [each.can_lose_acknowledged for each in report.servers] == [False] * 3


@pytest.mark.parametrize("options", ["durability=replicated", "durability=replicated&replicas=1"])
async def test_replicated_durability_is_refused_by_a_server_without_replicas(server: LocalServer, options: str) -> None:
    with pytest.raises(ServerUnsuitableError, match="has no replica"):
        await check_connection(f"{server.url}?{options}", timeout=60)


async def test_the_error_names_all_masters_that_are_away_and_the_details_have_the_others(binary: str | None) -> None:
    config = {"cluster-require-full-coverage": "no"}
    with LocalCluster(3, 0, node_timeout=60_000, binary=binary, config=config) as cluster:
        gone, silent, well = cluster.nodes
        gone.kill()
        silent.pause()
        try:
            with pytest.raises(ServiceBusError, match="2 of 3 masters cannot be used") as refused:
                await check_connection(cluster.url, timeout=2)
            report = await check_connection(cluster.url, timeout=2, details=True)
        finally:
            silent.resume()
        ports = {endpoint.port for endpoint in report.away}
        assert ports == {gone.port, silent.port}
        assert all(f"127.0.0.1:{port}: " in refused.value.message for port in ports)
        assert [each.facts.endpoint.port for each in report.servers] == [well.port]
        assert report.nodes
        assert report.servers[0].info
        away = f"127.0.0.1:{gone.port} (cannot be reached|is still being connected to)"  # as a client names it
        with pytest.raises((ServiceBusConnectionError, OperationTimeoutError), match=away):
            await check_connection(cluster.url, timeout=2)


@pytest.mark.any_form("it takes each form away")
async def test_the_report_says_in_which_form_a_server_has_the_scripts(server: LocalServer) -> None:
    plain = await check_connection(f"{server.url}?scripts=needed")
    assert not plain.servers[0].has_library
    assert "library" not in str(plain)
    server.ask("FUNCTION", "FLUSH")
    server.ask("CONFIG", "SET", "maxmemory", "1")
    try:
        full = await check_connection(server.url)
    finally:
        server.ask("CONFIG", "SET", "maxmemory", "0")
    assert not full.servers[0].has_library
    assert "single scripts, because it takes no library of functions: OOM " in str(full)
    report = await check_connection(server.url)
    assert report.servers[0].has_library
    assert ", library of functions\n" in f"{report}\n"
