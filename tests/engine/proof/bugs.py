"""A bug that is planted in a script."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Bug"]


class Bug(NamedTuple):
    """A plausible programming mistake: a text in a Lua file, and the text that replaces it."""

    name: str
    file: str
    right: str
    wrong: str
    of: str = "queue"
    """The machine that must find it."""
    aims: tuple[str, ...] = ()
    """The rules that bring the machine to the bug, if they do not have the name of the file."""
