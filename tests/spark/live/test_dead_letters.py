"""Dead letters: a report of why they died, and a choice of those that are sent back."""

from __future__ import annotations

import csv
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from sbredis import ServiceBusClient
from sbredis.exceptions import SparkSetupError
from sbredis.moving import fingerprint
from sbredis.spark.jobs import Reported, dead_letter_report, reported, resubmittable, with_fingerprint
from tests.spark.live.frames import NOON, messages
from tests.spark.live.reading import send
from tests.spark.live.running import run, waiting

pytestmark = pytest.mark.slow


BLANKS = [character for character in map(chr, range(0x3001)) if character.isspace()]
LETTERS: list[tuple[str | None, str | None]] = [
    ("bad", None),
    ("bad", ""),
    (None, "order 17 of 2026"),
    ("", "an empty reason"),
    ("code 5", "\n  line 1  \nline 2"),
    ("bad", "x" * 300 + "9"),
    ("bad", "\U0001f600" * 199 + "12"),
    ("bad", "a tab\t"),
    ("bad", " \t\r\n\v "),
    ("٣ of ۴", "order ١٢ and ²"),
    (None, None),
    *(("bad", f"{blank}one{blank}two {blank}") for blank in BLANKS),
]


@pytest.mark.long("Spark needs seconds for each query")
def test_a_fingerprint_is_that_of_a_redrive(spark: SparkSession) -> None:
    """Spark and Python agree on the ends of lines, on white space and on digits."""
    rows = messages(
        spark,
        *({"dead_letter_reason": reason, "dead_letter_description": description} for reason, description in LETTERS),
    )
    found = {row["sequence_number"]: row["fingerprint"] for row in with_fingerprint(rows).collect()}
    assert [found[number] for number in range(len(LETTERS))] == [fingerprint(*letter) for letter in LETTERS]


@pytest.mark.long("Spark needs seconds for each query")
def test_dead_letters_are_reported_by_fingerprint(spark: SparkSession) -> None:
    bad = {"dead_letter_reason": "bad", "dead_letter_description": "order 1"}
    rows = messages(
        spark,
        {**bad, "session_id": "a"},
        {**bad, "session_id": "a", "enqueued_time": NOON + timedelta(hours=1)},
        {**bad, "session_id": "b", "dead_letter_description": "order 2"},
        {**bad, "partition_key": "k", "partition": 1},
        {"dead_letter_reason": None},
    )
    first, second = dead_letter_report(rows, top=1).collect()
    assert (first["fingerprint"], first["messages"], first["share"]) == ("bad: order #", 4, 0.8)
    assert (first["description"], first["sessions"], first["keys"]) == ("order 1", "a (2)", "k (1)")
    assert first["newest"] - first["oldest"] == timedelta(hours=1)
    assert json.loads(first["letters"]) == {"incarnation": "i", "last": {"0": 2, "1": 3}}
    assert (second["dead_letter_reason"], second["messages"], second["sessions"]) == (None, 1, "")


BAD = {"dead_letter_reason": "bad", "dead_letter_description": "order 1"}


@pytest.mark.long("Spark needs seconds for each query")
def test_letters_that_died_after_the_report_are_not_chosen(spark: SparkSession) -> None:
    def letters(*numbers: int) -> list[dict[str, Any]]:
        """Return letters: even numbers are in another partition than odd ones."""
        return [{**BAD, "sequence_number": number, "partition": number % 2} for number in numbers]

    then = letters(1, 2, 3, 4)
    rows = [row.asDict() for row in dead_letter_report(messages(spark, *then)).collect()]
    now = messages(
        spark,
        *letters(2, 3, 5, 6, 7),
        {**BAD, "sequence_number": 1, "dead_letter_reason": "worse"},
        {**BAD, "sequence_number": 1, "incarnation": "another"},
        {**BAD, "sequence_number": 1, "partition": 9},
    )
    assert numbers_of(resubmittable(now, reported(rows))) == [2, 3]
    assert numbers_of(resubmittable(now, [])) == []
    assert numbers_of(resubmittable(now, reported([*rows, *rows]), ["worse: order #"])) == [1, 2, 3]


