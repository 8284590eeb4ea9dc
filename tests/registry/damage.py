"""Records of the registry that cannot be read, and a way to put them there and to take them away again."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from sbredis.transport import Transport
from tests.registry.keys import bucket_of

__all__ = ["DAMAGED", "DAMAGED_RULES", "UNREADABLE", "UNREADABLE_RULES", "Registered"]

Damage = Callable[[bytes], "bytes | None"]


def _described(description: bytes) -> Damage:
    return lambda text: text.partition(b"{")[0] + description


def _altered(pattern: bytes, replacement: bytes) -> Damage:
    def alter(text: bytes) -> bytes:
        altered, count = re.subn(pattern, replacement, text, count=1)
        assert count, text
        return altered

    return alter


DAMAGED: dict[str, Damage] = {
    "missing": lambda _: None,
    "empty": lambda _: b"",
    "no record": lambda _: b"garbage in the registry",
    "no head": lambda text: b"2 x" + text,
    "not JSON": _described(b"{oops}"),
    "not UTF-8": _described(b'{"name":"\xff\xfe"}'),
    "nested deeply": _described(b'{"a":' + b"[" * 3000 + b"]" * 3000 + b"}"),
    "no fields": _described(b"{}"),
    "a wrong type": _altered(rb'"partitions":\[[^]]*\]', b'"partitions":"all"'),
    "an absurd number": _altered(rb'"partitions":\[[^]]*\]', b'"partitions":[' + b"9" * 300 + b"]"),
    "a partition in no slot of the namespace": _altered(rb'"partitions":\[[^]]*\]', b'"partitions":[1023]'),
    "a time that never comes": _altered(rb" [0-9]{13} ", b" 999999999999999 "),
    "a destination that is no name": _altered(rb'"properties":\{', b'"properties":{"forward_to":[5],'),
    "another entity": _altered(rb'"name":"[^"]*"', b'"name":"stranger"'),
}
"""The records that are damaged, as functions that make one from a good record. ``None`` means that there is none."""

UNREADABLE: dict[str, Damage] = {**DAMAGED, "a newer layout": lambda text: b"3" + text[1:]}
"""The same, and the record of a newer release."""

DAMAGED_RULES: dict[str, Damage] = {
    "missing": lambda _: None,
    "no rule": lambda _: b"garbage",
    "not JSON": _described(b"{oops}"),
    "nested deeply": _described(b'{"a":' + b"[" * 3000 + b"]" * 3000 + b"}"),
    "no fields": _described(b"{}"),
    "an unknown filter": _described(b'{"name":"$Default","filter":{"kind":"moon"}}'),
    "a wrong type": _described(b'{"name":5,"filter":{"kind":"true"}}'),
    "another rule": _described(b'{"name":"stranger","filter":{"kind":"true"}}'),
}
UNREADABLE_RULES: dict[str, Damage] = {**DAMAGED_RULES, "a newer layout": lambda text: b"3" + text[1:]}


class Registered:
    """The text of an entity or a rule in the registry."""

    def __init__(
        self, transport: Transport, path: str, *, rule: str | None = None, namespace: str = "default", slots: int = 256
    ) -> None:
        self._transport = transport
        keys = bucket_of(path.partition("/subscriptions/")[0], slots, namespace)
        self._key = keys[1] if rule is None else keys[4]
        self._field = path.lower() if rule is None else f"{path.lower()} {rule.lower()}"
        self._good = b""

    async def read(self) -> bytes | None:
        """Return the text."""
        found: bytes | None = await self._transport.command("HGET", self._key, self._field, key=self._key)
        return found

    async def spoil(self, damage: Damage) -> None:
        """Replace the text by one that cannot be read."""
        good = await self.read()
        assert good is not None
        self._good = good
        await self._write(damage(good))

    async def heal(self) -> None:
        """Put the text there again that can be read."""
        await self._write(self._good)

    async def _write(self, text: bytes | None) -> None:
        arguments: tuple[Any, ...] = ("HDEL", self._key, self._field)
        if text is not None:
            arguments = ("HSET", self._key, self._field, text)
        await self._transport.command(*arguments, key=self._key)
