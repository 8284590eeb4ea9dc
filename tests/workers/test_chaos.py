"""Workers that are killed and terminated, and servers that go away, while they handle messages: the short forms.

``make prove WHAT=workers`` runs the long forms, and more.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sbredis.servers import LocalCluster, LocalServer
from tests.workers.chaos.journal import Ends, Handling, faults, handlings
from tests.workers.chaos.mixed import PLACES, mixed
from tests.workers.chaos.scenes import failovers, kills, outages, pauses, planted, terminations


@pytest.mark.long("it waits for the ends of locks")
async def test_a_message_is_handled_again_only_after_its_worker_was_killed_and_its_lock_has_ended(
    server: LocalServer, tmp_path: Path
) -> None:
    said = await kills(server, tmp_path, 2, ("plain", "session"), 2)
    assert "handled again" in said


@pytest.mark.long("it stops many workers")
async def test_a_signal_lets_no_message_be_handled_twice_and_counts_no_delivery(
    server: LocalServer, tmp_path: Path
) -> None:
    said = await terminations(server, tmp_path, 2, ("plain", "thread", "session", "batch", "process"), 2)
    assert "delivery count at most 1" in said


async def test_workers_outlast_an_outage_of_the_server(tmp_path: Path) -> None:
    assert await outages(tmp_path, 1, ("plain", "session"), 1, 1.0)


@pytest.mark.long("it pauses a server for seconds")
async def test_a_pause_of_the_server_that_is_shorter_than_a_lock_lets_no_message_be_handled_twice(
    server: LocalServer, tmp_path: Path
) -> None:
    said = await pauses(server, tmp_path, 3, ("plain", "thread", "batch"), 2)
    assert " 0 messages handled again" in said


@pytest.mark.long("it waits for a failover")
async def test_workers_outlast_a_failover_and_a_slot_that_moves(
    replicated_cluster: LocalCluster, tmp_path: Path
) -> None:
    assert await failovers(replicated_cluster, tmp_path, 2, ("plain", "session"), replicated=True)


@pytest.mark.long("it pauses servers and processes for seconds")
async def test_no_message_has_two_handlers_while_processes_with_many_receivers_are_suspended_and_killed(
    binary: str | None, tmp_path: Path
) -> None:
    rounds: list[str] = []
    with PLACES["server"](binary, tmp_path) as place:
        given: Any = {"seconds": 10, "seed": 0, "said": rounds.append, "processes": 4, "messages": 2000}
        await mixed(place, tmp_path, 1, kinds=("receivers",), **given)
    assert len(rounds) == 1


# -- the check itself --------------------------------------------------------------------------------------------------


@pytest.mark.long("it starts a crowd of workers")
async def test_two_handlers_that_have_one_message_at_once_are_found(server: LocalServer, tmp_path: Path) -> None:
    """Two of the messages are given away while their handlers run, as a defect might do it."""
    found = await planted(server, tmp_path, {3, 5})
    assert "2 messages were handled again, but the faults are reasons for at most 0" in found
    for complaint in ("two handlers at once, and the first one had its lock", "handled again without a reason"):
        assert {each.partition(":")[0] for each in found if complaint in each} == {"3", "5"}


def handling(began: float, **given: Any) -> Handling:
    """Return a handling that has started at once, has a lock of five seconds, and ends half a second later."""
    fence = given.pop("fence", int(began))
    made = Handling(7, fence, 1, began, 1, starts=[began], until=began + 5, done=True, how="end", ended=began + 0.5)
    return replace(made, **given)


KILLED = Ends(killed={1: 3.0})
TERMINATED = Ends(terminated={1: 3.0}, shutdown_timeout=1.0)
AWAY = Ends(away=[(2.0, 4.0)])
CUT = handling(1, done=False, how="cut", ended=4.0)
WAITED = handling(1, done=False, how="cut", ended=3.0, starts=[])
AGAIN = handling(4.1, pid=2, interrupted=True)
SECOND = handling(7, pid=2, attempt=2)


@pytest.mark.parametrize(
    ("given", "ends", "complaint"),
    [
        ([], KILLED, "lost"),
        ([handling(1, done=False, how="failed")], KILLED, "lost"),
        ([handling(1), SECOND], Ends(), "without a reason"),
        ([handling(1), SECOND], Ends(killed={2: 3.0}), "without a reason"),
        ([handling(1), SECOND], Ends(killed={1: 7.5}), "without a reason"),
        ([handling(1), SECOND], Ends(away=[(7.1, 9.0)]), "without a reason"),
        ([handling(21), replace(SECOND, began=27, starts=[27], fence=27)], AWAY, "without a reason"),
        ([handling(1, starts=[1, 1.1])], Ends(), "its handler started 2 times under one lock"),
        ([handling(1, starts=[])], Ends(), "has not said that it started"),
        ([handling(1, ended=3.0), handling(2, pid=2, attempt=2)], AWAY, "at once, and the first one had its lock"),
        ([handling(1, how=None), handling(2, attempt=2)], AWAY, "at once, and the first one had its lock"),
        ([handling(1, ended=8.0), SECOND], Ends(), "at once, and the first one had lost its lock without a reason"),
        ([handling(1), SECOND], Ends(killed={1: 3.0}, in_work=0), "1 messages were handled again, but the faults"),
        ([handling(1), handling(5.9, pid=2, attempt=2)], KILLED, "0.100 s before the lock ended"),
        ([handling(1), handling(7, pid=2)], KILLED, "not counted"),
        ([handling(1), handling(7, pid=2, attempt=2, fence=1)], KILLED, "fence"),
        ([handling(1, acknowledged=True), handling(7, pid=2, attempt=2)], KILLED, "acknowledged"),
        ([handling(1), handling(5.9, attempt=2)], AWAY, "before the lock ended"),
        ([handling(1), AGAIN], TERMINATED, "after it had ended"),
        ([CUT, handling(4.1, pid=2)], TERMINATED, "was not told"),
        ([CUT, handling(4.1, pid=2, interrupted=True, attempt=2)], TERMINATED, "was counted"),
        ([handling(1, done=False, how="cut", ended=3.9), AGAIN], TERMINATED, "before its time"),
        ([replace(WAITED, ended=2.9), handling(4.1, pid=2)], TERMINATED, "before its time"),
        ([WAITED, handling(4.1, pid=2, attempt=2)], TERMINATED, "was counted"),
        ([handling(1, attempt=3)], KILLED, "the delivery 3"),
        ([handling(1, interrupted=True)], TERMINATED, "another was interrupted"),
        ([handling(1, message=8)], KILLED, "never sent"),
        ([handling(1), SECOND], KILLED, ""),
        ([handling(1, how=None, done=False), SECOND], KILLED, ""),
        ([handling(1), handling(7, attempt=2)], AWAY, ""),
        ([handling(1, ended=8.0), handling(7, attempt=2)], AWAY, ""),
        ([handling(1), SECOND], Ends(away=[(2.0, 4.0)], in_work=1), ""),
        ([CUT, AGAIN], TERMINATED, ""),
        ([WAITED, handling(3.5, pid=2)], TERMINATED, ""),
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
    """A handler in a process has a process id of its own."""
    begin = {"attempt": 1, "interrupted": False, "session": None, "until": 6.0}
    events: list[dict[str, Any]] = [
        {"event": "begin", "pid": 1, "time": 1.0, **begin},
        {"event": "start", "pid": 99, "time": 1.1, "attempt": 1},
        {"event": "lock", "pid": 1, "time": 2.8, "until": 7.8},
        {"event": "done", "pid": 99, "time": 3.0},
        {"event": "end", "pid": 1, "time": 3.1},
        {"event": "acknowledged", "pid": 1, "time": 3.2},
        {"event": "begin", "pid": 2, "time": 9.0, **begin, "fence": 4, "until": 14.0},
    ]
    first, second = handlings({"id": 7, "fence": 3, **event} for event in events)
    assert first == Handling(7, 3, 1, 1.0, 1, False, None, [1.1], 7.8, True, "end", 3.1, True)
    assert second == Handling(7, 4, 2, 9.0, 1, until=14.0)
