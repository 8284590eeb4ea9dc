"""Tests that run every example as the guides show it, in memory, on a server and on a cluster.

The examples run in this process, and some of them also as programs, with Python's development mode and with warnings as
errors. The tests in ``tests/docs`` run the programs in the documents.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.children import run_program
from tests.complaints import complaints
from tests.examples.running import printed_by, unlike
from tests.examples.test_worker_examples import WORKER_EXAMPLES
from tests.plugins.parts import first
from tools.repository import ROOT

EXAMPLES = {
    "send_pipeline.py": r"""
        sent 5000 readings, at most 500 at a time
        message 0: number \d+
        message 1: The message 1 of the stream .* has 2000\d+ bytes.*outcome: never sent.*
        message 2: number \d+
        sent 2000 more, each awaited by its own caller
    """,
    "tracing.py": r"""
        checkout \(INTERNAL\)
           send traced-orders \(PRODUCER\)
              process traced-orders \(CONSUMER\)
                 charge the card \(INTERNAL\)
                 complete traced-orders \(CLIENT\)
    """,
    "prefetch.py": r"""
        handled 1000 jobs; prefetched messages that were not handled are back in the queue
    """,
    "deferral.py": r"""
        step 3 came too early: deferred
        step 1 handled
        step 2 handled
        step 3 handled after it was deferred
    """,
    "hand_over.py": r"""
        handed over: 3 cakes
        handed over: 0 cakes
        accepted: 3 cakes
        refused: 0 cakes
    """,
    "deadline.py": r"""
        resize the logo: done
        count the visitors: done
        print the invoice: takes longer than usual \(TTLExpiredException\)
        sum up the year: takes longer than usual \(TTLExpiredException\)
        print the invoice: the result was sent by mail
        sum up the year: the result was sent by mail
    """,
    "dead_letters.py": r"""
        fails: delivery 1 failed
        fails: delivery 2 failed
        fails: delivery 3 failed
        unreadable: Unreadable: It is not JSON\.
        fails: MaxDeliveryCountExceeded: .+
        received: unreadable, mended
        received: fails, mended
    """,
    "redrive.py": r"""
        100 dead letters: ShopDown: order # failed: no answer in # s
        too early: False The budget is spent: \d+ of the \d+ messages that were moved last have died again\.
        now: True All messages were dealt with\.
        0 dead letters are left
    """,
    "scheduled.py": r"""
        scheduled 3: number 1 is due soon, number 2 was cancelled
        waiting: soon, on \d\d \w+ at \d\d:\d\d:\d\d, SCHEDULED
        waiting: tomorrow, on \d\d \w+ at \d\d:\d\d:\d\d, SCHEDULED
        received: soon
    """,
    "receive_and_delete.py": r"""
        counted 1000 ticks; there was nothing to settle
    """,
    "ordered_processing.py": WORKER_EXAMPLES["worker_sessions.py"],  # the worker of this example prints the same
    "exactly_once.py": r"""
        handled an order of 30
        a worker failed: its last transaction has changed nothing
        handled an order of 12
        handled an order of 8
        ann pays 30, 30 in all
        ann pays 12, 42 in all
        ann pays 8, 50 in all
    """,
    "collector.py": r"""
        north sold a kettle
        north sold a lamp
        south sold a chair
        south sold a rug
        south sold a table
        a clock came back: MessagingEntityNotFound
    """,
    "request_reply.py": r"""
        ann asked for 1\+2: 1\+2 = 3
        ann asked for 30\+4: 30\+4 = 34
        bob asked for 5\+6: 5\+6 = 11
        bob asked for 7\+80: 7\+80 = 87
    """,
    "synchronous_sessions.py": r"""
        ann: Hello!
        ann: Anybody there\?
        bob: Good morning\.
        bob: Good bye\.
        eve: Hi\.
    """,
    "topic_with_rules.py": r"""
        archive:
          teapot, order: \{'name': 'teapot', 'price': 20, 'weight': 1, 'region': 'eu'\}
          painting, order: \{'name': 'painting', 'price': 1200, 'weight': 8, 'region': 'us'\}
          grand piano, order: \{'name': 'grand piano', 'price': 9000, 'weight': 400, 'region': 'eu'\}
        europe:
          teapot, order: \{.*\}
          grand piano, order: \{.*\}
        large:
          painting, order: \{.*\}
          grand piano, order: \{.*\}
        marketing:
          painting, offer: \{'name': 'painting', 'price': 1080, 'region': 'us', 'RuleName': 'discount'\}
          grand piano, offer: \{'name': 'grand piano', 'price': 8100, 'region': 'eu', 'RuleName': 'discount'\}
    """,
    "synchronous.py": "\n".join(
        [r"sent <ServiceBusMessageBatch 10 messages, \d+ of 1048576 bytes>"]
        + [f"received message {number}" for number in range(10)]
    ),
}
"""Patterns of the lines that each example prints."""

ELSEWHERE = {"demo.py", "spark_dead_letters.py", "worker_tests.py"}
"""Other programs: the demo, which has its own target `make demo`; the notebook, which
`tests/spark/live/test_example.py` runs; and the example of tests, which `test_worker_tests.py` runs.
"""

GUIDES = ["docs/queues.md", "docs/sessions.md", "docs/topics.md", "docs/transactions.md", "docs/workers.md"]
"""The guides that name the examples; each example is named in one of them."""

PROGRAMS = ["synchronous.py", "tracing.py"]
"""The examples that run as programs: one of each kind of client. ``tracing.py`` sets the one tracer of its process."""

SLOW = re.compile(r"Executing <.* took \d+\.\d+ seconds$")
"""The warning that asyncio's debug mode may log on a busy machine."""


