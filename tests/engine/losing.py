"""Damage to the records of messages, for tests: the ways in which a stored record can be lost."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sbredis.engine import Partition
from sbredis.transport import Transport

__all__ = ["DAMAGE", "each_damage", "lose"]

DAMAGE: dict[str, bytes | None] = {
    "missing": None,
    "empty": b"",
    "short": b"a0170000000000",
    "cut": b"x01700000000000170000000000",
    "level": b"a81700000000000\x01\x00body",
    "malformed": b"x0170000000000what is this",
    "unknown": b"q01700000000000\x01\x00body",
}
"""What is stored in place of a record; ``None`` for nothing."""

each_damage = pytest.mark.parametrize("damage", DAMAGE)


async def lose(transport: Transport, partition: Partition, damage: str, numbers: Sequence[str]) -> None:
    """Damage the records with these numbers."""
    for number in numbers:
        key = partition.keys[10 + int(number) // 4096 % 16]
        content = DAMAGE[damage]
        if content is None:
            assert await transport.command("HDEL", key, number, key=key) == 1
        else:
            assert await transport.command("HSET", key, number, content, key=key) == 0
