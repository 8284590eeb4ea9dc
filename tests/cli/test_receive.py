"""``sbredis receive``: nothing is settled before it was dealt with, and what is left goes back uncounted."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sbredis import ServiceBusReceivedMessage
from sbredis.aio import ServiceBusClient, ServiceBusReceiver
from sbredis.cli._receive import delay_after, environment_of, wait_of
from sbredis.servers import LocalServer
from tests.children import run_program
from tests.cli.children import Child
from tests.cli.conftest import Bus, Command
from tests.offenders import for_each
from tests.plugins.parts import first
from tests.waiting import wait_until

COMMAND = f"{shlex.quote(sys.executable)} -m sbredis.cli"


def filled(bus: Bus, count: int, name: str = "orders", *options: str) -> None:
    bus.did("send", name, "--lines", *options, stdin=b"".join(b"%d\n" % number for number in range(1, count + 1)))


def counts(bus: Bus, path: str = "orders") -> list[tuple[str, int]]:
    """Return the bodies at a path, each with its count of failed deliveries."""
    return [(each["body"], each["delivery_count"]) for each in bus.peek(path)]


def test_bodies_are_printed_and_completed(bus: Bus) -> None:
    bus.queue()
    filled(bus, 3)
    assert bus.did("receive", "orders").out == "1\n"
    assert bus.did("receive", "orders", "--count", "10", "--wait", "5s").out == "2\n3\n"
    assert bus.bodies() == []
    ran = bus.run("receive", "orders", "--all", "--wait", "0")
    assert (ran.code, ran.out, ran.err) == (3, "", "no message came\n")


def test_json_has_all_fields(bus: Bus) -> None:
    bus.queue()
    bus.did("send", "orders", "two", "-p", "pieces:=2", "--subject", "order", "--message-id", "m", "--ttl", "1h")
    bus.did("send", "orders", stdin=b"\xff")
    first, second = bus.did("receive", "orders", "--count", "2", "--output", "json").rows
    assert first.pop("enqueued_time_utc") < first.pop("expires_at_utc")
    assert first.pop("sequence_number") == first.pop("enqueued_sequence_number")
    assert first == {
        "state": "active",
        "delivery_count": 1,
        "dead_letter_reason": None,
        "dead_letter_error_description": None,
        "dead_letter_source": None,
        "dead_letter_source_sequence_number": None,
        "message_id": "m",
        "correlation_id": None,
        "session_id": None,
        "partition_key": None,
        "subject": "order",
        "content_type": None,
        "to": None,
        "reply_to": None,
        "reply_to_session_id": None,
        "time_to_live": 3600.0,
        "scheduled_enqueue_time_utc": None,
        "application_properties": {"pieces": 2},
        "body": "two",
    }
    assert (second["body_base64"], "body" in second) == ("/w==", False)


def test_messages_are_given_back_or_dead_lettered(bus: Bus) -> None:
    bus.queue()
    filled(bus, 2)
    assert bus.did("receive", "orders", "--count", "2", "--ack", "none").out == "1\n2\n"
    assert counts(bus) == [("1", 0), ("2", 0)]
    assert bus.did("receive", "orders", "--ack", "dead-letter", "--reason", "Bad").out == "1\n"
    (letter,) = bus.peek("orders/$DeadLetterQueue")
    assert (letter["body"], letter["dead_letter_reason"]) == ("1", "Bad")
    assert bus.did("receive", "orders", "--dead-letters").out == "1\n"
    assert bus.bodies("orders/$DeadLetterQueue") == []


def test_a_command_handles_each_message(bus: Bus, tmp_path: Path) -> None:
    bus.queue()
    lines = b"a\nc\nbad\n"  # the bad one comes again at once, so it is last
    bus.did("send", "orders", "--lines", "--subject", "order", "-p", "the customer=ann", stdin=lines)
    log = tmp_path / "log"
    handler = f'read body; echo "$body $SBREDIS_SUBJECT $SBREDIS_PROPERTY_THE_CUSTOMER" >> {log}; test $body != bad'
    ran = bus.run("receive", "orders", "--count", "3", "--exec", handler, "--retry-delay", "0")
    assert (ran.code, ran.out, ran.err) == (1, "", "1 of 3 messages was not handled\n")
    assert log.read_text("utf-8").splitlines() == ["a order ann", "c order ann", "bad order ann"]
    assert counts(bus) == [("bad", 1)]
    assert bus.run("receive", "orders", "--exec", "exit 2", "--on-failure", "none").code == 1
    assert counts(bus) == [("bad", 1)]
    assert bus.run("receive", "orders", "--exec", "exit 2", "--on-failure", "dead-letter").code == 1
    assert (bus.bodies(), bus.bodies("orders/$DeadLetterQueue")) == ([], ["bad"])


def test_a_message_whose_command_fails_waits_before_it_comes_again(bus: Bus) -> None:
    bus.queue()
    filled(bus, 2)
    ran = bus.run("receive", "orders", "--all", "--wait", "0", "--exec", "false", "--retry-delay", "1h")
    assert (ran.code, ran.out, ran.err) == (1, "", "2 of 2 messages were not handled\n")
    assert counts(bus) == [("1", 1), ("2", 1)]
    assert bus.did("queue", "show", "orders", "-o", "json").json["messages"]["delayed"] == 2


def test_without_a_delay_a_message_becomes_a_dead_letter_at_once(bus: Bus) -> None:
    bus.queue(max_delivery_count=3)
    filled(bus, 1)
    ran = bus.run("receive", "orders", "--count", "3", "--wait", "60s", "--exec", "false", "--retry-delay", "0")
    assert (ran.code, ran.err) == (1, "3 of 3 messages were not handled\n")
    assert bus.bodies("orders/$DeadLetterQueue") == ["1"]


def test_the_delay_doubles_up_to_five_minutes(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [delay_after(failures, 1) for failures in (1, 2, 3, 9, 10, 99_999)] == [1, 2, 4, 256, 300, 300]
    assert [delay_after(failures, 3600) for failures in (1, 2)] == [3600, 3600]
    assert delay_after(5, 0) == 0
    delays = list[float]()
    abandon = ServiceBusReceiver.abandon_message

    async def noted(self: ServiceBusReceiver, message: ServiceBusReceivedMessage, *, delay: float) -> None:
        delays.append(delay)
        await abandon(self, message)

    monkeypatch.setattr(ServiceBusReceiver, "abandon_message", noted)
    bus.queue(max_delivery_count=4)
    filled(bus, 1)
    assert bus.run("receive", "orders", "--count", "4", "--wait", "60s", "--exec", "false").code == 1
    assert delays == [1, 2, 4, 8]


def test_the_environment_of_a_command_has_no_null_characters(bus: Bus) -> None:
    bus.queue()
    bus.did(
        "send", "orders", "--json-lines", stdin=b'{"body": "x", "application_properties": {"a-\\u00fc": "b\\u0000"}}'
    )

    async def peeked(client: ServiceBusClient) -> dict[str, str]:
        (message,) = await client.get_queue_receiver("orders").peek_messages()
        return environment_of(message)

    found = bus.client(peeked)
    assert found["SBREDIS_PROPERTY_A__"] == "b"
    assert found["SBREDIS_DELIVERY_COUNT"] == "0"
    assert "SBREDIS_SUBJECT" not in found


def test_a_session_is_named_or_the_next(bus: Bus) -> None:
    bus.queue(requires_session=True)
    filled(bus, 2, "orders", "--session", "ann")
    filled(bus, 1, "orders", "--session", "bob")
    assert bus.did("receive", "orders", "--session", "bob", "--count", "1", "--wait", "60s").out == "1\n"
    assert bus.did("receive", "orders", "--session", "next", "--ack", "none").out == "1\n"
    assert counts(bus) == [("1", 0), ("2", 0)]
    assert bus.did("receive", "orders", "--session", "next", "--count", "2", "--wait", "60s").out == "1\n2\n"
    ran = bus.run("receive", "orders", "--session", "next", "--wait", "0.05")
    assert (ran.code, ran.out, ran.err) == (3, "", "no session is free\n")


REFUSED = {
    "one of --count": ("orders", "--count", "1", "--all"),
    "dead letters already": ("orders", "--dead-letters", "--ack", "dead-letter"),
    "has no sessions": ("orders", "--session", "next"),
    "has sessions": ("chats",),
    "is a topic": ("news",),
    "is not a duration": ("orders", "--wait", "soon"),
    "is for messages whose --exec COMMAND fails": ("orders", "--retry-delay", "1s"),
    "and that are abandoned": ("orders", "--exec", "false", "--on-failure", "none", "--retry-delay", "1s"),
    "--reason is for dead letters": ("orders", "--reason", "Bad"),
    "give --ack dead-letter": ("orders", "--exec", "false", "--on-failure", "none", "--reason", "Bad"),
    "--on-failure is for messages": ("orders", "--on-failure", "none"),
    "--exec COMMAND is empty": ("orders", "--exec", " "),
    "reason has 4097 characters": ("orders", "--ack", "dead-letter", "--reason", "x" * 4097),
    "a year at most": ("orders", "--exec", "false", "--retry-delay", "400d"),
}


@pytest.fixture
def one(bus: Bus) -> None:
    """Create a queue with one message, a queue with sessions, and a topic."""
    bus.queue()
    bus.queue("chats", requires_session=True)
    bus.administration(lambda administration: administration.create_topic("news"))
    filled(bus, 1)


@pytest.mark.usefixtures("one")
@for_each("text", REFUSED)
def test_options_that_do_not_fit_are_refused(bus: Bus, text: str) -> None:
    ran = bus.run("receive", *REFUSED[text])
    assert (ran.code, ran.out) == (2, "")
    assert text in ran.err
    assert counts(bus) == [("1", 0)]


@pytest.mark.parametrize("session", [False, True])
def test_when_the_reader_of_a_pipe_has_gone_the_rest_goes_back_uncounted(bus: Bus, session: bool) -> None:
    bus.queue(requires_session=session)
    filled(bus, 100, "orders", *(("--session", "ann") if session else ()))
    options = "--session ann" if session else ""
    command = f"{COMMAND} receive orders --count 100 {options} --url {shlex.quote(bus.url)}"
    line = f"{command} | head -1; exit ${{PIPESTATUS[0]}}"
    ran = run_program("/bin/bash", "-c", line)
    assert (ran.returncode, ran.stdout, ran.stderr) == (141, "1\n", "")
    left = counts(bus)
    assert left[-99:] == [(str(number), 0) for number in range(2, 101)]
    assert len(left) in {99, 100}


def test_when_it_is_interrupted_what_was_not_dealt_with_goes_back_uncounted(bus: Bus) -> None:
    """The reader does not take the end of the line, so no message is dealt with."""
    bus.queue()
    filled(bus, 5)
    read, write = os.pipe()
    with Child("receive", "orders", "--all", "--url", bus.url, stdout=write) as child:
        os.close(write)
        assert os.read(read, 1) == b"1"
        child.signal(signal.SIGINT)
        assert child.end() == (130, "interrupted: received 0 messages\n")
        os.close(read)
    assert counts(bus) == [(str(number), 0) for number in range(1, 6)]


WORK = "n=0; while [ $((n += 1)) -lt 6000 ]; do sleep 0.01; done"  # a minute


class Handler:
    """A command that starts a program, and notes in files what becomes of it."""

    def __init__(self, folder: Path, program: str, when_asked: str | None = None) -> None:
        """``when_asked`` is what the program does when it gets SIGTERM. It notes its process after that is arranged."""
        self.noted, self.done = folder / "process", folder / "done"
        trap = "" if when_asked is None else f"trap {shlex.quote(when_asked)} TERM; "
        inner = f"{trap}echo $$ > {self.noted}.new; mv {self.noted}.new {self.noted}; {program}"
        self.command = f"read body; sh -c {shlex.quote(inner)}; touch {self.done}"

    def has_begun(self) -> bool:
        return self.noted.exists()

    def is_there(self) -> bool:
        status = Path(f"/proc/{self.noted.read_text('utf-8').strip()}/stat")
        return status.exists() and status.read_text("utf-8").rpartition(")")[2].split()[0] != "Z"


def test_when_it_is_interrupted_all_that_a_running_command_has_started_ends_and_its_message_goes_back(
    bus: Bus, tmp_path: Path
) -> None:
    bus.queue()
    filled(bus, 2)
    handler = Handler(tmp_path, "exec sleep 60")
    with Child("receive", "orders", "--follow", "--exec", handler.command, "--url", bus.url) as child:
        wait_until(handler.has_begun)
        child.signal(signal.SIGTERM)
        assert child.end() == (143, "interrupted: received 0 messages\n")
    assert not handler.is_there()
    assert not handler.done.exists()
    assert counts(bus) == [("1", 0), ("2", 0)]


@for_each(("given", "follow", "waits"), [(0.0, True, 1.0), (0.2, True, 1.0), (5.0, True, 5.0), (0.0, False, 0.0)])
def test_a_command_that_follows_waits_on_the_server_for_a_second_at_least(
    given: float, follow: bool, waits: float
) -> None:
    assert wait_of(given, follow=follow) == waits


@pytest.mark.parametrize("session", first(2, ["", "ann", "next"], "any session is received from in the same way"))
def test_following_without_a_wait_listens_instead_of_asking_again_and_again(
    bus: Bus, server: LocalServer, session: str
) -> None:
    """A receiver that only asks what is there does not listen to the server."""
    bus.queue(requires_session=bool(session))
    chosen = ("--session", session) if session else ()
    with Child("receive", "orders", "--follow", "--wait", "0s", *chosen, "--url", bus.url) as child:
        wait_until(lambda: server.ask("PUBSUB", "SHARDCHANNELS"))
        child.signal(signal.SIGINT)
        assert child.end() == (130, "interrupted: received 0 messages\n")


def test_following_outlasts_an_outage(sbredis: Command) -> None:
    """The outage is told of once, and a message that is sent after it is received."""
    with LocalServer(config={"appendonly": "yes", "appendfsync": "always"}) as server:
        at = ("--url", server.url)
        assert sbredis("queue", "create", "orders", *at).code == 0
        with Child("receive", "orders", "--follow", "--wait", "0.2s", *at) as child:
            assert child.process.stdout is not None
            assert child.process.stderr is not None
            sbredis("send", "orders", "before", *at)
            assert child.process.stdout.readline() == "before\n"
            wait_until(lambda: not sbredis("peek", "orders", *at).out)
            server.kill()
            assert "It is tried again; Ctrl-C ends this." in child.process.stderr.readline()
            server.restart()
            sbredis("send", "orders", "after", *at)
            assert child.process.stdout.readline() == "after\n"
            child.signal(signal.SIGINT)
            assert child.end() == (130, "The server answers again.\ninterrupted: received 2 messages\n")


@pytest.mark.parametrize("session", first(1, ["ann", "next"], "the lock of any session ends in the same way"))
def test_following_outlasts_the_lock_on_a_session(sbredis: Command, session: str) -> None:
    """The command waits for a session that is free. If it loses the lock in an outage, it accepts a session again."""
    with LocalServer(config={"appendonly": "yes", "appendfsync": "always"}) as server:
        at = ("--url", server.url)
        assert sbredis("queue", "create", "chats", "--requires-session", "--lock-duration", "5s", *at).code == 0
        with Child("receive", "chats", "--follow", "--session", session, "--wait", "0.2s", *at) as child:
            assert child.process.stdout is not None
            assert child.process.stderr is not None
            sbredis("send", "chats", "before", "--session", "ann", *at)
            assert child.process.stdout.readline() == "before\n"
            wait_until(lambda: not sbredis("peek", "chats", *at).out)
            server.kill()
            lost = "The lock on the session 'ann' has ended. A session is accepted again.\n"
            assert lost in iter(child.process.stderr.readline, "")
            server.restart()
            sbredis("send", "chats", "after", "--session", "ann", *at)
            assert child.process.stdout.readline() == "after\n"
            child.signal(signal.SIGINT)
            code, shown = child.end()
            assert code == 130
            assert shown.endswith("The server answers again.\ninterrupted: received 2 messages\n")


def test_a_message_goes_back_after_what_the_command_has_started_has_ended(bus: Bus, tmp_path: Path) -> None:
    """The shell ends at once, and the program that it has started needs some time."""
    bus.queue()
    filled(bus, 1)
    ended = tmp_path / "ended"
    handler = Handler(tmp_path, WORK, when_asked=f"sleep 0.5; touch {ended}; exit")
    with Child("receive", "orders", "--exec", handler.command, "--url", bus.url) as child:
        wait_until(handler.has_begun)
        child.signal(signal.SIGINT)
        assert child.end()[0] == 130
    assert ended.exists()
    assert counts(bus) == [("1", 0)]


@pytest.mark.long("it starts a process and interrupts it")
@pytest.mark.parametrize("shell_ends", [False, True])
def test_a_second_interruption_kills_a_command_that_does_not_end(bus: Bus, tmp_path: Path, shell_ends: bool) -> None:
    bus.queue()
    filled(bus, 1)
    asked = tmp_path / "asked"
    handler = Handler(tmp_path, WORK, when_asked=f"touch {asked}")
    command = handler.command if shell_ends else f"trap '' INT; trap : TERM; {handler.command}"
    with Child("receive", "orders", "--exec", command, "--url", bus.url) as child:
        wait_until(handler.has_begun)
        child.signal(signal.SIGINT)
        wait_until(asked.exists)
        child.signal(signal.SIGINT)
        assert child.end()[0] == 130
    wait_until(lambda: not handler.is_there())


@pytest.fixture
def with_terminal() -> Iterator[None]:
    """Let child processes end with the terminal. A run of the tests under nohup does not, and they inherit that."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.long("it starts a process and interrupts it")
