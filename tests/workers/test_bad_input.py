"""Everything that a worker refuses: each refusal says where and what to write, and nothing was started."""

from __future__ import annotations

import asyncio
import functools
import math
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import pytest

from sbredis import ServiceBusMessage
from sbredis.exceptions import WorkerSetupError
from sbredis.model import ServiceBusReceivedMessage
from sbredis.servers import LocalServer
from sbredis.testing import Bus
from sbredis.workers import (
    CircuitBreaker,
    Context,
    Depends,
    Idempotency,
    Logging,
    Property,
    Retries,
    Router,
    SyncContext,
    Worker,
)
from sbredis.workers.supervising._supervisor import SETUP_FAILED
from tests.workers import process_contexts, process_handlers
from tools.repository import ROOT

pytestmark = pytest.mark.anyio
Declare = Callable[[Worker], object]
cases: list[tuple[str, str, Declare]] = []


class Order: ...


def anything(value: Any) -> Any:
    """Return a value whose type no type checker knows."""
    return value


async def a_coroutine(text: str) -> None:
    assert text


def len_of(text: str) -> int:
    return len(text)


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


@refused("it has 2 parameters for the body, 'one' and 'two'. Mark the others")
def two_bodies(worker: Worker) -> None:
    @worker.queue("q")
    async def take(one: int, two: int) -> None: ...


@refused("its parameter 'event' cannot be the body: Event is not a type that bodies can have.")
def a_body_that_cannot_be(worker: Worker) -> None:
    @worker.queue("q")
    async def take(event: asyncio.Event) -> None: ...


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


@refused("The worker has options for 'other', but no handler of it.")
def options_of_an_entity_without_handlers(worker: Worker) -> None:
    worker.entity("other", prefetch=3)


@pytest.mark.slow
@pytest.mark.parametrize(("text", "declare"), [each[1:] for each in cases], ids=[each[0] for each in cases])
async def test_a_worker_that_cannot_work_does_not_start(sbredis_bus: Bus, text: str, declare: Declare) -> None:
    began: list[str] = []

    @asynccontextmanager
    async def lifespan(_: Worker) -> AsyncGenerator[None]:
        began.append("lifespan")
        try:
            yield
        finally:
            began.append("its end")

    await sbredis_bus.create_queue("q", max_delivery_count=3)
    await sbredis_bus.create_queue("fine")
    await sbredis_bus.create_topic("topic")
    worker = Worker(sbredis_bus.url, lifespan=lifespan)

    @worker.queue("fine")
    async def note(text: str) -> None:
        began.append(text)

    async with sbredis_bus.client.get_queue_sender("fine") as sender:
        await sender.send_messages(ServiceBusMessage("a message"))
    declare(worker)
    with pytest.raises(WorkerSetupError) as refusal:
        async with worker.running():
            began.append("the worker")
    assert text in refusal.value.message
    assert began in ([], ["lifespan", "its end"])
    assert [message.delivery_count for message in await sbredis_bus.active("fine")] == [0]
    assert not await sbredis_bus.locked("fine")
    assert repr(worker).endswith("stopped>")


