"""Everything that a worker refuses: each refusal says where and what to write, and nothing was started."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import pytest

from sbredis import ServiceBusMessage
from sbredis.exceptions import WorkerSetupError
from sbredis.model import ServiceBusReceivedMessage
from sbredis.servers import LocalServer
from sbredis.testing import Bus
from sbredis.workers import Context, Depends, Idempotency, Property, Retries, Router, SyncContext, Worker
from sbredis.workers.supervising._supervisor import SETUP_FAILED
from tests.offenders import for_each
from tests.workers import process_contexts, process_handlers
from tests.workers.looking import send_to
from tools.repository import ROOT

Declare = Callable[[Worker], object]


def anything(value: Any) -> Any:
    """Return a value whose type no type checker knows."""
    return value


def get_tenant(tenant: Annotated[str, Property("tenant")]) -> str:
    return tenant


def get_entity(context: SyncContext) -> str:
    return context.entity


def logged(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*values: Any, **named: Any) -> Any:
        return function(*values, **named)

    return wrapper


class Logged:
    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self._function = function

    def __call__(self, text: str) -> Any:
        return self._function(text)


async def take() -> None: ...
async def one() -> None: ...
async def two() -> None: ...
async def a_coroutine(text: str) -> None: ...
async def with_sync_context(context: SyncContext) -> None: ...
def with_context(context: Context) -> None: ...
async def with_context_or_none(context: Context | None = None) -> None: ...
async def with_a_dependency(entity: Annotated[str, Depends(get_entity)]) -> None: ...
async def with_a_number(number: int) -> None: ...
async def with_a_wrapper(tenant: Annotated[str, Depends(logged(a_coroutine))]) -> None: ...
async def with_a_default(text: Any = Depends(get_tenant)) -> None: ...  # noqa: B008 -- it is the mistake
async def with_a_class(text: Annotated[str, Property]) -> None: ...
async def with_a_property(texts: list[str], tenant: Annotated[str, Depends(get_tenant)]) -> None: ...


async def generates() -> AsyncGenerator[int]:
    yield 1


def handles(entity: str, handler: Callable[..., Any] = take, **options: Any) -> Declare:
    """Return a function that declares a handler."""
    return lambda worker: worker.queue(entity, **options)(handler)


def all_of(*declared: Declare) -> Declare:
    """Return a function that declares all of this."""
    return lambda worker: [declare(worker) for declare in declared]


def not_decorated(worker: Worker) -> None:
    worker._settings = replace(worker._settings, lifespan=anything(a_coroutine))


in_process = functools.partial(handles, "q", execution="process")
cases: dict[str, Declare] = {
    "handles 'missing', which does not exist. Create it, or let the worker do it: create_if_missing=True.": handles(
        "missing"
    ),
    "handles 'topic', which is a topic: handle one of its subscriptions.": handles("topic"),
    "handles 'a b', which cannot exist: ": handles("a b"),
    "which cannot be created: ": handles("new", create_if_missing={"max_delivery_count": "many"}),
    "take asks for 4 attempts, but 'q' dead-letters a message after 3 deliveries": handles(
        "q", retries=Retries(attempts=4)
    ),
    "Only one handler can take the rest: give the other one subject= or when=.": all_of(
        handles("q", one), handles("Q", two)
    ),
    "take the subject 'a': ": all_of(handles("q", one, subject="a"), handles("q", two, subject="a")),
    "is a SyncContext, but the handler gets a Context, because it is a coroutine function.": handles(
        "q", with_sync_context
    ),
    "is a Context, but the handler gets a SyncContext, because it is a plain function.": handles("q", with_context),
    "because it runs in a process. Annotate it with SyncContext.": in_process(process_contexts.with_context),
    "but the handler, and so each of its dependencies, gets a Context, because it is a coroutine function.": handles(
        "q", with_a_dependency
    ),
    "its parameter 'context' may be None, but a handler always has a context. Leave out None.": handles(
        "q", with_context_or_none
    ),
    "its parameter 'number' must be a list, because the handler takes a batch": handles("q", with_a_number, batch=5),
    "could not find it: define it at the top of a module that can be imported.": in_process(lambda: None),
    "cannot have the message in its parameter 'message'": in_process(process_handlers.take_message),
    "runs in a process, which could not find what overrides its depe": all_of(
        in_process(process_handlers.greet), lambda worker: worker.override(process_handlers.get_name, lambda: "a fake")
    ),
    "because its no_retry cannot be pickled: ": in_process(
        process_handlers.work, no_retry=(type("LocalError", (Exception,), {}),)
    ),
    "is a generator function. A handler returns its outcome.": handles("q", generates),
    "a_coroutine is a plain function around a coroutine function, whose coroutine would never be awaited": handles(
        "q", logged(a_coroutine)
    ),
    "is a plain function around a coroutine function": handles("q", functools.partial(Logged(a_coroutine))),
    "its parameter 'tenant' is made by a_coroutine, a plain function around a coroutine function": handles(
        "q", with_a_wrapper
    ),
    "its parameter 'text' needs its mark in the annotation, as in Annotated[…, Depends(…)].": handles(
        "q", with_a_default
    ),
    "its parameter 'text' needs its mark in the annotation, as in Annotated[…, Property(…)].": handles(
        "q", with_a_class
    ),
    "one says batch=3 for 'q', and ": all_of(
        handles("q", one, subject="a", batch=3), handles("q", two, subject="b", batch=50)
    ),
    "give all of them the same batch_wait=.": all_of(
        handles("q", one, subject="a", batch=3, batch_wait=0.5), handles("q", two, batch=3)
    ),
    "the parameter 'tenant' of get_tenant is a property of one message, but the handler takes a batch.": handles(
        "q", with_a_property, batch=3
    ),
    "takes batches of 'q', for which nothing is fetched ahead: leave out prefetch=": all_of(
        lambda worker: worker.entity("q", prefetch=20), handles("q", batch=3)
    ),
    "waits up to 6 s for messages, but a lock lasts 10 s": handles("brief", batch=5, batch_wait=6),
    "takes batches of 'q', but Idempotency remembers a key for a single message: leave out batch=": handles(
        "q", batch=3, middleware=[Idempotency()]
    ),
    "handles 'new', which has sessions: nothing is fetched ahead of a session": handles(
        "new", create_if_missing={"requires_session": True}, prefetch=20
    ),
    "must return an asynchronous context manager, not coroutine: write an async def with a yield": not_decorated,
    "publishes to 'no name!', which cannot exist": handles("q", publishes="no name!"),
    "take publishes to 'results', which does not exist. Create it before the worker starts": handles(
        "q", publishes="results"
    ),
    "take publishes to 'topic/subscriptions/all', which is a subscription: name a queue or a topic.": handles(
        "q", publishes="topic/subscriptions/all"
    ),
    "take publishes to 'q/$DeadLetterQueue', which is a dead-letter queue: name a queue or a topic.": handles(
        "q", publishes="q/$DeadLetterQueue"
    ),
    "take replies to 'answers', which does not exist. Create it before the worker starts": handles(
        "q", replies=["fine", "answers"]
    ),
    "The worker has options for 'other', but no handler of it.": lambda worker: worker.entity("other", prefetch=3),
}
"""A part of the error that the worker raises, and what the program declares."""


@pytest.fixture
async def bus(sbredis_bus: Bus) -> Bus:
    """A bus with the entities that the cases name, and a message for the handler that each worker has."""
    await sbredis_bus.create_queue("q", max_delivery_count=3)
    await sbredis_bus.create_queue("fine")
    await sbredis_bus.create_queue("brief", lock_duration=timedelta(seconds=10))
    await sbredis_bus.create_topic("topic")
    await sbredis_bus.create_subscription("topic", "all")
    await send_to(sbredis_bus, "fine", ServiceBusMessage("a message"))
    return sbredis_bus


@for_each(("text", "declare"), cases.items())
async def test_a_worker_that_cannot_work_does_not_start(bus: Bus, text: str, declare: Declare) -> None:
    began: list[str] = []

    @asynccontextmanager
    async def lifespan(_: Worker) -> AsyncGenerator[None]:
        began.append("lifespan")
        try:
            yield
        finally:
            began.append("its end")

    worker = Worker(bus.url, lifespan=lifespan)

    @worker.queue("fine")
    async def note(text: str) -> None:
        began.append(text)

    declare(worker)
    with pytest.raises(WorkerSetupError) as refusal:
        async with worker.running():
            began.append("the worker")
    assert text in refusal.value.message
    assert began in ([], ["lifespan", "its end"])
    assert [message.delivery_count for message in await bus.active("fine")] == [0]
    assert not await bus.locked("fine")
    assert repr(worker).endswith("stopped>")


def test_a_dependency_of_both_kinds_of_handlers_names_both_contexts() -> None:
    def get_entity(context: Context | SyncContext) -> str:
        return context.entity

    router = Router()

    @router.queue("one")
    async def one(entity: Annotated[str, Depends(get_entity)]) -> None: ...

    @router.queue("two")
    def two(entity: Annotated[str, Depends(get_entity)], message: ServiceBusReceivedMessage) -> None: ...

    worker = Worker("redis://nowhere")
    worker.include(router)
    assert len(worker._setup().plans()) == 2


APP = """
from sbredis.workers import SyncContext, Worker

