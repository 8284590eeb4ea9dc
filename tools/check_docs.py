"""Check the documents against the repository: links, Python code, make targets, names of files, and the version.

Each check yields problems as lines of text. No line means no problem.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

from tools.repository import ROOT, files
from tools.runs import RUNS

FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<code>.*?)^ *```", re.MULTILINE | re.DOTALL)
CODE_SPAN = re.compile(r"`[^`\n]+`")
LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
HEADING = re.compile(r"^#+ +(?P<title>.+?) *$", re.MULTILINE)
MAKE = re.compile(r"\bmake (?P<target>[a-z][a-z-]*)")
WHAT = re.compile(r"\bmake (?P<kind>bench|prove) WHAT=(?P<what>[\w-]*)")
LEFTOVER = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
FILE = re.compile(r"`(?P<name>[\w./-]+\.(?:lua|py|toml|txt))`")
INTERNAL = ("ARCHITECTURE.md", "CONTRIBUTING.md", "lua/", "sbredis/", "workers/")
"""The documents, and the folders of documents, in which a file name in code style means a file of this repository.

In other documents it may be a reader's file.
"""
VERSION = re.compile(r"^## \[?(?P<version>[^\]\s]+)\]?", re.MULTILINE)


def prose(text: str) -> str:
    """Return the text without its code, because brackets mean something else in code."""
    return CODE_SPAN.sub("", FENCE.sub("", text))


def anchors(text: str) -> set[str]:
    """Return the names by which links can reach the headings of a document."""
    found: set[str] = set()
    for heading in HEADING.finditer(FENCE.sub("", text)):
        words = re.sub(r"[^\w\- ]", "", heading["title"].lower())
        name = base = words.strip().replace(" ", "-")
        again = 0
        while name in found:
            again += 1
            name = f"{base}-{again}"
        found.add(name)
    return found


def check_links(document: Path, text: str) -> Iterator[str]:
    for link in LINK.finditer(prose(text)):
        target, _, anchor = link["target"].partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        there = (document.parent / target).resolve() if target else document
        if not there.is_relative_to(ROOT) or not there.exists():
            yield f"a link leads nowhere: {link['target']}"
        elif anchor and (there.suffix != ".md" or anchor not in anchors(there.read_text("utf-8"))):
            yield f"a link leads to no heading: {link['target']}"


def check_python(text: str) -> Iterator[str]:
    for fence in FENCE.finditer(text):
        if fence["language"] not in {"python", "py"}:
            continue
        line = text.count("\n", 0, fence.start()) + 1
        try:
            flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST
            compile(textwrap.dedent(fence["code"]), f"block at line {line}", "exec", flags=flags)
        except SyntaxError as error:
            yield f"the Python at line {line} does not compile: {error.msg} (line {error.lineno} of the block)"


def check_targets(text: str, targets: set[str]) -> Iterator[str]:
    code = [fence["code"] for fence in FENCE.finditer(text)]
    code += CODE_SPAN.findall(FENCE.sub("", text))
    for named in sorted({make["target"] for part in code for make in MAKE.finditer(part)} - targets):
        yield f"`make {named}` is no target of the Makefile"
    for kind, what in sorted({make.group("kind", "what") for part in code for make in WHAT.finditer(part)}):
        if what not in RUNS[kind]:
            yield f"`make {kind} WHAT={what}` is no choice of it"


def check_files(text: str, paths: set[str]) -> Iterator[str]:
    """Check that each named file exists. A text may give only the end of its path. ``NAME`` stands for any name."""
    for name in sorted({file["name"] for file in FILE.finditer(FENCE.sub("", text))}):
        if "NAME" not in name and not any(f"/{path}".endswith(f"/{name}") for path in paths):
            yield f"there is no file `{name}`"


def check_leftovers(text: str) -> Iterator[str]:
    for leftover in LEFTOVER.finditer(text):
        yield f"line {text.count(chr(10), 0, leftover.start()) + 1} is not finished: {leftover[0]}"


def check_version(changelog: str, version: str) -> Iterator[str]:
    """Check that the newest entry of the changelog has the version of the code, or is Unreleased."""
    top = VERSION.search(changelog)
    if top is None:
        yield "it has no entry (## [version] - date)"
    elif top["version"] not in {version, "Unreleased"}:
        yield f"its newest entry is {top['version']}, and the code says {version}"


def code_version() -> str:
    found = re.search(r'^__version__ = "(.+)"$', (ROOT / "sbredis/_version.py").read_text("utf-8"), re.MULTILINE)
    return found[1] if found else ""


def problems() -> Iterator[str]:
    """Yield all problems of the documents of this repository."""
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    paths = {path.relative_to(ROOT).as_posix() for path in files()}
    for document in files(".md"):
        text = document.read_text("utf-8")
        found = [
            *check_links(document, text),
            *check_python(text),
            *check_targets(text, targets),
            *check_leftovers(text),
        ]
        if document.relative_to(ROOT).as_posix().startswith(INTERNAL):
            found += check_files(text, paths)
        if document == ROOT / "CHANGELOG.md":
            found += check_version(text, code_version())
        yield from (f"{document.relative_to(ROOT)}: {problem}" for problem in found)


def main() -> int:
    found = list(problems())
    print("\n".join(found) or f"{len(files('.md'))} documents hold")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
