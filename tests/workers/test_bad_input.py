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
cases: list[tuple[str, str, Declare]] = []


def anything(value: Any) -> Any:
    """Return a value whose type no type checker knows."""
    return value


async def a_coroutine(text: str) -> None:
    assert text


def refused(text: str) -> Callable[[Declare], Declare]:
    """Collect a function that declares something wrong, with a part of the error that the worker raises."""

    def collect(declare: Declare) -> Declare:
        cases.append((declare.__name__, text, declare))
        return declare

    return collect


@refused("handles 'missing', which does not exist. Create it, or let the worker do it: create_if_missing=True.")
def unknown_entity(worker: Worker) -> None:
    @worker.queue("missing")
    async def take() -> None: ...


@refused("handles 'topic', which is a topic: handle one of its subscriptions.")
def a_topic(worker: Worker) -> None:
    @worker.queue("topic")
    async def take() -> None: ...


@refused("handles 'a b', which cannot exist: ")
def an_impossible_name(worker: Worker) -> None:
    @worker.queue("a b")
    async def take() -> None: ...


@refused("which cannot be created: ")
def an_impossible_property(worker: Worker) -> None:
    @worker.queue("new", create_if_missing={"max_delivery_count": "many"})
    async def take() -> None: ...


@refused("take asks for 4 attempts, but 'q' dead-letters a message after 3 deliveries")
def more_attempts_than_the_entity_allows(worker: Worker) -> None:
    @worker.queue("q", retries=Retries(attempts=4))
    async def take() -> None: ...


@refused("Only one handler can take the rest: give the other one subject= or when=.")
def two_handlers_without_a_condition(worker: Worker) -> None:
    @worker.queue("q")
    async def one() -> None: ...

    @worker.queue("Q")
    async def two() -> None: ...


@refused("take the subject 'a': ")
def two_handlers_with_the_same_subject(worker: Worker) -> None:
    @worker.queue("q", subject="a")
    async def one() -> None: ...

    @worker.queue("q", subject="a")
    async def two() -> None: ...


@refused(
    "its parameter 'context' is a SyncContext, but the handler gets a Context, because it is a coroutine function."
)
def a_coroutine_with_the_context_of_a_thread(worker: Worker) -> None:
    @worker.queue("q")
    async def take(context: SyncContext) -> None: ...


@refused("its parameter 'context' is a Context, but the handler gets a SyncContext, because it is a plain function.")
def a_plain_function_with_the_context_of_a_coroutine(worker: Worker) -> None:
    @worker.queue("q")
    def take(context: Context) -> None: ...


@refused("because it runs in a process. Annotate it with SyncContext.")
def a_process_with_a_context_that_cannot_cross(worker: Worker) -> None:
    worker.queue("q", execution="process")(process_contexts.with_context)


@refused("but the handler, and so each of its dependencies, gets a Context, because it is a coroutine function.")
def a_dependency_with_the_wrong_context(worker: Worker) -> None:
    def get_tenant(context: SyncContext) -> str:
        return context.entity

    @worker.queue("q")
    async def take(tenant: Annotated[str, Depends(get_tenant)]) -> None: ...


@refused("its parameter 'context' may be None, but a handler always has a context. Leave out None.")
def a_context_that_may_be_missing(worker: Worker) -> None:
    @worker.queue("q")
    async def take(context: Context | None = None) -> None: ...


@refused("its parameter 'number' must be a list, because the handler takes a batch")
def a_batch_that_is_no_list(worker: Worker) -> None:
    @worker.queue("q", batch=5)
    async def take(number: int) -> None: ...


@refused("could not find it: define it at the top of a module that can be imported.")
def an_unpicklable_handler(worker: Worker) -> None:
    @worker.queue("q", execution="process")
    def take() -> None: ...


@refused("cannot have the message in its parameter 'message'")
def a_message_in_a_process(worker: Worker) -> None:
    worker.queue("q", execution="process")(process_handlers.take_message)


@refused("runs in a process, which could not find what overrides its depe")
def an_override_that_a_process_cannot_find(worker: Worker) -> None:
    worker.queue("q", execution="process")(process_handlers.greet)
    worker.override(process_handlers.get_name, lambda: "a fake")


@refused("because its no_retry cannot be pickled: ")
def an_unpicklable_option(worker: Worker) -> None:
    class OwnError(Exception): ...

    worker.queue("q", execution="process", no_retry=(OwnError,))(process_handlers.work)


@refused("is a generator function. A handler returns its outcome.")
def a_generator(worker: Worker) -> None:
    @worker.queue("q")
    async def take() -> AsyncGenerator[int]:
        yield 1


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


@refused("take is a plain function around a coroutine function, whose coroutine would never be awaited")
def a_plain_wrapper_of_a_coroutine_function(worker: Worker) -> None:
    @worker.queue("q")
    @logged
    async def take(text: str) -> None: ...


