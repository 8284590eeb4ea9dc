"""Which server a command works on: contexts, options and variables."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from sbredis.cli import main
from sbredis.cli._places import Book, Context, NoPlaceError, Place, choose_place, read_book, write_book
from sbredis.exceptions import InvalidConnectionStringError

BOOK = Book({"local": Context("embedded://./bus"), "prod": Context("redis://:s3cret@db:6379", "live", True)}, "local")
ENV_URL = {"SBREDIS_URL": "redis://env"}
ENV_BOTH = ENV_URL | {"SBREDIS_CONTEXT": "prod"}

CHOICES = {
    "the option counts first": (ENV_BOTH, "redis://given", None, None, Place("redis://given")),
    "then the named context": (ENV_BOTH, None, "local", None, Place("embedded://./bus", name="local")),
    "then the variable with the server": (ENV_BOTH, None, None, None, Place("redis://env")),
    "then the variable with the context": (
        {"SBREDIS_CONTEXT": "prod"},
        None,
        None,
        None,
        Place("redis://:s3cret@db:6379", "live", protected=True, name="prod"),
    ),
    "then the context in use": ({}, None, None, None, Place("embedded://./bus", name="local")),
    "a namespace counts before that of the context": (
        {},
        None,
        "prod",
        "test",
        Place("redis://:s3cret@db:6379", "test", protected=True, name="prod"),
    ),
    "an empty variable is none": ({"SBREDIS_URL": ""}, None, None, None, Place("embedded://./bus", name="local")),
}


@pytest.mark.parametrize(("environment", "url", "context", "namespace", "chosen"), CHOICES.values(), ids=CHOICES)
def test_the_most_specific_setting_names_the_server(
    environment: dict[str, str], url: str | None, context: str | None, namespace: str | None, chosen: Place
) -> None:
    assert choose_place(BOOK, environment, url=url, context=context, namespace=namespace) == chosen


def test_settings_that_name_no_server_are_refused() -> None:
    with pytest.raises(NoPlaceError, match="No server is named"):
        choose_place(Book(), {}, url=None, context=None, namespace=None)
    with pytest.raises(NoPlaceError, match="Did you mean 'prod'"):
        choose_place(BOOK, {}, url=None, context="prd", namespace=None)
    with pytest.raises(NoPlaceError, match="exclude each other"):
        choose_place(BOOK, {}, url="redis://a", context="prod", namespace=None)
    with pytest.raises(InvalidConnectionStringError):
        choose_place(BOOK, {}, url="nonsense", context=None, namespace=None)


def test_contexts_are_stored_and_read_back() -> None:
    assert read_book(write_book(BOOK)) == BOOK


@pytest.fixture
def book_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "settings" / "contexts.json"
    monkeypatch.setenv("SBREDIS_CONTEXTS", str(path))
    return path


def test_the_file_of_contexts_is_for_its_owner_alone(book_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["context", "add", "prod", "redis://:s3cret@db:6379", "--protected"]) == 0
    assert stat.S_IMODE(book_file.stat().st_mode) == 0o600
    assert main(["context", "list"]) == 0
    assert main(["context", "list", "--output", "json"]) == 0
    shown = capsys.readouterr()
    assert "s3cret" not in shown.out + shown.err
    assert "redis://***@db:6379" in shown.out
    assert '"protected": true' in shown.out


def test_a_context_is_chosen_and_forgotten(book_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("one", "two"):
        assert main(["context", "add", name, f"redis://{name}"]) == 0
    assert read_book(book_file.read_text(encoding="utf-8")).current == "one"
    assert main(["context", "use", "two"]) == 0
    assert read_book(book_file.read_text(encoding="utf-8")).current == "two"
    assert main(["context", "remove", "two"]) == 0
    assert read_book(book_file.read_text(encoding="utf-8")) == Book({"one": Context("redis://one")}, None)
    before = book_file.read_text(encoding="utf-8")
    assert main(["context", "use", "on"]) == 2
    assert main(["context", "remove", "two"]) == 2
    assert main(["context", "add", "bad name", "redis://x"]) == 2
    assert main(["context", "add", "x", "nonsense"]) == 2
    assert "Did you mean 'one'?" in capsys.readouterr().err
    assert book_file.read_text(encoding="utf-8") == before


def test_a_broken_file_of_contexts_is_named(book_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    book_file.parent.mkdir()
    book_file.write_text("{", encoding="utf-8")
    assert main(["context", "list"]) == 2
    assert str(book_file) in capsys.readouterr().err
