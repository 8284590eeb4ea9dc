"""Measure reserved ranges and settlements: how long their calls hold the server, what a send beside a pin costs, and
what auditing costs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, TypeVar

from benchmarks.engine_calls import LARGE, Engine, alternate, engine_round, server_time
from sbredis.engine import Outgoing, Planned, Request

if TYPE_CHECKING:
    from redis import Redis

__all__ = ["compare_audited", "compare_pinned", "strain_reserved"]

RANGES = ((100_000, 200), (20_000, 4_000), (500, 65_000))
"""The ranges to measure: the number of messages, and the bytes of each."""
HOUR = 3_600_000
RUNS = 5
LONGEST_HOLD = 10.0
"""The goal for the time in ms for which a call of a reservation holds the server."""
PINNED = 100_000
DEAREST_SEND = 1.05
"""The goal for the cost of a send beside a pin, compared with the cost of the same send beside the same messages."""
LIFE = 20_000
"""The life of pinned messages in ms. It must be long enough to send and to pin them all."""


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
        self._message = Outgoing(b"x" * size)
        self._send(self._message)
        self.taken: dict[str, list[float]] = {}
        """The times of each call in ms."""

    def _send(self, message: Outgoing) -> None:
        share = min(1000, 4_000_000 // len(message.payload))
        for _ in range(self._count // share):
            self._engine.ask(self._engine.partition.send(self._engine.call_id(), [message] * share))

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
        """Plan all messages, read them, give them back, plan them again, and remove them; then plan overdue ones."""
        of = self._engine.partition
        begun = self._held("plan (begins)", of.plan(1, None, 0))
        planned = self._all("plan", lambda: of.plan(1, begun.committed, self._count))
        self._read(planned)
        self._all("unpin", lambda: of.unpin(1))
        begun = self._held("plan (begins)", of.plan(1, None, 0))
        planned = self._all("plan", lambda: of.plan(1, begun.committed, self._count))
        self._all("plan (removes)", lambda: of.plan(1, planned.committed, 0))
        self._send(self._message._replace(time_to_live=1))
        self._all("plan (expires)", lambda: of.plan(1, planned.committed, self._count))
        self._engine.ask(of.destroy())

    def _read(self, planned: Planned) -> None:
        after, more = planned.floor, True
        while more:
            part = self._held("read_range", self._engine.partition.read_range(planned.birth, after, planned.end))
            after, more = int(part.rows.names[-1]), part.more


def measured(client: Redis, count: int, size: int) -> dict[str, list[float]]:
    """Return the times of the calls on a new partition, in ms."""
    ranges = Ranges(client, count, size)
    ranges.measure()
    return ranges.taken


def strain_reserved(client: Redis) -> None:
    """Print the longest time for which each call of a reservation blocks the server.

    The same calls are made several times, and the shortest time of each counts: the machine may have interrupted the
    server in the others.
    """
    print(f"how long the server is held by the calls of a reservation, the median and the longest, best of {RUNS}:")
    for count, size in RANGES:
        runs = [measured(client, count, size) for _ in range(RUNS)]
        print(f"  {count:,} messages of {size:,} B that expire:")
        for label in runs[0]:
            times = [min(same) for same in zip(*(run[label] for run in runs), strict=False)]
            middle, longest = sorted(times)[len(times) // 2], max(times)
            told = "" if longest <= LONGEST_HOLD else f"  MISSED: the goal is {LONGEST_HOLD:g} ms"
            print(f"    {label:<22} {middle:6.2f} ms {longest:6.2f} ms  of {len(times):,} calls{told}", flush=True)


def filled(client: Redis, name: str, life: int | None) -> Engine:
    """Return a partition with many messages. With ``life``, they are pinned, and have expired since."""
    engine = Engine(client, name, replace(LARGE, dead_letter_expired=True, reserved=life is not None))
    began = time.monotonic()
    for _ in range(PINNED // 1000):
        messages = [Outgoing(b"x" * 200, time_to_live=life)] * 1000
        engine.ask(engine.partition.send(engine.call_id(), messages))
    if life is not None:
        begun = engine.ask(engine.partition.plan(1, None, 0))
        while (planned := engine.ask(engine.partition.plan(1, begun.committed, PINNED))).more:
            pass
        assert planned.rows == PINNED
        time.sleep(max(0.0, began + life / 1000 + 5 - time.monotonic()))
    return engine


def compare_pinned(client: Redis) -> None:
    """Print what a send costs beside pinned messages that have expired, and beside messages that have not."""
    print(f"a send beside a pin of {PINNED:,} expired messages, and beside as many waiting ones, server CPU a message:")
    body = b"x" * 200
    plain, pinned = filled(client, "waiting", None), filled(client, "pinned", LIFE)

    def sends(engine: Engine, batch: int) -> Callable[[int], None]:
        def round_of(calls: int) -> None:
            for _ in range(calls):
                engine.send([body] * batch)

        return round_of

    for batch in (1, 10, 100):
        competitors, calls = (
            [("waiting", sends(plain, batch)), ("pinned", sends(pinned, batch))],
            max(40, 1000 // batch),
        )
        (without, _), (beside, _) = alternate(client, competitors, calls, batch, 21)
        # The order matters as much as what is measured, so the same is measured in the other order.
        (again_beside, _), (again_without, _) = alternate(client, competitors[::-1], calls, batch, 21)
        without, beside = (without + again_without) / 2, (beside + again_beside) / 2
        ratio = beside / without
        told = "" if ratio <= DEAREST_SEND else f"  MISSED: the goal is {DEAREST_SEND:g} x"
        print(
            f"  batches of {batch:>3}:  waiting {without:6.2f} µs  pinned {beside:6.2f} µs  {ratio:4.2f} x{told}",
            flush=True,
        )


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