@refused("is a plain function around a coroutine function")
def an_object_that_wraps_a_coroutine_function(worker: Worker) -> None:
    worker.queue("q")(functools.partial(Logged(a_coroutine)))


@refused("its parameter 'tenant' is made by a_coroutine, a plain function around a coroutine function")
def a_dependency_that_is_a_plain_wrapper_of_a_coroutine_function(worker: Worker) -> None:
    @worker.queue("q")
    async def take(tenant: Annotated[str, Depends(logged(a_coroutine))]) -> None: ...


@refused("its parameter 'text' needs its mark in the annotation, as in Annotated[…, Depends(…)].")
def a_mark_that_is_a_default(worker: Worker) -> None:
    @worker.queue("q")
    async def take(text: Any = Depends(get_tenant)) -> None: ...  # noqa: B008 -- it is the mistake


@refused("its parameter 'text' needs its mark in the annotation, as in Annotated[…, Property(…)].")
def a_mark_without_a_name(worker: Worker) -> None:
    @worker.queue("q")
    async def take(text: Annotated[str, Property]) -> None: ...


@refused("one says batch=3 for 'q', and ")
def batches_of_two_sizes(worker: Worker) -> None:
    @worker.queue("q", subject="a", batch=3)
    async def one() -> None: ...

    @worker.queue("q", subject="b", batch=50)
    async def two() -> None: ...


@refused("give all of them the same batch_wait=.")
def batches_that_wait_for_two_times(worker: Worker) -> None:
    @worker.queue("q", subject="a", batch=3, batch_wait=0.5)
    async def one() -> None: ...

    @worker.queue("q", batch=3)
    async def two() -> None: ...


def get_tenant(tenant: Annotated[str, Property("tenant")]) -> str:
    return tenant


@refused("the parameter 'tenant' of get_tenant is a property of one message, but the handler takes a batch.")
def a_property_in_a_dependency_of_a_batch(worker: Worker) -> None:
    @worker.queue("q", batch=3)
    async def take(texts: list[str], tenant: Annotated[str, Depends(get_tenant)]) -> None: ...


@refused("takes batches of 'q', for which nothing is fetched ahead: leave out prefetch=")
def a_prefetch_for_batches(worker: Worker) -> None:
    worker.entity("q", prefetch=20)

    @worker.queue("q", batch=3)
    async def take() -> None: ...


@refused("waits up to 6 s for messages, but a lock lasts 10 s")
def a_batch_that_would_outwait_its_lock(worker: Worker) -> None:
    @worker.queue("brief", batch=5, batch_wait=6)
    async def take() -> None: ...


@refused("takes batches of 'q', but Idempotency remembers a key for a single message: leave out batch=")
def one_key_for_a_batch(worker: Worker) -> None:
    @worker.queue("q", batch=3, middleware=[Idempotency()])
    async def take() -> None: ...


@refused("handles 'new', which has sessions: nothing is fetched ahead of a session")
def a_prefetch_for_sessions(worker: Worker) -> None:
    @worker.queue("new", create_if_missing={"requires_session": True}, prefetch=20)
    async def take() -> None: ...


@refused("lifespan must return an asynchronous context manager, not coroutine: write an async def with a yield")
def a_lifespan_that_is_not_decorated(worker: Worker) -> None:
    worker._settings = replace(worker._settings, lifespan=anything(a_coroutine))


@refused("publishes to 'no name!', which cannot exist")
def results_for_a_name_that_cannot_be(worker: Worker) -> None:
    worker.queue("q", publishes="no name!")(a_coroutine)


@refused("a_coroutine publishes to 'results', which does not exist. Create it before the worker starts")
def results_for_a_queue_that_does_not_exist(worker: Worker) -> None:
    worker.queue("q", publishes="results")(a_coroutine)


@refused("a_coroutine publishes to 'topic/subscriptions/all', which is a subscription: name a queue or a topic.")
def results_for_a_subscription(worker: Worker) -> None:
    worker.queue("q", publishes="topic/subscriptions/all")(a_coroutine)


@refused("a_coroutine publishes to 'q/$DeadLetterQueue', which is a dead-letter queue: name a queue or a topic.")
def results_for_a_dead_letter_queue(worker: Worker) -> None:
    worker.queue("q", publishes="q/$DeadLetterQueue")(a_coroutine)


@refused("a_coroutine replies to 'answers', which does not exist. Create it before the worker starts")
def replies_to_a_queue_that_does_not_exist(worker: Worker) -> None:
    worker.queue("q", replies=["fine", "answers"])(a_coroutine)


@refused("The worker has options for 'other', but no handler of it.")
def options_of_an_entity_without_handlers(worker: Worker) -> None:
    worker.entity("other", prefetch=3)


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


@for_each(("text", "declare"), [pytest.param(text, declare, id=name) for name, text, declare in cases])
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
