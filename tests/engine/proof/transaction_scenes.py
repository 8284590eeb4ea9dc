"""Scenes of transactions: their refusals, and the transitions of messages that are new."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sbredis.engine import Copy, Lock, Outgoing
from tests.engine.proof.both import PLAIN, Settlement
from tests.engine.proof.comparison import How, Step
from tests.engine.proof.scenes import NOBODY, SCENES, STRANGER, Play, Scene, add, changed, content, held, publish
from tests.engine.proof.town import Town
from tests.engine.terms import Condition, Event, Side, State

if TYPE_CHECKING:
    from tests.engine.proof.transaction_rules import TransactionMachine

__all__ = ["SCENES"]


def _more(town: Town, **given: Any) -> Step:
    return town.sending([Outgoing(content() if town.settings.sessions else b"more", **given)])


def _publishing_more(machine: TransactionMachine, **given: Any) -> Step:
    return machine.topic.publishing([Outgoing(b"more")], [[Copy(0), Copy(2)]], machine.subscriptions, **given)


def _alone(town_of: Callable[[TransactionMachine], Town], step_of: Callable[[TransactionMachine], Step]) -> Play:
    """Return a scene in which a transaction has one operation."""

    def play(machine: TransactionMachine, how: How) -> None:
        town = town_of(machine)
        town.transact(how, [(town, step_of(machine))])

    return play


def _with(town_of: Callable[[TransactionMachine], Town], scene: Play, **changes: Any) -> Play:
    """Return a scene in which a partition has other settings."""

    def play(machine: TransactionMachine, how: How) -> None:
        with changed(town_of(machine), **changes):
            scene(machine, how)

    return play


def _queue(machine: TransactionMachine) -> Town:
    return machine.queue


def _topic(machine: TransactionMachine) -> Town:
    return machine.topic


def _plain(machine: TransactionMachine) -> Town:
    return machine.subscriptions[0]


def _in_turns(machine: TransactionMachine) -> Town:
    return machine.subscriptions[2]


def _send_without_a_session(machine: TransactionMachine, how: How) -> None:
    queue = machine.queue
    if queue.settings.sessions:
        with changed(queue):
            queue.transact(how, [(queue, queue.sending([Outgoing(b"none")]))])


def _state_in_a_small_topic(**changes: Any) -> Play:
    """Return a scene in which a session gets a state that its topic has no room for."""

    def play(machine: TransactionMachine, how: How) -> None:
        town = _in_turns(machine)
        with changed(town), held(town) as lock, changed(machine.topic, **changes):
            town.transact(how, [(town, town.stating(lock, b"more" * 9))])

    return play


def _need_the_room_of_what_has_expired(machine: TransactionMachine, how: How) -> None:
    """Send to a full queue in a transaction; its messages have expired."""
    queue = machine.queue
    with changed(queue, dead_letter_expired=False):
        queue.send(PLAIN, [Outgoing(content("late" * 5), time_to_live=5)] * 3)
        with changed(queue, quota=max(1, queue.model.bytes), dead_letter_expired=False):
            queue.now += 10
            queue.transact(how, [(queue, _more(queue))])


def _state_where_the_topic_is_full(machine: TransactionMachine, how: How) -> None:
    """Set a state in a transaction while the topic is full; the messages of the subscription have expired."""
    town = _in_turns(machine)
    with changed(town, dead_letter_expired=False), changed(machine.topic), held(town) as lock:
        brief = [Outgoing(content("late" * 5), time_to_live=5)] * 3
        machine.topic.publish(PLAIN, brief, [[Copy(2)]] * 3, machine.subscriptions)
        with changed(machine.topic, quota=max(1, machine.topic.model.bytes)):
            machine.topic.now += 10
            town.transact(how, [(town, town.stating(lock, b"more"))])


def _publish_with_an_old_fence(machine: TransactionMachine, how: How) -> None:
    with changed(machine.topic):
        if machine.topic.model.route_fence < 2:
            publish(machine, PLAIN, [Outgoing(b"m")], fence=2)
        machine.topic.transact(how, [(machine.topic, _publishing_more(machine, fence=1))])


def _remember_twice(machine: TransactionMachine, how: How) -> None:
    town = machine.queue
    for each in (PLAIN, how):
        town.transact(each, [(town, town.remembering({b"scene": 1_000}))])


def _advance_from_another_value(machine: TransactionMachine, how: How) -> None:
    town = machine.queue
    town.transact(how, [(town, town.advancing(b"scene", "another value", "1"))])


def _advance_too_many(machine: TransactionMachine, how: How) -> None:
    """Make one watermark more than a partition keeps, and then remove the others."""
    town = machine.queue
    names = [b"scene %d" % at for at in range(town.model.bounds.watermarks + 1)]
    for name in names:
        town.transact(how if name == names[-1] else PLAIN, [(town, town.advancing(name, None, "1"))])
    made = [name for name in names if name in town.model.watermarks]
    town.transact(PLAIN, [(town, town.advancing(name, "1", None)) for name in made])


def _know_wrongly(unfit: str) -> Play:
    def play(machine: TransactionMachine, how: How) -> None:
        parts = [(machine.topic, _publishing_more(machine)), (machine.queue, _more(machine.queue))]
        machine.topic.transact(how, parts, unfit=(unfit, machine.queue))

    return play


def _settle(what: Settlement, name: str) -> Play:
    return _alone(_plain, lambda machine: _plain(machine).settling(what, [Lock(STRANGER, name)]))


_IN_TRANSACTIONS: dict[tuple[str, str], Play] = {
    ("send", "DISABLED"): _with(_queue, _alone(_queue, lambda it: _more(it.queue)), status="SendDisabled"),
    ("send", "TOOLARGE"): _with(_queue, _alone(_queue, lambda it: _more(it.queue)), largest_message=1),
    ("send", "QUOTA"): _with(_queue, _alone(_queue, lambda it: _more(it.queue)), quota=1),
    ("send", "DUE"): _need_the_room_of_what_has_expired,
    ("send", "SESSIONS"): _send_without_a_session,
    ("publish", "DISABLED"): _with(_topic, _alone(_topic, _publishing_more), status="SendDisabled"),
    ("publish", "TOOLARGE"): _with(_topic, _alone(_topic, _publishing_more), largest_message=1),
    ("publish", "QUOTA"): _with(_topic, _alone(_topic, _publishing_more), quota=1),
    ("publish", "TARGET"): _with(_topic, _alone(_topic, lambda it: _publishing_more(it, missing=0))),
    ("publish", "FENCED"): _publish_with_an_old_fence,
    ("set_state", "TOOLARGE"): _state_in_a_small_topic(largest_message=1),
    ("set_state", "QUOTA"): _state_in_a_small_topic(quota=1),
    ("set_state", "DUE"): _state_where_the_topic_is_full,
    ("set_state", "SESSIONS"): _alone(_plain, lambda it: _plain(it).stating(NOBODY, b"s")),
    ("set_state", "LOST"): _alone(_in_turns, lambda it: _in_turns(it).stating(NOBODY, b"s")),
    ("complete", "UNLOCKED"): _settle("complete", "1"),
    ("abandon", "UNLOCKED"): _settle("abandon", "1"),
    ("defer", "UNLOCKED"): _settle("defer", "1"),
    ("dead_letter", "UNLOCKED"): _settle("dead_letter", "1"),
    ("renew", "UNLOCKED"): _alone(_plain, lambda it: _plain(it).renewing([Lock(STRANGER, "1")])),
    ("dead_letter", "DEAD"): _settle("dead_letter", "d1"),
    ("once", "KNOWN"): _remember_twice,
    ("advance", "CHANGED"): _advance_from_another_value,
    ("advance", "FULL"): _advance_too_many,
    ("another participant", "GONE"): _know_wrongly("incarnation"),
    ("another participant", "STALE"): _know_wrongly("stale"),
    ("another participant", "CONFIG"): _know_wrongly("newer"),
}
for (_name, _code), _play in _IN_TRANSACTIONS.items():
    add("transactions", "refusals", (f"transact: {_name}", _code), _play, narrow=_code == "FULL")
    if _name not in {"another participant", "send"} or _code == "DUE":
        SCENES.setdefault(("refusals", ("transact", _code)), Scene("transactions", _play, _code == "FULL"))


def _send_twice_in_a_transaction(machine: TransactionMachine, how: How, *, later: bool) -> None:
    queue = machine.queue
    with changed(queue):
        step = _more(queue, message_id=b"scene", due=queue.now + 20 if later else None)
        queue.transact(how, [(queue, step), (queue, step)])


def _publish_twice_in_a_transaction(machine: TransactionMachine, how: How) -> None:
    topic = machine.topic
    with changed(topic):
        step = topic.publishing([Outgoing(b"twice", message_id=b"scene")], [[Copy(0)]], machine.subscriptions)
        topic.transact(how, [(topic, step), (topic, step)])


def _copy_what_is_faulty_in_a_transaction(machine: TransactionMachine, how: How) -> None:
    topic = machine.topic
    with changed(topic):
        step = topic.publishing([Outgoing(b"m")], [[Copy(0, dead=True), Copy(2)]], machine.subscriptions)
        topic.transact(how, [(topic, step)])


def _schedule_and_publish_in_transactions(machine: TransactionMachine, how: How) -> None:
    topic = machine.topic
    with changed(topic):
        later = topic.publishing([Outgoing(b"m", due=topic.now + 5)], [None], machine.subscriptions)
        topic.transact(PLAIN, [(topic, later)])
        topic.now += 5
        again = topic.publishing([Outgoing(b"", origin=str(topic.model.seq))], [[Copy(0)]], machine.subscriptions)
        topic.transact(how, [(topic, again)])


add(
    "transactions",
    "transacted",
    (Side.MAIN, State.NEW, Event.SEND, Condition.DUPLICATE),
    lambda machine, how: _send_twice_in_a_transaction(machine, how, later=False),
    window="queue",
)
add(
    "transactions",
    "transacted",
    (Side.MAIN, State.NEW, Event.SCHEDULE, Condition.DUPLICATE),
    lambda machine, how: _send_twice_in_a_transaction(machine, how, later=True),
    window="queue",
)
add(
    "transactions",
    "transacted",
    (Side.MAIN, State.NEW, Event.PUBLISH, Condition.DUPLICATE),
    _publish_twice_in_a_transaction,
    window="topic",
)
for _condition in (Condition.FAULTY, Condition.NO_SESSION):
    add(
        "transactions",
        "transacted",
        (Side.MAIN, State.NEW, Event.COPY, _condition),
        _copy_what_is_faulty_in_a_transaction,
    )
for _event in (Event.SCHEDULE, Event.PUBLISH):
    _state = State.NEW if _event is Event.SCHEDULE else State.SCHEDULED
    add(
        "transactions",
        "transacted",
        (Side.MAIN, _state, _event, Condition.OTHERWISE),
        _schedule_and_publish_in_transactions,
    )
