"""Spans of messaging operations: how they are made, linked to messages, and ended.

The only things recorded of a message are its ids, its delivery count and when it was enqueued. The only things
recorded of an error are its class, where it was raised, and what a
:class:`~sbredis.exceptions.ServiceBusError` says of its effect. The text of an error is not recorded, since it may
quote a message.
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
    """What must be known of a message; ids, delivery count and time are looked at where it has them."""

    @property
    def application_properties(self) -> Any:
        """A dictionary, or ``None``. That of a message that is sent is given a context; if ``None``, it is set."""
        ...


class Tracing:
    """Makes spans. There is one as soon as somebody has set up a provider of tracers."""

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
        """End a span. An operation that was cancelled has an ``error.type``, but did not fail."""
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
        target: Any = message  # one that is sent lets its properties be set
        if target.application_properties is None:
            target.application_properties = carrier
        else:
            target.application_properties.update(carrier)

    def links(self, seen: Sequence[TracedMessage]) -> list[Link]:
        """To the creation contexts of messages; of several, each link says which message it is about."""
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
    """What is looked at in a message."""

    context: dict[str, str]
    """Its creation context as W3C writes it, if it has one."""
    facts: Attributes
    """What is recorded of it."""


def look_at(message: TelemetryMessage) -> TracedMessage:
    """What is recorded of a message, and the context that it carries; nothing of one that cannot be read."""
    facts: Attributes = {}
    try:
        context = _carried(message.application_properties or {})
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
    except Exception:  # noqa: BLE001 -- who cannot read a message hears of it from the message, not from here
        return TracedMessage({}, {})
    return TracedMessage(context, facts)


def is_failure(error: BaseException) -> bool:
    """Whether an error means that something went wrong. That nothing was there in time is none."""
    return getattr(error, "is_failure", True) is not False


def error_type(error: BaseException) -> str:
    """The name of an error's class. A private class of sbredis is named as the public one that it derives from."""
    return _public(error).__qualname__


def _public(error: BaseException) -> type:
    kinds = type(error).__mro__
    return next(
        kind for kind in kinds if not kind.__module__.startswith("sbredis.") or kind.__module__ == "sbredis.exceptions"
    )


def _event(error: Exception) -> dict[str, str]:
    """An exception as an event of its span: its class, and the frames of its traceback without any text of the code."""
    kind = _public(error)
    frames = [
        f"  File {frame.f_code.co_filename!r}, line {line}, in {frame.f_code.co_qualname}"
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return {"exception.type": name, "exception.stacktrace": "\n".join([*frames[-_FRAMES:], name])}


def _carried(properties: Mapping[Any, Any]) -> dict[str, str]:
    """The creation context in application properties. Names and values may be bytes, as AMQP clients send them."""
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
