"""Spans and metrics by OpenTelemetry's conventions for messaging, for an application that has set up an SDK.

Only the API of OpenTelemetry is used (the extra ``otel``), and it is imported only where somebody else has imported it
already, or the environment asks for a provider: without that nobody can have set up an SDK. Where there is none, or not
even the API, :attr:`Telemetry.active` is false and nothing is done. An SDK that is set up after the client was opened
is noticed within a second. Tracing and metrics are independent of each other.

What is recorded::

    span                      kind       links to                     type of operation
    create <destination>      PRODUCER                                create
    send, schedule            PRODUCER   (a message without context)  send
    send, schedule            CLIENT     the creation contexts        send
    receive, peek, …          CLIENT     the creation contexts        receive
    complete, abandon, …      CLIENT     the creation contexts        settle
    process <destination>     CONSUMER   the creation context         process

The *creation context* of a message is the span that a consumer links to. It travels in the application properties
``traceparent`` and ``tracestate``, as W3C has them, and ``Diagnostic-Id``, as older clients of Azure read it. Of a
single message the span of the send is the creation context, which the conventions allow and which saves a span. Each
message of a batch gets a ``create`` span of its own, and the span of the send links to them. A message that has a
context keeps it.

An operation that raised has ``error.type``, the name of the error's class, and for a
:class:`~sbredis.exceptions.ServiceBusError` ``sbredis.tracking_id``, under which the log has the rest, and
``sbredis.outcome``. One that was cancelled has ``error.type`` too, but its status is left unset: nothing was wrong.
The text of an error is not recorded, since it may quote a message. For the same reason nothing else of a message is
recorded than its ids, its delivery count and when it was enqueued.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, Self, TypeAlias, get_args

from sbredis._version import __version__
from sbredis.exceptions import ServiceBusError

if TYPE_CHECKING:
    from contextvars import Token

    from opentelemetry.context import Context
    from opentelemetry.metrics import Histogram, Meter
    from opentelemetry.trace import Link, Span, SpanContext, Tracer

__all__ = ["Operation", "OperationName", "Telemetry", "TelemetryMessage"]

_Sends = Literal["send", "schedule"]
_Receives = Literal["receive", "receive_deferred", "peek"]
_Settles = Literal["complete", "abandon", "defer", "dead_letter", "delete"]
_Sessions = Literal[
    "accept_session", "renew_session_lock", "get_session_state", "set_session_state", "dead_letter_session"
]

OperationName: TypeAlias = _Sends | _Receives | _Settles | _Sessions | Literal["cancel_scheduled", "renew_message_lock"]
"""What the conventions call the operations of Service Bus."""

_TYPES: Final[Mapping[str, str]] = {
    **dict.fromkeys(get_args(_Sends), "send"),
    **dict.fromkeys(get_args(_Receives), "receive"),
    **dict.fromkeys(get_args(_Settles), "settle"),
    "process": "process",
}

_SCHEMA: Final = "https://opentelemetry.io/schemas/1.44.0"
_LOOK_EVERY: Final = 1.0
_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)  # from the conventions
_SUBSCRIPTION: Final = re.compile(r"(.+?)/subscriptions/(.+)", re.ASCII | re.IGNORECASE)
_TRACEPARENT, _TRACESTATE, _DIAGNOSTIC_ID = "traceparent", "tracestate", "Diagnostic-Id"
_NAME: Final = "messaging.operation.name"
_TYPE: Final = "messaging.operation.type"
_COUNT: Final = "messaging.batch.message_count"
_ERROR_TYPE: Final = "error.type"

_Attributes: TypeAlias = dict[str, str | int]


class TelemetryMessage(Protocol):
    """What must be known of a message; ids, delivery count and time are looked at where it has them."""

    @property
    def application_properties(self) -> Any:
        """A dictionary, or ``None``. That of a message that is sent is given a context; if ``None``, it is set."""
        ...


class Operation:
    """An operation while it runs: a context manager around it. This one, which nobody watches, does nothing."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        return None

    def received(self, messages: Sequence[TelemetryMessage]) -> None:
        """Say what the operation brought, once, before it ends: messages are counted, and linked to their origins."""


