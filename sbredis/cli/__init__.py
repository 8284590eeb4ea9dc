"""The command ``sbredis``: entities, messages and servers from a terminal, without Python.

It needs the extra ``cli``.
"""

from __future__ import annotations

from sbredis.cli._main import main

__all__ = ["main"]
