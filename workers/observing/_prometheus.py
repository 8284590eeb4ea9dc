"""The counts of a worker as measures of Prometheus. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from sbredis._prometheus_text import family, histogram, labels, text_of
from sbredis.workers.observing._counts import BOUNDS, EntityCounts

__all__ = ["prometheus"]

_COUNTERS: Final = {
    "received": ("messages_received_total", "Messages received."),
    "completed": ("messages_completed_total", "Messages completed."),
    "abandoned": ("messages_abandoned_total", "Messages abandoned; they come again."),
    "dead_lettered": ("messages_dead_lettered_total", "Messages moved to the dead-letter queue."),
    "deferred": ("messages_deferred_total", "Messages deferred."),
    "given_back": ("messages_given_back_total", "Messages given back without counting a delivery."),
    "settlements_failed": ("settlements_failed_total", "Messages whose settlement failed."),
    "locks_lost": ("locks_lost_total", "Locks lost while handlers ran."),
}
_LAG: Final = "From the enqueueing of a message to the first start of a handler, by the clocks of server and worker."
_TOOK: Final = "How long handlers took."


def prometheus(namespace: str, entities: Mapping[str, EntityCounts]) -> str:
    """Return the counts of all entities, and nothing else, as Prometheus reads them."""
    return text_of(_lines(namespace, entities))


def _lines(namespace: str, entities: Mapping[str, EntityCounts]) -> Iterator[str]:
    found = [(labels(namespace=namespace, entity=entity), counts) for entity, counts in sorted(entities.items())]
    for attribute, (name, text) in _COUNTERS.items():
        yield from family(
            f"worker_{name}", "counter", text, [(label, getattr(counts, attribute)) for label, counts in found]
        )
    lags = [(label, counts.lag.counts, counts.lag.total) for label, counts in found]
    yield from histogram("worker_lag_seconds", _LAG, BOUNDS, lags)
    handlers = [
        (f"{label},{labels(handler=name)}", counts)
        for label, entity in found
        for name, counts in sorted(entity.handlers.items())
    ]
    errors = [(label, counts.errors) for label, counts in handlers]
    yield from family("worker_handler_errors_total", "counter", "Calls of handlers that raised an error.", errors)
    running = [(label, counts.running) for label, counts in handlers]
    yield from family("worker_handlers_running", "gauge", "Handlers that are running.", running)
    scheduled = [(label, counts) for label, counts in handlers if counts.schedules]
    sent = [(label, counts.ticks_sent) for label, counts in scheduled]
    yield from family("worker_ticks_sent_total", "counter", "Ticks of schedules that were sent.", sent)
    passed = [(label, counts.ticks_passed) for label, counts in scheduled]
    yield from family("worker_ticks_skipped_total", "counter", "Ticks of schedules that were passed over.", passed)
    took = [(label, counts.handling.counts, counts.handling.total) for label, counts in handlers]
    yield from histogram("worker_handling_seconds", _TOOK, BOUNDS, took)
