"""Derives the synchronous scenarios from the asynchronous ones.

Azure's two clients differ only as ``async`` code differs from plain code, and so do the clients of sbredis. A
synchronous scenario has the same tokens as the asynchronous one, with these changes:

1. ``async`` and ``await`` are removed.
2. Imports from below ``sbredis.aio`` become imports from below ``sbredis``.
3. A few names change (``NAMES``).
4. The docstring of the module names the synchronous client.

A scenario with other differences is written by hand (``by_hand.py``), with the reason. Lines keep their numbers, so an
error in a derived scenario shows the right line of the asynchronous file.
"""

from __future__ import annotations

import ast
import linecache
import tokenize
from collections.abc import Iterator, Mapping
from functools import cache
from io import StringIO
from types import ModuleType
from typing import Any

from tests.samples.by_hand import BY_HAND
from tools.repository import ROOT

__all__ = ["MODULES", "NAMES", "asynchronous_source", "derived", "synchronous", "synchronous_source"]

FOLDER = ROOT / "tests/samples/asynchronous"
MODULES = sorted(path.stem for path in FOLDER.glob("*.py"))
"""The modules of scenarios."""

NAMES = {
    # Azure's synchronous receiver has a method for the next message, and its asynchronous receiver lacks it
    "__anext__": "next",
    "eventually": "wait_until",  # the function of these tests that waits for a condition
}

_Change = tuple[int, int, int, str]
"""A line number, the first and the last column, and the replacement text."""


def derived(source: str) -> str:
    """Return the synchronous form of an asynchronous scenario."""
    lines = source.splitlines(keepends=True)
    for line, begin, end, text in sorted(_changes(source), reverse=True):
        lines[line - 1] = lines[line - 1][:begin] + text + lines[line - 1][end:]
    return "".join(lines)


def _changes(source: str) -> Iterator[_Change]:
    tokens = list(tokenize.generate_tokens(StringIO(source).readline))
    for place, token in enumerate(tokens[:-1]):
        (line, begin), (_, end), after = token.start, token.end, tokens[place + 1]
        if token.type == tokenize.NAME and token.string in {"async", "await"}:
            yield line, begin, after.start[1], ""
        elif token.type == tokenize.NAME and token.string in NAMES:
            yield line, begin, end, NAMES[token.string]
        elif token.string == "aio" and [each.string for each in tokens[place - 2 : place]] == ["sbredis", "."]:
            yield line, tokens[place - 1].start[1], end, ""
        elif token.type == tokenize.STRING and place == 0:
            yield from _spoken(token)


def _spoken(docstring: tokenize.TokenInfo) -> Iterator[_Change]:
    """Yield the position of the word in the module's docstring that names the client."""
    for number, line in enumerate(docstring.string.splitlines()):
        column = line.find("asynchronous")
        if column >= 0:
            begin = column + (docstring.start[1] if number == 0 else 0)
            yield docstring.start[0] + number, begin, begin + len("asynchronous"), "synchronous"


def without(source: str, functions: Mapping[str, Any]) -> str:
    """Return the text with empty lines in place of these functions, and without the imports that only these functions
    need.
    """
    lines = source.splitlines(keepends=True)
    for node in ast.parse(source).body:
        is_gone = isinstance(node, ast.FunctionDef) and node.name in functions
        if is_gone or (isinstance(node, ast.Import) and node.names[0].name == "asyncio"):
            assert node.end_lineno is not None
            lines[node.lineno - 1 : node.end_lineno] = ["\n"] * (node.end_lineno - node.lineno + 1)
    return "".join(lines)


@cache
def asynchronous_source(module: str) -> str:
    """Return the text of a module of asynchronous scenarios."""
    return (FOLDER / f"{module}.py").read_text("utf-8")


@cache
def synchronous_source(module: str) -> str:
    """Return the derived text of a module, without the scenarios that are written by hand."""
    return without(derived(asynchronous_source(module)), BY_HAND.get(module, {}))


@cache
def synchronous(module: str) -> ModuleType:
    """Return a module of synchronous scenarios, both derived and written by hand."""
    source, name = synchronous_source(module), f"<synchronous form of tests/samples/asynchronous/{module}.py>"
    # so that tracebacks can show the source
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    made = ModuleType(f"tests.samples.synchronous.{module}")
    exec(compile(source, name, "exec"), vars(made))  # noqa: S102  # it is our own text
    vars(made).update(BY_HAND.get(module, {}))
    return made
