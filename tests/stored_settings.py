"""The settings of a partition, as the field ``settings`` of its key ``state`` stores them."""

from __future__ import annotations

from sbredis.engine._state import FIELD_LISTS

__all__ = ["settings_of", "with_settings"]


def settings_of(text: bytes) -> dict[str, bytes]:
    """Return the words of the field by name: the incarnation, the version, and each setting."""
    return dict(zip(FIELD_LISTS["WORDS"], text.split(b" "), strict=True))


def with_settings(text: bytes, changed: dict[str, str]) -> bytes:
    """Return the field with other words."""
    words = settings_of(text)
    assert set(changed) <= set(words)
    return b" ".join((words | {name: word.encode() for name, word in changed.items()}).values())