_UNWATCHED: Final = Operation()


class Telemetry:
    """Watches the operations of one client.

    ``server_address`` is a host or the path of a unix socket; anything that could be more, such as a URL, is not
    recorded, for it might hold a password. ``clock`` says when to look again whether an SDK has been set up.
    """

    __slots__ = ("_active", "_clock", "_common", "_complete", "_next_look", "metrics", "tracing")

    def __init__(
        self,
        namespace: str,
        server_address: str | None,
        server_port: int | None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._common: _Attributes = {"messaging.system": "servicebus", "sbredis.namespace": namespace}
        if server_address and not any(sign in server_address for sign in ("@", "://", "?", "#")):
            self._common["server.address"] = server_address
            if server_port:
                self._common["server.port"] = server_port
        self._clock = clock
        self.tracing: _Tracing | None = None
        self.metrics: _Metrics | None = None
        self._active = self._complete = False
        self._next_look = 0.0
        self._look()

    @property
    def active(self) -> bool:
        """Whether anybody watches. Where it is false, calling the rest is harmless and can be spared."""
        # Providers can be set once and never taken back, so what has been found stays.
        if not self._complete and self._clock() >= self._next_look:
            self._look()
        return self._active

    def create(self, destination: str, messages: Sequence[TelemetryMessage]) -> None:
        """Give each message that has no creation context a ``create`` span, and write that into its properties.

        For messages that are encoded before they are sent, such as those of a batch object, and before that.
        :meth:`operation` does it for the messages that it is given.
        """
        if not self.active or self.tracing is None:
            return
        name, attributes = self.described("create", destination)
        attributes[_TYPE] = "create"
        for message in messages:
            seen = _seen(message)
            if not seen.context:
                span = self.tracing.start(name, "PRODUCER", attributes | seen.facts)
                self.tracing.inject(span, message)
                span.end()

    def operation(
        self,
        name: OperationName,
        destination: str,
        *,
        count: int = 1,
        messages: Sequence[TelemetryMessage] = (),
        encoded: bool = False,
    ) -> Operation:
        """A context manager around an operation on ``destination``, which is the path of an entity.

        ``messages`` are those that are sent or settled; ``count`` says how many they are where they are not at hand. Of
        an operation that receives neither is known: :meth:`Operation.received` is told.

        A send gives its messages their creation contexts when it is entered, unless they are ``encoded`` already.
        """
        if not self.active:
            return _UNWATCHED
        injects = _TYPES.get(name) == "send" and not encoded
        if injects and len(messages) > 1:
            self.create(destination, messages)
        return _Watched(self, name, destination, messages, count=count, injects=injects)

    def processing(
        self, destination: str, message: TelemetryMessage, *, continues_trace: bool = False
    ) -> AbstractContextManager[object]:
        """A context manager around what an application does with a message that it received from ``destination``.

        Its span is a child of what is going on here, and links to the message's creation context. With
        ``continues_trace`` it is a child of the creation context, and links to both.
        """
        if not self.active:
            return _UNWATCHED
        return _Watched(self, "process", destination, [message], continues_trace=continues_trace)

    def described(self, name: str, destination: str) -> tuple[str, _Attributes]:
        """The name of an operation's span, and its attributes, for spans and metrics alike."""
        attributes = self._common | {_NAME: name}
        subscription = _SUBSCRIPTION.fullmatch(destination)
        if subscription:
            destination, attributes["messaging.destination.subscription.name"] = subscription.groups()
        attributes["messaging.destination.name"] = destination
        return f"{name} {destination}", attributes

    def _look(self) -> None:
        self._next_look = self._clock() + _LOOK_EVERY
        try:
            if self.tracing is None and _in_use("opentelemetry.trace", "OTEL_PYTHON_TRACER_PROVIDER"):
                self.tracing = _find_tracing()
            if self.metrics is None and _in_use("opentelemetry.metrics", "OTEL_PYTHON_METER_PROVIDER"):
                self.metrics = _find_metrics()
        except Exception:  # noqa: BLE001 -- no API, or a provider that fails, of which the API logs; messages go on
            self._complete = True
        else:
            self._complete = self.tracing is not None and self.metrics is not None
        self._active = self.tracing is not None or self.metrics is not None


class _Watched(Operation):
    """An operation that is seen by tracing, by metrics or by both."""

    __slots__ = (
        *("_attributes", "_continues_trace", "_count", "_injects", "_messages", "_metrics"),
        *("_name", "_span", "_started", "_token", "_tracing", "_type"),
    )

    def __init__(
        self,
        telemetry: Telemetry,
        name: str,
        destination: str,
        messages: Sequence[TelemetryMessage],
        *,
        count: int = 1,
        injects: bool = False,
        continues_trace: bool = False,
    ) -> None:
        self._tracing, self._metrics = telemetry.tracing, telemetry.metrics
        self._name, self._attributes = telemetry.described(name, destination)
        self._type = _TYPES.get(name)
        self._messages = messages
        self._count = len(messages) or count
        self._injects = injects
        self._continues_trace = continues_trace
        self._span: Span | None = None
        self._token: Token[Context] | None = None
        self._started = 0.0

    def __enter__(self) -> Self:
        tracing = self._tracing
        if tracing is not None:
            self._span = span = self._start(tracing)
            self._token = tracing.enter(span)
        self._started = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        elapsed = time.perf_counter() - self._started
        try:
            if self._metrics is not None:  # before the span is left, so that an exemplar can name it
                attributes = self._attributes
                if error is not None:
                    attributes = attributes | {_ERROR_TYPE: type(error).__qualname__}
                self._metrics.ended(self._type, elapsed, attributes, self._count)
        finally:
            if self._tracing is not None and self._span is not None and self._token is not None:
                if self._type == "send" and len(self._messages) == 1:  # an id may have been given to it meanwhile
                    self._span.set_attributes(_seen(self._messages[0]).facts)
                self._tracing.leave(self._span, self._token, error)

    def received(self, messages: Sequence[TelemetryMessage]) -> None:
        if self._metrics is not None and messages:
            self._metrics.consumed.add(len(messages), self._attributes)
        span, tracing = self._span, self._tracing
        if span is None or tracing is None or not span.is_recording():
            return
        seen = [_seen(message) for message in messages]
        if len(seen) == 1:
            span.set_attributes(seen[0].facts)
        else:
            span.set_attribute(_COUNT, len(seen))
        for link in tracing.links(seen):
            span.add_link(link.context, link.attributes)

    def _start(self, tracing: _Tracing) -> Span:
        seen = [_seen(message) for message in self._messages]
        attributes = self._attributes.copy()
        if self._type is not None:
            attributes[_TYPE] = self._type
        if self._type == "settle":
            attributes["messaging.servicebus.disposition_status"] = attributes[_NAME]
        if len(seen) == 1:
            attributes |= seen[0].facts
        elif self._count != 1 and self._type != "receive":
            attributes[_COUNT] = self._count
        if self._type == "process":
            return tracing.start_process(self._name, attributes, seen[0], continues_trace=self._continues_trace)
        if self._injects and len(seen) == 1 and not seen[0].context:
            span = tracing.start(self._name, "PRODUCER", attributes)
            tracing.inject(span, self._messages[0])
            return span
        return tracing.start(self._name, "CLIENT", attributes, tracing.links(seen))


class _Tracing:
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
        attributes: _Attributes,
        links: Sequence[Link] = (),
        parent: Context | None = None,
    ) -> Span:
        return self._tracer.start_span(name, parent, self._kinds[kind], attributes, links)

    def start_process(self, name: str, attributes: _Attributes, seen: _Seen, *, continues_trace: bool) -> Span:
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

    def leave(self, span: Span, token: Token[Context], error: BaseException | None) -> None:
        from opentelemetry import context
        from opentelemetry.trace import StatusCode

        if error is not None:
            span.set_attribute(_ERROR_TYPE, type(error).__qualname__)
            if isinstance(error, ServiceBusError):
                span.set_attribute("sbredis.tracking_id", error.tracking_id)
                if error.outcome is not None:
                    span.set_attribute("sbredis.outcome", error.outcome.value)
            if isinstance(error, Exception):
                span.set_status(StatusCode.ERROR, type(error).__qualname__)
        context.detach(token)
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

    def links(self, seen: Sequence[_Seen]) -> list[Link]:
        """To the creation contexts of messages; of several, each link says which message it is about."""
        from opentelemetry.trace import Link

        return [
            Link(context, message.facts if len(seen) > 1 else None)
            for message in seen
            if (context := self._creation_context(message)) is not None
        ]

    def _creation_context(self, seen: _Seen) -> SpanContext | None:
        from opentelemetry.context import Context
        from opentelemetry.trace import get_current_span

        found = get_current_span(self._propagator.extract(seen.context, Context())).get_span_context()
        return found if found.is_valid else None


