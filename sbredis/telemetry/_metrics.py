"""Metrics of messaging operations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from opentelemetry.metrics import Histogram, Meter

    from sbredis.telemetry._tracing import Attributes

__all__ = ["Metrics", "histogram"]

_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)  # from OpenTelemetry
_TYPE: Final = "messaging.operation.type"


class Metrics:
    """The instruments of a client. They exist after the application has set up a meter provider."""

    def __init__(self, meter: Meter) -> None:
        self._durations = histogram(meter, "messaging.client.operation.duration", "Duration of a client's operations.")
        self._processing = histogram(meter, "messaging.process.duration", "Duration of processing messages.")
        self._sent = meter.create_counter(
            "messaging.client.sent.messages", "{message}", "Messages that a producer attempted to send."
        )
        self.consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Messages that were delivered to the application."
        )
        self.dropped = meter.create_counter(
            "sbredis.client.dropped_duplicates", "{message}", "Messages that duplicate detection dropped."
        )

    def ended(self, operation_type: str | None, elapsed: float, attributes: Attributes, count: int) -> None:
        """Record the end of an operation.

        The operation's type is an attribute, except for ``process``, which the application performs.
        """
        if operation_type == "process":
            self._processing.record(elapsed, attributes)
            return
        if operation_type == "send":
            self._sent.add(count, attributes)
        if operation_type is not None:
            attributes = attributes | {_TYPE: operation_type}
        self._durations.record(elapsed, attributes)


def histogram(meter: Meter, name: str, description: str) -> Histogram:
    """Return a histogram of seconds, with the bucket boundaries of the conventions if the API accepts them."""
    try:
        return meter.create_histogram(name, "s", description, explicit_bucket_boundaries_advisory=_BUCKETS)
    except TypeError:  # versions of the API before 1.30 do not accept the boundaries
        return meter.create_histogram(name, "s", description)
