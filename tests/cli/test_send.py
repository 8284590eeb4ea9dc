"""``sbredis send``."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sbredis import ServiceBusReceivedMessage
from sbredis.aio import ServiceBusClient
from tests.cli.children import Child
from tests.cli.conftest import Bus
from tests.offenders import for_each
from tests.waiting import wait_until


def sent(bus: Bus, path: str = "orders") -> list[ServiceBusReceivedMessage]:
    async def work(client: ServiceBusClient) -> list[ServiceBusReceivedMessage]:
        return await client.get_receiver(path).peek_messages(1000)  # it is not opened: the queue may have sessions

    return bus.client(work)


def test_a_body_is_sent_with_its_properties(bus: Bus) -> None:
    bus.queue()
    before = datetime.now(UTC)
    ran = bus.did(
        *("send", "orders", "two teapots", "-p", "customer=ann=x", "-p", "pieces:=2", "--subject", "order"),
        *("--message-id", "m", "--correlation-id", "c", "--content-type", "text/plain", "--ttl", "1h30m"),
        *("--partition-key", "k", "--to", "t", "--reply-to", "r", "--schedule", "10m"),
    )
    assert ran.out == "sent 1 message to orders\n"
    (message,) = sent(bus)
    assert (str(message), message.subject, message.message_id) == ("two teapots", "order", "m")
    assert message.application_properties == {"customer": "ann=x", "pieces": 2}
    assert (message.correlation_id, message.content_type, message.to, message.reply_to) == ("c", "text/plain", "t", "r")
    assert (message.partition_key, message.time_to_live) == ("k", timedelta(minutes=90))
    assert message.scheduled_enqueue_time_utc is not None
    assert message.scheduled_enqueue_time_utc > before + timedelta(minutes=9)


def test_a_body_is_sent_several_times(bus: Bus) -> None:
    bus.queue(requires_session=True)
    ran = bus.did("send", "orders", "x", "--session", "ann", "--count", "3", "--rate", "1000", "--output", "json")
    assert json.loads(ran.out) == {"sent": 3, "entity": "orders"}
    messages = sent(bus)
    assert [(str(message), message.session_id) for message in messages] == [("x", "ann")] * 3
    assert len({message.message_id for message in messages}) == 3


CONTENTS = {
    "body": (b"\xff\x00\n", [b"\xff\x00\n"]),
    "--lines": (b"a\nb\r\n\nc", [b"a", b"b", b"", b"c"]),
    "--json-lines": (b'{"body": "a"}\n{"body": {"b": 1}}\n', [b"a", b'{"b": 1}']),
}


@pytest.mark.parametrize("stdin", [True, False])
@pytest.mark.parametrize("kind", CONTENTS)
def test_bodies_come_from_a_file_or_from_stdin(bus: Bus, tmp_path: Path, stdin: bool, kind: str) -> None:
    bus.queue()
    options = () if kind == "body" else (kind,)
    content, bodies = CONTENTS[kind]
    path = tmp_path / "content"
    path.write_bytes(content)
    if stdin:
        bus.did("send", "orders", *options, stdin=content)
    else:
        bus.did("send", "orders", *options, "--file", str(path))
    assert [message.body for message in sent(bus)] == bodies


def test_the_fields_of_a_line_come_before_the_options(bus: Bus) -> None:
    bus.queue()
    line = b'{"body": "x", "subject": "own", "application_properties": {"a": 1}}'
    bus.did("send", "orders", "--json-lines", "--subject", "all", "--to", "t", "-p", "a=2", "-p", "b=3", stdin=line)
    (message,) = sent(bus)
    assert (message.subject, message.to, message.application_properties) == ("own", "t", {"a": 1, "b": "3"})


def test_a_file_with_a_wrong_line_is_refused_before_anything_is_sent(bus: Bus, tmp_path: Path) -> None:
    bus.queue()
    path = tmp_path / "lines"
    for line, problem in {
        b"{": "line 2: no JSON: Expecting property name",
        b'{"bdy": 1}': "line 2: a message has no field 'bdy'. Did you mean 'body'?",
        b'{"body": "x", "subject": "' + b"x" * 70_000 + b'"}': "line 2: subject",
        b'{"body": "x", "time_to_live": 1e999}': "line 2: time_to_live: inf is not a number of seconds",
        b'{"body": "x", "application_properties": ' + b"[" * 100_000: "line 2: its values are nested too deeply",
    }.items():
        path.write_bytes(b'{"body": "x"}\n' + line)
        for arguments in (("send", "orders", "--json-lines"), ("load", "orders")):
            ran = bus.run(*arguments, "--file", str(path))
            assert (ran.code, ran.out) == (2, "")
            assert f"{path}, {problem}" in ran.err
    assert sent(bus) == []


def test_a_wrong_line_of_stdin_says_how_many_lines_were_sent(bus: Bus) -> None:
    bus.queue()
    ran = bus.run("send", "orders", "--json-lines", stdin=b'{"body": "x"}\n{"body": "y"}\n3\n{"body": "z"}\n')
    assert ran.code == 1, "2 is for what has changed nothing"
    assert ran.err == (
        "stopped: sent 2 messages\n"
        'sbredis: stdin, line 3: a message is a JSON object such as {"body": "text"}, not a number\n'
    )
    assert list(map(str, sent(bus))) == ["x", "y"]


def test_a_message_that_is_refused_is_named_as_the_user_knows_it(bus: Bus, tmp_path: Path) -> None:
    bus.queue(max_message_size_in_kilobytes=1)
    large = b"x" * 2000
    path = tmp_path / "lines"
    path.write_bytes(b"a\nb\n" + large + b"\n")
    for words, stdin, said in (
        ((), large, "The message"),
        (("--message-id", "m"), large, "The message"),
        (("--count", "3"), large, "Message 1 of 3"),
        (("--lines",), path.read_bytes(), "Line 3 of stdin"),
        (("--lines", "--file", str(path)), None, f"Line 3 of {path}"),
    ):
        ran = bus.run("send", "orders", *words, stdin=stdin)
        assert (ran.code, ran.out) == (1 if "--lines" in words else 2, ""), "2 is for what has changed nothing"
        assert ran.err.splitlines()[-1].startswith(f"sbredis: {said} was not sent: The message has 20")
        assert "stream" not in ran.err


REFUSED = {
    "not both": ("x", "--lines", "--json-lines"),
    "not two of them": ("x", "--lines"),
    "not for lines": ("--lines", "--count", "2"),
    "is for one message": ("--lines", "--message-id", "m"),
    "is not a property": ("x", "-p", "a"),
    "must be JSON": ("x", "-p", "a:=b"),
    "--property: application property 'a' is of the type list": ("x", "-p", "a:=[1]"),
    "--property: application property 'b' is of the type dict": ("--lines", "-p", 'b:={"c": 1}'),
    "maximum recursion depth": ("x", "-p", "a:=" + "[" * 100_000),
    "is not a duration": ("x", "--ttl", "soon"),
    "is not a time": ("x", "--schedule", "soon"),
    "does not exist": ("--file", "missing"),
    "is not in the range": ("x", "--rate", "0"),
    "subject": ("x", "--subject", "x" * 70_000),
}
"""Parts of the texts of refusals, and arguments that are refused."""


def test_an_argument_that_is_no_text_is_sent_as_its_bytes(bus: Bus) -> None:
    bus.queue()
    bus.did("send", "orders", b"\xff".decode(errors="surrogateescape"))
    assert [message.body for message in sent(bus)] == [b"\xff"]


@pytest.mark.usefixtures("orders")
@for_each("text", REFUSED)
def test_options_that_do_not_fit_are_refused(bus: Bus, text: str) -> None:
    ran = bus.run("send", "orders", *REFUSED[text])
    assert (ran.code, ran.out) == (2, "")
    assert text in ran.err
    assert sent(bus) == []


def test_a_server_that_does_not_answer_is_named_with_the_time_tried(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    defaults = ServiceBusClient.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "connect_timeout", 0.5)  # time for a second attempt
    bus.url = "redis://:s3cret@127.0.0.1:1"
    ran = bus.run("send", "orders", "x")
    assert ran.code == 5
    assert re.search(r"127\.0\.0\.1:1 (cannot be reached|did not answer within [0-9.]+ s)", ran.err)
    assert " s" in ran.err
    assert "s3cret" not in ran.err


def test_lines_are_sent_as_they_come_and_an_interruption_says_how_many(bus: Bus) -> None:
    bus.queue()
    with Child("send", "orders", "--lines", "--url", bus.url, stdin=subprocess.PIPE) as child:
        assert child.process.stdin is not None
        child.process.stdin.write("a\nb\nhalf a line")
        child.process.stdin.flush()
        wait_until(lambda: len(sent(bus)) == 2)
        child.signal(signal.SIGINT)
        assert child.end() == (130, "interrupted: sent 2 messages\n")
    assert list(map(str, sent(bus))) == ["a", "b"]
