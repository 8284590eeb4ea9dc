"""A subscription follows its slot: after a move or a lost master the client renews it and notifies the listener."""

from __future__ import annotations

import pytest

from benchmarks.faults import in_thread
from sbredis.servers import LocalCluster, LocalServer
from sbredis.transport import Subscription, Transport, forget_memory, key_slot, open_transport
from sbredis.transport._server_facts import UNKNOWN_RUN_ID
from tests.transport.ears import Ear
from tests.transport.opening import function, opened
from tests.waiting import eventually

PUBLISH = function("publish", "#!lua\nreturn redis.call('SPUBLISH', KEYS[1], ARGV[1])")
CHANNEL = b"{wake}:client"
SLOT = key_slot(CHANNEL)


async def is_heard(transport: Transport, heard: Ear, text: bytes) -> None:
    """Publish repeatedly until a listener is subscribed, and then wait until the message arrives there."""

    async def reached() -> bool:
        return bool(await transport.call(PUBLISH, (CHANNEL,), (text,)))

    await eventually(reached)
    await eventually(lambda: text in heard.heard)


def hears_its_server(transport: Transport, subscription: Subscription) -> bool:
    """Return whether a subscription knows the server process that has confirmed it: the one that runs calls."""
    server = transport.server_of(CHANNEL)
    return server is not None and subscription.run_id == server.run_id != UNKNOWN_RUN_ID


async def test_a_subscription_follows_a_slot_that_moves(cluster: LocalCluster) -> None:
    """The slot moves there and back.

    The listener is notified of both gaps, and gets each message that is published after them.
    """
    home = cluster.master_of(SLOT)
    away = next(master for master in cluster.masters if master is not home)
    heard = Ear()
    async with await opened(cluster.url, scripts=[PUBLISH]) as transport:
        subscription = await transport.subscribe(CHANNEL, heard)
        await is_heard(transport, heard, b"at home")
        for number, target in enumerate((away, home), 1):
            await in_thread(cluster.migrate_slot_classic, SLOT, target)
            await eventually(lambda number=number: heard.gaps >= number)
            await is_heard(transport, heard, b"at %d" % number)
            assert hears_its_server(transport, subscription)
        subscription.close()
        assert subscription.run_id is None


async def test_a_subscription_follows_a_failover(replicated_cluster: LocalCluster) -> None:
    """The master is killed. The client subscribes at its replica as soon as the replica has taken over."""
    heard = Ear()
    async with await opened(replicated_cluster.url, scripts=[PUBLISH]) as transport:
        subscription = await transport.subscribe(CHANNEL, heard)
        await is_heard(transport, heard, b"before")
        before = subscription.run_id
        replicated_cluster.master_of(SLOT).kill()
        await eventually(lambda: heard.gaps)
        await is_heard(transport, heard, b"after")
        assert before != subscription.run_id
        assert hears_its_server(transport, subscription)


@pytest.mark.parametrize("rights", ["all", "no INFO"])
async def test_a_subscription_knows_its_server_if_the_user_may_ask(server: LocalServer, rights: str) -> None:
    """A user without INFO can listen. Which server process it hears stays unknown."""
    url = server.url
    if rights != "all":
        server.ask("ACL", "SETUSER", "deaf", "on", ">secret", "~*", "&*", "+@all", "-info")
        url = url.replace("redis://", "redis://deaf:secret@")
    heard = Ear()
    async with await opened(url, scripts=[PUBLISH]) as transport:
        subscription = await transport.subscribe(CHANNEL, heard)
        await is_heard(transport, heard, b"here")
        assert hears_its_server(transport, subscription) == (rights == "all")
        assert (subscription.run_id == UNKNOWN_RUN_ID) == (rights != "all")


async def test_a_server_in_memory_has_a_run_id() -> None:
    async with await open_transport("memory://run-id") as transport:
        subscription = await transport.subscribe(CHANNEL, Ear())
        assert hears_its_server(transport, subscription)
    forget_memory("run-id")
