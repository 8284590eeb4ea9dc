"""The spans and metrics of a client's operations. Without a listener, no work is done for them."""

from __future__ import annotations

import asyncio
import logging
import sys
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, get_args
from uuid import UUID

import pytest
from opentelemetry import trace
from opentelemetry.metrics import NoOpMeterProvider, _internal
from opentelemetry.sdk.metrics.export import HistogramDataPoint, NumberDataPoint
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.semconv._incubating.attributes import messaging_attributes
from opentelemetry.semconv._incubating.metrics import messaging_metrics
from opentelemetry.semconv.schemas import Schemas
from opentelemetry.trace import NoOpTracerProvider, SpanKind, StatusCode

from sbredis.exceptions import MessageLockLostError, Outcome, ServiceBusError
from sbredis.model import ServiceBusMessage, ServiceBusReceivedMessage
from sbredis.telemetry import Telemetry, _metrics, named
from sbredis.telemetry._telemetry import OperationName
from sbredis.telemetry._tracing import look_at
from tests.children import run_program
from tests.telemetry.telemetry_listener import Listener, attributes, context_of, linked, listener, traceparent
from tools.repository import ROOT

__all__ = ["listener"]
SECRET = "hunter2"
ASKED = {"OTEL_PYTHON_TRACER_PROVIDER": "sdk_tracer_provider"}
REMOTE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
ENQUEUED = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)


@dataclass
class Received:
    """A message as a receiver gets it from the broker."""

    application_properties: dict[Any, Any] | None = None
    message_id: str | None = "m-1"
    correlation_id: str | None = None
    delivery_count: int = 1
    enqueued_time_utc: datetime | None = ENQUEUED
    body: bytes = SECRET.encode()


class Clock:
    """A clock whose time the test sets."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def telemetry(listener: Listener) -> Telemetry:
    """Return the telemetry of a client with tracing and metrics."""
    listener.set_up_tracing()
    listener.set_up_metrics()
    return Telemetry("shop", "redis.example", 6379)


def own_span(name: str) -> AbstractContextManager[object]:
    """Start a span, as an application does."""
    return trace.get_tracer("application").start_as_current_span(name)


def listened_to(telemetry: Telemetry) -> bool:
    return telemetry.active


def use_everything(telemetry: Telemetry) -> list[ServiceBusMessage]:
    """Record one operation of each kind, as a client does. Return the sent messages."""
    sent = [ServiceBusMessage(b"a"), ServiceBusMessage(b"b")]
    telemetry.create("orders", sent[:1])
    with telemetry.operation("send", "orders", messages=sent):
        pass
    with telemetry.operation("receive", "orders") as receiving:
        receiving.received([Received()])
    with telemetry.operation("complete", "orders", messages=[Received()]), telemetry.processing("orders", Received()):
        pass
    return sent


# -- listeners ---------------------------------------------------------------------------------------------------------


def python(code: str, **environment: str) -> str:
    """Run code in a fresh interpreter and return its output."""
    prelude = """
import sys
from sbredis.telemetry import Telemetry
class Message:
    application_properties = None
def use(telemetry):
    message = Message()
    telemetry.create("q", [message])
    with telemetry.operation("send", "q", messages=[message]):
        pass
    with telemetry.operation("receive", "q") as receiving:
        receiving.received([message])
    with telemetry.processing("q", message):
        pass
    return telemetry.active, message.application_properties
def loaded():
    return any(name.partition(".")[0] == "opentelemetry" for name in sys.modules if sys.modules[name])
