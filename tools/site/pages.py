"""Collect the pages of the documentation site: docs/, the documents of the root and of the rooms, examples, reference.

The documents are written to be read in the repository too, so their links name files of the repository. Here each link
is changed to the page that shows the file. A link to a file that no page shows becomes plain text.
"""

from __future__ import annotations

import ast
import posixpath
import re
from itertools import zip_longest
from pathlib import Path

from tools.check_docs import CODE_SPAN, FENCE
from tools.repository import ROOT, files
from tools.site.reference import reference_pages

__all__ = ["assets", "pages", "places", "rewritten"]

PROJECT = ["ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"]
"""The documents at the root that have a page below project/. The README is the front page."""

ROOMS = ("lua/", "sbredis/", "workers/")
"""The folders of code whose documents have pages below rooms/."""

_LINK = re.compile(r"(?P<image>!?)\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<target>[^)\s]+)\)")
_EXTERNAL = re.compile(r"[a-z]+:|#")


def _documents() -> list[str]:
    return [path for path in (file.relative_to(ROOT).as_posix() for file in files()) if path.startswith("docs/")]


def places() -> dict[str, str]:
    """Return the place in the site of every file of the repository that has one."""
    return {
        "README.md": "index.md",
        "docs": "documents.md",
        "examples": "examples.md",
        **{path: path.removeprefix("docs/") for path in _documents()},
        "docs/index.md": "documents.md",
        **{name: f"project/{name.lower()}" for name in PROJECT},
        **{path: _room(path) for path in _room_documents()},
        **{f"examples/{path.name}": f"examples/{path.stem}.md" for path in _examples()},
    }


def _room_documents() -> list[str]:
    return [path for path in (file.relative_to(ROOT).as_posix() for file in files(".md")) if path.startswith(ROOMS)]


def _room(path: str) -> str:
    return f"rooms/{path.removeprefix('sbredis/').replace('/README.md', '.md')}"


def _examples() -> list[Path]:
    return [path for path in files(".py") if path.parent == ROOT / "examples"]


def pages() -> dict[str, str]:
    """Return the text of every page, by its place in the site."""
    where = places()
    documents = [path for path in where if path.endswith(".md")]
    return {
        **{where[path]: rewritten((ROOT / path).read_text("utf-8"), path, where) for path in documents},
        **{where[f"examples/{path.name}"]: _example(path) for path in _examples()},
        **{f"reference/{name}": text for name, text in reference_pages().items()},
    }


def assets() -> dict[str, Path]:
    """Return the files of docs/ that are not pages, such as pictures, by their places in the site."""
    return {
        place: ROOT / path
        for path, place in places().items()
        if path.startswith("docs/") and Path(path).suffix not in {".md", ""}
    }


def rewritten(text: str, path: str, where: dict[str, str]) -> str:
    """Return a document of the repository as a page: its links lead to pages. Code stays as it is."""
    code = [*FENCE.finditer(text), *CODE_SPAN.finditer(FENCE.sub(_blank, text))]
    held = [text[found.start() : found.end()] for found in sorted(code, key=lambda found: found.start())]
    # Code is taken out, because brackets mean something else there. It is put back at the end.
    bare = CODE_SPAN.sub("\0", FENCE.sub("\0", text))
    linked = _LINK.sub(lambda found: _link(found, path, where), bare)
    return "".join(part + code for part, code in zip_longest(linked.split("\0"), held, fillvalue=""))


def _blank(found: re.Match[str]) -> str:
    return "\n" * len(found[0])


def _link(found: re.Match[str], path: str, where: dict[str, str]) -> str:
    if _EXTERNAL.match(found["target"]):
        return found[0]
    target, _, anchor = found["target"].partition("#")
    named = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    if named not in where:
        return found["text"]
    address = posixpath.relpath(where[named], posixpath.dirname(where[path]) or ".")
    return f"{found['image']}[{found['text']}]({address}{'#' if anchor else ''}{anchor})"


def _example(path: Path) -> str:
    """Return the page of an example: its docstring, its program, and how to run it."""
    source = path.read_text("utf-8")
    summary = (ast.get_docstring(ast.parse(source)) or "").split("\n\n")[0].replace("\n", " ")
    return (
        f"# {path.name}\n\n{summary}\n\n```sh\npython examples/{path.name}\n```\n\n```python\n{source.strip()}\n```\n"
    )
