"""Make tests of the synchronous API from tests of the asynchronous one.

A made test has the tokens of its original without ``async`` and ``await``, and with the imports and names of
synchronous code. Tests that the rules of :func:`reason` name are left out: they need tasks, look inside, or use helpers
that have no synchronous counterpart. The made tests run in memory only, because their originals run on servers.
"""

from __future__ import annotations

import ast
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Final

from tools.make_sync.facades import reworded
from tools.repository import ROOT

__all__ = ["LEFT_OUT", "SOURCES", "TestModule", "derived", "left_out", "made_tests"]

MADE: Final = ROOT / "tests/sync/made"
HELPERS: Final = ROOT / "tests/sync/queues.py"

SOURCES: Final = {
    "aio/test_fundamentals": "test_fundamentals",
    "management/conftest": "management/conftest",
    "management/test_fundamentals": "management/test_fundamentals",
}
"""The modules of tests from which modules are made, and their names below ``tests/sync/made``."""

NAMES: Final = {
    "AsyncExitStack": "ExitStack",
    "AsyncGenerator": "Generator",
    "AsyncItemPaged": "ItemPaged",
    "AsyncIterator": "Iterator",
    "AsyncPages": "Pages",
    "StopAsyncIteration": "StopIteration",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__anext__": "__next__",
    "aclose": "close",
    "aiter": "iter",
    "anext": "next",
    "asynccontextmanager": "contextmanager",
    "enter_async_context": "enter_context",
    "eventually": "wait_until",
}
"""Names, and the names that replace them."""

IMPORTS: Final = (
    (r"^( *)from sbredis\.aio\.management import", r"\1from sbredis.management import"),
    (r"^( *)from sbredis\.aio import", r"\1from sbredis import"),
    (r"^from tests\.aio\.queues import", "from tests.sync.queues import"),
    (r"^from tests\.management\.conftest import", "from tests.sync.made.management.conftest import"),
)
"""Patterns of imports, and what replaces them."""

PUBLIC: Final = {"amqp", "codec", "exceptions", "management", "model"}
"""Packages of sbredis that both APIs share."""

LEFT_OUT: Final = {
    "tasks": "it needs tasks, or the event loop itself",
    "inside": "it looks inside of the asynchronous objects",
    "replaced": "it replaces something of the product",
    "server": "it needs a server or a child process",
    "helper": "a helper that it uses has no synchronous counterpart",
    "awaitable": "it keeps a coroutine before it awaits it",
    "names": "it is about the names of the asynchronous classes",
    "same": "it tests no asynchronous code",
}
"""Why a test is left out."""

_Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def helpers() -> frozenset[str]:
    """Return the names of the helpers that have a synchronous counterpart."""
    for node in ast.parse(HELPERS.read_text("utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return frozenset(ast.literal_eval(node.value))
    raise AssertionError(f"{HELPERS} has no __all__")


@dataclass
class TestModule:
    """A module of asynchronous tests, and what is made from it."""

    __test__ = False  # it is no class of tests

    name: str
    text: str
    left_out: dict[str, str] = field(default_factory=dict)
    """The tests that are left out, and why."""

    def __post_init__(self) -> None:
        self.tree = ast.parse(self.text)
        self.imported = {
            name.asname or name.name: node.module or ""
            for node in ast.walk(self.tree)
            if isinstance(node, ast.ImportFrom)
            for name in node.names
        }
        self.defined = {name: node for node in self.tree.body for name in _names_of(node)}

    @property
    def is_conftest(self) -> bool:
        """Whether the module has fixtures instead of tests."""
        return self.name.endswith("conftest")

    def made(self) -> str:
        """Return the text of the synchronous tests, before it is formatted."""
        gone = [node for node in self.tree.body if {"pytestmark", "__all__"}.intersection(_names_of(node))]
        for node in self.tree.body:
            if isinstance(node, _Function) and (self.is_conftest or node.name.startswith("test_")):
                same = not self.is_conftest and isinstance(node, ast.FunctionDef)
                why = self.reason(node) or ("same" if same else "")
                if why:
                    self.left_out[node.name] = why
                    gone.append(node)
        if not self.is_conftest:
            gone += self._unused(gone)
        lines = derived(self.text).splitlines()
        for node in sorted(gone, key=lambda each: -each.lineno):
            begin = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])
            end = node.end_lineno or node.lineno
            while end < len(lines) and lines[end].startswith('"""') and not isinstance(node, _Function):
                end = next(number for number in range(end, len(lines)) if lines[number].endswith('"""')) + 1
            while begin > 1 and lines[begin - 2].startswith("#") and not lines[begin - 2].startswith("# -- "):
                begin -= 1
            del lines[begin - 1 : end]
        return self._finished("\n".join(lines))

    def _unused(self, gone: list[ast.stmt]) -> list[ast.stmt]:
        """Return the helpers, fixtures and constants that no test uses which stays."""
        kept = [node for node in self.tree.body if node not in gone]
        found: list[ast.stmt] = []
        while True:
            used: set[str] = set()
            for node in kept:
                own = set(_names_of(node))
                used |= {each for each in _mentioned(node) if each not in own}
            idle = [
                node
                for node in kept
                if _names_of(node)
                and not any(name in used or name.startswith("test_") for name in _names_of(node))
                and not _is_automatic(node)
            ]
            if not idle:
                return found
            found += idle
            kept = [node for node in kept if node not in idle]

    def _finished(self, text: str) -> str:
        text = re.sub(r"(?:^# -- .*\n\s*)+(?=^# -- |\Z)", "", text, flags=re.MULTILINE)
        text = re.sub(r"\bAwaitable\[(\w+)\]", r"\1", text)
        text = re.sub(r"^@pytest\.mark\.(everywhere\(.*\)|conformance)\n", "", text, flags=re.MULTILINE)
        text = re.sub(r"  # noqa: (SIM117|C416)\b.*$", "", text, flags=re.MULTILINE)
        for pattern, instead in IMPORTS:
            text = re.sub(pattern, instead, text, flags=re.MULTILINE)
        said, _, rest = text.partition("from __future__ import annotations\n")
        marks = ['pytest.mark.memory("the asynchronous test runs on servers")']
        if any("both_shapes" in ast.unparse(node) for node in self.tree.body if "pytestmark" in _names_of(node)):
            marks.append("pytest.mark.both_shapes")
        last = max(
            (node.end_lineno or 0 for node in ast.parse(rest).body if isinstance(node, ast.Import | ast.ImportFrom)),
            default=0,
        )
        lines = rest.splitlines()
        if not self.is_conftest:
            lines.insert(last, f"\npytestmark = [{', '.join(marks)}]")
        return (
            f"{said.rstrip()}\n\n# Made by tools/make_sync from tests/{self.name}.py.\n"
            "# Change one of these two, and run `make sync`; a change in this file is lost.\n\n"
            "from __future__ import annotations\n\nimport pytest\n" + "\n".join(lines) + "\n"
        )

    def reason(self, node: ast.AST, seen: frozenset[str] = frozenset()) -> str:
        """Return the key in ``LEFT_OUT`` of why a test has no synchronous form; an empty text if it has one."""
        for each in ast.walk(node):
            why = self._reason_of(each)
            if why:
                return why
        for name in _mentioned(node):
            other = self.defined.get(name)
            if other is not None and other is not node and name not in seen:
                why = self.reason(other, seen | {name})
                if why:
                    return why
        return ""

    def _reason_of(self, node: ast.AST) -> str:
        if isinstance(node, ast.Attribute):
            hidden = node.attr == "transport" or (node.attr.startswith("_") and not node.attr.endswith("__"))
            return "inside" if hidden else ""
        if isinstance(node, ast.Await) and isinstance(node.value, ast.Name):
            return "awaitable"
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return "names" if re.search(r"\baio\b|\basync (for|with)\b", node.value) else ""
        if isinstance(node, ast.arg):
            return ARGUMENTS.get(node.arg, "")
        if isinstance(node, ast.AsyncFunctionDef) and "on_servers" in _mentioned(node):
            return "server"
        return self._reason_of_name(node.id) if isinstance(node, ast.Name) else ""

    def _reason_of_name(self, name: str) -> str:
        if name in {"asyncio", "anyio"}:
            return "tasks"
        if name in {"aio", "sync"}:
            return "names"
        module = self.imported.get(name, "")
        parts = module.split(".")
        if parts[0] == "tests":
            return "" if name in helpers() else "helper"
        if parts[0] != "sbredis" or len(parts) == 1:
            return ""
        if parts[1] in {"servers", "testing"}:
            return "server" if parts[1] == "servers" else "helper"
        public = parts[1] in PUBLIC and not any(part.startswith("_") for part in parts[1:])
        return "" if public or module in {"sbredis.aio", "sbredis.aio.management"} else "inside"


