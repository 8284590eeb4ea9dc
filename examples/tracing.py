"""One trace from the sender of a message to the work of its handler, with the OpenTelemetry SDK.

python examples/tracing.py [CONNECTION STRING]

Needs the SDK: pip install opentelemetry-sdk
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

try:
    from opentelemetry import trace
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
except ModuleNotFoundError as error:
    sys.exit(f"This example needs the OpenTelemetry SDK ({error}): run pip install opentelemetry-sdk")

from sbredis import ServiceBusMessage
from sbredis.aio import ServiceBusClient


def show(spans: Sequence[ReadableSpan], parent: int | None = None, depth: int = 0) -> None:
    """Print spans as a tree, with each span below its parent."""
    for span in sorted(spans, key=lambda span: span.start_time or 0):
        if (span.parent.span_id if span.parent else None) == parent:
            print("   " * depth + f"{span.name} ({span.kind.name})")
            show(spans, span.context.span_id if span.context else None, depth + 1)


async def main(url: str = "memory://example") -> None:
    """Send an order, handle it, and show the trace. A service would send its spans to a collector instead."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    tracer = trace.get_tracer("shop")

    async with ServiceBusClient(url) as client:
        async with client.get_queue_sender("traced-orders", create_if_missing=True) as sender:
            with tracer.start_as_current_span("checkout") as checkout:
                await sender.send_messages(ServiceBusMessage("two teapots"))

        async with client.get_queue_receiver("traced-orders", max_wait_time=1) as receiver:
            async for message in receiver:
                with receiver.process_span(message):  # the spans inside belong to the trace of the message
                    with tracer.start_as_current_span("charge the card"):
                        await asyncio.sleep(0)
                    await receiver.complete_message(message)

    of_the_order = checkout.get_span_context().trace_id
    show([span for span in exporter.get_finished_spans() if span.context and span.context.trace_id == of_the_order])


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
