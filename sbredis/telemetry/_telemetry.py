"""Make the operations of a client visible to an application: as spans, metrics, and lines of the log.

**Spans and metrics** follow OpenTelemetry's conventions for messaging. An application gets them if it has set up an
SDK. This module uses only the API of OpenTelemetry (the extra ``otel``). It imports the API only if another module has
already imported the API, or if the environment asks for a provider. In all other cases no SDK can have been set up.
Without an SDK, or without the API, :attr:`Telemetry.active` is false and nothing is recorded. If an SDK is set up after
the client was opened, the client notices this within a second. Tracing and metrics are independent of each other.

The client records::

    span                      kind       links to                     type of operation
    create <destination>      PRODUCER                                create
    send, schedule            PRODUCER   (a message without context)  send
    send, schedule            CLIENT     the creation contexts        send
    receive, peek, …          CLIENT     the creation contexts        receive
    complete, abandon, …      CLIENT     the creation contexts        settle
    process <destination>     CONSUMER   the creation context         process
    open <destination>        CLIENT                                  (none)

The *creation context* of a message is the span that a consumer links to. The message carries it in the application
properties ``traceparent`` and ``tracestate``, as W3C defines them, and in ``Diagnostic-Id``, which older clients of
Azure read. When a single message is sent, the span of the send is its creation context. The conventions allow this, and
it saves a span. When several messages are sent together, each gets a ``create`` span of its own, and the span of the
send links to these spans. A message that already has a creation context keeps it.

An operation begins when the application calls it. So a failure is recorded even if the operation cannot reach a server,
its entity does not exist, or its lock has ended. A failed operation has:

- the status ERROR;
- ``error.type``, the name of the error's class, in the span and in its metrics;
- an event ``exception``;
- for a :class:`~sbredis.exceptions.ServiceBusError`, ``sbredis.outcome``, and ``sbredis.tracking_id``, by which the log
  entries of the error can be found.

A cancelled operation has ``error.type`` too, but not the status ERROR, because nothing was wrong. The text of an error
is not recorded, because it may quote a message. For the same reason, a span records only the ids, the delivery count
and the enqueued time of a message.

**The log** has one line for each operation at the level DEBUG, from the logger ``sbredis.operations``: its name, the
entity, the number of messages, and the sequence numbers and ids of the first ten.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, Self, TypeAlias, get_args

from sbredis._version import __version__
from sbredis.exceptions import ServiceBusError
from sbredis.telemetry._log_text import named
from sbredis.telemetry._metrics import Metrics
from sbredis.telemetry._tracing import Attributes, TelemetryMessage, Tracing, error_type, is_failure, look_at

if TYPE_CHECKING:
    from contextvars import Token

    from opentelemetry.context import Context
    from opentelemetry.trace import Span

__all__ = ["UNOBSERVED", "Observation", "OperationName", "Telemetry", "TelemetryMessage"]

_log = logging.getLogger("sbredis.operations")

_Sends = Literal["send", "schedule"]
_Receives = Literal["receive", "receive_deferred", "peek"]
_Settles = Literal["complete", "abandon", "release", "defer", "dead_letter", "delete", "redrive"]
_Sessions = Literal[
    "accept_session",
    "renew_session_lock",
    "get_session_state",
    "set_session_state",
    "dead_letter_session",
    "release_session",
]

_Others = Literal["open", "cancel_scheduled", "renew_message_lock", "transaction"]

OperationName: TypeAlias = _Sends | _Receives | _Settles | _Sessions | _Others
"""The names of operations in the conventions for Service Bus. ``open`` (connect and find the entity) is added."""

_TYPES: Final[Mapping[str, str]] = {
    **dict.fromkeys(get_args(_Sends), "send"),
    **dict.fromkeys(get_args(_Receives), "receive"),
    **dict.fromkeys(get_args(_Settles), "settle"),
    "process": "process",
}

_SCHEMA: Final = "https://opentelemetry.io/schemas/1.44.0"
_LOOK_EVERY: Final = 1.0
_SUBSCRIPTION: Final = re.compile(r"(.+?)/subscriptions/(.+)", re.ASCII | re.IGNORECASE)
_NAME: Final = "messaging.operation.name"
_TYPE: Final = "messaging.operation.type"
_COUNT: Final = "messaging.batch.message_count"
_ERROR_TYPE: Final = "error.type"


class Observation:
    """The observation of a running operation, as a context manager.

    This base class does nothing. It is for operations that are not observed.
    """

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        return None

    def begin(self) -> None:
        """Begin the operation without making its span the current one. Another task may end the operation."""

    def end(self, error: BaseException | None = None) -> None:
        """End the operation that :meth:`begin` began. If it failed, ``error`` is its error."""

    def received(self, messages: Sequence[TelemetryMessage]) -> None:
        """Report the messages that the operation received, to count and link them. Call this once, before the end."""

    def numbered(self, numbers: Sequence[int]) -> None:
        """Report the sequence numbers of the operation's messages, if the message objects do not contain them."""

    def counted(self, count: int) -> None:
        """Report the number of the operation's messages, if this number was not known at its beginning."""