worker = Worker({url!r})

@worker.queue({queue!r}{options})
async def take(text: str{parameters}) -> None:
    print("called")
"""


@pytest.mark.long("it starts a process for each reason")
def test_the_program_prints_the_reason_and_no_traceback(tmp_path: Path, binary: str | None) -> None:
    apps: dict[str, tuple[dict[str, str], tuple[str, ...], str]] = {
        "unknown_entity": ({"queue": "missing"}, (), "which does not exist. Create it"),
        "wrong_context": ({"parameters": ", context: SyncContext"}, (), "Annotate it with Context."),
        "wrong_option": ({"options": ", speed=5"}, (), "unexpected keyword argument 'speed' at "),
        "other_queue": ({}, ("--queue", "other"), "The worker has no handler of 'other'. It handles: q."),
    }
    with LocalServer(binary=binary) as server:
        programs: dict[str, subprocess.Popen[str]] = {}
        for name, (given, arguments, _) in apps.items():
            values = {"queue": "q", "options": "", "parameters": "", **given}
            (tmp_path / f"{name}.py").write_text(APP.format(url=server.url, **values), "utf-8")
            programs[name] = subprocess.Popen(
                [sys.executable, "-m", "sbredis.workers", f"{name}:worker", *arguments],
                cwd=tmp_path,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        for name, program in programs.items():
            printed, complained = program.communicate(timeout=240)
            assert (name, program.returncode, printed) == (name, SETUP_FAILED, "")
            assert "sbredis: " in complained
            assert apps[name][2] in complained
            assert "Traceback" not in complained
