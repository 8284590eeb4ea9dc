"""Tests that run the README and the guides as a reader would type them.

Each page runs in its own process and on its own server, with Python's development mode and with warnings as errors.
Two guides may not use one name for different entities, because their programs would conflict for a reader.
"""

from __future__ import annotations

import ast
import json
import os
import re
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from sbredis.servers import LocalServer
from sbredis.sync.management import ServiceBusAdministrationClient
from tests.children import run_program
from tests.complaints import complaints
from tests.offenders import for_each
from tools.repository import ROOT
from tools.run_page import python_blocks

AS_FILES = ["docs/tutorial.md"]
"""The pages whose programs are saved as files; ``test_tutorial.py`` runs them."""
DOCS = sorted(page.relative_to(ROOT).as_posix() for page in (ROOT / "docs").rglob("*.md"))
PAGES = ["README.md", *(page for page in DOCS if page not in AS_FILES)]
WITH_PYTHON = [page for page in PAGES if python_blocks((ROOT / page).read_text("utf-8"))]

PRINTED = {
    "README.md": [],
    "docs/azure.md": [
        *["got two kettles"] * 2,
        *["ann pays 100", "ann pays -30"] * 2,
        *["office got vase"] * 2,
        "bill for two teapots",
        "bill for two cups",
    ],
    "docs/connecting.md": [r".*: namespace .default., durability master"],
    "docs/management.md": [
        "0",
        "important SqlRuleFilter.*",
        "sports CorrelationRuleFilter.*",
        "collector",
        "line 1, column 9: parameter @x has no value",
        r"\[.*'invoices'.*\]",
    ],
    "docs/dead-letters.md": [r"Counter\(.'NoPolicy': 2.\)", "claim 1 - policy not found"],
    "docs/deployment.md": [r".*: namespace .default., durability master"],
    "docs/environment.md": [],
    "docs/growing.md": [f"{branch} {shop} coffee: 4.20" for branch in range(3) for shop in ("north", "south")],
    "docs/errors.md": ["MessageSizeExceeded False True"],
    "docs/migrating/azure-functions.md": ["invoice for teapot"],
    "docs/migrating/azure-servicebus.md": ["two teapots", r"b'tea' \[b'tea'\] 116", "order 1"],
    "docs/migrating/bullmq.md": ["wall red attempt 1"],
    "docs/migrating/celery.md": ["mail to ann@example.com about teapots"],
    "docs/migrating/dramatiq.md": ["thumbnail of cat.png with 100"],
    "docs/migrating/faststream.md": ["invoice for teapot"],
    "docs/migrating/sqs.md": ["two teapots"],
    "docs/operating.md": ["sent by parcels", "sent"],
    "docs/partitions.md": ["3 messages, those of Ann in 1 partition"],
    "docs/queues.md": [r"\d+ two teapots"],
    "docs/receiving.md": [],
    "docs/runbook.md": [r".*: namespace .default., durability master"],
    "docs/sizing.md": ["1134 MB", "1674 MB"],
    "docs/sending.md": ["sent 5"],
    "docs/time.md": ["scheduled 1"],
    "docs/reservations.md": ["0 reservations"],
    "docs/rules.md": [r"dear \{'price': 120, .*\}", r"as sent \{.*\}"],
    "docs/servers.md": [r".*server\.sock", r"redis://127\.0\.0\.1:\d+ b?'?v'?"],
    "docs/sessions.md": ["ann 100"],
    "docs/spark.md": [],
    "docs/spark-platforms.md": [],
    "docs/topics.md": ["sales piano"],
    "docs/transactions.md": [
        *("bill for two teapots", "ann has spent 30", "ann has spent 42"),
        *("charge 17 was done before", r"\[.first., .second., .third.\]"),
        *(r"\[.letter-1.\]", "1"),
    ],
    "docs/testing.md": [r"\.+ +\[100%\]"],
    "docs/web-app.md": ["made cat.png with 100"],
    "docs/workers.md": ["attempt 1: a cherry cake with 2 layers"],
    "docs/workers/handling.md": [],
    "docs/workers/outcomes.md": [],
    "docs/workers/running.md": [],
}
"""For each page with Python: patterns of the first lines that it prints. A page without an entry prints no lines."""

NOT_RUN: dict[str, list[str]] = {
    "docs/migrating/azure-functions.md": ["it needs the host of Azure Functions"],
    "docs/migrating/azure-servicebus.md": ["it needs a namespace of Azure"],
    "docs/migrating/celery.md": ["it needs Celery"],
    "docs/migrating/dramatiq.md": ["it needs Dramatiq"],
    "docs/migrating/faststream.md": ["it needs FastStream"],
    "docs/migrating/sqs.md": ["it needs an account of AWS"],
    "docs/spark.md": ["it needs Spark; tests/spark/live/test_page.py runs it"] * 6,
    "docs/spark-platforms.md": [
        "it needs the packages of Delta",
        "it needs the packages of Iceberg",
        "it needs deltalake; tests/spark/live/test_recipes.py runs it where that is installed",
        "it needs pyiceberg; tests/spark/live/test_recipes.py runs it where that is installed",
        "it needs the packages of Delta",
        "it needs Airflow",
        "it needs Dagster",
    ],
}
"""The programs that are not run, each with the reason that its page gives."""

