"""The synchronous scenarios that are written by hand, each with the reason.

``derivation.py`` derives all other synchronous scenarios from asynchronous ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from sbredis import (  # row: imports
    NEXT_AVAILABLE_SESSION,
    AutoLockRenewer,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceiveMode,
    ServiceBusReceiver,
    ServiceBusSender,
    ServiceBusSession,
)
from sbredis.exceptions import OperationTimeoutError  # row: imports

__all__ = ["BY_HAND", "REASONS"]


def two_receivers(connection_string: str, queue_name: str) -> object:
    """Competing consumers: each message goes to one of them."""

    def consume(client: ServiceBusClient) -> list[str]:
        with client.get_queue_receiver(queue_name, max_wait_time=0.5) as receiver:
            seen: list[str] = []
            for message in receiver:
                seen.append(str(message))
                receiver.complete_message(message)
            return seen

    with ServiceBusClient.from_connection_string(connection_string) as client:
        with client.get_queue_sender(queue_name) as sender:
            sender.send_messages([ServiceBusMessage(str(number)) for number in range(20)])
        with ThreadPoolExecutor() as threads:
            shares = list(threads.map(consume, [client, client]))
    return sorted(int(text) for share in shares for text in share)


def many_at_once(connection_string: str, queue_name: str) -> object:
    """Let threads share a sender."""

    def send(sender: ServiceBusSender, number: int) -> None:
        sender.send_messages(ServiceBusMessage(str(number)))

    with ServiceBusClient.from_connection_string(connection_string) as client:
        with client.get_queue_sender(queue_name) as sender, ThreadPoolExecutor(max_workers=5) as threads:
            for done in [threads.submit(send, sender, number) for number in range(20)]:
                done.result()
        with client.get_queue_receiver(
            queue_name, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE, max_wait_time=0.5
        ) as receiver:
            return sorted(int(str(message)) for message in receiver)


def pool(connection_string: str, queue_name: str) -> object:
    """Several workers each take the next free session until none is left."""
    closed: list[str] = []

    def session_of(receiver: ServiceBusReceiver) -> ServiceBusSession:
        assert receiver.session is not None
        return receiver.session

    def work(client: ServiceBusClient, renewer: AutoLockRenewer) -> None:
        while True:
            try:
                with client.get_queue_receiver(
                    queue_name, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=1
                ) as receiver:
                    session = session_of(receiver)
                    renewer.register(receiver, session)
                    session.set_state("OPEN")
                    for message in receiver:
                        receiver.complete_message(message)
                        if str(message) == "shutdown":
                            session.set_state("CLOSED")
                            closed.append(session.session_id)
                            break
            except OperationTimeoutError:
                return

    names = [f"session {number}" for number in range(6)]
    with ServiceBusClient.from_connection_string(connection_string) as client, AutoLockRenewer() as renewer:
        with client.get_queue_sender(queue_name) as sender:
            for name in names:
                texts = ("one", "two", "shutdown")
                sender.send_messages([ServiceBusMessage(text, session_id=name) for text in texts])
        with ThreadPoolExecutor(3) as threads:
            for done in [threads.submit(work, client, renewer) for _ in range(3)]:
                done.result()
        states: set[bytes | None] = set()
        for name in names:
            with client.get_queue_receiver(queue_name, session_id=name) as receiver:
                states.add(session_of(receiver).get_state())
    return sorted(closed), states


BY_HAND: Mapping[str, Mapping[str, Callable[[str, str], object]]] = {
    "receiving": {"two_receivers": two_receivers},
    "sending": {"many_at_once": many_at_once},
    "sessions": {"pool": pool},
}
"""The scenarios of this file, by module and name."""

REASONS = {
    "receiving.two_receivers": "the consumers are threads, and not coroutines that are gathered",
    "sending.many_at_once": "the callers are threads, and not coroutines that are gathered",
    "sessions.pool": "the workers are threads, and not coroutines that are gathered",
}
"""The reason why each of these scenarios is not derived."""