options: dict[str, tuple[type[Exception], str, dict[str, Any]]] = {
    "unknown": (TypeError, r"queue\(\) got an unexpected keyword argument 'concurrency'", {"concurrency": 5}),
    "max_concurrent_calls": (TypeError, "must be a whole number, not str", {"max_concurrent_calls": "5"}),
    "prefetch": (ValueError, "prefetch must be from 0 to 50000, not -1", {"prefetch": -1}),
    "unmatched": (ValueError, "unmatched must be 'dead-letter' or 'abandon', not 'x'", {"unmatched": "x"}),
    "session_idle_timeout": (TypeError, "must be a number of seconds, not str", {"session_idle_timeout": "1"}),
    "max_session_time": (ValueError, "must be more than 0 seconds, not 0", {"max_session_time": 0}),
    "create_if_missing": (TypeError, "must be True or False, not str", {"create_if_missing": "yes"}),
    "subject": (TypeError, "subject must be a str, not int", {"subject": 5}),
    "when": (TypeError, "when must be a function, not str", {"when": "x"}),
    "execution": (ValueError, "'async' or 'thread' or 'process', not 'x'", {"execution": "x"}),
    "batch": (ValueError, "batch must be from 1 to 10000, not 0", {"batch": 0}),
    "batch_wait": (ValueError, "batch_wait must be from 0 seconds on, not -1", {"batch_wait": -1}),
    "batch in a process": (WorkerSetupError, "leave out batch=", {"batch": 5, "execution": "process"}),
    "replies without completions": (
        WorkerSetupError,
        "so it cannot have replies=",
        {"auto_complete": False, "replies": True},
    ),
    "results without completions": (
        WorkerSetupError,
        "so it cannot have publishes=",
        {"auto_complete": False, "publishes": "q"},
    ),
    "auto_complete": (TypeError, "auto_complete must be True or False, not str", {"auto_complete": "no"}),
    "retries": (TypeError, "retries must be a Retries, not int", {"retries": 5}),
    "retries as a class": (TypeError, "retries must be a Retries, not the class Retries", {"retries": Retries}),
    "no_retry": (TypeError, "no_retry must be a tuple of exception classes", {"no_retry": ValueError}),
    "publishes": (TypeError, "publishes must be a str, not int", {"publishes": 5}),
    "publishes nowhere": (ValueError, "publishes must not be empty", {"publishes": ""}),
    "replies": (TypeError, "replies must be True, False or a list of entities, not str", {"replies": "all"}),
    "replies to numbers": (TypeError, "each entity of replies must be a str, not int", {"replies": [5]}),
    "timeout": (ValueError, "timeout must be more than 0 seconds, not nan", {"timeout": float("nan")}),
    "middleware": (
        TypeError,
        "middleware must be a list of middleware, not CircuitBreaker",
        {"middleware": CircuitBreaker()},
    ),
    "middleware as a class": (
        TypeError,
        r"write CircuitBreaker\(\) for an object of it",
        {"middleware": [CircuitBreaker]},
    ),
    "middleware of numbers": (
        TypeError,
        "middleware has a value of the type int, which cannot be called",
        {"middleware": [5]},
    ),
    "middleware of one parameter": (
        TypeError,
        "each middleware is called with a context and a function that proceeds, but <function len_of",
        {"middleware": [len_of]},
    ),
    "when as a coroutine": (TypeError, "when must be a plain function", {"when": a_coroutine}),
    "when without a parameter": (TypeError, "when is called with a message, but <function", {"when": lambda: True}),
    "a time without an end": (ValueError, "timeout must be at most 31622400 seconds, not inf", {"timeout": math.inf}),
    "a session without an end": (ValueError, "max_session_time must be at most", {"max_session_time": math.inf}),
    "a wait without an end": (ValueError, "batch_wait must be at most", {"batch": 5, "batch_wait": math.inf}),
    "sub_queue": (ValueError, "the values are 'deadletter' and 'transferdeadletter'", {"sub_queue": "dead"}),
}


@pytest.mark.parametrize(("kind", "text", "given"), options.values(), ids=list(options))
def test_a_wrong_option_of_a_handler_is_refused_where_it_is_written(
    kind: type[Exception], text: str, given: dict[str, Any]
) -> None:
    worker = Worker("redis://nowhere")
    with pytest.raises(kind, match=text):
        worker.queue("q", **given)
    assert repr(worker) == "<Worker with 0 handlers, stopped>"


