"""Calls whose answer may depend on due work: such a call is put off if it cannot do all due work first.

The bench repeats a call while it is put off. These tests check each attempt separately.
If something becomes due in every millisecond, each attempt finds due work.
So a call must not be put off once it has done all due work.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sbredis.engine import NEVER, CallId, Content, Outgoing, Partition, SessionLock, encode, new_token
from sbredis.engine._lifecycle import State
from sbredis.exceptions import ScriptRefusedError, ServiceBusQuotaExceededError
from tests.engine.bench import ENTITY, NAMESPACE, SALT, START, Bench, set_to

pytestmark = pytest.mark.anyio


def _with(bench: Bench, **changes: Any) -> Partition:
    """Return the partition with changed settings and the next version number."""
    before = bench.partition
    settings = replace(before.settings, **changes)
    return Partition(NAMESPACE, SALT, ENTITY, before.incarnation, before.version + 1, settings)


async def test_a_due_message_cannot_be_cancelled_even_if_it_is_not_activated_yet(bench: Bench) -> None:
    """The message counts as enqueued from its due time on, even if one call cannot do all due work."""
    names = await bench.send(*(b"m" for _ in range(200)), due=START + 10)
    bench.later(10)
    assert await bench.cancel(names[-1]) == (names[-1],)
    assert (await bench.count()).active == 200
    assert await bench.stored(State.SCHEDULED) == 0


async def test_a_future_message_is_cancelled_even_if_one_call_cannot_do_all_due_work(bench: Bench) -> None:
    await bench.send(*(b"m" for _ in range(200)), due=START + 10)
    names = await bench.send(b"later", due=START + 11)
    bench.later(10)
    assert await bench.cancel(*names) == ()
    assert (await bench.count()).active == 200


async def test_changed_settings_are_accepted_if_one_call_can_do_all_due_work(bench: Bench) -> None:
    """Due work uses the old settings. A change must succeed even if something becomes due in each millisecond."""
    await bench.send(b"m", due=START + 10)
    bench.later(10)
    bench.partition = _with(bench, time_to_live=1)
    request = bench.partition.configure(now=bench.now)
    await bench.transport.call(request.script, request.keys, request.arguments)
    (held,) = await bench.receive()
    assert held.record.expires == NEVER


async def test_changed_settings_are_put_off_while_one_call_cannot_do_all_due_work(bench: Bench) -> None:
    await bench.send(*(b"m" for _ in range(501)), due=START + 10)
    bench.later(10)
    before = bench.partition
    request = _with(bench, time_to_live=1).configure(now=bench.now)
    with pytest.raises(ScriptRefusedError) as refused:
        await bench.transport.call(request.script, request.keys, request.arguments)
    assert refused.value.reply_code == "DUE"
    assert (await bench.tell(before.count(CallId("", 0, bench.now)))).active == 501


@set_to(quota=100)
async def test_a_send_without_room_is_refused_once_all_due_work_is_done(bench: Bench) -> None:
    await bench.send(b"m", due=START + 10)
    bench.later(10)
    request = bench.partition.send(bench.call_id(), [Outgoing(b"x" * 100)])
    with pytest.raises(ScriptRefusedError) as refused:
        await bench.transport.call(request.script, request.keys, request.arguments)
    assert refused.value.reply_code == "QUOTA"
    assert await bench.states() == {"2": "a"}
    with pytest.raises(ServiceBusQuotaExceededError):
        await bench.send(b"x" * 100)


@set_to(quota=100)
async def test_a_send_succeeds_on_the_second_attempt_if_expiry_made_room(bench: Bench) -> None:
    await bench.send(b"x" * 70, time_to_live=10)
    bench.later(10)
    request = bench.partition.send(bench.call_id(), [Outgoing(b"y" * 70)])
    with pytest.raises(ScriptRefusedError) as refused:
        await bench.transport.call(request.script, request.keys, request.arguments)
    assert refused.value.reply_code == "DUE"
    await bench.tell(request)
    assert await bench.payloads() == [b"y" * 70]


@set_to(quota=100, sessions=True)
async def test_a_session_state_without_room_is_refused_once_all_due_work_is_done(bench: Bench) -> None:
    lock = SessionLock("s", new_token())
    await bench.tell(bench.partition.accept_session(bench.call_id(), lock.token, "s"))
    body = encode(Content(b"m", session_id="t"))
    await bench.send(body, due=START + 10)
    bench.later(10)
    request = bench.partition.set_state(bench.call_id(), lock, b"x" * 100)
    with pytest.raises(ScriptRefusedError) as refused:
        await bench.transport.call(request.script, request.keys, request.arguments)
    assert refused.value.reply_code == "QUOTA"
    assert await bench.states() == {"2": "a"}
