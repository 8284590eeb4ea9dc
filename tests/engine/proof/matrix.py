"""A table of the planted bugs, and of what finds each of them: its machine, and which examples.

python -m tests.engine.proof.matrix [--workers N] [--parts N] [--of MACHINE] [--machines] [--print] [NAME...]

An example is a test of the engine that calls scripts in memory, or a scene. An example that finds no bug beside the
machine may still be worth keeping: it teaches, it states a contract, or it is about what the machine does not see.

Each search runs in a process of its own, which is a copy of this one after pytest has collected the examples. The
results are kept in .cache/matrix.jsonl. A run goes on where the one before has stopped, and it repeats a search if the
bug or one of the scripts with the bug has changed.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import os
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TextIO
from unittest.mock import patch

import pytest

from sbredis.engine import _lua_files, _scripts
from sbredis.engine._expansion import expand
from sbredis.engine._scripts import operations
from sbredis.servers import LocalServer
from sbredis.transport import Script, Transport
from tests.engine.proof import hosts
from tests.engine.proof.bugs import Bug
from tests.engine.proof.hosts import Host, source_at_start, with_texts_replaced
from tests.engine.proof.planted import BUGS, find

ROOT = Path(__file__).parents[3]
KEPT = ROOT / ".cache" / "matrix.jsonl"
SCENES = "tests/engine/proof/test_scenes.py", "tests/engine/proof/test_cases.py"
EXAMPLES = ("tests/engine", *SCENES, "--ignore", "tests/engine/proof")
SLOW = 10.0
"""An example that takes more seconds is left out."""
PATIENCE = 20
"""The seconds after which an example has failed. A bug may let it wait for ever."""
STUCK = 120.0
"""The seconds after which a process has failed that does not end its example."""

Result = dict[str, Any]


def with_bug(bug: Bug) -> dict[str, str]:
    """Return each script that a bug changes, with the bug."""
    changed = with_texts_replaced({bug.file: [(bug.right, bug.wrong)]})
    pairs = ((name, expand(name, changed)) for name in operations())
    return {name: text for name, text in pairs if text != expand(name, source_at_start)}


def digest(bug: Bug) -> str:
    """Return a short text that changes with the bug or with a script that has it."""
    return hashlib.sha256(repr((bug, with_bug(bug))).encode()).hexdigest()[:16]


# -- the examples ----------------------------------------------------------------------------------------------------


def plant(bug: Bug) -> None:
    """Let this process use the scripts with a bug."""
    texts, changed = with_bug(bug), with_texts_replaced({bug.file: [(bug.right, bug.wrong)]})(bug.file)
    for script in [one for one in gc.get_objects() if isinstance(one, Script) and one.name in texts]:
        flags, body = script.source.partition("\n")[0], texts[script.name].partition("\n")[2]
        vars(script)["source"] = f"{flags}\n{body}"
        vars(script).pop("sha", None)
        vars(script).pop("head", None)
    hosts._sources()[bug.file] = changed  # the source of everything that is read from now on
    _lua_files.read_source = source_at_start  # type: ignore[assignment]
    for cached in (_lua_files.script_source, _scripts.load, _scripts.at_limit, _scripts.every_script):
        cached.cache_clear()


class Searches:
    """A pytest plugin that runs searches in the place of the collected tests."""

    def __init__(self, given: argparse.Namespace, out: TextIO) -> None:
        self.given = given
        self.out = out
        self.examples: list[pytest.Item] = []
        self.failed: set[str] = set()
        self.seconds: dict[str, float] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep the tests that may call scripts in memory; pytest calls this after it has collected the tests."""
        self.examples = [one for one in items if not served(one)]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the outcome of an example; pytest calls this after each of its phases."""
        if report.failed:
            self.failed.add(report.nodeid)
        if report.when == "call":
            self.seconds[report.nodeid] = report.duration

    def pytest_runtestloop(self) -> bool:
        """Run all searches; pytest calls this in the place of its own loop."""
        for name in operations():
            expand(name, source_at_start)  # reads all files, before somebody changes one
        names, of = self.given.names, self.given.of
        bugs = [bug for bug in BUGS if (not names or bug.name in names) and (not of or bug.of in of)]
        if not self.given.print:
            self._search(bugs)
        write_table(self.out, bugs, [one.nodeid for one in self.examples])
        return True

    def _search(self, bugs: Sequence[Bug]) -> None:
        """Search with the machines, and then with the examples: first for the bugs that the machines found last."""
        found = known()
        machine: list[tuple[str, Callable[[], Result]]] = []
        for bug in bugs:
            search = found.get(("machine", bug.name))
            if search is None or (search["steps"] is None and search["parts"] < self.given.parts):
                machine.append((f"machine: {bug.name}", partial(self._by_machine, bug)))
        self._run_all(machine)
        if self.given.machines:
            return
        found, calls = known(), self._calls()
        steps = {bug.name: found.get(("machine", bug.name), {}).get("steps") or sys.maxsize for bug in bugs}
        ordered = sorted(bugs, key=lambda bug: -steps[bug.name])
        examples = [bug for bug in ordered if ("examples", bug.name) not in found]
        self._run_all([(f"examples: {bug.name}", partial(self._by_examples, bug, calls)) for bug in examples])

    def _run_all(self, jobs: Sequence[tuple[str, Callable[[], Result]]]) -> None:
        """Run each job in a process of its own, several at once."""
        running: dict[int, str] = {}
        for at, (name, job) in enumerate(jobs, 1):
            if len(running) == self.given.workers:
                self._end_of_one(running)
            running[forked(partial(_kept, job))] = f"{at} of {len(jobs)}, {name}"
        while running:
            self._end_of_one(running)

    def _end_of_one(self, running: dict[int, str]) -> None:
        ended, status = os.wait()
        self.out.write(f"{time.strftime('%H:%M:%S')} {running.pop(ended)}{f' FAILED: {status}' if status else ''}\n")
        self.out.flush()

    def _by_machine(self, bug: Bug) -> Result:
        started = time.process_time()
        with LocalServer() as server:
            finding = find(bug, server, count=self.given.parts)
        how = {"steps": finding.steps, "how": finding.how[:100]} if finding else {"steps": None}
        spent = round(time.process_time() - started, 1)
        return {
            "kind": "machine",
            "bug": bug.name,
            "digest": digest(bug),
            "parts": self.given.parts,
            "cpu": spent,
            **how,
        }

    def _by_examples(self, bug: Bug, calls: dict[str, Collection[str]]) -> Result:
        """Run the examples that call a changed script. One that does not end is stopped, and counts as failed."""
        started, texts = time.monotonic(), with_bug(bug)
        left = [one for one in self.examples if not texts.keys().isdisjoint(calls.get(one.nodeid, ()))]
        count, failed = len(left), set[str]()
        while left:
            reader, writer = os.pipe()
            child = forked(partial(self._examples, bug, left, reader, writer))
            os.close(writer)
            with os.fdopen(reader, encoding="utf-8") as lines:
                seen = [line.strip() for line in lines]
            os.waitpid(child, 0)
            failed |= {line[1:] for line in seen if line[0] == "F"}
            ended = {line[1:] for line in seen}
            after = [one for one in left if one.nodeid not in ended]
            if after:
                failed.add(after[0].nodeid)
            left = after[1:]
        spent = round(time.monotonic() - started, 1)
        return {
            "kind": "examples",
            "bug": bug.name,
            "digest": digest(bug),
            "ran": count,
            "seconds": spent,
            "failed": sorted(failed),
        }

    def _examples(self, bug: Bug, items: Sequence[pytest.Item], reader: int, writer: int) -> None:
        os.close(reader)
        plant(bug)
        with os.fdopen(writer, "w", encoding="utf-8") as lines:
            for item in self._run(items):
                signal.setitimer(signal.ITIMER_VIRTUAL, STUCK)  # ends the process, even in a loop of Lua
                lines.write(f"{'F' if item.nodeid in self.failed else 'P'}{item.nodeid}\n")
                lines.flush()

    def _run(self, items: Sequence[pytest.Item]) -> Iterator[pytest.Item]:
        for item, after in zip(items, [*items[1:], None], strict=True):
            item.ihook.pytest_runtest_protocol(item=item, nextitem=after)
            yield item

    def _calls(self) -> dict[str, Collection[str]]:
        """Return the scripts that each example calls, without the slow examples. A traced run notes them first."""
        names = {one.nodeid for one in self.examples}
        kept: dict[str, Result] = {one["example"]: one for one in lines_kept() if one["kind"] == "trace"}
        missing = [one for one in self.examples if one.nodeid not in kept]
        if missing:
            os.waitpid(forked(partial(self._trace, missing)), 0)
            kept = {one["example"]: one for one in lines_kept() if one["kind"] == "trace"}
        return {
            name: one["calls"]
            for name, one in kept.items()
            if name in names and one["seconds"] < SLOW and not one["failed"]
        }

    def _trace(self, items: Sequence[pytest.Item]) -> None:
        called: set[str] = set()
        call, source = Transport.call, Host._source

        def traced(self: Transport, script: Script, *arguments: Any, **options: Any) -> Any:
            called.add(script.name)
            return call(self, script, *arguments, **options)

        def noted(self: Host, name: str) -> str:
            called.add(name)
            return source(self, name)

        with patch.object(Transport, "call", traced), patch.object(Host, "_source", noted):
            for item in self._run(items):
                spent, failed = self.seconds.get(item.nodeid, 0.0), item.nodeid in self.failed
                keep(
                    {
                        "kind": "trace",
                        "example": item.nodeid,
                        "calls": sorted(called),
                        "seconds": round(spent, 3),
                        "failed": failed,
                    }
                )
                called.clear()


def served(item: pytest.Item) -> bool:
    """Return whether a test needs a server."""
    given = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    names = set(getattr(item, "fixturenames", ()))
    return not {"server", "cluster"}.isdisjoint(map(str, given.values())) or bool(names & {"shared_server", "server"})


def forked(work: Callable[[], None]) -> int:
    """Run work in a copy of this process; return the number of the process."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work()
        code = 0
    finally:
        with suppress(BaseException):
            sys.stderr.flush()
        os._exit(code)


