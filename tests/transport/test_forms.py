"""The form of the calls of a node: a library, or single scripts where the library is refused."""

from __future__ import annotations

import pytest

from sbredis.transport import Library
from sbredis.transport._forms import CallForm, FormState, load_is_done, refuses_functions
from sbredis.transport._replies import Failure, FailureKind, failure_of_reply

OWN = Library("sb_1", "#!lua name=sb_1\n", frozenset({"send"}))
REFUSED = Failure(FailureKind.OUT_OF_MEMORY, "command not allowed when used memory > 'maxmemory'.", "OOM")


def test_a_node_gets_the_library_from_its_first_call_on() -> None:
    form = CallForm(OWN)
    assert form.library(0.0) is OWN
    assert form.state is FormState.LIBRARY


def test_a_node_without_a_library_gets_single_scripts_for_ever() -> None:
    form = CallForm()
    assert not form.refused(REFUSED, 0.0)
    assert [form.library(now) for now in (0.0, 1e9)] == [None, None]
    assert form.state is FormState.SCRIPTS


def test_a_node_that_refuses_the_library_gets_single_scripts_for_a_minute() -> None:
    form = CallForm(OWN)
    assert form.refused(REFUSED, 100.0)
    assert form.refusal is REFUSED
    assert [form.library(now) for now in (100.0, 159.9, 160.0, 161.0)] == [None, None, OWN, OWN]
    assert form.refused(REFUSED, 161.0)
    assert [form.library(now) for now in (220.9, 221.0)] == [None, OWN]


def test_a_refusal_for_want_of_a_right_lasts_an_hour() -> None:
    form = CallForm(OWN)
    assert form.refused(Failure(FailureKind.DENIED, "no permissions to run the 'function|load' command"), 100.0)
    assert [form.library(now) for now in (100.0, 160.0, 3699.9, 3700.0)] == [None, None, None, OWN]


def test_a_refusal_while_the_node_gets_single_scripts_changes_nothing() -> None:
    """Many calls may be under way when the first one is refused, and all of them bring a refusal."""
    form = CallForm(OWN)
    assert form.refused(REFUSED, 100.0)
    assert not form.refused(Failure(FailureKind.DENIED), 130.0)
    assert form.refusal is REFUSED
    assert form.library(160.0) is OWN


def test_the_reason_is_forgotten_when_the_library_is_loaded() -> None:
    form = CallForm(OWN)
    form.refused(REFUSED, 100.0)
    form.library(160.0)
    form.loaded()
    assert form.refusal is None


def test_a_strict_node_never_gets_single_scripts() -> None:
    form = CallForm(OWN, strict=True)
    assert not form.refused(REFUSED, 100.0)
    assert form.library(100.0) is OWN


@pytest.mark.parametrize(
    ("reply", "refuses"),
    [
        ("NOPERM User x has no permissions to run the 'fcall' command", True),
        ("NOPERM this user has no permissions to run the 'fcall_ro' command", True),
        ("ERR unknown command 'FCALL', with args beginning with: 'sb_1_send'", True),
        ("ERR unknown command 'fcall'", True),
        ("ERR unknown command `FCALL`, with args beginning with: `sb_1_send`", True),
        ("ERR unknown command FCALL", True),
        ("NOPERM No permissions to access a key", False),
        ("NOPERM User x has no permissions to run the 'set' command script: sb_1_send, on @user_function:9.", False),
        ("NOPERM User user_function has no permissions to run the 'fcall' command", True),
        ("NOPERM User x may not run the 'fcall' command script: sb_1_send, on @user_function:9.", False),
        ("ERR Function not found", False),
        ("LOCKLOST 'fcall'", False),
        ("OOM command not allowed when used memory > 'maxmemory'.", False),
    ],
)
def test_only_a_reply_about_the_command_itself_refuses_functions(reply: str, refuses: bool) -> None:
    code, _, detail = reply.partition(" ")
    assert refuses_functions(code, detail) is refuses


@pytest.mark.parametrize(
    ("reply", "done"),
    [
        ("ERR Library 'sb_1' already exists", True),
        ("ERR Function 'sb_1_send' already exists", False),
        ("OOM command not allowed when used memory > 'maxmemory'.", False),
        ("NOREPLICAS Not enough good replicas to write.", False),
        ("READONLY You can't write against a read only replica.", False),
        ("NOPERM User x has no permissions to run the 'function|load' command", False),
        ("ERR unknown command 'FUNCTION', with args beginning with: 'LOAD'", False),
        ("ERR Error compiling function: @user_function:1: x", False),
    ],
)
def test_a_library_that_exists_is_loaded(reply: str, done: bool) -> None:
    code, _, detail = reply.partition(" ")
    assert load_is_done(failure_of_reply(code, detail, None)) is done
    assert load_is_done(b"sb_1")
