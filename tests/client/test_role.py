"""The maintenance role, which one client of a namespace holds at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from sbredis._tasks import TaskScope
from sbredis.client import Role, RoleKeeper
from sbredis.client._claiming import NOBODY
from sbredis.engine import role_keys
from tests.aio.queues import Calls, Queue, queue_at
from tests.waiting import eventually


@pytest.mark.everywhere("the registry and the partitions lie in different slots")
@pytest.mark.parametrize("ahead", [0, 3_600_000], ids=["a clock that stands still", "a clock that went back"])
async def test_the_fence_increases_with_each_holder_even_if_a_clock_is_set_back(queue: Queue, ahead: int) -> None:
    """The next fence is higher than the last one, even if the clock has not advanced."""
    (key,) = role_keys("ns")
    seconds, _ = await queue.transport.command("TIME", key=key)
    last = (int(seconds) + 600) * 1000 + ahead  # the clock does not reach this time during the test
    await queue.transport.command("HSET", key, "route", f"0;;;before {last}", key=key)
    for place in range(1, 4):
        holder = Role(queue.transport, "ns", "route")
        taken = await holder.claim(5)
        assert (taken.held, taken.fence) == (True, last + place)
        assert (await holder.claim(5)).fence == taken.fence  # a claim keeps its fence when it is renewed
        await holder.give_up()


async def test_the_fence_increases_although_a_failover_has_lost_the_last_one(queue: Queue) -> None:
    (key,) = role_keys("ns")
    before = await Role(queue.transport, "ns", "route").claim(5)
    await queue.transport.command("DEL", key, key=key)
    taken = await Role(queue.transport, "ns", "route").claim(5)
    assert taken.held
    assert taken.fence >= before.fence > 1_000_000_000_000  # it is a time in ms


async def test_a_claim_that_ends_too_far_in_the_future_is_void(queue: Queue) -> None:
    """No claim is longer than an hour, so the clock of the server was set back."""
    (key,) = role_keys("ns")
    seconds, _ = await queue.transport.command("TIME", key=key)
    for ahead, free in ((1800, False), (7200, True)):
        ends = (int(seconds) + ahead) * 1000
        await queue.transport.command("HSET", key, "route", f"0;another {ends} 1;;another 7", key=key)
        assert (await Role(queue.transport, "ns", "route").claim(5)).held == free


class Shards:
    """Clients that ask for the shards of one role."""

    def __init__(self, queue: Queue, shards: int, clients: int) -> None:
        self.clients = [Role(queue.transport, "ns", "route", shards) for _ in range(clients)]
        self.standings = [NOBODY] * clients

    async def ask(self, *clients: int, seconds: float = 60.0, ready: bool = True) -> None:
        """Let clients ask one after the other; all clients if none is named."""
        for client in clients or range(len(self.clients)):
            self.standings[client] = await self.clients[client].claim(seconds, waits=True, ready=ready)

    @property
    def counts(self) -> list[int]:
        """The number of shards that each client has, as it knows."""
        return [len(standing.shards) for standing in self.standings]

    def called(self, client: int) -> list[int]:
        """Return the clients that the last question of a client has called."""
        names = self.standings[client].call.decode().split()[1:]
        return [number for number, each in enumerate(self.clients) if each.asker in names]


async def test_a_client_that_is_alone_has_all_shards_and_shares_them_with_others(queue: Queue) -> None:
    asking = Shards(queue, 8, 3)
    await asking.ask()
    assert asking.counts == [8, 0, 0]
    assert all(standing.member for standing in asking.standings)
    before = asking.standings[0].shards
    assert asking.called(1) == [0]  # it has too many
    await asking.ask(0)
    assert asking.counts == [3, 0, 0]
    assert asking.called(0) == [1, 2]
    await asking.ask(1, 2)
    assert asking.counts == [3, 3, 2]
    held = [shard for standing in asking.standings for shard in standing.shards]
    assert sorted(held) == list(range(8))
    for shard, fence in asking.standings[0].shards.items():
        assert fence == before[shard]  # a shard that a client keeps also keeps its fence
    for standing in asking.standings[1:]:
        assert all(fence > before[shard] for shard, fence in standing.shards.items())
    await asking.ask()
    assert asking.counts == [3, 3, 2]
    assert not any(standing.call for standing in asking.standings)


async def test_a_client_that_is_not_ready_takes_no_shards_from_others(queue: Queue) -> None:
    asking = Shards(queue, 8, 3)
    await asking.ask(0, 1)
    await asking.ask(0, 1)
    assert asking.counts == [4, 4, 0]
    await asking.ask(2, ready=False)
    assert asking.standings[2].member
    assert asking.called(2) == []
    asking.standings[0] = await asking.clients[0].give_up()
    assert asking.called(0) == [1]
    await asking.ask(2, ready=False)
    assert asking.counts == [0, 4, 0]
    assert asking.standings[2].seconds >= 2  # the others take the free shards before
    await asking.ask(1)
    assert asking.counts == [0, 8, 0]
    await asking.ask(2)
    assert asking.called(2) == [1]
    await asking.ask(1, 2)
    assert asking.counts == [0, 4, 4]
    await asking.ask(2, ready=False)
    assert asking.counts == [0, 4, 4]  # a client that has shards is ready for them


async def test_a_client_that_is_not_ready_takes_all_shards_if_no_other_has_any(queue: Queue) -> None:
    asking = Shards(queue, 8, 2)
    await asking.ask(0)
    await asking.ask(1, ready=False)
    assert asking.counts == [8, 0]
    asking.standings[0] = await asking.clients[0].give_up()
    assert asking.called(0) == [1]
    await asking.ask(1, ready=False)
    assert asking.counts == [0, 8]


async def test_a_client_that_was_called_and_is_dead_delays_the_others_by_two_seconds(queue: Queue) -> None:
    """Until then, the others take their fair share only."""
    asking = Shards(queue, 4, 3)
    await asking.ask(0, 1, 2, 0, 1, 2)
    assert sum(asking.counts) == 4
    await asking.clients[0].give_up()
    await asking.ask(1)
    assert asking.counts[1] == 2
    assert 0 < asking.standings[1].seconds <= 2

    async def has_all() -> bool:
        await asking.ask(1)
        return asking.counts[1] + asking.counts[2] == 4

    await eventually(has_all)


async def test_shards_of_a_dead_client_go_to_the_next_one_that_asks(queue: Queue) -> None:
    (key,) = role_keys("ns")
    asking, seconds = Shards(queue, 8, 2), 0.1
    while asking.counts != [8, 0]:  # on a busy machine, a short claim ends before the other client asks
        await queue.transport.command("DEL", key, key=key)
        asking, seconds = Shards(queue, 8, 2), 3 * seconds
        assert seconds < 60
        await asking.ask(0, seconds=seconds)
        await asking.ask(1)
    assert 0 < asking.standings[1].seconds <= seconds

    async def taken() -> bool:
        await asking.ask(1)
        return asking.counts[1] == 8

    await eventually(taken, seconds + 60)


async def test_at_most_eight_clients_are_members_and_the_others_are_called_when_there_is_room(queue: Queue) -> None:
    asking = Shards(queue, 1, 12)
    await asking.ask()
    await asking.ask()
    assert [standing.member for standing in asking.standings] == [True] * 8 + [False] * 4
    assert asking.standings[11].listed == 4
    for client in range(4):
        asking.standings[client] = await asking.clients[client].give_up()
        if client == 0:  # it had the shard
            assert asking.called(client) == [7]
        else:  # listed clients are called when half of the members have left
            assert asking.called(client) == ([8, 9, 10, 11] if client == 3 else [])
        await asking.ask(7)
    await asking.ask(8, 9, 10, 11)
    assert [standing.member for standing in asking.standings[8:]] == [True] * 4
    assert asking.standings[11].listed == 0


async def test_dead_clients_do_not_keep_others_from_a_role(queue: Queue) -> None:
    """A hundred clients have asked and died. Whoever asks again is called before them, and is listed beside few."""
    members, alive, dead = Shards(queue, 1, 8), Shards(queue, 1, 1), Shards(queue, 1, 100)
    await members.ask()
    await alive.ask()
    await dead.ask()
    assert max(standing.listed for standing in dead.standings) == 64
    await alive.ask()
    assert not alive.standings[0].member
    for client in range(4):
        members.standings[client] = await members.clients[client].give_up()
    assert alive.clients[0].asker.encode() in members.standings[3].call.split()
    await alive.ask()
    assert alive.standings[0].member


async def test_a_client_that_has_not_asked_for_long_is_listed_no_more(queue: Queue) -> None:
    (key,) = role_keys("ns")
    asking = Shards(queue, 1, 9)
    await asking.ask()
    assert asking.standings[8].listed == 1
    stored: bytes = await queue.transport.command("HGET", key, "route", key=key)
    freed, members, listed, holders = stored.split(b";")
    name, at = listed.split()
    for later, still in ((140_000, 1), (150_000, 0), (-60_000, 0)):  # the last one is a clock that went back
        asked = b"%b %d" % (name, int(at) - later)
        await queue.transport.command("HSET", key, "route", b";".join((freed, members, asked, holders)), key=key)
        await asking.ask(0)
        assert asking.standings[0].listed == still


@pytest.mark.parametrize("stored", ["", "x", "before 0 7", "1 2;a", "9;a b;c;d", f"0;{'a 1,' * 50};b,c 1;- 5"])
async def test_a_damaged_record_of_a_role_is_a_free_role(queue: Queue, stored: str) -> None:
    (key,) = role_keys("ns")
    await queue.transport.command("HSET", key, "route", stored, key=key)
    asking = Shards(queue, 2, 1)
    await asking.ask()
    assert asking.counts == [2]


# -- many clients ------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def keepers_at(url: str, number: int) -> AsyncIterator[tuple[list[RoleKeeper], Calls]]:
    """Clients that all want one role, and the calls that they make. They share one connection."""
    async with queue_at(url) as queue:
        connection = queue.client._connection
        keepers = [RoleKeeper(connection, "own.r", seconds=600.0) for _ in range(number)]
        with Calls(connection.transport) as calls:
            yield keepers, calls
        for keeper in keepers:
            await keeper.leave()


async def test_a_holder_that_leaves_is_replaced_at_once_without_a_herd(url: str) -> None:
    async with keepers_at(url, 60) as (keepers, calls):
        holder, *others = keepers
        await holder.take()
        async with TaskScope() as tasks:
            for keeper in others:
                tasks.start(keeper.take())
            await eventually(lambda: all(keeper.standing.member or keeper.standing.listed for keeper in others))
            before = calls.by_script["hold_role"]
            await holder.leave()
            await eventually(lambda: any(keeper.held for keeper in others))
            assert calls.by_script["hold_role"] - before <= 4
            tasks.cancel()


async def test_a_role_that_is_passed_on_reaches_all_who_wait_for_it(url: str) -> None:
    """Also those that were no members at first: nobody waits for the end of a claim, or for a time to ask again."""
    async with keepers_at(url, 40) as (keepers, _):
        reached = list[RoleKeeper]()

        async def hold_for_a_moment(keeper: RoleKeeper) -> None:
            await keeper.take()
            reached.append(keeper)
            await keeper.leave()

        begun = asyncio.get_running_loop().time()
        await asyncio.gather(*(hold_for_a_moment(keeper) for keeper in keepers))
        assert len(reached) == 40
        assert asyncio.get_running_loop().time() - begun < 25  # the time after which a client asks again is 30 seconds
