"""The slots of a namespace's partitions in a cluster, and the partition of each name and key. Pure.

A namespace of P partitions cuts the slots 0..16383 into P equal slices and puts partition p into the middle of the p-th
slice. If the masters share the slots evenly, each of them has the same number of partitions, give or take one. (Some
slots have no salt, so a partition is in the slot with a salt that is nearest to the middle. This slot is close enough
if partitions times masters is at most 16384.) A key goes to the slot of its partition because it contains the
partition's *salt*, three characters of 0-9a-z, in braces.

All results of this module are part of the data layout: if a result changed, messages would be looked for in the wrong
place. So tests make sure that no result changes.
"""

from __future__ import annotations

from binascii import crc32, crc_hqx
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import product
from string import ascii_lowercase, digits

from sbredis.engine._names import name_key
from sbredis.transport import SLOTS

__all__ = ["MOST_PARTITIONS", "partition_for_key", "partition_for_name", "registry_salt", "salts", "slot_range"]

MOST_PARTITIONS = 1024

# The salt of slot 8192, which has no partition. If the number of partitions is odd, the middle partition is in slot
# 8191. All other partitions are at least 8 slots away.
_REGISTRY_SALT = "fjl"

# At most two neighbouring slots have no salt, so the nearest slot with a salt is never further away than this.
_SEARCHED = 8

_CHARACTERS = digits + ascii_lowercase


def salts(partitions: int) -> tuple[str, ...]:
    """Return the salts of a namespace's partitions, in their order. No two partitions share a slot.

    Raises :class:`TypeError` or :class:`ValueError` unless the number of partitions is from 1 to 1024.
    """
    return _salts(_number_of_partitions(partitions))


def slot_range(partition: int, partitions: int) -> range:
    """Return the slice of the slots that contains a partition's slot; the slices of a namespace cover all slots."""
    count = _number_of_partitions(partitions)
    if not 0 <= _whole(partition, "a partition") < count:
        raise ValueError(f"there is no partition {partition}: the {count} partitions are numbered from 0")
    return range(partition * SLOTS // count, (partition + 1) * SLOTS // count)


def registry_salt() -> str:
    """Return the salt of the registry's keys, which is the same for every namespace.

    No partition is in the slot of this salt. Sharing a slot would break nothing, because the keys differ after the
    salt. But a call that mixes keys of the registry with keys of a partition is a mistake, and every cluster refuses it
    if the slots differ.
    """
    return _REGISTRY_SALT


def partition_for_name(name: str, partitions: int) -> int:
    """Return the partition that holds the unpartitioned entity of this name.

    Names that differ only in the case of ASCII letters are the same name.
    """
    return _hash(name_key(name)) % _number_of_partitions(partitions)


def partition_for_key(key: str | bytes, partitions: int) -> int:
    """Return the partition of messages with this session id, partition key or message id.

    A message id that is not text is given as bytes. A text with an unpaired surrogate raises
    :class:`UnicodeEncodeError`, which is a :class:`ValueError`. Such a text cannot be sent;
    :func:`sbredis.engine._names.identifier` refuses it first, with a clearer error.
    """
    return _hash(key) % _number_of_partitions(partitions)


@cache
def _salts(partitions: int) -> tuple[str, ...]:
    chosen: list[str] = []
    for partition in range(partitions):
        # Positions are multiplied by twice the number of partitions. Then the middles of slices and of slots are whole
        # numbers.
        middle = (2 * partition + 1) * SLOTS
        near = middle // (2 * partitions)
        by_distance: dict[int, list[int]] = {}
        for slot in range(near - _SEARCHED, near + _SEARCHED):
            by_distance.setdefault(abs((2 * slot + 1) * partitions - middle), []).append(slot)
        for _, slots in sorted(by_distance.items()):
            found = [salt for salt in map(_smallest_salt, slots) if salt is not None]
            if found:
                chosen.append(min(found))
                break
    return tuple(chosen)


def _smallest_salt(slot: int) -> str | None:
    """Return the smallest salt of a slot of :func:`~sbredis.transport.key_slot`, if it has one.

    Every process that opens a namespace needs a few of the 16,384 slots. So the last step of the checksum is undone:
    it tells the last byte of the checksum of the first two characters, and then the third character.
    """
    if not 0 <= slot < SLOTS:
        return None
    beginnings, steps = _beginnings(), _steps()
    found: list[str] = []
    for checksum in range(slot, 1 << 16, SLOTS):  # the slot is the remainder of the checksum
        index, step = steps[checksum & 0xFF]
        for first, two in beginnings.get((checksum ^ step) >> 8, ()):
            third = chr(first ^ index)
            if third in _CHARACTERS:
                found.append(two + third)
    return min(found, default=None)


@cache
def _beginnings() -> Mapping[int, Sequence[tuple[int, str]]]:
    """Return all two characters with the first byte of their checksum, by its last byte."""
    found: dict[int, list[tuple[int, str]]] = {}
    for two in map("".join, product(_CHARACTERS, repeat=2)):
        first, last = divmod(crc_hqx(two.encode(), 0), 256)
        found.setdefault(last, []).append((first, two))
    return found


@cache
def _steps() -> Mapping[int, tuple[int, int]]:
    """Return the index and the value of each step of the checksum, by the last byte of the value."""
    steps = [crc_hqx(bytes((index,)), 0) for index in range(256)]
    return {step & 0xFF: (index, step) for index, step in enumerate(steps)}


def _hash(text: str | bytes) -> int:
    """Return a 32-bit hash that depends only on the text or the bytes, in every process and on every machine.

    CRC32 alone leaves partitions empty: it is linear, so regular keys, such as every eighth number, reach only some of
    the remainders. So the finishing step of MurmurHash3 follows. After this step, every bit of the result depends on
    all bits.
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
        raise TypeError(f"{what} must be a whole number, not {type(value).__name__}")
    return value
