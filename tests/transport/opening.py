"""Scripts of tests, and transports that have them in the form of the run (tests/plugins/forms.py)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from sbredis.transport import Library, Script, Transport, open_transport
from tests.plugins.forms import with_form

__all__ = ["as_library", "function", "opened"]


def function(name: str, source: str, *, takes_run_id: bool = False) -> Script:
    """Return a script that a library can have as a function."""
    return Script(name, source, takes_run_id, function=name)


def as_library(scripts: Sequence[Script], name: str = "") -> Library:
    """Return the library of these scripts. Unless it is given, the name depends on their texts."""
    name = name or f"sb_{'_'.join(each.sha[:8] for each in scripts)}"
    lines = [f"#!lua name={name}"]
    for each in scripts:
        first, _, rest = each.source.partition("\n")
        code = rest if first.startswith("#!") else each.source
        flag = re.search(r"flags=([a-z-]+)", first)
        flags = f"{{ '{flag[1]}' }}" if flag else "{}"
        lines.append(
            f"redis.register_function({{ function_name = '{name}_{each.function}', flags = {flags}, "
            f"callback = function(KEYS, ARGV)\n{code}\nend }})"
        )
    return Library(name, "\n".join(lines) + "\n", frozenset(each.function for each in scripts))


async def opened(url: str, *, scripts: Sequence[Script], **options: Any) -> Transport:
    """Open a transport with these scripts, as functions of a library or as single scripts."""
    return await open_transport(with_form(url), scripts=scripts, library=as_library(scripts), **options)
