"""Turn docstrings into Markdown: Sphinx roles into links, and indented blocks into code blocks.

The docstrings are nearly Markdown already. They use ``code`` with double backticks, lists with hyphens, and a paragraph
that ends with two colons before an indented block.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable

__all__ = ["ROLE", "Resolve", "to_markdown"]

ROLE = re.compile(r":(?:attr|class|data|exc|func|meth|mod|obj):`(?P<short>~?)(?P<target>[\w.]+)`")
"""A reference in a docstring, such as :class:`ServiceBusClient`. With a tilde only the last part is shown."""

Resolve = Callable[[str], str | None]
"""Returns the address of a name's documentation, relative to the page; ``None`` if the name has none."""

_BLOCK = re.compile(r"(?P<before>^[^\n]*)::\n\n?(?P<block>(?:(?:    [^\n]*)?\n)+)", re.MULTILINE)


def to_markdown(docstring: str, resolve: Resolve) -> str:
    """Return a docstring, as ``inspect.getdoc`` returns it, as Markdown."""
    text = _BLOCK.sub(_fenced, docstring + "\n")
    parts = re.split(r"(^```text\n.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else _linked(part, resolve) for part in parts).strip()


def _fenced(found: re.Match[str]) -> str:
    """Return an indented block as a code block. The two colons become one colon, or none on a line of their own."""
    before = f"{found['before']}:\n\n" if found["before"] else ""
    return f"{before}```text\n{textwrap.dedent(found['block']).strip(chr(10))}\n```\n\n"


def _linked(text: str, resolve: Resolve) -> str:
    def link(role: re.Match[str]) -> str:
        target = role["target"]
        shown = target.rpartition(".")[2] if role["short"] else target
        address = resolve(target)
        return f"`{shown}`" if address is None else f"[`{shown}`]({address})"

    return ROLE.sub(link, text)