UNOBSERVED: Final = Observation()


class Telemetry:
    """Observes the operations of one client.

    ``server_address`` is a host or the path of a Unix socket. Any other text, such as a URL, is not recorded, because
    it may contain a password. ``clock`` measures the time to the next look for an SDK.
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
        self._common: Attributes = {"messaging.system": "servicebus", "sbredis.namespace": namespace}
        if server_address and not any(sign in server_address for sign in ("@", "://", "?", "#")):
            self._common["server.address"] = server_address
            if server_port:
                self._common["server.port"] = server_port
        self._clock = clock
        self.tracing: Tracing | None = None
        self.metrics: Metrics | None = None
        self._active = self._complete = False
        self._next_look = 0.0
        self._look()

    @property
    def active(self) -> bool:
        """Whether an SDK has been set up."""
        # A provider can be set only once and is never removed, so the client keeps the providers that it has found.
        if not self._complete and self._clock() >= self._next_look:
            self._look()
        return self._active

    @property
    def watching(self) -> bool:
        """Whether an SDK or the log observes the client. If not, callers may omit all other calls of this object."""
        if not self._complete and self._clock() >= self._next_look:
            self._look()
        return self._active or _log.isEnabledFor(logging.DEBUG)

    def create(self, destination: str, messages: Sequence[TelemetryMessage]) -> None:
        """Give each message without a creation context a ``create`` span, and write the context into the message.

        Some messages, such as those in a batch object, are encoded before the send. Call this method before they are
        encoded. For other messages, :meth:`operation` does the same.
        """
        if not self.active or self.tracing is None:
            return
        name, attributes = self.described("create", destination)
        attributes[_TYPE] = "create"
        for message in messages:
            seen = look_at(message)
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
    ) -> Observation:
        """Return a context manager for an operation on ``destination``: the path of an entity, or an empty text.

        ``messages`` are the messages to send or settle. If the caller does not have the message objects, ``count`` is
        their number. At the start of a receiving operation, neither is known: report its messages with
        :meth:`Operation.received`.

        When the context of a send is entered, its messages get their creation contexts, unless they are ``encoded``
        already.
        """
        if not self.watching:
            return UNOBSERVED
        injects = _TYPES.get(name) == "send" and not encoded
        if injects and len(messages) > 1:
            self.create(destination, messages)
        return _LiveObservation(self, name, destination, messages, count=count, injects=injects)

    def processing(
        self, destination: str, *messages: TelemetryMessage, continues_trace: bool = False
    ) -> AbstractContextManager[object]:
        """Return a context manager for the handling of messages that the application received from ``destination``.

        Its span is a child of the current span, and links to the messages' creation contexts. With ``continues_trace``,
        the span of one message is a child of the creation context, and links to that context and to the current span.
        """
        if not self.watching:
            return UNOBSERVED
        return _LiveObservation(self, "process", destination, messages, continues_trace=continues_trace)

    def failed(
        self, name: OperationName, destination: str, error: BaseException, messages: Sequence[TelemetryMessage] = ()
    ) -> None:
        """Record a failed operation for which no caller waited, such as an automatic renewal."""
        operation = self.operation(name, destination, messages=messages)
        operation.begin()
        operation.end(error)

    def dropped_duplicates(self, destination: str, count: int) -> None:
        """Count messages that an entity dropped because it had already accepted messages with the same ids."""
        if self.active and self.metrics is not None:
            _, attributes = self.described("send", destination)
            self.metrics.dropped.add(count, attributes)

    def described(self, name: str, destination: str) -> tuple[str, Attributes]:
        """Return the name of an operation's span, and its attributes for spans and metrics."""
        attributes = self._common | {_NAME: name}
        subscription = _SUBSCRIPTION.fullmatch(destination)
        if subscription:
            destination, attributes["messaging.destination.subscription.name"] = subscription.groups()
        if destination:
            attributes["messaging.destination.name"] = destination
            return f"{name} {destination}", attributes
        where = [str(self._common[part]) for part in ("server.address", "server.port") if part in self._common]
        return " ".join((name, *filter(None, [":".join(where)]))), attributes

    def _look(self) -> None:
        self._next_look = self._clock() + _LOOK_EVERY
        try:
            if self.tracing is None and _in_use("opentelemetry.trace", "OTEL_PYTHON_TRACER_PROVIDER"):
                self.tracing = _find_tracing()
            if self.metrics is None and _in_use("opentelemetry.metrics", "OTEL_PYTHON_METER_PROVIDER"):
                self.metrics = _find_metrics()
        except Exception:  # noqa: BLE001 -- the API is missing, or a provider fails and the API logs this
            self._complete = True
        else:
            self._complete = self.tracing is not None and self.metrics is not None
        self._active = self.tracing is not None or self.metrics is not None


