"""Handlers that cannot run in a process."""

from __future__ import annotations

from sbredis.workers import Context


def with_context(text: str, context: Context) -> None:
    context.send("out", text)
