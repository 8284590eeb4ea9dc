"""Moves of messages from one partition to a partition of another entity. Pure: the functions here make requests.

Within a slot, one transaction withdraws the messages and stores them at their destination. Between slots there are
three calls. The source *freezes* messages as a batch, the destination *takes* the batch, and the source *settles* it
by the verdict of the destination. None of these calls needs a lane, because any client may repeat each of them at any
time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Literal, NamedTuple

from sbredis._quoting import quoted
from sbredis._unreadable import decodes
from sbredis.engine._bands import number_of, side_of
from sbredis.engine._keys import entity_of, state_key
from sbredis.engine._packing import MAXIMUM_CALL_MESSAGES, MAXIMUM_CHANGES_BYTES, named, within
from sbredis.engine._partition import CallId, Partition, new_token
from sbredis.engine._request import Request
from sbredis.engine._results import Delivery, Sent, deliveries, run_of
from sbredis.engine._scripts import load
from sbredis.engine._transaction import COMMON_ARGUMENTS, Operation, Step
from sbredis.engine._upcoming import MOST_ASKED
from sbredis.transport import Argument

__all__ = [
    "MAXIMUM_MOVE_BYTES",
    "MOST_HOPS",
    "Batch",
    "Destination",
    "Destroyed",
    "Origin",
    "Taken",
    "Verdict",
    "Waiting",
    "calling",
    "destroy_source",
    "forget_source",
    "freeze",
    "outgoing",
    "read_batch",
    "read_call",
    "settle_batch",
    "take",
    "withdraw",
]

MOST_HOPS = 4
"""How often a message may be forwarded. Azure has the same limit."""

MAXIMUM_MOVE_BYTES = 2 * 1024 * 1024
"""The largest total size of the messages of one move; a single message may be larger."""

Verdict = Literal["taken", "back", "again", "refused"]

_MOST_CHANGES = MAXIMUM_CHANGES_BYTES + 4096
"""The largest size of changed properties with the reason for which a message is given up."""
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*", re.ASCII)


class Destination(NamedTuple):
    """A partition to which messages are moved."""

    entity: str
    """The id of the entity."""
    number: int
    """The number of the partition in the namespace, counted from 0."""

    def __str__(self) -> str:
        return f"{self.entity}:{self.number}"


class Origin(NamedTuple):
    """A partition from which messages are moved, as it was made once."""

    entity: str
    """The id of the entity."""
    birth: str
    """A random text that no other partition ever has."""

    def __str__(self) -> str:
        return f"{self.entity}:{self.birth}"


class Batch(NamedTuple):
    """Messages of one source that are being moved to one destination."""

    destination: Destination
    incarnation: str
    """The incarnation of the destination."""
    number: int
    """A number that rises from batch to batch of the source."""
    names: tuple[str, ...]
    """The names of the messages at the source, in the order of the move."""
    purpose: bytes = b""
    """The text that was given to :func:`freeze`."""


class Waiting(NamedTuple):
    """The messages of a partition that wait to be moved."""

    more: bool
    """Whether due work was left. Then nothing was read, and the caller makes the call again."""
    now: int
    """The time of the partition, in ms since 1970."""
    birth: str
    batches: tuple[Batch, ...]
    """The outstanding batches."""
    messages: tuple[Delivery, ...]
    """The first messages that wait. The state is ``a`` for an active message, and ``x`` for a transfer."""
    onward: int
    """The place of the next message, if more may wait; 0 at the end."""


class Taken(NamedTuple):
    """The answer of a destination."""

    more: bool
    verdict: str
    """- ``taken``: the messages are stored, by this call or an earlier one.
    - ``again``: none was stored, because the source was rolled back; the messages in ``names`` were stored before.
    - ``over``: a later batch of this source was judged before, so this one will never be stored.
    - ``door``: the source is new here, and the caller does not know the door, which is in ``detail``.
    - ``QUOTA``, ``DISABLED``, ``TOOLARGE``, ``SESSIONS``: the batch will never be stored. ``detail`` is the detail of
      this refusal; empty if one call could not carry the messages.
    """
    detail: str
    names: tuple[str, ...]
    strangers: tuple[Origin, ...]
    """If the source is new here, some other origins. The caller may check whether their entities still exist."""


class Destroyed(NamedTuple):
    """The result of a step that deletes a partition."""

    more: bool
    """Whether another step is needed."""
    birth: str
    """The birth of the partition; empty if it was not there."""
    destinations: tuple[str, ...]
    """The ids of the entities that may remember this partition as a source."""


def outgoing(
    source: Partition,
    *,
    wanted: int = MAXIMUM_CALL_MESSAGES,
    room: int = MAXIMUM_MOVE_BYTES,
    start: int = 0,
    now: int | None = None,
) -> Request[Waiting]:
    """Return the outstanding batches of a partition, and the first messages that wait to be moved.

    ``start`` is the place where to begin, if the caller skips messages whose destination cannot be reached.
    """
    within("wanted", wanted, 1, MAXIMUM_CALL_MESSAGES)
    within("room", room, 1, 1 << 30)
    within("start", start, 0, 1 << 53)
    return _outgoing(source, {"wanted": wanted, "room": room, "start": start, "batch": ""}, now)


def read_batch(source: Partition, destination: Destination, *, now: int | None = None) -> Request[Waiting]:
    """Return the outstanding batch for a destination, with all its messages."""
    return _outgoing(source, {"wanted": 1, "room": 1, "start": 0, "batch": _key(destination)}, now)


def _outgoing(source: Partition, scalars: dict[str, Argument], now: int | None) -> Request[Waiting]:
    return _repeatable(source.request("outgoing", CallId("", 0, now), _waiting, scalars))


def freeze(
    source: Partition,
    birth: str,
    destination: Destination,
    incarnation: str,
    messages: Sequence[Delivery],
    *,
    purpose: bytes = b"",
    now: int | None = None,
) -> Request[Batch | None]:
    """Freeze messages as the next batch for a destination; the result is ``None`` if there is no batch.

    ``birth`` is the birth of the source when the messages were read. A source that was made again gives the same names
    to other messages. ``purpose`` is stored with the batch. It tells every mover of the batch what to make of the
    messages, if this does not follow from the messages themselves.

    Messages that are not there any more as they were read are left out. If a batch for the destination is outstanding,
    nothing is changed, and the result is that batch.
    """

    def read(reply: list[Any]) -> Batch | None:
        number, holder, runs, stored = int(reply[1]), reply[2].decode(), reply[3], reply[4]
        return Batch(destination, holder, number, _names(runs), stored) if number else None

    within("the size of the purpose", len(purpose), 0, 2 * MAXIMUM_CHANGES_BYTES)
    scalars: dict[str, Argument] = {"destination": _key(destination), "holder": incarnation, "birth": birth}
    scalars["purpose"] = purpose
    return _repeatable(source.request("freeze", CallId("", 0, now), read, scalars, _exact(messages)))


def settle_batch(
    source: Partition,
    birth: str,
    destination: Destination,
    number: int,
    verdict: Verdict,
    *,
    names: Sequence[str] = (),
    changes: Mapping[str, bytes] | None = None,
    now: int | None = None,
) -> Request[bool]:
    """End a batch: delete the messages that are at the destination, and return the others to their places.

    With ``again``, ``names`` are the messages that are at the destination. With ``refused``, ``changes`` has the
    messages that were refused for good, and their changed properties, which contain the reason. The result is false if
    the batch is not outstanding.
    """
    within("number", number, 1, 999_999_999_999_999)
    if verdict not in {"taken", "back", "again", "refused"}:
        raise ValueError(f"{quoted(verdict)} is not a verdict")
    if bool(names) is not (verdict == "again") or bool(changes) is not (verdict == "refused"):
        raise ValueError("names belong to the verdict 'again', and changes to the verdict 'refused'")
    rest: list[Argument] = named(names) if names else []
    for name, changed in (changes or {}).items():
        if type(changed) is not bytes or not 0 < len(changed) <= _MOST_CHANGES:
            raise ValueError(f"changed properties must be 1 to {_MOST_CHANGES} bytes")
        rest += (*named([name]), changed)

    def read(reply: list[Any]) -> bool:
        return bool(reply[1])

    scalars: dict[str, Argument] = {
        "destination": _key(destination),
        "batch": number,
        "birth": birth,
        "verdict": verdict,
    }
    return _repeatable(source.request("settle_batch", CallId("", 0, now), read, scalars, rest))


def withdraw(source: Partition, birth: str, messages: Sequence[Delivery]) -> Operation:
    """Return the operation that removes messages, in a transaction that stores them at their destination."""
    return Operation(source, Step("withdraw", (birth, *_exact(messages))))


def take(
    destination: Partition,
    origin: Origin,
    batch: Batch,
    door: str,
    sending: Request[Sent] | None,
    *,
    now: int | None = None,
) -> Request[Taken]:
    """Store the messages of a batch at their destination, unless this batch was judged there before.

    ``sending`` is the request that would send or publish the messages of the batch, in their order. It is ``None`` if
    one call cannot carry them; the verdict is then ``TOOLARGE``. ``door`` must have been learnt before the batch was
    read from its source.
    """
    operation, keys = "toolarge", tuple(destination.keys)
    rest: tuple[Argument, ...] = ()
    if sending is not None:
        operation, keys, rest = sending.script.name, sending.keys, sending.arguments[COMMON_ARGUMENTS:]
        if operation not in {"send", "publish"} or keys[: len(destination.keys)] != destination.keys:
            raise ValueError(f"{operation!r} is not a request that sends to this destination")
    scalars: dict[str, Argument] = {
        "origin": _origin(origin),
        "batch": batch.number,
        "names": _runs(batch.names),
        "door": door,
        "operation": operation,
    }
    request = destination.request("take", CallId("", 0, now), _taken, scalars, rest)
    return _repeatable(request._replace(keys=keys))


def forget_source(destination: Partition, origins: Sequence[Origin], *, now: int | None = None) -> Request[int]:
    """Forget sources whose partitions were destroyed. The result says how many of them were known."""
    if not 1 <= len(origins) <= MAXIMUM_CALL_MESSAGES:
        raise ValueError(f"a call takes 1 to {MAXIMUM_CALL_MESSAGES} origins, not {len(origins)}")

    def read(reply: list[Any]) -> int:
        return int(reply[1])

    scalars: dict[str, Argument] = {"door": new_token()}
    listed = [_origin(origin) for origin in origins]
    return _repeatable(destination.request("forget_source", CallId("", 0, now), read, scalars, listed))


def calling(namespace: str, salt: str, entities: Sequence[str]) -> Request[tuple[bool, ...]]:
    """Ask the partitions of these entities in the slot of ``salt`` whether they wait for a mover."""
    within("the number of partitions", len(entities), 1, MOST_ASKED)
    keys = tuple(state_key(namespace, salt, entity) for entity in entities)

    def read(reply: list[int]) -> tuple[bool, ...]:
        return tuple(map(bool, reply))

    return Request(load("calling"), keys, (), read)


@decodes("An announcement of a partition")
def read_call(payload: bytes) -> str:
    """Return the id of the entity that has called for a mover.

    Raises :class:`~sbredis.exceptions.DataLayoutError` for any other payload.
    """
    state, word = payload.split(b" ")
    if word != b"move":
        raise ValueError("it does not call for a mover")
    return entity_of(state)


def destroy_source(partition: Partition, *, share: int = 500) -> Request[Destroyed]:
    """Delete a partition, and return the entities that may remember it as a source of moves."""

    def read(reply: list[Any]) -> Destroyed:
        return Destroyed(bool(reply[0]), reply[1].decode(), tuple(reply[2].decode().split()))

    request = partition.destroy(share=share)
    return Request(request.script, request.keys, request.arguments, read, request.repeatable)


# -- arguments and replies ---------------------------------------------------------------------------------------------


def _repeatable(request: Request[Any]) -> Request[Any]:
    return request._replace(repeatable=True)


def _key(destination: Destination) -> str:
    if not _WORD.fullmatch(destination.entity):
        raise ValueError(f"{quoted(destination.entity)} is not an entity id")
    within("the number of a partition", destination.number, 0, 999_999)
    return str(destination)


def _origin(origin: Origin) -> str:
    if not _WORD.fullmatch(origin.entity) or not re.fullmatch(r"[\w-]+", origin.birth, re.ASCII):
        raise ValueError(f"{quoted(str(origin))} is not an origin")
    return str(origin)


def _exact(messages: Sequence[Delivery]) -> list[Argument]:
    """Return the name of each message and its changed properties."""
    names = named([message.name for message in messages])
    return [part for name, message in zip(names, messages, strict=True) for part in (name, message.changes)]


def _runs(names: Sequence[str]) -> str:
    """Return names as runs: ``d4-6,9``."""
    named(names)
    runs: list[str] = []
    rising = groupby(enumerate(names), lambda pair: (side_of(pair[1]), number_of(pair[1]) - pair[0]))
    for (side, _), group in rising:
        numbers = [number_of(name) for _, name in group]
        runs.append(f"{side}{numbers[0]}" if len(numbers) == 1 else f"{side}{numbers[0]}-{numbers[-1]}")
    return ",".join(runs)


def _names(runs: bytes) -> tuple[str, ...]:
    names: list[str] = []
    for run in runs.decode().split(",") if runs else ():
        first, _, last = run.partition("-")
        side = side_of(first)
        names += (
            f"{side}{each}" for each in run_of(first.removeprefix(side), last, MAXIMUM_CALL_MESSAGES - len(names))
        )
    return tuple(names)


def _waiting(reply: list[Any]) -> Waiting:
    more, now, birth, listed, given, states, records, extras, onward = reply
    batches: list[Batch] = []
    for at in range(0, len(listed), 5):
        key, number, incarnation, runs, purpose = listed[at : at + 5]
        entity, _, partition = key.decode().rpartition(":")
        place = Destination(entity, int(partition))
        batches.append(Batch(place, incarnation.decode(), int(number), _names(runs), purpose))
    messages = deliveries(given, records, extras, states.decode())
    return Waiting(bool(more), int(now), birth.decode(), tuple(batches), messages, int(onward))


def _taken(reply: list[Any]) -> Taken:
    more, verdict, detail, runs, strangers = reply
    listed = (each.decode().rpartition(":") for each in strangers)
    origins = tuple(Origin(entity, birth) for entity, _, birth in listed)
    return Taken(bool(more), verdict.decode(), detail.decode(), _names(runs), origins)
