"""Which server a command works on: contexts, options and variables."""

from __future__ import annotations

import os
import re
import stat
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from sbredis.cli import _invocation as calls
from sbredis.cli import main
from sbredis.cli._book_file import exposure
from sbredis.cli._server_choice import (
    Book,
    ChosenServer,
    NoServerError,
    StoredContext,
    choose_server,
    read_book,
    require_url,
    with_absolute_paths,
    without_library,
    write_book,
)
from sbredis.exceptions import InvalidConnectionStringError
from tests.children import run_program
from tests.cli.conftest import Bus

BOOK = Book(
    {"local": StoredContext("embedded://./bus"), "prod": StoredContext("redis://:s3cret@db:6379", "live", True)},
    "local",
)
ENV_URL = {"SBREDIS_URL": "redis://env"}
ENV_BOTH = ENV_URL | {"SBREDIS_CONTEXT": "prod"}

CHOICES = {
    "the option counts first": (ENV_BOTH, "redis://given", None, None, ChosenServer("redis://given")),
    "then the named context": (ENV_BOTH, None, "local", None, ChosenServer("embedded://./bus", name="local")),
    "then the variable with the server": (ENV_BOTH, None, None, None, ChosenServer("redis://env")),
    "then the variable with the context": (
        {"SBREDIS_CONTEXT": "prod"},
        None,
        None,
        None,
        ChosenServer("redis://:s3cret@db:6379", "live", protected=True, name="prod"),
    ),
    "then the context in use": ({}, None, None, None, ChosenServer("embedded://./bus", name="local")),
    "a namespace counts before that of the context": (
        {},
        None,
        "prod",
        "test",
        ChosenServer("redis://:s3cret@db:6379", "test", protected=True, name="prod"),
    ),
    "an empty variable is none": (
        {"SBREDIS_URL": ""},
        None,
        None,
        None,
        ChosenServer("embedded://./bus", name="local"),
    ),
}


@pytest.mark.parametrize(("environment", "url", "context", "namespace", "chosen"), CHOICES.values(), ids=CHOICES)
def test_the_most_specific_setting_names_the_server(
    environment: dict[str, str], url: str | None, context: str | None, namespace: str | None, chosen: ChosenServer
) -> None:
    assert choose_server(BOOK, environment, url=url, context=context, namespace=namespace) == chosen


def test_settings_that_name_no_server_are_refused() -> None:
    with pytest.raises(NoServerError, match="No server is named"):
        choose_server(Book(), {}, url=None, context=None, namespace=None)
    with pytest.raises(NoServerError, match="Did you mean 'prod'"):
        choose_server(BOOK, {}, url=None, context="prd", namespace=None)
    with pytest.raises(NoServerError, match="exclude each other"):
        choose_server(BOOK, {}, url="redis://a", context="prod", namespace=None)
    with pytest.raises(NoServerError, match="is empty"):
        choose_server(BOOK, {}, url="", context=None, namespace=None)
    with pytest.raises(InvalidConnectionStringError):
        choose_server(BOOK, {}, url="nonsense", context=None, namespace=None)


def test_a_server_that_ends_with_the_command_is_refused() -> None:
    book = Book({"memory": StoredContext("memory://x")})
    for url, context in (
        ("memory://x", None),
        ("memory://", None),
        ("MEMORY://x?a=b", None),
        ("memory://user:secret@x", None),
        (None, "memory"),
    ):
        with pytest.raises(NoServerError, match=r"ends with the command.* Use .*embedded://\./bus") as caught:
            choose_server(book, {}, url=url, context=context, namespace=None)
        assert "secret" not in str(caught.value)


ABSOLUTE = {
    "embedded://./bus": "embedded:///srv/ann/bus",
    "embedded://a%20b/c?namespace=n": "embedded:///srv/ann/a%20b/c?namespace=n",
    "embedded://../bus": "embedded:///srv/ann/../bus",
    "embedded:///srv/bus": "embedded:///srv/bus",
    "rediss://:p%40w@h/2?tls_ca=ca.pem&namespace=n": "rediss://:p%40w@h/2?tls_ca=/srv/ann/ca.pem&namespace=n",
    "rediss://h?tls_ca=/ca.pem&tls_cert=c&tls_key=./k": (
        "rediss://h?tls_ca=/ca.pem&tls_cert=/srv/ann/c&tls_key=/srv/ann/k"
    ),
    "redis://:pw@h:6379?db=3": "redis://:pw@h:6379?db=3",
    "unix:///run/redis.sock": "unix:///run/redis.sock",
}


@pytest.mark.parametrize(("url", "absolute"), ABSOLUTE.items())
def test_a_connection_string_gets_absolute_paths(url: str, absolute: str) -> None:
    assert with_absolute_paths(url, Path("/srv/ann")) == absolute


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
    assert stat.S_IMODE(book_file.parent.stat().st_mode) == 0o700
    assert main(["context", "list"]) == 0
    assert main(["context", "list", "--output", "json"]) == 0
    shown = capsys.readouterr()
    assert "s3cret" not in shown.out + shown.err
    assert "redis://***@db:6379" in shown.out
    assert '"protected": true' in shown.out


