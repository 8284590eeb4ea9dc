"""Where in the slots of a cluster a namespace lies, and which of its partitions holds what. Pure.

A namespace of P partitions cuts the slots 0..16383 into P equal slices and puts partition p into the middle of the
p-th. However many masters share the slots evenly, each then has as many partitions as any other, give or take one. (The
slots nearest the middles are good enough for that as long as partitions times masters is at most 16384.) A key goes
to the slot of its partition because it contains the partition's *salt*, three characters of 0-9a-z, in braces.

Everything here is part of the layout of the data: another answer for the same question would look for messages where
they are not. The tests hold the answers.
"""

from __future__ import annotations

from binascii import crc32
from collections.abc import Mapping
from functools import cache
from itertools import product
from string import ascii_lowercase, digits

from sbredis.engine._names import name_key
from sbredis.transport import SLOTS, key_slot

__all__ = ["MOST_PARTITIONS", "partition_for_key", "partition_for_name", "registry_salt", "salts", "slot_range"]

MOST_PARTITIONS = 1024

# Slot 8192. No partition is there: the middle one of an odd number is in 8191, and all others are 8 slots away or more.
_REGISTRY_SALT = "fjl"

# At most two neighbouring slots have no salt, so the nearest slot that has one is never further off than this.
_SEARCHED = 8


def salts(partitions: int) -> tuple[str, ...]:
    """The salts of a namespace's partitions, in their order. No two share a slot.

    Raises :class:`TypeError` or :class:`ValueError` for what is not a number of partitions from 1 to 1024.
    """
    return _salts(_number_of_partitions(partitions))


def slot_range(partition: int, partitions: int) -> range:
    """The slice of the slots in which a partition has its slot; the slices of a namespace cover all slots."""
    count = _number_of_partitions(partitions)
    if not 0 <= _whole(partition, "a partition") < count:
        raise ValueError(f"of {count} partitions there is none with number {partition}; they count from 0")
    return range(partition * SLOTS // count, (partition + 1) * SLOTS // count)


def registry_salt() -> str:
    """The salt of the registry's keys, the same for every namespace.

    Its slot is no partition's. Nothing would break if it were, since the keys differ in what follows the salt. But a
    call that mixes keys of the registry with a partition's is a fault, and so every cluster refuses it.
    """
    return _REGISTRY_SALT


def partition_for_name(name: str, partitions: int) -> int:
    """The partition in which the unpartitioned entity of this name lives whole.

    Names that differ in the case of ASCII letters only are one name.
    """
    return _hash(name_key(name)) % _number_of_partitions(partitions)


def partition_for_key(key: str | bytes, partitions: int) -> int:
    """The partition in which messages of this session id, partition key or message id live.

    A message id that is no text is given as bytes. A text with an unpaired surrogate raises
    :class:`UnicodeEncodeError`, which is a :class:`ValueError`: it cannot be sent, and
    :func:`sbredis.engine._names.identifier` says so in clearer words before it comes here.
    """
    return _hash(key) % _number_of_partitions(partitions)


@cache
def _salts(partitions: int) -> tuple[str, ...]:
    salt_of = _salt_of_slots()
    chosen: list[str] = []
    for partition in range(partitions):
        # Twice P times a position is a whole number, for the middle of a slice as for the middle of a slot.
        middle = (2 * partition + 1) * SLOTS
        near = middle // (2 * partitions)
        _, salt = min(
            (abs((2 * slot + 1) * partitions - middle), salt_of[slot])
            for slot in range(near - _SEARCHED, near + _SEARCHED)
            if slot in salt_of
        )
        chosen.append(salt)
    return tuple(chosen)


@cache
def _salt_of_slots() -> Mapping[int, str]:
    """The smallest salt of each slot that has one. Made when it is first needed: it takes some 20 ms."""
    found: dict[int, str] = {}
    for characters in product(digits + ascii_lowercase, repeat=3):
        salt = "".join(characters)
        found.setdefault(key_slot(salt.encode()), salt)
    return found


def _hash(text: str | bytes) -> int:
    """32 bits that depend on the text, or on the bytes, alone, in every process and on every machine.

    CRC32 alone leaves partitions empty: it is linear, so keys that count in eights, say, reach a part of the remainders
    only. What follows it is the finishing step of MurmurHash3, after which every bit depends on all others.
    """
    mixed = crc32(text if isinstance(text, bytes) else text.encode())
    mixed = ((mixed ^ mixed >> 16) * 0x85EBCA6B) & 0xFFFFFFFF
    mixed = ((mixed ^ mixed >> 13) * 0xC2B2AE35) & 0xFFFFFFFF
    return mixed ^ mixed >> 16


def _number_of_partitions(value: object) -> int:
    number = _whole(value, "the number of partitions")
    if not 1 <= number <= MOST_PARTITIONS:
        raise ValueError(f"a namespace has 1 to {MOST_PARTITIONS} partitions, not {number}")
    return number


def _whole(value: object, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{what} is a whole number, not {type(value).__name__}")
    return value
