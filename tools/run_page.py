"""Run the Python of a document as if a reader typed it: block after block, in one session.

``python -m tools.run_page docs/queues.md [CONNECTION_STRING]``. A connection string replaces every ``memory://NAME`` of
the page, and nothing else is changed. If a page contains tests, pytest runs the whole page as one test file. ``await``
outside of a function is an error, unless the page says that it is for ``python -m asyncio``. A block that cannot be run
has a reason in the line before it, which the reader does not see: ``<!-- not run: REASON -->``.

Line numbers in tracebacks are line numbers of the page. The program exits with 0 if every block ran.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import inspect
import re
import sys
import textwrap
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

from tools.check_docs import FENCE

__all__ = ["Block", "python_blocks", "run_page"]

PLACE = re.compile(r"memory://\w+")
"""The connection strings of the documents."""
NOT_RUN = re.compile(r"<!-- not run:(?P<reason>[^\n]*)-->\n\s*\Z")
SESSION = "python -m asyncio"


class Block(NamedTuple):
    """A block of Python in a document."""

    code: str
    line: int
    """The line of the page on which the code begins."""
    not_run: str | None
    """The reason why it is not run; ``None`` if it is run."""


def python_blocks(text: str) -> list[Block]:
    """Return the Python blocks of a document, in the order of the document."""
    found: list[Block] = []
    for fence in FENCE.finditer(text):
        if fence["language"] in {"python", "py"}:
            mark = NOT_RUN.search(text[: fence.start()])
            line = text.count("\n", 0, fence.start("code")) + 1
            found.append(Block(textwrap.dedent(fence["code"]), line, mark and mark["reason"].strip()))
    return found


def is_tests(blocks: list[Block]) -> bool:
    """Whether a page is about tests: at least one of its functions is a test."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return any(
        isinstance(node, functions) and node.name.startswith("test_")
        for block in blocks
        for node in ast.parse(block.code).body
    )


def run_page(page: Path, url: str | None) -> int:
    """Run the blocks of a page in the current folder, and return the exit code. Raises the errors of the blocks."""
    text = page.read_text("utf-8")
    blocks = [block for block in python_blocks(text) if block.not_run is None]
    if url is not None:
        exchanged = url.replace("\\", r"\\")
        blocks = [block._replace(code=PLACE.sub(exchanged, block.code)) for block in blocks]
    if is_tests(blocks):
        return _test(page, blocks)
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT if SESSION in text else 0
    session: dict[str, Any] = {"__name__": "__main__"}
    with asyncio.Runner() as runner:
        for block in blocks:
            _run(compile(_placed(block), str(page), "exec", flags=flags, dont_inherit=True), session, runner)
    return 0


def _placed(block: Block) -> str:
    """Return the code with empty lines before it, so that its lines have the numbers that they have in the page."""
    return "\n" * (block.line - 1) + block.code


def _run(code: CodeType, session: dict[str, Any], runner: asyncio.Runner) -> None:
    if code.co_flags & inspect.CO_COROUTINE:
        runner.run(eval(code, session))  # noqa: S307 -- our own documents
    else:
        exec(code, session)  # noqa: S102 -- our own documents


def _test(page: Path, blocks: list[Block]) -> int:
    import pytest

    lines: list[str] = []
    for block in blocks:
        lines += [""] * (block.line - 1 - len(lines))
        lines += block.code.splitlines()
    program = Path(f"test_{page.stem}.py")
    program.write_text("\n".join([*lines, ""]), "utf-8")
    return int(pytest.main(["-q", "-W", "error", "-p", "no:cacheprovider", "--rootdir", ".", str(program)]))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("page", type=Path, help="a Markdown file")
    parser.add_argument("url", nargs="?", help="a connection string, instead of the page's memory://NAME")
    given = parser.parse_args()
    return run_page(given.page, given.url)


if __name__ == "__main__":
    sys.exit(main())
