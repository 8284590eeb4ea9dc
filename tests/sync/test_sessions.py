"""Sessions in threads: accepting sessions, their state and locks, and calls that are interrupted or closed."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from sbredis import (
    NEXT_AVAILABLE_SESSION,
    AutoLockRenewer,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceiver,
    ServiceBusSender,
    ServiceBusSession,
    ServiceBusSessionReceiver,
)
from sbredis.aio import ServiceBusSession as AsyncSession
from sbredis.aio import ServiceBusSessionReceiver as AsyncSessionReceiver
from sbredis.exceptions import AutoLockRenewTimeout, OperationTimeoutError
from sbredis.management import QueueOptions, ServiceBusAdministrationClient
from tests.sync.interruptions import interrupted_when
from tests.waiting import wait_until

SOON = 5.0
NOTHING = 0.1
in_memory = pytest.mark.parametrize("target", ["memory"])  # for tests that take seconds and check threads only


@pytest.fixture
def sender(client: ServiceBusClient) -> Iterator[ServiceBusSender]:
    """A sender to a partitioned queue with sessions."""
    options: QueueOptions = {"requires_session": True, "enable_partitioning": True}
    with client.get_queue_sender("q", create_if_missing=options) as sender:
        yield sender


def send(sender: ServiceBusSender, session: str, *texts: str) -> None:
    sender.send_messages([ServiceBusMessage(text, session_id=session) for text in texts])


def session_of(receiver: ServiceBusReceiver | None) -> ServiceBusSession:
    assert receiver is not None
    assert receiver.session is not None
    return receiver.session


def accepting(receiver: ServiceBusReceiver) -> bool:
    """Return whether a receiver waits for a session."""
    assert isinstance(receiver, ServiceBusSessionReceiver)
    lock = receiver._of_session._accepting
    return lock is not None and lock.locked()


# -- the basics --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_accepting_the_next_session_fails_if_none_is_available(
    url: str, client: ServiceBusClient, sender: ServiceBusSender
) -> None:
    with (
        pytest.raises(OperationTimeoutError),
        client.get_queue_receiver("q", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=NOTHING),
    ):
        pytest.fail("there is none")
    assert client.accept_next_session("q", max_wait_time=NOTHING) is None
    with ServiceBusAdministrationClient(url) as admin:
        admin.create_topic("news")
        admin.create_subscription("news", "all", requires_session=True)
    assert client.accept_next_session("news", "all", max_wait_time=NOTHING) is None
    send(sender, "ann", "one")
    send(sender, "bob", "two")
    names: set[str] = set()
    for _ in range(2):
        receiver = client.accept_next_session("q", max_wait_time=SOON, prefetch_count=5)
        assert receiver is not None
        names.add(session_of(receiver).session_id)
        assert [message.session_id for message in receiver.receive_messages(5)] == [session_of(receiver).session_id]
    assert names == {"ann", "bob"}
    assert client.accept_next_session("q", max_wait_time=NOTHING) is None


@pytest.mark.slow
def test_a_thread_that_waits_for_a_session_is_woken(client: ServiceBusClient, sender: ServiceBusSender) -> None:
    receiver = client.get_queue_receiver("q", session_id=NEXT_AVAILABLE_SESSION)
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(receiver.next)
        wait_until(lambda: accepting(receiver))
        send(sender, "ann", "one")
        assert str(waits.result(60)) == "one"
    assert session_of(receiver).session_id == "ann"


# -- one session object ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_all_threads_get_the_same_session_object_from_a_receiver(
    client: ServiceBusClient, sender: ServiceBusSender
) -> None:
    del sender
    receiver = client.get_queue_receiver("q", session_id="ann")
    with receiver, ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: receiver.session, range(64)))
        assert found == {receiver.session}
        states = list(pool.map(lambda number: session_of(receiver).set_state(str(number)), range(8)))
        assert states == [None] * 8
        assert session_of(receiver).get_state() in {str(number).encode() for number in range(8)}


def test_a_session_keeps_its_client_alive_and_the_client_does_not_keep_the_session(url: str) -> None:
    client = ServiceBusClient(url)
    receiver = client.get_queue_receiver("q", session_id="ann", create_if_missing={"requires_session": True})
    receiver.__enter__()
    thread, session = client._bridge._thread, receiver.session
    assert thread is not None
    assert session is not None
    del client, receiver
    gc.collect()
    session.set_state("still there")
    assert session.get_state() == b"still there"
    with pytest.warns(ResourceWarning, match="was not closed"):
        del session
    thread.join(60)
    assert not thread.is_alive()


# -- renewing ----------------------------------------------------------------------------------------------------------


@in_memory
@pytest.mark.parametrize("held", [True, False])
def test_a_failure_callback_gets_the_session_object_of_the_receiver(
    held: bool, client: ServiceBusClient, sender: ServiceBusSender
) -> None:
    """The callback gets this object even if no code has read ``receiver.session`` before."""
    del sender
    reported: list[tuple[Any, Exception | None]] = []
    with AutoLockRenewer(0.1, lambda *said: reported.append(said)) as renewer:
        receiver = client.get_queue_receiver("q", session_id="ann", auto_lock_renewer=renewer)
        with receiver:
            before = receiver.session if held else None
            wait_until(lambda: reported)
            assert reported[0][0] is session_of(receiver)
            assert before in {None, receiver.session}
            assert reported[0][0].get_state() is None
            assert reported[0][1] is session_of(receiver).auto_renew_error
            assert isinstance(reported[0][1], AutoLockRenewTimeout)


def test_an_object_that_cannot_be_renewed_is_refused(
    url: str, client: ServiceBusClient, sender: ServiceBusSender
) -> None:
    send(sender, "ann", "one")
    with (
        ServiceBusClient(url) as other,
        AutoLockRenewer() as renewer,
        client.get_queue_receiver("q", session_id="ann", max_wait_time=SOON) as receiver,
    ):
        session = session_of(receiver)
        with pytest.raises(ValueError, match="register its session"):
            renewer.register(receiver, receiver.next())
        with pytest.raises(ValueError, match="another client"):
            renewer.register(other.get_queue_receiver("q"), session)
        for wrong in (session._aio, receiver, None):
            with pytest.raises(TypeError, match="a received message or a session"):
                renewer.register(receiver, wrong)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        with pytest.raises(TypeError, match="cannot be mixed"):
            renewer.register(receiver._aio, session)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        receiver.close()
        with pytest.raises(ValueError, match="session has no lock"):
            renewer.register(receiver, session)


# -- interruption and closing ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_interruption_ends_a_wait_for_a_session(
    client: ServiceBusClient, sender: ServiceBusSender, interrupt: Callable[[], None]
) -> None:
    receiver = client.get_queue_receiver("q", session_id=NEXT_AVAILABLE_SESSION)
    with interrupted_when(lambda: accepting(receiver), interrupt), pytest.raises(KeyboardInterrupt), receiver:
        pytest.fail("there is no session")
    waiting = client.get_queue_receiver("q", session_id=NEXT_AVAILABLE_SESSION)
    with interrupted_when(lambda: accepting(waiting), interrupt), pytest.raises(KeyboardInterrupt):
        waiting.next()
    send(sender, "ann", "one")
    with client.get_queue_receiver("q", session_id="ann", max_wait_time=SOON) as another:
        assert another.next().delivery_count == 1


@pytest.mark.slow
def test_an_interruption_ends_the_acceptance_of_the_next_session(
    client: ServiceBusClient, sender: ServiceBusSender, interrupt: Callable[[], None]
) -> None:
    def waits() -> bool:
        locks = [each._accepting for each in list(client._aio._children) if isinstance(each, AsyncSessionReceiver)]
        return any(lock is not None and lock.locked() for lock in locks)

    with interrupted_when(waits, interrupt), pytest.raises(KeyboardInterrupt):
        client.accept_next_session("q")
    assert not waits()
    send(sender, "ann", "one")
    found = client.accept_next_session("q", max_wait_time=SOON)
    assert session_of(found).session_id == "ann"


@pytest.mark.slow
@pytest.mark.parametrize("way", ["with", "accept_next_session"])
def test_a_session_accepted_during_the_interruption_is_released(
    way: str,
    client: ServiceBusClient,
    sender: ServiceBusSender,
    interrupt: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    send(sender, "ann", "one")
    receiver = client.get_queue_receiver("q", session_id=NEXT_AVAILABLE_SESSION)
    name, owner = ("__aenter__", receiver._aio) if way == "with" else (way, client._aio)
    original = getattr(owner, name)
    came: list[AsyncSession] = []

    async def accepts(*arguments: Any, **options: Any) -> Any:
        found = await original(*arguments, **options)
        came.append(found.session)
        interrupt()
        return found

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, accepts)
        with pytest.raises(KeyboardInterrupt):
            receiver.__enter__() if way == "with" else client.accept_next_session("q")
    assert [(session.session_id, session._held.settled) for session in came] == [("ann", True)]
    with client.get_queue_receiver("q", session_id="ann", max_wait_time=SOON) as another:
        assert another.next().delivery_count == 1
