"""Options and calls that are refused where they are written."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import pytest

from sbredis import ServiceBusMessage
from sbredis.exceptions import WorkerSetupError
from sbredis.testing import handle_sync
from sbredis.workers import (
    CircuitBreaker,
    Complete,
    Depends,
    Idempotency,
    Logging,
    Property,
    Retries,
    SyncContext,
    Worker,
)
from sbredis.workers.declaring._worker_options import Setup, WorkerSettings

PASSWORD = ("user", "word")


class Order: ...


def anything(value: Any) -> Any:
    """Return a value whose type no type checker knows."""
    return value


async def a_coroutine(text: str) -> None:
    assert text


def len_of(text: str) -> int:
    return len(text)


options: dict[str, tuple[type[Exception], str, dict[str, Any]]] = {
    "unknown": (
        TypeError,
        r"^queue\(\) got an unexpected keyword argument 'concurrency' \(did you mean 'max_concurrent_calls'\?\)$",
        {"concurrency": 5},
    ),
    "unlike any": (TypeError, r"^queue\(\) got an unexpected keyword argument 'zzz'$", {"zzz": 5}),
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
    "replies to batches": (WorkerSetupError, "cannot have replies=: use context.send", {"batch": 5, "replies": True}),
    "results of batches": (
        WorkerSetupError,
        "cannot have publishes=: use context.send",
        {"batch": 5, "publishes": "q"},
    ),
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


def test_a_wrong_call_of_a_context_is_refused_where_it_is_written() -> None:
    def place(context: SyncContext) -> None:
        calls: list[tuple[type[Exception], str, Callable[[], object]]] = [
            (ValueError, "the name of a queue or topic must not be empty", lambda: context.send("", b"")),
            (TypeError, "the name of a queue or topic must be a str", lambda: context.send(anything(None), b"")),
            (ValueError, "window must be more than 0 seconds, not -1", lambda: context.once("key", -1)),
            (TypeError, "window must be a number of seconds, not str", lambda: context.once("key", anything("day"))),
        ]
        for kind, text, call in calls:
            with pytest.raises(kind, match=text):
                call()

    handle_sync(place, raise_errors=True)


@pytest.mark.parametrize(
    ("kind", "text", "given"),
    [
        (
            TypeError,
            r"^Worker\(\) got an unexpected keyword argument 'shutdown_time' \(did you mean 'shutdown_timeout'\?\)$",
            {"shutdown_time": 5},
        ),
        (TypeError, "namespace must be a str, not int", {"namespace": 5}),
        (ValueError, "max_concurrent_calls must be from 1 to 10000, not 0", {"max_concurrent_calls": 0}),
        (TypeError, "retries must be a Retries, not int", {"retries": 5}),
        (TypeError, "middleware must be a list of middleware, not int", {"middleware": 5}),
        (TypeError, "maintenance must be True or False, not str", {"maintenance": "no"}),
        (TypeError, "shutdown_timeout must be a number of seconds", {"shutdown_timeout": "5"}),
        (ValueError, "shutdown_timeout must be at most 31622400 seconds", {"shutdown_timeout": math.inf}),
        (ValueError, "stuck_after must be from 1 second on, not 0.5", {"stuck_after": 0.5}),
        (ValueError, "threads must be from 1 to 10000, not 0", {"threads": 0}),
        (ValueError, "renewal must be 'thread' or 'process', not 'fork'", {"renewal": "fork"}),
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
        (TypeError, "the connection string must be a str, not int", lambda: Worker(anything(5))),
        (TypeError, r"@queue needs the name of its entity: write @….queue\('NAME'\)", lambda: worker.queue(print)),
        (TypeError, "the name of a queue must be a str, not int", lambda: worker.queue(5)),
        (ValueError, "the name of a subscription must not be empty", lambda: worker.subscription("t", "")),
        (TypeError, r"@queue\(…\) decorates a function, not int", lambda: worker.queue("q")(5)),
        (TypeError, "include.. takes a Router, not int", lambda: worker.include(5)),
        (ValueError, "include.. takes another router", lambda: worker.include(worker)),
        (
            TypeError,
            r"^entity\(\) got an unexpected keyword argument 'retry' \(did you mean 'retries'\?\)$",
            lambda: worker.entity("q", retry=Retries()),
        ),
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
        (TypeError, "@cron needs the times of its schedule", lambda: worker.cron(print)),
        (TypeError, "positional argument", lambda: anything(Complete)("a result")),
        (WorkerSetupError, "The worker has no handlers", lambda: asyncio.run(Worker("memory://nothing").run())),
        (
            TypeError,
            "The message has properties of its own",
            lambda: asyncio.run(worker.send("q", ServiceBusMessage(b""), subject="a")),
        ),
    ]
    for kind, text, call in calls:
        with pytest.raises(kind, match=text):
            call()
    assert repr(worker) == "<Worker with 0 handlers, stopped>"


@pytest.mark.parametrize(
    ("own", "url", "namespace", "expected"),
    [
        # nothing is replaced
        (("redis://a", "n", PASSWORD), None, None, ("redis://a", "n", PASSWORD, False)),
        (("redis://a", "n", PASSWORD), "redis://a", None, ("redis://a", "n", PASSWORD, False)),
        (("redis://a", "n", None), "redis://a", "n", ("redis://a", "n", None, False)),
        ((None, None, None), "redis://b", "m", ("redis://b", "m", None, False)),
        # the connection string, without a namespace and credentials of its own
        (("redis://a", "n", PASSWORD), "redis://b", None, ("redis://b", "n", PASSWORD, True)),
        (("redis://a", None, None), "redis://b", None, ("redis://b", None, None, True)),
        # with them
        (("redis://a", "n", PASSWORD), "redis://b?namespace=m", None, ("redis://b?namespace=m", None, PASSWORD, True)),
        (("redis://a", "n", PASSWORD), "redis://u:p@b", None, ("redis://u:p@b", "n", None, True)),
        (("redis://a", "n", PASSWORD), "redis://b?tls_ca=x@y", None, ("redis://b?tls_ca=x@y", "n", PASSWORD, True)),
        # the namespace
        (("redis://a", None, PASSWORD), None, "m", ("redis://a", "m", PASSWORD, True)),
        ((None, "n", None), "redis://b", "m", ("redis://b", "m", None, True)),
    ],
)
def test_what_the_command_names_takes_the_place_of_what_the_worker_names(
    own: tuple[Any, Any, Any], url: str | None, namespace: str | None, expected: tuple[Any, ...]
) -> None:
    settings = WorkerSettings(namespace=own[1], credential=own[2])
    setup = Setup(url=own[0], settings=settings, declared=(), by_path={}, overrides={}).with_server(url, namespace)
    assert (setup.url, setup.settings.namespace, setup.settings.credential, setup.replaces_own) == expected
