"""Tests that tests do not replace parts of the product. What a test must steer is an option: a clock, or waits."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from tests.house.modules import PLACES
from tools.repository import ROOT, files

SMALL = "a small limit, because a test would need thousands of items to reach the real one"
PLANTED = "a wrong rule, to show that the test finds it"
BETWEEN = "another client acts in the middle of one call of this client"
FAULT = "a defect, or a fault that no server causes at that point"
NOTED = "the test notes a call that leaves no trace on a server"
COMMAND = "the command has no option for it"

# A text without any of these replaces nothing, and need not be parsed.
REPLACES = re.compile(r"attr\(|patch\.object\(|^ *[A-Z_]\w*\.\w+ = ", re.MULTILINE)

# The names of the product that tests may replace, and why no option, clock or fault on the way to a server will do.
ALLOWED = {
    "sbredis.aio.ServiceBusClient.maintain": BETWEEN,
    "sbredis.aio.ServiceBusReceiver.abandon_message": NOTED,
    "sbredis.aio.ServiceBusReceiver.complete_message": NOTED,
    "sbredis.aio.ServiceBusReceiver.complete_messages": NOTED,
    "sbredis.aio.ServiceBusReceiver.release_message": FAULT,
    "sbredis.aio.ServiceBusSender.send_messages": FAULT,
    "sbredis.aio._session_receiver.accept_next": "the real wait is 65 seconds",
    "sbredis.aio.management.ServiceBusAdministrationClient.*": NOTED,
    "sbredis.aio.management.ServiceBusAdministrationClient.delete_queue": FAULT,
    "sbredis.aio.management._calls.PAGE": SMALL,
    "sbredis.bulk.Awaited.over": "a lock that comes back although a consumer has reserved the entity",
    "sbredis.bulk._reservation.deadline_of": NOTED,
    "sbredis.bulk._reserving.SHOWING_LIFE": "the real wait is a minute",
    "sbredis.bulk._reserving.is_stale": "the real wait is some minutes",
    "sbredis.bulk._storing.MAXIMUM_CALL_MESSAGES": SMALL,
    "sbredis.bulk._storing.PartitionWriter._call": FAULT,
    "sbredis.cli._apply._carry_out": BETWEEN,
    "sbredis.cli._apply._do": BETWEEN,
    "sbredis.cli._dlq.ProgressCounter": NOTED,
    "sbredis.cli._doctor._PATIENCE": COMMAND,
    "sbredis.cli._invocation.Invocation.client": FAULT,
    "sbredis.cli._invocation.Invocation.confirm": BETWEEN,
    "sbredis.cli._invocation._LOOKING": "the real list of names is too long to be read in ten seconds",
    "sbredis.cli._invocation.first_line": "the test has no terminal from which a line comes",
    "sbredis.cli._move._partitions": BETWEEN,
    "sbredis.cli._parameters._PATIENCE": COMMAND,
    "sbredis.cli._purge.read_clocks": "a server whose clock is ahead",
    "sbredis.client.Connection.entity": FAULT,
    "sbredis.client._connection.hooks_for": "the clock of a bus, for servers in other processes",
    "sbredis.client._delivering.*": PLANTED,
    "sbredis.client._routing._MOST_BYTES": SMALL,
    "sbredis.client.Role.claim": "a client that was stopped, and believes that it still holds its role",
    "sbredis.client._routing.Judge.judge": FAULT,
    "sbredis.engine.Partition.request": NOTED,
    "sbredis.engine._lua_files.files": "scripts that the test has written",
    "sbredis.entities._server_time.time": "a wrong clock of this machine",
    "sbredis.entities._unlocked_sessions._PAGE": SMALL,
    "sbredis.maintenance._publishing._MOST": SMALL,
    "sbredis.maintenance._publishing._MOST_READ": SMALL,
    "sbredis.maintenance._routing.read_announcement": "announcements that no client hears",
    "sbredis.operating.Sampler.round": BETWEEN,
    "sbredis.receiving._fetching.Stock.took": NOTED,
    "sbredis.renewing._renewals._CLOSING": "the real wait is five seconds, and a renewer has no client",
    "sbredis.registry.Namespace.get_entity": FAULT,
    "sbredis.registry.Namespace.list_entities": "to show that nothing lists all entities",
    "sbredis.registry.Namespace.open": BETWEEN,
    "sbredis.registry.Namespace.update_rule": BETWEEN,
    "sbredis.registry._forwarding._MOST_READS": SMALL,
    "sbredis.registry._namespace.remove_if_idle": PLANTED,
    "sbredis.registry._registry.LIMITS": SMALL,
    "sbredis.registry._registry.Registry.listed": FAULT,
    "sbredis.registry._rulebook.LIMITS": SMALL,
    "sbredis.registry._rulebook.LONGEST_PAGE": SMALL,
    "sbredis.registry._steps.Steps.*": PLANTED,
    "sbredis.rules._compile.Compiler._like": FAULT,
    "sbredis.rules._compile.uuid4": "numbers that the test knows",
    "sbredis.sending._outbox.facts_of": NOTED,
    "sbredis.servers._binary._in_package": "a machine with other programs",
    "sbredis.servers._embedded.ask": BETWEEN,
    "sbredis.servers._local.free_port": "a port that another program takes",
    "sbredis.servers._locks.FileLock._try": NOTED,
    "sbredis.servers._starting._ORPHAN_GRACE": "the real wait is three seconds",
    "sbredis.servers._starting.python_command": "a machine with another Python",
    "sbredis.spark._consume.SHOWING_LIFE": "the real wait is a minute",
    "sbredis.spark._endings.stop": "the Spark of the tests goes on",
    "sbredis.spark._jobs_run._run_alone": "the test needs no Spark",
    "sbredis.spark._jobs_run._session": "the Spark of the tests",
    "sbredis.sync._bridge.fast_loop": "an event loop that refuses calls from other threads",
    "sbredis.sync._renewer._CLOSING": "the real wait is five seconds, and a renewer has no client",
    "sbredis.telemetry._telemetry._LiveObservation": NOTED,
    "sbredis.workers.running._handling.monotonic": "the time of an event loop that jumps",
    "sbredis.workers.schedules._time.time": "the time of an event loop that jumps",
}


def replaced(tree: ast.AST) -> Iterator[str]:
    """Yield the names of the product that a test replaces by ``setattr``, ``delattr``, ``patch.object`` or ``=``.

    A name that is computed is ``*``. Objects that the test has made are left out: their names say nothing.
    """
    imported: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            imported |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            imported |= {alias.asname or alias.name: alias.name for alias in node.names}
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="setattr" | "delattr"), args=[ast.Constant(value=str() as name), *_]):
                found = name
            case ast.Call(func=ast.Attribute(attr="setattr" | "delattr" | "object"), args=[owner, attribute, *_]):
                last = str(attribute.value) if isinstance(attribute, ast.Constant) else "*"
                found = f"{_full(owner, imported)}.{last}"
            case ast.Attribute(value=owner, attr=last, ctx=ast.Store()):
                found = f"{_full(owner, imported)}.{last}"
            case _:
                continue
        if found.partition(".")[0] in PLACES:
            yield found


def _full(owner: ast.expr, imported: Mapping[str, str]) -> str:
    """Return the full name of a module, class or function that was imported. Any other name begins with a dot."""
    first, dot, rest = ast.unparse(owner).partition(".")
    return f"{imported.get(first, '')}{dot}{rest}"


def test_no_test_replaces_a_part_of_the_product_without_a_reason() -> None:
    tests = [path.read_text("utf-8") for path in files(".py") if path.relative_to(ROOT).parts[0] == "tests"]
    found = {name for text in tests if REPLACES.search(text) for name in replaced(ast.parse(text))}
    assert sorted(found) == sorted(ALLOWED)


def test_parts_that_are_replaced_are_found() -> None:
    text = """
from sbredis.client import _role as keeping
from sbredis.aio import ServiceBusReceiver
monkeypatch.setattr(keeping, "_CLAIM", 0.3)
patch.setattr("sbredis.receiving._inbox._GATHERING", 60.0)
patch.setattr(ServiceBusReceiver, name, wrong)
monkeypatch.setattr(keeping.Role, "claim", claim)
monkeypatch.setattr(queue.entity, "reload", broken)
monkeypatch.setattr(sys, "stderr", terminal)
with patch.object(keeping.Role, "release", release), patch.object(wire, "write"):
    ServiceBusReceiver.complete_message = noting
    receiver.complete_message = noting
"""
    assert list(replaced(ast.parse(text))) == [
        "sbredis.client._role._CLAIM",
        "sbredis.receiving._inbox._GATHERING",
        "sbredis.aio.ServiceBusReceiver.*",
        "sbredis.client._role.Role.claim",
        "sbredis.client._role.Role.release",
        "sbredis.aio.ServiceBusReceiver.complete_message",
    ]
