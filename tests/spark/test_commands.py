"""The arguments of ``python -m sbredis.spark``."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sbredis.spark.__main__ import main
from sbredis.spark._commands import SETUP_FAILED, JobCommand, read_command, release_line

WRONG = {
    "no job": ([], "sbredis: Missing command.\nTry 'python -m sbredis.spark --help' for help."),
    "an unknown job": (["captur", "orders"], "No such command 'captur'. Did you mean 'capture'?"),
    "an unknown option": (
        ["skew", "--unknown"],
        "No such option '--unknown'.\nTry 'python -m sbredis.spark skew --help'",
    ),
    "nearly an option": (["capture", "--too", "x"], "No such option '--too'. Did you mean '--to'?"),
    "too much": (["skew", "q", "r"], "Got unexpected extra argument (r)"),
    "no entity": (["skew"], "Missing argument 'ENTITY'."),
    "no name of an entity": (["skew", "a b/"], "Invalid value for 'ENTITY': "),
    "two connection strings": (
        ["skew", "q", "--url", "x", "--url-env", "Y"],
        "Give one of --url-env, --url-file and --url.",
    ),
    "no folder": (["capture", "q"], "Missing option '--to'."),
    "no choice": (["dlq-resubmit", "q"], "Give --report or --fingerprint"),
    "a rate that is none": (["replay", "q", "--source", "x", "--rate", "fast"], "'fast' is not a number"),
    "a rate of nothing": (["replay", "q", "--source", "x", "--rate", "0"], "'0' is not a number"),
    "no tasks": (["replay", "q", "--source", "x", "--tasks", "0"], "'0' is not a whole number from 1 on"),
    "a time that is none": (["reservations", "--stale-after", "soon"], "it must be a time such as 90, 500 ms, 5 min"),
    "no time at all": (["reservations", "--stale-after", "0"], "it must be longer than 0"),
    "no time between batches": (
        ["capture", "q", "--to", "a", "--checkpoint", "b", "--every", "often"],
        "such as 90, 500",
    ),
    "one folder twice": (["compact", "--source", "x", "--to", "./x"], "--to must be another folder"),
}


@pytest.mark.parametrize(("arguments", "said"), WRONG.values(), ids=WRONG)
def test_wrong_arguments_are_refused(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        read_command(arguments)
    assert ended.value.code == SETUP_FAILED
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "job",
    ["", "capture", "replay", "dlq-report", "dlq-resubmit", "latency", "skew", "compact", "reservations", "release"],
)
def test_every_job_has_help_with_an_example(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        read_command([*job.split(), "--help"])
    assert ended.value.code == 0
    assert f"python -m sbredis.spark {job}" in capsys.readouterr().out


def test_the_examples_of_the_help_are_right(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read_command(["--help"])
    told = capsys.readouterr().out
    lines = [
        line.split("sbredis.spark ", 1)[1]
        for line in told.splitlines()
        if line.startswith("    python -m sbredis.spark")
    ]
    assert len(lines) == 9
    for line in lines:
        import shlex

        read_command(shlex.split(line))


def test_the_connection_string_is_in_the_environment_unless_an_option_says_otherwise() -> None:
    assert read_command(["skew", "q"]).server == {"urlEnv": "SBREDIS_URL"}
    assert read_command(["skew", "q", "--url-env", "OTHER"]).server == {"urlEnv": "OTHER"}
    assert read_command(["skew", "q", "--url-file", "f", "--namespace", "n"]).server == {
        "urlFile": "f",
        "namespace": "n",
    }
    assert read_command(["skew", "q", "--url", "redis://x"]).server == {"url": "redis://x"}


def test_a_command_is_read() -> None:
    line = "capture orders --to out --checkpoint check --consumer me --every 10s --max-messages 5 --master local[2]"
    line += " --accept-loss"
    assert read_command(line.split()) == JobCommand(
        job="capture",
        entity="orders",
        server={"urlEnv": "SBREDIS_URL"},
        master="local[2]",
        to="out",
        checkpoint="check",
        consumer="me",
        every="10000 milliseconds",
        most_rows=5,
        accept_loss=True,
    )


@pytest.mark.parametrize(
    ("given", "told"), [("10 seconds", "10000"), ("500ms", "500"), ("5 min", "300000"), ("0 seconds", "0")]
)
def test_the_time_between_batches_is_told_to_spark_in_milliseconds(given: str, told: str) -> None:
    line = ["capture", "q", "--to", "a", "--checkpoint", "b", "--every", given]
    assert read_command(line).every == f"{told} milliseconds"


def test_columns_to_leave_out_are_listed_one_by_one() -> None:
    assert read_command(["replay", "q", "--source", "x", "--drop", "a", "--drop", "b"]).drop == ("a", "b")
    assert read_command(["skew", "q"]).drop == ()


@pytest.mark.parametrize(
    ("server", "line"),
    [
        ([], ""),
        (["--url-env", "OTHER", "--namespace", "n s"], " --url-env OTHER --namespace 'n s'"),
        (["--url-file", "f"], " --url-file f"),
        (["--url", "redis://:secret@host"], " --url URL"),
    ],
)
def test_the_command_that_releases_an_entity_is_told(server: list[str], line: str) -> None:
    """With everything but a connection string, which may have a password."""
    command = read_command(["capture", "a/subscriptions/b", "--to", "t", "--checkpoint", "c", *server])
    assert release_line(command) == f"python -m sbredis.spark release a/subscriptions/b{line}"
    assert release_line(command, "q").startswith("python -m sbredis.spark release q")


def test_the_command_that_releases_an_entity_needs_a_connection_string_if_a_function_returns_it() -> None:
    command = JobCommand(job="release", entity="q", server={"urlProvider": "module:function", "namespace": "n"})
    assert release_line(command) == "python -m sbredis.spark release q --url URL --namespace n"


def test_the_command_that_releases_an_entity_begins_as_the_user_began() -> None:
    command = read_command(["reservations"], ["sbredis", "--context", "prod", "spark"])
    assert release_line(command, "orders") == "sbredis --context prod spark release orders"


def test_reservations_are_stale_after_a_time_that_the_user_chooses() -> None:
    assert read_command(["reservations"]).stale_after == 900
    assert read_command(["reservations", "--stale-after", "5 min"]).stale_after == 300


def test_the_connection_string_does_not_show_in_a_command() -> None:
    assert "secret" not in repr(read_command(["skew", "q", "--url", "redis://:secret@host"]))


def test_a_connection_string_in_a_wrong_encoding_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bus").write_bytes(b"redis://h\xff")
    assert main(["reservations", "--url-file", str(tmp_path / "bus")]) == SETUP_FAILED
    assert "which is not text in UTF-8" in capsys.readouterr().err


def test_a_wrong_namespace_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reservations", "--url", "redis://127.0.0.1:1", "--namespace", "bad ns!"]) == SETUP_FAILED
    assert "The option namespace is wrong: " in capsys.readouterr().err


def test_a_missing_connection_string_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SBREDIS_URL", raising=False)
    assert "SBREDIS_URL" not in os.environ
    assert main(["reservations"]) == SETUP_FAILED
    assert "'SBREDIS_URL', which is not set" in capsys.readouterr().err
