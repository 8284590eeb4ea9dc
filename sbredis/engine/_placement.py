"""The slots of a namespace in a cluster, the slots of its entities, and the partition of each key. Pure.

A namespace has S slots, numbered from 0. They are the middles of S equal slices of the 16,384 slots of a cluster, all
moved on by a hash of the namespace's name. So each master has the same number of a namespace's slots, give or take one,
if the masters share the slots evenly; and the slots of most namespaces begin at different places. The facts of a
namespace are at the border of two slices.

A key is in a slot because it contains the slot's *salt*, four characters of 0-9a-z, in braces.

The name of an entity decides its first slot. A partitioned entity goes on from there, around all slots of its namespace
in equal steps. So it uses at most as many masters as it has partitions, and two entities seldom have theirs in the
same slots.

A key chooses one of N partitions by jump hash (Lamping and Veach, "A Fast, Minimal Memory, Consistent Hash Algorithm").
With one more partition, one key of N + 1 changes its partition, and always to the new one.

All results of this module are part of the data layout: if a result changed, messages would be looked for in the wrong
place. So tests make sure that no result changes.
"""

from __future__ import annotations

from binascii import crc32, crc_hqx
from collections.abc import Mapping
from functools import cache, lru_cache
from itertools import product
from string import ascii_lowercase, digits

from sbredis.engine._names import name_key
from sbredis.transport import SLOTS

__all__ = [
    "MOST_PARTITIONS",
    "MOST_SEATS",
    "MOST_SLOTS",
    "USUAL_PARTITIONS",
    "bucket_of_id",
    "bucket_word",
    "partition_for_key",
    "registry_salt",
    "require_slots",
    "slot_for_name",
    "slot_salt",
    "slots_for_name",
]

MOST_SLOTS = 1024
"""The largest number of slots of a namespace."""
MOST_PARTITIONS = 256
"""The largest number of partitions of an entity."""
MOST_SEATS = 16
"""The largest number of partitions of an entity that a receiver is at."""
USUAL_PARTITIONS = 16
"""The number of partitions of a partitioned entity, unless it is given, if the namespace has so many slots."""


# -- the slots of a namespace ------------------------------------------------------------------------------------------


def require_slots(slots: int) -> None:
    """Raise unless a namespace can have this number of slots."""
    if isinstance(slots, bool) or not isinstance(slots, int):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
        raise TypeError(f"the number of slots must be a whole number, not {type(slots).__name__}")
    if not 1 <= slots <= MOST_SLOTS:
        raise ValueError(f"a namespace has 1 to {MOST_SLOTS} slots, not {slots}")


@lru_cache(maxsize=4096)
def slot_salt(namespace: str, number: int, slots: int) -> str:
    """Return the salt of a slot of a namespace that has this number of slots."""
    if not 0 <= number < slots:
        raise ValueError(f"there is no slot {number}: the {slots} slots are numbered from 0")
    return _salt(_hash(namespace) + (2 * number + 1) * SLOTS // (2 * slots))


@lru_cache(maxsize=256)
def registry_salt(namespace: str) -> str:
    """Return the salt of the keys of a namespace that concern all its entities.

    It is not the salt of a slot of the namespace. Sharing a slot would break nothing, because the keys differ after the
    salt. But a call that mixes these keys with those of a bucket or a partition is a mistake, and every cluster refuses
    it if the slots differ.
    """
    return _salt(_hash(namespace))


def _salt(place: int) -> str:
    """Return the salt of a slot of the cluster.

    The checksum of a key is linear: that of four characters is the checksum of the first two, followed by two zero
    bytes, XOR the checksum of the last two. So the last two characters are looked up.
    """
    slot, last_two = place % SLOTS, _last_two()
    return next(first + last_two[rest] for first, moved in _first_two() if (rest := slot ^ moved) in last_two)


@cache
def _last_two() -> Mapping[int, str]:
    """Return pairs of characters by their slots."""
    return {crc_hqx(pair.encode(), 0) % SLOTS: pair for pair in _pairs()}


@cache
def _first_two() -> list[tuple[str, int]]:
    """Return pairs of characters, each with the slot of the pair and two zero bytes."""
    return [(pair, crc_hqx(pair.encode() + b"\0\0", 0) % SLOTS) for pair in _pairs()]


def _pairs() -> list[str]:
    return ["".join(pair) for pair in product(digits + ascii_lowercase, repeat=2)]


# -- the buckets of the registry ---------------------------------------------------------------------------------------

_DIGITS = digits + ascii_lowercase


def bucket_word(number: int) -> str:
    """Return the two characters with which all ids of a bucket begin. A bucket has the number of its slot."""
    first, last = divmod(number, len(_DIGITS))
    return _DIGITS[first] + _DIGITS[last]


def bucket_of_id(entity_id: str, slots: int) -> int | None:
    """Return the number of the bucket of the entity with this id; ``None`` if no entity can have the id."""
    if len(entity_id) < 3 or not set(entity_id) <= set(_DIGITS):
        return None
    number = int(entity_id[:2], len(_DIGITS))
    return number if number < slots else None


# -- the slots of an entity --------------------------------------------------------------------------------------------


def slot_for_name(name: str, slots: int) -> int:
    """Return the number of the slot of the unpartitioned entity of this name.

    Names that differ only in the case of ASCII letters are the same name.
    """
    return _hash(name_key(name)) % slots


def slots_for_name(name: str, partitions: int, slots: int) -> tuple[int, ...]:
    """Return the numbers of the slots of the partitioned entity of this name, in order.

    The entity has at most as many partitions as the namespace has slots.
    """
    first = slot_for_name(name, slots)
    return tuple(sorted((first + partition * slots // partitions) % slots for partition in range(partitions)))


# -- the partition of a key --------------------------------------------------------------------------------------------


def partition_for_key(key: str | bytes, partitions: int) -> int:
    """Return the place, among an entity's partitions, of messages with this session id, partition key or message id.

    A message id that is not text is given as bytes. A text with an unpaired surrogate raises
    :class:`UnicodeEncodeError`, which is a :class:`ValueError`. Such a text cannot be sent;
    :func:`sbredis.engine._names.identifier` refuses it first, with a clearer error.
    """
    state, chosen, following = _hash(key), 0, 0
    while following < partitions:
        chosen = following
        state = (state * 2862933555777941757 + 1) & 0xFFFFFFFFFFFFFFFF
        following = ((chosen + 1) << 31) // ((state >> 33) + 1)
    return chosen


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
