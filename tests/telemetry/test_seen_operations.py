"""The spans, metrics and log lines of a client's operations, mainly of failed ones."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

from sbredis import exceptions
from sbredis.aio import AutoLockRenewer, ServiceBusClient, ServiceBusReceiver, ServiceBusSender
from sbredis.exceptions import (
    MessageLockLostError,
    MessagingEntityNotFoundError,
    ServiceBusConnectionError,
    ServiceBusError,
    SessionLockLostError,
)
from sbredis.model import ServiceBusMessage, ServiceBusReceivedMessage
from sbredis.receiving import NoSessionError
from sbredis.telemetry import _telemetry, named
from sbredis.telemetry._log_text import MOST_NAMED
from sbredis.telemetry._tracing import error_type
from tests.aio.queues import HandClock, in_memory, queue_at
from tests.telemetry.telemetry_listener import Listener, attributes, context_of, linked, listener, traceparent
from tests.waiting import eventually

__all__ = ["listener"]

SECRET = "hunter2"
NOBODY = "redis://user:hunter2@127.0.0.1:1/0"
"""A URL with a port at which no server listens."""
DURATION = "messaging.client.operation.duration"


@pytest.fixture
def seen(listener: Listener) -> Listener:
    """Return a listener for spans and metrics."""
    listener.set_up_tracing()
    listener.set_up_metrics()
    return listener


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """Capture everything that sbredis logs."""
    with caplog.at_level(logging.DEBUG, "sbredis"):
        yield caplog


def lines(log: pytest.LogCaptureFixture) -> list[str]:
    """Return the log lines of operations without their durations."""
    said = [record.getMessage() for record in log.records if record.name == "sbredis.operations"]
    return [re.sub(r"(in|after) [\d.]+ ms", r"\1 … ms", line) for line in said]


def failed(seen: Listener, name: str, error: str) -> ReadableSpan:
    """Check the metric of the failed span of this name, and return the span."""
    (span,) = [span for span in seen.all_spans if span.name == name]
    assert span.status.status_code is StatusCode.ERROR
    assert attributes(span)["error.type"] == error
    (event,) = span.events
    assert event.name == "exception"
    assert str((event.attributes or {})["exception.type"]).endswith(error)
    assert counted(seen, name.split(maxsplit=1)[0], error) == 1
    assert SECRET not in seen.everything()
    return span


def counted(seen: Listener, operation: str, error: str | None) -> int:
    """Return the number of operations that ended with this error, from the standard metric."""
    return sum(
        int(getattr(point, "count", 0))
        for point in seen.points.get(DURATION, [])
        if (point.attributes or {})["messaging.operation.name"] == operation
        and (point.attributes or {}).get("error.type") == error
    )


# -- missing entities and unreachable servers --------------------------------------------------------------------------

Use = Callable[[ServiceBusClient], Awaitable[object]]


async def opened(end: ServiceBusSender | ServiceBusReceiver) -> None:
    async with end:
        pass


USES: dict[str, tuple[str, Use]] = {
    "sender": ("open", lambda client: opened(client.get_queue_sender("nowhere"))),
    "receiver": ("open", lambda client: opened(client.get_queue_receiver("nowhere"))),
    "one": ("send", lambda client: client.get_queue_sender("nowhere").send_messages(secret(), timeout=60)),
    "several": ("send", lambda client: client.get_queue_sender("nowhere").send_messages([secret()] * 2, timeout=60)),
    "stream": ("send", lambda client: client.get_queue_sender("nowhere").send_stream([secret()], timeout=60)),
    "cancel": (
        "cancel_scheduled",
        lambda client: client.get_queue_sender("nowhere").cancel_scheduled_messages([1, 2], timeout=60),
    ),
    "receive": ("receive", lambda client: client.get_queue_receiver("nowhere").receive_messages(max_wait_time=1)),
    "deferred": (
        "receive_deferred",
        lambda client: client.get_queue_receiver("nowhere").receive_deferred_messages([7], timeout=60),
    ),
    "peek": ("peek", lambda client: client.get_queue_receiver("nowhere").peek_messages(timeout=60)),
    "purge": ("delete", lambda client: client.get_queue_receiver("nowhere").purge_messages(timeout=60)),
}
each_use = pytest.mark.parametrize(("name", "use"), USES.values(), ids=USES)


def secret() -> ServiceBusMessage:
    return ServiceBusMessage(SECRET)


@in_memory
@each_use
async def test_a_missing_entity_causes_a_failed_span_and_a_counted_metric(
    url: str, seen: Listener, log: pytest.LogCaptureFixture, name: str, use: Use
) -> None:
    async with ServiceBusClient(url) as client:
        with pytest.raises(MessagingEntityNotFoundError) as caught:
            await use(client)
    span = failed(seen, f"{name} nowhere", "MessagingEntityNotFoundError")
    assert attributes(span)["sbredis.tracking_id"] == caught.value.tracking_id
    (line,) = [line for line in lines(log) if line.startswith(f"{name} nowhere: ")]
    assert line.endswith(
        f"failed after … ms: MessagingEntityNotFoundError, outcome refused, tracking id {caught.value.tracking_id}"
    )


@each_use
async def test_an_unreachable_server_causes_a_failed_span_and_a_counted_metric(
    seen: Listener, log: pytest.LogCaptureFixture, name: str, use: Use
) -> None:
    client = ServiceBusClient(NOBODY, connect_timeout=0.1)
    try:
        with pytest.raises(ServiceBusError) as caught:
            await use(client)
    finally:
        await client.close()
    kind = type(caught.value).__name__
    assert isinstance(caught.value, ServiceBusConnectionError)
    span = failed(seen, f"{name} nowhere", kind)
    assert (attributes(span)["server.address"], attributes(span)["server.port"]) == ("127.0.0.1", 1)
    assert any(line.startswith(f"{name} nowhere: ") and kind in line for line in lines(log))
    assert SECRET not in log.text


async def test_a_failed_connection_causes_a_failed_span_without_a_destination(seen: Listener) -> None:
    with pytest.raises(ServiceBusConnectionError):
        async with ServiceBusClient(NOBODY, connect_timeout=0.1):
            pass
    span = failed(seen, "open 127.0.0.1:1", "ServiceBusConnectionError")
    assert "messaging.destination.name" not in attributes(span)


# -- lost locks --------------------------------------------------------------------------------------------------------

Settle = Callable[[ServiceBusReceiver, ServiceBusReceivedMessage], Awaitable[object]]
SETTLEMENTS: dict[str, tuple[str, Settle]] = {
    "one": ("complete", ServiceBusReceiver.complete_message),
    "several": ("complete", lambda receiver, message: receiver.complete_messages([message])),
    "abandon": ("abandon", ServiceBusReceiver.abandon_message),
    "release": ("release", ServiceBusReceiver.release_message),
    "defer": ("defer", ServiceBusReceiver.defer_message),
    "dead letter": ("dead_letter", lambda receiver, message: receiver.dead_letter_message(message, SECRET, SECRET)),
    "renew": ("renew_message_lock", ServiceBusReceiver.renew_message_lock),
}


@pytest.mark.parametrize(("name", "settle"), SETTLEMENTS.values(), ids=SETTLEMENTS)
@pytest.mark.parametrize("lapsed", [True, False], ids=["by our clock", "as the server says"])
@in_memory
async def test_a_lost_lock_causes_a_failed_span_and_a_counted_metric(  # noqa: PLR0917 -- what is tried, and where
    url: str, seen: Listener, log: pytest.LogCaptureFixture, name: str, settle: Settle, lapsed: bool
) -> None:
    clock = HandClock()
    async with queue_at(url, clock=clock) as queue:
        async with queue.client.get_queue_sender("q") as sender:
            await sender.send_messages(ServiceBusMessage(SECRET, message_id="m-1"))
        receiver = queue.receiver()
        (message,) = await receiver.receive_messages(1, 60)
        number, token = message.sequence_number, str(message.lock_token)
        if lapsed:
            clock.move(61)
        else:
            await queue.lose(message)
        with pytest.raises(MessageLockLostError) as caught:
            await settle(receiver, message)
        left = await queue.counts()
    assert left.active + left.locked == 1
    span = failed(seen, f"{name} q", "MessageLockLostError")
    assert attributes(span)["messaging.message.id"] == "m-1"
    assert linked(span) == [traceparent(seen.spans["send q"])]
    assert (
        f"{name} q: 1 message ({number} 'm-1') failed after … ms: MessageLockLostError, outcome "
        f"{(caught.value.outcome or exceptions.Outcome.UNKNOWN).value}, tracking id {caught.value.tracking_id}"
        in lines(log)
    )
    assert token not in log.text + seen.everything()


@in_memory
async def test_a_lost_session_causes_failed_spans_and_counted_metrics(url: str, seen: Listener) -> None:
    clock = HandClock()
    async with queue_at(url, clock=clock, sessions=True) as queue:
        async with queue.client.get_queue_sender("q") as sender:
            await sender.send_messages(ServiceBusMessage(SECRET, session_id="s"))
        async with queue.client.get_queue_receiver("q", session_id="s") as receiver:
            (message,) = await receiver.receive_messages(1, 60)
            session = receiver.session
            assert session is not None
            clock.move(61)
            for operation in (session.renew_lock, session.get_state, session.dead_letter_messages):
                with pytest.raises(SessionLockLostError):
                    await operation()
            with pytest.raises(SessionLockLostError):
                await session.set_state(SECRET)
            with pytest.raises(SessionLockLostError):
                await receiver.abandon_message(message)
    for name in ("renew_session_lock", "get_session_state", "set_session_state", "dead_letter_session", "abandon"):
        failed(seen, f"{name} q", "SessionLockLostError")


# -- results that are not failures -------------------------------------------------------------------------------------


@in_memory
async def test_the_absence_of_a_free_session_is_not_recorded_as_a_failure(
    url: str, seen: Listener, log: pytest.LogCaptureFixture
) -> None:
    async with queue_at(url, sessions=True) as queue:
        assert await queue.client.accept_next_session("q", max_wait_time=0.01) is None
    assert {span.status.status_code for span in seen.all_spans} == {StatusCode.UNSET}
    assert "accept_session q" in seen.spans
    assert counted(seen, "accept_session", None) == 1
    assert "accept_session q: found nothing after … ms" in lines(log)


def every_error(kind: type[ServiceBusError] = ServiceBusError) -> Iterator[type[ServiceBusError]]:
    for below in kind.__subclasses__():
        yield below
        yield from every_error(below)


def test_the_error_type_attribute_is_always_a_public_name() -> None:
    """This also holds for an error of a private subclass, such as the error for a session that was not found."""
    found = [kind for kind in every_error() if kind.__module__.startswith("sbredis.")]
    assert NoSessionError in found
    assert {error_type(kind.__new__(kind)) for kind in found} <= set(exceptions.__all__)


# -- streams -----------------------------------------------------------------------------------------------------------


@in_memory
async def test_each_message_of_a_stream_has_its_own_span_metric_and_log_line(
    url: str, seen: Listener, log: pytest.LogCaptureFixture
) -> None:
    async with queue_at(url) as queue:
        sender = queue.client.get_queue_sender("q")
        source = [ServiceBusMessage(SECRET, message_id=f"m-{number}") for number in range(3)]
        source.insert(1, ServiceBusMessage(b"x" * 2_000_000, message_id="large"))
        results = [result async for result in sender.send_stream(source, errors="return")]
        received = await queue.receiver().receive_messages(3, 60)
    sent = [span for span in seen.all_spans if span.name == "send q"]
    by_id = {attributes(span)["messaging.message.id"]: span for span in sent}
    assert sorted(by_id) == ["large", "m-0", "m-1", "m-2"]
    assert by_id["large"].status.status_code is StatusCode.ERROR
    assert {span.kind for span in sent} == {SpanKind.PRODUCER}
    assert {str((message.application_properties or {})["traceparent"]) for message in received} == {
        traceparent(by_id[name]) for name in by_id if name != "large"
    }
    assert counted(seen, "send", "MessageSizeExceededError") == 1
    assert counted(seen, "send", None) == 3
    numbers = [result.sequence_number for result in results if result.sequence_number is not None]
    for name, number in zip(("m-0", "m-1", "m-2"), numbers, strict=True):
        assert f"send q: 1 message ({number} '{name}') in … ms" in lines(log)


@in_memory
async def test_each_message_of_a_batch_object_carries_a_trace_context(url: str, seen: Listener) -> None:
    async with queue_at(url) as queue, queue.client.get_queue_sender("q") as sender:
        batch = await sender.create_message_batch()
        for number in range(2):
            batch.add_message(ServiceBusMessage(SECRET, message_id=f"m-{number}"))
        await sender.send_messages(batch)
        received = await queue.receiver().receive_messages(2, 60)
    created = [span for span in seen.all_spans if span.name == "create q"]
    assert [attributes(span)["messaging.message.id"] for span in created] == ["m-0", "m-1"]
    carried = [(message.application_properties or {}).get("traceparent") for message in received]
    assert carried == [traceparent(span) for span in created] == linked(seen.spans["send q"])


# -- processing --------------------------------------------------------------------------------------------------------


@in_memory
async def test_the_processing_span_continues_the_trace_of_its_message(url: str, seen: Listener) -> None:
    async with queue_at(url) as queue, queue.client.get_queue_sender("q") as sender:
        await sender.send_messages(ServiceBusMessage(SECRET, message_id="m-1"))
        receiver = queue.receiver()
        (message,) = await receiver.receive_messages(1, 60)
        with tracer().start_as_current_span("loop"), receiver.process_span(message):
            with tracer().start_as_current_span("query"):
                pass
            await receiver.complete_message(message)
    spans = seen.spans
    sent, processed, loop = spans["send q"], spans["process q"], spans["loop"]
    assert processed.kind is SpanKind.CONSUMER
    assert attributes(processed)["messaging.message.id"] == "m-1"
    assert parent_of(processed) == context_of(sent).span_id
    assert context_of(processed).trace_id == context_of(sent).trace_id
    assert linked(processed) == [traceparent(sent), traceparent(loop)]
    assert {parent_of(spans[name]) for name in ("query", "complete q")} == {context_of(processed).span_id}
    (point,) = seen.points["messaging.process.duration"]
    assert (point.attributes or {})["messaging.destination.name"] == "q"


@in_memory
async def test_a_program_can_ask_whether_spans_are_recorded(url: str, listener: Listener) -> None:
    async with queue_at(url) as queue:
        await queue.send("a")
        receiver = queue.receiver()
        (message,) = await receiver.receive_messages(1, 60)
        assert not receiver.traces
        assert receiver.process_span(message) is receiver.process_span(message)
        listener.set_up_tracing()
        await eventually(lambda: receiver.traces)
        with receiver.process_span(message):
            pass
        assert [span.name for span in listener.all_spans] == ["process q"]


@in_memory
async def test_the_processing_span_can_be_a_child_of_the_current_span(url: str, seen: Listener) -> None:
    async with queue_at(url) as queue, queue.client.get_queue_sender("q") as sender:
        await sender.send_messages(ServiceBusMessage(SECRET))
        receiver = queue.receiver()
        (message,) = await receiver.receive_messages(1, 60)
        with tracer().start_as_current_span("loop"), receiver.process_span(message, continue_trace=False):
            pass
    processed = seen.spans["process q"]
    assert parent_of(processed) == context_of(seen.spans["loop"]).span_id
    assert linked(processed) == [traceparent(seen.spans["send q"])]


@in_memory
async def test_the_processing_span_names_the_dead_letter_queue_or_subscription(url: str, seen: Listener) -> None:
    async with queue_at(url) as queue:
        await queue.send("a")
        receiver = queue.receiver()
        (message,) = await receiver.receive_messages(1, 60)
        await receiver.dead_letter_message(message)
        dead = queue.receiver(sub_queue="deadletter")
        (letter,) = await dead.receive_messages(1, 60)
        await dead.close()
        with dead.process_span(letter):  # a closed receiver is enough for this
            pass
        with queue.client.get_subscription_receiver("t", "s").process_span(letter):
            pass
    assert "process q/$DeadLetterQueue" in seen.spans
    assert attributes(seen.spans["process t"])["messaging.destination.subscription.name"] == "s"


@in_memory
async def test_a_processing_span_is_refused_for_a_message_that_was_not_received(url: str) -> None:
    async with queue_at(url) as queue:
        wrong: Any = ServiceBusMessage(b"")
        with pytest.raises(TypeError, match=r"^process_span\(\) takes .* received, not ServiceBusMessage\."):
            queue.receiver().process_span(wrong)


def tracer() -> trace.Tracer:
    return trace.get_tracer("application")


def parent_of(span: ReadableSpan) -> int | None:
    parent: trace.SpanContext | None = span.parent
    return None if parent is None else parent.span_id


# -- the log -----------------------------------------------------------------------------------------------------------


async def use_all(url: str, name: str) -> tuple[list[str], list[str]]:
    """Run each operation once. Return the expected log lines, and the secrets that no line may show."""
    secrets: list[str] = [SECRET]
    async with ServiceBusClient(url) as client:
        async with client.get_queue_sender(name, create_if_missing=True) as sender:
            messages = [
                ServiceBusMessage(SECRET, message_id=f"m-{number}", application_properties={"x": SECRET})
                for number in range(5)
            ]
            await sender.send_messages(messages[0])
            await sender.send_messages(messages[1:])
            (later,) = await sender.schedule_messages(ServiceBusMessage(SECRET, message_id="later"), soon())
            await sender.cancel_scheduled_messages(later)
        async with client.get_queue_receiver(name) as receiver:
            found = await receiver.receive_messages(5, 60)
            secrets += [str(message.lock_token) for message in found]
            first, second, third, fourth, fifth = (message.sequence_number for message in found)
            await receiver.complete_message(found[0])
            await receiver.abandon_message(found[1], delay=100)
            await receiver.defer_message(found[2])
            await receiver.dead_letter_message(found[3], SECRET, SECRET)
            await receiver.renew_message_lock(found[4])
            await receiver.complete_messages(found[4:])
            (deferred,) = await receiver.receive_deferred_messages(third)
            secrets.append(str(deferred.lock_token))
            await receiver.complete_message(deferred)
            await receiver.peek_messages(10, sequence_number=1)
            await receiver.purge_messages()
        async with client.get_queue_receiver(name, sub_queue="deadletter") as dead:
            (letter,) = await dead.receive_messages(1, 60)
            await dead.complete_message(letter)
        expected = [
            f"open {name}: done in … ms",
            f"send {name}: 1 message ({first} 'm-0') in … ms",
            f"send {name}: 4 messages ({second} 'm-1', {third} 'm-2', {fourth} 'm-3', {fifth} 'm-4') in … ms",
            f"schedule {name}: 1 message ({later} 'later') in … ms",
            f"cancel_scheduled {name}: 1 message ({later}) in … ms",
            f"open {name}: done in … ms",
            (
                f"receive {name}: 5 messages ({first} 'm-0', {second} 'm-1', {third} 'm-2', {fourth} 'm-3', "
                f"{fifth} 'm-4') in … ms"
            ),
            f"complete {name}: 1 message ({first} 'm-0') in … ms",
            f"abandon {name}: 1 message ({second} 'm-1') in … ms",
            f"defer {name}: 1 message ({third} 'm-2') in … ms",
            f"dead_letter {name}: 1 message ({fourth} 'm-3') in … ms",
            f"renew_message_lock {name}: 1 message ({fifth} 'm-4') in … ms",
            f"complete {name}: 1 message ({fifth} 'm-4') in … ms",
            f"receive_deferred {name}: 1 message ({third} 'm-2') in … ms",
            f"complete {name}: 1 message ({third} 'm-2') in … ms",
            f"peek {name}: 1 message ({second} 'm-1') in … ms",
            f"delete {name}: 1 message in … ms",
            f"open {name}/$DeadLetterQueue: done in … ms",
            f"receive {name}/$DeadLetterQueue: 1 message ({letter.sequence_number} 'm-3') in … ms",
            f"complete {name}/$DeadLetterQueue: 1 message ({letter.sequence_number} 'm-3') in … ms",
        ]
    return expected, secrets


def soon() -> datetime:
    return datetime.now(UTC) + timedelta(hours=1)


async def test_each_operation_is_logged_with_its_entity_count_and_ids(url: str, log: pytest.LogCaptureFixture) -> None:
    expected, secrets = await use_all(url, "q")
    found = lines(log)
    assert re.fullmatch(r"open.*: done in … ms", found.pop(0))  # this line says that the client was opened
    assert found == expected
    assert [secret for secret in secrets if secret in log.text] == []


@pytest.mark.slow
@in_memory
async def test_spans_and_metrics_contain_no_message_body_and_no_token(url: str, seen: Listener) -> None:
    _, secrets = await use_all(url, "q")
    assert len(seen.all_spans) > 20
    assert [secret for secret in secrets if secret in seen.everything()] == []


@in_memory
async def test_no_span_or_metric_is_built_without_a_listener(
    url: str, listener: Listener, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def made(*_: Any, **__: Any) -> Any:
        raise AssertionError("an operation is watched that nobody wants to see")

    monkeypatch.setattr(_telemetry, "_LiveObservation", made)
    with caplog.at_level(logging.INFO, "sbredis"):
        await use_all(url, "q")
    assert listener.all_spans == ()


class Message:
    def __init__(self, number: int, name: object) -> None:
        self.sequence_number = number
        self.message_id = name


@pytest.mark.parametrize(
    ("messages", "numbers", "count", "text"),
    [
        ([], [], None, "0 messages"),
        ([Message(1, "a")], [], None, "1 message (1 'a')"),
        ([Message(1, "a"), Message(2, None)], [], None, "2 messages (1 'a', 2)"),
        ([Message(1, 7), Message(2, b"\xff")], [], None, "2 messages (1 '7', 2 \"b'\\\\xff'\")"),
        ([Message(1, "a\nb")], [], None, "1 message (1 'a\\nb')"),
        ([Message(1, "x" * 100)], [], None, f"1 message (1 '{'x' * 39}…')"),
        ([], [4, 5], None, "2 messages (4, 5)"),
        ([], [], 12345, "12,345 messages"),
        ([object()], [], None, "1 message (without an id)"),
    ],
)
def test_log_lines_name_messages_by_sequence_number_and_id(
    messages: Any, numbers: Any, count: int | None, text: str
) -> None:
    assert named(messages, numbers, count) == text


def test_a_log_line_names_only_the_first_of_many_messages() -> None:
    text = named([Message(number, f"m-{number}") for number in range(5_000)])
    assert text.startswith("5,000 messages (0 'm-0', ")
    assert text.endswith(f"{MOST_NAMED - 1} 'm-{MOST_NAMED - 1}', …)")


# -- renewals that stop ------------------------------------------------------------------------------------------------


def warnings(log: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in log.records if record.levelno == logging.WARNING]


@in_memory
async def test_a_renewal_with_a_lost_lock_is_logged_and_counted(
    url: str, seen: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    clock = HandClock()
    async with queue_at(url, clock=clock) as queue, AutoLockRenewer() as renewer:
        numbers = await queue.send(*"abc", at=-1)
        receiver = queue.receiver(auto_lock_renewer=renewer)
        messages = await receiver.receive_messages(3, 60)
        ids = [message.message_id for message in messages]
        with caplog.at_level(logging.WARNING, "sbredis"):
            for message in messages[:2]:
                await queue.lose(message)
            clock.move(41)
            await eventually(lambda: bool(warnings(caplog)))
        (warning,) = warnings(caplog)
    assert warning.startswith(
        f"q: the lock on 2 messages ({numbers[0]} {ids[0]!r}, {numbers[1]} {ids[1]!r}) is not renewed any longer: "
    )
    span = failed(seen, "renew_message_lock q", "MessageLockLostError")
    assert attributes(span)["messaging.batch.message_count"] == 2


@in_memory
@pytest.mark.parametrize("session", [None, "s"])
async def test_a_renewal_that_reaches_its_maximum_duration_is_logged_and_counted(
    url: str, seen: Listener, caplog: pytest.LogCaptureFixture, session: str | None
) -> None:
    clock = HandClock()
    async with (
        queue_at(url, clock=clock, sessions=session is not None) as queue,
        AutoLockRenewer(max_lock_renewal_duration=30) as renewer,
        queue.client.get_queue_sender("q") as sender,
    ):
        await sender.send_messages(ServiceBusMessage("a", message_id="m", session_id=session))
        async with queue.client.get_queue_receiver("q", session_id=session, auto_lock_renewer=renewer) as receiver:
            (message,) = await receiver.receive_messages(1, 60)
            with caplog.at_level(logging.WARNING, "sbredis"):
                clock.move(31)
                await eventually(lambda: bool(warnings(caplog)))
        (warning,) = warnings(caplog)
    what = f"1 message ({message.sequence_number} 'm')" if session is None else "the session 's'"
    assert warning.startswith(f"q: the lock on {what} is not renewed any longer: The lock was renewed for 30 s")
    failed(seen, f"renew_{'message' if session is None else 'session'}_lock q", "AutoLockRenewTimeout")
