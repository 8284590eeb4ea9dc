"""Scenes: for each case that calls with a defect and transitions of stored messages do not make, a way to make it.

A scene prepares the partition, makes the case happen, and leaves the settings as they were. It belongs to one machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from sbredis.engine import NEVER, Content, Copy, Outgoing, Redrive, SessionLock, encode
from tests.engine.proof.both import PLAIN
from tests.engine.proof.cases import Kind
from tests.engine.proof.comparison import How
from tests.engine.proof.town import Town
from tests.engine.terms import Condition, Event, Side, State

if TYPE_CHECKING:
    from tests.engine.proof.topic_rules import TopicMachine

__all__ = ["NOBODY", "SCENES", "STRANGER", "UNHELD", "Play", "Scene", "add", "changed", "content", "held", "publish"]

STRANGER = "x" * 11
NOBODY = SessionLock("a", STRANGER)

Play = Callable[[Any, How], None]


class Scene(NamedTuple):
    """A way to make a case happen."""

    machine: str
    """The machine that can play it."""
    play: Play
    narrow: bool = False
    """Whether it needs bounds that a few messages exceed."""
    window: str = ""
    """The partition that needs duplicate detection, as an attribute of the machine."""


SCENES: dict[tuple[Kind, Any], Scene] = {}
"""The scenes, by the kind and the key of the case."""


@contextmanager
def changed(town: Town, **changes: Any) -> Iterator[None]:
    """Give a partition other settings for a while. By default they let it take and give messages of any size."""
    before = town.settings
    fitting = {
        "status": "Active",
        "forwards": False,
        "quota": max(before.quota, 1 << 20),
        "largest_message": max(before.largest_message, 100),
        "most_ids": 0,
        "lock_duration": max(before.lock_duration, 5_000),
        "time_to_live": NEVER,
    }
    town.change(replace(before, **{**fitting, **changes}))
    yield
    town.change(before)


def add(machine: str, kind: Kind, key: object, play: Play, *, narrow: bool = False, window: str = "") -> None:
    SCENES[kind, key] = Scene(machine, play, narrow=narrow, window=window)


def content(session: str = "a") -> bytes:
    return encode(Content(b"scene", session_id=session))


# -- refusals that settings bring about --------------------------------------------------------------------------------

_ON_QUEUES: dict[str, Callable[[Town, How], Any]] = {
    "receive": lambda town, how: town.receive(how, town.token(), 1),
    "receive_deferred": lambda town, how: town.receive_deferred(how, town.token(), ["77777"]),
    "redrive": lambda town, how: town.redrive(how, [Redrive("d77777")]),
    "send": lambda town, how: town.send(how, [Outgoing(b"refused")]),
}
UNHELD: dict[str, Callable[[Town, How], Any]] = {
    "accept_session": lambda town, how: town.accept_session(how, town.token(), "a"),
    "accept_next": lambda town, how: town.accept_next(how, town.token()),
    "bury_session": lambda town, how: town.bury_session(how, NOBODY, b"", 5),
    "get_state": lambda town, how: town.get_state(how, NOBODY),
    "list_sessions": lambda town, how: town.list_sessions(how, 5),
    "list_sessions_since": lambda town, how: town.list_sessions_since(how, 5, 0),
    "peek": lambda town, how: town.peek(how, session="a"),
    "purge": lambda town, how: town.purge(how, 0, session="a"),
    "receive": lambda town, how: town.receive(how, STRANGER, 1, session="a"),
    "receive_deferred": lambda town, how: town.receive_deferred(how, STRANGER, ["7"], session="a"),
    "release_session": lambda town, how: town.release_session(how, NOBODY),
    "renew_session": lambda town, how: town.renew_session(how, NOBODY),
    "set_state": lambda town, how: town.set_state(how, NOBODY, b"x"),
}
"""For each operation on sessions, a call of somebody who holds none. It must be refused or have no effect."""


def _while(call: Callable[[Town, How], Any], **changes: Any) -> Play:
    """Return a scene in which a partition with other settings gets a call."""

    def play(machine: Any, how: How) -> None:
        with changed(machine.both, **changes):
            call(machine.both, how)

    return play


def _plainly(call: Callable[[Town, How], Any]) -> Play:
    return lambda machine, how: call(machine.both, how)


for _name, _call in _ON_QUEUES.items():
    add("queue", "refusals", (_name, "DISABLED"), _while(_call, status="Disabled"))
    if _name == "receive":
        add("queue", "refusals", (_name, "FORWARDS"), _while(_call, forwards=True))
for _name in ("accept_session", "accept_next"):
    add("sessions", "refusals", (_name, "DISABLED"), _while(UNHELD[_name], status="ReceiveDisabled"))
    add("sessions", "refusals", (_name, "FORWARDS"), _while(UNHELD[_name], forwards=True))
for _name, _call in UNHELD.items():
    add("queue", "refusals", (_name, "SESSIONS"), _plainly(_call))
for _name in ("receive", "receive_deferred", "bury_session", "get_state", "release_session", "renew_session"):
    add("sessions", "refusals", (_name, "LOST"), _plainly(UNHELD[_name]))
add("sessions", "refusals", ("set_state", "LOST"), _plainly(UNHELD["set_state"]))
add("sessions", "refusals", ("send", "SESSIONS"), _while(lambda town, how: town.send(how, [Outgoing(b"none")])))
add("queue", "refusals", ("send", "TOOLARGE"), _while(_ON_QUEUES["send"], largest_message=1))
add("queue", "refusals", ("send", "QUOTA"), _while(_ON_QUEUES["send"], quota=1))


def _change_what_is_fixed(machine: Any, how: How) -> None:
    machine.both.configure(how, replace(machine.both.settings, clock="server"))


add("queue", "refusals", ("configure", "FIXED"), _change_what_is_fixed)


# -- refusals that due work brings about -------------------------------------------------------------------------------


def _with_due_work(call: Callable[[Town, How], Any], count: int = 8) -> Play:
    """Return a scene in which a partition gets a call that it must put off, because too much has expired."""

    def play(machine: Any, how: How) -> None:
        town = machine.both
        with changed(town):
            town.send(PLAIN, [Outgoing(b"e", time_to_live=5) for _ in range(count)])
            town.now += 10
            call(town, how)
            _finish_due_work(town)

    return play


def _finish_due_work(town: Town) -> None:
    while town.due().more:
        pass


def _configure(town: Town, how: How) -> None:
    town.version += 1
    town.configure(how, town.settings)
    town.version = town.model.version


for _name, _call in {
    "cancel": lambda town, how: town.cancel(how, ["77777"]),
    "purge": lambda town, how: town.purge(how, town.now),
    "receive_deferred": lambda town, how: town.receive_deferred(how, town.token(), ["77777"]),
    "redrive": lambda town, how: town.redrive(how, [Redrive("d77777")]),
}.items():
    add("queue", "refusals", (_name, "DUE"), _with_due_work(_call), narrow=True)
add("queue", "refusals", ("configure", "DUE"), _with_due_work(_configure, 25), narrow=True)


def _send_to_the_full(machine: Any, how: How) -> None:
    """Send to a full entity whose messages have expired."""
    town = machine.both
    with changed(town, dead_letter_expired=False):
        town.send(PLAIN, [Outgoing(b"brief" * 4, time_to_live=5)] * 2)
        with changed(town, quota=max(1, town.model.bytes), dead_letter_expired=False):
            town.now += 10
            town.send(how, [Outgoing(b"brief")])


add("queue", "refusals", ("send", "DUE"), _send_to_the_full)


# -- sessions ----------------------------------------------------------------------------------------------------------


@contextmanager
def held(town: Town, name: str = "scene") -> Iterator[SessionLock]:
    """Lock a session that nobody else locks."""
    lock = SessionLock(name, town.token())
    town.accept_session(PLAIN, lock.token, name)
    yield lock
    town.release_session(PLAIN, lock)


def _in_a_session(call: Callable[[Town, How, SessionLock], Any], **changes: Any) -> Play:
    def play(machine: Any, how: How) -> None:
        with changed(machine.both, **changes), held(machine.both) as lock:
            call(machine.both, how, lock)

    return play


def _hold_too_many(town: Town, how: How, lock: SessionLock) -> None:
    count = town.model.bounds.held + 1
    sent = town.send(PLAIN, [Outgoing(content(lock.name))] * count)
    names = [str(sent.first + place) for place in range(count)]
    town.receive_deferred(how, lock.token, names, "lock", lock.name, wide=True)


def _state_the_full(town: Town, how: How, lock: SessionLock) -> None:
    """Set a state in a full entity whose messages have expired."""
    town.send(PLAIN, [Outgoing(content(), time_to_live=5)] * 2)
    with changed(town, quota=max(1, town.model.bytes), dead_letter_expired=False):
        town.now += 10
        town.set_state(how, lock, b"more")


def _bury_late(town: Town, how: How, lock: SessionLock) -> None:
    town.send(PLAIN, [Outgoing(content(), time_to_live=5)] * 8)
    town.now += 10
    town.bury_session(how, lock, b"", 5)
    _finish_due_work(town)


def _repeated(call: Callable[[Town, How, SessionLock], Any]) -> Play:
    """Return a scene in which the holder of a session makes a call twice."""

    def play(machine: Any, how: How) -> None:
        town, lane = machine.both, how.lane or "a"
        with changed(town):
            lock = SessionLock("scene", town.token())
            town.accept_session(PLAIN, lock.token, lock.name)
            call(town, How(lane=lane), lock)
            if lane in town.frozen:
                town.again(lane)
            if lock.token in town.model.leases:
                town.release_session(PLAIN, lock)

    return play


add("sessions", "refusals", ("receive_deferred", "HELD"), _in_a_session(_hold_too_many), narrow=True)
add("sessions", "refusals", ("bury_session", "DUE"), _in_a_session(_bury_late), narrow=True)
add("sessions", "refusals", ("set_state", "DUE"), _in_a_session(_state_the_full, dead_letter_expired=False))
add(
    "sessions",
    "refusals",
    ("set_state", "TOOLARGE"),
    _in_a_session(lambda town, how, lock: town.set_state(how, lock, b"more"), largest_message=1),
)
add(
    "sessions",
    "refusals",
    ("set_state", "QUOTA"),
    _in_a_session(lambda town, how, lock: town.set_state(how, lock, b"more" * 9), quota=1),
)
add("sessions", "repetitions", "bury_session", _repeated(lambda town, how, lock: town.bury_session(how, lock, b"", 5)))
add("sessions", "repetitions", "release_session", _repeated(lambda town, how, lock: town.release_session(how, lock)))
add("sessions", "repetitions", "renew_session", _repeated(lambda town, how, lock: town.renew_session(how, lock)))
add("sessions", "repetitions", "set_state", _repeated(lambda town, how, lock: town.set_state(how, lock, b"s")))
add(
    "sessions",
    "repetitions",
    "accept_session",
    _repeated(lambda town, how, lock: town.accept_session(how, town.token(), f"{lock.name} too")),
)


# -- duplicates --------------------------------------------------------------------------------------------------------


def _send_twice(machine: Any, how: How, *, later: bool) -> None:
    town = machine.both
    with changed(town):
        due = town.now + 20 if later else None
        messages = [Outgoing(b"twice", message_id=b"scene", due=due)] * 2
        town.send(how, messages)


add(
    "queue",
    "transitions",
    (Side.MAIN, State.NEW, Event.SEND, Condition.DUPLICATE),
    lambda machine, how: _send_twice(machine, how, later=False),
    window="both",
)
add(
    "queue",
    "transitions",
    (Side.MAIN, State.NEW, Event.SCHEDULE, Condition.DUPLICATE),
    lambda machine, how: _send_twice(machine, how, later=True),
    window="both",
)


# -- topics ------------------------------------------------------------------------------------------------------------


def publish(machine: TopicMachine, how: How, messages: list[Outgoing], **given: Any) -> Any:
    routes = [[Copy(place) for place in range(3)] for _ in messages]
    return machine.topic.publish(how, messages, routes, machine.subscriptions, **given)


def _publishing(count: int = 1, given: dict[str, Any] | None = None, **changes: Any) -> Play:
    """Return a scene in which a topic with other settings gets messages."""

    def play(machine: TopicMachine, how: How) -> None:
        with changed(machine.topic, **changes):
            messages = [Outgoing(b"twice", message_id=b"scene") for _ in range(count)]
            publish(machine, how, messages, **(given or {}))

    return play


def _publish_behind_the_fence(machine: TopicMachine, how: How) -> None:
    with changed(machine.topic):
        if machine.topic.model.route_fence < 2:
            publish(machine, PLAIN, [Outgoing(b"m")], fence=2)
        publish(machine, how, [Outgoing(b"m")], fence=1)


def _copy_what_is_faulty(machine: TopicMachine, how: How) -> None:
    with changed(machine.topic):
        machine.topic.publish(how, [Outgoing(b"m")], [[Copy(0, dead=True)]], machine.subscriptions)


def _publish_what_was_scheduled(machine: TopicMachine, how: How) -> None:
    with changed(machine.topic):
        sent = machine.topic.publish(PLAIN, [Outgoing(b"m", due=machine.topic.now + 5)], [None], machine.subscriptions)
        machine.topic.now += 5
        one = Outgoing(b"", origin=str(sent.first))
        machine.topic.publish(how, [one], [[Copy(0)]], machine.subscriptions)


add("topic", "refusals", ("publish", "DISABLED"), _publishing(status="SendDisabled"))
add("topic", "refusals", ("publish", "TOOLARGE"), _publishing(largest_message=1))
add("topic", "refusals", ("publish", "QUOTA"), _publishing(quota=1))
add("topic", "refusals", ("publish", "TARGET"), _publishing(given={"missing": 1}))
add("topic", "refusals", ("publish", "FENCED"), _publish_behind_the_fence)
add("topic", "transitions", (Side.MAIN, State.NEW, Event.PUBLISH, Condition.DUPLICATE), _publishing(2), window="topic")
add("topic", "transitions", (Side.MAIN, State.NEW, Event.COPY, Condition.FAULTY), _copy_what_is_faulty)
add(
    "topic",
    "transitions",
    (Side.MAIN, State.SCHEDULED, Event.PUBLISH, Condition.OTHERWISE),
    _publish_what_was_scheduled,
)
