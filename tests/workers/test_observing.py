"""Tests of what a worker shows of itself: counts, the text for Prometheus, and the HTTP port."""

from __future__ import annotations

import asyncio
import json
import math
import re
import socket
import threading
import weakref
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbredis._http_server import address_of
from sbredis.workers.observing._counts import BOUNDS, EntityCounts, Histogram, merged
from sbredis.workers.observing._http import Health, serving_http
from sbredis.workers.observing._prometheus import prometheus
from sbredis.workers.observing._pulse import Pulse
from sbredis.workers.observing._reports import Report
from sbredis.workers.running._threads import Threads
from tests.waiting import wait_until


@given(st.lists(st.floats(0, 10_000)))
def test_a_histogram_counts_each_duration_in_one_bucket(durations: list[float]) -> None:
    histogram = Histogram()
    for duration in durations:
        histogram.observe(duration)
    edges = (-math.inf, *BOUNDS, math.inf)
    assert histogram.counts == [sum(low < each <= high for each in durations) for low, high in pairwise(edges)]
    assert histogram.total == pytest.approx(sum(durations))


def example() -> EntityCounts:
    counts = EntityCounts(received=5, completed=3)
    own = counts.of("shop.place")
    own.running = 2
    own.handling.observe(0.002)
    own.handling.observe(7)
    return counts


def test_the_counts_of_processes_are_added_and_survive_json() -> None:
    counts = EntityCounts.from_json(json.loads(json.dumps(example().to_json())))
    assert counts == example()
    together = merged([{"orders": example(), "news": EntityCounts(received=1)}, {"orders": counts}])
    assert together["news"].received == 1
    assert (together["orders"].received, together["orders"].running) == (10, 4)
    (handler,) = together["orders"].handlers.values()
    assert handler.handling.total == 14.004
    assert sum(handler.handling.counts) == 4


def test_a_report_survives_its_line() -> None:
    report = Report(
        {"orders": example()},
        {"news": "deleted"},
        [("orders", "shop.place", 5)],
        {"orders": 7},
        [("orders", "tidy", "0 3 * * *", "2026-11-24 03:00")],
        *("title", "shop", 60.0, 90.0),
        running=True,
        ending=True,
        stopped=True,
        http="127.0.0.1:80",
    )
    assert Report.from_line(report.to_line()) == report
    assert Report.from_line(Report().to_line()) == Report()


def families(text: str) -> dict[str, tuple[str, dict[tuple[str, frozenset[tuple[str, str]]], float]]]:
    """Parse the text format of Prometheus, and refuse everything that its grammar does not have.

    Returns the kind of each family, and its samples by name and labels.
    """
    found: dict[str, tuple[str, dict[tuple[str, frozenset[tuple[str, str]]], float]]] = {}
    name, described = "", set[str]()
    assert text.endswith("\n")
    for line in text.splitlines():
        if head := re.fullmatch(r"# HELP ([a-zA-Z_:][a-zA-Z0-9_:]*) (?:[^\\]|\\\\|\\n)+", line):
            name = head[1]
            assert name not in described
            described.add(name)
        elif head := re.fullmatch(r"# TYPE (\S+) (counter|gauge|histogram)", line):
            assert head[1] == name
            assert name not in found
            found[name] = (head[2], {})
        else:
            label = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"'
            sample = re.fullmatch(rf"([a-zA-Z_:][a-zA-Z0-9_:]*)\{{({label}(?:,{label})*)\}} (\S+)", line)
            assert sample, line
            kind, samples = found[name]
            ends = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
            assert sample[1] in {name + end for end in ends}
            assert kind != "counter" or name.endswith("_total")
            labels = re.findall(r'([a-zA-Z0-9_]+)="((?:[^"\\]|\\.)*)"', sample[2])
            assert len(dict(labels)) == len(labels)
            key = (sample[1], frozenset(labels))
            assert key not in samples
            samples[key] = float(sample[3])
    return found


