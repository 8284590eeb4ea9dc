"""Tests that need a separate process: they end the interpreter, fork, or check which modules an import loads."""

from __future__ import annotations

import subprocess
import sys

import pytest

from sbredis.servers import LocalServer
from tests.complaints import complaints
from tests.plugins.parts import first
from tools.repository import ROOT

LOOPS = pytest.mark.parametrize("loop", first(1, ["asyncio", "uvloop"], "each case starts an interpreter"))
LOOPS_AND_TARGETS = pytest.mark.parametrize(
    ("loop", "target"), [("asyncio", "memory"), ("uvloop", "server")], indirect=["target"]
)
"""Each loop and each target once, because each case starts an interpreter."""
WITHOUT = {"asyncio": "import sys; sys.modules['uvloop'] = None\n", "uvloop": ""}


def python(code: str, *arguments: str) -> str:
    """Run this code in a fresh interpreter, and return its output. The test fails if it writes to standard error."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True, check=False, timeout=280
    )
    assert (done.returncode, complaints(done.stderr)) == (0, "")
    return done.stdout.strip()


@pytest.mark.long("it starts an interpreter")
@LOOPS_AND_TARGETS
def test_a_forgotten_client_does_not_keep_the_interpreter_alive(loop: str, url: str, target: str) -> None:
    code = """
import sys, threading
from sbredis import AutoLockRenewer, ServiceBusClient, ServiceBusMessage
client = ServiceBusClient(sys.argv[1])
sender = client.get_queue_sender("q", create_if_missing=True)
sender.send_messages(ServiceBusMessage("a"))
renewer = AutoLockRenewer()
receiver = client.get_queue_receiver("q", auto_lock_renewer=renewer)
receiver.next()
waits = threading.Thread(target=receiver.next, daemon=True)
waits.start()
stream = sender.send_stream(ServiceBusMessage("b") for _ in range(10))
next(stream)
print("done")
"""
    del target
    assert python(WITHOUT[loop] + code, url) == "done"


@pytest.mark.long("it starts an interpreter")
@LOOPS_AND_TARGETS
def test_the_error_says_that_the_client_belongs_to_another_process(loop: str, url: str) -> None:
    code = """
import os, sys
from sbredis import AutoLockRenewer, ServiceBusClient, ServiceBusMessage
renewer = AutoLockRenewer()
with ServiceBusClient(sys.argv[1]) as client:
    with client.get_queue_sender("q", create_if_missing=True) as sender:
        receiver = client.get_queue_receiver("q", auto_lock_renewer=renewer, max_wait_time=5)
        sender.send_messages(ServiceBusMessage("from the parent"))
        client.ensure_queue("s", requires_session=True)
        of_session = client.get_queue_receiver("s", session_id="ann", auto_lock_renewer=renewer)
        of_session.__enter__()
        child = os.fork()
        if child == 0:
            uses = [
                lambda: sender.send_messages(ServiceBusMessage("a")),
                receiver.receive_messages,
                lambda: client.get_queue_sender("q"),
                lambda: client.get_topic_sender("t"),
                lambda: client.get_subscription_receiver("t", "s"),
                lambda: client.accept_next_session("s"),
                lambda: list(client.list_queue_sessions("s")),
                lambda: of_session.session.get_state(),
                lambda: renewer.register(of_session, of_session.session),
            ]
            for use in uses:
                try:
                    use()
                except RuntimeError as error:
                    assert "Make another client in each process" in str(error), error
                else:
                    os._exit(3)
            with ServiceBusClient(sys.argv[1]) as own:
                own.ensure_queue("own")
    if child == 0:  # all was closed, and nothing of the parent's
        client.close()
        renewer.close()
        sys.exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    of_session.session.set_state("from the parent")
    print(receiver.next())
renewer.close()
"""
    assert python(WITHOUT[loop] + code, url) == "from the parent"


@LOOPS
def test_a_client_that_was_not_used_before_the_fork_works_in_each_process(loop: str, server: LocalServer) -> None:
    """A server may load the application, with its client, before it forks its workers."""
    code = """
