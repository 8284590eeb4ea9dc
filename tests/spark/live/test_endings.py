"""Tests of jobs that end before their work is done."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException

from sbredis.servers import LocalServer
from sbredis.spark._endings import asked_to_end, is_gone, reason_of, stop
from tests.spark.chaos.jobs import Job

SAID = """[STREAM_FAILED] Query terminated with exception: Traceback (most recent call last):
  File "sbredis/spark/_consume.py", line 1, in _claim
sbredis.exceptions.EntityReservedError: 'orders' is reserved.

During handling of the above exception, another exception occurred:

sbredis.exceptions.MessagesLostError: Messages are lost: read with failOnDataLoss=false.
 SQLSTATE: 38000
=== Streaming Query ===
"""


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Check that the handlers of signals are put back."""
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    yield
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_a_job_to_end_and_the_second_one_ends_it(number: int) -> None:
    said: list[str] = []
    with asked_to_end(lambda: said.append("ending")) as asked:
        assert not asked()
        os.kill(os.getpid(), number)
        assert asked()
        assert said == ["ending"]
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)


def test_an_error_is_told_in_the_words_of_sbredis() -> None:
    """The last words count, because the first ones are those of the errors that it followed from."""
    assert reason_of(PySparkException(SAID)) == "MessagesLostError: Messages are lost: read with failOnDataLoss=false."
    assert reason_of(PySparkException("the disk is full")) is None
    assert reason_of(ValueError(SAID)) is None


class Session:
    """A session whose Java process has ended."""

    @property
    def version(self) -> str:
        raise Py4JNetworkError("Answer from Java side is empty")

    def stop(self) -> None:
        raise ConnectionRefusedError


def test_a_session_without_its_java_process_is_noticed_and_can_be_stopped() -> None:
    session: Session = Session()
    assert is_gone(session)  # type: ignore[arg-type]
    stop(session)  # type: ignore[arg-type]


def starts_spark(job: Job) -> bool:
    """Return whether the job has started Spark. Another Java process before it tells the version of Java."""
    return any("pyspark" in argument for argument in job.arguments_of_jvm())


@pytest.mark.long("it starts a Spark of its own")
def test_ctrl_c_while_spark_starts_leaves_no_process(shared_server: LocalServer, tmp_path: Path) -> None:
    job = Job(shared_server.url, tmp_path, "skew", "orders", "--url-env", "SBREDIS_URL")
    try:
        assert job.until(lambda: starts_spark(job))
        assert job.kill("all of them by Ctrl-C")
        assert job.wait() == 130
        assert "ending as soon as Spark has started" in job.said
        assert "Traceback" not in job.said
        job.wait_until_gone()
    finally:
        job.end()
