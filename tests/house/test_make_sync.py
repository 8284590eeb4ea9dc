"""Tests of tools/make_sync: its files are up to date, and what it has no rule for is an error that says what to add."""

from __future__ import annotations

import ast
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tools.make_sync import facades, rules
from tools.make_sync.__main__ import main, stale
from tools.make_sync.derived_tests import LEFT_OUT, TestModule, derived, made_tests
from tools.make_sync.facades import RuleMissingError, Source, formatted, made_modules
from tools.repository import ROOT

needs_ruff = pytest.mark.skipif(find_spec("ruff") is None, reason="only `make check` installs ruff")


def code(text: str) -> str:
    """Return the code of a module without its form and its imports, which ruff sorts."""
    tree = ast.parse(text)
    tree.body = [node for node in tree.body if not isinstance(node, ast.Import | ast.ImportFrom)]
    return ast.dump(tree)


def test_the_committed_files_have_the_code_that_the_tool_makes() -> None:
    """``make check`` compares their whole text."""
    texts = {**made_modules(), **made_tests()}
    wrong = [path.name for path, text in texts.items() if code(path.read_text("utf-8")) != code(text)]
    assert wrong == [], "run `make sync`"
    assert {*(ROOT / "tests/sync/made").rglob("*.py")} <= set(texts), "there are files that the tool does not make"


@needs_ruff
def test_the_committed_files_are_those_that_the_tool_makes() -> None:
    assert stale(formatted({**made_modules(), **made_tests()})) == []


def test_a_stale_file_is_reported_and_then_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "folder/_made.py"
    monkeypatch.setattr("tools.make_sync.__main__.made_files", lambda: {path: "new\n"})
    monkeypatch.setattr("tools.make_sync.__main__.ROOT", tmp_path)
    assert main(["--check"]) == 1
    assert "folder/_made.py is not what tools/make_sync makes: run `make sync`." in capsys.readouterr().err
    assert not path.exists()
    assert main([]) == 0
    assert path.read_text("utf-8") == "new\n"
    assert main(["--check"]) == 0


def changed(monkeypatch: pytest.MonkeyPatch, name: str, change: Callable[[str], str]) -> None:
    """Let the tool read another text of a module."""
    begin = Source.__init__

    def read(self: Source, read_name: str) -> None:
        begin(self, read_name)
        if read_name == name:
            self.text = change(self.text)
            self.tree = ast.parse(self.text)
            self.lines = self.text.splitlines()

    monkeypatch.setattr(Source, "__init__", read)


HEAD = "    @property\n    def entity_name(self) -> str:\n"


@pytest.mark.parametrize(
    ("member", "error"),
    [
        ("    def counted(self) -> int:\n        return 1\n", "Add 'ServiceBusSender.counted' to DIRECT"),
        ("    async def use(self, of: ServiceBusReceiver) -> int:\n        return 1\n", "Add the type to TWINS"),
        ("    width: int = 1\n", "ServiceBusSender.width has no docstring"),
        ("    async def use(self, of: Unheard) -> int:\n        return 1\n", "the module of the name Unheard to HOMES"),
        ("    def __anext__(self) -> int:\n        return 1\n", "the body of ServiceBusSender.__anext__"),
    ],
)
def test_a_member_without_a_rule_is_an_error(monkeypatch: pytest.MonkeyPatch, member: str, error: str) -> None:
    changed(monkeypatch, "_sender", lambda text: text.replace(HEAD, f"{member}\n{HEAD}", 1))
    with pytest.raises(RuleMissingError, match=error):
        made_modules()


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda text: text.replace("def send_stream", "def _send_stream"), "has no ServiceBusSender.send_stream"),
        (
            lambda text: text.replace('    """Sends messages to one', '    x = """Sends'),
            "ServiceBusSender has no docstring",
        ),
    ],
)
def test_a_class_that_does_not_fit_the_rules_is_an_error(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[str], str], error: str
) -> None:
    changed(monkeypatch, "_sender", change)
    with pytest.raises(RuleMissingError, match=error):
        made_modules()


def test_a_module_without_a_rule_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(facades, "WITHOUT", {**rules.WITHOUT, "_gone": "a reason"})
    assert main(["--check"]) == 1
    assert "name different modules: ['_gone']. Add a module to MADE, BY_HAND or WITHOUT" in capsys.readouterr().err


@needs_ruff
def test_a_text_that_is_no_python_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="ruff cannot read what tools/make_sync makes"):
        formatted({ROOT / "x.py": "def ("})


MEMBERS = '''
    async def fetch(self, count: int, *, quick: bool = False, **rest: Any) -> int:
        """Fetch with ``async for``, inside ``async with``."""
        return 1

    @property
    def width(self) -> int:
        """The width."""
        return 1

    @width.setter
    def width(self, value: int) -> None: ...

'''


