"""Tests that the benchmark of workers judges, prints and draws its figures. No test asserts a speed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

from benchmarks.workers import affordable
from benchmarks.workers_report import (
    CONTESTANTS,
    KINDS,
    WORKING,
    Contestant,
    Figures,
    KindFigures,
    Results,
    page,
    picture,
    table,
    verdicts,
    write_page,
)

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
    return Results(figures, {}, processes, {"count": 1_000_000, "warm": 60.0, "change": -5.0}, kinds, "Valkey 1.2.3")


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


def test_the_page_of_the_guide_is_made_from_the_figures_of_a_run(tmp_path: Path) -> None:
    made = results()
    again = Results.read(json.loads(json.dumps(made.plain())))
    assert again == made
    (tmp_path / "workers").mkdir()
    text, drawn = write_page(again, tmp_path)
    assert (text.read_text(), drawn.read_text()) == (page(made), picture(made) + "\n")
    rows = [line for line in page(made).splitlines() if line.startswith("| ") and line[2] != "|"]
    assert len(rows) == len(CONTESTANTS) + len(KINDS) + 1
    assert "| sbredis | 20,000/s | 20,000/s | 40 µs | 0.50 ms | 1.50 ms |" in rows
    assert "Valkey 1.2.3." in page(made)
