"""The channels for pushes: each push goes to the receiver that it names, and each subscription is reported."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from sbredis.aio import ServiceBusClient
from sbredis.client import Connection, PushMember, connection_of
from sbredis.engine import AccessTo, CreditPush, Delivery, entity_rules, push_channel
from sbredis.exceptions import ServiceBusAuthorizationError, ServiceBusError
from sbredis.servers import LocalServer
from tests.waiting import eventually

pytestmark = pytest.mark.everywhere("each target has subscriptions of its own")


ENTITY = "e1"


class Receiver:
    """Records what it hears."""

    def __init__(self) -> None:
        self.prefixes: list[str] = []
        self.runs: list[str] = []
        self.errors: list[ServiceBusError] = []

    def pushed(self, push: CreditPush[Delivery]) -> None:
        self.prefixes.append(push.prefix)

    def subscribed(self, run: str) -> None:
        self.runs.append(run)

    def refused(self, error: ServiceBusError) -> None:
        self.errors.append(error)


class TellingReceiver(Receiver):
    """Lets another receiver know of a subscription as soon as it hears of it."""

    knows: PushMember

    def subscribed(self, run: str) -> None:
        super().subscribed(run)
        self.knows.learn()


@pytest.fixture
async def connection(url: str) -> AsyncIterator[Connection]:
    async with ServiceBusClient.from_connection_string(url) as client:
        yield connection_of(client)


def channel_of(connection: Connection, slot: int) -> bytes:
    namespace = connection.namespace
    return push_channel(namespace.name, namespace.salt(slot), ENTITY, connection.id)


async def publish(connection: Connection, slot: int, payload: bytes) -> int:
    channel = channel_of(connection, slot)
    return int(await connection.transport.command("SPUBLISH", channel, payload, key=channel))


def news_for(receiver: str, prefix: str, source: str = "") -> bytes:
    return f"{receiver} 0123abcd 1700 {prefix} {len(source)}\n{source}".encode()


async def test_a_push_goes_to_the_receiver_that_it_names(connection: Connection) -> None:
    """Receivers share the channel of their slot. A push of another release, or for nobody, changes nothing."""
    one, dead, other, elsewhere = (Receiver() for _ in range(4))
    for slot, receiver, source, listener in ((1, "r1", "", one), (1, "r1", "d", dead), (1, "r2", "", other)):
        connection.pushes.join((slot, ENTITY), receiver, source, listener)
    connection.pushes.join((2, ENTITY), "r1", "", elsewhere)
    await eventually(lambda: all(each.runs for each in (one, dead, other, elsewhere)))
    for payload in (
        b"unreadable",
        news_for("r3", "AAAAAAAA"),
        news_for("r1", "BBBBBBBB"),
        news_for("r1", "C" * 8, "d"),
    ):
        assert await publish(connection, 1, payload) == 1
    await eventually(lambda: dead.prefixes)
    assert (one.prefixes, dead.prefixes, other.prefixes, elsewhere.prefixes) == (["BBBBBBBB"], ["CCCCCCCC"], [], [])


async def test_a_receiver_that_comes_later_knows_of_the_subscription(connection: Connection) -> None:
    """A receiver is told once of a subscription, unless it knew of it. The server process is that of the calls."""
    first, second = Receiver(), Receiver()
    member = connection.pushes.join((1, ENTITY), "r1", "", first)
    assert member.run is None
    await eventually(lambda: first.runs)
    server = connection.transport.server_of(channel_of(connection, 1))
    assert server is not None
    assert first.runs == [server.run_id[:8].decode()] == [member.run]
    assert connection.pushes.hears((1, ENTITY))
    assert connection.pushes.join((1, ENTITY), "r2", "", second).run == member.run
    assert not connection.pushes.hears((2, ENTITY))
    third, fourth, fifth = TellingReceiver(), Receiver(), Receiver()
    connection.pushes.join((2, ENTITY), "r1", "", third)
    third.knows = connection.pushes.join((2, ENTITY), "r2", "", fourth)
    connection.pushes.join((2, ENTITY), "r3", "", fifth)
    await eventually(lambda: fifth.runs)
    assert [len(each.runs) for each in (first, second, third, fourth, fifth)] == [1, 0, 1, 0, 1]


async def test_a_channel_is_open_while_a_receiver_needs_it(connection: Connection) -> None:
    """The one that has left hears nothing more, and one that leaves before the confirmation is not told of it."""
    first, second, third = Receiver(), Receiver(), Receiver()
    member, other = (
        connection.pushes.join((1, ENTITY), "r1", "", first),
        connection.pushes.join((1, ENTITY), "r2", "", second),
    )
    with pytest.raises(ValueError, match="hears this channel already"):
        connection.pushes.join((1, ENTITY), "r1", "", third)
    connection.pushes.join((1, ENTITY), "r3", "", third).leave()
    await eventually(lambda: second.runs)
    member.leave()
    member.leave()
    assert await publish(connection, 1, news_for("r1", "AAAAAAAA")) == 1
    assert await publish(connection, 1, news_for("r2", "BBBBBBBB")) == 1
    await eventually(lambda: second.prefixes)
    other.leave()

    async def is_over() -> bool:
        return not await publish(connection, 1, news_for("r2", "CCCCCCCC"))

    await eventually(is_over)
    connection.pushes.join((1, ENTITY), "r1", "", third)
    await eventually(lambda: third.runs)
    assert not first.prefixes
    assert len(second.prefixes) == len(third.runs) == 1


async def test_each_receiver_learns_that_the_user_may_not_listen(server: LocalServer) -> None:
    """The channel is asked for anew when a receiver joins again."""
    server.ask("ACL", "SETUSER", "deaf", "on", ">secret", "~*", "resetchannels", "+@all")
    async with ServiceBusClient.from_connection_string(server.url.replace("://", "://deaf:secret@")) as client:
        connection, receivers = connection_of(client), [Receiver(), Receiver()]
        for number, receiver in enumerate(receivers):
            connection.pushes.join((1, ENTITY), f"r{number}", "", receiver)
        await eventually(lambda: all(each.errors for each in receivers))
        assert isinstance(receivers[0].errors[0], ServiceBusAuthorizationError)
        server.ask("ACL", "SETUSER", "deaf", "allchannels")
        connection.pushes.join((1, ENTITY), "r0", "", receivers[0])
        await eventually(lambda: receivers[0].runs)
        assert not receivers[1].runs


async def test_a_user_of_another_entity_may_not_listen_to_pushes(server: LocalServer) -> None:
    """Messages travel on the channels. An entity's id is in their names, and its user may use these only."""
    async with ServiceBusClient.from_connection_string(server.url) as client:
        connection = connection_of(client)
        own = channel_of(connection, 1)
        other = own.replace(ENTITY.encode(), b"e2")
        server.ask("ACL", "SETUSER", "one", *entity_rules(connection.namespace.name, [AccessTo(ENTITY)]))
        for command in ("SSUBSCRIBE", "SPUBLISH"):
            words = () if command == "SSUBSCRIBE" else ("x",)
            assert server.ask("ACL", "DRYRUN", "one", command, own.decode(), *words) == "OK"
            said = server.ask("ACL", "DRYRUN", "one", command, other.decode(), *words)
            assert "no permissions" in str(said)
