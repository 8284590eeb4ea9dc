"""Measure reserved ranges and settlements: how long their calls hold the server, and what auditing costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, TypeVar

from benchmarks.engine_calls import LARGE, Engine, alternate, engine_round, server_time
from sbredis.engine import Outgoing, Planned, Request, plan, read_range, unpin

if TYPE_CHECKING:
    from redis import Redis

__all__ = ["compare_audited", "strain_reserved"]

RANGES = ((100_000, 200), (20_000, 4_000), (500, 65_000))
"""The ranges to measure: the number of messages, and the bytes of each."""
HOUR = 3_600_000


class Answer(Protocol):
    """The answer to a call that may have to be made again."""

    @property
    def more(self) -> bool: ...


A = TypeVar("A", bound=Answer)


class Ranges:
    """A reserved partition whose messages expire after an hour, and the times of its calls."""

    def __init__(self, client: Redis, count: int, size: int) -> None:
        self._client = client
        settings = replace(LARGE, dead_letter_expired=True, time_to_live=HOUR, reserved=True)
        self._engine = Engine(client, f"reserved{size}", settings)
        self._count = count
        share = min(1000, 4_000_000 // size)
        for _ in range(count // share):
            self._engine.ask(self._engine.partition.send(self._engine.call_id(), [Outgoing(b"x" * size)] * share))
        self.taken: dict[str, list[float]] = {}
        """The times of each call in ms."""

    def _held(self, label: str, request: Request[A]) -> A:
        self._client.config_resetstat()
        answer = self._engine.ask(request)
        self.taken.setdefault(label, []).append(server_time(self._client))
        return answer

    def _all(self, label: str, make: Callable[[], Request[A]]) -> A:
        """Make a call until nothing is left to do."""
        while (answer := self._held(label, make())).more:
            pass
        return answer

    def measure(self) -> None:
        """Plan all messages, read them, give them back, plan them again, and remove them."""
        of = self._engine.partition
        begun = self._held("plan (begins)", plan(of, 1, None, 0))
        planned = self._all("plan", lambda: plan(of, 1, begun.committed, self._count))
        self._read(planned)
        self._all("unpin", lambda: unpin(of, 1))
        begun = self._held("plan (begins)", plan(of, 1, None, 0))
        planned = self._all("plan", lambda: plan(of, 1, begun.committed, self._count))
        self._all("plan (removes)", lambda: plan(of, 1, planned.committed, 0))

    def _read(self, planned: Planned) -> None:
        after, more = planned.floor, True
        while more:
            part = self._held("read_range", read_range(self._engine.partition, planned.birth, after, planned.end))
            after, more = int(part.rows.names[-1]), part.more


def strain_reserved(client: Redis) -> None:
    """Print the longest time for which each call of a reservation blocks the server."""
    print("how long the server is held by the calls of a reservation, the median and the longest:")
    for count, size in RANGES:
        ranges = Ranges(client, count, size)
        ranges.measure()
        print(f"  {count:,} messages of {size:,} B that expire:")
        for label, times in ranges.taken.items():
            middle = sorted(times)[len(times) // 2]
            print(f"    {label:<22} {middle:6.2f} ms {max(times):6.2f} ms  of {len(times):,} calls", flush=True)


def compare_audited(client: Redis) -> None:
    """Print the cost of noting settlements: the same calls on a partition with and without the setting."""
    print("send + receive + complete with audit=True, server CPU a message:")
    body = b"x" * 200
    for batch in (1, 10, 100):
        plain = Engine(client, f"plain{batch}")
        audited = Engine(client, f"audited{batch}", replace(LARGE, audited=True))
        (without, _), (noted, _) = alternate(
            client,
            [
                ("plain", lambda calls: engine_round(plain, batch, body, calls)),  # noqa: B023 -- called at once
                ("audited", lambda calls: engine_round(audited, batch, body, calls)),  # noqa: B023 -- called at once
            ],
            max(30, 4000 // batch),
            batch,
            7,
        )
        print(
            f"  batches of {batch:>3}:  without {without:6.2f} µs  with {noted:6.2f} µs  {noted / without:4.2f} x",
            flush=True,
        )