def test_prometheus_reads_the_counts() -> None:
    counts = example()
    counts.lag.observe(3)
    found = families(prometheus('a"b', {"orders": counts, 'odd\\"\n': example(), "none": EntityCounts()}))
    labels = frozenset({("namespace", 'a\\"b'), ("entity", "orders")})
    own = labels | {("handler", "shop.place")}
    assert found["sbredis_worker_messages_received_total"][1]["sbredis_worker_messages_received_total", labels] == 5
    assert found["sbredis_worker_handlers_running"][1]["sbredis_worker_handlers_running", own] == 2
    kind, handling = found["sbredis_worker_handling_seconds"]
    assert kind == "histogram"
    buckets = {
        bound: value
        for (name, sample), value in handling.items()
        if own < sample and name.endswith("_bucket")
        for bound in [dict(sample)["le"]]
    }
    assert (buckets["0.001"], buckets["0.0025"], buckets["10"], buckets["+Inf"]) == (0, 1, 2, 2)
    assert list(map(float, buckets)) == [*BOUNDS, math.inf]
    assert handling["sbredis_worker_handling_seconds_count", own] == 2
    assert handling["sbredis_worker_handling_seconds_sum", own] == 7.002
    assert found["sbredis_worker_lag_seconds"][1]["sbredis_worker_lag_seconds_sum", labels] == 3
    assert {name.removeprefix("sbredis_worker_") for name in found} == {
        *("messages_received_total", "messages_completed_total", "messages_abandoned_total"),
        *("messages_dead_lettered_total", "messages_deferred_total", "messages_given_back_total"),
        *("settlements_failed_total", "locks_lost_total", "lag_seconds"),
        *("handler_errors_total", "handlers_running", "handling_seconds", "ticks_sent_total", "ticks_skipped_total"),
    }


