"""Enumerations whose members are quick keys of tables."""

from __future__ import annotations

from enum import Enum

__all__ = ["QuickEnum"]


class QuickEnum(Enum):
    """Names whose hash is found quickly, because tables are read by them for each message. Each name is one object."""

    __hash__ = object.__hash__