ARGUMENTS: Final = {
    "monkeypatch": "replaced",
    **dict.fromkeys(("server", "cluster", "replicated_cluster", "shared_server"), "server"),
    **dict.fromkeys(("listener", "transport"), "helper"),
}
"""Fixtures, and why a test that takes one is left out."""


def _names_of(node: ast.stmt) -> list[str]:
    """Return the names that a statement of a module defines, without imports."""
    if isinstance(node, ast.ClassDef | _Function):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [each.id for target in node.targets for each in ast.walk(target) if isinstance(each, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    return []


def _mentioned(node: ast.AST) -> set[str]:
    """Return the names that a statement uses, the fixtures among its arguments, and those that it names as text."""
    found: set[str] = set()
    for each in ast.walk(node):
        if isinstance(each, ast.Name):
            found.add(each.id)
        elif isinstance(each, ast.arg):
            found.add(each.arg)
        elif isinstance(each, ast.Constant) and isinstance(each.value, str) and each.value.isidentifier():
            found.add(each.value)
    return found


def _is_automatic(node: ast.stmt) -> bool:
    """Whether this is a fixture that pytest uses without being asked."""
    return isinstance(node, _Function) and any("autouse" in ast.unparse(each) for each in node.decorator_list)


def derived(text: str) -> str:
    """Return a text without ``async`` and ``await``, with the names of synchronous code; lines keep their numbers."""
    lines = text.splitlines(keepends=True)
    for line, begin, end, instead in sorted(_changes(text), reverse=True):
        lines[line - 1] = lines[line - 1][:begin] + instead + lines[line - 1][end:]
    return reworded("".join(lines))


def _changes(text: str) -> Iterator[tuple[int, int, int, str]]:
    tokens = list(tokenize.generate_tokens(StringIO(text).readline))
    for token, after in pairwise(tokens):
        (line, begin), (_, end) = token.start, token.end
        if token.type == tokenize.NAME and token.string in {"async", "await"}:
            yield line, begin, after.start[1], ""
        elif token.type == tokenize.NAME and token.string in NAMES:
            yield line, begin, end, NAMES[token.string]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Await) and isinstance(node.value, ast.Call):
            called = node.value.func
            if isinstance(called, ast.Attribute) and called.attr == "send_stream":
                assert node.end_lineno is not None
                assert node.end_col_offset is not None
                yield node.end_lineno, node.end_col_offset, node.end_col_offset, ".count()"


def made_tests() -> dict[Path, str]:
    """Return the texts of all modules of tests, before they are formatted."""
    return {MADE / f"{name}.py": _module(source).made() for source, name in SOURCES.items()}


def left_out() -> Iterator[str]:
    """Yield a line for each test that is left out, with the reason."""
    for source in SOURCES:
        module = _module(source)
        module.made()
        for name, why in module.left_out.items():
            yield f"tests/{source}.py::{name}: {LEFT_OUT[why]}"


def _module(source: str) -> TestModule:
    return TestModule(source, (ROOT / f"tests/{source}.py").read_text("utf-8"))
