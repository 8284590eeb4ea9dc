"""Sessions: messages, state, locks, and several workers, as with the asynchronous client of azure.servicebus.

Some queues of these scenarios have locks of less than a second, so that the work takes longer than a lock.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from sbredis import NEXT_AVAILABLE_SESSION, ServiceBusMessage, ServiceBusSubQueue  # row: imports
from sbredis.aio import AutoLockRenewer, ServiceBusClient, ServiceBusReceiver, ServiceBusSession  # row: imports
from sbredis.exceptions import (  # row: imports
    OperationTimeoutError,
    ServiceBusError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)
from tests.waiting import eventually


async def given(client: ServiceBusClient, queue_name: str, session_id: str, *texts: str) -> None:
    """Send the messages that the scenarios need."""
    async with client.get_queue_sender(queue_name) as sender:
        await sender.send_messages([ServiceBusMessage(text, session_id=session_id) for text in texts])


def session_of(receiver: ServiceBusReceiver) -> ServiceBusSession:
    """Return the session of a receiver that has one."""
    assert receiver.session is not None
    return receiver.session


def past(moment: datetime) -> bool:
    """Return whether a time has passed."""
    return datetime.now(UTC) > moment


async def one_session(connection_string: str, queue_name: str) -> object:
    """Receive the messages of a session in order, and none of another session."""
    seen: list[tuple[str, str | None]] = []
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        await given(client, queue_name, "ann", "one", "two", "three")
        await given(client, queue_name, "bob", "four")
        receiver = client.get_queue_receiver(queue_name=queue_name, session_id="ann", max_wait_time=0.5)
        async with receiver:
            async for message in receiver:
                seen.append((str(message), message.session_id))
                await receiver.complete_message(message)
            name = session_of(receiver).session_id
    return seen, name


async def state(connection_string: str, queue_name: str) -> object:
    """The state of a session outlives its messages and its receiver."""
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        await given(client, queue_name, "ann", "one")
        async with client.get_queue_receiver(queue_name, session_id="ann", max_wait_time=5) as receiver:
            session = session_of(receiver)
            before = await session.get_state()
            await session.set_state("START")
            for message in await receiver.receive_messages():
                await receiver.complete_message(message)
            during = await session.get_state(timeout=30)
            await session.set_state(b"END")
        async with client.get_queue_receiver(queue_name, session_id="ann") as receiver:
            session = session_of(receiver)
            after = await session.get_state()
            await session.set_state(None)
            cleared = await session.get_state()
    return before, during, after, cleared


async def pool(connection_string: str, queue_name: str) -> object:
    """Several workers each take the next free session until none is left."""
    closed: list[str] = []

    async def work(client: ServiceBusClient, renewer: AutoLockRenewer) -> None:
        while True:
            try:
                async with client.get_queue_receiver(
                    queue_name, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=1
                ) as receiver:
                    session = session_of(receiver)
                    renewer.register(receiver, session)
                    await session.set_state("OPEN")
                    async for message in receiver:
                        await receiver.complete_message(message)
                        if str(message) == "shutdown":
                            await session.set_state("CLOSED")
                            closed.append(session.session_id)
                            break
            except OperationTimeoutError:
                return

    async with ServiceBusClient.from_connection_string(connection_string) as client, AutoLockRenewer() as renewer:
        for number in range(6):
            await given(client, queue_name, f"session {number}", "one", "two", "shutdown")
        await asyncio.gather(*(work(client, renewer) for _ in range(3)))
        states: set[bytes | None] = set()
        for number in range(6):
            async with client.get_queue_receiver(queue_name, session_id=f"session {number}") as receiver:
                states.add(await session_of(receiver).get_state())
    return sorted(closed), states


async def none_available(connection_string: str, queue_name: str) -> object:
    """Accepting a session fails if none is available within the time."""
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        receiver = client.get_queue_receiver(queue_name, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=0.2)
        try:
            await receiver.receive_messages()
        except OperationTimeoutError:
            said = "none"
        else:
            said = "one"
        await receiver.close()
        accepted = await client.accept_next_session(queue_name, max_wait_time=0.2)  # row: accept-next-session
    return said, accepted


async def locked(connection_string: str, queue_name: str) -> object:
    """Only one receiver has the session at a time. The next receiver gets it when the first one is closed."""
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        await given(client, queue_name, "ann", "one")
        async with client.get_queue_receiver(queue_name, session_id="ann", max_wait_time=5) as receiver:
            await receiver.receive_messages()
            try:
                async with client.get_queue_receiver(queue_name, session_id="ann"):
                    said = "two have it"
            except SessionCannotBeLockedError:  # row: session-at-once
                said = "locked"
        async with client.get_queue_receiver(queue_name, session_id="ann", max_wait_time=5) as receiver:
            message = (await receiver.receive_messages())[0]
            count = message.delivery_count - 1  # row: delivery-count
    return said, str(message), count


async def renewed(connection_string: str, queue_name: str) -> object:
    """Renew the lock of a session by hand. The messages of the session have no locks of their own."""
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        await given(client, queue_name, "ann", "long work")
        async with client.get_queue_receiver(queue_name, session_id="ann", max_wait_time=5) as receiver:
            session = session_of(receiver)
            before = session.locked_until_utc
            message = (await receiver.receive_messages())[0]
            until = await session.renew_lock(timeout=30)
            later = until > before, until == session.locked_until_utc, message.locked_until_utc
            await receiver.complete_message(message)
    return later


async def renewed_by_itself(connection_string: str, queue_name: str) -> object:
    """Register a session with a renewer, first by hand and then by an option of the receiver. The work takes longer
    than a lock.
    """
    errors: list[Exception | None] = []
    async with (
        ServiceBusClient.from_connection_string(connection_string) as client,
        AutoLockRenewer(max_lock_renewal_duration=60) as renewer,
    ):
        await given(client, queue_name, "ann", "one", "two")
        async with client.get_queue_receiver(queue_name, session_id="ann", max_wait_time=5) as receiver:
            session = session_of(receiver)
            renewer.register(receiver, session, max_lock_renewal_duration=60)
            message = (await receiver.receive_messages())[0]
            first = session.locked_until_utc
            await eventually(lambda: past(first))
            await receiver.complete_message(message)
            errors.append(session.auto_renew_error)
        async with client.get_queue_receiver(
            queue_name, session_id=NEXT_AVAILABLE_SESSION, auto_lock_renewer=renewer, max_wait_time=5
        ) as receiver:
            session = session_of(receiver)
            message = (await receiver.receive_messages())[0]
            first = session.locked_until_utc
            await eventually(lambda: past(first))
            await receiver.complete_message(message)
            errors.append(session.auto_renew_error)
    return str(message), errors


async def told(connection_string: str, queue_name: str) -> object:
    """When renewal ends, the callback gets the session and the error."""
    said: list[tuple[bool, str]] = []
    async with (
        ServiceBusClient.from_connection_string(connection_string) as client,
        client.get_queue_receiver(queue_name, session_id="ann") as receiver,
    ):
        session = session_of(receiver)

        async def on_lock_renew_failure(renewable: object, error: Exception | None) -> None:
            said.append((renewable is session, type(error).__name__))

        async with AutoLockRenewer(0.1, on_lock_renew_failure=on_lock_renew_failure) as renewer:
            renewer.register(receiver, session)
            await eventually(lambda: said)
        kept = type(session.auto_renew_error).__name__
    return said, kept


async def lost(connection_string: str, queue_name: str) -> object:
    """After a session lock has ended, no message of the session can be settled, and another receiver may accept the
    session.
    """
    failed: list[str] = []
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        await given(client, queue_name, "ann", "too long")
        receiver = client.get_queue_receiver(queue_name, session_id="ann", max_wait_time=5)
        async with receiver:
            message = (await receiver.receive_messages())[0]
            await eventually(lambda: past(session_of(receiver).locked_until_utc))
            try:
                await receiver.complete_message(message)
            except SessionLockLostError:
                failed.append("complete")
            try:
                await session_of(receiver).set_state("late")
            except SessionLockLostError:
                failed.append("state")
        async with client.get_queue_receiver(
            queue_name, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=5
        ) as receiver:
            again = (await receiver.receive_messages())[0]
            count = again.delivery_count - 1  # row: delivery-count
            kept = await session_of(receiver).get_state()
    return failed, str(again), count, kept


async def deferred(connection_string: str, queue_name: str) -> object:
    """Defer messages and receive them again, within the session."""
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        await given(client, queue_name, "ann", "one", "two")
        async with client.get_queue_receiver(queue_name, session_id="ann", max_wait_time=5) as receiver:
            message = (await receiver.receive_messages())[0]
            await receiver.defer_message(message)
            rest = [str(each) for each in await receiver.receive_messages()]
            back = await receiver.receive_deferred_messages([message.sequence_number])
            for each in back:
                await receiver.complete_message(each)
    return rest, [str(each) for each in back]


async def peeked(connection_string: str, queue_name: str) -> object:
    """Peek only at messages of the session, including scheduled ones."""
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        await given(client, queue_name, "ann", "one", "two")
        await given(client, queue_name, "bob", "three")
        async with client.get_queue_sender(queue_name) as sender:
            later = datetime.now(UTC) + timedelta(hours=1)
            await sender.schedule_messages(ServiceBusMessage("later", session_id="ann"), later)
        async with client.get_queue_receiver(queue_name, session_id="ann") as receiver:
            seen = await receiver.peek_messages(max_message_count=10)
    return [(str(message), message.state.name) for message in seen]


async def dead_lettered(connection_string: str, queue_name: str) -> object:
    """Dead-letter one message, and then the rest of the session. The dead-letter queue has no sessions."""
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        await given(client, queue_name, "ann", "one", "two", "three")
        async with client.get_queue_receiver(queue_name, session_id="ann", max_wait_time=5) as receiver:
            message = (await receiver.receive_messages())[0]
            await receiver.dead_letter_message(message, reason="Unreadable")
            await session_of(receiver).dead_letter_messages("Too late")  # row: dead-letter-session
        async with client.get_queue_receiver(
            queue_name, sub_queue=ServiceBusSubQueue.DEAD_LETTER, max_wait_time=5
        ) as dead:
            letters = await dead.receive_messages(max_message_count=3)
    return [(str(letter), letter.session_id, letter.dead_letter_reason) for letter in letters]


async def listed(connection_string: str, queue_name: str) -> object:
    """List the sessions that have messages or a state. Then list those whose state was set after a given time."""
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        before = datetime.now(UTC) - timedelta(minutes=1)
        await given(client, queue_name, "ann", "one")
        await given(client, queue_name, "bob", "two")
        async with client.get_queue_receiver(queue_name, session_id="eve") as receiver:
            await session_of(receiver).set_state("here")
        everybody = [session_id async for session_id in client.list_queue_sessions(queue_name)]
        some = [session_id async for session_id in client.list_queue_sessions(queue_name, state_updated_after=before)]
        paged: list[str] = []
        async for page in client.list_queue_sessions(queue_name, timeout=30).by_page():
            paged += [session_id async for session_id in page]
    return sorted(everybody), some, sorted(paged)  # row: session-lists


async def misused(connection_string: str, queue_name: str) -> object:
    """A queue that requires sessions refuses messages without a session id, and receivers that name no session."""
    said: list[str] = []
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        async with client.get_queue_sender(queue_name) as sender:
            try:
                await sender.send_messages(ServiceBusMessage("nobody's"))
            except ServiceBusError:
                said.append("sent")
            try:
                ServiceBusMessage("two keys", session_id="ann", partition_key="bob")
            except ValueError:
                said.append("keys")
        await given(client, queue_name, "ann", "one")
        try:
            async with client.get_queue_receiver(queue_name, max_wait_time=0.2) as anybody:
                await anybody.receive_messages()
        except ServiceBusError:
            said.append("received")
        async with client.get_queue_receiver(queue_name, session_id="ann", max_wait_time=5) as receiver:
            message = (await receiver.receive_messages())[0]
            try:
                async with AutoLockRenewer() as renewer:
                    renewer.register(receiver, message)
            except ValueError:
                said.append("registered")
    return said
