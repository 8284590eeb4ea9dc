"""Multiplexed connections to Redis and Valkey: slot map, redirections, retries, deadlines. This package contains
nothing about messages.

Importing this package is cheap: :func:`open_transport` imports what a connection needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sbredis._lazy import lazily
from sbredis.transport._address import Durability, Endpoint, Target, TlsOptions, parse_target, redacted
from sbredis.transport._backoff import Backoff
from sbredis.transport._from_redis import target_of
from sbredis.transport._judgement import forget_notes
from sbredis.transport._memory import forget_memory, memory_has, require_memory
from sbredis.transport._open import open_transport, require_asyncio
from sbredis.transport._resp import as_mapping
from sbredis.transport._script import Argument, Keys, Library, Script
from sbredis.transport._server_facts import ServerFacts, parse_info
from sbredis.transport._server_libraries import delete_library, list_libraries, load_library
from sbredis.transport._slots import SLOTS, key_slot

if TYPE_CHECKING:
    from sbredis.transport._listening import ChannelListener, Subscription
    from sbredis.transport._multiplexed import Transport
    from sbredis.transport._reach_line import reach_in, reach_line
    from sbredis.transport._wire import WireLimits

__all__ = [
    "SLOTS",
    "Argument",
    "Backoff",
    "ChannelListener",
    "Durability",
    "Endpoint",
    "Keys",
    "Library",
    "Script",
    "ServerFacts",
    "Subscription",
    "Target",
    "TlsOptions",
    "Transport",
    "WireLimits",
    "as_mapping",
    "delete_library",
    "forget_memory",
    "forget_notes",
    "key_slot",
    "list_libraries",
    "load_library",
    "memory_has",
    "open_transport",
    "parse_info",
    "parse_target",
    "reach_in",
    "reach_line",
    "redacted",
    "require_asyncio",
    "require_memory",
    "target_of",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "_listening": ("ChannelListener", "Subscription"),
            "_multiplexed": ("Transport",),
            "_reach_line": ("reach_in", "reach_line"),
            "_wire": ("WireLimits",),
        },
    )