import os, sys, threading
import redis.asyncio  # once, and not in each process
from sbredis import AutoLockRenewer, ServiceBusClient, ServiceBusMessage
from sbredis.management import ServiceBusAdministrationClient
client = ServiceBusClient(sys.argv[1])
renewer = AutoLockRenewer()
sender = client.get_queue_sender("q", create_if_missing=True)
receiver = client.get_queue_receiver("q", create_if_missing=True, max_wait_time=20, auto_lock_renewer=renewer)
never = client.get_queue_sender("never")
administration = ServiceBusAdministrationClient(sys.argv[1])

def work(name):
    with client, sender, receiver:
        assert threading.active_count() > 1
        sender.send_messages(ServiceBusMessage(name))
        receiver.complete_message(receiver.next())
        administration.get_queue("q")
    never.close()
    administration.close()
    renewer.close()

assert threading.active_count() == 1, "making them starts no thread"
children = []
for number in range(3):
    child = os.fork()
    if child == 0:
        work(f"child {number}")
        sys.exit(0)
    children.append(child)
work("parent")
assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0, 0]
print("each has received one")
"""
    assert python(WITHOUT[loop] + code, f"{server.url}?namespace=forks") == "each has received one"


def test_after_a_fork_during_an_open_the_child_has_a_working_client(server: LocalServer) -> None:
    """The lock that the other thread holds does not stay locked in the child."""
    code = """
import os, sys, threading
from sbredis import ServiceBusClient
client = ServiceBusClient(sys.argv[1])
with client._bridge._lock:  # as another thread would hold it
    child = os.fork()
    if child == 0:
        client.ensure_queue("q")
        client.close()
        os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
client.close()
print("opened")
"""
    assert python(code, server.url) == "opened"


@pytest.mark.parametrize(
    ("session", "target"), [("None", "memory"), ("NEXT_AVAILABLE_SESSION", "server")], indirect=["target"]
)
def test_an_interruption_ends_a_program_in_the_usual_way(session: str, url: str) -> None:
    code = """
import os, signal, sys, threading, time
from sbredis import NEXT_AVAILABLE_SESSION, ServiceBusClient
signal.signal(signal.SIGINT, signal.default_int_handler)
session = NEXT_AVAILABLE_SESSION if sys.argv[2] != "None" else None
def interrupt():
    aio = receiver._aio
    while aio._inbox is None or not aio._inbox.callers.demand:
        if getattr(aio, "_opening", None) is not None:  # the receiver of a session accepts it
            break
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)
try:
    with ServiceBusClient(sys.argv[1]) as client:
        client.ensure_queue("q", requires_session=session is not None)
        receiver = client.get_queue_receiver("q", session_id=session)
        threading.Thread(target=interrupt).start()
        with receiver:
            for message in receiver:
                pass
except KeyboardInterrupt:
    print("interrupted", threading.active_count())
"""
    assert python(code, url, session) == "interrupted 1"


def test_the_package_imports_its_modules_only_when_they_are_used() -> None:
    """The supervisor of a server lives as long as the server, so it imports no more than it needs."""
    code = """
import sys
import sbredis.servers
print([name for name in ("asyncio", "anyio", "sbredis.sync", "sbredis.aio", "sbredis.model") if name in sys.modules])
from sbredis import NEXT_AVAILABLE_SESSION, ServiceBusMessage, ServiceBusSessionFilter
print([name for name in ("sbredis.sync", "sbredis.aio") if name in sys.modules])
from sbredis import ServiceBusClient
import sbredis.management
print([name for name in ("redis", "tenacity", "fakeredis", "uvloop", "opentelemetry") if name in sys.modules])
"""
    assert python(code).splitlines() == ["[]"] * 3


def test_a_client_that_is_never_used_imports_no_expensive_module() -> None:
    code = """
import sys
from sbredis import ServiceBusClient
with_none = ServiceBusClient("redis://127.0.0.1:1")
with_none.close()
print([name for name in ("redis", "tenacity", "fakeredis", "uvloop") if name in sys.modules])
"""
    assert python(code) == "[]"