CALLED_ELSEWHERE = {
    "README.md": ["pack"],
    "docs/dead-letters.md": ["redrive"],
    "docs/environment.md": ["print_letter"],
    "docs/migrating/azure-functions.md": ["place"],
    "docs/migrating/bullmq.md": ["paint"],
    "docs/migrating/celery.md": ["send_mail"],
    "docs/migrating/dramatiq.md": ["make_thumbnail"],
    "docs/migrating/faststream.md": ["place"],
    "docs/queues.md": ["lead", "report_every_hour"],
    "docs/receiving.md": ["work", "work_that_blocks", "flow", "receive_here", "settle_there"],
    "docs/sending.md": ["pipeline"],
    "docs/time.md": ["maintain"],
    "docs/sessions.md": ["work", "patient", "guarded", "count_there", "show_and_clear", "price_of"],
    "docs/topics.md": ["look_after"],
    "docs/transactions.md": ["handle"],
    "docs/web-app.md": ["make_thumbnail"],
    "docs/workers.md": ["bake", "deliver", "sell", "urgent", "placed", "rest", "read"],
    "docs/workers/handling.md": ["write_report", "is_prime", "nightly_report", "clean_up", "transfer", "bill", "sing"],
    "docs/workers/outcomes.md": ["post", "charge", "check_out", "square", "book", "insert", "price_of", "ask"],
    "docs/workers/running.md": ["app_lifespan"],
}
"""The functions that pages show but do not call.

A worker of the page, ``test_fragments.py`` or ``test_workers_page.py`` calls them.
"""

SLOW = re.compile(r"Executing <.* took \d+\.\d+ seconds$")
"""The warning that asyncio's debug mode may log on a busy machine."""


class Ran(NamedTuple):
    """The outcome of running a page."""

    printed: list[str]
    complained: list[str]
    code: int


def run_typed(page: Path, *url: str, folder: Path) -> Ran:
    """Run a page in this folder until it ends."""
    command = "-Xdev", "-Werror", "-m", "tools.run_page", str(page), *url
    done = run_program(sys.executable, *command, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)})
    complained = [line for line in complaints(done.stderr).splitlines() if not SLOW.match(line)]
    return Ran(done.stdout.splitlines(), complained, done.returncode)


def problems(page: str, ran: Ran) -> list[str]:
    """Return the problems that a page had."""
    if ran.code or ran.complained:
        return [f"{page} ended with {ran.code}", *ran.printed, *ran.complained]
    return [
        f"{page} printed {printed!r}, and not {pattern!r}"
        for printed, pattern in zip([*ran.printed, *[""] * len(PRINTED[page])], PRINTED[page], strict=False)
        if not re.fullmatch(pattern, printed)
    ]


@pytest.fixture(scope="session")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all workers of a run share: each page notes there which entities it has left."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "entities-of-pages"
    folder.mkdir(exist_ok=True)
    return folder


def entities(url: str) -> dict[str, str]:
    """Return the queues and topics of a server, each with its properties."""
    with ServiceBusAdministrationClient(url) as administration:
        found = [*administration.list_queues(), *administration.list_topics()]
    return {str(entity.name): str(entity) for entity in found}


def conflicts(page: str, left: dict[str, str], seen: Path) -> list[str]:
    """Note which entities a page has left, and return those that another page has left with other properties."""
    (seen / page.replace("/", "-")).write_text(json.dumps(left), "utf-8")
    others = {path.name: json.loads(path.read_text("utf-8")) for path in sorted(seen.iterdir())}
    return [
        f"{page} and {other} use the name {name!r} for different entities:\n{left[name]}\n{there[name]}"
        for other, there in others.items()
        for name in left.keys() & there.keys()
        if left[name] != there[name]
    ]


@pytest.mark.parametrize("page", ["README.md", "docs/queues.md"])
def test_the_first_page_for_a_reader_runs_as_it_is_written(page: str, server: LocalServer, tmp_path: Path) -> None:
    assert "\n".join(problems(page, run_typed(ROOT / page, server.url, folder=tmp_path))) == ""


