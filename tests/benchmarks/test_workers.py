"""Tests that the benchmark of workers runs, and prints and draws its report. No test asserts a speed."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from benchmarks.workers import affordable
from benchmarks.workers_report import (
    CONTESTANTS,
    KINDS,
    WORKING,
    Contestant,
    Figures,
    KindFigures,
    Results,
    picture,
    table,
    verdicts,
)
from tests.benchmarks.running import benchmark, mismatches, refused

ROW = r"[\d,]+ +[\d,]+ +[\d,]+ +\d+\.\d µs +\d+\.\d µs +\d+\.\d\d ms +\d+\.\d\d ms +100"
PATTERNS = [
    r".+",
    r"with its append-only file on; Python 3\S+; a server and a process for each measurement",
    r"100 messages of 1,024 B, 5 single trips; medians, rounds: 1",
    r"sent/s +handled/s +both/s +send CPU +handle CPU +p50 +p99 +messages",
    rf"sbredis +{ROW}",
    *[rf"handlers: {kind} +[\d,]+/s  CPU of the worker +\S+ µs, of the server +\S+ µs a message" for kind in KINDS],
    r"goals",
    r"sessions of one message ≥ 0.1 x plain messages a second +\d+\.\d\d  (met|MISSED)",
    r"their CPU ≤ 6 x that of a plain message +\d+\.\d\d  (met|MISSED)",
    r"CPU of context.send ≤ 1.1 x worker.send and completion +\d+\.\d\d  (met|MISSED)",
    r"A short run: .*",
]
FIGURES = Figures(sent=20_000, handled=20_000, send_cpu=25, handle_cpu=15, p50=0.5, p99=1.5, messages=20_000)


def results() -> Results:
    """Return the figures of a run in which every goal is met exactly."""
    figures: dict[Contestant, Figures] = {}
    for who in CONTESTANTS:
        if who.ours:
            figures[who] = FIGURES
        elif who.peer == "nats":
            slower = 2.0001 if who.loop == "uvloop" else 2.2001
            figures[who] = replace(FIGURES, sent=20_000 / slower, handled=20_000 / slower, p50=0.5, p99=0.75)
        else:
            figures[who] = replace(FIGURES, sent=1_666, handled=1_666)
    processes = {0.0: (20_000.0, 20_000.0), WORKING: (10_000.0, 15_001.0)}
    kinds: dict[str, KindFigures] = dict.fromkeys(KINDS, KindFigures(handled=1_000, cpu=100, server_cpu=20))
    kinds["sessions"] = KindFigures(handled=100, cpu=600, server_cpu=200)
    kinds["context.send"] = KindFigures(handled=1_000, cpu=110, server_cpu=21.9)
    return Results(figures, {}, processes, {"count": 1_000_000, "warm": 60.0, "change": -5.0}, kinds)


@pytest.mark.long("it runs a whole benchmark")
@pytest.mark.slow
def test_the_short_form_without_other_frameworks_reports_its_rows() -> None:
    lines = benchmark(
        "workers", "--short", "--peers", "sbredis", "--loop", "asyncio", "--messages", "100", "--trips", "5"
    )
    assert mismatches(lines, PATTERNS) == ([], 0)


@pytest.mark.long("it starts a process to see one line")
def test_invalid_arguments_are_refused() -> None:
    assert "must be 1 at least" in refused("workers", "--messages", "-1")
    assert "no peer of this name: rabbit" in refused("workers", "--peers", "rabbit")


def test_a_slow_framework_gets_fewer_messages() -> None:
    assert affordable({"sent": 20_000, "handled": 20_000}, 20_000, 20) == 20_000
    assert affordable({"sent": 1_000, "handled": 1_000}, 20_000, 20) == 10_000
    assert affordable({"sent": 1, "handled": 1}, 20_000, 20) == 100


def test_the_report_distinguishes_met_and_missed_goals() -> None:
    met = results()
    assert {line.split()[-1] for line in verdicts(met)[1:]} == {"met"}
    assert len(verdicts(met)) == 13
    worse = replace(FIGURES, sent=19_000, p50=0.51, p99=1.51)
    missed = replace(
        met,
        figures={who: worse if who.ours else each for who, each in met.figures.items()},
        processes={**met.processes, WORKING: (10_000.0, 14_999.0)},
        kinds={
            **met.kinds,
            "sessions": KindFigures(handled=99, cpu=601, server_cpu=0),
            "context.send": KindFigures(handled=1_000, cpu=110, server_cpu=22.1),
        },
        memory={"count": 1_000_000, "warm": 60.0, "change": 5.01},
    )
    assert {line.split()[-1] for line in verdicts(missed)[1:]} == {"MISSED"}


def test_a_framework_that_was_not_measured_is_named() -> None:
    known = results()
    left = {who: each for who, each in known.figures.items() if who.peer != "saq"}
    lines = table(replace(known, figures=left, missing={"saq": "No module named 'saq'"}))
    assert [line for line in lines if "not measured" in line] == [f"{'saq':<24}is not measured: No module named 'saq'"]


def test_the_picture_shows_a_bar_for_each_framework_the_fastest_first() -> None:
    drawn = ET.fromstring(picture(results()))  # noqa: S314 -- we have drawn it
    bars = [each for each in drawn.iter() if each.tag.endswith("rect")]
    widths = [float(each.attrib["width"]) for each in bars]
    assert len(bars) == len(CONTESTANTS)
    assert widths == sorted(widths, reverse=True)
    assert [each.attrib["class"] for each in bars[:2]] == ["bar ours", "bar ours"]
