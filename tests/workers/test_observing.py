"""Tests of what a worker shows of itself: counts, the text for Prometheus, and the HTTP port."""

from __future__ import annotations

import asyncio
import json
import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbredis.workers.observing._counts import BOUNDS, Counts, Histogram, merged
from sbredis.workers.observing._http import Health, address_of, serving_http
from sbredis.workers.observing._prometheus import prometheus

pytestmark = pytest.mark.anyio


@given(st.lists(st.floats(0, 10_000)))
def test_a_histogram_counts_each_duration_in_one_bucket(durations: list[float]) -> None:
    histogram = Histogram()
    for duration in durations:
        histogram.observe(duration)
    edges = (-math.inf, *BOUNDS, math.inf)
    assert histogram.counts == [sum(low < each <= high for each in durations) for low, high in pairwise(edges)]
    assert histogram.total == pytest.approx(sum(durations))


def example() -> Counts:
    counts = Counts(received=5, completed=3, running=2)
    counts.handling.observe(0.002)
    counts.handling.observe(7)
    return counts


def test_the_counts_of_processes_are_added_and_survive_json() -> None:
    counts = Counts.from_json(json.loads(json.dumps(example().to_json())))
    assert counts == example()
    together = merged([{"orders": example(), "news": Counts(received=1)}, {"orders": counts}])
    assert together["news"].received == 1
    assert (together["orders"].received, together["orders"].running) == (10, 4)
    assert together["orders"].handling.total == 14.004
    assert sum(together["orders"].handling.counts) == 4


def test_prometheus_reads_the_counts() -> None:
    text = prometheus('a"b', {"orders": example()})
    label = 'namespace="a\\"b",entity="orders"'
    lines = text.splitlines()
    assert f"sbredis_worker_messages_received_total{{{label}}} 5" in lines
    assert f"sbredis_worker_handlers_running{{{label}}} 2" in lines
    assert f'sbredis_worker_handling_seconds_bucket{{{label},le="0.001"}} 0' in lines
    assert f'sbredis_worker_handling_seconds_bucket{{{label},le="0.0025"}} 1' in lines
    assert f'sbredis_worker_handling_seconds_bucket{{{label},le="+Inf"}} 2' in lines
    assert f"sbredis_worker_handling_seconds_count{{{label}}} 2" in lines
    assert f"sbredis_worker_handling_seconds_sum{{{label}}} 7.002" in lines
    assert all(
        line.startswith(("# HELP sbredis_worker_", "# TYPE sbredis_worker_", "sbredis_worker_")) for line in lines
    )


async def ask(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer


async def test_the_port_answers_three_paths_and_nothing_else() -> None:
    well = True
    async with serving_http(
        "127.0.0.1",
        0,
        live=lambda: Health(True, {}),
        ready=lambda: Health(well, {"orders": "paused"}),
        metrics=lambda: "counts\n",
    ) as port:
        assert (await ask(port, b"GET /live HTTP/1.1\r\nHost: x\r\n\r\n")).startswith(b"HTTP/1.1 200 OK\r\n")
        assert (await ask(port, b"GET /ready?x HTTP/1.1\r\n\r\n")).endswith(b'{"well": true, "orders": "paused"}\n')
        well = False
        assert (await ask(port, b"GET /ready HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 503 ")
        assert (await ask(port, b"GET /metrics HTTP/1.1\r\n\r\n")).endswith(b"\r\n\r\ncounts\n")
        head = await ask(port, b"HEAD /metrics HTTP/1.1\r\n\r\n")
        assert head.endswith(b"Content-Length: 7\r\nConnection: close\r\n\r\n")
        assert (await ask(port, b"GET / HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 404 ")
        assert (await ask(port, b"POST /live HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 405 ")
        assert await ask(port, b"x" * 20_000) == b""


@pytest.mark.parametrize(
    ("text", "address"),
    [("8080", ("127.0.0.1", 8080)), ("0.0.0.0:80", ("0.0.0.0", 80)), ("[::1]:9", ("::1", 9))],  # noqa: S104
)
def test_the_address_of_the_port(text: str, address: tuple[str, int]) -> None:
    assert address_of(text) == address


@pytest.mark.parametrize("text", ["", "x", "host:", "1:99999", "-1"])
def test_an_address_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be HOST:PORT or PORT"):
        address_of(text)
