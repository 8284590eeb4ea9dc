"""OpenTelemetry with synchronous clients: the spans belong to the threads of the callers."""

from __future__ import annotations

import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind

from sbredis import ServiceBusClient, ServiceBusMessage
from tests.aio.queues import in_memory
from tests.telemetry.telemetry_listener import Listener, context_of, linked, listener, traceparent

__all__ = ["listener"]


@in_memory
def test_the_processing_span_is_current_in_the_thread_of_the_handler(listener: Listener, url: str) -> None:
    listener.set_up_tracing()
    tracer = trace.get_tracer("application")
    with ServiceBusClient(url) as client:
        with tracer.start_as_current_span("checkout"), client.get_queue_sender("q", create_if_missing=True) as sender:
            sender.send_messages(ServiceBusMessage("a", message_id="m-1"))
        with client.get_queue_receiver("q", max_wait_time=20) as receiver:
            message = next(receiver)
            with receiver.process_span(message):
                with tracer.start_as_current_span("charge"):
                    pass
                receiver.complete_message(message)
            with pytest.raises(TypeError, match="not str"):
                receiver.process_span("a")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    spans = listener.spans
    sent, processed = spans["send q"], spans["process q"]
    assert processed.kind is SpanKind.CONSUMER
    assert linked(processed) == [traceparent(sent)]
    assert {context_of(spans[name]).trace_id for name in ("send q", "process q", "charge", "complete q")} == {
        context_of(spans["checkout"]).trace_id
    }
    for name in ("charge", "complete q"):
        parent = spans[name].parent
        assert parent is not None
        assert parent.span_id == context_of(processed).span_id