def test_each_kind_of_member_gets_its_body(monkeypatch: pytest.MonkeyPatch) -> None:
    changed(monkeypatch, "_sender", lambda text: text.replace(HEAD, f"{MEMBERS}{HEAD}", 1))
    made = made_modules()[facades.SYNC / "_sender.py"]
    assert "def fetch(self, count: int, *, quick: bool = False, **rest: Any) -> int:" in made
    assert '"""Fetch with ``for``, inside ``with``."""' in made
    assert "return self._bridge.call(self._aio.fetch, count, quick=quick, **rest)" in made
    assert 'self._bridge.make(setattr, self._aio, "width", value)' in made
    assert "return self._aio.width" in made


def test_every_reason_in_the_tables_is_a_sentence_part() -> None:
    for table in (rules.BY_HAND, rules.WITHOUT):
        reasons: dict[str, Any] = dict(table)
        assert all(reason and not reason.endswith(".") for reason in reasons.values())


HEADER = """
\"\"\"About.\"\"\"

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from sbredis import sync
from sbredis.aio import ServiceBusClient
from sbredis.aio._role import ServiceBusRole
from sbredis.servers import LocalServer
from tests.aio.queues import Calls, bodies, on_servers, queue_at

pytestmark = pytest.mark.both_shapes
KEPT = 1
IDLE = 2


@pytest.fixture
async def client(url: str) -> AsyncIterator[ServiceBusClient]:
    async with ServiceBusClient(url) as client:
        yield client


@pytest.fixture
async def idle(url: str) -> str:
    return url


async def paused() -> None:
    await asyncio.sleep(0)


# -- a section without tests -------------------------------------------------------------------------------------------

# -- a section ---------------------------------------------------------------------------------------------------------


async def test_that_is_made(client: ServiceBusClient) -> None:
    assert [each async for each in client.list_queue_sessions("q")] == []
    assert await client.get_sender("q").send_stream([]) == KEPT


""".lstrip()


@needs_ruff
def test_a_test_is_made_without_what_only_other_tests_need() -> None:
    made = TestModule("aio/test_x", f"{HEADER}async def test_left_out() -> None:\n    await paused()\n").made()
    path = ROOT / "tests/sync/made/test_x.py"
    text = formatted({path: made})[path]
    assert (
        text
        == """
\"\"\"About.\"\"\"

# Made by tools/make_sync from tests/aio/test_x.py.
# Change one of these two, and run `make sync`; a change in this file is lost.

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sbredis import ServiceBusClient

pytestmark = [pytest.mark.memory("the asynchronous test runs on servers"), pytest.mark.both_shapes]

KEPT = 1


@pytest.fixture
def client(url: str) -> Iterator[ServiceBusClient]:
    with ServiceBusClient(url) as client:
        yield client


# -- a section ---------------------------------------------------------------------------------------------------------


def test_that_is_made(client: ServiceBusClient) -> None:
    assert [each for each in client.list_queue_sessions("q")] == []
    assert client.get_sender("q").send_stream([]).count() == KEPT
""".lstrip()
    )


@pytest.mark.parametrize(
    ("test", "why"),
    [
        ("async def test_it() -> None:\n    await paused()\n", "tasks"),
        ("async def test_it(client: ServiceBusClient) -> None:\n    client._connection\n", "inside"),
        ("async def test_it() -> None:\n    ServiceBusRole\n", "inside"),
        ("async def test_it(monkeypatch: pytest.MonkeyPatch) -> None: ...\n", "replaced"),
        ("async def test_it(server: str) -> None: ...\n", "server"),
        ("async def test_it() -> None:\n    LocalServer\n", "server"),
        ("@on_servers\nasync def test_it(url: str) -> None: ...\n", "server"),
        ("async def test_it() -> None:\n    Calls\n", "helper"),
        (
            "async def test_it(client: ServiceBusClient) -> None:\n    done = client.tick()\n    await done\n",
            "awaitable",
        ),
        ('async def test_it() -> None:\n    assert "a sbredis.aio.ServiceBusClient"\n', "names"),
        ("async def test_it() -> None:\n    sync.ServiceBusClient\n", "names"),
        ("def test_it() -> None: ...\n", "same"),
    ],
)
def test_a_test_without_a_synchronous_form_is_left_out_with_the_reason(test: str, why: str) -> None:
    module = TestModule("aio/test_x", HEADER + test)
    module.made()
    assert list(module.left_out.values()) == [why]
    assert LEFT_OUT[why]


def test_tokens_and_not_texts_are_changed() -> None:
    text = 'async with a as b:  # await it\n    await b.aclose("await", anext)\n'
    assert derived(text) == 'with a as b:  # await it\n    b.close("await", next)\n'


def test_the_tests_that_are_left_out_can_be_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--left-out"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("tests/aio/test_fundamentals.py::test_a_receiver_that_waits_gets") for line in lines)
