"""Transactions: operations on partitions of one slot that one script runs, all of them or none. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from sbredis._quoting import quoted
from sbredis._unreadable import decodes
from sbredis.engine._codec import Changes, decode_changes, encode_changes
from sbredis.engine._keys import KINDS, entity_of
from sbredis.engine._lifecycle import NEVER
from sbredis.engine._moving import exact_names
from sbredis.engine._packing import MAXIMUM_ID_BYTES, Outgoing, within
from sbredis.engine._partition import COMMON_ARGUMENTS, CallId, Partition
from sbredis.engine._placement import MOST_SLOTS
from sbredis.engine._refusals import refused
from sbredis.engine._request import Request
from sbredis.engine._results import Delivery, names, spelled_out
from sbredis.engine._scripts import facts_of, facts_of_step
from sbredis.exceptions import ScriptRefusedError, ServiceBusError
from sbredis.transport import Argument, Keys

__all__ = [
    "MAXIMUM_OPERATIONS",
    "MAXIMUM_PARTICIPANTS",
    "MAXIMUM_TRANSACTIONS",
    "Operation",
    "Recipient",
    "Transacted",
    "TransactedRenewal",
    "TransactedResult",
    "TransactedSend",
    "TransactedTogether",
    "TransactionStep",
    "advance",
    "frees",
    "once",
    "recipient_of",
    "transact",
    "transact_together",
    "transfer",
    "withdraw",
]

MAXIMUM_PARTICIPANTS = 8
MAXIMUM_OPERATIONS = 100
MAXIMUM_TRANSACTIONS = 100
"""The largest number of transactions of one call."""

_WATERMARK = re.compile(r"[ -~]{1,128}")


class TransactionStep(NamedTuple):
    """An operation that only a transaction has, because there is no script that does it alone."""

    name: str
    arguments: tuple[Argument, ...]


class Operation(NamedTuple):
    """One operation of a transaction."""

    partition: Partition
    request: Request[Any] | TransactionStep
    """The request that makes this operation alone, whose call id is not used; or a step."""


class TransactedSend(NamedTuple):
    """The result of a send or a publish in a transaction."""

    first: int
    """The number of the first message. The numbers of the other messages follow."""
    dropped: tuple[int, ...]
    """The places, counted from 0, of the messages that were dropped as duplicates."""
    scheduled: tuple[int, ...]
    """On a topic: the numbers of the messages that will be published later."""


class TransactedRenewal(NamedTuple):
    """The result of a renewal of locks in a transaction."""

    lock: int
    """The ms for which the messages are locked, counted from the run of the script."""
    apart: tuple[str, ...]
    """The messages that have a lease of their own, because only a part of their lease was named."""


TransactedResult: TypeAlias = TransactedSend | TransactedRenewal | int | None
"""The result of an operation of a transaction."""


class Transacted(NamedTuple):
    """The result of a transaction."""

    more: bool
    """Whether due work is left in a partition."""
    results: tuple[TransactedResult, ...]
    """The result of each send, publish and renewal; for each watermark the number that is stored with it; None for the
    other operations."""
    forgotten: int = 0
    """The number of keys that partitions forgot too early, because there was no room for the keys of the transaction.
    """


class TransactedTogether(NamedTuple):
    """The result of a call of several transactions."""

    more: bool
    """Whether due work is left in a partition."""
    outcomes: tuple[Transacted | ServiceBusError, ...]
    """The result or the refusal of each transaction."""


def once(partition: Partition, keys: Mapping[bytes, int]) -> Operation:
    """Remember keys, each for its window in ms; the transaction is refused if the partition knows one of them."""
    if not 1 <= len(keys) <= MAXIMUM_OPERATIONS:
        raise ValueError(f"a transaction takes 1 to {MAXIMUM_OPERATIONS} keys, not {len(keys)}")
    arguments: list[Argument] = []
    for key, window in keys.items():
        if not 1 <= len(key) <= MAXIMUM_ID_BYTES:
            raise ValueError(f"a key has 1 to {MAXIMUM_ID_BYTES} bytes, not {len(key)}")
        within("window", window, 1, NEVER)
        arguments += (window, key)
    return Operation(partition, TransactionStep("once", tuple(arguments)))


def advance(partition: Partition, name: bytes, expected: str | None, value: str | None) -> Operation:
    """Give a watermark a new value; the transaction is refused if its value is not the expected one.

    ``None`` means that the watermark is not there. The number of the last message that the transaction sends to the
    partition is stored with the value.
    """
    if not 1 <= len(name) <= MAXIMUM_ID_BYTES:
        raise ValueError(f"the name of a watermark has 1 to {MAXIMUM_ID_BYTES} bytes, not {len(name)}")
    for each in (expected, value):
        if each is not None and not _WATERMARK.fullmatch(each):
            raise ValueError(f"a watermark has 1 to 128 printable ASCII characters, unlike {quoted(each)}")
    if expected is None and value is None:
        raise ValueError("a watermark that is not there cannot be removed")
    return Operation(partition, TransactionStep("advance", (name, expected or "", value or "")))


def withdraw(source: Partition, birth: str, messages: Sequence[Delivery]) -> Operation:
    """Return the operation that removes messages, in a transaction that stores them at their destination."""
    return Operation(source, TransactionStep("withdraw", (birth, *exact_names(messages))))


class Recipient(NamedTuple):
    """The destination of a transfer: a partition of an entity in another slot."""

    entity: str
    """The id of the entity."""
    incarnation: str
    number: int
    """The number of the partition in its namespace."""
    path: str
    """The name of the entity, by which a redrive finds it again."""

    def changes(self, before: Changes | None = None) -> bytes:
        """Return the changed properties of a message for this destination."""
        return encode_changes(replace(before or Changes(), destination=" ".join(map(str, self))))


def recipient_of(message: Delivery) -> Recipient | None:
    """Return the destination of a transfer, also if it is a dead letter now; ``None`` if it names none."""
    return _recipient_in(message.changes)


@lru_cache(maxsize=16)  # messages that follow each other mostly have the same destination
@decodes("The destination of a transfer")
def _recipient_in(changes: bytes) -> Recipient | None:
    text = decode_changes(changes).destination
    if text is None:
        return None
    entity, incarnation, number, path = text.split(" ", 3)
    if not number.isdigit() or not 0 <= int(number) < MOST_SLOTS:
        raise ValueError("the partition is malformed")
    return Recipient(entity, incarnation, int(number), path)


def transfer(
    partition: Partition, messages: Sequence[Outgoing], destination: Partition, number: int, path: str
) -> Operation:
    """Store messages for a partition of an entity in another slot, until a client moves them there.

    ``number`` is the number of the destination in its namespace, and ``path`` the name of its entity. The times to
    live, the due times and the ids of the messages are in their payloads, and count at the destination only.
    """
    destination.check_outgoing(messages)
    within("number", number, 0, MOST_SLOTS - 1)
    levelled = any(message.level for message in messages)
    recipient = Recipient(entity_of(destination.keys[0]), destination.incarnation, number, path)
    arguments: list[Argument] = ["l" * levelled, recipient.changes()]
    for message in messages:
        if levelled:
            arguments.append(message.level)
        arguments.append(message.payload)
    return Operation(partition, TransactionStep("transfer", tuple(arguments)))


def frees(operations: Sequence[Operation]) -> bool:
    """Return whether a transaction takes in no data, so that a server at its memory limit runs it, too."""
    return all(
        "freeing" in facts_of_step(request.name)
        if isinstance(request, TransactionStep)
        else request.at_limit or facts_of(request.script.name).freeing.always
        for _, request in operations
    )


def transact(call_id: CallId, operations: Sequence[Operation], *, in_one_slot: bool = True) -> Request[Transacted]:
    """Run operations on partitions, all of them or none. They must be ``in_one_slot`` of a cluster.

    The call id belongs to the partition of the first operation. The operations are applied in their order, but all of
    them are checked before the first is applied.
    """
    return _call(call_id, [operations], in_one_slot=in_one_slot)._replace(read=_transacted)


def transact_together(call_id: CallId, transactions: Sequence[Sequence[Operation]]) -> Request[TransactedTogether]:
    """Run several transactions in one call, one after the other; each happens or is refused on its own.

    The call id belongs to the partition of the first operation of the first transaction. A transaction sees the changes
    of the transactions before it. A call of one transaction is refused if the transaction is refused.
    """
    return _call(call_id, transactions)


def _call(call_id: CallId, transactions: Sequence[Sequence[Operation]], *, in_one_slot: bool = True) -> Request[Any]:
    if not 1 <= len(transactions) <= MAXIMUM_TRANSACTIONS:
        raise ValueError(f"a call has 1 to {MAXIMUM_TRANSACTIONS} transactions, not {len(transactions)}")
    places: dict[bytes, int] = {}
    participants: list[Partition] = []
    targets: list[bytes] = []
    rest: list[Argument] = []
    for operations in transactions:
        if not 1 <= len(operations) <= MAXIMUM_OPERATIONS:
            raise ValueError(f"a transaction takes 1 to {MAXIMUM_OPERATIONS} operations, not {len(operations)}")
        head, before = len(rest), len(targets)
        rest += (len(operations), 0)
        for partition, request in operations:
            keys = partition.keys
            if isinstance(request, TransactionStep):
                name, arguments = request
            elif keys != request.keys[: len(KINDS)]:
                raise ValueError(f"{request.script.name!r} is a request of another partition")
            else:
                name, arguments = request.script.name, request.arguments[COMMON_ARGUMENTS:]
                targets += request.keys[len(KINDS) :]
            place = places.get(keys[0])
            if place is None:
                participants.append(partition)
                place = places[keys[0]] = len(participants)
            rest += (place, name, len(arguments), *arguments)
        rest[head + 1] = len(targets) - before
    if in_one_slot and len({key.partition(b"}")[0] for key in places}) > 1:
        raise ValueError("the partitions of a transaction must be in one slot")
    if len(participants) > MAXIMUM_PARTICIPANTS:
        raise ValueError(
            f"a transaction takes up to {MAXIMUM_PARTICIPANTS} partitions of entities, not {len(participants)}"
        )
    others = " ".join(f"{each.incarnation} {each.version}" for each in participants[1:])
    request = participants[0].request("transact", call_id, _transacted_together, {"others": others}, rest)
    keys = participants[0].keys  # like those of each participant, they are packed once
    if len(participants) > 1 or targets:
        keys = Keys.joined([*(each.keys for each in participants), tuple(targets)])
    return request._replace(keys=keys, at_limit=all(map(frees, transactions)))


def _transacted(reply: list[Any]) -> Transacted:
    return _happened(bool(reply[0]), reply[1])


def _transacted_together(reply: list[Any]) -> TransactedTogether:
    more = bool(reply[0])
    return TransactedTogether(more, tuple(_refusal(one) or _happened(more, one) for one in reply[1:]))


def _refusal(text: bytes) -> ServiceBusError | None:
    """Return the error of a refused transaction, or None if the transaction happened."""
    if not text.startswith(b"!"):
        return None
    code, _, detail = text[1:].decode(errors="replace").partition(" ")
    return refused(ScriptRefusedError(code, detail))


def _happened(more: bool, text: bytes) -> Transacted:
    results = text.split(b"|")[:-1]
    forgotten = sum(int(one) for one in results if one.isdigit())
    return Transacted(more, tuple(map(_result, results)), forgotten)


def _result(text: bytes) -> TransactedResult:
    if text.startswith(b"="):
        return int(text[1:])
    if text.startswith(b"~"):
        lock, *apart = text[1:].split(b" ")
        return TransactedRenewal(int(lock), names(apart))
    if b";" not in text:
        return None
    first, dropped, scheduled = text.split(b";")
    return TransactedSend(int(first), tuple(map(int, dropped.split())), spelled_out(scheduled))
