"""Single redirections: a migration that stops halfway, and a connection that is cut after a call."""

from __future__ import annotations

import asyncio
import re

import pytest

from benchmarks.pressure import COUNT, COUNT_ONCE, beside
from sbredis.exceptions import Outcome, ServiceBusCommunicationError, ServiceBusServerBusyError
from sbredis.servers import ClusterNode, LocalCluster, LocalServer
from sbredis.transport import key_slot
from tests.transport.between import Between
from tests.transport.opening import function, opened
from tests.waiting import eventually

TAG = b"{moving}"
SLOT = key_slot(TAG)
WRITE = function("write", "#!lua\nredis.call('SET', KEYS[1], ARGV[1])\nreturn redis.call('GET', KEYS[1])")
WRITE_TWO = function(
    "write_two", "#!lua\nredis.call('SET', KEYS[1], ARGV[1])\nreturn redis.call('SET', KEYS[2], ARGV[1])"
)


def tryagains(node: ClusterNode) -> int:
    """Return how often the node has answered TRYAGAIN."""
    found = re.search(r"errorstat_TRYAGAIN:count=(\d+)", str(node.ask("INFO", "errorstats")))
    return int(found[1]) if found else 0


async def test_a_slot_in_the_middle_of_its_move_serves_every_call(cluster: LocalCluster) -> None:
    """Calls with keys that moved or are new go to the target, with ASKING. Calls with keys that stayed go to the
    source.

    A call with keys on both servers waits, and is served when the migration continues.
    """
    home = cluster.master_of(SLOT)
    away = next(master for master in cluster.masters if master is not home)
    gone, stayed, new = TAG + b":a", TAG + b":b", TAG + b":c"
    async with await opened(cluster.url, scripts=[WRITE, WRITE_TWO]) as transport:
        for key in (gone, stayed):
            await transport.call(WRITE, (key,), ("before",))
        home_id, away_id = home.id, away.id
        away.ask("CLUSTER", "SETSLOT", SLOT, "IMPORTING", home_id)
        home.ask("CLUSTER", "SETSLOT", SLOT, "MIGRATING", away_id)
        home.ask("MIGRATE", away.host, away.port, gone.decode(), 0, 5000)
        for key in (gone, stayed, new):
            assert await transport.call(WRITE, (key,), ("during",)) == b"during"
        assert home.ask("EXISTS", stayed.decode()) == 1
        with pytest.raises(ServiceBusServerBusyError, match="TRYAGAIN") as caught:
            await transport.call(WRITE_TWO, (gone, stayed), ("split",), timeout=5)
        assert caught.value.outcome is Outcome.NEVER_SENT
        refusals = tryagains(home)
        waiting = asyncio.create_task(transport.call(WRITE_TWO, (gone, stayed), ("whole",), timeout=60))
        await eventually(lambda: tryagains(home) > refusals)
        assert not waiting.done()
        # The remaining key moves as well. Then the target has all keys, although no node knows yet that the target owns
        # the slot.
        home.ask("MIGRATE", away.host, away.port, stayed.decode(), 0, 5000)
        assert await waiting == b"OK"
        for node in (away, home):
            node.ask("CLUSTER", "SETSLOT", SLOT, "NODE", away_id)
        assert await transport.call(WRITE, (gone,), ("after",)) == b"after"
        assert transport.endpoint_of(gone) == (away.host, away.port)
    cluster.migrate_slot_classic(SLOT, home)


async def test_a_storm_of_redirections_causes_one_request_for_the_slot_map(cluster: LocalCluster) -> None:
    """500 calls use a slot that has moved. Each call is redirected, and the client requests the map once or twice."""

    def questions() -> int:
        said = [str(node.ask("INFO", "commandstats")) for node in cluster.nodes]
        return sum(int(calls) for calls in re.findall(r"cmdstat_cluster\|slots:calls=(\d+)", "".join(said)))

    home = cluster.master_of(SLOT)
    away = next(master for master in cluster.masters if master is not home)
    async with await opened(cluster.url, scripts=[WRITE]) as transport:
        for target in (away, home):
            cluster.migrate_slot_classic(SLOT, target)
            before = questions()
            keys = [TAG + b"%d" % number for number in range(500)]
            await asyncio.gather(*(transport.call(WRITE, (key,), ("x",), timeout=20) for key in keys))
            await eventually(lambda before=before: questions() > before)
            assert questions() - before <= 3
            assert transport.endpoint_of(TAG) == (target.host, target.port)


class Cutter(Between):
    """On request of a test, drops an answer of the server and then cuts the connection."""

    cut_next_answer = False
    cuts = 0

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool) -> None:
        while data := await reader.read(65536):
            if answers and self.cut_next_answer:
                self.cut_next_answer = False
                self.cuts += 1
                return
            writer.write(data)


async def test_a_call_whose_answer_is_lost_ends_as_unknown_or_is_repeated(server: LocalServer) -> None:
    """The script has run, and the connection is cut before its answer arrives.

    If a call must not be repeated, its outcome is unknown. If its script recognises repetitions, the call is repeated
    and counted once. If a caller wrongly declares that its script recognises them, the call is counted twice.
    """
    key = b"cut"
    async with Cutter(server).listening() as cutter:
        url = f"redis://127.0.0.1:{cutter.port}"
        async with await opened(url, scripts=[COUNT, COUNT_ONCE]) as transport:
            assert (
                await transport.call(COUNT, (key, beside(key)), ("first",)) == 1
            )  # from now on, the server has the script
            cutter.cut_next_answer = True
            with pytest.raises(ServiceBusCommunicationError) as caught:
                await transport.call(COUNT, (key, beside(key)), ("lost",))
            assert caught.value.outcome is Outcome.UNKNOWN
            assert server.ask("HGET", "cut", "lost") == "1"
            cutter.cut_next_answer = True
            assert await transport.call(COUNT_ONCE, (key, beside(key)), ("once",), repeatable=True) == 1
            assert server.ask("HGET", "cut", "once") == "1"
            cutter.cut_next_answer = True
            assert await transport.call(COUNT, (key, beside(key)), ("twice",), repeatable=True) == 2
            assert cutter.cuts == 3
