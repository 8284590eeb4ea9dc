"""The client's benchmark runs and says all that it is to say. How fast anything is, no test asserts."""

from __future__ import annotations

import re

import pytest

from benchmarks.client import BATCHES, ONE, SIXTEEN, STREAMS, Results, verdicts
from benchmarks.works import Idle, Medians
from tests.benchmarks.running import SPEED, benchmark, refused, unlike

STEPS = [rf"send +{SPEED}", rf"receive, complete +{SPEED}"]
ONE_SERVER = [
    r"batches of 100",
    rf"bare streams through redis-py +{SPEED} +1\.00 x streams",
    rf"sbredis +{SPEED} +\d+\.\d\d x streams",
    r"each by itself, 100 at once",
    rf"1 partition +{SPEED} +1\.00 x one",
    *STEPS,
    rf"16 partitions +{SPEED} +\d+\.\d\d x one",
    *STEPS,
]
CLUSTER = [
    rf"1 partition, on the cluster +{SPEED} +\d+\.\d\d x one",
    *STEPS,
    rf"16 partitions, on the cluster +{SPEED} +\d+\.\d\d x one",
    *STEPS,
]
NAMES = ("bare command through redis-py", "1 partition", "16 partitions")
IDLE = [
    r"idle, send to start of handler",
    *[rf"{name} +p50 \d+\.\d\d ms +p99 \d+\.\d\d ms" for name in NAMES],
]
HEAD = r" +messages/s +client CPU +server CPU"


def told(*loops: str) -> list[str]:
    """What each of the lines is to look like, on these event loops."""
    patterns = [
        r".+",
        r"with its append-only file on, alone and as a cluster of 3 masters; Python 3\S+, redis-py \S+ with hiredis",
        r"300 messages of 64 B each time; medians, rounds: 1; CPU a message; 20 round trips",
    ]
    for place, loop in enumerate(loops):
        patterns += [loop, HEAD.strip(" +"), *ONE_SERVER, *(() if place else CLUSTER), *IDLE]
    patterns.append(r"goals +" + " +".join(loops))
    for goal, unit in (
        (r"batches: ≥ 1\.0 x bare streams", "x"),
        (r"16 partitions: ≥ 0\.6 x one", "x"),
        (r"idle, p50: ≤ 0\.5 ms", "ms"),
        (r"idle, p99: ≤ 2\.0 ms", "ms"),
    ):
        patterns.append(goal + rf" +\d+\.\d{{3}} {unit}  (met|MISSED)" * len(loops))
    patterns += [
        r"Measured elsewhere, on 2 cores, and not here, where there is no NATS: .*",
        r"the same work at 17,600 to 21,500 messages/s\. .*",
    ]
    patterns += [
        rf"{loop}, each by itself, 1 partition +\d\.\d\d to \d\.\d\d x NATS \(to reach: 1\.\d\)" for loop in loops
    ]
    return [*patterns, r"A short run: .*"]


@pytest.mark.parametrize(
    ("arguments", "loops"),
    [((), ("asyncio", "uvloop")), (("--uvloop",), ("uvloop",))],
    ids=["both loops", "uvloop alone"],
)
def test_the_short_form_tells_all_that_the_long_one_does(arguments: tuple[str, ...], loops: tuple[str, ...]) -> None:
    pytest.importorskip("uvloop")
    lines = benchmark("client", "--short", "--messages", "300", "--body", "64", *arguments)
    assert unlike(lines, told(*loops)) == ([], 0)


def test_a_number_that_makes_no_sense_is_refused() -> None:
    assert "--messages and --rounds must be 1 at least" in refused("client", "--messages", "-1")


def results(batches: float, sixteen: float, median: float, slow: float) -> Results:
    """Made-up ones: bare streams at 10,000 messages/s, and one partition at 17,600."""
    speeds = {STREAMS: 10_000.0, BATCHES: batches * 10_000, ONE: 17_600.0, SIXTEEN: sixteen * 17_600}
    works = {name: {"": Medians(speed, 1.0, 1.0)} for name, speed in speeds.items()}
    return Results(works, {ONE: Idle(median, slow), SIXTEEN: Idle(9, 9)})


def test_a_goal_that_is_met_and_one_that_is_missed_are_told_apart() -> None:
    lines = verdicts({"asyncio": results(1.0, 0.6, 0.5, 2.0), "uvloop": results(0.998, 0.598, 0.502, 2.002)})
    goals = [re.split(r" {2,}", line.strip()) for line in lines[1:5]]
    assert [line[1:] for line in goals] == [
        ["1.000 x", "met", "0.998 x", "MISSED"],
        ["0.600 x", "met", "0.598 x", "MISSED"],
        ["0.500 ms", "met", "0.502 ms", "MISSED"],
        ["2.000 ms", "met", "2.002 ms", "MISSED"],
    ]


def test_what_was_measured_elsewhere_is_said_to_be_and_is_no_goal() -> None:
    *said, ratio = verdicts({"asyncio": results(1, 1, 0, 0)})[5:]
    assert " ".join(said).startswith("Measured elsewhere, on 2 cores, and not here, where there is no NATS")
    assert re.split(r" {2,}", ratio.strip())[1] == "0.82 to 1.00 x NATS (to reach: 1.2)"