class _LiveObservation(Observation):
    """The observation of an operation by tracing, metrics or the log."""

    __slots__ = (
        *("_attributes", "_continues_trace", "_count", "_destination", "_found", "_injects", "_logs", "_messages"),
        *("_metrics", "_name", "_numbers", "_span", "_started", "_token", "_tracing", "_type"),
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
        self._logs = _log.isEnabledFor(logging.DEBUG)
        self._name, self._attributes = telemetry.described(name, destination)
        self._destination = destination
        self._type = _TYPES.get(name)
        self._messages = messages
        self._numbers: Sequence[int] = ()
        self._found: int | None = None
        self._count = len(messages) or count
        self._injects = injects
        self._continues_trace = continues_trace
        self._span: Span | None = None
        self._token: Token[Context] | None = None
        self._started = 0.0

    def __enter__(self) -> Self:
        self.begin()
        if self._tracing is not None and self._span is not None:
            self._token = self._tracing.enter(self._span)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end(error)

    def begin(self) -> None:
        if self._tracing is not None:
            self._span = self._start(self._tracing)
        self._started = time.perf_counter()

    def end(self, error: BaseException | None = None) -> None:
        elapsed = time.perf_counter() - self._started
        failure = error if error is not None and is_failure(error) else None
        try:
            if self._metrics is not None:  # recorded while the span is current, so that an exemplar can name it
                attributes = self._attributes
                if failure is not None:
                    attributes = attributes | {_ERROR_TYPE: error_type(failure)}
                self._metrics.ended(self._type, elapsed, attributes, self._count)
            if self._logs:  # written while the span is current, because log handlers may read it
                self._write_line(elapsed, error)
        finally:
            span, tracing = self._span, self._tracing
            if span is not None and tracing is not None:
                if self._token is not None:
                    tracing.leave(self._token)
                if self._type == "send" and len(self._messages) == 1:  # the send may have given the message an id
                    span.set_attributes(look_at(self._messages[0]).facts)
                tracing.end(span, failure)

    def received(self, messages: Sequence[TelemetryMessage]) -> None:
        self._messages, self._found = messages, len(messages)
        if self._metrics is not None and messages:
            self._metrics.consumed.add(len(messages), self._attributes)
        span, tracing = self._span, self._tracing
        if span is None or tracing is None or not span.is_recording():
            return
        seen = [look_at(message) for message in messages]
        if len(seen) == 1:
            span.set_attributes(seen[0].facts)
        else:
            span.set_attribute(_COUNT, len(seen))
        for link in tracing.links(seen):
            span.add_link(link.context, link.attributes)

    def numbered(self, numbers: Sequence[int]) -> None:
        self._numbers = numbers

    def counted(self, count: int) -> None:
        self._found = count
        if self._span is not None:
            self._span.set_attribute(_COUNT, count)

    def _start(self, tracing: Tracing) -> Span:
        seen = [look_at(message) for message in self._messages]
        attributes = self._attributes.copy()
        if self._type is not None:
            attributes[_TYPE] = self._type
        if self._type == "settle":
            attributes["messaging.servicebus.disposition_status"] = attributes[_NAME]
        if len(seen) == 1:
            attributes |= seen[0].facts
        elif self._count != 1 and self._type != "receive":
            attributes[_COUNT] = self._count
        if self._type == "process" and len(seen) > 1:
            return tracing.start(self._name, "CONSUMER", attributes, tracing.links(seen))
        if self._type == "process":
            return tracing.start_process(self._name, attributes, seen[0], continues_trace=self._continues_trace)
        if self._injects and len(seen) == 1 and not seen[0].context:
            span = tracing.start(self._name, "PRODUCER", attributes)
            tracing.inject(span, self._messages[0])
            return span
        return tracing.start(self._name, "CLIENT", attributes, tracing.links(seen))

    def _write_line(self, elapsed: float, error: BaseException | None) -> None:
        """Write the line in the log."""
        operation = " ".join(filter(None, (str(self._attributes[_NAME]), self._destination)))
        what = ""
        if self._found is not None:
            what = named(self._messages, self._numbers, self._found)
        elif self._messages or self._numbers:
            what = named(self._messages, self._numbers)
        elif self._count != 1:
            what = named((), (), self._count)
        if error is None:
            _log.debug("%s: %s in %.1f ms", operation, what or "done", elapsed * 1000)
            return
        _log.debug(
            "%s: %s%s after %.1f ms%s",
            operation,
            f"{what} " if what else "",
            _ended(error),
            elapsed * 1000,
            _facts(error),
        )


def _ended(error: BaseException) -> str:
    if not isinstance(error, Exception):
        return "cancelled"
    return "failed" if is_failure(error) else "found nothing"


def _facts(error: BaseException) -> str:
    """Return the class of an error and the effect that it reports, without its text, which may quote a message."""
    if not isinstance(error, Exception) or not is_failure(error):
        return ""
    parts = [error_type(error)]
    if isinstance(error, ServiceBusError):
        if error.outcome is not None:
            parts.append(f"outcome {error.outcome.value}")
        parts.append(f"tracking id {error.tracking_id}")
    return f": {', '.join(parts)}"


def _in_use(module: str, variable: str) -> bool:
    """Return whether a provider may be set up: the API is imported, or the environment asks for a provider."""
    return sys.modules.get(module) is not None or bool(os.environ.get(variable))


def _does_nothing(part: object) -> bool:
    """Return whether a provider, tracer or meter is the API's own and records nothing.

    The API's own classes replace a missing SDK, or disabled parts of an SDK.
    """
    return type(part).__module__.startswith(("opentelemetry.trace", "opentelemetry.metrics"))


def _find_tracing() -> Tracing | None:
    from opentelemetry import trace

    provider = trace.get_tracer_provider()
    if _does_nothing(provider) or _does_nothing(tracer := provider.get_tracer("sbredis", __version__, _SCHEMA)):
        return None
    return Tracing(tracer)


def _find_metrics() -> Metrics | None:
    from opentelemetry import metrics

    provider = metrics.get_meter_provider()
    if _does_nothing(provider) or _does_nothing(meter := provider.get_meter("sbredis", __version__, _SCHEMA)):
        return None
    return Metrics(meter)