class _Metrics:
    """The instruments. There are some as soon as somebody has set up a provider of meters."""

    def __init__(self, meter: Meter) -> None:
        self._durations = _histogram(meter, "messaging.client.operation.duration", "Duration of a client's operations.")
        self._processing = _histogram(meter, "messaging.process.duration", "Duration of processing messages.")
        self._sent = meter.create_counter(
            "messaging.client.sent.messages", "{message}", "Messages that a producer attempted to send."
        )
        self.consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Messages that were delivered to the application."
        )

    def ended(self, operation_type: str | None, elapsed: float, attributes: _Attributes, count: int) -> None:
        """An operation has ended. Only the duration of one of the client's is told apart by its type."""
        if operation_type == "process":
            self._processing.record(elapsed, attributes)
            return
        if operation_type == "send":
            self._sent.add(count, attributes)
        if operation_type is not None:
            attributes = attributes | {_TYPE: operation_type}
        self._durations.record(elapsed, attributes)


class _Seen(NamedTuple):
    """What is looked at in a message."""

    context: dict[str, str]
    """Its creation context as W3C writes it, if it has one."""
    facts: _Attributes
    """What is recorded of it."""


def _seen(message: TelemetryMessage) -> _Seen:
    facts: _Attributes = {}
    try:
        context = _carried(message.application_properties or {})
        for attribute, name in (
            ("messaging.message.id", "message_id"),
            ("messaging.message.conversation_id", "correlation_id"),
        ):
            if (value := getattr(message, name, None)) is not None:
                facts[attribute] = str(value)
        if deliveries := getattr(message, "delivery_count", None):
            facts["messaging.servicebus.message.delivery_count"] = int(deliveries)
        if enqueued := getattr(message, "enqueued_time_utc", None):
            facts["messaging.servicebus.message.enqueued_time"] = int(enqueued.timestamp())
    except Exception:  # noqa: BLE001 -- who cannot read a message hears of it from the message, not from here
        return _Seen({}, {})
    return _Seen(context, facts)


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


