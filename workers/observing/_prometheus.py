"""Write counts in the text format of Prometheus. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Final

from sbredis.workers.observing._counts import BOUNDS, Counts, Histogram

__all__ = ["CONTENT_TYPE", "prometheus"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_COUNTERS: Final = {
    "received": ("messages_received_total", "Messages received."),
    "completed": ("messages_completed_total", "Messages completed."),
    "abandoned": ("messages_abandoned_total", "Messages abandoned; they come again."),
    "dead_lettered": ("messages_dead_lettered_total", "Messages moved to the dead-letter queue."),
    "deferred": ("messages_deferred_total", "Messages deferred."),
    "given_back": ("messages_given_back_total", "Messages given back without counting a delivery."),
    "errors": ("handler_errors_total", "Calls of handlers that raised an error."),
    "settlements_failed": ("settlements_failed_total", "Messages whose settlement failed."),
    "locks_lost": ("locks_lost_total", "Messages whose lock was lost while their handler ran."),
}
_HISTOGRAMS: Final = {
    "handling": ("handling_seconds", "How long handlers took."),
    "lag": ("lag_seconds", "How long messages had waited in the entity when their handlers started."),
}


def prometheus(namespace: str, entities: Mapping[str, Counts]) -> str:
    """Return the counts of all entities, and nothing else, as Prometheus reads them."""
    return "".join(f"{line}\n" for line in _lines(namespace, entities))


def _lines(namespace: str, entities: Mapping[str, Counts]) -> Iterator[str]:
    labels = {entity: f'namespace="{_escaped(namespace)}",entity="{_escaped(entity)}"' for entity in sorted(entities)}
    for attribute, (name, text) in _COUNTERS.items():
        yield from _head(name, "counter", text)
        for entity, label in labels.items():
            yield f"sbredis_worker_{name}{{{label}}} {getattr(entities[entity], attribute)}"
    yield from _head("handlers_running", "gauge", "Handlers that are running.")
    for entity, label in labels.items():
        yield f"sbredis_worker_handlers_running{{{label}}} {entities[entity].running}"
    for attribute, (name, text) in _HISTOGRAMS.items():
        yield from _head(name, "histogram", text)
        for entity, label in labels.items():
            histogram: Histogram = getattr(entities[entity], attribute)
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
