"""Transports with the scripts of sbredis, in the form of the run (tests/plugins/forms.py)."""

from __future__ import annotations

from typing import Any

from sbredis.engine import whole_library
from sbredis.transport import Transport, open_transport
from tests.plugins.forms import with_form

__all__ = ["open_with_scripts"]


async def open_with_scripts(url: str, **options: Any) -> Transport:
    """Open a transport that has all operations; none of them is loaded before a call needs it."""
    return await open_transport(with_form(url), library=whole_library(), **options)
