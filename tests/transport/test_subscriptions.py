"""Subscriptions to sharded channels: each listener gets its messages, and a notice of each gap."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from sbredis.exceptions import OperationTimeoutError, Outcome, ServiceBusAuthorizationError, ServiceBusError
from sbredis.servers import LocalCluster, LocalServer
from sbredis.transport import Transport, WireLimits, open_transport
from tests.transport.ears import Ear
from tests.waiting import eventually

pytestmark = pytest.mark.everywhere("each target has a transport of its own")

on_real_servers = pytest.mark.parametrize("target", ["server", "cluster"], indirect=True)


async def publish(transport: Transport, channel: bytes, payload: bytes) -> int:
    """Publish in the slot of the channel; return the number of receiving connections."""
    return int(await transport.command("SPUBLISH", channel, payload, key=channel))


async def test_published_messages_arrive_in_order(url: str) -> None:
    ear = Ear()
    async with await open_transport(url) as transport:
        await transport.subscribe(b"c", ear)
        payloads = [b"%d" % number for number in range(20)] + [b"", b"\x00\r\n\xff", b"x" * 100_000]
        for payload in payloads:
            await publish(transport, b"c", payload)
        await eventually(lambda: ear.heard == payloads)
        assert ear.gaps == 0


async def test_each_listener_hears_a_channel_until_its_own_subscription_is_closed(url: str) -> None:
    first, second = Ear(), Ear()
    async with await open_transport(url) as transport:
        subscription = await transport.subscribe(b"c", first)
        await transport.subscribe(b"c", second)
        await publish(transport, b"c", b"1")
        await eventually(lambda: first.heard == second.heard == [b"1"])
        subscription.close()
        subscription.close()
        await publish(transport, b"c", b"2")
        await eventually(lambda: second.heard == [b"1", b"2"])
        assert first.heard == [b"1"]
        assert first.gaps == second.gaps == 0


@on_real_servers
async def test_closing_the_last_subscription_of_a_channel_ends_it_on_the_server(url: str) -> None:
    async with await open_transport(url) as transport:
        subscriptions = [await transport.subscribe(name, Ear()) for name in (b"{c}1", b"{c}2")]
        assert await publish(transport, b"{c}1", b"") == 1
        subscriptions[0].close()
        await eventually(lambda: has_no_listener(transport, b"{c}1"))
        assert await publish(transport, b"{c}2", b"") == 1
        subscriptions[1].close()
        await eventually(lambda: has_no_listener(transport, b"{c}2"))


async def test_many_channels_are_heard_without_waiting_for_each(url: str) -> None:
    """Each listener is told once that it hears its channel. One that is closed in the same turn hears nothing."""
    names = [b"many%d" % number for number in range(300)]
    ears = [Ear() for _ in names]
    async with await open_transport(url) as transport:
        subscriptions = [transport.listen(name, ear, never) for name, ear in zip(names, ears, strict=True)]
        subscriptions[7].close()
        await eventually(lambda: [ear.gaps for ear in ears] == [int(place != 7) for place in range(300)])
        for name in names:
            await publish(transport, name, name)
        await eventually(lambda: ears[-1].heard)
        assert [ear.heard for ear in ears] == [[] if place == 7 else [name] for place, name in enumerate(names)]
        assert await publish(transport, names[7], b"") == 0
        late = Ear()
        transport.listen(names[0], late, never)  # of a channel that is heard already
        await eventually(lambda: late.gaps == 1)
        assert ears[0].gaps == 1


def never(error: ServiceBusError) -> None:
    raise AssertionError(error)


async def has_no_listener(transport: Transport, channel: bytes) -> bool:
    """Return whether the server knows no subscriber of a channel."""
    return await publish(transport, channel, b"") == 0


async def test_a_listener_that_subscribes_again_gets_messages_again(url: str) -> None:
    ear = Ear()
    async with await open_transport(url) as transport:
        for number in range(3):
            subscription = await transport.subscribe(b"c", ear)
            await publish(transport, b"c", b"%d" % number)
            await eventually(lambda: len(ear.heard) == number + 1)  # noqa: B023  # awaited in its own turn
            subscription.close()
        assert ear.heard == [b"0", b"1", b"2"]


async def test_subscribing_again_immediately_after_closing_causes_no_gap(url: str) -> None:
    """The client did not reconnect, so it missed no message while a listener was subscribed."""
    ear = Ear()
    async with await open_transport(url, limits=WireLimits(subscribe_again=0)) as transport:
        await transport.subscribe(b"{c}other", Ear())
        subscription = await transport.subscribe(b"{c}", Ear())
        subscription.close()
        await transport.subscribe(b"{c}", ear)
        await publish(transport, b"{c}", b"x")
        await eventually(lambda: ear.heard)
        await transport.subscribe(b"{c}third", Ear())  # the server has answered all earlier requests by now
        assert ear.gaps == 0


@on_real_servers
async def test_after_a_lost_connection_the_listener_is_subscribed_again_and_notified_of_the_gap(
    url: str, request: pytest.FixtureRequest
) -> None:
    target = request.getfixturevalue("target")
    running: LocalServer | LocalCluster = request.getfixturevalue(target)
    servers = running.masters if isinstance(running, LocalCluster) else [running]
    ears = [Ear() for _ in range(6)]
    async with await open_transport(url) as transport:
        for number, ear in enumerate(ears):
            await transport.subscribe(b"c%d" % number, ear)
        for server in servers:
            server.ask("CLIENT", "KILL", "TYPE", "pubsub")
        await eventually(lambda: all(ear.gaps for ear in ears))
        for number, ear in enumerate(ears):
            await publish(transport, b"c%d" % number, b"after")
            await eventually(lambda: ear.heard == [b"after"])  # noqa: B023  # awaited in its own turn
            assert ear.gaps == 1


async def test_a_listener_that_raises_does_not_affect_others(url: str, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Ear):
        def message(self, payload: bytes) -> None:
            super().message(payload)
            raise ZeroDivisionError("a defect of a listener")

    broken, ear = Broken(), Ear()
    async with await open_transport(url) as transport:
        await transport.subscribe(b"c", broken)
        await transport.subscribe(b"c", ear)
        await publish(transport, b"c", b"1")
        await publish(transport, b"c", b"2")
        await eventually(lambda: ear.heard == broken.heard == [b"1", b"2"])
    assert "a defect of a listener" in caplog.text


async def test_a_listener_may_close_its_subscription_while_it_is_called(url: str) -> None:
    class Once(Ear):
        def message(self, payload: bytes) -> None:
            super().message(payload)
            once.close()

    hearer, ear = Once(), Ear()
    async with await open_transport(url) as transport:
        once = await transport.subscribe(b"c", hearer)
        await transport.subscribe(b"c", ear)
        await publish(transport, b"c", b"1")
        await publish(transport, b"c", b"2")
        await eventually(lambda: ear.heard == [b"1", b"2"])
        assert hearer.heard == [b"1"]


# -- refusals and losses -----------------------------------------------------------------------------------------------


@pytest.fixture
def own_server(binary: str | None) -> Iterator[LocalServer]:
    """A server that a test may stop, with a user who may listen to one channel only."""
    config = {"user": "deaf on nopass ~* +@all resetchannels &open"}
    with LocalServer(binary=binary, config=config) as server:
        yield server


async def test_a_subscription_without_the_right_to_the_channel_is_refused(own_server: LocalServer) -> None:
    url = own_server.url.replace("redis://", "redis://deaf:x@")
    async with await open_transport(url) as transport:
        ear = Ear()
        await transport.subscribe(b"open", ear)
        with pytest.raises(ServiceBusAuthorizationError, match="NOPERM"):
            await transport.subscribe(b"closed", Ear())
        await publish(transport, b"open", b"1")
        await eventually(lambda: ear.heard == [b"1"])
        assert ear.gaps == 0


async def test_one_refused_channel_of_many_disturbs_no_other(own_server: LocalServer) -> None:
    url = own_server.url.replace("redis://", "redis://deaf:x@")
    refusals: list[ServiceBusError] = []
    ear, deaf = Ear(), Ear()
    async with await open_transport(url) as transport:
        transport.listen(b"closed", deaf, refusals.append)
        transport.listen(b"open", ear, never)
        await eventually(lambda: refusals)
        assert isinstance(refusals[0], ServiceBusAuthorizationError)
        await eventually(lambda: ear.gaps == 1)
        await publish(transport, b"open", b"1")
        await eventually(lambda: ear.heard == [b"1"])
        assert (len(refusals), deaf.gaps) == (1, 0)


async def test_a_subscription_that_is_not_confirmed_in_time_fails(own_server: LocalServer) -> None:
    async with await open_transport(own_server.url) as transport:
        own_server.pause()
        with pytest.raises(OperationTimeoutError, match="'c' was not confirmed within") as caught:
            await transport.subscribe(b"c", Ear(), timeout=0.05)
        own_server.resume()
        assert caught.value.outcome is Outcome.NEVER_SENT
        await eventually(lambda: has_no_listener(transport, b"c"))


async def test_a_caller_that_is_cancelled_before_the_confirmation_leaves_no_subscription(
    own_server: LocalServer,
) -> None:
    async with await open_transport(own_server.url) as transport:
        own_server.pause()
        waiting = asyncio.create_task(transport.subscribe(b"c", Ear()))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        own_server.resume()
        ear = Ear()
        await transport.subscribe(b"other", ear)
        assert await publish(transport, b"c", b"") == 0
