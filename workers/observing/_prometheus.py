"""Write counts in the text format of Prometheus. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final

from sbredis.workers.observing._counts import BOUNDS, EntityCounts, Histogram

__all__ = ["CONTENT_TYPE", "prometheus"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
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


def prometheus(namespace: str, entities: Mapping[str, EntityCounts]) -> str:
    """Return the counts of all entities, and nothing else, as Prometheus reads them."""
    return "".join(f"{line}\n" for line in _lines(namespace, entities))


def _lines(namespace: str, entities: Mapping[str, EntityCounts]) -> Iterator[str]:
    labels = {entity: f'namespace="{_escaped(namespace)}",entity="{_escaped(entity)}"' for entity in sorted(entities)}
    for attribute, (name, text) in _COUNTERS.items():
        values = [(label, getattr(entities[entity], attribute)) for entity, label in labels.items()]
        yield from _numbers(name, "counter", text, values)
    yield from _histograms("lag_seconds", _LAG, [(label, entities[entity].lag) for entity, label in labels.items()])
    handlers = [
        (f'{label},handler="{_escaped(name)}"', counts)
        for entity, label in labels.items()
        for name, counts in sorted(entities[entity].handlers.items())
    ]
    errors = [(label, counts.errors) for label, counts in handlers]
    yield from _numbers("handler_errors_total", "counter", "Calls of handlers that raised an error.", errors)
    running = [(label, counts.running) for label, counts in handlers]
    yield from _numbers("handlers_running", "gauge", "Handlers that are running.", running)
    scheduled = [(label, counts) for label, counts in handlers if counts.schedules]
    sent = [(label, counts.ticks_sent) for label, counts in scheduled]
    yield from _numbers("ticks_sent_total", "counter", "Ticks of schedules that were sent.", sent)
    passed = [(label, counts.ticks_passed) for label, counts in scheduled]
    yield from _numbers("ticks_skipped_total", "counter", "Ticks of schedules that were passed over.", passed)
    handling = [(label, counts.handling) for label, counts in handlers]
    yield from _histograms("handling_seconds", "How long handlers took.", handling)


def _numbers(name: str, kind: str, text: str, values: Sequence[tuple[str, int]]) -> Iterator[str]:
    yield from _head(name, kind, text)
    for label, value in values:
        yield f"sbredis_worker_{name}{{{label}}} {value}"


def _histograms(name: str, text: str, values: Sequence[tuple[str, Histogram]]) -> Iterator[str]:
    yield from _head(name, "histogram", text)
    for label, histogram in values:
        sums = list(accumulate(histogram.counts))
        for bound, count in zip((*(f"{bound:g}" for bound in BOUNDS), "+Inf"), sums, strict=True):
            yield f'sbredis_worker_{name}_bucket{{{label},le="{bound}"}} {count}'
        yield f"sbredis_worker_{name}_sum{{{label}}} {histogram.total!r}"
        yield f"sbredis_worker_{name}_count{{{label}}} {sums[-1]}"


def _head(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP sbredis_worker_{name} {text}"
    yield f"# TYPE sbredis_worker_{name} {kind}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