def _in_use(module: str, variable: str) -> bool:
    """Whether somebody may have set up a provider: it takes the API's module, or asks for one in the environment."""
    return sys.modules.get(module) is not None or bool(os.environ.get(variable))


def _does_nothing(part: object) -> bool:
    """Whether a provider, tracer or meter is one of the API itself: those stand in for an SDK, or for parts of one that
    is disabled, and record nothing.
    """
    return type(part).__module__.startswith(("opentelemetry.trace", "opentelemetry.metrics"))


def _find_tracing() -> _Tracing | None:
    from opentelemetry import trace

    provider = trace.get_tracer_provider()
    if _does_nothing(provider) or _does_nothing(tracer := provider.get_tracer("sbredis", __version__, _SCHEMA)):
        return None
    return _Tracing(tracer)


def _find_metrics() -> _Metrics | None:
    from opentelemetry import metrics

    provider = metrics.get_meter_provider()
    if _does_nothing(provider) or _does_nothing(meter := provider.get_meter("sbredis", __version__, _SCHEMA)):
        return None
    return _Metrics(meter)


def _histogram(meter: Meter, name: str, description: str) -> Histogram:
    try:
        return meter.create_histogram(name, "s", description, explicit_bucket_boundaries_advisory=_BUCKETS)
    except TypeError:  # the API before 1.30
        return meter.create_histogram(name, "s", description)
