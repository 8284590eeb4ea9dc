"""Workers that are killed and terminated, and servers that go away, while they handle messages: the short forms.

``make prove-workers`` runs the long forms, and more.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sbredis.servers import LocalCluster, LocalServer
from tests.workers.chaos.journal import Ends, Handling, faults, handlings
from tests.workers.chaos.scenes import failovers, kills, outages, terminations

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """Run without the debug mode of asyncio, like all tests with servers."""
    return "asyncio"


@pytest.mark.slow
async def test_a_message_is_handled_again_only_after_its_worker_was_killed_and_its_lock_has_ended(
    server: LocalServer, tmp_path: Path
) -> None:
    said = await kills(server, tmp_path, 2, ("plain", "session"), 2)
    assert "handled again" in said


@pytest.mark.slow
async def test_a_signal_lets_no_message_be_handled_twice_and_counts_no_delivery(
    server: LocalServer, tmp_path: Path
) -> None:
    said = await terminations(server, tmp_path, 2, ("plain", "thread", "session", "batch", "process"), 2)
    assert "delivery count at most 1" in said


@pytest.mark.slow
async def test_workers_outlast_an_outage_of_the_server(tmp_path: Path) -> None:
    assert await outages(tmp_path, 1, ("plain", "session"), 1, 1.0)


@pytest.mark.slow
async def test_workers_outlast_a_failover_and_a_slot_that_moves(
    replicated_cluster: LocalCluster, tmp_path: Path
) -> None:
    assert await failovers(replicated_cluster, tmp_path, 2, ("plain", "session"), replicated=True)


# -- the check itself --------------------------------------------------------------------------------------------------


def handling(began: float, **given: Any) -> Handling:
    made = Handling(7, given.pop("pid", 1), began, given.pop("attempt", 1), given.pop("fence", int(began)), False, None)
    made.until, made.done, made.how = began + 5, True, "end"
    for name, value in given.items():
        setattr(made, name, value)
    return made


KILLED = Ends(killed={1: 3.0})
TERMINATED = Ends(terminated={1: 3.0}, shutdown_timeout=1.0)
AWAY = Ends(server_was_away=True)
CUT = handling(1, done=False, how="cut", ended=4.0)
AGAIN = handling(4.1, pid=2, interrupted=True)


@pytest.mark.parametrize(
    ("given", "ends", "complaint"),
    [
        ([], KILLED, "lost"),
        ([handling(1, done=False, how="failed")], KILLED, "lost"),
        ([handling(1), handling(7, pid=2, attempt=2)], Ends(), "without a reason"),
        ([handling(1), handling(5.9, pid=2, attempt=2)], KILLED, "0.100 s before the lock ended"),
        ([handling(1), handling(7, pid=2)], KILLED, "not counted"),
        ([handling(1), handling(7, pid=2, attempt=2, fence=1)], KILLED, "fence"),
        ([handling(1, acknowledged=True), handling(7, pid=2, attempt=2)], KILLED, "acknowledged"),
        ([handling(1), handling(5.9, attempt=2)], AWAY, "before the lock ended"),
        ([handling(1), AGAIN], TERMINATED, "after it had ended"),
        ([CUT, handling(4.1, pid=2)], TERMINATED, "was not told"),
        ([CUT, handling(4.1, pid=2, interrupted=True, attempt=2)], TERMINATED, "was counted"),
        ([handling(1, done=False, how="cut", ended=3.9), AGAIN], TERMINATED, "before its time"),
        ([handling(1, attempt=3)], KILLED, "the delivery 3"),
        ([handling(1, interrupted=True)], TERMINATED, "another was interrupted"),
        ([handling(1, message=8)], KILLED, "never sent"),
        ([handling(1), handling(7, pid=2, attempt=2)], KILLED, ""),
        ([handling(1), handling(7, attempt=2)], AWAY, ""),
        ([CUT, AGAIN], TERMINATED, ""),
    ],
)
def test_the_check_finds_what_is_against_the_promise(given: list[Handling], ends: Ends, complaint: str) -> None:
    found = faults([7], given, ends)
    assert complaint in "\n".join(found)
    assert bool(found) == bool(complaint)


def test_the_check_finds_a_session_that_is_out_of_order() -> None:
    first, second = handling(1, message=1, session="a"), handling(2, message=0, session="a")
    assert faults([0, 1], [first, second], Ends()) == ["0 was handled after 1 of its session was done"]
    assert faults([0, 1], [handling(1, message=0, session="a"), handling(2, message=1, session="a")], Ends()) == []


def test_the_lines_of_processes_become_handlings() -> None:
    begin = {"attempt": 1, "fence": 3, "interrupted": False, "session": None}
    lines: list[dict[str, Any]] = [
        {"event": "begin", "id": 7, "pid": 1, "time": 1.0, **begin},
        {"event": "lock", "id": 7, "pid": 1, "time": 1.1, "until": 6.0},
        {"event": "lock", "id": 7, "pid": 1, "time": 2.8, "until": 7.8},
        {"event": "done", "id": 7, "pid": 99, "time": 3.0},
        {"event": "end", "id": 7, "pid": 1, "time": 3.1},
        {"event": "acknowledged", "id": 7, "pid": 1, "time": 3.2},
    ]
    (made,) = handlings(lines)
    assert (made.until, made.done, made.how, made.ended, made.acknowledged) == (7.8, True, "end", 3.1, True)
