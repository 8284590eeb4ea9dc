"""A partition that is called through redis-py, and rounds of such calls that are measured in turn."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from sbredis.engine import (
    NO_CALL_ID,
    CallId,
    CreditGrant,
    Delivery,
    Granted,
    Lock,
    Outgoing,
    Partition,
    PartitionSettings,
    Request,
    SentGrant,
    new_token,
)
from sbredis.engine._grants import MAXIMUM_CREDIT
from sbredis.engine._scripts import load, operations, whole_library

if TYPE_CHECKING:
    from redis import Redis

__all__ = [
    "CALLS",
    "LARGE",
    "Competitor",
    "Engine",
    "Form",
    "alternate",
    "engine_round",
    "first_token",
    "given_by",
    "server_cpu",
    "server_time",
]

T = TypeVar("T")
LARGE = PartitionSettings(quota=10**14, largest_message=10**7, lock_duration=10**9)
"""The settings of a partition that takes everything."""


Form = Literal["scripts", "library"]
"""How a server has the operations: as single scripts, or as functions of one library."""
CALLS = ("cmdstat_evalsha", "cmdstat_fcall")
"""The names of calls in both forms in the statistics of a server."""


class Engine:
    """One partition, called through redis-py one call at a time."""

    now: int | None = None
    """The time of a test clock."""

    def __init__(
        self, client: Redis, entity: str, settings: PartitionSettings | None = None, *, form: Form = "library"
    ) -> None:
        self._client = client
        self._hashes: dict[str, str] = {}
        if form == "scripts":
            self._hashes = {name: client.script_load(load(name).source) for name in operations()}
        else:
            client.function_load(whole_library().source, replace=True)
        self._number = self._grants = 0
        self.partition = Partition(
            "bench", "abc", entity, "incarnation", 1, settings or PartitionSettings(quota=10**14)
        )
        self.ask(self.partition.configure(create=True))

    def ask(self, request: Request[T]) -> T:
        return request.read(self.put(self._client, request))

    def put(self, client: Any, request: Request[Any]) -> Any:
        """Make a call, or add it to a pipeline. The caller reads the reply."""
        keys = request.keys
        script = request.script
        first: tuple[Any, ...] = (b"run",) if script.takes_run_id else ()
        if not self._hashes:
            return client.fcall(f"{whole_library().name}_{script.name}", len(keys), *keys, *first, *request.arguments)
        return client.evalsha(self._hashes[script.name], len(keys), *keys, *first, *request.arguments)

    def call_id(self) -> CallId:
        self._number += 1
        return CallId("lane", self._number)

    def send(self, payloads: Iterable[bytes]) -> None:
        self.ask(self.partition.send(self.call_id(), [Outgoing(payload) for payload in payloads]))

    def granting(
        self, wanted: int, token: str, *, session: str | None = None, source: str | None = None, delete: bool = False
    ) -> Request[Granted]:
        """Return a grant that ends with the reply, of a receiver of its own. ``token`` is a :func:`first_token`, or in
        a session that of its lock.
        """
        self._grants += 1
        prefix = token[:8] if session is None else f"{self._grants:08}"
        grant = CreditGrant.ending(self._grants, "run", prefix, wanted, room=1 << 22, hands=MAXIMUM_CREDIT)
        of = source or ("" if session is None else f"={session}")
        return self.partition.grant([SentGrant(token, b"", of, grant, delete)], NO_CALL_ID._replace(now=self.now))

    def receive(self, wanted: int, token: str, *, session: str | None = None) -> Sequence[Delivery]:
        return given_by(self.ask(self.granting(wanted, token, session=session)))

    def receive_and_delete(self, wanted: int) -> Sequence[Delivery]:
        return given_by(self.ask(self.granting(wanted, first_token(), delete=True)))

    def settle_all(self, wanted: int) -> None:
        token = first_token()
        locks = [Lock(token, message.name) for message in self.receive(wanted, token)]
        assert len(locks) == wanted
        assert not self.ask(self.partition.complete(self.call_id(), locks)).lost


def first_token() -> str:
    """Return the token of the first gift of a new receiver."""
    return f"{new_token()[:8]}AAB"


def given_by(granted: Granted) -> Sequence[Delivery]:
    """Return the messages that a call with one grant has brought."""
    (reply,) = granted.credits
    return reply.gifts[0].messages if reply.gifts else ()


def server_cpu(client: Redis) -> float:
    """Return the seconds of processor time that the server has used."""
    used: dict[str, float] = client.info("cpu")
    return used["used_cpu_user"] + used["used_cpu_sys"]


def server_time(client: Redis) -> float:
    """Return the ms that scripts and functions have held the server since its statistics were reset."""
    told: Any = client.info("commandstats")
    return sum(float(told[name]["usec"]) for name in CALLS if name in told) / 1000


def engine_round(engine: Engine, batch: int, body: bytes, calls: int) -> None:
    payloads = [body] * batch
    for _ in range(calls):
        engine.send(payloads)
        engine.settle_all(batch)


Competitor = tuple[str, Callable[[int], None]]


def alternate(
    client: Redis, competitors: list[Competitor], calls: int, batch: int, rounds: int
) -> list[tuple[float, float]]:
    """Return each competitor's medians of server CPU and wall time for a message, in µs. The first round is dropped."""
    measured: list[list[tuple[float, float]]] = [[] for _ in competitors]
    for number in range(rounds + 1):
        for place, (_, run) in enumerate(competitors):
            cpu, wall = server_cpu(client), time.perf_counter()
            run(calls)
            wall, cpu = time.perf_counter() - wall, server_cpu(client) - cpu
            if number:
                measured[place].append((cpu / calls / batch * 1e6, wall / calls / batch * 1e6))
    return [(statistics.median(c for c, _ in one), statistics.median(w for _, w in one)) for one in measured]
