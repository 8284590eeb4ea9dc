"""Tests that the page about the examples lists each of them once, with the sentence that the example says of itself."""

from __future__ import annotations

import ast
import re

from tools.repository import ROOT, files

PAGE = (ROOT / "docs" / "examples.md").read_text("utf-8")


def test_the_page_lists_every_example_with_the_first_sentences_of_its_docstring() -> None:
    rows = re.findall(r"^\| \[([\w.]+)\]\(\.\./examples/([\w.]+)\) \| (.+) \|$", PAGE, re.MULTILINE)
    examples = [path for path in files(".py") if path.parent == ROOT / "examples"]
    docs = {path.name: ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "" for path in examples}
    assert sorted(name for name, _, _ in rows) == sorted(docs)
    assert [name for name, target, _ in rows if name != target] == []
    assert {name: text for name, _, text in rows} == {
        name: doc.partition("\n\n")[0].replace("\n", " ") for name, doc in docs.items()
    }
