"""The commands that run something: servers, workers, jobs, maintenance, completion."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from click.shell_completion import BashComplete

from sbredis import ServiceBusClient, ServiceBusMessage
from sbredis.aio import ServiceBusClient as AsyncClient
from sbredis.bulk import reserve
from sbredis.cli import _invocation as calls
from sbredis.cli import _parameters as names
from sbredis.cli._app import program
from sbredis.cli._demonstrating import demo_file
from sbredis.cli._invocation import Invocation, Settings
from sbredis.cli._passing import connection_string, release_command
from sbredis.cli._server_choice import ChosenServer
from sbredis.servers import LocalServer
from tests.children import run_program
from tests.cli.children import Child
from tests.cli.conftest import Bus, Command
from tests.plugins.parts import first
from tools.repository import ROOT

COMMAND = [sys.executable, "-m", "sbredis.cli"]


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), **more}


# -- the program itself ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("given", "changes"), [("", True), ("['--version']", False)], ids=["program", "called"])
def test_only_the_program_changes_the_garbage_collector(given: str, changes: bool) -> None:
    code = (
        "import gc, sys\n"
        "from sbredis.cli import main\n"
        "before = gc.get_threshold()\n"
        "sys.argv[1:] = ['--version']\n"
        f"assert main({given}) == 0\n"
        "print(gc.get_threshold() != before, gc.get_freeze_count() > 0)\n"
    )
    done = run_program(sys.executable, "-c", code, env=environment())
    assert done.stdout.splitlines()[-1] == f"{changes} {changes}"


# -- servers -----------------------------------------------------------------------------------------------------------


def test_a_server_is_started_shown_used_and_stopped(sbredis: Command, tmp_path: Path) -> None:
    folder = str(tmp_path / "bus")
    assert sbredis("server", "status", folder) == (3, f"no server is kept on {folder}\n", "")
    started = sbredis("server", "start", folder, "-o", "json").json
    try:
        assert started["url"] == f"embedded://{folder}"
        again = sbredis("server", "start", folder)
        assert (again.code, "already" in again.err) == (1, True)
        shown = sbredis("server", "status", folder, "-o", "json").json
        assert (shown["running"], shown["pid"], shown["servers"]) == (True, started["pid"], 1)
        assert f"pid          {started['pid']}" in sbredis("server", "status", folder).out
        assert sbredis("queue", "create", "orders", "--url", started["url"]).code == 0
    finally:
        stopped = sbredis("server", "stop", folder)
    assert stopped == (0, f"stopped {started['url']}\n", "")
    assert sbredis("server", "stop", folder).code == 3


def test_a_wrong_server_is_refused(sbredis: Command, tmp_path: Path) -> None:
    folder = str(tmp_path / "bus")
    assert sbredis("server", "start", folder, "--replicas", "1").code == 2
    assert sbredis("server", "run", folder, "--cluster", "3", "--port", "6390").code == 2
    assert sbredis("server", "start", folder, "--port", "0").code == 2
    (tmp_path / "mine.txt").touch()
    ran = sbredis("server", "run", str(tmp_path))
    assert (ran.code, "not from sbredis" in ran.err) == (1, True)
    assert [each.name for each in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_server_in_the_foreground_ends_with_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    with Child("server", "run", str(tmp_path / "bus")) as child:
        assert child.process.stdout is not None
        assert child.process.stdout.readline() == f"embedded://{tmp_path / 'bus'}\n"
        child.signal(number)
        out, err = child.process.communicate(timeout=60)
    assert (out, err, child.process.returncode) == ("", "stopped; nothing is left running\n", 0)


# -- workers and jobs --------------------------------------------------------------------------------------------------


def test_a_worker_gets_the_server_of_the_context(
    sbredis: Command, bus: Bus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The module of the worker reads the variable; here it ends at once, because it has no handlers."""
    (tmp_path / "my_worker.py").write_text(
        "import os\nimport sys\nprint(os.environ['SBREDIS_URL'])\nworker = 5\n", "utf-8"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert sbredis("context", "add", "prod", bus.url, "--namespace", "live").code == 0
    ran = sbredis("--context", "prod", "worker", "my_worker:worker")
    assert ran.out == f"{bus.url}?namespace=live\n"
    assert (ran.code, "my_worker" in ran.err) == (2, True)
    assert os.environ["SBREDIS_URL"] == bus.url
    sys.modules.pop("my_worker", None)


SHOWS_ITS_PLACE = """
from contextlib import asynccontextmanager
from sbredis.workers import Worker

@asynccontextmanager
async def lifespan(worker):
    print(worker.client.namespace)
    worker.stop()
    yield

worker = Worker({url}, lifespan=lifespan, {options})

@worker.queue("orders", create_if_missing=True)
async def take(text: str) -> None: ...
"""
REPLACED = "which the command names, and not where its module says"

PLACES: dict[str, tuple[list[str], dict[str, str | None], str | None, str, bool]] = {
    "the option --url": (["--url", "URL?namespace=option"], {}, "URL?namespace=module", "option", True),
    "--url and --namespace": (["--url", "URL", "--namespace", "given"], {}, "URL?namespace=module", "given", True),
    "--url of a module without one": (["--url", "URL?namespace=option"], {}, None, "option", False),
    "--url of the same server": (["--url", "URL?namespace=module"], {}, "URL?namespace=module", "module", False),
    "the option --context": (["--context", "prod"], {}, "URL?namespace=module", "prod", True),
    "only --namespace": (["--namespace", "given"], {}, "URL?namespace=module", "given", True),
    "the module": ([], {}, "URL?namespace=module", "module", False),
    "the module, with a context in the environment": (
        [],
        {"SBREDIS_CONTEXT": "prod", "SBREDIS_URL": None},
        "URL?namespace=module",
        "module",
        False,
    ),
    "the variable": ([], {}, None, "variable", False),
    "the context of the environment": ([], {"SBREDIS_CONTEXT": "prod", "SBREDIS_URL": None}, None, "prod", False),
    "the context in use": ([], {"SBREDIS_URL": None}, None, "current", False),
}
"""The options, what differs in the environment, the URL in the module, the namespace of the worker, and whether the log
says that the command names another place than the module.
"""


class Places:
    """What decides where a worker runs: its module, and the environment."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self._patch = patch

    def module(self, name: str, text: str) -> None:
        """Write a module, which programs in this process find."""
        (self._folder / f"{name}.py").write_text(text, "utf-8")
        self._patch.chdir(self._folder)
        self._patch.syspath_prepend(str(self._folder))

    def environment(self, variables: dict[str, str | None]) -> None:
        """Set variables, and unset those without a value."""
        for name, value in variables.items():
            if value is None:
                self._patch.delenv(name)
            else:
                self._patch.setenv(name, value)


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    return Places(tmp_path, monkeypatch)


@pytest.mark.parametrize("name", PLACES)
def test_a_worker_runs_where_the_command_says_or_else_its_module(
    sbredis: Command, bus: Bus, places: Places, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    options, variables, own, expected, replaced = PLACES[name]
    module = f"place_{list(PLACES).index(name)}"
    url = None if own is None else own.replace("URL", bus.url)
    places.module(module, SHOWS_ITS_PLACE.format(url=repr(url), options=""))
    for context in ("current", "prod"):  # the first one is in use
        assert sbredis("context", "add", context, bus.url, "--namespace", context).code == 0
    places.environment({"SBREDIS_URL": f"{bus.url}?namespace=variable", **variables})
    with caplog.at_level("INFO", "sbredis.worker"):
        ran = sbredis(*(each.replace("URL", bus.url) for each in options), "worker", f"{module}:worker")
    assert (ran.code, ran.out) == (0, f"{expected}\n"), ran.err
    assert (REPLACED in caplog.text) is replaced
    assert f"namespace '{expected}'" in caplog.text


@pytest.mark.long("it starts a group of processes")
def test_the_processes_of_a_supervisor_run_where_the_command_says(bus: Bus, places: Places, tmp_path: Path) -> None:
    text = SHOWS_ITS_PLACE.format(url="'redis://127.0.0.1:1?namespace=module'", options="")
    places.module("place_of_children", text)
    line = [*COMMAND, "--url", "-", "worker", "place_of_children:worker", "--processes", "1", "--log-format", "text"]
    ran = run_program(*line, cwd=tmp_path, env=environment(), stdin=f"{bus.url}?namespace=option\n")
    assert (ran.returncode, ran.stdout) == (0, "option\n"), ran.stderr
    assert REPLACED in ran.stderr


def test_a_worker_says_which_server_it_leaves_without_its_secrets(
    sbredis: Command, bus: Bus, places: Places, caplog: pytest.LogCaptureFixture
) -> None:
    text = SHOWS_ITS_PLACE.format(url="'redis://user:hidden@127.0.0.1:1'", options="namespace='own'")
    places.module("place_secret", text)
    with caplog.at_level("INFO", "sbredis.worker"):
        ran = sbredis("--url", bus.url, "worker", "place_secret:worker")
    assert (ran.code, ran.out) == (0, "own\n"), ran.err
    address = bus.url.removeprefix("redis://")
    assert f"the worker runs on standalone {address}, namespace 'own', {REPLACED}" in caplog.text
    assert "hidden" not in caplog.text + ran.err


@pytest.mark.parametrize("name", ["worker", "spark"])
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--url", "memory://x"], "A server in memory ends with the command"),
        (["--url", "nowhere"], "there is no '://' in it"),
        (["--context", "nothing"], "There is no context 'nothing'"),
    ],
)
def test_a_server_that_the_options_name_wrongly_is_no_reason_to_take_another(
    sbredis: Command, places: Places, name: str, options: list[str], said: str
) -> None:
    places.module("place_wrong", "raise AssertionError('it was imported')\n")
    ran = sbredis(*options, name, "place_wrong:worker" if name == "worker" else "reservations")
    assert (ran.code, ran.out, said in ran.err) == (2, "", True), ran.err
    assert "it was imported" not in ran.err


@pytest.mark.parametrize(("name", "shown"), [("worker", "--processes N"), ("spark", "dlq-report")])
def test_the_help_of_a_program_is_its_own(sbredis: Command, name: str, shown: str) -> None:
    ran = sbredis(name, "--help")
    assert (ran.code, shown in ran.out) == (0, True)
    assert ran.out.startswith(f"Usage: sbredis {name} ")
    assert f"  sbredis {name} " in ran.out.partition("Examples:")[2]
    ran = sbredis(name, "--nonsense")
    hint = f"Try 'sbredis {name} --help' for help."
    assert ran == (2, "", f"sbredis: No such option '--nonsense'.\n{hint}\n")


def test_a_job_works_on_the_server_of_the_context(sbredis: Command) -> None:
    assert sbredis("spark", "reservations") == (0, "no entity is reserved\n", "")


RELEASES = {
    "": "",
    "--context|prod": " --context prod",
    "--context|prod|--namespace|x": " --context prod --namespace x",
    "--url|redis://h:1|--namespace|x": " --url redis://h:1 --namespace x",
    "--url|redis://:word@h": " --url URL",
}


@pytest.mark.parametrize(("options", "shown"), RELEASES.items())
def test_the_command_that_releases_an_entity_works_in_the_same_place(
    sbredis: Command, bus: Bus, options: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SBREDIS_URL", bus.url)
    assert sbredis("context", "add", "prod", bus.url, "--namespace", "live").code == 0
    pairs = iter(options.split("|") if options else [])
    given = {name.removeprefix("--"): value for name, value in zip(pairs, pairs, strict=True)}
    line = release_command(Invocation(Settings(**given)), "t/subscriptions/$s")
    assert line == f"sbredis{shown} spark release 't/subscriptions/$s'"


def test_the_command_that_releases_an_entity_names_the_context_in_use(
    sbredis: Command, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SBREDIS_URL")
    assert sbredis("context", "add", "prod", bus.url).code == 0
    assert release_command(Invocation(Settings()), "orders") == "sbredis --context prod spark release orders"


def test_the_job_that_lists_reservations_names_the_command_for_the_same_context(
    sbredis: Command, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sbredis("context", "add", "prod", bus.url).code == 0
    monkeypatch.delenv("SBREDIS_URL")
    bus.queue()

    async def reserved(client: AsyncClient) -> None:
        await reserve(client, "orders", consumer="capture")

    bus.client(reserved)
    ran = sbredis("--context", "prod", "spark", "reservations", "--stale-after", "1 ms")
    assert "orders: reserved by capture since " in ran.out
    assert "stale, to end it: sbredis --context prod spark release orders\n" in ran.out
    assert "partition " in ran.out
    assert "stale" not in sbredis("spark", "reservations").out


URLS = {
    "redis://h": "redis://h?namespace=n",
    "redis://h?namespace=m": "redis://h?namespace=n",
    "redis://h?namespace=m&timeout=5": "redis://h?timeout=5&namespace=n",
    "redis://h?timeout=5": "redis://h?timeout=5&namespace=n",
}


@pytest.mark.parametrize(("url", "expected"), URLS.items())
def test_a_connection_string_names_the_namespace(url: str, expected: str) -> None:
    assert connection_string(ChosenServer(url, "n")) == expected
    assert connection_string(ChosenServer(url)) == url


# -- maintenance -------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("number", first(1, [signal.SIGINT, signal.SIGTERM], "it starts a process and interrupts it"))
def test_messages_are_forwarded_until_the_command_is_interrupted(bus: Bus, number: signal.Signals) -> None:
    bus.queue("target")
    bus.queue("source", forward_to="target")
    with Child("maintain", "--url", bus.url) as child:
        assert child.process.stderr is not None
        assert "maintaining namespace default" in child.process.stderr.readline()
        with ServiceBusClient(bus.url) as client, client.get_queue_sender("source") as sender:
            sender.send_messages(ServiceBusMessage("a"))
            with client.get_queue_receiver("target") as receiver:
                assert [str(each) for each in receiver.receive_messages(1, max_wait_time=60)] == ["a"]
        child.signal(number)
        code, shown = child.end()
    assert (code, "Traceback" in shown) == (128 + number, False)


LAYOUTS = """\
NAME                    KIND          LAYOUT  TO DO
default                 namespace     2       -
orders                  queue         2       -
news                    topic         2       -
news/subscriptions/all  subscription  2       -
"""


UNREADABLE = """\
NAME     KIND       LAYOUT  TO DO
default  namespace  2       -
orders   queue      -       -
tea      queue      2       -
"""


UNREADABLE_NAMESPACE = """\
NAME     KIND       LAYOUT  TO DO
default  namespace  -       -
"""


@pytest.mark.any_form("sbredis upgrade loads no library by its calls, so it sends single scripts")
def test_the_layout_of_entities_is_shown(sbredis: Command, bus: Bus) -> None:
    sbredis("upgrade")  # the server has the library now
    assert sbredis("upgrade").err == "nothing to do: this release reads and writes layout 2\n"
    bus.queue("orders")
    bus.administration(lambda administration: administration.create_topic("news"))
    bus.administration(lambda administration: administration.create_subscription("news", "all"))
    ran = sbredis("upgrade", "--plan")
    assert (ran.code, ran.out.split("\n\n")[0].rstrip()) == (0, LAYOUTS.rstrip())


@pytest.mark.any_form("sbredis upgrade loads no library by its calls, so it sends single scripts")
def test_data_of_another_release_are_reported_beside_the_others(
    sbredis: Command, bus: Bus, server: LocalServer
) -> None:
    bus.queue("orders")
    keys = [str(key) for key in server.ask("KEYS", "*:state")]  # type: ignore[union-attr]
    (state,) = [key for key in keys if server.ask("HGET", key, "layout") == "2"]
    server.ask("HSET", state, "layout", "3")
    bus.queue("tea")
    ran = sbredis("upgrade")
    assert (ran.code, ran.out.split("\n\n")[0].rstrip()) == (1, UNREADABLE.rstrip())
    assert ran.err.startswith("orders cannot be read: ")
    assert "data layout 3" in ran.err
    assert ran.err.endswith("this release reads and writes layout 2\n")


@pytest.mark.any_form("sbredis upgrade loads no library by its calls, so it sends single scripts")
@pytest.mark.parametrize(("layout", "advice"), [("1", "Use the release that wrote"), ("3", "Install a release")])
def test_a_namespace_of_another_release_is_refused_with_its_layout(
    sbredis: Command, server: LocalServer, layout: str, advice: str
) -> None:
    sbredis("queue", "create", "orders")
    kept = server.ask("KEYS", "sb:default:*:namespace")
    assert isinstance(kept, list)
    (key,) = [str(each) for each in kept if server.ask("HEXISTS", str(each), "created")]
    server.ask("HSET", key, "layout", layout)
    for command in (["upgrade", "--plan"], ["upgrade"]):
        ran = sbredis(*command)
        assert (ran.code, ran.out.split("\n\n")[0].rstrip()) == (1, UNREADABLE_NAMESPACE.rstrip())
        assert f"Namespace 'default' has data layout {layout}" in ran.err
        assert advice in ran.err
        assert ran.err.endswith("this release reads and writes layout 2\n")
    server.ask("HSET", key, "layout", "2")
    assert sbredis("queue", "list", "--output", "json").json[0]["name"] == "orders"


# -- completion and the demonstration ----------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_calls_the_command(sbredis: Command, shell: str) -> None:
    ran = sbredis("completion", shell)
    assert (ran.code, f"_SBREDIS_COMPLETE={shell}_complete" in ran.out) == (0, True)


def test_another_shell_is_refused(sbredis: Command) -> None:
    assert sbredis("completion", "ksh").code == 2


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "_PATIENCE", 60.0)


COMPLETED = {
    "queue show ": ["orders", "other"],
    "queue show OR": ["orders"],
    "subscription show ": ["news"],
    "subscription show news ": ["all"],
    "rule list news ": ["all"],
    "rule show news all ": ["$Default"],
    "peek n": ["news", "news/subscriptions/all"],
    "queue create --status D": ["Disabled"],
    "queue show --context nowhere ": [],
}


@pytest.mark.usefixtures("patient")
def test_names_of_entities_are_completed(sbredis: Command, bus: Bus) -> None:
    bus.queue("orders")
    bus.queue("other")
    bus.administration(lambda administration: administration.create_topic("news"))
    bus.administration(lambda administration: administration.create_subscription("news", "all"))
    assert sbredis("queue", "list").code == 0  # sets nothing; the environment names the server
    shell = BashComplete(program, {}, "sbredis", "_SBREDIS_COMPLETE")
    for line, expected in COMPLETED.items():
        *words, incomplete = line.split(" ")
        assert [each.value for each in shell.get_completions(words, incomplete)] == expected, line


def test_a_completion_without_a_server_is_silent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(names, "_PATIENCE", 0.2)
    monkeypatch.setenv("SBREDIS_URL", "redis://127.0.0.1:1")
    assert BashComplete(program, {}, "sbredis", "_SBREDIS_COMPLETE").get_completions(["queue", "show"], "") == []
    assert capsys.readouterr() == ("", "")


def test_a_completion_does_not_read_the_connection_string_from_the_terminal(
    sbredis: Command, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Completing is no reason to wait for a line, or to take it away from the command."""
    del sbredis
    read = list[str]()

    def first_line() -> str:
        read.append(bus.url)
        return bus.url

    monkeypatch.setattr(calls, "first_line", first_line)
    shell = BashComplete(program, {}, "sbredis", "_SBREDIS_COMPLETE")
    assert shell.get_completions(["queue", "show", "--url", "-"], "") == []
    assert shell.get_completions(["--url", "-", "queue", "show"], "") == []
    assert read == []


def test_the_demonstration_is_found() -> None:
    assert "def main() -> int:" in demo_file().read_text("utf-8")


# -- all commands ------------------------------------------------------------------------------------------------------


def test_a_broken_pipe_is_quiet(bus: Bus) -> None:
    for number in range(3):
        bus.queue(f"queue-{number}")
    with Child("queue", "list", "--url", bus.url) as child:
        assert child.process.stdout is not None
        child.process.stdout.close()
        assert child.end() == (141, "")
