"""Texts of messages, names and errors come from anybody, and cannot disturb the terminal or the reader of a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from sbredis._visible import formula_free, json_line, visible, without_guard
from sbredis.aio import ServiceBusClient
from sbredis.model import ServiceBusMessage
from tests.cli.conftest import Bus
from tests.offenders import for_each

HOSTILE = "a\x1b[2J\x1b]0;title\x07\x9b31m\u202eevil\u2066\n99  active  faked\r\x00\u2028z"
"""Clears the screen, sets the title, colours, shows text backwards, adds a row, and ends lines in other ways."""
SHOWS: list[tuple[str, ...]] = [
    ("peek", "orders"),
    ("peek", "orders", "--count", "5"),
    ("message", "show", "orders", "{number}"),
    ("peek", "orders", "--dead-letters"),
    ("dlq", "list", "orders"),
    ("dlq", "report", "orders"),
    ("queue", "show", "orders"),
    ("queue", "list"),
    ("export", "--file", "{folder}/bus.yaml"),
    ("export", "--file", "{folder}/bus.json"),
    ("dump", "orders", "--file", "{folder}/orders.jsonl"),
]


def filled(bus: Bus) -> int:
    bus.queue(user_metadata=HOSTILE)

    async def work(client: ServiceBusClient) -> None:
        async with client.get_queue_sender("orders") as sender, client.get_queue_receiver("orders") as receiver:

            def message() -> ServiceBusMessage:
                return ServiceBusMessage(
                    HOSTILE,
                    message_id=HOSTILE,
                    subject=HOSTILE,
                    content_type=HOSTILE,
                    correlation_id=HOSTILE,
                    application_properties={"note": HOSTILE, HOSTILE: 1},
                )

            await sender.send_messages(message())
            (dead,) = await receiver.receive_messages(1)
            await receiver.dead_letter_message(dead, HOSTILE, HOSTILE)
            await sender.send_messages(message())

    bus.client(work)
    return int(bus.peek()[0]["sequence_number"])


@pytest.fixture
def number(bus: Bus) -> int:
    """The number of a message with hostile texts in a queue that has another one."""
    return filled(bus)


@for_each(
    ("command", "form"), [(command, form) for command in SHOWS for form in ((), ("--output", "json"))], ids=" ".join
)
def test_no_command_prints_a_character_that_disturbs_a_terminal(
    bus: Bus, tmp_path: Path, number: int, command: tuple[str, ...], form: tuple[str, ...]
) -> None:
    ran = bus.did(*(part.format(number=number, folder=tmp_path) for part in command), *form)
    written = "".join(each.read_text("utf-8") for each in tmp_path.iterdir())
    printed = f"{ran.out}{ran.err}{written}"
    assert [each for each in printed if not each.isprintable() and each != "\n"] == []
    assert not [line for line in printed.splitlines() if line.startswith("99")]
    if form and ran.out:
        assert [json.loads(line) for line in ran.out.splitlines()]


def test_messages_as_json_are_escaped_and_a_pipe_gets_bodies_as_they_are(bus: Bus) -> None:
    filled(bus)
    ran = bus.did("receive", "orders", "--ack", "none", "--output", "json")
    assert ran.out.rstrip("\n").isprintable()
    assert ran.json["body"] == ran.json["subject"] == HOSTILE
    assert bus.did("receive", "orders").out == f"{HOSTILE}\n"


def test_an_exported_file_declares_the_same_text(bus: Bus, tmp_path: Path) -> None:
    filled(bus)
    for name in ("bus.yaml", "bus.json"):
        bus.did("export", "--file", str(tmp_path / name))
        declared = yaml.safe_load((tmp_path / name).read_text("utf-8"))
        assert declared["queues"]["orders"]["user_metadata"] == HOSTILE
        assert bus.did("apply", str(tmp_path / name), "--plan").out == "no changes\n"


def test_a_dump_loads_the_same_texts(bus: Bus, tmp_path: Path) -> None:
    filled(bus)
    bus.queue("copy")
    bus.did("dump", "orders", "--file", str(tmp_path / "orders.jsonl"))
    bus.did("load", "copy", "--file", str(tmp_path / "orders.jsonl"))
    (copy,), (original,) = bus.peek("copy"), bus.peek()
    assert [copy[each] for each in ("body", "subject", "message_id")] == [HOSTILE] * 3
    assert copy["application_properties"] == original["application_properties"]


def test_errors_show_texts_that_they_quote_with_escapes(bus: Bus) -> None:
    ran = bus.run("peek", "orders\x1b[2J\u202e")
    assert ran.code
    assert ran.err.replace("\n", "").isprintable()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Grüße 你好 🙂", "Grüße 你好 🙂"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\nb\tc", "a\\nb\\tc"),
        ("\x9b\x7f", "\\x9b\\x7f"),
        ("\u202eabc\u2069", "\\u202eabc\\u2069"),
        ("\ud800", "\\ud800"),
        ("\U000e0041", "\\U000e0041"),
    ],
)
def test_text_for_a_terminal(text: str, shown: str) -> None:
    assert visible(text) == shown
    assert visible(f"{text}\n", lines=True) == (text if shown == text else shown.replace("\\n", "\n")) + "\n"


@pytest.mark.parametrize("text", [HOSTILE, "\ud83d\ude42", "🙂", "\U000e0041", "\x7f\x9b"])
def test_a_line_of_json_is_printable_and_means_the_same(text: str) -> None:
    line = json_line({text: [text]})
    assert line.isprintable()
    assert json.loads(line) == json.loads(json.dumps({text: [text]}))


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "'quoted'", "plain", "", "a=b"])
def test_a_cell_of_csv_is_no_formula_and_can_be_read_back(text: str) -> None:
    cell = formula_free(text)
    assert not cell.startswith(("=", "+", "-", "@", "\t", "\r"))
    assert without_guard(cell) == text
