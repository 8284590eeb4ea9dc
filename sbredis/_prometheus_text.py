"""The text format of Prometheus. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final, Literal

__all__ = ["CONTENT_TYPE", "family", "histogram", "labels", "text_of"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


def labels(**values: str) -> str:
    """Return labels with their values, in the given order."""
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in values.items())


def family(
    name: str, kind: Literal["counter", "gauge"], text: str, samples: Iterable[tuple[str, float]]
) -> Iterator[str]:
    """Yield the lines of a measure: its head, and a line for each of its labels. Empty labels are left out."""
    yield from _head(name, kind, text)
    yield from (_line(name, label, value) for label, value in samples)


def histogram(
    name: str, text: str, bounds: Sequence[float], samples: Iterable[tuple[str, Sequence[int], float]]
) -> Iterator[str]:
    """Yield the lines of a histogram. For each label there are the counts between the bounds, and the sum of values."""
    yield from _head(name, "histogram", text)
    ends = [*(f"{bound:g}" for bound in bounds), "+Inf"]
    for label, counts, total in samples:
        sums = list(accumulate(counts))
        for end, count in zip(ends, sums, strict=True):
            yield _line(f"{name}_bucket", f'{label},le="{end}"', count)
        yield _line(f"{name}_sum", label, total)
        yield _line(f"{name}_count", label, sums[-1])


def text_of(lines: Iterable[str]) -> str:
    """Return lines as one text."""
    return "".join(f"{line}\n" for line in lines)


def _head(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP sbredis_{name} {text}"
    yield f"# TYPE sbredis_{name} {kind}"


def _line(name: str, label: str, value: float) -> str:
    return f"sbredis_{name}{{{label}}} {value!r}" if label else f"sbredis_{name} {value!r}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