class Ran(NamedTuple):
    """The outcome of running a program."""

    printed: list[str]
    complained: list[str]
    code: int


def run(*arguments: str, folder: Path) -> Ran:
    """Run a program in this folder until it ends."""
    command = "-Xdev", "-Werror", *arguments
    done = run_program(sys.executable, *command, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)})
    complained = [line for line in complaints(done.stderr).splitlines() if not SLOW.match(line)]
    return Ran(done.stdout.splitlines(), complained, done.returncode)


# -- the examples ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("target", ["memory", "cluster"], indirect=True)
@pytest.mark.parametrize("name", [name for name in EXAMPLES if name != "tracing.py"])
def test_each_example_prints_the_expected_output(
    name: str, url: str, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert unlike(printed_by(name, url, capsys), EXAMPLES[name]) == []
    warned = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert complaints("\n".join(warned)) == ""


@pytest.mark.parametrize("target", ["memory", "cluster"], indirect=True)
@pytest.mark.parametrize("name", first(1, PROGRAMS, "it starts a program"))
def test_an_example_runs_as_a_program(name: str, target: str, url: str, tmp_path: Path) -> None:
    """It is one file, which can be copied anywhere. Without a connection string, it runs in memory."""
    shutil.copy(ROOT / "examples" / name, tmp_path)
    ran = run(name, *([] if target == "memory" else [url]), folder=tmp_path)
    assert (ran.complained, ran.code) == ([], 0)
    assert unlike(ran.printed, EXAMPLES[name]) == []


@pytest.mark.long("it runs an example as a program twice")
@pytest.mark.parametrize("target", ["server"], indirect=True)
def test_the_example_of_topics_can_run_again(url: str, tmp_path: Path) -> None:
    """In the second run, the entities of the first run already exist."""
    first, again = (run(str(ROOT / "examples/topic_with_rules.py"), url, folder=tmp_path) for _ in range(2))
    assert (again.complained, again.code) == ([], 0)
    assert again.printed == first.printed


def test_the_demonstration_shows_its_usage(tmp_path: Path) -> None:
    asked = run(str(ROOT / "examples" / "demo.py"), "--help", folder=tmp_path)
    assert (asked.complained, asked.code) == ([], 0)
    assert asked.printed[0].startswith("usage: demo.py [-h]")


@pytest.mark.parametrize("name", ["dead_letters.py", "synchronous.py"])
def test_an_example_that_gets_a_wrong_connection_string_ends_and_says_how_one_begins(name: str, tmp_path: Path) -> None:
    wrong = run(str(ROOT / "examples" / name), "nowhere", folder=tmp_path)
    assert (wrong.printed, wrong.code) == ([], 1)
    assert re.search(r"InvalidConnectionStringError: Connection string: .* It starts with one of", wrong.complained[-1])


@pytest.mark.long("it starts processes")
@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("name", ["dead_letters.py", "redrive.py", "synchronous.py"])
def test_an_interrupted_example_ends_quietly_and_leaves_nothing_open(name: str, tmp_path: Path) -> None:
    """Ctrl-C interrupts the example while it waits for messages. Something left open would give a warning."""
    command = [sys.executable, "-u", "-W", "error", str(ROOT / "examples" / name)]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline()
        running.send_signal(signal.SIGINT)
        _, complained = running.communicate(timeout=280)
    assert (complained, running.returncode) == ("", 130)


@pytest.mark.parametrize(
    ("name", "module", "remedy"),
    [
        ("spark_dead_letters.py", "pyspark", "run pip install '.[spark,embedded]' in the checkout of sbredis"),
        ("tracing.py", "opentelemetry.sdk", "run pip install opentelemetry-sdk"),
        ("worker_fastapi.py", "fastapi", "run pip install fastapi"),
        ("worker_tests.py", "pytest", "run pip install pytest"),
    ],
)
def test_an_example_without_its_package_says_what_to_install(
    name: str, module: str, remedy: str, tmp_path: Path
) -> None:
    code = f"import runpy, sys; sys.modules[{module!r}] = None; runpy.run_path(sys.argv[1], run_name='__main__')"
    lacking = run("-c", code, str(ROOT / "examples" / name), folder=tmp_path)
    assert (lacking.printed, lacking.code) == ([], 1)
    (said,) = lacking.complained
    assert module in said
    assert said.endswith(f": {remedy}")


def test_all_examples_accept_the_same_arguments_and_end_quietly_with_ctrl_c() -> None:
    for name in (*EXAMPLES, *WORKER_EXAMPLES):
        text = (ROOT / "examples" / name).read_text("utf-8")
        call = "main(*sys.argv[1:])" if name.startswith("synchronous") else "asyncio.run(main(*sys.argv[1:]))"
        assert 'def main(url: str = "memory://example") -> None:' in text
        assert text.partition('if __name__ == "__main__":\n')[2] == (
            f"    try:\n        {call}\n    except KeyboardInterrupt:\n        sys.exit(130)\n"
        )


def test_no_example_needs_another_one() -> None:
    """Each can be copied alone. The example of tests is the exception: it has the tests of another example."""
    names = {path.stem for path in (ROOT / "examples").glob("*.py")}
    imports = re.compile(r"^\s*(?:from|import) (\w+)", re.MULTILINE)
    needed = {
        path.name: found
        for path in (ROOT / "examples").glob("*.py")
        if (found := names.intersection(imports.findall(path.read_text("utf-8"))))
    }
    assert needed == {"worker_tests.py": {"worker_retries"}}


def test_every_example_is_tested_and_named_in_a_guide() -> None:
    there = {path.name for path in (ROOT / "examples").glob("*.py")} - ELSEWHERE
    rows = re.compile(r"^\| \[.+\]\(\.\./examples/(\S+)\) \|", re.MULTILINE)
    in_the_guides = [name for guide in GUIDES for name in rows.findall((ROOT / guide).read_text("utf-8"))]
    assert {*EXAMPLES, *WORKER_EXAMPLES} == there
    assert sorted(in_the_guides) == sorted(there)
