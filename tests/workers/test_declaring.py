"""Tests of what a worker is told before it runs: outcomes, retries, conditions, and the parameters of handlers."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbredis.exceptions import WorkerSetupError
from sbredis.model import ServiceBusReceivedMessage
from sbredis.workers import (
    Abandon,
    Complete,
    Context,
    DeadLetter,
    Defer,
    Depends,
    Outcome,
    Property,
    Retries,
    Router,
    Worker,
)
from sbredis.workers.declaring._conditions import Chooser, HandlerCondition
from sbredis.workers.declaring._handlers import Defaults, EntityPlan, plan_of
from sbredis.workers.declaring._outcomes import outcome_in
from sbredis.workers.declaring._retries import after_failure
from sbredis.workers.declaring._signatures import Signature, read_signature


@dataclass
class Order:
    id: int


class Database: ...


def get_database() -> Database:
    return Database()


# -- outcomes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (DeadLetter("bad"), DeadLetter("bad")),
        (ExceptionGroup("", [Defer()]), Defer()),
        (ExceptionGroup("", [ExceptionGroup("", [Abandon(5), Defer()])]), Abandon(5)),
        (ExceptionGroup("", [Defer(), ValueError()]), None),
        (ValueError(), None),
    ],
)
def test_the_outcome_that_an_exception_carries(error: BaseException, outcome: Outcome | None) -> None:
    assert outcome_in(error) == outcome


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: Abandon(-1), ValueError),
        (lambda: Abandon(True), TypeError),
        (lambda: Abandon("5"), TypeError),  # type: ignore[arg-type]
        (lambda: DeadLetter(5), TypeError),  # type: ignore[arg-type]
    ],
)
def test_an_outcome_refuses_what_it_cannot_mean(make: Callable[[], object], error: type[Exception]) -> None:
    with pytest.raises(error):
        make()


# -- retries -----------------------------------------------------------------------------------------------------------


@given(
    attempt=st.integers(1, 10**6),
    first=st.floats(0, 1000),
    more=st.floats(0, 1000),
    factor=st.floats(1, 100),
    drawn=st.floats(0, 1),
)
def test_a_delay_grows_up_to_the_longest_and_jitter_takes_a_part_of_it(
    attempt: int, first: float, more: float, factor: float, drawn: float
) -> None:
    retries = Retries(first_delay=first, longest_delay=first + more, factor=factor, jitter=False)
    delay = retries.delay(attempt, lambda: drawn)
    assert first * (1 - 1e-9) <= delay <= first + more
    assert retries.delay(attempt + 1, lambda: drawn) >= delay
    jittered = Retries(first_delay=first, longest_delay=first + more, factor=factor)
    assert jittered.delay(attempt, lambda: drawn) == delay * drawn


def test_the_delays_of_the_first_attempts() -> None:
    assert [Retries(jitter=False).delay(attempt, lambda: 1) for attempt in range(1, 11)] == [
        *(1, 2, 4, 8, 16, 32, 64, 128, 256, 300)
    ]


@pytest.mark.parametrize(
    ("error", "attempt", "retries", "outcome"),
    [
        (ValueError("no"), 1, Retries(jitter=False), Abandon(1)),
        (ValueError("no"), 9, Retries(jitter=False), Abandon(256)),
        (ValueError("no"), 10, Retries(jitter=False), DeadLetter("ValueError", "no")),
        (ValueError("no"), 11, Retries(jitter=False), DeadLetter("ValueError", "no")),
        (ValueError("no"), 3, Retries(attempts=3), DeadLetter("ValueError", "no")),
        (KeyError("no"), 1, Retries(no_retry=(LookupError,)), DeadLetter("KeyError", "'no'")),
        (
            ExceptionGroup("both", [KeyError(1), KeyError(2)]),
            1,
            Retries(no_retry=(LookupError,)),
            DeadLetter("ExceptionGroup", "both (2 sub-exceptions)"),
        ),
        (
            ExceptionGroup("both", [KeyError(1), OSError()]),
            1,
            Retries(no_retry=(LookupError,), jitter=False),
            Abandon(1),
        ),
        (ValueError("x" * 5000), 10, Retries(), DeadLetter("ValueError", "x" * 1023 + "…")),
    ],
)
def test_what_becomes_of_a_message_whose_handler_failed(
    error: Exception, attempt: int, retries: Retries, outcome: Outcome
) -> None:
    assert after_failure(error, attempt, 10, retries, lambda: 1) == outcome


def test_a_dead_letter_whose_handler_failed_only_comes_again() -> None:
    for attempt in (1, 99):  # it died at this attempt, and further ones are not counted
        assert after_failure(ValueError(), attempt, 10, Retries(jitter=False), lambda: 1, dead=True) == Abandon(300)


@pytest.mark.parametrize("kind", [Abandon, DeadLetter, Defer])
def test_an_outcome_with_properties_that_no_message_can_have_is_refused(kind: Any) -> None:
    with pytest.raises(TypeError, match="application property 'a' is of the type dict; it must be text, bytes"):
        kind(properties_to_modify={"a": {"b": 1}})


@pytest.mark.parametrize(
    "given",
    [
        {"first_delay": -1},
        {"first_delay": 400},
        {"factor": 0.5},
        {"attempts": 0},
        {"attempts": True},
        {"no_retry": ValueError},
        {"no_retry": (KeyboardInterrupt,)},
        {"no_retry": ("ValueError",)},
    ],
)
def test_retries_that_make_no_sense_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        Retries(**given)


# -- conditions --------------------------------------------------------------------------------------------------------


class Message:
    def __init__(self, subject: str | None, **properties: object) -> None:
        self.subject = subject
        self.application_properties = properties


def chosen(handlers: list[tuple[HandlerCondition, str]], message: Message) -> str | None:
    chooser = Chooser("orders", [(name, condition, name) for condition, name in handlers])
    given: Any = message
    return chooser.choose(given)


def test_the_first_handler_whose_condition_holds_takes_the_message() -> None:
    big = HandlerCondition(when=lambda message: bool((message.application_properties or {}).get("big")))
    handlers = [
        (HandlerCondition("paid"), "paid"),
        (big, "big"),
        (HandlerCondition(), "rest"),
        (HandlerCondition("sent"), "sent"),
    ]
    assert chosen(handlers, Message("paid", big=True)) == "paid"
    assert chosen(handlers, Message("sent", big=True)) == "big"
    assert chosen(handlers, Message("sent")) == "sent"
    assert chosen(handlers, Message("other")) == "rest"
    assert chosen(handlers, Message(None)) == "rest"


def test_subjects_alone_choose_like_all_conditions() -> None:
    handlers = [(HandlerCondition("paid"), "paid"), (HandlerCondition("sent"), "sent")]
    assert [chosen(handlers, Message(subject)) for subject in ("paid", "sent", "other", None)] == [
        *("paid", "sent", None, None)
    ]


def test_a_subject_and_a_function_must_both_hold() -> None:
    handlers = [(HandlerCondition("paid", lambda message: "x" in (message.application_properties or {})), "x")]
    assert [chosen(handlers, message) for message in (Message("paid", x=1), Message("paid"), Message("x", x=1))] == [
        *("x", None, None)
    ]


# -- parameters --------------------------------------------------------------------------------------------------------


def kinds(signature: Signature) -> dict[str, str]:
    return {each.name: each.kind for each in signature.parameters}


def test_where_the_values_of_parameters_come_from() -> None:
    async def handle(
        order: Order,
        message: ServiceBusReceivedMessage,
        context: Context,
        database: Annotated[Database, Depends(get_database)],
        *,
        tenant: Annotated[str | None, Property("tenant")] = None,
    ) -> None: ...

    signature = read_signature(handle)
    assert kinds(signature) == {
        "order": "body",
        "message": "message",
        "context": "context",
        "database": "dependency",
        "tenant": "property",
    }
    assert signature.body is not None
    assert signature.body.type is Order
    assert signature.injects
    assert signature.wants_context


def test_a_handler_needs_no_parameters_and_a_parameter_needs_no_annotation() -> None:
    async def nothing() -> None: ...
    async def bare(body) -> None: ...  # type: ignore[no-untyped-def] # noqa: ANN001

    assert read_signature(nothing).parameters == ()
    signature = read_signature(bare)
    assert signature.body is not None
    assert signature.body.type is Any


def test_partial_functions_methods_and_callable_objects_are_handlers() -> None:
    class Handler:
        def __call__(self, order: Order) -> None: ...
        def method(self, order: Order) -> None: ...

    def function(order: Order, extra: int) -> None: ...

    for handler in (Handler(), Handler().method, partial(function, extra=5)):
        body = read_signature(handler).body
        assert body is not None
        assert body.type is Order


def test_a_batch_takes_lists() -> None:
    async def handle(orders: list[Order], messages: list[ServiceBusReceivedMessage]) -> None: ...

    signature = read_signature(handle, batch=True)
    assert kinds(signature) == {"orders": "body", "messages": "message"}
    assert signature.body is not None
    assert signature.body.type is Order


def test_a_dependency_may_have_dependencies_and_is_replaced_by_its_override() -> None:
    def get_url(tenant: Annotated[str, Property("tenant")]) -> str:
        return tenant

    async def get_session(url: Annotated[str, Depends(get_url)]) -> str:
        return url

    def fake() -> Generator[str]:
        yield "fake"

    async def handle(one: Annotated[str, Depends(get_session)], two: Annotated[str, Depends(get_url)]) -> None: ...

    one, two = (each.dependency for each in read_signature(handle, names=locals()).parameters)
    assert one is not None
    assert two is not None
    assert (one.call, one.how, one.parameters[0].dependency) == (get_session, "coroutine", two)
    assert two.how == "call"
    replaced = read_signature(handle, overrides={get_session: fake}, names=locals()).parameters[0].dependency
    assert replaced is not None
    assert (replaced.call, replaced.how, replaced.parameters) == (fake, "generator", ())


def needs_itself(value: Annotated[int, Depends(lambda: 0)]) -> int:
    return value


needs_itself.__annotations__["value"] = Annotated[int, Depends(needs_itself)]


def two_bodies(order: Order, other: Order) -> None: ...
def unknown(order: NotThere) -> None: ...  # type: ignore[name-defined] # noqa: F821
def not_a_body(order: complex) -> None: ...
def anything(*orders: Order) -> None: ...
def by_position(order: Order, /) -> None: ...
def marked_twice(value: Annotated[str, Property("a"), Property("b")]) -> None: ...
def odd_property(value: Annotated[dict[str, str], Property("a")]) -> None: ...
def circle(value: Annotated[int, Depends(needs_itself)]) -> None: ...


def of_message(message: ServiceBusReceivedMessage) -> int:
    return message.delivery_count


def narrow(value: Annotated[int, Depends(of_message)]) -> int:
    return value


def unmarked(value: str) -> str:
    return value


def wide_message(value: Annotated[int, Depends(of_message, scope="app")]) -> None: ...
def wide_needs_narrow(value: Annotated[int, Depends(narrow, scope="session")]) -> None: ...
def needs_unmarked(value: Annotated[str, Depends(unmarked)]) -> None: ...


@pytest.mark.parametrize(
    ("handler", "said"),
    [
        (two_bodies, "it has 2 parameters for the body, 'order' and 'other'"),
        (unknown, "the annotation 'NotThere' is not defined in the module of unknown"),
        (not_a_body, "its parameter 'order' cannot be the body: complex is not a type"),
        (anything, "its parameter 'orders' takes any number of values"),
        (by_position, "its parameter 'order' can only be given by its position"),
        (marked_twice, "its parameter 'value' has several marks"),
        (odd_property, "its parameter 'value' has the type dict"),
        (circle, "the parameter 'value' of needs_itself depends on itself"),
        (wide_message, "the parameter 'message' of of_message is a message, but the scope of the dependency is 'app'"),
        (wide_needs_narrow, "the parameter 'value' of narrow has the scope 'message', which ends before the scope"),
        (needs_unmarked, "the parameter 'value' of unmarked has no mark, so it has no value"),
    ],
)
def test_a_parameter_without_a_value_is_named(handler: Callable[..., Any], said: str) -> None:
    with pytest.raises(WorkerSetupError) as raised:
        read_signature(handler)
    assert said in str(raised.value)
    assert handler.__name__ in str(raised.value)


@pytest.mark.parametrize(
    ("wanted", "written"),
    [
        (int, "list[int]"),
        (Order, "list[Order]"),
        (dict[str, list[Order]], "list[dict[str, list[Order]]]"),
        (Optional[int], "list[int | None]"),  # noqa: UP045 -- older programs write it so
        (int | Literal["none"] | None, "list[int | Literal['none'] | None]"),
        (tuple[int, ...], "list[tuple[int, ...]]"),
        (Callable[[int], str], "list[Callable[[int], str]]"),
    ],
)
def test_an_error_names_a_type_as_a_program_writes_it(wanted: Any, written: str) -> None:
    def handler(order: Any) -> None: ...

    handler.__annotations__["order"] = wanted
    with pytest.raises(WorkerSetupError) as refused:
        read_signature(handler, batch=True)
    assert str(refused.value).endswith(f"must be a list, because the handler takes a batch: {written}.")


def test_an_error_of_a_declaration_is_about_the_program_and_no_operation() -> None:
    worker = Worker("redis://nowhere")
    with pytest.raises(WorkerSetupError) as refused:
        worker.queue("q", publishes="results", replies=True)
    assert str(refused.value) == "The result of a handler goes to one place: leave out publishes=, or replies=."
    assert repr(worker) == "<Worker with 0 handlers, stopped>"


# -- handlers and their entities ---------------------------------------------------------------------------------------


def planned(router: Router, by_path: Mapping[str, Mapping[str, Any]] | None = None) -> list[EntityPlan]:
    return plan_of(router._declared, Defaults(entity={}, by_path=by_path or {}, retries=Retries(), overrides={}))


def test_routers_do_not_include_each_other() -> None:
    outer, middle, inner = Router(), Router(), Router()
    outer.include(middle)
    middle.include(inner)
    for router in (outer, middle):
        with pytest.raises(ValueError, match=r"include\(\) takes a router that does not include this one"):
            inner.include(router)
    inner.queue("orders")(lambda: None)
    assert [len(each._declared) for each in (outer, middle, inner)] == [1, 1, 1]


def test_a_router_keeps_no_worker_alive() -> None:
    router, worker = Router(), Worker("redis://nowhere")
    worker.include(router)
    known = weakref.ref(worker)
    del worker
    gc.collect()
    assert known() is None


def test_a_decorator_returns_its_function_and_handlers_of_one_entity_come_together() -> None:
    inner, router = Router(), Router()

    def paid(order: Order) -> None: ...
    async def sent(order: Order) -> None: ...
    async def dead(order: Order) -> None: ...
    async def news(text: str) -> None: ...

    assert inner.queue("orders", subject="paid", max_concurrent_calls=5)(paid) is paid
    assert inner.queue("Orders", subject="sent")(sent) is sent
    router.include(inner)
    router.queue("orders", sub_queue="deadletter")(dead)
    router.subscription("news", "all")(news)
    plans = planned(router)
    assert [plan.source.path for plan in plans] == [*("orders", "orders/$DeadLetterQueue", "news/subscriptions/all")]
    assert [handler.execution for handler in plans[0].handlers] == ["thread", "async"]
    assert plans[0].settings.max_concurrent_calls == 5
    assert plans[1].settings.max_concurrent_calls == 16


def test_annotations_may_name_what_the_function_around_the_handler_has_defined() -> None:
    router = Router()

    @dataclass
    class Local:
        id: int

    @router.queue("orders")
    async def handle(order: Local) -> None: ...

    body = planned(router)[0].handlers[0].signature.body
    assert body is not None
    assert body.type is Local


def test_retries_are_those_of_the_handler_else_of_the_entity_else_of_the_worker() -> None:
    router = Router()
    own, of_entity = Retries(attempts=2), Retries(attempts=3)

    @router.queue("a", retries=own, no_retry=(KeyError,), subject="x")
    async def one() -> None: ...
    @router.queue("a")
    async def two() -> None: ...
    @router.queue("b")
    async def three() -> None: ...

    first, second = planned(router, {"a": {"retries": of_entity}})
    assert [handler.retries.attempts for handler in first.handlers] == [2, 3]
    assert first.handlers[0].retries.no_retry == (KeyError,)
    assert second.handlers[0].retries == Retries()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([{"subject": "a", "prefetch": 1}, {"prefetch": 2}], "says prefetch=1 for 'q', and .* says prefetch=2"),
        ([{"batch": 5, "execution": "process"}], "takes one message at a time"),
        ([{"publishes": "x", "replies": True}], "goes to one place"),
        ([{"execution": "thread"}], "is a coroutine function"),
    ],
)
def test_options_that_do_not_fit_together_are_refused(options: list[dict[str, Any]], said: str) -> None:
    router = Router()

    def declare() -> None:
        for each in options:

            @router.queue("q", **each)
            async def handle() -> None: ...

        planned(router)

    with pytest.raises(WorkerSetupError, match=said):
        declare()


def test_the_outcomes_show_what_they_say() -> None:
    assert [repr(each) for each in (Complete(), Abandon(5), DeadLetter("a", "b"), Defer())] == [
        *("Complete()", "Abandon(delay=5.0)", "DeadLetter(reason='a', description='b')", "Defer()")
    ]
