"""Spans of messaging operations: make them, link them to messages, and end them.

A span records only the ids, the delivery count and the enqueued time of a message. It records only the class of an
error, the place where the error was raised, and the effect that a :class:`~sbredis.exceptions.ServiceBusError` reports.
It does not record the text of an error, because the text may quote a message.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, TypeAlias

from sbredis.exceptions import ServiceBusError
from sbredis.model import comparable_id

if TYPE_CHECKING:
    from contextvars import Token

    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, SpanContext, Tracer

__all__ = ["Attributes", "TelemetryMessage", "TracedMessage", "Tracing", "error_type", "is_failure", "look_at"]

_TRACEPARENT, _TRACESTATE, _DIAGNOSTIC_ID = "traceparent", "tracestate", "Diagnostic-Id"
_FRAMES: Final = 30

Attributes: TypeAlias = dict[str, str | int]


class TelemetryMessage(Protocol):
    """The part of a message that telemetry uses.

    Telemetry also reads the ids, the delivery count and the time, if there are any.
    """

    @property
    def application_properties(self) -> Any:
        """A dictionary, or ``None``. A send adds a context to the dictionary, or sets a new dictionary."""
        ...


class Tracing:
    """Makes spans. It exists after the application has set up a tracer provider."""

    def __init__(self, tracer: Tracer) -> None:
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._tracer = tracer
        self._kinds = {kind.name: kind for kind in SpanKind}
        self._propagator = TraceContextTextMapPropagator()

    def start(
        self,
        name: str,
        kind: Literal["PRODUCER", "CLIENT", "CONSUMER"],
        attributes: Attributes,
        links: Sequence[Link] = (),
        parent: Context | None = None,
    ) -> Span:
        return self._tracer.start_span(name, parent, self._kinds[kind], attributes, links)

    def start_process(self, name: str, attributes: Attributes, seen: TracedMessage, *, continues_trace: bool) -> Span:
        from opentelemetry.trace import Link, NonRecordingSpan, get_current_span, set_span_in_context

        links = self.links([seen])
        parent = None
        if continues_trace and links:
            parent = set_span_in_context(NonRecordingSpan(links[0].context))
            ambient = get_current_span().get_span_context()
            if ambient.is_valid:
                links.append(Link(ambient))
        return self.start(name, "CONSUMER", attributes, links, parent)

    def enter(self, span: Span) -> Token[Context]:
        from opentelemetry import context, trace

        return context.attach(trace.set_span_in_context(span))

    def leave(self, token: Token[Context]) -> None:
        from opentelemetry import context

        context.detach(token)

    def end(self, span: Span, error: BaseException | None) -> None:
        """End a span. The span of a cancelled operation gets an ``error.type``, but not the status ERROR."""
        from opentelemetry.trace import StatusCode

        if error is not None:
            kind = error_type(error)
            span.set_attribute("error.type", kind)
            if isinstance(error, ServiceBusError):
                span.set_attribute("sbredis.tracking_id", error.tracking_id)
                if error.outcome is not None:
                    span.set_attribute("sbredis.outcome", error.outcome.value)
            if isinstance(error, Exception):
                span.add_event("exception", _event(error))
                span.set_status(StatusCode.ERROR, kind)
        span.end()

    def inject(self, span: Span, message: TelemetryMessage) -> None:
        from opentelemetry import trace

        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, trace.set_span_in_context(span))
        if _TRACEPARENT not in carrier:
            return
        carrier[_DIAGNOSTIC_ID] = carrier[_TRACEPARENT]
        target: Any = message  # the properties of a message to send can be set
        if target.application_properties is None:
            target.application_properties = carrier
        else:
            target.application_properties.update(carrier)

    def links(self, seen: Sequence[TracedMessage]) -> list[Link]:
        """Return links to the creation contexts of messages. If there are several, each link names its message."""
        from opentelemetry.trace import Link

        return [
            Link(context, message.facts if len(seen) > 1 else None)
            for message in seen
            if (context := self._creation_context(message)) is not None
        ]

    def _creation_context(self, seen: TracedMessage) -> SpanContext | None:
        from opentelemetry.context import Context
        from opentelemetry.trace import get_current_span

        found = get_current_span(self._propagator.extract(seen.context, Context())).get_span_context()
        return found if found.is_valid else None


class TracedMessage(NamedTuple):
    """The parts of a message that telemetry reads."""

    context: dict[str, str]
    """The creation context of the message in the form of W3C, if it has one."""
    facts: Attributes
    """The attributes of the message to record."""


def look_at(message: TelemetryMessage) -> TracedMessage:
    """Read the attributes of a message to record, and its creation context. An unreadable message has neither."""
    facts: Attributes = {}
    try:
        context = _context_in(message.application_properties or {})
        for attribute, name in (
            ("messaging.message.id", "message_id"),
            ("messaging.message.conversation_id", "correlation_id"),
        ):
            if (value := getattr(message, name, None)) is not None:
                facts[attribute] = str(comparable_id(value))
        if deliveries := getattr(message, "delivery_count", None):
            facts["messaging.servicebus.message.delivery_count"] = int(deliveries)
        if enqueued := getattr(message, "enqueued_time_utc", None):
            facts["messaging.servicebus.message.enqueued_time"] = int(enqueued.timestamp())
    except Exception:  # noqa: BLE001 -- the application gets the error when it reads the message itself
        return TracedMessage({}, {})
    return TracedMessage(context, facts)


def is_failure(error: BaseException) -> bool:
    """Return whether an error is a failure. A wait that ends without messages or a session is not a failure."""
    return getattr(error, "is_failure", True) is not False


def error_type(error: BaseException) -> str:
    """Return the name of an error's class. For a private class of sbredis, return the name of its public base class."""
    return _public(error).__qualname__


def _public(error: BaseException) -> type:
    kinds = type(error).__mro__
    return next(
        kind for kind in kinds if not kind.__module__.startswith("sbredis.") or kind.__module__ == "sbredis.exceptions"
    )


def _event(error: Exception) -> dict[str, str]:
    """Return the attributes of an exception event: the class, and the frames of the traceback without source code."""
    kind = _public(error)
    frames = [
        f"  File {frame.f_code.co_filename!r}, line {line}, in {frame.f_code.co_qualname}"
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return {"exception.type": name, "exception.stacktrace": "\n".join([*frames[-_FRAMES:], name])}


def _context_in(properties: Mapping[Any, Any]) -> dict[str, str]:
    """Return the creation context in application properties.

    AMQP clients may send names and values of properties as bytes.
    """
    found: dict[str, str] = {}
    for name in (_TRACEPARENT, _DIAGNOSTIC_ID, _TRACESTATE):
        value = properties.get(name, properties.get(name.encode()))
        if isinstance(value, bytes):
            value = value.decode("ascii", "replace")
        if isinstance(value, str) and value:
            found[name] = value
    parent = found.pop(_DIAGNOSTIC_ID, None)
    if parent is not None:
        found.setdefault(_TRACEPARENT, parent)
    return found if _TRACEPARENT in found else {}