EXPOSURES = {
    "its owner may read and write it": (0o600, 1000, None),
    "its owner may read it": (0o400, 1000, None),
    "the group may read it": (0o640, 1000, r"access to it \(mode 0640\), so it is not read\. Run: chmod 600 'my file'"),
    "everyone may read it": (0o604, 1000, r"\(mode 0604\).* Run: chmod 600 'my file'"),
    "the group may write it": (0o620, 1000, r"\(mode 0620\).* Run: chmod 600 'my file'"),
    "everyone may run it": (0o601, 1000, r"\(mode 0601\).* Run: chmod 600 'my file'"),
    "another user owns it": (0o600, 1001, "belongs to another user.* set SBREDIS_CONTEXTS"),
    "the superuser owns it": (0o644, 0, "belongs to another user.* set SBREDIS_CONTEXTS"),
}


@pytest.mark.parametrize(("mode", "owner", "problem"), EXPOSURES.values(), ids=EXPOSURES)
def test_a_file_of_contexts_is_read_only_if_nobody_else_has_access_to_it(
    mode: int, owner: int, problem: str | None
) -> None:
    said = exposure(Path("my file"), mode=stat.S_IFREG | mode, owner=owner, user=1000)
    assert (said is None) is (problem is None)
    assert re.search(problem or "", said or "") is not None


@pytest.mark.parametrize("linked", [False, True], ids=["the file itself", "a link to it"])
def test_a_file_of_contexts_that_others_can_read_is_refused(
    linked: bool, book_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["context", "add", "prod", "redis://:s3cret@db:6379"]) == 0
    file = book_file.rename(tmp_path / "real.json") if linked else book_file
    if linked:
        book_file.symlink_to(file)
    file.chmod(0o644)
    before = file.read_bytes()
    capsys.readouterr()
    for command in (
        ["context", "list"],
        ["context", "add", "other", "redis://other"],
        ["context", "remove", "prod"],
        ["queue", "list"],
    ):
        assert main(command) == 2
        shown = capsys.readouterr()
        assert f"Run: chmod 600 {book_file}" in shown.err
        assert "s3cret" not in shown.out + shown.err
    assert (file.read_bytes(), book_file.is_symlink()) == (before, linked)
    file.chmod(0o600)
    assert main(["context", "list"]) == 0


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only the superuser can give a file away")
def test_a_file_of_contexts_of_another_user_is_refused(book_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["context", "add", "prod", "redis://db"]) == 0
    os.chown(book_file, 12345, -1)
    before = book_file.read_bytes()
    assert main(["context", "use", "prod"]) == 2
    assert "belongs to another user" in capsys.readouterr().err
    assert (book_file.read_bytes(), book_file.stat().st_uid) == (before, 12345)


