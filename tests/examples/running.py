"""Run an example in this process, and compare the lines that it prints with patterns."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import re
import textwrap

import pytest

__all__ = ["printed_by", "unlike"]


def printed_by(name: str, url: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Run an example, and return the lines that it prints. The fixture ``importable`` finds its module."""
    ran = importlib.import_module(name.removesuffix(".py")).main(url)
    if inspect.iscoroutine(ran):
        asyncio.run(ran)
    return capsys.readouterr().out.splitlines()


def unlike(printed: list[str], patterns: str) -> list[str]:
    """Return the lines that do not match the pattern in their place, or all if there are more or fewer lines."""
    expected = textwrap.dedent(patterns).strip().splitlines()
    if len(printed) != len(expected):
        return printed or ["(nothing)"]
    return [line for line, pattern in zip(printed, expected, strict=True) if not re.fullmatch(pattern, line)]
