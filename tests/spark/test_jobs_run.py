"""Tests of what the jobs decide without Spark."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from sbredis.aio import ServiceBusClient
from sbredis.bulk import reserve
from sbredis.exceptions import EntityReservedError, SparkSetupError
from sbredis.spark import _jobs_run as jobs
from sbredis.spark._commands import PROGRAM_VARIABLE, JobCommand, read_command, release_line, with_program
from sbredis.spark._jobs_run import _one_spelling


@pytest.mark.parametrize("source", ["{}/c", "{}/c/", "{}//c", "{}/x/../c", "c", "./c", "file:{}/c", "file://{}/c/"])
def test_a_folder_of_this_machine_has_one_spelling(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert _one_spelling(source.format(tmp_path)) == str(tmp_path.resolve() / "c")


@pytest.mark.parametrize("source", ["s3://bucket/c", "s3://bucket/c/"])
def test_a_place_in_another_file_system_is_kept(source: str) -> None:
    assert _one_spelling(source) == "s3://bucket/c"


PROD = ("sbredis", "--context", "prod", "spark")


def test_the_processes_of_spark_know_the_command_that_releases_an_entity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv(PROGRAM_VARIABLE, "")  # so that it is restored
    release = JobCommand(job="release", entity="orders")
    assert release_line(release) == "python -m sbredis.spark release orders"
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(ImportError):  # Spark would start here, and its processes inherit the environment
        jobs._session(read_command(["skew", "orders"], PROD))
    assert release_line(JobCommand(job="release", entity="orders")) == "sbredis --context prod spark release orders"


async def test_an_error_about_a_reservation_names_the_program_that_runs() -> None:
    async with ServiceBusClient("memory://reserved") as client:
        await client.ensure_queue("orders")
        await reserve(client, "orders", consumer="capture")
        with pytest.raises(EntityReservedError) as refused:
            await reserve(client, "orders", consumer="another", timeout=0)
    text = refused.value.message
    assert "run: python -m sbredis.spark release orders. " in text
    here = read_command(["skew", "orders"], PROD)
    assert "run: sbredis --context prod spark release orders. " in with_program(text, here)
    assert with_program(text, read_command(["skew", "orders"])) == text


@pytest.mark.parametrize("report", ["missing.csv", "."])
def test_a_report_that_cannot_be_read_is_refused_before_spark_starts(
    report: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[JobCommand] = []
    monkeypatch.setenv("SBREDIS_URL", "redis://nowhere")
    monkeypatch.setattr(jobs, "_run_alone", started.append)
    path = tmp_path / report
    with pytest.raises(SparkSetupError, match=f"The report {re.escape(str(path))} cannot be read: "):
        jobs.run_job(read_command(["dlq-resubmit", "orders", "--report", str(path)]))
    assert started == []


def test_a_report_in_a_pipe_is_not_opened_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(*_: object, **__: object) -> None:
        raise AssertionError

    os.mkfifo(tmp_path / "report.csv")
    monkeypatch.setenv("SBREDIS_URL", "redis://nowhere")
    monkeypatch.setattr(jobs, "_run_alone", lambda _: 0)
    monkeypatch.setattr(Path, "open", opened)
    assert jobs.run_job(read_command(["dlq-resubmit", "orders", "--report", str(tmp_path / "report.csv")])) == 0