def test_a_context_is_chosen_and_forgotten(book_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("one", "two"):
        assert main(["context", "add", name, f"redis://{name}"]) == 0
    assert read_book(book_file.read_text(encoding="utf-8")).current == "one"
    assert main(["context", "use", "two"]) == 0
    assert read_book(book_file.read_text(encoding="utf-8")).current == "two"
    assert main(["context", "remove", "two"]) == 0
    assert read_book(book_file.read_text(encoding="utf-8")) == Book({"one": StoredContext("redis://one")}, None)
    before = book_file.read_text(encoding="utf-8")
    assert main(["context", "use", "on"]) == 2
    assert main(["context", "remove", "two"]) == 2
    assert main(["context", "add", "bad name", "redis://x"]) == 2
    assert main(["context", "add", "x", "nonsense"]) == 2
    assert "Did you mean 'one'?" in capsys.readouterr().err
    assert book_file.read_text(encoding="utf-8") == before


def test_after_the_context_in_use_is_forgotten_the_user_learns_what_commands_use(
    book_file: Path, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    del book_file
    for name in ("one", "two", "three", "four"):
        assert bus.run_plain("context", "add", name, f"redis://{name}").code == 0
    assert bus.run_plain("context", "remove", "four").err == "", "it was not in use"
    assert bus.run_plain("context", "remove", "one").err.endswith(" choose one: sbredis context use NAME\n")
    assert bus.run_plain("context", "use", "two").code == 0
    assert bus.run_plain("context", "remove", "two").err.endswith(" choose one: sbredis context use three\n")
    assert bus.run_plain("context", "use", "three").code == 0
    ran = bus.run_plain("context", "remove", "three", "--output", "json")
    assert (ran.json, ran.err.startswith("no context is left: give --url")) == ({"name": "three"}, True)
    assert bus.run_plain("context", "add", "five", "redis://five").code == 0
    monkeypatch.setenv("SBREDIS_URL", bus.url)
    assert bus.run_plain("context", "remove", "five").err == "it was the context in use; commands use $SBREDIS_URL\n"


def test_without_a_home_folder_a_server_that_is_named_can_be_used(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SBREDIS_CONTEXTS", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "")
    assert bus.run("queue", "list").code == 0
    for arguments in (["context", "add", "a", "redis://a"], ["context", "list"], ["queue", "list"]):
        ran = bus.run_plain(*arguments)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith("sbredis: There is no home folder, where contexts are stored. ")


def test_without_a_known_user_there_is_no_home_folder(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("SBREDIS_CONTEXTS", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", unknown)
    assert bus.run("queue", "list").code == 0
    ran = bus.run_plain("context", "list")
    assert (ran.code, ran.err.startswith("sbredis: There is no home folder")) == (2, True)


def test_a_context_names_the_same_folder_wherever_it_is_used(
    book_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["context", "add", "local", "embedded://./bus"]) == 0
    assert capsys.readouterr().out == f"context local: embedded://{tmp_path}/bus\n"
    assert read_book(book_file.read_text("utf-8")).contexts["local"].url == f"embedded://{tmp_path}/bus"
    assert main(["context", "add", "memory", "memory://x"]) == 2
    assert "embedded://./bus" in capsys.readouterr().err


PROTECTED = {
    "replace": (["add", "prod", "redis://other"], "Replace the protected context prod (redis://***@db)?"),
    "change": (["add", "prod", "redis://:s3cret@db"], "Replace the protected context prod (redis://***@db)?"),
    "remove": (["remove", "prod"], "Forget the protected context prod (redis://***@db)?"),
}


@pytest.mark.parametrize(("words", "question"), PROTECTED.values(), ids=PROTECTED)
def test_a_protected_context_is_not_lost_without_a_question(
    book_file: Path, bus: Bus, words: list[str], question: str
) -> None:
    add = ("context", "add", "prod", "redis://:s3cret@db", "--protected")
    assert bus.run_plain(*add).code == 0
    before = book_file.read_text("utf-8")
    ran = bus.run_plain("context", *words)
    assert (ran.code, ran.out) == (2, "")
    assert f"{question} Give --yes" in ran.err
    ran = bus.typed("prd\n", "context", *words)
    assert (ran.code, ran.out) == (1, "")
    assert f"{question} Type 'prod' to go on" in ran.err
    assert book_file.read_text("utf-8") == before
    assert bus.run_plain(*add).code == 0, "the same context is no change"
    assert bus.typed("prod\n", "context", *words).code == 0
    assert book_file.read_text("utf-8") != before
    assert bus.run_plain(*add).code == 0, "an unprotected context is replaced without a question"
    assert bus.run_plain("context", *words, "--yes").code == 0


def test_a_broken_file_of_contexts_is_named(book_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    book_file.parent.mkdir()
    book_file.write_text("{", encoding="utf-8")
    assert main(["context", "list"]) == 2
    assert str(book_file) in capsys.readouterr().err


# -- the connection string from stdin ----------------------------------------------------------------------------------


def test_the_connection_string_is_the_first_line_of_stdin(bus: Bus) -> None:
    bus.queue()
    url = bus.url.encode()
    assert [row["name"] for row in bus.run_plain("queue", "list", "--url", "-", "-o", "json", stdin=url).json] == [
        "orders"
    ]
    assert bus.run_plain("--url", "-", "send", "orders", stdin=url + b"\nthe body\n").code == 0
    assert bus.bodies() == ["the body\n"]
    assert bus.run_plain("apply", "-", "--url", "-", stdin=url + b"\nqueues: {q: }\n").code == 0
    assert bus.run_plain("queue", "show", "q", "--url", "-", stdin=url).code == 0
    for wrong, said in (
        (b"", "stdin has no line with a connection string"),
        (b"\n", "stdin has no line with a connection string"),
        (b"\xff\n", "Connection string: "),
        (b"nonsense\n", "Connection string: "),
    ):
        ran = bus.run_plain("queue", "list", "--url", "-", stdin=wrong)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith(f"sbredis: {said}")


def test_a_stdin_that_cannot_be_read_has_no_connection_string(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> str:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(calls, "first_line", fail)
    ran = bus.run_plain("queue", "list", "--url", "-")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("sbredis: stdin cannot be read: Input/output error.\n")


def test_what_follows_the_connection_string_is_left_in_the_pipe(bus: Bus) -> None:
    bus.queue()
    ran = run_program(
        sys.executable, "-m", "sbredis.cli", "send", "orders", "--lines", "--url", "-", stdin=f"{bus.url}\na\nb\n"
    )
    assert (ran.returncode, ran.stdout) == (0, "sent 2 messages to orders\n")
    assert bus.bodies() == ["a", "b"]


@pytest.mark.parametrize(
    ("url", "changed"),
    [
        ("redis://h:1", "redis://h:1?scripts=needed"),
        ("redis://h:1?scripts=auto", "redis://h:1?scripts=needed"),
        ("redis://a:b@h:1?namespace=n&scripts=library&db=2", "redis://a:b@h:1?namespace=n&db=2&scripts=needed"),
        ("embedded:///folder", "embedded:///folder?scripts=needed"),
    ],
)
def test_a_connection_string_without_a_library_changes_nothing_else(url: str, changed: str) -> None:
    assert without_library(url) == changed
    assert require_url(changed) == replace(require_url(url), scripts="needed")
