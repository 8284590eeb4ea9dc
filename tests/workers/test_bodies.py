"""Tests of the bodies of handlers: what a worker sends, a handler with that type gets as it was."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from sbredis import ServiceBusMessage
from sbredis.aio import ServiceBusClient
from sbredis.codec import decode_body
from sbredis.testing import Bus
from sbredis.workers import Context, Worker, message_of
from sbredis.workers.running._additions import decoded_state, encoded_state
from tests.waiting import eventually
from tests.workers.looking import worker_of

TRICKY = ["abc", "5", "null", '{"a":1}', '"abc"', ""]


@dataclass
class Line:
    article: str
    count: int


class Phase(enum.StrEnum):
    OPEN = "open"


async def received(bus: Bus, as_type: Any, values: list[Any], *, batch: int | None = None) -> list[Any]:
    """Send values with a worker, and return what a handler with this type gets."""
    worker, got = await worker_of(bus, "values"), list[Any]()

    async def take(value: Any) -> None:
        got.extend(value if batch else [value])

    take.__annotations__["value"] = list[as_type] if batch else as_type
    options: dict[str, Any] = {"batch": batch} if batch else {}
    worker.queue("values", max_concurrent_calls=1, **options)(take)
    async with worker.running():
        for value in values:
            await worker.send("values", value)
        await eventually(lambda: len(got) == len(values))
    assert not await bus.dead_lettered("values")
    return got


@pytest.mark.parametrize("batch", [None, 3])
@pytest.mark.parametrize(
    ("as_type", "values"),
    [
        (str | None, [*TRICKY, None]),
        (str | int | dict[str, int], [*TRICKY, 5, {"a": 1}]),
        (Literal["a", "5"] | int, ["a", "5", 5]),
        (bytes | None, [*map(str.encode, TRICKY), None]),
        (list[Line] | str, [[Line("cup", 2)], "cup", []]),
        (dict[str, Line], [{"a": Line("cup", 2)}, {}]),
    ],
    ids=str,
)
async def test_a_handler_gets_what_was_sent(
    sbredis_bus: Bus, as_type: Any, values: list[Any], batch: int | None
) -> None:
    assert await received(sbredis_bus, as_type, values, batch=batch) == values


def echo(value: str | int | None) -> str | int | None:
    """Return the value, in a process."""
    return value


@pytest.mark.parametrize("execution", ["thread", "process"])
async def test_a_reply_has_the_value_that_was_asked_with(sbredis_bus: Bus, execution: Any) -> None:
    worker = await worker_of(sbredis_bus, "values")
    worker.queue("values", replies=True, execution=execution, max_concurrent_calls=1)(echo)
    async with worker.running(), ServiceBusClient(sbredis_bus.url) as asker:
        for value in (*TRICKY, 5, None):
            reply = await asker.request("values", value, as_type=str | int | None, timeout=60)
            assert (type(reply), reply) == (type(value), value)


async def test_a_message_of_another_sender_without_a_content_type_is_text_or_json(sbredis_bus: Bus) -> None:
    worker = Worker(sbredis_bus.url)
    got: list[Any] = []

    @worker.queue("texts", create_if_missing=True)
    async def text(value: str | None) -> None:
        got.append(value)

    @worker.queue("values", create_if_missing=True)
    async def either(value: str | dict[str, int]) -> None:
        got.append(value)

    async with worker.running():
        for queue, body in (("texts", "5"), ("values", '{"a":1}'), ("values", "not JSON")):
            await sbredis_bus.client.get_queue_sender(queue).send_messages(ServiceBusMessage(body))

        async def refused() -> bool:
            return len(got) == 2 and bool(await sbredis_bus.dead_lettered("values"))

        await eventually(refused)
    assert "5" in got
    assert {"a": 1} in got
    [dead] = await sbredis_bus.dead_lettered("values")
    assert (dead.dead_letter_error_description or "").endswith("Text needs a content type of text.")


async def test_a_member_of_a_str_enum_arrives_as_its_value(sbredis_bus: Bus) -> None:
    worker = Worker(sbredis_bus.url)
    got: list[object] = []

    @worker.queue("texts", create_if_missing=True)
    async def text(value: str) -> None:
        got.append(value)

    @worker.queue("raw", create_if_missing=True)
    async def raw(value: bytes) -> None:
        got.append(value)

    @worker.queue("phases", create_if_missing=True)
    async def phase(value: Phase) -> None:
        got.append(value)

    async with worker.running():
        for queue in ("texts", "raw", "phases"):
            await worker.send(queue, Phase.OPEN)
        await eventually(lambda: len(got) == 3)
    assert sorted(map(repr, got)) == ["'open'", "<Phase.OPEN: 'open'>", "b'open'"]


@pytest.mark.parametrize(
    ("state", "types"),
    [
        (Phase.OPEN, [Phase, Phase | bool, Any]),
        ("open", [str, Phase, Literal["open"]]),
        ({"a": 1}, [dict, Any, str | dict[str, int]]),
        (b"\xff", [bytes]),
    ],
)
def test_a_state_decodes_to_an_equal_value_for_the_types_that_can_have_it(state: object, types: list[Any]) -> None:
    stored = encoded_state(state)
    assert [decoded_state(stored, as_type) for as_type in types] == [state] * len(types)


async def test_the_state_of_a_session_is_read_as_it_was_set(sbredis_bus: Bus) -> None:
    worker, seen = await worker_of(sbredis_bus, "steps", requires_session=True), list[Any]()

    @worker.queue("steps", session_idle_timeout=0.1)
    async def step(new: Literal["open", "5"], context: Context) -> None:
        assert context.session is not None
        seen.append(
            (await context.session.get_state(Literal["open", "5"]), await context.session.get_state(str | None))
        )
        context.session.set_state(new)

    async with worker.running():
        for new in ("open", "5", "open"):
            await worker.send("steps", new, session_id="a")
        await eventually(lambda: len(seen) == 3)
    assert seen == [(None, None), ("open", "open"), ("5", "5")]


async def test_a_process_without_handlers_sends_a_value_that_the_handler_gets_as_it_was(sbredis_bus: Bus) -> None:
    worker = Worker(sbredis_bus.url)
    got: list[Any] = []

    @worker.queue("lines", create_if_missing=True, max_concurrent_calls=1)
    async def take(line: Line, context: Context) -> None:
        got.append((line, context.message.message_id, context.message.subject))

    async with worker.running(), ServiceBusClient(sbredis_bus.url) as client:
        await client.get_queue_sender("lines").send_messages(
            message_of(Line("cup", 2), message_id="m", subject="order.placed")
        )
        await eventually(lambda: got)
    assert got == [(Line("cup", 2), "m", "order.placed")]


@pytest.mark.parametrize("value", [*TRICKY, b"x", Phase.OPEN, 5, None, {"a": [1]}])
def test_a_message_of_a_value_is_the_one_that_a_worker_sends(value: Any) -> None:
    message = message_of(value, session_id="ann")
    decoded = decode_body(message.body, message.content_type, type(value))
    assert (decoded, message.session_id) == (value, "ann")


def test_a_message_of_a_value_takes_only_the_properties_of_messages() -> None:
    wrong: Any = {"sesion_id": "ann"}
    with pytest.raises(TypeError, match=r"message_of\(\) got an unexpected keyword argument 'sesion_id'"):
        message_of(5, **wrong)
    with pytest.raises(TypeError):
        message_of(object())
