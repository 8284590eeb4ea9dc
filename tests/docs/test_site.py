"""Tests of the documentation site: its pages, its navigation, and the reference that is made from docstrings.

``make check`` builds the site, and fails if a link leads nowhere. These tests need only the code.
"""

from __future__ import annotations

import builtins
import importlib
import inspect
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest

from sbredis.exceptions import Outcome, ServiceBusError
from tests.children import run_program
from tests.offenders import for_each
from tools.repository import ROOT
from tools.site.__main__ import outside
from tools.site.docstrings import ROLE, to_markdown
from tools.site.pages import pages, places, rewritten
from tools.site.public import MODULES, Name, can_be_called, members, names
from tools.site.reference import page_name, reference_pages, resolver
from tools.site.subjects import PLUMBING, SUBJECTS

CONFIGURATION = tomllib.loads((ROOT / "tools" / "site" / "zensical.toml").read_text("utf-8"))
NAMES = names()

every_name = for_each("name", NAMES, ids=lambda name: name.path)


def listed(entries: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the pages of a navigation, with those of its sections."""
    for entry in entries:
        for target in entry.values():
            if isinstance(target, str):
                yield target
            else:
                yield from listed(target)


# -- pages and navigation ----------------------------------------------------------------------------------------------


def test_the_navigation_lists_every_page_once() -> None:
    """The pages of single examples are the exception: the page about the examples lists them."""
    found = list(listed(CONFIGURATION["project"]["nav"]))
    assert sorted(found) == sorted(place for place in pages() if not place.startswith("examples/"))


def test_the_list_of_documents_has_the_groups_of_the_navigation() -> None:
    """The README is the front page of the site, the reference exists only in the site, and ARCHITECTURE.md lists the
    documents of the rooms.
    """
    text = (ROOT / "docs" / "index.md").read_text("utf-8")
    groups = {
        part.partition("\n")[0]: re.findall(r"^\| \[(.+?)\]\(", part, re.MULTILINE)
        for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    }
    sections = {
        name: ["README" if title == "All documents" else title for entry in entries for title in entry]
        for section in CONFIGURATION["project"]["nav"]
        for name, entries in section.items()
        if isinstance(entries, list) and name not in {"Reference", "Rooms"}
    }
    assert groups == sections


WHERE = {"docs/a.md": "a.md", "docs/b/c.md": "b/c.md", "README.md": "index.md", "docs/p.svg": "p.svg"}


@pytest.mark.parametrize(
    ("path", "text", "page"),
    [
        ("docs/a.md", "[c](b/c.md#part)", "[c](b/c.md#part)"),
        ("docs/b/c.md", "[a](../a.md) [r](../../README.md)", "[a](../a.md) [r](../index.md)"),
        ("README.md", "![p](docs/p.svg) [a](docs/a.md)", "![p](p.svg) [a](a.md)"),
        ("docs/a.md", "[`x`](../x.py)", "`x`"),
        ("docs/a.md", "[here](#part) [there](https://example.com)", "[here](#part) [there](https://example.com)"),
        ("docs/a.md", "`[x](x.md)`\n```\n[x](x.md) `\n```\n", "`[x](x.md)`\n```\n[x](x.md) `\n```\n"),
    ],
)
def test_a_link_to_a_file_becomes_a_link_to_its_page(path: str, text: str, page: str) -> None:
    """A link to a file without a page becomes text, and code stays as it is."""
    assert rewritten(text, path, WHERE) == page


def test_every_file_has_a_place_of_its_own() -> None:
    found = [place for path, place in places().items() if path not in {"docs", "examples"}]
    assert len(found) == len(set(found))


@pytest.mark.parametrize(
    ("html", "found"),
    [
        ('<script src="https://example.com/a.js"></script>', ["https://example.com/a.js"]),
        ('<link rel="stylesheet" href="//example.com/a.css">', ["//example.com/a.css"]),
        ('<img src="a.png"><script src="../a.js"></script><a href="https://example.com">x</a>', []),
    ],
)
def test_what_a_page_loads_from_another_server_is_found(html: str, found: list[str]) -> None:
    assert list(outside(html)) == found


# -- the reference -----------------------------------------------------------------------------------------------------


def test_the_reference_has_the_packages_that_the_contributing_guide_calls_public() -> None:
    table = (ROOT / "CONTRIBUTING.md").read_text("utf-8").partition("## What is public")[2].partition("\n## ")[0]
    public = {name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(.+?)`", row)}
    assert set(MODULES) == public - {"sbredis.sync", "sbredis.sync.management"}


WITHOUT_SPARK = """
import json, sys
from importlib.machinery import PathFinder

SPARK = {"google", "grpc", "grpc_status", "numpy", "pandas", "py4j", "pyarrow", "pyspark", "zstandard"}

class Finder(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.split(".")[0] in SPARK else super().find_spec(name, path, target)

sys.meta_path[:] = [Finder if each is PathFinder else each for each in sys.meta_path]
from tools.site.reference import reference_pages

json.dump(reference_pages(), sys.stdout)
assert not SPARK & set(sys.modules)
"""


@pytest.mark.long("it makes the API reference twice")
def test_the_reference_is_the_same_without_pyspark() -> None:
    """So nobody needs PySpark to build the site. Here nothing of requirements/spark.txt is found."""
    done = run_program(sys.executable, "-c", WITHOUT_SPARK, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == reference_pages()


@every_name
def test_every_public_name_has_a_place_in_the_page_of_its_package(name: Name) -> None:
    page = reference_pages()[page_name(name.module)]
    assert f"{{ #{name.path} }}" in page
    if inspect.isclass(name.value) and name.home == name.module:
        missing = [member.name for member in members(name.value) if f"#{name.path}.{member.name} }}" not in page]
        assert missing == []


def test_every_name_of_a_package_with_subjects_is_in_one_subject() -> None:
    for module, subjects in SUBJECTS.items():
        placed = [name for listed in subjects.values() for name in listed]
        assert sorted(placed) == sorted(name.name for name in names() if name.module == module)


def test_the_names_of_a_page_stand_below_their_subjects() -> None:
    page = reference_pages()[page_name("sbredis.workers")]
    headings = re.findall(r"^(##+) ([\w ]+)", page, re.MULTILINE)
    above = {name: subject for subject, listed in SUBJECTS["sbredis.workers"].items() for name in listed}
    assert [title for mark, title in headings if mark == "##"] == list(SUBJECTS["sbredis.workers"])
    assert [title.strip() for mark, title in headings if mark == "###"] == list(above)
    assert ("####", "include ") in headings


def test_plumbing_exists_and_is_left_out_of_the_reference() -> None:
    classes = {name.name: name for name in names() if inspect.isclass(name.value) and name.home == name.module}
    pages = "\n".join(reference_pages().values())
    for name, left_out in PLUMBING.items():
        assert [member for member in left_out if not hasattr(classes[name].value, member)] == []
        assert [member for member in left_out if f".{name}.{member} }}" in pages] == []


@every_name
def test_every_public_name_is_in_the_list_of_all_names(name: Name) -> None:
    assert (
        f"({page_name(name.home)}#{name.home}.{name.name}) <small>{name.module}</small>"
        in reference_pages()["index.md"]
    )


def test_every_link_of_the_reference_leads_to_a_place_in_it() -> None:
    there = {
        f"{page}#{anchor}" for page, text in reference_pages().items() for anchor in re.findall(r"\{ #(\S+) \}", text)
    }
    links = {link for text in reference_pages().values() for link in re.findall(r"\]\(([^)]+)\)", text)}
    assert links - there - set(reference_pages()) == set()


def test_a_class_that_gives_another_module_as_its_own_has_the_documentation_of_its_attributes() -> None:
    page = reference_pages()[page_name("sbredis.exceptions")]
    assert ServiceBusError.__module__ == Outcome.__module__ == "sbredis.exceptions"
    assert "Whether the same operation may succeed later if you change nothing." in page
    assert "The server answered with an error and changed nothing." in page


def unknown(text: str, name: Name) -> list[str]:
    """Return the references in a docstring to names that neither the reference nor the libraries have."""
    resolve = resolver(name.module, name.name)
    targets = [role["target"] for role in ROLE.finditer(text)]
    return [target for target in targets if resolve(target) is None and not of_a_library(target)]


def of_a_library(target: str) -> bool:
    """Return whether a name is one of Python's, or can be imported from outside of sbredis."""
    module, _, name = target.rpartition(".")
    if not module or hasattr(builtins, module):
        return hasattr(builtins, module or name)
    try:
        return not module.startswith("sbredis") and hasattr(importlib.import_module(module), name)
    except ImportError:
        return False


@every_name
def test_every_reference_in_a_public_docstring_names_something_public(name: Name) -> None:
    if not (inspect.isclass(name.value) or inspect.isroutine(name.value)) or name.home != name.module:
        return
    texts = [inspect.getdoc(name.value) or ""]
    texts += [member.doc for member in members(name.value)] if inspect.isclass(name.value) else []
    assert [target for text in texts for target in unknown(text, name)] == []


def resolve_x(target: str) -> str | None:
    return {"X": "x.md#X", "a.X.f": "x.md#X.f"}.get(target)


@pytest.mark.parametrize(
    ("docstring", "markdown"),
    [
        ("See :class:`X`.", "See [`X`](x.md#X)."),
        ("See :meth:`~a.X.f`, or :class:`ValueError`.", "See [`f`](x.md#X.f), or `ValueError`."),
        ("A table::\n\n    :class:`X`\n      b\n\nEnd.", "A table:\n\n```text\n:class:`X`\n  b\n```\n\nEnd."),
        ("Title.\n\n::\n\n    a\n\n    b", "Title.\n\n```text\na\n\nb\n```"),
    ],
)
def test_a_docstring_becomes_markdown(docstring: str, markdown: str) -> None:
    assert to_markdown(docstring, resolve_x) == markdown


def shown(path: str) -> str:
    """Return the part of the reference about a name."""
    page = reference_pages()[page_name(next(module for module in reversed(MODULES) if path.startswith(f"{module}.")))]
    return re.split(r"^#{2,3} ", page.partition(f"{{ #{path} }}")[2], maxsplit=1, flags=re.MULTILINE)[0]


def test_a_signature_is_written_as_in_python() -> None:
    complete = shown("sbredis.aio.ServiceBusReceiver.complete_message")
    assert "async def complete_message(\n    message: ServiceBusReceivedMessage,\n    *,\n" in complete
    made = shown("sbredis.aio.ServiceBusClient.get_queue_receiver")
    assert "    receive_mode: ServiceBusReceiveMode | str = ServiceBusReceiveMode.PEEK_LOCK,\n" in made
    assert "NoOptions" not in made


def test_keywords_that_a_function_takes_together_are_listed() -> None:
    assert re.search(
        r"^`sub_queue` `ServiceBusSubQueue \| str \| None`\n:   \S", shown("sbredis.workers.Router.queue"), re.MULTILINE
    )


def test_only_a_class_that_users_make_themselves_has_a_constructor() -> None:
    by_path = {name.path: name.value for name in NAMES}
    assert can_be_called(by_path["sbredis.aio.ServiceBusClient"])
    assert not can_be_called(by_path["sbredis.aio.ServiceBusReceiver"])
