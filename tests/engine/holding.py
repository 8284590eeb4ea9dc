"""Sessions on the bench: the holder of the lock on a session, and the calls of the holder."""

from __future__ import annotations

from dataclasses import dataclass

from sbredis.engine import (
    Accepted,
    Content,
    Delivery,
    Lock,
    Mode,
    Outgoing,
    Received,
    SessionLock,
    SessionsListed,
    decode,
    encode,
    payload_offset,
)
from tests.engine.bench import Bench
from tests.engine.taking import first_token

__all__ = [
    "Holder",
    "accept",
    "accept_next",
    "body",
    "holder",
    "listed",
    "of_session",
    "peeked",
    "put",
    "traces",
]


def of_session(session: str, text: bytes = b"m") -> bytes:
    """Return the payload of a message of a session."""
    return encode(Content(text, session_id=session))


def body(message: Delivery) -> bytes:
    return decode(message.record, payload_offset(message.record)).body


async def put(
    bench: Bench, session: str, *bodies: bytes, time_to_live: int | None = None, due: int | None = None
) -> list[str]:
    """Send messages of a session; return their names."""
    messages = [Outgoing(of_session(session, text), time_to_live, due=due) for text in bodies]
    first = (await bench.send_all(*messages)).first
    return [str(first + place) for place in range(len(bodies))]


async def accept(bench: Bench, name: str, token: str = "") -> Accepted:
    return await bench.tell(bench.partition.accept_session(bench.call_id(), token or first_token(), name))


async def accept_next(bench: Bench, token: str = "") -> Accepted | None:
    """Lock the session that has been free for longest; return ``None`` if no session is free."""
    return await bench.tell(bench.accepting(token or first_token()))


async def holder(bench: Bench, name: str | None = None) -> Holder:
    """Accept a free session and return its holder."""
    token = first_token()
    accepted = await (accept_next(bench, token) if name is None else accept(bench, name, token))
    assert accepted is not None
    assert accepted.outcome == "taken", accepted
    return Holder(bench, SessionLock(accepted.session, token))


async def peeked(bench: Bench, name: str) -> bytes | None:
    """Return the state of a session, whoever has locked it."""
    return await bench.tell(bench.partition.peek_state(name, bench.at()))


async def listed(bench: Bench, wanted: int = 1000, after: str | None = None) -> SessionsListed:
    return await bench.tell(bench.partition.list_sessions(wanted, after, bench.at()))


async def traces(bench: Bench) -> dict[str, object]:
    """Return the content of the keys, without the partition's own settings, its last calls and its sentinel."""
    whole = await bench.whole()
    kinds = ("leases", "locks", "due", "sessions", "turns", "states", "refs", *(f"m{at}" for at in range(16)))
    found = {key.rpartition(":")[2]: held for key, (_, held) in whole.items()}
    return {kind: found[kind] for kind in kinds if kind in found}


@dataclass(frozen=True)
class Holder:
    """The holder of the lock on a session."""

    bench: Bench
    lock: SessionLock

    async def receive_more(self, wanted: int = 10, *, mode: Mode = "lock") -> Received:
        lock = self.lock
        return await self.bench.tell(self.bench.receiving(lock.token, wanted, mode=mode, session=lock.name))

    async def receive(self, wanted: int = 10, *, mode: Mode = "lock") -> list[Delivery]:
        return list((await self.receive_more(wanted, mode=mode)).messages)

    async def bodies(self, wanted: int = 10) -> list[bytes]:
        return [body(message) for message in await self.receive(wanted)]

    async def receive_deferred(self, *names: str, mode: Mode = "lock") -> Received:
        request = self.bench.partition.receive_deferred(
            self.bench.call_id(), self.lock.token, names, mode=mode, session=self.lock.name
        )
        return await self.bench.tell(request)

    def locks(self, *messages: Delivery | str, delay: int = 0, changes: bytes = b"") -> list[Lock]:
        names = [message if isinstance(message, str) else message.name for message in messages]
        return [Lock(self.lock.token, name, changes, delay) for name in names]

    async def complete(self, *messages: Delivery | str) -> tuple[str, ...]:
        """Complete messages; return those whose lock was lost."""
        return (await self.bench.tell(self.bench.partition.complete(self.bench.call_id(), self.locks(*messages)))).lost

    async def abandon(self, *messages: Delivery | str, delay: int = 0, counted: bool = True) -> None:
        locks = self.locks(*messages, delay=delay)
        settled = await self.bench.tell(self.bench.partition.abandon(self.bench.call_id(), locks, counted=counted))
        assert settled.lost == ()

    async def defer(self, *messages: Delivery | str) -> None:
        settled = await self.bench.tell(self.bench.partition.defer(self.bench.call_id(), self.locks(*messages)))
        assert settled.lost == ()

    async def dead_letter(self, *messages: Delivery | str) -> None:
        settled = await self.bench.tell(self.bench.partition.dead_letter(self.bench.call_id(), self.locks(*messages)))
        assert settled.lost == ()

    async def renew(self) -> int:
        return await self.bench.tell(self.bench.partition.renew_session(self.bench.call_id(), self.lock))

    async def release(self) -> int:
        return await self.bench.tell(self.bench.partition.release_session(self.bench.call_id(), self.lock))

    async def set_state(self, state: bytes | None) -> None:
        await self.bench.tell(self.bench.partition.set_state(self.bench.call_id(), self.lock, state))

    async def get_state(self) -> bytes | None:
        return await self.bench.tell(self.bench.partition.get_state(self.lock, self.bench.at()))