"""
    done = run_program(sys.executable, "-c", f"import os; os.environ.update({environment!r}){prelude}{code}", cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


DISABLED = """
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider
trace.set_tracer_provider(TracerProvider())
metrics.set_meter_provider(MeterProvider())
"""
INACTIVE: dict[str, tuple[str, dict[str, str], bool]] = {
    "no provider is set": ("from sbredis.aio import ServiceBusClient", {}, False),
    "no API": ("sys.modules['opentelemetry'] = None", {}, False),
    "a provider without the API": ("sys.modules['opentelemetry'] = None", ASKED, False),
    "no SDK": ("sys.modules['opentelemetry.sdk'] = None; from opentelemetry import metrics, trace", {}, True),
    "a missing provider": ("import logging; logging.disable()", {"OTEL_PYTHON_TRACER_PROVIDER": "no_such"}, True),
    "a disabled SDK": (DISABLED, {"OTEL_SDK_DISABLED": "true"}, True),
}
"""What a program does first, its environment, and whether OpenTelemetry is then imported."""


@pytest.mark.parametrize(("code", "environment", "imported"), INACTIVE.values(), ids=INACTIVE)
def test_telemetry_is_inactive_and_messages_are_unchanged(
    code: str, environment: dict[str, str], imported: bool
) -> None:
    shown = python(f"{code}\nprint(use(Telemetry('n', None, None)), loaded())", **environment)
    assert shown == f"(False, None) {imported}"


def test_a_provider_named_by_the_environment_is_used() -> None:
    code = "active, properties = use(Telemetry('n', None, None)); print(active, sorted(properties))"
    assert python(code, **ASKED) == "True ['Diagnostic-Id', 'traceparent']"


def test_no_op_providers_leave_telemetry_inactive(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", NoOpTracerProvider())
    monkeypatch.setattr(_internal, "_METER_PROVIDER", NoOpMeterProvider())
    telemetry = Telemetry("shop", None, None)
    assert not telemetry.active
    assert [message.application_properties for message in use_everything(telemetry)] == [None, None]
    assert listener.all_spans == ()


def test_an_sdk_that_is_set_up_later_takes_effect_within_a_second(listener: Listener) -> None:
    clock = Clock()
    telemetry = Telemetry("shop", None, None, clock=clock)
    use_everything(telemetry)
    assert not listened_to(telemetry)
    listener.set_up_tracing()
    clock.now += 0.5
    assert not listened_to(telemetry)
    clock.now += 0.5
    assert listened_to(telemetry)
    use_everything(telemetry)
    assert set(listener.spans) == {
        "create orders",
        "send orders",
        "receive orders",
        "complete orders",
        "process orders",
    }
    assert listener.points == {}
    listener.set_up_metrics()
    clock.now += 1
    use_everything(telemetry)
    assert len(listener.points) == 4


def test_messages_are_unchanged_if_only_metrics_are_recorded(listener: Listener) -> None:
    listener.set_up_metrics()
    telemetry = Telemetry("shop", None, None)
    assert telemetry.active
    assert [message.application_properties for message in use_everything(telemetry)] == [None, None]
    assert len(listener.points) == 4
    assert listener.all_spans == ()


# -- sending -----------------------------------------------------------------------------------------------------------


def test_the_span_of_a_single_send_is_the_creation_context(telemetry: Telemetry, listener: Listener) -> None:
    message = ServiceBusMessage(SECRET, message_id="m-1", correlation_id="c-1")
    with telemetry.operation("send", "orders", messages=[message]):
        seen_inside = dict(message.application_properties or {})  # at this point a client encodes the message
    (span,) = listener.all_spans
    assert (span.name, span.kind, span.parent) == ("send orders", SpanKind.PRODUCER, None)
    assert attributes(span) == {
        "messaging.system": "servicebus",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
        "messaging.message.id": "m-1",
        "messaging.message.conversation_id": "c-1",
        "server.address": "redis.example",
        "server.port": 6379,
        "sbredis.namespace": "shop",
    }
    assert seen_inside == {"traceparent": traceparent(span), "Diagnostic-Id": traceparent(span)}
    assert span.status.status_code is StatusCode.UNSET


def test_an_id_that_a_message_gets_when_it_is_sent_is_recorded(telemetry: Telemetry, listener: Listener) -> None:
    message = ServiceBusMessage(b"")
    with telemetry.operation("send", "orders", messages=[message]):
        message.message_id = "given"
    assert attributes(listener.spans["send orders"])["messaging.message.id"] == "given"


def test_the_span_of_a_batch_links_to_the_creation_context_of_each_message(
    telemetry: Telemetry, listener: Listener
) -> None:
    messages = [ServiceBusMessage(b"", message_id=f"m-{number}") for number in range(3)]
    with own_span("request"), telemetry.operation("schedule", "orders", messages=messages):
        pass
    *created, sending, request = listener.all_spans
    assert [(span.name, span.kind) for span in created] == [("create orders", SpanKind.PRODUCER)] * 3
    assert [attributes(span)["messaging.message.id"] for span in created] == ["m-0", "m-1", "m-2"]
    assert {attributes(span)["messaging.operation.type"] for span in created} == {"create"}
    assert {span.parent.span_id for span in (*created, sending) if span.parent} == {context_of(request).span_id}
    carried = [(message.application_properties or {})["traceparent"] for message in messages]
    assert carried == [traceparent(span) for span in created] == linked(sending)
    assert (sending.name, sending.kind) == ("schedule orders", SpanKind.CLIENT)
    assert attributes(sending)["messaging.batch.message_count"] == 3
    assert "messaging.message.id" not in attributes(sending)
    assert [dict(link.attributes or {}) for link in sending.links] == [
        {"messaging.message.id": f"m-{number}"} for number in range(3)
    ]


@pytest.mark.parametrize("key", ["traceparent", "Diagnostic-Id"])
def test_an_existing_context_of_a_message_is_kept_and_the_span_links_to_it(
    telemetry: Telemetry, listener: Listener, key: str
) -> None:
    own = ServiceBusMessage(b"", application_properties={key: REMOTE})
    telemetry.create("orders", [own])
    with telemetry.operation("send", "orders", messages=[own]):
        pass
    with telemetry.operation("send", "orders", messages=[own, ServiceBusMessage(b"")]):
        pass
    assert own.application_properties == {key: REMOTE}
    single, created, both = listener.all_spans
    assert (single.kind, linked(single)) == (SpanKind.CLIENT, [REMOTE])
    assert linked(both) == [REMOTE, traceparent(created)]


def test_messages_that_are_already_encoded_keep_their_context(telemetry: Telemetry, listener: Listener) -> None:
    early, late = ServiceBusMessage(b"", application_properties={"mine": 1}), ServiceBusMessage(b"")
    telemetry.create("orders", [early])
    with telemetry.operation("send", "orders", messages=[early, late], encoded=True):
        pass
    with telemetry.operation("send", "orders", messages=[late], encoded=True):
        pass
    created = listener.spans["create orders"]
    assert early.application_properties == {
        "mine": 1,
        "traceparent": traceparent(created),
        "Diagnostic-Id": traceparent(created),
    }
    assert late.application_properties is None
    _, both, single = listener.all_spans
    assert linked(both) == [traceparent(created)]
    assert (single.kind, linked(single)) == (SpanKind.CLIENT, [])


def test_a_message_carries_the_trace_state(telemetry: Telemetry) -> None:
    context = trace.SpanContext(1, 2, is_remote=True, trace_state=trace.TraceState([("vendor", "x")]))
    message = ServiceBusMessage(b"")
    with trace.use_span(trace.NonRecordingSpan(context)), telemetry.operation("send", "q", messages=[message]):
        pass
    assert (message.application_properties or {})["tracestate"] == "vendor=x"


def test_the_context_of_an_unsampled_trace_is_marked_as_unsampled(listener: Listener) -> None:
    listener.set_up_tracing(sampler=ALWAYS_OFF)
    (first, _) = use_everything(Telemetry("shop", None, None))
    flags = int(str((first.application_properties or {})["traceparent"])[-2:], 16)
    assert flags & trace.TraceFlags.SAMPLED == 0
    assert listener.all_spans == ()


# -- receiving and settling --------------------------------------------------------------------------------------------


def test_the_spans_of_receiving_settling_and_processing_link_to_the_send(
    telemetry: Telemetry, listener: Listener
) -> None:
    """One client writes the context into a message, and another client reads it."""
    sent = ServiceBusMessage(b"")
    with telemetry.operation("send", "orders", messages=[sent]):
        pass
    received = Received(dict(sent.application_properties or {}), correlation_id="c", delivery_count=2)
    with telemetry.operation("receive", "orders") as receiving:
        receiving.received([received])
    with telemetry.operation("dead_letter", "orders", messages=[received]):
        pass
    with telemetry.processing("orders", received):
        pass
    origin = traceparent(listener.spans["send orders"])
    facts = {
        "messaging.message.id": "m-1",
        "messaging.message.conversation_id": "c",
        "messaging.servicebus.message.delivery_count": 2,
        "messaging.servicebus.message.enqueued_time": int(ENQUEUED.timestamp()),
    }
    for name, kind, operation_type in (
        ("receive orders", SpanKind.CLIENT, "receive"),
        ("dead_letter orders", SpanKind.CLIENT, "settle"),
        ("process orders", SpanKind.CONSUMER, "process"),
    ):
        span = listener.spans[name]
        assert (span.kind, linked(span), span.parent) == (kind, [origin], None)
        assert attributes(span)["messaging.operation.type"] == operation_type
        assert facts.items() <= attributes(span).items()
        assert "messaging.batch.message_count" not in attributes(span)
    settled = attributes(listener.spans["dead_letter orders"])
    assert settled["messaging.servicebus.disposition_status"] == "dead_letter"


def test_each_link_of_a_batch_names_its_message(telemetry: Telemetry, listener: Listener) -> None:
    second = REMOTE.replace("b7ad", "c7ad")
    messages = [
        Received({"traceparent": REMOTE}),
        Received({b"Diagnostic-Id": second.encode()}, "m-2"),  # in the format that Azure's clients use
        Received(None, "m-3"),
    ]
    with telemetry.operation("receive", "orders") as receiving:
        receiving.received(messages)
    span = listener.spans["receive orders"]
    assert attributes(span)["messaging.batch.message_count"] == 3
    assert linked(span) == [REMOTE, second]
    assert [(link.attributes or {})["messaging.message.id"] for link in span.links] == ["m-1", "m-2"]


def test_an_empty_receive_records_zero_messages_and_counts_nothing(telemetry: Telemetry, listener: Listener) -> None:
    with telemetry.operation("receive", "orders") as receiving:
        receiving.received([])
    assert attributes(listener.spans["receive orders"])["messaging.batch.message_count"] == 0
    assert "messaging.client.consumed.messages" not in listener.points


@pytest.mark.parametrize(
    "properties",
    [
        {"traceparent": "nonsense"},
        {"traceparent": 7},
        {"traceparent": b"\xff\xfe"},
        {"traceparent": "00-" + "0" * 32 + "-" + "0" * 16 + "-01"},
        {"Diagnostic-Id": "|older.form.1"},
        {"tracestate": "vendor=x"},
        {"traceparent": "x" * 1000},
    ],
)
def test_no_span_links_to_an_invalid_context(
    telemetry: Telemetry, listener: Listener, properties: dict[str, Any]
) -> None:
    with telemetry.operation("peek", "orders") as peeking:
        peeking.received([Received(properties)])
    assert listener.spans["peek orders"].links == ()


def test_a_message_that_cannot_be_read_does_not_prevent_links_to_the_others(
    telemetry: Telemetry, listener: Listener
) -> None:
    class Unreadable:
        @property
        def application_properties(self) -> Any:
            raise ValueError(SECRET)

    with telemetry.operation("receive", "orders") as receiving:
        receiving.received([Unreadable(), Received({"traceparent": REMOTE})])
    assert linked(listener.spans["receive orders"]) == [REMOTE]


def test_the_requested_number_is_not_recorded_as_the_received_number(telemetry: Telemetry, listener: Listener) -> None:
    with telemetry.operation("receive_deferred", "orders", count=5) as receiving:
        receiving.received([Received()])
    assert "messaging.batch.message_count" not in attributes(listener.spans["receive_deferred orders"])


def test_received_messages_have_the_properties_that_telemetry_reads() -> None:
    looked_at = {field.name for field in fields(Received)}
    assert looked_at <= set(dir(ServiceBusReceivedMessage))


def test_an_operation_can_record_a_message_count_without_messages(telemetry: Telemetry, listener: Listener) -> None:
    with telemetry.operation("cancel_scheduled", "orders", count=3):
        pass
    span = listener.spans["cancel_scheduled orders"]
    assert attributes(span)["messaging.batch.message_count"] == 3
    assert "messaging.operation.type" not in attributes(span)


@pytest.mark.parametrize(
    ("path", "name", "subscription"),
    [
        ("billing/orders", "billing/orders", None),
        ("orders/$DeadLetterQueue", "orders/$DeadLetterQueue", None),
        ("events/subscriptions/audit", "events", "audit"),
        ("a/events/Subscriptions/audit/$DeadLetterQueue", "a/events", "audit/$DeadLetterQueue"),
    ],
)
def test_a_subscription_is_recorded_in_an_attribute_separate_from_its_topic(
    telemetry: Telemetry, listener: Listener, path: str, name: str, subscription: str | None
) -> None:
    with telemetry.operation("receive", path):
        pass
    (span,) = listener.all_spans
    assert span.name == f"receive {name}"
    assert attributes(span)["messaging.destination.name"] == name
    assert attributes(span).get("messaging.destination.subscription.name") == subscription


# -- processing --------------------------------------------------------------------------------------------------------


def test_the_processing_span_of_a_message_without_a_context_uses_the_current_span(
    telemetry: Telemetry, listener: Listener
) -> None:
    with own_span("loop"), telemetry.processing("orders", Received(), continues_trace=True):
        pass
    processing, loop = listener.all_spans
    assert (processing.parent, processing.links) == (context_of(loop), ())


# -- errors ------------------------------------------------------------------------------------------------------------


def test_an_error_is_recorded_with_its_tracking_id(telemetry: Telemetry, listener: Listener) -> None:
    error = MessageLockLostError(SECRET, outcome=Outcome.REFUSED, tracking_id="t-1")
    with pytest.raises(MessageLockLostError), telemetry.operation("complete", "orders"):
        raise error
    span = listener.spans["complete orders"]
    assert (
        attributes(span).items()
        >= {"error.type": "MessageLockLostError", "sbredis.tracking_id": "t-1", "sbredis.outcome": "refused"}.items()
    )
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "MessageLockLostError")
    (point,) = listener.points["messaging.client.operation.duration"]
    assert (point.attributes or {})["error.type"] == "MessageLockLostError"
    assert "sbredis.tracking_id" not in (point.attributes or {})  # every new value would create a new time series


def test_a_failed_send_is_counted_with_its_error(telemetry: Telemetry, listener: Listener) -> None:
    messages = [ServiceBusMessage(b""), ServiceBusMessage(b"")]
    with pytest.raises(ServiceBusError), telemetry.operation("send", "orders", messages=messages):
        raise ServiceBusError
    (point,) = listener.points["messaging.client.sent.messages"]
    assert isinstance(point, NumberDataPoint)
    assert (point.value, (point.attributes or {})["error.type"]) == (2, "ServiceBusError")


def test_an_error_of_the_application_is_recorded_with_its_class_only(telemetry: Telemetry, listener: Listener) -> None:
    with pytest.raises(ValueError, match=SECRET), telemetry.processing("orders", Received()):
        raise ValueError(f"cannot do {SECRET}")
    span = listener.spans["process orders"]
    assert attributes(span)["error.type"] == "ValueError"
    assert span.status.status_code is StatusCode.ERROR
    (event,) = span.events
    assert event.name == "exception"
    assert (event.attributes or {})["exception.type"] == "ValueError"
    assert f"in {test_an_error_of_the_application_is_recorded_with_its_class_only.__name__}" in str(
        (event.attributes or {})["exception.stacktrace"]
    )
    (point,) = listener.points["messaging.process.duration"]
    assert (point.attributes or {})["error.type"] == "ValueError"
    assert SECRET not in listener.everything()


def test_a_cancellation_is_recorded_with_an_error_type_but_no_error_status(
    telemetry: Telemetry, listener: Listener
) -> None:
    with pytest.raises(asyncio.CancelledError), telemetry.operation("receive", "orders"):
        raise asyncio.CancelledError
    span = listener.spans["receive orders"]
    assert attributes(span)["error.type"] == "CancelledError"
    assert span.status.status_code is StatusCode.UNSET


def test_operations_in_different_tasks_are_not_mixed_up(
    telemetry: Telemetry, listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    async def receive(name: str, mine: asyncio.Event, others: asyncio.Event) -> None:
        with telemetry.operation("receive", name):
            mine.set()
            await others.wait()
            with telemetry.operation("complete", name):
                pass

    async def both() -> None:
        first, second = asyncio.Event(), asyncio.Event()
        await asyncio.gather(receive("a", first, second), receive("b", second, first))

    with caplog.at_level(logging.WARNING):
        asyncio.run(both())
    for name in "ab":
        assert listener.spans[f"complete {name}"].parent == context_of(listener.spans[f"receive {name}"])
    assert caplog.records == []


# -- metrics -----------------------------------------------------------------------------------------------------------


def test_the_metrics_follow_the_conventions_of_opentelemetry(telemetry: Telemetry, listener: Listener) -> None:
    use_everything(telemetry)
    points = listener.points
    assert {
        name: [(point.attributes or {})["messaging.operation.name"] for point in found]
        for name, found in points.items()
    } == {
        "messaging.client.operation.duration": ["send", "receive", "complete"],
        "messaging.client.sent.messages": ["send"],
        "messaging.client.consumed.messages": ["receive"],
        "messaging.process.duration": ["process"],
    }
    common = {
        "messaging.system": "servicebus",
        "messaging.destination.name": "orders",
        "server.address": "redis.example",
        "server.port": 6379,
        "sbredis.namespace": "shop",
    }
    (sent,), (consumed,) = points["messaging.client.sent.messages"], points["messaging.client.consumed.messages"]
    assert isinstance(sent, NumberDataPoint)
    assert isinstance(consumed, NumberDataPoint)
    assert (sent.value, dict(sent.attributes or {})) == (2, common | {"messaging.operation.name": "send"})
    assert (consumed.value, dict(consumed.attributes or {})) == (1, common | {"messaging.operation.name": "receive"})
    first = points["messaging.client.operation.duration"][0]
    assert isinstance(first, HistogramDataPoint)
    assert dict(first.attributes or {}) == common | {
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
    }
    assert (first.count, first.explicit_bounds[0], first.explicit_bounds[-1]) == (1, 0.005, 10)


def test_a_measured_value_refers_to_its_span(telemetry: Telemetry, listener: Listener) -> None:
    with telemetry.operation("receive", "orders"):
        pass
    (point,) = listener.points["messaging.client.operation.duration"]
    assert [exemplar.span_id for exemplar in point.exemplars] == [context_of(listener.spans["receive orders"]).span_id]


def test_an_old_api_without_advice_on_buckets_is_supported() -> None:
    class Old:
        def create_histogram(self, name: str, unit: str, description: str) -> tuple[str, str, str]:
            return name, unit, description

    made: Any = _metrics.histogram(Old(), "n", "d")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert made == ("n", "s", "d")


# -- rules for all telemetry -------------------------------------------------------------------------------------------


def test_telemetry_shows_nothing_of_a_message_except_its_ids(telemetry: Telemetry, listener: Listener) -> None:
    sent = [
        ServiceBusMessage(SECRET, application_properties={"password": SECRET}, subject=SECRET, to=SECRET)
        for _ in range(2)
    ]
    received = [Received({"password": SECRET, "traceparent": REMOTE}), Received({"x": SECRET})]
    with telemetry.operation("send", "q", messages=sent[:1]), telemetry.operation("schedule", "q", messages=sent):
        pass
    with telemetry.operation("receive", "q") as receiving:
        receiving.received(received)
    with pytest.raises(ServiceBusError), telemetry.operation("complete", "q", messages=received):
        raise ServiceBusError(SECRET)
    with pytest.raises(RuntimeError), telemetry.processing("q", received[0]):
        raise RuntimeError(SECRET)
    assert len(listener.all_spans) == 6
    assert SECRET not in listener.everything()


@pytest.mark.parametrize(
    "address",
    [
        f"redis://:{SECRET}@redis.example:6379/0",
        f"user:{SECRET}@redis.example",
        f"unix:///run/redis.sock?password={SECRET}",
        f"/run/redis.sock?password={SECRET}",
        f"memory://{SECRET}",
        "",
        None,
    ],
)
def test_an_address_that_may_contain_a_password_is_not_recorded(listener: Listener, address: str | None) -> None:
    listener.set_up_tracing()
    listener.set_up_metrics()
    use_everything(Telemetry("shop", address, 6379))
    assert SECRET not in listener.everything()
    assert not any(name.startswith("server.") for span in listener.all_spans for name in attributes(span))


def test_a_unix_socket_is_an_address_without_a_port(listener: Listener) -> None:
    listener.set_up_tracing()
    use_everything(Telemetry("shop", "/run/redis.sock", 0))
    known = attributes(listener.spans["receive orders"])
    assert known["server.address"] == "/run/redis.sock"
    assert "server.port" not in known


def test_attribute_names_follow_the_conventions_of_opentelemetry(telemetry: Telemetry, listener: Listener) -> None:
    """The test takes the names from the semantic-conventions package with the schema that the spans name."""
    names = {value for value in vars(messaging_attributes).values() if isinstance(value, str)}
    for name in operation_names():
        with telemetry.operation(name, "t/subscriptions/s", messages=[Received(), Received()]):
            pass
    use_everything(telemetry)
    used = {name for span in listener.all_spans for name in attributes(span)}
    used |= {name for span in listener.all_spans for link in span.links for name in link.attributes or {}}
    assert {name for name in used if name.startswith("messaging.")} <= names
    assert {name.partition(".")[0] for name in used} == {"messaging", "server", "sbredis"}
    types = {item.value for item in messaging_attributes.MessagingOperationTypeValues}
    assert {attributes(span).get("messaging.operation.type") for span in listener.all_spans} <= types | {None}
    assert set(listener.points) <= {value for value in vars(messaging_metrics).values() if isinstance(value, str)}
    assert {span.instrumentation_scope.schema_url for span in listener.all_spans if span.instrumentation_scope} <= {
        schema.value for schema in Schemas
    }


def operation_names() -> list[OperationName]:
    found: list[Any] = []
    pending: list[Any] = [OperationName]
    while pending:
        part = pending.pop()
        if isinstance(part, str):
            found.append(part)
        pending.extend(get_args(part))
    return found


@pytest.mark.parametrize(
    ("given", "shown"),
    [("m", "m"), (7, "7"), (UUID(int=1), str(UUID(int=1))), (b"bytes", "bytes"), (b"\xff", "b'\\xff'")],
)
def test_logs_and_spans_contain_the_text_of_an_id(given: Any, shown: str) -> None:
    message = ServiceBusMessage("x", message_id=given, correlation_id=given)
    assert named([message]) == f"1 message ({shown!r})"
    facts = look_at(message).facts
    assert facts["messaging.message.id"] == facts["messaging.message.conversation_id"] == shown
