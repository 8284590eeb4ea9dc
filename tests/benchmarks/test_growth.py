"""Tests that the benchmark of growth runs and prints every line of its report. No test asserts a speed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.growth import PARTS, Figure, line_of
from tests.benchmarks.running import benchmark, mismatches, refused

NUMBER, GOAL = r" +-?[\d,.]+", r" +goal [≤≥] [\d,.]+: (met|MISSED)"


def rows(*names: str) -> list[str]:
    """Return the patterns of figures; one that ends with ``!`` has a goal."""
    return [rf"{name.rstrip('!')}{NUMBER}[^:]*{GOAL if name.endswith('!') else ''}" for name in names]


PATTERNS = [
    r".+; Python 3\S+; load average at the start: .+",
    *rows(
        "opening 10 clients on 3 masters",
        "processor time of the process, a client",
        "connections of a client that has only been opened!",
        "scripts, a client",
        r"clients: longest call \(.+\)!",
        r"clients: calls above 10 ms \(.+\)!",
        "clients: the servers waited for a processor",
        "200 queues: created, 100 at once",
        "200 queues: memory of a queue",
        "200 queues: listing all",
        "200 queues: a new holder moves what waits",
        "200 queues: its processor time for that",
        "200 queues: its longest turn of the loop!",
        "200 queues: the holder, idle!",
        "200 queues: first message of a new forwarding queue!",
        r"queues: longest call \(.+\)!",
        r"queues: calls above 10 ms \(.+\)!",
        "queues: the servers waited for a processor",
        "10 topics x 4: created, 100 at once",
        "10 topics x 4: memory of a partition",
        "10 topics x 4: the first scheduled message is late by",
        "10 topics x 4: the longest turn of the holder's loop!",
        "10 topics x 4: the holder, idle!",
        "10 topics x 4: the server meanwhile",
        r"idle: longest call \(.+\)!",
        r"idle: calls above 10 ms \(.+\)!",
        "idle: the servers waited for a processor",
        "moves of one message from each of 50 queues!",
        "the longest turn of the mover's loop!",
        r"moves: longest call \(.+\)!",
        r"moves: calls above 10 ms \(.+\)!",
        "moves: the servers waited for a processor",
        "10 workers: at rest after",
        "10 workers: scripts a second at rest",
        "10 workers: scripts in the second after their holder closes!",
        "maintenance goes on after one second more",
        r"roles: longest call \(.+\)!",
        r"roles: calls above 10 ms \(.+\)!",
        "roles: the servers waited for a processor",
        "20 subscriptions: created, 100 at once",
        "20 subscriptions: a send that one of them gets",
        "20 subscriptions: its processor time on the server, if one of them gets it",
        "20 subscriptions: a send that all of them get",
        "20 subscriptions: its processor time on the server, if all of them get it",
        r"topic: longest call \(.+\)!",
        r"topic: calls above 10 ms \(.+\)!",
        "topic: the servers waited for a processor",
        "500 sessions: messages sent",
        "500 sessions: memory of one, without the body",
        "500 sessions: accept, complete, release",
        r"sessions: longest call \(.+\)!",
        r"sessions: calls above 10 ms \(.+\)!",
        "sessions: the servers waited for a processor",
        "1 partition: the first message of a new client!",
        "1 partition: the first message of a new receiver",
        "1 partition: send to start of handler, idle",
        "1 partition: messages sent and completed, 100 at once",
        "1 partition: the client's processor time for that, a message",
        "16 partitions: the first message of a new client!",
        "16 partitions: the first message of a new receiver",
        "16 partitions: send to start of handler, idle",
        "16 partitions: messages sent and completed, 100 at once",
        "16 partitions: the client's processor time for that, a message",
        "16 partitions against one: messages a second!",
        r"partitions: longest call \(.+\)!",
        r"partitions: calls above 10 ms \(.+\)!",
        "partitions: the servers waited for a processor",
        "300 messages expire at once: a receiver finds nothing after",
        "300 messages expire at once: all are dead letters after",
        "300 messages expire at once: server time of one",
        r"expiry: longest call \(.+\)!",
        r"expiry: calls above 10 ms \(.+\)!",
        "expiry: the servers waited for a processor",
        "300 scheduled for one instant: the first is late by",
        "300 scheduled for one instant: received and completed",
        r"instant: longest call \(.+\)!",
        r"instant: calls above 10 ms \(.+\)!",
        "instant: the servers waited for a processor",
    ),
    r"A short run: .*",
]


@pytest.mark.long("it runs a whole benchmark")
def test_the_short_form_reports_the_same_rows_as_the_long_form(tmp_path: Path) -> None:
    lines = benchmark("growth", "--short", "--save", str(tmp_path / "figures"))
    assert mismatches(lines, PATTERNS) == ([], 0)
    assert len(json.loads((tmp_path / "figures").read_text())) == len(PATTERNS) - 2


@pytest.mark.long("it runs a part of a benchmark")
def test_a_part_runs_alone_beside_the_figures_of_an_earlier_run(tmp_path: Path) -> None:
    earlier = tmp_path / "figures"
    earlier.write_text(json.dumps({"20 subscriptions: created, 100 at once": 123456}))
    lines = benchmark("growth", "--short", "--part", "topic", "--beside", str(earlier))
    assert lines[1].split() == ["earlier", "now"]
    assert "123,456" in lines[2]
    assert lines[3].split()[-3] == "-"


@pytest.mark.long("it runs a part of a benchmark")
def test_calls_that_are_made_one_at_a_time_have_their_processor_time(tmp_path: Path) -> None:
    lines = benchmark("growth", "--short", "--serially", "--part", "topic", "--save", str(tmp_path / "figures"))
    found = json.loads((tmp_path / "figures").read_text())
    assert {"topic: longest call of publish", "topic: longest call of register_subscription"} <= found.keys()
    assert list(found.values()) == sorted(found.values(), reverse=True)
    assert mismatches(lines[1:-1], rows(*(f"{name}!" for name in found))) == ([], 0)


@pytest.mark.long("it starts a process to see one line")
def test_an_invalid_number_is_refused() -> None:
    assert "--queues" in refused("growth", "--queues", "5,0")


def test_the_report_distinguishes_met_and_missed_goals() -> None:
    def judged(value: float, goal: float | None, *, at_least: bool = False) -> str:
        return line_of(Figure("what", value, "ms", goal, at_least), {}).split()[-1]

    assert [judged(value, 10) for value in (9.99, 10, 10.01)] == ["met", "met", "MISSED"]
    assert [judged(value, 10, at_least=True) for value in (9.99, 10)] == ["MISSED", "met"]
    assert judged(10, None) == "ms"


def test_figures_of_another_run_are_in_a_column_of_their_own() -> None:
    figure = Figure("what", 5, "ms")
    assert line_of(figure, {"what": 1200.0}).split() == ["what", "1,200", "5.00", "ms"]
    assert line_of(figure, {"other": 1.0}).split() == ["what", "-", "5.00", "ms"]


def test_each_part_says_what_it_measures() -> None:
    assert all(part.__doc__ for part in PARTS.values())