def test_prometheus_reads_the_ticks_of_handlers_that_have_a_schedule() -> None:
    counts = example()
    nightly = counts.of("shop.nightly")
    nightly.schedules, nightly.ticks_sent, nightly.ticks_passed = 1, 3, 2
    found = families(prometheus("ns", {"orders": counts}))
    for name, value in (("ticks_sent_total", 3), ("ticks_skipped_total", 2)):
        ((key, number),) = found[f"sbredis_worker_{name}"][1].items()
        assert (dict(key[1])["handler"], number) == ("shop.nightly", value)


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
        assert (await ask(port, b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n")).startswith(b"HTTP/1.1 200 OK\r\n")
        assert (await ask(port, b"GET /ready?x HTTP/1.1\r\n\r\n")).endswith(b'{"well": true, "orders": "paused"}\n')
        well = False
        assert (await ask(port, b"GET /ready HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 503 ")
        assert (await ask(port, b"GET /metrics HTTP/1.1\r\n\r\n")).endswith(b"\r\n\r\ncounts\n")
        head = await ask(port, b"HEAD /metrics HTTP/1.1\r\n\r\n")
        assert head.endswith(b"Content-Length: 7\r\nConnection: close\r\n\r\n")
        assert (await ask(port, b"GET / HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 404 ")
        assert (await ask(port, b"POST /live HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 405 ")
        assert await ask(port, b"x" * 20_000) == b""


@asynccontextmanager
async def answering(host: str = "127.0.0.1") -> AsyncGenerator[int]:
    well = Health(True, {})
    async with serving_http(host, 0, live=lambda: well, ready=lambda: well, metrics=lambda: "") as port:
        yield port


def test_the_end_of_a_program_with_an_unfinished_request_is_no_error() -> None:
    errors: list[dict[str, Any]] = []

    async def program() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        async with answering() as port:
            asking.connect(("127.0.0.1", port))
            asking.send(b"GET /li")
            await ask(port, b"GET /live HTTP/1.1\r\n\r\n")  # the answer comes after the other connection was accepted

    with socket.socket() as asking:
        asyncio.run(program())
    assert errors == []


NAMES = {
    "localhost": 200,
    "LOCALHOST:80": 200,
    "worker.localhost:80": 200,
    "127.0.0.1:9109": 200,
    "127.8.8.8": 200,
    "[::1]:80": 200,
    "evil.example:80": 421,
    "127.0.0.1.evil.example": 421,
    "localhost.evil.example": 421,
    "10.0.0.1": 421,
    "": 421,
}


@pytest.mark.parametrize(("name", "status"), NAMES.items(), ids=NAMES)
async def test_a_port_of_this_machine_alone_answers_no_other_name(name: str, status: int) -> None:
    """A page of evil.example could have its name point to 127.0.0.1, and a browser would let it read the answers."""
    async with answering() as port:
        answer = await ask(port, b"GET /live HTTP/1.1\r\nHoSt: %s\r\n\r\n" % name.encode())
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert (b"well" in answer) is (status == 200)


async def test_a_second_name_in_a_request_is_no_way_in() -> None:
    async with answering() as port:
        answer = await ask(port, b"GET /live HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 421 ")


async def test_connections_that_ask_for_nothing_keep_nobody_out() -> None:
    """150 half requests are open. A probe is answered, and the first of them were closed."""
    async with answering() as port:
        halves = [await asyncio.open_connection("127.0.0.1", port) for _ in range(150)]
        for _, writer in halves:
            writer.write(b"GET /live HTTP/1.1\r\n")
        assert (await ask(port, b"GET /live HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        for reader, _ in halves[:100]:
            with suppress(ConnectionError):
                assert await reader.read() == b""
        still_open = [writer for _, writer in halves[-20:] if not writer.transport.is_closing()]
        assert len(still_open) == 20
        for _, writer in halves:
            writer.close()


@pytest.mark.parametrize(
    ("text", "address"),
    [("8080", ("127.0.0.1", 8080)), ("0.0.0.0:80", ("0.0.0.0", 80)), ("[::1]:9", ("::1", 9)), (":7", ("127.0.0.1", 7))],  # noqa: S104
)
def test_the_address_of_the_port(text: str, address: tuple[str, int]) -> None:
    assert address_of(text) == address


@pytest.mark.parametrize("text", ["", "x", "host:", "1:99999", "-1", "http://host:80", "::1:80", "me@host:80", "[]:80"])
def test_an_address_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be HOST:PORT or PORT"):
        address_of(text)


# -- the pulse of an event loop ----------------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 100), max_size=5), st.floats(0, 500), st.floats(1, 300))
def test_a_worker_is_first_stuck_and_then_dead_and_well_again_at_once(
    turns: list[float], silence: float, limit: float
) -> None:
    now = 5.0
    pulse = Pulse(limit, now)
    for turn in turns:
        now += turn
        pulse.turned(now)
        assert (pulse.silence(now), pulse.stuck(now), pulse.dead(now)) == (0, False, False)
    later = now + silence
    assert pulse.silence(later) == pytest.approx(silence)
    assert pulse.stuck(later) == (pulse.silence(later) >= limit)
    assert pulse.stuck(later) or not pulse.dead(later)
    assert pulse.dead(later + limit * 1.26)


# -- threads -----------------------------------------------------------------------------------------------------------


def test_threads_start_when_they_are_needed_and_work_waits_for_a_free_one() -> None:
    threads, go, running = Threads(2, "test"), threading.Event(), threading.Semaphore(0)

    def work(number: int) -> tuple[int, str]:
        running.release()
        go.wait(60)
        return number, threading.current_thread().name

    futures = [threads.submit(work, number) for number in range(5)]
    for _ in range(2):
        assert running.acquire(timeout=60)
    assert [future.running() for future in futures] == [True, True, False, False, False]
    assert futures[4].cancel()
    go.set()
    results = [future.result(60) for future in futures[:4]]
    assert [number for number, _ in results] == [0, 1, 2, 3]
    assert {name for _, name in results} == {"test-1", "test-2"}
    with pytest.raises(ZeroDivisionError):
        threads.submit(lambda: 1 // 0).result(60)
    threads.shutdown()
    with pytest.raises(RuntimeError, match="The worker has ended"):
        threads.submit(work, 0)


def test_a_free_thread_is_used_again_and_keeps_nothing_of_its_last_work() -> None:
    threads = Threads(100, "reused")

    class Order:
        def handle(self) -> None: ...

    def handle_one() -> None:
        order = Order()
        last = weakref.ref(order)
        threads.submit(order.handle).result(60)
        del order
        wait_until(lambda: last() is None)

    for _ in range(100):
        handle_one()
    assert len([each for each in threading.enumerate() if each.name.startswith("reused-")]) < 100
    threads.shutdown()


def test_all_threads_end_with_their_pool() -> None:
    threads, together = Threads(3, "ending"), threading.Barrier(3)
    for future in [threads.submit(together.wait, 60) for _ in range(3)]:
        future.result(60)
    threads.shutdown()
    wait_until(lambda: not [each for each in threading.enumerate() if each.name.startswith("ending-")])


def test_the_end_of_the_threads_drops_what_has_not_begun_and_waits_for_nothing() -> None:
    threads, go, running = Threads(1, "test"), threading.Event(), threading.Event()

    def work() -> bool:
        running.set()
        return go.wait(60)

    first, second = threads.submit(work), threads.submit(work)
    assert running.wait(60)
    assert all(thread.daemon for thread in threading.enumerate() if thread.name == "test-1")
    threads.shutdown(cancel_futures=True)
    assert (first.running(), second.cancelled()) == (True, True)
    go.set()
    assert first.result(60)


def test_durations_between_two_count_together_only_if_both_are_in_one_bucket() -> None:
    together, apart = Histogram(), Histogram()
    assert together.observe_between(0.3, 0.4, 10)
    for _ in range(10):
        apart.observe(0.35)
    assert together.counts == apart.counts
    assert together.total == pytest.approx(apart.total)
    assert not together.observe_between(0.3, 0.6, 10)
    assert sum(together.counts) == 10