# -- the results -----------------------------------------------------------------------------------------------------


def _kept(job: Callable[[], Result]) -> None:
    keep(job())


def keep(result: Result) -> None:
    """Add a result to the file."""
    with KEPT.open("a", encoding="utf-8") as file:
        file.write(json.dumps(result) + "\n")


def lines_kept() -> list[Result]:
    return [json.loads(line) for line in KEPT.read_text("utf-8").splitlines()] if KEPT.exists() else []


def known() -> dict[tuple[str, str], Result]:
    """Return the latest results that are still true, by their kind and the name of their bug."""
    now = {bug.name: digest(bug) for bug in BUGS}
    return {
        (one["kind"], one["bug"]): one
        for one in lines_kept()
        if one["kind"] != "trace" and now.get(one["bug"]) == one["digest"]
    }


def write_table(out: TextIO, bugs: Sequence[Bug], examples: Sequence[str]) -> None:
    """Write what finds each bug, and which examples find a bug that the machine does not find."""
    found, there = known(), set(examples)
    only: dict[str, list[str]] = defaultdict(list)
    finding: dict[str, list[str]] = defaultdict(list)
    for bug in bugs:
        machine, by = found.get(("machine", bug.name)), found.get(("examples", bug.name))
        failed = [one for one in by["failed"] if one in there] if by else []
        for example in failed:
            finding[example].append(bug.name)
            if machine and machine["steps"] is None:
                only[example].append(bug.name)
        told = "not tried" if machine is None else f"in {machine['parts']} parts: no"
        if machine and machine["steps"] is not None:
            told = f"after {machine['steps']:,} steps"
        count = f"{len(failed)} of {by['ran']}" if by else "not tried"
        out.write(f"{bug.name:<62} {told:<22} {count:>12} examples\n")
    tried = [found["machine", bug.name] for bug in bugs if ("machine", bug.name) in found]
    none = sum(one["steps"] is None for one in tried)
    out.write(f"\n{len(tried)} of {len(bugs)} bugs tried with the machine, {none} of them not found\n")
    out.write("\nExamples that find a bug that the machine has not found:\n")
    out.writelines(f"{one}: {', '.join(bugs)}\n" for one, bugs in sorted(only.items()))
    out.write(f"\n{len(there) - len(only)} other examples; those that find bugs, with the number of bugs:\n")
    out.writelines(f"{one}: {len(bugs)}\n" for one, bugs in sorted(finding.items()) if one not in only)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="the bugs to search for; all by default")
    parser.add_argument("--workers", type=int, default=2, help="the number of processes")
    parser.add_argument("--parts", type=int, default=12, help="the most parts of a search by a machine")
    parser.add_argument("--of", action="append", help="search for the bugs of this machine only; may be repeated")
    parser.add_argument("--machines", action="store_true", help="search with the machines only")
    parser.add_argument("--print", action="store_true", help="search for nothing; print what is known")
    given = parser.parse_args()
    KEPT.parent.mkdir(exist_ok=True)
    plugins = ("tests.plugins.targets", "tests.plugins.parts", "tests.plugins.patience")
    left_out = ("no:cacheprovider", "no:terminal", "no:xdist")
    options = ["-s", "--assert=plain", "--import-mode=importlib", "-o", "addopts=", "-o", f"test_timeout={PATIENCE}"]
    options += [word for plugin in (*plugins, *left_out) for word in ("-p", plugin)]
    return int(pytest.main([*options, *EXAMPLES], plugins=[Searches(given, sys.stdout)]))


if __name__ == "__main__":
    sys.exit(main())
