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


OPTIONS: dict[str, tuple[type[Exception], dict[str, Any]]] = {
    r"^queue\(\) got an unexpected keyword argument 'concurrency' \(did you mean 'max_concurrent_calls'\?\)$": (
        TypeError,
        {"concurrency": 5},
    ),
    r"^queue\(\) got an unexpected keyword argument 'zzz'$": (TypeError, {"zzz": 5}),
    "must be a whole number, not str": (TypeError, {"max_concurrent_calls": "5"}),
    "prefetch must be from 0 to 50000, not -1": (ValueError, {"prefetch": -1}),
    "unmatched must be 'dead-letter' or 'abandon', not 'x'": (ValueError, {"unmatched": "x"}),
    "must be a number of seconds, not str": (TypeError, {"session_idle_timeout": "1"}),
    "must be more than 0 seconds, not 0": (ValueError, {"max_session_time": 0}),
    "must be True or False, not str": (TypeError, {"create_if_missing": "yes"}),
    "subject must be a str, not int": (TypeError, {"subject": 5}),
    "when must be a function, not str": (TypeError, {"when": "x"}),
    "'async' or 'thread' or 'process', not 'x'": (ValueError, {"execution": "x"}),
    "batch must be from 1 to 10000, not 0": (ValueError, {"batch": 0}),
    "batch_wait must be from 0 seconds on, not -1": (ValueError, {"batch_wait": -1}),
    "leave out batch=": (WorkerSetupError, {"batch": 5, "execution": "process"}),
    "cannot have replies=: use context.send": (WorkerSetupError, {"batch": 5, "replies": True}),
    "cannot have publishes=: use context.send": (WorkerSetupError, {"batch": 5, "publishes": "q"}),
    "so it cannot have replies=": (WorkerSetupError, {"auto_complete": False, "replies": True}),
    "so it cannot have publishes=": (WorkerSetupError, {"auto_complete": False, "publishes": "q"}),
    "auto_complete must be True or False, not str": (TypeError, {"auto_complete": "no"}),
    "retries must be a Retries, not int": (TypeError, {"retries": 5}),
    "retries must be a Retries, not the class Retries": (TypeError, {"retries": Retries}),
    "no_retry must be a tuple of exception classes": (TypeError, {"no_retry": ValueError}),
    "publishes must be a str, not int": (TypeError, {"publishes": 5}),
    "publishes must not be empty": (ValueError, {"publishes": ""}),
    "replies must be True, False or a list of entities, not str": (TypeError, {"replies": "all"}),
    "each entity of replies must be a str, not int": (TypeError, {"replies": [5]}),
    "timeout must be more than 0 seconds, not nan": (ValueError, {"timeout": float("nan")}),
    "middleware must be a list of middleware, not CircuitBreaker": (TypeError, {"middleware": CircuitBreaker()}),
    r"write CircuitBreaker\(\) for an object of it": (TypeError, {"middleware": [CircuitBreaker]}),
    "middleware has a value of the type int, which cannot be called": (TypeError, {"middleware": [5]}),
    "each middleware is called with a context and a function that proceeds, but <function len_of": (
        TypeError,
        {"middleware": [len_of]},
    ),
    "when must be a plain function": (TypeError, {"when": a_coroutine}),
    "when is called with a message, but <function": (TypeError, {"when": lambda: True}),
    "timeout must be at most 31622400 seconds, not inf": (ValueError, {"timeout": math.inf}),
    "max_session_time must be at most": (ValueError, {"max_session_time": math.inf}),
    "batch_wait must be at most": (ValueError, {"batch": 5, "batch_wait": math.inf}),
    "the values are 'deadletter' and 'transferdeadletter'": (ValueError, {"sub_queue": "dead"}),
}
"""A part of the error, and the options that cause it."""


@pytest.mark.parametrize("text", OPTIONS)
def test_a_wrong_option_of_a_handler_is_refused_where_it_is_written(text: str) -> None:
    worker, (kind, given) = Worker("redis://nowhere"), OPTIONS[text]
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
