"""An application that uses OpenTelemetry: its providers, and the spans and metrics that it gets."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.metrics import _internal
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader, NumberDataPoint
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

__all__ = ["Listener", "attributes", "context_of", "linked", "listener", "traceparent", "written"]


class Listener:
    """The OpenTelemetry set-up of an application, which keeps the spans and metrics."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self._exporter = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self.tracers: TracerProvider | None = None
        self.meters: MeterProvider | None = None

    def set_up_tracing(self, **options: Any) -> None:
        self.tracers = TracerProvider(shutdown_on_exit=False, **options)
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self._monkeypatch.setattr(trace, "_TRACER_PROVIDER", self.tracers)

    def set_up_metrics(self) -> None:
        self.meters = MeterProvider([self._reader], shutdown_on_exit=False)
        self._monkeypatch.setattr(_internal, "_METER_PROVIDER", self.meters)

    def tear_down(self) -> None:
        for provider in (self.tracers, self.meters):
            if provider is not None:
                provider.shutdown()

    @property
    def spans(self) -> dict[str, ReadableSpan]:
        """The ended spans by name. If several have one name, this is the last of them."""
        return {span.name: span for span in self.all_spans}

    @property
    def all_spans(self) -> Sequence[ReadableSpan]:
        return self._exporter.get_finished_spans()

    @property
    def points(self) -> dict[str, list[HistogramDataPoint | NumberDataPoint]]:
        """The measured data points by the name of their metric."""
        data = self._reader.get_metrics_data()
        found: dict[str, list[Any]] = {}
        for resource in data.resource_metrics if data else ():
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    found[metric.name] = list(metric.data.data_points)
        return found

    def everything(self) -> str:
        """Return all exported spans and metrics as one string."""
        return json.dumps([span.to_json() for span in self.all_spans]) + repr(self.points)


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> Iterator[Listener]:
    """Return a listener that has set up nothing yet."""
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(_internal, "_METER_PROVIDER", None)
    listener = Listener(monkeypatch)
    yield listener
    listener.tear_down()


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def context_of(span: ReadableSpan) -> trace.SpanContext:
    context: trace.SpanContext | None = span.context
    assert context is not None
    return context


def written(context: trace.SpanContext) -> str:
    """Return a trace context in the W3C format, which this function builds without the code under test."""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def traceparent(span: ReadableSpan) -> str:
    return written(context_of(span))


def linked(span: ReadableSpan) -> list[str]:
    """Return the linked spans in the format in which a message carries a context."""
    return [written(link.context) for link in span.links]