@pytest.mark.long("each page starts an interpreter and a server")
@pytest.mark.parametrize("page", WITH_PYTHON)
def test_a_page_runs_exactly_as_it_is_written(page: str, binary: str | None, tmp_path: Path, seen: Path) -> None:
    with LocalServer(binary=binary, config={"appendonly": "yes"}) as server:
        found = problems(page, run_typed(ROOT / page, server.url, folder=tmp_path))
        found += conflicts(page, entities(server.url), seen)
    assert "\n".join(found) == ""


def test_two_pages_with_one_name_for_different_entities_are_found_in_either_order(tmp_path: Path) -> None:
    assert conflicts("docs/a.md", {"orders": "a queue", "news": "a topic"}, tmp_path) == []
    assert conflicts("docs/b.md", {"orders": "a queue"}, tmp_path) == []
    (found,) = conflicts("c.md", {"orders": "a queue", "news": "a queue"}, tmp_path)
    assert found == "c.md and docs-a.md use the name 'news' for different entities:\na queue\na topic"


def test_every_page_with_python_has_expected_output() -> None:
    assert sorted(WITH_PYTHON) == sorted(PRINTED)


def test_a_block_that_is_not_run_has_a_reason() -> None:
    marked = {
        page: reasons
        for page in PAGES
        if (reasons := [b.not_run for b in python_blocks((ROOT / page).read_text("utf-8")) if b.not_run is not None])
    }
    assert marked == NOT_RUN
    assert all(reason for reasons in NOT_RUN.values() for reason in reasons)


@for_each("page", WITH_PYTHON)
def test_every_function_of_a_page_is_called(page: str) -> None:
    """The caller is the page, pytest, or ``test_fragments.py``."""
    blocks = python_blocks((ROOT / page).read_text("utf-8"))
    trees = [ast.parse(block.code) for block in blocks if block.not_run is None]
    called = {node.id for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Name)}
    defined = [
        node.name
        for tree in trees
        for node in tree.body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and not node.name.startswith("test_")
    ]
    fixtures = {"anyio_backend"}  # the name of a fixture of anyio's plugin
    assert [name for name in defined if name not in called | fixtures] == CALLED_ELSEWHERE.get(page, [])


# -- the runner itself -------------------------------------------------------------------------------------------------


def run_text(folder: Path, text: str) -> Ran:
    page = folder / "page.md"
    page.write_text(text, "utf-8")
    return run_typed(page, folder=folder)


def test_the_code_blocks_of_a_page_share_their_variables(tmp_path: Path) -> None:
    assert run_text(tmp_path, "```python\na = 1\n```\nand\n```python\nprint(a + 1)\n```\n") == Ran(["2"], [], 0)


def test_a_code_block_that_raises_fails_its_page_and_its_line_is_shown(tmp_path: Path) -> None:
    ran = run_text(
        tmp_path, "# A page\n\n```python\nprint(1)\n```\n\n```python\nprint(2)\nraise ValueError('it')\n```\n"
    )
    assert (ran.printed, ran.code) == (["1", "2"], 1)
    assert ran.complained[-1] == "ValueError: it"
    assert any(re.search(r'page\.md", line 9, in <module>', line) for line in ran.complained)


def test_a_warning_fails_a_page(tmp_path: Path) -> None:
    assert run_text(tmp_path, "```python\nimport warnings\nwarnings.warn('it')\n```\n").code == 1


def test_top_level_await_works_only_on_a_page_that_names_the_asyncio_prompt(tmp_path: Path) -> None:
    block = "```python\nimport asyncio\nawait asyncio.sleep(0)\nprint('done')\n```\n"
    assert "outside function" in run_text(tmp_path, block).complained[-1]
    assert run_text(tmp_path, f"Start `python -m asyncio`.\n{block}") == Ran(["done"], [], 0)


@pytest.mark.long("it starts pytest in a process")
def test_a_failing_test_in_a_page_fails_the_page(tmp_path: Path) -> None:
    good, bad = "```python\ndef test_a():\n    pass\n```\n", "```python\ndef test_b():\n    assert 1 == 2\n```\n"
    assert run_text(tmp_path, good).code == 0
    ran = run_text(tmp_path, good + bad)
    assert ran.code == 1
    assert any("1 failed, 1 passed" in line for line in ran.printed)


def test_a_code_block_with_a_stated_reason_is_not_run(tmp_path: Path) -> None:
    block = "```python\nraise ValueError\n```\n"
    assert run_text(tmp_path, f"<!-- not run: it raises -->\n{block}").code == 0
    assert python_blocks(f"<!-- not run: it raises -->\n\n{block}")[0].not_run == "it raises"
    assert run_text(tmp_path, f"<!-- not run: it raises -->\nText.\n\n{block}").code == 1


def test_only_the_connection_string_of_a_page_is_replaced(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nprint('memory://guide', 'memory://guide?x=1', 'redis://a')\n```\n", "utf-8")
    assert run_typed(page, "redis://b", folder=tmp_path).printed == ["redis://b redis://b?x=1 redis://a"]