@pytest.mark.usefixtures("with_terminal")
def test_the_end_of_the_terminal_ends_a_running_command(bus: Bus, tmp_path: Path) -> None:
    bus.queue()
    filled(bus, 1)
    handler = Handler(tmp_path, "exec sleep 60")
    with Child("receive", "orders", "--exec", handler.command, "--url", bus.url) as child:
        wait_until(handler.has_begun)
        child.signal(signal.SIGHUP)
        assert child.end()[0] == -signal.SIGHUP
    wait_until(lambda: not handler.is_there())
    assert not handler.done.exists()


@pytest.mark.usefixtures("with_terminal")
def test_the_terminal_may_end_before_the_command_knows_the_process_that_it_has_started(
    bus: Bus, tmp_path: Path
) -> None:
    bus.queue()
    filled(bus, 1)
    handler = Handler(tmp_path, "exec sleep 60")
    code = f"""
import asyncio, os, runpy, signal

start = asyncio.create_subprocess_shell

async def started(*arguments, **options):
    process = await start(*arguments, **options)
    while not os.path.exists({str(handler.noted)!r}):
        await asyncio.sleep(0.01)
    os.kill(os.getpid(), signal.SIGHUP)
    await asyncio.sleep(0.1)
    return process

asyncio.create_subprocess_shell = started
runpy.run_module("sbredis.cli", run_name="__main__", alter_sys=True)
"""
    without_body = handler.command.removeprefix("read body; ")  # the body comes when the process is known
    with Child("receive", "orders", "--exec", without_body, "--url", bus.url, code=code) as child:
        assert child.end()[0] == -signal.SIGHUP
    wait_until(lambda: not handler.is_there())
    assert not handler.done.exists()
