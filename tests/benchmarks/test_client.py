"""Tests of the benchmark of the client: NATS, which may be missing, and the report. No test asserts a speed."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from benchmarks.client_report import CLUSTER_ONE, NATS, ONE, SIXTEEN, STREAMS, Results, table, verdicts
from benchmarks.jetstream import NatsServer
from benchmarks.ways import BACKLOG, BATCHES, IN_STEP, TASKS
from benchmarks.works import Idle, Medians
from sbredis.exceptions import ServerUnsuitableError
from tests.children import run_program
from tools.repository import ROOT

# -- NATS --------------------------------------------------------------------------------------------------------------


def test_a_nats_server_that_does_not_start_is_reported_with_its_last_line(tmp_path: Path) -> None:
    (tmp_path / "nats").mkdir()
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "nats-server"
    program.write_text("#!/bin/sh\necho starting\necho not on this machine\nexit 1\n")
    program.chmod(0o755)
    with (
        pytest.raises(ServerUnsuitableError, match=r"^its server did not start: not on this machine"),
        NatsServer(tmp_path),
    ):
        pass


def test_a_failed_nats_installation_is_reported_and_leaves_nothing(tmp_path: Path) -> None:
    for name in ("tools/nats", "requirements/nats.lock"):
        (tmp_path / name).parent.mkdir()
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    done = run_program(tmp_path / "tools/nats", env={**os.environ, "PIP_NO_INDEX": "1"})
    assert done.stdout.splitlines() == [
        "nats: installing requirements/nats.lock into .cache/nats",
        "nats: cannot be installed, so it is not measured; .cache/nats.log says why",
    ]
    assert [path.name for path in (tmp_path / ".cache").iterdir()] == ["nats.log"]


# -- the report --------------------------------------------------------------------------------------------------------


def speed(per_second: float, server: float = 1.0, client: float = 1.0) -> dict[str, Medians]:
    return {"": Medians(per_second, client, server)}


def results(*, nats: float, streams: float, server: float, sixteen: float, idle: Idle) -> Results:
    """Make up results: NATS and bare streams process 10,000 messages/s, and a round trip through NATS takes 1 ms."""
    works: dict[str, dict[str, Medians]] = {}
    for shape in (IN_STEP, BACKLOG):
        works |= {
            Results.key(TASKS, shape, NATS): speed(10_000),
            Results.key(TASKS, shape, ONE): speed(nats * 10_000),
            Results.key(TASKS, shape, SIXTEEN): speed(nats * sixteen * 10_000),
            Results.key(BATCHES, shape, STREAMS): speed(10_000),
            Results.key(BATCHES, shape, ONE): speed(streams * 10_000, server),
        }
    return Results(works, {NATS: Idle(1.0, 1.0), ONE: idle})


def cells(line: str) -> list[str]:
    return re.split(r" {2,}", line.strip())[1:]


def test_the_report_distinguishes_met_and_missed_goals() -> None:
    met = results(nats=1.5, streams=1.1, server=1.5, sixteen=0.9, idle=Idle(1.4, 2.0))
    missed = results(nats=1.498, streams=1.098, server=1.502, sixteen=0.898, idle=Idle(1.402, 2.002))
    assert [cells(line) for line in verdicts({"asyncio": met, "uvloop": missed})[1:]] == [
        *[["1.500 x", "met", "1.498 x", "MISSED"]] * 2,
        ["1.400 x", "met", "1.402 x", "MISSED"],
        ["2.000 ms", "met", "2.002 ms", "MISSED"],
        *[["1.100 x", "met", "1.098 x", "MISSED"]] * 2,
        *[["1.500 x", "met", "1.502 x", "MISSED"]] * 2,
        *[["0.900 x", "met", "0.898 x", "MISSED"]] * 2,
        *[["not measured", "not measured"]] * 2,
    ]


def test_the_goal_relative_to_nats_is_higher_with_uvloop() -> None:
    made = results(nats=1.4, streams=1, server=1, sixteen=1, idle=Idle(1, 1))
    assert cells(verdicts({"asyncio": made, "uvloop": made})[1]) == ["1.400 x", "met", "1.400 x", "MISSED"]


def test_a_row_has_the_ratio_to_each_peer_that_was_measured() -> None:
    works = {
        Results.key(TASKS, BACKLOG, NATS): speed(10_000),
        Results.key(TASKS, BACKLOG, ONE): speed(15_000, client=0.5),
        Results.key(TASKS, BACKLOG, CLUSTER_ONE): speed(7_500),
        Results.key(BATCHES, BACKLOG, STREAMS): speed(40_000),
        Results.key(BATCHES, BACKLOG, NATS): speed(10_000),
        Results.key(BATCHES, BACKLOG, ONE): speed(20_000),
    }
    lines = [line for line in table(Results(works, {NATS: Idle(0.25, 1.5)})) if "µs" in line or "ms" in line]
    assert [re.split(r" {2,}", line.strip()) for line in lines] == [
        ["NATS JetStream through nats-py", "10,000", "1.0 µs", "1.0 µs"],
        ["sbredis", "15,000", "0.5 µs", "1.0 µs", "1.50 x NATS (CPU 0.50 x)"],
        ["sbredis, on the cluster", "7,500", "1.0 µs", "1.0 µs", "0.50 x one (CPU 2.00 x)"],
        ["bare streams through redis-py", "40,000", "1.0 µs", "1.0 µs"],
        ["NATS JetStream through nats-py", "10,000", "1.0 µs", "1.0 µs", "0.25 x streams (CPU 1.00 x)"],
        ["sbredis", "20,000", "1.0 µs", "1.0 µs", "0.50 x streams (CPU 1.00 x)", "2.00 x NATS (CPU 1.00 x)"],
        ["NATS JetStream through nats-py", "p50 0.25 ms", "p99 1.50 ms"],
    ]
