"""Addresses of an HTTP port, as an option gives them."""

from __future__ import annotations

import re
from typing import Final

from sbredis._quoting import quoted

__all__ = ["address_of"]

_ADDRESS: Final = re.compile(r"(?:(?:(?P<name>[^\s/:@\[\]]*)|\[(?P<number>[^\s/@\[\]]+)\]):)?(?P<port>[0-9]{1,5})")


def address_of(text: str) -> tuple[str, int]:
    """Read ``HOST:PORT``, ``[HOST]:PORT`` or ``PORT``, which means 127.0.0.1."""
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found["port"]) > 65535:
        raise ValueError(f"the address of the HTTP port must be HOST:PORT or PORT, not {quoted(text)}")
    return found["name"] or found["number"] or "127.0.0.1", int(found["port"])