@pytest.mark.parametrize(
    ("kind", "text", "given"),
    [
        (TypeError, r"Worker\(\) got an unexpected keyword argument 'concurrency'", {"concurrency": 5}),
        (TypeError, "namespace must be a str, not int", {"namespace": 5}),
        (ValueError, "max_concurrent_calls must be from 1 to 10000, not 0", {"max_concurrent_calls": 0}),
        (TypeError, "retries must be a Retries, not int", {"retries": 5}),
        (TypeError, "middleware must be a list of middleware, not int", {"middleware": 5}),
        (TypeError, "maintenance must be True or False, not str", {"maintenance": "no"}),
        (TypeError, "shutdown_timeout must be a number of seconds", {"shutdown_timeout": "5"}),
        (ValueError, "shutdown_timeout must be at most 31622400 seconds", {"shutdown_timeout": math.inf}),
        (ValueError, "stuck_after must be from 1 second on, not 0.5", {"stuck_after": 0.5}),
        (ValueError, "threads must be from 1 to 10000, not 0", {"threads": 0}),
        (TypeError, "http must be a str, not int", {"http": 8080}),
        (ValueError, "the address of the HTTP port must be HOST:PORT or PORT, not 'localhost'", {"http": "localhost"}),
        (TypeError, "lifespan must be a function, not int", {"lifespan": 5}),
        (TypeError, "lifespan is called with the worker, but <function", {"lifespan": lambda: None}),
        (TypeError, "on_error must be a function, not str", {"on_error": "log"}),
        (TypeError, "on_error must be a plain function", {"on_error": a_coroutine}),
        (TypeError, "on_error is called with a message and an error, but <function", {"on_error": len_of}),
    ],
)
def test_a_wrong_option_of_a_worker_is_refused(kind: type[Exception], text: str, given: dict[str, Any]) -> None:
    with pytest.raises(kind, match=text):
        Worker("redis://nowhere", **given)


def test_other_wrong_calls_are_refused() -> None:
    worker: Any = Worker("redis://nowhere")
    calls: list[tuple[type[Exception], str, Callable[[], object]]] = [
        (TypeError, r"@queue needs the name of its entity: write @….queue\('NAME'\)", lambda: worker.queue(print)),
        (TypeError, "the name of a queue must be a str, not int", lambda: worker.queue(5)),
        (ValueError, "the name of a subscription must not be empty", lambda: worker.subscription("t", "")),
        (TypeError, r"@queue\(…\) decorates a function, not int", lambda: worker.queue("q")(5)),
        (TypeError, "include.. takes a Router, not int", lambda: worker.include(5)),
        (ValueError, "include.. takes another router", lambda: worker.include(worker)),
        (TypeError, r"entity\(\) got an unexpected keyword argument 'speed'", lambda: worker.entity("q", speed=5)),
        (TypeError, "prefetch must be a whole number, not str", lambda: worker.entity("q", prefetch="5")),
        (TypeError, "retries must be a Retries, not int", lambda: worker.entity("q", retries=5)),
        (TypeError, r"@queue\(…\) decorates a function, not the class Order", lambda: worker.queue("q")(Order)),
        (TypeError, r"@cron\(…\) decorates a function, not int", lambda: worker.cron("@daily")(5)),
        (TypeError, "queue must be a str, not int", lambda: worker.cron("@daily", queue=5)),
        (TypeError, "the path of an entity must be a str, not int", lambda: worker.entity(5)),
        (TypeError, "the name of a property must be a str, not int", lambda: Property(anything(5))),
        (ValueError, "scope must be 'app' or 'session' or 'message'", lambda: Depends(print, anything([]))),
        (TypeError, "window must be a number of seconds, not str", lambda: Idempotency(anything("day"))),
        (ValueError, "window must be at most 31622400 seconds, not inf", lambda: Idempotency(math.inf)),
        (TypeError, "key must be a function, not int", lambda: Idempotency(key=anything(5))),
        (TypeError, "key must be a plain function", lambda: Idempotency(key=anything(a_coroutine))),
        (TypeError, "level must be a whole number, not str", lambda: Logging(level=anything("INFO"))),
        (TypeError, "logger must be a str or a Logger, not int", lambda: Logging(logger=anything(5))),
        (TypeError, "first_delay must be a number of seconds, not str", lambda: Retries(first_delay=anything("1"))),
        (ValueError, "longest_delay must be at most 31536000 seconds", lambda: Retries(longest_delay=math.inf)),
        (TypeError, "factor must be a number, not str", lambda: Retries(factor=anything("2"))),
        (TypeError, "jitter must be True or False, not NoneType", lambda: Retries(jitter=anything(None))),
        (TypeError, "dependency must be a function, not int", lambda: worker.override(5, print)),
        (TypeError, "replacement must be a function, not int", lambda: worker.override(print, 5)),
    ]
    for kind, text, call in calls:
        with pytest.raises(kind, match=text):
            call()
    assert repr(worker) == "<Worker with 0 handlers, stopped>"


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


@pytest.mark.slow
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
