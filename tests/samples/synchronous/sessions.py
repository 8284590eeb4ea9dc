"""Sessions: their messages, their state, their locks, and whose turn it is; as with the client of azure.servicebus.

The locks of some of these scenarios' queues last for less than a second, so that the work outlives them.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

from sbredis import (  # row: imports
    NEXT_AVAILABLE_SESSION,
    AutoLockRenewer,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceiver,
    ServiceBusSession,
    ServiceBusSubQueue,
)
from sbredis.exceptions import (  # row: imports
    OperationTimeoutError,
    ServiceBusError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)
from tests.waiting import wait_until


def given(client: ServiceBusClient, queue_name: str, session_id: str, *texts: str) -> None:
    """What the scenarios begin with."""
    with client.get_queue_sender(queue_name) as sender:
        sender.send_messages([ServiceBusMessage(text, session_id=session_id) for text in texts])


def session_of(receiver: ServiceBusReceiver) -> ServiceBusSession:
    """The session of a receiver that has one."""
    assert receiver.session is not None
    return receiver.session


def past(moment: datetime) -> bool:
    """Whether a time has come."""
    return datetime.now(UTC) > moment


def one_session(connection_string: str, queue_name: str) -> object:
    """Received in its order, and nothing of another one."""
    seen: list[tuple[str, str | None]] = []
    with ServiceBusClient.from_connection_string(connection_string) as client:
        given(client, queue_name, "ann", "one", "two", "three")
        given(client, queue_name, "bob", "four")
        receiver = client.get_queue_receiver(queue_name=queue_name, session_id="ann", max_wait_time=0.5)
        with receiver:
            for message in receiver:
                seen.append((str(message), message.session_id))
                receiver.complete_message(message)
            name = session_of(receiver).session_id
    return seen, name


def state(connection_string: str, queue_name: str) -> object:
    """What is kept for a session, beyond its messages and its receiver."""
    with ServiceBusClient.from_connection_string(connection_string) as client:
        given(client, queue_name, "ann", "one")
        with client.get_queue_receiver(queue_name, session_id="ann", max_wait_time=5) as receiver:
            session = session_of(receiver)
            before = session.get_state()
            session.set_state("START")
            for message in receiver.receive_messages():
                receiver.complete_message(message)
            during = session.get_state(timeout=30)
            session.set_state(b"END")
        with client.get_queue_receiver(queue_name, session_id="ann") as receiver:
            session = session_of(receiver)
            after = session.get_state()
            session.set_state(None)
            cleared = session.get_state()
    return before, during, after, cleared


def pool(connection_string: str, queue_name: str) -> object:
    """Several workers, each with the next session that is free, until there is none."""
    closed: list[str] = []

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

    with (
        ServiceBusClient.from_connection_string(connection_string) as client,
        AutoLockRenewer() as renewer,
    ):
        for number in range(6):
            given(client, queue_name, f"session {number}", "one", "two", "shutdown")
        with ThreadPoolExecutor(3) as threads:
            for done in [threads.submit(work, client, renewer) for _ in range(3)]:
                done.result()
        states: set[bytes | None] = set()
        for number in range(6):
            with client.get_queue_receiver(queue_name, session_id=f"session {number}") as receiver:
                states.add(session_of(receiver).get_state())
    return sorted(closed), states


def none_available(connection_string: str, queue_name: str) -> object:
    """There is no session to be had within the time."""
    with ServiceBusClient.from_connection_string(connection_string) as client:
        receiver = client.get_queue_receiver(queue_name, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=0.2)
        try:
            receiver.receive_messages()
        except OperationTimeoutError:
            said = "none"
        else:
            said = "one"
        receiver.close()
        accepted = client.accept_next_session(queue_name, max_wait_time=0.2)  # row: accept-next-session
    return said, accepted


def locked(connection_string: str, queue_name: str) -> object:
    """One receiver at a time; the next one when that is closed."""
    with ServiceBusClient.from_connection_string(connection_string) as client:
        given(client, queue_name, "ann", "one")
        with client.get_queue_receiver(queue_name, session_id="ann", max_wait_time=5) as receiver:
            receiver.receive_messages()
            try:
                with client.get_queue_receiver(queue_name, session_id="ann"):
                    said = "two have it"
            except SessionCannotBeLockedError:  # row: session-at-once
                said = "locked"
        with client.get_queue_receiver(queue_name, session_id="ann", max_wait_time=5) as receiver:
            message = receiver.receive_messages()[0]
            count = message.delivery_count - 1  # row: delivery-count
    return said, str(message), count


def renewed(connection_string: str, queue_name: str) -> object:
    """By hand; messages have no locks of their own."""
    with ServiceBusClient.from_connection_string(connection_string) as client:
        given(client, queue_name, "ann", "long work")
        with client.get_queue_receiver(queue_name, session_id="ann", max_wait_time=5) as receiver:
            session = session_of(receiver)
            before = session.locked_until_utc
            message = receiver.receive_messages()[0]
            until = session.renew_lock(timeout=30)
            later = until > before, until == session.locked_until_utc, message.locked_until_utc
            receiver.complete_message(message)
    return later


def renewed_by_itself(connection_string: str, queue_name: str) -> object:
    """Registered with a renewer, by hand and by the receiver: the work outlives the lock."""
    errors: list[Exception | None] = []
    with (
        ServiceBusClient.from_connection_string(connection_string) as client,
        AutoLockRenewer(max_lock_renewal_duration=60) as renewer,
    ):
        given(client, queue_name, "ann", "one", "two")
        with client.get_queue_receiver(queue_name, session_id="ann", max_wait_time=5) as receiver:
            session = session_of(receiver)
            renewer.register(receiver, session, max_lock_renewal_duration=60)
            message = receiver.receive_messages()[0]
            first = session.locked_until_utc
            wait_until(lambda: past(first))
            receiver.complete_message(message)
            errors.append(session.auto_renew_error)
        with client.get_queue_receiver(
            queue_name, session_id=NEXT_AVAILABLE_SESSION, auto_lock_renewer=renewer, max_wait_time=5
        ) as receiver:
            session = session_of(receiver)
            message = receiver.receive_messages()[0]
            first = session.locked_until_utc
            wait_until(lambda: past(first))
            receiver.complete_message(message)
            errors.append(session.auto_renew_error)
    return str(message), errors


def told(connection_string: str, queue_name: str) -> object:
    """Who is renewed no longer is told so, with the session."""
    said: list[tuple[bool, str]] = []
    with (
        ServiceBusClient.from_connection_string(connection_string) as client,
        client.get_queue_receiver(queue_name, session_id="ann") as receiver,
    ):
        session = session_of(receiver)

        def on_lock_renew_failure(renewable: object, error: Exception | None) -> None:
            said.append((renewable is session, type(error).__name__))

        with AutoLockRenewer(0.1, on_lock_renew_failure=on_lock_renew_failure) as renewer:
            renewer.register(receiver, session)
            wait_until(lambda: said)
        kept = type(session.auto_renew_error).__name__
    return said, kept


def lost(connection_string: str, queue_name: str) -> object:
    """A lock that ended: nothing of the session is settled any more, and another receiver may have it."""
    failed: list[str] = []
    with ServiceBusClient.from_connection_string(connection_string) as client:
        given(client, queue_name, "ann", "too long")
        receiver = client.get_queue_receiver(queue_name, session_id="ann", max_wait_time=5)
        with receiver:
            message = receiver.receive_messages()[0]
            wait_until(lambda: past(session_of(receiver).locked_until_utc))
            try:
                receiver.complete_message(message)
            except SessionLockLostError:
                failed.append("complete")
            try:
                session_of(receiver).set_state("late")
            except SessionLockLostError:
                failed.append("state")
        with client.get_queue_receiver(queue_name, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=5) as receiver:
            again = receiver.receive_messages()[0]
            count = again.delivery_count - 1  # row: delivery-count
            kept = session_of(receiver).get_state()
    return failed, str(again), count, kept


def deferred(connection_string: str, queue_name: str) -> object:
    """Set aside and got back, within the session."""
    with ServiceBusClient.from_connection_string(connection_string) as client:
        given(client, queue_name, "ann", "one", "two")
        with client.get_queue_receiver(queue_name, session_id="ann", max_wait_time=5) as receiver:
            message = receiver.receive_messages()[0]
            receiver.defer_message(message)
            rest = [str(each) for each in receiver.receive_messages()]
            back = receiver.receive_deferred_messages([message.sequence_number])
            for each in back:
                receiver.complete_message(each)
    return rest, [str(each) for each in back]


def peeked(connection_string: str, queue_name: str) -> object:
    """Only what is in the session; what is scheduled for it as well."""
    with ServiceBusClient.from_connection_string(connection_string) as client:
        given(client, queue_name, "ann", "one", "two")
        given(client, queue_name, "bob", "three")
        with client.get_queue_sender(queue_name) as sender:
            later = datetime.now(UTC) + timedelta(hours=1)
            sender.schedule_messages(ServiceBusMessage("later", session_id="ann"), later)
        with client.get_queue_receiver(queue_name, session_id="ann") as receiver:
            seen = receiver.peek_messages(max_message_count=10)
    return [(str(message), message.state.name) for message in seen]


def dead_lettered(connection_string: str, queue_name: str) -> object:
    """One message, and then the rest of the session; a dead-letter queue has no sessions."""
    with ServiceBusClient.from_connection_string(connection_string) as client:
        given(client, queue_name, "ann", "one", "two", "three")
        with client.get_queue_receiver(queue_name, session_id="ann", max_wait_time=5) as receiver:
            message = receiver.receive_messages()[0]
            receiver.dead_letter_message(message, reason="Unreadable")
            session_of(receiver).dead_letter_messages("Too late")  # row: dead-letter-session
        with client.get_queue_receiver(queue_name, sub_queue=ServiceBusSubQueue.DEAD_LETTER, max_wait_time=5) as dead:
            letters = dead.receive_messages(max_message_count=3)
    return [(str(letter), letter.session_id, letter.dead_letter_reason) for letter in letters]


def listed(connection_string: str, queue_name: str) -> object:
    """Those that have messages or a state; those whose state was set after a time."""
    with ServiceBusClient.from_connection_string(connection_string) as client:
        before = datetime.now(UTC) - timedelta(minutes=1)
        given(client, queue_name, "ann", "one")
        given(client, queue_name, "bob", "two")
        with client.get_queue_receiver(queue_name, session_id="eve") as receiver:
            session_of(receiver).set_state("here")
        everybody = list(client.list_queue_sessions(queue_name))
        some = list(client.list_queue_sessions(queue_name, state_updated_after=before))
        paged: list[str] = []
        for page in client.list_queue_sessions(queue_name, timeout=30).by_page():
            paged += list(page)
    return sorted(everybody), some, sorted(paged)  # row: session-lists


def misused(connection_string: str, queue_name: str) -> object:
    """Who requires sessions takes no message without one, and gives none to who names no session."""
    said: list[str] = []
    with ServiceBusClient.from_connection_string(connection_string) as client:
        with client.get_queue_sender(queue_name) as sender:
            try:
                sender.send_messages(ServiceBusMessage("nobody's"))
            except ServiceBusError:
                said.append("sent")
            try:
                ServiceBusMessage("two keys", session_id="ann", partition_key="bob")
            except ValueError:
                said.append("keys")
        given(client, queue_name, "ann", "one")
        try:
            with client.get_queue_receiver(queue_name, max_wait_time=0.2) as anybody:
                anybody.receive_messages()
        except ServiceBusError:
            said.append("received")
        with client.get_queue_receiver(queue_name, session_id="ann", max_wait_time=5) as receiver:
            message = receiver.receive_messages()[0]
            try:
                with AutoLockRenewer() as renewer:
                    renewer.register(receiver, message)
            except ValueError:
                said.append("registered")
    return said