def numbers_of(letters: DataFrame) -> list[int]:
    return sorted(row["sequence_number"] for row in letters.collect())


@pytest.mark.long("Spark needs seconds for each query")
def test_letters_are_chosen_by_their_reason_too(spark: SparkSession) -> None:
    """Reasons that differ in a number have one fingerprint, but a row of the report for each of them."""
    listed = messages(
        spark,
        {"dead_letter_reason": "code 1"},
        {"dead_letter_reason": "code 2"},
        {"dead_letter_reason": None},
    )
    rows = {row["dead_letter_reason"]: row.asDict() for row in dead_letter_report(listed).collect()}
    assert numbers_of(resubmittable(listed, reported([rows["code 2"]]))) == [1]
    assert numbers_of(resubmittable(listed, reported([rows[None]]))) == [2]


def test_a_row_of_a_report_is_read_from_text() -> None:
    row = {"dead_letter_reason": "", "fingerprint": "f", "letters": '{"incarnation":"7","last":{"0":5,"10":6}}'}
    assert reported([row]) == [Reported("", "f", "7", {0: 5, 10: 6})]


@pytest.mark.parametrize("letters", [None, "", "{}", "[]", '{"incarnation":"7","last":{"a":1}}', '{"incarnation":"7"}'])
def test_another_row_is_refused(letters: str | None) -> None:
    with pytest.raises(SparkSetupError, match="not one of a report of dead letters"):
        reported([{"dead_letter_reason": "", "fingerprint": "f", "letters": letters}])


def bury(url: str, count: int) -> None:
    """Let the next messages of a queue die of the same problem."""
    with ServiceBusClient(url) as client, client.get_queue_receiver("orders") as receiver:
        for message in receiver.receive_messages(count):
            receiver.dead_letter_message(message, reason="bad", error_description="order 1")


def about_others(report: Path) -> str:
    """Return a copy of a report about the letters of an earlier incarnation of the entity."""
    with report.open(newline="") as lines:
        rows = [{**row, "letters": '{"incarnation":"earlier","last":{"0":9}}'} for row in csv.DictReader(lines)]
    copy = report.with_name("copy.csv")
    with copy.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return str(copy)


@pytest.mark.long("Spark needs seconds for each query")
def test_what_dies_after_a_report_stays_a_dead_letter(
    spark: SparkSession, emptied: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also what was sent back because of the report, and has died again, when the job is run once more."""
    report = tmp_path / "report.csv"
    resubmit = ("dlq-resubmit", "orders", "--report", str(report))
    send(emptied, "orders", "abcd", partitioned=False)
    bury(emptied, 2)
    run(spark, "dlq-report", "orders", "--csv", str(report))
    bury(emptied, 1)
    run(spark, *resubmit)
    assert waiting(emptied, "orders") == (3, 1)
    bury(emptied, 3)
    run(spark, *resubmit)
    assert waiting(emptied, "orders") == (0, 4)
    assert "moved 0 of 0 dead letters" in capsys.readouterr().out
    run(spark, "dlq-resubmit", "orders", "--fingerprint", "bad: order #", "--dry-run")
    assert "would move 4 dead letters" in capsys.readouterr().out

    with pytest.raises(SparkSetupError, match=r"not about the dead letters of 'orders' as it is now.*Run dlq-report"):
        run(spark, "dlq-resubmit", "orders", "--report", about_others(report))
    with pytest.raises(SparkSetupError, match="cannot be read"):
        run(spark, "dlq-resubmit", "orders", "--report", str(tmp_path / "missing.csv"))
    assert waiting(emptied, "orders") == (0, 4)
    run(spark, "dlq-report", "orders")
    assert "letters" not in capsys.readouterr().out.partition("\n")[0]
